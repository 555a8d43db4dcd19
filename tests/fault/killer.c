/* killer.c - see killer.h. A thread that is killed at the beginning of a system call never does it; at the end, it has
 * done it. The other threads of the program run on for two milliseconds, until the kill reaches them. */
#include "killer.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE = 60, THREADS = 64 };

typedef struct tracee {
    pid_t pid;
    bool counting, changes_only;
    long at;
    killer_tally *seen;
    killer_result *result;
    struct {
        pid_t tid;
        long call;
        bool mark;
    } threads[THREADS]; /* the call that each thread is in */
} tracee;

/* changes: the call can change what is on the disk, or when. A kill beside any other is like one beside the last of these. */
static const struct {
    long call;
    const char *name;
    bool changes;
} calls[] = {
#define CALL(name)                                                                                                     \
    {                                                                                                                  \
        SYS_##name, #name, false                                                                                       \
    }
#define CHANGE(name)                                                                                                   \
    {                                                                                                                  \
        SYS_##name, #name, true                                                                                        \
    }
    CHANGE(write),
    CHANGE(pwrite64),
    CHANGE(fallocate),
    CHANGE(ftruncate),
    CHANGE(fsync),
    CHANGE(fdatasync),
    CHANGE(mkdirat),
    CHANGE(unlinkat),
    CHANGE(renameat2),
    CHANGE(linkat),
    CHANGE(fchmod),
    CHANGE(fchown),
    CHANGE(sync_file_range),
    CALL(openat),
    CALL(close),
    CALL(read),
    CALL(pread64),
    CALL(lseek),
    CALL(fstat),
    CALL(newfstatat),
    CALL(statx),
    CALL(getdents64),
    CALL(fcntl),
    CALL(flock),
    CALL(ioctl),
    CALL(readlinkat),
    CALL(getcwd),
    CALL(faccessat),
    CALL(utimensat),
    CALL(fadvise64),
    CALL(mmap),
    CALL(munmap),
    CALL(mprotect),
    CALL(madvise),
    CALL(brk),
    CALL(futex),
    CALL(clone),
    CALL(exit),
    CALL(exit_group),
    CALL(prctl),
    CALL(prlimit64),
    CALL(set_robust_list),
    CALL(getrandom),
    CALL(rt_sigprocmask),
    CALL(rt_sigaction),
    CALL(rt_sigtimedwait),
    CALL(gettid),
    CALL(getpriority),
    CALL(setpriority),
    CALL(getuid),
    CALL(geteuid),
    CALL(uname),
    CALL(sysinfo),
    CALL(sched_yield),
    CALL(sched_getaffinity),
    CALL(sched_setaffinity),
    CALL(clock_nanosleep),
#ifdef SYS_renameat
    CHANGE(renameat),
#endif
#ifdef SYS_open
    CHANGE(rename),
    CHANGE(unlink),
    CHANGE(rmdir),
    CHANGE(mkdir),
    CALL(open),
    CALL(stat),
    CALL(lstat),
    CALL(readlink),
    CALL(access),
#endif
#ifdef SYS_clone3
    CALL(clone3),
#endif
#ifdef SYS_rseq
    CALL(rseq),
#endif
#ifdef SYS_openat2
    CALL(openat2),
#endif
#ifdef SYS_faccessat2
    CALL(faccessat2),
#endif
#undef CALL
#undef CHANGE
};

const char *killer_call_name(long call)
{
    static char number[40];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].call == call)
            return calls[i].name;
    snprintf(number, sizeof number, call < 0 ? "no call" : "call %ld", call);
    return number;
}

static bool changes(long call)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].call == call)
            return calls[i].changes;
    return true;
}

/* ---- a clock that ends waitpid: a program that hangs is a finding, not a test that never ends */
static volatile sig_atomic_t rang;

static void ring(int signal_number)
{
    (void)signal_number;
    rang = 1;
}

static void set_clock(int seconds)
{
    struct sigaction action = {.sa_handler = ring}; /* no SA_RESTART */
    struct itimerval timer = {.it_value.tv_sec = seconds, .it_interval.tv_sec = seconds ? 1 : 0};
    rang = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static pid_t start(char *const argv[], int errors, bool traced, killer_result *result)
{
    memset(result, 0, sizeof *result);
    result->call = -1;
    pid_t pid = fork();
    if (pid < 0)
        snprintf(result->why, sizeof result->why, "fork: %s", strerror(errno));
    if (pid != 0)
        return pid;
    if (traced && (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0))
        _exit(126);
    dup2(errors, STDERR_FILENO);
    execv(argv[0], argv);
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Waits until the program is gone, all its threads included. */
static void reap(pid_t pid, killer_result *result)
{
    int status;
    pid_t tid;
    while ((tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR) {
        if (tid < 0 && rang) {
            result->hung = true;
            kill(pid, SIGKILL);
        } else if (tid == pid && (WIFEXITED(status) || WIFSIGNALED(status)))
            result->status = status;
        else if (tid > 0 && WIFSTOPPED(status))
            ptrace(PTRACE_CONT, tid, NULL, NULL);
    }
}

/* The call that this thread is in; a full table forgets names, not stops. */
static long *call_of(tracee *t, pid_t tid, bool **mark)
{
    size_t i = 0;
    while (i < THREADS - 1 && t->threads[i].tid != tid && t->threads[i].tid != 0)
        i++;
    t->threads[i].tid = tid;
    *mark = &t->threads[i].mark;
    return &t->threads[i].call;
}

/* One stop before or after a system call. True: it is the one to die at. */
static bool at_call(tracee *t, pid_t tid)
{
    struct __ptrace_syscall_info info;
    bool *mark;
    long *call = call_of(t, tid, &mark);
    if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof info, &info) <= 0)
        return false;
    bool at_end = info.op == PTRACE_SYSCALL_INFO_EXIT;
    if (!at_end) {
        *call = (long)info.entry.nr;
        *mark = *call == SYS_prctl && info.entry.args[0] == KILLER_MARK;
        if (*mark)
            t->counting = info.entry.args[1] == KILLER_BEGIN;
    }
    /* A trainer that asks ckpt_run_get_info again and again makes these, hundreds, and of no consequence. */
    bool asks = *call == SYS_getpid || *call == SYS_clock_nanosleep;
    if (!t->counting || *mark || asks || (t->changes_only && !changes(*call)))
        return false;
    killer_result *r = t->result;
    r->stops++;
    if (t->seen && *call >= 0 && *call < KILLER_CALLS) {
        t->seen->n[*call][at_end]++;
        if (r->stops < KILLER_STOPS)
            t->seen->order[r->stops] = (short)*call;
    }
    if (r->stops != t->at)
        return false;
    r->call = *call;
    r->at_end = at_end;
    return true;
}

static bool follow(tracee *t, pid_t tid, int status)
{
    int signal_number = WSTOPSIG(status);
    if (signal_number == (SIGTRAP | 0x80)) {
        if (at_call(t, tid))
            return false;
        signal_number = 0;
    } else if (signal_number == SIGSTOP || status >> 16 != 0)
        signal_number = 0; /* a new thread's first stop, or an event of tracing */
    ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(intptr_t)signal_number);
    return true;
}

/* The thread that is to die stands still; the others go on for a moment, as they might on a slow disk: now they may say
 * or do what was not theirs to say or do yet. */
static void linger(tracee *t, pid_t tid)
{
    const struct timespec moment = {0, 200000};
    int status;
    for (int i = 0; i < 10 && t->threads[1].tid != 0; i++) {
        pid_t other;
        nanosleep(&moment, NULL);
        while ((other = waitpid(-1, &status, __WALL | WNOHANG)) > 0)
            if (WIFSTOPPED(status) && other != tid)
                follow(t, other, status);
            else if (other == t->pid)
                t->result->status = status;
    }
}

void killer_trace(char *const argv[], int errors, long at, bool changes_only, killer_tally *seen, killer_result *result)
{
    int status = 0;
    pid_t pid = start(argv, errors, true, result);
    tracee t = {.pid = pid, .changes_only = changes_only, .at = at, .seen = seen, .result = result};
    if (pid < 0)
        return;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) {
        snprintf(result->why, sizeof result->why, "a child may not ask to be traced here (status %#x)",
                 (unsigned)status);
        return;
    }
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL,
               (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) != 0) {
        snprintf(result->why, sizeof result->why, "PTRACE_SETOPTIONS: %s", strerror(errno));
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        return;
    }
    result->started = true;
    set_clock(PATIENCE);
    ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
    for (bool alive = true; alive && !rang;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0)
            alive = errno == EINTR;
        else if (!WIFSTOPPED(status)) {
            if (tid == pid)
                result->status = status;
        } else if (!follow(&t, tid, status)) {
            linger(&t, tid);
            result->killed = true;
            kill(pid, SIGKILL);
            alive = false;
        }
    }
    result->hung = rang != 0;
    if (result->hung)
        kill(pid, SIGKILL);
    reap(pid, result);
    set_clock(0);
}

void killer_timed(char *const argv[], int errors, long microseconds, killer_result *result)
{
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000};
    pid_t pid = start(argv, errors, false, result);
    if (pid < 0)
        return;
    result->started = true;
    nanosleep(&t, NULL);
    set_clock(PATIENCE);
    result->killed = kill(pid, SIGKILL) == 0;
    reap(pid, result);
    result->killed = result->killed && WIFSIGNALED(result->status);
    set_clock(0);
}

void killer_run(char *const argv[], int errors, killer_result *result)
{
    pid_t pid = start(argv, errors, false, result);
    if (pid < 0)
        return;
    result->started = true;
    set_clock(PATIENCE);
    reap(pid, result);
    set_clock(0);
}

bool killer_can_trace(char *why, size_t size)
{
    killer_result r;
    static killer_tally seen;
    char *const argv[] = {"/proc/self/exe", "--mark-only", NULL};
    killer_trace(argv, STDERR_FILENO, 1, false, &seen, &r);
    if (r.started && r.killed)
        return true;
    snprintf(why, size, "%s",
             r.why[0] ? r.why : "system calls of a traced child cannot be seen (PTRACE_GET_SYSCALL_INFO)");
    return false;
}
