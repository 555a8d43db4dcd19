/* engine/stream.c - payload bytes out of a checkpoint, block by block: storages as stored, tensors in C order. */
#include "engine/stream.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/elements.h"

/* Blocks of our own are no larger than a core's cache: who gets one finds it there. */
enum { OWN_BLOCK = 256 << 10 };

static ckpt_status pass_all(ckpt__elements *e, ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    size_t block = e->size < OWN_BLOCK ? (size_t)e->size : OWN_BLOCK;
    void *buffer = malloc(block ? block : 1);
    ckpt_status status = buffer ? CKPT_OK : ckpt__fail_memory(err, e->what, block);
    for (uint64_t at = 0; status == CKPT_OK && at < e->size; at += block) {
        size_t n = e->size - at < block ? (size_t)(e->size - at) : block;
        status = ckpt__elements_read(e, buffer, n, err);
        if (status == CKPT_OK && fn)
            status = fn(ctx, at, buffer, n, err);
    }
    free(buffer);
    return status;
}

ckpt_status ckpt__read_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                               ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    ckpt__elements e;
    ckpt__elements_options options = {.check = check};
    ckpt_status status = ckpt__elements_of_storage(&e, source, index, storage, true, &options, err);
    if (status == CKPT_OK)
        status = pass_all(&e, fn, ctx, err);
    ckpt__elements_close(&e);
    return status;
}

static ckpt_status read_tensor(const ckpt__source *source, const ckpt__index *index, size_t tensor,
                               const ckpt__elements_options *options, ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    ckpt__elements e;
    ckpt_status status = ckpt__elements_of_tensor(&e, source, index, tensor, options, err);
    if (status == CKPT_OK)
        status = pass_all(&e, fn, ctx, err);
    if (status == CKPT_E_DAMAGED)
        ckpt__error_object(err, e.what);
    ckpt__elements_close(&e);
    return status;
}

ckpt_status ckpt__read_tensor(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    ckpt__elements_options options = {.check = check, .resolve = true};
    return read_tensor(source, index, tensor, &options, fn, ctx, err);
}

typedef struct one_number {
    ckpt_dtype dtype;
    double value;
    bool read;
} one_number;

static ckpt_status take_number(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    one_number *one = ctx;
    (void)err;
    if (offset == 0 && n > 0 && n == ckpt_dtype_size(one->dtype))
        one->read = ckpt__convert(one->dtype, data, CKPT_F64, &one->value, 1, NULL);
    return CKPT_OK;
}

ckpt_status ckpt__read_number(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              double *number, bool *read, ckpt_error *err)
{
    const ckpt_tensor_info *t = &index->tensors[tensor].info;
    one_number one = {.dtype = t->dtype};
    ckpt_status status = t->nbytes && t->nbytes == ckpt_dtype_size(t->dtype)
                             ? ckpt__read_tensor(source, index, tensor, check, take_number, &one, err)
                             : CKPT_OK;
    *number = one.value;
    *read = one.read;
    return status;
}

ckpt_status ckpt__read_tensor_as_stored(const ckpt__source *source, const ckpt__index *index, size_t tensor,
                                        ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    ckpt__elements_options options = {.check = false};
    return read_tensor(source, index, tensor, &options, fn, ctx, err);
}

ckpt_status ckpt__read_span(const ckpt__source *source, const ckpt__span *span, ckpt__block_fn fn, void *ctx,
                            uint32_t *crc, ckpt_error *err)
{
    const ckpt__extent *e = &span->extent;
    size_t block = e->size < OWN_BLOCK ? (size_t)e->size : OWN_BLOCK;
    unsigned char *buffer = malloc(block ? block : 1);
    char name[200];
    ckpt__decoder d = {0};
    ckpt__escape(name, sizeof name, span->name.data, span->name.size);
    ckpt_status status = buffer ? ckpt__decoder_open(&d, source, e, name, err) : ckpt__fail_memory(err, name, block);
    *crc = 0;
    for (uint64_t at = 0; status == CKPT_OK && at < e->size; at += block) {
        size_t n = e->size - at < block ? (size_t)(e->size - at) : block;
        status = ckpt__decoder_read(&d, buffer, n, err);
        *crc = status == CKPT_OK ? ckpt__crc32(*crc, buffer, n) : 0;
        if (status == CKPT_OK && fn)
            status = fn(ctx, at, buffer, n, err);
    }
    if (status == CKPT_OK)
        status = ckpt__decoder_finish(&d, err);
    ckpt__decoder_close(&d);
    free(buffer);
    return status;
}
