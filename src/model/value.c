/* model/value.c - making values, and looking into them. */
#include "model/index.h"

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

static const ckpt_value *get_entry(const ckpt_value *v, const char *key)
{
    for (size_t i = 0; v && i < v->entry_count; i++)
        if (v->entries[i].key->kind == CKPT_V_STR && ckpt__str_is(v->entries[i].key->text, key))
            return v->entries[i].value;
    return NULL;
}

const ckpt_value *ckpt_value_get(const ckpt_value *v, const char *key)
{
    if (!v || (v->kind != CKPT_V_DICT && v->kind != CKPT_V_OBJECT))
        return NULL;
    const ckpt_value *found = get_entry(v, key), *state = v->state;
    if (found || v->kind != CKPT_V_OBJECT || !state)
        return found;
    if (state->kind == CKPT_V_TUPLE) {       /* (dict, slots) */
        for (size_t i = 0; i < state->item_count && !found; i++)
            found = get_entry(state->items[i], key);
        return found;
    }
    return get_entry(state, key);
}

const char *ckpt_kind_name(ckpt_kind kind)
{
    static const char *const names[] = { "none",  "bool", "int",    "int",   "float", "str",    "bytes", "bytearray",
                                         "list", "tuple", "dict", "tensor", "array", "class", "object" };
    return kind >= CKPT_V_NONE && kind <= CKPT_V_OBJECT ? names[kind] : "object";
}

static void repr_quoted(ckpt__buf *b, ckpt_str s, bool bytes)
{
    bool has_single = memchr(s.data, '\'', s.size) != NULL, has_double = memchr(s.data, '"', s.size) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    ckpt__buf_char(b, quote);
    for (size_t i = 0; i < s.size; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c == (unsigned char)quote || c == '\\') {
            ckpt__buf_char(b, '\\');
            ckpt__buf_char(b, (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t')
            ckpt__buf_str(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c < 0x20 || c == 0x7f || (bytes && c >= 0x80))
            ckpt__buf_printf(b, "\\x%02x", c);
        else
            ckpt__buf_char(b, (char)c);
    }
    ckpt__buf_char(b, quote);
}

/* Keys that nest deeper than this are named by their kind alone: no recursion on input without a bound. */
enum { REPR_DEPTH = 8, REPR_ITEMS = 64 };

static void repr(ckpt__buf *b, const ckpt_value *v, int depth);

static void repr_sequence(ckpt__buf *b, const ckpt_value *v, const char *open, const char *close, int depth)
{
    ckpt__buf_str(b, open);
    for (size_t i = 0; i < v->item_count && i < REPR_ITEMS; i++) {
        if (i)
            ckpt__buf_str(b, ", ");
        repr(b, v->items[i], depth + 1);
    }
    if (v->item_count > REPR_ITEMS)
        ckpt__buf_str(b, ", ...");
    if (v->kind == CKPT_V_TUPLE && v->item_count == 1)
        ckpt__buf_char(b, ',');
    ckpt__buf_str(b, close);
}

/* frozenset({1, 2}) and torch.device(type='cuda', index=1): the objects that occur as keys. */
static void repr_object(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *args = v->args;
    if (ckpt__str_is(v->class_name, "builtins.frozenset") || ckpt__str_is(v->class_name, "builtins.set")) {
        const ckpt_value *items = v->item_count ? v : args && args->item_count == 1 ? args->items[0] : NULL;
        bool frozen = v->class_name.size > 12;
        ckpt__buf_str(b, frozen ? "frozenset(" : "");
        if (items && items->item_count)
            repr_sequence(b, items, "{", "}", depth);
        ckpt__buf_str(b, frozen ? ")" : "");
        return;
    }
    ckpt__buf_add(b, v->class_name.data ? v->class_name.data : "object", v->class_name.data ? v->class_name.size : 6);
    if (args)
        repr_sequence(b, args, "(", ")", depth);
}

static void repr(ckpt__buf *b, const ckpt_value *v, int depth)
{
    char number[CKPT__DOUBLE_MAX];
    if (depth > REPR_DEPTH) {
        ckpt__buf_str(b, "...");
        return;
    }
    switch (v->kind) {
    case CKPT_V_NONE:
        ckpt__buf_str(b, "None");
        break;
    case CKPT_V_BOOL:
        ckpt__buf_str(b, v->boolean ? "True" : "False");
        break;
    case CKPT_V_INT:
        ckpt__buf_printf(b, "%lld", (long long)v->integer);
        break;
    case CKPT_V_BIGINT:
        ckpt__buf_add(b, v->text.data, v->text.size);
        break;
    case CKPT_V_FLOAT:
        ckpt__buf_str(b, ckpt__format_double(number, v->real));
        break;
    case CKPT_V_STR:
        repr_quoted(b, v->text, false);
        break;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        ckpt__buf_str(b, v->kind == CKPT_V_BYTES ? "b" : "bytearray(b");
        repr_quoted(b, v->text, true);
        if (v->kind == CKPT_V_BYTEARRAY)
            ckpt__buf_char(b, ')');
        break;
    case CKPT_V_LIST:
        repr_sequence(b, v, "[", "]", depth);
        break;
    case CKPT_V_TUPLE:
        repr_sequence(b, v, "(", ")", depth);
        break;
    case CKPT_V_DICT:
    case CKPT_V_TENSOR:
    case CKPT_V_ARRAY:
        ckpt__buf_printf(b, "<%s>", ckpt_kind_name(v->kind));
        break;
    case CKPT_V_CLASS:
        ckpt__buf_add(b, v->class_name.data, v->class_name.size);
        break;
    case CKPT_V_OBJECT:
        repr_object(b, v, depth);
        break;
    }
}

void ckpt__value_repr(ckpt__buf *b, const ckpt_value *v)
{
    repr(b, v, 0);
}
