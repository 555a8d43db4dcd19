/* anatomy/placement.h - the target device of every tensor of a checkpoint, by the rules and the placement policy. What the
 * commands (doctor, migrate) and a restore ask alike. */
#ifndef CKPT_PLACEMENT_H
#define CKPT_PLACEMENT_H
#include "anatomy/canon.h"
#include "map/map.h"

/* The tensors among the canonical entries, and where each of them goes. Every array has `count` items, an item a
 * tensor, and is the heap's: the placement owns them (ckpt__placement_free). A canon with the entries w (a tensor),
 * optimizer.w.step (the number 3) and optimizer.w.exp_avg (a tensor) gives count 2 and entries {0, 2}. If w is in
 * group 1, groups is {1, 1}: a moment is in the group of its parameter. */
typedef struct ckpt__placement {
    size_t count;
    size_t *entries;            /* number of the canonical entry */
    ckpt__subject *subjects;    /* what the map's rules see; the strings are borrowed from the canon and the index */
    ckpt_dtype *dtypes;         /* as saved */
    ckpt_optimizer_kind *kinds; /* by the saved flags of the group that holds the parameter; DEFAULT: in no group */
    size_t *groups;             /* number of that group in the canon; SIZE_MAX: none */
    ckpt__target *targets;      /* all NONE until ckpt__placement_apply */
} ckpt__placement;

ckpt_status ckpt__placement_build(const ckpt__index *index, const ckpt__canon *canon, ckpt__placement *out,
                                  ckpt_error *err);
/* ckpt__map_place over it. kind DEFAULT: the map's, else the saved flags. */
ckpt_status ckpt__placement_apply(ckpt__placement *p, const ckpt_map *map, ckpt_optimizer_kind kind,
                                  const ckpt_ranks *ranks, ckpt_report *report, ckpt_error *err);
void ckpt__placement_free(ckpt__placement *p);
#endif
