/* list, restore, show and doctor agree on what is an optimizer, a model, a master copy. */
#include "anatomy/canon.h"
#include "doctor_files.h"
#include "model/training.h"
#include "reader/reader.h"
#include "../made_values.h"

static ckpt_reader *reader;
static ckpt__canon *canon;
static ckpt_error err;

static void open_text(const char *text)
{
    const char *path = at("x.pt");
    write_object(path, text, NULL);
    ck_assert_msg(ckpt_reader_open(path, NULL, &reader, &err) == CKPT_OK, "%s", err.message);
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    hints.optional_optimizer = true;
    ckpt_report *findings = ckpt_report_new();
    ck_assert_msg(ckpt__canon_build(reader->index, &hints, &canon, findings, &err) >= 0, "%s", err.message);
    ckpt_report_free(findings);
}

static void close_text(void)
{
    ckpt__canon_free(canon);
    ckpt_reader_close(reader);
    canon = NULL;
    reader = NULL;
}

/* As `list` has it. */
static const ckpt_tensor_info *listed(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s", err.message);
    return ckpt_reader_tensor(reader, i);
}

/* As a restore has it. */
static const ckpt__canon_entry *bound(const char *name)
{
    size_t i;
    ck_assert_msg(ckpt__hash_get(canon->by_name, name, strlen(name), &i), "there is no %s", name);
    return &canon->entries[i];
}

static const struct {
    const char *key;
    ckpt_role role;
} keys[] = {{"exp_avg", CKPT_ROLE_EXP_AVG},
            {"momentum_buffer", CKPT_ROLE_MOMENTUM},
            {"max_exp_avg_sq", CKPT_ROLE_MAX_EXP_AVG_SQ},
            {"master", CKPT_ROLE_MASTER},
            {"master_param", CKPT_ROLE_MASTER},
            {"master_weights", CKPT_ROLE_MASTER},
            {"sum", CKPT_ROLE_OPTIM}};

START_TEST(a_key_has_one_role)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[300], name[80];
        snprintf(text, sizeof text,
                 "{'model':{'a':f32@cpu[2,3],'b':f32@cpu[5]},'optimizer':{'state':{0:{'%s':f32@cpu[5]},"
                 "1:{'%s':f32@cpu[2,3]}},'param_groups':[{'lr':0.1,'params':[0,1]}]}}",
                 keys[i].key, keys[i].key);
        open_text(text);
        snprintf(name, sizeof name, "optimizer.state.0.%s", keys[i].key);
        ck_assert_msg(listed(name)->role == keys[i].role, "list says %s of %s", ckpt_role_name(listed(name)->role),
                      keys[i].key);
        /* All of them have their parameter's shape, which tells that the first state is b's. */
        snprintf(name, sizeof name, "optimizer.b.%s", keys[i].key);
        const ckpt__canon_entry *of_b = bound(name);
        ck_assert_msg(of_b->role == keys[i].role, "restore says %s of %s", ckpt_role_name(of_b->role), keys[i].key);
        ck_assert_msg(reader->index->tensors[of_b->tensor].info.ndim == 1, "%s was given to another parameter",
                      keys[i].key);
        close_text();
    }
}
END_TEST

/* torch's load_state_dict asks of the groups and of their parameters only that they can be walked through. */
START_TEST(groups_in_a_tuple)
{
    static const char *const groups[] = {
        "[{'lr':0.1,'fused':True,'params':[0]}]", "({'lr':0.1,'fused':True,'params':[0]},)",
        "[{'lr':0.1,'fused':True,'params':(0,)}]", "({'lr':0.1,'fused':True,'params':(0,)},)"};
    for (size_t i = 0; i < 4; i++) {
        char text[300];
        ckpt_summary summary = CKPT_SUMMARY_INIT;
        ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        snprintf(text, sizeof text,
                 "{'model':{'a':f32@cpu[2,3]},'optimizer':{'state':{0:{'step':3,'exp_avg':f32@cpu[2,3]}},"
                 "'param_groups':%s}}",
                 groups[i]);
        open_text(text);
        const ckpt_tensor_info *moment = listed("optimizer.state.0.exp_avg");
        ck_assert_int_eq(moment->role, CKPT_ROLE_EXP_AVG);
        ck_assert_msg(ckpt__str_is(moment->group, "0"), "%s: the group is not known", groups[i]);
        ck_assert_int_eq(bound("optimizer.a.exp_avg")->role, CKPT_ROLE_EXP_AVG);
        ck_assert_int_eq(ckpt_summarize(reader, &summary, &err), CKPT_OK);
        ck_assert_msg(summary.optimizer_count == 1, "show counts %d optimizers in %s", (int)summary.optimizer_count,
                      groups[i]);
        ck_assert(ckpt__str_is(summary.optimizer_kind, "fused"));
        ckpt_summary_clear(&summary);
        ckpt_report *report = ckpt_report_new();
        ck_assert_int_eq(ckpt_doctor(reader, &options, &result, report, &err), CKPT_OK);
        ck_assert_msg(result.uses_fused == 1 && result.optimizer == CKPT_OPTIMIZER_FUSED,
                      "doctor finds no fused group in %s", groups[i]);
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
        close_text();
    }
}
END_TEST

/* A dict's own attributes are no entries of it: torch's _metadata, and what a program adds to an OrderedDict. */
START_TEST(attributes_of_a_model)
{
    make_index();
    ckpt_value *v = dict_of("a.weight", tensor_of(2, CKPT_ROLE_NONE), NULL, NULL);
    int64_t shape[2] = {2, 3};
    ckpt__tensor *t = &ix->tensors[0];
    t->info.name = ckpt__s("a.weight");
    t->info.dtype = CKPT_F32;
    t->info.shape = shape;
    t->info.nbytes = 24;
    v->state = dict_of("version", number(2), NULL, NULL);
    ix->format = "torch";
    ix->root = dict_of("model", v, "epoch", number(3));
    ckpt__canon_hints hints;
    memset(&hints, 0, sizeof hints);
    ck_assert(ckpt__is_state_dict(ix, v, NULL));
    ck_assert_msg(ckpt__canon_build(ix, &hints, &canon, ix->findings, &err) >= 0, "%s", err.message);
    ck_assert_msg(canon->model_path.data && strcmp(canon->model_path.data, "model") == 0, "the model was not found");
    ck_assert_int_eq(bound("a.weight")->role, CKPT_ROLE_PARAM);
    ckpt__canon_free(canon);
    free_index();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("agreement");
    TCase *t = tcase_create("agreement");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, a_key_has_one_role);
    tcase_add_test(t, groups_in_a_tuple);
    tcase_add_test(t, attributes_of_a_model);
    suite_add_tcase(s, t);
    return run_suite(s);
}
