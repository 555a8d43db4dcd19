/* device/cuda_order.c - our copies in order with the program's work: behind and before a stream of the caller's, or
 * with everything on a device. */
#ifdef HAVE_CUDA_H
#include "device/cuda_driver.h"
#include "device/handle.h"

ckpt_status ckpt__cuda_wrong_device(ckpt_error *err, int ordinal, const char *what, int other)
{
    char object[CKPT_DEVICE_NAME_MAX];
    return ckpt__fail(err, CKPT_E_ARGUMENT, ckpt_device_name(ckpt_cuda(ordinal), object),
                      "%s belongs to cuda:%d, and is used with cuda:%d", what, other, ordinal);
}

/* A stream and the context it must be used in: `enter` is NULL where that is the current one. */
typedef struct queue {
    CUstream stream;
    CUcontext enter;
} queue;

static CUresult step_into(const ckpt__cuda_driver *d, const queue *q)
{
    return q->enter ? d->cuCtxPushCurrent_v2(q->enter) : CUDA_SUCCESS;
}

static CUresult step_out(const ckpt__cuda_driver *d, const queue *q, CUresult r)
{
    CUcontext popped;
    CUresult left = q->enter ? d->cuCtxPopCurrent_v2(&popped) : CUDA_SUCCESS;
    return r != CUDA_SUCCESS ? r : left;
}

/* `later` waits for what is queued on `first` now. An event belongs to the context of the stream that it is recorded
 * on; waiting for one of another context is allowed. */
static CUresult chain(const ckpt__cuda_driver *d, const queue *first, const queue *later, const char **call)
{
    CUevent event = NULL;
    *call = "cuCtxPushCurrent_v2";
    CUresult r = step_into(d, first);
    if (r != CUDA_SUCCESS)
        return r;
    *call = "cuEventCreate";
    r = d->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) {
        *call = "cuEventRecord";
        r = d->cuEventRecord(event, first->stream);
    }
    r = step_out(d, first, r);
    if (r == CUDA_SUCCESS) {
        *call = "cuCtxPushCurrent_v2";
        r = step_into(d, later);
        if (r == CUDA_SUCCESS) {
            *call = "cuStreamWaitEvent";
            r = step_out(d, later, d->cuStreamWaitEvent(later->stream, event, 0));
        }
    }
    if (event) {
        CUresult freed = d->cuEventDestroy_v2(event); /* takes effect once the wait is past */
        if (r == CUDA_SUCCESS && freed != CUDA_SUCCESS) {
            *call = "cuEventDestroy_v2";
            r = freed;
        }
    }
    return r;
}

/* The caller may use a context of its own instead of the device's primary one; a stream then belongs to that. */
static CUresult inspect(const ckpt__cuda_driver *d, CUcontext primary, queue *q, int *ordinal, bool *capturing,
                        const char **call)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext owner = primary;
    CUdevice device = (CUdevice)*ordinal;
    *call = "cuStreamGetCtx";
    CUresult r = q->stream ? d->cuStreamGetCtx(q->stream, &owner) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        return r;
    q->enter = owner != primary ? owner : NULL;
    *call = "cuCtxPushCurrent_v2";
    if ((r = step_into(d, q)) != CUDA_SUCCESS)
        return r;
    *call = "cuStreamIsCapturing";
    r = d->cuStreamIsCapturing(q->stream, &capture);
    if (r == CUDA_SUCCESS && q->enter) {
        *call = "cuCtxGetDevice";
        r = d->cuCtxGetDevice(&device);
    }
    *ordinal = (int)device; /* a CUdevice is the ordinal */
    *capturing = capture != CU_STREAM_CAPTURE_STATUS_NONE;
    return step_out(d, q, r);
}

static ckpt_status order(ckpt__stream *ours, void *callers_stream, bool we_wait, ckpt_error *err)
{
    char object[CKPT_DEVICE_NAME_MAX];
    ckpt_status s = ckpt__cuda_enter(ours->ordinal, err);
    if (s != CKPT_OK)
        return s;
    const ckpt__cuda_driver *d = ckpt__cuda_get(NULL);
    queue mine = {(CUstream)ours->handle, NULL}, theirs = {(CUstream)callers_stream, NULL};
    int ordinal = ours->ordinal;
    bool capturing = false;
    const char *call;
    CUresult r = inspect(d, ckpt__cuda_context(ours->ordinal), &theirs, &ordinal, &capturing, &call);
    if (r == CUDA_SUCCESS && ordinal != ours->ordinal)
        s = ckpt__cuda_wrong_device(err, ours->ordinal, "the given stream", ordinal);
    else if (r == CUDA_SUCCESS && capturing)
        s = ckpt__fail(err, CKPT_E_ARGUMENT, ckpt_device_name(ckpt_cuda(ordinal), object),
                       "the given stream is being captured into a graph: end the capture first");
    else if (r == CUDA_SUCCESS)
        r = we_wait ? chain(d, &theirs, &mine, &call) : chain(d, &mine, &theirs, &call);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ours->ordinal, r, call, "copies could not be ordered with the given stream %p%s",
                            callers_stream, r == CUDA_ERROR_INVALID_HANDLE ? "; is it still there?" : "");
    return ckpt__cuda_leave(s, err);
}

ckpt_status ckpt__cuda_follow(ckpt__stream *ours, void *callers_stream, ckpt_error *err)
{
    return order(ours, callers_stream, true, err);
}

ckpt_status ckpt__cuda_precede(ckpt__stream *ours, void *callers_stream, ckpt_error *err)
{
    return order(ours, callers_stream, false, err);
}

/* The primary context; and the caller's current one too where it is another one of the same device. */
ckpt_status ckpt__cuda_synchronize(int ordinal, ckpt_error *err)
{
    const ckpt__cuda_driver *d = ckpt__cuda_loaded();
    CUcontext current = NULL;
    CUdevice device;
    const char *call = "cuCtxSynchronize";
    if (d && (d->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current || d->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
              (int)device != ordinal))
        current = NULL;
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = ckpt__cuda_get(NULL)->cuCtxSynchronize();
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, call, "waiting for the device failed");
    bool another = s == CKPT_OK && current && current != ckpt__cuda_context(ordinal);
    s = ckpt__cuda_leave(s, err);
    if (s == CKPT_OK && another && (r = d->cuCtxSynchronize()) != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, call, "waiting for the current context failed");
    return s;
}
#else
typedef int ckpt__cuda_order_is_left_out;
#endif
