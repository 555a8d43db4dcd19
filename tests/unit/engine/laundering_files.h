/* tests/unit/engine/laundering_files.h - files of one storage and a view of it, sound or with one byte changed: what the tests of
 * damage under views share. */
#ifndef LAUNDERING_FILES_H
#define LAUNDERING_FILES_H
#include <ckpt/ckpt.h>
#include "../migrate_setup.h"

enum { VALUES = 64, UNIT = 4 }; /* float32, or half of a complex64, in the storage: 1, 2, 3, ... */

typedef struct kind {
    const char *name;
    int64_t offset;
    int ndim;
    int64_t shape[3], strides[3];
    const char *flag; /* "neg", "conj" (then elements are complex64): set in the view's metadata */
    int64_t second;   /* not 0: another view, "v", of the storage from here to its end */
} kind;

static const kind kinds[] = {
    {.name = "whole", .ndim = 2, .shape = {8, 8}, .strides = {8, 1}},
    {.name = "transposed", .ndim = 2, .shape = {8, 8}, .strides = {1, 8}},
    {.name = "partial", .ndim = 2, .shape = {3, 8}, .strides = {8, 1}},
    {.name = "partial, not from the start", .offset = 24, .ndim = 2, .shape = {2, 8}, .strides = {8, 1}},
    {.name = "partial, transposed", .offset = 16, .ndim = 2, .shape = {8, 3}, .strides = {1, 8}},
    {.name = "strided", .offset = 1, .ndim = 2, .shape = {8, 4}, .strides = {8, 2}},
    {.name = "three dimensions", .ndim = 3, .shape = {2, 4, 8}, .strides = {4, 1, 8}},
    {.name = "expanded", .offset = 8, .ndim = 2, .shape = {4, 8}, .strides = {0, 1}},
    {.name = "flat", .offset = 5, .ndim = 1, .shape = {10}, .strides = {1}},
    {.name = "one element", .offset = 63, .ndim = 0},
    {.name = "negated", .ndim = 2, .shape = {8, 8}, .strides = {8, 1}, .flag = "neg"},
    {.name = "negated, partial", .offset = 8, .ndim = 2, .shape = {8, 4}, .strides = {1, 8}, .flag = "neg"},
    {.name = "conjugated", .ndim = 2, .shape = {4, 8}, .strides = {8, 1}, .flag = "conj"},
    {.name = "conjugated, transposed", .ndim = 2, .shape = {8, 4}, .strides = {1, 8}, .flag = "conj"},
    {.name = "one of two", .ndim = 2, .shape = {4, 8}, .strides = {8, 1}, .second = 32},
    {.name = "one of two that overlap", .ndim = 2, .shape = {8, 5}, .strides = {1, 8}, .second = 32},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* How the file keeps its storage. A legacy torch file and safetensors keep no CRC: there is nothing that could tell. */
typedef enum wrapping { STORED, DEFLATED, SWAPPED, NATIVE, WRAPPINGS } wrapping;
static const char *const wrappings[] = {"stored", "deflated", "big-endian", "ckpt"};

typedef enum flip { SOUND, UNDER, OUTSIDE } flip;
static const char *const flips[] = {"sound", "damaged under the view", "damaged outside of the view"};

static char label[200]; /* of the case at hand */

static inline bool is_complex(const kind *k)
{
    return k->flag && strcmp(k->flag, "conj") == 0;
}

static inline size_t elements_of(const kind *k)
{
    size_t n = 1;
    for (int i = 0; i < k->ndim; i++)
        n *= (size_t)k->shape[i];
    return n;
}

/* The floats of the storage that the view shows, one by one: numbers in the storage. */
static inline size_t floats_of(const kind *k, size_t *out)
{
    size_t n = 0, half = is_complex(k) ? 2 : 1;
    for (size_t e = 0; e < elements_of(k); e++) {
        size_t rest = e, at = (size_t)k->offset;
        for (int i = k->ndim; i-- > 0; rest /= (size_t)k->shape[i])
            at += rest % (size_t)k->shape[i] * (size_t)k->strides[i];
        for (size_t h = 0; h < half; h++)
            out[n++] = at * half + h;
    }
    return n;
}

/* What reading the view gives. */
static inline size_t expected(const kind *k, float *out)
{
    size_t where[4 * VALUES], n = floats_of(k, where);
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)(where[i] + 1);
        if (k->flag && (!is_complex(k) || i % 2))
            out[i] = -out[i];
    }
    return n;
}

/* A float of the storage to damage; VALUES: there is none such. */
static inline size_t victim(const kind *k, flip f)
{
    size_t where[4 * VALUES], n = floats_of(k, where);
    bool under[VALUES] = {false};
    for (size_t i = 0; i < n; i++)
        under[where[i]] = true;
    for (size_t i = VALUES; i-- > 0;)
        if (under[i] == (f == UNDER))
            return i;
    return VALUES;
}

static inline void put_view(bytes *b, const kind *k)
{
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    PUT(b, "(");
    put_storage(b, is_complex(k) ? "ComplexFloatStorage" : "FloatStorage", "0", "cpu",
                is_complex(k) ? VALUES / 2 : VALUES);
    put_int(b, k->offset);
    put_ints(b, k->shape, k->ndim);
    put_ints(b, k->strides, k->ndim);
    PUT(b, "\x89");
    put_ordered_dict(b);
    if (k->flag) {
        PUT(b, "}");
        put_str(b, k->flag);
        PUT(b, "\x88s");
    }
    PUT(b, "tR");
}

static inline void replace_number(bytes *b, uint32_t from, uint32_t to)
{
    size_t found = 0;
    for (size_t i = 0; i + 4 <= b->size; i++)
        if (memcmp(b->data + i, &from, 4) == 0) {
            memcpy(b->data + i, &to, 4);
            found++;
        }
    ck_assert_uint_ge(found, 2); /* behind the data, or before, and in the directory */
}

/* The archive that holds damaged bytes under the CRC of the sound ones. */
static inline void write_archive(const char *path, const kind *k, wrapping w, flip f)
{
    static archive a;
    static bytes pickle;
    unsigned char sound[VALUES * UNIT], data[sizeof sound];
    memset(&a, 0, sizeof a);
    pickle.size = 0;
    PUT(&pickle, "\x80\2}");
    put_str(&pickle, "w");
    put_view(&pickle, k);
    PUT(&pickle, "s");
    if (k->second) {
        put_str(&pickle, "v");
        put_view(&pickle, &(kind){.offset = k->second, .ndim = 1, .shape = {VALUES - k->second}, .strides = {1}});
        PUT(&pickle, "s");
    }
    PUT(&pickle, ".");
    for (size_t i = 0; i < VALUES; i++) {
        float value = (float)(i + 1);
        unsigned char own[UNIT];
        memcpy(own, &value, UNIT);
        for (size_t c = 0; c < UNIT; c++)
            sound[i * UNIT + c] = own[w == SWAPPED ? UNIT - 1 - c : c];
    }
    memcpy(data, sound, sizeof data);
    if (f != SOUND)
        data[victim(k, f) * UNIT + 1] ^= 0x10;
    add_record(&a, &(record){.name = "archive/data.pkl", .data = pickle.data, .size = pickle.size, .flags = 0x808});
    if (w == SWAPPED)
        add_record(&a, &(record){.name = "archive/byteorder", .data = "big", .size = 3, .flags = 0x808});
    add_record(
        &a, &(record){
                .name = "archive/data/0", .data = data, .size = sizeof data, .flags = 0x808, .deflate = w == DEFLATED});
    add_record(&a, &(record){.name = "archive/version", .data = "3\n", .size = 2, .flags = 0x808});
    put_end(&a, a.count, "");
    if (f != SOUND)
        replace_number(&a.file, ckpt__crc32(0, data, sizeof data), ckpt__crc32(0, sound, sizeof sound));
    write_to(path, a.file.data, a.file.size);
}

/* One byte of the value that is damaged in the others, wherever a ckpt file has it. false: it keeps no such value. */
static inline bool write_native(const char *path, const kind *k, flip f)
{
    static bytes b;
    ckpt_migrate_options o = {.to = "ckpt", .no_sync = true, .force = true, .verify = true};
    write_archive(at("sound.pt"), k, STORED, SOUND);
    ck_assert_msg(ckpt_migrate(at("sound.pt"), path, &o, NULL, &err) == CKPT_OK, "%s: %s", label, err.message);
    if (f == SOUND)
        return true;
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    b.size = fread(b.data, 1, sizeof b.data, file);
    fclose(file);
    float value = (float)(victim(k, f) + 1), other = -value;
    unsigned char *hit = memmem(b.data, b.size, &value, sizeof value);
    if (!hit)
        hit = memmem(b.data, b.size, &other, sizeof other);
    if (!hit)
        return false;
    hit[1] ^= 0x10;
    write_to(path, b.data, b.size);
    return true;
}

/* false: there is no such case. */
static inline bool write_case(const char *path, const kind *k, wrapping w, flip f)
{
    snprintf(label, sizeof label, "%s, %s, %s", k->name, wrappings[w], flips[f]);
    if (f != SOUND && victim(k, f) == VALUES)
        return false;
    if (w == NATIVE)
        return write_native(path, k, f);
    write_archive(path, k, w, f);
    return true;
}

/* Every case, one after the other. */
typedef void (*case_fn)(const char *path, const kind *k, flip f, void *ctx);
static inline size_t each_case(case_fn fn, void *ctx)
{
    char path[400];
    size_t count = 0, step = getenv("CKPT_TEST_FEW") ? 13 : 1; /* under valgrind: one of so many */
    strcpy(path, at("in"));
    for (size_t k = 0; k < KINDS; k++)
        for (wrapping w = STORED; w < WRAPPINGS; w++)
            for (flip f = SOUND; f <= OUTSIDE; f++)
                if (write_case(path, &kinds[k], w, f)) {
                    if (count++ % step == 0)
                        fn(path, &kinds[k], f, ctx);
                }
    return count;
}

/* A zip of a pickle and one stored record of `size` bytes, larger than those of torch_emit.h: its data, or zeros. */
static inline void write_large(const char *path, const bytes *pickle, const unsigned char *data, uint32_t size,
                               uint32_t crc)
{
    static archive a;
    memset(&a, 0, sizeof a);
    add_record(&a, &(record){.name = "a/data.pkl", .data = pickle->data, .size = pickle->size, .flags = 0x808});
    add_record(&a, &(record){.name = "a/version", .data = "3\n", .size = 2, .flags = 0x808});
    uint64_t local = a.file.size;
    bytes *h = &a.file, *d = &a.directory;
    PUT(h, "PK\3\4\x14\0\0\0\0\0\0\0\0\0");
    put_number(h, crc, 4);
    put_number(h, size, 4);
    put_number(h, size, 4);
    put_number(h, 8, 2);
    put_number(h, 0, 2);
    PUT(h, "a/data/0");
    PUT(d, "PK\1\2\x14\0\x14\0\0\0\0\0\0\0\0\0");
    put_number(d, crc, 4);
    put_number(d, size, 4);
    put_number(d, size, 4);
    put_number(d, 8, 2);
    put_number(d, 0, 12);
    put_number(d, local, 4);
    PUT(d, "a/data/0");
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(h->data, 1, h->size, f) == h->size);
    ck_assert((!data || fwrite(data, 1, size, f) == size) && fseek(f, (long)(h->size + size), SEEK_SET) == 0);
    uint64_t at_byte = h->size + size;
    h->size = 0;
    put(h, d->data, d->size);
    PUT(h, "PK\5\6");
    put_number(h, 0, 4);
    put_number(h, 3, 2);
    put_number(h, 3, 2);
    put_number(h, d->size, 4);
    put_number(h, at_byte, 4);
    put_number(h, 0, 2);
    ck_assert(fwrite(h->data, 1, h->size, f) == h->size && fclose(f) == 0);
}
#endif
