/* io/sink_own.h - a sink from within: what sink.c opens and writes, sink_publish.c settles and publishes. */
#ifndef CKPT_SINK_OWN_H
#define CKPT_SINK_OWN_H
#include <sys/types.h>
#include "io/sink.h"
#include "io/sink_left.h"

/* An output under its temporary name. A sink goes one way: open, written, settled (all bytes on disk), committed (it has its
 * name); an abort may come before each step. Strings are heap and owned. The descriptors are owned too, but for the dirfd of a
 * member, which is the fd of its directory. */
struct ckpt__sink {
    ckpt__sink_options options;
    ckpt__sink *parent; /* of a member: the directory's sink, which outlives it; else NULL */
    char *path;         /* as the user named it, links resolved */
    char *base;         /* last component of path; NULL for a member */
    char *temporary;    /* name in the directory dirfd, beside `base`; a member is called so from the start */
    int dirfd;          /* the directory that holds path (and the temporary) */
    int fd;             /* the file, or the temporary directory; -1 once settled */
    int direct;         /* the same file past the page cache (O_DIRECT), or -1 */
    bool directory;
    bool settled;           /* all of it is on disk, and fd is closed */
    bool synced;            /* so is its name */
    mode_t mode;            /* that of a new one: 0666 or 0777 as the umask and the directory have it */
    uint64_t size;          /* bytes that the file will have; 0 for a directory */
    ckpt__journal *journal; /* of a directory: owned; NULL: it has none */
    ckpt__sink_left left;   /* of a directory: what was found beside it */
    bool adopted;           /* an interrupted run has begun it: what is there of it is replaced */
    char **folders;         /* folders below a directory, parents first; NULL: none */
    size_t folder_count, folder_capacity;
};

ckpt__sink *ckpt__sink_new(const ckpt__sink_options *options);
/* Splits path (a link as destination resolved first) and opens the directory that it lies in. */
ckpt_status ckpt__sink_locate(ckpt__sink *s, const char *path, ckpt_error *err);
/* Looks at what interrupted runs have left for s, and removes what is of no use; then s->journal is that of the one to go on with, or
 * NULL. look: nothing is removed, and it is asked about each that would be. */
ckpt_status ckpt__sink_search(ckpt__sink *s, const char *digest, ckpt__look_fn *look, void *ctx, ckpt_error *err);
/* The directory of s->journal is the temporary from now on. CKPT_E_NOT_FOUND: it is not as it has to be; s->journal is NULL then. */
ckpt_status ckpt__sink_adopt(ckpt__sink *s, ckpt_error *err);
/* A new name for a temporary directory, into s->temporary, and a journal for it where one is asked for. CKPT_E_EXISTS: try again. */
ckpt_status ckpt__sink_call_temporary(ckpt__sink *s, const char *digest, ckpt_error *err);
/* Removes a directory with all folders in it, from the deepest upwards, so that few descriptors are open. False: some of it stays. */
bool ckpt__remove_tree(int dirfd, const char *name);
void ckpt__sink_free(ckpt__sink *s);
mode_t ckpt__sink_limit(const ckpt__sink *s); /* for & with a mode: who may read may look into a directory, too */
ckpt_status ckpt__sink_taken(const ckpt__sink *s, ckpt_error *err); /* CKPT_E_EXISTS */
#endif
