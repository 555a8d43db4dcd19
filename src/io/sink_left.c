/* io/sink_left.c - see sink_left.h. */
#include "io/sink_left.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "codec/crc32.h"
#include "io/beneath.h"
#include "io/publish.h"
#include "io/sink_own.h"

enum { HEX = 16, BLOCK = 1 << 20, DEEPEST = 16 };

/* ---- names, because a directory is not to change while it is read */

typedef struct names {
    char **items;
    size_t count, capacity;
} names;

static bool add_name(names *list, const char *name)
{
    char *copy = strdup(name);
    if (!copy || !ckpt__grow(&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
        free(copy);
        return false;
    }
    list->items[list->count++] = copy;
    return true;
}

static void free_names(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
}

typedef bool is_wanted(const void *ctx, const char *name);

/* The names in `folder` of dirfd. False: errno, ENOMEM too. */
static bool list_names(int dirfd, const char *folder, is_wanted *wanted, const void *ctx, names *list)
{
    int fd = openat(dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        errno = e;
        return false;
    }
    int e = 0;
    errno = 0;
    for (struct dirent *entry; e == 0 && (entry = readdir(d)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            (!wanted || wanted(ctx, entry->d_name)) && !add_name(list, entry->d_name))
            e = ENOMEM;
    e = e ? e : errno;
    closedir(d);
    errno = e;
    return e == 0;
}

/* ---- removing what has folders */

/* One name of dirfd; a folder is left where it holds something. */
static bool remove_one(int dirfd, const char *name)
{
    return unlinkat(dirfd, name, 0) == 0 || errno == ENOENT ||
           ((errno == EISDIR || errno == EPERM) && ckpt__remove_directory(dirfd, name, -1));
}

/* A folder in dirfd that is no link, or -1. */
static int open_a_folder(int dirfd)
{
    names list = {NULL, 0, 0};
    struct stat st;
    int fd = -1;
    if (list_names(dirfd, ".", NULL, NULL, &list))
        for (size_t i = 0; fd < 0 && i < list.count; i++)
            if (fstatat(dirfd, list.items[i], &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
                fd = openat(dirfd, list.items[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    free_names(&list);
    return fd;
}

/* What can be removed of what is in a directory: files, and folders that hold no folder. False: nothing can. */
static bool remove_content(int fd)
{
    names list = {NULL, 0, 0};
    bool any = false;
    if (list_names(fd, ".", NULL, NULL, &list))
        for (size_t i = 0; i < list.count; i++)
            any |= remove_one(fd, list.items[i]);
    free_names(&list);
    return any;
}

bool ckpt__remove_tree(int dirfd, const char *name)
{
    int fds[DEEPEST];
    bool goes_on = true;
    while (!ckpt__remove_directory(dirfd, name, -1)) {
        int depth = 0;
        fds[0] = goes_on ? openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW) : -1;
        if (fds[0] < 0)
            return false;
        while (depth + 1 < DEEPEST && (fds[depth + 1] = open_a_folder(fds[depth])) >= 0)
            depth++;
        goes_on = depth > 0 && remove_content(fds[depth - 1]); /* the deepest is flat */
        for (int i = depth; i >= 0; i--)
            close(fds[i]);
    }
    return true;
}

/* ---- the search */

typedef struct search {
    ckpt__sink *s;
    const char *digest;
    ckpt__look_fn *look; /* NULL: what is of no use is removed */
    void *ctx;
    ckpt__journal *best; /* owned: the one of that digest that has the most bytes; NULL: there is none */
    uint64_t best_bytes;
} search;

/* ".tmp-BASE.HEX.journal" */
static bool is_journal(const void *ctx, const char *name)
{
    const ckpt__sink *s = ctx;
    char begin[NAME_MAX + 1];
    size_t n = (size_t)snprintf(begin, sizeof begin, ".tmp-%.200s.", s->base);
    return strncmp(name, begin, n) == 0 && strspn(name + n, "0123456789abcdef") == HEX &&
           strcmp(name + n + HEX, CKPT__JOURNAL_TAIL) == 0;
}

/* Is its directory there, and this user's? *missing: there is none of that name. */
static bool has_folder(const ckpt__journal *j, char folder[NAME_MAX + 1], bool *missing)
{
    struct stat st;
    ckpt__journal_folder(j, folder, NAME_MAX + 1);
    *missing = fstatat(j->dirfd, folder, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    return !*missing && S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

/* It and its directory go; the journal last, so that what stays is found again. */
static void discard(search *f, ckpt__journal *j, bool counts)
{
    char folder[NAME_MAX + 1];
    bool missing;
    bool ours = has_folder(j, folder, &missing);
    f->s->left.stale += ours && counts;
    if (f->look || (!ours && !missing))
        ckpt__journal_close(j);
    else if (missing || ckpt__remove_tree(j->dirfd, folder))
        ckpt__journal_remove(j);
    else {
        f->s->left.stuck++;
        ckpt__journal_close(j);
    }
}

static uint64_t bytes_of(const ckpt__journal *j)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < j->count; i++)
        sum = sum > UINT64_MAX - j->entries[i].size ? UINT64_MAX : sum + j->entries[i].size;
    return sum;
}

static void take(search *f, ckpt__journal *j)
{
    char folder[NAME_MAX + 1];
    bool missing;
    uint64_t bytes = bytes_of(j);
    if (!has_folder(j, folder, &missing) || (f->best && bytes <= f->best_bytes)) {
        discard(f, j, false);
        return;
    }
    ckpt__journal *other = f->best;
    f->best = j;
    f->best_bytes = bytes;
    if (other)
        discard(f, other, false);
}

/* It is of no use: asked about, and gone. */
static ckpt_status pass_over(search *f, ckpt__journal *j, ckpt_error *err)
{
    char folder[NAME_MAX + 1];
    bool missing;
    const bool ours = has_folder(j, folder, &missing);
    ckpt_status status = f->look && ours ? f->look(f->ctx, folder, j, err) : CKPT_OK;
    discard(f, j, true);
    return status;
}

ckpt_status ckpt__sink_search(ckpt__sink *s, const char *digest, ckpt__look_fn *look, void *ctx, ckpt_error *err)
{
    names list = {NULL, 0, 0};
    search f = {.s = s, .digest = digest, .look = look, .ctx = ctx};
    ckpt_status status = CKPT_OK;
    if (!list_names(s->dirfd, ".", is_journal, s, &list) && errno == ENOMEM)
        status = ckpt__fail_memory(err, s->path, 0);
    for (size_t i = 0; status == CKPT_OK && i < list.count; i++) {
        ckpt__journal *j;
        ckpt__journal_is is;
        status = ckpt__journal_open(s->dirfd, list.items[i], s->base, digest, &is, &j, err);
        s->left.busy += status == CKPT_OK && is == CKPT__JOURNAL_BUSY;
        if (j && is == CKPT__JOURNAL_SAME)
            take(&f, j);
        else if (j)
            status = pass_over(&f, j, err);
    }
    free_names(&list);
    if (status < 0)
        ckpt__journal_close(f.best);
    else
        s->journal = f.best;
    return status;
}

ckpt_status ckpt__sink_look(const char *path, const char *digest, ckpt__look_fn *look, void *ctx, ckpt__sink_left *out,
                            ckpt_error *err)
{
    static const ckpt__sink_options none;
    ckpt__sink *s = ckpt__sink_new(&none);
    memset(out, 0, sizeof *out);
    if (!s)
        return ckpt__fail_memory(err, path, 0);
    ckpt_status status = ckpt__sink_locate(s, path, err);
    if (status == CKPT_OK)
        status = ckpt__sink_search(s, digest, look, ctx, err);
    if (status == CKPT_OK) {
        *out = s->left;
        if (s->journal) {
            out->files = s->journal->count;
            out->bytes = bytes_of(s->journal);
            ckpt__journal_folder(s->journal, out->name, sizeof out->name);
        }
    }
    ckpt__sink_free(s);
    return status;
}

void ckpt__sink_tidy(const char *path)
{
    static const ckpt__sink_options none;
    names list = {NULL, 0, 0};
    ckpt__sink *s = ckpt__sink_new(&none);
    if (!s)
        return;
    if (ckpt__sink_locate(s, path, NULL) == CKPT_OK)
        (void)list_names(s->dirfd, ".", is_journal, s, &list);
    for (size_t i = 0; i < list.count; i++) {
        char folder[NAME_MAX + 1];
        ckpt__journal *j;
        ckpt__journal_is is;
        bool missing = false;
        if (ckpt__journal_open(s->dirfd, list.items[i], s->base, "", &is, &j, NULL) < 0 || !j)
            continue;
        (void)has_folder(j, folder, &missing);
        if (missing)
            ckpt__journal_remove(j);
        else
            ckpt__journal_close(j);
    }
    free_names(&list);
    ckpt__sink_free(s);
}

/* ---- going on */

ckpt_status ckpt__sink_call_temporary(ckpt__sink *s, const char *digest, ckpt_error *err)
{
    free(s->temporary);
    if (asprintf(&s->temporary, ".tmp-%.200s.%016llx", s->base, (unsigned long long)ckpt__unique()) < 0) {
        s->temporary = NULL;
        return ckpt__fail_memory(err, s->path, 0);
    }
    if (!digest || !*digest)
        return CKPT_OK;
    ckpt_status status = ckpt__journal_new(s->dirfd, s->temporary, s->base, digest, s->options.journal_of,
                                           s->options.sync, &s->journal, err);
    if (status < 0) { /* nothing of that name is there to be removed */
        free(s->temporary);
        s->temporary = NULL;
    }
    return status;
}

ckpt_status ckpt__sink_adopt(ckpt__sink *s, ckpt_error *err)
{
    char folder[NAME_MAX + 1];
    ckpt__journal *j = s->journal;
    if (!(s->temporary = strdup(ckpt__journal_folder(j, folder, sizeof folder)))) {
        ckpt__journal_close(j);
        s->journal = NULL;
        return ckpt__fail_memory(err, s->path, 0);
    }
    s->adopted = true; /* so that a failure keeps it */
    j->sync = s->options.sync;
    if (ftruncate(j->fd, (off_t)j->end) < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot cut off what is torn of the journal of %s (ftruncate)",
                              folder);
    s->fd = openat(s->dirfd, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0)
        return ckpt__fail_sys(err, errno, s->path, "cannot open what an interrupted run has left, %s (openat)", folder);
    /* It may have been settled, with the mode that it was to have. */
    if (fchmod(s->fd, 0700) < 0 && errno != ENOSYS && errno != EOPNOTSUPP)
        return ckpt__fail_sys(err, errno, s->path, "cannot set the mode of what is left, %s (fchmod)", folder);
    return CKPT_OK;
}

const ckpt__sink_left *ckpt__sink_found(const ckpt__sink *s)
{
    return &s->left;
}

const ckpt__journal *ckpt__sink_journal(const ckpt__sink *s)
{
    return s->journal;
}

bool ckpt__sink_is_adopted(const ckpt__sink *s)
{
    return s->adopted;
}

void ckpt__sink_record(ckpt__sink *s, const char *name, uint64_t size, uint32_t crc, const char *more)
{
    if (s->journal)
        ckpt__journal_add(s->journal, s->fd, name, size, crc, more);
}

void ckpt__sink_keep(ckpt__sink *s)
{
    if (!s)
        return;
    if (s->journal && s->fd >= 0)
        ckpt__journal_sync(s->journal, s->fd);
    ckpt__sink_free(s);
}

/* ---- what is there */

/* Of one folder ("": the top): what is not wanted goes, and folders that are join the list. */
static ckpt_status sift_one(ckpt__sink *s, const char *folder, ckpt__wanted_fn *wanted, void *ctx, names *folders,
                            ckpt_error *err)
{
    names list = {NULL, 0, 0};
    ckpt_status status = CKPT_OK;
    if (!list_names(s->fd, *folder ? folder : ".", NULL, NULL, &list))
        status = errno == ENOMEM ? ckpt__fail_memory(err, s->path, 0)
                                 : ckpt__fail_sys(err, errno, s->path,
                                                  "cannot read what an interrupted run has left, %s", s->temporary);
    for (size_t i = 0; status == CKPT_OK && i < list.count; i++) {
        ckpt__buf path = {0};
        struct stat st;
        ckpt__buf_printf(&path, "%s%s%s", folder, *folder ? "/" : "", list.items[i]);
        if (path.failed) {
            status = ckpt__fail_memory(err, s->path, 0);
            break;
        }
        ckpt__wanted is = wanted(ctx, path.data);
        bool there = fstatat(s->fd, path.data, &st, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && is == CKPT__WANTED_FOLDER && S_ISDIR(st.st_mode)) {
            if (!add_name(folders, path.data))
                status = ckpt__fail_memory(err, s->path, 0);
        } else if (there && (is != CKPT__WANTED_FILE || !S_ISREG(st.st_mode)) &&
                   !(S_ISDIR(st.st_mode) ? ckpt__remove_tree(s->fd, path.data) : unlinkat(s->fd, path.data, 0) == 0))
            status = ckpt__fail_sys(err, errno, s->path, "cannot remove '%s' of what is left, %s (unlinkat)", path.data,
                                    s->temporary);
        ckpt__buf_free(&path);
    }
    free_names(&list);
    return status;
}

ckpt_status ckpt__sink_sift(ckpt__sink *s, ckpt__wanted_fn *wanted, void *ctx, ckpt_error *err)
{
    names folders = {NULL, 0, 0};
    ckpt_status status = add_name(&folders, "") ? CKPT_OK : ckpt__fail_memory(err, s->path, 0);
    for (size_t i = 0; status == CKPT_OK && i < folders.count; i++)
        status = sift_one(s, folders.items[i], wanted, ctx, &folders, err);
    free_names(&folders);
    return status;
}

/* *same: the bytes are read, and their CRC-32 is that. What cannot be read is not the same. */
static ckpt_status compare(int fd, const ckpt__journal_entry *e, ckpt__read_fn *read, void *ctx, bool *same,
                           ckpt_error *err)
{
    uint32_t crc = 0;
    ckpt_status status = CKPT_OK;
    unsigned char *block = malloc(BLOCK);
    if (!block)
        return ckpt__fail_memory(err, e->name, BLOCK);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *same = true;
    for (uint64_t at = 0; status == CKPT_OK && *same && at < e->size;) {
        ssize_t got = pread(fd, block, BLOCK, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *same = false;
            break;
        }
        crc = ckpt__crc32(crc, block, (size_t)got);
        at += (uint64_t)got;
        status = read(ctx, (uint64_t)got, err);
    }
    *same = *same && crc == e->crc;
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    free(block);
    return status;
}

ckpt_status ckpt__sink_check(ckpt__sink *s, const ckpt__journal_entry *e, ckpt__read_fn *read, void *ctx,
                             bool *as_written, ckpt_error *err)
{
    struct stat st;
    ckpt_status status = CKPT_OK;
    *as_written = false;
    int fd = ckpt__open_beneath(s->fd, e->name, O_RDONLY);
    if (fd < 0)
        return CKPT_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && (uint64_t)st.st_size == e->size)
        status = compare(fd, e, read, ctx, as_written, err);
    if (status == CKPT_OK && *as_written) {
        mode_t mode = st.st_mode & 0777 & ckpt__sink_limit(s);
        /* The run before may not have had to sync it, and may have been to keep it more open. */
        *as_written =
            ((st.st_mode & 07777) == mode || fchmod(fd, mode) == 0 || errno == ENOSYS || errno == EOPNOTSUPP) &&
            (!s->options.sync || fdatasync(fd) == 0);
    }
    close(fd);
    return status;
}
