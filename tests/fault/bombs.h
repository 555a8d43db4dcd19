/* tests/fault/bombs.h - small files that describe far more than they are, each made in a moment: pickles in an archive, stored
 * and deflated, by themselves and in the format before 1.6; headers, indexes and values in JSON. */
#ifndef BOMBS_H
#define BOMBS_H
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zlib.h>
#include "base/base.h"
#include "codec/crc32.h"

/* What any work on files of so many bytes may take (SECURITY.md). */
static inline uint64_t bomb_bound(uint64_t size)
{
    return ((uint64_t)64 << 20) + 64 * size;
}

typedef enum bomb_box { STORED, DEFLATED, BARE, LEGACY } bomb_box;

/* A pickle: head, then unit as often as its size asks for, then tail. */
typedef struct bomb_pickle {
    const char *name;
    struct {
        const char *data;
        size_t size;
    } head, unit, tail;
    bool sound; /* stored it is no bomb: what it takes suits its size */
} bomb_pickle;

#define BOMB_TEXT(x)                                                                                                   \
    {                                                                                                                  \
        x, sizeof(x) - 1                                                                                               \
    }
#define BOMB_ID "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4t"
#define BOMB_TENSORS                                                                                                   \
    "\x80\2"                                                                                                           \
    "ctorch._utils\n_rebuild_tensor_v2\nq\0000"                                                                        \
    "(" BOMB_ID "QK\0K\2\x85K\1\x85\x89"                                                                               \
    "ccollections\nOrderedDict\n)Rtq\001"                                                                              \
    "0"

static const bomb_pickle bomb_pickles[] = {
    {"lists", BOMB_TEXT("\x80\2]("), BOMB_TEXT("]"), BOMB_TEXT("e."), false},
    {"dicts", BOMB_TEXT("\x80\2]("), BOMB_TEXT("}"), BOMB_TEXT("e."), false},
    {"sets", BOMB_TEXT("\x80\4]("), BOMB_TEXT("\x8f"), BOMB_TEXT("e."), false},
    {"nones", BOMB_TEXT("\x80\2]("), BOMB_TEXT("N"), BOMB_TEXT("e."), true},
    {"ints", BOMB_TEXT("\x80\2]("), BOMB_TEXT("J\1\2\3\0M\7\7"), BOMB_TEXT("e."), true},
    {"floats", BOMB_TEXT("\x80\2]("), BOMB_TEXT("G?\xf0\0\0\0\0\0\1"), BOMB_TEXT("e."), true},
    {"texts", BOMB_TEXT("\x80\2]("), BOMB_TEXT("X\1\0\0\0a"), BOMB_TEXT("e."), true},
    {"short-texts", BOMB_TEXT("\x80\4]("), BOMB_TEXT("\x8c\0"), BOMB_TEXT("e."), false},
    {"tuples", BOMB_TEXT("\x80\2]("), BOMB_TEXT("N\x85"), BOMB_TEXT("e."), false},
    {"entries", BOMB_TEXT("\x80\2}("), BOMB_TEXT("K\1N"), BOMB_TEXT("u."), true},
    {"objects",
     BOMB_TEXT("\x80\2"
               "ca\nb\nq\0000]("),
     BOMB_TEXT("h\0)R"), BOMB_TEXT("e."), false},
    {"ordered-dicts",
     BOMB_TEXT("\x80\2"
               "ccollections\nOrderedDict\nq\0000]("),
     BOMB_TEXT("h\0)R"), BOMB_TEXT("e."), false},
    {"globals", BOMB_TEXT("\x80\2]("), BOMB_TEXT("ca\nb\n"), BOMB_TEXT("e."), false},
    {"bytes",
     BOMB_TEXT("\x80\2"
               "c_codecs\nencode\nq\0X\2\0\0\0abX\6\0\0\0latin1\x86q\00100]("),
     BOMB_TEXT("h\0h\1R"), BOMB_TEXT("e."), false},
    {"memo", BOMB_TEXT("\x80\4]"), BOMB_TEXT("\x94"), BOMB_TEXT("."), true},
    {"far-memo", BOMB_TEXT("\x80\2]"), BOMB_TEXT("r\xff\xff\xff\x7fr\xf7\xff\xff\x7f"), BOMB_TEXT("."), true},
    {"twice", BOMB_TEXT("\x80\2]2"), BOMB_TEXT("2"), BOMB_TEXT("."), true},
    {"left", BOMB_TEXT("\x80\2]"), BOMB_TEXT("]"), BOMB_TEXT("."), true},
    {"marks", BOMB_TEXT("\x80\2]"), BOMB_TEXT("("), BOMB_TEXT("l."), true},
    {"tensors", BOMB_TEXT(BOMB_TENSORS "]("), BOMB_TEXT("h\0h\1R"), BOMB_TEXT("e."), false},
    {"one-tensor", BOMB_TEXT(BOMB_TENSORS "h\0h\1Rq\0020]("), BOMB_TEXT("h\2"), BOMB_TEXT("e."), false},
    {"persistent", BOMB_TEXT("\x80\2" BOMB_ID "q\0000]("), BOMB_TEXT("h\0Q"), BOMB_TEXT("e."), false},
};
enum { BOMB_PICKLES = sizeof bomb_pickles / sizeof *bomb_pickles };

static inline void bomb_repeat(ckpt__buf *b, const void *data, size_t n, size_t size)
{
    for (size_t i = 0; i < size / n; i++)
        ckpt__buf_add(b, data, n);
}

/* ---- zip */

static inline void bomb_number(ckpt__buf *b, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        ckpt__buf_char(b, (char)(unsigned char)(value >> 8 * i));
}

typedef struct bomb_zip {
    ckpt__buf file, directory;
    unsigned count;
} bomb_zip;

static inline void bomb_record(bomb_zip *z, const char *name, const void *data, size_t n, bool deflated)
{
    size_t at = z->file.size, room = n + n / 1000 + 1000, packed = n;
    void *coded = deflated ? malloc(room) : NULL;
    if (deflated) {
        z_stream s = {.zalloc = NULL};
        deflateInit2(&s, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
        s.next_in = (unsigned char *)(uintptr_t)data;
        s.avail_in = (uInt)n;
        s.next_out = coded;
        s.avail_out = (uInt)room;
        if (!coded || deflate(&s, Z_FINISH) != Z_STREAM_END)
            abort();
        packed = s.total_out;
        deflateEnd(&s);
    }
    for (int central = 0; central < 2; central++) {
        ckpt__buf *b = central ? &z->directory : &z->file;
        ckpt__buf_add(b, central ? "PK\1\2\24\0" : "PK\3\4", central ? 6 : 4);
        bomb_number(b, 20, 2);
        bomb_number(b, 0, 2);
        bomb_number(b, deflated ? 8 : 0, 2);
        bomb_number(b, 0, 4);
        bomb_number(b, ckpt__crc32(0, data, n), 4);
        bomb_number(b, packed, 4);
        bomb_number(b, n, 4);
        bomb_number(b, strlen(name), 2);
        bomb_number(b, 0, central ? 8 : 2);
        bomb_number(b, 0, central ? 4 : 0);
        if (central)
            bomb_number(b, at, 4);
        ckpt__buf_str(b, name);
    }
    ckpt__buf_add(&z->file, deflated ? coded : data, packed);
    free(coded);
    z->count++;
}

static inline void bomb_end(bomb_zip *z)
{
    size_t at = z->file.size;
    ckpt__buf_add(&z->file, z->directory.data, z->directory.size);
    ckpt__buf_add(&z->file, "PK\5\6\0\0\0", 8);
    bomb_number(&z->file, z->count, 2);
    bomb_number(&z->file, z->count, 2);
    bomb_number(&z->file, z->directory.size, 4);
    bomb_number(&z->file, at, 4);
    bomb_number(&z->file, 0, 2);
    ckpt__buf_free(&z->directory);
}

/* ---- files. Each is written as `path`. */

static inline void bomb_write(const char *path, ckpt__buf *b)
{
    FILE *f = fopen(path, "wb");
    if (!f || b->failed || fwrite(b->data, 1, b->size, f) != b->size || fclose(f) != 0)
        abort();
    ckpt__buf_free(b);
}

static inline void bomb_put_pickle(const char *path, ckpt__buf *pickle, bomb_box box)
{
    static const char front[] = "\x80\2\x8a\nl\xfc\x9c"
                                "F\xf9 j\xa8P\x19.\x80\2M\xe9\3.\x80\2}(X\20\0\0\0protocol_versionM\xe9\3"
                                "X\15\0\0\0little_endian\x88X\12\0\0\0type_sizes}(X\5\0\0\0shortK\2X\3\0\0\0intK\4"
                                "X\4\0\0\0longK\4uu.";
    static const char back[] = "\x80\2]X\1\0\0\0000a.\4\0\0\0\0\0\0\0\0\0\x80?\0\0\0@\0\0@@\0\0\x80@";
    bomb_zip z = {.count = 0};
    if (box == LEGACY) {
        ckpt__buf b = {0};
        ckpt__buf_add(&b, front, sizeof front - 1);
        ckpt__buf_add(&b, pickle->data, pickle->size);
        ckpt__buf_add(&b, back, sizeof back - 1);
        bomb_write(path, &b);
        ckpt__buf_free(pickle);
        return;
    }
    if (box == BARE) {
        bomb_write(path, pickle);
        return;
    }
    bomb_record(&z, "archive/data.pkl", pickle->data, pickle->size, box == DEFLATED);
    bomb_record(&z, "archive/byteorder", "little", 6, false);
    bomb_record(&z, "archive/data/0", "\0\0\x80?\0\0\0@\0\0@@\0\0\x80@", 16, false);
    bomb_record(&z, "archive/version", "3\n", 2, false);
    bomb_end(&z);
    ckpt__buf_free(pickle);
    bomb_write(path, &z.file);
}

static inline void bomb_make(const char *path, const bomb_pickle *p, size_t size, bomb_box box)
{
    ckpt__buf b = {0};
    const char *id = box == LEGACY ? memmem(p->head.data, p->head.size, "K\4t", 3) : NULL; /* of a view: none */
    size_t before = id ? (size_t)(id - p->head.data) + 2 : p->head.size;
    ckpt__buf_add(&b, p->head.data, before);
    if (id)
        ckpt__buf_char(&b, 'N');
    ckpt__buf_add(&b, p->head.data + before, p->head.size - before);
    bomb_repeat(&b, p->unit.data, p->unit.size, size);
    ckpt__buf_add(&b, p->tail.data, p->tail.size);
    bomb_put_pickle(path, &b, box);
}

/* So many levels of lists, each of the one below so many times. */
static inline void bomb_shared(const char *path, const char *leaf, size_t leaf_size, int levels, int times)
{
    ckpt__buf b = {0};
    ckpt__buf_add(&b, "\x80\2", 2);
    ckpt__buf_add(&b, leaf, leaf_size);
    ckpt__buf_add(&b, "q\3", 2);
    for (int i = 3; i < 3 + levels; i++) {
        ckpt__buf_add(&b, "0](", 3);
        for (int k = 0; k < times; k++) {
            ckpt__buf_char(&b, 'h');
            ckpt__buf_char(&b, (char)i);
        }
        ckpt__buf_add(&b, "eq", 2);
        ckpt__buf_char(&b, (char)(i + 1));
    }
    ckpt__buf_char(&b, '.');
    bomb_put_pickle(path, &b, STORED);
}

/* Dicts in dicts, all below the same key of so many bytes, and a leaf in each. */
static inline void bomb_keys(const char *path, const char *leaf, size_t leaf_size, size_t key, int levels)
{
    ckpt__buf b = {0};
    ckpt__buf_add(&b, "\x80\2X", 3);
    bomb_number(&b, key, 4);
    bomb_repeat(&b, "k", 1, key);
    ckpt__buf_add(&b, "q\0030", 3);
    ckpt__buf_add(&b, leaf, leaf_size);
    ckpt__buf_add(&b, "q\0040", 3);
    bomb_repeat(&b, "}(X\1\0\0\0th\4h\3", 12, 12 * (size_t)levels);
    ckpt__buf_add(&b, "h\4", 2);
    bomb_repeat(&b, "u", 1, (size_t)levels);
    ckpt__buf_char(&b, '.');
    bomb_put_pickle(path, &b, STORED);
}

/* A list in a list in a list ... */
static inline void bomb_deep(const char *path, int levels)
{
    ckpt__buf b = {0};
    ckpt__buf_add(&b, "\x80\2", 2);
    bomb_repeat(&b, "](", 2, 2 * (size_t)levels);
    bomb_repeat(&b, "e", 1, (size_t)levels);
    ckpt__buf_char(&b, '.');
    bomb_put_pickle(path, &b, STORED);
}

/* A header of safetensors that is `head`, unit as often as fits, and `tail`; %zu in the unit is its number. Then a byte. */
static inline void bomb_text(ckpt__buf *b, const char *head, const char *unit, const char *tail, size_t size)
{
    ckpt__buf_str(b, head);
    for (size_t i = 0; b->size < size; i++)
        ckpt__buf_printf(b, unit, i);
    ckpt__buf_str(b, tail);
}

static inline void bomb_safetensors(const char *path, const char *head, const char *unit, const char *tail, size_t size)
{
    ckpt__buf text = {0}, b = {0};
    bomb_text(&text, head, unit, tail, size);
    bomb_number(&b, text.size, 8);
    ckpt__buf_add(&b, text.data, text.size);
    ckpt__buf_char(&b, 'x');
    ckpt__buf_free(&text);
    bomb_write(path, &b);
}

/* A directory with a model of one tensor, and the JSON. */
static inline void bomb_folder(const char *path, const char *json, const char *model, const char *head,
                               const char *unit, const char *tail, size_t size)
{
    char name[700];
    ckpt__buf b = {0};
    mkdir(path, 0777);
    snprintf(name, sizeof name, "%s/%s", path, model);
    bomb_safetensors(name, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "", "", 0);
    snprintf(name, sizeof name, "%s/%s", path, json);
    bomb_text(&b, head, unit, tail, size);
    bomb_write(name, &b);
}
#endif
