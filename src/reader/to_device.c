/* reader/to_device.c - a tensor straight into a device's memory, by way of pinned buffers: the next block is read while
 * the one before is on its way. */
#include "engine/elements.h"
#include "reader/parts.h"

static const char *const kinds[] = {"host memory",
                                    "page-locked host memory",
                                    "memory of ",
                                    "managed memory",
                                    "memory of more than one allocation",
                                    "freed memory, or less of it, of "};

ckpt_status ckpt__reader_check_host(const ckpt_reader *r, size_t i, const void *dst, size_t size, ckpt_error *err)
{
    const char *name = r->index->tensors[i].info.name.data;
    char is[CKPT_DEVICE_NAME_MAX] = "";
    ckpt_memory memory;
    if (!dst && size)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "no buffer was given for its %zu bytes", size);
    if (ckpt_device_query(dst, size, &memory, NULL) < 0 || memory.kind == CKPT_MEMORY_HOST ||
        memory.kind == CKPT_MEMORY_PINNED || memory.kind == CKPT_MEMORY_MANAGED)
        return CKPT_OK; /* a driver that does not answer does not matter to host memory */
    if (memory.kind != CKPT_MEMORY_SPLIT)
        ckpt_device_name(memory.device, is);
    return ckpt__fail(err, CKPT_E_MISMATCH, name,
                      "expected %zu bytes of host memory; given: %s%s "
                      "(ckpt_reader_read_to writes to a device)",
                      size, kinds[memory.kind], is);
}

/* dst must be memory of the device: asked of the driver, before anything is written. */
static ckpt_status check_target(const ckpt_reader *r, size_t i, ckpt_device device, const void *dst, size_t size,
                                ckpt_error *err)
{
    const char *name = r->index->tensors[i].info.name.data;
    char wanted[CKPT_DEVICE_NAME_MAX], is[CKPT_DEVICE_NAME_MAX] = "";
    ckpt_memory memory;
    ckpt_status status = ckpt_device_check(device, err);
    if (status == CKPT_OK && !dst)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name, "no buffer was given for its %zu bytes", size);
    if (status == CKPT_OK)
        status = ckpt_device_query(dst, size, &memory, err);
    if (status < 0 || (memory.kind == CKPT_MEMORY_DEVICE && ckpt_device_equal(memory.device, device)))
        return status;
    ckpt_device_name(device, wanted);
    if (memory.kind == CKPT_MEMORY_DEVICE || memory.kind == CKPT_MEMORY_UNMAPPED)
        ckpt_device_name(memory.kind == CKPT_MEMORY_DEVICE ? memory.device : device, is);
    return ckpt__fail(err, CKPT_E_MISMATCH, name, "expected %zu bytes of memory of %s; given: %s%s", size, wanted,
                      kinds[memory.kind], is);
}

static ckpt_status send(ckpt__lanes *lanes, ckpt__lane *lane, ckpt__elements *e, unsigned char *dst, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (uint64_t at = 0; status == CKPT_OK && at < e->size; at += CKPT__SLOT) {
        size_t n = e->size - at < CKPT__SLOT ? (size_t)(e->size - at) : CKPT__SLOT;
        ckpt__slot *slot;
        if ((status = ckpt__lanes_slot(lanes, &slot, err)) < 0 ||
            (status = ckpt__elements_read(e, slot->data, n, err)) < 0)
            break;
        status = lane->ops->to_device(lane->stream, dst + at, slot->data, n, err);
        if (status == CKPT_OK)
            status = ckpt__lanes_mark(lanes, slot, lane, err);
    }
    return status;
}

ckpt_status ckpt_reader_read_to(const ckpt_reader *r, size_t i, ckpt_device device, void *stream, void *dst,
                                size_t size, ckpt_error *err)
{
    if (device.type == CKPT_DEVICE_CPU)
        return ckpt_reader_read(r, i, dst, size, err);
    ckpt_status status = ckpt__reader_check_size(r, i, size, err);
    if (status == CKPT_OK && size)
        status = check_target(r, i, device, dst, size, err);
    if (status < 0)
        return status;
    ckpt__elements e;
    ckpt__elements_options options = {.check = true, .resolve = true};
    ckpt__lane *lane = NULL;
    status = ckpt__elements_of_tensor(&e, r->source, r->index, i, &options, err);
    if (status < 0 || size == 0) {
        ckpt__elements_close(&e);
        return status;
    }
    pthread_mutex_lock(&r->parts->lock);
    status = ckpt__lanes_get(&r->parts->lanes, NULL, device, &lane, err);
    if (status == CKPT_OK)
        status = lane->ops->follow(lane->stream, stream, err);
    if (status == CKPT_OK)
        status = send(&r->parts->lanes, lane, &e, dst, err);
    if (lane) { /* nothing is under way when this returns */
        ckpt_status synced = lane->ops->stream_sync(lane->stream, status < 0 ? NULL : err);
        status = status < 0 ? status : synced;
    }
    pthread_mutex_unlock(&r->parts->lock);
    ckpt__elements_close(&e);
    return status;
}
