/* migrate/order.c - the optimizer of a torch file: its groups' flags, its parameters in another order, and dense
 * ids after parameters went. torch matches by position alone: ids are 0, 1, ... over all groups, in their order. */
#include "migrate/migration.h"
#include "migrate/order.h"
#include "model/value_path.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- looking at it */

size_t ckpt__optimizer_slots(const ckpt_value *optimizer)
{
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups");
    size_t n = 0;
    for (size_t g = 0; ckpt__is_list(groups) && g < groups->item_count; g++) {
        const ckpt_value *params = ckpt__params_of(groups->items[g]);
        n += params ? params->item_count : 0;
    }
    return n;
}

/* ---- the work: slots in a new order */

/* One call of ckpt__optimizer_turn. Slots count the parameters over all groups. A worked example: the groups [7, 8]
 * and [9] have the old slots 0, 1 and 2, so first is {0, 2, 3}, and by_id leads from "9" to 2. If slot 1 goes,
 * number is {0, SIZE_MAX, 1}: the parameter with the id 9 gets the id 1. */
typedef struct reordering {
    ckpt__migration *m;
    const ckpt_value *optimizer;
    const size_t *first; /* one a group, and one more: the group's first old slot; last the count of all slots */
    size_t group_count;
    ckpt__arena *arena;
    ckpt__hash *by_id; /* id as text -> old slot */
    size_t *number;    /* old slot -> new id; SIZE_MAX: the parameter goes */
    ckpt_error *err;
} reordering;

static const ckpt_value *slot_value(const reordering *t, size_t group, const char *key, size_t slot)
{
    const ckpt_value *list = ckpt_value_get(ckpt_value_get(t->optimizer, "param_groups")->items[group], key);
    size_t i = slot - t->first[group];
    return ckpt__is_list(list) && i < list->item_count ? list->items[i] : NULL;
}

static ckpt_str id_text(reordering *t, const ckpt_value *id)
{
    char text[32];
    if (id->kind == CKPT_V_STR)
        return id->text;
    int n = snprintf(text, sizeof text, "%lld", (long long)id->integer);
    return ckpt__arena_str(t->arena, text, n > 0 ? (size_t)n : 0);
}

static bool has_id(const ckpt_value *v)
{
    return v && (v->kind == CKPT_V_INT || v->kind == CKPT_V_STR);
}

static ckpt_status note_ids(reordering *t)
{
    for (size_t g = 0; g < t->group_count; g++)
        for (size_t s = t->first[g]; s < t->first[g + 1]; s++) {
            const ckpt_value *id = slot_value(t, g, "params", s);
            if (!has_id(id))
                return ckpt__fail(t->err, CKPT_E_UNSUPPORTED, "param_groups",
                                  "an optimizer whose parameters are neither numbers nor names");
            ckpt_str text = id_text(t, id);
            if (!text.data || ckpt__hash_put(t->by_id, text.data, text.size, s, NULL) < 0)
                return ckpt__migration_no_memory(t->err);
        }
    return CKPT_OK;
}

/* `key` of a group, whose copy has `entries`, as the list of its slots' values in the new order; ids are made anew. */
static ckpt_status set_list(reordering *t, const ckpt_value *group, ckpt_entry *entries, size_t from, const char *key,
                            const size_t *slots, size_t n, bool ids)
{
    const ckpt_entry *at = ckpt__find_entry(group, key);
    const ckpt_value **items = ckpt__arena_array(t->arena, n + 1, sizeof *items);
    if (!at)
        return CKPT_OK;
    for (size_t i = 0; items && i < n; i++) {
        const ckpt_value *was = slot_value(t, from, key, slots[i]);
        items[i] =
            ids && was && was->kind == CKPT_V_INT ? ckpt__value_int(t->arena, (int64_t)t->number[slots[i]]) : was;
        if (!items[i])
            return ids ? ckpt__migration_no_memory(t->err) : CKPT_OK; /* a list of names that is too short stays */
    }
    const ckpt_value *list = items ? ckpt__value_list(t->arena, CKPT_V_LIST, items, n) : NULL;
    entries[at - group->entries].value = list;
    return list ? CKPT_OK : ckpt__migration_no_memory(t->err);
}

/* The group with those slots. */
static ckpt_status set_group(reordering *t, const ckpt_value *group, size_t from, const size_t *slots, size_t n)
{
    ckpt_entry *entries;
    ckpt_value *copy = ckpt__migration_open_dict(t->m, group, 0, &entries);
    if (!copy)
        return ckpt__migration_no_memory(t->err);
    ckpt_status status = set_list(t, group, entries, from, "param_names", slots, n, false);
    if (status == CKPT_OK)
        status = set_list(t, group, entries, from, "params", slots, n, true);
    return status == CKPT_OK ? ckpt__migration_replace(t->m, group, copy, t->err) : status;
}

static int by_id(const void *a, const void *b)
{
    size_t x = ((const ckpt__numbered_state *)a)->id, y = ((const ckpt__numbered_state *)b)->id;
    return x < y ? -1 : x > y;
}

void ckpt__states_sort(ckpt__numbered_state *states, size_t count, ckpt_entry *entries)
{
    if (count)
        qsort(states, count, sizeof *states, by_id);
    for (size_t i = 0; i < count; i++)
        entries[i] = states[i].entry;
}

/* States under their new ids, in their order; those whose id is in no group stay behind. */
static ckpt_status set_states(reordering *t)
{
    const ckpt_value *state = ckpt_value_get(t->optimizer, "state");
    ckpt__numbered_state *all = calloc(state->entry_count + 1, sizeof *all);
    ckpt_entry *entries = ckpt__arena_array(t->arena, state->entry_count + 1, sizeof *entries);
    ckpt_status status = all && entries ? CKPT_OK : ckpt__migration_no_memory(t->err);
    size_t n = 0, slot;
    for (size_t i = 0; status == CKPT_OK && i < state->entry_count; i++) {
        const ckpt_entry *e = &state->entries[i];
        ckpt_str text = has_id(e->key) ? id_text(t, e->key) : (ckpt_str){NULL, 0};
        if (!text.data || !ckpt__hash_get(t->by_id, text.data, text.size, &slot) || t->number[slot] == SIZE_MAX)
            continue;
        all[n] = (ckpt__numbered_state){t->number[slot], *e};
        if (e->key->kind == CKPT_V_INT && !(all[n].entry.key = ckpt__value_int(t->arena, (int64_t)t->number[slot])))
            status = ckpt__migration_no_memory(t->err);
        n++;
    }
    if (status == CKPT_OK)
        ckpt__states_sort(all, n, entries);
    free(all);
    ckpt_value *copy = status == CKPT_OK ? ckpt__edits_copy(t->m->edits, state) : NULL;
    if (copy) {
        copy->entries = entries;
        copy->entry_count = n;
    }
    return status == CKPT_OK ? ckpt__migration_replace(t->m, state, copy, t->err) : status;
}

static ckpt_status turn(reordering *t, const size_t *slots, size_t count, const size_t *groups, size_t group_count)
{
    const ckpt_value *list = ckpt_value_get(t->optimizer, "param_groups");
    const ckpt_value **items = ckpt__arena_array(t->arena, group_count + 1, sizeof *items);
    ckpt_status status = items ? note_ids(t) : ckpt__migration_no_memory(t->err);
    for (size_t i = 0; i < t->first[t->group_count]; i++)
        t->number[i] = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        t->number[slots[i]] = i;
    if (status == CKPT_OK)
        status = set_states(t);
    size_t at = 0;
    for (size_t g = 0; status == CKPT_OK && g < group_count; g++) {
        size_t from = groups[g], n = 0;
        while (at + n < count && slots[at + n] >= t->first[from] && slots[at + n] < t->first[from + 1])
            n++;
        items[g] = list->items[from];
        status = set_group(t, list->items[from], from, slots + at, n);
        at += n;
    }
    ckpt_value *copy = status == CKPT_OK ? ckpt__edits_copy(t->m->edits, list) : NULL;
    if (copy) {
        copy->items = items;
        copy->item_count = group_count;
    }
    if (status == CKPT_OK)
        status = ckpt__migration_replace(t->m, list, copy, t->err);
    return status == CKPT_OK ? ckpt__migration_apply(t->m, t->err) : status;
}

/* LBFGS keeps one state, with vectors over all parameters in their order. */
static bool has_common_state(const ckpt_value *optimizer)
{
    const ckpt_value *list = ckpt_value_get(optimizer, "param_groups"), *state = ckpt_value_get(optimizer, "state");
    const ckpt_value *group = list->item_count ? list->items[0] : NULL;
    return group && ckpt_value_get(group, "history_size") && ckpt_value_get(group, "tolerance_change") &&
           state->entry_count;
}

static bool stays(const size_t *slots, size_t count, size_t all)
{
    for (size_t i = 0; i < count; i++)
        if (slots[i] != i)
            return false;
    return count == all;
}

ckpt_status ckpt__optimizer_turn(ckpt__migration *m, const ckpt_value *optimizer, const size_t *slots, size_t count,
                                 const size_t *groups, size_t group_count, ckpt_error *err)
{
    const ckpt_value *list = ckpt_value_get(optimizer, "param_groups");
    size_t n = list->item_count, all = ckpt__optimizer_slots(optimizer);
    if (has_common_state(optimizer) && !stays(slots, count, all))
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, "param_groups",
            "LBFGS keeps one state with vectors over all parameters in their order: they cannot be given another "
            "order, nor can one be taken out; --drop optimizer leaves its state out");
    size_t *first = calloc(n + 1, sizeof *first), *number = calloc(all + 1, sizeof *number);
    reordering t = {m, optimizer, first, n, m->from->arena, ckpt__hash_new(all), number, err};
    ckpt_status status = first && number && t.by_id ? CKPT_OK : ckpt__migration_no_memory(err);
    for (size_t g = 0; status == CKPT_OK && g < n; g++) {
        const ckpt_value *params = ckpt_value_get(list->items[g], "params");
        first[g + 1] = first[g] + (ckpt__is_list(params) ? params->item_count : 0);
    }
    if (status == CKPT_OK)
        status = turn(&t, slots, count, groups, group_count);
    ckpt__hash_free(t.by_id);
    free(first);
    free(number);
    return status;
}

/* ---- --param-names */

/* The order that --param-names asks for. All arrays are heap. */
typedef struct sorter {
    ckpt__migration *m;
    ckpt__hash *by_name; /* name of a parameter of the source's optimizer -> old slot */
    size_t *slots, *groups, *group_of, group_count, count; /* slots: new place -> old slot, count of them; groups:
                                                            * old groups in their new order, group_count of them;
                                                            * group_of: old slot -> old group */
    ckpt_error *err;
} sorter;

static ckpt_status read_slots(sorter *s)
{
    const ckpt__canon *c = s->m->canon;
    size_t slot = 0;
    for (size_t g = 0; g < c->group_count; g++)
        for (size_t i = 0; i < c->groups[g].param_count; i++, slot++) {
            ckpt_str name = c->groups[g].params[i];
            s->group_of[slot] = g;
            if (!name.data)
                return ckpt__fail(s->err, CKPT_E_MISMATCH, s->m->src,
                                  "it is not known which parameters its optimizer's ids are");
            int put = ckpt__hash_put(s->by_name, name.data, name.size, slot, NULL);
            if (put < 0)
                return ckpt__migration_no_memory(s->err);
            if (put == 0)
                return ckpt__fail(s->err, CKPT_E_MISMATCH, name.data,
                                  "--param-names: the optimizer holds this parameter twice");
        }
    return CKPT_OK;
}

static ckpt_status sort_slots(sorter *s)
{
    const ckpt_migrate_options *o = &s->m->options;
    bool *taken = calloc(s->count + 1, sizeof *taken), *closed = calloc(s->m->canon->group_count + 1, sizeof *closed);
    ckpt_status status = taken && closed ? CKPT_OK : ckpt__migration_no_memory(s->err);
    for (size_t i = 0; status == CKPT_OK && i < o->param_name_count; i++) {
        size_t slot = 0, last = s->group_count ? s->groups[s->group_count - 1] : SIZE_MAX;
        if (!ckpt__hash_get(s->by_name, o->param_names[i], strlen(o->param_names[i]), &slot) || taken[slot]) {
            status =
                ckpt__fail(s->err, CKPT_E_MISMATCH, o->param_names[i], "--param-names, line %zu: %s", i + 1,
                           s->by_name && taken[slot] ? "this name stands there twice, or is none of the optimizer's"
                                                     : "the source's optimizer has no parameter of this name");
            break;
        }
        size_t g = s->group_of[slot];
        if (g != last && closed[g])
            status =
                ckpt__fail(s->err, CKPT_E_MISMATCH, o->param_names[i],
                           "--param-names, line %zu: it belongs to the source's group %zu, whose names end above: list "
                           "them group by group",
                           i + 1, g);
        else if (g != last)
            s->groups[s->group_count++] = g;
        closed[g] = true;
        taken[slot] = true;
        s->slots[i] = slot;
    }
    if (status == CKPT_OK && o->param_name_count != s->count)
        status =
            ckpt__fail(s->err, CKPT_E_MISMATCH, s->m->src,
                       "--param-names has %zu names, and the source's optimizer %zu parameters: torch would refuse it",
                       o->param_name_count, s->count);
    free(taken);
    free(closed);
    return status;
}

static const ckpt_value *optimizer_of(const ckpt__migration *m)
{
    const ckpt_value *v = NULL;
    if (m->remade)
        v = ckpt_value_get(m->root, "optimizer");
    else if (m->tree && m->canon->optimizer_path.data)
        v = ckpt__value_at(m->from->root, m->canon->optimizer_path);
    else if (!m->tree)
        v = ckpt_value_get(m->root, "optimizer");
    return ckpt__is_torch_optimizer(v) ? v : NULL;
}

ckpt_status ckpt__migrate_order(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *optimizer = optimizer_of(m);
    if (!m->options.param_name_count || m->options.weights_only || m->order_stated)
        return CKPT_OK;
    if (!optimizer || m->canon->group_count != ckpt_value_get(optimizer, "param_groups")->item_count)
        return ckpt__fail(err, CKPT_E_MISMATCH, m->src,
                          "--param-names: it has no optimizer whose parameters are known");
    sorter s = {.m = m, .count = ckpt__optimizer_slots(optimizer), .err = err};
    s.by_name = ckpt__hash_new(s.count);
    s.slots =
        calloc((s.count > m->options.param_name_count ? s.count : m->options.param_name_count) + 1, sizeof *s.slots);
    s.groups = calloc(m->canon->group_count + 1, sizeof *s.groups);
    s.group_of = calloc(s.count + 1, sizeof *s.group_of);
    ckpt_status status =
        s.by_name && s.slots && s.groups && s.group_of ? read_slots(&s) : ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        status = sort_slots(&s);
    for (size_t g = 0; status == CKPT_OK && g < m->canon->group_count; g++)
        if (m->canon->groups[g].param_count == 0)
            s.groups[s.group_count++] = g; /* groups without parameters come last */
    if (status == CKPT_OK)
        status = ckpt__optimizer_turn(m, optimizer, s.slots, s.count, s.groups, s.group_count, err);
    if (status == CKPT_OK)
        status =
            ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "reordered", (ckpt_str){NULL, 0}, err,
                                 "the optimizer's %zu parameters stand in the order of --param-names now", s.count);
    ckpt__hash_free(s.by_name);
    free(s.slots);
    free(s.groups);
    free(s.group_of);
    return status;
}

/* ---- flags */

static ckpt_status set_flag(ckpt__arena *a, ckpt_value *group, ckpt_entry *entries, const ckpt__flag *flag,
                            ckpt_error *err)
{
    const ckpt_entry *at = ckpt__find_entry(group, flag->key);
    size_t n = at ? (size_t)(at - group->entries) : group->entry_count;
    if (!at && !flag->on)
        return CKPT_OK;
    entries[n].key = at ? at->key : ckpt__value_str(a, flag->key, strlen(flag->key));
    entries[n].value = ckpt__value_bool(a, flag->on);
    group->entry_count += !at;
    return entries[n].key && entries[n].value ? CKPT_OK : ckpt__migration_no_memory(err);
}

ckpt_status ckpt__group_set_flags(ckpt__migration *m, const ckpt_value *group, ckpt_error *err)
{
    ckpt__flag flags[CKPT__FLAGS_MAX];
    size_t n = ckpt__flags_for(m->kind, flags);
    ckpt_status status = CKPT_OK;
    if (group->kind != CKPT_V_DICT)
        return CKPT_OK;
    ckpt_entry *entries;
    ckpt_value *copy = ckpt__migration_open_dict(m, group, CKPT__FLAGS_MAX, &entries);
    if (!copy)
        return ckpt__migration_no_memory(err);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = set_flag(m->from->arena, copy, entries, &flags[i], err);
    return status == CKPT_OK ? ckpt__migration_replace(m, group, copy, err) : status;
}

ckpt_status ckpt__migrate_torch_flags(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *groups = ckpt_value_get(optimizer_of(m), "param_groups");
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && groups && g < groups->item_count; g++)
        status = ckpt__group_set_flags(m, groups->items[g], err);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}
