/* model/rewrite.c - see rewrite.h. Edits are noted while the tree is walked, and made when all are known: whatever leads to a
 * change is copied, and nothing here recurses. */
#include "model/rewrite.h"

#include <stdlib.h>

/* One place that a value goes from. */
typedef struct ckpt__cut {
    size_t number; /* of the holder's item or entry */
    bool item;
    size_t next; /* the holder's cut before this one: 1 + its number in `cuts`; 0: none */
} cut;

static const ckpt_value none = {.kind = CKPT_V_NONE}, hole = {.kind = CKPT_V_NONE};

ckpt__edits *ckpt__edits_new(ckpt__arena *arena, ckpt__holds_fn holds)
{
    ckpt__edits *e = calloc(1, sizeof *e);
    if (e) {
        e->arena = arena;
        e->holds = holds;
    }
    return e;
}

void ckpt__edits_free(ckpt__edits *e)
{
    if (!e)
        return;
    ckpt__pointers_free(&e->became);
    ckpt__pointers_free(&e->cut_from);
    free(e->values);
    free(e->cuts);
    free(e);
}

const ckpt_value *ckpt__edits_follow(const ckpt__edits *e, const ckpt_value *v)
{
    size_t number;
    while (v && ckpt__pointers_get(&e->became, v, &number))
        v = e->values[number];
    return v;
}

ckpt_value *ckpt__edits_copy(ckpt__edits *e, const ckpt_value *v)
{
    ckpt_value *copy = ckpt__value_new(e->arena, v->kind);
    if (copy)
        *copy = *v;
    return copy;
}

/* ---- what is noted */

static bool become(ckpt__edits *e, const ckpt_value *v, const ckpt_value *by)
{
    if (!ckpt__grow(&e->values, &e->value_capacity, e->value_count + 1, sizeof *e->values) ||
        !ckpt__pointers_set(&e->became, v, e->value_count))
        return false;
    e->values[e->value_count++] = by;
    return true;
}

bool ckpt__edits_replace(ckpt__edits *e, const ckpt_value *v, const ckpt_value *by)
{
    v = ckpt__edits_now(e, v);
    if (v == by)
        return true;
    e->noted++;
    return become(e, v, by);
}

bool ckpt__edits_drop(ckpt__edits *e, const ckpt__spot *spot)
{
    bool own = spot->parent && spot->parent->kind == CKPT_V_OBJECT && spot->holder == spot->parent;
    bool holds = own && e->holds && e->holds(e, spot->parent);
    bool opaque = own && !holds && (spot->item || spot->parent->origin);
    if (!spot->holder || opaque)
        return ckpt__edits_replace(e, spot->value, &none);
    const ckpt_value *holder = ckpt__edits_now(e, spot->holder);
    size_t before = 0;
    (void)ckpt__pointers_get(&e->cut_from, holder, &before);
    if (!ckpt__grow(&e->cuts, &e->cut_capacity, e->cut_count + 1, sizeof *e->cuts) ||
        !ckpt__pointers_set(&e->cut_from, holder, e->cut_count + 1))
        return false;
    e->cuts[e->cut_count++] = (cut){spot->number, spot->item, before};
    e->noted++;
    e->holes = e->holes || (spot->item && holds);
    return true;
}

/* ---- the places of a walk */

typedef struct walking {
    ckpt__edits *edits;
    ckpt__rewrite_fn fn;
    void *ctx;
    const ckpt_value **open; /* heap, by depth: the value on the way to the one that is visited */
    size_t *children;        /* heap, by depth: how many children of that value were visited */
    size_t open_capacity, children_capacity;
    ckpt_error *err;
} walking;

/* Child n of the parent, in the order of the walk: items, entries, attributes. */
static void find_spot(const ckpt__edits *e, const ckpt_value *parent, size_t n, ckpt__spot *out)
{
    const ckpt_value *s = parent->state ? ckpt__edits_now(e, parent->state) : NULL;
    const ckpt_value *dicts[3] = {parent, NULL, NULL};
    out->parent = parent;
    if (n < parent->item_count) {
        out->holder = parent;
        out->number = n;
        out->item = true;
        return;
    }
    n -= parent->item_count;
    if (s && s->kind == CKPT_V_DICT)
        dicts[1] = s;
    for (size_t i = 0; s && s->kind == CKPT_V_TUPLE && s->item_count == 2 && i < 2; i++) {
        const ckpt_value *half = ckpt__edits_now(e, s->items[i]);
        if (half->kind == CKPT_V_DICT)
            dicts[dicts[1] ? 2 : 1] = half;
    }
    for (size_t d = 0; d < 3 && dicts[d]; d++) {
        if (n < dicts[d]->entry_count) {
            out->holder = dicts[d];
            out->number = n;
            return;
        }
        n -= dicts[d]->entry_count;
    }
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    walking *w = ctx;
    size_t depth = visit->path.count;
    if (!ckpt__grow(&w->open, &w->open_capacity, depth + 1, sizeof *w->open) ||
        !ckpt__grow(&w->children, &w->children_capacity, depth + 1, sizeof *w->children))
        return ckpt__fail_memory(w->err, "the value tree", depth);
    ckpt__spot spot = {.value = visit->value};
    if (depth)
        find_spot(w->edits, w->open[depth - 1], w->children[depth - 1]++, &spot);
    const ckpt_value *to = visit->value;
    int status = w->fn(w->ctx, visit, &spot, &to);
    const bool noted = to == visit->value ||
                       (to ? ckpt__edits_replace(w->edits, visit->value, to) : ckpt__edits_drop(w->edits, &spot));
    if (status == 0 && !noted)
        status = ckpt__fail_memory(w->err, "the value tree", depth);
    w->open[depth] = ckpt__edits_now(w->edits, visit->value);
    w->children[depth] = 0;
    return status;
}

ckpt_status ckpt__edits_note(ckpt__edits *e, const ckpt_value *root, ckpt__rewrite_fn fn, void *ctx, ckpt_error *err)
{
    walking w = {.edits = e, .fn = fn, .ctx = ctx, .err = err};
    int status = root ? ckpt__value_walk_now(root, e, on_visit, &w, err) : CKPT_OK;
    free(w.open);
    free(w.children);
    return (ckpt_status)status;
}

ckpt_status ckpt__rewrite(ckpt__edits *e, const ckpt_value *root, ckpt__rewrite_fn fn, void *ctx,
                          const ckpt_value **out, ckpt_error *err)
{
    ckpt_status status = ckpt__edits_note(e, root, fn, ctx, err);
    return status == CKPT_OK ? ckpt__edits_apply(e, root, out, err) : status;
}

/* ---- the tree that comes of it */

/* A value that has others in it, and is one of the tree. */
typedef struct container {
    const ckpt_value *value;
    ckpt_value *copy; /* NULL: it stays */
    bool changes;
    size_t above; /* 1 + the last edge that leads to it; 0: none does */
} container;

/* Container `above` has in it the one that the edge leads to. */
typedef struct edge {
    size_t above;
    size_t next; /* 1 + the edge before this one that leads to the same; 0: none */
} edge;

typedef struct making {
    ckpt__edits *edits;
    container *all;
    size_t count, capacity;
    edge *edges;
    size_t edge_count, edge_capacity;
    ckpt__pointers numbers; /* value -> number in `all` */
} making;

static bool has_children(const ckpt_value *v)
{
    return v->item_count || v->entry_count || v->args || v->state;
}

/* Child n of v: items, keys and values of entries, arguments, state. NULL: there is none at n. */
static const ckpt_value *child(const ckpt_value *v, size_t n)
{
    if (n < v->item_count)
        return v->items[n];
    n -= v->item_count;
    if (n < 2 * v->entry_count)
        return n % 2 ? v->entries[n / 2].value : v->entries[n / 2].key;
    return n == 2 * v->entry_count ? v->args : v->state;
}

static size_t child_count(const ckpt_value *v)
{
    return v->item_count + 2 * v->entry_count + 2;
}

static bool add_container(making *m, const ckpt_value *v, size_t *number)
{
    int put = ckpt__pointers_put(&m->numbers, v, m->count);
    if (put == 0)
        return ckpt__pointers_get(&m->numbers, v, number);
    if (put < 0 || !ckpt__grow(&m->all, &m->capacity, m->count + 1, sizeof *m->all))
        return false;
    bool cuts = ckpt__pointers_get(&m->edits->cut_from, v, NULL);
    *number = m->count;
    m->all[m->count++] = (container){v, NULL, cuts, 0};
    return true;
}

/* What is in container i: each once, and which of it are containers themselves. */
static bool look_into(making *m, size_t i)
{
    const ckpt_value *v = m->all[i].value;
    for (size_t n = 0, count = child_count(v); n < count; n++) {
        const ckpt_value *was = child(v, n), *is = ckpt__edits_now(m->edits, was);
        size_t number;
        if (!is)
            continue;
        m->all[i].changes |= is != was;
        if (!has_children(is))
            continue;
        if (!add_container(m, is, &number) ||
            !ckpt__grow(&m->edges, &m->edge_capacity, m->edge_count + 1, sizeof *m->edges))
            return false;
        m->edges[m->edge_count++] = (edge){i, m->all[number].above};
        m->all[number].above = m->edge_count;
    }
    return true;
}

/* Whatever has a change in it changes, too. */
static bool spread(making *m)
{
    size_t *pending = calloc(m->count + 1, sizeof *pending), n = 0; /* each is in it once */
    if (!pending)
        return false;
    for (size_t i = 0; i < m->count; i++)
        if (m->all[i].changes)
            pending[n++] = i;
    while (n > 0)
        for (size_t k = m->all[pending[--n]].above; k; k = m->edges[k - 1].next) {
            container *above = &m->all[m->edges[k - 1].above];
            if (!above->changes)
                pending[n++] = m->edges[k - 1].above;
            above->changes = true;
        }
    free(pending);
    return true;
}

/* gone[n]: child n of the holder, counted items first, goes. NULL: none does, or no memory (*ok false). */
static bool *find_cuts(const ckpt__edits *e, const ckpt_value *v, bool *ok)
{
    size_t at = 0;
    *ok = true;
    if (!ckpt__pointers_get(&e->cut_from, v, &at))
        return NULL;
    bool *gone = calloc(v->item_count + v->entry_count + 1, sizeof *gone);
    *ok = gone != NULL;
    for (; gone && at; at = e->cuts[at - 1].next) {
        const cut *c = &e->cuts[at - 1];
        gone[c->item ? c->number : v->item_count + c->number] = true;
    }
    return gone;
}

/* The copy gets what its value had, as it is now. */
static bool fill(const ckpt__edits *e, const ckpt_value *v, ckpt_value *copy)
{
    bool ok;
    bool *gone = find_cuts(e, v, &ok);
    const ckpt_value **items = ok ? ckpt__arena_array(e->arena, v->item_count + 1, sizeof *items) : NULL;
    ckpt_entry *entries = items ? ckpt__arena_array(e->arena, v->entry_count + 1, sizeof *entries) : NULL;
    size_t kept = 0;
    for (size_t i = 0; entries && i < v->item_count; i++)
        items[i] = !gone || !gone[i] ? ckpt__edits_now(e, v->items[i]) : v->kind == CKPT_V_OBJECT ? &hole : &none;
    for (size_t i = 0; entries && i < v->entry_count; i++)
        if (!gone || !gone[v->item_count + i])
            entries[kept++] =
                (ckpt_entry){ckpt__edits_now(e, v->entries[i].key), ckpt__edits_now(e, v->entries[i].value)};
    free(gone);
    copy->items = items;
    copy->entries = entries;
    copy->entry_count = kept;
    copy->args = v->args ? ckpt__edits_now(e, v->args) : NULL;
    copy->state = v->state ? ckpt__edits_now(e, v->state) : NULL;
    return entries != NULL;
}

static bool make(making *m, const ckpt_value *root)
{
    ckpt__edits *e = m->edits;
    size_t number;
    bool ok = !has_children(root) || add_container(m, root, &number);
    for (size_t i = 0; ok && i < m->count; i++)
        ok = look_into(m, i);
    ok = ok && spread(m);
    for (size_t i = 0; ok && i < m->count; i++)
        if (m->all[i].changes)
            ok = (m->all[i].copy = ckpt__edits_copy(e, m->all[i].value)) != NULL &&
                 become(e, m->all[i].value, m->all[i].copy);
    for (size_t i = 0; ok && i < m->count; i++)
        if (m->all[i].copy)
            ok = fill(e, m->all[i].value, m->all[i].copy);
    return ok;
}

ckpt_status ckpt__edits_apply(ckpt__edits *e, const ckpt_value *root, const ckpt_value **out, ckpt_error *err)
{
    making m = {.edits = e};
    bool ok = !root || !e->noted || make(&m, ckpt__edits_now(e, root));
    free(m.all);
    free(m.edges);
    ckpt__pointers_free(&m.numbers);
    ckpt__pointers_free(&e->cut_from);
    e->cut_count = e->noted = 0;
    if (!ok)
        return ckpt__fail_memory(err, "the value tree", 0);
    *out = ckpt__edits_now(e, root);
    return CKPT_OK;
}

/* ---- holes */

static int close_holes(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    ckpt__edits *e = ctx;
    const ckpt_value *v = visit->value;
    size_t kept = 0;
    (void)spot;
    for (size_t i = 0; i < v->item_count; i++)
        kept += v->items[i] != &hole;
    if (v->kind != CKPT_V_OBJECT || kept == v->item_count)
        return 0;
    ckpt_value *copy = ckpt__edits_copy(e, v);
    const ckpt_value **items = copy ? ckpt__arena_array(e->arena, kept + 1, sizeof *items) : NULL;
    if (!items)
        return CKPT_E_NO_MEMORY;
    copy->items = items;
    copy->item_count = 0;
    for (size_t i = 0; i < v->item_count; i++)
        if (v->items[i] != &hole)
            items[copy->item_count++] = v->items[i];
    *to = copy;
    return 0;
}

ckpt_status ckpt__edits_close_holes(ckpt__edits *e, const ckpt_value *root, const ckpt_value **out, ckpt_error *err)
{
    *out = root;
    if (!e->holes)
        return CKPT_OK;
    e->holes = false;
    ckpt_status status = ckpt__rewrite(e, root, close_holes, e, out, err);
    return status == CKPT_E_NO_MEMORY ? ckpt__fail_memory(err, "the value tree", 0) : status;
}
