/* model/convert.c - elements from one dtype to another, round to nearest even. Through double: it holds every float
 * dtype exactly, and every integer but the widest, which have a path of their own. */
#include "model/index.h"

#include <math.h>

static float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* A float of `exponent` and `mantissa` bits with IEEE's special values (f16, bf16, float8_e5m2). */
static double small_to_double(uint32_t bits, unsigned exponent, unsigned mantissa)
{
    uint32_t sign = bits >> (exponent + mantissa) & 1, e = bits >> mantissa & ((1u << exponent) - 1);
    uint32_t m = bits & ((1u << mantissa) - 1);
    int bias = (1 << (exponent - 1)) - 1;
    double value;
    if (e == (1u << exponent) - 1)
        value = m ? (double)NAN : (double)INFINITY;
    else if (e == 0)
        value = ldexp((double)m, 1 - bias - (int)mantissa);
    else
        value = ldexp((double)(m | 1u << mantissa), (int)e - bias - (int)mantissa);
    return sign ? -value : value;
}

static uint32_t double_to_small(double value, unsigned exponent, unsigned mantissa)
{
    uint32_t sign = signbit(value) ? 1u << (exponent + mantissa) : 0, infinity = ((1u << exponent) - 1) << mantissa;
    int bias = (1 << (exponent - 1)) - 1, e;
    if (isnan(value))
        return sign | infinity | 1u << (mantissa - 1);
    value = fabs(value);
    if (isinf(value))
        return sign | infinity;
    if (value == 0)
        return sign;
    frexp(value, &e);             /* value = f * 2^e, f in [0.5, 1) */
    int scale = e - 1 < 1 - bias ? 1 - bias : e - 1;
    double steps = nearbyint(ldexp(value, (int)mantissa - scale));   /* ties to even in the default rounding mode */
    uint64_t m = (uint64_t)steps;
    if (m >> mantissa == 0)
        return sign | (uint32_t)m;                                   /* subnormal */
    if (m >> (mantissa + 1)) {
        m >>= 1;
        scale++;
    }
    if (scale > bias)
        return sign | infinity;
    return sign | (uint32_t)(scale + bias) << mantissa | (uint32_t)(m & ((1u << mantissa) - 1));
}

static bool load(ckpt_dtype dtype, const unsigned char *p, double *d, int64_t *i, bool *is_int)
{
    uint16_t h;
    uint32_t w;
    int16_t s;
    int32_t n;
    float f;
    *is_int = true;
    switch (dtype) {
    case CKPT_F64:
        memcpy(d, p, 8);
        break;
    case CKPT_F32:
        memcpy(&f, p, 4);
        *d = (double)f;
        break;
    case CKPT_F16:
        memcpy(&h, p, 2);
        *d = small_to_double(h, 5, 10);
        break;
    case CKPT_BF16:
        memcpy(&h, p, 2);
        *d = (double)bits_to_float((uint32_t)h << 16);
        break;
    case CKPT_F8_E5M2:
        *d = small_to_double(*p, 5, 2);
        break;
    case CKPT_I8:
        *i = (int8_t)*p;
        return true;
    case CKPT_U8:
        *i = *p;
        return true;
    case CKPT_BOOL:
        *i = *p != 0;
        return true;
    case CKPT_I16:
        memcpy(&s, p, 2);
        *i = s;
        return true;
    case CKPT_U16:
        memcpy(&h, p, 2);
        *i = h;
        return true;
    case CKPT_I32:
        memcpy(&n, p, 4);
        *i = n;
        return true;
    case CKPT_U32:
        memcpy(&w, p, 4);
        *i = w;
        return true;
    case CKPT_I64:
        memcpy(i, p, 8);
        return true;
    default:
        return false;
    }
    *is_int = false;
    return true;
}

static bool integer_range(ckpt_dtype dtype, double *low, double *high)
{
    unsigned bits = ckpt_dtype_bits(dtype);
    if (dtype == CKPT_BOOL) {
        *low = 0;
        *high = 1;
    } else {
        bool is_signed = ckpt__dtype_row_of(dtype)->is_signed;
        *low = is_signed ? -ldexp(1, (int)bits - 1) : 0;
        *high = ldexp(1, (int)bits - (is_signed ? 1 : 0)) - (bits < 64 ? 1 : 0);
    }
    return true;
}

/* Out of range and NaN: clamped, NaN to 0, and reported as changed. */
static int64_t to_integer(ckpt_dtype dtype, double d, bool *changed)
{
    double low, high, r = nearbyint(d);
    integer_range(dtype, &low, &high);
    if (isnan(d)) {
        *changed = true;
        return 0;
    }
    if (dtype == CKPT_BOOL) {
        *changed |= d != 0 && d != 1;
        return d != 0;
    }
    if (r != d)
        *changed = true;
    if (r < low || r > high || (dtype == CKPT_I64 && r >= 9223372036854775808.0)) {
        *changed = true;
        return r < low ? (int64_t)low : dtype == CKPT_I64 ? INT64_MAX : (int64_t)high;
    }
    return (int64_t)r;
}

static void store_integer(ckpt_dtype dtype, int64_t i, unsigned char *p, bool *changed)
{
    double low, high;
    integer_range(dtype, &low, &high);
    if (dtype == CKPT_BOOL) {
        *changed |= i != 0 && i != 1;
        i = i != 0;
    } else if (dtype != CKPT_I64 && ((double)i < low || (double)i > high)) {
        *changed = true;
        i = (double)i < low ? (int64_t)low : (int64_t)high;
    }
    memcpy(p, &i, ckpt_dtype_size(dtype));   /* little-endian host */
}

static bool store_float(ckpt_dtype dtype, double d, unsigned char *p, bool *changed)
{
    uint32_t bits;
    uint16_t h;
    float f;
    double back;
    switch (dtype) {
    case CKPT_F64:
        memcpy(p, &d, 8);
        return true;
    case CKPT_F32:
        f = (float)d;
        memcpy(p, &f, 4);
        back = (double)f;
        break;
    case CKPT_F16:
        h = (uint16_t)double_to_small(d, 5, 10);
        memcpy(p, &h, 2);
        back = small_to_double(h, 5, 10);
        break;
    case CKPT_BF16:
        h = (uint16_t)double_to_small(d, 8, 7);
        memcpy(p, &h, 2);
        back = small_to_double(h, 8, 7);
        break;
    case CKPT_F8_E5M2:
        bits = double_to_small(d, 5, 2);
        *p = (unsigned char)bits;
        back = small_to_double(bits, 5, 2);
        break;
    default:
        return false;
    }
    if (back != d && !(isnan(back) && isnan(d)))
        *changed = true;
    return true;
}

/* An integer that a double cannot hold, on its way to a smaller float: cut to what it can, with a last bit that says that
 * something was cut, so that the second rounding comes out as if it were the only one. */
static double cut_to_odd(int64_t i)
{
    return (double)((i & ~INT64_C(0x3ff)) | (i & 0x3ff ? INT64_C(0x400) : 0));
}

bool ckpt__convert(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n, bool *changed)
{
    const unsigned char *p = src;
    unsigned char *q = dst;
    size_t from_size = ckpt_dtype_size(from), to_size = ckpt_dtype_size(to);
    bool inexact = false, to_float = ckpt_dtype_is_float(to), is_int;
    double d = 0, probe_d;
    int64_t i = 0, probe_i;
    unsigned char zero[16] = { 0 }, out[16];
    /* Is there a rule for the pair? Asked once, also for n = 0. */
    if (from_size == 0 || to_size == 0 || !load(from, zero, &probe_d, &probe_i, &is_int) ||
        (to_float ? !store_float(to, 0, out, &inexact) : !load(to, zero, &probe_d, &probe_i, &is_int)))
        return false;
    inexact = false;
    for (size_t k = 0; k < n; k++, p += from_size, q += to_size) {
        load(from, p, &d, &i, &is_int);
        if (to_float) {
            double value = is_int ? (double)i : d;
            if (is_int && (value >= 9223372036854775808.0 || (int64_t)value != i)) {
                inexact = true;
                value = to == CKPT_F64 ? value : cut_to_odd(i);
            }
            store_float(to, value, q, &inexact);
        } else
            store_integer(to, is_int ? i : to_integer(to, d, &inexact), q, &inexact);
    }
    if (changed)
        *changed |= inexact;
    return true;
}
