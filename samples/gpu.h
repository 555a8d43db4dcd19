/* gpu.h - the part of the CUDA driver API that the samples need, loaded at run time.
 *
 * Nothing here links against CUDA: libcuda.so.1 is opened with dlopen, so that the samples build everywhere, and run
 * on a GPU, on the test stand-in (which says that its devices are simulated), or on the CPU alone. A failure ends the
 * program with one line that names the call. */
#ifndef SAMPLE_GPU_H
#define SAMPLE_GPU_H

#include <stddef.h>

typedef struct gpu gpu;

int gpu_count(void);                      /* 0 where there is no driver or no device */

/* The primary context of a device, and a stream of its own on which everything below runs in order. */
gpu *gpu_open(int ordinal);
void gpu_close(gpu *g);                   /* accepts NULL */
int gpu_ordinal(const gpu *g);
void *gpu_stream(const gpu *g);           /* a CUstream: for ckpt_state_stream */

void *gpu_alloc(gpu *g, size_t size);     /* device memory, zeroed */
void gpu_free(gpu *g, void *data);
void *gpu_host_alloc(gpu *g, size_t size);    /* page-locked host memory, as asynchronous copies need it */
void gpu_host_free(gpu *g, void *data);

/* Queued on the stream; `host` must be page-locked and stay as it is until gpu_wait. */
void gpu_upload(gpu *g, void *device, const void *host, size_t size);
void gpu_download(gpu *g, void *host, const void *device, size_t size);
void gpu_wait(gpu *g);

/* A kernel of a fatbin image (nvcc -fatbin), and its launch: `args` as cuLaunchKernel takes them. */
typedef struct gpu_kernel gpu_kernel;
gpu_kernel *gpu_kernel_load(gpu *g, const void *fatbin, const char *name);
void gpu_kernel_free(gpu_kernel *k);
void gpu_launch(gpu *g, const gpu_kernel *k, unsigned blocks_x, unsigned blocks_y, unsigned threads, void **args);

#endif
