/* anatomy/canon_shuffle.c - groups that each have their parameters in the model's order, as a list that a program has made by
 * asking each parameter in turn. Which group a parameter is in is told by shapes: in one way, or in several. */
#include "anatomy/canon_work.h"

#include <stdlib.h>

enum { WIDTH = 1024, GROUPS = 512 }; /* as many ways half through are followed; more groups than that are not */

/* How many slots of each group are taken: one state of the walk over the parameters. `ways`: 1, or 2 for more.
 *
 * Three parameters of one shape, and groups of 2 and of 1 slots: after the first parameter the front has the states
 * {1, 0} and {0, 1}; after the second {2, 0} (1 way) and {1, 1} (2 ways); after the third {2, 1} alone, with more
 * ways than one. */
typedef struct front {
    uint32_t *taken;           /* heap: WIDTH times group_count; state i begins at i * group_count */
    unsigned char ways[WIDTH]; /* one a state */
    size_t count;              /* states */
} front;

/* What all steps of the walk share. */
typedef struct walk {
    const ckpt__exam *exam; /* borrowed */
    size_t groups, surplus; /* groups of the optimizer; parameters more than slots */
    bool full;              /* more ways than are followed */
    bool no_memory;
} walk;

static void put_state(walk *w, front *f, ckpt__hash *seen, const uint32_t *taken, unsigned char ways)
{
    size_t n = w->groups, at;
    uint32_t *next = f->taken + f->count * n;
    if (f->count == WIDTH) {
        w->full = true;
        return;
    }
    memcpy(next, taken, n * sizeof *taken);
    int put = ckpt__hash_put(seen, (const char *)next, n * sizeof *next, f->count, &at);
    if (put < 0)
        w->no_memory = true;
    else if (put == 0)
        f->ways[at] = 2;
    else
        f->ways[f->count++] = ways;
}

/* Where the entry may go from one state: to each group whose next slot it fits, and nowhere if there is a surplus. */
static void step(walk *w, const front *from, size_t i, size_t passed, size_t entry, front *to, ckpt__hash *seen)
{
    const ckpt__exam *x = w->exam;
    const ckpt_tensor_info *info = &x->b->index->tensors[x->m->entries[entry].tensor].info;
    uint32_t taken[GROUPS];
    size_t sum = 0;
    memcpy(taken, from->taken + i * w->groups, w->groups * sizeof *taken);
    for (size_t g = 0; g < w->groups; g++) {
        const ckpt__opt_group *group = &x->o->groups[g];
        sum += taken[g];
        if (taken[g] == group->count || !ckpt__slot_fits(x->b, &x->o->slots[group->first + taken[g]], info))
            continue;
        taken[g]++;
        put_state(w, to, seen, taken, from->ways[i]);
        taken[g]--;
    }
    if (passed - sum < w->surplus)
        put_state(w, to, seen, taken, from->ways[i]);
}

static bool advance(walk *w, const front *from, size_t passed, front *to)
{
    ckpt__hash *seen = ckpt__hash_new(from->count * 2);
    w->no_memory = w->no_memory || !seen;
    to->count = 0;
    for (size_t i = 0; i < from->count && !w->full && !w->no_memory; i++)
        step(w, from, i, passed, w->exam->list[passed], to, seen);
    ckpt__hash_free(seen);
    return !w->full && !w->no_memory;
}

ckpt_status ckpt__canon_shuffles(const ckpt__exam *x, bool *several)
{
    walk w = {.exam = x, .groups = x->o->group_count};
    *several = true;
    if (w.groups > GROUPS || x->list_count < x->o->slot_count)
        return CKPT_OK;
    w.surplus = x->list_count - x->o->slot_count;
    front *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b);
    size_t room = WIDTH * w.groups;
    bool ok = a && b && (a->taken = calloc(room, sizeof *a->taken)) && (b->taken = calloc(room, sizeof *b->taken));
    if (ok) {
        a->count = 1;
        a->ways[0] = 1;
    }
    for (size_t i = 0; ok && i < x->list_count; i++) {
        ok = advance(&w, a, i, b);
        front *swap = a;
        a = b;
        b = swap;
    }
    if (ok)
        *several = a->count != 1 || a->ways[0] > 1;
    ok = ok || w.full;
    if (a)
        free(a->taken);
    if (b)
        free(b->taken);
    free(a);
    free(b);
    return ok ? CKPT_OK : ckpt__canon_no_memory(x->b);
}
