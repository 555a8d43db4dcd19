/* cli/inspect/folder.h - the checkpoints of a folder: folder.c finds them, folder_judge.c says which of them are whole,
 * folder_show.c prints them. */
#ifndef CKPT_CLI_INSPECT_FOLDER_H
#define CKPT_CLI_INSPECT_FOLDER_H
#include "cli/inspect/inspect.h"
#include "cli/inspect/many.h"
#include "cli/out/checkpoints.h"

/* What a trainer's callback says in a checkpoint of which is the best so far. */
typedef struct folder_claim {
    char best[256], monitor[64]; /* the last part of its path, "": nothing is said; by which score, "": not known */
    const char *mode;            /* "min", "max"; NULL: not known */
    bool several;                /* callbacks that do not agree */
} folder_claim;

/* What was looked at: metadata; all bytes, of which some or none have a checksum; all bytes, with checksums. */
typedef enum folder_check { FOLDER_STRUCTURE, FOLDER_PARTIAL, FOLDER_BYTES } folder_check;

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
    folder_claim claim;
    bool best, last; /* by what the trainer says; the one to go on from */
    folder_check checked;
    bool refused; /* torch does not load it, though no byte is damaged */
} folder_item;

/* What all of them say of the best. */
typedef struct folder_best {
    bool said;                  /* some checkpoint names one */
    const folder_item *item;    /* the list's; NULL: not known, or not here, and `why` says it */
    const char *monitor, *mode; /* the item's that says it; NULL: not known */
    char name[256], why[500];   /* of the best, "": not known; not escaped */
} folder_best;

/* All checkpoints of a folder that were looked at. */
typedef struct folder_list {
    const command_line *o; /* the caller's, as is path */
    const char *path;
    size_t path_size;     /* without slashes at its end */
    folder_item *items;   /* heap, owned; NULL: none */
    checkpoint *rows;     /* heap, owned: the items as they are shown; NULL: no memory */
    size_t count, passed; /* entries past the limit */
    folder_best best;
    size_t unchecked; /* readable: their bytes were not read */
    bool steps_only;  /* directories whose name ends in a number, and nothing else */
    bool no_memory;
} folder_list;

void folder_keep_text(char *out, size_t size, const char *text, size_t n);
/* A file of the directory was left out, for it is damaged: it->why says which. */
bool folder_has_damage(folder_item *it, const ckpt_reader *reader);
/* What the checkpoint says of the best (folder_best.c); and from all of that, once they are sorted, marks of the items and l->best. last: NULL,
 * or the one to go on from. */
void folder_take_claim(folder_item *it, const ckpt_reader *reader);
void folder_find_best(folder_list *l, const folder_item *last);
/* Saves that were not finished, told by what lies beside them. */
void folder_judge(folder_list *l);
/* The same of one by the files of those around it (folder_beside.c). */
void folder_judge_beside(folder_list *l, size_t i);
/* The list, for folder_free, without rows. path is kept. */
void folder_look(folder_list *l, const command_line *o, const char *path);
void folder_free(folder_list *l);
/* Fills l->rows and l->unchecked. False: no memory. */
bool folder_rows(folder_list *l);
/* The rows as text. */
void folder_table(const folder_list *l);
/* The one to go on from: the newest that is complete. Its bytes are read where they are few; where they are damaged it is not complete, and it is
 * the one before. NULL: it is not known, and *why, a static text, says why. */
const folder_item *folder_choose(folder_list *l, const char **why);
/* show of a directory that is no checkpoint and holds some: a line each. -1: it holds none. */
int folder_show(const command_line *o);
/* Adds the PATHs of the checkpoints in the folder, in the order of show. False: no memory. */
bool folder_members(const command_line *o, const char *path, path_list *out);
/* The one to go on from, for free(), into *newest; NULL: it is not known, and *why, a static text, says why. *inside gets the PATHs of all. False:
 * no memory. */
bool folder_newest(const command_line *o, const char *path, path_list *inside, char **newest, const char **why);
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
