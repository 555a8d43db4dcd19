/* killer.h - runs a program and kills it with SIGKILL: at its n-th system call (every thread of it is traced), or after
 * some time. For tests; not thread-safe. */
#ifndef KILLER_H
#define KILLER_H
#include <stdbool.h>
#include <stddef.h>

/* The program says where the counted part begins and ends: prctl(KILLER_MARK, KILLER_BEGIN) and KILLER_END. The kernel
 * knows no such operation and answers EINVAL. */
enum { KILLER_MARK = 0x6b696c6c, KILLER_BEGIN = 1, KILLER_END = 2 };
enum { KILLER_CALLS = 512, KILLER_STOPS = 4096 };

/* How often each system call stopped, or was killed, by number: [0] where it began, [1] where it ended; and the call of
 * each stop, the first at [1]. */
typedef struct killer_tally {
    long n[KILLER_CALLS][2];
    short order[KILLER_STOPS];
} killer_tally;

typedef struct killer_result {
    bool started; /* false: see why */
    bool killed;  /* by us, as planned */
    bool hung;    /* nothing happened for a minute; it was killed for that */
    int status;   /* as of waitpid */
    long stops;   /* counted so far */
    long call;    /* the system call that it died at, -1: by time */
    bool at_end;  /* after the call was done; false: before it began */
    char why[160];
} killer_result;

/* Kills at the at-th stop; each system call has two, one before it is done and one after. at 0: never.
 * getpid and clock_nanosleep are not counted, and with changes_only no call that changes nothing on a disk. What the program
 * writes to its standard error goes to the descriptor `errors`. `seen` may be NULL. */
void killer_trace(char *const argv[], int errors, long at, bool changes_only, killer_tally *seen,
                  killer_result *result);
/* Kills after so many microseconds, without tracing. */
void killer_timed(char *const argv[], int errors, long microseconds, killer_result *result);
/* Runs it to its end. */
void killer_run(char *const argv[], int errors, killer_result *result);

/* Whether this system lets a process trace its child; else why not. */
bool killer_can_trace(char *why, size_t size);
const char *killer_call_name(long call);
#endif
