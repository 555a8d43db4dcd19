/* engine/execute.c - runs a plan. Host places are read into directly where one copy takes a whole storage. */
#include "engine/execute.h"

#include <stdlib.h>
#include "engine/checked.h"
#include "engine/stream.h"

/* One run of a plan. The plan is run group by group: all copies of one storage, then those of the next. */
typedef struct runner {
    const ckpt__source *source; /* borrowed, as are the index, the lanes and the progress (NULL: none) */
    const ckpt__index *index;
    ckpt__lanes *lanes;
    const ckpt_progress *progress;
    uint64_t done, total; /* bytes of the storages */
    bool check;           /* compare CRCs */
    /* the storage that is being read */
    ckpt__transfer *copies; /* the plan's: the first of its copies */
    size_t count;           /* of its copies */
    ckpt__transfer *direct; /* the one host copy that takes all of it; else NULL */
    bool any_device;
    ckpt__slot *slot; /* the block that is being filled: the lanes' */
    void *host_block; /* heap, owned: CKPT__BLOCK bytes, where neither a place nor a slot takes the
                                   * bytes; NULL before */
} runner;

static ckpt_status lane_of(runner *r, ckpt_device device, ckpt__lane **lane, ckpt_error *err)
{
    return ckpt__lanes_get(r->lanes, NULL, device, lane, err);
}

static ckpt_status progressed(runner *r, uint64_t n, ckpt_error *err)
{
    r->done += n;
    if (r->progress && r->progress->fn && r->progress->fn(r->progress->ctx, r->done, r->total))
        return ckpt__fail(err, CKPT_E_CANCELLED, "", "cancelled by the progress callback");
    return CKPT_OK;
}

/* ---- linear copies: bytes go over as they are */

static ckpt_status next_buffer(void *ctx, uint64_t offset, size_t n, void **buffer, ckpt_error *err)
{
    runner *r = ctx;
    (void)n;
    if (r->direct) {
        r->direct->done = CKPT__TORN;
        *buffer = (char *)r->direct->data + offset;
        return CKPT_OK;
    }
    if (r->any_device) {
        ckpt_status status = ckpt__lanes_slot(r->lanes, &r->slot, err);
        if (status == CKPT_OK)
            *buffer = r->slot->data;
        return status;
    }
    if (!r->host_block && !(r->host_block = malloc(CKPT__BLOCK)))
        return ckpt__fail_memory(err, "read buffer", CKPT__BLOCK);
    *buffer = r->host_block;
    return CKPT_OK;
}

static ckpt_status deliver(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    runner *r = ctx;
    for (size_t i = 0; i < r->count && !r->direct; i++) {
        ckpt__transfer *c = &r->copies[i];
        uint64_t a = offset > c->begin ? offset : c->begin;
        uint64_t b = offset + n < c->begin + c->size ? offset + n : c->begin + c->size;
        if (a >= b)
            continue;
        const char *from = (const char *)data + (a - offset);
        char *to = (char *)c->data + (a - c->begin);
        ckpt__lane *lane;
        ckpt_status status = lane_of(r, c->device, &lane, err);
        if (status < 0)
            return status;
        c->done = CKPT__TORN;
        if (!lane)
            memcpy(to, from, (size_t)(b - a));
        else if ((status = lane->ops->to_device(lane->stream, to, from, (size_t)(b - a), err)) < 0 ||
                 (status = ckpt__lanes_mark(r->lanes, r->slot, lane, err)) < 0)
            return ckpt__fail_tensor(err, status, c->name);
    }
    return progressed(r, n, err);
}

static ckpt_status run_linear(runner *r, size_t storage, ckpt_error *err)
{
    uint64_t size = r->index->storages[storage].extent.size;
    r->direct = NULL;
    r->any_device = false;
    for (size_t i = 0; i < r->count; i++)
        r->any_device |= r->copies[i].device.type == CKPT_DEVICE_CUDA;
    if (r->count == 1 && !r->any_device && r->copies[0].begin == 0 && r->copies[0].size == size)
        r->direct = &r->copies[0];
    return ckpt__read_storage_into(r->source, r->index, storage, r->check, next_buffer, deliver, r, err);
}

/* ---- the others: gathered, swapped, converted or scattered, one tensor at a time */

/* One copy that is not linear. */
typedef struct shaped {
    runner *r; /* borrowed, as is the copy */
    ckpt__transfer *copy;
    ckpt__strided place; /* how far the copy's place is filled */
    void *converted;     /* heap, owned: a block in the dtype of the place; NULL: no conversion yet */
    size_t room;         /* bytes of `converted` */
    bool inexact;        /* some value was rounded */
} shaped;

/* Contiguous pieces of the place, each a copy of its own; rows of one pitch go as one 2D copy. */
static ckpt_status scatter_device(shaped *s, ckpt__lane *lane, const char *data, size_t n, ckpt_error *err)
{
    runner *r = s->r;
    while (n) {
        ckpt__slot *slot;
        size_t block = n < CKPT__BLOCK ? n : CKPT__BLOCK, at = 0;
        ckpt_status status = ckpt__lanes_slot(r->lanes, &slot, err);
        if (status < 0)
            return status;
        memcpy(slot->data, data, block);
        while (status == CKPT_OK && at < block) {
            uint64_t offset, got;
            uint64_t rows = (block - at) / s->place.run;
            if (s->place.ndim && s->place.partial == 0 && rows > 1 && lane->ops->to_device_2d) {
                uint32_t last = s->place.ndim - 1;
                uint64_t in_row = s->place.shape[last] - s->place.index[last];
                rows = rows < in_row ? rows : in_row;
                offset = s->place.offset;
                status = lane->ops->to_device_2d(lane->stream, (char *)s->copy->data + offset,
                                                 (size_t)s->place.stride[last], (char *)slot->data + at,
                                                 (size_t)s->place.run, (size_t)s->place.run, (size_t)rows, err);
                at += (size_t)(rows * s->place.run);
                for (uint64_t i = 0; i < rows; i++)
                    ckpt__strided_next(&s->place, UINT64_MAX, &offset, &got);
                continue;
            }
            if (!ckpt__strided_next(&s->place, block - at, &offset, &got))
                break;
            status = lane->ops->to_device(lane->stream, (char *)s->copy->data + offset, (char *)slot->data + at,
                                          (size_t)got, err);
            at += (size_t)got;
        }
        if (status == CKPT_OK)
            status = ckpt__lanes_mark(r->lanes, slot, lane, err);
        if (status < 0)
            return status;
        data += block;
        n -= block;
    }
    return CKPT_OK;
}

static ckpt_status place_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    shaped *s = ctx;
    ckpt__transfer *c = s->copy;
    (void)offset;
    if (c->from != c->to) {
        size_t count = n / ckpt_dtype_size(c->from), size = count * ckpt_dtype_size(c->to);
        if (size > s->room) { /* the first block of a view may be the smaller part of a read */
            free(s->converted);
            s->room = 0;
            if (!(s->converted = malloc(size)))
                return ckpt__fail_memory(err, "conversion", size);
            s->room = size;
        }
        if (!ckpt__convert(c->from, data, c->to, s->converted, count, &s->inexact))
            return ckpt__fail(err, CKPT_E_UNSUPPORTED, "", "there is no conversion from %s to %s",
                              ckpt_dtype_name(c->from), ckpt_dtype_name(c->to));
        data = s->converted;
        n = size;
    }
    ckpt__lane *lane;
    ckpt_status status = lane_of(s->r, c->device, &lane, err);
    if (status < 0)
        return status;
    c->done = CKPT__TORN;
    if (lane)
        return ckpt__fail_tensor(err, scatter_device(s, lane, data, n, err), c->name);
    ckpt__strided_scatter(&s->place, c->data, data, n);
    return CKPT_OK;
}

static ckpt_status run_shaped(runner *r, size_t storage, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    /* Before anything is touched, also where the one tensor is the whole storage and is cast, say. */
    if (r->check)
        status =
            ckpt__check_storage(r->source, r->index, storage, UINT64_MAX, r->index->storages[storage].name.data, err);
    for (size_t i = 0; status == CKPT_OK && i < r->count; i++) {
        shaped s = {.r = r, .copy = &r->copies[i]};
        ckpt__strided_init(&s.place, s.copy->shape, s.copy->strides, s.copy->ndim, ckpt_dtype_size(s.copy->to));
        status = ckpt__read_tensor(r->source, r->index, s.copy->tensor, r->check, place_block, &s, err);
        free(s.converted);
    }
    return status == CKPT_OK ? progressed(r, r->index->storages[storage].extent.size, err) : status;
}

/* A CRC of the tensor's that its storage's does not tell: seen only where the tensor is read as one. */
static bool has_own_crc(const ckpt__index *x, const ckpt__transfer *c)
{
    const ckpt__tensor *t = &x->tensors[c->tensor];
    const ckpt__extent *e = &x->storages[c->storage].extent;
    return t->has_crc && !(e->has_crc && e->crc == t->crc && c->begin == 0 && c->size == e->size);
}

ckpt_status ckpt__execute(ckpt__transfers *plan, const ckpt__source *source, const ckpt__index *index, bool check,
                          ckpt__lanes *lanes, const ckpt_progress *progress, ckpt_error *err)
{
    runner r = {
        .source = source, .index = index, .lanes = lanes, .progress = progress, .total = plan->bytes, .check = check};
    ckpt_status status = CKPT_OK;
    size_t end;
    for (size_t first = 0; status == CKPT_OK && first < plan->count; first = end) {
        bool linear = true;
        ckpt__transfers_group(plan, first, &end);
        r.copies = &plan->copies[first];
        r.count = end - first;
        size_t storage = r.copies[0].storage;
        for (size_t i = 0; storage != SIZE_MAX && i < r.count; i++)
            linear &= r.copies[i].linear && !(check && has_own_crc(index, &r.copies[i]));
        if (storage != SIZE_MAX)
            status = linear ? run_linear(&r, storage, err) : run_shaped(&r, storage, err);
        for (size_t i = 0; status == CKPT_OK && i < r.count; i++)
            r.copies[i].done = CKPT__COMPLETE;
    }
    /* What is still on its way reads from our buffers and writes to the trainer's memory: it is waited for in any case. */
    for (size_t i = 0; i < lanes->count; i++) {
        ckpt__lane *lane = &lanes->lanes[i];
        ckpt_status synced = lane->ops->stream_sync(lane->stream, status < 0 ? NULL : err);
        if (synced < 0) {
            for (size_t k = 0; k < plan->count; k++)
                if (ckpt_device_equal(plan->copies[k].device, lane->device) && plan->copies[k].done == CKPT__COMPLETE)
                    plan->copies[k].done = CKPT__TORN;
            status = status < 0 ? status : synced;
        }
    }
    free(r.host_block);
    return status;
}

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
    for (uint64_t at = 0; status == CKPT_OK && at < n; at += CKPT__BLOCK) {
        size_t size = n - at < CKPT__BLOCK ? (size_t)(n - at) : CKPT__BLOCK;
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
