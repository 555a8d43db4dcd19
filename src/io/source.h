/* io/source.h - the files that a checkpoint is read from. Immutable after open but for ckpt__source_add and
 * ckpt__source_pass; pread only, so threads may share it, but for one that is passed.
 *   There may be more files than the process may have open: those that were not read for long are closed, and opened again when
 * they are (io/descriptors.h). So a file that is removed, replaced or written to while its checkpoint is read may be an error,
 * CKPT_E_DAMAGED or CKPT_E_SYSTEM. And a lock that the program itself has on such a file by fcntl(F_SETLK) may be lost
 * before the source is closed, as the system drops those of a file with each descriptor of it. */
#ifndef CKPT_SOURCE_H
#define CKPT_SOURCE_H
#include <sys/types.h>
#include "base/base.h"

/* A run: what is read in order of a file that passes (ckpt__source_pass). A file of a DeepSpeed rank has three, one of the masters and two of
 * the moments, which are read by turns. */
enum { CKPT__PASSING_RUNS = 4 };
typedef struct ckpt__passing_run {
    uint64_t begin; /* its first byte; */
    uint64_t passed,
        passed_end; /* the bytes [passed, passed_end) were read and are still in the cache. Past 8 MiB they are
                                  * dropped, and passed becomes passed_end; */
    uint64_t asked; /* the system was asked for it up to this byte; */
    unsigned used;  /* and it was read last by this read of the file */
    const unsigned char *window; /* bytes [window_at, window_end), read past the cache; NULL: none are held */
    uint64_t window_at, window_end;
} ckpt__passing_run;

/* One open file. Its number in the source's table is what an extent names (ckpt__extent.file). */
typedef struct ckpt__file {
    char *name;        /* heap: relative to the directory; the path itself for a single file */
    int fd;            /* owned, open for reading; -1: closed for now. Only io/descriptors.c looks at it */
    uint64_t size;     /* bytes, when it was opened */
    uint64_t dev, ino; /* which file that was, whatever has its name later */
    int64_t mtime;     /* when it was last written before it was opened: seconds, and nanoseconds */
    long mtime_ns;
    mode_t mode;    /* its permissions, then */
    size_t root;    /* the path that has it: 0 is the source's `path`, n is also[n - 1] */
    char *path;     /* heap: absolute, by which it is opened again; NULL: as `name` below the root's directory */
    bool stays;     /* it cannot be opened again, and stays open */
    bool scattered; /* ckpt__source_scattered */
    bool used;      /* since the last search for a file to close; atomic */
    int pins;       /* reads under way; -1: closed; atomic */
    bool passes;    /* ckpt__source_pass with keep false: what was read leaves the page cache again */
    uint64_t
        ahead; /* then: so many bytes behind those that are read are asked for at most, of all runs; 0: the system reads ahead */
    ckpt__passing_run runs[CKPT__PASSING_RUNS];
    unsigned run_count, run_reads; /* how many of them there are; reads so far */
    unsigned refused;              /* windows that were not to be had, one behind the other */
} ckpt__file;

/* A further directory (or file) of the same checkpoint, on another disk. */
typedef struct ckpt__root {
    char *path; /* heap, as it was given */
    int dirfd;  /* owned; -1: a file */
} ckpt__root;

/* What a checkpoint is read from: one file, a directory, or several paths of one checkpoint. A run on two disks that was given
 * as "a/step-100" and "/mnt/b/step-100" has path "a/step-100", also[0] "/mnt/b/step-100", and files whose root is 0 or 1. */
typedef struct ckpt__descriptors ckpt__descriptors;
typedef struct ckpt__source {
    char *path;     /* heap, as it was given first */
    bool directory; /* files have names below a directory, or there are several paths */
    int dirfd;      /* owned; -1: `path` is a file */
    ckpt__file *files;
    size_t count, capacity; /* heap, in the order in which they were added */
    ckpt__hash
        *by_name; /* owned: name -> number, where there are many files, all below one path; NULL: no such table */
    ckpt__root *also;
    size_t also_count, also_capacity; /* heap; NULL: there is one path */
    ckpt__descriptors *descriptors;   /* owned: which of the files are open */
    struct ckpt__windows *windows;    /* owned: of files that pass, read past the cache; NULL: there are none */
} ckpt__source;

/* A file: it becomes file 0. A directory: no files yet. CKPT_E_SYSTEM (no such file, permission), CKPT_E_FORMAT for
 * what is neither (device, FIFO, socket: opened O_NONBLOCK, never read). */
ckpt_status ckpt__source_open(const char *path, ckpt__source **out, ckpt_error *err);
void ckpt__source_close(ckpt__source *s);
/* One more path of the same checkpoint: a directory, or a file, which is then known by its base name, as is a first path
 * that is a file. CKPT_E_ARGUMENT: it was given already. */
ckpt_status ckpt__source_open_also(ckpt__source *s, const char *path, ckpt_error *err);
/* A single file becomes file 0 of the directory that it lies in (an index file names others beside it). */
ckpt_status ckpt__source_open_around(ckpt__source *s, ckpt_error *err);
size_t ckpt__source_roots(const ckpt__source *s);                  /* 1, and 1 for each further path */
const char *ckpt__source_root(const ckpt__source *s, size_t root); /* as it was given */
/* Is the directory that was opened still the one of that name? A writer may prune it or replace it by another while it is
 * read: then its files go one by one. True for a file. So with every root. */
bool ckpt__source_is_there(const ckpt__source *s);
/* Who may read it: the permissions that all opened files and directories have in common, and all of the owner's. */
mode_t ckpt__source_mode(const ckpt__source *s);
/* A file below the directory, never outside of it (openat2 RESOLVE_BENEATH where the kernel has it; else names with
 * "..", absolute names and links are refused), but for a link of a snapshot in the Hugging Face hub's cache to its blob
 * (ckpt__open_blob). name may hold '/'. *file gets its number; added twice it is found. */
ckpt_status ckpt__source_add(ckpt__source *s, const char *name, uint32_t *file, ckpt_error *err);
/* The same below one of the roots. ckpt__source_add takes the first that has it, and is CKPT_E_MISMATCH naming both where
 * another has a file of that name with other bytes. */
ckpt_status ckpt__source_add_at(ckpt__source *s, size_t root, const char *name, uint32_t *file, ckpt_error *err);
/* Closes the file that was added last, whose number nothing has noted: of many that are read once, one after the other. */
void ckpt__source_drop_last(ckpt__source *s);
/* Names in the directory, or in `below`, a folder in it, of every root: fn gets the number of the root, and whether it is
 * a folder; "." and ".." and what is neither file nor folder are left out. At most 10,000 a folder: CKPT_E_LIMIT. A root
 * that has no such folder is passed over. A return other than CKPT_OK stops and is returned. */
typedef ckpt_status (*ckpt__source_fn)(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err);
ckpt_status ckpt__source_each(const ckpt__source *s, const char *below, ckpt__source_fn fn, void *ctx, ckpt_error *err);
/* Exactly n bytes, or CKPT_E_DAMAGED ("ends at byte X of Y expected") or CKPT_E_SYSTEM. EINTR and short reads are
 * retried. */
ckpt_status ckpt__source_read(const ckpt__source *s, uint32_t file, uint64_t offset, void *dst, size_t n,
                              ckpt_error *err);
/* Small pieces far from each other are going to be read (true): the system then reads no more than is asked for; and after
 * that (false) in order, ahead of what is asked for, as by itself. */
void ckpt__source_scattered(const ckpt__source *s, uint32_t file, bool scattered);
/* Everything is going to be read once, by one thread. A file that is not in the page cache, but for a page here and there
 * that opening it has read, is first dropped from it: such a page stops the system's reading ahead. Not keep: what was read
 * in order leaves the cache again, which is spared for others, and where memory is limited nobody has to look for pages; and
 * of many files no more is read ahead than a small memory has room for. memory: so many bytes may be taken for reading ahead past the cache
 * (io/windows.h), where that is left; 0: nothing is read so. */
void ckpt__source_pass(ckpt__source *s, bool keep, uint64_t memory);
/* Reads a whole small file of a directory (at most limit bytes; else CKPT_E_LIMIT) into b. */
ckpt_status ckpt__source_slurp(const ckpt__source *s, uint32_t file, uint64_t limit, ckpt__buf *b, ckpt_error *err);
/* "path" or "path/name" for messages, into buf. */
const char *ckpt__source_label(const ckpt__source *s, uint32_t file, char *buf, size_t size);
#endif
