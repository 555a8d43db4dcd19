/* engine/plan.c - making a plan, and the copies of a range of bytes. */
#include "engine/plan.h"

#include <stdlib.h>
#include "engine/plan_priv.h"
#include "model/nested.h"

const ckpt__op ckpt__op_of_bytes = {
    .from = CKPT_U8, .to = CKPT_U8, .from_size = 1, .to_size = 1, .granule = 1, .from_swap = 1, .to_swap = 1};

/* ---- what is asked for makes sense */

static ckpt_status check_shapes(const ckpt_tensor_info *from, const ckpt_tensor_info *to, ckpt_error *err)
{
    char have[200], want[200];
    if (ckpt__same_shape(from->shape, from->ndim, to->shape, to->ndim))
        return CKPT_OK;
    ckpt__shape_text(have, sizeof have, from->shape, from->ndim);
    ckpt__shape_text(want, sizeof want, to->shape, to->ndim);
    return ckpt__fail(err, CKPT_E_MISMATCH, from->name.data, "its shape is %s, and %s is to be made of it", have, want);
}

uint8_t ckpt__plan_swap_of(const ckpt__index *x, const ckpt__tensor *t)
{
    uint8_t unit = 0;
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        const ckpt__storage *s = &x->storages[t->whole ? t->storage : x->pieces[t->first_piece + i].storage];
        uint8_t own = s->extent.big_endian && s->unit > 1 ? s->unit : 1;
        if (i && own != unit)
            return 0;
        unit = own;
    }
    return unit;
}

/* Does the op reverse what the storages have reversed? Reversed on both sides is not reversed at all, as ckpt__op_make has it. */
static ckpt_status check_swaps(const ckpt__plan *p, const ckpt__tensor *from, const ckpt__tensor *to,
                               const ckpt__op *op, ckpt_error *err)
{
    uint8_t is = ckpt__plan_swap_of(p->want.from, from), becomes = ckpt__plan_swap_of(p->want.to, to);
    bool alike = is == becomes && is && op->from == op->to && op->from_swap == 1 && op->to_swap == 1;
    if (alike || (is == op->from_swap && becomes == op->to_swap))
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, from->info.name.data,
        "its bytes are reversed %u at a time in the source and %u in the target; the plan takes them for %u and %u", is,
        becomes, op->from_swap, op->to_swap);
}

static ckpt_status check_repeats(const ckpt__index *x, const ckpt__tensor *t, ckpt_error *err)
{
    uint64_t stored;
    if (!ckpt__repeats(x, t, &stored))
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_LIMIT, t->info.name.data, "its view makes %llu bytes of %llu that are stored",
                      (unsigned long long)t->info.nbytes, (unsigned long long)stored);
}

static ckpt_status check_tensors(const ckpt__plan *p, const ckpt__bond *b, ckpt_error *err)
{
    const ckpt__tensor *from = &p->want.from->tensors[b->from], *to = &p->want.to->tensors[b->to];
    const ckpt__op *op = &p->want.ops[b->op];
    const char *name = from->info.name.data;
    if (b->op == CKPT__OP_BYTES || op->from != from->info.dtype || op->to != to->info.dtype)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "its op is not of its dtypes, %s and %s",
                          ckpt_dtype_name(from->info.dtype), ckpt_dtype_name(to->info.dtype));
    ckpt_status status = check_shapes(&from->info, &to->info, err);
    if (status < 0 || to->info.nbytes == 0 || ckpt__has_no_bytes(to)) /* a rank may hold nothing of a tensor */
        return status;
    if (ckpt__has_no_bytes(from))
        return ckpt__fail(err, CKPT_E_MISMATCH, name, "it has no data of its own");
    if ((from->piece_count || to->piece_count) && from->info.ndim > CKPT__BOX_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, name, "it is split and has %u dimensions; %d are the most",
                          from->info.ndim, CKPT__BOX_MAX);
    status = check_swaps(p, from, to, op, err);
    return status == CKPT_OK ? check_repeats(p->want.from, from, err) : status;
}

static ckpt_status check_storages(const ckpt__plan *p, const ckpt__bond *b, ckpt_error *err)
{
    const ckpt__storage *from = &p->want.from->storages[b->from], *to = &p->want.to->storages[b->to];
    const ckpt__op *op = ckpt__plan_op(p, b->op);
    if (op->from_size != op->to_size || op->flips || op->negate || op->from != op->to)
        return ckpt__fail(err, CKPT_E_ARGUMENT, from->name.data, "the bytes of a storage are swapped at most");
    if (from->extent.size != to->extent.size)
        return ckpt__fail(err, CKPT_E_MISMATCH, from->name.data, "it has %llu bytes, and %llu are to be made of it",
                          (unsigned long long)from->extent.size, (unsigned long long)to->extent.size);
    return CKPT_OK;
}

static ckpt_status check_bonds(ckpt__plan *p, ckpt_error *err)
{
    const ckpt__plan_want *w = &p->want;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < w->bond_count; i++) {
        const ckpt__bond *b = &w->bonds[i];
        bool storage = b->flags & CKPT__BOND_STORAGE;
        if (b->from >= (storage ? w->from->storage_count : w->from->tensor_count) ||
            b->to >= (storage ? w->to->storage_count : w->to->tensor_count) ||
            (b->op != CKPT__OP_BYTES && b->op >= w->op_count))
            return ckpt__fail(err, CKPT_E_ARGUMENT, "plan", "bond %zu names what is not there", i);
        status = storage ? check_storages(p, b, err) : check_tensors(p, b, err);
    }
    for (size_t i = 0; status == CKPT_OK && i < w->fill_count; i++) {
        const ckpt__fill *f = &w->fills[i];
        uint64_t end;
        if (f->storage >= w->to->storage_count || !ckpt__add(f->begin, f->size, &end) ||
            end > w->to->storages[f->storage].extent.size)
            return ckpt__fail(err, CKPT_E_ARGUMENT, "plan", "fill %zu lies outside of its storage", i);
    }
    return status;
}

/* ---- copies */

/* What both sides have in common; sizes count elements. Field by field: most of a copy is room for dimensions, and to clear that
 * takes longer than all else. */
static void set_copy(const ckpt__plan *p, size_t bond, const ckpt__lie *from, const ckpt__lie *to, const int64_t *lo,
                     const int64_t *size, ckpt__copy *c)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    const ckpt__op *op = ckpt__plan_op(p, b->op);
    const ckpt__lie *lies[2] = {from, to};
    uint64_t at[2] = {0, 0};
    c->from = from->storage;
    c->to = to->storage;
    c->bond = (uint32_t)bond;
    c->op = b->op;
    ckpt__copy_box_init(&c->box);
    for (uint32_t i = 0; i < from->n; i++) {
        uint64_t stride[2];
        bool granules = op->granule > 1 && i + 1 == from->n;
        for (int k = 0; k < 2; k++) {
            uint64_t elements = (uint64_t)lies[k]->strides[i], bytes = k ? op->to_size : op->from_size;
            at[k] += (uint64_t)(lo[i] - (lies[k]->lo ? lies[k]->lo[i] : 0)) * elements;
            stride[k] = granules ? bytes : elements / op->granule * bytes;
        }
        ckpt__copy_box_add(&c->box, (uint64_t)size[i] / (granules ? op->granule : 1), stride[0], stride[1]);
    }
    c->from_at = from->at + at[0] / op->granule * op->from_size;
    c->to_at = to->at + at[1] / op->granule * op->to_size;
}

/* The one copy of a tensor that is whole on both sides, or of a storage. */
static void set_whole(const ckpt__plan *p, ckpt__unit unit, ckpt__copy *c)
{
    const ckpt__bond *b = &p->want.bonds[unit.bond];
    const ckpt__op *op = ckpt__plan_op(p, b->op);
    ckpt__copy_box_init(&c->box);
    c->bond = unit.bond;
    c->op = b->op;
    if (b->flags & CKPT__BOND_STORAGE) {
        uint64_t size = (unit.end - unit.begin) % op->to_size ? 1 : op->to_size;
        c->op = size == op->to_size ? b->op : CKPT__OP_BYTES;
        c->from = b->from;
        c->to = b->to;
        c->from_at = c->to_at = unit.begin;
        ckpt__copy_box_add(&c->box, (unit.end - unit.begin) / size, size, size);
        return;
    }
    const ckpt__tensor *from = &p->want.from->tensors[b->from], *to = &p->want.to->tensors[b->to];
    c->from = from->storage;
    c->to = to->storage;
    c->from_at = ckpt__whole_at(from);
    c->to_at = ckpt__whole_at(to);
    if (op->granule > 1) { /* in C order, and its last byte may be no whole granule */
        c->op = CKPT__OP_BYTES;
        ckpt__copy_box_add(&c->box, to->info.nbytes, 1, 1);
        return;
    }
    for (uint32_t i = 0; i < from->info.ndim; i++)
        ckpt__copy_box_add(&c->box, (uint64_t)from->info.shape[i], (uint64_t)from->info.strides[i] * op->from_size,
                           (uint64_t)to->info.strides[i] * op->to_size);
}

/* ---- the copies of a range */

/* One question, while it is answered. */
typedef struct question {
    const ckpt__plan *plan;
    bool target;
    uint64_t begin, end;
    ckpt__copy_fn *fn;
    void *ctx;
    /* of the unit that is cut */
    uint32_t bond;
    const ckpt__copy *whole; /* a copy of all of it */
    ckpt__lie lie;           /* the row that is asked of */
    const ckpt__side *other;
    uint64_t work;
} question;

static uint64_t behind(uint64_t at, uint64_t from)
{
    return at > from ? at - from : 0;
}

static ckpt_status give_part(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    const question *q = ctx;
    ckpt__copy part;
    part.from = q->whole->from;
    part.to = q->whole->to;
    part.bond = q->whole->bond;
    part.op = q->whole->op;
    part.from_at = q->whole->from_at;
    part.to_at = q->whole->to_at;
    ckpt__copy_box_init(&part.box);
    for (uint32_t i = 0; i < q->whole->box.n; i++) {
        part.from_at += (uint64_t)lo[i] * q->whole->box.from_stride[i];
        part.to_at += (uint64_t)lo[i] * q->whole->box.to_stride[i];
        ckpt__copy_box_add(&part.box, (uint64_t)size[i], q->whole->box.from_stride[i], q->whole->box.to_stride[i]);
    }
    return q->fn(q->ctx, &part, err);
}

static ckpt_status ask_whole(question *q, ckpt__unit unit, ckpt_error *err)
{
    ckpt__copy whole;
    set_whole(q->plan, unit, &whole);
    const ckpt__op *op = ckpt__plan_op(q->plan, whole.op);
    if (q->begin <= unit.begin && unit.end <= q->end)
        return q->fn(q->ctx, &whole, err);
    q->whole = &whole;
    return ckpt__box_cut_bytes(whole.box.n, (const int64_t *)whole.box.size,
                               q->target ? whole.box.to_stride : whole.box.from_stride, q->target ? op->to_size : 1,
                               behind(q->begin, unit.begin), behind(q->end, unit.begin), give_part, q, err);
}

static ckpt_status give_meet(void *ctx, size_t row, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    question *q = ctx;
    ckpt__lie other;
    ckpt__copy c;
    ckpt__side_row(q->other, row, &other);
    set_copy(q->plan, q->bond, q->target ? &other : &q->lie, q->target ? &q->lie : &other, lo, size, &c);
    return q->fn(q->ctx, &c, err);
}

/* A box of the row, in granules and from the row's own corner. */
static ckpt_status ask_box(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    question *q = ctx;
    const ckpt__op *op = ckpt__plan_op(q->plan, q->plan->want.bonds[q->bond].op);
    int64_t at[CKPT__BOX_MAX], sizes[CKPT__BOX_MAX];
    for (uint32_t i = 0; i < q->lie.n; i++) {
        int64_t granule = i + 1 == q->lie.n ? op->granule : 1;
        at[i] = q->lie.lo[i] + lo[i] * granule;
        sizes[i] = size[i] * granule;
    }
    return ckpt__side_each(q->other, at, sizes, give_meet, q, &q->work, err);
}

static ckpt_status ask_row(question *q, const ckpt__side *side, ckpt__unit unit, ckpt_error *err)
{
    const ckpt__op *op = ckpt__plan_op(q->plan, q->plan->want.bonds[unit.bond].op);
    uint64_t bytes = q->target ? op->to_size : op->from_size, least = q->target ? bytes : 1, strides[CKPT__BOX_MAX];
    int64_t shape[CKPT__BOX_MAX];
    ckpt__side_row(side, unit.row, &q->lie);
    q->other = ckpt__side_of_bond(q->plan, unit.bond, !q->target);
    q->bond = unit.bond;
    for (uint32_t i = 0; i < q->lie.n; i++) {
        bool granules = op->granule > 1 && i + 1 == q->lie.n;
        shape[i] = q->lie.size[i] / (granules ? (int64_t)op->granule : 1);
        strides[i] = granules ? bytes : (uint64_t)q->lie.strides[i] / op->granule * bytes;
    }
    return ckpt__box_cut_bytes(q->lie.n, shape, strides, least, behind(q->begin, q->lie.at), behind(q->end, q->lie.at),
                               ask_box, q, err);
}

static ckpt_status ask(const ckpt__plan *p, bool target, uint32_t storage, uint64_t begin, uint64_t end,
                       ckpt__copy_fn *fn, void *ctx, ckpt_error *err)
{
    const ckpt__units *u = target ? &p->out : &p->in;
    question q; /* not all set to zero: most of it is for tensors of more dimensions */
    q.plan = p;
    q.target = target;
    q.begin = begin;
    q.end = end;
    q.fn = fn;
    q.ctx = ctx;
    q.work = 0;
    ckpt_status status = CKPT_OK;
    if (!u->first || storage >= (target ? p->want.to : p->want.from)->storage_count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "plan", "it was not made to answer of storage %u", storage);
    size_t last = u->first[storage + 1];
    for (size_t i = u->first[storage]; status == CKPT_OK && begin < end && i < last;) {
        if (u->most[1] && i % CKPT__FAR == 0 && u->most[1][i / CKPT__FAR] <= begin) {
            i += CKPT__FAR;
            continue;
        }
        if (u->most[0] && i % CKPT__NEAR == 0 && u->most[0][i / CKPT__NEAR] <= begin) {
            i += CKPT__NEAR;
            continue;
        }
        ckpt__unit unit = u->items[i++];
        if (unit.begin >= end)
            break;
        if (unit.end <= begin || unit.bond == UINT32_MAX)
            continue;
        const ckpt__side *side = ckpt__side_of_bond(p, unit.bond, target);
        status = side ? ask_row(&q, side, unit, err) : ask_whole(&q, unit, err);
    }
    return status;
}

ckpt_status ckpt__plan_target(const ckpt__plan *plan, uint32_t storage, uint64_t begin, uint64_t end, ckpt__copy_fn *fn,
                              void *ctx, ckpt_error *err)
{
    return ask(plan, true, storage, begin, end, fn, ctx, err);
}

ckpt_status ckpt__plan_source(const ckpt__plan *plan, uint32_t storage, uint64_t begin, uint64_t end, ckpt__copy_fn *fn,
                              void *ctx, ckpt_error *err)
{
    return ask(plan, false, storage, begin, end, fn, ctx, err);
}

/* ---- the plan */

static uint64_t bytes_in(const ckpt__plan *p, const ckpt__bond *b)
{
    const ckpt__index *x = p->want.from;
    return b->flags & CKPT__BOND_STORAGE ? x->storages[b->from].extent.size : x->tensors[b->from].info.nbytes;
}

/* Each tensor and storage of the source once, however many bonds it has. */
static ckpt_status add_up(ckpt__plan *p, ckpt_error *err)
{
    const ckpt__plan_want *w = &p->want;
    unsigned char *seen = NULL; /* a bit a tensor, then a bit a storage; one bond needs none */
    if (w->bond_count > 1 && !(seen = calloc(w->from->tensor_count / 8 + w->from->storage_count / 8 + 2, 1)))
        return ckpt__fail_memory(err, "plan", 0);
    for (size_t i = 0; i < w->bond_count; i++) {
        const ckpt__bond *b = &w->bonds[i];
        bool storage = b->flags & CKPT__BOND_STORAGE;
        unsigned char *bits = seen && storage ? seen + w->from->tensor_count / 8 + 1 : seen;
        if (!bits || !(bits[b->from / 8] >> (b->from % 8) & 1))
            p->totals.bytes_in += bytes_in(p, b);
        if (bits)
            bits[b->from / 8] |= (unsigned char)(1u << (b->from % 8));
        if (ckpt__is_alias(p, i))
            continue;
        p->totals.bytes_out += storage ? bytes_in(p, b) : w->to->tensors[b->to].info.nbytes;
        p->totals.meets += ckpt__side_of_bond(p, i, true) ? 0 : ckpt__bond_rows(p, i, true);
    }
    free(seen);
    return CKPT_OK;
}

/* What is read must be there: a file that was cut short may have lost it. */
static ckpt_status check_extents(const ckpt__plan *p, ckpt_error *err)
{
    bool any = false;
    for (size_t i = 0; !any && i < p->want.from->storage_count; i++)
        any = p->want.from->storages[i].extent.missing;
    if (!any)
        return CKPT_OK;
    for (size_t i = 0; i < p->want.bond_count; i++)
        for (size_t r = 0; r < ckpt__bond_rows(p, i, false); r++) {
            const ckpt__bond *b = &p->want.bonds[i];
            ckpt__span_of s = ckpt__row_span(p, false, i, r);
            const ckpt__storage *storage = &p->want.from->storages[s.storage];
            const ckpt__extent *e = &storage->extent;
            bool lost = e->missing && (e->coding != CKPT__STORED || s.end > e->length);
            if (lost && s.end > s.begin)
                return ckpt__fail(
                    err, CKPT_E_DAMAGED,
                    b->flags & CKPT__BOND_STORAGE ? storage->name.data : p->want.from->tensors[b->from].info.name.data,
                    "bytes %llu to %llu of %s are asked for, and the file has %llu", (unsigned long long)s.begin,
                    (unsigned long long)s.end, storage->name.data ? storage->name.data : "its storage",
                    (unsigned long long)e->length);
        }
    return CKPT_OK;
}

ckpt_status ckpt__plan_new(const ckpt__plan_want *want, ckpt__plan **out, ckpt_error *err)
{
    ckpt__plan *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return ckpt__fail_memory(err, "plan", sizeof *p);
    p->want = *want;
    ckpt_status status = want->bond_count < UINT32_MAX
                             ? check_bonds(p, err)
                             : ckpt__fail(err, CKPT_E_LIMIT, "plan", "%zu bonds are too many", want->bond_count);
    if (status == CKPT_OK)
        status = ckpt__plan_make_sides(p, err);
    if (status == CKPT_OK)
        status = check_extents(p, err);
    if (status == CKPT_OK)
        status = ckpt__plan_make_units(p, true, err);
    if (status == CKPT_OK)
        status = ckpt__plan_check_storages(p, err);
    if (status == CKPT_OK && want->push)
        status = ckpt__plan_make_units(p, false, err);
    if (status == CKPT_OK)
        status = add_up(p, err);
    if (status < 0) {
        ckpt__plan_free(p);
        return status;
    }
    *out = p;
    return CKPT_OK;
}

uint64_t ckpt__plan_memory(const ckpt__plan *p)
{
    return (p->out.count + p->in.count) * sizeof(ckpt__unit);
}

void ckpt__plan_free(ckpt__plan *p)
{
    if (!p)
        return;
    ckpt__plan_free_sides(p);
    ckpt__units_free(&p->out);
    ckpt__units_free(&p->in);
    free(p->alias);
    ckpt__arena_free(p->arena);
    free(p);
}

void ckpt__plan_totals_of(const ckpt__plan *p, ckpt__plan_totals *out)
{
    *out = p->totals;
}

const ckpt__index *ckpt__plan_source_index(const ckpt__plan *p)
{
    return p->want.from;
}

const ckpt__index *ckpt__plan_target_index(const ckpt__plan *p)
{
    return p->want.to;
}

size_t ckpt__plan_bond_count(const ckpt__plan *p)
{
    return p->want.bond_count;
}

const ckpt__bond *ckpt__plan_bond(const ckpt__plan *p, size_t bond)
{
    return &p->want.bonds[bond];
}

const ckpt__op *ckpt__plan_op_of(const ckpt__plan *p, uint16_t op)
{
    return ckpt__plan_op(p, op);
}

/* Can each piece be read from any element on, in C order? */
static bool are_ranges(const ckpt__index *x, const ckpt__tensor *t)
{
    int64_t begin, count;
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        const ckpt__view v = ckpt__view_of(x, t, i);
        const ckpt__extent *e = ckpt__extent_known(x, v.storage);
        if (v.strides || ckpt__is_coded(e) || e->coding == CKPT__TURNED || e->coding == CKPT__MADE ||
            (!v.flat && !ckpt__box_range(t->info.ndim, t->info.shape, v.lo, v.size, &begin, &count)))
            return false;
    }
    return true;
}

bool ckpt__plan_is_straight(const ckpt__plan *p, size_t bond)
{
    const ckpt__bond *its = &p->want.bonds[bond];
    const ckpt__tensor *from = &p->want.from->tensors[its->from], *to = &p->want.to->tensors[its->to];
    const ckpt_tensor_info *a = &from->info, *b = &to->info;
    if (!to->whole)
        return false;
    const bool in_order = ckpt__is_c_order(b->shape, b->strides, b->ndim);
    if (!from->whole)
        return in_order && ckpt__is_split(from) && are_ranges(p->want.from, from);
    if (in_order && ckpt__is_c_order(a->shape, a->strides, a->ndim))
        return true;
    for (uint32_t i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->strides[i] != b->strides[i])
            return false;
    return ckpt__is_dense(a->shape, a->strides, a->ndim);
}

const char *ckpt__plan_name_of(const ckpt__plan *p, uint32_t bond)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    const ckpt__index *x = p->want.from;
    ckpt_str name = b->flags & CKPT__BOND_STORAGE ? x->storages[b->from].name : x->tensors[b->from].info.name;
    return name.data ? name.data : "a storage";
}
