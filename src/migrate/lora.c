/* migrate/lora.c - a merged tensor, row by row, with the arithmetic of peft 0.21.2 as PeftModel.from_pretrained and merge_and_unload
 * do it on a CPU. The adapter's tensors are float32 there, whatever its file has (autocast_adapter_dtype). The product of lora_B and
 * lora_A is float32, and is scaled as float32; the sum with the base is float32 and is rounded once, to the base's dtype.
 * Of an embedding the scaled product is rounded to the base's dtype before.
 *   A matrix product has no order of its own. Here each element is summed from k = 0 on, each step rounded once (fma). That is what
 * MKL does up to a rank that it has in one block, so the bytes are PEFT's then; tests/interop/adapter.py says where. The norms of DoRA
 * are summed as double here, and by torch in an order that depends on the machine: those bytes may differ in the last place. */
#include "migrate/adapter.h"

#include <math.h>
#include <stdlib.h>
#include "engine/elements.h"

enum {
    BASE_MEMORY = 8 << 20, /* bytes of buffers that the base's tensor is read with, where it lies in pieces */
    STRETCH = 16 << 10     /* elements that are converted at a time */
};

/* One reading of a merged tensor. */
typedef struct making {
    const ckpt__merge_part *part; /* borrowed */
    const char *what;             /* for messages: borrowed */
    ckpt__elements base;          /* of the base's tensor; TAKE: of the adapter's */
    float *left, *right;          /* heap, owned, as are all: `left` is as the file has it; `right` is rank x cols */
    float *w, *delta;             /* of the row: cols each */
    unsigned char *taken;         /* TAKE: of the row, as the adapter has it */
    float *factors;               /* DoRA: one a row, or one a column where `turned`; NULL: none */
    unsigned char *raw;           /* the row as the base has it, and then as it is given */
    ckpt__op load, store;         /* the dtype of the base to float32, and back */
    uint64_t next;                /* rows that were read */
    bool made;                    /* the row before `next` is in `raw` */
} making;

/* ---- conversions */

static ckpt_status make_op(ckpt_dtype from, ckpt_dtype to, const char *what, ckpt__op *out, ckpt_error *err)
{
    const ckpt__op_want want = {.from = from, .to = to};
    return ckpt__op_make(&want, what, out, err);
}

static ckpt_status convert(const ckpt__op *op, const void *from, void *to, uint64_t n, const char *what,
                           ckpt_error *err)
{
    ckpt__copy_box box;
    ckpt__copy_box_init(&box);
    ckpt__copy_box_add(&box, n, op->from_size, op->to_size);
    return ckpt__box_move(op, &box, from, to, NULL, what, err);
}

static const ckpt__tensor *tensor_of(const ckpt__merge_part *p, int64_t number)
{
    return &p->adapter->reader->index->tensors[number];
}

static ckpt_status open_elements(ckpt__elements *e, const ckpt_reader *reader, size_t tensor, ckpt_error *err)
{
    const ckpt__elements_options options = {.check = true, .resolve = true, .memory = BASE_MEMORY};
    return ckpt__elements_of_tensor(e, reader->source, reader->index, tensor, &options, err);
}

/* All elements of a tensor of the adapter, as float32. NULL in *out: memory is short. */
static ckpt_status load(const making *m, int64_t tensor, float **out, ckpt_error *err)
{
    const ckpt_tensor_info *t = &tensor_of(m->part, tensor)->info;
    const uint64_t size = ckpt_dtype_size(t->dtype), n = t->nbytes / size;
    unsigned char *raw = malloc(STRETCH * size);
    ckpt__elements e = {0};
    ckpt__op op;
    *out = n <= SIZE_MAX / sizeof **out - 1 ? malloc((size_t)(n + 1) * sizeof **out) : NULL;
    ckpt_status status = raw && *out ? CKPT_OK : ckpt__fail_memory(err, m->what, n * sizeof **out);
    if (status == CKPT_OK)
        status = make_op(t->dtype, CKPT_F32, m->what, &op, err);
    if (status == CKPT_OK)
        status = open_elements(&e, m->part->adapter->reader, (size_t)tensor, err);
    for (uint64_t i = 0; status == CKPT_OK && i < n; i += STRETCH) {
        uint64_t some = n - i < STRETCH ? n - i : STRETCH;
        status = ckpt__elements_read(&e, raw, (size_t)(some * size), err);
        if (status == CKPT_OK)
            status = convert(&op, raw, *out + i, some, m->what, err);
    }
    ckpt__elements_close(&e);
    free(raw);
    return status;
}

/* ---- the product */

/* sum[j] += a * b[j], each rounded once. */
typedef void add_row_fn(float *sum, float a, const float *b, size_t n);
#define ADD_ROW(name, how)                                                                                             \
    how static void name(float *sum, float a, const float *b, size_t n)                                                \
    {                                                                                                                  \
        for (size_t j = 0; j < n; j++)                                                                                 \
            sum[j] = fmaf(a, b[j], sum[j]);                                                                            \
    }
#if defined(__clang__) || !defined(__GNUC__)
#define FAST
#else
#define FAST __attribute__((optimize("O3")))
#endif
ADD_ROW(add_row_plain, FAST)
#if defined(__x86_64__) && defined(__GNUC__)
#define WIDE FAST __attribute__((target("avx2,fma")))
ADD_ROW(add_row_wide, WIDE)
static add_row_fn *add_row_of_machine(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? add_row_wide : add_row_plain;
}
#else
static add_row_fn *add_row_of_machine(void)
{
    return add_row_plain;
}
#endif

/* Row `i` of scaling * B @ A. */
static void make_delta(const making *m, uint64_t i)
{
    const ckpt__merge_part *p = m->part;
    const float scaling = (float)p->scaling;
    const size_t n = (size_t)p->cols;
    if (p->kind == CKPT__MERGE_BIAS)
        memcpy(m->delta, m->left, n * sizeof *m->delta);
    else {
        add_row_fn *add_row = add_row_of_machine();
        memset(m->delta, 0, n * sizeof *m->delta);
        for (uint64_t k = 0; k < p->rank; k++)
            add_row(m->delta, m->left[p->turned ? k * p->rows + i : i * p->rank + k], m->right + k * p->cols, n);
    }
    for (size_t j = 0; j < n; j++)
        m->delta[j] *= scaling;
}

/* Of an embedding PEFT rounds the delta to the base's dtype before it is added. */
static ckpt_status round_delta(const making *m, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    if (!p->embedding || p->magnitude != CKPT__NO_TENSOR)
        return CKPT_OK;
    ckpt_status status = convert(&m->store, m->delta, m->raw, p->cols, m->what, err);
    return status == CKPT_OK ? convert(&m->load, m->raw, m->delta, p->cols, m->what, err) : status;
}

/* Row `next` of the base plus its delta, in `delta`. */
static ckpt_status add_base(making *m, ckpt__elements *base, uint64_t i, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    ckpt_status status = ckpt__elements_read(base, m->raw, (size_t)p->cols * m->load.from_size, err);
    if (status == CKPT_OK)
        status = convert(&m->load, m->raw, m->w, p->cols, m->what, err);
    if (status < 0)
        return status;
    make_delta(m, i);
    status = round_delta(m, err);
    for (size_t j = 0; j < p->cols; j++)
        m->delta[j] = m->w[j] + m->delta[j];
    return status;
}

/* ---- DoRA: each output has the length that the adapter says */

static double row_square(const making *m)
{
    double sum = 0;
    for (size_t j = 0; j < m->part->cols; j++)
        sum += (double)m->delta[j] * (double)m->delta[j];
    return sum;
}

/* Where an output is a column, its length is known when all rows were seen: one reading of the base more. */
static ckpt_status find_columns(making *m, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    double *sums = calloc((size_t)p->cols + 1, sizeof *sums);
    ckpt__elements base = {0};
    ckpt_status status = sums ? CKPT_OK : ckpt__fail_memory(err, m->what, p->cols * sizeof *sums);
    if (status == CKPT_OK)
        status = open_elements(&base, p->adapter->base, p->base, err);
    for (uint64_t i = 0; status == CKPT_OK && i < p->rows; i++) {
        status = add_base(m, &base, i, err);
        for (size_t j = 0; status == CKPT_OK && j < p->cols; j++)
            sums[j] += (double)m->delta[j] * (double)m->delta[j];
    }
    for (size_t j = 0; status == CKPT_OK && j < p->cols; j++)
        m->factors[j] = m->factors[j] / (float)sqrt(sums[j]);
    ckpt__elements_close(&base);
    free(sums);
    return status;
}

static void apply_factors(const making *m, uint64_t i)
{
    const ckpt__merge_part *p = m->part;
    const float whole = p->turned ? 0 : m->factors[i] / (float)sqrt(row_square(m));
    for (size_t j = 0; j < p->cols; j++)
        m->delta[j] = (p->turned ? m->factors[j] : whole) * m->delta[j];
}

/* ---- the maker */

/* Elements of row `i`: of what is taken whole the last one may be shorter. */
static uint64_t row_elements(const ckpt__merge_part *p, uint64_t i)
{
    if (p->kind != CKPT__MERGE_TAKE)
        return p->cols;
    const ckpt_tensor_info *t = &tensor_of(p, p->b)->info;
    uint64_t all = t->nbytes / ckpt_dtype_size(t->dtype), at = i * p->cols;
    return all - at < p->cols ? all - at : p->cols;
}

/* B is cols x rank in the file; its rows are wanted as columns. */
static ckpt_status turn(making *m, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    float *turned = malloc((size_t)(p->rank * p->cols + 1) * sizeof *turned);
    if (!turned)
        return ckpt__fail_memory(err, m->what, p->rank * p->cols * sizeof *turned);
    for (uint64_t j = 0; j < p->cols; j++)
        for (uint64_t k = 0; k < p->rank; k++)
            turned[k * p->cols + j] = m->right[j * p->rank + k];
    free(m->right);
    m->right = turned;
    return CKPT_OK;
}

static ckpt_status open_lora(making *m, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    ckpt_status status = load(m, p->turned ? p->a : p->b, &m->left, err);
    if (status == CKPT_OK && p->kind == CKPT__MERGE_LORA)
        status = load(m, p->turned ? p->b : p->a, &m->right, err);
    if (status == CKPT_OK && p->turned)
        status = turn(m, err);
    if (status == CKPT_OK && p->magnitude != CKPT__NO_TENSOR)
        status = load(m, p->magnitude, &m->factors, err);
    if (status == CKPT_OK && p->magnitude != CKPT__NO_TENSOR && p->turned)
        status = find_columns(m, err);
    return status == CKPT_OK ? open_elements(&m->base, p->adapter->base, p->base, err) : status;
}

static ckpt_status open_making(const ckpt__maker *maker, const char *what, void **state, ckpt_error *err)
{
    const ckpt__merge_part *p = (const ckpt__merge_part *)(const void *)maker;
    making *m = *state = calloc(1, sizeof *m);
    if (!m)
        return ckpt__fail_memory(err, what, sizeof *m);
    const bool take = p->kind == CKPT__MERGE_TAKE;
    m->part = p;
    m->what = what;
    m->raw = malloc((size_t)p->cols * 8 + 1);
    m->w = malloc((size_t)(p->cols + 1) * sizeof *m->w);
    m->delta = malloc((size_t)(p->cols + 1) * sizeof *m->delta);
    m->taken = malloc((size_t)p->cols * 8 + 1);
    ckpt_status status = m->raw && m->w && m->delta && m->taken ? CKPT_OK : ckpt__fail_memory(err, what, p->cols * 16);
    if (status == CKPT_OK)
        status =
            make_op(take ? tensor_of(p, p->b)->info.dtype : p->dtype, take ? p->dtype : CKPT_F32, what, &m->load, err);
    if (status == CKPT_OK)
        status = make_op(CKPT_F32, p->dtype, what, &m->store, err);
    if (status == CKPT_OK)
        status = take ? open_elements(&m->base, p->adapter->reader, (size_t)p->b, err) : open_lora(m, err);
    return status;
}

/* The next row, into `raw`. */
static ckpt_status make_row(making *m, ckpt_error *err)
{
    const ckpt__merge_part *p = m->part;
    ckpt_status status;
    if (p->kind == CKPT__MERGE_TAKE) {
        const uint64_t n = row_elements(p, m->next);
        status = ckpt__elements_read(&m->base, m->taken, (size_t)n * m->load.from_size, err);
        if (status == CKPT_OK)
            status = convert(&m->load, m->taken, m->raw, n, m->what, err);
    } else {
        status = add_base(m, &m->base, m->next, err);
        if (status == CKPT_OK && m->factors)
            apply_factors(m, m->next);
        if (status == CKPT_OK)
            status = convert(&m->store, m->delta, m->raw, p->cols, m->what, err);
    }
    m->next++;
    m->made = true;
    return status;
}

/* The rows before `to` are not wanted: those of the base go by. */
static ckpt_status pass_rows(making *m, uint64_t to, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (; status == CKPT_OK && m->next < to; m->next++)
        status =
            ckpt__elements_read(&m->base, m->taken, (size_t)row_elements(m->part, m->next) * m->load.from_size, err);
    return status;
}

static ckpt_status read_making(void *state, uint64_t at, void *dst, size_t n, ckpt_error *err)
{
    making *m = state;
    unsigned char *to = dst;
    const uint64_t row = m->part->cols * ckpt_dtype_size(m->part->dtype);
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && n) {
        const uint64_t i = at / row, offset = at % row;
        const size_t some = row - offset < n ? (size_t)(row - offset) : n;
        if (!m->made || m->next != i + 1) {
            status = pass_rows(m, i, err);
            if (status == CKPT_OK)
                status = make_row(m, err);
        }
        if (status == CKPT_OK)
            memcpy(to, m->raw + offset, some);
        to += some;
        at += some;
        n -= some;
    }
    return status;
}

static void close_making(void *state)
{
    making *m = state;
    if (!m)
        return;
    ckpt__elements_close(&m->base);
    free(m->left);
    free(m->right);
    free(m->w);
    free(m->delta);
    free(m->factors);
    free(m->taken);
    free(m->raw);
    free(m);
}

void ckpt__merge_maker(ckpt__merge_part *p)
{
    p->maker = (ckpt__maker){open_making, read_making, close_making};
}

uint64_t ckpt__merge_memory(const ckpt__merge_part *p)
{
    uint64_t matrices = p->kind == CKPT__MERGE_LORA ? p->rank * (p->rows + 2 * p->cols) * sizeof(float) : 0;
    return matrices + p->cols * 32 + BASE_MEMORY;
}

uint64_t ckpt__merge_reads(const ckpt__merge_part *p)
{
    const int64_t of[] = {p->a, p->b, p->magnitude};
    const uint64_t base = p->adapter->base->index->tensors[p->base].info.nbytes;
    uint64_t bytes = p->kind == CKPT__MERGE_TAKE ? 0 : base * (p->magnitude != CKPT__NO_TENSOR && p->turned ? 2 : 1);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        bytes += of[i] == CKPT__NO_TENSOR ? 0 : tensor_of(p, of[i])->info.nbytes;
    return bytes;
}
