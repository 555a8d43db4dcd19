/* io/sink_publish.c - durable publication. The order of calls is the contract: data, fdatasync, close, rename, fsync of the
 * directory; every one is checked, and a failed fsync is never retried on the same file. */
#include "io/publish.h"
#include "io/sink_own.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Who may read it: as what is replaced, or as a new one, and never more than the limit. Not being the owner is no reason
 * to fail a save, nor is an owner from outside the user namespace (EINVAL), nor a file system that has no modes. What a
 * setuid bit did for another content it must not do for this; a directory keeps what it has from the one above it. */
static ckpt_status set_access(const ckpt__sink *s, ckpt_error *err)
{
    struct stat old, own;
    mode_t mode = s->mode;
    if (s->parent && ckpt__sink_limit(s) == ckpt__sink_limit(s->parent))
        return CKPT_OK; /* it was made so, in a directory that is closed to others */
    bool replaces = !s->parent && fstatat(s->dirfd, s->base, &old, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (s->directory ? S_ISDIR(old.st_mode) : S_ISREG(old.st_mode));
    if (replaces) {
        mode = old.st_mode & 0777;
        if (fchown(s->fd, old.st_uid, old.st_gid) < 0 && errno != EPERM && errno != EINVAL)
            return ckpt__fail_sys(err, errno, s->path, "cannot give the new one the owner of the old one (fchown)");
    }
    if (fstat(s->fd, &own) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot look at its temporary (fstat)");
    mode = (s->parent ? own.st_mode & 0777 : mode) & ckpt__sink_limit(s);
    mode |= s->directory ? own.st_mode & 07000 : 0;
    if ((own.st_mode & 07777) == mode || fchmod(s->fd, mode) == 0 || errno == ENOSYS || errno == EOPNOTSUPP)
        return CKPT_OK;
    return ckpt__fail_sys(err, errno, s->path, "cannot set the mode %04o (fchmod)", (unsigned)mode);
}

/* The folders of a directory reach the disk before it does. */
static ckpt_status sync_folders(const ckpt__sink *s, ckpt_error *err)
{
    for (size_t i = s->folder_count; s->options.sync && i-- > 0;) {
        int fd = openat(s->fd, s->folders[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        int rc = fd < 0 ? -1 : ckpt__sync_directory(fd), e = errno;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            return ckpt__fail_sys(err, e, s->path, "the disk did not take its folder '%s' (fsync)", s->folders[i]);
    }
    return CKPT_OK;
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
    if (s->options.sync && ckpt__sync_directory(s->dirfd) < 0) {
        int e = errno; /* the old one goes back to its name; if it cannot, it stays under the temporary's */
        bool undone = renameat2(s->dirfd, s->temporary, s->dirfd, s->base, RENAME_EXCHANGE) == 0;
        ckpt_status status = not_published(s, e, undone, "fsync its directory", s->temporary, err);
        if (!undone) {
            free(s->temporary);
            s->temporary = NULL;
        }
        return status;
    }
    s->synced = true;
    ckpt__remove_any(s->dirfd, s->temporary); /* now the old one */
    return CKPT_OK;
}

/* Where the old one cannot be renamed at all (overlayfs: a directory of a lower layer). The new one, which is whole, gets the
 * name under which a recovery looks for what was moved aside; then the old one is condemned and deleted where it is. Killed
 * before that, the old one stays and the recovery drops the new one; killed after it, the recovery deletes what is left of
 * the old one and puts the new one in its place. */
static ckpt_status replace_in_place(ckpt__sink *s, ckpt_error *err)
{
    char *aside = NULL;
    if (asprintf(&aside, ".trash-%.200s.%016llx", s->base, (unsigned long long)ckpt__unique()) < 0)
        return ckpt__fail_memory(err, s->path, 0);
    if (renameat(s->dirfd, s->temporary, s->dirfd, aside) < 0) {
        int e = errno;
        free(aside);
        return cannot(s, e, "rename the new directory (renameat)", err);
    }
    free(s->temporary);
    s->temporary = aside;
    if (s->options.sync && ckpt__sync_directory(s->dirfd) < 0)
        return cannot(s, errno, "fsync its directory", err);
    if (ckpt__condemn_in_place(s->dirfd, s->base) < 0)
        return cannot(s, errno, "replace the old directory, which the file system does not rename (renameat)", err);
    const char *failed = NULL;
    if (!ckpt__remove_directory(s->dirfd, s->base, -1))
        failed = "delete the old directory, which the file system does not rename (unlinkat)";
    else if (ckpt__rename_noreplace(s->dirfd, s->temporary, s->base, true) < 0)
        failed = "rename the new directory to it (renameat2)";
    if (!failed)
        return CKPT_OK;
    ckpt_status status =
        ckpt__fail_sys(err, errno, s->path, "cannot %s; the new one is whole and lies in %s", failed, s->temporary);
    s->temporary = NULL; /* not to be removed */
    free(aside);
    return status;
}

/* Where names cannot be exchanged. Killed in between, the old one lies in .trash-NAME.HEX, and the next to open a run
 * puts it back; once the new one is in its place durably, it is given a name that nobody puts back. */
static ckpt_status swap_directory(ckpt__sink *s, ckpt_error *err)
{
    char aside[NAME_MAX + 1], gone[NAME_MAX + 1];
    snprintf(aside, sizeof aside, ".trash-%.200s.%016llx", s->base, (unsigned long long)ckpt__unique());
    if (renameat(s->dirfd, s->base, s->dirfd, aside) < 0)
        return errno == EXDEV ? replace_in_place(s, err)
                              : cannot(s, errno, "move the old directory aside (renameat)", err);
    if (renameat(s->dirfd, s->temporary, s->dirfd, s->base) < 0) {
        int e = errno;
        bool undone = renameat(s->dirfd, aside, s->dirfd, s->base) == 0;
        return not_published(s, e, undone, "rename the new directory to it", aside, err);
    }
    if (s->options.sync && ckpt__sync_directory(s->dirfd) < 0) {
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
        return ckpt__sink_taken(s, err);
    if (renameat2(s->dirfd, s->temporary, s->dirfd, s->base, RENAME_EXCHANGE) == 0)
        return exchange_directory(s, err);
    if (errno == EXDEV)
        return replace_in_place(s, err);
    if (!ckpt__no_such_rename(errno))
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
        return ckpt__sink_taken(s, err);
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
    if (s->settled)
        return CKPT_OK;
    if (s->fd < 0) /* what a failed fsync left is not known: a second one would only seem to succeed */
        return ckpt__fail_sys(err, EIO, s->path, "it failed to reach the disk before; it must be written anew");
    status = set_access(s, err); /* last: the mode may forbid to write into it */
    if (status == CKPT_OK)
        status = sync_folders(s, err);
    status = close_written(s, &s->direct, status, err);
    if (status == CKPT_OK && s->options.sync && (s->directory ? ckpt__sync_directory(s->fd) : fdatasync(s->fd)) < 0) {
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
        ckpt__sink_free(s); /* the directory's own abort removes its files */
        return status;
    }
    if (status == CKPT_OK)
        status = s->directory ? publish_directory(s, err) : publish_file(s, err);
    if (status < 0) {
        ckpt__sink_abort(s);
        return status;
    }
    /* From here on it is published: a failure means that a power cut may still undo it. */
    if (s->options.sync && !s->synced && ckpt__sync_directory(s->dirfd) < 0)
        status = ckpt__fail_sys(err, errno, s->path, "it is written, but its directory could not be synced (fsync)");
    ckpt__journal_remove(s->journal);
    s->journal = NULL;
    ckpt__sink_free(s);
    return status;
}
