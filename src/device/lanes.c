/* device/lanes.c - queues and pinned buffers. */
#include "device/lanes.h"

#include <stdlib.h>

enum { MOST = 1024 }; /* lanes: fixed, so that pointers to them stay good */

/* Orders the lane behind what the caller has queued on the device. */
static ckpt_status follow(ckpt__lane *lane, const ckpt__caller_streams *callers, ckpt_error *err)
{
    void *stream = NULL;
    bool given = false;
    for (size_t i = 0; i < callers->count; i++)
        if (ckpt_device_equal(callers->streams[i].device, lane->device)) {
            stream = callers->streams[i].stream;
            given = true;
        }
    for (size_t i = 0; given && i < lane->caller_count; i++)
        if (lane->callers[i] == stream)
            return CKPT_OK;
    if (given && lane->caller_count < CKPT__CALLERS) {
        lane->callers[lane->caller_count++] = stream;
        return lane->ops->follow(lane->stream, stream, err);
    }
    if (lane->synchronize)
        return CKPT_OK;
    lane->synchronize = true;
    return lane->ops->synchronize(lane->device.index, err);
}

ckpt_status ckpt__lanes_get(ckpt__lanes *l, const ckpt__caller_streams *callers, ckpt_device device, ckpt__lane **out,
                            ckpt_error *err)
{
    *out = NULL;
    if (device.type != CKPT_DEVICE_CUDA)
        return CKPT_OK;
    for (size_t i = 0; i < l->count; i++)
        if (ckpt_device_equal(l->lanes[i].device, device)) {
            *out = &l->lanes[i];
            return callers ? follow(*out, callers, err) : CKPT_OK;
        }
    if (!l->lanes && !(l->lanes = calloc(MOST, sizeof *l->lanes)))
        return ckpt__fail_memory(err, "device queues", 0);
    if (l->count == MOST)
        return ckpt__fail(err, CKPT_E_LIMIT, "device queues", "more than %d devices", MOST);
    ckpt__lane *lane = &l->lanes[l->count];
    *lane = (ckpt__lane){.device = device, .ops = ckpt__device_ops_of(device.type)};
    ckpt_status status = lane->ops->stream_new(device.index, &lane->stream, err);
    if (status < 0)
        return status;
    l->count++;
    l->ring_ops = l->lanes[0].ops;
    *out = lane;
    return callers ? follow(lane, callers, err) : CKPT_OK;
}

/* Makes the events of a buffer, and their marks. */
static ckpt_status make_marks(ckpt__slot *slot, ckpt_error *err)
{
    if (!slot->events)
        slot->events = calloc(MOST, sizeof *slot->events);
    if (!slot->pending)
        slot->pending = calloc(MOST, sizeof *slot->pending);
    return slot->events && slot->pending ? CKPT_OK : ckpt__fail_memory(err, "pinned buffers", 0);
}

static ckpt_status make_slot(ckpt__lanes *l, ckpt__slot *slot, ckpt_error *err)
{
    ckpt_status status = slot->data ? CKPT_OK : make_marks(slot, err);
    return status == CKPT_OK && !slot->data ? l->ring_ops->host_alloc(CKPT__SLOT, &slot->data, err) : status;
}

ckpt_status ckpt__lanes_ring(ckpt__lanes *l, size_t n, size_t *made, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    *made = 0;
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = make_marks(&l->ring[i], err);
    for (size_t most = n; status == CKPT_OK && !l->block; most /= 2) {
        status = l->ring_ops->host_alloc(most * CKPT__SLOT, &l->block, err);
        if (status == CKPT_OK)
            l->in_block = most;
        else if (status == CKPT_E_NO_MEMORY && most > 1)
            status = CKPT_OK;
    }
    if (status < 0)
        return status;
    *made = n < l->in_block ? n : l->in_block;
    for (size_t i = 0; i < *made; i++)
        if (!l->ring[i].data) {
            l->ring[i].data = (char *)l->block + i * CKPT__SLOT;
            l->ring[i].in_block = true;
        }
    return CKPT_OK;
}

ckpt_status ckpt__lanes_wait(ckpt__lanes *l, ckpt__slot *slot, ckpt_error *err)
{
    for (size_t i = 0; i < l->count; i++)
        if (slot->pending[i]) {
            ckpt_status status = l->lanes[i].ops->event_wait(slot->events[i], err);
            if (status < 0)
                return status;
            slot->pending[i] = false;
        }
    return CKPT_OK;
}

ckpt_status ckpt__lanes_slot(ckpt__lanes *l, ckpt__slot **out, ckpt_error *err)
{
    *out = &l->ring[l->next];
    ckpt_status status = make_slot(l, *out, err);
    if (status < 0)
        return status;
    l->next = (l->next + 1) % CKPT__RING_ALONE;
    return ckpt__lanes_wait(l, *out, err);
}

ckpt_status ckpt__lanes_mark(ckpt__lanes *l, ckpt__slot *slot, ckpt__lane *lane, ckpt_error *err)
{
    size_t i = (size_t)(lane - l->lanes);
    ckpt_status status = CKPT_OK;
    if (!slot->events[i])
        status = lane->ops->event_new(lane->device.index, &slot->events[i], err);
    if (status == CKPT_OK)
        status = lane->ops->event_record(slot->events[i], lane->stream, err);
    if (status == CKPT_OK)
        slot->pending[i] = true;
    return status;
}

static void free_slot(ckpt__lanes *l, ckpt__slot *s)
{
    for (size_t i = 0; s->events && i < l->count; i++)
        if (s->events[i])
            l->lanes[i].ops->event_free(s->events[i]);
    if (s->data && !s->in_block)
        l->ring_ops->host_free(s->data);
    free(s->events);
    free(s->pending);
}

ckpt_status ckpt__lanes_close(ckpt__lanes *l, ckpt_error *err)
{
    ckpt_status first = CKPT_OK;
    for (size_t i = 0; i < l->count; i++) {
        ckpt__lane *lane = &l->lanes[i];
        ckpt_status status = lane->ops->stream_sync(lane->stream, first < 0 ? NULL : err);
        for (size_t k = 0; status == CKPT_OK && k < lane->caller_count; k++)
            status = lane->ops->precede(lane->stream, lane->callers[k], first < 0 ? NULL : err);
        if (status == CKPT_OK && lane->synchronize)
            status = lane->ops->synchronize(lane->device.index, first < 0 ? NULL : err);
        if (first == CKPT_OK)
            first = status;
    }
    for (size_t i = 0; i < CKPT__RING; i++)
        free_slot(l, &l->ring[i]);
    if (l->block)
        l->ring_ops->host_free(l->block);
    for (size_t i = 0; i < l->count; i++)
        l->lanes[i].ops->stream_free(l->lanes[i].stream);
    free(l->lanes);
    memset(l, 0, sizeof *l);
    return first;
}
