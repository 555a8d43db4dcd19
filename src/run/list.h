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
void ckpt__rank_name(char name[CKPT__STEP_NAME], int64_t rank); /* "rank-00003" */
bool ckpt__rank_parse(const char *name, int64_t *rank);

/* One step directory of one rank (of a run of one process: the run's), as its manifest and the sizes of its files show
 * it. No payload was read. The struct holds no pointer, so a plain copy is a copy.
 *
 * The numbers of a manifest that cannot be read are: time -1, world 1, and rank, save and manifest_crc 0. */
typedef struct ckpt__held {
    char name[CKPT__STEP_NAME];      /* of the directory: "step-00001000", or "step-1000" where someone renamed it */
    int64_t step, time, world, rank; /* completed steps, by the name; when it was saved, seconds since 1970 in UTC,
                                          * -1: not known; ranks that saved it together; the rank among them that this
                                          * directory is of */
    uint64_t nbytes, save;   /* of the manifest and of the files that it names, UINT64_MAX: the sum overflows; the
                                   * number that all ranks gave this save, 0: one process */
    uint32_t manifest_crc;   /* the manifest's own CRC: tells one save of a step from another */
    bool complete, verified; /* the manifest is sound, and each file is there with its size; so it is, and the hint
                                   * `verified` has its name with this manifest_crc */
    ckpt_status status;      /* not complete: why, as a status; else CKPT_OK */
    int sys_errno;           /* and the errno of a refused system call, or 0 */
    char why[200];           /* and in words; "" where it is complete */
} ckpt__held;
/* All of them, newest first. *out is heap and the caller's to free; NULL after an error. */
ckpt_status ckpt__held_list(const ckpt__store *store, ckpt__held **out, size_t *count, ckpt_error *err);
/* One of them anew: after it was published. */
void ckpt__held_read(const ckpt__store *store, const char *name, ckpt__held *out);

/* `verified`: one line a checkpoint, "<name> <8 hex digits of its manifest's CRC>". Adds `held` and drops lines of what
 * is gone. */
ckpt_status ckpt__held_mark_verified(ckpt__store *store, const ckpt__held *list, size_t count, const ckpt__held *held,
                                     ckpt_error *err);
#endif
