/* save/snapshot.c - memory for the copy, and the copy. The trainer stands still for as long as this takes, so it is one
 * memcpy of what the host holds, beside copies from the devices that run at the same time. */
#include "save/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "state/state.h"
#include "io/store.h"

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

static bool on_device(const ckpt__binding *b)
{
    return ckpt__memory_device(&b->memory).type == CKPT_DEVICE_CUDA;
}

/* What a tensor takes: on a device the bytes from its first to its last element come over as they lie. */
static uint64_t room_of(const ckpt__binding *b)
{
    return on_device(b) ? b->span : b->nbytes;
}

/* Places in the two memories; false where a sum does not fit into 64 bits. snaps NULL: only the sums. */
static bool lay_out(const ckpt_state *state, ckpt__snap *snaps, ckpt__snapshot_need *need)
{
    *need = (ckpt__snapshot_need){.host = 0};
    for (size_t i = 0; i < state->count; i++) {
        const ckpt__binding *b = &state->bindings[i];
        bool pinned = on_device(b);
        uint64_t *end = pinned ? &need->pinned : &need->host, size = room_of(b);
        if (!ckpt__add(size, ALIGN - 1, &size))
            return false;
        if (snaps)
            snaps[i] = (ckpt__snap){*end, pinned, b->ndim, b->shape, b->strides, ckpt_dtype_size(b->dtype)};
        if (!ckpt__add(*end, size / ALIGN * ALIGN, end))
            return false;
    }
    return true;
}

bool ckpt__snapshot_measure(const ckpt_state *state, ckpt__snapshot_need *need)
{
    bool fits = lay_out(state, NULL, need);
    for (size_t i = 0; fits && i < state->value_count; i++)
        fits = ckpt__add(need->values, state->values[i].last, &need->values);
    return fits;
}

/* ---- memory */

/* Pages are filled in here, once: their first touch costs more than the copy itself. */
static bool populate(char *p, size_t size)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(p, size, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
#endif
    for (size_t at = 0; at < size; at += 4096)
        ((volatile char *)p)[at] = 0;
    return true;
}

static ckpt_status map_host(ckpt__snapshot *s, uint64_t size, ckpt_error *err)
{
    if (!ckpt__add(size, HUGE_PAGE - 1, &size) || size > SIZE_MAX / 2)
        return ckpt__fail_memory(err, "snapshot", size);
    size = size / HUGE_PAGE * HUGE_PAGE;
    char *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return ckpt__fail_memory(err, "snapshot (mmap)", size);
    (void)!madvise(p, (size_t)size, MADV_HUGEPAGE); /* small pages do as well, slower */
    (void)!madvise(p, (size_t)size, MADV_DONTDUMP);
    if (!populate(p, (size_t)size)) {
        munmap(p, (size_t)size);
        return ckpt__fail_memory(err, "snapshot (its pages)", size);
    }
    s->host = p;
    s->host_size = size;
    return CKPT_OK;
}

static void drop_host(ckpt__snapshot *s)
{
    if (s->host)
        munmap(s->host, (size_t)s->host_size);
    s->host = NULL;
    s->host_size = 0;
}

static void drop_pinned(ckpt__snapshot *s)
{
    if (s->pinned)
        s->pinned_ops->host_free(s->pinned);
    s->pinned = NULL;
    s->pinned_size = 0;
}

static ckpt_status check_limit(const ckpt__snapshot *s, uint64_t need, uint64_t limit, ckpt_error *err)
{
    if (limit && need > limit)
        return ckpt__fail(err, CKPT_E_LIMIT, "snapshot", "the state has %llu bytes, snapshot_limit is %llu",
                          (unsigned long long)need, (unsigned long long)limit);
    uint64_t have = s->host_size + s->pinned_size, free_bytes = ckpt__memory_available();
    if (free_bytes != UINT64_MAX && need > have && need - have > free_bytes / (limit ? 1 : 2))
        return ckpt__fail(err, CKPT_E_NO_MEMORY, "snapshot",
                          "the state has %llu bytes, and %llu bytes of host memory are free%s",
                          (unsigned long long)need, (unsigned long long)free_bytes,
                          limit ? "" : ", of which a snapshot takes half at most (snapshot_limit sets another bound)");
    return CKPT_OK;
}

static ckpt_status pin(ckpt__snapshot *s, uint64_t size, ckpt_error *err)
{
    void *p = NULL;
    s->pinned_ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    if (!s->pinned_ops || size > SIZE_MAX / 2)
        return ckpt__fail_memory(err, "snapshot", size);
    ckpt_status status = s->pinned_ops->host_alloc((size_t)size, &p, err);
    if (status == CKPT_OK) {
        s->pinned = p;
        s->pinned_size = size;
    }
    return status;
}

ckpt_status ckpt__snapshot_reserve(ckpt__snapshot *s, const ckpt__snapshot_need *need, uint64_t limit, ckpt_error *err)
{
    uint64_t all = UINT64_MAX;
    if (need->host <= s->host_size && need->pinned <= s->pinned_size && !need->values)
        return CKPT_OK;
    ckpt_status status = ckpt__add(need->host, need->pinned, &all) && ckpt__add(all, need->values, &all)
                             ? check_limit(s, all, limit, err)
                             : ckpt__fail_memory(err, "snapshot", all);
    if (status == CKPT_OK && need->host > s->host_size) {
        drop_host(s);
        status = map_host(s, need->host, err);
    }
    if (status == CKPT_OK && need->pinned > s->pinned_size) {
        drop_pinned(s);
        status = pin(s, need->pinned, err);
    }
    return status;
}

/* ---- the copy */

static ckpt_status start_device_copies(ckpt__snapshot *s, const ckpt_state *state, ckpt__lanes *lanes, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    ckpt__caller_streams callers = ckpt__state_streams(state);
    for (size_t i = 0; status == CKPT_OK && i < state->count; i++) {
        const ckpt__binding *b = &state->bindings[i];
        ckpt__lane *lane;
        if (!on_device(b))
            continue;
        status = ckpt__lanes_get(lanes, &callers, ckpt__memory_device(&b->memory), &lane, err);
        if (status == CKPT_OK && b->span)
            status = ckpt__fail_tensor(
                err, lane->ops->to_host(lane->stream, s->pinned + s->snaps[i].offset, b->data, (size_t)b->span, err),
                b->name);
    }
    return status;
}

static void copy_host(ckpt__snapshot *s, const ckpt_state *state)
{
    for (size_t i = 0; i < state->count; i++) {
        const ckpt__binding *b = &state->bindings[i];
        ckpt__strided it;
        if (on_device(b) || b->nbytes == 0)
            continue;
        ckpt__strided_init(&it, b->shape, b->strides, b->ndim, ckpt_dtype_size(b->dtype));
        if (ckpt__strided_is_contiguous(&it))
            memcpy(s->host + s->snaps[i].offset, b->data, (size_t)b->nbytes);
        else
            ckpt__strided_gather(&it, b->data, s->host + s->snaps[i].offset, (size_t)b->nbytes);
    }
}

ckpt_status ckpt__snapshot_take(ckpt__snapshot *s, const ckpt_state *state, uint64_t limit, const char *label,
                                ckpt_error *err)
{
    ckpt__snapshot_need need;
    ckpt__lanes lanes = {.count = 0};
    ckpt__state_index_free(&s->saved);
    ckpt_status status = ckpt__state_index_take(state, false, label, &s->saved, err);
    if (status == CKPT_OK && !ckpt__grow(&s->snaps, &s->capacity, state->count + 1, sizeof *s->snaps))
        status = ckpt__fail_memory(err, "snapshot", state->count * sizeof *s->snaps);
    if (status == CKPT_OK && !lay_out(state, s->snaps, &need))
        status = ckpt__fail_memory(err, "snapshot", UINT64_MAX);
    if (status == CKPT_OK)
        status = ckpt__snapshot_reserve(s, &need, limit, err);
    if (status < 0)
        return status;
    s->current = SIZE_MAX;
    status = start_device_copies(s, state, &lanes, err);
    if (status == CKPT_OK)
        copy_host(s, state);
    ckpt_status closed = ckpt__lanes_close(&lanes, status < 0 ? NULL : err);
    return status < 0 ? status : closed;
}

/* ---- reading it */

static ckpt_status read_snapshot(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst,
                                 size_t n, ckpt_error *err)
{
    ckpt__snapshot *s = ctx;
    (void)err;
    size_t i = kind == CKPT__STORAGE ? number : s->saved.index->tensors[number].storage;
    const char *kept = s->saved.index->storages[i].extent.memory;
    if (kept) { /* the value of a hook */
        memcpy(dst, kept + offset, n);
        return CKPT_OK;
    }
    const ckpt__snap *snap = &s->snaps[i];
    if (!snap->pinned) {
        memcpy(dst, s->host + snap->offset + offset, n);
        return CKPT_OK;
    }
    if (offset == 0 || s->current != i) {
        s->current = i;
        ckpt__strided_init(&s->it, snap->shape, snap->strides, snap->ndim, snap->item);
    }
    ckpt__strided_gather(&s->it, s->pinned + snap->offset, dst, n);
    return CKPT_OK;
}

void ckpt__snapshot_payload(ckpt__snapshot *s, ckpt__payload *payload)
{
    *payload = (ckpt__payload){.read = read_snapshot, .ctx = s};
}

uint64_t ckpt__snapshot_bytes(const ckpt__snapshot *s)
{
    return s->host_size + s->pinned_size + s->saved.blob_bytes;
}

void ckpt__snapshot_free(ckpt__snapshot *s)
{
    ckpt__state_index_free(&s->saved);
    drop_host(s);
    drop_pinned(s);
    free(s->snaps);
    memset(s, 0, sizeof *s);
}
