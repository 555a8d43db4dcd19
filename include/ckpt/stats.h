/* ckpt/stats.h - numbers of a tensor's values: smallest, largest, mean, deviation, what is not finite, a histogram. */
#ifndef CKPT_STATS_H
#define CKPT_STATS_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/stats.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/reader.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_stats_kind {
    CKPT_STATS_NONE = 0, /* no values of its own: `why` says why */
    CKPT_STATS_FLOAT,
    CKPT_STATS_COMPLEX, /* of the absolute values; NaN: one part is; infinite: one part is, and none is NaN */
    CKPT_STATS_INT,     /* min and max are exact in int_min, int_max */
    CKPT_STATS_UINT,    /* in uint_min, uint_max; bool counts as 0 and 1 */
    CKPT_STATS_CODES    /* the integers as stored (in uint_, of qint8 and qint32 in int_): quantized or packed; what
                                   * they stand for is not computed */
} ckpt_stats_kind;
const char *ckpt_stats_kind_name(ckpt_stats_kind kind); /* "float" */

enum { CKPT_STATS_BINS = 32, CKPT_STATS_OCTAVES = 64 };

/* All but the counts of what is not finite is over the finite values, in float64: with finite 0, numbers are 0.
 * The library makes the struct; it may grow. */
typedef struct ckpt_tensor_stats {
    ckpt_stats_kind kind;
    bool is_signed;  /* CODES: in int_ */
    const char *why; /* NONE: a static string: "meta", "not dense", ... */
    uint64_t count;  /* values: of packed dtypes there are several in an element */
    uint64_t finite, nan, inf_pos, inf_neg, zero;
    double min, max, mean, std, absmax; /* std: of the population */
    int64_t int_min, int_max;
    uint64_t uint_min, uint_max;
    /* Asked for, and max > min: bins of equal width from min to max, each with its lower edge (the last with both). */
    bool has_histogram;
    uint64_t bins[CKPT_STATS_BINS];
    /* With it: values other than zero by the power of two below their magnitude: octaves[i] counts 2^(first + i) <= |v|
     * < 2^(first + i + 1), i < octave_count; what is smaller still than first is in octaves[0]. */
    int octave_first, octave_count;
    uint64_t octaves[CKPT_STATS_OCTAVES];
} ckpt_tensor_stats;

/* Options of ckpt_stats. All zero counts everything but the histogram. */
typedef struct ckpt_stats_options {
    uint32_t struct_size; /* by the initializer */
    bool histogram;       /* a tensor of more than 32 MiB is read twice for it */
    ckpt_progress progress;
} ckpt_stats_options;
#define CKPT_STATS_OPTIONS_INIT CKPT_SIZED(ckpt_stats_options)

/* Called once a tensor, in the order in which they are read: `tensor` is the number in the reader. stats is good during
 * the call. A return other than 0 stops (CKPT_E_CANCELLED). */
typedef int (*ckpt_stats_fn)(void *ctx, size_t tensor, const ckpt_tensor_stats *stats);

/* Reads the tensors whose numbers are given (NULL: all) in the order in which they lie in the files, in bounded memory. A tensor
 * without values (meta, sparse: its parts have them) is answered with NONE. CKPT_E_DAMAGED names the tensor. */
ckpt_status ckpt_stats(const ckpt_reader *reader, const size_t *tensors, size_t count,
                       const ckpt_stats_options *options, ckpt_stats_fn fn, void *ctx, ckpt_error *err);

CKPT_END_DECLS
#endif
