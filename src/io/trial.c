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

/* A crash is a crash, not what the program makes of one; no core, no message of malloc's. */
static void prepare(unsigned seconds)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU, SIGPIPE, SIGTERM};
    const struct rlimit none = {0, 0}, most = {seconds, seconds};
    sigset_t all;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &most);
    close(STDERR_FILENO);
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

/* Waits for the next byte. False: the process sleeps, and has done nothing for a minute. It has one thread, and reads files alone, so it
 * waits for a lock that another thread of this program had when it was made: of a malloc that knows nothing of fork. */
static bool wait_for(int from, pid_t pid)
{
    enum { SECOND = 1000, PATIENCE = 60 };
    struct pollfd ready = {.fd = from, .events = POLLIN};
    long long before = -1;
    for (int seconds = 0; seconds < PATIENCE;) {
        int n = poll(&ready, 1, SECOND);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true; /* the read will say */
        long long now = n == 0 ? asleep_since(pid) : before;
        seconds = now >= 0 && now == before ? seconds + (n == 0) : 0;
        before = now;
    }
    return false;
}

static bool receive(int from, pid_t pid, answer *a, bool *stuck)
{
    size_t have = 0;
    ssize_t n = 1;
    while (have < sizeof *a && n > 0 && !*stuck) {
        *stuck = !wait_for(from, pid);
        if (*stuck)
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

ckpt_status ckpt__trial(const ckpt__trial_want *want, ckpt_error *err)
{
    const char *label = want->label, *what = want->what;
    int ends[2];
    answer a = {CKPT_OK, CKPT_ERROR_INIT};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ckpt__fail_sys(err, errno, label, "no pipe for a trial of %s", what);
    pid_t pid = fork();
    if (pid == 0) {
        prepare(want->seconds);
        try_it(want, &a);
        send_answer(ends[1], &a);
        _exit(0);
    }
    int why = errno;
    close(ends[1]);
    bool stuck = false, back = pid > 0 && receive(ends[0], pid, &a, &stuck);
    close(ends[0]);
    if (pid < 0)
        return ckpt__fail_sys(err, why, label, "no process for a trial of %s", what);
    if (stuck)
        kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (stuck)
        return ckpt__fail_sys(
            err, ETIMEDOUT, label,
            "a trial of %s, in a process of its own, has stood still for a minute: it waits for a lock that "
            "another thread of the program had when it was made. Open the file before other threads are "
            "begun, or again",
            what);
    if (!back)
        return ckpt__fail(err, CKPT_E_DAMAGED, label,
                          "damaged, or made to attack: %s crashes on it, or finds no end (it was tried in a process of "
                          "its own)",
                          what);
    if (a.status >= 0)
        return CKPT_OK;
    if (err)
        *err = a.error;
    return a.status;
}
