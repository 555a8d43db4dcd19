/* core/moments.c - sums over numbers that come in blocks. */
#include "core/moments.h"

#include <math.h>

enum { LANES = 4 };               /* independent sums, so that additions need not wait for each other */

/* Beyond these, squares of doubles overflow or vanish. */
static const double large = 0x1p+480, small = 0x1p-480;

typedef struct scanned {
    double sum, min, max;
    uint64_t zero;
} scanned;

/* Where a value is not finite, the sum is not, and the rest means nothing. */
static scanned scan(const double *x, size_t n)
{
    double sum[LANES] = { 0 }, min[LANES], max[LANES];
    uint64_t zero[LANES] = { 0 };
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
    scanned s = { (sum[0] + sum[1]) + (sum[2] + sum[3]), min[0], max[0], zero[0] + zero[1] + zero[2] + zero[3] };
    for (int k = 1; k < LANES; k++) {
        s.min = min[k] < s.min ? min[k] : s.min;
        s.max = max[k] > s.max ? max[k] : s.max;
    }
    return s;
}

static double squares_around(const double *x, size_t n, double mean)
{
    double sum[LANES] = { 0 };
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double d = x[i + (size_t)k] - mean;
            sum[k] += d * d;
        }
    for (; i < n; i++)
        sum[0] += (x[i] - mean) * (x[i] - mean);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
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
    double absmax = fabs(s.min) > fabs(s.max) ? fabs(s.min) : fabs(s.max);
    long double sum = s.sum, squares = 0, total = (long double)m->finite + (long double)n;
    if (absmax < large && (absmax > small || absmax == 0))
        squares = squares_around(x, n, s.sum / (double)n);
    else {
        sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[i];
        for (size_t i = 0; i < n; i++)
            squares += (x[i] - sum / n) * (x[i] - sum / n);
    }
    if (m->finite) {
        long double apart = sum / n - m->sum / m->finite;
        squares += apart * apart * ((long double)m->finite * n / total);
    }
    m->squares += squares;
    m->sum += sum;
    m->min = m->finite && m->min <= s.min ? m->min : s.min + 0.0;      /* -0 is 0 */
    m->max = m->finite && m->max >= s.max ? m->max : s.max + 0.0;
    m->zero += s.zero;
    m->finite += n;
}

/* ---- histograms */

void ckpt__bins_init(ckpt__bins *b, double low, double high)
{
    memset(b, 0, sizeof *b);
    b->low = low;
    b->high = high;
    bool far = isinf(high - low);     /* then half of all */
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
