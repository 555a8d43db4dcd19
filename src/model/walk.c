/* model/walk.c - one visit a node of a value tree, iteratively: files choose its depth and its cycles. */
#include "model/rewrite.h"

#include <stdlib.h>

enum { MAX_DEPTH = 10000 };
enum { NOT_BELOW = 1 << 30 }; /* a visit's answer where `choosy`: go on, but not into this node */
static const uint64_t max_nodes_default = 50000000;
/* Of a name in bytes: a long key at each of ten thousand levels would make names of as many megabytes. */
static const size_t name_max = (size_t)1 << 20;

/* Which part of a node the next child comes from. */
typedef enum part { ITEMS, ENTRIES, STATE, ARGS, DONE } part;

/* One node that is open: the walk is somewhere below it. */
typedef struct frame {
    const ckpt_value *value;
    part part;
    size_t next;      /* child within the part */
    size_t name_size; /* of this node's name in the buffer */
    bool inside;
    bool named;  /* the root has no name, its children no leading dot */
    bool marked; /* a child's key is in `reprs`, from here on: */
    ckpt__arena_mark reprs;
} frame;

/* A walk: its own stack, so that no file's nesting is ours. `name` has the dotted path of the node that is visited; each frame
 * notes where its own part of that ends: while 'model.w' is visited, the frames of the root and of 'model' have name_size 0 and
 * 5. */
typedef struct walker {
    frame *frames; /* heap: from the root down */
    size_t depth, capacity;
    ckpt_key *keys; /* keys[i]: the key of frames[i + 1] */
    size_t key_capacity;
    ckpt__buf name;
    ckpt__arena *reprs;      /* texts of the keys that are not strings */
    const ckpt_value **open; /* set of the containers on the path; emptied in reverse order of filling */
    size_t open_mask;
    uint64_t nodes, max_nodes;
    bool choosy;
    const ckpt__edits *edits; /* values are seen as what they are now; NULL: as they are */
    ckpt_visit_fn fn;
    void *ctx;
    ckpt_error *err;
} walker;

static size_t open_slot(const ckpt_value *const *open, size_t mask, const ckpt_value *v)
{
    uint64_t h = (uint64_t)(uintptr_t)v * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & mask;
    while (open[i] && open[i] != v)
        i = (i + 1) & mask;
    return i;
}

/* The last one put is the first one taken out, so a probe chain never loses its middle. */
static bool open_grow(walker *w)
{
    size_t mask = w->open_mask ? w->open_mask * 2 + 1 : 63;
    const ckpt_value **fresh = calloc(mask + 1, sizeof *fresh);
    if (!fresh)
        return false;
    for (size_t i = 0; i < w->depth; i++)
        fresh[open_slot(fresh, mask, w->frames[i].value)] = w->frames[i].value;
    free(w->open);
    w->open = fresh;
    w->open_mask = mask;
    return true;
}

static bool is_container(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_DICT || v->kind == CKPT_V_OBJECT ||
           v->item_count || v->entry_count;
}

static int visit(walker *w, const ckpt_value *v, bool inside, const frame *ancestor, size_t depth)
{
    ckpt_visit visit = {.value = v, .inside = inside, .path = {w->keys, depth}};
    visit.name.data = w->name.data ? w->name.data : "";
    visit.name.size = w->name.size;
    char *cycle_to = NULL;
    if (ancestor) {
        visit.cycle = true;
        if (!(cycle_to = malloc(ancestor->name_size + 1)))
            return ckpt__fail_memory(w->err, "value tree", ancestor->name_size);
        memcpy(cycle_to, visit.name.data, ancestor->name_size);
        cycle_to[ancestor->name_size] = '\0';
        visit.cycle_to.data = cycle_to;
        visit.cycle_to.size = ancestor->name_size;
    }
    int result = w->fn(w->ctx, &visit);
    free(cycle_to);
    return result;
}

static int push(walker *w, const ckpt_value *v, bool inside, bool named)
{
    if (w->depth >= MAX_DEPTH)
        return ckpt__fail(w->err, CKPT_E_LIMIT, "value tree", "it nests deeper than %d levels", MAX_DEPTH);
    if (!ckpt__grow(&w->frames, &w->capacity, w->depth + 1, sizeof *w->frames) ||
        !ckpt__grow(&w->keys, &w->key_capacity, w->depth + 2, sizeof *w->keys) ||
        ((!w->open || (w->depth + 1) * 2 > w->open_mask) && !open_grow(w)))
        return ckpt__fail_memory(w->err, "value tree", 0);
    w->frames[w->depth++] =
        (frame){.value = v, .part = ITEMS, .name_size = w->name.size, .inside = inside, .named = named};
    w->open[open_slot(w->open, w->open_mask, v)] = v;
    return CKPT_OK;
}

static void put_number(ckpt__buf *b, int64_t number)
{
    char digits[24];
    size_t at = sizeof digits;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        digits[--at] = '-';
    ckpt__buf_add(b, digits + at, sizeof digits - at);
}

/* Appends the key to the name and notes it in the path. */
static int put_key(walker *w, frame *f, const ckpt_key *key, const ckpt_value *other)
{
    if (f->named)
        ckpt__buf_char(&w->name, '.');
    ckpt_key k = *key;
    if (other) {
        size_t before = w->name.size;
        ckpt__value_repr(&w->name, other);
        if (w->name.failed || !w->name.data)
            return ckpt__fail_memory(w->err, "value tree", 0);
        if (!w->reprs && !(w->reprs = ckpt__arena_new(0)))
            return ckpt__fail_memory(w->err, "value tree", 0);
        if (f->marked) /* the key of the child before */
            ckpt__arena_rewind(w->reprs, &f->reprs);
        f->reprs = ckpt__arena_note(w->reprs);
        f->marked = true;
        k.other = true;
        k.text = ckpt__arena_str(w->reprs, w->name.data + before, w->name.size - before);
        if (!k.text.data)
            return ckpt__fail_memory(w->err, "value tree", w->name.size);
    } else if (k.text.data)
        ckpt__buf_add(&w->name, k.text.data, k.text.size);
    else
        put_number(&w->name, k.number);
    if (w->name.failed)
        return ckpt__fail_memory(w->err, "value tree", w->name.size);
    if (w->name.size > name_max)
        return ckpt__fail(w->err, CKPT_E_LIMIT, "value tree",
                          "the name of a value, of all keys on the way to it, has %zu bytes; the limit is %zu",
                          w->name.size, name_max);
    w->keys[w->depth - 1] = k;
    return CKPT_OK;
}

static int child(walker *w, const ckpt_key *key, const ckpt_value *other_key, const ckpt_value *v, bool inside)
{
    frame *f = &w->frames[w->depth - 1];
    w->name.size = f->name_size;
    v = ckpt__edits_now(w->edits, v);
    int status = put_key(w, f, key, other_key);
    if (status)
        return status;
    if (++w->nodes > w->max_nodes)
        return ckpt__fail(w->err, CKPT_E_LIMIT, "value tree",
                          "more than %llu values when shared parts are counted at each of their places",
                          (unsigned long long)w->max_nodes);
    if (is_container(v) && w->open[open_slot(w->open, w->open_mask, v)]) {
        const frame *ancestor = w->frames;
        while (ancestor->value != v)
            ancestor++;
        return visit(w, v, inside, ancestor, w->depth);
    }
    status = visit(w, v, inside, NULL, w->depth);
    if (w->choosy && status == NOT_BELOW)
        return CKPT_OK;
    v = ckpt__edits_now(w->edits, v);
    if (status || !is_container(v))
        return status;
    return push(w, v, inside, true);
}

static int entry(walker *w, const ckpt_entry *e, bool inside)
{
    ckpt_key key = {{NULL, 0}, 0, false};
    const ckpt_value *other = NULL;
    if (e->key->kind == CKPT_V_STR)
        key.text = e->key->text;
    else if (e->key->kind == CKPT_V_INT)
        key.number = e->key->integer;
    else
        other = e->key;
    return child(w, &key, other, e->value, inside);
}

/* The state of an object or a dict: its dict's entries stand directly below the object, as attributes do; a pair of
 * dicts is (__dict__, slots); anything else is a child named `state`. */
static int state_child(walker *w, frame *f, bool *more)
{
    const ckpt_value *s = ckpt__edits_now(w->edits, f->value->state);
    size_t skip = f->next++;
    *more = true;
    if (s && s->kind == CKPT_V_DICT) {
        if (skip < s->entry_count)
            return entry(w, &s->entries[skip], true);
    } else if (s && s->kind == CKPT_V_TUPLE && s->item_count == 2) {
        for (size_t i = 0; i < 2; i++) {
            const ckpt_value *half = ckpt__edits_now(w->edits, s->items[i]);
            if (half->kind != CKPT_V_DICT)
                continue;
            if (skip < half->entry_count)
                return entry(w, &half->entries[skip], true);
            skip -= half->entry_count;
        }
    } else if (s && s->kind != CKPT_V_NONE && skip == 0) {
        ckpt_key key = {{"state", 5}, 0, false};
        return child(w, &key, NULL, s, true);
    }
    *more = false;
    return CKPT_OK;
}

/* Visits the next child of the top frame, or takes the frame away. */
static int advance(walker *w)
{
    frame *f = &w->frames[w->depth - 1];
    const ckpt_value *v = f->value;
    bool below = f->inside || v->kind == CKPT_V_OBJECT || v->kind == CKPT_V_ARRAY;
    bool more;
    int status;
    switch (f->part) {
    case ITEMS:
        if (f->next < v->item_count) {
            ckpt_key key = {{NULL, 0}, (int64_t)f->next, false};
            size_t i = f->next++;
            return child(w, &key, NULL, v->items[i], below);
        }
        break;
    case ENTRIES:
        if (f->next < v->entry_count) {
            size_t i = f->next++;
            return entry(w, &v->entries[i], below);
        }
        break;
    case STATE:
        status = state_child(w, f, &more);
        if (status || more)
            return status;
        break;
    case ARGS:
        if (v->args && v->kind == CKPT_V_OBJECT && v->args->item_count && f->next == 0) {
            ckpt_key key = {{"args", 4}, 0, false};
            f->next++;
            return child(w, &key, NULL, v->args, true);
        }
        break;
    case DONE:
        w->open[open_slot(w->open, w->open_mask, v)] = NULL;
        w->name.size = f->name_size;
        w->depth--;
        return CKPT_OK;
    }
    f->part++;
    f->next = 0;
    return CKPT_OK;
}

static int walk(const ckpt_value *root, uint64_t max_nodes, bool choosy, const ckpt__edits *edits, ckpt_visit_fn fn,
                void *ctx, ckpt_error *err)
{
    walker w = {.max_nodes = max_nodes ? max_nodes : max_nodes_default,
                .choosy = choosy,
                .edits = edits,
                .fn = fn,
                .ctx = ctx,
                .err = err};
    w.nodes = 1;
    root = ckpt__edits_now(edits, root);
    int status = visit(&w, root, false, NULL, 0);
    root = ckpt__edits_now(edits, root);
    if (!status && is_container(root))
        status = push(&w, root, false, false);
    while (!status && w.depth)
        status = advance(&w);
    free(w.frames);
    free(w.keys);
    free(w.open);
    ckpt__buf_free(&w.name);
    ckpt__arena_free(w.reprs);
    return status;
}

int ckpt_value_walk(const ckpt_value *root, uint64_t max_nodes, ckpt_visit_fn fn, void *ctx, ckpt_error *err)
{
    if (!fn)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_value_walk", "a NULL function");
    return root ? walk(root, max_nodes, false, NULL, fn, ctx, err) : CKPT_OK;
}

int ckpt__value_walk_now(const ckpt_value *root, const ckpt__edits *edits, ckpt_visit_fn fn, void *ctx, ckpt_error *err)
{
    return root ? walk(root, 0, false, edits, fn, ctx, err) : CKPT_OK;
}

/* ---- one value by its path */

typedef struct search {
    const char *path;
    size_t size;
    const ckpt_value *found, *last; /* last: of what is on the way, the node whose name is longest */
    size_t last_size;
} search;

enum { FOUND = 1 };

/* Goes where the name so far is the beginning of the path. */
static int on_the_way(void *ctx, const ckpt_visit *v)
{
    search *s = ctx;
    size_t n = v->name.size;
    bool begins = n <= s->size && memcmp(v->name.data, s->path, n) == 0;
    if (begins && n == s->size && (v->path.count || s->size == 0)) {
        s->found = v->value;
        return FOUND;
    }
    if (!begins || (v->path.count && s->path[n] != '.'))
        return NOT_BELOW;
    if (!s->last || n > s->last_size) {
        s->last = v->value;
        s->last_size = n;
    }
    return CKPT_OK;
}

ckpt_status ckpt_value_find(const ckpt_value *root, const char *path, const ckpt_value **out, ckpt_error *err)
{
    if (out)
        *out = NULL;
    if (!path || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_value_find", "a NULL path, or no place for the value");
    search s = {.path = path, .size = strlen(path)};
    int status = root ? walk(root, 0, true, NULL, on_the_way, &s, err) : CKPT_OK;
    if (status < 0)
        return (ckpt_status)status;
    *out = s.found;
    if (s.found)
        return CKPT_OK;
    char shown[200], above[200];
    ckpt__escape(shown, sizeof shown, path, s.size);
    ckpt__escape(above, sizeof above, path, s.last_size);
    if (!root)
        return ckpt__fail(err, CKPT_E_NOT_FOUND, shown, "there is no value of that path: there are no values");
    return ckpt__fail(err, CKPT_E_NOT_FOUND, shown, "there is no value of that path: %s%s%s (%s) has no such key",
                      s.last_size ? "'" : "", s.last_size ? above : "the root", s.last_size ? "'" : "",
                      ckpt_kind_name(s.last->kind));
}
