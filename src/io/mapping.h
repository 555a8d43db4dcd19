/* io/mapping.h - a file of a source as memory, for who wants its bytes where they are. */
#ifndef CKPT_MAPPING_H
#define CKPT_MAPPING_H
#include "io/source.h"

/* Maps the whole file as it was when it was opened, read-only, shared with its page cache; *data is NULL for an empty one.
 * CKPT_E_SYSTEM: no room in the address space (a limit), or a file system without mmap. */
ckpt_status ckpt__source_map(const ckpt__source *s, uint32_t file, const void **data, ckpt_error *err);
void ckpt__source_unmap(const ckpt__source *s, uint32_t file, const void *data); /* accepts NULL */
#endif
