/* io/direct.c - bytes of a source's files past the page cache, where it does not have them. */
#include "io/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "io/cached.h"
#include "io/descriptors.h"

#ifndef SYS_cachestat /* Linux 6.5; one number on all machines */
#define SYS_cachestat 451
#endif

/* In bytes. ALIGN is a multiple of what any file asks for; and what cachestat counts. */
enum { ALIGN = CKPT__DIRECT_ALIGN, PAGE = 4096 };
static const off_t lock_at = INT64_MAX - 1; /* a byte that no file has: the lock keeps nobody from any other */

typedef enum state { NEW = 0, OPEN, REFUSED } state;

typedef struct opened {
    state state;
    int users;      /* reads under way */
    int fd;         /* open with O_DIRECT; owned */
    uint32_t align; /* bytes: what the file's offsets and the memory are to be multiples of */
} opened;

/* A buffer that no read is using. */
typedef struct buffer {
    struct buffer *next;
} buffer;

struct ckpt__direct {
    const ckpt__source *source;
    bool no_cachestat;                /* the kernel does not say what is cached; atomic */
    pthread_mutex_t lock;             /* of all below */
    buffer *unused;                   /* heap, owned: CKPT__DIRECT_MOST bytes each, at a multiple of that */
    uint32_t now[CKPT__DIRECT_FILES]; /* the files that are open, */
    size_t count;                     /* so many */
    opened *files;                    /* heap, owned: one for each file that the source had when it was opened, */
    size_t known;                     /* so many: those that came later are not read so */
};

/* ---- files */

/* What the system says (Linux 6.1), else as much as any disk asks for; 0: there are no such reads of this file. The struct is that of
 * statx(2), which older headers do not have whole. */
static uint32_t alignment_of(int fd)
{
    struct {
        uint32_t mask, unused[37], memory, offset;
        uint64_t unused_too[12];
    } stat = {0};
    enum { DIOALIGN = 0x2000, EMPTY_PATH = 0x1000 };
    if (syscall(SYS_statx, fd, "", EMPTY_PATH, DIOALIGN, &stat) != 0 || !(stat.mask & DIOALIGN))
        return ALIGN;
    uint32_t most = stat.memory > stat.offset ? stat.memory : stat.offset;
    return most && stat.memory && stat.offset && ALIGN % stat.memory == 0 && ALIGN % stat.offset == 0 ? most : 0;
}

/* Under the lock. */
static void close_file(ckpt__direct *d, uint32_t file, state then)
{
    size_t i = 0;
    close(d->files[file].fd);
    d->files[file].state = then;
    while (d->now[i] != file)
        i++;
    d->now[i] = d->now[--d->count];
}

/* Says that the file is read so, and asks whether somebody else says it too: the lock is shared, and asking is for one that is not. It goes
 * with the descriptor. */
static bool say_reading(int fd)
{
    struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = lock_at, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

static bool is_alone(int fd)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = lock_at, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

/* Under the lock. The same file that the source has open, whatever has its name by now. */
static void open_file(ckpt__direct *d, uint32_t file)
{
    opened *o = &d->files[file];
    char path[40];
    int fd;
    for (size_t i = d->count; i-- > 0;) /* files are read one after the other */
        if (d->files[d->now[i]].users == 0)
            close_file(d, d->now[i], NEW);
    o->state = REFUSED;
    if (d->count == CKPT__DIRECT_FILES || ckpt__descriptor_pin(d->source, file, 0, &fd, NULL) < 0)
        return;
    o->align = ckpt__cached_is_local(fd) ? alignment_of(fd) : 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    o->fd = o->align ? open(path, O_RDONLY | O_DIRECT | O_CLOEXEC) : -1;
    ckpt__descriptor_unpin(d->source, file);
    if (o->fd >= 0 && !say_reading(o->fd)) {
        close(o->fd);
        o->fd = -1;
    }
    if (o->fd < 0)
        return;
    o->state = OPEN;
    d->now[d->count++] = file;
}

static bool begin_use(ckpt__direct *d, uint32_t file)
{
    opened *o = &d->files[file];
    pthread_mutex_lock(&d->lock);
    if (o->state == NEW)
        open_file(d, file);
    bool is_open = o->state == OPEN;
    o->users += is_open;
    pthread_mutex_unlock(&d->lock);
    return is_open;
}

/* refused: no such read is tried again. */
static void end_use(ckpt__direct *d, uint32_t file, bool refused)
{
    opened *o = &d->files[file];
    pthread_mutex_lock(&d->lock);
    if (refused && o->state == OPEN)
        o->state = REFUSED;
    if (--o->users == 0 && o->state == REFUSED)
        close_file(d, file, REFUSED);
    pthread_mutex_unlock(&d->lock);
}

/* Has the page cache half of them? Of an older kernel one byte is asked for, in the middle. */
static bool is_cached(ckpt__direct *d, int fd, uint64_t offset, size_t n)
{
    struct {
        uint64_t offset, length;
    } range = {offset, n};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found = {0};
    if (!__atomic_load_n(&d->no_cachestat, __ATOMIC_RELAXED)) {
        if (syscall(SYS_cachestat, fd, &range, &found, 0) == 0)
            return found.cached >= n / PAGE / 2 + 1;
        __atomic_store_n(&d->no_cachestat, true, __ATOMIC_RELAXED);
    }
    char byte;
    struct iovec to = {&byte, 1};
    return preadv2(fd, &to, 1, (off_t)(offset + n / 2), RWF_NOWAIT) == 1;
}

/* ---- reading */

typedef enum outcome { DONE, FAILED, NEVER } outcome;

/* At least `least` of n bytes; all else is a multiple of the file's alignment. */
static outcome read_blocks(const opened *o, uint64_t offset, unsigned char *to, size_t n, size_t least)
{
    for (size_t have = 0; have < least;) {
        ssize_t got = pread(o->fd, to + have, n - have, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno == EINVAL || errno == EFAULT || errno == EOPNOTSUPP ? NEVER : FAILED;
        have += (size_t)got;
        if (have < least && (got == 0 || have % o->align != 0))
            return FAILED; /* the file's end */
    }
    return DONE;
}

/* In huge pages where there are any: a request to a disk has only so many pieces of memory (254 in virtio's usual queue), so that one of 2 MiB
 * in pages of 4 KiB becomes three. */
static buffer *take_buffer(ckpt__direct *d)
{
    pthread_mutex_lock(&d->lock);
    buffer *b = d->unused;
    if (b)
        d->unused = b->next;
    pthread_mutex_unlock(&d->lock);
    if (!b && (b = aligned_alloc(CKPT__DIRECT_MOST, CKPT__DIRECT_MOST)))
        (void)madvise(b, CKPT__DIRECT_MOST, MADV_HUGEPAGE);
    return b;
}

static void give_buffer(ckpt__direct *d, buffer *b)
{
    pthread_mutex_lock(&d->lock);
    b->next = d->unused;
    d->unused = b;
    pthread_mutex_unlock(&d->lock);
}

/* ---- */

ckpt__direct *ckpt__direct_open(const ckpt__source *s)
{
    ckpt__direct *d = calloc(1, sizeof *d);
    if (d && (d->files = calloc(s->count + 1, sizeof *d->files)) && pthread_mutex_init(&d->lock, NULL) == 0) {
        d->source = s;
        d->known = s->count;
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
    while (d->count)
        close_file(d, d->now[0], NEW);
    for (buffer *b = d->unused, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pthread_mutex_destroy(&d->lock);
    free(d->files);
    free(d);
}

const unsigned char *ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n)
{
    if (!d || file >= d->known || n == 0 || offset > d->source->files[file].size ||
        n > d->source->files[file].size - offset)
        return NULL;
    uint64_t begin = offset / ALIGN * ALIGN, size = (offset + n + ALIGN - 1) / ALIGN * ALIGN - begin;
    if (size > CKPT__DIRECT_MOST || !begin_use(d, file))
        return NULL;
    const opened *o = &d->files[file];
    buffer *b = is_alone(o->fd) && !is_cached(d, o->fd, offset, n) ? take_buffer(d) : NULL;
    size_t lead = (size_t)(offset - begin);
    outcome is = b ? read_blocks(o, begin, (unsigned char *)b, (size_t)size, lead + n) : FAILED;
    end_use(d, file, is == NEVER);
    if (is == DONE)
        return (unsigned char *)b + lead;
    if (b)
        give_buffer(d, b);
    return NULL;
}

void ckpt__direct_leave(ckpt__direct *d, const unsigned char *bytes)
{
    uintptr_t at = (uintptr_t)bytes;
    give_buffer(d, (buffer *)(at - at % CKPT__DIRECT_MOST));
}
