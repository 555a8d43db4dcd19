/* engine/joined.h - a split tensor as if it were whole: its elements in C order, from any byte on; and a box of any tensor. */
#ifndef CKPT_JOINED_H
#define CKPT_JOINED_H
#include "io/source.h"
#include "model/index.h"

typedef struct ckpt__joined ckpt__joined;
/* Proves that the pieces have each element, and once: CKPT_E_MISMATCH naming the tensor and the first box that is wrong. resolve:
 * conjugated and negated views give their values. check and memory: as ckpt__pull_new has
 * them. source and index are borrowed; no payload is read. */
ckpt_status ckpt__joined_new(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool resolve,
                             bool check, uint64_t memory, ckpt__joined **out, ckpt_error *err);
void ckpt__joined_free(ckpt__joined *joined);
/* Bytes [begin, begin + n) of the tensor's elements in C order, little-endian. */
ckpt_status ckpt__joined_read(ckpt__joined *joined, uint64_t begin, void *dst, size_t n, ckpt_error *err);

/* The elements of one box of a tensor, whole or split, in C order and resolved, into dst: n bytes, just those of the box. The box lies
 * in the shape, has elements, and is not all of the tensor; of a dtype below a byte the tensor's rows and the box's begin and end with
 * bytes. The pieces of a split tensor do not meet, and have all of the box (CKPT_E_MISMATCH as above); the rest of the tensor may be
 * missing. CRCs are compared, as by a ckpt__pull that checks. */
ckpt_status ckpt__joined_box(const ckpt__source *source, const ckpt__index *index, size_t tensor, const int64_t *lo,
                             const int64_t *size, void *dst, size_t n, ckpt_error *err);
#endif
