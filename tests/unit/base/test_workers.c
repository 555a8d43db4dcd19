/* Numbered units on threads: each once, the error of the lowest, few threads or none. */
#include "base/workers.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
#include "../runner.h"

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

static int allowed = -1, made; /* threads that may be made (-1: any number); that were asked for */
static bool short_of_memory;

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    made++;
    return allowed >= 0 && made > allowed ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

void *__wrap_malloc(size_t n)
{
    return short_of_memory ? NULL : __real_malloc(n);
}

enum { UNITS = 1000, MOST = 9 };

typedef struct work {
    unsigned done[UNITS];           /* plain memory: a unit is done by one thread, and read after all of them */
    unsigned own[MOST];             /* of each worker, without a lock */
    atomic_uint inside[MOST];       /* how many units of one worker run at a time */
    unsigned threads;               /* that were asked for */
    unsigned fails[3], fails_count; /* units that fail */
    atomic_bool wrong;
} work;

static ckpt_status do_unit(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    work *w = ctx;
    if (worker >= w->threads || unit >= UNITS || atomic_fetch_add(&w->inside[worker], 1) != 0) {
        atomic_store(&w->wrong, true);
        return CKPT_OK;
    }
    w->done[unit]++;
    w->own[worker]++;
    ckpt_status status = unit % 7 == 0 ? CKPT_STOP : CKPT_OK; /* information is no failure */
    for (unsigned i = 0; i < w->fails_count; i++)
        if (w->fails[i] == unit) {
            if (i == 0 && w->threads > 1)
                usleep(2000); /* a higher one fails first */
            status = ckpt__fail(err, i == 0 ? CKPT_E_DAMAGED : CKPT_E_SYSTEM, "unit", "number %zu failed", unit);
        }
    atomic_fetch_sub(&w->inside[worker], 1);
    return status;
}

static unsigned sum(const work *w)
{
    unsigned n = 0;
    for (unsigned i = 0; i < MOST; i++)
        n += w->own[i];
    return n;
}

START_TEST(each_unit_is_done_once)
{
    for (unsigned threads = 1; threads < MOST; threads++) {
        work w = {.threads = threads};
        ckpt_error err = CKPT_ERROR_INIT;
        ck_assert_int_eq(ckpt__workers_run(threads, UNITS, do_unit, &w, &err), CKPT_OK);
        ck_assert(!w.wrong && err.message[0] == 0);
        for (unsigned i = 0; i < UNITS; i++)
            ck_assert_uint_eq(w.done[i], 1);
        ck_assert_uint_eq(sum(&w), UNITS);
    }
}
END_TEST

START_TEST(the_lowest_failure_is_the_answer)
{
    for (unsigned threads = 1; threads < MOST; threads++)
        for (unsigned lowest = 0; lowest < 40; lowest += 3) {
            work w = {.threads = threads, .fails = {lowest, lowest + 1, lowest + 2}, .fails_count = 3};
            ckpt_error err = CKPT_ERROR_INIT;
            char want[64];
            snprintf(want, sizeof want, "number %u failed", lowest);
            ck_assert_int_eq(ckpt__workers_run(threads, UNITS, do_unit, &w, &err), CKPT_E_DAMAGED);
            ck_assert_str_eq(err.message, want);
            ck_assert_int_eq(err.status, CKPT_E_DAMAGED);
            ck_assert(!w.wrong);
            for (unsigned i = 0; i <= lowest; i++)
                ck_assert_uint_eq(w.done[i], 1);
            ck_assert_uint_lt(sum(&w), UNITS);
            work again = {.threads = threads, .fails = {lowest}, .fails_count = 1};
            ck_assert_int_eq(ckpt__workers_run(threads, UNITS, do_unit, &again, NULL), CKPT_E_DAMAGED);
        }
}
END_TEST

START_TEST(no_more_threads_than_have_work)
{
    struct {
        unsigned threads;
        size_t units;
        int makes;
    } cases[] = {{1, 5, 0}, {0, 5, 0}, {8, 0, 0}, {8, 1, 0}, {8, 2, 1}, {3, 100, 2}, {8, 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        work w = {.threads = cases[i].threads ? cases[i].threads : 1};
        made = 0;
        ck_assert_int_eq(ckpt__workers_run(cases[i].threads, cases[i].units, do_unit, &w, NULL), CKPT_OK);
        ck_assert_int_eq(made, cases[i].makes);
        ck_assert(!w.wrong);
        ck_assert_uint_eq(sum(&w), cases[i].units);
    }
}
END_TEST

START_TEST(fewer_threads_do_the_work)
{
    for (allowed = 0; allowed < 4; allowed++) {
        work w = {.threads = 5};
        made = 0;
        ck_assert_int_eq(ckpt__workers_run(5, UNITS, do_unit, &w, NULL), CKPT_OK);
        ck_assert_int_eq(made, allowed + 1); /* the first that is refused is the last that is asked for */
        ck_assert(!w.wrong);
        ck_assert_uint_eq(sum(&w), UNITS);
    }
    allowed = -1;
    work w = {.threads = 5};
    made = 0;
    short_of_memory = true;
    ckpt_status status = ckpt__workers_run(5, UNITS, do_unit, &w, NULL);
    short_of_memory = false;
    ck_assert_int_eq(status, CKPT_OK);
    ck_assert_int_eq(made, 0);
    ck_assert_uint_eq(sum(&w), UNITS);
}
END_TEST

static ckpt_status look_at_signals(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    sigset_t blocked;
    (void)err;
    (void)unit;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if ((worker > 0) != (sigismember(&blocked, SIGTERM) == 1))
        atomic_store((atomic_bool *)ctx, true);
    usleep(1000); /* so that others have work, too */
    return CKPT_OK;
}

START_TEST(signals_are_the_callers)
{
    atomic_bool wrong = false;
    ck_assert_int_eq(ckpt__workers_run(3, 30, look_at_signals, &wrong, NULL), CKPT_OK);
    ck_assert(!wrong);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("workers");
    TCase *t = tcase_create("workers");
    tcase_add_test(t, each_unit_is_done_once);
    tcase_add_test(t, the_lowest_failure_is_the_answer);
    tcase_add_test(t, no_more_threads_than_have_work);
    tcase_add_test(t, fewer_threads_do_the_work);
    tcase_add_test(t, signals_are_the_callers);
    suite_add_tcase(s, t);
    return run_suite(s);
}
