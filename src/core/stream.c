/* core/stream.c - payload bytes out of a checkpoint: storages as stored, tensors in C order. */
#include "core/engine.h"

#include <limits.h>
#include <stdlib.h>
#include <zlib.h>
#include "codec/crc32.h"
#include "core/strided.h"

static const char *label_of(const ckpt__storage *s, char *buf, size_t size)
{
    return ckpt__escape(buf, size, s->name.data ? s->name.data : "storage", s->name.data ? s->name.size : 7);
}

/* ---- decoding: one pull interface over the codings */

typedef struct decoder {
    const ckpt__source *source;
    const ckpt__extent *extent;
    uint64_t produced;            /* decoded bytes given out */
    uint64_t consumed;            /* coded bytes read */
    z_stream z;
    bool z_open, z_ended;
    unsigned char *coded;         /* input buffer of a coded extent */
} decoder;

enum { CODED_BLOCK = 256 << 10 };

static ckpt_status decoder_open(decoder *d, const ckpt__source *source, const ckpt__extent *e, const char *what,
                                ckpt_error *err)
{
    memset(d, 0, sizeof *d);
    d->source = source;
    d->extent = e;
    if (e->memory || e->coding == CKPT__STORED)
        return CKPT_OK;
    if (!(d->coded = malloc(CODED_BLOCK)) || inflateInit2(&d->z, -MAX_WBITS) != Z_OK) {
        free(d->coded);
        d->coded = NULL;
        return ckpt__fail_memory(err, what, CODED_BLOCK);
    }
    d->z_open = true;
    return CKPT_OK;
}

static void decoder_close(decoder *d)
{
    if (d->z_open)
        inflateEnd(&d->z);
    free(d->coded);
}

static ckpt_status refill(decoder *d, ckpt_error *err)
{
    const ckpt__extent *e = d->extent;
    if (d->z.avail_in || d->consumed == e->length)
        return CKPT_OK;
    uint64_t more = e->length - d->consumed < CODED_BLOCK ? e->length - d->consumed : CODED_BLOCK;
    ckpt_status status = ckpt__source_read(d->source, e->file, e->offset + d->consumed, d->coded, (size_t)more, err);
    d->z.next_in = d->coded;
    d->z.avail_in = (uInt)more;
    d->consumed += more;
    return status;
}

static ckpt_status inflate_some(decoder *d, const char *what, ckpt_error *err)
{
    ckpt_status status = refill(d, err);
    if (status < 0)
        return status;
    int rc = inflate(&d->z, Z_NO_FLUSH);
    d->z_ended = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_DAMAGED, what, "the deflated record is damaged or breaks off (%s)",
                      d->z.msg ? d->z.msg : "no more bytes");
}

static ckpt_status inflate_exactly(decoder *d, void *dst, size_t n, const char *what, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t left = n;
    d->z.next_out = dst;
    while (status == CKPT_OK && (left || d->z.avail_out)) {
        if (d->z.avail_out == 0) {
            d->z.avail_out = left > INT_MAX ? INT_MAX : (uInt)left;
            left -= d->z.avail_out;
        }
        if (d->z_ended)
            return ckpt__fail(err, CKPT_E_DAMAGED, what, "the deflated record ends after %llu bytes; it says that it has %llu",
                              (unsigned long long)d->z.total_out, (unsigned long long)d->extent->size);
        status = inflate_some(d, what, err);
    }
    return status;
}

/* All that the record says it holds was given out: is that its end? */
static ckpt_status decoder_finish(decoder *d, const char *what, ckpt_error *err)
{
    unsigned char more;
    ckpt_status status = CKPT_OK;
    if (!d->z_open)
        return CKPT_OK;
    d->z.next_out = &more;
    d->z.avail_out = 1;
    while (status == CKPT_OK && !d->z_ended && d->z.avail_out)
        status = inflate_some(d, what, err);
    if (status == CKPT_OK && !d->z.avail_out)
        status = ckpt__fail(err, CKPT_E_DAMAGED, what, "the deflated record inflates to more than the %llu bytes that it says",
                            (unsigned long long)d->extent->size);
    return status;
}

/* Exactly n decoded bytes (the caller never asks past extent->size). */
static ckpt_status decoder_read(decoder *d, void *dst, size_t n, const char *what, ckpt_error *err)
{
    const ckpt__extent *e = d->extent;
    ckpt_status status = CKPT_OK;
    if (e->memory)
        memcpy(dst, (const char *)e->memory + d->produced, n);
    else if (e->coding == CKPT__STORED)
        status = ckpt__source_read(d->source, e->file, e->offset + d->produced, dst, n, err);
    else
        status = inflate_exactly(d, dst, n, what, err);
    d->produced += n;
    return status;
}

/* One buffer for all blocks, where the caller gives none. */
typedef struct own_buffer {
    void *data;
    ckpt__block_fn fn;
    void *ctx;
} own_buffer;

static ckpt_status give_own(void *ctx, uint64_t offset, size_t n, void **buffer, ckpt_error *err)
{
    own_buffer *own = ctx;
    (void)offset;
    if (!own->data && !(own->data = malloc(n ? n : 1)))          /* the first block is the largest */
        return ckpt__fail_memory(err, "read buffer", n);
    *buffer = own->data;
    return CKPT_OK;
}

static ckpt_status pass_own(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    own_buffer *own = ctx;
    return own->fn ? own->fn(own->ctx, offset, data, n, err) : CKPT_OK;
}

ckpt_status ckpt__read_storage(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                               ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    own_buffer own = { NULL, fn, ctx };
    ckpt_status status = ckpt__read_storage_into(source, index, storage, check, give_own, pass_own, &own, err);
    free(own.data);
    return status;
}

ckpt_status ckpt__read_storage_into(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                                    ckpt__buffer_fn buffer, ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    const ckpt__storage *s = &index->storages[storage];
    const ckpt__extent *e = &s->extent;
    char what[200];
    label_of(s, what, sizeof what);
    decoder d;
    ckpt_status status = decoder_open(&d, source, e, what, err);
    uint32_t crc = 0;
    for (uint64_t at = 0; status == CKPT_OK && at < e->size; at += CKPT__BLOCK) {
        size_t n = e->size - at < CKPT__BLOCK ? (size_t)(e->size - at) : CKPT__BLOCK;
        void *to = NULL;
        if ((status = buffer(ctx, at, n, &to, err)) < 0 || (status = decoder_read(&d, to, n, what, err)) < 0)
            break;
        if (check && e->has_crc)
            crc = ckpt__crc32(crc, to, n);
        status = fn(ctx, at, to, n, err);
    }
    if (status == CKPT_OK)
        status = decoder_finish(&d, what, err);
    if (status == CKPT_OK && check && e->has_crc && crc != e->crc)
        status = ckpt__fail(err, CKPT_E_DAMAGED, what, "the CRC-32 of its bytes is %08x; %08x was stored when it was written "
                           "(copy the file again, or use an earlier checkpoint)",
                            crc, e->crc);
    decoder_close(&d);
    return status;
}

ckpt_status ckpt__read_storage_range(const ckpt__source *source, const ckpt__index *index, size_t storage, uint64_t offset,
                                     void *dst, size_t n, ckpt_error *err)
{
    const ckpt__storage *s = &index->storages[storage];
    const ckpt__extent *e = &s->extent;
    char what[200];
    label_of(s, what, sizeof what);
    if (offset > e->size || n > e->size - offset)
        return ckpt__fail(err, CKPT_E_DAMAGED, what, "bytes %llu to %llu of %llu are asked for", (unsigned long long)offset,
                          (unsigned long long)(offset + n), (unsigned long long)e->size);
    if (e->memory) {
        memcpy(dst, (const char *)e->memory + offset, n);
        return CKPT_OK;
    }
    if (e->coding == CKPT__STORED)
        return ckpt__source_read(source, e->file, e->offset + offset, dst, n, err);
    decoder d;
    ckpt_status status = decoder_open(&d, source, e, what, err);
    void *skipped = status == CKPT_OK && offset ? malloc(CODED_BLOCK) : NULL;
    if (status == CKPT_OK && offset && !skipped)
        status = ckpt__fail_memory(err, what, CODED_BLOCK);
    while (status == CKPT_OK && d.produced < offset)
        status = decoder_read(&d, skipped, offset - d.produced < CODED_BLOCK ? (size_t)(offset - d.produced) : CODED_BLOCK, what, err);
    if (status == CKPT_OK)
        status = decoder_read(&d, dst, n, what, err);
    free(skipped);
    decoder_close(&d);
    return status;
}

/* ---- tensors */

typedef struct tensor_stream {
    ckpt__block_fn fn;
    void *ctx;
    uint64_t begin, end;          /* the view's bytes within the storage */
    uint32_t swap;                /* unit, or 1 */
    uint32_t crc;
    unsigned char *copy;          /* of a block that has to be swapped */
} tensor_stream;

static ckpt_status pass_on(tensor_stream *t, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    if (t->swap > 1) {
        if (!t->copy && !(t->copy = malloc(CKPT__BLOCK)))
            return ckpt__fail_memory(err, "byte order", CKPT__BLOCK);
        memcpy(t->copy, data, n);
        ckpt__swap_bytes(t->copy, n, t->swap);
        data = t->copy;
    }
    t->crc = ckpt__crc32(t->crc, data, n);
    return t->fn ? t->fn(t->ctx, offset, data, n, err) : CKPT_OK;
}

/* The part of a storage's block that belongs to the view. */
static ckpt_status clip(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    tensor_stream *t = ctx;
    uint64_t a = offset > t->begin ? offset : t->begin, b = offset + n < t->end ? offset + n : t->end;
    return a < b ? pass_on(t, a - t->begin, (const char *)data + (a - offset), (size_t)(b - a), err) : CKPT_OK;
}

static ckpt_status stream_contiguous(const ckpt__source *source, const ckpt__index *index, size_t storage, bool check,
                                     tensor_stream *t, const char *name, ckpt_error *err)
{
    const ckpt__extent *e = &index->storages[storage].extent;
    bool whole = t->begin == 0 && t->end == e->size;
    if (whole || e->coding != CKPT__STORED || e->memory)
        return ckpt__read_storage(source, index, storage, check && whole, clip, t, err);
    uint64_t size = t->end - t->begin;
    size_t block = size < CKPT__BLOCK ? (size_t)size : CKPT__BLOCK;
    void *buffer = malloc(block ? block : 1);
    if (!buffer)
        return ckpt__fail_memory(err, name, block);
    ckpt_status status = CKPT_OK;
    for (uint64_t at = 0; status == CKPT_OK && at < size; at += block) {
        size_t n = size - at < block ? (size_t)(size - at) : block;
        status = ckpt__source_read(source, e->file, e->offset + t->begin + at, buffer, n, err);
        if (status == CKPT_OK)
            status = pass_on(t, at, buffer, n, err);
    }
    free(buffer);
    return status;
}

/* A view with strides: the bytes that it spans are in memory at once, its elements go out in blocks. */
static ckpt_status stream_strided(const ckpt__source *source, const ckpt__index *index, size_t storage, ckpt__strided *it,
                                  uint64_t span, uint64_t nbytes, tensor_stream *t, const char *name, ckpt_error *err)
{
    if (span > SIZE_MAX / 2)
        return ckpt__fail_memory(err, name, span);
    char *base = malloc((size_t)span ? (size_t)span : 1), *block = malloc(CKPT__BLOCK);
    ckpt_status status = !base || !block ? ckpt__fail_memory(err, name, span)
                                         : ckpt__read_storage_range(source, index, storage, t->begin, base, (size_t)span, err);
    for (uint64_t at = 0; status == CKPT_OK && at < nbytes; at += CKPT__BLOCK) {
        size_t n = nbytes - at < CKPT__BLOCK ? (size_t)(nbytes - at) : CKPT__BLOCK;
        ckpt__strided_gather(it, base, block, n);
        status = pass_on(t, at, block, n, err);
    }
    free(base);
    free(block);
    return status;
}

ckpt_status ckpt__read_tensor(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool check,
                              ckpt__block_fn fn, void *ctx, ckpt_error *err)
{
    const ckpt__tensor *t = &index->tensors[tensor];
    char name[200];
    ckpt__escape(name, sizeof name, t->info.name.data ? t->info.name.data : "", t->info.name.size);
    if (t->piece_count != 1)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, name, t->info.layout.data ? "its layout is %s: only dense tensors are read"
                          : "it has no data of its own%s", t->info.layout.data ? t->info.layout.data : " (a meta tensor)");
    const ckpt__piece *p = &t->pieces[0];
    const ckpt__storage *s = &index->storages[p->storage];
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    tensor_stream ts = { .fn = fn, .ctx = ctx, .swap = s->extent.big_endian ? s->unit : 1 };
    ckpt__strided it = { .ndim = 0 };
    ckpt_status status;
    uint64_t reach = 0, span = t->info.nbytes;
    if (bits % 8 == 0) {
        ckpt__strided_init(&it, p->shape, p->strides, t->info.ndim, bits / 8);
        ckpt__view_extent(p->shape, p->strides, t->info.ndim, &reach);
        span = reach * (bits / 8);
        ts.begin = (uint64_t)p->offset * (bits / 8);
    }
    ts.end = ts.begin + span;
    if (t->info.nbytes == 0)
        status = CKPT_OK;
    else if (ckpt__strided_is_contiguous(&it))
        status = stream_contiguous(source, index, p->storage, check, &ts, name, err);
    else
        status = stream_strided(source, index, p->storage, &it, span, t->info.nbytes, &ts, name, err);
    free(ts.copy);
    if (status == CKPT_OK && check && t->has_crc && ts.crc != t->crc)
        status = ckpt__fail(err, CKPT_E_DAMAGED, name, "the CRC-32 of its bytes is %08x; %08x was stored when it was written "
                           "(copy the file again, or use an earlier checkpoint)",
                            ts.crc, t->crc);
    if (status == CKPT_E_DAMAGED)
        ckpt__error_object(err, name);
    return status;
}
