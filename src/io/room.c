/* io/room.c - is there room for what is going to be written? */
#include "io/sink.h"

#include <errno.h>
#include <sys/statvfs.h>
#include "io/publish.h"
#include "io/sink_own.h"

ckpt_status ckpt__sink_room(const ckpt__sink *s, uint64_t bytes, ckpt_error *err)
{
    struct statvfs v;
    uint64_t free_bytes;
    if (fstatvfs(s->dirfd, &v) != 0 || !ckpt__mul(v.f_bavail, v.f_frsize, &free_bytes) || bytes <= free_bytes)
        return CKPT_OK; /* what is not known is found when it is written */
    return ckpt__fail_sys(err, ENOSPC, s->path,
                          "%llu bytes are to be written in all, and its file system has %llu left%s",
                          (unsigned long long)bytes, (unsigned long long)free_bytes, ckpt__write_advice(ENOSPC));
}
