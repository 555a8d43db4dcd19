/* io/retract.c - taking back what was published and turned out damaged. */
#include "io/beneath.h"
#include "io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool ckpt__sink_retract(const char *path)
{
    char resolved[PATH_MAX];
    return realpath(path, resolved) && unlink(resolved) == 0;
}

bool ckpt__sink_identify(const char *path, ckpt__sink_identity *out)
{
    struct stat st;
    bool there = stat(path, &st) == 0;
    *out = (ckpt__sink_identity){ there ? st.st_dev : 0, there ? st.st_ino : 0 };
    return there;
}

/* A file, or a folder that is empty by now, below fd. */
static void remove_below(int fd, const char *name)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(name, '/');
    int in = fd;
    if (slash) {
        size_t n = (size_t)(slash - name);
        if (n >= sizeof folder)
            return;
        memcpy(folder, name, n);
        folder[n] = '\0';
        in = ckpt__open_beneath(fd, folder, O_RDONLY | O_DIRECTORY);
    }
    if (in < 0)
        return;
    const char *base = slash ? slash + 1 : name;
    if (unlinkat(in, base, 0) < 0 && (errno == EISDIR || errno == EPERM))
        (void)!unlinkat(in, base, AT_REMOVEDIR);
    if (in != fd)
        close(in);
}

static bool is_it(int fd, const ckpt__sink_identity *identity)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (uint64_t)st.st_dev == identity->dev && (uint64_t)st.st_ino == identity->ino;
}

bool ckpt__sink_retract_directory(const char *path, const ckpt__sink_identity *identity, const char *const *names, size_t n)
{
    char resolved[PATH_MAX], trash[NAME_MAX + 1];
    char *slash = realpath(path, resolved) ? strrchr(resolved, '/') : NULL;
    if (!slash || !slash[1])
        return false;
    const char *base = slash + 1;
    *slash = '\0';
    int dirfd = open(*resolved ? resolved : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return false;
    bool gone = false;
    if (ckpt__condemn(dirfd, base, base, trash) == 0) {       /* at once: nobody reads half of it */
        int fd = openat(dirfd, trash, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        bool ours = fd >= 0 && is_it(fd, identity);
        for (size_t i = n; ours && i-- > 0;)
            remove_below(fd, names[i]);
        if (fd >= 0)
            close(fd);
        gone = ours && unlinkat(dirfd, trash, AT_REMOVEDIR) == 0;
        if (!gone)                /* another's, or another's files are in it by now */
            (void)!ckpt__rename_noreplace(dirfd, trash, base, true);
    }
    close(dirfd);
    return gone;
}
