/* examine/verify_replicas.c - pieces that several files have of a tensor, where one is read: have they the same bytes? Storages are
 * compared by the checksums that they have, which were held against their bytes before; where those do not tell, the elements are
 * read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "engine/checked.h"
#include "engine/nested.h"
#include "engine/stream.h"
#include "examine/verify_work.h"

/* Two pieces of one box: the first is in the file that is read. */
typedef struct pair {
    size_t tensor; /* number of the row */
    ckpt__view a, b;
    uint32_t crc_a, crc_b; /* of the elements in C order, where they were read */
    bool differ;
} pair;

static const ckpt__extent *extent_of(const ckpt__verifier *v, const ckpt__view *w)
{
    return ckpt__extent_known(v->index, w->storage);
}

static bool same_strides(const ckpt__view *a, const ckpt__view *b, uint32_t ndim)
{
    if (!a->strides || !b->strides)
        return a->strides == b->strides;
    return memcmp(a->strides, b->strides, ndim * sizeof *a->strides) == 0;
}

/* The same view of storages with the same checksum. */
static bool is_same_by_crc(const ckpt__verifier *v, const pair *p)
{
    const ckpt__extent *e = extent_of(v, &p->a), *f = extent_of(v, &p->b);
    return p->a.storage == p->b.storage ||
           (ckpt__has_crc_of_its_own(e) && ckpt__has_crc_of_its_own(f) && e->crc == f->crc && e->size == f->size &&
            e->coding == f->coding && e->big_endian == f->big_endian && p->a.at == p->b.at &&
            same_strides(&p->a, &p->b, v->index->tensors[p->tensor].info.ndim));
}

typedef struct summing {
    ckpt__verifier *v;
    uint32_t crc;
} summing;

static ckpt_status add_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    summing *s = ctx;
    (void)offset;
    s->crc = ckpt__crc32(s->crc, data, n);
    return ckpt__verifier_tick(s->v, 0, err);
}

/* One piece as a tensor that is nothing else. false: it is none, or begins within an element. */
static bool set_alone(ckpt__tensor *t, const ckpt__view *w, int64_t *strides)
{
    const unsigned bits = ckpt_dtype_bits(t->info.dtype);
    uint64_t elements = w->count, first;
    if (!bits || !ckpt__mul(w->at, 8, &first) || first % bits || first / bits > INT64_MAX ||
        (!w->flat && !ckpt__numel(w->size, t->info.ndim, &elements)) || !ckpt__nbytes(elements, bits, &t->info.nbytes))
        return false;
    ckpt__leave_pieces(t);
    t->whole = true;
    t->has_crc = false;
    t->storage = w->storage;
    t->info.offset = (int64_t)(first / bits);
    if (!w->flat)
        t->info.shape = w->size;
    if (w->strides)
        memcpy(strides, w->strides, t->info.ndim * sizeof *strides);
    else
        ckpt__c_strides(t->info.shape, t->info.ndim, strides);
    t->info.strides = strides;
    return true;
}

/* *known false: the elements cannot be read, which was said of the storage. */
static ckpt_status crc_of(ckpt__verifier *v, size_t tensor, const ckpt__view *w, uint32_t *crc, bool *known,
                          ckpt_error *err)
{
    ckpt__index alone = *v->index;
    ckpt__tensor t = v->index->tensors[tensor];
    const int64_t flat = (int64_t)w->count;
    summing s = {v, 0};
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    if (w->flat) {
        t.info.ndim = 1;
        t.info.shape = &flat;
    }
    int64_t *strides = calloc((size_t)t.info.ndim + 1, sizeof *strides);
    if (!strides)
        return ckpt__fail_memory(err, "the strides of a piece", t.info.ndim);
    *known = set_alone(&t, w, strides);
    alone.tensors = &t;
    alone.tensor_count = 1;
    if (*known)
        status = ckpt__read_tensor_as_stored(v->source, &alone, 0, add_block, &s, &why);
    *known = *known && status == CKPT_OK;
    *crc = s.crc;
    free(strides);
    if (status == CKPT_OK || status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_UNSUPPORTED)
        return CKPT_OK;
    if (err)
        *err = why;
    return status;
}

static ckpt_status compare(ckpt__verifier *v, pair *p, ckpt_error *err)
{
    const ckpt__extent *e = &v->index->storages[p->a.storage].extent, *f = &v->index->storages[p->b.storage].extent;
    bool known_a = false, known_b = false;
    p->differ = false;
    if (e->missing || f->missing || is_same_by_crc(v, p))
        return CKPT_OK;
    ckpt_status status = crc_of(v, p->tensor, &p->a, &p->crc_a, &known_a, err);
    if (status == CKPT_OK && known_a)
        status = crc_of(v, p->tensor, &p->b, &p->crc_b, &known_b, err);
    p->differ = status == CKPT_OK && known_b && p->crc_a != p->crc_b;
    return status;
}

/* Both as they were written: ranks have drifted apart, or it is not meant to be the same. Where a checksum does not say so, one of them
 * may be damaged. */
static ckpt_status say(ckpt__verifier *v, const pair *p, size_t count, ckpt_error *err)
{
    const ckpt__extent *e = &v->index->storages[p->a.storage].extent, *f = &v->index->storages[p->b.storage].extent;
    const ckpt_str name = v->index->tensors[p->tensor].info.name;
    const bool sure = ckpt__has_any_crc(extent_of(v, &p->a)) && ckpt__has_any_crc(extent_of(v, &p->b));
    const char *a = v->source->files[e->file].name, *b = v->source->files[f->file].name;
    char shown[512], more[80] = "";
    if (count > 1)
        snprintf(more, sizeof more, ", and so are %zu more of its pieces", count - 1);
    bool good = ckpt__report_add(
        v->report, sure ? CKPT_SEVERITY_WARNING : CKPT_SEVERITY_ERROR, "replicas-differ",
        ckpt__escape(shown, sizeof shown, name.data, name.size),
        sure ? "make sure that the files are of one save; ranks that have drifted apart are a fault of the run"
             : "copy both files again, or take an earlier checkpoint",
        "%s and %s both have the same piece of it, with other bytes (their CRC-32 is %08" PRIx32 " and %08" PRIx32
        "): %s, and the first of them is read%s",
        a, b, p->crc_a, p->crc_b,
        sure ? "each is as it was written" : "no checksum tells which of them is as it was written", more);
    good = good && ckpt__report_detail(v->report, b, NULL, NULL, 0);
    return good ? CKPT_OK : ckpt__fail_memory(err, "the report", 0);
}

/* The one that is read: of the same boxes the first in the files (engine/plan_sides.c). */
static bool is_before(const ckpt__index *x, const ckpt__view *a, const ckpt__view *b)
{
    const ckpt__extent *e = &x->storages[a->storage].extent, *f = &x->storages[b->storage].extent;
    if (e->file != f->file)
        return e->file < f->file;
    return ckpt__extent_begin(e) + a->at <= ckpt__extent_begin(f) + b->at;
}

/* Each piece against the first one of its box. One finding a tensor. */
static ckpt_status check_tensor(ckpt__verifier *v, size_t tensor, ckpt_error *err)
{
    const ckpt__tensor *t = &v->index->tensors[tensor];
    const size_t n = t->info.ndim;
    ckpt__hash *seen = ckpt__hash_new(t->piece_count);
    ckpt_status status = seen ? CKPT_OK : ckpt__fail_memory(err, "a list of pieces", t->piece_count);
    pair first = {.differ = false};
    size_t count = 0;
    for (size_t i = 0; status == CKPT_OK && i < t->piece_count; i++) {
        const ckpt__piece *p = &v->index->pieces[t->first_piece + i];
        const size_t numbers = p->flags & CKPT__PIECE_FLAT ? 2 : 2 * n;
        size_t other = 0;
        if (!(p->flags & CKPT__PIECE_REPLICA))
            continue;
        int put = ckpt__hash_put(seen, numbers ? (const char *)p->box : "", numbers * sizeof *p->box, i, &other);
        if (put < 0)
            status = ckpt__fail_memory(err, "a list of pieces", t->piece_count);
        if (put != 0)
            continue;
        pair q = {.tensor = tensor, .a = ckpt__view_of(v->index, t, other), .b = ckpt__view_of(v->index, t, i)};
        if (!is_before(v->index, &q.a, &q.b))
            q = (pair){.tensor = tensor, .a = q.b, .b = q.a};
        status = compare(v, &q, err);
        first = q.differ && count++ == 0 ? q : first;
    }
    ckpt__hash_free(seen);
    return status == CKPT_OK && count ? say(v, &first, count, err) : status;
}

static bool has_replicas(const ckpt__index *x, const ckpt__tensor *t)
{
    for (size_t i = 0; i < t->piece_count; i++)
        if (x->pieces[t->first_piece + i].flags & CKPT__PIECE_REPLICA)
            return true;
    return false;
}

ckpt_status ckpt__verifier_replicas(ckpt__verifier *v, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < v->index->tensor_count; i++)
        if (has_replicas(v->index, &v->index->tensors[i]))
            status = check_tensor(v, i, err);
    return status;
}
