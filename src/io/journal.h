/* io/journal.h - which files of an unfinished directory are finished, so that another run goes on where one was interrupted.
 *
 * A directory that is written for "out/DST" is ".tmp-DST.HEX" until it gets its name, and its journal is the file
 * ".tmp-DST.HEX.journal" beside it: so a finished directory never has one in it, and is never without one before it is finished.
 * Each line begins with the CRC-32 of what follows the blank, and is a record; the first that is torn or wrong ends the journal:
 *
 *     f2c1a9d0 ckpt-journal 1 DIGEST DST            what is made of what: another digest is another directory
 *     77c0e1b4 of TEXT                              the same in words, so that it can be told what differs
 *     09ab33e1 file SIZE CRC NAME [MORE]            NAME has SIZE bytes of CRC-32 CRC; it was synced before this was written
 *
 * In NAME and DST a blank, a '%' and each byte that is not printable ASCII are written as %XX. TEXT and MORE are the caller's, without a line break.
 *   A record is no promise: who goes on reads the file back and compares. So a record that a power cut has kept, of a file that it
 * has not, does no harm, and the journal is synced only now and then.
 *   As long as its run lives the journal is locked (flock). It appears under its name locked, with its first line. Where a file system
 * has no such lock, there is no journal. On NFS the kernel makes it a lock of the server, which other clients see. */
#ifndef CKPT_JOURNAL_H
#define CKPT_JOURNAL_H
#include "base/base.h"

/* A file that is recorded. Strings are the journal's, until a record is added. */
typedef struct ckpt__journal_entry {
    const char *name, *more; /* more: "" where there is none */
    uint64_t size;
    uint32_t crc;
} ckpt__journal_entry;

typedef struct ckpt__journal {
    int dirfd;  /* owned: the directory of both */
    int fd;     /* owned, and locked; -1: it is given up, and nothing more is recorded */
    char *name; /* heap: its own there */
    bool sync;
    uint64_t end;      /* bytes: whole records up to here */
    uint64_t waiting;  /* bytes of files that were recorded since the last sync */
    int64_t synced_at; /* seconds of a clock that only goes forward */
    char *text;        /* heap: what was read, cut into strings; NULL: it is new */
    const char *of;    /* in that, what it is of, in words; "" where it does not say, or is new */
    ckpt__journal_entry *entries;
    size_t count,
        capacity; /* heap, in the order in which they were recorded; of a file that is there twice the last counts */
} ckpt__journal;

#define CKPT__JOURNAL_TAIL ".journal"

/* The journal of the directory that is going to be called `temporary`, below dirfd. *out NULL and CKPT_OK: there can be none here.
 * CKPT_E_EXISTS: there is one of that name. */
ckpt_status ckpt__journal_new(int dirfd, const char *temporary, const char *base, const char *digest, const char *of,
                              bool sync, ckpt__journal **out, ckpt_error *err);

typedef enum ckpt__journal_is {
    CKPT__JOURNAL_NOT_OURS, /* or it cannot be told: it is left alone */
    CKPT__JOURNAL_BUSY,     /* its run lives */
    CKPT__JOURNAL_SAME,     /* of that digest; *out is locked */
    CKPT__JOURNAL_STALE     /* of another one; *out is locked */
} ckpt__journal_is;
/* Opens and locks one that another run has left. err: only of memory. */
ckpt_status ckpt__journal_open(int dirfd, const char *name, const char *base, const char *digest, ckpt__journal_is *is,
                               ckpt__journal **out, ckpt_error *err);
/* A file is finished, and synced where anything is. What cannot be written here is no error: the journal is given up then, and
 * stays as it is. folder: the unfinished directory. */
void ckpt__journal_add(ckpt__journal *j, int folder, const char *name, uint64_t size, uint32_t crc, const char *more);
void ckpt__journal_sync(ckpt__journal *j, int folder);
/* The directory that it is of, into `name` (a name of the same length and more). */
const char *ckpt__journal_folder(const ckpt__journal *j, char *name, size_t size);
/* It lets go of the lock, and the file stays, or goes. Accept NULL. */
void ckpt__journal_close(ckpt__journal *j);
void ckpt__journal_remove(ckpt__journal *j);
#endif
