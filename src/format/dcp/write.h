/* format/dcp/write.h - a distributed checkpoint of PyTorch that is written: a file of each rank, and the list of all records.
 *
 *   write.c         the items of a state dict, divided among the ranks
 *   write_record.c  a record: an archive of torch.save inside a rank's file
 *   write_list.c    the list (.metadata)
 *   write_shards.c  the model in safetensors instead, without a list
 *
 * A state dict is taken apart as torch/distributed/checkpoint/_traverse.py does it: dicts always, lists where one of their items is a
 * tensor, a dict, or a list that is taken apart. An empty dict has a record too, which torch passes over. A key is the path, joined
 * by dots. Each tensor is cut along its first dimension into
 * as many slabs as there are ranks, of ceil(rows / ranks) rows each as torch.chunk has it; the last ranks may have none. What has no
 * dimensions, or rows that are no whole bytes, is the first rank's, and so is every value that is no tensor. Loaders read any cut into
 * any other: torch/distributed/checkpoint/planner_helpers.py (create_read_items_for_chunk_list). */
#ifndef CKPT_DCP_WRITE_H
#define CKPT_DCP_WRITE_H
#include "format/format.h"

/* The request's root is the state dict. whole: a dict or list that holds no tensor has one record besides those of its values, as torch
 * 2.3 and before have it: a program that asks for it so takes it so (DefaultLoadPlanner). files[r] is the recipe of __<r>_0.distcp, which the caller frees in any case; NULL: the rank
 * has no record. Its tensors are RANGE segments. `list` is the text of .metadata. A tensor that is not dense, or on meta, is passed over:
 * whoever asks has said that it is lost. Errors: CKPT_E_UNSUPPORTED, a key twice; CKPT_E_LIMIT. */
ckpt_status ckpt__dcp_write(const ckpt__write_request *request, uint32_t ranks, bool whole, ckpt__recipe **files,
                            ckpt__buf *list, ckpt_error *err);

/* The same of a dict whose entries are records, each in one piece: megatron-core has them so. A tensor that has two keys has one
 * record. */
ckpt_status ckpt__dcp_write_records(const ckpt__write_request *request, uint32_t ranks, ckpt__recipe **files,
                                    ckpt__buf *list, ckpt_error *err);

/* The request's tensors under their names, in files of safetensors; files[r] is of rank r, as above. CKPT_E_UNSUPPORTED: a dtype. */
ckpt_status ckpt__dcp_write_shards(const ckpt__write_request *request, uint32_t ranks, ckpt__recipe **files,
                                   ckpt_error *err);

/* ---- between the files of the writer */

/* The slab of a tensor that a rank has: rows [*begin, *begin + *rows), or all of it (*rows -1). False: it has none. */
bool ckpt__dcp_slab(const ckpt_tensor_info *tensor, uint32_t ranks, uint32_t rank, int64_t *begin, int64_t *rows);
/* Rows of a slab but the last; 0: the tensor stays in one piece. */
int64_t ckpt__dcp_slab_rows(const ckpt_tensor_info *tensor, uint32_t ranks);

/* Where a record is. */
typedef struct ckpt__dcp_place {
    uint32_t file; /* number of the rank */
    uint64_t offset, length;
} ckpt__dcp_place;

/* One key of the state dict that is written. */
typedef struct ckpt__dcp_put {
    ckpt_str key;         /* in the arena, as `path` */
    const ckpt_key *path; /* what led there; a number is a place in a list */
    size_t path_count;
    const ckpt_value *value;
    size_t first, count; /* of its places: a tensor's are its slabs in order, and slab i has rows [i * rows, ...) */
    int64_t rows;        /* of each slab but the last; 0: it is in one piece */
    size_t same; /* the item that has the places, where the tensor has another key before; SIZE_MAX: it has its own */
} ckpt__dcp_put;

typedef struct ckpt__dcp_puts {
    ckpt__arena *arena; /* owned */
    ckpt__dcp_put *items;
    size_t count, capacity; /* heap, owned, as both */
    ckpt__dcp_place *places;
    size_t place_count, place_capacity;
    ckpt__hash *keys; /* owned: key -> number */
    const ckpt__index *index;
} ckpt__dcp_puts;

/* Puts records into a file, which has what it needs of them when this is freed. Both are borrowed. */
typedef struct ckpt__dcp_records ckpt__dcp_records;
ckpt__dcp_records *ckpt__dcp_records_new(const ckpt__write_request *request, ckpt__recipe *file); /* NULL: no memory */
void ckpt__dcp_records_free(ckpt__dcp_records *r);
/* The next record. rows: of a slab that begins at row `begin`; -1: the tensor in one piece. */
ckpt_status ckpt__dcp_record_tensor(ckpt__dcp_records *r, size_t tensor, int64_t begin, int64_t rows, ckpt_error *err);
ckpt_status ckpt__dcp_record_value(ckpt__dcp_records *r, const ckpt_value *value, ckpt_error *err);

ckpt_status ckpt__dcp_put_list(const ckpt__dcp_puts *puts, ckpt__buf *out, ckpt_error *err);
#endif
