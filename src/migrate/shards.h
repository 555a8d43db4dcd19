/* migrate/shards.h - --shard: tensors of which each rank of a run has so many rows, joined and cut. */
#ifndef CKPT_MIGRATE_SHARDS_H
#define CKPT_MIGRATE_SHARDS_H
#include "migrate/migration.h"

/* The rank before a name ("rank-00003.weight"), and the name behind it; -1: there is none. */
int64_t ckpt__shard_rank(ckpt_str name, ckpt_str *stem);
/* The first of the globs that the tensor's parameter, or itself, matches; `count`: none. Names are without their ranks. */
size_t ckpt__shard_glob(const ckpt_migrate_options *o, const ckpt_tensor_info *t);
/* Is it cut: as its parameter is? `param`: the parameter's, NULL where it is one itself, or there is none. */
bool ckpt__shard_is_cut(const ckpt_tensor_info *t, const ckpt_tensor_info *param);
/* The first of n rows that rank `rank` of `ranks` has: rows [n * r / ranks, n * (r + 1) / ranks). */
int64_t ckpt__shard_row(int64_t n, int64_t ranks, int64_t rank);

/* The parts of `ranks` ranks whose names match become whole tensors, with a piece of each rank. Call it before anybody has numbers of
 * the index. *matched: one a glob, set where it named a part. CKPT_E_MISMATCH: the parts are none of one tensor. */
ckpt_status ckpt__shards_join(ckpt__index *x, const char *label, size_t ranks, const ckpt_migrate_options *o,
                              bool *matched, ckpt_error *err);
/* The source, as soon as it is open. */
ckpt_status ckpt__migrate_join(ckpt__migration *m, ckpt_error *err);
#endif
