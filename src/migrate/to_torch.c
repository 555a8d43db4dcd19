/* migrate/to_torch.c - the dict that a torch program would have saved, from canonical names: see torch.h. */
#include "migrate/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include "migrate/to_canonical.h"
#include "format/native/native.h"
#include "format/table.h"
#include "format/torch/write.h"

/* The root's key for groups that name no parameters. */
static const char SAVED[] = "saved_param_groups";

/* A dict that grows. */
typedef struct dict {
    ckpt_entry *entries;
    size_t count, capacity;
} dict;

/* The work of ckpt__migrate_torch_build. */
typedef struct builder {
    ckpt__migration *m;
    ckpt__arena *arena;
    bool *taken;        /* one a canonical entry: it was dealt with */
    ckpt__hash *params; /* name of a parameter that the optimizer has -> its id */
    dict *states;
    size_t count; /* heap: states[id] is the state of the parameter with that id; count of ids */
    ckpt_error *err;
} builder;

static bool put(dict *d, const ckpt_value *key, const ckpt_value *value)
{
    if (!key || !value || !ckpt__grow(&d->entries, &d->capacity, d->count + 1, sizeof *d->entries))
        return false;
    d->entries[d->count++] = (ckpt_entry){key, value};
    return true;
}

static bool put_named(const builder *b, dict *d, const char *key, size_t n, const ckpt_value *value)
{
    return put(d, ckpt__value_str(b->arena, key, n), value);
}

static const ckpt_value *finish(const builder *b, dict *d)
{
    const ckpt_value *v = ckpt__value_dict(b->arena, d->entries, d->count);
    free(d->entries);
    *d = (dict){0};
    return v;
}

static const ckpt_value *value_of(const builder *b, const ckpt__canon_entry *e)
{
    if (!e->is_tensor)
        return ckpt__edits_now(b->m->edits, e->value);
    ckpt_value *v = ckpt__value_new(b->arena, CKPT_V_TENSOR);
    if (v) {
        v->tensor = e->tensor;
        v->class_name = b->m->index->tensors[e->tensor].info.extra->class_name;
    }
    return v;
}

static bool goes_along(const builder *b, const ckpt__canon_entry *e)
{
    return !e->is_tensor || !ckpt__stays_behind(b->m, e->tensor);
}

/* ---- the optimizer */

static const char head[] = "optimizer.", groups_head[] = "optimizer.groups.";

/* Ids are given out over the groups in their order; a parameter of two groups keeps the first. */
static ckpt_status number_params(builder *b)
{
    const ckpt__canon *c = b->m->canon;
    size_t n = 0;
    b->params = ckpt__hash_new(64);
    if (!b->params)
        return ckpt__migration_no_memory(b->err);
    for (size_t g = 0; g < c->group_count; g++)
        for (size_t i = 0; i < c->groups[g].param_count; i++) {
            ckpt_str name = c->groups[g].params[i];
            int added = ckpt__hash_put(b->params, name.data, name.size, n, NULL);
            if (added < 0)
                return ckpt__migration_no_memory(b->err);
            n += added == 1;
        }
    b->count = n;
    b->states = calloc(n + 1, sizeof *b->states);
    return b->states ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

/* "optimizer.<param>.<key>": names of parameters hold dots, so the longest one that is a parameter counts. */
static bool split_state(const builder *b, ckpt_str name, size_t *id, ckpt_str *key)
{
    size_t from = sizeof head - 1;
    if (!ckpt__str_begins_more(name, head))
        return false;
    for (size_t at = name.size; at-- > from;)
        if (name.data[at] == '.' && ckpt__hash_get(b->params, name.data + from, at - from, id)) {
            *key = (ckpt_str){name.data + at + 1, name.size - at - 1};
            return key->size > 0;
        }
    return false;
}

static ckpt_status take_states(builder *b)
{
    const ckpt__canon *c = b->m->canon;
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        size_t id;
        ckpt_str key;
        const bool setting =
            ckpt__str_begins_more(e->name, groups_head) && !e->param.data; /* or a model has "groups" */
        if (setting || !split_state(b, e->name, &id, &key))
            continue;
        b->taken[i] = true;
        if (goes_along(b, e) && !put_named(b, &b->states[id], key.data, key.size, value_of(b, e)))
            return ckpt__migration_no_memory(b->err);
    }
    return CKPT_OK;
}

/* ---- lists in a state (LBFGS's old_dirs), which canonical names take apart: "old_dirs.0", "old_dirs.1", ... */

typedef struct pieces {
    const ckpt_value **items; /* by number; NULL: not seen */
    size_t count, at;         /* how many there are; the entry that the first of them was */
    bool whole;
} pieces;

static bool split_number(const ckpt_value *key, ckpt_str *list, size_t *number)
{
    size_t dot = key->text.size;
    int64_t n = -1;
    while (dot > 0 && key->text.data[dot - 1] >= '0' && key->text.data[dot - 1] <= '9')
        dot--;
    if (dot < 2 || dot == key->text.size || key->text.data[dot - 1] != '.' ||
        !ckpt__parse_i64(key->text.data + dot, key->text.size - dot, &n) || n < 0)
        return false;
    *list = (ckpt_str){key->text.data, dot - 1};
    *number = (size_t)n;
    return true;
}

/* One list for each name; where a number is missing or is there twice its entries stay as they are. */
static ckpt_status find_pieces(builder *b, const dict *d, ckpt__hash *names, pieces *lists, size_t *count)
{
    ckpt_str name;
    size_t number, which;
    for (size_t i = 0; i < d->count; i++) {
        if (!split_number(d->entries[i].key, &name, &number))
            continue;
        int added = ckpt__hash_put(names, name.data, name.size, *count, &which);
        if (added < 0)
            return ckpt__migration_no_memory(b->err);
        if (added)
            lists[which = (*count)++] = (pieces){.at = i, .whole = true};
        lists[which].count++;
    }
    for (size_t i = 0; i < d->count; i++) {
        if (!split_number(d->entries[i].key, &name, &number) || !ckpt__hash_get(names, name.data, name.size, &which))
            continue;
        pieces *l = &lists[which];
        if (!l->items && !(l->items = ckpt__arena_array(b->arena, l->count, sizeof *l->items)))
            return ckpt__migration_no_memory(b->err);
        l->whole = l->whole && number < l->count && !l->items[number];
        if (l->whole)
            l->items[number] = d->entries[i].value;
    }
    return CKPT_OK;
}

static ckpt_status put_lists(builder *b, dict *d, const ckpt__hash *names, const pieces *lists)
{
    size_t kept = 0, number, which;
    ckpt_str name;
    for (size_t i = 0; i < d->count; i++) {
        bool piece = split_number(d->entries[i].key, &name, &number) &&
                     ckpt__hash_get(names, name.data, name.size, &which) && lists[which].whole;
        if (!piece) {
            d->entries[kept++] = d->entries[i];
        } else if (lists[which].at == i) {
            ckpt_entry e = {ckpt__value_str(b->arena, name.data, name.size),
                            ckpt__value_list(b->arena, CKPT_V_LIST, lists[which].items, lists[which].count)};
            if (!e.key || !e.value)
                return ckpt__migration_no_memory(b->err);
            d->entries[kept++] = e;
        }
    }
    d->count = kept;
    return CKPT_OK;
}

static ckpt_status join_lists(builder *b, dict *d)
{
    ckpt_str name;
    size_t number, any = 0, count = 0;
    for (size_t i = 0; i < d->count; i++)
        any += split_number(d->entries[i].key, &name, &number);
    if (!any)
        return CKPT_OK;
    ckpt__hash *names = ckpt__hash_new(any);
    pieces *lists = calloc(any, sizeof *lists);
    ckpt_status status = names && lists ? find_pieces(b, d, names, lists, &count) : ckpt__migration_no_memory(b->err);
    if (status == CKPT_OK)
        status = put_lists(b, d, names, lists);
    ckpt__hash_free(names);
    free(lists);
    return status;
}

static bool is_flag(ckpt_str key)
{
    static const char *const flags[] = {"amsgrad",        "maximize", "foreach",  "capturable",
                                        "differentiable", "fused",    "nesterov", "decoupled_weight_decay"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (ckpt__str_is(key, flags[i]))
            return true;
    return false;
}

/* "betas.0" and "betas.1", as a state of this library binds them, are a dict of "0" and "1" in its file: a tuple again;
 * NULL: no such dict, or memory is short. */
static const ckpt_value *as_tuple(const builder *b, const ckpt_value *v)
{
    const ckpt_value **items = ckpt__arena_array(b->arena, v->entry_count + 1, sizeof *items);
    for (size_t i = 0; items && i < v->entry_count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        if (v->entries[i].key->kind != CKPT_V_STR || !ckpt__str_is(v->entries[i].key->text, number))
            return NULL;
        items[i] = v->entries[i].value;
    }
    return items && v->entry_count ? ckpt__value_list(b->arena, CKPT_V_TUPLE, items, v->entry_count) : NULL;
}

/* Settings that torch's optimizers, and the Adafactor of transformers, have as tuples. Canonical names do not tell those from lists. */
static bool is_tuple(ckpt_str key)
{
    static const char *const names[] = {"betas", "eps", "etas", "step_sizes", "ns_coefficients"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(key, names[i]))
            return true;
    return false;
}

/* As torch has it: flags are bools, betas a tuple. */
static const ckpt_value *as_torch(const builder *b, ckpt_str key, const ckpt_value *v)
{
    if (v->kind == CKPT_V_INT && is_flag(key) && (v->integer == 0 || v->integer == 1))
        return ckpt__value_bool(b->arena, v->integer == 1);
    if (v->kind == CKPT_V_LIST && is_tuple(key))
        return ckpt__value_list(b->arena, CKPT_V_TUPLE, v->items, v->item_count);
    const ckpt_value *tuple = v->kind == CKPT_V_DICT ? as_tuple(b, v) : NULL;
    return tuple ? tuple : v;
}

/* The value of "optimizer.groups.<g>" in the tree, which holds the group's settings. */
static const ckpt_value *group_dict(const builder *b, ckpt_str group)
{
    ckpt_str path = ckpt__arena_join(b->arena, ckpt__s(groups_head), group, (ckpt_str){NULL, 0});
    const ckpt_value *v = path.data && b->m->from->root ? ckpt__value_at(b->m->from->root, path) : NULL;
    return v && v->kind == CKPT_V_DICT ? v : NULL;
}

static const ckpt_value *ids_of(const builder *b, const ckpt__canon_group *g)
{
    const ckpt_value **items = ckpt__arena_array(b->arena, g->param_count + 1, sizeof *items);
    size_t id;
    for (size_t i = 0; items && i < g->param_count; i++)
        if (!ckpt__hash_get(b->params, g->params[i].data, g->params[i].size, &id) ||
            !(items[i] = ckpt__value_int(b->arena, (int64_t)id)))
            return NULL;
    return items ? ckpt__value_list(b->arena, CKPT_V_LIST, items, g->param_count) : NULL;
}

/* A scalar, or a tuple of them: a hyper-parameter, and no part of a name. */
static bool is_setting(const builder *b, const ckpt_value *v)
{
    const ckpt_value *tuple = v->kind == CKPT_V_DICT ? as_tuple(b, v) : NULL;
    bool scalar = v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_BOOL || v->kind == CKPT_V_STR ||
                  v->kind == CKPT_V_NONE;
    for (size_t i = 0; tuple && i < tuple->item_count; i++)
        if (tuple->items[i]->kind != CKPT_V_INT && tuple->items[i]->kind != CKPT_V_FLOAT)
            return false;
    return scalar || tuple;
}

/* What all groups say that the source has, in the one that was made of them. They stay as they were at "saved_param_groups". */
static bool put_shared(const builder *b, dict *d)
{
    const ckpt_value *groups = b->m->saved_groups, *first = groups->items[0];
    bool ok = true;
    for (size_t i = 0; ok && i < first->entry_count; i++) {
        const ckpt_value *key = first->entries[i].key, *v = first->entries[i].value;
        if (key->kind == CKPT_V_STR && ckpt__migrate_is_shared(groups, key->text))
            ok = put(d, key, as_torch(b, key->text, v));
    }
    return ok;
}

/* Values that were bound as "optimizer.lr" and the like, beside the groups. */
static bool put_settings(const builder *b, dict *d)
{
    const ckpt_value *own = ckpt_value_get(b->m->from->root, "optimizer");
    bool ok = true;
    if (b->m->group_made && b->m->saved_groups)
        return put_shared(b, d);
    for (size_t i = 0; own && own->kind == CKPT_V_DICT && ok && i < own->entry_count; i++) {
        const ckpt_value *key = own->entries[i].key, *v = own->entries[i].value;
        if (key->kind == CKPT_V_STR && is_setting(b, v))
            ok = put(d, key, as_torch(b, key->text, v));
    }
    return ok;
}

/* A setting that is a tensor (lr of a capturable optimizer) is an entry of the canon, and none of the tree's values. */
static bool put_tensor_settings(const builder *b, const ckpt__canon_group *g, dict *d)
{
    const ckpt__canon *c = b->m->canon;
    const size_t head_size = sizeof groups_head - 1 + g->name.size;
    for (size_t i = 0; i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || b->taken[i] || e->param.data || !goes_along(b, e) || e->name.size <= head_size + 1 ||
            !ckpt__str_begins(e->name, groups_head) || e->name.data[head_size] != '.' ||
            memcmp(e->name.data + sizeof groups_head - 1, g->name.data, g->name.size) != 0 ||
            memchr(e->name.data + head_size + 1, '.', e->name.size - head_size - 1))
            continue;
        b->taken[i] = true;
        if (!put_named(b, d, e->name.data + head_size + 1, e->name.size - head_size - 1, value_of(b, e)))
            return false;
    }
    return true;
}

/* One that was made has the names too, as torch has them of named parameters: else nothing says which order it is. */
static const ckpt_value *make_group(const builder *b, const ckpt__canon_group *g)
{
    dict d = {0};
    const ckpt_value *own = group_dict(b, g->name);
    bool ok = true, made = b->m->group_made,
         named = made || b->m->as || b->m->options.layout || !ckpt__format_of(b->m->from)->bound;
    for (size_t i = 0; own && ok && i < own->entry_count; i++) {
        const ckpt_value *key = own->entries[i].key;
        if (key->kind == CKPT_V_STR && !ckpt__str_is(key->text, "params") &&
            !(named && ckpt__str_is(key->text, "param_names")))
            ok = put(&d, key, as_torch(b, key->text, own->entries[i].value));
    }
    ok = ok && put_tensor_settings(b, g, &d) && (!made || put_settings(b, &d)) &&
         put_named(b, &d, "params", 6, ids_of(b, g)) &&
         (!named || put_named(b, &d, "param_names", 11, ckpt__migrate_names_of(b->arena, g)));
    const ckpt_value *v = finish(b, &d);
    return ok ? v : NULL;
}

/* Where one step stands for all parameters, each gets it: torch counts them one by one. */
static ckpt_status share_step(builder *b, dict *state)
{
    int64_t step = b->m->index->step;
    bool has = state->count == 0 || step < 0, moments = false;
    for (size_t i = 0; i < state->count; i++) {
        has |= ckpt__str_is(state->entries[i].key->text, "step");
        moments |= ckpt__str_is(state->entries[i].key->text, "exp_avg");
    }
    return has || !moments || put_named(b, state, "step", 4, ckpt__value_int(b->arena, step))
               ? CKPT_OK
               : ckpt__migration_no_memory(b->err);
}

static ckpt_status make_optimizer(builder *b, dict *root)
{
    const ckpt__canon *c = b->m->canon;
    dict state = {0}, both = {0};
    const ckpt_value **groups = ckpt__arena_array(b->arena, c->group_count + 1, sizeof *groups);
    bool ok = groups != NULL;
    if (c->group_count == 0)
        return CKPT_OK;
    for (size_t i = 0; ok && i < b->count; i++) {
        if (b->states[i].count == 0)
            continue;
        ok = share_step(b, &b->states[i]) == CKPT_OK && join_lists(b, &b->states[i]) == CKPT_OK &&
             put(&state, ckpt__value_int(b->arena, (int64_t)i), finish(b, &b->states[i]));
    }
    for (size_t g = 0; ok && g < c->group_count; g++)
        ok = (groups[g] = make_group(b, &c->groups[g])) != NULL;
    ok = ok && put_named(b, &both, "state", 5, finish(b, &state)) &&
         put_named(b, &both, "param_groups", 12, ckpt__value_list(b->arena, CKPT_V_LIST, groups, c->group_count)) &&
         (b->m->group_made || put_settings(b, &both)) && put_named(b, root, "optimizer", 9, finish(b, &both));
    free(state.entries);
    free(both.entries);
    return ok ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

/* ---- the model */

static ckpt_status make_model(builder *b, dict *root)
{
    const ckpt__canon *c = b->m->canon;
    dict d = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (!e->is_tensor || e->outside || b->taken[i] || (e->role != CKPT_ROLE_PARAM && e->role != CKPT_ROLE_BUFFER))
            continue;
        b->taken[i] = true;
        if (goes_along(b, e))
            ok = put_named(b, &d, e->name.data, e->name.size, value_of(b, e));
    }
    ckpt_value *model = ok ? ckpt__value_dict(b->arena, d.entries, d.count) : NULL;
    if (model)
        model->class_name = ckpt__s("collections.OrderedDict");
    ok = ok && (d.count == 0 || put_named(b, root, "model", 5, model));
    free(d.entries);
    return ok ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

/* ---- the rest */

static bool has_key(const dict *d, ckpt_str key)
{
    for (size_t i = 0; i < d->count; i++)
        if (d->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(d->entries[i].key->text, key))
            return true;
    return false;
}

/* The root's values without the tensors that the model and the optimizer have. NULL: there is nothing. */
static ckpt_status values_beside(const builder *b, const ckpt_value **out)
{
    const ckpt__index *x = b->m->from;
    const ckpt__canon *c = b->m->canon;
    *out = x->root;
    if (!x->root || x->root->kind != CKPT_V_DICT)
        return CKPT_OK;
    bool *taken = calloc(x->tensor_count + 1, sizeof *taken);
    for (size_t i = 0; taken && i < c->count; i++)
        if (b->taken[i] && c->entries[i].is_tensor)
            taken[c->entries[i].tensor] = true;
    bool ok = taken && ckpt__values_without(x->root, taken, x->tensor_count, b->arena, out);
    free(taken);
    return ok ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

/* The root's own entries; the optimizer's were taken apart. Of a name that is taken the rest goes under its own. */
static ckpt_status put_values(builder *b, dict *root)
{
    const ckpt_value *from;
    ckpt_status status = values_beside(b, &from);
    if (status < 0)
        return status;
    for (size_t i = 0; from && from->kind == CKPT_V_DICT && i < from->entry_count; i++) {
        const ckpt_entry *e = &from->entries[i];
        ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : (ckpt_str){NULL, 0};
        if (ckpt__str_is(key, CKPT__OUTSIDE_KEY) || ckpt__str_is(key, CKPT__TORCH_KEY) ||
            ckpt__str_is(key, "optimizer"))
            continue;
        ckpt_str kept = key;
        if (key.data && has_key(root, key) &&
            !(kept = ckpt__arena_join(b->arena, key, ckpt__s(".values"), (ckpt_str){NULL, 0})).data)
            return ckpt__migration_no_memory(b->err);
        if (!put(root, kept.data ? ckpt__value_str(b->arena, kept.data, kept.size) : e->key, e->value))
            return ckpt__migration_no_memory(b->err);
    }
    return CKPT_OK;
}

/* What is in the root's own entries already: tensors, and their names, as one that has two is listed twice. */
typedef struct placed {
    bool *tensors; /* heap, one a tensor */
    ckpt__hash *names;
    const builder *b;
} placed;

static int note_tensor(void *ctx, const ckpt_visit *visit)
{
    placed *p = ctx;
    if (visit->value->kind != CKPT_V_TENSOR)
        return 0;
    p->tensors[visit->value->tensor] = true;
    ckpt_str name = ckpt__arena_str(p->b->arena, visit->name.data, visit->name.size);
    return name.data && ckpt__hash_put(p->names, name.data, name.size, 0, NULL) >= 0
               ? 0
               : (int)ckpt__migration_no_memory(p->b->err);
}

/* What is left of the tensors: those of no model and no optimizer (rng.torch, ema.fc.weight), by their whole names. */
static ckpt_status put_tensors(builder *b, dict *root)
{
    const ckpt__canon *c = b->m->canon;
    placed p = {calloc(b->m->from->tensor_count + 1, sizeof *p.tensors), ckpt__hash_new(16), b};
    const ckpt_value *from = b->m->from->root;
    int walked = p.tensors && p.names ? 0 : ckpt__migration_no_memory(b->err);
    if (walked == 0 && from)
        walked = ckpt_value_walk(from, 0, note_tensor, &p, b->err);
    bool ok = true;
    for (size_t i = 0; walked == 0 && ok && i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        bool there =
            e->is_tensor && (p.tensors[e->tensor] || ckpt__hash_get(p.names, e->name.data, e->name.size, NULL));
        if (e->is_tensor && !b->taken[i] && !there && goes_along(b, e))
            ok = put_named(b, root, e->name.data, e->name.size, value_of(b, e));
    }
    free(p.tensors);
    ckpt__hash_free(p.names);
    return walked ? (ckpt_status)walked : ok ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

/* A run counts its steps, whether or not its trainer has bound a number of them: then it is an entry of the canon alone. */
static ckpt_status put_step(builder *b, dict *root)
{
    const ckpt__canon *c = b->m->canon;
    const ckpt_str key = ckpt__s("step");
    size_t i;
    if (!ckpt__format_of(b->m->from)->bound || has_key(root, key) ||
        !ckpt__hash_get(c->by_name, key.data, key.size, &i) || !c->entries[i].outside || c->entries[i].is_tensor)
        return CKPT_OK;
    return put_named(b, root, key.data, key.size, c->entries[i].value) ? CKPT_OK : ckpt__migration_no_memory(b->err);
}

ckpt_status ckpt__migrate_torch_build(ckpt__migration *m, const ckpt_value **root, ckpt_error *err)
{
    builder b = {.m = m, .arena = m->index->arena, .err = err};
    dict d = {0};
    b.taken = calloc(m->canon->count + 1, sizeof *b.taken);
    ckpt_status status = b.taken ? number_params(&b) : ckpt__migration_no_memory(b.err);
    if (status == CKPT_OK)
        status = take_states(&b);
    if (status == CKPT_OK)
        status = make_model(&b, &d);
    if (status == CKPT_OK)
        status = make_optimizer(&b, &d);
    if (status == CKPT_OK && m->saved_groups && !put_named(&b, &d, SAVED, sizeof SAVED - 1, m->saved_groups))
        status = ckpt__migration_no_memory(b.err);
    if (status == CKPT_OK)
        status = put_values(&b, &d);
    if (status == CKPT_OK)
        status = put_tensors(&b, &d);
    if (status == CKPT_OK)
        status = put_step(&b, &d);
    if (status == CKPT_OK && !(*root = finish(&b, &d)))
        status = ckpt__migration_no_memory(b.err);
    free(d.entries);
    for (size_t i = 0; b.states && i < b.count; i++)
        free(b.states[i].entries);
    free(b.states);
    free(b.taken);
    ckpt__hash_free(b.params);
    return status;
}
