/* engine/window.h - a view whose elements do not lie in order, gathered box by box of its elements.
 *
 * A window is a box of the view: some indexes of one dimension and all of those behind it, so that its elements follow
 * each other in C order. From a file, its bytes are read in pieces as long as they come (neighbours with a small hole
 * between them in one), many of them at a time into a small scratch, from which the elements go to their places: a
 * transposed matrix is so turned in tiles that stay in the cache. From a coded extent, which can only be read from its
 * first byte on, it is read once for each window, and each block of it gives the elements that begin in it. */
#ifndef CKPT_WINDOW_H
#define CKPT_WINDOW_H
#include "engine/decode.h"
#include "base/strided.h"
#include "engine/move.h"

enum { CKPT__WINDOW_DIMS = CKPT__STRIDED_MAX + 1 };

/* The windows of one view. A transposed float32 matrix of shape 4 x 3 with strides {1, 4} has ndim 2, shape {4, 3} and stride
 * {4, 16}. With room for 24 bytes a window is 2 rows of 3 elements: split 0, step 2, and there are two windows, with lo {0, 0}
 * and {2, 0}. */
typedef struct ckpt__windows {
    uint32_t ndim;
    uint64_t shape[CKPT__WINDOW_DIMS], stride[CKPT__WINDOW_DIMS]; /* sizes; bytes in the storage; C order of the
                                                                     * elements */
    size_t size;                                                  /* bytes of an element */
    uint64_t begin; /* of the view's first element in the storage, in bytes */
    uint32_t split; /* the dimension that windows cut, and how many indexes of it they have */
    uint64_t step;
    uint64_t lo[CKPT__WINDOW_DIMS]; /* the next window's first index */
    bool ended;                     /* the last window was given, or the view is empty */
    unsigned char *scratch;         /* heap, owned: CKPT__SCRATCH bytes, made when first used; NULL before */
} ckpt__windows;

enum { CKPT__SCRATCH = 1 << 20 };

/* it: the view, fresh from ckpt__strided_init; room: bytes of a window at most (at least an element). */
void ckpt__windows_init(ckpt__windows *w, const ckpt__strided *it, size_t size, uint64_t begin, uint64_t room);
void ckpt__windows_free(ckpt__windows *w);
/* Bytes of the largest window. */
uint64_t ckpt__windows_room(const ckpt__windows *w);
/* Gathers the next window into `to`; *n is 0 at the end. */
ckpt_status ckpt__windows_next(ckpt__windows *w, const ckpt__source *source, const ckpt__extent *e, void *to, size_t *n,
                               const char *what, ckpt_error *err);
/* Gathers one box of elements of `size` bytes, whose first is at byte `begin` of the storage, to the places that the box says: `to` is
 * that of its first element. scratch: CKPT__SCRATCH bytes. */
ckpt_status ckpt__gather(const ckpt__source *source, const ckpt__extent *e, const ckpt__copy_box *box, uint64_t begin,
                         size_t size, void *to, unsigned char *scratch, const char *what, ckpt_error *err);
#endif
