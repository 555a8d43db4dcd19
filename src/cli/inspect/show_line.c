#include "cli/inspect/show_line.h"
#include <stdlib.h>
#include <string.h>
#include "cli/out/rows.h"

static show_line *lines; /* heap, as their texts; NULL: none */
static size_t count;

bool show_lines_wanted(const command_line *o)
{
    return o->many && !o->cli.json && !o->cli.verbose && !o->by && !o->report;
}

static bool keep(const char **text)
{
    const char *given = *text;
    *text = given ? strdup(given) : NULL;
    return !given || *text;
}

static void forget(show_line *line)
{
    const char *const texts[] = {line->path, line->format, line->producer, line->verdict};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free((char *)(uintptr_t)texts[i]);
}

bool show_line_add(const show_line *line)
{
    show_line *more = realloc(lines, (count + 1) * sizeof *more), copy = *line;
    if (more)
        lines = more;
    bool ok = keep(&copy.path), format = keep(&copy.format), producer = keep(&copy.producer),
         verdict = keep(&copy.verdict);
    if (more && ok && format && producer && verdict) {
        lines[count++] = copy;
        return true;
    }
    forget(&copy);
    return false;
}

size_t show_line_count(void)
{
    return count;
}

static const show_line *line_in(const row_parts *r)
{
    return r->part[0];
}

static bool has_parameters(const row_parts *r)
{
    return line_in(r)->parameters > 0;
}

static bool has_epoch(const row_parts *r)
{
    return line_in(r)->epoch >= 0;
}

static ckpt_str epoch_text(char buf[ROW_CELL], const row_parts *r)
{
    return rows_print(buf, "%.6g", line_in(r)->epoch_exact);
}

static bool is_read(const row_parts *r)
{
    return !line_in(r)->bad;
}

static ckpt_str path_text(char buf[ROW_CELL], const row_parts *r)
{
    (void)buf;
    return rows_word(line_in(r)->path);
}

static ckpt_str parameters_text(char buf[ROW_CELL], const row_parts *r)
{
    char n[CLI_SIZE_MAX];
    return rows_print(buf, "%s", cli_count(n, line_in(r)->parameters));
}

#define AT(member) .at = offsetof(show_line, member)
static const row_field columns[] = {
    {.title = "format", .kind = ROW_WORD, AT(format)},
    {.title = "producer", .kind = ROW_WORD, AT(producer)},
    {.title = "step", .kind = ROW_NUMBER, AT(step), .right = true},
    {.title = "epoch", .text = epoch_text, .known = has_epoch, .right = true},
    {.title = "parameters", .text = parameters_text, .known = has_parameters, .right = true},
    {.title = "size", .kind = ROW_SIZE, AT(nbytes), .known = is_read, .right = true},
    {.title = "verdict", .kind = ROW_WORD, AT(verdict)},
    {.title = "path", .kind = ROW_STR, .text = path_text},
    {.key = NULL},
};

void show_lines_put(const cli *c)
{
    row_text t;
    rows_begin(&t, columns, 0, 2);
    for (size_t i = 0; i < count; i++)
        rows_measure(&t, &(row_parts){{&lines[i]}});
    if (count)
        rows_head(&t, c);
    for (size_t i = 0; i < count; i++) {
        rows_line(&t, &(row_parts){{&lines[i]}});
        rows_end_line(&t);
    }
    rows_flush(&t);
    for (size_t i = 0; i < count; i++)
        forget(&lines[i]);
    free(lines);
    lines = NULL;
    count = 0;
}
