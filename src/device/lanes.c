/* device/lanes.c - queues and pinned buffers. */
#include "device/lanes.h"

#include <stdlib.h>

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
    enum { MOST = 1024 }; /* fixed, so that pointers to lanes stay good */
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
    *out = lane;
    return callers ? follow(lane, callers, err) : CKPT_OK;
}

static ckpt_status make_ring(ckpt__lanes *l, const ckpt__device_ops *ops, ckpt_error *err)
{
    l->ring_ops = ops;
    l->block = CKPT__BLOCK;
    for (size_t i = 0; i < CKPT__RING; i++) {
        ckpt__slot *s = &l->ring[i];
        s->events = calloc(1024, sizeof *s->events);
        s->pending = calloc(1024, sizeof *s->pending);
        if (!s->events || !s->pending)
            return ckpt__fail_memory(err, "pinned buffers", 0);
        ckpt_status status = ops->host_alloc(l->block, &s->data, err);
        if (status < 0)
            return status;
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

ckpt_status ckpt__lanes_ring(ckpt__lanes *l, ckpt_error *err)
{
    if (!l->ring_ops) {
        l->ring_error = (ckpt_error)CKPT_ERROR_INIT;
        l->ring_status = make_ring(l, l->lanes[0].ops, &l->ring_error);
    }
    if (l->ring_status < 0 && err) /* whoever asks later hears why, too */
        *err = l->ring_error;
    return l->ring_status;
}

ckpt_status ckpt__lanes_slot(ckpt__lanes *l, ckpt__slot **out, ckpt_error *err)
{
    ckpt_status status = ckpt__lanes_ring(l, err);
    if (status < 0)
        return status;
    *out = &l->ring[l->next];
    l->next = (l->next + 1) % CKPT__RING;
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
    for (size_t k = 0; k < CKPT__RING; k++) {
        ckpt__slot *s = &l->ring[k];
        for (size_t i = 0; s->events && i < l->count; i++)
            if (s->events[i])
                l->lanes[i].ops->event_free(s->events[i]);
        if (s->data)
            l->ring_ops->host_free(s->data);
        free(s->events);
        free(s->pending);
    }
    for (size_t i = 0; i < l->count; i++)
        l->lanes[i].ops->stream_free(l->lanes[i].stream);
    free(l->lanes);
    memset(l, 0, sizeof *l);
    return first;
}
