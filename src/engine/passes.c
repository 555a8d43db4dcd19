/* engine/passes.c - the passes over compressed storages, counted without reading. */
#include "engine/passes.h"

#include <stdlib.h>
#include "engine/checked.h"
#include "model/nested.h"

/* A copy out of a compressed storage. The box of one that is converted with holes lies in `dims`: sizes, strides of the source, strides
 * of the target. */
typedef struct coded_copy {
    uint32_t storage, bond;
    uint64_t from_at, span, to_at; /* bytes */
    bool dense, staged;
    uint32_t n, item;
    size_t dims; /* number of the first */
} coded_copy;

struct ckpt__passes {
    const ckpt__plan *plan; /* borrowed */
    bool any;               /* some storage is coded; else all counts are 0 */
    uint64_t *counts;       /* heap, owned, as are all arrays: one a storage of the source */
    unsigned char *known;   /* a bit a storage: its CRC was compared */
    unsigned char *looked;  /* a bit a storage: its record was looked into */
    ckpt__crcs *crcs;       /* owned: knows what is compared range by range */
    coded_copy *copies;     /* of the range that is counted */
    size_t count, capacity;
    uint64_t *dims;
    size_t dim_count, dim_capacity;
};

ckpt_status ckpt__passes_new(const ckpt__plan *plan, ckpt__passes **out, ckpt_error *err)
{
    const ckpt__index *x = ckpt__plan_source_index(plan);
    const size_t storages = x->storage_count;
    ckpt__passes *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return ckpt__fail_memory(err, "plan", sizeof *p);
    p->plan = plan;
    for (size_t i = 0; !p->any && i < storages; i++)
        p->any = ckpt__is_coded(&x->storages[i].extent);
    p->counts = calloc(storages + 1, sizeof *p->counts);
    p->known = calloc(storages / 8 + 1, 1);
    p->looked = calloc(storages / 8 + 1, 1);
    p->crcs = ckpt__crcs_new(plan);
    return p->counts && p->known && p->looked && p->crcs ? CKPT_OK : ckpt__fail_memory(err, "plan", storages);
}

void ckpt__passes_free(ckpt__passes *p)
{
    if (!p)
        return;
    free(p->counts);
    free(p->known);
    free(p->looked);
    ckpt__crcs_free(p->crcs);
    free(p->copies);
    free(p->dims);
    free(p);
}

uint64_t ckpt__passes_of(const ckpt__passes *p, uint32_t storage)
{
    return p->counts[storage];
}

uint64_t ckpt__passes_all(const ckpt__passes *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < ckpt__plan_source_index(p->plan)->storage_count; i++)
        sum += p->counts[i];
    return sum;
}

static bool take_bit(unsigned char *bits, uint32_t i)
{
    bool was = bits[i / 8] >> (i % 8) & 1;
    bits[i / 8] |= (unsigned char)(1u << (i % 8));
    return was;
}

static const ckpt__extent *extent_of(const ckpt__passes *p, uint32_t storage)
{
    return &ckpt__plan_source_index(p->plan)->storages[storage].extent;
}

/* A record's own archive has CRCs; it is looked into at its first use, all of its frame. */
static bool has_crc(const ckpt__extent *e)
{
    return e->coding == CKPT__NESTED || ckpt__has_crc_of_its_own(e);
}

static void look(ckpt__passes *p, uint32_t storage)
{
    const ckpt__extent *e = extent_of(p, storage);
    if (e->coding == CKPT__NESTED && !ckpt__is_found(e) && !take_bit(p->looked, storage))
        p->counts[storage]++;
}

/* ---- a range of a pull */

static ckpt_status note_copy(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    ckpt__passes *p = ctx;
    const ckpt__op *op = ckpt__plan_op_of(p->plan, c->op);
    ckpt__copy_box sorted;
    uint32_t n = c->box.n;
    if (!ckpt__is_coded(extent_of(p, c->from)))
        return CKPT_OK;
    if (!ckpt__grow(&p->copies, &p->capacity, p->count + 1, sizeof *p->copies) ||
        !ckpt__grow(&p->dims, &p->dim_capacity, p->dim_count + 3 * (size_t)n, sizeof *p->dims))
        return ckpt__fail_memory(err, "plan", p->count * sizeof *p->copies);
    coded_copy *copy = &p->copies[p->count++];
    *copy = (coded_copy){.storage = c->from,
                         .bond = c->bond,
                         .from_at = c->from_at,
                         .span = op->from_size,
                         .to_at = c->to_at,
                         .dense = ckpt__pull_is_dense(&c->box, op, &sorted),
                         .n = n,
                         .item = op->from_size,
                         .dims = p->dim_count};
    copy->staged = !copy->dense && !ckpt__op_is_plain(op);
    for (uint32_t i = 0; i < n; i++)
        copy->span += (c->box.size[i] - 1) * c->box.from_stride[i];
    for (uint32_t i = 0; copy->staged && i < n; i++) {
        uint64_t *dims = p->dims + p->dim_count;
        dims[i] = c->box.size[i];
        dims[n + i] = c->box.from_stride[i];
        dims[2 * n + i] = c->box.to_stride[i];
    }
    p->dim_count += copy->staged ? 3 * (size_t)n : 0;
    return CKPT_OK;
}

static int by_place(const void *a, const void *b)
{
    const coded_copy *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    if (x->from_at != y->from_at)
        return x->from_at < y->from_at ? -1 : 1;
    return x->to_at != y->to_at ? (x->to_at < y->to_at ? -1 : 1) : 0;
}

/* Bytes [from, to) of a storage by the decoder that was left before them, else by a new one. closes: its last byte ends it. */
static void decode(ckpt__passes *p, ckpt__pass_pull *pull, uint32_t storage, uint64_t from, uint64_t to, bool closes)
{
    size_t found = 0;
    for (size_t i = 0; i < CKPT__PULL_DECODERS; i++) {
        if (pull->decoders[i].used && pull->decoders[i].storage == storage) {
            found = i;
            break;
        }
        found = pull->decoders[i].used < pull->decoders[found].used ? i : found;
    }
    bool goes_on =
        pull->decoders[found].used && pull->decoders[found].storage == storage && pull->decoders[found].at <= from;
    p->counts[storage] += !goes_on;
    pull->decoders[found].storage = storage;
    pull->decoders[found].at = to;
    pull->decoders[found].used = closes && to == extent_of(p, storage)->size ? 0 : ++pull->uses;
}

typedef struct staged {
    ckpt__passes *passes;
    ckpt__pass_pull *pull;
    const coded_copy *copy;
} staged;

static ckpt_status count_stage(void *ctx, const ckpt__pull_part *stage, ckpt_error *err)
{
    const staged *w = ctx;
    uint64_t end = stage->from + w->copy->item;
    (void)err;
    for (uint32_t i = 0; i < stage->gather.n; i++)
        end += (stage->gather.size[i] - 1) * stage->gather.from_stride[i];
    decode(w->passes, w->pull, w->copy->storage, stage->from, end, false);
    return CKPT_OK;
}

static ckpt_status count_copy(ckpt__passes *p, ckpt__pass_pull *pull, const coded_copy *c, ckpt_error *err)
{
    const ckpt__extent *e = extent_of(p, c->storage);
    look(p, c->storage);
    if (e->size <= pull->memory && !e->missing) { /* it is kept */
        if (pull->decoded != c->storage)
            decode(p, pull, c->storage, 0, e->size, true);
        pull->decoded = c->storage;
        take_bit(p->known, c->storage);
        return CKPT_OK;
    }
    bool whole = c->dense && c->span == e->size;
    if (has_crc(e) && !e->missing && !ckpt__is_sound(e) &&
        (whole || !c->dense || !ckpt__crcs_takes(p->crcs, c->storage, c->bond)) && !take_bit(p->known, c->storage) &&
        !whole)
        p->counts[c->storage]++; /* it is checked before */
    if (!c->staged) {
        decode(p, pull, c->storage, c->from_at, c->from_at + c->span, c->dense);
        return CKPT_OK;
    }
    staged w = {p, pull, c};
    const uint64_t *dims = p->dims + c->dims;
    ckpt__copy_box box;
    ckpt__copy_box_init(&box);
    for (uint32_t i = 0; i < c->n; i++)
        ckpt__copy_box_add(&box, dims[i], dims[c->n + i], dims[2 * c->n + i]);
    return ckpt__pull_each_stage(&box, c->item, true, c->from_at, count_stage, &w, err);
}

ckpt_status ckpt__passes_pull(ckpt__passes *p, ckpt__pass_pull *pull, uint32_t storage, uint64_t begin, uint64_t end,
                              ckpt_error *err)
{
    if (!p->any)
        return CKPT_OK;
    p->count = p->dim_count = 0;
    ckpt_status status = ckpt__plan_target(p->plan, storage, begin, end, note_copy, p, err);
    if (status == CKPT_OK && p->count > 1)
        qsort(p->copies, p->count, sizeof *p->copies, by_place);
    for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
        status = count_copy(p, pull, &p->copies[i], err);
    return status;
}

void ckpt__passes_tensor(ckpt__passes *p, size_t tensor)
{
    const ckpt__index *x = ckpt__plan_source_index(p->plan);
    const ckpt__tensor *t = &x->tensors[tensor];
    for (size_t i = 0; t->info.nbytes && i < ckpt__view_count(t); i++) {
        uint32_t storage = ckpt__view_of(x, t, i).storage;
        if (!ckpt__is_coded(extent_of(p, storage)))
            continue;
        look(p, storage);
        p->counts[storage]++;
    }
}
