/* migrate/place.h - the target's index on its way: what the files that make it share. */
#ifndef CKPT_MIGRATE_PLACE_H
#define CKPT_MIGRATE_PLACE_H
#include "migrate/migration.h"
#include "model/views.h"

/* The work of ckpt__migrate_place. Numbers of the source are numbers of the target as well. */
typedef struct ckpt__placing {
    ckpt__migration *m; /* borrowed */
    ckpt__views views;  /* owned: which tensors of the source view which storage */
    size_t *holder;     /* heap, one a storage: the tensor that gave the storage its tag; SIZE_MAX: none yet */
    ckpt_error *err;
} ckpt__placing;

/* ---- place_tags.c: device tags */

/* The tensor gets the tag of the target, where that is another one, and a note says so. */
ckpt_status ckpt__place_tag(ckpt__placing *p, size_t tensor, const ckpt__target *target);
/* A part of a tensor that is not dense, of which a native file knows no whole: rules by tag and the default. What describes a
 * nested tensor stays on the host. */
ckpt_status ckpt__place_parts_alone(ckpt__placing *p);
/* When all tensors have theirs: those of their parts, and of storages. */
ckpt_status ckpt__place_storages(ckpt__placing *p);

/* ---- to_run_tags.c: m->rank_tags, where a map gives the ranks' tensors devices */
ckpt_status ckpt__run_tags(ckpt__migration *m, ckpt_error *err);

/* ---- own.c: does a tensor that goes along get a storage of its own? For each of the reasons of ckpt__own */

ckpt_status ckpt__own_joined(ckpt__placing *p, size_t tensor); /* first of all */
ckpt_status ckpt__own_merged(ckpt__placing *p, size_t tensor);
ckpt_status ckpt__own_cast(ckpt__placing *p, size_t tensor); /* once names and tags are known, and then: */
ckpt_status ckpt__own_cut(ckpt__placing *p, size_t tensor);
ckpt_status ckpt__own_strided(ckpt__placing *p, size_t tensor);
ckpt_status ckpt__own_resolved(ckpt__placing *p, size_t tensor);
ckpt_status ckpt__own_tied(ckpt__placing *p, size_t tensor);

/* ---- float4.c */

ckpt_status ckpt__place_float4(ckpt__placing *p, size_t tensor);
#endif
