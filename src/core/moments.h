/* core/moments.h - sums over numbers that come in blocks: smallest, largest, mean, deviation, a histogram. One pass, stable:
 * each block has its mean and the squares around it (in lanes, in double), and blocks are merged in long double by the
 * formula of Chan, Golub and LeVeque (1979). */
#ifndef CKPT_MOMENTS_H
#define CKPT_MOMENTS_H
#include <ckpt/stats.h>
#include "base/base.h"

enum { CKPT__MOMENTS_BLOCK = 2048 };

typedef struct ckpt__moments {
    uint64_t finite, nan, inf_pos, inf_neg, zero;
    double min, max;              /* of the finite; 0 where there are none */
    long double sum, squares;     /* squares: of the distances from the mean */
} ckpt__moments;

/* At most CKPT__MOMENTS_BLOCK values; what is not finite is counted, and taken out of x. */
void ckpt__moments_add(ckpt__moments *m, double *x, size_t n);

typedef struct ckpt__bins {
    double low, high;
    double edges[CKPT_STATS_BINS + 1];
    uint64_t counts[CKPT_STATS_BINS];
    uint64_t exponents[2048];     /* of doubles, biased */
} ckpt__bins;

/* high > low. The edges are low + k * ((high - low) / CKPT_STATS_BINS), and high. */
void ckpt__bins_init(ckpt__bins *b, double low, double high);
void ckpt__bins_add(ckpt__bins *b, const double *x, size_t n);      /* what is not finite is passed over */
void ckpt__bins_give(const ckpt__bins *b, ckpt_tensor_stats *out);
#endif
