/* model/numbers.c - elements as doubles and integers. The loops are plain, so that compilers make vectors of them. */
#include "model/numbers.h"

enum { SOME = 1024 }; /* half-precision values that are converted at a time */

static bool is_packed(ckpt_dtype dtype)
{
    return dtype == CKPT_F4_E2M1_X2 || dtype == CKPT_F4 || dtype == CKPT_QU4X2 || dtype == CKPT_QU2X4;
}

/* E2M1: one bit of sign, two of exponent, one of mantissa; neither infinity nor NaN (OCP Microscaling Formats 1.0). */
static void fill_e2m1(double *table)
{
    static const double positive[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    for (unsigned i = 0; i < 16; i++)
        table[i] = i < 8 ? positive[i] : -positive[i - 8];
}

static void fill_bytes(ckpt_dtype dtype, double *table)
{
    unsigned char codes[256];
    for (unsigned i = 0; i < 256; i++)
        codes[i] = (unsigned char)i;
    ckpt__convert(dtype, codes, CKPT_F64, table, 256, NULL);
}

void ckpt__numbers_init(ckpt__numbers *n, ckpt_dtype dtype)
{
    const ckpt__dtype_row *row = ckpt__dtype_row_of(dtype);
    n->dtype = dtype;
    n->bits = is_packed(dtype) ? (dtype == CKPT_QU2X4 ? 2 : 4) : row->bits;
    n->codes = dtype >= CKPT_QI8 && dtype <= CKPT_BITS4X2;
    n->wide = !row->is_float && !row->is_complex && row->bits == 64;
    n->kind = row->bits == 0 || row->bits == 6 ? CKPT__NO_NUMBERS
              : row->is_complex                ? CKPT__COMPLEX
              : row->is_float                  ? CKPT__REAL
              : row->is_signed                 ? CKPT__SIGNED
                                               : CKPT__UNSIGNED;
    if (n->kind == CKPT__REAL && n->bits == 4)
        fill_e2m1(n->table);
    else if (n->kind == CKPT__REAL && n->bits == 8)
        fill_bytes(dtype, n->table);
}

uint64_t ckpt__numbers_count(const ckpt__numbers *n, uint64_t elements, uint64_t nbytes)
{
    if (n->dtype == CKPT_F4_E2M1_X2)
        return nbytes > UINT64_MAX / 2 ? UINT64_MAX : nbytes * 2;
    return elements;
}

size_t ckpt__numbers_in(const ckpt__numbers *n, size_t bytes)
{
    return n->bits < 8 ? bytes * (8 / n->bits) : bytes / (n->bits / 8);
}

/* ---- floats */

static void from_f32(const unsigned char *restrict p, size_t count, double *restrict dst)
{
    for (size_t i = 0; i < count; i++) {
        float f;
        memcpy(&f, p + 4 * i, 4);
        dst[i] = (double)f;
    }
}

static void from_bf16(const unsigned char *restrict p, size_t count, double *restrict dst)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t h;
        float f;
        memcpy(&h, p + 2 * i, 2);
        uint32_t u = (uint32_t)h << 16;
        memcpy(&f, &u, 4);
        dst[i] = (double)f;
    }
}

static void from_f16(const unsigned char *p, size_t count, double *dst)
{
    float some[SOME];
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < SOME ? count - at : SOME;
        ckpt__convert(CKPT_F16, p + 2 * at, CKPT_F32, some, n, NULL);
        from_f32((const unsigned char *)some, n, dst + at);
    }
}

static uint64_t code_at(const unsigned char *p, size_t i, unsigned bits)
{
    size_t each = 8 / bits;
    return (uint64_t)p[i / each] >> (i % each * bits) & ((1u << bits) - 1);
}

static void from_table(const ckpt__numbers *n, const unsigned char *p, size_t count, double *dst)
{
    if (n->bits == 8)
        for (size_t i = 0; i < count; i++)
            dst[i] = n->table[p[i]];
    else
        for (size_t i = 0; i < count; i++)
            dst[i] = n->table[code_at(p, i, n->bits)];
}

/* ---- integers */

#define LOAD_EACH(type)                                                                                                \
    for (size_t i = 0; i < count; i++) {                                                                               \
        type v;                                                                                                        \
        memcpy(&v, p + sizeof v * i, sizeof v);                                                                        \
        dst[i] = (int64_t)v;                                                                                           \
    }                                                                                                                  \
    break

void ckpt__numbers_load_int(const ckpt__numbers *n, const void *src, size_t count, int64_t *dst)
{
    const unsigned char *p = src;
    bool is_signed = n->kind == CKPT__SIGNED;
    if (n->dtype == CKPT_BOOL) {
        for (size_t i = 0; i < count; i++)
            dst[i] = p[i] != 0;
        return;
    }
    switch (n->bits * 2 + is_signed) {
    case 16:
        LOAD_EACH(uint8_t);
    case 17:
        LOAD_EACH(int8_t);
    case 32:
        LOAD_EACH(uint16_t);
    case 33:
        LOAD_EACH(int16_t);
    case 64:
        LOAD_EACH(uint32_t);
    case 65:
        LOAD_EACH(int32_t);
    case 128:
        LOAD_EACH(uint64_t);
    case 129:
        LOAD_EACH(int64_t);
    default:
        for (size_t i = 0; i < count; i++)
            dst[i] = (int64_t)code_at(p, i, n->bits);
    }
}

static void from_ints(const ckpt__numbers *n, const unsigned char *p, size_t count, double *dst)
{
    int64_t some[SOME];
    bool wide_unsigned = n->wide && n->kind == CKPT__UNSIGNED;
    for (size_t at = 0, m; at < count; at += m) {
        m = count - at < SOME ? count - at : SOME;
        ckpt__numbers_load_int(n, n->bits < 8 ? p + at / (8 / n->bits) : p + at * (n->bits / 8), m, some);
        for (size_t i = 0; i < m; i++)
            dst[at + i] = wide_unsigned ? (double)(uint64_t)some[i] : (double)some[i];
    }
}

void ckpt__numbers_load(const ckpt__numbers *n, const void *src, size_t count, double *dst)
{
    switch (n->dtype) {
    case CKPT_F32:
        from_f32(src, count, dst);
        break;
    case CKPT_C64:
        from_f32(src, 2 * count, dst);
        break;
    case CKPT_BF16:
        from_bf16(src, count, dst);
        break;
    case CKPT_F16:
        from_f16(src, count, dst);
        break;
    case CKPT_C32:
        from_f16(src, 2 * count, dst);
        break;
    case CKPT_F64:
        memcpy(dst, src, 8 * count);
        break;
    case CKPT_C128:
        memcpy(dst, src, 16 * count);
        break;
    default:
        if (n->kind == CKPT__REAL)
            from_table(n, src, count, dst);
        else if (n->kind != CKPT__NO_NUMBERS)
            from_ints(n, src, count, dst);
    }
}
