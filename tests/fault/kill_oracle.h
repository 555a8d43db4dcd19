/* kill_oracle.h - what a run directory must look like after its writer was killed, judged from outside: by its names, and
 * by what the trainer reported that it had been promised. It uses nothing of the library. */
#ifndef KILL_ORACLE_H
#define KILL_ORACLE_H
#include <stdbool.h>
#include <stdint.h>

enum { ORACLE_STEPS = 1024 };

typedef struct listing {
    int64_t steps[ORACLE_STEPS]; /* directories step-* that are not empty, newest first */
    int count;
    int64_t aside;   /* newest that was moved aside to be replaced and whose name is free; -1: none */
    int leftovers;   /* .tmp-*, .trash-*, .NAME.tmp-* */
    char shape[512]; /* the kinds of leftovers and what they hold, to tell one state from another */
    int64_t latest;  /* what the hint says; -1: nothing */
} listing;

/* False: it cannot be read. A directory that is not there is empty. */
bool list_run(const char *path, listing *l);
bool listing_has(const listing *l, int64_t step);
int64_t listing_newest(const listing *l); /* -1: none */

/* What the trainer reported, oldest first. */
typedef struct promises {
    int64_t saved[ORACLE_STEPS];
    int count;
    int64_t resumed, newest, found; /* -1: none */
} promises;
void read_promises(int report, promises *p); /* and empties the report */

typedef struct rule {
    int64_t keep_last, keep_every;
    bool read_back; /* each save is verified; else the one that was resumed is the newest verified */
} rule;

/* What must hold between `before` and `after`, one a kill after the other. "" or what is wrong. */
const char *judge_directory(const listing *before, const promises *p, const listing *after, const rule *keep);

/* Two small helpers for directories of directories of files. */
bool link_run(const char *from, const char *to); /* a copy by hard links: the files are never written to */
bool remove_run(const char *path);
#endif
