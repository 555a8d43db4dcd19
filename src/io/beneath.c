/* io/beneath.c - opening what lies below a directory, and never what does not. */
#include "io/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

bool ckpt__name_climbs(const char *name)
{
    if (*name == '\0' || *name == '/')
        return true;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (ckpt__begins(p, "..") && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

/* Component by component, following no link; with O_PATH the last one may be a link, which is itself opened. */
static int open_parts(int dirfd, const char *name, int flags)
{
    char part[256];
    if (ckpt__name_climbs(name)) {
        errno = EXDEV;
        return -1;
    }
    int at = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    while (at >= 0) {
        size_t n = strcspn(name, "/");
        bool last = name[n] == '\0';
        if (n >= sizeof part) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, name, n);
        part[n] = '\0';
        int next = openat(at, n ? part : ".", flags | O_NOFOLLOW | (last ? 0 : O_DIRECTORY));
        int saved = errno;
        struct stat st;
        if (next < 0 && saved == ENOTDIR && fstatat(at, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
            saved = ELOOP; /* a link to a directory: refused as a link, as openat2 would */
        close(at);
        errno = saved;
        if (next < 0 || last)
            return next;
        at = next;
        name += n + 1;
    }
    return -1;
}

int ckpt__open_beneath(int dirfd, const char *name, int flags)
{
    flags |= O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY);
    struct open_how how = {.flags = (unsigned)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    int fd = -1;
    for (int i = 0; i < 100; i++) { /* EAGAIN: something was renamed while a link was being followed */
        fd = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof how);
        if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != E2BIG))
        return fd;
    return open_parts(dirfd, name, flags); /* no openat2: before Linux 5.6, or filtered */
}

/* ---- blobs */

enum { UP_MIN = 2, UP_MAX = 16, BLOB_TEXT = 256 };

/* The folders that lie between dirfd and the file: "a/b/file" has two. -1: not a plain path. */
static int depth_of(const char *name)
{
    int depth = 0;
    for (size_t n; (n = strcspn(name, "/")) && !(n == 1 && *name == '.'); name += n + 1, depth++)
        if (name[n] == '\0')
            return depth;
    return -1;
}

/* "../../blobs/<hash>" -> 2, and the hash; 0: the text is no such thing. */
static int parse_link(char *text, char **hash)
{
    int up = 0;
    for (; ckpt__begins(text, "../"); text += 3)
        up++;
    if (up < UP_MIN || up > UP_MAX || strncmp(text, "blobs/", 6) != 0)
        return 0;
    *hash = text + 6;
    size_t digits = strspn(*hash, "0123456789abcdef");
    return (*hash)[digits] == '\0' && (digits == 40 || digits == 64) ? up : 0;
}

/* Is the directory `up` - 1 above dirfd the one called "snapshots" in the directory above that? False and errno. */
static bool is_snapshot(int dirfd, int up)
{
    char path[3 * UP_MAX + sizeof "snapshots"] = "";
    struct stat above, named;
    for (int i = 1; i < up; i++)
        strcat(path, "../");
    if (fstatat(dirfd, path, &above, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    strcat(path, "../snapshots");
    if (fstatat(dirfd, path, &named, AT_SYMLINK_NOFOLLOW) < 0) {
        errno = errno == ENOENT ? EXDEV : errno;
        return false;
    }
    errno = EXDEV;
    return S_ISDIR(named.st_mode) && above.st_dev == named.st_dev && above.st_ino == named.st_ino;
}

/* The text of the link `name`, following none. False and errno; EXDEV: it is no link. */
static bool read_link(int dirfd, const char *name, char text[BLOB_TEXT])
{
    int link = open_parts(dirfd, name, O_PATH | O_CLOEXEC);
    if (link < 0)
        return false;
    ssize_t n = readlinkat(link, "", text, BLOB_TEXT - 1);
    int saved = errno == EINVAL || errno == ENOENT ? EXDEV : errno;
    close(link);
    text[n < 0 ? 0 : n] = '\0';
    errno = saved;
    return n >= 0;
}

int ckpt__open_blob(int dirfd, const char *name)
{
    char text[BLOB_TEXT], path[3 * UP_MAX + sizeof "blobs"] = "", *hash = text;
    int depth = ckpt__name_climbs(name) ? -1 : depth_of(name);
    errno = EXDEV;
    if (depth < 0 || !read_link(dirfd, name, text))
        return -1;
    int up = parse_link(text, &hash) - depth; /* above dirfd */
    errno = EXDEV;
    if (up < UP_MIN || up > UP_MAX || !is_snapshot(dirfd, up))
        return -1;
    for (int i = 0; i < up; i++)
        strcat(path, "../");
    strcat(path, "blobs");
    int blobs = openat(dirfd, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (blobs < 0) {
        errno = errno == ENOENT || errno == ENOTDIR ? EXDEV : errno; /* none there, or a link */
        return -1;
    }
    int fd = openat(blobs, hash, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), saved = errno;
    close(blobs);
    errno = saved;
    return fd;
}

const char *ckpt__kind_of(unsigned mode)
{
    return S_ISDIR(mode)                    ? "a directory"
           : S_ISFIFO(mode)                 ? "a FIFO"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "no regular file";
}
