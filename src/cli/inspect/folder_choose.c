/* inspect/folder_choose.c - which checkpoint of a folder to go on from: the newest that is whole. Where that costs little, its bytes are read. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"

/* accelerate counts its checkpoints, and keeps no step; verl and loops of one's own have it in the directory's name alone. */
static bool is_counted(const folder_item *it)
{
    return it->complete && strcmp(it->format, "run") != 0 &&
           (it->step >= 0 || (it->number >= 0 && (it->trains || strcmp(it->format, "accelerate") == 0)));
}

/* Two of one step, each in a folder of its model: global_step_100/actor and global_step_100/critic. */
static bool is_of_one_step(const folder_item *a, const folder_item *b)
{
    const char *slash = strrchr(a->name, '/');
    const size_t n = slash ? (size_t)(slash - a->name) : 0;
    return n > 0 && strncmp(a->name, b->name, n + 1) == 0 && slash[-1] >= '0' && slash[-1] <= '9' &&
           !strchr(b->name + n + 1, '/');
}

/* The one to go on from: the last that is whole, where one program wrote all that count. NULL: it is not known, and *why says why. */
static folder_item *newest_of(folder_list *l, const char **why)
{
    folder_item *last = NULL;
    bool complete = false, runs = false;
    for (size_t i = 0; i < l->count; i++) {
        folder_item *it = &l->items[i];
        complete = complete || it->complete;
        runs = runs || (it->complete && strcmp(it->format, "run") == 0);
        if (!is_counted(it))
            continue;
        *why = !it->producer[0]
                   ? "the program that wrote one of them is not known, and so which is the newest is not either"
                   : "several programs wrote them, so which is the newest is not known";
        if (!it->producer[0] || (last && strcmp(last->producer, it->producer) != 0))
            return NULL;
        *why = "its newest step has a folder of each of several models";
        if (last && is_of_one_step(last, it))
            return NULL;
        last = it;
    }
    *why = runs       ? "it holds run directories, so which is the newest is not known"
           : complete ? "none that is complete keeps a step, so which is the newest is not known"
                      : "none is complete";
    return last;
}

/* ---- its bytes */

/* So much is read for one answer of show or list: below a second where a disk gives 100 MB/s. */
static const uint64_t read_most = 64 << 20;

static const ckpt_finding *first_error(const ckpt_report *report)
{
    for (size_t i = 0; i < ckpt_report_count(report); i++)
        if (ckpt_report_get(report, i)->severity == CKPT_SEVERITY_ERROR)
            return ckpt_report_get(report, i);
    return NULL;
}

/* Reads all of it. What turns out to be damaged is not complete. False: no memory, or a signal. */
static bool check_bytes(const command_line *o, folder_item *it)
{
    ckpt_verify_options options = CKPT_VERIFY_OPTIONS_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_report *report = ckpt_report_new();
    ckpt_error err = CKPT_ERROR_INIT;
    cli_progress shown;
    if (!report)
        return false;
    cli_progress_init(&shown, &o->cli, "checked");
    options.progress = (ckpt_progress){cli_progress_step, &shown};
    ckpt_status answer = ckpt_verify(it->path, &options, &result, report, &err);
    cli_progress_end(&shown);
    const ckpt_finding *f = answer == CKPT_ANSWER_NO ? first_error(report) : NULL;
    if (answer == CKPT_OK) {
        it->checked = result.integrity == CKPT_INTEGRITY_CRC32 || result.integrity == CKPT_INTEGRITY_DIGEST
                          ? FOLDER_BYTES
                          : FOLDER_PARTIAL;
    } else if (answer == CKPT_ANSWER_NO) {
        const char *why = f ? f->message : "verify says that it is damaged";
        it->complete = false;
        it->checked = FOLDER_BYTES;
        it->refused = f && strcmp(f->code, "torch-refuses") == 0;
        if (f && *f->file && strncmp(why, f->file, strlen(f->file)) != 0)
            snprintf(it->why, sizeof it->why, "%.100s: %.280s", f->file, why);
        else
            folder_keep_text(it->why, sizeof it->why, why, strlen(why));
    }
    ckpt_report_free(report);
    return answer != CKPT_E_NO_MEMORY && answer != CKPT_E_CANCELLED;
}

const folder_item *folder_choose(folder_list *l, const char **why)
{
    uint64_t left = read_most;
    for (;;) {
        folder_item *last = newest_of(l, why);
        if (!last || last->nbytes > left)
            return last;
        left -= last->nbytes;
        if (!check_bytes(l->o, last))
            l->no_memory = true;
        if (last->complete || l->no_memory)
            return last;
    }
}

bool folder_newest(const command_line *o, const char *path, path_list *inside, char **newest, const char **why)
{
    folder_list l;
    folder_look(&l, o, path);
    bool ok = !l.no_memory;
    for (size_t i = 0; ok && i < l.count; i++)
        ok = path_list_add(inside, l.items[i].path);
    const folder_item *last = ok ? folder_choose(&l, why) : NULL;
    ok = ok && !l.no_memory;
    *newest = ok && last ? strdup(last->path) : NULL;
    ok = ok && (!last || *newest);
    folder_free(&l);
    return ok;
}
