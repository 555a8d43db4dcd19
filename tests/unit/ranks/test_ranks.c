/* test_ranks.c - files of ranks of made-up trainings are put together by their layouts: meshes, cuts, stages and flat buffers at random, each
 * element held against where it was dealt to; and every allocation fails once. */
#include "../scarce_memory.h"
#include "ranks_read.h"
#include "reader/reader.h"

enum { CASES = 80, FEW = 8 };

/* ---- trainings at random */

static void make_cut(training *t, logical *l, int axis, int64_t *length)
{
    const int64_t m = t->sizes[axis];
    cut *c = &l->cuts[l->cut_count++];
    *c = (cut){.axis = axis, .dim = (int)roll((unsigned)l->ndim), .groups = 1};
    int64_t *n = &length[c->dim];
    if (*n > 0 && roll(3) == 0) {
        c->groups = *n % 2 == 0 && roll(2) ? 2 : 1;
        int64_t left = *n / c->groups;
        c->segments[c->segment_count++] = (int64_t)roll((unsigned)left + 1);
        left -= c->segments[0];
        c->segments[c->segment_count++] = left;
    }
    bool even = *n >= 0;
    for (int s = 0; s < c->segment_count; s++)
        even = even && c->segments[s] % m == 0;
    even = even && (c->segment_count || *n % m == 0);
    c->as = even && roll(2) ? CKPT__CUT_AS_EVEN : roll(2) ? CKPT__CUT_AS_CEIL : CKPT__CUT_AS_BALANCED;
    if (*n >= 0 && !c->segment_count && roll(4) == 0) {
        c->as = CKPT__CUT_AS_WIDTHS;
        for (int64_t k = 0; k < m; k++)
            c->widths[k] = 0;
        for (int64_t p = 0; p < *n; p++)
            c->widths[roll((unsigned)m)]++;
    }
    *n = even && c->as != CKPT__CUT_AS_WIDTHS ? *n / m : -1;
}

static logical *add_tensor(training *t, int stage, int layer, const char *name)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7};
    logical *l = &t->tensors[t->count++];
    int64_t length[DIMS];
    *l = (logical){.stage = stage, .layer = layer, .ndim = layer < 0 ? (int)roll(DIMS + 1) : 1 + (int)roll(DIMS)};
    if (layer < 0)
        snprintf(l->name, sizeof l->name, "%s", name);
    else
        snprintf(l->name, sizeof l->name, "layers.%d.%s", layer, name);
    snprintf(l->tail, sizeof l->tail, "%s", name);
    for (int d = 0; d < l->ndim; d++)
        length[d] = l->shape[d] = sizes[roll(6) + (roll(8) != 0)];
    for (int a = AXES; l->ndim && a-- > 1;) /* the stages cut none */
        if (roll(4) && !(t->two && a == 1) && !(t->flat && a == 1))
            make_cut(t, l, a, length);
    return l;
}

static void make_training(training *t)
{
    char name[20];
    int layers = 0;
    memset(t, 0, sizeof *t);
    t->sizes[0] = roll(2) ? 2 : 1;
    t->sizes[1] = 1 + roll(3);
    t->sizes[2] = 1 + roll(3);
    t->stages = t->sizes[0] > 1;
    t->local = t->stages && roll(3);
    t->numbers = t->local && roll(2);
    t->flat = roll(3) == 0;
    t->align = t->flat ? 1 + roll(4) : 1;
    t->multiple = 1 + roll(3);
    t->two = roll(3) == 0;
    t->by_rank = !t->two && roll(3) == 0;
    t->found = !t->by_rank && roll(2);
    t->wide = roll(2);
    t->first = roll(4) == 0;
    for (int s = 0; s < (int)t->sizes[0]; s++)
        layers += t->layers_of[s] = 1 + (int)(t->numbers ? 0 : roll(2));
    add_tensor(t, 0, -1, "w0");
    for (int i = 0, s = 0, left = t->layers_of[0]; i < layers; i++, left--) {
        while (!t->numbers && left == 0)
            left = t->layers_of[++s];
        add_tensor(t, t->numbers ? i % (int)t->sizes[0] : s, i, "up");
    }
    for (int i = 1 + (int)roll(3); i > 0; i--) {
        snprintf(name, sizeof name, "w%d", i);
        add_tensor(t, (int)roll((unsigned)t->sizes[0]), -1, name);
    }
    if (roll(2) &&
        (t->flat ||
         t->sizes[0] == 1)) /* else its place in the order of a later stage would have to be told by shapes */
        add_tensor(t, -1, -1, "shared");
    if (roll(2))
        add_tensor(t, (int)t->sizes[0] - 1, -1, "running_mean")->buffer = true;
}

/* ---- read, and held against it */

static const char *order[TENSORS]; /* of the optimizer's parameters, stage behind stage */

static int order_params(const training *t)
{
    int n = 0;
    for (int64_t s = 0; s < t->sizes[0]; s++)
        for (int i = 0; i < t->count; i++)
            if (has(t, &t->tensors[i], s) && !t->tensors[i].buffer && (s == 0 || t->tensors[i].stage >= 0))
                order[n++] = t->tensors[i].name;
    return n;
}

/* The layout of the training is put together: the reader, or NULL with what failed in err. */
static ckpt_reader *open_ranks(const training *t, const char *text, const char *in, ckpt_status *status)
{
    ckpt__source *source;
    ckpt__index *index;
    ckpt_reader *reader = NULL;
    *status = put_together(text, in, t->flat ? NULL : order, t->flat ? 0 : (size_t)order_params(t), &source, &index);
    if (*status == CKPT_OK)
        *status = ckpt__reader_of(in, source, index, &reader, &err);
    return reader;
}

static const ckpt_tensor_info *find(const ckpt_reader *r, const char *name, size_t *number)
{
    ck_assert_msg(ckpt_reader_find(r, name, strlen(name), number, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_tensor(r, *number);
}

static void check_tensor(const training *t, const ckpt_reader *r, const char *name, int tensor, int kind)
{
    static unsigned char data[MOST * 8];
    const logical *l = &t->tensors[tensor];
    size_t number, n = 1;
    const ckpt_tensor_info *info = find(r, name, &number);
    const char type = type_of(t, l);
    ck_assert_int_eq(info->dtype, type == 'i' ? CKPT_I64 : type == 'd' ? CKPT_F64 : CKPT_F32);
    ck_assert_msg(ckpt__same_shape(info->shape, info->ndim, l->shape, (uint32_t)l->ndim), "%s", name);
    for (int d = 0; d < l->ndim; d++)
        n *= (size_t)l->shape[d];
    ck_assert_msg(ckpt_reader_read(r, number, data, n * (type == 'f' ? 4 : 8), &err) == CKPT_OK, "%s: %s: %s", name,
                  err.object, err.message);
    for (size_t i = 0; i < n; i++) {
        int64_t value;
        float narrow;
        double wide;
        memcpy(&value, data + 8 * i, 8);
        memcpy(&wide, data + 8 * i, 8);
        memcpy(&narrow, data + 4 * i, 4);
        value = type == 'i' ? value : type == 'd' ? (int64_t)wide : (int64_t)narrow;
        ck_assert_msg(value == value_of(tensor, kind, (int64_t)i), "%s: element %zu is %lld", name, i,
                      (long long)value);
    }
}

static int slot_of(const training *t, const char *name)
{
    const int n = order_params(t);
    int i = 0;
    while (i < n && strcmp(order[i], name) != 0)
        i++;
    return i;
}

static void check_all(const training *t, const ckpt_reader *r)
{
    static const char *const keys[] = {"exp_avg", "exp_avg_sq"};
    const char *head = t->two ? "rest." : "";
    char name[200];
    size_t number;
    for (int i = 0; i < t->count; i++) {
        snprintf(name, sizeof name, "model.%s", t->tensors[i].name);
        check_tensor(t, r, name, i, 0);
        for (int k = 0; !t->tensors[i].buffer && k < STATES; k++) {
            if (t->flat)
                snprintf(name, sizeof name, "%soptim.state.%s.%s", head, t->tensors[i].name, keys[k]);
            else
                snprintf(name, sizeof name, "%soptim.state.%d.%s", head, slot_of(t, t->tensors[i].name), keys[k]);
            check_tensor(t, r, name, i, 1 + k);
        }
    }
    snprintf(name, sizeof name, "%srng", head);
    find(r, name, &number);
    const int params = order_params(t);
    ck_assert_uint_eq(ckpt_reader_tensor_count(r), (size_t)(t->count + 1 + params * (STATES + 1)));
}

START_TEST(trainings)
{
    for (int i = 0; i < (getenv("CKPT_TEST_FEW") ? FEW : CASES); i++) {
        training t;
        ckpt_status status;
        char in[20];
        snprintf(in, sizeof in, "run%d", i);
        make_training(&t);
        write_training(&t, in);
        const char *layout = layout_of(&t);
        ckpt_reader *r = open_ranks(&t, layout, in, &status);
        ck_assert_msg(status == CKPT_OK, "case %d: %s: %s\n%s", i, err.object, err.message, layout);
        check_all(&t, r);
        ckpt_reader_close(r);
    }
}
END_TEST

/* Both stages number a parameter that they share, at different places of their own order; shapes tell which it is. */
START_TEST(shared)
{
    static const struct {
        const char *name;
        int stage, ndim;
        int64_t shape[DIMS];
    } rows[] = {
        {"w0", 0, 2, {4, 3}}, {"shared", -1, 2, {6, 5}}, {"w1", 0, 1, {7}}, {"w2", 1, 1, {2}}, {"w3", 1, 2, {3, 3}}};
    for (int first = 0; first < 2; first++) {
        training t = {.sizes = {2, 2, 2}, .stages = true, .align = 1, .multiple = 1};
        ckpt_status status;
        for (; t.count < 5; t.count++) {
            logical *l = &t.tensors[t.count];
            *l = (logical){.stage = rows[t.count].stage, .layer = -1, .ndim = rows[t.count].ndim};
            snprintf(l->name, sizeof l->name, "%s", rows[t.count].name);
            memcpy(l->shape, rows[t.count].shape, sizeof l->shape);
        }
        t.tensors[1].cuts[t.tensors[1].cut_count++] = (cut){.axis = 2, .dim = 0, .as = CKPT__CUT_AS_EVEN, .groups = 1};
        t.by_rank = first;
        write_training(&t, first ? "one" : "other");
        ckpt_reader *r = open_ranks(&t, layout_of(&t), first ? "one" : "other", &status);
        ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
        check_all(&t, r);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(memory)
{
    training t;
    ckpt_status status = CKPT_E_NO_MEMORY;
    size_t failed = 0;
    do
        make_training(&t);
    while (!t.local || !t.flat || world_of(&t) < 8 || !t.found);
    write_training(&t, "run");
    const char *layout = layout_of(&t);
    for (long n = 0; status != CKPT_OK || allocations_left < 0; n++) {
        allocations_left = n;
        ckpt_reader *r = open_ranks(&t, layout, "run", &status);
        const bool all = allocations_left >= 0;
        allocations_left = -1;
        ckpt_reader_close(r);
        ck_assert_msg(status == CKPT_OK || status == CKPT_E_NO_MEMORY, "%ld: %s: %s", n, err.object, err.message);
        failed += status != CKPT_OK;
        if (all)
            break;
    }
    ck_assert_int_eq(status, CKPT_OK);
    ck_assert_uint_gt(failed, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ranks");
    TCase *cases = tcase_create("ranks");
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, trainings);
    tcase_add_test(cases, shared);
    tcase_add_test(cases, memory);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
