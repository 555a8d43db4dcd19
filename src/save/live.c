/* save/live.c - the bytes of a state that stands still while they are written: from host memory as they are, from a
 * device by way of pinned buffers, the next block on its way while one is written. */
#include "save/save.h"

#include <stdlib.h>
#include "state/state.h"

static ckpt_status fetch_ahead(ckpt__live *v, const ckpt__binding *b, ckpt__lane *lane, uint64_t offset,
                               ckpt_error *err)
{
    v->ahead = NULL;
    if (offset >= b->nbytes)
        return CKPT_OK;
    size_t n = b->nbytes - offset < CKPT__BLOCK ? (size_t)(b->nbytes - offset) : CKPT__BLOCK;
    ckpt__slot *slot;
    ckpt_status status = ckpt__lanes_slot(&v->lanes, &slot, err);
    if (status == CKPT_OK)
        status = lane->ops->to_host(lane->stream, slot->data, (const char *)b->data + offset, n, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_mark(&v->lanes, slot, lane, err);
    if (status == CKPT_OK) {
        v->ahead = slot;
        v->ahead_offset = offset;
        v->ahead_size = n;
    }
    return status;
}

/* Contiguous on a device: the next block is on its way while this one is written. */
static ckpt_status read_device(ckpt__live *v, const ckpt__binding *b, ckpt__lane *lane, uint64_t offset, char *dst,
                               size_t n, ckpt_error *err)
{
    while (n) {
        ckpt_status status = CKPT_OK;
        if (!v->ahead || offset < v->ahead_offset || offset >= v->ahead_offset + v->ahead_size)
            status = fetch_ahead(v, b, lane, offset, err);
        if (status < 0)
            return status;
        ckpt__slot *slot = v->ahead;
        uint64_t begin = v->ahead_offset, end = begin + v->ahead_size;
        if ((status = ckpt__lanes_wait(&v->lanes, slot, err)) < 0)
            return status;
        size_t take = end - offset < n ? (size_t)(end - offset) : n;
        if (offset + take == end) {
            if ((status = fetch_ahead(v, b, lane, end, err)) < 0)
                return status;
        }
        memcpy(dst, (const char *)slot->data + (offset - begin), take);
        dst += take;
        offset += take;
        n -= take;
    }
    return CKPT_OK;
}

/* Strided on a device: the bytes that it spans come over whole and are gathered here. */
static ckpt_status fetch_span(ckpt__live *v, const ckpt__binding *b, ckpt__lane *lane, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (b->span > SIZE_MAX / 2 || !(v->span = malloc((size_t)b->span)))
        return ckpt__fail_memory(err, b->name.data, b->span);
    for (uint64_t at = 0; status == CKPT_OK && at < b->span; at += CKPT__BLOCK) {
        size_t n = b->span - at < CKPT__BLOCK ? (size_t)(b->span - at) : CKPT__BLOCK;
        ckpt__slot *slot;
        if ((status = ckpt__lanes_slot(&v->lanes, &slot, err)) < 0 ||
            (status = lane->ops->to_host(lane->stream, slot->data, (const char *)b->data + at, n, err)) < 0 ||
            (status = ckpt__lanes_mark(&v->lanes, slot, lane, err)) < 0 ||
            (status = ckpt__lanes_wait(&v->lanes, slot, err)) < 0)
            break;
        memcpy(v->span + at, slot->data, n);
    }
    return status;
}

static ckpt_status read_binding(ckpt__live *v, size_t i, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    const ckpt__binding *b = &v->state->bindings[i];
    ckpt__lane *lane;
    ckpt__caller_streams callers = ckpt__state_streams(v->state);
    ckpt_status status = ckpt__lanes_get(&v->lanes, &callers, ckpt__memory_device(&b->memory), &lane, err);
    if (status < 0)
        return status;
    if (offset == 0 || v->current != i) {
        v->current = i;
        v->ahead = NULL;
        free(v->span);
        v->span = NULL;
        ckpt__strided_init(&v->it, b->shape, b->strides, b->ndim, ckpt_dtype_size(b->dtype));
        if (lane && !ckpt__strided_is_contiguous(&v->it))
            status = fetch_span(v, b, lane, err);
    }
    if (status < 0)
        return status;
    if (lane && ckpt__strided_is_contiguous(&v->it))
        return read_device(v, b, lane, offset, dst, n, err);
    ckpt__strided_gather(&v->it, v->span ? v->span : b->data, dst, n);
    return CKPT_OK;
}

static ckpt_status read_payload(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                                ckpt_error *err)
{
    ckpt__live *v = ctx;
    size_t i = kind == CKPT__STORAGE ? number : v->index->tensors[number].storage;
    const char *kept = v->index->storages[i].extent.memory;
    if (kept) { /* the value of a hook */
        memcpy(dst, kept + offset, n);
        return CKPT_OK;
    }
    return ckpt__fail_tensor(err, read_binding(v, i, offset, dst, n, err), v->state->bindings[i].name);
}

ckpt_status ckpt__live_open(ckpt__live *l, const ckpt_state *state, const ckpt__index *index, ckpt__payload *payload,
                            ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    ckpt__caller_streams callers = ckpt__state_streams(state);
    *l = (ckpt__live){.state = state, .index = index, .current = SIZE_MAX};
    *payload = (ckpt__payload){.read = read_payload, .ctx = l};
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++) {
        ckpt__lane *lane;
        status = ckpt__lanes_get(&l->lanes, &callers, ckpt__memory_device(&state->bindings[i].memory), &lane, err);
    }
    return status;
}

ckpt_status ckpt__live_close(ckpt__live *l, ckpt_error *err)
{
    free(l->span);
    l->span = NULL;
    l->current = SIZE_MAX;
    return ckpt__lanes_close(&l->lanes, err);
}
