/* anatomy/canon_flat.c - an optimizer's state that was flattened (model/flat_state.h), as torch's own dict again: its ids are the
 * parameters' names. Groups are not in it; parameters of equal settings are one. */
#include "anatomy/canon_work.h"
#include "model/beside.h"
#include "model/flat_state.h"

#include <stdlib.h>

/* One parameter of the flattened dict. {"state.w.exp_avg": T0, "param_groups.w.lr": 0.1} has the parameter w, with
 * the state {exp_avg: T0} and the hyper-parameters {lr: 0.1}. */
typedef struct param {
    ckpt_str name;              /* borrowed from the key of the dict */
    ckpt_entry *state, *hypers; /* heap, owned; their keys are in the arena, their values the dict's; NULL: none */
    size_t state_count, state_capacity, hyper_count, hyper_capacity;
    size_t group; /* number of its group; SIZE_MAX: it has no settings */
} param;

/* The work on one flattened dict. The parameters are kept in the order in which the dict first names them. */
typedef struct unfolding {
    ckpt__arena *arena; /* borrowed: the new dict is made there */
    ckpt__hash *names;  /* owned: name of a parameter -> its number */
    param *params;
    size_t count, capacity; /* heap, owned */
    size_t groups;          /* how many sets of settings differ */
    bool no_memory;
} unfolding;

static param *param_of(unfolding *u, ckpt_str name)
{
    size_t at = u->count;
    int put = ckpt__hash_put(u->names, name.data, name.size, u->count, &at);
    if (put < 0 || (put > 0 && !ckpt__grow(&u->params, &u->capacity, u->count + 1, sizeof *u->params))) {
        u->no_memory = true;
        return NULL;
    }
    if (put > 0)
        u->params[u->count++] = (param){.name = name};
    return &u->params[put > 0 ? u->count - 1 : at];
}

static void add_entry(unfolding *u, ckpt_entry **list, size_t *count, size_t *capacity, ckpt_str key,
                      const ckpt_value *value)
{
    ckpt_value *name = ckpt__value_str(u->arena, key.data, key.size);
    if (!name || !ckpt__grow(list, capacity, *count + 1, sizeof **list))
        u->no_memory = true;
    else
        (*list)[(*count)++] = (ckpt_entry){name, value};
}

static void take(unfolding *u, const ckpt_entry *e, ckpt_str prefix)
{
    bool group;
    ckpt_str name, what;
    if (e->key->kind != CKPT_V_STR || !ckpt__flat_key(e->key->text, prefix, &group, &name, &what))
        return;
    param *p = param_of(u, name);
    if (p && group)
        add_entry(u, &p->hypers, &p->hyper_count, &p->hyper_capacity, what, e->value);
    else if (p)
        add_entry(u, &p->state, &p->state_count, &p->state_capacity, what, e->value);
}

/* Parameters of one group have the same settings; so have those of two that differ in nothing. */
static void number_groups(unfolding *u)
{
    ckpt__hash *settings = ckpt__hash_new(u->count);
    u->no_memory = u->no_memory || !settings;
    for (size_t i = 0; i < u->count && !u->no_memory; i++) {
        ckpt__buf text = {0};
        param *p = &u->params[i];
        p->group = SIZE_MAX;
        for (size_t k = 0; k < p->hyper_count; k++) {
            const ckpt_value *v = p->hypers[k].value;
            ckpt__buf_add(&text, p->hypers[k].key->text.data, p->hypers[k].key->text.size);
            ckpt__buf_char(&text, '=');
            if (v->kind == CKPT_V_TENSOR)
                ckpt__buf_printf(&text, "tensor %zu", v->tensor);
            else
                ckpt__value_repr(&text, v);
            ckpt__buf_char(&text, '\n');
        }
        if (p->hyper_count) {
            ckpt_str kept = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(u->arena, text.data, text.size);
            size_t number = u->groups;
            int put = kept.data ? ckpt__hash_put(settings, kept.data, kept.size, u->groups, &number) : -1;
            u->no_memory = put < 0;
            p->group = put > 0 ? u->groups : number;
            u->groups += put > 0;
        }
        ckpt__buf_free(&text);
    }
    ckpt__hash_free(settings);
}

static const ckpt_value *dict_of(unfolding *u, const ckpt_entry *entries, size_t n)
{
    ckpt_value *dict = ckpt__value_dict(u->arena, entries, n);
    u->no_memory = u->no_memory || !dict;
    return dict;
}

static const ckpt_value *state_of(unfolding *u)
{
    ckpt_entry *entries = NULL;
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < u->count && !u->no_memory; i++)
        if (u->params[i].state_count)
            add_entry(u, &entries, &n, &capacity, u->params[i].name,
                      dict_of(u, u->params[i].state, u->params[i].state_count));
    const ckpt_value *state = u->no_memory ? NULL : dict_of(u, entries, n);
    free(entries);
    return state;
}

/* Parameters by their groups: those of group g are order[first[g]] and on to order[first[g + 1]]. */
static bool sort_by_group(const unfolding *u, size_t *order, size_t *first)
{
    size_t *next = calloc(u->groups + 1, sizeof *next);
    for (size_t i = 0; next && i < u->count; i++)
        if (u->params[i].group != SIZE_MAX)
            first[u->params[i].group + 1]++;
    for (size_t g = 0; next && g < u->groups; g++) {
        first[g + 1] += first[g];
        next[g] = first[g];
    }
    for (size_t i = 0; next && i < u->count; i++)
        if (u->params[i].group != SIZE_MAX)
            order[next[u->params[i].group]++] = i;
    free(next);
    return next != NULL;
}

/* The settings of the first, and the names of all. */
static const ckpt_value *group_of(unfolding *u, const size_t *members, size_t count)
{
    const ckpt_value **names = ckpt__arena_array(u->arena, count + 1, sizeof *names);
    ckpt_entry *entries = NULL;
    size_t entry_count = 0, capacity = 0;
    const param *one = &u->params[members[0]];
    u->no_memory = u->no_memory || !names;
    for (size_t k = 0; k < one->hyper_count && !u->no_memory; k++)
        add_entry(u, &entries, &entry_count, &capacity, one->hypers[k].key->text, one->hypers[k].value);
    for (size_t i = 0; i < count && !u->no_memory; i++) {
        const param *p = &u->params[members[i]];
        names[i] = ckpt__value_str(u->arena, p->name.data, p->name.size);
        u->no_memory = !names[i];
    }
    ckpt_value *params = u->no_memory ? NULL : ckpt__value_list(u->arena, CKPT_V_LIST, names, count);
    if (params)
        add_entry(u, &entries, &entry_count, &capacity, ckpt__s("params"), params);
    u->no_memory = u->no_memory || !params;
    const ckpt_value *dict = u->no_memory ? NULL : dict_of(u, entries, entry_count);
    free(entries);
    return dict;
}

static const ckpt_value *optimizer_of(unfolding *u)
{
    const ckpt_value **groups = ckpt__arena_array(u->arena, u->groups + 1, sizeof *groups);
    const ckpt_value *state = state_of(u);
    size_t *order = calloc(u->count + 1, sizeof *order), *first = calloc(u->groups + 2, sizeof *first);
    ckpt_entry parts[2];
    u->no_memory = u->no_memory || !groups || !order || !first || !sort_by_group(u, order, first);
    for (size_t g = 0; g < u->groups && !u->no_memory; g++)
        groups[g] = group_of(u, order + first[g], first[g + 1] - first[g]);
    ckpt_value *list = u->no_memory ? NULL : ckpt__value_list(u->arena, CKPT_V_LIST, groups, u->groups);
    parts[0] = (ckpt_entry){ckpt__value_str(u->arena, "state", 5), state};
    parts[1] = (ckpt_entry){ckpt__value_str(u->arena, "param_groups", 12), list};
    u->no_memory = u->no_memory || !list || !parts[0].key || !parts[1].key;
    free(order);
    free(first);
    return u->no_memory ? NULL : dict_of(u, parts, 2);
}

/* The entries of a dict that are no keys of the optimizer. The tensors of parameters, and the entries beside them in a module, become
 * its model. */
static const ckpt_value *others_of(unfolding *u, const ckpt_value *dict, ckpt_str prefix, const ckpt_value *optimizer)
{
    ckpt_entry *model = NULL, *rest = NULL;
    size_t models = 0, model_capacity = 0, rests = 0, rest_capacity = 0;
    ckpt__hash *weights = NULL;
    u->no_memory = u->no_memory || !ckpt__beside(dict, &weights);
    for (size_t i = 0; i < dict->entry_count && !u->no_memory; i++) {
        const ckpt_entry *e = &dict->entries[i];
        bool group, text = e->key->kind == CKPT_V_STR;
        ckpt_str name, what;
        if (text && ckpt__flat_key(e->key->text, prefix, &group, &name, &what))
            continue;
        bool weight = text && weights && ckpt__hash_get(weights, e->key->text.data, e->key->text.size, NULL);
        ckpt_entry **list = weight ? &model : &rest;
        size_t *count = weight ? &models : &rests, *capacity = weight ? &model_capacity : &rest_capacity;
        if (!ckpt__grow(list, capacity, *count + 1, sizeof **list))
            u->no_memory = true;
        else
            (*list)[(*count)++] = *e;
    }
    if (!u->no_memory && models)
        add_entry(u, &rest, &rests, &rest_capacity, ckpt__s("model"), dict_of(u, model, models));
    if (!u->no_memory)
        add_entry(u, &rest, &rests, &rest_capacity, ckpt__s("optimizer"), optimizer);
    const ckpt_value *all = u->no_memory ? NULL : dict_of(u, rest, rests);
    ckpt__hash_free(weights);
    free(model);
    free(rest);
    return all;
}

const ckpt_value *ckpt__flat_unfold(const ckpt_value *dict, ckpt__arena *arena, bool *mixed)
{
    ckpt_str prefix;
    *mixed = false;
    if (!ckpt__flat_state(dict, &prefix))
        return dict;
    unfolding u = {.arena = arena, .names = ckpt__hash_new(dict->entry_count)};
    u.no_memory = !u.names;
    size_t own = 0;
    for (size_t i = 0; i < dict->entry_count && !u.no_memory; i++) {
        bool group;
        ckpt_str name, what;
        take(&u, &dict->entries[i], prefix);
        own += dict->entries[i].key->kind == CKPT_V_STR &&
               ckpt__flat_key(dict->entries[i].key->text, prefix, &group, &name, &what);
    }
    number_groups(&u);
    const ckpt_value *out = u.no_memory ? NULL : optimizer_of(&u);
    *mixed = own < dict->entry_count || prefix.size;
    if (out && *mixed)
        out = others_of(&u, dict, prefix, out);
    for (size_t i = 0; i < u.count; i++) {
        free(u.params[i].state);
        free(u.params[i].hypers);
    }
    free(u.params);
    ckpt__hash_free(u.names);
    return u.no_memory ? NULL : out;
}

static const ckpt_value *note_unfolded(const ckpt_value *dict, const ckpt_value *v, ckpt__arena *arena, bool mixed,
                                       ckpt__unfolded *out)
{
    ckpt__unfolded_one *one = ckpt__arena_array(arena, 1, sizeof *one);
    if (!one)
        return NULL;
    *one = (ckpt__unfolded_one){.dict = dict, .optimizer = mixed ? ckpt_value_get(v, "optimizer") : v};
    ckpt__flat_state(dict, &one->prefix);
    *(out->last ? &out->last->next : &out->first) = one;
    out->last = one;
    out->mixed = out->mixed || mixed;
    return v;
}

/* The root and what lies directly in it; of files that too. */
static const ckpt_value *unfold_below(const ckpt_value *v, ckpt__arena *arena, int depth, ckpt__unfolded *out)
{
    bool mixed;
    const ckpt_value *own = ckpt__flat_unfold(v, arena, &mixed);
    ckpt_entry *entries = NULL;
    if (own && own != v)
        return note_unfolded(v, own, arena, mixed, out);
    if (!own || depth == 0 || v->kind != CKPT_V_DICT)
        return own;
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *at = v->entries[i].value;
        const ckpt_value *is = at->kind == CKPT_V_DICT ? unfold_below(at, arena, depth - 1, out) : at;
        if (is && is != at && !entries && (entries = ckpt__arena_array(arena, v->entry_count, sizeof *entries)))
            memcpy(entries, v->entries, v->entry_count * sizeof *entries);
        if (!is || (is != at && !entries))
            return NULL;
        if (is != at)
            entries[i].value = is;
    }
    ckpt_value *copy = entries ? ckpt__value_new(arena, CKPT_V_DICT) : NULL;
    if (!entries)
        return v;
    if (!copy)
        return NULL;
    *copy = *v;
    copy->entries = entries;
    return copy;
}

const ckpt_value *ckpt__flat_unfold_all(const ckpt_value *root, ckpt__arena *arena, ckpt__unfolded *out)
{
    enum { DEPTH = 2 }; /* {file: {'optimizer': ...}} */
    memset(out, 0, sizeof *out);
    return root ? unfold_below(root, arena, DEPTH, out) : root;
}

/* ---- a model's tensors at the root */

const ckpt_value *ckpt__flat_take_beside(const ckpt_value *root, ckpt__arena *arena, bool *beside)
{
    ckpt__hash *weights;
    size_t models = 0, rests = 0;
    *beside = false;
    if (!root || ckpt_value_get(root, "model"))
        return root;
    if (!ckpt__beside(root, &weights))
        return NULL;
    if (!weights)
        return root;
    ckpt_entry *model = ckpt__arena_array(arena, root->entry_count, sizeof *model),
               *rest = ckpt__arena_array(arena, root->entry_count + 1, sizeof *rest);
    for (size_t i = 0; model && rest && i < root->entry_count; i++) {
        const ckpt_value *key = root->entries[i].key;
        bool own = key->kind == CKPT_V_STR && ckpt__hash_get(weights, key->text.data, key->text.size, NULL);
        *(own ? &model[models++] : &rest[rests++]) = root->entries[i];
    }
    ckpt__hash_free(weights);
    if (!model || !rest)
        return NULL;
    rest[rests].key = ckpt__value_str(arena, "model", 5);
    rest[rests].value = ckpt__value_dict(arena, model, models);
    *beside = rest[rests].key && rest[rests].value;
    return *beside ? ckpt__value_dict(arena, rest, rests + 1) : NULL;
}
