/* examine/moments.h - sums over numbers that come in blocks: smallest, largest, mean, deviation, a histogram. One pass, stable:
 * each block has its mean and the squares around it (in lanes), and blocks are merged by the formula of Chan, Golub and
 * LeVeque (1979). All is done in double, and what a sum loses is carried along, so that the answer asks for no wider type,
 * which machines have of different widths or not at all. */
#ifndef CKPT_MOMENTS_H
#define CKPT_MOMENTS_H
#include <ckpt/stats.h>
#include "base/base.h"

enum { CKPT__MOMENTS_BLOCK = 2048 };

/* A number that two doubles are together: the second one is what the first one has lost. No double holds 2^53 + 1;
 * a sum holds it as high 2^53 and low 1. */
typedef struct ckpt__sum {
    double high, low;
} ckpt__sum;

/* The sums over all blocks so far. All zero is a good start. The values 1, 2, 3, NaN give finite 3, nan 1, min 1,
 * max 3, sum 6, mean 2, squares 1 + 0 + 1 = 2: the deviation is sqrt(2 / 3). */
typedef struct ckpt__moments {
    uint64_t finite, nan, inf_pos, inf_neg, zero; /* how many values; zeros are finite, too */
    double min, max;                              /* of the finite; 0 where there are none. Not scaled */
    int scale;               /* the rest is of values times 2^-scale, that their squares be doubles */
    ckpt__sum sum;           /* of blocks' sums: exact where those are, as of whole numbers */
    ckpt__sum mean, squares; /* squares: of the distances from the mean, which is nearer to the true one than sum is */
} ckpt__moments;

/* At most CKPT__MOMENTS_BLOCK values; what is not finite is counted, and taken out of x, and x may be scaled. */
void ckpt__moments_add(ckpt__moments *m, double *x, size_t n);
/* Of the finite values; 0 where there are none. std: of the population. */
double ckpt__moments_mean(const ckpt__moments *m);
double ckpt__moments_std(const ckpt__moments *m);

/* The histograms of one tensor: bins of equal width from its smallest value to its largest, and counts by exponent.
 * Bin k takes values from edges[k] on, below edges[k + 1]; the last bin takes `high`, too. The value 6 = 1.5 * 2^2
 * counts in exponents[1023 + 2]. */
typedef struct ckpt__bins {
    double low, high; /* the range */
    double edges[CKPT_STATS_BINS + 1];
    uint64_t counts[CKPT_STATS_BINS]; /* values in each bin */
    uint64_t exponents[2048];         /* of doubles, biased: values with each; zeros are not counted */
} ckpt__bins;

/* high > low. The edges are low + k * ((high - low) / CKPT_STATS_BINS), and high. */
void ckpt__bins_init(ckpt__bins *b, double low, double high);
void ckpt__bins_add(ckpt__bins *b, const double *x, size_t n); /* what is not finite is passed over */
void ckpt__bins_give(const ckpt__bins *b, ckpt_tensor_stats *out);
#endif
