/* out/cli.c - options, errors, selection. */
#include "cli/out/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

bool cli_list_add(cli_list *list, const char *item)
{
    const char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return false;
    items[list->count++] = item;
    list->items = items;
    return true;
}

/* A closed standard stream would give its number to the next file opened, and text would go into that. What takes the
 * number fails as the closed one did. */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(CLI_NO_ANSWER);
}

/* A checkpoint may have thousands of files. The library does with fewer descriptors; the fewer, the slower. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void cli_init(cli *c, const char *program, int argc, char **argv)
{
    hold_standard_streams();
    raise_file_limit();
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of the write, which is said */
    memset(c, 0, sizeof *c);
    c->program = program;
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    c->colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = strlen(argv[i]); /* getopt takes --js as well */
        bool lines = n > 3 && n <= 8 && strncmp(argv[i], "--ndjson", n) == 0;
        c->json |= lines || (n > 2 && n <= 6 && strncmp(argv[i], "--json", n) == 0);
        if (lines)
            json_documents_as_lines();
    }
}

static int fail_text(const cli *c, const char *code, const char *hint, const char *text)
{
    if (c->json) {
        json_out j;
        json_document(&j);
        json_error(&j, code, text);
        json_end_object(&j);
    } else {
        fprintf(stderr, "%s: ", c->program);
        cli_put_wrapped(stderr, text, strlen(c->program) + 2, 4);
        fputs(hint, stderr);
    }
    return CLI_NO_ANSWER;
}

int cli_fail(const cli *c, const char *code, const char *format, ...)
{
    char text[1400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fail_text(c, code, "", text);
}

/* Does the text begin with the path, or with a file in it? */
static bool begins_with(const char *text, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n > 0 && strncmp(text, path, n) == 0 && (text[n] == 0 || text[n] == ':' || text[n] == '/');
}

/* What an error's object shows of a path: a long one is cut there. */
static bool is_cut_off(const char *object, const char *path)
{
    size_t n = strlen(object);
    return n > 240 && strcmp(object + n - 3, "...") == 0 && strncmp(object, path, n - 3) == 0;
}

/* As messages have it, for free(). */
static char *escaped(const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    cli_put(f, path, strlen(path));
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* Errors from deep inside name a record, a tensor, a byte; one who asked for many files needs the file. A wrong argument is
 * that of the command line. */
char *cli_error_text(const cli *c, const char *path, const ckpt_error *err)
{
    const char *begin = *err->object ? err->object : err->message;
    char *shown = path ? escaped(path) : NULL, *text = NULL;
    bool named =
        !path || err->status == CKPT_E_ARGUMENT || begins_with(begin, path) || (shown && begins_with(begin, shown));
    for (size_t i = 0; !named && i < c->about.count; i++)
        named = begins_with(begin, c->about.items[i]);
    const char *object = shown && is_cut_off(err->object, shown) ? "" : err->object;
    int n = asprintf(&text, "%s%s%s%s%s",
                     named   ? ""
                     : shown ? shown
                             : path,
                     named ? "" : ": ", object, *object ? ": " : "", err->message);
    free(shown);
    return n < 0 ? NULL : text;
}

int cli_fail_error_of(const cli *c, const char *path, const ckpt_error *err)
{
    if (err->status == CKPT_E_CANCELLED && cli_signal_caught())
        return CLI_NO_ANSWER; /* who pressed Ctrl-C knows; cli_finish dies by it */
    char *text = cli_error_text(c, path, err);
    int status = fail_text(c, ckpt_status_name(err->status), "", text ? text : err->message);
    free(text);
    return status;
}

int cli_fail_error(const cli *c, const ckpt_error *err)
{
    return cli_fail_error_of(c, c->about.count ? c->about.items[0] : NULL, err);
}

void cli_json_error(const cli *c, json_out *j, const char *code, const char *message)
{
    char *path = c->about.count ? escaped(c->about.items[0]) : NULL, *text = NULL;
    if (path && !begins_with(message, path) && asprintf(&text, "%s: %s", path, message) < 0)
        text = NULL;
    json_error(j, code, text ? text : message);
    free(text);
    free(path);
}

int cli_usage(const cli *c, const char *format, ...)
{
    char text[1400], hint[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(hint, sizeof hint, "Try '%s --help'.\n", c->program);
    return fail_text(c, "usage", hint, text);
}

void cli_warn(const cli *c, const char *format, ...)
{
    char text[1400];
    va_list arguments;
    if (c->quiet)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s: ", c->program);
    cli_put_wrapped(stderr, text, strlen(c->program) + 2, 4);
}

/* What to do about it, as a message ends; "" where that is not known. */
static const char *write_advice(cli_place place, int why)
{
    static const char *const full[] = {
        [CLI_TO_NAME] = " (free space or choose another disk; what was there before is untouched)",
        [CLI_TO_DIRECT] = " (free space or choose another place; what is there now is not whole)",
        [CLI_TO_STDOUT] = " (free space or send it elsewhere; what has arrived there is not whole)"};
    static const char *const denied[] = {
        [CLI_TO_NAME] = " (the directory must be writable: the file is written beside its name and then renamed)",
        [CLI_TO_DIRECT] = " (it must be writable: choose another place, or change its permissions)",
        [CLI_TO_STDOUT] = ""};
    return why == ENOSPC || why == EDQUOT                  ? full[place]
           : why == EACCES || why == EPERM || why == EROFS ? denied[place]
           : why == EFBIG                                  ? " (the limit on file sizes, ulimit -f, is too small)"
                                                           : "";
}

int cli_fail_write(const cli *c, const char *object, cli_place place, const char *what, int why)
{
    return cli_fail(c, "system", "%s: %s: %s%s", object, what, strerror(why), write_advice(place, why));
}

static const char *complete;

void cli_written(const char *path)
{
    complete = path;
}

int cli_finish(const cli *c, int status)
{
    errno = 0;
    bool said = fflush(stdout) == 0 && !ferror(stdout);
    int why = errno;
    if (!said && !why && write(STDOUT_FILENO, "\n", 1) < 0) /* an earlier write failed: what is there is not whole */
        why = errno;
    cli_width_free();
    cli_signals_reraise();
    if (said)
        return status;
    fprintf(stderr, "%s: ", c->program);
    if (complete) {
        cli_put(stderr, complete, strlen(complete));
        fputs(" is complete; only this report could not be written: ", stderr);
    }
    fprintf(stderr, "standard output: cannot write: %s%s\n", why ? strerror(why) : "an earlier write failed",
            write_advice(CLI_TO_STDOUT, why));
    return CLI_NO_ANSWER;
}

int cli_bad_option(const cli *c, int answer, char **argv, const char *meant)
{
    const char *word = argv[optind - 1];
    if (answer == ':')
        return cli_usage(c, "option '%s' needs a value", word);
    if (optopt && optopt < 256 && strncmp(word, "--", 2) != 0)
        return cli_usage(c, "unknown option '-%c'", optopt);
    if (meant)
        return cli_usage(c, "unknown option '%s'; did you mean '--%s'?", word, meant);
    return cli_usage(c, "unknown or ambiguous option '%s'", word);
}

int cli_empty_value(const cli *c, char **argv)
{
    const char *word = argv[optind - 1]; /* "--to=", or the value of the word before */
    return cli_usage(
        c, "option '%s' has an empty value (a variable that is not set?): give it one, or leave the option out",
        *word ? word : argv[optind - 2]);
}

bool cli_is_close(const char *word, const char *name)
{
    enum { LONGEST = 24, LONG = 6 };
    size_t n = strlen(word), m = strlen(name);
    size_t d[LONGEST + 1][LONGEST + 1];
    if (n < 3 || n > LONGEST || m > LONGEST)
        return false;
    for (size_t i = 0; i <= n; i++)
        for (size_t k = 0; k <= m; k++) {
            if (i == 0 || k == 0) {
                d[i][k] = i + k;
                continue;
            }
            size_t best = d[i - 1][k - 1] + (word[i - 1] != name[k - 1]);
            best = d[i - 1][k] + 1 < best ? d[i - 1][k] + 1 : best;
            best = d[i][k - 1] + 1 < best ? d[i][k - 1] + 1 : best;
            if (i > 1 && k > 1 && word[i - 1] == name[k - 2] && word[i - 2] == name[k - 1] &&
                d[i - 2][k - 2] + 1 < best)
                best = d[i - 2][k - 2] + 1;
            d[i][k] = best;
        }
    return d[n][m] <= (n < LONG ? 1 : 2);
}

int cli_help(const cli *c, const char *text)
{
    if (c->json) {
        json_out j;
        json_document(&j);
        json_text(&j, "program", c->program);
        json_text(&j, "help", text);
        json_end_object(&j);
    } else {
        fputs(text, stdout);
    }
    return CLI_YES;
}

int cli_version(const cli *c)
{
    if (c->json) {
        json_out j;
        json_document(&j);
        json_text(&j, "program", c->program);
        json_text(&j, "version", ckpt_version());
        json_text(&j, "build", ckpt_build_info());
        json_end_object(&j);
    } else {
        printf("%s %s\n%s\n", c->program, ckpt_version(), ckpt_build_info());
    }
    return CLI_YES;
}

ckpt_reader *cli_open_quietly(const cli *c, const char *path, ckpt_error *err)
{
    ckpt_reader *reader = NULL;
    ckpt_reader_options options = {.struct_size = sizeof options,
                                   .format = c->from,
                                   .also = (const char *const *)c->also,
                                   .also_count = (size_t)c->also_count,
                                   .leave_large = c->leave_large,
                                   .leave_damaged = c->leave_damaged};
    return ckpt_reader_open(path, &options, &reader, err) == CKPT_OK ? reader : NULL;
}

ckpt_reader *cli_open(const cli *c, const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = cli_open_quietly(c, path, &err);
    if (!reader)
        cli_fail_error_of(c, path, &err);
    return reader;
}

ckpt_report *cli_unchecked(const cli *c, const ckpt_reader *reader)
{
    uint64_t of, bytes = ckpt_reader_unchecked(reader, &of, NULL);
    char some[CLI_SIZE_MAX], all[CLI_SIZE_MAX];
    if (!bytes)
        return NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_reader_unchecked(reader, NULL, report);
    cli_warn(c,
             "bytes-unchecked: %s of %s read were not checked against the CRC-32 of the whole; --check all reads that",
             cli_size(some, bytes), cli_size(all, of));
    return report;
}
