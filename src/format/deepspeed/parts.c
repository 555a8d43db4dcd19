/* format/deepspeed/parts.c - parts of a flat tensor as storages of their own. Parameters that lie side by side share no bytes, though the
 * file has them in one storage: so each gets its own, and the CRC that the file has of all of them stands in a span. */
#include "format/deepspeed/deepspeed.h"

#include <stdlib.h>

/* The span of a storage, made when first asked for. */
static ckpt_status span_of(ckpt__ds *d, size_t storage, uint32_t *out, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const size_t before = d->span_capacity;
    if (!ckpt__grow(&d->spans, &d->span_capacity, storage + 1, sizeof *d->spans))
        return ckpt__ds_no_memory(err);
    if (d->span_capacity > before)
        memset(d->spans + before, 0, (d->span_capacity - before) * sizeof *d->spans);
    if (!d->spans[storage]) {
        if (x->span_count >= UINT32_MAX - 1 ||
            !ckpt__index_add_span(x, &x->storages[storage].extent, x->storages[storage].name))
            return ckpt__ds_no_memory(err);
        d->spans[storage] = (uint32_t)x->span_count;
    }
    *out = d->spans[storage] - 1;
    return CKPT_OK;
}

/* The bytes lie in a file as they are. */
static bool is_plain(const ckpt__extent *e)
{
    return e->coding == CKPT__STORED && !e->memory && !e->missing && !e->spanned;
}

/* Its CRC is that of the span, in which other storages lie too. */
static void set_span(ckpt__storage *s, uint32_t span)
{
    s->extent.has_crc = false;
    s->extent.spanned = true;
    s->extent.span = span;
}

/* The row of the part: of all of the storage it is another row of the same bytes. */
static void cut(ckpt__storage *s, const ckpt__storage *from, uint64_t at, uint64_t nbytes, uint32_t span)
{
    *s = *from;
    s->extent.checked = 0;
    if (nbytes == from->extent.size)
        return;
    if (from->extent.has_crc)
        set_span(s, span);
    s->extent.offset = from->extent.offset + at;
    s->extent.length = s->extent.size = nbytes;
}

/* The storage of a part that was asked for before: 0, and its number in *out. 1: it is new, and has the next number; -1: no memory.
 * Nearly all are new: each is looked for and put there in one go. */
static int find_part(ckpt__ds *d, const uint64_t *key, size_t size, size_t *out)
{
    ckpt__index *x = ckpt__ds_index(d);
    if (!d->parts && !(d->parts = ckpt__hash_new(64)))
        return -1;
    const char *kept = ckpt__arena_copy(x->arena, (const char *)key, size);
    size_t found = x->storage_count;
    const int put = kept ? ckpt__hash_put(d->parts, kept, size, x->storage_count, &found) : -1;
    *out = found;
    return put;
}

ckpt_status ckpt__ds_part(ckpt__ds *d, size_t storage, uint64_t at, uint64_t nbytes, uint64_t copy, size_t *out,
                          ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const uint64_t key[] = {storage, at, nbytes, copy};
    const ckpt__extent e = x->storages[storage].extent;
    const bool all = nbytes >= e.size;
    *out = storage;
    if (nbytes == 0 || (all ? copy == 0 || e.spanned : !is_plain(&e)))
        return CKPT_OK;
    const int put = find_part(d, key, sizeof key, out);
    if (put == 0)
        return CKPT_OK;
    uint32_t span = 0;
    ckpt_status status = put < 0 ? ckpt__ds_no_memory(err) : CKPT_OK;
    if (status == CKPT_OK && e.has_crc && !all)
        status = span_of(d, storage, &span, err);
    ckpt__storage *s = status == CKPT_OK ? ckpt__index_add_storage(x) : NULL;
    if (status == CKPT_OK && !s)
        status = ckpt__ds_no_memory(err);
    if (status < 0)
        return status;
    *out = x->storage_count - 1;
    cut(s, &x->storages[storage], at, nbytes, span);
    return CKPT_OK;
}

ckpt_status ckpt__ds_all_of(ckpt__ds *d, size_t storage, uint64_t copy, size_t *out, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const uint64_t key[] = {storage, 0, UINT64_MAX, copy};
    const ckpt__extent e = x->storages[storage].extent;
    *out = storage;
    if (!is_plain(&e) || (copy == CKPT__DS_STATE && !e.has_crc))
        return CKPT_OK;
    uint32_t span = 0;
    const int known = find_part(d, key, sizeof key, out);
    ckpt_status status = known < 0 ? ckpt__ds_no_memory(err) : CKPT_OK;
    if (status < 0 || known == 0)
        return status;
    if (e.has_crc)
        status = span_of(d, storage, &span, err);
    ckpt__storage *s = status == CKPT_OK ? ckpt__index_add_storage(x) : NULL;
    if (status == CKPT_OK && !s)
        status = ckpt__ds_no_memory(err);
    if (status < 0)
        return status;
    *s = x->storages[storage];
    s->extent.checked = 0;
    if (e.has_crc)
        set_span(s, span);
    return CKPT_OK;
}

/* ---- devices: a rank's tag is its own device's */

/* "cuda" of "cuda:1". */
static ckpt_str type_of(ckpt_str tag)
{
    const char *colon = tag.data ? memchr(tag.data, ':', tag.size) : NULL;
    return colon ? (ckpt_str){tag.data, (size_t)(colon - tag.data)} : tag;
}

/* Do two ranks have the same kind of device, and not the same one? *type: which. */
static bool are_apart(const ckpt__ds *d, ckpt_str *type)
{
    ckpt_str first = {NULL, 0};
    for (size_t r = 0; d->optims && r < d->ranks; r++) {
        const ckpt_value *masters = d->optims[r].there ? ckpt__ds_masters(ckpt__ds_optimizer(&d->optims[r])) : NULL;
        const ckpt__tensor *t = masters && masters->item_count ? ckpt__ds_tensor(d, masters->items[0]) : NULL;
        if (!t || !t->info.device.data)
            continue;
        if (!first.data)
            first = t->info.device;
        else if (!ckpt__str_equal(first, t->info.device) && ckpt__str_equal(type_of(first), type_of(t->info.device))) {
            *type = type_of(first);
            return true;
        }
    }
    return false;
}

void ckpt__ds_join_devices(ckpt__ds *d)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt_str type;
    if (!are_apart(d, &type))
        return;
    for (size_t i = 0; i < x->storage_count; i++)
        if (ckpt__str_equal(type_of(x->storages[i].device), type))
            x->storages[i].device = type;
    for (size_t i = 0; i < x->tensor_count; i++) {
        ckpt_tensor_info *info = &x->tensors[i].info;
        if (ckpt__str_equal(type_of(info->device), type) ||
            (!info->device.data && ckpt__is_split(&x->tensors[i]) &&
             ckpt__str_equal(type_of(x->storages[x->pieces[x->tensors[i].first_piece].storage].device), type)))
            info->device = type;
    }
}
