/* io/direct.h - bytes of a source's files past the page cache (O_DIRECT).
 *
 * A disk gives its best to large reads of which several are under way, without the copy from the page cache, and what is read once
 * need not stay there. So a file of which less than a quarter is in the page cache, when it is first asked for, is read past it, where the file system
 * can. */
#ifndef CKPT_DIRECT_H
#define CKPT_DIRECT_H
#include "io/source.h"

/* Bytes of which offsets, sizes and memory of a read are multiples; files that are open so at the same time. */
enum { CKPT__DIRECT_UNIT = 4096, CKPT__DIRECT_FILES = 64 };

/* The files of one source that were asked for. Threads may share it. */
typedef struct ckpt__direct ckpt__direct;

/* s: borrowed until it is closed; no file is added to it meanwhile. NULL: no memory, or this system cannot tell what is in its page
 * cache. Both accept NULL. */
ckpt__direct *ckpt__direct_open(const ckpt__source *s);
void ckpt__direct_close(ckpt__direct *d);
/* Bytes [offset, offset + n) of a file, read into `buffer`: n + 2 * CKPT__DIRECT_UNIT bytes, aligned to CKPT__DIRECT_UNIT. They begin where the
 * result points. NULL: nothing was read, or not all: more of the file is in the page cache, it cannot be read so, or it ends before, or
 * the disk failed. An ordinary read does it then, or says what is wrong. d NULL: NULL. */
const unsigned char *ckpt__direct_read(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n,
                                       unsigned char *buffer);
/* Are the files of the source for the most part not in the page cache, as far as can be told? */
bool ckpt__direct_is_cold(const ckpt__source *s);
#endif
