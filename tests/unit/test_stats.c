/* test_stats.c - the numbers of known values: exact where they can be, stable where sums are not, and what has none. */
#include "flat_file.h"
#include <float.h>
#include <math.h>
#include "core/moments.h"
#include "core/numbers.h"

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
    const uint16_t b[] = {0x3f80, 0xc000, 0x7fc0, 0x7f80};      /* 1, -2, NaN, inf */
    const uint16_t h[] = {0x3c00, 0x0001, 0x7bff};              /* 1, 2^-24, 65504 */
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
    ck_assert(x->min == 0x1p-24 && x->max == 65504 && x->octave_first == -24 && x->octave_count == 40 && x->octaves[24] == 1);
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
    ck_assert_double_eq_tol(x->mean, -1.0 / 3, 1e-15);           /* the sum is exact: -1 */
    x = of(reader, &s, "u");
    ck_assert(x->kind == CKPT_STATS_UINT && x->uint_min == UINT64_MAX - 4 && x->uint_max == UINT64_MAX);
    ck_assert_double_eq_tol(x->std, sqrt(8.0 / 3), 1e-15);       /* doubles cannot tell these three apart */
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
    const unsigned char packed[] = {0x21, 0xf8, 0x07};           /* 0.5 1 -0 -6 6 0: the low half first */
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
    const flat_tensor tensors[] = {FLAT("a", "F32", "1", one), FLAT("b", "F32", "1", two), FLAT("c", "F32", "1", three)};
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

/* Many blocks; a mean a million deviations away, where sums of squares would have no digit left. */
START_TEST(stable)
{
    enum { N = 30011 };
    static double x[N], block[CKPT__MOMENTS_BLOCK];
    ckpt__moments m;
    long double sum = 0, squares = 0;
    memset(&m, 0, sizeof m);
    for (size_t i = 0; i < N; i++) {
        x[i] = 1e9 + (double)(i * 7919 % 1009) / 1009;
        sum += x[i];
    }
    for (size_t i = 0; i < N; i++)
        squares += (x[i] - sum / N) * (x[i] - sum / N);
    for (size_t at = 0, n; at < N; at += n) {
        n = at % 3 == 0 ? 1000 : CKPT__MOMENTS_BLOCK;
        n = N - at < n ? N - at : n;
        memcpy(block, x + at, n * sizeof *block);
        ckpt__moments_add(&m, block, n);
    }
    ck_assert_uint_eq(m.finite, N);
    ck_assert_double_eq_tol((double)(m.sum / N), (double)(sum / N), 1e-6);
    ck_assert_double_eq_tol((double)(m.squares / squares), 1, 1e-10);
    const double sizes[] = {1e300, 1e-300};                     /* squares of these are no doubles */
    for (size_t k = 0; k < 2; k++) {
        double pair[] = {sizes[k], 3 * sizes[k]};
        memset(&m, 0, sizeof m);
        ckpt__moments_add(&m, pair, 2);
        ck_assert_double_eq_tol((double)sqrtl(m.squares / 2) / sizes[k], 1, 1e-15);
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
    ck_assert(out.octaves[0] == 1 && out.octaves[CKPT_STATS_OCTAVES - 1] == 1);     /* the subnormal; 32 */
    const double ends[] = {-DBL_MAX, DBL_MAX, 0};               /* their distance is no double */
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
        if (ckpt_reader_tensor(reader, i)->layout.data) {
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
    tcase_add_test(t, bins);
    tcase_add_test(t, every_code);
    tcase_add_test(t, others);
    suite_add_tcase(s, t);
    return run_suite(s);
}
