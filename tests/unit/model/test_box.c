/* test_box.c - boxes against brute force: what two have in common, and cuts of views of any strides. */
#include "model/box.h"

#include "points.h"

static bool holds(uint32_t n, const int64_t *lo, const int64_t *size, const int64_t *point)
{
    for (uint32_t i = 0; i < n; i++)
        if (point[i] < lo[i] || point[i] >= lo[i] + size[i])
            return false;
    return true;
}

/* ---- two boxes */

START_TEST(what_two_boxes_have)
{
    static const int64_t world[DIMS] = {9, 9, 9, 9, 9};
    for (int round = 0; round < 3000; round++) {
        uint32_t n = (uint32_t)draw_from(0, 3);
        int64_t lo[2][DIMS], size[2][DIMS], both_lo[DIMS], both_size[DIMS], point[DIMS] = {0};
        for (uint32_t i = 0; i < 2 * n; i++) {
            lo[i % 2][i / 2] = draw_from(0, 5);
            size[i % 2][i / 2] = draw_from(round % 8 ? 1 : -1, 4);
            both_lo[i / 2] = both_size[i / 2] = -77;
        }
        bool meet = ckpt__box_meet(n, lo[0], size[0], lo[1], size[1], both_lo, both_size);
        size_t common = 0;
        do {
            bool in_both = holds(n, lo[0], size[0], point) && holds(n, lo[1], size[1], point);
            common += in_both;
            must(in_both == (meet && holds(n, both_lo, both_size, point)), "a point of both, or of what they have");
        } while (next_point(n, world, point));
        ck_assert_int_eq(meet, common > 0);
        uint64_t volume = 0;
        ck_assert(!meet || (ckpt__box_volume(n, both_size, &volume) && volume == common));
        for (uint32_t i = 0; i < n && !meet; i++)
            ck_assert(both_lo[i] == -77 && both_size[i] == -77);
        /* the other way round, and into an argument */
        ck_assert_int_eq(meet, ckpt__box_meet(n, lo[1], size[1], lo[0], size[0], lo[1], size[1]));
        ck_assert(!meet || n == 0 || (!memcmp(lo[1], both_lo, n * 8) && !memcmp(size[1], both_size, n * 8)));
    }
}
END_TEST

START_TEST(numbers_at_the_end)
{
    static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX};
    enum { ENDS = sizeof ends / sizeof *ends };
    int64_t lo, size;
    for (size_t a = 0; a < ENDS * ENDS; a++)
        for (size_t b = 0; b < ENDS * ENDS; b++) {
            int64_t al = ends[a / ENDS], as = ends[a % ENDS], bl = ends[b / ENDS], bs = ends[b % ENDS];
            bool meet = ckpt__box_meet(1, &al, &as, &bl, &bs, &lo, &size);
            /* the last element, at most the last that there is */
            int64_t a_last = as > 0 && al > INT64_MAX - (as - 1) ? INT64_MAX : al + (as > 0 ? as - 1 : 0);
            int64_t b_last = bs > 0 && bl > INT64_MAX - (bs - 1) ? INT64_MAX : bl + (bs > 0 ? bs - 1 : 0);
            bool wanted = as > 0 && bs > 0 && al <= b_last && bl <= a_last;
            ck_assert_int_eq(meet, wanted);
            if (meet)
                ck_assert(lo == (al > bl ? al : bl) && size > 0 && size <= as && size <= bs);
            bool inside = as >= 0 && bs >= 0 && al >= 0 && al <= bs && as <= bs - (al >= 0 ? al : 0);
            ck_assert_int_eq(ckpt__box_inside(1, &al, &as, &bs), inside);
        }
    uint64_t volume = 5;
    static const int64_t full[] = {INT64_MAX, 1}, large[] = {INT64_C(1) << 32, INT64_C(1) << 31};
    static const int64_t negative[] = {3, -1};
    ck_assert(ckpt__box_volume(2, full, &volume) && volume == INT64_MAX);
    ck_assert(ckpt__box_volume(0, NULL, &volume) && volume == 1);
    ck_assert(!ckpt__box_volume(2, large, &volume) && !ckpt__box_volume(2, negative, &volume));
    ck_assert(volume == 1 && ckpt__box_inside(0, NULL, NULL, NULL) && ckpt__box_meet(0, 0, 0, 0, 0, 0, 0));
}
END_TEST

START_TEST(inside_of_a_shape)
{
    for (int64_t shape = -1; shape < 4; shape++)
        for (int64_t lo = -2; lo < 6; lo++)
            for (int64_t size = -2; size < 6; size++) {
                int64_t los[] = {0, lo}, sizes[] = {1, size}, shapes[] = {1, shape};
                bool inside = lo >= 0 && size >= 0 && lo + size <= shape;
                ck_assert_int_eq(ckpt__box_inside(2, los, sizes, shapes), inside);
                int64_t turned_lo[] = {lo, 0}, turned[] = {size, 1}, turned_shape[] = {shape, 1};
                ck_assert_int_eq(ckpt__box_inside(2, turned_lo, turned, turned_shape), inside);
            }
}
END_TEST

/* ---- cuts */

/* What a cut gave. It exists so that each element can be counted: fn gets no other state. */
struct seen {
    uint32_t n;
    const int64_t *shape;
    const uint64_t *strides; /* bytes; NULL: the order of the boxes is not looked at */
    uint64_t unit, past;     /* bytes: past is the end of the box before */
    size_t boxes, stop;      /* stop: after so many boxes fn asks to end; 0: never */
    uint8_t times[4096];     /* of each element, in C order */
};

static ckpt_status see(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    struct seen *s = ctx;
    (void)err;
    s->boxes++;
    ck_assert(ckpt__box_inside(s->n, lo, size, s->shape));
    int64_t at[DIMS] = {0};
    uint64_t first = 0, past = s->unit;
    for (uint32_t i = 0; i < s->n && s->strides; i++) {
        first += (uint64_t)lo[i] * s->strides[i];
        past += (uint64_t)(lo[i] + size[i] - 1) * s->strides[i];
    }
    ck_assert(!s->strides || first >= s->past);
    s->past = past;
    uint64_t volume;
    ck_assert(ckpt__box_volume(s->n, size, &volume) && volume > 0);
    do {
        size_t element = 0;
        for (uint32_t i = 0; i < s->n; i++)
            element = element * (size_t)s->shape[i] + (size_t)(lo[i] + at[i]);
        must(element < sizeof s->times, "an element outside");
        s->times[element]++;
    } while (next_point(s->n, size, at));
    return s->stop && s->boxes == s->stop ? CKPT_E_CANCELLED : 1; /* information does not end the walk */
}

static void check_cut(uint32_t n, const int64_t *shape, const uint64_t *strides, uint64_t unit, uint64_t begin,
                      uint64_t end, bool nested)
{
    struct seen s = {.n = n, .shape = shape, .strides = nested ? strides : NULL, .unit = unit};
    ckpt_error err;
    ck_assert_int_eq(ckpt__box_cut_bytes(n, shape, strides, unit, begin, end, see, &s, &err), CKPT_OK);
    int64_t point[DIMS] = {0};
    size_t element = 0;
    uint64_t all;
    ck_assert(ckpt__box_volume(n, shape, &all) && all <= sizeof s.times);
    if (all == 0) {
        ck_assert_uint_eq(s.boxes, 0);
        return;
    }
    do {
        uint64_t at = 0;
        for (uint32_t i = 0; i < n; i++)
            at += (uint64_t)point[i] * strides[i];
        int touched = begin < end && at < end && at + unit > begin && unit > 0;
        if (s.times[element] != touched)
            ck_abort_msg("element %zu: %d times, wanted %d ([%llu, %llu), unit %llu)", element, s.times[element],
                         touched, (unsigned long long)begin, (unsigned long long)end, (unsigned long long)unit);
        element++;
    } while (next_point(n, shape, point));
    if (nested)
        ck_assert_uint_le(s.boxes, n ? 2 * n - 1 : 1);
    for (size_t stop = 1; stop <= s.boxes && stop <= 3; stop++) {
        struct seen t = {.n = n, .shape = shape, .unit = unit, .stop = stop};
        ck_assert_int_eq(ckpt__box_cut_bytes(n, shape, strides, unit, begin, end, see, &t, &err), CKPT_E_CANCELLED);
        ck_assert_uint_eq(t.boxes, stop);
    }
}

/* Strides of C order with the dimensions in an order of its own; with gaps where padding is above 0. Returns the bytes. */
static uint64_t draw_nested(uint32_t n, const int64_t *shape, uint64_t unit, int64_t padding, uint64_t *strides)
{
    bool done[DIMS] = {false};
    uint64_t reach = unit;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t dim = (uint32_t)draw_from(0, n - 1);
        while (done[dim])
            dim = (dim + 1) % n;
        done[dim] = true;
        strides[dim] = reach + (uint64_t)draw_from(0, padding);
        reach += (uint64_t)(shape[dim] > 0 ? shape[dim] - 1 : 0) * strides[dim];
    }
    return reach;
}

START_TEST(cuts_of_any_view)
{
    for (int round = 0; round < 20000; round++) {
        uint32_t n = (uint32_t)draw_from(0, DIMS);
        int64_t shape[DIMS];
        uint64_t strides[DIMS] = {0}, unit = (uint64_t)draw_from(round % 49 ? 1 : 0, 8);
        for (uint32_t i = 0; i < n; i++)
            shape[i] = draw_from(round % 20 ? 1 : 0, n > 3 ? 3 : 5);
        bool nested = round % 4 != 3;
        uint64_t reach = draw_nested(n, shape, unit, round % 4 == 1 ? 9 : 0, strides);
        if (round % 4 == 2 && n)
            strides[draw_from(0, n - 1)] = 0;
        for (uint32_t i = 0; i < n && !nested; i++)
            strides[i] = (uint64_t)draw_from(0, 12);
        uint64_t most = reach + 10;
        uint64_t begin = draw() % most, end = begin + draw() % (round % 3 ? most : 12);
        check_cut(n, shape, strides, unit, begin, end, nested);
    }
}
END_TEST

START_TEST(cuts_that_are_known)
{
    ckpt_error err;
    static const int64_t shape[] = {3, 4}, crossed[] = {2, 3};
    static const uint64_t strides[] = {16, 4}, across[] = {3, 2};
    struct seen s = {.n = 2, .shape = shape, .strides = strides, .unit = 4};
    ck_assert_int_eq(ckpt__box_cut_bytes(2, shape, strides, 4, 8, 40, see, &s, &err), CKPT_OK);
    ck_assert_uint_eq(s.boxes, 3);
    ck_assert(!memcmp(s.times, "\0\0\1\1\1\1\1\1\1\1\0\0", 12));
    for (uint64_t begin = 0; begin < 12; begin++) /* elements at 0 2 4 and 3 5 7 */
        for (uint64_t end = begin; end < 12; end++)
            check_cut(2, crossed, across, 1, begin, end, false);
    /* whole rows are one box; so are the elements of rows of one, whatever the stride in the row */
    static const int64_t column[] = {4, 1};
    static const uint64_t rows[] = {4, 1};
    for (int k = 0; k < 2; k++) {
        struct seen one = {.n = 2, .shape = k ? column : shape, .strides = k ? rows : strides, .unit = 4};
        uint64_t begin = k ? 1 : 16, end = k ? 9 : 48;
        ck_assert_int_eq(ckpt__box_cut_bytes(2, one.shape, one.strides, one.unit, begin, end, see, &one, &err),
                         CKPT_OK);
        ck_assert_uint_eq(one.boxes, 1);
    }
    check_cut(2, shape, strides, 4, 0, UINT64_MAX, true);
    check_cut(2, shape, strides, 4, UINT64_MAX - 1, UINT64_MAX, true);
    check_cut(2, shape, strides, 4, 48, 50, true);
    check_cut(0, NULL, NULL, 4, 3, 4, true);
    check_cut(0, NULL, NULL, 4, 4, 5, true);
}
END_TEST

START_TEST(cuts_of_elements)
{
    ckpt_error err;
    for (int round = 0; round < 3000; round++) {
        uint32_t n = (uint32_t)draw_from(0, 4);
        int64_t shape[DIMS];
        for (uint32_t i = 0; i < n; i++)
            shape[i] = draw_from(round % 20 ? 1 : 0, 5);
        uint64_t all, begin, end;
        ck_assert(ckpt__box_volume(n, shape, &all));
        begin = draw() % (all + 2), end = begin + draw() % (all + 3);
        struct seen s = {.n = n, .shape = shape};
        ck_assert_int_eq(ckpt__box_cut_flat(n, shape, begin, end, see, &s, &err), CKPT_OK);
        for (uint64_t i = 0; i < all; i++)
            must(s.times[i] == (i >= begin && i < end), "an element");
        ck_assert_uint_le(s.boxes, n ? 2 * n - 1 : 1);
        ck_assert(s.boxes > 0 || begin >= end || begin >= all);
    }
}
END_TEST

/* Keeps the boxes of one dimension. */
struct kept {
    size_t count;
    int64_t lo[8], size[8];
};

static ckpt_status keep(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    struct kept *k = ctx;
    (void)err;
    ck_assert_uint_lt(k->count, 8);
    k->lo[k->count] = lo[0];
    k->size[k->count++] = size[0];
    return CKPT_OK;
}

START_TEST(cuts_at_the_end_of_numbers)
{
    ckpt_error err;
    struct kept k = {0};
    /* elements at 0, 2, ..., 2^64 - 4: of the last bytes that there are */
    static const int64_t longest[] = {INT64_MAX}, high[] = {INT64_C(1) << 31, (INT64_C(1) << 31) - 1};
    static const uint64_t two[] = {2}, wide[] = {UINT64_C(1) << 33, 4}, wider[] = {3};
    ck_assert_int_eq(ckpt__box_cut_bytes(1, longest, two, 2, UINT64_MAX - 5, UINT64_MAX, keep, &k, &err), CKPT_OK);
    ck_assert(k.count == 1 && k.lo[0] == INT64_MAX - 2 && k.size[0] == 2);
    k.count = 0;
    ck_assert_int_eq(ckpt__box_cut_bytes(1, longest, two, 1, 0, UINT64_MAX, keep, &k, &err), CKPT_OK);
    ck_assert(k.count == 1 && k.lo[0] == 0 && k.size[0] == INT64_MAX);
    k.count = 0; /* rows of 2^33 bytes: the end of the last but one, and the begin of the last */
    uint64_t border = ((UINT64_C(1) << 31) - 1) << 33;
    ck_assert_int_eq(ckpt__box_cut_bytes(2, high, wide, 4, border - 9, border + 1, keep, &k, &err), CKPT_OK);
    ck_assert(k.count == 2 && k.lo[0] == high[0] - 2 && k.lo[1] == high[0] - 1);
    ck_assert_int_eq(ckpt__box_cut_bytes(1, longest, wider, 1, 0, 1, keep, &k, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__box_cut_bytes(1, longest, two, 5, 0, 1, keep, &k, &err), CKPT_E_LIMIT);
    k.count = 0;
    static const int64_t halves[] = {INT64_C(1) << 31, INT64_C(1) << 32};
    ck_assert_int_eq(ckpt__box_cut_flat(2, halves, 0, 1, keep, &k, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__box_cut_flat(1, longest, INT64_MAX - 1, UINT64_MAX, keep, &k, &err), CKPT_OK);
    ck_assert(k.count == 1 && k.lo[0] == INT64_MAX - 1 && k.size[0] == 1);
    /* 64 dimensions are taken, 65 are not; 2^60 elements of which almost all lie across each other end at a limit */
    int64_t shape[CKPT__BOX_MAX + 1];
    uint64_t strides[CKPT__BOX_MAX + 1];
    for (int i = 0; i <= CKPT__BOX_MAX; i++)
        shape[i] = i < 60 ? 2 : 1, strides[i] = 8;
    k.count = 0;
    ck_assert_int_eq(ckpt__box_cut_bytes(CKPT__BOX_MAX, shape, strides, 4, 0, 4, keep, &k, &err), CKPT_OK);
    ck_assert_uint_eq(k.count, 1);
    ck_assert_int_eq(ckpt__box_cut_bytes(CKPT__BOX_MAX + 1, shape, strides, 4, 0, 4, keep, &k, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__box_cut_flat(CKPT__BOX_MAX + 1, shape, 0, 4, keep, &k, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__box_cut_bytes(60, shape, strides, 4, 245, 247, keep, &k, &err), CKPT_E_LIMIT);
    ck_assert_uint_eq(k.count, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("box");
    TCase *c = tcase_create("box");
    tcase_set_timeout(c, 300);
    tcase_add_test(c, what_two_boxes_have);
    tcase_add_test(c, numbers_at_the_end);
    tcase_add_test(c, inside_of_a_shape);
    tcase_add_test(c, cuts_of_any_view);
    tcase_add_test(c, cuts_that_are_known);
    tcase_add_test(c, cuts_of_elements);
    tcase_add_test(c, cuts_at_the_end_of_numbers);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
