/* engine/plan_boxes.c - the boxes of one bond in the coordinates of its tensor: for people, and for whoever makes one tensor. */
#include <stdlib.h>
#include "engine/plan_priv.h"

/* One question, while it is answered. */
typedef struct asked {
    const ckpt__plan *plan;
    const ckpt__side *side; /* of the source */
    ckpt__lie to;           /* the row of the target */
    unsigned from_bits, to_bits;
    ckpt__bond_box box;
    ckpt__bond_box_fn *fn;
    void *ctx;
} asked;

/* The bytes from the first of the box's elements to past its last. */
static void find_span(const ckpt__lie *lie, unsigned bits, const int64_t *lo, const int64_t *size, uint64_t *begin,
                      uint64_t *end)
{
    uint64_t at = 0, reach = 1;
    for (uint32_t i = 0; i < lie->n; i++) {
        uint64_t stride = (uint64_t)lie->strides[i];
        at += (uint64_t)(lo[i] - (lie->lo ? lie->lo[i] : 0)) * stride;
        reach += (uint64_t)(size[i] - 1) * stride;
    }
    *begin = lie->at + at * bits / 8;
    *end = *begin + (reach * bits + 7) / 8;
}

static ckpt_status give_meet(void *ctx, size_t row, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    asked *a = ctx;
    ckpt__bond_box *b = &a->box;
    ckpt__lie from;
    ckpt__side_row(a->side, row, &from);
    b->lo = lo;
    b->size = size;
    b->strides = from.strides;
    b->piece = a->side->tensor->whole ? NULL : a->side->rows[row].box;
    b->from = from.storage;
    find_span(&from, a->from_bits, lo, size, &b->from_at, &b->from_end);
    b->replica = false;
    b->to = a->to.storage;
    find_span(&a->to, a->to_bits, lo, size, &b->to_at, &b->to_end);
    return a->fn(a->ctx, b, err);
}

static ckpt_status give_replica(asked *a, size_t row, ckpt_error *err)
{
    ckpt__bond_box *b = &a->box;
    ckpt__lie from;
    ckpt__side_row(a->side, row, &from);
    b->lo = from.lo;
    b->size = from.size;
    b->strides = from.strides;
    b->piece = from.lo;
    b->from = from.storage;
    find_span(&from, a->from_bits, from.lo, from.size, &b->from_at, &b->from_end);
    b->replica = true;
    b->to = UINT32_MAX;
    b->to_at = b->to_end = 0;
    return a->fn(a->ctx, b, err);
}

static ckpt_status give_split(asked *a, size_t bond, ckpt_error *err)
{
    const ckpt__side *to = ckpt__side_of_bond(a->plan, bond, true);
    uint64_t work = 0;
    ckpt_status status = CKPT_OK;
    a->box.n = to->n;
    a->box.flat = to->flat;
    for (size_t i = 0; status == CKPT_OK && i < to->count; i++) {
        ckpt__side_row(to, i, &a->to);
        status = ckpt__side_each(a->side, a->to.lo, a->to.size, give_meet, a, &work, err);
    }
    for (size_t i = 0; status == CKPT_OK && a->side->left_out && i < a->side->count; i++)
        if (a->side->left_out[i])
            status = give_replica(a, i, err);
    return status;
}

static ckpt_status give_whole(asked *a, size_t bond, ckpt_error *err)
{
    ckpt__bond_box *b = &a->box;
    ckpt__span_of from = ckpt__row_span(a->plan, false, bond, 0), to = ckpt__row_span(a->plan, true, bond, 0);
    const ckpt__tensor *t = &a->plan->want.from->tensors[a->plan->want.bonds[bond].from];
    b->n = t->info.ndim;
    b->size = t->info.shape;
    b->strides = t->info.strides;
    b->from = from.storage;
    b->from_at = from.begin;
    b->from_end = from.end;
    b->to = to.storage;
    b->to_at = to.begin;
    b->to_end = to.end;
    return a->fn(a->ctx, b, err);
}

static ckpt_status give_storage(asked *a, const ckpt__bond *bond, ckpt_error *err)
{
    static const int64_t zero = 0;
    ckpt__bond_box *b = &a->box;
    const int64_t bytes = (int64_t)a->plan->want.to->storages[bond->to].extent.size;
    b->n = 1;
    b->flat = true;
    b->lo = &zero;
    b->size = &bytes;
    b->from = bond->from;
    b->to = bond->to;
    b->from_end = b->to_end = (uint64_t)bytes;
    return bytes ? a->fn(a->ctx, b, err) : CKPT_OK;
}

ckpt_status ckpt__plan_bond_boxes(const ckpt__plan *p, size_t bond, ckpt__bond_box_fn *fn, void *ctx, ckpt_error *err)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    asked *a = calloc(1, sizeof *a);
    if (!a)
        return ckpt__fail_memory(err, "plan", sizeof *a);
    *a = (asked){.plan = p, .side = ckpt__side_of_bond(p, bond, false), .fn = fn, .ctx = ctx};
    ckpt_status status = CKPT_OK;
    if (b->flags & CKPT__BOND_STORAGE)
        status = give_storage(a, b, err);
    else {
        a->from_bits = ckpt_dtype_bits(p->want.from->tensors[b->from].info.dtype);
        a->to_bits = ckpt_dtype_bits(p->want.to->tensors[b->to].info.dtype);
        if (a->side)
            status = give_split(a, bond, err);
        else if (ckpt__bond_rows(p, bond, true))
            status = give_whole(a, bond, err);
    }
    free(a);
    return status;
}
