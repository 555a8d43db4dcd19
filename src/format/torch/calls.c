/* format/torch/calls.c - rebuild calls as torch 2.13 runs them (torch/_utils.py, torch/_tensor.py): which it does not take, and
 * which make another tensor than the call seems to describe. The first are a finding, the second an error: nothing is shown of
 * which torch shows something else. */
#include "format/torch/torch.h"

#include <stdio.h>

static const char another[] = "load it with torch and save it again: torch.save(torch.load(FILE), 'new.pt')";

/* ---- arguments */

/* In torch's own names; the first `required` must be given. */
static const struct {
    const char *name;
    unsigned required, all;
    int grad; /* which one is requires_grad; -1: none */
    const char *names[9];
} calls[] = {
    {"_rebuild_tensor_v2",
     6,
     7,
     4,
     {"storage", "storage_offset", "size", "stride", "requires_grad", "backward_hooks", "metadata"}},
    {"_rebuild_parameter", 3, 3, 1, {"data", "requires_grad", "backward_hooks"}},
    {"_rebuild_tensor_v3",
     7,
     8,
     4,
     {"storage", "storage_offset", "size", "stride", "requires_grad", "backward_hooks", "dtype", "metadata"}},
    {"_rebuild_tensor", 4, 4, -1, {"storage", "storage_offset", "size", "stride"}},
    {"_rebuild_parameter_with_state", 4, 4, 1, {"data", "requires_grad", "backward_hooks", "state"}},
    {"_rebuild_qtensor",
     7,
     7,
     5,
     {"storage", "storage_offset", "size", "stride", "quantizer_params", "requires_grad", "backward_hooks"}},
    {"_rebuild_sparse_tensor", 2, 2, -1, {"layout", "data"}},
    {"_rebuild_nested_tensor", 4, 4, -1, {"buffer", "sizes", "strides", "storage_offsets"}},
    {"_rebuild_meta_tensor_no_storage", 4, 4, 3, {"dtype", "size", "stride", "requires_grad"}},
    {"_rebuild_device_tensor_from_numpy", 4, 4, 3, {"data", "dtype", "device", "requires_grad"}},
    {"_rebuild_device_tensor_from_cpu_tensor", 4, 4, 3, {"data", "dtype", "device", "requires_grad"}},
    {"_rebuild_from_type_v2", 4, 4, -1, {"func", "new_type", "args", "state"}},
};
enum { CALLS = sizeof calls / sizeof *calls };

/* As Python says it. */
static bool say_missing(ckpt__torch *t, size_t call, size_t given)
{
    ckpt__buf b = {0};
    size_t missing = calls[call].required - given;
    for (size_t i = given; i < calls[call].required; i++) {
        bool last = i + 1 == calls[call].required;
        ckpt__buf_printf(&b, "%s%s'%s'",
                         i == given    ? ""
                         : missing > 2 ? ", "
                                       : " ",
                         last && missing > 1 ? "and " : "", calls[call].names[i]);
    }
    bool fine =
        !b.failed && ckpt__torch_refuses(t, "TypeError: %s() missing %zu required positional argument%s: %s",
                                         calls[call].name, missing, missing == 1 ? "" : "s", b.data ? b.data : "");
    ckpt__buf_free(&b);
    return fine;
}

static const char *python_type(const ckpt__pickle_node *n)
{
    static const char *const names[] = {
        [CKPT__P_NONE] = "NoneType",
        [CKPT__P_BOOL] = "bool",
        [CKPT__P_INT] = "int",
        [CKPT__P_BIGINT] = "int",
        [CKPT__P_FLOAT] = "float",
        [CKPT__P_STR] = "str",
        [CKPT__P_BYTES] = "bytes",
        [CKPT__P_BYTEARRAY] = "bytearray",
        [CKPT__P_LIST] = "list",
        [CKPT__P_TUPLE] = "tuple",
        [CKPT__P_SET] = "set",
        [CKPT__P_FROZENSET] = "frozenset",
        [CKPT__P_DICT] = "dict",
        [CKPT__P_GLOBAL] = "type",
        [CKPT__P_PERSISTENT] = "TypedStorage",
        [CKPT__P_OBJECT] = "object",
    };
    return names[n->kind];
}

static bool check_grad(ckpt__torch *t, size_t call, const ckpt__pickle_node *args, const ckpt__torch_spec *spec)
{
    const ckpt__pickle_node *grad = calls[call].grad < 0 ? NULL : ckpt__torch_item(args, (size_t)calls[call].grad);
    bool parameter = calls[call].grad == 1;
    if (!grad)
        return true;
    if (grad->kind != CKPT__P_BOOL)
        return parameter
                   ? ckpt__torch_refuses(
                         t, "TypeError: _make_subclass(): argument 'require_grad' (position 3) must be bool, not %s",
                         python_type(grad))
                   : ckpt__torch_refuses(t, "RuntimeError: requires_grad must be a bool");
    if (!grad->boolean || ckpt_dtype_is_float(spec->dtype) || ckpt__dtype_row_of(spec->dtype)->is_complex)
        return true;
    return ckpt__torch_refuses(t, "RuntimeError: %s Tensors of floating point and complex dtype can require gradients",
                               parameter ? "Only" : "only");
}

/* What a call made is called: a tensor, or an object of a class that has no __call__. */
static bool check_called(ckpt__torch *t, const ckpt__pickle_node *callable)
{
    static const char known[] = "OrderedDict Size device set frozenset bytearray complex deque Counter defaultdict";
    const ckpt__pickle_node *class = callable->u.object->callable;
    if (ckpt__torch_is_tensor(callable))
        return ckpt__torch_refuses(t, "TypeError: 'Tensor' object is not callable");
    if (class->kind == CKPT__P_GLOBAL && ckpt__str_among(class->u.global->name, known) &&
        ckpt__str_among(class->u.global->module, "collections torch builtins __builtin__"))
        return ckpt__torch_refuses(t, "TypeError: '%s.%s' object is not callable", class->u.global->module.data,
                                   class->u.global->name.data);
    return true;
}

/* Objects among the arguments that are no values of the checkpoint: the hooks, which are an OrderedDict. */
static bool check_hooks(ckpt__torch *t, const ckpt__pickle_node *args)
{
    bool fine = true;
    for (size_t i = 0; fine && i < ckpt__torch_length(args); i++) {
        const ckpt__pickle_node *n = ckpt__torch_item(args, i);
        if (n->kind == CKPT__P_OBJECT && n->u.object->callable->kind == CKPT__P_OBJECT)
            fine = check_called(t, n->u.object->callable);
        if (n->kind != CKPT__P_OBJECT || n->u.object->callable->kind != CKPT__P_GLOBAL || ckpt__torch_is_tensor(n))
            continue;
        ckpt_str name = ckpt__torch_class(t, n->u.object->callable);
        fine = name.data && ckpt__torch_check_callable(t, n->u.object) &&
               (!n->u.object->state || ckpt__torch_check_build(t, name, n->u.object->state));
    }
    return fine;
}

bool ckpt__torch_check_call(ckpt__torch *t, ckpt_str name, const ckpt__pickle_node *args, const ckpt__torch_spec *spec)
{
    size_t i = 0, given = ckpt__torch_length(args);
    if (t->script || t->refused)
        return true;
    while (i < CALLS && !ckpt__str_is(name, calls[i].name))
        i++;
    if (i == CALLS)
        return true;
    if (given < calls[i].required)
        return say_missing(t, i, given);
    if (given > calls[i].all) {
        char range[48];
        if (calls[i].all == calls[i].required)
            snprintf(range, sizeof range, "%u", calls[i].all);
        else
            snprintf(range, sizeof range, "from %u to %u", calls[i].required, calls[i].all);
        return ckpt__torch_refuses(t, "TypeError: %s() takes %s positional arguments but %zu were given", calls[i].name,
                                   range, given);
    }
    return check_hooks(t, args) && check_grad(t, i, args, spec);
}

/* ---- conj and neg */

static bool is_empty(const ckpt__pickle_node *n)
{
    switch (n->kind) {
    case CKPT__P_NONE:
        return true;
    case CKPT__P_BOOL:
        return !n->boolean;
    case CKPT__P_INT:
        return n->u.integer == 0;
    case CKPT__P_STR:
    case CKPT__P_BYTES:
        return n->u.text.size == 0;
    case CKPT__P_LIST:
    case CKPT__P_TUPLE:
    case CKPT__P_DICT:
        return n->u.list.count == 0;
    default:
        return false;
    }
}

ckpt_status ckpt__torch_lazy_bits(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__pickle_node *bits,
                                  ckpt__torch_spec *spec, ckpt_error *err)
{
    const ckpt__pickle_node *tagged = ckpt__torch_untagged(bits);
    bits = tagged ? tagged : bits;
    if (!bits || is_empty(bits))
        return CKPT_OK;
    if (bits->kind != CKPT__P_DICT)
        return ckpt__torch_fail(
            t, CKPT_E_FORMAT, node, err,
            "a tensor whose metadata is %s: torch takes conj and neg from a dict, and what this one holds is not "
            "told; %s",
            python_type(bits), another);
    spec->conj = ckpt__pickle_get(bits, "conj") != NULL;
    spec->neg = ckpt__pickle_get(bits, "neg") != NULL;
    bool fine = true;
    for (size_t i = 0; fine && i < bits->u.list.count; i += 2) {
        const ckpt__pickle_node *value = bits->u.list.items[i + 1];
        if (bits->u.list.items[i]->kind != CKPT__P_STR || (value->kind != CKPT__P_BOOL && value->kind != CKPT__P_INT &&
                                                           value->kind != CKPT__P_NONE && value->kind != CKPT__P_FLOAT))
            fine = ckpt__torch_refuses(
                t, "TypeError: _set_tensor_metadata(): incompatible function arguments. The following argument "
                   "types are supported:");
    }
    if (fine && spec->conj && !ckpt__dtype_row_of(spec->dtype)->is_complex)
        fine =
            ckpt__torch_refuses(t, "RuntimeError: isComplexType(typeMetaToScalarType(dtype())) INTERNAL ASSERT FAILED");
    return fine ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

/* ---- attributes */

/* setattr(tensor, name, value) of these puts other content, or another class, into the tensor. */
static const char replacing[] = "data real imag __class__ __dict__ requires_grad";
/* And of these it raises: attribute '...' of 'torch._C.TensorBase' objects is not writable. */
static const char fixed[] =
    "shape dtype device layout is_leaf grad_fn itemsize nbytes ndim output_nr is_cuda is_sparse is_quantized T H mT mH";

static ckpt_status check_attributes(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__pickle_node *dict,
                                    ckpt_error *err)
{
    bool fine = true;
    char shown[80];
    for (size_t i = 0; fine && dict && dict->kind == CKPT__P_DICT && i < dict->u.list.count; i += 2) {
        const ckpt__pickle_node *key = dict->u.list.items[i];
        if (key->kind != CKPT__P_STR)
            continue;
        ckpt__escape(shown, sizeof shown, key->u.text.data, key->u.text.size);
        if (ckpt__str_among(key->u.text, replacing))
            return ckpt__torch_fail(
                t, CKPT_E_FORMAT, node, err,
                "a tensor with an attribute '%s' in its state: torch's tensor is what that attribute makes of it, the "
                "call without it describes another; %s",
                shown, another);
        if (ckpt__str_among(key->u.text, fixed))
            fine = ckpt__torch_refuses(
                t, "AttributeError: attribute '%s' of 'torch._C.TensorBase' objects is not writable", shown);
    }
    return fine ? CKPT_OK : ckpt__torch_no_memory(t, err);
}

/* A dict, or (dict, slots): torch._utils._set_obj_state. */
ckpt_status ckpt__torch_check_state(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__pickle_node *state,
                                    ckpt_error *err)
{
    bool fine = true;
    if (!state || t->script)
        return CKPT_OK;
    if (state->kind == CKPT__P_TUPLE && state->u.list.count != 2)
        fine =
            ckpt__torch_refuses(t, "RuntimeError: Invalid serialized state: a tuple of %u items", state->u.list.count);
    else if (state->kind == CKPT__P_INT || state->kind == CKPT__P_STR || state->kind == CKPT__P_FLOAT ||
             state->kind == CKPT__P_LIST)
        fine = is_empty(state) ||
               ckpt__torch_refuses(t, "AttributeError: '%s' object has no attribute 'items'", python_type(state));
    if (!fine)
        return ckpt__torch_no_memory(t, err);
    if (state->kind != CKPT__P_TUPLE)
        return check_attributes(t, node, state, err);
    ckpt_status status = check_attributes(t, node, ckpt__torch_item(state, 0), err);
    return status == CKPT_OK ? check_attributes(t, node, ckpt__torch_item(state, 1), err) : status;
}

/* ---- what is done to a tensor that is there */

ckpt_status ckpt__torch_check_object(ckpt__torch *t, const ckpt__pickle_node *node, bool old, ckpt_error *err)
{
    const ckpt__pickle_object *o = node->u.object;
    if (o->entries.count || o->items.count)
        return ckpt__torch_fail(
            t, CKPT_E_FORMAT, node, err,
            "a tensor into which items are put: an unpickler that calls torch changes its elements, weights_only "
            "refuses it; %s",
            another);
    bool grad = old && o->state && ckpt__torch_length(o->state) == 3 && o->state->kind == CKPT__P_TUPLE &&
                ckpt__torch_item(o->state, 0)->kind == CKPT__P_BOOL;
    if (!o->state || grad)
        return CKPT_OK;
    return ckpt__torch_fail(
        t, CKPT_E_FORMAT, node, err,
        "a tensor that is given a state (BUILD): torch makes it a view of what that state holds (set_(), or .data), "
        "the call without it describes another tensor; %s",
        another);
}

bool ckpt__torch_is_tensor_class(const ckpt__pickle_node *callable)
{
    if (!callable || callable->kind != CKPT__P_GLOBAL)
        return false;
    const ckpt_str module = callable->u.global->module, name = callable->u.global->name;
    if (!ckpt__str_begins(module, "torch"))
        return false;
    if (ckpt__str_is(module, "torch.nn.parameter") || ckpt__str_is(module, "torch.nn"))
        return ckpt__str_is(name, "Parameter");
    if (ckpt__str_is(module, "torch.autograd.variable") || ckpt__str_is(module, "torch.autograd"))
        return ckpt__str_is(name, "Variable");
    return ckpt__str_among(module,
                           "torch torch._tensor torch.tensor torch.cuda torch.sparse torch.cuda.sparse torch._C") &&
           ckpt__str_ends(name, "Tensor");
}

/* A dict, or what a program's class may make one of. */
static bool may_be_dict(const ckpt__pickle_node *n)
{
    static const char no[] = "Size device Tensor encode set frozenset bytearray complex _get_layout";
    if (n->kind == CKPT__P_OBJECT)
        return !ckpt__torch_is_tensor(n) && !(n->u.object->callable->kind == CKPT__P_GLOBAL &&
                                              ckpt__str_among(n->u.object->callable->u.global->name, no));
    return n->kind == CKPT__P_DICT;
}

/* BUILD of objects of builtin classes, which pickle gives a __dict__ of attributes, if they have one. */
bool ckpt__torch_check_build(ckpt__torch *t, ckpt_str name, const ckpt__pickle_node *state)
{
    static const char without[] =
        "builtins.set builtins.frozenset builtins.bytes builtins.bytearray builtins.complex torch.Size torch.device "
        "_codecs.encode torch.serialization._get_layout";
    char shown[80];
    if (state->kind == CKPT__P_NONE)
        return true;
    if (ckpt__str_among(name, without))
        return ckpt__torch_refuses(t, "AttributeError: '%s' object has no attribute '__dict__'",
                                   ckpt__escape(shown, sizeof shown, name.data, name.size));
    if (!ckpt__str_among(name, "collections.OrderedDict collections.Counter collections.defaultdict"))
        return true;
    const ckpt__pickle_node *first = state, *slots = NULL;
    if (state->kind == CKPT__P_TUPLE && state->u.list.count == 2) {
        first = ckpt__torch_item(state, 0);
        slots = ckpt__torch_item(state, 1);
    }
    if (!may_be_dict(state) && !t->index->pickle_strange)
        t->index->pickle_strange = "BUILD with a state other than a dict";
    if (first->kind != CKPT__P_NONE && !may_be_dict(first))
        return ckpt__torch_refuses(t, "UnpicklingError: state is not a dictionary");
    if (slots && slots->kind != CKPT__P_NONE && !may_be_dict(slots))
        return ckpt__torch_refuses(t, "UnpicklingError: slot state is not a dictionary");
    return true;
}

/* torch.Size((2, 3)): of nothing but numbers. */
static bool check_size(ckpt__torch *t, const ckpt__pickle_object *o)
{
    const ckpt__pickle_node *sizes = ckpt__torch_item(o->args, 0);
    for (size_t i = 0; sizes && i < ckpt__torch_length(sizes); i++) {
        const ckpt__pickle_node *n = ckpt__torch_item(sizes, i);
        if (n->kind != CKPT__P_INT && n->kind != CKPT__P_BIGINT && n->kind != CKPT__P_BOOL && n->kind != CKPT__P_OBJECT)
            return ckpt__torch_refuses(t, "TypeError: torch.Size() takes an iterable of 'int' (item %zu is '%s')", i,
                                       python_type(n));
    }
    return true;
}

/* torch.FloatStorage and the like are names of dtypes to torch.load, in both modes. */
bool ckpt__torch_check_callable(ckpt__torch *t, const ckpt__pickle_object *o)
{
    ckpt_dtype dtype;
    bool untyped = false;
    const ckpt__pickle_node *callable = o->callable;
    if (callable->kind == CKPT__P_OBJECT)
        return check_called(t, callable);
    if (ckpt__pickle_is_global(callable, "torch", "Size") && !check_size(t, o))
        return false;
    if (ckpt__pickle_is_global(callable, "torch.serialization", "_get_layout") && o->args->u.list.count != 1)
        return ckpt__torch_refuses(t,
                                   o->args->u.list.count
                                       ? "TypeError: _get_layout() takes 1 positional argument but %u were given"
                                       : "TypeError: _get_layout() missing 1 required positional argument: 'name'",
                                   o->args->u.list.count);
    if (ckpt__pickle_is_global(callable, "_codecs", "encode") && o->args->u.list.count == 0)
        return ckpt__torch_refuses(t, "TypeError: encode() missing required argument 'obj' (pos 1)");
    if (callable->kind == CKPT__P_GLOBAL && ckpt__torch_dtype(callable) != CKPT_DTYPE_NONE)
        return ckpt__torch_refuses(t, "TypeError: 'torch.dtype' object is not callable");
    if (ckpt__pickle_is_global(callable, "collections", "OrderedDict") && o->items.count)
        return ckpt__torch_refuses(t, "AttributeError: 'collections.OrderedDict' object has no attribute 'append'");
    if (ckpt__pickle_is_global(callable, "collections", "OrderedDict") && o->args->u.list.count > 1)
        return ckpt__torch_refuses(t, "TypeError: expected at most 1 arguments, got %u", o->args->u.list.count);
    if (callable->kind == CKPT__P_GLOBAL && o->items.count && ckpt__str_is(callable->u.global->module, "torch") &&
        ckpt__str_among(callable->u.global->name, "Size device"))
        return ckpt__torch_refuses(t, "AttributeError: 'torch.%s' object has no attribute 'append'",
                                   callable->u.global->name.data);
    if (callable->kind != CKPT__P_GLOBAL || !ckpt__torch_storage_dtype(callable, &dtype, &untyped) || untyped)
        return true;
    return ckpt__torch_refuses(t, "TypeError: 'StorageType' object is not callable");
}

/* The class of parameters, called with something that is plainly no tensor: torch raises, and it stays an object. */
bool ckpt__torch_no_parameter(ckpt__torch *t, const ckpt__pickle_node *object)
{
    const ckpt__pickle_object *o = object->u.object;
    const ckpt__pickle_node *first = ckpt__torch_item(o->args, 0);
    bool parameter = ckpt__str_among(o->callable->u.global->name, "Parameter Variable");
    if (!parameter || o->call != CKPT__P_REDUCE || !first || first->kind == CKPT__P_OBJECT ||
        first->kind == CKPT__P_PERSISTENT || first->kind == CKPT__P_NONE)
        return false;
    (void)ckpt__torch_refuses(t, "TypeError: a parameter of %s, which is not a tensor", python_type(first));
    return true;
}

ckpt_status ckpt__torch_fail_class(const ckpt__torch *t, const ckpt__pickle_node *object, ckpt_error *err)
{
    const ckpt__pickle_names *names = object->u.object->callable->u.global;
    char shown[120], module[120];
    return ckpt__torch_fail(
        t, CKPT_E_FORMAT, object, err,
        "a tensor that the class %s.%s makes by itself, of its arguments or of a state: torch builds one, here it "
        "would be an object without content; %s",
        ckpt__escape(module, sizeof module, names->module.data, names->module.size),
        ckpt__escape(shown, sizeof shown, names->name.data, names->name.size), another);
}

bool ckpt__torch_check_sparse(ckpt__torch *t, const ckpt__torch_spec *indices, const ckpt__torch_spec *values,
                              size_t sizes)
{
    if (!indices->shape || !values->shape || values->ndim == 0)
        return true;
    if (indices->ndim != 2)
        return ckpt__torch_refuses(
            t, "RuntimeError: indices must be sparse_dim x nnz, but got a tensor of %u dimensions", indices->ndim);
    if (indices->shape[1] != values->shape[0])
        return ckpt__torch_refuses(
            t,
            "RuntimeError: indices and values must have same nnz, but got nnz from indices: %lld, nnz from "
            "values: %lld",
            (long long)indices->shape[1], (long long)values->shape[0]);
    if (indices->shape[0] + (int64_t)values->ndim - 1 == (int64_t)sizes)
        return true;
    return ckpt__torch_refuses(
        t, "RuntimeError: number of dimensions must be sparse_dim (%lld) + dense_dim (%u), but got %zu",
        (long long)indices->shape[0], values->ndim - 1, sizes);
}
