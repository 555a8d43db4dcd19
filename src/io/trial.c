/* io/trial.c - a call in a copy of the process. A pipe says whether it came back, and with what: the program itself may wait for
 * all its children, and have the exit status. */
#include "io/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The processor's time that it gets: the program's own limit may be lower. At the first of the two it ends by SIGXCPU, where the
 * program's lets it; one that is ended by SIGKILL has not come to it. */
static struct rlimit time_limit(unsigned seconds)
{
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_CPU, &most);
    most.rlim_cur = most.rlim_cur < seconds ? most.rlim_cur : seconds;
    most.rlim_max = most.rlim_max < (rlim_t)seconds + 1 ? most.rlim_max : (rlim_t)seconds + 1;
    return most;
}

/* A crash is a crash, not what the program makes of one; no core, no message of malloc's. Where the program has closed its
 * standard error, that number may be a file of ours: all of those are closed by exec. */
static void prepare(const struct rlimit *most)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGPIPE, SIGTERM};
    const struct rlimit none = {0, 0};
    sigset_t all;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, most);
    int flags = fcntl(STDERR_FILENO, F_GETFD);
    if (flags >= 0 && !(flags & FD_CLOEXEC))
        close(STDERR_FILENO);
}

/* Neither end is a standard stream's number, where a library's messages would go. */
static int make_pipe(int ends[2])
{
    int made[2], why = 0;
    if (pipe2(made, O_CLOEXEC) < 0)
        return errno;
    for (int i = 0; i < 2; i++) {
        ends[i] = made[i];
        if (made[i] <= STDERR_FILENO && (ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1)) < 0)
            why = errno;
    }
    for (int i = 0; i < 2; i++) {
        if (made[i] <= STDERR_FILENO)
            close(made[i]);
        if (why && ends[i] > STDERR_FILENO)
            close(ends[i]);
    }
    return why;
}

/* What comes through the pipe: of a process that may not have been in its right mind. */
typedef struct answer {
    ckpt_status status;
    ckpt_error error;
} answer;

/* The sanitizers map terabytes, and end the process where they get no memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

/* So much more memory of its own than the process has by now. Where that cannot be told, it has no such limit. */
static void limit_memory(uint64_t more)
{
    char text[200];
    unsigned long long pages = 0;
    struct rlimit most;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    uint64_t bytes;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (SANITIZED || sscanf(text, "%*u %*u %*u %*u %*u %llu", &pages) != 1 || getrlimit(RLIMIT_DATA, &most) < 0 ||
        !ckpt__mul(pages, (uint64_t)sysconf(_SC_PAGESIZE), &bytes) || !ckpt__add(bytes, more, &bytes))
        return;
    if (most.rlim_max == RLIM_INFINITY || most.rlim_max > bytes)
        most.rlim_cur = most.rlim_max = bytes;
    setrlimit(RLIMIT_DATA, &most);
}

/* What the library made of it that it got no memory: it takes that for damage of the file. */
static void name_limit(answer *a, const ckpt__trial_want *want)
{
    char said[sizeof a->error.message];
    memcpy(said, a->error.message, sizeof said);
    a->status = ckpt__fail(
        &a->error, CKPT_E_LIMIT, want->label,
        "damaged, or made to attack: %s asks for more than the %llu MiB of memory that a file of its size may "
        "take (it was tried in a process of its own; %.200s)",
        want->what, (unsigned long long)(want->memory >> 20), said);
}

static void try_it(const ckpt__trial_want *want, answer *a)
{
    if (want->memory)
        limit_memory(want->memory);
    errno = 0;
    a->status = want->fn(want->ctx, &a->error);
    if (want->memory && a->status == CKPT_E_DAMAGED && errno == ENOMEM)
        name_limit(a, want);
}

/* The processor's time that the process has had, in the kernel's ticks, where it sleeps and waits for no disk; else, and where that
 * cannot be told, -1. */
static long long asleep_since(pid_t pid)
{
    char path[40], text[600], state;
    unsigned long long user, system;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
    if (!rest || sscanf(rest + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &state, &user, &system) != 3)
        return -1;
    return state == 'S' ? (long long)(user + system) : -1;
}

/* It is a process no more, or nobody's to wait for. Another process that the program made meanwhile may hold the pipe open. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};
    int n = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT);
    return n < 0 ? errno == ECHILD : info.si_pid == pid;
}

/* Waits for the next byte, or the end of the process. False: the process sleeps, and has done nothing for a minute. It has one
 * thread, and reads files alone, so it waits for a lock that another thread of this program had when it was made: of a malloc that knows nothing of fork. */
static bool wait_for(int from, pid_t pid, bool *ended)
{
    enum { SECOND = 1000, PATIENCE = 60 };
    struct pollfd ready = {.fd = from, .events = POLLIN};
    long long before = -1;
    for (int seconds = 0; seconds < PATIENCE;) {
        int n = poll(&ready, 1, SECOND);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* the read will say */
        if (n == 0 && has_ended(pid)) {
            *ended = true;
            return true;
        }
        long long now = n == 0 ? asleep_since(pid) : before;
        seconds = now >= 0 && now == before ? seconds + (n == 0) : 0;
        before = now;
    }
    return false;
}

static bool receive(int from, pid_t pid, answer *a, bool *stuck)
{
    struct pollfd ready = {.fd = from, .events = POLLIN};
    size_t have = 0;
    ssize_t n = 1;
    bool ended = false;
    while (have < sizeof *a && n > 0) {
        *stuck = !ended && !wait_for(from, pid, &ended);
        if (*stuck || (ended && poll(&ready, 1, 0) <= 0)) /* nothing comes any more */
            break;
        n = read(from, (char *)a + have, sizeof *a - have);
        have += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
    a->error.object[sizeof a->error.object - 1] = a->error.message[sizeof a->error.message - 1] = '\0';
    return have == sizeof *a;
}

static void send_answer(int to, const answer *a)
{
    size_t done = 0;
    ssize_t n = 1;
    while (done < sizeof *a && n > 0) {
        n = write(to, (const char *)a + done, sizeof *a - done);
        done += n > 0 ? (size_t)n : 0;
        n = n < 0 && errno == EINTR ? 1 : n;
    }
}

/* What became of a process that has sent no answer. `ended` is what waitpid said, -1 where it said nothing. */
static ckpt_status explain(int ended, const struct rlimit *most, unsigned seconds, const char *label, const char *what,
                           ckpt_error *err)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
    int signal = ended != -1 && WIFSIGNALED(ended) ? WTERMSIG(ended) : 0;
    bool own = signal == 0 || (signal == SIGXCPU && most->rlim_cur == seconds);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        own = own || signal == crashes[i];
    if (own)
        return ckpt__fail(err, CKPT_E_DAMAGED, label,
                          "damaged, or made to attack: %s crashes on it, or finds no end (it was tried in a process of "
                          "its own)",
                          what);
    char limit[120] = "", memory[] = ", which the system sends where memory runs out";
    if (most->rlim_cur < seconds && (signal == SIGXCPU || (signal == SIGKILL && most->rlim_max == most->rlim_cur)))
        snprintf(limit, sizeof limit,
                 "%s at the limit of the processor's time (ulimit -t: %llu s, where it may take %u s)",
                 signal == SIGKILL ? ", or" : ",", (unsigned long long)most->rlim_cur, seconds);
    return ckpt__fail(
        err, CKPT_E_SYSTEM, label,
        "a trial of %s, in a process of its own, was ended from outside by signal %d (%s)%s%s. Nothing is known "
        "of the file: open it again%s",
        what, signal, strsignal(signal), signal == SIGKILL ? memory : "", limit,
        signal == SIGKILL ? ", with more memory"
        : *limit          ? ", with a higher one"
                          : "");
}

static int reap(pid_t pid)
{
    int ended = -1;
    while (waitpid(pid, &ended, 0) < 0)
        if (errno != EINTR)
            return -1;
    return ended;
}

ckpt_status ckpt__trial(const ckpt__trial_want *want, ckpt_error *err)
{
    const char *label = want->label, *what = want->what;
    int ends[2];
    answer a = {CKPT_OK, CKPT_ERROR_INIT};
    const struct rlimit most = time_limit(want->seconds);
    int why = make_pipe(ends);
    if (why)
        return ckpt__fail_sys(err, why, label, "no pipe for a trial of %s", what);
    pid_t pid = fork();
    if (pid == 0) {
        prepare(&most);
        try_it(want, &a);
        send_answer(ends[1], &a);
        _exit(0);
    }
    why = errno;
    close(ends[1]);
    bool stuck = false, back = pid > 0 && receive(ends[0], pid, &a, &stuck);
    close(ends[0]);
    if (pid < 0)
        return ckpt__fail_sys(err, why, label, "no process for a trial of %s", what);
    if (stuck)
        kill(pid, SIGKILL);
    int ended = reap(pid);
    if (stuck)
        return ckpt__fail_sys(
            err, ETIMEDOUT, label,
            "a trial of %s, in a process of its own, has stood still for a minute: it waits for a lock that "
            "another thread of the program had when it was made. Open the file before other threads are "
            "begun, or again",
            what);
    if (!back)
        return explain(ended, &most, want->seconds, label, what, err);
    if (a.status >= 0)
        return CKPT_OK;
    if (err)
        *err = a.error;
    return a.status;
}
