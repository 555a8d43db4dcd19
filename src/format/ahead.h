/* format/ahead.h - files of a checkpoint's ranks, read by several threads before they are asked for. A thousand ranks have a thousand
 * small headers, and each takes some system calls and some parsing that the others do not wait for. */
#ifndef CKPT_AHEAD_H
#define CKPT_AHEAD_H
#include "format/format.h"

/* The files that are going to be read, in their order, and what was read of the next ones. Of five files and two threads the first
 * question reads all five, of a hundred a few: what is read and not asked for yet is bounded by the threads, not by the files. */
typedef struct ckpt__ahead ckpt__ahead;

/* names: below the request's source, borrowed with it until the end; NULL ones are passed over. NULL: no memory. Then nothing is read
 * ahead, and nothing else changes. */
ckpt__ahead *ckpt__ahead_new(const ckpt__read_request *request, const char *const *names, size_t count);
void ckpt__ahead_free(ckpt__ahead *a);
/* The index of a file that was added to the source, with an arena of its own. False: the caller reads it, and gets its error: it is
 * none of the names, it was taken before, it cannot be read, or its format may open more files than this one. a: may be NULL.
 * Files are asked for in the order of the names; those that are passed over are not there later. The next names are added to
 * the source here, in their order. */
bool ckpt__ahead_take(ckpt__ahead *a, uint32_t file, ckpt__index **part);
#endif
