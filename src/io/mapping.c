/* io/mapping.c - a file of a source as memory. */
#include "io/mapping.h"

#include <errno.h>
#include <sys/mman.h>
#include "io/descriptors.h"

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
    int fd;
    ckpt_status status = ckpt__descriptor_pin(s, file, 0, &fd, err);
    if (status < 0)
        return status;
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0); /* stays when the file is closed */
    if (p == MAP_FAILED)
        status = ckpt__fail_sys(err, errno, label, "cannot map its %llu bytes", (unsigned long long)size);
    else
        *data = p;
    ckpt__descriptor_unpin(s, file);
    return status;
}

void ckpt__source_unmap(const ckpt__source *s, uint32_t file, const void *data)
{
    if (data)
        munmap((void *)(uintptr_t)data, (size_t)s->files[file].size);
}
