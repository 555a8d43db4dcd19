/* What stands in a torch pickle in odd ways: classes that a call finds, numpy dtypes that are none, subclasses of tensors
 * that bring functions of their own along. One odd value never costs the rest of the file. */
#include <ckpt/doctor.h>
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_reader *reader;
static torch_file *file;
static bytes *pickle;

static void setup(void)
{
    make_folder();
    file = begin_torch();
    pickle = &file->pickle;
    PUT(pickle, "}(");
}

static void teardown(void)
{
    ckpt_reader_close(reader);
    reader = NULL;
    remove_folder();
}

static void reads(void)
{
    PUT(pickle, "u");
    write_torch(at("x.pt"), file);
    ck_assert_msg(ckpt_reader_open(at("x.pt"), NULL, &reader, &err) == CKPT_OK, "%s: %s", err.object, err.message);
}

static const ckpt_value *value(const char *key)
{
    const ckpt_value *v = ckpt_value_get(ckpt_reader_root(reader), key);
    ck_assert_msg(v != NULL, "no %s", key);
    return v;
}

/* NULL: there is no such tensor. */
static const ckpt_tensor_info *tensor(const char *name)
{
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++)
        if (ckpt__str_is(ckpt_reader_tensor(reader, i)->name, name))
            return ckpt_reader_tensor(reader, i);
    return NULL;
}

static void is_class(const char *key, const char *name)
{
    ck_assert_str_eq(value(key)->class_name.data, name);
}

/* getattr(Outer, 'Inner'): how protocols below 4 write what lies in a class. */
static void put_inner(const char *name)
{
    put_global(pickle, "__builtin__", "getattr");
    put_global(pickle, "__main__", "Outer");
    put_str(pickle, name);
    PUT(pickle, "\x86R");
}

START_TEST(classes_that_a_call_finds)
{
    put_str(pickle, "class");
    put_inner("Inner");
    put_str(pickle, "object");
    put_inner("Inner");
    PUT(pickle, ")\x81");
    put_str(pickle, "keywords"); /* functools.partial(Outer.__new__, Outer, 1) and its call */
    put_global(pickle, "functools", "partial");
    put_inner("__new__");
    PUT(pickle, "\x85R(");
    put_inner("__new__");
    put_global(pickle, "__main__", "Outer");
    PUT(pickle, "K\1\x86}Ntb)R");
    put_str(pickle, "call of a call");
    put_global(pickle, "__main__", "f");
    PUT(pickle, ")R)R");
    put_str(pickle, "masked");
    put_global(pickle, "numpy.ma.core", "_mareconstruct");
    put_global(pickle, "numpy.ma", "MaskedArray");
    PUT(pickle, "\x85R");
    reads();
    is_class("class", "builtins.getattr"); /* a class, or a member of an enumeration */
    is_class("object", "__main__.Outer.Inner");
    is_class("keywords", "__main__.Outer");
    is_class("call of a call", "(result of a call)");
    is_class("masked", "numpy.ma.MaskedArray");
}
END_TEST

/* Complex numbers of 17 bytes, big-endian: swapping them by halves of 8 would read past their end. */
START_TEST(numpy_sizes_that_are_none)
{
    put_str(pickle, "array");
    put_global(pickle, "numpy._core.multiarray", "_reconstruct");
    put_global(pickle, "numpy", "ndarray");
    PUT(pickle, "K\0\x85U\1b\x87R(K\1K\1\x85");
    put_global(pickle, "numpy", "dtype");
    PUT(pickle, "X\3\0\0\0c17\x89\x88\x87R(K\3X\1\0\0\0>NNNK\x11K\0K\0tb\x89"
                "C\x11"
                "0123456789abcdefgtb");
    reads();
    ck_assert_int_eq(value("array")->kind, CKPT_V_OBJECT);
}
END_TEST

static void is_array(const char *key, const char *dtype, const char *data, size_t n)
{
    const ckpt_value *v = value(key);
    ck_assert_int_eq(v->kind, CKPT_V_ARRAY);
    ck_assert_str_eq(v->array->dtype.data, dtype);
    ck_assert(v->text.size == n && memcmp(v->text.data, data, n) == 0);
}

/* numpy.dtype(code, False, True), and its state up to the fields */
static void put_dtype(const char *code, const char *order)
{
    put_global(pickle, "numpy", "dtype");
    put_str(pickle, code);
    PUT(pickle, "\x89\x88\x87R(K\3");
    put_str(pickle, order);
}

static void put_simple_dtype(const char *code, const char *order)
{
    put_dtype(code, order);
    PUT(pickle, "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb");
}

/* What numpy.dtype.descr has: padding, titles, big-endian fields, records of records, and arrays of either as fields. */
START_TEST(numpy_records)
{
    put_str(pickle, "record");
    put_global(pickle, "numpy._core.multiarray", "_reconstruct");
    put_global(pickle, "numpy", "ndarray");
    PUT(pickle, "K\0\x85U\1b\x87R(K\1K\1\x85");
    put_dtype("V20", "|");
    PUT(pickle, "N(X\1\0\0\0aX\1\0\0\0pt}(X\1\0\0\0a");
    put_simple_dtype("u1", "|");
    PUT(pickle, "K\0");
    put_str(pickle, "title");
    PUT(pickle, "\x87X\1\0\0\0p");
    put_dtype("V12", "|");
    PUT(pickle, "(");
    put_dtype("V6", "|");
    PUT(pickle, "N(X\1\0\0\0xX\1\0\0\0yt}(X\1\0\0\0x");
    put_simple_dtype("i2", "<");
    PUT(pickle, "K\0\x86X\1\0\0\0y");
    put_dtype("V4", "|");
    PUT(pickle, "(");
    put_simple_dtype("i2", ">");
    PUT(pickle, "K\2K\1\x86tNNK\4K\1K\0tbK\2\x86uK\6K\1K\0tb");
    PUT(pickle, "K\2\x85tNNK\x0cK\1K\0tbK\4\x86uK\x14K\1K\0tb\x89"
                "C\x14"
                "0123456789abcdefghijtb");
    reads();
    is_array("record",
             "[(('title', 'a'), '|u1'), ('', '|V3'), ('p', [('x', '<i2'), ('y', '>i2', (2, 1))], (2,)), ('', '|V4')]",
             "0123456789abcdefghij", 20);
}
END_TEST

/* _frombuffer(b'...', dtype('u1'), (1, 2, 3), 'K', (1, 2, 0)): numpy's own array of the shape (2, 3, 1). */
START_TEST(numpy_axes_exchanged)
{
    for (int i = 0; i < 2; i++) {
        put_str(pickle, i ? "none such" : "turned");
        put_global(pickle, "numpy._core.numeric", "_frombuffer");
        PUT(pickle, "(C\6abcdef");
        put_simple_dtype("u1", "|");
        PUT(pickle, "K\2K\1K\3\x87X\1\0\0\0K");
        put(pickle, i ? "K\2K\0K\2\x87tR" : "K\2K\0K\1\x87tR", 9);
    }
    reads();
    const ckpt_value *v = value("turned");
    is_array("turned", "|u1", "adbecf", 6);
    ck_assert(v->array->ndim == 3 && v->array->shape[0] == 3 && v->array->shape[1] == 2 && v->array->shape[2] == 1);
    ck_assert_int_eq(value("none such")->kind, CKPT_V_OBJECT);
}
END_TEST

/* a, and a.view(torch.float8_e5m2): torch.save takes uint8 and untyped bytes for one dtype. */
START_TEST(bytes_under_two_classes)
{
    view v = {.class_name = "ByteStorage",
              .key = "0",
              .location = "cpu",
              .numel = 16,
              .ndim = 1,
              .stride_count = 1,
              .shape = {16},
              .strides = {1}};
    file->count = 1;
    file->numel[0] = 4;
    put_str(pickle, "bytes");
    put_tensor(pickle, &v);
    put_str(pickle, "f8");
    put_global(pickle, "torch._utils", "_rebuild_tensor_v3");
    PUT(pickle, "(");
    put_storage(pickle, "UntypedStorage", "0", "cpu", 16);
    PUT(pickle, "K\4K\3\x85K\1\x85\x89");
    put_ordered_dict(pickle);
    put_global(pickle, "torch", "float8_e5m2");
    PUT(pickle, "tR");
    reads();
    ck_assert_int_eq(tensor("f8")->dtype, CKPT_F8_E5M2);
    ck_assert_int_eq(tensor("f8")->offset, 4);
    ck_assert_int_eq(tensor("f8")->storage, tensor("bytes")->storage);
}
END_TEST

/* _rebuild_from_type_v2(_rebuild_njt, NestedTensor, ({'values': ..., 'offsets': ..., ...},), {}), and the same with a
 * function that is not torch's: what that makes is not known. */
START_TEST(subclasses_with_functions_of_their_own)
{
    static const char *const modules[] = {"torch.nested._internal.nested_tensor", "__main__"}, *const keys[] = {"rows",
                                                                                                                "own"};
    for (int i = 0; i < 2; i++) {
        put_str(pickle, keys[i]);
        put_global(pickle, "torch._tensor", "_rebuild_from_type_v2");
        PUT(pickle, "(");
        put_global(pickle, modules[i], "_rebuild_njt");
        put_inner("NestedTensor");
        PUT(pickle, "}(");
        put_str(pickle, "values");
        torch_tensor(file, 2, 3, 2, 1);
        put_str(pickle, "offsets");
        torch_tensor(file, 1, 3, 0, 7);
        put_str(pickle, "lengths");
        PUT(pickle, "N");
        put_str(pickle, "requires_grad");
        PUT(pickle, "\x88u\x85}tR");
    }
    put_str(pickle, "w");
    torch_tensor(file, 1, 4, 0, 0);
    reads();
    const ckpt_tensor_info *rows = tensor("rows"), *values = tensor("rows.values");
    ck_assert_ptr_nonnull(rows);
    ck_assert(ckpt__str_is(rows->extra->layout, "jagged"));
    ck_assert(ckpt__str_is(rows->extra->class_name, "__main__.Outer.NestedTensor"));
    ck_assert(rows->requires_grad);
    ck_assert_uint_eq(rows->extra->part_count, 2);
    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(values->shape[0], 3);
    ck_assert_int_eq(value("own")->kind, CKPT_V_OBJECT);
    ck_assert_ptr_null(tensor("own"));
    ck_assert_ptr_nonnull(tensor("w"));
}
END_TEST

static void put_new(const char *module, const char *name)
{
    put_global(pickle, module, name);
    PUT(pickle, ")\x81}(");
}

/* (None, {'_local_tensor': ..., '_spec': DTensorSpec(mesh, placements)}) as torch 2.13 writes it, and as an old one did. */
static void put_dtensor(const char *name, const char *mesh_names, int damage)
{
    static const char *const types = "torch.distributed.tensor.placement_types";
    put_str(pickle, name);
    begin_wrapper(pickle, "torch.distributed.tensor", "DTensor", 4);
    PUT(pickle, "N}(");
    put_str(pickle, "_local_tensor");
    torch_tensor(file, 1, 4, 0, 0);
    put_str(pickle, "_spec");
    put_new("torch.distributed.tensor._dtensor_spec", "DTensorSpec");
    put_str(pickle, "mesh");
    put_new("torch.distributed.device_mesh", "DeviceMesh");
    if (mesh_names) {
        put_str(pickle, mesh_names);
        put_str(pickle, "dp");
        put_str(pickle, "tp");
        PUT(pickle, "\x86");
    }
    PUT(pickle, "ub");
    put_str(pickle, "placements");
    put_new(types, "_StridedShard");
    put_str(pickle, "dim");
    PUT(pickle, "K\0");
    put_str(pickle, "split_factor");
    PUT(pickle, "K\2ub");
    if (damage)
        PUT(pickle, "K\7");
    else {
        put_new(types, "Partial");
        put_str(pickle, "reduce_op");
        put_str(pickle, "sum");
        PUT(pickle, "ub");
    }
    PUT(pickle, "\x86ubu\x86tR");
}

START_TEST(placements_are_told)
{
    put_dtensor("named", "_mesh_dim_names", 0);
    put_dtensor("old", "mesh_dim_names", 0);
    put_dtensor("bare", NULL, 0);
    put_dtensor("odd", NULL, 1);
    reads();
    ck_assert(ckpt__str_is(tensor("named")->extra->layout, "wrapper"));
    ck_assert(ckpt__str_is(tensor("named")->extra->placements, "dp: _StridedShard(dim=0, sf=2), tp: Partial(sum)"));
    ck_assert(ckpt__str_is(tensor("old")->extra->placements, "dp: _StridedShard(dim=0, sf=2), tp: Partial(sum)"));
    ck_assert(ckpt__str_is(tensor("bare")->extra->placements, "_StridedShard(dim=0, sf=2), Partial(sum)"));
    ck_assert_ptr_null(tensor("odd")->extra->placements.data);
    ck_assert_ptr_null(tensor("bare._local_tensor")->extra->placements.data);
}
END_TEST

static void loads(ckpt_outcome expected)
{
    ckpt_doctor_result r = CKPT_DOCTOR_RESULT_INIT;
    ckpt_doctor_options options = {.loader = CKPT_LOADER_TORCH};
    reads();
    ck_assert_msg(ckpt_doctor(reader, &options, &r, NULL, &err) == CKPT_OK, "%s", err.message);
    ck_assert_msg(r.outcome == expected, "%s, expected %s", ckpt_outcome_name(r.outcome), ckpt_outcome_name(expected));
    ckpt_doctor_result_clear(&r);
    ckpt_reader_close(reader);
    reader = NULL;
    file = begin_torch();
    PUT(pickle, "}(");
}

/* torch.ones(1).expand(2**20, 2**20): a terabyte of four bytes is not summed; the CRCs of others are. */
START_TEST(a_few_bytes_that_stand_for_terabytes)
{
    uint32_t crc;
    view v = {.class_name = "FloatStorage",
              .key = "0",
              .location = "cpu",
              .numel = 4,
              .ndim = 2,
              .stride_count = 2,
              .shape = {1 << 20, 1 << 20},
              .strides = {0, 0}};
    put_str(pickle, "w");
    torch_tensor(file, 1, 4, 0, 0);
    put_str(pickle, "wide");
    put_tensor(pickle, &v);
    reads();
    ck_assert_int_eq(ckpt_reader_crc32(reader, 0, &crc, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_crc32(reader, 1, &crc, &err), CKPT_E_UNSUPPORTED);
}
END_TEST

/* A tensor of a class, by a function of torch's. */
static void put_subclass(const char *module, const char *name)
{
    put_str(pickle, "w");
    put_global(pickle, "torch._tensor", "_rebuild_from_type_v2");
    PUT(pickle, "(");
    put_global(pickle, "torch._utils", "_rebuild_parameter");
    put_global(pickle, module, name);
    PUT(pickle, "(");
    torch_tensor(file, 1, 4, 0, 0);
    PUT(pickle, "\x89");
    put_ordered_dict(pickle);
    PUT(pickle, "t}tR");
}

/* torch.load(weights_only=True) refuses classes of tensors and of keys as it does those of values; it builds storages. */
START_TEST(what_weights_only_refuses)
{
    put_subclass("torch", "Tensor");
    loads(CKPT_OUTCOME_WEIGHTS_ONLY); /* it has no optimizer */
    put_subclass("torch.distributed.tensor", "DTensor");
    loads(CKPT_OUTCOME_WEIGHTS_ONLY);
    put_subclass("__main__", "Mine");
    loads(CKPT_OUTCOME_FAILS_AT_LOAD);
    put_str(pickle, "storage");
    put_storage(pickle, "FloatStorage", "0", "cpu", 4);
    put_str(pickle, "w");
    torch_tensor(file, 1, 4, 0, 0);
    loads(CKPT_OUTCOME_RESUMES_DIFFERENTLY);
    put_global(pickle, "pathlib", "PurePosixPath");
    PUT(pickle, "X\1\0\0\0a\x85R");
    torch_tensor(file, 1, 4, 0, 0);
    loads(CKPT_OUTCOME_FAILS_AT_LOAD);
}
END_TEST

/* As dill writes a class: setattr is called, and what it gives is thrown away. */
START_TEST(calls_for_their_effect)
{
    put_str(pickle, "w");
    torch_tensor(file, 1, 4, 0, 0);
    put_str(pickle, "made");
    put_global(pickle, "m", "make");
    PUT(pickle, ")R");
    put_global(pickle, "__builtin__", "setattr");
    PUT(pickle, "K\1K\2K\3\x87R0");
    reads();
    const ckpt_finding *f = ckpt_report_find(ckpt_reader_findings(reader), "calls-dropped", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->message, "1 call for the effect alone"));
    ck_assert_ptr_nonnull(strstr(f->message, "builtins.setattr"));
    ckpt_report *said = ckpt_report_new();
    ck_assert_int_eq(ckpt_migrate(at("x.pt"), at("y.pt"), NULL, said, &err), CKPT_OK);
    ck_assert_ptr_nonnull(ckpt_report_find(said, "calls-dropped", NULL));
    ckpt_report_free(said);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("torch_odd");
    TCase *t = tcase_create("odd");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, classes_that_a_call_finds);
    tcase_add_test(t, numpy_sizes_that_are_none);
    tcase_add_test(t, numpy_records);
    tcase_add_test(t, numpy_axes_exchanged);
    tcase_add_test(t, bytes_under_two_classes);
    tcase_add_test(t, subclasses_with_functions_of_their_own);
    tcase_add_test(t, placements_are_told);
    tcase_add_test(t, what_weights_only_refuses);
    tcase_add_test(t, calls_for_their_effect);
    tcase_add_test(t, a_few_bytes_that_stand_for_terabytes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
