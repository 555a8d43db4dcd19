/* format/torch/write_tensor.c - tensors: the rebuild call that they were read from, with the storage, geometry and device
 * that the target's index has; or a new call where there is none. Which arguments mean what: torch/_utils.py. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>

typedef ckpt__torch_writer writer;

enum { MAX_NESTING = 8 }; /* of calls: the reader's limit */

/* The tensor that is written, and the call of it that is being copied. */
typedef struct tensor {
    writer *w;
    size_t number;         /* in the index; SIZE_MAX: it is not listed */
    const ckpt__tensor *t; /* NULL likewise */
    bool own_place;        /* the data of a tensor of another device: its storage stays where it was saved */
    ckpt_str inner;        /* one that is not listed: the device of the first listed one in it; data NULL: none */
    ckpt_status status;
} tensor;

static ckpt__out *failed(tensor *x)
{
    if (x->status == CKPT_OK)
        x->status = ckpt__torch_put_failed(x->w);
    return NULL;
}

/* ---- small nodes */

static ckpt__out *put_text(writer *w, ckpt_str text)
{
    return ckpt__pickle_make_text(w->arena, CKPT__P_STR, text);
}

static ckpt__out *put_ints(writer *w, const int64_t *values, uint32_t n)
{
    ckpt__out *tuple = ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, n);
    for (uint32_t i = 0; tuple && i < n; i++)
        if (!(tuple->u.list.items[i] = ckpt__torch_put_int(w, values[i])))
            return NULL;
    return tuple;
}

/* OrderedDict(): hooks, of which files have none. */
static ckpt__out *put_hooks(writer *w)
{
    return ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, ckpt__torch_put_global(w, "collections", "OrderedDict"),
                                  ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, 0));
}

static ckpt__out *put_call(writer *w, ckpt__out *callable, ckpt__out *const *args, size_t n)
{
    return ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, callable, ckpt__pickle_make_tuple(w->arena, n, args));
}

static ckpt__out *put_dtype(writer *w, ckpt_dtype dtype)
{
    return ckpt__torch_put_global(w, "torch", ckpt_dtype_name(dtype));
}

static bool takes_gradients(ckpt_dtype dtype)
{
    return ckpt_dtype_is_float(dtype) || ckpt__dtype_row_of(dtype)->is_complex;
}

/* ---- storages */

static const char *storage_class(ckpt_dtype dtype)
{
    static const struct {
        ckpt_dtype dtype;
        const char *name;
    } classes[] = {
        {CKPT_F32, "FloatStorage"},      {CKPT_F64, "DoubleStorage"},       {CKPT_F16, "HalfStorage"},
        {CKPT_BF16, "BFloat16Storage"},  {CKPT_I64, "LongStorage"},         {CKPT_I32, "IntStorage"},
        {CKPT_I16, "ShortStorage"},      {CKPT_I8, "CharStorage"},          {CKPT_U8, "ByteStorage"},
        {CKPT_BOOL, "BoolStorage"},      {CKPT_C64, "ComplexFloatStorage"}, {CKPT_C128, "ComplexDoubleStorage"},
        {CKPT_QI8, "QInt8Storage"},      {CKPT_QU8, "QUInt8Storage"},       {CKPT_QI32, "QInt32Storage"},
        {CKPT_QU4X2, "QUInt4x2Storage"}, {CKPT_QU2X4, "QUInt2x4Storage"},
    };
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].dtype == dtype)
            return classes[i].name;
    return NULL;
}

/* An element of packed dtypes (two or four values) is a byte of storage. */
static uint64_t item_size(ckpt_dtype dtype)
{
    size_t size = ckpt_dtype_size(dtype);
    return size ? size : 1;
}

/* A storage is of the class of its one dtype, or else it is bytes. */
static bool is_typed(const writer *w, size_t storage)
{
    const ckpt__torch_spot *s = ckpt__torch_spot_of(w, storage);
    return !s->mixed && storage_class(s->dtype) &&
           w->p->index->storages[storage].extent.size % item_size(s->dtype) == 0;
}

/* The strings of the id that was read are the same objects still: so a pickle comes out as it went in. */
static ckpt__out *same_or_new(writer *w, const ckpt__pickle_node *from, size_t i, ckpt_str text)
{
    const ckpt__pickle_node *n = from && from->kind == CKPT__P_PERSISTENT ? ckpt__torch_item(from->u.id, i) : NULL;
    return n && n->kind == CKPT__P_STR && ckpt__str_equal(n->u.text, text) ? ckpt__torch_put_node(w, n)
                                                                           : put_text(w, text);
}

/* In what is kept of a torch file a key is the number of the tensor, or that of one which is all of the storage. */
static ckpt__out *put_kept_key(writer *w, size_t storage, size_t number)
{
    const ckpt__torch_pickling *p = w->p;
    size_t n = number != SIZE_MAX ? number : ckpt__torch_spot_of(w, storage)->whole - 1;
    ckpt__out **known = number != SIZE_MAX ? &w->keys[number] : &ckpt__torch_spot_of(w, storage)->key_node;
    char text[24];
    if (*known)
        return *known;
    w->p->missing |= p->record_of && !p->record_of[n];
    int size = snprintf(text, sizeof text, "%s%zu", number != SIZE_MAX ? "" : "s",
                        p->record_of && p->record_of[n] ? p->record_of[n] - 1 : n);
    *known = ckpt__pickle_make_text(w->lasting, CKPT__P_STR, ckpt__arena_str(w->lasting, text, (size_t)size));
    if (*known)
        (*known)->boolean = false; /* no other string is the same object */
    return *known;
}

/* One key a storage, whose text comes when the order of the storages is known (write_values.c). */
static ckpt__out *put_key(writer *w, size_t storage, size_t number)
{
    ckpt__torch_spot *s = ckpt__torch_spot_of(w, storage);
    if (w->p->kept)
        return put_kept_key(w, storage, number);
    if (!s->key_node && (s->key_node = ckpt__pickle_make_later(w->lasting, NULL)) != NULL)
        ckpt__pickle_place(s->key_node, storage + 1);
    return s->key_node;
}

/* ('storage', class, key, location, numel) */
static ckpt__out *put_id(writer *w, const ckpt__pickle_node *from, size_t storage, ckpt_str location, size_t number)
{
    const ckpt__storage *s = &w->p->index->storages[storage];
    bool typed = is_typed(w, storage);
    ckpt_dtype dtype = ckpt__torch_spot_of(w, storage)->dtype;
    uint64_t numel = typed ? s->extent.size / item_size(dtype) : s->extent.size;
    ckpt__out *items[] = {same_or_new(w, from, 0, ckpt__s("storage")),
                          typed ? ckpt__torch_put_global(w, "torch", storage_class(dtype))
                                : ckpt__torch_put_global(w, "torch.storage", "UntypedStorage"),
                          put_key(w, storage, number),
                          same_or_new(w, from, 3, location.data ? location : ckpt__s("cpu")),
                          ckpt__torch_put_int(w, (int64_t)numel)};
    return ckpt__pickle_make_persistent(w->arena, ckpt__pickle_make_tuple(w->arena, 5, items));
}

/* The location that a persistent id has; data NULL: none. */
static ckpt_str location_of(const ckpt__pickle_node *n)
{
    const ckpt__pickle_node *l = n->kind == CKPT__P_PERSISTENT ? ckpt__torch_item(n->u.id, 3) : NULL;
    bool text = l && (l->kind == CKPT__P_STR || l->kind == CKPT__P_BYTES);
    return text ? l->u.text : (ckpt_str){NULL, 0};
}

ckpt_status ckpt__torch_put_storage(writer *w, const ckpt__pickle_node *n, size_t storage, ckpt__out *to)
{
    ckpt__torch_spot *s = ckpt__torch_spot_of(w, storage);
    const ckpt__pickle_node *class = n->kind == CKPT__P_PERSISTENT ? ckpt__torch_item(n->u.id, 1) : NULL;
    bool untyped = false;
    if (w->p->kept && !s->whole) {
        w->left_out += !w->writing;
        to->kind = CKPT__P_NONE;
        return CKPT_OK;
    }
    if (s->dtype == CKPT_DTYPE_NONE && !class && storage < w->p->source->storage_count)
        s->dtype = w->p->source->storages[storage].dtype; /* a file in bytes: its class is in there */
    if (s->dtype == CKPT_DTYPE_NONE && (!ckpt__torch_storage_dtype(class, &s->dtype, &untyped) || untyped)) {
        s->dtype = CKPT_U8;
        s->mixed = untyped; /* the class stays UntypedStorage */
    }
    ckpt__out *made = put_id(w, n, storage, w->p->index->storages[storage].device, SIZE_MAX);
    if (!made)
        return ckpt__torch_put_failed(w);
    *to = *made;
    return CKPT_OK;
}

/* ---- dense tensors */

/* storage, offset, size, stride: of the target's index; from: the node of the storage, or NULL. */
static bool put_view(tensor *x, const ckpt__pickle_node *from, ckpt__out *items[4], ckpt_str location)
{
    writer *w = x->w;
    const ckpt_tensor_info *p = &x->t->info;
    uint32_t n = p->ndim;
    items[0] = put_id(w, from, x->t->storage, location, x->number);
    items[1] = ckpt__torch_put_int(w, p->offset);
    items[2] = put_ints(w, p->shape, n);
    items[3] = put_ints(w, p->strides, n);
    return items[0] && items[1] && items[2] && items[3];
}

static bool has_view(const tensor *x)
{
    return x->t && x->t->whole;
}

/* The lazy bits that the target still has: what was resolved on the way has none. */
static ckpt__out *put_bits(writer *w, const ckpt_tensor_info *info)
{
    ckpt__out *dict = ckpt__pickle_make_list(w->arena, CKPT__P_DICT, (info->conj ? 2u : 0) + (info->neg ? 2u : 0));
    size_t n = 0;
    for (int i = 0; dict && i < 2; i++)
        if (i ? info->neg : info->conj) {
            dict->u.list.items[n++] = put_text(w, ckpt__s(i ? "neg" : "conj"));
            dict->u.list.items[n++] = ckpt__torch_put_bool(w, true);
        }
    for (size_t i = 0; dict && i < n; i++)
        if (!dict->u.list.items[i])
            return NULL;
    return dict;
}

/* `_rebuild_tensor_v2`, or `_v3` where the storage cannot say the dtype. grad and hooks NULL: False, none. */
static bool put_dense(tensor *x, const ckpt__pickle_node *from, ckpt_str location, ckpt__out *grad, ckpt__out *hooks,
                      ckpt__out **callable, ckpt__out **args)
{
    writer *w = x->w;
    const ckpt_tensor_info *info = &x->t->info;
    bool typed = is_typed(w, x->t->storage);
    ckpt__out *items[8];
    size_t n = 6;
    if (!put_view(x, from, items, location))
        return false;
    items[4] = grad && takes_gradients(info->dtype) ? grad : ckpt__torch_put_bool(w, false);
    items[5] = hooks ? hooks : put_hooks(w);
    if (!typed)
        items[n++] = put_dtype(w, info->dtype);
    if (info->conj || info->neg)
        items[n++] = put_bits(w, info);
    *callable = ckpt__torch_put_global(w, "torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    *args = ckpt__pickle_make_tuple(w->arena, n, items);
    return *callable && *args;
}

/* ---- devices */

/* "cuda:1" as it stands in an argument: a str, or torch.device('cuda', 1), or torch.device('cuda:1'). */
static bool same_device(const ckpt__pickle_node *arg, ckpt_str tag)
{
    char text[64];
    if (arg->kind == CKPT__P_STR)
        return ckpt__str_equal(arg->u.text, tag);
    if (arg->kind != CKPT__P_OBJECT)
        return true;
    const ckpt__pickle_node *type = ckpt__torch_item(arg->u.object->args, 0),
                            *index = ckpt__torch_item(arg->u.object->args, 1);
    if (!type || type->kind != CKPT__P_STR || type->u.text.size > 32)
        return true; /* nothing that is understood: it stays */
    if (!index || index->kind != CKPT__P_INT)
        return ckpt__str_equal(type->u.text, tag);
    snprintf(text, sizeof text, "%s:%lld", type->u.text.data, (long long)index->u.integer);
    return ckpt__str_is(tag, text);
}

static ckpt__out *put_device_object(writer *w, ckpt_str tag)
{
    ckpt__out *args[2];
    size_t colon = tag.size, n = 1;
    int64_t index;
    while (colon > 0 && tag.data[colon - 1] != ':')
        colon--;
    bool numbered = colon > 1 && ckpt__parse_i64(tag.data + colon, tag.size - colon, &index);
    args[0] = put_text(w, numbered ? ckpt__arena_str(w->lasting, tag.data, colon - 1) : tag);
    if (numbered)
        args[n++] = ckpt__torch_put_int(w, index);
    return put_call(w, ckpt__torch_put_global(w, "torch", "device"), args, n);
}

static ckpt__out *put_device(tensor *x, const ckpt__pickle_node *arg)
{
    ckpt_str tag = x->t ? x->t->info.device : x->inner;
    if (!tag.data || same_device(arg, tag))
        return ckpt__torch_put_node(x->w, arg);
    return arg->kind == CKPT__P_STR ? put_text(x->w, tag) : put_device_object(x->w, tag);
}

/* ---- calls */

static bool put_parts(tensor *x, const ckpt__pickle_node *callable, const ckpt__pickle_node *args, int depth,
                      ckpt__out **out_callable, ckpt__out **out_args);

static bool copy_args(tensor *x, const ckpt__pickle_node *args, ckpt__out *out)
{
    for (size_t i = 0; i < out->u.list.count; i++)
        if (!out->u.list.items[i] && !(out->u.list.items[i] = ckpt__torch_put_node(x->w, ckpt__torch_item(args, i))))
            return false;
    return true;
}

static bool put_state(writer *w, const ckpt__pickle_object *from, ckpt__pickle_object *to)
{
    to->state = from->state ? ckpt__torch_put_node(w, from->state) : NULL;
    to->setter = from->setter ? ckpt__torch_put_callable(w, from->setter) : NULL;
    return (!from->state || to->state) && (!from->setter || to->setter);
}

/* A tensor inside a call: one that has a number of its own goes by that. */
static ckpt__out *put_inner(tensor *x, const ckpt__pickle_node *n, int depth)
{
    const ckpt_value *v = ckpt__torch_user(x->w, n);
    ckpt__out *callable, *args;
    if ((v && v->kind == CKPT_V_TENSOR && v->origin == n) || !ckpt__torch_is_tensor(n))
        return ckpt__torch_put_node(x->w, n);
    if (!put_parts(x, n->u.object->callable, n->u.object->args, depth + 1, &callable, &args))
        return failed(x);
    ckpt__out *out = ckpt__pickle_make_call(x->w->arena, CKPT__P_REDUCE, callable, args);
    return out && put_state(x->w, n->u.object, out->u.object) ? out : failed(x);
}

typedef enum call_shape {
    DENSE,
    DENSE_OLD,
    QUANTIZED,
    PARAMETER,
    TYPED,
    DEVICE_TENSOR,
    DEVICE_ARRAY,
    WRAPPER,
    OTHER
} call_shape;

static call_shape shape_of(const ckpt__pickle_node *callable)
{
    static const struct {
        const char *name;
        call_shape shape;
    } names[] = {
        {"_rebuild_tensor_v2", DENSE},
        {"_rebuild_tensor_v3", DENSE},
        {"_rebuild_tensor", DENSE_OLD},
        {"_rebuild_qtensor", QUANTIZED},
        {"_rebuild_parameter", PARAMETER},
        {"_rebuild_parameter_with_state", PARAMETER},
        {"_rebuild_from_type_v2", TYPED},
        {"_rebuild_from_type", TYPED},
        {"_rebuild_device_tensor_from_cpu_tensor", DEVICE_TENSOR},
        {"_rebuild_device_tensor_from_numpy", DEVICE_ARRAY},
        {"_rebuild_xla_tensor", DEVICE_ARRAY},
        {"_rebuild_wrapper_subclass", WRAPPER},
    };
    for (size_t i = 0; callable->kind == CKPT__P_GLOBAL && i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(callable->u.global->name, names[i].name))
            return names[i].shape;
    return OTHER;
}

/* The tags of devices are in the index; the data of a tensor of a device that torch has no storages for lies elsewhere. */
static ckpt_str location(const tensor *x, const ckpt__pickle_node *storage)
{
    if (!x->own_place)
        return x->w->p->index->storages[x->t->storage].device;
    ckpt_str saved = storage ? location_of(storage) : (ckpt_str){NULL, 0};
    return saved.data ? saved : ckpt__s("cpu");
}

static bool put_dense_call(tensor *x, const ckpt__pickle_node *args, ckpt__out **callable, ckpt__out **out)
{
    writer *w = x->w;
    const ckpt__pickle_node *grad = ckpt__torch_item(args, 4), *hooks = ckpt__torch_item(args, 5);
    ckpt__out *out_grad = grad ? ckpt__torch_put_node(w, grad) : NULL;
    ckpt__out *out_hooks = hooks ? ckpt__torch_put_node(w, hooks) : NULL;
    if ((grad && !out_grad) || (hooks && !out_hooks))
        return false;
    return put_dense(x, ckpt__torch_item(args, 0), location(x, ckpt__torch_item(args, 0)), out_grad, out_hooks,
                     callable, out);
}

/* A tensor of a device made of a numpy array: one whose bytes are elsewhere now is made of a tensor. */
static bool put_device_tensor(tensor *x, const ckpt__pickle_node *args, bool array, int depth, ckpt__out **callable,
                              ckpt__out *out)
{
    writer *w = x->w;
    ckpt__out **items = out->u.list.items;
    size_t n = out->u.list.count;
    bool elsewhere = array && has_view(x) && (w->p->kept || x->t->storage >= w->p->source->storage_count);
    x->own_place = true;
    if (elsewhere) {
        ckpt__out *c, *a;
        if (!put_dense(x, NULL, ckpt__s("cpu"), NULL, NULL, &c, &a))
            return false;
        items[0] = ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, c, a);
        *callable = ckpt__torch_put_global(w, "torch._utils", "_rebuild_device_tensor_from_cpu_tensor");
        if (!items[0] || !*callable)
            return false;
    } else if (!array && n > 0 && !(items[0] = put_inner(x, ckpt__torch_item(args, 0), depth)))
        return false;
    if (x->t && n > 1 && !(items[1] = put_dtype(w, x->t->info.dtype)))
        return false;
    return n < 3 || (items[2] = put_device(x, ckpt__torch_item(args, 2))) != NULL;
}

/* The number of the layout of a sparse tensor that libtorch's own pickler wrote; NULL: it is none. */
static const char *script_layout(const ckpt__pickle_node *callable, const ckpt__pickle_node *args)
{
    const ckpt__pickle_node *number = ckpt__torch_item(args, 0);
    bool sparse = ckpt__pickle_is_global(callable, "torch._utils", "_rebuild_sparse_tensor");
    return sparse && number && number->kind == CKPT__P_INT ? ckpt__torch_layout_name(number->u.integer) : NULL;
}

/* (number, size, requires_grad, parts..., hooks) as torch has it in Python: (layout, (parts..., size)). */
static bool put_script_sparse(tensor *x, const char *layout, const ckpt__pickle_node *args, ckpt__out **out)
{
    writer *w = x->w;
    char name[32];
    size_t n = strcmp(layout, "sparse_coo") == 0 ? 2 : 3;
    ckpt__out *data = ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, n + 1);
    for (size_t i = 0; data && i <= n; i++)
        if (!ckpt__torch_item(args, i < n ? 3 + i : 1) ||
            !(data->u.list.items[i] = ckpt__torch_put_node(w, ckpt__torch_item(args, i < n ? 3 + i : 1))))
            return false;
    snprintf(name, sizeof name, "torch.%s", layout);
    ckpt_str text = ckpt__arena_str(w->lasting, name, strlen(name));
    ckpt__out *word[] = {put_text(w, text)},
              *both[] = {put_call(w, ckpt__torch_put_global(w, "torch.serialization", "_get_layout"), word, 1), data};
    *out = ckpt__pickle_make_tuple(w->arena, 2, both);
    return text.data && *out;
}

/* A call, its callable and arguments apart: _rebuild_from_type_v2 has them so. */
static bool put_parts(tensor *x, const ckpt__pickle_node *callable, const ckpt__pickle_node *args, int depth,
                      ckpt__out **out_callable, ckpt__out **out_args)
{
    writer *w = x->w;
    call_shape shape = args->kind == CKPT__P_TUPLE ? shape_of(callable) : OTHER;
    size_t n = ckpt__torch_length(args);
    *out_callable = NULL;
    const char *layout = script_layout(callable, args);
    if (layout)
        return (*out_callable = ckpt__torch_put_callable(w, callable)) != NULL &&
               put_script_sparse(x, layout, args, out_args);
    if ((shape == DENSE || shape == DENSE_OLD) && has_view(x))
        return put_dense_call(x, args, out_callable, out_args);
    if (shape == OTHER || depth >= MAX_NESTING) {
        *out_callable = ckpt__torch_put_callable(w, callable);
        *out_args = ckpt__torch_put_node(w, args);
        return *out_callable && *out_args;
    }
    ckpt__out *out = ckpt__pickle_make_list(w->arena, CKPT__P_TUPLE, n), **items = out ? out->u.list.items : NULL;
    bool ok = out != NULL;
    if (ok && shape == QUANTIZED && has_view(x) && n >= 4)
        ok = put_view(x, ckpt__torch_item(args, 0), items, location(x, ckpt__torch_item(args, 0)));
    if (ok && shape == PARAMETER && n > 0)
        ok = (items[0] = put_inner(x, ckpt__torch_item(args, 0), depth)) != NULL;
    if (ok && shape == TYPED && n > 2)
        ok = put_parts(x, ckpt__torch_item(args, 0), ckpt__torch_item(args, 2), depth + 1, &items[0], &items[2]);
    if (ok && (shape == DEVICE_TENSOR || shape == DEVICE_ARRAY))
        ok = put_device_tensor(x, args, shape == DEVICE_ARRAY, depth, out_callable, out);
    if (ok && shape == WRAPPER && n > 6)
        ok = (items[6] = put_device(x, ckpt__torch_item(args, 6))) != NULL;
    if (ok && !*out_callable)
        ok = (*out_callable = ckpt__torch_put_callable(w, callable)) != NULL;
    *out_args = out;
    return ok && copy_args(x, args, out);
}

/* ---- tensors of another program */

static ckpt__out *put_meta(writer *w, const ckpt_tensor_info *info)
{
    const int64_t *strides = info->strides;
    if (!strides) {
        int64_t *own = ckpt__arena_array(w->arena, (size_t)info->ndim + 1, sizeof *own);
        if (!own)
            return NULL;
        ckpt__c_strides(info->shape, info->ndim, own);
        strides = own;
    }
    ckpt__out *args[] = {put_dtype(w, info->dtype), put_ints(w, info->shape, info->ndim),
                         put_ints(w, strides, info->ndim),
                         ckpt__torch_put_bool(w, info->requires_grad && takes_gradients(info->dtype))};
    return put_call(w, ckpt__torch_put_global(w, "torch._utils", "_rebuild_meta_tensor_no_storage"), args, 4);
}

/* Why torch cannot hold it; NULL: it can. */
static const char *unfit(const ckpt__tensor *t)
{
    if (t->info.dtype == CKPT_F4 || t->info.dtype == CKPT_F6_E2M3 || t->info.dtype == CKPT_F6_E3M2)
        return "torch has no such dtype";
    if (t->info.extra->layout.data || t->info.extra->part_count || t->piece_count)
        return "it is not one dense tensor, and nothing tells how torch makes it";
    if (ckpt__has_no_bytes(t) && !t->info.shape)
        return "nothing is known of its shape";
    return NULL;
}

static ckpt__out *put_new(tensor *x)
{
    writer *w = x->w;
    const ckpt_tensor_info *info = &x->t->info;
    bool parameter = ckpt__str_is(info->extra->class_name, "torch.nn.parameter.Parameter");
    ckpt__out *callable, *args, *grad = ckpt__torch_put_bool(w, info->requires_grad && !parameter), *data;
    if (ckpt__has_no_bytes(x->t))
        data = put_meta(w, info);
    else if (!grad || !put_dense(x, NULL, w->p->index->storages[x->t->storage].device, grad, NULL, &callable, &args))
        return NULL;
    else
        data = ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, callable, args);
    if (!data || !parameter)
        return data;
    ckpt__out *wrap[] = {data, ckpt__torch_put_bool(w, info->requires_grad && takes_gradients(info->dtype)),
                         put_hooks(w)};
    return put_call(w, ckpt__torch_put_global(w, "torch._utils", "_rebuild_parameter"), wrap, 3);
}

static ckpt_status put_without_origin(tensor *x, ckpt__out *to)
{
    const char *why = x->t ? unfit(x->t) : "it is not a tensor of this checkpoint";
    if (why) {
        to->kind = CKPT__P_NONE;
        return ckpt__torch_put_lost(x->w, x->number, "%s (%s): None stands in its place", why,
                                    x->t ? ckpt_dtype_name(x->t->info.dtype) : "unknown");
    }
    ckpt__out *made = put_new(x);
    if (!made)
        return ckpt__torch_put_failed(x->w);
    *to = *made;
    return CKPT_OK;
}

/* ---- any tensor */

/* Is every storage of a tensor that is not listed somewhere whole? What is not a storage is looked into. */
static bool storages_kept(const writer *w, const ckpt__pickle_node *n)
{
    const ckpt__pickle_node *stack[64];
    size_t depth = 0, storage;
    stack[depth++] = n;
    while (depth) {
        n = stack[--depth];
        if (ckpt__index_storage_of(w->p->source, n, &storage) > 0) {
            if (!ckpt__torch_spot_of(w, storage)->whole)
                return false;
            continue;
        }
        const ckpt__pickle_node *args = n->kind == CKPT__P_OBJECT ? n->u.object->args : n;
        for (size_t i = 0; i < ckpt__torch_length(args) && depth < sizeof stack / sizeof *stack; i++)
            stack[depth++] = ckpt__torch_item(args, i);
    }
    return true;
}

/* A wrapper is where the tensor in it is. */
static ckpt_str inner_device(const writer *w, const ckpt__pickle_node *n)
{
    const ckpt__pickle_node *stack[64];
    size_t depth = 0, looked = 0;
    stack[depth++] = n;
    while (depth && looked++ < 256) {
        n = stack[--depth];
        const ckpt_value *v = ckpt__torch_user(w, n);
        bool listed = v && v->kind == CKPT_V_TENSOR && v->tensor < w->p->index->tensor_count;
        if (listed && w->p->index->tensors[v->tensor].info.device.data)
            return w->p->index->tensors[v->tensor].info.device;
        const ckpt__pickle_object *o = n->kind == CKPT__P_OBJECT ? n->u.object : NULL;
        const ckpt__pickle_node *parts[] = {o ? o->state : NULL, o ? o->args : n};
        for (size_t k = 0; k < 2; k++) {
            const ckpt__pickle_node *p = parts[k];
            bool list = p && (p->kind == CKPT__P_LIST || p->kind == CKPT__P_TUPLE || p->kind == CKPT__P_DICT);
            if (p && !list && p != n && depth < sizeof stack / sizeof *stack)
                stack[depth++] = p;
            for (size_t i = 0; list && i < p->u.list.count && depth < sizeof stack / sizeof *stack; i++)
                stack[depth++] = p->u.list.items[i];
        }
    }
    return (ckpt_str){NULL, 0};
}

ckpt_status ckpt__torch_put_tensor(writer *w, const ckpt_value *v, ckpt__out *to)
{
    const ckpt__pickle_node *origin = v->origin;
    bool listed = v->kind == CKPT_V_TENSOR && v->tensor < w->p->index->tensor_count;
    tensor x = {.w = w, .number = listed ? v->tensor : SIZE_MAX, .t = listed ? &w->p->index->tensors[v->tensor] : NULL};
    ckpt__out *callable, *args;
    if (!origin || !ckpt__torch_is_tensor(origin))
        return put_without_origin(&x, to);
    if (!listed && w->p->kept && !storages_kept(w, origin)) {
        w->left_out += !w->writing;
        to->kind = CKPT__P_NONE;
        return CKPT_OK;
    }
    const ckpt__pickle_object *o = origin->u.object;
    if (!listed)
        x.inner = inner_device(w, origin);
    if (!put_parts(&x, o->callable, o->args, 0, &callable, &args))
        return x.status < 0 ? x.status : ckpt__torch_put_failed(w);
    ckpt__out *made = ckpt__pickle_make_call(w->arena, CKPT__P_REDUCE, callable, args);
    if (!made || !put_state(w, o, made->u.object))
        return ckpt__torch_put_failed(w);
    *to = *made;
    return CKPT_OK;
}
