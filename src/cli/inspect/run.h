/* cli/inspect/run.h - PATH is a run directory: what show, verify and doctor share for it. */
#ifndef CKPT_CLI_INSPECT_RUN_H
#define CKPT_CLI_INSPECT_RUN_H
#include "cli/inspect/inspect.h"
#include "cli/report/report.h"

/* A run directory at one moment. run_view_open makes path and list, and run_view_close frees them. */
typedef struct run_view {
    const command_line *o; /* the caller's */
    char *path;            /* as given, without slashes at its end */
    ckpt_run_list *list;
    size_t count; /* entries of the list */
} run_view;

/* -1: PATH is one, and *v is it; CLI_YES: it is none; else the exit status, the error said. */
int run_view_open(const command_line *o, run_view *v);
void run_view_close(run_view *v);

/* While a run writes there, what was the newest may be gone a moment later, and a newer one has come: where `once` says
 * -1 (and has given no answer), all is looked at anew. With `insist` it answers in any case. */
int run_again(const run_view *v, int (*once)(const run_view *v, bool insist));

int run_show(const run_view *v);
int run_verify(const run_view *v);
int run_doctor(const run_view *v);

/* The step directories of one checkpoint: one, or one of each rank that is here, in order. */
typedef struct run_part {
    char *path;             /* heap, owned */
    uint64_t inode, device; /* of the directory, when it was found: run_parts_gone compares them */
} run_part;
/* All parts of one checkpoint. */
typedef struct run_parts {
    run_part *items; /* heap, owned; NULL: none */
    size_t count;
    size_t rank_directories; /* in the run directory, whether they hold this step or not; 0: a run of one process */
} run_parts;
bool run_parts_find(const run_view *v, const ckpt_run_entry *e, run_parts *out); /* false: no memory */
void run_parts_free(run_parts *parts);
/* Some part is not the directory that it was: a writer has pruned or replaced it meanwhile. */
bool run_parts_gone(const run_parts *parts);

/* What the trainer calls to resume, in two statements; NULL: the path cannot be written in C as it is. */
char *run_resume_command(const run_view *v);
void run_put_resume(const run_view *v, const ckpt_run_entry *from);

/* A row of each checkpoint, for free(); NULL: no memory. */
checkpoint *run_rows(const run_view *v);
/* "of rank-00000 alone" for the page's note, where the checkpoint is of several ranks. */
void run_report_note(report_list *out, const ckpt_run_entry *from);

/* What ckpt_verify says of one or more parts, summed. */
typedef struct run_check {
    ckpt_verify_result sum;
    ckpt_report **reports;   /* heap, owned: one of each part */
    run_parts parts;         /* owned */
    bool ok, answered, gone; /* every part is sound; every part could be read; else: a part is gone
                                   * (run_parts_gone) */
    char why[900];           /* the first thing that is wrong, or why there is no answer; "": nothing is */
} run_check;
/* False: no memory. What cannot be read as a checkpoint is not ok; what the system refuses to read is not answered. */
bool run_check_do(const run_view *v, const ckpt_run_entry *e, cli_progress *shown, run_check *out);
void run_check_free(run_check *check);
/* The newest complete one; NULL: none is. */
const ckpt_run_entry *run_newest(const run_view *v);
#endif
