/* engine/plan_check.c - the proof over bytes: of each target storage each byte is written once, and by whom. */
#include <stdlib.h>
#include "engine/plan_priv.h"

enum { CHUNK = 64 << 20 }; /* bytes of a map with a bit a byte: 512 MiB of a storage at a time */
static const uint64_t most_runs = 1000000000;

/* Where the bytes of one unit lie, merged: run by run. */
typedef struct place {
    ckpt__copy_box box; /* both strides are the target's */
    uint64_t at, end;   /* bytes of the storage: first, and past the last */
    uint64_t unit;      /* bytes of an element */
    uint64_t bytes;     /* written */
} place;

static void place_of(const ckpt__plan *p, ckpt__unit u, place *out)
{
    const ckpt__bond *b = u.bond == UINT32_MAX ? NULL : &p->want.bonds[u.bond];
    const ckpt__op *op = b && !(b->flags & CKPT__BOND_STORAGE) ? ckpt__plan_op(p, b->op) : NULL;
    const ckpt__side *side = op ? ckpt__side_of_bond(p, u.bond, true) : NULL;
    ckpt__copy_box_init(&out->box);
    out->at = u.begin;
    out->end = u.end;
    out->unit = 1;
    if (op && op->granule == 1) {
        const ckpt_tensor_info *t = &p->want.to->tensors[b->to].info;
        ckpt__lie lie = {.size = t->shape, .n = t->ndim};
        const int64_t *strides = t->strides;
        out->unit = op->to_size;
        if (side) {
            ckpt__side_row(side, u.row, &lie);
            strides = lie.strides;
        }
        for (uint32_t i = 0; i < lie.n; i++)
            ckpt__copy_box_add(&out->box, (uint64_t)lie.size[i], (uint64_t)strides[i] * out->unit,
                               (uint64_t)strides[i] * out->unit);
    } else
        ckpt__copy_box_add(&out->box, u.end - u.begin, 1, 1); /* of a dtype below a byte: always in C order */
    out->bytes = out->unit;
    for (uint32_t i = 0; i < out->box.n; i++)
        out->bytes *= out->box.size[i];
}

/* Does the unit write each byte from its first to its last? Most do. */
static bool is_run(const ckpt__plan *p, ckpt__unit u)
{
    if (u.bond == UINT32_MAX || p->want.bonds[u.bond].flags & CKPT__BOND_STORAGE)
        return true;
    const ckpt_tensor_info *t = &p->want.to->tensors[p->want.bonds[u.bond].to].info;
    return !ckpt__side_of_bond(p, u.bond, true) && ckpt__is_c_order(t->shape, t->strides, t->ndim);
}

/* Can no element lie on another one, by the strides alone? Each is at least what those below it span. */
static bool nests(const place *x)
{
    uint64_t reach = x->unit, below = 0;
    for (uint32_t done = 0; done < x->box.n; done++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < x->box.n; i++)
            if (x->box.to_stride[i] > below && (next == UINT32_MAX || x->box.to_stride[i] < x->box.to_stride[next]))
                next = i;
        if (next == UINT32_MAX || x->box.to_stride[next] < reach)
            return false; /* a stride of 0, or one that is there twice, too */
        below = x->box.to_stride[next];
        reach += (x->box.size[next] - 1) * below;
    }
    return true;
}

/* ---- ties: two bonds that write the same bytes, alike */

/* May two elements of one place be of two ops? What is done to the bytes is the same. */
static bool same_op(const ckpt__plan *p, uint16_t a, uint16_t b)
{
    const ckpt__op *x = ckpt__plan_op(p, a), *y = ckpt__plan_op(p, b);
    if (a == b)
        return true;
    return x->from == x->to && y->from == y->to && !x->flips && !y->flips && !x->negate && !y->negate &&
           x->from_swap == y->from_swap && x->to_swap == y->to_swap;
}

/* Side by side, on both sides: byte i of the one becomes byte i of the other. */
static bool is_linear(const ckpt__plan *p, size_t bond, uint32_t *storage, uint64_t *from_at, uint64_t *to_at)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    *from_at = *to_at = 0;
    *storage = b->from;
    if (b->flags & CKPT__BOND_STORAGE)
        return true;
    const ckpt__tensor *from = &p->want.from->tensors[b->from], *to = &p->want.to->tensors[b->to];
    if (!from->whole || !to->whole || from->info.dtype != to->info.dtype ||
        !ckpt__is_c_order(from->info.shape, from->info.strides, from->info.ndim) ||
        !ckpt__is_c_order(to->info.shape, to->info.strides, to->info.ndim))
        return false;
    ckpt__view v = ckpt__view_of(p->want.from, from, 0), w = ckpt__view_of(p->want.to, to, 0);
    *storage = v.storage;
    *from_at = v.at;
    *to_at = w.at;
    return true;
}

/* Does bond b write, into bytes that bond a writes too, what a writes there? */
static bool agrees(const ckpt__plan *p, size_t a, size_t b)
{
    const ckpt__bond *x = &p->want.bonds[a], *y = &p->want.bonds[b];
    if (!same_op(p, x->op, y->op) || y->flags & CKPT__BOND_STORAGE)
        return false;
    const ckpt__tensor *from = &p->want.from->tensors[y->from], *to = &p->want.to->tensors[y->to];
    uint32_t storage, n = to->info.ndim;
    uint64_t from_at, to_at;
    if (!to->whole)
        return false;
    ckpt__view w = ckpt__view_of(p->want.to, to, 0);
    if (!(x->flags & CKPT__BOND_STORAGE)) { /* the same view of the same tensor, or of one that is its twin */
        const ckpt__tensor *was = &p->want.from->tensors[x->from], *there = &p->want.to->tensors[x->to];
        bool same_view = there->whole && there->info.dtype == to->info.dtype && there->info.offset == to->info.offset &&
                         ckpt__same_shape(there->info.shape, there->info.ndim, to->info.shape, n) &&
                         ckpt__same_shape(there->info.strides, there->info.ndim, to->info.strides, n);
        bool twins = x->from == y->from ||
                     (was->whole && from->whole && was->storage == from->storage &&
                      was->info.offset == from->info.offset && was->info.dtype == from->info.dtype &&
                      ckpt__same_shape(was->info.strides, was->info.ndim, from->info.strides, from->info.ndim));
        if (same_view && twins)
            return true;
    }
    if (!from->whole || from->info.dtype != to->info.dtype || !is_linear(p, a, &storage, &from_at, &to_at))
        return false;
    ckpt__view v = ckpt__view_of(p->want.from, from, 0);
    return v.storage == storage && v.at - from_at == w.at - to_at &&
           ckpt__same_shape(from->info.strides, n, to->info.strides, n);
}

static const char *name_of(const ckpt__plan *p, ckpt__unit u)
{
    if (u.bond == UINT32_MAX)
        return "padding";
    const ckpt__bond *b = &p->want.bonds[u.bond];
    ckpt_str name =
        b->flags & CKPT__BOND_STORAGE ? p->want.to->storages[b->to].name : p->want.to->tensors[b->to].info.name;
    return name.data ? name.data : "a storage";
}

static bool set_alias(ckpt__plan *p, size_t bond)
{
    if (!p->alias && !(p->alias = calloc(p->want.bond_count / 8 + 1, 1)))
        return false;
    p->alias[bond / 8] |= (unsigned char)(1u << (bond % 8));
    return true;
}

/* Units that write nothing new: behind one that begins where they do, or before, and ends behind them. */
static ckpt_status find_aliases(ckpt__plan *p, const ckpt__unit *units, size_t count, bool *any, ckpt_error *err)
{
    size_t longest = 0, before = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        ckpt__unit s = units[i];
        bool inside = i && s.end <= end && units[i].bond != UINT32_MAX, alias = false;
        if (inside && units[longest].bond != UINT32_MAX)
            alias = agrees(p, units[longest].bond, units[i].bond);
        if (inside && !alias && before != longest && units[before].bond != UINT32_MAX && s.end <= units[before].end)
            alias = agrees(p, units[before].bond, units[i].bond);
        if (alias && !set_alias(p, units[i].bond))
            return ckpt__fail_memory(err, "plan", p->want.bond_count / 8);
        *any |= alias;
        if (alias)
            continue;
        before = i;
        if (i == 0 || s.end > end) {
            longest = i;
            end = s.end;
        }
    }
    return CKPT_OK;
}

/* ---- bytes, one by one */

typedef struct marker {
    const ckpt__plan *plan;
    const place *place; /* of the unit that is marked */
    unsigned char *bits;
    uint64_t begin, end; /* of the storage: the bytes that the map has */
    uint64_t hit;        /* a byte that is written twice; UINT64_MAX: none */
    uint64_t runs;       /* so far, of all chunks */
} marker;

static void mark_run(marker *m, uint64_t from, uint64_t to)
{
    for (uint64_t i = (from > m->begin ? from : m->begin); i < to && i < m->end && m->hit == UINT64_MAX; i++) {
        uint64_t k = i - m->begin;
        if (k % 8 == 0 && i + 8 <= to && i + 8 <= m->end && m->bits[k / 8] == 0) {
            m->bits[k / 8] = 0xff;
            i += 7;
            continue;
        }
        if (m->bits[k / 8] >> (k % 8) & 1)
            m->hit = i;
        m->bits[k / 8] |= (unsigned char)(1u << (k % 8));
    }
}

static ckpt_status mark_box(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    marker *m = ctx;
    const place *x = m->place;
    int64_t index[CKPT__COPY_DIMS] = {0};
    uint32_t n = x->box.n, outer = n;
    uint64_t run = x->unit, at = x->at;
    for (uint32_t i = 0; i < n; i++)
        at += (uint64_t)lo[i] * x->box.to_stride[i];
    if (n && x->box.to_stride[n - 1] == x->unit) {
        outer = n - 1;
        run = (uint64_t)size[n - 1] * x->unit;
    }
    for (;;) {
        mark_run(m, at, at + run);
        if (++m->runs > most_runs)
            return ckpt__fail(err, CKPT_E_LIMIT, "plan", "its views interleave in more than %llu places",
                              (unsigned long long)most_runs);
        uint32_t i = outer;
        while (i-- > 0) {
            at += x->box.to_stride[i];
            if (++index[i] < size[i])
                break;
            at -= x->box.to_stride[i] * (uint64_t)size[i];
            index[i] = 0;
        }
        if (i == UINT32_MAX || m->hit != UINT64_MAX)
            return CKPT_OK;
    }
}

/* Marks the units that interleave, a chunk of the storage at a time. */
static ckpt_status mark_all(const ckpt__plan *p, const ckpt__unit *units, size_t count, uint64_t begin, uint64_t end,
                            ckpt_error *err)
{
    uint64_t step = (uint64_t)CHUNK * 8, most = end - begin < step ? end - begin : step;
    marker m = {.plan = p, .bits = malloc((size_t)(most / 8 + 1)), .hit = UINT64_MAX};
    ckpt_status status = m.bits ? CKPT_OK : ckpt__fail_memory(err, "plan", most / 8);
    for (uint64_t at = begin; status == CKPT_OK && at < end; at += step) {
        m.begin = at;
        m.end = end - at < step ? end : at + step;
        memset(m.bits, 0, (size_t)(most / 8 + 1));
        for (size_t i = 0; status == CKPT_OK && i < count; i++) {
            place x;
            place_of(p, units[i], &x);
            m.place = &x;
            if (x.end <= m.begin || x.at >= m.end)
                continue;
            status = ckpt__box_cut_bytes(x.box.n, (const int64_t *)x.box.size, x.box.to_stride, x.unit,
                                         m.begin > x.at ? m.begin - x.at : 0, m.end - x.at, mark_box, &m, err);
            if (status == CKPT_OK && m.hit != UINT64_MAX)
                status =
                    ckpt__fail(err, CKPT_E_MISMATCH, name_of(p, units[i]),
                               count > 1 ? "byte %llu of its storage is written twice: it shares memory with another "
                                           "tensor, and is made of other values"
                                         : "byte %llu of its storage is written twice: its own elements share memory",
                               (unsigned long long)m.hit);
        }
    }
    free(m.bits);
    return status;
}

/* ---- a storage */

static ckpt_status gap(const ckpt__plan *p, size_t storage, uint64_t bytes, uint64_t begin, uint64_t end,
                       ckpt_error *err)
{
    const ckpt__storage *s = &p->want.to->storages[storage];
    return ckpt__fail(err, CKPT_E_MISMATCH, s->name.data ? s->name.data : "a storage of the target",
                      "%llu of its bytes %llu to %llu are written by nothing", (unsigned long long)bytes,
                      (unsigned long long)begin, (unsigned long long)end);
}

/* Units that overlap each other's range, in a chain: [begin, end) of the storage. */
static ckpt_status check_cluster(const ckpt__plan *p, size_t storage, const ckpt__unit *units, size_t count,
                                 uint64_t begin, uint64_t end, ckpt_error *err)
{
    uint64_t bytes = 0;
    bool apart = count == 1;
    if (apart && is_run(p, units[0]))
        return CKPT_OK;
    for (size_t i = 0; i < count; i++) {
        place x;
        place_of(p, units[i], &x);
        bytes += x.bytes;
        apart = apart && nests(&x);
    }
    ckpt_status status = apart ? CKPT_OK : mark_all(p, units, count, begin, end, err);
    if (status == CKPT_OK && p->want.whole && bytes != end - begin)
        return gap(p, storage, end - begin - bytes, begin, end, err);
    return status;
}

static ckpt_status check_storage(const ckpt__plan *p, size_t storage, ckpt_error *err)
{
    const ckpt__units *u = &p->out;
    uint64_t begin = 0, end = 0, size = p->want.to->storages[storage].extent.size;
    size_t first = u->first[storage], last = u->first[storage + 1];
    ckpt_status status = CKPT_OK;
    for (size_t i = first; status == CKPT_OK && i < last; i++) {
        ckpt__unit s = u->items[i];
        if (s.begin < end) {
            end = s.end > end ? s.end : end;
            continue;
        }
        if (i > first)
            status = check_cluster(p, storage, u->items + first, i - first, begin, end, err);
        if (status == CKPT_OK && p->want.whole && s.begin > end)
            status = gap(p, storage, s.begin - end, end, s.begin, err);
        first = i;
        begin = s.begin;
        end = s.end;
    }
    if (status == CKPT_OK && first < last)
        status = check_cluster(p, storage, u->items + first, last - first, begin, end, err);
    if (status == CKPT_OK && p->want.whole && end < size)
        status = gap(p, storage, size - end, end, size, err);
    return status;
}

ckpt_status ckpt__plan_check_storages(ckpt__plan *p, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    bool any = false;
    for (size_t i = 0; status == CKPT_OK && i < p->want.to->storage_count; i++)
        if (p->out.first[i + 1] - p->out.first[i] > 1)
            status = find_aliases(p, p->out.items + p->out.first[i], p->out.first[i + 1] - p->out.first[i], &any, err);
    if (status == CKPT_OK && any)
        status = ckpt__plan_make_units(p, true, err); /* without them */
    for (size_t i = 0; status == CKPT_OK && i < p->want.to->storage_count; i++)
        status = check_storage(p, i, err);
    return status;
}
