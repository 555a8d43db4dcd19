/* test_run_threads.c - a run belongs to one call at a time: a second one is refused, and does no harm. And one directory is
 * one run of this process. */
#include <stdatomic.h>
#include "ranks_fixture.h"

static void expect_refused(ckpt_status status, ckpt_status want, const ckpt_error *err, const char *text)
{
    ck_assert_msg(status == want, "status %d, not %d: %s: %s", (int)status, (int)want, err->object, err->message);
    ck_assert_msg(strstr(err->message, text) != NULL, "'%s' is not in: %s", text, err->message);
    ck_assert_msg(err->object[0] != '\0', "no object: %s", err->message);
}

/* ---- a second thread */

typedef struct stepper {
    trainer *x;
    ckpt_status status;
    ckpt_error err;
} stepper;

static void *step_5(void *arg)
{
    stepper *s = arg;
    s->err = (ckpt_error)CKPT_ERROR_INIT;
    s->status = ckpt_run_step(s->x->run, 5, &s->err);
    return NULL;
}

START_TEST(test_second_call)
{
    trainer x;
    pthread_t thread;
    int64_t done = -1;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    const char *run = in_folder("run");
    static const char inside[] = "another thread is inside this run (ckpt_run_step)";
    trainer_init(&x);
    x.o.every_steps = 5;
    x.o.synchronous = true;
    trainer_start(&x, run);
    set_step(&x.t, 5);
    gate_set(true, 0);
    stepper s = {.x = &x, .status = -100};
    IS_OK(pthread_create(&thread, NULL, step_5, &s));
    gate_meet(1); /* that call stands in the middle of its save */
    expect_refused(ckpt_run_step(x.run, 5, &x.err), CKPT_E_ARGUMENT, &x.err, inside);
    expect_refused(ckpt_run_save(x.run, 6, &x.err), CKPT_E_ARGUMENT, &x.err, inside);
    expect_refused(ckpt_run_wait(x.run, &x.err), CKPT_E_ARGUMENT, &x.err, inside);
    expect_refused(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_ARGUMENT, &x.err, inside);
    expect_refused(ckpt_run_close(x.run, &x.err), CKPT_E_ARGUMENT, &x.err, inside);
    ck_assert_int_eq(ckpt_run_step(x.run, 5, NULL), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_run_poll(x.run, 10), CKPT_TRIGGER_PERIODIC);
    ck_assert_int_eq(ckpt_run_poll(x.run, 11), CKPT_TRIGGER_NONE);
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_NONE);
    ckpt_run_get_info(x.run, &info);
    ck_assert(info.saves == 0 && info.resumed_step == -1);
    gate_set(false, 0);
    IS_OK(pthread_join(thread, NULL));
    ck_assert_msg(s.status == CKPT_OK, "%s: %s", s.err.object, s.err.message);
    ck_assert(holds(step_path(run, 5), 5));
    STEPS(&x, 6, 10); /* and now this thread, for the other is done */
    ck_assert(holds(step_path(run, 10), 10));
    trainer_end(&x);
}
END_TEST

/* Without order: each call either works or is refused, and in the end all is whole. Run under ThreadSanitizer, too. */
typedef struct hammer {
    trainer *x;
    int calls, refused, other;
} hammer;

static atomic_bool hammering;

static void *hammer_on(void *arg)
{
    hammer *h = arg;
    for (int i = 0; i < 60; i++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_status status = i % 7 == 6 ? ckpt_run_wait(h->x->run, &err)
                             : i % 3    ? ckpt_run_step(h->x->run, 1, &err)
                                        : ckpt_run_save(h->x->run, 1, &err);
        h->calls++;
        if (status == CKPT_E_ARGUMENT && strstr(err.message, "another thread is inside"))
            h->refused++;
        else if (status != CKPT_OK)
            h->other++;
    }
    return NULL;
}

static void *look_on(void *arg)
{
    trainer *x = arg;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    while (atomic_load(&hammering)) {
        ckpt_run_get_info(x->run, &info);
        (void)ckpt_run_poll(x->run, 3);
        (void)ckpt_run_stopping(x->run);
    }
    return NULL;
}

START_TEST(test_many_threads)
{
    enum { N = 3 };
    trainer x;
    pthread_t threads[N], looker;
    hammer h[N];
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.time_limit = 1e6;
    x.o.notice = NULL;
    trainer_start(&x, run);
    set_step(&x.t, 1);
    atomic_store(&hammering, true);
    IS_OK(pthread_create(&looker, NULL, look_on, &x));
    for (int i = 0; i < N; i++) {
        h[i] = (hammer){.x = &x};
        IS_OK(pthread_create(&threads[i], NULL, hammer_on, &h[i]));
    }
    for (int i = 0; i < N; i++)
        IS_OK(pthread_join(threads[i], NULL));
    atomic_store(&hammering, false);
    IS_OK(pthread_join(looker, NULL));
    for (int i = 0; i < N; i++)
        ck_assert_msg(h[i].other == 0, "%d of %d calls failed otherwise", h[i].other, h[i].calls);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    IS_OK(ckpt_run_save(x.run, 1, &x.err));
    IS_OK(trainer_close(&x));
    ck_assert(holds(step_path(run, 1), 1) && no_leftovers(run));
    trainer_end(&x);
}
END_TEST

/* ---- from within */

typedef struct eager {
    trainer x;
    int calls;
    bool held; /* all that is expected was so */
} eager;

static void call_back(void *ctx, const ckpt_finding *f)
{
    eager *e = ctx;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    (void)f;
    if (!e->x.run)
        return; /* while it is opened */
    e->calls++;
    ckpt_run_get_info(e->x.run, &info);
    (void)ckpt_run_poll(e->x.run, 1);
    (void)ckpt_run_stopping(e->x.run);
    e->held &=
        ckpt_run_step(e->x.run, 50, &err) == CKPT_E_ARGUMENT && strstr(err.message, "from within ckpt_run_") != NULL;
    e->held &= ckpt_run_wait(e->x.run, &err) == CKPT_E_ARGUMENT;
    e->held &= ckpt_run_close(e->x.run, &err) == CKPT_E_ARGUMENT;
}

START_TEST(test_from_a_notice)
{
    static eager e;
    const char *run = in_folder("run");
    trainer_init(&e.x);
    e.calls = 0;
    e.held = true;
    e.x.o.notice = call_back;
    e.x.o.notice_ctx = &e;
    e.x.o.every_steps = 1;
    trainer_start(&e.x, run);
    STEPS(&e.x, 1, 3);
    trainer_end(&e.x);
    ck_assert_msg(e.calls >= 3 && e.held, "%d calls", e.calls);
    ck_assert_int_eq(names_in(run, "step-"), 3);
}
END_TEST

static int reduce_eagerly(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    member *m = ctx;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    if (m->x.run) {
        ckpt_run_get_info(m->x.run, &info);
        NEED(ckpt_run_step(m->x.run, 99, &err) == CKPT_E_ARGUMENT && strstr(err.message, "from within"));
    }
    return all_reduce(ctx, v, n, op);
}

START_TEST(test_from_an_all_reduce)
{
    world *w = world_new(in_folder("run"), 2);
    w->last = 4;
    EACH(w, m)
    {
        m->x.o.all_reduce = reduce_eagerly;
        m->x.o.every_steps = 2;
    }
    world_play(w, train);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
    ck_assert_int_eq(ranks_with(w, 4), 2);
    world_free(w);
}
END_TEST

/* ---- a stop that one rank was asked for, and that another could not save */

static void script_stop(member *m)
{
    open_and_resume(m);
    NEED(m->status >= 0);
    set_rank_step(m, 1);
    m->status = ckpt_run_step(m->x.run, 1, &m->x.err);
    m->done = ckpt_run_stopping(m->x.run);
    m->stopped = strncmp(m->x.err.message, "a stop was asked for (deadline), and its save failed: rank 1: ", 62) == 0;
    ckpt_run_close(m->x.run, NULL);
    m->x.run = NULL;
}

START_TEST(test_stop_of_all_ranks)
{
    const char *run = in_folder("run");
    world *w = world_new(run, 2);
    w->members[0].x.o.time_limit = 1e-3;
    at_sync.name = "rank-00001";
    at_sync.fails = EIO;
    world_play(w, script_stop);
    EACH(w, m)
    {
        ck_assert_int_eq(m->status, CKPT_E_SYSTEM);
        ck_assert_msg(m->stopped == 1 && m->done == CKPT_TRIGGER_DEADLINE, "rank %d: %d: %s", (int)m->rank,
                      (int)m->done, m->x.err.message);
    }
    world_free(w);
}
END_TEST

/* ---- one directory twice in one process */

START_TEST(test_opened_twice)
{
    trainer x, y;
    const char *run = in_folder("run");
    static const char already[] = "this process has this directory open as a run already; close that run first";
    char other[200];
    trainer_init(&x);
    trainer_init(&y);
    trainer_start(&x, run);
    expect_refused(trainer_open(&y, run), CKPT_E_EXISTS, &y.err, already);
    snprintf(other, sizeof other, "%s/link", folder);
    IS_OK(symlink(run, other));
    expect_refused(trainer_open(&y, other), CKPT_E_EXISTS, &y.err, already);
    snprintf(other, sizeof other, "%s/./run/../run/", folder);
    expect_refused(trainer_open(&y, other), CKPT_E_EXISTS, &y.err, already);
    ck_assert_msg(ckpt_run_open(in_folder("else"), y.state, NULL, &y.run, &y.err) == CKPT_OK, "%s", y.err.message);
    IS_OK(trainer_close(&y));
    IS_OK(trainer_close(&x));
    IS_OK(trainer_open(&y, run));
    trainer_end(&y);
    trainer_end(&x);
}
END_TEST

static void script_twice(member *m)
{
    ckpt_run *second = NULL;
    open_and_resume(m);
    NEED(m->status >= 0);
    ckpt_state *s = ckpt_state_new();
    m->status = ckpt_run_open(m->w->run, s, &m->x.o, &second, &m->x.err);
    ckpt_state_free(s);
    ckpt_run_close(m->x.run, NULL);
    m->x.run = NULL;
}

START_TEST(test_rank_opened_twice)
{
    world *w = world_new(in_folder("run"), 2);
    world_play(w, script_twice);
    EACH(w, m)
    expect_refused(m->status, CKPT_E_EXISTS, &m->x.err, "this process has this directory open as a run already");
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("threads");
    TCase *tc = tcase_create("threads");
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_second_call);
    tcase_add_test(tc, test_many_threads);
    tcase_add_test(tc, test_from_a_notice);
    tcase_add_test(tc, test_from_an_all_reduce);
    tcase_add_test(tc, test_stop_of_all_ranks);
    tcase_add_test(tc, test_opened_twice);
    tcase_add_test(tc, test_rank_opened_twice);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
