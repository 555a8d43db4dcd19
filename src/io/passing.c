/* io/passing.c - files that are read once, from their beginning on: the system reads ahead of the reader, and what has passed leaves the
 * cache.
 *   By itself the system reads far enough ahead of a few files, in requests of several MiB. It is asked for what comes next
 * (POSIX_FADV_WILLNEED) only where there are so many files that its own reading ahead fills the memory: pages are then taken from the
 * cache before they were read, and read again. What is asked for comes in requests of 1 MiB at most, which takes longer. */
#include "io/passing.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "io/descriptors.h"
#include "io/direct.h"
#include "io/readers.h"
#include "io/windows.h"

/* In bytes. AHEAD of one run and AHEAD_ALL of all files are read before they are wanted, but AHEAD_LEAST of each. */
enum { AHEAD = 8 << 20, AHEAD_ALL = 128 << 20, AHEAD_LEAST = 1 << 20 };
enum { PASS_FROM = 64 << 20, PASS = 8 << 20, GAP = 1 << 20, LOOK = 128 << 10 };

/* So far the system reads ahead of a file by itself, in bytes. Where it does not say: as far as Linux does unless told otherwise. */
static uint64_t usual_ahead(const ckpt__file *f)
{
    char path[64], text[24] = "";
    snprintf(path, sizeof path, "/sys/class/bdi/%u:%u/read_ahead_kb", major((dev_t)f->dev), minor((dev_t)f->dev));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    return n > 0 ? (uint64_t)strtoul(text, NULL, 10) << 10 : 128 << 10;
}

/* Who reads ahead of one of `passing` files. The system, as far as it does by itself or twice as far, unless that is too much of all. */
static void choose_ahead(ckpt__file *f, int fd, uint64_t passing)
{
    const uint64_t usual = usual_ahead(f);
    f->ahead = 0;
    if (usual > AHEAD_ALL / passing) {
        f->ahead = AHEAD_ALL / passing > AHEAD_LEAST ? AHEAD_ALL / passing : AHEAD_LEAST;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    } else if (2 * usual <= AHEAD && 2 * usual <= AHEAD_ALL / passing)
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
}

static void advise(const ckpt__source *s, uint32_t file, int advice)
{
    int fd;
    if (ckpt__descriptor_pin(s, file, 0, &fd, NULL) < 0)
        return;
    (void)posix_fadvise(fd, 0, 0, advice);
    ckpt__descriptor_unpin(s, file);
}

void ckpt__source_pass(ckpt__source *s, bool keep, uint64_t memory)
{
    uint64_t passing = 0;
    for (size_t i = 0; i < s->count; i++) {
        ckpt__file *f = &s->files[i];
        int fd;
        if (f->size < PASS_FROM || ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0)
            continue;
        if (!ckpt__file_is_cached(f, fd)) {
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            f->passes = !keep;
            passing += f->passes;
        }
        ckpt__descriptor_unpin(s, (uint32_t)i);
    }
    for (size_t i = 0; i < s->count; i++) {
        int fd;
        if (!s->files[i].passes || ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0)
            continue;
        choose_ahead(&s->files[i], fd, passing);
        ckpt__descriptor_unpin(s, (uint32_t)i);
    }
    if (passing && !s->windows)
        s->windows = ckpt__windows_open(s, memory);
    for (size_t i = 0; s->windows && i < s->count; i++)
        if (s->files[i].passes)
            advise(s, (uint32_t)i, POSIX_FADV_RANDOM);
}

static void leave_window(const ckpt__source *s, ckpt__passing_run *r)
{
    ckpt__window_leave(s->windows, r->window);
    r->window = NULL;
}

/* Drops what was read in order so far. The system keeps the page that is shared with what lies behind it. */
static void drop_passed(ckpt__passing_run *r, int fd)
{
    if (r->passed_end > r->passed)
        (void)posix_fadvise(fd, (off_t)r->passed, (off_t)(r->passed_end - r->passed), POSIX_FADV_DONTNEED);
    r->passed = r->passed_end;
}

/* The run that goes on with the byte `begin`. NULL: none does. */
static ckpt__passing_run *find_run(ckpt__file *f, uint64_t begin)
{
    for (unsigned i = 0; i < f->run_count; i++)
        if (begin >= f->runs[i].passed && begin <= f->runs[i].passed_end + GAP)
            return &f->runs[i];
    return NULL;
}

/* A run that begins here, in the place of the one that has waited longest where there are enough. */
static ckpt__passing_run *start_run(const ckpt__source *s, ckpt__file *f, int fd, uint64_t begin)
{
    ckpt__passing_run *r = &f->runs[0];
    if (f->run_count < CKPT__PASSING_RUNS)
        r = &f->runs[f->run_count++];
    for (unsigned i = 0; i < f->run_count; i++)
        if (f->run_reads - f->runs[i].used > f->run_reads - r->used)
            r = &f->runs[i];
    drop_passed(r, fd);
    leave_window(s, r);
    *r = (ckpt__passing_run){.begin = begin, .passed = begin, .passed_end = begin, .asked = begin};
    return r;
}

/* Reads go in order in a run. A smaller read elsewhere is a look at what is read later, as at the end of a record before its middle: it
 * stays in the cache, and begins no run. NULL: it is one. */
static ckpt__passing_run *run_of(const ckpt__source *s, ckpt__file *f, int fd, uint64_t begin, uint64_t end)
{
    ckpt__passing_run *r = find_run(f, begin);
    if (!r && end - begin < LOOK)
        return NULL;
    r = r ? r : start_run(s, f, fd, begin);
    r->used = ++f->run_reads;
    return r;
}

/* Of each run. */
static uint64_t ahead_of(const ckpt__file *f)
{
    const uint64_t each = f->ahead / (f->run_count ? f->run_count : 1);
    return each < AHEAD_LEAST ? AHEAD_LEAST : each < AHEAD ? each : AHEAD;
}

/* Where asking ahead of `end` stops: at the file's end, or where another run began, which has read what follows. */
static uint64_t end_of(const ckpt__file *f, uint64_t end)
{
    uint64_t stop = f->size;
    for (unsigned i = 0; i < f->run_count; i++)
        if (f->runs[i].begin >= end && f->runs[i].begin < stop)
            stop = f->runs[i].begin;
    return stop;
}

/* ---- past the cache */

/* Windows of a file that were refused one behind the other, before no more is asked for; those of a run that are read ahead. */
enum { REFUSED = 8, WINDOWS_AHEAD = 2 };
/* Bytes: a read that begins a run is of a window where it is of so many. One of fewer may be all that is wanted there. */
enum { MUCH = CKPT__DIRECT_MOST / 2 };

/* Of a window that begins with the byte `at`: it ends where another run began. Too few are not worth one: 0. */
static size_t size_of_window(const ckpt__file *f, uint64_t at)
{
    const uint64_t stop = end_of(f, at + 1), most = CKPT__DIRECT_MOST - at % CKPT__DIRECT_ALIGN;
    const size_t n = (size_t)(stop <= at ? 0 : stop - at < most ? stop - at : most);
    return n < LOOK ? 0 : n;
}

/* The window that begins with the byte `at`. Those behind it are read meanwhile where the run has gone on. */
static bool next_window(const ckpt__source *s, uint32_t file, ckpt__passing_run *r, uint64_t at)
{
    ckpt__file *f = &s->files[file];
    const bool goes_on = r->window && r->window_end == at;
    const size_t n = size_of_window(f, at);
    leave_window(s, r);
    if (f->refused == REFUSED || !n)
        return false;
    r->window = ckpt__window_read(s->windows, file, at, n);
    f->refused = r->window ? 0 : f->refused + 1;
    if (f->refused == REFUSED && !f->ahead) /* the system reads ahead again, as far as it does by itself */
        advise(s, file, POSIX_FADV_NORMAL);
    r->window_at = at;
    r->window_end = at + n;
    uint64_t from = r->window_end;
    for (size_t i = 0, next; r->window && goes_on && i < WINDOWS_AHEAD && (next = size_of_window(f, from)); i++) {
        ckpt__window_ask(s->windows, file, from, next);
        from += next;
    }
    return r->window != NULL;
}

size_t ckpt__passing_take(const ckpt__source *s, uint32_t file, int fd, uint64_t begin, void *dst, size_t n)
{
    ckpt__file *f = &s->files[file];
    ckpt__passing_run *r = s->windows && !f->scattered ? run_of(s, f, fd, begin, begin + n) : NULL;
    size_t have = s->windows && !r ? ckpt__window_peek(s->windows, file, begin, dst, n) : 0;
    const bool windowed = r && (r->passed_end > r->begin || n >= MUCH);
    while (windowed && have < n) {
        const uint64_t at = begin + have;
        const bool inside = r->window && at >= r->window_at && at < r->window_end;
        if (!inside && (at < r->passed_end || !next_window(s, file, r, at)))
            break;
        const size_t there = (size_t)(r->window_end - at), some = n - have < there ? n - have : there;
        memcpy((char *)dst + have, r->window + (at - r->window_at), some);
        have += some;
    }
    return have;
}

/* The bytes [begin, end) are going to be read. As many behind them as the run has by then are asked for now, AHEAD at most, so that the
 * disk reads while others are copied and written. */
void ckpt__passing_ask(const ckpt__source *s, ckpt__file *f, int fd, uint64_t begin, uint64_t end)
{
    ckpt__passing_run *r = f->ahead && !f->scattered ? run_of(s, f, fd, begin, end) : NULL;
    if (!r)
        return;
    if (begin > r->passed_end + LOOK)
        r->begin = r->asked = begin;
    const uint64_t most = ahead_of(f), ahead = end - r->begin < most ? end - r->begin : most;
    const uint64_t from = r->asked > begin ? r->asked : begin, stop = end_of(f, end);
    const uint64_t to = stop - end > ahead ? end + ahead : stop;
    if (from > end + ahead / 2 || from >= to)
        return; /* few larger requests rather than many small ones */
    (void)posix_fadvise(fd, (off_t)from, (off_t)(to - from), POSIX_FADV_WILLNEED);
    r->asked = to;
}

/* The bytes [begin, end) were read. */
void ckpt__passing_read(const ckpt__source *s, ckpt__file *f, int fd, uint64_t begin, uint64_t end)
{
    ckpt__passing_run *r = run_of(s, f, fd, begin, end);
    if (!r)
        return;
    r->passed_end = end > r->passed_end ? end : r->passed_end;
    if (r->passed_end - r->passed >= PASS / f->run_count)
        drop_passed(r, fd);
}

void ckpt__passing_end(ckpt__source *s)
{
    for (size_t i = 0; i < s->count; i++)
        for (unsigned k = 0; k < s->files[i].run_count; k++)
            leave_window(s, &s->files[i].runs[k]);
    ckpt__windows_close(s->windows);
    s->windows = NULL;
    for (size_t i = 0; i < s->count; i++) {
        int fd;
        if (!s->files[i].passes || ckpt__descriptor_pin(s, (uint32_t)i, 0, &fd, NULL) < 0)
            continue;
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ckpt__descriptor_unpin(s, (uint32_t)i);
    }
}
