/* cli.c - options, errors, selection. */
#include "cli.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
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

void cli_init(cli *c, const char *program, int argc, char **argv)
{
    hold_standard_streams();
    memset(c, 0, sizeof *c);
    c->program = program;
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    c->colour = isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && terminal && strcmp(terminal, "dumb") != 0;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t n = strlen(argv[i]);             /* getopt takes --js as well */
        if (n > 2 && n <= 6 && strncmp(argv[i], "--json", n) == 0)
            c->json = true;
    }
}

void cli_free(cli *c)
{
    free(c->tensors.items);
    free(c->roles.items);
    free(c->devices.items);
}

static int fail_text(const cli *c, const char *code, const char *hint, const char *text)
{
    if (c->json) {
        json_out j;
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_int(&j, "ckpt", 1);
        json_object(&j, "error");
        json_text(&j, "code", code);
        json_text(&j, "message", text);
        json_end_object(&j);
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

int cli_fail_error(const cli *c, const ckpt_error *err)
{
    char text[1200];
    snprintf(text, sizeof text, "%s%s%s", err->object, err->object[0] ? ": " : "", err->message);
    return fail_text(c, ckpt_status_name(err->status), "", text);
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

int cli_finish(const cli *c, int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    int why = errno;
    fprintf(stderr, "%s: standard output: cannot write: %s\n", c->program, why ? strerror(why) : "an earlier write failed");
    return CLI_NO_ANSWER;
}

int cli_bad_option(const cli *c, int answer, char **argv)
{
    const char *word = argv[optind - 1];
    if (answer == ':')
        return cli_usage(c, "option '%s' needs a value", word);
    if (optopt && optopt < 256 && strncmp(word, "--", 2) != 0)
        return cli_usage(c, "unknown option '-%c'", optopt);
    return cli_usage(c, "unknown or ambiguous option '%s'", word);
}

int cli_empty_value(const cli *c, char **argv)
{
    const char *word = argv[optind - 1];      /* "--to=", or the value of the word before */
    return cli_usage(c, "option '%s' has an empty value (a variable that is not set?): give it one, or leave the option out",
                     *word ? word : argv[optind - 2]);
}

int cli_help(const cli *c, const char *text)
{
    if (c->json) {
        json_out j;
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_int(&j, "ckpt", 1);
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
        json_init(&j, stdout);
        json_object(&j, NULL);
        json_int(&j, "ckpt", 1);
        json_text(&j, "program", c->program);
        json_text(&j, "version", ckpt_version());
        json_text(&j, "build", ckpt_build_info());
        json_end_object(&j);
    } else {
        printf("%s %s\n%s\n", c->program, ckpt_version(), ckpt_build_info());
    }
    return CLI_YES;
}

/* `*` crosses dots, `?` is one byte, `\` escapes; everything else is literal. Linear but for the last star. */
static bool glob(const char *p, const char *text, size_t size)
{
    const char *star = NULL;
    size_t i = 0, resume = 0;
    while (i < size) {
        if (*p == '*') {
            star = ++p;
            resume = i;
        } else if (*p == '?' || (*p && *p != '\\' && *p == text[i]) || (*p == '\\' && p[1] && p[1] == text[i])) {
            p += *p == '\\' ? 2 : 1;
            i++;
        } else if (star) {
            p = star;
            i = ++resume;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

static bool matches(const char *pattern, ckpt_str s)
{
    if (pattern[0] == '=')
        return s.size == strlen(pattern + 1) && memcmp(s.data, pattern + 1, s.size) == 0;
    return glob(pattern, s.data, s.size);
}

static bool any_matches(const cli_list *list, ckpt_str s)
{
    if (list->count == 0)
        return true;
    for (size_t i = 0; s.data && i < list->count; i++)
        if (matches(list->items[i], s))
            return true;
    return false;
}

bool cli_has_selection(const cli *c)
{
    return c->tensors.count || c->roles.count || c->devices.count;
}

bool cli_selection_check(const cli *c)
{
    for (size_t i = 0; i < c->roles.count; i++) {
        if (ckpt_role_from_name(c->roles.items[i]) != CKPT_ROLE_NONE || strcmp(c->roles.items[i], "none") == 0)
            continue;
        char names[400] = "";
        for (int role = 1; role < CKPT_ROLE_COUNT; role++) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", ckpt_role_name((ckpt_role)role));
        }
        cli_usage(c, "--role: there is no role '%s'; roles are %s, none", c->roles.items[i], names);
        return false;
    }
    return true;
}

bool cli_selected(const cli *c, const ckpt_tensor_info *t)
{
    if (!cli_has_selection(c))
        return true;
    const char *role = ckpt_role_name(t->role);
    ckpt_str role_text = {role, strlen(role)};
    return any_matches(&c->tensors, t->name) && any_matches(&c->devices, t->device) &&
           any_matches(&c->roles, role_text);
}

void cli_warn_selection(const cli *c, const ckpt_reader *reader)
{
    size_t count = ckpt_reader_tensor_count(reader);
    for (size_t i = 0; i < count; i++)
        if (cli_selected(c, ckpt_reader_tensor(reader, i)))
            return;
    if (cli_has_selection(c) && count > 0)
        cli_warn(c, "--tensor, --role and --device select none of the %zu tensor%s", count, count == 1 ? "" : "s");
}

ckpt_reader *cli_open(const cli *c, const char *path)
{
    ckpt_reader *reader = NULL;
    ckpt_reader_options options = {.format = c->from, .also = (const char *const *)c->also, .also_count = (size_t)c->also_count,
                                   .leave_large = c->leave_large, .leave_damaged = c->leave_damaged};
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt_reader_open(path, &options, &reader, &err) == CKPT_OK)
        return reader;
    cli_fail_error(c, &err);
    return NULL;
}

ckpt_report *cli_unchecked(const cli *c, const ckpt_reader *reader)
{
    uint64_t of, bytes = ckpt_reader_unchecked(reader, &of, NULL);
    char some[CLI_SIZE_MAX], all[CLI_SIZE_MAX];
    if (!bytes)
        return NULL;
    ckpt_report *report = ckpt_report_new();
    ckpt_reader_unchecked(reader, NULL, report);
    cli_warn(c, "bytes-unchecked: %s of %s read were not checked against the CRC-32 of the whole; --check all reads that",
             cli_size(some, bytes), cli_size(all, of));
    return report;
}
