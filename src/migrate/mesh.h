/* migrate/mesh.h - the ranks that a distributed checkpoint is written for, and how its tensors are cut for them: --world, which cuts the
 * rows of each; or a mesh, by --mesh, --cut and what a layout says of the target's ranks (layout/ranks.h).
 *
 * Of a mesh, the parameters are cut by the first rule that has their name: those of --cut, then those of the layout. What an optimizer
 * has of a parameter, of its shape, is cut as the parameter. All else lies in one piece. */
#ifndef CKPT_MIGRATE_MESH_H
#define CKPT_MIGRATE_MESH_H
#include "format/dcp/write.h"
#include "layout/mesh.h"
#include "migrate/migration.h"

/* The cuts of those parameters of which it is the first rule; without them of all that no rule has. */
typedef struct ckpt__mesh_rule {
    const char *glob; /* of --cut, in the arena; NULL: it is the layout's entry */
    size_t shard;     /* its number there */
    const ckpt__rank_cut *cuts;
    size_t count;
    unsigned named; /* of --cut: a bit for each axis that it names */
    size_t used;    /* tensors that it is the first of */
} ckpt__mesh_rule;

/* What is known of the ranks. In the migration, owned; NULL until something asks. */
typedef struct ckpt__meshed {
    ckpt__arena *arena; /* owned: all below */
    ckpt__rank_mesh mesh;
    bool is_mesh;                    /* else --world: the rows of every tensor, cut for so many */
    const ckpt__mesh_rule **rule_of; /* one a tensor of the target's index; NULL: it is in one piece */
    size_t tensor_count;             /* of those; what was made later has none */
    ckpt__mesh_rule *rules, none;    /* none: of parameters that no rule has */
    size_t rule_count;
    ckpt__hash *kinds;                  /* owned: cuts and shape -> number */
    const ckpt__dcp_cut **cuts, **kind; /* heap, owned: one a tensor; one a kind */
    size_t kind_count, kind_capacity;
    ckpt__dcp_ranks ranks; /* count 0: not made yet */
} ckpt__meshed;
void ckpt__meshed_free(ckpt__meshed *meshed);

/* ---- mesh.c */
/* Before the source is read: can the target be cut for a mesh? */
ckpt_status ckpt__mesh_ask(const ckpt__migration *m, ckpt_error *err);
/* Once there is the target's index, and canonical names are known: which rule has which tensor. */
ckpt_status ckpt__mesh_rules(ckpt__migration *m, ckpt_error *err);

/* ---- mesh_cuts.c */
/* Of the target's index as it is written: who has what of each tensor. What it gives lives as long as the migration. */
ckpt_status ckpt__mesh_ranks(ckpt__migration *m, const ckpt__dcp_ranks **out, ckpt_error *err);
#endif
