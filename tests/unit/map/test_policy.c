/* The placement policy: the table row by row, and what it does to a state under every kind of map. */
#include "map/map.h"
#include "../runner.h"

enum { W, B, AVG, STEP, RNG, SCALE, COUNT };
static const ckpt__subject start[COUNT] = {
    [W] = {.name = {"w", 1}, .role = CKPT_ROLE_PARAM, .tag = {"cuda:1", 6}},
    [B] = {.name = {"b", 1}, .role = CKPT_ROLE_BUFFER, .tag = {"cuda:1", 6}},
    [AVG] = {.name = {"optimizer.w.exp_avg", 19}, .param = {"w", 1}, .role = CKPT_ROLE_EXP_AVG, .tag = {"cuda:1", 6}},
    [STEP] = {.name = {"optimizer.w.step", 16}, .param = {"w", 1}, .role = CKPT_ROLE_STEP, .tag = {"cpu", 3}},
    [RNG] = {.name = {"rng", 3}, .role = CKPT_ROLE_RNG, .tag = {"cpu", 3}},
    [SCALE] = {.name = {"scaler.found_inf", 16}, .role = CKPT_ROLE_SCALER, .tag = {"cuda:1", 6}},
};

static ckpt__subject subjects[COUNT];
static ckpt_dtype dtypes[COUNT];
static ckpt__target out[COUNT];
static ckpt_report *report;
static ckpt_map *map; /* the targets' words are in it */
static ckpt_error err;

static void setup(void)
{
    memcpy(subjects, start, sizeof start);
    for (int i = 0; i < COUNT; i++)
        dtypes[i] = CKPT_F32;
    report = ckpt_report_new();
    memset(&err, 0, sizeof err);
}

static void teardown(void)
{
    ckpt_report_free(report);
    ckpt_map_free(map);
    map = NULL;
}

static void place_kinds(const char *text, ckpt_optimizer_kind kind, const ckpt_optimizer_kind *kinds)
{
    ckpt_map_free(map);
    map = NULL;
    bool yaml = text && strncmp(text, "map:", 4) == 0;
    ckpt_status s =
        yaml ? ckpt_map_parse_yaml(text, strlen(text), "m.yaml", &map, &err) : ckpt_map_parse(text, &map, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
    ckpt_report_clear(report);
    s = ckpt__map_place(text ? map : NULL, kind, kinds, subjects, dtypes, COUNT, NULL, out, report, &err);
    ck_assert_msg(s == CKPT_OK, "%s", err.message);
}

static void place(const char *text, ckpt_optimizer_kind kind)
{
    place_kinds(text, kind, NULL);
}

static void is(int i, const char *want)
{
    char buf[CKPT_DEVICE_NAME_MAX];
    const char *got = out[i].device.type == CKPT_DEVICE_NONE ? "keep" : ckpt__target_name(&out[i], buf);
    ck_assert_msg(strcmp(got, want) == 0, "%s is on %s, want %s", subjects[i].name.data, got, want);
}

START_TEST(table)
{
    static const ckpt_role moments[] = {CKPT_ROLE_GRAD,           CKPT_ROLE_EXP_AVG,  CKPT_ROLE_EXP_AVG_SQ,
                                        CKPT_ROLE_MAX_EXP_AVG_SQ, CKPT_ROLE_MOMENTUM, CKPT_ROLE_OPTIM,
                                        CKPT_ROLE_MASTER,         CKPT_ROLE_SCALER};
    static const ckpt_role unbound[] = {CKPT_ROLE_NONE, CKPT_ROLE_PARAM, CKPT_ROLE_BUFFER, CKPT_ROLE_EMA,
                                        CKPT_ROLE_OTHER};
    for (int k = CKPT_OPTIMIZER_DEFAULT; k <= CKPT_OPTIMIZER_PLAIN; k++) {
        ckpt_optimizer_kind kind = (ckpt_optimizer_kind)k;
        bool device = kind == CKPT_OPTIMIZER_FUSED || kind == CKPT_OPTIMIZER_CAPTURABLE;
        for (size_t i = 0; i < sizeof moments / sizeof moments[0]; i++) {
            ck_assert_int_eq(ckpt__policy_of(kind, moments[i]).place, CKPT__WITH_PARAM);
            ck_assert(!ckpt__policy_of(kind, moments[i]).float32);
        }
        for (size_t i = 0; i < sizeof unbound / sizeof unbound[0]; i++)
            ck_assert_int_eq(ckpt__policy_of(kind, unbound[i]).place, CKPT__FREE);
        ck_assert_int_eq(ckpt__policy_of(kind, CKPT_ROLE_RNG).place, CKPT__ON_CPU);
        ck_assert_int_eq(ckpt__policy_of(kind, CKPT_ROLE_STEP).place, device ? CKPT__WITH_PARAM : CKPT__ON_CPU);
        ck_assert(ckpt__policy_of(kind, CKPT_ROLE_STEP).float32 == device);
    }
}
END_TEST

/* The error that this exists for: weights and moments on a GPU, step on the cpu, and the optimizer is fused. */
START_TEST(fused)
{
    place(NULL, CKPT_OPTIMIZER_FUSED);
    is(W, "keep");
    is(AVG, "cuda:1");
    is(STEP, "cuda:1");
    ck_assert_int_eq(out[STEP].by, CKPT__BY_PARAM);
    is(RNG, "cpu");
    ck_assert_uint_eq(ckpt_report_count_code(report, "policy-placed"), 1);
    const ckpt_finding *f = ckpt_report_find(report, "policy-placed", "optimizer.w.step");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_NOTE);
    ck_assert_str_eq(f->to, "cuda:1");
    place("cuda:0", CKPT_OPTIMIZER_FUSED);
    is(W, "cuda:0");
    is(B, "cuda:0");
    is(AVG, "cuda:0");
    is(STEP, "cuda:0");
    is(RNG, "cpu"); /* map_location over everything would break the generator */
    is(SCALE, "cuda:0");
    ck_assert_ptr_nonnull(ckpt_report_find(report, "policy-placed", "rng"));
    place("cpu", CKPT_OPTIMIZER_FUSED);
    is(STEP, "cpu");
    place("cuda:*=cuda:2", CKPT_OPTIMIZER_CAPTURABLE);
    is(STEP, "cuda:2");
    place("cpu=cuda:7", CKPT_OPTIMIZER_FUSED); /* a tag rule moves neither step nor RNG away */
    is(W, "keep");
    is(STEP, "cuda:1");
    is(RNG, "cpu");
}
END_TEST

START_TEST(plain)
{
    subjects[STEP].tag = ckpt__s("cuda:1");
    for (int k = CKPT_OPTIMIZER_FOREACH; k <= CKPT_OPTIMIZER_PLAIN; k++) {
        place(NULL, (ckpt_optimizer_kind)k);
        is(STEP, "cpu");
        ck_assert_ptr_nonnull(ckpt_report_find(report, "policy-placed", "optimizer.w.step"));
        place("cuda:0", (ckpt_optimizer_kind)k);
        is(STEP, "cpu");
        is(AVG, "cuda:0");
    }
}
END_TEST

/* The caller's kind, else the map's, else the saved flags, else plain. */
START_TEST(which_kind)
{
    ckpt_optimizer_kind saved[COUNT] = {0};
    place("cuda:0", CKPT_OPTIMIZER_DEFAULT);
    is(STEP, "cpu");
    saved[STEP] = CKPT_OPTIMIZER_FUSED;
    place_kinds("cuda:0", CKPT_OPTIMIZER_DEFAULT, saved);
    is(STEP, "cuda:0");
    place_kinds("map: 1\noptimizer: plain\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_DEFAULT, saved);
    is(STEP, "cpu");
    ck_assert_uint_eq(ckpt_report_count_code(report, "optimizer-conflict"), 0);
    place_kinds("map: 1\noptimizer: plain\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_FUSED, saved);
    is(STEP, "cuda:0");
    ck_assert_uint_eq(ckpt_report_count_code(report, "optimizer-conflict"), 1);
    place_kinds("map: 1\noptimizer: fused\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_FUSED, saved);
    ck_assert_uint_eq(ckpt_report_count_code(report, "optimizer-conflict"), 0);
}
END_TEST

START_TEST(follows_its_parameter)
{
    /* a rule about the parameter takes its state along, and its own tags do not matter */
    place("map: 1\nrules:\n- {name: w, to: 'cuda:3'}\n- {tag: 'cuda:*', to: cpu}\n", CKPT_OPTIMIZER_FUSED);
    is(W, "cuda:3");
    is(AVG, "cuda:3");
    is(STEP, "cuda:3");
    is(B, "cpu");
    ck_assert_int_eq(out[AVG].by, CKPT__BY_PARAM);
    /* a parameter without tag and rule: its state is wherever it is */
    subjects[W].tag.data = NULL;
    place(NULL, CKPT_OPTIMIZER_FUSED);
    is(AVG, "keep");
    ck_assert_int_eq(out[AVG].by, CKPT__BY_PARAM);
    /* a parameter that nobody has: the rules alone decide */
    subjects[AVG].param = ckpt__s("gone");
    place("cuda:4", CKPT_OPTIMIZER_FUSED);
    is(AVG, "cuda:4");
    ck_assert_int_eq(out[AVG].by, CKPT__BY_STRING);
}
END_TEST

/* The scaler's buffers are no one parameter's: they follow the first, wherever the others go. */
START_TEST(the_scaler_follows_the_first_parameter)
{
    subjects[B].role = CKPT_ROLE_PARAM;
    place("map: 1\nrules:\n- {name: b, to: 'cuda:5'}\n- {name: w, to: 'cuda:3'}\n", CKPT_OPTIMIZER_PLAIN);
    is(W, "cuda:3");
    is(B, "cuda:5");
    is(SCALE, "cuda:3");
    ck_assert_int_eq(out[SCALE].by, CKPT__BY_PARAM);
    /* where the first is not the first of the list */
    subjects[W] = start[SCALE];
    subjects[SCALE] = start[W];
    place("map: 1\nrules:\n- {name: b, to: 'cuda:5'}\n- {name: w, to: 'cuda:3'}\n", CKPT_OPTIMIZER_PLAIN);
    is(W, "cuda:5");
    is(SCALE, "cuda:3");
    ck_assert_int_eq(out[W].by, CKPT__BY_PARAM);
}
END_TEST

/* Devices that are tags only: state follows its parameter there too. */
START_TEST(further_devices)
{
    place("cuda:1=xpu:0", CKPT_OPTIMIZER_FUSED);
    is(W, "xpu:0");
    is(AVG, "xpu:0");
    is(STEP, "xpu:0");
    is(RNG, "cpu");
    place("cuda:1==musa:3", CKPT_OPTIMIZER_FUSED);
    is(AVG, "musa:3");
    is(STEP, "musa:3");
    place("map: 1\nrules:\n- {name: w, to: '=musa:0'}\n- {role: exp_avg, to: '=musa:0'}\n", CKPT_OPTIMIZER_PLAIN);
    ck_assert_uint_eq(ckpt_report_count_code(report, "policy-breach"), 0);
    place("map: 1\nrules:\n- {name: w, to: '=musa:0'}\n- {role: exp_avg, to: '=sdaa:0'}\n", CKPT_OPTIMIZER_PLAIN);
    const ckpt_finding *f = ckpt_report_find(report, "policy-breach", "optimizer.w.exp_avg");
    ck_assert_ptr_nonnull(f);
    ck_assert_str_eq(f->from, "sdaa:0");
    ck_assert_str_eq(f->to, "musa:0");
    subjects[W].tag = ckpt__s("npu:2");
    place(NULL, CKPT_OPTIMIZER_FUSED); /* a step that lay on the cpu goes to where its parameter was saved */
    is(STEP, "npu:2");
}
END_TEST

START_TEST(breaches)
{
    place("map: 1\nrules:\n- {role: step, to: cpu}\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_FUSED);
    is(STEP, "cpu"); /* the rule stands, and is said to be wrong */
    const ckpt_finding *f = ckpt_report_find(report, "policy-breach", "optimizer.w.step");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(f->severity, CKPT_SEVERITY_ERROR);
    ck_assert_str_eq(f->from, "cpu");
    ck_assert_str_eq(f->to, "cuda:0");
    ck_assert_ptr_nonnull(strstr(f->message, "{role: step, to: 'cpu'} (line 3)"));
    place("map: 1\nrules:\n- {role: step, to: cpu}\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_PLAIN);
    ck_assert_uint_eq(ckpt_report_count_code(report, "policy-breach"), 0);
    place("map: 1\nrules:\n- {role: step, to: 'cuda:0'}\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_PLAIN);
    ck_assert_uint_eq(ckpt_report_count_code(report, "policy-breach"), 1);
    place("map: 1\nrules:\n- {name: 'optimizer.*.exp_avg', to: cpu}\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_PLAIN);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "policy-breach", "optimizer.w.exp_avg"));
    place("map: 1\nrules:\n- {role: rng, to: 'cuda:0'}\n", CKPT_OPTIMIZER_FUSED);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "policy-breach", "rng"));
    place("map: 1\nrules:\n- {role: buffer, to: cpu}\ndefault: 'cuda:0'\n", CKPT_OPTIMIZER_FUSED);
    ck_assert_int_eq(ckpt_report_worst(report), CKPT_SEVERITY_NOTE); /* buffers and parameters may be anywhere */
}
END_TEST

START_TEST(step_dtype)
{
    dtypes[STEP] = CKPT_I64;
    place(NULL, CKPT_OPTIMIZER_FUSED);
    ck_assert_int_eq(out[STEP].cast, CKPT_F32);
    place(NULL, CKPT_OPTIMIZER_PLAIN);
    ck_assert_int_eq(out[STEP].cast, CKPT_DTYPE_NONE);
    dtypes[AVG] = CKPT_BF16;
    place("map: 1\nrules:\n- {role: step, cast: float64}\n", CKPT_OPTIMIZER_FUSED);
    ck_assert_int_eq(out[AVG].cast, CKPT_DTYPE_NONE); /* never another implicit change */
    ck_assert_int_eq(out[STEP].cast, CKPT_F64);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "policy-breach", "optimizer.w.step"));
}
END_TEST

START_TEST(unused)
{
    place("cuda:1=cuda:0,cuda=cpu,mps=cpu", CKPT_OPTIMIZER_FUSED);
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 2);
    size_t found = 0;
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        found += strstr(ckpt_report_get(report, i)->message, "'cuda' is not 'cuda:0'") != NULL;
    ck_assert_uint_eq(found, 1);
    place("cuda:1=cuda:0,cpu=cpu", CKPT_OPTIMIZER_FUSED);
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 0);
    place("map: 1\nrules:\n- {name: 'wte.*', to: cpu}\n- {name: w, cast: float16}\n", CKPT_OPTIMIZER_FUSED);
    ck_assert_uint_eq(ckpt_report_count_code(report, "unused-rule"), 1);
    ck_assert_int_eq(out[W].cast, CKPT_F16);
}
END_TEST

START_TEST(edges)
{
    ck_assert_int_eq(ckpt__map_place(NULL, CKPT_OPTIMIZER_FUSED, NULL, NULL, NULL, 0, NULL, NULL, NULL, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__map_place(NULL, CKPT_OPTIMIZER_FUSED, NULL, subjects, NULL, COUNT, NULL, out, NULL, NULL),
                     CKPT_OK);
    ck_assert_int_eq(ckpt_map_parse("cuda:{1 - 2}", &map, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__map_place(map, CKPT_OPTIMIZER_FUSED, NULL, subjects, dtypes, COUNT, NULL, out, report, &err),
                     CKPT_E_ARGUMENT);
    ckpt_map_free(map);
    map = NULL;
    /* a tensor that names itself as its parameter, and two of one name */
    subjects[W].param = subjects[W].name;
    subjects[B].name = subjects[W].name;
    place("cuda:0", CKPT_OPTIMIZER_FUSED);
    is(W, "cuda:0");
    is(AVG, "cuda:0");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("policy");
    TCase *c = tcase_create("policy");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, table);
    tcase_add_test(c, fused);
    tcase_add_test(c, plain);
    tcase_add_test(c, which_kind);
    tcase_add_test(c, follows_its_parameter);
    tcase_add_test(c, the_scaler_follows_the_first_parameter);
    tcase_add_test(c, further_devices);
    tcase_add_test(c, breaches);
    tcase_add_test(c, step_dtype);
    tcase_add_test(c, unused);
    tcase_add_test(c, edges);
    suite_add_tcase(s, c);
    return run_suite(s);
}
