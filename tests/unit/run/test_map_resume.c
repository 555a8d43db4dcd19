/* test_map_resume.c - the map is the map's: it is read before checkpoints are looked for, its errors are its own, and the
 * program's own host values stay where they are. Each case is a process with devices of its own. */
#include "../runner.h"

#include <pthread.h>
#include <sys/stat.h>
#include <ckpt/ckpt.h>
#include "../child.h"
#include "device/device.h"

enum { WIDE = 6, ORDER = 5 };

static char folder[64], run_path[100], yaml[100];

/* ---- a trainer with its weights on one device (-1: the cpu), and a loader's order in its own memory */

typedef struct trainer {
    int device;
    ckpt_state *state;
    float *weight, *moment;
    int32_t order[ORDER];
    unsigned char rng[16];
    ckpt_run *run;
    ckpt_run_options o;
    ckpt_restore_options r;
    ckpt_report *report;
    int fallbacks;
} trainer;

static void hear(void *ctx, const ckpt_finding *f)
{
    ((trainer *)ctx)->fallbacks += strcmp(f->code, "fallback") == 0;
}

static ckpt_device of(int device)
{
    return device < 0 ? ckpt_cpu() : ckpt_cuda(device);
}

static void bind(ckpt_state *s, const char *name, const char *param, ckpt_role role, ckpt_dtype dtype, int64_t n,
                 void *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = dtype;
    d.ndim = 1;
    d.shape = &n;
    d.data = data;
    REQUIRE_OK(ckpt_state_tensor(s, &d, &err));
}

static float *floats(int device)
{
    void *p = NULL;
    REQUIRE_OK(ckpt__device_ops_of(of(device).type)->alloc(device < 0 ? 0 : device, WIDE * sizeof(float), &p, &err));
    return p;
}

static void start(trainer *x, int device)
{
    memset(x, 0, sizeof *x);
    x->device = device;
    x->state = ckpt_state_new();
    x->report = ckpt_report_new();
    x->weight = floats(device);
    x->moment = floats(device);
    if (device < 0) {
        memset(x->weight, 0, WIDE * sizeof(float));
        memset(x->moment, 0, WIDE * sizeof(float));
    }
    bind(x->state, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, WIDE, x->weight);
    bind(x->state, NULL, "w", CKPT_ROLE_EXP_AVG, CKPT_F32, WIDE, x->moment);
    bind(x->state, "loader.order", NULL, CKPT_ROLE_OTHER, CKPT_I32, ORDER, x->order);
    bind(x->state, "rng", NULL, CKPT_ROLE_RNG, CKPT_U8, sizeof x->rng, x->rng);
    x->o.restore = &x->r;
    x->o.notice = hear;
    x->o.notice_ctx = x;
}

static ckpt_status resume(trainer *x, const char *map)
{
    int64_t done = -1;
    err = (ckpt_error)CKPT_ERROR_INIT;
    ckpt_status status = ckpt_run_resume(x->run, map, &done, x->report, &err);
    REQUIRE(status != CKPT_OK || done == 3);
    return status;
}

static void end(trainer *x)
{
    REQUIRE_OK(ckpt_run_close(x->run, &err));
    ckpt_state_free(x->state);
    ckpt_report_free(x->report);
    REQUIRE_OK(ckpt__device_ops_of(of(x->device).type)->release(x->device < 0 ? 0 : x->device, x->weight, &err));
    REQUIRE_OK(ckpt__device_ops_of(of(x->device).type)->release(x->device < 0 ? 0 : x->device, x->moment, &err));
}

static void make_checkpoints(int device)
{
    trainer x;
    start(&x, device);
    REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
    REQUIRE(resume(&x, NULL) == CKPT_NOTHING_TO_RESUME);
    for (int64_t done = 1; done <= 3; done++) {
        for (int i = 0; i < ORDER; i++)
            x.order[i] = (int32_t)(done * 100 + i);
        REQUIRE_OK(ckpt_run_save(x.run, done, &err));
        REQUIRE_OK(ckpt_run_wait(x.run, &err));
    }
    end(&x);
}

static void write_yaml(const char *text)
{
    FILE *f = fopen(yaml, "w");
    REQUIRE(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static bool says(const char *text)
{
    if (strstr(err.message, text))
        return true;
    fprintf(stderr, "'%s' is not in: %s: %s\n", text, err.object, err.message);
    return false;
}

/* ---- what is wrong with the map itself */

typedef struct wrong {
    const char *map, *yaml;
    ckpt_status status;
    const char *object, *text;
} wrong;

/* At the call, and in the options when the run is opened; where there is nothing to resume, and where there is. */
static void bad_map(const void *arg)
{
    const wrong *w = arg;
    const char *map = strcmp(w->map, "YAML") == 0 ? yaml : w->map;
    if (w->yaml)
        write_yaml(w->yaml);
    for (int held = 0; held < 2; held++) {
        trainer x;
        if (held)
            make_checkpoints(-1);
        start(&x, -1);
        REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
        REQUIRE(resume(&x, map) == w->status && says(w->text));
        REQUIRE(strstr(err.object, w->object) && !strstr(err.message, "checkpoints") && x.fallbacks == 0);
        REQUIRE(ckpt_run_step(x.run, 4, NULL) == CKPT_E_ARGUMENT); /* nothing was resumed */
        REQUIRE(resume(&x, "cpu") == (held ? CKPT_OK : CKPT_NOTHING_TO_RESUME));
        REQUIRE_OK(ckpt_run_close(x.run, &err));
        x.run = NULL;
        x.r.map_location = map;
        ckpt_status opened = ckpt_run_open(run_path, x.state, &x.o, &x.run, &err);
        if (w->status == CKPT_E_DEVICE) { /* the map is right: the machine is not */
            REQUIRE(opened == CKPT_OK && resume(&x, NULL) == w->status);
            REQUIRE(ckpt_report_find(x.report, "no-such-device", NULL));
        } else
            REQUIRE(opened == w->status && x.run == NULL);
        REQUIRE(says(w->text) && strstr(err.object, w->object));
        end(&x);
    }
}

static const char *const none[] = {"FAKECUDA_DEVICES=0", NULL};
static const char *const one[] = {"FAKECUDA_DEVICES=1", NULL};
static const char *const two[] = {"FAKECUDA_DEVICES=2", NULL};

static void remove_run(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s'", folder, folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(a_map_has_errors_of_its_own)
{
    static const wrong all[] = {
        {"mars:1", NULL, CKPT_E_ARGUMENT, "mars:1", "not a device to map to"},
        {"gpu:0", NULL, CKPT_E_ARGUMENT, "gpu:0", "cuda"},
        {"cuda:0=cuda", NULL, CKPT_E_ARGUMENT, "cuda:0=cuda", "cuda:0"},
        {"nofile.yaml", NULL, CKPT_E_SYSTEM, "nofile.yaml", "cannot open the map file"},
        {"YAML", "map: 1\nrules: [{tag: *, to: cpu}]\n", CKPT_E_ARGUMENT, "m.yaml", "line 2"},
        {"YAML", "map: 1\nrulez: []\n", CKPT_E_ARGUMENT, "m.yaml", "rulez"},
        {"cuda:7", NULL, CKPT_E_DEVICE, "cuda:7", "no such device: there are 2"},
        {"cuda:{7 * world}", NULL, CKPT_E_DEVICE, "cuda:7", "no such device"},
        {"xpu:0", NULL, CKPT_E_DEVICE, "xpu:0", "places tensors on cpu and cuda only"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        remove_run();
        expect_success(bad_map, &all[i], two);
    }
    remove_run();
    wrong w = {"cuda:0", NULL, CKPT_E_DEVICE, "cuda:0", "no such device"};
    expect_success(bad_map, &w, none);
}
END_TEST

/* Rules count where they are used: a new run, and a checkpoint that has no such tag, need no cuda:7. */
static void unused_rules(const void *arg)
{
    trainer x;
    (void)arg;
    start(&x, -1);
    REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
    REQUIRE(resume(&x, "cuda:3=cuda:7") == CKPT_NOTHING_TO_RESUME);
    REQUIRE(resume(&x, "cuda:{index}") == CKPT_NOTHING_TO_RESUME);
    REQUIRE(resume(&x, "cuda:{rank / 0}") == CKPT_E_ARGUMENT && says("division by zero"));
    REQUIRE(strcmp(err.object, "cuda:{rank / 0}") == 0);
    write_yaml("map: 1\nrules:\n- {name: 'nothing.*', to: 'cuda:9'}\n");
    REQUIRE(resume(&x, yaml) == CKPT_NOTHING_TO_RESUME);
    for (int64_t done = 1; done <= 3; done++)
        REQUIRE_OK(ckpt_run_save(x.run, done, &err));
    REQUIRE_OK(ckpt_run_wait(x.run, &err));
    REQUIRE(resume(&x, "cuda:3=cuda:7") == CKPT_OK);
    REQUIRE(resume(&x, "cpu=cuda:7") == CKPT_E_MISMATCH);
    end(&x);
}

START_TEST(rules_count_where_they_are_used)
{
    expect_success(unused_rules, NULL, two);
}
END_TEST

/* Read once: a file that is gone by the time of the resume does no harm. */
static void file_goes(const void *arg)
{
    trainer x;
    (void)arg;
    make_checkpoints(-1);
    write_yaml("map: 1\ndefault: cpu\n");
    start(&x, -1);
    x.r.map_location = yaml;
    REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
    REQUIRE(unlink(yaml) == 0);
    REQUIRE_OK(resume(&x, NULL));
    REQUIRE_OK(resume(&x, NULL));
    REQUIRE(x.order[0] == 300);
    REQUIRE(resume(&x, yaml) == CKPT_E_SYSTEM); /* the argument counts instead */
    REQUIRE_OK(resume(&x, ""));
    end(&x);
}

START_TEST(a_map_is_read_once)
{
    expect_success(file_goes, NULL, none);
}
END_TEST

/* ---- two ranks */

typedef struct pair {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int arrived;
    unsigned round;
    int64_t sum[512], result[512];
} pair;

static pair both = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    pair *p = ctx;
    pthread_mutex_lock(&p->lock);
    unsigned round = p->round;
    for (size_t i = 0; i < n; i++) {
        int64_t a = p->arrived ? p->sum[i] : v[i], b = v[i];
        p->sum[i] = !p->arrived ? a : op == CKPT_OP_SUM ? a + b : (op == CKPT_OP_MIN) == (a < b) ? a : b;
    }
    if (++p->arrived == 2) {
        memcpy(p->result, p->sum, n * sizeof *v);
        p->arrived = 0;
        p->round++;
        pthread_cond_broadcast(&p->changed);
    }
    while (p->round == round)
        pthread_cond_wait(&p->changed, &p->lock);
    memcpy(v, p->result, n * sizeof *v);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

typedef struct member {
    int64_t rank, at;
    ckpt_status status;
    ckpt_error error;
    const char *map;
} member;

static void *be_rank(void *arg)
{
    member *m = arg;
    ckpt_run *run = NULL;
    ckpt_state *s = ckpt_state_new();
    ckpt_run_options o = {.ranks = {m->rank, m->rank, 2}, .all_reduce = reduce, .all_reduce_ctx = &both};
    m->error = (ckpt_error)CKPT_ERROR_INIT;
    m->status = ckpt_run_open(run_path, s, &o, &run, &m->error);
    if (m->status == CKPT_OK)
        m->status = ckpt_run_resume(run, m->map, &m->at, NULL, &m->error);
    REQUIRE_OK(ckpt_run_close(run, &err));
    ckpt_state_free(s);
    return NULL;
}

static void rank_maps(const void *arg)
{
    static const struct {
        const char *map[2];
        ckpt_status status;
        const char *text;
    } all[] = {
        {{"cuda:{rank}", "cuda:{rank}"}, CKPT_E_DEVICE, "rank 1: no such device"},
        {{"cuda:0", "nofile.yaml"}, CKPT_E_SYSTEM, "rank 1: cannot open the map file"},
        {{"mars", "cuda:0"}, CKPT_E_ARGUMENT, "rank 0: "},
        {{"cuda:{rank * 0}", "cuda:0"}, CKPT_NOTHING_TO_RESUME, ""},
    };
    (void)arg;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pthread_t threads[2];
        member m[2];
        for (int k = 0; k < 2; k++) {
            m[k] = (member){.rank = k, .map = all[i].map[k]};
            REQUIRE(pthread_create(&threads[k], NULL, be_rank, &m[k]) == 0);
        }
        for (int k = 0; k < 2; k++)
            REQUIRE(pthread_join(threads[k], NULL) == 0);
        for (int k = 0; k < 2; k++) {
            err = m[k].error;
            REQUIRE(m[k].status == all[i].status && says(all[i].text) &&
                    strcmp(m[0].error.object, m[1].error.object) == 0);
        }
    }
}

START_TEST(ranks_agree_on_the_error)
{
    expect_success(rank_maps, NULL, one);
}
END_TEST

/* ---- the program's own host memory */

static void host_values(const void *arg)
{
    trainer x;
    (void)arg;
    make_checkpoints(0);
    start(&x, 0);
    REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
    static const char *const maps[] = {"cuda:0", "cuda:{rank}", "cuda:*=cuda:0,cpu=cuda:0"};
    for (size_t i = 0; i < 3; i++) {
        memset(x.order, 0, sizeof x.order);
        REQUIRE_OK(resume(&x, maps[i]));
        REQUIRE(x.order[0] == 300 && x.order[4] == 304);
        const ckpt_finding *f = ckpt_report_find(x.report, "policy-placed", "loader.order");
        REQUIRE(f && f->severity == CKPT_SEVERITY_NOTE && strstr(f->message, "own host memory"));
        REQUIRE(ckpt_report_find(x.report, "policy-placed", "rng"));
    }
    REQUIRE_OK(resume(&x, NULL));
    REQUIRE(!ckpt_report_find(x.report, "policy-placed", NULL));
    /* A rule by name or role says where it goes, and then it must be there. */
    write_yaml("map: 1\nrules:\n- {name: 'loader.*', to: 'cuda:0'}\n");
    REQUIRE(resume(&x, yaml) == CKPT_E_MISMATCH && ckpt_report_find(x.report, "device-mismatch", "loader.order"));
    REQUIRE(says("the rules put it on cuda:0, and its bound buffer is on cpu") && says("pass NULL as map_location"));
    write_yaml("map: 1\nrules:\n- {role: other, to: 'cuda:0'}\n");
    REQUIRE(resume(&x, yaml) == CKPT_E_MISMATCH && ckpt_report_find(x.report, "device-mismatch", "loader.order"));
    end(&x);
    /* What the library allocates follows the map. */
    ckpt_state *s = ckpt_state_new();
    ckpt_restore_options o = {.map_location = "cuda:0", .allow_unexpected = true};
    char path[200];
    bind(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, WIDE, NULL);
    bind(s, "loader.order", NULL, CKPT_ROLE_OTHER, CKPT_I32, ORDER, NULL);
    snprintf(path, sizeof path, "%s/step-00000003", run_path);
    REQUIRE_OK(ckpt_restore(s, path, &o, NULL, &err));
    REQUIRE(ckpt_device_equal(ckpt_state_device(s, "loader.order"), ckpt_cuda(0)));
    ckpt_state_free(s);
}

START_TEST(host_values_stay)
{
    expect_success(host_values, NULL, two);
}
END_TEST

/* Own weights on the cpu, and a map to a device: NULL is named first. And a device that is not there comes alone. */
static void mismatches(const void *arg)
{
    trainer x;
    (void)arg;
    make_checkpoints(-1);
    start(&x, -1);
    REQUIRE_OK(ckpt_run_open(run_path, x.state, &x.o, &x.run, &err));
    REQUIRE(resume(&x, "cuda:0") == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_count_code(x.report, "device-mismatch") == 2 && x.fallbacks == 0);
    const ckpt_finding *f = ckpt_report_find(x.report, "device-mismatch", "w");
    REQUIRE(f &&
            strstr(f->fix,
                   "pass NULL as map_location: your buffers stay where they are; or bind a buffer on cuda:0; or change "
                   "the map") == f->fix);
    REQUIRE(resume(&x, "cpu=cuda:7") == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_count_code(x.report, "device-mismatch") == 0);
    REQUIRE(ckpt_report_count_code(x.report, "no-such-device") == 1);
    REQUIRE(says("2 tensors are to go to cuda:7, and there are 2 CUDA devices (the first: w)"));
    write_yaml("map: 1\nrules:\n- {role: exp_avg, to: 'cuda:7'}\n- {name: 'w', to: 'cuda:1'}\n");
    REQUIRE(resume(&x, yaml) == CKPT_E_MISMATCH);
    f = ckpt_report_get(x.report, 0);
    for (size_t i = 0; f && strcmp(f->code, "no-such-device") != 0; f = ckpt_report_get(x.report, ++i))
        REQUIRE(strcmp(f->code, "device-mismatch") != 0);
    REQUIRE(f && strstr(f->message, "1 tensor is to go to cuda:7, and there are 2 CUDA devices") == f->message);
    REQUIRE(ckpt_report_count_code(x.report, "device-mismatch") == 1); /* w, on a device that is there */
    end(&x);
}

START_TEST(a_mismatch_says_what_to_do)
{
    expect_success(mismatches, NULL, two);
}
END_TEST

static void setup(void)
{
    strcpy(folder, "/tmp/ckpt-map-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(run_path, sizeof run_path, "%s/run", folder);
    snprintf(yaml, sizeof yaml, "%s/m.yaml", folder);
}

static void teardown(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

int main(void)
{
    Suite *s = suite_create("map of a run");
    TCase *t = tcase_create("map of a run");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_map_has_errors_of_its_own);
    tcase_add_test(t, rules_count_where_they_are_used);
    tcase_add_test(t, a_map_is_read_once);
    tcase_add_test(t, ranks_agree_on_the_error);
    tcase_add_test(t, host_values_stay);
    tcase_add_test(t, a_mismatch_says_what_to_do);
    suite_add_tcase(s, t);
    return run_suite(s);
}
