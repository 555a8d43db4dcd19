/* run/gather.h - a run directory while it is read: the directories of steps in it, and what each holds. */
#ifndef CKPT_RUN_GATHER_H
#define CKPT_RUN_GATHER_H
#include "run/list.h"

enum {
    CKPT__RANKS_NAMED = 8,        /* ranks, or findings of a kind, that are named one by one */
    CKPT__TOP = -1                /* of no rank: the run directory itself holds the steps */
};

/* One directory of steps: the run's own, or one rank's. */
typedef struct ckpt__place {
    int64_t rank;                 /* CKPT__TOP, or what the directory's name says */
    char *path;
    ckpt__held *held;
    size_t count;
    size_t leftovers, aside;
    char newest_aside[CKPT__STEP_NAME + 16];   /* "" where there is none */
    char latest[CKPT__STEP_NAME]; /* what the hint says; "" where there is none */
} ckpt__place;

struct ckpt_run_list {
    ckpt__arena *strings;
    ckpt_report *findings;
    ckpt_run_entry *entries;
    size_t count, capacity;
    char *writer;
};

/* Puts what the ranks hold together: one entry for each step and save, newest first. */
ckpt_status ckpt__run_merge(ckpt_run_list *list, const ckpt__place *places, size_t count, ckpt_error *err);
#endif
