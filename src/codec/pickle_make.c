/* codec/pickle_make.c - nodes to be written. */
#include "codec/pickle_write.h"

ckpt__pickle_node *ckpt__pickle_make(ckpt__arena *a, ckpt__pickle_kind kind)
{
    ckpt__pickle_node *n = ckpt__arena_alloc(a, sizeof *n);
    if (n)
        n->kind = kind;
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_later(ckpt__arena *a, const void *what)
{
    ckpt__pickle_node *n = ckpt__pickle_make(a, CKPT__P_NONE);
    if (n) {
        n->known = CKPT__PICKLE_LATER;
        n->u.later = what;
    }
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_int(ckpt__arena *a, int64_t value)
{
    ckpt__pickle_node *n = ckpt__pickle_make(a, CKPT__P_INT);
    if (n)
        n->u.integer = value;
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_bool(ckpt__arena *a, bool value)
{
    ckpt__pickle_node *n = ckpt__pickle_make(a, CKPT__P_BOOL);
    if (n)
        n->boolean = value;
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_text(ckpt__arena *a, ckpt__pickle_kind kind, ckpt_str text)
{
    ckpt__pickle_node *n = text.data ? ckpt__pickle_make(a, kind) : NULL;
    if (n) {
        n->u.text = text;
        n->boolean = kind == CKPT__P_STR;
    }
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_global(ckpt__arena *a, ckpt_str module, ckpt_str name)
{
    ckpt__pickle_node *n = module.data && name.data ? ckpt__pickle_make(a, CKPT__P_GLOBAL) : NULL;
    if (!n || !(n->u.global = ckpt__arena_alloc(a, sizeof *n->u.global)))
        return NULL;
    *n->u.global = (ckpt__pickle_names){module, name};
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_list(ckpt__arena *a, ckpt__pickle_kind kind, size_t count)
{
    ckpt__pickle_node *n = count <= UINT32_MAX ? ckpt__pickle_make(a, kind) : NULL;
    if (!n || !(n->u.list.items = ckpt__arena_array(a, count ? count : 1, sizeof(ckpt__pickle_node *))))
        return NULL;
    n->u.list.count = n->u.list.capacity = (uint32_t)count;
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_tuple(ckpt__arena *a, size_t count, ckpt__pickle_node *const *items)
{
    ckpt__pickle_node *n = ckpt__pickle_make_list(a, CKPT__P_TUPLE, count);
    for (size_t i = 0; n && i < count; i++) {
        if (!items[i])
            return NULL;
        n->u.list.items[i] = items[i];
    }
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_call(ckpt__arena *a, ckpt__pickle_call call, ckpt__pickle_node *callable,
                                          ckpt__pickle_node *args)
{
    ckpt__pickle_node *n = callable && args ? ckpt__pickle_make(a, CKPT__P_OBJECT) : NULL;
    if (!n || !(n->u.object = ckpt__arena_alloc(a, sizeof *n->u.object)))
        return NULL;
    n->u.object->call = call;
    n->u.object->callable = callable;
    n->u.object->args = args;
    return n;
}

ckpt__pickle_node *ckpt__pickle_make_persistent(ckpt__arena *a, ckpt__pickle_node *id)
{
    ckpt__pickle_node *n = id ? ckpt__pickle_make(a, CKPT__P_PERSISTENT) : NULL;
    if (n)
        n->u.id = id;
    return n;
}

bool ckpt__pickle_is_dotted(const ckpt__pickle_node *n)
{
    return n->kind == CKPT__P_GLOBAL && memchr(n->u.global->name.data, '.', n->u.global->name.size) != NULL;
}
