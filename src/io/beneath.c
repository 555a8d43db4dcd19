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
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
            return true;
    }
    return false;
}

int ckpt__open_beneath(int dirfd, const char *name, int flags)
{
    flags |= O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY);
    struct open_how how = { .flags = (unsigned)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    int fd = -1;
    for (int i = 0; i < 100; i++) {          /* EAGAIN: something was renamed while a link was being followed */
        fd = (int)syscall(SYS_openat2, dirfd, name, &how, sizeof how);
        if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
            break;
    }
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != E2BIG))
        return fd;
    /* No openat2 (before Linux 5.6, or filtered): component by component, following no link. */
    char part[256];
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
            saved = ELOOP;        /* a link to a directory: refused as a link, as openat2 would */
        close(at);
        errno = saved;
        if (next < 0 || last)
            return next;
        at = next;
        name += n + 1;
    }
    return -1;
}

const char *ckpt__kind_of(unsigned mode)
{
    return S_ISDIR(mode)                      ? "a directory"
           : S_ISFIFO(mode)                   ? "a FIFO"
           : S_ISSOCK(mode)                   ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode)   ? "a device"
                                              : "no regular file";
}
