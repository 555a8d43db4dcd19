/* ckpt/diff.h - what differs between two checkpoints, whatever their formats and layouts. */
#ifndef CKPT_DIFF_H
#define CKPT_DIFF_H

#ifndef CKPT_EXPERIMENTAL
#error "<ckpt/diff.h> is young and may change with each release: define CKPT_EXPERIMENTAL before the include"
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>
#include <ckpt/progress.h>
#include <ckpt/reader.h>
#include <ckpt/report.h>
#include <ckpt/tensor.h>
#include <ckpt/value.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_diff_status {
    CKPT_DIFF_SAME = 0,
    CKPT_DIFF_CHANGED,
    CKPT_DIFF_ADDED,
    CKPT_DIFF_REMOVED,
    CKPT_DIFF_TIED /* the second name of a tensor that the other side has under its first name: no difference */
} ckpt_diff_status;
const char *ckpt_diff_status_name(ckpt_diff_status status); /* "changed" */

/* The ways in which two entries differ: bits. */
enum {
    CKPT_DIFF_KIND = 1, /* a number in one, a string or an object in the other */
    CKPT_DIFF_DTYPE = 2,
    CKPT_DIFF_SHAPE = 4,
    CKPT_DIFF_LAYOUT = 8, /* dense or not, quantized or not; also another scale or zero point */
    CKPT_DIFF_DEVICE = 16,
    CKPT_DIFF_VALUE = 32
};
const char *ckpt_diff_what_name(unsigned bit); /* "value"; NULL past the last */

/* By what the two were taken to be the same thing. */
typedef enum ckpt_diff_match {
    CKPT_MATCH_NONE = 0,  /* the other checkpoint has nothing that corresponds */
    CKPT_MATCH_NAME,      /* the key path */
    CKPT_MATCH_CANONICAL, /* what a state calls them (ckpt_naming): paths of model and optimizer gone, ids resolved */
    CKPT_MATCH_PREFIX     /* the key path but for what stands in front: a wrapper's path, the ending of a file's name */
} ckpt_diff_match;
const char *ckpt_diff_match_name(ckpt_diff_match match); /* "canonical" */

/* A tensor of a, of b, or of both. The library makes the struct; it may grow. */
typedef struct ckpt_diff_tensor {
    ckpt_diff_status status;
    unsigned what;
    ckpt_diff_match match;
    ckpt_str name;                 /* that of a; of one that b alone has, that of b */
    const ckpt_tensor_info *a, *b; /* NULL: it is not there */
    ckpt_str tied;                 /* TIED: the name of the other one, on the same side */
    bool compared;                 /* the values were: both have some, of the same shape and of kinds that compare */
    uint64_t elements, differing;  /* places, and those that are not the same */
    uint64_t nan_mismatch;         /* places where one is NaN and the other is not */
    double max_abs, max_rel;       /* |a-b| and |a-b| / |b|, the largest where neither is NaN */
} ckpt_diff_tensor;

/* Everything that is not a tensor: numbers, strings, bytes, arrays, classes, empty containers. The library makes the struct;
 * it may grow. */
typedef struct ckpt_diff_scalar {
    ckpt_diff_status status;
    unsigned what;
    ckpt_diff_match match;
    ckpt_str name, name_a, name_b; /* name: as of a tensor; the others where they are, data NULL: it is not there */
    const ckpt_value *a, *b;       /* NULL: not there, or a tensor (tensor_a, tensor_b) */
    const ckpt_tensor_info *tensor_a, *tensor_b;
} ckpt_diff_scalar;

/* How to compare. Zero: bit by bit, all of it. */
typedef struct ckpt_diff_options {
    uint32_t struct_size; /* by the initializer */
    bool tolerant; /* values are the same where |a-b| <= atol + rtol * |b|; NaN equals NaN; integers stay exact */
    double atol, rtol;
    bool keep_same; /* the lists have what is the same too */
    /* Chooses tensors: a pair is compared where the function is true for one of the two. NULL: everything is compared; else only tensors are. */
    bool (*wanted)(void *ctx, const ckpt_tensor_info *tensor);
    void *wanted_ctx;
    ckpt_progress progress;
    bool values_too; /* all that is not a tensor is compared in spite of `wanted` */
    bool reserved[7];
} ckpt_diff_options;
#define CKPT_DIFF_OPTIONS_INIT CKPT_SIZED(ckpt_diff_options)

/* The struct never grows: it is a field of ckpt_diff_result. */
typedef struct ckpt_diff_counts {
    uint64_t same, changed, added, removed, tied;
    uint64_t by_name, by_canonical, by_prefix;
} ckpt_diff_counts;

/* The answer. Take it as it was initialized, or after ckpt_diff_result_clear. */
typedef struct ckpt_diff_result {
    uint32_t struct_size; /* by the initializer */
    bool same;
    const ckpt_diff_tensor *const *tensors;
    size_t tensor_count; /* in the order of a, then what only b has */
    const ckpt_diff_scalar *const *scalars;
    size_t scalar_count;
    ckpt_diff_counts of_tensors, of_scalars;
    uint64_t bytes; /* that were read and compared, of both together */
    void *owned;    /* what the lists are made of */
} ckpt_diff_result;
#define CKPT_DIFF_RESULT_INIT CKPT_SIZED(ckpt_diff_result)

/* Compares bit by bit, or with tolerances. Of different dtypes the values are compared as numbers. Devices are compared
 * where both formats keep them. Nothing is held but names and results: both are read side by side in blocks, in the order
 * of a. report (may be NULL) gets notes: "tied-name", "no-device-tags", "matched-prefix", "source-ambiguous", "order-ambiguous".
 * CKPT_OK: the answer is result->same; CKPT_E_DAMAGED names the tensor and its checkpoint; CKPT_E_CANCELLED.
 * The result points into both readers: free it before they are closed. */
ckpt_status ckpt_diff(const ckpt_reader *a, const ckpt_reader *b, const ckpt_diff_options *options,
                      ckpt_diff_result *result, ckpt_report *report, ckpt_error *err);
void ckpt_diff_result_clear(ckpt_diff_result *result); /* accepts one that holds nothing, and NULL */

CKPT_END_DECLS
#endif
