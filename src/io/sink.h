/* io/sink.h - a file or directory that appears whole and durable under its name, or not at all. */
#ifndef CKPT_SINK_H
#define CKPT_SINK_H
#include "base/base.h"

typedef struct ckpt__sink ckpt__sink;
typedef struct ckpt__sink_options {
    bool sync;                    /* fdatasync the file, fsync the directory */
    bool replace;                 /* false: CKPT_E_EXISTS where the name is taken */
} ckpt__sink_options;

/* A temporary in path's directory, O_EXCL, mode of the file replaced or 0666 & ~umask; a symlink as destination is
 * resolved first. `size` bytes are reserved (fallocate), so ENOSPC comes before the data. */
ckpt_status ckpt__sink_file(const char *path, uint64_t size, const ckpt__sink_options *options, ckpt__sink **out,
                            ckpt_error *err);
/* The same for one file inside an open directory sink. */
ckpt_status ckpt__sink_member(ckpt__sink *directory, const char *name, uint64_t size, ckpt__sink **out, ckpt_error *err);
ckpt_status ckpt__sink_directory(const char *path, const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err);
ckpt_status ckpt__sink_write(ckpt__sink *s, uint64_t offset, const void *data, size_t n, ckpt_error *err);
/* Publishes: sync, close, rename, fsync of the directory (for a member: sync and close; it appears with its
 * directory). Frees s in any case; on error the temporary is removed and what was there before is untouched. */
ckpt_status ckpt__sink_commit(ckpt__sink *s, ckpt_error *err);
void ckpt__sink_abort(ckpt__sink *s);          /* removes the temporary; accepts NULL */
/* Removes a file that was published and turned out damaged (a link stays, its target goes). False: it is still there. */
bool ckpt__sink_retract(const char *path);
#endif
