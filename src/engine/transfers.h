/* engine/transfers.h - what a restore reads, and where each tensor goes. No I/O, no device. */
#ifndef CKPT_TRANSFERS_H
#define CKPT_TRANSFERS_H
#include <ckpt/device.h>
#include <ckpt/tensor.h>
#include "base/strided.h"
#include "engine/push.h"
#include "model/index.h"

/* One tensor of the checkpoint to one place. Several copies may have one source (replicas, aliases): they differ in `data` and
 * `device`, and their storage is read once. Of w[1:], where w is float32 of shape 3 x 4 and all of storage 0, the source is
 * linear with begin 16 and size 32. Pointers are borrowed from the state. */
typedef struct ckpt__transfer {
    size_t tensor;         /* number in the source index */
    size_t state, binding; /* whose place it is: number of the state in the restore, of the binding in the state */
    ckpt_str name;         /* of the binding, for messages */
    ckpt_dtype from, to;
    uint32_t ndim;
    const int64_t *shape, *strides; /* of the place, in elements; shape equals the source's */
    void *data;
    ckpt_device device;
    ckpt__copied done;
    /* filled by ckpt__transfers_order */
    size_t storage;       /* SIZE_MAX: an empty tensor, nothing to read */
    uint64_t begin, size; /* bytes of the source view in its storage, where it is linear */
    bool linear;          /* bytes go over one to one: contiguous both sides, no cast, no byte swap, no
                                   * view that is conjugated or negated */
} ckpt__transfer;

/* All copies of one restore. After ckpt__transfers_order they are in the order of the files, those of one storage together. */
typedef struct ckpt__transfers {
    ckpt__transfer *copies;
    size_t count, capacity; /* heap, owned */
    uint64_t bytes;         /* payload bytes that are read, each once */
} ckpt__transfers;

ckpt__transfer *ckpt__transfers_add(ckpt__transfers *plan); /* zeroed; NULL when memory is short */
/* Sorts by file, place in the file and storage, so that each storage is read once and in order. */
void ckpt__transfers_order(ckpt__transfers *plan, const ckpt__index *index);
/* The copies [first, *end) are all those of one storage. */
void ckpt__transfers_group(const ckpt__transfers *plan, size_t first, size_t *end);
void ckpt__transfers_free(ckpt__transfers *plan);
#endif
