/* io/direct.c - bytes of a source's files past the page cache. */
#include "io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "io/descriptors.h"

#ifndef SYS_cachestat /* Linux 6.5; one number on all machines */
#define SYS_cachestat 451
#endif

/* RETIRED: open, and not to be used any more. */
typedef enum state { NEW = 0, OPEN, REFUSED, RETIRED } state;

typedef struct opened {
    state state;
    int fd; /* owned: of the same file, with O_DIRECT */
} opened;

struct ckpt__direct {
    const ckpt__source *source;
    size_t page;
    pthread_mutex_t lock; /* of all below, but for the fd of an open file */
    size_t count;         /* files that are open */
    opened *files;        /* heap, owned: one for each file of the source */
};

/* Pages of [offset, offset + n) that are in the page cache; -1: this system cannot tell. */
static int64_t pages_cached(int fd, uint64_t offset, uint64_t n)
{
    struct {
        uint64_t offset, length;
    } range = {offset, n};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found = {0};
    return syscall(SYS_cachestat, fd, &range, &found, 0) == 0 ? (int64_t)found.cached : -1;
}

ckpt__direct *ckpt__direct_open(const ckpt__source *s)
{
    ckpt__direct *d = calloc(1, sizeof *d);
    long page = sysconf(_SC_PAGESIZE);
    if (d && page > 0 && (d->files = calloc(s->count + 1, sizeof *d->files)) &&
        pthread_mutex_init(&d->lock, NULL) == 0) {
        d->source = s;
        d->page = (size_t)page;
        return d;
    }
    if (d)
        free(d->files);
    free(d);
    return NULL;
}

void ckpt__direct_close(ckpt__direct *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->source->count; i++) {
        if (d->files[i].state == OPEN)
            ckpt__source_scattered(d->source, (uint32_t)i, false);
        if (d->files[i].state == OPEN || d->files[i].state == RETIRED)
            close(d->files[i].fd);
    }
    pthread_mutex_destroy(&d->lock);
    free(d->files);
    free(d);
}

/* The file of this descriptor once more, whatever its name is by now; -1: it cannot be. */
static int open_again(int fd)
{
    char link[64];
    struct stat a, b;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int own = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (own >= 0 && (fstat(fd, &a) != 0 || fstat(own, &b) != 0 || a.st_dev != b.st_dev || a.st_ino != b.st_ino)) {
        close(own);
        own = -1;
    }
    return own;
}

/* Is less than a quarter of the file in the page cache? Opening it has read some of it, and the system more ahead of that. */
static bool is_cold(const ckpt__direct *d, int fd, uint64_t size)
{
    int64_t cached = pages_cached(fd, 0, size);
    return cached >= 0 && (uint64_t)cached < size / d->page / 4;
}

/* Under the lock. */
static void open_file(ckpt__direct *d, uint32_t file)
{
    opened *o = &d->files[file];
    int fd;
    o->state = REFUSED;
    if (d->count == CKPT__DIRECT_FILES || ckpt__descriptor_pin(d->source, file, 0, &fd, NULL) < 0)
        return;
    o->fd = is_cold(d, fd, d->source->files[file].size) ? open_again(fd) : -1;
    ckpt__descriptor_unpin(d->source, file);
    if (o->fd < 0)
        return;
    o->state = OPEN;
    d->count++;
    /* An ordinary read of a small part is not to bring what lies behind it into the page cache. */
    ckpt__source_scattered(d->source, file, true);
}

static int fd_of(ckpt__direct *d, uint32_t file)
{
    opened *o = &d->files[file];
    pthread_mutex_lock(&d->lock);
    if (o->state == NEW)
        open_file(d, file);
    int fd = o->state == OPEN ? o->fd : -1;
    pthread_mutex_unlock(&d->lock);
    return fd;
}

/* The file system has a larger unit, or none: no further read of this file is tried. */
static void refuse(ckpt__direct *d, uint32_t file)
{
    pthread_mutex_lock(&d->lock);
    if (d->files[file].state == OPEN) {
        d->files[file].state = RETIRED; /* another thread may be reading it: it is closed at the end */
        ckpt__source_scattered(d->source, file, false);
    }
    pthread_mutex_unlock(&d->lock);
}

const unsigned char *ckpt__direct_read(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n, unsigned char *buffer)
{
    enum { UNIT = CKPT__DIRECT_UNIT };
    int fd = d && n ? fd_of(d, file) : -1;
    if (fd < 0 || offset > d->source->files[file].size || n > d->source->files[file].size - offset)
        return NULL;
    uint64_t begin = offset / UNIT * UNIT, end = (offset + n + UNIT - 1) / UNIT * UNIT;
    size_t wanted = (size_t)(offset + n - begin), have = 0;
    while (have < wanted) { /* a read that ends within a unit has met the end of the file */
        ssize_t got = pread(fd, buffer + have, (size_t)(end - begin) - have, (off_t)(begin + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EINVAL)
            refuse(d, file);
        if (got <= 0 || (got % UNIT && have + (size_t)got < wanted))
            return NULL;
        have += (size_t)got;
    }
    return buffer + (offset - begin);
}

bool ckpt__direct_is_cold(const ckpt__source *s)
{
    long page = sysconf(_SC_PAGESIZE);
    uint64_t pages = 0, cached = 0;
    for (size_t i = 0; page > 0 && i < s->count; i++) {
        int fd;
        if (ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0)
            return false;
        int64_t found = pages_cached(fd, 0, s->files[i].size);
        ckpt__descriptor_unpin(s, (uint32_t)i);
        if (found < 0)
            return false;
        pages += s->files[i].size / (uint64_t)page;
        cached += (uint64_t)found;
    }
    return cached < pages / 4;
}
