/* base/strided.h - the contiguous runs of a strided view, in C order of its elements. */
#ifndef CKPT_STRIDED_H
#define CKPT_STRIDED_H
#include "base/base.h"

/* Sizes of 1 are dropped and neighbours that continue each other merged, so what is left has at most 63 dimensions: each
 * doubles the number of elements at least. */
enum { CKPT__STRIDED_MAX = 64 };

typedef struct ckpt__strided {
    uint32_t ndim;
    uint64_t shape[CKPT__STRIDED_MAX], stride[CKPT__STRIDED_MAX];   /* strides in bytes */
    uint64_t index[CKPT__STRIDED_MAX];
    uint64_t run;                 /* bytes of each contiguous run */
    uint64_t offset;              /* of the next run, from the first element, in bytes */
    uint64_t left;                /* runs that are left */
    uint64_t partial;             /* bytes of the current run already taken */
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
