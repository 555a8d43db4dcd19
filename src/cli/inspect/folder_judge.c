/* inspect/folder_judge.c - which checkpoints of a folder are whole. */
#include "cli/inspect/folder.h"
#include "cli/inspect/show.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void folder_keep_text(char *out, size_t size, const char *text, size_t n)
{
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), text ? text : "");
}

bool folder_has_damage(folder_item *it, const ckpt_reader *reader)
{
    const ckpt_report *found = ckpt_reader_findings(reader);
    for (size_t i = 0; i < ckpt_report_count(found); i++) {
        const ckpt_finding *f = ckpt_report_get(found, i);
        if (strcmp(f->code, "member-damaged") != 0)
            continue;
        folder_keep_text(it->why, sizeof it->why, f->message, strlen(f->message));
        return true;
    }
    return false;
}

static bool has_file(const folder_item *it, const char *name)
{
    struct stat st;
    size_t size = strlen(it->path) + strlen(name) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", it->path, name);
    bool there = !path || stat(path, &st) == 0;
    free(path);
    return there;
}

static bool is_trainers(const folder_item *it)
{
    return strcmp(it->format, "hf-trainer") == 0 || strcmp(it->producer, "the HF Trainer with DeepSpeed") == 0;
}

/* A save of the HF Trainer that did not come to its end. It takes the last by its name (get_last_checkpoint: checkpoint-N alone),
 * and fails where trainer_state.json is not there; a save was called tmp-checkpoint-N until it was complete. */
void folder_judge(folder_list *l)
{
    bool trainer = false;
    for (size_t i = 0; i < l->count; i++)
        trainer = trainer || is_trainers(&l->items[i]);
    for (size_t i = 0; i < l->count; i++) {
        folder_item *it = &l->items[i];
        const char *why = NULL;
        bool staged = strncmp(it->name, "tmp-checkpoint-", 15) == 0, named = strncmp(it->name, "checkpoint-", 11) == 0;
        if (it->complete && staged && (trainer || is_trainers(it)))
            why = "a save that was not finished: the Trainer renames it when it is, and get_last_checkpoint skips it";
        else if (it->complete && named && trainer && it->number >= 0 && !has_file(it, "trainer_state.json"))
            why =
                "it has no trainer_state.json, so its save was not finished: get_last_checkpoint takes it by its name, and the Trainer "
                "fails with FileNotFoundError";
        if (named && trainer && it->step < 0)
            it->step = it->number;
        if (!why)
            continue;
        it->complete = false;
        it->unfinished = true;
        folder_keep_text(it->why, sizeof it->why, why, strlen(why));
    }
}

/* The directory is no checkpoint, as format/folder/names.c says it. An error of a file in the directory (an empty shard) is another matter. */
static bool is_refused(const char *path, const ckpt_error *err)
{
    size_t n = strlen(path);
    bool of_file = strncmp(err->object, path, n) == 0 && err->object[n] == '/' && err->object[n + 1];
    return !of_file && err->status == CKPT_E_FORMAT &&
           (strncmp(err->message, "not a checkpoint", 16) == 0 ||
            strncmp(err->message, "it holds several checkpoints", 28) == 0);
}

bool folder_holds_several(const command_line *o, const ckpt_error *err, const char *format)
{
    if (o->cli.from || o->one || o->in_folder || !show_is_directory(o->paths[0]))
        return false;
    return err ? is_refused(o->paths[0], err) : folder_is_none_itself(o, format);
}
