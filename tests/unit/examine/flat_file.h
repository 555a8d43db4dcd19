/* tests/unit/examine/flat_file.h - a safetensors file of any dtypes, written by hand, for the tests of stats and diff. */
#ifndef FLAT_FILE_H
#define FLAT_FILE_H
#include "../command_files.h"
#include "../runner.h"

typedef struct flat_tensor {
    const char *name, *dtype, *shape; /* "F32", "2,3" */
    const void *data;
    size_t size;
} flat_tensor;

static ckpt_error err;

/* One after the other, in this order; the header lists them from the last to the first. */
static inline void write_flat(const char *path, const flat_tensor *tensors, size_t count)
{
    static char header[8192], file[1 << 20];
    size_t ends[16] = {0}, at = 0;
    ck_assert_uint_lt(count, 16);
    for (size_t i = 0; i < count; i++)
        ends[i + 1] = ends[i] + tensors[i].size;
    size_t n = (size_t)snprintf(header, sizeof header, "{");
    for (size_t i = count; i-- > 0;)
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}%s", tensors[i].name,
                              tensors[i].dtype, tensors[i].shape, ends[i], ends[i + 1], i ? "," : "}");
    while (n % 8)
        header[n++] = ' ';
    ck_assert_uint_lt(8 + n + ends[count], sizeof file);
    uint64_t length = n;
    memcpy(file, &length, 8);
    memcpy(file + 8, header, n);
    at = 8 + n;
    for (size_t i = 0; i < count; i++) {
        memcpy(file + at, tensors[i].data, tensors[i].size);
        at += tensors[i].size;
    }
    write_all(path, file, at);
}

static inline ckpt_reader *open_path(const char *path)
{
    ckpt_reader *reader = NULL;
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s: %s", path, err.message);
    return reader;
}

#define FLAT(name, dtype, shape, array)                                                                                \
    {                                                                                                                  \
        name, dtype, shape, array, sizeof array                                                                        \
    }
#endif
