/* tests/fakecuda/fakecuda.h - the stand-in for the CUDA driver: a libcuda.so.1 for machines without a GPU.
 *
 * It plays any number of devices. Their memory is mapped without access for the program: a host dereference faults, a
 * system call on it fails with EFAULT, as with a real device. Copies, memsets and kernels are queued, and done at the
 * last moment that CUDA allows (a wait, a query, a synchronous copy), so that code which forgets to wait sees old
 * bytes. Fresh memory is filled with 0xff (NaN in every float type), so that code which forgets to write sees that too.
 *
 * It is put first in LD_LIBRARY_PATH. Environment, read by cuInit:
 *   FAKECUDA_DEVICES=N     devices, 0 to 64 (2); 0: cuInit answers CUDA_ERROR_NO_DEVICE
 *   FAKECUDA_MEMORY=SIZE   memory of each, with K, M or G (1G); only what is written takes host memory
 *   FAKECUDA_REVERSE=1     at each wait all other queued work is done first, and streams without an order between them
 *                          run newest first (otherwise only what must be done is done)
 *   FAKECUDA_FAIL_AT=N     the N-th call from cuInit on, itself counted as 1, fails
 *   FAKECUDA_FAIL_CODE=C   with this CUresult (999, CUDA_ERROR_UNKNOWN)
 *   FAKECUDA_FAIL_ONCE=1   and only that one; else all later calls that work on a device fail too, as after a fault of
 *                          a kernel. Calls that free or wait do their work first and then fail.
 *   FAKECUDA_STRICT=0      breaches below are answered with the error code that CUDA has for them
 *   FAKECUDA_LEAKS=0       objects left at exit are accepted
 *
 * A breach ends the process at once: one line on stderr that begins "fakecuda: ", and exit status FAKECUDA_EXIT.
 * Breaches are: an asynchronous copy of host memory that is not page-locked; freeing memory or destroying a stream with
 * work pending on it; no current context; a stream, module or function of another context than the current one; a copy
 * or kernel access outside of one live allocation, or on another device than the current context's; a handle that is
 * not live; popping an empty context stack; and at exit: allocations, streams, events, modules, contexts or pushes
 * left. (A retained primary context is not a leak: libraries hold it for the life of the process.) */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKECUDA_EXPORT __attribute__((visibility("default")))

enum { FAKECUDA_EXIT = 97 };

/* ---- kernels
 *
 * A kernel runs as its host twin: a function of the program that does what the whole grid does. The twin is found by
 * the kernel's name when the program calls cuModuleGetFunction, either among the program's exported symbols (link with
 * -rdynamic) or among those registered with fakecuda_register_kernel. The module's image is only looked at for being a
 * fatbin, a cubin or PTX. A whole example:
 *
 *     // scale.cu, for the GPU:  extern "C" __global__ void scale(float *x, int n, float by) { ... }
 *
 *     // scale_twin.c, for the stand-in; sizes of the parameters in order
 *     FAKECUDA_TWIN(scale, sizeof(void *), sizeof(int), sizeof(float))
 *     {
 *         int n = FAKECUDA_PARAM(int, 1);
 *         float by = FAKECUDA_PARAM(float, 2);
 *         float *x = launch->range(FAKECUDA_PARAM(uint64_t, 0), (size_t)n * sizeof *x);
 *         for (int i = 0; i < n; i++)
 *             x[i] *= by;
 *     }
 *
 * A twin runs when the stream gets to it, on the thread that waits. It must not call the driver. */
typedef struct fakecuda_launch {
    const char *name;
    int ordinal; /* the device */
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    /* Where the twin may touch the memory behind a device pointer (or a page-locked or managed one). range() wants
     * `size` bytes inside one live allocation; host() wants one. Anything else is a breach. */
    void *(*host)(uint64_t device_pointer);
    void *(*range)(uint64_t device_pointer, size_t size);
} fakecuda_launch;

typedef void (*fakecuda_twin)(const fakecuda_launch *launch, void **params);

enum { FAKECUDA_PARAMS_MAX = 64 };

#ifdef __cplusplus
#define FAKECUDA_C extern "C"
#else
#define FAKECUDA_C extern
#endif
#define FAKECUDA_TWIN(kernel, ...)                                                                                     \
    FAKECUDA_C FAKECUDA_EXPORT const size_t fakecuda_params_##kernel[];                                                \
    const size_t fakecuda_params_##kernel[] = {__VA_ARGS__, 0};                                                        \
    FAKECUDA_C FAKECUDA_EXPORT void fakecuda_twin_##kernel(const fakecuda_launch *launch, void **params);              \
    void fakecuda_twin_##kernel(const fakecuda_launch *launch, void **params)
#define FAKECUDA_PARAM(type, i) (*(const type *)params[i])

/* ---- control: exported by the stand-in, found with dlsym on the handle of libcuda.so.1 (FAKECUDA_SYMBOL). Being there
 * tells a program that its devices are simulated: look for fakecuda_marker. */
FAKECUDA_EXPORT extern const char fakecuda_marker[];

/* `type` is spelled by the declaration: FAKECUDA_SYMBOL(handle, fakecuda_calls)(). */
#define FAKECUDA_SYMBOL(handle, name) ((__typeof__(name) *)(uintptr_t)dlsym(handle, #name))

/* sizes: of the parameters in order, count of them. The name and the array are copied. Replaces an earlier one. */
FAKECUDA_EXPORT void fakecuda_register_kernel(const char *name, fakecuda_twin twin, const size_t *sizes, size_t count);

/* The n-th driver call from now on fails with `code` (n = 0: none), counting starts anew. Calls that only name an error
 * are not counted. */
FAKECUDA_EXPORT void fakecuda_fail_at(uint64_t n, int code, int once);
FAKECUDA_EXPORT uint64_t fakecuda_calls(void);          /* since the last fakecuda_fail_at */
FAKECUDA_EXPORT const char *fakecuda_failed_call(void); /* the call that the fault hit; NULL: not reached */

FAKECUDA_EXPORT void fakecuda_set_reverse(int on);
FAKECUDA_EXPORT void fakecuda_set_strict(int on);

typedef struct fakecuda_counts {
    size_t allocations; /* device and managed memory */
    size_t host;        /* page-locked memory, allocated or registered */
    size_t streams, events, modules;
    size_t contexts; /* made by cuCtxCreate */
    size_t pending;  /* operations queued and not done */
    long pushed;     /* pushes less pops, of all threads */
} fakecuda_counts;
FAKECUDA_EXPORT void fakecuda_live(fakecuda_counts *out);

/* Names everything that is left on stderr and answers how many things that is. The stand-in does this at exit too. */
FAKECUDA_EXPORT size_t fakecuda_check_leaks(void);

/* What a device pointer holds now, for looking at it in a test: work that is queued is not done. NULL: not live. */
FAKECUDA_EXPORT void *fakecuda_peek(uint64_t device_pointer);

/* Memory mapped piece by piece into one reservation of addresses, as cuMemAddressReserve and cuMemMap make it (growing
 * segments of caching allocators). A piece whose `mapped` is 0 is reserved only. 0: no memory. */
FAKECUDA_EXPORT uint64_t fakecuda_map_segments(int ordinal, const size_t *sizes, const int *mapped, size_t count);
FAKECUDA_EXPORT void fakecuda_unmap_segments(uint64_t base);

/* Marks the stream (a CUstream) as being captured into a graph, or no longer. */
FAKECUDA_EXPORT void fakecuda_set_capturing(void *stream, int on);

#ifdef __cplusplus
}
#endif
#endif
