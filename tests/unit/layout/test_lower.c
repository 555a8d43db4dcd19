/* test_lower.c - random layouts against a reference that moves elements one by one: every element is its number, what no piece covers is
 * poison, and padding is 0. Each layout is taken there and back, and in two halves. */
#include "layout/layout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "../random.h"
#include "../runner.h"
#include "../scarce_memory.h"

enum { MOST = 4096, TENSORS = 6, CASES = 1500, POISON = -7 };

/* ---- the reference */

typedef struct array {
    unsigned ndim;
    int64_t shape[12];
    size_t count;
    int ids[MOST];
} array;

static size_t volume(unsigned n, const int64_t *shape)
{
    size_t v = 1;
    for (unsigned i = 0; i < n; i++)
        v *= (size_t)shape[i];
    return v;
}

static void unravel(const array *a, size_t at, int64_t *index)
{
    for (unsigned d = a->ndim; d-- > 0;) {
        index[d] = (int64_t)at % a->shape[d];
        at /= (size_t)a->shape[d];
    }
}

static size_t ravel(const array *a, const int64_t *index)
{
    size_t at = 0;
    for (unsigned d = 0; d < a->ndim; d++)
        at = at * (size_t)a->shape[d] + (size_t)index[d];
    return at;
}

static void turn(array *a, const unsigned *order)
{
    static array b;
    int64_t to[12], from[12];
    b.ndim = a->ndim;
    b.count = a->count;
    for (unsigned d = 0; d < a->ndim; d++)
        b.shape[d] = a->shape[order[d]];
    for (size_t i = 0; i < a->count; i++) {
        unravel(&b, i, to);
        for (unsigned d = 0; d < a->ndim; d++)
            from[order[d]] = to[d];
        b.ids[i] = a->ids[ravel(a, from)];
    }
    *a = b;
}

/* `was` dimensions from d on become `is` dimensions: elements stay in their order. */
static void reshape(array *a, unsigned d, unsigned was, const int64_t *sizes, unsigned is)
{
    array b = *a;
    for (unsigned i = d + was; i < a->ndim; i++)
        b.shape[i - was + is] = a->shape[i];
    for (unsigned i = 0; i < is; i++)
        b.shape[d + i] = sizes[i];
    b.ndim = a->ndim - was + is;
    *a = b;
}

static void put_part(array *to, const array *part, unsigned d, int64_t lo, bool from_part)
{
    int64_t index[12];
    array *p = (array *)(uintptr_t)part;
    for (size_t i = 0; i < part->count; i++) {
        unravel(part, i, index);
        index[d] += lo;
        if (from_part)
            to->ids[ravel(to, index)] = part->ids[i];
        else
            p->ids[i] = to->ids[ravel(to, index)];
    }
}

/* ---- a layout, as text, and what the reference makes of it */

typedef struct made {
    char text[6000];
    size_t used;
    array left[TENSORS], right[TENSORS];
    size_t left_count, right_count;
    size_t fast; /* of tensors in two dimensions: how many along the last one; 0: they are in one */
} made;

static void say(made *m, const char *format, ...) CKPT__PRINTF(2, 3);
static void say(made *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    m->used += (size_t)vsnprintf(m->text + m->used, sizeof m->text - m->used, format, args);
    va_end(args);
    ck_assert_uint_lt(m->used, sizeof m->text);
}

static void fill(array *a, unsigned ndim, const int64_t *shape, int first)
{
    a->ndim = ndim;
    if (ndim)
        memcpy(a->shape, shape, ndim * sizeof *shape);
    a->count = volume(ndim, shape);
    ck_assert_uint_le(a->count, MOST);
    for (size_t i = 0; i < a->count; i++)
        a->ids[i] = first + (int)i;
}

/* Two factors of n; of 0 any. */
static void factors(int64_t n, int64_t out[2])
{
    out[0] = 1;
    for (int64_t f = 1; f <= n; f++)
        if (n % f == 0 && roll(2))
            out[0] = f;
    out[1] = n / out[0];
}

static void shuffle(unsigned *order, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = i;
    for (unsigned i = n; i-- > 1;) {
        unsigned k = roll(i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
}

static void random_step(made *m, array *all, size_t count)
{
    unsigned order[12], d = all[0].ndim ? roll(all[0].ndim) : 0;
    int64_t two[2], turned[2];
    const unsigned kind = all[0].ndim ? roll(5) : 9;
    if (kind == 0) {
        shuffle(order, all[0].ndim);
        say(m, "  - transpose: [");
        for (unsigned i = 0; i < all[0].ndim; i++)
            say(m, "%s%u", i ? ", " : "", order[i]);
        say(m, "]\n");
        for (size_t k = 0; k < count; k++)
            turn(&all[k], order);
    } else if (kind == 1 && all[0].ndim < 5) {
        factors(all[0].shape[d], two);
        say(m, "  - view: {dim: %u, as: [%d, %d]}\n", d, (int)two[0], (int)two[1]);
        for (size_t k = 0; k < count; k++)
            reshape(&all[k], d, 1, two, 2);
    } else if (kind == 2 && d + 1 < all[0].ndim) {
        two[0] = all[0].shape[d] * all[0].shape[d + 1];
        say(m, "  - merge: {dim: %u, as: [%d, %d]}\n", d, (int)all[0].shape[d], (int)all[0].shape[d + 1]);
        for (size_t k = 0; k < count; k++)
            reshape(&all[k], d, 2, two, 1);
    } else if (kind == 3 && all[0].ndim < 8) {
        factors(all[0].shape[d], two);
        turned[0] = two[1];
        turned[1] = two[0];
        say(m, "  - reorder: {dim: %u, as: [%d, %d], order: [1, 0]}\n", d, (int)two[0], (int)two[1]);
        for (unsigned i = 0; i <= all[0].ndim; i++)
            order[i] = i;
        order[d] = d + 1;
        order[d + 1] = d;
        two[0] = two[0] * two[1];
        for (size_t k = 0; k < count; k++) {
            int64_t split[2] = {turned[1], turned[0]};
            reshape(&all[k], d, 1, split, 2);
            turn(&all[k], order);
            reshape(&all[k], d, 2, two, 1);
        }
    } else if (kind == 4 && all[0].count < 300) {
        const int64_t n = all[0].shape[d], more = roll(3);
        say(m, "  - pad: {dim: %u, from: %d, to: %d}\n", d, (int)n, (int)(n + more));
        for (size_t k = 0; k < count; k++) {
            array b = all[k];
            b.shape[d] += more;
            b.count = volume(b.ndim, b.shape);
            ck_assert_uint_le(b.count, MOST);
            memset(b.ids, 0, sizeof b.ids);
            put_part(&b, &all[k], d, 0, true);
            all[k] = b;
        }
    }
}

/* Of several tensors, one whose dimension is seen as two that change places. */
static void one_alone(made *m, array *all, size_t k, unsigned d)
{
    unsigned order[12];
    int64_t two[2], whole = all[k].shape[d];
    factors(whole, two);
    say(m, "  - reorder: {dim: %u, as: [%d, %d], order: [1, 0], only: ", d, (int)two[0], (int)two[1]);
    say(m, roll(2) ? "%zu}\n" : "[%zu]}\n", k);
    for (unsigned i = 0; i <= all[k].ndim; i++)
        order[i] = i;
    order[d] = d + 1;
    order[d + 1] = d;
    reshape(&all[k], d, 1, two, 2);
    turn(&all[k], order);
    reshape(&all[k], d, 2, &whole, 1);
}

/* Tensors side by side, `groups` times in turn; cut: the other way. */
static void segments(made *m, array *all, size_t count, unsigned d, int64_t groups, const int64_t *sizes,
                     bool say_sizes)
{
    array b = all[0];
    int64_t two[2] = {groups, 0}, lo = 0;
    say(m, "  - segments: {dim: %u, groups: %d", d, (int)groups);
    for (size_t k = 0; say_sizes && k < count; k++)
        say(m, "%s%d", k ? ", " : ", sizes: [", (int)sizes[k]);
    say(m, "%s}\n", say_sizes ? "]" : "");
    for (size_t k = 0; k < count; k++)
        two[1] += sizes[k];
    reshape(&b, d, 1, two, 2);
    b.count = volume(b.ndim, b.shape);
    ck_assert_uint_le(b.count, MOST);
    for (size_t k = 0; k < count; k++) {
        int64_t own[2] = {groups, sizes[k]};
        reshape(&all[k], d, 1, own, 2);
        put_part(&b, &all[k], d + 1, lo, true);
        lo += sizes[k];
    }
    two[0] *= two[1];
    reshape(&b, d, 2, two, 1);
    all[0] = b;
}

static void stack(made *m, array *all, size_t count, unsigned d)
{
    array b = all[0];
    const int64_t one = 1, n = (int64_t)count;
    say(m, "  - stack: {dim: %u, over: %s}\n", d, m->fast ? "[e, f]" : "e");
    reshape(&b, d, 0, &n, 1);
    b.count = volume(b.ndim, b.shape);
    for (size_t k = 0; k < count; k++) {
        reshape(&all[k], d, 0, &one, 1);
        put_part(&b, &all[k], d, (int64_t)k, true);
    }
    all[0] = b;
    if (m->fast) {
        const int64_t two[2] = {(int64_t)(count / m->fast), (int64_t)m->fast};
        reshape(&all[0], d, 1, two, 2);
    }
}

/* A tensor that is a stack for the first side alone. */
static size_t unstack(made *m, array *all, unsigned d)
{
    static array whole;
    const size_t n = (size_t)all[0].shape[d];
    int64_t none = 0;
    whole = all[0];
    ck_assert(n > 0 && n <= TENSORS);
    say(m, "  - stack: {dim: %u, over: e}\n", d);
    for (size_t k = 0; k < n; k++) {
        all[k] = whole;
        all[k].shape[d] = 1;
        all[k].count = volume(all[k].ndim, all[k].shape);
        put_part(&whole, &all[k], d, (int64_t)k, false);
        reshape(&all[k], d, 1, &none, 0);
    }
    return n;
}

/* One tensor that becomes several. */
static void make_cut(made *m)
{
    int64_t shape[12];
    const unsigned ndim = 1 + roll(4);
    static array now[TENSORS];
    *m = (made){.left_count = 1};
    for (unsigned i = 0; i < ndim; i++)
        shape[i] = 1 + roll(TENSORS - 1);
    fill(&m->left[0], ndim, shape, 1);
    now[0] = m->left[0];
    say(m, "layout: 1\nsides: [a, b]\nrules:\n- a: x.<i>.0\n  b: y.<i>.<e>\n  steps:\n");
    for (unsigned i = roll(3); i > 0; i--)
        random_step(m, now, 1);
    unsigned d = roll(now[0].ndim);
    for (unsigned i = 0; i < now[0].ndim && now[0].shape[d] > TENSORS; i++)
        d = i;
    if (now[0].shape[d] > TENSORS) { /* several steps have made it so */
        make_cut(m);
        return;
    }
    m->right_count = unstack(m, now, d);
    for (unsigned i = roll(3); i > 0; i--)
        random_step(m, now, m->right_count);
    for (size_t k = 0; k < m->right_count; k++)
        m->right[k] = now[k];
}

/* kind 0: one tensor; 1: segments; 2: a stack; 3: a stack with two dimensions. */
static void make(made *m, unsigned kind)
{
    static const int64_t dims[] = {0, 1, 2, 3, 4, 5, 6, 7};
    int64_t shape[12], sizes[TENSORS];
    const unsigned ndim = kind == 1 ? 1 + roll(3) : roll(4), d = ndim ? roll(ndim) : 0;
    const int64_t groups = 1 + roll(3);
    const size_t fast = 1 + roll(3), count = kind == 3 ? fast * (1 + roll(2)) : kind ? 2 + roll(3) : 1;
    const bool equal = roll(2);
    static array now[TENSORS];
    m->used = 0;
    m->fast = kind == 3 ? fast : 0;
    m->left_count = count;
    m->right_count = 1;
    for (unsigned i = 0; i < ndim; i++)
        shape[i] = dims[roll(20) ? 1 + roll(7) : 0];
    for (size_t k = 0; k < count; k++) {
        sizes[k] = equal && k ? sizes[0] : roll(4);
        if (kind == 1)
            shape[d] = groups * sizes[k];
        fill(&m->left[k], ndim, shape, 1 + (int)k * MOST);
        now[k] = m->left[k];
    }
    say(m, "layout: 1\nsides: [a, b]\nrules:\n");
    if (kind == 1) {
        say(m, "- a: [");
        for (size_t k = 0; k < count; k++)
            say(m, "%sx.<i>.%zu", k ? ", " : "", k);
        say(m, "]\n  b: y.<i>\n  steps:\n");
    } else
        say(m, "- a: x.<i>%s\n  b: y.<i>\n  steps:\n", kind == 2 ? ".<e>" : kind == 3 ? ".<e>.<f>" : ".0");
    for (unsigned i = roll(3); kind != 1 && i > 0; i--)
        random_step(m, now, count);
    if (kind == 1 && roll(2))
        one_alone(m, now, roll((unsigned)count), d);
    if (kind == 1)
        segments(m, now, count, d, groups, sizes, !equal || roll(2));
    else if (kind)
        stack(m, now, count, roll(now[0].ndim + 1));
    for (unsigned i = roll(4); i > 0; i--)
        random_step(m, now, 1);
    if (m->text[m->used - 2] == ':') /* no step at all is an empty list */
        say(m, "    []\n");
    m->right[0] = now[0];
}

/* ---- what the layout makes of it */

enum { ZERO = 1000 };

/* Elements of the pieces, of storages whose elements are their numbers. */
static void gather(const ckpt__lay *lay, const array *storages, array *out)
{
    int64_t index[12];
    out->ndim = lay->ndim;
    for (unsigned d = 0; d < lay->ndim; d++)
        out->shape[d] = lay->shape[d];
    out->count = volume(lay->ndim, lay->shape);
    ck_assert_uint_le(out->count, MOST);
    for (size_t i = 0; i < out->count; i++)
        out->ids[i] = POISON;
    for (size_t p = 0; p < lay->count; p++) {
        const ckpt__lay_piece *q = &lay->pieces[p];
        array box = {.ndim = lay->ndim};
        for (unsigned d = 0; d < lay->ndim; d++)
            box.shape[d] = q->size[d];
        box.count = volume(box.ndim, box.shape);
        ck_assert_uint_gt(box.count, 0);
        for (size_t i = 0; i < box.count; i++) {
            uint64_t at = q->at;
            unravel(&box, i, index);
            for (unsigned d = 0; d < lay->ndim; d++) {
                at += (uint64_t)(index[d] * q->stride[d]) * lay->unit;
                index[d] += q->lo[d];
                ck_assert_int_lt(index[d], lay->shape[d]);
            }
            const size_t to = ravel(out, index);
            ck_assert_int_eq(out->ids[to], POISON); /* covered once */
            ck_assert_uint_eq(at % lay->unit, 0);
            if (q->storage != ZERO)
                ck_assert_uint_lt(at / lay->unit, storages[q->storage].count);
            out->ids[to] = q->storage == ZERO ? 0 : storages[q->storage].ids[at / lay->unit];
        }
    }
}

static void check_same(const array *is, const array *want, const char *text)
{
    bool same = is->ndim == want->ndim && is->count == want->count;
    for (unsigned d = 0; same && d < is->ndim; d++)
        same = is->shape[d] == want->shape[d];
    for (size_t i = 0; same && i < is->count; i++)
        same = is->ids[i] == want->ids[i];
    ck_assert_msg(same, "not what the reference makes of\n%s", text);
}

static void whole(ckpt__arena *a, const array *of, uint32_t storage, ckpt__lay *out)
{
    *out = (ckpt__lay){.ndim = of->ndim, .unit = 4, .shape = ckpt__arena_array(a, 12, sizeof(int64_t))};
    out->pieces = ckpt__arena_array(a, 1, sizeof *out->pieces);
    memcpy(out->shape, of->shape, sizeof of->shape);
    out->count = of->count > 0;
    out->pieces[0] = (ckpt__lay_piece){.lo = ckpt__arena_array(a, 12, sizeof(int64_t)),
                                       .size = out->shape,
                                       .stride = ckpt__arena_array(a, 12, sizeof(int64_t)),
                                       .storage = storage};
    ckpt__c_strides(out->shape, out->ndim, out->pieces[0].stride);
}

static ckpt__layout *parse(const char *text)
{
    ckpt__layout *layout = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_status status = ckpt__layout_parse(text, strlen(text), "random.yaml", report, &layout, &err);
    ck_assert_msg(status == CKPT_OK, "%s\n%s", err.message, text);
    ckpt_report_free(report);
    return layout;
}

static ckpt__layout_match *match(const ckpt__layout *layout, unsigned from, char names[][32], const ckpt__lay *lays,
                                 size_t count, const char *text)
{
    ckpt__layout_name in[TENSORS];
    ckpt__layout_match *m = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    for (size_t i = 0; i < count; i++)
        in[i] = (ckpt__layout_name){.name = ckpt__s(names[i]), .ndim = lays[i].ndim, .shape = lays[i].shape};
    ckpt_status status = ckpt__layout_match_names(layout, from, in, count, NULL, 0, report, &m, &err);
    ck_assert_msg(status == CKPT_OK, "%s\n%s", err.message, text);
    ck_assert_uint_eq(m->count, 1);
    ckpt_report_free(report);
    return m;
}

static void name_left(const made *m, size_t k, char *out, size_t size)
{
    if (m->fast)
        snprintf(out, size, "x.3.%zu.%zu", k / m->fast, k % m->fast);
    else
        snprintf(out, size, "x.3.%zu", k);
}

static void name_right(const made *m, size_t k, char *out, size_t size)
{
    if (strstr(m->text, "b: y.<i>.<e>"))
        snprintf(out, size, "y.3.%zu", k);
    else
        snprintf(out, size, "y.3");
}

/* The names come in an order of their own: a stack's are put into theirs. */
static void take(const ckpt__layout *layout, const made *m, unsigned from, const ckpt__lay *in, ckpt__arena *a,
                 ckpt__lay *out)
{
    void (*const own)(const made *, size_t, char *, size_t) = from ? name_right : name_left;
    void (*const other)(const made *, size_t, char *, size_t) = from ? name_left : name_right;
    const size_t count = from ? m->right_count : m->left_count, made_count = from ? m->left_count : m->right_count;
    const size_t first = roll((unsigned)count);
    char names[TENSORS][32], want[32];
    ckpt__lay turned[TENSORS], ordered[TENSORS];
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t k = 0; k < count; k++) {
        const size_t at = (k + first) % count;
        turned[k] = in[at];
        own(m, at, names[k], sizeof names[k]);
    }
    ckpt__layout_match *way = match(layout, from, names, turned, count, m->text);
    const ckpt__layout_use *use = &way->uses[0];
    ck_assert_uint_eq(use->input_count, count);
    ck_assert_uint_eq(use->output_count, made_count);
    for (size_t k = 0; k < count; k++)
        ordered[k] = turned[use->inputs[k]];
    ck_assert_msg(ckpt__layout_lower(way, use, ordered, ZERO, a, out, &err) == CKPT_OK, "%s\n%s", err.message, m->text);
    for (size_t k = 0; k < made_count; k++) {
        other(m, k, want, sizeof want);
        ck_assert_msg(ckpt__str_is(use->outputs[k], want), "%s is not %s", use->outputs[k].data, want);
    }
    ckpt__layout_match_free(way);
}

static void there_and_back(const made *m)
{
    static array got;
    ckpt__arena *a = ckpt__arena_new(0);
    ckpt__lay in[TENSORS], out[TENSORS], back[TENSORS];
    ckpt__layout *layout = parse(m->text);
    for (size_t k = 0; k < m->left_count; k++)
        whole(a, &m->left[k], (uint32_t)k, &in[k]);
    take(layout, m, 0, in, a, out);
    for (size_t k = 0; k < m->right_count; k++) {
        gather(&out[k], m->left, &got);
        check_same(&got, &m->right[k], m->text);
    }
    take(layout, m, 1, out, a, back);
    for (size_t k = 0; k < m->left_count; k++) {
        gather(&back[k], m->left, &got);
        check_same(&got, &m->left[k], m->text);
    }
    ckpt__layout_free(layout);
    ckpt__arena_free(a);
}

START_TEST(random_layouts)
{
    static made m;
    random_state = 88172645463325252u;
    for (unsigned i = 0; i < CASES; i++) {
        if (_i < 4)
            make(&m, (unsigned)_i);
        else
            make_cut(&m);
        there_and_back(&m);
    }
}
END_TEST

/* The left side to the right one, by whatever memory there is. */
static ckpt_status tried(const made *m, const ckpt__lay *in, ckpt__arena *a, ckpt__lay *out)
{
    char names[TENSORS][32];
    ckpt__layout_name given[TENSORS];
    ckpt__layout *layout = NULL;
    ckpt__layout_match *way = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_status status = report ? CKPT_OK : CKPT_E_NO_MEMORY;
    for (size_t k = 0; k < m->left_count; k++) {
        name_left(m, k, names[k], sizeof names[k]);
        given[k] = (ckpt__layout_name){.name = ckpt__s(names[k]), .ndim = in[k].ndim, .shape = in[k].shape};
    }
    if (status == CKPT_OK)
        status = ckpt__layout_parse(m->text, strlen(m->text), "random.yaml", report, &layout, &err);
    if (status == CKPT_OK)
        status = ckpt__layout_match_names(layout, 0, given, m->left_count, NULL, 0, report, &way, &err);
    if (status == CKPT_OK)
        status = ckpt__layout_lower(way, &way->uses[0], in, ZERO, a, out, &err);
    ckpt__layout_match_free(way);
    ckpt__layout_free(layout);
    ckpt_report_free(report);
    return status;
}

START_TEST(each_allocation)
{
    static made m;
    static array got;
    size_t failed = 0;
    random_state = 2463534242u;
    for (unsigned i = 0; i < 40; i++) {
        bool all = false;
        if (i % 5 < 4)
            make(&m, i % 5);
        else
            make_cut(&m);
        for (long n = 0; !all; n++) {
            ckpt__arena *a = ckpt__arena_new(0);
            ckpt__lay in[TENSORS], out[TENSORS];
            for (size_t k = 0; k < m.left_count; k++)
                whole(a, &m.left[k], (uint32_t)k, &in[k]);
            allocations_left = n;
            const ckpt_status status = tried(&m, in, a, out);
            all = allocations_left >= 0;
            allocations_left = -1;
            ck_assert_msg(status == CKPT_OK || (!all && status == CKPT_E_NO_MEMORY), "allocation %ld: %d\n%s", n,
                          (int)status, m.text);
            failed += status != CKPT_OK;
            for (size_t k = 0; status == CKPT_OK && k < m.right_count; k++) {
                gather(&out[k], m.left, &got);
                check_same(&got, &m.right[k], m.text);
            }
            ckpt__arena_free(a);
        }
    }
    ck_assert_uint_gt(failed, 1000);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lower");
    TCase *c = tcase_create("lower");
    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, random_layouts, 0, 5);
    tcase_add_test(c, each_allocation);
    suite_add_tcase(s, c);
    return run_suite(s);
}
