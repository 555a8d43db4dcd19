/* tests/unit/device_checks.h - what every CUDA driver must do for this library, the stand-in and a real one: the unit
 * tests run this on the stand-in, tests/gpu on a machine that has GPUs. Failures end the process (REQUIRE). */
#ifndef DEVICE_CHECKS_H
#define DEVICE_CHECKS_H
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "require.h"
#include "device/cuda_driver.h"

enum { BYTES = 3 << 20 };

typedef enum caller { NO_CONTEXT, OWN_CONTEXT, PRIMARY_CONTEXT, CALLERS } caller; /* what is current before a call */

static const ckpt__device_ops *ops;
static const ckpt__cuda_driver *driver_table;
static CUcontext callers_context;

/* A function of the driver that the library itself has no use for. */
#define DRIVER(name) ((__typeof__(name) *)(uintptr_t)driver_symbol(#name))
static void *driver_symbol(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, name) : NULL;
    REQUIRE(found);
    return found;
}

static CUcontext current(void)
{
    CUcontext c = NULL;
    REQUIRE(driver_table->cuCtxGetCurrent(&c) == CUDA_SUCCESS);
    return c;
}

/* Each operation succeeds and leaves the caller's current context as it was. */
#define OP(call)                                                                                                       \
    do {                                                                                                               \
        REQUIRE_OK(call);                                                                                              \
        REQUIRE(current() == callers_context);                                                                         \
    } while (0)

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)((i * 2654435761u >> 7) + seed * 37);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        p[i] = pattern(i, seed);
}

static bool holds(const unsigned char *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != pattern(i, seed))
            return false;
    return true;
}

static void *pinned(size_t n)
{
    void *p;
    OP(ops->host_alloc(n, &p, &err));
    return p;
}

static void *on_device(int ordinal, size_t n)
{
    void *p;
    OP(ops->alloc(ordinal, n, &p, &err));
    REQUIRE(p);
    return p;
}

static void check_info(int ordinal)
{
    char name[64];
    uint64_t unused = 0, total = 0;
    bool simulated;
    OP(ckpt_device_info(ckpt_cuda(ordinal), name, sizeof name, &unused, &total, &simulated, &err));
    REQUIRE(name[0] && total > 0 && unused > 0 && unused <= total);
    OP(ckpt_device_info(ckpt_cuda(ordinal), name, 4, NULL, NULL, NULL, &err));
    REQUIRE(strlen(name) <= 3);
    REQUIRE(ckpt__cuda_active());
}

static void check_alloc(int ordinal)
{
    void *a = on_device(ordinal, 0), *b = on_device(ordinal, 0), *host_a = pinned(0), *host_b = pinned(0);
    REQUIRE(a != b && host_a != host_b && host_a && host_b);
    OP(ops->release(ordinal, a, &err));
    OP(ops->release(ordinal, b, &err));
    OP(ops->release(ordinal, NULL, &err));
    ops->host_free(host_a);
    ops->host_free(host_b);
    ops->host_free(NULL);
    REQUIRE(current() == callers_context);

    void *huge = &err;
    REQUIRE(ops->alloc(ordinal, (size_t)1 << 46, &huge, &err) == CKPT_E_DEVICE && !huge);
    REQUIRE(err.device_code == CUDA_ERROR_OUT_OF_MEMORY && strstr(err.message, "70368744177664 bytes wanted"));
    REQUIRE(strstr(err.message, "are free") && strncmp(err.object, "cuda:", 5) == 0);
    REQUIRE(current() == callers_context);
}

static void check_round_trip(int ordinal)
{
    ckpt__stream *stream;
    ckpt__event *event;
    unsigned char *src = pinned(BYTES), *dst = pinned(BYTES), *a = on_device(ordinal, BYTES),
                  *b = on_device(ordinal, BYTES);
    fill(src, BYTES, 1);
    memset(dst, 0, BYTES);
    OP(ops->stream_new(ordinal, &stream, &err));
    OP(ops->event_new(ordinal, &event, &err));
    OP(ops->to_device(stream, a, src, BYTES, &err));
    OP(ops->on_device(stream, b, a, BYTES, &err));
    OP(ops->zero(ordinal, a, BYTES / 2, stream, &err));
    OP(ops->to_host(stream, dst, b, BYTES, &err));
    OP(ops->event_record(event, stream, &err));
    OP(ops->event_wait(event, &err));
    REQUIRE(holds(dst, BYTES, 1));
    OP(ops->to_host(stream, dst, a, BYTES, &err));
    OP(ops->stream_sync(stream, &err));
    for (size_t i = 0; i < BYTES / 2; i++)
        REQUIRE(dst[i] == 0);
    REQUIRE(dst[BYTES / 2] == pattern(BYTES / 2, 1));
    /* Nothing to copy touches nothing. */
    OP(ops->to_device(stream, NULL, NULL, 0, &err));
    OP(ops->to_host(stream, NULL, NULL, 0, &err));
    OP(ops->on_device(stream, NULL, NULL, 0, &err));
    OP(ops->zero(ordinal, NULL, 0, stream, &err));
    /* Without a stream, zero is done when it returns. */
    OP(ops->zero(ordinal, b, BYTES, NULL, &err));
    OP(ops->to_host(stream, dst, b, BYTES, &err));
    OP(ops->synchronize(ordinal, &err));
    for (size_t i = 0; i < BYTES; i++)
        REQUIRE(dst[i] == 0);
    ops->event_free(event);
    ops->event_free(NULL);
    /* Freeing a stream waits for it. */
    OP(ops->to_device(stream, a, src, BYTES, &err));
    ops->stream_free(stream);
    ops->stream_free(NULL);
    OP(ops->release(ordinal, a, &err));
    OP(ops->release(ordinal, b, &err));
    ops->host_free(src);
    ops->host_free(dst);
    REQUIRE(current() == callers_context);
}

/* rows of `width` at `pitch` on the device, tight on the host */
static void two_dimensions(int ordinal, size_t width, size_t rows, size_t pitch)
{
    ckpt__stream *stream;
    size_t span = (rows - 1) * pitch + width;
    unsigned char *host = pinned(width * rows), *back = pinned(span), *data = on_device(ordinal, span);
    OP(ops->stream_new(ordinal, &stream, &err));
    fill(host, width * rows, 2);
    OP(ops->zero(ordinal, data, span, stream, &err));
    OP(ops->to_device_2d(stream, data, pitch, host, width, width, rows, &err));
    OP(ops->to_host(stream, back, data, span, &err));
    OP(ops->stream_sync(stream, &err));
    for (size_t i = 0; i < span; i++) {
        size_t row = rows == 1 ? 0 : i / pitch, column = i - row * pitch;
        REQUIRE(back[i] == (column < width ? pattern(row * width + column, 2) : 0));
    }
    memset(host, 0, width * rows);
    OP(ops->to_host_2d(stream, host, width, data, pitch, width, rows, &err));
    OP(ops->stream_sync(stream, &err));
    REQUIRE(holds(host, width * rows, 2));
    ops->stream_free(stream);
    OP(ops->release(ordinal, data, &err));
    ops->host_free(host);
    ops->host_free(back);
}

static void check_two_dimensions(int ordinal)
{
    ckpt__stream *stream;
    two_dimensions(ordinal, 40, 7, 64);
    two_dimensions(ordinal, 64, 7, 64);
    two_dimensions(ordinal, 100, 1, 4);
    two_dimensions(ordinal, 100, 3, (1 << 20) + 64); /* a pitch over the stand-in's limit */
    OP(ops->stream_new(ordinal, &stream, &err));
    OP(ops->to_device_2d(stream, NULL, 8, NULL, 8, 0, 5, &err));
    OP(ops->to_host_2d(stream, NULL, 8, NULL, 8, 8, 0, &err));
    REQUIRE(ops->to_host_2d(stream, NULL, 8, NULL, 7, 8, 2, &err) == CKPT_E_ARGUMENT);
    ops->stream_free(stream);
}

static void check_between(int to, int from)
{
    ckpt__stream *stream;
    unsigned char *host = pinned(BYTES), *a = on_device(from, BYTES), *b = on_device(to, BYTES);
    OP(ops->stream_new(from, &stream, &err));
    fill(host, BYTES, 3);
    OP(ops->to_device(stream, a, host, BYTES, &err));
    OP(ops->stream_sync(stream, &err));
    ops->stream_free(stream);
    OP(ops->between(to, b, from, a, BYTES, &err));
    OP(ops->between(to, NULL, from, NULL, 0, &err));
    memset(host, 0, BYTES);
    OP(ops->stream_new(to, &stream, &err));
    OP(ops->to_host(stream, host, b, BYTES, &err));
    OP(ops->stream_sync(stream, &err));
    REQUIRE(holds(host, BYTES, 3));
    ops->stream_free(stream);
    OP(ops->release(from, a, &err));
    OP(ops->release(to, b, &err));
    ops->host_free(host);
}

static void verdict(const void *p, size_t n, ckpt_memory_kind kind, ckpt_device device)
{
    ckpt_memory m;
    OP(ckpt_device_query(p, n, &m, &err));
    if (m.kind != kind || !ckpt_device_equal(m.device, device))
        fprintf(stderr, "%zu bytes at %p: kind %d, expected %d\n", n, p, (int)m.kind, (int)kind);
    REQUIRE(m.kind == kind);
    REQUIRE(ckpt_device_equal(m.device, device));
}

static const ckpt_device nowhere = {CKPT_DEVICE_NONE, -1};

static void check_query(int ordinal)
{
    enum { N = 4 << 20 };
    unsigned char *device = on_device(ordinal, N), *host = pinned(N), *pageable = malloc(N), on_stack[16];
    REQUIRE(pageable);
    verdict(device, N, CKPT_MEMORY_DEVICE, ckpt_cuda(ordinal));
    verdict(device + 1000, 77, CKPT_MEMORY_DEVICE, ckpt_cuda(ordinal));
    verdict(device + N - 1, 1, CKPT_MEMORY_DEVICE, ckpt_cuda(ordinal));
    verdict(device, 0, CKPT_MEMORY_DEVICE, ckpt_cuda(ordinal));
    verdict(host, N, CKPT_MEMORY_PINNED, ckpt_cpu());
    verdict(host + 5, N - 5, CKPT_MEMORY_PINNED, ckpt_cpu());
    verdict(pageable, N, CKPT_MEMORY_HOST, ckpt_cpu());
    verdict(on_stack, sizeof on_stack, CKPT_MEMORY_HOST, ckpt_cpu());
    verdict(pageable, 0, CKPT_MEMORY_HOST, ckpt_cpu());
    verdict(NULL, 0, CKPT_MEMORY_HOST, ckpt_cpu());
    /* From device memory to the stack: first and last byte differ. */
    if (on_stack > device)
        verdict(device, (size_t)((uintptr_t)on_stack - (uintptr_t)device) + 1, CKPT_MEMORY_SPLIT, nowhere);

    /* Page-locked by the program; in part it counts as pageable. */
    unsigned char *pages = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    REQUIRE_OK(ckpt__cuda_enter(ordinal, &err));
    REQUIRE(DRIVER(cuMemHostRegister_v2)(pages, N / 2, 0) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    verdict(pages, N / 2, CKPT_MEMORY_PINNED, ckpt_cpu());
    verdict(pages, N, CKPT_MEMORY_HOST, ckpt_cpu());
    REQUIRE_OK(ckpt__cuda_enter(ordinal, &err));
    REQUIRE(DRIVER(cuMemHostUnregister)(pages) == CUDA_SUCCESS);
    CUdeviceptr managed;
    REQUIRE(DRIVER(cuMemAllocManaged)(&managed, N, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    verdict(pages, N, CKPT_MEMORY_HOST, ckpt_cpu());
    verdict((void *)(uintptr_t)managed, N, CKPT_MEMORY_MANAGED, nowhere);
    REQUIRE_OK(ckpt__cuda_enter(ordinal, &err));
    REQUIRE(driver_table->cuMemFree_v2(managed) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));

    ckpt_memory m;
    REQUIRE(ckpt_device_query(NULL, 1, &m, &err) == CKPT_E_ARGUMENT);
    REQUIRE(ckpt_device_query((void *)UINTPTR_MAX, 2, &m, &err) == CKPT_E_ARGUMENT);
    munmap(pages, N);
    free(pageable);
    ops->host_free(host);
    OP(ops->release(ordinal, device, &err));
    verdict(device, 0, CKPT_MEMORY_HOST, ckpt_cpu());
}

/* The caller's kernel stands here as a copy on a stream of its own: ours must come after, and before what follows. */
static void check_order(int ordinal, unsigned flags)
{
    CUstream theirs = NULL;
    ckpt__stream *ours;
    unsigned char *a = pinned(BYTES), *b = pinned(BYTES), *seen = pinned(BYTES), *data = on_device(ordinal, BYTES);
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)data;
    fill(a, BYTES, 4);
    fill(b, BYTES, 5);
    OP(ops->stream_new(ordinal, &ours, &err));
    REQUIRE_OK(ckpt__cuda_enter(ordinal, &err));
    if (flags != UINT_MAX)
        REQUIRE(driver_table->cuStreamCreate(&theirs, flags) == CUDA_SUCCESS);
    REQUIRE(driver_table->cuMemcpyHtoDAsync_v2(at, a, BYTES, theirs) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    OP(ops->follow(ours, theirs, &err));
    OP(ops->to_host(ours, seen, data, BYTES, &err));
    OP(ops->precede(ours, theirs, &err));
    REQUIRE_OK(ckpt__cuda_enter(ordinal, &err));
    REQUIRE(driver_table->cuMemcpyHtoDAsync_v2(at, b, BYTES, theirs) == CUDA_SUCCESS);
    REQUIRE(driver_table->cuStreamSynchronize(theirs) == CUDA_SUCCESS);
    REQUIRE(holds(seen, BYTES, 4));
    if (theirs)
        REQUIRE(driver_table->cuStreamDestroy_v2(theirs) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    ops->stream_free(ours);
    OP(ops->release(ordinal, data, &err));
    ops->host_free(a);
    ops->host_free(b);
    ops->host_free(seen);
}

static void check_handles(int count)
{
    char name[8];
    int n;
    const char *why;
    OP(ckpt_device_count(CKPT_DEVICE_CUDA, &n, &why, &err));
    REQUIRE(n == count && !why);
    OP(ckpt_device_check(ckpt_cuda(count - 1), &err));
    REQUIRE(ckpt_device_check(ckpt_cuda(count), &err) == CKPT_E_DEVICE);
    REQUIRE(strstr(err.message, count == 1 ? "there is 1, cuda:0" : "there are "));
    void *p = &err;
    REQUIRE(ops->alloc(count, 1, &p, &err) == CKPT_E_DEVICE && !p && strstr(err.message, "no such device"));
    REQUIRE(ckpt_device_info(ckpt_cuda(count), name, sizeof name, NULL, NULL, NULL, &err) == CKPT_E_DEVICE);
    if (count < 2)
        return;
    ckpt__stream *stream;
    ckpt__event *event;
    void *data = on_device(0, 16);
    OP(ops->stream_new(1, &stream, &err));
    OP(ops->event_new(0, &event, &err));
    REQUIRE(ops->event_record(event, stream, &err) == CKPT_E_ARGUMENT);
    REQUIRE(strstr(err.message, "the event belongs to cuda:0, and is used with cuda:1"));
    REQUIRE(ops->zero(0, data, 16, stream, &err) == CKPT_E_ARGUMENT);
    REQUIRE_OK(ckpt__cuda_enter(0, &err));
    CUstream theirs;
    REQUIRE(driver_table->cuStreamCreate(&theirs, 0) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    REQUIRE(ops->follow(stream, theirs, &err) == CKPT_E_ARGUMENT);
    REQUIRE(strstr(err.message, "the given stream belongs to cuda:0"));
    REQUIRE(current() == callers_context);
    REQUIRE_OK(ckpt__cuda_enter(0, &err));
    REQUIRE(driver_table->cuStreamDestroy_v2(theirs) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    ops->event_free(event);
    ops->stream_free(stream);
    OP(ops->release(0, data, &err));
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device);
CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context);

/* Everything, with nothing, a context of the program's own, or the last device's primary context current. */
static void check_devices(caller before)
{
    int count = 0;
    CUcontext popped;
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE(ops);
    REQUIRE_OK(ops->count(&count, NULL, &err));
    REQUIRE(count > 0);
    driver_table = ckpt__cuda_loaded();
    REQUIRE(driver_table);
    if (before == OWN_CONTEXT)
        REQUIRE(DRIVER(cuCtxCreate_v2)(&callers_context, 0, 0) == CUDA_SUCCESS);
    if (before == PRIMARY_CONTEXT) {
        REQUIRE(driver_table->cuDevicePrimaryCtxRetain(&callers_context, count - 1) == CUDA_SUCCESS);
        REQUIRE(driver_table->cuCtxPushCurrent_v2(callers_context) == CUDA_SUCCESS);
    }
    for (int i = 0; i < count; i++) {
        check_info(i);
        check_alloc(i);
        check_round_trip(i);
        check_two_dimensions(i);
        check_query(i);
        check_order(i, UINT_MAX);
        check_order(i, CU_STREAM_DEFAULT);
        check_order(i, CU_STREAM_NON_BLOCKING);
        check_between(i, (i + 1) % count);
        check_between(i, i);
    }
    check_handles(count);
    if (before == OWN_CONTEXT)
        REQUIRE(DRIVER(cuCtxDestroy_v2)(callers_context) == CUDA_SUCCESS);
    if (before == PRIMARY_CONTEXT)
        REQUIRE(driver_table->cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS && popped == callers_context);
    callers_context = NULL;
    REQUIRE(current() == NULL);
}
#endif
