/* io/trial.c - a call in a copy of the process. A pipe says whether it came back: the program itself may wait for all its
 * children, and have the status. */
#include "io/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

static bool came_back(int from)
{
    char byte = 0;
    ssize_t n;
    do
        n = read(from, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

ckpt_status ckpt__trial(void (*fn)(void *ctx), void *ctx, unsigned seconds, const char *label, const char *what,
                        ckpt_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ckpt__fail_sys(err, errno, label, "no pipe for a trial of %s", what);
    pid_t pid = fork();
    if (pid == 0) {
        prepare(seconds);
        fn(ctx);
        ssize_t written = write(ends[1], "", 1);
        _exit(written == 1 ? 0 : 1);
    }
    int why = errno;
    close(ends[1]);
    bool back = pid > 0 && came_back(ends[0]);
    close(ends[0]);
    if (pid < 0)
        return ckpt__fail_sys(err, why, label, "no process for a trial of %s", what);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return back ? CKPT_OK
                : ckpt__fail(err, CKPT_E_DAMAGED, label,
                             "damaged, or made to attack: %s crashes on it, or finds no end (it was tried in a process "
                             "of its own)",
                             what);
}
