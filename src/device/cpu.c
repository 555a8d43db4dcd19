/* device/cpu.c - the vtable of the host: everything is done at once, so streams and events only exist. */
#include "device/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIGNMENT = 64 }; /* a cache line, and what the widest vector loads ask for */

static ckpt_status cpu_count(int *count, const char **why, ckpt_error *err)
{
    (void)err;
    *count = 1;
    if (why)
        *why = NULL;
    return CKPT_OK;
}

static ckpt_status cpu_info(int ordinal, char *buf, size_t size, uint64_t *free_bytes, uint64_t *total_bytes,
                            bool *simulated, ckpt_error *err)
{
    long page = sysconf(_SC_PAGESIZE), unused = sysconf(_SC_AVPHYS_PAGES), total = sysconf(_SC_PHYS_PAGES);
    (void)ordinal;
    (void)err;
    if (buf && size)
        snprintf(buf, size, "host memory");
    if (free_bytes)
        *free_bytes = page > 0 && unused > 0 ? (uint64_t)page * (uint64_t)unused : 0;
    if (total_bytes)
        *total_bytes = page > 0 && total > 0 ? (uint64_t)page * (uint64_t)total : 0;
    if (simulated)
        *simulated = false;
    return CKPT_OK;
}

static ckpt_status cpu_host_alloc(size_t size, void **out, ckpt_error *err)
{
    /* aligned_alloc wants a multiple of the alignment, and a size of 0 must still give a pointer of its own. */
    size_t rounded = ((size ? size : 1) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    *out = size <= PTRDIFF_MAX - ALIGNMENT ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    return *out ? CKPT_OK : ckpt__fail_memory(err, "cpu", size);
}

static void cpu_host_free(void *data)
{
    free(data);
}

static ckpt_status cpu_alloc(int ordinal, size_t size, void **out, ckpt_error *err)
{
    (void)ordinal;
    return cpu_host_alloc(size, out, err);
}

static ckpt_status cpu_release(int ordinal, void *data, ckpt_error *err)
{
    (void)ordinal;
    (void)err;
    free(data);
    return CKPT_OK;
}

static ckpt_status cpu_zero(int ordinal, void *data, size_t size, ckpt__stream *stream, ckpt_error *err)
{
    (void)ordinal;
    (void)stream;
    (void)err;
    if (size)
        memset(data, 0, size);
    return CKPT_OK;
}

static ckpt_status cpu_stream_new(int ordinal, ckpt__stream **out, ckpt_error *err)
{
    (void)ordinal;
    *out = malloc(sizeof **out);
    if (!*out)
        return ckpt__fail_memory(err, "stream", sizeof **out);
    **out = (ckpt__stream){CKPT_DEVICE_CPU, -1, NULL};
    return CKPT_OK;
}

static void cpu_stream_free(ckpt__stream *stream)
{
    free(stream);
}

static ckpt_status cpu_stream_sync(ckpt__stream *stream, ckpt_error *err)
{
    (void)stream;
    (void)err;
    return CKPT_OK;
}

/* memmove, not memcpy: source and destination may be the same buffer of a caller. */
static ckpt_status cpu_copy(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err)
{
    (void)stream;
    (void)err;
    if (n)
        memmove(dst, src, n);
    return CKPT_OK;
}

static ckpt_status cpu_between(int dst_ordinal, void *dst, int src_ordinal, const void *src, size_t n, ckpt_error *err)
{
    (void)dst_ordinal;
    (void)src_ordinal;
    return cpu_copy(NULL, dst, src, n, err);
}

static ckpt_status cpu_2d(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                          size_t width, size_t rows, ckpt_error *err)
{
    if (rows > 1 && (width > dst_pitch || width > src_pitch))
        return ckpt__fail(err, CKPT_E_ARGUMENT, "cpu", "rows of %zu bytes overlap at pitches of %zu and %zu", width,
                          dst_pitch, src_pitch);
    for (size_t i = 0; i < rows; i++)
        cpu_copy(stream, (char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width, err);
    return CKPT_OK;
}

static ckpt_status cpu_event_new(int ordinal, ckpt__event **out, ckpt_error *err)
{
    (void)ordinal;
    *out = malloc(sizeof **out);
    if (!*out)
        return ckpt__fail_memory(err, "event", sizeof **out);
    **out = (ckpt__event){CKPT_DEVICE_CPU, -1, NULL};
    return CKPT_OK;
}

static void cpu_event_free(ckpt__event *event)
{
    free(event);
}

static ckpt_status cpu_event_record(ckpt__event *event, ckpt__stream *stream, ckpt_error *err)
{
    (void)event;
    return cpu_stream_sync(stream, err);
}

static ckpt_status cpu_event_wait(ckpt__event *event, ckpt_error *err)
{
    (void)event;
    (void)err;
    return CKPT_OK;
}

static ckpt_status cpu_order(ckpt__stream *ours, void *callers_stream, ckpt_error *err)
{
    (void)callers_stream;
    return cpu_stream_sync(ours, err);
}

static ckpt_status cpu_synchronize(int ordinal, ckpt_error *err)
{
    (void)ordinal;
    (void)err;
    return CKPT_OK;
}

static ckpt_status cpu_query(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err)
{
    (void)data;
    (void)size;
    (void)err;
    *out = (ckpt_memory){CKPT_MEMORY_HOST, ckpt_cpu()};
    *known = (ckpt__known){.begin = 0};
    return CKPT_OK;
}

const ckpt__device_ops ckpt__cpu_ops = {
    .type = CKPT_DEVICE_CPU,
    .name = "cpu",
    .count = cpu_count,
    .info = cpu_info,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .zero = cpu_zero,
    .stream_new = cpu_stream_new,
    .stream_free = cpu_stream_free,
    .stream_sync = cpu_stream_sync,
    .to_device = cpu_copy,
    .to_host = cpu_copy,
    .on_device = cpu_copy,
    .between = cpu_between,
    .to_device_2d = cpu_2d,
    .to_host_2d = cpu_2d,
    .event_new = cpu_event_new,
    .event_free = cpu_event_free,
    .event_record = cpu_event_record,
    .event_wait = cpu_event_wait,
    .follow = cpu_order,
    .precede = cpu_order,
    .synchronize = cpu_synchronize,
    .host_alloc = cpu_host_alloc,
    .host_free = cpu_host_free,
    .query = cpu_query,
};
