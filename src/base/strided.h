/* base/strided.h - the contiguous runs of a strided view, in C order of its elements. */
#ifndef CKPT_STRIDED_H
#define CKPT_STRIDED_H
#include "base/base.h"

/* Sizes of 1 are dropped and neighbours that continue each other merged, so what is left has at most 63 dimensions: each
 * doubles the number of elements at least. */
enum { CKPT__STRIDED_MAX = 64 };

/* A walk over a view, run by run. All numbers are bytes but for the sizes and indices of the outer dimensions.
 *
 * A float32 view of shape 2 x 3 x 4 with strides {24, 4, 1} (the first 3 of 6 rows in each of two blocks): the rows of a block
 * continue each other, so the dimensions of 3 and 4 become one of 12 elements, which is the run. What is left is ndim 1,
 * shape {2}, stride {96}, run 48, left 2: the runs are the bytes 0..47 and 96..143. The transposed view of shape 4 x 3 with
 * strides {1, 4} has no such neighbours: ndim 2, shape {4, 3}, stride {4, 16}, run 4, left 12. */
typedef struct ckpt__strided {
    uint32_t ndim; /* outer dimensions: those that no run covers; 0: the view is contiguous */
    uint64_t shape[CKPT__STRIDED_MAX], stride[CKPT__STRIDED_MAX]; /* of them: sizes; bytes from one index to the next */
    uint64_t index[CKPT__STRIDED_MAX];                            /* of the next run */
    uint64_t run;                                                 /* bytes of each contiguous run */
    uint64_t offset;                                              /* of the next run, from the first element */
    uint64_t left;    /* runs that are left, the current one included; 0: the end, or an empty view */
    uint64_t partial; /* bytes of the current run that were given out already */
} ckpt__strided;

/* strides in elements, all >= 0, of a view that was checked (ckpt__view_extent); size: bytes of an element. */
void ckpt__strided_init(ckpt__strided *it, const int64_t *shape, const int64_t *strides, uint32_t ndim, size_t size);
/* The next piece of at most `most` bytes: its offset and length. False at the end. Pieces never cross a run. */
bool ckpt__strided_next(ckpt__strided *it, uint64_t most, uint64_t *offset, uint64_t *n);
static inline bool ckpt__strided_is_contiguous(const ckpt__strided *it)
{
    return it->ndim == 0;
}
/* Host memory: the next n bytes of the view from or to dense bytes. n must not pass the end. */
void ckpt__strided_gather(ckpt__strided *it, const void *base, void *dst, size_t n);
void ckpt__strided_scatter(ckpt__strided *it, void *base, const void *src, size_t n);
/* Reverses each `unit` bytes in place. */
void ckpt__swap_bytes(void *data, size_t n, uint32_t unit);
#endif
