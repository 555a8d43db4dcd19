/* model/box.h - boxes of a tensor: where two meet, which boxes a range of bytes is, and a tree that finds those that meet one.
 *
 * A box is a corner `lo` and sizes `size`, n numbers each, in elements of the tensor. The box of the rows 2 and 3 of a tensor of
 * shape 8 x 4 is lo {2, 0}, size {2, 4}. A tensor of no dimensions has one box, with n 0. A box with a size of 0 (or below) is empty.
 * Where n is 0 the pointers may be NULL. */
#ifndef CKPT_BOX_H
#define CKPT_BOX_H
#include "base/base.h"

/* The most dimensions that a cut and a tree take. More are CKPT_E_LIMIT: nothing is allocated per cut or per question. */
enum { CKPT__BOX_MAX = 64 };

/* What both boxes have. False, and nothing is written, where that is nothing. An empty box meets nothing; n 0 always meets. lo and
 * size may be one of the arguments' own. No number overflows, whatever the boxes are. */
bool ckpt__box_meet(uint32_t n, const int64_t *a_lo, const int64_t *a_size, const int64_t *b_lo, const int64_t *b_size,
                    int64_t *lo, int64_t *size);
/* Elements of a box: false on a negative size or an overflow of int64 (of the sizes other than 0). */
bool ckpt__box_volume(uint32_t n, const int64_t *size, uint64_t *out);
/* Is the box inside of the shape: no lo and no size below 0, no end past the shape's? Safe on any numbers. */
bool ckpt__box_inside(uint32_t n, const int64_t *lo, const int64_t *size, const int64_t *shape);

/* Is the box, which is inside of the shape, a range of the tensor's elements in C order? Then its first, and how many. */
bool ckpt__box_range(uint32_t n, const int64_t *shape, const int64_t *lo, const int64_t *size, int64_t *begin,
                     int64_t *count);

/* Gets a box of elements. lo and size are valid during the call. A negative answer ends the walk, which returns it. */
typedef ckpt_status ckpt__box_fn(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err);

/* The elements of a view of which a byte lies in [begin, end). The view has the shape `shape`, and elements of `unit` bytes. Its first
 * element lies at byte 0, and neighbours along dimension i lie strides[i] bytes apart. begin and end may cut elements, and may lie
 * past the view.
 *   fn gets boxes that are not empty and do not meet: together they are those elements, each once. Where the strides nest (each
 * is at least what the dimensions of smaller strides span, as in C order with the dimensions in any order, or with padding) these
 * are at most 2n - 1 boxes, in ascending order of their bytes. A dimension of stride 0 is taken whole.
 *   Of a view of shape 3 x 4 in C order, unit 4, bytes [8, 40) are three boxes: row 0 from column 2 on, row 1, and the
 * columns 0 and 1 of row 2.
 *   Where strides do not nest the boxes may be as many as the elements. CKPT_E_LIMIT: that took more than 2^24 steps, or
 * the view reaches over 2^64 bytes or more; then fn may have had boxes already. The caller need not check the view. */
ckpt_status ckpt__box_cut_bytes(uint32_t n, const int64_t *shape, const uint64_t *strides, uint64_t unit,
                                uint64_t begin, uint64_t end, ckpt__box_fn *fn, void *ctx, ckpt_error *err);
/* The elements [begin, end) of a tensor in C order, as at most 2n - 1 boxes in ascending order. CKPT_E_LIMIT: the tensor has more
 * elements than int64 counts. */
ckpt_status ckpt__box_cut_flat(uint32_t n, const int64_t *shape, uint64_t begin, uint64_t end, ckpt__box_fn *fn,
                               void *ctx, ckpt_error *err);

/* A packed R-tree: which of many boxes meet one? It is sorted once, and has no pointers. It takes 4 + 1.07 n bytes a box: the
 * box's number, and a sixteenth of the bounding box of 16 (16 n bytes), of 256, and so on. While it is made it takes 8 + 8 n
 * bytes a box more. The boxes themselves stay where they are: the tree asks for them by number. Nothing in it changes after it is made,
 * so that many threads may ask at once. */
typedef struct ckpt__boxes ckpt__boxes;
typedef void ckpt__box_of(const void *ctx, size_t number, int64_t *lo, int64_t *size); /* fills n numbers each */
/* Boxes [0, count), count < 2^32; an empty one meets nothing. `of` and its ctx are borrowed as long as the tree lives. `of` must give
 * the same box each time. */
ckpt_status ckpt__boxes_new(uint32_t n, size_t count, ckpt__box_of *of, const void *ctx, ckpt__boxes **out,
                            ckpt_error *err);
void ckpt__boxes_free(ckpt__boxes *boxes);
/* Gets the number of a box that meets the one that was asked for, and what both have. A negative answer ends the walk, which
 * returns it. */
typedef ckpt_status ckpt__meet_fn(void *ctx, size_t number, const int64_t *lo, const int64_t *size, ckpt_error *err);
/* Gives each box that meets {lo, size}, in the order of ckpt__boxes_order. *work (may be NULL) grows by the boxes and bounding
 * boxes that were compared with it. */
ckpt_status ckpt__boxes_each(const ckpt__boxes *boxes, const int64_t *lo, const int64_t *size, ckpt__meet_fn *fn,
                             void *ctx, uint64_t *work, ckpt_error *err);
/* The numbers of all boxes, `count` of them, in the tree's order: neighbours lie side by side, empty boxes last. Another tree is asked
 * for boxes in this order quickest. Borrowed from the tree; NULL where count is 0. */
const uint32_t *ckpt__boxes_order(const ckpt__boxes *boxes);
#endif
