/* layout/mesh.h - ranks that stand in a mesh, and which part of a tensor each of them has. Pure: it reads nothing but its arguments.
 *
 * A mesh has axes with names and sizes, the slowest first: of {dp: 2, tp: 2} rank 1 is dp 0, tp 1, and rank 2 is dp 1, tp 0. A cut says
 * that the ranks along an axis have parts of one dimension of a tensor, side by side in the order of their coordinates. Cuts come in an
 * order: the first one cuts the tensor, and each later one what is left of it to the rank. Ranks that differ only along axes that do
 * not cut a tensor have the same of it: they are replicas.
 *
 * An example: w is 7 x 4, and is cut along its rows by tp, then by dp (FSDP2 over tensor parallel: DTensor's _StridedShard). tp leaves
 * rows 0 to 3 and 4 to 6, and dp halves of these: ranks 0, 1, 2, 3 have rows 0-1, 4-5, 2-3 and 6. */
#ifndef CKPT_LAYOUT_MESH_H
#define CKPT_LAYOUT_MESH_H
#include "base/base.h"

enum {
    CKPT__MESH_AXES = 8,
    CKPT__MESH_RANKS = 1 << 16, /* at most */
    CKPT__PART_BOXES = 1 << 16  /* of one tensor that one rank has, at most */
};

typedef struct ckpt__rank_axis {
    ckpt_str name; /* borrowed */
    int64_t size;  /* 1 or more */
} ckpt__rank_axis;

typedef struct ckpt__rank_mesh {
    size_t count;
    ckpt__rank_axis axes[CKPT__MESH_AXES];
} ckpt__rank_mesh;

/* "dp=2,tp=2". The names are parts of `text`. CKPT_E_ARGUMENT; the message has no object. */
ckpt_status ckpt__rank_mesh_parse(ckpt_str text, ckpt__rank_mesh *out, ckpt_error *err);
/* CKPT_E_ARGUMENT, CKPT_E_LIMIT: no axis, too many, a name twice, a size below 1, too many ranks in all. */
ckpt_status ckpt__rank_mesh_check(const ckpt__rank_mesh *mesh, ckpt_error *err);
/* Of a mesh that was checked, as below. */
uint32_t ckpt__rank_mesh_world(const ckpt__rank_mesh *mesh);
/* The number of an axis; mesh->count: there is none of that name. */
size_t ckpt__rank_mesh_axis(const ckpt__rank_mesh *mesh, ckpt_str name);
/* One number an axis. */
void ckpt__rank_mesh_coordinates(const ckpt__rank_mesh *mesh, uint32_t rank, int64_t *out);
uint32_t ckpt__rank_mesh_rank(const ckpt__rank_mesh *mesh, const int64_t *coordinates);
/* "dp=2, tp=2", for messages. */
void ckpt__rank_mesh_text(const ckpt__rank_mesh *mesh, char *out, size_t size);

/* How n elements are cut in m parts. */
typedef enum ckpt__rank_cut_as {
    CKPT__CUT_AS_CEIL,     /* ceil(n / m) each, as torch.chunk and DTensor do: of 9 in 4 it is 3, 3, 3, 0 */
    CKPT__CUT_AS_EVEN,     /* n / m each; n is a multiple of m, or it is an error */
    CKPT__CUT_AS_BALANCED, /* the first n % m have one more: 3, 2, 2, 2 */
    CKPT__CUT_AS_WIDTHS    /* as many as is said for each */
} ckpt__rank_cut_as;

/* Borrowed, all of it. */
typedef struct ckpt__rank_cut {
    size_t axis; /* number in the mesh; no two cuts of a tensor have the same */
    uint32_t dim;
    ckpt__rank_cut_as as;
    const int64_t *widths; /* AS_WIDTHS: one a coordinate; their sum is what is cut */
    /* The dimension, as it is before this cut, is made of segments, each of which is cut by itself: queries, keys and values in one tensor.
     * `groups` times in turn, one of each size. segment_count 0: it is cut as one. */
    const int64_t *segments;
    size_t segment_count;
    int64_t groups; /* 1 or more, where there are segments */
} ckpt__rank_cut;

/* One box of a tensor that a rank has. In the arena; ndim numbers each. It is not empty. */
typedef struct ckpt__rank_box {
    const int64_t *lo, *size; /* in the tensor */
    const int64_t
        *at; /* where the box begins in the rank's own tensor, which has its boxes side by side in their order */
} ckpt__rank_box;

typedef struct ckpt__rank_part {
    int64_t *shape; /* of the rank's own tensor, in the arena; of one that has nothing a size is 0 */
    int64_t *lo;    /* where it begins in the tensor, along each dimension; where a size is 0, the tensor's end */
    ckpt__rank_box *boxes;
    size_t count; /* 0: it has no element of it. 1, unless segments are cut */
    bool first;   /* is it the first of its replicas: at 0 along each axis that does not cut the tensor? */
} ckpt__rank_part;

/* What a rank has of a tensor: *out, in the arena. The boxes of all ranks that are first cover the tensor, each element once.
 * CKPT_E_MISMATCH: a dimension that it has not, an axis twice, what is cut evenly and is no multiple, widths or segments that come to
 * something else; the message begins with the axis, and has no object. CKPT_E_LIMIT: too many boxes. */
ckpt_status ckpt__rank_part_of(const ckpt__rank_mesh *mesh, const ckpt__rank_cut *cuts, size_t count, uint32_t ndim,
                               const int64_t *shape, uint32_t rank, ckpt__arena *arena, ckpt__rank_part *out,
                               ckpt_error *err);
#endif
