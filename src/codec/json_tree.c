/* codec/json_tree.c - small members as cJSON trees. cJSON accepts leading zeros and trailing bytes, cuts strings at NUL
 * and matches keys without regard to case: so the lexer goes first, and members are found by their exact names. */
#include "codec/json.h"

#include <cjson/cJSON.h>

enum { TREE_BYTES = 64 << 10, TREE_DEPTH = 16, TREE_KEYS = 256 };

/* One pass of the lexer over everything; strings must survive a NUL-terminated copy. */
static ckpt_status check(ckpt__json *j, ckpt_error *err)
{
    ckpt__buf scratch = {0};
    ckpt_status status = CKPT_OK;
    ckpt__json_event event;
    while (status == CKPT_OK && (event = ckpt__json_next(j, err)) != CKPT__JSON_END) {
        if (event == CKPT__JSON_ERROR)
            status = j->status;
        else if (event == CKPT__JSON_KEY || event == CKPT__JSON_STRING) {
            ckpt_str text = ckpt__json_text(j, &scratch);
            if (!text.data)
                status = ckpt__fail_memory(err, j->what, j->size);
            else if (memchr(text.data, '\0', text.size))
                status = ckpt__json_wrong(j, err, "a string holds a NUL character");
        }
    }
    ckpt__buf_free(&scratch);
    return status;
}

/* A key that occurs twice in one object, or NULL; *over is set where an object has more keys than are allowed. */
static const char *twice_in(const cJSON *object, bool *over)
{
    int keys = 0;
    for (const cJSON *a = object->child; a; a = a->next) {
        if (++keys > TREE_KEYS) {
            *over = true;
            return NULL;
        }
        for (const cJSON *b = object->child; b != a; b = b->next)
            if (strcmp(a->string, b->string) == 0)
                return a->string;
    }
    return NULL;
}

/* All objects of the tree, by its links: no recursion on the input. */
static const char *twice(const cJSON *root, bool *over)
{
    const cJSON *stack[TREE_DEPTH + 1], *node = root;
    const char *key = NULL;
    int depth = 0;
    while (node && !key && !*over) {
        if (cJSON_IsObject(node))
            key = twice_in(node, over);
        if (node->child && depth <= TREE_DEPTH) {
            stack[depth++] = node;
            node = node->child;
            continue;
        }
        while (node && (node == root || !node->next))
            node = depth > 0 ? stack[--depth] : NULL;
        if (node)
            node = node->next;
    }
    return key;
}

ckpt_status ckpt__json_tree(const char *text, size_t size, const char *what, cJSON **out, ckpt_error *err)
{
    ckpt__json j;
    *out = NULL;
    if (size > TREE_BYTES)
        return ckpt__fail(err, CKPT_E_LIMIT, what, "a member of %zu bytes; the limit here is %d", size, TREE_BYTES);
    ckpt__json_start(&j, text, size, TREE_DEPTH, what);
    ckpt_status status = check(&j, err);
    if (status < 0)
        return status;
    cJSON *tree = cJSON_ParseWithLength(text, size);
    if (!tree)
        return ckpt__fail_memory(err, what, size);
    bool over = false;
    const char *key = twice(tree, &over);
    if (key || over) {
        char name[80];
        ckpt__escape(name, sizeof name, key ? key : "", key ? strlen(key) : 0);
        cJSON_Delete(tree);
        return over ? ckpt__fail(err, CKPT_E_LIMIT, what, "an object of more than %d keys; that is the limit here",
                                 TREE_KEYS)
                    : ckpt__fail(err, CKPT_E_FORMAT, what, "the key \"%s\" occurs twice", name);
    }
    *out = tree;
    return CKPT_OK;
}

const cJSON *ckpt__json_get(const cJSON *object, const char *key)
{
    return cJSON_IsObject(object) ? cJSON_GetObjectItemCaseSensitive(object, key) : NULL;
}
