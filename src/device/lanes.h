/* device/lanes.h - our queue on each device that a save or restore touches, ordered with the trainer's streams, and the
 * pinned buffers that the bytes go through. */
#ifndef CKPT_LANES_H
#define CKPT_LANES_H
#include "device/device.h"

enum { CKPT__CALLERS = 8 };

/* Our queue on one device. It exists so that the device itself orders our copies with the trainer's kernels: the copies
 * wait for what the trainer queued before them, and what the trainer queues later waits for the copies. */
typedef struct ckpt__lane {
    ckpt_device device;
    const ckpt__device_ops *ops;  /* static */
    ckpt__stream *stream;         /* owned */
    void *callers[CKPT__CALLERS]; /* the trainers' streams on it that ours is ordered with (one a replica); theirs. A
                                   * NULL below caller_count is the default stream */
    size_t caller_count;          /* streams in `callers` */
    bool synchronize;             /* a caller without a stream on it, or one too many for `callers`: the whole context
                                   * is waited for */
} ckpt__lane;

/* Pinned buffers: bytes of one, and how many there are at most. What one thread fills or empties alone takes turns with the last number. */
enum { CKPT__SLOT = 2 << 20, CKPT__RING = 32, CKPT__RING_ALONE = 4 };

/* One pinned buffer. A buffer may be given to several lanes at once (the same bytes for two replicas): it is free when
 * no lane's event is pending. Both arrays are heap, owned, and have a place for each lane that there may be, by the
 * lane's number. */
typedef struct ckpt__slot {
    void *data;           /* CKPT__SLOT bytes of page-locked memory; NULL: not made */
    bool in_block;        /* `data` is a part of the ring's block; else it is owned */
    ckpt__event **events; /* one a lane, owned, made when first used; NULL until then */
    bool *pending;        /* the event of that lane was recorded and not waited for */
} ckpt__slot;

/* All queues of one save or restore, and the ring of buffers that they share. The ring bounds the pinned memory,
 * whatever the number of devices: 32 buffers of 2 MiB are 64 MiB. While the device copies from one, the disk fills the
 * next. They are made by whoever needs one first: for one thread one by one, for several all at once. All zero is empty.
 *
 * A worked example: a restore puts a tensor of 10 MiB on two replicas, lanes 0 and 1, by one thread. Its blocks are 0 to 4.
 *
 *     block 0    slot 0    the disk fills it; both lanes copy from it; events[0] and events[1] of the slot are recorded
 *     block 1    slot 1    the same, while the devices may still copy from slot 0
 *     block 2    slot 2
 *     block 3    slot 3    next is 0 again
 *     block 4    slot 0    ckpt__lanes_slot waits for both events first; `pending` is false for both lanes then */
typedef struct ckpt__lanes {
    ckpt__lane *lanes;
    size_t count; /* of `lanes`: heap, owned, never moved: pointers to lanes stay good; NULL: no lane yet */
    ckpt__slot ring[CKPT__RING];
    void *block; /* page-locked memory of the first `in_block` buffers, owned; NULL: not made */
    size_t in_block;
    size_t next;                      /* slot to be given next, 0 to CKPT__RING_ALONE - 1 */
    const ckpt__device_ops *ring_ops; /* static: who makes the buffers; NULL: none was asked for yet */
} ckpt__lanes;

/* The lane of a device (made when first asked for); NULL in *out for the cpu. It first follows the caller's
 * stream on the device, or synchronizes the device where the caller has none there; callers NULL: it follows nobody. */
ckpt_status ckpt__lanes_get(ckpt__lanes *l, const ckpt__caller_streams *callers, ckpt_device device, ckpt__lane **out,
                            ckpt_error *err);
/* Makes the first n pinned buffers (1 to CKPT__RING) in one piece of memory, if they are not there yet: to lock many small pieces takes
 * several times as long. Where there is not so much memory, half as many, and so on. *made: how many there are, n at most. */
ckpt_status ckpt__lanes_ring(ckpt__lanes *l, size_t n, size_t *made, ckpt_error *err);
/* The next pinned buffer, once nothing is pending in it: for one thread. */
ckpt_status ckpt__lanes_slot(ckpt__lanes *l, ckpt__slot **out, ckpt_error *err);
/* Notes that what was queued on the lane up to now uses the slot. */
ckpt_status ckpt__lanes_mark(ckpt__lanes *l, ckpt__slot *slot, ckpt__lane *lane, ckpt_error *err);
/* Waits for what is pending in the slot. */
ckpt_status ckpt__lanes_wait(ckpt__lanes *l, ckpt__slot *slot, ckpt_error *err);
/* Waits until everything queued is done and lets the trainer's streams go on after it; then frees all. Called on every
 * path; the first error counts. */
ckpt_status ckpt__lanes_close(ckpt__lanes *l, ckpt_error *err);
#endif
