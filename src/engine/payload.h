/* engine/payload.h - the payloads of a recipe that are read from another checkpoint, in order and in bounded memory. */
#ifndef CKPT_PAYLOAD_H
#define CKPT_PAYLOAD_H
#include "engine/recipe_write.h"

/* Reads for ckpt__write_recipe: `from` is the source's index, `to` the target's, whose tensors have the same numbers.
 *
 * PAYLOAD n: tensor n in C order, little-endian. STORAGE n: the bytes of the source's storage n, little-endian.
 *
 * casts (NULL: none; else one a tensor of `from`): NONE, or the dtype that its elements have in the target; the source's
 * own says that nothing is converted. Conjugate and negated views are resolved where the tensor of `to` has the flags
 * (info.conj, info.neg) no longer: whoever clears them gives the tensor a storage of its own, as for a cast. A step
 * (`to` has role STEP) that its new dtype does not hold exactly is CKPT_E_MISMATCH.
 *
 * memory: bytes that all buffers of this payload together may take at most; 0 is CKPT__MEMORY. The blocks of the
 * writer are not among them (CKPT__WRITER_MEMORY). A view whose elements do not lie in order is gathered window by
 * window of its elements; each window reads what it needs once. A deflated storage is decoded as it goes on; for a view
 * of it that is not in order it is decoded once a window.
 *
 * from, to and casts are borrowed. CRCs that the source has are compared: CKPT_E_DAMAGED. Of a view or a part of a storage
 * that is before its first byte is given (engine/checked.h). */
typedef struct ckpt__reader_payload ckpt__reader_payload;
enum { CKPT__MEMORY = 128 << 20, CKPT__MEMORY_LEAST = 1 << 20, CKPT__WRITER_MEMORY = 4 * CKPT__BLOCK };
ckpt_status ckpt__payload_open(const ckpt__source *source, const ckpt__index *from, const ckpt__index *to,
                               const ckpt_dtype *casts, uint64_t memory, ckpt__reader_payload **out,
                               ckpt__payload *payload, ckpt_error *err);
/* What the conversion of a tensor cost, once all of it was read; all zero where there was none. */
void ckpt__payload_cast_counts(const ckpt__reader_payload *p, size_t tensor, ckpt__convert_counts *counts);
/* Lets go of the buffers of the payload that is read; it is read from its first byte on, when it is asked for again. */
void ckpt__payload_pause(ckpt__reader_payload *p);
void ckpt__reader_payload_free(ckpt__reader_payload *p);
#endif
