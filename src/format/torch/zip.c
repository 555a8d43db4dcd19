/* format/torch/zip.c - the archive that torch 2.13 writes, byte for byte (caffe2/serialize/inline_container.cc and its
 * miniz): local headers without sizes and CRCs; an extra field "FB" that pads until the record lies at a multiple of 64
 * (torch computes the offsets of storages from that, without reading the directory); a data descriptor behind each
 * record that is not empty; a central directory with the true CRCs; the ZIP64 end records always. Descriptors, the
 * serialization id and the directory are COMPUTED segments: they need the CRCs of what went by before them. */
#include "codec/crc32.h"
#include "format/safetensors.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    ALIGN = 64,
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END64_SIZE = 56,
    LOCATOR_SIZE = 20,
    END_SIZE = 22,
    FLAG_UTF8 = 0x0800,
    FLAG_DESCRIPTOR = 0x0008,
    ID_DIGITS = 40
};
static const uint64_t NARROW = 0xFFFFFFFF;

/* One record of the archive that is written. Of an archive "archive" the first record "data.pkl" has header 0; its bytes begin at
 * 64, because the local header is padded until they begin at a multiple of ALIGN. */
typedef struct entry {
    const char *name; /* static or the recipe's; NULL: "data/<key>" */
    size_t key;
    uint64_t header; /* offset of its local header in the file */
    size_t payload;  /* number of its segment; SIZE_MAX: it is empty */
} entry;

/* What compute() works on, in the recipe's arena. COMPUTED segments have twice the number of their entry: a header; one more
 * than that: a descriptor; or one of these. */
enum { THE_ID = 0, THE_DIRECTORY = 1, FIRST = 2 };
typedef struct layout {
    ckpt_str archive;
    entry *entries;
    size_t count, capacity;
} layout;

struct ckpt__torch_zip {
    ckpt__recipe *recipe;
    layout *layout;
    size_t segment_capacity;
};

static ckpt_status no_memory(const ckpt__torch_zip *z, ckpt_error *err)
{
    return ckpt__fail_memory(err, "the archive's directory", z->layout ? z->layout->count * sizeof(entry) : 0);
}

ckpt__torch_zip *ckpt__torch_zip_new(ckpt__recipe *recipe, const char *archive, size_t records)
{
    enum { SEGMENTS = 3 }; /* header, bytes, descriptor */
    ckpt__torch_zip *z = calloc(1, sizeof *z);
    layout *l = z ? ckpt__arena_alloc(recipe->arena, sizeof *l) : NULL;
    if (l && records < SIZE_MAX / SEGMENTS - 1) {
        l->archive = ckpt__arena_str(recipe->arena, archive, strlen(archive));
        l->capacity = records + 1; /* the id */
        l->entries = ckpt__arena_array(recipe->arena, l->capacity, sizeof *l->entries);
    }
    if (!l || !l->archive.data || !l->entries ||
        !ckpt__grow(&recipe->segments, &z->segment_capacity, l->capacity * SEGMENTS + 2, sizeof *recipe->segments)) {
        free(z);
        return NULL;
    }
    z->recipe = recipe;
    z->layout = l;
    return z;
}

void ckpt__torch_zip_free(ckpt__torch_zip *z)
{
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

static uint64_t size_of(const ckpt__recipe *r, const entry *e)
{
    return e->payload == SIZE_MAX ? 0 : r->segments[e->payload].size;
}

/* ---- names: the archive's, a slash, and */

typedef struct record_name {
    char text[40];
    size_t size;
} record_name;

static record_name name_of(const entry *e)
{
    record_name n;
    int size = e->name ? snprintf(n.text, sizeof n.text, "/%s", e->name)
                       : snprintf(n.text, sizeof n.text, "/data/%zu", e->key);
    n.size = (size_t)size;
    return n;
}

static size_t name_size(const layout *l, const entry *e)
{
    size_t digits = 1;
    for (size_t k = e->key; k > 9; k /= 10)
        digits++;
    return l->archive.size + (e->name ? 1 + strlen(e->name) : sizeof "/data/" - 1 + digits);
}

static void put_name(const layout *l, const entry *e, char *to)
{
    record_name n = name_of(e);
    memcpy(to, l->archive.data, l->archive.size);
    memcpy(to + l->archive.size, n.text, n.size);
}

/* ---- local headers */

/* The ZIP64 field of a local header: the size, a compressed size that miniz does not know yet there (0), the offset. */
static size_t put_local64(char *to, uint64_t size, const entry *e)
{
    size_t n = 4;
    if (!is_wide(size) && !is_wide(e->header))
        return 0;
    if (is_wide(size)) {
        le(to + n, size, 8);
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

/* Of the header with its name and all of its extra fields. */
static size_t header_size(const layout *l, const entry *e, uint64_t size)
{
    char wide[32];
    size_t n = LOCAL_SIZE + name_size(l, e) + put_local64(wide, size, e) + 4;
    return n + (size_t)((ALIGN - (e->header + n) % ALIGN) % ALIGN);
}

static void put_header(const ckpt__recipe *r, const entry *e, char *b)
{
    const layout *l = r->ctx;
    char wide[32];
    uint64_t bytes = size_of(r, e);
    size_t extra = put_local64(wide, bytes, e), named = name_size(l, e), size = header_size(l, e, bytes);
    size_t pad = size - (LOCAL_SIZE + named + extra + 4);
    memset(b, 0, LOCAL_SIZE);
    memcpy(b, "PK\3\4", 4);
    le(b + 6, bytes ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8, 2);
    le(b + 26, named, 2);
    le(b + 28, extra + 4 + pad, 2);
    put_name(l, e, b + LOCAL_SIZE);
    char *field = b + LOCAL_SIZE + named;
    memcpy(field, wide, extra);
    memcpy(field + extra, "FB", 2);
    le(field + extra + 2, pad, 2);
    memset(field + extra + 4, 'Z', pad);
}

/* ---- records */

static ckpt_status add_segment(ckpt__torch_zip *z, ckpt__segment_kind kind, uint64_t size, const char *bytes,
                               size_t number, ckpt_error *err)
{
    return ckpt__recipe_add(z->recipe, &z->segment_capacity, kind, size, bytes, number, err);
}

static ckpt_status add_record(ckpt__torch_zip *z, entry is, ckpt__segment_kind kind, uint64_t size, const char *bytes,
                              size_t number, ckpt_error *err)
{
    layout *l = z->layout;
    size_t k = l->count;
    if (k == l->capacity)
        return no_memory(z, err);
    if (name_size(l, &is) > UINT16_MAX - 1024)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "an archive name of %zu bytes; a zip holds 64 KiB", l->archive.size);
    is.header = z->recipe->size;
    is.payload = size ? z->recipe->count + 1 : SIZE_MAX;
    l->entries[l->count++] = is;
    ckpt_status status = add_segment(z, CKPT__COMPUTED, header_size(l, &is, size), NULL, FIRST + 2 * k, err);
    if (status < 0 || size == 0)
        return status;
    status = add_segment(z, kind, size, bytes, number, err);
    uint64_t descriptor = is_wide(size) || is_wide(is.header) ? 24 : 16;
    return status < 0 ? status : add_segment(z, CKPT__COMPUTED, descriptor, NULL, FIRST + 2 * k + 1, err);
}

ckpt_status ckpt__torch_zip_bytes(ckpt__torch_zip *z, const char *name, const char *bytes, size_t size, ckpt_error *err)
{
    return add_record(z, (entry){.name = name}, CKPT__LITERAL, size, bytes, 0, err);
}

ckpt_status ckpt__torch_zip_storage(ckpt__torch_zip *z, size_t key, size_t storage, uint64_t size, ckpt_error *err)
{
    return add_record(z, (entry){.key = key}, CKPT__STORAGE, size, NULL, storage, err);
}

/* ---- what is computed */

static uint32_t crc_of(const entry *e, const uint32_t *crcs)
{
    return e->payload == SIZE_MAX ? 0 : crcs[e->payload];
}

static void put_descriptor(const ckpt__recipe *r, const entry *e, const ckpt__segment *s, uint32_t crc, char *to)
{
    unsigned width = s->size == 24 ? 8 : 4;
    memcpy(to, "PK\7\10", 4);
    le(to + 4, crc, 4);
    le(to + 8, size_of(r, e), width);
    le(to + 8 + width, size_of(r, e), width);
}

static uint64_t fnv(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

/* torch's id is a hash of the records' names, then one of their contents; nothing ever looks at it. Ours is made of the
 * same, so that the same checkpoint is the same file. */
static void put_id(const ckpt__recipe *r, const uint32_t *crcs, char *to)
{
    const layout *l = r->ctx;
    uint64_t names = 0xcbf29ce484222325, contents = 0xcbf29ce484222325; /* FNV-1a, 64 bits */
    char digits[ID_DIGITS + 1];
    for (size_t i = 0; i + 1 < l->count; i++) {
        const entry *e = &l->entries[i];
        record_name n = name_of(e);
        names = fnv(fnv(names, l->archive.data, l->archive.size), n.text, n.size);
        uint64_t parts[2] = {size_of(r, e), crc_of(e, crcs)}; /* little-endian, as this host is */
        contents = fnv(contents, parts, sizeof parts);
    }
    snprintf(digits, sizeof digits, "%020llu%020llu", (unsigned long long)names, (unsigned long long)contents);
    memcpy(to, digits, ID_DIGITS);
}

static size_t central_extra(uint64_t size, const entry *e)
{
    size_t n = (is_wide(size) ? 16u : 0) + (is_wide(e->header) ? 8u : 0);
    return n ? n + 4 : 0;
}

static size_t put_central(const ckpt__recipe *r, const entry *e, uint32_t crc, char *b)
{
    const layout *l = r->ctx;
    uint64_t size = size_of(r, e);
    size_t extra = central_extra(size, e), named = name_size(l, e), n = CENTRAL_SIZE + named;
    memset(b, 0, n + extra);
    memcpy(b, "PK\1\2", 4);
    le(b + 8, size ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8, 2);
    le(b + 16, crc, 4);
    le(b + 20, is_wide(size) ? NARROW : size, 4);
    le(b + 24, is_wide(size) ? NARROW : size, 4);
    le(b + 28, named, 2);
    le(b + 30, extra, 2);
    le(b + 42, is_wide(e->header) ? NARROW : e->header, 4);
    put_name(l, e, b + CENTRAL_SIZE);
    if (!extra)
        return n;
    le(b + n, 1, 2);
    le(b + n + 2, extra - 4, 2);
    size_t at = n + 4;
    if (is_wide(size)) {
        le(b + at, size, 8);
        le(b + at + 8, size, 8);
        at += 16;
    }
    if (is_wide(e->header))
        le(b + at, e->header, 8);
    return n + extra;
}

static ckpt_status compute(const ckpt__recipe *r, size_t i, const uint32_t *crcs, char *to, ckpt_error *err)
{
    const layout *l = r->ctx;
    const ckpt__segment *s = &r->segments[i];
    const entry *e = s->number < FIRST ? NULL : &l->entries[(s->number - FIRST) / 2];
    (void)err;
    if (s->number == THE_ID)
        put_id(r, crcs, to);
    else if (s->number == THE_DIRECTORY)
        for (size_t k = 0; k < l->count; k++)
            to += put_central(r, &l->entries[k], crc_of(&l->entries[k], crcs), to);
    else if (s->number % 2 == FIRST % 2)
        put_header(r, e, to);
    else
        put_descriptor(r, e, s, crc_of(e, crcs), to);
    return CKPT_OK;
}

/* ---- the end */

/* ZIP64 end record, its locator, the old end record. */
static ckpt_status put_end(ckpt__torch_zip *z, uint64_t offset, uint64_t size, ckpt_error *err)
{
    enum { LOCATOR = END64_SIZE, END = END64_SIZE + LOCATOR_SIZE, ALL = END64_SIZE + LOCATOR_SIZE + END_SIZE };
    char *b = ckpt__arena_alloc(z->recipe->arena, ALL);
    size_t n = z->layout->count;
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
    return add_segment(z, CKPT__LITERAL, ALL, b, 0, err);
}

ckpt_status ckpt__torch_zip_finish(ckpt__torch_zip *z, ckpt_error *err)
{
    ckpt__recipe *r = z->recipe;
    const layout *l = z->layout;
    ckpt_status status =
        add_record(z, (entry){.name = ".data/serialization_id"}, CKPT__COMPUTED, ID_DIGITS, NULL, THE_ID, err);
    uint64_t size = 0, offset = r->size;
    for (size_t i = 0; i < l->count; i++)
        size += CENTRAL_SIZE + name_size(l, &l->entries[i]) + central_extra(size_of(r, &l->entries[i]), &l->entries[i]);
    if (status == CKPT_OK)
        status = add_segment(z, CKPT__COMPUTED, size, NULL, THE_DIRECTORY, err);
    if (status == CKPT_OK)
        status = put_end(z, offset, size, err);
    r->compute = compute;
    r->ctx = z->layout;
    return status;
}
