/* anatomy/placement.h - the target device of every tensor of a checkpoint, by the rules and the placement policy. What the
 * commands (doctor, migrate) and a restore ask alike. */
#ifndef CKPT_PLACEMENT_H
#define CKPT_PLACEMENT_H
#include "anatomy/canon.h"
#include "map/map.h"

/* Parallel arrays, one item a tensor among the canonical entries. */
typedef struct ckpt__placement {
    size_t count;
    size_t *entries;              /* number of the canonical entry */
    ckpt__subject *subjects;
    ckpt_dtype *dtypes;
    ckpt_optimizer_kind *kinds;   /* by the saved flags of the group that holds the parameter; DEFAULT: in no group */
    size_t *groups;               /* number of that group; SIZE_MAX: none */
    ckpt__target *targets;        /* all NONE until ckpt__placement_apply */
} ckpt__placement;

ckpt_status ckpt__placement_build(const ckpt__index *index, const ckpt__canon *canon, ckpt__placement *out, ckpt_error *err);
/* ckpt__map_place over it. kind DEFAULT: the map's, else the saved flags. */
ckpt_status ckpt__placement_apply(ckpt__placement *p, const ckpt_map *map, ckpt_optimizer_kind kind, const ckpt_ranks *ranks,
                                  ckpt_report *report, ckpt_error *err);
void ckpt__placement_free(ckpt__placement *p);

/* What a group's saved flags make of it. */
ckpt_optimizer_kind ckpt__group_kind(const ckpt__canon_group *group);
#endif
