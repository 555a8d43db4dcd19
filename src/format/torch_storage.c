/* format/torch_storage.c - persistent ids: ('storage', class, key, location, numel). Each key is a record data/<key>,
 * and one storage of the index however many tensors view it. */
#include "format/torch_priv.h"

#include <stdio.h>

/* The five items, checked for their kinds. */
typedef struct persistent_id {
    const ckpt__node *storage_class;
    ckpt_str key, location; /* location data NULL: None */
    int64_t numel;
    ckpt_dtype dtype;
    bool untyped;
} persistent_id;

static ckpt_status parse_id(const ckpt__torch *t, const ckpt__node *p, persistent_id *out, ckpt_error *err)
{
    const ckpt__node *id = p->u.id, *kind = ckpt__torch_item(id, 0), *key = ckpt__torch_item(id, 2),
                     *location = ckpt__torch_item(id, 3), *numel = ckpt__torch_item(id, 4);
    if (id->kind != CKPT__P_TUPLE || ckpt__torch_length(id) != 5)
        return ckpt__torch_fail(
            t, CKPT_E_FORMAT, p, err,
            "a persistent id of %zu items; torch writes five: 'storage', class, key, location, numel",
            ckpt__torch_length(id));
    if (kind->kind != CKPT__P_STR || !ckpt__str_is(kind->u.text, "storage"))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a persistent id that does not begin with 'storage'");
    out->storage_class = ckpt__torch_item(id, 1);
    if (!ckpt__torch_storage_dtype(out->storage_class, &out->dtype, &out->untyped)) {
        bool named = out->storage_class->kind == CKPT__P_GLOBAL;
        return ckpt__torch_fail(t, CKPT_E_UNSUPPORTED, p, err, "a persistent id of the unknown storage class '%s'",
                                named ? out->storage_class->u.global.name.data : "not a class");
    }
    if (key->kind != CKPT__P_STR || (location->kind != CKPT__P_STR && location->kind != CKPT__P_NONE))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a persistent id whose key or location is no str");
    if (numel->kind != CKPT__P_INT || numel->u.integer < 0)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "a storage of a negative number of elements, or of more than 2^63");
    out->key = key->u.text;
    out->location = location->kind == CKPT__P_STR ? location->u.text : (ckpt_str){NULL, 0};
    out->numel = numel->u.integer;
    return CKPT_OK;
}

static ckpt_status find_record(const ckpt__torch *t, const ckpt__node *p, const persistent_id *id,
                               const ckpt__zip_record **out, ckpt_error *err)
{
    char shown[200];
    ckpt__escape(shown, sizeof shown, id->key.data, id->key.size);
    ckpt__buf name = {0};
    ckpt__buf_add(&name, t->root.data, t->root.size);
    ckpt__buf_str(&name, "/data/");
    ckpt__buf_add(&name, id->key.data, id->key.size);
    if (name.failed)
        return ckpt__torch_no_memory(t, err);
    const ckpt__zip_record *r = ckpt__zip_find(t->zip, name.data, name.size);
    ckpt__buf_free(&name);
    if (!r || r->folder)
        return ckpt__torch_fail(t, CKPT_E_DAMAGED, p, err,
                                "there is no record data/%s for this storage: the archive is not whole", shown);
    uint64_t nbytes, itemsize = ckpt_dtype_size(id->dtype) ? ckpt_dtype_size(id->dtype) : 1;
    if (!ckpt__mul((uint64_t)id->numel, itemsize, &nbytes))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "storage %s: %lld elements of %llu bytes overflow 64 bits",
                                shown, (long long)id->numel, (unsigned long long)itemsize);
    if (nbytes != r->usize)
        return ckpt__torch_fail(t, CKPT_E_DAMAGED, p, err,
                                "storage %s: %lld elements of %llu bytes need %llu bytes, and the record "
                                "has %llu",
                                shown, (long long)id->numel, (unsigned long long)itemsize, (unsigned long long)nbytes,
                                (unsigned long long)r->usize);
    *out = r;
    return CKPT_OK;
}

static ckpt_status add_storage(ckpt__torch *t, const ckpt__node *p, const persistent_id *id, ckpt_error *err)
{
    const ckpt__zip_record *r = NULL;
    ckpt_status status = find_record(t, p, id, &r, err);
    if (status < 0)
        return status;
    ckpt__storage *s = ckpt__index_add_storage(t->index);
    ckpt__torch_storage *own = NULL;
    if (s && ckpt__grow(&t->storages, &t->storage_capacity, t->storage_count + 1, sizeof *t->storages))
        own = &t->storages[t->storage_count++];
    if (!own)
        return ckpt__torch_no_memory(t, err);
    *own =
        (ckpt__torch_storage){id->storage_class->u.global.name, id->location, id->numel, t->index->storage_count - 1};
    s->device = id->location;
    s->name = ckpt__arena_str(t->arena, r->name.data, r->name.size);
    s->unit = ckpt__dtype_row_of(id->dtype)->unit;
    s->extent = (ckpt__extent){.file = t->file,
                               .coding = r->method == CKPT__ZIP_DEFLATED ? CKPT__DEFLATE : CKPT__STORED,
                               .big_endian = t->big_endian && s->unit > 1,
                               .has_crc = r->has_crc,
                               .crc = r->crc,
                               .offset = r->data,
                               .length = r->csize,
                               .size = r->usize};
    if (!s->name.data || ckpt__hash_put(t->by_key, id->key.data, id->key.size, t->storage_count - 1, NULL) < 0)
        return ckpt__torch_no_memory(t, err);
    return CKPT_OK;
}

ckpt_status ckpt__torch_storage_of(ckpt__torch *t, const ckpt__node *p, size_t *number, ckpt_error *err)
{
    persistent_id id;
    if (!p || p->kind != CKPT__P_PERSISTENT)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a tensor whose storage is no persistent id");
    ckpt_status status = parse_id(t, p, &id, err);
    if (status < 0)
        return status;
    size_t i;
    if (!ckpt__hash_get(t->by_key, id.key.data, id.key.size, &i)) {
        status = add_storage(t, p, &id, err);
        if (status < 0)
            return status;
        i = t->storage_count - 1;
    }
    const ckpt__torch_storage *s = &t->storages[i];
    if (s->numel != id.numel || !ckpt__str_equal(s->class_name, id.storage_class->u.global.name) ||
        (s->location.data != NULL) != (id.location.data != NULL) ||
        (s->location.data && !ckpt__str_equal(s->location, id.location))) {
        char shown[200];
        ckpt__escape(shown, sizeof shown, id.key.data, id.key.size);
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "storage %s is described twice, and not alike (class, location, numel)", shown);
    }
    *number = s->number;
    return ckpt__index_note_origin(t->index, p, s->number) ? CKPT_OK : ckpt__torch_no_memory(t, err);
}
