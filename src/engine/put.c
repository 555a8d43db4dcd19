/* engine/put.c - a few bytes to a place. */
#include "engine/put.h"

ckpt_status ckpt__put_bytes(ckpt__lanes *lanes, ckpt_device device, void *dst, const void *src, size_t n,
                            ckpt_error *err)
{
    return ckpt__move_bytes(lanes, device, dst, ckpt_cpu(), src, n, err);
}

ckpt_status ckpt__put_zeros(ckpt__lanes *lanes, ckpt_device device, void *dst, ckpt__strided *place, ckpt_error *err)
{
    ckpt__lane *lane;
    uint64_t offset, n;
    ckpt_status status = ckpt__lanes_get(lanes, NULL, device, &lane, err);
    while (status == CKPT_OK && ckpt__strided_next(place, SIZE_MAX / 2, &offset, &n)) {
        if (lane)
            status = lane->ops->zero(device.index, (char *)dst + offset, (size_t)n, lane->stream, err);
        else
            memset((char *)dst + offset, 0, (size_t)n);
    }
    return status;
}

ckpt_status ckpt__move_bytes(ckpt__lanes *lanes, ckpt_device to, void *dst, ckpt_device from, const void *src,
                             uint64_t n, ckpt_error *err)
{
    ckpt__lane *a, *b;
    ckpt_status status = ckpt__lanes_get(lanes, NULL, from, &a, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_get(lanes, NULL, to, &b, err);
    if (status < 0)
        return status;
    if (!a && !b) {
        memcpy(dst, src, (size_t)n);
        return CKPT_OK;
    }
    if (a && b)
        return a->ops->between(to.index, dst, from.index, src, (size_t)n, err);
    for (uint64_t at = 0; status == CKPT_OK && at < n; at += CKPT__SLOT) {
        size_t size = n - at < CKPT__SLOT ? (size_t)(n - at) : CKPT__SLOT;
        ckpt__slot *slot;
        if ((status = ckpt__lanes_slot(lanes, &slot, err)) < 0)
            break;
        if (b) {
            memcpy(slot->data, (const char *)src + at, size);
            status = b->ops->to_device(b->stream, (char *)dst + at, slot->data, size, err);
        } else
            status = a->ops->to_host(a->stream, slot->data, (const char *)src + at, size, err);
        if (status == CKPT_OK)
            status = ckpt__lanes_mark(lanes, slot, b ? b : a, err);
        if (status == CKPT_OK && a) {
            status = ckpt__lanes_wait(lanes, slot, err);
            if (status == CKPT_OK)
                memcpy((char *)dst + at, slot->data, size);
        }
    }
    if (status == CKPT_OK && b)
        status = b->ops->stream_sync(b->stream, err);
    return status;
}
