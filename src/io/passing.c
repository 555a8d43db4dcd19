/* io/passing.c - files that are read once, from their beginning on: what comes next is asked for, and what has passed leaves the cache. */
#include "io/passing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include "io/descriptors.h"

/* Does the page cache have half of it, as far as samples tell? Where the system will not say: yes. */
static bool is_cached(const ckpt__file *f, int fd)
{
    enum { SAMPLES = 64 };
    unsigned there = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        char byte;
        struct iovec to = {&byte, 1};
        ssize_t got = preadv2(fd, &to, 1, (off_t)(f->size / SAMPLES * i), RWF_NOWAIT);
        if (got < 0 && errno != EAGAIN)
            return true;
        there += got > 0;
    }
    return there >= SAMPLES / 2;
}

/* In bytes. AHEAD of one file and AHEAD_ALL of all files are asked for before they are read, but AHEAD_LEAST of each. */
enum { AHEAD = 8 << 20, AHEAD_ALL = 128 << 20, AHEAD_LEAST = 1 << 20 };
enum { PASS_FROM = 64 << 20, PASS = 8 << 20, GAP = 1 << 20, LOOK = 128 << 10 };

void ckpt__source_pass(ckpt__source *s, bool keep)
{
    uint64_t passing = 0;
    for (size_t i = 0; i < s->count; i++) {
        ckpt__file *f = &s->files[i];
        int fd;
        if (f->size < PASS_FROM || ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0)
            continue;
        if (!is_cached(f, fd)) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            f->passes = !keep;
            passing += f->passes;
        }
        ckpt__descriptor_unpin(s, (uint32_t)i);
    }
    uint64_t ahead = passing ? AHEAD_ALL / passing : 0;
    ahead = ahead < AHEAD_LEAST ? AHEAD_LEAST : ahead < AHEAD ? ahead : AHEAD;
    for (size_t i = 0; i < s->count; i++)
        s->files[i].ahead = s->files[i].passes ? ahead : 0;
}

/* Drops what was read in order so far. The system keeps the page that is shared with what lies behind it. */
static void drop_passed(ckpt__file *f, int fd)
{
    if (f->passed_end > f->passed)
        (void)posix_fadvise(fd, (off_t)f->passed, (off_t)(f->passed_end - f->passed), POSIX_FADV_DONTNEED);
    f->passed = f->passed_end;
}

/* Reads go in order here, or from one run of LOOK and more to another. A smaller read elsewhere is a look at what is read later, as at
 * the end of a record before its middle: it stays in the cache, and the run goes on behind it. */
static bool is_look(const ckpt__file *f, uint64_t begin, uint64_t end)
{
    return end - begin < LOOK && (begin < f->passed || begin > f->passed_end + GAP);
}

/* The bytes [begin, end) are going to be read. As many behind them as the run has by then are asked for now, AHEAD at most, so that the
 * disk reads while others are copied and written. The system's own reading ahead would be stopped by each look. */
void ckpt__passing_ask(ckpt__file *f, int fd, uint64_t begin, uint64_t end)
{
    if (is_look(f, begin, end) || f->scattered)
        return;
    if (begin < f->run || begin > f->passed_end + LOOK)
        f->run = f->asked = begin;
    uint64_t ahead = end - f->run < f->ahead ? end - f->run : f->ahead;
    uint64_t from = f->asked > begin ? f->asked : begin, to = f->size - end > ahead ? end + ahead : f->size;
    if (from > end + ahead / 2 || from >= to)
        return; /* few larger requests rather than many small ones */
    (void)posix_fadvise(fd, (off_t)from, (off_t)(to - from), POSIX_FADV_WILLNEED);
    f->asked = to;
}

/* The bytes [begin, end) were read. */
void ckpt__passing_read(ckpt__file *f, int fd, uint64_t begin, uint64_t end)
{
    if (is_look(f, begin, end))
        return;
    if (begin < f->passed || begin > f->passed_end + GAP) {
        drop_passed(f, fd);
        f->passed = f->passed_end = begin;
    }
    f->passed_end = end > f->passed_end ? end : f->passed_end;
    if (f->passed_end - f->passed >= PASS)
        drop_passed(f, fd);
}
