/* engine/pull_copy.c - one copy of a pull: read as its storage's coding asks for, with the CRC of its storage. */
#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/gather.h"
#include "engine/nested.h"
#include "engine/pull_priv.h"

const ckpt__extent *ckpt__pull_extent(const ckpt__pull *p, uint32_t storage)
{
    return ckpt__extent_known(ckpt__plan_source_index(p->plan), storage);
}

void ckpt__pull_box(const ckpt__pull *p, const ckpt__held *h, ckpt__copy_box *box)
{
    const uint64_t *dims = p->dims + h->dims;
    ckpt__copy_box_init(box);
    for (uint32_t i = 0; i < h->n; i++)
        ckpt__copy_box_add(box, dims[i], dims[h->n + i], dims[2 * h->n + i]);
}

ckpt_status ckpt__pull_need(unsigned char **buffer, size_t size, ckpt_error *err)
{
    if (!*buffer)
        *buffer = malloc(size);
    return *buffer ? CKPT_OK : ckpt__fail_memory(err, "read buffer", size);
}

static const char *name_of(const ckpt__pull *p, const ckpt__held *h)
{
    return ckpt__plan_name_of(p->plan, h->bond);
}

static bool is_coded(const ckpt__extent *e)
{
    return !e->memory && e->coding != CKPT__STORED;
}

/* ---- the CRC */

ckpt_status ckpt__pull_rule(ckpt__pull *p, ckpt__held *h, ckpt_error *err)
{
    const ckpt__extent *e = ckpt__pull_extent(p, h->from);
    h->rule = CKPT__CRC_NONE;
    if (!p->check || !ckpt__has_crc_of_its_own(e) || e->missing || ckpt__is_sound(e))
        return CKPT_OK;
    if (h->dense && h->span == e->size)
        h->rule = CKPT__CRC_OF_COPY;
    else if (h->dense && p->crcs && ckpt__crcs_takes(p->crcs, h->from, h->bond))
        h->rule = CKPT__CRC_ADDED;
    else
        return ckpt__check_storage(p->source, ckpt__plan_source_index(p->plan), h->from, h->span, name_of(p, h), err);
    return CKPT_OK;
}

/* The bytes of one dense copy, as they are read from the first to the last. */
typedef struct passing {
    ckpt__pull *pull;
    const ckpt__held *copy;
    uint64_t done; /* bytes */
    uint32_t crc;  /* of these, by CKPT__CRC_OF_COPY */
} passing;

static ckpt_status pass(passing *w, const void *data, size_t n, ckpt_error *err)
{
    const ckpt__held *h = w->copy;
    const ckpt__extent *e;
    uint64_t at = w->done;
    w->done += n;
    if (h->rule == CKPT__CRC_ADDED)
        return ckpt__crcs_add(w->pull->crcs, h->from, h->bond, h->from_at + at, data, n, err);
    if (h->rule == CKPT__CRC_NONE)
        return CKPT_OK;
    w->crc = ckpt__crc32(w->crc, data, n);
    if (w->done < h->span)
        return CKPT_OK;
    e = ckpt__pull_extent(w->pull, h->from);
    ckpt__note_checked(e, w->crc == e->crc);
    return w->crc == e->crc ? CKPT_OK : ckpt__wrong_crc(w->crc, e->crc, name_of(w->pull, h), err);
}

ckpt_status ckpt__pull_crc(ckpt__pull *p, const ckpt__held *h, const void *bytes, ckpt_error *err)
{
    passing w = {.pull = p, .copy = h};
    return pass(&w, bytes, (size_t)h->span, err);
}

/* ---- what is coded */

void ckpt__pull_close_decoders(ckpt__pull *p)
{
    for (size_t i = 0; i < CKPT__PULL_DECODERS; i++)
        if (p->decoders[i].used) {
            ckpt__decoder_close(&p->decoders[i].decoder);
            p->decoders[i].used = 0;
        }
}

/* A decoder of the copy's storage that stands at byte `at` of it: the one that was left there or before, else a new one. */
static ckpt_status decoder_at(ckpt__pull *p, const ckpt__held *h, uint64_t at, ckpt__decoder **out, ckpt_error *err)
{
    ckpt__open_decoder *d = &p->decoders[0];
    for (size_t i = 0; i < CKPT__PULL_DECODERS; i++) {
        ckpt__open_decoder *other = &p->decoders[i];
        if (other->used && other->storage == h->from) {
            d = other;
            break;
        }
        d = other->used < d->used ? other : d;
    }
    ckpt_status status = CKPT_OK;
    if (!d->used || d->storage != h->from || d->decoder.produced > at) {
        if (d->used)
            ckpt__decoder_close(&d->decoder);
        p->openings++;
        status = ckpt__decoder_open(&d->decoder, p->source, ckpt__pull_extent(p, h->from), name_of(p, h), err);
    }
    d->storage = h->from;
    d->used = ++p->uses;
    d->decoder.what = name_of(p, h);
    if (status == CKPT_OK && at > d->decoder.produced)
        status = ckpt__decoder_skip(&d->decoder, at - d->decoder.produced, err);
    *out = &d->decoder;
    if (status < 0) { /* where it stands is not known */
        ckpt__decoder_close(&d->decoder);
        d->used = 0;
    }
    return status;
}

static void close_decoder(ckpt__pull *p, const ckpt__decoder *decoder)
{
    for (size_t i = 0; i < CKPT__PULL_DECODERS; i++)
        if (&p->decoders[i].decoder == decoder) {
            ckpt__decoder_close(&p->decoders[i].decoder);
            p->decoders[i].used = 0;
        }
}

/* Bytes [at, at + n) of the copy's storage, decoded. */
static ckpt_status read_coded(ckpt__pull *p, const ckpt__held *h, uint64_t at, void *to, size_t n, ckpt_error *err)
{
    ckpt__decoder *d;
    ckpt_status status = decoder_at(p, h, at, &d, err);
    if (status < 0)
        return status;
    status = ckpt__decoder_read(d, to, n, err);
    bool ended = status == CKPT_OK && at + n == d->extent->size;
    if (ended)
        status = ckpt__decoder_finish(d, err);
    if (status < 0 || ended)
        close_decoder(p, d);
    return status;
}

/* A coded storage can only be read from its first byte on: one that is small is decoded once for all copies of it. */
static ckpt_status decode(ckpt__pull *p, const ckpt__held *h, ckpt_error *err)
{
    const ckpt__extent *e = ckpt__pull_extent(p, h->from);
    if (p->decoded && p->decoded_of == h->from)
        return CKPT_OK;
    free(p->decoded);
    p->decoded_of = h->from;
    if (!(p->decoded = malloc(e->size ? (size_t)e->size : 1)))
        return ckpt__fail_memory(err, name_of(p, h), e->size);
    ckpt_status status = read_coded(p, h, 0, p->decoded, (size_t)e->size, err);
    if (status == CKPT_OK && p->check && ckpt__has_crc_of_its_own(e)) {
        ckpt__held all = *h;
        all.rule = CKPT__CRC_OF_COPY;
        all.from_at = 0;
        all.span = e->size;
        status = ckpt__pull_crc(p, &all, p->decoded, err);
    }
    if (status < 0) {
        free(p->decoded);
        p->decoded = NULL;
    }
    return status;
}

/* ---- a dense copy: its bytes of the source from the first to the last */

static ckpt_status read_some(const passing *w, void *to, size_t n, ckpt_error *err)
{
    const ckpt__held *h = w->copy;
    const ckpt__extent *e = ckpt__pull_extent(w->pull, h->from);
    uint64_t at = h->from_at + w->done;
    return e->coding == CKPT__STORED ? ckpt__extent_read(w->pull->source, e, at, to, n, name_of(w->pull, h), err)
                                     : read_coded(w->pull, h, at, to, n, err);
}

/* As many of the inner dimensions as the scratch holds at a time: read, and moved from there. */
static ckpt_status move_parts(ckpt__pull *p, const ckpt__held *h, const ckpt__copy_box *box, const ckpt__op *op,
                              unsigned char *to, ckpt__convert_counts *counts, ckpt_error *err)
{
    size_t most = ckpt__op_is_plain(op) ? CKPT__SCRATCH : CKPT__PULL_STAGE; /* what is converted stays in the cache */
    uint64_t inner = op->from_size, index[CKPT__COPY_DIMS] = {0};
    uint32_t split = box->n;
    passing w = {.pull = p, .copy = h};
    ckpt_status status = CKPT_OK;
    while (split > 0 && box->size[split - 1] <= most / inner)
        inner *= box->size[--split];
    for (bool more = true; status == CKPT_OK && more;) {
        ckpt__copy_box part;
        uint64_t at = 0, here = 1;
        if (split > 0) { /* so many indexes of the dimension that is cut */
            uint64_t left = box->size[split - 1] - index[split - 1];
            here = most / inner < left ? most / inner : left;
        }
        ckpt__copy_box_init(&part);
        for (uint32_t i = 0; i < split; i++)
            at += index[i] * box->to_stride[i];
        if (split > 0)
            ckpt__copy_box_add(&part, here, box->from_stride[split - 1], box->to_stride[split - 1]);
        for (uint32_t i = split; i < box->n; i++)
            ckpt__copy_box_add(&part, box->size[i], box->from_stride[i], box->to_stride[i]);
        size_t n = (size_t)(here * inner);
        status = read_some(&w, p->scratch, n, err);
        if (status == CKPT_OK)
            status = pass(&w, p->scratch, n, err);
        if (status == CKPT_OK)
            status = ckpt__box_move(op, &part, p->scratch, to + at, counts, name_of(p, h), err);
        more = false;
        for (uint32_t i = split; i-- > 0 && !more;) {
            index[i] += i + 1 == split ? here : 1;
            more = index[i] < box->size[i];
            index[i] = more ? index[i] : 0;
        }
    }
    return status;
}

static ckpt_status move_dense(ckpt__pull *p, const ckpt__held *h, const ckpt__copy_box *box, const ckpt__op *op,
                              unsigned char *to, ckpt__convert_counts *counts, ckpt_error *err)
{
    if (!h->run || op->from != op->to)
        return move_parts(p, h, box, op, to, counts, err);
    passing w = {.pull = p, .copy = h};
    size_t n = (size_t)h->span;
    ckpt_status status = read_some(&w, to, n, err);
    if (status == CKPT_OK)
        status = pass(&w, to, n, err);
    if (status == CKPT_OK && !ckpt__op_is_plain(op))
        ckpt__op_apply(op, to, n / op->from_size);
    return status;
}

/* ---- a copy with holes */

static ckpt_status gather_box(ckpt__pull *p, const ckpt__held *h, const ckpt__copy_box *box, uint64_t from, size_t size,
                              void *to, ckpt_error *err)
{
    const ckpt__extent *e = ckpt__pull_extent(p, h->from);
    ckpt__decoder *decoder = NULL;
    ckpt_status status = is_coded(e) ? decoder_at(p, h, from, &decoder, err) : CKPT_OK;
    if (status < 0)
        return status;
    status = ckpt__gather(p->source, e, box, from, size, to, p->scratch, decoder, name_of(p, h), err);
    if (status < 0 && decoder)
        close_decoder(p, decoder);
    return status;
}

ckpt_status ckpt__pull_each_stage(const ckpt__copy_box *box, uint32_t item, uint64_t from_at, ckpt__pull_stage_fn *fn,
                                  void *ctx, ckpt_error *err)
{
    uint64_t room = CKPT__PULL_STAGE / item, inner = 1, index[CKPT__COPY_DIMS] = {0};
    uint32_t split = box->n;
    ckpt_status status = CKPT_OK;
    while (split > 0 && box->size[split - 1] <= room / inner)
        inner *= box->size[--split];
    for (bool more = true; status == CKPT_OK && more;) {
        ckpt__pull_part stage = {.from = from_at};
        uint64_t here = 1, dense[CKPT__COPY_DIMS], pitch = item;
        if (split > 0) { /* so many indexes of the dimension that is cut */
            uint64_t left = box->size[split - 1] - index[split - 1];
            here = room / inner ? room / inner : 1;
            here = here < left ? here : left;
        }
        for (uint32_t i = 0; i < split; i++) {
            stage.from += index[i] * box->from_stride[i];
            stage.to += index[i] * box->to_stride[i];
        }
        ckpt__copy_box_init(&stage.gather);
        ckpt__copy_box_init(&stage.spread);
        for (uint32_t i = box->n; i-- > split;) {
            dense[i] = pitch;
            pitch *= box->size[i];
        }
        if (split > 0) {
            ckpt__copy_box_add(&stage.gather, here, box->from_stride[split - 1], pitch);
            ckpt__copy_box_add(&stage.spread, here, pitch, box->to_stride[split - 1]);
        }
        for (uint32_t i = split; i < box->n; i++) {
            ckpt__copy_box_add(&stage.gather, box->size[i], box->from_stride[i], dense[i]);
            ckpt__copy_box_add(&stage.spread, box->size[i], dense[i], box->to_stride[i]);
        }
        status = fn(ctx, &stage, err);
        more = false;
        for (uint32_t i = split; i-- > 0 && !more;) {
            index[i] += i + 1 == split ? here : 1;
            more = index[i] < box->size[i];
            index[i] = more ? index[i] : 0;
        }
    }
    return status;
}

typedef struct staged {
    ckpt__pull *pull;
    const ckpt__held *copy;
    const ckpt__op *op;
    unsigned char *to;
    ckpt__convert_counts *counts;
} staged;

static ckpt_status move_stage(void *ctx, const ckpt__pull_part *stage, ckpt_error *err)
{
    const staged *w = ctx;
    ckpt__pull *p = w->pull;
    ckpt_status status = gather_box(p, w->copy, &stage->gather, stage->from, w->op->from_size, p->stage, err);
    return status < 0 ? status
                      : ckpt__box_move(w->op, &stage->spread, p->stage, w->to + stage->to, w->counts,
                                       name_of(p, w->copy), err);
}

static ckpt_status move_staged(ckpt__pull *p, const ckpt__held *h, const ckpt__copy_box *box, const ckpt__op *op,
                               unsigned char *to, ckpt__convert_counts *counts, ckpt_error *err)
{
    staged w = {p, h, op, to, counts};
    ckpt_status status = ckpt__pull_need(&p->stage, CKPT__PULL_STAGE, err);
    return status < 0 ? status : ckpt__pull_each_stage(box, op->from_size, h->from_at, move_stage, &w, err);
}

/* ---- one copy */

static ckpt_status move_from_device(const ckpt__pull *p, const ckpt__held *h, const ckpt__copy_box *box,
                                    const ckpt__op *op, void *to, ckpt_error *err)
{
    const char *name = name_of(p, h);
    if (!p->fetch)
        return ckpt__fail(err, CKPT_E_DEVICE, name, "it lies in a device's memory, which nothing here reads");
    if (!ckpt__op_is_plain(op))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, name, "what lies in a device's memory is read as it is");
    return p->fetch(p->fetch_ctx, ckpt__pull_extent(p, h->from), h->from_at, box, op->from_size, to, name, err);
}

ckpt_status ckpt__pull_copy(ckpt__pull *p, ckpt__held *h, unsigned char *to, ckpt__convert_counts *counts,
                            ckpt_error *err)
{
    const ckpt__extent *e = ckpt__pull_extent(p, h->from);
    const ckpt__op *op = ckpt__plan_op_of(p->plan, h->op);
    const char *name = name_of(p, h);
    ckpt__copy_box box;
    ckpt__pull_box(p, h, &box);
    if (e->memory && e->device)
        return move_from_device(p, h, &box, op, to, err);
    bool kept = is_coded(e) && e->size <= p->memory && !e->missing;
    ckpt_status status = kept ? decode(p, h, err) : ckpt__pull_rule(p, h, err);
    if (status < 0)
        return status;
    if (e->memory || kept) {
        const unsigned char *from = (kept ? p->decoded : (const unsigned char *)e->memory) + h->from_at;
        if (!kept && h->rule != CKPT__CRC_NONE)
            status = ckpt__pull_crc(p, h, from, err);
        return status < 0 ? status : ckpt__box_move(op, &box, from, to, counts, name, err);
    }
    if (!h->run || op->from != op->to)
        status = ckpt__pull_need(&p->scratch, CKPT__SCRATCH, err);
    if (status < 0)
        return status;
    if (h->dense)
        return move_dense(p, h, &box, op, to, counts, err);
    if (!ckpt__op_is_plain(op))
        return move_staged(p, h, &box, op, to, counts, err);
    return gather_box(p, h, &box, h->from_at, op->from_size, to, err);
}
