/* engine/decode.c - the decoded bytes of an extent, in order. */
#include "engine/decode.h"

#include <limits.h>
#include <stdlib.h>
#include "engine/joined.h"
#include "engine/nested.h"

ckpt_status ckpt__extent_holds(const ckpt__extent *e, uint64_t begin, uint64_t n, const char *what, ckpt_error *err)
{
    uint64_t end;
    if (!ckpt__add(begin, n, &end) || end > e->size)
        return ckpt__fail(err, CKPT_E_DAMAGED, what, "bytes %llu and on, %llu of them, are asked for; it has %llu",
                          (unsigned long long)begin, (unsigned long long)n, (unsigned long long)e->size);
    if (e->missing && n && (e->coding != CKPT__STORED || end > e->length))
        return ckpt__fail(err, CKPT_E_DAMAGED, what, "only %llu of its %llu bytes are in the file: it cannot be read",
                          (unsigned long long)(e->coding == CKPT__STORED ? e->length : 0), (unsigned long long)e->size);
    return CKPT_OK;
}

ckpt_status ckpt__extent_read(const ckpt__source *source, const ckpt__extent *e, uint64_t begin, void *dst, size_t n,
                              const char *what, ckpt_error *err)
{
    ckpt_status status = ckpt__extent_holds(e, begin, n, what, err);
    if (status < 0 || !e->memory)
        return status < 0 ? status : ckpt__source_read(source, e->file, e->offset + begin, dst, n, err);
    memcpy(dst, (const char *)e->memory + begin, n);
    return CKPT_OK;
}

static ckpt_status open_inflate(ckpt__decoder *d, ckpt_error *err)
{
    int bits = d->extent->coding == CKPT__ZLIB ? MAX_WBITS : -MAX_WBITS; /* below zero: no header, no trailer */
    if (!(d->coded = malloc(CKPT__CODED_BLOCK)) || inflateInit2(&d->z, bits) != Z_OK) {
        free(d->coded);
        d->coded = NULL;
        return ckpt__fail_memory(err, d->what, CKPT__CODED_BLOCK);
    }
    d->z_open = true;
    return CKPT_OK;
}

static ckpt_status lose(ckpt__decoder *d, uint64_t n, ckpt_error *err);

/* The frame has other bytes before ours. */
static ckpt_status open_zstd(ckpt__decoder *d, ckpt_error *err)
{
    ckpt_status status = ckpt__zstd_new(d->what, &d->zstd, err);
    if (status == CKPT_OK && !(d->coded = malloc(CKPT__CODED_BLOCK)))
        status = ckpt__fail_memory(err, d->what, CKPT__CODED_BLOCK);
    if (status == CKPT_OK)
        status = lose(d, d->extent->found->skip, err);
    d->produced = 0;
    if (status < 0)
        ckpt__decoder_close(d);
    return status;
}

ckpt_status ckpt__decoder_open(ckpt__decoder *d, const ckpt__source *source, const ckpt__extent *e, const char *what,
                               ckpt_error *err)
{
    memset(d, 0, sizeof *d);
    d->source = source;
    d->what = what;
    ckpt_status status = ckpt__extent_look(source, e, what, &d->extent, err);
    if (status < 0 || d->extent->memory)
        return status;
    switch ((ckpt__coding)d->extent->coding) {
    case CKPT__STORED:
    case CKPT__NESTED: /* it is missing: no byte of it is read */
        return CKPT_OK;
    case CKPT__DEFLATE:
    case CKPT__ZLIB:
        return open_inflate(d, err);
    case CKPT__ZSTD:
        return open_zstd(d, err);
    case CKPT__TURNED:
        return ckpt__joined_new(source, d->extent->found->part, 0, false, true, 0, &d->turned, err);
    case CKPT__MADE:
        return d->extent->maker->open(d->extent->maker, what, &d->made, err);
    }
    return ckpt__fail(err, CKPT_E_UNSUPPORTED, what, "its bytes are coded in a way that is not known");
}

void ckpt__decoder_close(ckpt__decoder *d)
{
    if (d->z_open)
        inflateEnd(&d->z);
    ckpt__zstd_free(d->zstd);
    ckpt__joined_free(d->turned);
    if (d->made)
        d->extent->maker->close(d->made);
    free(d->coded);
    memset(d, 0, sizeof *d);
}

static ckpt_status refill(ckpt__decoder *d, ckpt_error *err)
{
    const ckpt__extent *e = d->extent;
    if (d->z.avail_in || d->consumed == e->length)
        return CKPT_OK;
    uint64_t begin = d->zstd ? e->found->offset : e->offset;
    uint64_t more = e->length - d->consumed < CKPT__CODED_BLOCK ? e->length - d->consumed : CKPT__CODED_BLOCK;
    ckpt_status status = ckpt__source_read(d->source, e->file, begin + d->consumed, d->coded, (size_t)more, err);
    d->z.next_in = d->coded;
    d->z.avail_in = (uInt)more;
    d->consumed += more;
    return status;
}

static ckpt_status inflate_some(ckpt__decoder *d, ckpt_error *err)
{
    ckpt_status status = refill(d, err);
    if (status < 0)
        return status;
    int rc = inflate(&d->z, Z_NO_FLUSH);
    d->z_ended = rc == Z_STREAM_END;
    if (rc == Z_OK || rc == Z_STREAM_END)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_DAMAGED, d->what, "the deflated record is damaged or breaks off (%s)",
                      d->z.msg ? d->z.msg : "no more bytes");
}

static ckpt_status inflate_exactly(ckpt__decoder *d, void *dst, size_t n, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t left = n;
    d->z.next_out = dst;
    d->z.avail_out = 0;
    while (status == CKPT_OK && (left || d->z.avail_out)) {
        if (d->z.avail_out == 0) {
            d->z.avail_out = left > INT_MAX ? INT_MAX : (uInt)left;
            left -= d->z.avail_out;
        }
        if (d->z_ended)
            return ckpt__fail(err, CKPT_E_DAMAGED, d->what,
                              "the deflated record ends after %llu bytes; it says that it has %llu",
                              (unsigned long long)d->z.total_out, (unsigned long long)d->extent->size);
        status = inflate_some(d, err);
    }
    return status;
}

static ckpt_status unzstd_exactly(ckpt__decoder *d, void *dst, size_t n, ckpt_error *err)
{
    ckpt__zstd_step step = {.to = dst, .to_size = n};
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && step.done < n) {
        size_t before = step.done;
        if ((status = refill(d, err)) < 0)
            break;
        step.from = d->z.next_in;
        step.from_size = d->z.avail_in;
        step.at = 0;
        bool starved = d->z_ended || step.from_size == 0;
        status = ckpt__zstd_decode(d->zstd, &step, d->what, err);
        d->z.next_in += step.at;
        d->z.avail_in -= (uInt)step.at;
        d->z_ended = step.ended;
        if (status == CKPT_OK && starved && step.done == before)
            status = ckpt__fail(err, CKPT_E_DAMAGED, d->what,
                                "its zstd frame ends before the %llu bytes that it should have",
                                (unsigned long long)d->extent->size);
    }
    return status;
}

ckpt_status ckpt__decoder_read(ckpt__decoder *d, void *dst, size_t n, ckpt_error *err)
{
    ckpt_status status = ckpt__extent_holds(d->extent, d->produced, n, d->what, err);
    if (d->turned && status == CKPT_OK)
        status = ckpt__joined_read(d->turned, d->produced, dst, n, err);
    else if (d->made && status == CKPT_OK)
        status = d->extent->maker->read(d->made, d->produced, dst, n, err);
    else if (d->zstd && status == CKPT_OK)
        status = unzstd_exactly(d, dst, n, err);
    else if (d->z_open && status == CKPT_OK)
        status = inflate_exactly(d, dst, n, err);
    else if (status == CKPT_OK)
        status = ckpt__extent_read(d->source, d->extent, d->produced, dst, n, d->what, err);
    d->produced += n;
    if (status == CKPT_OK && d->produced == d->extent->size && d->extent->coding == CKPT__ZLIB)
        status = ckpt__decoder_finish(d, err);
    return status;
}

/* The next n decoded bytes, thrown away. */
static ckpt_status lose(ckpt__decoder *d, uint64_t n, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    void *lost = n ? malloc(CKPT__CODED_BLOCK) : NULL;
    if (n && !lost)
        return ckpt__fail_memory(err, d->what, CKPT__CODED_BLOCK);
    while (status == CKPT_OK && n) {
        size_t some = n < CKPT__CODED_BLOCK ? (size_t)n : CKPT__CODED_BLOCK;
        status = d->zstd ? unzstd_exactly(d, lost, some, err) : inflate_exactly(d, lost, some, err);
        d->produced += some;
        n -= some;
    }
    free(lost);
    return status;
}

ckpt_status ckpt__decoder_skip(ckpt__decoder *d, uint64_t n, ckpt_error *err)
{
    ckpt_status status = ckpt__extent_holds(d->extent, d->produced, n, d->what, err);
    if (status == CKPT_OK && (d->z_open || d->zstd))
        return lose(d, n, err);
    d->produced += n;
    return status;
}

/* Behind ours a zstd frame has what else the record holds. */
ckpt_status ckpt__decoder_finish(ckpt__decoder *d, ckpt_error *err)
{
    unsigned char more;
    ckpt_status status = CKPT_OK;
    if (!d->z_open)
        return CKPT_OK;
    d->z.next_out = &more;
    d->z.avail_out = 1;
    while (status == CKPT_OK && !d->z_ended && d->z.avail_out)
        status = inflate_some(d, err);
    if (status == CKPT_OK && !d->z.avail_out)
        status = ckpt__fail(err, CKPT_E_DAMAGED, d->what,
                            "the deflated record inflates to more than the %llu bytes that it says",
                            (unsigned long long)d->extent->size);
    return status;
}
