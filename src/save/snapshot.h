/* save/snapshot.h - a copy of a state's bytes in host memory, from which it is written while the trainer goes on. */
#ifndef CKPT_SNAPSHOT_H
#define CKPT_SNAPSHOT_H
#include "save/save.h"

/* One tensor's copy. What describes it was copied too: the state may be bound further, or moved, meanwhile. */
typedef struct ckpt__snap {
    uint64_t offset;              /* in the host's part or the pinned one */
    bool pinned;
    uint32_t ndim;
    const int64_t *shape, *strides;      /* of the copy in the pinned part; they live as long as the state */
    size_t item;                  /* bytes of an element */
} ckpt__snap;

/* Kept from save to save: its memory is mapped, filled in with pages (huge ones where the system has them) and, for what
 * lies on devices, page-locked once. All zero is empty. */
typedef struct ckpt__snapshot {
    char *host;                   /* copies of host tensors, in C order */
    uint64_t host_size;
    char *pinned;                 /* copies of device tensors, as the bytes that they span */
    uint64_t pinned_size;
    const ckpt__device_ops *pinned_ops;
    ckpt__snap *snaps; size_t capacity;  /* one a binding */
    ckpt__picture picture;        /* of the last take */
    /* the payload that is being read */
    size_t current;
    ckpt__strided it;
} ckpt__snapshot;

typedef struct ckpt__snapshot_need {
    uint64_t host, pinned;        /* bytes */
    uint64_t values;              /* of hooks, as long as they were at the last save: they count for the limit, and have their own
                                   * memory */
} ckpt__snapshot_need;
/* What a state takes as it is bound now; false where that does not fit into 64 bits. */
bool ckpt__snapshot_measure(const ckpt_state *state, ckpt__snapshot_need *need);
/* Makes room, without looking at a state: any thread may do it. limit: bytes at most (0: half of what is free).
 * CKPT_E_LIMIT or CKPT_E_NO_MEMORY: it has to be saved without a snapshot. What was there before is given back when it is
 * too small. */
ckpt_status ckpt__snapshot_reserve(ckpt__snapshot *s, const ckpt__snapshot_need *need, uint64_t limit, ckpt_error *err);
/* Picture and bytes. When this returns nothing of the state is needed any more, and the trainer's streams go on. */
ckpt_status ckpt__snapshot_take(ckpt__snapshot *s, const ckpt_state *state, uint64_t limit, const char *label,
                                ckpt_error *err);
void ckpt__snapshot_payload(ckpt__snapshot *s, ckpt__payload *payload);
uint64_t ckpt__snapshot_bytes(const ckpt__snapshot *s);
void ckpt__snapshot_free(ckpt__snapshot *s);
#endif
