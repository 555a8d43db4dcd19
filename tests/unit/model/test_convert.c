/* test_convert.c - from one dtype to another: what torch 2.13 makes of some values, brute force for all others. */
#include "model/index.h"

#include <math.h>
#include "points.h"

static ckpt__convert_counts convert(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n)
{
    ckpt__convert_counts counts;
    memset(&counts, 0, sizeof counts);
    ck_assert(ckpt__convert_counted(from, src, to, dst, n, &counts));
    ck_assert_uint_eq(counts.elements, n);
    return counts;
}

/* ---- against torch 2.13.0: torch.tensor(values).to(dtype).view(torch.uint8 or int16) */

enum { VALUES = 31 };
static const float values[VALUES] = {
    0.0f,           -0.0f,          1.0f,           1.0625f,        1.1875f,        -1.1875f,     448.0f,
    464.0f,         464.001f,       1000000000.0f,  -1000000000.0f, INFINITY,       0.001953125f, 0.0009765625f,
    0.00097656256f, 0.0009765625f,  57344.0f,       61439.0f,       61440.0f,       65504.0f,     65519.0f,
    65520.0f,       5.9604645e-08f, 2.9802322e-08f, 2.9802326e-08f, 3.3895314e+38f, 3.4e+38f,     1e-40f,
    240.0f,         247.9f,         248.0f,
};
static const struct {
    ckpt_dtype dtype;
    uint16_t codes[VALUES];
} of_torch[] = {
    {CKPT_F16, {0x0,    0x8000, 0x3c00, 0x3c40, 0x3cc0, 0xbcc0, 0x5f00, 0x5f40, 0x5f40, 0x7c00, 0xfc00,
                0x7c00, 0x1800, 0x1400, 0x1400, 0x1400, 0x7b00, 0x7b80, 0x7b80, 0x7bff, 0x7bff, 0x7c00,
                0x1,    0x0,    0x1,    0x7c00, 0x7c00, 0x0,    0x5b80, 0x5bbf, 0x5bc0}},
    {CKPT_BF16, {0x0,    0x8000, 0x3f80, 0x3f88, 0x3f98, 0xbf98, 0x43e0, 0x43e8, 0x43e8, 0x4e6e, 0xce6e,
                 0x7f80, 0x3b00, 0x3a80, 0x3a80, 0x3a80, 0x4760, 0x4770, 0x4770, 0x4780, 0x4780, 0x4780,
                 0x3380, 0x3300, 0x3300, 0x7f7f, 0x7f80, 0x1,    0x4370, 0x4378, 0x4378}},
    {CKPT_F8_E4M3, {0x0,  0x80, 0x38, 0x38, 0x3a, 0xba, 0x7e, 0x7e, 0x7e, 0x7e, 0xfe, 0x7e, 0x1,  0x0,  0x1, 0x0,
                    0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x0,  0x0,  0x0,  0x7e, 0x7e, 0x0,  0x77, 0x77, 0x78}},
    {CKPT_F8_E5M2, {0x0,  0x80, 0x3c, 0x3c, 0x3d, 0xbd, 0x5f, 0x5f, 0x5f, 0x7c, 0xfc, 0x7c, 0x18, 0x14, 0x14, 0x14,
                    0x7b, 0x7b, 0x7c, 0x7c, 0x7c, 0x7c, 0x0,  0x0,  0x0,  0x7c, 0x7c, 0x0,  0x5c, 0x5c, 0x5c}},
    {CKPT_F8_E4M3FNUZ, {0x0,  0x0,  0x40, 0x40, 0x42, 0xc2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x2,  0x1,  0x1, 0x1,
                        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x0,  0x0,  0x0,  0x80, 0x80, 0x0,  0x7f, 0x7f, 0x80}},
    {CKPT_F8_E5M2FNUZ, {0x0,  0x0,  0x40, 0x40, 0x41, 0xc1, 0x63, 0x63, 0x63, 0x80, 0x80, 0x80, 0x1c, 0x18, 0x18, 0x18,
                        0x7f, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x0,  0x0,  0x0,  0x80, 0x80, 0x0,  0x60, 0x60, 0x60}},
    {CKPT_F8_E8M0, {0x0,  0x0,  0x7f, 0x7f, 0x7f, 0x7f, 0x88, 0x88, 0x88, 0x9d, 0x9d, 0xff, 0x76, 0x75, 0x75, 0x75,
                    0x8f, 0x8f, 0x8f, 0x8f, 0x8f, 0x8f, 0x67, 0x66, 0x66, 0xff, 0xff, 0x0,  0x87, 0x87, 0x87}},
};

START_TEST(as_torch_does)
{
    for (size_t k = 0; k < sizeof of_torch / sizeof *of_torch; k++) {
        size_t size = ckpt_dtype_size(of_torch[k].dtype);
        for (size_t i = 0; i < VALUES; i++) {
            uint16_t code = 0;
            double d = (double)values[i];
            convert(CKPT_F32, &values[i], of_torch[k].dtype, &code, 1);
            ck_assert_msg(code == of_torch[k].codes[i], "%s of %.9g: %#x, torch: %#x",
                          ckpt_dtype_name(of_torch[k].dtype), d, code, of_torch[k].codes[i]);
            code = 0;
            convert(CKPT_F64, &d, of_torch[k].dtype, &code, 1);
            ck_assert_uint_eq(code, of_torch[k].codes[i]);
        }
        ck_assert_uint_le(size, 2);
    }
}
END_TEST

/* ---- against brute force */

/* As the formats are written down: sign, exponent, mantissa. */
static double meant(uint32_t code, unsigned exponent, unsigned mantissa, int bias)
{
    uint32_t e = code >> mantissa & ((1u << exponent) - 1), m = code & ((1u << mantissa) - 1);
    double value =
        e ? ldexp(1 + ldexp((double)m, -(int)mantissa), (int)e - bias) : ldexp((double)m, 1 - bias - (int)mantissa);
    return code >> (exponent + mantissa) ? -value : value;
}

static const struct small {
    ckpt_dtype dtype;
    unsigned exponent, mantissa;
    int bias;
    uint32_t largest; /* code of the largest finite value; beyond it: beyond */
    uint32_t beyond;
} smalls[] = {
    {CKPT_F16, 5, 10, 15, 0x7bff, 0x7c00},   {CKPT_BF16, 8, 7, 127, 0x7f7f, 0x7f80},
    {CKPT_F8_E5M2, 5, 2, 15, 0x7b, 0x7c},    {CKPT_F8_E4M3, 4, 3, 7, 0x7e, 0x7e},
    {CKPT_F8_E4M3FNUZ, 4, 3, 8, 0x7f, 0x80}, {CKPT_F8_E5M2FNUZ, 5, 2, 16, 0x7f, 0x80},
};

/* A code's value; the one past the largest is what would come next. */
static double value_of(const struct small *s, uint32_t code)
{
    if (code <= s->largest)
        return meant(code, s->exponent, s->mantissa, s->bias);
    return 2 * meant(s->largest, s->exponent, s->mantissa, s->bias) -
           meant(s->largest - 1, s->exponent, s->mantissa, s->bias);
}

/* The nearest code of a positive value; where two are as near, the even one. */
static uint32_t nearest(const struct small *s, double value)
{
    uint32_t low = 0, high = s->largest + 1;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(s, middle) <= value)
            low = middle;
        else
            high = middle;
    }
    double a = value - value_of(s, low), b = value_of(s, high) - value;
    uint32_t code = a < b ? low : b < a ? high : low % 2 ? high : low;
    return code > s->largest ? s->beyond : code;
}

/* Of so many values one is looked at: all, but under valgrind, which is a hundred times slower and looks at memory. */
static uint32_t one_of(void)
{
    return getenv("CKPT_TEST_FEW") ? 61 : 1;
}

START_TEST(every_code_is_read)
{
    for (size_t k = 0; k < sizeof smalls / sizeof *smalls; k++) {
        const struct small *s = &smalls[k];
        unsigned bits = s->exponent + s->mantissa + 1;
        for (uint32_t code = 0; code < 1u << bits; code += one_of()) {
            uint16_t c = (uint16_t)code, back = 0;
            uint32_t magnitude = code & ((1u << (bits - 1)) - 1);
            double got;
            float single;
            convert(s->dtype, &c, CKPT_F64, &got, 1);
            convert(s->dtype, &c, CKPT_F32, &single, 1);
            ck_assert((double)single == got || (isnan(single) && isnan(got)));
            if (s->beyond == 0x80 ? code == 0x80 : s->dtype == CKPT_F8_E4M3 ? magnitude == 0x7f : magnitude > s->beyond)
                ck_assert_msg(isnan(got), "%s %#x", ckpt_dtype_name(s->dtype), code);
            else if (magnitude > s->largest)
                ck_assert(isinf(got) && (got < 0) == (code >> (bits - 1)));
            else {
                ck_assert_msg(got == meant(code, s->exponent, s->mantissa, s->bias), "%s %#x",
                              ckpt_dtype_name(s->dtype), code);
                ckpt__convert_counts counts = convert(CKPT_F64, &got, s->dtype, &back, 1);
                ck_assert_msg(back == c, "%s %#x comes back as %#x", ckpt_dtype_name(s->dtype), code, back);
                ck_assert_uint_eq(counts.inexact + counts.out_of_range + counts.nan, 0);
            }
        }
    }
}
END_TEST

/* Random bits, values that lie between two codes, and their neighbours. */
static float random_float(const struct small *s)
{
    uint32_t bits = (uint32_t)draw();
    float f;
    memcpy(&f, &bits, 4);
    switch (draw() % 3) {
    case 0:
        return f;
    case 1:
        return (float)ldexp((double)(int64_t)(draw() % 4096) - 2048, (int)(draw() % 24) - 16);
    default:
        bits = draw() % 8 ? (uint32_t)draw() % s->largest : s->largest;
        f = (float)((value_of(s, bits) + value_of(s, bits + 1)) / 2);
        return draw() % 3 == 0 ? nextafterf(f, 0) : draw() % 2 ? nextafterf(f, INFINITY) : f;
    }
}

START_TEST(rounding)
{
    for (size_t k = 0; k < sizeof smalls / sizeof *smalls; k++) {
        const struct small *s = &smalls[k];
        uint32_t sign = 1u << (s->exponent + s->mantissa);
        for (uint32_t round = 0; round < 120000 / one_of(); round++) {
            float f = random_float(s);
            double d = (double)f;
            uint16_t code = 0, by_double = 0;
            if (isnan(f) || isinf(f))
                continue;
            ckpt__convert_counts counts = convert(CKPT_F32, &f, s->dtype, &code, 1);
            uint32_t want = nearest(s, fabs(d));
            bool to_nan = s->beyond == 0x80 && want == 0x80, to_zero = s->beyond == 0x80 && want == 0;
            if (signbit(f) && !to_nan && !to_zero)
                want |= sign;
            ck_assert_msg(code == want, "%s of %.9g: %#x instead of %#x", ckpt_dtype_name(s->dtype), d, code, want);
            convert(CKPT_F64, &d, s->dtype, &by_double, 1);
            ck_assert_uint_eq(by_double, want);
            double back;
            convert(s->dtype, &code, CKPT_F64, &back, 1);
            ck_assert_uint_eq(counts.inexact, back != d);
            double half = (value_of(s, s->largest) + value_of(s, s->largest + 1)) / 2;
            bool beyond = fabs(d) > half || (fabs(d) == half && s->largest % 2);
            ck_assert_msg(counts.out_of_range == beyond, "%s of %.9g", ckpt_dtype_name(s->dtype), d);
            ck_assert_uint_eq(counts.nan, 0);
        }
    }
}
END_TEST

/* A double is rounded once: not to float and then on. */
START_TEST(doubles_are_rounded_once)
{
    double just_over = 1 + ldexp(1, -8) + ldexp(1, -40), just_under = 1 + 3 * ldexp(1, -8) - ldexp(1, -40);
    uint16_t code;
    convert(CKPT_F64, &just_over, CKPT_BF16, &code, 1);
    ck_assert_uint_eq(code, 0x3f81);
    convert(CKPT_F64, &just_under, CKPT_BF16, &code, 1);
    ck_assert_uint_eq(code, 0x3f81);
}
END_TEST

START_TEST(integers)
{
    static const double from[] = {0.5, 1.5,    2.5,  -0.5,  -1.5,   127.4, 127.5,
                                  128, -128.5, -129, 1e300, -1e300, NAN,   INFINITY};
    static const int8_t want[] = {0, 2, 2, 0, -2, 127, 127, 127, -128, -128, 127, -128, 0, 127};
    int8_t got[14];
    ckpt__convert_counts counts = convert(CKPT_F64, from, CKPT_I8, got, 14);
    for (size_t i = 0; i < 14; i++)
        ck_assert_msg(got[i] == want[i], "%g: %d", from[i], got[i]);
    ck_assert_uint_eq(counts.out_of_range, 6); /* 127.5 and 128, -129, both huge ones, infinity */
    ck_assert_uint_eq(counts.nan, 1);
    ck_assert_uint_eq(counts.inexact, 14);
    static const uint64_t large[] = {0, UINT64_MAX, (uint64_t)INT64_MAX, (uint64_t)1 << 63};
    int64_t i64[4];
    counts = convert(CKPT_U64, large, CKPT_I64, i64, 4);
    ck_assert(i64[0] == 0 && i64[1] == INT64_MAX && i64[2] == INT64_MAX && i64[3] == INT64_MAX);
    ck_assert_uint_eq(counts.out_of_range, 2);
    static const int64_t negative[] = {-1, INT64_MIN, 5};
    uint64_t u64[3];
    counts = convert(CKPT_I64, negative, CKPT_U64, u64, 3);
    ck_assert(u64[0] == 0 && u64[1] == 0 && u64[2] == 5 && counts.out_of_range == 2);
    /* Halfway between two floats, and one past it. */
    uint64_t ties[] = {((uint64_t)1 << 63) + ((uint64_t)1 << 39), ((uint64_t)1 << 63) + ((uint64_t)1 << 39) + 1};
    float f[2];
    convert(CKPT_U64, ties, CKPT_F32, f, 2);
    ck_assert(f[0] == 0x1p63f && f[1] == nextafterf(0x1p63f, INFINITY));
    static const float some[] = {0, -0.0f, 0.25f, NAN, 1};
    uint8_t bools[5];
    counts = convert(CKPT_F32, some, CKPT_BOOL, bools, 5);
    ck_assert(!bools[0] && !bools[1] && bools[2] == 1 && bools[3] == 1 && bools[4] == 1);
    ck_assert(counts.inexact == 2 && counts.nan == 1 && counts.out_of_range == 0);
}
END_TEST

START_TEST(nan_and_complex)
{
    static const float nans[] = {NAN, -NAN};
    for (size_t k = 0; k < sizeof smalls / sizeof *smalls; k++) {
        uint16_t code[2] = {0};
        double back[2];
        ckpt__convert_counts counts = convert(CKPT_F32, nans, smalls[k].dtype, code, 2);
        ck_assert_uint_eq(counts.nan, 2);
        ck_assert_uint_eq(counts.inexact, 0);
        convert(smalls[k].dtype, code, CKPT_F64, back, 2);
        ck_assert(isnan(back[0]) && isnan(back[1]));
    }
    /* signs and payloads, as torch 2.13 has them */
    static const uint32_t f32[] = {0x7f807fff, 0xffc00000, 0xffa02000};
    static const uint16_t f16[] = {0x7e03, 0xfe00, 0xff01}, back_f16[] = {0xfc01, 0x7e05};
    uint16_t as16[3];
    uint32_t as32[2];
    uint8_t as8[2];
    convert(CKPT_F32, f32, CKPT_F16, as16, 3);
    ck_assert(memcmp(as16, f16, sizeof f16) == 0);
    convert(CKPT_F16, back_f16, CKPT_F32, as32, 2);
    ck_assert(as32[0] == 0xffc02000 && as32[1] == 0x7fc0a000);
    convert(CKPT_F16, back_f16, CKPT_F8_E4M3, as8, 2);
    ck_assert(as8[0] == 0xff && as8[1] == 0x7f);
    convert(CKPT_F16, back_f16, CKPT_F8_E5M2, as8, 2);
    ck_assert(as8[0] == 0xff && as8[1] == 0x7f);
    static const double c128[] = {1, -2, 1e300, 0.1};
    float c64[4];
    ckpt__convert_counts counts = convert(CKPT_C128, c128, CKPT_C64, c64, 2);
    ck_assert(c64[0] == 1 && c64[1] == -2 && isinf(c64[2]) && c64[3] == 0.1f);
    ck_assert(counts.elements == 2 && counts.out_of_range == 1 && counts.inexact == 2);
    ckpt__convert_counts none;
    memset(&none, 0, sizeof none);
    ck_assert(!ckpt__convert_counted(CKPT_C64, c64, CKPT_F32, c64, 1, &none));
    ck_assert(!ckpt__convert_counted(CKPT_F32, c64, CKPT_QI8, c64, 1, &none));
    ck_assert(!ckpt__convert_counted(CKPT_F4_E2M1_X2, c64, CKPT_F32, c64, 0, &none));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("convert");
    TCase *c = tcase_create("convert");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, as_torch_does);
    tcase_add_test(c, every_code_is_read);
    tcase_add_test(c, rounding);
    tcase_add_test(c, doubles_are_rounded_once);
    tcase_add_test(c, integers);
    tcase_add_test(c, nan_and_complex);
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
