/* migrate/to_canonical.h - the value tree of a checkpoint in another format: canonical names as nested dicts, and all that
 * stands outside of model, optimizer and scaler at its own place. */
#ifndef CKPT_MIGRATE_TREE_H
#define CKPT_MIGRATE_TREE_H
#include "migrate/migration.h"

/* The tree of a torch file under canonical names: {"step": .., "scaler": {..}, "optimizer": {"groups": {..}}, and the
 * root's other entries as they are}. New nodes come from `arena`, the others are the source's own. A key of the source
 * that is in the way of a canonical one is a "lost" finding. edits: what the canonical entries' values have become. mark: with
 * the list CKPT__OUTSIDE_KEY (format/native/native.h). *out NULL: there is nothing. */
ckpt_status ckpt__migrate_tree(const ckpt__index *index, const ckpt__canon *canon, const ckpt__edits *edits, bool mark,
                               ckpt__arena *arena, ckpt_report *lost, const ckpt_value **out, ckpt_error *err);
/* leftovers.c: the root's entries without what has canonical names; a dict that held nothing else goes too.
 * keep_step: the step stays under the source's own name as well, by which the source's program finds it again. */
/* The dicts of the tree without those tensors; one that held nothing else goes. named: one a tensor. *out NULL: nothing is left. */
bool ckpt__values_without(const ckpt_value *root, const bool *named, size_t tensor_count, ckpt__arena *a,
                          const ckpt_value **out);
ckpt_status ckpt__migrate_rest(const ckpt__index *index, const ckpt__canon *canon, bool keep_step, ckpt__arena *arena,
                               const ckpt_value **out, ckpt_error *err);
/* The names of the group's parameters, as a list. NULL: no memory. */
const ckpt_value *ckpt__migrate_names_of(ckpt__arena *arena, const ckpt__canon_group *group);
/* The groups' flags of m->root (optimizer.groups.<g>.fused, capturable, foreach) become what m->kind is. */
ckpt_status ckpt__migrate_flags(ckpt__migration *m, ckpt_error *err);
#endif
