/* migrate/select.h - names of tensors while it is chosen which ones go along. */
#ifndef CKPT_MIGRATE_SELECT_H
#define CKPT_MIGRATE_SELECT_H
#include "migrate/migration.h"

/* Canonical names count as well as the file's own: nobody knows which number a parameter's state has. */
typedef struct ckpt__chosen {
    ckpt__canon *canon;
    ckpt__hash *listed;           /* own name -> tensor: a tie is listed under both */
    ckpt_str *names;              /* per tensor: canonical */
    ckpt__hash *replaced;         /* canonical names of replaced parameters, which keep their place in the optimizer; NULL: none */
} ckpt__chosen;

/* The tensor that the entry is listed as. */
size_t ckpt__chosen_listing(const ckpt__chosen *c, const ckpt__canon_entry *e);

/* replace.c: --replace. Marks what goes in m->dropped, and takes the optimizer's states of it out of the tree. */
ckpt_status ckpt__migrate_replace(ckpt__mover *m, ckpt__chosen *c, ckpt_error *err);
/* A value or dict of the tree goes with all that is below it: by whole names, or without the file in front. */
ckpt_status ckpt__migrate_cut_named(ckpt__mover *m, ckpt__hash *names, ckpt_error *err);
#endif
