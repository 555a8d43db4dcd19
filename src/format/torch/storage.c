/* format/torch/storage.c - nodes that stand for storages -> storages of the index: one for each key, however many tensors
 * view it. A persistent id is ('storage', class, key, location, numel), whose bytes are the record data/<key> of an archive;
 * before 1.6 it has a sixth item, and the bytes lie behind the pickles. */
#include "format/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>

/* Python 2 wrote its strs as bytes. */
static bool get_text(const ckpt__pickle_node *n, ckpt_str *out)
{
    bool text = n && (n->kind == CKPT__P_STR || n->kind == CKPT__P_BYTES);
    if (text)
        *out = n->u.text;
    return text;
}

static bool get_count(const ckpt__pickle_node *n, int64_t *out)
{
    bool count = n && n->kind == CKPT__P_INT && n->u.integer >= 0;
    if (count)
        *out = n->u.integer;
    return count;
}

/* None, or (key, offset, numel). */
static ckpt_status parse_view(const ckpt__torch *t, const ckpt__pickle_node *p, ckpt__torch_id *out, ckpt_error *err)
{
    const ckpt__pickle_node *view = ckpt__torch_item(p->u.id, 5);
    if (!view || view->kind == CKPT__P_NONE)
        return CKPT_OK;
    out->view = true;
    if (ckpt__torch_length(view) == 3 && get_text(ckpt__torch_item(view, 0), &out->view_key) &&
        get_count(ckpt__torch_item(view, 1), &out->view_offset) &&
        get_count(ckpt__torch_item(view, 2), &out->view_numel))
        return CKPT_OK;
    return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                            "a storage whose view is neither None nor a key, an offset and a number of elements");
}

ckpt_status ckpt__torch_parse_id(const ckpt__torch *t, const ckpt__pickle_node *p, ckpt__torch_id *out, ckpt_error *err)
{
    memset(out, 0, sizeof *out);
    const ckpt__pickle_node *id = p->u.id, *key = ckpt__torch_item(id, 2), *location = ckpt__torch_item(id, 3);
    size_t n = ckpt__torch_length(id);
    if (id->kind != CKPT__P_TUPLE || (n != 5 && !(n == 6 && t->legacy)))
        return ckpt__torch_fail(
            t, CKPT_E_FORMAT, p, err,
            "a persistent id of %zu items; torch writes %s: 'storage', class, key, location, numel%s", n,
            t->legacy ? "six" : "five", t->legacy ? ", view" : "");
    ckpt_str kind;
    if (!get_text(ckpt__torch_item(id, 0), &kind) || !ckpt__str_is(kind, "storage"))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a persistent id that does not begin with 'storage'");
    out->storage_class = ckpt__torch_item(id, 1);
    if (!ckpt__torch_storage_dtype(out->storage_class, &out->dtype, &out->untyped)) {
        bool named = out->storage_class->kind == CKPT__P_GLOBAL;
        return ckpt__torch_fail(t, CKPT_E_UNSUPPORTED, p, err, "a persistent id of the unknown storage class '%s'",
                                named ? out->storage_class->u.global->name.data : "not a class");
    }
    if (!get_text(key, &out->key) || (location->kind != CKPT__P_NONE && !get_text(location, &out->location)))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a persistent id whose key or location is not a str");
    if (!get_count(ckpt__torch_item(id, 4), &out->numel))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "a storage of a negative number of elements, or of more than 2^63");
    return parse_view(t, p, out, err);
}

bool ckpt__torch_storage_size(const ckpt__torch_id *id, int64_t numel, uint64_t *nbytes)
{
    uint64_t itemsize = ckpt_dtype_size(id->dtype) ? ckpt_dtype_size(id->dtype) : 1;
    return ckpt__mul((uint64_t)numel, itemsize, nbytes);
}

const ckpt__pickle_node *ckpt__torch_module(const ckpt__pickle_node *p)
{
    ckpt_str kind;
    if (!p || p->kind != CKPT__P_PERSISTENT || !get_text(ckpt__torch_item(p->u.id, 0), &kind) ||
        !ckpt__str_is(kind, "module"))
        return NULL;
    const ckpt__pickle_node *class = ckpt__torch_item(p->u.id, 1);
    return class && class->kind == CKPT__P_GLOBAL ? class : NULL;
}

/* ---- where its bytes are */

static ckpt_status check_record(const ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                uint64_t nbytes, const ckpt__zip_record *r, ckpt_error *err)
{
    char shown[200];
    uint64_t itemsize = ckpt_dtype_size(id->dtype) ? ckpt_dtype_size(id->dtype) : 1;
    /* libtorch's numel is that of the tensor, which may be less than its storage has. */
    if (r && (nbytes == r->usize || (t->script && nbytes < r->usize && r->usize % itemsize == 0)))
        return CKPT_OK;
    ckpt__escape(shown, sizeof shown, id->key.data, id->key.size);
    if (!r)
        return ckpt__torch_fail(t, CKPT_E_DAMAGED, p, err,
                                "there is no record data/%s for this storage: the archive is not whole", shown);
    return ckpt__torch_fail(t, CKPT_E_DAMAGED, p, err,
                            "storage %s: %lld elements of %llu bytes need %llu bytes, and the record has %llu", shown,
                            (long long)id->numel, (unsigned long long)itemsize, (unsigned long long)nbytes,
                            (unsigned long long)r->usize);
}

/* Storages come in the order of their records, mostly: the next one is looked at before the table. */
bool ckpt__torch_find_record(ckpt__torch *t, ckpt_str key, const ckpt__zip_record **out)
{
    static const char folder[] = "/data/";
    const size_t prefix = t->root.size + sizeof folder - 1;
    ckpt__buf *name = &t->record_name;
    if (name->size == 0) {
        ckpt__buf_add(name, t->root.data, t->root.size);
        ckpt__buf_add(name, folder, sizeof folder - 1);
    }
    if (!name->failed)
        name->size = prefix;
    ckpt__buf_add(name, key.data, key.size);
    if (name->failed)
        return false;
    const ckpt__zip_record *r = ckpt__zip_at(t->zip, t->next_record);
    if (!r || !ckpt__str_equal(r->name, (ckpt_str){name->data, name->size}))
        r = ckpt__zip_find(t->zip, name->data, name->size);
    if (r)
        t->next_record = (size_t)(r - ckpt__zip_at(t->zip, 0)) + 1;
    *out = r && !r->folder ? r : NULL;
    return true;
}

/* r: its record, which was found just now; NULL: there is none. */
static ckpt_status record_place(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                const ckpt__zip_record *r, ckpt__torch_place *out, ckpt_error *err)
{
    uint64_t nbytes;
    if (!ckpt__torch_storage_size(id, id->numel, &nbytes))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a storage of %lld elements: their bytes overflow 64 bits",
                                (long long)id->numel);
    out->name = ckpt__arena_str(t->arena, t->record_name.data, t->record_name.size);
    if (!out->name.data)
        return ckpt__torch_no_memory(t, err);
    ckpt_status status = check_record(t, p, id, nbytes, r, err);
    if (status == CKPT_E_DAMAGED && t->salvage) {
        ckpt__torch_salvage_place(t, r, nbytes, out);
        return CKPT_OK;
    }
    if (status < 0)
        return status;
    out->extent = (ckpt__extent){.file = t->file,
                                 .coding = r->method == CKPT__ZIP_DEFLATED ? CKPT__DEFLATE : CKPT__STORED,
                                 .big_endian = t->big_endian,
                                 .has_crc = r->has_crc,
                                 .crc = r->crc,
                                 .length = r->csize,
                                 .size = r->usize};
    out->record = r;
    return CKPT_OK;
}

static ckpt_status place_of(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                            const ckpt__zip_record *r, ckpt__torch_place *out, ckpt_error *err)
{
    if (t->kept)
        return ckpt__torch_kept_place(t, p, id, out, err);
    if (t->legacy)
        return ckpt__torch_legacy_place(t, p, id, out, err);
    if (t->zip)
        return record_place(t, p, id, r, out, err);
    return ckpt__torch_fail(t, CKPT_E_UNSUPPORTED, p, err,
                            "a tensor whose storage is kept outside of this pickle, as in a data.pkl taken out of its "
                            "archive: open the archive itself");
}

/* ---- into the index */

static ckpt_status add_to_index(ckpt__torch *t, const ckpt__torch_id *id, const ckpt__torch_place *place,
                                size_t *number, ckpt_error *err)
{
    ckpt__storage *s = ckpt__index_add_storage(t->index);
    if (!s)
        return ckpt__torch_no_memory(t, err);
    *number = t->index->storage_count - 1;
    s->device = id->location;
    s->name = place->record ? place->name : ckpt__arena_str(t->arena, place->name.data, place->name.size);
    s->unit = ckpt__dtype_row_of(id->dtype)->unit;
    s->dtype = id->untyped ? CKPT_DTYPE_NONE : id->dtype;
    s->extent = place->extent;
    s->extent.big_endian = place->extent.big_endian && s->unit > 1;
    return s->name.data ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

static ckpt_status add_storage(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                               const ckpt__zip_record *r, ckpt_error *err)
{
    ckpt__torch_place place = {{0}, {NULL, 0}, NULL};
    size_t number = 0;
    ckpt_status status = place_of(t, p, id, r, &place, err);
    const bool cpu = ckpt__str_is(id->location, "cpu");
    if (status == CKPT_OK && !cpu && !t->script && !ckpt__torch_refuses_location(t, id->location))
        return ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK)
        status = add_to_index(t, id, &place, &number, err);
    if (status < 0)
        return status;
    if (!ckpt__grow(&t->storages, &t->storage_capacity, t->storage_count + 1, sizeof *t->storages))
        return ckpt__torch_no_memory(t, err);
    t->storages[t->storage_count++] = (ckpt__torch_storage){p, number, place.record};
    return CKPT_OK;
}

/* By the dtype, as torch.save compares them: an untyped storage, which one tensor has, is a ByteStorage to the next, whose
 * dtype is uint8. */
static bool says_the_same(const ckpt__torch *t, const ckpt__pickle_node *first, const ckpt__torch_id *id)
{
    ckpt__torch_id before;
    return ckpt__torch_parse_id(t, first, &before, NULL) == CKPT_OK && before.numel == id->numel &&
           before.dtype == id->dtype &&
           (before.location.data ? ckpt__str_equal(before.location, id->location) : !id->location.data);
}

/* Of a key that has a record. */
static ckpt_status recorded_storage(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                    const ckpt__zip_record *r, size_t *i, ckpt_error *err)
{
    size_t at = (size_t)(r - ckpt__zip_at(t->zip, 0));
    if (!t->by_record && !(t->by_record = calloc(ckpt__zip_count(t->zip), sizeof *t->by_record)))
        return ckpt__torch_no_memory(t, err);
    ckpt_status status = t->by_record[at] ? CKPT_OK : add_storage(t, p, id, r, err);
    if (status == CKPT_OK && !t->by_record[at])
        t->by_record[at] = (uint32_t)t->storage_count; /* an archive has fewer records */
    *i = status == CKPT_OK ? t->by_record[at] - 1 : 0;
    return status;
}

/* Of one that has none. */
static ckpt_status keyed_storage(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id, size_t *i,
                                 ckpt_error *err)
{
    ckpt_str key = id->view ? id->view_key : id->key;
    *i = t->storage_count;
    int put = ckpt__hash_put(t->by_key, key.data, key.size, *i, i);
    if (put < 0)
        return ckpt__torch_no_memory(t, err);
    ckpt_status status = put > 0 ? add_storage(t, p, id, NULL, err) : CKPT_OK;
    if (status == CKPT_OK && *i >= t->storage_count) /* it failed before, and somebody went on */
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "a storage that could not be read before");
    return status;
}

static ckpt_status persistent_storage(ckpt__torch *t, const ckpt__pickle_node *p, size_t *number, ckpt_error *err)
{
    ckpt__torch_id id;
    const ckpt__zip_record *r = NULL;
    size_t i = 0;
    ckpt_status status = ckpt__torch_parse_id(t, p, &id, err);
    if (status == CKPT_OK && t->zip && !t->legacy && !t->kept && !ckpt__torch_find_record(t, id.key, &r))
        status = ckpt__torch_no_memory(t, err);
    if (status == CKPT_OK)
        status = r ? recorded_storage(t, p, &id, r, &i, err) : keyed_storage(t, p, &id, &i, err);
    if (status < 0)
        return status;
    const ckpt__torch_storage *s = &t->storages[i];
    if (s->first != p && !says_the_same(t, s->first, &id)) {
        ckpt_str key = id.view ? id.view_key : id.key;
        char shown[200];
        ckpt__escape(shown, sizeof shown, key.data, key.size);
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err,
                                "storage %s is described twice, and not alike (class, location, numel)", shown);
    }
    *number = s->number;
    return ckpt__index_note_origin(t->index, p, s->number) ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

/* Each call makes a storage of its own, even of the same bytes. */
static ckpt_status nested_storage(ckpt__torch *t, const ckpt__pickle_node *node, size_t *number, ckpt_error *err)
{
    const ckpt__torch_nested *nested = NULL;
    int known = ckpt__index_storage_of(t->index, node, number);
    if (known != 0)
        return known > 0 ? CKPT_OK : ckpt__torch_no_memory(t, err);
    ckpt_status status = ckpt__torch_nested_of(t, node, &nested, err);
    if (status == CKPT_OK)
        status = add_to_index(t, &nested->id, &nested->place, number, err);
    if (status == CKPT_OK && !ckpt__index_note_origin(t->index, node, *number))
        status = ckpt__torch_no_memory(t, err);
    return status;
}

ckpt_status ckpt__torch_storage_of(ckpt__torch *t, const ckpt__pickle_node *node, size_t *number, ckpt_error *err)
{
    if (ckpt__torch_is_nested(node))
        return nested_storage(t, node, number, err);
    if (!node || node->kind != CKPT__P_PERSISTENT)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, node, err, "a tensor whose storage is not a persistent id");
    return persistent_storage(t, node, number, err);
}

bool ckpt__torch_storage_type(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_dtype *dtype, bool *untyped)
{
    const ckpt__torch_nested *nested = NULL;
    if (node->kind == CKPT__P_PERSISTENT)
        return ckpt__torch_storage_dtype(ckpt__torch_item(node->u.id, 1), dtype, untyped);
    if (ckpt__torch_nested_of(t, node, &nested, NULL) < 0)
        return false;
    *dtype = nested->id.dtype;
    *untyped = nested->id.untyped;
    return true;
}
