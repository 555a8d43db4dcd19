/* out/options.c - the command line by the table of options: taking it in, and refusing what is not for the command. */
#include "cli/out/options.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = sizeof((command_line *)NULL)->given / sizeof(char *), EVERY = COMMAND(MIGRATE) - 1, LONG = 256 };

/* An option that says nothing without another one. */
static const struct need {
    unsigned commands;
    const char *option, *with;
} needs[] = {
    {COMMAND(LIST), "check", "checksum"}, {COMMAND(LIST), "param-names", "json"},
    {COMMAND(STATS), "by", "run"},        {COMMAND(STATS), "report", "run"},
    {COMMAND(SHOW), "values", "report"},  {COMMAND(MIGRATE), "layout-side", "layout"},
    {COMMAND(MIGRATE), "var", "layout"},
};

/* ---- taking it in */

/* The options of one program as getopt wants them: the value of a long one is LONG and its row, that of a short one its letter. */
typedef struct getopt_tables {
    struct option rows[ROWS_MAX + 1];
    char letters[2 * ROWS_MAX + 2];
} getopt_tables;

static void make_tables(getopt_tables *t, unsigned commands)
{
    size_t n = 0;
    char *letter = t->letters;
    memset(t, 0, sizeof *t);
    *letter++ = ':';
    for (size_t row = 0; row < option_count && n < ROWS_MAX; row++) {
        const option_row *r = &option_table[row];
        bool value = option_has_value(r);
        if (!(r->takes & commands))
            continue;
        t->rows[n++] = (struct option){r->name, value ? required_argument : no_argument, NULL, LONG + (int)row};
        if (r->letter)
            *letter++ = r->letter;
        if (r->letter && value)
            *letter++ = ':';
    }
}

static size_t row_of(int answer, unsigned commands)
{
    size_t row = 0;
    if (answer >= LONG)
        return (size_t)(answer - LONG);
    while (row < option_count && (option_table[row].letter != answer || !(option_table[row].takes & commands)))
        row++;
    return row;
}

/* Of most options the last one counts: one that was given before, and said otherwise, is named. */
static void warn_twice(const command_line *o, size_t row, const char *value)
{
    const option_row *r = &option_table[row];
    const char *before = o->given[row];
    if (value && before && r->kind != OPTION_LIST && strcmp(before, value) != 0)
        cli_warn(&o->cli, "--%s is given twice: '%s' counts, and '%s' does not", r->name, value, before);
}

/* The command that the line names, wherever; COMMAND_COUNT: none. */
static size_t command_in(const command_line *o)
{
    size_t command = COMMAND_COUNT;
    for (int i = 1; command == COMMAND_COUNT && i < o->typed_count && strcmp(o->typed[i], "--") != 0; i++)
        command = option_command_named(o->typed[i]);
    return command;
}

/* -1: go on, else the exit status. */
static int take(command_line *o, size_t row, const char *value, bool migrate)
{
    const option_row *r = &option_table[row];
    void *field = (char *)o + r->field;
    if (migrate)
        warn_twice(o, row, value);
    o->given[row] = value ? value : "";
    switch (r->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return -1;
    case OPTION_TEXT:
    case OPTION_CHOICE:
        *(const char **)field = value;
        return -1;
    case OPTION_LIST:
        return cli_list_add(field, value) ? -1 : cli_fail(&o->cli, "no-memory", "out of memory");
    case OPTION_HELP:
        return options_help(o, migrate, migrate ? COMMAND_COUNT : command_in(o));
    case OPTION_ABOUT:
        return cli_version(&o->cli);
    case OPTION_LATER:
        return cli_fail(&o->cli, "unsupported", "this version does not have --%s", r->name);
    default:
        ((option_value *)field)->text = value;
        return -1;
    }
}

int options_help(const command_line *o, bool migrate, size_t command)
{
    char *text = command < COMMAND_COUNT ? option_usage_of(command) : option_usage(migrate);
    int status = text ? cli_help(&o->cli, text) : cli_fail(&o->cli, "no-memory", "out of memory");
    free(text);
    return status;
}

/* --map_location, as Python has it: the words are the program's own, and may be written in. */
static void put_dashes(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        for (char *p = strncmp(argv[i], "--", 2) == 0 ? argv[i] : NULL; p && *p && *p != '='; p++)
            if (*p == '_')
                *p = '-';
}

/* An option of these commands that is nearly what was written; NULL: none is. */
static const char *option_meant(const char *word, unsigned commands)
{
    char name[40];
    size_t n = strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || n - 2 >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n - 2, word + 2);
    for (const option_row *r = option_table; r < option_table + option_count; r++)
        if (r->takes & commands && r->kind != OPTION_LATER && cli_is_close(name, r->name))
            return r->name;
    return NULL;
}

int options_parse(command_line *o, int argc, char **argv, bool migrate)
{
    const unsigned commands = migrate ? COMMAND(MIGRATE) : EVERY;
    int answer, status = -1;
    getopt_tables tables;
    make_tables(&tables, commands);
    put_dashes(argc, argv);
    opterr = 0;
    while (status < 0 && (answer = getopt_long(argc, argv, tables.letters, tables.rows, NULL)) != -1) {
        if (answer == '?' || answer == ':')
            status = cli_bad_option(&o->cli, answer, argv, option_meant(argv[optind - 1], commands));
        else if (optarg && !*optarg)
            status = cli_empty_value(&o->cli, argv);
        else
            status = take(o, row_of(answer, commands), optarg, migrate);
    }
    return status;
}

bool option_given(const command_line *o, const char *name)
{
    for (size_t row = 0; row < option_count; row++)
        if (o->given[row] && strcmp(option_table[row].name, name) == 0)
            return true;
    return false;
}

void options_free(command_line *o)
{
    for (size_t row = 0; row < option_count; row++)
        if (option_table[row].kind == OPTION_LIST) {
            cli_list *list = (cli_list *)(void *)((char *)o + option_table[row].field);
            free(list->items);
            *list = (cli_list){NULL, 0};
        }
    free(o->cli.about.items);
}

/* ---- refusing */

/* "show, list and diff" */
static void put_commands(char *out, size_t size, unsigned bits)
{
    size_t used = 0;
    *out = 0;
    for (size_t i = 0; i < COMMAND_COUNT && used < size; i++) {
        if (!(bits & 1u << i))
            continue;
        bits &= ~(1u << i);
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 !used  ? ""
                                 : bits ? ", "
                                        : " and ",
                                 command_table[i].name);
    }
}

static const char *command_name(const command_line *o)
{
    size_t i = 0;
    while (i + 1 < COMMAND_COUNT && !(o->command & 1u << i))
        i++;
    return command_table[i].name;
}

/* An option of another command. Of what nearly all have, those are named that do not. */
static int refuse_other(const command_line *o, const option_row *r)
{
    char names[120];
    unsigned takes = r->takes & EVERY, others = EVERY & ~takes;
    bool most = (others & ~(COMMAND(SCAN) | COMMAND(DIFF))) == 0;
    put_commands(names, sizeof names, most ? others : takes);
    return cli_usage(&o->cli, "%s has no option --%s (%s%s %s it)", command_name(o), r->name,
                     most ? "all commands but " : "", names, most || takes & (takes - 1) ? "have" : "has");
}

/* "a, b or c" of "a b c" */
static void put_choice(char *out, size_t size, const char *words)
{
    size_t used = 0;
    while (*words && used < size) {
        size_t n = strcspn(words, " "), rest = strlen(words + n);
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", !used ? "" : rest ? ", " : " or ", (int)n, words);
        words += n + (rest > 0);
    }
}

static bool is_word(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (const char *at = words; n && (at = strstr(at, value)); at += n)
        if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]))
            return !strchr(value, ' ');
    return false;
}

static int check_value(command_line *o, const option_row *r)
{
    void *field = (char *)o + r->field;
    char choice[200];
    if (r->kind == OPTION_CHOICE && !is_word(r->words, *(const char **)field)) {
        put_choice(choice, sizeof choice, r->words);
        return cli_usage(&o->cli, "--%s: unknown value '%s' (choose %s)", r->name, *(const char **)field, choice);
    }
    if (r->wanted && !option_value_read(r, field))
        return cli_usage(&o->cli, "--%s: '%s' is no %s", r->name, ((option_value *)field)->text, r->wanted);
    return -1;
}

int options_check(command_line *o)
{
    int status = -1;
    for (size_t row = 0; status < 0 && row < option_count; row++)
        if (o->given[row] && !(option_table[row].takes & o->command))
            status = refuse_other(o, &option_table[row]);
    for (size_t i = 0; status < 0 && i < sizeof needs / sizeof *needs; i++)
        if (o->command & needs[i].commands && option_given(o, needs[i].option) && !option_given(o, needs[i].with))
            status = cli_usage(&o->cli, "%s%s--%s is for --%s, which was not given",
                               o->command == COMMAND(MIGRATE) ? "" : command_name(o),
                               o->command == COMMAND(MIGRATE) ? "" : ": ", needs[i].option, needs[i].with);
    for (size_t row = 0; status < 0 && row < option_count; row++)
        if (o->given[row])
            status = check_value(o, &option_table[row]);
    if (status < 0 && o->cli.color && strcmp(o->cli.color, "auto") != 0)
        o->cli.colour = strcmp(o->cli.color, "always") == 0;
    return status;
}

int options_refuse_of_run(const command_line *o)
{
    for (size_t row = 0; row < option_count; row++)
        if (o->given[row] && option_table[row].takes & OPTION_OF_RUN)
            return cli_usage(&o->cli, "%s: --%s is for a run directory, which this is not (%s)", o->paths[0],
                             option_table[row].name, command_name(o));
    return -1;
}
