/* cli/inspect_show.h - what the files of `show` share: inspect_show.c gathers and writes JSON, inspect_show_text.c writes
 * text. */
#ifndef CKPT_CLI_INSPECT_SHOW_H
#define CKPT_CLI_INSPECT_SHOW_H
#include "inspect.h"

/* One line of "by role", "by device", "by dtype". */
typedef struct show_row {
    char name[64];
    uint64_t count, nbytes;
} show_row;
typedef struct show_table {
    show_row *rows;
    size_t count;
} show_table;

typedef struct show_picture {
    const inspect *o;
    const char *path;
    const ckpt_reader *reader;
    ckpt_summary summary;
    ckpt_report *doctor;          /* NULL: it had no answer */
    show_table roles, devices, dtypes;
    uint64_t tensors, nbytes;
    bool directory;
} show_picture;

/* A parameter group of an optimizer: torch's list of dicts, the native dict of dicts, or libtorch's dict of
 * "param_groups/0": {"params/0": ..., "options": {...}}. */
typedef struct show_group {
    ckpt_str name;
    const ckpt_value *hypers;
    size_t params;
    char number[24];
} show_group;

/* Groups 0 to limit - 1; false where entry i is none. */
size_t show_group_limit(const ckpt_value *groups);
bool show_group_at(const ckpt_value *groups, size_t i, show_group *out);

/* How the producer's own program goes on, lines parted by '\n', to be freed; NULL: nothing that could be pasted. */
char *show_resume_command(const show_picture *p);
/* The same of a checkpoint that is opened for it. */
char *show_resume_of(const inspect *o, const char *path);

/* Is it a directory that may hold others beside its own files? */
bool show_may_hold(const show_picture *p);

void show_text(const show_picture *p);
#endif
