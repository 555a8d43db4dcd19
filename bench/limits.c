/* limits.c - see limits.h */
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { PAGE = 4096, HUGE = 2 << 20, MOST_THREADS = 64 };

static void die(const char *what)
{
    fprintf(stderr, "limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- threads: each calls `work` until no unit is left */

typedef struct crew {
    void (*work)(const struct crew *c, size_t unit, char *own);
    const limit_span *span;
    size_t size, units;
    atomic_size_t next;
    int fd;
    bool writes, direct;
    char *to;
    size_t tensor;
    enum limit_copy_way way;
} crew;

/* Past the cache a disk moves most where a block lies in huge pages: each thread has one such block for all that it moves. */
static char *own_block(const crew *c)
{
    const size_t block = c->span->block, size = (block + HUGE - 1) / HUGE * HUGE;
    char *own = aligned_alloc(HUGE, size);
    if (!own)
        die("memory");
    (void)madvise(own, size, MADV_HUGEPAGE);
    memcpy(own, c->span->memory, block < c->size ? block : c->size);
    return own;
}

static void *labour(void *arg)
{
    crew *c = arg;
    char *own = c->direct ? own_block(c) : NULL;
    for (size_t unit; (unit = atomic_fetch_add(&c->next, 1)) < c->units;)
        c->work(c, unit, own);
    free(own);
    return NULL;
}

static void run(crew *c)
{
    pthread_t threads[MOST_THREADS];
    size_t n = c->span->threads < MOST_THREADS ? c->span->threads : MOST_THREADS;
    if (n <= 1) {
        labour(c);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if ((errno = pthread_create(&threads[i], NULL, labour, c)) != 0)
            die("thread");
    for (size_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

/* ---- files */

static void move_block(const crew *c, size_t unit, char *own)
{
    size_t begin = unit * c->span->block, at = begin;
    const size_t end = c->size - at < c->span->block ? c->size : at + c->span->block;
    while (at < end) {
        char *memory = own ? own + (at - begin) : c->span->memory + at;
        ssize_t n = c->writes ? pwrite(c->fd, memory, end - at, (off_t)at) : pread(c->fd, memory, end - at, (off_t)at);
        if (n <= 0)
            die(c->writes ? "write" : "read");
        at += (size_t)n;
    }
}

static crew file_crew(const limit_span *span, int fd, bool writes, bool direct)
{
    crew c = {.work = move_block, .span = span, .fd = fd, .writes = writes, .direct = direct};
    c.size = direct ? span->size / PAGE * PAGE : span->size;
    c.units = (c.size + span->block - 1) / span->block;
    return c;
}

double limit_read(const char *path, const limit_span *span, bool direct)
{
    double start = now();
    int fd = open(path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    if (fd < 0)
        die(path);
    crew c = file_crew(span, fd, false, direct);
    run(&c);
    close(fd);
    return now() - start;
}

double limit_write(const char *path, const limit_span *span, bool direct)
{
    if (unlink(path) != 0 && errno != ENOENT)
        die(path);
    double start = now();
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | (direct ? O_DIRECT : 0), 0666);
    if (fd < 0)
        die(path);
    crew c = file_crew(span, fd, true, direct);
    if (direct && (errno = posix_fallocate(fd, 0, (off_t)c.size)) != 0)
        die("fallocate");
    run(&c);
    if (fdatasync(fd) != 0 || close(fd) != 0)
        die("fdatasync");
    return now() - start;
}

/* ---- memory */

static void copy_stream(char *to, const char *from, size_t size)
{
#ifdef __SSE2__
    size_t lead = (size_t)(-(uintptr_t)to & 15), at = lead < size ? lead : size;
    memcpy(to, from, at);
    for (; at + 64 <= size; at += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(from + at));
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + at + 48));
        _mm_stream_si128((__m128i *)(void *)(to + at), a);
        _mm_stream_si128((__m128i *)(void *)(to + at + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + at + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + at + 48), d);
    }
    memcpy(to + at, from + at, size - at);
    _mm_sfence();
#else
    memcpy(to, from, size);
#endif
}

static void copy_part(const crew *c, size_t unit, char *own)
{
    (void)own;
    size_t part = c->size / c->units / PAGE * PAGE, at = unit * part, end = unit + 1 == c->units ? c->size : at + part;
    const char *from = c->span->memory;
    if (c->way == LIMIT_COPY_WHOLE)
        memcpy(c->to + at, from + at, end - at);
    else if (c->way == LIMIT_COPY_STREAM)
        copy_stream(c->to + at, from + at, end - at);
    else
        while (at < end) {
            size_t n = c->tensor - at % c->tensor;
            n = n < end - at ? n : end - at;
            memcpy(c->to + at, from + at, n);
            at += n;
        }
}

double limit_copy(char *to, const limit_span *span, size_t tensor, enum limit_copy_way way)
{
    crew c = {.work = copy_part, .span = span, .size = span->size, .to = to, .tensor = tensor, .way = way};
    c.units = span->threads;
    double start = now();
    run(&c);
    return now() - start;
}

char *limit_memory(size_t size)
{
    char *p = aligned_alloc(HUGE, (size + HUGE - 1) / HUGE * HUGE);
    if (!p)
        die("memory");
    (void)!madvise(p, size, MADV_HUGEPAGE);
    memset(p, 0, size);
    return p;
}
