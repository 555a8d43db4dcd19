/* reader/map.c - a tensor's bytes where they lie in the file, without a copy. */
#include <stdlib.h>
#include "reader/parts.h"
#include "base/strided.h"
#include "engine/nested.h"
#include "io/mapping.h"

ckpt__reader_parts *ckpt__reader_parts_new(void)
{
    ckpt__reader_parts *parts = calloc(1, sizeof *parts);
    if (parts)
        pthread_mutex_init(&parts->lock, NULL);
    return parts;
}

void ckpt__reader_parts_free(ckpt__reader_parts *parts, const ckpt__source *source)
{
    if (!parts)
        return;
    ckpt__lanes_close(&parts->lanes, NULL);
    for (size_t i = 0; i < parts->map_count; i++)
        ckpt__source_unmap(source, (uint32_t)i, parts->maps[i]);
    free(parts->maps);
    free(parts->numbers);
    free(parts->shares);
    pthread_mutex_destroy(&parts->lock);
    free(parts);
}

/* Why the bytes of a tensor are not its elements in C order, one after the other; NULL: they are. *instead: what to do. */
static const char *obstacle(const ckpt__index *x, const ckpt__tensor *t, const char **instead)
{
    *instead = t->info.extra->part_count ? "map its parts" : "there is nothing to read either";
    if (t->info.extra->layout.data)
        return "it is not dense";
    if (ckpt__has_no_bytes(t))
        return "it has no data (a meta tensor)";
    *instead = "read it";
    if (!t->whole)
        return "it lies in several pieces";
    const ckpt__storage *s = &x->storages[t->storage];
    if (ckpt__extent_known(x, t->storage)->coding != CKPT__STORED)
        return "its storage is compressed";
    if (s->extent.big_endian && s->unit > 1)
        return "its elements are big-endian";
    if (t->info.conj || t->info.neg)
        return t->info.conj ? "it is a conjugated view" : "it is a negated view";
    if (!ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim))
        return "it is a view whose elements do not lie one after the other";
    return NULL;
}

/* The file, mapped once for all of its tensors. */
static ckpt_status map_file(const ckpt_reader *r, uint32_t file, const unsigned char **data, ckpt_error *err)
{
    ckpt__reader_parts *parts = r->parts;
    const void *mapped = NULL;
    ckpt_status status = CKPT_OK;
    pthread_mutex_lock(&parts->lock);
    if (!parts->maps) {
        if ((parts->maps = calloc(r->source->count + 1, sizeof *parts->maps)))
            parts->map_count = r->source->count;
        else
            status = ckpt__fail_memory(err, r->path, r->source->count);
    }
    if (status == CKPT_OK && !parts->maps[file])
        status = ckpt__source_map(r->source, file, &parts->maps[file], err);
    if (status == CKPT_OK)
        mapped = parts->maps[file];
    pthread_mutex_unlock(&parts->lock);
    *data = mapped;
    return status;
}

ckpt_status ckpt_reader_map(const ckpt_reader *r, size_t i, const void **data, size_t *size, ckpt_error *err)
{
    if (!data || !size)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_reader_map", "no place for the address and the size was given");
    *data = NULL;
    *size = 0;
    ckpt_status status = ckpt__reader_check_number(r, i, err);
    if (status < 0)
        return status;
    const ckpt__tensor *t = &r->index->tensors[i];
    const ckpt__extent *e = NULL;
    if (t->whole && (status = ckpt__extent_find(r->source, r->index, t->storage, &e, err)) < 0)
        return status;
    const char *instead, *why = obstacle(r->index, t, &instead), *name = t->info.name.data;
    uint64_t end;
    if (why)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, name, "it cannot be mapped: %s; %s", why, instead);
    uint64_t begin = (uint64_t)t->info.offset * ckpt_dtype_bits(t->info.dtype) / 8;
    if (t->info.nbytes == 0)
        return CKPT_OK;
    if (t->info.nbytes > SIZE_MAX || begin > e->size || t->info.nbytes > e->size - begin)
        return ckpt__fail(err, CKPT_E_DAMAGED, name, "its view does not lie within its storage");
    const unsigned char *base = e->memory;
    if (!base) {
        if (e->file >= r->source->count || !ckpt__add(e->offset, begin + t->info.nbytes, &end) ||
            end > r->source->files[e->file].size || (e->missing && begin + t->info.nbytes > e->length))
            return ckpt__fail(err, CKPT_E_DAMAGED, name, "the file ends before its bytes do");
        if ((status = map_file(r, e->file, &base, err)) < 0)
            return status;
        base += e->offset;
    }
    *data = base + begin;
    *size = (size_t)t->info.nbytes;
    return CKPT_OK;
}
