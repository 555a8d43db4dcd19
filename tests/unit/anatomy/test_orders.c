/* More than one order of an optimizer's parameters fits: who must give names refuses, who goes by position warns. */
#include <stdlib.h>
#include "../migrate_setup.h"
#include "../runner.h"
#include "../torch_emit.h"

static const flat nets[] = {{"G_AB.w", 2, {3, 4}}, {"G_AB.b", 1, {3, 0}}, {"G_BA.w", 2, {3, 4}}, {"G_BA.b", 1, {3, 0}}};
static const flat layers[] = {{"h.0.w", 2, {3, 4}}, {"h.0.b", 1, {3, 0}}, {"h.1.w", 2, {3, 4}}, {"h.1.b", 1, {3, 0}}};

static void write_pair(const char *path, const flat *model, size_t first_group)
{
    torch_file *t = begin_torch();
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "model");
    PUT(&t->pickle, "}(");
    for (size_t i = 0; i < 4; i++) {
        put_str(&t->pickle, model[i].name);
        torch_tensor(t, model[i].ndim, model[i].shape[0], model[i].shape[1], (float)i);
    }
    PUT(&t->pickle, "u");
    put_str(&t->pickle, "optimizer");
    put_adam(t, model, 4, first_group, 0);
    PUT(&t->pickle, "u");
    write_torch(path, t);
}

static const ckpt_finding *said(const char *code)
{
    return ckpt_report_find(report, code, NULL);
}

static void refused(const char *to, const char *dst)
{
    ck_assert_int_eq(migrate(at("m.pt"), to, dst), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "order-ambiguous"));
    ck_assert(said("order-ambiguous") && said("order-ambiguous")->severity == CKPT_SEVERITY_ERROR);
    ck_assert_ptr_nonnull(strstr(said("order-ambiguous")->fix, "--assume-order model"));
    ck_assert_ptr_nonnull(strstr(said("order-ambiguous")->fix, "named_parameters()"));
    ck_assert_int_ne(access(dst, F_OK), 0); /* nothing was written */
}

START_TEST(migrate_refuses)
{
    static const char *const backwards[] = {"G_BA.w", "G_BA.b", "G_AB.w", "G_AB.b"};
    static const char *const moments[] = {"optimizer.*"};
    write_pair(at("m.pt"), nets, 4);
    refused("ckpt", at("x.ckpt"));
    ck_assert_ptr_nonnull(strstr(said("order-ambiguous")->message, "G_AB <-> G_BA: 2 parameters"));
    refused("safetensors", at("x.safetensors"));
    migrates(at("m.pt"), "torch", at("x.pt"));   /* by position: no name is given */
    options.weights_only = options.lossy = true; /* safetensors has no device tags */
    migrates(at("m.pt"), "safetensors", at("weights.safetensors"));
    options.weights_only = false;
    options.drop = moments;
    options.drop_count = 1;
    migrates(at("m.pt"), "safetensors", at("dropped.safetensors"));
    options.drop_count = 0;
    options.assume_order = "no-such-order";
    ck_assert_int_eq(migrate(at("m.pt"), "ckpt", at("x.ckpt")), CKPT_E_ARGUMENT);
    options.assume_order = "groups-reversed"; /* known, and not of this file: its numbers are not kept in silence */
    ck_assert_int_eq(migrate(at("m.pt"), "ckpt", at("x.ckpt")), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "'groups-reversed', does not fit"));
    ck_assert_int_ne(access(at("x.ckpt"), F_OK), 0);
    options.assume_order = "model";
    migrates(at("m.pt"), "ckpt", at("model.ckpt"));
    ck_assert_int_eq(said("order-hypothesis")->severity, CKPT_SEVERITY_NOTE);
    options.assume_order = NULL;
    options.param_names = backwards;
    options.param_name_count = 4;
    migrates(at("m.pt"), "ckpt", at("stated.ckpt"));
    float value[12];
    ckpt_reader *r = opened(at("stated.ckpt"));
    size_t i;
    ck_assert_int_eq(ckpt_reader_find(r, "optimizer.G_BA.w.exp_avg", 24, &i, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, value, sizeof value, &err), CKPT_OK);
    ck_assert_float_eq(value[0], 100); /* the first state is that of the first name */
    ckpt_reader_close(r);
}
END_TEST

START_TEST(layers_as_groups)
{
    write_pair(at("m.pt"), layers, 2); /* from the last layer to the first, or the other way round */
    refused("ckpt", at("x.ckpt"));
    options.assume_order = "groups-reversed";
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
    ckpt_reader *r = opened(at("x.ckpt"));
    size_t i;
    float value[12];
    ck_assert_int_eq(ckpt_reader_find(r, "optimizer.h.1.w.exp_avg", 23, &i, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_read(r, i, value, sizeof value, &err), CKPT_OK);
    ck_assert_float_eq(value[0], 100);
    ckpt_reader_close(r);
    options.assume_order = NULL;
    write_pair(at("m.pt"), layers, 4); /* one group: in the model's order, as every program has them */
    migrates(at("m.pt"), "ckpt", at("x.ckpt"));
}
END_TEST

static float memory[6][12];

static ckpt_state *state_of(const flat *model)
{
    ckpt_state *state = ckpt_state_new();
    for (size_t i = 0; i < 4; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = model[i].name;
        d.role = CKPT_ROLE_PARAM;
        d.dtype = CKPT_F32;
        d.ndim = (uint32_t)model[i].ndim;
        d.shape = model[i].shape;
        d.data = memory[i];
        ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    }
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.param = model[2].name;
    d.role = CKPT_ROLE_EXP_AVG;
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = model[2].shape;
    d.data = memory[4];
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    return state;
}

START_TEST(restore_refuses)
{
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *state = state_of(nets);
    write_pair(at("m.pt"), nets, 4);
    o.allow_unexpected = true;
    ck_assert_int_eq(ckpt_restore(state, at("m.pt"), &o, report, &err), CKPT_E_MISMATCH);
    ck_assert(said("order-ambiguous") && said("order-ambiguous")->severity == CKPT_SEVERITY_ERROR);
    o.assume_order = "no-such-order";
    ck_assert_int_eq(ckpt_restore(state, at("m.pt"), &o, report, &err), CKPT_E_ARGUMENT);
    o.assume_order = "model";
    ck_assert_msg(ckpt_restore(state, at("m.pt"), &o, report, &err) == CKPT_OK, "%s", err.message);
    ck_assert_float_eq(memory[4][0], 300); /* the third state, as that order has it */
    ckpt_state_free(state);
    state = state_of(layers);
    write_pair(at("m.pt"), layers, 4);
    o.assume_order = NULL;
    ck_assert_msg(ckpt_restore(state, at("m.pt"), &o, report, &err) == CKPT_OK, "%s", err.message);
    o.strict_order = true;
    ck_assert_int_eq(ckpt_restore(state, at("m.pt"), &o, report, &err), CKPT_E_MISMATCH);
    ck_assert(said("order-ambiguous") && strstr(said("order-ambiguous")->message, "strict_order"));
    o.assume_order = "model";
    ck_assert_msg(ckpt_restore(state, at("m.pt"), &o, report, &err) == CKPT_OK, "%s", err.message);
    ckpt_state_free(state);
}
END_TEST

START_TEST(doctor_warns)
{
    ckpt_doctor_options asked = CKPT_DOCTOR_OPTIONS_INIT;
    ckpt_doctor_result answer = CKPT_DOCTOR_RESULT_INIT;
    char *text = NULL;
    write_pair(at("m.pt"), nets, 4);
    ckpt_reader *r = opened(at("m.pt"));
    ck_assert_int_eq(ckpt_doctor(r, &asked, &answer, report, &err), CKPT_OK);
    ck_assert(said("order-ambiguous") && said("order-ambiguous")->severity == CKPT_SEVERITY_WARNING);
    ck_assert_ptr_null(said("order-hypothesis"));
    ck_assert_int_ne(answer.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ckpt_doctor_result_clear(&answer);
    ck_assert_int_eq(ckpt_doctor_snippet(r, "torch", &asked, &text, &err), CKPT_OK);
    ck_assert_ptr_null(strstr(text, "GROUPS")); /* that would be a guess */
    free(text);
    ck_assert_int_eq(ckpt_doctor_snippet(r, "c", &asked, &text, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "order-ambiguous"));
    asked.loader = CKPT_LOADER_CKPT;
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_doctor(r, &asked, &answer, report, &err), CKPT_OK);
    ck_assert(said("order-ambiguous") && said("order-ambiguous")->severity == CKPT_SEVERITY_ERROR);
    ck_assert_int_eq(answer.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ckpt_doctor_result_clear(&answer);
    asked.assume_order = "model";
    ckpt_report_clear(report);
    ck_assert_int_eq(ckpt_doctor(r, &asked, &answer, report, &err), CKPT_OK);
    ck_assert_ptr_null(said("order-ambiguous"));
    ck_assert_int_ne(answer.outcome, CKPT_OUTCOME_FAILS_AT_LOAD);
    ckpt_doctor_result_clear(&answer);
    ck_assert_int_eq(ckpt_doctor_snippet(r, "c", &asked, &text, &err), CKPT_OK);
    ck_assert_ptr_nonnull(strstr(text, "options.assume_order = \"model\";"));
    free(text);
    ckpt_reader_close(r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("orders");
    TCase *t = tcase_create("orders");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, migrate_refuses);
    tcase_add_test(t, layers_as_groups);
    tcase_add_test(t, restore_refuses);
    tcase_add_test(t, doctor_warns);
    suite_add_tcase(s, t);
    return run_suite(s);
}
