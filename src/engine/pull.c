/* engine/pull.c - a range of a target: its copies in the order of the files, small ones read together. */
#include "engine/pull.h"

#include <stdlib.h>
#include "engine/gather.h"
#include "engine/nested.h"
#include "engine/pull_priv.h"

/* All in bytes. A hole that is cheaper to read than to read around; a strided copy that is read with its holes; a coded storage that is
 * kept decoded. */
enum { HOLE = 16 << 10, SMALL = 256 << 10, DECODED = 64 << 20 };

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
    ckpt__pull_close_decoders(p);
    free(p->copies);
    free(p->dims);
    free(p->scratch);
    free(p->stage);
    free(p->decoded);
    free(p);
}

void ckpt__pull_set_fetch(ckpt__pull *p, ckpt__pull_fetch_fn *fetch, void *ctx)
{
    p->fetch = fetch;
    p->fetch_ctx = ctx;
}

void ckpt__pull_check_late(ckpt__pull *p, ckpt__crcs *crcs)
{
    p->crcs = crcs;
}

uint64_t ckpt__pull_openings(const ckpt__pull *p)
{
    return p->openings;
}

/* ---- the copies of a range */

bool ckpt__pull_is_dense(const ckpt__copy_box *box, const ckpt__op *op, ckpt__copy_box *sorted)
{
    uint32_t order[CKPT__COPY_DIMS], n = box->n;
    uint64_t pitch = op->from_size;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && box->from_stride[order[k - 1]] < box->from_stride[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (uint32_t i = n; i-- > 0; pitch *= box->size[order[i]])
        if (box->from_stride[order[i]] != pitch)
            return false;
    ckpt__copy_box_init(sorted);
    for (uint32_t i = 0; i < n; i++)
        ckpt__copy_box_add(sorted, box->size[order[i]], box->from_stride[order[i]], box->to_stride[order[i]]);
    return true;
}

/* Of a dense copy the dimensions are kept as they were sorted. */
static void order_by_source(const ckpt__copy_box *box, ckpt__held *h, const ckpt__op *op, uint64_t *dims)
{
    ckpt__copy_box sorted;
    if (!ckpt__pull_is_dense(box, op, &sorted))
        return;
    h->n = (uint16_t)sorted.n;
    h->dense = true;
    h->run = sorted.n == 1 && sorted.to_stride[0] == op->to_size;
    for (uint32_t i = 0; i < sorted.n; i++) {
        dims[i] = sorted.size[i];
        dims[sorted.n + i] = sorted.from_stride[i];
        dims[2 * sorted.n + i] = sorted.to_stride[i];
    }
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
        !ckpt__grow(&p->dims, &p->dim_capacity, p->dim_count + 3 * (size_t)n + 1, sizeof *p->dims)) /* never none */
        return ckpt__fail_memory(err, "read buffer", p->count * sizeof *p->copies);
    ckpt__held *h = &p->copies[p->count++];
    *h = (ckpt__held){.from = c->from, .bond = c->bond, .op = c->op, .n = (uint16_t)n, .dims = p->dim_count};
    uint64_t *dims = p->dims + p->dim_count, to_end = c->to_at + op->to_size;
    h->from_at = c->from_at;
    h->to_at = c->to_at + p->shift;
    h->span = op->from_size;
    for (uint32_t i = 0; i < n; i++) {
        dims[i] = c->box.size[i];
        dims[n + i] = c->box.from_stride[i];
        dims[2 * n + i] = c->box.to_stride[i];
        h->span += (c->box.size[i] - 1) * c->box.from_stride[i];
        to_end += (c->box.size[i] - 1) * c->box.to_stride[i];
    }
    if (n < 2) {
        h->dense = n == 0 || dims[1] == op->from_size;
        h->run = n == 0 || (h->dense && dims[2] == op->to_size);
    } else
        order_by_source(&c->box, h, op, dims);
    p->dim_count += 3 * (size_t)h->n;
    p->low = c->to_at < p->low ? c->to_at : p->low;
    p->high = to_end > p->high ? to_end : p->high;
    h->file = e->memory || e->coding != CKPT__STORED ? UINT32_MAX : e->file;
    h->place = h->file == UINT32_MAX ? 0 : e->offset + c->from_at;
    return CKPT_OK;
}

static int by_file(const void *a, const void *b)
{
    const ckpt__held *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->from_at != y->from_at)
        return x->from_at < y->from_at ? -1 : 1;
    return x->to_at != y->to_at ? (x->to_at < y->to_at ? -1 : 1) : 0;
}

/* Most come in the order of the files already. */
static void sort_copies(ckpt__pull *p)
{
    size_t sorted = 1;
    while (sorted < p->count && by_file(&p->copies[sorted - 1], &p->copies[sorted]) <= 0)
        sorted++;
    if (sorted < p->count)
        qsort(p->copies, p->count, sizeof *p->copies, by_file);
}

/* ---- copies that lie side by side in a file */

/* The copies [first, end) are in one read of the scratch. */
static size_t neighbours(const ckpt__pull *p, size_t first)
{
    const ckpt__held *h = &p->copies[first];
    uint64_t begin = h->place, reach = begin + h->span;
    size_t end = first + 1;
    if (h->file == UINT32_MAX || h->span > CKPT__SCRATCH)
        return end;
    for (; end < p->count; end++) {
        const ckpt__held *next = &p->copies[end];
        if (next->file != h->file || next->place > reach + HOLE || next->place + next->span > begin + CKPT__SCRATCH)
            break;
        reach = next->place + next->span > reach ? next->place + next->span : reach;
    }
    return end;
}

static ckpt_status move_together(ckpt__pull *p, size_t first, size_t end, unsigned char *to,
                                 ckpt__convert_counts *counts, ckpt_error *err)
{
    uint64_t from = p->copies[first].place, reach = from;
    ckpt_status status = ckpt__pull_need(&p->scratch, CKPT__SCRATCH, err);
    /* A storage of which only a part is used is checked before any of it is given. */
    for (size_t i = first; status == CKPT_OK && i < end; i++) {
        ckpt__held *h = &p->copies[i];
        reach = h->place + h->span > reach ? h->place + h->span : reach;
        status = ckpt__pull_rule(p, h, err);
    }
    if (status == CKPT_OK)
        status = ckpt__source_read(p->source, p->copies[first].file, from, p->scratch, (size_t)(reach - from), err);
    for (size_t i = first; status == CKPT_OK && i < end; i++) {
        const ckpt__held *h = &p->copies[i];
        const unsigned char *bytes = p->scratch + (h->place - from);
        ckpt__copy_box box;
        if (h->rule != CKPT__CRC_NONE)
            status = ckpt__pull_crc(p, h, bytes, err);
        if (status < 0)
            break;
        ckpt__pull_box(p, h, &box);
        status = ckpt__box_move(ckpt__plan_op_of(p->plan, h->op), &box, bytes, to + h->to_at,
                                counts ? &counts[h->bond] : NULL, ckpt__plan_name_of(p->plan, h->bond), err);
    }
    return status;
}

/* Elements that do not lie side by side, but all in one small read. */
static bool is_small(const ckpt__held *h)
{
    return h->file != UINT32_MAX && h->span <= SMALL && !h->run;
}

/* ---- a range */

static ckpt_status move_all(ckpt__pull *p, unsigned char *to, ckpt__convert_counts *counts, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    sort_copies(p);
    for (size_t i = 0, end; status == CKPT_OK && i < p->count; i = end) {
        ckpt__held *h = &p->copies[i];
        end = neighbours(p, i);
        status = end - i > 1 || is_small(h)
                     ? move_together(p, i, end, to, counts, err)
                     : ckpt__pull_copy(p, h, to + h->to_at, counts ? &counts[h->bond] : NULL, err);
    }
    return status;
}

ckpt_status ckpt__pull_bytes(ckpt__pull *p, uint32_t storage, uint64_t begin, uint64_t end, void *dst,
                             ckpt__convert_counts *counts, ckpt_error *err)
{
    p->count = p->dim_count = 0;
    p->low = begin;
    p->high = end;
    p->shift = 0 - begin;
    ckpt_status status = ckpt__plan_target(p->plan, storage, begin, end, hold, p, err);
    if (status < 0 || (p->low == begin && p->high == end))
        return status < 0 ? status : move_all(p, dst, counts, err);
    size_t size = (size_t)(p->high - p->low); /* the range cuts an element: all of it is made elsewhere */
    unsigned char *whole = malloc(size);
    if (!whole)
        return ckpt__fail_memory(err, "read buffer", size);
    for (size_t i = 0; i < p->count; i++)
        p->copies[i].to_at += begin - p->low;
    memcpy(whole + (begin - p->low), dst, (size_t)(end - begin));
    status = move_all(p, whole, counts, err);
    if (status == CKPT_OK)
        memcpy(dst, whole + (begin - p->low), (size_t)(end - begin));
    free(whole);
    return status;
}
