/* tests/unit/format/format_files.h - what the format tests share: a scratch directory, files, a writer for recipes. */
#ifndef FORMAT_FILES_H
#define FORMAT_FILES_H
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "codec/crc32.h"
#include "format/table.h"
#include "../scratch_base.h"

static char scratch[64];

static void make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "%s/ckpt-format-XXXXXX", scratch_base());
    if (!mkdtemp(scratch))
        abort();
}

static void remove_scratch(void)
{
    char path[512];
    DIR *d = opendir(scratch);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", scratch, e->d_name);
        if (e->d_name[0] != '.')
            unlink(path);
    }
    if (d)
        closedir(d);
    rmdir(scratch);
}

static const char *in_scratch(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static void put_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
}

/* Opens, reads, closes the source; the index keeps nothing of it. */
static ckpt_status read_path(const char *path, const char *forced, ckpt__index **out, ckpt_error *err)
{
    ckpt__source *source = NULL;
    *out = NULL;
    ckpt_status status = ckpt__source_open(path, &source, err);
    if (status == CKPT_OK) {
        ckpt__read_request request = ckpt__read_all(source);
        status = ckpt__format_read(&request, forced, out, err);
    }
    ckpt__source_close(source);
    return status;
}

/* The reading of n bytes as a file; the file is replaced each time. */
static ckpt_status read_bytes(const void *data, size_t n, const char *forced, ckpt__index **out, ckpt_error *err)
{
    const char *path = in_scratch("bytes");
    put_file(path, data, n);
    return read_path(path, forced, out, err);
}

/* What the engine does, in memory: segments in order, a checksum of each payload, finish. payloads[i] is tensor i's
 * data in C order, storages[i] storage i's. */
static ckpt_status apply_recipe(ckpt__recipe *r, const void *const *payloads, const void *const *storages,
                                ckpt__buf *out, ckpt_error *err)
{
    uint32_t *crcs = calloc(r->count + 1, sizeof *crcs);
    for (size_t i = 0; i < r->count; i++) {
        const ckpt__segment *s = &r->segments[i];
        const void *data = s->kind == CKPT__PAYLOAD   ? payloads[s->number]
                           : s->kind == CKPT__STORAGE ? storages[s->number]
                                                      : s->bytes;
        if (s->kind != CKPT__DEFERRED)
            crcs[i] = ckpt__crc32(0, data, (size_t)s->size);
        ckpt__buf_add(out, data, (size_t)s->size);
    }
    ckpt_status status = r->finish ? r->finish(r, crcs, err) : CKPT_OK;
    size_t at = 0;
    for (size_t i = 0; i < r->count; at += (size_t)r->segments[i++].size)
        if (r->segments[i].kind == CKPT__DEFERRED)
            memcpy(out->data + at, r->segments[i].bytes, (size_t)r->segments[i].size);
    free(crcs);
    return out->failed || out->size != r->size ? CKPT_E_NO_MEMORY : status;
}

/* A tensor of its own storage in an index that is being made. */
static size_t add_tensor_to(ckpt__index *x, const char *name, ckpt_dtype dtype, uint32_t ndim, const int64_t *shape,
                            const char *device, ckpt_role role)
{
    uint64_t numel = 1, nbytes;
    ckpt__numel(shape, ndim, &numel);
    ckpt__nbytes(numel, ckpt_dtype_bits(dtype), &nbytes);
    ckpt__storage *s = ckpt__index_add_storage(x);
    s->extent.size = s->extent.length = nbytes;
    s->device = ckpt__s(device);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    t->info.role = role;
    if (ckpt__index_set_view(x, x->tensor_count - 1, x->storage_count - 1, shape, NULL, 0, NULL) < 0)
        abort();
    return x->tensor_count - 1;
}

/* A further view of a storage. */
static size_t add_view_to(ckpt__index *x, const char *name, size_t storage, ckpt_dtype dtype, uint32_t ndim,
                          const int64_t *shape, const int64_t *strides, int64_t offset)
{
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    if (ckpt__index_set_view(x, x->tensor_count - 1, storage, shape, strides, offset, NULL) < 0)
        abort();
    return x->tensor_count - 1;
}

static size_t *all_tensors(const ckpt__index *x)
{
    size_t *numbers = calloc(x->tensor_count + 1, sizeof *numbers);
    for (size_t i = 0; i < x->tensor_count; i++)
        numbers[i] = i;
    return numbers;
}

static const ckpt__tensor *tensor_named(const ckpt__index *x, const char *name)
{
    for (size_t i = 0; i < x->tensor_count; i++)
        if (ckpt__str_is(x->tensors[i].info.name, name))
            return &x->tensors[i];
    return NULL;
}
#endif
