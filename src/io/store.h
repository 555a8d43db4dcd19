/* io/store.h - a run directory: its lock, its names, its hints, and the removal of what is in it. Knows nothing of
 * checkpoints: a name that it is given is a directory of files. */
#ifndef CKPT_STORE_H
#define CKPT_STORE_H
#include "base/base.h"

/* An open run directory. Everything is done below `dirfd`, so a directory that is moved meanwhile is still this one. */
typedef struct ckpt__store {
    char *path;    /* heap; absolute, so that a chdir of the trainer changes nothing */
    int dirfd;     /* owned */
    int lock;      /* descriptor of .lock, owned; -1: not locked */
    bool unsynced; /* the file system has no fsync of directories: names reach the disk when it likes */
    int64_t owner; /* the process that locked it: one forked from it does not unlock */
} ckpt__store;

/* create: the directory and its missing parents are made (each fsynced, and the directory that it lies in).
 * CKPT_E_SYSTEM; CKPT_E_FORMAT where path is no directory. */
ckpt_status ckpt__store_open(const char *path, bool create, ckpt__store **out, ckpt_error *err);
void ckpt__store_close(ckpt__store *s); /* unlocks; accepts NULL */

/* An open file description lock on .lock, and who holds it written into it ("pid 17 on host a\n"). CKPT_E_EXISTS names
 * that holder. Where the file system has no locks: CKPT_E_SYSTEM, and the message says what to do. */
ckpt_status ckpt__store_lock(ckpt__store *s, ckpt_error *err);
/* Before anything is written: is the directory still there, and its lock still ours? A directory that was moved is still the
 * one that is open: *moved says that its path leads there no more. Where .lock was removed or replaced by another file, that
 * one is taken (*relocked); CKPT_E_EXISTS where another process holds it or has signed it: then nothing may be written.
 * CKPT_E_SYSTEM: the directory was removed, or cannot be looked at. */
ckpt_status ckpt__store_guard(ckpt__store *s, bool *moved, bool *relocked, ckpt_error *err);
/* A path that leads to a name in the open directory, for what opens paths: the usual one, or one in /proc where the directory
 * was moved. Heap. ckpt__store_leads: does it (still)? */
ckpt_status ckpt__store_reach(const ckpt__store *s, const char *name, char **path, ckpt_error *err);
bool ckpt__store_leads(const ckpt__store *s, const char *path, const char *name);
/* Who holds the lock, into buf; false: nobody, or no such file. Takes no lock. */
bool ckpt__store_holder(const ckpt__store *s, char *buf, size_t size);

/* With the lock: a directory that an exchange in two steps had moved aside goes back to its name if that is free
 * (.trash-<name>.<16 hex digits>); an error where it cannot, for it may be the only one. Then all .tmp-*, .trash-* and
 * .NAME.tmp-<16 hex digits> go, and directories called `prefix`* that are empty (a claim that was never filled) or were being
 * deleted where they are. What
 * cannot be removed is left, and counted in *left. fsyncs the directory where something changed. */
ckpt_status ckpt__store_recover(ckpt__store *s, const char *prefix, size_t *restored, size_t *removed, size_t *left,
                                ckpt_error *err);

/* Calls fn with each name but "." and "..", in no order; a return other than CKPT_OK stops and is returned. */
typedef ckpt_status (*ckpt__store_fn)(void *ctx, const char *name, ckpt_error *err);
ckpt_status ckpt__store_each(const ckpt__store *s, ckpt__store_fn fn, void *ctx, ckpt_error *err);

/* A small file below the directory ("latest", "step-00001000/checkpoint.json"), whole, at most `limit` bytes, never
 * outside of it. CKPT_E_NOT_FOUND where there is none; CKPT_E_SYSTEM; CKPT_E_LIMIT; CKPT_E_FORMAT: no regular file. */
ckpt_status ckpt__store_read(const ckpt__store *s, const char *name, size_t limit, ckpt__buf *out, ckpt_error *err);
/* Size of a regular file and when it was last changed. Errors as those of ckpt__store_read. */
ckpt_status ckpt__store_stat(const ckpt__store *s, const char *name, uint64_t *size, int64_t *mtime, ckpt_error *err);
/* Replaces a small file: temporary, fsync, rename, fsync of the directory. */
ckpt_status ckpt__store_write(ckpt__store *s, const char *name, const char *text, size_t n, ckpt_error *err);

/* A file that someone puts there to ask for something. id tells one such file from the next of that name: 0: none. */
uint64_t ckpt__store_touched(const ckpt__store *s, const char *name);
ckpt_status ckpt__store_untouch(ckpt__store *s, const char *name, ckpt_error *err); /* not there: CKPT_OK */

/* Removes directories of files: each is renamed to .trash-pruned.<name>.<hex>, the directory is fsynced, and only then
 * is anything deleted. One that cannot be renamed (EXDEV) is deleted where it is, its checkpoint.json first. A name that is gone already is no error. */
ckpt_status ckpt__store_remove(ckpt__store *s, const char *const *names, size_t n, ckpt_error *err);

/* CKPT_E_ARGUMENT: no name of something in the directory itself (empty, "..", with a slash). */
ckpt_status ckpt__store_name(const ckpt__store *s, const char *name, ckpt_error *err);

/* Bytes of host memory that may be taken without swapping: MemAvailable, and less where the control group allows less;
 * UINT64_MAX where neither is known. */
uint64_t ckpt__memory_available(void);
#endif
