/* examine/stats.c - numbers of tensors' values, in one pass over the files. */
#include <ckpt/stats.h>

#include <math.h>
#include <stdlib.h>
#include "engine/elements.h"
#include "reader/reader.h"
#include "base/first_sizes.h"
#include "examine/moments.h"
#include "model/nested.h"
#include "model/numbers.h"
#include "engine/stream.h"

__extension__ typedef __int128 wide;

enum { KEPT_MAX = 32 << 20 }; /* bytes of a tensor that are kept for its histogram; more are read again */

/* The pass over the tensors, and the numbers of the tensor that is read. It is on the heap, for its arrays.
 *
 * Integers of 64 bits are summed exactly, in 128 bits, and their deviation is that of the distances from the first
 * of them (pivot): 2^60, 2^60 + 1 and 2^60 + 2 are not all doubles, but 0, 1 and 2 are. */
typedef struct stater {
    const ckpt_reader *reader; /* borrowed, as are the options */
    const ckpt_stats_options *options;
    uint64_t done, total; /* bytes, for the progress callback; of a tensor that is read twice, both times */
    /* of the tensor that is read */
    ckpt__numbers numbers;
    uint64_t left;         /* values that are still to come */
    ckpt__moments moments; /* of wide integers: of their distances from the pivot */
    bool binning;          /* the second look at it */
    ckpt__bins bins;
    bool started;                      /* wide integers: pivot is the first */
    wide pivot, sum, low, high;        /* low, high: the smallest and the largest */
    unsigned char *kept;               /* heap, owned: its bytes, where they are few; NULL: no histogram, or it is read
                                   * again */
    double x[2 * CKPT__MOMENTS_BLOCK]; /* values as numbers; complex ones take two places */
    int64_t i64[CKPT__MOMENTS_BLOCK];  /* wide integers; those that have no sign, as their bits */
} stater;

const char *ckpt_stats_kind_name(ckpt_stats_kind kind)
{
    static const char *const names[] = {"none", "float", "complex", "int", "uint", "codes"};
    return kind >= CKPT_STATS_NONE && kind <= CKPT_STATS_CODES ? names[kind] : "none";
}

/* ---- values */

/* Absolute values in place. NaN wins over infinity, as torch counts; a finite one stays finite. */
static void take_modulus(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double re = x[2 * i], im = x[2 * i + 1], m = hypot(re, im);
        if (isnan(re) || isnan(im))
            m = (double)NAN;
        else if (isinf(m) && isfinite(re) && isfinite(im))
            m = 0x1.fffffffffffffp+1023;
        x[i] = m;
    }
}

/* Wide integers: sums are exact, squares are around the first of them. */
static void load_wide(stater *s, const unsigned char *p, size_t n)
{
    ckpt__numbers_load_int(&s->numbers, p, n, s->i64);
    if (s->binning) {
        ckpt__numbers_load(&s->numbers, p, n, s->x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        wide v = s->numbers.kind == CKPT__SIGNED ? (wide)s->i64[i] : (wide)(uint64_t)s->i64[i];
        if (!s->started) {
            s->pivot = s->low = s->high = v;
            s->started = true;
        }
        s->low = v < s->low ? v : s->low;
        s->high = v > s->high ? v : s->high;
        s->sum += v;
        s->x[i] = (double)(v - s->pivot);
        s->moments.zero += v == 0;
    }
}

static void look(stater *s, const unsigned char *p, size_t n)
{
    uint64_t zero = s->moments.zero;
    if (s->numbers.wide)
        load_wide(s, p, n);
    else
        ckpt__numbers_load(&s->numbers, p, n, s->x);
    if (s->numbers.kind == CKPT__COMPLEX)
        take_modulus(s->x, n);
    if (s->binning) {
        ckpt__bins_add(&s->bins, s->x, n);
        return;
    }
    if (s->numbers.wide)
        zero = s->moments.zero; /* they were counted before the pivot went off */
    ckpt__moments_add(&s->moments, s->x, n);
    if (s->numbers.wide)
        s->moments.zero = zero;
}

static ckpt_status look_at_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    stater *s = ctx;
    const unsigned char *p = data;
    const ckpt_progress *progress = &s->options->progress;
    if (s->kept && !s->binning)
        memcpy(s->kept + offset, data, n);
    for (size_t values = ckpt__numbers_in(&s->numbers, n), some; values && s->left; values -= some) {
        some = values < CKPT__MOMENTS_BLOCK ? values : CKPT__MOMENTS_BLOCK;
        size_t count = some < s->left ? some : (size_t)s->left; /* of packed values the last byte may be half */
        look(s, p, count);
        s->left -= count;
        p += s->numbers.bits < 8 ? some / (8 / s->numbers.bits) : some * (s->numbers.bits / 8);
    }
    s->done += n;
    if (progress->fn && progress->fn(progress->ctx, s->done, s->total) != 0)
        return ckpt__fail(err, CKPT_E_CANCELLED, NULL, "cancelled");
    return CKPT_OK;
}

/* ---- one tensor */

static ckpt_stats_kind kind_of(const ckpt__numbers *n)
{
    static const ckpt_stats_kind kinds[] = {
        [CKPT__REAL] = CKPT_STATS_FLOAT,
        [CKPT__COMPLEX] = CKPT_STATS_COMPLEX,
        [CKPT__SIGNED] = CKPT_STATS_INT,
        [CKPT__UNSIGNED] = CKPT_STATS_UINT,
    };
    return n->codes ? CKPT_STATS_CODES : kinds[n->kind];
}

static const char *why_none(const stater *s, const ckpt__tensor *t)
{
    if (t->info.extra->layout.data)
        return "not dense: its parts have values";
    if (ckpt__has_no_bytes(t))
        return "no data (meta)";
    if (s->numbers.kind == CKPT__NO_NUMBERS)
        return "no values are known of this dtype";
    return ckpt__repeats(s->reader->index, t, NULL) ? "its view repeats too little storage too often" : NULL;
}

static void give_numbers(const stater *s, ckpt_tensor_stats *out)
{
    const ckpt__moments *m = &s->moments;
    out->finite = m->finite;
    out->nan = m->nan;
    out->inf_pos = m->inf_pos;
    out->inf_neg = m->inf_neg;
    out->zero = m->zero;
    if (m->finite == 0)
        return;
    out->std = ckpt__moments_std(m);
    if (s->numbers.wide) {
        wide count = (wide)m->finite;
        out->mean = (double)(s->sum / count) + (double)(s->sum % count) / (double)count;
        out->min = (double)s->low;
        out->max = (double)s->high;
        out->int_min = (int64_t)s->low;
        out->int_max = (int64_t)s->high;
        out->uint_min = (uint64_t)s->low;
        out->uint_max = (uint64_t)s->high;
    } else {
        out->mean = ckpt__moments_mean(m);
        out->min = m->min;
        out->max = m->max;
    }
    if (!s->numbers.wide && s->numbers.kind == CKPT__SIGNED) {
        out->int_min = (int64_t)m->min;
        out->int_max = (int64_t)m->max;
    } else if (!s->numbers.wide && s->numbers.kind == CKPT__UNSIGNED) {
        out->uint_min = (uint64_t)m->min;
        out->uint_max = (uint64_t)m->max;
    }
    out->absmax = fabs(out->min) > fabs(out->max) ? fabs(out->min) : fabs(out->max);
}

static ckpt_status read_again(stater *s, size_t tensor, uint64_t count, ckpt_tensor_stats *out, ckpt_error *err)
{
    const ckpt__tensor *t = &s->reader->index->tensors[tensor];
    ckpt_status status;
    s->binning = true;
    s->left = count;
    ckpt__bins_init(&s->bins, out->min, out->max);
    if (s->kept) {
        s->done -= t->info.nbytes;
        status = look_at_block(s, 0, s->kept, (size_t)t->info.nbytes, err);
    } else
        status = ckpt__read_tensor(s->reader->source, s->reader->index, tensor, false, look_at_block, s, err);
    if (status == CKPT_OK)
        ckpt__bins_give(&s->bins, out);
    return status;
}

static bool read_twice(const stater *s, const ckpt__tensor *t)
{
    return s->options->histogram && t->info.nbytes > KEPT_MAX;
}

static ckpt_status of_tensor(stater *s, size_t tensor, ckpt_tensor_stats *out, ckpt_error *err)
{
    const ckpt__tensor *t = &s->reader->index->tensors[tensor];
    uint64_t elements = 0, before = s->done;
    memset(out, 0, sizeof *out);
    ckpt__numbers_init(&s->numbers, t->info.dtype);
    out->why = why_none(s, t);
    if (out->why)
        return CKPT_OK;
    ckpt__numel(t->info.shape, t->info.ndim, &elements);
    out->kind = kind_of(&s->numbers);
    out->is_signed = s->numbers.kind == CKPT__SIGNED;
    out->count = s->left = ckpt__numbers_count(&s->numbers, elements, t->info.nbytes);
    memset(&s->moments, 0, sizeof s->moments);
    s->sum = 0;
    s->started = s->binning = false;
    if (s->options->histogram && t->info.nbytes <= KEPT_MAX && !(s->kept = malloc((size_t)t->info.nbytes + 1)))
        return ckpt__fail_memory(err, t->info.name.data, t->info.nbytes);
    ckpt_status status = ckpt__read_tensor(s->reader->source, s->reader->index, tensor, true, look_at_block, s, err);
    if (status == CKPT_OK)
        give_numbers(s, out);
    if (status == CKPT_OK && s->options->histogram && out->max > out->min)
        status = read_again(s, tensor, out->count, out, err);
    s->done = before + t->info.nbytes * (read_twice(s, t) ? 2 : 1);
    free(s->kept);
    s->kept = NULL;
    return status;
}

/* ---- all of them */

static int by_place(const void *a, const void *b, void *ctx)
{
    const ckpt__index *index = ctx;
    size_t i = *(const size_t *)a, k = *(const size_t *)b;
    const ckpt__tensor *x = &index->tensors[i], *y = &index->tensors[k];
    if (!x->whole || !y->whole || index->storage_count == 0)
        return x->whole == y->whole ? (i > k) - (i < k) : x->whole ? 1 : -1;
    const ckpt__extent *e = &index->storages[x->storage].extent, *f = &index->storages[y->storage].extent;
    if (e->file != f->file)
        return e->file < f->file ? -1 : 1;
    if (ckpt__extent_begin(e) != ckpt__extent_begin(f))
        return ckpt__extent_begin(e) < ckpt__extent_begin(f) ? -1 : 1;
    if (x->info.offset != y->info.offset)
        return x->info.offset < y->info.offset ? -1 : 1;
    return (i > k) - (i < k);
}

ckpt_status ckpt_stats(const ckpt_reader *reader, const size_t *tensors, size_t count,
                       const ckpt_stats_options *options, ckpt_stats_fn fn, void *ctx, ckpt_error *err)
{
    ckpt_stats_options own;
    ckpt_tensor_stats out;
    if (!reader || !fn)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a reader and a function that takes the answers are required");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_stats_options, &own, options, err);
    if (status < 0)
        return status;
    const ckpt__index *index = reader->index;
    if (!tensors)
        count = index->tensor_count;
    size_t *order = calloc(count + 1, sizeof *order);
    stater *s = calloc(1, sizeof *s);
    status = order && s ? CKPT_OK : ckpt__fail_memory(err, "a list of tensors", count);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        order[i] = tensors ? tensors[i] : i;
        if (order[i] >= index->tensor_count)
            status = ckpt__fail(err, CKPT_E_ARGUMENT, reader->path, "tensor number %zu of %zu", order[i],
                                index->tensor_count);
    }
    if (status == CKPT_OK) {
        qsort_r(order, count, sizeof *order, by_place, (void *)(uintptr_t)index);
        s->reader = reader;
        s->options = &own;
        for (size_t i = 0; i < count; i++)
            if (!ckpt__has_no_bytes(&index->tensors[order[i]]))
                s->total += index->tensors[order[i]].info.nbytes * (read_twice(s, &index->tensors[order[i]]) ? 2 : 1);
    }
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        status = of_tensor(s, order[i], &out, err);
        if (status == CKPT_OK && fn(ctx, order[i], &out) != 0)
            status = ckpt__fail(err, CKPT_E_CANCELLED, NULL, "cancelled");
    }
    free(order);
    free(s);
    return status;
}
