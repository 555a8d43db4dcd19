/* One call restores a bound state from what the trainers of the field leave: a step of the HF Trainer, accelerate's
 * directory, a Lightning file, an adapter, a model in shards. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

enum { PARAMS = 4, MOST = 12 };
static const char *const names[PARAMS] = {"h.0.weight", "h.0.bias", "norm.weight", "head.weight"};
/* As torch's optimizer has them (its order), and as a safetensors file lists them. */
static const flat in_order[PARAMS] = {
    {"h.0.weight", 2, {3, 4}}, {"h.0.bias", 1, {3, 0}}, {"norm.weight", 1, {2, 0}}, {"head.weight", 2, {2, 3}}};
static const flat by_name[PARAMS] = {
    {"h.0.bias", 1, {3, 0}}, {"h.0.weight", 2, {3, 4}}, {"head.weight", 2, {2, 3}}, {"norm.weight", 1, {2, 0}}};
/* The same in the two groups of the Trainer: what decays, and what does not. */
static const flat in_groups[PARAMS] = {
    {"h.0.weight", 2, {3, 4}}, {"head.weight", 2, {2, 3}}, {"h.0.bias", 1, {3, 0}}, {"norm.weight", 1, {2, 0}}};

static float weight[PARAMS][MOST], first[PARAMS][MOST], second[PARAMS][MOST], count[PARAMS];
static int64_t step;
static ckpt_scaler scaler;
static ckpt_state *state;
static ckpt_report *report;
static ckpt_error err;

static void bind(const char *name, const char *param, ckpt_role role, int ndim, const int64_t *shape, void *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = (uint32_t)ndim;
    d.shape = shape;
    d.data = data;
    ck_assert_msg(ckpt_state_tensor(state, &d, &err) == CKPT_OK, "%s", err.message);
}

static void setup(void)
{
    make_folder();
    memset(&err, 0, sizeof err);
    memset(weight, 0, sizeof weight);
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);
    memset(count, 0, sizeof count);
    step = -1;
    scaler = (ckpt_scaler){1, 1, 1, 1, 1};
    state = ckpt_state_new();
    report = ckpt_report_new();
}

static void teardown(void)
{
    ckpt_state_free(state);
    ckpt_report_free(report);
    remove_folder();
}

static void bind_all(void)
{
    for (int i = 0; i < PARAMS; i++) {
        bind(names[i], NULL, CKPT_ROLE_PARAM, in_order[i].ndim, in_order[i].shape, weight[i]);
        bind(NULL, names[i], CKPT_ROLE_EXP_AVG, in_order[i].ndim, in_order[i].shape, first[i]);
        bind(NULL, names[i], CKPT_ROLE_EXP_AVG_SQ, in_order[i].ndim, in_order[i].shape, second[i]);
        bind(NULL, names[i], CKPT_ROLE_STEP, 0, NULL, &count[i]);
    }
}

/* Where parameter i stands in a list. */
static size_t place(const flat *list, int i)
{
    size_t k = 0;
    while (strcmp(list[k].name, names[i]) != 0)
        k++;
    return k;
}

static size_t numel(const flat *t)
{
    return (size_t)(t->shape[0] * (t->ndim > 1 ? t->shape[1] : 1));
}

/* Weights count from `from` on in the order of `model`; moments are those of put_adam in the order of `optimizer`. */
static void expect_all(const flat *model, float from, const flat *optimizer)
{
    for (int i = 0; i < PARAMS; i++) {
        size_t n = numel(&in_order[i]), before = 0, slot = place(optimizer, i);
        for (size_t k = 0; k < place(model, i); k++)
            before += numel(&model[k]);
        for (size_t k = 0; k < n; k++) {
            ck_assert_msg(weight[i][k] == from + (float)(before + k), "%s[%zu] is %g", names[i], k,
                          (double)weight[i][k]);
            ck_assert_msg(first[i][k] == 100 * (float)(slot + 1) + (float)k, "exp_avg of %s is %g", names[i],
                          (double)first[i][k]);
            ck_assert(second[i][k] == 1000 * (float)(slot + 1) + (float)k);
        }
        ck_assert(count[i] == 3);
    }
}

static void restores(const char *path, const ckpt_restore_options *options)
{
    ckpt_status status = ckpt_restore(state, path, options, report, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
}

static void write_scaler(const char *path)
{
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor"};
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    for (int i = 0; i < 3; i++) {
        put_str(&t->pickle, keys[i]);
        torch_float(t, i == 0 ? 256 : i == 1 ? 2 : 0.5);
    }
    put_str(&t->pickle, "growth_interval");
    put_int(&t->pickle, 2000);
    put_str(&t->pickle, "_growth_tracker");
    put_int(&t->pickle, 3);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static void make_trainer(void)
{
    make_directory("checkpoint-12");
    write_safetensors(at("checkpoint-12/model.safetensors"), by_name, PARAMS, 7);
    write_adam(at("checkpoint-12/optimizer.pt"), in_groups, PARAMS, 2, 0.1);
    write_torch_int(at("checkpoint-12/scheduler.pt"), "last_epoch", 12);
    write_scaler(at("checkpoint-12/scaler.pt"));
    write_text(at("checkpoint-12/trainer_state.json"), "{\"global_step\": 12, \"epoch\": 0.5}");
    write_text(at("checkpoint-12/config.json"), "{\"step\": 99}");
}

START_TEST(a_step_of_the_trainer)
{
    make_trainer();
    bind_all();
    ck_assert_int_eq(ckpt_state_i64(state, "step", &step, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_state_scaler(state, "scaler", &scaler, &err), CKPT_OK);
    restores(at("checkpoint-12"), NULL);
    expect_all(by_name, 7, in_groups);
    ck_assert_int_eq(step, 12);
    ck_assert(scaler.scale == 256 && scaler.growth_tracker == 3);
    ck_assert_uint_eq(ckpt_report_count_code(report, "order-hypothesis"), 1);
}
END_TEST

START_TEST(a_map_names_the_places)
{
    static const char text[] = "map: 1\nsource: {model: model.safetensors, optimizer: optimizer.pt, scaler: scaler.pt, "
                               "step: trainer_state.json.global_step}\n";
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_map *map = NULL, *wrong = NULL;
    make_trainer();
    bind_all();
    ck_assert_int_eq(ckpt_state_i64(state, "step", &step, &err), CKPT_OK);
    ck_assert_msg(ckpt_map_parse_yaml(text, strlen(text), "map", &map, &err) == CKPT_OK, "%s", err.message);
    o.map = map;
    restores(at("checkpoint-12"), &o);
    expect_all(by_name, 7, in_groups);
    ck_assert_int_eq(step, 12);
    static const char other[] = "map: 1\nsource: {model: optimizer.bin}\n";
    ck_assert_int_eq(ckpt_map_parse_yaml(other, strlen(other), "map", &wrong, &err), CKPT_OK);
    o.map = wrong;
    ck_assert_int_eq(ckpt_restore(state, at("checkpoint-12"), &o, report, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "model.safetensors"));
    ckpt_map_free(map);
    ckpt_map_free(wrong);
}
END_TEST

START_TEST(what_accelerate_saves)
{
    make_directory("state");
    write_torch_flat(at("state/pytorch_model.bin"), in_order, PARAMS, 40);
    write_adam(at("state/optimizer.bin"), in_order, PARAMS, PARAMS, 0.1);
    write_scaler(at("state/scaler.pt"));
    write_torch_int(at("state/random_states_0.pkl"), "step", 77);
    bind_all();
    ck_assert_int_eq(ckpt_state_i64(state, "step", &step, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_state_scaler(state, "scaler", &scaler, &err), CKPT_OK);
    restores(at("state"), NULL);
    expect_all(in_order, 40, in_order);
    ck_assert_int_eq(step, 3); /* that of its parameters, not that of the random states */
    ck_assert(scaler.scale == 256);
}
END_TEST

START_TEST(parts_on_two_disks)
{
    const char *other;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    make_directory("disk0");
    make_directory("disk1");
    write_torch_flat(at("disk0/pytorch_model.bin"), in_order, PARAMS, 40);
    write_torch_int(at("disk0/random_states_0.pkl"), "step", 0);
    write_adam(at("disk1/optimizer.bin"), in_order, PARAMS, PARAMS, 0.1);
    write_torch_int(at("disk1/random_states_1.pkl"), "step", 0);
    bind_all();
    ck_assert_int_eq(ckpt_restore(state, at("disk0"), &o, report, &err), CKPT_E_MISMATCH);
    other = at("disk1");
    o.also = &other;
    o.also_count = 1;
    restores(at("disk0"), &o);
    expect_all(in_order, 40, in_order);
}
END_TEST

START_TEST(a_lightning_file)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "epoch");
    put_int(b, 1);
    put_str(b, "global_step");
    put_int(b, 12);
    put_str(b, "pytorch-lightning_version");
    put_str(b, "2.6.6");
    put_str(b, "state_dict");
    PUT(b, "}(");
    for (int i = 0; i < PARAMS; i++) {
        put_str(b, in_order[i].name);
        torch_tensor(t, in_order[i].ndim, in_order[i].shape[0], in_order[i].shape[1], 10 * (float)i);
    }
    PUT(b, "u");
    put_str(b, "optimizer_states");
    PUT(b, "](");
    put_adam(t, in_order, PARAMS, PARAMS, 0);
    PUT(b, "eu");
    write_torch(at("epoch=1-step=12.ckpt"), t);
    bind_all();
    ck_assert_int_eq(ckpt_state_i64(state, "step", &step, &err), CKPT_OK);
    restores(at("epoch=1-step=12.ckpt"), NULL);
    ck_assert_int_eq(step, 12);
    ck_assert(weight[3][5] == 35 && first[3][5] == 405 && second[0][0] == 1000);
    make_directory("checkpoints");
    ck_assert_int_eq(rename(at("epoch=1-step=12.ckpt"), at("checkpoints/epoch=1-step=12.ckpt")), 0);
    step = -1;
    memset(first, 0, sizeof first);
    restores(at("checkpoints"), NULL);
    ck_assert_int_eq(step, 12);
    ck_assert(first[3][5] == 405);
}
END_TEST

START_TEST(an_adapter_with_its_optimizer)
{
    static const flat lora[2] = {{"base_model.model.q.lora_A.weight", 2, {2, 5}},
                                 {"base_model.model.q.lora_B.weight", 2, {6, 2}}};
    float a[10], b[12], ma[10], mb[12];
    make_directory("adapter");
    write_safetensors(at("adapter/adapter_model.safetensors"), lora, 2, 1);
    write_text(at("adapter/adapter_config.json"), "{\"r\": 2}");
    write_adam(at("adapter/optimizer.pt"), lora, 2, 2, 0);
    write_text(at("adapter/trainer_state.json"), "{\"global_step\": 5}");
    bind("base_model.model.q.lora_A.weight", NULL, CKPT_ROLE_PARAM, 2, lora[0].shape, a);
    bind("base_model.model.q.lora_B.weight", NULL, CKPT_ROLE_PARAM, 2, lora[1].shape, b);
    bind(NULL, "base_model.model.q.lora_A.weight", CKPT_ROLE_EXP_AVG, 2, lora[0].shape, ma);
    bind(NULL, "base_model.model.q.lora_B.weight", CKPT_ROLE_EXP_AVG, 2, lora[1].shape, mb);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true; /* exp_avg_sq and step are not asked for */
    restores(at("adapter"), &o);
    ck_assert(a[0] == 1 && a[9] == 10 && b[0] == 11 && b[11] == 22);
    ck_assert(ma[0] == 100 && mb[0] == 200);
}
END_TEST

START_TEST(a_model_in_shards)
{
    make_directory("hf");
    write_safetensors(at("hf/model-00001-of-00002.safetensors"), by_name, 2, 0);
    write_safetensors(at("hf/model-00002-of-00002.safetensors"), by_name + 2, 2, 60);
    write_text(
        at("hf/model.safetensors.index.json"),
        "{\"weight_map\":{\"h.0.bias\":\"model-00001-of-00002.safetensors\",\"h.0.weight\":\"model-00001-of-00002."
        "safetensors\","
        "\"head.weight\":\"model-00002-of-00002.safetensors\",\"norm.weight\":\"model-00002-of-00002.safetensors\"}}");
    write_adam(at("hf/optimizer.pt"), in_groups, PARAMS, 2, 0.1);
    write_text(at("hf/trainer_state.json"), "{\"global_step\": 5}");
    bind_all();
    restores(at("hf"), NULL);
    ck_assert(weight[1][0] == 0 && weight[0][0] == 3 && weight[3][0] == 60 && weight[2][1] == 67);
    ck_assert(first[0][0] == 100 && first[3][0] == 200 && first[1][0] == 300 && first[2][0] == 400);
}
END_TEST

/* q and k have one shape, and the file lists them by name: nothing says whose moments are whose. */
START_TEST(what_cannot_be_told_is_asked_for)
{
    static const flat file[2] = {{"k.weight", 2, {2, 2}}, {"q.weight", 2, {2, 2}}};
    static const flat torch_order[2] = {{"q.weight", 2, {2, 2}}, {"k.weight", 2, {2, 2}}};
    static const char *const order[2] = {"q.weight", "k.weight"};
    static const int64_t shape[2] = {2, 2};
    float q[4], mq[4] = {0};
    make_directory("c");
    write_safetensors(at("c/model.safetensors"), file, 2, 1);
    write_adam(at("c/optimizer.bin"), torch_order, 2, 2, 0);
    bind("q.weight", NULL, CKPT_ROLE_PARAM, 2, shape, q);
    bind(NULL, "q.weight", CKPT_ROLE_EXP_AVG, 2, shape, mq);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true;
    ck_assert_int_eq(ckpt_restore(state, at("c"), &o, report, &err), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, "'k.weight'") && strstr(err.message, "'q.weight'") &&
                      strstr(err.message, "param_names"),
                  "%s", err.message);
    ck_assert(mq[0] == 0);
    o.param_names = order;
    o.param_name_count = 2;
    restores(at("c"), &o);
    ck_assert(q[0] == 5 && mq[0] == 100);
}
END_TEST

static void fix_of(const char *code, const char *tensor, const char *said)
{
    const ckpt_finding *f = ckpt_report_find(report, code, tensor);
    ck_assert_msg(f && strstr(f->fix, said), "'%s' is not in: %s", said, f ? f->fix : "no finding");
}

static void one_file(const flat *list)
{
    write_safetensors(at("m.safetensors"), list, 2, 1);
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true;
    ck_assert_int_eq(ckpt_restore(state, at("m.safetensors"), &o, report, &err), CKPT_E_MISMATCH);
}

/* What is missing may be there under another name: then that is the advice, and not to do without. */
START_TEST(missing_under_another_name)
{
    static const flat longer[2] = {{"backbone.a.b", 1, {2, 0}}, {"backbone.c", 1, {2, 0}}};
    static const flat shorter[2] = {{"b", 1, {2, 0}}, {"c", 1, {2, 0}}};
    static const flat other[2] = {{"xa.b", 1, {2, 0}}, {"d", 1, {2, 0}}};
    static const int64_t two[1] = {2};
    float b[2], m[2];
    bind("a.b", NULL, CKPT_ROLE_PARAM, 1, two, b);
    bind(NULL, "a.b", CKPT_ROLE_EXP_AVG, 1, two, m);
    one_file(longer);
    fix_of("missing", "a.b",
           "with 'backbone.' before it: take that off with the map's source: {strip_prefix: ['backbone.']}");
    fix_of("missing", "optimizer.a.b.exp_avg", "strip_prefix: ['backbone.']");
    ck_assert_ptr_nonnull(strstr(err.message, "; the checkpoint has it with 'backbone.' before it"));
    one_file(shorter);
    fix_of("missing", "a.b", "without 'a.': bind it so, or give it this name with the map's source.rename");
    one_file(other);
    fix_of("missing", "a.b", "if it is meant to be new");
}
END_TEST

START_TEST(groups_that_differ)
{
    static const char *const params[] = {"h.0.weight", "h.0.bias"};
    double lr;
    ckpt_hyper hyper = {"lr", CKPT_SCALAR_F64, &lr};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    make_trainer();
    bind_all();
    g.name = "0";
    g.params = params;
    g.param_count = 2;
    g.hypers = &hyper;
    g.hyper_count = 1;
    ck_assert_int_eq(ckpt_state_group(state, &g, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_restore(state, at("checkpoint-12"), NULL, report, &err), CKPT_E_MISMATCH);
    ck_assert_str_eq(
        ckpt_report_find(report, "group-mismatch", "0")->message,
        "parameter group '0' has 2 parameters in the state and 2 in the checkpoint; 'h.0.bias' is in the state's only");
    fix_of("group-mismatch", "0", "bind the groups with the parameters that they have in the checkpoint");
}
END_TEST

START_TEST(names_that_are_null)
{
    const char *order[2] = {"h.0.weight", NULL};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    make_trainer();
    bind_all();
    o.param_names = order;
    o.param_name_count = 2;
    ck_assert_int_eq(ckpt_restore(state, at("checkpoint-12"), &o, report, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "param_names[1] of 2 is NULL"));
    o.param_names = NULL;
    ck_assert_int_eq(ckpt_restore(state, at("checkpoint-12"), &o, report, &err), CKPT_E_ARGUMENT);

    ckpt_migrate_options move = CKPT_MIGRATE_OPTIONS_INIT;
    move.param_names = order;
    move.param_name_count = 2;
    err.message[0] = '\0';
    ck_assert_int_eq(ckpt_migrate(at("checkpoint-12"), at("moved.ckpt"), &move, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "param_names[1] of 2 is NULL"));

    ckpt_reader *reader = NULL;
    ckpt_naming *naming = NULL;
    ck_assert_int_eq(ckpt_reader_open(at("checkpoint-12"), NULL, &reader, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_naming_new(reader, &(ckpt_naming_options){.param_names = order, .param_name_count = 2},
                                     &naming, NULL, &err),
                     CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_naming_new(reader, &(ckpt_naming_options){.param_names = NULL, .param_name_count = 2},
                                     &naming, NULL, &err),
                     CKPT_E_ARGUMENT);
    ckpt_doctor_options ask = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
    ask.param_names = order;
    ask.param_name_count = 2;
    err.message[0] = '\0';
    ck_assert_int_eq(ckpt_doctor(reader, &ask, &answer, NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "param_names[1] of 2 is NULL"));
    ckpt_reader_close(reader);
}
END_TEST

/* The files of one checkpoint by their names, where the directory holds others too: the module's, and also the optimizer's. */
START_TEST(files_by_their_names)
{
    char model[200], optimizer[200];
    const char *also[] = {optimizer};
    snprintf(model, sizeof model, "%s", at("module.pt"));
    snprintf(optimizer, sizeof optimizer, "%s", at("optimizer.pt"));
    write_torch_flat(model, in_order, PARAMS, 10);
    write_adam(optimizer, in_order, PARAMS, PARAMS, 0);
    write_torch_flat(at("other.pt"), by_name, PARAMS, 90);
    write_adam(at("optimizer-old.pt"), in_order, PARAMS, PARAMS, 0);
    bind_all();
    ck_assert_int_eq(ckpt_restore(state, model, NULL, report, &err), CKPT_E_MISMATCH); /* half of it */
    ckpt_restore_options o = {.also = also, .also_count = 1};
    ck_assert_msg(ckpt_restore(state, model, &o, report, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert(weight[0][0] == 10 && count[0] > 0);
    ckpt_reader *reader = NULL;
    ckpt_reader_options r = {.also = also, .also_count = 1};
    ck_assert_msg(ckpt_reader_open(model, &r, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_gt(ckpt_reader_tensor_count(reader), PARAMS);
    ckpt_reader_close(reader);
    also[0] = at("nothing.pt");
    ck_assert_int_lt(ckpt_restore(state, model, &o, report, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.object, "nothing.pt"));
}
END_TEST

/* The same of libtorch, whose optimizer numbers its parameters by dead addresses. */
START_TEST(libtorch_files_by_their_names)
{
    char model[1000], optimizer[1000];
    const char *top = getenv("srcdir") ? getenv("srcdir") : ".", *also[] = {optimizer};
    snprintf(model, sizeof model, "%s/tests/data/peers/libtorch-module.pt", top);
    snprintf(optimizer, sizeof optimizer, "%s/tests/data/peers/libtorch-optimizer.pt", top);
    ckpt_reader_options r = {.also = also, .also_count = 1};
    ckpt_reader *reader = NULL;
    ckpt_naming *naming = NULL;
    ck_assert_msg(ckpt_reader_open(model, &r, &reader, &err) == CKPT_OK, "%s", err.message);
    ck_assert_msg(ckpt_naming_new(reader, NULL, &naming, report, &err) == CKPT_OK, "%s", err.message);
    ckpt_naming_free(naming);
    size_t moments = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++)
        moments += ckpt_reader_tensor(reader, i)->role == CKPT_ROLE_EXP_AVG;
    ck_assert_uint_eq(moments, 6);
    ckpt_reader_close(reader);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore_folder");
    TCase *t = tcase_create("restore_folder");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_step_of_the_trainer);
    tcase_add_test(t, a_map_names_the_places);
    tcase_add_test(t, what_accelerate_saves);
    tcase_add_test(t, parts_on_two_disks);
    tcase_add_test(t, a_lightning_file);
    tcase_add_test(t, an_adapter_with_its_optimizer);
    tcase_add_test(t, a_model_in_shards);
    tcase_add_test(t, what_cannot_be_told_is_asked_for);
    tcase_add_test(t, missing_under_another_name);
    tcase_add_test(t, groups_that_differ);
    tcase_add_test(t, names_that_are_null);
    tcase_add_test(t, files_by_their_names);
    tcase_add_test(t, libtorch_files_by_their_names);
    suite_add_tcase(s, t);
    return run_suite(s);
}
