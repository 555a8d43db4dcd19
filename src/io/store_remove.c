/* io/store_remove.c - what leaves a run directory: leftovers of a dead writer, pruned checkpoints, requests that were met.
 * Nothing is deleted before the directory is fsynced, so that what took its place is sure to be there. */
#include "io/store.h"
#include "io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

ckpt_status ckpt__store_name(const ckpt__store *s, const char *name, ckpt_error *err)
{
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/') ||
        strlen(name) > NAME_MAX)
        return ckpt__fail(err, CKPT_E_ARGUMENT, s->path, "a name in the run directory is expected, and not '%s'", name);
    return CKPT_OK;
}

/* ---- a list of names, because a directory is not to change while it is read */
typedef struct names {
    const char *prefix;
    char **items;
    size_t count, capacity;
} names;

static ckpt_status add(names *list, const char *name, ckpt_error *err)
{
    char *copy = strdup(name);
    if (!copy || !ckpt__grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
        free(copy);
        return ckpt__fail_memory(err, name, 0);
    }
    list->items[list->count++] = copy;
    return CKPT_OK;
}

static void free_names(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
}

/* .tmp-*, .trash-*, and .NAME.tmp-<16 hex digits> of a file that was being replaced. */
static bool is_leftover(const char *name)
{
    const char *file = *name == '.' && name[1] ? strstr(name + 2, ".tmp-") : NULL;
    if (ckpt__begins(name, ".tmp-") || ckpt__begins(name, ".trash-"))
        return true;
    return file && strspn(file + 5, "0123456789abcdef") == 16 && file[5 + 16] == '\0';
}

static ckpt_status collect(void *ctx, const char *name, ckpt_error *err)
{
    names *list = ctx;
    bool claim = list->prefix && *list->prefix && ckpt__begins(name, list->prefix);
    return claim || is_leftover(name) ? add(list, name, err) : CKPT_OK;
}

enum { CUT = 200 }; /* a longer name is cut where a name is made from it */

/* ".trash-NAME.<16 hex digits>" as swap_directory of io/sink.c names it: NAME into base. One that was condemned has no
 * way back. */
static bool was_moved_aside(const char *name, char base[NAME_MAX + 1])
{
    static const size_t head = sizeof ".trash-" - 1, tail = 17;
    size_t n = strlen(name);
    if (!ckpt__begins(name, ".trash-") || ckpt__begins(name, ".trash-pruned.") || n <= head + tail || n > NAME_MAX)
        return false;
    const char *dot = name + n - tail;
    if (*dot != '.' || strspn(dot + 1, "0123456789abcdef") != tail - 1)
        return false;
    memcpy(base, name + head, n - head - tail);
    base[n - head - tail] = '\0';
    return true;
}

/* ---- recovery */
typedef struct recovery {
    const ckpt__store *store;
    size_t restored, removed, left;
    bool changed;
} recovery;

/* rmdir is the test for being empty: nothing comes between the two. */
static void remove_claims(recovery *r, names *list)
{
    int dirfd = r->store->dirfd;
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->items[i];
        if (is_leftover(name))
            continue;
        bool gone = unlinkat(dirfd, name, AT_REMOVEDIR) == 0;
        if (!gone && ckpt__is_condemned_in_place(dirfd, name) && !(gone = ckpt__remove_directory(dirfd, name, -1)))
            r->left++;
        r->removed += gone;
        r->changed |= gone;
    }
}

/* What could not be put back may be the only checkpoint of its step: to go on without it would be a silent step back. */
static ckpt_status not_put_back(const recovery *r, int e, const char *name, const char *base, ckpt_error *err)
{
    return ckpt__fail_sys(
        err, e, r->store->path,
        "cannot put %s in it back to its name %s (fstatat, renameat); a save that was killed had moved it "
        "aside, and it may be the only one of its step",
        name, base);
}

/* *keep: the name at i is not to be removed. A directory is renamed over an empty one or over nothing, never over what
 * holds something. */
static ckpt_status put_back(recovery *r, names *list, size_t i, bool *keep, ckpt_error *err)
{
    char base[NAME_MAX + 1], gone[NAME_MAX + 1];
    struct stat st;
    int dirfd = r->store->dirfd;
    *keep = false;
    if (!was_moved_aside(list->items[i], base))
        return CKPT_OK;
    if (fstatat(dirfd, list->items[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? CKPT_OK : not_put_back(r, errno, list->items[i], base, err);
    if (!S_ISDIR(st.st_mode))
        return CKPT_OK;
    *keep = true;
    if (unlinkat(dirfd, list->items[i], AT_REMOVEDIR) == 0) {
        r->removed++; /* there was nothing in it */
        r->changed = true;
        return CKPT_OK;
    }
    if (strlen(base) >= CUT) { /* it is not known where it belongs */
        r->left++;
        return CKPT_OK;
    }
    if (renameat(dirfd, list->items[i], dirfd, base) == 0) {
        r->restored++;
        r->changed = true;
        return CKPT_OK;
    }
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR)
        return not_put_back(r, errno, list->items[i], base, err);
    /* The new one is in its place. From now on nobody brings the old one back, also when it cannot be deleted. */
    *keep = false;
    if (ckpt__condemn(dirfd, list->items[i], base, gone) == 0) {
        char *name = strdup(gone);
        r->changed = true;
        *keep = !name; /* the next recovery finds it */
        if (name) {
            free(list->items[i]);
            list->items[i] = name;
        }
    }
    return CKPT_OK;
}

static ckpt_status sync_directory(const ckpt__store *s, ckpt_error *err)
{
    if (ckpt__sync_directory(s->dirfd) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot sync the run directory (fsync)");
    return CKPT_OK;
}

static ckpt_status recover(recovery *r, names *list, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    size_t kept = 0;
    remove_claims(r, list);
    for (size_t i = 0; status == CKPT_OK && i < list->count; i++) {
        bool keep = true;
        if (is_leftover(list->items[i]))
            status = put_back(r, list, i, &keep, err);
        if (!keep && status == CKPT_OK) {
            char *swap = list->items[kept];
            list->items[kept++] = list->items[i];
            list->items[i] = swap;
        }
    }
    if (status == CKPT_OK && (r->changed || kept))
        status = sync_directory(r->store, err);
    if (status < 0)
        return status;
    for (size_t i = 0; i < kept; i++)
        if (ckpt__remove_any(r->store->dirfd, list->items[i]))
            r->removed++;
        else
            r->left++;
    return kept ? sync_directory(r->store, err) : CKPT_OK;
}

ckpt_status ckpt__store_recover(ckpt__store *s, const char *prefix, size_t *restored, size_t *removed, size_t *left,
                                ckpt_error *err)
{
    names list = {.prefix = prefix};
    recovery r = {.store = s};
    ckpt_status status = ckpt__store_each(s, collect, &list, err);
    if (status == CKPT_OK)
        status = recover(&r, &list, err);
    free_names(&list);
    *restored = r.restored;
    *removed = r.removed;
    *left = r.left;
    return status;
}

/* ---- pruning */

/* The first error is the one that is told. */
static ckpt_error *once(ckpt_status status, ckpt_error *err)
{
    return status == CKPT_OK ? err : NULL;
}

/* Renames them all; those that were renamed are added to trash. */
static ckpt_status condemn_all(ckpt__store *s, const char *const *list, size_t n, names *trash, ckpt_error *err)
{
    char gone[NAME_MAX + 1];
    ckpt_status first = CKPT_OK, status;
    for (size_t i = 0; i < n; i++) {
        if ((status = ckpt__store_name(s, list[i], once(first, err))) < 0) {
            first = first < 0 ? first : status;
            continue;
        }
        if (!ckpt__grow(&trash->items, &trash->capacity, trash->count + 1, sizeof *trash->items))
            return first < 0 ? first : ckpt__fail_memory(err, s->path, 0);
        bool renamed = ckpt__condemn(s->dirfd, list[i], list[i], gone) == 0;
        if (!renamed && !(errno == EXDEV && ckpt__condemn_in_place(s->dirfd, list[i]) == 0)) {
            int e = errno;
            if (e == ENOENT)
                continue;
            status = ckpt__fail_sys(once(first, err), e, s->path, "cannot rename %s in it to .trash-* (renameat)%s",
                                    list[i], ckpt__write_advice(e));
            first = first < 0 ? first : status;
            continue;
        }
        if ((trash->items[trash->count] = strdup(renamed ? gone : list[i])))
            trash->count++;
        else
            first = first < 0 ? first : ckpt__fail_memory(err, s->path, 0); /* the next recovery deletes it */
    }
    return first;
}

ckpt_status ckpt__store_remove(ckpt__store *s, const char *const *list, size_t n, ckpt_error *err)
{
    names trash = {0};
    ckpt_status first = condemn_all(s, list, n, &trash, err), status;
    if (trash.count && (status = sync_directory(s, once(first, err))) < 0) {
        free_names(&trash); /* nothing is deleted: what is on the disk is not known */
        return first < 0 ? first : status;
    }
    for (size_t i = 0; i < trash.count; i++)
        if (!ckpt__remove_any(s->dirfd, trash.items[i])) {
            int e = errno;
            status = ckpt__fail_sys(once(first, err), e, s->path,
                                    "cannot delete all of %s in it; the next opening of the run tries again",
                                    trash.items[i]);
            first = first < 0 ? first : status;
        }
    free_names(&trash);
    return first;
}

/* ---- requests */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

uint64_t ckpt__store_touched(const ckpt__store *s, const char *name)
{
    struct stat st;
    if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return 0;
    uint64_t id = mix(mix(1, (uint64_t)st.st_dev), (uint64_t)st.st_ino);
    id = mix(mix(id, (uint64_t)st.st_mtim.tv_sec), (uint64_t)st.st_mtim.tv_nsec);
    id = mix(mix(id, (uint64_t)st.st_ctim.tv_sec), (uint64_t)st.st_ctim.tv_nsec);
    return id ? id : 1;
}

ckpt_status ckpt__store_untouch(ckpt__store *s, const char *name, ckpt_error *err)
{
    ckpt_status status = ckpt__store_name(s, name, err);
    if (status < 0)
        return status;
    if (unlinkat(s->dirfd, name, 0) < 0)
        return errno == ENOENT ? CKPT_OK : ckpt__fail_sys(err, errno, s->path, "cannot remove %s in it (unlink)", name);
    return sync_directory(s, err); /* a power cut must not bring a request to stop back */
}
