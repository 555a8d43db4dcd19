/* io/readers.h - by how many threads a source is read the fastest. */
#ifndef CKPT_READERS_H
#define CKPT_READERS_H
#include "io/source.h"

enum { CKPT__READERS = 8 };

/* Does the page cache have half of an open file, as far as samples tell? Where the system will not say: yes. */
bool ckpt__file_is_cached(const ckpt__file *f, int fd);
/* Does it have half of all files of a source? True for one that is so small that it does not matter. */
bool ckpt__source_is_cached(const ckpt__source *s);
/* Threads for reading a source, where nobody said how many. What the page cache has is copied by processors: `cached` threads, which the
 * caller knows best. What it has not, a disk is waited for, which is the faster the more it is asked for at a time: CKPT__READERS
 * threads, whatever the number of processors, or `cached` where those are more. */
unsigned ckpt__readers_usual(const ckpt__source *s, unsigned cached);
#endif
