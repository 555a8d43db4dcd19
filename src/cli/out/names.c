#include "cli/out/names.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64 << 20 };

static char *read_text(FILE *f, size_t *size)
{
    char *text = NULL;
    size_t capacity = 0, n;
    *size = 0;
    do {
        if (capacity - *size < 4096) {
            capacity = capacity ? capacity * 2 : 65536;
            char *more = realloc(text, capacity);
            if (!more) {
                free(text);
                return NULL;
            }
            text = more;
        }
        n = fread(text + *size, 1, capacity - *size - 1, f);
        *size += n;
    } while (n > 0 && *size < NAMES_MAX);
    text[*size] = 0;
    return text;
}

int names_read(const cli *c, const char *path, names *out)
{
    size_t size = 0, lines = 1;
    FILE *f = fopen(path, "re");
    if (!f)
        return cli_fail(c, "system", "%s: cannot open: %s", path, strerror(errno));
    out->text = read_text(f, &size);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed || !out->text)
        return cli_fail(c, "system", "%s: cannot read: %s", path, strerror(errno));
    if (size >= NAMES_MAX || strlen(out->text) != size)
        return cli_fail(c, "argument", "%s: no list of names: too long, or a NUL in it", path);
    for (size_t i = 0; i < size; i++)
        lines += out->text[i] == '\n';
    out->items = calloc(lines + 1, sizeof *out->items);
    if (!out->items)
        return cli_fail(c, "no-memory", "out of memory for %zu names", lines);
    char *rest = out->text, *line;
    while ((line = strsep(&rest, "\n"))) {
        size_t n = strlen(line);
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (*line && *line != '#')
            out->items[out->count++] = line;
    }
    if (!out->count)
        return cli_fail(c, "argument", "%s: there is no name in it; one name per line is expected", path);
    return -1;
}

void names_free(names *n)
{
    free(n->text);
    free(n->items);
    memset(n, 0, sizeof *n);
}
