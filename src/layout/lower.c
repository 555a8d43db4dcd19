/* layout/lower.c - the steps of a rule, on pieces: forth to the second side, or back from it. */
#include "layout/parts.h"

#include <stdio.h>

/* The tensors on their way: those of the one side at the beginning, of the other at the end. */
typedef struct lowering {
    const ckpt__layout_match *m;
    const ckpt__layout_rule *rule;
    const ckpt__step *step;
    ckpt__arena *a;
    uint32_t zero;
    ckpt__lay *now;
    size_t count;
    size_t outputs;     /* of a cut: how many */
    const size_t *grid; /* of a stack: how many along each of its dimensions */
    ckpt_error *err;
} lowering;

static ckpt_status numbers(const lowering *w, const ckpt__formula *f, size_t count, int64_t *out)
{
    char why[400];
    for (size_t i = 0; i < count; i++)
        if (!ckpt__formula_eval(&f[i], ckpt__layout_value, w->m, &out[i], why, sizeof why))
            return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "%s: %s", f[i].text.data, why);
    return CKPT_OK;
}

/* ---- of one tensor */

static ckpt_status transpose(lowering *w, ckpt__lay *lay, bool back)
{
    uint32_t order[CKPT__LAY_DIMS];
    if (w->step->order_count != lay->ndim)
        return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "it has %u dimensions, and an order of %zu is given",
                          lay->ndim, w->step->order_count);
    for (uint32_t d = 0; d < lay->ndim; d++)
        order[back ? w->step->order[d] : d] = back ? d : w->step->order[d];
    return ckpt__lay_permute(w->a, lay, order, lay, w->err);
}

static ckpt_status reorder(lowering *w, ckpt__lay *lay, bool back)
{
    const ckpt__step *s = w->step;
    int64_t sizes[CKPT__LAY_DIMS], now[CKPT__LAY_DIMS];
    uint32_t order[CKPT__LAY_DIMS + CKPT__LAY_DIMS];
    ckpt_status status = numbers(w, s->sizes, s->size_count, sizes);
    for (size_t i = 0; status == CKPT_OK && i < s->size_count; i++)
        now[i] = back ? sizes[s->order[i]] : sizes[i];
    if (status == CKPT_OK)
        status = ckpt__lay_split(w->a, lay, s->dim, now, s->size_count, lay, w->err);
    for (uint32_t d = 0; status == CKPT_OK && d < lay->ndim; d++)
        order[d] = d;
    for (uint32_t i = 0; status == CKPT_OK && i < s->size_count; i++)
        order[s->dim + (back ? s->order[i] : i)] = s->dim + (back ? i : s->order[i]);
    if (status == CKPT_OK)
        status = ckpt__lay_permute(w->a, lay, order, lay, w->err);
    return status == CKPT_OK ? ckpt__lay_merge(w->a, lay, s->dim, s->size_count, lay, w->err) : status;
}

/* Several dimensions of these sizes become one. */
static ckpt_status merge(lowering *w, ckpt__lay *lay, const int64_t *sizes)
{
    const ckpt__step *s = w->step;
    for (size_t i = 0; i < s->size_count; i++)
        if (s->dim + i >= lay->ndim || lay->shape[s->dim + i] != sizes[i])
            return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "dimension %zu is of size %lld, and %lld is expected",
                              s->dim + i, s->dim + i < lay->ndim ? (long long)lay->shape[s->dim + i] : -1,
                              (long long)sizes[i]);
    return ckpt__lay_merge(w->a, lay, s->dim, s->size_count, lay, w->err);
}

static ckpt_status view(lowering *w, ckpt__lay *lay, bool back)
{
    int64_t sizes[CKPT__LAY_DIMS];
    const bool merges = (w->step->kind == CKPT__STEP_MERGE) != back;
    ckpt_status status = numbers(w, w->step->sizes, w->step->size_count, sizes);
    if (status < 0)
        return status;
    return merges ? merge(w, lay, sizes)
                  : ckpt__lay_split(w->a, lay, w->step->dim, sizes, w->step->size_count, lay, w->err);
}

static ckpt_status pad(lowering *w, ckpt__lay *lay, bool back)
{
    int64_t sizes[2];
    const uint32_t dim = w->step->dim;
    ckpt_status status = numbers(w, w->step->sizes, 2, sizes);
    if (status < 0)
        return status;
    if (sizes[0] > sizes[1])
        return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "%lld is to be padded to %lld, which is less",
                          (long long)sizes[0], (long long)sizes[1]);
    if (dim >= lay->ndim || lay->shape[dim] != sizes[back])
        return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "dimension %u is of size %lld, and %lld is expected", dim,
                          dim < lay->ndim ? (long long)lay->shape[dim] : -1, (long long)sizes[back]);
    return back ? ckpt__lay_slice(w->a, lay, dim, 0, sizes[0], lay, w->err)
                : ckpt__lay_pad(w->a, lay, dim, sizes[1], w->zero, 0, lay, w->err);
}

/* ---- of several tensors */

/* The size of each segment, in `groups` groups. Where the rule does not say, all are the same. */
static ckpt_status segment_sizes(const lowering *w, const ckpt__lay *one, size_t count, bool joined, int64_t *groups,
                                 int64_t *sizes)
{
    const ckpt__step *s = w->step;
    *groups = 1;
    ckpt_status status = s->groups.count ? numbers(w, &s->groups, 1, groups) : CKPT_OK;
    if (status == CKPT_OK && s->size_count)
        return numbers(w, s->sizes, s->size_count, sizes);
    const int64_t parts = joined ? (int64_t)count : 1;
    const int64_t all = s->dim < one->ndim ? one->shape[s->dim] : -1;
    if (status == CKPT_OK && (*groups < 1 || all < 0 || all % parts || all / parts % *groups))
        status = ckpt__fail(w->err, CKPT_E_MISMATCH, NULL,
                            "dimension %u is of size %lld, which is not %lld groups of %lld segments of one size",
                            s->dim, (long long)all, (long long)*groups, (long long)parts);
    for (size_t i = 0; status == CKPT_OK && i < count; i++)
        sizes[i] = all / parts / *groups;
    return status;
}

static ckpt_status join(lowering *w)
{
    const uint32_t dim = w->step->dim;
    int64_t groups, sizes[CKPT__LAYOUT_MEMBERS], two[2];
    ckpt_status status = segment_sizes(w, &w->now[0], w->count, false, &groups, sizes);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        two[0] = groups;
        two[1] = sizes[i];
        status = ckpt__lay_split(w->a, &w->now[i], dim, two, 2, &w->now[i], w->err);
    }
    if (status == CKPT_OK)
        status = ckpt__lay_join(w->a, w->now, w->count, dim + 1, &w->now[0], w->err);
    w->count = 1;
    return status == CKPT_OK ? ckpt__lay_merge(w->a, &w->now[0], dim, 2, &w->now[0], w->err) : status;
}

static ckpt_status cut(lowering *w)
{
    const uint32_t dim = w->step->dim;
    int64_t groups, sizes[CKPT__LAYOUT_MEMBERS], two[2] = {0, 0}, lo = 0;
    ckpt__lay whole = w->now[0];
    ckpt_status status = segment_sizes(w, &whole, w->outputs, true, &groups, sizes);
    for (size_t i = 0; status == CKPT_OK && i < w->outputs; i++)
        if (__builtin_add_overflow(two[1], sizes[i], &two[1]))
            status = ckpt__fail(w->err, CKPT_E_LIMIT, NULL, "the sizes of its segments overflow");
    two[0] = groups;
    if (status == CKPT_OK)
        status = ckpt__lay_split(w->a, &whole, dim, two, 2, &whole, w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->outputs; i++) {
        status = ckpt__lay_slice(w->a, &whole, dim + 1, lo, sizes[i], &w->now[i], w->err);
        if (status == CKPT_OK)
            status = ckpt__lay_merge(w->a, &w->now[i], dim, 2, &w->now[i], w->err);
        lo += sizes[i];
    }
    w->count = w->outputs;
    return status;
}

static ckpt_status stack(lowering *w)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        status = ckpt__lay_insert(w->a, &w->now[i], w->step->dim, &w->now[i], w->err);
    if (status == CKPT_OK)
        status = ckpt__lay_join(w->a, w->now, w->count, w->step->dim, &w->now[0], w->err);
    w->count = 1;
    if (status < 0 || w->step->over_count == 1)
        return status;
    const int64_t two[CKPT__LAYOUT_OVER] = {(int64_t)w->grid[0], (int64_t)w->grid[1]};
    return ckpt__lay_split(w->a, &w->now[0], w->step->dim, two, CKPT__LAYOUT_OVER, &w->now[0], w->err);
}

static ckpt_status unstack(lowering *w)
{
    ckpt__lay whole = w->now[0];
    const uint32_t dim = w->step->dim, dims = (uint32_t)w->step->over_count;
    size_t all = 1;
    ckpt_status status = CKPT_OK;
    for (uint32_t d = 0; d < dims; d++) {
        if (dim + d >= whole.ndim || whole.shape[dim + d] != (int64_t)w->grid[d])
            return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "%zu tensors are expected along dimension %u", w->grid[d],
                              dim + d);
        all *= w->grid[d]; /* there are as many names */
    }
    if (all != w->outputs)
        return ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "%zu tensors are expected, and it has %zu", w->outputs, all);
    if (dims > 1)
        status = ckpt__lay_merge(w->a, &whole, dim, dims, &whole, w->err);
    for (size_t i = 0; status == CKPT_OK && i < w->outputs; i++) {
        status = ckpt__lay_slice(w->a, &whole, dim, (int64_t)i, 1, &w->now[i], w->err);
        if (status == CKPT_OK)
            status = ckpt__lay_remove(w->a, &w->now[i], dim, &w->now[i], w->err);
    }
    w->count = w->outputs;
    return status;
}

/* ---- steps */

static ckpt_status take_step(lowering *w, bool back)
{
    static ckpt_status (*const one[])(lowering *, ckpt__lay *, bool) = {[CKPT__STEP_TRANSPOSE] = transpose,
                                                                        [CKPT__STEP_REORDER] = reorder,
                                                                        [CKPT__STEP_VIEW] = view,
                                                                        [CKPT__STEP_MERGE] = view,
                                                                        [CKPT__STEP_PAD] = pad};
    ckpt_status status = CKPT_OK;
    if (w->step->kind == CKPT__STEP_STACK)
        return ckpt__layout_has_many(w->rule, back) ? stack(w) : unstack(w);
    if (w->step->kind == CKPT__STEP_SEGMENTS) {
        const bool joins = w->rule->side[0].count > 1;
        return joins != back ? join(w) : cut(w);
    }
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++)
        if (!w->step->only || w->step->only >> i & 1)
            status = one[w->step->kind](w, &w->now[i], back);
    return status;
}

/* The tensors of the first side have the shape that the rule says. */
static ckpt_status check_shape(lowering *w)
{
    int64_t want[CKPT__LAY_DIMS];
    char is[200], expected[200];
    const size_t n = w->rule->shape_count;
    ckpt_status status = numbers(w, w->rule->shape, n, want);
    for (size_t i = 0; status == CKPT_OK && n && i < w->count; i++) {
        if (ckpt__same_shape(w->now[i].shape, w->now[i].ndim, want, (uint32_t)n))
            continue;
        ckpt__shape_text(is, sizeof is, w->now[i].shape, w->now[i].ndim);
        ckpt__shape_text(expected, sizeof expected, want, (uint32_t)n);
        status = ckpt__fail(w->err, CKPT_E_MISMATCH, NULL, "its shape is %s, and %s is expected on side %s", is,
                            expected, w->m->layout->sides[0].data);
    }
    return status;
}

/* The step that the tensors of side `from` meet first, and the next ones. */
static const ckpt__step *step_at(const ckpt__layout_rule *rule, unsigned from, size_t i)
{
    return &rule->steps[from ? rule->step_count - 1 - i : i];
}

ckpt_status ckpt__layout_stacked(const ckpt__layout_match *m, size_t number, const ckpt__layout_name *name,
                                 size_t *grid, ckpt_error *err)
{
    const ckpt__layout_rule *rule = &m->layout->rules[number];
    size_t all = 1;
    ckpt__arena *arena = ckpt__arena_new(0);
    ckpt__lay one = {.ndim = name->ndim, .unit = 1, .shape = (int64_t *)(uintptr_t)name->shape};
    lowering w = {.m = m, .rule = rule, .a = arena, .now = &one, .count = 1, .err = err};
    ckpt_status status = arena ? CKPT_OK : ckpt__fail_memory(err, m->layout->name, 0);
    for (size_t i = 0; status == CKPT_OK && step_at(rule, m->from, i) != rule->joins; i++) {
        w.step = step_at(rule, m->from, i);
        status = take_step(&w, m->from == 1);
    }
    for (uint32_t d = 0; status == CKPT_OK && d < rule->joins->over_count; d++) {
        const uint32_t dim = rule->joins->dim + d;
        grid[d] = dim < one.ndim && one.shape[dim] <= CKPT__LAY_PIECES ? (size_t)one.shape[dim] : 0;
        all *= grid[d];
        if (dim >= one.ndim || one.shape[dim] > CKPT__LAY_PIECES || all > CKPT__LAY_PIECES)
            status = ckpt__fail(err, CKPT_E_MISMATCH, NULL, "there is no dimension %u of at most %d tensors", dim,
                                (int)CKPT__LAY_PIECES);
    }
    ckpt__arena_free(arena);
    return status;
}

ckpt_status ckpt__layout_lower(const ckpt__layout_match *m, const ckpt__layout_use *use, const ckpt__lay *in,
                               uint32_t zero, ckpt__arena *arena, ckpt__lay *out, ckpt_error *err)
{
    const ckpt__layout_rule *rule = &m->layout->rules[use->rule];
    const bool back = m->from == 1;
    const size_t room = use->input_count > use->output_count ? use->input_count : use->output_count;
    lowering w = {m,
                  rule,
                  NULL,
                  arena,
                  zero,
                  ckpt__arena_array(arena, room + 1, sizeof(ckpt__lay)),
                  use->input_count,
                  use->output_count,
                  use->grid,
                  err};
    if (!w.now)
        return ckpt__fail_memory(err, m->layout->name, 0);
    memcpy(w.now, in, use->input_count * sizeof *in);
    ckpt_status status = back ? CKPT_OK : check_shape(&w);
    for (size_t i = 0; status == CKPT_OK && i < rule->step_count; i++) {
        w.step = step_at(rule, m->from, i);
        status = take_step(&w, back);
    }
    if (status == CKPT_OK && back) {
        w.step = NULL;
        status = check_shape(&w);
    }
    if (status == CKPT_OK)
        memcpy(out, w.now, use->output_count * sizeof *out);
    else if (status != CKPT_E_NO_MEMORY)
        ckpt__error_prefix(err, "line %zu, column %zu", w.step ? w.step->line : rule->line,
                           w.step ? w.step->column : rule->column);
    return status;
}
