/* tests/fakecuda/fake_context.c - devices, contexts and each thread's stack of them. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* cuda.h may declare only the newest of these. */
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device);
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context);

static __thread struct {
    CUcontext context;
    bool pushed; /* by a push; cuCtxSetCurrent needs no pop */
} stack[FAKE_STACK_MAX];
static __thread int depth;
static CUcontext dead;

bool fake_context_live(CUcontext context)
{
    for (CUcontext c = fake.contexts; c; c = c->next)
        if (c == context)
            return true;
    return false;
}

CUcontext fake_current(const char *call)
{
    CUcontext current = depth ? stack[depth - 1].context : NULL;
    if (!current)
        fake_breach(CUDA_ERROR_INVALID_CONTEXT, "%s with no current context", call);
    else if (!fake_context_live(current)) {
        fake_breach(CUDA_ERROR_CONTEXT_IS_DESTROYED, "%s: the current context was destroyed", call);
        return NULL;
    }
    return current;
}

static CUcontext context_new(int ordinal, bool primary)
{
    CUcontext context = fake_alloc(sizeof *context);
    context->ordinal = ordinal;
    context->primary = primary;
    context->next = fake.contexts;
    fake.contexts = context;
    context->legacy = fake_stream_new(context, CU_STREAM_DEFAULT, true);
    return context;
}

/* With everything in it, as destroying a context does. */
static void context_drop(CUcontext context)
{
    fake_run_context(context);
    for (CUstream s = fake.streams, next; s; s = next) {
        next = s->next;
        if (s->context == context)
            fake_stream_drop(s);
    }
    for (CUevent *e = &fake.events; *e;) {
        CUevent gone = *e;
        if (gone->context != context) {
            e = &gone->next;
            continue;
        }
        *e = gone->next;
        free(gone);
    }
    fake_drop_context_memory(context);
    for (CUcontext *c = &fake.contexts; *c; c = &(*c)->next)
        if (*c == context) {
            *c = context->next;
            break;
        }
    context->next = dead; /* kept: a new context at the same address would make stale handles look live */
    dead = context;
}

static bool device_there(CUdevice device)
{
    return device >= 0 && device < fake.devices;
}

/* ---- devices */

API cuDeviceGetCount(int *count)
{
    CUresult r = fake_begin("cuDeviceGetCount", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS)
        *count = fake.devices;
    return fake_end(r);
}

API cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult r = fake_begin("cuDeviceGet", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !device_there(ordinal))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS)
        *device = ordinal;
    return fake_end(r);
}

API cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult r = fake_begin("cuDeviceGetName", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && (!device_there(device) || size <= 0))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS)
        snprintf(name, (size_t)size, "simulated device %d", device);
    return fake_end(r);
}

API cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult r = fake_begin("cuDeviceTotalMem_v2", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS)
        *bytes = fake.memory;
    return fake_end(r);
}

API cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult r = fake_begin("cuDeviceGetAttribute", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        /* Small, so that tests reach what lies beyond it. */
        *value = 1 << 20;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        *value = attribute == CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z ? 64 : 7;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 5;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        *value = 1024;
        break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        *value = 32;
        break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        *value = 1;
        break;
    default:
        *value = 0;
    }
    return fake_end(r);
}

/* ---- primary contexts */

API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    CUresult r = fake_begin("cuDevicePrimaryCtxRetain", FAKE_WORK);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    fake_device *d = &fake.device[device];
    if (!d->primary)
        d->primary = context_new(device, true);
    d->primary->retained++;
    *out = d->primary;
    return fake_end(r);
}

API cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult fault = fake_begin("cuDevicePrimaryCtxRelease_v2", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    if (!device_there(device))
        return fake_end(CUDA_ERROR_INVALID_DEVICE);
    fake_device *d = &fake.device[device];
    if (!d->primary)
        return fake_end(fake_breach(CUDA_ERROR_INVALID_CONTEXT,
                                    "the primary context of cuda:%d is released more often than "
                                    "retained",
                                    device));
    if (--d->primary->retained == 0) {
        context_drop(d->primary);
        d->primary = NULL;
    }
    return fake_end(fault);
}

/* What cudaDeviceReset does: all who retained the context are left with a dead one. */
API cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult r = fake_begin("cuDevicePrimaryCtxReset_v2", FAKE_WORK);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS && fake.device[device].primary) {
        context_drop(fake.device[device].primary);
        fake.device[device].primary = NULL;
    }
    return fake_end(r);
}

API cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    CUresult r = fake_begin("cuDevicePrimaryCtxGetState", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS) {
        *flags = 0;
        *active = fake.device[device].primary != NULL;
    }
    return fake_end(r);
}

/* ---- contexts of the program's own */

static CUresult set_top(CUcontext context, bool pushed)
{
    if (depth == FAKE_STACK_MAX)
        fake_die("the context stack is %d deep: pushes without pops", depth);
    stack[depth].context = context;
    stack[depth].pushed = pushed;
    depth++;
    fake.pushed += pushed;
    return CUDA_SUCCESS;
}

static CUresult create(const char *call, CUcontext *out, CUdevice device)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    if (r == CUDA_SUCCESS && !device_there(device))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS) {
        *out = context_new(device, false);
        set_top(*out, false);
    }
    return fake_end(r);
}

FAKECUDA_EXPORT CUresult CUDAAPI cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice device)
{
    (void)flags;
    return create("cuCtxCreate_v2", out, device);
}

#if CUDA_VERSION >= 13000
API cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    (void)params;
    (void)flags;
    return create("cuCtxCreate_v4", out, device);
}
#endif

API cuCtxDestroy_v2(CUcontext context)
{
    CUresult fault = fake_begin("cuCtxDestroy_v2", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    if (!fake_context_live(context) || context->primary)
        return fake_end(
            fake_breach(CUDA_ERROR_INVALID_CONTEXT, "cuCtxDestroy_v2 of what is no context of the program's"));
    if (depth && stack[depth - 1].context == context) {
        depth--;
        fake.pushed -= stack[depth].pushed;
    }
    context_drop(context);
    return fake_end(fault);
}

/* ---- the stack */

API cuCtxGetCurrent(CUcontext *out)
{
    CUresult r = fake_begin("cuCtxGetCurrent", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS)
        *out = depth ? stack[depth - 1].context : NULL;
    return fake_end(r);
}

API cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult r = fake_begin("cuCtxPushCurrent_v2", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !fake_context_live(context))
        r = context ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS)
        set_top(context, true);
    return fake_end(r);
}

API cuCtxPopCurrent_v2(CUcontext *out)
{
    CUresult fault = fake_begin("cuCtxPopCurrent_v2", FAKE_BOOKKEEPING);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    if (depth == 0)
        return fake_end(fake_breach(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPopCurrent_v2 of an empty stack: more pops than "
                                                                "pushes"));
    depth--;
    fake.pushed -= stack[depth].pushed;
    if (out)
        *out = stack[depth].context;
    return fake_end(fault);
}

API cuCtxSetCurrent(CUcontext context)
{
    CUresult r = fake_begin("cuCtxSetCurrent", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && context && !fake_context_live(context))
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    if (!context && depth) {
        depth--;
        fake.pushed -= stack[depth].pushed;
    } else if (context && depth)
        stack[depth - 1].context = context;
    else if (context)
        set_top(context, false);
    return fake_end(r);
}

API cuCtxGetDevice(CUdevice *device)
{
    CUresult r = fake_begin("cuCtxGetDevice", FAKE_BOOKKEEPING);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuCtxGetDevice") : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS)
        *device = current->ordinal;
    return fake_end(r);
}

API cuCtxSynchronize(void)
{
    CUresult fault = fake_begin("cuCtxSynchronize", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUcontext current = fake_current("cuCtxSynchronize");
    if (!current)
        return fake_end(CUDA_ERROR_INVALID_CONTEXT);
    fake_run_context(current);
    return fake_end(fault);
}

/* ---- names of errors: not counted, since a library may call them at any time */

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define ERROR(name, text)                                                                                              \
    {                                                                                                                  \
        name, #name, text                                                                                              \
    }
    ERROR(CUDA_SUCCESS, "no error"),
    ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    ERROR(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    ERROR(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered"),
    ERROR(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "part or all of the requested memory range is already mapped"),
    ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    ERROR(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef ERROR
};

API cuGetErrorName(CUresult code, const char **name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *name = errors[i].name;
            return CUDA_SUCCESS;
        }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API cuGetErrorString(CUresult code, const char **text)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = errors[i].text;
            return CUDA_SUCCESS;
        }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}
