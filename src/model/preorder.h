/* model/preorder.h - a checkpoint's value tree as an array, parents first: what is below a node is a range, and no walk
 * over it recurses. */
#ifndef CKPT_CANON_TREE_H
#define CKPT_CANON_TREE_H
#include "model/index.h"

/* One place in the value tree, parents first. A value that is reached twice has two nodes. The array makes "everything below
 * this dict" a range of numbers. {'model': {'w': T, 'b': T}, 'epoch': 3} becomes
 *
 *     number   name       end   parent  depth
 *     0        ""         5     0       0
 *     1        "model"    4     0       1        nodes 2 and 3 are below
 *     2        "model.w"  3     1       2
 *     3        "model.b"  4     1       2
 *     4        "epoch"    5     0       1
 */
typedef struct ckpt__node {
    const ckpt_value *value; /* borrowed from the tree that was built from */
    ckpt_str name;           /* dotted path, in the arena of ckpt__tree_build; the root's is empty */
    ckpt_str key;            /* its last step: the tail of name, where that is the path in this tree */
    size_t end;              /* the nodes below it are [own number + 1, end) */
    size_t parent;           /* of the root: the root */
    uint32_t depth;          /* steps from the root */
    bool integer_key;        /* the last step is an integer key or a position */
    bool other_key;          /* the last step is neither that nor a text: `key` is its repr */
    bool inside;             /* an attribute or argument of an object, or below one: ckpt_visit.inside */
    bool attribute;          /* below an attribute of a dict (a state_dict's _metadata) */
    bool taken;              /* set by who walks the nodes: an entry was made of the node, or none is to be */
} ckpt__node;

typedef struct ckpt__tree {
    ckpt__node *nodes;      /* heap, owned: ckpt__tree_free */
    size_t count, capacity; /* nodes */
} ckpt__tree;

/* The direct children of node i. */
#define CKPT__CHILDREN(t, c, i) (size_t c = (i) + 1; c < (t)->nodes[i].end; c = (t)->nodes[c].end)

/* Names are copied into the arena. CKPT_E_LIMIT for a tree of more than 8 million nodes. After a failure *out is the tree as far as
 * it was built; ckpt__tree_free in every case. */
ckpt_status ckpt__tree_build(const ckpt_value *root, ckpt__arena *arena, ckpt__tree *out, ckpt_error *err);
void ckpt__tree_free(ckpt__tree *tree);
size_t ckpt__tree_child(const ckpt__tree *tree, size_t node, const char *key); /* SIZE_MAX: none */
size_t ckpt__tree_find(const ckpt__tree *tree, const char *path);              /* SIZE_MAX: none */
/* The name of node `below` relative to `above`, one of its ancestors. */
ckpt_str ckpt__tree_relative(const ckpt__tree *tree, size_t above, size_t below);
bool ckpt__node_is_dict(const ckpt__node *node); /* a dict, or an opaque object with attributes */
bool ckpt__node_is_leaf(const ckpt__node *node); /* of a kind that an entry may have as its value */
#endif
