/* Publication when something fails: settling before publishing, file systems that cannot exchange names, and what is
 * left behind. */
#include "io/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include "scratch.h"
#include "runner.h"

static const ckpt__sink_options replace = { .sync = true, .replace = true };
static int fsync_to_fail, fdatasync_to_fail, renameat_to_fail, syncs, interruptions;
static bool simple_renames, no_descriptors;

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

int fallocate(int fd, int mode, off_t offset, off_t size)
{
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, size);
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

static void begin(void)
{
    make_scratch();
    fsync_to_fail = fdatasync_to_fail = renameat_to_fail = syncs = interruptions = 0;
    simple_renames = no_descriptors = false;
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
    ck_assert_int_eq(syncs, before + 1);         /* of the directory that it lies in */
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

START_TEST(an_abort_needs_no_descriptor_and_no_right_to_write)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__sink *d = written("step", "one");
    no_descriptors = true;
    ckpt__sink_abort(d);
    ck_assert_int_eq(entries("."), 0);
    no_descriptors = false;
    bool root = geteuid() == 0;   /* modes do not hold root back */
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
    ck_assert_int_eq(chmod("step", 0700), 0);    /* so that the test can remove it */
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
    fsync_to_fail = 2;            /* the first is of the new directory */
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

int main(void)
{
    Suite *s = suite_create("sink");
    TCase *t = tcase_create("sink");
    tcase_add_checked_fixture(t, begin, remove_scratch);
    tcase_add_test(t, what_is_settled_is_only_renamed);
    tcase_add_test(t, a_failed_sync_is_never_tried_again);
    tcase_add_test(t, an_abort_needs_no_descriptor_and_no_right_to_write);
    tcase_add_test(t, a_directory_is_swapped_where_names_cannot_be_exchanged);
    tcase_add_test(t, a_file_of_an_open_directory_replaces_a_link_itself);
    tcase_add_test(t, a_reservation_that_is_always_interrupted_is_done_without);
    suite_add_tcase(s, t);
    return run_suite(s);
}
