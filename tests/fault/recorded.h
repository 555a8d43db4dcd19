/* tests/fault/recorded.h - what the library does to a disk, written down call by call: the linker sends the calls here
 * (--wrap). disk.h makes of it what a disk may hold when the power fails. */
#ifndef RECORDED_H
#define RECORDED_H
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum op_kind {
    OP_ENTER,  /* dir/name becomes ino */
    OP_REMOVE, /* dir/name, which was ino, is gone */
    OP_MOVE,   /* dir/name, which was ino, becomes dir/to */
    OP_SWAP,   /* dir/name, which was ino, and dir/to, which was other */
    OP_WRITE,
    OP_SIZE,
    OP_SYNC, /* of ino */
    OP_BEGUN,
    OP_TOLD /* a save of step `offset` with seed `size`: asked for; reported as done */
} op_kind;

typedef struct op {
    op_kind kind;
    int dir, ino, other;
    char name[88], to[88];
    uint64_t offset, size;
    char *data;
} op;

typedef struct entry {
    int dir, ino;
    char name[88];
} entry;

enum { ENTRIES = 512, INODES = 4096, DESCRIPTORS = 1024, NO_INODE = -1 };

/* Inode 0 is the directory `root`, which is on the disk from the start. */
typedef struct recording {
    char root[128];
    op *ops;
    size_t count, capacity;
    size_t first;       /* what lies before it was on the disk already */
    entry now[ENTRIES]; /* the directories as the library sees them */
    size_t entries;
    int inodes;
    bool is_dir[INODES];
    uint64_t size[INODES];
    int of_fd[DESCRIPTORS];
    const char *odd; /* a call that the model does not know */
} recording;

static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;
static recording *record; /* NULL: nothing is written down */
static bool ignore_syncs, no_exchange;

static op *add_op(recording *r, op_kind kind, int ino)
{
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 256;
        r->ops = realloc(r->ops, r->capacity * sizeof *r->ops);
        ck_assert_ptr_nonnull(r->ops);
    }
    op *o = &r->ops[r->count++];
    memset(o, 0, sizeof *o);
    o->kind = kind;
    o->ino = ino;
    return o;
}

static void copy_name(char to[88], const char *name)
{
    size_t n = strlen(name);
    ck_assert_uint_lt(n, 88);
    memcpy(to, name, n + 1);
}

static entry *find_entry(entry *entries, size_t n, int dir, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (entries[i].dir == dir && strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static entry *entry_of(entry *entries, size_t n, int ino)
{
    for (size_t i = 0; i < n; i++)
        if (entries[i].ino == ino)
            return &entries[i];
    return NULL;
}

static void set_entry(entry *entries, size_t *n, int dir, const char *name, int ino)
{
    entry *e = find_entry(entries, *n, dir, name);
    if (!e) {
        ck_assert_uint_lt(*n, ENTRIES);
        e = &entries[(*n)++];
        e->dir = dir;
        copy_name(e->name, name);
    }
    e->ino = ino;
}

static void drop_entry(entry *entries, size_t *n, int dir, const char *name)
{
    entry *e = find_entry(entries, *n, dir, name);
    if (e)
        *e = entries[--*n];
}

static int new_inode(recording *r, bool is_dir)
{
    ck_assert_int_lt(r->inodes, INODES);
    r->is_dir[r->inodes] = is_dir;
    r->size[r->inodes] = 0;
    return r->inodes++;
}

static op *entry_op(recording *r, op_kind kind, int dir, const char *name, int ino)
{
    op *o = add_op(r, kind, ino);
    o->dir = dir;
    copy_name(o->name, name);
    return o;
}

/* Where a path leads: the directory and the last name; the inode behind it, or NO_INODE. False: not below root. */
static bool resolve(recording *r, int fd, const char *path, int *dir, char name[88], int *ino)
{
    int at = fd >= 0 && fd < DESCRIPTORS ? r->of_fd[fd] : NO_INODE;
    size_t n = strlen(r->root);
    if (*path == '/') {
        if (strncmp(path, r->root, n) != 0 || (path[n] && path[n] != '/'))
            return false;
        at = 0;
        path += n;
    }
    *dir = at;
    *ino = at;
    strcpy(name, ".");
    while (at != NO_INODE && *(path += strspn(path, "/"))) {
        n = strcspn(path, "/");
        *dir = at;
        snprintf(name, 88, "%.*s", n < 88 ? (int)n : 87, path);
        if (strcmp(name, "..") == 0) {
            entry *e = entry_of(r->now, r->entries, at);
            if (!e)
                return false;
            *dir = *ino = e->dir;
        } else if (strcmp(name, ".") != 0) {
            entry *e = find_entry(r->now, r->entries, at, name);
            *ino = e ? e->ino : NO_INODE;
        }
        at = *ino;
        path += n;
        if (at == NO_INODE && path[strspn(path, "/")])
            return false;
    }
    return *dir != NO_INODE;
}

static void start_recording(recording *r, const char *root)
{
    memset(r, 0, sizeof *r);
    snprintf(r->root, sizeof r->root, "%s", root);
    memset(r->of_fd, -1, sizeof r->of_fd);
    new_inode(r, true);
}

static void free_recording(recording *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->ops[i].data);
    free(r->ops);
    memset(r, 0, sizeof *r);
}

static void note_save(op_kind kind, int64_t step, unsigned seed)
{
    pthread_mutex_lock(&record_lock);
    op *o = add_op(record, kind, NO_INODE);
    o->offset = (uint64_t)step;
    o->size = seed;
    pthread_mutex_unlock(&record_lock);
}

/* ---- what calls do, once they have succeeded */

static void did_open(int fd, int at, const char *path, int flags)
{
    int dir, ino;
    char name[88];
    if (fd < 0 || fd >= DESCRIPTORS)
        return;
    record->of_fd[fd] = NO_INODE;
    if (!resolve(record, at, path, &dir, name, &ino))
        return;
    if (ino == NO_INODE && (flags & O_CREAT)) {
        ino = new_inode(record, false);
        set_entry(record->now, &record->entries, dir, name, ino);
        entry_op(record, OP_ENTER, dir, name, ino);
    } else if (ino != NO_INODE && (flags & O_TRUNC)) {
        add_op(record, OP_SIZE, ino)->size = 0;
        record->size[ino] = 0;
    }
    record->of_fd[fd] = ino;
}

static void did_mkdir(int at, const char *path)
{
    int dir, ino;
    char name[88];
    if (!resolve(record, at, path, &dir, name, &ino))
        return;
    ino = new_inode(record, true);
    set_entry(record->now, &record->entries, dir, name, ino);
    entry_op(record, OP_ENTER, dir, name, ino);
}

static void did_remove(int at, const char *path)
{
    int dir, ino;
    char name[88];
    if (!resolve(record, at, path, &dir, name, &ino))
        return;
    drop_entry(record->now, &record->entries, dir, name);
    entry_op(record, OP_REMOVE, dir, name, ino);
}

static void did_rename(int a, const char *from, int b, const char *to, bool swap)
{
    int dir, ino, to_dir, other;
    char name[88], to_name[88];
    if (!resolve(record, a, from, &dir, name, &ino) || !resolve(record, b, to, &to_dir, to_name, &other))
        return;
    if (dir != to_dir)
        record->odd = "a rename from one directory to another";
    op *o = entry_op(record, swap ? OP_SWAP : OP_MOVE, dir, name, ino);
    o->other = other;
    copy_name(o->to, to_name);
    set_entry(record->now, &record->entries, dir, to_name, ino);
    if (swap)
        set_entry(record->now, &record->entries, dir, name, other);
    else
        drop_entry(record->now, &record->entries, dir, name);
}

static int inode_of(int fd)
{
    return fd >= 0 && fd < DESCRIPTORS ? record->of_fd[fd] : NO_INODE;
}

static void did_write(int fd, const void *data, ssize_t n, off_t offset)
{
    int ino = inode_of(fd);
    if (ino == NO_INODE || n <= 0)
        return;
    op *o = add_op(record, OP_WRITE, ino);
    o->offset = (uint64_t)offset;
    o->size = (uint64_t)n;
    o->data = malloc((size_t)n);
    ck_assert_ptr_nonnull(o->data);
    memcpy(o->data, data, (size_t)n);
    if (record->size[ino] < o->offset + o->size)
        record->size[ino] = o->offset + o->size;
}

static void did_resize(int fd, uint64_t size)
{
    int ino = inode_of(fd);
    if (ino == NO_INODE || size == record->size[ino])
        return;
    add_op(record, OP_SIZE, ino)->size = size;
    record->size[ino] = size;
}

static void did_close(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS)
        record->of_fd[fd] = NO_INODE;
}

static void did_copy(int fd, int copy)
{
    if (copy >= 0 && copy < DESCRIPTORS)
        record->of_fd[copy] = inode_of(fd);
}

/* ---- the calls. Each is made and written down in one go, so that the order is that of the disk. */

#define RECORDED(type, name, parameters, arguments, note)                                                              \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        pthread_mutex_lock(&record_lock);                                                                              \
        type rc = __real_##name arguments;                                                                             \
        int saved = errno;                                                                                             \
        if (record && rc >= 0)                                                                                         \
            note;                                                                                                      \
        pthread_mutex_unlock(&record_lock);                                                                            \
        errno = saved;                                                                                                 \
        return rc;                                                                                                     \
    }

RECORDED(int, mkdir, (const char *path, mode_t mode), (path, mode), did_mkdir(-1, path))
RECORDED(int, mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode), did_mkdir(dir, path))
RECORDED(int, rename, (const char *from, const char *to), (from, to), did_rename(-1, from, -1, to, false))
RECORDED(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to),
         did_rename(a, from, b, to, false))
RECORDED(int, unlink, (const char *path), (path), did_remove(-1, path))
RECORDED(int, unlinkat, (int dir, const char *path, int flags), (dir, path, flags), did_remove(dir, path))
RECORDED(int, rmdir, (const char *path), (path), did_remove(-1, path))
RECORDED(int, linkat, (int a, const char *from, int b, const char *to, int flags), (a, from, b, to, flags),
         record->odd = "linkat")
RECORDED(int, dup, (int fd), (fd), did_copy(fd, rc))
RECORDED(int, ftruncate, (int fd, off_t size), (fd, size), did_resize(fd, (uint64_t)size))
RECORDED(ssize_t, write, (int fd, const void *data, size_t n), (fd, data, n),
         did_write(fd, data, rc, lseek(fd, 0, SEEK_CUR) - rc))
RECORDED(ssize_t, pwrite, (int fd, const void *data, size_t n, off_t offset), (fd, data, n, offset),
         did_write(fd, data, rc, offset))

int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    pthread_mutex_lock(&record_lock);
    int rc = __real_renameat2(a, from, b, to, flags), saved = errno;
    if (record && rc == 0)
        did_rename(a, from, b, to, flags & RENAME_EXCHANGE);
    pthread_mutex_unlock(&record_lock);
    errno = saved;
    return rc;
}

int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    pthread_mutex_lock(&record_lock);
    int rc = __real_fallocate(fd, mode, offset, size), saved = errno;
    if (record && rc == 0 && mode)
        record->odd = "fallocate with a mode";
    if (record && rc == 0 && inode_of(fd) != NO_INODE && (uint64_t)(offset + size) > record->size[inode_of(fd)])
        did_resize(fd, (uint64_t)(offset + size));
    pthread_mutex_unlock(&record_lock);
    errno = saved;
    return rc;
}

/* Nothing waits for the real disk: that of the model counts. */
static int sync_of(int fd)
{
    pthread_mutex_lock(&record_lock);
    if (record && !ignore_syncs && inode_of(fd) != NO_INODE)
        add_op(record, OP_SYNC, inode_of(fd));
    pthread_mutex_unlock(&record_lock);
    return 0;
}

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fsync(int fd)
{
    return sync_of(fd);
}

int __wrap_fdatasync(int fd)
{
    return sync_of(fd);
}

/* ---- descriptors */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_closedir(DIR *d);
int __wrap_closedir(DIR *d);
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static int open_and_note(int at, const char *path, int flags, mode_t mode)
{
    pthread_mutex_lock(&record_lock);
    int fd = __real_openat(at, path, flags, mode), saved = errno;
    if (record)
        did_open(fd, at, path, flags);
    pthread_mutex_unlock(&record_lock);
    errno = saved;
    return fd;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_and_note(AT_FDCWD, path, flags, mode);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return open_and_note(dir, path, flags, mode);
}

int __wrap_close(int fd)
{
    pthread_mutex_lock(&record_lock);
    if (record)
        did_close(fd);
    int rc = __real_close(fd);
    pthread_mutex_unlock(&record_lock);
    return rc;
}

int __wrap_closedir(DIR *d)
{
    pthread_mutex_lock(&record_lock);
    if (record)
        did_close(dirfd(d));
    int rc = __real_closedir(d);
    pthread_mutex_unlock(&record_lock);
    return rc;
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    pthread_mutex_lock(&record_lock);
    int rc = __real_fcntl(fd, command, argument), saved = errno;
    if (record && (command == F_DUPFD || command == F_DUPFD_CLOEXEC))
        did_copy(fd, rc);
    pthread_mutex_unlock(&record_lock);
    errno = saved;
    return rc;
}

/* openat2 opens for reading. */
long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    pthread_mutex_lock(&record_lock);
    long rc = __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    int saved = errno;
    if (record && number == SYS_openat2)
        did_open((int)rc, (int)a[0], (const char *)(uintptr_t)a[1], 0);
    pthread_mutex_unlock(&record_lock);
    errno = saved;
    return rc;
}
#endif
