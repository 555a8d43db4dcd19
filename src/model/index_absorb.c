/* model/index_absorb.c - several files as one index; and which of a format's own records stand for which storages. */
#include "model/index.h"

#include <stdlib.h>

/* Keys of `origins` are addresses, as bytes; they must stay where they are. */
bool ckpt__index_note_origin(ckpt__index *x, const void *origin, size_t storage)
{
    const void **key = ckpt__arena_alloc(x->arena, sizeof *key);
    if (!key || (!x->origins && !(x->origins = ckpt__hash_new(x->storage_capacity / 2))))
        return false;
    *key = origin;
    return ckpt__hash_put(x->origins, (const char *)key, sizeof *key, storage, NULL) >= 0;
}

bool ckpt__index_storage_of(const ckpt__index *x, const void *origin, size_t *storage)
{
    for (size_t i = 0; i < x->absorbed_count; i++)
        if (ckpt__index_storage_of(x->absorbed[i], origin, storage)) {
            *storage += x->absorbed[i]->origin_base;
            return true;
        }
    return x->origins && ckpt__hash_get(x->origins, (const char *)&origin, sizeof origin, storage);
}

typedef struct shifter {
    ckpt__hash *seen;
    ckpt__arena *arena;
    size_t by;
    ckpt_error *err;
} shifter;

/* A value that is reached twice is shifted once. */
static int shift_value(void *ctx, const ckpt_visit *visit)
{
    shifter *s = ctx;
    ckpt_value *v = (ckpt_value *)(uintptr_t)visit->value;     /* the tree is the part's own */
    if (v->kind != CKPT_V_TENSOR)
        return CKPT_OK;
    ckpt_value **key = ckpt__arena_alloc(s->arena, sizeof *key);
    int put = -1;
    if (key) {
        *key = v;
        put = ckpt__hash_put(s->seen, (const char *)key, sizeof *key, 0, NULL);
    }
    if (put < 0)
        return ckpt__fail_memory(s->err, "the value tree", 0);
    if (put == 1)
        v->tensor += s->by;
    return CKPT_OK;
}

static ckpt_status shift_tree(const ckpt__index *part, size_t by, ckpt_error *err)
{
    if (by == 0 || !part->root)
        return CKPT_OK;
    shifter s = { ckpt__hash_new(part->tensor_count), part->arena, by, err };
    ckpt_status status = s.seen ? CKPT_OK : ckpt__fail_memory(err, "the value tree", 0);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(part->root, 0, shift_value, &s, err);
    ckpt__hash_free(s.seen);
    return status;
}

static int64_t dense_storages(const ckpt__index *x)
{
    int64_t most = -1;
    for (size_t i = 0; i < x->tensor_count; i++)
        if (x->tensors[i].info.storage > most)
            most = x->tensors[i].info.storage;
    return most + 1;
}

static ckpt_status take_tensor(ckpt__index *into, const ckpt__tensor *from, size_t storages, int64_t dense, ckpt_str name,
                               ckpt_error *err)
{
    ckpt__tensor *to = ckpt__index_add_tensor(into);
    ckpt__piece *pieces = ckpt__arena_array(into->arena, from->piece_count + 1, sizeof *pieces);
    ckpt_tensor_info *parts = ckpt__arena_array(into->arena, from->info.part_count + 1, sizeof *parts);
    if (!to || !pieces || !parts)
        return ckpt__fail_memory(err, "tensors", into->tensor_count);
    *to = *from;
    for (size_t i = 0; i < from->piece_count; i++) {
        pieces[i] = from->pieces[i];
        pieces[i].storage += storages;
    }
    to->pieces = from->piece_count ? pieces : NULL;
    for (size_t i = 0; i < from->info.part_count; i++) {
        parts[i] = from->info.parts[i];
        if (parts[i].storage >= 0)
            parts[i].storage += dense;
        if (!parts[i].file.data)
            parts[i].file = name;
    }
    to->info.parts = from->info.part_count ? parts : NULL;
    if (to->info.storage >= 0)
        to->info.storage += dense;
    if (!to->info.file.data)
        to->info.file = name;
    return CKPT_OK;
}

ckpt_status ckpt__index_absorb(ckpt__index *into, ckpt__index *part, ckpt_str name, ckpt_error *err)
{
    size_t storages = into->storage_count;
    int64_t dense = dense_storages(into);
    if (!ckpt__grow(&into->absorbed, &into->absorbed_capacity, into->absorbed_count + 1, sizeof(ckpt__index *))) {
        ckpt__index_free(part);
        return ckpt__fail_memory(err, "an index", 0);
    }
    into->absorbed[into->absorbed_count++] = part;
    part->origin_base = storages;
    ckpt_status status = shift_tree(part, into->tensor_count, err);
    for (size_t i = 0; status == CKPT_OK && i < part->storage_count; i++) {
        ckpt__storage *s = ckpt__index_add_storage(into);
        if (s)
            *s = part->storages[i];
        else
            status = ckpt__fail_memory(err, "storages", part->storage_count);
    }
    for (size_t i = 0; status == CKPT_OK && i < part->tensor_count; i++)
        status = take_tensor(into, &part->tensors[i], storages, dense, name, err);
    if (status == CKPT_OK && !ckpt__report_merge(into->findings, part->findings))
        status = ckpt__fail_memory(err, "findings", 0);
    into->metadata_bytes += part->metadata_bytes;
    into->metadata_crc = into->metadata_crc || part->metadata_crc;
    return status;
}
