/* Archives of libtorch in C++ and of TorchScript: tensors, attributes and roles, read from data.pkl. */
#include "format/table.h"
#include "../script_emit.h"

static ckpt_error err;
static ckpt__source *source;
static ckpt__index *x;

static void forget(void)
{
    ckpt__index_free(x);
    ckpt__source_close(source);
    x = NULL;
    source = NULL;
    memset(&err, 0, sizeof err);
}
static void setup(void)
{
    script_setup();
}
static void teardown(void)
{
    forget();
    script_teardown();
}
static ckpt_status try_read(void)
{
    forget();
    ck_assert_msg(ckpt__source_open(path, &source, &err) == CKPT_OK, "%s", err.message);
    ckpt__read_request request = ckpt__read_all(source);
    return ckpt__format_read(&request, NULL, &x, &err);
}
static void must_read(void)
{
    ckpt_status s = try_read();
    ck_assert_msg(s == CKPT_OK, "%s: %s", err.object, err.message);
}
static void must_refuse(ckpt_status status, const char *message)
{
    ckpt_status s = try_read();
    ck_assert_msg(s == status, "status %d, expected %d: %s", s, status, err.message);
    ck_assert_msg(strstr(err.message, message) != NULL, "'%s' lacks '%s'", err.message, message);
}
static const ckpt_tensor_info *named(const char *name)
{
    for (size_t i = 0; i < x->tensor_count; i++)
        if (ckpt__str_is(x->tensors[i].info.name, name))
            return &x->tensors[i].info;
    ck_abort_msg("no tensor '%s'", name);
    return NULL;
}
static const ckpt_value *at(const ckpt_value *v, const char *name)
{
    const ckpt_value *out = ckpt_value_get(v, name);
    ck_assert_msg(out != NULL, "no value '%s'", name);
    return out;
}
static const char *finding(const char *code)
{
    const ckpt_finding *f = ckpt_report_find(x->findings, code, NULL);
    ck_assert_msg(f != NULL, "no finding '%s'", code);
    return f->message;
}

/* ---- modules */

START_TEST(a_module)
{
    static const char *const order[] = {
        "fc1.weight", "fc1.bias", "bn.weight", "bn.bias", "bn.running_mean", "bn.num_batches_tracked", "fc2.weight"};
    begin();
    open_as("__torch__", "Module");
    small_model();
    shut();
    finish();
    must_read();
    ck_assert_uint_eq(x->tensor_count, 7);
    for (size_t i = 0; i < 7; i++)
        ck_assert_str_eq(x->tensors[i].info.name.data, order[i]);
    const ckpt_tensor_info *fc2 = named("fc2.weight");
    ck_assert_int_eq(fc2->dtype, CKPT_F32);
    ck_assert_uint_eq(fc2->ndim, 2);
    ck_assert_int_eq(fc2->shape[0], 2);
    ck_assert_int_eq(fc2->strides[0], 3);
    ck_assert_str_eq(fc2->device.data, "cpu");
    ck_assert(fc2->requires_grad && !fc2->inside);
    const ckpt__storage *s = &x->storages[x->tensors[6].storage];
    float first;
    ck_assert_int_eq(ckpt__source_read(source, 0, s->extent.offset, &first, sizeof first, &err), CKPT_OK);
    ck_assert(first == 600);
    ck_assert_str_eq(x->format, "torch");
    ck_assert_ptr_nonnull(strstr(finding("torchscript"), "libtorch in C++"));
    ck_assert_int_eq(x->root->kind, CKPT_V_DICT);
    ck_assert_str_eq(x->root->class_name.data, "__torch__.Module");
    ck_assert_str_eq(at(x->root, "fc1")->class_name.data, "__torch__.Module");
}
END_TEST

START_TEST(roles_of_a_module)
{
    begin();
    open_as("__torch__", "Module");
    small_model();
    open_at("pos");
    floats("table", 4, 0, false);
    shut();
    shut();
    finish();
    must_read();
    ck_assert_int_eq(named("fc1.weight")->role, CKPT_ROLE_PARAM);
    ck_assert_int_eq(named("bn.running_mean")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(named("bn.num_batches_tracked")->role, CKPT_ROLE_BUFFER);
    ck_assert_int_eq(named("pos.table")->role, CKPT_ROLE_BUFFER); /* the others require a gradient */
}
END_TEST

/* Nothing says what is a buffer where nothing requires a gradient. */
START_TEST(roles_without_gradients)
{
    begin();
    open_as("__torch__", "Module");
    floats("0", 3, 2, false);
    floats("1", 4, 0, false);
    shut();
    finish();
    must_read();
    ck_assert_uint_eq(x->tensor_count, 2);
    ck_assert_int_eq(named("0")->role, CKPT_ROLE_PARAM);
    ck_assert_int_eq(named("1")->role, CKPT_ROLE_PARAM);
}
END_TEST

/* ---- attributes */

static void tagged(const char *name, const char *function, const char *inner, size_t n, const char *type)
{
    key(name);
    put_global(&pickle, "torch.jit._pickle", function);
    PUT(&pickle, "(");
    put(&pickle, inner, n);
    if (type)
        put_str(&pickle, type);
    PUT(&pickle, "tR");
}

static void scripted(void)
{
    begin();
    open_as("__torch__.net.___torch_mangle_12", "Net");
    key("training");
    PUT(&pickle, "\x88");
    key("hook");
    PUT(&pickle, "N");
    floats("weight", 2, 0, true);
    tagged("names", "restore_type_tag", "](X\1\0\0\0aX\1\0\0\0be", 15, "List[str]");
    tagged("ints", "build_intlist", "](K\1K\2K\3e", 9, NULL);
    tagged("table", "restore_type_tag", "}(X\1\0\0\0kG\x3f\xe0\0\0\0\0\0\0u", 18, "Dict[str, float]");
    key("inner");
    open_as("__torch__.torch.nn.modules.linear", "Linear");
    floats("weight", 2, 2, true);
    shut();
}

START_TEST(a_scripted_module)
{
    scripted();
    shut();
    add("m/constants/0", "12345678", 8);
    add("m/constants/1", "12345678", 8);
    add("m/extra/config.json", "{}", 2);
    finish();
    must_read();
    ck_assert_uint_eq(x->tensor_count, 2);
    ck_assert_str_eq(x->root->class_name.data, "__torch__.net.Net");
    ck_assert_str_eq(at(x->root, "inner")->class_name.data, "__torch__.torch.nn.modules.linear.Linear");
    ck_assert(at(x->root, "training")->kind == CKPT_V_BOOL && at(x->root, "training")->boolean);
    ck_assert_int_eq(at(x->root, "hook")->kind, CKPT_V_NONE);
    const ckpt_value *names = at(x->root, "names"), *ints = at(x->root, "ints"), *table = at(x->root, "table");
    ck_assert_int_eq(names->kind, CKPT_V_LIST);
    ck_assert_uint_eq(names->item_count, 2);
    ck_assert_str_eq(names->items[1]->text.data, "b");
    ck_assert_ptr_null(names->class_name.data);
    ck_assert_int_eq(ints->kind, CKPT_V_LIST);
    ck_assert_int_eq(ints->items[2]->integer, 3);
    ck_assert_int_eq(table->kind, CKPT_V_DICT);
    ck_assert(at(table, "k")->real == 0.5);
    ck_assert_ptr_nonnull(strstr(finding("torchscript"), "torch.jit.save"));
    ck_assert_ptr_nonnull(
        strstr(finding("constants-of-code"), "(the records constants/*): 2. They do not belong to its state"));
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(x->findings, "constants-of-code", NULL)->fix, "code_with_constants"));
    ck_assert_ptr_nonnull(strstr(finding("extra-files"), "1 extra files"));
}
END_TEST

/* A class with a __getstate__ of its own, as the packed weights of quantized layers have it. */
START_TEST(a_state_that_is_no_dict)
{
    scripted();
    key("packed");
    put_global(&pickle, "__torch__.torch.classes.quantized", "LinearPackedParamsBase");
    PUT(&pickle, ")\x81(K\5");
    rebuild(store(2, false), "FloatStorage", 2, 1, 2, 0, false);
    PUT(&pickle, "tb");
    key("single");
    put_global(&pickle, "__torch__", "Box");
    PUT(&pickle, ")\x81");
    rebuild(store(4, false), "FloatStorage", 4, 1, 4, 0, false);
    PUT(&pickle, "b");
    shut();
    finish();
    must_read();
    ck_assert_uint_eq(x->tensor_count, 4);
    ck_assert_int_eq(named("packed.1")->shape[0], 2);
    ck_assert(!named("packed.1")->inside);
    ck_assert_int_eq(named("single.0")->shape[0], 4);
    ck_assert_int_eq(at(x->root, "packed")->kind, CKPT_V_TUPLE);
    ck_assert_str_eq(at(x->root, "packed")->class_name.data,
                     "__torch__.torch.classes.quantized.LinearPackedParamsBase");
    ck_assert_ptr_null(ckpt_report_find(x->findings, "closed-tensors", NULL));
}
END_TEST

/* The names of dtypes that only libtorch's pickler gives to storages. */
START_TEST(storages_of_libtorch)
{
    static const struct {
        const char *class_name;
        ckpt_dtype dtype;
    } table[] = {{"UInt16Storage", CKPT_U16},
                 {"UInt32Storage", CKPT_U32},
                 {"UInt64Storage", CKPT_U64},
                 {"ComplexHalfStorage", CKPT_C32},
                 {"Float8_e4m3fnStorage", CKPT_F8_E4M3},
                 {"Float8_e8m0fnuStorage", CKPT_F8_E8M0},
                 {"Bits16Storage", CKPT_BITS16}};
    begin();
    open_as("__torch__", "Module");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int n = store((int64_t)ckpt_dtype_size(table[i].dtype), false); /* as many floats as are four elements */
        key(table[i].class_name);
        rebuild(n, table[i].class_name, 4, 1, 4, 0, false);
    }
    shut();
    finish();
    must_read();
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        ck_assert_int_eq(named(table[i].class_name)->dtype, table[i].dtype);
}
END_TEST

/* libtorch's pickler writes sparse tensors in its own way: layout's number, size, requires_grad, the parts, hooks. */
START_TEST(a_sparse_tensor)
{
    begin();
    open_as("__torch__", "Module");
    key("s");
    put_global(&pickle, "torch._utils", "_rebuild_sparse_tensor");
    PUT(&pickle, "(K\1");
    put_ints(&pickle, (int64_t[]){5, 6}, 2);
    PUT(&pickle, "\x89");
    rebuild(store(4, true), "LongStorage", 4, 2, 2, 2, false);
    rebuild(store(2, false), "FloatStorage", 2, 1, 2, 0, false);
    put_ordered_dict(&pickle);
    PUT(&pickle, "tR");
    size_t layout = 0;
    while (memcmp(pickle.data + layout, "(K\1", 3) != 0)
        layout++;
    shut();
    bytes unknown = pickle;
    archive same = zip;
    finish();
    must_read();
    const ckpt_tensor_info *s = named("s");
    ck_assert_str_eq(s->extra->layout.data, "sparse_coo");
    ck_assert_uint_eq(s->extra->part_count, 2);
    ck_assert_int_eq(s->shape[1], 6);
    ck_assert_int_eq(s->dtype, CKPT_F32);
    ck_assert_int_eq(named("s.indices")->dtype, CKPT_I64);
    pickle = unknown;
    zip = same;
    pickle.data[layout + 2] = 3; /* Mkldnn: not saved so */
    finish();
    must_refuse(CKPT_E_FORMAT, "a layout whose number is not known");
}
END_TEST

START_TEST(a_conjugated_view)
{
    begin();
    open_as("__torch__", "Module");
    key("c");
    store(4, false);
    put_global(&pickle, "torch._utils", "_rebuild_tensor_v2");
    PUT(&pickle, "(");
    put_storage(&pickle, "ComplexFloatStorage", "0", "cpu", 2);
    put_int(&pickle, 0);
    put_ints(&pickle, (int64_t[]){2}, 1);
    put_ints(&pickle, (int64_t[]){1}, 1);
    PUT(&pickle, "\x89");
    put_ordered_dict(&pickle);
    put_global(&pickle, "torch.jit._pickle", "restore_type_tag");
    PUT(&pickle, "(}X\4\0\0\0conj\x88s");
    put_str(&pickle, "Dict[str, bool]");
    PUT(&pickle, "tRtR");
    shut();
    finish();
    must_read();
    ck_assert(named("c")->conj && !named("c")->neg);
}
END_TEST

/* ---- optimizers */

START_TEST(roles_of_an_optimizer)
{
    begin();
    open_as("__torch__", "Module");
    small_optimizer();
    shut();
    finish();
    must_read();
    const ckpt_tensor_info *t = named("state.94640276305168.exp_avg");
    ck_assert_int_eq(t->role, CKPT_ROLE_EXP_AVG);
    ck_assert_str_eq(t->state_key.data, "exp_avg");
    ck_assert_str_eq(t->group.data, "0");
    ck_assert_ptr_null(t->param.data); /* an address is no name */
    ck_assert_int_eq(named("param_groups.param_groups/size")->role, CKPT_ROLE_OPTIM);
    ck_assert_str_eq(named("param_groups.param_groups/0.params/size")->group.data, "0");
    ck_assert_str_eq(at(x->root, "pytorch_version")->text.data, "1.5.0");
    const ckpt_value *g = at(at(x->root, "param_groups"), "param_groups/0");
    ck_assert_str_eq(at(g, "params/1")->text.data, addresses[1]);
    ck_assert(at(at(g, "options"), "betas")->items[1]->real == 0.999);
}
END_TEST

START_TEST(roles_before_1_5)
{
    begin();
    open_as("__torch__", "Module");
    count("step_buffers/size");
    count("step_buffers/0");
    floats("exp_average_buffers/0", 3, 0, false);
    floats("max_exp_average_sq_buffers/0", 3, 0, false);
    floats("exp_average_buffers/x", 3, 0, false);
    shut();
    finish();
    must_read();
    ck_assert_int_eq(named("step_buffers/0")->role, CKPT_ROLE_STEP);
    ck_assert_int_eq(named("exp_average_buffers/0")->role, CKPT_ROLE_EXP_AVG);
    ck_assert_str_eq(named("exp_average_buffers/0")->state_key.data, "exp_avg");
    ck_assert_int_eq(named("max_exp_average_sq_buffers/0")->role, CKPT_ROLE_MAX_EXP_AVG_SQ);
    ck_assert_int_eq(named("step_buffers/size")->role, CKPT_ROLE_OPTIM);
    ck_assert_int_eq(named("exp_average_buffers/x")->role, CKPT_ROLE_PARAM);
}
END_TEST

/* ---- what is not as it should be */

/* 1.3 and 1.4 counted the elements of the tensor and wrote the whole storage; less is damage. */
START_TEST(a_longer_record)
{
    begin();
    open_as("__torch__", "Module");
    key("part");
    rebuild(store(6, false), "FloatStorage", 2, 1, 2, 0, false);
    shut();
    finish();
    must_read();
    ck_assert_uint_eq(named("part")->nbytes, 8);
    ck_assert_uint_eq(named("part")->storage_nbytes, 24);
    begin();
    open_as("__torch__", "Module");
    key("part");
    rebuild(store(6, false), "FloatStorage", 7, 1, 2, 0, false);
    shut();
    finish();
    must_refuse(CKPT_E_DAMAGED, "need 28 bytes, and the record has 24");
}
END_TEST

START_TEST(refused_by_name)
{
    add("m/model.json", "{}", 2);
    add("m/tensors/0", "1234", 4);
    put_end64(&zip, 0, 0, 0);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(zip.file.data, 1, zip.file.size, f), zip.file.size);
    ck_assert_int_eq(fclose(f), 0);
    must_refuse(CKPT_E_UNSUPPORTED, "a TorchScript archive");
    ck_assert_ptr_nonnull(strstr(err.message, "torch.jit.save(torch.jit.load(FILE)"));
}
END_TEST

/* Cut anywhere, data.pkl is not a pickle, and that is what is said. */
START_TEST(every_truncation)
{
    begin();
    open_as("__torch__", "Module");
    small_model();
    small_optimizer();
    shut();
    PUT(&pickle, ".");
    static bytes all;
    static archive records;
    all = pickle;
    records = zip;
    for (size_t n = 0; n < all.size; n++) {
        pickle = all;
        pickle.size = n;
        zip = records;
        write_file();
        ckpt_status s = try_read();
        ck_assert_msg(s == CKPT_E_DAMAGED || s == CKPT_E_FORMAT, "%zu bytes: status %d: %s", n, s, err.message);
    }
    pickle = all;
    zip = records;
    write_file();
    must_read();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("torch_script");
    TCase *t = tcase_create("read");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, a_module);
    tcase_add_test(t, roles_of_a_module);
    tcase_add_test(t, roles_without_gradients);
    tcase_add_test(t, a_scripted_module);
    tcase_add_test(t, a_state_that_is_no_dict);
    tcase_add_test(t, storages_of_libtorch);
    tcase_add_test(t, a_sparse_tensor);
    tcase_add_test(t, a_conjugated_view);
    tcase_add_test(t, roles_of_an_optimizer);
    tcase_add_test(t, roles_before_1_5);
    tcase_add_test(t, a_longer_record);
    tcase_add_test(t, refused_by_name);
    tcase_add_test(t, every_truncation);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
