/* A native file whose trainer bound no parameter group, as a torch file: one is made, or what torch could not have is lost. */
#include <stdlib.h>
#include "../torch_emit.h"
#include "bound_adam.h"

enum { N = 3 };
static const char *const names[N] = {"b.weight", "a.weight", "c.weight"}; /* not in the order of the alphabet */
static float params[N][4], m[N][4], v[N][4];
static int64_t step = 7, own_steps[N] = {5, 5, 5};
static double lr = 0.5, beta = 0.75, other_beta = 0.5;

typedef struct what {
    bool no_step, own_step, settings, momentum_of_c, no_moments_of_c, no_param_c;
    size_t grouped; /* of how many of the parameters there is a group */
} what;

static void save(const char *path, what w)
{
    ckpt_state *s = ckpt_state_new();
    ckpt_save_options to = CKPT_SAVE_OPTIONS_INIT;
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    to.no_sync = true;
    for (size_t i = 0; i < N; i++) {
        char name[60];
        snprintf(name, sizeof name, "optimizer.%s.step", names[i]);
        if (i < 2 || !w.no_param_c)
            bind(s, names[i], NULL, CKPT_ROLE_PARAM, CKPT_F32, params[i]);
        if (i == 2 && w.no_moments_of_c)
            continue;
        bind(s, NULL, names[i], i == 2 && w.momentum_of_c ? CKPT_ROLE_MOMENTUM : CKPT_ROLE_EXP_AVG, CKPT_F32, m[i]);
        if (i < 2 || !w.momentum_of_c)
            bind(s, NULL, names[i], CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, v[i]);
        if (w.own_step)
            OK(ckpt_state_i64(s, name, &own_steps[i], &err));
    }
    if (!w.no_step)
        OK(ckpt_state_i64(s, "step", &step, &err));
    if (w.settings) {
        OK(ckpt_state_f64(s, "optimizer.lr", &lr, &err));
        OK(ckpt_state_f64(s, "optimizer.betas.0", &beta, &err));
        OK(ckpt_state_f64(s, "optimizer.betas.1", &other_beta, &err));
    }
    g.name = "0";
    g.params = names;
    g.param_count = w.grouped;
    if (w.grouped)
        OK(ckpt_state_group(s, &g, &err));
    OK(ckpt_save(s, path, &to, &err));
    ckpt_state_free(s);
}

static ckpt_reader *to_torch(what w)
{
    save(at("n.safetensors"), w);
    migrates(at("n.safetensors"), "torch", at("t.pt"));
    return opened(at("t.pt"));
}

static const ckpt_value *optimizer_of(const ckpt_reader *r)
{
    return ckpt_value_get(ckpt_reader_root(r), "optimizer");
}

static const ckpt_value *group_of(const ckpt_reader *r)
{
    const ckpt_value *groups = ckpt_value_get(optimizer_of(r), "param_groups");
    ck_assert(groups && groups->item_count == 1);
    return groups->items[0];
}

static void has_steps(const ckpt_reader *r, size_t n, float want)
{
    ck_assert_uint_eq(ckpt_value_get(optimizer_of(r), "state")->entry_count, n);
    for (size_t i = 0; i < n; i++) {
        char name[60];
        float is = 0;
        size_t k;
        snprintf(name, sizeof name, "optimizer.state.%zu.step", i);
        OK(ckpt_reader_find(r, name, strlen(name), &k, &err));
        const ckpt_tensor_info *t = ckpt_reader_tensor(r, k);
        ck_assert(t->dtype == CKPT_F32 && t->ndim == 0);
        OK(ckpt_reader_read(r, k, &is, sizeof is, &err));
        ck_assert(is == want);
    }
}

START_TEST(made)
{
    ckpt_reader *r = to_torch((what){0});
    const ckpt_value *g = group_of(r), *ids = ckpt_value_get(g, "params"), *said = ckpt_value_get(g, "param_names");
    ck_assert_uint_eq(ids->item_count, N);
    for (size_t i = 0; i < N; i++) {
        ck_assert_int_eq(ids->items[i]->integer, (int64_t)i);
        ck_assert_str_eq(said->items[i]->text.data, names[i]);
    }
    ck_assert_uint_eq(g->entry_count, 2); /* no hyper-parameter is made up */
    has_steps(r, N, 7);
    const ckpt_finding *f = ckpt_report_find(report, "group-made", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING);
    ck_assert_ptr_nonnull(strstr(f->message, "3 parameters"));
    ck_assert_ptr_nonnull(strstr(f->message, "by position"));
    ck_assert_ptr_nonnull(strstr(f->fix, "setdefault"));
    ck_assert_ptr_nonnull(strstr(f->fix, "ckpt_state_group"));
    for (size_t i = 0; i < ckpt_reader_root(r)->entry_count; i++)
        ck_assert_ptr_null(strstr(ckpt_reader_root(r)->entries[i].key->text.data, "optimizer."));
    ckpt_reader_close(r);
}
END_TEST

START_TEST(made_with_settings)
{
    ckpt_reader *r = to_torch((what){.settings = true, .own_step = true});
    const ckpt_value *g = group_of(r), *betas = ckpt_value_get(g, "betas");
    ck_assert(ckpt_value_get(g, "lr")->real == 0.5 && betas->kind == CKPT_V_TUPLE && betas->items[1]->real == 0.5);
    has_steps(r, N, 5);
    ckpt_reader_close(r);
}
END_TEST

/* Of the parameters that have moments. */
START_TEST(made_of_some)
{
    ckpt_reader *r = to_torch((what){.no_moments_of_c = true});
    ck_assert_uint_eq(ckpt_value_get(group_of(r), "params")->item_count, 2);
    ck_assert_ptr_nonnull(
        strstr(ckpt_report_find(report, "group-made", NULL)->message, "1 parameters without a state"));
    ckpt_reader_close(r);
}
END_TEST

/* A bound group is taken as it is; the step is one of each. */
START_TEST(bound)
{
    ckpt_reader *r = to_torch((what){.grouped = 3});
    ck_assert_ptr_null(ckpt_report_find(report, "group-made", NULL));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "step-made", NULL));
    ck_assert_ptr_null(ckpt_value_get(group_of(r), "param_names"));
    has_steps(r, N, 7);
    ckpt_reader_close(r);
}
END_TEST

static const struct {
    what what;
    int64_t step;
    const char *said;
} cases[] = {
    {{.no_step = true}, 7, "does not say how many steps"},
    {{.no_param_c = true}, 7, "of parameters that the model does not have (c.weight)"},
    {{.momentum_of_c = true}, 7, "the states are not alike"},
    {{.grouped = 2}, 7, "1 parameter that is in no group, which torch would not see: c.weight"},
    {{0}, (1 << 24) + 1, "step 16777217 is not float32"},
};

START_TEST(lost)
{
    step = cases[_i].step;
    save(at("n.safetensors"), cases[_i].what);
    ck_assert_int_eq(migrate(at("n.safetensors"), "torch", at("t.pt")), CKPT_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, cases[_i].said) != NULL, "'%s' is not in '%s'", cases[_i].said, err.message);
    ck_assert_ptr_nonnull(strstr(ckpt_report_find(report, "lost", NULL)->fix, "ckpt_state_group"));
    ck_assert_int_ne(access(at("t.pt"), F_OK), 0);
    options.lossy = true;
    migrates(at("n.safetensors"), "torch", at("t.pt"));
    ckpt_reader_close(opened(at("t.pt")));
    options.lossy = false;
    options.weights_only = true; /* no optimizer is wanted */
    migrates(at("n.safetensors"), "torch", at("w.pt"));
    step = 7;
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_groups");
    TCase *t = tcase_create("groups");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, made);
    tcase_add_test(t, made_with_settings);
    tcase_add_test(t, made_of_some);
    tcase_add_test(t, bound);
    tcase_add_loop_test(t, lost, 0, sizeof cases / sizeof *cases);
    suite_add_tcase(s, t);
    return run_suite(s);
}
