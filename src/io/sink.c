/* io/sink.c - what is to be published: its temporary is opened and written, with nobody but its owner looking on. */
#include "io/publish.h"
#include "io/sink_own.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void ckpt__sink_free(ckpt__sink *s)
{
    if (s->fd >= 0)
        close(s->fd);
    if (s->direct >= 0)
        close(s->direct);
    if (s->dirfd >= 0 && !s->parent)
        close(s->dirfd);
    ckpt__journal_close(s->journal);
    free(s->path);
    free(s->base);
    free(s->temporary);
    for (size_t i = 0; i < s->folder_count; i++)
        free(s->folders[i]);
    free(s->folders);
    free(s);
}

ckpt__sink *ckpt__sink_new(const ckpt__sink_options *options)
{
    ckpt__sink *s = calloc(1, sizeof *s);
    if (s) {
        s->fd = s->dirfd = s->direct = -1;
        s->options = *options;
    }
    return s;
}

ckpt_status ckpt__sink_locate(ckpt__sink *s, const char *path, ckpt_error *err)
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
    ckpt_status status =
        s->dirfd >= 0 ? CKPT_OK : ckpt__fail_sys(err, errno, path, "cannot open its directory %s (open)", folder);
    free(folder);
    return status;
}

mode_t ckpt__sink_limit(const ckpt__sink *s)
{
    mode_t limit = s->options.mode_limit & 0777;
    return limit ? limit | (limit & 0444) >> 2 : 0777;
}

ckpt_status ckpt__sink_taken(const ckpt__sink *s, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_EXISTS, s->path, "it exists already, and replacing it was not asked for");
}

/* Big aligned blocks go past the page cache where they are to be on disk in the end: the disk takes them as fast, for a
 * hundredth of the processor's time, and the trainer's own pages stay in memory. Where the file system will not, they go
 * the usual way. */
enum { DIRECT_ALIGN = 4096, DIRECT_FROM = 1 << 20 };

static void open_direct(ckpt__sink *s)
{
    if (s->size >= DIRECT_FROM && s->options.sync)
        s->direct = openat(s->dirfd, s->temporary, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
}

static ckpt_status reserve(ckpt__sink *s, ckpt_error *err)
{
    ckpt__xfsz h;
    int rc = 0;
    if (s->size == 0)
        return CKPT_OK;
    if (s->size > INT64_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, s->path, "%llu bytes are more than a file holds",
                          (unsigned long long)s->size);
    ckpt__xfsz_hold(&h);
    for (int i = 0; i < 100; i++) /* some file systems begin anew each time: a profiler's timer outpaces them */
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

/* A file that is not there yet; a taken name is tried again under another. */
static ckpt_status open_temporary(const ckpt__sink *s, int dirfd, mode_t mode, char **name, int *out, ckpt_error *err)
{
    int fd = -1;
    *name = NULL;
    for (int i = 0; i < 100 && fd < 0; i++) {
        free(*name);
        if (asprintf(name, ".%.200s.tmp-%016llx", s->base, (unsigned long long)ckpt__unique()) < 0) {
            *name = NULL;
            return ckpt__fail_memory(err, s->path, 0);
        }
        fd = openat(dirfd, *name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd < 0 && errno == EINTR)
            unlinkat(dirfd, *name, 0); /* it may be there or not */
        else if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        int e = errno;
        free(*name); /* nothing of ours is there to be removed */
        *name = NULL;
        return ckpt__fail_sys(err, e, s->path, "cannot create a temporary beside it (openat)%s", ckpt__write_advice(e));
    }
    *out = fd;
    return CKPT_OK;
}

/* Which mode a new one gets here: what an empty file gets that is made and removed again. The umask can only be asked by
 * changing it, which other threads would meet, and it says nothing where the directory has default ACLs. */
static ckpt_status learn_mode(ckpt__sink *s, int dirfd, ckpt_error *err)
{
    char *name = NULL;
    struct stat st;
    int fd = -1;
    ckpt_status status = open_temporary(s, dirfd, s->directory ? 0777 : 0666, &name, &fd, err);
    if (status < 0)
        return status;
    if (fstat(fd, &st) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "cannot look at a temporary beside it (fstat)");
    else
        s->mode = st.st_mode & 0777;
    close(fd);
    if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT && status == CKPT_OK)
        status = ckpt__fail_sys(err, errno, s->path, "cannot remove a temporary beside it (unlinkat)");
    free(name);
    return status;
}

/* Opens the temporary. Nobody else may open it: it gets its mode when it is settled. */
static ckpt_status create(ckpt__sink *s, ckpt_error *err)
{
    struct stat st;
    bool replaces = fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (replaces && !s->options.replace)
        return ckpt__sink_taken(s, err);
    if (replaces && S_ISLNK(st.st_mode)) /* followed by now where it is to be followed */
        replaces = false;
    if (replaces && !S_ISREG(st.st_mode))
        return ckpt__fail(err, CKPT_E_EXISTS, s->path, "it is %s; only a regular file is replaced by a file",
                          S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    s->mode = replaces ? st.st_mode & 0777 : 0;
    ckpt_status status = replaces ? CKPT_OK : learn_mode(s, s->dirfd, err);
    return status == CKPT_OK ? open_temporary(s, s->dirfd, 0600, &s->temporary, &s->fd, err) : status;
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
    ckpt__sink *s = ckpt__sink_new(options);
    if (!s)
        return ckpt__fail_memory(err, path, 0);
    s->size = size;
    return open_file(s, ckpt__sink_locate(s, path, err), out, err);
}

/* The name in an open directory; folder: the directory's name, for messages. */
static ckpt_status locate_at(ckpt__sink *s, int dirfd, const char *folder, const char *name, ckpt_error *err)
{
    if (asprintf(&s->path, "%s/%s", folder, name) < 0) {
        s->path = NULL;
        return ckpt__fail_memory(err, name, 0);
    }
    if (!(s->base = strdup(name)))
        return ckpt__fail_memory(err, name, 0);
    if ((s->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0)) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot open its directory (fcntl)%s", ckpt__write_advice(errno));
    return CKPT_OK;
}

ckpt_status ckpt__sink_file_at(int dirfd, const char *folder, const char *name, uint64_t size,
                               const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = ckpt__sink_new(options);
    if (!s)
        return ckpt__fail_memory(err, name, 0);
    s->size = size;
    return open_file(s, locate_at(s, dirfd, folder, name, err), out, err);
}

ckpt_status ckpt__sink_member(ckpt__sink *directory, const char *name, uint64_t size, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = ckpt__sink_new(&directory->options);
    if (!s)
        return ckpt__fail_memory(err, name, 0);
    s->parent = directory;
    s->dirfd = directory->fd;
    s->size = size;
    ckpt_status status = CKPT_OK;
    if (directory->adopted)
        (void)!unlinkat(s->dirfd, name, 0); /* what is left of it; what cannot be removed is there below */
    if (asprintf(&s->path, "%s/%s", directory->path, name) < 0) {
        s->path = NULL;
        status = ckpt__fail_memory(err, name, 0);
    } else if (!(s->temporary = strdup(name)))
        status = ckpt__fail_memory(err, name, 0);
    else if ((s->fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                             0666 & ckpt__sink_limit(s))) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "cannot create it (openat)%s", ckpt__write_advice(errno));
    if (status == CKPT_OK)
        status = reserve(s, err);
    if (status < 0) {
        ckpt__sink_free(s); /* the directory's own abort removes its files */
        return status;
    }
    open_direct(s);
    *out = s;
    return CKPT_OK;
}

ckpt_status ckpt__sink_folder(ckpt__sink *directory, const char *name, ckpt_error *err)
{
    if (!ckpt__grow(&directory->folders, &directory->folder_capacity, directory->folder_count + 1,
                    sizeof *directory->folders))
        return ckpt__fail_memory(err, name, 0);
    char *kept = strdup(name);
    if (!kept)
        return ckpt__fail_memory(err, name, 0);
    struct stat st;
    bool there =
        directory->adopted && fstatat(directory->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    if (!there && mkdirat(directory->fd, name, 0777 & ckpt__sink_limit(directory)) < 0) {
        int e = errno;
        free(kept);
        return ckpt__fail_sys(err, e, directory->path, "cannot create the folder '%s' in it (mkdirat)%s", name,
                              ckpt__write_advice(e));
    }
    directory->folders[directory->folder_count++] = kept;
    return CKPT_OK;
}

/* A directory is only replaced when it is plainly a checkpoint of ours, or empty. */
static ckpt_status check_replaceable(const ckpt__sink *s, ckpt_error *err)
{
    struct stat st;
    if (fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? CKPT_OK : ckpt__fail_sys(err, errno, s->path, "cannot look at it");
    if (!s->options.replace)
        return ckpt__sink_taken(s, err);
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

/* The temporary directory, into which nobody else may look. */
static ckpt_status make_temporary(ckpt__sink *s, const char *digest, ckpt_error *err)
{
    for (int i = 0; s->fd < 0; i++) {
        ckpt_status status = ckpt__sink_call_temporary(s, digest, err);
        if (status == CKPT_E_EXISTS && i < 100)
            continue;
        if (status < 0)
            return status;
        if (mkdirat(s->dirfd, s->temporary, 0700) < 0) {
            int e = errno;
            free(s->temporary);
            s->temporary = NULL;
            ckpt__journal_remove(s->journal);
            s->journal = NULL;
            if (e == EEXIST && i < 100)
                continue;
            return ckpt__fail_sys(err, e, s->path, "cannot create a temporary directory beside it (mkdirat)%s",
                                  ckpt__write_advice(e));
        }
        if ((s->fd = openat(s->dirfd, s->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            return ckpt__fail_sys(err, errno, s->path, "cannot open the temporary directory (openat)");
    }
    return CKPT_OK;
}

/* The directory of an interrupted run, or a new one. */
static ckpt_status begin_directory(ckpt__sink *s, ckpt_error *err)
{
    const char *digest = s->options.journal;
    s->options.journal = NULL;
    ckpt_status status = digest ? ckpt__sink_search(s, digest, NULL, NULL, err) : CKPT_OK;
    if (status == CKPT_OK && s->journal)
        status = ckpt__sink_adopt(s, err);
    if (status == CKPT_OK && !s->adopted)
        status = make_temporary(s, digest, err);
    s->options.journal_of = NULL;
    return status;
}

static ckpt_status open_directory(ckpt__sink *s, ckpt_status status, ckpt__sink **out, ckpt_error *err)
{
    struct stat st;
    s->directory = true;
    if (status == CKPT_OK)
        status = check_replaceable(s, err);
    if (status == CKPT_OK)
        status = begin_directory(s, err);
    bool replaces =
        status == CKPT_OK && fstatat(s->dirfd, s->base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
    s->mode = replaces ? st.st_mode & 0777 : 0;
    if (status == CKPT_OK && !replaces)
        status = learn_mode(s, s->fd, err);
    if (status < 0) {
        if (s->adopted)
            ckpt__sink_keep(s);
        else
            ckpt__sink_abort(s);
        return status;
    }
    *out = s;
    return CKPT_OK;
}

ckpt_status ckpt__sink_directory(const char *path, const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = ckpt__sink_new(options);
    return s ? open_directory(s, ckpt__sink_locate(s, path, err), out, err) : ckpt__fail_memory(err, path, 0);
}

ckpt_status ckpt__sink_directory_at(int dirfd, const char *folder, const char *name, const ckpt__sink_options *options,
                                    ckpt__sink **out, ckpt_error *err)
{
    *out = NULL;
    ckpt__sink *s = ckpt__sink_new(options);
    return s ? open_directory(s, locate_at(s, dirfd, folder, name, err), out, err) : ckpt__fail_memory(err, name, 0);
}

void ckpt__sink_narrow(ckpt__sink *s, mode_t limit)
{
    s->options.mode_limit = ckpt__sink_limit(s) & limit;
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
    if (errno != ENOSYS && errno != EINVAL && errno != ESPIPE &&
        errno != EOPNOTSUPP) /* a sync would not say it again */
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
    bool waits = false; /* some of it went into the page cache */
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
        if (put < 0 && direct && e == EINVAL) { /* the alignment is not enough here, or there is no O_DIRECT */
            close(s->direct);
            s->direct = -1;
            continue;
        }
        if (put <= 0) {
            e = put < 0 ? e : EIO;
            return ckpt__fail_sys(err, e, s->path, "cannot write at byte %llu (pwrite)%s", (unsigned long long)offset,
                                  ckpt__write_advice(e));
        }
        waits |= !direct;
        p += put;
        offset += (uint64_t)put;
        n -= (size_t)put;
    }
    waits = waits && s->options.behind && s->options.sync && all >= DIRECT_FROM;
    return waits ? write_behind(s, begin, all, err) : CKPT_OK;
}

/* The next run removes a directory by it, so it goes after that. */
static void remove_journal(ckpt__sink *s)
{
    ckpt__journal_remove(s->journal);
    s->journal = NULL;
}

void ckpt__sink_abort(ckpt__sink *s)
{
    if (!s)
        return;
    if (s->temporary && s->dirfd >= 0) {
        int fd = s->fd; /* no descriptor more is needed to remove what is in it; once settled it is closed */
        s->fd = s->directory ? -1 : fd;
        if (fd < 0 && s->folder_count)
            fd = openat(s->dirfd, s->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        for (size_t i = s->folder_count; fd >= 0 && i-- > 0;)
            ckpt__remove_directory(fd, s->folders[i], -1);
        if (!s->directory)
            unlinkat(s->dirfd, s->temporary, 0);
        else if (ckpt__remove_directory(s->dirfd, s->temporary, fd) ||
                 (s->adopted && ckpt__remove_tree(s->dirfd, s->temporary)))
            remove_journal(s);
    } else
        remove_journal(s);
    ckpt__sink_free(s);
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
