/* engine/pull.h - the bytes of a plan's target, made of what the files of its source have. Any range may be asked for, in any order. */
#ifndef CKPT_PULL_H
#define CKPT_PULL_H
#include "engine/crcs.h"
#include "engine/plan.h"
#include "io/source.h"

/* One reader of a plan: what it keeps between two questions is its buffers. Each thread has its own. */
typedef struct ckpt__pull ckpt__pull;
/* plan and source are borrowed. check: the CRC of every storage of which a byte is used is compared, before the byte is given, as in
 * engine/checked.h: on the way where one copy reads all of the storage, else by one pass more. memory: a coded storage of so many bytes
 * or fewer is kept decoded; of a larger one a copy goes on from where the one before it has left the decoder, if it lies ahead of
 * there; 0: 64 MiB. */
ckpt_status ckpt__pull_new(const ckpt__plan *plan, const ckpt__source *source, bool check, uint64_t memory,
                           ckpt__pull **out, ckpt_error *err);
void ckpt__pull_free(ckpt__pull *pull);
/* Elements of `item` bytes of a device's memory: the box begins at byte from_at of the extent, and `to` is the place of its first
 * element on the host. name: of the tensor, for messages. */
typedef ckpt_status ckpt__pull_fetch_fn(void *ctx, const ckpt__extent *extent, uint64_t from_at,
                                        const ckpt__copy_box *box, uint32_t item, void *to, const char *name,
                                        ckpt_error *err);
/* Who reads extents that are a device's memory: whoever has the queues on the devices. Without one such an extent is refused
 * (CKPT_E_DEVICE), and so is a conversion of what lies in one (CKPT_E_UNSUPPORTED). */
void ckpt__pull_set_fetch(ckpt__pull *pull, ckpt__pull_fetch_fn *fetch, void *ctx);
/* For a reader that checks, and whose bytes nobody uses before ckpt__crcs_finish: where the plan shows that all of a storage is read,
 * its CRC is taken over the bytes of all questions, and no pass is made for it. crcs is of the plan, and borrowed; the pulls of
 * several threads may share it. */
void ckpt__pull_check_late(ckpt__pull *pull, ckpt__crcs *crcs);
uint64_t
ckpt__pull_openings(const ckpt__pull *pull); /* how often a coded storage was begun to be decoded for its copies */
/* Bytes [begin, end) of a target storage into dst. Those that no bond writes stay as they are. Small neighbours in a file are read
 * together. CKPT_E_DAMAGED: a CRC is wrong, or the file is shorter than it was. counts: of each bond, one after the other; it grows by
 * what conversions cost (NULL: not asked). */
ckpt_status ckpt__pull_bytes(ckpt__pull *pull, uint32_t storage, uint64_t begin, uint64_t end, void *dst,
                             ckpt__convert_counts *counts, ckpt_error *err);
#endif
