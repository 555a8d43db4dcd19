/* tests/fakecuda/fake_memory.c - device memory (a memfd mapped twice: without access at the addresses that the program
 * gets, with access inside), page-locked host memory, managed memory, and what a pointer is. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FRESH 0xff

/* ---- blocks */

static fake_block *find_in(fake_block *list, uint64_t p, size_t n)
{
    for (fake_block *b = list; b; b = b->next)
        if (p >= b->base && p - b->base < b->size && n <= b->size - (p - b->base))
            return b;
    return NULL;
}

static int device_of(uint64_t p)
{
    for (int i = 0; i < fake.devices; i++)
        if (fake.device[i].outer && p - (uint64_t)(uintptr_t)fake.device[i].outer < fake.memory)
            return i;
    return -1;
}

bool fake_in_device(uint64_t p)
{
    return device_of(p) >= 0;
}

fake_block *fake_find(uint64_t p, size_t n)
{
    int ordinal = device_of(p);
    return find_in(ordinal >= 0 ? fake.device[ordinal].blocks : fake.host, p, n);
}

void *fake_touch(uint64_t p)
{
    int ordinal = device_of(p);
    if (ordinal < 0)
        return (void *)(uintptr_t)p;
    return fake.device[ordinal].inner + (p - (uint64_t)(uintptr_t)fake.device[ordinal].outer);
}

CUresult fake_check_device(const char *call, CUcontext context, uint64_t p, size_t n)
{
    unsigned long long at = p;
    const fake_block *b = fake_find(p, n), *in = b ? b : fake_find(p, 1);
    if (!in)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes at %#llx are in no live allocation of a device",
                           call, n, at);
    if (in->kind != FAKE_DEVICE && in->kind != FAKE_MANAGED)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s: %#llx is %s", call, at,
                           in->kind == FAKE_RESERVED ? "reserved, and nothing is mapped there" : "host memory");
    /* Pieces of one reservation that follow each other are one buffer. */
    for (uint64_t end = p + n; !b && in->kind == FAKE_DEVICE && in->base + in->size < end;) {
        const fake_block *after = fake_find(in->base + in->size, 1);
        if (!after || after->range != in->range || after->kind != FAKE_DEVICE)
            return fake_breach(CUDA_ERROR_INVALID_VALUE,
                               "%s: %zu bytes at %#llx reach past their allocation of %zu bytes at "
                               "%#llx",
                               call, n, at, in->size, (unsigned long long)in->base);
        in = after;
    }
    if (in->kind == FAKE_DEVICE && in->ordinal != context->ordinal)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s: %#llx is memory of cuda:%d, in a context of cuda:%d", call,
                           at, in->ordinal, context->ordinal);
    return CUDA_SUCCESS;
}

static fake_block *block_new(fake_kind kind, int ordinal, uint64_t base, size_t size, CUcontext context)
{
    fake_block *b = fake_alloc(sizeof *b);
    b->kind = kind;
    b->ordinal = ordinal;
    b->base = b->range = base;
    b->size = size;
    b->context = context;
    return b;
}

static void unlink_block(fake_block *block)
{
    fake_block **at =
        block->kind == FAKE_DEVICE || block->kind == FAKE_RESERVED ? &fake.device[block->ordinal].blocks : &fake.host;
    while (*at && *at != block)
        at = &(*at)->next;
    if (*at)
        *at = block->next;
}

static size_t page_round(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

/* ---- device memory */

static bool device_map(fake_device *d)
{
    if (d->outer)
        return true;
    d->fd = memfd_create("fakecuda", MFD_CLOEXEC);
    if (d->fd < 0 || ftruncate(d->fd, (off_t)fake.memory) < 0)
        fake_die("no memfd of %zu bytes for a device", fake.memory);
    void *outer = mmap(NULL, fake.memory, PROT_NONE, MAP_SHARED | MAP_NORESERVE, d->fd, 0);
    void *inner = mmap(NULL, fake.memory, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, d->fd, 0);
    if (outer == MAP_FAILED || inner == MAP_FAILED)
        fake_die("no addresses for %zu bytes of a device: set FAKECUDA_MEMORY lower", fake.memory);
    d->outer = outer;
    d->inner = inner;
    d->cursor = (uint64_t)(uintptr_t)outer;
    return true;
}

static uint64_t round_up(uint64_t n)
{
    return (n + FAKE_ALIGNMENT - 1) / FAKE_ALIGNMENT * FAKE_ALIGNMENT;
}

/* The first gap of `size` bytes at or after `from`; 0: none. *link is where the block goes in the list. */
static uint64_t gap(fake_device *d, uint64_t from, size_t size, fake_block ***link)
{
    uint64_t at = from, end = (uint64_t)(uintptr_t)d->outer + fake.memory;
    fake_block **l = &d->blocks;
    for (; *l; l = &(*l)->next) {
        uint64_t after = round_up((*l)->base + (*l)->size);
        if ((*l)->base >= at && (*l)->base - at >= size)
            break;
        if (after > at)
            at = after;
    }
    *link = l;
    return at < end && end - at >= size ? at : 0;
}

static fake_block *device_alloc(int ordinal, size_t size, CUcontext context)
{
    fake_device *d = &fake.device[ordinal];
    fake_block **link;
    if (size == 0 || size > fake.memory || !device_map(d))
        return NULL;
    uint64_t base = gap(d, d->cursor, round_up(size), &link);
    if (!base)
        base = gap(d, (uint64_t)(uintptr_t)d->outer, round_up(size), &link);
    if (!base)
        return NULL;
    fake_block *b = block_new(FAKE_DEVICE, ordinal, base, size, context);
    b->next = *link;
    *link = b;
    d->cursor = base + round_up(size);
    memset(fake_touch(base), FRESH, size);
    return b;
}

static void device_free(fake_block *b)
{
    fake_device *d = &fake.device[b->ordinal];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t offset = b->base - (uint64_t)(uintptr_t)d->outer, first = (offset + page - 1) / page * page;
    uint64_t last = (offset + b->size) / page * page;
    memset(fake_touch(b->base), FRESH, first > offset && first - offset < b->size ? first - offset : 0);
    if (last > first)
        madvise(d->inner + first, last - first, MADV_REMOVE); /* gives the memory back, and the bytes are gone */
    unlink_block(b);
    free(b);
}

API cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
    CUresult r = fake_begin("cuMemAlloc_v2", FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuMemAlloc_v2") : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && size == 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    const fake_block *b = device_alloc(current->ordinal, size, current);
    *out = b ? b->base : 0;
    return fake_end(b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

static CUresult free_block(const char *call, uint64_t p, bool managed_too)
{
    CUcontext current = fake_current(call);
    fake_block *b = fake_find(p, 1);
    unsigned long long at = p;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!b || b->base != p || (b->kind != FAKE_DEVICE && !(managed_too && b->kind == FAKE_MANAGED)))
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s of %#llx, which is no live allocation", call, at);
    if (b->range != b->base)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s of %#llx, which was mapped, not allocated", call, at);
    if (b->kind == FAKE_DEVICE && b->ordinal != current->ordinal)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s of %#llx: memory of cuda:%d, in a context of cuda:%d", call,
                           at, b->ordinal, current->ordinal);
    if (fake_pending(b->base, b->size)) {
        fake_breach(CUDA_SUCCESS, "%s of %#llx with work pending on it", call, at);
        fake_run_all();
    }
    if (b->kind == FAKE_DEVICE)
        device_free(b);
    else {
        munmap((void *)(uintptr_t)b->base, page_round(b->size));
        unlink_block(b);
        free(b);
    }
    return CUDA_SUCCESS;
}

API cuMemFree_v2(CUdeviceptr p)
{
    CUresult fault = fake_begin("cuMemFree_v2", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    CUresult r = p ? free_block("cuMemFree_v2", p, true) : CUDA_SUCCESS;
    return fake_end(fault != CUDA_SUCCESS ? fault : r);
}

API cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    CUresult r = fake_begin("cuMemGetInfo_v2", FAKE_BOOKKEEPING);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuMemGetInfo_v2") : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    *total = *unused = fake.memory;
    for (const fake_block *b = fake.device[current->ordinal].blocks; b; b = b->next)
        *unused -= b->kind == FAKE_DEVICE ? round_up(b->size) : 0;
    return fake_end(r);
}

/* ---- segments */

uint64_t fakecuda_map_segments(int ordinal, const size_t *sizes, const int *mapped, size_t count)
{
    size_t total = 0;
    uint64_t base = 0;
    fake_lock();
    for (size_t i = 0; i < count; i++)
        total += round_up(sizes[i]);
    fake_block *whole = ordinal < fake.devices ? device_alloc(ordinal, total, fake.device[ordinal].primary) : NULL;
    if (whole) {
        base = whole->base;
        fake_block *before = whole;
        for (size_t i = 0, at = 0; i < count; at += round_up(sizes[i]), i++) {
            fake_block *b = i ? block_new(FAKE_DEVICE, ordinal, base + at, 0, whole->context) : whole;
            b->kind = !mapped || mapped[i] ? FAKE_DEVICE : FAKE_RESERVED;
            b->size = round_up(sizes[i]);
            b->range = base;
            if (i) {
                b->next = before->next;
                before->next = b;
            }
            before = b;
        }
    }
    fake_unlock();
    return base;
}

void fakecuda_unmap_segments(uint64_t base)
{
    fake_lock();
    int ordinal = device_of(base);
    if (ordinal < 0)
        fake_die("fakecuda_unmap_segments of what is no reservation");
    for (fake_block *b = fake.device[ordinal].blocks, *next; b; b = next) {
        next = b->next;
        if (b->range == base)
            device_free(b);
    }
    fake_unlock();
}

void *fakecuda_peek(uint64_t p)
{
    fake_lock();
    void *at = fake_find(p, 1) ? fake_touch(p) : NULL;
    fake_unlock();
    return at;
}

/* ---- host and managed memory */

static CUresult host_block(const char *call, fake_kind kind, size_t size, void **out)
{
    CUresult r = fake_begin(call, FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current(call) : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS && size == 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    void *p = size > SIZE_MAX / 2
                  ? MAP_FAILED
                  : mmap(NULL, page_round(size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
    memset(p, FRESH, size);
    fake_block *b = block_new(kind, current->ordinal, (uint64_t)(uintptr_t)p, size, current);
    b->next = fake.host;
    fake.host = b;
    *out = p;
    return fake_end(CUDA_SUCCESS);
}

API cuMemHostAlloc(void **out, size_t size, unsigned flags)
{
    (void)flags;
    return host_block("cuMemHostAlloc", FAKE_HOST, size, out);
}

API cuMemAllocHost_v2(void **out, size_t size)
{
    return host_block("cuMemAllocHost_v2", FAKE_HOST, size, out);
}

API cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned flags)
{
    void *p = NULL;
    (void)flags;
    CUresult r = host_block("cuMemAllocManaged", FAKE_MANAGED, size, &p);
    if (r == CUDA_SUCCESS)
        *out = (CUdeviceptr)(uintptr_t)p;
    return r;
}

static CUresult host_drop(const char *call, void *p, fake_kind kind)
{
    fake_block *b = find_in(fake.host, (uint64_t)(uintptr_t)p, 1);
    if (!b || b->base != (uint64_t)(uintptr_t)p || b->kind != kind)
        return fake_breach(CUDA_ERROR_INVALID_VALUE, "%s of %p, which is no such memory", call, p);
    if (fake_pending(b->base, b->size)) {
        fake_breach(CUDA_SUCCESS, "%s of %p with work pending on it", call, p);
        fake_run_all();
    }
    if (kind == FAKE_HOST)
        munmap(p, page_round(b->size));
    unlink_block(b);
    free(b);
    return CUDA_SUCCESS;
}

API cuMemFreeHost(void *p)
{
    CUresult fault = fake_begin("cuMemFreeHost", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    if (!fake_current("cuMemFreeHost"))
        return fake_end(CUDA_ERROR_INVALID_CONTEXT);
    CUresult r = host_drop("cuMemFreeHost", p, FAKE_HOST);
    return fake_end(fault != CUDA_SUCCESS ? fault : r);
}

API cuMemHostRegister_v2(void *p, size_t size, unsigned flags)
{
    CUresult r = fake_begin("cuMemHostRegister_v2", FAKE_WORK);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuMemHostRegister_v2") : NULL;
    uint64_t base = (uint64_t)(uintptr_t)p;
    (void)flags;
    if (r == CUDA_SUCCESS && (!current || !p || !size))
        r = current ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
    for (const fake_block *b = fake.host; r == CUDA_SUCCESS && b; b = b->next)
        if (b->base < base + size && base < b->base + b->size)
            r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (r == CUDA_SUCCESS) {
        fake_block *b = block_new(FAKE_REGISTERED, current->ordinal, base, size, current);
        b->next = fake.host;
        fake.host = b;
    }
    return fake_end(r);
}

API cuMemHostUnregister(void *p)
{
    CUresult fault = fake_begin("cuMemHostUnregister", FAKE_WORK);
    if (fault == CUDA_ERROR_NOT_INITIALIZED)
        return fake_end(fault);
    if (!fake_current("cuMemHostUnregister"))
        return fake_end(CUDA_ERROR_INVALID_CONTEXT);
    CUresult r = host_drop("cuMemHostUnregister", p, FAKE_REGISTERED);
    return fake_end(fault != CUDA_SUCCESS ? fault : r);
}

API cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
    (void)flags;
    CUresult r = fake_begin("cuMemHostGetDevicePointer_v2", FAKE_BOOKKEEPING);
    if (r == CUDA_SUCCESS && !find_in(fake.host, (uint64_t)(uintptr_t)p, 1))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *out = (CUdeviceptr)(uintptr_t)p;
    return fake_end(r);
}

static void drop_from(fake_block *list, CUcontext context)
{
    for (fake_block *b = list, *next; b; b = next) {
        next = b->next;
        if (b->context != context)
            continue;
        if (b->kind == FAKE_DEVICE || b->kind == FAKE_RESERVED)
            device_free(b);
        else {
            if (b->kind != FAKE_REGISTERED)
                munmap((void *)(uintptr_t)b->base, page_round(b->size));
            unlink_block(b);
            free(b);
        }
    }
}

void fake_drop_context_memory(CUcontext context)
{
    drop_from(fake.device[context->ordinal].blocks, context);
    drop_from(fake.host, context);
}

/* ---- what a pointer is */

static bool attribute(CUpointer_attribute name, const fake_block *b, void *value)
{
    switch ((int)name) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)value = b ? b->context : NULL;
        return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)value = !b                                                   ? 0
                             : b->kind == FAKE_HOST || b->kind == FAKE_REGISTERED ? CU_MEMORYTYPE_HOST
                                                                                  : CU_MEMORYTYPE_DEVICE;
        return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)value = b && b->kind == FAKE_MANAGED;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)value = b ? b->ordinal : -2;
        return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned *)value = b && b->kind != FAKE_RESERVED;
        return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)value = b ? b->range : 0;
        return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)value = b ? b->base : 0;
        return true;
    }
    return false;
}

API cuPointerGetAttributes(unsigned count, CUpointer_attribute *names, void **values, CUdeviceptr p)
{
    CUresult r = fake_begin("cuPointerGetAttributes", FAKE_BOOKKEEPING);
    const fake_block *b = r == CUDA_SUCCESS ? fake_find(p, 1) : NULL;
    for (unsigned i = 0; r == CUDA_SUCCESS && i < count; i++)
        if (!attribute(names[i], b, values[i]))
            r = CUDA_ERROR_NOT_SUPPORTED;
    return fake_end(r);
}

API cuPointerGetAttribute(void *value, CUpointer_attribute name, CUdeviceptr p)
{
    CUresult r = fake_begin("cuPointerGetAttribute", FAKE_BOOKKEEPING);
    const fake_block *b = r == CUDA_SUCCESS ? fake_find(p, 1) : NULL;
    if (r == CUDA_SUCCESS && (!b || !attribute(name, b, value)))
        r = CUDA_ERROR_INVALID_VALUE;
    return fake_end(r);
}

/* Only what the current context's device can see: the strictest reading of the manual. */
API cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
    CUresult r = fake_begin("cuMemGetAddressRange_v2", FAKE_BOOKKEEPING);
    CUcontext current = r == CUDA_SUCCESS ? fake_current("cuMemGetAddressRange_v2") : NULL;
    const fake_block *b = current ? fake_find(p, 1) : NULL;
    if (r == CUDA_SUCCESS && !current)
        r = CUDA_ERROR_INVALID_CONTEXT;
    if (r == CUDA_SUCCESS &&
        (!b || b->kind == FAKE_RESERVED || (b->kind == FAKE_DEVICE && b->ordinal != current->ordinal)))
        r = CUDA_ERROR_NOT_FOUND;
    if (r != CUDA_SUCCESS)
        return fake_end(r);
    if (base)
        *base = b->base;
    if (size)
        *size = b->size;
    return fake_end(r);
}
