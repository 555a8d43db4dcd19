/* A call in a process of its own: what it gives back, what becomes of its crashes, and what is said where there is no such process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../runner.h"
#include "io/trial.h"

static ckpt_error err;
static int fail_pipe, fail_fork, cut_reads;
static long forks, interrupted, polls;
static bool flies, twice; /* twice: before each process another is made, which has all that is open and stays */
static pid_t sibling;

int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags)
{
    errno = fail_pipe;
    return fail_pipe ? -1 : __real_pipe2(ends, flags);
}

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
    if (twice && (sibling = __real_fork()) == 0)
        while (pause() < 0)
            ;
    errno = fail_fork;
    forks += !fail_fork;
    return fail_fork ? -1 : __real_fork();
}

/* Every second call is interrupted, every other gives one byte. */
ssize_t __real_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n);
ssize_t __wrap_read(int fd, void *to, size_t n)
{
    if (!cut_reads)
        return __real_read(fd, to, n);
    if (++cut_reads % 2) {
        interrupted++;
        errno = EINTR;
        return -1;
    }
    return __real_read(fd, to, 1);
}

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    return __real_write(fd, from, cut_reads && n > 3 ? 3 : n);
}

/* Time flies. */
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    polls++;
    return __real_poll(fds, n, flies ? 20 : timeout);
}

static void setup(void)
{
    err = (ckpt_error)CKPT_ERROR_INIT;
    fail_pipe = fail_fork = cut_reads = 0;
    forks = interrupted = polls = 0;
    flies = twice = false;
}

static ckpt_status counts(void *ctx, ckpt_error *e)
{
    (void)e;
    ++*(int *)ctx;
    return CKPT_OK;
}

static ckpt_status refuses(void *ctx, ckpt_error *e)
{
    (void)ctx;
    return ckpt__fail(e, CKPT_E_UNSUPPORTED, "a.file", "version 9 is not known");
}

static ckpt_status crashes(void *ctx, ckpt_error *e)
{
    (void)e;
    raise(*(int *)ctx);
    return CKPT_OK;
}

static ckpt_status never_ends(void *ctx, ckpt_error *e)
{
    (void)e;
    for (volatile long i = 0;; i++)
        if (i < 0)
            return *(ckpt_status *)ctx;
}

static ckpt_status waits_for_ever(void *ctx, ckpt_error *e)
{
    (void)ctx;
    (void)e;
    while (pause() < 0)
        ;
    return CKPT_OK;
}

/* It sleeps between, but goes on. */
static ckpt_status is_slow(void *ctx, ckpt_error *e)
{
    (void)e;
    for (int i = 0; i < 40; i++) {
        clock_t until = clock() + CLOCKS_PER_SEC / 50;
        usleep(60000);
        while (clock() < until)
            ;
    }
    return *(ckpt_status *)ctx;
}

static ckpt_status leaves(void *ctx, ckpt_error *e)
{
    (void)e;
    _exit(*(int *)ctx);
}

static ckpt_status trial(ckpt_status (*fn)(void *, ckpt_error *), void *ctx)
{
    const ckpt__trial_want want = {.fn = fn, .ctx = ctx, .seconds = 1, .label = "a.file", .what = "the library"};
    return ckpt__trial(&want, &err);
}

static int open_files(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

START_TEST(gives_status_and_error_and_changes_nothing)
{
    int calls = 0, files = open_files();
    ck_assert_int_eq(trial(counts, &calls), CKPT_OK);
    ck_assert_int_eq(calls, 0);
    ck_assert_int_eq(forks, 1);
    ck_assert_int_eq(trial(refuses, NULL), CKPT_E_UNSUPPORTED);
    ck_assert_str_eq(err.object, "a.file");
    ck_assert_ptr_nonnull(strstr(err.message, "version 9 is not known"));
    const ckpt__trial_want want = {.fn = refuses, .seconds = 1, .label = "a.file", .what = "the library"};
    ck_assert_int_eq(ckpt__trial(&want, NULL), CKPT_E_UNSUPPORTED);
    ck_assert_int_eq(open_files(), files);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}
END_TEST

/* Whatever the program does with that signal. */
static void handler(int number)
{
    (void)number;
    _exit(99);
}

START_TEST(a_crash_is_damage)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        int number = signals[i];
        if (i % 2)
            signal(number, handler);
        ck_assert_int_eq(trial(crashes, &number), CKPT_E_DAMAGED);
        ck_assert_ptr_nonnull(strstr(err.message, "the library crashes on it"));
        signal(number, SIG_DFL);
    }
    int status = 0;
    ck_assert_int_eq(trial(leaves, &status), CKPT_E_DAMAGED); /* it says nothing: no answer is no success */
    ck_assert_int_eq(trial(never_ends, &status), CKPT_E_DAMAGED);
}
END_TEST

/* By the system, where memory runs out, by a person, or at a limit that the program has: it says nothing of the file. */
START_TEST(what_is_ended_from_outside)
{
    int number = SIGKILL, status = 0;
    struct rlimit was, low;
    ck_assert_int_eq(trial(crashes, &number), CKPT_E_SYSTEM);
    ck_assert_msg(strstr(err.message, "ended from outside by signal 9"), "%s", err.message);
    ck_assert_msg(strstr(err.message, "where memory runs out"), "%s", err.message);
    number = SIGTERM;
    ck_assert_int_eq(trial(crashes, &number), CKPT_E_SYSTEM);
    ck_assert_msg(strstr(err.message, "ended from outside by signal 15"), "%s", err.message);
    ck_assert_msg(!strstr(err.message, "memory"), "%s", err.message);
    signal(SIGXCPU, SIG_IGN); /* this process may have had its second too */
    ck_assert_int_eq(getrlimit(RLIMIT_CPU, &was), 0);
    low = was;
    low.rlim_cur = 1;
    ck_assert_int_eq(setrlimit(RLIMIT_CPU, &low), 0);
    const ckpt__trial_want want = {
        .fn = never_ends, .ctx = &status, .seconds = 60, .label = "a.file", .what = "the library"};
    ckpt_status is = ckpt__trial(&want, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_CPU, &was), 0);
    signal(SIGXCPU, SIG_DFL);
    ck_assert_int_eq(is, CKPT_E_SYSTEM);
    ck_assert_msg(strstr(err.message, "ulimit -t: 1 s, where it may take 60 s"), "%s", err.message);
}
END_TEST

/* ---- standard streams that the program has closed */

static ckpt_status has_stderr(void *ctx, ckpt_error *e)
{
    (void)e;
    *(int *)ctx = 1;
    return fcntl(STDERR_FILENO, F_GETFD) < 0 ? CKPT_OK : CKPT_E_UNSUPPORTED;
}

static ckpt_status reads(void *ctx, ckpt_error *e)
{
    char byte;
    return read(*(int *)ctx, &byte, 1) == 1 ? CKPT_OK : ckpt__fail_sys(e, errno, "a.file", "cannot read");
}

/* Streams from `first` on are closed, a file is opened, which gets the lowest number, and tried; `limit` files are the most. */
static ckpt_status without_streams(int first, rlim_t limit, int *file)
{
    int kept[3];
    struct rlimit was, low;
    fflush(NULL);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
    for (int i = first; i < 3; i++)
        ck_assert_int_ge(kept[i] = fcntl(i, F_DUPFD_CLOEXEC, 100), 100);
    for (int i = first; i < 3; i++)
        close(i);
    *file = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    low = was;
    low.rlim_cur = limit ? limit : was.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &low);
    ckpt_status status = trial(reads, file);
    setrlimit(RLIMIT_NOFILE, &was);
    close(*file);
    for (int i = first; i < 3; i++)
        dup2(kept[i], i);
    for (int i = first; i < 3; i++)
        close(kept[i]);
    return status;
}

START_TEST(without_standard_streams)
{
    int file = 0, files = open_files();
    ck_assert_int_eq(trial(has_stderr, &file), CKPT_OK);
    for (int first = 0; first < 3; first++) {
        ck_assert_msg(without_streams(first, 0, &file) == CKPT_OK, "from %d on: %s", first, err.message);
        ck_assert_int_eq(file, first);
    }
    ck_assert_int_eq(without_streams(0, 4, &file), CKPT_E_SYSTEM);
    ck_assert_msg(strstr(err.message, "no pipe for a trial of the library"), "%s", err.message);
    ck_assert_int_eq(open_files(), files);
}
END_TEST

/* Another process that the program made meanwhile has the pipe too, and keeps it. */
START_TEST(a_sibling_that_keeps_the_pipe)
{
    int calls = 0, number = SIGSEGV;
    flies = twice = true;
    for (int ignored = 0; ignored < 2; ignored++) {
        signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
        ck_assert_int_eq(trial(crashes, &number), CKPT_E_DAMAGED);
        ck_assert_int_eq(kill(sibling, SIGKILL), 0); /* it was there till now */
        waitpid(sibling, NULL, 0);
        ck_assert_int_eq(trial(counts, &calls), CKPT_OK);
        ck_assert_int_eq(kill(sibling, SIGKILL), 0);
        waitpid(sibling, NULL, 0);
    }
    signal(SIGCHLD, SIG_DFL);
}
END_TEST

/* Where the program reaps its children itself, there is none to wait for. */
START_TEST(a_program_that_ignores_its_children)
{
    int calls = 0, number = SIGKILL;
    signal(SIGCHLD, SIG_IGN);
    ck_assert_int_eq(trial(counts, &calls), CKPT_OK);
    ck_assert_int_eq(trial(refuses, NULL), CKPT_E_UNSUPPORTED);
    ck_assert_int_eq(trial(crashes, &number), CKPT_E_DAMAGED); /* how it ended is not to be had */
    signal(SIGCHLD, SIG_DFL);
}
END_TEST

START_TEST(short_and_interrupted_calls)
{
    int calls = 0, number = SIGSEGV;
    cut_reads = 1;
    ck_assert_int_eq(trial(counts, &calls), CKPT_OK);
    ck_assert_int_gt(interrupted, 100);
    ck_assert_int_eq(trial(refuses, NULL), CKPT_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.message, "version 9 is not known"));
    ck_assert_int_eq(trial(crashes, &number), CKPT_E_DAMAGED);
}
END_TEST

START_TEST(what_stands_still_is_ended)
{
    ckpt_status right = CKPT_OK;
    int files = open_files();
    flies = true;
    ck_assert_int_eq(trial(waits_for_ever, NULL), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.message, "has stood still for a minute"));
    ck_assert_int_ge(polls, 60);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    polls = 0;
    /* Its processor's time is counted in ticks, of which a busy machine may give it more than it takes. */
    const ckpt__trial_want slow = {
        .fn = is_slow, .ctx = &right, .seconds = 60, .label = "a.file", .what = "the library"};
    ck_assert_int_eq(ckpt__trial(&slow, &err), CKPT_OK);
    ck_assert_int_gt(polls, 60);
    ck_assert_int_eq(open_files(), files);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static ckpt_status needs_much(void *ctx, ckpt_error *e)
{
    size_t n = *(size_t *)ctx;
    char *all = malloc(n);
    if (!all)
        return ckpt__fail(e, CKPT_E_DAMAGED, "a.file", "no room for its text");
    memset(all, 1, n);
    free(all);
    return CKPT_OK;
}

/* Beyond what the program has already; what the library calls damage is the limit then. */
START_TEST(more_memory_than_it_may_have)
{
    size_t little = 8 << 20, much = 64 << 20;
    ckpt__trial_want want = {.fn = needs_much, .seconds = 60, .memory = 32 << 20, .label = "b", .what = "the library"};
    char *mine = malloc(much);
    ck_assert_ptr_nonnull(mine);
    memset(mine, 1, much);
    want.ctx = &little;
    ck_assert_msg(ckpt__trial(&want, &err) == CKPT_OK, "%s", err.message);
    want.ctx = &much;
    ck_assert_int_eq(ckpt__trial(&want, &err), CKPT_E_LIMIT);
    ck_assert_str_eq(err.object, "b");
    ck_assert_ptr_nonnull(strstr(err.message, "the library asks for more than the 32 MiB"));
    ck_assert_ptr_nonnull(strstr(err.message, "no room for its text"));
    want.memory = 0;
    ck_assert_int_eq(ckpt__trial(&want, &err), CKPT_OK);
    free(mine);
}
END_TEST
#endif

START_TEST(no_process_to_be_had)
{
    int calls = 0, files = open_files();
    fail_pipe = EMFILE;
    ck_assert_int_eq(trial(counts, &calls), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EMFILE);
    ck_assert_ptr_nonnull(strstr(err.message, "no pipe for a trial of the library"));
    fail_pipe = 0;
    fail_fork = EAGAIN;
    ck_assert_int_eq(trial(counts, &calls), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EAGAIN);
    ck_assert_ptr_nonnull(strstr(err.message, "no process for a trial of the library"));
    ck_assert_int_eq(calls, 0);
    ck_assert_int_eq(open_files(), files);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trial");
    TCase *t = tcase_create("trial");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_test(t, gives_status_and_error_and_changes_nothing);
    tcase_add_test(t, a_crash_is_damage);
    tcase_add_test(t, what_is_ended_from_outside);
    tcase_add_test(t, without_standard_streams);
    tcase_add_test(t, a_sibling_that_keeps_the_pipe);
    tcase_add_test(t, a_program_that_ignores_its_children);
    tcase_add_test(t, short_and_interrupted_calls);
    tcase_add_test(t, what_stands_still_is_ended);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(t, more_memory_than_it_may_have);
#endif
    tcase_add_test(t, no_process_to_be_had);
    suite_add_tcase(s, t);
    return run_suite(s);
}
