/* engine/move.h - the kernel: moves the elements of one box from one place in host memory to another. It gathers, scatters and
 * turns them, swaps their bytes, flips their signs, and converts them. */
#ifndef CKPT_MOVE_H
#define CKPT_MOVE_H
#include "base/strided.h"
#include "model/index.h"

/* What happens to each element: from_swap, then flip or negate, then the conversion, then to_swap. A swap reverses units of so many
 * bytes, which divide the element: those of a source, and of a target, that is big-endian. An op exists apart from the boxes because
 * a checkpoint has few distinct ones, however many tensors. Made by ckpt__op_make; it owns nothing.
 *   A conjugated view of big-endian complex64 that is written little-endian: from and to C64, both sizes 8, granule 1, from_swap 4,
 * to_swap 1, flips, flip {0, 0, 0, 0, 0, 0, 0, 0x80}. That is the sign of the imaginary part of the little-endian element.
 *   Of a dtype below a byte a box counts granules: the fewest elements that fill whole bytes. F4 has 2 in 1 byte, F6 4 in 3. */
typedef struct ckpt__op {
    ckpt_dtype from, to;         /* equal: nothing is converted */
    uint32_t from_size, to_size; /* bytes of an element; of a granule */
    uint32_t granule;            /* elements of a granule; 1: of a byte or more */
    uint8_t from_swap, to_swap;  /* bytes; 1: none */
    bool flips;                  /* flip means something */
    uint8_t negate;              /* bytes of an integer whose two's complement is taken; 0: none */
    unsigned char flip[16];      /* XORed into the little-endian element, from_size bytes of it */
    bool exact;                  /* an element that `to` does not hold exactly is CKPT_E_MISMATCH: asked for steps */
} ckpt__op;

/* What ckpt__op_make is asked for. With `from` and `to` equal and all else zero: a plain copy. */
typedef struct ckpt__op_want {
    ckpt_dtype from, to;
    uint8_t from_swap, to_swap; /* bytes, as in ckpt__op; 0: none */
    bool conj, neg;             /* the flags of the source's view that the target has no longer */
    bool exact;
} ckpt__op_want;

/* CKPT_E_UNSUPPORTED, of `what`: there is no conversion (never of a dtype below a byte), a negated view is of a dtype without
 * negative values (bool, a quantized one, one below a byte), or a swap does not divide the element. */
ckpt_status ckpt__op_make(const ckpt__op_want *want, const char *what, ckpt__op *out, ckpt_error *err);
/* Nothing but bytes: from == to, no swap, no flip. */
bool ckpt__op_is_plain(const ckpt__op *op);
/* Swaps, flips and negates n elements that lie one behind the other, in place. The op converts nothing. */
void ckpt__op_apply(const ckpt__op *op, void *data, size_t n);

enum { CKPT__COPY_DIMS = 64 };
/* One box of elements, and where they lie on both sides. Put together by ckpt__copy_box_add, which leaves out sizes of 1 and merges
 * a dimension with the one before it where it continues that on both sides.
 *   A transposed float32 matrix of 3 x 4, whose columns lie 12 bytes apart, to rows of 16 bytes: n 2, size {3, 4}, from_stride
 * {4, 12}, to_stride {16, 4}. A copy of 3 x 4 whose rows lie 16 bytes apart on both sides: n 1, size {12}, strides {4} and {4}. */
typedef struct ckpt__copy_box {
    uint32_t n; /* at most 63: each dimension doubles the elements at least. 0: one element, or empty */
    bool empty;
    uint64_t size[CKPT__COPY_DIMS];        /* elements; granules */
    uint64_t from_stride[CKPT__COPY_DIMS]; /* bytes; 0: an element is repeated */
    uint64_t to_stride[CKPT__COPY_DIMS];   /* bytes; never 0 */
} ckpt__copy_box;
void ckpt__copy_box_init(ckpt__copy_box *box);
/* The next dimension, from the outermost to the innermost. All sizes multiplied, and what they reach, are below 2^63, as they are
 * of a view that was checked (ckpt__view_extent). */
void ckpt__copy_box_add(ckpt__copy_box *box, uint64_t size, uint64_t from_stride, uint64_t to_stride);
/* Do the elements lie one behind the other on both sides? *bytes: of the source; 0: an empty box, or they do not. */
bool ckpt__copy_box_is_run(const ckpt__copy_box *box, const ckpt__op *op, uint64_t *bytes);

/* Moves the box; from and to are the places of its first element. The two sides do not overlap. Each element of the target is
 * written; no byte between them is touched. counts grows by what a conversion cost, by whole numbers that threads add one after
 * another; NULL: not asked. CKPT_E_MISMATCH, of `what`:
 * `exact`, and an element is not; some of the target is written then. A plain op does not fail. */
ckpt_status ckpt__box_move(const ckpt__op *op, const ckpt__copy_box *box, const void *from, void *to,
                           ckpt__convert_counts *counts, const char *what, ckpt_error *err);
#endif
