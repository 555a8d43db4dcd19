/* engine/plan_units.c - what is written or read where: the pieces of all bonds, by storage and place. */
#include <stdlib.h>
#include "engine/plan_priv.h"

/* The elements that a byte swap counts, and the bytes behind the last of them that it leaves as they are. */
static void parts_of_storage(const ckpt__plan *p, const ckpt__bond *b, uint64_t *elements, uint64_t *tail)
{
    uint64_t size = p->want.to->storages[b->to].extent.size, unit = ckpt__plan_op(p, b->op)->to_size;
    *tail = size % unit;
    *elements = size - *tail;
}

size_t ckpt__bond_rows(const ckpt__plan *p, size_t bond, bool target)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    if (b->flags & CKPT__BOND_STORAGE) {
        uint64_t elements, tail;
        parts_of_storage(p, b, &elements, &tail);
        return (size_t)(elements > 0) + (tail > 0);
    }
    const ckpt__side *side = ckpt__side_of_bond(p, bond, target);
    const ckpt__tensor *to = &p->want.to->tensors[b->to];
    return side ? side->count : to->info.nbytes > 0 && !ckpt__has_no_bytes(to);
}

static uint32_t storage_of_row(const ckpt__plan *p, bool target, size_t bond, size_t row)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    const ckpt__side *side = ckpt__side_of_bond(p, bond, target);
    if (b->flags & CKPT__BOND_STORAGE)
        return target ? b->to : b->from;
    return side ? side->rows[row].storage
                : (target ? p->want.to->tensors[b->to] : p->want.from->tensors[b->from]).storage;
}

ckpt__span_of ckpt__row_span(const ckpt__plan *p, bool target, size_t bond, size_t row)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    uint64_t reach = 0, bytes = 0;
    if (b->flags & CKPT__BOND_STORAGE) {
        uint64_t elements, tail;
        parts_of_storage(p, b, &elements, &tail);
        bool main = elements && row == 0;
        return (ckpt__span_of){target ? b->to : b->from, main ? 0 : elements, main ? elements : elements + tail};
    }
    const ckpt__index *x = target ? p->want.to : p->want.from;
    const ckpt__tensor *t = &x->tensors[target ? b->to : b->from];
    const ckpt__side *side = ckpt__side_of_bond(p, bond, target);
    uint64_t at = side ? 0 : ckpt__whole_at(t);
    if (!side && ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim))
        return (ckpt__span_of){t->storage, at, at + t->info.nbytes};
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    if (!side) {
        if (ckpt__view_extent(t->info.shape, t->info.strides, t->info.ndim, &reach))
            (void)ckpt__nbytes(reach, bits, &bytes);
        return (ckpt__span_of){t->storage, at, at + bytes};
    }
    ckpt__lie lie;
    ckpt__side_row(side, row, &lie);
    if (ckpt__view_extent(lie.size, lie.strides, lie.n, &reach))
        (void)ckpt__nbytes(reach, bits, &bytes);
    return (ckpt__span_of){lie.storage, lie.at, lie.at + bytes};
}

/* ---- sorting */

/* The longer one first: what lies inside of another comes behind it. */
static int by_place(const void *a, const void *b)
{
    const ckpt__unit *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end > y->end ? -1 : 1;
    if (x->bond != y->bond)
        return x->bond < y->bond ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Most come in the order of their places already. */
static void sort_storage(ckpt__unit *items, size_t count)
{
    size_t sorted = 1;
    while (sorted < count && items[sorted].begin > items[sorted - 1].begin)
        sorted++;
    if (sorted < count)
        qsort(items, count, sizeof *items, by_place);
}

/* Is the row one that is neither read nor written? */
static bool is_out(const ckpt__plan *p, size_t bond, size_t row, bool target)
{
    const ckpt__side *side = target ? NULL : ckpt__side_of_bond(p, bond, false);
    return side && side->left_out && side->left_out[row];
}

/* Storages [from, to) of one direction. */
typedef struct slice {
    size_t from, to;
} slice;

static bool is_in(const slice *s, size_t storage)
{
    return storage >= s->from && storage < s->to;
}

/* items NULL: they are counted, at[storage + 1] each, from the first of the slice on. Else they are put, at at[storage]. */
static size_t put_units(const ckpt__plan *p, bool target, const slice *of, uint32_t *at, ckpt__unit *items)
{
    size_t count = 0;
    for (size_t i = 0; i < p->want.bond_count; i++) {
        size_t rows = ckpt__is_alias(p, i) ? 0 : ckpt__bond_rows(p, i, target);
        for (size_t r = 0; r < rows; r++) {
            const size_t storage = storage_of_row(p, target, i, r);
            if (!is_in(of, storage) || is_out(p, i, r, target))
                continue;
            count++;
            if (items) {
                ckpt__span_of s = ckpt__row_span(p, target, i, r);
                items[at[storage - of->from]++] = (ckpt__unit){s.begin, s.end, (uint32_t)i, (uint32_t)r};
            } else
                at[storage - of->from + 1]++;
        }
    }
    for (size_t i = 0; target && i < p->want.fill_count; i++) {
        const ckpt__fill *f = &p->want.fills[i];
        if (!is_in(of, f->storage))
            continue;
        count++;
        if (items)
            items[at[f->storage - of->from]++] = (ckpt__unit){f->begin, f->begin + f->size, UINT32_MAX, (uint32_t)i};
        else
            at[f->storage - of->from + 1]++;
    }
    return count;
}

static bool find_most(ckpt__units *u)
{
    for (int level = 0; level < 2 && u->count > CKPT__NEAR; level++) /* few are looked at one by one */
        if (!(u->most[level] = calloc(u->count / (level ? CKPT__FAR : CKPT__NEAR) + 1, sizeof **u->most)))
            return false;
    for (size_t i = 0; i < u->count && u->most[1]; i++) {
        uint64_t end = u->items[i].end;
        uint64_t *near = &u->most[0][i / CKPT__NEAR], *far = &u->most[1][i / CKPT__FAR];
        *near = end > *near ? end : *near;
        *far = end > *far ? end : *far;
    }
    return true;
}

static ckpt_status make_units(const ckpt__plan *p, bool target, const slice *of, ckpt__units *u, ckpt_error *err)
{
    const size_t storages = of->to - of->from;
    ckpt__units_free(u);
    if (!(u->first = calloc(storages + 2, sizeof *u->first)))
        return ckpt__fail_memory(err, "plan", storages * sizeof *u->first);
    u->count = put_units(p, target, of, u->first, NULL);
    if (u->count >= UINT32_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, "plan", "it has %zu pieces, and a plan has fewer than 2^32", u->count);
    for (size_t i = 1; i < storages + 2; i++)
        u->first[i] += u->first[i - 1];
    if (!(u->items = malloc((u->count + 1) * sizeof *u->items)))
        return ckpt__fail_memory(err, "plan", u->count * sizeof *u->items);
    put_units(p, target, of, u->first, u->items); /* each moves on to where the next begins */
    memmove(u->first + 1, u->first, storages * sizeof *u->first);
    u->first[0] = 0;
    for (size_t i = 0; i < storages; i++)
        sort_storage(u->items + u->first[i], u->first[i + 1] - u->first[i]);
    return find_most(u) ? CKPT_OK : ckpt__fail_memory(err, "plan", u->count * sizeof *u->items);
}

ckpt_status ckpt__plan_make_units(ckpt__plan *p, bool target, ckpt_error *err)
{
    const slice all = {0, (target ? p->want.to : p->want.from)->storage_count};
    return make_units(p, target, &all, target ? &p->out : &p->in, err);
}

void ckpt__units_free(ckpt__units *u)
{
    free(u->items);
    free(u->first);
    free(u->most[0]);
    free(u->most[1]);
    memset(u, 0, sizeof *u);
}

static ckpt_status note_meet(void *ctx, size_t row, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    (void)row;
    (void)lo;
    (void)size;
    (void)err;
    *(bool *)ctx = true;
    return CKPT_E_CANCELLED; /* one is enough */
}

/* Does any piece of the target have elements of the source's row? A target of which a rank holds a part asks for few. */
static ckpt_status is_asked_for(const ckpt__plan *p, ckpt__unit unit, bool *asked, ckpt_error *err)
{
    const ckpt__side *from = ckpt__side_of_bond(p, unit.bond, false), *to = ckpt__side_of_bond(p, unit.bond, true);
    uint64_t work = 0;
    ckpt__lie lie;
    *asked = !from;
    if (*asked)
        return CKPT_OK;
    ckpt__side_row(from, unit.row, &lie);
    ckpt_status status = ckpt__side_each(to, lie.lo, lie.size, note_meet, asked, &work, err);
    return *asked ? CKPT_OK : status;
}

/* Of the storage whose units are those number `row` of u. */
static ckpt_status give_runs(const ckpt__plan *p, const ckpt__units *u, size_t row, uint64_t hole, ckpt__run_fn *fn,
                             void *ctx, ckpt_error *err)
{
    uint64_t begin = 0, end = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = u->first[row]; status == CKPT_OK && i < u->first[row + 1]; i++) {
        ckpt__unit s = u->items[i];
        bool asked;
        if ((status = is_asked_for(p, s, &asked, err)) < 0 || !asked)
            continue;
        if (s.begin > end && s.begin - end > hole && end > begin) {
            status = fn(ctx, begin, end, err);
            begin = end = s.begin;
        }
        begin = end > begin ? begin : s.begin;
        end = s.end > end ? s.end : end;
    }
    return status == CKPT_OK && end > begin ? fn(ctx, begin, end, err) : status;
}

ckpt_status ckpt__plan_source_runs(const ckpt__plan *p, uint32_t storage, uint64_t hole, ckpt__run_fn *fn, void *ctx,
                                   ckpt_error *err)
{
    if (!p->in.first || storage >= p->want.from->storage_count)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "plan", "it was not made to answer of storage %u", storage);
    return give_runs(p, &p->in, storage, hole, fn, ctx, err);
}

typedef struct summing {
    size_t storage;
    ckpt__storage_run_fn *fn;
    void *ctx;
} summing;

static ckpt_status give_run(void *ctx, uint64_t begin, uint64_t end, ckpt_error *err)
{
    const summing *s = ctx;
    return s->fn(s->ctx, (uint32_t)s->storage, begin, end, err);
}

ckpt_status ckpt__plan_all_runs(const ckpt__plan *p, uint64_t hole, ckpt__storage_run_fn *fn, void *ctx,
                                ckpt_error *err)
{
    enum { SLICE = 1 << 19 }; /* storages: the units of all may take more memory than the plan */
    const size_t all = p->want.from->storage_count;
    ckpt__units u = {0};
    ckpt_status status = CKPT_OK;
    for (slice of = {0, 0}; status == CKPT_OK && of.to < all; of.from = of.to) {
        of.to = all - of.from > SLICE ? of.from + SLICE : all;
        status = make_units(p, false, &of, &u, err);
        for (size_t i = of.from; status == CKPT_OK && i < of.to; i++) {
            summing s = {i, fn, ctx};
            status = give_runs(p, &u, i - of.from, hole, give_run, &s, err);
        }
    }
    ckpt__units_free(&u);
    return status;
}

uint64_t ckpt__plan_bond_bytes(const ckpt__plan *p, size_t bond)
{
    const ckpt__bond *b = &p->want.bonds[bond];
    const ckpt__index *x = p->want.to;
    if (ckpt__is_alias(p, bond))
        return UINT64_MAX;
    if (b->flags & CKPT__BOND_STORAGE)
        return x->storages[b->to].extent.size;
    const ckpt__tensor *t = &x->tensors[b->to];
    uint64_t elements = 0, bytes = 0;
    for (size_t i = 0; i < ckpt__view_count(t) && !t->whole; i++) {
        ckpt__view v = ckpt__view_of(x, t, i);
        uint64_t volume = v.count;
        if (v.flat || ckpt__box_volume(t->info.ndim, v.size, &volume))
            elements += volume;
    }
    return t->whole ? t->info.nbytes : ckpt__nbytes(elements, ckpt_dtype_bits(t->info.dtype), &bytes) ? bytes : 0;
}
