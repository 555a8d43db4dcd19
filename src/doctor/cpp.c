/* doctor/cpp.c - what torch::pickle_load of libtorch builds of a file of torch.save, which is much less than
 * torch.load(weights_only=True) does. Ran: libtorch 2.13 over the files of tests/interop/truth_cpp.py. */
#include "doctor/facts.h"
#include "format/table.h"

/* module, and the names in it that are built. Storages (torch.FloatStorage, ...) are told by the end of their name. */
static const char *const built[][2] = {
    {"torch", "device Tensor per_tensor_affine per_tensor_symmetric per_channel_affine per_channel_symmetric"},
    {"torch", "per_channel_affine_float_qparams"},
    {"torch.nn.parameter", "Parameter Buffer"},
    {"torch.storage", "TypedStorage"}, /* as a value; UntypedStorage is refused */
    {"torch._utils", "_rebuild_tensor_v2 _rebuild_parameter _rebuild_qtensor"},
    {"torch._tensor", "_rebuild_from_type_v2"},
    {"collections", "OrderedDict"},
};

bool ckpt__cpp_builds(ckpt_str module, ckpt_str name)
{
    if (ckpt__str_is(module, "torch") && ckpt__str_ends_more(name, "Storage"))
        return true;
    for (size_t i = 0; i < sizeof built / sizeof *built; i++)
        if (ckpt__str_is(module, built[i][0]) && ckpt__str_among(name, built[i][1]))
            return true;
    return false;
}

static bool builds_class(ckpt_str path)
{
    ckpt_str module, name;
    ckpt__doctor_split(path, &module, &name);
    return ckpt__cpp_builds(module, name);
}

/* Python writes what needs more than 32 bits in as few bytes as hold it, and the C++ reader takes 8 of them or none. */
static bool odd_length(int64_t n)
{
    const int64_t seven = INT64_C(1) << 55;
    return (n > INT32_MAX && n < seven) || (n < INT32_MIN && n >= -seven);
}

ckpt_str ckpt__cpp_refused(const ckpt_value *v)
{
    bool named = v->class_name.data && v->class_name.size;
    ckpt_str nothing = {NULL, 0};
    switch (v->kind) {
    case CKPT_V_INT:
        return odd_length(v->integer) ? ckpt__s("int of more than 32 bits") : nothing;
    case CKPT_V_BIGINT:
        return ckpt__s("int of more than 64 bits");
    case CKPT_V_BYTES:
        return ckpt__s(v->text.size ? "_codecs.encode" : "builtins.bytes");
    case CKPT_V_BYTEARRAY:
        return ckpt__s("builtins.bytearray");
    case CKPT_V_ARRAY:
        return named ? v->class_name : ckpt__s("numpy.ndarray");
    case CKPT_V_DICT: /* an OrderedDict becomes None, which takes no entries */
        if (ckpt__str_is(v->class_name, "collections.OrderedDict"))
            return v->entry_count ? v->class_name : nothing;
        return named && !ckpt__str_is(v->class_name, "builtins.dict") ? v->class_name : nothing;
    case CKPT_V_LIST:
    case CKPT_V_TUPLE:
    case CKPT_V_CLASS:
    case CKPT_V_OBJECT:
        return named && !builds_class(v->class_name) ? v->class_name : nothing;
    case CKPT_V_NONE:
    case CKPT_V_BOOL:
    case CKPT_V_FLOAT:
    case CKPT_V_STR:
    case CKPT_V_TENSOR:
        break;
    }
    return nothing;
}

ckpt_str ckpt__cpp_refused_key(const ckpt_value *key)
{
    if (key->kind == CKPT_V_NONE)
        return ckpt__s("key None");
    return key->kind == CKPT_V_TUPLE ? ckpt__s("key that is a tuple") : ckpt__cpp_refused(key);
}

const char *ckpt__cpp_refused_file(const ckpt__index *index)
{
    static const char *const protocols[] = {"pickle protocol 0 or 1", "", "pickle protocol 3", "pickle protocol 4",
                                            "pickle protocol 5"};
    int protocol = index->pickle_protocol;
    if (ckpt__format_of(index)->no_archive)
        return "a file that is not a zip archive";
    return protocol > 0 && protocol <= 5 && protocol != 2 ? protocols[protocol - 1] : NULL;
}

bool ckpt__cpp_device(ckpt_str tag)
{
    static const char *const types[] = {"cpu",    "cuda", "ipu",  "xpu",  "mkldnn", "opengl",       "opencl",
                                        "ideep",  "hip",  "ve",   "fpga", "maia",   "xla",          "lazy",
                                        "vulkan", "mps",  "meta", "hpu",  "mtia",   "privateuseone"};
    const char *colon = tag.data ? memchr(tag.data, ':', tag.size) : NULL;
    ckpt_str type = {tag.data, colon ? (size_t)(colon - tag.data) : tag.size};
    for (size_t i = 0; tag.data && i < sizeof types / sizeof *types; i++)
        if (ckpt__str_is(type, types[i]))
            return true;
    return !tag.data;
}
