/* test_state_whole.c - a moment that was forgotten is said, and mixtures that people train with are not. */
#include "../state_fixture.h"

enum { PARAMS = 4 };
static const char *const names[PARAMS] = {"a", "b", "c", "d"};
static float memory[400];
static double hyper;
static int64_t steps[PARAMS];

typedef struct made {
    ckpt_state *state;
    size_t used;
    ckpt_severity severity; /* of what is expected */
} made;

static made begin(void)
{
    made m = {ckpt_state_new(), 0, CKPT_SEVERITY_WARNING};
    for (int i = 0; i < PARAMS; i++)
        bind_tensor(m.state, names[i], NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){2}, NULL, memory + 2 * m.used++);
    return m;
}

/* A tensor of the optimizer for each parameter that `who` names. */
static void add(made *m, const char *who, ckpt_role role, const char *key)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (; *who; who++) {
        const char one[2] = {*who, 0};
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.param = one;
        d.role = role;
        d.state_key = key;
        d.dtype = CKPT_F32;
        d.ndim = 1;
        d.shape = (int64_t[]){2};
        d.data = memory + 2 * m->used++;
        OK(ckpt_state_tensor(m->state, &d, &err));
    }
}

static void add_group(made *m, const char *name, const char *who, const char *const *keys)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_hyper hypers[4];
    const char *params[PARAMS];
    char text[PARAMS][2];
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    for (; *who; who++) {
        text[g.param_count][0] = *who;
        text[g.param_count][1] = 0;
        params[g.param_count] = text[g.param_count];
        g.param_count++;
    }
    for (; keys && *keys; keys++)
        hypers[g.hyper_count++] = (ckpt_hyper){*keys, CKPT_SCALAR_F64, &hyper};
    g.name = name;
    g.params = params;
    g.hypers = hypers;
    OK(ckpt_state_group(m->state, &g, &err));
}

/* The findings of a save and of the guard: those, ended by NULL, and no other. */
static void expect(made *m, const char *const *tensors)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    size_t count = 0;
    o.report = r;
    for (int guard = 0; guard < 2; guard++) {
        if (guard)
            OK(ckpt_guard(m->state, CKPT_OPTIMIZER_PLAIN, NULL, r, &err));
        else
            OK(ckpt_save(m->state, in_folder("a"), &o, &err));
        for (count = 0; tensors && tensors[count]; count++) {
            const ckpt_finding *f = ckpt_report_find(r, "moments-incomplete", tensors[count]);
            ck_assert_msg(f != NULL, "%s is not said", tensors[count]);
            ck_assert_int_eq(f->severity, m->severity);
            ck_assert_ptr_nonnull(strstr(f->fix, "bind"));
        }
        ck_assert_uint_eq(ckpt_report_count_code(r, "moments-incomplete"), count);
        ck_assert_uint_eq(ckpt_report_count(r), count);
    }
    o.weights_only = true; /* no moment is in such a file */
    OK(ckpt_save(m->state, in_folder("a"), &o, &err));
    ck_assert_uint_eq(ckpt_report_count(r), 0);
    ckpt_report_free(r);
    ckpt_state_free(m->state);
}

#define EXPECT(m, ...) expect(m, (const char *const[]){__VA_ARGS__, NULL})

static const char *const adam_keys[] = {"lr", "betas.0", "eps", NULL},
                         *const lion_keys[] = {"lr", "betas.0", "betas.1", NULL},
                         *const factor_keys[] = {"lr", "eps", NULL};

START_TEST(one_that_lacks_what_the_others_have)
{
    made m = begin();
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    EXPECT(&m, "optimizer.c.exp_avg_sq");
    m = begin();
    add(&m, "bcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    EXPECT(&m, "optimizer.a.exp_avg");
    m = begin(); /* under its state's key, too */
    add(&m, "abc", CKPT_ROLE_OPTIM, "exp_avg");
    add(&m, "ab", CKPT_ROLE_OPTIM, "exp_avg_sq");
    EXPECT(&m, "optimizer.c.exp_avg_sq");
    m = begin(); /* one finding for several */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "a", CKPT_ROLE_EXP_AVG_SQ, NULL);
    EXPECT(&m, "optimizer.b.exp_avg_sq");
}
END_TEST

START_TEST(a_step_that_is_missing)
{
    ckpt_error err = CKPT_ERROR_INIT;
    made m = begin();
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add(&m, "abc", CKPT_ROLE_STEP, NULL);
    EXPECT(&m, "optimizer.d.step");
    m = begin();
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add(&m, "ab", CKPT_ROLE_STEP, NULL);
    OK(ckpt_state_i64(m.state, "optimizer.c.step", &steps[2], &err)); /* a number is one, too */
    EXPECT(&m, "optimizer.d.step");
    m = begin(); /* one for all */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    OK(ckpt_state_i64(m.state, "step", &steps[0], &err));
    expect(&m, NULL);
}
END_TEST

/* The arena of the second moment was forgotten as a whole: the hyper-parameters tell. */
START_TEST(what_an_adam_always_has)
{
    made m = begin();
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add_group(&m, "0", "abcd", adam_keys);
    EXPECT(&m, "optimizer.a.exp_avg_sq");
    m = begin();
    add(&m, "abcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add_group(&m, "0", "abcd", adam_keys);
    EXPECT(&m, "optimizer.a.exp_avg");
    m = begin(); /* two groups, two findings */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add_group(&m, "0", "ab", adam_keys);
    add_group(&m, "1", "cd", adam_keys);
    EXPECT(&m, "optimizer.a.exp_avg_sq", "optimizer.c.exp_avg_sq");
}
END_TEST

/* Nothing tells Lion from an Adam that was bound by half: that is a note. */
START_TEST(one_moment_of_who_knows_which_optimizer)
{
    static const char *const lr_only[] = {"lr", NULL};
    made m = begin();
    m.severity = CKPT_SEVERITY_NOTE;
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    EXPECT(&m, "optimizer.a.exp_avg_sq");
    m = begin();
    m.severity = CKPT_SEVERITY_NOTE;
    add(&m, "a", CKPT_ROLE_EXP_AVG, NULL);
    add_group(&m, "0", "ab", lr_only);
    EXPECT(&m, "optimizer.a.exp_avg_sq");
}
END_TEST

START_TEST(mixtures_are_none)
{
    made m = begin(); /* Lion */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add_group(&m, "0", "abcd", lion_keys);
    expect(&m, NULL);
    m = begin(); /* SGD, one parameter frozen */
    add(&m, "abc", CKPT_ROLE_MOMENTUM, NULL);
    expect(&m, NULL);
    m = begin(); /* Muon for a matrix, AdamW for the others */
    add(&m, "a", CKPT_ROLE_MOMENTUM, NULL);
    add(&m, "bcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "bcd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add(&m, "bcd", CKPT_ROLE_STEP, NULL);
    add_group(&m, "0", "abcd", adam_keys);
    expect(&m, NULL);
    m = begin(); /* Adafactor with a first moment: rows and columns for the matrices */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "ab", CKPT_ROLE_OPTIM, "exp_avg_sq_row");
    add(&m, "ab", CKPT_ROLE_OPTIM, "exp_avg_sq_col");
    add(&m, "cd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add_group(&m, "0", "abcd", factor_keys);
    expect(&m, NULL);
    m = begin(); /* and without one */
    add(&m, "ab", CKPT_ROLE_OPTIM, "exp_avg_sq_row");
    add(&m, "cd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add_group(&m, "0", "abcd", factor_keys);
    expect(&m, NULL);
    m = begin(); /* bitsandbytes: AdamW of 8 bits, Lion of 8 bits for one */
    add(&m, "abcd", CKPT_ROLE_OPTIM, "state1");
    add(&m, "bcd", CKPT_ROLE_OPTIM, "state2");
    add_group(&m, "0", "abcd", adam_keys);
    expect(&m, NULL);
    m = begin(); /* two optimizers: AdamW, and Lion with its own group */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "ab", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add(&m, "ab", CKPT_ROLE_STEP, NULL);
    add_group(&m, "0", "ab", adam_keys);
    add_group(&m, "1", "cd", lion_keys);
    expect(&m, NULL);
    m = begin(); /* Adamax */
    add(&m, "abcd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "abcd", CKPT_ROLE_OPTIM, "exp_inf");
    add_group(&m, "0", "abcd", adam_keys);
    expect(&m, NULL);
    m = begin(); /* frozen parameters, and AMSGrad on all others */
    add(&m, "cd", CKPT_ROLE_EXP_AVG, NULL);
    add(&m, "cd", CKPT_ROLE_EXP_AVG_SQ, NULL);
    add(&m, "cd", CKPT_ROLE_MAX_EXP_AVG_SQ, NULL);
    add(&m, "abcd", CKPT_ROLE_MASTER, NULL);
    add_group(&m, "0", "abcd", adam_keys);
    expect(&m, NULL);
    m = begin();
    expect(&m, NULL);
}
END_TEST

START_TEST(a_whole_state_has_all)
{
    training t;
    fill(&t, 1);
    made m = {bind_all(&t), 0, CKPT_SEVERITY_WARNING};
    expect(&m, NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("state whole");
    TCase *t = tcase_create("whole");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, one_that_lacks_what_the_others_have);
    tcase_add_test(t, a_step_that_is_missing);
    tcase_add_test(t, what_an_adam_always_has);
    tcase_add_test(t, one_moment_of_who_knows_which_optimizer);
    tcase_add_test(t, mixtures_are_none);
    tcase_add_test(t, a_whole_state_has_all);
    suite_add_tcase(s, t);
    return run_suite(s);
}
