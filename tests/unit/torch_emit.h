/* tests/unit/torch_emit.h - writes zips and pickles byte by byte, right or wrong, for the tests that read them. */
#ifndef TORCH_EMIT_H
#define TORCH_EMIT_H
#include "base/base.h"
#include "codec/crc32.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct bytes {
    unsigned char data[1 << 16];
    size_t size;
} bytes;

static inline void put(bytes *b, const void *data, size_t n)
{
    if (n > sizeof b->data - b->size)
        abort();
    if (n)
        memcpy(b->data + b->size, data, n);
    b->size += n;
}
static inline void put_number(bytes *b, uint64_t value, int width)
{
    for (int i = 0; i < width; i++) {
        unsigned char c = (unsigned char)(i < 8 ? value >> 8 * i : 0);
        put(b, &c, 1);
    }
}
#define PUT(b, literal) put(b, literal, sizeof(literal) - 1)

/* ---- pickles */

static inline void put_str(bytes *b, const char *text) /* BINUNICODE */
{
    PUT(b, "X");
    put_number(b, strlen(text), 4);
    put(b, text, strlen(text));
}
static inline void put_int(bytes *b, int64_t value) /* LONG1 of 8 bytes */
{
    PUT(b, "\x8a\x08");
    put_number(b, (uint64_t)value, 8);
}
static inline void put_real(bytes *b, double value) /* BINFLOAT, whose first byte is the highest */
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    PUT(b, "G");
    for (int i = 7; i >= 0; i--)
        put_number(b, bits >> 8 * i & 0xFF, 1);
}
static inline void put_global(bytes *b, const char *module, const char *name)
{
    PUT(b, "c");
    put(b, module, strlen(module));
    PUT(b, "\n");
    put(b, name, strlen(name));
    PUT(b, "\n");
}
static inline void put_storage(bytes *b, const char *class_name, const char *key, const char *location, int64_t numel)
{
    PUT(b, "(");
    put_str(b, "storage");
    put_global(b, "torch", class_name);
    put_str(b, key);
    put_str(b, location);
    put_int(b, numel);
    PUT(b, "tQ");
}
static inline void put_ints(bytes *b, const int64_t *values, int n)
{
    PUT(b, "(");
    for (int i = 0; i < n; i++)
        put_int(b, values[i]);
    PUT(b, "t");
}
static inline void put_ordered_dict(bytes *b)
{
    put_global(b, "collections", "OrderedDict");
    PUT(b, ")R");
}

typedef struct view {
    const char *class_name, *key, *location;
    int64_t numel, offset;
    int ndim, stride_count;
    int64_t shape[4], strides[4];
} view;

/* _rebuild_tensor_v2(storage, offset, size, stride, False, OrderedDict()) */
static inline void put_tensor(bytes *b, const view *v)
{
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    PUT(b, "(");
    put_storage(b, v->class_name, v->key, v->location, v->numel);
    put_int(b, v->offset);
    put_ints(b, v->shape, v->ndim);
    put_ints(b, v->strides, v->stride_count);
    PUT(b, "\x89");
    put_ordered_dict(b);
    PUT(b, "tR");
}

/* _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, float32, (n,), (1,), 0, strided, cpu, False), and there the
 * attributes follow, and "tR": a tensor of a class that is a shell around others. */
static inline void begin_wrapper(bytes *b, const char *module, const char *name, int64_t n)
{
    put_global(b, "torch._tensor", "_rebuild_from_type_v2");
    PUT(b, "(");
    put_global(b, "torch._utils", "_rebuild_wrapper_subclass");
    put_global(b, module, name);
    PUT(b, "(");
    put_global(b, module, name);
    put_global(b, "torch", "float32");
    put_int(b, n);
    PUT(b, "\x85K\1\x85K\0");
    put_global(b, "torch.serialization", "_get_layout");
    put_str(b, "torch.strided");
    PUT(b, "\x85R");
    put_global(b, "torch", "device");
    put_str(b, "cpu");
    PUT(b, "\x85R\x89t");
}

/* ---- zips */

typedef struct record {
    const char *name, *local_name; /* local_name NULL: the same */
    const void *data;
    size_t size;
    unsigned flags, method;
    bool deflate; /* packs the data */
    bool no_crc, wrong_crc, wrong_descriptor;
    uint32_t usize; /* 0: the true one */
    uint32_t local_usize;
    bool at_zero; /* the entry points to byte 0, nothing local is written */
} record;

typedef struct archive {
    bytes file, directory;
    unsigned count;
    size_t directory_at;
} archive;

static inline size_t deflate_into(const record *r, unsigned char *out, size_t room)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    z.next_in = (unsigned char *)(uintptr_t)r->data;
    z.avail_in = (uInt)r->size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    size_t n = z.total_out;
    deflateEnd(&z);
    return n;
}

static inline void add_record(archive *a, const record *r)
{
    static unsigned char packed[1 << 16];
    const void *data = r->data;
    size_t csize = r->size;
    unsigned method = r->deflate ? 8 : r->method;
    if (r->deflate) {
        csize = deflate_into(r, packed, sizeof packed);
        data = packed;
    }
    uint32_t crc = r->no_crc ? 0 : ckpt__crc32(0, r->data, r->size) ^ (r->wrong_crc ? 1 : 0);
    uint32_t usize = r->usize ? r->usize : (uint32_t)r->size, at = r->at_zero ? 0 : (uint32_t)a->file.size;
    const char *local = r->local_name ? r->local_name : r->name;
    bool described = r->flags & 8;
    if (!r->at_zero) {
        PUT(&a->file, "PK\3\4");
        put_number(&a->file, 20, 2);
        put_number(&a->file, r->flags, 2);
        put_number(&a->file, method, 2);
        put_number(&a->file, 0, 4);
        put_number(&a->file, described ? 0 : crc, 4);
        put_number(&a->file, described ? 0 : csize, 4);
        put_number(&a->file, described ? 0 : r->local_usize ? r->local_usize : usize, 4);
        put_number(&a->file, strlen(local), 2);
        put_number(&a->file, 7, 2);
        put(&a->file, local, strlen(local));
        put(&a->file, "FB\3\0ZZZ", 7); /* torch's padding */
        put(&a->file, data, csize);
        if (described) {
            PUT(&a->file, "PK\7\x08");
            put_number(&a->file, crc, 4);
            put_number(&a->file, csize + (r->wrong_descriptor ? 1 : 0), 4);
            put_number(&a->file, usize, 4);
        }
    }
    PUT(&a->directory, "PK\1\2");
    put_number(&a->directory, 20, 2);
    put_number(&a->directory, 20, 2);
    put_number(&a->directory, r->flags, 2);
    put_number(&a->directory, method, 2);
    put_number(&a->directory, 0, 4);
    put_number(&a->directory, crc, 4);
    put_number(&a->directory, csize, 4);
    put_number(&a->directory, usize, 4);
    put_number(&a->directory, strlen(r->name), 2);
    put_number(&a->directory, 0, 12);
    put_number(&a->directory, at, 4);
    put(&a->directory, r->name, strlen(r->name));
    a->count++;
}

static inline void put_end(archive *a, unsigned count, const char *comment)
{
    a->directory_at = a->file.size;
    put(&a->file, a->directory.data, a->directory.size);
    PUT(&a->file, "PK\5\6");
    put_number(&a->file, 0, 4);
    put_number(&a->file, count, 2);
    put_number(&a->file, count, 2);
    put_number(&a->file, a->directory.size, 4);
    put_number(&a->file, a->directory_at, 4);
    put_number(&a->file, strlen(comment), 2);
    put(&a->file, comment, strlen(comment));
}

/* The 64-bit end records, as torch always writes them; lies are added to the true values. */
static inline void put_end64(archive *a, uint64_t count_lie, uint64_t where_lie, uint64_t offset_lie)
{
    a->directory_at = a->file.size;
    put(&a->file, a->directory.data, a->directory.size);
    uint64_t where = a->file.size;
    PUT(&a->file, "PK\6\6");
    put_number(&a->file, 44, 8);
    put_number(&a->file, 20, 2);
    put_number(&a->file, 20, 2);
    put_number(&a->file, 0, 8);
    put_number(&a->file, a->count + count_lie, 8);
    put_number(&a->file, a->count + count_lie, 8);
    put_number(&a->file, a->directory.size, 8);
    put_number(&a->file, a->directory_at + offset_lie, 8);
    PUT(&a->file, "PK\6\7");
    put_number(&a->file, 0, 4);
    put_number(&a->file, where + where_lie, 8);
    put_number(&a->file, 1, 4);
    PUT(&a->file, "PK\5\6");
    put_number(&a->file, 0, 4);
    put_number(&a->file, 0xFFFF, 2);
    put_number(&a->file, 0xFFFF, 2);
    put_number(&a->file, 0xFFFFFFFF, 4);
    put_number(&a->file, 0xFFFFFFFF, 4);
    put_number(&a->file, 0, 2);
}
#endif
