/* io/sink.c - durable publication. The order of calls is the contract: data, fdatasync, close, rename, fsync of the
 * directory; every one is checked, and a failed fsync is never retried on the same file. */
#include "io/sink.h"
#include "io/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct ckpt__sink {
    ckpt__sink_options options;
    ckpt__sink *parent;           /* of a member; else NULL */
    char *path;                   /* as the user named it, links resolved */
    char *base;                   /* last component of path */
    char *temporary;              /* name in the parent directory */
    int dirfd;                    /* the directory that holds path (and the temporary) */
    int fd;                       /* the file, or the temporary directory */
    int direct;                   /* the same file past the page cache (O_DIRECT), or -1 */
    bool directory;
    bool settled;                 /* all of it is on disk, and fd is closed */
    bool synced;                  /* so is its name */
    uint64_t size;
    char **folders;               /* below a directory, parents first */
    size_t folder_count, folder_capacity;
};

static void free_sink(ckpt__sink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->direct >= 0)
        close(s->direct);
    if (s->dirfd >= 0 && !s->parent)
        close(s->dirfd);
    free(s->path);
    free(s->base);
    free(s->temporary);
    for (size_t i = 0; i < s->folder_count; i++)
        free(s->folders[i]);
    free(s->folders);
    free(s);
}

static ckpt__sink *new_sink(const ckpt__sink_options *options)
{
    ckpt__sink *s = calloc(1, sizeof *s);
    if (s) {
        s->fd = s->dirfd = s->direct = -1;
        s->options = *options;
    }
    return s;
}

/* Splits path (a link as destination resolved first) and opens the directory that it lies in. */
static ckpt_status locate(ckpt__sink *s, const char *path, ckpt_error *err)
{
    char resolved[PATH_MAX];
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "an empty path");
    if (!(s->path = strndup(path, n)))
        return ckpt__fail_memory(err, path, 0);
    if (lstat(s->path, &st) == 0 && S_ISLNK(st.st_mode)) {
        if (!realpath(s->path, resolved))
            return ckpt__fail_sys(err, errno, path, "it is a link whose target cannot be resolved");
        free(s->path);
        if (!(s->path = strdup(resolved)))
            return ckpt__fail_memory(err, path, 0);
    }
    char *slash = strrchr(s->path, '/');
    const char *base = slash ? slash + 1 : s->path;
    if (*base == '\0' || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, path, "a path that ends in a name is expected");
    if (!(s->base = strdup(base)))
        return ckpt__fail_memory(err, path, 0);
    char *folder = !slash ? strdup(".") : slash == s->path ? strdup("/") : strndup(s->path, (size_t)(slash - s->path));
    if (!folder)
        return ckpt__fail_memory(err, path, 0);
    s->dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ckpt_status status = s->dirfd >= 0 ? CKPT_OK : ckpt__fail_sys(err, errno, path, "cannot open its directory %s (open)", folder);
    free(folder);
    return status;
}

static ckpt_status exists(const ckpt__sink *s, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_EXISTS, s->path, "it exists already, and replacing it was not asked for");
}

/* Big aligned blocks go past the page cache where they are to be on disk in the end: the disk takes them as fast, for a
 * hundredth of the processor's time, and the trainer's own pages stay in memory. Where the file system will not, they go
 * the usual way. */
enum { DIRECT_ALIGN = 4096, DIRECT_FROM = 1 << 20 };

static void open_direct(ckpt__sink *s)
{
    if (s->size >= DIRECT_FROM && s->options.sync && !s->options.behind)
        s->direct = openat(s->dirfd, s->temporary, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
}

static ckpt_status reserve(ckpt__sink *s, ckpt_error *err)
{
    ckpt__xfsz h;
    int rc = 0;
    if (s->size == 0)
        return CKPT_OK;
    if (s->size > INT64_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, s->path, "%llu bytes are more than a file holds", (unsigned long long)s->size);
    ckpt__xfsz_hold(&h);
    for (int i = 0; i < 100; i++)            /* some file systems begin anew each time: a profiler's timer outpaces them */
        if ((rc = fallocate(s->fd, 0, 0, (off_t)s->size)) == 0 || errno != EINTR)
            break;
    ckpt__xfsz_release(&h, rc < 0 && errno == EFBIG);
    if (rc < 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL && errno != EINTR) {
        int e = errno;
        return ckpt__fail_sys(err, e, s->path, "cannot reserve %llu bytes (fallocate)%s", (unsigned long long)s->size,
                              ckpt__write_advice(e));
    }
    return CKPT_OK;
}

/* Keeps who may read what is replaced; not being the owner is no reason to fail a save, nor is an owner from outside the
 * user namespace (EINVAL). */
static ckpt_status keep_access(const ckpt__sink *s, const struct stat *st, ckpt_error *err)
{
    if (fchown(s->fd, st->st_uid, st->st_gid) < 0 && errno != EPERM && errno != EINVAL)
        return ckpt__fail_sys(err, errno, s->path, "cannot give the new one the owner of the old one");
    if (fchmod(s->fd, st->st_mode & 07777) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot give the new one the mode of the old one");
    return CKPT_OK;
}

/* Opens the temporary; a taken name is tried again under another. */
static ckpt_status create(ckpt__sink *s, ckpt_error *err)
{
    struct stat st;
    bool replaces = fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (replaces && !s->options.replace)
        return exists(s, err);
    if (replaces && S_ISLNK(st.st_mode))     /* followed by now where it is to be followed */
        replaces = false;
    if (replaces && !S_ISREG(st.st_mode))
        return ckpt__fail(err, CKPT_E_EXISTS, s->path, "it is %s; only a regular file is replaced by a file",
                          S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    for (int i = 0; i < 100 && s->fd < 0; i++) {
        free(s->temporary);
        if (asprintf(&s->temporary, ".%.200s.tmp-%016llx", s->base, (unsigned long long)ckpt__unique()) < 0) {
            s->temporary = NULL;
            return ckpt__fail_memory(err, s->path, 0);
        }
        s->fd = openat(s->dirfd, s->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (s->fd < 0 && errno == EINTR)
            unlinkat(s->dirfd, s->temporary, 0);       /* it may be there or not */
        else if (s->fd < 0 && errno != EEXIST)
            break;
    }
    if (s->fd < 0) {
        int e = errno;
        free(s->temporary);       /* nothing of ours is there to be removed */
        s->temporary = NULL;
        return ckpt__fail_sys(err, e, s->path, "cannot create a temporary beside it (openat)%s", ckpt__write_advice(e));
    }
    return replaces ? keep_access(s, &st, err) : CKPT_OK;
}

/* What is left to do once its name and directory are known, or were not to be found (status). */
static ckpt_status open_file(ckpt__sink *s, ckpt_status status, ckpt__sink **out, ckpt_error *err)
{
    if (status == CKPT_OK)
        status = create(s, err);
    if (status == CKPT_OK)
        status = reserve(s, err);
    if (status < 0) {
        ckpt__sink_abort(s);
        return status;
    }
    open_direct(s);
    *out = s;
    return CKPT_OK;
}

ckpt_status ckpt__sink_file(const char *path, uint64_t size, const ckpt__sink_options *options, ckpt__sink **out,
                            ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = new_sink(options);
    if (!s)
        return ckpt__fail_memory(err, path, 0);
    s->size = size;
    return open_file(s, locate(s, path, err), out, err);
}

ckpt_status ckpt__sink_file_at(int dirfd, const char *folder, const char *name, uint64_t size,
                               const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = new_sink(options);
    if (!s)
        return ckpt__fail_memory(err, name, 0);
    s->size = size;
    ckpt_status status = CKPT_OK;
    if (asprintf(&s->path, "%s/%s", folder, name) < 0) {
        s->path = NULL;
        status = ckpt__fail_memory(err, name, 0);
    } else if (!(s->base = strdup(name)))
        status = ckpt__fail_memory(err, name, 0);
    else if ((s->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "cannot open its directory (fcntl)%s", ckpt__write_advice(errno));
    return open_file(s, status, out, err);
}

ckpt_status ckpt__sink_member(ckpt__sink *directory, const char *name, uint64_t size, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = new_sink(&directory->options);
    if (!s)
        return ckpt__fail_memory(err, name, 0);
    s->parent = directory;
    s->dirfd = directory->fd;
    s->size = size;
    ckpt_status status = CKPT_OK;
    if (asprintf(&s->path, "%s/%s", directory->path, name) < 0) {
        s->path = NULL;
        status = ckpt__fail_memory(err, name, 0);
    } else if (!(s->temporary = strdup(name)))
        status = ckpt__fail_memory(err, name, 0);
    else if ((s->fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "cannot create it (openat)%s", ckpt__write_advice(errno));
    if (status == CKPT_OK)
        status = reserve(s, err);
    if (status < 0) {
        free_sink(s);             /* the directory's own abort removes its files */
        return status;
    }
    open_direct(s);
    *out = s;
    return CKPT_OK;
}

ckpt_status ckpt__sink_folder(ckpt__sink *directory, const char *name, ckpt_error *err)
{
    if (!ckpt__grow(&directory->folders, &directory->folder_capacity, directory->folder_count + 1, sizeof *directory->folders))
        return ckpt__fail_memory(err, name, 0);
    char *kept = strdup(name);
    if (!kept)
        return ckpt__fail_memory(err, name, 0);
    if (mkdirat(directory->fd, name, 0777) < 0) {
        int e = errno;
        free(kept);
        return ckpt__fail_sys(err, e, directory->path, "cannot create the folder '%s' in it (mkdirat)%s", name,
                              ckpt__write_advice(e));
    }
    directory->folders[directory->folder_count++] = kept;
    return CKPT_OK;
}

/* The folders of a directory reach the disk before it does. */
static ckpt_status sync_folders(const ckpt__sink *s, ckpt_error *err)
{
    for (size_t i = s->folder_count; s->options.sync && i-- > 0;) {
        int fd = openat(s->fd, s->folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        int rc = fd < 0 ? -1 : fsync(fd), e = errno;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return ckpt__fail_sys(err, e, s->path, "the disk did not take its folder '%s' (fsync)", s->folders[i]);
    }
    return CKPT_OK;
}

/* A directory is only replaced when it is plainly a checkpoint of ours, or empty. */
static ckpt_status check_replaceable(const ckpt__sink *s, ckpt_error *err)
{
    struct stat st;
    if (fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? CKPT_OK : ckpt__fail_sys(err, errno, s->path, "cannot look at it");
    if (!s->options.replace)
        return exists(s, err);
    if (s->options.replace_any)
        return CKPT_OK;
    if (!S_ISDIR(st.st_mode))
        return ckpt__fail(err, CKPT_E_EXISTS, s->path, "it is a file; a directory would be written there");
    int fd = openat(s->dirfd, s->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return ckpt__fail_sys(err, e, s->path, "cannot read the directory");
    }
    bool empty = true, ours = false;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            empty = false;
            ours |= strcmp(e->d_name, "checkpoint.json") == 0;
        }
    int unread = errno;
    closedir(d);
    if (unread)
        return ckpt__fail_sys(err, unread, s->path, "cannot read the directory");
    if (!empty && !ours)
        return ckpt__fail(err, CKPT_E_EXISTS, s->path,
                          "the directory holds no checkpoint.json: it is not a checkpoint and is not replaced");
    return CKPT_OK;
}

ckpt_status ckpt__sink_directory(const char *path, const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = new_sink(options);
    if (!s)
        return ckpt__fail_memory(err, path, 0);
    s->directory = true;
    struct stat st;
    ckpt_status status = locate(s, path, err);
    if (status == CKPT_OK)
        status = check_replaceable(s, err);
    bool replaces = status == CKPT_OK && fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    for (int i = 0; status == CKPT_OK && s->fd < 0; i++) {
        free(s->temporary);
        if (asprintf(&s->temporary, ".tmp-%.200s.%016llx", s->base, (unsigned long long)ckpt__unique()) < 0) {
            s->temporary = NULL;
            status = ckpt__fail_memory(err, path, 0);
        } else if (mkdirat(s->dirfd, s->temporary, replaces ? 0700 : 0777) < 0) {
            if (errno == EEXIST && i < 100)
                continue;
            int e = errno;
            free(s->temporary);
            s->temporary = NULL;
            status = ckpt__fail_sys(err, e, s->path, "cannot create a temporary directory beside it (mkdirat)%s",
                                    ckpt__write_advice(e));
        } else if ((s->fd = openat(s->dirfd, s->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            status = ckpt__fail_sys(err, errno, s->path, "cannot open the temporary directory (openat)");
    }
    if (status < 0) {
        ckpt__sink_abort(s);
        return status;
    }
    *out = s;
    return CKPT_OK;
}

static bool is_aligned(uint64_t offset, const void *data, size_t n)
{
    return offset % DIRECT_ALIGN == 0 && (uintptr_t)data % DIRECT_ALIGN == 0 && n >= DIRECT_ALIGN;
}

/* So much may wait for the disk; what lies further back is there, and leaves the page cache. */
enum { BEHIND = 64 << 20 };

/* A range that was written goes out now and not all at the end: the disk writes while more is read, and a machine or a group
 * with little memory does not have to look for pages. Where the system does not know how, nothing is lost. */
static ckpt_status write_behind(ckpt__sink *s, uint64_t offset, size_t n, ckpt_error *err)
{
    int rc = sync_file_range(s->fd, (off_t)offset, (off_t)n, SYNC_FILE_RANGE_WRITE);
    if (rc == 0 && offset >= BEHIND) {
        off_t from = (off_t)(offset - BEHIND);
        do
            rc = sync_file_range(s->fd, from, (off_t)n,
                                 SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
        while (rc < 0 && errno == EINTR);
        if (rc == 0)
            (void)posix_fadvise(s->fd, from, (off_t)n, POSIX_FADV_DONTNEED);
    }
    if (rc == 0 || errno == EINTR)
        return CKPT_OK;
    if (errno != ENOSYS && errno != EINVAL && errno != ESPIPE && errno != EOPNOTSUPP)    /* a sync would not say it again */
        return ckpt__fail_sys(err, errno, s->path, "the disk did not take the data (sync_file_range)%s",
                              ckpt__write_advice(errno));
    s->options.behind = false;
    return CKPT_OK;
}

ckpt_status ckpt__sink_write(ckpt__sink *s, uint64_t offset, const void *data, size_t n, ckpt_error *err)
{
    const char *p = data;
    const uint64_t begin = offset;
    const size_t all = n;
    while (n) {
        ckpt__xfsz h;
        bool direct = s->direct >= 0 && is_aligned(offset, p, n);
        size_t most = direct ? n / DIRECT_ALIGN * DIRECT_ALIGN : n;
        ckpt__xfsz_hold(&h);
        ssize_t put = pwrite(direct ? s->direct : s->fd, p, most > (1u << 30) ? 1u << 30 : most, (off_t)offset);
        int e = errno;
        ckpt__xfsz_release(&h, put < 0 && e == EFBIG);
        if (put < 0 && e == EINTR)
            continue;
        if (put < 0 && direct && e == EINVAL) {      /* the alignment is not enough here, or there is no O_DIRECT */
            close(s->direct);
            s->direct = -1;
            continue;
        }
        if (put <= 0) {
            e = put < 0 ? e : EIO;
            return ckpt__fail_sys(err, e, s->path, "cannot write at byte %llu (pwrite)%s", (unsigned long long)offset,
                                  ckpt__write_advice(e));
        }
        p += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    return s->options.behind && s->options.sync && all >= DIRECT_FROM ? write_behind(s, begin, all, err) : CKPT_OK;
}

void ckpt__sink_abort(ckpt__sink *s)
{
    if (!s)
        return;
    if (s->temporary && s->dirfd >= 0) {
        int fd = s->fd;           /* no descriptor more is needed to remove what is in it; once settled it is closed */
        s->fd = s->directory ? -1 : fd;
        if (fd < 0 && s->folder_count)
            fd = openat(s->dirfd, s->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        for (size_t i = s->folder_count; fd >= 0 && i-- > 0;)
            ckpt__remove_directory(fd, s->folders[i], -1);
        if (s->directory)
            ckpt__remove_directory(s->dirfd, s->temporary, fd);
        else
            unlinkat(s->dirfd, s->temporary, 0);
    }
    free_sink(s);
}

static ckpt_status cannot(const ckpt__sink *s, int e, const char *what, ckpt_error *err)
{
    return ckpt__fail_sys(err, e, s->path, "cannot %s%s", what, ckpt__write_advice(e));
}

/* The old one lies in `aside` when this could not be undone; it stays there, and a recovery brings it back. */
static ckpt_status not_published(const ckpt__sink *s, int e, bool undone, const char *what, const char *aside,
                                 ckpt_error *err)
{
    if (undone)
        return ckpt__fail_sys(err, e, s->path, "cannot %s; what was there before is back in its place", what);
    return ckpt__fail_sys(err, e, s->path, "cannot %s; the old one lies in %s", what, aside);
}

static ckpt_status exchange_directory(ckpt__sink *s, ckpt_error *err)
{
    if (s->options.sync && fsync(s->dirfd) < 0) {
        int e = errno;            /* the old one goes back to its name; if it cannot, it stays under the temporary's */
        bool undone = renameat2(s->dirfd, s->temporary, s->dirfd, s->base, RENAME_EXCHANGE) == 0;
        ckpt_status status = not_published(s, e, undone, "fsync its directory", s->temporary, err);
        if (!undone) {
            free(s->temporary);
            s->temporary = NULL;
        }
        return status;
    }
    s->synced = true;
    ckpt__remove_any(s->dirfd, s->temporary);     /* now the old one */
    return CKPT_OK;
}

/* Where names cannot be exchanged. Killed in between, the old one lies in .trash-NAME.HEX, and the next to open a run
 * puts it back; once the new one is in its place durably, it is given a name that nobody puts back. */
static ckpt_status swap_directory(ckpt__sink *s, ckpt_error *err)
{
    char aside[NAME_MAX + 1], gone[NAME_MAX + 1];
    snprintf(aside, sizeof aside, ".trash-%.200s.%016llx", s->base, (unsigned long long)ckpt__unique());
    if (renameat(s->dirfd, s->base, s->dirfd, aside) < 0)
        return cannot(s, errno, "move the old directory aside (renameat)", err);
    if (renameat(s->dirfd, s->temporary, s->dirfd, s->base) < 0) {
        int e = errno;
        bool undone = renameat(s->dirfd, aside, s->dirfd, s->base) == 0;
        return not_published(s, e, undone, "rename the new directory to it", aside, err);
    }
    if (s->options.sync && fsync(s->dirfd) < 0) {
        int e = errno;
        bool undone = renameat(s->dirfd, s->base, s->dirfd, s->temporary) == 0 &&
                      renameat(s->dirfd, aside, s->dirfd, s->base) == 0;
        return not_published(s, e, undone, "fsync its directory", aside, err);
    }
    s->synced = true;
    if (ckpt__condemn(s->dirfd, aside, s->base, gone) == 0)
        ckpt__remove_any(s->dirfd, gone);
    return CKPT_OK;
}

static ckpt_status publish_directory(ckpt__sink *s, ckpt_error *err)
{
    if (ckpt__rename_noreplace(s->dirfd, s->temporary, s->base, true) == 0)
        return CKPT_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return cannot(s, errno, "rename the new directory to it (renameat2)", err);
    if (!s->options.replace)
        return exists(s, err);
    if (renameat2(s->dirfd, s->temporary, s->dirfd, s->base, RENAME_EXCHANGE) == 0)
        return exchange_directory(s, err);
    if (errno != EINVAL && errno != ENOSYS)
        return cannot(s, errno, "exchange the new directory with it (renameat2)", err);
    return swap_directory(s, err);
}

static ckpt_status publish_file(ckpt__sink *s, ckpt_error *err)
{
    int rc = s->options.replace ? renameat(s->dirfd, s->temporary, s->dirfd, s->base)
                                : ckpt__rename_noreplace(s->dirfd, s->temporary, s->base, false);
    if (rc == 0)
        return CKPT_OK;
    if (errno == EEXIST)
        return exists(s, err);
    return cannot(s, errno, "rename the temporary to it (renameat)", err);
}

/* Closes a descriptor that was written through; an interrupted close has closed it. */
static ckpt_status close_written(const ckpt__sink *s, int *fd, ckpt_status status, ckpt_error *err)
{
    int rc = *fd < 0 ? 0 : close(*fd);
    *fd = -1;
    if (rc == 0 || errno == EINTR || status < 0)
        return status;
    return cannot(s, errno, "close it", err);
}

ckpt_status ckpt__sink_settle(ckpt__sink *s, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    struct stat st;
    if (s->settled)
        return CKPT_OK;
    if (s->fd < 0)                /* what a failed fsync left is not known: a second one would only seem to succeed */
        return ckpt__fail_sys(err, EIO, s->path, "it failed to reach the disk before; it must be written anew");
    if (s->directory && fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        status = keep_access(s, &st, err);       /* last: the old mode may forbid to write into it */
    if (status == CKPT_OK)
        status = sync_folders(s, err);
    status = close_written(s, &s->direct, status, err);
    if (status == CKPT_OK && s->options.sync && (s->directory ? fsync(s->fd) : fdatasync(s->fd)) < 0) {
        int e = errno;
        status = ckpt__fail_sys(err, e, s->path, "the disk did not take the data (%s)%s",
                                s->directory ? "fsync" : "fdatasync", ckpt__write_advice(e));
    }
    status = close_written(s, &s->fd, status, err);
    s->settled = status == CKPT_OK;
    return status;
}

ckpt_status ckpt__sink_commit(ckpt__sink *s, ckpt_error *err)
{
    ckpt_status status = ckpt__sink_settle(s, err);
    if (s->parent) {
        free_sink(s);             /* the directory's own abort removes its files */
        return status;
    }
    if (status == CKPT_OK)
        status = s->directory ? publish_directory(s, err) : publish_file(s, err);
    if (status < 0) {
        ckpt__sink_abort(s);
        return status;
    }
    /* From here on it is published: a failure means that a power cut may still undo it. */
    if (s->options.sync && !s->synced && fsync(s->dirfd) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "it is written, but its directory could not be synced (fsync)");
    free_sink(s);
    return status;
}

const char *ckpt__sink_temporary(const ckpt__sink *s)
{
    return s->temporary;
}

char *ckpt__sink_beside(const ckpt__sink *s)
{
    const char *slash = strrchr(s->path, '/');
    size_t folder = slash ? (size_t)(slash - s->path) + 1 : 0, n = strlen(s->temporary);
    char *path = malloc(folder + n + 1);
    if (path) {
        memcpy(path, s->path, folder);
        memcpy(path + folder, s->temporary, n + 1);
    }
    return path;
}
