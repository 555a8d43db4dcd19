/* test_boxes.c - the tree of boxes beside a linear scan, and how little of it is looked at. */
#include "model/box.h"

#include "points.h"

/* ---- memory that runs short */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);

static size_t calls_left = SIZE_MAX; /* calls until one is refused */

void *__wrap_malloc(size_t size)
{
    return calls_left-- ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
    return calls_left-- ? __real_calloc(count, size) : NULL;
}

/* ---- what all tests use */

enum { MANY = 50000 };

/* Boxes of one tensor, as a tree asks for them: heap, owned by the test. */
struct set {
    uint32_t n;
    size_t count;
    int64_t (*lo)[DIMS], (*size)[DIMS];
    uint32_t *met;    /* how often each was found by the questions so far */
    size_t last;      /* place in the order of the one that was found last */
    const void *tree; /* asked at present */
    size_t left;      /* findings until fn asks to end */
};

static struct set set_new(uint32_t n, size_t count)
{
    struct set s = {n,
                    count,
                    calloc(count + 1, sizeof *s.lo),
                    calloc(count + 1, sizeof *s.size),
                    calloc(count + 1, sizeof *s.met),
                    0,
                    NULL,
                    SIZE_MAX};
    ck_assert(s.lo && s.size && s.met);
    return s;
}

static void set_free(struct set *s)
{
    free(s->lo);
    free(s->size);
    free(s->met);
}

static void box_of(const void *ctx, size_t number, int64_t *lo, int64_t *size)
{
    const struct set *s = ctx;
    must(number < s->count, "a box that is not there");
    for (uint32_t i = 0; i < s->n; i++)
        lo[i] = s->lo[number][i], size[i] = s->size[number][i];
}

/* The shape cut into parts[i] along dimension i, numbered in C order, or in none. */
static struct set grid(uint32_t n, const int64_t *shape, const int64_t *parts, bool shuffled)
{
    uint64_t count;
    ck_assert(ckpt__box_volume(n, parts, &count));
    struct set s = set_new(n, count);
    int64_t at[DIMS] = {0};
    for (size_t k = 0; k < count; k++) {
        for (uint32_t i = 0; i < n; i++) {
            s.lo[k][i] = shape[i] * at[i] / parts[i];
            s.size[k][i] = shape[i] * (at[i] + 1) / parts[i] - s.lo[k][i];
        }
        next_point(n, parts, at);
    }
    for (size_t k = count; shuffled && k-- > 1;) {
        size_t other = draw() % (k + 1);
        for (uint32_t i = 0; i < n; i++) {
            int64_t lo = s.lo[k][i], size = s.size[k][i];
            s.lo[k][i] = s.lo[other][i], s.size[k][i] = s.size[other][i];
            s.lo[other][i] = lo, s.size[other][i] = size;
        }
    }
    return s;
}

static struct set drawn(uint32_t n, size_t count, int kind)
{
    struct set s = set_new(n, count);
    for (size_t k = 0; k < count; k++)
        for (uint32_t i = 0; i < n; i++) {
            s.lo[k][i] = draw_from(0, kind == 1 ? 3 : 60);
            s.size[k][i] = draw_from(kind == 2 ? -1 : 1, kind == 3 && draw() % 8 == 0 ? 60 : 6);
            if (kind == 4)
                s.lo[k][i] = INT64_MAX - s.lo[k][i] - (draw() % 2 ? 8 : 0);
            if (kind == 5 && draw() % 2)
                s.lo[k][i] = INT64_C(1) << draw_from(0, 62);
        }
    return s;
}

static ckpt_status count_meeting(void *ctx, size_t number, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    struct set *s = ctx;
    (void)err;
    (void)lo;
    (void)size;
    s->met[number]++;
    return --s->left ? 1 : CKPT_E_CANCELLED;
}

/* A question to the tree, and what a linear scan has to say. */
struct asked {
    struct set *set;
    const int64_t *lo, *size;
};

static ckpt_status compare_meeting(void *ctx, size_t number, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    struct asked *a = ctx;
    struct set *s = a->set;
    (void)err;
    int64_t want_lo[DIMS], want_size[DIMS];
    must(ckpt__box_meet(s->n, a->lo, a->size, s->lo[number], s->size[number], want_lo, want_size), "a meeting");
    for (uint32_t i = 0; i < s->n; i++)
        must(lo[i] == want_lo[i] && size[i] == want_size[i], "what both have");
    const uint32_t *order = ckpt__boxes_order(s->tree);
    while (order[s->last] != number) /* found in the tree's order */
        must(++s->last < s->count, "the order of what is found");
    s->met[number]++;
    return CKPT_OK;
}

/* Each number once, those of empty boxes last. Returns how many are not empty. */
static size_t check_order(const struct set *s, const ckpt__boxes *tree)
{
    const uint32_t *order = ckpt__boxes_order(tree);
    memset(s->met, 0, s->count * sizeof *s->met);
    bool empties = false;
    size_t filled = 0;
    for (size_t k = 0; k < s->count; k++) {
        bool empty = false;
        must(order[k] < s->count, "a number of the order");
        for (uint32_t i = 0; i < s->n; i++)
            empty = empty || s->size[order[k]][i] <= 0;
        must(!empties || empty, "a box behind an empty one");
        empties = empty;
        filled += !empty;
        must(s->met[order[k]]++ == 0, "a number that is twice in the order");
    }
    return filled;
}

/* Asks one set's tree for boxes of the other; each answer beside a linear scan. */
static void check_tree(struct set *s, const struct set *questions, size_t step)
{
    ckpt__boxes *tree;
    ckpt_error err;
    ck_assert_int_eq(ckpt__boxes_new(s->n, s->count, box_of, s, &tree, &err), CKPT_OK);
    size_t filled = check_order(s, tree), nodes = filled / 15 + 8;
    s->tree = tree;
    for (size_t q = 0; q < questions->count; q += step) {
        const int64_t *lo = questions->lo[q], *size = questions->size[q];
        struct asked asked = {s, lo, size};
        memset(s->met, 0, s->count * sizeof *s->met);
        s->last = 0;
        uint64_t work = 7;
        ck_assert_int_eq(ckpt__boxes_each(tree, lo, size, compare_meeting, &asked, &work, &err), CKPT_OK);
        bool empty = false;
        for (uint32_t i = 0; i < s->n; i++)
            empty = empty || size[i] <= 0;
        ck_assert_uint_le(work, 7 + (empty ? 0 : filled + nodes));
        size_t found = 0;
        int64_t both_lo[DIMS], both_size[DIMS];
        for (size_t k = 0; k < s->count; k++) {
            bool meet = ckpt__box_meet(s->n, lo, size, s->lo[k], s->size[k], both_lo, both_size);
            must(s->met[k] == meet, "a box that meets, found once, or one that does not");
            found += meet;
        }
        ck_assert_uint_ge(work, 7 + found);
        if (found > 1) { /* fn ends the walk before the last */
            s->left = found - 1;
            ck_assert_int_eq(ckpt__boxes_each(tree, lo, size, count_meeting, s, NULL, &err), CKPT_E_CANCELLED);
            ck_assert_uint_eq(s->left, 0);
            s->left = SIZE_MAX;
        }
    }
    ckpt__boxes_free(tree);
}

START_TEST(tree_beside_a_scan)
{
    static const size_t counts[] = {0, 1, 2, 15, 16, 17, 32, 100, 255, 256, 257, 300, 700};
    for (uint32_t n = 0; n <= DIMS; n++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int kind = 0; kind < 6; kind++) {
                struct set s = drawn(n, counts[c], kind), questions = drawn(n, 20, kind);
                check_tree(&s, &questions, 1);
                if (kind == 0) { /* all the same box, and one that lies apart */
                    for (size_t k = 0; k + 1 < s.count; k++)
                        memset(s.lo[k], 0, sizeof *s.lo), memcpy(s.size[k], s.size[0], sizeof *s.size);
                    check_tree(&s, &questions, 1);
                }
                set_free(&s);
                set_free(&questions);
            }
}
END_TEST

static void check_grids(uint32_t n, const int64_t *shape, const int64_t *parts, const int64_t *others)
{
    for (int shuffled = 0; shuffled < 2; shuffled++) {
        struct set s = grid(n, shape, parts, shuffled), questions = grid(n, shape, others, shuffled);
        check_tree(&s, &questions, questions.count / 40 + 1);
        set_free(&s);
        set_free(&questions);
    }
}

START_TEST(tree_of_grids)
{
    static const int64_t shape[] = {240, 120, 60};
    static const int64_t rows[] = {240, 1, 1}, columns[] = {1, 24, 1}, tiles[] = {7, 12, 9}, small[] = {40, 20, 1};
    check_grids(1, shape, rows, tiles);
    check_grids(2, shape, rows, columns);
    check_grids(2, shape, columns, rows);
    check_grids(2, shape, small, rows);
    check_grids(3, shape, tiles, small);
    check_grids(3, shape, columns, tiles);
}
END_TEST

/* Asks for all boxes of the other grid, and returns the comparisons. */
static uint64_t ask_all(uint32_t n, const int64_t *shape, const int64_t *parts, const int64_t *others, bool shuffled,
                        size_t *meetings)
{
    struct set s = grid(n, shape, parts, shuffled), questions = grid(n, shape, others, shuffled);
    ckpt__boxes *tree;
    ckpt_error err;
    uint64_t work = 0;
    ck_assert_int_eq(ckpt__boxes_new(n, s.count, box_of, &s, &tree, &err), CKPT_OK);
    for (size_t q = 0; q < questions.count; q++)
        must(!ckpt__boxes_each(tree, questions.lo[q], questions.size[q], count_meeting, &s, &work, &err), "a status");
    *meetings = SIZE_MAX - s.left;
    ckpt__boxes_free(tree);
    set_free(&s);
    set_free(&questions);
    return work;
}

/* Parts of which no borders fall together: a parts and b parts meet in a + b - 1 along a dimension. */
START_TEST(many_boxes_take_little_work)
{
    static const struct {
        uint32_t n;
        int64_t parts[3], others[3];
        double most; /* comparisons a meeting; about a fifth above what they are */
    } cases[] = {
        {1, {MANY, 1, 1}, {MANY - 1, 1, 1}, 38}, {2, {250, 200, 1}, {251, 201, 1}, 25},
        {2, {5000, 10, 1}, {251, 201, 1}, 10},   {3, {37, 37, 36}, {38, 36, 37}, 21},
        {2, {1024, 1, 1}, {1, 32, 1}, 1.2},      {2, {1, 32, 1}, {1024, 1, 1}, 1.2},
    };
    static const int64_t shape[] = {INT64_C(1) << 40, INT64_C(1) << 32, 5000};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        size_t k = i / 2, wanted = 1, meetings;
        uint64_t work = ask_all(cases[k].n, shape, cases[k].parts, cases[k].others, i % 2, &meetings);
        for (uint32_t d = 0; d < cases[k].n; d++)
            wanted *= (size_t)(cases[k].parts[d] + cases[k].others[d] - 1);
        ck_assert_uint_eq(meetings, wanted);
        ck_assert_msg((double)work <= cases[k].most * (double)meetings, "case %zu: %g comparisons a meeting", i,
                      (double)work / (double)meetings);
    }
}
END_TEST

START_TEST(what_a_tree_refuses)
{
    ckpt_error err;
    struct set s = set_new(1, 1);
    ckpt__boxes *tree = NULL;
    ck_assert_int_eq(ckpt__boxes_new(CKPT__BOX_MAX + 1, 1, box_of, &s, &tree, &err), CKPT_E_LIMIT);
    ck_assert_ptr_null(tree);
    ck_assert_int_eq(ckpt__boxes_new(1, (size_t)UINT32_MAX + 1, box_of, &s, &tree, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__boxes_new(1, 0, box_of, &s, &tree, &err), CKPT_OK);
    ck_assert_ptr_null(ckpt__boxes_order(tree));
    ckpt__boxes_free(tree);
    ckpt__boxes_free(NULL);
    s.size[0][0] = 1;
    for (size_t call = 0;; call++) {
        calls_left = call;
        ckpt_status status = ckpt__boxes_new(1, 1, box_of, &s, &tree, &err);
        bool refused = calls_left == SIZE_MAX;
        calls_left = SIZE_MAX;
        ck_assert_int_eq(status, refused ? CKPT_E_NO_MEMORY : CKPT_OK);
        if (!refused) {
            ck_assert_uint_eq(call, 4); /* the tree, the order, the rows, the bounds */
            break;
        }
        ck_assert_ptr_null(tree);
    }
    static const int64_t zero[] = {0}, one[] = {1}, lowest[] = {INT64_MIN};
    ck_assert_int_eq(ckpt__boxes_each(tree, zero, lowest, count_meeting, &s, NULL, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__boxes_each(tree, lowest, one, count_meeting, &s, NULL, &err), CKPT_OK);
    ck_assert_uint_eq(s.met[0], 0);
    ck_assert_int_eq(ckpt__boxes_each(tree, zero, one, count_meeting, &s, NULL, &err), CKPT_OK);
    ck_assert_uint_eq(s.met[0], 1);
    ckpt__boxes_free(tree);
    set_free(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("boxes");
    TCase *c = tcase_create("boxes");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, tree_beside_a_scan);
    tcase_add_test(c, tree_of_grids);
    tcase_add_test(c, many_boxes_take_little_work);
    tcase_add_test(c, what_a_tree_refuses);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
