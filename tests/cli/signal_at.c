/* signal_at.c - runs a command and sends it a signal at its N-th system call, as a terminal would at any moment.
 *
 *     signal_at [-i] [-g] [-x] N SIGNAL COMMAND [ARGUMENT]...
 *
 * -i: the command is started with the signal ignored, as nohup does; else with its default action, whatever this process was
 * given. -g: the signal goes to the whole process group, as Ctrl-C does. -x: the command is a script that becomes the program,
 * whose calls are counted. Only the main thread's calls are counted.
 *   It ends as the command does, with its exit status or by the same signal. 97: the command was done before its N-th call;
 * 98: it cannot be traced here. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOO_LATE = 97, NO_TRACE = 98 };

static int number_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } rows[] = {{"INT", SIGINT}, {"TERM", SIGTERM}, {"HUP", SIGHUP}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].number;
    return 0;
}

static int end_as(int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

/* Lets the traced child go on to its n-th call after so many programs; false: it ended before, *status says how. */
static bool reach(pid_t child, int programs, long n, int *status)
{
    int passed = 0;
    while (n > 0) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, (void *)(long)passed) != 0 || waitpid(child, status, 0) != child)
            return false;
        if (!WIFSTOPPED(*status))
            return false;
        bool call = WSTOPSIG(*status) == (SIGTRAP | 0x80);
        passed = call || WSTOPSIG(*status) == SIGTRAP ? 0 : WSTOPSIG(*status);
        programs -= *status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8);
        n -= call && programs <= 0;
    }
    return true;
}

int main(int argc, char **argv)
{
    bool ignored = false, group = false, script = false;
    int option, status;
    while ((option = getopt(argc, argv, "+igx")) != -1) {
        ignored |= option == 'i';
        group |= option == 'g';
        script |= option == 'x';
    }
    if (argc - optind < 3 || !number_of(argv[optind + 1]))
        return 99;
    long n = atol(argv[optind]);
    int number = number_of(argv[optind + 1]);
    pid_t child = fork();
    if (child == 0) {
        signal(number, ignored ? SIG_IGN : SIG_DFL);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(NO_TRACE);
        execvp(argv[optind + 2], argv + optind + 2);
        _exit(99);
    }
    signal(number, SIG_IGN); /* -g reaches this process too */
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 99;
    if (!WIFSTOPPED(status))
        return WEXITSTATUS(status);
    if (ptrace(PTRACE_SETOPTIONS, child, NULL,
               (void *)(long)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) != 0)
        return NO_TRACE;
    if (!reach(child, script, n, &status))
        return WIFEXITED(status) ? TOO_LATE : end_as(status);
    kill(group ? 0 : child, number);
    ptrace(PTRACE_DETACH, child, NULL, NULL);
    if (waitpid(child, &status, 0) != child)
        return 99;
    return end_as(status);
}
