/* engine/plan_cases.h - random tensors in random pieces on two sides, and what is to come out: by a loop that knows the formula of a
 * piece alone. Each source byte is an id, gaps are 0xa5, and what nobody may touch of the target is 0x5a. */
#ifndef PLAN_CASES_H
#define PLAN_CASES_H
#include <stdio.h>
#include <stdlib.h>
#include "engine/plan.h"
#include "../random.h"
#include "../runner.h"

enum { DIMS = 5, ROOM = 1 << 16, STORAGES = 6, TENSORS = 3, PIECES = 2000 };

static uint64_t draw(uint64_t n)
{
    const uint64_t bits = random_bits();
    return n ? bits % n : 0;
}

static bool chance(unsigned percent)
{
    return draw(100) < percent;
}

/* ---- a side: an index over byte arrays */

typedef struct side {
    ckpt__index *index;
    unsigned char bytes[STORAGES][ROOM];
    size_t used[STORAGES]; /* pieces are put behind each other */
} side;

/* A piece as it was drawn: what the loop knows. */
typedef struct drawn {
    uint32_t ndim;
    int64_t box[3 * DIMS]; /* as in ckpt__piece; STRIDED unless FLAT */
    uint32_t storage;
    uint64_t at;
    uint8_t flags;
} drawn;

typedef struct cut {
    drawn pieces[PIECES];
    size_t count;
    bool whole; /* one view, no pieces */
} cut;

static bool is_flat(const drawn *d)
{
    return d->flags & CKPT__PIECE_FLAT;
}

static ckpt_error err;
static side *source, *target;
static bool swaps; /* the source is big-endian, in units of two bytes */

static void new_side(side *s, unsigned char fill)
{
    s->index = ckpt__index_new(0);
    memset(s->bytes, fill, sizeof s->bytes);
    memset(s->used, 0, sizeof s->used);
    for (int i = 0; i < STORAGES; i++) {
        ckpt__storage *x = ckpt__index_add_storage(s->index);
        x->extent.size = x->extent.length = ROOM;
        x->extent.file = (uint32_t)draw(3);
        x->extent.offset = draw(1000) * ROOM;
    }
}

/* ---- cutting a tensor */

static void add_box(cut *c, uint32_t n, const int64_t *lo, const int64_t *size)
{
    if (c->count == PIECES)
        ck_abort_msg("too many pieces");
    drawn *d = &c->pieces[c->count++];
    memset(d, 0, sizeof *d);
    d->ndim = n;
    memcpy(d->box, lo, n * sizeof *lo);
    memcpy(d->box + n, size, n * sizeof *size);
    d->flags = CKPT__PIECE_STRIDED;
}

/* Cuts the box in two again and again: any arrangement that straight cuts through what is left give. */
static void guillotine(cut *c, uint32_t n, const int64_t *lo, const int64_t *size, unsigned depth)
{
    uint32_t d = n ? (uint32_t)draw(n) : 0;
    if (n == 0 || depth == 0 || size[d] < 2 || chance(20)) {
        add_box(c, n, lo, size);
        return;
    }
    int64_t at = 1 + (int64_t)draw((uint64_t)size[d] - 1), l[DIMS], s[DIMS];
    memcpy(l, lo, sizeof l);
    memcpy(s, size, sizeof s);
    s[d] = at;
    guillotine(c, n, l, s, depth - 1);
    l[d] += at;
    s[d] = size[d] - at;
    guillotine(c, n, l, s, depth - 1);
}

static void grid(cut *c, uint32_t n, const int64_t *shape)
{
    int64_t lo[DIMS] = {0}, size[DIMS] = {0}, step[DIMS];
    for (uint32_t i = 0; i < n; i++)
        step[i] = 1 + (int64_t)draw((uint64_t)shape[i] + 1);
    for (;;) {
        for (uint32_t i = 0; i < n; i++)
            size[i] = shape[i] - lo[i] < step[i] ? shape[i] - lo[i] : step[i];
        add_box(c, n, lo, size);
        uint32_t i = n;
        while (i-- > 0) {
            if ((lo[i] += step[i]) < shape[i])
                break;
            lo[i] = 0;
        }
        if (i == UINT32_MAX)
            return;
    }
}

static void ranges(cut *c, uint32_t n, uint64_t numel)
{
    for (uint64_t at = 0; at < numel || c->count == 0;) {
        uint64_t count = draw(numel - at + 1) / (1 + draw(3));
        drawn *d = &c->pieces[c->count++];
        memset(d, 0, sizeof *d);
        d->ndim = n;
        d->box[0] = (int64_t)at;
        d->box[1] = (int64_t)count;
        d->flags = CKPT__PIECE_FLAT;
        at += count;
        if (numel == 0 || c->count == 40) {
            d->box[1] = (int64_t)(numel - (uint64_t)d->box[0]);
            return;
        }
    }
}

static uint64_t numel_of(uint32_t n, const int64_t *shape)
{
    uint64_t numel = 1;
    for (uint32_t i = 0; i < n; i++)
        numel *= (uint64_t)shape[i];
    return numel;
}

static void cut_tensor(cut *c, uint32_t n, const int64_t *shape)
{
    static const int64_t zero[DIMS];
    c->count = 0;
    c->whole = false;
    switch (draw(5)) {
    case 0:
        c->whole = true;
        add_box(c, n, zero, shape);
        break;
    case 1:
        ranges(c, n, numel_of(n, shape));
        break;
    case 2:
        if (numel_of(n, shape))
            grid(c, n, shape);
        break;
    case 3: /* the shards of dimension 0 */
        for (int64_t at = 0, size = 0; n > 0 && at < shape[0]; at += size) {
            int64_t lo[DIMS] = {at}, sizes[DIMS];
            size = 1 + (int64_t)draw((uint64_t)(shape[0] - at));
            memcpy(sizes, shape, sizeof sizes);
            sizes[0] = size;
            add_box(c, n, lo, sizes);
        }
        if (n == 0)
            add_box(c, n, zero, shape);
        break;
    default:
        guillotine(c, n, zero, shape, 5);
    }
    for (size_t i = c->count; i-- > 1;) { /* in any order */
        size_t k = draw(i + 1);
        drawn d = c->pieces[i];
        c->pieces[i] = c->pieces[k];
        c->pieces[k] = d;
    }
}

/* Strides of a piece: its dimensions in any order, with padding. Returns how many elements it reaches. */
static uint64_t stride_piece(drawn *d, bool c_order)
{
    uint32_t n = d->ndim, order[DIMS];
    if (d->flags & CKPT__PIECE_FLAT)
        return (uint64_t)d->box[1];
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; !c_order && i-- > 1;) {
        uint32_t k = (uint32_t)draw(i + 1), o = order[i];
        order[i] = order[k];
        order[k] = o;
    }
    int64_t stride = 1;
    uint64_t reach = 1;
    for (uint32_t i = n; i-- > 0;) {
        int64_t size = d->box[n + order[i]];
        if (!c_order && chance(20))
            stride += (int64_t)draw(3);
        d->box[2 * n + order[i]] = stride;
        reach += size ? (uint64_t)(size - 1) * (uint64_t)stride : 0;
        stride *= size ? size : 1;
    }
    return numel_of(n, d->box + n) ? reach : 0;
}

/* Shards of one allocation: each piece is a view of a buffer that has the shape of the tensor, and they interleave there. */
static bool place_together(side *s, cut *c, unsigned bytes, uint32_t n, const int64_t *shape)
{
    uint32_t storage = (uint32_t)draw(STORAGES);
    drawn all = {.ndim = n, .flags = CKPT__PIECE_STRIDED};
    for (size_t i = 0; i < c->count; i++)
        if (is_flat(&c->pieces[i]))
            return false;
    memcpy(all.box + n, shape, n * sizeof *shape);
    uint64_t reach = stride_piece(&all, chance(50)) * bytes, base = (s->used[storage] + bytes - 1) / bytes * bytes;
    for (size_t i = 0; i < c->count; i++) {
        drawn *d = &c->pieces[i];
        d->storage = storage;
        d->at = base;
        memcpy(d->box + 2 * n, all.box + 2 * n, n * sizeof *shape);
        for (uint32_t k = 0; k < n; k++)
            d->at += (uint64_t)d->box[k] * (uint64_t)d->box[2 * n + k] * bytes;
    }
    if (base + reach > ROOM)
        ck_abort_msg("the storages are too small");
    s->used[storage] = base + reach;
    return true;
}

/* Puts every piece somewhere. */
static void place(side *s, cut *c, unsigned bytes, uint32_t n, const int64_t *shape)
{
    bool ordered = chance(30);
    if (chance(20) && numel_of(n, shape) && place_together(s, c, bytes, n, shape))
        return;
    for (size_t i = 0; i < c->count; i++) {
        drawn *d = &c->pieces[i];
        bool c_order = ordered || chance(30);
        uint64_t reach = stride_piece(d, c_order) * bytes;
        if (c_order && !c->whole && chance(70)) /* the strides need not be said */
            d->flags &= (uint8_t)~CKPT__PIECE_STRIDED;
        d->storage = (uint32_t)draw(STORAGES);
        d->at = s->used[d->storage] + (chance(30) ? draw(9) : 0);
        if (c->whole) /* a whole tensor's offset counts elements */
            d->at = (d->at + bytes - 1) / bytes * bytes;
        if (d->at + reach > ROOM)
            ck_abort_msg("the storages are too small");
        s->used[d->storage] = d->at + reach;
    }
}

static ckpt_status add_tensor(side *s, const char *name, ckpt_dtype dtype, uint32_t n, const int64_t *shape,
                              const cut *c)
{
    ckpt__tensor *t = ckpt__index_add_tensor(s->index);
    ckpt__piece pieces[PIECES];
    t->info.name = ckpt__s(name);
    t->info.dtype = dtype;
    t->info.ndim = n;
    if (c->whole) {
        const drawn *d = &c->pieces[0];
        return ckpt__index_set_view(s->index, s->index->tensor_count - 1, d->storage, shape, d->box + 2 * n,
                                    (int64_t)(d->at / ckpt_dtype_size(dtype)), &err);
    }
    for (size_t i = 0; i < c->count; i++) {
        const drawn *d = &c->pieces[i];
        pieces[i] = (ckpt__piece){.box = d->box, .at = d->at, .storage = d->storage, .flags = d->flags};
    }
    return ckpt__index_set_pieces(s->index, s->index->tensor_count - 1, shape, pieces, c->count, &err);
}

/* ---- the loop that knows the formula */

/* Does the piece have the element? Then where, in bytes. */
static bool find(const drawn *d, const int64_t *index, const int64_t *shape, unsigned bytes, uint64_t *at)
{
    uint64_t flat = 0, element = 0;
    for (uint32_t i = 0; i < d->ndim; i++)
        flat = flat * (uint64_t)shape[i] + (uint64_t)index[i];
    if (is_flat(d)) {
        if ((int64_t)flat < d->box[0] || (int64_t)flat >= d->box[0] + d->box[1])
            return false;
        *at = d->at + (flat - (uint64_t)d->box[0]) * bytes;
        return true;
    }
    int64_t c_order = 1; /* where the piece does not say its strides */
    for (uint32_t i = d->ndim; i-- > 0;) {
        int64_t k = index[i] - d->box[i], size = d->box[d->ndim + i];
        if (k < 0 || k >= size)
            return false;
        element += (uint64_t)k * (uint64_t)(d->flags & CKPT__PIECE_STRIDED ? d->box[2 * d->ndim + i] : c_order);
        c_order *= size;
    }
    *at = d->at + element * bytes;
    return true;
}

/* The same box, element for element: then it is no second source, where both are declared replicas. */
static bool same_box(const drawn *a, const drawn *b)
{
    return a->flags == b->flags && memcmp(a->box, b->box, (is_flat(a) ? 2 : 2 * a->ndim) * sizeof *a->box) == 0;
}

static bool next_index(int64_t *index, uint32_t n, const int64_t *shape)
{
    for (uint32_t i = n; i-- > 0;) {
        if (++index[i] < shape[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static void fill_source(const cut *c, unsigned tensor, uint32_t n, const int64_t *shape, unsigned bytes)
{
    int64_t index[DIMS] = {0};
    uint64_t id = 0, at;
    if (numel_of(n, shape) == 0)
        return;
    do {
        uint64_t value = (id++ + 1 + tensor * UINT64_C(1000003)) * UINT64_C(0x9e3779b97f4a7c15);
        for (size_t i = 0; i < c->count; i++)
            if (find(&c->pieces[i], index, shape, bytes, &at))
                memcpy(source->bytes[c->pieces[i].storage] + at, &value, bytes < 8 ? bytes : 8);
    } while (next_index(index, n, shape));
}

/* One tensor: cut on both sides. */
typedef struct made {
    ckpt_dtype dtype, to_dtype;
    unsigned bytes, to_bytes;
    uint32_t n;
    int64_t shape[DIMS];
    cut from, to;
} made;

/* What is to come out, of all tensors. */
typedef struct expected {
    unsigned char bytes[STORAGES][ROOM];
    unsigned char writers[STORAGES][ROOM], readers[STORAGES][ROOM]; /* 1: the byte is written, is read */
    bool refuses;                                                   /* the plan must, too */
} expected;

static void add_expected(expected *e, const made *m)
{
    const cut *from = &m->from, *to = &m->to;
    const int64_t *shape = m->shape;
    uint32_t n = m->n;
    int64_t index[DIMS] = {0};
    bool asks = false; /* of a tensor of which a target holds nothing the source may be anything */
    for (size_t i = 0; i < to->count; i++)
        asks |= is_flat(&to->pieces[i]) ? to->pieces[i].box[1] > 0 : numel_of(n, to->pieces[i].box + n) > 0;
    if (numel_of(n, shape) == 0 || !asks)
        return;
    do {
        uint64_t at = 0, first = 0, there;
        const drawn *has = NULL;
        bool twice = false;
        for (size_t i = 0; i < from->count; i++)
            if (find(&from->pieces[i], index, shape, m->bytes, &at)) {
                const drawn *d = &from->pieces[i];
                if (has && !(d->flags & has->flags & CKPT__PIECE_REPLICA && same_box(d, has)))
                    twice = true;
                if (!has) {
                    has = d;
                    first = at;
                }
            }
        e->refuses |= twice;
        for (size_t i = 0; i < to->count; i++)
            if (find(&to->pieces[i], index, shape, m->to_bytes, &there)) {
                const drawn *d = &to->pieces[i];
                e->refuses |= !has;
                if (there + m->to_bytes > ROOM || !has)
                    continue;
                unsigned char element[8], other[8];
                for (unsigned k = 0; k < m->bytes; k++) {
                    element[k] = source->bytes[has->storage][first + (swaps ? m->bytes - 1 - k : k)];
                    e->readers[has->storage][first + k] = 1;
                }
                ckpt__convert(m->dtype, element, m->to_dtype, other, 1, NULL);
                for (unsigned k = 0; k < m->to_bytes; k++) {
                    unsigned char *w = &e->writers[d->storage][there + k];
                    e->refuses |= *w > 0;
                    *w = 1;
                    e->bytes[d->storage][there + k] = m->dtype == m->to_dtype ? element[k] : other[k];
                }
            }
    } while (next_index(index, n, shape));
}

static void make(made *m, unsigned number)
{
    static const ckpt_dtype dtypes[] = {CKPT_U8, CKPT_I16, CKPT_F32, CKPT_F64},
                            casts[] = {CKPT_F64, CKPT_BF16, CKPT_I64, CKPT_F32};
    m->dtype = swaps ? CKPT_I16 : dtypes[draw(4)]; /* a storage is swapped in one way */
    m->to_dtype = swaps || chance(70) ? m->dtype : casts[draw(4)];
    m->bytes = (unsigned)ckpt_dtype_size(m->dtype);
    m->to_bytes = (unsigned)ckpt_dtype_size(m->to_dtype);
    m->n = (uint32_t)draw(DIMS + 1);
    for (uint32_t i = 0; i < m->n; i++)
        m->shape[i] = chance(6) ? 0 : 1 + (int64_t)draw(m->n > 3 ? 4 : 6);
    cut_tensor(&m->from, m->n, m->shape);
    cut_tensor(&m->to, m->n, m->shape);
    place(source, &m->from, m->bytes, m->n, m->shape);
    place(target, &m->to, m->to_bytes, m->n, m->shape);
    if (!m->to.whole && m->to.count && chance(20)) /* a target need not have all */
        m->to.count -= draw(m->to.count);
    fill_source(&m->from, number, m->n, m->shape, m->bytes);
}

/* New sides, and the tensors of one case on them. Returns how many. */
static size_t make_case(uint64_t seed, made *tensors, expected *want)
{
    random_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    draw(1);
    new_side(source, 0xa5);
    new_side(target, 0x5a);
    memset(want, 0, sizeof *want);
    memset(want->bytes, 0x5a, sizeof want->bytes);
    swaps = chance(20);
    for (size_t i = 0; i < STORAGES && swaps; i++) {
        source->index->storages[i].extent.big_endian = true;
        source->index->storages[i].unit = 2;
    }
    size_t count = 1 + draw(TENSORS);
    for (unsigned i = 0; i < count; i++)
        make(&tensors[i], i);
    return count;
}

/* Puts the tensors into the indexes, with a bond and an op each. False: an index refused one. */
static bool add_case(made *tensors, size_t count, expected *want, ckpt__bond *bonds, ckpt__op *ops)
{
    static const char *const names[TENSORS] = {"t0", "t1", "t2"};
    for (unsigned i = 0; i < count; i++) {
        made *m = &tensors[i];
        if (add_tensor(source, names[i], m->dtype, m->n, m->shape, &m->from) < 0 ||
            add_tensor(target, names[i], m->to_dtype, m->n, m->shape, &m->to) < 0)
            return false;
        bonds[i] = (ckpt__bond){.to = i, .from = i, .op = (uint16_t)i};
        ckpt__op_want op = {.from = m->dtype, .to = m->to_dtype, .from_swap = swaps ? 2 : 0};
        ck_assert(ckpt__op_make(&op, "t", &ops[i], &err) == CKPT_OK);
        add_expected(want, m);
    }
    return true;
}
#endif
