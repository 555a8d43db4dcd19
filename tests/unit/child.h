/* tests/unit/child.h - runs a function in a process of its own, with its own environment. CUDA reads the environment
 * once and does not survive fork, so each case gets a child of a parent that never initialises it; this works with
 * CK_FORK=no too. */
#ifndef CHILD_H
#define CHILD_H
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "require.h"

typedef struct child {
    int status;      /* as waitpid gives it */
    char text[8192]; /* what it wrote to stderr */
} child;

/* Touches the stack far below its end. Valgrind grows a stack when it is touched, and cannot always while it delivers a signal
 * ("Can't extend stack ... during signal delivery"): that depends on where in its page the stack ends. */
__attribute__((noinline)) static void grow_stack(void)
{
    volatile char deep[64 << 10];
    for (size_t i = 0; i < sizeof deep; i += 1024)
        deep[sizeof deep - 1 - i] = 0;
}

/* env: "NAME=VALUE" up to a NULL; may be NULL. The function returns: exit status 0, through exit handlers. */
static inline child run_child(void (*function)(const void *arg), const void *arg, const char *const *env)
{
    child c = {-1, ""};
    int ends[2];
    size_t used = 0;
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        for (; env && *env; env++)
            putenv((char *)(uintptr_t)*env);
        grow_stack();
        function(arg);
        exit(0);
    }
    close(ends[1]);
    for (ssize_t n; used < sizeof c.text - 1 && (n = read(ends[0], c.text + used, sizeof c.text - 1 - used)) > 0;)
        used += (size_t)n;
    c.text[used] = '\0';
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &c.status, 0), pid);
    return c;
}

static inline void expect_success(void (*function)(const void *arg), const void *arg, const char *const *env)
{
    child c = run_child(function, arg, env);
    ck_assert_msg(WIFEXITED(c.status) && WEXITSTATUS(c.status) == 0, "status %#x: %s", (unsigned)c.status, c.text);
}

/* Ends with this exit status, having said this. */
static inline void expect_exit(int code, const char *said, void (*function)(const void *arg), const void *arg,
                               const char *const *env)
{
    child c = run_child(function, arg, env);
    ck_assert_msg(WIFEXITED(c.status) && WEXITSTATUS(c.status) == code, "status %#x: %s", (unsigned)c.status, c.text);
    ck_assert_msg(strstr(c.text, said) != NULL, "'%s' is not in: %s", said, c.text);
}
#endif
