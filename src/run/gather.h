/* run/gather.h - a run directory while it is read: the directories of steps in it, and what each holds. */
#ifndef CKPT_RUN_GATHER_H
#define CKPT_RUN_GATHER_H
#include "run/list.h"

enum {
    CKPT__RANKS_NAMED = 8, /* ranks, or findings of a kind, that are named one by one */
    CKPT__TOP = -1         /* of no rank: the run directory itself holds the steps */
};

/* One directory of steps: the run's own, or one rank's. Places exist because ranks write apart from each other: each
 * directory is read by itself, and ckpt__run_merge compares them afterwards. The gatherer (list.c) owns path and
 * held. */
typedef struct ckpt__place {
    int64_t rank;                            /* CKPT__TOP, or what the directory's name says */
    char *path;                              /* heap, never NULL */
    ckpt__held *held;                        /* heap, newest first; NULL only where the steps could not be listed */
    size_t count;                            /* steps in `held` */
    size_t leftovers, aside;                 /* directory entries .tmp-* and .trash-*; checkpoints that a run kept aside
                                   * (io/aside.h) */
    char newest_aside[CKPT__STEP_NAME + 16]; /* its name, escaped; "" where there is none */
    char latest[CKPT__STEP_NAME];            /* what the hint says, escaped; "" where there is none */
} ckpt__place;

/* The answer of ckpt_run_list_open: everything in it is owned and lives until ckpt_run_list_close. */
struct ckpt_run_list {
    ckpt__arena *strings; /* has the name, path and why of each entry, and writer */
    ckpt_report *findings;
    ckpt_run_entry *entries; /* heap, newest first; NULL where there are none */
    size_t count, capacity;  /* entries */
    char *writer;            /* the process that holds the lock, in words; NULL: nobody does */
};

/* Puts what the ranks hold together: one entry for each step and save, newest first. A worked example with two ranks:
 * both saved step 100 (save 5). At step 200 (save 7) rank 1 published, and the run died before rank 0 had. The run was
 * resumed at step 100 and reached step 200 again (save 9). Rank 0 published, and the run died before rank 1 had:
 *
 *     places[0], rank 0    step-00000200 of save 9    step-00000100 of save 5
 *     places[1], rank 1    step-00000200 of save 7    step-00000100 of save 5
 *
 * The list has three entries. Step 200 has two, each with ranks_held 1 of world 2, not complete, and with the reason
 * that the ranks hold two saves of this step. Step 100 has one, with ranks_held 2 of world 2, complete. */
ckpt_status ckpt__run_merge(ckpt_run_list *list, const ckpt__place *places, size_t count, ckpt_error *err);
#endif
