/* io/passing.h - the reads of a file that passes (ckpt__source_pass). For src/io alone: one thread reads. */
#ifndef CKPT_PASSING_H
#define CKPT_PASSING_H
#include "io/source.h"

/* The bytes [begin, end) are going to be read; they were. */
void ckpt__passing_ask(ckpt__file *file, int fd, uint64_t begin, uint64_t end);
void ckpt__passing_read(ckpt__file *file, int fd, uint64_t begin, uint64_t end);
/* Nothing is read any more: what the system read ahead in vain leaves the cache, too. */
void ckpt__passing_end(const ckpt__source *source);
#endif
