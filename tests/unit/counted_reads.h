/* tests/unit/counted_reads.h - the calls of pread, and the bytes that they gave. Link with --wrap=pread. */
#ifndef COUNTED_READS_H
#define COUNTED_READS_H
#include <stdint.h>
#include <sys/types.h>

static unsigned read_calls;
static uint64_t read_bytes;

ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    ssize_t got = __real_pread(fd, to, n, at);
    __atomic_add_fetch(&read_calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&read_bytes, got > 0 ? (uint64_t)got : 0, __ATOMIC_RELAXED);
    return got;
}
#endif
