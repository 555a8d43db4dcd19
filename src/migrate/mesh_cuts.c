/* migrate/mesh_cuts.c - the boxes in which tensors lie in the files of ranks, and which rank has which: one table for all tensors that
 * are cut alike (format/dcp/write.h). */
#include "migrate/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/box.h"

enum {
    MOST_BOXES = 1 << 20 /* of one tensor */
};

/* One box, and the parts that it is of: ranks at the same place along the axes that cut have one part. */
typedef struct boxed {
    const int64_t *lo, *size; /* in the scratch arena */
    size_t part;
} boxed;

typedef struct tabling {
    const ckpt__meshed *d;
    const ckpt__mesh_rule *rule;
    const ckpt_tensor_info *t;
    ckpt__arena *arena, *scratch, *own; /* the table; what is of no use behind it; and behind one part */
    size_t parts;                       /* places along the axes that cut */
    int64_t step[CKPT__MESH_AXES];      /* of an axis that cuts: what a step along it is in numbers of parts; else 0 */
    boxed *boxes;
    size_t count, capacity; /* heap */
    ckpt_error *err;
} tabling;

static ckpt_status no_memory(const tabling *x)
{
    return ckpt__migration_no_memory(x->err);
}

/* ---- parts */

static void find_axes(tabling *x)
{
    x->parts = 1;
    for (size_t i = x->rule->count; i-- > 0;) {
        const size_t axis = x->rule->cuts[i].axis;
        x->step[axis] = (int64_t)x->parts;
        x->parts *= (size_t)x->d->mesh.axes[axis].size;
    }
}

static size_t part_of_rank(const tabling *x, uint32_t rank)
{
    int64_t at[CKPT__MESH_AXES], part = 0;
    ckpt__rank_mesh_coordinates(&x->d->mesh, rank, at);
    for (size_t a = 0; a < x->d->mesh.count; a++)
        part += at[a] * x->step[a];
    return (size_t)part;
}

/* The first rank that has it. */
static uint32_t rank_of_part(const tabling *x, size_t part)
{
    int64_t at[CKPT__MESH_AXES] = {0};
    for (size_t i = 0; i < x->rule->count; i++) {
        const size_t axis = x->rule->cuts[i].axis;
        at[axis] = (int64_t)part / x->step[axis] % x->d->mesh.axes[axis].size;
    }
    return ckpt__rank_mesh_rank(&x->d->mesh, at);
}

static ckpt_status add_box(tabling *x, const int64_t *lo, const int64_t *size, size_t part)
{
    const size_t n = x->t->ndim;
    int64_t *kept = ckpt__arena_array(x->scratch, 2 * n + 1, sizeof *kept);
    if (x->count == MOST_BOXES)
        return ckpt__fail(x->err, CKPT_E_LIMIT, x->t->name.data, "the mesh cuts it into more than %d boxes",
                          (int)MOST_BOXES);
    if (!kept || !ckpt__grow(&x->boxes, &x->capacity, x->count + 1, sizeof *x->boxes))
        return no_memory(x);
    memcpy(kept, lo, n * sizeof *kept);
    memcpy(kept + n, size, n * sizeof *kept);
    x->boxes[x->count++] = (boxed){kept, kept + n, part};
    return CKPT_OK;
}

/* Of a rank that has nothing an empty box: torch counts those, too. */
static ckpt_status add_part(tabling *x, size_t part)
{
    ckpt__rank_part p;
    const ckpt__arena_mark mark = ckpt__arena_note(x->own);
    ckpt_status status = ckpt__rank_part_of(&x->d->mesh, x->rule->cuts, x->rule->count, x->t->ndim, x->t->shape,
                                            rank_of_part(x, part), x->own, &p, x->err);
    if (status < 0 && status != CKPT_E_NO_MEMORY) {
        if (x->rule->glob)
            ckpt__error_prefix(x->err, "--cut '%s'", x->rule->glob);
        ckpt__error_object(x->err, x->t->name.data);
    }
    for (size_t k = 0; status == CKPT_OK && k < p.count; k++)
        status = add_box(x, p.boxes[k].lo, p.boxes[k].size, part);
    if (status == CKPT_OK && p.count == 0)
        status = add_box(x, p.lo, p.shape, part);
    ckpt__arena_rewind(x->own, &mark);
    return status;
}

/* ---- the table */

static int by_place(const void *a, const void *b, void *ctx)
{
    const boxed *x = a, *y = b;
    const uint32_t n = *(const uint32_t *)ctx;
    for (uint32_t d = 0; d < n; d++)
        if (x->lo[d] != y->lo[d])
            return x->lo[d] < y->lo[d] ? -1 : 1;
    for (uint32_t d = 0; d < n; d++)
        if (x->size[d] != y->size[d])
            return x->size[d] < y->size[d] ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

/* Sorted; and of each the number of the box: empty ones of several parts may be one. */
static size_t number_boxes(tabling *x, uint32_t *numbers)
{
    const uint32_t n = x->t->ndim;
    size_t count = 0;
    qsort_r(x->boxes, x->count, sizeof *x->boxes, by_place, (void *)(uintptr_t)&n);
    for (size_t i = 0; i < x->count; i++) {
        const boxed *a = &x->boxes[i], *b = i ? &x->boxes[i - 1] : NULL;
        const bool same =
            b && memcmp(a->lo, b->lo, n * sizeof *a->lo) == 0 && memcmp(a->size, b->size, n * sizeof *a->size) == 0;
        count += !same;
        numbers[i] = (uint32_t)count - 1;
    }
    return count;
}

static ckpt_status fill_boxes(const tabling *x, const uint32_t *numbers, size_t count, ckpt__dcp_cut *out)
{
    const uint32_t n = x->t->ndim;
    int64_t *boxes = ckpt__arena_array(x->arena, 2 * count * n + 1, sizeof *boxes);
    uint64_t *begin = ckpt__arena_array(x->arena, count + 1, sizeof *begin);
    if (!boxes || !begin)
        return no_memory(x);
    *out = (ckpt__dcp_cut){.ndim = n, .count = count, .boxes = boxes, .begin = begin, .ranges = true};
    for (size_t i = 0; i < x->count; i++) {
        const size_t k = numbers[i];
        uint64_t volume = 0;
        int64_t from = 0, some = 0;
        if (i && numbers[i - 1] == k)
            continue;
        memcpy(boxes + 2 * k * n, x->boxes[i].lo, n * sizeof *boxes);
        memcpy(boxes + (2 * k + 1) * n, x->boxes[i].size, n * sizeof *boxes);
        (void)ckpt__box_volume(n, x->boxes[i].size, &volume);
        begin[k + 1] = begin[k] + volume;
        if (volume)
            out->ranges = out->ranges &&
                          ckpt__box_range(n, x->t->shape, x->boxes[i].lo, x->boxes[i].size, &from, &some) &&
                          (uint64_t)from == begin[k];
    }
    return CKPT_OK;
}

/* Lists one behind the other: first[i] becomes where list i begins, of what were the lengths. */
static void to_starts(size_t *first, size_t count)
{
    size_t sum = 0;
    for (size_t i = 0; i <= count; i++) {
        const size_t n = i < count ? first[i] : 0;
        first[i] = sum;
        sum += n;
    }
}

/* numbers: of the boxes of part p, from first[p] on. */
static ckpt_status fill_ranks(const tabling *x, const uint32_t *numbers, const size_t *first, ckpt__dcp_cut *out)
{
    const uint32_t world = ckpt__rank_mesh_world(&x->d->mesh);
    size_t *holder = ckpt__arena_array(x->arena, out->count + 2, sizeof *holder),
           *held = ckpt__arena_array(x->arena, (size_t)world + 2, sizeof *held);
    if (!holder || !held)
        return no_memory(x);
    for (uint32_t r = 0; r < world; r++) {
        const size_t part = part_of_rank(x, r);
        held[r] = first[part + 1] - first[part];
        for (size_t i = first[part]; i < first[part + 1]; i++)
            holder[numbers[i]]++;
    }
    to_starts(holder, out->count);
    to_starts(held, world);
    uint32_t *holders = ckpt__arena_array(x->arena, holder[out->count] + 1, sizeof *holders),
             *boxes = ckpt__arena_array(x->arena, held[world] + 1, sizeof *boxes);
    size_t *next = ckpt__arena_array(x->scratch, out->count + 1, sizeof *next);
    if (!holders || !boxes || !next)
        return no_memory(x);
    for (uint32_t r = 0; r < world; r++) {
        const size_t part = part_of_rank(x, r);
        for (size_t i = first[part]; i < first[part + 1]; i++) {
            const uint32_t k = numbers[i];
            holders[holder[k] + next[k]++] = r;
            boxes[held[r] + (i - first[part])] = k;
        }
    }
    out->holders = holders;
    out->first_holder = holder;
    out->held = boxes;
    out->first_held = held;
    return CKPT_OK;
}

/* The numbers of the boxes by their parts, in ascending order. */
static ckpt_status by_parts(const tabling *x, const uint32_t *numbers, uint32_t **out, size_t **first)
{
    size_t *starts = ckpt__arena_array(x->scratch, x->parts + 2, sizeof *starts),
           *next = ckpt__arena_array(x->scratch, x->parts + 1, sizeof *next);
    uint32_t *sorted = ckpt__arena_array(x->scratch, x->count + 1, sizeof *sorted);
    if (!starts || !next || !sorted)
        return no_memory(x);
    for (size_t i = 0; i < x->count; i++)
        starts[x->boxes[i].part]++;
    to_starts(starts, x->parts);
    for (size_t i = 0; i < x->count; i++) {
        const size_t part = x->boxes[i].part;
        sorted[starts[part] + next[part]++] = numbers[i];
    }
    *out = sorted;
    *first = starts;
    return CKPT_OK;
}

static ckpt_status make_table(tabling *x, ckpt__dcp_cut *out)
{
    uint32_t *numbers = NULL, *sorted = NULL;
    size_t *first = NULL;
    ckpt_status status = CKPT_OK;
    find_axes(x);
    for (size_t p = 0; status == CKPT_OK && p < x->parts; p++)
        status = add_part(x, p);
    if (status == CKPT_OK && !(numbers = ckpt__arena_array(x->scratch, x->count + 1, sizeof *numbers)))
        status = no_memory(x);
    if (status == CKPT_OK)
        status = fill_boxes(x, numbers, number_boxes(x, numbers), out);
    if (status == CKPT_OK)
        status = by_parts(x, numbers, &sorted, &first);
    return status == CKPT_OK ? fill_ranks(x, sorted, first, out) : status;
}

/* ---- of all tensors */

/* Does a box of it have whole bytes, and is there anything to cut? */
static bool can_be_cut(const ckpt_tensor_info *t, const ckpt__mesh_rule *rule)
{
    return rule && rule->count && t->ndim && t->nbytes && ckpt_dtype_bits(t->dtype) % 8 == 0;
}

/* The table for the tensor: one that is there, or a new one. */
static ckpt_status find_table(ckpt__meshed *d, const ckpt__mesh_rule *rule, const ckpt_tensor_info *t,
                              const ckpt__dcp_cut **out, ckpt_error *err)
{
    tabling x = {.d = d, .rule = rule, .t = t, .arena = d->arena, .err = err};
    const size_t n = t->ndim, bytes = (n + 1) * sizeof(int64_t);
    int64_t *key = ckpt__arena_array(d->arena, n + 1, sizeof *key);
    size_t number = 0;
    if (!key)
        return ckpt__migration_no_memory(err);
    memcpy(key, t->shape, n * sizeof *key);
    key[n] = (int64_t)(rule == &d->none ? -1 : rule - d->rules);
    if (ckpt__hash_get(d->kinds, (const char *)key, bytes, &number)) {
        *out = d->kind[number];
        return CKPT_OK;
    }
    ckpt__dcp_cut *cut = ckpt__arena_alloc(d->arena, sizeof *cut);
    x.scratch = ckpt__arena_new(0);
    x.own = ckpt__arena_new(0);
    ckpt_status status =
        cut && x.scratch && x.own && ckpt__grow(&d->kind, &d->kind_capacity, d->kind_count + 1, sizeof *d->kind)
            ? make_table(&x, cut)
            : ckpt__migration_no_memory(err);
    if (status == CKPT_OK && ckpt__hash_put(d->kinds, (const char *)key, bytes, d->kind_count, NULL) < 0)
        status = ckpt__migration_no_memory(err);
    if (status == CKPT_OK)
        *out = d->kind[d->kind_count++] = cut;
    ckpt__arena_free(x.scratch);
    ckpt__arena_free(x.own);
    free(x.boxes);
    return status;
}

/* As many ranks as are asked for, else as many as wrote the source: their rows. */
static ckpt_status take_world(const ckpt__migration *m, ckpt__meshed *d, ckpt_error *err)
{
    const int64_t saved = m->from->job.ranks;
    const uint32_t wanted = m->options.target_world;
    static const ckpt__rank_cut rows = {.groups = 1};
    if (wanted > CKPT__MESH_RANKS)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "a target for %u ranks: at most %d are written",
                          (unsigned)wanted, (int)CKPT__MESH_RANKS);
    const int64_t world = wanted ? wanted : saved > 0 && saved <= CKPT__MESH_RANKS ? saved : 1;
    d->mesh = (ckpt__rank_mesh){.count = 1, .axes = {{{"ranks", 5}, world}}};
    d->none = (ckpt__mesh_rule){.cuts = &rows, .count = world > 1};
    return CKPT_OK;
}

static ckpt_status make_all(ckpt__migration *m, ckpt__meshed *d, ckpt_error *err)
{
    const size_t count = m->index->tensor_count;
    d->kinds = ckpt__hash_new(64);
    d->cuts = calloc(count + 1, sizeof(const ckpt__dcp_cut *));
    ckpt_status status = d->kinds && d->cuts ? CKPT_OK : ckpt__migration_no_memory(err);
    if (status == CKPT_OK && !d->is_mesh)
        status = take_world(m, d, err);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        const ckpt_tensor_info *t = &m->index->tensors[i].info;
        const ckpt__mesh_rule *rule = !d->is_mesh ? &d->none : i < d->tensor_count ? d->rule_of[i] : NULL;
        if (can_be_cut(t, rule) && !ckpt__stays_behind(m, i))
            status = find_table(d, rule, t, &d->cuts[i], err);
    }
    if (status == CKPT_OK)
        d->ranks = (ckpt__dcp_ranks){
            .count = ckpt__rank_mesh_world(&d->mesh), .cuts = d->cuts, .cut_count = count, .spread = d->is_mesh};
    return status;
}

ckpt_status ckpt__mesh_ranks(ckpt__migration *m, const ckpt__dcp_ranks **out, ckpt_error *err)
{
    if (!m->meshed && (!(m->meshed = calloc(1, sizeof *m->meshed)) || !(m->meshed->arena = ckpt__arena_new(0))))
        return ckpt__migration_no_memory(err);
    ckpt_status status = m->meshed->ranks.count ? CKPT_OK : make_all(m, m->meshed, err);
    *out = &m->meshed->ranks;
    return status;
}
