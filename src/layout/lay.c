/* layout/lay.c - see lay.h. */
#include "layout/lay.h"

#include <stdlib.h>

/* A lay that is being made. Its pieces grow on the heap, and lie in the arena at the end. */
typedef struct making {
    ckpt__arena *a;
    ckpt__lay lay; /* shape and ndim are final */
    ckpt__lay_piece *pieces;
    size_t count, capacity;
    ckpt_status status;
    ckpt_error *err;
} making;

static void no_memory(making *m)
{
    m->status = ckpt__fail_memory(m->err, "the pieces of a layout", 0);
}

static making begin(ckpt__arena *a, const ckpt__lay *in, size_t ndim, ckpt_error *err)
{
    making m = {.a = a, .lay = {.unit = in->unit}, .err = err};
    if (ndim > CKPT__LAY_DIMS) {
        m.status = ckpt__fail(err, CKPT_E_LIMIT, NULL, "it has %zu dimensions on the way, and %d are taken", ndim,
                              (int)CKPT__LAY_DIMS);
        return m;
    }
    m.lay.ndim = (uint32_t)ndim;
    m.lay.shape = ckpt__arena_array(a, ndim + 1, sizeof *m.lay.shape);
    if (!m.lay.shape)
        no_memory(&m);
    return m;
}

/* A new piece with room for its numbers; NULL: the status says why. */
static ckpt__lay_piece *add(making *m, uint32_t storage, uint64_t at)
{
    const size_t n = m->lay.ndim;
    if (m->count == CKPT__LAY_PIECES) {
        m->status = ckpt__fail(m->err, CKPT_E_LIMIT, NULL,
                               "it would be made of more than %d pieces: give a coarser layout", (int)CKPT__LAY_PIECES);
        return NULL;
    }
    int64_t *numbers = ckpt__arena_array(m->a, 3 * n + 1, sizeof *numbers);
    if (!numbers || !ckpt__grow(&m->pieces, &m->capacity, m->count + 1, sizeof *m->pieces)) {
        no_memory(m);
        return NULL;
    }
    ckpt__lay_piece *p = &m->pieces[m->count++];
    *p = (ckpt__lay_piece){.lo = numbers, .size = numbers + n, .stride = numbers + 2 * n, .at = at, .storage = storage};
    return p;
}

static ckpt_status finish(making *m, ckpt__lay *out)
{
    uint64_t numel;
    if (m->status == CKPT_OK && !ckpt__numel(m->lay.shape, m->lay.ndim, &numel))
        m->status = ckpt__fail(m->err, CKPT_E_LIMIT, NULL, "the product of its shape overflows 64 bits");
    if (m->status == CKPT_OK) {
        m->lay.pieces = ckpt__arena_array(m->a, m->count + 1, sizeof *m->lay.pieces);
        m->lay.count = m->count;
        if (!m->lay.pieces)
            no_memory(m);
        else if (m->count)
            memcpy(m->lay.pieces, m->pieces, m->count * sizeof *m->pieces);
    }
    if (m->status == CKPT_OK)
        *out = m->lay;
    ckpt_status status = m->status;
    free(m->pieces);
    return status;
}

/* The numbers of dimensions [from, from + n) of one become those from `to` on of the other. */
static void copy_dims(ckpt__lay_piece *p, uint32_t to, const ckpt__lay_piece *q, uint32_t from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        p->lo[to + i] = q->lo[from + i];
        p->size[to + i] = q->size[from + i];
        p->stride[to + i] = q->stride[from + i];
    }
}

/* The same of all but `was` dimensions from `dim` on, in whose place p has `is`. */
static void copy_around(const making *m, ckpt__lay_piece *p, const ckpt__lay_piece *q, uint32_t dim, uint32_t was,
                        uint32_t is)
{
    copy_dims(p, 0, q, 0, dim);
    copy_dims(p, dim + is, q, dim + was, m->lay.ndim - dim - is);
}

static void shape_around(making *m, const ckpt__lay *in, uint32_t dim, uint32_t was, uint32_t is)
{
    for (uint32_t i = 0; m->status == CKPT_OK && i < dim; i++)
        m->lay.shape[i] = in->shape[i];
    for (uint32_t i = dim + is; m->status == CKPT_OK && i < m->lay.ndim; i++)
        m->lay.shape[i] = in->shape[i - is + was];
}

static uint64_t ahead(const making *m, const ckpt__lay_piece *p, uint32_t dim, int64_t by)
{
    return p->at + (uint64_t)by * (uint64_t)p->stride[dim] * m->lay.unit; /* inside of the view */
}

static ckpt_status check_dim(const ckpt__lay *in, uint32_t dim, size_t count, ckpt_error *err)
{
    if (dim < in->ndim && count <= in->ndim - dim)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_MISMATCH, NULL, "it has %u dimension%s, and dimension %zu is asked for", in->ndim,
                      in->ndim == 1 ? "" : "s", dim + (count ? count - 1 : 0));
}

ckpt_status ckpt__lay_permute(ckpt__arena *a, const ckpt__lay *in, const uint32_t *order, ckpt__lay *out,
                              ckpt_error *err)
{
    making m = begin(a, in, in->ndim, err);
    for (uint32_t d = 0; m.status == CKPT_OK && d < in->ndim; d++)
        m.lay.shape[d] = in->shape[order[d]];
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        const ckpt__lay_piece *q = &in->pieces[i];
        ckpt__lay_piece *p = add(&m, q->storage, q->at);
        for (uint32_t d = 0; p && d < in->ndim; d++)
            copy_dims(p, d, q, order[d], 1);
    }
    return finish(&m, out);
}

/* One dimension of size n x rest becomes two. An interval of it is a part of a row, whole rows, and a part of another. */
static ckpt_status split_two(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, int64_t n, int64_t rest, ckpt__lay *out,
                             ckpt_error *err)
{
    making m = begin(a, in, (size_t)in->ndim + 1, err);
    shape_around(&m, in, dim, 1, 2);
    if (m.status == CKPT_OK) {
        m.lay.shape[dim] = n;
        m.lay.shape[dim + 1] = rest;
    }
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        const ckpt__lay_piece *q = &in->pieces[i];
        const int64_t end = q->lo[dim] + q->size[dim];
        for (int64_t lo = q->lo[dim]; m.status == CKPT_OK && lo < end;) {
            const int64_t row = lo / rest, column = lo % rest;
            const bool whole = column == 0 && end - lo >= rest;
            const int64_t rows = whole ? (end - lo) / rest : 1;
            const int64_t columns = whole ? rest : end - lo < rest - column ? end - lo : rest - column;
            ckpt__lay_piece *p = add(&m, q->storage, ahead(&m, q, dim, lo - q->lo[dim]));
            if (!p)
                break;
            copy_around(&m, p, q, dim, 1, 2);
            p->lo[dim] = row;
            p->size[dim] = rows;
            p->stride[dim] = rows == 1 ? 0 : q->stride[dim] * rest;
            p->lo[dim + 1] = column;
            p->size[dim + 1] = columns;
            p->stride[dim + 1] = q->stride[dim];
            lo += rows * columns;
        }
    }
    return finish(&m, out);
}

ckpt_status ckpt__lay_split(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, const int64_t *sizes, size_t count,
                            ckpt__lay *out, ckpt_error *err)
{
    uint64_t numel = 0;
    char text[200];
    ckpt_status status = check_dim(in, dim, 1, err);
    if (status == CKPT_OK && count > CKPT__LAY_DIMS)
        status = ckpt__fail(err, CKPT_E_LIMIT, NULL, "more than %d sizes", (int)CKPT__LAY_DIMS);
    if (status == CKPT_OK &&
        (!ckpt__numel(sizes, (uint32_t)count, &numel) || numel > INT64_MAX || (int64_t)numel != in->shape[dim])) {
        ckpt__shape_text(text, sizeof text, sizes, (uint32_t)count);
        status = ckpt__fail(err, CKPT_E_MISMATCH, NULL, "dimension %u has size %lld, which is not that of %s", dim,
                            (long long)in->shape[dim], text);
    }
    ckpt__lay now = *in;
    for (size_t i = 0; status == CKPT_OK && i + 1 < count; i++) {
        int64_t rest = 1; /* where a size is 0, the product of those behind it */
        for (size_t k = i + 1; k < count; k++)
            if (__builtin_mul_overflow(rest, sizes[k], &rest))
                return ckpt__fail(err, CKPT_E_LIMIT, NULL, "the product of its shape overflows 64 bits");
        status = split_two(a, &now, dim + (uint32_t)i, sizes[i], rest, &now, err);
    }
    if (status == CKPT_OK)
        *out = now;
    return status;
}

/* Two dimensions become one. A piece that has all of the inner one, and whose rows follow each other, stays one. */
static ckpt_status merge_two(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, ckpt__lay *out, ckpt_error *err)
{
    making m = begin(a, in, (size_t)in->ndim - 1, err);
    const int64_t inner = in->shape[dim + 1];
    shape_around(&m, in, dim, 2, 1);
    if (m.status == CKPT_OK && __builtin_mul_overflow(in->shape[dim], inner, &m.lay.shape[dim]))
        m.status = ckpt__fail(err, CKPT_E_LIMIT, NULL, "the product of its shape overflows 64 bits");
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        const ckpt__lay_piece *q = &in->pieces[i];
        const bool full = q->size[dim + 1] == inner,
                   follow = inner == 1 || q->size[dim] == 1 || q->stride[dim] == q->stride[dim + 1] * inner;
        const bool one = q->size[dim] == 1 || (full && follow);
        const int64_t rows = one ? 1 : q->size[dim];
        for (int64_t r = 0; m.status == CKPT_OK && r < rows; r++) {
            ckpt__lay_piece *p = add(&m, q->storage, ahead(&m, q, dim, r));
            if (!p)
                break;
            copy_around(&m, p, q, dim, 2, 1);
            p->lo[dim] = (q->lo[dim] + r) * inner + q->lo[dim + 1];
            p->size[dim] = one ? q->size[dim] * q->size[dim + 1] : q->size[dim + 1];
            p->stride[dim] = inner == 1 ? q->stride[dim] : q->stride[dim + 1];
        }
    }
    return finish(&m, out);
}

ckpt_status ckpt__lay_merge(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, size_t count, ckpt__lay *out,
                            ckpt_error *err)
{
    ckpt_status status = check_dim(in, dim, count, err);
    ckpt__lay now = *in;
    for (size_t i = count; status == CKPT_OK && i > 1; i--)
        status = merge_two(a, &now, dim + (uint32_t)i - 2, &now, err);
    if (status == CKPT_OK)
        *out = now;
    return status;
}

ckpt_status ckpt__lay_slice(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, int64_t lo, int64_t size, ckpt__lay *out,
                            ckpt_error *err)
{
    ckpt_status status = check_dim(in, dim, 1, err);
    if (status < 0)
        return status;
    if (lo < 0 || size < 0 || lo > in->shape[dim] || size > in->shape[dim] - lo)
        return ckpt__fail(err, CKPT_E_MISMATCH, NULL, "dimension %u has size %lld, and [%lld, %lld) of it is asked for",
                          dim, (long long)in->shape[dim], (long long)lo, (long long)lo + (long long)size);
    making m = begin(a, in, in->ndim, err);
    shape_around(&m, in, dim, 1, 1);
    if (m.status == CKPT_OK)
        m.lay.shape[dim] = size;
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        const ckpt__lay_piece *q = &in->pieces[i];
        const int64_t end = q->lo[dim] + q->size[dim], first = q->lo[dim] > lo ? q->lo[dim] : lo;
        const int64_t last = end < lo + size ? end : lo + size;
        ckpt__lay_piece *p = first < last ? add(&m, q->storage, ahead(&m, q, dim, first - q->lo[dim])) : NULL;
        if (!p)
            continue;
        copy_around(&m, p, q, dim, 1, 1);
        p->lo[dim] = first - lo;
        p->size[dim] = last - first;
        p->stride[dim] = q->stride[dim];
    }
    return finish(&m, out);
}

static ckpt_status check_alike(const ckpt__lay *in, size_t count, uint32_t dim, ckpt_error *err)
{
    char one[200], other[200];
    ckpt_status status = check_dim(&in[0], dim, 1, err);
    for (size_t i = 1; status == CKPT_OK && i < count; i++) {
        bool alike = in[i].ndim == in[0].ndim && in[i].unit == in[0].unit;
        for (uint32_t d = 0; alike && d < in[0].ndim; d++)
            alike = d == dim || in[i].shape[d] == in[0].shape[d];
        if (alike)
            continue;
        ckpt__shape_text(one, sizeof one, in[0].shape, in[0].ndim);
        ckpt__shape_text(other, sizeof other, in[i].shape, in[i].ndim);
        status = ckpt__fail(err, CKPT_E_MISMATCH, NULL,
                            "shapes %s and %s, with %u and %u bytes per element, cannot stand side by side along "
                            "dimension %u",
                            one, other, in[0].unit, in[i].unit, dim);
    }
    return status;
}

ckpt_status ckpt__lay_join(ckpt__arena *a, const ckpt__lay *in, size_t count, uint32_t dim, ckpt__lay *out,
                           ckpt_error *err)
{
    ckpt_status status = check_alike(in, count, dim, err);
    if (status < 0)
        return status;
    making m = begin(a, &in[0], in[0].ndim, err);
    shape_around(&m, &in[0], dim, 1, 1);
    int64_t lo = 0;
    for (size_t k = 0; m.status == CKPT_OK && k < count; k++) {
        for (size_t i = 0; m.status == CKPT_OK && i < in[k].count; i++) {
            const ckpt__lay_piece *q = &in[k].pieces[i];
            ckpt__lay_piece *p = add(&m, q->storage, q->at);
            if (!p)
                break;
            copy_dims(p, 0, q, 0, m.lay.ndim);
            p->lo[dim] += lo;
        }
        if (m.status == CKPT_OK && __builtin_add_overflow(lo, in[k].shape[dim], &lo))
            m.status = ckpt__fail(err, CKPT_E_LIMIT, NULL, "the product of its shape overflows 64 bits");
    }
    if (m.status == CKPT_OK)
        m.lay.shape[dim] = lo;
    return finish(&m, out);
}

ckpt_status ckpt__lay_pad(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, int64_t to, uint32_t storage, uint64_t at,
                          ckpt__lay *out, ckpt_error *err)
{
    ckpt_status status = check_dim(in, dim, 1, err);
    if (status < 0)
        return status;
    if (to < in->shape[dim])
        return ckpt__fail(err, CKPT_E_MISMATCH, NULL, "dimension %u has size %lld, and is to be padded to %lld", dim,
                          (long long)in->shape[dim], (long long)to);
    making m = begin(a, in, in->ndim, err);
    shape_around(&m, in, dim, 1, 1);
    bool some = to > in->shape[dim];
    for (uint32_t d = 0; d < in->ndim; d++)
        some = some && (d == dim || in->shape[d] > 0);
    if (m.status == CKPT_OK)
        m.lay.shape[dim] = to;
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        ckpt__lay_piece *p = add(&m, in->pieces[i].storage, in->pieces[i].at);
        if (p)
            copy_dims(p, 0, &in->pieces[i], 0, m.lay.ndim);
    }
    ckpt__lay_piece *p = m.status == CKPT_OK && some ? add(&m, storage, at) : NULL;
    for (uint32_t d = 0; p && d < m.lay.ndim; d++) {
        p->lo[d] = d == dim ? in->shape[dim] : 0;
        p->size[d] = m.lay.shape[d] - p->lo[d];
        p->stride[d] = 0;
    }
    return finish(&m, out);
}

ckpt_status ckpt__lay_insert(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, ckpt__lay *out, ckpt_error *err)
{
    if (dim > in->ndim)
        return check_dim(in, dim, 1, err);
    making m = begin(a, in, (size_t)in->ndim + 1, err);
    shape_around(&m, in, dim, 0, 1);
    if (m.status == CKPT_OK)
        m.lay.shape[dim] = 1;
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        ckpt__lay_piece *p = add(&m, in->pieces[i].storage, in->pieces[i].at);
        if (!p)
            break;
        copy_around(&m, p, &in->pieces[i], dim, 0, 1);
        p->lo[dim] = 0;
        p->size[dim] = 1;
        p->stride[dim] = 0;
    }
    return finish(&m, out);
}

ckpt_status ckpt__lay_remove(ckpt__arena *a, const ckpt__lay *in, uint32_t dim, ckpt__lay *out, ckpt_error *err)
{
    ckpt_status status = check_dim(in, dim, 1, err);
    if (status < 0)
        return status;
    if (in->shape[dim] != 1)
        return ckpt__fail(err, CKPT_E_MISMATCH, NULL, "dimension %u has size %lld, and 1 is expected", dim,
                          (long long)in->shape[dim]);
    making m = begin(a, in, (size_t)in->ndim - 1, err);
    shape_around(&m, in, dim, 1, 0);
    for (size_t i = 0; m.status == CKPT_OK && i < in->count; i++) {
        ckpt__lay_piece *p = add(&m, in->pieces[i].storage, in->pieces[i].at);
        if (p)
            copy_around(&m, p, &in->pieces[i], dim, 1, 0);
    }
    return finish(&m, out);
}
