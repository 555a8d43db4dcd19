/* frozen.c - parameters without state, or with fewer steps: were they frozen, or is their state lost? No state_dict says
 * which parameters had a gradient. People freeze whole modules, whole groups, or all but an adapter; what is lost is lost
 * anywhere. */
#include "anatomy/canon.h"
#include "doctor/facts.h"

#include <stdlib.h>

/* The parameters below one prefix of names. */
typedef struct module {
    size_t all, without; /* parameters; those among them that are marked, as a rule for having no state */
} module;

typedef struct modules {
    ckpt__hash *numbers; /* prefix -> number */
    module *items;
    size_t count, capacity;
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

static bool is_marked(const ckpt__examination *p, const bool *marked, const ckpt__doctor_slot *slot)
{
    return marked[slot - p->slots];
}

/* The slots of one optimizer, one after the other: NULL behind the last. */
static const ckpt__doctor_slot *next_slot(const ckpt__examination *p, size_t optimizer, size_t *i)
{
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    return *i < o->slot_count ? &p->slots[o->first_slot + (*i)++] : NULL;
}

static ckpt_str param_of(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    return slot->param != SIZE_MAX ? p->index->tensors[slot->param].info.name : (ckpt_str){NULL, 0};
}

/* Groups of which none is marked beside groups of which all are. */
static bool whole_groups(const ckpt__examination *p, size_t optimizer, const bool *marked)
{
    size_t with = 0, without = 0;
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    for (size_t g = o->first_group; g < o->first_group + o->group_count; g++) {
        size_t missing = 0;
        for (size_t i = p->groups[g].first; i < p->groups[g].first + p->groups[g].count; i++)
            missing += marked[i];
        if (p->groups[g].count == 0)
            continue;
        if (missing != 0 && missing != p->groups[g].count)
            return false;
        with += missing == 0;
        without += missing != 0;
    }
    return with > 0 && without > 0;
}

static bool all_but_adapter(const ckpt__examination *p, size_t optimizer, const bool *marked)
{
    size_t i = 0;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;) {
        ckpt_str name = param_of(p, s);
        if (!name.data || ckpt__canon_is_adapter(name) == is_marked(p, marked, s))
            return false;
    }
    return true;
}

static bool count_modules(const ckpt__examination *p, size_t optimizer, const bool *marked, modules *m)
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
                at->without += is_marked(p, marked, s);
            }
        }
    }
    return true;
}

/* Numbers that layers keep among their parameters (Keras, and batch normalization by hand), and what is no floating-point number:
 * no gradient reaches them. */
static bool is_statistic(const ckpt__examination *p, const ckpt__doctor_slot *slot)
{
    static const char known[] =
        "moving_mean moving_variance running_mean running_var num_batches_tracked seed_generator_state";
    ckpt_str name = param_of(p, slot), last = name;
    const char *dot = name.data ? memrchr(name.data, '.', name.size) : NULL;
    if (dot)
        last = (ckpt_str){dot + 1, (size_t)(name.data + name.size - dot) - 1};
    return name.data &&
           (ckpt__str_among(last, known) || !ckpt_dtype_is_float(p->index->tensors[slot->param].info.dtype));
}

/* "layers.3.q.weight" and "layers.5.q.weight": equal but for numbers between dots. */
static bool same_but_number(ckpt_str a, ckpt_str b)
{
    size_t i = 0, k = 0;
    while (i < a.size && k < b.size) {
        size_t m = i, n = k;
        while (m < a.size && a.data[m] >= '0' && a.data[m] <= '9')
            m++;
        while (n < b.size && b.data[n] >= '0' && b.data[n] <= '9')
            n++;
        bool number = m > i && n > k && (i == 0 || a.data[i - 1] == '.') && (m == a.size || a.data[m] == '.');
        if (!number && a.data[i] != b.data[k])
            return false;
        i = number ? m : i + 1;
        k = number ? n : k + 1;
    }
    return i == a.size && k == b.size;
}

/* Is the only parameter of its module one of a row of layers, of which others are not marked? Then it is not the module that
 * was frozen. */
static bool alone_in_row(const ckpt__examination *p, size_t optimizer, const bool *marked, ckpt_str name)
{
    size_t i = 0;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;)
        if (!is_marked(p, marked, s) && same_but_number(param_of(p, s), name))
            return true;
    return false;
}

/* Each that is marked lies in a module of which all are: one parameter is enough for that where it has the module for itself. */
static bool whole_modules(const ckpt__examination *p, size_t optimizer, const bool *marked, modules *m)
{
    size_t i = 0;
    if (!count_modules(p, optimizer, marked, m))
        return false;
    for (const ckpt__doctor_slot *s; (s = next_slot(p, optimizer, &i)) != NULL;) {
        ckpt_str name = param_of(p, s);
        bool whole = !is_marked(p, marked, s) || is_statistic(p, s);
        for (size_t n = 1; n < name.size && !whole; n++) {
            const module *at = name.data[n] == '.' ? module_of(m, (ckpt_str){name.data, n}) : NULL;
            whole = at && at->without == at->all && (at->all > 1 || !alone_in_row(p, optimizer, marked, name));
        }
        if (!whole)
            return false;
    }
    return true;
}

bool ckpt__doctor_whole(const ckpt__examination *p, size_t optimizer, const bool *marked)
{
    modules m = {.numbers = ckpt__hash_new(64)}; /* without memory: as if nothing spoke for it */
    bool whole = whole_groups(p, optimizer, marked) || all_but_adapter(p, optimizer, marked) ||
                 (m.numbers && whole_modules(p, optimizer, marked, &m));
    ckpt__hash_free(m.numbers);
    free(m.items);
    return whole;
}

bool ckpt__doctor_frozen(const ckpt__examination *p, size_t optimizer)
{
    bool *marked = calloc(p->slot_count + 1, sizeof *marked);
    const ckpt__doctor_optimizer *o = &p->optimizers[optimizer];
    for (size_t i = o->first_slot; marked && i < o->first_slot + o->slot_count; i++)
        marked[i] = ckpt__doctor_stateless(p, &p->slots[i]);
    bool frozen = marked && ckpt__doctor_whole(p, optimizer, marked);
    free(marked);
    return frozen;
}
