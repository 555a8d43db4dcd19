/* device/cuda_driver.h - the CUDA driver as this library sees it: loaded at run time, its functions in one table, the
 * devices' primary contexts entered and left. Everything is process-wide and set once.
 *
 * Built only where cuda.h is (HAVE_CUDA_H). Nothing here links with libcuda. */
#ifndef CKPT_CUDA_DRIVER_H
#define CKPT_CUDA_DRIVER_H
#ifdef HAVE_CUDA_H
#include <cuda.h>
#include "device/cuda_symbols.h"
#include "device/device.h"

/* The driver's functions by name (cuda_symbols.h has the list), each found with dlsym. One for the process, never freed. */
typedef struct ckpt__cuda_driver {
#define CKPT__CUDA_FIELD(name) __typeof__(name) *name;
    CKPT__CUDA_SYMBOLS(CKPT__CUDA_FIELD)
#undef CKPT__CUDA_FIELD
    int count;      /* devices; 0 until initialised, and where the driver refuses */
    bool simulated; /* the tests' stand-in */
} ckpt__cuda_driver;

/* The driver, loaded and initialised on the first call. NULL where it cannot be used (no library, a stub, a driver that
 * refuses, no device): then *why (may be NULL) is one static line that says so and what to do. */
const ckpt__cuda_driver *ckpt__cuda_get(const char **why);

/* The driver if this process has the library loaded already (by us or by the program), else NULL. Initialises nothing:
 * calls may answer CUDA_ERROR_NOT_INITIALIZED. */
const ckpt__cuda_driver *ckpt__cuda_loaded(void);

/* Was CUDA initialised by this library in the process that we were forked from? Its calls cannot work here. */
bool ckpt__cuda_forked(void);

/* Makes the device's primary context current, on top of the caller's; ckpt__cuda_leave takes it off again. After a
 * failed enter there is nothing to leave. The primary context is retained on first use and for the life of the process:
 * releasing the last reference would destroy the caller's allocations. */
ckpt_status ckpt__cuda_enter(int ordinal, ckpt_error *err);

/* The same with any context that is at hand, for calls that need one and do not care which: one that we hold, else the
 * caller's current one, and only when there is neither that of cuda:0 (a context costs hundreds of MB of device
 * memory, which must not be spent on a device that the program does not use). */
ckpt_status ckpt__cuda_enter_any(ckpt_error *err);

/* Returns status, or the failure to leave where status is CKPT_OK. */
ckpt_status ckpt__cuda_leave(ckpt_status status, ckpt_error *err);

/* The primary context of a device that has been entered before. */
CUcontext ckpt__cuda_context(int ordinal);

/* CKPT_E_DEVICE about "cuda:<ordinal>": "<call>: <CUDA_ERROR_...>: <what>; <hint>". The ordinal may be -1. */
ckpt_status ckpt__cuda_fail(ckpt_error *err, int ordinal, CUresult result, const char *call, const char *format, ...)
    CKPT__PRINTF(5, 6);

/* CKPT_E_ARGUMENT: a handle (`what`) of cuda:<other> came with cuda:<ordinal>. */
ckpt_status ckpt__cuda_wrong_device(ckpt_error *err, int ordinal, const char *what, int other);

/* The parts of the vtable that are not in cuda.c. */
extern const ckpt__device_ops ckpt__cuda_ops;
ckpt_status ckpt__cuda_follow(ckpt__stream *ours, void *callers_stream, ckpt_error *err);
ckpt_status ckpt__cuda_precede(ckpt__stream *ours, void *callers_stream, ckpt_error *err);
ckpt_status ckpt__cuda_synchronize(int ordinal, ckpt_error *err);
ckpt_status ckpt__cuda_host_alloc(size_t size, void **out, ckpt_error *err);
void ckpt__cuda_host_free(void *data);
ckpt_status ckpt__cuda_query(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err);
#endif
#endif
