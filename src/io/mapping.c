/* io/mapping.c - a file of a source as memory. */
#include "io/mapping.h"

#include <errno.h>
#include <sys/mman.h>

ckpt_status ckpt__source_map(const ckpt__source *s, uint32_t file, const void **data, ckpt_error *err)
{
    char label[1024];
    uint64_t size = s->files[file].size;
    *data = NULL;
    if (size == 0)
        return CKPT_OK;
    ckpt__source_label(s, file, label, sizeof label);
    if (size > SIZE_MAX / 2)
        return ckpt__fail_memory(err, label, size);
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, s->files[file].fd, 0);
    if (p == MAP_FAILED)
        return ckpt__fail_sys(err, errno, label, "cannot map its %llu bytes", (unsigned long long)size);
    *data = p;
    return CKPT_OK;
}

void ckpt__source_unmap(const ckpt__source *s, uint32_t file, const void *data)
{
    if (data)
        munmap((void *)(uintptr_t)data, (size_t)s->files[file].size);
}
