/* adamw_fused.cu - the kernels of AdamW, in the common subset of C and CUDA C++.
 *
 * One source, built twice: by nvcc to a fatbin that a GPU runs, and by the C compiler (adamw_twin.c) to functions that
 * the CPU runs, thread by thread. The same operations in the same order, without contraction to fused multiply-adds
 * (nvcc -fmad=false, cc -ffp-contract=off), so that both give the same bits. */
#include "adamw.h"

#ifdef __CUDACC__
#define KERNEL extern "C" __global__ void
#define INLINE static __device__ inline
#else
#include <math.h>
#define KERNEL static void
#define INLINE static inline
#endif

/* base^n. Not pow(): its last bit differs from one math library to the next. */
INLINE double adamw_power(double base, uint64_t n)
{
    double result = 1.0;
    for (; n; n >>= 1, base *= base)
        if (n & 1)
            result *= base;
    return result;
}

/* What a parameter's group and step count make of the formula: torch's names. */
typedef struct adamw_coefficients {
    float keep, exp_avg_grad, beta2, exp_avg_sq_grad, bias_correction2_sqrt, eps, minus_step_size;
} adamw_coefficients;

INLINE adamw_coefficients adamw_prepare(const adamw_group *group, double step)
{
    adamw_coefficients c;
    c.keep = (float)(1.0 - group->lr * group->weight_decay);
    c.exp_avg_grad = (float)(1.0 - group->beta1);
    c.beta2 = (float)group->beta2;
    c.exp_avg_sq_grad = (float)(1.0 - group->beta2);
    c.bias_correction2_sqrt = (float)sqrt(1.0 - adamw_power(group->beta2, (uint64_t)step));
    c.eps = (float)group->eps;
    c.minus_step_size = (float)(-group->lr / (1.0 - adamw_power(group->beta1, (uint64_t)step)));
    return c;
}

INLINE void adamw_update(const adamw_tensor *t, uint64_t i, const adamw_coefficients *c, float grad_scale)
{
    float grad = t->grad[i] / grad_scale;
    float param = t->param[i] * c->keep;
    float exp_avg = t->exp_avg[i] + c->exp_avg_grad * (grad - t->exp_avg[i]);
    float exp_avg_sq = t->exp_avg_sq[i] * c->beta2 + c->exp_avg_sq_grad * grad * grad;
    float denom = sqrtf(exp_avg_sq) / c->bias_correction2_sqrt + c->eps;
    t->grad[i] = grad;
    t->exp_avg[i] = exp_avg;
    t->exp_avg_sq[i] = exp_avg_sq;
    t->param[i] = param + c->minus_step_size * exp_avg / denom;
}

/* First: one thread for each tensor counts its step. */
KERNEL adamw_fused_step(const adamw_tensor *tensors, uint64_t count, const adamw_call *call)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && call->found_inf == 0.0f)
        *tensors[i].step += 1.0f;
}

/* Then: row y of the grid updates tensor y. Everything that it reads, `step` too, is on the kernel's device. */
KERNEL adamw_fused(const adamw_tensor *tensors, uint64_t count, const adamw_call *call)
{
    if (blockIdx.y >= count || call->found_inf != 0.0f)
        return;
    const adamw_tensor *t = &tensors[blockIdx.y];
    adamw_coefficients c = adamw_prepare(&call->groups[t->group], (double)*t->step);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < t->count;
         i += (uint64_t)gridDim.x * blockDim.x)
        adamw_update(t, i, &c, call->grad_scale);
}

/* Plain: one launch for each tensor, whose step count the CPU keeps and hands over by value. */
KERNEL adamw_plain(const adamw_tensor *tensor, const adamw_call *call, double step)
{
    adamw_coefficients c = adamw_prepare(&call->groups[tensor->group], step);
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < tensor->count;
         i += (uint64_t)gridDim.x * blockDim.x)
        adamw_update(tensor, i, &c, call->grad_scale);
}
