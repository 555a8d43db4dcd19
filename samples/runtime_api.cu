/* runtime_api.cu - the same hook in a trainer that uses the CUDA runtime API: cudaMalloc, a stream, <<<>>>.
 *
 *     runtime_api PATH
 *
 * Trains one vector towards a target for 100 steps, saves it, goes on for 100, then restores the checkpoint and
 * repeats those 100: the same bits must come out. The library uses the driver API and the device's primary context,
 * which is the runtime's too: device pointers and streams pass between the two as they are. */
#include <ckpt/train.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static void cuda(cudaError_t result, const char *call)
{
    if (result == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(result));
    std::exit(1);
}
#define CUDA(call) cuda(call, #call)

static void check(ckpt_status status, const ckpt_error *err)
{
    if (status >= 0)
        return;
    std::fprintf(stderr, "%s: %s\n", err->object, err->message);
    std::exit(1);
}

/* One step of momentum descent towards element i = sin(i). */
__global__ void descend(float *weight, float *momentum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        momentum[i] = 0.9f * momentum[i] + (weight[i] - sinf((float)i));
        weight[i] -= 0.01f * momentum[i];
    }
}

int main(int argc, char **argv)
{
    const int n = 1 << 20, steps = 100;
    const int64_t shape[] = { n };
    if (argc != 2) {
        std::fprintf(stderr, "usage: runtime_api PATH\n");
        return 2;
    }

    float *weight, *momentum;
    cudaStream_t stream;
    CUDA(cudaMalloc(&weight, n * sizeof(float)));
    CUDA(cudaMalloc(&momentum, n * sizeof(float)));
    CUDA(cudaStreamCreate(&stream));
    CUDA(cudaMemsetAsync(weight, 0, n * sizeof(float), stream));
    CUDA(cudaMemsetAsync(momentum, 0, n * sizeof(float), stream));

    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    int64_t step = 0;
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    desc.name = "weight";
    desc.dtype = CKPT_F32;
    desc.ndim = 1;
    desc.shape = shape;
    desc.role = CKPT_ROLE_PARAM;
    desc.data = weight;                   /* where it lies, the driver says */
    check(ckpt_state_tensor(state, &desc, &err), &err);
    desc.name = NULL;
    desc.role = CKPT_ROLE_MOMENTUM;
    desc.param = "weight";
    desc.data = momentum;
    check(ckpt_state_tensor(state, &desc, &err), &err);
    check(ckpt_state_i64(state, "step", &step, &err), &err);
    check(ckpt_state_stream(state, ckpt_cuda(0), stream, &err), &err);

    for (; step < steps; step++)
        descend<<<(n + 255) / 256, 256, 0, stream>>>(weight, momentum, n);
    check(ckpt_save(state, argv[1], NULL, &err), &err);        /* waits for the kernels queued above */

    std::vector<float> first(n), second(n);
    for (; step < 2 * steps; step++)
        descend<<<(n + 255) / 256, 256, 0, stream>>>(weight, momentum, n);
    CUDA(cudaMemcpyAsync(first.data(), weight, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    check(ckpt_restore(state, argv[1], NULL, NULL, &err), &err);
    for (; step < 2 * steps; step++)                            /* step is 100 again; these wait for the restore */
        descend<<<(n + 255) / 256, 256, 0, stream>>>(weight, momentum, n);
    CUDA(cudaMemcpyAsync(second.data(), weight, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));

    bool same = std::memcmp(first.data(), second.data(), n * sizeof(float)) == 0;
    std::printf("%s\n", same ? "the resumed run gave the same bits" : "the resumed run DIFFERS");
    ckpt_state_free(state);
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(weight));
    CUDA(cudaFree(momentum));
    return same ? 0 : 1;
}
