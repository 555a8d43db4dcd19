/* io/store.c - a run directory: opened, locked, listed; its small files read and replaced. */
#include "io/store.h"
#include "io/beneath.h"
#include "io/publish.h"
#include "io/sink.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- opening */

/* Opening is begun again when a signal comes; an fsync is not. */
static int open_again(int dirfd, const char *path)
{
    int fd;
    do
        fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* fsyncs the directory that this one lies in. */
static ckpt_status sync_above(int fd, const char *path, ckpt_error *err)
{
    int up = open_again(fd, ".."), e = errno;
    if (up < 0)
        return ckpt__fail_sys(err, e, path, "cannot open the directory above it (openat)");
    ckpt_status status = CKPT_OK;
    if (ckpt__sync_directory(up) < 0)
        status = ckpt__fail_sys(err, errno, path, "cannot sync the directory above it (fsync)");
    close(up);
    return status;
}

/* Of a directory that was there already: one that was killed may have made it and not have come to sync it. Where this
 * user has no right to, or the file system no way, it was made by others and is left as it is found. */
static ckpt_status sync_found(int fd, const char *path, ckpt_error *err)
{
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = sync_above(fd, path, &why);
    int e = why.sys_errno;
    if (status == CKPT_OK || e == EACCES || e == EPERM || e == EROFS)
        return CKPT_OK;
    if (err)
        *err = why;
    return status;
}

static ckpt_status make_one(const char *path, ckpt_error *err)
{
    if (mkdir(path, 0777) < 0 && errno != EEXIST)
        return ckpt__fail_sys(err, errno, path, "cannot make the directory (mkdir)%s", ckpt__write_advice(errno));
    int fd = open_again(AT_FDCWD, path);
    if (fd < 0)
        return ckpt__fail_sys(err, errno, path, "cannot open the directory (openat)");
    ckpt_status status = CKPT_OK;
    if (ckpt__sync_directory(fd) < 0)
        status = ckpt__fail_sys(err, errno, path, "cannot sync the directory that was made (fsync)");
    else
        status = sync_above(fd, path, err);
    close(fd);
    return status;
}

/* The deepest directory of a path that is there. */
static ckpt_status sync_deepest(const char *path, ckpt_error *err)
{
    int fd = open_again(AT_FDCWD, path);
    if (fd < 0)
        return errno == EACCES ? CKPT_OK : ckpt__fail_sys(err, errno, path, "cannot open the directory (openat)");
    ckpt_status status = sync_found(fd, path, err);
    close(fd);
    return status;
}

/* Makes what is missing of path, from the top. */
static ckpt_status make_all(const char *path, ckpt_error *err)
{
    struct stat st;
    ckpt_status status = CKPT_OK;
    char *part = strdup(path);
    size_t found = 0; /* as much of path is known to be there */
    bool missing = false;
    if (!part)
        return ckpt__fail_memory(err, path, 0);
    for (size_t i = 1; status == CKPT_OK && path[i - 1]; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        part[i] = '\0';
        if (!missing && stat(part, &st) == 0)
            found = i;
        else {
            if (!missing && found) {
                part[found] = '\0';
                status = sync_deepest(part, err);
                part[found] = path[found];
            }
            missing = true;
            if (status == CKPT_OK)
                status = make_one(part, err);
        }
        part[i] = path[i];
    }
    free(part);
    return status;
}

static ckpt_status open_directory(ckpt__store *s, const char *path, bool create, ckpt_error *err)
{
    if (*path == '\0')
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "an empty path; the name of a run directory is expected");
    ckpt_status status = CKPT_OK;
    if ((s->dirfd = open_again(AT_FDCWD, path)) >= 0)
        status = create ? sync_found(s->dirfd, path, err) : CKPT_OK;
    else if (errno == ENOENT && create && (status = make_all(path, err)) == CKPT_OK)
        s->dirfd = open_again(AT_FDCWD, path);
    if (status < 0)
        return status;
    if (s->dirfd < 0 && errno == ENOTDIR)
        return ckpt__fail(err, CKPT_E_FORMAT, path, "it is not a directory; a run directory is expected");
    if (s->dirfd < 0)
        return ckpt__fail_sys(err, errno, path, "cannot open the run directory (open)%s",
                              errno == EMFILE ? ckpt__write_advice(errno) : "");
    if (!(s->path = realpath(path, NULL)))
        return ckpt__fail_sys(err, errno, path, "cannot find its absolute path (realpath)");
    if (create && fsync(s->dirfd) < 0 && !(s->unsynced = ckpt__no_directory_sync(errno)))
        return ckpt__fail_sys(err, errno, path, "cannot sync the run directory (fsync)");
    return CKPT_OK;
}

ckpt_status ckpt__store_open(const char *path, bool create, ckpt__store **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__store *s = calloc(1, sizeof *s);
    if (!s)
        return ckpt__fail_memory(err, path, 0);
    s->dirfd = s->lock = -1;
    ckpt_status status = open_directory(s, path, create, err);
    if (status < 0) {
        ckpt__store_close(s);
        return status;
    }
    *out = s;
    return CKPT_OK;
}

void ckpt__store_close(ckpt__store *s)
{
    if (!s)
        return;
    if (s->lock >= 0) {
        /* A process forked from this one holds the same lock through its copy of the descriptor: closing ours would
         * leave it locked as long as that one lives, and that one must not unlock what is ours. */
        struct flock none = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
        if (s->owner == getpid())
            (void)fcntl(s->lock, F_OFD_SETLK, &none);
        close(s->lock);
    }
    if (s->dirfd >= 0)
        close(s->dirfd);
    free(s->path);
    free(s);
}

/* ---- the lock */

enum { SIGNATURE = HOST_NAME_MAX + 64 };

static int signature(char text[SIGNATURE])
{
    char host[HOST_NAME_MAX + 1] = "";
    if (gethostname(host, sizeof host - 1) < 0)
        strcpy(host, "?");
    return snprintf(text, SIGNATURE, "pid %ld on host %s\n", (long)getpid(), host);
}

/* Who it is, for people. Where this cannot be written (a full disk) the lock holds all the same. */
static void sign(int fd)
{
    char text[SIGNATURE];
    ckpt__xfsz h;
    int n = signature(text);
    ckpt__xfsz_hold(&h);
    bool done = ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)n, 0) == n;
    ckpt__xfsz_release(&h, !done && errno == EFBIG);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Is the locked file still the one called .lock? Someone may have removed it, and another may have locked a new one. */
static ckpt_status check_name(const ckpt__store *s, int fd, bool *same, ckpt_error *err)
{
    struct stat a, b;
    *same = false;
    if (fstat(fd, &a) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot look at .lock in it (fstat)");
    if (fstatat(s->dirfd, ".lock", &b, AT_SYMLINK_NOFOLLOW) == 0)
        *same = same_file(&a, &b);
    else if (errno != ENOENT)
        return ckpt__fail_sys(err, errno, s->path, "cannot look at .lock in it (fstatat)");
    return CKPT_OK;
}

static ckpt_status held_by_other(const ckpt__store *s, ckpt_error *err)
{
    char holder[SIGNATURE];
    bool named = ckpt__store_holder(s, holder, sizeof holder) && *holder;
    return ckpt__fail(err, CKPT_E_EXISTS, s->path,
                      "another process writes here: %s; end it first, or use another run directory",
                      named ? holder : "an unknown process");
}

/* One descriptor of .lock, locked. CKPT_OK with *fd -1: to be tried again. */
static ckpt_status lock_once(ckpt__store *s, int *out, ckpt_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat st;
    int fd = openat(s->dirfd, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666),
        e = errno;
    bool same = false;
    ckpt_status status = CKPT_OK;
    *out = -1;
    if (fd < 0 && e == EINTR)
        return CKPT_OK;
    if (fd < 0)
        return ckpt__fail_sys(err, e, s->path, "cannot open .lock in it (openat)%s", ckpt__write_advice(e));
    if (fstat(fd, &st) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "cannot look at .lock in it (fstat)");
    else if (!S_ISREG(st.st_mode))
        status = ckpt__fail(err, CKPT_E_SYSTEM, s->path, ".lock in it is not a regular file; remove it");
    else if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        e = errno;
        if (e == EAGAIN || e == EACCES)
            status = held_by_other(s, err);
        else if (e != EINTR)
            status = ckpt__fail_sys(err, e, s->path,
                                    "cannot lock .lock in it (fcntl); where the file system has no locks set no_lock, "
                                    "and see to it that one process alone writes here");
    } else
        status = check_name(s, fd, &same, err);
    if (status == CKPT_OK && same)
        *out = fd;
    else
        close(fd);
    return status;
}

ckpt_status ckpt__store_lock(ckpt__store *s, ckpt_error *err)
{
    for (int i = 0; s->lock < 0 && i < 100; i++) {
        ckpt_status status = lock_once(s, &s->lock, err);
        if (status < 0)
            return status;
    }
    if (s->lock < 0)
        return ckpt__fail_sys(err, EAGAIN, s->path, "cannot lock .lock in it: it is removed again and again");
    s->owner = getpid();
    sign(s->lock);
    return CKPT_OK;
}

/* ---- the lock of a run that is under way */

static ckpt_status is_gone(const ckpt__store *s, ckpt_error *err)
{
    return ckpt__fail_sys(err, ENOENT, s->path,
                          "the run directory was removed while the run was writing to it; open the run anew");
}

/* Our own lock once more: a file system over the network may have lost it. */
static ckpt_status hold_again(const ckpt__store *s, ckpt_error *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int rc;
    do
        rc = fcntl(s->lock, F_OFD_SETLK, &whole);
    while (rc < 0 && errno == EINTR);
    if (rc == 0)
        return CKPT_OK;
    return errno == EAGAIN || errno == EACCES
               ? held_by_other(s, err)
               : ckpt__fail_sys(err, errno, s->path, "cannot lock .lock in it again (fcntl)");
}

/* Another process signed the file that took the place of ours: it may have written here before it ended. */
static bool signed_by_other(int fd, char *who, size_t size)
{
    char text[SIGNATURE], own[SIGNATURE];
    ssize_t n = pread(fd, text, sizeof text, 0);
    int ours = signature(own);
    if (n == 0 || (n == ours && memcmp(text, own, (size_t)n) == 0))
        return false;
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    ckpt__escape(who, size, text, end ? (size_t)(end - text) : n > 0 ? (size_t)n : 0);
    return true;
}

/* Takes the file that is now called .lock; that one is made where there is none. */
static ckpt_status take_new_lock(ckpt__store *s, ckpt_error *err)
{
    char who[SIGNATURE];
    int fd = -1;
    ckpt_status status = CKPT_OK;
    for (int i = 0; status == CKPT_OK && fd < 0 && i < 100; i++)
        status = lock_once(s, &fd, err);
    if (status == CKPT_OK && fd < 0)
        status = ckpt__fail_sys(err, EAGAIN, s->path, "cannot lock .lock in it: it is removed again and again");
    if (status == CKPT_OK && signed_by_other(fd, who, sizeof who)) {
        close(fd);
        status = ckpt__fail(err, CKPT_E_EXISTS, s->path,
                            "%s has opened the run since; open it anew to go on from what is there now",
                            *who ? who : "another process");
    }
    if (status < 0) {
        ckpt__error_prefix(err, "the file .lock that this run had locked was removed or replaced");
        return status;
    }
    close(s->lock);
    s->lock = fd;
    sign(fd);
    return CKPT_OK;
}

ckpt_status ckpt__store_guard(ckpt__store *s, bool *moved, bool *relocked, ckpt_error *err)
{
    struct stat own, there;
    bool same = true;
    *moved = *relocked = false;
    if (fstat(s->dirfd, &own) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot look at the run directory (fstat)");
    if (own.st_nlink == 0)
        return is_gone(s, err);
    ckpt_status status = s->lock >= 0 ? check_name(s, s->lock, &same, err) : CKPT_OK;
    if (status == CKPT_OK && s->lock >= 0) {
        status = same ? hold_again(s, err) : take_new_lock(s, err);
        *relocked = status == CKPT_OK && !same;
    }
    *moved = stat(s->path, &there) == 0 ? !same_file(&own, &there) : errno == ENOENT || errno == ENOTDIR;
    return status;
}

/* What cannot be looked at (EACCES, EIO) is taken to be where it was: whoever opens it gets the same error. */
bool ckpt__store_leads(const ckpt__store *s, const char *path, const char *name)
{
    struct stat a, b;
    if (stat(path, &a) < 0)
        return errno != ENOENT && errno != ENOTDIR;
    return fstatat(s->dirfd, name, &b, 0) < 0 ? errno != ENOENT : same_file(&a, &b);
}

ckpt_status ckpt__store_reach(const ckpt__store *s, const char *name, char **path, ckpt_error *err)
{
    char *usual = NULL, *moved = NULL;
    if (asprintf(&usual, "%s/%s", s->path, name) < 0)
        return ckpt__fail_memory(err, name, 0);
    *path = usual;
    if (ckpt__store_leads(s, usual, name))
        return CKPT_OK;
    if (asprintf(&moved, "/proc/self/fd/%d/%s", s->dirfd, name) < 0) {
        free(usual);
        return ckpt__fail_memory(err, name, 0);
    }
    bool leads = ckpt__store_leads(s, moved, name);
    *path = leads ? moved : usual; /* not there at all: whoever opens the usual one says so */
    free(leads ? usual : moved);
    return CKPT_OK;
}

bool ckpt__store_holder(const ckpt__store *s, char *buf, size_t size)
{
    char text[SIGNATURE];
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat st;
    int fd = openat(s->dirfd, ".lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    bool held =
        fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    ssize_t n = held ? pread(fd, text, sizeof text, 0) : 0;
    close(fd);
    if (!held)
        return false;
    const char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
    ckpt__escape(buf, size, text, end ? (size_t)(end - text) : n > 0 ? (size_t)n : 0);
    return true;
}

/* ---- what is in it */

ckpt_status ckpt__store_each(const ckpt__store *s, ckpt__store_fn fn, void *ctx, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    int fd = openat(s->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* with a position of its own */
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return ckpt__fail_sys(err, e, s->path, "cannot read the directory (opendir)");
    }
    while (status == CKPT_OK) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                status = ckpt__fail_sys(err, errno, s->path, "cannot read the directory (readdir)");
            break;
        }
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            status = fn(ctx, e->d_name, err);
    }
    closedir(d);
    return status;
}

/* ---- small files */

static ckpt_status read_whole(int fd, const char *label, size_t limit, ckpt__buf *out, ckpt_error *err)
{
    size_t had = 0;
    for (;;) {
        size_t room = limit - had < 65536 ? limit - had + 1 : 65536; /* one byte more tells whether it is too long */
        if (!ckpt__buf_reserve(out, room))
            return ckpt__fail_memory(err, label, room);
        ssize_t got = read(fd, out->data + out->size, room);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt__fail_sys(err, errno, label, "cannot read it at byte %zu (read)", had);
        if (got == 0)
            return CKPT_OK;
        if ((size_t)got > limit - had)
            return ckpt__fail(err, CKPT_E_LIMIT, label, "it is longer than %zu bytes, and no more is read", limit);
        had += (size_t)got;
        out->size += (size_t)got;
        out->data[out->size] = '\0';
    }
}

/* A descriptor of a regular file below the directory; label: of the file, for messages. */
static ckpt_status open_small(const ckpt__store *s, const char *name, int flags, const char *label, int *out,
                              struct stat *st, ckpt_error *err)
{
    if (ckpt__name_climbs(name))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a file name that leaves the run directory is refused");
    int fd = ckpt__open_beneath(s->dirfd, name, flags);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return ckpt__fail(err, CKPT_E_NOT_FOUND, label, "it is not there");
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a link that leaves the run directory is refused");
    if (fd < 0 && errno == ENXIO)
        return ckpt__fail(err, CKPT_E_FORMAT, label, "it is a socket; a regular file is expected");
    if (fd < 0)
        return ckpt__fail_sys(err, errno, label, "cannot open it (openat)%s",
                              errno == EMFILE ? ckpt__write_advice(errno) : "");
    ckpt_status status = CKPT_OK;
    if (fstat(fd, st) < 0)
        status = ckpt__fail_sys(err, errno, label, "cannot look at it (fstat)");
    else if (!S_ISREG(st->st_mode))
        status =
            ckpt__fail(err, CKPT_E_FORMAT, label, "it is %s; a regular file is expected", ckpt__kind_of(st->st_mode));
    if (status < 0)
        close(fd);
    else
        *out = fd;
    return status;
}

ckpt_status ckpt__store_read(const ckpt__store *s, const char *name, size_t limit, ckpt__buf *out, ckpt_error *err)
{
    char label[1024];
    struct stat st;
    size_t before = out->size;
    int fd = -1;
    snprintf(label, sizeof label, "%s/%s", s->path, name);
    ckpt_status status = open_small(s, name, O_RDONLY, label, &fd, &st, err);
    if (status < 0)
        return status;
    if ((uint64_t)st.st_size > limit)
        status = ckpt__fail(err, CKPT_E_LIMIT, label, "it has %lld bytes; at most %zu are read", (long long)st.st_size,
                            limit);
    else
        status = read_whole(fd, label, limit, out, err);
    close(fd);
    if (status < 0 && out->data) {
        out->size = before;
        out->data[before] = '\0';
    }
    return status;
}

ckpt_status ckpt__store_stat(const ckpt__store *s, const char *name, uint64_t *size, int64_t *mtime, ckpt_error *err)
{
    char label[1024];
    struct stat st;
    int fd = -1;
    snprintf(label, sizeof label, "%s/%s", s->path, name);
    ckpt_status status = open_small(s, name, O_PATH, label, &fd, &st, err);
    if (status < 0)
        return status;
    close(fd);
    *size = (uint64_t)st.st_size;
    *mtime = st.st_mtim.tv_sec;
    return CKPT_OK;
}

ckpt_status ckpt__store_write(ckpt__store *s, const char *name, const char *text, size_t n, ckpt_error *err)
{
    static const ckpt__sink_options durable = {.sync = true, .replace = true};
    ckpt__sink *sink;
    ckpt_status status = ckpt__store_name(s, name, err);
    if (status < 0)
        return status;
    if ((status = ckpt__sink_file_at(s->dirfd, s->path, name, n, &durable, &sink, err)) < 0)
        return status;
    if ((status = ckpt__sink_write(sink, 0, text, n, err)) < 0) {
        ckpt__sink_abort(sink);
        return status;
    }
    return ckpt__sink_commit(sink, err);
}
