/* migrate/torch.h - the structure of torch files on the way through other formats, and made up where there is none.
 *
 * A torch file has one: nested dicts with an order, integer keys, attributes (_metadata), shared and self-containing
 * parts, opaque objects, tensors of all kinds of rebuild calls. A native file has canonical names. So that a way there
 * and back ends where it began, a native file that is made from a torch file keeps that structure as a pickle whose
 * storages are its records (format/torch/kept.c), in the entry "ckpt.torch" of its root. Restore does not see it. */
#ifndef CKPT_MIGRATE_TORCH_H
#define CKPT_MIGRATE_TORCH_H
#include "migrate/migration.h"
#include "format/format.h"

/* Right after the source was opened. For a torch target a native file that keeps a torch structure is made to look as if
 * it were that torch file: m->from gets its tree, its names and its format. So it is for a native target where names, values
 * or devices change, if the names that it has come out of it again; else the entry is taken out of the root, with the note
 * "structure-dropped". */
ckpt_status ckpt__migrate_torch_open(ckpt__migration *m, ckpt_error *err);

/* Is the source's tree a dict from the names of files to what they hold? */
bool ckpt__migrate_in_files(const ckpt__migration *m);

/* Does the target, a native file, keep such a structure, made from the source's tree? */
bool ckpt__migrate_torch_keeps(const ckpt__migration *m);

/* For a native target, of a source with a tree of torch's: the entry for the root, NULL where there is none to keep. To
 * be asked for when all edits of the tree are done, and before references to tensors are taken out of it. attach puts it
 * into m->root. */
ckpt_status ckpt__migrate_torch_keep(ckpt__migration *m, const ckpt_value **kept, ckpt_error *err);
ckpt_status ckpt__migrate_torch_attach(ckpt__migration *m, const ckpt_value *kept, ckpt_error *err);

/* A note ("view") about tensors that a native file holds as views of a storage, where plain safetensors had their values
 * under their names. */
ckpt_status ckpt__migrate_torch_views(ckpt__migration *m, const ckpt__recipe *recipe, ckpt_error *err);

/* For a torch target, of a native source without such a structure (a trainer's own save, a step of a run):
 * {'model': OrderedDict, 'optimizer': {'state': {0: {...}}, 'param_groups': [...]}, 'scaler': ..., 'step': ..., ...}. Ids
 * of parameters are in the order of the groups, as torch gives them out. */
ckpt_status ckpt__migrate_torch_build(ckpt__migration *m, const ckpt_value **root, ckpt_error *err);

/* groups.c: before that, and before names change. Moments that no group holds get one ("group-made"), one step for all
 * becomes one a parameter; what torch could not have is "lost". */
/* Does each of these groups have the setting, and the same? "params", "param_names" and "step" are none. (groups.c) */
bool ckpt__migrate_is_shared(const ckpt_value *groups, ckpt_str setting);
/* The groups of the source that name no parameters, as Megatron's common.pt has them, of all its optimizers in one list of the arena. *out
 * NULL: there are none. (groups.c) */
ckpt_status ckpt__migrate_nameless_groups(const ckpt__migration *m, ckpt__arena *a, const ckpt_value **out,
                                          ckpt_error *err);
ckpt_status ckpt__migrate_groups(ckpt__migration *m, ckpt_error *err);

/* The name of the archive inside a file of that name, as torch gives it: the last part without its last suffix. NULL: it
 * has none. */
const char *ckpt__migrate_torch_archive(const ckpt__migration *m);
#endif
