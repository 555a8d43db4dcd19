/* engine/plan_sides.c - bonds of split tensors: their pieces in common coordinates, and the proof that each element has one source. */
#include <stdio.h>
#include <stdlib.h>
#include "engine/plan_priv.h"
#include "model/nested.h"

enum { MOST_WORK = 1000000000 };

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "plan", 0);
}

/* ---- coordinates */

/* Can all of the tensor be said in ranges? *any: some piece can be said in no other way but by cutting it. */
static bool is_flat(const ckpt__index *x, const ckpt__tensor *t, bool *any)
{
    int64_t begin, count;
    if (t->whole)
        return ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim);
    for (size_t i = 0; i < t->piece_count; i++) {
        const ckpt__piece *p = &x->pieces[t->first_piece + i];
        if (p->flags & CKPT__PIECE_FLAT)
            *any = true;
        else if (p->flags & CKPT__PIECE_STRIDED ||
                 !ckpt__box_range(t->info.ndim, t->info.shape, p->box, p->box + t->info.ndim, &begin, &count))
            return false;
    }
    return true;
}

/* ---- rows that are made */

static ckpt__piece *rows_of(ckpt__plan *p, size_t count)
{
    return ckpt__arena_array(p->arena, count ? count : 1, sizeof(ckpt__piece));
}

/* Every piece as a range. */
static ckpt_status make_ranges(ckpt__plan *p, const ckpt__index *x, ckpt__side *s, ckpt_error *err)
{
    const ckpt_tensor_info *t = &s->tensor->info;
    size_t count = ckpt__view_count(s->tensor);
    ckpt__piece *rows = rows_of(p, count);
    int64_t *boxes = ckpt__arena_array(p->arena, 2 * count + 1, sizeof *boxes);
    if (!rows || !boxes)
        return no_memory(err);
    for (size_t i = 0; i < count; i++, boxes += 2) {
        ckpt__view v = ckpt__view_of(x, s->tensor, i);
        uint64_t numel = 0;
        rows[i] = (ckpt__piece){.box = boxes, .at = v.at, .storage = v.storage};
        rows[i].flags = v.replica ? CKPT__PIECE_REPLICA : 0;
        if (v.flat) {
            boxes[0] = (int64_t)v.begin;
            boxes[1] = (int64_t)v.count;
        } else if (v.lo)
            ckpt__box_range(t->ndim, t->shape, v.lo, v.size, &boxes[0], &boxes[1]);
        else if (ckpt__numel(t->shape, t->ndim, &numel))
            boxes[1] = (int64_t)numel;
    }
    s->rows = rows;
    s->count = count;
    return CKPT_OK;
}

/* The boxes of pieces that are ranges, while they are cut. */
typedef struct cutter {
    ckpt__plan *plan;
    const ckpt_tensor_info *info;
    const int64_t *strides; /* of the tensor in C order */
    ckpt__view view;        /* the range */
    ckpt__piece *rows;      /* heap, owned */
    size_t count, capacity;
} cutter;

static ckpt_status take_cut(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    cutter *c = ctx;
    uint32_t n = c->info->ndim;
    int64_t *box = ckpt__arena_array(c->plan->arena, 3 * (size_t)n + 1, sizeof *box);
    if (!box || !ckpt__grow(&c->rows, &c->capacity, c->count + 1, sizeof *c->rows))
        return no_memory(err);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        box[i] = lo[i];
        box[n + i] = size[i];
        box[2 * n + i] = c->strides[i];
        at += (uint64_t)lo[i] * (uint64_t)c->strides[i];
    }
    unsigned bits = ckpt_dtype_bits(c->info->dtype);
    c->rows[c->count++] = (ckpt__piece){.box = box,
                                        .at = c->view.at + (at - c->view.begin) * bits / 8,
                                        .storage = c->view.storage,
                                        .flags = CKPT__PIECE_STRIDED | (c->view.replica ? CKPT__PIECE_REPLICA : 0)};
    return CKPT_OK;
}

/* Pieces that are ranges become boxes, the others stay. */
static ckpt_status make_boxes(ckpt__plan *p, const ckpt__index *x, ckpt__side *s, ckpt_error *err)
{
    const ckpt_tensor_info *t = &s->tensor->info;
    int64_t strides[CKPT__BOX_MAX];
    cutter c = {.plan = p, .info = t, .strides = strides};
    ckpt_status status = CKPT_OK;
    ckpt__c_strides(t->shape, t->ndim, strides);
    for (size_t i = 0; status == CKPT_OK && i < s->tensor->piece_count; i++) {
        c.view = ckpt__view_of(x, s->tensor, i);
        if (c.view.flat)
            status =
                ckpt__box_cut_flat(t->ndim, t->shape, c.view.begin, c.view.begin + c.view.count, take_cut, &c, err);
        else if (!ckpt__grow(&c.rows, &c.capacity, c.count + 1, sizeof *c.rows))
            status = no_memory(err);
        else
            c.rows[c.count++] = x->pieces[s->tensor->first_piece + i];
    }
    ckpt__piece *rows = status == CKPT_OK ? rows_of(p, c.count) : NULL;
    if (rows && c.count)
        memcpy(rows, c.rows, c.count * sizeof *rows);
    s->rows = rows;
    s->count = c.count;
    free(c.rows);
    return status == CKPT_OK && !rows ? no_memory(err) : status;
}

/* A tensor that is whole is one box, with its strides. */
static ckpt_status make_whole(ckpt__plan *p, const ckpt__index *x, ckpt__side *s, ckpt_error *err)
{
    const ckpt_tensor_info *t = &s->tensor->info;
    ckpt__piece *row = rows_of(p, 1);
    int64_t *box = ckpt__arena_array(p->arena, 3 * (size_t)t->ndim + 1, sizeof *box);
    if (!row || !box)
        return no_memory(err);
    for (uint32_t i = 0; i < t->ndim; i++) {
        box[t->ndim + i] = t->shape[i];
        box[2 * t->ndim + i] = t->strides[i];
    }
    *row = (ckpt__piece){.box = box,
                         .at = ckpt__view_of(x, s->tensor, 0).at,
                         .storage = s->tensor->storage,
                         .flags = CKPT__PIECE_STRIDED};
    s->rows = row;
    s->count = t->nbytes ? 1 : 0;
    return CKPT_OK;
}

void ckpt__side_row(const ckpt__side *s, size_t row, ckpt__lie *out)
{
    const ckpt__piece *p = &s->rows[row];
    out->n = s->n;
    out->lo = p->box;
    out->size = p->box + s->n;
    out->at = p->at;
    out->storage = p->storage;
    out->strided = !s->flat && p->flags & CKPT__PIECE_STRIDED;
    if (out->strided)
        memcpy(out->strides, p->box + 2 * (size_t)s->n, s->n * sizeof *out->strides);
    else
        ckpt__c_strides(out->size, s->n, out->strides);
}

/* ---- replicas */

typedef struct order {
    const ckpt__index *index;
    const ckpt__side *side;
} order;

static int by_box(const void *a, const void *b, void *ctx)
{
    const order *o = ctx;
    const ckpt__piece *p = &o->side->rows[*(const uint32_t *)a], *q = &o->side->rows[*(const uint32_t *)b];
    for (uint32_t i = 0; p->box != q->box && i < 2 * o->side->n; i++)
        if (p->box[i] != q->box[i])
            return p->box[i] < q->box[i] ? -1 : 1;
    const ckpt__extent *e = &o->index->storages[p->storage].extent, *f = &o->index->storages[q->storage].extent;
    if (e->file != f->file)
        return e->file < f->file ? -1 : 1;
    uint64_t x = ckpt__extent_begin(e) + p->at, y = ckpt__extent_begin(f) + q->at;
    if (x != y)
        return x < y ? -1 : 1;
    return p < q ? -1 : p > q;
}

/* Of boxes that are the same, and say that they may be, the first in the files is read. */
static ckpt_status leave_out(ckpt__plan *p, const ckpt__index *x, ckpt__side *s, ckpt_error *err)
{
    bool any = false;
    for (size_t i = 0; i < s->count; i++)
        any |= (s->rows[i].flags & CKPT__PIECE_REPLICA) != 0;
    if (!any || s->count < 2)
        return CKPT_OK;
    uint32_t *rows = malloc(s->count * sizeof *rows);
    s->left_out = ckpt__arena_alloc(p->arena, s->count);
    if (!rows || !s->left_out) {
        free(rows);
        return no_memory(err);
    }
    for (size_t i = 0; i < s->count; i++)
        rows[i] = (uint32_t)i;
    order o = {x, s};
    qsort_r(rows, s->count, sizeof *rows, by_box, &o);
    for (size_t i = 1, kept = 0; i < s->count; i++) {
        const ckpt__piece *a = &s->rows[rows[kept]], *b = &s->rows[rows[i]];
        bool same = a->flags & b->flags & CKPT__PIECE_REPLICA &&
                    (a->box == b->box || memcmp(a->box, b->box, 2 * (size_t)s->n * sizeof *a->box) == 0);
        if (same) {
            s->left_out[rows[i]] = 1;
            p->totals.replicas++;
        } else
            kept = i;
    }
    free(rows);
    return CKPT_OK;
}

/* ---- finding rows */

static void box_of(const void *ctx, size_t row, int64_t *lo, int64_t *size)
{
    const ckpt__side *s = ctx;
    const ckpt__piece *p = &s->rows[row];
    bool out = s->left_out && s->left_out[row];
    for (uint32_t i = 0; i < s->n; i++) {
        lo[i] = p->box[i];
        size[i] = out ? 0 : p->box[s->n + i];
    }
}

static uint64_t end_along(const ckpt__side *s, const int64_t *box)
{
    return (uint64_t)box[s->along] + (uint64_t)box[s->n + s->along];
}

/* The first dimension in which two rows differ; 0: they do not. */
static uint32_t dimension_between(const ckpt__side *s, const int64_t *a, const int64_t *b)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (a[i] != b[i])
            return i;
    return 0;
}

static bool is_alike_else(const ckpt__side *s, const int64_t *a, const int64_t *b)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (i != s->along && (a[i] != b[i] || a[s->n + i] != b[s->n + i]))
            return false;
    return true;
}

/* Do the rows lie one behind the other along one dimension, and are alike in the others? Then none meets another, and those that meet a
 * box are side by side. Ranges, and the slabs that most tensors are cut into, need no tree. */
static bool are_sorted(ckpt__side *s)
{
    if (s->n == 0 || s->n > CKPT__BOX_MAX || s->count < 2 || s->left_out)
        return false;
    s->along = dimension_between(s, s->rows[0].box, s->rows[1].box);
    bool sorted = true;
    for (size_t i = 1; sorted && i < s->count; i++) {
        const int64_t *before = s->rows[i - 1].box, *box = s->rows[i].box;
        sorted = (uint64_t)box[s->along] >= end_along(s, before) && is_alike_else(s, before, box);
    }
    return sorted;
}

static ckpt_status each_sorted(const ckpt__side *s, const int64_t *lo, const int64_t *size, ckpt__meet_fn *fn,
                               void *ctx, uint64_t *work, ckpt_error *err)
{
    const uint64_t begin = (uint64_t)lo[s->along], end = begin + (uint64_t)size[s->along];
    int64_t meet_lo[CKPT__BOX_MAX], meet_size[CKPT__BOX_MAX];
    size_t first = 0, behind = s->count; /* the first row that ends behind lo is in [first, behind] */
    while (first < behind) {
        const size_t middle = first + (behind - first) / 2;
        if (end_along(s, s->rows[middle].box) > begin)
            behind = middle;
        else
            first = middle + 1;
        ++*work;
    }
    ckpt_status status = CKPT_OK;
    for (size_t i = first; status >= 0 && i < s->count; i++) {
        const int64_t *box = s->rows[i].box;
        if ((uint64_t)box[s->along] >= end)
            break;
        ++*work;
        if (ckpt__box_meet(s->n, lo, size, box, box + s->n, meet_lo, meet_size))
            status = fn(ctx, i, meet_lo, meet_size, err);
    }
    return status < 0 ? status : CKPT_OK;
}

ckpt_status ckpt__side_each(const ckpt__side *s, const int64_t *lo, const int64_t *size, ckpt__meet_fn *fn, void *ctx,
                            uint64_t *work, ckpt_error *err)
{
    int64_t meet_lo[CKPT__BOX_MAX], meet_size[CKPT__BOX_MAX];
    if (s->sorted)
        return each_sorted(s, lo, size, fn, ctx, work, err);
    if (s->tree)
        return ckpt__boxes_each(s->tree, lo, size, fn, ctx, work, err);
    if (s->count == 1 && ckpt__box_meet(s->n, lo, size, s->rows->box, s->rows->box + s->n, meet_lo, meet_size))
        return fn(ctx, 0, meet_lo, meet_size, err);
    return CKPT_OK;
}

/* ---- the proofs */

static ckpt_status too_much(const ckpt_tensor_info *t, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_LIMIT, t->name.data,
                      "its pieces take more than %d comparisons: far more than a checkpoint's do", MOST_WORK);
}

/* "rows 4 to 7" is what people read, a corner and sizes are what every box has. */
static void box_text(char *out, size_t size, const ckpt__side *s, const int64_t *box)
{
    char lo[150], extent[150];
    ckpt__shape_text(lo, sizeof lo, box, s->n);
    ckpt__shape_text(extent, sizeof extent, box + s->n, s->n);
    snprintf(out, size, s->flat ? "the elements from %s on, %s of them" : "the box at %s of size %s", lo, extent);
}

typedef struct proof {
    const ckpt__side *side;
    size_t row;      /* that is asked for */
    size_t other;    /* a row that it meets; SIZE_MAX: none */
    uint64_t volume; /* of what it meets */
    uint64_t meets;
} proof;

static ckpt_status meet_other(void *ctx, size_t row, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    proof *p = ctx;
    (void)lo;
    (void)size;
    (void)err;
    if (row != p->row && p->other == SIZE_MAX)
        p->other = row;
    return CKPT_OK;
}

static ckpt_status prove_apart(ckpt__plan *plan, const ckpt__index *x, const ckpt__side *s, ckpt_error *err)
{
    const ckpt_tensor_info *t = &s->tensor->info;
    const uint32_t *rows = s->tree ? ckpt__boxes_order(s->tree) : NULL;
    for (size_t i = 0; rows && i < s->count; i++) {
        proof p = {.side = s, .row = rows[i], .other = SIZE_MAX};
        if (s->left_out && s->left_out[p.row])
            continue;
        const int64_t *box = s->rows[p.row].box;
        ckpt_status status = ckpt__boxes_each(s->tree, box, box + s->n, meet_other, &p, &plan->work, err);
        if (status < 0)
            return status;
        if (plan->work > MOST_WORK)
            return too_much(t, err);
        if (p.other == SIZE_MAX)
            continue;
        char one[400], two[400];
        box_text(one, sizeof one, s, box);
        box_text(two, sizeof two, s, s->rows[p.other].box);
        const ckpt__storage *a = &x->storages[s->rows[p.row].storage], *b = &x->storages[s->rows[p.other].storage];
        return ckpt__fail(err, CKPT_E_MISMATCH, t->name.data,
                          "two of its pieces have the same elements and may differ: %s (in %s) and %s (in %s)", one,
                          a->name.data ? a->name.data : "a storage", two, b->name.data ? b->name.data : "a storage");
    }
    return CKPT_OK;
}

static ckpt_status add_volume(void *ctx, size_t row, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    proof *p = ctx;
    uint64_t volume = 0;
    (void)row;
    (void)lo;
    if (!ckpt__box_volume(p->side->n, size, &volume))
        return ckpt__fail(err, CKPT_E_FORMAT, p->side->tensor->info.name.data, "a piece of it overflows 64 bits");
    p->volume += volume;
    p->meets++;
    return CKPT_OK;
}

/* Disjoint sources whose volumes add up to that of a row have all of it, and each element once. */
static ckpt_status prove_covered(ckpt__plan *plan, const ckpt__side *from, const ckpt__side *to, ckpt_error *err)
{
    const ckpt_tensor_info *t = &to->tensor->info;
    const uint32_t *rows = to->tree ? ckpt__boxes_order(to->tree) : NULL;
    for (size_t i = 0; i < to->count; i++) {
        const int64_t *box = to->rows[rows ? rows[i] : i].box;
        proof p = {.side = to};
        uint64_t volume = 0;
        ckpt_status status = ckpt__box_volume(to->n, box + to->n, &volume)
                                 ? ckpt__side_each(from, box, box + to->n, add_volume, &p, &plan->work, err)
                                 : CKPT_OK;
        if (status < 0)
            return status;
        if (plan->work > MOST_WORK)
            return too_much(t, err);
        plan->totals.meets += p.meets;
        if (p.volume == volume)
            continue;
        char text[400];
        box_text(text, sizeof text, to, box);
        return ckpt__fail(err, CKPT_E_MISMATCH, from->tensor->info.name.data,
                          "its pieces have %llu of the %llu elements of %s: the others are in no file",
                          (unsigned long long)p.volume, (unsigned long long)volume, text);
    }
    return CKPT_OK;
}

/* ---- one side */

static ckpt_status make_side(ckpt__plan *p, const ckpt__index *x, ckpt__side *s, ckpt_error *err)
{
    const ckpt_tensor_info *t = &s->tensor->info;
    bool cut = false, ranges = s->tensor->piece_count > 0; /* some piece is a range; all are */
    for (size_t i = 0; i < s->tensor->piece_count; i++) {
        const bool flat = (x->pieces[s->tensor->first_piece + i].flags & CKPT__PIECE_FLAT) != 0;
        cut |= flat;
        ranges &= flat;
    }
    s->n = s->flat ? 1 : t->ndim;
    s->rows = s->tensor->piece_count ? &x->pieces[s->tensor->first_piece] : NULL;
    s->count = s->tensor->piece_count;
    ckpt_status status = s->flat && ranges  ? CKPT_OK /* the index's own rows say it */
                         : s->flat          ? make_ranges(p, x, s, err)
                         : s->tensor->whole ? make_whole(p, x, s, err)
                         : cut              ? make_boxes(p, x, s, err)
                                            : CKPT_OK;
    if (status == CKPT_OK && !s->target)
        status = leave_out(p, x, s, err);
    s->sorted = status == CKPT_OK && are_sorted(s);
    return status;
}

static ckpt_status add_volumes(const ckpt__side *s, uint64_t *out, ckpt_error *err)
{
    proof p = {.side = s};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++)
        if (!s->left_out || !s->left_out[i])
            status = add_volume(&p, i, NULL, s->rows[i].box + s->n, err);
    *out = p.volume;
    return status;
}

ckpt_status ckpt__plan_cover(const ckpt__index *x, size_t tensor, uint64_t *elements, ckpt_error *err)
{
    ckpt__plan p = {.want = {.from = x}, .arena = ckpt__arena_new(0)};
    ckpt__side s = {.tensor = &x->tensors[tensor]};
    bool any = false;
    s.flat = (is_flat(x, s.tensor, &any) && any) || s.tensor->info.ndim == 0;
    ckpt_status status = p.arena ? make_side(&p, x, &s, err) : no_memory(err);
    if (status == CKPT_OK && s.count > 1 && !s.sorted)
        status = ckpt__boxes_new(s.n, s.count, box_of, &s, &s.tree, err);
    if (status == CKPT_OK)
        status = prove_apart(&p, x, &s, err);
    if (status == CKPT_OK)
        status = add_volumes(&s, elements, err);
    ckpt__boxes_free(s.tree);
    ckpt__arena_free(p.arena);
    return status;
}

/* ---- all of them */

/* The number of the side, which is made and proved where no bond needed it before. Sides move as they grow: the tree, which borrows
 * its side, is made when all are there. */
static ckpt_status side_number(ckpt__plan *p, bool target, uint32_t tensor, bool flat, uint32_t *out, ckpt_error *err)
{
    const ckpt__index *x = target ? p->want.to : p->want.from;
    uint32_t **known = &p->side_of[target][flat];
    if (!*known) {
        if (!(*known = malloc((x->tensor_count + 1) * sizeof **known)))
            return no_memory(err);
        memset(*known, 0xff, x->tensor_count * sizeof **known);
    }
    if (((*out = (*known)[tensor])) != UINT32_MAX)
        return CKPT_OK;
    if (!ckpt__grow(&p->sides, &p->side_capacity, p->side_count + 1, sizeof *p->sides))
        return no_memory(err);
    ckpt__side *s = &p->sides[p->side_count];
    *s = (ckpt__side){.tensor = &x->tensors[tensor], .target = target, .flat = flat};
    ckpt_status status = make_side(p, x, s, err);
    *out = (*known)[tensor] = (uint32_t)p->side_count++;
    return status;
}

static ckpt_status sides_of_bond(ckpt__plan *p, size_t i, ckpt_error *err)
{
    const ckpt__bond *b = &p->want.bonds[i];
    bool any = false, flat;
    if (b->flags & CKPT__BOND_STORAGE) /* its numbers are those of storages */
        return CKPT_OK;
    const ckpt__tensor *from = &p->want.from->tensors[b->from], *to = &p->want.to->tensors[b->to];
    if ((from->whole && to->whole) || to->info.nbytes == 0 || ckpt__has_no_bytes(to))
        return CKPT_OK;
    if (!p->of_bond) {
        if (!(p->of_bond = malloc((p->want.bond_count + 1) * sizeof *p->of_bond)))
            return no_memory(err);
        memset(p->of_bond, 0xff, p->want.bond_count * sizeof *p->of_bond);
    }
    if (!p->arena && !(p->arena = ckpt__arena_new(0)))
        return no_memory(err);
    flat = is_flat(p->want.from, from, &any) && is_flat(p->want.to, to, &any) && any;
    flat |= to->info.ndim == 0; /* one element is a range, and a box of no dimensions cannot be empty */
    ckpt_status status = side_number(p, false, b->from, flat, &p->of_bond[i][0], err);
    return status == CKPT_OK ? side_number(p, true, b->to, flat, &p->of_bond[i][1], err) : status;
}

ckpt_status ckpt__plan_make_sides(ckpt__plan *p, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < p->want.bond_count; i++)
        status = sides_of_bond(p, i, err);
    if (p->side_count == 0)
        return status;
    for (size_t i = 0; status == CKPT_OK && i < p->side_count; i++) {
        ckpt__side *s = &p->sides[i];
        if (s->count > 1 && !s->sorted && (!s->target || p->want.push || p->want.runs))
            status = ckpt__boxes_new(s->n, s->count, box_of, s, &s->tree, err);
        if (status == CKPT_OK && !s->target)
            status = prove_apart(p, p->want.from, s, err);
    }
    for (size_t i = 0; status == CKPT_OK && p->of_bond && i < p->want.bond_count; i++)
        if (p->of_bond[i][0] != UINT32_MAX)
            status = prove_covered(p, ckpt__side_of_bond(p, i, false), ckpt__side_of_bond(p, i, true), err);
    for (int target = 0; target < 2; target++)
        for (int flat = 0; flat < 2; flat++) {
            free(p->side_of[target][flat]);
            p->side_of[target][flat] = NULL;
        }
    return status;
}

void ckpt__plan_free_sides(ckpt__plan *p)
{
    for (size_t i = 0; i < p->side_count; i++)
        ckpt__boxes_free(p->sides[i].tree);
    free(p->sides);
    free(p->of_bond);
    for (int target = 0; target < 2; target++)
        for (int flat = 0; flat < 2; flat++)
            free(p->side_of[target][flat]);
}
