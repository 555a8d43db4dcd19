/* tests/fakecuda/fake_queue.c - streams and events. An operation has a number that grows over all streams; a wait names
 * an operation with a smaller number, so that following waits always ends. */
#include "fake.h"

#include <stdlib.h>

/* ---- queueing */

CUstream fake_stream_new(CUcontext context, unsigned flags, bool legacy)
{
    CUstream s = fake_alloc(sizeof *s);
    s->id = ++fake.ids;
    s->context = context;
    s->legacy = legacy;
    s->blocking = !legacy && !(flags & CU_STREAM_NON_BLOCKING);
    s->next = fake.streams;
    fake.streams = s;
    return s;
}

static void op_free(fake_op *op)
{
    free(op->staged);
    free(op->params);
    free(op);
}

void fake_stream_drop(CUstream stream)
{
    for (CUstream *s = &fake.streams; *s; s = &(*s)->next)
        if (*s == stream) {
            *s = stream->next;
            break;
        }
    for (fake_op *op = stream->head, *next; op; op = next) {
        next = op->next;
        op_free(op);
    }
    free(stream);
}

static CUstream by_id(uint64_t id)
{
    for (CUstream s = fake.streams; s; s = s->next)
        if (s->id == id)
            return s;
    return NULL;
}

static fake_op *append(CUstream stream, fake_op_kind kind)
{
    fake_op *op = fake_alloc(sizeof *op);
    op->kind = kind;
    op->number = ++fake.numbers;
    if (stream->tail)
        stream->tail->next = op;
    else
        stream->head = op;
    stream->tail = op;
    stream->last = op->number;
    return op;
}

void fake_wait_for(CUstream stream, uint64_t id, uint64_t number)
{
    fake_op *op = append(stream, FAKE_WAIT);
    op->wait_stream = id;
    op->wait_number = number;
}

/* The legacy stream and the blocking ones of a context wait for each other. */
fake_op *fake_queue(CUstream stream, fake_op_kind kind)
{
    if (stream->blocking && stream->context->legacy->head)
        fake_wait_for(stream, stream->context->legacy->id, stream->context->legacy->last);
    if (stream->legacy)
        for (CUstream s = fake.streams; s; s = s->next)
            if (s->context == stream->context && s->blocking && s->head)
                fake_wait_for(stream, s->id, s->last);
    return append(stream, kind);
}

/* ---- running */

static void run(CUstream stream, uint64_t number)
{
    while (stream->head && stream->head->number <= number) {
        fake_op *op = stream->head;
        if (op->kind == FAKE_WAIT) {
            CUstream other = by_id(op->wait_stream);
            if (other)
                run(other, op->wait_number);
        }
        if (stream->head != op)
            continue; /* done on the way */
        fake_execute(op);
        stream->head = op->next;
        if (!stream->head)
            stream->tail = NULL;
        op_free(op);
    }
}

void fake_run_all(void)
{
    for (CUstream s = fake.streams; s; s = s->next)
        run(s, UINT64_MAX);
}

void fake_run(CUstream stream, uint64_t number)
{
    if (fake.reverse)
        fake_run_all(); /* the list has the newest stream first */
    run(stream, number);
}

static void run_oldest_first(CUstream from, CUcontext context)
{
    uint64_t done = 0;
    for (;;) {
        CUstream oldest = NULL;
        for (CUstream s = from; s; s = s->next)
            if (s->context == context && s->id > done && (!oldest || s->id < oldest->id))
                oldest = s;
        if (!oldest)
            return;
        done = oldest->id;
        run(oldest, UINT64_MAX);
    }
}

void fake_run_context(CUcontext context)
{
    if (fake.reverse)
        fake_run_all();
    run_oldest_first(fake.streams, context);
}

static bool overlap(uint64_t a, uint64_t n, uint64_t b, uint64_t m)
{
    return n && m && a < b + m && b < a + n;
}

static bool op_touches(const fake_op *op, uint64_t p, size_t n)
{
    if (op->kind == FAKE_KERNEL)
        return fake_kernel_touches(op, p, n);
    if (op->kind != FAKE_COPY && op->kind != FAKE_SET)
        return false;
    uint64_t reach = op->rows - 1;
    return overlap(op->dst, reach * op->dst_pitch + op->width, p, n) ||
           (op->kind == FAKE_COPY && !op->staged && overlap(op->src, reach * op->src_pitch + op->width, p, n));
}

bool fake_pending(uint64_t p, size_t n)
{
    for (CUstream s = fake.streams; s; s = s->next)
        for (const fake_op *op = s->head; op; op = op->next)
            if (op_touches(op, p, n))
                return true;
    return false;
}

/* ---- streams */

CUstream fake_stream(const char *call, CUstream handle, CUresult *r)
{
    CUcontext current = fake_current(call);
    *r = CUDA_ERROR_INVALID_CONTEXT;
    if (!current)
        return NULL;
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return current->legacy;
    if (handle == CU_STREAM_PER_THREAD)
        fake_die("%s: CU_STREAM_PER_THREAD is not simulated", call);
    *r = CUDA_ERROR_INVALID_HANDLE;
    for (CUstream s = fake.streams; s; s = s->next)
        if (s == handle && !s->legacy) {
            if (s->context == current)
                return s;
            *r = fake_breach(*r,
                             "%s: the stream belongs to another context (of cuda:%d) than the current one (of cuda:%d)",
                             call, s->context->ordinal, current->ordinal);
            return NULL;
        }
    *r = fake_breach(*r, "%s: %p is no live stream", call, (void *)handle);
    return NULL;
}

API cuStreamCreate(CUstream *out, unsigned flags)
{
    CUresult r = fake_begin("cuStreamCreate", FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuStreamCreate") : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS)
        *out = fake_stream_new(current, flags, false);
    return fake_end(r);
}

API cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
    (void)priority;
    return cuStreamCreate(out, flags);
}

API cuStreamDestroy_v2(CUstream handle)
{
    CUresult r, fault = fake_begin("cuStreamDestroy_v2", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUstream s = handle ? fake_stream("cuStreamDestroy_v2", handle, &r) : NULL;
    if (!s || s->legacy)
        return fake_end(
            fake_breach(CUDA_ERROR_INVALID_HANDLE, "cuStreamDestroy_v2 of a stream that is not the program's"));
    if (s->head) {
        fake_breach(CUDA_SUCCESS, "cuStreamDestroy_v2 of a stream with work pending on it");
        fake_run(s, UINT64_MAX);
    }
    fake_stream_drop(s);
    return fake_end(fault);
}

static CUresult wait_stream(const char *call, CUstream handle)
{
    CUresult r, fault = fake_begin(call, FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUstream s = fake_stream(call, handle, &r);
    if (!s)
        return fake_end(r);
    fake_run(s, UINT64_MAX);
    return fake_end(fault);
}

API cuStreamSynchronize(CUstream handle)
{
    return wait_stream("cuStreamSynchronize", handle);
}

/* Asking makes it done: a program that asks in a loop gets on. */
API cuStreamQuery(CUstream handle)
{
    return wait_stream("cuStreamQuery", handle);
}

API cuStreamGetCtx(CUstream handle, CUcontext *out)
{
    CUresult r = fake_begin("cuStreamGetCtx", FAKE_BOOKKEEPING);
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        *out = fake_current("cuStreamGetCtx");
        return fake_end(*out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
    }
    for (CUstream s = fake.streams; s; s = s->next)
        if (s == handle) {
            *out = s->context;
            return fake_end(CUDA_SUCCESS);
        }
    return fake_end(fake_breach(CUDA_ERROR_INVALID_HANDLE, "cuStreamGetCtx: %p is no live stream", (void *)handle));
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out)
{
    CUresult r = fake_begin("cuStreamIsCapturing", FAKE_BOOKKEEPING), bad = CUDA_SUCCESS;
    CUstream s = r == CUDA_SUCCESS ? fake_stream("cuStreamIsCapturing", handle, &bad) : NULL;
    if (s)
        *out = s->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return fake_end(r != CUDA_SUCCESS ? r : s ? CUDA_SUCCESS : bad);
}

void fakecuda_set_capturing(void *stream, int on)
{
    fake_lock();
    ((CUstream)stream)->capturing = on != 0;
    fake_unlock();
}

/* ---- events */

static CUevent live_event(const char *call, CUevent handle)
{
    for (CUevent e = fake.events; e; e = e->next)
        if (e == handle)
            return e;
    fake_breach(CUDA_ERROR_INVALID_HANDLE, "%s: %p is no live event", call, (void *)handle);
    return NULL;
}

API cuEventCreate(CUevent *out, unsigned flags)
{
    (void)flags;
    CUresult r = fake_begin("cuEventCreate", FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuEventCreate") : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUevent e = fake_alloc(sizeof *e);
    e->context = current;
    e->next = fake.events;
    fake.events = e;
    *out = e;
    return fake_end(r);
}

/* With waits for it pending it is fine: they are for what was queued when they were queued. */
API cuEventDestroy_v2(CUevent handle)
{
    CUresult fault = fake_begin("cuEventDestroy_v2", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUevent e = live_event("cuEventDestroy_v2", handle);
    if (!e)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    for (CUevent *at = &fake.events; *at; at = &(*at)->next)
        if (*at == e) {
            *at = e->next;
            break;
        }
    free(e);
    return fake_end(fault);
}

API cuEventRecord(CUevent handle, CUstream stream)
{
    CUresult r = fake_begin("cuEventRecord", FAKE_WORK), bad = CUDA_SUCCESS;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUstream s = fake_stream("cuEventRecord", stream, &bad);
    CUevent e = live_event("cuEventRecord", handle);
    if (!s || !e)
        return fake_end(s ? CUDA_ERROR_INVALID_HANDLE : bad);
    if (e->context != s->context)
        return fake_end(
            fake_breach(CUDA_ERROR_INVALID_HANDLE, "cuEventRecord: event and stream are of different contexts"));
    if (s->capturing)
        return fake_end(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    e->recorded = true;
    e->stream = s->id;
    e->number = fake_queue(s, FAKE_MARK)->number;
    return fake_end(CUDA_SUCCESS);
}

static CUresult wait_event(const char *call, CUevent handle)
{
    CUresult fault = fake_begin(call, FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUevent e = live_event(call, handle);
    if (!e)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    CUstream s = e->recorded ? by_id(e->stream) : NULL;
    if (s)
        fake_run(s, e->number);
    return fake_end(fault);
}

API cuEventSynchronize(CUevent handle)
{
    return wait_event("cuEventSynchronize", handle);
}

API cuEventQuery(CUevent handle)
{
    return wait_event("cuEventQuery", handle);
}

static CUresult elapsed(const char *call, float *milliseconds, CUevent start, CUevent end)
{
    CUresult r = fake_begin(call, FAKE_BOOKKEEPING);
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUevent a = live_event(call, start), b = live_event(call, end);
    if (!a || !b || !a->recorded || !b->recorded)
        return fake_end(CUDA_ERROR_INVALID_HANDLE);
    *milliseconds = 0; /* simulated time stands still */
    return fake_end(CUDA_SUCCESS);
}

#if CUDA_VERSION >= 12080
API cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    return elapsed("cuEventElapsedTime_v2", milliseconds, start, end);
}
#else
API cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    return elapsed("cuEventElapsedTime", milliseconds, start, end);
}
#endif

API cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned flags)
{
    CUresult r = fake_begin("cuStreamWaitEvent", FAKE_WORK), bad = CUDA_SUCCESS;
    (void)flags;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    CUstream s = fake_stream("cuStreamWaitEvent", stream, &bad);
    CUevent e = live_event("cuStreamWaitEvent", handle);
    if (!s || !e)
        return fake_end(s ? CUDA_ERROR_INVALID_HANDLE : bad);
    if (e->recorded) {
        fake_queue(s, FAKE_MARK);
        fake_wait_for(s, e->stream, e->number);
    }
    return fake_end(CUDA_SUCCESS);
}
