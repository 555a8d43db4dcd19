/* doctor/refused.c - what torch.load(weights_only=True) builds, by versions, and what of a checkpoint it therefore
 * refuses. Sources: torch/_weights_only_unpickler.py and torch/storage.py of 1.13.1 to 2.13.0; ran: 1.13, 2.0.1, 2.1.2, 2.2.2,
 * 2.3.1, 2.4.1, 2.5.1, 2.6.0, 2.7.1, 2.8.0 and 2.13.0 over the files of tests/interop/refused.py; versions between 2.8 and
 * 2.13 by their source alone. */
#include "doctor/facts.h"

#include <stdio.h>
#include "format/torch/torch.h"
#include "format/torch/write.h"
#include "format/table.h"

/* The first version that allows a name, and the last (0: the newest still does). A name is module.Class, or a call of it;
 * "float" stands for the opcode BINFLOAT. The first version that knows weights_only is 1.13. */
static const struct {
    int from, until;
    const char *module, *names;
} allowed[] = {
    {113, 0, "collections", "OrderedDict"},
    {204, 0, "collections", "Counter"},
    {200, 0, "", "float"},
    {205, 0, "_codecs", "encode"},
    {205, 0, "builtins", "bytearray"},
    {206, 0, "builtins", "set complex"},
    {113, 0, "torch", "Size Tensor strided sparse_coo sparse_csr sparse_csc sparse_bsr sparse_bsc _mkldnn jagged"},
    {113, 0, "torch", "complex32 complex64 complex128 float16 float32 float64 int8 int16 int32 int64"},
    {202, 0, "torch", "float8_e5m2 float8_e4m3fn"},
    {203, 0, "torch", "float8_e5m2fnuz float8_e4m3fnuz"},
    {204, 0, "torch",
     "device bfloat16 uint8 bool qint8 quint8 qint32 quint4x2 quint2x4 bits8 bits16 bits1x8 bits2x4 bits4x2"},
    {204, 0, "torch",
     "per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric per_channel_affine_float_qparams"},
    {206, 0, "torch", "uint16 uint32 uint64"},
    {207, 0, "torch", "float8_e8m0fnu uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7"},
    {208, 0, "torch", "float4_e2m1fn_x2"},
    {113, 0, "torch.nn.parameter", "Parameter"},
    {113, 0, "torch.serialization", "_get_layout"},
    {113, 0, "torch.storage", "TypedStorage UntypedStorage"},
    {113, 0, "torch._utils",
     "_rebuild_parameter _rebuild_tensor _rebuild_tensor_v2 _rebuild_sparse_tensor _rebuild_meta_tensor_no_storage"},
    {113, 113, "torch._utils", "_rebuild_sparse_csr_tensor"},
    {200, 0, "torch._tensor", "_rebuild_from_type_v2"},
    {202, 0, "torch._utils", "_rebuild_tensor_v3 _rebuild_nested_tensor"},
    {204, 0, "torch._utils", "_rebuild_parameter_with_state _rebuild_qtensor _rebuild_wrapper_subclass"},
    {205, 0, "torch._utils", "_rebuild_device_tensor_from_numpy"},
    {206, 0, "torch._utils", "_rebuild_device_tensor_from_cpu_tensor"},
    /* allowed once their module is imported, as a program that has such tensors has done */
    {206, 0, "torch.distributed.device_mesh", "DeviceMesh"},
    {206, 0, "torch.distributed.tensor", "DTensor"},
    {206, 0, "torch.distributed.tensor._dtensor_spec", "DTensorSpec TensorMeta"},
    {210, 0, "torch.distributed.tensor._dtensor_spec", "ShardOrderEntry"},
    {206, 0, "torch.distributed.tensor.placement_types", "Partial Replicate Shard"},
    {210, 0, "torch.distributed._mesh_layout", "_MeshLayout"},
    {213, 0, "torch.distributed._mesh_layout", "_FlatLayout"},
    {206, 0, "torch.nested._internal.nested_tensor", "NestedTensor _rebuild_njt"},
};

/* The first version that has a name at all, weights_only or not; before it unpickling fails with AttributeError. Sources: the
 * changes that brought them; ran: 1.13, 2.0.1 and 2.1.2 over each. A name that was always there is not listed. */
static const struct {
    int from;
    const char *module, *names;
} there[] = {
    {200, "torch._utils", "_rebuild_parameter_with_state"},
    {202, "torch.nested._internal.nested_tensor", "NestedTensor"},
    {206, "torch.nested._internal.nested_tensor", "_rebuild_njt"}, /* not in 2.5.1 by its source */
    {201, "torch", "bits8 bits16 bits1x8 bits2x4 bits4x2"},
    {203, "torch", "uint1 uint2 uint3 uint4 uint5 uint6 uint7"},
    {206, "torch", "int1 int2 int3 int4 int5 int6 int7"},
    {202, "torch._utils", "_rebuild_tensor_v3 _rebuild_nested_tensor"},
    {201, "torch", "float8_e5m2 float8_e4m3fn"},
    {202, "torch", "float8_e5m2fnuz float8_e4m3fnuz"},
    {203, "torch", "uint16 uint32 uint64"},
    {207, "torch", "float8_e8m0fnu"},
    {208, "torch", "float4_e2m1fn_x2"},
};

/* Calls that are older than what they are given: the first version that takes it. Before, they fail by the number of arguments,
 * or say that they do not know the layout. Ran: 1.13, 2.0.1, 2.1.2 and 2.13. */
enum { VIEW, COMPRESSED, COALESCED, TAKEN };
static const struct {
    int from;
    const char *what;
} taken[TAKEN] = {
    [VIEW] = {200, "a conjugate or negated view (torch._utils._rebuild_tensor_v2 with 7 arguments)"},
    [COMPRESSED] =
        {200, "a compressed sparse tensor (torch._utils._rebuild_sparse_tensor of another layout than sparse_coo)"},
    [COALESCED] =
        {201, "a sparse tensor that says whether it is coalesced (torch._utils._rebuild_sparse_tensor with 4 parts)"},
};

/* Before, torch.load hands an archive of TorchScript to torch.jit.load, weights_only or not. */
enum { SCRIPTS_REFUSED = 206 };

static bool allows(const ckpt__examination *p, ckpt_str module, ckpt_str name)
{
    bool torch = ckpt__str_begins(module, "torch");
    if (p->loader->loader == CKPT_LOADER_TORCH_CPP)
        return ckpt__cpp_builds(module, name);
    if (torch && ckpt__str_ends_more(name, "Storage"))
        return true; /* of any dtype: torch.FloatStorage, torch.cuda.HalfStorage */
    if (ckpt__str_begins(module, "__torch__") && p->version < SCRIPTS_REFUSED)
        return true;
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (p->version >= allowed[i].from && (!allowed[i].until || p->version <= allowed[i].until) &&
            ckpt__str_is(module, allowed[i].module) && ckpt__str_among(name, allowed[i].names))
            return true;
    return false;
}

void ckpt__doctor_split(ckpt_str path, ckpt_str *module, ckpt_str *name)
{
    size_t dot = ckpt__str_after_dot(path);
    *module = (ckpt_str){path.data, dot > 0 ? dot - 1 : 0};
    *name = (ckpt_str){path.data + dot, path.size - dot};
}

static bool allows_class(const ckpt__examination *p, ckpt_str path)
{
    ckpt_str module, name;
    ckpt__doctor_split(path, &module, &name);
    return allows(p, module, name);
}

static int there_from(ckpt_str module, ckpt_str name)
{
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        if (ckpt__str_is(module, there[i].module) && ckpt__str_among(name, there[i].names))
            return there[i].from;
    return 0;
}

int ckpt__doctor_there_from(ckpt_str path)
{
    ckpt_str module, name;
    for (size_t i = 0; i < TAKEN; i++)
        if (ckpt__str_is(path, taken[i].what))
            return taken[i].from;
    ckpt__doctor_split(path, &module, &name);
    return there_from(module, name);
}

/* ---- one finding a class */

static void add_refusal(ckpt__examination *p, const ckpt__row *row, ckpt_str class_name, ckpt_str where)
{
    for (size_t i = 0; i < p->refusal_count; i++)
        if (p->refusals[i].row == row && ckpt__str_equal(p->refusals[i].class_name, class_name)) {
            p->refusals[i].count++;
            return;
        }
    if (p->refusal_count == CKPT__REFUSALS) {
        p->refusals_more++;
        return;
    }
    ckpt__refusal *r = &p->refusals[p->refusal_count++];
    r->row = row;
    r->class_name = class_name;
    r->count = 1;
    ckpt__escape(r->where, sizeof r->where, where.data ? where.data : "", where.size);
}

/* One of those that a trainer leaves beside what the ranks wrote: "random_states_0.pkl". Their names are keys of the root, among
 * others: only what ends as they do is looked for. */
static bool is_beside(const ckpt__examination *p, ckpt_str key)
{
    static const char *const ends[] = {".pkl", ".pth", ".bin", ".pt"};
    bool likely = false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        likely = likely || ckpt__str_ends(key, ends[i]);
    for (size_t i = 0; likely && i < p->reader->source->count; i++)
        if (ckpt__str_is(key, p->reader->source->files[i].name))
            return true;
    return false;
}

/* The file of a directory that a value lies in. */
static ckpt_str file_of(const ckpt__examination *p, const ckpt_visit *visit)
{
    ckpt_str none = {NULL, 0};
    if (visit->path.count == 0)
        return none;
    ckpt_str key = visit->path.keys[0].text;
    return ckpt__in_files(p->index) || (p->inside_job && is_beside(p, key)) ? key : none;
}

static void note_unbuilt(ckpt__examination *p, ckpt__fact fact, const ckpt_visit *visit, ckpt_str class_name)
{
    const ckpt__row *row = ckpt__doctor_note(p, fact, NULL, (ckpt_str){NULL, 0}, NULL, NULL, NULL);
    if (row)
        add_refusal(p, row, class_name, visit->name);
}

static void refuse(ckpt__examination *p, const ckpt_visit *visit, ckpt_str class_name)
{
    ckpt_str file = file_of(p, visit);
    ckpt__fact fact = p->loader->loader == CKPT_LOADER_TORCH_CPP                  ? CKPT__REFUSED_CPP
                      : file.data && ckpt__loader_file(p->loader->swallows, file) ? CKPT__REFUSED_RNG
                      : file.data && ckpt__loader_file(p->loader->fixed, file)    ? CKPT__REFUSED_FIXED
                                                                                  : CKPT__REFUSED;
    const ckpt__row *row = ckpt__doctor_note(p, fact, NULL, (ckpt_str){NULL, 0}, NULL, NULL, NULL);
    if (row)
        add_refusal(p, row, class_name, visit->name);
}

/* ---- tensors: the calls that rebuild one, as its pickle has them */

static ckpt_str path_of(ckpt__examination *p, ckpt_str module, ckpt_str name)
{
    ckpt__buf b = {NULL, 0, 0, false};
    ckpt__buf_add(&b, module.data, module.size);
    ckpt__buf_char(&b, '.');
    ckpt__buf_add(&b, name.data, name.size);
    ckpt_str path = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(p->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return path;
}

static bool look_at_global(ckpt__examination *p, const ckpt_visit *visit, const ckpt__pickle_node *global)
{
    if (global->kind != CKPT__P_GLOBAL)
        return true;
    const size_t kept = sizeof p->allowed / sizeof *p->allowed;
    for (size_t i = 0; i < kept; i++)
        if (p->allowed[i] == global->u.global)
            return true;
    ckpt_str module = global->u.global->module, name = global->u.global->name;
    ckpt__torch_python3(&module, &name);
    if (allows(p, module, name)) {
        p->allowed[p->allowed_next++ % kept] = global->u.global;
        return true;
    }
    ckpt_str path = path_of(p, module, name);
    if (path.data)
        refuse(p, visit, path);
    return path.data != NULL;
}

/* Which of the calls above it is; TAKEN: none. */
static int which_call(const ckpt__pickle_node *call)
{
    const ckpt__pickle_node *args = call->u.object->args, *callable = call->u.object->callable;
    if (!args || args->kind != CKPT__P_TUPLE)
        return TAKEN;
    if (ckpt__pickle_is_global(callable, "torch._utils", "_rebuild_tensor_v2"))
        return args->u.list.count > 6 ? VIEW : TAKEN;
    if (!ckpt__pickle_is_global(callable, "torch._utils", "_rebuild_sparse_tensor") || args->u.list.count < 2)
        return TAKEN;
    const ckpt__pickle_node *layout = args->u.list.items[0], *data = args->u.list.items[1];
    layout = layout->kind == CKPT__P_OBJECT ? ckpt__torch_item(layout->u.object->args, 0) : NULL;
    if (!layout || layout->kind != CKPT__P_STR)
        return TAKEN;
    if (!ckpt__str_is(layout->u.text, "torch.sparse_coo"))
        return COMPRESSED;
    return data->kind == CKPT__P_TUPLE && data->u.list.count > 3 ? COALESCED : TAKEN;
}

static bool is_it_there(ckpt__examination *p, const ckpt_visit *visit, const ckpt__pickle_node *global)
{
    if (global->kind == CKPT__P_OBJECT) {
        int call = which_call(global);
        if (call != TAKEN && p->version < taken[call].from)
            note_unbuilt(p, CKPT__UNTAKEN, visit, ckpt__s(taken[call].what));
        return true;
    }
    ckpt_str module = global->u.global->module, name = global->u.global->name, path;
    if (p->version >= there_from(module, name))
        return true;
    path = path_of(p, module, name);
    if (path.data)
        note_unbuilt(p, CKPT__UNBUILT, visit, path);
    return path.data != NULL;
}

typedef bool (*looker)(ckpt__examination *p, const ckpt_visit *visit, const ckpt__pickle_node *global);

/* Everything else below it (attributes, specs) is a value, and visited as one. */
static bool look_at_tensor(ckpt__examination *p, const ckpt_visit *visit, looker look)
{
    enum { DEEP = 64, MANY = 1024 };
    const ckpt__pickle_node *stack[DEEP];
    size_t depth = 0, seen = 0;
    stack[depth++] = visit->value->origin;
    while (depth > 0 && seen++ < MANY) {
        const ckpt__pickle_node *n = stack[--depth];
        bool call = n->kind == CKPT__P_OBJECT && ckpt__torch_is_tensor(n);
        if ((call || n->kind == CKPT__P_GLOBAL) && !look(p, visit, n))
            return false;
        if (call && depth + 2 <= DEEP) {
            stack[depth++] = n->u.object->args;
            stack[depth++] = n->u.object->callable;
        }
        for (size_t i = 0; n->kind == CKPT__P_TUPLE && i < n->u.list.count && depth < DEEP; i++) {
            const ckpt__pickle_node *item = n->u.list.items[i];
            if (item->kind == CKPT__P_GLOBAL || item->kind == CKPT__P_TUPLE || item->kind == CKPT__P_OBJECT)
                stack[depth++] = item;
        }
    }
    return true;
}

/* ---- values */

/* What would be refused in building this one, its keys included (they are no visits of their own); data NULL: nothing. */
static ckpt_str refused_in(const ckpt__examination *p, const ckpt_value *v, bool numpy)
{
    bool named = v->class_name.data && v->class_name.size;
    ckpt_str nothing = {NULL, 0}, encode = ckpt__s("_codecs.encode"), bytes = ckpt__s("builtins.bytes");
    if (p->loader->loader == CKPT_LOADER_TORCH_CPP)
        return ckpt__cpp_refused(v);
    switch (v->kind) {
    case CKPT_V_FLOAT:
        return allows(p, ckpt__s(""), ckpt__s("float")) ? nothing : ckpt__s("float");
    case CKPT_V_BYTES:
        if (v->text.size == 0 || p->inner->pickle_protocol > 2) /* a call of bytes(), or an opcode that is not known */
            return bytes;
        return numpy || allows_class(p, encode) ? nothing : encode;
    case CKPT_V_BYTEARRAY:
        return allows_class(p, ckpt__s("builtins.bytearray")) ? nothing : ckpt__s("builtins.bytearray");
    case CKPT_V_ARRAY:
        if (numpy && ckpt__str_is(v->array->dtype, "<u4"))
            return nothing;
        return named ? v->class_name : ckpt__s("numpy.ndarray");
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_DICT:
    case CKPT_V_TENSOR:
    case CKPT_V_CLASS:
    case CKPT_V_OBJECT:
        return named && !allows_class(p, v->class_name) ? v->class_name : nothing;
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_INT:
    case CKPT_V_BIGINT:
    case CKPT_V_STR:
        break;
    }
    return nothing;
}

/* Opcodes that the unpickler does not know: those of protocol 4 and later, and the words that before 2 stand for booleans. */
static void check_protocol(ckpt__examination *p, const ckpt_visit *visit)
{
    static const char *const words[] = {"pickle protocol 0 or 1", "", "", "pickle protocol 4", "pickle protocol 5"};
    int protocol = p->inner->pickle_protocol;
    if (protocol == 1 || protocol > 3) {
        refuse(p, visit, ckpt__s(words[protocol == 1 ? 0 : protocol == 4 ? 3 : 4]));
    } else if (p->inner->pickle_strange) {
        char text[80];
        snprintf(text, sizeof text, "the opcode %s", p->inner->pickle_strange);
        ckpt_str kept = ckpt__arena_str(p->arena, text, strlen(text));
        refuse(p, visit, kept.data ? kept : ckpt__s("an opcode"));
    }
}

/* What no torch of this version builds, whatever weights_only says. */
static bool look_for_unbuilt(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    if (visit->cycle || !p->loader->python)
        return true;
    if (v->kind == CKPT_V_TENSOR && v->origin)
        return look_at_tensor(p, visit, is_it_there);
    if (v->kind == CKPT_V_CLASS && v->class_name.data && p->version < ckpt__doctor_there_from(v->class_name))
        note_unbuilt(p, CKPT__UNBUILT, visit, v->class_name);
    return true;
}

bool ckpt__doctor_refused(ckpt__examination *p, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    bool cpp = p->loader->loader == CKPT_LOADER_TORCH_CPP, torch = ckpt__format_of(p->inner)->torch_loads;
    ckpt_str file = file_of(p, visit), root = p->inner->root ? p->inner->root->class_name : (ckpt_str){NULL, 0};
    bool archive = ckpt__is_scripted_class(root);
    if (p->inside_job && !file.data) /* what the ranks wrote is read by their own program, which trusts it */
        return true;
    if (p->unread && file.data && (ckpt__str_is(file, "optimizer.pt") || ckpt__str_is(file, "scheduler.pt")))
        return true;
    if (!ckpt__loader_file(p->loader->skips, file) && !look_for_unbuilt(p, visit))
        return false;
    if (ckpt__loader_file(p->loader->skips, file) || (file.data && ckpt__loader_file(p->loader->trusts, file)) ||
        (cpp ? !torch || archive : !p->result->load_weights_only || p->version < CKPT__WEIGHTS_ONLY_TORCH))
        return true;
    if (visit->cycle) { /* only a tuple that holds itself takes an opcode that is not known: POP */
        if (v->kind == CKPT_V_TUPLE && !cpp)
            refuse(p, visit, ckpt__s("a tuple that holds itself"));
        return true;
    }
    bool numpy = file.data && p->loader->numpy_in && ckpt__loader_file(p->loader->numpy_in, file);
    const char *whole = cpp ? ckpt__cpp_refused_file(p->inner) : NULL;
    if (visit->path.count == 0 && !cpp)
        check_protocol(p, visit);
    if (visit->path.count == 0 && whole)
        refuse(p, visit, ckpt__s(whole));
    if (v->kind == CKPT_V_TENSOR && v->origin)
        return look_at_tensor(p, visit, look_at_global);
    ckpt_str refused = refused_in(p, v, numpy);
    for (size_t i = 0; i < v->entry_count && !refused.data; i++)
        refused = cpp ? ckpt__cpp_refused_key(v->entries[i].key) : refused_in(p, v->entries[i].key, numpy);
    if (refused.data)
        refuse(p, visit, refused);
    return true;
}
