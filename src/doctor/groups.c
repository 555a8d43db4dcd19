/* doctor/groups.c - what the saved groups say: flags, hyper-parameters, whose state is there, and in which order. */
#include "doctor/facts.h"

#include <stdio.h>
#include "anatomy/producer.h"
#include "format/table.h"

static const ckpt_str none = {NULL, 0};

const ckpt_value *ckpt__doctor_hyper(const ckpt__examination *p, const ckpt__doctor_group *g, const char *key,
                                     bool *tensor)
{
    char name[600];
    size_t i;
    const ckpt_value *v = NULL;
    bool is_tensor = false;
    if (g->dict) {
        v = ckpt_value_get(g->dict, key);
        is_tensor = v && v->kind == CKPT_V_TENSOR;
    } else if (g->canon) {
        int n = snprintf(name, sizeof name, "optimizer.groups.%.*s.%s",
                         (int)(g->canon->name.size < 400 ? g->canon->name.size : 400), g->canon->name.data, key);
        if (n > 0 && ckpt__hash_get(p->canon->by_name, name, (size_t)n, &i)) {
            v = p->canon->entries[i].value;
            is_tensor = p->canon->entries[i].is_tensor;
        }
    }
    if (tensor)
        *tensor = is_tensor;
    return v;
}

static bool has_hyper(const ckpt__examination *p, const ckpt__doctor_group *g, const char *key)
{
    bool tensor;
    return ckpt__doctor_hyper(p, g, key, &tensor) || tensor;
}

double ckpt__doctor_real(const ckpt_value *v)
{
    return !v                        ? 0
           : v->kind == CKPT_V_FLOAT ? v->real
           : v->kind == CKPT_V_INT   ? (double)v->integer
                                     : v->kind == CKPT_V_BOOL && v->boolean;
}

static bool has_item(const ckpt__examination *p, const ckpt__doctor_slot *slot, const char *key)
{
    for (size_t i = slot->first; i < slot->first + slot->count; i++)
        if (ckpt__str_is(p->items[i].key, key))
            return true;
    return false;
}

/* In a file of ours the program that resumes is the one that saved, and what it did not bind is no loss: only what some of the
 * groups or parameters have can be missing to others. */
bool ckpt__doctor_bound(const ckpt__examination *p, const char *hyper, const char *key)
{
    if (!ckpt__format_of(p->index)->bound || p->loader->loader != CKPT_LOADER_CKPT)
        return true;
    for (size_t g = 0; hyper && g < p->group_count; g++)
        if (has_hyper(p, &p->groups[g], hyper))
            return true;
    for (size_t i = 0; key && i < p->slot_count; i++)
        if (has_item(p, &p->slots[i], key))
            return true;
    return false;
}

static ckpt_str name_of(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    return slot->param != SIZE_MAX ? p->index->tensors[slot->param].info.name : none;
}

static void check_lr(ckpt__examination *p, const ckpt__doctor_group *g)
{
    char text[CKPT__DOUBLE_MAX] = "a tensor", group[24];
    bool tensor = false;
    const ckpt_value *lr = ckpt__doctor_hyper(p, g, "lr", &tensor);
    snprintf(group, sizeof group, "%zu", (size_t)(g - p->groups));
    if (!lr && !tensor && has_hyper(p, g, "step_sizes"))
        return; /* Rprop: its step() does not read it */
    if (!lr && !tensor) {
        if (ckpt__doctor_bound(p, "lr", NULL))
            ckpt__doctor_note(p, CKPT__NO_LR, NULL, none, group, NULL, NULL);
        return;
    }
    if (tensor && g->foreach == 1 && g->capturable != 1)
        ckpt__doctor_note(p, CKPT__TENSOR_LR, NULL, none, group, NULL, NULL);
    if (!tensor && (lr->kind == CKPT_V_FLOAT || lr->kind == CKPT_V_INT))
        ckpt__format_double(text, ckpt__doctor_real(lr));
    ckpt__doctor_note(p, CKPT__LR, NULL, none, text, NULL, NULL);
    if (has_hyper(p, g, "initial_lr"))
        p->had_scheduler = true; /* only a scheduler puts it there */
    else
        ckpt__doctor_note(p, p->has_scheduler ? CKPT__NO_INITIAL_LR_SCHEDULED : CKPT__NO_INITIAL_LR, NULL, none, group,
                          NULL, NULL);
}

/* The parameters of one optimizer that have state, and those that should and have none. */
typedef struct tally {
    uint64_t with, without;
    ckpt_str first;
} tally;

/* SGD keeps None for a momentum that it has not begun. */
bool ckpt__doctor_stateless(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    for (size_t i = slot->first; i < slot->first + slot->count; i++)
        if (p->items[i].tensor != SIZE_MAX || !p->items[i].value || p->items[i].value->kind != CKPT_V_NONE)
            return false;
    return true;
}

static void check_group(ckpt__examination *p, const ckpt__doctor_group *g, tally *t)
{
    bool adam = has_hyper(p, g, "betas.0") || has_hyper(p, g, "betas");
    bool momentum = ckpt__doctor_real(ckpt__doctor_hyper(p, g, "momentum", NULL)) != 0;
    bool amsgrad = ckpt__doctor_real(ckpt__doctor_hyper(p, g, "amsgrad", NULL)) != 0;
    bool stateful;
    check_lr(p, g);
    ckpt__doctor_kind(p, g, &stateful);
    for (size_t i = g->first; i < g->first + g->count; i++) {
        const ckpt__doctor_slot *slot = &p->slots[i];
        if (!ckpt__doctor_stateless(p, slot)) {
            t->with++;
            if (adam && amsgrad && !has_item(p, slot, "max_exp_avg_sq") && has_item(p, slot, "exp_avg"))
                ckpt__doctor_note(p, CKPT__NO_MAX_EXP_AVG_SQ, NULL, name_of(p, slot), NULL, NULL, NULL);
        } else if (adam || momentum || stateful) { /* plain SGD and the like keep no state */
            if (t->without++ == 0)
                t->first = name_of(p, slot);
        }
    }
}

/* The flags of all groups of one optimizer, beside what the program constructs. */
static void check_flags(ckpt__examination *p, size_t optimizer)
{
    bool all_fused = true, any_fused = false, all_capturable = true, any_capturable = false;
    ckpt__situation s = ckpt__doctor_situation(p);
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    for (size_t i = o->first_group; i < o->first_group + o->group_count; i++) {
        const ckpt__doctor_group *g = &p->groups[i];
        if (g->count == 0) /* the flags of no parameter */
            continue;
        all_fused &= g->fused == 1;
        any_fused |= g->fused == 1;
        all_capturable &= g->capturable == 1;
        any_capturable |= g->capturable == 1;
    }
    bool wants_fused = s.program == CKPT__K_FUSED, wants_capturable = s.program == CKPT__K_CAPTURABLE;
    s.kind = (wants_fused ? all_fused : any_fused)                  ? CKPT__K_FUSED
             : (wants_capturable ? all_capturable : any_capturable) ? CKPT__K_CAPTURABLE
                                                                    : CKPT__K_PLAIN;
    if (wants_capturable && all_capturable)
        s.kind = CKPT__K_CAPTURABLE;
    ckpt__doctor_note(p, CKPT__FLAGS, &s, none, ckpt_optimizer_kind_name(p->options->optimizer),
                      s.kind == CKPT__K_FUSED        ? "fused=True"
                      : s.kind == CKPT__K_CAPTURABLE ? "capturable=True"
                      : wants_fused                  ? "no fused=True"
                                                     : "no capturable=True",
                      NULL);
}

static void check_missing(ckpt__examination *p, size_t optimizer, const tally *t)
{
    if (t->without == 0)
        return;
    char missing[32], all[32], said[64] = "and the checkpoint does not say how many steps were taken";
    const char *what;
    int64_t taken = ckpt__doctor_taken(p, &what);
    if (taken > 0)
        snprintf(said, sizeof said, "though the checkpoint is of %s %lld", what, (long long)taken);
    snprintf(missing, sizeof missing, "%llu", (unsigned long long)t->without);
    snprintf(all, sizeof all, "%llu", (unsigned long long)(t->with + t->without));
    ckpt__fact fact = !t->with                            ? (taken == 0 ? CKPT__NEVER_STEPPED : CKPT__NO_STATE)
                      : ckpt__doctor_frozen(p, optimizer) ? CKPT__FROZEN_STATE
                                                          : CKPT__SOME_STATE_MISSING;
    ckpt__doctor_note(p, fact, NULL, t->first, missing, all, said);
}

/* A word that says that there is more than weights. */
static bool says_training(ckpt_str key)
{
    static const char *const words[] = {"optim", "sched",  "scaler", "sampler", "loader",
                                        "rng",   "random", "epoch",  "step",    "iter"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (key.size && memmem(key.data, key.size, words[k], strlen(words[k])))
            return true;
    return false;
}

/* Weights and nothing that a resume would go on with: it is not meant to be resumed. */
static bool is_weights_only(ckpt__examination *p)
{
    const char *what;
    bool weights = false;
    const ckpt_value *root = p->inner->root;
    ckpt_loader loader = p->loader->loader;
    if ((loader != CKPT_LOADER_TORCH && loader != CKPT_LOADER_CKPT && loader != CKPT_LOADER_TORCH_CPP &&
         loader < CKPT_LOADER_DCP) ||
        p->has_scheduler || p->has_scaler)
        return false;
    for (size_t i = 0; i < p->index->tensor_count; i++) {
        ckpt_role role = p->index->tensors[i].info.role;
        weights =
            weights || role == CKPT_ROLE_PARAM || (role == CKPT_ROLE_NONE && ckpt__format_of(p->inner)->weights_alone);
        if (role == CKPT_ROLE_RNG || role == CKPT_ROLE_STEP || role == CKPT_ROLE_SCALER)
            return false;
    }
    for (size_t i = 0; root && root->kind == CKPT_V_DICT && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key;
        if (root->entries[i].value->kind != CKPT_V_TENSOR && key->kind == CKPT_V_STR && says_training(key->text))
            return false;
    }
    return weights && ckpt__doctor_taken(p, &what) < 0;
}

/* {path} and {load} of what `show` says, on one line. */
static void put_call(const ckpt__examination *p, ckpt_str call, ckpt__buf *b)
{
    for (size_t i = 0; i < call.size; i++) {
        size_t left = call.size - i;
        const char *at = call.data + i;
        if (left >= 6 && memcmp(at, "{path}", 6) == 0) {
            ckpt__buf_str(b, p->path);
            i += 5;
        } else if (left >= 6 && memcmp(at, "{load}", 6) == 0) {
            ckpt__buf_str(b, p->refusal_count && p->result->load_weights_only ? ", weights_only=False" : "");
            i += 5;
        } else if (left >= 8 && memcmp(at, "{device}", 8) == 0) {
            ckpt__buf_str(b, "cpu");
            i += 7;
        } else if (*at == '\n') {
            ckpt__buf_str(b, "; ");
        } else {
            ckpt__buf_char(b, *at);
        }
    }
}

static void note_weights_only(ckpt__examination *p)
{
    ckpt__buf b = {NULL, 0, 0, false};
    const ckpt_summary *said = ckpt__doctor_summary(p);
    const char *load = ckpt__format_of(p->inner)->python_load;
    if (p->loader->loader == CKPT_LOADER_CKPT)
        ckpt__buf_printf(&b, "ckpt_restore(state, \"%s\", &options, NULL, &err)", p->path);
    else if (p->loader->loader == CKPT_LOADER_TORCH_CPP)
        ckpt__buf_printf(&b, "torch::load(module, \"%s\")", p->path);
    else if (said && said->resume.data && said->resume.size)
        put_call(p, said->resume, &b);
    else
        ckpt__buf_printf(&b, "%s(\"%s\")", load ? load : "torch.load", p->path);
    ckpt__doctor_note(p, CKPT__WEIGHTS_ONLY_FILE, NULL, none, b.failed || !b.data ? "its own loader" : b.data, NULL,
                      NULL);
    ckpt__buf_free(&b);
}

void ckpt__doctor_groups(ckpt__examination *p)
{
    for (size_t o = 0; o < p->optimizer_count; o++) {
        tally t = {0, 0, {NULL, 0}};
        for (size_t i = 0; i < p->optimizers[o].group_count; i++)
            check_group(p, &p->groups[p->optimizers[o].first_group + i], &t);
        check_missing(p, o, &t);
        check_flags(p, o);
        if (p->optimizers[o].dead) {
            char n[32];
            snprintf(n, sizeof n, "%llu", (unsigned long long)p->optimizers[o].dead);
            if (!p->optimizers[o].lost || !ckpt__doctor_note(p, CKPT__IDS_LOST, NULL, none, n, NULL, NULL))
                ckpt__doctor_note(p, CKPT__DEAD_STATE, NULL, none, n, NULL, NULL);
        }
    }
    ckpt__doctor_stateful(p);
}

void ckpt__doctor_stateful(ckpt__examination *p)
{
    bool state = p->optimizer_count > 0;
    for (size_t i = 0; i < p->index->tensor_count && !state; i++)
        state = ckpt_role_is_optimizer(p->index->tensors[i].info.role);
    const ckpt_value *root; /* in a folder of one file that of the file */
    ckpt_str file;
    ckpt__producer_match(p->index, &root, &file);
    const ckpt_value *list = ckpt_value_get(root, "optimizer_states");
    if (!state && p->loader->loader == CKPT_LOADER_LIGHTNING && list && list->kind == CKPT_V_LIST)
        ckpt__doctor_note(p, CKPT__OPTIMIZERS_EMPTY, NULL, none, NULL, NULL, NULL);
    else if (!state && !p->broken_optimizer && is_weights_only(p))
        note_weights_only(p);
    else if (!state && !p->broken_optimizer &&
             (p->loader->loader != CKPT_LOADER_CKPT || !ckpt__format_of(p->index)->bound))
        ckpt__doctor_note(p, CKPT__NO_OPTIMIZER, NULL, none, NULL, NULL,
                          NULL); /* of ours: the program that saved it had none */
}

/* ---- order */

bool ckpt__doctor_names_fit(ckpt__examination *p)
{
    char a[32], b[32];
    size_t wanted = p->options->param_name_count;
    bool fits = p->optimizer_count == 0 || wanted == 0;
    for (size_t o = 0; o < p->optimizer_count && !fits; o++)
        fits = p->optimizers[o].slot_count == wanted;
    if (fits)
        return true;
    snprintf(a, sizeof a, "%zu", wanted);
    snprintf(b, sizeof b, "%zu", p->slot_count);
    ckpt__doctor_note(p, CKPT__GROUP_COUNT, NULL, none, a, b, "the program's optimizer has, by the names given,");
    return false;
}

/* Is the declared name this canonical one, perhaps with a wrapper's prefix in front? */
static bool same_name(const char *declared, ckpt_str name)
{
    size_t n = strlen(declared);
    return name.data && n >= name.size && memcmp(declared + n - name.size, name.data, name.size) == 0 &&
           (n == name.size || declared[n - name.size - 1] == '.');
}

/* The declared order against the file's own. */
static ckpt_status check_declared(ckpt__examination *p)
{
    ckpt__canon_hints hints;
    ckpt__canon *own = NULL;
    ckpt_error ignored = CKPT_ERROR_INIT;
    char a[200], b[200], c[24];
    memset(&hints, 0, sizeof hints);
    hints.map = p->map;
    hints.anatomy = p->anatomy;
    hints.optional_optimizer = true;
    ckpt_report *said = ckpt_report_new();
    ckpt_status status = said ? ckpt__canon_build(p->index, &hints, &own, said, &ignored) : CKPT_E_NO_MEMORY;
    ckpt_report_free(said);
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__fail_memory(p->err, "canonical names", 0);
    size_t n = 0;
    bool differs = false;
    for (size_t g = 0; status == CKPT_OK && own && !own->hypothesis && !differs && g < own->group_count; g++)
        for (size_t i = 0; i < own->groups[g].param_count && n < p->options->param_name_count && !differs; i++, n++) {
            ckpt_str name = own->groups[g].params[i];
            if (!name.data || same_name(p->options->param_names[n], name))
                continue;
            differs = true;
            snprintf(c, sizeof c, "%zu", n);
            ckpt__doctor_note(p, CKPT__ORDER_DIFFERS, NULL, none,
                              ckpt__escape(a, sizeof a, p->options->param_names[n], strlen(p->options->param_names[n])),
                              ckpt__escape(b, sizeof b, name.data, name.size), c);
        }
    ckpt__canon_free(own);
    return CKPT_OK;
}

/* Groups that name their parameters in another order than the model's dict has them: a program that hands over
 * model.parameters() has that one. */
static void check_named(ckpt__examination *p)
{
    char a[200], b[200];
    for (size_t g = 0; g < p->group_count; g++) {
        const ckpt__doctor_group *group = &p->groups[g];
        const ckpt_value *names = group->dict ? ckpt_value_get(group->dict, "param_names") : NULL;
        size_t last = 0;
        bool any = false;
        for (size_t i = group->first; names && i < group->first + group->count; i++) {
            size_t t = p->slots[i].param;
            if (t == SIZE_MAX || p->index->tensors[t].sorted)
                break;
            if (any && t < last) {
                ckpt_str one = p->index->tensors[last].info.name, two = p->index->tensors[t].info.name;
                ckpt__doctor_note(p, CKPT__ORDER_NAMED, NULL, none, ckpt__escape(a, sizeof a, one.data, one.size),
                                  ckpt__escape(b, sizeof b, two.data, two.size), NULL);
                break;
            }
            last = t;
            any = true;
        }
    }
}

ckpt_status ckpt__doctor_order(ckpt__examination *p)
{
    if (p->options->param_name_count > 0)
        return check_declared(p);
    check_named(p);
    return CKPT_OK;
}
