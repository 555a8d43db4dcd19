/* save/live.c - the bytes of a state that stands still while they are written: from host memory as they are, from a
 * device by way of pinned buffers, the next block on its way while one is written. */
#include "save/save.h"

#include <stdlib.h>
#include "engine/fetch.h"
#include "state/state.h"

enum { WINDOW = 32 << 20 }; /* bytes; of rows that lie apart on a device as many come over at a time */

/* ---- from a device */

static ckpt_status fetch_ahead(ckpt__live *v, const ckpt__extent *e, ckpt__lane *lane, uint64_t offset, ckpt_error *err)
{
    v->ahead_of = NULL;
    if (offset >= e->size)
        return CKPT_OK;
    size_t n = e->size - offset < CKPT__SLOT ? (size_t)(e->size - offset) : CKPT__SLOT;
    ckpt__slot *slot;
    ckpt_status status = ckpt__lanes_slot(&v->lanes, &slot, err);
    if (status == CKPT_OK)
        status = lane->ops->to_host(lane->stream, slot->data, (const char *)e->memory + offset, n, err);
    if (status == CKPT_OK)
        status = ckpt__lanes_mark(&v->lanes, slot, lane, err);
    if (status == CKPT_OK) {
        v->ahead_of = e;
        v->ahead = slot;
        v->ahead_offset = offset;
        v->ahead_size = n;
    }
    return status;
}

/* Side by side: the next block is on its way while this one is written. */
static ckpt_status fetch_run(ckpt__live *v, const ckpt__extent *e, ckpt__lane *lane, uint64_t offset, char *dst,
                             uint64_t n, ckpt_error *err)
{
    while (n) {
        ckpt_status status = CKPT_OK;
        if (v->ahead_of != e || offset < v->ahead_offset || offset >= v->ahead_offset + v->ahead_size)
            status = fetch_ahead(v, e, lane, offset, err);
        if (status < 0)
            return status;
        ckpt__slot *slot = v->ahead;
        uint64_t begin = v->ahead_offset, end = begin + v->ahead_size;
        if ((status = ckpt__lanes_wait(&v->lanes, slot, err)) < 0)
            return status;
        size_t take = (size_t)(end - offset < n ? end - offset : n);
        if (offset + take == end) {
            if ((status = fetch_ahead(v, e, lane, end, err)) < 0)
                return status;
        }
        memcpy(dst, (const char *)slot->data + (offset - begin), take);
        dst += take;
        offset += take;
        n -= take;
    }
    return CKPT_OK;
}

static ckpt_status fetch(void *ctx, const ckpt__extent *e, uint64_t from_at, const ckpt__copy_box *box, uint32_t item,
                         void *to, const char *name, ckpt_error *err)
{
    ckpt__live *v = ctx;
    ckpt__lane *lane;
    const ckpt__op bytes = {.from_size = item};
    uint64_t n;
    ckpt_status status = ckpt__lanes_get(&v->lanes, NULL, v->memory->devices[e->device], &lane, err);
    if (status == CKPT_OK && ckpt__copy_box_is_run(box, &bytes, &n))
        status = fetch_run(v, e, lane, from_at, to, n, err);
    else if (status == CKPT_OK) {
        v->ahead_of = NULL; /* its buffer is given away */
        status = ckpt__fetch_box(&v->lanes, lane, box, item, (const char *)e->memory + from_at, to, false, err);
    }
    return status < 0 ? ckpt__fail_tensor(err, status, ckpt__s(name)) : status;
}

/* ---- what the writer asks for */

/* Does the writer want all bytes of the host just as they lie? So it is as a rule, and they are copied without a plan, of which a
 * second index of the state is the greater part. */
static bool is_plain(const ckpt_state *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const ckpt__binding *b = &s->bindings[i];
        if (ckpt__memory_device(&b->memory).type != CKPT_DEVICE_CPU || !ckpt__is_c_order(b->shape, b->strides, b->ndim))
            return false;
    }
    return true;
}

static ckpt_status read_plain(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                              ckpt_error *err)
{
    const ckpt__live *v = ctx;
    size_t storage = kind == CKPT__STORAGE ? number : v->saved->index->tensors[number].storage;
    const char *from = storage < v->saved->bindings ? v->state->bindings[storage].data
                                                    : v->saved->index->storages[storage].extent.memory;
    (void)err;
    memcpy(dst, from + offset, n);
    return CKPT_OK;
}

static bool is_strided_on_device(const ckpt__live *v, size_t storage)
{
    const ckpt_tensor_info *t = &v->memory->tensors[storage].info; /* of the storage's number */
    return v->memory->storages[storage].extent.device && !ckpt__is_c_order(t->shape, t->strides, t->ndim);
}

static ckpt_status fill_window(ckpt__live *v, size_t storage, uint64_t offset, ckpt_error *err)
{
    const ckpt__storage *s = &v->saved->index->storages[storage];
    size_t size = s->extent.size < WINDOW ? (size_t)s->extent.size : WINDOW;
    v->window_begin = v->window_end = 0;
    if (size > v->window_size) {
        free(v->window);
        v->window_size = 0;
        if (!(v->window = malloc(size)))
            return ckpt__fail_memory(err, s->name.data, size);
        v->window_size = size;
    }
    uint64_t end = s->extent.size - offset < v->window_size ? s->extent.size : offset + v->window_size;
    ckpt_status status = ckpt__pull_bytes(v->pull, (uint32_t)storage, offset, end, v->window, NULL, err);
    if (status == CKPT_OK) {
        v->window_of = storage;
        v->window_begin = offset;
        v->window_end = end;
    }
    return status;
}

static ckpt_status read_payload(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst, size_t n,
                                ckpt_error *err)
{
    ckpt__live *v = ctx;
    size_t storage = kind == CKPT__STORAGE ? number : v->saved->index->tensors[number].storage;
    char *to = dst;
    if (!is_strided_on_device(v, storage))
        return ckpt__pull_bytes(v->pull, (uint32_t)storage, offset, offset + n, dst, NULL, err);
    while (n) {
        ckpt_status status = CKPT_OK;
        if (v->window_of != storage || offset < v->window_begin || offset >= v->window_end)
            status = fill_window(v, storage, offset, err);
        if (status < 0)
            return status;
        size_t take = v->window_end - offset < n ? (size_t)(v->window_end - offset) : n;
        memcpy(to, v->window + (offset - v->window_begin), take);
        to += take;
        offset += take;
        n -= take;
    }
    return CKPT_OK;
}

ckpt_status ckpt__live_open(ckpt__live *l, const ckpt_state *state, const ckpt__state_index *saved,
                            ckpt__payload *payload, ckpt_error *err)
{
    ckpt__caller_streams callers = ckpt__state_streams(state);
    *l = (ckpt__live){.state = state, .saved = saved};
    *payload = (ckpt__payload){.read = is_plain(state) ? read_plain : read_payload, .ctx = l};
    if (payload->read == read_plain)
        return CKPT_OK;
    ckpt_status status = ckpt__state_memory(state, saved, &l->memory, err);
    for (size_t i = 1; status == CKPT_OK && i < l->memory->device_count; i++) {
        ckpt__lane *lane;
        status = ckpt__lanes_get(&l->lanes, &callers, l->memory->devices[i], &lane, err);
    }
    ckpt__same_want want = {
        .from = l->memory, .to = saved->index, .skip = saved->bindings, .skipped = saved->aliases, .whole = true};
    want.count = status == CKPT_OK ? l->memory->tensor_count : 0;
    if (status == CKPT_OK)
        status = ckpt__same_new(&want, &l->same, err);
    if (status == CKPT_OK)
        status = ckpt__pull_new(l->same.plan, NULL, false, 0, &l->pull, err);
    if (status == CKPT_OK)
        ckpt__pull_set_fetch(l->pull, fetch, l);
    return status;
}

ckpt_status ckpt__live_close(ckpt__live *l, ckpt_error *err)
{
    ckpt__pull_free(l->pull);
    ckpt__same_free(&l->same);
    ckpt__index_free(l->memory);
    free(l->window);
    l->pull = NULL;
    l->memory = NULL;
    l->window = NULL;
    return ckpt__lanes_close(&l->lanes, err);
}
