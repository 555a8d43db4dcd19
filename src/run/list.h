/* run/list.h - what lies in a run directory: read, never written. */
#ifndef CKPT_RUN_LIST_H
#define CKPT_RUN_LIST_H
#include <ckpt/run.h>
#include "base/base.h"
#include "io/store.h"

enum { CKPT__STEP_NAME = 32 };
/* "step-00001000": at least 8 digits. ckpt__step_parse: false where the name is no such name (any number of digits). */
void ckpt__step_name(char name[CKPT__STEP_NAME], int64_t step);
bool ckpt__step_parse(const char *name, int64_t *step);
void ckpt__rank_name(char name[CKPT__STEP_NAME], int64_t rank);      /* "rank-00003" */
bool ckpt__rank_parse(const char *name, int64_t *rank);

/* One rank's checkpoints (of a run of one process: the run's). Sorted, newest first. */
typedef struct ckpt__held {
    char name[CKPT__STEP_NAME];
    int64_t step, time, world, rank;
    uint64_t nbytes, save;
    uint32_t manifest_crc;        /* the manifest's own CRC: tells one save of a step from another */
    bool complete, verified;
    ckpt_status status;           /* not complete: why, as a status */
    int sys_errno;                /* and the errno of a refused system call, or 0 */
    char why[200];                /* and in words */
} ckpt__held;
ckpt_status ckpt__held_list(const ckpt__store *store, ckpt__held **out, size_t *count, ckpt_error *err);
/* One of them anew: after it was published. */
void ckpt__held_read(const ckpt__store *store, const char *name, ckpt__held *out);

/* `verified`: one line a checkpoint, "<name> <8 hex digits of its manifest's CRC>". Adds `held` and drops lines of what
 * is gone. */
ckpt_status ckpt__held_mark_verified(ckpt__store *store, const ckpt__held *list, size_t count, const ckpt__held *held,
                                     ckpt_error *err);
#endif
