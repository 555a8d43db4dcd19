/* test_run_signals.c - signals that ask a run to save and stop: what is noted, passed on, given back and refused.
 *
 * Each case runs in a process of its own: what a process does with its signals belongs to all of it. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "run/signals.h"
#include "../child.h"
#include "../runner.h"

static const int term[] = {SIGTERM};
static atomic_int plain_calls, info_calls, over_calls, info_sent;
static atomic_int spoils;
static struct sigaction below_over;

static void on_plain(int sig)
{
    (void)sig;
    if (spoils)
        errno = EINTR; /* which the interrupted program must not see */
    atomic_fetch_add(&plain_calls, 1);
}

/* ThreadSanitizer asks for this: on_plain spoils errno on purpose. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "signal:on_plain\n";
}

static void on_info(int sig, siginfo_t *info, void *context)
{
    atomic_fetch_add(&info_calls, 1);
    if (info && info->si_signo == sig && info->si_pid == getpid() && context)
        atomic_store(&info_sent, 1);
}

/* As a well-behaved library does: its own handler, which calls what was there before. */
static void on_over(int sig, siginfo_t *info, void *context)
{
    atomic_fetch_add(&over_calls, 1);
    if (below_over.sa_flags & SA_SIGINFO)
        below_over.sa_sigaction(sig, info, context);
    else if (below_over.sa_handler != SIG_DFL && below_over.sa_handler != SIG_IGN)
        below_over.sa_handler(sig);
}

static void install(int sig, void (*function)(int))
{
    struct sigaction a = {.sa_flags = SA_RESTART};
    a.sa_handler = function;
    REQUIRE(sigaction(sig, &a, NULL) == 0);
}

static void install_over(int sig)
{
    struct sigaction a = {.sa_flags = SA_RESTART | SA_SIGINFO};
    a.sa_sigaction = on_over;
    REQUIRE(sigaction(sig, &a, &below_over) == 0);
}

static struct sigaction current(int sig)
{
    struct sigaction a;
    REQUIRE(sigaction(sig, NULL, &a) == 0);
    return a;
}

/* Check has a handler of its own for SIGTERM, which ends the whole process group. */
static void begin(void)
{
    const int signals[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGRTMIN};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        (void)signal(signals[i], SIG_DFL);
}

/* ---- what is noted, and who else hears of it */

static void notes_one(const void *arg)
{
    const int both[] = {SIGTERM, SIGUSR1, SIGTERM};
    (void)arg;
    begin();
    REQUIRE(ckpt__signals_caught() == 0);
    REQUIRE_OK(ckpt__signals_take(both, 3, &err));
    REQUIRE(ckpt__signals_caught() == 0);
    raise(SIGUSR1);
    REQUIRE(ckpt__signals_caught() == SIGUSR1);
    raise(SIGTERM); /* the first of its kind too; the first of all stays noted */
    REQUIRE(ckpt__signals_caught() == SIGUSR1);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_handler == SIG_DFL && current(SIGUSR1).sa_handler == SIG_DFL);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    REQUIRE(ckpt__signals_caught() == 0); /* a new owner begins anew */
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM);
}

static void chains_plain(const void *arg)
{
    (void)arg;
    begin();
    install(SIGTERM, on_plain);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    errno = ERANGE;
    spoils = 1;
    raise(SIGTERM);
    spoils = 0;
    REQUIRE(errno == ERANGE && ckpt__signals_caught() == SIGTERM && plain_calls == 1);
    raise(SIGTERM); /* the second goes to the earlier handler alone */
    REQUIRE(plain_calls == 2 && current(SIGTERM).sa_handler == on_plain);
    raise(SIGTERM);
    REQUIRE(plain_calls == 3);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_handler == on_plain);
}

static void chains_info(const void *arg)
{
    struct sigaction a = {.sa_flags = SA_SIGINFO};
    (void)arg;
    begin();
    a.sa_sigaction = on_info;
    sigemptyset(&a.sa_mask);
    sigaddset(&a.sa_mask, SIGHUP);
    REQUIRE(sigaction(SIGTERM, &a, NULL) == 0);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    a = current(SIGTERM);
    REQUIRE(sigismember(&a.sa_mask, SIGHUP) == 1); /* the earlier handler is still not interrupted by it */
    raise(SIGTERM);
    REQUIRE(info_calls == 1 && info_sent == 1);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_sigaction == on_info && (current(SIGTERM).sa_flags & SA_SIGINFO));
}

/* SA_RESETHAND: it ran once as part of ours, so what is given back is the default. */
static void chains_once(const void *arg)
{
    struct sigaction a = {.sa_flags = (int)SA_RESETHAND};
    (void)arg;
    begin();
    a.sa_handler = on_plain;
    REQUIRE(sigaction(SIGTERM, &a, NULL) == 0);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_handler == on_plain);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    raise(SIGTERM);
    REQUIRE(plain_calls == 1);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_handler == SIG_DFL);
}

static void ignored_before(const void *arg)
{
    (void)arg;
    begin();
    install(SIGTERM, SIG_IGN);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM);
    raise(SIGTERM); /* ignored again, as it was before */
    REQUIRE(current(SIGTERM).sa_handler == SIG_IGN);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_handler == SIG_IGN);
}

START_TEST(first_signal)
{
    expect_success(notes_one, NULL, NULL);
    expect_success(chains_plain, NULL, NULL);
    expect_success(chains_info, NULL, NULL);
    expect_success(chains_once, NULL, NULL);
    expect_success(ignored_before, NULL, NULL);
}
END_TEST

/* ---- the second of a kind wins */

static void impatient(const void *arg)
{
    const int *sig = arg;
    begin();
    REQUIRE_OK(ckpt__signals_take(sig, 1, &err));
    raise(*sig);
    REQUIRE(ckpt__signals_caught() == *sig);
    raise(*sig);
}

static void impatient_below(const void *arg)
{
    (void)arg;
    begin();
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    install_over(SIGTERM);
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM && over_calls == 1);
    raise(SIGTERM);
}

static void after_release(const void *arg)
{
    (void)arg;
    begin();
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    ckpt__signals_release();
    raise(SIGTERM);
}

START_TEST(second_signal_kills)
{
    const int signals[] = {SIGTERM, SIGUSR1, SIGHUP, SIGRTMIN};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        child c = run_child(impatient, &signals[i], NULL);
        ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == signals[i], "%#x: %s", (unsigned)c.status, c.text);
    }
    child c = run_child(impatient_below, NULL, NULL);
    ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGTERM, "%#x: %s", (unsigned)c.status, c.text);
    c = run_child(after_release, NULL, NULL);
    ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGTERM, "%#x: %s", (unsigned)c.status, c.text);
}
END_TEST

/* ---- system calls go on */

typedef struct pipe_of {
    int ends[2];
    pthread_t reader;
} pipe_of;

static void *signal_then_write(void *arg)
{
    pipe_of *p = arg;
    const struct timespec moment = {0, 30000000};
    nanosleep(&moment, NULL); /* the reader is in read() by now; if not, the test only proves less */
    pthread_kill(p->reader, SIGTERM);
    for (int i = 0; i < 20 && ckpt__signals_caught() == 0; i++) /* ThreadSanitizer defers it until read returns */
        nanosleep(&moment, NULL);
    return (void *)(intptr_t)write(p->ends[1], "x", 1);
}

static void restarts(const void *arg)
{
    pipe_of p = {.reader = pthread_self()};
    pthread_t writer;
    char byte = 0;
    (void)arg;
    begin();
    REQUIRE(pipe(p.ends) == 0);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    REQUIRE(current(SIGTERM).sa_flags & SA_RESTART);
    REQUIRE(pthread_create(&writer, NULL, signal_then_write, &p) == 0);
    REQUIRE(read(p.ends[0], &byte, 1) == 1 && byte == 'x'); /* not EINTR */
    REQUIRE(pthread_join(writer, NULL) == 0);
    REQUIRE(ckpt__signals_caught() == SIGTERM);
}

START_TEST(system_calls_go_on)
{
    expect_success(restarts, NULL, NULL);
}
END_TEST

/* ---- someone's handler over ours */

static void left_below(const void *arg)
{
    (void)arg;
    begin();
    install(SIGTERM, on_plain);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    install_over(SIGTERM);
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM && over_calls == 1 && plain_calls == 1);
    raise(SIGTERM); /* the second: passed on, and the one above stays */
    REQUIRE(over_calls == 2 && plain_calls == 2 && current(SIGTERM).sa_sigaction == on_over);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_sigaction == on_over);
    raise(SIGTERM);
    REQUIRE(over_calls == 3 && plain_calls == 3);

    /* The next run is above it, and the chain has no loop. */
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    REQUIRE(ckpt__signals_caught() == 0);
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM && over_calls == 4 && plain_calls == 4);
    ckpt__signals_release();
    REQUIRE(current(SIGTERM).sa_sigaction == on_over);
}

/* The one above goes after the release and puts ours back: then ours must not swallow signals for ever. */
static void put_back(const void *arg)
{
    const bool again = *(const bool *)arg;
    begin();
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    install_over(SIGTERM);
    ckpt__signals_release();
    raise(SIGTERM);
    REQUIRE(over_calls == 1); /* and nothing else: the default is not passed on to */
    REQUIRE(sigaction(SIGTERM, &below_over, NULL) == 0);
    if (again) {
        REQUIRE_OK(ckpt__signals_take(term, 1, &err));
        raise(SIGTERM);
        REQUIRE(ckpt__signals_caught() == SIGTERM);
        ckpt__signals_release();
        REQUIRE(current(SIGTERM).sa_handler == SIG_DFL);
    }
    raise(SIGTERM);
}

/* Every run closed below another handler: one function is used up each time, then the next is refused. */
static void too_many(const void *arg)
{
    ckpt_status status = CKPT_OK;
    int runs = 0;
    (void)arg;
    begin();
    for (; runs < 10 && status == CKPT_OK; runs++) {
        status = ckpt__signals_take(term, 1, &err);
        if (status == CKPT_OK)
            install(SIGTERM, on_plain);
        ckpt__signals_release();
    }
    REQUIRE(status == CKPT_E_EXISTS && runs > 2 && strstr(err.message, "signal 15") != NULL);
    REQUIRE(current(SIGTERM).sa_handler == on_plain);
    const int usr1[] = {SIGUSR1};
    REQUIRE_OK(ckpt__signals_take(usr1, 1, &err)); /* other signals are not affected, nor is the owner */
}

START_TEST(someone_over_ours)
{
    bool again = false;
    expect_success(left_below, NULL, NULL);
    child c = run_child(put_back, &again, NULL);
    ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGTERM, "%#x: %s", (unsigned)c.status, c.text);
    again = true;
    c = run_child(put_back, &again, NULL);
    ck_assert_msg(WIFSIGNALED(c.status) && WTERMSIG(c.status) == SIGTERM, "%#x: %s", (unsigned)c.status, c.text);
    expect_success(too_many, NULL, NULL);
}
END_TEST

/* ---- what is refused */

static void refusals(const void *arg)
{
    const int refused[] = {SIGINT,  SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP,      SIGSYS, SIGKILL,
                           SIGSTOP, SIGXFSZ, 0,      -1,     32,     33,      SIGRTMAX + 1, 1 << 20};
    (void)arg;
    begin();
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const int list[] = {SIGTERM, refused[i]};
        char name[24];
        REQUIRE(ckpt__signals_take(list, 2, &err) == CKPT_E_ARGUMENT);
        snprintf(name, sizeof name, "signal %d ", refused[i]);
        REQUIRE(strstr(err.message, name) != NULL);
        REQUIRE(current(SIGTERM).sa_handler == SIG_DFL); /* nothing was taken */
    }
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
    REQUIRE(ckpt__signals_take(term, 1, &err) == CKPT_E_EXISTS);
    REQUIRE(ckpt__signals_take(NULL, 0, NULL) == CKPT_E_EXISTS);
    raise(SIGTERM);
    REQUIRE(ckpt__signals_caught() == SIGTERM); /* the owner kept what it has */
    ckpt__signals_release();
    ckpt__signals_release(); /* nothing is owned: nothing happens */
    REQUIRE(current(SIGTERM).sa_handler == SIG_DFL);
    REQUIRE_OK(ckpt__signals_take(term, 1, &err));
}

START_TEST(what_is_refused)
{
    expect_success(refusals, NULL, NULL);
}
END_TEST

/* ---- a storm: from threads and from other processes, while runs come and go */

enum { SENDERS = 4, SENT = 2000, MOST_ROUNDS = 20000 };
static atomic_int storm_over, storm_enough;

static void *send_many(void *arg)
{
    const int signals[] = {SIGTERM, SIGUSR1, SIGUSR2};
    (void)arg;
    for (int i = 0; i < SENT || !atomic_load(&storm_enough); i++) {
        kill(getpid(), signals[i % 3]);
        if (i >= SENT)
            sched_yield();
    }
    return NULL;
}

static void *receive(void *arg)
{
    (void)arg;
    while (!atomic_load(&storm_over))
        sched_yield();
    return NULL;
}

static pid_t send_from_process(void)
{
    pid_t parent = getpid(), pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < SENT; i++)
            kill(parent, SIGTERM);
        _exit(0);
    }
    return pid;
}

static atomic_int alarms;

static void on_alarm(int sig)
{
    (void)sig;
    atomic_fetch_add(&alarms, 1);
}

/* After a storm ThreadSanitizer (gcc 12) may keep every later signal back for ever, also one that no test and no run has used: seen in
 * half of the runs on one machine. Then nothing is left to look at. Without it this must not be. */
static bool signals_arrive(void)
{
    install(SIGALRM, on_alarm);
    raise(SIGALRM);
    usleep(1000);
#ifndef __SANITIZE_THREAD__
    REQUIRE(atomic_load(&alarms) == 1);
#endif
    return atomic_load(&alarms) == 1;
}

static void storm(const void *arg)
{
    const int signals[] = {SIGTERM, SIGUSR1, SIGUSR2};
    pthread_t senders[SENDERS], receivers[2];
    pid_t processes[2];
    int caught = 0, status;
    (void)arg;
    begin();
    for (size_t i = 0; i < 3; i++)
        install(signals[i], on_plain); /* so that the second of a kind does not end this */
    for (size_t i = 0; i < 2; i++)
        processes[i] = send_from_process();
    for (size_t i = 0; i < 2; i++)
        REQUIRE(pthread_create(&receivers[i], NULL, receive, NULL) == 0);
    for (size_t i = 0; i < SENDERS; i++)
        REQUIRE(pthread_create(&senders[i], NULL, send_many, NULL) == 0);
    for (int round = 0; round < 300 || ((caught == 0 || plain_calls == 0) && round < MOST_ROUNDS); round++) {
        /* A thread that is in the handler holds its record; the next free one is taken, and waiting brings it back. */
        ckpt_status taken;
        for (int tries = 0; (taken = ckpt__signals_take(signals, 3, &err)) == CKPT_E_EXISTS && tries < 1000; tries++)
            sched_yield();
        REQUIRE_OK(taken);
        for (int tries = 0; tries < 1000 && ckpt__signals_caught() == 0; tries++)
            sched_yield();
        caught += ckpt__signals_caught() != 0;
        ckpt__signals_release();
        for (size_t i = 0; i < 3; i++)
            REQUIRE(current(signals[i]).sa_handler == on_plain);
    }
    atomic_store(&storm_enough, 1);
    for (size_t i = 0; i < SENDERS; i++)
        REQUIRE(pthread_join(senders[i], NULL) == 0);
    for (size_t i = 0; i < 2; i++)
        REQUIRE(waitpid(processes[i], &status, 0) == processes[i] && status == 0);
    atomic_store(&storm_over, 1);
    for (size_t i = 0; i < 2; i++)
        REQUIRE(pthread_join(receivers[i], NULL) == 0);
    REQUIRE(caught > 0 && plain_calls > 0);

    /* Once all is quiet each works as on the first day. ThreadSanitizer keeps a signal back until the thread's next call
     * that it intercepts, and the handler then runs as that call ends: usleep() is such a call. */
    int before;
    do {
        before = plain_calls;
        for (int i = 0; i < 20; i++)
            usleep(500);
    } while (plain_calls != before);
    if (!signals_arrive())
        return;
    REQUIRE_OK(ckpt__signals_take(signals, 3, &err));
    REQUIRE(ckpt__signals_caught() == 0);
    raise(SIGUSR2);
    REQUIRE(ckpt__signals_caught() == SIGUSR2);
    REQUIRE(plain_calls == before + 1);
    ckpt__signals_release();
}

START_TEST(a_storm)
{
    expect_success(storm, NULL, NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_signals");
    TCase *tcase = tcase_create("signals");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, first_signal);
    tcase_add_test(tcase, second_signal_kills);
    tcase_add_test(tcase, system_calls_go_on);
    tcase_add_test(tcase, someone_over_ours);
    tcase_add_test(tcase, what_is_refused);
    tcase_add_test(tcase, a_storm);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
