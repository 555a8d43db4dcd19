/* io/source.h - the files that a checkpoint is read from. Immutable after open but for ckpt__source_add; pread only,
 * so threads may share it. */
#ifndef CKPT_SOURCE_H
#define CKPT_SOURCE_H
#include "base/base.h"

typedef struct ckpt__file {
    char *name;                   /* relative to the directory; the path itself for a single file */
    int fd;
    uint64_t size;
    uint64_t dev, ino;
} ckpt__file;

typedef struct ckpt__source {
    char *path;
    bool directory;
    int dirfd;                    /* -1 unless a directory */
    ckpt__file *files; size_t count, capacity;
} ckpt__source;

/* A file: it becomes file 0. A directory: no files yet. CKPT_E_SYSTEM (no such file, permission), CKPT_E_FORMAT for
 * what is neither (device, FIFO, socket: opened O_NONBLOCK, never read). */
ckpt_status ckpt__source_open(const char *path, ckpt__source **out, ckpt_error *err);
void ckpt__source_close(ckpt__source *s);
/* Is the directory that was opened still the one of that name? A writer may prune it or replace it by another while it is
 * read: then its files go one by one. True for a file. */
bool ckpt__source_is_there(const ckpt__source *s);
/* A file below the directory, never outside of it (openat2 RESOLVE_BENEATH where the kernel has it; else names with
 * "..", absolute names and links are refused). name may hold '/'. *file gets its number; added twice it is found. */
ckpt_status ckpt__source_add(ckpt__source *s, const char *name, uint32_t *file, ckpt_error *err);
/* Exactly n bytes, or CKPT_E_DAMAGED ("ends at byte X of Y expected") or CKPT_E_SYSTEM. EINTR and short reads are
 * retried. */
ckpt_status ckpt__source_read(const ckpt__source *s, uint32_t file, uint64_t offset, void *dst, size_t n, ckpt_error *err);
/* Reads a whole small file of a directory (at most limit bytes; else CKPT_E_LIMIT) into b. */
ckpt_status ckpt__source_slurp(const ckpt__source *s, uint32_t file, uint64_t limit, ckpt__buf *b, ckpt_error *err);
/* "path" or "path/name" for messages, into buf. */
const char *ckpt__source_label(const ckpt__source *s, uint32_t file, char *buf, size_t size);
#endif
