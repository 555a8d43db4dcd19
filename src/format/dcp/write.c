/* format/dcp/write.c - the items of a state dict, and which rank has which of their records. */
#include "format/dcp/write.h"

#include <stdlib.h>
#include "format/safetensors.h"

enum { DEEPEST = 200 };

/* ---- a state dict taken apart */

/* The way to a value: its keys. A key of a dict is a text there, whatever it was. */
typedef struct way {
    const struct way *above; /* NULL: the root */
    ckpt_key key;
    size_t depth;
} way;

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the items of a distributed checkpoint", 0);
}

/* str() of a key. */
static ckpt_str key_text(ckpt__arena *a, const ckpt_value *key)
{
    ckpt__buf text = {0};
    if (key->kind == CKPT_V_STR)
        return key->text;
    ckpt__value_repr(&text, key);
    ckpt_str s = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(a, text.data ? text.data : "", text.size);
    ckpt__buf_free(&text);
    return s;
}

/* once: a key that is there already is passed over. */
static ckpt_status add_key(ckpt__dcp_puts *p, const way *to, const ckpt_value *value, bool once, ckpt_error *err)
{
    size_t n = to ? to->depth : 0, existing;
    ckpt_key *path = ckpt__arena_array(p->arena, n + 1, sizeof *path);
    ckpt__buf key = {0};
    char shown[200];
    for (const way *w = to; path && w; w = w->above)
        path[w->depth - 1] = w->key;
    for (size_t i = 0; path && i < n; i++) {
        if (i)
            ckpt__buf_char(&key, '.');
        if (path[i].text.data)
            ckpt__buf_add(&key, path[i].text.data, path[i].text.size);
        else
            ckpt__buf_printf(&key, "%lld", (long long)path[i].number);
    }
    ckpt_str kept =
        path && !key.failed ? ckpt__arena_str(p->arena, key.data ? key.data : "", key.size) : (ckpt_str){NULL, 0};
    ckpt__buf_free(&key);
    int put = kept.data && ckpt__grow(&p->items, &p->capacity, p->count + 1, sizeof *p->items)
                  ? ckpt__hash_put(p->keys, kept.data, kept.size, p->count, &existing)
                  : -1;
    if (put < 0)
        return no_memory(err);
    if (put == 0 && once)
        return CKPT_OK;
    if (put == 0)
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, ckpt__escape(shown, sizeof shown, kept.data, kept.size),
                          "two values have this key once their paths are joined by dots, and a distributed checkpoint "
                          "has one: drop one of them (--drop), or rename it");
    p->items[p->count++] =
        (ckpt__dcp_put){.key = kept, .path = path, .path_count = n, .value = value, .same = SIZE_MAX};
    return CKPT_OK;
}

static ckpt_status add_item(ckpt__dcp_puts *p, const way *to, const ckpt_value *value, ckpt_error *err)
{
    return add_key(p, to, value, false, err);
}

static bool is_terminal(const ckpt_value *v, size_t depth)
{
    if (v->kind == CKPT_V_DICT)
        return false;
    for (size_t i = 0; v->kind == CKPT_V_LIST && depth < DEEPEST && i < v->item_count; i++) {
        const ckpt_value *item = v->items[i];
        if (item->kind == CKPT_V_TENSOR || item->kind == CKPT_V_DICT ||
            (item->kind == CKPT_V_LIST && !is_terminal(item, depth + 1)))
            return false;
    }
    return true;
}

static ckpt_status take_apart(ckpt__dcp_puts *p, const way *to, const ckpt_value *v, ckpt_error *err);

static ckpt_status take_dict(ckpt__dcp_puts *p, const way *to, const ckpt_value *v, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < v->entry_count; i++) {
        way next = {.above = to, .depth = to ? to->depth + 1 : 1};
        next.key.text = key_text(p->arena, v->entries[i].key);
        status = next.key.text.data ? take_apart(p, &next, v->entries[i].value, err) : no_memory(err);
    }
    return status;
}

static ckpt_status take_list(ckpt__dcp_puts *p, const way *to, const ckpt_value *v, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < v->item_count; i++) {
        way next = {.above = to, .depth = to ? to->depth + 1 : 1, .key.number = (int64_t)i};
        status = take_apart(p, &next, v->items[i], err);
    }
    return status;
}

static bool has_no_bytes(const ckpt__dcp_puts *p, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && !p->index->tensors[v->tensor].whole;
}

static ckpt_status take_apart(ckpt__dcp_puts *p, const way *to, const ckpt_value *v, ckpt_error *err)
{
    if (to && to->depth >= DEEPEST)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "its values are nested more than %d deep", DEEPEST);
    if (v->kind == CKPT_V_DICT && (v->entry_count || !to))
        return take_dict(p, to, v, err);
    if (v->kind == CKPT_V_DICT) /* torch leaves it out; nobody who asks for less misses it */
        return add_item(p, to, v, err);
    if (!is_terminal(v, 0))
        return take_list(p, to, v, err);
    return has_no_bytes(p, v) ? CKPT_OK : add_item(p, to, v, err);
}

/* Each entry is an item, whatever its value holds. */
static ckpt_status take_records(ckpt__dcp_puts *p, const ckpt_value *dict, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < dict->entry_count; i++) {
        way next = {.depth = 1};
        next.key.text = key_text(p->arena, dict->entries[i].key);
        status = !next.key.text.data                       ? no_memory(err)
                 : has_no_bytes(p, dict->entries[i].value) ? CKPT_OK
                                                           : add_item(p, &next, dict->entries[i].value, err);
    }
    return status;
}

/* ---- values that are whole as well */

/* The end of the way of torch 2.3: no tensor is a value of it, or of a dict or list in it. */
static bool holds_none(const ckpt_value *v, size_t depth)
{
    const size_t count = v->kind == CKPT_V_DICT ? v->entry_count : v->kind == CKPT_V_LIST ? v->item_count : 0;
    if (depth >= DEEPEST)
        return false;
    for (size_t i = 0; i < count; i++) {
        const ckpt_value *one = v->kind == CKPT_V_DICT ? v->entries[i].value : v->items[i];
        if (one->kind == CKPT_V_TENSOR || !holds_none(one, depth + 1))
            return false;
    }
    return true;
}

/* Those that were not taken apart have their record. */
static ckpt_status take_whole(ckpt__dcp_puts *p, const way *to, const ckpt_value *v, ckpt_error *err)
{
    const bool dict = v->kind == CKPT_V_DICT;
    const size_t count = dict ? v->entry_count : v->kind == CKPT_V_LIST ? v->item_count : 0;
    ckpt_status status = CKPT_OK;
    if (to && holds_none(v, to->depth))
        return count ? add_key(p, to, v, true, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        way next = {.above = to, .depth = to ? to->depth + 1 : 1, .key.number = (int64_t)i};
        if (dict)
            next.key.text = key_text(p->arena, v->entries[i].key);
        if (dict && !next.key.text.data)
            return no_memory(err);
        status = take_whole(p, &next, dict ? v->entries[i].value : v->items[i], err);
    }
    return status;
}

/* ---- slabs */

int64_t ckpt__dcp_slab_rows(const ckpt_tensor_info *t, uint32_t ranks)
{
    if (ranks == 1 || t->ndim == 0 || t->shape[0] < 2 || t->nbytes == 0 || t->nbytes % (uint64_t)t->shape[0])
        return 0;
    return t->shape[0] / ranks + (t->shape[0] % ranks != 0);
}

bool ckpt__dcp_slab(const ckpt_tensor_info *t, uint32_t ranks, uint32_t rank, int64_t *begin, int64_t *rows)
{
    const int64_t each = ckpt__dcp_slab_rows(t, ranks);
    *begin = each * rank;
    *rows = -1;
    if (each)
        *rows = t->shape[0] - *begin < each ? t->shape[0] - *begin : each;
    return each ? *rows > 0 : rank == 0;
}

/* ---- files */

typedef struct writing {
    const ckpt__write_request *q;
    uint32_t ranks;
    ckpt__recipe **files;
    ckpt__dcp_records **records; /* heap, one a rank, owned */
    bool records_alone;          /* each entry of the root is one, and a tensor's keys share theirs */
    ckpt__dcp_puts puts;
    ckpt_error *err;
} writing;

/* Of a rank that has a record. NULL: no memory. */
static ckpt__recipe *file_of(const writing *w, uint32_t rank)
{
    if (!w->files[rank])
        w->files[rank] = ckpt__recipe_new();
    if (w->files[rank] && !w->records[rank])
        w->records[rank] = ckpt__dcp_records_new(w->q, w->files[rank]);
    return w->records[rank] ? w->files[rank] : NULL;
}

static ckpt_status put_value(writing *w, ckpt__dcp_put *item)
{
    ckpt__recipe *file = file_of(w, 0);
    if (!file || !ckpt__grow(&w->puts.places, &w->puts.place_capacity, w->puts.place_count + 1, sizeof *w->puts.places))
        return no_memory(w->err);
    const uint64_t begin = file->size;
    ckpt_status status = ckpt__dcp_record_value(w->records[0], item->value, w->err);
    item->first = w->puts.place_count;
    item->count = 1;
    w->puts.places[w->puts.place_count++] = (ckpt__dcp_place){0, begin, file->size - begin};
    return status;
}

/* The slab of a tensor that the rank has, if it has one. */
static ckpt_status put_slab(writing *w, ckpt__dcp_put *item, uint32_t rank)
{
    const ckpt_tensor_info *t = &w->q->index->tensors[item->value->tensor].info;
    int64_t begin, rows;
    if (!ckpt__dcp_slab(t, w->ranks, rank, &begin, &rows))
        return CKPT_OK;
    ckpt__recipe *file = file_of(w, rank);
    if (!file)
        return no_memory(w->err);
    const uint64_t at = file->size;
    ckpt_status status = ckpt__dcp_record_tensor(w->records[rank], item->value->tensor, begin, rows, w->err);
    w->puts.places[item->first + item->count++] = (ckpt__dcp_place){rank, at, file->size - at};
    return status;
}

/* Of a tensor with several keys the first one has the records. */
static ckpt_status find_same(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    size_t *first = malloc((w->q->index->tensor_count + 1) * sizeof *first);
    if (!first)
        return no_memory(w->err);
    for (size_t i = 0; i < w->q->index->tensor_count; i++)
        first[i] = SIZE_MAX;
    for (size_t i = 0; i < p->count; i++) {
        const ckpt_value *v = p->items[i].value;
        if (v->kind == CKPT_V_TENSOR) {
            p->items[i].same = first[v->tensor];
            first[v->tensor] = first[v->tensor] == SIZE_MAX ? i : first[v->tensor];
        }
    }
    free(first);
    return CKPT_OK;
}

static bool has_own_places(const ckpt__dcp_put *item)
{
    return item->value->kind == CKPT_V_TENSOR && item->same == SIZE_MAX;
}

/* So many slabs in all: their places are side by side, whichever file they are in. */
static ckpt_status divide(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    for (size_t i = 0; i < p->count; i++) {
        ckpt__dcp_put *item = &p->items[i];
        if (!has_own_places(item))
            continue;
        const ckpt_tensor_info *t = &w->q->index->tensors[item->value->tensor].info;
        item->rows = ckpt__dcp_slab_rows(t, w->ranks);
        item->first = p->place_count;
        p->place_count += item->rows ? (size_t)((t->shape[0] + item->rows - 1) / item->rows) : 1;
        if (!ckpt__grow(&p->places, &p->place_capacity, p->place_count + 1, sizeof *p->places))
            return no_memory(w->err);
    }
    return CKPT_OK;
}

/* Values first, as torch has it. */
static ckpt_status put_all(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    ckpt_status status = w->records_alone ? find_same(w) : CKPT_OK;
    if (status == CKPT_OK)
        status = divide(w);
    for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
        if (p->items[i].value->kind != CKPT_V_TENSOR)
            status = put_value(w, &p->items[i]);
    for (uint32_t r = 0; r < w->ranks; r++)
        for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
            if (has_own_places(&p->items[i]))
                status = put_slab(w, &p->items[i], r);
    for (size_t i = 0; i < p->count; i++) {
        const size_t same = p->items[i].same;
        if (same != SIZE_MAX) {
            p->items[i].first = p->items[same].first;
            p->items[i].count = p->items[same].count;
            p->items[i].rows = p->items[same].rows;
        }
    }
    return status;
}

/* How the dict of a request becomes records: taken apart; that, and what holds no tensor whole as well; or each entry as it is. */
typedef enum how { APART, APART_AND_WHOLE, ENTRIES } how;

static ckpt_status write_items(const ckpt__write_request *q, how way_of, uint32_t ranks, ckpt__recipe **files,
                               ckpt__buf *list, ckpt_error *err)
{
    writing w = {.q = q, .ranks = ranks, .files = files, .records_alone = way_of == ENTRIES, .err = err};
    ckpt__dcp_puts *p = &w.puts;
    p->index = q->index;
    p->arena = ckpt__arena_new(0);
    p->keys = ckpt__hash_new(64);
    w.records = calloc(ranks, sizeof(ckpt__dcp_records *));
    ckpt_status status = p->arena && p->keys && w.records ? CKPT_OK : no_memory(err);
    if (status == CKPT_OK && q->root && q->root->kind == CKPT_V_DICT)
        status = way_of == ENTRIES ? take_records(p, q->root, err) : take_apart(p, NULL, q->root, err);
    if (status == CKPT_OK && way_of == APART_AND_WHOLE && q->root && q->root->kind == CKPT_V_DICT)
        status = take_whole(p, NULL, q->root, err);
    if (status == CKPT_OK)
        status = put_all(&w);
    if (status == CKPT_OK)
        status = ckpt__dcp_put_list(p, list, err);
    for (uint32_t r = 0; w.records && r < ranks; r++)
        ckpt__dcp_records_free(w.records[r]);
    free(w.records);
    ckpt__hash_free(p->keys);
    ckpt__arena_free(p->arena);
    free(p->items);
    free(p->places);
    return status;
}

ckpt_status ckpt__dcp_write(const ckpt__write_request *q, uint32_t ranks, bool whole, ckpt__recipe **files,
                            ckpt__buf *list, ckpt_error *err)
{
    return write_items(q, whole ? APART_AND_WHOLE : APART, ranks, files, list, err);
}

ckpt_status ckpt__dcp_write_records(const ckpt__write_request *q, uint32_t ranks, ckpt__recipe **files, ckpt__buf *list,
                                    ckpt_error *err)
{
    return write_items(q, ENTRIES, ranks, files, list, err);
}
