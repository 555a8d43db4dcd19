/* io/descriptors.c - which files of a source are open. */
#include "io/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "io/beneath.h"

/* The descriptors of one source. Who pins an open file takes no lock: it adds one to the file's `pins`. Whoever opens or closes one
 * holds the lock, and makes `pins` CLOSED first, which succeeds from 0 alone. */
struct ckpt__descriptors {
    pthread_mutex_t lock;
    size_t open; /* files of the source that are */
    size_t most; /* more were refused by the system; SIZE_MAX: never */
    size_t hand; /* the file where the next search for one to close begins */
};

enum { CLOSED = -1, LEAST = 8, AHEAD = 1 << 20, WAITS = 5000 };

static size_t sources, files_open; /* of the process; atomic */

ckpt__descriptors *ckpt__descriptors_new(void)
{
    ckpt__descriptors *d = calloc(1, sizeof *d);
    if (!d || pthread_mutex_init(&d->lock, NULL) != 0) {
        free(d);
        return NULL;
    }
    d->most = SIZE_MAX;
    __atomic_add_fetch(&sources, 1, __ATOMIC_RELAXED);
    return d;
}

void ckpt__descriptors_free(ckpt__descriptors *d)
{
    if (!d)
        return;
    __atomic_sub_fetch(&sources, 1, __ATOMIC_RELAXED);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* How many files the source may have open: its share, and no more than the others leave. Asked anew each time: the program may change
 * its limit, and a source may come. */
static size_t bound_of(const ckpt__descriptors *d)
{
    struct rlimit limit;
    size_t all = CKPT__FILES_OPEN, others = __atomic_load_n(&files_open, __ATOMIC_RELAXED) - d->open,
           share = __atomic_load_n(&sources, __ATOMIC_RELAXED);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur / 2 < all)
        all = (size_t)limit.rlim_cur / 2;
    share = all / (share ? share : 1);
    others = all > others ? all - others : 0;
    size_t most = share < others ? share : others;
    most = most < LEAST ? LEAST : most;
    return most < d->most ? most : d->most;
}

/* With the lock. One was opened (1) or closed (-1). */
static void count(ckpt__descriptors *d, int n)
{
    d->open += (size_t)n;
    __atomic_add_fetch(&files_open, (size_t)n, __ATOMIC_RELAXED);
}

/* ---- closing */

/* Closes one that is not in use: the first from the hand on that was not used since the hand last came by. False: all are in use. */
static bool close_one(const ckpt__source *s)
{
    ckpt__descriptors *d = s->descriptors;
    for (size_t i = 0; i < 2 * s->count; i++) {
        ckpt__file *f = &s->files[d->hand];
        d->hand = (d->hand + 1) % s->count;
        int unused = 0;
        if (f->stays || __atomic_exchange_n(&f->used, false, __ATOMIC_RELAXED) ||
            !__atomic_compare_exchange_n(&f->pins, &unused, CLOSED, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        close(f->fd);
        f->fd = -1;
        count(d, -1);
        return true;
    }
    return false;
}

/* With the lock: a descriptor was refused. The source gives a quarter of its own back, and takes no more than it has then. */
static bool give(const ckpt__source *s)
{
    ckpt__descriptors *d = s->descriptors;
    size_t n = d->open / 4 + 1;
    bool any = false;
    for (; n > 0 && s->count && close_one(s); n--)
        any = true;
    if (any)
        d->most = d->open ? d->open : 1;
    return any;
}

/* The last call found no descriptor left. */
static bool is_refused(void)
{
    return errno == EMFILE || errno == ENFILE;
}

bool ckpt__descriptors_give(const ckpt__source *s)
{
    if (!is_refused())
        return false;
    pthread_mutex_lock(&s->descriptors->lock);
    bool any = give(s);
    pthread_mutex_unlock(&s->descriptors->lock);
    return any;
}

static void keep_bound(const ckpt__source *s)
{
    for (size_t most = bound_of(s->descriptors); s->descriptors->open > most && close_one(s);)
        ;
}

void ckpt__descriptor_added(ckpt__source *s, uint32_t file)
{
    s->files[file].pins = 1; /* it is about to be read, and stays open now */
    pthread_mutex_lock(&s->descriptors->lock);
    count(s->descriptors, 1);
    keep_bound(s);
    pthread_mutex_unlock(&s->descriptors->lock);
    s->files[file].pins = 0;
}

void ckpt__descriptor_dropped(ckpt__source *s, uint32_t file)
{
    ckpt__descriptors *d = s->descriptors;
    if (s->files[file].pins != CLOSED) {
        close(s->files[file].fd);
        count(d, -1);
    }
    if (d->hand >= file)
        d->hand = 0;
}

/* ---- opening again */

int ckpt__source_open_member(const ckpt__source *s, size_t root, const char *name)
{
    int dirfd = root ? s->also[root - 1].dirfd : s->dirfd, fd = -1;
    errno = ENOENT; /* a file has nothing below it */
    if (dirfd >= 0)
        fd = ckpt__open_beneath(dirfd, name, O_RDONLY);
    return fd < 0 && (errno == EXDEV || errno == ELOOP) ? ckpt__open_blob(dirfd, name) : fd;
}

static int open_named(const ckpt__source *s, const ckpt__file *f)
{
    return f->path ? open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
                   : ckpt__source_open_member(s, f->root, f->name);
}

static ckpt_status changed(const ckpt__source *s, uint32_t file, const struct stat *st, ckpt_error *err)
{
    const ckpt__file *f = &s->files[file];
    char label[1024], is[200];
    ckpt__source_label(s, file, label, sizeof label);
    if (!S_ISREG(st->st_mode))
        snprintf(is, sizeof is, "it is %s", ckpt__kind_of(st->st_mode));
    else if (f->dev != (uint64_t)st->st_dev || f->ino != (uint64_t)st->st_ino)
        snprintf(is, sizeof is, "another file of %llu bytes has its name", (unsigned long long)st->st_size);
    else if (f->size != (uint64_t)st->st_size)
        snprintf(is, sizeof is, "it has %llu bytes", (unsigned long long)st->st_size);
    else
        snprintf(is, sizeof is, "it was written to at %lld.%09ld", (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    return ckpt__fail(err, CKPT_E_DAMAGED, label,
                      "it had %llu bytes, last written at %lld.%09ld, when it was opened, and now %s: it was changed "
                      "while it is read (read the checkpoint again when nothing writes to it)",
                      (unsigned long long)f->size, (long long)f->mtime, f->mtime_ns, is);
}

static bool is_same(const ckpt__file *f, const struct stat *st)
{
    return S_ISREG(st->st_mode) && f->dev == (uint64_t)st->st_dev && f->ino == (uint64_t)st->st_ino &&
           f->size == (uint64_t)st->st_size && f->mtime == (int64_t)st->st_mtim.tv_sec &&
           f->mtime_ns == (long)st->st_mtim.tv_nsec;
}

/* What a new descriptor does not know of the old one: how it was to be read, and that it was being read in order. */
static void advise(const ckpt__file *f, int fd, uint64_t offset)
{
    if (f->scattered || f->ahead)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    else
        (void)posix_fadvise(fd, (off_t)offset, AHEAD, POSIX_FADV_WILLNEED);
}

/* With the lock. *busy: no descriptor is to be had, but other threads will have read what they read by theirs. */
static ckpt_status open_again(const ckpt__source *s, uint32_t file, uint64_t offset, bool *busy, ckpt_error *err)
{
    ckpt__file *f = &s->files[file];
    struct stat st;
    char label[1024];
    ckpt__source_label(s, file, label, sizeof label);
    int fd;
    do
        fd = open_named(s, f);
    while (fd < 0 && is_refused() && give(s));
    *busy = fd < 0 && is_refused() && s->descriptors->open > 0;
    if (fd < 0 && errno == ENOENT)
        return ckpt__fail_sys(err, errno, label, "it is gone, and was there when the checkpoint was opened");
    if (fd < 0)
        return ckpt__fail_sys(err, errno, label, "cannot open it again");
    ckpt_status status = fstat(fd, &st) < 0 ? ckpt__fail_sys(err, errno, label, "cannot stat it")
                         : is_same(f, &st)  ? CKPT_OK
                                            : changed(s, file, &st, err);
    if (status < 0) {
        close(fd);
        return status;
    }
    advise(f, fd, offset);
    f->fd = fd;
    count(s->descriptors, 1);
    return CKPT_OK;
}

/* ---- in use */

static bool pin_open(ckpt__file *f)
{
    int pins = __atomic_load_n(&f->pins, __ATOMIC_RELAXED);
    while (pins != CLOSED)
        if (__atomic_compare_exchange_n(&f->pins, &pins, pins + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            if (!__atomic_load_n(&f->used, __ATOMIC_RELAXED))
                __atomic_store_n(&f->used, true, __ATOMIC_RELAXED);
            return true;
        }
    return false;
}

/* With the lock. */
static ckpt_status pin_closed(const ckpt__source *s, uint32_t file, uint64_t offset, ckpt_error *err)
{
    ckpt__descriptors *d = s->descriptors;
    ckpt_status status = CKPT_OK;
    bool busy = false;
    for (int waits = 0; !pin_open(&s->files[file]); waits++) { /* another thread may have opened it meanwhile */
        for (size_t most = bound_of(d); d->open >= most && close_one(s);)
            ;
        status = open_again(s, file, offset, &busy, err);
        if (status == CKPT_OK)
            __atomic_store_n(&s->files[file].pins, 0, __ATOMIC_RELEASE);
        if (status < 0 && (!busy || waits == WAITS))
            return status;
        if (busy) {
            pthread_mutex_unlock(&d->lock);
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            pthread_mutex_lock(&d->lock);
        }
    }
    return CKPT_OK;
}

ckpt_status ckpt__descriptor_pin(const ckpt__source *s, uint32_t file, uint64_t offset, int *fd, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    *fd = -1;
    if (!pin_open(&s->files[file])) {
        pthread_mutex_lock(&s->descriptors->lock);
        status = pin_closed(s, file, offset, err);
        pthread_mutex_unlock(&s->descriptors->lock);
    }
    if (status == CKPT_OK)
        *fd = s->files[file].fd;
    return status;
}

void ckpt__descriptor_unpin(const ckpt__source *s, uint32_t file)
{
    __atomic_sub_fetch(&s->files[file].pins, 1, __ATOMIC_RELEASE);
}
