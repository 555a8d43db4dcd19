/* adamw.h - AdamW, fused and plain, on the CPU and on a GPU.
 *
 * The arithmetic is torch's: AdamW(fused=True) with the grad scaler's grad_scale and found_inf, decoupled weight
 * decay, `step` a float32 tensor for each parameter. The kernels are in adamw_fused.cu; the CPU runs the same source,
 * so that a run gives the same bits on both. */
#ifndef ADAMW_H
#define ADAMW_H

#include <stddef.h>
#include <stdint.h>

/* One parameter and what belongs to it. Fused: all of them on one device. Plain: `step` is on the CPU. */
typedef struct adamw_tensor {
    float *param, *grad, *exp_avg, *exp_avg_sq;
    float *step;                          /* one number: how many updates this parameter has had */
    uint64_t count;                       /* elements */
    uint64_t group;
} adamw_tensor;

typedef struct adamw_group {
    double lr, beta1, beta2, eps, weight_decay;
} adamw_group;

enum { ADAMW_GROUPS = 4 };

/* What changes from step to step. */
typedef struct adamw_call {
    adamw_group groups[ADAMW_GROUPS];
    float grad_scale;                     /* gradients are divided by it */
    float found_inf;                      /* 1: some gradient is not finite; nothing is updated */
} adamw_call;

#ifndef __CUDACC__

typedef enum adamw_kind { ADAMW_FUSED, ADAMW_PLAIN } adamw_kind;

struct gpu;                               /* gpu.h */
typedef struct adamw adamw;

/* gpu NULL: the CPU. tensors, names and groups are borrowed until adamw_free; groups are read at each step. */
adamw *adamw_new(adamw_kind kind, struct gpu *gpu, const adamw_tensor *tensors, const char *const *names, size_t count,
                 const adamw_group *groups, size_t group_count);
void adamw_free(adamw *opt);              /* accepts NULL */

/* One update. Asks the driver where each tensor lies, and refuses (the program ends, with torch's sentence and the
 * tensor's name) where a kernel would be handed memory of another device. On a GPU the update is only queued. */
void adamw_step(adamw *opt, float grad_scale, float found_inf);

/* The kernels as the CPU runs them (adamw_twin.c). */
void adamw_fused_on_host(const adamw_tensor *tensors, uint64_t count, const adamw_call *call);
void adamw_plain_on_host(const adamw_tensor *tensor, const adamw_call *call, double step);

#endif
#endif
