/* io/source.c - the files that a checkpoint is read from. */
#include "io/source.h"
#include "io/beneath.h"
#include "io/descriptors.h"
#include "io/passing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path of a file that was opened by it, whatever the working directory is later. *stays: it leads to that file now alone. */
static char *lasting_path(const char *path, bool *stays)
{
    char *folder = *path == '/' ? strdup("") : getcwd(NULL, 0), *whole = NULL;
    *stays = !folder || ckpt__begins(path, "/proc/") || ckpt__begins(path, "/dev/");
    if (!*stays && asprintf(&whole, "%s%s%s", folder, *folder ? "/" : "", path) < 0) {
        whole = NULL;
        *stays = true;
    }
    free(folder);
    return whole;
}

/* Takes fd over, also on failure. path: it was opened by that; NULL: below its root. */
static ckpt_status append(ckpt__source *s, size_t root, const char *name, const char *path, int fd,
                          const struct stat *st, uint32_t *file, ckpt_error *err)
{
    char *copy = strdup(name);
    if (!copy || s->count >= UINT32_MAX - 1 || !ckpt__grow(&s->files, &s->capacity, s->count + 1, sizeof *s->files)) {
        free(copy);
        close(fd);
        return ckpt__fail_memory(err, s->path, 0);
    }
    s->files[s->count] = (ckpt__file){.name = copy,
                                      .fd = fd,
                                      .size = (uint64_t)st->st_size,
                                      .dev = (uint64_t)st->st_dev,
                                      .ino = (uint64_t)st->st_ino,
                                      .mtime = (int64_t)st->st_mtim.tv_sec,
                                      .mtime_ns = st->st_mtim.tv_nsec,
                                      .mode = st->st_mode,
                                      .root = root};
    if (path)
        s->files[s->count].path = lasting_path(path, &s->files[s->count].stays);
    if (file)
        *file = (uint32_t)s->count;
    s->count++;
    ckpt__descriptor_added(s, (uint32_t)s->count - 1);
    return CKPT_OK;
}

/* Opens a path that must be a directory or a regular file. */
static ckpt_status open_path(const ckpt__source *s, const char *path, int *fd, struct stat *st, ckpt_error *err)
{
    do /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    while (*fd < 0 && ckpt__descriptors_give(s));
    if (*fd < 0 || fstat(*fd, st) < 0) {
        ckpt_status status = ckpt__fail_sys(err, errno, path, "cannot open it");
        if (*fd >= 0)
            close(*fd);
        return status;
    }
    if (S_ISDIR(st->st_mode) || S_ISREG(st->st_mode))
        return CKPT_OK;
    close(*fd);
    return ckpt__fail(err, CKPT_E_FORMAT, path, "it is %s; a checkpoint is a file or a directory",
                      ckpt__kind_of(st->st_mode));
}

ckpt_status ckpt__source_open(const char *path, ckpt__source **out, ckpt_error *err)
{
    struct stat st;
    int fd;
    *out = NULL;
    ckpt__source *s = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(path)) || !(s->descriptors = ckpt__descriptors_new())) {
        free(s ? s->path : NULL);
        free(s);
        return ckpt__fail_memory(err, path, 0);
    }
    s->dirfd = -1;
    ckpt_status status = open_path(s, path, &fd, &st, err);
    if (status == CKPT_OK && S_ISDIR(st.st_mode)) {
        s->directory = true;
        s->dirfd = fd;
    } else if (status == CKPT_OK)
        status = append(s, 0, path, path, fd, &st, NULL, err);
    if (status < 0)
        ckpt__source_close(s);
    else
        *out = s;
    return status;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* File 0 of a single file gets its base name: several files lie side by side. */
static ckpt_status as_member(ckpt__source *s, ckpt_error *err)
{
    char *name = s->directory ? NULL : strdup(base_name(s->files[0].name));
    if (!s->directory && !name)
        return ckpt__fail_memory(err, s->path, 0);
    if (name) {
        free(s->files[0].name);
        s->files[0].name = name;
    }
    s->directory = true;
    return CKPT_OK;
}

static bool is_given(const ckpt__source *s, const struct stat *st)
{
    struct stat own;
    if (s->dirfd >= 0 && fstat(s->dirfd, &own) == 0 && own.st_dev == st->st_dev && own.st_ino == st->st_ino)
        return true;
    for (size_t i = 0; i < s->also_count; i++)
        if (s->also[i].dirfd >= 0 && fstat(s->also[i].dirfd, &own) == 0 && own.st_dev == st->st_dev &&
            own.st_ino == st->st_ino)
            return true;
    for (size_t i = 0; i < s->count; i++)
        if (s->files[i].dev == (uint64_t)st->st_dev && s->files[i].ino == (uint64_t)st->st_ino)
            return true;
    return false;
}

ckpt_status ckpt__source_open_also(ckpt__source *s, const char *path, ckpt_error *err)
{
    struct stat st;
    int fd;
    ckpt_status status = as_member(s, err);
    if (status < 0 || (status = open_path(s, path, &fd, &st, err)) < 0)
        return status;
    char *copy = strdup(path);
    if (is_given(s, &st))
        status = ckpt__fail(err, CKPT_E_ARGUMENT, path, "it is given twice");
    else if (!copy || !ckpt__grow(&s->also, &s->also_capacity, s->also_count + 1, sizeof *s->also))
        status = ckpt__fail_memory(err, path, 0);
    if (status < 0) {
        free(copy);
        close(fd);
        return status;
    }
    bool folder = S_ISDIR(st.st_mode);
    ckpt__hash_free(s->by_name); /* names below several paths may be alike */
    s->by_name = NULL;
    s->also[s->also_count++] = (ckpt__root){copy, folder ? fd : -1};
    return folder ? CKPT_OK : append(s, s->also_count, base_name(path), path, fd, &st, NULL, err);
}

ckpt_status ckpt__source_open_around(ckpt__source *s, ckpt_error *err)
{
    if (s->directory)
        return CKPT_OK;
    const char *base = base_name(s->path);
    char *folder =
        base == s->path ? strdup(".") : strndup(s->path, base - s->path == 1 ? 1 : (size_t)(base - s->path - 1));
    if (!folder)
        return ckpt__fail_memory(err, s->path, 0);
    int fd;
    do
        fd = open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    while (fd < 0 && ckpt__descriptors_give(s));
    ckpt_status status = fd < 0 ? ckpt__fail_sys(err, errno, folder, "cannot open it") : as_member(s, err);
    if (status < 0) {
        if (fd >= 0)
            close(fd);
        free(folder);
        return status;
    }
    free(s->path);
    s->path = folder;
    s->dirfd = fd;
    return CKPT_OK;
}

size_t ckpt__source_roots(const ckpt__source *s)
{
    return 1 + s->also_count;
}

const char *ckpt__source_root(const ckpt__source *s, size_t root)
{
    return root ? s->also[root - 1].path : s->path;
}

static int root_fd(const ckpt__source *s, size_t root)
{
    return root ? s->also[root - 1].dirfd : s->dirfd;
}

bool ckpt__source_is_there(const ckpt__source *s)
{
    struct stat opened, named;
    for (size_t i = 0; i < ckpt__source_roots(s); i++)
        if (root_fd(s, i) >= 0 && fstat(root_fd(s, i), &opened) == 0 &&
            (stat(ckpt__source_root(s, i), &named) < 0 || opened.st_dev != named.st_dev ||
             opened.st_ino != named.st_ino))
            return false;
    return true;
}

void ckpt__source_close(ckpt__source *s)
{
    if (!s)
        return;
    ckpt__passing_end(s);
    while (s->count)
        ckpt__source_drop_last(s);
    ckpt__descriptors_free(s->descriptors);
    for (size_t i = 0; i < s->also_count; i++) {
        if (s->also[i].dirfd >= 0)
            close(s->also[i].dirfd);
        free(s->also[i].path);
    }
    if (s->dirfd >= 0)
        close(s->dirfd);
    free(s->also);
    free(s->files);
    free(s->path);
    free(s);
}

/* A directory that may not be entered hides what is in it. What cannot be looked at is the owner's alone. */
static mode_t mode_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return 0;
    return S_ISDIR(st.st_mode) ? (st.st_mode & 0111) * 7 : st.st_mode & 0777;
}

mode_t ckpt__source_mode(const ckpt__source *s)
{
    mode_t mode = s->dirfd >= 0 ? mode_of(s->dirfd) : 0777;
    for (size_t i = 0; i < s->also_count; i++)
        mode &= s->also[i].dirfd >= 0 ? mode_of(s->also[i].dirfd) : 0777;
    for (size_t i = 0; i < s->count; i++)
        mode &= s->files[i].mode & 0777;
    return mode | 0700;
}

enum { MANY_FILES = 64 }; /* so few are compared one by one */

static void forget_names(ckpt__source *s)
{
    ckpt__hash_free(s->by_name);
    s->by_name = NULL;
}

/* Many files are found by a table of their names. Without memory for it they are found all the same. */
static void note_name(ckpt__source *s)
{
    size_t first = s->count - 1;
    if (s->also_count || s->count < MANY_FILES)
        return;
    if (!s->by_name) {
        s->by_name = ckpt__hash_new(2 * (size_t)MANY_FILES);
        first = 0;
    }
    for (size_t i = first; s->by_name && i < s->count; i++)
        if (ckpt__hash_put(s->by_name, s->files[i].name, strlen(s->files[i].name), i, NULL) < 0)
            forget_names(s);
}

static bool find_file(const ckpt__source *s, size_t root, const char *name, uint32_t *file)
{
    size_t i = 0;
    if (s->by_name && !ckpt__hash_get(s->by_name, name, strlen(name), &i))
        return false;
    while (!s->by_name && i < s->count && (s->files[i].root != root || strcmp(s->files[i].name, name) != 0))
        i++;
    *file = i < s->count ? (uint32_t)i : *file;
    return i < s->count;
}

ckpt_status ckpt__source_add_at(ckpt__source *s, size_t root, const char *name, uint32_t *file, ckpt_error *err)
{
    struct stat st;
    char label[1024];
    snprintf(label, sizeof label, "%s/%s", ckpt__source_root(s, root), name);
    if (!s->directory)
        return ckpt__fail(err, CKPT_E_ARGUMENT, label, "%s is not a directory", s->path);
    if (ckpt__name_climbs(name))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a file name that leaves the checkpoint's directory is refused");
    if (find_file(s, root, name, file))
        return CKPT_OK;
    int fd = -1;
    do
        fd = ckpt__source_open_member(s, root, name);
    while (fd < 0 && ckpt__descriptors_give(s));
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return ckpt__fail(err, CKPT_E_FORMAT, label,
                          "a link that leaves the checkpoint's directory is refused; copy what it points to into the "
                          "directory (cp -L)");
    if (fd < 0)
        return ckpt__fail_sys(err, errno, label, "cannot open it");
    ckpt_status status;
    if (fstat(fd, &st) < 0)
        status = ckpt__fail_sys(err, errno, label, "cannot stat it");
    else if (!S_ISREG(st.st_mode))
        status =
            ckpt__fail(err, CKPT_E_FORMAT, label, "it is %s; a regular file is expected", ckpt__kind_of(st.st_mode));
    else {
        status = append(s, root, name, NULL, fd, &st, file, err);
        if (status == CKPT_OK)
            note_name(s);
        return status;
    }
    close(fd);
    return status;
}

/* Two disks may both have a file: then it must be the same one. */
static ckpt_status compare(const ckpt__source *s, uint32_t a, uint32_t b, ckpt_error *err)
{
    enum { BLOCK = 1 << 20 };
    char one[600];
    const ckpt__file *x = &s->files[a], *y = &s->files[b];
    if (x->dev == y->dev && x->ino == y->ino)
        return CKPT_OK;
    char *blocks = x->size == y->size ? malloc((size_t)2 * BLOCK) : NULL;
    bool same = x->size == y->size;
    ckpt_status status = same && !blocks ? ckpt__fail_memory(err, s->path, 2 * BLOCK) : CKPT_OK;
    for (uint64_t at = 0; status == CKPT_OK && same && at < x->size; at += BLOCK) {
        size_t n = x->size - at < BLOCK ? (size_t)(x->size - at) : BLOCK;
        status = ckpt__source_read(s, a, at, blocks, n, err);
        if (status == CKPT_OK)
            status = ckpt__source_read(s, b, at, blocks + BLOCK, n, err);
        same = status == CKPT_OK && memcmp(blocks, blocks + BLOCK, n) == 0;
    }
    free(blocks);
    if (status < 0 || same)
        return status;
    return ckpt__fail(
        err, CKPT_E_MISMATCH, ckpt__source_label(s, a, one, sizeof one),
        "%s has a file of this name too, with other bytes (%llu and %llu of them): these are not the parts of one "
        "checkpoint",
        ckpt__source_root(s, y->root), (unsigned long long)x->size, (unsigned long long)y->size);
}

ckpt_status ckpt__source_add(ckpt__source *s, const char *name, uint32_t *file, ckpt_error *err)
{
    uint32_t first = UINT32_MAX, other;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK, missing = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__source_roots(s); i++) {
        ckpt_error own = CKPT_ERROR_INIT;
        status = ckpt__source_add_at(s, i, name, &other, &own);
        if (status < 0 && own.sys_errno == ENOENT) {
            if (i == 0)
                why = own;
            missing = missing < 0 ? missing : status;
            status = CKPT_OK;
        } else if (status < 0) {
            if (err)
                *err = own;
        } else if (first == UINT32_MAX)
            first = other;
        else
            status = compare(s, first, other, err);
    }
    if (status < 0)
        return status;
    *file = first;
    if (first != UINT32_MAX)
        return CKPT_OK;
    if (err)
        *err = why;
    return missing;
}

void ckpt__source_drop_last(ckpt__source *s)
{
    ckpt__file *f = &s->files[--s->count];
    ckpt__hash_free(s->by_name);
    s->by_name = NULL;
    ckpt__descriptor_dropped(s, (uint32_t)s->count);
    free(f->path);
    free(f->name);
    memset(f, 0, sizeof *f);
}

/* A distributed checkpoint may have a file for each tensor of each rank (single_file_per_rank=False). A directory of more names than
 * this is hostile, or nobody's checkpoint. */
enum { NAMES_MAX = 200000 };

/* 1: a folder; 0: a file, as which a link counts that leads to one; -1: neither. */
static int is_folder(int fd, const struct dirent *e)
{
    struct stat st;
    if (e->d_type == DT_REG || e->d_type == DT_DIR)
        return e->d_type == DT_DIR;
    if (fstatat(fd, e->d_name, &st, 0) != 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return -1;
    return S_ISDIR(st.st_mode);
}

static ckpt_status each_of(const ckpt__source *s, size_t root, const char *below, ckpt__source_fn fn, void *ctx,
                           ckpt_error *err)
{
    size_t seen = 0;
    ckpt_status status = CKPT_OK;
    int fd;
    do
        fd = ckpt__open_beneath(root_fd(s, root), *below ? below : ".", O_RDONLY | O_DIRECTORY);
    while (fd < 0 && ckpt__descriptors_give(s));
    if (fd < 0 && *below && (errno == ENOENT || errno == ENOTDIR))
        return CKPT_OK;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        status = ckpt__fail_sys(err, errno, ckpt__source_root(s, root), "cannot read the directory%s%s",
                                *below ? " " : "", below);
        if (fd >= 0)
            close(fd);
        return status;
    }
    while (status == CKPT_OK) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                status = ckpt__fail_sys(err, errno, ckpt__source_root(s, root), "cannot read the directory");
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int is = is_folder(fd, e);
        if (++seen > NAMES_MAX)
            status = ckpt__fail(
                err, CKPT_E_LIMIT, ckpt__source_root(s, root),
                "it holds more than %d files, the most that are read of one directory: move what is not a part of "
                "the checkpoint elsewhere. torch.distributed.checkpoint writes one file per rank with "
                "FileSystemWriter(single_file_per_rank=True)",
                NAMES_MAX);
        else if (is >= 0)
            status = fn(ctx, root, e->d_name, is > 0, err);
    }
    closedir(d);
    return status;
}

ckpt_status ckpt__source_each(const ckpt__source *s, const char *below, ckpt__source_fn fn, void *ctx, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < ckpt__source_roots(s); i++) {
        if (root_fd(s, i) >= 0)
            status = each_of(s, i, below, fn, ctx, err);
        for (size_t f = 0; !*below && root_fd(s, i) < 0 && status == CKPT_OK && f < s->count; f++)
            if (s->files[f].root == i)
                status = fn(ctx, i, s->files[f].name, false, err);
    }
    return status;
}

const char *ckpt__source_label(const ckpt__source *s, uint32_t file, char *buf, size_t size)
{
    size_t root = file < s->count ? s->files[file].root : 0;
    if (!s->directory || file >= s->count || root_fd(s, root) < 0)
        snprintf(buf, size, "%s", ckpt__source_root(s, root));
    else
        snprintf(buf, size, "%s/%s", ckpt__source_root(s, root), s->files[file].name);
    return buf;
}

/* ---- reading */

void ckpt__source_scattered(const ckpt__source *s, uint32_t file, bool scattered)
{
    int fd;
    if (file >= s->count || ckpt__descriptor_pin(s, file, 0, &fd, NULL) < 0)
        return;
    s->files[file].scattered = scattered;
    (void)posix_fadvise(fd, 0, 0, scattered ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
    ckpt__descriptor_unpin(s, file);
}

/* Exactly n bytes of an open file. */
static ckpt_status read_all(const ckpt__source *s, uint32_t file, int fd, uint64_t offset, char *p, size_t n,
                            ckpt_error *err)
{
    char label[1024];
    const uint64_t end = offset + n;
    while (n) {
        ssize_t got = pread(fd, p, n > (1u << 30) ? 1u << 30 : n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt__fail_sys(err, errno, ckpt__source_label(s, file, label, sizeof label),
                                  "cannot read at byte %llu", (unsigned long long)offset);
        if (got == 0)
            return ckpt__fail(
                err, CKPT_E_DAMAGED, ckpt__source_label(s, file, label, sizeof label),
                "it ends at byte %llu; %llu bytes are expected (copy it again, or use an earlier checkpoint)",
                (unsigned long long)offset, (unsigned long long)end);
        p += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return CKPT_OK;
}

ckpt_status ckpt__source_read(const ckpt__source *s, uint32_t file, uint64_t offset, void *dst, size_t n,
                              ckpt_error *err)
{
    uint64_t end;
    int fd;
    if (file >= s->count || !ckpt__add(offset, n, &end) || end > INT64_MAX)
        return ckpt__fail(err, CKPT_E_DAMAGED, s->path, "bytes %llu and on are asked for, and no file is that long",
                          (unsigned long long)offset);
    ckpt_status status = ckpt__descriptor_pin(s, file, offset, &fd, err);
    if (status < 0)
        return status;
    const bool passes = s->files[file].passes && end <= s->files[file].size;
    const size_t have = passes ? ckpt__passing_take(s, file, fd, offset, dst, n) : 0;
    if (passes && have < n)
        ckpt__passing_ask(s, &s->files[file], fd, offset + have, end);
    if (have < n)
        status = read_all(s, file, fd, offset + have, (char *)dst + have, n - have, err);
    if (status == CKPT_OK && passes)
        ckpt__passing_read(s, &s->files[file], fd, offset, end);
    ckpt__descriptor_unpin(s, file);
    return status;
}

ckpt_status ckpt__source_slurp(const ckpt__source *s, uint32_t file, uint64_t limit, ckpt__buf *b, ckpt_error *err)
{
    char label[1024];
    uint64_t size = s->files[file].size;
    ckpt__source_label(s, file, label, sizeof label);
    if (size > limit)
        return ckpt__fail(err, CKPT_E_LIMIT, label, "it has %llu bytes; at most %llu are read",
                          (unsigned long long)size, (unsigned long long)limit);
    if (!ckpt__buf_reserve(b, (size_t)size + 1))
        return ckpt__fail_memory(err, label, size);
    ckpt_status status = ckpt__source_read(s, file, 0, b->data + b->size, (size_t)size, err);
    if (status < 0)
        return status;
    b->size += (size_t)size;
    b->data[b->size] = '\0';
    return CKPT_OK;
}
