/* device/device.h - the device vtable. One visible table in device/device_table.c; cpu.c and cuda.c fill it. All
 * functions return a status and fill err; no function changes the caller's current context. `ordinal` is the index of
 * the device (cuda:N). Pointers to device memory are plain void * (CUdeviceptr values). */
#ifndef CKPT_DEVICE_INTERNAL_H
#define CKPT_DEVICE_INTERNAL_H
#include <ckpt/device.h>
#include "base/base.h"

typedef struct ckpt__stream ckpt__stream; /* one of our own queues on a device */
typedef struct ckpt__event ckpt__event;

/* One live allocation of a device, of which a query has told: what lies in it all lies there, without asking again. begin = end = 0: none
 * is known. Good for as long as the program frees nothing, which it does not during a call of ours. */
typedef struct ckpt__known {
    uintptr_t begin, end;
    ckpt_memory memory; /* what a query says of any bytes of it */
} ckpt__known;

/* What a kind of device can do. A new kind fills one of these. Some rooms above still compare a device with CKPT_DEVICE_CUDA:
 * HACKING, section 5, names them. All sizes are bytes. */
typedef struct ckpt__device_ops {
    ckpt_device_type type;
    const char *name; /* "cuda"; static */
    /* Loads the driver on first use; see ckpt_device_count. */
    ckpt_status (*count)(int *count, const char **why, ckpt_error *err);
    ckpt_status (*info)(int ordinal, char *buf, size_t size, uint64_t *free_bytes, uint64_t *total_bytes,
                        bool *simulated, ckpt_error *err);
    ckpt_status (*alloc)(int ordinal, size_t size, void **out, ckpt_error *err); /* size 0 gives a distinct non-NULL */
    ckpt_status (*release)(int ordinal, void *data, ckpt_error *err);            /* accepts NULL */
    /* stream NULL: done when it returns. */
    ckpt_status (*zero)(int ordinal, void *data, size_t size, ckpt__stream *stream, ckpt_error *err);

    /* Our own stream (non-blocking). */
    ckpt_status (*stream_new)(int ordinal, ckpt__stream **out, ckpt_error *err);
    void (*stream_free)(ckpt__stream *stream); /* waits first; accepts NULL */
    ckpt_status (*stream_sync)(ckpt__stream *stream, ckpt_error *err);
    /* Asynchronous on stream. Host memory must be from host_alloc (or be page-locked) until the stream is past it. */
    ckpt_status (*to_device)(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err);
    ckpt_status (*to_host)(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err);
    ckpt_status (*on_device)(ckpt__stream *stream, void *dst, const void *src, size_t n, ckpt_error *err);
    ckpt_status (*between)(int dst_ordinal, void *dst, int src_ordinal, const void *src, size_t n,
                           ckpt_error *err); /* synchronous */
    /* Strided, through kernels or 2D copies: rows of `width` bytes. Optional: NULL, and then the caller loops. */
    ckpt_status (*to_device_2d)(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                                size_t width, size_t rows, ckpt_error *err);
    ckpt_status (*to_host_2d)(ckpt__stream *stream, void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t rows, ckpt_error *err);

    ckpt_status (*event_new)(int ordinal, ckpt__event **out, ckpt_error *err);
    void (*event_free)(ckpt__event *event);
    ckpt_status (*event_record)(ckpt__event *event, ckpt__stream *stream, ckpt_error *err);
    ckpt_status (*event_wait)(ckpt__event *event, ckpt_error *err); /* the host waits */

    /* The caller's stream (CUstream; NULL: the legacy default stream of the device's primary context): ours waits for
     * what is queued there now / it waits for what is queued on ours. A stream of another device, or one that is being
     * captured into a graph, is CKPT_E_ARGUMENT. */
    ckpt_status (*follow)(ckpt__stream *ours, void *callers_stream, ckpt_error *err);
    ckpt_status (*precede)(ckpt__stream *ours, void *callers_stream, ckpt_error *err);
    /* The device's primary context, and the caller's current one where that is another of the same device. */
    ckpt_status (*synchronize)(int ordinal, ckpt_error *err);

    /* Page-locked host memory usable with every device of this type. Ask after stream_new: it then uses the context
     * that is there, instead of making one on cuda:0. */
    ckpt_status (*host_alloc)(size_t size, void **out, ckpt_error *err);
    void (*host_free)(void *data);

    /* MANAGED, SPLIT and UNMAPPED give the device NONE. Host memory that is page-locked only in part is HOST; size 0
     * asks about the address alone, and is never UNMAPPED. */
    ckpt_status (*query)(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err);
} ckpt__device_ops;

const ckpt__device_ops *ckpt__device_ops_of(ckpt_device_type type); /* NULL where there is none */

/* ckpt_device_query, which asks the driver only where the bytes do not lie in what is known; then that is what is known. */
ckpt_status ckpt__device_query(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err);

/* Does any cuda state exist in this process yet (has the driver been loaded and initialised by a plan or by the user)?
 * query() on host pointers asks the driver only then, or when the caller's process has libcuda loaded already. */
bool ckpt__cuda_active(void);

/* A stream of the program that called us, and the device it is on: our copies order themselves with it. */
typedef struct ckpt__caller_stream {
    ckpt_device device;
    void *stream;
} ckpt__caller_stream;
typedef struct ckpt__caller_streams {
    const ckpt__caller_stream *streams;
    size_t count;
} ckpt__caller_streams;
#endif
