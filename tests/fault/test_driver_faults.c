/* Every call of the CUDA driver fails in turn, once and for ever, while a run saves a state that lies on a device (the
 * stand-in's), or resumes one: an error that names it, the checkpoint of before intact, the training's memory untouched,
 * nothing left with the driver, and the next save works. */
#include "../unit/runner.h"

#include "../unit/child.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* it has more checks than are used here */
#include "../unit/restore_checks.h"
#pragma GCC diagnostic pop
#include "../fakecuda/fakecuda.h"
#include <ckpt/run.h>

static char folder[64];

#define FAKE(name) ((__typeof__(name) *)(uintptr_t)driver_function(#name))

enum { DEVICE = 1, BEFORE = 5, NOW = 6, MOST = 3000 };

typedef struct kind {
    bool asynchronous;
    bool warm;    /* this run has saved before, and keeps its host memory; else it saves for the first time */
    bool resumes; /* it is the resume that fails */
    int once;
} kind;

static bool is_long(void)
{
    const char *value = getenv("CKPT_FAULT_LONG");
    return value && *value && *value != '0';
}

static void fill_live(live *l, float seed)
{
    put(DEVICE, l->big, BIG, seed);
    put(DEVICE, l->big_avg, BIG, seed + 1);
    put(DEVICE, l->small, SMALL, seed + 2);
    put(DEVICE, l->steps, 2, seed + 3);
    l->step = (int64_t)seed;
}

/* The step lies there whole: read on the cpu. */
static void step_holds(int step)
{
    char name[140];
    live l;
    snprintf(name, sizeof name, "%s/step-%08d", path, step);
    open_live(&l, -1, -1, 0);
    REQUIRE_OK(ckpt_restore(l.state, name, NULL, NULL, &err));
    REQUIRE(live_holds(&l, -1, (float)step));
    close_live(&l, -1);
}

static ckpt_run *open_run(const kind *k, live *l)
{
    ckpt_run *run;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    o.synchronous = !k->asynchronous;
    REQUIRE_OK(ckpt_run_open(path, l->state, &o, &run, &err));
    return run;
}

static void empty_run(void)
{
    char command[140];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    REQUIRE(system(command) == 0);
}

static ckpt_status save_now(ckpt_run *run, int64_t step, ckpt_error *e)
{
    ckpt_status status = ckpt_run_save(run, step, e), later = ckpt_run_wait(run, status < 0 ? NULL : e);
    return status < 0 ? status : later;
}

/* A run that can go on from step BEFORE. Warm: it has just saved that; else it was saved before, on the cpu. */
static ckpt_run *make_run(const kind *k, live *l)
{
    int64_t done;
    live host;
    empty_run();
    ckpt_run *run = NULL;
    if (!k->warm) {
        open_live(&host, -1, -1, BEFORE);
        run = open_run(k, &host);
        REQUIRE(ckpt_run_resume(run, NULL, &done, NULL, &err) == CKPT_NOTHING_TO_RESUME);
        REQUIRE_OK(ckpt_run_save(run, BEFORE, &err));
        REQUIRE_OK(ckpt_run_close(run, &err));
        close_live(&host, -1);
    }
    run = open_run(k, l);
    if (k->resumes)
        return run;
    ckpt_status status = ckpt_run_resume(run, NULL, &done, NULL, &err);
    REQUIRE(status == (k->warm ? CKPT_NOTHING_TO_RESUME : CKPT_OK));
    fill_live(l, BEFORE);
    if (k->warm)
        REQUIRE_OK(save_now(run, BEFORE, &err));
    return run;
}

static void check_error(ckpt_status status, const ckpt_error *e)
{
    if (status >= 0)
        return;
    if (status != CKPT_E_DEVICE && status != CKPT_E_MISMATCH)
        fprintf(stderr, "status %d: %s: %s\n", (int)status, e->object, e->message);
    REQUIRE(status == CKPT_E_DEVICE || status == CKPT_E_MISMATCH);
    REQUIRE(strstr(e->message, "CUDA_ERROR_UNKNOWN") && strstr(e->message, "cu"));
    REQUIRE(strstr(e->object, "cuda:") || strstr(e->message, "cuda:") || e->object[0]);
}

static void save_fails(ckpt_run *run, live *l, ckpt_status status)
{
    REQUIRE(live_holds(l, DEVICE, NOW));
    step_holds(status < 0 ? BEFORE : NOW);
    REQUIRE_OK(save_now(run, NOW, &err));
    step_holds(NOW);
}

static void resume_fails(ckpt_run *run, live *l, ckpt_status status)
{
    int64_t done = -1;
    if (status < 0) {
        if (!ckpt_state_poisoned(l->state))
            REQUIRE(live_holds(l, DEVICE, NOW));
        REQUIRE_OK(ckpt_run_resume(run, NULL, &done, NULL, &err));
        REQUIRE(done == BEFORE);
    }
    REQUIRE(live_holds(l, DEVICE, BEFORE));
}

/* make check has time for the first few, which share the calls between them; CKPT_FAULT_LONG=1 runs all of all. */
static const kind kinds[] = {
    {true, true, false, 1},  {true, false, false, 0}, {true, false, true, 1},  {true, true, false, 0},
    {true, false, false, 1}, {false, true, false, 1}, {false, true, false, 0}, {true, false, true, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FEW = 3 };

/* Each call is one of the few kinds' that share them. Drawn, since the calls come in groups (push, copy, pop), of which every third would
 * be the same one always. */
static bool is_drawn(const kind *k, uint64_t n)
{
    return (n * 2654435761u >> 16) % FEW == (uint64_t)(k - kinds);
}

static void each_call_fails(const void *arg)
{
    const kind *k = arg;
    bool clean = false;
    live l;
    uint64_t n = 0, failed = 0, tried = 0;
    big_shape[0] = rows = 3;
    open_live(&l, DEVICE, DEVICE, BEFORE);
    while (!clean) {
        n++;
        if (!is_long() && !is_drawn(k, n))
            continue;
        tried++;
        fakecuda_counts before, after;
        ckpt_error e = CKPT_ERROR_INIT;
        int64_t done;
        FAKE(fakecuda_live)(&before);
        ckpt_run *run = make_run(k, &l);
        fill_live(&l, NOW);
        FAKE(fakecuda_fail_at)(n, CUDA_ERROR_UNKNOWN, k->once);
        ckpt_status status = k->resumes ? ckpt_run_resume(run, NULL, &done, NULL, &e) : save_now(run, NOW, &e);
        clean = FAKE(fakecuda_failed_call)() == NULL;
        FAKE(fakecuda_fail_at)(0, 0, 1);
        REQUIRE(!clean || status == CKPT_OK);
        check_error(status, &e);
        failed += status < 0;
        if (k->resumes)
            resume_fails(run, &l, status);
        else
            save_fails(run, &l, status);
        REQUIRE_OK(ckpt_run_close(run, &err));
        FAKE(fakecuda_live)(&after);
        REQUIRE(after.allocations == before.allocations && after.host == before.host &&
                after.streams == before.streams);
        REQUIRE(after.events == before.events && after.pushed == before.pushed && after.pending == 0);
        REQUIRE(n < MOST);
    }
    /* Most of them matter: of a resume 53 of 91, the others being those that ask where memory lies, and those that free. Of the third that
     * is drawn it may be fewer. */
    REQUIRE(n > 10 && failed > tried / (is_long() ? 2 : 3));
    close_live(&l, DEVICE);
}

static const char *const two[] = {"FAKECUDA_DEVICES=2", NULL};

static void setup(void)
{
    strcpy(folder, "/dev/shm/ckpt-driver-XXXXXX"); /* in memory where it can be: nothing here depends on the disk */
    if (!mkdtemp(folder)) {
        strcpy(folder, "/tmp/ckpt-driver-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
    }
    snprintf(path, sizeof path, "%s/run", folder);
}

static void teardown(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(each_driver_call_fails_in_turn)
{
    expect_success(each_call_fails, &kinds[_i], two);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("driver faults");
    TCase *t = tcase_create("driver faults");
    tcase_set_timeout(t, 900);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, each_driver_call_fails_in_turn, 0, is_long() ? KINDS : FEW);
    suite_add_tcase(s, t);
    return run_suite(s);
}
