/* io/cached.c - bytes of a source's files where the page cache has them. */
#include "io/cached.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "io/descriptors.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif
#ifndef SYS_cachestat /* Linux 6.5; one number on all machines */
#define SYS_cachestat 451
#endif

/* A lease that is taken away sooner is none to rely on. */
enum { BREAK_SECONDS = 10 };

typedef enum state { NEW = 0, MAPPED, LEFT } state;

typedef struct mapped {
    state state;
    int users; /* looks under way */
    int fd;    /* pinned while it is mapped */
    unsigned char *bytes;
} mapped;

struct ckpt__cached {
    const ckpt__source *source;
    size_t page;
    bool by_mincore;                  /* the kernel has no cachestat; atomic */
    pthread_mutex_t lock;             /* of all below */
    uint32_t now[CKPT__CACHED_FILES]; /* the files that are mapped, */
    size_t count;                     /* so many */
    mapped *files;                    /* heap, owned: one for each file of the source */
};

/* ---- the lease */

/* Seconds for which whoever breaks a lease waits; 0: unknown. */
static long break_seconds(void)
{
    char text[32];
    int fd = open("/proc/sys/fs/lease-break-time", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    long seconds = 0;
    if (fd >= 0)
        close(fd);
    for (ssize_t i = 0; i < n && text[i] >= '0' && text[i] <= '9' && seconds < 100000; i++)
        seconds = 10 * seconds + (text[i] - '0');
    return seconds;
}

/* Numbers: statfs(2). */
bool ckpt__cached_is_local(int fd)
{
    struct statfs f;
    if (fstatfs(fd, &f) != 0)
        return false;
    switch ((unsigned long)f.f_type & 0xffffffffUL) {
    case 0xef53UL:     /* ext2, ext3, ext4 */
    case 0x58465342UL: /* XFS */
    case 0x9123683eUL: /* Btrfs */
    case 0xf2f52010UL: /* F2FS */
    case 0x01021994UL: /* tmpfs */
        return true;
    default:
        return false;
    }
}

static bool has_lease(int fd)
{
    return fcntl(fd, F_GETLEASE) == F_RDLCK;
}

/* The signal, ignored by default, is for the moment between the two calls, in which the owner is this process. */
static bool take_lease(int fd)
{
    if (fcntl(fd, F_SETSIG, SIGURG) != 0 || fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return false;
    return fcntl(fd, F_SETOWN, 0) == 0;
}

static void give_lease(int fd)
{
    fcntl(fd, F_SETLEASE, F_UNLCK);
    fcntl(fd, F_SETSIG, 0);
}

/* ---- files */

/* Under the lock; nobody looks at it. */
static void unmap(ckpt__cached *c, uint32_t file, state then)
{
    mapped *m = &c->files[file];
    size_t i = 0;
    munmap(m->bytes, (size_t)c->source->files[file].size);
    give_lease(m->fd);
    ckpt__descriptor_unpin(c->source, file);
    m->state = then;
    m->bytes = NULL;
    while (c->now[i] != file)
        i++;
    c->now[i] = c->now[--c->count];
}

/* Under the lock. Files are read one after the other: whoever wants to write to one that nobody looks at any more is not to wait for the
 * others. */
static void unmap_idle(ckpt__cached *c)
{
    for (size_t i = c->count; i-- > 0;)
        if (c->files[c->now[i]].users == 0)
            unmap(c, c->now[i], NEW);
}

/* Under the lock. Whatever fails, or where too many are looked at, the file is left to be read, which says what is wrong with it. */
static void map(ckpt__cached *c, uint32_t file)
{
    mapped *m = &c->files[file];
    uint64_t size = c->source->files[file].size;
    struct stat st;
    m->state = LEFT;
    unmap_idle(c);
    if (size == 0 || size > SIZE_MAX / 2 || c->count == CKPT__CACHED_FILES ||
        ckpt__descriptor_pin(c->source, file, 0, &m->fd, NULL) < 0)
        return;
    if (ckpt__cached_is_local(m->fd) && take_lease(m->fd) && fstat(m->fd, &st) == 0 && (uint64_t)st.st_size >= size) {
        void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, m->fd, 0);
        if (p != MAP_FAILED) {
            /* Nothing is looked at that is not cached: so nothing is to be read ahead. */
            madvise(p, (size_t)size, MADV_RANDOM);
            m->bytes = p;
            m->state = MAPPED;
            c->now[c->count++] = file;
            return;
        }
    }
    give_lease(m->fd);
    ckpt__descriptor_unpin(c->source, file);
}

static bool all_in_core(const unsigned char *bytes, size_t n, size_t page)
{
    unsigned char in[512];
    for (size_t at = 0; at < n; at += sizeof in * page) {
        size_t some = n - at < sizeof in * page ? n - at : sizeof in * page, pages = (some + page - 1) / page;
        if (mincore((void *)(uintptr_t)(bytes + at), some, in) != 0)
            return false;
        for (size_t i = 0; i < pages; i++)
            if (!(in[i] & 1))
                return false;
    }
    return true;
}

/* Are the pages of [offset, offset + n) in the page cache? Both are multiples of pages, but for the last of the file. */
static bool is_cached(ckpt__cached *c, const mapped *m, uint64_t offset, size_t n)
{
    struct {
        uint64_t offset, length;
    } range = {offset, n};
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found = {0};
    if (!__atomic_load_n(&c->by_mincore, __ATOMIC_RELAXED)) {
        if (syscall(SYS_cachestat, m->fd, &range, &found, 0) == 0)
            return found.cached >= (n + c->page - 1) / c->page;
        __atomic_store_n(&c->by_mincore, true, __ATOMIC_RELAXED);
    }
    return all_in_core(m->bytes + offset, n, c->page);
}

/* ---- */

ckpt__cached *ckpt__cached_open(const ckpt__source *s)
{
    ckpt__cached *c = break_seconds() >= BREAK_SECONDS ? calloc(1, sizeof *c) : NULL;
    long page = sysconf(_SC_PAGESIZE);
    if (c && page > 0 && (c->files = calloc(s->count + 1, sizeof *c->files)) &&
        pthread_mutex_init(&c->lock, NULL) == 0) {
        c->source = s;
        c->page = (size_t)page;
        return c;
    }
    if (c)
        free(c->files);
    free(c);
    return NULL;
}

void ckpt__cached_close(ckpt__cached *c)
{
    if (!c)
        return;
    unmap_idle(c);
    pthread_mutex_destroy(&c->lock);
    free(c->files);
    free(c);
}

/* A look is over. `give`: somebody waits for the file. */
static void end_look(ckpt__cached *c, uint32_t file, bool give)
{
    mapped *m = &c->files[file];
    pthread_mutex_lock(&c->lock);
    m->users--;
    if (give && m->state == MAPPED)
        m->state = LEFT;
    if (m->state == LEFT && m->users == 0 && m->bytes)
        unmap(c, file, LEFT);
    pthread_mutex_unlock(&c->lock);
}

const unsigned char *ckpt__cached_look(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n)
{
    if (!c || n == 0 || offset > c->source->files[file].size || n > c->source->files[file].size - offset)
        return NULL;
    mapped *m = &c->files[file];
    uint64_t begin = offset / c->page * c->page;
    size_t size = (size_t)(offset - begin) + n;
    pthread_mutex_lock(&c->lock);
    if (m->state == NEW)
        map(c, file);
    bool is_mapped = m->state == MAPPED;
    m->users += is_mapped;
    pthread_mutex_unlock(&c->lock);
    if (!is_mapped)
        return NULL;
    /* Asked last, so that it holds for what follows: the lease is there now, and stays for its time whoever comes. */
    bool there = is_cached(c, m, begin, size) && madvise(m->bytes + begin, size, MADV_POPULATE_READ) == 0;
    bool ours = has_lease(m->fd);
    if (there && ours)
        return m->bytes + offset;
    end_look(c, file, !ours);
    return NULL;
}

void ckpt__cached_leave(ckpt__cached *c, uint32_t file, uint64_t offset, size_t n)
{
    if (!c)
        return;
    /* Whole pages only: on the others a neighbour's bytes lie, who may be reading them. */
    mapped *m = &c->files[file];
    uint64_t begin = (offset + c->page - 1) / c->page * c->page, end = (offset + n) / c->page * c->page;
    if (begin < end)
        madvise(m->bytes + begin, (size_t)(end - begin), MADV_DONTNEED);
    end_look(c, file, !has_lease(m->fd));
}
