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

/* ---- files */

typedef struct writing {
    const ckpt__write_request *q;
    const ckpt__dcp_ranks *ranks;
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
    ckpt__dcp_place *at = &w->puts.places[item->first];
    ckpt__recipe *file = file_of(w, at->file);
    if (!file)
        return no_memory(w->err);
    at->offset = file->size;
    ckpt_status status = ckpt__dcp_record_value(w->records[at->file], item->value, w->err);
    at->length = file->size - at->offset;
    return status;
}

/* Box `box` of a tensor, where the rank writes it. */
static ckpt_status put_box(writing *w, const ckpt__dcp_put *item, size_t box, uint32_t rank)
{
    ckpt__dcp_place *at = &w->puts.places[item->first + box];
    if (at->file != rank || (item->cut && ckpt__dcp_box_is_empty(item->cut, box)))
        return CKPT_OK;
    ckpt__recipe *file = file_of(w, rank);
    if (!file)
        return no_memory(w->err);
    at->offset = file->size;
    ckpt_status status = ckpt__dcp_record_tensor(w->records[rank], item->value->tensor, item->cut, box, w->err);
    at->length = file->size - at->offset;
    return status;
}

/* The boxes of a tensor that the rank writes. */
static ckpt_status put_boxes(writing *w, const ckpt__dcp_put *item, uint32_t rank)
{
    const ckpt__dcp_cut *c = item->cut;
    ckpt_status status = c ? CKPT_OK : put_box(w, item, 0, rank);
    for (size_t i = c ? c->first_held[rank] : 0; c && status == CKPT_OK && i < c->first_held[rank + 1]; i++)
        status = put_box(w, item, c->held[i], rank);
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
    return item->same == SIZE_MAX;
}

/* So many places in all, side by side for each item, whichever file they are in. */
static ckpt_status divide(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    for (size_t i = 0; i < p->count; i++) {
        ckpt__dcp_put *item = &p->items[i];
        if (!has_own_places(item))
            continue;
        item->cut = item->value->kind == CKPT_V_TENSOR ? ckpt__dcp_cut_of(w->ranks, item->value->tensor) : NULL;
        item->first = p->place_count;
        item->count = item->cut ? item->cut->count : 1;
        p->place_count += item->count;
    }
    p->places = calloc(p->place_count + 1, sizeof *p->places);
    return p->places ? CKPT_OK : no_memory(w->err);
}

/* The file of each place: that of the rank that writes it. */
static ckpt_status assign(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    ckpt__dcp_share *shares = calloc(p->count + 1, sizeof *shares);
    uint32_t *writers = calloc(p->place_count + 1, sizeof *writers);
    size_t count = 0;
    for (size_t i = 0; shares && writers && i < p->count; i++) {
        const ckpt__dcp_put *item = &p->items[i];
        const bool tensor = item->value->kind == CKPT_V_TENSOR;
        if (has_own_places(item))
            shares[count++] = (ckpt__dcp_share){
                item->cut, tensor ? w->q->index->tensors[item->value->tensor].info.nbytes : 0, writers + item->first};
    }
    const bool fine = shares && writers && ckpt__dcp_assign(w->ranks, shares, count);
    for (size_t i = 0; fine && i < p->place_count; i++)
        p->places[i].file = writers[i];
    free(shares);
    free(writers);
    return fine ? CKPT_OK : no_memory(w->err);
}

/* Values first, as torch has it. */
static ckpt_status put_all(writing *w)
{
    ckpt__dcp_puts *p = &w->puts;
    ckpt_status status = w->records_alone ? find_same(w) : CKPT_OK;
    if (status == CKPT_OK)
        status = divide(w);
    if (status == CKPT_OK)
        status = assign(w);
    for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
        if (p->items[i].value->kind != CKPT_V_TENSOR)
            status = put_value(w, &p->items[i]);
    for (uint32_t r = 0; r < w->ranks->count; r++)
        for (size_t i = 0; status == CKPT_OK && i < p->count; i++)
            if (p->items[i].value->kind == CKPT_V_TENSOR && has_own_places(&p->items[i]))
                status = put_boxes(w, &p->items[i], r);
    for (size_t i = 0; i < p->count; i++) {
        const size_t same = p->items[i].same;
        if (same != SIZE_MAX) {
            p->items[i].first = p->items[same].first;
            p->items[i].count = p->items[same].count;
            p->items[i].cut = p->items[same].cut;
        }
    }
    return status;
}

/* How the dict of a request becomes records: taken apart; that, and what holds no tensor whole as well; or each entry as it is. */
typedef enum how { APART, APART_AND_WHOLE, ENTRIES } how;

static ckpt_status write_items(const ckpt__write_request *q, how way_of, const ckpt__dcp_ranks *ranks,
                               ckpt__recipe **files, ckpt__buf *list, ckpt_error *err)
{
    writing w = {.q = q, .ranks = ranks, .files = files, .records_alone = way_of == ENTRIES, .err = err};
    ckpt__dcp_puts *p = &w.puts;
    p->index = q->index;
    p->arena = ckpt__arena_new(0);
    p->keys = ckpt__hash_new(64);
    w.records = calloc(ranks->count, sizeof(ckpt__dcp_records *));
    ckpt_status status = p->arena && p->keys && w.records ? CKPT_OK : no_memory(err);
    if (status == CKPT_OK && q->root && q->root->kind == CKPT_V_DICT)
        status = way_of == ENTRIES ? take_records(p, q->root, err) : take_apart(p, NULL, q->root, err);
    if (status == CKPT_OK && way_of == APART_AND_WHOLE && q->root && q->root->kind == CKPT_V_DICT)
        status = take_whole(p, NULL, q->root, err);
    if (status == CKPT_OK)
        status = put_all(&w);
    if (status == CKPT_OK)
        status = ckpt__dcp_put_list(p, list, err);
    for (uint32_t r = 0; w.records && r < ranks->count; r++)
        ckpt__dcp_records_free(w.records[r]);
    free(w.records);
    ckpt__hash_free(p->keys);
    ckpt__arena_free(p->arena);
    free(p->items);
    free(p->places);
    return status;
}

ckpt_status ckpt__dcp_write(const ckpt__write_request *q, const ckpt__dcp_ranks *ranks, bool whole,
                            ckpt__recipe **files, ckpt__buf *list, ckpt_error *err)
{
    return write_items(q, whole ? APART_AND_WHOLE : APART, ranks, files, list, err);
}

ckpt_status ckpt__dcp_write_records(const ckpt__write_request *q, const ckpt__dcp_ranks *ranks, ckpt__recipe **files,
                                    ckpt__buf *list, ckpt_error *err)
{
    return write_items(q, ENTRIES, ranks, files, list, err);
}
