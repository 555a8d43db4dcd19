/* save/snapshot.h - a copy of a state's bytes in host memory, from which it is written while the trainer goes on. */
#ifndef CKPT_SNAPSHOT_H
#define CKPT_SNAPSHOT_H
#include "save/save.h"

/* One tensor's copy. What describes it was copied too: the state may be bound further, or moved, meanwhile.
 *
 * Each copy begins at a multiple of 64 bytes of its part. Three bindings: a of 100 bytes and b of 8 bytes on the host,
 * and c on a device, a float32 view of shape 3 x 4 with strides {6, 1}:
 *
 *     snaps[0] a    .pinned = false, .offset = 0      100 bytes
 *     snaps[1] b    .pinned = false, .offset = 128    8 bytes
 *     snaps[2] c    .pinned = true,  .offset = 0      64 bytes: the span of c; a read gathers 48 of them
 *
 * The need is 192 bytes of the host's part and 64 bytes of the pinned one. */
typedef struct ckpt__snap {
    uint64_t offset; /* bytes, in the host's part or the pinned one */
    bool pinned;     /* the tensor was on a device, and its copy is in the pinned part */
    uint32_t ndim;
    const int64_t *shape, *strides; /* of the copy in the pinned part; they live as long as the state */
    size_t item;                    /* bytes of an element */
} ckpt__snap;

/* Kept from save to save: its memory is mapped, filled in with pages (huge ones where the system has them) and, for
 * what lies on devices, page-locked once. All zero is empty. */
typedef struct ckpt__snapshot {
    char *host;           /* owned (mmap): copies of host tensors, in C order; NULL: not mapped */
    uint64_t host_size;   /* bytes, a multiple of 2 MiB */
    char *pinned;         /* owned (pinned_ops): copies of device tensors, as the bytes that they span; NULL:
                                   * not made */
    uint64_t pinned_size; /* bytes */
    const ckpt__device_ops *pinned_ops; /* static: who made `pinned`; NULL: nobody was asked yet */
    ckpt__snap *snaps;
    size_t capacity;         /* heap, owned: one a binding; NULL: nothing was taken yet */
    ckpt__state_index saved; /* owned: of the last take */
    /* the payload that is being read */
    size_t current;   /* number of its binding; SIZE_MAX: none yet */
    ckpt__strided it; /* the walk over its copy, where that is in the pinned part */
} ckpt__snapshot;

/* How much memory a snapshot of a state takes. It is measured on the caller's thread, so that the writer can make room
 * without a look at the state. */
typedef struct ckpt__snapshot_need {
    uint64_t host, pinned; /* bytes of the two parts, gaps between the copies included */
    uint64_t values;       /* of hooks, as long as they were at the last save: they count for the limit, and have
                                   * their own memory */
} ckpt__snapshot_need;
/* What a state takes as it is bound now; false where that does not fit into 64 bits. */
bool ckpt__snapshot_measure(const ckpt_state *state, ckpt__snapshot_need *need);
/* Makes room, without looking at a state: any thread may do it. limit: bytes at most (0: half of what is free).
 * CKPT_E_LIMIT or CKPT_E_NO_MEMORY: it has to be saved without a snapshot. What was there before is given back when it
 * is too small. */
ckpt_status ckpt__snapshot_reserve(ckpt__snapshot *s, const ckpt__snapshot_need *need, uint64_t limit, ckpt_error *err);
/* Picture and bytes. When this returns nothing of the state is needed any more, and the trainer's streams go on. */
ckpt_status ckpt__snapshot_take(ckpt__snapshot *s, const ckpt_state *state, uint64_t limit, const char *label,
                                ckpt_error *err);
void ckpt__snapshot_payload(ckpt__snapshot *s, ckpt__payload *payload);
uint64_t ckpt__snapshot_bytes(const ckpt__snapshot *s);
void ckpt__snapshot_free(ckpt__snapshot *s);
#endif
