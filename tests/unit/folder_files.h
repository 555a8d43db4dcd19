/* tests/unit/folder_files.h - small files of torch and safetensors, and directories of them, for the tests of checkpoints
 * that are several files. */
#ifndef FOLDER_FILES_H
#define FOLDER_FILES_H
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "runner.h"
#include "torch_emit.h"
#include "scratch_base.h"

static char folder[64];

static inline void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/ckpt-folder-XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

/* CKPT_TEST_KEEP: a directory that gets what the test has left, for the fuzzer to begin with. */
static inline void remove_folder(void)
{
    char command[512];
    const char *keep = getenv("CKPT_TEST_KEEP");
    if (keep && strlen(keep) < 300) {
        snprintf(command, sizeof command, "cp -r '%s' '%s/'", folder, keep);
        ck_assert_int_eq(system(command), 0);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* A path below the test's directory; eight are kept. */
static inline const char *at(const char *format, ...) CKPT__PRINTF(1, 2);
static inline const char *at(const char *format, ...)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    va_list args;
    va_start(args, format);
    int n = snprintf(path, 100, "%s/", folder);
    vsnprintf(path + n, 300, format, args);
    va_end(args);
    return path;
}

static inline void make_directory(const char *name)
{
    ck_assert_int_eq(mkdir(at("%s", name), 0700), 0);
}

static inline void write_to(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, "cannot write %s", path);
}

static inline void write_text(const char *path, const char *text)
{
    write_to(path, text, strlen(text));
}

/* ---- safetensors: tensors of float32, whose values are first, first + 1, ... over the whole file */
typedef struct flat {
    const char *name;
    int ndim;
    int64_t shape[2];
} flat;

static inline void write_safetensors(const char *path, const flat *tensors, size_t n, float first)
{
    static char header[8192];
    static bytes file;
    size_t at_byte = 0, numel = 0;
    int size = snprintf(header, sizeof header, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < n; i++) {
        size_t own = 1;
        char shape[64] = "";
        for (int d = 0; d < tensors[i].ndim; d++) {
            own *= (size_t)tensors[i].shape[d];
            sprintf(shape + strlen(shape), "%s%d", d ? "," : "", (int)tensors[i].shape[d]);
        }
        size += snprintf(header + size, sizeof header - (size_t)size,
                         ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", tensors[i].name,
                         shape, at_byte, at_byte + own * 4);
        at_byte += own * 4;
        numel += own;
    }
    size += snprintf(header + size, sizeof header - (size_t)size, "}");
    file.size = 0;
    put_number(&file, (uint64_t)size, 8);
    put(&file, header, (size_t)size);
    for (size_t i = 0; i < numel; i++) {
        float value = first + (float)i;
        put(&file, &value, sizeof value);
    }
    write_to(path, file.data, file.size);
}

/* ---- torch: a pickle with its storages, of 64 elements at most */
enum { TORCH_TENSORS = 96 };

typedef struct torch_file {
    bytes pickle;
    float data[TORCH_TENSORS][64];
    size_t numel[TORCH_TENSORS];
    int count;
} torch_file;

static inline torch_file *begin_torch(void)
{
    static torch_file t;
    memset(&t, 0, sizeof t);
    PUT(&t.pickle, "\x80\2");
    return &t;
}

/* A tensor of float32 that holds value, value + 1, ... */
static inline void torch_tensor(torch_file *t, int ndim, int64_t a, int64_t b, float value)
{
    char key[16];
    view v = {.class_name = "FloatStorage",
              .key = key,
              .location = "cpu",
              .ndim = ndim,
              .stride_count = ndim,
              .shape = {a, b},
              .strides = {ndim == 2 ? b : 1, 1}};
    snprintf(key, sizeof key, "%d", t->count);
    v.numel = (ndim > 0 ? a : 1) * (ndim > 1 ? b : 1);
    ck_assert(t->count < TORCH_TENSORS && v.numel <= 64);
    t->numel[t->count] = (size_t)v.numel;
    for (int64_t i = 0; i < v.numel; i++)
        t->data[t->count][i] = value + (float)i;
    t->count++;
    put_tensor(&t->pickle, &v);
}

static inline void torch_float(torch_file *t, double value)
{
    put_real(&t->pickle, value);
}

/* archive: what the archive calls itself, which torch.save takes from the file's name. */
static inline void write_torch_as(const char *path, const char *archive_name, torch_file *t)
{
    static archive a;
    char name[120];
    memset(&a, 0, sizeof a);
    PUT(&t->pickle, ".");
    snprintf(name, sizeof name, "%s/data.pkl", archive_name);
    add_record(&a, &(record){.name = name, .data = t->pickle.data, .size = t->pickle.size, .flags = 0x808});
    for (int i = 0; i < t->count; i++) {
        snprintf(name, sizeof name, "%s/data/%d", archive_name, i);
        add_record(&a, &(record){.name = name, .data = t->data[i], .size = t->numel[i] * 4, .flags = 0x808});
    }
    snprintf(name, sizeof name, "%s/version", archive_name);
    add_record(&a, &(record){.name = name, .data = "3\n", .size = 2, .flags = 0x808});
    put_end(&a, a.count, "");
    write_to(path, a.file.data, a.file.size);
}

static inline void write_torch(const char *path, torch_file *t)
{
    write_torch_as(path, "archive", t);
}

/* {name: tensor, ...} */
static inline void write_torch_flat(const char *path, const flat *tensors, size_t n, float first)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < n; i++) {
        put_str(&t->pickle, tensors[i].name);
        torch_tensor(t, tensors[i].ndim, tensors[i].shape[0], tensors[i].shape[1], first);
        first += (float)t->numel[t->count - 1];
    }
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

/* An Adam of one or two groups: shapes[i] is that of parameter i, and its moments hold 100 * (i + 1) and on, 1000 * (i + 1)
 * and on. */
static inline void put_adam(torch_file *t, const flat *shapes, size_t n, size_t first_group, double decay)
{
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "state");
    PUT(b, "}(");
    for (size_t i = 0; i < n; i++) {
        put_int(b, (int64_t)i);
        PUT(b, "}(");
        put_str(b, "step");
        torch_tensor(t, 0, 0, 0, 3);
        put_str(b, "exp_avg");
        torch_tensor(t, shapes[i].ndim, shapes[i].shape[0], shapes[i].shape[1], 100 * (float)(i + 1));
        put_str(b, "exp_avg_sq");
        torch_tensor(t, shapes[i].ndim, shapes[i].shape[0], shapes[i].shape[1], 1000 * (float)(i + 1));
        PUT(b, "u");
    }
    PUT(b, "u");
    put_str(b, "param_groups");
    PUT(b, "](");
    for (size_t g = 0; g < (first_group < n ? 2u : 1u); g++) {
        PUT(b, "}(");
        put_str(b, "lr");
        torch_float(t, 0.5);
        put_str(b, "weight_decay");
        torch_float(t, g == 0 ? decay : 0);
        put_str(b, "params");
        PUT(b, "](");
        for (size_t i = g ? first_group : 0; i < (g ? n : first_group); i++)
            put_int(b, (int64_t)i);
        PUT(b, "eu");
    }
    PUT(b, "eu");
}

static inline void write_adam(const char *path, const flat *shapes, size_t n, size_t first_group, double decay)
{
    torch_file *t = begin_torch();
    put_adam(t, shapes, n, first_group, decay);
    write_torch(path, t);
}

/* {key: n} */
static inline void write_torch_int(const char *path, const char *key, int64_t n)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, key);
    put_int(&t->pickle, n);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}
#endif
