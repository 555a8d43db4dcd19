/* format/dcp/fill.c - items -> tensors of an index, whose storages are looked into when they are used; and objects, which are read now. */
#include "format/dcp/dcp.h"
#include "format/shard.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- records: those of one file must not lie on one another */

static int by_place(const void *a, const void *b, void *ctx)
{
    const ckpt__dcp *d = ctx;
    const ckpt__dcp_chunk *x = &d->chunks[*(const uint32_t *)a], *y = &d->chunks[*(const uint32_t *)b];
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : *(const uint32_t *)a > *(const uint32_t *)b;
}

/* All chunks by place. That is the order of the records in a list that a few ranks wrote one behind the other. */
static uint32_t *sort_chunks(ckpt__dcp *d)
{
    const size_t n = d->chunk_count;
    uint32_t *order = d->order;
    size_t sorted = 1;
    d->order = NULL;
    const bool told = order && d->order_count == n;
    if (told && d->apart)
        return order;
    d->apart = false;
    if (!told) {
        free(order);
        order = malloc((n + 1) * sizeof *order);
        for (size_t i = 0; order && i < n; i++)
            order[i] = (uint32_t)i;
    }
    while (order && sorted < n && by_place(&order[sorted - 1], &order[sorted], d) < 0)
        sorted++;
    if (order && sorted < n)
        qsort_r(order, n, sizeof *order, by_place, d);
    return order;
}

static ckpt_status check_overlaps(const ckpt__dcp *d, const uint32_t *order, ckpt_error *err)
{
    char one[200], two[200];
    for (size_t i = 1; i < d->chunk_count && !d->apart; i++) {
        const ckpt__dcp_chunk *x = &d->chunks[order[i - 1]], *y = &d->chunks[order[i]];
        if (x->file != y->file || y->offset - x->offset >= x->length)
            continue;
        const ckpt_str *a = &d->items[x->item].name, *b = &d->items[y->item].name;
        return ckpt__fail(
            err, CKPT_E_FORMAT, d->files[x->file].name,
            "the list has two records that lie on one another: '%s' at byte %llu, of %llu bytes, and '%s' at "
            "byte %llu",
            ckpt__escape(one, sizeof one, a->data, a->size), (unsigned long long)x->offset,
            (unsigned long long)x->length, ckpt__escape(two, sizeof two, b->data, b->size),
            (unsigned long long)y->offset);
    }
    return CKPT_OK;
}

/* ---- the chunks of each item */

/* A list that one program wrote has those of an item side by side. The lists of ranks have not. */
typedef struct groups {
    uint32_t *first;   /* heap, owned, one an item and one more: of `numbers`, or of the chunks themselves */
    uint32_t *numbers; /* heap, owned: chunks, item by item; NULL: they stand so in the list */
    size_t *at;        /* heap, owned, one an item: where its chunks begin, where numbers is NULL */
} groups;

static void free_groups(groups *g)
{
    free(g->first);
    free(g->numbers);
    free(g->at);
}

static bool group_chunks(const ckpt__dcp *d, groups *g)
{
    bool side_by_side = true;
    g->first = calloc(d->item_count + 2, sizeof *g->first);
    g->at = calloc(d->item_count + 1, sizeof *g->at);
    if (!g->first || !g->at)
        return false;
    for (size_t i = 0; i < d->chunk_count; i++) {
        const uint32_t item = d->chunks[i].item;
        if (g->first[item + 1]++ == 0)
            g->at[item] = i;
        side_by_side &= i - g->at[item] + 1 == g->first[item + 1];
    }
    for (size_t i = 1; i <= d->item_count; i++)
        g->first[i] += g->first[i - 1];
    if (side_by_side)
        return true;
    g->numbers = malloc((d->chunk_count + 1) * sizeof *g->numbers);
    for (size_t i = 0; i < d->item_count; i++)
        g->at[i] = g->first[i];
    for (size_t i = 0; g->numbers && i < d->chunk_count; i++)
        g->numbers[g->at[d->chunks[i].item]++] = (uint32_t)i;
    return g->numbers != NULL;
}

static size_t count_of(const groups *g, size_t item)
{
    return g->first[item + 1] - g->first[item];
}

static const ckpt__dcp_chunk *chunk_of(const ckpt__dcp *d, const groups *g, size_t item, size_t i)
{
    return &d->chunks[g->numbers ? g->numbers[g->first[item] + i] : g->at[item] + i];
}

/* ---- tensors */

/* What the record has in common with others: as a rule with one of the last few of its tensor. */
typedef struct kinds {
    const ckpt__nested_kind *last[4];
    unsigned turn;
} kinds;

static const ckpt__nested_kind *kind_of(ckpt__dcp *d, const ckpt__dcp_item *item, const ckpt__dcp_chunk *c, kinds *all)
{
    enum { MOST = sizeof all->last / sizeof *all->last };
    const size_t bytes = item->ndim * sizeof *c->box;
    const int64_t *size = c->box + item->ndim;
    for (unsigned i = 0; i < MOST && all->last[i]; i++)
        if (all->last[i]->zstd == c->zstd && (bytes == 0 || memcmp(all->last[i]->shape, size, bytes) == 0))
            return all->last[i];
    ckpt__nested_kind *k = ckpt__arena_alloc(d->index->arena, sizeof *k);
    int64_t *shape = ckpt__arena_array(d->index->arena, item->ndim ? item->ndim : 1, sizeof *shape);
    if (!k || !shape)
        return NULL;
    if (bytes)
        memcpy(shape, size, bytes);
    *k = (ckpt__nested_kind){.records = d->index->records,
                             .shape = shape,
                             .ndim = item->ndim,
                             .dtype = (uint16_t)item->dtype,
                             .zstd = c->zstd};
    return all->last[all->turn++ % MOST] = k;
}

static ckpt_status add_storage(ckpt__dcp *d, const ckpt__dcp_item *item, const ckpt__dcp_chunk *c, ckpt_str name,
                               uint64_t size, kinds *all, ckpt_error *err)
{
    const ckpt__dcp_file *f = &d->files[c->file];
    bool lost = c->offset + c->length > f->has;
    const ckpt__nested_kind *kind = kind_of(d, item, c, all);
    const ckpt__nested *n = kind ? ckpt__records_add(kind, c->offset) : NULL;
    ckpt__storage *s = n ? ckpt__index_add_storage(d->index) : NULL;
    if (!s)
        return ckpt__dcp_no_memory(d, err);
    s->name = name;
    s->dtype = item->dtype;
    s->extent = (ckpt__extent){.file = f->number,
                               .coding = CKPT__NESTED,
                               .has_crc = true,
                               .missing = lost,
                               .nested = n,
                               .length = lost ? 0 : c->length,
                               .size = size};
    return CKPT_OK;
}

static ckpt_status add_value(ckpt__dcp *d, ckpt__dcp_item *item, size_t tensor, ckpt_error *err)
{
    item->value = ckpt__value_new(d->index->arena, CKPT_V_TENSOR);
    if (!item->value)
        return ckpt__dcp_no_memory(d, err);
    item->value->tensor = tensor;
    return CKPT_OK;
}

/* Is there a chunk that has elements? */
static bool has_chunks(const ckpt__dcp *d, const groups *g, size_t number)
{
    const uint32_t n = d->items[number].ndim;
    for (size_t i = 0; i < count_of(g, number); i++) {
        const int64_t *size = chunk_of(d, g, number, i)->box + n;
        uint32_t k = 0;
        while (k < n && size[k] != 0)
            k++;
        if (k == n)
            return true;
    }
    return false;
}

/* It has elements, and no list says where one of them is: the rank that had them wrote none that is here. */
static ckpt_status lose_tensor(ckpt__dcp *d, const ckpt__dcp_item *item, uint64_t numel, ckpt_error *err)
{
    char name[300];
    if (ckpt__dcp_goes_on(d))
        return ckpt__survey_pieces(d->index->findings, item->name, 0, numel, err);
    return ckpt__fail(
        err, CKPT_E_DAMAGED, ckpt__escape(name, sizeof name, item->name.data, item->name.size),
        "the list has no piece of it, where %llu elements are expected. Copy the checkpoint again with the "
        "files of all ranks; ckpt-inspect verify names all such tensors, ckpt-migrate --salvage keeps the "
        "others",
        (unsigned long long)numel);
}

/* Where its bytes are: a storage for each chunk. */
static ckpt_status add_pieces(ckpt__dcp *d, const groups *g, size_t number, ckpt__piece *pieces, ckpt_error *err)
{
    ckpt__index *x = d->index;
    const ckpt__dcp_item *item = &d->items[number];
    const size_t count = count_of(g, number), tensor = item->value->tensor;
    const ckpt_str name = x->tensors[tensor].info.name;
    ckpt_status status = CKPT_OK;
    kinds all = {0};
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        const ckpt__dcp_chunk *c = chunk_of(d, g, number, i);
        uint64_t numel, bytes;
        if (!ckpt__numel(c->box + item->ndim, item->ndim, &numel) ||
            !ckpt__nbytes(numel, ckpt_dtype_bits(item->dtype), &bytes))
            return ckpt__fail(err, CKPT_E_FORMAT, name.data, "a chunk of it has a size that overflows 64 bits");
        pieces[i] = (ckpt__piece){.box = c->box,
                                  .storage = (uint32_t)x->storage_count,
                                  .flags = (d->replicas && count > 1 ? CKPT__PIECE_REPLICA : 0) | CKPT__PIECE_KEPT};
        status = add_storage(d, item, c, name, bytes, &all, err);
    }
    if (status == CKPT_OK && !g->numbers) /* they have said all that they know */
        ckpt__forget(d->chunks + g->at[number], count * sizeof *d->chunks);
    return status == CKPT_OK ? ckpt__index_set_pieces(x, tensor, item->shape, pieces, count, err) : status;
}

/* The tensor's row. What it is made of comes later, where that is in several chunks. */
static ckpt_status add_tensor(ckpt__dcp *d, const groups *g, size_t number, ckpt_error *err)
{
    ckpt__index *x = d->index;
    ckpt__dcp_item *item = &d->items[number];
    uint64_t numel;
    ckpt_status status = CKPT_OK;
    if (!ckpt__numel(item->shape, item->ndim, &numel))
        return ckpt__fail(err, CKPT_E_FORMAT, item->name.data, "the product of its shape overflows 64 bits");
    if (numel && !has_chunks(d, g, number))
        return lose_tensor(d, item, numel, err);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    size_t tensor = x->tensor_count - 1;
    ckpt_str name = t ? ckpt__arena_str(x->arena, item->name.data, item->name.size) : (ckpt_str){NULL, 0};
    if (!name.data)
        return ckpt__dcp_no_memory(d, err);
    t->info.name = name;
    t->info.dtype = item->dtype;
    t->info.ndim = item->ndim;
    if (numel == 0)
        status = ckpt__index_set_empty(x, tensor, item->shape, err); /* it has no records with bytes */
    return status == CKPT_OK ? add_value(d, item, tensor, err) : status;
}

static ckpt_status add_tensors(ckpt__dcp *d, const groups *g, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < d->item_count; i++)
        if (!d->items[i].object)
            status = add_tensor(d, g, i, err);
    return status;
}

/* split: those in several chunks; else those in one. */
static ckpt_status add_bytes(ckpt__dcp *d, const groups *g, bool split, ckpt_error *err)
{
    size_t most = 0;
    for (size_t i = 0; i < d->item_count; i++)
        most = count_of(g, i) > most ? count_of(g, i) : most;
    ckpt__piece *pieces = malloc((most + 1) * sizeof *pieces);
    ckpt_status status = pieces ? CKPT_OK : ckpt__dcp_no_memory(d, err);
    for (size_t i = 0; status == CKPT_OK && i < d->item_count; i++) {
        const ckpt__dcp_item *item = &d->items[i];
        if (!item->object && item->value && !d->index->tensors[item->value->tensor].whole &&
            (count_of(g, i) > 1) == split)
            status = add_pieces(d, g, i, pieces, err);
    }
    free(pieces);
    return status;
}

/* ---- objects */

static ckpt_status pass_over(ckpt__dcp *d, const ckpt__dcp_chunk *c, ckpt_status status, const ckpt_error *why,
                             ckpt_error *err)
{
    ckpt__dcp_item *item = &d->items[c->item];
    char name[300], text[sizeof name + sizeof why->message + 20];
    if (!ckpt__dcp_goes_on(d) || !ckpt__survey_passes(status)) {
        if (err)
            *err = *why;
        return status;
    }
    ckpt__escape(name, sizeof name, item->name.data, item->name.size);
    snprintf(text, sizeof text, "the object '%s': %s", name, why->message);
    return ckpt__dcp_note(d, "damaged", d->files[c->file].name, text, err);
}

/* A survey says it of the file; a salvage names each value. */
static ckpt_status lose_object(ckpt__dcp *d, const ckpt__dcp_chunk *c, ckpt_error *err)
{
    const ckpt_str *own = &d->items[c->item].name;
    char name[300];
    if (!d->request->salvage)
        return CKPT_OK;
    if (ckpt__report_add(d->index->findings, CKPT_SEVERITY_ERROR, "damaged",
                         ckpt__escape(name, sizeof name, own->data, own->size), NULL,
                         "it is a value whose record is not there") &&
        ckpt__report_detail(d->index->findings, d->files[c->file].name, NULL, NULL, 0))
        return CKPT_OK;
    return ckpt__dcp_no_memory(d, err);
}

/* Has the rank all of it? A copy that each rank has, or a mesh of one. */
static bool is_whole(const ckpt__index *part, const ckpt__shard *s)
{
    const ckpt_tensor_info *t = &part->tensors[s->tensor].info;
    uint64_t all, own, sum = 0;
    for (size_t i = 0; i < s->local_count; i++)
        if (!ckpt__numel(s->locals[i].shape, s->locals[i].ndim, &own) || !ckpt__add(sum, own, &sum))
            return false;
    return ckpt__numel(t->shape, t->ndim, &all) && sum == all;
}

/* DTensors that were pickled with an object, not flattened: one rank wrote it, with its own parts. */
static ckpt_status note_parts(ckpt__dcp *d, const ckpt__dcp_chunk *c, const ckpt__index *part, ckpt_error *err)
{
    const ckpt_str *own = &d->items[c->item].name;
    const ckpt__shard *first = NULL;
    size_t count = 0;
    char name[300];
    for (const ckpt__shard *s = part->shards; s; s = s->next)
        if (s->tensor < part->tensor_count && !is_whole(part, s)) {
            first = first ? first : s;
            count++;
        }
    if (!first)
        return CKPT_OK;
    bool noted =
        ckpt__report_add(
            d->index->findings, CKPT_SEVERITY_ERROR, "rank-part", ckpt__escape(name, sizeof name, own->data, own->size),
            "save it flattened, as DefaultSavePlanner does by default (flatten_state_dict=True)",
            "it was saved as one object, in which %zu sharded tensor%s the part of rank %lld of %lld alone: the other parts are in no file",
            count, count == 1 ? " has" : "s have", (long long)first->rank, (long long)first->world) &&
        ckpt__report_detail(d->index->findings, d->files[c->file].name, NULL, NULL, 0);
    return noted ? CKPT_OK : ckpt__dcp_no_memory(d, err);
}

/* Tensors in it get their numbers from the index that takes it in; their names come with the paths (tree.c). */
static ckpt_status add_object(ckpt__dcp *d, const ckpt__dcp_chunk *c, ckpt__dcp_cache *cache, ckpt_error *err)
{
    ckpt__dcp_item *item = &d->items[c->item];
    ckpt__index *part = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    if (c->offset + c->length > d->files[c->file].has)
        return lose_object(d, c, err);
    ckpt_status status = ckpt__dcp_object(d, c, cache, &part, &why);
    if (status < 0)
        return pass_over(d, c, status, &why, err);
    ckpt_report_clear(part->findings); /* they are of archives that torch opens by themselves */
    item->value = (ckpt_value *)(uintptr_t)part->root;
    status = note_parts(d, c, part, err);
    if (status < 0)
        return status;
    if (part->storage_count)
        return ckpt__index_absorb(d->index, part, (ckpt_str){NULL, 0}, err);
    d->index->metadata_bytes += part->metadata_bytes; /* values alone, which lie in the arena */
    d->index->metadata_crc |= part->metadata_crc;
    ckpt__index_free(part);
    return CKPT_OK;
}

/* In the order of their places in the files. */
static ckpt_status add_objects(ckpt__dcp *d, const uint32_t *order, ckpt_error *err)
{
    ckpt__dcp_cache cache = {0};
    ckpt_status status = ckpt__index_finish(d->index, err); /* absorbing asks for it */
    for (size_t i = 0; status == CKPT_OK && i < d->chunk_count; i++) {
        const ckpt__dcp_chunk *c = &d->chunks[order[i]];
        if (d->items[c->item].object)
            status = add_object(d, c, &cache, err);
    }
    ckpt__dcp_cache_free(&cache);
    return status;
}

/* ---- order */

static int by_turn(const void *a, const void *b, void *ctx)
{
    const uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
    const ckpt__dcp_item *items = ctx, *x = &items[i], *y = &items[k];
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    return i < k ? -1 : i > k;
}

/* Items in the order of the state dict: that of a model's parameters tells whose the numbered states of an optimizer are. */
static ckpt_status sort_items(ckpt__dcp *d, ckpt_error *err)
{
    const size_t n = d->item_count;
    uint32_t *order = calloc(n + 1, sizeof *order), *now = calloc(n + 1, sizeof *now);
    ckpt__dcp_item *sorted = calloc(n + 1, sizeof *sorted);
    bool ok = order && now && sorted;
    for (size_t i = 0; ok && i < n; i++)
        order[i] = (uint32_t)i;
    if (ok && n)
        qsort_r(order, n, sizeof *order, by_turn, d->items);
    for (size_t i = 0; ok && i < n; i++) {
        sorted[i] = d->items[order[i]];
        now[order[i]] = (uint32_t)i;
    }
    for (size_t i = 0; ok && i < n; i++)
        d->items[i] = sorted[i];
    for (size_t i = 0; ok && i < d->chunk_count; i++)
        d->chunks[i].item = now[d->chunks[i].item];
    free(order);
    free(now);
    free(sorted);
    return ok ? CKPT_OK : ckpt__dcp_no_memory(d, err);
}

/* The storages of pieces, of which there may be millions, come last: whoever makes another index of this one's storages by their numbers
 * has no use for them. */
ckpt_status ckpt__dcp_fill(ckpt__dcp *d, ckpt_error *err)
{
    groups g = {0};
    ckpt__records *records = d->index->records ? d->index->records : ckpt__index_records(d->index, d->chunk_count);
    uint32_t *order = sort_chunks(d);
    ckpt_status status = order && records ? sort_items(d, err) : ckpt__dcp_no_memory(d, err);
    if (status == CKPT_OK)
        status = check_overlaps(d, order, err);
    if (status == CKPT_OK && !group_chunks(d, &g))
        status = ckpt__dcp_no_memory(d, err);
    if (status == CKPT_OK) {
        records->look = ckpt__dcp_look;
        status = add_tensors(d, &g, err);
    }
    if (status == CKPT_OK)
        status = add_bytes(d, &g, false, err);
    if (status == CKPT_OK)
        status = add_objects(d, order, err);
    free(order);
    if (status == CKPT_OK && !ckpt__index_expect(d->index, d->chunk_count, d->chunk_count))
        status = ckpt__dcp_no_memory(d, err);
    if (status == CKPT_OK)
        status = add_bytes(d, &g, true, err);
    free_groups(&g);
    return status;
}
