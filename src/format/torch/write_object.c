/* format/torch/write_object.c - objects, classes and arrays that have no pickle of their own: written from their class,
 * arguments, items, entries and attributes. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>

typedef ckpt__torch_writer writer;

/* "module.Class" -> a global, split at the last dot. */
static ckpt__out *put_class(writer *w, ckpt_str name)
{
    if (!name.data)
        return ckpt__torch_put_global(w, "builtins", "object");
    size_t dot = ckpt__str_after_dot(name);
    ckpt_str module = ckpt__arena_str(w->lasting, name.data, dot ? dot - 1 : 0);
    return module.data ? ckpt__torch_put_global(w, dot ? module.data : "builtins", name.data + dot) : NULL;
}

static ckpt__out *put_tuple(writer *w, const ckpt_value *const *items, size_t n, ckpt__pickle_kind kind)
{
    ckpt__out *tuple = ckpt__pickle_make_list(w->arena, kind, n);
    for (size_t i = 0; tuple && i < n; i++)
        if (!(tuple->u.list.items[i] = ckpt__torch_put_value(w, items[i])))
            return NULL;
    return tuple;
}

static ckpt__out *put_entries(writer *w, const ckpt_value *v)
{
    ckpt__out *dict = ckpt__pickle_make_list(w->arena, CKPT__P_DICT, 2 * v->entry_count);
    for (size_t i = 0; dict && i < v->entry_count; i++) {
        dict->u.list.items[2 * i] = ckpt__torch_put_value(w, v->entries[i].key);
        dict->u.list.items[2 * i + 1] = ckpt__torch_put_value(w, v->entries[i].value);
        if (!dict->u.list.items[2 * i] || !dict->u.list.items[2 * i + 1])
            return NULL;
    }
    return dict;
}

static ckpt__out *call_one(writer *w, ckpt__out *callable, ckpt__out *arg)
{
    return ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, callable, ckpt__pickle_make_tuple(w->arena, 1, &arg));
}

/* ---- classes whose constructor takes what the tree has as items or entries (value.c reads them so) */

static ckpt__out *put_known(writer *w, const ckpt_value *v)
{
    ckpt_str name = v->class_name;
    if (ckpt__str_is(name, "builtins.set") || ckpt__str_is(name, "builtins.frozenset"))
        return put_tuple(w, v->items, v->item_count,
                         ckpt__str_is(name, "builtins.set") ? CKPT__P_SET : CKPT__P_FROZENSET);
    if (ckpt__str_is(name, "torch.Size"))
        return call_one(w, put_class(w, name), put_tuple(w, v->items, v->item_count, CKPT__P_TUPLE));
    if (ckpt__str_is(name, "collections.deque") && !v->args)
        return call_one(w, put_class(w, name), put_tuple(w, v->items, v->item_count, CKPT__P_LIST));
    if (ckpt__str_is(name, "collections.Counter") && !v->args)
        return call_one(w, put_class(w, name), put_entries(w, v));
    if (ckpt__str_is(name, "builtins.ellipsis"))
        return ckpt__torch_put_global(w, "builtins", "Ellipsis");
    if (ckpt__str_is(name, "builtins.NotImplementedType"))
        return ckpt__torch_put_global(w, "builtins", "NotImplemented");
    return NULL;
}

static bool is_known(const ckpt_value *v)
{
    static const char *const names[] = {"builtins.set", "builtins.frozenset", "torch.Size", "builtins.ellipsis",
                                        "builtins.NotImplementedType"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(v->class_name, names[i]))
            return true;
    return !v->args &&
           (ckpt__str_is(v->class_name, "collections.deque") || ckpt__str_is(v->class_name, "collections.Counter"));
}

/* ---- numpy */

static ckpt__out *put_ints(writer *w, const int64_t *values, uint32_t n)
{
    ckpt__out *tuple = ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, n);
    for (uint32_t i = 0; tuple && i < n; i++)
        if (!(tuple->u.list.items[i] = ckpt__torch_put_int(w, values[i])))
            return NULL;
    return tuple;
}

static ckpt__out *put_str(writer *w, const char *text, size_t n)
{
    return ckpt__pickle_make_text(w->arena, CKPT__P_STR, ckpt__arena_str(w->lasting, text, n));
}

/* Of a date, (None, (b'D', 7, 1, 1)): its unit is seven days. Without it numpy takes the state for that of another kind, and
 * falls over it. text: "8[7D]", or "8" where there is no unit. */
static ckpt__out *put_unit(writer *w, ckpt_str text)
{
    const char *open = memchr(text.data, '[', text.size), *unit = "generic";
    size_t n = strlen(unit);
    int64_t count = 1;
    if (open && text.data[text.size - 1] == ']') {
        const char *end = text.data + text.size - 1;
        for (unit = open + 1; unit < end && *unit >= '0' && *unit <= '9';)
            unit++;
        n = (size_t)(end - unit);
        if (unit > open + 1 && !ckpt__parse_i64(open + 1, (size_t)(unit - open - 1), &count))
            return NULL;
    }
    ckpt__out *items[] = {ckpt__pickle_make_text(w->arena, CKPT__P_BYTES, ckpt__arena_str(w->lasting, unit, n)),
                          ckpt__torch_put_int(w, count), ckpt__torch_put_int(w, 1), ckpt__torch_put_int(w, 1)};
    ckpt__out *both[] = {ckpt__pickle_make(w->arena, CKPT__P_NONE), ckpt__pickle_make_tuple(w->arena, 4, items)};
    return ckpt__pickle_make_tuple(w->arena, 2, both);
}

/* numpy.dtype('f4', False, True) with the state (3, '<', None, None, None, -1, -1, 0): the last but two are the size and the
 * alignment, which those have whose size is not that of their kind. That of dates has a ninth item. */
static ckpt__out *put_dtype(writer *w, ckpt_str dtype)
{
    ckpt__pickle_node *none = ckpt__pickle_make(w->arena, CKPT__P_NONE);
    bool order = dtype.size > 1 && strchr("<>|=", dtype.data[0]) != NULL;
    ckpt_str code = {dtype.data + order, dtype.size - order}, count = {code.data + 1, code.size ? code.size - 1 : 0};
    bool date = count.size && (code.data[0] == 'M' || code.data[0] == 'm');
    int64_t size = -1, align = -1;
    if (count.size && strchr("SUV", code.data[0]) && ckpt__parse_i64(count.data, count.size, &size)) {
        align = code.data[0] == 'U' ? 4 : 1;
        size = size < INT64_MAX / 4 ? size * align : -1;
    }
    ckpt__out *args[] = {put_str(w, code.data, date ? 2 : code.size), ckpt__torch_put_bool(w, false),
                         ckpt__torch_put_bool(w, true)};
    ckpt__out *state[] = {ckpt__torch_put_int(w, date ? 4 : 3),
                          put_str(w, order ? dtype.data : "|", 1),
                          none,
                          none,
                          none,
                          ckpt__torch_put_int(w, size),
                          ckpt__torch_put_int(w, align),
                          ckpt__torch_put_int(w, 0),
                          date ? put_unit(w, count) : NULL};
    ckpt__out *call = ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, ckpt__torch_put_global(w, "numpy", "dtype"),
                                             ckpt__pickle_make_tuple(w->arena, 3, args));
    if (!call || !(call->u.object->state = ckpt__pickle_make_tuple(w->arena, date ? 9 : 8, state)))
        return NULL;
    return call;
}

/* "|V16": of a record all is known but how numpy would pickle its fields. */
static ckpt_str raw_dtype(const ckpt_value *v, char *out, size_t size)
{
    uint64_t n;
    bool some = ckpt__numel(v->array->shape, v->array->ndim, &n) && n > 0;
    return (ckpt_str){out, (size_t)snprintf(out, size, "|V%llu", some ? (unsigned long long)(v->text.size / n) : 0ull)};
}

/* numpy.core.multiarray._reconstruct(ndarray, (0,), b'b') with the state (1, shape, dtype, fortran, bytes): the module
 * has that name in numpy 1, and in numpy 2 as well. */
static ckpt__out *put_array(writer *w, const ckpt_value *v)
{
    static const int64_t zero[1] = {0};
    char code[32];
    ckpt_str dtype = v->array->dtype;
    if (dtype.size && dtype.data[0] == '[') {
        if (ckpt__torch_put_lost(w, SIZE_MAX,
                                 "an array of numpy's records is written as raw bytes, without its fields: %.150s",
                                 dtype.data) < 0)
            return NULL;
        dtype = raw_dtype(v, code, sizeof code);
    }
    ckpt__out *args[] = {ckpt__torch_put_global(w, "numpy", "ndarray"), put_ints(w, zero, 1),
                         ckpt__pickle_make_text(w->arena, CKPT__P_BYTES, ckpt__s("b"))};
    ckpt__out *state[] = {ckpt__torch_put_int(w, 1), put_ints(w, v->array->shape, v->array->ndim), put_dtype(w, dtype),
                          ckpt__torch_put_bool(w, v->array->fortran),
                          ckpt__pickle_make_text(w->arena, CKPT__P_BYTES, v->text)};
    ckpt__out *call = ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE,
                                             ckpt__torch_put_global(w, "numpy.core.multiarray", "_reconstruct"),
                                             ckpt__pickle_make_tuple(w->arena, 3, args));
    if (!call || !(call->u.object->state = ckpt__pickle_make_tuple(w->arena, 5, state)))
        return NULL;
    return call;
}

/* ---- all */

static bool is_layout(ckpt_str name)
{
    static const char *const layouts[] = {"torch.strided",    "torch.sparse_coo", "torch.sparse_csr",
                                          "torch.sparse_csc", "torch.sparse_bsr", "torch.sparse_bsc",
                                          "torch._mkldnn",    "torch.jagged"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (ckpt__str_is(name, layouts[i]))
            return true;
    return false;
}

/* Class.__new__(Class, *args) where there is nothing else to call it with, as pickle protocol 2 makes objects. */
static ckpt__out *put_plain(writer *w, const ckpt_value *v)
{
    const ckpt_value *a = v->args;
    bool tuple = a && (a->kind == CKPT_V_TUPLE || a->kind == CKPT_V_LIST);
    ckpt__out *args = put_tuple(w, tuple ? a->items : NULL, tuple ? a->item_count : 0, CKPT__P_TUPLE);
    ckpt__out *call = ckpt__pickle_make_call(w->arena, tuple && a->item_count ? CKPT__P_REDUCE : CKPT__P_NEWOBJ,
                                             put_class(w, v->class_name), args);
    ckpt__out *items = put_tuple(w, v->items, v->item_count, CKPT__P_LIST), *entries = put_entries(w, v);
    if (!call || !items || !entries || (v->state && !(call->u.object->state = ckpt__torch_put_value(w, v->state))))
        return NULL;
    call->u.object->items = items->u.list;
    call->u.object->entries = entries->u.list;
    return call;
}

ckpt_status ckpt__torch_put_object(writer *w, const ckpt_value *v, ckpt__out *to)
{
    ckpt__out *made;
    if (v->kind == CKPT_V_CLASS && is_layout(v->class_name))
        made = call_one(w, ckpt__torch_put_global(w, "torch.serialization", "_get_layout"),
                        put_str(w, v->class_name.data, v->class_name.size));
    else if (v->kind == CKPT_V_CLASS)
        made = put_class(w, v->class_name);
    else if (v->kind == CKPT_V_ARRAY)
        made = put_array(w, v);
    else
        made = is_known(v) ? put_known(w, v) : put_plain(w, v);
    if (!made)
        return ckpt__torch_put_failed(w);
    *to = *made;
    return CKPT_OK;
}

/* _rebuild_from_type_v2(function, class, arguments, attributes) */
bool ckpt__torch_is_subclass(const ckpt_value *v)
{
    if (!ckpt__torch_is_closed(v))
        return false;
    const ckpt__pickle_object *o = ((const ckpt__pickle_node *)v->origin)->u.object;
    const ckpt__pickle_node *function = ckpt__torch_item(o->args, 0);
    return o->callable->kind == CKPT__P_GLOBAL && ckpt__torch_item(o->args, 2) && function->kind == CKPT__P_GLOBAL &&
           ckpt__str_among(o->callable->u.global->name, "_rebuild_from_type_v2 _rebuild_from_type") &&
           !ckpt__str_is(function->u.global->name, "_rebuild_wrapper_subclass");
}

const ckpt_value *ckpt__torch_unclass(const ckpt_value *v, ckpt__arena *a)
{
    const ckpt__pickle_object *o = ((const ckpt__pickle_node *)v->origin)->u.object;
    ckpt__pickle_node *node = ckpt__arena_alloc(a, sizeof *node);
    ckpt__pickle_object *call = ckpt__arena_alloc(a, sizeof *call);
    ckpt_value *made = ckpt__value_new(a, v->kind);
    if (!node || !call || !made)
        return NULL;
    *call =
        (ckpt__pickle_object){.call = o->call,
                              .callable = (ckpt__pickle_node *)(uintptr_t)ckpt__torch_item(o->args, 0), /* only read */
                              .args = (ckpt__pickle_node *)(uintptr_t)ckpt__torch_item(o->args, 2)};
    node->kind = CKPT__P_OBJECT;
    node->u.object = call;
    *made = *v;
    made->origin = node;
    made->state = NULL;
    made->class_name = ckpt__s("torch.Tensor");
    return made;
}
