/* doctor_frozen.c - parameters without state: were they frozen, or is their state lost? No state_dict says which parameters
 * had a gradient. People freeze whole modules, whole groups, or all but an adapter; what is lost is lost anywhere. */
#include "core/canon_tree.h"
#include "core/doctor_facts.h"

#include <stdlib.h>

/* The parameters below one prefix of names. */
typedef struct module {
    size_t all, without;
} module;

typedef struct modules {
    ckpt__hash *numbers;          /* prefix -> number */
    module *items; size_t count, capacity;
} modules;

static module *module_of(modules *m, ckpt_str prefix)
{
    size_t i = m->count;
    int put = ckpt__hash_put(m->numbers, prefix.data, prefix.size, i, &i);
    if (put < 0 || !ckpt__grow(&m->items, &m->capacity, m->count + (put > 0), sizeof *m->items))
        return NULL;
    if (put > 0)
        m->items[m->count++] = (module){0, 0};
    return &m->items[i];
}

/* The slots of one optimizer, one after the other: NULL behind the last. */
static const ckpt__doctor_slot *next_slot(const ckpt__patient *p, size_t optimizer, size_t *i)
{
    for (; *i < p->slot_count; ++*i)
        if (p->groups[p->slots[*i].group].optimizer == optimizer)
            return &p->slots[(*i)++];
    return NULL;
}

static ckpt_str param_of(const ckpt__patient *p, const ckpt__doctor_slot *slot)
{
    return slot->param != SIZE_MAX ? p->index->tensors[slot->param].info.name : (ckpt_str){NULL, 0};
}

/* Groups with state for all of theirs beside groups with state for none. */
static bool whole_groups(const ckpt__patient *p, size_t optimizer)
{
    size_t with = 0, without = 0;
    for (size_t g = 0; g < p->group_count; g++) {
        size_t missing = 0;
        for (size_t i = p->groups[g].first; i < p->groups[g].first + p->groups[g].count; i++)
            missing += ckpt__doctor_stateless(p, &p->slots[i]);
        if (p->groups[g].optimizer != optimizer || p->groups[g].count == 0)
            continue;
        if (missing != 0 && missing != p->groups[g].count)
            return false;
        with += missing == 0;
        without += missing != 0;
    }
    return with > 0 && without > 0;
}

static bool all_but_adapter(const ckpt__patient *p, size_t optimizer)
{
    size_t i = 0;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;) {
        ckpt_str name = param_of(p, s);
        if (!name.data || ckpt__canon_is_adapter(name) == ckpt__doctor_stateless(p, s))
            return false;
    }
    return true;
}

static bool count_modules(const ckpt__patient *p, size_t optimizer, modules *m)
{
    size_t i = 0;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;) {
        ckpt_str name = param_of(p, s);
        if (!name.data)
            return false;
        for (size_t n = 1; n < name.size; n++) {
            module *at = name.data[n] == '.' ? module_of(m, (ckpt_str){name.data, n}) : NULL;
            if (name.data[n] == '.' && !at)
                return false;
            if (at) {
                at->all++;
                at->without += ckpt__doctor_stateless(p, s);
            }
        }
    }
    return true;
}

/* Each that has no state lies in a module of two parameters or more of which none has. */
static bool whole_modules(const ckpt__patient *p, size_t optimizer, modules *m)
{
    size_t i = 0;
    if (!count_modules(p, optimizer, m))
        return false;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;) {
        ckpt_str name = param_of(p, s);
        bool whole = !ckpt__doctor_stateless(p, s);
        for (size_t n = 1; n < name.size && !whole; n++) {
            const module *at = name.data[n] == '.' ? module_of(m, (ckpt_str){name.data, n}) : NULL;
            whole = at && at->all > 1 && at->without == at->all;
        }
        if (!whole)
            return false;
    }
    return true;
}

bool ckpt__doctor_frozen(const ckpt__patient *p, size_t optimizer)
{
    modules m = {.numbers = ckpt__hash_new(64)};     /* without memory: as if nothing spoke for it */
    bool frozen = whole_groups(p, optimizer) || all_but_adapter(p, optimizer) || (m.numbers && whole_modules(p, optimizer, &m));
    ckpt__hash_free(m.numbers);
    free(m.items);
    return frozen;
}
