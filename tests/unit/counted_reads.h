/* tests/unit/counted_reads.h - the calls of pread, and the bytes that they gave. Link with --wrap=pread. */
#ifndef COUNTED_READS_H
#define COUNTED_READS_H
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

static unsigned read_calls;
static uint64_t read_bytes;
static unsigned read_round;      /* another number begins to count threads anew */
static unsigned read_threads;    /* that called it in this round */
static unsigned read_threads_of; /* a call waits until they are as many, ten seconds at most; 0: none does */

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    static _Thread_local unsigned last_round; /* 1 + that of this thread's last call */
    unsigned round = __atomic_load_n(&read_round, __ATOMIC_RELAXED) + 1;
    if (last_round != round)
        __atomic_add_fetch(&read_threads, 1, __ATOMIC_RELAXED);
    last_round = round;
    for (int i = 0;
         __atomic_load_n(&read_threads_of, __ATOMIC_RELAXED) > __atomic_load_n(&read_threads, __ATOMIC_RELAXED); i++) {
        if (i == 1000)
            __atomic_store_n(&read_threads_of, 0, __ATOMIC_RELAXED);
        usleep(10000);
    }
    ssize_t got = __real_pread(fd, to, n, at);
    __atomic_add_fetch(&read_calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&read_bytes, got > 0 ? (uint64_t)got : 0, __ATOMIC_RELAXED);
    return got;
}
#endif
