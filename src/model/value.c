/* model/value.c - making values, and looking into them; what Python would print of one is in value_repr.c. */
#include "model/value_path.h"

#include <stdlib.h>

ckpt_value *ckpt__value_new(ckpt__arena *a, ckpt_kind kind)
{
    ckpt_value *v = ckpt__arena_alloc(a, sizeof *v);
    if (v)
        v->kind = kind;
    return v;
}

ckpt_value *ckpt__value_int(ckpt__arena *a, int64_t i)
{
    ckpt_value *v = ckpt__value_new(a, CKPT_V_INT);
    if (v)
        v->integer = i;
    return v;
}

ckpt_value *ckpt__value_float(ckpt__arena *a, double d)
{
    ckpt_value *v = ckpt__value_new(a, CKPT_V_FLOAT);
    if (v)
        v->real = d;
    return v;
}

ckpt_value *ckpt__value_bool(ckpt__arena *a, bool b)
{
    ckpt_value *v = ckpt__value_new(a, CKPT_V_BOOL);
    if (v)
        v->boolean = b;
    return v;
}

ckpt_value *ckpt__value_str(ckpt__arena *a, const char *data, size_t n)
{
    ckpt_value *v = ckpt__value_new(a, CKPT_V_STR);
    if (v && !(v->text = ckpt__arena_str(a, data, n)).data)
        return NULL;
    return v;
}

ckpt_value *ckpt__value_dict(ckpt__arena *a, const ckpt_entry *entries, size_t n)
{
    ckpt_value *v = ckpt__value_new(a, CKPT_V_DICT);
    ckpt_entry *copy = ckpt__arena_array(a, n ? n : 1, sizeof *copy);
    if (!v || !copy)
        return NULL;
    if (n)
        memcpy(copy, entries, n * sizeof *copy);
    v->entries = copy;
    v->entry_count = n;
    return v;
}

ckpt_value *ckpt__value_dict_like(ckpt__arena *a, const ckpt_value *like, const ckpt_entry *entries, size_t n)
{
    ckpt_value *v = ckpt__value_dict(a, entries, n);
    if (v) {
        v->class_name = like->class_name;
        v->state = like->state;
    }
    return v;
}

ckpt_value *ckpt__value_list(ckpt__arena *a, ckpt_kind kind, const ckpt_value *const *items, size_t n)
{
    ckpt_value *v = ckpt__value_new(a, kind);
    const ckpt_value **copy = ckpt__arena_array(a, n ? n : 1, sizeof *copy);
    if (!v || !copy)
        return NULL;
    for (size_t i = 0; i < n; i++)
        copy[i] = items[i];
    v->items = copy;
    v->item_count = n;
    return v;
}

ckpt_status ckpt__value_names_over(const char *label, ckpt_error *err)
{
    return ckpt__fail(
        err, CKPT_E_LIMIT, label,
        "the names of its values, shared parts counted at each of their places, have far more bytes than the file: very "
        "long keys, or values that nest thousands of levels deep");
}

static const ckpt_value *get_entry(const ckpt_value *v, const char *key)
{
    const ckpt_entry *e = ckpt__find_entry(v, key);
    return e ? e->value : NULL;
}

const ckpt_value *ckpt_value_get(const ckpt_value *v, const char *key)
{
    if (!v || !key || (v->kind != CKPT_V_DICT && v->kind != CKPT_V_OBJECT))
        return NULL;
    const ckpt_value *found = get_entry(v, key), *state = v->state;
    if (found || v->kind != CKPT_V_OBJECT || !state)
        return found;
    if (state->kind == CKPT_V_TUPLE) { /* (dict, slots) */
        for (size_t i = 0; i < state->item_count && !found; i++)
            found = get_entry(state->items[i], key);
        return found;
    }
    return get_entry(state, key);
}

const char *ckpt_kind_name(ckpt_kind kind)
{
    static const char *const names[] = {"none", "bool",  "int",  "int",    "float", "str",   "bytes", "bytearray",
                                        "list", "tuple", "dict", "tensor", "array", "class", "object"};
    return kind >= CKPT_V_NONE && kind <= CKPT_V_OBJECT ? names[kind] : "object";
}
