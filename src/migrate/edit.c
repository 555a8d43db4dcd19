/* migrate/edit.c - the source's value tree in place: the walk gives the place of each value, and what is to go is
 * taken out after it. Nothing here recurses: ckpt_value_walk says what comes next, and the n-th visit below a container
 * is its n-th child in the order items, entries, state. */
#include "migrate/migration.h"
#include "format/torch/write.h"
#include "format/table.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- sets of pointers */

static size_t slot_of(const ckpt__seen *s, const void *p)
{
    uint64_t h = (uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 20) & s->mask;
    while (s->slots[i] && s->slots[i] != p)
        i = (i + 1) & s->mask;
    return i;
}

bool ckpt__seen_has(const ckpt__seen *s, const void *p)
{
    return s->slots && s->slots[slot_of(s, p)] != NULL;
}

int ckpt__seen_add(ckpt__seen *s, const void *p)
{
    if (!s->slots || s->count * 2 > s->mask) {
        ckpt__seen fresh = {NULL, s->count, s->slots ? s->mask * 2 + 1 : 63};
        if (!(fresh.slots = calloc(fresh.mask + 1, sizeof *fresh.slots)))
            return -1;
        for (size_t i = 0; s->slots && i <= s->mask; i++)
            if (s->slots[i])
                fresh.slots[slot_of(&fresh, s->slots[i])] = s->slots[i];
        free(s->slots);
        *s = fresh;
    }
    size_t i = slot_of(s, p);
    if (s->slots[i])
        return 0;
    s->slots[i] = p;
    s->count++;
    return 1;
}

void ckpt__seen_free(ckpt__seen *s)
{
    free(s->slots);
    memset(s, 0, sizeof *s);
}

ckpt_status ckpt__edit_dicts(const ckpt_value *root, ckpt__dict_fn fn, void *ctx, ckpt_error *err)
{
    const ckpt_value **pending = NULL;
    size_t count = 0, capacity = 0;
    ckpt__seen seen = {NULL, 0, 0};
    ckpt_status status = CKPT_OK;
    bool dict = root && root->kind == CKPT_V_DICT;
    if (dict && (ckpt__seen_add(&seen, root) < 0 || !ckpt__grow(&pending, &capacity, 1, sizeof *pending)))
        status = ckpt__migration_no_memory(err);
    else if (dict)
        pending[count++] = root;
    while (status == CKPT_OK && count > 0) {
        ckpt_value *v = (ckpt_value *)(uintptr_t)pending[--count]; /* the tree is this call's own */
        bool below = true;
        status = fn(ctx, v, &below, err);
        for (size_t i = 0; status == CKPT_OK && below && i < v->entry_count; i++) {
            const ckpt_value *next = v->entries[i].value;
            int added = next->kind == CKPT_V_DICT ? ckpt__seen_add(&seen, next) : 0;
            if (added < 0 || (added && !ckpt__grow(&pending, &capacity, count + 1, sizeof *pending)))
                status = ckpt__migration_no_memory(err);
            else if (added)
                pending[count++] = next;
        }
    }
    free(pending);
    ckpt__seen_free(&seen);
    return status;
}

/* ---- the walk */

/* The walk of ckpt__edit_walk. After the visit of x in {'a': [x, y]} open is {root, list, x} and children is {1, 1,
 * 0}: the next visit at depth 2 is child 1 of the list, y. */
typedef struct spot_walk {
    ckpt__spot_fn fn;
    void *ctx;
    const ckpt_value **open; /* heap, by depth: the value on the way to the one that is visited */
    size_t *children;        /* heap, by depth: how many children of that value were visited */
    size_t open_capacity, children_capacity;
    ckpt_error *err;
} spot_walk;

static ckpt_entry *own(const ckpt_entry *entries)
{
    return (ckpt_entry *)(uintptr_t)entries; /* the reader is this call's own */
}

/* Child `n` of `parent`: its place, by the order of the walk. */
static void find_spot(const ckpt_value *parent, size_t n, ckpt__spot *spot)
{
    const ckpt_value *s = parent->state;
    if (n < parent->item_count) {
        spot->slot = (const ckpt_value **)(uintptr_t)&parent->items[n];
        return;
    }
    n -= parent->item_count;
    const ckpt_value *dicts[3] = {parent, NULL, NULL};
    if (s && s->kind == CKPT_V_DICT)
        dicts[1] = s;
    for (size_t i = 0; s && s->kind == CKPT_V_TUPLE && s->item_count == 2 && i < 2; i++)
        if (s->items[i]->kind == CKPT_V_DICT)
            dicts[dicts[1] ? 2 : 1] = s->items[i];
    for (size_t d = 0; d < 3 && dicts[d]; d++) {
        if (n < dicts[d]->entry_count) {
            spot->slot = &own(dicts[d]->entries)[n].value;
            spot->dict = (ckpt_value *)(uintptr_t)dicts[d];
            return;
        }
        n -= dicts[d]->entry_count;
    }
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    spot_walk *s = ctx;
    size_t depth = visit->path.count;
    if (!ckpt__grow(&s->open, &s->open_capacity, depth + 1, sizeof *s->open) ||
        !ckpt__grow(&s->children, &s->children_capacity, depth + 1, sizeof *s->children))
        return ckpt__fail_memory(s->err, "the value tree", depth);
    ckpt__spot spot = {.visit = visit, .parent = depth ? s->open[depth - 1] : NULL};
    if (depth)
        find_spot(spot.parent, s->children[depth - 1]++, &spot);
    if (spot.slot && *spot.slot != visit->value) { /* an object's args or odd state: no place of its own */
        spot.slot = NULL;
        spot.dict = NULL;
    }
    s->open[depth] = visit->value;
    s->children[depth] = 0;
    return s->fn(s->ctx, &spot);
}

ckpt_status ckpt__edit_walk(const ckpt_value *root, ckpt__spot_fn fn, void *ctx, ckpt_error *err)
{
    spot_walk s = {.fn = fn, .ctx = ctx, .err = err};
    int status = root ? ckpt_value_walk(root, 0, on_visit, &s, err) : CKPT_OK;
    free(s.open);
    free(s.children);
    return (ckpt_status)status;
}

/* ---- taking out */

/* One place to take out. */
typedef struct ckpt__cut {
    const ckpt_value **slot;
    ckpt_value *dict; /* the value that loses the entry; NULL: the place is an item, and becomes None */
    bool of_deque;    /* the item becomes a hole */
} cut;

static const ckpt_value gone = {.kind = CKPT_V_NONE}, none = {.kind = CKPT_V_NONE}, hole = {.kind = CKPT_V_NONE};

bool ckpt__cuts_add(ckpt__cuts *c, const ckpt__spot *spot)
{
    /* An opaque object is written from what it was read from, with its children's values: only those can say None. */
    bool opaque =
        spot->dict && spot->dict->kind == CKPT_V_OBJECT && spot->dict->origin && !ckpt__torch_holds(spot->dict);
    bool holds = spot->parent && spot->slot && !spot->dict && ckpt__torch_holds(spot->parent);
    if (spot->parent && spot->parent->kind == CKPT_V_OBJECT && !spot->dict && !holds)
        opaque = true;
    if (!spot->slot || opaque) {
        ckpt_value *v = (ckpt_value *)(uintptr_t)spot->visit->value;
        *v = none;
        return true;
    }
    if (!ckpt__grow(&c->items, &c->capacity, c->count + 1, sizeof *c->items))
        return false;
    c->items[c->count++] = (cut){spot->slot, spot->dict, holds};
    return true;
}

bool ckpt__cuts_apply(ckpt__cuts *c)
{
    bool holes = false;
    for (size_t i = 0; i < c->count; i++) {
        *c->items[i].slot = c->items[i].dict ? &gone : c->items[i].of_deque ? &hole : &none;
        holes = holes || c->items[i].of_deque;
    }
    for (size_t i = 0; i < c->count; i++) {
        ckpt_value *d = c->items[i].dict;
        size_t kept = 0;
        if (!d || (i > 0 && c->items[i - 1].dict == d))
            continue;
        for (size_t k = 0; k < d->entry_count; k++)
            if (d->entries[k].value != &gone)
                own(d->entries)[kept++] = d->entries[k];
        d->entry_count = kept;
    }
    c->count = 0;
    return holes;
}

typedef struct holed_list {
    ckpt_value **items;
    size_t count, capacity;
} holed_list;

static int find_holed(void *ctx, const ckpt_visit *visit)
{
    holed_list *h = ctx;
    const ckpt_value *v = visit->value;
    bool has = false;
    for (size_t i = 0; v->kind == CKPT_V_OBJECT && i < v->item_count && !has; i++)
        has = v->items[i] == &hole;
    if (!has)
        return CKPT_OK;
    if (!ckpt__grow(&h->items, &h->capacity, h->count + 1, sizeof *h->items))
        return CKPT_E_NO_MEMORY;
    h->items[h->count++] = (ckpt_value *)(uintptr_t)v; /* the reader is this call's own */
    return CKPT_OK;
}

ckpt_status ckpt__edit_close_holes(const ckpt_value *root, ckpt_error *err)
{
    holed_list h = {NULL, 0, 0};
    int status = root ? ckpt_value_walk(root, 0, find_holed, &h, err) : CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < h.count; i++) {
        const ckpt_value **items = (const ckpt_value **)(uintptr_t)h.items[i]->items;
        size_t kept = 0;
        for (size_t k = 0; k < h.items[i]->item_count; k++)
            if (items[k] != &hole)
                items[kept++] = items[k];
        h.items[i]->item_count = kept;
    }
    free(h.items);
    return status == CKPT_E_NO_MEMORY ? ckpt__migration_no_memory(err) : (ckpt_status)status;
}

void ckpt__cuts_free(ckpt__cuts *c)
{
    free(c->items);
    memset(c, 0, sizeof *c);
}

/* ---- what a value is */

ckpt_entry *ckpt__entry_of(const ckpt_value *dict, const char *key)
{
    return (ckpt_entry *)(uintptr_t)ckpt__find_entry(dict, key); /* the reader is this call's own */
}

size_t ckpt__tensor_end(const ckpt__index *x, size_t i)
{
    size_t open = x->tensors[i].info.extra->part_count, end = i + 1;
    for (; open > 0 && end < x->tensor_count; end++)
        open += x->tensors[end].info.extra->part_count - 1;
    return end;
}

bool ckpt__is_flat(const ckpt__index *x, size_t tensor)
{
    return x->tensors[tensor].info.path.count == 0 && !(x->root && x->root->kind == CKPT_V_TENSOR);
}

bool ckpt__has_tree(const ckpt__index *x)
{
    const ckpt__format *format = ckpt__format_of(x);
    if (format->canonical)
        return false; /* canonical names; what tensors its values refer to have paths too */
    for (size_t i = 0; i < x->tensor_count; i++)
        if (!ckpt__is_flat(x, i))
            return true;
    return format->has_values || (x->root && x->tensor_count == 0);
}
