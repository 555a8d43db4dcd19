/* mutate.c - mutations that keep the structure of a checkpoint whole, so that the fuzzer reaches what lies behind it: a zip
 * archive is built anew with right sizes and CRCs around a changed record, a safetensors header keeps its length, a native
 * header its CRC, a pickle its frame of opcodes. Half of the mutations are libFuzzer's own, on the bytes as they are. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);

enum { RECORDS_MAX = 64, LOCAL = 30, CENTRAL = 46, END = 22 };

typedef struct text {
    uint8_t *data;
    size_t size, room;
} text;

static uint32_t draw(uint32_t *state) /* xorshift: the run is repeated by its seed */
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

static void put(text *t, const void *from, size_t n)
{
    if (t->size + n > t->room) {
        size_t room = (t->size + n) * 2;
        uint8_t *more = realloc(t->data, room);
        if (!more)
            abort();
        t->data = more;
        t->room = room;
    }
    if (n)
        memcpy(t->data + t->size, from, n);
    t->size += n;
}

static void put_number(text *t, uint64_t n, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, n >>= 8) {
        uint8_t byte = (uint8_t)n;
        put(t, &byte, 1);
    }
}

static uint64_t number(const uint8_t *p, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = bytes; i-- > 0;)
        n = n << 8 | p[i];
    return n;
}

/* ---- pickles */

/* The length of the opcode at p with its argument; 0: it is not one, or goes past the end. */
static size_t opcode_size(const uint8_t *p, size_t left)
{
    static const char fixed1[] = "Kqh\x80\x82jr",
                      fixed0[] = "(.0123NQR]bde)ltus}oa\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98";
    size_t n = 1;
    switch (*p) {
    case 'I':
    case 'L':
    case 'F':
    case 'V':
    case 'S':
    case 'p':
    case 'g':
    case 'P': {
        const uint8_t *end = memchr(p, '\n', left);
        return end ? (size_t)(end - p) + 1 : 0;
    }
    case 'c':
    case 'i': {
        const uint8_t *end = memchr(p, '\n', left);
        end = end ? memchr(end + 1, '\n', left - (size_t)(end + 1 - p)) : NULL;
        return end ? (size_t)(end - p) + 1 : 0;
    }
    case 'J':
    case 'j':
    case 'r':
        n = 5;
        break;
    case 'M':
    case 0x83:
        n = 3;
        break;
    case 0x84:
        n = 5;
        break;
    case 'G':
    case 0x95:
        n = 9;
        break;
    case 'U':
    case 0x8a:
    case 0x8c:
    case 'C':
        n = left > 1 ? 2 + (size_t)p[1] : 0;
        break;
    case 'X':
    case 'B':
    case 'T':
    case 0x8b:
        n = left > 4 ? 5 + (size_t)number(p + 1, 4) : 0;
        break;
    case 0x8d:
    case 0x8e:
    case 0x96:
        n = left > 8 && number(p + 1, 8) < left ? 9 + (size_t)number(p + 1, 8) : 0;
        break;
    default:
        if (memchr(fixed1, *p, sizeof fixed1 - 1))
            n = 2;
        else if (!memchr(fixed0, *p, sizeof fixed0 - 1))
            n = 0;
    }
    return n <= left ? n : 0;
}

/* One to three changes of whole opcodes: one is left out, said twice, moved, replaced by a small one, or its argument is
 * changed. */
static void mutate_pickle(text *t, uint32_t *seed)
{
    static const uint8_t small[] = {'N',  ']',  '}',  ')',  '0',  '2',  '1',  '(',  't',  'l',  'd',
                                    'a',  'e',  's',  'u',  'b',  'R',  'Q',  '.',  'o',  0x81, 0x85,
                                    0x86, 0x87, 0x88, 0x89, 0x8f, 0x90, 0x91, 0x92, 0x93, 0x94};
    for (uint32_t times = 1 + draw(seed) % 3; times > 0 && t->size; times--) {
        size_t count = 0, starts[2], sizes[2];
        for (size_t at = 0, n; at < t->size && (n = opcode_size(t->data + at, t->size - at)) > 0; at += n)
            count++;
        if (count == 0)
            return;
        for (int k = 0; k < 2; k++) {
            size_t which = draw(seed) % count;
            starts[k] = 0;
            while (which-- > 0)
                starts[k] += opcode_size(t->data + starts[k], t->size - starts[k]);
            sizes[k] = opcode_size(t->data + starts[k], t->size - starts[k]);
        }
        text out = {NULL, 0, 0};
        uint8_t byte = small[draw(seed) % sizeof small];
        switch (draw(seed) % 5) {
        case 0: /* left out */
            put(&out, t->data, starts[0]);
            break;
        case 1: /* another one in its place */
            put(&out, t->data, starts[0]);
            put(&out, t->data + starts[1], sizes[1]);
            break;
        case 2: /* said twice */
            put(&out, t->data, starts[0] + sizes[0]);
            put(&out, t->data + starts[0], sizes[0]);
            break;
        case 3: /* a small one in front */
            put(&out, t->data, starts[0]);
            put(&out, &byte, 1);
            put(&out, t->data + starts[0], sizes[0]);
            break;
        default: /* its argument */
            put(&out, t->data, starts[0] + sizes[0]);
            if (sizes[0] > 1)
                out.data[starts[0] + 1 + draw(seed) % (sizes[0] - 1)] ^= (uint8_t)(1u << draw(seed) % 8);
        }
        put(&out, t->data + starts[0] + sizes[0], t->size - starts[0] - sizes[0]);
        free(t->data);
        *t = out;
    }
}

/* ---- zip archives */

typedef struct record {
    text name, content;
    bool deflated;
} record;

static size_t find_end(const uint8_t *p, size_t size)
{
    for (size_t at = size >= END ? size - END + 1 : 0; at-- > 0;)
        if (memcmp(p + at, "PK\5\6", 4) == 0)
            return at;
    return SIZE_MAX;
}

static bool inflate_to(text *t, const uint8_t *from, size_t n, size_t size)
{
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)from, .avail_in = (unsigned)n};
    if (size > 1 << 20 || inflateInit2(&z, -15) != Z_OK)
        return false;
    uint8_t *out = malloc(size + 1);
    z.next_out = out;
    z.avail_out = (unsigned)size;
    bool ok = out && inflate(&z, Z_FINISH) == Z_STREAM_END;
    if (ok)
        put(t, out, z.total_out);
    inflateEnd(&z);
    free(out);
    return ok;
}

/* The records by the central directory; 0: the archive is not so plain. */
static size_t read_zip(const uint8_t *p, size_t size, record *records)
{
    size_t end = find_end(p, size), count = 0;
    if (end == SIZE_MAX)
        return 0;
    size_t left = (size_t)number(p + end + 10, 2), at = (size_t)number(p + end + 16, 4);
    for (; left > 0 && count < RECORDS_MAX; left--) {
        if (at > size || size - at < CENTRAL || memcmp(p + at, "PK\1\2", 4) != 0)
            break;
        size_t name = (size_t)number(p + at + 28, 2),
               more = (size_t)number(p + at + 30, 2) + (size_t)number(p + at + 32, 2);
        size_t local = (size_t)number(p + at + 42, 4), n = (size_t)number(p + at + 20, 4),
               method = (size_t)number(p + at + 10, 2);
        if (size - at - CENTRAL < name + more || local > size || size - local < LOCAL)
            break;
        size_t data = local + LOCAL + (size_t)number(p + local + 26, 2) + (size_t)number(p + local + 28, 2);
        if (data > size || size - data < n)
            break;
        record *r = &records[count++];
        memset(r, 0, sizeof *r);
        put(&r->name, p + at + CENTRAL, name);
        if (method == 8)
            r->deflated = inflate_to(&r->content, p + data, n, (size_t)number(p + at + 24, 4));
        if (!r->deflated)
            put(&r->content, p + data, n);
        at += CENTRAL + name + more;
    }
    return count;
}

static void deflated(const text *content, text *out)
{
    uLong room = compressBound(content->size);
    uint8_t *p = malloc(room);
    z_stream z = {
        .next_in = content->data, .avail_in = (unsigned)content->size, .next_out = p, .avail_out = (unsigned)room};
    if (!p || deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    deflate(&z, Z_FINISH);
    put(out, p, z.total_out);
    deflateEnd(&z);
    free(p);
}

static void write_zip(text *out, const record *records, size_t count)
{
    text directory = {NULL, 0, 0};
    for (size_t i = 0; i < count; i++) {
        const record *r = &records[i];
        text coded = {NULL, 0, 0};
        if (r->deflated)
            deflated(&r->content, &coded);
        else
            put(&coded, r->content.data, r->content.size);
        uint32_t crc = (uint32_t)crc32(0, r->content.data, (unsigned)r->content.size);
        size_t local = out->size, pad = (64 - (local + LOCAL + r->name.size + 4) % 64) % 64;
        static const uint8_t zeros[64];
        for (int central = 0; central < 2; central++) {
            text *t = central ? &directory : out;
            put(t, central ? "PK\1\2\0\0" : "PK\3\4", central ? 6 : 4);
            put_number(t, 0, 4); /* version, flags */
            put_number(t, r->deflated ? 8 : 0, 2);
            put_number(t, 0, 4); /* time */
            put_number(t, crc, 4);
            put_number(t, coded.size, 4);
            put_number(t, r->content.size, 4);
            put_number(t, r->name.size, 2);
            put_number(t, central ? 0 : pad + 4, 2);
            if (central) {
                put_number(t, 0, 10);
                put_number(t, local, 4);
            }
            put(t, r->name.data, r->name.size);
            if (!central) {
                put(t, "FB", 2);
                put_number(t, pad, 2);
                put(t, zeros, pad);
                put(t, coded.data, coded.size);
            }
        }
        free(coded.data);
    }
    size_t at = out->size;
    put(out, directory.data, directory.size);
    put(out, "PK\5\6\0\0\0\0", 8);
    put_number(out, count, 2);
    put_number(out, count, 2);
    put_number(out, directory.size, 4);
    put_number(out, at, 4);
    put_number(out, 0, 2);
    free(directory.data);
}

static bool is_pickle(const record *r)
{
    return r->name.size > 4 && memcmp(r->name.data + r->name.size - 4, ".pkl", 4) == 0;
}

static void mutate_bytes(text *t)
{
    size_t room = t->size + 64;
    uint8_t *more = realloc(t->data, room);
    if (!more)
        abort();
    t->data = more;
    t->room = room;
    t->size = LLVMFuzzerMutate(t->data, t->size, room);
}

static void mutate_records(record *records, size_t *count, uint32_t *seed)
{
    record *r = &records[draw(seed) % *count];
    for (size_t i = 0; draw(seed) % 3 && i < *count; i++) /* mostly the pickle */
        if (is_pickle(&records[i]))
            r = &records[i];
    switch (draw(seed) % 8) {
    case 0:
        mutate_bytes(&r->name);
        break;
    case 1:
        r->deflated = !r->deflated;
        break;
    case 2: /* one record is left out, or there twice */
        if (draw(seed) % 2 && *count > 1) {
            free(r->name.data);
            free(r->content.data);
            memmove(r, r + 1, (size_t)(&records[*count] - r - 1) * sizeof *r);
            (*count)--;
        } else if (*count < RECORDS_MAX) {
            record *twin = &records[(*count)++];
            memset(twin, 0, sizeof *twin);
            put(&twin->name, r->name.data, r->name.size);
            put(&twin->content, r->content.data, r->content.size);
            if (draw(seed) % 2 && twin->name.size)
                twin->name.data[draw(seed) % twin->name.size] ^= 0x20;
        }
        break;
    case 3:
        mutate_bytes(&r->content);
        break;
    default:
        if (is_pickle(r))
            mutate_pickle(&r->content, seed);
        else
            mutate_bytes(&r->content);
    }
}

static size_t mutate_zip(uint8_t *data, size_t size, size_t max_size, uint32_t *seed)
{
    static record records[RECORDS_MAX];
    size_t count = read_zip(data, size, records), made = 0;
    text out = {NULL, 0, 0};
    if (count) {
        mutate_records(records, &count, seed);
        write_zip(&out, records, count);
        if (out.size <= max_size) {
            memcpy(data, out.data, out.size);
            made = out.size;
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(records[i].name.data);
        free(records[i].content.data);
    }
    free(out.data);
    return made;
}

/* ---- safetensors, and ours */

static size_t mutate_header(uint8_t *data, size_t size, size_t max_size)
{
    static const char native[] = "{\"__metadata__\":{\"ckpt.crc32\":\"";
    uint64_t n = size > 8 ? number(data, 8) : 0;
    if (size < 10 || data[8] != '{' || n > size - 8)
        return 0;
    text header = {NULL, 0, 0}, out = {NULL, 0, 0};
    put(&header, data + 8, (size_t)n);
    mutate_bytes(&header);
    put_number(&out, header.size, 8);
    put(&out, header.data, header.size);
    put(&out, data + 8 + n, size - 8 - (size_t)n);
    size_t at = 8 + sizeof native - 1;
    if (header.size > sizeof native + 8 && memcmp(header.data, native, sizeof native - 1) == 0) {
        memset(out.data + at, '0', 8);
        uint32_t crc = (uint32_t)crc32(0, out.data, (unsigned)(8 + header.size));
        for (int i = 0; i < 8; i++)
            out.data[at + (size_t)i] = (uint8_t) "0123456789abcdef"[crc >> (28 - 4 * i) & 15];
    }
    size_t made = out.size <= max_size ? out.size : 0;
    if (made)
        memcpy(data, out.data, made);
    free(header.data);
    free(out.data);
    return made;
}

/* One file, as what it is; 0: nothing came of it. */
static size_t mutate_file(uint8_t *data, size_t size, size_t max_size, uint32_t *state)
{
    size_t made = 0;
    if (size > 4 && memcmp(data, "PK\3\4", 4) == 0)
        made = mutate_zip(data, size, max_size, state);
    else if (size > 2 && data[0] == 0x80) {
        text t = {NULL, 0, 0};
        put(&t, data, size);
        mutate_pickle(&t, state);
        if (t.size && t.size <= max_size)
            memcpy(data, t.data, made = t.size);
        free(t.data);
    } else
        made = mutate_header(data, size, max_size);
    return made;
}

/* ---- directories, as fuzz_open.c has them */

static const char packed[] = "CKPTDIR\n";
enum { PACKED = sizeof packed - 1, ENTRY = 6, ENTRIES = 100 };

/* Where the files begin; how many there are. */
static size_t list_files(const uint8_t *data, size_t size, size_t *at)
{
    size_t count = 0, next = PACKED;
    while (count < ENTRIES && size - next >= ENTRY) {
        const uint64_t n = number(data + next, 2), bytes = number(data + next + 2, 4);
        if (n + bytes > size - next - ENTRY)
            break;
        at[count++] = next;
        next += ENTRY + (size_t)(n + bytes);
    }
    at[count] = next;
    return count;
}

/* One of its files is changed as a file of its kind, left out, or there under the name of another. */
static size_t mutate_directory(uint8_t *data, size_t size, size_t max_size, uint32_t *state)
{
    size_t at[ENTRIES + 1], count = list_files(data, size, at), made = 0;
    if (count == 0)
        return 0;
    const size_t which = draw(state) % count, from = at[which], n = (size_t)number(data + from, 2),
                 bytes = (size_t)number(data + from + 2, 4), other = draw(state) % count;
    const uint32_t how = draw(state) % 16;
    text out = {NULL, 0, 0}, file = {NULL, 0, 0};
    put(&file, data + from + ENTRY + n, bytes);
    size_t room = max_size - size + bytes;
    uint8_t *own = calloc(1, room + 1);
    if (own && bytes)
        memcpy(own, file.data, bytes);
    size_t now = bytes;
    if (own && how > 1 && room > 0) {
        now = bytes ? mutate_file(own, bytes, room, state) : 0;
        now = now ? now : LLVMFuzzerMutate(own, bytes, room);
    }
    put(&out, data, from);
    if (own && how != 0) {
        const size_t name_at = how == 1 ? at[other] : from, name = (size_t)number(data + name_at, 2);
        put_number(&out, name, 2);
        put_number(&out, now, 4);
        put(&out, data + name_at + ENTRY, name);
        put(&out, own, now);
    }
    put(&out, data + at[which + 1], size - at[which + 1]);
    if (own && out.size <= max_size)
        memcpy(data, out.data, made = out.size);
    free(own);
    free(out.data);
    free(file.data);
    return made;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    uint32_t state = seed * 2654435761u + 1;
    size_t made = 0;
    const bool directory = size > PACKED && size <= max_size && memcmp(data, packed, PACKED) == 0;
    if (draw(&state) % (directory ? 8 : 2) == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    made = directory ? mutate_directory(data, size, max_size, &state) : mutate_file(data, size, max_size, &state);
    return made ? made : LLVMFuzzerMutate(data, size, max_size);
}
