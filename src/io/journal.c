/* io/journal.c - see journal.h. */
#include "io/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "codec/crc32.h"
#include "io/publish.h"

/* A sync waits for the disk, which a run of thousands of small files has no time for after each of them. */
enum { SYNC_SECONDS = 5, SYNC_BYTES = 1 << 30 };
enum { MOST = 1 << 30 }; /* bytes of a journal */

static const char head[] = "ckpt-journal 1 ", of_head[] = "of ";

static int64_t now(void)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

/* ---- records */

static void put_name(ckpt__buf *b, const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || *p == '%')
            ckpt__buf_printf(b, "%%%02x", *p);
        else
            ckpt__buf_char(b, (char)*p);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* In place. False: it is none. */
static bool take_name(char *name)
{
    char *to = name;
    for (const char *p = name; *p; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        int high = digit(p[1]), low = high < 0 ? -1 : digit(p[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        p += 2;
    }
    *to = '\0';
    return to > name;
}

/* "CRC text\n"; the room for the CRC is made by the caller, at byte `begin`. */
enum { CRC_ROOM = 9 };

static bool end_record(ckpt__buf *b, size_t begin)
{
    char crc[CRC_ROOM + 1];
    const size_t from = begin + CRC_ROOM;
    if (b->failed)
        return false;
    snprintf(crc, sizeof crc, "%08" PRIx32 " ", ckpt__crc32(0, b->data + from, b->size - from));
    memcpy(b->data + begin, crc, CRC_ROOM);
    ckpt__buf_char(b, '\n');
    return !b->failed;
}

/* All of it, or it is cut off again. */
static bool append(ckpt__journal *j, const ckpt__buf *b)
{
    ckpt__xfsz h;
    for (size_t done = 0; done < b->size;) {
        ckpt__xfsz_hold(&h);
        ssize_t put = pwrite(j->fd, b->data + done, b->size - done, (off_t)(j->end + done));
        ckpt__xfsz_release(&h, put < 0 && errno == EFBIG);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    j->end += b->size;
    return true;
}

/* Nothing more is recorded; what is there stays, and the lock with it. */
static void give_up(ckpt__journal *j)
{
    j->end = UINT64_MAX;
}

static bool is_given_up(const ckpt__journal *j)
{
    return j->end == UINT64_MAX;
}

void ckpt__journal_sync(ckpt__journal *j, int folder)
{
    if (!j->sync || is_given_up(j) || !j->waiting)
        return;
    /* The names of the files first; where the system does not know how, a record is of a file that is not there. */
    (void)ckpt__sync_directory(folder);
    if (fdatasync(j->fd) < 0)
        give_up(j);
    j->waiting = 0;
    j->synced_at = now();
}

void ckpt__journal_add(ckpt__journal *j, int folder, const char *name, uint64_t size, uint32_t crc, const char *more)
{
    ckpt__buf b = {0};
    if (is_given_up(j))
        return;
    ckpt__buf_printf(&b, "%*s", CRC_ROOM, "");
    ckpt__buf_printf(&b, "file %" PRIu64 " %08" PRIx32 " ", size, crc);
    put_name(&b, name);
    if (*more) {
        ckpt__buf_char(&b, ' ');
        ckpt__buf_str(&b, more);
    }
    if (!end_record(&b, 0) || b.size > MOST || j->end > MOST - b.size || !append(j, &b))
        give_up(j);
    ckpt__buf_free(&b);
    j->waiting += size + 1;
    if (j->waiting >= SYNC_BYTES || now() - j->synced_at >= SYNC_SECONDS)
        ckpt__journal_sync(j, folder);
}

/* ---- a new one */

void ckpt__journal_close(ckpt__journal *j)
{
    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd);
    if (j->dirfd >= 0)
        close(j->dirfd);
    free(j->name);
    free(j->text);
    free(j->entries);
    free(j);
}

void ckpt__journal_remove(ckpt__journal *j)
{
    if (j && j->name)
        (void)!unlinkat(j->dirfd, j->name, 0);
    ckpt__journal_close(j);
}

static ckpt__journal *make(int dirfd)
{
    ckpt__journal *j = calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->fd = -1;
    j->dirfd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    j->synced_at = now();
    j->of = "";
    return j;
}

static bool lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* The file gets its name when it is locked and has its first lines: who sees it sees those. False: not on this system (errno). */
static bool make_unseen(ckpt__journal *j, const ckpt__buf *first, bool *taken)
{
    char path[40];
    j->fd = openat(j->dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (j->fd < 0)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", j->fd);
    bool made = lock(j->fd) && append(j, first) && (!j->sync || fdatasync(j->fd) == 0) &&
                linkat(AT_FDCWD, path, j->dirfd, j->name, AT_SYMLINK_FOLLOW) == 0;
    *taken = !made && errno == EEXIST;
    if (!made) {
        close(j->fd);
        j->fd = -1;
        j->end = 0;
    }
    return made;
}

/* Where a file cannot be without a name. One that is killed before it has written its first lines leaves an empty file, at which nobody
 * looks; one that finds it locked by a reader of that moment has none. */
static bool make_seen(ckpt__journal *j, const ckpt__buf *first, bool *taken)
{
    j->fd = openat(j->dirfd, j->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    *taken = j->fd < 0 && errno == EEXIST;
    if (j->fd < 0)
        return false;
    if (lock(j->fd) && append(j, first) && (!j->sync || fdatasync(j->fd) == 0))
        return true;
    (void)!unlinkat(j->dirfd, j->name, 0);
    return false;
}

/* The first lines. */
static bool say_first(ckpt__buf *first, const char *base, const char *digest, const char *of)
{
    ckpt__buf_printf(first, "%*s%s%s ", CRC_ROOM, "", head, digest);
    put_name(first, base);
    bool good = end_record(first, 0);
    const size_t begin = first->size;
    if (!good || !of || !*of)
        return good;
    ckpt__buf_printf(first, "%*s%s%s", CRC_ROOM, "", of_head, of);
    return end_record(first, begin);
}

ckpt_status ckpt__journal_new(int dirfd, const char *temporary, const char *base, const char *digest, const char *of,
                              bool sync, ckpt__journal **out, ckpt_error *err)
{
    ckpt__buf first = {0};
    ckpt_status status = CKPT_OK;
    bool taken = false;
    *out = NULL;
    ckpt__journal *j = say_first(&first, base, digest, of) ? make(dirfd) : NULL;
    if (j && asprintf(&j->name, "%s" CKPT__JOURNAL_TAIL, temporary) < 0)
        j->name = NULL;
    if (!j || !j->name)
        status = ckpt__fail_memory(err, base, 0);
    else {
        j->sync = sync;
        if (j->dirfd >= 0 && (make_unseen(j, &first, &taken) || (!taken && make_seen(j, &first, &taken))))
            *out = j;
        else if (taken)
            status = ckpt__fail(err, CKPT_E_EXISTS, base, "a journal of the name %s is there", j->name);
    }
    ckpt__buf_free(&first);
    if (!*out)
        ckpt__journal_close(j);
    return status;
}

/* ---- one that is there */

/* The line at `at`, whole and with its CRC: cut off, and its text. NULL: it is torn, or none. */
static char *take_line(char *text, size_t size, size_t *at)
{
    char *line = text + *at, *end = memchr(line, '\n', size - *at);
    uint32_t crc = 0;
    if (!end || end - line < CRC_ROOM || line[CRC_ROOM - 1] != ' ')
        return NULL;
    for (int i = 0; i < CRC_ROOM - 1; i++) {
        if (digit(line[i]) < 0)
            return NULL;
        crc = crc << 4 | (uint32_t)digit(line[i]);
    }
    line += CRC_ROOM;
    if (ckpt__crc32(0, line, (size_t)(end - line)) != crc || memchr(line, '\0', (size_t)(end - line)))
        return NULL;
    *end = '\0';
    *at = (size_t)(end - text) + 1;
    return line;
}

/* "DIGEST NAME" behind the head. */
static ckpt__journal_is judge(char *line, const char *base, const char *digest)
{
    char *name = strchr(line + sizeof head - 1, ' ');
    if (!name)
        return CKPT__JOURNAL_NOT_OURS;
    *name++ = '\0';
    if (!take_name(name) || strcmp(name, base) != 0)
        return CKPT__JOURNAL_NOT_OURS;
    return strcmp(line + sizeof head - 1, digest) == 0 ? CKPT__JOURNAL_SAME : CKPT__JOURNAL_STALE;
}

static bool take_entry(char *line, ckpt__journal_entry *e)
{
    char *end;
    static char none[] = "";
    if (!ckpt__begins(line, "file ") || line[5] < '0' || line[5] > '9')
        return false;
    errno = 0;
    e->size = strtoull(line + 5, &end, 10);
    if (errno || *end != ' ' || digit(end[1]) < 0)
        return false;
    e->crc = (uint32_t)strtoul(end + 1, &end, 16);
    if (*end != ' ')
        return false;
    char *name = end + 1, *more = strchr(name, ' ');
    if (more)
        *more++ = '\0';
    e->name = name;
    e->more = more ? more : none;
    return take_name(name);
}

/* Its text, of n bytes. */
static ckpt_status read_text(ckpt__journal *j, size_t n, ckpt_error *err)
{
    size_t got = 0;
    if (!(j->text = malloc(n + 1)))
        return ckpt__fail_memory(err, j->name, n);
    while (got < n) {
        ssize_t some = pread(j->fd, j->text + got, n - got, (off_t)got);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            break;
        got += (size_t)some;
    }
    j->text[got] = '\0';
    j->end = got;
    return CKPT_OK;
}

static ckpt_status parse(ckpt__journal *j, const char *base, const char *digest, ckpt__journal_is *is, ckpt_error *err)
{
    size_t size = (size_t)j->end, at = 0;
    char *line = take_line(j->text, size, &at);
    *is = line && ckpt__begins(line, head) ? judge(line, base, digest) : CKPT__JOURNAL_NOT_OURS;
    j->end = at;
    while (*is >= CKPT__JOURNAL_SAME && at < size && (line = take_line(j->text, size, &at))) {
        ckpt__journal_entry e;
        if (!j->count && !*j->of && ckpt__begins(line, of_head)) {
            j->of = line + sizeof of_head - 1;
            j->end = at;
            continue;
        }
        if (!take_entry(line, &e))
            break;
        if (!ckpt__grow(&j->entries, &j->capacity, j->count + 1, sizeof *j->entries))
            return ckpt__fail_memory(err, j->name, 0);
        j->entries[j->count++] = e;
        j->end = at;
    }
    return CKPT_OK;
}

/* A file of ours, which nobody has locked and which has that name still. */
static bool is_free(const ckpt__journal *j, ckpt__journal_is *is, size_t *size)
{
    struct stat st, there;
    if (fstat(j->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_size > MOST)
        return false;
    if (!lock(j->fd)) {
        *is = errno == EWOULDBLOCK ? CKPT__JOURNAL_BUSY : CKPT__JOURNAL_NOT_OURS;
        return false;
    }
    if (fstat(j->fd, &st) < 0 || fstatat(j->dirfd, j->name, &there, AT_SYMLINK_NOFOLLOW) < 0)
        return false; /* its run has ended by now */
    *size = st.st_size > 0 && st.st_size <= MOST ? (size_t)st.st_size : 0;
    return st.st_dev == there.st_dev && st.st_ino == there.st_ino;
}

ckpt_status ckpt__journal_open(int dirfd, const char *name, const char *base, const char *digest, ckpt__journal_is *is,
                               ckpt__journal **out, ckpt_error *err)
{
    size_t size = 0;
    *is = CKPT__JOURNAL_NOT_OURS;
    *out = NULL;
    ckpt__journal *j = make(dirfd);
    if (!j || !(j->name = strdup(name))) {
        ckpt__journal_close(j);
        return ckpt__fail_memory(err, name, 0);
    }
    ckpt_status status = CKPT_OK;
    if (j->dirfd >= 0)
        j->fd = openat(j->dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (j->fd >= 0 && is_free(j, is, &size)) {
        status = read_text(j, size, err);
        if (status == CKPT_OK)
            status = parse(j, base, digest, is, err);
    }
    if (status == CKPT_OK && *is >= CKPT__JOURNAL_SAME)
        *out = j;
    else
        ckpt__journal_close(j);
    return status;
}

const char *ckpt__journal_folder(const ckpt__journal *j, char *name, size_t size)
{
    snprintf(name, size, "%.*s", (int)(strlen(j->name) - (sizeof CKPT__JOURNAL_TAIL - 1)), j->name);
    return name;
}
