/* migrate/to_canonical.c - see to_canonical.h. */
#include "migrate/to_canonical.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/native/native.h"
#include "migrate/order.h"

/* ---- canonical entries as nested dicts */

/* One part of a dotted name, in the arena. "optimizer.groups.0.lr" has four nodes; only the last has a value. */
typedef struct node {
    ckpt_str key;                              /* "groups" */
    const ckpt_value *value;                   /* NULL: the node is a dict of its children */
    struct node *parent, *first, *last, *next; /* first and last child, next child of the parent; NULL: none */
    size_t children;                           /* how many */
} node;

typedef struct nest {
    ckpt__arena *arena;
    ckpt__hash *by_name; /* whole dotted name -> number of the node */
    node **nodes;        /* heap, parents first */
    size_t count, capacity;
} nest;

static node *nest_add(nest *n, node *parent, const char *key, size_t size)
{
    node *c = ckpt__arena_alloc(n->arena, sizeof *c);
    if (!c || !ckpt__grow(&n->nodes, &n->capacity, n->count + 1, sizeof *n->nodes))
        return NULL;
    c->key = ckpt__arena_str(n->arena, key, size);
    if (!c->key.data)
        return NULL;
    c->parent = parent;
    if (parent) {
        if (parent->last)
            parent->last->next = c;
        else
            parent->first = c;
        parent->last = c;
        parent->children++;
    }
    n->nodes[n->count++] = c;
    return c;
}

/* The node of a whole name, made with all above it. Where a part above is a leaf ("a" and "a.b"), the rest of the name
 * is one key of the node above that. Names must stay alive. */
static node *nest_at(nest *n, const char *name, size_t size)
{
    node *at = n->nodes[0];
    size_t start = 0;
    for (size_t end = 0; end <= size; end++) {
        if (end < size && name[end] != '.')
            continue;
        size_t number;
        node *next = NULL;
        if (ckpt__hash_get(n->by_name, name, end, &number))
            next = n->nodes[number];
        if (next && next->value && end < size) {
            end = size - 1; /* once more, for the rest as one key */
            continue;
        }
        if (!next) {
            next = nest_add(n, at, name + start, end - start);
            if (!next || ckpt__hash_put(n->by_name, name, end, n->count - 1, NULL) < 0)
                return NULL;
        }
        at = next;
        start = end + 1;
    }
    return at;
}

/* The keys are exactly "0", "1", ... of plain values: it was a list (betas). The groups themselves stay a dict. */
static bool is_list(const node *n)
{
    size_t i = 0;
    char text[24];
    for (const node *c = n->first; c; c = c->next, i++)
        if (c->first || !ckpt__str_is(c->key, (snprintf(text, sizeof text, "%zu", i), text)))
            return false;
    return i > 0 && n->parent && n->parent->parent; /* never the root or what stands right below it */
}

static const ckpt_value *make_dict(ckpt__arena *a, const node *n, bool list)
{
    size_t i = 0;
    ckpt_entry *entries = ckpt__arena_array(a, n->children + 1, sizeof *entries);
    const ckpt_value **items = ckpt__arena_array(a, n->children + 1, sizeof *items);
    if (!entries || !items)
        return NULL;
    for (const node *c = n->first; c; c = c->next, i++) {
        items[i] = entries[i].value = c->value;
        entries[i].key = ckpt__value_str(a, c->key.data, c->key.size);
        if (!entries[i].key)
            return NULL;
    }
    return list ? ckpt__value_list(a, CKPT_V_LIST, items, i) : ckpt__value_dict(a, entries, i);
}

/* Children stand behind their parents in `nodes`, so going backwards makes every dict from finished ones. */
static bool nest_finish(nest *n)
{
    for (size_t i = n->count; i-- > 0;) {
        node *at = n->nodes[i];
        if (!at->value && !(at->value = make_dict(n->arena, at, is_list(at))))
            return false;
    }
    return true;
}

const ckpt_value *ckpt__migrate_names_of(ckpt__arena *a, const ckpt__canon_group *g)
{
    const ckpt_value **items = ckpt__arena_array(a, g->param_count + 1, sizeof *items);
    for (size_t i = 0; items && i < g->param_count; i++)
        if (!(items[i] = ckpt__value_str(a, g->params[i].data, g->params[i].size)))
            return NULL;
    return items ? ckpt__value_list(a, CKPT_V_LIST, items, g->param_count) : NULL;
}

/* optimizer.groups.<g>.params, and every canonical value. */
static bool nest_fill(nest *n, const ckpt__canon *canon, const ckpt__edits *edits)
{
    for (size_t i = 0; i < canon->count; i++) {
        const ckpt__canon_entry *e = &canon->entries[i];
        if (e->is_tensor || e->outside || !e->value)
            continue;
        node *at = nest_at(n, e->name.data, e->name.size);
        if (!at)
            return false;
        if (!at->value && !at->first)
            at->value = ckpt__edits_now(edits, e->value);
    }
    for (size_t g = 0; g < canon->group_count; g++) {
        ckpt_str name =
            ckpt__arena_join(n->arena, ckpt__s("optimizer.groups."), canon->groups[g].name, ckpt__s(".params"));
        node *at = name.data ? nest_at(n, name.data, name.size) : NULL;
        if (!at || !(at->value = ckpt__migrate_names_of(n->arena, &canon->groups[g])))
            return false;
    }
    return true;
}

/* ---- both together */

/* The list of the root's keys that are none of the model's, the optimizer's or the scaler's: a restore of the result
 * leaves them alone where nothing is bound, as it does with the source. */
static bool put_outside(const ckpt_entry *entries, size_t n, ckpt__arena *a, ckpt_entry *out)
{
    const ckpt_value **items = ckpt__arena_array(a, n + 1, sizeof *items);
    for (size_t i = 0; items && i < n; i++)
        items[i] = entries[i].key;
    out->key = ckpt__value_str(a, CKPT__OUTSIDE_KEY, strlen(CKPT__OUTSIDE_KEY));
    out->value = items ? ckpt__value_list(a, CKPT_V_LIST, items, n) : NULL;
    return out->key && out->value;
}

/* The number of the entry of that key; n: none. */
static size_t entry_at(const ckpt_entry *entries, size_t n, const ckpt_value *key)
{
    size_t i = 0;
    while (i < n && !(entries[i].key->kind == CKPT_V_STR && key->kind == CKPT_V_STR &&
                      ckpt__str_equal(entries[i].key->text, key->text)))
        i++;
    return i;
}

/* What else the optimizer's dict holds, beside its canonical groups: *out NULL where a key of the one is in the other. */
static bool join(const ckpt_value *canonical, const ckpt_value *rest, ckpt__arena *a, const ckpt_value **out)
{
    size_t n = canonical->entry_count;
    *out = NULL;
    for (size_t i = 0; i < rest->entry_count; i++)
        if (entry_at(canonical->entries, n, rest->entries[i].key) < n)
            return true;
    ckpt_entry *entries = ckpt__arena_array(a, n + rest->entry_count + 1, sizeof *entries);
    if (!entries)
        return false;
    memcpy(entries, canonical->entries, n * sizeof *entries);
    if (rest->entry_count)
        memcpy(entries + n, rest->entries, rest->entry_count * sizeof *entries);
    *out = ckpt__value_dict(a, entries, n + rest->entry_count);
    return *out != NULL;
}

static ckpt_status merge(const ckpt_value *canonical, const ckpt_value *rest, bool mark, ckpt__arena *a,
                         ckpt_report *lost, const ckpt_value **out, ckpt_error *err)
{
    size_t room = canonical->entry_count + rest->entry_count + 1, n = 0;
    ckpt_entry *entries = ckpt__arena_array(a, room, sizeof *entries);
    if (!entries)
        return ckpt__fail_memory(err, "the value tree", room);
    for (size_t i = 0; i < canonical->entry_count; i++)
        entries[n++] = canonical->entries[i];
    for (size_t i = 0; i < rest->entry_count; i++) {
        const ckpt_entry *e = &rest->entries[i];
        size_t number = entry_at(entries, canonical->entry_count, e->key);
        ckpt_entry *taken = &entries[number];
        const ckpt_value *both = NULL;
        if (number == canonical->entry_count) {
            entries[n++] = *e;
            continue;
        }
        if (taken->value == e->value || (e->value->kind == CKPT_V_DICT && e->value->entry_count == 0))
            continue; /* `step` is both */
        bool dicts = taken->value->kind == CKPT_V_DICT && e->value->kind == CKPT_V_DICT;
        if (dicts && !join(taken->value, e->value, a, &both))
            return ckpt__fail_memory(err, "the value tree", room);
        char key[200];
        ckpt__escape(key, sizeof key, e->key->text.data, e->key->text.size);
        if (both)
            taken->value = both;
        else if (!ckpt__report_add(
                     lost, CKPT_SEVERITY_WARNING, "lost", key, NULL,
                     "the rest of the root's entry '%s' is left out: the name is that of the canonical one", key))
            return ckpt__fail_memory(err, "the report", 0);
    }
    size_t first = canonical->entry_count;
    bool made = !mark || put_outside(entries + first, n - first, a, &entries[n]);
    *out = made ? ckpt__value_dict(a, entries, mark ? n + 1 : n) : NULL;
    return *out ? CKPT_OK : ckpt__fail_memory(err, "the value tree", n);
}

ckpt_status ckpt__migrate_tree(const ckpt__index *index, const ckpt__canon *canon, const ckpt__edits *edits, bool mark,
                               ckpt__arena *arena, ckpt_report *lost, const ckpt_value **out, ckpt_error *err)
{
    nest n = {arena, ckpt__hash_new(canon->count), NULL, 0, 0};
    bool made = n.by_name && nest_add(&n, NULL, "", 0) && nest_fill(&n, canon, edits) && nest_finish(&n);
    const ckpt_value *canonical = made ? n.nodes[0]->value : NULL;
    ckpt__hash_free(n.by_name);
    free(n.nodes);
    if (!canonical)
        return ckpt__fail_memory(err, "the value tree", canon->count);
    *out = canonical;
    const ckpt_value *rest = NULL;
    ckpt_status status = ckpt__migrate_rest(index, canon, mark, arena, &rest, err);
    if (status < 0)
        return status;
    if (rest->kind == CKPT_V_DICT)
        return merge(canonical, rest, mark, arena, lost, out, err);
    if (rest->kind == CKPT_V_TENSOR && canonical->entry_count == 0)
        *out = NULL; /* a bare tensor: the name says it all */
    else if (canonical->entry_count == 0)
        *out = rest; /* a list of tensors, an object: kept as it is */
    else if (rest->kind != CKPT_V_TENSOR) {
        char name[200];
        ckpt_str class = rest->class_name.data ? rest->class_name : ckpt__s(ckpt_kind_name(rest->kind));
        ckpt__escape(name, sizeof name, class.data, class.size);
        if (!ckpt__report_add(lost, CKPT_SEVERITY_WARNING, "lost", NULL, NULL,
                              "the values of the root, of class %s, beside the model, the optimizer and the scaler",
                              name))
            return ckpt__fail_memory(err, "the report", 0);
    }
    return CKPT_OK;
}

/* ---- flags */

ckpt_status ckpt__migrate_flags(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *groups = ckpt_value_get(ckpt_value_get(m->root, "optimizer"), "groups");
    ckpt_status status = CKPT_OK;
    if (!groups || groups->kind != CKPT_V_DICT)
        return CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < groups->entry_count; i++)
        status = ckpt__group_set_flags(m, groups->entries[i].value, err);
    return status == CKPT_OK ? ckpt__migration_apply(m, err) : status;
}
