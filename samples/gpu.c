/* gpu.c - see gpu.h. The few declarations of the driver API that are used stand here, so that no CUDA header is
 * needed; names carry the version suffix that cuda.h's macros would add. */
#include "gpu.h"
#include "util.h"
#include <dlfcn.h>
#include <string.h>

typedef int CUresult, CUdevice;
typedef void *CUcontext, *CUstream, *CUmodule, *CUfunction;
typedef unsigned long long CUdeviceptr;
enum { CU_STREAM_NON_BLOCKING = 1, CU_MEMHOSTALLOC_PORTABLE = 1 };

#define DRIVER(X)                                                                                                      \
    X(cuInit, (unsigned flags))                                                                                        \
    X(cuGetErrorName, (CUresult result, const char **name))                                                            \
    X(cuDeviceGetCount, (int *count))                                                                                  \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                                                   \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                 \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                                        \
    X(cuCtxPopCurrent_v2, (CUcontext * context))                                                                       \
    X(cuStreamCreate, (CUstream * stream, unsigned flags))                                                             \
    X(cuStreamDestroy_v2, (CUstream stream))                                                                           \
    X(cuStreamSynchronize, (CUstream stream))                                                                          \
    X(cuMemAlloc_v2, (CUdeviceptr * data, size_t size))                                                                \
    X(cuMemFree_v2, (CUdeviceptr data))                                                                                \
    X(cuMemsetD8Async, (CUdeviceptr data, unsigned char value, size_t size, CUstream stream))                          \
    X(cuMemHostAlloc, (void **data, size_t size, unsigned flags))                                                      \
    X(cuMemFreeHost, (void *data))                                                                                     \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream))                          \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream))                                \
    X(cuModuleLoadData, (CUmodule * module, const void *image))                                                        \
    X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))                                 \
    X(cuModuleUnload, (CUmodule module))                                                                               \
    X(cuLaunchKernel, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,           \
                       unsigned bz, unsigned shared, CUstream stream, void **args, void **extra))

#define DECLARE(name, args) CUresult(*name) args;
static struct driver {
    DRIVER(DECLARE)
} cu;
static int devices = -1;                  /* -1: the driver was not asked yet */

struct gpu {
    int ordinal;
    CUdevice device;
    CUcontext context;
    CUstream stream;
};

struct gpu_kernel {
    gpu *owner;
    CUmodule module;
    CUfunction function;
};

int gpu_count(void)
{
    if (devices >= 0)
        return devices;
    devices = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return 0;
#define LOAD(name, args)                                                                                               \
    {                                                                                                                  \
        void *symbol = dlsym(library, #name);                                                                          \
        if (!symbol)                                                                                                   \
            return 0;                                                                                                  \
        memcpy(&cu.name, &symbol, sizeof symbol); /* POSIX's way round ISO C: an object pointer to a function's */     \
    }
    DRIVER(LOAD)
    int count = 0;
    if (cu.cuInit(0) == 0 && cu.cuDeviceGetCount(&count) == 0)
        devices = count;
    return devices;
}

static void expect(CUresult result, const char *call, const gpu *g)
{
    const char *name = "unknown error";
    if (result == 0)
        return;
    cu.cuGetErrorName(result, &name);
    die("cuda:%d: %.*s: %s", g->ordinal, (int)strcspn(call, "("), call, name);
}
#define EXPECT(g, call) expect(cu.call, #call, g)

static void enter(const gpu *g)
{
    EXPECT(g, cuCtxPushCurrent_v2(g->context));
}

static void leave(const gpu *g)
{
    CUcontext ignored;
    EXPECT(g, cuCtxPopCurrent_v2(&ignored));
}

gpu *gpu_open(int ordinal)
{
    int count = gpu_count();
    if (ordinal >= count)
        die("cuda:%d: there are %d CUDA devices", ordinal, count);
    gpu *g = allocate(1, sizeof *g);
    g->ordinal = ordinal;
    EXPECT(g, cuDeviceGet(&g->device, ordinal));
    EXPECT(g, cuDevicePrimaryCtxRetain(&g->context, g->device));
    enter(g);
    EXPECT(g, cuStreamCreate(&g->stream, CU_STREAM_NON_BLOCKING));
    leave(g);
    return g;
}

void gpu_close(gpu *g)
{
    if (!g)
        return;
    enter(g);
    EXPECT(g, cuStreamSynchronize(g->stream));
    EXPECT(g, cuStreamDestroy_v2(g->stream));
    leave(g);
    EXPECT(g, cuDevicePrimaryCtxRelease_v2(g->device));
    free(g);
}

int gpu_ordinal(const gpu *g)
{
    return g->ordinal;
}

void *gpu_stream(const gpu *g)
{
    return g->stream;
}

static CUdeviceptr address(const void *data)
{
    return (CUdeviceptr)(uintptr_t)data;
}

void *gpu_alloc(gpu *g, size_t size)
{
    CUdeviceptr data = 0;
    enter(g);
    EXPECT(g, cuMemAlloc_v2(&data, size));
    EXPECT(g, cuMemsetD8Async(data, 0, size, g->stream));
    EXPECT(g, cuStreamSynchronize(g->stream));
    leave(g);
    return (void *)(uintptr_t)data;
}

void gpu_free(gpu *g, void *data)
{
    if (!data)
        return;
    enter(g);
    EXPECT(g, cuStreamSynchronize(g->stream));
    EXPECT(g, cuMemFree_v2(address(data)));
    leave(g);
}

void *gpu_host_alloc(gpu *g, size_t size)
{
    void *data = NULL;
    enter(g);
    EXPECT(g, cuMemHostAlloc(&data, size, CU_MEMHOSTALLOC_PORTABLE));
    leave(g);
    memset(data, 0, size);
    return data;
}

void gpu_host_free(gpu *g, void *data)
{
    if (!data)
        return;
    enter(g);
    EXPECT(g, cuStreamSynchronize(g->stream));
    EXPECT(g, cuMemFreeHost(data));
    leave(g);
}

void gpu_upload(gpu *g, void *device, const void *host, size_t size)
{
    enter(g);
    EXPECT(g, cuMemcpyHtoDAsync_v2(address(device), host, size, g->stream));
    leave(g);
}

void gpu_download(gpu *g, void *host, const void *device, size_t size)
{
    enter(g);
    EXPECT(g, cuMemcpyDtoHAsync_v2(host, address(device), size, g->stream));
    leave(g);
}

void gpu_wait(gpu *g)
{
    enter(g);
    EXPECT(g, cuStreamSynchronize(g->stream));
    leave(g);
}

gpu_kernel *gpu_kernel_load(gpu *g, const void *fatbin, const char *name)
{
    gpu_kernel *k = allocate(1, sizeof *k);
    k->owner = g;
    enter(g);
    EXPECT(g, cuModuleLoadData(&k->module, fatbin));
    EXPECT(g, cuModuleGetFunction(&k->function, k->module, name));
    leave(g);
    return k;
}

void gpu_kernel_free(gpu_kernel *k)
{
    if (!k)
        return;
    enter(k->owner);
    EXPECT(k->owner, cuStreamSynchronize(k->owner->stream));
    EXPECT(k->owner, cuModuleUnload(k->module));
    leave(k->owner);
    free(k);
}

void gpu_launch(gpu *g, const gpu_kernel *k, unsigned blocks_x, unsigned blocks_y, unsigned threads, void **args)
{
    enter(g);
    EXPECT(g, cuLaunchKernel(k->function, blocks_x, blocks_y, 1, threads, 1, 1, 0, g->stream, args, NULL));
    leave(g);
}
