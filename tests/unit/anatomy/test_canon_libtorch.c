/* What libtorch in C++ and bitsandbytes wrote, under the names of a state: canonical names, groups, and restores. */
#include <ckpt/ckpt.h>
#include "anatomy/canon.h"
#include "reader/reader.h"
#include "../script_emit.h"

static ckpt_error err;
static ckpt_reader *reader;
static ckpt_report *report;
static ckpt__canon *canon;
static ckpt__canon_hints hints;
static ckpt_state *state;
static ckpt_restore_options restore_options;

static void forget(void)
{
    ckpt__canon_free(canon);
    ckpt_reader_close(reader);
    canon = NULL;
    reader = NULL;
    ckpt_report_clear(report);
    memset(&err, 0, sizeof err);
}
static void setup(void)
{
    script_setup();
    report = ckpt_report_new();
    state = ckpt_state_new();
    ck_assert(report && state);
    memset(&hints, 0, sizeof hints);
    restore_options = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
}
static void teardown(void)
{
    forget();
    ckpt_report_free(report);
    ckpt_state_free(state);
    script_teardown();
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        ckpt_status status_ = (call);                                                                                  \
        ck_assert_msg(status_ >= 0, "%s: %s: %s", #call, err.object, err.message);                                     \
    } while (0)

static ckpt_status try_build(void)
{
    forget();
    OK(ckpt_reader_open(path, NULL, &reader, &err));
    return ckpt__canon_build(reader->index, &hints, &canon, report, &err);
}
static void build(void)
{
    OK(try_build());
}
static void failed(const char *expected)
{
    ck_assert_int_eq(try_build(), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, expected) != NULL, "'%s' lacks '%s'", err.message, expected);
}
static bool has(const char *name)
{
    return ckpt__hash_get(canon->by_name, name, strlen(name), NULL);
}
static const ckpt__canon_entry *get(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt__hash_get(canon->by_name, name, strlen(name), &i), "no entry '%s'", name);
    return &canon->entries[i];
}
static void from(const char *name, const char *own)
{
    ck_assert_str_eq(get(name)->own.data, own);
    ck_assert(!get(name)->outside);
}
static void names_given(const char *const *names, size_t n)
{
    hints.param_names = names;
    hints.param_name_count = n;
}
/* No entry is called as the file calls a part of the optimizer. */
static void nothing_left_of(const char *own)
{
    for (size_t i = 0; i < canon->count; i++)
        ck_assert_msg(strncmp(canon->entries[i].name.data, own, strlen(own)) != 0, "'%s' is left",
                      canon->entries[i].name.data);
}

/* ---- names */

static void a_trainer(void)
{
    begin();
    open_as("__torch__", "Module");
    open_at("model");
    small_model();
    shut();
    open_at("optimizer");
    small_optimizer();
    shut();
    integer("step", 7);
    text("note", "hello");
    shut();
    finish();
}

START_TEST(a_trainers_archive)
{
    a_trainer();
    build();
    from("fc1.weight", "model.fc1.weight");
    from("bn.running_mean", "model.bn.running_mean");
    /* by the groups' order, whatever that of the states is */
    from("optimizer.fc1.weight.exp_avg", "optimizer.state.94640276305168.exp_avg");
    from("optimizer.fc1.bias.exp_avg_sq", "optimizer.state.94640276306848.exp_avg_sq");
    from("optimizer.bn.weight.exp_avg", "optimizer.state.94640276302688.exp_avg");
    from("optimizer.bn.bias.exp_avg", "optimizer.state.94640276303568.exp_avg");
    from("optimizer.fc2.weight.exp_avg", "optimizer.state.94640276312624.exp_avg");
    ck_assert_int_eq(get("optimizer.fc2.weight.step")->value->integer, 7);
    ck_assert_int_eq(get("optimizer.fc2.weight.step")->role, CKPT_ROLE_STEP);
    ck_assert(get("optimizer.groups.0.lr")->value->real == 0.01);
    ck_assert(get("optimizer.groups.0.betas.1")->value->real == 0.999);
    ck_assert(get("optimizer.groups.0.weight_decay")->value->real == 0.1);
    ck_assert(!get("optimizer.groups.0.amsgrad")->value->boolean);
    from("step", "step");
    ck_assert_uint_eq(canon->group_count, 1);
    ck_assert_uint_eq(canon->groups[0].param_count, 5);
    ck_assert_int_eq(canon->groups[0].flags.fused, -1);
    ck_assert_str_eq(canon->model_path.data, "model");
    ck_assert_str_eq(canon->optimizer_path.data, "optimizer");
    nothing_left_of("optimizer.param_groups");
    nothing_left_of("optimizer.pytorch_version");
    nothing_left_of("optimizer.state");
    ck_assert(get("note")->outside);
}
END_TEST

/* A module alone keeps its names whole, however its submodules nest; one submodule is not taken for the model. */
START_TEST(a_module_alone)
{
    begin();
    open_as("__torch__", "Module");
    open_at("net");
    open_at("body");
    floats("weight", 3, 2, true);
    shut();
    shut();
    shut();
    finish();
    build();
    from("net.body.weight", "net.body.weight");
    ck_assert_uint_eq(canon->count, 1);
}
END_TEST

/* Lists of a scripted module are its attributes: they are neither parameters nor buffers. */
START_TEST(attributes_stay_outside)
{
    begin();
    open_as("__torch__", "Net");
    floats("weight", 3, 2, true);
    key("others");
    PUT(&pickle, "](");
    rebuild(store(2, false), "FloatStorage", 2, 1, 2, 0, true);
    PUT(&pickle, "e");
    key("training");
    PUT(&pickle, "\x88");
    shut();
    finish();
    build();
    from("weight", "weight");
    ck_assert(get("others.0")->outside);
    ck_assert(get("training")->outside);
}
END_TEST

static void two_groups(void)
{
    begin();
    open_as("__torch__", "Module");
    text("pytorch_version", "1.5.0");
    small_state();
    open_at("param_groups");
    group_of("param_groups/1", 3, 2, 0.02, 0);
    group_of("param_groups/0", 0, 3, 0.01, 0.1); /* libtorch reads them by name */
    count("param_groups/size");
    shut();
    shut();
    finish();
}

START_TEST(an_optimizer_alone)
{
    two_groups();
    failed("the file has no model");
    ck_assert_str_eq(err.object, "the root");
    names_given(small_names, 5);
    build();
    from("optimizer.fc1.weight.exp_avg", "state.94640276305168.exp_avg");
    from("optimizer.fc2.weight.exp_avg", "state.94640276312624.exp_avg");
    ck_assert_uint_eq(canon->group_count, 2);
    ck_assert_str_eq(canon->groups[1].params[1].data, "fc2.weight");
    ck_assert(get("optimizer.groups.0.lr")->value->real == 0.01);
    ck_assert(get("optimizer.groups.1.lr")->value->real == 0.02);
    names_given(small_names, 4);
    failed("4 parameter names were given, and the optimizer's groups hold 5 parameters");
    names_given(NULL, 0);
    hints.optional_optimizer = true;
    build();
    ck_assert(get("state.94640276305168.exp_avg")->outside);
}
END_TEST

/* libtorch's parameters() has a tied parameter as often as it is registered. */
START_TEST(a_parameter_listed_twice)
{
    static const char *const all[] = {"fc1.weight", "fc1.bias", "tied.weight", "bn.weight"};
    begin();
    open_as("__torch__", "Module");
    text("pytorch_version", "1.5.0");
    small_state();
    open_at("param_groups");
    count("param_groups/size");
    open_at("param_groups/0");
    text("params/0", addresses[0]);
    text("params/1", addresses[1]);
    text("params/2", addresses[0]);
    text("params/3", addresses[2]);
    options(0.1, 0);
    shut();
    shut();
    shut();
    finish();
    names_given(all, 4);
    build();
    from("optimizer.fc1.weight.exp_avg", "state.94640276305168.exp_avg");
    from("optimizer.bn.weight.exp_avg", "state.94640276302688.exp_avg");
    ck_assert(!has("optimizer.tied.weight.exp_avg"));
    ck_assert_uint_eq(canon->groups[0].param_count, 3);
    ck_assert_uint_eq(ckpt_report_count_code(report, "dead-state"), 1);
    static const char *const once[] = {"fc1.weight", "fc1.bias", "bn.weight"};
    names_given(once, 3);
    build();
    from("optimizer.bn.weight.exp_avg", "state.94640276302688.exp_avg");
}
END_TEST

START_TEST(numbers_with_holes)
{
    static const char *const wrong[] = {"params/7", "params/00", "params/0"};
    for (size_t i = 0; i < 3; i++) {
        begin();
        open_as("__torch__", "Module");
        small_state();
        open_at("param_groups");
        open_at("param_groups/0");
        text("params/0", addresses[0]);
        text(wrong[i], addresses[1]);
        shut();
        shut();
        shut();
        finish();
        names_given(small_names, 2);
        /* a key that comes twice is one, with the last value */
        failed(i < 2 ? "libtorch numbers them from 0 without a hole" : "the optimizer's groups hold 1 parameters");
    }
}
END_TEST

static void before_1_5(void)
{
    begin();
    open_as("__torch__", "Module");
    for (int list = 0; list < 3; list++) {
        static const char *const lists[] = {"step_buffers", "exp_average_buffers", "exp_average_sq_buffers"};
        char name[64];
        snprintf(name, sizeof name, "%s/size", lists[list]);
        count(name);
        for (int i = 0; i < 5; i++) {
            snprintf(name, sizeof name, "%s/%d", lists[list], i);
            if (list == 0)
                count(name);
            else
                floats(name, i == 4 ? 2 : 3, i == 0 ? 2 : i == 4 ? 3 : 0, false);
        }
    }
    count("max_exp_average_sq_buffers/size");
    shut();
    finish();
}

START_TEST(lists_before_1_5)
{
    before_1_5();
    failed("the file has no model");
    names_given(small_names, 5);
    build();
    from("optimizer.fc1.weight.step", "step_buffers/0");
    from("optimizer.fc2.weight.exp_avg", "exp_average_buffers/4");
    from("optimizer.bn.bias.exp_avg_sq", "exp_average_sq_buffers/3");
    ck_assert_uint_eq(canon->count, 15); /* the sizes are none of them */
    ck_assert_uint_eq(canon->groups[0].param_count, 5);
}
END_TEST

/* ---- restores */

static float weights[6], bias[3], bn[2][3], fc2[6], avg[5][6], square[5][6], mean[3];
static int64_t tracked, steps[5];
static double lr, beta;

static const int64_t shapes[5][2] = {{3, 2}, {3, 0}, {3, 0}, {3, 0}, {2, 3}};

static void bind(const char *name, const char *param, ckpt_role role, const char *state_key, ckpt_dtype dtype,
                 uint32_t ndim, const int64_t *shape, void *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.state_key = state_key;
    d.dtype = dtype;
    d.ndim = ndim;
    d.shape = shape;
    d.data = data;
    OK(ckpt_state_tensor(state, &d, &err));
}
static void bind_model(void)
{
    float *const data[] = {weights, bias, bn[0], bn[1], fc2};
    for (int i = 0; i < 5; i++)
        bind(small_names[i], NULL, CKPT_ROLE_PARAM, NULL, CKPT_F32, shapes[i][1] ? 2 : 1, shapes[i], data[i]);
    bind("bn.running_mean", NULL, CKPT_ROLE_BUFFER, NULL, CKPT_F32, 1, shapes[1], mean);
    bind("bn.num_batches_tracked", NULL, CKPT_ROLE_BUFFER, NULL, CKPT_I64, 0, NULL, &tracked);
}
static void bind_group(const char *name, const char *const *params, size_t n)
{
    static const ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr}, {"betas.0", CKPT_SCALAR_F64, &beta}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = name;
    g.params = params;
    g.param_count = n;
    g.hypers = hypers;
    g.hyper_count = 2;
    OK(ckpt_state_group(state, &g, &err));
}
static void bind_optimizer(void)
{
    for (int i = 0; i < 5; i++) {
        bind(NULL, small_names[i], CKPT_ROLE_EXP_AVG, NULL, CKPT_F32, shapes[i][1] ? 2 : 1, shapes[i], avg[i]);
        bind(NULL, small_names[i], CKPT_ROLE_EXP_AVG_SQ, NULL, CKPT_F32, shapes[i][1] ? 2 : 1, shapes[i], square[i]);
        bind(NULL, small_names[i], CKPT_ROLE_STEP, NULL, CKPT_I64, 0, NULL, &steps[i]);
    }
}
static ckpt_status try_restore(void)
{
    memset(&err, 0, sizeof err);
    return ckpt_restore(state, path, &restore_options, report, &err);
}

START_TEST(restore_a_trainer)
{
    int64_t step = 0;
    a_trainer();
    bind_model();
    bind_optimizer();
    bind_group("0", small_names, 5);
    OK(ckpt_state_i64(state, "step", &step, &err));
    OK(try_restore());
    ck_assert(weights[5] == 5 && bias[1] == 101 && bn[1][2] == 302 && mean[0] == 400 && fc2[0] == 600);
    ck_assert_int_eq(tracked, 500);
    ck_assert(avg[4][0] == 700 && square[4][5] == 805 && avg[1][2] == 902 && avg[0][1] == 1101 && avg[2][0] == 1500);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(steps[i], 7);
    ck_assert(lr == 0.01 && beta == 0.9 && step == 7);
}
END_TEST

START_TEST(restore_a_module)
{
    begin();
    open_as("__torch__", "Module");
    small_model();
    shut();
    finish();
    bind_model();
    OK(try_restore());
    ck_assert(weights[5] == 5 && fc2[0] == 600);
    ck_assert_int_eq(tracked, 500);
}
END_TEST

/* The file has no model: the state's groups say which parameter each address is. */
START_TEST(restore_an_optimizer)
{
    two_groups();
    bind_model();
    bind_optimizer();
    restore_options.allow_missing = true; /* the model is in another file */
    bind_group("0", small_names, 3);
    bind_group("1", small_names + 3, 2);
    OK(try_restore());
    ck_assert(avg[4][0] == 0 && square[4][5] == 105 && avg[1][2] == 202 && avg[0][1] == 401 && avg[2][0] == 800);
    ck_assert_int_eq(steps[3], 7);
    ck_assert(lr == 0.02);
    const ckpt_finding *f = ckpt_report_find(report, "order-hypothesis", NULL);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_NOTE && strstr(f->message, "the state's own groups"), "%s",
                  f ? f->message : "none");
}
END_TEST

START_TEST(groups_of_other_sizes)
{
    two_groups();
    bind_model();
    bind_optimizer();
    restore_options.allow_missing = true;
    bind_group("0", small_names, 2);
    bind_group("1", small_names + 2, 3);
    ck_assert_int_eq(try_restore(), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "the file has no model") != NULL, "%s", err.message);
    restore_options.param_names = small_names;
    restore_options.param_name_count = 5;
    ck_assert_int_eq(try_restore(), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "group-mismatch", NULL));
}
END_TEST

START_TEST(restore_lists_before_1_5)
{
    before_1_5();
    bind_optimizer();
    restore_options.param_names = small_names;
    restore_options.param_name_count = 5;
    OK(try_restore());
    ck_assert_int_eq(steps[4], 500); /* step_buffers/4 is the sixth storage */
    ck_assert(avg[0][5] == 705 && avg[4][1] == 1101 && square[1][0] == 1400);
}
END_TEST

/* A state holds dense tensors: what is stored in another way is named, whatever its dtype and shape. */
START_TEST(not_dense)
{
    static const int64_t shape[] = {5, 6};
    static float dense[30];
    static signed char codes[4];
    begin();
    open_as("__torch__", "Module");
    key("s");
    put_global(&pickle, "torch._utils", "_rebuild_sparse_tensor");
    PUT(&pickle, "(K\1");
    put_ints(&pickle, shape, 2);
    PUT(&pickle, "\x89");
    rebuild(store(4, true), "LongStorage", 4, 2, 2, 2, false);
    rebuild(store(2, false), "FloatStorage", 2, 1, 2, 0, false);
    put_ordered_dict(&pickle);
    PUT(&pickle, "tR");
    key("q");
    store(1, false);
    put_global(&pickle, "torch._utils", "_rebuild_qtensor");
    PUT(&pickle, "(");
    put_storage(&pickle, "QInt8Storage", "2", "cpu", 4);
    put_int(&pickle, 0);
    put_ints(&pickle, (int64_t[]){4}, 1);
    put_ints(&pickle, (int64_t[]){1}, 1);
    PUT(&pickle, "(");
    put_global(&pickle, "torch", "per_tensor_affine");
    PUT(&pickle, "G\x3f\xe0\0\0\0\0\0\0K\0t\x89");
    put_ordered_dict(&pickle);
    PUT(&pickle, "tR");
    shut();
    finish();
    bind("s", NULL, CKPT_ROLE_PARAM, NULL, CKPT_F32, 2, shape, dense);
    bind("q", NULL, CKPT_ROLE_PARAM, NULL, CKPT_QI8, 1, (int64_t[]){4}, codes);
    restore_options.allow_cast = true;
    ck_assert_int_eq(try_restore(), CKPT_E_MISMATCH);
    const ckpt_finding *s = ckpt_report_find(report, "no-data", "s"), *q = ckpt_report_find(report, "no-data", "q");
    ck_assert(s && q);
    ck_assert_ptr_nonnull(strstr(s->message, "its layout in the checkpoint is sparse_coo"));
    ck_assert_ptr_nonnull(strstr(q->message, "it is quantized in the checkpoint (per_tensor_affine)"));
}
END_TEST

/* A frozen parameter has no state, so a buffer like it does not make the order ambiguous; that it may be one is said. */
START_TEST(a_frozen_parameter)
{
    begin();
    open_as("__torch__", "Module");
    open_at("model");
    floats("scale", 3, 0, true);
    floats("frozen", 4, 0, false);
    floats("table", 4, 0, false);
    floats("weight", 2, 2, true);
    shut();
    open_at("optimizer");
    text("pytorch_version", "1.5.0");
    open_at("state");
    moments(addresses[2], 2, 2);
    moments(addresses[0], 3, 0);
    shut();
    open_at("param_groups");
    count("param_groups/size");
    group_of("param_groups/0", 0, 3, 0.1, 0);
    shut();
    shut();
    integer("step", 1);
    shut();
    finish();
    build();
    from("optimizer.scale.exp_avg", "optimizer.state.94640276305168.exp_avg");
    from("optimizer.weight.exp_avg", "optimizer.state.94640276302688.exp_avg");
    ck_assert_str_eq(canon->groups[0].params[1].data, "frozen");
    const ckpt_finding *f = ckpt_report_find(report, "order-hypothesis", NULL);
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_WARNING);
    ck_assert_ptr_nonnull(strstr(f->message, "those without state are is not sure"));
}
END_TEST

/* ---- for programs in Python */

static size_t listed(const char *name)
{
    for (size_t i = 0; i < reader->index->tensor_count; i++)
        if (ckpt__str_is(reader->index->tensors[i].info.name, name))
            return i;
    ck_abort_msg("no tensor '%s'", name);
    return 0;
}

/* An optimizer that is keyed by addresses becomes what torch's own in Python loads; the rest of the archive is kept. */
START_TEST(migrated_for_python)
{
    char out[128];
    ckpt_migrate_options o = {.to = "torch"};
    a_trainer();
    snprintf(out, sizeof out, "%s/py.pt", folder);
    OK(ckpt_migrate(path, out, &o, report, &err));
    ckpt_reader_close(reader);
    reader = NULL;
    OK(ckpt_reader_open(out, NULL, &reader, &err));
    unlink(out);
    listed("model.fc1.weight");
    ck_assert_int_eq(reader->index->tensors[listed("optimizer.state.4.exp_avg")].info.shape[1], 3);
    const ckpt_value *root = reader->index->root, *optimizer = ckpt_value_get(root, "optimizer"),
                     *groups = ckpt_value_get(optimizer, "param_groups");
    ck_assert_int_eq(groups->kind, CKPT_V_LIST);
    ck_assert_uint_eq(groups->item_count, 1);
    const ckpt_value *params = ckpt_value_get(groups->items[0], "params");
    ck_assert_uint_eq(params->item_count, 5);
    ck_assert_int_eq(params->items[4]->integer, 4);
    ck_assert(ckpt_value_get(groups->items[0], "weight_decay")->real == 0.1);
    const ckpt_value *state0 = ckpt_value_get(optimizer, "state")->entries[0].value;
    ck_assert_int_eq(ckpt_value_get(state0, "step")->integer, 7);
    ck_assert_str_eq(ckpt_value_get(root, "note")->text.data, "hello");
    ck_assert_ptr_null(root->class_name.data); /* nothing names a class that Python does not have */
    ck_assert_ptr_null(ckpt_value_get(optimizer, "pytorch_version"));
}
END_TEST

/* Modules are flat dicts for it, which load_state_dict takes; names are what they were, and can be changed. */
START_TEST(a_module_for_python)
{
    static const char *const renames[] = {"fc1(.*)=first$1"};
    char out[128];
    begin();
    open_as("__torch__", "Module");
    small_model();
    shut();
    finish();
    snprintf(out, sizeof out, "%s/py.pt", folder);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"fc1.weight", "fc1.weight", "first.weight", "net.fc1.weight"};
        ckpt_migrate_options o = {.to = "torch",
                                  .weights_only = i == 1,
                                  .rename = renames,
                                  .rename_count = i == 2,
                                  .add_prefix = i == 3 ? "net." : NULL};
        OK(ckpt_migrate(path, out, &o, report, &err));
        ckpt_reader_close(reader);
        reader = NULL;
        OK(ckpt_reader_open(out, NULL, &reader, &err));
        unlink(out);
        const ckpt_value *weight = ckpt_value_get(reader->index->root, names[i]);
        ck_assert_msg(weight && weight->kind == CKPT_V_TENSOR, "'%s' is no key of the root", names[i]);
        ck_assert_uint_eq(reader->index->root->entry_count, 7);
        ck_assert_int_eq(reader->index->root->kind, CKPT_V_DICT); /* no class that Python does not have */
    }
}
END_TEST

/* A prefix is for parameters: an optimizer that is keyed by addresses has no names in it. */
START_TEST(an_optimizer_has_no_names)
{
    char out[128];
    ckpt_migrate_options o = {.to = "torch", .add_prefix = "net."};
    begin();
    open_as("__torch__", "Module");
    open_at("state");
    open_at(addresses[0]);
    floats("momentum_buffer", 3, 2, false);
    shut();
    shut();
    open_at("param_groups");
    open_at("param_groups/0");
    params_of(0, 1);
    shut();
    shut();
    shut();
    finish();
    snprintf(out, sizeof out, "%s/py.pt", folder);
    OK(ckpt_migrate(path, out, &o, report, &err));
    OK(ckpt_reader_open(out, NULL, &reader, &err));
    unlink(out);
    listed("state.0.momentum_buffer");
}
END_TEST

/* ---- bitsandbytes */

/* state1 and absmax1 of uint8 and float32, one qmap1 for all, in the dict that FSDP is to leave alone; step is an int. */
static void eight_bit_state(int id, bool nested, int qmap)
{
    put_int(&pickle, id);
    PUT(&pickle, "}(");
    integer("step", 3);
    if (nested) {
        key("__bnb_optimizer_quant_state__");
        PUT(&pickle, "}(");
    }
    key("state1");
    rebuild(store(2, true), "ByteStorage", 16, 2, 4, 4, false);
    key("qmap1");
    rebuild(qmap, "FloatStorage", 8, 1, 8, 0, false);
    key("absmax1");
    rebuild(store(1, false), "FloatStorage", 1, 1, 1, 0, false);
    PUT(&pickle, "u");
    if (nested)
        PUT(&pickle, "u");
}

static void eight_bit(bool nested)
{
    begin();
    PUT(&pickle, "}(");
    key("model");
    put_ordered_dict(&pickle);
    PUT(&pickle, "(");
    floats("a.weight", 4, 4, false);
    floats("b.weight", 4, 4, false);
    PUT(&pickle, "u");
    int qmap = store(8, false);
    key("optimizer");
    PUT(&pickle, "}(");
    key("state");
    PUT(&pickle, "}(");
    eight_bit_state(0, nested, qmap);
    eight_bit_state(1, nested, qmap);
    PUT(&pickle, "u");
    key("param_groups");
    PUT(&pickle, "](}(");
    real("lr", 0.5);
    key("params");
    PUT(&pickle, "](K\0K\1eue");
    PUT(&pickle, "uu.");
    add("m/data.pkl", pickle.data, pickle.size);
    add("m/version", "3\n", 2);
    put_end64(&zip, 0, 0, 0);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(zip.file.data, 1, zip.file.size, f), zip.file.size);
    ck_assert_int_eq(fclose(f), 0);
    memset(&zip, 0, sizeof zip);
    storages = 0;
}

START_TEST(eight_bit_names)
{
    for (int nested = 0; nested < 2; nested++) {
        eight_bit(nested);
        build();
        from("optimizer.a.weight.state1",
             nested ? "optimizer.state.0.__bnb_optimizer_quant_state__.state1" : "optimizer.state.0.state1");
        from("optimizer.b.weight.absmax1",
             nested ? "optimizer.state.1.__bnb_optimizer_quant_state__.absmax1" : "optimizer.state.1.absmax1");
        ck_assert_str_eq(get("optimizer.b.weight.absmax1")->param.data, "b.weight");
        ck_assert_str_eq(get("optimizer.b.weight.absmax1")->state_key.data, "absmax1");
        ck_assert_int_eq(get("optimizer.b.weight.step")->value->integer, 3);
        const ckpt__tensor *one = &reader->index->tensors[get("optimizer.a.weight.qmap1")->tensor],
                           *two = &reader->index->tensors[get("optimizer.b.weight.qmap1")->tensor];
        ck_assert_uint_eq(one->storage, two->storage);
    }
}
END_TEST

static float big[2][16], qmap[2][8], absmax[2][1];
static unsigned char state1[2][16];
static int64_t bnb_step[2];

static void bind_eight_bit(ckpt_dtype dtype, void *data)
{
    static const char *const names[] = {"a.weight", "b.weight"};
    static const int64_t shape[] = {4, 4}, eight[] = {8}, one[] = {1};
    for (int i = 0; i < 2; i++) {
        bind(names[i], NULL, CKPT_ROLE_PARAM, NULL, CKPT_F32, 2, shape, big[i]);
        bind(NULL, names[i], CKPT_ROLE_OPTIM, "state1", i ? CKPT_U8 : dtype, 2, shape, i ? (void *)state1[i] : data);
        bind(NULL, names[i], CKPT_ROLE_OPTIM, "qmap1", CKPT_F32, 1, eight, qmap[i]);
        bind(NULL, names[i], CKPT_ROLE_OPTIM, "absmax1", CKPT_F32, 1, one, absmax[i]);
        bind(NULL, names[i], CKPT_ROLE_STEP, NULL, CKPT_I64, 0, NULL, &bnb_step[i]);
    }
}

START_TEST(restore_eight_bit)
{
    eight_bit(true);
    bind_eight_bit(CKPT_U8, state1[0]);
    OK(try_restore());
    ck_assert_int_eq(state1[0][0], 300 % 256); /* the third storage holds 300, 301 as int64 */
    ck_assert_int_eq(state1[0][1], 300 / 256);
    ck_assert_int_eq(state1[1][8], 501 % 256);
    ck_assert(qmap[0][7] == 207 && qmap[1][7] == 207);
    ck_assert(absmax[0][0] == 400 && absmax[1][0] == 600);
    ck_assert(bnb_step[0] == 3 && bnb_step[1] == 3);
    ck_assert_uint_eq(ckpt_report_count_code(report, "cast"), 0);
}
END_TEST

/* Quantized codes are not numbers that can be cast. */
START_TEST(eight_bit_is_never_cast)
{
    static float other[16];
    eight_bit(true);
    bind_eight_bit(CKPT_F32, other);
    ck_assert_int_eq(try_restore(), CKPT_E_MISMATCH);
    const ckpt_finding *f = ckpt_report_find(report, "dtype-mismatch", "optimizer.a.weight.state1");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(strstr(f->message, "it is uint8 in the checkpoint and float32 in the state"));
}
END_TEST

/* What belongs to a parameter goes where it goes: four of a.weight with it, and nothing of b.weight. */
START_TEST(eight_bit_follows_its_parameter)
{
    eight_bit(true);
    static const int64_t shape[] = {4, 4}, eight[] = {8}, one[] = {1};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "b.weight" : "a.weight";
        bind(name, NULL, CKPT_ROLE_PARAM, NULL, CKPT_F32, 2, shape, NULL);
        bind(NULL, name, CKPT_ROLE_OPTIM, "state1", CKPT_U8, 2, shape, NULL);
        bind(NULL, name, CKPT_ROLE_OPTIM, "qmap1", CKPT_F32, 1, eight, NULL);
        bind(NULL, name, CKPT_ROLE_OPTIM, "absmax1", CKPT_F32, 1, one, NULL);
        bind(NULL, name, CKPT_ROLE_STEP, NULL, CKPT_I64, 0, NULL, &bnb_step[i]);
    }
    ckpt_map *map;
    static const char rules[] = "map: 1\nrules:\n- {name: a.weight, to: 'cuda:61'}\ndefault: cpu\n";
    OK(ckpt_map_parse_yaml(rules, sizeof rules - 1, "rules", &map, &err));
    restore_options.map = map;
    ck_assert_int_eq(try_restore(), CKPT_E_MISMATCH);
    const ckpt_finding *f = ckpt_report_find(report, "no-such-device", NULL);
    ck_assert_ptr_nonnull(f);
    ck_assert_msg(strstr(f->message, "4 tensors are to go to cuda:61, and there ") != NULL, "%s", f->message);
    ckpt_map_free(map);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("canon_libtorch");
    TCase *t = tcase_create("names");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_trainers_archive);
    tcase_add_test(t, a_module_alone);
    tcase_add_test(t, attributes_stay_outside);
    tcase_add_test(t, an_optimizer_alone);
    tcase_add_test(t, a_parameter_listed_twice);
    tcase_add_test(t, numbers_with_holes);
    tcase_add_test(t, lists_before_1_5);
    tcase_add_test(t, restore_a_trainer);
    tcase_add_test(t, restore_a_module);
    tcase_add_test(t, restore_an_optimizer);
    tcase_add_test(t, groups_of_other_sizes);
    tcase_add_test(t, restore_lists_before_1_5);
    tcase_add_test(t, not_dense);
    tcase_add_test(t, a_frozen_parameter);
    tcase_add_test(t, migrated_for_python);
    tcase_add_test(t, a_module_for_python);
    tcase_add_test(t, an_optimizer_has_no_names);
    tcase_add_test(t, eight_bit_names);
    tcase_add_test(t, restore_eight_bit);
    tcase_add_test(t, eight_bit_is_never_cast);
    tcase_add_test(t, eight_bit_follows_its_parameter);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return run_suite(suite());
}
