/* ckpt/device.h - devices and device tags. */
#ifndef CKPT_DEVICE_H
#define CKPT_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>

CKPT_BEGIN_DECLS

typedef enum ckpt_device_type {
    CKPT_DEVICE_NONE = 0, /* not said */
    CKPT_DEVICE_CPU,
    CKPT_DEVICE_CUDA,
    CKPT_DEVICE_META,  /* a tensor without data */
    CKPT_DEVICE_OTHER, /* of no name that is known here */
    /* torch's further devices: tags that files carry and that rules give. No tensor is placed there by this library. */
    CKPT_DEVICE_MPS,
    CKPT_DEVICE_XPU,
    CKPT_DEVICE_NPU,
    CKPT_DEVICE_HPU,
    CKPT_DEVICE_MTIA,
    CKPT_DEVICE_PRIVATEUSEONE
} ckpt_device_type;

/* index: 0.. for cuda and the further ones; -1 where the tag had none (cpu and mps always). The struct never grows. */
typedef struct ckpt_device {
    ckpt_device_type type;
    int32_t index;
} ckpt_device;

enum { CKPT_DEVICE_NAME_MAX = 32 }; /* bytes of a device's name with its NUL; never changes */

ckpt_device ckpt_cpu(void);
ckpt_device ckpt_cuda(int index);
bool ckpt_device_equal(ckpt_device a, ckpt_device b);

/* Reads a target device as a user writes it: "cpu" or "cuda:N". Diagnoses torch's traps, each with what to write
 * instead: "cuda" without index (CKPT_E_ARGUMENT; write cuda:0), "cpu:0", "CPU", "cuda:-1", "gpu:0", "cuda:01". */
ckpt_status ckpt_device_parse(const char *text, ckpt_device *out, ckpt_error *err);

/* Writes "cpu", "cuda:3", "xpu:0", "mps", "meta", "other" or "none" into buf (CKPT_DEVICE_NAME_MAX bytes) and returns buf. */
char *ckpt_device_name(ckpt_device device, char *buf);

/* How many devices of a type there are. CUDA: loads libcuda.so.1 on first use; a missing driver, a stub or a driver
 * that refuses is *count = 0 with CKPT_OK, and the reason (one line, static) in *why unless why is NULL. */
ckpt_status ckpt_device_count(ckpt_device_type type, int *count, const char **why, ckpt_error *err);

/* CKPT_OK if the device is there; otherwise CKPT_E_DEVICE, and the message says how many there are. */
ckpt_status ckpt_device_check(ckpt_device device, ckpt_error *err);

/* "NVIDIA H200", "simulated device 1"; written into buf, always terminated. free/total memory in bytes; NULL: not
 * asked. *simulated: true on the test stand-in. */
ckpt_status ckpt_device_info(ckpt_device device, char *buf, size_t size, uint64_t *free_bytes, uint64_t *total_bytes,
                             bool *simulated, ckpt_error *err);

/* Where a pointer lies, asked of the driver (never of a tag). */
typedef enum ckpt_memory_kind {
    CKPT_MEMORY_HOST = 0, /* pageable, or unknown to the driver */
    CKPT_MEMORY_PINNED,   /* page-locked host memory: counts as cpu */
    CKPT_MEMORY_DEVICE,   /* device memory of `device` */
    CKPT_MEMORY_MANAGED,  /* managed (unified): no fixed device */
    CKPT_MEMORY_SPLIT,    /* first and last byte differ in kind, device or allocation */
    CKPT_MEMORY_UNMAPPED  /* a device address outside any live allocation */
} ckpt_memory_kind;

/* The struct never grows. */
typedef struct ckpt_memory {
    ckpt_memory_kind kind;
    ckpt_device device; /* cpu for host and pinned; the owner for device memory */
} ckpt_memory;

ckpt_status ckpt_device_query(const void *data, size_t size, ckpt_memory *out, ckpt_error *err);

CKPT_END_DECLS
#endif
