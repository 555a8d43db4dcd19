/* device/cuda_driver.c - finds the CUDA driver at run time, says why where it cannot be used, and enters and leaves the
 * devices' primary contexts. */
#ifdef HAVE_CUDA_H
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LIBRARY "libcuda.so.1"

static struct {
    pthread_once_t load_once, init_once;
    ckpt__cuda_driver driver;
    bool loaded;
    atomic_bool load_done, active;
    atomic_ullong loaded_without; /* libraries ever loaded when libcuda was last found missing */
    char why[512];
    pid_t pid;            /* of the process that called cuInit */
    pthread_mutex_t lock; /* over primary[] */
    CUcontext *primary;   /* one for each device; NULL until retained */
} cuda = {.load_once = PTHREAD_ONCE_INIT, .init_once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define SYMBOL(name) {#name, offsetof(ckpt__cuda_driver, name)},
    CKPT__CUDA_SYMBOLS(SYMBOL)
#undef SYMBOL
};

/* What to do about a driver that does not start. Numbers where cuda.h 11.0 has no name yet. */
static const struct {
    int code;
    const char *text;
} refusals[] = {
    {34, LIBRARY " is the toolkit's stub, not a driver: take the stubs directory out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_NO_DEVICE, "the CUDA driver finds no device: none is fitted, CUDA_VISIBLE_DEVICES hides them all, or "
                           "this container was started without them"},
    {CUDA_ERROR_OPERATING_SYSTEM, "the CUDA driver cannot reach the devices: check the permissions of /dev/nvidia*"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "the CUDA driver says that the system is not ready: on machines with NVSwitch, "
                                  "start the fabric manager of the same version as the driver"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "the NVIDIA kernel module and " LIBRARY " are of different versions: after a "
                                        "driver update, reload the module or reboot; in a container, mount the "
                                        "host's driver"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "this " LIBRARY " is the forward-compatibility one, which this "
                                                "device does not support: take it out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_OUT_OF_MEMORY, "the CUDA driver has no memory left to start with"},
    {CUDA_ERROR_NOT_INITIALIZED, "the CUDA driver does not start; a process forked after CUDA was in use cannot use "
                                 "it"},
    {CUDA_ERROR_UNKNOWN, "the CUDA driver does not start (CUDA_ERROR_UNKNOWN): check that nvidia-smi works and that "
                         "/dev/nvidia-uvm is there; after a suspend, reload the nvidia_uvm module"},
};

/* Hints for errors of later calls. */
static const struct {
    int code;
    const char *text;
} hints[] = {
    {CUDA_ERROR_NOT_INITIALIZED, "use CUDA in one process only: it does not survive fork"},
    {CUDA_ERROR_DEINITIALIZED, "the driver is shutting down: finish before exit handlers run"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "the program reset the device; do not call cudaDeviceReset before the last use "
                                      "of this library"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "the device's memory failed: what it holds is lost; restart the process"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "a kernel or copy queued earlier failed: what the device holds is lost; restart the "
                                 "process, and run it under compute-sanitizer"},
    {CUDA_ERROR_LAUNCH_FAILED, "a kernel queued earlier failed: what the device holds is lost; restart the process, "
                               "and run it under compute-sanitizer"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "a kernel queued earlier ran too long: what the device holds is lost"},
    {CUDA_ERROR_ASSERT, "an assertion in a kernel queued earlier failed: what the device holds is lost"},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, "a kernel queued earlier failed: what the device holds is lost"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, "a kernel queued earlier failed: what the device holds is lost"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "a kernel queued earlier failed: what the device holds is lost"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream is being captured into a graph: end the capture first"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a stream is being captured into a graph: end the capture first"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "a stream is being captured into a graph: end the capture first"},
};

static const char *result_name(CUresult result, char buf[32])
{
    const char *name = NULL;
    if (cuda.driver.cuGetErrorName && cuda.driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name)
        return name;
    snprintf(buf, 32, "CUresult %d", (int)result);
    return buf;
}

ckpt_status ckpt__cuda_fail(ckpt_error *err, int ordinal, CUresult result, const char *call, const char *format, ...)
{
    char object[CKPT_DEVICE_NAME_MAX], what[256], number[32];
    const char *hint = NULL;
    va_list ap;
    if (!err)
        return CKPT_E_DEVICE;
    ckpt_device_name(ckpt_cuda(ordinal), object);
    va_start(ap, format);
    vsnprintf(what, sizeof what, format, ap);
    va_end(ap);
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (hints[i].code == (int)result)
            hint = hints[i].text;
    ckpt__fail(err, CKPT_E_DEVICE, object, "%s: %s: %s%s%s", call, result_name(result, number), what, hint ? "; " : "",
               hint ? hint : "");
    err->device_code = (int)result;
    return CKPT_E_DEVICE;
}

static void load(void)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        snprintf(cuda.why, sizeof cuda.why, "no CUDA driver on this machine: %s", reason ? reason : LIBRARY);
        goto done;
    }
    /* Never closed, not even on failure: the driver keeps threads and exit handlers. */
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (!found) {
            snprintf(cuda.why, sizeof cuda.why,
                     "%s has no %s: the driver is too old, install one for CUDA 11.0 or newer", LIBRARY,
                     symbols[i].name);
            goto done;
        }
        memcpy((char *)&cuda.driver + symbols[i].offset, &found, sizeof found);
    }
    cuda.driver.simulated = dlsym(handle, "fakecuda_marker") != NULL;
    cuda.loaded = true;
done:
    atomic_store(&cuda.load_done, true);
}

static void refuse(CUresult result, const char *call)
{
    char number[32];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].code == (int)result) {
            snprintf(cuda.why, sizeof cuda.why, "%s", refusals[i].text);
            return;
        }
    snprintf(cuda.why, sizeof cuda.why, "the CUDA driver does not start: %s: %s", call, result_name(result, number));
}

static void init(void)
{
    int count = 0;
    CUresult r;
    pthread_once(&cuda.load_once, load);
    if (!cuda.loaded)
        return;
    cuda.pid = getpid();
    if ((r = cuda.driver.cuInit(0)) != CUDA_SUCCESS) {
        refuse(r, "cuInit");
        return;
    }
    if ((r = cuda.driver.cuDeviceGetCount(&count)) != CUDA_SUCCESS || count <= 0) {
        refuse(r == CUDA_SUCCESS ? CUDA_ERROR_NO_DEVICE : r, "cuDeviceGetCount");
        return;
    }
    cuda.primary = calloc((size_t)count, sizeof(CUcontext));
    if (!cuda.primary) {
        snprintf(cuda.why, sizeof cuda.why, "no memory for the table of CUDA devices");
        return;
    }
    cuda.driver.count = count;
    atomic_store(&cuda.active, true);
}

const ckpt__cuda_driver *ckpt__cuda_get(const char **why)
{
    pthread_once(&cuda.init_once, init);
    if (why)
        *why = cuda.driver.count ? NULL : cuda.why;
    return cuda.driver.count ? &cuda.driver : NULL;
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    *(unsigned long long *)out = info->dlpi_adds;
    return 1;
}

const ckpt__cuda_driver *ckpt__cuda_loaded(void)
{
    if (!atomic_load(&cuda.load_done)) {
        /* Asking for the library searches the disk for it; the answer can only change with the number of libraries ever
         * loaded. A trainer that binds a million tensors asks as often. */
        unsigned long long loaded = 0;
        dl_iterate_phdr(count_loaded, &loaded);
        if (loaded && loaded == atomic_load(&cuda.loaded_without))
            return NULL;
        void *there = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
        if (!there) {
            atomic_store(&cuda.loaded_without, loaded);
            return NULL;
        }
        pthread_once(&cuda.load_once, load);
        dlclose(there); /* only the reference that RTLD_NOLOAD took; load() holds one for ever */
    }
    return cuda.loaded ? &cuda.driver : NULL;
}

bool ckpt__cuda_active(void)
{
    return atomic_load(&cuda.active);
}

bool ckpt__cuda_forked(void)
{
    return ckpt__cuda_active() && cuda.pid != getpid();
}

static ckpt_status retain(int ordinal, CUcontext *out, ckpt_error *err)
{
    CUdevice device;
    CUresult r = CUDA_SUCCESS;
    const char *call = "cuDeviceGet";
    pthread_mutex_lock(&cuda.lock);
    CUcontext context = cuda.primary[ordinal];
    if (!context && (r = cuda.driver.cuDeviceGet(&device, ordinal)) == CUDA_SUCCESS) {
        call = "cuDevicePrimaryCtxRetain";
        if ((r = cuda.driver.cuDevicePrimaryCtxRetain(&context, device)) == CUDA_SUCCESS)
            cuda.primary[ordinal] = context;
    }
    pthread_mutex_unlock(&cuda.lock);
    if (r != CUDA_SUCCESS)
        return ckpt__cuda_fail(err, ordinal, r, call, "the device's context could not be made%s",
                               r == CUDA_ERROR_OUT_OF_MEMORY ? "; other processes use its memory" : "");
    *out = context;
    return CKPT_OK;
}

static ckpt_status push(CUcontext context, int ordinal, ckpt_error *err)
{
    CUresult r = cuda.driver.cuCtxPushCurrent_v2(context);
    if (r != CUDA_SUCCESS)
        return ckpt__cuda_fail(err, ordinal, r, "cuCtxPushCurrent_v2", "the device's context could not be entered");
    return CKPT_OK;
}

/* The driver can be used in this process, and has the device. */
static ckpt_status present(int ordinal, ckpt_error *err)
{
    char object[CKPT_DEVICE_NAME_MAX];
    ckpt_status s = ckpt_device_check(ckpt_cuda(ordinal), err);
    if (s == CKPT_OK && ckpt__cuda_forked())
        s = ckpt__fail(
            err, CKPT_E_DEVICE, ckpt_device_name(ckpt_cuda(ordinal), object),
            "this process was forked after CUDA was initialised, and CUDA does not survive fork: start it by "
            "exec, or fork before the first use of a device");
    return s;
}

ckpt_status ckpt__cuda_enter(int ordinal, ckpt_error *err)
{
    CUcontext context = NULL;
    ckpt_status s = present(ordinal, err);
    if (s == CKPT_OK)
        s = retain(ordinal, &context, err);
    return s == CKPT_OK ? push(context, ordinal, err) : s;
}

ckpt_status ckpt__cuda_enter_any(ckpt_error *err)
{
    CUcontext current = NULL;
    ckpt_status s = present(0, err);
    if (s != CKPT_OK)
        return s;
    for (int i = 0; i < cuda.driver.count; i++)
        if (ckpt__cuda_context(i))
            return ckpt__cuda_enter(i, err);
    CUresult r = cuda.driver.cuCtxGetCurrent(&current);
    if (r != CUDA_SUCCESS)
        return ckpt__cuda_fail(err, -1, r, "cuCtxGetCurrent", "the current context could not be found out");
    return current ? push(current, -1, err) : ckpt__cuda_enter(0, err);
}

ckpt_status ckpt__cuda_leave(ckpt_status status, ckpt_error *err)
{
    CUcontext popped;
    CUresult r = cuda.driver.cuCtxPopCurrent_v2(&popped);
    if (status != CKPT_OK || r == CUDA_SUCCESS)
        return status;
    return ckpt__cuda_fail(err, -1, r, "cuCtxPopCurrent_v2", "the device's context could not be left");
}

CUcontext ckpt__cuda_context(int ordinal)
{
    pthread_mutex_lock(&cuda.lock);
    CUcontext context = cuda.primary[ordinal];
    pthread_mutex_unlock(&cuda.lock);
    return context;
}
#else
typedef int ckpt__cuda_driver_is_left_out;
#endif
