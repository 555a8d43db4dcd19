/* device/cuda.c - the vtable of CUDA devices: each operation enters the device's primary context, calls the driver, and
 * leaves, so that the caller's current context never changes. */
#ifdef HAVE_CUDA_H
#include "device/cuda_driver.h"
#include "device/handle.h"

#include <stdio.h>
#include <stdlib.h>

/* Valid between a successful enter and its leave. */
static const ckpt__cuda_driver *driver(void)
{
    return ckpt__cuda_get(NULL);
}

/* For giving a thing back there is no second chance: a context that could not be entered is tried once more. */
static bool enter_to_free(int ordinal)
{
    return ckpt__cuda_enter(ordinal, NULL) == CKPT_OK || ckpt__cuda_enter(ordinal, NULL) == CKPT_OK;
}

static CUdeviceptr address(const void *data)
{
    return (CUdeviceptr)(uintptr_t)data;
}

static ckpt_status cuda_count(int *count, const char **why, ckpt_error *err)
{
    (void)err;
    const ckpt__cuda_driver *d = ckpt__cuda_get(why);
    *count = d ? d->count : 0;
    return CKPT_OK;
}

/* What needs no context is asked without one: a context takes hundreds of MB of the device's memory. */
static ckpt_status device_info(int ordinal, char *buf, size_t size, uint64_t *total_bytes, ckpt_error *err)
{
    const ckpt__cuda_driver *d = driver();
    CUdevice device;
    CUresult r = d->cuDeviceGet(&device, ordinal);
    if (r != CUDA_SUCCESS)
        return ckpt__cuda_fail(err, ordinal, r, "cuDeviceGet", "the device could not be asked for");
    if (buf && size) {
        char name[256] = "";
        if ((r = d->cuDeviceGetName(name, (int)sizeof name - 1, device)) != CUDA_SUCCESS)
            return ckpt__cuda_fail(err, ordinal, r, "cuDeviceGetName", "the device's name could not be read");
        ckpt__escape(buf, size, name, strlen(name));
    }
    if (total_bytes) {
        size_t total = 0;
        if ((r = d->cuDeviceTotalMem_v2(&total, device)) != CUDA_SUCCESS)
            return ckpt__cuda_fail(err, ordinal, r, "cuDeviceTotalMem_v2",
                                   "the device's memory could not be asked for");
        *total_bytes = total;
    }
    return CKPT_OK;
}

static ckpt_status cuda_info(int ordinal, char *buf, size_t size, uint64_t *free_bytes, uint64_t *total_bytes,
                             bool *simulated, ckpt_error *err)
{
    size_t unused = 0, total = 0;
    ckpt_status s = ckpt_device_check(ckpt_cuda(ordinal), err);
    if (s == CKPT_OK)
        s = device_info(ordinal, buf, size, total_bytes, err);
    if (s == CKPT_OK && simulated)
        *simulated = driver()->simulated;
    if (s != CKPT_OK || !free_bytes)
        return s;
    if ((s = ckpt__cuda_enter(ordinal, err)) != CKPT_OK)
        return s;
    CUresult r = driver()->cuMemGetInfo_v2(&unused, &total);
    if (r == CUDA_SUCCESS)
        *free_bytes = unused;
    else
        s = ckpt__cuda_fail(err, ordinal, r, "cuMemGetInfo_v2", "the device's free memory could not be asked for");
    return ckpt__cuda_leave(s, err);
}

/* ---- memory */

static ckpt_status alloc_failed(int ordinal, size_t size, CUresult r, ckpt_error *err)
{
    size_t unused = 0, total = 0;
    if (r == CUDA_ERROR_OUT_OF_MEMORY && driver()->cuMemGetInfo_v2(&unused, &total) == CUDA_SUCCESS)
        return ckpt__cuda_fail(err, ordinal, r, "cuMemAlloc_v2",
                               "%zu bytes wanted, %zu of the device's %zu are free: "
                               "free some, or map tensors to another device",
                               size, unused, total);
    return ckpt__cuda_fail(err, ordinal, r, "cuMemAlloc_v2", "%zu bytes wanted", size);
}

static ckpt_status cuda_release(int ordinal, void *data, ckpt_error *err)
{
    if (!data)
        return CKPT_OK;
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = driver()->cuMemFree_v2(address(data));
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, "cuMemFree_v2", "memory at %p could not be freed", data);
    return ckpt__cuda_leave(s, err);
}

static ckpt_status cuda_alloc(int ordinal, size_t size, void **out, ckpt_error *err)
{
    CUdeviceptr got = 0;
    *out = NULL;
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = driver()->cuMemAlloc_v2(&got, size ? size : 1);
    if (r != CUDA_SUCCESS)
        s = alloc_failed(ordinal, size, r, err);
    s = ckpt__cuda_leave(s, err);
    if (s == CKPT_OK)
        *out = (void *)(uintptr_t)got;
    else if (got)
        cuda_release(ordinal, (void *)(uintptr_t)got, NULL);
    return s;
}

/* ---- streams */

static ckpt_status cuda_stream_new(int ordinal, ckpt__stream **out, ckpt_error *err)
{
    CUstream handle = NULL;
    *out = NULL;
    ckpt__stream *stream = malloc(sizeof *stream);
    if (!stream)
        return ckpt__fail_memory(err, "stream", sizeof *stream);
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        goto fail;
    CUresult r = driver()->cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, "cuStreamCreate", "a stream could not be made");
    *stream = (ckpt__stream){CKPT_DEVICE_CUDA, ordinal, handle};
    if ((s = ckpt__cuda_leave(s, err)) != CKPT_OK)
        goto fail;
    *out = stream;
    return CKPT_OK;
fail:
    if (handle && enter_to_free(ordinal)) {
        driver()->cuStreamDestroy_v2(handle);
        ckpt__cuda_leave(CKPT_OK, NULL);
    }
    free(stream);
    return s;
}

static void cuda_stream_free(ckpt__stream *stream)
{
    if (!stream)
        return;
    if (enter_to_free(stream->ordinal)) {
        /* Buffers that the stream works on are freed next: nothing may be left running. */
        driver()->cuStreamSynchronize((CUstream)stream->handle);
        driver()->cuStreamDestroy_v2((CUstream)stream->handle);
        ckpt__cuda_leave(CKPT_OK, NULL);
    }
    free(stream);
}

static ckpt_status cuda_stream_sync(ckpt__stream *stream, ckpt_error *err)
{
    ckpt_status s = ckpt__cuda_enter(stream->ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = driver()->cuStreamSynchronize((CUstream)stream->handle);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, stream->ordinal, r, "cuStreamSynchronize", "waiting for copies failed");
    return ckpt__cuda_leave(s, err);
}

static ckpt_status cuda_zero(int ordinal, void *data, size_t size, ckpt__stream *stream, ckpt_error *err)
{
    if (stream && stream->ordinal != ordinal)
        return ckpt__cuda_wrong_device(err, ordinal, "the stream", stream->ordinal);
    if (size == 0)
        return CKPT_OK;
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        return s;
    const char *call = stream ? "cuMemsetD8Async" : "cuMemsetD8_v2";
    CUresult r = stream ? driver()->cuMemsetD8Async(address(data), 0, size, (CUstream)stream->handle)
                        : driver()->cuMemsetD8_v2(address(data), 0, size);
    if (r == CUDA_SUCCESS && !stream) {
        call = "cuStreamSynchronize"; /* cuMemsetD8 on device memory returns before it is done */
        r = driver()->cuStreamSynchronize(NULL);
    }
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, call, "%zu bytes at %p could not be zeroed", size, data);
    return ckpt__cuda_leave(s, err);
}

/* ---- copies */

static ckpt_status copied(ckpt__stream *stream, CUresult r, const char *call, const void *dst, const void *src,
                          size_t n, ckpt_error *err)
{
    if (r == CUDA_SUCCESS)
        return CKPT_OK;
    return ckpt__cuda_fail(err, stream->ordinal, r, call, "%zu bytes from %p to %p could not be copied", n, src, dst);
}

static ckpt_status cuda_to_device(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err)
{
    ckpt_status s = n ? ckpt__cuda_enter(stream->ordinal, err) : CKPT_OK;
    if (s != CKPT_OK || n == 0)
        return s;
    CUresult r = driver()->cuMemcpyHtoDAsync_v2(address(dst), src, n, (CUstream)stream->handle);
    return ckpt__cuda_leave(copied(stream, r, "cuMemcpyHtoDAsync_v2", dst, src, n, err), err);
}

static ckpt_status cuda_to_host(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err)
{
    ckpt_status s = n ? ckpt__cuda_enter(stream->ordinal, err) : CKPT_OK;
    if (s != CKPT_OK || n == 0)
        return s;
    CUresult r = driver()->cuMemcpyDtoHAsync_v2(dst, address(src), n, (CUstream)stream->handle);
    return ckpt__cuda_leave(copied(stream, r, "cuMemcpyDtoHAsync_v2", dst, src, n, err), err);
}

static ckpt_status cuda_on_device(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err)
{
    ckpt_status s = n ? ckpt__cuda_enter(stream->ordinal, err) : CKPT_OK;
    if (s != CKPT_OK || n == 0)
        return s;
    CUresult r = driver()->cuMemcpyDtoDAsync_v2(address(dst), address(src), n, (CUstream)stream->handle);
    return ckpt__cuda_leave(copied(stream, r, "cuMemcpyDtoDAsync_v2", dst, src, n, err), err);
}

static ckpt_status cuda_between(int dst_ordinal, void *dst, int src_ordinal, const void *src, size_t n, ckpt_error *err)
{
    if (n == 0)
        return CKPT_OK;
    /* The source's context first, so that it exists; then the destination's, which the copy runs in. */
    ckpt_status s = ckpt__cuda_enter(src_ordinal, err);
    if (s != CKPT_OK)
        return s;
    if ((s = ckpt__cuda_leave(CKPT_OK, err)) != CKPT_OK || (s = ckpt__cuda_enter(dst_ordinal, err)) != CKPT_OK)
        return s;
    bool same = dst_ordinal == src_ordinal;
    const char *call = same ? "cuMemcpyDtoD_v2" : "cuMemcpyPeer";
    CUresult r = same ? driver()->cuMemcpyDtoD_v2(address(dst), address(src), n)
                      : driver()->cuMemcpyPeer(address(dst), ckpt__cuda_context(dst_ordinal), address(src),
                                               ckpt__cuda_context(src_ordinal), n);
    if (r == CUDA_SUCCESS) {
        /* Copies from device to device return before they are done; they are in order with the legacy stream. */
        call = "cuStreamSynchronize";
        r = driver()->cuStreamSynchronize(NULL);
    }
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, dst_ordinal, r, call, "%zu bytes from %p on cuda:%d to %p could not be copied", n, src,
                            src_ordinal, dst);
    return ckpt__cuda_leave(s, err);
}

typedef struct rows {
    void *dst;
    size_t dst_pitch;
    const void *src;
    size_t src_pitch, width, rows;
} rows;

static CUresult copy_2d(const ckpt__cuda_driver *d, const rows *c, bool to_device, CUstream stream)
{
    CUDA_MEMCPY2D m;
    memset(&m, 0, sizeof m);
    m.srcMemoryType = to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    m.dstMemoryType = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    if (to_device) {
        m.srcHost = c->src;
        m.dstDevice = address(c->dst);
    } else {
        m.srcDevice = address(c->src);
        m.dstHost = c->dst;
    }
    m.srcPitch = c->src_pitch;
    m.dstPitch = c->dst_pitch;
    m.WidthInBytes = c->width;
    m.Height = c->rows;
    return d->cuMemcpy2DAsync_v2(&m, stream);
}

/* Pitches over the driver's limit (2 GiB - 1) go row by row. */
static CUresult copy_rows(const ckpt__cuda_driver *d, const rows *c, bool to_device, CUstream stream)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < c->rows && r == CUDA_SUCCESS; i++) {
        char *dst = (char *)c->dst + i * c->dst_pitch;
        const char *src = (const char *)c->src + i * c->src_pitch;
        r = to_device ? d->cuMemcpyHtoDAsync_v2(address(dst), src, c->width, stream)
                      : d->cuMemcpyDtoHAsync_v2(dst, address(src), c->width, stream);
    }
    return r;
}

static ckpt_status cuda_2d(ckpt__stream *stream, const rows *c, bool to_device, ckpt_error *err)
{
    char object[CKPT_DEVICE_NAME_MAX];
    if (c->width == 0 || c->rows == 0)
        return CKPT_OK;
    if (c->rows > 1 && (c->width > c->dst_pitch || c->width > c->src_pitch))
        return ckpt__fail(err, CKPT_E_ARGUMENT, ckpt_device_name(ckpt_cuda(stream->ordinal), object),
                          "rows of %zu bytes overlap at pitches of %zu and %zu", c->width, c->dst_pitch, c->src_pitch);
    if (c->rows == 1) {
        return to_device ? cuda_to_device(stream, c->dst, c->src, c->width, err)
                         : cuda_to_host(stream, c->dst, c->src, c->width, err);
    }
    ckpt_status s = ckpt__cuda_enter(stream->ordinal, err);
    if (s != CKPT_OK)
        return s;
    const ckpt__cuda_driver *d = driver();
    CUdevice device;
    int limit = 0;
    const char *call = "cuCtxGetDevice";
    CUresult r = d->cuCtxGetDevice(&device);
    if (r == CUDA_SUCCESS) {
        call = "cuDeviceGetAttribute";
        r = d->cuDeviceGetAttribute(&limit, CU_DEVICE_ATTRIBUTE_MAX_PITCH, device);
    }
    if (r == CUDA_SUCCESS && c->dst_pitch <= (size_t)limit && c->src_pitch <= (size_t)limit) {
        call = "cuMemcpy2DAsync_v2";
        r = copy_2d(d, c, to_device, (CUstream)stream->handle);
    } else if (r == CUDA_SUCCESS) {
        call = to_device ? "cuMemcpyHtoDAsync_v2" : "cuMemcpyDtoHAsync_v2";
        r = copy_rows(d, c, to_device, (CUstream)stream->handle);
    }
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, stream->ordinal, r, call, "%zu rows of %zu bytes from %p to %p could not be copied",
                            c->rows, c->width, c->src, c->dst);
    return ckpt__cuda_leave(s, err);
}

static ckpt_status cuda_to_device_2d(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src,
                                     size_t src_pitch, size_t width, size_t count, ckpt_error *err)
{
    return cuda_2d(stream, &(rows){dst, dst_pitch, src, src_pitch, width, count}, true, err);
}

static ckpt_status cuda_to_host_2d(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                   size_t width, size_t count, ckpt_error *err)
{
    return cuda_2d(stream, &(rows){dst, dst_pitch, src, src_pitch, width, count}, false, err);
}

/* ---- events */

static ckpt_status cuda_event_new(int ordinal, ckpt__event **out, ckpt_error *err)
{
    CUevent handle = NULL;
    *out = NULL;
    ckpt__event *event = malloc(sizeof *event);
    if (!event)
        return ckpt__fail_memory(err, "event", sizeof *event);
    ckpt_status s = ckpt__cuda_enter(ordinal, err);
    if (s != CKPT_OK)
        goto fail;
    CUresult r = driver()->cuEventCreate(&handle, CU_EVENT_DISABLE_TIMING);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, ordinal, r, "cuEventCreate", "an event could not be made");
    *event = (ckpt__event){CKPT_DEVICE_CUDA, ordinal, handle};
    if ((s = ckpt__cuda_leave(s, err)) != CKPT_OK)
        goto fail;
    *out = event;
    return CKPT_OK;
fail:
    if (handle && enter_to_free(ordinal)) {
        driver()->cuEventDestroy_v2(handle);
        ckpt__cuda_leave(CKPT_OK, NULL);
    }
    free(event);
    return s;
}

static void cuda_event_free(ckpt__event *event)
{
    if (!event)
        return;
    if (enter_to_free(event->ordinal)) {
        driver()->cuEventDestroy_v2((CUevent)event->handle);
        ckpt__cuda_leave(CKPT_OK, NULL);
    }
    free(event);
}

static ckpt_status cuda_event_record(ckpt__event *event, ckpt__stream *stream, ckpt_error *err)
{
    if (event->ordinal != stream->ordinal)
        return ckpt__cuda_wrong_device(err, stream->ordinal, "the event", event->ordinal);
    ckpt_status s = ckpt__cuda_enter(event->ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = driver()->cuEventRecord((CUevent)event->handle, (CUstream)stream->handle);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, event->ordinal, r, "cuEventRecord", "an event could not be recorded");
    return ckpt__cuda_leave(s, err);
}

static ckpt_status cuda_event_wait(ckpt__event *event, ckpt_error *err)
{
    ckpt_status s = ckpt__cuda_enter(event->ordinal, err);
    if (s != CKPT_OK)
        return s;
    CUresult r = driver()->cuEventSynchronize((CUevent)event->handle);
    if (r != CUDA_SUCCESS)
        s = ckpt__cuda_fail(err, event->ordinal, r, "cuEventSynchronize", "waiting for copies failed");
    return ckpt__cuda_leave(s, err);
}

const ckpt__device_ops ckpt__cuda_ops = {
    .type = CKPT_DEVICE_CUDA,
    .name = "cuda",
    .count = cuda_count,
    .info = cuda_info,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .zero = cuda_zero,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .stream_sync = cuda_stream_sync,
    .to_device = cuda_to_device,
    .to_host = cuda_to_host,
    .on_device = cuda_on_device,
    .between = cuda_between,
    .to_device_2d = cuda_to_device_2d,
    .to_host_2d = cuda_to_host_2d,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .follow = ckpt__cuda_follow,
    .precede = ckpt__cuda_precede,
    .synchronize = ckpt__cuda_synchronize,
    .host_alloc = ckpt__cuda_host_alloc,
    .host_free = ckpt__cuda_host_free,
    .query = ckpt__cuda_query,
};
#else
typedef int ckpt__cuda_is_left_out;
#endif
