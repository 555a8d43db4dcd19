/* io/passing.h - the reads of a file that passes (ckpt__source_pass). For src/io alone: one thread reads. */
#ifndef CKPT_PASSING_H
#define CKPT_PASSING_H
#include "io/source.h"

/* Puts bytes of the file from `begin` on into dst, n at most, where the run that they go on with, or begin, is read past the cache. How many; the
 * rest is to be read otherwise. */
size_t ckpt__passing_take(const ckpt__source *source, uint32_t file, int fd, uint64_t begin, void *dst, size_t n);
/* The bytes [begin, end) are going to be read; they were. */
void ckpt__passing_ask(const ckpt__source *source, ckpt__file *file, int fd, uint64_t begin, uint64_t end);
void ckpt__passing_read(const ckpt__source *source, ckpt__file *file, int fd, uint64_t begin, uint64_t end);
/* Nothing is read any more: what the system read ahead in vain leaves the cache, too. */
void ckpt__passing_end(ckpt__source *source);
#endif
