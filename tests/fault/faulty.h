/* tests/fault/faulty.h - every system call and allocation of the library, so that the n-th of them can fail: the linker
 * sends them here (--wrap, see Makefile.inc; calls.h checks that none is left out).
 *
 * Two things are not as the kernel does them. Nothing is synced, for speed. And O_DIRECT is played: whatever the file
 * system below, such a descriptor takes only what is aligned to 4096 bytes, as ext4 and xfs do. */
#ifndef FAULTY_H
#define FAULTY_H
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Besides an errno: the call does a part of its work. */
enum { SHORT_ONE = -1, SHORT_HALF = -2, SHORT_ODD = -3 };

/* X(call, one of these words is in the message of its failure, what it fails with in turn) */
#define FAULTS(X)                                                                                                      \
    X(open, "open", EMFILE, EIO, ENFILE, EACCES, EINTR)                                                                \
    X(openat, "open|create|read|remove|sync", EMFILE, ENOSPC, ENFILE, EIO, EDQUOT, EACCES, EINTR)                      \
    X(open_direct, "open", EINVAL, EIO, EMFILE, EOPNOTSUPP)                                                            \
    X(open_above, "open|sync", EMFILE, EIO, ENFILE)                                                                    \
    X(openat2, "open", EMFILE, EIO, ENFILE, EACCES, EINTR, ENOSYS)                                                     \
    X(close, "close", EIO, ENOSPC, EINTR, EDQUOT)                                                                      \
    X(dup, "open|read|look|descriptor", EMFILE)                                                                        \
    X(fcntl, "lock|descriptor|open|read|look", ENOLCK, EIO, EINTR, EINVAL)                                             \
    X(read, "read", EIO, EINTR, SHORT_ONE, SHORT_HALF)                                                                 \
    X(pread, "read", EIO, SHORT_ODD, EINTR, SHORT_ONE, SHORT_HALF, ESTALE)                                             \
    X(write, "write", ENOSPC, EIO, EINTR, SHORT_ONE, EDQUOT, SHORT_HALF, EFBIG)                                        \
    X(pwrite, "write", ENOSPC, SHORT_ODD, EIO, SHORT_HALF, EDQUOT, EINTR, EFBIG, SHORT_ONE)                            \
    X(pwrite_direct, "write", EINVAL, ENOSPC, SHORT_ODD, EIO, SHORT_HALF, EDQUOT, EINTR, EFBIG, SHORT_ONE)             \
    X(fallocate, "reserve", ENOSPC, EDQUOT, EINTR, EOPNOTSUPP, EIO, EFBIG)                                             \
    X(ftruncate, "write|size|cut|truncate", EIO, ENOSPC, EINTR, EFBIG)                                                 \
    X(fsync, "fsync|sync", EIO, ENOSPC, EDQUOT)                                                                        \
    X(fdatasync, "fdatasync|sync", EIO, ENOSPC, EDQUOT)                                                                \
    X(sync_file_range, "disk", EIO, ENOSPC, EDQUOT, ENOSYS, EINVAL, EINTR)                                             \
    X(mkdir, "create|make", ENOSPC, EDQUOT, EIO, EROFS)                                                                \
    X(mkdirat, "create|make|rename", ENOSPC, EDQUOT, EIO, EROFS)                                                       \
    X(rename, "rename", EIO, ENOSPC, EDQUOT)                                                                           \
    X(renameat, "rename|move|replace", EIO, ENOSPC, EDQUOT)                                                            \
    X(renameat2, "rename|exchange|move", EIO, EINVAL, ENOSPC, ENOSYS, EDQUOT)                                          \
    X(linkat, "rename|link", EIO, EPERM, ENOSPC)                                                                       \
    X(unlink, "remove", EIO, EROFS, EACCES)                                                                            \
    X(unlinkat, "remove", EIO, EROFS, EACCES)                                                                          \
    X(rmdir, "remove", EIO, EROFS, EACCES)                                                                             \
    X(stat, "look|stat|open", EIO, EACCES)                                                                             \
    X(lstat, "look|stat|open", EIO, EACCES)                                                                            \
    X(fstat, "look|stat|open|read", EIO, ENOMEM)                                                                       \
    X(fstatat, "look|stat|open|read", EIO, EACCES)                                                                     \
    X(readlinkat, "link|open", EIO, EACCES)                                                                            \
    X(faccessat, "look|open", EIO, EACCES)                                                                             \
    X(realpath, "resolve|path|open", EIO, ENOMEM)                                                                      \
    X(opendir, "read|open", EMFILE, EIO, ENOMEM)                                                                       \
    X(fdopendir, "read|open", ENOMEM)                                                                                  \
    X(readdir, "read", EIO)                                                                                            \
    X(getdents64, "read", EIO, ENOMEM)                                                                                 \
    X(fchmod, "mode", EPERM, EIO)                                                                                      \
    X(fchmodat, "mode|remove", EPERM, EIO)                                                                             \
    X(fchown, "owner", EPERM, EIO)                                                                                     \
    X(getrandom, "random", EAGAIN, ENOSYS, SHORT_ONE, EINTR)                                                           \
    X(process_vm_readv, "memory", EPERM, ENOSYS)                                                                       \
    X(madvise, "memory", EINVAL)                                                                                       \
    X(mmap, "memory", ENOMEM)                                                                                          \
    X(gethostname, "host", ENAMETOOLONG)                                                                               \
    X(pthread_create, "thread", EAGAIN)                                                                                \
    X(memory, "memory", ENOMEM)

enum {
#define FAULT_ID(name, says, ...) F_##name,
    FAULTS(FAULT_ID)
#undef FAULT_ID
        F_COUNT
};

static const struct {
    const char *name, *says;
    int errors[10];
} faults[] = {
#define FAULT_ROW(name, says, ...) {#name, says, {__VA_ARGS__}},
    FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

/* Which call fails, and what comes after it. */
typedef enum { ONCE, THIS_FOR_EVER, ALL_FOR_EVER } lasting;
typedef struct plan {
    long n; /* the n-th call from now on; 0: none */
    lasting mode;
    bool memory;    /* allocations are counted; else all others */
    unsigned which; /* of its errors */
    int only;       /* such a call (F_ + 1); 0: any */
} plan;

static struct {
    pthread_mutex_t lock;
    pthread_t test;   /* the test's own thread: its calls count between arm and disarm */
    bool on, inside;  /* inside: the test's thread is in the library */
    bool no_exchange; /* a file system without renameat2's flags */
    plan plan;
    long seen, hits;
    int struck, error; /* the call that failed first, and with what */
    long calls[F_COUNT], struck_calls[F_COUNT];
    long live;       /* allocations that are not freed */
    long misaligned; /* writes that O_DIRECT refused */
    bool direct[1024];
} faulty = {.lock = PTHREAD_MUTEX_INITIALIZER, .struck = -1};

static int error_of(int f, unsigned which, lasting mode)
{
    int count = 0;
    while (faults[f].errors[count])
        count++;
    for (int i = 0; i < count; i++) {
        int e = faults[f].errors[(which + (unsigned)i) % (unsigned)count];
        /* For ever, these would never end, or take for ever. */
        if (mode == ONCE || (e != EINTR && e != SHORT_ONE && (e != SHORT_HALF && e != SHORT_ODD)))
            return e;
    }
    return EIO;
}

/* 0: the call is to be made; else what it fails with. */
static int strikes(int f)
{
    int e = 0;
    pthread_mutex_lock(&faulty.lock);
    const plan *p = &faulty.plan;
    bool counted = faulty.on && (faulty.inside || !pthread_equal(pthread_self(), faulty.test));
    if (counted) {
        faulty.calls[f]++;
        if (p->memory == (f == F_memory) && (!p->only || p->only == f + 1))
            faulty.seen++;
        else
            counted = false;
    }
    if (p->n && counted && faulty.seen == p->n && !faulty.hits) {
        faulty.struck = f;
        faulty.struck_calls[f]++;
        faulty.error = e = error_of(f, p->which, p->mode);
    } else if (p->n && counted && faulty.hits && p->mode != ONCE && (p->mode == ALL_FOR_EVER || f == faulty.struck))
        e = f == faulty.struck ? faulty.error : f == F_pthread_create || f == F_getrandom ? EAGAIN : EIO;
    faulty.hits += e != 0;
    pthread_mutex_unlock(&faulty.lock);
    return e;
}

static bool fails(int f)
{
    int e = strikes(f);
    if (e)
        errno = e > 0 ? e : EIO;
    return e != 0;
}

static void play(plan p)
{
    faulty.test = pthread_self();
    faulty.plan = p;
    faulty.seen = faulty.hits = 0;
    faulty.struck = -1;
    faulty.error = 0;
}

/* n bytes of which a short call takes fewer; false: it fails. */
static bool shortened(int f, size_t *n)
{
    int e = strikes(f);
    if (e > 0) {
        errno = e;
        return false;
    }
    *n = e == 0 || *n < 2 ? *n : e == SHORT_ONE ? 1 : e == SHORT_HALF ? *n / 2 : *n - 1;
    return true;
}

/* A wrapper that either fails or does what it always did. */
#define WRAP(type, name, failure, parameters, arguments)                                                               \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return fails(F_##name) ? (failure) : __real_##name arguments;                                                  \
    }

WRAP(int, mkdir, -1, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, -1, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, rename, -1, (const char *from, const char *to), (from, to))
WRAP(int, renameat, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, linkat, -1, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags))
WRAP(int, unlink, -1, (const char *path), (path))
WRAP(int, unlinkat, -1, (int dir, const char *path, int flags), (dir, path, flags))
WRAP(int, rmdir, -1, (const char *path), (path))
WRAP(int, stat, -1, (const char *path, struct stat *st), (path, st))
WRAP(int, lstat, -1, (const char *path, struct stat *st), (path, st))
WRAP(int, fstat, -1, (int fd, struct stat *st), (fd, st))
WRAP(int, fstatat, -1, (int dir, const char *path, struct stat *st, int flags), (dir, path, st, flags))
WRAP(ssize_t, readlinkat, -1, (int dir, const char *path, char *text, size_t n), (dir, path, text, n))
WRAP(int, faccessat, -1, (int dir, const char *path, int mode, int flags), (dir, path, mode, flags))
WRAP(DIR *, opendir, NULL, (const char *path), (path))
WRAP(DIR *, fdopendir, NULL, (int fd), (fd))
WRAP(struct dirent *, readdir, NULL, (DIR * d), (d))
WRAP(ssize_t, getdents64, -1, (int fd, void *data, size_t n), (fd, data, n))
WRAP(int, fchmod, -1, (int fd, mode_t mode), (fd, mode))
WRAP(int, fchmodat, -1, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
WRAP(int, fchown, -1, (int fd, uid_t user, gid_t group), (fd, user, group))
WRAP(int, dup, -1, (int fd), (fd))
WRAP(int, ftruncate, -1, (int fd, off_t size), (fd, size))
WRAP(int, fallocate, -1, (int fd, int mode, off_t offset, off_t size), (fd, mode, offset, size))
WRAP(int, sync_file_range, -1, (int fd, off_t offset, off_t count, unsigned flags), (fd, offset, count, flags))
WRAP(int, madvise, -1, (void *data, size_t n, int advice), (data, n, advice))
WRAP(void *, mmap, MAP_FAILED, (void *at, size_t n, int access, int flags, int fd, off_t offset),
     (at, n, access, flags, fd, offset))
WRAP(int, gethostname, -1, (char *name, size_t n), (name, n))
WRAP(ssize_t, process_vm_readv, -1,
     (pid_t pid, const struct iovec *a, unsigned long na, const struct iovec *b, unsigned long nb, unsigned long flags),
     (pid, a, na, b, nb, flags))

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return fails(F_fsync) ? -1 : 0;
}

int __wrap_fdatasync(int fd)
{
    (void)fd;
    return fails(F_fdatasync) ? -1 : 0;
}

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (fails(F_renameat2))
        return -1;
    if (faulty.no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(a, from, b, to, flags);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attributes, void *(*function)(void *), void *arg);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attributes, void *(*function)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attributes, void *(*function)(void *), void *arg)
{
    return fails(F_pthread_create) ? EAGAIN : __real_pthread_create(t, attributes, function, arg);
}

/* ---- descriptors */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_closedir(DIR *d);
int __real_closedir(DIR *d);
int __wrap_fcntl(int fd, int command, ...);
int __real_fcntl(int fd, int command, ...);
long __wrap_syscall(long number, ...);
long __real_syscall(long number, ...);

static int opened(int fd, bool direct)
{
    if (fd >= 0 && fd < 1024)
        faulty.direct[fd] = direct;
    return fd;
}

static mode_t mode_after(int flags, va_list ap)
{
    return flags & O_CREAT ? va_arg(ap, mode_t) : 0;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_after(flags, ap);
    va_end(ap);
    return fails(F_open) ? -1 : opened(__real_open(path, flags & ~O_DIRECT, mode), flags & O_DIRECT);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = mode_after(flags, ap);
    va_end(ap);
    int f = flags & O_DIRECT ? F_open_direct : strcmp(path, "..") == 0 ? F_open_above : F_openat;
    return fails(f) ? -1 : opened(__real_openat(dir, path, flags & ~O_DIRECT, mode), flags & O_DIRECT);
}

/* A close that fails has closed. */
int __wrap_close(int fd)
{
    int rc = __real_close(fd);
    return fails(F_close) ? -1 : rc;
}

/* It fails only for what is not a directory stream. */
int __wrap_closedir(DIR *d)
{
    return __real_closedir(d);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    if (fails(F_fcntl))
        return -1;
    int rc = __real_fcntl(fd, command, argument);
    return command == F_DUPFD_CLOEXEC || command == F_DUPFD ? opened(rc, false) : rc;
}

/* openat2 has no function of its own in the C library. */
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (number != SYS_openat2)
        return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    return fails(F_openat2) ? -1 : opened((int)__real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]), false);
}

/* ---- bytes */

ssize_t __real_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n);
ssize_t __real_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset);
ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset);
ssize_t __real_getrandom(void *data, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *data, size_t n, unsigned flags);

ssize_t __wrap_read(int fd, void *data, size_t n)
{
    return shortened(F_read, &n) ? __real_read(fd, data, n) : -1;
}

ssize_t __wrap_pread(int fd, void *data, size_t n, off_t offset)
{
    return shortened(F_pread, &n) ? __real_pread(fd, data, n, offset) : -1;
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    return shortened(F_write, &n) ? __real_write(fd, data, n) : -1;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset)
{
    bool direct = fd >= 0 && fd < 1024 && faulty.direct[fd];
    if (direct && ((uintptr_t)data % 4096 || n % 4096 || offset % 4096)) {
        faulty.misaligned++;
        errno = EINVAL;
        return -1;
    }
    return shortened(direct ? F_pwrite_direct : F_pwrite, &n) ? __real_pwrite(fd, data, n, offset) : -1;
}

ssize_t __wrap_getrandom(void *data, size_t n, unsigned flags)
{
    return shortened(F_getrandom, &n) ? __real_getrandom(data, n, flags) : -1;
}

/* ---- memory: what is taken and given back is counted, so that a leak is found at the very call that made it */

static void *counted(void *p)
{
    if (p)
        __atomic_add_fetch(&faulty.live, 1, __ATOMIC_RELAXED);
    return p;
}

#define WRAP_MEMORY(type, name, parameters, arguments)                                                                 \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return fails(F_memory) ? NULL : counted(__real_##name arguments);                                              \
    }
WRAP_MEMORY(void *, malloc, (size_t n), (n))
WRAP_MEMORY(void *, calloc, (size_t n, size_t size), (n, size))
WRAP_MEMORY(void *, aligned_alloc, (size_t align, size_t n), (align, n))
WRAP_MEMORY(char *, strdup, (const char *s), (s))
WRAP_MEMORY(char *, strndup, (const char *s, size_t n), (s, n))

void *__real_realloc(void *p, size_t n);
void *__wrap_realloc(void *p, size_t n);
void __real_free(void *p);
void __wrap_free(void *p);
char *__real_realpath(const char *path, char *resolved);
char *__wrap_realpath(const char *path, char *resolved);
int __wrap_asprintf(char **out, const char *format, ...);

void *__wrap_realloc(void *p, size_t n)
{
    if (fails(F_memory))
        return NULL;
    return p ? __real_realloc(p, n) : counted(__real_realloc(p, n));
}

void __wrap_free(void *p)
{
    if (p)
        __atomic_sub_fetch(&faulty.live, 1, __ATOMIC_RELAXED);
    __real_free(p);
}

char *__wrap_realpath(const char *path, char *resolved)
{
    if (fails(F_realpath))
        return NULL;
    char *p = __real_realpath(path, resolved);
    return resolved ? p : counted(p);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list ap;
    if (fails(F_memory))
        return -1;
    va_start(ap, format);
    int n = vasprintf(out, format, ap);
    va_end(ap);
    if (n >= 0)
        counted(*out);
    return n;
}
#endif
