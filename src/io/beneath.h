/* io/beneath.h - opening what lies below a directory, and never what does not. For src/io alone. */
#ifndef CKPT_BENEATH_H
#define CKPT_BENEATH_H
#include "base/base.h"

/* Empty, absolute, or with a component "..": never opened, with any kernel. */
bool ckpt__name_climbs(const char *name);
/* A name that does not climb, without waiting (a FIFO, a device). -1 and errno; EXDEV or ELOOP: a link leads out.
 * flags: O_RDONLY or O_PATH. */
int ckpt__open_beneath(int dirfd, const char *name, int flags);
/* The one link out of a directory that is followed: a snapshot of the Hugging Face hub's cache,
 *     models--NAME/snapshots/REVISION/...     whose files are links to
 *     models--NAME/blobs/HASH                 of 40 or 64 hexadecimal digits, in lower case.
 * dirfd is the snapshot or a folder in it. Opens the blob that the link `name` stands for, to read, never through another
 * link, and without waiting. -1 and errno; EXDEV: it is no link of that kind. */
int ckpt__open_blob(int dirfd, const char *name);
/* "a FIFO", "a directory", ...: of what is no regular file. */
const char *ckpt__kind_of(unsigned mode);
#endif
