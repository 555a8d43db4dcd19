/* save/snapshot.c - memory for the copy, and the copy. The trainer stands still for as long as this takes, so the
 * copies from the devices are queued first and run while threads copy what the host holds. */
#include "save/snapshot.h"

#include <stdlib.h>
#include "base/pages.h"
#include "base/stream_copy.h"
#include "base/workers.h"
#include "engine/fetch.h"
#include "io/store.h"
#include "state/state.h"

enum { HOST, PINNED, PARTS }; /* storages of the copies' index */

/* ---- memory */

static ckpt_status map_host(ckpt__snapshot *s, uint64_t size, ckpt_error *err)
{
    s->host = ckpt__pages_map(size, &s->host_size);
    return s->host ? CKPT_OK : ckpt__fail_memory(err, "snapshot (its pages)", size);
}

static void drop_host(ckpt__snapshot *s)
{
    ckpt__pages_unmap(s->host, s->host_size);
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
                          limit ? "" : ", and a snapshot takes half at most (snapshot_limit sets another bound)");
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

/* Is each tensor where it was, and bound as it was? */
static bool is_planned(const ckpt__snapshot *s, const ckpt_state *state)
{
    return s->copy.plan && s->version == state->version;
}

bool ckpt__snapshot_is_ready(const ckpt__snapshot *s, const ckpt_state *state)
{
    return is_planned(s, state) && !state->value_count && s->kept->storages[HOST].extent.size <= s->host_size &&
           s->kept->storages[PINNED].extent.size <= s->pinned_size;
}

static void forget_plan(ckpt__snapshot *s)
{
    ckpt__same_free(&s->copy);
    ckpt__index_free(s->memory);
    ckpt__index_free(s->kept);
    s->memory = s->kept = NULL;
    free(s->copies);
    free(s->sent);
    s->copies = NULL;
    s->sent = NULL;
    s->copy_count = s->copy_capacity = s->sent_count = s->sent_capacity = 0;
}

/* Do the elements lie on both sides in the same way? Then the bytes that they span, else 0. */
static uint64_t span_alike(const ckpt__copy_box *box, uint64_t item, uint64_t *bytes)
{
    uint64_t span = *bytes = item;
    for (uint32_t i = 0; i < box->n; i++) {
        if (box->from_stride[i] != box->to_stride[i])
            return 0;
        span += (box->size[i] - 1) * box->from_stride[i];
        *bytes *= box->size[i];
    }
    return span;
}

/* Joins the one before where it goes on on both sides, or where both are the plan's. */
static ckpt_status note_copy(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    ckpt__snapshot *s = ctx;
    uint32_t item = ckpt__plan_op_of(s->copy.plan, c->op)->from_size;
    uint64_t bytes, span = span_alike(&c->box, item, &bytes);
    ckpt__host_copy now = {.to = c->to_at, .size = item}, *last = s->copy_count ? &s->copies[s->copy_count - 1] : NULL;
    if (span && span == bytes) {
        now.from = (const char *)s->memory->storages[c->from].extent.memory + c->from_at;
        now.size = span;
    }
    for (uint32_t i = 0; !now.from && i < c->box.n; i++)
        now.size += (c->box.size[i] - 1) * c->box.to_stride[i];
    uint64_t end = now.to + now.size, last_end = last ? last->to + last->size : 0;
    bool joins = last && (now.from ? last->from && now.to == last_end && now.from == last->from + last->size
                                   : !last->from && now.to <= last_end);
    if (joins) {
        last->size = end > last_end ? end - last->to : last->size;
        return CKPT_OK;
    }
    if (!ckpt__grow(&s->copies, &s->copy_capacity, s->copy_count + 1, sizeof *s->copies))
        return ckpt__fail_memory(err, "snapshot", s->copy_count * sizeof *s->copies);
    s->copies[s->copy_count++] = now;
    return CKPT_OK;
}

/* The same for what comes from devices. A copy with gaps brings them along, and so does one that joins another one behind a gap. */
static ckpt_status note_sent(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    ckpt__snapshot *s = ctx;
    const ckpt__extent *e = &s->memory->storages[c->from].extent;
    uint32_t item = ckpt__plan_op_of(s->copy.plan, c->op)->from_size;
    uint64_t bytes, span = span_alike(&c->box, item, &bytes);
    ckpt__device_copy now = {.to = c->to_at, .size = span, .device = e->device, .bond = c->bond};
    ckpt__device_copy *last = s->sent_count ? &s->sent[s->sent_count - 1] : NULL;
    if (span) {
        now.from = (const char *)e->memory + c->from_at;
        now.allocation = e->allocation;
    } else {
        now.size = item;
        for (uint32_t i = 0; i < c->box.n; i++)
            now.size += (c->box.size[i] - 1) * c->box.to_stride[i];
    }
    bool same = last && last->device == now.device && !last->from == !now.from;
    bool joins = same && (now.from ? now.allocation && now.allocation == last->allocation &&
                                         now.from >= last->from + last->size &&
                                         (uint64_t)(now.from - last->from) == now.to - last->to
                                   : now.to <= last->to + last->size);
    if (joins) {
        uint64_t end = now.to + now.size;
        last->size = end - last->to > last->size ? end - last->to : last->size;
        return CKPT_OK;
    }
    if (!ckpt__grow(&s->sent, &s->sent_capacity, s->sent_count + 1, sizeof *s->sent))
        return ckpt__fail_memory(err, "snapshot", s->sent_count * sizeof *s->sent);
    s->sent[s->sent_count++] = now;
    return CKPT_OK;
}

static ckpt_status plan_copy(ckpt__snapshot *s, const ckpt_state *state, ckpt_error *err)
{
    ckpt__snapshot_need need;
    if (is_planned(s, state))
        return CKPT_OK;
    forget_plan(s);
    ckpt__snap *snaps = malloc((state->count + 1) * sizeof *snaps);
    ckpt_status status = snaps && ckpt__snapshot_lay_out(state, snaps, &need)
                             ? CKPT_OK
                             : ckpt__fail_memory(err, "snapshot", state->count * sizeof *snaps);
    if (status == CKPT_OK)
        status = ckpt__state_memory(state, NULL, &s->memory, err);
    if (status == CKPT_OK)
        status = ckpt__snapshot_index(s->memory, snaps, &need, &s->kept, err);
    ckpt__same_want want = {.from = s->memory, .to = s->kept, .count = state->count};
    if (status == CKPT_OK)
        status = ckpt__same_new(&want, &s->copy, err);
    free(snaps);
    if (status == CKPT_OK)
        status = ckpt__plan_target(s->copy.plan, HOST, 0, need.host, note_copy, s, err);
    if (status == CKPT_OK)
        status = ckpt__plan_target(s->copy.plan, PINNED, 0, need.pinned, note_sent, s, err);
    if (status < 0)
        forget_plan(s);
    s->version = state->version;
    return status;
}

/* ---- from devices: all copies are queued before any is waited for */

typedef struct queue {
    ckpt__snapshot *s;
    ckpt__lanes lanes;
    ckpt__caller_streams callers;
} queue;

static ckpt_status queue_box(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    queue *q = ctx;
    const ckpt__extent *e = &q->s->memory->storages[c->from].extent;
    uint32_t item = ckpt__plan_op_of(q->s->copy.plan, c->op)->from_size;
    const char *from = (const char *)e->memory + c->from_at, *name = ckpt__plan_name_of(q->s->copy.plan, c->bond);
    ckpt__lane *lane;
    ckpt_status status = ckpt__lanes_get(&q->lanes, &q->callers, q->s->memory->devices[e->device], &lane, err);
    if (status == CKPT_OK)
        status = ckpt__fail_tensor(
            err, ckpt__fetch_box(&q->lanes, lane, &c->box, item, from, q->s->pinned + c->to_at, true, err),
            ckpt__s(name));
    return status;
}

static ckpt_status queue_all(queue *q, ckpt_error *err)
{
    const ckpt__snapshot *s = q->s;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->sent_count; i++) {
        const ckpt__device_copy *c = &s->sent[i];
        ckpt__lane *lane;
        if (!c->from) {
            status = ckpt__plan_target(s->copy.plan, PINNED, c->to, c->to + c->size, queue_box, q, err);
            continue;
        }
        status = ckpt__lanes_get(&q->lanes, &q->callers, s->memory->devices[c->device], &lane, err);
        if (status == CKPT_OK)
            status = ckpt__fail_tensor(
                err, lane->ops->to_host(lane->stream, s->pinned + c->to, c->from, (size_t)c->size, err),
                ckpt__s(ckpt__plan_name_of(s->copy.plan, c->bond)));
    }
    return status;
}

/* ---- from the host */

/* Each unit is so many bytes of the part: no element lies in two, as tensors begin at multiples of 64. Below the second number
 * a copy does well to stay in the cache, for the writer. */
enum { UNIT = 4 << 20, STREAMED = 8 << 20 };

static ckpt_status copy_strided(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    const ckpt__snapshot *s = ctx;
    const ckpt__op *op = ckpt__plan_op_of(s->copy.plan, c->op);
    const char *from = (const char *)s->memory->storages[c->from].extent.memory + c->from_at;
    return ckpt__box_move(op, &c->box, from, s->host + c->to_at, NULL, ckpt__plan_name_of(s->copy.plan, c->bond), err);
}

/* The first copy that ends behind a byte of the part. */
static size_t find_copy(const ckpt__snapshot *s, uint64_t at)
{
    size_t low = 0, high = s->copy_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->copies[middle].to + s->copies[middle].size <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static ckpt_status copy_unit(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    ckpt__snapshot *s = ctx;
    uint64_t size = s->kept->storages[HOST].extent.size, begin = (uint64_t)unit * UNIT,
             end = size - begin < UNIT ? size : begin + UNIT;
    bool streamed = size > STREAMED;
    ckpt_status status = CKPT_OK;
    (void)worker;
    for (size_t i = find_copy(s, begin); status == CKPT_OK && i < s->copy_count && s->copies[i].to < end; i++) {
        const ckpt__host_copy *c = &s->copies[i];
        uint64_t first = c->to > begin ? c->to : begin, last = c->to + c->size < end ? c->to + c->size : end;
        if (!c->from)
            status = ckpt__plan_target(s->copy.plan, HOST, first, last, copy_strided, s, err);
        else if (streamed)
            ckpt__copy_stream_part(s->host + first, c->from + (first - c->to), (size_t)(last - first));
        else
            memcpy(s->host + first, c->from + (first - c->to), (size_t)(last - first));
    }
    ckpt__copy_stream_end();
    return status;
}

static ckpt_status copy_all(ckpt__snapshot *s, const ckpt_state *state, unsigned threads, ckpt_error *err)
{
    queue q = {.s = s, .callers = ckpt__state_streams(state)};
    ckpt_status status = queue_all(&q, err);
    size_t units = (size_t)((s->kept->storages[HOST].extent.size + UNIT - 1) / UNIT);
    if (status == CKPT_OK)
        status = ckpt__workers_run(threads ? threads : ckpt__workers_usual(), units, copy_unit, s, err);
    ckpt_status closed = ckpt__lanes_close(&q.lanes, status < 0 ? NULL : err);
    return status < 0 ? status : closed;
}

static void stop_reading(ckpt__snapshot *s)
{
    ckpt__pull_free(s->pull);
    ckpt__same_free(&s->same);
    s->pull = NULL;
}

ckpt_status ckpt__snapshot_take(ckpt__snapshot *s, const ckpt_state *state, uint64_t limit, unsigned threads,
                                const char *label, ckpt_error *err)
{
    bool renewed = false;
    if (!is_planned(s, state)) {
        stop_reading(s);
        ckpt__state_index_free(&s->saved);
    }
    ckpt_status status = ckpt__state_index_renew(state, label, &s->saved, &renewed, err);
    if (!renewed || status < 0)
        stop_reading(s); /* its plan is of the index of before */
    if (status == CKPT_OK && !renewed)
        status = plan_copy(s, state, err);
    if (status < 0)
        return status;
    ckpt__index *x = s->kept;
    const ckpt__snapshot_need need = {.host = x->storages[HOST].extent.size, .pinned = x->storages[PINNED].extent.size};
    status = ckpt__snapshot_reserve(s, &need, limit, err);
    x->storages[HOST].extent.place = s->host;
    x->storages[PINNED].extent.place = s->pinned;
    x->storage_count = PARTS; /* the values of hooks are new ones each time */
    x->tensor_count = state->count;
    if (status == CKPT_OK && !ckpt__state_add_values(x, &s->saved))
        status = ckpt__fail_memory(err, "snapshot", 0);
    return status == CKPT_OK ? copy_all(s, state, threads, err) : status;
}

/* ---- reading it */

static ckpt_status begin_reading(ckpt__snapshot *s, ckpt_error *err)
{
    const ckpt__same_want want = {.from = s->kept,
                                  .to = s->saved.index,
                                  .count = s->kept->tensor_count,
                                  .skip = s->saved.bindings,
                                  .skipped = s->saved.aliases,
                                  .whole = true};
    ckpt_status status = ckpt__same_new(&want, &s->same, err);
    if (status == CKPT_OK)
        status = ckpt__pull_new(s->same.plan, NULL, false, 0, &s->pull, err);
    if (status < 0)
        ckpt__same_free(&s->same);
    return status;
}

static ckpt_status read_snapshot(void *ctx, ckpt__segment_kind kind, size_t number, uint64_t offset, void *dst,
                                 size_t n, ckpt_error *err)
{
    ckpt__snapshot *s = ctx;
    size_t storage = kind == CKPT__STORAGE ? number : s->saved.index->tensors[number].storage;
    ckpt_status status = s->pull ? CKPT_OK : begin_reading(s, err);
    return status == CKPT_OK ? ckpt__pull_bytes(s->pull, (uint32_t)storage, offset, offset + n, dst, NULL, err)
                             : status;
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
    stop_reading(s);
    forget_plan(s);
    ckpt__state_index_free(&s->saved);
    drop_host(s);
    drop_pinned(s);
    memset(s, 0, sizeof *s);
}
