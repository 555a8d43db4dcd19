/* out/usage.c - --help, made of the tables of options and commands. It fits a screen of 24 lines and 80 columns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/out/options.h"

enum { COLUMNS = 80, HEAD_MAX = 120 };

bool option_has_value(const option_row *r)
{
    return r->argument || r->words;
}

void option_head(const option_row *r, char *out, size_t size)
{
    int n = r->letter ? snprintf(out, size, "-%c, --%s", r->letter, r->name) : snprintf(out, size, "--%s", r->name);
    size_t at = (size_t)n;
    if (option_has_value(r))
        snprintf(out + at, size - at, " %s", r->argument ? r->argument : r->words);
    for (char *p = out + at + 1; out[at] && !r->argument && *p; p++)
        *p = *p == ' ' ? '|' : *p;
}

/* Options that go together in a line, then the text on them. */
static void put_lines(FILE *f, unsigned commands, size_t column)
{
    char head[HEAD_MAX];
    size_t used = 0;
    for (const option_row *r = option_table; r < option_table + option_count; r++) {
        if (!(r->takes & commands) || r->kind == OPTION_LATER)
            continue;
        option_head(r, head, sizeof head);
        used += (size_t)fprintf(f, "%s%s", used ? ", " : r->letter || column > 30 ? "  " : "      ", head);
        if (!r->usage)
            continue;
        fprintf(f, "%*s%s\n", used + 2 < column ? (int)(column - used) : 3, "", r->usage);
        used = 0;
    }
}

/* Nearly every command has it. */
static bool is_common(const option_row *r)
{
    const unsigned all = COMMAND(MIGRATE) - 1;
    return ((r->takes & all) | COMMAND(SCAN) | COMMAND(DIFF)) == all;
}

/* An option a line, and its text, in one column. */
static void put_rows(FILE *f, unsigned commands, bool common)
{
    enum { WIDEST = 30 };
    char head[HEAD_MAX];
    size_t column = 0;
    for (int pass = 0; pass < 2; pass++)
        for (const option_row *r = option_table; r < option_table + option_count; r++) {
            if (!(r->takes & commands) || r->kind == OPTION_LATER || is_common(r) != common)
                continue;
            option_head(r, head, sizeof head);
            size_t used = strlen(head) + (r->letter ? 2 : 6);
            if (pass == 0)
                column = used > column && used <= WIDEST ? used : column;
            else
                fprintf(f, "%s%s%*s%s\n", r->letter ? "  " : "      ", head,
                        used <= column ? (int)(column - used) + 2 : 2, "", r->help);
        }
}

char *option_usage(bool migrate)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    if (migrate) {
        fputs("Usage: ckpt-migrate [OPTION]... SRC... DST\n"
              "Writes the checkpoint SRC as DST, which appears whole or not at all.\n",
              f);
        put_lines(f, COMMAND(MIGRATE), 34);
        fputs("Exit status: 0 done; 1 done, and something was not recovered (--salvage); 2 not\n"
              "done (usage, not a checkpoint, cannot be read, a loss without --lossy, ...).\n",
              f);
    } else {
        fputs("Usage: ckpt-inspect [COMMAND] [OPTION]... PATH...\n"
              "Says what checkpoints (files or directories) hold, and runs nothing of them.\n\n",
              f);
        for (size_t i = 0; i < COMMAND_COUNT; i++)
            fprintf(f, "  %-9s %s\n", command_table[i].name, command_table[i].help);
        putc('\n', f);
        put_rows(f, COMMAND(MIGRATE) - 1, true);
        fputs("\nckpt-inspect COMMAND --help has the options of a command, and an example.\n"
              "Exit status: 0 yes, 1 no (damaged, different, would not resume), 2 no answer.\n",
              f);
    }
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

char *option_usage_of(size_t command)
{
    const command_row *row = &command_table[command];
    char *text = NULL;
    size_t size = 0;
    const char *between = " ";
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fprintf(f, "Usage: ckpt-inspect %s [OPTION]...%s\n%s\nExample: %s\n\n", row->name, row->operands, row->help,
            row->example);
    put_rows(f, 1u << command, false);
    size_t used = (size_t)fprintf(f, "Also:");
    for (const option_row *r = option_table; r < option_table + option_count; r++) {
        char head[HEAD_MAX];
        if (!(r->takes & 1u << command) || !is_common(r))
            continue;
        option_head(r, head, sizeof head);
        if (used + strlen(head) + 3 > COLUMNS)
            used = (size_t)fprintf(f, ",\n      %s", head) - 2;
        else
            used += (size_t)fprintf(f, "%s%s", between, head);
        between = ", ";
    }
    fprintf(f, "\nExit status: %s.\n", row->status);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

size_t option_command_named(const char *name)
{
    size_t i = 0;
    while (i < COMMAND_COUNT && strcmp(command_table[i].name, name) != 0)
        i++;
    return i;
}
