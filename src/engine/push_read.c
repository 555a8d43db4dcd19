/* engine/push_read.c - how bytes of a file come to where they are used. */
#include <time.h>
#include "base/stream_copy.h"
#include "codec/crc32.h"
#include "engine/decode.h"
#include "engine/push_priv.h"

/* All in bytes. What is read and checked at a time, so that it is in the cache for the second; what is looked at in the page cache at a time;
 * and what takes long enough to be timed. And: each way is tried so often before the fastest is taken, and then once in so many turns. */
enum { STEP = 256 << 10, WINDOW = 2 << 20, TIMED = 256 << 10, TRIES = 2, AGAIN = 32 };

static uint64_t nanoseconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_MONOTONIC, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec : 0;
}

uint64_t ckpt__push_large_from(const ckpt__push_want *want)
{
    return want->cached_from ? want->cached_from : CKPT__LARGE_PUSH;
}

void ckpt__push_ways_open(const ckpt__push_want *want, uint64_t bytes, ckpt__push_ways *spans, ckpt__push_ways *groups)
{
    uint64_t least = ckpt__push_large_from(want);
    bool no_stream = want->look_only || want->avoid & CKPT_AVOID_STREAMING;
    ckpt__cached *cached = want->avoid & CKPT_AVOID_MAPPING || bytes < least ? NULL : ckpt__cached_open(want->source);
    *spans = (ckpt__push_ways){.cached = cached, .count = no_stream ? CKPT__BY_STREAM : CKPT__PUSH_WAYS};
    *groups = *spans;
}

ckpt__push_way_of ckpt__push_choose(ckpt__push_ways *w)
{
    if (!w->cached)
        return CKPT__BY_READ;
    unsigned turn = __atomic_fetch_add(&w->turn, 1, __ATOMIC_RELAXED), best = 0;
    uint64_t least = UINT64_MAX;
    if (turn < TRIES * w->count)
        return (ckpt__push_way_of)((turn + 1) % w->count); /* a short push looks into the cache */
    if (turn % AGAIN == 0)
        return (ckpt__push_way_of)(turn / AGAIN % w->count);
    for (unsigned i = 0; i < w->count; i++) {
        uint64_t cost = __atomic_load_n(&w->cost[i], __ATOMIC_RELAXED);
        if (cost < least) {
            best = i;
            least = cost;
        }
    }
    return (ckpt__push_way_of)best;
}

uint64_t ckpt__push_began(const ckpt__push_ways *w)
{
    return w->cached ? nanoseconds() : 0;
}

/* Two threads that are here at the same time may lose what one of them has seen: no result depends on it. */
void ckpt__push_took(ckpt__push_ways *w, ckpt__push_way_of way, uint64_t began, uint64_t bytes)
{
    uint64_t ended = began && bytes >= TIMED ? nanoseconds() : 0;
    if (ended <= began)
        return;
    uint64_t took = ((ended - began) << 10) / bytes, before = __atomic_load_n(&w->cost[way], __ATOMIC_RELAXED);
    __atomic_store_n(&w->cost[way], before ? (3 * before + took + 1) / 4 : took + 1, __ATOMIC_RELAXED);
}

static ckpt_status by_read(const ckpt__push_part *p, uint64_t begin, uint64_t end, unsigned char *to,
                           unsigned char *scratch, uint32_t *crc, ckpt_error *err)
{
    size_t most = crc || !to ? STEP : CKPT__BLOCK;
    ckpt_status status = CKPT_OK;
    for (uint64_t at = begin, n; status == CKPT_OK && at < end; at += n) {
        unsigned char *here = to ? to + (at - begin) : scratch;
        n = end - at < most ? end - at : most;
        status = ckpt__extent_read(p->source, p->extent, at, here, (size_t)n, p->what, err);
        if (status == CKPT_OK && crc)
            *crc = ckpt__crc32(*crc, here, (size_t)n);
    }
    return status;
}

static void take_over(const unsigned char *from, size_t n, bool past, unsigned char *to, uint32_t *crc)
{
    enum { AHEAD = 2 << 10 };
    if (to && crc)
        *crc = ckpt__crc32_copy_part(*crc, to, from, n, past);
    else if (to && past)
        ckpt__copy_stream_ahead(to, from, n, AHEAD);
    else if (to)
        ckpt__copy_ahead(to, from, n, AHEAD);
    else if (crc)
        *crc = ckpt__crc32(*crc, from, n);
}

/* False: they are not there, and nothing was done. */
static bool by_cache(ckpt__push_ways *w, const ckpt__push_part *p, uint64_t at, size_t n, bool past, unsigned char *to,
                     uint32_t *crc)
{
    uint64_t offset = p->extent->offset + at;
    const unsigned char *from = ckpt__cached_look(w->cached, p->extent->file, offset, n);
    if (!from)
        return false;
    take_over(from, n, past, to, crc);
    ckpt__cached_leave(w->cached, p->extent->file, offset, n);
    return true;
}

/* What of [at, end) is read past the page cache at a time. */
static size_t part_of_disk(const ckpt__push_part *p, uint64_t at)
{
    uint64_t left = p->end - at, most = CKPT__DIRECT_MOST - (p->extent->offset + at) % CKPT__DIRECT_ALIGN;
    return (size_t)(left < most ? left : most);
}

/* False: they are to be read otherwise, and nothing was done. Ordinary copies: where the disk is waited for, the others are no faster. */
static bool by_disk(const ckpt__push_part *p, uint64_t at, size_t n, unsigned char *to, uint32_t *crc)
{
    const unsigned char *from = ckpt__direct_look(p->direct, p->extent->file, p->extent->offset + at, n);
    if (!from)
        return false;
    take_over(from, n, false, to, crc);
    ckpt__direct_leave(p->direct, from);
    return true;
}

ckpt_status ckpt__push_read(ckpt__push_ways *w, const ckpt__push_part *p, unsigned char *to, unsigned char *scratch,
                            uint32_t *crc, ckpt_error *err)
{
    uint64_t window = w && w->cached ? WINDOW : p->end - p->begin;
    ckpt_status status = CKPT_OK;
    if (crc)
        *crc = 0;
    for (uint64_t at = p->begin, n; status == CKPT_OK && at < p->end; at += n) {
        unsigned char *here = to ? to + (at - p->begin) : NULL;
        n = p->end - at < window ? p->end - at : window;
        if (p->direct) {
            n = part_of_disk(p, at);
            status = ckpt__extent_holds(p->extent, at, n, p->what, err);
            if (status < 0 || by_disk(p, at, (size_t)n, here, crc))
                continue;
        }
        ckpt__push_way_of way = w ? ckpt__push_choose(w) : CKPT__BY_READ;
        uint64_t began = w ? ckpt__push_began(w) : 0;
        if (way != CKPT__BY_READ) {
            status = ckpt__extent_holds(p->extent, at, n, p->what, err);
            if (status < 0)
                break;
            if (by_cache(w, p, at, (size_t)n, way == CKPT__BY_STREAM, here, crc)) {
                ckpt__push_took(w, way, began, n);
                continue;
            }
        }
        status = by_read(p, at, at + n, here, scratch, crc, err);
        if (w && way == CKPT__BY_READ)
            ckpt__push_took(w, way, began, n);
    }
    return status;
}
