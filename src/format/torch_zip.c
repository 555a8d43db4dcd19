/* format/torch_zip.c - the archive that torch 2.13 writes, byte for byte (caffe2/serialize/inline_container.cc and its
 * miniz): local headers without sizes and CRCs; an extra field "FB" that pads until the record lies at a multiple of 64
 * (torch computes the offsets of storages from that, without reading the directory); a data descriptor behind each
 * record that is not empty; a central directory with the true CRCs; the ZIP64 end records always. Descriptors, the
 * serialization id and the directory are COMPUTED segments: they need the CRCs of what went by before them. */
#include "codec/crc32.h"
#include "format/safetensors.h"
#include "format/torch_write.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ALIGN = 64,
    LOCAL_SIZE = 30, CENTRAL_SIZE = 46, END64_SIZE = 56, LOCATOR_SIZE = 20, END_SIZE = 22,
    FLAG_UTF8 = 0x0800, FLAG_DESCRIPTOR = 0x0008,
    ID_DIGITS = 40
};
static const uint64_t NARROW = 0xFFFFFFFF;

typedef struct entry {
    ckpt_str name;                /* with the archive's */
    uint64_t size, header;        /* offset of its local header */
    size_t payload;               /* number of its segment; SIZE_MAX: it is empty */
} entry;

/* What compute() works on, in the recipe's arena. */
typedef struct layout {
    entry *entries; size_t count;
    size_t *what;                 /* per segment: 1 + the entry whose descriptor it is */
    size_t id, directory;         /* segments */
} layout;

struct ckpt__torch_zip {
    ckpt__recipe *recipe;
    ckpt_str archive;
    entry *entries; size_t count, capacity;
    size_t *what; size_t what_count, what_capacity;
    size_t segment_capacity;
    size_t id;
};

static ckpt_status no_memory(const ckpt__torch_zip *z, ckpt_error *err)
{
    return ckpt__fail_memory(err, "the archive's directory", z->count * sizeof *z->entries);
}

ckpt__torch_zip *ckpt__torch_zip_new(ckpt__recipe *recipe, const char *archive)
{
    ckpt__torch_zip *z = calloc(1, sizeof *z);
    if (z) {
        z->recipe = recipe;
        z->archive = ckpt__s(archive);
    }
    return z;
}

void ckpt__torch_zip_free(ckpt__torch_zip *z)
{
    if (!z)
        return;
    free(z->entries);
    free(z->what);
    free(z);
}

static void le(char *to, uint64_t v, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        to[i] = (char)(unsigned char)(v >> 8 * i);
}

static bool is_wide(uint64_t v)
{
    return v >= NARROW;
}

/* A segment, and which entry it describes (0: none). */
static ckpt_status add_segment(ckpt__torch_zip *z, ckpt__segment_kind kind, uint64_t size, char *bytes, size_t number,
                               size_t describes, ckpt_error *err)
{
    size_t before = z->recipe->count;
    ckpt_status status = ckpt__recipe_add(z->recipe, &z->segment_capacity, kind, size, bytes, number, err);
    if (status < 0 || z->recipe->count == before)
        return status;
    if (!ckpt__grow(&z->what, &z->what_capacity, z->recipe->count, sizeof *z->what))
        return no_memory(z, err);
    z->what[z->recipe->count - 1] = describes;
    return CKPT_OK;
}

/* ---- local headers */

/* The ZIP64 field of a local header: the size, a compressed size that miniz does not know yet there (0), the offset. */
static size_t put_local64(char *to, const entry *e)
{
    size_t n = 4;
    if (!is_wide(e->size) && !is_wide(e->header))
        return 0;
    if (is_wide(e->size)) {
        le(to + n, e->size, 8);
        le(to + n + 8, 0, 8);
        n += 16;
    }
    if (is_wide(e->header)) {
        le(to + n, e->header, 8);
        n += 8;
    }
    le(to, 1, 2);
    le(to + 2, n - 4, 2);
    return n;
}

static ckpt_status put_header(ckpt__torch_zip *z, const entry *e, ckpt_error *err)
{
    char wide[32];
    size_t extra = put_local64(wide, e);
    uint64_t start = e->header + LOCAL_SIZE + e->name.size + extra + 4;
    size_t pad = (size_t)((ALIGN - start % ALIGN) % ALIGN), size = LOCAL_SIZE + e->name.size + extra + 4 + pad;
    char *b = ckpt__arena_alloc(z->recipe->arena, size);
    if (!b)
        return no_memory(z, err);
    memcpy(b, "PK\3\4", 4);
    le(b + 6, e->size ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8, 2);
    le(b + 26, e->name.size, 2);
    le(b + 28, extra + 4 + pad, 2);
    memcpy(b + LOCAL_SIZE, e->name.data, e->name.size);
    char *field = b + LOCAL_SIZE + e->name.size;
    memcpy(field, wide, extra);
    memcpy(field + extra, "FB", 2);
    le(field + extra + 2, pad, 2);
    memset(field + extra + 4, 'Z', pad);
    return add_segment(z, CKPT__LITERAL, size, b, 0, 0, err);
}

/* ---- records */

static ckpt_status add_record(ckpt__torch_zip *z, const char *name, ckpt__segment_kind kind, uint64_t size, char *bytes,
                              size_t number, ckpt_error *err)
{
    ckpt__buf full = {0};
    ckpt__buf_add(&full, z->archive.data, z->archive.size);
    ckpt__buf_char(&full, '/');
    ckpt__buf_str(&full, name);
    ckpt_str kept = full.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(z->recipe->arena, full.data, full.size);
    ckpt__buf_free(&full);
    if (!kept.data || !ckpt__grow(&z->entries, &z->capacity, z->count + 1, sizeof *z->entries))
        return no_memory(z, err);
    if (kept.size > UINT16_MAX - 1024)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "an archive name of %zu bytes; a zip holds 64 KiB", z->archive.size);
    z->entries[z->count] = (entry){kept, size, z->recipe->size, SIZE_MAX};
    entry *e = &z->entries[z->count++];
    ckpt_status status = put_header(z, e, err);
    if (status < 0 || size == 0)
        return status;
    e->payload = z->recipe->count;
    status = add_segment(z, kind, size, bytes, number, 0, err);
    size_t descriptor = is_wide(size) || is_wide(e->header) ? 24 : 16;
    char *room = ckpt__arena_alloc(z->recipe->arena, descriptor);
    if (!room)
        return no_memory(z, err);
    return status < 0 ? status : add_segment(z, CKPT__COMPUTED, descriptor, room, 0, z->count, err);
}

ckpt_status ckpt__torch_zip_bytes(ckpt__torch_zip *z, const char *name, const void *bytes, size_t size, ckpt_error *err)
{
    char *copy = ckpt__arena_copy(z->recipe->arena, bytes, size);
    return copy ? add_record(z, name, CKPT__LITERAL, size, copy, 0, err) : no_memory(z, err);
}

ckpt_status ckpt__torch_zip_storage(ckpt__torch_zip *z, const char *name, size_t storage, uint64_t size, ckpt_error *err)
{
    return add_record(z, name, CKPT__STORAGE, size, NULL, storage, err);
}

/* ---- what is computed */

static uint32_t crc_of(const entry *e, const uint32_t *crcs)
{
    return e->payload == SIZE_MAX ? 0 : crcs[e->payload];
}

static void put_descriptor(const entry *e, uint32_t crc, ckpt__segment *s)
{
    unsigned width = s->size == 24 ? 8 : 4;
    memcpy(s->bytes, "PK\7\10", 4);
    le(s->bytes + 4, crc, 4);
    le(s->bytes + 8, e->size, width);
    le(s->bytes + 8 + width, e->size, width);
}

/* torch's id is a hash of the records' names, then one of their contents; nothing ever looks at it. Ours is made of the
 * same, so that the same checkpoint is the same file. */
static void put_id(const layout *l, const uint32_t *crcs, char *to)
{
    uint64_t names = 0xcbf29ce484222325, contents = 0xcbf29ce484222325;     /* FNV-1a, 64 bits */
    char digits[ID_DIGITS + 1];
    for (size_t i = 0; i + 1 < l->count; i++) {
        const entry *e = &l->entries[i];
        for (size_t k = 0; k < e->name.size; k++)
            names = (names ^ (unsigned char)e->name.data[k]) * 0x100000001b3;
        uint64_t parts[2] = {e->size, crc_of(e, crcs)};
        for (size_t k = 0; k < 16; k++)
            contents = (contents ^ (parts[k / 8] >> 8 * (k % 8) & 0xff)) * 0x100000001b3;
    }
    snprintf(digits, sizeof digits, "%020llu%020llu", (unsigned long long)names, (unsigned long long)contents);
    memcpy(to, digits, ID_DIGITS);
}

static size_t central_extra(const entry *e)
{
    size_t n = (is_wide(e->size) ? 16u : 0) + (is_wide(e->header) ? 8u : 0);
    return n ? n + 4 : 0;
}

static void put_central(const entry *e, uint32_t crc, char *b)
{
    size_t extra = central_extra(e), n = CENTRAL_SIZE + e->name.size;
    memset(b, 0, n + extra);
    memcpy(b, "PK\1\2", 4);
    le(b + 8, e->size ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8, 2);
    le(b + 16, crc, 4);
    le(b + 20, is_wide(e->size) ? NARROW : e->size, 4);
    le(b + 24, is_wide(e->size) ? NARROW : e->size, 4);
    le(b + 28, e->name.size, 2);
    le(b + 30, extra, 2);
    le(b + 42, is_wide(e->header) ? NARROW : e->header, 4);
    memcpy(b + CENTRAL_SIZE, e->name.data, e->name.size);
    if (!extra)
        return;
    le(b + n, 1, 2);
    le(b + n + 2, extra - 4, 2);
    n += 4;
    if (is_wide(e->size)) {
        le(b + n, e->size, 8);
        le(b + n + 8, e->size, 8);
        n += 16;
    }
    if (is_wide(e->header))
        le(b + n, e->header, 8);
}

static ckpt_status compute(ckpt__recipe *r, size_t i, const uint32_t *crcs, ckpt_error *err)
{
    const layout *l = r->ctx;
    ckpt__segment *s = &r->segments[i];
    (void)err;
    if (i == l->id)
        put_id(l, crcs, s->bytes);
    else if (i == l->directory) {
        size_t at = 0;
        for (size_t k = 0; k < l->count; k++) {
            put_central(&l->entries[k], crc_of(&l->entries[k], crcs), s->bytes + at);
            at += CENTRAL_SIZE + l->entries[k].name.size + central_extra(&l->entries[k]);
        }
    } else if (l->what[i])
        put_descriptor(&l->entries[l->what[i] - 1], crc_of(&l->entries[l->what[i] - 1], crcs), s);
    return CKPT_OK;
}

/* ---- the end */

/* ZIP64 end record, its locator, the old end record. */
static ckpt_status put_end(ckpt__torch_zip *z, uint64_t offset, uint64_t size, ckpt_error *err)
{
    enum { LOCATOR = END64_SIZE, END = END64_SIZE + LOCATOR_SIZE, ALL = END64_SIZE + LOCATOR_SIZE + END_SIZE };
    char *b = ckpt__arena_alloc(z->recipe->arena, ALL);
    size_t n = z->count;
    if (!b)
        return no_memory(z, err);
    memcpy(b, "PK\6\6", 4);
    le(b + 4, END64_SIZE - 12, 8);
    le(b + 12, 0x031e, 2);
    le(b + 14, 0x002d, 2);
    le(b + 24, n, 8);
    le(b + 32, n, 8);
    le(b + 40, size, 8);
    le(b + 48, offset, 8);
    memcpy(b + LOCATOR, "PK\6\7", 4);
    le(b + LOCATOR + 8, offset + size, 8);
    le(b + LOCATOR + 16, 1, 4);
    memcpy(b + END, "PK\5\6", 4);
    le(b + END + 8, n < UINT16_MAX ? n : UINT16_MAX, 2);
    le(b + END + 10, n < UINT16_MAX ? n : UINT16_MAX, 2);
    le(b + END + 12, size < NARROW ? size : NARROW, 4);
    le(b + END + 16, offset < NARROW ? offset : NARROW, 4);
    return add_segment(z, CKPT__LITERAL, ALL, b, 0, 0, err);
}

static ckpt_status keep_layout(ckpt__torch_zip *z, size_t directory, ckpt_error *err)
{
    ckpt__recipe *r = z->recipe;
    layout *l = ckpt__arena_alloc(r->arena, sizeof *l);
    if (!l || !(l->entries = ckpt__arena_array(r->arena, z->count, sizeof *l->entries)) ||
        !(l->what = ckpt__arena_array(r->arena, r->count, sizeof *l->what)))
        return no_memory(z, err);
    memcpy(l->entries, z->entries, z->count * sizeof *l->entries);
    memcpy(l->what, z->what, r->count * sizeof *l->what);
    l->count = z->count;
    l->id = z->id;
    l->directory = directory;
    r->compute = compute;
    r->ctx = l;
    return CKPT_OK;
}

ckpt_status ckpt__torch_zip_finish(ckpt__torch_zip *z, ckpt_error *err)
{
    char *id = ckpt__arena_alloc(z->recipe->arena, ID_DIGITS), *room;
    if (!id)
        return no_memory(z, err);
    ckpt_status status = add_record(z, ".data/serialization_id", CKPT__COMPUTED, ID_DIGITS, id, 0, err);
    if (status < 0)
        return status;
    z->id = z->entries[z->count - 1].payload;
    uint64_t size = 0, offset = z->recipe->size;
    for (size_t i = 0; i < z->count; i++)
        size += CENTRAL_SIZE + z->entries[i].name.size + central_extra(&z->entries[i]);
    if (size > SIZE_MAX / 2 || !(room = ckpt__arena_alloc(z->recipe->arena, (size_t)size)))
        return no_memory(z, err);
    size_t directory = z->recipe->count;
    status = add_segment(z, CKPT__COMPUTED, size, room, 0, 0, err);
    if (status == CKPT_OK)
        status = put_end(z, offset, size, err);
    return status == CKPT_OK ? keep_layout(z, directory, err) : status;
}
