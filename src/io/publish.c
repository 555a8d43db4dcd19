/* io/publish.c - what publishing and removing have in common. */
#include "io/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void ckpt__xfsz_hold(ckpt__xfsz *h)
{
    sigset_t xfsz;
    sigemptyset(&xfsz);
    sigaddset(&xfsz, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &xfsz, &h->before);
    h->was_blocked = sigismember(&h->before, SIGXFSZ) == 1;
}

void ckpt__xfsz_release(const ckpt__xfsz *h, bool too_big)
{
    int saved = errno;
    if (!h->was_blocked) {
        sigset_t xfsz;
        struct timespec now = {0, 0};
        sigemptyset(&xfsz);
        sigaddset(&xfsz, SIGXFSZ);
        if (too_big)
            while (sigtimedwait(&xfsz, NULL, &now) < 0 && errno == EINTR)
                continue;
        pthread_sigmask(SIG_SETMASK, &h->before, NULL);
    }
    errno = saved;
}

uint64_t ckpt__unique(void)
{
    uint64_t r = 0;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        r = (uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec ^ (uint64_t)getpid() << 20;
    }
    return r;
}

const char *ckpt__write_advice(int e)
{
    return e == ENOSPC || e == EDQUOT ? " (free space or choose another disk; what was there before is untouched)"
           : e == EFBIG               ? " (the limit on file sizes, ulimit -f, is too small)"
           : e == EMFILE              ? " (the limit on open files, ulimit -n, is too small)"
           : e == EACCES || e == EROFS
               ? " (the directory must be writable: the file is written beside its name and then renamed)"
               : "";
}

bool ckpt__no_directory_sync(int e)
{
    return e == EINVAL || e == ENOSYS || e == EOPNOTSUPP;
}

int ckpt__sync_directory(int fd)
{
    return fsync(fd) == 0 || ckpt__no_directory_sync(errno) ? 0 : -1;
}

bool ckpt__no_such_rename(int e)
{
    return e == EINVAL || e == ENOSYS || e == EOPNOTSUPP;
}

int ckpt__rename_noreplace(int dirfd, const char *from, const char *to, bool directory)
{
    if (renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (!ckpt__no_such_rename(errno))
        return -1;
    if (!directory) { /* a hard link never replaces; what keeps the second name is a leftover, no failure */
        if (linkat(dirfd, from, dirfd, to, 0) < 0)
            return -1;
        (void)!unlinkat(dirfd, from, 0);
        return 0;
    }
    if (mkdirat(dirfd, to, 0700) < 0) /* the claim; rename replaces an empty directory */
        return -1;
    if (renameat(dirfd, from, dirfd, to) == 0)
        return 0;
    int saved = errno;
    unlinkat(dirfd, to, AT_REMOVEDIR);
    errno = saved;
    return -1;
}

int ckpt__condemn(int dirfd, const char *name, const char *base, char trash[NAME_MAX + 1])
{
    snprintf(trash, NAME_MAX + 1, ".trash-pruned.%.200s.%016llx", base, (unsigned long long)ckpt__unique());
    return renameat(dirfd, name, dirfd, trash);
}

static const char manifest[] = "checkpoint.json", pruned[] = ".pruned";

static int open_folder(int dirfd, const char *name)
{
    return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* A directory has two links, and one more for each directory in it; one where the file system does not count them, and
 * then what cannot be removed stays there. */
static bool holds_directories(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink > 2;
}

int ckpt__condemn_in_place(int dirfd, const char *name)
{
    int fd = open_folder(dirfd, name), rc = -1, marker = -1;
    if (fd < 0)
        return -1;
    if (holds_directories(fd))
        errno = EISDIR;
    else if ((rc = renameat(fd, manifest, fd, pruned)) < 0 && errno == ENOENT) {
        marker = openat(fd, pruned, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        rc = marker < 0 ? -1 : close(marker);
    }
    if (rc == 0 && ckpt__sync_directory(fd) < 0) {
        int e = errno;
        (void)!(marker < 0 ? renameat(fd, pruned, fd, manifest) : unlinkat(fd, pruned, 0));
        errno = e;
        rc = -1;
    }
    int e = errno;
    close(fd);
    errno = e;
    return rc;
}

bool ckpt__is_condemned_in_place(int dirfd, const char *name)
{
    struct stat st;
    int fd = open_folder(dirfd, name);
    if (fd < 0)
        return false;
    bool is = fstatat(fd, pruned, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
              fstatat(fd, manifest, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    close(fd);
    return is;
}

/* One pass over the names in fd. How many were removed; -1: they could not be read. *why: the first that stayed. The mark of a
 * condemned directory is the last to go: *marked. */
static int remove_names(int fd, bool *marked, int *why)
{
    _Alignas(struct dirent64) char block[4096];
    int removed = 0;
    *why = 0;
    if (lseek(fd, 0, SEEK_SET) < 0) {
        *why = errno;
        return -1;
    }
    for (;;) {
        ssize_t got = getdents64(fd, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            *why = errno;
        if (got <= 0)
            return got < 0 ? -1 : removed;
        for (ssize_t at = 0; at < got;) {
            const struct dirent64 *e = (const struct dirent64 *)(const void *)(block + at);
            at += e->d_reclen;
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            if (strcmp(e->d_name, pruned) == 0)
                *marked = true;
            else if (unlinkat(fd, e->d_name, 0) == 0)
                removed++;
            else if (errno != ENOENT && *why == 0)
                *why = errno;
        }
    }
}

bool ckpt__remove_directory(int dirfd, const char *name, int fd)
{
    struct stat st;
    int why = 0;
    bool marked = false;
    /* It may have the mode of one that was not to be written into. */
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700)
        (void)!fchmodat(dirfd, name, 0700, 0);
    if (fd < 0)
        fd = open_folder(dirfd, name);
    if (fd < 0)
        why = errno;
    else {
        while (remove_names(fd, &marked, &why) > 0) /* again: some file systems leave names out while others go */
            continue;
        if (marked && why == 0 && unlinkat(fd, pruned, 0) < 0)
            why = errno;
        close(fd);
    }
    if (unlinkat(dirfd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    errno = why ? why : errno;
    return false;
}

bool ckpt__remove_any(int dirfd, const char *name)
{
    if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    return ckpt__remove_directory(dirfd, name, -1);
}
