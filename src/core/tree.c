/* core/tree.c - the value tree that a save writes: {"step": 12, "scaler": {...}, "optimizer": {"groups": {...}}, ...}. */
#include "core/tree.h"

#include <stdlib.h>

typedef struct node {
    ckpt_str key;
    const ckpt_value *value;      /* a leaf; NULL: a dict */
    struct node *first, *last, *next;
    size_t children;
} node;

static const ckpt_value *value_of(const ckpt__scalar *s, ckpt__arena *a)
{
    ckpt_value *v;
    float f;
    int32_t i;
    switch (s->kind) {
    case CKPT__S_F32:
        memcpy(&f, s->data, sizeof f);
        return ckpt__value_float(a, (double)f);
    case CKPT__S_F64:
        return ckpt__value_float(a, *(const double *)s->data);
    case CKPT__S_I32:
        memcpy(&i, s->data, sizeof i);
        return ckpt__value_int(a, i);
    case CKPT__S_I64:
        return ckpt__value_int(a, *(const int64_t *)s->data);
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

/* Walks down the parts between dots; where a part is a leaf already ("a" and "a.b"), the rest is one key. */
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
            if (!flat || (flat == next && part == n))       /* "a.b" first, then "a": kept beside it, under "a." */
                flat = child(a, at, "", 0);
            if (!flat)
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
        entries[i].value = c->value ? c->value : to_dict(a, c, depth + 1);   /* as deep as a bound name has dots */
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

ckpt_status ckpt__state_tree(const ckpt_state *s, ckpt__arena *a, const ckpt_value **root, int64_t *step, ckpt_error *err)
{
    node top = { .first = NULL };
    bool ok = true;
    *step = -1;
    for (size_t i = 0; ok && i < s->scalar_count; i++) {
        const ckpt__scalar *v = &s->scalars[i];
        if (v->group != SIZE_MAX)
            continue;
        ok = put(a, &top, v->name.data, v->name.size, value_of(v, a));
        if (ckpt__str_is(v->name, "step") && v->kind == CKPT__S_I64)
            *step = *(const int64_t *)v->data;
    }
    node *optimizer = ok && s->group_count ? child(a, &top, "optimizer", 9) : NULL;
    node *groups = optimizer ? child(a, optimizer, "groups", 6) : NULL;
    ok = ok && (groups || !s->group_count);
    for (size_t g = 0; ok && g < s->group_count; g++) {
        node *group = child(a, groups, s->groups[g].name.data, s->groups[g].name.size);
        node *params = group ? child(a, group, "params", 6) : NULL;
        ok = params && (params->value = list_of_names(a, &s->groups[g]));
        for (size_t i = 0; ok && i < s->scalar_count; i++)
            if (s->scalars[i].group == g)
                ok = put(a, group, s->scalars[i].name.data, s->scalars[i].name.size, value_of(&s->scalars[i], a));
    }
    if (!ok || !(*root = to_dict(a, &top, 0)))
        return ckpt__fail_memory(err, "value tree", 0);
    return CKPT_OK;
}
