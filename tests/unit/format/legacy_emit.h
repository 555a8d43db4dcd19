/* tests/unit/format/legacy_emit.h - writes files of PyTorch's format before 1.6 byte by byte, right or wrong, for the tests that
 * read them. */
#ifndef LEGACY_EMIT_H
#define LEGACY_EMIT_H
#include "../torch_emit.h"

#define LEGACY_NUMBER "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define LEGACY_MAGIC "\x80\2" LEGACY_NUMBER
#define LEGACY_VERSION "\x80\2M\xe9\3."

typedef struct old_storage {
    const char *key;
    uint64_t numel;
    const void *data;
    size_t size;
    bool big_number; /* the number of elements in the other byte order */
} old_storage;

typedef struct old_view { /* key NULL: None */
    const char *key;
    int64_t offset, numel;
} old_view;

/* ('storage', class, key, location, numel, view) */
static inline void put_old_storage(bytes *b, const char *class_name, const char *key, const char *location,
                                   int64_t numel, old_view v)
{
    PUT(b, "(");
    put_str(b, "storage");
    put_global(b, "torch", class_name);
    put_str(b, key);
    put_str(b, location);
    put_int(b, numel);
    if (v.key) {
        PUT(b, "(");
        put_str(b, v.key);
        put_int(b, v.offset);
        put_int(b, v.numel);
        PUT(b, "t");
    } else {
        PUT(b, "N");
    }
    PUT(b, "tQ");
}

/* A tensor of one dimension, of what put_old_storage, or anything else, has put on the stack since begin. */
static inline void begin_tensor(bytes *b)
{
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    PUT(b, "(");
}
static inline void end_tensor(bytes *b, int64_t offset, int64_t size)
{
    const int64_t one = 1;
    put_int(b, offset);
    put_ints(b, &size, 1);
    put_ints(b, &one, 1);
    PUT(b, "\x89");
    put_ordered_dict(b);
    PUT(b, "tR");
}

/* {'protocol_version': 1001, 'little_endian': True} */
static inline void put_sys_info(bytes *b)
{
    PUT(b, "\x80\2}(");
    put_str(b, "protocol_version");
    PUT(b, "M\xe9\3");
    put_str(b, "little_endian");
    PUT(b, "\x88u.");
}

static inline void put_keys(bytes *b, const old_storage *s, size_t n)
{
    PUT(b, "\x80\2](");
    for (size_t i = 0; i < n; i++)
        put_str(b, s[i].key);
    PUT(b, "e.");
}

static inline void put_old_data(bytes *b, const old_storage *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t count = s[i].big_number ? __builtin_bswap64(s[i].numel) : s[i].numel;
        put_number(b, count, 8);
        put(b, s[i].data, s[i].size);
    }
}

/* A whole file: `object` is a pickle with its STOP. */
static inline void put_legacy(bytes *b, const bytes *object, const old_storage *s, size_t n)
{
    PUT(b, LEGACY_MAGIC LEGACY_VERSION);
    put_sys_info(b);
    put(b, object->data, object->size);
    put_keys(b, s, n);
    put_old_data(b, s, n);
}
#endif
