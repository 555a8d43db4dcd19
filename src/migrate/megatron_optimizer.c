/* migrate/megatron_optimizer.c - a checkpoint of megatron-core (torch-dist): what common.pt says of its optimizer.
 *
 *     {state: {common_step}, param_groups}                                      that of float32
 *     {optimizer: {param_groups}, param_state_sharding_type}                    the distributed one, whose groups have the step
 *     {0: one of these, 1: another one}                                         experts on several ranks have an optimizer of their own
 *
 * The third is asked for by a program with two expert parallel ranks or more, and by no other; the tensors are the same for both. So is the
 * length of each list of groups: a group is in the list of the optimizer that has parameters of it.
 * [megatron/core/optimizer/__init__.py: get_megatron_optimizer; optimizer.py: ChainedOptimizer, _filter_and_reorder_param_groups] */
#include "migrate/megatron_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/megatron/megatron.h"
#include "migrate/to_canonical.h"
#include "migrate/torch.h"
#include "engine/stream.h"
#include "model/training.h"

enum { OPTIMIZERS = 2 }; /* that of all but experts, and theirs */

/* A group of the source. */
typedef struct group {
    const ckpt_value *value;
    bool has[OPTIMIZERS]; /* it has parameters of that one */
} group;

typedef struct grouping {
    ckpt__megatron *g;
    group *groups; /* heap */
    size_t count;
    bool chained;  /* the target's optimizer is two */
    bool by_flags; /* which groups are the experts' is_expert_parallel says */
} grouping;

static const char EXPERT[] = "is_expert_parallel";

static ckpt_status no_memory(const ckpt__megatron *g)
{
    return ckpt__migration_no_memory(g->err);
}

static bool is_true(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

/* ---- which form */

/* Of how many experts each layer has that has some; 0: there are none. */
static int64_t count_experts(const ckpt__megatron *g)
{
    const ckpt__index *x = g->m->index;
    for (size_t k = 0; k < g->m->chosen_count; k++) {
        const ckpt_tensor_info *t = &x->tensors[g->m->chosen[k]].info;
        const uint32_t dim = ckpt__meg_is_layer_key(t->name);
        if (!t->state_key.data && ckpt__meg_is_expert_key(t->name) && t->ndim > dim)
            return t->shape[dim];
    }
    return 0;
}

static ckpt_status check_ranks(const ckpt__megatron *g, int64_t experts)
{
    const uint32_t ranks = g->m->options.expert_parallel;
    if (!ranks)
        return CKPT_OK;
    if (!experts)
        return ckpt__fail(g->err, CKPT_E_ARGUMENT, g->m->dst,
                          "--expert-parallel %u: the model has no experts under the names of megatron-core", ranks);
    return experts % ranks
               ? ckpt__fail(
                     g->err, CKPT_E_ARGUMENT, g->m->dst,
                     "--expert-parallel %u: each layer has %lld experts, which so many ranks cannot share evenly",
                     ranks, (long long)experts)
               : CKPT_OK;
}

/* A program with one expert parallel rank does not load the form for several, and the other way round. */
static ckpt_status say_form(const ckpt__megatron *g, bool chained)
{
    return ckpt__report_add(
               g->m->report, CKPT_SEVERITY_NOTE, "torch-dist-experts", NULL,
               chained ? "--expert-parallel 1, for a program with one expert parallel rank"
                       : "--expert-parallel N, for a program with N expert parallel ranks",
               "the optimizer is written for %s: megatron-core loads it there alone, for experts on several ranks have an "
               "optimizer of their own",
               chained ? "two expert parallel ranks or more" : "one expert parallel rank")
               ? CKPT_OK
               : no_memory(g);
}

/* ---- groups */

/* megatron-core finds a group of its own by these. */
static ckpt_status note_lacking(const ckpt__megatron *g, const ckpt_value *const *groups, size_t count, bool chained)
{
    static const char *const asked[] = {"wd_mult", "lr_mult", EXPERT, "is_decoupled_lr"};
    static const char *const set[] = {"wd_mult=1.0", "lr_mult=1.0", "is_expert_parallel=False",
                                      "is_decoupled_lr=False"};
    char names[120] = "", sets[120] = "";
    size_t at = 0, to = 0, lacking = 0;
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++) {
        bool all = true;
        for (size_t i = 0; i < count; i++)
            all = all && ckpt__at(groups[i], asked[k]);
        if (all || at >= sizeof names || to >= sizeof sets)
            continue;
        to += (size_t)snprintf(sets + to, sizeof sets - to, "%s%s", lacking ? ", " : "", set[k]);
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", lacking++ ? ", " : "", asked[k]);
    }
    if (!lacking)
        return CKPT_OK;
    char fix[500];
    snprintf(fix, sizeof fix,
             "set them in common.pt: for g in %s: g.update(%s), with wd_mult 0.0 for the group without weight decay",
             chained ? "[g for o in c['optimizer'].values() for g in o.get('optimizer', o)['param_groups']]"
                     : "c['optimizer']['param_groups'] (or ['optimizer']['optimizer']['param_groups'])",
             sets);
    bool added = ckpt__report_add(
        g->m->report, CKPT_SEVERITY_WARNING, "groups-lack", NULL, fix,
        "the optimizer's groups do not say %s, and none of it is made up: megatron-core finds its groups by them, and raises KeyError",
        names);
    return added ? CKPT_OK : no_memory(g);
}

/* experts: what it says of itself; -1: what the source says, if anything. */
static const ckpt_value *make_group(const ckpt__megatron *g, const ckpt_value *was, int experts)
{
    ckpt__made_dict d = {.arena = g->arena};
    bool step = false, said = false;
    for (size_t i = 0; i < was->entry_count; i++) {
        const ckpt_value *key = was->entries[i].key, *v = was->entries[i].value;
        const ckpt_str name = key->kind == CKPT_V_STR ? key->text : (ckpt_str){NULL, 0};
        if (ckpt__str_is(name, "params") || ckpt__str_is(name, "param_names"))
            continue;
        if (ckpt__str_is(name, EXPERT) && experts >= 0) {
            said = true;
            v = ckpt__value_bool(g->arena, experts);
        }
        step |= ckpt__str_is(name, "step");
        ckpt__made_put(&d, key, v);
    }
    if (!said && experts >= 0)
        ckpt__made_put_as(&d, EXPERT, ckpt__value_bool(g->arena, experts));
    if (!step && g->masters && g->m->common_step >= 0)
        ckpt__made_put_as(&d, "step", ckpt__value_int(g->arena, g->m->common_step));
    return ckpt__made_finish(&d);
}

static bool is_setting(const ckpt_value *key)
{
    return key->kind != CKPT_V_STR || !(ckpt__str_is(key->text, "params") || ckpt__str_is(key->text, "param_names") ||
                                        ckpt__str_is(key->text, EXPERT));
}

/* A setting that one has otherwise than the other, or alone; NULL: they are alike. */
static const char *differs(const ckpt_value *a, const ckpt_value *b)
{
    for (size_t i = 0; i < a->entry_count; i++) {
        const ckpt_value *key = a->entries[i].key, *v = key->kind == CKPT_V_STR ? ckpt__at(b, key->text.data) : NULL;
        if (is_setting(key) && (!v || !ckpt__value_alike(a->entries[i].value, v)))
            return key->kind == CKPT_V_STR ? key->text.data : "a key that is not text";
    }
    return NULL;
}

/* megatron-core tells two groups of one optimizer apart by these alone. */
static bool is_one_group(const ckpt_value *a, const ckpt_value *b)
{
    static const char *const by[] = {"wd_mult", "lr_mult", "is_decoupled_lr"};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (!ckpt__at(a, by[i]) || !ckpt__at(b, by[i]) || !ckpt__value_alike(ckpt__at(a, by[i]), ckpt__at(b, by[i])))
            return false;
    return true;
}

/* The experts' groups are groups of the one optimizer. *merged: the group is another one's, too. */
static ckpt_status merge_group(const grouping *x, size_t i, bool *merged)
{
    *merged = false;
    for (size_t k = 0; k < i; k++) {
        const ckpt_value *a = x->groups[k].value, *b = x->groups[i].value;
        if (!is_one_group(a, b) || is_true(ckpt__at(a, EXPERT)) == is_true(ckpt__at(b, EXPERT)))
            continue;
        const char *key = differs(a, b) ? differs(a, b) : differs(b, a);
        if (key)
            return ckpt__fail(
                x->g->err, CKPT_E_MISMATCH, x->g->m->dst,
                "the experts' group %zu of the optimizer and group %zu differ in '%s', and a program with one expert "
                "parallel rank has them in one group: write it for several (--expert-parallel N)",
                i, k, key);
        *merged = true;
    }
    return CKPT_OK;
}

/* The groups of one of the two optimizers, or of the one. */
static ckpt_status make_groups(const grouping *x, size_t which, const ckpt_value **items, size_t *count)
{
    const ckpt__megatron *g = x->g;
    ckpt_status status = CKPT_OK;
    *count = 0;
    for (size_t i = 0; status == CKPT_OK && i < x->count; i++) {
        const group *own = &x->groups[i];
        bool merged = false;
        if (x->chained && !own->has[which])
            continue;
        if (!x->chained && x->by_flags)
            status = merge_group(x, i, &merged);
        if (status < 0 || merged)
            continue;
        const bool known = x->chained || g->m->options.expert_parallel;
        items[*count] = make_group(g, own->value, known ? x->chained && which : -1);
        if (!items[(*count)++])
            return no_memory(g);
    }
    return status;
}

/* ---- which group has experts */

/* By the names of its parameters. */
static ckpt_status look_at_names(grouping *x)
{
    const ckpt__canon *c = x->g->m->canon;
    if (c->group_count != x->count)
        return ckpt__fail(
            x->g->err, CKPT_E_UNSUPPORTED, x->g->m->dst,
            "the optimizer has %zu groups, and the parameters of %zu are known: which of them has the experts is not",
            x->count, c->group_count);
    for (size_t i = 0; i < x->count; i++) {
        for (size_t k = 0; k < c->groups[i].param_count; k++)
            x->groups[i].has[ckpt__meg_is_expert_key(c->groups[i].params[k])] = true;
        if (!x->groups[i].has[1])
            x->groups[i].has[0] = true;
    }
    return CKPT_OK;
}

static bool has_experts(const grouping *x)
{
    for (size_t i = 0; i < x->count; i++)
        if (x->groups[i].has[1])
            return true;
    return false;
}

/* Have the experts weights, have they biases? */
static void look_at_experts(const ckpt__megatron *g, bool *weights, bool *biases)
{
    const ckpt__index *x = g->m->index;
    for (size_t k = 0; k < g->m->chosen_count; k++) {
        const ckpt_str name = x->tensors[g->m->chosen[k]].info.name;
        if (!ckpt__meg_is_expert_key(name) || !ckpt__str_begins(name, "decoder."))
            continue;
        *weights = *weights || ckpt__str_ends(name, ".weight");
        *biases = *biases || ckpt__str_ends(name, ".bias");
    }
}

static double number_at(const ckpt_value *v, const char *key)
{
    const ckpt_value *n = ckpt__at(v, key);
    return n && n->kind == CKPT_V_FLOAT ? n->real : n && n->kind == CKPT_V_INT ? (double)n->integer : -1;
}

/* Groups that name no parameters: weights have weight decay, biases have none. A group of its own with that (another learning rate) is not told
 * from it. */
static ckpt_status look_at_decay(grouping *x)
{
    bool has[2] = {false, false}; /* weights, biases */
    size_t found[2] = {0, 0};
    look_at_experts(x->g, &has[0], &has[1]);
    for (size_t i = 0; i < x->count; i++) {
        const double decay = number_at(x->groups[i].value, "wd_mult");
        const size_t kind = decay == 0;
        x->groups[i].has[0] = true;
        if (decay < 0 || is_true(ckpt__at(x->groups[i].value, "is_decoupled_lr")) || !has[kind])
            continue;
        x->groups[i].has[1] = true;
        found[kind]++;
    }
    return found[0] == has[0] && found[1] == has[1]
               ? CKPT_OK
               : ckpt__fail(
                     x->g->err, CKPT_E_UNSUPPORTED, x->g->m->dst,
                     "which of the optimizer's %zu groups has the experts is in no file: they name no parameters, and wd_mult "
                     "does not tell it",
                     x->count);
}

static ckpt_status take_groups(grouping *x, const ckpt_value *list)
{
    group *groups = realloc(x->groups, (x->count + list->item_count + 1) * sizeof *groups);
    if (!groups)
        return no_memory(x->g);
    x->groups = groups;
    for (size_t i = 0; i < list->item_count; i++) {
        x->by_flags = x->by_flags || is_true(ckpt__at(list->items[i], EXPERT));
        x->groups[x->count++] = (group){.value = list->items[i]};
    }
    return CKPT_OK;
}

/* ---- the optimizer of another source */

/* What else the source's optimizer has: grad_scaler. Of two each has one. */
static void put_rest(const ckpt__megatron *g, size_t which, ckpt__made_dict *d)
{
    const ckpt_value *own = ckpt__at(g->m->from->root, "optimizer");
    if (ckpt__is_list(own))
        own = which < own->item_count ? own->items[which] : NULL;
    for (size_t i = 0; own && own->kind == CKPT_V_DICT && i < own->entry_count; i++) {
        const ckpt_value *v = ckpt__edits_now(g->m->edits, own->entries[i].value);
        if (own->entries[i].key->kind == CKPT_V_STR && ckpt__str_is(own->entries[i].key->text, "grad_scaler"))
            ckpt__made_put(d, own->entries[i].key, v);
    }
}

static const ckpt_value *make_one(const ckpt__megatron *g, const ckpt_value *const *groups, size_t count, size_t which)
{
    ckpt__made_dict states = {.arena = g->arena}, inner = {.arena = g->arena}, outer = {.arena = g->arena};
    const ckpt_value **items = ckpt__arena_array(g->arena, count + 1, sizeof *items);
    if (items && count)
        memcpy(items, groups, count * sizeof *items);
    if (g->step_tensor != SIZE_MAX) {
        ckpt_value *v = ckpt__value_new(g->arena, CKPT_V_TENSOR);
        if (v)
            v->tensor = g->step_tensor;
        ckpt__made_put_as(&states, "common_step", v);
    }
    const ckpt_value *state = ckpt__made_finish(&states);
    if (!g->masters)
        ckpt__made_put_as(&inner, "state", state);
    ckpt__made_put_as(&inner, "param_groups", items ? ckpt__value_list(g->arena, CKPT_V_LIST, items, count) : NULL);
    if (!g->masters)
        put_rest(g, which, &inner);
    const ckpt_value *one = ckpt__made_finish(&inner);
    if (!g->masters)
        return one;
    ckpt__made_put_as(&outer, "optimizer", one);
    ckpt__made_put_as(&outer, "param_state_sharding_type", ckpt__value_str(g->arena, "fully_reshardable", 17));
    put_rest(g, which, &outer);
    return ckpt__made_finish(&outer);
}

static ckpt_status make_optimizer(const grouping *x, const ckpt_value **out)
{
    const ckpt__megatron *g = x->g;
    const ckpt_value **items = ckpt__arena_array(g->arena, OPTIMIZERS * (x->count + 1), sizeof *items);
    ckpt__made_dict both = {.arena = g->arena};
    size_t all = 0;
    ckpt_status status = items ? CKPT_OK : no_memory(g);
    for (size_t which = 0; status == CKPT_OK && which < (x->chained ? OPTIMIZERS : 1); which++) {
        size_t count;
        status = make_groups(x, which, items + all, &count);
        if (status < 0)
            break;
        const ckpt_value *one = make_one(g, items + all, count, which);
        *out = one;
        all += count;
        if (x->chained)
            ckpt__made_put(&both, ckpt__value_int(g->arena, (int64_t)which), one);
    }
    const ckpt_value *pair = ckpt__made_finish(&both);
    if (x->chained)
        *out = pair;
    if (status == CKPT_OK && !*out)
        status = no_memory(g);
    return status == CKPT_OK ? note_lacking(g, items, all, x->chained) : status;
}

ckpt_status ckpt__megatron_say_adam(const ckpt__megatron *g)
{
    return ckpt__report_add(
               g->m->report, CKPT_SEVERITY_NOTE, "torch-dist-adam", NULL,
               "install Transformer Engine or Apex; or take a step before the load, and keep 'step' in "
               "DistributedOptimizer._set_main_param_and_optimizer_states",
               "with torch's own Adam the distributed optimizer of megatron-core 0.16 cannot load this form (fully_reshardable), "
               "what it has saved itself included: AssertionError, then KeyError 'step'")
               ? CKPT_OK
               : no_memory(g);
}

/* named: their parameters' names are those of the canonical groups. */
static ckpt_status find_halves(grouping *x, bool named)
{
    if (named)
        return look_at_names(x);
    for (size_t i = 0; x->by_flags && i < x->count; i++)
        x->groups[i].has[is_true(ckpt__at(x->groups[i].value, EXPERT))] = true;
    return x->by_flags ? CKPT_OK : look_at_decay(x);
}

static ckpt_status put_optimizer(ckpt__megatron *g, const ckpt_value *groups, bool named)
{
    const uint32_t ranks = g->m->options.expert_parallel;
    const int64_t experts = count_experts(g);
    const ckpt_value *made = NULL;
    grouping x = {.g = g};
    ckpt_status status = take_groups(&x, groups);
    x.chained = ranks ? ranks > 1 : experts && x.by_flags;
    if (status == CKPT_OK && x.chained)
        status = find_halves(&x, named);
    if (status == CKPT_OK && x.chained && !has_experts(&x)) /* they are not trained */
        x.chained = false;
    if (status == CKPT_OK)
        status = make_optimizer(&x, &made);
    if (status == CKPT_OK)
        status = ckpt__megatron_common(g, ckpt__s("optimizer"), made);
    if (status == CKPT_OK && experts && !ranks)
        status = say_form(g, x.chained);
    free(x.groups);
    return status;
}

/* What a torch-dist had, which names no parameters, for the loader takes those of the running program: in a file of torch beside the group that was
 * made, in others where it was, if its layers were parted. *out NULL: there are none of these. */
static ckpt_status find_saved(const ckpt__megatron *g, const ckpt_value *groups, const ckpt_value **out)
{
    const ckpt_value *saved = ckpt__at(g->m->root, CKPT__MEGATRON_SAVED);
    *out = ckpt__is_list(saved) && saved->item_count ? saved : NULL;
    return *out || (ckpt__is_list(groups) && groups->item_count)
               ? CKPT_OK
               : ckpt__migrate_nameless_groups(g->m, g->arena, out, g->err);
}

ckpt_status ckpt__megatron_optimizer(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    const ckpt_value *own = ckpt__at(m->root, "optimizer"), *groups = ckpt__at(own, "param_groups"), *saved = NULL;
    if (m->options.weights_only)
        return CKPT_OK;
    if (!g->states)
        return m->canon->unnamed.data || ckpt__at(m->from->root, "optimizer") ||
                       ckpt__at(m->from->root, "distrib_optim")
                   ? ckpt__lose(
                         g->m, g->err,
                         "the optimizer: which parameters its states are of is not known. Without it the program begins with a new one (--no-load-optim, --finetune)")
                   : CKPT_OK;
    ckpt_status status = find_saved(g, groups, &saved);
    const bool named = !saved;
    groups = named ? groups : saved;
    if (status < 0)
        return status;
    if (!ckpt__is_list(groups) || !groups->item_count)
        return ckpt__fail(
            g->err, CKPT_E_UNSUPPORTED, m->dst,
            "the optimizer has moments and no groups, and megatron-core loads none without its groups' settings: leave it "
            "out (--weights-only)");
    if (m->common_step < 0 && !ckpt__at(groups->items[0], "step"))
        return ckpt__fail(
            g->err, CKPT_E_UNSUPPORTED, m->dst,
            "the checkpoint does not say how many steps its optimizer has done, which megatron-core asks for: leave the "
            "optimizer out (--weights-only)");
    if (own)
        status = ckpt__lose_settings(g->m, own, g->err);
    if (status == CKPT_OK)
        status = put_optimizer(g, groups, named);
    return status == CKPT_OK && g->masters ? ckpt__megatron_say_adam(g) : status;
}

/* ---- that of a torch-dist, for another number of expert parallel ranks */

/* The halves of two optimizers; one[0] is the whole where there is one. False: it is of another kind. */
static bool halves_of(const ckpt_value *optimizer, const ckpt_value *one[OPTIMIZERS], bool *two)
{
    *two = false;
    if (optimizer->kind != CKPT_V_DICT || !optimizer->entry_count)
        return false;
    for (size_t i = 0; i < optimizer->entry_count; i++) {
        const ckpt_value *key = optimizer->entries[i].key;
        if (key->kind != CKPT_V_INT)
            continue;
        *two = true;
        if (optimizer->entry_count != OPTIMIZERS || key->integer != (int64_t)i)
            return false;
        one[i] = optimizer->entries[i].value;
    }
    if (!*two)
        one[0] = optimizer;
    return true;
}

static const ckpt_value *groups_of(const ckpt_value *half)
{
    const ckpt_value *inner = ckpt__at(half, "optimizer"), *groups = ckpt__at(inner ? inner : half, "param_groups");
    return ckpt__is_list(groups) && groups->item_count ? groups : NULL;
}

/* The same with other groups. */
static const ckpt_value *with_groups(const ckpt__megatron *g, const ckpt_value *half, const ckpt_value *groups)
{
    const ckpt_value *inner = ckpt__at(half, "optimizer"), *own = inner ? inner : half;
    ckpt__made_dict d = {.arena = g->arena}, outer = {.arena = g->arena};
    for (size_t i = 0; i < own->entry_count; i++) {
        const bool is =
            own->entries[i].key->kind == CKPT_V_STR && ckpt__str_is(own->entries[i].key->text, "param_groups");
        ckpt__made_put(&d, own->entries[i].key, is ? groups : own->entries[i].value);
    }
    const ckpt_value *made = ckpt__made_finish(&d);
    if (!inner)
        return made;
    for (size_t i = 0; i < half->entry_count; i++)
        ckpt__made_put(&outer, half->entries[i].key, half->entries[i].value == inner ? made : half->entries[i].value);
    return ckpt__made_finish(&outer);
}

/* Two optimizers that become one have done the same steps. */
static ckpt_status check_steps(const ckpt__megatron *g, const ckpt_value *const one[OPTIMIZERS])
{
    double step[OPTIMIZERS] = {0};
    bool read[OPTIMIZERS] = {false};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < OPTIMIZERS; i++) {
        const ckpt_value *v = ckpt__at(ckpt__at(one[i], "state"), "common_step");
        if (v && v->kind == CKPT_V_TENSOR)
            status = ckpt__read_number(g->m->reader->source, g->m->from, v->tensor, true, &step[i], &read[i], g->err);
    }
    return status == CKPT_OK && (read[0] != read[1] || step[0] != step[1])
               ? ckpt__fail(
                     g->err, CKPT_E_MISMATCH, g->m->src,
                     "the optimizer of the experts has done %g steps and the other one %g: they do not become one",
                     step[1], step[0])
               : status;
}

static ckpt_status reform(ckpt__megatron *g, const ckpt_value *const one[OPTIMIZERS], bool two, const ckpt_value **out)
{
    grouping x = {.g = g, .chained = !two};
    ckpt__made_dict both = {.arena = g->arena};
    ckpt_status status = two ? check_steps(g, one) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < (two ? OPTIMIZERS : 1); i++)
        status = take_groups(&x, groups_of(one[i]));
    if (status == CKPT_OK && x.chained)
        status = look_at_decay(&x);
    for (size_t which = 0; status == CKPT_OK && which < (x.chained ? OPTIMIZERS : 1); which++) {
        const ckpt_value **items = ckpt__arena_array(g->arena, x.count + 1, sizeof *items);
        size_t count = 0;
        status = items ? make_groups(&x, which, items, &count) : no_memory(g);
        if (status < 0)
            break;
        const ckpt_value *list = ckpt__value_list(g->arena, CKPT_V_LIST, items, count);
        *out = list ? with_groups(g, one[0], list) : NULL;
        if (!*out)
            status = no_memory(g);
        else if (x.chained)
            ckpt__made_put(&both, ckpt__value_int(g->arena, (int64_t)which), *out);
    }
    const ckpt_value *pair = ckpt__made_finish(&both);
    if (x.chained)
        *out = pair;
    free(x.groups);
    return status == CKPT_OK && !*out ? no_memory(g) : status;
}

ckpt_status ckpt__megatron_reform(ckpt__megatron *g, const ckpt_value *optimizer, const ckpt_value **out)
{
    const uint32_t ranks = g->m->options.expert_parallel;
    const int64_t experts = count_experts(g);
    const ckpt_value *one[OPTIMIZERS] = {NULL, NULL};
    bool two = false;
    *out = optimizer;
    if (!experts)
        return CKPT_OK;
    const bool known = halves_of(optimizer, one, &two);
    if (!ranks)
        return known ? say_form(g, two) : CKPT_OK;
    if (!known || !groups_of(one[0]) || (two && !groups_of(one[1])))
        return ckpt__fail(
            g->err, CKPT_E_UNSUPPORTED, g->m->src,
            "--expert-parallel %u: its optimizer is neither one with groups, nor one for the experts and one for all else",
            ranks);
    if (two == (ranks > 1))
        return CKPT_OK;
    for (size_t k = 0; k < g->m->chosen_count; k++)
        if (ckpt__str_holds(g->m->index->tensors[g->m->chosen[k]].info.name, ".gbuf_idx_"))
            return ckpt__fail(
                g->err, CKPT_E_UNSUPPORTED, g->m->src,
                "--expert-parallel %u: its optimizer is in flat buffers (dp_reshardable), which load in the sizes of the "
                "save alone",
                ranks);
    return reform(g, one, two, out);
}

ckpt_status ckpt__megatron_check_ranks(const ckpt__megatron *g)
{
    return check_ranks(g, count_experts(g));
}
