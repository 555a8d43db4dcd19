/* format/shard.h - what the file of one rank says of a tensor that all ranks have together: FSDP2 and tensor parallel write a
 * DTensor, FSDP1 a ShardedTensor. The torch format notes it beside the tensor (index->shards), and a directory of such files puts the
 * tensors together (format/fsdp).
 *
 * A DTensor of shape 29 x 10 that is Shard(0) over a mesh of 2 ranks, in the file of rank 1: mesh {ndim 1, sizes {2}, coordinate
 * {1}}, placements {{SHARD, dim 0}}, and one local tensor of shape 14 x 10, which is rows 15 to 28. */
#ifndef CKPT_SHARD_H
#define CKPT_SHARD_H
#include "model/index.h"

enum { CKPT__MESH_MOST = 16 }; /* dimensions of a mesh */

typedef enum ckpt__cut_kind {
    CKPT__CUT_REPLICATE, /* each rank along the mesh's dimension has all of it */
    CKPT__CUT_SHARD,     /* chunks of ceil(size / ranks) */
    CKPT__CUT_STRIDED,   /* `split` chunks, each of them cut among the ranks: a rank has a part of each */
    CKPT__CUT_PARTIAL,   /* a part of a sum that was not made */
    CKPT__CUT_OTHER      /* not known */
} ckpt__cut_kind;

/* Along one dimension of the mesh. */
typedef struct ckpt__mesh_cut {
    ckpt__cut_kind cut;
    int64_t dim, split; /* of the tensor; split 1 where it is not STRIDED */
} ckpt__mesh_cut;

/* All in the arena of the index. */
typedef struct ckpt__mesh {
    const void *node; /* of the pickle, by which meshes are told apart; never followed */
    uint32_t ndim;
    int64_t sizes[CKPT__MESH_MOST];
    bool has_coordinate; /* of the rank that wrote the file */
    int64_t coordinate[CKPT__MESH_MOST];
    const int64_t *ranks;            /* those of the mesh in C order, or of the mesh that it is a part of */
    size_t rank_count;               /* 0: not told */
    int64_t rank;                    /* that wrote the file; -1: not told */
    int64_t world;                   /* one more than the highest rank; 0: not told */
    ckpt_str names[CKPT__MESH_MOST]; /* of its dimensions: "dp"; data NULL: it has none */
} ckpt__mesh;

/* What the rank itself has: a view of a storage. */
typedef struct ckpt__local {
    size_t storage; /* number in the index that was read from the file alone */
    ckpt_dtype dtype;
    uint32_t ndim;
    int64_t offset;                 /* elements */
    const int64_t *shape, *strides; /* ndim; in elements */
    const int64_t *lo;              /* ShardedTensor: where it begins in the tensor; NULL: the placements say it */
} ckpt__local;

typedef struct ckpt__shard {
    struct ckpt__shard *next;         /* of the next tensor of the index; NULL: this is the last */
    size_t tensor;                    /* number of the tensor in the index that was read from the file alone */
    const ckpt__mesh *mesh;           /* of a DTensor; NULL: a ShardedTensor */
    const ckpt__mesh_cut *placements; /* one a dimension of the mesh */
    const uint32_t *order;            /* dimensions of the mesh in the order in which they cut; NULL: as they stand */
    const ckpt__local *locals;
    size_t local_count;
    int64_t rank, world; /* of a ShardedTensor, as of a mesh */
    const char *why;     /* static: what it says is not understood, and it cannot be put together. NULL: it can */
} ckpt__shard;

#endif
