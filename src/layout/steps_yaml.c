/* layout/steps_yaml.c - the steps of a rule. */
#include "layout/parts.h"

#include <stdio.h>

/* The step that is read, and where it stands. */
typedef struct step_reading {
    ckpt__layout_reading *r;
    const ckpt__yaml_node *key, *value;
    ckpt__step *step;
} step_reading;

/* The order names each of `count` dimensions once; 0: as many as it has. */
static void read_order(step_reading *s, const ckpt__yaml_node *n, size_t count)
{
    uint64_t seen = 0;
    if (n->kind != CKPT__YAML_LIST || n->count == 0 || n->count > CKPT__LAY_DIMS) {
        ckpt__layout_wrong(s->r, n, "a list of 1 to %d dimensions is expected", (int)CKPT__LAY_DIMS);
        return;
    }
    if (count && n->count != count) {
        ckpt__layout_wrong(s->r, n, "the order has %zu numbers, and there are %zu sizes", n->count, count);
        return;
    }
    s->step->order = ckpt__arena_array(s->r->layout->arena, n->count, sizeof *s->step->order);
    if (!s->step->order) {
        ckpt__layout_no_memory(s->r);
        return;
    }
    s->step->order_count = n->count;
    for (size_t i = 0; i < n->count; i++) {
        uint32_t d = 0;
        if (!ckpt__layout_read_dim(s->r, n->items[i], &d))
            continue;
        if (d >= n->count || seen >> d & 1) {
            ckpt__layout_wrong(s->r, n->items[i],
                               d >= n->count ? "%u is none of the %zu dimensions: they are numbered from 0"
                                             : "dimension %u is named twice, so the step could not be taken back",
                               d, n->count);
            continue;
        }
        seen |= UINT64_C(1) << d;
        s->step->order[i] = d;
    }
}

/* A key that has to be there. */
static const ckpt__yaml_node *need(step_reading *s, const char *key)
{
    const ckpt__yaml_node *n = ckpt__yaml_get(s->value, key);
    if (!n)
        ckpt__layout_wrong(s->r, s->value, "%.*s needs the key '%s'", (int)s->key->text.size, s->key->text.data, key);
    return n;
}

static void need_dim(step_reading *s)
{
    const ckpt__yaml_node *n = need(s, "dim");
    if (n)
        ckpt__layout_read_dim(s->r, n, &s->step->dim);
}

static void need_sizes(step_reading *s, const char *key)
{
    const ckpt__yaml_node *n = need(s, key);
    if (n)
        ckpt__layout_read_formulas(s->r, n, "sizes", 2, &s->step->sizes, &s->step->size_count);
}

static bool keys(step_reading *s, const char *const *known)
{
    return ckpt__layout_read_map(s->r, s->value, "the step", known);
}

/* Of several tensors, those that the step is for. */
static void read_only(step_reading *s)
{
    const ckpt__yaml_node *n = ckpt__yaml_get(s->value, "only");
    for (size_t i = 0; n && i < (n->kind == CKPT__YAML_LIST ? n->count : 1); i++) {
        const ckpt__yaml_node *one = n->kind == CKPT__YAML_LIST ? n->items[i] : n;
        int64_t number;
        if (one->kind == CKPT__YAML_SCALAR && ckpt__parse_i64(one->text.data, one->text.size, &number) && number >= 0 &&
            number < CKPT__LAYOUT_MEMBERS)
            s->step->only |= UINT32_C(1) << number;
        else
            ckpt__layout_wrong(s->r, one, "the number of a name is expected, from 0 on, or a list of such");
    }
}

static void read_transpose(step_reading *s)
{
    read_order(s, s->value, 0);
}

static void read_reorder(step_reading *s)
{
    static const char *const known[] = {"dim", "as", "order", "only", NULL};
    if (!keys(s, known))
        return;
    need_dim(s);
    read_only(s);
    need_sizes(s, "as");
    const ckpt__yaml_node *order = need(s, "order");
    if (order && s->step->size_count)
        read_order(s, order, s->step->size_count);
}

static void read_view(step_reading *s)
{
    static const char *const known[] = {"dim", "as", "only", NULL};
    if (!keys(s, known))
        return;
    need_dim(s);
    read_only(s);
    need_sizes(s, "as");
}

static void read_pad(step_reading *s)
{
    static const char *const known[] = {"dim", "from", "to", "only", NULL};
    if (!keys(s, known))
        return;
    need_dim(s);
    read_only(s);
    const ckpt__yaml_node *from = need(s, "from"), *to = need(s, "to");
    s->step->sizes = ckpt__arena_array(s->r->layout->arena, 2, sizeof *s->step->sizes);
    s->step->size_count = 2;
    if (!s->step->sizes)
        ckpt__layout_no_memory(s->r);
    else if (from && to && ckpt__layout_read_formula(s->r, from, &s->step->sizes[0]))
        ckpt__layout_read_formula(s->r, to, &s->step->sizes[1]);
}

static void read_segments(step_reading *s)
{
    static const char *const known[] = {"dim", "sizes", "groups", NULL};
    if (!keys(s, known))
        return;
    const ckpt__yaml_node *sizes = ckpt__yaml_get(s->value, "sizes"), *groups = ckpt__yaml_get(s->value, "groups");
    need_dim(s);
    if (sizes)
        ckpt__layout_read_formulas(s->r, sizes, "sizes", 2, &s->step->sizes, &s->step->size_count);
    if (groups)
        ckpt__layout_read_formula(s->r, groups, &s->step->groups);
}

static void read_over(step_reading *s, const ckpt__yaml_node *n)
{
    ckpt__step *step = s->step;
    if (n->kind != CKPT__YAML_SCALAR || !ckpt__formula_is_name(n->text)) {
        ckpt__layout_wrong(s->r, n, "the name of a capture is expected");
        return;
    }
    if (step->over_count && ckpt__str_equal(step->over[0], n->text)) {
        ckpt__layout_wrong(s->r, n, "both dimensions are over '%.*s'", (int)n->text.size, n->text.data);
        return;
    }
    step->over[step->over_count] = ckpt__arena_str(s->r->layout->arena, n->text.data, n->text.size);
    if (!step->over[step->over_count++].data)
        ckpt__layout_no_memory(s->r);
}

static void read_stack(step_reading *s)
{
    static const char *const known[] = {"dim", "over", NULL};
    if (!keys(s, known))
        return;
    need_dim(s);
    const ckpt__yaml_node *over = need(s, "over");
    if (!over)
        return;
    const bool list = over->kind == CKPT__YAML_LIST;
    if (list && over->count != CKPT__LAYOUT_OVER)
        ckpt__layout_wrong(s->r, over, "the name of a capture is expected, or a list of %d", (int)CKPT__LAYOUT_OVER);
    else
        for (size_t i = 0; i < (list ? over->count : 1); i++)
            read_over(s, list ? over->items[i] : over);
}

static const struct row {
    const char *name;
    ckpt__step_kind kind;
    void (*read)(step_reading *s);
} rows[] = {{"transpose", CKPT__STEP_TRANSPOSE, read_transpose},
            {"reorder", CKPT__STEP_REORDER, read_reorder},
            {"view", CKPT__STEP_VIEW, read_view},
            {"merge", CKPT__STEP_MERGE, read_view},
            {"pad", CKPT__STEP_PAD, read_pad},
            {"segments", CKPT__STEP_SEGMENTS, read_segments},
            {"stack", CKPT__STEP_STACK, read_stack}};
enum { ROWS = sizeof rows / sizeof *rows };

static void read_step(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__step *step)
{
    if (n->kind != CKPT__YAML_MAP || n->count != 1) {
        ckpt__layout_wrong(r, n, "a step is a map with one key: what is done");
        return;
    }
    step_reading s = {r, n->keys[0], n->items[0], step};
    step->line = n->line;
    step->column = n->column;
    for (size_t i = 0; i < ROWS; i++) {
        if (!ckpt__str_is(s.key->text, rows[i].name))
            continue;
        step->kind = rows[i].kind;
        rows[i].read(&s);
        return;
    }
    ckpt__layout_wrong(r, s.key,
                       "there is no step '%.*s'; there are transpose, reorder, view, merge, pad, segments and stack",
                       (int)(s.key->text.size < 80 ? s.key->text.size : 80), s.key->text.data);
}

void ckpt__layout_read_steps(ckpt__layout_reading *r, const ckpt__yaml_node *n, ckpt__layout_rule *rule)
{
    if (n->kind != CKPT__YAML_LIST || n->count > CKPT__LAYOUT_STEPS) {
        ckpt__layout_wrong(r, n, "a list of at most %d steps is expected", (int)CKPT__LAYOUT_STEPS);
        return;
    }
    rule->steps = ckpt__arena_array(r->layout->arena, n->count + 1, sizeof *rule->steps);
    if (!rule->steps) {
        ckpt__layout_no_memory(r);
        return;
    }
    rule->step_count = n->count;
    for (size_t i = 0; i < n->count; i++) {
        ckpt__step *step = &rule->steps[i];
        read_step(r, n->items[i], step);
        if (step->kind != CKPT__STEP_SEGMENTS && step->kind != CKPT__STEP_STACK)
            continue;
        if (rule->joins)
            ckpt__layout_wrong(r, n->items[i], "a rule has one step of segments or stack at most");
        rule->joins = step;
    }
}
