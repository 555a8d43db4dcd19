/* format/torch/value.c - pickle nodes -> the value tree. Each node becomes one value, so identity and cycles stay; a
 * list of nodes that wait to be filled stands in for recursion. Classes that are data by nature (OrderedDict, bytes,
 * torch.Size, numpy's arrays, ...) are told by their names; everything else is an opaque object. */
#include "format/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>

ckpt_status ckpt__torch_fail(const ckpt__torch *t, ckpt_status status, const ckpt__pickle_node *node, ckpt_error *err,
                             const char *format, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    char shown[600];
    ckpt__escape(shown, sizeof shown, text, strlen(text));
    if (!node)
        return ckpt__fail(err, status, t->label, "%s", shown);
    return ckpt__fail(err, status, t->label, "byte %llu: %s", (unsigned long long)(t->pickle_at + node->position),
                      shown);
}

ckpt_status ckpt__torch_no_memory(const ckpt__torch *t, ckpt_error *err)
{
    if (ckpt__arena_over_limit(t->arena))
        return ckpt__fail(
            err, CKPT_E_LIMIT, t->label,
            "what this pickle describes would take more than %llu MiB of memory, which is the limit for a file of "
            "its size: far more than a checkpoint's does, so it is not read",
            (unsigned long long)(ckpt__arena_limit(t->arena) >> 20));
    return ckpt__fail_memory(err, t->label, 0);
}

/* ---- looking at nodes */

static const ckpt__pickle_list *list_of(const ckpt__pickle_node *node)
{
    static const ckpt__pickle_list none = {NULL, 0, 0};
    bool is_list = node && (node->kind == CKPT__P_TUPLE || node->kind == CKPT__P_LIST || node->kind == CKPT__P_SET ||
                            node->kind == CKPT__P_FROZENSET);
    return is_list ? &node->u.list : &none;
}

static const ckpt__pickle_list *dict_of(const ckpt__pickle_node *node)
{
    static const ckpt__pickle_list none = {NULL, 0, 0};
    return node && node->kind == CKPT__P_DICT ? &node->u.list : &none;
}

size_t ckpt__torch_length(const ckpt__pickle_node *node)
{
    return list_of(node)->count;
}

const ckpt__pickle_node *ckpt__torch_item(const ckpt__pickle_node *node, size_t i)
{
    const ckpt__pickle_list *list = list_of(node);
    return i < list->count ? list->items[i] : NULL;
}

/* UTF-8 of code points below 256 -> one byte each. */
static bool decode_latin1(ckpt__torch *t, ckpt_str text, ckpt_str *out)
{
    char *bytes = ckpt__arena_alloc(t->arena, text.size + 1);
    size_t n = 0;
    for (size_t i = 0; bytes && i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x80) {
            if (c > 0xC3 || i + 1 == text.size)
                return false;
            c = (unsigned char)(c << 6 | ((unsigned char)text.data[++i] & 0x3F));
        }
        bytes[n++] = (char)c;
    }
    *out = (ckpt_str){bytes, n};
    return bytes != NULL;
}

static bool is_encode(const ckpt__pickle_node *node)
{
    return node->kind == CKPT__P_OBJECT && node->u.object->call == CKPT__P_REDUCE &&
           ckpt__pickle_is_global(node->u.object->callable, "_codecs", "encode");
}

static bool is_builtin(const ckpt__pickle_node *global, const char *name)
{
    return ckpt__pickle_is_global(global, "__builtin__", name) || ckpt__pickle_is_global(global, "builtins", name);
}

bool ckpt__torch_bytes(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_str *out)
{
    if (!node)
        return false;
    if (node->kind == CKPT__P_BYTES || node->kind == CKPT__P_BYTEARRAY) {
        *out = node->u.text;
        return true;
    }
    if (is_encode(node)) {
        const ckpt__pickle_node *text = ckpt__torch_item(node->u.object->args, 0),
                                *codec = ckpt__torch_item(node->u.object->args, 1);
        return text && text->kind == CKPT__P_STR && codec && codec->kind == CKPT__P_STR &&
               (ckpt__str_is(codec->u.text, "latin1") || ckpt__str_is(codec->u.text, "latin-1")) &&
               decode_latin1(t, text->u.text, out);
    }
    if (node->kind == CKPT__P_OBJECT && is_builtin(node->u.object->callable, "bytes") &&
        ckpt__torch_length(node->u.object->args) == 0) {
        *out = (ckpt_str){"", 0};
        return true;
    }
    /* Python 2's str is bytes; where it happens to be UTF-8 the pickle reader made text of it. */
    if (node->kind == CKPT__P_STR) {
        *out = node->u.text;
        return true;
    }
    return false;
}

static bool is_getattr(const ckpt__pickle_node *node)
{
    const ckpt__pickle_node *name =
        node && node->kind == CKPT__P_OBJECT ? ckpt__torch_item(node->u.object->args, 1) : NULL;
    return name && name->kind == CKPT__P_STR && node->u.object->call == CKPT__P_REDUCE &&
           is_builtin(node->u.object->callable, "getattr");
}

/* What protocols 2 and 3 call for NEWOBJ_EX: functools.partial(C.__new__, C, ...), whose state is (function, arguments,
 * keywords, attributes). NULL: this is none. */
static const ckpt__pickle_node *new_of(const ckpt__pickle_node *node)
{
    bool partial = node->kind == CKPT__P_OBJECT && node->u.object->state &&
                   ckpt__pickle_is_global(node->u.object->callable, "functools", "partial");
    const ckpt__pickle_node *state = partial ? node->u.object->state : NULL, *function = ckpt__torch_item(state, 0);
    bool makes = is_getattr(function) && ckpt__str_is(function->u.object->args->u.list.items[1]->u.text, "__new__");
    return makes ? ckpt__torch_item(ckpt__torch_item(state, 1), 0) : NULL;
}

/* getattr(Outer, 'Inner'), which is how protocols below 4 write what lies in a class: "module.Outer.Inner". */
ckpt_str ckpt__torch_path(ckpt__torch *t, const ckpt__pickle_node *node)
{
    enum { DEEPEST = 8 };
    const ckpt__pickle_node *names[DEEPEST];
    size_t n = 0;
    for (; n < DEEPEST && is_getattr(node); node = ckpt__torch_item(node->u.object->args, 0))
        names[n++] = ckpt__torch_item(node->u.object->args, 1);
    if (!node || node->kind != CKPT__P_GLOBAL)
        return ckpt__s("(result of a call)");
    ckpt_str name = ckpt__torch_class(t, node), out = name;
    if (!n || !name.data)
        return name;
    ckpt__buf b = {0};
    ckpt__buf_add(&b, name.data, name.size);
    while (n) {
        ckpt__buf_char(&b, '.');
        ckpt__buf_add(&b, names[n - 1]->u.text.data, names[n - 1]->u.text.size);
        n--;
    }
    out = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(t->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return out;
}

ckpt_str ckpt__torch_callable(ckpt__torch *t, const ckpt__pickle_node *node)
{
    if (node->kind == CKPT__P_OBJECT)
        node = node->u.object->callable;
    if (ckpt__torch_module(node))
        node = ckpt__torch_module(node);
    return ckpt__torch_path(t, new_of(node) ? new_of(node) : node);
}

/* ---- making values */

/* What is made of no other nodes is filled here and now: nothing of it can fail. */
static bool fill_leaf(const ckpt__pickle_node *node, ckpt_value *v)
{
    static const ckpt_kind kinds[] = {
        [CKPT__P_NONE] = CKPT_V_NONE,     [CKPT__P_BOOL] = CKPT_V_BOOL,           [CKPT__P_INT] = CKPT_V_INT,
        [CKPT__P_BIGINT] = CKPT_V_BIGINT, [CKPT__P_FLOAT] = CKPT_V_FLOAT,         [CKPT__P_STR] = CKPT_V_STR,
        [CKPT__P_BYTES] = CKPT_V_BYTES,   [CKPT__P_BYTEARRAY] = CKPT_V_BYTEARRAY,
    };
    if (node->kind > CKPT__P_BYTEARRAY)
        return false;
    v->kind = kinds[node->kind];
    if (node->kind == CKPT__P_BOOL)
        v->boolean = node->boolean;
    else if (node->kind == CKPT__P_INT)
        v->integer = node->u.integer;
    else if (node->kind == CKPT__P_FLOAT)
        v->real = node->u.real;
    else if (node->kind != CKPT__P_NONE)
        v->text = node->u.text;
    return true;
}

ckpt_value *ckpt__torch_value_of(ckpt__torch *t, const ckpt__pickle_node *node)
{
    if (node->user)
        return node->user;
    bool tensor = node->kind == CKPT__P_OBJECT && ckpt__torch_is_tensor(node);
    ckpt_value *v = ckpt__arena_alloc(t->arena, tensor ? sizeof(ckpt__torch_tensor) : sizeof *v);
    if (!v)
        return NULL;
    v->origin = node;
    ((ckpt__pickle_node *)(uintptr_t)node)->user = v; /* nodes are ours; they are const where they are only looked at */
    if (fill_leaf(node, v))
        return v;
    if (!ckpt__arena_grow(t->arena, &t->work, &t->work_capacity, t->work_count + 1, sizeof *t->work))
        return NULL;
    t->work[t->work_count++] = node;
    return v;
}

bool ckpt__torch_set_items(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first, const ckpt__pickle_list *then)
{
    size_t n = first->count + then->count;
    const ckpt_value **items = ckpt__arena_array(t->arena, n ? n : 1, sizeof *items);
    if (!items)
        return false;
    for (size_t i = 0; i < n; i++) {
        items[i] = ckpt__torch_value_of(t, i < first->count ? first->items[i] : then->items[i - first->count]);
        if (!items[i])
            return false;
    }
    v->items = items;
    v->item_count = n;
    return true;
}

bool ckpt__torch_set_entries(ckpt__torch *t, ckpt_value *v, const ckpt__pickle_list *first,
                             const ckpt__pickle_list *then)
{
    size_t n = (first->count + then->count) / 2, m = first->count / 2;
    ckpt_entry *entries = ckpt__arena_array(t->arena, n ? n : 1, sizeof *entries);
    if (!entries || !ckpt__grow(&t->pairs, &t->pair_capacity, n, sizeof *t->pairs))
        return false;
    for (size_t i = 0; i < n; i++) {
        ckpt__pickle_node *const *pair = i < m ? first->items + 2 * i : then->items + 2 * (i - m);
        t->pairs[i] = (ckpt__torch_pair){pair[0], pair[1]};
    }
    if (!ckpt__torch_merge_keys(t, t->pairs, &n))
        return false;
    for (size_t i = 0; i < n; i++) {
        entries[i].key = ckpt__torch_value_of(t, t->pairs[i].key);
        entries[i].value = ckpt__torch_value_of(t, t->pairs[i].value);
        if (!entries[i].key || !entries[i].value)
            return false;
    }
    v->entries = entries;
    v->entry_count = n;
    return true;
}

static const ckpt__pickle_list no_list = {NULL, 0, 0};

/* ---- objects of classes that are known */

/* What a handler works on: v has its class name; args, items, entries and state are set before it runs. */
typedef bool (*object_handler)(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v);

static bool make_bytes(ckpt_value *v, ckpt_kind kind, ckpt_str text)
{
    const void *origin = v->origin;
    *v = (ckpt_value){.kind = kind, .text = text, .origin = origin};
    return true;
}

static bool on_encode(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    (void)o;
    ckpt_str text;
    if (ckpt__torch_bytes(t, v->origin, &text))
        return make_bytes(v, CKPT_V_BYTES, text);
    return !ckpt__arena_over_limit(t->arena);
}

static bool on_bytearray(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    const ckpt__pickle_node *from = ckpt__torch_item(o->args, 0), *codec = ckpt__torch_item(o->args, 1);
    ckpt_str text = {"", 0};
    if (!from)
        return make_bytes(v, CKPT_V_BYTEARRAY, text);
    if (codec && from->kind == CKPT__P_STR) { /* bytearray('...', 'latin-1'): Python 2 */
        if (decode_latin1(t, from->u.text, &text))
            make_bytes(v, CKPT_V_BYTEARRAY, text);
    } else if (from->kind != CKPT__P_STR && ckpt__torch_bytes(t, from, &text)) {
        make_bytes(v, CKPT_V_BYTEARRAY, text);
    }
    return !ckpt__arena_over_limit(t->arena);
}

/* OrderedDict(), or Python 2's OrderedDict([[key, value], ...]): a dict. Its state holds attributes such as _metadata.
 */
static bool on_ordered_dict(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    const ckpt__pickle_node *pairs = ckpt__torch_item(o->args, 0);
    ckpt__pickle_list flat = {NULL, 0, 0};
    size_t n = ckpt__torch_length(pairs);
    if (n > UINT32_MAX / 2)
        return true;
    if (pairs && pairs->kind == CKPT__P_DICT)
        flat = pairs->u.list;
    if (n) {
        flat.items = ckpt__arena_array(t->arena, 2 * n, sizeof *flat.items);
        if (!flat.items)
            return false;
        for (size_t i = 0; i < n; i++) {
            const ckpt__pickle_node *pair = ckpt__torch_item(pairs, i);
            if (ckpt__torch_length(pair) != 2)
                return true; /* something else: opaque */
            flat.items[flat.count++] = pair->u.list.items[0];
            flat.items[flat.count++] = pair->u.list.items[1];
        }
    }
    v->kind = CKPT_V_DICT;
    v->args = NULL;
    v->items = NULL;
    v->item_count = 0;
    return ckpt__torch_set_entries(t, v, &flat, &o->entries);
}

/* set([...]), frozenset([...]), torch.Size((...)), deque([...], maxlen): items from the first argument. */
static bool on_sequence(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    if (ckpt__torch_length(o->args) == 1)
        v->args = NULL;
    return ckpt__torch_set_items(t, v, list_of(ckpt__torch_item(o->args, 0)), &o->items);
}

static bool on_counter(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    v->args = NULL;
    return ckpt__torch_set_entries(t, v, dict_of(ckpt__torch_item(o->args, 0)), &o->entries);
}

/* torch.serialization._get_layout('torch.strided') */
static bool on_layout(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    const ckpt__pickle_node *name = ckpt__torch_item(o->args, 0);
    (void)t;
    if (name && name->kind == CKPT__P_STR) {
        v->kind = CKPT_V_CLASS;
        v->class_name = name->u.text;
        v->args = NULL;
    }
    return true;
}

static bool class_of_argument(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    const ckpt__pickle_node *of = ckpt__torch_item(o->args, 0);
    if (ckpt__torch_module(of))
        of = ckpt__torch_module(of);
    if (of && (of->kind == CKPT__P_GLOBAL || is_getattr(of)))
        v->class_name = ckpt__torch_path(t, of);
    return v->class_name.data != NULL;
}

/* copyreg._reconstructor(class, base, state of the base): how protocols 0 and 1 make objects */
static bool on_reconstructor(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    const ckpt__pickle_node *state = ckpt__torch_item(o->args, 2);
    if (!class_of_argument(t, o, v))
        return false;
    v->args = NULL;
    return ckpt__torch_set_items(t, v, list_of(state), &o->items) &&
           ckpt__torch_set_entries(t, v, dict_of(state), &o->entries);
}

static bool on_numpy_dtype(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    (void)o;
    ckpt_str name = ckpt__torch_dtype_class(t, v->origin);
    if (name.data)
        v->class_name = name;
    return true;
}

static bool on_numpy_array(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    ckpt__torch_array a;
    bool scalar;
    bool known = ckpt__torch_array_of(t, v->origin, &a, &scalar);
    v->class_name = ckpt__s(scalar ? "numpy.generic" : "numpy.ndarray");
    if (!scalar && !class_of_argument(t, o, v))
        return false;
    if (!known)
        return !ckpt__arena_over_limit(t->arena);
    ckpt_array *array = ckpt__arena_alloc(t->arena, sizeof *array);
    if (!array)
        return false;
    *array = (ckpt_array){a.dtype, a.shape, a.ndim, a.fortran};
    v->array = array;
    v->text = a.bytes;
    v->args = v->state = NULL;
    if (a.object)
        return ckpt__torch_set_items(t, v, list_of(a.objects), &no_list);
    if (!scalar)
        v->kind = CKPT_V_ARRAY;
    else
        v->class_name = ckpt__torch_scalar_class(t, a.kind, a.itemsize);
    return true;
}

/* A storage in a pickle of its own; what else the bytes may be stays opaque. */
static bool on_load_from_bytes(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    size_t number;
    (void)o;
    if (ckpt__torch_storage_of(t, v->origin, &number, NULL) == CKPT_OK)
        v->class_name = ckpt__s("torch.storage.TypedStorage");
    return !ckpt__arena_over_limit(t->arena);
}

static bool on_numpy_random(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    (void)t;
    (void)o;
    bool state = ckpt__str_is(v->class_name, "numpy.random._pickle.__randomstate_ctor");
    v->class_name = ckpt__s(state ? "numpy.random.mtrand.RandomState" : "numpy.random._generator.Generator");
    return true;
}

static const struct {
    const char *name;
    object_handler run;
} handlers[] = {
    {"collections.OrderedDict", on_ordered_dict},
    {"_codecs.encode", on_encode},
    {"builtins.bytes", on_encode},
    {"builtins.bytearray", on_bytearray},
    {"builtins.set", on_sequence},
    {"builtins.frozenset", on_sequence},
    {"torch.Size", on_sequence},
    {"collections.deque", on_sequence},
    {"collections.Counter", on_counter},
    {"torch.serialization._get_layout", on_layout},
    {"copyreg._reconstructor", on_reconstructor},
    {"array._array_reconstructor", class_of_argument},
    {"numpy.ma.core._mareconstruct", class_of_argument},
    {"torch.storage._load_from_bytes", on_load_from_bytes},
    {"numpy.dtype", on_numpy_dtype},
    {"numpy.core.multiarray._reconstruct", on_numpy_array},
    {"numpy._core.multiarray._reconstruct", on_numpy_array},
    {"numpy.core.multiarray.scalar", on_numpy_array},
    {"numpy._core.multiarray.scalar", on_numpy_array},
    {"numpy.core.numeric._frombuffer", on_numpy_array},
    {"numpy._core.numeric._frombuffer", on_numpy_array},
    {"numpy.random._pickle.__generator_ctor", on_numpy_random},
    {"numpy.random._pickle.__randomstate_ctor", on_numpy_random},
    {"numpy.random._pickle.__bit_generator_ctor", class_of_argument},
    {"numpy.random.bit_generator.__pyx_unpickle_SeedSequence", class_of_argument},
    {"torch.jit._pickle.restore_type_tag", ckpt__torch_typed},
    {"torch.jit._pickle.build_intlist", ckpt__torch_typed},
    {"torch.jit._pickle.build_tensorlist", ckpt__torch_typed},
    {"torch.jit._pickle.build_doublelist", ckpt__torch_typed},
    {"torch.jit._pickle.build_boollist", ckpt__torch_typed},
};

/* NEWOBJ of a class with arguments is how tuples' subclasses (namedtuples) are written: class and items. */
static bool on_newobj(ckpt__torch *t, const ckpt__pickle_object *o, ckpt_value *v)
{
    if (ckpt__torch_length(o->args) == 0)
        return true;
    v->args = NULL;
    return ckpt__torch_set_items(t, v, list_of(o->args), &o->items);
}

static bool fill_object(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_value *v)
{
    const ckpt__pickle_object *o = node->u.object;
    v->kind = CKPT_V_OBJECT;
    v->class_name = ckpt__torch_callable(t, node);
    if (ckpt__torch_is_script(node))
        return v->class_name.data && ckpt__torch_script_object(t, o, v);
    v->args = ckpt__torch_value_of(t, o->args);
    if (v->class_name.data &&
        ((o->state && !ckpt__torch_check_build(t, v->class_name, o->state)) || !ckpt__torch_check_callable(t, o)))
        return false;
    if (o->state)
        v->state = ckpt__torch_value_of(t, o->state);
    if (!v->class_name.data || !v->args || (o->state && !v->state) ||
        !ckpt__torch_set_items(t, v, &o->items, &no_list) ||
        !ckpt__torch_set_entries(t, v, &o->entries, dict_of(o->kwargs)))
        return false;
    bool known = o->callable->kind == CKPT__P_GLOBAL && o->call == CKPT__P_REDUCE;
    for (size_t i = 0; known && i < sizeof handlers / sizeof handlers[0]; i++)
        if (ckpt__str_is(v->class_name, handlers[i].name))
            return handlers[i].run(t, o, v);
    if (o->call == CKPT__P_NEWOBJ && ckpt__str_is(v->class_name, "collections.OrderedDict"))
        return on_ordered_dict(t, o, v);
    return o->call == CKPT__P_NEWOBJ ? on_newobj(t, o, v) : true;
}

/* ---- the rest */

static ckpt_status fill_tensor(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_value *v, ckpt_error *err)
{
    ckpt__torch_tensor *tensor;
    v->kind = CKPT_V_TENSOR;
    ckpt_status status = ckpt__torch_tensor_of(t, node, &tensor, err);
    if (status < 0)
        return status;
    v->class_name = tensor->spec->class_name;
    const ckpt__pickle_node *state = tensor->spec->state ? tensor->spec->state : node->u.object->state;
    if (state && state->kind != CKPT__P_NONE && !(v->state = ckpt__torch_value_of(t, state)))
        return ckpt__torch_no_memory(t, err);
    if (tensor->spec->quantizer_args && !(v->args = ckpt__torch_value_of(t, tensor->spec->quantizer_args)))
        return ckpt__torch_no_memory(t, err);
    if (!ckpt__arena_grow(t->arena, &t->tensors, &t->tensor_capacity, t->tensor_count + 1, sizeof *t->tensors))
        return ckpt__torch_no_memory(t, err);
    t->tensors[t->tensor_count++] = tensor;
    return CKPT_OK;
}

/* A storage by itself, of which torch gives back a TypedStorage, whatever class its id names; or the class of a module.
 * In a pickle that torch.save did not write it may be anything. */
static ckpt_status fill_persistent(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_value *v, ckpt_error *err)
{
    size_t number;
    const ckpt__pickle_node *module = ckpt__torch_module(node);
    if (module) {
        v->kind = CKPT_V_CLASS;
        v->class_name = ckpt__torch_class(t, module);
        return v->class_name.data ? CKPT_OK : ckpt__torch_no_memory(t, err);
    }
    bool outside = !t->zip && !t->legacy;
    ckpt_status status = outside ? CKPT_OK : ckpt__torch_storage_of(t, node, &number, err);
    if (status < 0)
        return status;
    if (!outside)
        t->index->storages[number].closed = true;
    v->kind = CKPT_V_OBJECT;
    v->class_name = ckpt__s(outside ? "(persistent id)" : "torch.storage.TypedStorage");
    v->args = ckpt__torch_value_of(t, node->u.id);
    return v->args ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

static bool fill_global(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_value *v)
{
    v->class_name = ckpt__torch_class(t, node);
    bool singleton =
        ckpt__str_is(v->class_name, "builtins.ellipsis") || ckpt__str_is(v->class_name, "builtins.NotImplementedType");
    v->kind = singleton ? CKPT_V_OBJECT : CKPT_V_CLASS;
    return v->class_name.data != NULL;
}

static bool fill_plain(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_value *v)
{
    if (node->kind == CKPT__P_LIST || node->kind == CKPT__P_TUPLE) {
        v->kind = node->kind == CKPT__P_LIST ? CKPT_V_LIST : CKPT_V_TUPLE;
        return ckpt__torch_set_items(t, v, &node->u.list, &no_list);
    }
    if (node->kind == CKPT__P_SET || node->kind == CKPT__P_FROZENSET) {
        v->kind = CKPT_V_OBJECT;
        v->class_name = ckpt__s(node->kind == CKPT__P_SET ? "builtins.set" : "builtins.frozenset");
        return ckpt__torch_set_items(t, v, &node->u.list, &no_list);
    }
    if (node->kind == CKPT__P_DICT) {
        v->kind = CKPT_V_DICT;
        return ckpt__torch_set_entries(t, v, &node->u.list, &no_list);
    }
    return node->kind == CKPT__P_GLOBAL ? fill_global(t, node, v) : fill_object(t, node, v);
}

ckpt_status ckpt__torch_values(ckpt__torch *t, ckpt_error *err)
{
    t->index->pickle_protocol = t->pickle.protocol > 1 ? (int)t->pickle.protocol : 1;
    t->index->root = ckpt__torch_value_of(t, t->pickle.root);
    ckpt_status status = t->index->root ? CKPT_OK : ckpt__torch_no_memory(t, err);
    for (size_t done = 0; status == CKPT_OK && done < t->work_count;) { /* in the file's order, as its records lie */
        const ckpt__pickle_node *node = t->work[done++];
        ckpt_value *v = node->user;
        if (done == t->work_count)
            done = t->work_count = 0;
        if (node->kind == CKPT__P_PERSISTENT)
            status = fill_persistent(t, node, v, err);
        else if (ckpt__torch_is_tensor(node))
            status = fill_tensor(t, node, v, err);
        else if (node->kind == CKPT__P_OBJECT && ckpt__torch_is_tensor_class(node->u.object->callable) &&
                 !ckpt__torch_no_parameter(t, node))
            status = ckpt__torch_fail_class(t, node, err);
        else if (!fill_plain(t, node, v))
            status = ckpt__torch_no_memory(t, err);
    }
    return status;
}
