/* engine/sums.h - one number for the elements of a tensor and their places, taken in whatever order they lie.
 *
 * A file that was written is read back and compared with what it was made of. Each side is read once and in its own order: a tensor
 * that was transposed on its way lies otherwise on both sides. So the sum does not depend on the order: it adds up a term for each
 * element, made of its bits and of its logical index (its number in C order). Two elements that are swapped, a row that is shifted, a
 * flipped bit change it. It finds accidents, not malice: a hash it is not.
 *   The plan (engine/plan.h) is not used on purpose: what is compared was made with it. */
#ifndef CKPT_SUMS_H
#define CKPT_SUMS_H
#include "engine/decode.h"
#include "engine/move.h"

/* Of n elements of `size` bytes (1, 2, or a multiple of 4) that lie one behind the other; the first has index `begin`, the next begin +
 * step, and so on. Sums of parts of a tensor are added, modulo 2^64. */
uint64_t ckpt__sum_elements(const void *data, size_t n, size_t size, uint64_t begin, uint64_t step);

/* Reads tensors to sum them, in buffers of 1.5 MiB. It is for one thread; source and index are borrowed. */
typedef struct ckpt__summer ckpt__summer;
ckpt_status ckpt__summer_new(const ckpt__source *source, const ckpt__index *index, ckpt__summer **out, ckpt_error *err);
void ckpt__summer_free(ckpt__summer *s); /* accepts NULL */
/* Of a tensor that has bytes, as elements of dtype `to`; little-endian; resolve: a conjugated or negated view gives its values.
 * as_bytes: of its bytes, each a place of its own: the same of a tensor that another dtype stands for. CRCs of the storage and of the
 * tensor are compared, on the way where the bytes are read in their order: CKPT_E_DAMAGED. */
ckpt_status ckpt__sum_tensor(ckpt__summer *s, size_t tensor, ckpt_dtype to, bool resolve, bool as_bytes, uint64_t *sum,
                             ckpt_error *err);
#endif
