/* device/lanes.h - our queue on each device that a save or restore touches, ordered with the trainer's streams, and the
 * pinned buffers that the bytes go through. */
#ifndef CKPT_LANES_H
#define CKPT_LANES_H
#include "state/state.h"
#include "device/device.h"

enum { CKPT__CALLERS = 8 };

typedef struct ckpt__lane {
    ckpt_device device;
    const ckpt__device_ops *ops;
    ckpt__stream *stream;
    void *callers[CKPT__CALLERS]; /* the trainers' streams on it that ours is ordered with (one a replica) */
    size_t caller_count;
    bool synchronize;             /* a state without a stream: the whole context is waited for */
} ckpt__lane;

enum { CKPT__RING = 4 };          /* pinned buffers of CKPT__BLOCK bytes */

typedef struct ckpt__slot {
    void *data;
    ckpt__event **events;         /* one a lane, made when first used */
    bool *pending;                /* the event of that lane was recorded and not waited for */
} ckpt__slot;

typedef struct ckpt__lanes {
    ckpt__lane *lanes; size_t count, capacity;
    ckpt__slot ring[CKPT__RING];
    size_t block;                 /* bytes of a slot */
    size_t next;                  /* slot to be given next */
    const ckpt__device_ops *ring_ops;   /* who made the buffers; NULL: not yet made */
} ckpt__lanes;

/* The lane of a device (made when first asked for); NULL in *out for the cpu. It first follows the stream that the state
 * gave for the device, or synchronizes the device; state NULL: the lane is there already. */
ckpt_status ckpt__lanes_get(ckpt__lanes *l, const ckpt_state *state, ckpt_device device, ckpt__lane **out, ckpt_error *err);
/* The next pinned buffer, once nothing is pending in it. */
ckpt_status ckpt__lanes_slot(ckpt__lanes *l, ckpt__slot **out, ckpt_error *err);
/* Notes that what was queued on the lane up to now uses the slot. */
ckpt_status ckpt__lanes_mark(ckpt__lanes *l, ckpt__slot *slot, ckpt__lane *lane, ckpt_error *err);
/* Waits for what is pending in the slot. */
ckpt_status ckpt__lanes_wait(ckpt__lanes *l, ckpt__slot *slot, ckpt_error *err);
/* Waits until everything queued is done and lets the trainer's streams go on after it; then frees all. Called on every
 * path; the first error counts. */
ckpt_status ckpt__lanes_close(ckpt__lanes *l, ckpt_error *err);
#endif
