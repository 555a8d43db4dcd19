/* format/torch/tensor.c - the functions that torch rebuilds tensors with (torch/_utils.py), read as descriptions.
 * Nothing here knows a tensor's name: whether a view fits its storage is checked when it is listed. */
#include "format/torch/torch.h"

/* Rebuild calls nest (a parameter of a tensor, parts of a sparse one); real ones are three deep. */
enum { MAX_NESTING = 8 };

typedef struct call {
    ckpt__torch *t;
    const ckpt__pickle_node *node; /* for messages */
    const ckpt__pickle_node *args;
    int depth;
    ckpt_error *err;
} call;

typedef ckpt__torch_spec spec;

static ckpt_status parse_call(const call *outer, const ckpt__pickle_node *callable, const ckpt__pickle_node *args,
                              spec *out);
static ckpt_status parse_node(const call *outer, const ckpt__pickle_node *node, spec *out);

static ckpt_status bad(const call *c, const char *what)
{
    return ckpt__torch_fail(c->t, CKPT_E_FORMAT, c->node, c->err, "a tensor %s", what);
}

static const ckpt__pickle_node *arg(const call *c, size_t i)
{
    return ckpt__torch_item(c->args, i);
}

/* ---- arguments */

static ckpt_status get_int(const call *c, size_t i, int64_t *out)
{
    const ckpt__pickle_node *n = arg(c, i);
    if (!n || n->kind != CKPT__P_INT)
        return bad(c, "whose offset is not an int of 64 bits");
    *out = n->u.integer;
    return CKPT_OK;
}

/* True where it is absent or not a bool: files of several ages differ in their last arguments. */
static bool get_bool(const call *c, size_t i)
{
    const ckpt__pickle_node *n = arg(c, i);
    return n && n->kind == CKPT__P_BOOL && n->boolean;
}

/* A tuple, a list, or torch.Size((...)) of ints. */
static ckpt_status get_ints(const call *c, const ckpt__pickle_node *n, const int64_t **out, size_t *count)
{
    if (n && n->kind == CKPT__P_OBJECT && ckpt__pickle_is_global(n->u.object->callable, "torch", "Size"))
        n = ckpt__torch_item(n->u.object->args, 0);
    if (!n || (n->kind != CKPT__P_TUPLE && n->kind != CKPT__P_LIST))
        return bad(c, "whose size or stride is not a tuple");
    *count = ckpt__torch_length(n);
    int64_t *values = ckpt__arena_array(c->t->arena, *count + 1, sizeof *values);
    if (!values)
        return ckpt__torch_no_memory(c->t, c->err);
    for (size_t i = 0; i < *count; i++) {
        const ckpt__pickle_node *item = ckpt__torch_item(n, i);
        if (item->kind != CKPT__P_INT)
            return bad(c, "whose size or stride holds something else than ints of 64 bits");
        values[i] = item->u.integer;
    }
    *out = values;
    return CKPT_OK;
}

static ckpt_status get_geometry(const call *c, size_t size_at, size_t stride_at, spec *out)
{
    size_t sizes, strides;
    ckpt_status status = get_ints(c, arg(c, size_at), &out->shape, &sizes);
    if (status == CKPT_OK)
        status = get_ints(c, arg(c, stride_at), &out->strides, &strides);
    if (status < 0)
        return status;
    if (sizes != strides)
        return ckpt__torch_fail(c->t, CKPT_E_FORMAT, c->node, c->err, "a tensor of %zu sizes and %zu strides", sizes,
                                strides);
    if (sizes > CKPT__NDIM_MAX)
        return ckpt__torch_fail(c->t, CKPT_E_LIMIT, c->node, c->err, "a tensor of %zu dimensions; the limit is %d",
                                sizes, (int)CKPT__NDIM_MAX);
    out->ndim = (uint32_t)sizes;
    return CKPT_OK;
}

static ckpt_status get_dtype(const call *c, size_t i, ckpt_dtype *out)
{
    const ckpt__pickle_node *n = arg(c, i);
    *out = ckpt__torch_dtype(n);
    if (*out != CKPT_DTYPE_NONE)
        return CKPT_OK;
    bool named = n && n->kind == CKPT__P_GLOBAL;
    return ckpt__torch_fail(c->t, CKPT_E_UNSUPPORTED, c->node, c->err, "a tensor of the unknown dtype '%s'",
                            named ? n->u.global->name.data : "not a name");
}

/* The dtype of a storage is that of its class; UntypedStorage has none of its own. */
static ckpt_status get_storage(const call *c, size_t i, spec *out, bool *untyped)
{
    const ckpt__pickle_node *n = arg(c, i);
    ckpt_status status = ckpt__torch_storage_of(c->t, n, &out->storage, c->err);
    if (status < 0)
        return status;
    ckpt__torch_storage_type(c->t, n, &out->dtype, untyped);
    out->has_storage = true;
    out->device = c->t->index->storages[out->storage].device;
    return CKPT_OK;
}

/* torch.device('cuda', 1), torch.device('cuda:1') or a str -> "cuda:1". */
static ckpt_status get_device(const call *c, size_t i, ckpt_str *out)
{
    const ckpt__pickle_node *n = arg(c, i);
    if (n && n->kind == CKPT__P_STR) {
        *out = n->u.text;
        return CKPT_OK;
    }
    if (!n || n->kind != CKPT__P_OBJECT || !ckpt__pickle_is_global(n->u.object->callable, "torch", "device"))
        return bad(c, "whose device is neither a str nor a torch.device");
    const ckpt__pickle_node *type = ckpt__torch_item(n->u.object->args, 0),
                            *index = ckpt__torch_item(n->u.object->args, 1);
    if (!type || type->kind != CKPT__P_STR || (index && index->kind != CKPT__P_INT))
        return bad(c, "whose torch.device is not of a str and an int");
    ckpt__buf b = {0};
    ckpt__buf_add(&b, type->u.text.data, type->u.text.size);
    if (index)
        ckpt__buf_printf(&b, ":%lld", (long long)index->u.integer);
    *out = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(c->t->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return out->data ? CKPT_OK : ckpt__torch_no_memory(c->t, c->err);
}

static ckpt_status add_parts(const call *c, spec *out, const ckpt__torch_part *parts, size_t n)
{
    ckpt__torch_part *copy = ckpt__arena_array(c->t->arena, n, sizeof *copy);
    if (!copy)
        return ckpt__torch_no_memory(c->t, c->err);
    memcpy(copy, parts, n * sizeof *copy);
    out->parts = copy;
    out->part_count = n;
    return CKPT_OK;
}

/* A part is described once however many tensors share it: parts of parts would double with every level otherwise. */
static ckpt_status part_of(const call *c, ckpt_str name, const ckpt__pickle_node *node, ckpt__torch_part *out)
{
    if (!ckpt__torch_is_tensor(node))
        return bad(c, "with a part that is not a tensor");
    ckpt__torch_tensor *v = (ckpt__torch_tensor *)(void *)ckpt__torch_value_of(c->t, node);
    if (!v)
        return ckpt__torch_no_memory(c->t, c->err);
    if (!v->spec) {
        if (!c->t->specs)
            c->t->specs = ckpt__arena_new(0);
        bool room = c->t->specs && ckpt__arena_charge(c->t->arena, sizeof(spec));
        spec *s = room ? ckpt__arena_alloc(c->t->specs, sizeof *s) : NULL;
        if (!s)
            return ckpt__torch_no_memory(c->t, c->err);
        ckpt_status status = parse_node(c, node, s);
        if (status < 0)
            return status;
        v->spec = s;
    }
    *out = (ckpt__torch_part){name, v};
    return CKPT_OK;
}

/* ---- dense */

/* storage, offset, size, stride [, requires_grad, hooks [, metadata]] */
static ckpt_status rebuild_tensor(const call *c, spec *out)
{
    bool untyped;
    ckpt_status status = get_storage(c, 0, out, &untyped);
    if (status == CKPT_OK)
        status = get_int(c, 1, &out->offset);
    return status == CKPT_OK ? get_geometry(c, 2, 3, out) : status;
}

static ckpt_status rebuild_tensor_v2(const call *c, spec *out)
{
    ckpt_status status = rebuild_tensor(c, out);
    out->requires_grad = get_bool(c, 4);
    return status == CKPT_OK && arg(c, 6) ? ckpt__torch_lazy_bits(c->t, c->node, arg(c, 6), out, c->err) : status;
}

/* Its storage is untyped, its dtype the seventh argument. */
static ckpt_status rebuild_tensor_v3(const call *c, spec *out)
{
    ckpt_status status = rebuild_tensor(c, out);
    if (status == CKPT_OK)
        status = get_dtype(c, 6, &out->dtype);
    out->requires_grad = get_bool(c, 4);
    return status == CKPT_OK && arg(c, 7) ? ckpt__torch_lazy_bits(c->t, c->node, arg(c, 7), out, c->err) : status;
}

/* dtype, size, stride, requires_grad */
static ckpt_status rebuild_meta(const call *c, spec *out)
{
    ckpt_status status = get_dtype(c, 0, &out->dtype);
    if (status == CKPT_OK)
        status = get_geometry(c, 1, 2, out);
    out->requires_grad = get_bool(c, 3);
    out->device = ckpt__s("meta");
    return status;
}

/* storage, offset, size, stride, (scheme, ...), requires_grad, hooks */
static ckpt_status rebuild_qtensor(const call *c, spec *out)
{
    ckpt_status status = rebuild_tensor(c, out);
    if (status < 0)
        return status;
    out->requires_grad = get_bool(c, 5);
    const ckpt__pickle_node *q = arg(c, 4), *scheme = ckpt__torch_item(q, 0);
    if (!scheme || scheme->kind != CKPT__P_GLOBAL || !ckpt__str_is(scheme->u.global->module, "torch"))
        return bad(c, "without a quantization scheme");
    out->quantizer = scheme->u.global->name;
    out->quantizer_args = q;
    if (!ckpt__str_is(out->quantizer, "per_channel_affine"))
        return CKPT_OK;
    ckpt__torch_part parts[2];
    status = part_of(c, ckpt__s("scales"), ckpt__torch_item(q, 1), &parts[0]);
    if (status == CKPT_OK)
        status = part_of(c, ckpt__s("zero_points"), ckpt__torch_item(q, 2), &parts[1]);
    if (status < 0)
        return status;
    if (ckpt_dtype_is_float(parts[1].tensor->spec->dtype)) /* 4-bit weights: pickled by the other scheme's name */
        out->quantizer = ckpt__s("per_channel_affine_float_qparams");
    return add_parts(c, out, parts, 2);
}

/* ---- wrappers of tensors */

static const ckpt_str parameter_class = {"torch.nn.parameter.Parameter", sizeof "torch.nn.parameter.Parameter" - 1};

/* tensor, requires_grad, hooks [, state] */
static ckpt_status rebuild_parameter(const call *c, spec *out)
{
    ckpt_status status = parse_node(c, arg(c, 0), out);
    out->requires_grad = get_bool(c, 1);
    out->class_name = parameter_class;
    out->state = arg(c, 3);
    return status == CKPT_OK ? ckpt__torch_check_state(c->t, c->node, out->state, c->err) : status;
}

/* tensor [, requires_grad]: how parameters, and what a Variable was, were pickled before torch 1.0 */
static ckpt_status rebuild_old_variable(const call *c, spec *out)
{
    ckpt_status status = parse_node(c, arg(c, 0), out);
    out->requires_grad = get_bool(c, 1);
    return status;
}

static ckpt_status rebuild_old_parameter(const call *c, spec *out)
{
    ckpt_status status = parse_node(c, arg(c, 0), out);
    out->requires_grad = !arg(c, 1) || get_bool(c, 1);
    out->class_name = parameter_class;
    return status;
}

/* data, dtype, device, requires_grad */
static ckpt_status rebuild_on_device(const call *c, spec *out)
{
    ckpt_status status = parse_node(c, arg(c, 0), out);
    if (status == CKPT_OK)
        status = get_device(c, 2, &out->device);
    out->requires_grad = get_bool(c, 3);
    return status;
}

/* The same, the data being a numpy array: its bytes are in the pickle. */
static ckpt_status rebuild_from_numpy(const call *c, spec *out)
{
    static const struct {
        const char *numpy;
        ckpt_dtype dtype;
    } dtypes[] = {
        {"f4", CKPT_F32}, {"f8", CKPT_F64}, {"f2", CKPT_F16},  {"i8", CKPT_I64}, {"i4", CKPT_I32},   {"i2", CKPT_I16},
        {"i1", CKPT_I8},  {"u1", CKPT_U8},  {"b1", CKPT_BOOL}, {"c8", CKPT_C64}, {"c16", CKPT_C128},
    };
    ckpt__torch_array a;
    bool scalar;
    if (!arg(c, 0) || !ckpt__torch_array_of(c->t, arg(c, 0), &a, &scalar) || a.object || a.fortran)
        return bad(c, "that is made of something else than a numpy array in C order");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(a.dtype.data + 1, dtypes[i].numpy) == 0)
            out->dtype = dtypes[i].dtype;
    if (out->dtype == CKPT_DTYPE_NONE)
        return bad(c, "that is made of a numpy array of another dtype");
    ckpt__storage *s = ckpt__index_add_storage(c->t->index);
    int64_t *strides = ckpt__arena_array(c->t->arena, (size_t)a.ndim + 1, sizeof *strides);
    if (!s || !strides)
        return ckpt__torch_no_memory(c->t, c->err);
    out->ndim = a.ndim;
    out->shape = a.shape;
    ckpt__c_strides(a.shape, a.ndim, strides);
    out->strides = strides;
    ckpt_status status = get_device(c, 2, &out->device);
    out->requires_grad = get_bool(c, 3);
    out->has_storage = true;
    out->storage = c->t->index->storage_count - 1;
    s->device = out->device;
    s->name = ckpt__s("an array in data.pkl");
    s->unit = ckpt__dtype_row_of(out->dtype)->unit;
    s->extent = (ckpt__extent){.memory = a.bytes.data, .length = a.bytes.size, .size = a.bytes.size};
    return status;
}

/* func, type, args, state: a tensor with attributes, or of a subclass */
static ckpt_status rebuild_from_type(const call *c, spec *out)
{
    const ckpt__pickle_node *type = arg(c, 1), *state = arg(c, 3);
    if (!type)
        return bad(c, "of no type");
    if (ckpt__torch_dtype(type) != CKPT_DTYPE_NONE &&
        !ckpt__torch_refuses(c->t, "TypeError: cls must be a type (got torch.dtype)"))
        return ckpt__torch_no_memory(c->t, c->err);
    out->state = state; /* the wrapper of a subclass finds its parts there */
    ckpt_status status = parse_call(c, arg(c, 0), arg(c, 2), out);
    if (status == CKPT_OK &&
        ckpt__torch_is_tensor_class(type)) /* what a subclass does with its attributes is its own */
        status = ckpt__torch_check_state(c->t, c->node, state, c->err);
    if (status < 0)
        return status;
    out->state = state;
    if (!ckpt__pickle_is_global(type, "torch", "Tensor") && !ckpt__pickle_is_global(type, "torch._tensor", "Tensor")) {
        out->class_name = ckpt__torch_path(c->t, type);
        if (!out->class_name.data)
            return ckpt__torch_no_memory(c->t, c->err);
    }
    if (out->shell && !out->shell_class.data)
        out->shell_class = out->class_name;
    const ckpt__pickle_node *is_buffer = ckpt__pickle_get(state, "_is_buffer");
    out->is_buffer = is_buffer && is_buffer->kind == CKPT__P_BOOL && is_buffer->boolean;
    return CKPT_OK;
}

/* ---- not dense */

/* layout: torch.serialization._get_layout('torch.sparse_coo') */
static ckpt_status get_layout(const call *c, size_t i, ckpt_str *out)
{
    const ckpt__pickle_node *n = arg(c, i);
    bool called = n && n->kind == CKPT__P_OBJECT &&
                  ckpt__pickle_is_global(n->u.object->callable, "torch.serialization", "_get_layout");
    const ckpt__pickle_node *name = called ? ckpt__torch_item(n->u.object->args, 0) : NULL;
    if (!name || name->kind != CKPT__P_STR || name->u.text.size <= 6 || memcmp(name->u.text.data, "torch.", 6) != 0)
        return bad(c, "whose layout is not told");
    out->data = name->u.text.data + 6;
    out->size = name->u.text.size - 6;
    return CKPT_OK;
}

static void like_values(spec *out, const spec *values)
{
    out->dtype = values->dtype;
    out->device = values->device;
    out->requires_grad = values->requires_grad;
    out->strides = NULL;
}

static const char *const coo[] = {"indices", "values"}, *const compressed[] = {"compressed", "plain", "values"};

const char *ckpt__torch_layout_name(int64_t number)
{
    static const char *const layouts[] = {NULL,         "sparse_coo", "sparse_csr", NULL, /* c10/core/Layout.h */
                                          "sparse_csc", "sparse_bsr", "sparse_bsc"};
    return number < 0 || (size_t)number >= sizeof layouts / sizeof layouts[0] ? NULL : layouts[number];
}

/* As libtorch's own pickler writes it: number of the layout, size, requires_grad, the parts, hooks. */
static ckpt_status rebuild_sparse_script(const call *c, int64_t layout, spec *out)
{
    const char *name = ckpt__torch_layout_name(layout);
    if (!name)
        return bad(c, "of a layout whose number is not known");
    out->layout = ckpt__s(name);
    size_t n = layout == 1 ? 2 : 3, sizes;
    ckpt__torch_part parts[3];
    ckpt_status status = get_ints(c, arg(c, 1), &out->shape, &sizes);
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = part_of(c, ckpt__s(layout == 1 ? coo[i] : compressed[i]), arg(c, 3 + i), &parts[i]);
    if (status < 0)
        return status;
    out->ndim = sizes > CKPT__NDIM_MAX ? CKPT__NDIM_MAX : (uint32_t)sizes;
    like_values(out, parts[n - 1].tensor->spec);
    out->requires_grad = get_bool(c, 2);
    return add_parts(c, out, parts, n);
}

/* layout, (indices, values, size [, coalesced]) or (compressed, plain, values, size) */
static ckpt_status rebuild_sparse(const call *c, spec *out)
{
    if (arg(c, 0) && arg(c, 0)->kind == CKPT__P_INT)
        return rebuild_sparse_script(c, arg(c, 0)->u.integer, out);
    ckpt_status status = get_layout(c, 0, &out->layout);
    if (status < 0)
        return status;
    bool is_coo = ckpt__str_is(out->layout, "sparse_coo");
    size_t n = is_coo ? 2 : 3, sizes = 0;
    const ckpt__pickle_node *data = arg(c, 1);
    ckpt__torch_part parts[3];
    for (size_t i = 0; status == CKPT_OK && i < n; i++)
        status = part_of(c, ckpt__s(is_coo ? coo[i] : compressed[i]), ckpt__torch_item(data, i), &parts[i]);
    if (status == CKPT_OK)
        status = get_ints(c, ckpt__torch_item(data, n), &out->shape, &sizes);
    if (status == CKPT_OK && is_coo &&
        !ckpt__torch_check_sparse(c->t, parts[0].tensor->spec, parts[1].tensor->spec, sizes))
        status = ckpt__torch_no_memory(c->t, c->err);
    if (status < 0)
        return status;
    out->ndim = sizes > CKPT__NDIM_MAX ? CKPT__NDIM_MAX : (uint32_t)sizes;
    like_values(out, parts[n - 1].tensor->spec);
    return add_parts(c, out, parts, n);
}

/* buffer, sizes, strides, offsets */
static ckpt_status rebuild_nested(const call *c, spec *out)
{
    static const char *const names[] = {"values", "sizes", "strides", "offsets"};
    ckpt__torch_part parts[4];
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < 4; i++)
        status = part_of(c, ckpt__s(names[i]), arg(c, i), &parts[i]);
    if (status < 0)
        return status;
    out->layout = ckpt__s("nested");
    like_values(out, parts[0].tensor->spec);
    return add_parts(c, out, parts, 4);
}

enum { MAX_PARTS = 64 };

static ckpt_status dict_parts(const call *c, const ckpt__pickle_node *dict, ckpt__torch_part *parts, size_t *n)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && dict && dict->kind == CKPT__P_DICT && i < dict->u.list.count; i += 2) {
        const ckpt__pickle_node *key = dict->u.list.items[i], *value = dict->u.list.items[i + 1];
        if (key->kind != CKPT__P_STR || !ckpt__torch_is_tensor(value) ||
            ckpt__pickle_get(dict, key->u.text.data) != value)
            continue;
        if (*n == MAX_PARTS)
            return bad(c, "of more than 64 parts");
        status = part_of(c, key->u.text, value, &parts[(*n)++]);
    }
    return status;
}

/* A dict of values, offsets, lengths, _metadata_cache, ...: torch/nested/_internal/nested_tensor.py */
static ckpt_status rebuild_jagged(const call *c, spec *out)
{
    ckpt__torch_part parts[MAX_PARTS];
    size_t n = 0;
    const ckpt__pickle_node *grad = ckpt__pickle_get(arg(c, 0), "requires_grad");
    ckpt_status status = dict_parts(c, arg(c, 0), parts, &n);
    if (status == CKPT_OK)
        status = dict_parts(c, ckpt__pickle_get(arg(c, 0), "_metadata_cache"), parts, &n);
    if (status < 0 || n == 0)
        return status < 0 ? status : bad(c, "of several rows without values");
    like_values(out, parts[0].tensor->spec);
    out->requires_grad = grad && grad->kind == CKPT__P_BOOL && grad->boolean;
    out->layout = ckpt__s("jagged");
    return add_parts(c, out, parts, n);
}

/* The tensors among a wrapper's attributes; state is a dict, or (dict, slots). */
static ckpt_status wrapper_parts(const call *c, const ckpt__pickle_node *state, spec *out)
{
    ckpt__torch_part parts[MAX_PARTS];
    size_t n = 0;
    bool pair = state && state->kind == CKPT__P_TUPLE;
    ckpt_status status = dict_parts(c, pair ? ckpt__torch_item(state, 0) : state, parts, &n);
    if (status == CKPT_OK && pair)
        status = dict_parts(c, ckpt__torch_item(state, 1), parts, &n);
    return status < 0 ? status : add_parts(c, out, parts, n);
}

/* class, dtype, size, stride, storage_offset, layout, device, requires_grad: a shell around others (DTensor, ...) */
static ckpt_status rebuild_wrapper(const call *c, spec *out)
{
    ckpt_status status = get_dtype(c, 1, &out->dtype);
    if (status == CKPT_OK)
        status = get_geometry(c, 2, 3, out);
    if (status == CKPT_OK)
        status = get_device(c, 6, &out->device);
    out->shell = out->state;
    if (status == CKPT_OK)
        status = wrapper_parts(c, out->state, out);
    out->requires_grad = get_bool(c, 7);
    out->layout = ckpt__s("wrapper");
    out->strides = NULL; /* they are those of the shell, which has no bytes */
    return status;
}

/* ---- the table */

static const struct {
    const char *name;
    ckpt_status (*parse)(const call *, spec *);
} rebuilders[] = {
    {"_rebuild_tensor_v2", rebuild_tensor_v2},
    {"_rebuild_parameter", rebuild_parameter},
    {"_rebuild_tensor_v3", rebuild_tensor_v3},
    {"_rebuild_tensor", rebuild_tensor},
    {"_rebuild_parameter_with_state", rebuild_parameter},
    {"_rebuild_from_type_v2", rebuild_from_type},
    {"_rebuild_from_type", rebuild_from_type},
    {"_rebuild_qtensor", rebuild_qtensor},
    {"_rebuild_sparse_tensor", rebuild_sparse},
    {"_rebuild_sparse_csr_tensor", rebuild_sparse},
    {"_rebuild_nested_tensor", rebuild_nested},
    {"_rebuild_njt", rebuild_jagged},
    {"_rebuild_meta_tensor_no_storage", rebuild_meta},
    {"_rebuild_wrapper_subclass", rebuild_wrapper},
    {"_rebuild_device_tensor_from_cpu_tensor", rebuild_on_device},
    {"_rebuild_device_tensor_from_numpy", rebuild_from_numpy},
    {"_rebuild_xla_tensor", rebuild_from_numpy},
};

enum { FUNCTIONS = sizeof rebuilders / sizeof rebuilders[0], OLD_PARAMETER = FUNCTIONS, OLD_VARIABLE, NO_REBUILDER };

static size_t look_up_rebuilder(const ckpt__pickle_node *callable)
{
    const size_t n = NO_REBUILDER;
    if (ckpt__pickle_is_global(callable, "torch.nn.parameter", "Parameter"))
        return OLD_PARAMETER;
    if (ckpt__pickle_is_global(callable, "torch.autograd.variable", "Variable"))
        return OLD_VARIABLE;
    ckpt_str module = callable->u.global->module, name = callable->u.global->name;
    if (!ckpt__str_is(module, "torch._utils") && !ckpt__str_is(module, "torch._tensor") &&
        !ckpt__str_is(module, "torch.tensor") && !ckpt__str_is(module, "torch.nested._internal.nested_tensor"))
        return n;
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (ckpt__str_is(name, rebuilders[i].name))
            return i;
    return n;
}

/* Ten thousand tensors are rebuilt by the same node: it remembers the answer. */
static size_t find_rebuilder(const ckpt__pickle_node *callable)
{
    if (!callable || callable->kind != CKPT__P_GLOBAL)
        return NO_REBUILDER;
    if (!callable->known)
        ((ckpt__pickle_node *)(uintptr_t)callable)->known = (uint8_t)(1 + look_up_rebuilder(callable));
    return callable->known - 1u;
}

/* The class of a parameter may be called with anything; it makes a tensor where a tensor is given. So does a subclass that
 * brings a function of its own along: what it makes of its arguments is not known, and it stays an object. */
bool ckpt__torch_is_tensor(const ckpt__pickle_node *node)
{
    for (int depth = 0; depth < MAX_NESTING; depth++) {
        if (!node || node->kind != CKPT__P_OBJECT || node->u.object->call != CKPT__P_REDUCE)
            return false;
        size_t i = find_rebuilder(node->u.object->callable);
        if (i < FUNCTIONS && rebuilders[i].parse == rebuild_from_type)
            i = find_rebuilder(ckpt__torch_item(node->u.object->args, 0));
        if (i < FUNCTIONS || i == NO_REBUILDER)
            return i < FUNCTIONS;
        node = ckpt__torch_item(node->u.object->args, 0);
    }
    return false;
}

static ckpt_status parse_call(const call *outer, const ckpt__pickle_node *callable, const ckpt__pickle_node *args,
                              spec *out)
{
    size_t i = find_rebuilder(callable);
    if (i == NO_REBUILDER || !args || args->kind != CKPT__P_TUPLE)
        return bad(outer, "that is made of something else than a tensor");
    if (outer->depth >= MAX_NESTING)
        return bad(outer, "of tensors of tensors of tensors, nested too deep");
    call c = *outer;
    c.args = args;
    c.depth++;
    if (i >= FUNCTIONS)
        return i == OLD_PARAMETER ? rebuild_old_parameter(&c, out) : rebuild_old_variable(&c, out);
    ckpt_status status = rebuilders[i].parse(&c, out);
    if (i < 2 && ckpt__torch_usual_call(out->dtype, args, i == 0 ? 6 : 3, i == 0 ? 4 : 1))
        return status;
    return status < 0 || ckpt__torch_check_call(c.t, callable->u.global->name, args, out)
               ? status
               : ckpt__torch_no_memory(c.t, c.err);
}

static ckpt_status parse_node(const call *outer, const ckpt__pickle_node *node, spec *out)
{
    if (!ckpt__torch_is_tensor(node))
        return bad(outer, "that is made of something else than a tensor");
    const ckpt__pickle_object *o = node->u.object;
    ckpt_status status = parse_call(outer, o->callable, o->args, out);
    if (status == CKPT_OK && (o->state || o->entries.count || o->items.count))
        status = ckpt__torch_check_object(outer->t, node, find_rebuilder(o->callable) >= FUNCTIONS, outer->err);
    const ckpt__pickle_node *grad =
        ckpt__torch_item(o->state, 0); /* their state was (requires_grad, volatile, hooks) */
    if (find_rebuilder(o->callable) >= FUNCTIONS && grad && grad->kind == CKPT__P_BOOL)
        out->requires_grad = grad->boolean;
    return status;
}

ckpt_status ckpt__torch_tensor_of(ckpt__torch *t, const ckpt__pickle_node *node, ckpt__torch_tensor **out,
                                  ckpt_error *err)
{
    call c = {t, node, NULL, 0, err};
    ckpt__torch_part self = {{NULL, 0}, NULL};
    ckpt_status status = part_of(&c, ckpt__s(""), node, &self);
    *out = self.tensor;
    return status;
}
