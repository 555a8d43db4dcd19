/* test_stats.c - the numbers of known values: exact where they can be, stable where sums are not, and what has none. */
#include "flat_file.h"
#include <float.h>
#include <math.h>
#include "examine/moments.h"
#include "model/numbers.h"

typedef struct seen {
    size_t order[16], count;
    ckpt_tensor_stats of[16];
    size_t stop_after;
} seen;

static int take(void *ctx, size_t tensor, const ckpt_tensor_stats *stats)
{
    seen *s = ctx;
    ck_assert_uint_lt(tensor, 16);
    s->order[s->count++] = tensor;
    s->of[tensor] = *stats;
    return s->stop_after && s->count == s->stop_after;
}

static const ckpt_tensor_stats *of(const ckpt_reader *reader, const seen *s, const char *name)
{
    size_t i;
    ck_assert_int_eq(ckpt_reader_find(reader, name, strlen(name), &i, &err), CKPT_OK);
    return &s->of[i];
}

static ckpt_reader *look(const flat_tensor *tensors, size_t count, seen *s)
{
    const ckpt_stats_options options = {.histogram = true};
    write_flat(temporary("flat"), tensors, count);
    ckpt_reader *reader = open_path(temporary("flat"));
    memset(s, 0, sizeof *s);
    ck_assert_int_eq(ckpt_stats(reader, NULL, 0, &options, take, s, &err), CKPT_OK);
    ck_assert_uint_eq(s->count, count);
    return reader;
}

START_TEST(floats)
{
    const float f[] = {1, -3, 0, -0.0f, 5, NAN, INFINITY, -INFINITY, -INFINITY, 2};
    const uint16_t b[] = {0x3f80, 0xc000, 0x7fc0, 0x7f80}; /* 1, -2, NaN, inf */
    const uint16_t h[] = {0x3c00, 0x0001, 0x7bff};         /* 1, 2^-24, 65504 */
    const float nothing[] = {NAN, INFINITY};
    const flat_tensor tensors[] = {FLAT("f", "F32", "10", f), FLAT("b", "BF16", "4", b), FLAT("h", "F16", "3", h),
                                   FLAT("nothing", "F32", "2", nothing)};
    seen s;
    ckpt_reader *reader = look(tensors, 4, &s);
    const ckpt_tensor_stats *x = of(reader, &s, "f");
    ck_assert_int_eq(x->kind, CKPT_STATS_FLOAT);
    ck_assert_uint_eq(x->count, 10);
    ck_assert_uint_eq(x->finite, 6);
    ck_assert_uint_eq(x->nan, 1);
    ck_assert_uint_eq(x->inf_pos, 1);
    ck_assert_uint_eq(x->inf_neg, 2);
    ck_assert_uint_eq(x->zero, 2);
    ck_assert_double_eq(x->min, -3);
    ck_assert_double_eq(x->max, 5);
    ck_assert_double_eq(x->absmax, 5);
    ck_assert_double_eq_tol(x->mean, 5.0 / 6, 1e-15);
    ck_assert_double_eq_tol(x->std, sqrt(39.0 / 6 - 25.0 / 36), 1e-15);
    x = of(reader, &s, "b");
    ck_assert(x->min == -2 && x->max == 1 && x->nan == 1 && x->inf_pos == 1 && x->absmax == 2);
    x = of(reader, &s, "h");
    ck_assert(x->min == 0x1p-24 && x->max == 65504 && x->octave_first == -24 && x->octave_count == 40 &&
              x->octaves[24] == 1);
    x = of(reader, &s, "nothing");
    ck_assert(x->finite == 0 && x->nan == 1 && x->inf_pos == 1 && !x->has_histogram && x->min == 0);
    ckpt_reader_close(reader);
}
END_TEST

START_TEST(integers)
{
    const int64_t i[] = {INT64_MIN, INT64_MAX, 0};
    const uint64_t u[] = {UINT64_MAX, UINT64_MAX - 2, UINT64_MAX - 4};
    const int8_t c[] = {-128, 127, 0, 1};
    const unsigned char b[] = {0, 1, 2, 255};
    const flat_tensor tensors[] = {FLAT("i", "I64", "3", i), FLAT("u", "U64", "3", u), FLAT("c", "I8", "4", c),
                                   FLAT("b", "BOOL", "4", b)};
    seen s;
    ckpt_reader *reader = look(tensors, 4, &s);
    const ckpt_tensor_stats *x = of(reader, &s, "i");
    ck_assert(x->kind == CKPT_STATS_INT && x->int_min == INT64_MIN && x->int_max == INT64_MAX && x->zero == 1);
    ck_assert_double_eq_tol(x->mean, -1.0 / 3, 1e-15); /* the sum is exact: -1 */
    x = of(reader, &s, "u");
    ck_assert(x->kind == CKPT_STATS_UINT && x->uint_min == UINT64_MAX - 4 && x->uint_max == UINT64_MAX);
    ck_assert_double_eq_tol(x->std, sqrt(8.0 / 3), 1e-15); /* doubles cannot tell these three apart */
    x = of(reader, &s, "c");
    ck_assert(x->int_min == -128 && x->int_max == 127 && x->mean == 0 && x->zero == 1);
    x = of(reader, &s, "b");
    ck_assert(x->uint_min == 0 && x->uint_max == 1 && x->zero == 1 && x->mean == 0.75);
    ckpt_reader_close(reader);
}
END_TEST

START_TEST(complex_and_packed)
{
    const float c[] = {3, 4, NAN, INFINITY, 1, -INFINITY, 0, 0};
    const unsigned char packed[] = {0x21, 0xf8, 0x07}; /* 0.5 1 -0 -6 6 0: the low half first */
    const flat_tensor tensors[] = {FLAT("c", "C64", "4", c), FLAT("p", "F4", "6", packed)};
    seen s;
    ckpt_reader *reader = look(tensors, 2, &s);
    const ckpt_tensor_stats *x = of(reader, &s, "c");
    ck_assert(x->kind == CKPT_STATS_COMPLEX && x->count == 4 && x->nan == 1 && x->inf_pos == 1 && x->zero == 1);
    ck_assert(x->max == 5 && x->min == 0);
    x = of(reader, &s, "p");
    ck_assert_uint_eq(x->count, 6);
    ck_assert(x->min == -6 && x->max == 6 && x->zero == 2);
    ck_assert_double_eq_tol(x->mean, 0.25, 1e-15);
    ckpt_reader_close(reader);
}
END_TEST

/* In the order of the file, not of its header; only those that are asked for. */
START_TEST(order_and_choice)
{
    const float one[] = {1}, two[] = {2}, three[] = {3};
    const flat_tensor tensors[] = {FLAT("a", "F32", "1", one), FLAT("b", "F32", "1", two),
                                   FLAT("c", "F32", "1", three)};
    seen s;
    ckpt_reader *reader = look(tensors, 3, &s);
    size_t a, c;
    ck_assert_int_eq(ckpt_reader_find(reader, "a", 1, &a, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_find(reader, "c", 1, &c, &err), CKPT_OK);
    ck_assert(s.order[0] == a && s.order[2] == c);
    const size_t chosen[] = {c, a};
    memset(&s, 0, sizeof s);
    ck_assert_int_eq(ckpt_stats(reader, chosen, 2, NULL, take, &s, &err), CKPT_OK);
    ck_assert(s.count == 2 && s.order[0] == a && s.order[1] == c && s.of[c].mean == 3);
    const size_t wrong[] = {3};
    ck_assert_int_eq(ckpt_stats(reader, wrong, 1, NULL, take, &s, &err), CKPT_E_ARGUMENT);
    memset(&s, 0, sizeof s);
    s.stop_after = 2;
    ck_assert_int_eq(ckpt_stats(reader, NULL, 0, NULL, take, &s, &err), CKPT_E_CANCELLED);
    ck_assert_uint_eq(s.count, 2);
    ckpt_reader_close(reader);
}
END_TEST

static void add_in_blocks(ckpt__moments *m, const double *x, size_t count)
{
    static double block[CKPT__MOMENTS_BLOCK];
    for (size_t at = 0, n; at < count; at += n) {
        n = at % 3 == 0 ? 1000 : CKPT__MOMENTS_BLOCK;
        n = count - at < n ? count - at : n;
        memcpy(block, x + at, n * sizeof *block);
        ckpt__moments_add(m, block, n);
    }
}

/* Many blocks; a mean a million deviations away, where sums of squares would have no digit left. The values are whole
 * 1024ths, so that what they come to is told in integers. */
START_TEST(stable)
{
    enum { N = 30011 };
    static double x[N];
    const double bases[] = {1e9, -1e12, 0};
    for (size_t k = 0; k < 3; k++) {
        ckpt__moments m;
        int64_t sum = 0, squares = 0;
        memset(&m, 0, sizeof m);
        for (int64_t i = 0; i < N; i++) {
            int64_t v = i * 7919 % 1009 + i % 11;
            x[i] = bases[k] + (double)v / 1024;
            sum += v;
            squares += v * v;
        }
        double mean = (double)sum / N / 1024;
        double std = sqrt((double)squares / N - (double)sum / N * ((double)sum / N)) / 1024;
        add_in_blocks(&m, x, N);
        ck_assert_uint_eq(m.finite, N);
        ck_assert_double_eq_tol(ckpt__moments_mean(&m) - bases[k], mean, fabs(bases[k]) * 0x1p-50 + 1e-15);
        ck_assert_double_eq_tol(m.mean.high - bases[k] + m.mean.low, mean, 1e-12); /* below what a double holds, too */
        ck_assert_double_eq_tol(ckpt__moments_std(&m) / std, 1, 1e-13);
    }
}
END_TEST

static double moments_of(const double *x, size_t n, double *std)
{
    ckpt__moments m;
    memset(&m, 0, sizeof m);
    for (size_t i = 0; i < n; i++) {
        double one = x[i]; /* a block each */
        ckpt__moments_add(&m, &one, 1);
    }
    *std = ckpt__moments_std(&m);
    return ckpt__moments_mean(&m);
}

/* Squares of these are no doubles; together with others, whichever comes first. */
START_TEST(large_and_small)
{
    const double sizes[] = {1e300, 1e-300, 0x1p-1070, 1e200, 1e-200, 1};
    double std;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double of = sizes[k], pair[] = {of, 3 * of}, zeros[] = {0, 0, 4 * of, 4 * of},
               near[] = {of, of * (1 + 0x1p-20)};
        ckpt__moments m;
        ck_assert_double_eq_tol(moments_of(pair, 2, &std) / of, 2, 1e-15);
        ck_assert_double_eq_tol(std / of, 1, 1e-15);
        ck_assert_double_eq_tol(moments_of(zeros, 4, &std) / of, 2, 1e-15);
        ck_assert_double_eq_tol(std / of, 2, 1e-15);
        moments_of(near, 2, &std);
        if (near[1] > near[0]) /* of 0x1p-1070 they are one */
            ck_assert_double_eq_tol(std / (near[1] / 2 - near[0] / 2), 1, 1e-13);
        memset(&m, 0, sizeof m);
        ckpt__moments_add(&m, pair, 2);
        ck_assert_double_eq_tol(ckpt__moments_mean(&m) / of, 2, 1e-15);
        ck_assert_double_eq_tol(ckpt__moments_std(&m) / of, 1, 1e-15);
    }
    const double mixed[4][3] = {{1e300, 1, 1e-300}, {1e-300, 1, 1e300}, {1, 1e300, -1e300}, {1e300, -1e300, 3}};
    const double means[] = {1e300 / 3, 1e300 / 3, 1.0 / 3, 1};
    for (size_t k = 0; k < 4; k++) {
        ck_assert_double_eq_tol(moments_of(mixed[k], 3, &std) / means[k], 1, 1e-15);
        ck_assert_double_eq_tol(std / 1e300, sqrt(k < 2 ? 2.0 / 9 : 2.0 / 3), 1e-15);
    }
    const double units[] = {0x1p398, 0x1p-402}; /* 1, 2, 8 of these lie on both sides of where squares are safe */
    for (size_t k = 0; k < 2; k++) {
        const double three[] = {units[k], 2 * units[k], 8 * units[k]};
        ck_assert_double_eq_tol(moments_of(three, 3, &std) / units[k], 11.0 / 3, 1e-15);
        ck_assert_double_eq_tol(std / units[k], sqrt(86.0 / 9), 1e-14);
    }
}
END_TEST

/* A mean lies among the values, and no deviation is more than half of what lies between them, however it was rounded. */
START_TEST(never_beside_the_values)
{
    static const double values[] = {0.1, 1e9 / 3, 1e300 / 3, DBL_MAX, 0x1p-1074};
    double std, many[41], ends[42];
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        for (size_t i = 0; i < 42; i++) {
            many[i % 41] = values[k];
            ends[i] = i % 2 ? values[k] : -values[k];
        }
        for (size_t n = 1; n <= 41; n++)
            ck_assert(moments_of(many, n, &std) == values[k] && std == 0);
        for (size_t n = 2; n <= 42; n += 2) {
            ck_assert(moments_of(ends, n, &std) == 0);
            ck_assert(std <= values[k]);
            ck_assert_double_eq_tol(std / values[k], 1, 1e-14);
        }
    }
}
END_TEST

START_TEST(bins)
{
    static ckpt__bins b;
    ckpt_tensor_stats out;
    const double x[] = {0, 1, 31.999, 32, 16, 15.999999, NAN, INFINITY, 0x1p-1074};
    memset(&out, 0, sizeof out);
    ckpt__bins_init(&b, 0, 32);
    ckpt__bins_add(&b, x, sizeof x / sizeof *x);
    ckpt__bins_give(&b, &out);
    ck_assert(out.has_histogram && out.bins[0] == 2 && out.bins[1] == 1);
    ck_assert(out.bins[15] == 1 && out.bins[16] == 1 && out.bins[31] == 2);
    ck_assert_int_eq(out.octave_first, 5 - CKPT_STATS_OCTAVES + 1);
    ck_assert(out.octaves[0] == 1 && out.octaves[CKPT_STATS_OCTAVES - 1] == 1); /* the subnormal; 32 */
    const double ends[] = {-DBL_MAX, DBL_MAX, 0};                               /* their distance is no double */
    ckpt__bins_init(&b, -DBL_MAX, DBL_MAX);
    ckpt__bins_add(&b, ends, 3);
    ck_assert(b.counts[0] == 1 && b.counts[31] == 1 && b.counts[16] == 1);
}
END_TEST

/* Each code of a byte float is what the conversion makes of it. */
START_TEST(every_code)
{
    const ckpt_dtype dtypes[] = {CKPT_F8_E4M3, CKPT_F8_E5M2, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_F8_E8M0};
    static ckpt__numbers n;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        unsigned char codes[256];
        double got[256], want[256];
        for (unsigned i = 0; i < 256; i++)
            codes[i] = (unsigned char)i;
        ckpt__numbers_init(&n, dtypes[d]);
        ckpt__numbers_load(&n, codes, 256, got);
        ck_assert(ckpt__convert(dtypes[d], codes, CKPT_F64, want, 256, NULL));
        for (unsigned i = 0; i < 256; i++)
            ck_assert(got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
    }
    const unsigned char packed[] = {0x21, 0xf8};
    const double values[] = {0.5, 1, -0.0, -6};
    double four[4];
    int64_t crumbs[4];
    ckpt__numbers_init(&n, CKPT_F4_E2M1_X2);
    ck_assert_uint_eq(ckpt__numbers_in(&n, 2), 4);
    ckpt__numbers_load(&n, packed, 4, four);
    ck_assert(memcmp(four, values, sizeof four) == 0);
    ckpt__numbers_init(&n, CKPT_QU2X4);
    ckpt__numbers_load_int(&n, (const unsigned char[]){0xe4}, 4, crumbs);
    for (int64_t i = 0; i < 4; i++)
        ck_assert_int_eq(crumbs[i], i);
    ckpt__numbers_init(&n, CKPT_F6_E2M3);
    ck_assert_int_eq(n.kind, CKPT__NO_NUMBERS);
}
END_TEST

/* Not dense, a damaged payload, and what the caller gets wrong. */
START_TEST(others)
{
    seen s;
    ckpt_reader *reader = open_path(fixture("tensors.pt"));
    memset(&s, 0, sizeof s);
    ck_assert_int_eq(ckpt_stats(reader, NULL, 0, NULL, take, &s, &err), CKPT_OK);
    ck_assert_uint_eq(s.count, ckpt_reader_tensor_count(reader));
    size_t parents = 0;
    for (size_t i = 0; i < s.count; i++)
        if (ckpt_reader_tensor(reader, i)->extra->layout.data) {
            ck_assert(s.of[i].kind == CKPT_STATS_NONE && s.of[i].why);
            parents++;
        }
    ck_assert_uint_gt(parents, 0);
    ckpt_reader_close(reader);
    reader = open_path(fixture("bad-crc.pt"));
    ck_assert_int_eq(ckpt_stats(reader, NULL, 0, NULL, take, &s, &err), CKPT_E_DAMAGED);
    ck_assert_str_eq(err.object, "model.0.weight");
    ck_assert_int_eq(ckpt_stats(reader, NULL, 0, NULL, NULL, NULL, &err), CKPT_E_ARGUMENT);
    ckpt_reader_close(reader);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("stats");
    TCase *t = tcase_create("stats");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, floats);
    tcase_add_test(t, integers);
    tcase_add_test(t, complex_and_packed);
    tcase_add_test(t, order_and_choice);
    tcase_add_test(t, stable);
    tcase_add_test(t, large_and_small);
    tcase_add_test(t, never_beside_the_values);
    tcase_add_test(t, bins);
    tcase_add_test(t, every_code);
    tcase_add_test(t, others);
    suite_add_tcase(s, t);
    return run_suite(s);
}
