/* model/dtype.c - the tables of dtypes and roles. Names: torch's documentation and the reference safetensors writer. */
#include "model/index.h"

static const ckpt__dtype_row rows[CKPT__DTYPE_COUNT] = {
    /* dtype, torch, safetensors, bits, swap unit, float, complex, signed */
    [CKPT_DTYPE_NONE] = {CKPT_DTYPE_NONE, "none", NULL, 0, 1, false, false, false},
    [CKPT_F32] = {CKPT_F32, "float32", "F32", 32, 4, true, false, true},
    [CKPT_F64] = {CKPT_F64, "float64", "F64", 64, 8, true, false, true},
    [CKPT_F16] = {CKPT_F16, "float16", "F16", 16, 2, true, false, true},
    [CKPT_BF16] = {CKPT_BF16, "bfloat16", "BF16", 16, 2, true, false, true},
    [CKPT_F8_E4M3] = {CKPT_F8_E4M3, "float8_e4m3fn", "F8_E4M3", 8, 1, true, false, true},
    [CKPT_F8_E5M2] = {CKPT_F8_E5M2, "float8_e5m2", "F8_E5M2", 8, 1, true, false, true},
    [CKPT_F8_E4M3FNUZ] = {CKPT_F8_E4M3FNUZ, "float8_e4m3fnuz", "F8_E4M3FNUZ", 8, 1, true, false, true},
    [CKPT_F8_E5M2FNUZ] = {CKPT_F8_E5M2FNUZ, "float8_e5m2fnuz", "F8_E5M2FNUZ", 8, 1, true, false, true},
    [CKPT_F8_E8M0] = {CKPT_F8_E8M0, "float8_e8m0fnu", "F8_E8M0", 8, 1, true, false, false},
    [CKPT_F4_E2M1_X2] = {CKPT_F4_E2M1_X2, "float4_e2m1fn_x2", NULL, 8, 1, true, false, true},
    [CKPT_I8] = {CKPT_I8, "int8", "I8", 8, 1, false, false, true},
    [CKPT_I16] = {CKPT_I16, "int16", "I16", 16, 2, false, false, true},
    [CKPT_I32] = {CKPT_I32, "int32", "I32", 32, 4, false, false, true},
    [CKPT_I64] = {CKPT_I64, "int64", "I64", 64, 8, false, false, true},
    [CKPT_U8] = {CKPT_U8, "uint8", "U8", 8, 1, false, false, false},
    [CKPT_U16] = {CKPT_U16, "uint16", "U16", 16, 2, false, false, false},
    [CKPT_U32] = {CKPT_U32, "uint32", "U32", 32, 4, false, false, false},
    [CKPT_U64] = {CKPT_U64, "uint64", "U64", 64, 8, false, false, false},
    [CKPT_BOOL] = {CKPT_BOOL, "bool", "BOOL", 8, 1, false, false, false},
    [CKPT_C32] = {CKPT_C32, "complex32", NULL, 32, 2, false, true, true},
    [CKPT_C64] = {CKPT_C64, "complex64", "C64", 64, 4, false, true, true},
    [CKPT_C128] = {CKPT_C128, "complex128", NULL, 128, 8, false, true, true},
    [CKPT_QI8] = {CKPT_QI8, "qint8", NULL, 8, 1, false, false, true},
    [CKPT_QU8] = {CKPT_QU8, "quint8", NULL, 8, 1, false, false, false},
    [CKPT_QI32] = {CKPT_QI32, "qint32", NULL, 32, 4, false, false, true},
    [CKPT_QU4X2] = {CKPT_QU4X2, "quint4x2", NULL, 4, 1, false, false, false},
    [CKPT_QU2X4] = {CKPT_QU2X4, "quint2x4", NULL, 2, 1, false, false, false},
    [CKPT_BITS8] = {CKPT_BITS8, "bits8", NULL, 8, 1, false, false, false},
    [CKPT_BITS16] = {CKPT_BITS16, "bits16", NULL, 16, 2, false, false, false},
    [CKPT_BITS1X8] = {CKPT_BITS1X8, "bits1x8", NULL, 8, 1, false, false, false},
    [CKPT_BITS2X4] = {CKPT_BITS2X4, "bits2x4", NULL, 8, 1, false, false, false},
    [CKPT_BITS4X2] = {CKPT_BITS4X2, "bits4x2", NULL, 8, 1, false, false, false},
    [CKPT_F6_E2M3] = {CKPT_F6_E2M3, "float6_e2m3", "F6_E2M3", 6, 1, true, false, true},
    [CKPT_F6_E3M2] = {CKPT_F6_E3M2, "float6_e3m2", "F6_E3M2", 6, 1, true, false, true},
    [CKPT_F4] = {CKPT_F4, "float4_e2m1", "F4", 4, 1, true, false, true},
};

const ckpt__dtype_row *ckpt__dtype_row_of(ckpt_dtype dtype)
{
    return &rows[dtype > CKPT_DTYPE_NONE && dtype < CKPT__DTYPE_COUNT ? dtype : CKPT_DTYPE_NONE];
}

int ckpt_dtype_count(void)
{
    return CKPT__DTYPE_COUNT;
}

const char *ckpt_dtype_name(ckpt_dtype dtype)
{
    return ckpt__dtype_row_of(dtype)->torch;
}

ckpt_dtype ckpt_dtype_from_name(const char *name)
{
    for (int i = 1; name && i < CKPT__DTYPE_COUNT; i++)
        if (strcmp(rows[i].torch, name) == 0)
            return rows[i].dtype;
    return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt__dtype_called(const char *name)
{
    static const struct {
        const char *name;
        ckpt_dtype dtype;
    } others[] = {{"bf16", CKPT_BF16}, {"fp16", CKPT_F16},  {"f16", CKPT_F16},   {"half", CKPT_F16},
                  {"fp32", CKPT_F32},  {"f32", CKPT_F32},   {"float", CKPT_F32}, {"fp64", CKPT_F64},
                  {"f64", CKPT_F64},   {"double", CKPT_F64}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0)
            return others[i].dtype;
    return ckpt_dtype_from_name(name);
}

/* Is one letter another one, left out, or put in? */
static bool is_a_letter_away(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), at = 0;
    while (a[at] && a[at] == b[at])
        at++;
    return n == m       ? at < n && strcmp(a + at + 1, b + at + 1) == 0
           : n + 1 == m ? strcmp(a + at, b + at + 1) == 0
                        : n == m + 1 && strcmp(a + at + 1, b + at) == 0;
}

const char *ckpt__dtype_meant(const char *name)
{
    const ckpt_dtype called = ckpt__dtype_called(name);
    if (called != CKPT_DTYPE_NONE)
        return ckpt_dtype_name(called);
    for (int i = 1; i < CKPT__DTYPE_COUNT; i++)
        if (is_a_letter_away(name, rows[i].torch))
            return rows[i].torch;
    return NULL;
}

ckpt_dtype ckpt__dtype_from_safetensors(const char *data, size_t n)
{
    for (int i = 1; i < CKPT__DTYPE_COUNT; i++)
        if (rows[i].safetensors && strlen(rows[i].safetensors) == n && memcmp(rows[i].safetensors, data, n) == 0)
            return rows[i].dtype;
    return CKPT_DTYPE_NONE;
}

unsigned ckpt_dtype_bits(ckpt_dtype dtype)
{
    return ckpt__dtype_row_of(dtype)->bits;
}

size_t ckpt_dtype_size(ckpt_dtype dtype)
{
    unsigned bits = ckpt_dtype_bits(dtype);
    return bits % 8 ? 0 : bits / 8;
}

bool ckpt_dtype_is_float(ckpt_dtype dtype)
{
    return ckpt__dtype_row_of(dtype)->is_float;
}

static const char *const role_names[CKPT__ROLE_COUNT] = {
    "none",  "param",  "buffer", "grad", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum",
    "optim", "master", "ema",    "step", "scaler",  "rng",        "other",
};

int ckpt_role_count(void)
{
    return CKPT__ROLE_COUNT;
}

const char *ckpt_role_name(ckpt_role role)
{
    return role >= CKPT_ROLE_NONE && role < CKPT__ROLE_COUNT ? role_names[role] : "none";
}

ckpt_role ckpt_role_from_name(const char *name)
{
    for (int i = 1; name && i < CKPT__ROLE_COUNT; i++)
        if (strcmp(role_names[i], name) == 0)
            return (ckpt_role)i;
    return CKPT_ROLE_NONE;
}

bool ckpt_role_is_optimizer(ckpt_role role)
{
    return (role >= CKPT_ROLE_EXP_AVG && role <= CKPT_ROLE_MASTER) || role == CKPT_ROLE_STEP;
}

/* Does a word for averages stand here, between dots, underscores and the ends? */
static bool average_at(ckpt_str path, size_t i)
{
    static const ckpt_str words[] = {CKPT__STR("ema"), CKPT__STR("average"), CKPT__STR("averaged"), CKPT__STR("swa"),
                                     CKPT__STR("shadow")};
    bool start = i == 0 || path.data[i - 1] == '.' || path.data[i - 1] == '_';
    for (size_t w = 0; start && w < sizeof words / sizeof words[0]; w++) {
        size_t end = i + words[w].size;
        if (end <= path.size && memcmp(path.data + i, words[w].data, words[w].size) == 0 &&
            (end == path.size || path.data[end] == '.' || path.data[end] == '_'))
            return true;
    }
    return false;
}

/* Each of the words has an a as its first or its third letter. */
bool ckpt__is_average(ckpt_str path)
{
    size_t i = 0;
    for (const char *a; i < path.size && (a = memchr(path.data + i, 'a', path.size - i)) != NULL; i++) {
        i = (size_t)(a - path.data);
        if (average_at(path, i) || (i >= 2 && average_at(path, i - 2)))
            return true;
    }
    return false;
}
