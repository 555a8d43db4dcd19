/* migrate/target.c - DST as cp and mv have it: a directory gets a file of SRC's name; "-" is standard output, by way of a temporary,
 * for a file of a checkpoint is not written from front to back. */
#include "cli/migrate/target.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_in(const char *text, const char *tail)
{
    size_t n = strlen(text), k = strlen(tail);
    return n > k && strcmp(text + n - k, tail) == 0;
}

int target_check_source(const cli *c, const char *src)
{
    struct stat st;
    const bool here = stat(src, &st) == 0;
    if (strcmp(src, "-") == 0 && !here)
        return cli_usage(c, "-: SRC needs a seekable file, and standard input is none: write it to a file first");
    if (here && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISCHR(st.st_mode)))
        return cli_fail(c, "argument", "%s: it is a %s, and SRC needs a seekable file: write it to a file first", src,
                        S_ISCHR(st.st_mode) ? "device" : "pipe");
    return -1;
}

bool target_is_into(const char *dst)
{
    struct stat st;
    return ends_in(dst, "/") || (stat(dst, &st) == 0 && S_ISDIR(st.st_mode));
}

const char *target_same_format(const cli *c, const char *src)
{
    static const char *const same[][2] = {{"ckpt", "ckpt"},
                                          {"safetensors", "safetensors"},
                                          {"torch", "torch"},
                                          {"torch-legacy", "torch"},
                                          {"pickle", "torch"}};
    ckpt_reader *reader = cli_open(c, src);
    const char *to = NULL;
    for (size_t i = 0; reader && i < sizeof same / sizeof *same; i++)
        if (strcmp(ckpt_reader_format(reader), same[i][0]) == 0)
            to = same[i][1];
    if (reader && !to)
        cli_usage(c, "%s: files of the format %s are not written: give --to", src, ckpt_reader_format(reader));
    ckpt_reader_close(reader);
    return to;
}

/* "a.safetensors" of "run/a.pth" and safetensors; the name stays where its suffix is one of the format. */
static char *name_for(const char *folder, const char *src, const char *to)
{
    static const char *const torch[] = {".pt", ".pth", ".bin", ".ckpt"}, *const ours[] = {".safetensors"},
                             *const others[] = {".pkl", ".npz", ".h5", ".keras"};
    const bool is_torch = strcmp(to, "torch") == 0;
    const char *slash = strrchr(src, '/'), *name = slash ? slash + 1 : src, *suffix = is_torch ? ".pt" : ".safetensors";
    size_t n = strlen(name), bytes = strlen(folder) + n + 16;
    for (size_t i = 0; i < sizeof torch / sizeof *torch; i++)
        if (ends_in(name, torch[i])) {
            n -= is_torch ? 0 : strlen(torch[i]);
            suffix = is_torch ? "" : suffix;
            break;
        }
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ends_in(name, ours[i])) {
            n -= is_torch ? strlen(ours[i]) : 0;
            suffix = is_torch ? suffix : "";
        }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        n -= ends_in(name, others[i]) ? strlen(others[i]) : 0;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s%s%.*s%s", folder, ends_in(folder, "/") || strcmp(folder, "/") == 0 ? "" : "/", (int)n,
                 name, suffix);
    return path;
}

static int into(target *t, const cli *c, const char *src, const char *dst, const char *to)
{
    struct stat st;
    if (stat(src, &st) == 0 && S_ISDIR(st.st_mode))
        return cli_usage(c, "%s: DST is a directory and so is SRC: give a file name, or --to hf", dst);
    if (stat(dst, &st) != 0)
        return cli_fail(c, "system", "%s: there is no such directory", dst);
    t->path = t->made = name_for(dst, src, to);
    return t->made ? -1 : cli_fail(c, "no-memory", "out of memory");
}

static int to_standard_output(target *t, const command_line *o, const char *to)
{
    const cli *c = &o->cli;
    const char *where = getenv("TMPDIR");
    char folder[4096];
    if (c->json)
        return cli_usage(c, "-: --json and the checkpoint cannot both go to standard output");
    if (isatty(STDOUT_FILENO))
        return cli_usage(c, "-: binary data is not written to a terminal");
    cli_signals(); /* from here on there is something to remove */
    snprintf(folder, sizeof folder, "%s/ckpt-migrate.XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(folder))
        return cli_fail(c, "system", "%s: cannot create the folder of the temporary: %s (TMPDIR names another place)",
                        folder, strerror(errno));
    t->folder = strdup(folder);
    t->path = t->made = t->folder ? name_for(folder, "standard-output", to) : NULL;
    if (!t->made) {
        rmdir(folder);
        return cli_fail(c, "no-memory", "out of memory");
    }
    /* What is said goes to standard error from now on. */
    t->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (t->out < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return cli_fail(c, "system", "standard output: %s", strerror(errno));
    return -1;
}

int target_open(target *t, const command_line *o, const char *src, const char *dst, const char *to, bool folder)
{
    t->path = dst;
    if (strcmp(dst, "-") == 0 && folder)
        return cli_usage(&o->cli, "-: --to %s writes a directory, which standard output is not", to);
    if (strcmp(dst, "-") == 0 && !o->migrate.dry_run)
        return to_standard_output(t, o, to);
    return !folder && strcmp(dst, "-") != 0 && target_is_into(dst) ? into(t, &o->cli, src, dst, to) : -1;
}

int target_send(target *t, const cli *c)
{
    enum { PIECE = 1 << 20 };
    if (t->out < 0)
        return CLI_YES;
    char *piece = malloc(PIECE);
    int in = open(t->path, O_RDONLY | O_CLOEXEC), unread = in < 0 ? errno : 0, why = 0;
    ssize_t n = 0;
    if (!piece) {
        if (in >= 0)
            close(in);
        return cli_fail(c, "no-memory", "out of memory");
    }
    while (!why && !unread && !cli_signal_caught() && (n = read(in, piece, PIECE)) != 0) {
        if (n < 0)
            unread = errno == EINTR ? 0 : errno;
        for (ssize_t at = 0; !why && !cli_signal_caught() && at < n;) {
            ssize_t done = write(t->out, piece + at, (size_t)(n - at));
            at += done > 0 ? done : 0;
            why = done < 0 && errno != EINTR ? errno : 0;
        }
    }
    free(piece);
    if (in >= 0)
        close(in);
    if (close(t->out) != 0 && !why)
        why = errno;
    t->out = -1;
    if (cli_signal_caught())
        return CLI_NO_ANSWER; /* cli_finish dies by it */
    if (unread)
        return cli_fail(c, "system", "%s: cannot read the temporary: %s", t->path, strerror(unread));
    return why ? cli_fail_write(c, "standard output", CLI_TO_STDOUT, "cannot write", why) : CLI_YES;
}

void target_advise(const target *t, const cli *c, int why)
{
    if (t->folder && (why == ENOSPC || why == EDQUOT))
        cli_warn(c, "%s: the temporary of standard output is here: let TMPDIR name a folder with more space",
                 t->folder);
}

void target_close(target *t)
{
    if (t->folder) {
        unlink(t->path);
        rmdir(t->folder);
    }
    if (t->out >= 0)
        close(t->out);
    free(t->made);
    free(t->folder);
    *t = (target){.out = -1};
}
