#include "cli/inspect/newest.h"
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/run.h"

enum { TRIES = 8 }; /* a run removes old checkpoints while it is looked at */

static path_list taken; /* until the program ends: messages and documents name them */

/* The PATH is another one from here on, also where errors begin with it. False: no memory. */
static bool replace(const command_line *o, size_t which, const char *path, const char *const *also, size_t also_count)
{
    const char *given = o->paths[which];
    if (!path_list_add(&taken, path))
        return false;
    char *kept = taken.items[taken.count - 1];
    bool ok = json_documents_took(given, kept);
    for (size_t i = 0; ok && i < also_count; i++)
        ok = path_list_add(&taken, also[i]) && json_documents_took(given, taken.items[taken.count - 1]);
    for (size_t i = 0; i < o->cli.about.count; i++)
        if (o->cli.about.items[i] == given)
            o->cli.about.items[i] = kept;
    o->paths[which] = kept;
    return ok;
}

static ckpt_reader *open_with(const command_line *o, const char *path, const char *const *also, size_t count,
                              ckpt_error *err)
{
    cli c = o->cli;
    c.also = (char **)(uintptr_t)also;
    c.also_count = (int)count;
    return cli_open_quietly(&c, path, err);
}

/* ---- a run directory */

/* What open_run found. */
typedef enum outcome { OPENED, SAID, GONE } outcome;

static outcome take_run(const run_view *v, const command_line *o, size_t which, bool last, ckpt_reader **out)
{
    const ckpt_run_entry *newest = run_newest(v);
    ckpt_error err = CKPT_ERROR_INIT;
    run_parts parts;
    if (!newest) {
        cli_fail(&o->cli, "run-directory",
                 v->count ? "%s: a run directory in which no checkpoint is complete; show says why"
                          : "%s: a run directory without any checkpoint yet",
                 v->path);
        return SAID;
    }
    if (!run_parts_find(v, newest, &parts)) {
        cli_fail(&o->cli, "no-memory", "out of memory");
        return SAID;
    }
    const char **also = calloc(parts.count + 1, sizeof *also);
    for (size_t i = 1; also && i < parts.count; i++)
        also[i - 1] = parts.items[i].path;
    const char *path = parts.items[0].path;
    *out = also ? open_with(o, path, (const char *const *)also, parts.count - 1, &err) : NULL;
    outcome what = *out ? OPENED : !last && run_parts_gone(&parts) ? GONE : SAID;
    if (what == OPENED) {
        cli_warn(&o->cli, "%s: a run directory; its newest complete checkpoint is read: %s%s", v->path, path,
                 parts.count > 1 ? ", and those of its other ranks" : "");
        if (!replace(o, which, path, (const char *const *)also, parts.count - 1)) {
            ckpt_reader_close(*out);
            *out = NULL;
            what = SAID;
        }
    }
    if (what == SAID && err.status < 0)
        cli_fail_error_of(&o->cli, path, &err);
    else if (what == SAID)
        cli_fail(&o->cli, "no-memory", "out of memory");
    free(also);
    run_parts_free(&parts);
    return what;
}

/* False: it is none. */
static bool open_run(const command_line *o, size_t which, ckpt_reader **out)
{
    outcome what = GONE;
    for (int i = 1; what == GONE; i++) {
        command_line one = *o;
        run_view v;
        one.paths = &o->paths[which];
        int status = run_view_open(&one, &v);
        if (status == CLI_YES)
            return false;
        what = status > 0 ? SAID : take_run(&v, o, which, i == TRIES, out);
        if (status < 0)
            run_view_close(&v);
    }
    return true;
}

/* ---- a folder */

/* "a, b, c, ... (12 of them)" */
static void put_names(char *out, size_t size, const path_list *inside)
{
    enum { SHOWN = 4 };
    size_t used = 0;
    for (size_t i = 0; i < inside->count && i < SHOWN && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", inside->items[i]);
    if (inside->count > SHOWN && used < size)
        snprintf(out + used, size - used, ", ... (%zu)", inside->count);
}

/* False: it holds none, and nothing was said. */
static bool open_folder(const command_line *o, size_t which, ckpt_reader **out)
{
    const char *path = o->paths[which], *why = NULL;
    path_list inside = {NULL, 0};
    char *newest = NULL, names[1000] = "";
    ckpt_error err = CKPT_ERROR_INIT;
    bool memory = folder_newest(o, path, &inside, &newest, &why);
    bool any = !memory || inside.count > 0;
    if (!memory) {
        cli_fail(&o->cli, "no-memory", "out of memory");
    } else if (any && !newest) {
        put_names(names, sizeof names, &inside);
        cli_fail(&o->cli, "folder", "%s: a folder of checkpoints, and %s; give one of them: %s", path, why, names);
    } else if (newest) {
        *out = open_with(o, newest, NULL, 0, &err);
        if (!*out) {
            cli_fail_error_of(&o->cli, newest, &err);
        } else {
            cli_warn(&o->cli, "%s: a folder of checkpoints; its newest complete one is read: %s", path, newest);
            if (!replace(o, which, newest, NULL, 0)) {
                cli_fail(&o->cli, "no-memory", "out of memory");
                ckpt_reader_close(*out);
                *out = NULL;
            }
        }
    }
    free(newest);
    path_list_free(&inside);
    return any;
}

ckpt_reader *newest_open(const command_line *o, size_t which)
{
    const char *path = o->paths[which];
    ckpt_error err = CKPT_ERROR_INIT;
    command_line one = *o;
    ckpt_reader *reader = NULL, *within = NULL;
    one.paths = &o->paths[which];
    if (open_run(o, which, &within))
        return within;
    reader = cli_open_quietly(&o->cli, path, &err);
    const char *empty = reader && ckpt_reader_tensor_count(reader) == 0 ? ckpt_reader_format(reader) : "";
    if (folder_holds_several(&one, reader ? NULL : &err, empty) && open_folder(o, which, &within)) {
        ckpt_reader_close(reader);
        return within;
    }
    if (!reader)
        cli_fail_error_of(&o->cli, path, &err);
    return reader;
}

void newest_free(void)
{
    path_list_free(&taken);
    json_documents_forget();
}
