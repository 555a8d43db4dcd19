/* test_run_ranks_faults.c - several ranks, where the agreement itself fails, at every call of it; where one rank's own
 * arguments are wrong; and where one rank alone is asked to stop. */
#include "ranks_fixture.h"

static world *new_world(const char *run, int n, int64_t last)
{
    world *w = world_new(run, n);
    w->last = last;
    EACH(w, m)
    m->x.o.every_steps = 2;
    return w;
}

static void expect_error(world *w, ckpt_status status, const char *text)
{
    EACH(w, m)
    {
        ck_assert_msg(m->status == status, "rank %d: %d: %s: %s", (int)m->rank, (int)m->status, m->x.err.object,
                      m->x.err.message);
        ck_assert_msg(strstr(m->x.err.message, text) != NULL, "rank %d: '%s' is not in: %s", (int)m->rank, text,
                      m->x.err.message);
    }
}

/* ---- the all-reduce fails */

/* As train, and after an error it goes on: no call may hang, or be mistaken for another. */
static void train_regardless(member *m)
{
    open_and_resume(m);
    for (int64_t i = m->status >= 0 ? m->done + 1 : INT64_MAX; i <= m->w->last; i++) {
        set_rank_step(m, i);
        ckpt_error e = CKPT_ERROR_INIT;
        ckpt_status status = ckpt_run_step(m->x.run, i, &e);
        if (status < 0) {
            m->status = status;
            m->x.err = e;
        }
    }
    close_rank(m);
}

/* At call k of rank 1. Returns false where there was no such call. */
static bool fail_at(const char *run, int k, fault how, script_fn script)
{
    world *w = new_world(run, 3, 7);
    bool failed = false;
    EACH(w, m)
    m->x.o.retention.keep_last = 2;
    w->members[1].fails_at = k;
    w->members[1].how = how;
    world_play(w, script);
    if (w->members[1].calls >= k) {
        failed = true;
        EACH(w, m)
        if (m->status < 0)
            ck_assert_msg(strstr(m->x.err.message, "all_reduce"), "call %d, rank %d: %s", k, (int)m->rank,
                          m->x.err.message);
        ck_assert_msg(w->members[1].status < 0, "call %d: the rank whose all_reduce failed was not told", k);
    }
    world_free(w);
    /* Whatever became of it, all ranks resume from one step, with the state of that step; or begin anew, where the very
     * first checkpoint was published by some of them and none is on all. */
    w = new_world(run, 3, 0);
    world_play(w, look);
    int common = 0;
    for (int i = 2; i <= 6; i += 2)
        common += ranks_with(w, i) == 3;
    EACH(w, m)
    {
        ck_assert_msg(m->status >= 0, "call %d, rank %d: %s: %s", k, (int)m->rank, m->x.err.object, m->x.err.message);
        ck_assert_msg((m->done > 0) == (common > 0), "call %d, rank %d: at %d", k, (int)m->rank, (int)m->done);
        ck_assert_msg(m->done == w->members[0].done && m->done >= 0 && m->done <= 6 && m->done % 2 == 0,
                      "call %d: rank %d resumes from %d, rank 0 from %d", k, (int)m->rank, (int)m->done,
                      (int)w->members[0].done);
    }
    world_free(w);
    return failed;
}

static void fail_at_each(fault how, script_fn script, const char *name)
{
    int k = 1;
    for (bool failed = true; failed; k++) {
        char run[200];
        snprintf(run, sizeof run, "%s/%s-%d", folder, name, k);
        failed = fail_at(run, k, how, script);
    }
    ck_assert_msg(k > 20, "only %d calls", k);
}

START_TEST(test_fails_at_each_call)
{
    fail_at_each(FAILS_BEFORE, train, "before");
    fail_at_each(FAILS_AFTER, train, "after");
    fail_at_each(FAILS_ALONE, train, "alone");
}
END_TEST

START_TEST(test_fails_and_goes_on)
{
    fail_at_each(FAILS_BEFORE, train_regardless, "before");
    fail_at_each(FAILS_AFTER, train_regardless, "after");
    fail_at_each(FAILS_ALONE, train_regardless, "alone");
}
END_TEST

/* In a run that has checkpoints already, the resume itself fails: nothing is lost by it. */
START_TEST(test_fails_at_each_call_of_a_resume)
{
    const char *run = in_folder("run");
    for (int how = FAILS_BEFORE; how <= FAILS_ALONE; how++) {
        int k = 1;
        for (bool failed = true; failed; k++) {
            world *w = new_world(run, 3, 6);
            if (k == 1) {
                world_play(w, train);
                EACH(w, m)
                ck_assert_int_eq(m->status, CKPT_OK);
            }
            world_free(w);
            w = new_world(run, 3, 0);
            w->members[2].fails_at = k;
            w->members[2].how = (fault)how;
            world_play(w, look);
            failed = w->members[2].calls >= k;
            EACH(w, m)
            ck_assert_msg(m->status < 0 || m->done == 6, "call %d, rank %d: at %d", k, (int)m->rank, (int)m->done);
            if (failed)
                ck_assert_int_eq(w->members[2].status, CKPT_E_SYSTEM);
            world_free(w);
        }
        ck_assert_int_gt(k, 5);
    }
}
END_TEST

/* ---- one rank's own fault */

static void open_only(member *m)
{
    m->status = ckpt_run_open(m->w->run, m->x.state, &m->x.o, &m->x.run, m->rank == 1 ? NULL : &m->x.err);
    if (m->status == CKPT_OK)
        m->status = ckpt_run_close(m->x.run, &m->x.err);
    m->x.run = NULL;
}

/* The rank at fault does not even want to be told: the others are. */
static void refused_at_open(world *w, ckpt_status status, const char *text)
{
    world_play(w, open_only);
    EACH(w, m)
    {
        ck_assert_msg(m->status == status, "rank %d: %d: %s", (int)m->rank, (int)m->status, m->x.err.message);
        ck_assert_msg(m->rank == 1 || strstr(m->x.err.message, text), "rank %d: %s", (int)m->rank, m->x.err.message);
    }
    world_free(w);
}

START_TEST(test_open_is_refused)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 0);
    w->members[1].x.o.every_steps = -1;
    refused_at_open(w, CKPT_E_ARGUMENT, "rank 1: every_steps");
    w = new_world(run, 3, 0);
    w->members[1].x.o.synchronous = true;
    refused_at_open(w, CKPT_E_ARGUMENT, "synchronous is 0 on one rank and 1 on another");
    w = new_world(run, 3, 0);
    w->members[2].x.o.skip_when_busy = true;
    refused_at_open(w, CKPT_E_ARGUMENT, "skip_when_busy");
    w = new_world(run, 3, 0);
    w->members[1].x.o.ranks.world = 4;
    refused_at_open(w, CKPT_E_ARGUMENT, "ranks.world is 3 on one rank and 4 on another");
    w = new_world(run, 3, 0);
    IS_OK(mkdir(run, 0777) == 0 || errno == EEXIST ? 0 : -1);
    write_file(path_of(run, "rank-00001"), "x", 1);
    refused_at_open(w, CKPT_E_FORMAT, "rank 1: it is not a directory");
    IS_OK(unlink(path_of(run, "rank-00001")));
    w = new_world(run, 3, 0);
    w->members[1].x.o.ranks.rank = 2; /* two of one number: the second finds the lock taken */
    world_play(w, open_only);
    EACH(w, m)
    ck_assert_int_eq(m->status, CKPT_E_EXISTS);
    world_free(w);
    w = new_world(run, 3, 0);
    world_play(w, open_only);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "nothing of it is left: %s", m->x.err.message);
    world_free(w);
}
END_TEST

/* Each wrong call is an error on all ranks, and the next one works. */
static void wrong_calls(member *m)
{
    ckpt_error *mine = m->rank == 1 ? NULL : &m->x.err;
    bool one = m->rank == 1;
    open_and_resume(m);
    NEED(m->status >= 0);
    set_rank_step(m, 1);
    m->x.t.step = one ? 5 : 1;
    NEED(ckpt_run_step(m->x.run, 1, mine) == CKPT_E_ARGUMENT);
    NEED(one || strstr(m->x.err.message, "rank 1: the bound variable 'step' is 5"));
    set_rank_step(m, one ? 3 : 1);
    NEED(ckpt_run_step(m->x.run, one ? 3 : 1, mine) == CKPT_E_ARGUMENT);
    NEED(one || strstr(m->x.err.message, "the ranks are at different steps: 1 to 3 completed, 1 on rank"));
    set_rank_step(m, 1);
    NEED(ckpt_run_save(m->x.run, one ? -1 : 1, mine) == CKPT_E_ARGUMENT);
    m->x.state->poisoned = one;
    NEED(ckpt_run_step(m->x.run, 1, mine) == CKPT_E_POISONED);
    NEED(one || strstr(m->x.err.message, "rank 1: "));
    m->x.state->poisoned = false;
    NEED(ckpt_run_step(m->x.run, 1, mine) == CKPT_OK);
    set_rank_step(m, 2);
    NEED(ckpt_run_step(m->x.run, 2, mine) == CKPT_OK);
    close_rank(m);
}

START_TEST(test_wrong_calls)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 0);
    world_play(w, wrong_calls);
    EACH(w, m)
    ck_assert_int_eq(m->status, CKPT_OK);
    ck_assert(ranks_with(w, 2) == 3 && ranks_with(w, 1) == 0);
    world_free(w);
}
END_TEST

static void step_before_resume(member *m)
{
    m->status = ckpt_run_open(m->w->run, m->x.state, &m->x.o, &m->x.run, &m->x.err);
    NEED(m->status == CKPT_OK);
    set_rank_step(m, 2);
    m->status = ckpt_run_step(m->x.run, 2, &m->x.err);
    NEED(ckpt_run_close(m->x.run, NULL) == CKPT_OK);
    m->x.run = NULL;
}

START_TEST(test_step_before_resume)
{
    world *w = new_world(in_folder("run"), 3, 0);
    world_play(w, step_before_resume);
    expect_error(w, CKPT_E_ARGUMENT, "before ckpt_run_resume");
    ck_assert_int_eq(ranks_with(w, 2), 0);
    world_free(w);
}
END_TEST

/* ---- one rank is asked */

static void train_until_stop(member *m)
{
    open_and_resume(m);
    NEED(m->status >= 0);
    for (int64_t i = m->done + 1; i <= 50 && m->status != CKPT_STOP; i++) {
        if (i == 5 && m->rank == 1 && m->x.o.signals)
            NEED(raise(SIGUSR1) == 0);
        if (i == 5 && m->rank == 0 && !m->w->members[1].x.o.signals) {
            FILE *f = fopen(path_of(m->w->run, "STOP"), "w");
            NEED(f && fclose(f) == 0);
            m->x.run->looked = 0;
        }
        set_rank_step(m, i);
        m->status = ckpt_run_step(m->x.run, i, &m->x.err);
        NEED(m->status >= 0);
        m->stopped = i;
    }
    NEED(m->status == CKPT_STOP);
    close_rank(m);
    NEED(m->status == CKPT_OK);
}

static void stops_together(bool signals)
{
    const char *run = in_folder(signals ? "signal" : "file");
    world *w = world_new(run, 3);
    w->members[1].x.o.signals = signals;
    world_play(w, train_until_stop);
    int64_t stopped = w->members[0].stopped;
    ck_assert_msg(signals ? stopped >= 5 && stopped <= 50 : stopped == 5, "%d", (int)stopped);
    EACH(w, m)
    ck_assert_msg(m->stopped == stopped, "rank %d stopped after %d, rank 0 after %d", (int)m->rank, (int)m->stopped,
                  (int)stopped);
    ck_assert_int_eq(ranks_with(w, stopped), 3);
    ck_assert(!is_there(path_of(run, "STOP")));
    world_free(w);
    w = world_new(run, 3);
    world_play(w, look);
    EACH(w, m)
    ck_assert_int_eq(m->done, stopped);
    world_free(w);
}

START_TEST(test_stops_together)
{
    (void)signal(SIGUSR1, SIG_DFL);
    stops_together(true);
    stops_together(false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_ranks_faults");
    TCase *tc = tcase_create("ranks");
    tcase_set_timeout(tc, 400);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_fails_at_each_call);
    tcase_add_test(tc, test_fails_and_goes_on);
    tcase_add_test(tc, test_fails_at_each_call_of_a_resume);
    tcase_add_test(tc, test_open_is_refused);
    tcase_add_test(tc, test_wrong_calls);
    tcase_add_test(tc, test_step_before_resume);
    tcase_add_test(tc, test_stops_together);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
