/* io/sink.h - a file or directory that appears whole and durable under its name, or not at all. */
#ifndef CKPT_SINK_H
#define CKPT_SINK_H
#include <sys/types.h>
#include "base/base.h"

typedef struct ckpt__sink ckpt__sink;
typedef struct ckpt__sink_options {
    bool sync;        /* fdatasync the file, fsync the directory */
    bool replace;     /* false: CKPT_E_EXISTS where the name is taken */
    bool replace_any; /* by a directory: also a file, or a directory that is no checkpoint */
    bool behind; /* with sync: what goes through the page cache is written out while more comes, and not kept there */
    mode_t mode_limit; /* 0: none; else the permission bits that the result may have at most */
    const char *
        journal; /* of a directory: a digest of what is going to be in it. What an interrupted run with the same one has
                                   * left is gone on with, what others have left is removed (io/sink_left.h). "": all is
                                   * removed, and no journal is kept. NULL: nobody looks. Borrowed by the opening alone */
    const char *
        journal_of; /* the same in words, for those who ask what a journal is of; NULL: it does not say. Borrowed likewise */
} ckpt__sink_options;

/* A temporary in path's directory, O_EXCL, that nobody but its owner may open; settled it gets the mode of the file replaced
 * (no setuid, setgid or sticky bit), or of a new one (0666 as the umask and the directory's default ACL have it). A symlink as
 * destination is resolved first. `size` bytes are reserved (fallocate), so ENOSPC comes before the data. */
ckpt_status ckpt__sink_file(const char *path, uint64_t size, const ckpt__sink_options *options, ckpt__sink **out,
                            ckpt_error *err);
/* The same for a file of an open directory (folder is its name, for messages). A link of that name is itself replaced, and
 * nothing outside of the directory is touched. */
ckpt_status ckpt__sink_file_at(int dirfd, const char *folder, const char *name, uint64_t size,
                               const ckpt__sink_options *options, ckpt__sink **out, ckpt_error *err);
/* The same for one file inside an open directory sink. */
ckpt_status ckpt__sink_member(ckpt__sink *directory, const char *name, uint64_t size, ckpt__sink **out,
                              ckpt_error *err);
/* A folder inside an open directory sink, whose members' names then begin with it; the folder above it comes first. */
ckpt_status ckpt__sink_folder(ckpt__sink *directory, const char *name, ckpt_error *err);
ckpt_status ckpt__sink_directory(const char *path, const ckpt__sink_options *options, ckpt__sink **out,
                                 ckpt_error *err);
/* The same below an open directory (folder is its name, for messages), wherever that was moved. */
ckpt_status ckpt__sink_directory_at(int dirfd, const char *folder, const char *name, const ckpt__sink_options *options,
                                    ckpt__sink **out, ckpt_error *err);
/* Has its file system so many bytes left, for all of its members together? CKPT_E_SYSTEM (ENOSPC): it has not, and nothing is written
 * yet. A file by itself is reserved instead. Where the system does not say: CKPT_OK. */
ckpt_status ckpt__sink_room(const ckpt__sink *s, uint64_t bytes, ckpt_error *err);
/* Narrows the limit of one that is open: a member need not be as open as its directory's others. */
void ckpt__sink_narrow(ckpt__sink *s, mode_t limit);
ckpt_status ckpt__sink_write(ckpt__sink *s, uint64_t offset, const void *data, size_t n, ckpt_error *err);
/* Publishes: sync, close, rename, fsync of the directory (for a member: sync and close; it appears with its
 * directory). Frees s in any case; on error the temporary is removed and what was there before is untouched. */
ckpt_status ckpt__sink_commit(ckpt__sink *s, ckpt_error *err);
/* The part of a commit that comes before the name is taken: all of it is on disk, under the temporary's name, and closed.
 * A commit then only publishes. On error s is still there: abort it. For a directory: after its members' commits. */
ckpt_status ckpt__sink_settle(ckpt__sink *s, ckpt_error *err);
void ckpt__sink_abort(ckpt__sink *s); /* removes the temporary; accepts NULL */
/* Its name beside the one that it is to have: borrowed, until the commit. */
const char *ckpt__sink_temporary(const ckpt__sink *s);
/* The path of that: what was settled can be read there before it takes the name. Heap; NULL: no memory. Not of a member. */
char *ckpt__sink_beside(const ckpt__sink *s);
uint64_t ckpt__unique(void); /* for names, and for what must not come twice */
#endif
