/* format/torch/names.c - what things in a torch pickle are called. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>

/* ---- Python 2 names, which protocols 0 to 2 write: Lib/_compat_pickle.py, the part that data can meet */

static const struct {
    const char *from, *to;
} modules[] = {
    {"__builtin__", "builtins"},
    {"copy_reg", "copyreg"},
    {"exceptions", "builtins"},
    {"Queue", "queue"},
    {"cPickle", "_pickle"},
    {"StringIO", "io"},
    {"cStringIO", "io"},
    {"UserDict", "collections"},
    {"UserList", "collections"},
    {"UserString", "collections"},
    {"ConfigParser", "configparser"},
    {"__main__", "__main__"},
};

static const struct {
    const char *module, *name, *to;
} renamed[] = {
    {"__builtin__", "long", "builtins.int"},
    {"__builtin__", "xrange", "builtins.range"},
    {"__builtin__", "unicode", "builtins.str"},
    {"__builtin__", "unichr", "builtins.chr"},
    {"__builtin__", "reduce", "functools.reduce"},
    {"__builtin__", "intern", "sys.intern"},
    {"__builtin__", "raw_input", "builtins.input"},
    {"itertools", "izip", "builtins.zip"},
    {"itertools", "imap", "builtins.map"},
    {"itertools", "ifilter", "builtins.filter"},
    {"UserDict", "IterableUserDict", "collections.UserDict"},
};

/* Singletons are named by their class, as type(x) would say. */
static const struct {
    const char *from, *to;
} singletons[] = {
    {"builtins.Ellipsis", "builtins.ellipsis"},
    {"builtins.NotImplemented", "builtins.NotImplementedType"},
};

static ckpt_str joined(ckpt__torch *t, const char *module, ckpt_str name)
{
    ckpt__buf b = {0};
    ckpt__buf_str(&b, module);
    ckpt__buf_char(&b, '.');
    ckpt__buf_add(&b, name.data, name.size);
    ckpt_str out = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(t->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return out;
}

ckpt_str ckpt__torch_class(ckpt__torch *t, const ckpt__pickle_node *global)
{
    ckpt_str module = global->u.global->module, name = global->u.global->name;
    const char *from = module.data;
    bool python2 = t->pickle.protocol < 3;
    for (size_t i = 0; python2 && i < sizeof renamed / sizeof renamed[0]; i++)
        if (ckpt__str_is(module, renamed[i].module) && ckpt__str_is(name, renamed[i].name))
            return ckpt__s(renamed[i].to);
    for (size_t i = 0; python2 && i < sizeof modules / sizeof modules[0]; i++)
        if (ckpt__str_is(module, modules[i].from))
            from = modules[i].to;
    /* torch._utils torch.channels_last: a value of torch that is found through another module. */
    if (ckpt__str_is(module, "torch._utils") && ckpt__str_begins_more(name, "torch."))
        return name;
    ckpt_str out = joined(t, from, name);
    for (size_t i = 0; out.data && i < sizeof singletons / sizeof singletons[0]; i++)
        if (ckpt__str_is(out, singletons[i].from))
            return ckpt__s(singletons[i].to);
    return out;
}

void ckpt__torch_python3(ckpt_str *module, ckpt_str *name)
{
    for (size_t i = 0; i < sizeof renamed / sizeof renamed[0]; i++)
        if (ckpt__str_is(*module, renamed[i].module) && ckpt__str_is(*name, renamed[i].name)) {
            const char *dot = strchr(renamed[i].to, '.');
            *module = (ckpt_str){renamed[i].to, (size_t)(dot - renamed[i].to)};
            *name = ckpt__s(dot + 1);
            return;
        }
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++)
        if (ckpt__str_is(*module, modules[i].from)) {
            *module = ckpt__s(modules[i].to);
            return;
        }
}

/* ---- storages and dtypes */

bool ckpt__torch_storage_dtype(const ckpt__pickle_node *global, ckpt_dtype *dtype, bool *untyped)
{
    static const struct {
        const char *name;
        ckpt_dtype dtype;
    } classes[] = {
        {"FloatStorage", CKPT_F32},
        {"DoubleStorage", CKPT_F64},
        {"HalfStorage", CKPT_F16},
        {"BFloat16Storage", CKPT_BF16},
        {"LongStorage", CKPT_I64},
        {"IntStorage", CKPT_I32},
        {"ShortStorage", CKPT_I16},
        {"CharStorage", CKPT_I8},
        {"ByteStorage", CKPT_U8},
        {"BoolStorage", CKPT_BOOL},
        {"ComplexFloatStorage", CKPT_C64},
        {"ComplexDoubleStorage", CKPT_C128},
        {"QInt8Storage", CKPT_QI8},
        {"QUInt8Storage", CKPT_QU8},
        {"QInt32Storage", CKPT_QI32},
        {"QUInt4x2Storage", CKPT_QU4X2},
        {"QUInt2x4Storage", CKPT_QU2X4},
        /* Classes that Python does not have: libtorch's pickler names them by the dtype (c10/core/ScalarType.h). */
        {"ComplexHalfStorage", CKPT_C32},
        {"UInt16Storage", CKPT_U16},
        {"UInt32Storage", CKPT_U32},
        {"UInt64Storage", CKPT_U64},
        {"Float8_e4m3fnStorage", CKPT_F8_E4M3},
        {"Float8_e5m2Storage", CKPT_F8_E5M2},
        {"Float8_e4m3fnuzStorage", CKPT_F8_E4M3FNUZ},
        {"Float8_e5m2fnuzStorage", CKPT_F8_E5M2FNUZ},
        {"Float8_e8m0fnuStorage", CKPT_F8_E8M0},
        {"Float4_e2m1fn_x2Storage", CKPT_F4_E2M1_X2},
        {"Bits8Storage", CKPT_BITS8},
        {"Bits16Storage", CKPT_BITS16},
        {"Bits1x8Storage", CKPT_BITS1X8},
        {"Bits2x4Storage", CKPT_BITS2X4},
        {"Bits4x2Storage", CKPT_BITS4X2},
    };
    if (!global || global->kind != CKPT__P_GLOBAL)
        return false;
    ckpt_str module = global->u.global->module, name = global->u.global->name;
    *untyped = (ckpt__str_is(name, "UntypedStorage") || ckpt__str_is(name, "_UntypedStorage")) && /* 1.13; 1.11, 1.12 */
               (ckpt__str_is(module, "torch.storage") || ckpt__str_is(module, "torch"));
    *dtype = CKPT_U8;
    if (*untyped)
        return true;
    bool torch = ckpt__str_is(module, "torch") || ckpt__str_is(module, "torch.cuda");
    for (size_t i = 0; torch && i < sizeof classes / sizeof classes[0]; i++)
        if (ckpt__str_is(name, classes[i].name)) {
            *dtype = classes[i].dtype;
            return true;
        }
    return false;
}

ckpt_dtype ckpt__torch_dtype(const ckpt__pickle_node *global)
{
    static const struct {
        const char *alias;
        ckpt_dtype dtype;
    } aliases[] = {
        {"float", CKPT_F32}, {"double", CKPT_F64}, {"half", CKPT_F16},     {"long", CKPT_I64},  {"int", CKPT_I32},
        {"short", CKPT_I16}, {"cfloat", CKPT_C64}, {"cdouble", CKPT_C128}, {"chalf", CKPT_C32},
    };
    if (!global || global->kind != CKPT__P_GLOBAL || !ckpt__str_is(global->u.global->module, "torch"))
        return CKPT_DTYPE_NONE;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (ckpt__str_is(global->u.global->name, aliases[i].alias))
            return aliases[i].dtype;
    return ckpt_dtype_from_name(global->u.global->name.data);
}
