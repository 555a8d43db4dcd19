/* engine/transfers.c - the order in which a checkpoint is read. */
#include "engine/transfers.h"

#include <stdlib.h>
#include "model/nested.h"

ckpt__transfer *ckpt__transfers_add(ckpt__transfers *p)
{
    if (!ckpt__grow(&p->copies, &p->capacity, p->count + 1, sizeof *p->copies))
        return NULL;
    ckpt__transfer *c = &p->copies[p->count++];
    memset(c, 0, sizeof *c);
    return c;
}

static void look_at_source(ckpt__transfer *c, const ckpt__index *x)
{
    const ckpt__tensor *t = &x->tensors[c->tensor];
    c->storage = SIZE_MAX;
    if (!t->whole || t->info.nbytes == 0)
        return;
    const ckpt__extent *e = &x->storages[t->storage].extent;
    size_t size = ckpt_dtype_size(c->from);
    ckpt__strided source, place;
    ckpt__strided_init(&source, t->info.shape, t->info.strides, t->info.ndim, size);
    ckpt__strided_init(&place, c->shape, c->strides, c->ndim, ckpt_dtype_size(c->to));
    c->storage = t->storage;
    c->begin = (uint64_t)t->info.offset * size;
    c->size = t->info.nbytes;
    c->linear = c->from == c->to && ckpt__strided_is_contiguous(&source) && ckpt__strided_is_contiguous(&place) &&
                !(e->big_endian && x->storages[t->storage].unit > 1) && !t->info.conj && !t->info.neg;
}

static int by_place(const void *a, const void *b, void *ctx)
{
    const ckpt__transfer *p = a, *q = b;
    const ckpt__index *x = ctx;
    if (p->storage == SIZE_MAX || q->storage == SIZE_MAX)
        return (p->storage == SIZE_MAX) - (q->storage == SIZE_MAX);
    const ckpt__extent *e = &x->storages[p->storage].extent, *f = &x->storages[q->storage].extent;
    if (e->file != f->file)
        return e->file < f->file ? -1 : 1;
    if (ckpt__extent_begin(e) != ckpt__extent_begin(f))
        return ckpt__extent_begin(e) < ckpt__extent_begin(f) ? -1 : 1;
    if (p->storage != q->storage)
        return p->storage < q->storage ? -1 : 1;
    return p->begin != q->begin ? (p->begin < q->begin ? -1 : 1) : 0;
}

void ckpt__transfers_order(ckpt__transfers *p, const ckpt__index *x)
{
    for (size_t i = 0; i < p->count; i++)
        look_at_source(&p->copies[i], x);
    if (p->count)
        qsort_r(p->copies, p->count, sizeof *p->copies, by_place, (void *)(uintptr_t)x);
    p->bytes = 0;
    for (size_t i = 0; i < p->count; i++)
        if (p->copies[i].storage != SIZE_MAX && (i == 0 || p->copies[i].storage != p->copies[i - 1].storage))
            p->bytes += x->storages[p->copies[i].storage].extent.size;
}

void ckpt__transfers_group(const ckpt__transfers *p, size_t first, size_t *end)
{
    *end = first + 1;
    while (*end < p->count && p->copies[*end].storage == p->copies[first].storage)
        ++*end;
}

void ckpt__transfers_free(ckpt__transfers *p)
{
    free(p->copies);
    memset(p, 0, sizeof *p);
}
