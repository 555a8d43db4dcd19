/* engine/stream.h - payload bytes out of a checkpoint, block by block: the storages as stored, the tensors in C order. */
#ifndef CKPT_STREAM_H
#define CKPT_STREAM_H
#include "io/source.h"
#include "model/index.h"

/* The decoded bytes of storage i, as stored (no byte swap), in order, in blocks. With check, a CRC that the extent has
 * is compared at the end: CKPT_E_DAMAGED ("crc-mismatch"). A return of fn other than CKPT_OK stops and is returned. */
typedef ckpt_status (*ckpt__block_fn)(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err);
ckpt_status ckpt__read_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                               ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The elements of tensor i in C order, little-endian, contiguous, in order, in blocks of whole elements, with conjugate
 * and negated views resolved. With check, the CRCs of the storage, of which it may be a part, and of the tensor are compared. Memory is bounded
 * (engine/elements.h). */
ckpt_status ckpt__read_tensor(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The same, unresolved and unchecked: what the CRC of a tensor is of. */
ckpt_status ckpt__read_tensor_as_stored(const ckpt__source *source, const ckpt__index *index, size_t tensor,
                                        ckpt__block_fn fn, void *ctx, ckpt_error *err);
/* The one element of tensor i, as a number, where its dtype is one that ckpt__convert knows. *read false: it is none, or has several
 * elements. check as of ckpt__read_tensor. */
ckpt_status ckpt__read_number(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              double *number, bool *read, ckpt_error *err);
/* The bytes of a span, decoded, in order; fn may be NULL. *crc: theirs, which is not compared. */
ckpt_status ckpt__read_span(const ckpt__source *source, const ckpt__span *span, ckpt__block_fn fn, void *ctx,
                            uint32_t *crc, ckpt_error *err);
#endif
