/* model/preorder.c - the value tree as an array: what is below a node is a range, and no later step recurses. */
#include "model/preorder.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_NODES = 8000000 };

struct building {
    ckpt__tree *tree;
    ckpt__arena *arena;
    size_t *open; /* depth -> the node of that depth on the current path */
    size_t depth, capacity;
    ckpt_error *err;
};

static ckpt_str last_key(const ckpt_visit *visit, ckpt_str name)
{
    ckpt_str key = {name.data + name.size, 0};
    if (!visit->path.count)
        return key;
    const ckpt_key *last = &visit->path.keys[visit->path.count - 1];
    size_t size = last->text.size;
    if (!last->text.data) {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%lld", (long long)last->number);
        size = n > 0 ? (size_t)n : 0;
    }
    key.size = size < name.size ? size : name.size;
    key.data = name.data + name.size - key.size;
    return key;
}

/* Numbers by the hundred thousand are data, and no settings that a program has names for: they get no node. The parameters of
 * an optimizer are such a list, and are looked at. */
static bool is_one_of_many(const ckpt__node *above, const ckpt_visit *visit)
{
    enum { MANY = 50000 };
    const ckpt_key *last = &visit->path.keys[visit->path.count - 1];
    bool many = above->value->item_count > MANY || (above->value->entry_count > MANY && !last->text.data);
    return many && visit->value->kind <= CKPT_V_BYTEARRAY && !ckpt__str_among(above->key, "params param_names");
}

static int visit_node(void *ctx, const ckpt_visit *visit)
{
    struct building *w = ctx;
    ckpt__tree *t = w->tree;
    size_t depth = visit->path.count;
    if (visit->cycle)
        return 0;
    if (depth > 0 && is_one_of_many(&t->nodes[w->open[depth - 1]], visit))
        return 0;
    if (!ckpt__arena_grow(w->arena, &t->nodes, &t->capacity, t->count + 1, sizeof *t->nodes) ||
        !ckpt__grow(&w->open, &w->capacity, depth + 1, sizeof *w->open))
        return ckpt__fail_memory(w->err, "the value tree", t->count);
    while (w->depth > depth)
        t->nodes[w->open[--w->depth]].end = t->count;
    ckpt__node *node = &t->nodes[t->count];
    memset(node, 0, sizeof *node);
    node->value = visit->value;
    node->parent = depth > 0 ? w->open[depth - 1] : 0;
    node->depth = (uint32_t)depth;
    node->inside = visit->inside;
    node->name = ckpt__arena_str(w->arena, visit->name.data, visit->name.size);
    if (!node->name.data)
        return ckpt__fail_memory(w->err, "the value tree", visit->name.size);
    node->key = last_key(visit, node->name);
    if (depth > 0) {
        const ckpt_key *last = &visit->path.keys[depth - 1];
        const ckpt__node *parent = &t->nodes[w->open[depth - 1]];
        node->integer_key = !last->text.data;
        node->other_key = last->other;
        node->attribute = parent->attribute ||
                          (visit->inside && parent->value->kind == CKPT_V_DICT && ckpt__str_is(node->key, "_metadata"));
    }
    w->open[w->depth++] = t->count++;
    return 0;
}

ckpt_status ckpt__tree_build(const ckpt_value *root, ckpt__arena *arena, ckpt__tree *out, ckpt_error *err)
{
    memset(out, 0, sizeof *out);
    struct building w = {.tree = out, .arena = arena, .err = err};
    int result = root ? ckpt_value_walk(root, MAX_NODES, visit_node, &w, err) : 0;
    while (w.depth > 0)
        out->nodes[w.open[--w.depth]].end = out->count;
    free(w.open);
    return (ckpt_status)result;
}

void ckpt__tree_free(ckpt__tree *tree)
{
    free(tree->nodes);
    memset(tree, 0, sizeof *tree);
}

size_t ckpt__tree_child(const ckpt__tree *tree, size_t node, const char *key)
{
    for
        CKPT__CHILDREN(tree, c, node)
    if (!tree->nodes[c].integer_key && ckpt__str_is(tree->nodes[c].key, key))
        return c;
    return SIZE_MAX;
}

size_t ckpt__tree_find(const ckpt__tree *tree, const char *path)
{
    for (size_t i = 0; i < tree->count; i++)
        if (ckpt__str_is(tree->nodes[i].name, path))
            return i;
    return SIZE_MAX;
}

ckpt_str ckpt__tree_relative(const ckpt__tree *tree, size_t above, size_t below)
{
    ckpt_str name = tree->nodes[below].name;
    if (above == 0)
        return name;
    if (tree->nodes[below].parent == above)
        return tree->nodes[below].key;
    size_t skip = tree->nodes[above].name.size + 1;
    skip = skip < name.size ? skip : name.size;
    name.data += skip;
    name.size -= skip;
    return name;
}

bool ckpt__node_is_dict(const ckpt__node *node)
{
    return node->value->kind == CKPT_V_DICT || node->value->kind == CKPT_V_OBJECT;
}

bool ckpt__node_is_leaf(const ckpt__node *node)
{
    switch (node->value->kind) {
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_BIGINT:
    case CKPT_V_FLOAT:
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return true;
    default:
        return false;
    }
}
