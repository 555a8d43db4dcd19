/* adamw_twin.c - the kernels of adamw_fused.cu compiled for the CPU and run thread by thread: as the optimizer of
 * --device cpu, and as what the stand-in for the CUDA driver runs in place of the GPU's code. */
#include "adamw.h"
#include "../tests/fakecuda/fakecuda.h"
#include <stdlib.h>

typedef struct coordinates {
    unsigned x, y;
} coordinates;
static _Thread_local coordinates blockIdx, threadIdx, blockDim, gridDim;

#include "adamw_fused.cu"

/* Calls a kernel once for each thread of a grid. */
#define FOR_EACH_THREAD(blocks_x, blocks_y, threads)                                                                   \
    for (gridDim = (coordinates){ blocks_x, blocks_y }, blockDim.x = (threads), blockIdx.y = 0;                        \
         blockIdx.y < gridDim.y; blockIdx.y++)                                                                         \
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)                                                     \
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)

/* ---- on the CPU */

void adamw_fused_on_host(const adamw_tensor *tensors, uint64_t count, const adamw_call *call)
{
    FOR_EACH_THREAD(1, 1, (unsigned)count)
        adamw_fused_step(tensors, count, call);
    FOR_EACH_THREAD(1, (unsigned)count, 1)
        adamw_fused(tensors, count, call);
}

void adamw_plain_on_host(const adamw_tensor *tensor, const adamw_call *call, double step)
{
    FOR_EACH_THREAD(1, 1, 1)
        adamw_plain(tensor, call, step);
}

/* ---- on the stand-in: the same, once device pointers are turned into ones that the CPU may follow */

static float *reach(const fakecuda_launch *launch, const float *device, uint64_t floats)
{
    return launch->range((uint64_t)(uintptr_t)device, (size_t)floats * sizeof(float));
}

/* A table of n tensors with pointers for the CPU; freed by the caller. */
static adamw_tensor *reach_tensors(const fakecuda_launch *launch, uint64_t device, uint64_t n, int step_on_device)
{
    const adamw_tensor *there = launch->range(device, (size_t)n * sizeof *there);
    adamw_tensor *here = calloc((size_t)n, sizeof *here);
    for (uint64_t i = 0; here && i < n; i++) {
        here[i] = there[i];
        here[i].param = reach(launch, there[i].param, there[i].count);
        here[i].grad = reach(launch, there[i].grad, there[i].count);
        here[i].exp_avg = reach(launch, there[i].exp_avg, there[i].count);
        here[i].exp_avg_sq = reach(launch, there[i].exp_avg_sq, there[i].count);
        here[i].step = step_on_device ? reach(launch, there[i].step, 1) : NULL;
    }
    if (!here)
        abort();
    return here;
}

FAKECUDA_TWIN(adamw_fused_step, sizeof(void *), sizeof(uint64_t), sizeof(void *))
{
    uint64_t count = FAKECUDA_PARAM(uint64_t, 1);
    adamw_tensor *tensors = reach_tensors(launch, FAKECUDA_PARAM(uint64_t, 0), count, 1);
    const adamw_call *call = launch->range(FAKECUDA_PARAM(uint64_t, 2), sizeof *call);
    FOR_EACH_THREAD(launch->grid[0], launch->grid[1], launch->block[0])
        adamw_fused_step(tensors, count, call);
    free(tensors);
}

FAKECUDA_TWIN(adamw_fused, sizeof(void *), sizeof(uint64_t), sizeof(void *))
{
    uint64_t count = FAKECUDA_PARAM(uint64_t, 1);
    adamw_tensor *tensors = reach_tensors(launch, FAKECUDA_PARAM(uint64_t, 0), count, 1);
    const adamw_call *call = launch->range(FAKECUDA_PARAM(uint64_t, 2), sizeof *call);
    FOR_EACH_THREAD(launch->grid[0], launch->grid[1], launch->block[0])
        adamw_fused(tensors, count, call);
    free(tensors);
}

FAKECUDA_TWIN(adamw_plain, sizeof(void *), sizeof(void *), sizeof(double))
{
    adamw_tensor *tensor = reach_tensors(launch, FAKECUDA_PARAM(uint64_t, 0), 1, 0);
    const adamw_call *call = launch->range(FAKECUDA_PARAM(uint64_t, 1), sizeof *call);
    FOR_EACH_THREAD(launch->grid[0], launch->grid[1], launch->block[0])
        adamw_plain(tensor, call, FAKECUDA_PARAM(double, 2));
    free(tensor);
}
