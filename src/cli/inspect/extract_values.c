/* inspect/extract_values.c - elements as numbers: those of every dtype of a whole number of bytes, exactly. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/extract.h"

static const struct numpy_row {
    ckpt_dtype dtype;
    const char *name;
} numpy_rows[] = {{CKPT_F32, "<f4"}, {CKPT_F64, "<f8"},  {CKPT_F16, "<f2"}, {CKPT_I8, "|i1"},   {CKPT_I16, "<i2"},
                  {CKPT_I32, "<i4"}, {CKPT_I64, "<i8"},  {CKPT_U8, "|u1"},  {CKPT_U16, "<u2"},  {CKPT_U32, "<u4"},
                  {CKPT_U64, "<u8"}, {CKPT_BOOL, "|b1"}, {CKPT_C64, "<c8"}, {CKPT_C128, "<c16"}};

const char *extract_numpy(ckpt_dtype dtype)
{
    for (size_t i = 0; i < sizeof numpy_rows / sizeof *numpy_rows; i++)
        if (numpy_rows[i].dtype == dtype)
            return numpy_rows[i].name;
    return NULL;
}

/* ---- floating point formats: sign, exponent, mantissa */

typedef enum specials {
    IEEE,     /* the highest exponent is infinity and NaN */
    ONE_NAN,  /* all ones is NaN, there is no infinity */
    MINUS_NAN /* the sign alone is NaN, there is neither infinity nor -0 */
} specials;

typedef struct shape_of_float {
    ckpt_dtype dtype;
    unsigned exponent, mantissa; /* bits */
    int bias;
    specials specials;
} shape_of_float;

static const shape_of_float floats[] = {{CKPT_F32, 8, 23, 127, IEEE},           {CKPT_F16, 5, 10, 15, IEEE},
                                        {CKPT_BF16, 8, 7, 127, IEEE},           {CKPT_F8_E4M3, 4, 3, 7, ONE_NAN},
                                        {CKPT_F8_E5M2, 5, 2, 15, IEEE},         {CKPT_F8_E4M3FNUZ, 4, 3, 8, MINUS_NAN},
                                        {CKPT_F8_E5M2FNUZ, 5, 2, 16, MINUS_NAN}};

static const shape_of_float *float_of(ckpt_dtype dtype)
{
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (floats[i].dtype == dtype)
            return &floats[i];
    return NULL;
}

/* Of bits without the sign, which is given for MINUS_NAN. */
static double magnitude(const shape_of_float *f, uint32_t bits, bool negative)
{
    const uint32_t ones = (1u << f->mantissa) - 1, top = (1u << f->exponent) - 1;
    const uint32_t exponent = bits >> f->mantissa, mantissa = bits & ones;
    if ((f->specials == MINUS_NAN && negative && bits == 0) ||
        (f->specials == ONE_NAN && exponent >= top && mantissa == ones))
        return NAN;
    if (f->specials == IEEE && exponent >= top)
        return mantissa ? NAN : INFINITY;
    double value = exponent ? (double)(mantissa + (1u << f->mantissa)) : (double)mantissa;
    return ldexp(value, (int)(exponent ? exponent : 1) - f->bias - (int)f->mantissa);
}

/* The number with the fewest digits that rounds to the element: it lies nearer to it than to its neighbours, or in the middle where
 * the element is even. Each of these dtypes is exact in float64, and so are the middles. */
static double shortest(const shape_of_float *f, uint32_t bits, double value)
{
    char text[JSON_DOUBLE_MAX];
    if (bits == 0 || !isfinite(value))
        return value;
    double below = magnitude(f, bits - 1, false), above = magnitude(f, bits + 1, false);
    double low = value - (value - below) / 2, high = value + ((isfinite(above) ? above - value : value - below) / 2);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        double near = strtod(text, NULL);
        if ((near > low && near < high) || (bits % 2 == 0 && (near == low || near == high)))
            return near;
    }
    return value;
}

/* size bytes, little-endian */
static uint64_t bits_of(const unsigned char *bytes, size_t size)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    return bits;
}

static double real_of(ckpt_dtype dtype, uint64_t bits, bool fewest)
{
    double value;
    if (dtype == CKPT_F64) {
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    if (dtype == CKPT_F8_E8M0)
        return bits == 0xff ? (double)NAN : ldexp(1, (int)bits - 127);
    const shape_of_float *f = float_of(dtype);
    const uint32_t sign = 1u << (f->exponent + f->mantissa);
    const bool negative = (uint32_t)bits & sign;
    const uint32_t rest = (uint32_t)bits & (sign - 1);
    value = magnitude(f, rest, negative);
    if (fewest)
        value = shortest(f, rest, value);
    return negative ? -value : value;
}

/* ---- elements */

/* The dtype of one part of a complex one. */
static ckpt_dtype part_of(ckpt_dtype dtype)
{
    return dtype == CKPT_C32 ? CKPT_F16 : dtype == CKPT_C64 ? CKPT_F32 : dtype == CKPT_C128 ? CKPT_F64 : dtype;
}

unsigned extract_parts(ckpt_dtype dtype)
{
    return ckpt_dtype_size(dtype) == 0 ? 0 : part_of(dtype) != dtype ? 2 : 1;
}

element extract_element(ckpt_dtype dtype, const unsigned char *bytes)
{
    const ckpt_dtype part = part_of(dtype);
    const size_t size = ckpt_dtype_size(part);
    const uint64_t bits = bits_of(bytes, size);
    element e = {.kind = ELEMENT_UINT, .u = bits};
    switch (part) {
    case CKPT_BOOL:
        e.kind = ELEMENT_BOOL;
        e.u = bits != 0;
        break;
    case CKPT_I8:
    case CKPT_I16:
    case CKPT_I32:
    case CKPT_I64:
    case CKPT_QI8:
    case CKPT_QI32:
        e.kind = ELEMENT_INT;
        e.i = (int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size);
        break;
    default:
        if (part == CKPT_F64 || part == CKPT_F8_E8M0 || float_of(part)) {
            e.kind = ELEMENT_REAL;
            e.real = real_of(part, bits, true);
        }
    }
    return e;
}

/* ---- --upcast */

ckpt_dtype extract_upcast(ckpt_dtype dtype)
{
    return !extract_numpy(dtype) && (dtype == CKPT_F8_E8M0 || float_of(dtype)) ? CKPT_F32 : dtype;
}

void extract_to_float32(ckpt_dtype from, char *data, size_t size, size_t room)
{
    float table[256];
    const unsigned char *source = (const unsigned char *)data + (room - size);
    const size_t wide = ckpt_dtype_size(from), count = size / wide;
    for (unsigned code = 0; wide == 1 && code < 256; code++)
        table[code] = (float)real_of(from, code, false);
    for (size_t i = 0; i < count; i++) { /* what is written ends before the next one that is read */
        uint32_t bits = wide == 1 ? 0 : (uint32_t)(source[2 * i] | source[2 * i + 1] << 8) << 16; /* of bfloat16 */
        if (wide == 1)
            memcpy(&bits, &table[source[i]], sizeof bits);
        memcpy(data + 4 * i, &bits, sizeof bits);
    }
}
