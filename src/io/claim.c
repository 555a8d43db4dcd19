/* io/claim.c - see claim.h. A directory is told by device and inode, so that a symbolic link is no way around. */
#include "io/claim.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* One directory that this process has open; all claims are one list behind a lock. */
struct ckpt__claim {
    dev_t device;
    ino_t inode;
    pid_t owner;       /* the process that took it: a forked child has another id, so its copy counts for nothing */
    ckpt__claim *next; /* NULL: the last */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ckpt__claim *claims;

static bool is_claimed(const ckpt__claim *wanted)
{
    for (const ckpt__claim *c = claims; c; c = c->next)
        if (c->device == wanted->device && c->inode == wanted->inode && c->owner == wanted->owner)
            return true;
    return false;
}

ckpt_status ckpt__claim_take(const ckpt__store *s, ckpt__claim **out, ckpt_error *err)
{
    struct stat st;
    *out = NULL;
    if (fstat(s->dirfd, &st) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot look at the run directory (fstat)");
    ckpt__claim *claim = malloc(sizeof *claim);
    if (!claim)
        return ckpt__fail_memory(err, s->path, sizeof *claim);
    *claim = (ckpt__claim){.device = st.st_dev, .inode = st.st_ino, .owner = getpid()};
    pthread_mutex_lock(&lock);
    bool taken = is_claimed(claim);
    if (!taken) {
        claim->next = claims;
        claims = claim;
    }
    pthread_mutex_unlock(&lock);
    if (taken) {
        free(claim);
        return ckpt__fail(
            err, CKPT_E_EXISTS, s->path,
            "this process has this directory open as a run already; close that run first (ckpt_run_close), or use "
            "another run directory");
    }
    *out = claim;
    return CKPT_OK;
}

void ckpt__claim_release(ckpt__claim *claim)
{
    if (!claim)
        return;
    pthread_mutex_lock(&lock);
    for (ckpt__claim **at = &claims; *at; at = &(*at)->next)
        if (*at == claim) {
            *at = claim->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    free(claim);
}
