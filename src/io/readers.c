/* io/readers.c - by how many threads a source is read the fastest.
 *   A restore of 1 GiB from a virtual disk, nothing of it in the page cache, two processors (GB/s): 1.20 by two threads, 1.47 by four,
 * 1.6 by eight, twelve and sixteen, where reads with O_DIRECT reached 1.8. On one of the processors: 1.0 by one, 1.0 by two, 1.3 by
 * four and by eight. */
#include "io/readers.h"

#include <errno.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include "io/descriptors.h"

enum { SAMPLES = 64 };
static const uint64_t worth_asking = 16 << 20; /* bytes: fewer are read before threads have begun */

typedef enum answer { NOT_THERE = 0, THERE, NOT_TOLD } answer;

/* Where in each step it is asked, another place each time: a page that is asked for and is not there is fetched for whoever asks next, who
 * would find just these. */
static uint64_t place_in(uint64_t step)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t x = ((uint64_t)t.tv_nsec + (uint64_t)getpid() * 1000003) * 0x9e3779b97f4a7c15U;
    return step ? (x >> 16) % step : 0;
}

/* A read that does not wait. */
static answer ask(int fd, uint64_t at)
{
    char byte;
    struct iovec to = {&byte, 1};
    ssize_t got = preadv2(fd, &to, 1, (off_t)at, RWF_NOWAIT);
    return got >= 0 ? (answer)(got > 0) : errno == EAGAIN ? NOT_THERE : NOT_TOLD;
}

bool ckpt__file_is_cached(const ckpt__file *f, int fd)
{
    const uint64_t step = f->size / SAMPLES, place = place_in(step);
    unsigned there = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        answer is = ask(fd, step * i + place);
        if (is == NOT_TOLD)
            return true;
        there += is == THERE;
    }
    return there >= SAMPLES / 2;
}

/* The same of all files: as many samples, spread over their bytes. */
static bool is_cached(const ckpt__source *s, uint64_t bytes)
{
    const uint64_t step = bytes / SAMPLES;
    uint64_t begin = 0, next = place_in(step);
    unsigned there = 0, asked = 0;
    for (size_t i = 0; i < s->count && asked < SAMPLES; begin += s->files[i++].size) {
        const uint64_t end = begin + s->files[i].size;
        int fd;
        if (next >= end)
            continue;
        if (ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0) { /* whoever reads it says so */
            next = end;
            continue;
        }
        answer is = THERE;
        for (; is != NOT_TOLD && next < end && asked < SAMPLES; next += step, asked++) {
            is = ask(fd, next - begin);
            there += is == THERE;
        }
        ckpt__descriptor_unpin(s, (uint32_t)i);
        if (is == NOT_TOLD)
            return true;
    }
    return there >= asked / 2;
}

bool ckpt__source_is_cached(const ckpt__source *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->count; i++)
        bytes += s->files[i].size;
    return bytes < worth_asking || is_cached(s, bytes);
}

unsigned ckpt__readers_usual(const ckpt__source *s, unsigned cached)
{
    return cached >= CKPT__READERS || ckpt__source_is_cached(s) ? cached : CKPT__READERS;
}
