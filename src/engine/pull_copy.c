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
    bool all = h->dense && h->span == e->size;
    if (p->check && e->spanned && h->dense && p->crcs && ckpt__crcs_takes_span(p->crcs, h->from)) {
        h->rule = CKPT__CRC_OF_SPAN;
        return CKPT_OK;
    }
    if (p->check && (ckpt__is_asked_before(e) || (e->coding == CKPT__ZLIB && !all)))
        return ckpt__check_storage(p->source, ckpt__plan_source_index(p->plan), h->from, h->span, name_of(p, h), err);
    if (!p->check || !ckpt__has_crc_of_its_own(e) || e->missing || ckpt__is_sound(e))
        return CKPT_OK;
    if (all)
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
    if (h->rule == CKPT__CRC_OF_SPAN)
        return ckpt__crcs_add_span(w->pull->crcs, h->from, h->bond, h->from_at + at, data, n, err);
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

/* In bytes. So many of a stage lie in one run of the source, at least where the dimensions allow it: a read of fewer takes as long. A
 * dimension is cut where runs would be longer than RUN_MOST. The next one's stride is longer than that then: no hole between two runs of
 * RUN is read through. */
enum { RUN = 16 << 10, RUN_MOST = 32 << 10 };

/* Numbers of the dimensions, that of the smallest stride of the source first. One that only repeats comes last. */
static void order_of_source(const ckpt__copy_box *box, uint32_t *order)
{
    for (uint32_t i = 0; i < box->n; i++) {
        uint32_t k = i;
        for (; k > 0 && box->from_stride[order[k - 1]] - 1 > box->from_stride[i] - 1; k--) /* 0 - 1 is the largest */
            order[k] = order[k - 1];
        order[k] = i;
    }
}

/* How many indexes of each dimension a stage has: first those that are a run of the source, then those that lie side by side in the
 * target. A matrix of 11000 x 11000 float32 is turned and converted, 2900 rows of the target in this question: a column of them is a
 * run of 11600 bytes, and 22 such columns are a stage. */
static void plan_stages(const ckpt__copy_box *box, uint32_t item, bool in_order, const uint32_t *order, uint64_t *tile)
{
    uint64_t room = CKPT__PULL_STAGE / item, most = in_order ? room : RUN_MOST / item, all = 1;
    uint64_t run = in_order ? room : RUN / item;
    bool cut = false;
    for (uint32_t i = 0; i < box->n; i++)
        tile[i] = 1;
    for (uint32_t k = 0; k < box->n && !cut; k++) {
        uint32_t i = order[k];
        cut = box->size[i] > most / all;
        tile[i] = !cut ? box->size[i] : run > all ? run / all : 1;
        all *= tile[i];
    }
    for (uint32_t i = box->n; i-- > 0;) {
        uint64_t others = all / tile[i];
        tile[i] = box->size[i] < room / others ? box->size[i] : room / others;
        all = others * tile[i];
    }
}

ckpt_status ckpt__pull_each_stage(const ckpt__copy_box *box, uint32_t item, bool in_order, uint64_t from_at,
                                  ckpt__pull_stage_fn *fn, void *ctx, ckpt_error *err)
{
    uint64_t tile[CKPT__COPY_DIMS], at[CKPT__COPY_DIMS] = {0};
    uint32_t order[CKPT__COPY_DIMS];
    ckpt_status status = CKPT_OK;
    order_of_source(box, order);
    plan_stages(box, item, in_order, order, tile);
    for (bool more = true; status == CKPT_OK && more;) {
        ckpt__pull_part stage = {.from = from_at};
        uint64_t here[CKPT__COPY_DIMS], dense[CKPT__COPY_DIMS], pitch = item;
        for (uint32_t i = box->n; i-- > 0;) {
            here[i] = box->size[i] - at[i] < tile[i] ? box->size[i] - at[i] : tile[i];
            dense[i] = pitch;
            pitch *= here[i];
            stage.from += at[i] * box->from_stride[i];
            stage.to += at[i] * box->to_stride[i];
        }
        ckpt__copy_box_init(&stage.gather);
        ckpt__copy_box_init(&stage.spread);
        for (uint32_t i = 0; i < box->n; i++) {
            ckpt__copy_box_add(&stage.gather, here[i], box->from_stride[i], dense[i]);
            ckpt__copy_box_add(&stage.spread, here[i], dense[i], box->to_stride[i]);
        }
        status = fn(ctx, &stage, err);
        more = false;
        for (uint32_t k = 0; k < box->n && !more; k++) { /* on in the order of the source */
            uint32_t i = order[k];
            at[i] += here[i];
            more = at[i] < box->size[i];
            at[i] = more ? at[i] : 0;
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
    bool in_order = is_coded(ckpt__pull_extent(p, h->from));
    return status < 0 ? status : ckpt__pull_each_stage(box, op->from_size, in_order, h->from_at, move_stage, &w, err);
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
    ckpt_status status = kept && !ckpt__is_asked_before(e) ? CKPT_OK : ckpt__pull_rule(p, h, err);
    if (status == CKPT_OK && kept)
        status = decode(p, h, err);
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
