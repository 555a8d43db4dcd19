/* tests/unit/mapped_files.h - must src/io/cached.c map the files of a folder? What it asks for is asked here by itself, so that a test of
 * it passes without a look only where the system has no such mappings. */
#ifndef MAPPED_FILES_H
#define MAPPED_FILES_H
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

/* path: a file with a byte at least, which nobody has open for writing. */
static inline bool files_are_mapped(const char *path)
{
    static const unsigned long local[] = {0xef53UL, 0x58465342UL, 0x9123683eUL, 0xf2f52010UL, 0x01021994UL};
    struct statfs f;
    bool is = false;
    long seconds = 0;
    FILE *wait = fopen("/proc/sys/fs/lease-break-time", "r");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstatfs(fd, &f) == 0)
        for (size_t i = 0; i < sizeof local / sizeof *local; i++)
            is |= ((unsigned long)f.f_type & 0xffffffffUL) == local[i];
    is = is && wait && fscanf(wait, "%ld", &seconds) == 1 && seconds >= 10 && fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
    void *p = is ? mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    is = p != MAP_FAILED && madvise(p, 1, 22) == 0; /* MADV_POPULATE_READ */
    if (p != MAP_FAILED)
        munmap(p, 1);
    if (fd >= 0)
        close(fd); /* and the lease with it */
    if (wait)
        fclose(wait);
    if (!is)
        printf("# skipped: the system maps no file like %s\n", path);
    return is;
}
#endif
