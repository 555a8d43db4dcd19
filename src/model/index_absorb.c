/* model/index_absorb.c - several files as one index; and which of a format's own records stand for which storages. */
#include "model/index.h"

#include <stdlib.h>

typedef struct origin {
    const void *address;
    size_t storage;
} origin;

/* Most readers never ask: the table is made when somebody does. Its keys are addresses, as bytes, in chunks that stay. */
typedef struct ckpt__origins {
    struct chunk {
        origin *items;
        size_t count;
    } *chunks;
    size_t chunk_count, chunk_capacity;
    size_t filed_chunks, filed;   /* so many chunks, and so many of the next one, are in the table */
    ckpt__hash *table;
} ckpt__origins;

enum { ORIGINS = 256 };           /* of a chunk */

bool ckpt__index_note_origin(ckpt__index *x, const void *address, size_t storage)
{
    ckpt__origins *o = x->origins ? x->origins : (x->origins = calloc(1, sizeof *o));
    if (!o)
        return false;
    if (o->chunk_count == 0 || o->chunks[o->chunk_count - 1].count == ORIGINS) {
        origin *items = ckpt__arena_array(x->arena, ORIGINS, sizeof *items);
        if (!items || !ckpt__grow(&o->chunks, &o->chunk_capacity, o->chunk_count + 1, sizeof *o->chunks))
            return false;
        o->chunks[o->chunk_count++] = (struct chunk){ items, 0 };
    }
    struct chunk *last = &o->chunks[o->chunk_count - 1];
    last->items[last->count++] = (origin){ address, storage };
    return true;
}

static bool file_origins(ckpt__origins *o)
{
    if (!o->table && !(o->table = ckpt__hash_new(o->chunk_count * ORIGINS)))
        return false;
    while (o->filed_chunks < o->chunk_count) {
        const struct chunk *c = &o->chunks[o->filed_chunks];
        for (; o->filed < c->count; o->filed++) {
            const origin *item = &c->items[o->filed];
            if (ckpt__hash_put(o->table, (const char *)&item->address, sizeof item->address, item->storage, NULL) < 0)
                return false;
        }
        if (c->count < ORIGINS)
            break;
        o->filed_chunks++;
        o->filed = 0;
    }
    return true;
}

int ckpt__index_storage_of(const ckpt__index *x, const void *address, size_t *storage)
{
    for (size_t i = 0; i < x->absorbed_count; i++) {
        int found = ckpt__index_storage_of(x->absorbed[i], address, storage);
        if (found > 0)
            *storage += x->absorbed[i]->origin_base;
        if (found != 0)
            return found;
    }
    if (!x->origins)
        return 0;
    return !file_origins(x->origins) ? -1 : ckpt__hash_get(x->origins->table, (const char *)&address, sizeof address, storage);
}

void ckpt__index_free_origins(ckpt__index *x)
{
    if (x->origins) {
        ckpt__hash_free(x->origins->table);
        free(x->origins->chunks);
        free(x->origins);
    }
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
