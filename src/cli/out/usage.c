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
        if (!(r->takes & commands) || r->kind == OPTION_LATER || r->brief)
            continue;
        option_head(r, head, sizeof head);
        used += (size_t)fprintf(f, "%s%s", used ? ", " : r->letter || column > 30 ? "  " : "      ", head);
        if (!r->usage)
            continue;
        fprintf(f, "%*s%s\n", used + 2 < column ? (int)(column - used) : 3, "", r->usage);
        used = 0;
    }
}

/* The others, as they fit. */
static void put_flow(FILE *f, unsigned commands)
{
    char head[HEAD_MAX];
    size_t used = (size_t)fprintf(f, "doctor:");
    for (const option_row *r = option_table; r < option_table + option_count; r++) {
        if (!(r->takes & commands) || !r->brief)
            continue;
        option_head(r, head, sizeof head);
        if (used + 1 + strlen(head) > COLUMNS) {
            putc('\n', f);
            used = 0;
        }
        used += (size_t)fprintf(f, " %s", head);
    }
    putc('\n', f);
}

/* Two commands in a line where they fit. */
static void put_commands(FILE *f)
{
    enum { SECOND = 40 };
    static const int order[COMMAND_COUNT] = {COMMAND_SHOW, COMMAND_LIST, COMMAND_TREE,   COMMAND_VERIFY, COMMAND_STATS,
                                             COMMAND_DIFF, COMMAND_SCAN, COMMAND_DOCTOR, COMMAND_EXTRACT};
    size_t used = 0;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        const command_row *c = &command_table[order[i]];
        char head[60];
        int n = snprintf(head, sizeof head, "%s%s", c->name, c->operands);
        if (used > 0 && used <= SECOND - 2 && SECOND + 8 + strlen(c->help) <= COLUMNS) {
            fprintf(f, "%*s%-7s %s\n", (int)(SECOND - used), "", head, c->help);
            used = 0;
            continue;
        }
        used = (size_t)fprintf(f, "%s  %-9s ", used ? "\n" : "", head) - (used > 0);
        used += (size_t)fprintf(f, "%*s%s", n > 9 ? SECOND - n - 3 : 0, "", c->help);
    }
    putc('\n', f);
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
              "Says what checkpoints (files or directories) hold, and runs nothing of them.\n",
              f);
        put_commands(f);
        putc('\n', f);
        put_lines(f, COMMAND(MIGRATE) - 1, 25);
        put_flow(f, COMMAND(MIGRATE) - 1);
        fputs("Exit status: 0 yes, 1 no (damaged, different, would not resume), 2 no answer.\n", f);
    }
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}
