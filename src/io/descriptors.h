/* io/descriptors.h - which files of a source are open: as many as the limit on descriptors leaves room for. For src/io alone.
 *
 * A checkpoint may have more files than a process may have open (1,024 shards, and `ulimit -n 256`). Every file is opened when it is
 * added to its source. Past the bound the file that was not used for the longest time is closed, and opened again when it is read.
 * It has to be the same file then, of the same size, and unchanged since: else the bytes of two checkpoints would be mixed.
 *   The library never changes the limit. The bound follows it: half of what RLIMIT_NOFILE allows now, CKPT__FILES_OPEN at most, shared
 * by the sources that are open; a few are each source's own. Where there are fewer, because the program has many files of its own open, the bound becomes what
 * can be had.
 *   A file that is being read is not closed. Threads may pin and unpin at the same time. */
#ifndef CKPT_DESCRIPTORS_H
#define CKPT_DESCRIPTORS_H
#include "io/source.h"

enum { CKPT__FILES_OPEN = 4096 };

ckpt__descriptors *ckpt__descriptors_new(void);    /* NULL: no memory */
void ckpt__descriptors_free(ckpt__descriptors *d); /* accepts NULL; after the files were closed */

/* Opens `name` below a root, to read. -1 and errno. */
int ckpt__source_open_member(const ckpt__source *s, size_t root, const char *name);

/* The descriptor of a file, which stays open until it is unpinned. offset: from where it is going to be read. CKPT_E_DAMAGED: the
 * file of that name is another one by now, or was changed, or is gone; CKPT_E_SYSTEM. */
ckpt_status ckpt__descriptor_pin(const ckpt__source *s, uint32_t file, uint64_t offset, int *fd, ckpt_error *err);
void ckpt__descriptor_unpin(const ckpt__source *s, uint32_t file);

/* A file was added, with a descriptor; one is going to be dropped, which is closed. */
void ckpt__descriptor_added(ckpt__source *s, uint32_t file);
void ckpt__descriptor_dropped(ckpt__source *s, uint32_t file);
/* errno says that there are no descriptors left (EMFILE, ENFILE): closes some that are not in use. True: try again. */
bool ckpt__descriptors_give(const ckpt__source *s);
#endif
