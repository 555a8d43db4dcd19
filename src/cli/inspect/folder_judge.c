/* inspect/folder_judge.c - which checkpoints of a folder are whole. */
#include "cli/inspect/folder.h"
#include <string.h>

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

/* A save of the HF Trainer that did not come to its end. It takes the last by its name (get_last_checkpoint: checkpoint-N alone),
 * and fails where trainer_state.json is not there; a save was called tmp-checkpoint-N until it was complete. */
void folder_judge(folder_list *l)
{
    bool trainer = false;
    for (size_t i = 0; i < l->count; i++)
        trainer = trainer || strcmp(l->items[i].format, "hf-trainer") == 0;
    for (size_t i = 0; i < l->count; i++) {
        folder_item *it = &l->items[i];
        const char *why = NULL;
        bool staged = strncmp(it->name, "tmp-checkpoint-", 15) == 0, named = strncmp(it->name, "checkpoint-", 11) == 0;
        bool model = strcmp(it->format, "hf") == 0 || strcmp(it->format, "peft") == 0;
        if (it->complete && staged && (trainer || strcmp(it->format, "hf-trainer") == 0))
            why =
                "a save that was not finished: the Trainer renames it when it is, and get_last_checkpoint passes over it";
        else if (it->complete && named && model && trainer && it->number >= 0)
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
