/* format/dcp/stream_fold.c - lists and dicts of a list, folded into items, chunks and records. */
#include "format/dcp/stream.h"

#include <stdlib.h>

static const uint64_t no_record = UINT64_MAX; /* the length of a chunk whose record was not met yet */

static ckpt_str text_of(const ckpt__dcp_value *v)
{
    return (ckpt_str){v->u.text, v->n};
}

/* ---- chunks */

/* One box for all that are the same. Layers repeat, so most are those that the tensor before had. */
static const int64_t *keep_box(ckpt__dcp_machine *m, const int64_t *box, size_t n)
{
    const ckpt__dcp *d = m->d;
    if (m->same && m->same <= d->chunk_count) {
        const ckpt__dcp_chunk *like = &d->chunks[d->chunk_count - m->same];
        if (like->offset == n && like->box && memcmp(like->box, box, 2 * n * sizeof *box) == 0)
            return like->box;
    }
    const int64_t *kept = ckpt__index_box(d->index, box, 2 * n);
    m->no_memory = !kept;
    return kept;
}

static ckpt__dcp_chunk *add_chunk(ckpt__dcp_machine *m)
{
    ckpt__dcp *d = m->d;
    if (d->chunk_count >= UINT32_MAX ||
        !ckpt__arena_grow(d->arena, &d->chunks, &d->chunk_capacity, d->chunk_count + 1, sizeof *d->chunks)) {
        m->no_memory = true;
        return NULL;
    }
    return &d->chunks[d->chunk_count++];
}

/* Until its record is met, a chunk's offset is its number of dimensions. One without elements has none: a rank that has nothing of the
 * tensor. */
static bool append_chunk(ckpt__dcp_machine *m, ckpt__dcp_value *list, const ckpt__dcp_made *o)
{
    int64_t box[2 * CKPT__DCP_DIMS];
    const size_t n = o->a.n;
    if (o->class_of != CKPT__DC_CHUNK || !o->built || o->has != (CKPT__DA_FIRST | CKPT__DA_SECOND) || n != o->b.n ||
        n > CKPT__DCP_DIMS || m->seen[CKPT__DD_RECORDS])
        return false;
    for (size_t i = 0; i < n; i++) {
        box[i] = o->a.u.numbers[i];
        box[n + i] = o->b.u.numbers[i];
        if (box[n + i] == 0)
            return true;
    }
    const int64_t *kept = keep_box(m, box, n);
    ckpt__dcp_chunk *c = kept ? add_chunk(m) : NULL;
    if (!c)
        return false;
    *c = (ckpt__dcp_chunk){.box = kept, .offset = n, .length = no_record};
    size_t number = m->d->chunk_count - 1;
    if (list->n == 0) {
        list->u.first = number;
        m->same = number - m->list_begin;
        m->list_begin = number;
    }
    return list->u.first + list->n++ == number;
}

bool ckpt__dcp_append(ckpt__dcp_machine *m, ckpt__dcp_value *list, const ckpt__dcp_value *items, size_t n)
{
    /* torch/distributed/checkpoint/_extension.py has one extension: more than it, or another, is for the message of list.c */
    if (n == 1 && items->kind == CKPT__D_TEXT && !list->what && list->n == 0) {
        list->what = ckpt__str_is(text_of(items), "stream.zstd/1");
        return list->what;
    }
    for (size_t i = 0; i < n; i++)
        if (list->what || items[i].kind != CKPT__D_OBJECT || !append_chunk(m, list, items[i].u.object))
            return false;
    return true;
}

/* ---- items */

static bool grow_item(ckpt__dcp_machine *m, uint32_t **array, size_t *capacity)
{
    m->no_memory =
        m->no_memory || !ckpt__arena_grow(m->d->arena, array, capacity, m->d->item_count + 1, sizeof **array);
    return !m->no_memory;
}

/* A new item with the chunks first ... first + count. */
static bool add_item(ckpt__dcp_machine *m, const ckpt__dcp_value *key, const ckpt__dcp_item *like, uint64_t first,
                     size_t count)
{
    ckpt__dcp *d = m->d;
    size_t number;
    if (ckpt__hash_get(d->by_name, key->u.text, key->n, &number))
        return false; /* twice */
    if (!grow_item(m, &m->first, &m->first_capacity) || !grow_item(m, &m->count, &m->count_capacity) ||
        !grow_item(m, &m->after, &m->after_capacity) || !grow_item(m, &m->cursor, &m->cursor_capacity) ||
        ckpt__dcp_add_item(d, text_of(key), like, &number, NULL) < 0) {
        m->no_memory = true;
        return false;
    }
    m->first[number] = (uint32_t)first;
    m->count[number] = (uint32_t)count;
    m->after[number] = (uint32_t)number + 1; /* of a list that one rank wrote */
    m->cursor[number] = 0;
    for (size_t i = 0; i < count; i++) {
        ckpt__dcp_chunk *c = &d->chunks[first + i];
        if (!like->object && c->offset != like->ndim)
            return false;
        c->item = (uint32_t)number;
    }
    return true;
}

static bool take_object(ckpt__dcp_machine *m, const ckpt__dcp_value *key)
{
    const ckpt__dcp_item like = {.object = true};
    ckpt__dcp_chunk *c = add_chunk(m);
    if (!c)
        return false;
    *c = (ckpt__dcp_chunk){.length = no_record};
    return add_item(m, key, &like, m->d->chunk_count - 1, 1);
}

static bool take_tensor(ckpt__dcp_machine *m, const ckpt__dcp_value *key, const ckpt__dcp_made *o)
{
    const size_t n = o->a.n;
    if (!o->built || o->has != (CKPT__DA_FIRST | CKPT__DA_SECOND | CKPT__DA_THIRD) || n > CKPT__DCP_DIMS)
        return false;
    int64_t *shape = ckpt__arena_array(m->d->arena, n ? n : 1, sizeof *shape);
    m->no_memory = !shape;
    if (!shape)
        return false;
    if (n)
        memcpy(shape, o->a.u.numbers, n * sizeof *shape);
    const ckpt__dcp_item like = {.shape = shape, .ndim = (uint32_t)n, .dtype = (ckpt_dtype)o->dtype};
    return add_item(m, key, &like, o->b.u.first, o->b.n);
}

static bool take_item(ckpt__dcp_machine *m, const ckpt__dcp_value *key, const ckpt__dcp_value *value)
{
    const ckpt__dcp_made *o = value->kind == CKPT__D_OBJECT ? value->u.object : NULL;
    if (key->kind != CKPT__D_TEXT || !o || m->seen[CKPT__DD_RECORDS] || m->seen[CKPT__DD_PATHS])
        return false;
    return o->class_of == CKPT__DC_BYTES ? take_object(m, key)
                                         : o->class_of == CKPT__DC_TENSOR && take_tensor(m, key, o);
}

/* ---- paths */

static bool take_path(ckpt__dcp_machine *m, const ckpt__dcp_value *key, const ckpt__dcp_value *path)
{
    ckpt__dcp *d = m->d;
    size_t number;
    if (key->kind != CKPT__D_TEXT || (path->kind != CKPT__D_TUPLE && path->kind != CKPT__D_INTS))
        return false;
    if (!ckpt__hash_get(d->by_name, key->u.text, key->n, &number))
        return true;
    ckpt__dcp_item *item = &d->items[number];
    if (item->turn != UINT32_MAX)
        return false; /* twice */
    item->turn = d->turns++;
    if (path->n == 0)
        return true;
    ckpt_key *keys = ckpt__arena_array(d->arena, path->n, sizeof *keys);
    m->no_memory = !keys;
    for (uint32_t i = 0; keys && i < path->n; i++) {
        const ckpt__dcp_value step = path->kind == CKPT__D_TUPLE
                                         ? path->u.items[i]
                                         : (ckpt__dcp_value){.kind = CKPT__D_INT, .u.number = path->u.numbers[i]};
        if (step.kind == CKPT__D_INT)
            keys[i].number = step.u.number;
        else if (step.kind != CKPT__D_TEXT)
            return true; /* another planner's: the key stands for itself */
        else if (!(keys[i].text = ckpt__arena_str(d->arena, step.u.text, step.n)).data)
            m->no_memory = true;
    }
    item->keys = keys;
    item->key_count = path->n;
    return !m->no_memory;
}

/* ---- records */

/* The item of that name: as a rule the one whose record came behind the last item's before. */
static bool find_item(ckpt__dcp_machine *m, const ckpt__dcp_value *name, size_t *number)
{
    const ckpt__dcp *d = m->d;
    if (d->item_count == 0)
        return false;
    size_t guess = m->after[m->last_item];
    bool is = guess < d->item_count && ckpt__str_equal(d->items[guess].name, text_of(name));
    if (!is && !ckpt__hash_get(d->by_name, name->u.text, name->n, &guess))
        return false;
    m->after[m->last_item] = (uint32_t)guess;
    m->last_item = (uint32_t)guess;
    *number = guess;
    return true;
}

typedef struct places {
    const ckpt__dcp *d;
    size_t ndim;
} places;

static int by_box(const void *a, const void *b, void *ctx)
{
    const places *p = ctx;
    const int64_t *x = p->d->chunks[*(const uint32_t *)a].box, *y = p->d->chunks[*(const uint32_t *)b].box;
    for (size_t i = 0; i < p->ndim; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* The chunks of one item by place, which lie sorted from then on. */
static const uint32_t *sort_places(ckpt__dcp_machine *m, size_t item)
{
    const ckpt__dcp *d = m->d;
    places p = {d, d->items[item].ndim};
    if (!m->sorted) /* what is not touched takes no memory */
        m->sorted = calloc(d->chunk_count + 1, sizeof *m->sorted);
    if (!m->is_sorted)
        m->is_sorted = calloc(d->item_count + 1, 1);
    m->no_memory = !m->sorted || !m->is_sorted;
    if (m->no_memory)
        return NULL;
    uint32_t *own = m->sorted + m->first[item];
    if (!m->is_sorted[item]) {
        for (uint32_t i = 0; i < m->count[item]; i++)
            own[i] = m->first[item] + i;
        qsort_r(own, m->count[item], sizeof *own, by_box, &p);
        m->is_sorted[item] = 1;
    }
    return own;
}

/* The chunk of the item that begins there; SIZE_MAX: there is none, or no memory. */
static size_t search(ckpt__dcp_machine *m, size_t item, const int64_t *lo)
{
    const ckpt__dcp *d = m->d;
    const uint32_t *in = sort_places(m, item);
    size_t from = 0, to = in ? m->count[item] : 0;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const int64_t *box = d->chunks[in[middle]].box;
        uint32_t k = 0;
        while (k < d->items[item].ndim && box[k] == lo[k])
            k++;
        if (k == d->items[item].ndim)
            return in[middle];
        if (box[k] < lo[k])
            from = middle + 1;
        else
            to = middle;
    }
    return SIZE_MAX;
}

/* As a rule the ranks' records come in the order of the chunks. */
static size_t find_chunk(ckpt__dcp_machine *m, size_t item, const ckpt__dcp_value *offset)
{
    const ckpt__dcp *d = m->d;
    const ckpt__dcp_item *is = &d->items[item];
    size_t expected = m->first[item] + m->cursor[item], found = expected;
    if (is->object != (offset->kind == CKPT__D_NONE) || m->count[item] == 0)
        return SIZE_MAX;
    if (!is->object && offset->n != is->ndim)
        return SIZE_MAX;
    if (is->ndim && memcmp(d->chunks[expected].box, offset->u.numbers, is->ndim * sizeof(int64_t)) != 0)
        found = search(m, item, offset->u.numbers);
    if (found != SIZE_MAX) {
        uint32_t next = (uint32_t)(found - m->first[item]) + 1;
        m->cursor[item] = next < m->count[item] ? next : 0;
    }
    return found;
}

static bool file_of(ckpt__dcp_machine *m, const ckpt__dcp_value *path, uint32_t *file)
{
    ckpt__dcp *d = m->d;
    if (m->last_file < d->file_count && strlen(d->files[m->last_file].name) == path->n &&
        memcmp(d->files[m->last_file].name, path->u.text, path->n) == 0) {
        *file = m->last_file;
        return true;
    }
    ckpt_status status = ckpt__dcp_file_of(d, text_of(path), file);
    m->no_memory = status == CKPT_E_NO_MEMORY;
    m->last_file = *file;
    return status == CKPT_OK;
}

static bool take_record(ckpt__dcp_machine *m, const ckpt__dcp_value *key, const ckpt__dcp_value *value)
{
    ckpt__dcp *d = m->d;
    const ckpt__dcp_made *index = key->kind == CKPT__D_OBJECT ? key->u.object : NULL,
                         *info = value->kind == CKPT__D_OBJECT ? value->u.object : NULL;
    size_t item;
    uint32_t file;
    uint64_t end;
    if (!index || !info || index->class_of != CKPT__DC_INDEX || info->class_of != CKPT__DC_INFO || !index->built ||
        !info->built || !(index->has & CKPT__DA_FIRST) ||
        info->has != (CKPT__DA_FIRST | CKPT__DA_SECOND | CKPT__DA_THIRD))
        return false;
    size_t number = find_item(m, &index->a, &item) ? find_chunk(m, item, &index->b) : SIZE_MAX;
    if (number == SIZE_MAX)
        return !m->no_memory; /* of what has no elements; or it lacks elsewhere, and that is seen at the end */
    ckpt__dcp_chunk *c = &d->chunks[number];
    if (c->length != no_record || !ckpt__add(info->offset, info->length, &end) || !file_of(m, &info->a, &file))
        return false;
    c->offset = info->offset;
    c->length = info->length;
    c->file = file & CKPT__DCP_FILES;
    c->zstd = info->zstd;
    d->apart = d->order_count == 0 ||
               (d->apart && (file > m->record_file || (file == m->record_file && info->offset >= m->record_end)));
    m->record_file = file;
    m->record_end = end;
    ckpt__dcp_file *f = &d->files[file];
    f->needs = end > f->needs ? end : f->needs;
    if (!ckpt__arena_grow(d->arena, &d->order, &m->order_capacity, d->order_count + 1, sizeof *d->order)) {
        m->no_memory = true;
        return false;
    }
    d->order[d->order_count++] = (uint32_t)number;
    const uint32_t next =
        m->after[item]; /* its chunk lies elsewhere in memory: it is fetched while the next record is read */
    if (next < d->item_count)
        __builtin_prefetch(&d->chunks[m->first[next] + m->cursor[next]], 1);
    return true;
}

bool ckpt__dcp_fold_end(ckpt__dcp_machine *m)
{
    return m->d->order_count == m->d->chunk_count;
}

void ckpt__dcp_fold_free(ckpt__dcp_machine *m)
{
    ckpt__arena_discharge(m->d->arena,
                          (m->after_capacity + m->cursor_capacity + m->first_capacity + m->count_capacity) *
                              sizeof *m->after);
    free(m->after);
    free(m->cursor);
    free(m->first);
    free(m->count);
    free(m->sorted);
    free(m->is_sorted);
}

/* ---- dicts */

static bool take_pair(ckpt__dcp_machine *m, unsigned what, const ckpt__dcp_value *key)
{
    switch (what) {
    case CKPT__DD_ITEMS:
        return take_item(m, key, key + 1);
    case CKPT__DD_PATHS:
        return take_path(m, key, key + 1);
    default:
        return take_record(m, key, key + 1);
    }
}

/* Which of the three dicts of Metadata an entry is of. */
static uint8_t dict_of(const ckpt__dcp_value *key, const ckpt__dcp_value *value)
{
    if (key->kind == CKPT__D_OBJECT)
        return CKPT__DD_RECORDS;
    return value->kind == CKPT__D_OBJECT ? CKPT__DD_ITEMS : CKPT__DD_PATHS;
}

bool ckpt__dcp_set_items(ckpt__dcp_machine *m, ckpt__dcp_value *dict, const ckpt__dcp_value *pairs, size_t n)
{
    const ckpt__dcp_value *before = dict > m->stack ? dict - 1 : NULL;
    if (!before || (n == 0 && dict->what != CKPT__DD_RECORDS) || dict->what == CKPT__DD_STATE)
        return false;
    if (n == 0) /* all were put there before */
        return true;
    if (before->kind == CKPT__D_OBJECT) {
        if (dict->what != CKPT__DD_EMPTY || before->u.object->built ||
            !ckpt__dcp_set_all(m, before->u.object, pairs, n))
            return false;
        dict->what = CKPT__DD_STATE;
        return true;
    }
    uint8_t what = dict_of(&pairs[0], &pairs[1]);
    if (before->kind != CKPT__D_TEXT || (dict->what == CKPT__DD_EMPTY ? m->seen[what] : dict->what != what))
        return false;
    dict->what = what;
    m->seen[what] = true;
    for (size_t i = 0; i < n; i++)
        if (!take_pair(m, what, &pairs[2 * i]))
            return false;
    return true;
}
