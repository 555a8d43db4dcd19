/* model/index_absorb.c - several files as one index; and which of a format's own records stand for which storages. */
#include "model/index.h"

#include <stdlib.h>

typedef struct origin {
    const void *address; /* of a pickle node; never followed */
    size_t storage;      /* number in the index that noted it */
} origin;

/* Which pickle node stands for which storage. Most readers never ask, so noting only appends; the hash table is made when
 * somebody asks, and filled up when somebody asks again. The table's keys are the bytes of `address` in the chunks, so a chunk
 * never moves. With 600 notes there are three chunks, of 256, 256 and 88; after the first question filed_chunks is 2 and
 * filed is 88. */
typedef struct ckpt__origins {
    struct chunk {
        origin *items; /* in the arena of the index, room for ORIGINS */
        size_t count;
    } * chunks; /* heap, owned */
    size_t chunk_count, chunk_capacity;
    size_t filed_chunks, filed; /* so many whole chunks, and so many items of the next, are in the table */
    ckpt__hash *table;          /* owned: address -> storage; NULL until somebody asks */
} ckpt__origins;

enum { ORIGINS = 256 }; /* of a chunk */

bool ckpt__index_note_origin(ckpt__index *x, const void *address, size_t storage)
{
    ckpt__origins *o = x->origins ? x->origins : (x->origins = calloc(1, sizeof *o));
    if (!o)
        return false;
    if (o->chunk_count == 0 || o->chunks[o->chunk_count - 1].count == ORIGINS) {
        origin *items = ckpt__arena_array(x->arena, ORIGINS, sizeof *items);
        if (!items || !ckpt__grow(&o->chunks, &o->chunk_capacity, o->chunk_count + 1, sizeof *o->chunks))
            return false;
        o->chunks[o->chunk_count++] = (struct chunk){items, 0};
    }
    struct chunk *last = &o->chunks[o->chunk_count - 1];
    last->items[last->count++] = (origin){address, storage};
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
    return !file_origins(x->origins)
               ? -1
               : ckpt__hash_get(x->origins->table, (const char *)&address, sizeof address, storage);
}

void ckpt__index_free_origins(ckpt__index *x)
{
    if (x->origins) {
        ckpt__hash_free(x->origins->table);
        free(x->origins->chunks);
        free(x->origins);
    }
}

/* The numbers from `from` on, `count` of them, become those from `to` on. */
typedef struct shifter {
    size_t from, count, to;
} shifter;

static int shift_value(void *ctx, const ckpt_visit *visit)
{
    const shifter *s = ctx;
    ckpt_value *v = (ckpt_value *)(uintptr_t)visit->value; /* the tree is the part's own */
    if (v->kind == CKPT_V_TENSOR && v->tensor - s->from < s->count)
        v->tensor = v->tensor - s->from + s->to;
    return CKPT_OK;
}

/* A value that is reached twice is shifted once: the new numbers are none of the old ones. Where they would be, all go by
 * numbers that no tensor has. */
static ckpt_status shift_tree(const ckpt__index *part, size_t by, ckpt_error *err)
{
    const size_t away = SIZE_MAX / 2;
    shifter all = {0, part->tensor_count, by}, there = {0, part->tensor_count, away},
            back = {away, part->tensor_count, by};
    if (by == 0 || !part->root)
        return CKPT_OK;
    if (by >= part->tensor_count)
        return (ckpt_status)ckpt_value_walk(part->root, 0, shift_value, &all, err);
    ckpt_status status = (ckpt_status)ckpt_value_walk(part->root, 0, shift_value, &there, err);
    return status == CKPT_OK ? (ckpt_status)ckpt_value_walk(part->root, 0, shift_value, &back, err) : status;
}

/* Those that were looked at before are not again: of a thousand files it would be half a million looks at each's tensors. */
static int64_t dense_storages(ckpt__index *x)
{
    if (x->dense_of > x->tensor_count)
        x->dense = (int64_t)(x->dense_of = 0);
    for (; x->dense_of < x->tensor_count; x->dense_of++)
        if (x->tensors[x->dense_of].info.storage >= x->dense)
            x->dense = x->tensors[x->dense_of].info.storage + 1;
    return x->dense;
}

/* Its parts stay where they are: in the part's arena, and only the part's tensor has them. */
static void take_tensor(ckpt__tensor *t, size_t storages, size_t pieces, int64_t dense, ckpt_str name)
{
    t->storage += (uint32_t)storages;
    t->first_piece += (uint32_t)pieces;
    for (size_t i = 0; i < t->info.extra->part_count; i++) {
        ckpt_tensor_info *part = (ckpt_tensor_info *)(uintptr_t)t->info.extra->parts[i];
        if (part->storage >= 0)
            part->storage += dense;
        if (!part->file.data)
            part->file = name;
    }
    if (t->info.storage >= 0)
        t->info.storage += dense;
    if (!t->info.file.data)
        t->info.file = name;
}

/* The part's rows go behind those of `into`, and the part has them no more. */
static bool take_rows(ckpt__index *into, ckpt__index *part)
{
    if (!ckpt__index_reserve(into, part->storage_count, part->tensor_count) ||
        part->piece_count > UINT32_MAX - into->piece_count ||
        !ckpt__arena_grow(into->arena, &into->pieces, &into->piece_capacity, into->piece_count + part->piece_count,
                          sizeof *into->pieces))
        return false;
    for (size_t i = 0; i < part->storage_count; i++)
        part->storages[i].extent.span += part->storages[i].extent.spanned ? (uint32_t)into->span_count : 0;
    for (size_t i = 0; i < part->span_count; i++)
        if (!ckpt__index_add_span(into, &part->spans[i].extent, part->spans[i].name))
            return false;
    if (!into->archive_refused)
        into->archive_refused = part->archive_refused;
    for (size_t i = 0; i < part->piece_count; i++) {
        part->pieces[i].storage += (uint32_t)into->storage_count;
        part->pieces[i].tensor += (uint32_t)into->tensor_count;
        into->pieces[into->piece_count++] = part->pieces[i];
    }
    if (part->storage_count)
        memcpy(into->storages + into->storage_count, part->storages, part->storage_count * sizeof *part->storages);
    if (part->tensor_count)
        memcpy(into->tensors + into->tensor_count, part->tensors, part->tensor_count * sizeof *part->tensors);
    into->storage_count += part->storage_count;
    into->tensor_count += part->tensor_count;
    free(part->storages);
    free(part->tensors);
    free(part->pieces);
    part->storages = NULL;
    part->tensors = NULL;
    part->pieces = NULL;
    part->piece_count = part->piece_capacity = 0;
    part->storage_count = part->storage_capacity = part->tensor_count = part->tensor_capacity = 0;
    return true;
}

ckpt_status ckpt__index_absorb(ckpt__index *into, ckpt__index *part, ckpt_str name, ckpt_error *err)
{
    size_t storages = into->storage_count, tensors = into->tensor_count, pieces = into->piece_count;
    int64_t dense = dense_storages(into);
    if (!ckpt__grow(&into->absorbed, &into->absorbed_capacity, into->absorbed_count + 1, sizeof(ckpt__index *))) {
        ckpt__index_free(part);
        return ckpt__fail_memory(err, "an index", 0);
    }
    into->absorbed[into->absorbed_count++] = part;
    part->origin_base = storages;
    ckpt_status status = shift_tree(part, tensors, err);
    if (status == CKPT_OK && !take_rows(into, part))
        status = ckpt__fail_memory(err, "tensors", part->tensor_count);
    for (size_t i = tensors; i < into->tensor_count; i++)
        take_tensor(&into->tensors[i], storages, pieces, dense, name);
    if (status == CKPT_OK && !ckpt__report_merge(into->findings, part->findings))
        status = ckpt__fail_memory(err, "findings", 0);
    into->metadata_bytes += part->metadata_bytes;
    into->metadata_crc = into->metadata_crc || part->metadata_crc;
    into->bare_list = into->bare_list || part->bare_list;
    return status;
}
