/* format/layout.c - where the payloads of recipes lie: the index that was written becomes that of the target. */
#include "format/format.h"

#include <stdlib.h>

enum { ALIGN = 48 }; /* bytes: a multiple of every element, and of what six-bit ones fill */

/* Where the bytes of a storage that was described are now. */
typedef struct moved {
    uint32_t storage;    /* 1 + the number of the new one; 0: nowhere */
    uint32_t laid;       /* 1 + the payload that has all of it; 0: none has */
    uint32_t filler;     /* 1 + a tensor that is all of it; 0: none is */
    int64_t by;          /* bytes further on there */
    uint64_t begin, end; /* of what is there of it, in bytes of the new one */
} moved;

typedef struct layout {
    ckpt__index *x;          /* borrowed */
    size_t sources;          /* storages from there on have no source: they are what their tensor is */
    moved *moved;            /* heap, one a storage of the index as it was described */
    unsigned char *done;     /* heap: a bit a tensor: it has its place */
    ckpt__storage *storages; /* heap: of the target: one a recipe, then those that are kept whole */
    size_t count, capacity;
    ckpt__laid *laid; /* heap */
    size_t laid_count, laid_capacity;
    ckpt_error *err;
} layout;

static ckpt_status no_memory(const layout *l)
{
    return ckpt__fail_memory(l->err, "the target", l->laid_count * sizeof *l->laid);
}

/* In C order; or, in a storage that has no source, in whatever order fills it. */
static bool fills(const layout *l, const ckpt__tensor *t)
{
    const ckpt__storage *s = &l->x->storages[t->storage];
    size_t size = ckpt_dtype_size(t->info.dtype);
    bool c_order = ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim),
         whole_units = !s->extent.big_endian || s->unit < 2 || (size && size % s->unit == 0);
    return t->info.offset == 0 && t->info.nbytes && t->info.nbytes == s->extent.size && whole_units &&
           (c_order || (t->storage >= l->sources && ckpt__is_dense(t->info.shape, t->info.strides, t->info.ndim)));
}

static void find_fillers(layout *l)
{
    for (size_t i = 0; i < l->x->tensor_count; i++)
        if (l->x->tensors[i].whole && fills(l, &l->x->tensors[i]))
            l->moved[l->x->tensors[i].storage].filler = (uint32_t)i + 1;
}

static bool is_done(const layout *l, size_t tensor)
{
    return l->done[tensor / 8] >> (tensor % 8) & 1;
}

static uint64_t at_of(const ckpt__tensor *t)
{
    return (uint64_t)t->info.offset * ckpt_dtype_bits(t->info.dtype) / 8;
}

static void put_at(ckpt__tensor *t, uint64_t at)
{
    t->info.offset = (int64_t)(at * 8 / ckpt_dtype_bits(t->info.dtype));
}

/* The tensor behind what the recipe's storage has already. as_it_is: with its strides; else in C order. */
static ckpt_status lay_tensor(layout *l, size_t recipe, size_t tensor, bool as_it_is)
{
    ckpt__tensor *t = &l->x->tensors[tensor];
    ckpt__storage *s = &l->storages[recipe];
    uint64_t at = (s->extent.size + ALIGN - 1) / ALIGN * ALIGN, end;
    uint32_t n = t->info.ndim;
    if (s->extent.size % 16 == 0 &&
        ckpt_dtype_size(t->info.dtype)) /* no six-bit one: side by side with the one before */
        at = s->extent.size;
    if (!ckpt__add(at, t->info.nbytes, &end) || end > INT64_MAX / 16)
        return ckpt__fail(l->err, CKPT_E_LIMIT, t->info.name.data,
                          "the tensors together are larger than a file can be");
    bool turned = !as_it_is && !ckpt__is_c_order(t->info.shape, t->info.strides, n);
    moved *m = &l->moved[t->storage];
    if (!m->storage && !turned) {
        m->storage = (uint32_t)recipe + 1;
        m->by = (int64_t)at - (int64_t)at_of(t);
        m->begin = at;
        m->end = end;
    }
    if (turned) {
        int64_t *strides = ckpt__arena_array(l->x->arena, n, sizeof *strides);
        if (!strides)
            return no_memory(l);
        ckpt__c_strides(t->info.shape, n, strides);
        t->info.strides = strides;
    }
    t->storage = (uint32_t)recipe;
    put_at(t, at);
    s->extent.size = end;
    l->done[tensor / 8] |= (unsigned char)(1u << (tensor % 8));
    return CKPT_OK;
}

static ckpt_status keep_storage(layout *l, size_t storage)
{
    if (l->count >= UINT32_MAX || !ckpt__grow(&l->storages, &l->capacity, l->count + 1, sizeof *l->storages))
        return no_memory(l);
    const ckpt__storage *was = &l->x->storages[storage];
    l->storages[l->count++] = (ckpt__storage){.extent.size = was->extent.size, .name = was->name, .unit = 1};
    moved *m = &l->moved[storage];
    m->storage = (uint32_t)l->count;
    m->by = 0;
    m->begin = 0;
    m->end = was->extent.size;
    return CKPT_OK;
}

static ckpt_status lay_segment(layout *l, size_t recipe, ckpt__segment *g)
{
    size_t number = g->number;
    bool payload = g->kind == CKPT__PAYLOAD;
    moved *m = payload ? NULL : &l->moved[number];
    ckpt__laid laid = {.from = (uint32_t)number};
    ckpt_status status = CKPT_OK;
    if (!ckpt__grow(&l->laid, &l->laid_capacity, l->laid_count + 1, sizeof *l->laid) || l->laid_count >= UINT32_MAX - 1)
        return no_memory(l);
    g->kind = CKPT__STORAGE;
    g->number = l->laid_count;
    if (m && m->laid) { /* in another file, too */
        g->number = m->laid - 1;
        return CKPT_OK;
    }
    if (payload && is_done(l, number))
        return ckpt__fail(l->err, CKPT_E_UNSUPPORTED, l->x->tensors[number].info.name.data,
                          "it would be written twice, to two files");
    if (payload)
        status = lay_tensor(l, recipe, number, false);
    else if (m->filler && !is_done(l, m->filler - 1)) {
        laid.from = m->filler - 1;
        status = lay_tensor(l, recipe, laid.from, true);
    } else if (number >= l->sources)
        return ckpt__fail(l->err, CKPT_E_FORMAT, l->x->storages[number].name.data, "no tensor says what is in it");
    else {
        laid.storage = true;
        status = keep_storage(l, number);
    }
    laid.to = laid.storage ? (uint32_t)l->count - 1 : laid.from;
    l->laid[l->laid_count++] = laid;
    if (m)
        m->laid = (uint32_t)l->laid_count;
    return status;
}

/* What shares its bytes with one that was laid out lies in that; what has none in the target has none any longer. */
static void move_others(layout *l)
{
    for (size_t i = 0; i < l->x->tensor_count; i++) {
        ckpt__tensor *t = &l->x->tensors[i];
        const moved *m = t->whole && !is_done(l, i) ? &l->moved[t->storage] : NULL;
        if (!m)
            continue;
        unsigned bits = ckpt_dtype_bits(t->info.dtype);
        uint64_t at = t->info.nbytes && m->storage ? at_of(t) + (uint64_t)m->by : 0, reach, bytes;
        bool there = t->info.nbytes && m->storage && at >= m->begin && at < m->end && at * 8 % bits == 0 &&
                     ckpt__view_extent(t->info.shape, t->info.strides, t->info.ndim, &reach) &&
                     ckpt__nbytes(reach, bits, &bytes) && bytes <= m->end - at;
        t->storage = there ? m->storage - 1 : 0;
        t->whole = there || t->info.nbytes == 0;
        put_at(t, there ? at : 0);
    }
}

ckpt_status ckpt__recipes_lay_out(ckpt__recipe *const *recipes, size_t count, ckpt__index *index, size_t sources,
                                  ckpt__laid **out, size_t *out_count, ckpt_error *err)
{
    layout l = {.x = index, .sources = sources, .err = err, .count = count};
    l.moved = calloc(index->storage_count + 1, sizeof *l.moved);
    l.done = calloc(index->tensor_count / 8 + 1, 1);
    bool made = l.moved && l.done && ckpt__grow(&l.storages, &l.capacity, count + 1, sizeof *l.storages);
    ckpt_status status = made ? CKPT_OK : no_memory(&l);
    if (made)
        find_fillers(&l);
    for (size_t r = 0; status == CKPT_OK && r < count; r++) {
        l.storages[r] = (ckpt__storage){.unit = 1};
        for (size_t i = 0; recipes[r] && status == CKPT_OK && i < recipes[r]->count; i++)
            if (recipes[r]->segments[i].kind == CKPT__PAYLOAD || recipes[r]->segments[i].kind == CKPT__STORAGE)
                status = lay_segment(&l, r, &recipes[r]->segments[i]);
    }
    if (status == CKPT_OK) {
        move_others(&l);
        for (size_t i = 0; i < l.count; i++)
            l.storages[i].extent.length = l.storages[i].extent.size;
        free(index->storages);
        index->storages = l.storages;
        index->storage_count = l.count;
        index->storage_capacity = l.capacity;
        *out = l.laid;
        *out_count = l.laid_count;
    } else {
        free(l.storages);
        free(l.laid);
    }
    free(l.moved);
    free(l.done);
    return status;
}
