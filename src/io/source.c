/* io/source.c - the files that a checkpoint is read from. */
#include "io/source.h"
#include "io/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ckpt_status append(ckpt__source *s, const char *name, int fd, const struct stat *st, uint32_t *file, ckpt_error *err)
{
    char *copy = strdup(name);
    if (!copy || !ckpt__grow(&s->files, &s->capacity, s->count + 1, sizeof *s->files)) {
        free(copy);
        return ckpt__fail_memory(err, s->path, 0);
    }
    s->files[s->count] = (ckpt__file){ copy, fd, (uint64_t)st->st_size, (uint64_t)st->st_dev, (uint64_t)st->st_ino };
    if (file)
        *file = (uint32_t)s->count;
    s->count++;
    return CKPT_OK;
}

ckpt_status ckpt__source_open(const char *path, ckpt__source **out, ckpt_error *err)
{
    struct stat st;
    int fd = -1;
    ckpt_status status;
    *out = NULL;
    ckpt__source *s = calloc(1, sizeof *s);
    if (!s || !(s->path = strdup(path))) {
        free(s);
        return ckpt__fail_memory(err, path, 0);
    }
    s->dirfd = -1;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    if ((fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0 || fstat(fd, &st) < 0) {
        status = ckpt__fail_sys(err, errno, path, "cannot open it");
        goto fail;
    }
    if (S_ISDIR(st.st_mode)) {
        s->directory = true;
        s->dirfd = fd;
    } else if (!S_ISREG(st.st_mode)) {
        status = ckpt__fail(err, CKPT_E_FORMAT, path, "it is %s; a checkpoint is a file or a directory", ckpt__kind_of(st.st_mode));
        goto fail;
    } else if ((status = append(s, path, fd, &st, NULL, err)) < 0)
        goto fail;
    *out = s;
    return CKPT_OK;
fail:
    if (fd >= 0)
        close(fd);
    free(s->path);
    free(s->files);
    free(s);
    return status;
}

bool ckpt__source_is_there(const ckpt__source *s)
{
    struct stat opened, named;
    return !s->directory || fstat(s->dirfd, &opened) < 0 ||
           (stat(s->path, &named) == 0 && opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

void ckpt__source_close(ckpt__source *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++) {
        close(s->files[i].fd);
        free(s->files[i].name);
    }
    if (s->dirfd >= 0)
        close(s->dirfd);
    free(s->files);
    free(s->path);
    free(s);
}

ckpt_status ckpt__source_add(ckpt__source *s, const char *name, uint32_t *file, ckpt_error *err)
{
    struct stat st;
    char label[1024];
    snprintf(label, sizeof label, "%s/%s", s->path, name);
    if (!s->directory)
        return ckpt__fail(err, CKPT_E_ARGUMENT, label, "%s is not a directory", s->path);
    if (ckpt__name_climbs(name))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a file name that leaves the checkpoint's directory is refused");
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->files[i].name, name) == 0) {
            *file = (uint32_t)i;
            return CKPT_OK;
        }
    int fd = ckpt__open_beneath(s->dirfd, name, O_RDONLY);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return ckpt__fail(err, CKPT_E_FORMAT, label, "a link that leaves the checkpoint's directory is refused");
    if (fd < 0)
        return ckpt__fail_sys(err, errno, label, "cannot open it");
    ckpt_status status;
    if (fstat(fd, &st) < 0)
        status = ckpt__fail_sys(err, errno, label, "cannot stat it");
    else if (!S_ISREG(st.st_mode))
        status = ckpt__fail(err, CKPT_E_FORMAT, label, "it is %s; a regular file is expected",
                            ckpt__kind_of(st.st_mode));
    else
        status = append(s, name, fd, &st, file, err);
    if (status < 0)
        close(fd);
    return status;
}

const char *ckpt__source_label(const ckpt__source *s, uint32_t file, char *buf, size_t size)
{
    if (!s->directory || file >= s->count)
        snprintf(buf, size, "%s", s->path);
    else
        snprintf(buf, size, "%s/%s", s->path, s->files[file].name);
    return buf;
}

ckpt_status ckpt__source_read(const ckpt__source *s, uint32_t file, uint64_t offset, void *dst, size_t n, ckpt_error *err)
{
    char label[1024];
    char *p = dst;
    uint64_t end;
    if (file >= s->count || !ckpt__add(offset, n, &end) || end > INT64_MAX)
        return ckpt__fail(err, CKPT_E_DAMAGED, s->path, "bytes %llu and on are asked for, and no file is that long",
                          (unsigned long long)offset);
    while (n) {
        ssize_t got = pread(s->files[file].fd, p, n > (1u << 30) ? 1u << 30 : n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ckpt__fail_sys(err, errno, ckpt__source_label(s, file, label, sizeof label),
                                  "cannot read at byte %llu", (unsigned long long)offset);
        if (got == 0)
            return ckpt__fail(err, CKPT_E_DAMAGED, ckpt__source_label(s, file, label, sizeof label),
                              "it ends at byte %llu; %llu bytes are expected", (unsigned long long)offset,
                              (unsigned long long)end);
        p += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return CKPT_OK;
}

ckpt_status ckpt__source_slurp(const ckpt__source *s, uint32_t file, uint64_t limit, ckpt__buf *b, ckpt_error *err)
{
    char label[1024];
    uint64_t size = s->files[file].size;
    ckpt__source_label(s, file, label, sizeof label);
    if (size > limit)
        return ckpt__fail(err, CKPT_E_LIMIT, label, "it has %llu bytes; at most %llu are read", (unsigned long long)size,
                          (unsigned long long)limit);
    if (!ckpt__buf_reserve(b, (size_t)size + 1))
        return ckpt__fail_memory(err, label, size);
    ckpt_status status = ckpt__source_read(s, file, 0, b->data + b->size, (size_t)size, err);
    if (status < 0)
        return status;
    b->size += (size_t)size;
    b->data[b->size] = '\0';
    return CKPT_OK;
}
