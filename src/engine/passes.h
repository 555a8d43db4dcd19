/* engine/passes.h - how often compressed storages will be decoded from their first byte on, known from the plan before a byte is read.
 *
 * A compressed storage can only be read from its beginning. What is read of it in one go costs one pass, and what is read in five
 * windows costs five, unless the storage is small enough to be kept decoded. The rule is that of engine/pull_copy.c,
 * written once more: test_passes counts the passes of real runs against it. */
#ifndef CKPT_PASSES_H
#define CKPT_PASSES_H
#include "engine/pull_priv.h"
#include "model/nested.h"

/* The passes of one run, in the order in which it reads. */
typedef struct ckpt__passes ckpt__passes;
ckpt_status ckpt__passes_new(const ckpt__plan *plan, ckpt__passes **out, ckpt_error *err); /* the plan is borrowed */
void ckpt__passes_free(ckpt__passes *passes);

/* One ckpt__pull that checks late, of so much memory: what it has decoded, and where its decoders stand. All else zero at its
 * beginning, but decoded UINT32_MAX. */
typedef struct ckpt__pass_pull {
    uint64_t memory;
    uint32_t decoded; /* the storage that is kept decoded */
    struct {
        uint32_t storage;
        uint64_t at, used; /* byte of the storage; the question that used it last, 0: it is closed */
    } decoders[CKPT__PULL_DECODERS];
    uint64_t uses;
} ckpt__pass_pull;
/* ckpt__pull_bytes of these bytes. */
ckpt_status ckpt__passes_pull(ckpt__passes *passes, ckpt__pass_pull *pull, uint32_t storage, uint64_t begin,
                              uint64_t end, ckpt_error *err);
/* All of a tensor of the source is read beside the plan, for its CRC. */
void ckpt__passes_tensor(ckpt__passes *passes, size_t tensor);

/* Of a storage of the source so far; 0: nothing is decoded for it, as of one that is not compressed. */
uint64_t ckpt__passes_of(const ckpt__passes *passes, uint32_t storage);
uint64_t ckpt__passes_all(const ckpt__passes *passes);
#endif
