/* io/beneath.h - opening what lies below a directory, and never what does not. For src/io alone. */
#ifndef CKPT_BENEATH_H
#define CKPT_BENEATH_H
#include "base/base.h"

/* Empty, absolute, or with a component "..": never opened, with any kernel. */
bool ckpt__name_climbs(const char *name);
/* A name that does not climb, without waiting (a FIFO, a device). -1 and errno; EXDEV or ELOOP: a link leads out.
 * flags: O_RDONLY or O_PATH. */
int ckpt__open_beneath(int dirfd, const char *name, int flags);
/* "a FIFO", "a directory", ...: of what is no regular file. */
const char *ckpt__kind_of(unsigned mode);
#endif
