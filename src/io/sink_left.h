/* io/sink_left.h - what an interrupted run has left of a directory: found, looked through, gone on with, or removed.
 *
 * A leftover counts as ours where its journal and the directory belong to this user, the journal names the same destination, and
 * nobody holds its lock. All others stay as they are: those of a run that lives, those without a journal (an older version, a
 * save, another program), and those of file systems where it cannot be told. */
#ifndef CKPT_SINK_LEFT_H
#define CKPT_SINK_LEFT_H
#include "io/journal.h"
#include "io/sink.h"

typedef struct ckpt__sink_left {
    size_t
        stale; /* leftovers of another source, of other options, or of another version: removed, or when they are only looked at
                                   * to be removed */
    size_t stuck;   /* some of it could not be removed */
    size_t busy;    /* other runs that write to the same destination now */
    size_t files;   /* when it is only looked at: that are recorded of the one that would be gone on with, */
    uint64_t bytes; /* their bytes, */
    char name[256]; /* and its name; else "" */
} ckpt__sink_left;

/* Is told of a leftover that is of no use by its digest: its directory's name, and what its journal says. A negative answer ends the
 * search, and is returned. */
typedef ckpt_status ckpt__look_fn(void *ctx, const char *folder, const ckpt__journal *journal, ckpt_error *err);
/* What opening the directory sink would find; nothing is changed. */
ckpt_status ckpt__sink_look(const char *path, const char *digest, ckpt__look_fn *look, void *ctx, ckpt__sink_left *out,
                            ckpt_error *err);
/* The destination is there, and stays: removes the journal of a run that was killed just after it had given the name. */
void ckpt__sink_tidy(const char *path);
/* What opening it has found. */
const ckpt__sink_left *ckpt__sink_found(const ckpt__sink *s);
/* The records of the run that was interrupted, and of this one; NULL: no journal is kept. */
const ckpt__journal *ckpt__sink_journal(const ckpt__sink *s);
bool ckpt__sink_is_adopted(const ckpt__sink *s); /* it was begun by a run that was interrupted */
/* A member was committed. */
void ckpt__sink_record(ckpt__sink *s, const char *name, uint64_t size, uint32_t crc, const char *more);

/* Removes from an adopted directory whatever `wanted` does not know. It says of a path in the directory what it has to be. */
typedef enum ckpt__wanted { CKPT__WANTED_NOT, CKPT__WANTED_FILE, CKPT__WANTED_FOLDER } ckpt__wanted;
typedef ckpt__wanted ckpt__wanted_fn(void *ctx, const char *name);
ckpt_status ckpt__sink_sift(ckpt__sink *s, ckpt__wanted_fn *wanted, void *ctx, ckpt_error *err);
/* Reads a member that is recorded back, after which it is as one that was committed. *as_written: it has that size and CRC-32.
 * read(ctx, n) is told of n bytes more; its negative answer is returned. */
typedef ckpt_status ckpt__read_fn(void *ctx, uint64_t n, ckpt_error *err);
ckpt_status ckpt__sink_check(ckpt__sink *s, const ckpt__journal_entry *e, ckpt__read_fn *read, void *ctx,
                             bool *as_written, ckpt_error *err);
/* In place of an abort: what is finished stays, for another run to go on with. Frees s. */
void ckpt__sink_keep(ckpt__sink *s);
#endif
