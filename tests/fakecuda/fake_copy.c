/* tests/fakecuda/fake_copy.c - copies and memsets. All are queued; the synchronous ones of host memory then wait. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

void fake_execute(fake_op *op)
{
    if (op->kind == FAKE_KERNEL)
        fake_run_kernel(op);
    for (size_t i = 0; i < op->rows && op->kind == FAKE_COPY; i++) {
        const unsigned char *src =
            op->staged ? (const unsigned char *)op->staged + i * op->width : fake_touch(op->src + i * op->src_pitch);
        memmove(fake_touch(op->dst + i * op->dst_pitch), src, op->width);
    }
    for (size_t i = 0; i < op->rows && op->kind == FAKE_SET; i++)
        memset(fake_touch(op->dst + i * op->dst_pitch), (int)op->value, op->width);
}

typedef struct shape {
    uint64_t dst, src;
    size_t dst_pitch, src_pitch, width, rows;
} shape;

static uint64_t reach(const shape *s, size_t pitch)
{
    return (s->rows - 1) * pitch + s->width;
}

/* The host side of an asynchronous copy must be page-locked. *pageable: it is not, and lax mode goes on. */
static CUresult check_host(const char *call, uint64_t p, size_t n, bool *pageable)
{
    const fake_block *b = fake_find(p, n);
    unsigned long long at = p;
    if (fake_in_device(p))
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s: %#llx is device memory where host memory is expected", call,
                           at);
    *pageable = !b || b->kind == FAKE_MANAGED;
    if (*pageable && !b && fake_find(p, 1))
        fake_breach(CUDA_SUCCESS, "%s: %zu bytes at %#llx reach past their page-locked memory", call, n, at);
    else if (*pageable)
        fake_breach(CUDA_SUCCESS, "%s: asynchronous copy of unregistered host memory (%zu bytes at %#llx)", call, n,
                    at);
    return CUDA_SUCCESS;
}

typedef enum direction { TO_DEVICE, TO_HOST, ON_DEVICE } direction;

static void *stage(const shape *s)
{
    unsigned char *bytes = fake_alloc(s->rows * s->width);
    for (size_t i = 0; i < s->rows; i++)
        memcpy(bytes + i * s->width, (const void *)(uintptr_t)(s->src + i * s->src_pitch), s->width);
    return bytes;
}

static fake_op *queue_copy(CUstream stream, const shape *s)
{
    fake_op *op = fake_queue(stream, FAKE_COPY);
    op->dst = s->dst;
    op->src = s->src;
    op->dst_pitch = s->dst_pitch;
    op->src_pitch = s->src_pitch;
    op->width = s->width;
    op->rows = s->rows;
    return op;
}

static CUresult copy_locked(const char *call, const shape *s, direction to, CUstream handle, bool async)
{
    CUresult r;
    bool pageable = false;
    CUstream stream = fake_stream(call, handle, &r);
    if (!stream)
        return r;
    if (s->width == 0 || s->rows == 0)
        return CUDA_SUCCESS;
    r = CUDA_SUCCESS;
    if (to != TO_HOST)
        r = fake_check_device(call, stream->context, s->dst, reach(s, s->dst_pitch));
    if (r == CUDA_SUCCESS && to != TO_DEVICE)
        r = fake_check_device(call, stream->context, s->src, reach(s, s->src_pitch));
    if (r == CUDA_SUCCESS && to != ON_DEVICE && async)
        r = check_host(call, to == TO_HOST ? s->dst : s->src, reach(s, to == TO_HOST ? s->dst_pitch : s->src_pitch),
                       &pageable);
    if (r != CUDA_SUCCESS)
        return r;
    fake_op *op = queue_copy(stream, s);
    if (pageable && to == TO_DEVICE)
        op->staged = stage(s);
    if ((!async && to != ON_DEVICE) || (pageable && to == TO_HOST))
        fake_run(stream, op->number);
    return CUDA_SUCCESS;
}

static CUresult copy(const char *call, const shape *s, direction to, CUstream handle, bool async)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    return fake_end(r == CUDA_SUCCESS ? copy_locked(call, s, to, handle, async) : r);
}

static shape line(uint64_t dst, uint64_t src, size_t n)
{
    return (shape){dst, src, n, n, n, 1};
}

API cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n)
{
    shape s = line(dst, (uint64_t)(uintptr_t)src, n);
    return copy("cuMemcpyHtoD_v2", &s, TO_DEVICE, NULL, false);
}

API cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n)
{
    shape s = line((uint64_t)(uintptr_t)dst, src, n);
    return copy("cuMemcpyDtoH_v2", &s, TO_HOST, NULL, false);
}

API cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
    shape s = line(dst, src, n);
    return copy("cuMemcpyDtoD_v2", &s, ON_DEVICE, NULL, false);
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
    shape s = line(dst, (uint64_t)(uintptr_t)src, n);
    return copy("cuMemcpyHtoDAsync_v2", &s, TO_DEVICE, stream, true);
}

API cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
    shape s = line((uint64_t)(uintptr_t)dst, src, n);
    return copy("cuMemcpyDtoHAsync_v2", &s, TO_HOST, stream, true);
}

API cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream)
{
    shape s = line(dst, src, n);
    return copy("cuMemcpyDtoDAsync_v2", &s, ON_DEVICE, stream, true);
}

/* ---- two dimensions */

static CUresult copy_2d(const char *call, const CUDA_MEMCPY2D *c, CUstream handle, bool async)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    bool from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST, to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST;
    if (r == CUDA_SUCCESS && ((!from_host && c->srcMemoryType != CU_MEMORYTYPE_DEVICE) ||
                              (!to_host && c->dstMemoryType != CU_MEMORYTYPE_DEVICE) || (from_host && to_host)))
        r = CUDA_ERROR_NOT_SUPPORTED;
    size_t src_pitch = c->srcPitch ? c->srcPitch : c->WidthInBytes,
           dst_pitch = c->dstPitch ? c->dstPitch : c->WidthInBytes;
    if (r == CUDA_SUCCESS &&
        (c->WidthInBytes + c->srcXInBytes > src_pitch || c->WidthInBytes + c->dstXInBytes > dst_pitch ||
         src_pitch > 1 << 20 || dst_pitch > 1 << 20))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    shape s = {to_host ? (uint64_t)(uintptr_t)c->dstHost : c->dstDevice,
               from_host ? (uint64_t)(uintptr_t)c->srcHost : c->srcDevice,
               dst_pitch,
               src_pitch,
               c->WidthInBytes,
               c->Height};
    s.dst += c->dstY * dst_pitch + c->dstXInBytes;
    s.src += c->srcY * src_pitch + c->srcXInBytes;
    return fake_end(copy_locked(call, &s, from_host ? TO_DEVICE : to_host ? TO_HOST : ON_DEVICE, handle, async));
}

API cuMemcpy2D_v2(const CUDA_MEMCPY2D *c)
{
    return copy_2d("cuMemcpy2D_v2", c, NULL, false);
}

API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream)
{
    return copy_2d("cuMemcpy2DAsync_v2", c, stream, true);
}

/* ---- between devices: behind what is queued on the legacy streams of both contexts */

static CUresult peer(const char *call, const shape *s, CUcontext to, CUcontext from, CUstream handle, bool legacy)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    if (!fake_context_live(to) || !fake_context_live(from))
        return fake_end(fake_breach(CUDA_ERROR_INVALID_CONTEXT, "%s: a context is not live", call));
    CUstream stream = fake_stream(call, handle, &r);
    if (!stream)
        return fake_end(r);
    if (s->width == 0)
        return fake_end(CUDA_SUCCESS);
    r = fake_check_device(call, to, s->dst, s->width);
    if (r == CUDA_SUCCESS)
        r = fake_check_device(call, from, s->src, s->width);
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUstream runs_on = legacy ? to->legacy : stream;
    if (legacy && from != to)
        fake_wait_for(runs_on, from->legacy->id, fake_queue(from->legacy, FAKE_MARK)->number);
    if (legacy && stream != runs_on && stream->head)
        fake_wait_for(runs_on, stream->id, stream->last);
    fake_op *op = queue_copy(runs_on, s);
    if (legacy && from != to)
        fake_wait_for(from->legacy, runs_on->id, op->number);
    return fake_end(CUDA_SUCCESS);
}

API cuMemcpyPeer(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n)
{
    shape s = line(dst, src, n);
    return peer("cuMemcpyPeer", &s, to, from, NULL, true);
}

API cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t n, CUstream stream)
{
    shape s = line(dst, src, n);
    return peer("cuMemcpyPeerAsync", &s, to, from, stream, false);
}

/* ---- memsets: of device memory, never waited for */

static CUresult set(const char *call, uint64_t dst, unsigned value, size_t n, CUstream handle)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUstream stream = fake_stream(call, handle, &r);
    if (!stream)
        return fake_end(r);
    r = n ? fake_check_device(call, stream->context, dst, n) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS || n == 0)
        return fake_end(r);
    fake_op *op = fake_queue(stream, FAKE_SET);
    op->dst = dst;
    op->value = value;
    op->dst_pitch = op->width = n;
    op->rows = 1;
    return fake_end(CUDA_SUCCESS);
}

API cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n)
{
    return set("cuMemsetD8_v2", dst, value, n, NULL);
}

API cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream)
{
    return set("cuMemsetD8Async", dst, value, n, stream);
}
