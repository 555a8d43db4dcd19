/* examine/summary_find.c - optimizers and schedulers wherever they lie, which they are by the keys that they keep, and
 * what is special about a checkpoint. */
#include "examine/summary.h"

/* ---- which class: the keys that torch's own __init__ gives its groups, and a scheduler its __dict__ (torch/optim/).
 */

typedef struct kind_row {
    const char *name;
    const char *all, *none; /* words: keys, or key=True, key=False */
    const char *state;      /* a key of a parameter's state; NULL: any */
} kind_row;

static const kind_row optimizers[] = {
    {"Muon", "ns_steps ns_coefficients", "", NULL},
    {"NAdam", "betas momentum_decay", "", NULL},
    {"SGD", "momentum dampening nesterov", "", NULL},
    {"RMSprop", "alpha centered", "betas", NULL},
    {"Adadelta", "rho", "betas", NULL},
    {"Adagrad", "lr_decay initial_accumulator_value", "", NULL},
    {"ASGD", "lambd alpha t0", "", NULL},
    {"Rprop", "etas step_sizes", "", NULL},
    {"LBFGS", "max_iter max_eval history_size", "", NULL},
    {"Adafactor", "beta2_decay d", "", NULL},
    {"Adafactor (transformers)", "scale_parameter relative_step warmup_init", "", NULL},
    {"AdamW", "betas eps amsgrad decoupled_weight_decay=True", "", NULL},
    {"Adam", "betas eps amsgrad decoupled_weight_decay=False", "", NULL},
    {"Adam or AdamW", "betas eps amsgrad",
     "decoupled_weight_decay momentum_decay grad_averaging decoupled_decay rectify weight_decouple nus", NULL},
    {"RAdam", "betas eps decoupled_weight_decay capturable", "amsgrad momentum_decay", NULL},
    {"Adamax", "betas eps", "amsgrad", "exp_inf"},
    {"SparseAdam", "betas eps maximize", "weight_decay amsgrad", NULL},
};

static const kind_row schedulers[] = {
    {"SequentialLR", "_schedulers _milestones", "", NULL},
    {"ChainedScheduler", "_schedulers", "_milestones", NULL},
    {"CosineAnnealingWarmRestarts", "T_0 T_mult eta_min", "", NULL},
    {"CosineAnnealingLR", "T_max eta_min", "", NULL},
    {"OneCycleLR", "total_steps _schedule_phases", "", NULL},
    {"CyclicLR", "total_size step_ratio", "", NULL},
    {"StepLR", "step_size gamma", "", NULL},
    {"MultiStepLR", "milestones gamma", "warmup_iters", NULL},
    {"ReduceLROnPlateau", "patience num_bad_epochs factor", "", NULL},
    {"LinearLR", "start_factor end_factor total_iters", "", NULL},
    {"PolynomialLR", "total_iters power", "", NULL},
    {"ConstantLR", "factor total_iters", "", NULL},
    {"LambdaLR or MultiplicativeLR", "lr_lambdas", "", NULL},
    {"SWALR", "anneal_epochs base_lrs", "", NULL},
    {"ExponentialLR", "gamma base_lrs", "step_size milestones", NULL},
};

static bool has_word(const ckpt_value *dict, const char *word, size_t n)
{
    char key[64];
    const char *value = memchr(word, '=', n);
    size_t size = value ? (size_t)(value - word) : n;
    if (size >= sizeof key)
        return false;
    memcpy(key, word, size);
    key[size] = '\0';
    const ckpt_value *v = ckpt_value_get(dict, key);
    return v && (!value || (v->kind == CKPT_V_BOOL && v->boolean == (value[1] == 'T')));
}

/* Of the words, do all hold, or does any? */
static bool words_hold(const ckpt_value *dict, const char *words, bool all)
{
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        if (has_word(dict, at, n) != all)
            return !all;
        at += n + (at[n] == ' ');
    }
    return all;
}

static const char *class_by(const kind_row *rows, size_t count, const ckpt_value *dict, const ckpt_value *state)
{
    for (size_t i = 0; dict && i < count; i++)
        if (words_hold(dict, rows[i].all, true) && !words_hold(dict, rows[i].none, false) &&
            (!rows[i].state || (state && ckpt_value_get(state, rows[i].state))))
            return rows[i].name;
    return NULL;
}

/* The options of the first group: torch's list, our dict of dicts, libtorch's "param_groups/0": {"options": {...}}. */
static const ckpt_value *first_group(const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    if (!groups)
        groups = ckpt_value_get(optimizer, "groups");
    if (groups && (groups->kind == CKPT_V_LIST || groups->kind == CKPT_V_TUPLE))
        return groups->item_count ? groups->items[0] : NULL;
    const ckpt_value *in = groups && groups->kind == CKPT_V_OBJECT && groups->state ? groups->state : groups;
    for (size_t i = 0; in && i < in->entry_count; i++) {
        const ckpt_value *options = ckpt_value_get(in->entries[i].value, "options");
        if (options || ckpt_value_get(in->entries[i].value, "lr"))
            return options ? options : in->entries[i].value;
    }
    return NULL;
}

const char *ckpt__optimizer_class(const ckpt_value *optimizer)
{
    const ckpt_value *state = optimizer ? ckpt_value_get(optimizer, "state") : NULL;
    const ckpt_value *first = state && state->entry_count ? state->entries[0].value : NULL;
    return class_by(optimizers, sizeof optimizers / sizeof *optimizers, optimizer ? first_group(optimizer) : NULL,
                    first);
}

const char *ckpt__scheduler_class(const ckpt_value *scheduler)
{
    return class_by(schedulers, sizeof schedulers / sizeof *schedulers, scheduler, NULL);
}

static bool is_set(const ckpt_value *group, const char *flag)
{
    const ckpt_value *v = ckpt_value_get(group, flag);
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

/* The flags of the groups in one word, as they stand in the file. */
static const char *kind_of(const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    const char *kind = NULL;
    for (size_t i = 0; groups && groups->kind == CKPT_V_LIST && i < groups->item_count; i++) {
        const ckpt_value *g = groups->items[i];
        const char *own = is_set(g, "fused")        ? "fused"
                          : is_set(g, "capturable") ? "capturable"
                          : is_set(g, "foreach")    ? "foreach"
                                                    : "plain";
        if (kind && strcmp(kind, own) != 0)
            return "mixed";
        kind = own;
    }
    return kind;
}

/* LBFGS keeps one state for all, SGD without momentum none: no parameter of theirs lacks one. */
static bool has_no_state_of_its_own(const char *class_name, const ckpt_value *optimizer)
{
    const ckpt_value *groups = optimizer ? ckpt_value_get(optimizer, "param_groups") : NULL;
    if (!class_name || strcmp(class_name, "SGD") != 0)
        return class_name && strcmp(class_name, "LBFGS") == 0;
    for (size_t i = 0; groups && i < groups->item_count; i++) {
        const ckpt_value *v = ckpt_value_get(groups->items[i], "momentum");
        if (!v || (v->kind == CKPT_V_INT ? v->integer != 0 : v->kind != CKPT_V_FLOAT || v->real != 0))
            return false;
    }
    return groups && groups->item_count > 0;
}

/* ---- where they are */

static bool is_scheduler(const ckpt_value *v)
{
    const ckpt_value *parts = v->kind == CKPT_V_DICT ? ckpt_value_get(v, "_schedulers") : NULL;
    if (parts && parts->kind == CKPT_V_LIST && ckpt_value_get(v, "_last_lr"))
        return true; /* SequentialLR has no base_lrs of its own, ChainedScheduler no last_epoch */
    if (v->kind != CKPT_V_DICT || !ckpt_value_get(v, "last_epoch"))
        return false;
    return ckpt_value_get(v, "base_lrs") || ckpt_value_get(v, "_step_count") || ckpt_value_get(v, "num_bad_epochs");
}

typedef struct finder {
    ckpt_summary *out;
    ckpt_str inside; /* the last that was found: what is in it is its own */
    ckpt__buf name;
    const ckpt_value *first;      /* optimizer */
    ckpt_str first_path;
    bool no_memory;
} finder;

static int look_at(void *ctx, const ckpt_visit *visit)
{
    finder *f = ctx;
    ckpt_summary *out = f->out;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_DICT || visit->cycle)
        return CKPT_OK;
    size_t n = f->name.size;
    if (n && visit->name.size > n && memcmp(visit->name.data, f->name.data, n) == 0 && visit->name.data[n] == '.')
        return CKPT_OK; /* inside the last one: a scheduler of a SequentialLR */
    bool optimizer = ckpt__is_optimizer(v), scheduler = !optimizer && is_scheduler(v);
    if (!optimizer && !scheduler)
        return CKPT_OK;
    f->name.size = 0;
    ckpt__buf_add(&f->name, visit->name.data, visit->name.size);
    uint64_t count = optimizer ? out->optimizer_count++ : out->scheduler_count++;
    if (count == 0 && optimizer) {
        f->first = v;
        f->first_path = ckpt__summary_keep(out, visit->name);
    } else if (count == 0 && scheduler) {
        out->scheduler = v;
        out->scheduler_path = ckpt__summary_keep(out, visit->name);
    }
    f->no_memory = f->no_memory || f->name.failed;
    return CKPT_OK;
}

ckpt_status ckpt__summary_find(const ckpt__index *index, ckpt_summary *out, ckpt_error *err)
{
    enum { NODES = 4000000 }; /* a tree that shares its parts over and over is looked at so far */
    finder f = {.out = out};
    ckpt_error ignored = CKPT_ERROR_INIT;
    int status = index->root ? ckpt_value_walk(index->root, NODES, look_at, &f, &ignored) : CKPT_OK;
    ckpt__buf_free(&f.name);
    if (status == CKPT_E_NO_MEMORY || f.no_memory)
        return ckpt__fail_memory(err, "the parts of a training state", 0);
    if (f.first && f.first != out->optimizer && (!out->optimizer || out->optimizer_count > 1)) {
        out->optimizer = f.first;
        out->optimizer_path = f.first_path;
        out->optimizer_kind = (ckpt_str){NULL, 0}; /* that was another's */
    }
    if (out->optimizer_count > 1)
        memset(&out->state, 0, sizeof out->state); /* whose parameters are which was not asked */
    if (out->optimizer && !out->optimizer_kind.data)
        out->optimizer_kind = ckpt__s(kind_of(out->optimizer));
    out->optimizer_class = ckpt__optimizer_class(out->optimizer);
    out->scheduler_class = ckpt__scheduler_class(out->scheduler);
    if (has_no_state_of_its_own(out->optimizer_class, out->optimizer) && out->state.without_param == 0)
        memset(&out->state, 0, sizeof out->state);
    return CKPT_OK;
}

/* ---- what is special */

static bool ends_in(ckpt_str s, const char *tail)
{
    size_t n = strlen(tail);
    return s.data && s.size >= n && memcmp(s.data + s.size - n, tail, n) == 0;
}

static void add_mark(ckpt__buf *marks, const char *text)
{
    if (marks->size)
        ckpt__buf_str(marks, ", ");
    ckpt__buf_str(marks, text);
}

/* bitsandbytes/nn/modules.py: Linear8bitLt keeps SCB beside an int8 weight. */
static bool is_int8_weight(const ckpt__index *index, const ckpt_reader *reader, ckpt_str name)
{
    char weight[512];
    size_t i, stem = name.size - 3; /* "SCB" */
    if (stem + 7 > sizeof weight)
        return false;
    memcpy(weight, name.data, stem);
    memcpy(weight + stem, "weight", 7);
    return ckpt_reader_find(reader, weight, stem + 6, &i, NULL) == CKPT_OK && index->tensors[i].info.dtype == CKPT_I8;
}

ckpt_status ckpt__summary_marks(const ckpt__index *index, const ckpt_reader *reader, ckpt_summary *out, ckpt_error *err)
{
    bool nf4 = false, fp4 = false, int8 = false, qmap = false, absmax = false;
    ckpt__buf marks = {0};
    for (size_t i = 0; i < index->tensor_count; i++) {
        const ckpt_tensor_info *t = &index->tensors[i].info;
        nf4 = nf4 || ends_in(t->name, ".quant_state.bitsandbytes__nf4");
        fp4 = fp4 || ends_in(t->name, ".quant_state.bitsandbytes__fp4");
        qmap = qmap || ends_in(t->name, ".qmap1");
        absmax = absmax || ends_in(t->name, ".absmax1");
        if (!int8 && (ends_in(t->name, ".SCB") || ckpt__str_is(t->name, "SCB")))
            int8 = is_int8_weight(index, reader, t->name);
    }
    const ckpt_value *adapter = index->root ? ckpt_value_get(index->root, "adapter_config.json") : NULL;
    const ckpt_value *type = adapter ? ckpt_value_get(adapter, "peft_type") : NULL;
    if (type && type->kind == CKPT_V_STR) {
        char shown[60];
        add_mark(&marks, "PEFT ");
        ckpt__buf_str(&marks, ckpt__escape(shown, sizeof shown, type->text.data, type->text.size));
        ckpt__buf_str(&marks, " adapter");
    }
    if (qmap && absmax)
        add_mark(&marks, "bitsandbytes 8-bit optimizer");
    if (nf4 || fp4)
        add_mark(&marks, nf4 && fp4 ? "bitsandbytes 4-bit weights (nf4, fp4)"
                         : nf4      ? "bitsandbytes 4-bit weights (nf4)"
                                    : "bitsandbytes 4-bit weights (fp4)");
    if (int8)
        add_mark(&marks, "bitsandbytes int8 weights");
    bool failed = marks.failed;
    if (marks.size && !failed) {
        out->marks = ckpt__summary_keep(out, (ckpt_str){marks.data, marks.size});
        failed = !out->marks.data;
    }
    ckpt__buf_free(&marks);
    return failed ? ckpt__fail_memory(err, "the marks of a checkpoint", 0) : CKPT_OK;
}
