/* tests/fakecuda/fake.h - what the files of the stand-in share. One lock over everything: it is about being right, not
 * fast. A function of the driver begins with fake_begin and returns through fake_end. */
#ifndef FAKE_H
#define FAKE_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include "fakecuda.h"

#define API FAKECUDA_EXPORT CUresult CUDAAPI

enum { FAKE_DEVICES_MAX = 64, FAKE_STACK_MAX = 256, FAKE_ALIGNMENT = 512 };

typedef enum fake_kind { FAKE_DEVICE, FAKE_MANAGED, FAKE_HOST, FAKE_REGISTERED, FAKE_RESERVED } fake_kind;

/* A live range of memory. FAKE_RESERVED: addresses without memory. */
typedef struct fake_block {
    struct fake_block *next; /* by address, for each device; host blocks in a list of their own */
    fake_kind kind;
    int ordinal;
    uint64_t base;
    size_t size;    /* as asked for */
    uint64_t range; /* of the reservation */
    CUcontext context;
} fake_block;

typedef struct fake_device {
    int fd;
    unsigned char *outer, *inner; /* the addresses handed out, without access; and the same memory with it */
    fake_block *blocks;
    uint64_t cursor; /* the next search begins here, so that freed addresses are not reused soon */
    CUcontext primary;
} fake_device;

struct CUctx_st {
    CUcontext next;
    int ordinal;
    int retained; /* of a primary context */
    bool primary;
    CUstream legacy;
};

typedef enum fake_op_kind { FAKE_COPY, FAKE_SET, FAKE_KERNEL, FAKE_WAIT, FAKE_MARK } fake_op_kind;

typedef struct fake_op {
    struct fake_op *next;
    uint64_t number; /* over all streams, in the order of the calls */
    fake_op_kind kind;
    /* copy and set: rows of width bytes, a set writes `value` */
    uint64_t dst, src;
    size_t dst_pitch, src_pitch, width, rows;
    unsigned value;
    void *staged; /* bytes of a pageable source, taken at the call */
    /* wait: until the stream has done the operation */
    uint64_t wait_stream, wait_number;
    /* kernel */
    fakecuda_launch launch;
    fakecuda_twin twin;
    unsigned char *params; /* 16 bytes apart at least */
    void *pointers[FAKECUDA_PARAMS_MAX];
    size_t sizes[FAKECUDA_PARAMS_MAX], count;
} fake_op;

struct CUstream_st {
    CUstream next; /* the newest first */
    uint64_t id;   /* never reused, unlike the address */
    CUcontext context;
    bool blocking, legacy, capturing;
    fake_op *head, *tail;
    uint64_t last; /* number of the operation queued last */
};

struct CUevent_st {
    CUevent next;
    CUcontext context;
    bool recorded;
    uint64_t stream, number; /* the stream's id and the operation that the record stands for */
};

struct CUmod_st {
    CUmodule next;
    CUcontext context;
    CUfunction functions;
};

struct CUfunc_st {
    CUfunction next;
    CUmodule module;
    char name[128];
    fakecuda_twin twin;
    size_t sizes[FAKECUDA_PARAMS_MAX], count;
};

struct fake_state {
    bool initialised, strict, reverse, leaks;
    pid_t pid;
    int devices;
    size_t memory;
    fake_device device[FAKE_DEVICES_MAX];
    fake_block *host; /* host, registered and managed blocks */
    CUcontext contexts;
    CUstream streams;
    CUevent events;
    CUmodule modules;
    uint64_t numbers, ids;
    long pushed;
    uint64_t calls, fail_at;
    int fail_code;
    bool fail_once, failing;
    const char *failed_call;
};
extern struct fake_state fake;

/* ---- fake_state.c */
/* Locks, counts the call, and answers the fault that is due: CUDA_SUCCESS mostly. */
typedef enum fake_class { FAKE_BOOKKEEPING, FAKE_WORK } fake_class;
CUresult fake_begin(const char *call, fake_class class);
CUresult fake_end(CUresult r);
void fake_lock(void);
void fake_unlock(void);
/* A breach: ends the process; in lax mode returns code. */
CUresult fake_breach(CUresult code, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void fake_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *fake_alloc(size_t size); /* zeroed; dies without memory */
CUresult fake_start(void);     /* cuInit, once per process */

/* ---- fake_context.c */
/* The current context; NULL is a breach. */
CUcontext fake_current(const char *call);
/* NULL, or the context if it is live. */
bool fake_context_live(CUcontext context);

/* ---- fake_memory.c */
/* The block that holds n bytes at p, of any kind; NULL: none, or only in part. */
fake_block *fake_find(uint64_t p, size_t n);
/* In some device's addresses, live or not? */
bool fake_in_device(uint64_t p);
/* Where we can touch it: device memory through the inner mapping, all else as it is. */
void *fake_touch(uint64_t p);
/* The device side of a copy or kernel: in one live allocation of the context's device. */
CUresult fake_check_device(const char *call, CUcontext context, uint64_t p, size_t n);
void fake_drop_context_memory(CUcontext context);

/* ---- fake_queue.c */
/* NULL and CU_STREAM_LEGACY: the legacy stream of the current context. NULL result: *r has the error. */
CUstream fake_stream(const char *call, CUstream handle, CUresult *r);
CUstream fake_stream_new(CUcontext context, unsigned flags, bool legacy);
void fake_stream_drop(CUstream stream);
fake_op *fake_queue(CUstream stream, fake_op_kind kind);
void fake_wait_for(CUstream stream, uint64_t id, uint64_t number); /* queues a wait */
void fake_run(CUstream stream, uint64_t number);                   /* up to and with the operation */
void fake_run_context(CUcontext context);
void fake_run_all(void);
bool fake_pending(uint64_t p, size_t n); /* does queued work touch these bytes? */
void fake_execute(fake_op *op);

/* ---- fake_kernel.c */
void fake_run_kernel(const fake_op *op);
bool fake_kernel_touches(const fake_op *op, uint64_t p, size_t n);
#endif
