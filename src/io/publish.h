/* io/publish.h - what publishing and removing have in common. For src/io alone. */
#ifndef CKPT_PUBLISH_H
#define CKPT_PUBLISH_H
#include <limits.h>
#include <signal.h>
#include "base/base.h"
#include "io/sink.h"

/* A file size limit kills by SIGXFSZ; held back, the call says EFBIG, and the pending signal is taken away. Both keep
 * errno. */
typedef struct ckpt__xfsz {
    sigset_t before;  /* the thread's mask, to be put back */
    bool was_blocked; /* SIGXFSZ was blocked by the program itself: what is pending is the program's */
} ckpt__xfsz;
void ckpt__xfsz_hold(ckpt__xfsz *h);
void ckpt__xfsz_release(const ckpt__xfsz *h, bool too_big);

/* What to do about a failed write, open or rename: " (...)", or "". */
const char *ckpt__write_advice(int errno_value);

/* renameat2 without replacing, or its stand-in where the file system has none. 0, or -1 and errno. */
int ckpt__rename_noreplace(int dirfd, const char *from, const char *to, bool directory);

/* fsync of a directory. Where the file system has no such thing it is left to itself: 0. Else 0, or -1 and errno. */
int ckpt__sync_directory(int fd);
bool ckpt__no_directory_sync(int errno_value);

/* renameat2 has no flags there. */
bool ckpt__no_such_rename(int errno_value);

/* Renames a file or directory to .trash-pruned.<base>.<hex>: from then on it is only to be deleted, and no recovery
 * brings it back. 0, or -1 and errno. */
int ckpt__condemn(int dirfd, const char *name, const char *base, char trash[NAME_MAX + 1]);
/* The same for a directory that cannot be renamed (overlayfs: one of a lower layer): its checkpoint.json becomes .pruned, which
 * is synced. It is no checkpoint any more, and a recovery deletes it. 0, or -1 and errno: it is as it was. EISDIR: it holds
 * directories. */
int ckpt__condemn_in_place(int dirfd, const char *name);
bool ckpt__is_condemned_in_place(int dirfd, const char *name);
/* Removes a directory of files. Directories in it stay, and with them the directory itself. fd is the directory, already
 * open (it is closed), or -1. Takes no memory. True: it is gone; else errno says why not. */
bool ckpt__remove_directory(int dirfd, const char *name, int fd);
bool ckpt__remove_any(int dirfd, const char *name); /* the same for what may be a file, a link, ... */
#endif
