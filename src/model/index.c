/* model/index.c - building an index. */
#include "model/nested.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const ckpt_tensor_extra ckpt__no_extra = {.part_count = 0};

/* The arena is the index's from now on, unless it is lent. */
static ckpt__index *new_index(ckpt__arena *arena, bool lent)
{
    ckpt__index *x = calloc(1, sizeof *x);
    if (!x) {
        if (!lent)
            ckpt__arena_free(arena);
        return NULL;
    }
    x->arena = arena;
    x->arena_lent = lent;
    x->findings = ckpt_report_new();
    x->kind = "file";
    x->format = "";
    x->step = -1;
    if (!x->arena || !x->findings) {
        ckpt__index_free(x);
        return NULL;
    }
    return x;
}

ckpt__index *ckpt__index_new(uint64_t arena_limit)
{
    return new_index(ckpt__arena_new(arena_limit), false);
}

ckpt__index *ckpt__index_new_part(ckpt__arena *lent)
{
    return new_index(lent, true);
}

void ckpt__index_free(ckpt__index *x)
{
    if (!x)
        return;
    if (x->held) {
        x->held--;
        return;
    }
    if (!x->arena_lent)
        ckpt__arena_free(x->arena);
    ckpt_report_free(x->findings);
    for (size_t i = 0; i < x->absorbed_count; i++)
        ckpt__index_free(x->absorbed[i]);
    free(x->absorbed);
    ckpt__index_free_origins(x);
    ckpt__records_free(x->records);
    ckpt__hash_free(x->by_name);
    free(x->parts_given);
    ckpt__hash_free(x->boxes);
    free(x->storages);
    free(x->tensors);
    free(x->pieces);
    free(x->devices);
    if (x->span_count)
        pthread_mutex_destroy(&x->span_lock);
    free(x->spans);
    free(x);
}

ckpt_status ckpt__index_refused(const ckpt__index *x, ckpt_status status, const char *label, ckpt_error *err)
{
    if (status != CKPT_E_NO_MEMORY || !x || !ckpt__arena_over_limit(x->arena))
        return status;
    return ckpt__fail(
        err, CKPT_E_LIMIT, label,
        "what it describes would take more than %llu MiB of memory, which is the limit for a file of its size: far more "
        "than a checkpoint's does, so it is not read",
        (unsigned long long)(ckpt__arena_limit(x->arena) >> 20));
}

ckpt__storage *ckpt__index_add_storage(ckpt__index *x)
{
    if (x->storage_count >= UINT32_MAX ||
        !ckpt__arena_grow(x->arena, &x->storages, &x->storage_capacity, x->storage_count + 1, sizeof *x->storages))
        return NULL;
    ckpt__storage *s = &x->storages[x->storage_count++];
    memset(s, 0, sizeof *s);
    s->unit = 1;
    return s;
}

ckpt__tensor *ckpt__index_add_tensor(ckpt__index *x)
{
    if (x->tensor_count >= UINT32_MAX ||
        !ckpt__arena_grow(x->arena, &x->tensors, &x->tensor_capacity, x->tensor_count + 1, sizeof *x->tensors))
        return NULL;
    if (x->dense_of > x->tensor_count) /* some were taken back */
        x->dense = (int64_t)(x->dense_of = 0);
    ckpt__tensor *t = &x->tensors[x->tensor_count++];
    memset(t, 0, sizeof *t);
    t->info.storage = -1;
    t->info.extra = &ckpt__no_extra;
    return t;
}

bool ckpt__index_add_span(ckpt__index *x, const ckpt__extent *extent, ckpt_str name)
{
    if (x->span_count == UINT32_MAX ||
        !ckpt__arena_grow(x->arena, &x->spans, &x->span_capacity, x->span_count + 1, sizeof *x->spans))
        return false;
    if (x->span_count == 0)
        pthread_mutex_init(&x->span_lock, NULL);
    x->spans[x->span_count++] = (ckpt__span){.extent = *extent, .name = name};
    return true;
}

bool ckpt__index_device(ckpt__index *x, ckpt_device device, uint16_t *number)
{
    size_t count =
        x->device_count ? x->device_count : 1; /* with the host, which has a row as soon as another has one */
    *number = 0;
    if (device.type == CKPT_DEVICE_CPU)
        return true;
    for (size_t i = 1; i < x->device_count; i++)
        if (ckpt_device_equal(x->devices[i], device)) {
            *number = (uint16_t)i;
            return true;
        }
    if (count >= UINT16_MAX ||
        !ckpt__arena_grow(x->arena, &x->devices, &x->device_capacity, count + 1, sizeof *x->devices))
        return false;
    x->devices[0] = ckpt_cpu();
    x->devices[count] = device;
    x->device_count = count + 1;
    *number = (uint16_t)count;
    return true;
}

bool ckpt__index_reserve(ckpt__index *x, size_t storages, size_t tensors)
{
    if (storages > UINT32_MAX - x->storage_count || tensors > UINT32_MAX - x->tensor_count)
        return false;
    if (!ckpt__arena_grow(x->arena, &x->storages, &x->storage_capacity, x->storage_count + storages,
                          sizeof *x->storages) ||
        !ckpt__arena_grow(x->arena, &x->tensors, &x->tensor_capacity, x->tensor_count + tensors, sizeof *x->tensors))
        return false;
    if (x->storages)
        ckpt__touch(x->storages + x->storage_count, storages * sizeof *x->storages);
    if (x->tensors)
        ckpt__touch(x->tensors + x->tensor_count, tensors * sizeof *x->tensors);
    return true;
}

bool ckpt__index_expect(ckpt__index *x, size_t storages, size_t pieces)
{
    return storages <= UINT32_MAX - x->storage_count && pieces <= UINT32_MAX - x->piece_count &&
           ckpt__arena_grow(x->arena, &x->storages, &x->storage_capacity, x->storage_count + storages,
                            sizeof *x->storages) &&
           ckpt__arena_grow(x->arena, &x->pieces, &x->piece_capacity, x->piece_count + pieces, sizeof *x->pieces);
}

/* Does the view fit? Elements of whole bytes only may be strided; packed ones (4 or 6 bits) must be in C order. */
static ckpt_status check_view(const ckpt__tensor *t, const ckpt__storage *s, const int64_t *shape,
                              const int64_t *strides, int64_t offset, uint64_t *nbytes, ckpt_error *err)
{
    const char *name = t->info.name.data; /* an error record escapes it, up to its first NUL */
    uint64_t numel, reach, end, bytes, size = s->extent.size;
    unsigned bits = ckpt_dtype_bits(t->info.dtype);
    uint32_t ndim = t->info.ndim;
    if (bits == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, name, "a tensor without a known dtype");
    if (!ckpt__numel(shape, ndim, &numel) || !ckpt__nbytes(numel, bits, nbytes))
        return ckpt__fail(err, CKPT_E_FORMAT, name, "the product of its shape is negative or overflows 64 bits");
    if (offset < 0)
        return ckpt__fail(err, CKPT_E_FORMAT, name, "its storage offset is %lld; it must not be negative",
                          (long long)offset);
    if (!ckpt__view_extent(shape, strides, ndim, &reach))
        return ckpt__fail(err, CKPT_E_FORMAT, name, "a stride is negative, or strides times sizes overflow 64 bits");
    if (bits % 8 && (offset != 0 || !ckpt__is_c_order(shape, strides, ndim)))
        return ckpt__fail(err, CKPT_E_FORMAT, name, "a strided view of %u-bit elements", bits);
    if (!ckpt__add((uint64_t)offset, reach, &end) || !ckpt__nbytes(end, bits, &bytes) || (reach && bytes > size))
        return ckpt__fail(err, CKPT_E_FORMAT, name,
                          "it reaches %llu elements into a storage of %llu bytes (%llu elements of %u bits)",
                          (unsigned long long)(reach ? (uint64_t)offset + reach : 0), (unsigned long long)size,
                          (unsigned long long)(size * 8 / bits), bits);
    return CKPT_OK;
}

ckpt_status ckpt__index_set_view(ckpt__index *x, size_t tensor, size_t storage, const int64_t *shape,
                                 const int64_t *strides, int64_t offset, ckpt_error *err)
{
    ckpt__tensor *t = &x->tensors[tensor];
    const ckpt__storage *s = &x->storages[storage];
    uint32_t ndim = t->info.ndim;
    const char *name = t->info.name.data;
    uint64_t numel;
    if (!ckpt__numel(shape, ndim, &numel))
        return ckpt__fail(err, CKPT_E_FORMAT, name, "the product of its shape is negative or overflows 64 bits");
    const int64_t *copy = ckpt__view_keep(&x->view, x->arena, shape, strides, ndim);
    if (!copy)
        return ckpt__fail_memory(err, name, 0);
    uint64_t nbytes;
    ckpt_status status = check_view(t, s, copy, copy + ndim, offset, &nbytes, err);
    if (status < 0)
        return status;
    t->whole = true;
    t->storage = (uint32_t)storage;
    t->info.shape = copy;
    t->info.strides = copy + ndim;
    t->info.offset = offset;
    t->info.nbytes = nbytes;
    t->info.storage = (int64_t)storage;
    if (tensor < x->dense_of && x->dense <= t->info.storage)
        x->dense = t->info.storage + 1;
    t->info.storage_nbytes = s->extent.size;
    if (!t->info.device.data)
        t->info.device = s->device;
    return CKPT_OK;
}

ckpt_status ckpt__index_set_empty(ckpt__index *x, size_t tensor, const int64_t *shape, ckpt_error *err)
{
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return ckpt__fail_memory(err, x->tensors[tensor].info.name.data, 0);
    s->dtype = x->tensors[tensor].info.dtype;
    s->extent.memory = "";
    return ckpt__index_set_view(x, tensor, x->storage_count - 1, shape, NULL, 0, err);
}

bool ckpt__index_own_storage(ckpt__index *x, size_t tensor)
{
    ckpt__tensor *t = &x->tensors[tensor];
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return false;
    *s = x->storages[t->storage];
    t->storage = (uint32_t)(x->storage_count - 1);
    return true;
}

bool ckpt__index_tell_layout(ckpt__index *x, const char *format, ...)
{
    char text[320];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    x->layout = ckpt__arena_copy(x->arena, text, strlen(text));
    return x->layout != NULL;
}

ckpt_status ckpt__index_finish(ckpt__index *x, ckpt_error *err)
{
    int64_t next = 0;
    size_t count = 0; /* up to the last that a whole tensor views: a million pieces of tensors may come behind */
    for (size_t i = 0; i < x->tensor_count; i++)
        if (x->tensors[i].whole && x->tensors[i].storage >= count)
            count = (size_t)x->tensors[i].storage + 1;
    int64_t *number = malloc((count + 1) * sizeof *number);
    if (!number)
        return ckpt__fail_memory(err, "index", count * sizeof *number);
    for (size_t i = 0; i < count; i++)
        number[i] = -1;
    for (size_t i = 0; i < x->tensor_count; i++) {
        ckpt__tensor *t = &x->tensors[i];
        if (!t->whole)
            continue;
        size_t s = t->storage;
        if (number[s] < 0)
            number[s] = next++;
        t->info.storage = number[s];
    }
    free(number);
    x->dense_of = x->tensor_count;
    x->dense = next;
    return CKPT_OK;
}
