/* inspect/many.c - one command for several PATHs: each is answered by itself, and the worst status is that of all. */
#include "cli/inspect/many.h"
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/show_line.h"

/* How the last line calls the answers of status 0, 1 and 2. */
static const char *const words[COMMAND_COUNT][3] = {
    [COMMAND_SHOW] = {"read", "", "not read"},
    [COMMAND_VERIFY] = {"ok", "damaged or refused", "not read"},
    [COMMAND_DOCTOR] = {"fine", "with a problem", "unknown or not read"},
    [COMMAND_SCAN] = {"clean", "dangerous", "unknown or not read"},
};

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

typedef struct answers {
    const command_line *o;
    size_t command;
    many_fn ask;
    json_out json; /* --json: open in results[] */
    size_t count, counts[3];
    int status;
} answers;

static void put_head(const answers *a, const char *path)
{
    command_line one = *a->o;
    one.many = true;
    if (a->command != COMMAND_SHOW || a->o->cli.json || a->o->cli.quiet || show_lines_wanted(&one))
        return;
    fputs(a->count ? "\n==> " : "==> ", stdout); /* as head does */
    cli_put(stdout, path, strlen(path));
    puts(" <==");
}

/* The answer for one PATH, counted. */
static int answer(answers *a, char *path, bool in_folder)
{
    command_line one = *a->o;
    char *paths[] = {path, NULL};
    one.paths = paths;
    one.path_count = 1;
    one.many = true;
    one.in_folder = in_folder;
    one.cli.about = (cli_list){NULL, 0};
    json_documents_in(one.cli.json && !one.cli.ndjson ? &a->json : NULL, path);
    int status = CLI_NO_ANSWER;
    if (cli_list_add(&one.cli.about, path)) {
        put_head(a, path);
        status = a->ask(&one, a->command);
    } else {
        cli_fail(&one.cli, "no-memory", "out of memory");
    }
    json_documents_in(NULL, NULL);
    free(one.cli.about.items);
    fflush(stdout);
    if (a->command == COMMAND_SHOW && status == CLI_NO_ANSWER && show_lines_wanted(&one))
        (void)show_line_add(&(show_line){.path = path, .verdict = "not read", .step = -1, .epoch = -1, .bad = true});
    if (status >= 0 && !cli_signal_caught()) {
        a->count++;
        a->counts[status]++;
        a->status = status > a->status ? status : a->status;
    }
    return status;
}

static void answer_all(answers *a, const path_list *paths)
{
    for (size_t i = 0; i < paths->count && !cli_signal_caught(); i++)
        (void)answer(a, paths->items[i], true);
}

/* For each checkpoint of a folder. Where none is found the folder's own error is said. */
static void answer_inside(answers *a, char *path)
{
    path_list inside = {NULL, 0};
    bool memory = folder_members(a->o, path, &inside);
    if (!memory || inside.count == 0)
        (void)answer(a, path, true);
    else
        answer_all(a, &inside);
    a->status = memory ? a->status : CLI_NO_ANSWER;
    path_list_free(&inside);
}

static void put_counts(const answers *a)
{
    const char *between = "";
    printf("%zu %s%s:", a->count, a->command == COMMAND_SCAN ? "path" : "checkpoint", a->count == 1 ? "" : "s");
    for (size_t i = 0; i < 3; i++) {
        if (!a->counts[i])
            continue;
        printf("%s %zu %s", between, a->counts[i], words[a->command][i]);
        between = ",";
    }
    putchar('\n');
}

/* Of the one PATH of the command line, as if it stood alone. */
static int answer_alone(const command_line *o, size_t command, many_fn ask, bool in_folder)
{
    command_line one = *o;
    one.in_folder = in_folder;
    json_documents_in(NULL, o->cli.ndjson ? o->paths[0] : NULL);
    int status = ask(&one, command);
    json_documents_in(NULL, NULL);
    return status;
}

int many_answer(const command_line *o, size_t command, many_fn ask)
{
    const cli *c = &o->cli;
    answers a = {.o = o, .command = command, .ask = ask, .status = CLI_YES};
    const bool whole = c->json && !c->ndjson, one = o->path_count == 1;
    path_list inside = {NULL, 0};
    if (one) {
        int status = answer_alone(o, command, ask, false);
        if (status != MANY_INSIDE)
            return status;
        if (!folder_members(o, o->paths[0], &inside))
            return cli_fail(c, "no-memory", "out of memory");
        if (inside.count == 0) /* what is wrong with the folder */
            return answer_alone(o, command, ask, true);
    }
    if (o->report || o->snippet) {
        path_list_free(&inside);
        return cli_usage(c, "%s: --%s is for one checkpoint, and there are several", o->paths[0],
                         o->report ? "report" : "snippet");
    }
    if (whole) {
        json_document(&a.json);
        json_array(&a.json, "results");
    }
    answer_all(&a, &inside);
    for (int i = 0; !one && i < o->path_count && !cli_signal_caught(); i++)
        if (answer(&a, o->paths[i], false) == MANY_INSIDE)
            answer_inside(&a, o->paths[i]);
    path_list_free(&inside);
    if (whole) {
        json_end_array(&a.json);
        json_end_object(&a.json);
    }
    if (show_line_count())
        show_lines_put(c);
    if (!c->json && !c->quiet && !cli_signal_caught())
        put_counts(&a);
    return a.status;
}
