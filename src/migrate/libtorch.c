/* migrate/libtorch.c - an optimizer of libtorch in C++ as one of torch's in Python, where no names are known and none
 * are needed: both go by the position of a parameter in its groups. It has torch's shape already (format/torch/libtorch.h);
 * what is left are numbers for the addresses, steps that are tensors, and lists that are lists:
 *   {'state': {0: {'step': tensor(5.), 'exp_avg': T, ...}}, 'param_groups': [{'lr': ..., 'params': [0, ...]}]}
 *
 * [torch/optim/optimizer.py: load_state_dict, and the __setstate__ of each optimizer, which fill in the settings that C++ has
 * not] */
#include "migrate/migration.h"
#include "migrate/order.h"

#include <stdlib.h>
#include "format/torch/libtorch.h"

/* One optimizer on its way. */
typedef struct conversion {
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__hash *ids; /* address -> the parameter's number */
    ckpt_error *err;
} conversion;

static bool text_of(const ckpt_entry *e, ckpt_str *key)
{
    *key = e->key->text;
    return e->key->kind == CKPT_V_STR;
}

static void leave(conversion *t, const ckpt_value *v, ckpt__fate fate)
{
    if (v->kind == CKPT_V_TENSOR && v->tensor < t->m->from->tensor_count)
        ckpt__leave_one(t->m, v->tensor, fate);
}

/* ---- one parameter's state */

/* The name that the step of the parameter at this address has in the source; data NULL: no memory. */
static ckpt_str step_name(conversion *t, ckpt_str address)
{
    ckpt_str path = t->m->canon->unnamed,
             own = ckpt__arena_join(t->arena, ckpt__s(path.size ? ".state." : "state."), address, ckpt__s(".step"));
    return own.data ? ckpt__arena_join(t->arena, path, own, (ckpt_str){NULL, 0}) : own;
}

/* "old_dirs/size" and "old_dirs/0", ... of LBFGS are a list "old_dirs", which takes the place of its size. *is: the entry is one of
 * those. */
static ckpt_status put_list(conversion *t, const ckpt_value *state, const ckpt_entry *e, ckpt_entry *entries, size_t *n,
                            bool *is)
{
    ckpt_str key;
    int64_t number;
    const char *slash = text_of(e, &key) ? memrchr(key.data, '/', key.size) : NULL;
    *is = false;
    if (!slash)
        return CKPT_OK;
    ckpt_str head = {key.data, (size_t)(slash - key.data) + 1}, tail = {slash + 1, key.size - head.size};
    bool size = ckpt__str_is(tail, "size");
    *is = size || (ckpt__parse_i64(tail.data, tail.size, &number) && number >= 0);
    if (!size)
        return CKPT_OK;
    const ckpt_value **items;
    size_t count;
    ckpt_status status = ckpt__libtorch_list(state, head, t->arena, t->m->src, &items, &count, t->err);
    if (status < 0)
        return status;
    leave(t, e->value, CKPT__FATE_COUNTED);
    entries[*n].key = ckpt__value_str(t->arena, head.data, head.size - 1);
    entries[*n].value = ckpt__value_list(t->arena, CKPT_V_LIST, items, count);
    return entries[*n].key && entries[(*n)++].value ? CKPT_OK : ckpt__migration_no_memory(t->err);
}

static ckpt_status turn_state(conversion *t, ckpt_str address, const ckpt_value *state)
{
    ckpt_entry *entries = ckpt__arena_array(t->arena, state->entry_count + 1, sizeof *entries);
    ckpt_status status = entries ? CKPT_OK : ckpt__migration_no_memory(t->err);
    size_t n = 0;
    for (size_t i = 0; status == CKPT_OK && i < state->entry_count; i++) {
        const ckpt_entry *e = &state->entries[i];
        bool listed = false;
        ckpt_str key;
        status = put_list(t, state, e, entries, &n, &listed);
        if (status < 0 || listed)
            continue;
        entries[n] = *e;
        if (text_of(e, &key) && ckpt__str_is(key, "step") && e->value->kind == CKPT_V_INT) {
            ckpt_value *step = ckpt__value_new(t->arena, CKPT_V_TENSOR);
            status = step ? ckpt__add_step(t->m, step_name(t, address), ckpt__s("step"), e->value->integer, t->err)
                          : ckpt__migration_no_memory(t->err);
            if (status == CKPT_OK)
                step->tensor = t->m->from->tensor_count - 1;
            entries[n].value = step;
        }
        n++;
    }
    ckpt_value *made = status == CKPT_OK ? ckpt__edits_copy(t->m->edits, state) : NULL;
    if (made) {
        made->entries = entries;
        made->entry_count = n;
        made->class_name = (ckpt_str){NULL, 0};
        made->origin = NULL;
    }
    return status == CKPT_OK ? ckpt__migration_replace(t->m, state, made, t->err) : status;
}

/* ---- all states */

/* States by the ids of their addresses, in their order; what is in no group concerns no optimizer. */
static ckpt_status turn_states(conversion *t, const ckpt_value *states, const ckpt_value **out)
{
    ckpt__numbered_state *all = calloc(states->entry_count + 1, sizeof *all);
    ckpt_entry *entries = ckpt__arena_array(t->arena, states->entry_count + 1, sizeof *entries);
    ckpt_status status = all && entries ? CKPT_OK : ckpt__migration_no_memory(t->err);
    size_t n = 0;
    for (size_t i = 0; status == CKPT_OK && i < states->entry_count; i++) {
        const ckpt_value *state = states->entries[i].value;
        ckpt_str key;
        size_t id;
        if (!text_of(&states->entries[i], &key) || state->kind != CKPT_V_DICT)
            continue;
        if (!ckpt__hash_get(t->ids, key.data, key.size, &id)) {
            status = ckpt__migration_note(t->m, CKPT_SEVERITY_WARNING, "dead-state", key, t->err,
                                          "a state of the optimizer whose parameter is in no group: left out");
            for (size_t k = 0; k < state->entry_count; k++)
                leave(t, state->entries[k].value, CKPT__FATE_DEAD_STATE);
            continue;
        }
        all[n].id = id;
        all[n].entry.key = ckpt__value_int(t->arena, (int64_t)id);
        all[n++].entry.value = state;
        status = all[n - 1].entry.key ? turn_state(t, key, state) : ckpt__migration_no_memory(t->err);
    }
    if (status == CKPT_OK)
        ckpt__states_sort(all, n, entries);
    free(all);
    *out = status == CKPT_OK ? ckpt__value_dict(t->arena, entries, n) : NULL;
    return status == CKPT_OK && !*out ? ckpt__migration_no_memory(t->err) : status;
}

/* What says how many groups there are, and parameters in each. */
static void leave_sizes(conversion *t, const ckpt_value *groups)
{
    for (size_t g = 0; g < groups->entry_count; g++) {
        const ckpt_value *group = groups->entries[g].value;
        leave(t, group, CKPT__FATE_COUNTED);
        for (size_t i = 0; group->kind == CKPT_V_DICT && i < group->entry_count; i++)
            leave(t, group->entries[i].value, CKPT__FATE_COUNTED);
    }
}

static ckpt_status turn(conversion *t, const ckpt_value *optimizer, const ckpt_value **to)
{
    const ckpt_value *states = ckpt_value_get(optimizer, "state"), *shaped, *made = NULL;
    ckpt_status status = ckpt__libtorch_ordinary(optimizer, t->arena, t->ids, t->m->src, &shaped, t->err);
    if (status == CKPT_OK)
        status = turn_states(t, states, &made);
    if (status < 0)
        return status;
    const ckpt_value *groups = ckpt_value_get(shaped, "param_groups");
    size_t params = 0;
    for (size_t g = 0; g < groups->item_count; g++)
        params += ckpt__params_of(groups->items[g])->item_count;
    leave_sizes(t, ckpt_value_get(optimizer, "param_groups"));
    ckpt_entry *entries = ckpt__arena_array(t->arena, 2, sizeof *entries);
    ckpt_value *whole = ckpt__edits_copy(t->m->edits, optimizer);
    if (!entries || !whole)
        return ckpt__migration_no_memory(t->err);
    entries[0] = (ckpt_entry){ckpt__value_str(t->arena, "state", 5), made};
    entries[1] = (ckpt_entry){ckpt__value_str(t->arena, "param_groups", 12), groups};
    if (!entries[0].key || !entries[1].key)
        return ckpt__migration_no_memory(t->err);
    whole->entries = entries;
    whole->entry_count = 2;
    whole->class_name = (ckpt_str){NULL, 0};
    whole->origin = NULL;
    *to = whole;
    return ckpt__migration_note(
        t->m, CKPT_SEVERITY_NOTE, "reordered", (ckpt_str){NULL, 0}, t->err,
        "the optimizer of libtorch is written as torch.optim has it: its %zu parameters by position", params);
}

static ckpt_status turn_one(ckpt__migration *m, const ckpt_value *v, const ckpt_value **to, ckpt_error *err)
{
    if (!ckpt__is_libtorch_optimizer(v))
        return CKPT_OK; /* before 1.5: no settings, so nothing that torch.optim could load */
    conversion t = {.m = m, .arena = m->from->arena, .ids = ckpt__hash_new(64), .err = err};
    ckpt_status status = t.ids ? turn(&t, v, to) : ckpt__migration_no_memory(err);
    ckpt__hash_free(t.ids);
    return status;
}

static ckpt_status turn_if(void *ctx, const ckpt_value *v, const ckpt_value **to, bool *below, ckpt_error *err)
{
    *below = !ckpt__is_cpp_optimizer(v);
    return *below ? CKPT_OK : turn_one(ctx, v, to, err);
}

ckpt_status ckpt__migrate_libtorch(ckpt__migration *m, ckpt_error *err)
{
    return ckpt__edit_dicts(m, turn_if, m, err);
}
