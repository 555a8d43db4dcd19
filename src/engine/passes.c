/* engine/passes.c - the passes over compressed storages, counted without reading. */
#include "engine/passes.h"

#include <stdlib.h>
#include "engine/checked.h"
#include "engine/elements.h"
#include "engine/pull.h"
#include "model/nested.h"

/* A copy out of a compressed storage. */
typedef struct coded_copy {
    uint32_t storage;
    uint64_t place, to_at; /* the order of the copies of a range */
    uint64_t stages;       /* in so many parts it is converted; 1: it goes over as it is */
    bool all;              /* it is the whole storage, as it is: its CRC is compared on the way */
} coded_copy;

struct ckpt__passes {
    const ckpt__plan *plan; /* borrowed */
    uint64_t *counts;       /* heap, owned, as are all arrays: one a storage of the source */
    unsigned char *known;   /* a bit a storage: its CRC was compared */
    unsigned char *looked;  /* a bit a storage: its record was looked into */
    coded_copy *copies;     /* of the range that is counted */
    size_t count, capacity;
    bool in_order; /* it is converted behind the pull, which swaps alone */
};

bool ckpt__is_coded(const ckpt__extent *e)
{
    return !e->memory && e->coding != CKPT__STORED && e->coding != CKPT__TURNED &&
           (e->coding != CKPT__NESTED || e->nested->zstd);
}

ckpt_status ckpt__passes_new(const ckpt__plan *plan, ckpt__passes **out, ckpt_error *err)
{
    size_t storages = ckpt__plan_source_index(plan)->storage_count;
    ckpt__passes *p = calloc(1, sizeof *p);
    *out = p;
    if (!p)
        return ckpt__fail_memory(err, "plan", sizeof *p);
    p->plan = plan;
    p->counts = calloc(storages + 1, sizeof *p->counts);
    p->known = calloc(storages / 8 + 1, 1);
    p->looked = calloc(storages / 8 + 1, 1);
    return p->counts && p->known && p->looked ? CKPT_OK : ckpt__fail_memory(err, "plan", storages);
}

void ckpt__passes_free(ckpt__passes *p)
{
    if (!p)
        return;
    free(p->counts);
    free(p->known);
    free(p->looked);
    free(p->copies);
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

/* Before a part of it is used: one pass, unless all of it was read before. */
static void check(ckpt__passes *p, uint32_t storage)
{
    const ckpt__extent *e = extent_of(p, storage);
    if (has_crc(e) && !ckpt__is_sound(e) && !take_bit(p->known, storage))
        p->counts[storage]++;
}

/* ---- a range of a pull */

static ckpt_status note_copy(void *ctx, const ckpt__copy *c, ckpt_error *err)
{
    ckpt__passes *p = ctx;
    const ckpt__extent *e = extent_of(p, c->from);
    const ckpt__op *op = ckpt__plan_op_of(p->plan, c->op);
    uint64_t bytes;
    if (!ckpt__is_coded(e))
        return CKPT_OK;
    if (!ckpt__grow(&p->copies, &p->capacity, p->count + 1, sizeof *p->copies))
        return ckpt__fail_memory(err, "plan", p->count * sizeof *p->copies);
    bool run = ckpt__copy_box_is_run(&c->box, op, &bytes) && bytes == e->size,
         plain = p->in_order ? op->from_swap == 1 : ckpt__op_is_plain(op);
    p->copies[p->count++] = (coded_copy){.storage = c->from,
                                         .place = ckpt__extent_begin(e) + c->from_at,
                                         .to_at = c->to_at,
                                         .stages = plain ? 1 : ckpt__pull_stages(&c->box, op->from_size),
                                         .all = plain && run && c->from_at == 0};
    return CKPT_OK;
}

static int by_place(const void *a, const void *b)
{
    const coded_copy *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return x->to_at != y->to_at ? (x->to_at < y->to_at ? -1 : 1) : 0;
}

static void count_copy(ckpt__passes *p, ckpt__pass_pull *pull, const coded_copy *c)
{
    bool kept = extent_of(p, c->storage)->size <= pull->memory;
    if (kept && pull->decoded == c->storage)
        return;
    look(p, c->storage);
    if (kept) {
        pull->decoded = c->storage;
        p->counts[c->storage]++;
        take_bit(p->known, c->storage);
        return;
    }
    if (c->all)
        take_bit(p->known, c->storage);
    else
        check(p, c->storage);
    p->counts[c->storage] += c->stages;
}

ckpt_status ckpt__passes_pull(ckpt__passes *p, ckpt__pass_pull *pull, uint32_t storage, uint64_t begin, uint64_t end,
                              ckpt_error *err)
{
    p->count = 0;
    ckpt_status status = ckpt__plan_target(p->plan, storage, begin, end, note_copy, p, err);
    if (status == CKPT_OK && p->count > 1)
        qsort(p->copies, p->count, sizeof *p->copies, by_place);
    for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
        count_copy(p, pull, &p->copies[i]);
    return status;
}

/* ---- in order */

/* One stretch of a storage, from its first byte to its last or a part of it. */
static void count_range(ckpt__passes *p, uint32_t storage, uint64_t begin, uint64_t size)
{
    const ckpt__extent *e = extent_of(p, storage);
    if (!ckpt__is_coded(e))
        return;
    look(p, storage);
    if (begin == 0 && size == e->size)
        take_bit(p->known, storage);
    else
        check(p, storage);
    p->counts[storage]++;
}

ckpt_status ckpt__passes_in_order(ckpt__passes *p, size_t bond, uint64_t memory, ckpt_error *err)
{
    const ckpt__bond *b = ckpt__plan_bond(p->plan, bond);
    const ckpt__index *x = ckpt__plan_source_index(p->plan), *y = ckpt__plan_target_index(p->plan);
    ckpt_status status = CKPT_OK;
    if (b->flags & CKPT__BOND_STORAGE) {
        count_range(p, b->from, 0, extent_of(p, b->from)->size);
        return CKPT_OK;
    }
    const ckpt__tensor *t = &x->tensors[b->from];
    const ckpt_tensor_info *to = &y->tensors[b->to].info;
    if (t->info.nbytes == 0)
        return CKPT_OK;
    if (t->whole && ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim)) {
        count_range(p, t->storage, ckpt__view_of(x, t, 0).at, t->info.nbytes);
        return CKPT_OK;
    }
    /* Windows of the source's elements, which may be of another size in the target. */
    ckpt__joined_room room = ckpt__elements_room(x, t, memory);
    ckpt__pass_pull pull = {.memory = room.decoded, .decoded = UINT32_MAX};
    uint64_t base = ckpt__view_of(y, &y->tensors[b->to], 0).at, from = ckpt_dtype_bits(t->info.dtype),
             into = ckpt_dtype_bits(to->dtype);
    p->in_order = true;
    for (uint64_t at = 0; status == CKPT_OK && at < t->info.nbytes; at += room.window) {
        uint64_t end = t->info.nbytes - at < room.window ? t->info.nbytes : at + room.window;
        status = ckpt__passes_pull(p, &pull, y->tensors[b->to].storage, base + at * into / from,
                                   base + (end * into + from - 1) / from, err);
    }
    p->in_order = false;
    return status;
}
