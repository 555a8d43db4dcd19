/* engine/sweep.c - CRC-32s of stored extents, by several threads. */
#include "engine/sweep.h"

#include <stdlib.h>
#include "base/workers.h"
#include "codec/crc32.h"
#include "engine/push_priv.h"
#include "io/readers.h"

enum { SCRATCH = 256 << 10 }; /* bytes: what ckpt__push_read has in memory at a time */
static const uint64_t unit_bytes = CKPT__BLOCK;

/* Bytes [begin, end) of an extent of the list. */
typedef struct part {
    size_t of;
    uint64_t begin, end;
    uint32_t crc;
    bool known;
} part;

typedef struct sweeper {
    const ckpt__source *source;
    ckpt__swept *list;
    part *parts; /* heap, owned, as is the rest */
    size_t part_count, part_capacity;
    size_t *units; /* the first part of each; the last is behind all */
    size_t unit_count, unit_capacity;
    unsigned char *scratch; /* SCRATCH bytes a thread */
    ckpt__push_ways ways;
    uint64_t read;  /* bytes that were; atomic */
    uint64_t told;  /* the calling thread's */
    uint64_t bytes; /* of all */
    ckpt__sweep_fn *fn;
    void *ctx;
} sweeper;

/* The unit that is begun here. */
static bool begin_unit(sweeper *s)
{
    if (!ckpt__grow(&s->units, &s->unit_capacity, s->unit_count + 2, sizeof *s->units))
        return false;
    s->units[s->unit_count++] = s->part_count;
    return true;
}

/* Did the file, when it was opened, have all bytes of the extent? One that says more than that is not cut into a million parts. */
static bool is_there(const sweeper *s, const ckpt__extent *e)
{
    const uint64_t size = e->file < s->source->count ? s->source->files[e->file].size : 0;
    return !e->size || (e->size <= size && e->offset <= size - e->size);
}

static bool make_units(sweeper *s, size_t count)
{
    uint64_t held = unit_bytes; /* bytes of the last unit: it is full, and so the next one is begun */
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = is_there(s, s->list[i].extent) ? s->list[i].extent->size : 0;
        for (uint64_t at = 0; at < size;) {
            if (held >= unit_bytes && !begin_unit(s))
                return false;
            held = held >= unit_bytes ? 0 : held;
            const uint64_t n = size - at < unit_bytes - held ? size - at : unit_bytes - held;
            if (!ckpt__grow(&s->parts, &s->part_capacity, s->part_count + 1, sizeof *s->parts))
                return false;
            s->parts[s->part_count++] = (part){.of = i, .begin = at, .end = at + n};
            held += n;
            at += n;
        }
        s->bytes += size;
    }
    if (s->unit_count)
        s->units[s->unit_count] = s->part_count;
    return true;
}

static ckpt_status tell(sweeper *s, ckpt_error *err)
{
    const uint64_t read = __atomic_load_n(&s->read, __ATOMIC_RELAXED), more = read - s->told;
    s->told = read;
    return more ? s->fn(s->ctx, more, err) : CKPT_OK;
}

static ckpt_status do_unit(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    sweeper *s = ctx;
    uint64_t read = 0;
    for (size_t i = s->units[unit]; i < s->units[unit + 1]; i++) {
        part *p = &s->parts[i];
        const ckpt__push_part what = {s->source, s->list[p->of].extent, p->begin, p->end, "", NULL};
        ckpt_status status =
            ckpt__push_read(&s->ways, &what, NULL, s->scratch + (size_t)worker * SCRATCH, &p->crc, err);
        if (status < 0 && status != CKPT_E_DAMAGED)
            return status;
        p->known = status == CKPT_OK;
        read += p->end - p->begin;
    }
    __atomic_add_fetch(&s->read, read, __ATOMIC_RELAXED);
    return worker == 0 ? tell(s, err) : CKPT_OK;
}

static void put_together(sweeper *s, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        s->list[i].crc = 0;
        s->list[i].known = is_there(s, s->list[i].extent);
    }
    for (size_t i = 0; i < s->part_count; i++) {
        const part *p = &s->parts[i];
        ckpt__swept *whole = &s->list[p->of];
        whole->crc = p->begin ? ckpt__crc32_combine(whole->crc, p->crc, p->end - p->begin) : p->crc;
        whole->known = whole->known && p->known;
    }
}

ckpt_status ckpt__sweep(const ckpt__source *source, ckpt__swept *list, size_t count, unsigned threads,
                        ckpt__sweep_fn *fn, void *ctx, ckpt_error *err)
{
    sweeper s = {.source = source, .list = list, .fn = fn, .ctx = ctx};
    const ckpt__push_want want = {.source = source, .look_only = true};
    ckpt__push_ways unused;
    bool made = make_units(&s, count);
    threads = threads ? threads : ckpt__readers_usual(source, ckpt__workers_usual());
    threads = threads < CKPT__PUSH_THREADS ? threads : CKPT__PUSH_THREADS;
    made = made && (s.scratch = malloc((size_t)threads * SCRATCH));
    ckpt_status status = made ? CKPT_OK : ckpt__fail_memory(err, "ranges to be read", s.part_count * sizeof *s.parts);
    if (status == CKPT_OK) {
        ckpt__push_ways_open(&want, s.bytes, &s.ways, &unused);
        status = ckpt__workers_run(threads, s.unit_count, do_unit, &s, err);
        ckpt__cached_close(s.ways.cached);
    }
    if (status == CKPT_OK)
        status = tell(&s, err);
    if (status == CKPT_OK)
        put_together(&s, count);
    free(s.scratch);
    free(s.units);
    free(s.parts);
    return status;
}
