/* migrate/place.h - the target's index on its way: what the files that make it share. */
#ifndef CKPT_MIGRATE_PLACE_H
#define CKPT_MIGRATE_PLACE_H
#include "migrate/migration.h"
#include "model/views.h"

/* The work of ckpt__migrate_place. The arrays are heap and are freed at its end. They are indexed by numbers of the
 * source, which are numbers of the target as well. */
typedef struct ckpt__placing {
    ckpt__migration *m; /* borrowed */
    bool *named;        /* one a tensor: a canonical entry names it */
    ckpt__views views;  /* owned: which tensors of the source view which storage */
    size_t *holder;     /* one a storage: the tensor that gave the storage its tag; SIZE_MAX: none yet */
    ckpt_dtype *wanted; /* one a tensor: the dtype that a rule of the map or --cast asks for; NONE: as saved */
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

/* ---- own.c: storages of their own, one of the reasons of ckpt__own after the other */

ckpt_status ckpt__own_joined(ckpt__placing *p); /* first of all */
ckpt_status ckpt__own_cast(ckpt__placing *p);   /* once names and tags are known, and then: */
ckpt_status ckpt__own_cut(ckpt__placing *p);
ckpt_status ckpt__own_strided(ckpt__placing *p);
ckpt_status ckpt__own_resolved(ckpt__placing *p);
#endif
