/* model/convert.c - elements from one dtype to another, round to nearest even. Through double, which holds every float
 * dtype exactly; integers of more bits than it has are cut so that they round once. The pairs that a training meets most
 * have loops of their own. */
#include "model/index.h"

#include <math.h>

__extension__ typedef __int128 wide; /* holds every integer dtype */

/* ---- small floats: OCP's E4M3 (FN: no infinity, one NaN), Graphcore's and AMD's (FNUZ: no infinity and no negative zero,
 * whose code is the NaN), and IEEE's way for the rest. What is out of range, infinity too, becomes what torch 2.13 makes
 * of it: FN's largest number, FNUZ's NaN, and infinity where there is one. */
typedef enum flavour { IEEE, FN, FNUZ } flavour;
/* float16: 5 bits of exponent, 10 of mantissa, bias 15; its smallest number is 2^-24 (`tiny`), its NaN 0x7e00. */
typedef struct layout {
    unsigned exponent, mantissa; /* bits */
    int bias;
    flavour flavour;
    double tiny;  /* what the last bit of a subnormal counts */
    uint32_t nan; /* the one that torch writes, without its sign */
} layout;

static const layout f16 = {5, 10, 15, IEEE, 0x1p-24, 0x7e00}, bf16 = {8, 7, 127, IEEE, 0x1p-133, 0x7fc0},
                    e5m2 = {5, 2, 15, IEEE, 0x1p-16, 0x7f}, e4m3fn = {4, 3, 7, FN, 0x1p-9, 0x7f},
                    e4m3fnuz = {4, 3, 8, FNUZ, 0x1p-10, 0x80}, e5m2fnuz = {5, 2, 16, FNUZ, 0x1p-17, 0x80};

static const layout *layout_of(ckpt_dtype dtype)
{
    switch (dtype) {
    case CKPT_F16:
        return &f16;
    case CKPT_BF16:
        return &bf16;
    case CKPT_F8_E5M2:
        return &e5m2;
    case CKPT_F8_E4M3:
        return &e4m3fn;
    case CKPT_F8_E4M3FNUZ:
        return &e4m3fnuz;
    case CKPT_F8_E5M2FNUZ:
        return &e5m2fnuz;
    default:
        return NULL;
    }
}

static double double_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

/* A NaN keeps its sign and its payload, as in torch, and is quiet afterwards. */
static double decode(uint32_t code, const layout *l)
{
    uint32_t e = code >> l->mantissa & ((1u << l->exponent) - 1), m = code & ((1u << l->mantissa) - 1);
    uint64_t sign = (uint64_t)(code >> (l->exponent + l->mantissa) & 1) << 63;
    uint32_t top = (1u << l->exponent) - 1;
    if (l->flavour == FNUZ && code == 1u << (l->exponent + l->mantissa))
        return (double)NAN;
    bool nan = e == top && (l->flavour == FN ? m == (1u << l->mantissa) - 1 : l->flavour == IEEE && m);
    if (nan)
        return double_of(sign | UINT64_C(0xfff) << 51 | (uint64_t)m << (52 - l->mantissa));
    if (l->flavour == IEEE && e == top)
        return double_of(sign | UINT64_C(0x7ff) << 52);
    if (e == 0)
        return sign ? -((double)m * l->tiny) : (double)m * l->tiny;
    return double_of(sign | (uint64_t)((int)e - l->bias + 1023) << 52 | (uint64_t)m << (52 - l->mantissa));
}

static uint32_t encode(double value, const layout *l)
{
    uint64_t u;
    memcpy(&u, &value, 8);
    uint32_t sign = (uint32_t)(u >> 63) << (l->exponent + l->mantissa);
    uint32_t beyond = l->flavour == FNUZ ? 1u << (l->exponent + l->mantissa)
                      : l->flavour == FN ? (1u << (l->exponent + l->mantissa)) - 1
                                         : ((1u << l->exponent) - 1) << l->mantissa;
    int e = (int)(u >> 52 & 0x7ff), to = e - 1023 + l->bias;
    uint64_t m = (u & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
    unsigned shift = 52 - l->mantissa;
    if (e == 0x7ff && m != UINT64_C(1) << 52)
        return l->nan | (l == &f16 ? (uint32_t)(m >> shift) & 0x3ff : 0) | (l->flavour == FNUZ ? 0 : sign);
    if (e == 0x7ff)
        return l->flavour == FNUZ ? beyond : sign | (l->flavour == FN ? beyond - 1 : beyond);
    if (to < 1)
        shift = to < -62 ? 64 : shift + (unsigned)(1 - to);
    /* ties to even: half of the last place less one, and one more where the last place is odd */
    uint64_t last = shift < 54 ? m >> shift & 1 : 0;
    uint64_t rounded = e == 0 || shift > 53 ? 0 : (m + (UINT64_C(1) << (shift - 1)) - 1 + last) >> shift;
    uint64_t code = to < 1 ? rounded : ((uint64_t)(to - 1) << l->mantissa) + rounded;
    if (code >= beyond)
        return l->flavour == FNUZ ? beyond : sign | (l->flavour == FN ? beyond - 1 : beyond); /* FN: its largest */
    return l->flavour == FNUZ && code == 0 ? 0 : sign | (uint32_t)code;
}

/* E8M0: a power of two, code 255 is NaN; of zero and of negative numbers it has none: what is nearest to the absolute value
 * is taken, as torch does, ties upwards. */
static uint8_t encode_e8m0(double value)
{
    int e;
    value = fabs(value);
    if (isnan(value) || isinf(value))
        return 255;
    if (value < 0x1p-127)
        return 0;
    double f = frexp(value, &e); /* in [0.5, 1) */
    e += 126 + (f >= 0.75);
    return (uint8_t)(e > 254 ? 255 : e);
}

/* ---- one element */

/* One element between two dtypes: integers as integers, for a double does not hold each of 64 bits. */
typedef struct element {
    bool is_int; /* the value is `i`; else `d` */
    double d;
    wide i;
} element;

static bool load_int(ckpt_dtype dtype, const unsigned char *p, wide *out)
{
    uint64_t u = 0;
    int64_t i = 0;
    unsigned bits = ckpt_dtype_bits(dtype);
    if (dtype == CKPT_BOOL) {
        *out = *p != 0;
        return true;
    }
    if (dtype < CKPT_I8 || dtype > CKPT_U64)
        return false;
    memcpy(&u, p, bits / 8);
    memcpy(&i, &u, 8);
    if (ckpt__dtype_row_of(dtype)->is_signed && bits < 64 && u >> (bits - 1))
        i -= (int64_t)(UINT64_C(1) << bits);
    *out = ckpt__dtype_row_of(dtype)->is_signed ? (wide)i : (wide)u;
    return true;
}

static bool load(ckpt_dtype dtype, const layout *l, const unsigned char *p, element *out)
{
    uint32_t code = 0;
    float f;
    out->is_int = false;
    if (l) {
        memcpy(&code, p, (1 + l->exponent + l->mantissa) / 8);
        out->d = decode(code, l);
    } else if (dtype == CKPT_F32) {
        memcpy(&f, p, 4);
        out->d = (double)f;
    } else if (dtype == CKPT_F64)
        memcpy(&out->d, p, 8);
    else if (dtype == CKPT_F8_E8M0)
        out->d = *p == 255 ? (double)NAN : ldexp(1, *p - 127);
    else
        return out->is_int = load_int(dtype, p, &out->i);
    return true;
}

static void clip(ckpt_dtype dtype, wide *i, ckpt__convert_counts *counts)
{
    unsigned bits = dtype == CKPT_BOOL ? 1 : ckpt_dtype_bits(dtype);
    bool is_signed = ckpt__dtype_row_of(dtype)->is_signed;
    wide one = 1, low = is_signed ? -(one << (bits - 1)) : 0, high = (one << (bits - (is_signed ? 1 : 0))) - 1;
    wide was = *i;
    if (dtype == CKPT_BOOL)
        *i = was != 0;
    else
        *i = was < low ? low : was > high ? high : was;
    counts->inexact += *i != was;
    counts->out_of_range += *i != was && dtype != CKPT_BOOL;
}

/* Out of range: clipped; NaN: 0, and true as a bool. */
static void store_int(ckpt_dtype dtype, const element *e, unsigned char *p, ckpt__convert_counts *counts)
{
    wide i = e->i;
    if (!e->is_int) {
        double r = nearbyint(e->d);
        if (isnan(e->d)) {
            counts->nan++;
            counts->inexact++;
            i = dtype == CKPT_BOOL;
        } else if (dtype == CKPT_BOOL) {
            i = e->d != 0;
            counts->inexact += e->d != 0 && e->d != 1;
        } else {
            uint64_t before = counts->inexact;
            i = r < -0x1p70 ? -((wide)1 << 70) : r > 0x1p70 ? (wide)1 << 70 : (wide)r;
            clip(dtype, &i, counts);
            counts->inexact += r != e->d && counts->inexact == before;
        }
    } else
        clip(dtype, &i, counts);
    uint64_t u = (uint64_t)i;
    memcpy(p, &u, ckpt_dtype_size(dtype)); /* little-endian host */
}

/* An integer that a double cannot hold, on its way to a smaller float: cut to what it can, with a last bit that says that
 * something was cut, so that the second rounding comes out as if it were the only one. */
static double cut_to_odd(wide i)
{
    return (double)((i & ~(wide)0x7ff) | (i & 0x7ff ? (wide)0x800 : 0));
}

static bool store_float(ckpt_dtype dtype, const layout *l, const element *e, unsigned char *p,
                        ckpt__convert_counts *counts)
{
    element back = {.is_int = false};
    double d = e->d;
    if (e->is_int) {
        d = (double)e->i;
        if ((wide)d != e->i && dtype != CKPT_F64)
            d = cut_to_odd(e->i);
    }
    if (l) {
        uint32_t code = encode(d, l);
        memcpy(p, &code, (1 + l->exponent + l->mantissa) / 8);
        back.d = decode(code, l);
    } else if (dtype == CKPT_F32) {
        float f = (float)d;
        memcpy(p, &f, 4);
        back.d = (double)f;
    } else if (dtype == CKPT_F64) {
        memcpy(p, &d, 8);
        back.d = d;
    } else if (dtype == CKPT_F8_E8M0) {
        *p = encode_e8m0(d);
        load(dtype, NULL, p, &back);
    } else
        return false;
    bool finite = !isnan(d) && !isinf(d);
    counts->nan += isnan(d) != 0;
    bool largest = l && l->flavour == FN && fabs(back.d) == 448 && fabs(d) > 464; /* beyond what rounds to it */
    counts->out_of_range += largest || (finite && (isnan(back.d) || isinf(back.d)));
    if (e->is_int)
        counts->inexact += !(fabs(back.d) <= 0x1p65) || (wide)back.d != e->i;
    else
        counts->inexact += back.d != d && !(isnan(back.d) && isnan(d));
    return true;
}

/* ---- the pairs that a training meets most */

static void f32_to_bf16(const unsigned char *p, unsigned char *q, size_t n, ckpt__convert_counts *counts)
{
    uint64_t nan = 0, inexact = 0, beyond = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t u, r;
        memcpy(&u, p + 4 * k, 4);
        uint32_t magnitude = u & 0x7fffffff, is_nan = magnitude > 0x7f800000;
        r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
        r = is_nan ? (u >> 16 & 0x8000) | 0x7fc0 : r;
        nan += is_nan;
        inexact += (u & 0xffff) != 0 && !is_nan;
        beyond += (r & 0x7fff) == 0x7f80 && magnitude != 0x7f800000;
        uint16_t h = (uint16_t)r;
        memcpy(q + 2 * k, &h, 2);
    }
    counts->nan += nan;
    counts->inexact += inexact;
    counts->out_of_range += beyond;
}

static void bf16_to_f32(const unsigned char *p, unsigned char *q, size_t n, ckpt__convert_counts *counts)
{
    uint64_t nan = 0;
    for (size_t k = 0; k < n; k++) {
        uint16_t h;
        memcpy(&h, p + 2 * k, 2);
        uint32_t u = (uint32_t)h << 16;
        nan += (u & 0x7fffffff) > 0x7f800000;
        memcpy(q + 4 * k, &u, 4);
    }
    counts->nan += nan;
}

/* Normal numbers and what rounds to infinity; the rest (subnormal, zero, infinite, NaN) goes the general way. */
static void f32_to_f16(const unsigned char *p, unsigned char *q, size_t n, ckpt__convert_counts *counts)
{
    uint64_t inexact = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t u;
        memcpy(&u, p + 4 * k, 4);
        uint32_t magnitude = u & 0x7fffffff;
        if (magnitude - 0x38800000 < 0x477fe000 - 0x38800000) { /* 2^-14 to 65504, and not more */
            uint32_t r = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
            uint16_t h = (uint16_t)(r | (u >> 16 & 0x8000));
            inexact += (u & 0x1fff) != 0;
            memcpy(q + 2 * k, &h, 2);
        } else {
            element e = {.is_int = false};
            load(CKPT_F32, NULL, p + 4 * k, &e);
            store_float(CKPT_F16, &f16, &e, q + 2 * k, counts);
        }
    }
    counts->inexact += inexact;
}

static void f16_to_f32(const unsigned char *p, unsigned char *q, size_t n, ckpt__convert_counts *counts)
{
    for (size_t k = 0; k < n; k++) {
        uint16_t h;
        memcpy(&h, p + 2 * k, 2);
        uint32_t e = h >> 10 & 31, u = (uint32_t)(h & 0x8000) << 16 | ((((uint32_t)h & 0x7fff) << 13) + 0x38000000);
        if (e == 0 || e == 31) {
            float f = (float)decode(h, &f16);
            memcpy(&u, &f, 4);
            counts->nan += e == 31 && (h & 0x3ff);
        }
        memcpy(q + 4 * k, &u, 4);
    }
}

/* ---- many */

static bool is_complex(ckpt_dtype dtype, ckpt_dtype *half)
{
    *half = dtype == CKPT_C32    ? CKPT_F16
            : dtype == CKPT_C64  ? CKPT_F32
            : dtype == CKPT_C128 ? CKPT_F64
                                 : CKPT_DTYPE_NONE;
    return *half != CKPT_DTYPE_NONE;
}

static bool has_rule(ckpt_dtype from, ckpt_dtype to)
{
    static const unsigned char zero[16];
    unsigned char out[16];
    element e;
    ckpt__convert_counts counts;
    wide i;
    memset(&counts, 0, sizeof counts);
    if (ckpt_dtype_size(from) == 0 || ckpt_dtype_size(to) == 0 || !load(from, layout_of(from), zero, &e))
        return false;
    return ckpt_dtype_is_float(to) ? store_float(to, layout_of(to), &e, out, &counts) : load_int(to, zero, &i);
}

static const struct {
    ckpt_dtype from, to;
    void (*convert)(const unsigned char *p, unsigned char *q, size_t n, ckpt__convert_counts *counts);
} often[] = {
    {CKPT_F32, CKPT_BF16, f32_to_bf16},
    {CKPT_BF16, CKPT_F32, bf16_to_f32},
    {CKPT_F32, CKPT_F16, f32_to_f16},
    {CKPT_F16, CKPT_F32, f16_to_f32},
};

bool ckpt__convert_counted(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n,
                           ckpt__convert_counts *counts)
{
    const unsigned char *p = src;
    unsigned char *q = dst;
    size_t from_size = ckpt_dtype_size(from), to_size = ckpt_dtype_size(to);
    ckpt_dtype half_from, half_to;
    element e = {.is_int = false};
    if (is_complex(from, &half_from) && is_complex(to, &half_to)) {
        uint64_t elements = counts->elements;
        ckpt__convert_counted(half_from, src, half_to, dst, 2 * n, counts);
        counts->elements = elements + n;
        return true;
    }
    if (!has_rule(from, to))
        return false;
    counts->elements += n;
    for (size_t i = 0; i < sizeof often / sizeof *often; i++)
        if (often[i].from == from && often[i].to == to) {
            often[i].convert(p, q, n, counts);
            return true;
        }
    const layout *l_from = layout_of(from), *l_to = layout_of(to);
    bool to_float = ckpt_dtype_is_float(to);
    for (size_t k = 0; k < n; k++, p += from_size, q += to_size) {
        load(from, l_from, p, &e);
        if (to_float)
            store_float(to, l_to, &e, q, counts);
        else
            store_int(to, &e, q, counts);
    }
    return true;
}

bool ckpt__convert(ckpt_dtype from, const void *src, ckpt_dtype to, void *dst, size_t n, bool *changed)
{
    ckpt__convert_counts counts;
    memset(&counts, 0, sizeof counts);
    bool done = ckpt__convert_counted(from, src, to, dst, n, &counts);
    if (changed)
        *changed |= counts.inexact != 0;
    return done;
}
