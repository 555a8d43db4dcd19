/* completion/generate.c - what is made of the table of options while the programs are built. `fill` copies a template from standard
 * input, and a line of it that is @NAME@ gives way to what NAME stands for; `synopsis` and `options` [migrate] are for the man
 * pages and the tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/out/options.h"

enum { INSPECT = COMMAND(MIGRATE) - 1, MIGRATE = COMMAND(MIGRATE) };

static bool is_of(const option_row *r, unsigned commands)
{
    return (r->takes & commands) && r->kind != OPTION_LATER;
}

#define EACH(r) (const option_row *r = option_table; r < option_table + option_count; r++)

/* Two rows of one name are one word to a shell. */
static bool is_first(const option_row *r)
{
    for (const option_row *before = option_table; before < r; before++)
        if (strcmp(before->name, r->name) == 0)
            return false;
    return true;
}

/* ---- bash */

static void put_names(const char *variable, unsigned commands)
{
    printf("%s='", variable);
    const char *between = "";
    for
        EACH(r)
    if (is_of(r, commands)) {
        printf("%s--%s", between, r->name);
        between = " ";
    }
    puts("'");
}

static void bash_names(void)
{
    put_names("__ckpt_inspect_options", INSPECT);
    put_names("__ckpt_migrate_options", MIGRATE);
    printf("__ckpt_commands='");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("%s%s", i ? " " : "", command_table[i].name);
    puts("'");
}

/* An arm of `case $option` for each: the words that complete it, or the way to find them. */
static void bash_values(void)
{
    for
        EACH(r)
        {
            if (!option_has_value(r) || !is_first(r))
                continue;
            printf("    --%s", r->name);
            if (r->letter)
                printf(" | -%c", r->letter);
            if (!r->words)
                puts(") ;;");
            else if (*r->words == '@')
                printf(") __ckpt_complete_%s \"$option\" \"$current\" \"$begin\" ;;\n", r->words + 1);
            else
                printf(") list='%s' ;;\n", r->words);
        }
}

/* ---- zsh */

/* The words behind which no checkpoint stands. */
static void zsh_with_value(void)
{
    const char *between = "";
    printf("    local with_value='");
    for
        EACH(r)
    if (option_has_value(r) && is_first(r)) {
        printf("%s--%s", between, r->name);
        between = "|";
        if (r->letter)
            printf("|-%c", r->letter);
    }
    puts("'");
}

/* As a double-quoted word of _arguments: a colon ends a part of it. */
static void put_zsh(const char *text)
{
    for (; *text; text++)
        printf(strchr(":\"$`\\", *text) ? "\\%c" : "%c", *text);
}

static void zsh_specs(const char *variable, unsigned commands)
{
    printf("    %s=(\n", variable);
    for
        EACH(r)
        {
            if (!is_of(r, commands))
                continue;
            printf("        ");
            if (r->letter)
                printf("'(-%c --%s)'{-%c,--%s}", r->letter, r->name, r->letter, r->name);
            printf("\"%s", r->letter ? "" : r->kind == OPTION_LIST ? "*--" : "--");
            fputs(r->letter ? "" : r->name, stdout);
            putchar('[');
            put_zsh(r->help);
            putchar(']');
            if (option_has_value(r)) {
                putchar(':');
                put_zsh(r->argument ? r->argument : "one of");
                putchar(':');
            }
            if (r->words && *r->words == '@')
                printf(strcmp(r->words, "@files") == 0 ? "_%s" : "_ckpt_%s", r->words + 1);
            else if (r->words) {
                putchar('(');
                put_zsh(r->words);
                putchar(')');
            }
            puts("\"");
        }
    puts("    )");
}

static void zsh_commands(void)
{
    puts("    verbs=(");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("        '%s:%s'\n", command_table[i].name, command_table[i].help);
    puts("    )");
}

static void zsh_all(void)
{
    zsh_specs("inspect_options", INSPECT);
    zsh_specs("migrate_options", MIGRATE);
    zsh_commands();
}

static int fill(void)
{
    static const struct {
        const char *name;
        void (*put)(void);
    } rows[] = {
        {"@NAMES@", bash_names}, {"@VALUES@", bash_values}, {"@WITH_VALUE@", zsh_with_value}, {"@OPTIONS@", zsh_all}};
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        const char *word = line + strspn(line, " ");
        size_t i = 0, n = strcspn(word, "\n");
        while (i < sizeof rows / sizeof *rows && (strlen(rows[i].name) != n || memcmp(word, rows[i].name, n) != 0))
            i++;
        if (i < sizeof rows / sizeof *rows)
            rows[i].put();
        else
            fputs(line, stdout);
    }
    return ferror(stdin) != 0;
}

/* ---- man pages and tests */

/* What every command has but scan and diff. */
static bool is_common(const option_row *r)
{
    const unsigned common = INSPECT & ~(COMMAND(SCAN) | COMMAND(DIFF));
    return (r->takes & common) == common;
}

/* "[--tensor GLOB]..." in roff. */
static void put_option(const option_row *r)
{
    char head[120], *name = head;
    option_head(r, head, sizeof head);
    name += r->letter ? 4 : 0;
    char *value = strchr(name, ' ');
    fputs(".RB [ ", stdout);
    for (; *name && name != value; name++)
        printf(*name == '-' ? "\\-" : "%c", *name);
    if (value)
        printf(r->argument ? "\\~\\fI%s\\fR" : "\\~%s", value + 1);
    puts(r->kind == OPTION_LIST ? " ]...\\&" : " ]");
}

/* One form of the synopsis: the program, its options that are `common` or that only some have, the operands. */
static void put_form(const char *program, unsigned commands, bool common, const char *operands)
{
    printf(".SY %s\n", program);
    for
        EACH(r)
    if (is_of(r, commands) && r->letter != 'o' && is_common(r) == common)
        put_option(r);
    printf(".I %s\n.YS\n", operands);
}

static void synopses(bool migrate)
{
    char program[80];
    if (migrate) {
        printf(".SY ckpt\\-migrate\n");
        for
            EACH(r)
        if (is_of(r, MIGRATE))
            put_option(r);
        puts(".I SRC\\fR...\\fI DST\n.YS");
        return;
    }
    put_form("ckpt\\-inspect\n.RI [ COMMAND ]", INSPECT, true, "PATH\\fR...");
    for (unsigned i = 0; i < COMMAND_COUNT; i++) {
        const char *operands = 1u << i == COMMAND(DIFF)      ? "A B"
                               : 1u << i == COMMAND(EXTRACT) ? "PATH NAME\\fR... \\fB\\-o\\fI FILE"
                                                             : "PATH\\fR...";
        snprintf(program, sizeof program, "ckpt\\-inspect\\ %s", command_table[i].name);
        put_form(program, 1u << i, false, operands);
    }
}

/* NAME VALUE COMMAND...: "-" where it takes no value. */
static void options(bool migrate)
{
    char head[120];
    for
        EACH(r)
        {
            if (!is_of(r, migrate ? MIGRATE : INSPECT))
                continue;
            option_head(r, head, sizeof head);
            const char *value = strchr(r->letter ? head + 4 : head, ' ');
            printf("%s %s", r->name, value ? value + 1 : "-");
            for (size_t i = 0; i < COMMAND_COUNT && !migrate; i++)
                if (r->takes & 1u << i)
                    printf(" %s", command_table[i].name);
            putchar('\n');
        }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    bool migrate = argc > 2 && strcmp(argv[2], "migrate") == 0;
    int status = 0;
    if (strcmp(what, "fill") == 0)
        status = fill();
    else if (strcmp(what, "synopsis") == 0)
        synopses(migrate);
    else if (strcmp(what, "options") == 0)
        options(migrate);
    else
        status = 2;
    return fflush(stdout) != 0 || ferror(stdout) ? 1 : status;
}
