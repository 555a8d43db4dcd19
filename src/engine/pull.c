/* engine/pull.c - a range of a target: its copies in the order of the files, small ones read together. */
#include "engine/pull.h"

#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/decode.h"
#include "engine/gather.h"
#include "engine/nested.h"

/* All in bytes. A hole that is cheaper to read than to read around; a strided copy that is read with its holes; elements that are
 * converted at a time; a coded storage that is kept decoded. */
enum { HOLE = 16 << 10, SMALL = 256 << 10, STAGE = 256 << 10, DECODED = 64 << 20 };

/* A copy that is kept for the time of a range. Its box lies in `dims`: sizes, strides of the source, strides of the target. */
typedef struct held {
    uint32_t from, bond;
    uint16_t op, n;
    size_t dims;             /* number of the first */
    uint64_t from_at, to_at; /* bytes in the storages */
    uint64_t span;           /* bytes of the source from the first to past the last */
    uint32_t file;           /* UINT32_MAX: it is not read from a file as it is: from memory, or decoded */
    uint64_t place;          /* in the file */
} held;

struct ckpt__pull {
    const ckpt__plan *plan; /* borrowed, as is the source */
    const ckpt__source *source;
    bool check;
    uint64_t memory; /* bytes of a coded storage that may be kept decoded */
    held *copies;    /* heap, owned, as are all arrays */
    size_t count, capacity;
    uint64_t *dims;
    size_t dim_count, dim_capacity;
    unsigned char *scratch;     /* CKPT__SCRATCH bytes: what is read together, or a tile of it; NULL before */
    unsigned char *stage;       /* STAGE bytes: elements that are converted; NULL before */
    unsigned char *decoded;     /* the coded storage that was asked for last; NULL: none */
    uint32_t decoded_of;        /* its number */
    ckpt__pull_fetch_fn *fetch; /* of a device's memory; NULL: none is read */
    void *fetch_ctx;            /* its owner's */
    uint64_t low, high; /* of the range's copies: the first byte and past the last, which may lie outside of it */
};

ckpt_status ckpt__pull_new(const ckpt__plan *plan, const ckpt__source *source, bool check, uint64_t memory,
                           ckpt__pull **out, ckpt_error *err)
{
    ckpt__pull *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return ckpt__fail_memory(err, "read buffer", sizeof *p);
    *p = (ckpt__pull){.plan = plan, .source = source, .check = check, .memory = memory ? memory : DECODED};
    return CKPT_OK;
}

void ckpt__pull_free(ckpt__pull *p)
{
    if (!p)
        return;
    free(p->copies);
    free(p->dims);
    free(p->scratch);
    free(p->stage);
    free(p->decoded);
    free(p);
}

static ckpt_status need(unsigned char **buffer, size_t size, ckpt_error *err)
{
    if (!*buffer)
        *buffer = malloc(size);
    return *buffer ? CKPT_OK : ckpt__fail_memory(err, "read buffer", size);
}

/* ---- the copies of a range */

static const ckpt__extent *extent_of(const ckpt__pull *p, uint32_t storage)
{
    return ckpt__extent_known(ckpt__plan_source_index(p->plan), storage);
}

static ckpt_status hold(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    ckpt__pull *p = ctx;
    const ckpt__op *op = ckpt__plan_op_of(p->plan, c->op);
    const ckpt__extent *e;
    uint32_t n = c->box.n;
    ckpt_status status = ckpt__extent_find(p->source, ckpt__plan_source_index(p->plan), c->from, &e, err);
    if (status < 0)
        return status;
    if (!ckpt__grow(&p->copies, &p->capacity, p->count + 1, sizeof *p->copies) ||
        !ckpt__grow(&p->dims, &p->dim_capacity, p->dim_count + 3 * (size_t)n, sizeof *p->dims))
        return ckpt__fail_memory(err, "read buffer", p->count * sizeof *p->copies);
    held *h = &p->copies[p->count++];
    *h = (held){.from = c->from, .bond = c->bond, .op = c->op, .n = (uint16_t)n, .dims = p->dim_count};
    uint64_t *dims = p->dims + p->dim_count, to_end = c->to_at + op->to_size;
    h->from_at = c->from_at;
    h->to_at = c->to_at;
    h->span = op->from_size;
    for (uint32_t i = 0; i < n; i++) {
        dims[i] = c->box.size[i];
        dims[n + i] = c->box.from_stride[i];
        dims[2 * n + i] = c->box.to_stride[i];
        h->span += (c->box.size[i] - 1) * c->box.from_stride[i];
        to_end += (c->box.size[i] - 1) * c->box.to_stride[i];
    }
    p->dim_count += 3 * (size_t)n;
    p->low = c->to_at < p->low ? c->to_at : p->low;
    p->high = to_end > p->high ? to_end : p->high;
    h->file = e->memory || e->coding != CKPT__STORED ? UINT32_MAX : e->file;
    h->place = e->offset + c->from_at;
    return CKPT_OK;
}

static void box_of(const ckpt__pull *p, const held *h, ckpt__copy_box *box)
{
    const uint64_t *dims = p->dims + h->dims;
    ckpt__copy_box_init(box);
    for (uint32_t i = 0; i < h->n; i++)
        ckpt__copy_box_add(box, dims[i], dims[h->n + i], dims[2 * h->n + i]);
}

static int by_file(const void *a, const void *b)
{
    const held *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to_at != y->to_at ? (x->to_at < y->to_at ? -1 : 1) : 0;
}

/* ---- one copy */

static const char *name_of(const ckpt__pull *p, const held *h)
{
    return ckpt__plan_name_of(p->plan, h->bond);
}

/* Does the copy read its storage from the first byte to the last, side by side? Then its CRC is compared on the way. */
static bool is_all(const ckpt__pull *p, const held *h, const ckpt__copy_box *box)
{
    const ckpt__extent *e = extent_of(p, h->from);
    uint64_t bytes;
    return h->from_at == 0 && h->span == e->size && !e->missing &&
           ckpt__copy_box_is_run(box, ckpt__plan_op_of(p->plan, h->op), &bytes) && bytes == e->size;
}

static ckpt_status compare_crc(const ckpt__pull *p, const held *h, const void *bytes, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(p, h->from);
    if (!p->check || !ckpt__has_crc_of_its_own(e))
        return CKPT_OK;
    uint32_t is = ckpt__crc32(0, bytes, (size_t)e->size);
    ckpt__note_checked(e, is == e->crc);
    return is == e->crc ? CKPT_OK
                        : ckpt__fail(err, CKPT_E_DAMAGED, name_of(p, h),
                                     "the CRC-32 of its bytes is %08x; %08x was stored when it was written "
                                     "(copy the file again, or use an earlier checkpoint)",
                                     is, e->crc);
}

/* Elements that are converted, swapped or flipped go through a small buffer that stays in the cache: as many of the inner dimensions as it
 * holds at a time. */
static ckpt_status move_staged(ckpt__pull *p, const held *h, const ckpt__copy_box *box, const ckpt__op *op,
                               unsigned char *to, ckpt__convert_counts *counts, ckpt_error *err)
{
    uint64_t room = STAGE / op->from_size, inner = 1, index[CKPT__COPY_DIMS] = {0};
    uint32_t split = box->n;
    ckpt_status status = need(&p->stage, STAGE, err);
    while (split > 0 && box->size[split - 1] <= room / inner)
        inner *= box->size[--split];
    for (bool more = true; status == CKPT_OK && more;) {
        ckpt__copy_box gather, spread;
        uint64_t from = h->from_at, at = 0, here = 1, dense[CKPT__COPY_DIMS], pitch = op->from_size;
        if (split > 0) { /* so many indexes of the dimension that is cut */
            uint64_t left = box->size[split - 1] - index[split - 1];
            here = room / inner ? room / inner : 1;
            here = here < left ? here : left;
        }
        for (uint32_t i = 0; i < split; i++) {
            from += index[i] * box->from_stride[i];
            at += index[i] * box->to_stride[i];
        }
        ckpt__copy_box_init(&gather);
        ckpt__copy_box_init(&spread);
        for (uint32_t i = box->n; i-- > split;) {
            dense[i] = pitch;
            pitch *= box->size[i];
        }
        if (split > 0) {
            ckpt__copy_box_add(&gather, here, box->from_stride[split - 1], pitch);
            ckpt__copy_box_add(&spread, here, pitch, box->to_stride[split - 1]);
        }
        for (uint32_t i = split; i < box->n; i++) {
            ckpt__copy_box_add(&gather, box->size[i], box->from_stride[i], dense[i]);
            ckpt__copy_box_add(&spread, box->size[i], dense[i], box->to_stride[i]);
        }
        status = ckpt__gather(p->source, extent_of(p, h->from), &gather, from, op->from_size, p->stage, p->scratch,
                              name_of(p, h), err);
        if (status == CKPT_OK)
            status = ckpt__box_move(op, &spread, p->stage, to + at, counts, name_of(p, h), err);
        more = false;
        for (uint32_t i = split; i-- > 0 && !more;) {
            index[i] += i + 1 == split ? here : 1;
            more = index[i] < box->size[i];
            index[i] = more ? index[i] : 0;
        }
    }
    return status;
}

uint64_t ckpt__pull_stages(const ckpt__copy_box *box, uint32_t item)
{
    uint64_t room = STAGE / item, inner = 1, stages = 1;
    uint32_t split = box->n;
    while (split > 0 && box->size[split - 1] <= room / inner)
        inner *= box->size[--split];
    for (uint32_t i = 0; i < split; i++) {
        uint64_t here = i + 1 == split && room / inner ? room / inner : 1;
        stages *= (box->size[i] + here - 1) / here;
    }
    return stages;
}

/* A coded storage can only be read from its first byte on: one that is small is decoded once for all copies of it. */
static ckpt_status decode(ckpt__pull *p, const held *h, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(p, h->from);
    ckpt__decoder decoder;
    if (p->decoded && p->decoded_of == h->from)
        return CKPT_OK;
    free(p->decoded);
    p->decoded_of = h->from;
    if (!(p->decoded = malloc(e->size ? (size_t)e->size : 1)))
        return ckpt__fail_memory(err, name_of(p, h), e->size);
    ckpt_status status = ckpt__decoder_open(&decoder, p->source, e, name_of(p, h), err);
    if (status == CKPT_OK)
        status = ckpt__decoder_read(&decoder, p->decoded, (size_t)e->size, err);
    if (status == CKPT_OK)
        status = ckpt__decoder_finish(&decoder, err);
    ckpt__decoder_close(&decoder);
    if (status == CKPT_OK)
        status = compare_crc(p, h, p->decoded, err);
    if (status < 0) {
        free(p->decoded);
        p->decoded = NULL;
    }
    return status;
}

void ckpt__pull_set_fetch(ckpt__pull *p, ckpt__pull_fetch_fn *fetch, void *ctx)
{
    p->fetch = fetch;
    p->fetch_ctx = ctx;
}

static ckpt_status move_from_device(const ckpt__pull *p, const held *h, const ckpt__copy_box *box, const ckpt__op *op,
                                    void *to, ckpt_error *err)
{
    const char *name = name_of(p, h);
    if (!p->fetch)
        return ckpt__fail(err, CKPT_E_DEVICE, name, "it lies in a device's memory, which nothing here reads");
    if (!ckpt__op_is_plain(op))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, name, "what lies in a device's memory is read as it is");
    return p->fetch(p->fetch_ctx, extent_of(p, h->from), h->from_at, box, op->from_size, to, name, err);
}

static ckpt_status move_one(ckpt__pull *p, const held *h, unsigned char *to, ckpt__convert_counts *counts,
                            ckpt_error *err)
{
    const ckpt__extent *e = extent_of(p, h->from);
    const ckpt__op *op = ckpt__plan_op_of(p->plan, h->op);
    ckpt__copy_box box;
    uint64_t bytes;
    box_of(p, h, &box);
    if (e->memory && e->device)
        return move_from_device(p, h, &box, op, to, err);
    bool plain = ckpt__op_is_plain(op), all = is_all(p, h, &box) && plain,
         kept = !e->memory && e->coding != CKPT__STORED && e->size <= p->memory && !e->missing;
    ckpt_status status = kept ? decode(p, h, err) : CKPT_OK;
    if (p->check && !all && !kept)
        status = ckpt__check_storage(p->source, ckpt__plan_source_index(p->plan), h->from, h->span, name_of(p, h), err);
    if (status == CKPT_OK)
        status = need(&p->scratch, CKPT__SCRATCH, err);
    if (status < 0)
        return status;
    if (e->memory || kept) {
        const unsigned char *from = kept ? p->decoded : e->memory;
        status = e->memory && all ? compare_crc(p, h, from, err) : CKPT_OK;
        return status < 0 ? status : ckpt__box_move(op, &box, from + h->from_at, to, counts, name_of(p, h), err);
    }
    if (!plain)
        return move_staged(p, h, &box, op, to, counts, err);
    if (e->coding == CKPT__STORED && ckpt__copy_box_is_run(&box, op, &bytes))
        status = ckpt__extent_read(p->source, e, h->from_at, to, (size_t)bytes, name_of(p, h), err);
    else
        status = ckpt__gather(p->source, e, &box, h->from_at, op->from_size, to, p->scratch, name_of(p, h), err);
    return status == CKPT_OK && all ? compare_crc(p, h, to, err) : status;
}

/* ---- copies that lie side by side in a file */

/* The copies [first, end) are in one read of the scratch. */
static size_t neighbours(const ckpt__pull *p, size_t first)
{
    const held *h = &p->copies[first];
    uint64_t begin = h->place, reach = begin + h->span;
    size_t end = first + 1;
    if (h->file == UINT32_MAX || h->span > CKPT__SCRATCH)
        return end;
    for (; end < p->count; end++) {
        const held *next = &p->copies[end];
        if (next->file != h->file || next->place > reach + HOLE || next->place + next->span > begin + CKPT__SCRATCH)
            break;
        reach = next->place + next->span > reach ? next->place + next->span : reach;
    }
    return end;
}

static ckpt_status move_together(ckpt__pull *p, size_t first, size_t end, unsigned char *to, uint64_t begin,
                                 ckpt__convert_counts *counts, ckpt_error *err)
{
    uint64_t from = p->copies[first].place, reach = from;
    ckpt_status status = need(&p->scratch, CKPT__SCRATCH, err);
    for (size_t i = first; i < end; i++) {
        const held *h = &p->copies[i];
        reach = h->place + h->span > reach ? h->place + h->span : reach;
    }
    /* A storage of which only a part is used is checked before any of it is given. */
    for (size_t i = first; status == CKPT_OK && p->check && i < end; i++) {
        const held *h = &p->copies[i];
        ckpt__copy_box box;
        box_of(p, h, &box);
        if (!is_all(p, h, &box))
            status =
                ckpt__check_storage(p->source, ckpt__plan_source_index(p->plan), h->from, h->span, name_of(p, h), err);
    }
    if (status == CKPT_OK)
        status = ckpt__source_read(p->source, p->copies[first].file, from, p->scratch, (size_t)(reach - from), err);
    for (size_t i = first; status == CKPT_OK && i < end; i++) {
        const held *h = &p->copies[i];
        const unsigned char *bytes = p->scratch + (h->place - from);
        ckpt__copy_box box;
        box_of(p, h, &box);
        if (is_all(p, h, &box))
            status = compare_crc(p, h, bytes, err);
        if (status == CKPT_OK)
            status = ckpt__box_move(ckpt__plan_op_of(p->plan, h->op), &box, bytes, to + (h->to_at - begin),
                                    counts ? &counts[h->bond] : NULL, name_of(p, h), err);
    }
    return status;
}

/* Elements that do not lie side by side, but all in one small read. */
static bool is_small(const ckpt__pull *p, const held *h)
{
    ckpt__copy_box box;
    uint64_t bytes;
    if (h->file == UINT32_MAX || h->span > SMALL)
        return false;
    box_of(p, h, &box);
    return !ckpt__copy_box_is_run(&box, ckpt__plan_op_of(p->plan, h->op), &bytes);
}

/* ---- a range */

static ckpt_status move_all(ckpt__pull *p, unsigned char *to, uint64_t begin, ckpt__convert_counts *counts,
                            ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (p->count > 1)
        qsort(p->copies, p->count, sizeof *p->copies, by_file);
    for (size_t i = 0, end; status == CKPT_OK && i < p->count; i = end) {
        const held *h = &p->copies[i];
        end = neighbours(p, i);
        status = end - i > 1 || is_small(p, h)
                     ? move_together(p, i, end, to, begin, counts, err)
                     : move_one(p, h, to + (h->to_at - begin), counts ? &counts[h->bond] : NULL, err);
    }
    return status;
}

ckpt_status ckpt__pull_bytes(ckpt__pull *p, uint32_t storage, uint64_t begin, uint64_t end, void *dst,
                             ckpt__convert_counts *counts, ckpt_error *err)
{
    p->count = p->dim_count = 0;
    p->low = begin;
    p->high = end;
    ckpt_status status = ckpt__plan_target(p->plan, storage, begin, end, hold, p, err);
    if (status < 0 || (p->low == begin && p->high == end))
        return status < 0 ? status : move_all(p, dst, begin, counts, err);
    size_t size = (size_t)(p->high - p->low); /* the range cuts an element: all of it is made elsewhere */
    unsigned char *whole = malloc(size);
    if (!whole)
        return ckpt__fail_memory(err, "read buffer", size);
    memcpy(whole + (begin - p->low), dst, (size_t)(end - begin));
    status = move_all(p, whole, p->low, counts, err);
    if (status == CKPT_OK)
        memcpy(dst, whole + (begin - p->low), (size_t)(end - begin));
    free(whole);
    return status;
}
