/* examine/moments.c - sums over numbers that come in blocks. */
#include "examine/moments.h"

#include <math.h>

enum { LANES = 4 }; /* independent sums, so that additions need not wait for each other */

/* Beyond these, squares of doubles, or of distances between them, overflow or vanish: then values are scaled. */
static const double large = 0x1p+400, small = 0x1p-400;
enum { SCALE = 600 };

/* The first look at a block: sum, smallest, largest, and how many values are 0. */
typedef struct scanned {
    double sum, min, max;
    uint64_t zero;
} scanned;

/* Where a value is not finite, the sum is not, and the rest means nothing. */
static scanned scan(const double *x, size_t n)
{
    double sum[LANES] = {0}, min[LANES], max[LANES];
    uint64_t zero[LANES] = {0};
    size_t i = 0;
    for (int k = 0; k < LANES; k++)
        min[k] = max[k] = x[0];
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double v = x[i + (size_t)k];
            sum[k] += v;
            min[k] = v < min[k] ? v : min[k];
            max[k] = v > max[k] ? v : max[k];
            zero[k] += v == 0;
        }
    for (; i < n; i++) {
        sum[0] += x[i];
        min[0] = x[i] < min[0] ? x[i] : min[0];
        max[0] = x[i] > max[0] ? x[i] : max[0];
        zero[0] += x[i] == 0;
    }
    scanned s = {(sum[0] + sum[1]) + (sum[2] + sum[3]), min[0], max[0], zero[0] + zero[1] + zero[2] + zero[3]};
    for (int k = 1; k < LANES; k++) {
        s.min = min[k] < s.min ? min[k] : s.min;
        s.max = max[k] > s.max ? max[k] : s.max;
    }
    return s;
}

/* Squares of the distances from `mean`, and the distances: they come to 0 but for what the mean lost to rounding. */
static double squares_around(const double *x, size_t n, double mean, double *distances)
{
    double sum[LANES] = {0}, apart[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double d = x[i + (size_t)k] - mean;
            sum[k] += d * d;
        }
    for (i = 0; i + LANES <= n; i += LANES) /* in one loop with the other, compilers put lanes into memory */
        for (int k = 0; k < LANES; k++)
            apart[k] += x[i + (size_t)k] - mean;
    for (; i < n; i++) {
        apart[0] += x[i] - mean;
        sum[0] += (x[i] - mean) * (x[i] - mean);
    }
    *distances = (apart[0] + apart[1]) + (apart[2] + apart[3]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Adds v, and keeps what the sum loses by it (Knuth's sum of two). */
static void add(ckpt__sum *to, double v)
{
    double sum = to->high + v, took = sum - to->high, low = (to->high - (sum - took)) + (v - took) + to->low;
    to->high = sum + low;
    to->low = low - (to->high - sum);
}

static ckpt__sum scaled(ckpt__sum s, int by)
{
    return (ckpt__sum){ldexp(s.high, by), ldexp(s.low, by)};
}

/* Counts what is not finite and moves the rest together; how many those are. */
static size_t take_finite(ckpt__moments *m, double *x, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            x[kept++] = x[i];
        else if (isnan(x[i]))
            m->nan++;
        else
            *(x[i] > 0 ? &m->inf_pos : &m->inf_neg) += 1;
    }
    return kept;
}

static double larger(double a, double b)
{
    return fabs(a) > fabs(b) ? fabs(a) : fabs(b);
}

/* The scale that suits all values so far, those of a new block among them; it grows, but where there were only zeros. */
static void take_scale(ckpt__moments *m, const scanned *s)
{
    double most = larger(larger(m->min, m->max), larger(s->min, s->max));
    int scale = most >= large ? SCALE : most > 0 && most <= small ? -SCALE : 0, by = m->scale - scale;
    m->scale = scale;
    m->sum = scaled(m->sum, by);
    m->mean = scaled(m->mean, by);
    m->squares = scaled(m->squares, 2 * by);
}

/* A block of n finite values, with their sum. Its mean is put right by the distances from it. */
static void merge(ckpt__moments *m, const double *x, size_t n, double sum)
{
    double count = (double)n, before = (double)m->finite, mean = sum / count, distances;
    double squares = squares_around(x, n, mean, &distances);
    ckpt__sum apart = {mean, distances / count};
    squares -= distances * apart.low;
    add(&apart, -m->mean.high);
    add(&apart, -m->mean.low);
    squares += apart.high * apart.high * (before * (count / (before + count)));
    add(&m->squares, squares);
    add(&m->mean, apart.high * (count / (before + count)));
    add(&m->mean, apart.low * (count / (before + count)));
    add(&m->sum, sum);
}

void ckpt__moments_add(ckpt__moments *m, double *x, size_t n)
{
    if (n == 0)
        return;
    scanned s = scan(x, n);
    if (!isfinite(s.sum)) {
        n = take_finite(m, x, n);
        if (n == 0)
            return;
        s = scan(x, n);
    }
    take_scale(m, &s);
    if (m->scale) {
        for (size_t i = 0; i < n; i++)
            x[i] = ldexp(x[i], -m->scale);
        merge(m, x, n, scan(x, n).sum);
    } else
        merge(m, x, n, s.sum);
    m->min = m->finite && m->min <= s.min ? m->min : s.min + 0.0; /* -0 is 0 */
    m->max = m->finite && m->max >= s.max ? m->max : s.max + 0.0;
    m->zero += s.zero;
    m->finite += n;
}

/* Rounding never puts it beside all values. */
double ckpt__moments_mean(const ckpt__moments *m)
{
    double mean = m->finite ? ldexp(m->sum.high / (double)m->finite, m->scale) : 0;
    return mean < m->min ? m->min : mean > m->max ? m->max : mean;
}

/* At most half of what lies between the smallest and the largest, as of any values. */
double ckpt__moments_std(const ckpt__moments *m)
{
    double range = m->max - m->min, most = isinf(range) ? m->max / 2 - m->min / 2 : range / 2;
    double std = m->finite ? ldexp(sqrt(m->squares.high / (double)m->finite), m->scale) : 0;
    return std > most ? most : std;
}

/* ---- histograms */

void ckpt__bins_init(ckpt__bins *b, double low, double high)
{
    memset(b, 0, sizeof *b);
    b->low = low;
    b->high = high;
    bool far = isinf(high - low); /* then half of all */
    double width = far ? high / 2 / CKPT_STATS_BINS - low / 2 / CKPT_STATS_BINS : (high - low) / CKPT_STATS_BINS;
    for (int k = 0; k < CKPT_STATS_BINS; k++)
        b->edges[k] = far ? 2 * (low / 2 + k * width) : low + k * width;
    b->edges[CKPT_STATS_BINS] = high;
}

void ckpt__bins_add(ckpt__bins *b, const double *x, size_t n)
{
    double half = b->high / 2 - b->low / 2, scale = half > 0 ? 1 / half : 0;
    bool fine = isfinite(scale) && scale > 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t u;
        if (!isfinite(x[i]))
            continue;
        memcpy(&u, &x[i], 8);
        b->exponents[u >> 52 & 0x7ff] += u << 1 != 0;
        double at = fine ? (x[i] / 2 - b->low / 2) * scale * CKPT_STATS_BINS : 0;
        int k = at < CKPT_STATS_BINS ? (int)at : CKPT_STATS_BINS - 1;
        /* rounding may have put it beside its bin; a range of a few subnormals has its bins counted out */
        while (k > 0 && x[i] < b->edges[k])
            k--;
        while (k < CKPT_STATS_BINS - 1 && x[i] >= b->edges[k + 1])
            k++;
        b->counts[k]++;
    }
}

void ckpt__bins_give(const ckpt__bins *b, ckpt_tensor_stats *out)
{
    int low = 0, high = 2047;
    out->has_histogram = true;
    memcpy(out->bins, b->counts, sizeof out->bins);
    while (low < 2047 && b->exponents[low] == 0)
        low++;
    while (high > low && b->exponents[high] == 0)
        high--;
    int first = high - low < CKPT_STATS_OCTAVES ? low : high - CKPT_STATS_OCTAVES + 1;
    out->octave_first = first - 1023;
    out->octave_count = b->exponents[high] ? high - first + 1 : 0;
    for (int e = low; e <= high; e++)
        out->octaves[e < first ? 0 : e - first] += b->exponents[e];
}
