/* inspect/many.c - one command for several PATHs: each is answered by itself, and the worst status is that of all. */
#include "cli/inspect/many.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/run.h"

/* What the exit statuses 0, 1 and 2 of a command are called where they are counted. */
static const char *const words[COMMAND_COUNT][3] = {
    [COMMAND_SHOW] = {"shown", "not found in", "not read"},
    [COMMAND_VERIFY] = {"ok", "damaged or refused", "not read"},
    [COMMAND_DOCTOR] = {"fine", "with a problem", "unknown or not read"},
    [COMMAND_SCAN] = {"clean", "dangerous", "unknown or not read"},
};

/* ---- the checkpoints of folders */

/* Does the directory hold several checkpoints, and is none itself? A run directory is one thing. */
static bool holds_several(const command_line *o, const char *path)
{
    struct stat st;
    run_view view;
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    char *paths[] = {(char *)(uintptr_t)path, NULL};
    command_line one = *o;
    one.paths = paths;
    one.path_count = 1;
    if (o->cli.from || stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return false;
    if (run_view_open(&one, &view) < 0) {
        run_view_close(&view);
        return false;
    }
    ckpt_status status = ckpt_reader_open(path, NULL, &reader, &err);
    bool several = status < 0 ? folder_is_refused(path, &err) : folder_is_none_itself(&one, reader);
    ckpt_reader_close(reader);
    return several;
}

bool many_expand(const command_line *o, path_list *out)
{
    const bool opens = o->command & (COMMAND(VERIFY) | COMMAND(DOCTOR));
    memset(out, 0, sizeof *out);
    for (int i = 0; i < o->path_count; i++) {
        size_t before = out->count;
        if (opens && holds_several(o, o->paths[i]) && !folder_members(o, o->paths[i], out))
            return false;
        if (out->count == before && !path_list_add(out, o->paths[i]))
            return false;
    }
    return true;
}

bool path_list_add(path_list *list, const char *path)
{
    char *copy = strdup(path), **items = copy ? realloc(list->items, (list->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(copy);
        return false;
    }
    items[list->count++] = copy;
    list->items = items;
    return true;
}

void path_list_free(path_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    memset(list, 0, sizeof *list);
}

/* ---- the answers */

/* A document in one line: the line breaks in it stand between its members, for a text's own are escaped. */
static void put_line(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] != '\n') {
            putchar(text[i]);
            continue;
        }
        while (i + 1 < size && text[i + 1] == ' ')
            i++;
        if (i + 1 < size && text[i + 1] != '}' && text[i + 1] != '\n')
            putchar(' ');
    }
    putchar('\n');
}

typedef struct answers {
    const command_line *o;
    size_t command;
    many_fn ask;
    json_out json;
    size_t counts[3];
    int status;
    bool first; /* none was answered yet */
} answers;

/* What the command prints as JSON becomes an element of results[], or a line. False: no memory. */
static bool take_document(answers *a, char *text, size_t size)
{
    while (size > 0 && text[size - 1] == '\n')
        size--;
    if (size == 0)
        return true; /* it was interrupted */
    if (a->o->cli.ndjson)
        put_line(text, size);
    else
        json_raw(&a->json, NULL, text, size);
    fflush(stdout);
    return true;
}

/* False: no memory. */
static bool answer(answers *a, char *path)
{
    command_line one = *a->o;
    char *paths[] = {path, NULL}, *text = NULL;
    size_t size = 0;
    FILE *f = NULL;
    one.paths = paths;
    one.path_count = 1;
    one.many = true;
    one.cli.about = (cli_list){NULL, 0};
    if (!cli_list_add(&one.cli.about, path) || (one.cli.json && !(f = open_memstream(&text, &size)))) {
        free(one.cli.about.items);
        return false;
    }
    if (f)
        json_documents_to(f, path);
    if (a->command == COMMAND_SHOW && !one.cli.json && !one.cli.quiet) { /* as head does */
        fputs(a->first ? "==> " : "\n==> ", stdout);
        cli_put(stdout, path, strlen(path));
        puts(" <==");
    }
    a->first = false;
    int status = a->ask(&one, a->command);
    json_documents_to(NULL, NULL);
    bool ok = !f || (fclose(f) == 0 && take_document(a, text, size));
    free(text);
    free(one.cli.about.items);
    if (!cli_signal_caught()) {
        a->counts[status]++;
        a->status = status > a->status ? status : a->status;
    }
    fflush(stdout);
    return ok;
}

static void put_counts(const answers *a, size_t paths)
{
    bool first = true;
    printf("%zu %s%s:", paths, a->command == COMMAND_SCAN ? "path" : "checkpoint", paths == 1 ? "" : "s");
    for (size_t i = 0; i < 3; i++) {
        if (!a->counts[i])
            continue;
        printf("%s %zu %s", first ? "" : ",", a->counts[i], words[a->command][i]);
        first = false;
    }
    putchar('\n');
}

int many_one_line(const command_line *o, size_t command, many_fn ask)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return cli_fail(&o->cli, "no-memory", "out of memory");
    json_documents_to(f, NULL);
    int status = ask(o, command);
    json_documents_to(NULL, NULL);
    answers a = {.o = o};
    bool ok = fclose(f) == 0 && take_document(&a, text, size);
    free(text);
    return ok ? status : cli_fail(&o->cli, "no-memory", "out of memory");
}

int many_answer(const command_line *o, size_t command, const path_list *paths, many_fn ask)
{
    const cli *c = &o->cli;
    answers a = {.o = o, .command = command, .ask = ask, .status = CLI_YES, .first = true};
    bool whole = c->json && !c->ndjson, ok = true;
    if (whole) {
        json_document(&a.json);
        json_array(&a.json, "results");
    }
    for (size_t i = 0; ok && i < paths->count && !cli_signal_caught(); i++)
        ok = answer(&a, paths->items[i]);
    if (whole) {
        json_end_array(&a.json);
        if (!ok)
            json_error(&a.json, "no-memory", "out of memory");
        json_end_object(&a.json);
    }
    if (!ok)
        return whole ? CLI_NO_ANSWER : cli_fail(c, "no-memory", "out of memory");
    if (!c->json && !c->quiet && command != COMMAND_SHOW && !cli_signal_caught())
        put_counts(&a, paths->count);
    return a.status;
}
