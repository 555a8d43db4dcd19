/* model/trees.c - the trees of several files as one, place by place. */
#include "model/trees.h"

#include <stdlib.h>

static ckpt_status no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "the files of the ranks", 0);
}

ckpt_status ckpt__entries_add(ckpt__entries *to, const ckpt_value *key, const ckpt_value *value, ckpt_error *err)
{
    if (!ckpt__grow(&to->items, &to->capacity, to->count + 1, sizeof *to->items))
        return no_memory(err);
    to->items[to->count++] = (ckpt_entry){key, value};
    return CKPT_OK;
}

ckpt_value *ckpt__entries_dict(const ckpt__entries *of, ckpt__arena *a)
{
    return ckpt__value_dict(a, of->items, of->count);
}

size_t ckpt__place_first(const ckpt__place *at)
{
    size_t i = 0;
    while (i < at->count && !at->values[i])
        i++;
    return i;
}

bool ckpt__place_is(const ckpt__place *at, ckpt_kind kind)
{
    for (size_t i = 0; i < at->count; i++)
        if (at->values[i] && at->values[i]->kind != kind)
            return false;
    return true;
}

bool ckpt__place_is_lists(const ckpt__place *at)
{
    const size_t first = ckpt__place_first(at);
    if (!ckpt__place_is(at, CKPT_V_LIST) && !ckpt__place_is(at, CKPT_V_TUPLE))
        return false;
    for (size_t i = first; i < at->count; i++)
        if (at->values[i] && at->values[i]->item_count != at->values[first]->item_count)
            return false;
    return true;
}

ckpt_status ckpt__place_keep(const ckpt__place *at, ckpt__entries *own, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < at->count; i++)
        if (at->values[i])
            status = ckpt__entries_add(&own[i], at->key, at->values[i], err);
    return status;
}

/* ---- the children of a place */

/* By key: those of child k are values[k * files ...]. */
typedef struct children {
    const ckpt_value **keys, **values; /* heap */
    size_t count, capacity, value_capacity;
    ckpt__hash *by_key; /* owned */
    ckpt__arena *texts; /* owned: keys of it */
} children;

/* 1 and '1' are two keys. */
static void put_key(ckpt__buf *text, const ckpt_value *key)
{
    ckpt__buf_printf(text, "%d:", (int)key->kind);
    if (key->kind == CKPT_V_STR)
        ckpt__buf_add(text, key->text.data, key->text.size);
    else
        ckpt__value_repr(text, key);
}

static bool add_child(children *c, size_t files, size_t file, const ckpt_value *key, const ckpt_value *value)
{
    ckpt__buf text = {0};
    size_t found;
    put_key(&text, key);
    bool good = !text.failed;
    if (good && !ckpt__hash_get(c->by_key, text.data, text.size, &found)) {
        char *own = ckpt__arena_copy(c->texts, text.data, text.size);
        found = c->count;
        good = own && ckpt__grow(&c->keys, &c->capacity, found + 1, sizeof *c->keys) &&
               ckpt__grow(&c->values, &c->value_capacity, (found + 1) * files, sizeof *c->values) &&
               ckpt__hash_put(c->by_key, own, text.size, found, NULL) >= 0;
        if (good) {
            c->keys[c->count++] = key;
            memset(c->values + found * files, 0, files * sizeof *c->values);
        }
    }
    if (good && !c->values[found * files + file])
        c->values[found * files + file] = value;
    ckpt__buf_free(&text);
    return good;
}

static bool list_children(const ckpt__place *at, ckpt__arena *a, children *c)
{
    bool good = (c->by_key = ckpt__hash_new(64)) && (c->texts = ckpt__arena_new(0));
    for (size_t i = 0; good && i < at->count; i++) {
        const ckpt_value *v = at->values[i];
        for (size_t k = 0; good && v && k < v->entry_count; k++)
            good = add_child(c, at->count, i, v->entries[k].key, v->entries[k].value);
        for (size_t k = 0; good && v && k < v->item_count; k++) {
            const ckpt_value *key = ckpt__value_int(a, (int64_t)k);
            good = key && add_child(c, at->count, i, key, v->items[k]);
        }
    }
    return good;
}

static void free_children(children *c)
{
    free(c->keys);
    free(c->values);
    ckpt__hash_free(c->by_key);
    ckpt__arena_free(c->texts);
}

/* ---- one tree */

/* What each file has for itself below a place becomes a dict under the place's key; at the root it is the file's own as it is. */
static ckpt_status gather_own(const ckpt__place *at, ckpt__arena *a, const ckpt__entries *below, ckpt__entries *own,
                              ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < at->count; i++) {
        for (size_t k = 0; status == CKPT_OK && !at->key && k < below[i].count; k++)
            status = ckpt__entries_add(&own[i], below[i].items[k].key, below[i].items[k].value, err);
        if (!at->key || !below[i].count)
            continue;
        const ckpt_value *dict = ckpt__entries_dict(&below[i], a);
        status = dict ? ckpt__entries_add(&own[i], at->key, dict, err) : no_memory(err);
    }
    return status;
}

static ckpt_value *made_like(const ckpt_value *like, ckpt__arena *a, const ckpt_entry *entries, size_t count)
{
    if (like->kind == CKPT_V_DICT)
        return ckpt__value_dict_like(a, like, entries, count);
    const ckpt_value **items = ckpt__arena_array(a, count + 1, sizeof *items);
    for (size_t i = 0; items && i < count; i++)
        items[i] = entries[i].value;
    return items ? ckpt__value_list(a, like->kind, items, count) : NULL;
}

ckpt_status ckpt__place_merge(const ckpt__place *at, ckpt__arena *a, ckpt__merge_fn fn, void *ctx,
                              const ckpt_value **out, bool *some, ckpt__entries *own, ckpt_error *err)
{
    const ckpt_value *like = at->values[ckpt__place_first(at)];
    const bool list = like->kind != CKPT_V_DICT;
    children c = {0};
    bool common = false;
    size_t count = 0;
    ckpt_status status = list_children(at, a, &c) ? CKPT_OK : no_memory(err);
    ckpt_entry *entries = calloc(c.count + 1, sizeof *entries);
    ckpt__entries *below = calloc(at->count + 1, sizeof *below);
    if (status == CKPT_OK && (!entries || !below))
        status = no_memory(err);
    for (size_t k = 0; status == CKPT_OK && k < c.count; k++) {
        const ckpt__place child = {c.values + k * at->count, at->count, c.keys[k], at->depth + 1};
        ckpt_entry *e = &entries[count];
        *e = (ckpt_entry){child.key, NULL};
        status = fn(ctx, &child, e, below);
        common = common || e->value;
        if (status == CKPT_OK && !e->value && list && !(e->value = ckpt__value_new(a, CKPT_V_NONE)))
            status = no_memory(err);
        count += e->value != NULL;
    }
    if (status == CKPT_OK && !(*out = made_like(like, a, entries, count)))
        status = no_memory(err);
    if (status == CKPT_OK)
        status = gather_own(at, a, below, own, err);
    if (some)
        *some = common || !c.count;
    for (size_t i = 0; below && i < at->count; i++)
        free(below[i].items);
    free(below);
    free(entries);
    free_children(&c);
    return status;
}

bool ckpt__trees_say_differ(ckpt_report *findings, size_t values)
{
    return ckpt__report_add(findings, CKPT_SEVERITY_NOTE, "ranks-differ", NULL, NULL,
                            "%zu value%s not the same on all ranks: each rank's own %s under rank_0, rank_1, ...",
                            values, values == 1 ? " is" : "s are", values == 1 ? "is" : "are");
}
