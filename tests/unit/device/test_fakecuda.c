/* tests/unit/device/test_fakecuda.c - the stand-in itself: it exports what the library asks for, faults on host access, runs
 * work at the last moment and in either order, runs kernels by name, and ends a program that breaks a rule. */
#include "../runner.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <cuda.h>
#include "../child.h"
#include "device/cuda_symbols.h"
#include "../../fakecuda/fakecuda.h"

static void *lib(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle || !dlsym(handle, "fakecuda_marker")) {
        fprintf(stderr, "the stand-in is not first in LD_LIBRARY_PATH\n");
        _exit(1);
    }
    return handle;
}
#define CU(name) FAKECUDA_SYMBOL(lib(), name)
#define OK(call) REQUIRE((call) == CUDA_SUCCESS)

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device);

/* cuda:0's primary context, current. */
static CUcontext begin(void)
{
    CUcontext context;
    OK(CU(cuInit)(0));
    OK(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    OK(CU(cuCtxSetCurrent)(context));
    return context;
}

static CUdeviceptr device_bytes(size_t n)
{
    CUdeviceptr p;
    OK(CU(cuMemAlloc_v2)(&p, n));
    return p;
}

static unsigned char *pinned_bytes(size_t n)
{
    void *p;
    OK(CU(cuMemHostAlloc)(&p, n, 0));
    memset(p, 7, n);
    return p;
}

static CUstream new_stream(unsigned flags)
{
    CUstream s;
    OK(CU(cuStreamCreate)(&s, flags));
    return s;
}

static const unsigned char image[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};

/* ---- what it exports */

START_TEST(symbols_are_exported)
{
    static const char *const names[] = {
#define NAME(name) #name,
        CKPT__CUDA_SYMBOLS(NAME)
#undef NAME
    };
    void *handle = lib();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_msg(dlsym(handle, names[i]) != NULL, "the stand-in has no %s", names[i]);
        /* A function that has a second version is never asked for by its first name. */
        char newer[80];
        snprintf(newer, sizeof newer, "%s_v2", names[i]);
        ck_assert_msg(dlsym(handle, newer) == NULL, "%s is older than %s", names[i], newer);
    }
}
END_TEST

static void identity(const void *arg)
{
    (void)arg;
    char name[64];
    size_t bytes, unused;
    int n;
    const char *text;
    begin();
    OK(CU(cuDeviceGetCount)(&n));
    REQUIRE(n == 3);
    OK(CU(cuDeviceGetName)(name, sizeof name, 2));
    REQUIRE(strcmp(name, "simulated device 2") == 0);
    OK(CU(cuDeviceTotalMem_v2)(&bytes, 0));
    REQUIRE(bytes == 8 << 20);
    OK(CU(cuMemGetInfo_v2)(&unused, &bytes));
    REQUIRE(unused == bytes);
    CUdeviceptr p = device_bytes(6 << 20), q;
    REQUIRE(CU(cuMemAlloc_v2)(&q, 6 << 20) == CUDA_ERROR_OUT_OF_MEMORY);
    OK(CU(cuMemGetInfo_v2)(&unused, &bytes));
    REQUIRE(unused == 2 << 20);
    OK(CU(cuMemFree_v2)(p));
    OK(CU(cuMemFree_v2)(0));
    REQUIRE(CU(cuDeviceGet)(&n, 3) == CUDA_ERROR_INVALID_DEVICE);
    OK(CU(cuGetErrorName)(CUDA_ERROR_OUT_OF_MEMORY, &text));
    REQUIRE(strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY") == 0);
    REQUIRE(CU(cuGetErrorName)((CUresult)12345, &text) == CUDA_ERROR_INVALID_VALUE && !text);
}

START_TEST(devices_and_memory)
{
    static const char *const env[] = {"FAKECUDA_DEVICES=3", "FAKECUDA_MEMORY=8M", NULL};
    expect_success(identity, NULL, env);
}
END_TEST

START_TEST(bad_environment)
{
    static const char *const env[][2] = {{"FAKECUDA_DEVICES=65", NULL},
                                         {"FAKECUDA_DEVICES=two", NULL},
                                         {"FAKECUDA_MEMORY=-1", NULL},
                                         {"FAKECUDA_MEMORY=1X", NULL}};
    for (size_t i = 0; i < sizeof env / sizeof *env; i++)
        expect_exit(FAKECUDA_EXIT, "expected a number", identity, NULL, env[i]);
}
END_TEST

/* ---- access from the host */

static void dereference(const void *arg)
{
    (void)arg;
    begin();
    volatile unsigned char *p = (volatile unsigned char *)(uintptr_t)device_bytes(4096);
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    _exit(p[5]);
}

START_TEST(host_access_faults)
{
    child c = run_child(dereference, NULL, NULL);
    ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGSEGV, "status %#x: %s", (unsigned)c.status, c.text);
}
END_TEST

static void system_call(const void *arg)
{
    (void)arg;
    begin();
    CUdeviceptr p = device_bytes(4096);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    REQUIRE(write(ends[1], (const void *)(uintptr_t)p, 16) == -1 && errno == EFAULT);
    REQUIRE(write(ends[1], "x", 1) == 1);
    REQUIRE(read(ends[0], (void *)(uintptr_t)p, 1) == -1 && errno == EFAULT);
    OK(CU(cuMemFree_v2)(p));
}

START_TEST(system_calls_get_efault)
{
    expect_success(system_call, NULL, NULL);
}
END_TEST

/* ---- the last moment */

static void lazy(const void *arg)
{
    (void)arg;
    begin();
    CUdeviceptr p = device_bytes(64);
    unsigned char *host = pinned_bytes(64), *back = pinned_bytes(64);
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    const unsigned char *inside = CU(fakecuda_peek)(p);
    REQUIRE(inside[0] == 0xff); /* fresh memory is not a number */
    OK(CU(cuMemcpyHtoDAsync_v2)(p, host, 64, s));
    REQUIRE(inside[0] == 0xff);
    host[0] = 9; /* too early: the copy takes this */
    OK(CU(cuMemcpyDtoHAsync_v2)(back, p, 64, s));
    REQUIRE(back[1] == 7 && inside[0] == 0xff);
    OK(CU(cuStreamSynchronize)(s));
    REQUIRE(inside[0] == 9 && inside[1] == 7 && back[0] == 9);
    /* Copies from device to device, and memsets, do not wait even where they are called synchronous. */
    OK(CU(cuMemsetD8_v2)(p, 1, 32));
    OK(CU(cuMemcpyDtoD_v2)(p + 32, p, 32));
    REQUIRE(inside[0] == 9);
    OK(CU(cuStreamQuery)(NULL));
    REQUIRE(inside[0] == 1 && inside[63] == 1);
    unsigned char plain[64];
    OK(CU(cuMemcpyDtoH_v2)(plain, p, 64)); /* pageable and synchronous: done */
    REQUIRE(plain[63] == 1);
    plain[0] = 5;
    OK(CU(cuMemcpyHtoD_v2)(p, plain, 64));
    REQUIRE(inside[0] == 5);
    OK(CU(cuMemFree_v2)(p));
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuMemFreeHost)(host));
    OK(CU(cuMemFreeHost)(back));
}

START_TEST(work_waits_for_the_last_moment)
{
    expect_success(lazy, NULL, NULL);
}
END_TEST

/* Two streams write one byte; who is last? arg: the value expected after both. */
static void race(const void *arg)
{
    begin();
    CUdeviceptr p = device_bytes(16);
    CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
    OK(CU(cuMemsetD8Async)(p, 1, 16, a));
    OK(CU(cuMemsetD8Async)(p, 2, 16, b));
    OK(CU(cuCtxSynchronize)());
    REQUIRE(*(unsigned char *)CU(fakecuda_peek)(p) == *(const unsigned char *)arg);
    /* Ordered by an event, both modes agree. */
    CUevent e;
    OK(CU(cuEventCreate)(&e, 0));
    OK(CU(cuMemsetD8Async)(p, 3, 16, b));
    OK(CU(cuEventRecord)(e, b));
    OK(CU(cuStreamWaitEvent)(a, e, 0));
    OK(CU(cuEventDestroy_v2)(e));
    OK(CU(cuMemsetD8Async)(p, 4, 16, a));
    OK(CU(cuStreamSynchronize)(a));
    REQUIRE(*(unsigned char *)CU(fakecuda_peek)(p) == 4);
    OK(CU(cuCtxSynchronize)());
    REQUIRE(*(unsigned char *)CU(fakecuda_peek)(p) == 4);
    /* So do the legacy stream and one that blocks with it. */
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    OK(CU(cuMemsetD8Async)(p, 5, 16, blocking));
    OK(CU(cuMemsetD8Async)(p, 6, 16, NULL));
    OK(CU(cuMemsetD8Async)(p, 7, 8, blocking));
    OK(CU(cuCtxSynchronize)());
    const unsigned char *inside = CU(fakecuda_peek)(p);
    REQUIRE(inside[0] == 7 && inside[8] == 6);
    OK(CU(cuStreamDestroy_v2)(a));
    OK(CU(cuStreamDestroy_v2)(b));
    OK(CU(cuStreamDestroy_v2)(blocking));
    OK(CU(cuMemFree_v2)(p));
}

START_TEST(order_of_streams)
{
    static const char *const reverse[] = {"FAKECUDA_REVERSE=1", NULL};
    unsigned char forward_last = 2, reverse_last = 1;
    expect_success(race, &forward_last, NULL);
    expect_success(race, &reverse_last, reverse);
}
END_TEST

/* ---- kernels */

FAKECUDA_TWIN(test_scale, sizeof(void *), sizeof(int), sizeof(float))
{
    int n = FAKECUDA_PARAM(int, 1);
    float by = FAKECUDA_PARAM(float, 2), *x = launch->range(FAKECUDA_PARAM(uint64_t, 0), (size_t)n * sizeof(float));
    if (launch->grid[0] * launch->block[0] < (unsigned)n)
        n = (int)(launch->grid[0] * launch->block[0]);
    for (int i = 0; i < n; i++)
        x[i] *= by;
}

static void add_one(const fakecuda_launch *launch, void **params)
{
    ++*(unsigned char *)launch->host(FAKECUDA_PARAM(uint64_t, 0));
}

static void kernels(const void *arg)
{
    (void)arg;
    begin();
    enum { N = 100 };
    CUmodule m;
    CUfunction scale, one, none;
    float host[N], by = 2.0f;
    int n = N;
    const size_t sizes[] = {sizeof(void *)};
    REQUIRE(CU(cuModuleLoadData)(&m, "this is no image") == CUDA_ERROR_INVALID_IMAGE);
    OK(CU(cuModuleLoadFatBinary)(&m, image));
    OK(CU(cuModuleGetFunction)(&scale, m, "test_scale"));
    REQUIRE(CU(cuModuleGetFunction)(&none, m, "no_such_kernel") == CUDA_ERROR_NOT_FOUND);
    CU(fakecuda_register_kernel)("add_one", add_one, sizes, 1);
    OK(CU(cuModuleGetFunction)(&one, m, "add_one"));
    CUdeviceptr p = device_bytes(sizeof host);
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < N; i++)
        host[i] = (float)i;
    OK(CU(cuMemcpyHtoD_v2)(p, host, sizeof host));
    void *params[] = {&p, &n, &by};
    OK(CU(cuLaunchKernel)(scale, 1, 1, 1, 128, 1, 1, 0, s, params, NULL));
    by = 100.0f; /* parameters are taken at the launch */
    const float *inside = CU(fakecuda_peek)(p);
    REQUIRE(inside[3] == 3.0f);
    OK(CU(cuStreamSynchronize)(s));
    REQUIRE(inside[3] == 6.0f && inside[N - 1] == 2.0f * (N - 1));
    REQUIRE(CU(cuLaunchKernel)(scale, 0, 1, 1, 128, 1, 1, 0, s, params, NULL) == CUDA_ERROR_INVALID_VALUE);
    REQUIRE(CU(cuLaunchKernel)(scale, 1, 1, 1, 2048, 1, 1, 0, s, params, NULL) == CUDA_ERROR_INVALID_VALUE);
    OK(CU(cuMemsetD8Async)(p, 0, 1, s));
    OK(CU(cuLaunchKernel)(one, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    OK(CU(cuModuleUnload)(m));
    OK(CU(cuStreamSynchronize)(s));
    REQUIRE(*(const unsigned char *)inside == 1);
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuMemFree_v2)(p));
}

START_TEST(kernels_run_as_twins)
{
    expect_success(kernels, NULL, NULL);
}
END_TEST

/* ---- breaches */

typedef struct breach {
    const char *name, *says;
    void (*function)(void);
} breach;

static void async_pageable(void)
{
    static unsigned char pageable[64];
    OK(CU(cuMemcpyHtoDAsync_v2)(device_bytes(64), pageable, 64, new_stream(0)));
}
static void async_half_pinned(void)
{
    OK(CU(cuMemcpyDtoHAsync_v2)(pinned_bytes(4096) + 4000, device_bytes(128), 128, new_stream(0)));
}
static void async_freed_pinned(void)
{
    unsigned char *p = pinned_bytes(64);
    OK(CU(cuMemFreeHost)(p));
    OK(CU(cuMemcpyHtoDAsync_v2)(device_bytes(64), p, 64, new_stream(0)));
}
static void device_as_host(void)
{
    CUdeviceptr p = device_bytes(64);
    OK(CU(cuMemcpyHtoDAsync_v2)(p, (const void *)(uintptr_t)p, 64, new_stream(0)));
}
static void free_pending(void)
{
    CUdeviceptr p = device_bytes(64);
    OK(CU(cuMemsetD8Async)(p + 63, 0, 1, new_stream(CU_STREAM_NON_BLOCKING)));
    OK(CU(cuMemFree_v2)(p));
}
static void free_host_pending(void)
{
    unsigned char *p = pinned_bytes(64);
    OK(CU(cuMemcpyHtoDAsync_v2)(device_bytes(64), p, 64, NULL));
    OK(CU(cuMemFreeHost)(p));
}
static void free_under_kernel(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr p = device_bytes(64);
    int n = 1;
    float by = 1;
    void *params[] = {&p, &n, &by};
    OK(CU(cuModuleLoadData)(&m, image));
    OK(CU(cuModuleGetFunction)(&f, m, "test_scale"));
    OK(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(CU(cuMemFree_v2)(p));
}
static void destroy_pending(void)
{
    CUstream s = new_stream(0);
    OK(CU(cuMemsetD8Async)(device_bytes(64), 0, 64, s));
    OK(CU(cuStreamDestroy_v2)(s));
}
static void free_twice(void)
{
    CUdeviceptr p = device_bytes(64);
    OK(CU(cuMemFree_v2)(p));
    OK(CU(cuMemFree_v2)(p));
}
static void free_inside(void)
{
    OK(CU(cuMemFree_v2)(device_bytes(64) + 8));
}
static void out_of_bounds(void)
{
    OK(CU(cuMemsetD8Async)(device_bytes(64), 0, 65, new_stream(0)));
}
static void into_neighbour(void)
{
    CUdeviceptr p = device_bytes(512);
    device_bytes(512);
    OK(CU(cuMemsetD8Async)(p, 0, 513, new_stream(0)));
}
static void use_after_free(void)
{
    CUdeviceptr p = device_bytes(64);
    OK(CU(cuMemFree_v2)(p));
    OK(CU(cuMemsetD8_v2)(p, 0, 1));
}
static void host_as_device(void)
{
    static unsigned char pageable[64];
    OK(CU(cuMemsetD8_v2)((CUdeviceptr)(uintptr_t)pageable, 0, 64));
}
static void no_context(void)
{
    CUdeviceptr p;
    OK(CU(cuCtxSetCurrent)(NULL));
    OK(CU(cuMemAlloc_v2)(&p, 64));
}
static CUcontext push_other(void)
{
    CUcontext other;
    OK(CU(cuDevicePrimaryCtxRetain)(&other, 1));
    OK(CU(cuCtxPushCurrent_v2)(other));
    return other;
}
static void stream_of_other_context(void)
{
    CUstream s = new_stream(0);
    push_other();
    OK(CU(cuMemsetD8Async)(device_bytes(64), 0, 64, s));
}
static void memory_of_other_device(void)
{
    CUdeviceptr p = device_bytes(64);
    push_other();
    OK(CU(cuMemsetD8Async)(p, 0, 64, new_stream(0)));
}
static void module_of_other_context(void)
{
    CUmodule m;
    CUfunction f;
    OK(CU(cuModuleLoadData)(&m, image));
    push_other();
    OK(CU(cuModuleGetFunction)(&f, m, "test_scale"));
}
static void event_of_other_context(void)
{
    CUevent e;
    OK(CU(cuEventCreate)(&e, 0));
    push_other();
    OK(CU(cuEventRecord)(e, NULL));
}
static void stale_stream(void)
{
    CUstream s = new_stream(0);
    OK(CU(cuStreamDestroy_v2)(s));
    OK(CU(cuStreamSynchronize)(s));
}
static void stale_event(void)
{
    CUevent e;
    OK(CU(cuEventCreate)(&e, 0));
    OK(CU(cuEventDestroy_v2)(e));
    OK(CU(cuEventQuery)(e));
}
static void pop_empty(void)
{
    CUcontext c;
    OK(CU(cuCtxPopCurrent_v2)(&c));
    OK(CU(cuCtxPopCurrent_v2)(&c));
}
static void kernel_out_of_bounds(void)
{
    CUmodule m;
    CUfunction f;
    CUdeviceptr p = device_bytes(64);
    int n = 17;
    float by = 1;
    void *params[] = {&p, &n, &by};
    OK(CU(cuModuleLoadData)(&m, image));
    OK(CU(cuModuleGetFunction)(&f, m, "test_scale"));
    OK(CU(cuLaunchKernel)(f, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    OK(CU(cuCtxSynchronize)());
}
static void calls_back(const fakecuda_launch *launch, void **params)
{
    (void)launch;
    (void)params;
    CU(cuCtxSynchronize)();
}
static void kernel_calls_driver(void)
{
    CUmodule m;
    CUfunction f;
    CU(fakecuda_register_kernel)("calls_back", calls_back, NULL, 0);
    OK(CU(cuModuleLoadData)(&m, image));
    OK(CU(cuModuleGetFunction)(&f, m, "calls_back"));
    OK(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(CU(cuCtxSynchronize)());
}
static void leaves_memory(void)
{
    device_bytes(64);
    pinned_bytes(64);
}
static void leaves_stream(void)
{
    new_stream(0);
}
static void leaves_push(void)
{
    push_other();
}

static const breach breaches[] = {
    {"async_pageable", "asynchronous copy of unregistered host memory (64 bytes", async_pageable},
    {"async_half_pinned", "reach past their page-locked memory", async_half_pinned},
    {"async_freed_pinned", "unregistered host memory", async_freed_pinned},
    {"device_as_host", "device memory where host memory is expected", device_as_host},
    {"free_pending", "with work pending", free_pending},
    {"free_host_pending", "cuMemFreeHost of", free_host_pending},
    {"free_under_kernel", "with work pending", free_under_kernel},
    {"destroy_pending", "cuStreamDestroy_v2 of a stream with work pending", destroy_pending},
    {"free_twice", "no live allocation", free_twice},
    {"free_inside", "no live allocation", free_inside},
    {"out_of_bounds", "65 bytes at", out_of_bounds},
    {"into_neighbour", "reach past their allocation of 512 bytes", into_neighbour},
    {"use_after_free", "in no live allocation", use_after_free},
    {"host_as_device", "in no live allocation", host_as_device},
    {"no_context", "cuMemAlloc_v2 with no current context", no_context},
    {"stream_of_other_context", "belongs to another context (of cuda:0)", stream_of_other_context},
    {"memory_of_other_device", "memory of cuda:0, in a context of cuda:1", memory_of_other_device},
    {"module_of_other_context", "module belongs to another context", module_of_other_context},
    {"event_of_other_context", "different contexts", event_of_other_context},
    {"stale_stream", "no live stream", stale_stream},
    {"stale_event", "no live event", stale_event},
    {"pop_empty", "more pops than pushes", pop_empty},
    {"kernel_out_of_bounds", "the kernel test_scale on cuda:0 reaches for 68 bytes", kernel_out_of_bounds},
    {"kernel_calls_driver", "twin called the driver", kernel_calls_driver},
    {"leaves_memory", "left behind: 1 allocation(s)", leaves_memory},
    {"leaves_stream", "left behind: 1 stream(s)", leaves_stream},
    {"leaves_push", "left behind: 1 pushed context(s)", leaves_push},
};

static void commit(const void *arg)
{
    begin();
    ((const breach *)arg)->function();
}

START_TEST(breach_ends_the_process)
{
    expect_exit(FAKECUDA_EXIT, breaches[_i].says, commit, &breaches[_i], NULL);
}
END_TEST

/* In lax mode the same program gets what CUDA would answer, and a pageable copy works. */
static void lax(const void *arg)
{
    (void)arg;
    CUcontext c;
    begin();
    CUdeviceptr p = device_bytes(64);
    unsigned char pageable[64];
    memset(pageable, 3, sizeof pageable);
    CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
    OK(CU(cuMemcpyHtoDAsync_v2)(p, pageable, 64, s));
    memset(pageable, 4, sizeof pageable); /* a pageable source is taken at the call */
    OK(CU(cuMemcpyDtoHAsync_v2)(pageable, p, 64, s));
    REQUIRE(pageable[63] == 3);
    REQUIRE(CU(cuMemsetD8Async)(p, 0, 65, s) == CUDA_ERROR_INVALID_VALUE);
    OK(CU(cuMemsetD8Async)(p, 0, 64, s));
    OK(CU(cuMemFree_v2)(p));
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_ERROR_INVALID_VALUE);
    OK(CU(cuStreamDestroy_v2)(s));
    REQUIRE(CU(cuStreamSynchronize)(s) == CUDA_ERROR_INVALID_HANDLE);
    OK(CU(cuCtxPopCurrent_v2)(&c));
    REQUIRE(CU(cuCtxPopCurrent_v2)(&c) == CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(CU(cuMemAlloc_v2)(&p, 64) == CUDA_ERROR_INVALID_CONTEXT);
}

START_TEST(lax_mode)
{
    static const char *const env[] = {"FAKECUDA_STRICT=0", NULL};
    expect_success(lax, NULL, env);
}
END_TEST

START_TEST(leaks_allowed)
{
    static const char *const env[] = {"FAKECUDA_LEAKS=0", NULL};
    expect_success(commit, &breaches[sizeof breaches / sizeof *breaches - 2], env);
}
END_TEST

/* ---- faults */

static void faults(const void *arg)
{
    (void)arg;
    begin();
    CUdeviceptr p = device_bytes(64), q;
    CUstream s = new_stream(0);
    CU(fakecuda_fail_at)(2, CUDA_ERROR_LAUNCH_FAILED, 1);
    OK(CU(cuMemsetD8Async)(p, 0, 64, s));
    REQUIRE(!CU(fakecuda_failed_call)());
    REQUIRE(CU(cuStreamSynchronize)(s) == CUDA_ERROR_LAUNCH_FAILED); /* waits, then fails */
    REQUIRE(strcmp(CU(fakecuda_failed_call)(), "cuStreamSynchronize") == 0);
    REQUIRE(CU(fakecuda_calls)() == 2);
    OK(CU(cuMemAlloc_v2)(&q, 64)); /* once only */
    CU(fakecuda_fail_at)(1, CUDA_ERROR_LAUNCH_FAILED, 0);
    REQUIRE(CU(cuMemFree_v2)(q) == CUDA_ERROR_LAUNCH_FAILED);       /* frees, then fails */
    REQUIRE(CU(cuMemAlloc_v2)(&q, 64) == CUDA_ERROR_LAUNCH_FAILED); /* from now on */
    REQUIRE(CU(cuMemFree_v2)(p) == CUDA_ERROR_LAUNCH_FAILED);
    REQUIRE(CU(cuStreamDestroy_v2)(s) == CUDA_ERROR_LAUNCH_FAILED);
    CUcontext c;
    OK(CU(cuCtxGetCurrent)(&c)); /* bookkeeping works on */
    CU(fakecuda_fail_at)(0, 0, 0);
    p = device_bytes(64);
    OK(CU(cuMemFree_v2)(p));
    fakecuda_counts live;
    CU(fakecuda_live)(&live);
    REQUIRE(live.allocations == 0 && live.streams == 0 && live.pending == 0 && live.pushed == 0);
}

START_TEST(faults_by_number)
{
    expect_success(faults, NULL, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fakecuda");
    TCase *c = tcase_create("stand-in");
    tcase_set_timeout(c, 60);
    tcase_add_test(c, symbols_are_exported);
    tcase_add_test(c, devices_and_memory);
    tcase_add_test(c, bad_environment);
    tcase_add_test(c, host_access_faults);
    tcase_add_test(c, system_calls_get_efault);
    tcase_add_test(c, work_waits_for_the_last_moment);
    tcase_add_test(c, order_of_streams);
    tcase_add_test(c, kernels_run_as_twins);
    tcase_add_loop_test(c, breach_ends_the_process, 0, (int)(sizeof breaches / sizeof *breaches));
    tcase_add_test(c, lax_mode);
    tcase_add_test(c, leaks_allowed);
    tcase_add_test(c, faults_by_number);
    suite_add_tcase(s, c);
    return run_suite(s);
}
