/* Publication when something fails: settling before publishing, file systems that cannot exchange names, and what is
 * left behind. */
#define SCRATCH_ON_DISK
#include "io/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include "../scratch.h"
#include "../runner.h"

static const ckpt__sink_options replace = {.sync = true, .replace = true};
static const ckpt__sink_options behind = {.sync = true, .replace = true, .behind = true};
static int fsync_to_fail, fdatasync_to_fail, renameat_to_fail, syncs, interruptions;
static int ranges, range_to_fail, range_error;
static bool simple_renames, no_descriptors;
static int close_to_fail, close_error;

static bool fails(int *counter)
{
    return *counter > 0 && --*counter == 0;
}

int fsync(int fd)
{
    syncs++;
    if (fails(&fsync_to_fail)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    syncs++;
    if (fails(&fdatasync_to_fail)) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags)
{
    ranges++;
    if (fails(&range_to_fail)) {
        errno = range_error;
        return -1;
    }
    return (int)syscall(SYS_sync_file_range, fd, offset, count, flags);
}

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
}

static uint64_t blocks_left; /* of 4 KiB; UINT64_MAX: the system does not say */

int fstatvfs(int fd, struct statvfs *v)
{
    (void)fd;
    memset(v, 0, sizeof *v);
    v->f_frsize = 4096;
    v->f_bsize = 1 << 20;
    v->f_bfree = blocks_left + 100; /* which only root may use */
    v->f_bavail = blocks_left;
    errno = ENOSYS;
    return blocks_left == UINT64_MAX ? -1 : 0;
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (simple_renames && flags) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    if (fails(&renameat_to_fail)) {
        errno = EDQUOT;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
}

int openat(int fd, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    if (no_descriptors) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, fd, path, flags, mode);
}

/* Whatever it answers, the descriptor is gone. */
int close(int fd)
{
    int rc = (int)syscall(SYS_close, fd);
    if (fails(&close_to_fail)) {
        errno = close_error;
        return -1;
    }
    return rc;
}

static void begin(void)
{
    make_scratch();
    fsync_to_fail = fdatasync_to_fail = renameat_to_fail = syncs = interruptions = 0;
    ranges = range_to_fail = range_error = 0;
    simple_renames = no_descriptors = false;
    close_to_fail = 0;
}

/* A directory sink with one member, which is written and committed. */
static ckpt__sink *written(const char *path, const char *text)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *d, *m;
    ck_assert_msg(ckpt__sink_directory(path, &replace, &d, &err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ckpt__sink_member(d, "checkpoint.json", strlen(text), &m, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(m, 0, text, strlen(text), &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_settle(m, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_commit(m, &err), CKPT_OK);
    return d;
}

START_TEST(what_is_settled_is_only_renamed)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *d = written("step", "one");
    ck_assert_int_eq(ckpt__sink_settle(d, &err), CKPT_OK);
    ck_assert(!there("step"));
    int before = syncs;
    ck_assert_int_eq(ckpt__sink_settle(d, &err), CKPT_OK);
    ck_assert_int_eq(syncs, before);
    ck_assert_int_eq(ckpt__sink_commit(d, &err), CKPT_OK);
    ck_assert_int_eq(syncs, before + 1); /* of the directory that it lies in */
    expect("step/checkpoint.json", "one");
    d = written("step", "two");
    ck_assert_int_eq(ckpt__sink_settle(d, &err), CKPT_OK);
    expect("step/checkpoint.json", "one");
    ckpt__sink_abort(d);
    expect("step/checkpoint.json", "one");
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

START_TEST(a_failed_sync_is_never_tried_again)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *s;
    put("a", "old");
    ck_assert_int_eq(ckpt__sink_file("a", 3, &replace, &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(s, 0, "new", 3, &err), CKPT_OK);
    fdatasync_to_fail = 1;
    ck_assert_int_eq(ckpt__sink_settle(s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOSPC);
    ck_assert_ptr_nonnull(strstr(err.message, "fdatasync"));
    ck_assert_ptr_nonnull(strstr(err.message, "free space"));
    ck_assert_ptr_nonnull(strstr(err.object, "a"));
    int before = syncs;
    ck_assert_int_eq(ckpt__sink_settle(s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(ckpt__sink_commit(s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(syncs, before);
    expect("a", "old");
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

/* Some file systems say only at the end that the data did not arrive. */
START_TEST(a_failed_close_is_an_error)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *s;
    put("a", "old");
    for (int sync = 0; sync < 2; sync++) {
        ckpt__sink_options o = {.sync = sync, .replace = true};
        ck_assert_int_eq(ckpt__sink_file("a", 3, &o, &s, &err), CKPT_OK);
        ck_assert_int_eq(ckpt__sink_write(s, 0, "new", 3, &err), CKPT_OK);
        close_to_fail = 1;
        close_error = EIO;
        ck_assert_int_eq(ckpt__sink_settle(s, &err), CKPT_E_SYSTEM);
        ck_assert_int_eq(close_to_fail, 0);
        ck_assert_int_eq(err.sys_errno, EIO);
        ck_assert_int_eq(ckpt__sink_commit(s, &err), CKPT_E_SYSTEM);
        expect("a", "old");
        ck_assert_int_eq(entries("."), 1);
    }
    ck_assert_int_eq(ckpt__sink_file("a", 3, &replace, &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(s, 0, "new", 3, &err), CKPT_OK);
    close_to_fail = 1;
    close_error = EINTR; /* it is closed all the same */
    ck_assert_int_eq(ckpt__sink_commit(s, &err), CKPT_OK);
    ck_assert_int_eq(close_to_fail, 0);
    expect("a", "new");
}
END_TEST

START_TEST(an_abort_needs_no_descriptor_and_no_right_to_write)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *d = written("step", "one");
    no_descriptors = true;
    ckpt__sink_abort(d);
    ck_assert_int_eq(entries("."), 0);
    no_descriptors = false;
    bool root = geteuid() == 0; /* modes do not hold root back */
    if (root)
        ck_assert(chown(".", 65534, 65534) == 0 && setegid(65534) == 0 && seteuid(65534) == 0);
    ck_assert_int_eq(ckpt__sink_commit(written("step", "one"), &err), CKPT_OK);
    ck_assert_int_eq(chmod("step", 0500), 0);
    d = written("step", "two");
    ck_assert_int_eq(ckpt__sink_settle(d, &err), CKPT_OK);
    ckpt__sink_abort(d);
    ck_assert_int_eq(entries("."), 1);
    ck_assert_int_eq(ckpt__sink_commit(written("step", "three"), &err), CKPT_OK);
    expect("step/checkpoint.json", "three");
    ck_assert_int_eq(entries("."), 1);
    ck_assert_int_eq(chmod("step", 0700), 0); /* so that the test can remove it */
    if (root)
        ck_assert(seteuid(0) == 0 && setegid(0) == 0);
}
END_TEST

START_TEST(a_directory_is_swapped_where_names_cannot_be_exchanged)
{
    ckpt_error err = CKPT_ERROR_INIT;
    simple_renames = true;
    ck_assert_int_eq(ckpt__sink_commit(written("step", "one"), &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_commit(written("step", "two"), &err), CKPT_OK);
    expect("step/checkpoint.json", "two");
    ck_assert_int_eq(entries("."), 1);
    /* Not claimed for good when the rename over the claim fails. */
    renameat_to_fail = 1;
    ck_assert_int_eq(ckpt__sink_commit(written("next", "one"), &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EDQUOT);
    ck_assert_int_eq(entries("."), 1);
    /* The first rename (old aside), the second (new in), the sync: all of it is undone. */
    for (int k = 1; k <= 2; k++) {
        renameat_to_fail = k;
        ck_assert_int_eq(ckpt__sink_commit(written("step", "three"), &err), CKPT_E_SYSTEM);
        ck_assert_int_eq(renameat_to_fail, 0);
        expect("step/checkpoint.json", "two");
        ck_assert_int_eq(entries("."), 1);
    }
    fsync_to_fail = 2; /* the first is of the new directory */
    ck_assert_int_eq(ckpt__sink_commit(written("step", "three"), &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(fsync_to_fail, 0);
    ck_assert_ptr_nonnull(strstr(err.message, "back in its place"));
    expect("step/checkpoint.json", "two");
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

START_TEST(a_file_of_an_open_directory_replaces_a_link_itself)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *s;
    struct stat st;
    ck_assert_int_eq(mkdir("run", 0777), 0);
    put("outside", "dear to me");
    ck_assert_int_eq(symlink("../outside", "run/latest"), 0);
    int fd = open("run", O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ckpt__sink_file_at(fd, "run", "latest", 1, &replace, &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(s, 0, "x", 1, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_commit(s, &err), CKPT_OK);
    close(fd);
    expect("outside", "dear to me");
    expect("run/latest", "x");
    ck_assert(lstat("run/latest", &st) == 0 && S_ISREG(st.st_mode));
    ck_assert_int_eq(entries("run"), 1);
}
END_TEST

/* Four blocks of 1 MiB of a sparse file; the last two are far enough on that the first two are waited for: six calls. skip: bytes by which the
 * memory is off; of 0 it may go past the page cache. */
static ckpt_status write_far(size_t skip, ckpt_error *err)
{
    enum { BLOCK = 1 << 20 };
    static const uint64_t offsets[] = {0, BLOCK, 64 * BLOCK, 65 * BLOCK};
    ckpt__sink *sink;
    char *memory = aligned_alloc(4096, BLOCK + 4096), *block = memory + skip;
    ck_assert_ptr_nonnull(memory);
    ck_assert_int_eq(ckpt__sink_file("far", 66 * BLOCK, &behind, &sink, err), CKPT_OK);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < 4; i++) {
        memset(block, 'a' + (int)i, BLOCK);
        status = ckpt__sink_write(sink, offsets[i], block, BLOCK, err);
    }
    free(memory);
    if (status == CKPT_OK)
        return ckpt__sink_commit(sink, err);
    ckpt__sink_abort(sink);
    return status;
}

static ckpt_status written_behind(ckpt_error *err)
{
    return write_far(1, err);
}

static void expect_far(void)
{
    static const off_t at[] = {0, (1 << 20) - 1, 1 << 20, 64 << 20, (66 << 20) - 1};
    char found[sizeof at / sizeof *at + 1] = "";
    int fd = open("far", O_RDONLY);
    ck_assert_int_ge(fd, 0);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        ck_assert_int_eq(pread(fd, &found[i], 1, at[i]), 1);
    close(fd);
    ck_assert_str_eq(found, "aabcd");
}

START_TEST(what_is_written_behind_is_all_there)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(written_behind(&err) == CKPT_OK, "%s", err.message);
    ck_assert_int_eq(ranges, 6);
    ck_assert_int_eq(syncs, 2); /* the file, and its directory */
    expect_far();
}
END_TEST

/* Nothing of it has to be written out later. */
START_TEST(what_goes_past_the_cache_is_not_written_behind)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(write_far(0, &err) == CKPT_OK, "%s", err.message);
    int fd = open("far", O_WRONLY | O_DIRECT);
    ck_assert_int_eq(ranges, fd >= 0 ? 0 : 6);
    if (fd >= 0)
        close(fd);
    expect_far();
}
END_TEST

/* Such a call takes an error of the disk with it: a later fdatasync would not say it again. */
START_TEST(an_error_met_behind_is_not_lost)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    for (int n = 1; n <= 6; n++)
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            ckpt_error err = CKPT_ERROR_INIT;
            range_to_fail = n;
            range_error = errors[i];
            ck_assert_int_eq(written_behind(&err), CKPT_E_SYSTEM);
            ck_assert_int_eq(err.sys_errno, errors[i]);
            ck_assert_ptr_nonnull(strstr(err.message, "sync_file_range"));
            ck_assert(!there("far"));
            ck_assert_int_eq(entries("."), 0);
        }
}
END_TEST

START_TEST(a_system_that_cannot_write_behind_writes_all_the_same)
{
    static const int errors[] = {ENOSYS, EINVAL, EOPNOTSUPP, ESPIPE, EINTR};
    for (int n = 1; n <= 6; n += 5)
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            ckpt_error err = CKPT_ERROR_INIT;
            range_to_fail = n;
            range_error = errors[i];
            ranges = 0;
            ck_assert_msg(written_behind(&err) == CKPT_OK, "%s", err.message);
            ck_assert_int_eq(range_to_fail, 0);
            ck_assert_int_eq(ranges, errors[i] == EINTR ? n == 6 ? 7 : 6 : n); /* asked no more, or again */
            expect_far();
        }
}
END_TEST

START_TEST(a_reservation_that_is_always_interrupted_is_done_without)
{
    ckpt_error err = CKPT_ERROR_INIT;
    for (int n = 3; n <= 1000000; n += 999997) {
        interruptions = n;
        ck_assert_int_eq(ckpt__sink_commit(written("step", "one"), &err), CKPT_OK);
        ck_assert(n == 3 ? interruptions == 0 : interruptions > 0);
        expect("step/checkpoint.json", "one");
    }
}
END_TEST

START_TEST(room_is_asked_for_before_anything_is_written)
{
    static const struct {
        uint64_t left, bytes;
        bool fits;
    } cases[] = {{10, 40960, true},
                 {10, 40961, false},
                 {0, 1, false},
                 {0, 0, true},
                 {UINT64_MAX, UINT64_MAX, true},
                 {UINT64_MAX / 2, UINT64_MAX, true}};
    const ckpt__sink_options options = {.sync = true};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *s;
    ck_assert_int_eq(ckpt__sink_directory("target", &options, &s, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        blocks_left = cases[i].left;
        err = (ckpt_error)CKPT_ERROR_INIT;
        ckpt_status status = ckpt__sink_room(s, cases[i].bytes, &err);
        ck_assert_int_eq(status, cases[i].fits ? CKPT_OK : CKPT_E_SYSTEM);
        ck_assert_int_eq(err.sys_errno, cases[i].fits ? 0 : ENOSPC);
        ck_assert(cases[i].fits ||
                  (strstr(err.message, "bytes are to be written in all") && strstr(err.object, "target")));
    }
    ckpt__sink_abort(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sink");
    TCase *t = tcase_create("sink");
    tcase_add_checked_fixture(t, begin, remove_scratch);
    tcase_add_test(t, what_is_settled_is_only_renamed);
    tcase_add_test(t, a_failed_sync_is_never_tried_again);
    tcase_add_test(t, a_failed_close_is_an_error);
    tcase_add_test(t, an_abort_needs_no_descriptor_and_no_right_to_write);
    tcase_add_test(t, a_directory_is_swapped_where_names_cannot_be_exchanged);
    tcase_add_test(t, a_file_of_an_open_directory_replaces_a_link_itself);
    tcase_add_test(t, what_is_written_behind_is_all_there);
    tcase_add_test(t, what_goes_past_the_cache_is_not_written_behind);
    tcase_add_test(t, an_error_met_behind_is_not_lost);
    tcase_add_test(t, a_system_that_cannot_write_behind_writes_all_the_same);
    tcase_add_test(t, a_reservation_that_is_always_interrupted_is_done_without);
    tcase_add_test(t, room_is_asked_for_before_anything_is_written);
    suite_add_tcase(s, t);
    return run_suite(s);
}
