/* engine/write.c - runs a recipe: the file goes out in aligned blocks of the output, each once all its bytes are final. */
#include "engine/recipe_write.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "io/pump.h"

/* A block that is written last, because it holds bytes that only finish() knows. */
typedef struct block {
    struct block *next; /* NULL: the last of the list */
    uint64_t offset;    /* in the file, in bytes */
    size_t size;
    unsigned char *data; /* heap, owned; NULL: all of it is deferred, and comes from the segment when it is
                                   * final */
} block;

/* One recipe that is written. With blocks of 256 bytes, a DEFERRED segment of 100 bytes and a PAYLOAD of 300, block
 * 0 holds the deferred bytes and 156 of the payload: it waits, and it is kept as a copy (partly). Block 1 has offset
 * 256 and 144 bytes, and is written at once. Then finish() fills the segment in, and block 0 is written. */
typedef struct ckpt__recipe_writer {
    ckpt__recipe *recipe; /* borrowed, as are the payload, the sink, and the error */
    const ckpt__payload *payload;
    ckpt__sink *sink;
    ckpt__pump *pump; /* owned */
    ckpt__write_progress *progress;
    size_t next;           /* segments that are put */
    uint64_t at;           /* bytes of the next one that are */
    unsigned char *data;   /* the block that is being filled; the pump's */
    size_t capacity, used; /* bytes of it */
    bool waits, partly;    /* it holds bytes that are not final yet; it holds others too */
    uint64_t offset;       /* of the block in the file */
    block *waiting;        /* heap, owned: blocks that wait: written last; NULL: none */
    uint32_t *crcs;        /* heap, owned: of each segment */
    ckpt__buf made;        /* owned: the bytes of a segment that is computed */
    ckpt_error *err;
} writer;

static ckpt_status report_progress(writer *w, size_t bytes)
{
    ckpt__write_progress *p = w->progress;
    p->done += bytes;
    if (p->to && p->to->fn && p->to->fn(p->to->ctx, p->done, p->total))
        return ckpt__fail(w->err, CKPT_E_CANCELLED, "", "cancelled by the progress callback");
    return CKPT_OK;
}

static ckpt_status next_block(writer *w)
{
    void *data = NULL;
    ckpt_status status = ckpt__pump_block(w->pump, &data, w->err);
    w->data = data;
    return status;
}

static ckpt_status flush(writer *w)
{
    const size_t bytes = w->used;
    ckpt_status status = CKPT_OK;
    if (w->used == 0)
        return CKPT_OK;
    if (w->waits) {
        block *b = calloc(1, sizeof *b);
        if (!b || (w->partly && !(b->data = aligned_alloc(4096, (w->used + 4095) / 4096 * 4096)))) {
            free(b);
            return ckpt__fail_memory(w->err, "file header", w->used);
        }
        if (w->partly)
            memcpy(b->data, w->data, w->used);
        b->offset = w->offset;
        b->size = w->used;
        b->next = w->waiting;
        w->waiting = b;
    } else
        status = ckpt__pump_put(w->pump, w->offset, w->used, w->err);
    w->offset += w->used;
    w->used = 0;
    if (status == CKPT_OK && !w->waits)
        status = next_block(w);
    w->waits = w->partly = false;
    return status == CKPT_OK ? report_progress(w, bytes) : status;
}

/* As much at a time as a core's cache holds twice: the checksum then reads what was just written from there, and not from
 * memory, which the trainer needs as well. */
enum { TILE = 256 << 10 };

static bool is_payload(const ckpt__segment *s)
{
    return s->kind == CKPT__RANGE || s->kind == CKPT__PAYLOAD || s->kind == CKPT__STORAGE;
}

static ckpt__payload_place place_of(const writer *w)
{
    const ckpt__segment *s = &w->recipe->segments[w->next];
    const ckpt__range whole = {s->number, 0}, r = s->kind == CKPT__RANGE ? w->recipe->ranges[s->number] : whole;
    return (ckpt__payload_place){s->kind, r.number, r.begin + w->at, s->size - w->at};
}

/* Where the block ends. The first one of several ends with the bytes that wait, at a multiple of ALIGN: it is written last, when nothing else is
 * under way, and so it is short. */
static size_t block_end(const writer *w, const ckpt__segment *next)
{
    enum { ALIGN = 4096 };
    const size_t end = (w->used + ALIGN - 1) / ALIGN * ALIGN;
    const bool ends = w->offset == 0 && w->waits && next->kind != CKPT__DEFERRED && w->recipe->size > w->capacity;
    return ends && end < w->capacity ? end : w->capacity;
}

/* Bytes of the next segment, as many as the block has room for and are asked for at a time. given: they are there, else they are got;
 * most: so many at most. */
static ckpt_status put_some(writer *w, const char *given, uint64_t most, size_t *put)
{
    const ckpt__segment *s = &w->recipe->segments[w->next];
    const size_t end = block_end(w, s);
    size_t tile = w->payload->tile ? w->payload->tile : TILE, n = end - w->used;
    if (n == 0)
        return flush(w);
    /* where a block ends within an element, only that one is asked for in two parts */
    n = given || n < tile - (size_t)(w->at % tile) ? n : tile - (size_t)(w->at % tile);
    n = most < n ? (size_t)most : n;
    unsigned char *to = w->data + w->used;
    if (given)
        memcpy(to, given, n);
    else {
        const ckpt__payload_place place = place_of(w);
        ckpt_status status = w->payload->read(w->payload->ctx, s->kind, place.number, place.at, to, n, w->err);
        if (status < 0)
            return status;
    }
    if (s->kind == CKPT__DEFERRED)
        w->waits = true;
    else {
        w->partly = true;
        w->crcs[w->next] = ckpt__crc32(w->crcs[w->next], to, n);
    }
    w->used += n;
    w->at += n;
    *put = n;
    return w->used == end ? flush(w) : CKPT_OK;
}

/* So many bytes of the next segment; `next` is the one behind it when all of it is put. */
static ckpt_status put_bytes(writer *w, const char *given, uint64_t bytes)
{
    ckpt_status status = CKPT_OK;
    for (size_t put; status == CKPT_OK && bytes; bytes -= put) {
        put = 0;
        status = put_some(w, given, bytes, &put);
        given = given ? given + put : NULL;
    }
    if (status == CKPT_OK && w->at == w->recipe->segments[w->next].size) {
        w->next++;
        w->at = 0;
    }
    return status;
}

/* The rest of the next segment. */
static ckpt_status put_segment(writer *w)
{
    ckpt__recipe *r = w->recipe;
    const size_t i = w->next;
    const ckpt__segment *s = &r->segments[i];
    const char *bytes = s->kind == CKPT__LITERAL || s->kind == CKPT__DEFERRED ? s->bytes : NULL;
    ckpt_status status = CKPT_OK;
    if (s->kind == CKPT__COMPUTED) {
        if (s->size > SIZE_MAX / 2 || !ckpt__buf_reserve(&w->made, (size_t)s->size))
            return ckpt__fail_memory(w->err, "file header", s->size);
        status = r->compute(r, i, w->crcs, w->made.data, w->err);
        bytes = w->made.data;
    }
    return status == CKPT_OK ? put_bytes(w, bytes ? bytes + w->at : NULL, s->size - w->at) : status;
}

/* Puts the final bytes of the deferred segments into a block that waited for them, and writes it. */
static ckpt_status write_waiting(const writer *w, const block *b, unsigned char *data)
{
    const ckpt__recipe *r = w->recipe;
    uint64_t begin = 0;
    for (size_t i = 0; i < r->count && begin < b->offset + b->size; begin += r->segments[i++].size) {
        const ckpt__segment *s = &r->segments[i];
        uint64_t from = begin > b->offset ? begin : b->offset;
        uint64_t end = begin + s->size < b->offset + b->size ? begin + s->size : b->offset + b->size;
        if (s->kind == CKPT__DEFERRED && from < end)
            memcpy(data + (from - b->offset), s->bytes + (from - begin), (size_t)(end - from));
    }
    return ckpt__sink_write(w->sink, b->offset, data, b->size, w->err);
}

static ckpt_status finish(writer *w)
{
    ckpt__recipe *r = w->recipe;
    ckpt_status status = r->finish ? r->finish(r, w->crcs, w->err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < r->count; i++)
        if (r->segments[i].kind == CKPT__DEFERRED)
            w->crcs[i] = ckpt__crc32(0, r->segments[i].bytes, (size_t)r->segments[i].size);
    for (const block *b = w->waiting; status == CKPT_OK && b; b = b->next) {
        void *data = b->data;
        if (!data) /* the pump has written all that it was given */
            status = ckpt__pump_block(w->pump, &data, w->err);
        if (status == CKPT_OK)
            status = write_waiting(w, b, data);
    }
    return status;
}

ckpt_status ckpt__recipe_writer_open(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                                     ckpt__write_progress *progress, ckpt__recipe_writer **out, ckpt_error *err)
{
    writer *w = *out = calloc(1, sizeof *w);
    if (!w)
        return ckpt__fail_memory(err, "a file's blocks", sizeof *w);
    *w = (writer){.recipe = recipe, .payload = payload, .sink = sink, .progress = progress, .err = err};
    w->capacity = payload->block ? payload->block : CKPT__BLOCK;
    if (recipe->size < w->capacity)
        w->capacity = (size_t)recipe->size;
    w->crcs = calloc(recipe->count + 1, sizeof *w->crcs);
    ckpt_status status = w->crcs ? ckpt__pump_new(sink, w->capacity, recipe->size, payload->alone, &w->pump, err)
                                 : ckpt__fail_memory(err, "checksums", recipe->count * sizeof *w->crcs);
    return status == CKPT_OK ? next_block(w) : status;
}

ckpt_status ckpt__recipe_writer_next(ckpt__recipe_writer *w, ckpt__payload_place *place, bool *there)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && w->next < w->recipe->count && !is_payload(&w->recipe->segments[w->next]))
        status = put_segment(w);
    *there = status == CKPT_OK && w->next < w->recipe->count;
    if (*there)
        *place = place_of(w);
    return status;
}

ckpt_status ckpt__recipe_writer_read(ckpt__recipe_writer *w, uint64_t bytes)
{
    return put_bytes(w, NULL, bytes);
}

ckpt_status ckpt__recipe_writer_give(ckpt__recipe_writer *w, const void *bytes, size_t n)
{
    return put_bytes(w, bytes, n);
}

ckpt_status ckpt__recipe_writer_finish(ckpt__recipe_writer *w, uint32_t *crc)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && w->next < w->recipe->count)
        status = put_segment(w);
    if (status == CKPT_OK)
        status = flush(w);
    if (status == CKPT_OK)
        status = ckpt__pump_drain(w->pump, w->err);
    if (status == CKPT_OK)
        status = finish(w);
    if (status == CKPT_OK && crc) {
        *crc = 0;
        for (size_t i = 0; i < w->recipe->count; i++)
            *crc = ckpt__crc32_combine(*crc, w->crcs[i], w->recipe->segments[i].size);
    }
    return status;
}

void ckpt__recipe_writer_free(ckpt__recipe_writer *w)
{
    if (!w)
        return;
    for (block *b = w->waiting, *next; b; b = next) {
        next = b->next;
        free(b->data);
        free(b);
    }
    ckpt__pump_free(w->pump);
    ckpt__buf_free(&w->made);
    free(w->crcs);
    free(w);
}

ckpt_status ckpt__write_recipe(ckpt__recipe *recipe, const ckpt__payload *payload, ckpt__sink *sink,
                               const ckpt_progress *progress, uint64_t done_before, uint64_t total, uint32_t *crc,
                               ckpt_error *err)
{
    ckpt__write_progress told = {progress, done_before, total};
    ckpt__recipe_writer *w = NULL;
    ckpt_status status = ckpt__recipe_writer_open(recipe, payload, sink, &told, &w, err);
    if (status == CKPT_OK)
        status = ckpt__recipe_writer_finish(w, crc);
    ckpt__recipe_writer_free(w);
    return status;
}
