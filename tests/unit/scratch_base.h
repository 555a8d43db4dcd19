/* tests/unit/scratch_base.h - the folder in which a test makes its own. */
#ifndef SCRATCH_BASE_H
#define SCRATCH_BASE_H
#include <sys/statvfs.h>
#include <unistd.h>

/* A test that syncs thousands of files spends most of its time waiting for the disk. So a test makes its files in memory where the
 * system has a folder there, with a GiB to spare. What is about the disk itself (src/io, src/run, the kills) defines SCRATCH_ON_DISK. */
static inline const char *scratch_base(void)
{
#ifndef SCRATCH_ON_DISK
    struct statvfs v;
    if (access("/dev/shm", R_OK | W_OK | X_OK) == 0 && statvfs("/dev/shm", &v) == 0 &&
        (unsigned long long)v.f_bavail * v.f_frsize >= 1ULL << 30)
        return "/dev/shm";
#endif
    return "/tmp";
}
#endif
