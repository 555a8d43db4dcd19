/* save/snapshot.h - a copy of a state's bytes in host memory, from which it is written while the trainer goes on. */
#ifndef CKPT_SNAPSHOT_H
#define CKPT_SNAPSHOT_H
#include "save/save.h"

/* Where one tensor's copy lies: bytes from the beginning of its part. */
typedef struct ckpt__snap {
    uint64_t offset;
    bool pinned;  /* the tensor is on a device, and its copy is in the pinned part */
    bool as_lies; /* the copy has the tensor's strides; else it is in C order */
} ckpt__snap;

/* Bytes [to, to + size) of the host's part, in ascending order of `to`. What lies side by side on both sides is one, so there are
 * no more of them than tensors. */
typedef struct ckpt__host_copy {
    const char *from; /* NULL: strided, by the plan */
    uint64_t to, size;
} ckpt__host_copy;

/* The same of the pinned part: what lies in one allocation of a device as its copies lie here is one. */
typedef struct ckpt__device_copy {
    const char *from; /* on the device; NULL: boxes, by the plan */
    uint64_t to, size;
    uint64_t allocation; /* of the memory's extents; 0: joined with none */
    uint32_t bond;       /* of the first, for messages */
    uint16_t device;     /* of the memory's index */
} ckpt__device_copy;

/* Kept from save to save: its memory is mapped, filled in with pages (huge ones where the system has them) and, for
 * what lies on devices, page-locked once; and the plan of the copy, for as long as the state's tensors are where they
 * were. All zero is empty.
 *
 * The copy is a plan from the memory of the state to an index of two storages, the host's part and the pinned part; the
 * writer reads by a plan from that index to the tensors in C order. Four bindings: a of 100 bytes and b of 8 bytes on the
 * host; c and d on a device, float32 views of shape 3 x 4 with strides {6, 1}, and of shape 3 x 2 with strides {8, 1}:
 *
 *     tensors[0] a    storage 0, at 0      100 bytes
 *     tensors[1] b    storage 0, at 128    8 bytes
 *     tensors[2] c    storage 1, at 0      64 bytes: its span, strides {6, 1}; 48 of them are its elements
 *     tensors[3] d    storage 1, at 64     24 bytes in C order: its span is 72 bytes, more than twice as many
 *
 * The need is 192 bytes of the host's part and 128 bytes of the pinned one. Bindings of one arena on a device that lie
 * side by side have copies that do, too, and come over in one. */
typedef struct ckpt__snapshot {
    char *host;                         /* owned (mmap): copies of host tensors; NULL: not mapped */
    uint64_t host_size;                 /* bytes, a multiple of 2 MiB */
    char *pinned;                       /* owned (pinned_ops): copies of device tensors; NULL: not made */
    uint64_t pinned_size;               /* bytes */
    const ckpt__device_ops *pinned_ops; /* static: who made `pinned`; NULL: nobody was asked yet */
    ckpt__index *memory, *kept; /* owned: where the tensors are, and where their copies; NULL: nothing was taken yet */
    ckpt__same copy;            /* from the one to the other */
    ckpt__host_copy *copies;    /* heap, owned: what it copies on the host; NULL: nothing */
    size_t copy_count, copy_capacity;
    ckpt__device_copy *sent; /* heap, owned: what comes from devices; NULL: nothing */
    size_t sent_count, sent_capacity;
    uint64_t version;        /* of the state that all this was made of */
    ckpt__state_index saved; /* owned: of the last take */
    /* while it is read */
    ckpt__same same;  /* from the copies to saved.index */
    ckpt__pull *pull; /* owned; NULL: nothing was read of this take */
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
/* Picture and bytes, by so many threads (0: as many as the process may run on, up to eight). When this returns nothing of
 * the state's memory is needed any more, and the trainer's streams go on. */
ckpt_status ckpt__snapshot_take(ckpt__snapshot *s, const ckpt_state *state, uint64_t limit, unsigned threads,
                                const char *label, ckpt_error *err);
/* Is it made for what the state binds now, and has it room? Then there is nothing to measure and to reserve. */
bool ckpt__snapshot_is_ready(const ckpt__snapshot *s, const ckpt_state *state);
void ckpt__snapshot_payload(ckpt__snapshot *s, ckpt__payload *payload);
uint64_t ckpt__snapshot_bytes(const ckpt__snapshot *s);
void ckpt__snapshot_free(ckpt__snapshot *s);

/* snapshot_layout.c: a place for the copy of each binding, and what that comes to. snaps NULL: only that. false where a sum
 * does not fit into 64 bits, or memory is short. */
bool ckpt__snapshot_lay_out(const ckpt_state *state, ckpt__snap *snaps, ckpt__snapshot_need *need);
/* The tensors of the state at their places, without addresses: kept->storages[0] is the host's part, [1] the pinned one. */
ckpt_status ckpt__snapshot_index(const ckpt__index *memory, const ckpt__snap *snaps, const ckpt__snapshot_need *need,
                                 ckpt__index **kept, ckpt_error *err);
#endif
