/* migrate/megatron.h - a checkpoint of megatron-core (torch-dist): what the files that make one share. */
#ifndef CKPT_MIGRATE_MEGATRON_H
#define CKPT_MIGRATE_MEGATRON_H
#include "migrate/out.h"

/* stack.c: when all names are known, before the target is described: the layers of a model are one tensor for each of their parameters,
 * m->common_step is the step that all parameters have. A model that torch-dist could not hold is refused. */
ckpt_status ckpt__megatron_ready(ckpt__migration *m, ckpt_error *err);

/* to_megatron.c: the files of the directory, from m->root, which is the dict of a torch file, or the source's own where that is a torch-dist,
 * too; what cannot be written is "lost". */
ckpt_status ckpt__megatron_files(ckpt__out *w);

/* to_dcp.c: a file for each rank, and the list, of a root whose entries are records. */
ckpt_status ckpt__dcp_records_files(ckpt__out *w, const ckpt_value *root);
#endif
