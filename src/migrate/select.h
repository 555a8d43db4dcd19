/* migrate/select.h - names while it is chosen which tensors go along. */
#ifndef CKPT_MIGRATE_SELECT_H
#define CKPT_MIGRATE_SELECT_H
#include "migrate/migration.h"

typedef struct ckpt__chosen {
    ckpt__hash *listed; /* owned: own name -> tensor: a tie is listed under both */
    ckpt__hash *
        replaced; /* owned: canonical names of replaced parameters, which keep their place in the optimizer; NULL: none */
} ckpt__chosen;

/* optimizer_out.c: --no-optimizer. Before the names are found: it marks what goes, and takes it out of the tree. */
ckpt_status ckpt__migrate_no_optimizer(ckpt__migration *m, ckpt_error *err);
/* replace.c: --replace. Marks what goes in m->dropped, and takes the optimizer's states of it out of the tree. */
ckpt_status ckpt__migrate_replace(ckpt__migration *m, ckpt__chosen *c, ckpt_error *err);
/* A value or dict of the tree goes with all that is below it: by whole names, or without the file in front. */
ckpt_status ckpt__migrate_cut_named(ckpt__migration *m, ckpt__hash *names, ckpt_error *err);
#endif
