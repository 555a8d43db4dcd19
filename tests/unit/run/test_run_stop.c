/* test_run_stop.c - what asks a run to save and stop: signals, the time that is left, files; and saves in a storm of
 * signals. */
#include <stdatomic.h>
#include "../run_fixture.h"

/* Check has a handler of its own for SIGTERM. */
static void begin(void)
{
    const int signals[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_DFL);
    make_run_folder();
}

static bool is_default(int sig)
{
    struct sigaction a;
    IS_OK(sigaction(sig, NULL, &a));
    return a.sa_handler == SIG_DFL;
}

/* ---- signals */

static void stops_at(int sig)
{
    trainer x;
    const int more[] = {SIGUSR2, SIGHUP};
    char run[128];
    snprintf(run, sizeof run, "%s/signal-%d", folder, sig);
    trainer_init(&x);
    x.o.signals = true;
    x.o.more_signals = more;
    x.o.more_signal_count = 2;
    trainer_start(&x, run);
    STEPS(&x, 1, 3);
    ck_assert_int_eq(ckpt_run_poll(x.run, 4), CKPT_TRIGGER_NONE);
    IS_OK(raise(sig));
    ck_assert_int_eq(ckpt_run_poll(x.run, 4), CKPT_TRIGGER_SIGNAL);
    ck_assert_int_eq(trainer_step(&x, 4), CKPT_STOP);
    ck_assert_msg(holds(step_path(run, 4), 4), "it is on disk when the call returns");
    ck_assert_int_eq(names_in(run, "step-"), 1);
    ck_assert_msg(strstr(said(&x.news, "saved"), "(signal)") != NULL, "%s", said(&x.news, "saved"));
    ck_assert_msg(trainer_step(&x, 5) == CKPT_STOP, "who goes on is told again");
    trainer_end(&x);
    ck_assert(is_default(SIGTERM) && is_default(SIGUSR1) && is_default(SIGUSR2) && is_default(SIGHUP));
}

START_TEST(test_signals)
{
    stops_at(SIGTERM);
    stops_at(SIGUSR1);
    stops_at(SIGUSR2);
    stops_at(SIGHUP);
}
END_TEST

START_TEST(test_signals_are_owned_once)
{
    trainer x, y;
    trainer_init(&x);
    trainer_init(&y);
    x.o.signals = y.o.signals = true;
    trainer_start(&x, in_folder("one"));
    ck_assert_int_eq(trainer_open(&y, in_folder("two")), CKPT_E_EXISTS);
    y.o.signals = false;
    ck_assert_msg(trainer_start(&y, in_folder("two")) == -1, "the failed one left no lock");
    trainer_end(&y);
    IS_OK(trainer_close(&x));
    trainer_start(&x, in_folder("one"));
    trainer_end(&x);
}
END_TEST

START_TEST(test_no_signals)
{
    trainer x;
    trainer_init(&x);
    trainer_start(&x, in_folder("run"));
    ck_assert(is_default(SIGTERM) && is_default(SIGUSR1));
    trainer_end(&x);
}
END_TEST

typedef struct opener {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool told;
} opener;

static void *open_when_told(void *arg)
{
    opener *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->told)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
    gate_set(false, 0);
    return NULL;
}

/* It waits for the save that is under way, whatever skip_when_busy says. */
START_TEST(test_stop_is_never_skipped)
{
    trainer x;
    pthread_t thread;
    opener o = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.signals = true;
    x.o.every_steps = 1;
    x.o.skip_when_busy = true;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    IS_OK(pthread_create(&thread, NULL, open_when_told, &o));
    IS_OK(raise(SIGTERM));
    pthread_mutex_lock(&o.lock);
    o.told = true;
    pthread_cond_broadcast(&o.changed);
    pthread_mutex_unlock(&o.lock);
    ck_assert_int_eq(trainer_step(&x, 2), CKPT_STOP);
    ck_assert(holds(step_path(run, 1), 1) && holds(step_path(run, 2), 2));
    IS_OK(pthread_join(thread, NULL));
    trainer_end(&x);
}
END_TEST

/* A stop whose save failed is that error, and is tried again. */
START_TEST(test_stop_that_fails)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.signals = true;
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    gate_set(false, ENOSPC);
    ck_assert_int_eq(ckpt_run_save(x.run, 1, &x.err), CKPT_OK);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_E_SYSTEM);
    ck_assert_msg(strstr(x.err.message, "a stop was asked for") == NULL, "%s", x.err.message);
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_NONE);
    IS_OK(raise(SIGTERM));
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_SIGNAL);
    for (int i = 0; i < 2; i++) {
        static const char told[] = "a stop was asked for (signal), and its save failed: ";
        ck_assert_int_eq(trainer_step(&x, 2), CKPT_E_SYSTEM);
        ck_assert_int_eq(x.err.sys_errno, ENOSPC);
        ck_assert_msg(strncmp(x.err.message, told, sizeof told - 1) == 0, "%s", x.err.message);
        ck_assert_msg(strstr(said(&x.news, "save-failed"), told) != NULL, "%s", said(&x.news, "save-failed"));
        ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_SIGNAL);
    }
    gate_set(false, 0);
    ck_assert_int_eq(trainer_step(&x, 3), CKPT_STOP);
    ck_assert_msg(ckpt_run_stopping(x.run) == CKPT_TRIGGER_NONE, "it was answered");
    ck_assert(holds(step_path(run, 3), 3) && names_in(run, "step-") == 1);
    /* The same step saved before, and now a failure: no stop. */
    gate_set(false, EIO);
    ck_assert_int_eq(trainer_step(&x, 3), CKPT_E_SYSTEM);
    gate_set(false, 0);
    ck_assert(holds(step_path(run, 3), 3));
    trainer_end(&x);
}
END_TEST

/* The same of a STOP file and of the time limit. A save that the trainer asks for itself answers neither. */
START_TEST(test_stopping)
{
    trainer x;
    const char *run = in_folder("run"), *stop = in_folder("run/STOP");
    ck_assert_int_eq(ckpt_run_stopping(NULL), CKPT_TRIGGER_NONE);
    trainer_init(&x);
    trainer_start(&x, run);
    write_file(stop, "", 0);
    x.run->looked = 0;
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_STOP_FILE);
    set_step(&x.t, 1);
    IS_OK(ckpt_run_save(x.run, 1, &x.err));
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_STOP_FILE);
    gate_set(false, EIO);
    for (int i = 2; i <= 4; i++) { /* each step tries again, at once */
        ck_assert_int_eq(trainer_step(&x, i), CKPT_E_SYSTEM);
        ck_assert_msg(strstr(x.err.message, "a stop was asked for (stop file)") == x.err.message, "%s", x.err.message);
        ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_STOP_FILE);
    }
    gate_set(false, 0);
    ck_assert_int_eq(trainer_step(&x, 5), CKPT_STOP);
    ck_assert(ckpt_run_stopping(x.run) == CKPT_TRIGGER_NONE && !is_there(stop));
    IS_OK(trainer_close(&x));
    x.o.time_limit = 1e-3;
    x.o.no_touch_files = true;
    ck_assert_int_eq(trainer_start(&x, run), 5);
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_DEADLINE);
    ck_assert_int_eq(trainer_step(&x, 6), CKPT_STOP);
    ck_assert_int_eq(ckpt_run_stopping(x.run), CKPT_TRIGGER_NONE);
    trainer_end(&x);
}
END_TEST

/* ---- a storm */

static atomic_int storms, quiet;
static pthread_t stormed;

static void on_storm(int sig)
{
    (void)sig;
    atomic_fetch_add(&storms, 1);
}

static void *storm(void *arg)
{
    (void)arg;
    while (!atomic_load(&quiet)) {
        (void)pthread_kill(stormed, SIGUSR2);
        (void)kill(getpid(), SIGUSR2);
        sched_yield();
    }
    return NULL;
}

/* System calls are interrupted all the time (no SA_RESTART), and every checkpoint is sound. */
static void survives(bool synchronous)
{
    trainer x;
    pthread_t thread;
    struct sigaction a = {.sa_flags = 0}, before;
    const char *run = in_folder(synchronous ? "now" : "later");
    int64_t done = 0;
    a.sa_handler = on_storm;
    IS_OK(sigaction(SIGUSR2, &a, &before));
    atomic_store(&storms, 0);
    atomic_store(&quiet, 0);
    stormed = pthread_self();
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.synchronous = synchronous;
    x.o.read_back = true;
    x.o.retention.keep_last = 3;
    trainer_start(&x, run);
    IS_OK(pthread_create(&thread, NULL, storm, NULL));
    while (done < 30 || atomic_load(&storms) < 2000) {
        done++;
        STEPS(&x, done, done);
    }
    IS_OK(ckpt_run_wait(x.run, &x.err));
    atomic_store(&quiet, 1);
    IS_OK(pthread_join(thread, NULL));
    IS_OK(sigaction(SIGUSR2, &before, NULL));
    ck_assert_int_eq(names_in(run, "step-"), 3);
    for (int i = 0; i < 3; i++)
        ck_assert(holds(step_path(run, done - i), done - i));
    ck_assert(no_leftovers(run) && x.run->info.failures == 0);
    ck_assert_uint_eq(heard(&x.news, "saved") >= 30, 1);
    trainer_end(&x);
}

START_TEST(test_storm)
{
    survives(false);
    survives(true);
}
END_TEST

/* The signal that stops the run comes thousands of times: the first is the run's, the others are its earlier handler's.
 */
START_TEST(test_storm_of_the_own_signal)
{
    trainer x;
    pthread_t thread;
    struct sigaction a = {.sa_flags = 0};
    const int more[] = {SIGUSR2};
    const char *run = in_folder("run");
    a.sa_handler = on_storm;
    IS_OK(sigaction(SIGUSR2, &a, NULL));
    atomic_store(&storms, 0);
    atomic_store(&quiet, 0);
    stormed = pthread_self();
    trainer_init(&x);
    x.o.signals = true;
    x.o.more_signals = more;
    x.o.more_signal_count = 1;
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    IS_OK(pthread_create(&thread, NULL, storm, NULL));
    int64_t done = 2;
    while (ckpt_run_poll(x.run, done) == CKPT_TRIGGER_NONE)
        sched_yield();
    for (; done < 20 || atomic_load(&storms) < 2000; done++)
        ck_assert_int_eq(trainer_step(&x, done), CKPT_STOP);
    atomic_store(&quiet, 1);
    IS_OK(pthread_join(thread, NULL));
    ck_assert(holds(step_path(run, 2), 2) && holds(step_path(run, done - 1), done - 1));
    trainer_end(&x);
    IS_OK(sigaction(SIGUSR2, NULL, &a));
    ck_assert_msg(a.sa_handler == on_storm, "the earlier handler is in place again");
}
END_TEST

/* ---- the time that is left: moved, not waited for */

START_TEST(test_time_limit)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.time_limit = 10000;
    trainer_start(&x, run);
    STEPS(&x, 1, 2);
    x.run->info.save_seconds = 20; /* as if a save had taken that; 30 with what is to spare */
    x.run->longest_step = 100;
    x.run->opened -= 10000 - 260;
    ck_assert_int_eq(ckpt_run_poll(x.run, 3), CKPT_TRIGGER_NONE);
    x.run->opened -= 40;
    ck_assert_int_eq(ckpt_run_poll(x.run, 3), CKPT_TRIGGER_DEADLINE);
    ck_assert_int_eq(trainer_step(&x, 3), CKPT_STOP);
    ck_assert(holds(step_path(run, 3), 3));
    ck_assert_msg(strstr(said(&x.news, "saved"), "(deadline)") != NULL, "%s", said(&x.news, "saved"));
    trainer_end(&x);
}
END_TEST

/* In real time: the stop comes before the limit. */
START_TEST(test_time_limit_is_kept)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.time_limit = 2.5;
    double began = ckpt__run_clock();
    trainer_start(&x, run);
    int64_t done = 1;
    ckpt_status status;
    while ((status = trainer_step(&x, done)) == CKPT_OK && ckpt__run_clock() - began < 60) {
        done++;
        usleep(1000);
    }
    ck_assert_int_eq(status, CKPT_STOP);
    ck_assert_msg(done > 1, "not at once");
    ck_assert_msg(ckpt__run_clock() - began < 2.5, "after %.2f s", ckpt__run_clock() - began);
    ck_assert(holds(step_path(run, done), done));
    trainer_end(&x);
}
END_TEST

/* ---- files */

static void ask(trainer *x, const char *path)
{
    write_file(path, "", 0);
    x->run->looked = 0; /* as if a second had gone by */
}

START_TEST(test_touch_files)
{
    trainer x;
    const char *run = in_folder("run"), *save = in_folder("run/SAVE"), *stop = in_folder("run/STOP");
    trainer_init(&x);
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    for (int i = 2; i <= 4; i++) {
        ask(&x, save);
        ck_assert_int_eq(ckpt_run_poll(x.run, i), CKPT_TRIGGER_FILE);
        STEPS(&x, i, i);
        ck_assert_msg(ckpt_run_poll(x.run, i + 1) == CKPT_TRIGGER_NONE, "it is being answered");
        IS_OK(ckpt_run_wait(x.run, &x.err));
        ck_assert(holds(step_path(run, i), i) && !is_there(save));
        x.run->looked = 0;
        ck_assert_int_eq(ckpt_run_poll(x.run, i + 1), CKPT_TRIGGER_NONE);
    }
    ask(&x, stop);
    ask(&x, save);
    ck_assert_msg(ckpt_run_poll(x.run, 5) == CKPT_TRIGGER_STOP_FILE, "the stronger of two");
    ck_assert_int_eq(trainer_step(&x, 5), CKPT_STOP);
    ck_assert(holds(step_path(run, 5), 5) && !is_there(stop) && !is_there(save));
    x.run->looked = 0;
    STEPS(&x, 6, 6);
    x.run->looked = ckpt__run_clock() + 1000;
    write_file(save, "", 0);
    ck_assert_msg(ckpt_run_poll(x.run, 7) == CKPT_TRIGGER_NONE, "looked for once a second");
    trainer_end(&x);
    ck_assert_int_eq(names_in(run, "step-"), 4);
}
END_TEST

/* One who asks while the save is written asks for another. */
START_TEST(test_asked_meanwhile)
{
    trainer x;
    const char *run = in_folder("run"), *save = in_folder("run/SAVE");
    trainer_init(&x);
    trainer_start(&x, run);
    ask(&x, save);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    IS_OK(unlink(save));
    ask(&x, save);
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_msg(is_there(save), "the new request is not taken away");
    x.run->looked = 0;
    STEPS(&x, 2, 2);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert(!is_there(save) && holds(step_path(run, 2), 2));
    trainer_end(&x);
}
END_TEST

/* A request whose save failed stands; with a signal, STOP is met too, and does not stop the next run. */
START_TEST(test_request_stands)
{
    trainer x;
    const char *run = in_folder("run"), *save = in_folder("run/SAVE"), *stop = in_folder("run/STOP");
    trainer_init(&x);
    x.o.signals = true;
    trainer_start(&x, run);
    ask(&x, save);
    gate_set(false, EIO);
    ckpt_status now = trainer_step(&x, 1), later = ckpt_run_wait(x.run, &x.err);
    gate_set(false, 0);
    ck_assert_int_eq((now < 0) + (later < 0), 1);
    ck_assert(is_there(save));
    x.run->looked = 0;
    STEPS(&x, 2, 2);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert(!is_there(save) && holds(step_path(run, 2), 2));
    write_file(stop, "", 0);
    IS_OK(raise(SIGTERM));
    ck_assert_int_eq(trainer_step(&x, 3), CKPT_STOP);
    ck_assert(!is_there(stop));
    trainer_end(&x);
}
END_TEST

START_TEST(test_no_touch_files)
{
    trainer x;
    const char *run = in_folder("run"), *stop = in_folder("run/STOP");
    trainer_init(&x);
    x.o.no_touch_files = true;
    trainer_start(&x, run);
    ask(&x, stop);
    ck_assert_int_eq(ckpt_run_poll(x.run, 1), CKPT_TRIGGER_NONE);
    STEPS(&x, 1, 1);
    ck_assert(is_there(stop) && names_in(run, "step-") == 0);
    trainer_end(&x);
}
END_TEST

START_TEST(test_names_of_triggers)
{
    static const char *const names[] = {"none",      "periodic", "call",     "file",
                                        "stop file", "signal",   "deadline", "unknown"};
    for (int i = 0; i < 8; i++)
        ck_assert_str_eq(ckpt_trigger_name((ckpt_trigger)i), names[i]);
    ck_assert_int_eq(ckpt_run_poll(NULL, 1), CKPT_TRIGGER_NONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_stop");
    TCase *tc = tcase_create("stop");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, begin, remove_folder);
    tcase_add_test(tc, test_signals);
    tcase_add_test(tc, test_signals_are_owned_once);
    tcase_add_test(tc, test_no_signals);
    tcase_add_test(tc, test_stop_is_never_skipped);
    tcase_add_test(tc, test_stop_that_fails);
    tcase_add_test(tc, test_stopping);
    tcase_add_test(tc, test_storm);
    tcase_add_test(tc, test_storm_of_the_own_signal);
    tcase_add_test(tc, test_time_limit);
    tcase_add_test(tc, test_time_limit_is_kept);
    tcase_add_test(tc, test_touch_files);
    tcase_add_test(tc, test_asked_meanwhile);
    tcase_add_test(tc, test_request_stands);
    tcase_add_test(tc, test_no_touch_files);
    tcase_add_test(tc, test_names_of_triggers);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
