/* base/pages.h - much memory at once, its pages there before it is used: the first touch of a page costs more than a copy of it. */
#ifndef CKPT_PAGES_H
#define CKPT_PAGES_H
#include "base/base.h"

/* Memory of `size` bytes, rounded up to a multiple of 2 MiB (*mapped), and aligned to that. It is zero, its pages are filled in, by several
 * threads where it is large, and huge where the system has such. No core dump has it. NULL: there is not so much; errno says why. */
char *ckpt__pages_map(uint64_t size, uint64_t *mapped);
/* mapped: as ckpt__pages_map said. */
void ckpt__pages_unmap(char *pages, uint64_t mapped);
#endif
