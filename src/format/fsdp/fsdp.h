/* format/fsdp/fsdp.h - checkpoints of FSDP and tensor parallel with a pickled file of each rank, put together.
 *
 *   pytorch_model_fsdp_0_rank1.bin    accelerate without DCP: model 0, rank 1
 *   pytorch_model_fsdp_rank1.bin      the same, LOCAL_STATE_DICT: flat parameters
 *   optimizer_0_rank1.bin             its optimizer
 *   model_world_size_2_rank_1.pt      verl: the model; optim_..., extra_state_...
 *
 *   names.c   what a file is, by its name
 *   fsdp.c    the format: the files of a directory, and what is wrong with them
 *   boxes.c   placements of a DTensor -> the boxes that a rank has
 *   merge.c   the trees of all ranks -> one
 *   fill.c    the parts of all ranks -> tensors in pieces
 *
 * Each file is read by its own format, which notes what part of which tensor the rank has (format/shard.h). All rows of all files are
 * taken into the index; the tensors that are made of them stand behind those, and the others are left out in the end.
 * [accelerate/utils/fsdp_utils.py; verl/utils/checkpoint/fsdp_checkpoint_manager.py; torch/distributed/tensor/_utils.py] */
#ifndef CKPT_FSDP_H
#define CKPT_FSDP_H
#include "format/folder/folder.h"
#include "format/shard.h"
#include "model/trees.h"

typedef enum ckpt__fsdp_kind { CKPT__FSDP_MODEL, CKPT__FSDP_OPTIMIZER, CKPT__FSDP_EXTRA } ckpt__fsdp_kind;

/* "optimizer_1_rank3.bin" is {OPTIMIZER, number 1, rank 3, world 0}: how many ranks there are it does not say. */
typedef struct ckpt__fsdp_name {
    ckpt__fsdp_kind kind;
    int64_t number, rank, world;
} ckpt__fsdp_name;
bool ckpt__fsdp_name_of(const char *name, ckpt__fsdp_name *out);

/* The file of one rank. */
typedef struct ckpt__fsdp_file {
    const char *name; /* in the folder's arena */
    ckpt__fsdp_name is;
    bool there;                   /* it was read, and is of this checkpoint */
    const ckpt_value *root;       /* in the index's arena */
    size_t tensors, tensor_count; /* its rows: from this number on; so many */
    size_t storages;              /* its storages: from this number on */
    const ckpt__shard *shards;    /* the first of its tensors that are parts */
    int64_t world;                /* ranks, by what its tensors say; 0: they do not */
} ckpt__fsdp_file;

/* The files of one kind and number: those of all ranks, sorted by rank. */
typedef struct ckpt__fsdp_group {
    ckpt__fsdp_file *files;
    size_t count;
    char key[40]; /* in the root: "model", "optimizer_1" */
} ckpt__fsdp_group;

/* What one rank has of a tensor. */
typedef struct ckpt__fsdp_part {
    const ckpt__fsdp_file *file;
    const ckpt__shard *shard;
} ckpt__fsdp_part;

/* A tensor of all ranks: parts[first ...] of the reading. Or, where count is 0, row `like` as its file has it, but that it shares no
 * storage with another place. */
typedef struct ckpt__fsdp_tensor {
    size_t first, count;
    size_t like; /* number of the first rank's row, which has its shape, dtype and role */
} ckpt__fsdp_tensor;

/* A directory on its way into an index. */
typedef struct ckpt__fsdp {
    const ckpt__read_request *request; /* borrowed */
    const char *label;                 /* borrowed: the directory's, for messages */
    ckpt__index *index;
    ckpt__folder_reader reader; /* entries of the root, too */
    ckpt__fsdp_file *files;     /* heap, owned: sorted by kind, number and rank */
    size_t count, capacity;
    int64_t world;              /* ranks */
    const ckpt__shard **by_row; /* heap, owned: one a row of the files; NULL: it is no part */
    size_t row_count;
    bool any_part;          /* some file has one */
    ckpt__fsdp_part *parts; /* heap, owned */
    size_t part_count, part_capacity;
    ckpt__fsdp_tensor *tensors; /* heap, owned. A TENSOR value of row_count + i is tensors[i] until it is filled */
    size_t tensor_count, tensor_capacity;
    size_t differ; /* values that are not the same on all ranks */
    size_t slices; /* of them: parameters that are named, and lie in the flat parameters of the ranks */
} ckpt__fsdp;

ckpt_status ckpt__fsdp_no_memory(ckpt_error *err);
/* Something of `file` that is missing, damaged or of another checkpoint: the error, or a finding where reading goes on. */
ckpt_status ckpt__fsdp_lack(ckpt__fsdp *f, const char *file, ckpt_status status, const ckpt_error *why,
                            ckpt_error *err);

/* ---- merge.c */
/* The trees of a group's files as one, put into the root under its key; what differs between ranks goes to `own`, whose entries
 * [rank] are those of that rank. */
ckpt_status ckpt__fsdp_merge(ckpt__fsdp *f, const ckpt__fsdp_group *group, ckpt__entries *own, ckpt_error *err);

/* ---- fill.c */
/* The root is there: all tensors that it leads to become rows, with their names, and the rows of the files are left out. */
ckpt_status ckpt__fsdp_fill(ckpt__fsdp *f, ckpt_error *err);

/* ---- boxes.c */
/* Elements [lo, lo + count) of a dimension. */
typedef struct ckpt__fsdp_run {
    int64_t lo, count;
} ckpt__fsdp_run;
typedef struct ckpt__fsdp_runs {
    ckpt__fsdp_run *items; /* heap, owned */
    size_t count, capacity;
} ckpt__fsdp_runs;
/* Of each dimension the runs that the rank at `coordinate` has, one behind the other in its own tensor: ndim lists, empty at first,
 * freed by the caller. by_order: each dimension of the mesh cuts in the order that the strides tell, and in chunks; *known false:
 * they tell none. Errors: CKPT_E_FORMAT, CKPT_E_LIMIT, CKPT_E_NO_MEMORY, without an object. */
ckpt_status ckpt__fsdp_runs_of(const ckpt__shard *shard, const int64_t *coordinate, const int64_t *shape, uint32_t ndim,
                               bool by_order, ckpt__fsdp_runs *runs, bool *known, ckpt_error *err);
/* The order in which the mesh's dimensions cut, so that STRIDED ones are chunks too: a rank of 2 x 2 whose placements are
 * {STRIDED 0, split 2}, {SHARD 0} cuts by dimension 1 of the mesh first. False: there is none. */
bool ckpt__fsdp_order(const ckpt__shard *shard, uint32_t *order);
#endif
