/* state/scalars.c - the value tree that a save writes: {"step": 12, "scaler": {...}, "optimizer": {"groups": {...}}, ...}. */
#include "state/scalars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A dict or a leaf of the tree while it grows: a ckpt_value has its entries in one array, whose size must be known
 * first. All is in the arena of the index. The names "step" and "scaler.scale" make three nodes below the root: step (a
 * leaf), scaler (a dict) and scale (a leaf below scaler). */
typedef struct node {
    ckpt_str key;
    const ckpt_value *value;          /* a leaf; NULL: a dict */
    struct node *first, *last, *next; /* children of a dict, NULL: none; the sibling behind, NULL: this one is the
                                          * last */
    size_t children;
} node;

static const ckpt_value *value_of(const ckpt__scalar *s, ckpt__arena *a)
{
    ckpt_value *v;
    float f;
    int64_t i;
    uint64_t natural;
    char text[24];
    switch (s->kind) {
    case CKPT__S_F32:
        memcpy(&f, s->data, sizeof f);
        return ckpt__value_float(a, (double)f);
    case CKPT__S_F64:
        return ckpt__value_float(a, *(const double *)s->data);
    case CKPT__S_U64:
        memcpy(&natural, s->data, sizeof natural);
        if (natural > INT64_MAX) {
            int n = snprintf(text, sizeof text, "%" PRIu64, natural);
            v = ckpt__value_new(a, CKPT_V_BIGINT);
            return v && (v->text = ckpt__arena_str(a, text, (size_t)n)).data ? v : NULL;
        }
        return ckpt__value_int(a, (int64_t)natural);
    case CKPT__S_I32:
    case CKPT__S_I64:
    case CKPT__S_U32:
        return ckpt__scalar_integer(s, &i) ? ckpt__value_int(a, i) : NULL;
    case CKPT__S_BOOL:
        return ckpt__value_bool(a, *(const bool *)s->data);
    case CKPT__S_STRING:
        return ckpt__value_str(a, s->data, strnlen(s->data, s->size));
    case CKPT__S_BYTES:
        v = ckpt__value_new(a, CKPT_V_BYTES);
        if (v && !(v->text = ckpt__arena_str(a, s->data, s->size)).data)
            v = NULL;
        return v;
    }
    return NULL;
}

static node *child(ckpt__arena *a, node *parent, const char *key, size_t n)
{
    for (node *c = parent->first; c; c = c->next)
        if (c->key.size == n && memcmp(c->key.data, key, n) == 0)
            return c;
    node *c = ckpt__arena_alloc(a, sizeof *c);
    if (!c || !(c->key = ckpt__arena_str(a, key, n)).data)
        return NULL;
    if (parent->last)
        parent->last->next = c;
    else
        parent->first = c;
    parent->last = c;
    parent->children++;
    return c;
}

/* Walks down the parts between dots; where a part is a leaf already ("a" and "a.b"), the rest is one key. False also where
 * a dict is in the place of the leaf: in_order() puts "a" before "a.b". */
static bool put(ckpt__arena *a, node *root, const char *name, size_t n, const ckpt_value *value)
{
    node *at = root;
    if (!value)
        return false;
    while (n) {
        const char *dot = memchr(name, '.', n);
        size_t part = dot ? (size_t)(dot - name) : n;
        node *next = child(a, at, name, part);
        if (!next)
            return false;
        if (part == n && !next->first && !next->value) {
            next->value = value;
            return true;
        }
        if (part == n || next->value) {
            node *flat = child(a, at, name, n);
            if (!flat || flat->first || flat->value)
                return false;
            flat->value = value;
            return true;
        }
        at = next;
        name += part + 1;
        n -= part + 1;
    }
    return false;
}

static ckpt_value *to_dict(ckpt__arena *a, const node *n, int depth)
{
    ckpt_entry *entries = ckpt__arena_array(a, n->children + 1, sizeof *entries);
    size_t i = 0;
    if (!entries)
        return NULL;
    for (const node *c = n->first; c; c = c->next, i++) {
        entries[i].key = ckpt__value_str(a, c->key.data, c->key.size);
        entries[i].value = c->value ? c->value : to_dict(a, c, depth + 1); /* as deep as a bound name has dots */
        if (!entries[i].key || !entries[i].value)
            return NULL;
    }
    return ckpt__value_dict(a, entries, i);
}

static const ckpt_value *list_of_names(ckpt__arena *a, const ckpt__group *g)
{
    const ckpt_value **items = ckpt__arena_array(a, g->param_count + 1, sizeof *items);
    if (!items)
        return NULL;
    for (size_t i = 0; i < g->param_count; i++)
        if (!(items[i] = ckpt__value_str(a, g->params[i].data, g->params[i].size)))
            return NULL;
    return ckpt__value_list(a, CKPT_V_LIST, items, g->param_count);
}

/* Is one name the beginning of another, up to a dot ("a" and "a.b")? */
static bool has_prefixes(const ckpt_state *s)
{
    bool found = false;
    for (size_t i = 0; !found && i < s->scalar_count; i++) {
        ckpt__buf full = {0};
        size_t own = s->scalars[i].name.size;
        ckpt__scalar_name(s, &s->scalars[i], &full);
        for (size_t k = full.size - (full.failed ? full.size : own); !full.failed && k < full.size; k++)
            found |= full.data[k] == '.' && ckpt__state_scalar(s, full.data, k) != NULL;
        ckpt__buf_free(&full);
    }
    return found;
}

static int by_size(const void *x, const void *y)
{
    const ckpt__scalar *a = *(const ckpt__scalar *const *)x, *b = *(const ckpt__scalar *const *)y;
    if (a->name.size != b->name.size)
        return a->name.size < b->name.size ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* The scalars as they were bound; where one name begins another, the shorter ones first. */
static const ckpt__scalar **in_order(const ckpt_state *s, ckpt__arena *a)
{
    const ckpt__scalar **order = ckpt__arena_array(a, s->scalar_count + 1, sizeof *order);
    for (size_t i = 0; order && i < s->scalar_count; i++)
        order[i] = &s->scalars[i];
    if (order && has_prefixes(s))
        qsort(order, s->scalar_count, sizeof *order, by_size);
    return order;
}

static ckpt_status taken(const char *name, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_ARGUMENT, name,
                      "a scalar is bound where the parameter groups are stored; bind it under another name");
}

ckpt_status ckpt__state_tree(const ckpt_state *s, ckpt__arena *a, const ckpt_value **root, int64_t *step,
                             ckpt_error *err)
{
    node top = {.first = NULL};
    const ckpt__scalar **order = in_order(s, a);
    bool ok = order != NULL;
    if (!ckpt__state_step(s, step) || *step < 0 || *step == INT64_MAX) /* one that no run counts to */
        *step = -1;
    for (size_t i = 0; ok && i < s->scalar_count; i++) {
        const ckpt__scalar *v = order[i];
        if (v->group != SIZE_MAX)
            continue;
        ok = put(a, &top, v->name.data, v->name.size, value_of(v, a));
    }
    node *optimizer = ok && s->group_count ? child(a, &top, "optimizer", 9) : NULL;
    node *groups = optimizer ? child(a, optimizer, "groups", 6) : NULL;
    ok = ok && (groups || !s->group_count);
    if (ok && groups && (optimizer->value || groups->value))
        return taken(optimizer->value ? "optimizer" : "optimizer.groups", err);
    for (size_t g = 0; ok && g < s->group_count; g++) {
        node *group = child(a, groups, s->groups[g].name.data, s->groups[g].name.size);
        node *params = group ? child(a, group, "params", 6) : NULL;
        if (params && (group->value || params->value || params->first))
            return taken(s->groups[g].name.data, err);
        ok = params && (params->value = list_of_names(a, &s->groups[g]));
        for (size_t i = 0; ok && i < s->scalar_count; i++)
            if (order[i]->group == g)
                ok = put(a, group, order[i]->name.data, order[i]->name.size, value_of(order[i], a));
    }
    if (!ok || !(*root = to_dict(a, &top, 0)))
        return ckpt__fail_memory(err, "value tree", 0);
    return CKPT_OK;
}
