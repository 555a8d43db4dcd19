/* inspect/main.c - ckpt-inspect: looks at checkpoints, never writes one. */
#include "cli/inspect/inspect.h"
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/many.h"
#include "cli/inspect/newest.h"
#include "cli/inspect/run.h"
#include "cli/out/options.h"
#include "cli/inspect/watch.h"

/* The commands by COMMAND_x; option_table.c has their names. */
static const struct command {
    int (*run)(const command_line *o);
    int paths;
    int (*run_directory)(const run_view *v); /* NULL: its newest checkpoint is read (newest.h) */
} commands[COMMAND_COUNT] = {
    [COMMAND_SHOW] = {inspect_show, 1, run_show},       [COMMAND_LIST] = {inspect_list, 1, NULL},
    [COMMAND_TREE] = {inspect_tree, 1, NULL},           [COMMAND_VERIFY] = {inspect_verify, 1, run_verify},
    [COMMAND_DOCTOR] = {inspect_doctor, 1, run_doctor}, [COMMAND_EXTRACT] = {inspect_extract, 1, NULL},
    [COMMAND_STATS] = {inspect_stats, 1, NULL},         [COMMAND_DIFF] = {inspect_diff, 2, NULL},
    [COMMAND_SCAN] = {inspect_scan, 1, NULL},
};

enum {
    SEVERAL = COMMAND(VERIFY) | COMMAND(DOCTOR) | COMMAND(SCAN) | COMMAND(SHOW)
}; /* those that take several PATHs */

/* No command was named: was one meant? -1: no, the words are PATHs. */
static int guess(const command_line *o)
{
    const cli *c = &o->cli;
    const char *first = o->path_count ? o->paths[0] : "", *last = o->path_count ? o->paths[o->path_count - 1] : "";
    struct stat st;
    if (strcmp(first, "help") == 0 && lstat(first, &st) != 0)
        return options_help(o, false, o->path_count > 1 ? option_command_named(o->paths[1]) : COMMAND_COUNT);
    if (o->path_count > 1 && option_command_named(last) < COMMAND_COUNT && lstat(last, &st) != 0)
        return cli_usage(c, "the command comes before its PATHs: ckpt-inspect %s %s", last, first);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (*first && cli_is_close(first, command_table[i].name) && lstat(first, &st) != 0)
            return cli_usage(c, "'%s' is neither a command nor a file; did you mean '%s'?", first,
                             command_table[i].name);
    return -1;
}

/* Options may stand anywhere before "--"; what stands behind it is never a command. */
static int parse(command_line *o, int argc, char **argv, size_t *command)
{
    int behind = 1;
    while (behind < argc && strcmp(argv[behind], "--") != 0)
        behind++;
    *command = COMMAND_COUNT;
    int status = options_parse(o, argc, argv, false);
    if (status >= 0)
        return status;
    o->paths = argv + optind;
    o->path_count = argc - optind;
    bool only_behind = behind < argc && o->path_count == argc - behind - 1;
    if (o->path_count > 0 && !only_behind)
        *command = option_command_named(o->paths[0]);
    if (*command < COMMAND_COUNT) {
        o->paths++;
        o->path_count--;
    } else {
        status = only_behind ? -1 : guess(o);
        *command = COMMAND_SHOW;
    }
    o->command = 1u << *command;
    return status;
}

/* What errors may begin with: the PATHs first. False: out of memory. */
static bool name_paths(command_line *o)
{
    const char *const files[] = {o->map_location, o->param_names};
    bool ok = true;
    for (int i = 0; i < o->path_count; i++)
        ok &= cli_list_add(&o->cli.about, o->paths[i]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        ok &= !files[i] || cli_list_add(&o->cli.about, files[i]);
    return ok;
}

/* What stands behind the PATH is a NAME; with --one the last operand alone. */
static void take_names(command_line *o)
{
    o->name_count = o->one ? 1 : o->path_count - 1;
    o->path_count -= o->name_count;
    o->names = o->paths + o->path_count;
}

/* The PATHs, and the NAMEs of extract. -1: they fit the command. */
static int take_paths(command_line *o, size_t command)
{
    const cli *c = &o->cli;
    const int paths = commands[command].paths;
    struct stat st;
    for (int i = 0; i < o->path_count; i++)
        if (strcmp(o->paths[i], "-") == 0 && lstat("-", &st) != 0)
            return cli_usage(c, "-: PATH needs a seekable file, and standard input is none: write it to a file first");
    if (o->path_count == 0)
        return cli_usage(c, "%s: missing operand: PATH", command_table[command].name);
    if (command == COMMAND_EXTRACT && o->path_count < 2)
        return cli_usage(c, "extract: missing operand: NAME (extract PATH NAME... -o FILE)");
    if (command == COMMAND_EXTRACT)
        take_names(o);
    if (command == COMMAND_DIFF && o->path_count < 2)
        return cli_usage(c, "diff: missing operand: A and B are two PATHs");
    if (o->path_count > paths && !o->one && !(o->command & SEVERAL))
        return cli_usage(c, "%s takes %s; unexpected argument '%s'", command_table[command].name,
                         paths == 2 ? "two PATHs" : "one PATH", o->paths[paths]);
    if (o->one) { /* the further PATHs go with the first */
        o->cli.also = o->paths + 1;
        o->cli.also_count = o->path_count - paths;
    }
    return name_paths(o) ? -1 : cli_fail(c, "no-memory", "out of memory");
}

static int answer(const command_line *o, size_t command)
{
    run_view view;
    if (!commands[command].run_directory) /* scan: all files, whatever they are */
        return commands[command].run(o);
    int status = run_view_open(o, &view);
    if (status == CLI_YES)
        status = options_refuse_of_run(o);
    else if (status < 0)
        status = commands[command].run_directory(&view);
    else
        return status;
    run_view_close(&view);
    return status < 0 ? commands[command].run(o) : status;
}

static int answer_all(const command_line *o, size_t command)
{
    return o->command & SEVERAL && !o->one ? many_answer(o, command, answer) : answer(o, command);
}

static int run(command_line *o, int argc, char **argv)
{
    size_t command;
    int status = parse(o, argc, argv, &command);
    if (status < 0)
        status = options_check(o);
    if (status < 0 && o->cli.markdown && (o->cli.json || o->pieces))
        status = cli_usage(&o->cli, "%s: --markdown goes without --%s", command_table[command].name,
                           o->cli.json ? "json" : "pieces");
    if (status < 0)
        status = take_paths(o, command);
    if (status >= 0)
        return status;
    const unsigned in_part = COMMAND(LIST) | COMMAND(EXTRACT) | COMMAND(STATS) | COMMAND(DIFF); /* as --check has it */
    o->cli.leave_large = !(o->check && strcmp(o->check, "all") == 0) && (o->command & in_part);
    /* A program that reads each file itself fails in the damaged one. */
    bool reads_all = o->loader && strcmp(o->loader, "accelerate") != 0 && strcmp(o->loader, "hf-trainer") != 0;
    o->cli.leave_damaged = command == COMMAND_LIST || (command == COMMAND_DOCTOR && !reads_all);
    if (!cli_selection_check(&o->cli))
        return CLI_NO_ANSWER;
    return o->watch ? watch_show(o, command, answer_all) : answer_all(o, command);
}

int main(int argc, char **argv)
{
    command_line o;
    memset(&o, 0, sizeof o);
    signal(SIGPIPE, SIG_DFL); /* `| head` ends us without a word, even below a parent that ignores SIGPIPE */
    cli_init(&o.cli, "ckpt-inspect", argc, argv);
    if ((o.typed = calloc((size_t)argc + 1, sizeof *o.typed))) {
        memcpy(o.typed, argv, (size_t)argc * sizeof *argv);
        o.typed_count = argc;
    }
    int status = run(&o, argc, argv);
    newest_free();
    free(o.typed);
    options_free(&o);
    return cli_finish(&o.cli, status);
}
