/* engine/sweep.h - CRC-32s of stored extents, by several threads, for somebody who then looks at them one by one.
 *
 * A worked example: a file has a storage of 20 MiB and three of 100 KiB. One unit of work is the first 8 MiB of the large one, the next
 * its second 8 MiB, the third what is left of it and the three small ones. The CRC of the large one is put together at the end. */
#ifndef CKPT_SWEEP_H
#define CKPT_SWEEP_H
#include "io/source.h"
#include "model/index.h"

typedef struct ckpt__swept {
    const ckpt__extent *extent; /* borrowed: CKPT__STORED, in a file, and whole */
    uint32_t crc;               /* of its bytes, where `known` */
    bool known;                 /* they were all read */
} ckpt__swept;

/* Called by the calling thread alone: so many bytes were read by all since it was called last. Another return than CKPT_OK ends it. */
typedef ckpt_status ckpt__sweep_fn(void *ctx, uint64_t bytes, ckpt_error *err);

/* Reads each once, in the order of the list, which shall be theirs in the files. threads 0: as many as read the source the fastest
 * (io/readers.h). An extent that ends too early is not known, and the others are; whoever wants to know why reads it again.
 * CKPT_E_SYSTEM of the first that the system does not read, CKPT_E_NO_MEMORY, or what fn returns: then nothing is known. */
ckpt_status ckpt__sweep(const ckpt__source *source, ckpt__swept *list, size_t count, unsigned threads,
                        ckpt__sweep_fn *fn, void *ctx, ckpt_error *err);
#endif
