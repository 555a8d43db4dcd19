/* out/file.c - a file appears whole, or not at all. */
#include "cli/out/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In pieces, so that a signal is seen between them. */
static bool write_all(int fd, const char *data, size_t size)
{
    enum { PIECE = 8 << 20 };
    while (size > 0) {
        ssize_t n = cli_signal_caught() ? -1 : write(fd, data, size < PIECE ? size : PIECE);
        if (cli_signal_caught()) {
            errno = EINTR;
            return false;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        size -= (size_t)n;
    }
    return true;
}

/* The file `inside` of the directory that path is, or that it lies in. For free(). */
static char *member_of(const char *path, const char *inside, size_t size)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    size_t whole = strlen(path) + size + 3;
    char *name = malloc(whole);
    if (!name)
        return NULL;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        snprintf(name, whole, "%s/%.*s", path, (int)size, inside);
    else
        snprintf(name, whole, "%.*s%.*s", slash ? (int)(slash + 1 - path) : 0, path, (int)size, inside);
    return name;
}

bool output_is_same(const char *output, const char *path, const char *inside, size_t size)
{
    struct stat out, in;
    if (strcmp(output, "-") == 0 || stat(output, &out) != 0 || !S_ISREG(out.st_mode))
        return false;
    char *name = inside ? member_of(path, inside, size) : strdup(path);
    bool same = name && stat(name, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino;
    free(name);
    return same;
}

bool output_is_part(const char *output, const ckpt_reader *reader)
{
    if (!reader)
        return false;
    const char *path = ckpt_reader_path(reader), *last = NULL;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        ckpt_str file = ckpt_reader_tensor(reader, i)->file;
        if (file.data && file.data != last && output_is_same(output, path, file.data, file.size))
            return true;
        last = file.data; /* neighbours mostly share it */
    }
    return false;
}

bool output_is_within(const char *output, const char *directory)
{
    struct stat st;
    if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode) || stat(output, &st) != 0)
        return false;
    char *file = realpath(output, NULL), *folder = realpath(directory, NULL);
    size_t n = folder ? strlen(folder) : 0;
    bool within =
        file && folder && strncmp(file, folder, n) == 0 && (file[n] == '/' || (n > 0 && folder[n - 1] == '/'));
    free(file);
    free(folder);
    return within;
}

bool output_is_stdout(const char *path)
{
    struct stat out, named;
    return strcmp(path, "-") == 0 ||
           (fstat(STDOUT_FILENO, &out) == 0 && stat(path, &named) == 0 && out.st_dev == named.st_dev &&
            out.st_ino == named.st_ino && out.st_rdev == named.st_rdev);
}

/* What a rename must name so that a link stays and its target is replaced; NULL with errno: no memory, or a link to
 * nothing, which is left alone. */
static char *target_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : strdup(path);
}

bool output_is_file(const char *path)
{
    struct stat st;
    return !output_is_stdout(path) && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The name that the target has from now on; not that of another file, unless that may be replaced. */
static bool publish(const char *temporary, const char *target, bool replace)
{
    if (replace)
        return rename(temporary, target) == 0;
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, target, RENAME_NOREPLACE) == 0)
        return true;
    if (errno != EINVAL && errno != ENOSYS)
        return false;
    return link(temporary, target) == 0 && unlink(temporary) == 0; /* a file system that cannot do it in one step */
}

int output_refuse(const cli *c, const char *path)
{
    return cli_fail(c, "exists", "%s: it is there already, and is not replaced without --force", path);
}

/* What any program's new file has. */
static bool take_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask) == 0;
}

int output_open(output_file *out, const cli *c, const char *path, bool replace)
{
    struct stat st;
    *out = (output_file){.cli = c, .path = path, .replace = replace, .fd = -1};
    bool here = output_is_stdout(path), direct = here || (stat(path, &st) == 0 && !S_ISREG(st.st_mode));
    if (here) { /* "/dev/stdout" may be a file that the shell made: never a name to rename to */
        out->fd = dup(STDOUT_FILENO);
    } else if (direct) {
        out->fd = open(path, O_WRONLY | O_CLOEXEC);
    } else if ((out->target = target_of(path)) && (out->temporary = malloc(strlen(out->target) + 16))) {
        cli_signals(); /* from here on there is something to remove */
        sprintf(out->temporary, "%s.tmp-XXXXXX", out->target);
        out->fd = mkostemp(out->temporary, O_CLOEXEC); /* 0600: nobody else opens it half written */
    }
    if (out->fd >= 0)
        return CLI_YES;
    int why = errno;
    free(out->temporary);
    free(out->target);
    return cli_fail_write(c, path, direct ? CLI_TO_DIRECT : CLI_TO_NAME, direct ? "cannot open" : "cannot create", why);
}

bool output_put(output_file *out, const char *data, size_t size)
{
    if (!out->why && !write_all(out->fd, data, size))
        out->why = errno;
    return !out->why;
}

int output_close(output_file *out, bool keep)
{
    const cli *c = out->cli;
    const cli_place place = output_is_stdout(out->path) ? CLI_TO_STDOUT : out->temporary ? CLI_TO_NAME : CLI_TO_DIRECT;
    bool written = keep && !out->why;
    int why = out->why;
    if (written && out->temporary && !take_mode(out->fd)) {
        why = errno;
        written = false;
    }
    if (close(out->fd) != 0 && written) {
        why = errno;
        written = false;
    }
    if (written && out->temporary && !publish(out->temporary, out->target, out->replace)) {
        why = errno;
        written = false;
    }
    if (!written && out->temporary)
        unlink(out->temporary);
    free(out->temporary);
    free(out->target);
    if (written)
        cli_written(out->path);
    if (written || !keep || cli_signal_caught())
        return written ? CLI_YES : CLI_NO_ANSWER; /* cli_finish dies by the signal */
    if (!out->replace && why == EEXIST)
        return output_refuse(c, out->path);
    return cli_fail_write(c, strcmp(out->path, "-") == 0 ? "standard output" : out->path, place, "cannot write", why);
}

int output_write(const cli *c, const char *path, bool replace, const char *head, size_t head_size, const char *data,
                 size_t size)
{
    output_file out;
    int status = output_open(&out, c, path, replace);
    if (status != CLI_YES)
        return status;
    if (output_put(&out, head, head_size))
        output_put(&out, data, size);
    return output_close(&out, true);
}
