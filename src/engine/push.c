/* engine/push.c - runs a plan from the side of its source: range by range, read once, checked, and delivered. */
#include "engine/push.h"

#include <stdlib.h>
#include "base/stream_copy.h"
#include "base/workers.h"
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/decode.h"
#include "engine/push_priv.h"

/* All in bytes. What of a coded storage is decoded and checked at a time; neighbours that one read has, and a
 * storage that is checked before it is delivered; neighbours that a disk is asked for at a time; a hole that one reads through; and what an element may reach behind a range. */
enum {
    STEP = 256 << 10,
    TOGETHER = 512 << 10,
    TOGETHER_PAST = CKPT__DIRECT_MOST - 2 * CKPT__DIRECT_ALIGN,
    HOLE = 64 << 10,
    BEHIND = 15
};
/* Of a large push a run of so much is worth a copy past the cache; and how far ahead another copy asks for bytes. */
enum { LARGE_RUN = 4 << 10, AHEAD = 2 << 10 };

typedef struct worker worker;
/* One push: all threads share it. */
typedef struct pusher {
    const ckpt__push_want *want; /* borrowed */
    const ckpt__index *from, *to;
    ckpt__push_list list;
    ckpt__push_devices devices;
    uint64_t *left; /* heap, owned, one a bond: bytes of its target that are not yet written; atomic */
    bool *begun;    /* likewise: some byte was written, or was about to be */
    uint64_t range;
    worker *workers; /* heap, owned: one a thread */
    unsigned threads;
    uint64_t read;                /* bytes of the units that are done; atomic */
    ckpt__push_ways ways, groups; /* of large spans, and of spans that are read together */
    bool streams;                 /* copies go past the cache */
    ckpt__direct *direct;         /* owned; NULL: files are read through the page cache */
    uint64_t told;                /* the last that progress was told; the calling thread's */
} pusher;

/* One thread of it. */
struct worker {
    pusher *p;
    unsigned char *scratch; /* heap, owned: range + BEHIND bytes; NULL before it is needed */
    ckpt__push_way way;
};

/* Bytes of a storage in memory, from byte `base` of it on: what a delivery takes the elements from. */
typedef struct lying {
    worker *w;
    const unsigned char *bytes;
    uint64_t base;
    bool in_slot; /* of the worker's way */
    bool more;    /* what is delivered next lies behind it, and is not in the processor's cache yet */
    bool kept;    /* large copies stay in the cache; else they go past it */
} lying;

static const char *name_of_storage(const pusher *p, uint32_t storage, char name[200])
{
    ckpt_str s = p->from->storages[storage].name;
    return ckpt__escape(name, 200, s.data ? s.data : "storage", s.data ? s.size : strlen("storage"));
}

static const ckpt__extent *extent_of(const pusher *p, uint32_t storage)
{
    return ckpt__extent_known(p->from, storage); /* the list was made: all that is used was looked up */
}

static ckpt__lane *lane_of(const pusher *p, uint32_t storage)
{
    return p->devices.by_number[p->to->storages[storage].extent.device];
}

static ckpt_status need_scratch(worker *w, ckpt_error *err)
{
    size_t size = (size_t)w->p->range + BEHIND;
    size = size < TOGETHER ? TOGETHER : size;
    size = w->p->direct && size < TOGETHER_PAST ? TOGETHER_PAST : size;
    if (!w->scratch)
        w->scratch = malloc(size);
    return w->scratch ? CKPT_OK : ckpt__fail_memory(err, "read buffer", size);
}

/* ---- CRCs */

static ckpt_status wrong_crc(const pusher *p, uint32_t storage, uint32_t is, ckpt_error *err)
{
    char name[200];
    const ckpt__extent *e = extent_of(p, storage);
    ckpt__note_checked(e, is == e->crc);
    return is == e->crc ? CKPT_OK
                        : ckpt__fail(err, CKPT_E_DAMAGED, name_of_storage(p, storage, name),
                                     "the CRC-32 of its bytes is %08x; %08x was stored when it was written "
                                     "(copy the file again, or use an earlier checkpoint)",
                                     is, e->crc);
}

static bool is_checked(const pusher *p, uint32_t storage)
{
    const ckpt__extent *e = extent_of(p, storage);
    return p->want->check && ckpt__has_crc_of_its_own(e) && !e->missing;
}

/* All bytes of the span were read, of which s->crc is the CRC: is that of the storage known now? */
static ckpt_status compare(const pusher *p, const ckpt__push_span *s, ckpt_error *err)
{
    if (!is_checked(p, s->storage))
        return CKPT_OK;
    if (s->large == UINT32_MAX)
        return wrong_crc(p, s->storage, s->crc, err);
    ckpt__push_large *l = &p->list.larges[s->large];
    uint32_t crc = 0;
    if (__atomic_sub_fetch(&l->left, 1, __ATOMIC_ACQ_REL) > 0)
        return CKPT_OK;
    for (size_t i = l->first; i < l->first + l->count; i++) {
        const ckpt__push_span *part = &p->list.spans[i];
        crc = ckpt__crc32_combine(crc, part->crc, part->end - part->begin);
    }
    return wrong_crc(p, s->storage, crc, err);
}

/* ---- delivering */

static void begin_bond(pusher *p, uint32_t bond)
{
    if (!__atomic_load_n(&p->begun[bond], __ATOMIC_RELAXED))
        __atomic_store_n(&p->begun[bond], true, __ATOMIC_RELAXED);
}

static void end_copy(pusher *p, const ckpt__copy *c, const ckpt__op *op, const ckpt__convert_counts *cost)
{
    uint64_t bytes = op->to_size;
    for (uint32_t i = 0; i < c->box.n; i++)
        bytes *= c->box.size[i];
    __atomic_sub_fetch(&p->left[c->bond], bytes, __ATOMIC_RELAXED);
    ckpt__convert_counts *all = p->want->counts ? &p->want->counts[c->bond] : NULL;
    if (!all || op->from == op->to)
        return;
    __atomic_add_fetch(&all->elements, cost->elements, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->inexact, cost->inexact, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->out_of_range, cost->out_of_range, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->nan, cost->nan, __ATOMIC_RELAXED);
}

/* Of a device's failure the target is the object. */
static ckpt_status of_target(const pusher *p, const ckpt__copy *c, ckpt_status status, ckpt_error *err)
{
    const ckpt__bond *b = ckpt__plan_bond(p->want->plan, c->bond);
    return ckpt__fail_tensor(
        err, status, b->flags & CKPT__BOND_STORAGE ? p->to->storages[b->to].name : p->to->tensors[b->to].info.name);
}

static ckpt_status deliver_copy(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    const lying *l = ctx;
    pusher *p = l->w->p;
    const ckpt__op *op = ckpt__plan_op_of(p->want->plan, c->op);
    const unsigned char *from = l->bytes + (c->from_at - l->base);
    unsigned char *to = (unsigned char *)p->to->storages[c->to].extent.place + c->to_at;
    const char *what = ckpt__plan_name_of(p->want->plan, c->bond);
    ckpt__convert_counts cost = {0};
    ckpt__lane *lane = lane_of(p, c->to);
    ckpt_status status = CKPT_OK;
    uint64_t bytes;
    begin_bond(p, c->bond);
    bool large = !lane && p->streams && ckpt__op_is_plain(op) && ckpt__copy_box_is_run(&c->box, op, &bytes) &&
                 bytes >= LARGE_RUN;
    if (large && l->kept)
        ckpt__copy_ahead(to, from, (size_t)bytes, AHEAD);
    else if (large)
        ckpt__copy_stream_ahead(to, from, (size_t)bytes, l->more ? (size_t)bytes : 0);
    else if (!lane)
        status = ckpt__box_move(op, &c->box, from, to, p->want->counts ? &cost : NULL, what, err);
    else if (l->in_slot)
        status = of_target(p, c, ckpt__push_send(&l->w->way, lane, &c->box, op->to_size, from, to, err), err);
    else
        status = of_target(
            p, c, ckpt__push_pack(&l->w->way, lane, op, &c->box, from, to, p->want->counts ? &cost : NULL, what, err),
            err);
    if (status == CKPT_OK)
        end_copy(p, c, op, &cost);
    return status;
}

/* The elements that begin in [begin, end) of the storage, to all their places. */
static ckpt_status deliver(worker *w, uint32_t storage, uint64_t begin, uint64_t end, lying l, ckpt_error *err)
{
    l.w = w;
    if (w->p->want->look_only)
        return CKPT_OK;
    return ckpt__plan_source(w->p->want->plan, storage, begin, end, deliver_copy, &l, err);
}

/* ---- bytes in memory */

static ckpt_status push_memory(worker *w, ckpt__push_span *s, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(w->p, s->storage);
    const unsigned char *bytes = e->memory;
    s->crc = is_checked(w->p, s->storage) ? ckpt__crc32(0, bytes + s->begin, (size_t)(s->end - s->begin)) : 0;
    ckpt_status status = compare(w->p, s, err);
    return status == CKPT_OK ? deliver(w, s->storage, s->begin, s->end, (lying){.bytes = bytes}, err) : status;
}

/* ---- bytes of a file */

/* What becomes of a span, known before it is read. */
typedef struct look {
    const pusher *p;
    const ckpt__push_span *span;
    size_t count;          /* copies */
    bool devices, packed;  /* some go to a device; some of these must be put together first */
    uint64_t reach;        /* past the last byte of the elements that begin in it */
    unsigned char *direct; /* the one place in host memory that gets all of it as it is; NULL: there is no such */
    uint32_t bond;         /* of that */
    bool in_slot;          /* it is read into a slot: choose_buffer */
} look;

static ckpt_status look_at(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    look *l = ctx;
    const ckpt__op *op = ckpt__plan_op_of(l->p->want->plan, c->op);
    uint64_t end = c->from_at + op->from_size, bytes;
    bool device = lane_of(l->p, c->to) != NULL;
    (void)err;
    for (uint32_t i = 0; i < c->box.n; i++)
        end += (c->box.size[i] - 1) * c->box.from_stride[i];
    l->reach = end > l->reach ? end : l->reach;
    l->devices |= device;
    l->packed |= device && !ckpt__push_goes_as_is(op, &c->box);
    l->direct = NULL;
    if (l->count++ || device || !ckpt__op_is_plain(op) || !ckpt__copy_box_is_run(&c->box, op, &bytes) ||
        c->from_at != l->span->begin || bytes != l->span->end - l->span->begin)
        return CKPT_OK;
    l->direct = (unsigned char *)l->p->to->storages[c->to].extent.place + c->to_at;
    l->bond = c->bond;
    return CKPT_OK;
}

static ckpt_status look_at_span(const pusher *p, const ckpt__push_span *s, look *l, ckpt_error *err)
{
    l->p = p;
    l->span = s;
    return p->want->look_only ? CKPT_OK
                              : ckpt__plan_source(p->want->plan, s->storage, s->begin, s->end, look_at, l, err);
}

/* Reads the span, its CRC on the way. to NULL: into the scratch, piece upon piece. stays: that is where the bytes are wanted. */
static ckpt_status read_span(worker *w, ckpt__push_span *s, unsigned char *to, bool stays, ckpt_error *err)
{
    pusher *p = w->p;
    char name[200];
    ckpt__push_part part = {.source = p->want->source,
                            .extent = extent_of(p, s->storage),
                            .begin = s->begin,
                            .end = s->end,
                            .direct = p->direct};
    part.what = name_of_storage(p, s->storage, name);
    s->crc = 0;
    return ckpt__push_read(stays ? &p->ways : NULL, &part, to, w->scratch, is_checked(p, s->storage) ? &s->crc : NULL,
                           err);
}

static ckpt_status push_direct(worker *w, ckpt__push_span *s, const look *l, ckpt_error *err)
{
    begin_bond(w->p, l->bond);
    ckpt_status status = read_span(w, s, l->direct, true, err);
    if (status == CKPT_OK)
        __atomic_sub_fetch(&w->p->left[l->bond], s->end - s->begin, __ATOMIC_RELAXED);
    return status == CKPT_OK ? compare(w->p, s, err) : status;
}

/* A slot where all that goes to devices goes there as it is, else the scratch. */
static ckpt_status choose_buffer(worker *w, look *l, uint64_t bytes, unsigned char **buffer, ckpt_error *err)
{
    l->in_slot = l->devices && !l->packed && bytes <= CKPT__SLOT;
    ckpt_status status = ckpt__push_way_give(&w->way, err);
    if (status == CKPT_OK)
        status = l->in_slot ? ckpt__push_way_take(&w->way, err) : need_scratch(w, err);
    if (status == CKPT_OK)
        *buffer = l->in_slot ? w->way.slot->data : w->scratch;
    return status;
}

static ckpt_status push_one(worker *w, ckpt__push_span *s, ckpt_error *err)
{
    pusher *p = w->p;
    look l = {.reach = s->end};
    unsigned char *buffer = NULL;
    ckpt_status status = look_at_span(p, s, &l, err);
    if (status == CKPT_OK && l.direct)
        return push_direct(w, s, &l, err);
    if (status == CKPT_OK)
        status = choose_buffer(w, &l, l.reach - s->begin, &buffer, err);
    if (status == CKPT_OK)
        status = read_span(w, s, p->want->look_only ? NULL : buffer, p->want->look_only, err);
    if (status == CKPT_OK && l.reach > s->end) {
        char name[200];
        status = ckpt__extent_read(p->want->source, extent_of(p, s->storage), s->end, buffer + (s->end - s->begin),
                                   (size_t)(l.reach - s->end), name_of_storage(p, s->storage, name), err);
    }
    if (status == CKPT_OK && s->large == UINT32_MAX)
        status = compare(p, s, err);
    if (status == CKPT_OK)
        status = deliver(w, s->storage, s->begin, s->end,
                         (lying){.bytes = buffer, .base = s->begin, .in_slot = l.in_slot}, err);
    if (status == CKPT_OK && s->large != UINT32_MAX)
        status = compare(p, s, err);
    ckpt_status given = ckpt__push_way_give(&w->way, status < 0 ? NULL : err);
    return status < 0 ? status : given;
}

/* ---- coded ones */

/* Straight into the one place that all of it has. */
static ckpt_status decode_direct(worker *w, ckpt__push_span *s, const look *l, ckpt_error *err)
{
    const pusher *p = w->p;
    const ckpt__extent *e = extent_of(p, s->storage);
    bool checked = is_checked(p, s->storage);
    char name[200];
    ckpt__decoder d;
    begin_bond(w->p, l->bond);
    s->crc = 0;
    ckpt_status status = ckpt__decoder_open(&d, p->want->source, e, name_of_storage(p, s->storage, name), err);
    for (uint64_t at = 0, n; status == CKPT_OK && at < e->size; at += n) {
        n = e->size - at < STEP ? e->size - at : STEP;
        status = ckpt__decoder_read(&d, l->direct + at, (size_t)n, err);
        if (status == CKPT_OK && checked)
            s->crc = ckpt__crc32(s->crc, l->direct + at, (size_t)n);
    }
    if (status == CKPT_OK)
        status = ckpt__decoder_finish(&d, err);
    ckpt__decoder_close(&d);
    if (status == CKPT_OK)
        __atomic_sub_fetch(&w->p->left[l->bond], e->size, __ATOMIC_RELAXED);
    return status == CKPT_OK ? compare(p, s, err) : status;
}

/* Decoded once, from its first byte to its last. Elements that a block cuts wait for the next one. */
static ckpt_status push_coded(worker *w, ckpt__push_span *s, ckpt_error *err)
{
    pusher *p = w->p;
    const ckpt__extent *e = extent_of(p, s->storage);
    uint64_t base = 0, at = 0; /* the scratch has [base, at) */
    bool once = e->size <= p->range;
    char name[200];
    ckpt__decoder d;
    look l = {.reach = s->end};
    bool all = s->begin == 0 && s->end == e->size && e->size > TOGETHER;
    ckpt_status status = all ? look_at_span(p, s, &l, err) : CKPT_OK;
    if (status == CKPT_OK && l.direct)
        return decode_direct(w, s, &l, err);
    if (status == CKPT_OK)
        status = need_scratch(w, err);
    if (status < 0)
        return status;
    s->crc = 0;
    status = ckpt__decoder_open(&d, p->want->source, e, name_of_storage(p, s->storage, name), err);
    while (status == CKPT_OK && at < e->size) {
        size_t room = (size_t)(p->range + BEHIND - (at - base)),
               n = e->size - at < room ? (size_t)(e->size - at) : room;
        unsigned char *to = w->scratch + (at - base);
        if ((status = ckpt__decoder_read(&d, to, n, err)) < 0)
            break;
        s->crc = is_checked(p, s->storage) ? ckpt__crc32(s->crc, to, n) : 0;
        at += n;
        if (at == e->size && once)
            break;
        uint64_t keep = at < e->size ? BEHIND : 0;
        keep = keep < at - base ? keep : at - base;
        status = deliver(w, s->storage, base, at - keep, (lying){.bytes = w->scratch, .base = base}, err);
        memmove(w->scratch, w->scratch + (at - keep - base), (size_t)keep);
        base = at - keep;
    }
    if (status == CKPT_OK)
        status = ckpt__decoder_finish(&d, err);
    ckpt__decoder_close(&d);
    if (status == CKPT_OK)
        status = compare(p, s, err);
    return status == CKPT_OK && once ? deliver(w, s->storage, 0, e->size, (lying){.bytes = w->scratch}, err) : status;
}

/* ---- spans that lie side by side */

static uint64_t place_of(const pusher *p, const ckpt__push_span *s)
{
    return extent_of(p, s->storage)->offset + s->begin;
}

static bool is_stored(const pusher *p, const ckpt__push_span *s)
{
    const ckpt__extent *e = extent_of(p, s->storage);
    return !e->memory && e->coding == CKPT__STORED && !e->missing;
}

/* The spans [first, end) of a unit, all of it or less, are in one read. *bytes: of that. */
static size_t neighbours(const pusher *p, size_t first, size_t last, uint64_t *bytes)
{
    const ckpt__push_span *s = &p->list.spans[first];
    uint64_t most = p->devices.lanes ? p->range
                    : p->direct      ? TOGETHER_PAST
                                     : TOGETHER,
             begin = place_of(p, s), reach = begin + (s->end - s->begin);
    size_t end = first + 1;
    most = p->devices.lanes && most > CKPT__SLOT ? CKPT__SLOT : most;
    most = most < CKPT__BLOCK ? most : CKPT__BLOCK;
    *bytes = reach - begin;
    if (s->more || s->large != UINT32_MAX || *bytes > most)
        return end;
    for (; end < last; end++) {
        const ckpt__push_span *next = &p->list.spans[end];
        uint64_t at = place_of(p, next), to = at + (next->end - next->begin);
        if (!is_stored(p, next) || next->more || next->large != UINT32_MAX || at < begin || to < at ||
            at > reach + HOLE || to - begin > most)
            break;
        reach = to > reach ? to : reach;
        *bytes = reach - begin;
    }
    return end;
}

static ckpt_status push_together(worker *w, size_t first, size_t end, uint64_t bytes, ckpt_error *err)
{
    pusher *p = w->p;
    ckpt__push_span *spans = p->list.spans;
    const ckpt__extent *e = extent_of(p, spans[first].storage);
    uint64_t begin = place_of(p, &spans[first]), have = 0;
    unsigned char *buffer = NULL;
    look l = {0};
    ckpt_status status = CKPT_OK;
    const unsigned char *past = ckpt__direct_look(p->direct, e->file, begin, (size_t)bytes), *cached = past;
    ckpt__push_way_of way = past || p->devices.lanes ? CKPT__BY_READ : ckpt__push_choose(&p->groups);
    uint64_t began = ckpt__push_began(&p->groups);
    for (size_t i = first; status == CKPT_OK && p->devices.lanes && i < end; i++)
        status = look_at_span(p, &spans[i], &l, err);
    if (past)
        have = bytes;
    else if (way != CKPT__BY_READ && (cached = ckpt__cached_look(p->groups.cached, e->file, begin, (size_t)bytes)))
        have = bytes;
    else if (status == CKPT_OK)
        status = choose_buffer(w, &l, bytes, &buffer, err);
    for (size_t i = first; status == CKPT_OK && i < end; i++) {
        ckpt__push_span *s = &spans[i];
        const unsigned char *here = (cached ? cached : buffer) + (place_of(p, s) - begin);
        uint64_t reach = place_of(p, s) - begin + (s->end - s->begin);
        while (status == CKPT_OK &&
               have < reach) { /* what is read and checked at once is in the cache for the second */
            uint64_t n = bytes - have < TOGETHER ? bytes - have : TOGETHER;
            status = ckpt__source_read(p->want->source, e->file, begin + have, buffer + have, (size_t)n, err);
            have += n;
        }
        if (status < 0)
            break;
        if (is_checked(p, s->storage))
            s->crc = ckpt__crc32(0, here, (size_t)(s->end - s->begin));
        status = compare(p, s, err);
        if (status == CKPT_OK)
            status = deliver(w, s->storage, s->begin, s->end,
                             (lying){.bytes = here,
                                     .base = s->begin,
                                     .in_slot = l.in_slot,
                                     .more = cached && i + 1 < end,
                                     .kept = way == CKPT__BY_COPY},
                             err);
    }
    if (past)
        ckpt__direct_leave(p->direct, past);
    else if (cached)
        ckpt__cached_leave(p->groups.cached, e->file, begin, (size_t)bytes);
    if (status == CKPT_OK && !past && (cached || way == CKPT__BY_READ))
        ckpt__push_took(&p->groups, way, began, bytes);
    ckpt_status given = ckpt__push_way_give(&w->way, status < 0 ? NULL : err);
    return status < 0 ? status : given;
}

/* ---- ranges */

static ckpt_status push_unit(worker *w, size_t number, ckpt_error *err)
{
    pusher *p = w->p;
    const ckpt__push_unit *u = &p->list.units[number];
    ckpt_status status = CKPT_OK;
    for (size_t i = u->first, end; status == CKPT_OK && i < u->end; i = end) {
        ckpt__push_span *s = &p->list.spans[i];
        const ckpt__extent *e = extent_of(p, s->storage);
        uint64_t bytes = 0;
        end = i + 1;
        if (e->memory)
            status = push_memory(w, s, err);
        else if (e->coding != CKPT__STORED)
            status = push_coded(w, s, err);
        else if (!e->missing && ((end = neighbours(p, i, u->end, &bytes)) > i + 1 || bytes < TOGETHER) && !s->more)
            status = push_together(w, i, end, bytes, err);
        else
            status = push_one(w, s, err);
    }
    /* What was put together for the devices is sent, and its slot free for others. */
    ckpt_status given = ckpt__push_way_give(&w->way, status < 0 ? NULL : err);
    return status < 0 ? status : given;
}

static ckpt_status tell(pusher *p, ckpt_error *err)
{
    const ckpt_progress *progress = p->want->progress;
    p->told = __atomic_load_n(&p->read, __ATOMIC_RELAXED);
    if (progress && progress->fn && progress->fn(progress->ctx, p->told, p->list.bytes))
        return ckpt__fail(err, CKPT_E_CANCELLED, "", "cancelled by the progress callback");
    return CKPT_OK;
}

static ckpt_status do_unit(void *ctx, unsigned number, size_t unit, ckpt_error *err)
{
    pusher *p = ctx;
    ckpt_status status = push_unit(&p->workers[number], unit, err);
    ckpt__copy_stream_end();
    if (status == CKPT_OK)
        __atomic_add_fetch(&p->read, p->list.units[unit].bytes, __ATOMIC_RELAXED);
    return status == CKPT_OK && number == 0 ? tell(p, err) : status;
}

/* ---- what became of it */

/* Has the CRC of each storage that the bond is made of been found right, where there is one? */
static bool is_vouched(const pusher *p, size_t bond)
{
    const ckpt__bond *b = ckpt__plan_bond(p->want->plan, bond);
    const ckpt__tensor *t = &p->from->tensors[b->from];
    bool storage = b->flags & CKPT__BOND_STORAGE;
    for (size_t i = 0; i < (storage ? 1 : ckpt__view_count(t)); i++) {
        uint32_t number = storage ? b->from : ckpt__view_of(p->from, t, i).storage;
        if (is_checked(p, number) && !ckpt__is_sound(extent_of(p, number)))
            return false;
    }
    return true;
}

static uint32_t device_of(const pusher *p, size_t bond)
{
    const ckpt__bond *b = ckpt__plan_bond(p->want->plan, bond);
    const ckpt__tensor *t = &p->to->tensors[b->to];
    bool storage = b->flags & CKPT__BOND_STORAGE;
    if (!storage && !ckpt__view_count(t))
        return 0;
    return p->to->storages[storage ? b->to : ckpt__view_of(p->to, t, 0).storage].extent.device;
}

/* Waits for what is on its way, on every path: it reads our slots, and writes memory of the caller's. */
static ckpt_status drain(pusher *p, ckpt_status status, ckpt_error *err)
{
    for (size_t d = 1; d < p->to->device_count; d++) {
        ckpt__lane *lane = p->devices.by_number[d];
        ckpt_status synced = lane ? lane->ops->stream_sync(lane->stream, status < 0 ? NULL : err) : CKPT_OK;
        status = status < 0 ? status : synced;
        for (size_t i = 0; synced < 0 && i < ckpt__plan_bond_count(p->want->plan); i++)
            if (device_of(p, i) == d && p->begun[i])
                p->left[i] = UINT64_MAX; /* nobody knows */
    }
    return status;
}

static ckpt_status sum_up(pusher *p, ckpt_status status, ckpt_error *err)
{
    for (size_t i = 0; i < ckpt__plan_bond_count(p->want->plan); i++) {
        ckpt__copied done = !p->begun[i]                          ? CKPT__UNTOUCHED
                            : p->left[i] > 0 || !is_vouched(p, i) ? CKPT__TORN
                                                                  : CKPT__COMPLETE;
        bool twin = ckpt__plan_bond_bytes(p->want->plan, i) == UINT64_MAX;
        if (status == CKPT_OK && p->left[i] && !twin && !p->want->look_only)
            status = ckpt__fail(err, CKPT_E_FORMAT, ckpt__plan_name_of(p->want->plan, (uint32_t)i),
                                "%llu of its bytes were not delivered", (unsigned long long)p->left[i]);
        if (p->want->done)
            p->want->done[i] = (unsigned char)(status == CKPT_OK ? CKPT__COMPLETE : done);
    }
    return status;
}

static ckpt_status open_pusher(pusher *p, const ckpt__push_want *want, ckpt_error *err)
{
    size_t bonds = ckpt__plan_bond_count(want->plan);
    p->want = want;
    p->from = ckpt__plan_source_index(want->plan);
    p->to = ckpt__plan_target_index(want->plan);
    p->range = want->range ? want->range : p->to->device_count > 1 ? CKPT__SLOT : CKPT__BLOCK;
    p->threads = want->threads < CKPT__PUSH_THREADS ? want->threads : CKPT__PUSH_THREADS;
    p->threads = p->threads ? p->threads : 1;
    p->left = calloc(bonds + 1, sizeof *p->left);
    p->begun = calloc(bonds + 1, sizeof *p->begun);
    p->workers = calloc(p->threads, sizeof *p->workers);
    if (!p->left || !p->begun || !p->workers)
        return ckpt__fail_memory(err, "ranges to be read", bonds * sizeof *p->left);
    for (size_t i = 0; i < bonds; i++) {
        p->left[i] = ckpt__plan_bond_bytes(want->plan, i);
        if (p->left[i] == UINT64_MAX)
            p->left[i] = 0; /* another bond's copies are its own */
    }
    for (unsigned i = 0; i < p->threads; i++)
        p->workers[i] = (worker){.p = p, .way.devices = &p->devices};
    ckpt_status status = want->check ? ckpt__push_check_tensors(want->plan, want->source, err) : CKPT_OK;
    return status == CKPT_OK ? ckpt__push_list_make(want, p->range, &p->list, err) : status;
}

ckpt_status ckpt__push(const ckpt__push_want *want, ckpt_error *err)
{
    pusher p = {0};
    ckpt_status status = open_pusher(&p, want, err);
    if (status == CKPT_OK && (status = ckpt__push_devices_open(&p.devices, p.to, want->lanes, p.threads,
                                                               p.list.unit_count, err)) == CKPT_OK) {
        p.streams = p.list.bytes >= CKPT__LARGE_PUSH && !(want->avoid & CKPT_AVOID_STREAMING);
        ckpt__push_ways_open(want, p.list.bytes, &p.ways, &p.groups);
        if (want->past_cache && !p.devices.lanes && p.list.bytes >= ckpt__push_large_from(want) &&
            !(want->avoid & CKPT_AVOID_DIRECT))
            p.direct = ckpt__direct_open(want->source);
        status = ckpt__workers_run(p.threads, p.list.unit_count, do_unit, &p, err);
        if (status == CKPT_OK && p.told != p.list.bytes)
            status = tell(&p, err);
        status = drain(&p, status, err);
        status = sum_up(&p, status, err);
        ckpt__push_devices_close(&p.devices);
        ckpt__cached_close(p.ways.cached);
        ckpt__direct_close(p.direct);
    }
    for (unsigned i = 0; p.workers && i < p.threads; i++)
        free(p.workers[i].scratch);
    ckpt__push_list_free(&p.list);
    free(p.workers);
    free(p.left);
    free(p.begun);
    return status;
}
