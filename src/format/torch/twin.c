/* format/torch/twin.c - an archive whose data.pkl is that of another one, byte for byte. Its tensors and values are the other's; where
 * its own records lie, and whether they are what the pickle says, is looked at as ever. */
#include "format/torch/torch.h"

/* "/data/" and the key stand behind the archive's name. */
static bool key_of(const ckpt__index *x, size_t storage, ckpt_str *key)
{
    static const char folder[] = "/data/";
    const size_t before = x->archive.size + sizeof folder - 1;
    const ckpt_str name = x->storages[storage].name;
    if (name.size < before || memcmp(name.data, x->archive.data, x->archive.size) != 0 ||
        memcmp(name.data + x->archive.size, folder, sizeof folder - 1) != 0)
        return false;
    *key = (ckpt_str){name.data + before, name.size - before};
    return true;
}

/* The row of the other, with the place of this archive's record. *same: there is such a record. */
static ckpt_status take_storage(ckpt__torch *t, const ckpt__index *like, size_t number, bool *same, ckpt_error *err)
{
    const ckpt__extent *was = &like->storages[number].extent;
    const ckpt__zip_record *r = NULL;
    ckpt_str key;
    *same = key_of(like, number, &key);
    if (*same && !ckpt__torch_find_record(t, key, &r))
        return ckpt__torch_no_memory(t, err);
    *same = r && r->usize == was->size && (r->method == CKPT__ZIP_DEFLATED) == (was->coding == CKPT__DEFLATE);
    if (!*same)
        return CKPT_OK;
    ckpt__storage *s = ckpt__index_add_storage(t->index);
    if (!s || !ckpt__grow(&t->storages, &t->storage_capacity, t->storage_count + 1, sizeof *t->storages))
        return ckpt__torch_no_memory(t, err);
    t->storages[t->storage_count++] = (ckpt__torch_storage){.number = number, .record = r};
    *s = like->storages[number];
    s->name = ckpt__arena_str(t->arena, t->record_name.data, t->record_name.size);
    s->extent = (ckpt__extent){.file = t->file,
                               .coding = was->coding,
                               .big_endian = was->big_endian,
                               .has_crc = r->has_crc,
                               .crc = r->crc,
                               .length = r->csize,
                               .size = r->usize};
    return s->name.data ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

ckpt_status ckpt__torch_take_twin(ckpt__torch *t, const ckpt__buf *pickle, ckpt_error *err)
{
    const ckpt__twin *twin =
        t->twins && !t->script && !t->walked ? ckpt__twins_find(t->twins, pickle, t->big_endian) : NULL;
    const ckpt__index *like = twin ? twin->index : NULL;
    ckpt__index *x = t->index;
    bool same = true;
    if (!twin)
        return CKPT_OK;
    ckpt_status status =
        ckpt__index_reserve(x, like->storage_count, like->tensor_count) ? CKPT_OK : ckpt__torch_no_memory(t, err);
    for (size_t i = 0; status == CKPT_OK && same && i < like->storage_count; i++)
        status = take_storage(t, like, i, &same, err);
    if (status < 0)
        return status;
    if (!same) { /* what is wrong with it is found when it is read as any other */
        x->storage_count = t->storage_count = t->next_record = 0;
        return CKPT_OK;
    }
    if (like->tensor_count)
        memcpy(x->tensors, like->tensors, like->tensor_count * sizeof *x->tensors);
    x->tensor_count = like->tensor_count;
    x->dense_of = like->dense_of;
    x->dense = like->dense;
    x->root = like->root;
    x->shards = like->shards;
    x->pickle_strange = like->pickle_strange;
    x->pickle_protocol = like->pickle_protocol;
    t->twin = true;
    return CKPT_OK;
}

bool ckpt__torch_may_be_twin(const ckpt__torch *t, size_t findings)
{
    const ckpt__index *x = t->index;
    ckpt_str key;
    bool plain = t->twins && !t->twin && !t->script && !t->walked && !t->salvage && !t->refused &&
                 t->nested_count == 0 && ckpt_report_count(x->findings) == findings &&
                 x->storage_count == t->storage_count && x->piece_count == 0 && x->span_count == 0 && !x->records;
    for (size_t i = 0; plain && i < x->storage_count; i++) {
        const ckpt__extent *e = &x->storages[i].extent;
        plain = t->storages[i].number == i && t->storages[i].record && !e->memory && !e->missing &&
                (e->coding == CKPT__STORED || e->coding == CKPT__DEFLATE) && key_of(x, i, &key);
    }
    return plain;
}
