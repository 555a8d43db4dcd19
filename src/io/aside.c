/* io/aside.c - see aside.h. One rename a directory: it is under the one name or under the other, whenever it ends. */
#include "io/aside.h"
#include "io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 10000 };

bool ckpt__aside_is(const char *name)
{
    return strncmp(name, CKPT__ASIDE, sizeof CKPT__ASIDE - 1) == 0;
}

/* A file of a step's name is kept, too. */
static bool is_directory(const ckpt__store *s, const char *name)
{
    struct stat st;
    return fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode);
}

static ckpt_status keep(ckpt__store *s, const char *name, char kept[CKPT__ASIDE_NAME], ckpt_error *err)
{
    ckpt_status status = ckpt__store_name(s, name, err);
    if (status < 0)
        return status;
    for (int i = 1; i < TRIES; i++) {
        char end[16] = "";
        if (i > 1)
            snprintf(end, sizeof end, ".%d", i);
        int n = snprintf(kept, CKPT__ASIDE_NAME, CKPT__ASIDE "%s%s", name, end);
        if (n < 0 || n >= CKPT__ASIDE_NAME)
            return ckpt__fail(err, CKPT_E_LIMIT, s->path, "the name %s in it is too long to be kept aside", name);
        (void)!unlinkat(s->dirfd, kept, AT_REMOVEDIR); /* an empty one: a claim that was never filled */
        if (ckpt__rename_noreplace(s->dirfd, name, kept, is_directory(s, name)) == 0)
            return CKPT_OK;
        int e = errno;
        if (e == ENOENT) {
            kept[0] = '\0';
            return CKPT_OK;
        }
        if (e != EEXIST && e != ENOTEMPTY)
            return ckpt__fail_sys(err, e, s->path, "cannot rename %s in it to %s (renameat)%s", name, kept,
                                  ckpt__write_advice(e));
    }
    return ckpt__fail(err, CKPT_E_LIMIT, s->path, "it holds " CKPT__ASIDE "%s to " CKPT__ASIDE "%s.%d: remove some",
                      name, name, TRIES - 1);
}

ckpt_status ckpt__aside_keep(ckpt__store *s, const char *const *names, size_t n, ckpt__aside_name *kept,
                             ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t done = 0;
    while (status == CKPT_OK && done < n)
        if ((status = keep(s, names[done], kept[done].text, err)) == CKPT_OK)
            done++;
    if (done && ckpt__sync_directory(s->dirfd) < 0 && status == CKPT_OK)
        status = ckpt__fail_sys(err, errno, s->path, "cannot sync the run directory (fsync)");
    return status;
}
