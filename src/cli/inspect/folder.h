/* cli/inspect/folder.h - the checkpoints of a folder: folder.c finds and lists them, folder_judge.c says which of
 * them are whole. */
#ifndef CKPT_CLI_INSPECT_FOLDER_H
#define CKPT_CLI_INSPECT_FOLDER_H
#include "cli/inspect/inspect.h"
#include "cli/inspect/many.h"
#include "cli/out/checkpoints.h"

/* One checkpoint of a folder, as its metadata shows it. It keeps copies, for the reader of one is closed before the
 * next is opened. step, epoch and epoch_exact are -1 where they are not known. */
typedef struct folder_item {
    char *name, *path; /* heap, owned by the list */
    char format[32], producer[40], metric[40], why[400];
    int64_t step, epoch, time;
    int64_t number; /* at the end of its name; -1: none */
    double epoch_exact;
    ckpt_score score; /* its name is `metric` */
    uint64_t nbytes;
    bool complete, unread; /* unread: of a kind that this version does not read, so nothing is known of it */
    bool trains;           /* ranks saved it, with the state of an optimizer */
    bool unfinished;       /* nothing of it is damaged, and parts were not written */
} folder_item;

/* All checkpoints of a folder that were looked at. */
typedef struct folder_list {
    const command_line *o; /* the caller's, as is path */
    const char *path;
    size_t path_size;     /* without slashes at its end */
    folder_item *items;   /* heap, owned; NULL: none */
    checkpoint *rows;     /* heap, owned: the items as they are shown; NULL: no memory */
    size_t count, passed; /* entries past the limit */
    bool steps_only;      /* directories whose name ends in a number, and nothing else */
    bool no_memory;
} folder_list;

void folder_keep_text(char *out, size_t size, const char *text, size_t n);
/* A file of the directory was left out, for it is damaged: it->why says which. */
bool folder_has_damage(folder_item *it, const ckpt_reader *reader);
/* Saves that were not finished, told by what lies beside them. */
void folder_judge(folder_list *l);
/* The same of one by the files of those around it (folder_beside.c). */
void folder_judge_beside(folder_list *l, size_t i);
/* show of a directory that is no checkpoint and holds some: a line each. -1: it holds none. */
int folder_show(const command_line *o);
/* Adds the PATHs of the checkpoints in the folder, in the order of show. False: no memory. */
bool folder_members(const command_line *o, const char *path, path_list *out);
/* Is the PATH a folder of checkpoints and no checkpoint itself? err: why it could not be opened; NULL: it was opened, and `format` is that of what
 * was found, where that has no tensor, else "". */
bool folder_holds_several(const command_line *o, const ckpt_error *err, const char *format);
/* The PATH was opened and is a file without a tensor, of this format: are the checkpoints in folders beside that file? */
bool folder_is_none_itself(const command_line *o, const char *format);
/* Step directories beside the files of a checkpoint, such as a Trainer's beside the model that it saved last: as the
 * member "checkpoints" (j NULL: as text). The parts of what the reader has read ("optimizer_0") are none. Nothing where there are
 * fewer than `least`. */
void folder_beside(const command_line *o, const ckpt_reader *reader, json_out *j, size_t least);
#endif
