/* format/dcp/write.h - a distributed checkpoint of PyTorch that is written: a file of each rank, and the list of all records.
 *
 *   write.c         the items of a state dict, divided among the ranks
 *   write_share.c   which rank writes what several ranks have
 *   write_record.c  a record: an archive of torch.save inside a rank's file
 *   write_list.c    the list (.metadata)
 *   write_shards.c  the model in safetensors instead, without a list
 *
 * A state dict is taken apart as torch/distributed/checkpoint/_traverse.py does it: dicts always, lists where one of their items is a
 * tensor, a dict, or a list that is taken apart. An empty dict has a record too, which torch passes over. A key is the path, joined
 * by dots. The caller says how each tensor is cut. Loaders read any cut into any other:
 * torch/distributed/checkpoint/planner_helpers.py (create_read_items_for_chunk_list). */
#ifndef CKPT_DCP_WRITE_H
#define CKPT_DCP_WRITE_H
#include "format/format.h"

/* The boxes in which a tensor lies in the files, and whose they are: one for all tensors that are cut alike. An example: 7 x 4 elements, of
 * which ranks 0 and 1 of 4 have rows 0 to 3 and ranks 2 and 3 rows 4 to 6: count 2, boxes {0, 0, 4, 4, 4, 0, 3, 4}, begin {0, 16, 28},
 * holders {0, 1, 2, 3}, first_holder {0, 2, 4}, held {0, 0, 1, 1}, first_held {0, 1, 2, 3, 4}. */
typedef struct ckpt__dcp_cut {
    uint32_t ndim;
    size_t count;         /* boxes, ascending by where they begin. They do not meet, and together they are the tensor */
    const int64_t *boxes; /* of each lo[ndim], size[ndim]. An empty one has no record */
    const uint64_t *begin; /* elements of all boxes before; one number more than there are boxes */
    const uint32_t *
        holders; /* the ranks that have box k, ascending: holders[first_holder[k]] to holders[first_holder[k + 1] - 1] */
    const size_t *first_holder;
    const uint32_t *held; /* the boxes of rank r, likewise */
    const size_t *first_held;
    bool ranges; /* each box is a range of the tensor's elements in C order: one behind the other they are the tensor */
} ckpt__dcp_cut;

static inline const int64_t *ckpt__dcp_box_lo(const ckpt__dcp_cut *cut, size_t k)
{
    return cut->boxes + 2 * k * cut->ndim;
}
static inline const int64_t *ckpt__dcp_box_size(const ckpt__dcp_cut *cut, size_t k)
{
    return ckpt__dcp_box_lo(cut, k) + cut->ndim;
}
static inline bool ckpt__dcp_box_is_empty(const ckpt__dcp_cut *cut, size_t k)
{
    return cut->begin[k] == cut->begin[k + 1];
}

/* Who writes. Borrowed. */
typedef struct ckpt__dcp_ranks {
    uint32_t count; /* 1 or more */
    const ckpt__dcp_cut *const
        *cuts;        /* by a tensor's number in the request's index. NULL: it is in one piece, which all ranks have */
    size_t cut_count; /* of tensors from there on, likewise */
    /* Where several ranks have the same, the one with the fewest bytes so far writes it, as torch has it (_dedup_save_plans.py). False: the
     * first of them does. */
    bool spread;
} ckpt__dcp_ranks;

static inline const ckpt__dcp_cut *ckpt__dcp_cut_of(const ckpt__dcp_ranks *ranks, size_t tensor)
{
    return tensor < ranks->cut_count ? ranks->cuts[tensor] : NULL;
}

/* The request's root is the state dict. whole: a dict or list that holds no tensor has one record besides those of its values, as torch
 * 2.3 and before have it: a program that asks for it so takes it so (DefaultLoadPlanner). files[r] is the recipe of __<r>_0.distcp,
 * which the caller frees in any case; NULL: the rank has no record. Its tensors are RANGE segments, of a payload that has the boxes of
 * a tensor one behind the other, each in C order. `list` is the text of .metadata. A tensor that is not dense, or on meta, is passed
 * over: whoever asks has said that it is lost. Errors: CKPT_E_UNSUPPORTED, a key twice; CKPT_E_LIMIT. */
ckpt_status ckpt__dcp_write(const ckpt__write_request *request, const ckpt__dcp_ranks *ranks, bool whole,
                            ckpt__recipe **files, ckpt__buf *list, ckpt_error *err);

/* The same of a dict whose entries are records, each in one piece: megatron-core has them so. A tensor that has two keys has one
 * record. */
ckpt_status ckpt__dcp_write_records(const ckpt__write_request *request, const ckpt__dcp_ranks *ranks,
                                    ckpt__recipe **files, ckpt__buf *list, ckpt_error *err);

/* The request's tensors under their names, in files of safetensors; files[r] is of rank r, as above. CKPT_E_UNSUPPORTED: a dtype; a rank
 * that has two boxes of a tensor, of which a file names one. */
ckpt_status ckpt__dcp_write_shards(const ckpt__write_request *request, const ckpt__dcp_ranks *ranks,
                                   ckpt__recipe **files, ckpt_error *err);

/* ---- between the files of the writer */

/* write_share.c: one thing that is written. */
typedef struct ckpt__dcp_share {
    const ckpt__dcp_cut *cut; /* NULL: it is in one piece, and all ranks have it */
    uint64_t nbytes;          /* of a tensor, the whole of it; 0: it is a value */
    uint32_t *writers;        /* the rank that writes box k; of one piece, the first number */
} ckpt__dcp_share;
/* Fills the writers. The shares come in the order of the state dict. False: no memory. */
bool ckpt__dcp_assign(const ckpt__dcp_ranks *ranks, const ckpt__dcp_share *shares, size_t count);

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
    const ckpt__dcp_cut *cut; /* of a tensor; NULL: it is in one piece */
    size_t first, count;      /* of its places: a tensor's are its boxes in their order */
    size_t same; /* the item that has the places, where the tensor has another key before; SIZE_MAX: it has its own */
} ckpt__dcp_put;

typedef struct ckpt__dcp_puts {
    ckpt__arena *arena; /* owned */
    ckpt__dcp_put *items;
    size_t count, capacity;  /* heap, owned, as the places */
    ckpt__dcp_place *places; /* of an empty box with length 0 */
    size_t place_count;
    ckpt__hash *keys; /* owned: key -> number */
    const ckpt__index *index;
} ckpt__dcp_puts;

/* Puts records into a file, which has what it needs of them when this is freed. Both are borrowed. */
typedef struct ckpt__dcp_records ckpt__dcp_records;
ckpt__dcp_records *ckpt__dcp_records_new(const ckpt__write_request *request, ckpt__recipe *file); /* NULL: no memory */
void ckpt__dcp_records_free(ckpt__dcp_records *r);
/* The next record: box `box` of the cut, or, where that is NULL, all of the tensor. */
ckpt_status ckpt__dcp_record_tensor(ckpt__dcp_records *r, size_t tensor, const ckpt__dcp_cut *cut, size_t box,
                                    ckpt_error *err);
ckpt_status ckpt__dcp_record_value(ckpt__dcp_records *r, const ckpt_value *value, ckpt_error *err);

ckpt_status ckpt__dcp_put_list(const ckpt__dcp_puts *puts, ckpt__buf *out, ckpt_error *err);
#endif
