/* format/megatron/optim.c - which parameters an optimizer's numbers stand for. Its groups are those of the parameters with weight decay
 * and of the others (biases, and all of one dimension), each in the model's order; the numbers run over the groups. That is no word of
 * the file: where the counts and the shapes of all do not fit, nothing is joined.
 *
 * [megatron/core/optimizer/__init__.py: _get_param_groups; optimizer.py: state_dict of Float16OptimizerWithFloat16Params and of
 * FP32Optimizer] */
#include "format/megatron/ranks.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_GROUPS = 4, MOST_KEYS = 64 }; /* groups: with and without weight decay, and the same of experts */

/* The optimizer of one rank. Borrowed from its root. */
typedef struct optimizer {
    const ckpt_value *whole;   /* NULL: there is none */
    const ckpt_value *inner;   /* the dict of torch: "state" and "param_groups" */
    const ckpt_value *state;   /* NULL: the distributed optimizer has it elsewhere */
    const ckpt_value *groups;  /* a list */
    const ckpt_value *masters; /* a list of lists; NULL: there are none */
} optimizer;

static const ckpt_value *get(const ckpt_value *dict, const char *key)
{
    return dict && (dict->kind == CKPT_V_DICT || dict->kind == CKPT_V_OBJECT) ? ckpt_value_get(dict, key) : NULL;
}

/* Experts that lie on several ranks have an optimizer of their own: then it is a list. */
static size_t count_optimizers(const ckpt__meg_rank *r)
{
    const ckpt_value *v = get(r->root, "optimizer");
    return v && v->kind == CKPT_V_LIST ? v->item_count : v != NULL;
}

static optimizer optimizer_of(const ckpt__meg_rank *r, size_t number)
{
    const ckpt_value *all = get(r->root, "optimizer");
    optimizer o = {.whole = all && all->kind == CKPT_V_LIST ? all->items[number] : all};
    const ckpt_value *inner = get(o.whole, "optimizer");
    o.inner = get(inner, "param_groups") ? inner : o.whole;
    o.state = get(o.inner, "state");
    o.groups = get(o.inner, "param_groups");
    o.masters = get(o.whole, "fp32_from_fp16_params");
    if (!o.masters)
        o.masters = get(o.whole, "fp32_from_fp16_groups");
    return o;
}

/* ---- which group has the parameter */

static bool number_of(const ckpt_value *v, double *out)
{
    *out = v && v->kind == CKPT_V_FLOAT ? v->real : v && v->kind == CKPT_V_INT ? (double)v->integer : 0;
    return v && (v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT);
}

/* Are the group's parameters those with weight decay? Before wd_mult was kept the first group has them. */
static bool has_decay(const optimizer *o, size_t group)
{
    double mult;
    return number_of(get(o->groups->items[group], "wd_mult"), &mult) ? mult > 0 : group == 0;
}

/* Are the group's parameters those of experts that lie on several ranks? */
static bool is_of_experts(const optimizer *o, size_t group)
{
    const ckpt_value *v = get(o->groups->items[group], "is_expert_parallel");
    return v && v->kind == CKPT_V_BOOL && v->boolean;
}

/* 0 ... MOST_GROUPS - 1 */
static size_t class_of(const optimizer *o, size_t group)
{
    return (is_of_experts(o, group) ? 2U : 0U) + (has_decay(o, group) ? 0U : 1U);
}

static bool is_decayed(const ckpt__meg_param *p, const ckpt_tensor_info *t)
{
    return t->ndim != 1 && !ckpt__str_ends(p->name, ".bias");
}

static const ckpt_tensor_info *info_of(const ckpt__meg *m, const ckpt__meg_rank *r, const ckpt__meg_param *p)
{
    return &m->index->tensors[ckpt__meg_chunk_of(m, r, p->stage)->items[p->row]].info;
}

static bool is_half(const ckpt_tensor_info *t)
{
    return t->dtype == CKPT_F16 || t->dtype == CKPT_BF16;
}

/* One parameter of a group. Those of 16 bits have a master each, in order. */
typedef struct member {
    size_t param;  /* number in m->params */
    size_t master; /* number in the group's list of masters; SIZE_MAX: it has none */
} member;

/* Is the parameter one of the group? A group that is alone of its kind has those with weight decay and those without. */
static bool is_member(const optimizer *o, size_t group, const ckpt__meg_param *p, const ckpt_tensor_info *t)
{
    size_t same = 0;
    if (ckpt__meg_is_buffer(p->name) || p->expert != is_of_experts(o, group))
        return false;
    for (size_t g = 0; g < o->groups->item_count; g++)
        same += is_of_experts(o, g) == p->expert;
    return same == 1 || is_decayed(p, t) == has_decay(o, group);
}

/* The parameters of a group of the rank's stages, in order. members has room for all. */
static size_t members_of(const ckpt__meg *m, const ckpt__meg_rank *r, const optimizer *o, size_t group, member *members)
{
    size_t n = 0, masters = 0;
    for (size_t stage = (size_t)r->pp; stage < m->stage_count; stage += m->pp)
        for (size_t i = m->stages[stage]; i < m->stages[stage + 1]; i++) {
            const ckpt__meg_param *p = &m->params[i];
            if ((!p->expert || (int64_t)p->ep == r->ep) && is_member(o, group, p, info_of(m, r, p)))
                members[n++] = (member){i, is_half(info_of(m, r, p)) ? masters++ : SIZE_MAX};
        }
    return n;
}

/* Parameters that the rank's optimizers must have together. */
static size_t count_trained(const ckpt__meg *m, const ckpt__meg_rank *r)
{
    size_t n = 0;
    for (size_t stage = (size_t)r->pp; stage < m->stage_count; stage += m->pp)
        for (size_t i = m->stages[stage]; i < m->stages[stage + 1]; i++)
            n += !ckpt__meg_is_buffer(m->params[i].name) && (!m->params[i].expert || (int64_t)m->params[i].ep == r->ep);
    return n;
}

/* ---- does all of it fit? m->unjoined says why not. */

static bool refuse(ckpt__meg *m, const ckpt__meg_rank *r, const char *what)
{
    if (!m->unjoined[0])
        snprintf(m->unjoined, sizeof m->unjoined, "%s: %s", r->folder, what);
    return false;
}

static const ckpt_value *state_at(const ckpt__meg_rank *r, size_t number, const optimizer *o, const ckpt_value *id)
{
    size_t at;
    return id->kind == CKPT_V_INT && r->states[number] &&
                   ckpt__hash_get(r->states[number], (const char *)&id->integer, sizeof id->integer, &at)
               ? o->state->entries[at].value
               : NULL;
}

/* The tables of the states by their numbers. False: no memory. */
static bool find_states(ckpt__meg_rank *r)
{
    bool ok = true;
    for (size_t k = 0; ok && k < count_optimizers(r) && k < CKPT__MEG_OPTIMIZERS; k++) {
        const optimizer o = optimizer_of(r, k);
        const size_t n = o.state && o.state->kind == CKPT_V_DICT ? o.state->entry_count : 0;
        ok = (r->states[k] = ckpt__hash_new(n + 1)) != NULL;
        for (size_t i = 0; ok && i < n; i++) {
            const ckpt_value *key = o.state->entries[i].key;
            if (key->kind == CKPT_V_INT)
                ok = ckpt__hash_put(r->states[k], (const char *)&key->integer, sizeof key->integer, i, NULL) >= 0;
        }
    }
    return ok;
}

static const ckpt_tensor_info *tensor_of(const ckpt__meg *m, const ckpt_value *v)
{
    return v && v->kind == CKPT_V_TENSOR && v->tensor < m->index->tensor_count ? &m->index->tensors[v->tensor].info
                                                                               : NULL;
}

/* Each tensor of a parameter's state is of its shape, or a number. */
static bool check_state(ckpt__meg *m, const ckpt__meg_rank *r, const ckpt_value *state, const ckpt_tensor_info *param)
{
    if (state->kind != CKPT_V_DICT || state->entry_count > MOST_KEYS)
        return refuse(m, r, "the state of a parameter is not a dict of some keys");
    for (size_t i = 0; i < state->entry_count; i++) {
        const ckpt_tensor_info *t = tensor_of(m, state->entries[i].value);
        if (state->entries[i].key->kind != CKPT_V_STR)
            return refuse(m, r, "the state of a parameter has a key that is not text");
        if (t && t->ndim > 0 && !ckpt__same_shape(t->shape, t->ndim, param->shape, param->ndim))
            return refuse(m, r, "a state has another shape than the parameter that has its place in the model's order");
    }
    return true;
}

/* The master of a member of a group; NULL: it has none. */
static const ckpt_value *master_of(const optimizer *o, size_t group, const member *own)
{
    const ckpt_value *list = o->masters && group < o->masters->item_count ? o->masters->items[group] : NULL;
    return ckpt__is_list(list) && own->master < list->item_count ? list->items[own->master] : NULL;
}

static bool check_masters(ckpt__meg *m, const ckpt__meg_rank *r, const optimizer *o, size_t group,
                          const member *members, size_t count)
{
    size_t halves = 0;
    if (!o->masters)
        return true;
    if (!ckpt__is_list(o->masters) || o->masters->item_count != o->groups->item_count ||
        !ckpt__is_list(o->masters->items[group]))
        return refuse(m, r, "the master weights are in other groups than the parameters");
    for (size_t k = 0; k < count; k++) {
        const ckpt_tensor_info *p = info_of(m, r, &m->params[members[k].param]),
                               *t = tensor_of(m, master_of(o, group, &members[k]));
        if (members[k].master == SIZE_MAX)
            continue;
        if (!t || !ckpt__same_shape(t->shape, t->ndim, p->shape, p->ndim))
            return refuse(
                m, r, "a master weight has another shape than the parameter that has its place in the model's order");
        halves++;
    }
    return halves == o->masters->items[group]->item_count ||
           refuse(m, r, "there are more master weights than parameters");
}

static bool check_group(ckpt__meg *m, const ckpt__meg_rank *r, size_t number, const optimizer *o, size_t group,
                        const member *members, size_t count)
{
    const ckpt_value *ids = get(o->groups->items[group], "params");
    char text[120];
    if (!ids || !ckpt__is_list(ids))
        return refuse(m, r, "a group of the optimizer has no list of parameters");
    if (ids->item_count != count) {
        snprintf(text, sizeof text, "group %zu of the optimizer has %zu parameters, and the model has %zu for it",
                 group, ids->item_count, count);
        return refuse(m, r, text);
    }
    for (size_t k = 0; k < count; k++) {
        const ckpt_value *state = state_at(r, number, o, ids->items[k]);
        if (state && !check_state(m, r, state, info_of(m, r, &m->params[members[k].param])))
            return false;
    }
    return check_masters(m, r, o, group, members, count);
}

/* *count grows by the parameters that it has. */
static bool check_one(ckpt__meg *m, const ckpt__meg_rank *r, size_t number, member *members, size_t *count)
{
    const optimizer o = optimizer_of(r, number);
    unsigned seen = 0;
    if (!o.groups || !ckpt__is_list(o.groups) || o.groups->item_count == 0)
        return refuse(m, r, "the optimizer has no list of groups");
    for (size_t g = 0; g < o.groups->item_count; g++) {
        if (g >= MOST_GROUPS || seen & 1U << class_of(&o, g))
            return refuse(m, r, "the optimizer has other groups than those with and without weight decay");
        seen |= 1U << class_of(&o, g);
    }
    if (!o.state || o.state->kind != CKPT_V_DICT)
        return refuse(m, r, "the optimizer has no dict of states");
    for (size_t g = 0; g < o.groups->item_count; g++) {
        const size_t own = members_of(m, r, &o, g, members);
        *count += own;
        if (!check_group(m, r, number, &o, g, members, own))
            return false;
    }
    return true;
}

static bool check_rank(ckpt__meg *m, const ckpt__meg_rank *r, member *members)
{
    const size_t optimizers = count_optimizers(r);
    size_t count = 0;
    if (optimizers == 0 || optimizers > CKPT__MEG_OPTIMIZERS)
        return refuse(m, r, "there are more optimizers than that of the parameters and that of the experts");
    for (size_t k = 0; k < optimizers; k++)
        if (!check_one(m, r, k, members, &count))
            return false;
    return count == count_trained(m, r) ||
           refuse(m, r, "its optimizers have other parameters than the model, or some of them twice");
}

/* ---- what the masters say of the cuts */

static bool same_cut(ckpt__meg_cut a, ckpt__meg_cut b)
{
    return a.dim == b.dim && (a.dim < 0 || a.blocks == b.blocks);
}

static ckpt_status take_said(const ckpt__meg_rank *r, ckpt__meg_param *p, ckpt__meg_cut said, ckpt_error *err)
{
    char name[300];
    if (p->cut.known && !same_cut(p->cut, said))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, ckpt__escape(name, sizeof name, p->name.data, p->name.size),
            "by its name it is cut along dimension %d in %lld blocks, and its master weight in %s says %d and "
            "%lld (-1: not cut): which of them holds is not known",
            p->cut.dim, (long long)p->cut.blocks, r->folder, said.dim, (long long)said.blocks);
    p->cut = said;
    return CKPT_OK;
}

/* In the first pass *any is set where a master says something; in the second a master that says nothing is not cut then. */
static ckpt_status read_said_of(ckpt__meg *m, const ckpt__meg_rank *r, const optimizer *o, size_t group,
                                member *members, size_t pass, bool *any, ckpt_error *err)
{
    const size_t count = members_of(m, r, o, group, members);
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < count; k++) {
        const ckpt_value *v = master_of(o, group, &members[k]);
        ckpt__meg_cut said = ckpt__meg_cut_said(v);
        *any |= said.known;
        if (!v || pass == 0 || !*any)
            continue;
        if (!said.known)
            said = (ckpt__meg_cut){true, -1, 1};
        status = take_said(r, &m->params[members[k].param], said, err);
    }
    return status;
}

static ckpt_status read_said(ckpt__meg *m, const ckpt__meg_rank *r, member *members, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    bool any = false;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t n = 0; n < count_optimizers(r); n++) {
            const optimizer o = optimizer_of(r, n);
            for (size_t g = 0; status == CKPT_OK && g < o.groups->item_count; g++)
                status = read_said_of(m, r, &o, g, members, pass, &any, err);
        }
    return status;
}

ckpt_status ckpt__meg_check_optimizer(ckpt__meg *m, ckpt_error *err)
{
    member *members = calloc(m->param_count + 1, sizeof *members);
    size_t with = 0, there = 0;
    ckpt_status status = members ? CKPT_OK : ckpt__meg_no_memory(err);
    bool fits = true, flat = false;
    for (size_t i = 0; members && i < m->rank_count; i++) {
        ckpt__meg_rank *r = &m->ranks[i];
        if (r->there && status == CKPT_OK && !find_states(r))
            status = ckpt__meg_no_memory(err);
        there += r->there;
        with += r->there && get(r->root, "optimizer");
        flat |= r->there && r->flat;
    }
    for (size_t i = 0; status == CKPT_OK && with && !flat && fits && i < m->rank_count; i++)
        if (m->ranks[i].there)
            fits = get(m->ranks[i].root, "optimizer") ? check_rank(m, &m->ranks[i], members)
                                                      : refuse(m, &m->ranks[i], "it has no optimizer, as others have");
    m->joined_optimizer = with && with == there && !flat && fits;
    for (size_t i = 0; status == CKPT_OK && m->joined_optimizer && m->tp > 1 && i < m->rank_count; i++)
        if (m->ranks[i].there)
            status = read_said(m, &m->ranks[i], members, err);
    free(members);
    return status;
}

/* ---- its tensors */

/* Where an optimizer has a parameter, alike on all ranks that have it. */
typedef struct place {
    bool known;
    size_t optimizer, group, at; /* at: which of the group */
    size_t master;               /* as in a member */
} place;

typedef struct work {
    ckpt__meg *m;
    member *members; /* heap, as all three */
    place *places;   /* one a parameter */
    size_t *parts;
} work;

static const struct {
    const char *key;
    ckpt_role role;
} roles[] = {{"exp_avg", CKPT_ROLE_EXP_AVG},
             {"exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ},
             {"max_exp_avg_sq", CKPT_ROLE_MAX_EXP_AVG_SQ},
             {"momentum_buffer", CKPT_ROLE_MOMENTUM},
             {"step", CKPT_ROLE_STEP}};

static ckpt_role role_of(ckpt_str key)
{
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (ckpt__str_is(key, roles[i].key))
            return roles[i].role;
    return CKPT_ROLE_OPTIM;
}

static ckpt_str name_of(const ckpt__meg *m, ckpt_str param, ckpt_str key)
{
    const ckpt_str before = ckpt__arena_join(m->index->arena, ckpt__s("optimizer."), param, ckpt__s("."));
    return before.data ? ckpt__arena_join(m->index->arena, before, key, (ckpt_str){NULL, 0}) : before;
}

/* What a rank has of one key of a parameter. master: of its master; else of its state. */
static const ckpt_value *value_of(const work *w, const ckpt__meg_rank *r, size_t param, ckpt_str key, bool master)
{
    const place *at = &w->places[param];
    const optimizer o = optimizer_of(r, at->optimizer);
    if (master)
        return master_of(&o, at->group, &(member){param, at->master});
    const ckpt_value *ids = get(o.groups->items[at->group], "params"),
                     *state = ids ? state_at(r, at->optimizer, &o, ids->items[at->at]) : NULL;
    for (size_t i = 0; state && i < state->entry_count; i++)
        if (ckpt__str_equal(state->entries[i].key->text, key))
            return state->entries[i].value;
    return NULL;
}

static ckpt_status join_key(work *w, size_t param, ckpt_str key, bool master, ckpt_error *err)
{
    ckpt__meg *m = w->m;
    const ckpt__meg_param *p = &m->params[param];
    const ckpt_value *first = NULL;
    bool any = false, scalar = false;
    for (size_t t = 0; t < m->tp; t++) {
        const ckpt__meg_rank *r = ckpt__meg_holder(m, p, t);
        const ckpt_value *v = r ? value_of(w, r, param, key, master) : NULL;
        const ckpt_tensor_info *info = tensor_of(m, v);
        w->parts[t] = info ? v->tensor : SIZE_MAX;
        any |= info != NULL;
        scalar |= info && info->ndim == 0;
        first = first ? first : v;
    }
    const ckpt_str copy = ckpt__arena_str(m->index->arena, master ? "fp32" : key.data, master ? 4 : key.size),
                   name = copy.data ? name_of(m, p->name, copy) : copy;
    if (!name.data)
        return ckpt__meg_no_memory(err);
    if (!any)
        return first ? ckpt__meg_put(m, name, first, err) : CKPT_OK;
    const ckpt__meg_logical of = {.name = name,
                                  .param = p->name,
                                  .state_key = master ? ckpt__s("master") : copy,
                                  .role = master ? CKPT_ROLE_MASTER : role_of(copy),
                                  .cut = scalar ? (ckpt__meg_cut){true, -1, 1} : p->cut};
    return ckpt__meg_join(m, &of, w->parts, err);
}

static const ckpt__meg_rank *first_holder(const ckpt__meg *m, const ckpt__meg_param *p)
{
    const ckpt__meg_rank *r = NULL;
    for (size_t t = 0; !r && t < m->tp; t++)
        r = ckpt__meg_holder(m, p, t);
    return r;
}

static ckpt_status join_member(work *w, size_t param, ckpt_error *err)
{
    const place *at = &w->places[param];
    const ckpt__meg_rank *r = first_holder(w->m, &w->m->params[param]);
    const optimizer o = optimizer_of(r, at->optimizer);
    const ckpt_value *ids = get(o.groups->items[at->group], "params"),
                     *state = state_at(r, at->optimizer, &o, ids->items[at->at]);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && state && i < state->entry_count; i++)
        status = join_key(w, param, state->entries[i].key->text, false, err);
    if (status == CKPT_OK && o.masters)
        status = join_key(w, param, (ckpt_str){NULL, 0}, true, err);
    return status;
}

static void find_places(work *w, const ckpt__meg_rank *r)
{
    for (size_t n = 0; n < count_optimizers(r); n++) {
        const optimizer o = optimizer_of(r, n);
        for (size_t g = 0; g < o.groups->item_count; g++) {
            const size_t count = members_of(w->m, r, &o, g, w->members);
            for (size_t k = 0; k < count; k++)
                w->places[w->members[k].param] = (place){true, n, g, k, w->members[k].master};
        }
    }
}

/* ---- its groups: of all stages together */

typedef struct names {
    const ckpt_value **items; /* heap */
    size_t count, capacity;
    const ckpt_value *group; /* the first stage's */
} names;

static ckpt_status add_member(ckpt__meg *m, names *all, ckpt_str param, ckpt_error *err)
{
    const ckpt_value *v = ckpt__value_str(m->index->arena, param.data, param.size);
    if (!v || !ckpt__grow(&all->items, &all->capacity, all->count + 1, sizeof *all->items))
        return ckpt__meg_no_memory(err);
    all->items[all->count++] = v;
    return CKPT_OK;
}

static ckpt_status join_param(work *w, size_t param, names all[MOST_GROUPS], ckpt_error *err)
{
    const ckpt__meg_param *p = &w->m->params[param];
    const place *at = &w->places[param];
    if (!at->known || p->again)
        return CKPT_OK;
    const optimizer o = optimizer_of(first_holder(w->m, p), at->optimizer);
    names *own = &all[class_of(&o, at->group)];
    own->group = own->group ? own->group : o.groups->items[at->group];
    ckpt_status status = join_member(w, param, err);
    return status == CKPT_OK ? add_member(w->m, own, p->name, err) : status;
}

/* The group as it was, but for the parameters: by their names. */
static const ckpt_value *make_group(const ckpt__meg *m, const names *of)
{
    ckpt__arena *a = m->index->arena;
    ckpt_entry *entries = ckpt__arena_array(a, of->group->entry_count + 1, sizeof *entries);
    const ckpt_value *list = ckpt__value_list(a, CKPT_V_LIST, of->items, of->count),
                     *key = ckpt__value_str(a, "params", 6);
    size_t n = 0;
    if (!entries || !list || !key)
        return NULL;
    entries[n++] = (ckpt_entry){key, list};
    for (size_t i = 0; i < of->group->entry_count; i++)
        if (!ckpt__str_is(of->group->entries[i].key->text, "params"))
            entries[n++] = of->group->entries[i];
    return ckpt__value_dict(a, entries, n);
}

/* What the optimizer's dict has besides, of the first rank; its groups last. */
static ckpt_status put_groups(ckpt__meg *m, const names all[MOST_GROUPS], ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    ckpt_entry groups[MOST_GROUPS], *entries;
    size_t count = 0, n = 0;
    char number[24];
    const optimizer o = optimizer_of(m->first, 0);
    for (size_t g = 0; g < MOST_GROUPS; g++) {
        if (!all[g].group)
            continue;
        snprintf(number, sizeof number, "%zu", count);
        groups[count] = (ckpt_entry){ckpt__value_str(a, number, strlen(number)), make_group(m, &all[g])};
        if (!groups[count].key || !groups[count].value)
            return ckpt__meg_no_memory(err);
        count++;
    }
    entries = ckpt__arena_array(a, o.whole->entry_count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < o.whole->entry_count; i++) {
        const ckpt_entry *e = &o.whole->entries[i];
        const bool used = e->value == o.inner || e->value == o.masters || e->value == o.state || e->value == o.groups;
        if (!used)
            entries[n++] = *e;
    }
    const ckpt_value *key = ckpt__value_str(a, "groups", 6), *dict = ckpt__value_dict(a, groups, count);
    if (!entries || !key || !dict)
        return ckpt__meg_no_memory(err);
    entries[n++] = (ckpt_entry){key, dict};
    return ckpt__meg_put(m, ckpt__s("optimizer"), ckpt__value_dict(a, entries, n), err);
}

ckpt_status ckpt__meg_join_optimizer(ckpt__meg *m, ckpt_error *err)
{
    names all[MOST_GROUPS] = {{0}};
    work w = {.m = m};
    if (!m->joined_optimizer)
        return CKPT_OK;
    w.members = calloc(m->param_count + 1, sizeof *w.members);
    w.places = calloc(m->param_count + 1, sizeof *w.places);
    w.parts = calloc(m->tp, sizeof *w.parts);
    ckpt_status status = w.members && w.places && w.parts ? CKPT_OK : ckpt__meg_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < m->rank_count; i++)
        if (m->ranks[i].there)
            find_places(&w, &m->ranks[i]);
    for (size_t i = 0; status == CKPT_OK && i < m->param_count; i++)
        status = join_param(&w, i, all, err);
    if (status == CKPT_OK)
        status = put_groups(m, all, err);
    free(w.members);
    free(w.places);
    free(w.parts);
    for (size_t g = 0; g < MOST_GROUPS; g++)
        free(all[g].items);
    return status;
}
