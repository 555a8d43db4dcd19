/* device/cuda_query.c - where does memory lie? Asked of the driver, for the first byte, the last byte, and every
 * allocation between them. */
#ifdef HAVE_CUDA_H
#include "device/cuda_driver.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct place {
    ckpt_memory_kind kind; /* HOST, PINNED, DEVICE, MANAGED or UNMAPPED */
    int ordinal;           /* of the device, where the kind is DEVICE */
    bool mapped;
    uintptr_t range;   /* start of the allocation, or of the address reservation that it is mapped into */
    ckpt__known known; /* the allocation that holds all of it; all zero: it lies in several, or nobody asked */
} place;

/* Can this process read the byte? The kernel is asked, so nothing faults. The driver knows nothing of memory that was
 * freed; its addresses stay reserved and unreadable, and that tells them from pageable host memory. Where the call is
 * forbidden (some sandboxes), the answer is yes. */
static bool readable(uintptr_t at)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)at, 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

static CUresult locate(const ckpt__cuda_driver *d, uintptr_t at, place *out)
{
    /* Booleans are written as 1 or 4 bytes, depending on the driver: all bytes are 0 before. */
    unsigned type = 0, managed = 0, mapped = 0;
    int ordinal = -1;
    CUdeviceptr range = 0;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *values[] = {&type, &ordinal, &managed, &mapped, &range};
    CUresult r = d->cuPointerGetAttributes(sizeof names / sizeof *names, names, values, (CUdeviceptr)at);
    if (r == CUDA_ERROR_NOT_INITIALIZED || r == CUDA_ERROR_INVALID_VALUE) {
        r = CUDA_SUCCESS; /* nobody has made device memory yet; or a driver that refuses foreign pointers */
        type = managed = 0;
    }
    *out = (place){.kind = CKPT_MEMORY_HOST, .ordinal = ordinal, .mapped = mapped != 0, .range = (uintptr_t)range};
    if (managed)
        out->kind = CKPT_MEMORY_MANAGED;
    else if (type == CU_MEMORYTYPE_HOST)
        out->kind = CKPT_MEMORY_PINNED;
    else if (type == CU_MEMORYTYPE_DEVICE)
        out->kind = CKPT_MEMORY_DEVICE;
    else if (!readable(at))
        out->kind = CKPT_MEMORY_UNMAPPED;
    return r;
}

/* Pointer attributes need no current context with the drivers seen so far, but may be refused without one. */
static CUresult locate_anyhow(const ckpt__cuda_driver *d, uintptr_t at, place *out)
{
    CUresult r = locate(d, at, out);
    if (r != CUDA_ERROR_INVALID_CONTEXT || !ckpt__cuda_active() || ckpt__cuda_enter_any(NULL) != CKPT_OK)
        return r;
    r = locate(d, at, out);
    ckpt__cuda_leave(CKPT_OK, NULL);
    return r;
}

typedef enum cover { WHOLE, GAP, UNKNOWN } cover;

/* Follows the allocations from the first byte to the last (inclusive). Several are fine where they were mapped side by
 * side into one reservation of addresses (growing segments); separate allocations that happen to be neighbours are
 * not one buffer. */
static cover follow(const ckpt__cuda_driver *d, place *first, uintptr_t start, uintptr_t last)
{
    for (uintptr_t at = start;;) {
        CUdeviceptr base = 0;
        size_t size = 0;
        if (d->cuMemGetAddressRange_v2(&base, &size, (CUdeviceptr)at) != CUDA_SUCCESS)
            return at == start ? UNKNOWN : GAP;
        if ((uintptr_t)base > at || size == 0 || at - (uintptr_t)base >= size)
            return UNKNOWN;
        if (last - (uintptr_t)base < size) {
            if (at == start)
                first->known = (ckpt__known){.begin = (uintptr_t)base, .end = (uintptr_t)base + size};
            return WHOLE;
        }
        at = (uintptr_t)base + size;
        place next;
        if (locate(d, at, &next) != CUDA_SUCCESS || next.kind != CKPT_MEMORY_DEVICE || next.ordinal != first->ordinal ||
            next.range != first->range)
            return GAP;
    }
}

/* In the caller's context where there is one, since it may be the only one that knows the memory; else, or where it
 * does not know it, in the primary context of the device. */
static cover covered(const ckpt__cuda_driver *d, place *first, uintptr_t start, uintptr_t last)
{
    CUcontext current = NULL;
    cover c = UNKNOWN;
    if (d->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current)
        c = follow(d, first, start, last);
    if (c == UNKNOWN && ckpt__cuda_enter(first->ordinal, NULL) == CKPT_OK) {
        c = follow(d, first, start, last);
        ckpt__cuda_leave(CKPT_OK, NULL);
    }
    return c;
}

static bool is_host(const place *p)
{
    return p->kind == CKPT_MEMORY_HOST || p->kind == CKPT_MEMORY_PINNED;
}

static ckpt_memory_kind judge(const ckpt__cuda_driver *d, place *first, const place *last, uintptr_t start,
                              uintptr_t end)
{
    if (is_host(first) && is_host(last))
        return first->kind == last->kind ? first->kind
                                         : CKPT_MEMORY_HOST; /* page-locked in part: not to be relied on */
    if (first->kind != last->kind)
        return CKPT_MEMORY_SPLIT;
    if (first->kind != CKPT_MEMORY_DEVICE)
        return first->kind;
    if (first->ordinal != last->ordinal || first->range != last->range)
        return CKPT_MEMORY_SPLIT;
    switch (covered(d, first, start, end)) {
    case WHOLE:
        return CKPT_MEMORY_DEVICE;
    case GAP:
        return CKPT_MEMORY_SPLIT;
    case UNKNOWN:
        break;
    }
    return first->mapped && last->mapped ? CKPT_MEMORY_DEVICE : CKPT_MEMORY_UNMAPPED;
}

ckpt_status ckpt__cuda_query(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err)
{
    uintptr_t start = (uintptr_t)data, end = start + (size ? size - 1 : 0);
    const ckpt__cuda_driver *d = ckpt__cuda_loaded();
    place first, last;
    *out = (ckpt_memory){CKPT_MEMORY_HOST, ckpt_cpu()};
    *known = (ckpt__known){.begin = 0};
    if (!d)
        return CKPT_OK;
    if (ckpt__cuda_forked())
        return ckpt__fail(err, CKPT_E_DEVICE, NULL,
                          "this process was forked after CUDA was initialised, and cannot ask "
                          "where memory lies: start it by exec, or fork before the first use of a device");
    CUresult r = locate_anyhow(d, start, &first);
    if (r == CUDA_SUCCESS)
        r = locate_anyhow(d, end, &last);
    if (r != CUDA_SUCCESS)
        return ckpt__cuda_fail(err, -1, r, "cuPointerGetAttributes", "the driver could not say where %p lies", data);
    if (size == 0) /* an empty tensor at the end of a buffer lies in nothing, and that is no fault */
        out->kind = first.kind == CKPT_MEMORY_UNMAPPED ? CKPT_MEMORY_HOST : first.kind;
    else
        out->kind = judge(d, &first, &last, start, end);
    if (out->kind == CKPT_MEMORY_DEVICE) {
        out->device = ckpt_cuda(first.ordinal);
        *known = first.known;
        known->memory = *out;
    } else if (out->kind != CKPT_MEMORY_HOST && out->kind != CKPT_MEMORY_PINNED)
        out->device = (ckpt_device){CKPT_DEVICE_NONE, -1};
    return CKPT_OK;
}
#else
typedef int ckpt__cuda_query_is_left_out;
#endif
