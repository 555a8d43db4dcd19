/* format/dcp/write_share.c - which rank writes what several ranks have.
 *
 * torch plans a save so (torch/distributed/checkpoint/_dedup_save_plans.py): each rank lists what it has, in the order of the state dict.
 * The lists are gone through one after the other, and of those that have a thing the one gets it that has least so far, counted in bytes of
 * whole tensors; a value counts 1. So a program that saves with the mesh of a target writes each box to the same file. */
#include "format/dcp/write.h"

#include <stdlib.h>

/* The one with the least; of several the first. */
static uint32_t least_of(const uint64_t *load, const uint32_t *ranks, size_t count)
{
    uint32_t best = ranks ? ranks[0] : 0;
    for (size_t i = 1; i < count; i++) {
        const uint32_t rank = ranks ? ranks[i] : (uint32_t)i;
        best = load[rank] < load[best] ? rank : best;
    }
    return best;
}

/* The boxes of which the rank is the first that has them. */
static void assign_rank(const ckpt__dcp_ranks *ranks, const ckpt__dcp_share *s, uint32_t rank, uint64_t *load)
{
    const ckpt__dcp_cut *c = s->cut;
    const uint64_t weight = s->nbytes ? s->nbytes : 1;
    if (!c && rank == 0) {
        s->writers[0] = least_of(load, NULL, ranks->spread ? ranks->count : 1);
        load[s->writers[0]] += weight;
    }
    for (size_t i = c ? c->first_held[rank] : 0; c && i < c->first_held[rank + 1]; i++) {
        const size_t box = c->held[i], first = c->first_holder[box], end = c->first_holder[box + 1];
        if (c->holders[first] != rank)
            continue;
        s->writers[box] = least_of(load, c->holders + first, ranks->spread ? end - first : 1);
        load[s->writers[box]] += weight;
    }
}

bool ckpt__dcp_assign(const ckpt__dcp_ranks *ranks, const ckpt__dcp_share *shares, size_t count)
{
    uint64_t *load = calloc(ranks->count, sizeof *load);
    for (uint32_t r = 0; load && r < ranks->count; r++)
        for (size_t i = 0; i < count; i++)
            assign_rank(ranks, &shares[i], r, load);
    const bool fine = load != NULL;
    free(load);
    return fine;
}
