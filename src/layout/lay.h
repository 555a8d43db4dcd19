/* layout/lay.h - a tensor as views of storages, and the views that it becomes when it is turned, cut, joined or padded. No byte is
 * read: each function makes other pieces of the pieces that it is given. A piece is a box of the tensor and a view of one storage.
 *
 * An example: w is 4 x 3, whole in storage 7, so it has the piece lo {0, 0}, size {4, 3}, stride {3, 1}, at 0. Turned it is 3 x 4, with
 * the piece lo {0, 0}, size {3, 4}, stride {1, 3}, at 0. That, with both dimensions merged to 12, is 3 pieces: lo {0}, {4} and {8}, of
 * size {4}, stride {3}, and at 0, 4 and 8 bytes where an element has 4 bytes: no stride leads from one row to the next. */
#ifndef CKPT_LAY_H
#define CKPT_LAY_H
#include "base/base.h"

enum {
    CKPT__LAY_PIECES = 1 << 20, /* of one tensor at most: more are CKPT_E_LIMIT */
    CKPT__LAY_DIMS = 32         /* dimensions on the way, at most */
};

typedef struct ckpt__lay_piece {
    int64_t *lo, *size, *stride; /* one a dimension, in the arena; strides in elements, 0 or more */
    uint64_t at;                 /* of the first element in the storage, in bytes */
    uint32_t storage;
} ckpt__lay_piece;

/* In the arena. Pieces are not empty; they do not meet, and cover the tensor where those of the first tensor did. */
typedef struct ckpt__lay {
    uint32_t ndim;
    unsigned unit; /* bytes of an element */
    int64_t *shape;
    ckpt__lay_piece *pieces;
    size_t count;
} ckpt__lay;

/* Each makes *out of `in`, which stays as it is; *out may be `in` itself. CKPT_E_MISMATCH: the shape does not admit it; the message has
 * no object. CKPT_E_LIMIT: too many pieces or dimensions. */
ckpt_status ckpt__lay_permute(ckpt__arena *a, const ckpt__lay *in, const uint32_t *order, ckpt__lay *out,
                              ckpt_error *err);
/* Dimension `dim` becomes `count` dimensions of these sizes. */
ckpt_status ckpt__lay_split(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, const int64_t *sizes, size_t count,
                            ckpt__lay *out, ckpt_error *err);
/* `count` dimensions from `dim` on become one. */
ckpt_status ckpt__lay_merge(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, size_t count, ckpt__lay *out,
                            ckpt_error *err);
ckpt_status ckpt__lay_slice(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, int64_t lo, int64_t size, ckpt__lay *out,
                            ckpt_error *err);
/* Side by side along `dim`: the other sizes are to be the same. */
ckpt_status ckpt__lay_join(ckpt__arena *a, const ckpt__lay *in, size_t count, uint32_t dim, ckpt__lay *out,
                           ckpt_error *err);
/* Dimension `dim` ends at `to`; what is new is the element at byte `at` of `storage`, again and again. */
ckpt_status ckpt__lay_pad(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, int64_t to, uint32_t storage, uint64_t at,
                          ckpt__lay *out, ckpt_error *err);
/* A dimension of size 1 comes, or goes. */
ckpt_status ckpt__lay_insert(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, ckpt__lay *out, ckpt_error *err);
ckpt_status ckpt__lay_remove(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, ckpt__lay *out, ckpt_error *err);
#endif
