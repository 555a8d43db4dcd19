/* device/device_table.c - the one list of devices, and the public functions of <ckpt/device.h>. */
#include "device/device.h"

#include <stdio.h>

extern const ckpt__device_ops ckpt__cpu_ops;
#ifdef HAVE_CUDA_H
extern const ckpt__device_ops ckpt__cuda_ops;
#endif

static const ckpt__device_ops *const table[] = {
    &ckpt__cpu_ops,
#ifdef HAVE_CUDA_H
    &ckpt__cuda_ops,
#endif
};

#ifndef HAVE_CUDA_H
bool ckpt__cuda_active(void)
{
    return false;
}
#endif

/* Why there is no entry for a type: only cuda can be missing, by the build. */
static const char no_cuda[] = "this library was built without CUDA (cuda.h was not found): build it where the CUDA "
                              "toolkit is";

const ckpt__device_ops *ckpt__device_ops_of(ckpt_device_type type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i]->type == type)
            return table[i];
    return NULL;
}

/* ---- asking for devices */

ckpt_status ckpt_device_count(ckpt_device_type type, int *count, const char **why, ckpt_error *err)
{
    const ckpt__device_ops *ops = ckpt__device_ops_of(type);
    if (ops)
        return ops->count(count, why, err);
    *count = 0;
    if (why)
        *why = type == CKPT_DEVICE_CUDA ? no_cuda : "this library puts tensors on cpu and cuda only";
    return CKPT_OK;
}

ckpt_status ckpt_device_check(ckpt_device device, ckpt_error *err)
{
    char name[CKPT_DEVICE_NAME_MAX];
    const char *why = NULL;
    int count = 0;
    ckpt_device_name(device, name);
    if (device.type == CKPT_DEVICE_CPU)
        return CKPT_OK;
    ckpt_status s = ckpt_device_count(device.type, &count, &why, err);
    if (s != CKPT_OK)
        return s;
    if (count == 0)
        return ckpt__fail(err, CKPT_E_DEVICE, name, "no such device: %s", why ? why : "there are none");
    if (device.index >= 0 && device.index < count)
        return CKPT_OK;
    if (device.index < 0)
        return ckpt__fail(err, CKPT_E_DEVICE, name, "the index is missing; write %s:0 to %s:%d", name, name, count - 1);
    if (count == 1)
        return ckpt__fail(err, CKPT_E_DEVICE, name,
                          "no such device: there is 1, cuda:0 (CUDA_VISIBLE_DEVICES may hide "
                          "others)");
    return ckpt__fail(err, CKPT_E_DEVICE, name,
                      "no such device: there are %d, cuda:0 to cuda:%d (CUDA_VISIBLE_DEVICES "
                      "may hide others)",
                      count, count - 1);
}

ckpt_status ckpt_device_info(ckpt_device device, char *buf, size_t size, uint64_t *free_bytes, uint64_t *total_bytes,
                             bool *simulated, ckpt_error *err)
{
    if (buf && size)
        buf[0] = '\0';
    ckpt_status s = ckpt_device_check(device, err);
    if (s != CKPT_OK)
        return s;
    return ckpt__device_ops_of(device.type)->info(device.index, buf, size, free_bytes, total_bytes, simulated, err);
}

ckpt_status ckpt__device_query(const void *data, size_t size, ckpt_memory *out, ckpt__known *known, ckpt_error *err)
{
    const ckpt__device_ops *ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    uint64_t end;
    *out = (ckpt_memory){CKPT_MEMORY_HOST, ckpt_cpu()};
    if (!data && size)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "a NULL pointer lies nowhere; %zu bytes were asked about", size);
    if (!data)
        return CKPT_OK;
    if (!ckpt__add((uintptr_t)data, size ? size - 1 : 0, &end))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "%zu bytes at %p reach past the end of the address space", size,
                          data);
    if (size && (uintptr_t)data >= known->begin && end < known->end) {
        *out = known->memory;
        return CKPT_OK;
    }
    return (ops ? ops : ckpt__device_ops_of(CKPT_DEVICE_CPU))->query(data, size, out, known, err);
}

ckpt_status ckpt_device_query(const void *data, size_t size, ckpt_memory *out, ckpt_error *err)
{
    ckpt__known none = {.begin = 0};
    return ckpt__device_query(data, size, out, &none, err);
}
