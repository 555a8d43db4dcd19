/* Sources and sinks: what is read, and what is published whole or not at all. */
#define SCRATCH_ON_DISK
#include "io/pump.h"
#include "io/sink.h"
#include "io/source.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../runner.h"
#include "../scratch.h"

static const ckpt__sink_options replace = {.sync = true, .replace = true}, keep = {.sync = true};

/* The library's fsync, the nth of which fails. */
static int fsync_to_fail;
int fsync(int fd)
{
    if (fsync_to_fail > 0 && --fsync_to_fail == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

static ckpt_status write_file(const char *path, const char *text, const ckpt__sink_options *o, bool commit,
                              ckpt_error *err)
{
    ckpt__sink *s;
    ckpt_status status = ckpt__sink_file(path, strlen(text), o, &s, err);
    if (status < 0)
        return status;
    status = ckpt__sink_write(s, 0, text, strlen(text), err);
    if (status == CKPT_OK && commit)
        return ckpt__sink_commit(s, err);
    ckpt__sink_abort(s);
    return status;
}

START_TEST(a_file_appears_whole_or_not)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(write_file("a", "first", &replace, true, &err), CKPT_OK);
    expect("a", "first");
    ck_assert_int_eq(write_file("a", "second", &replace, false, &err), CKPT_OK);
    expect("a", "first");
    ck_assert_int_eq(entries("."), 1);
    ck_assert_int_eq(write_file("a", "third", &keep, true, &err), CKPT_E_EXISTS);
    expect("a", "first");
    ck_assert_int_eq(write_file("a", "fourth", &replace, true, &err), CKPT_OK);
    expect("a", "fourth");
    ck_assert_int_eq(write_file("b", "new", &keep, true, &err), CKPT_OK);
    expect("b", "new");
    ck_assert_int_eq(entries("."), 2);
    ck_assert_int_eq(write_file("no/such/x", "y", &replace, true, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_int_eq(write_file("", "y", &replace, true, &err), CKPT_E_ARGUMENT);
    mkdir("d", 0777);
    ck_assert_int_eq(write_file("d", "y", &replace, true, &err), CKPT_E_EXISTS);
}
END_TEST

START_TEST(mode_and_links_are_kept)
{
    struct stat st;
    put("a", "old");
    ck_assert_int_eq(chmod("a", 0640), 0);
    ck_assert_int_eq(symlink("a", "link"), 0);
    ck_assert_int_eq(write_file("link", "new", &replace, true, NULL), CKPT_OK);
    expect("a", "new");
    ck_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert(stat("a", &st) == 0 && (st.st_mode & 0777) == 0640);
    umask(027);
    ck_assert_int_eq(write_file("fresh", "x", &replace, true, NULL), CKPT_OK);
    ck_assert(stat("fresh", &st) == 0 && (st.st_mode & 0777) == 0640);
    umask(022);
}
END_TEST

START_TEST(a_size_limit_is_an_error_and_no_signal)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct rlimit old, small;
    char big[70000];
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    put("a", "old");
    setrlimit(RLIMIT_FSIZE, &small);
    ckpt_status status = write_file("a", big, &replace, true, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_int_eq(status, CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EFBIG);
    ck_assert_ptr_nonnull(strstr(err.message, "ulimit"));
    expect("a", "old");
    ck_assert_int_eq(entries("."), 1);
    sigset_t pending;
    sigpending(&pending);
    ck_assert(!sigismember(&pending, SIGXFSZ));
}
END_TEST

/* 1 MiB blocks, each filled with its number, through the writer thread. */
static ckpt_status pump_file(const char *path, size_t blocks, bool alone, ckpt_error *err)
{
    enum { BLOCK = 1 << 20 };
    ckpt__sink *sink;
    ckpt__pump *pump = NULL;
    void *block = NULL;
    ckpt_status status = ckpt__sink_file(path, 0, &replace, &sink, err); /* nothing reserved: each write counts */
    if (status == CKPT_OK)
        status = ckpt__pump_new(sink, BLOCK, blocks * BLOCK, alone, &pump, err);
    for (size_t i = 0; status == CKPT_OK && i < blocks; i++) {
        if ((status = ckpt__pump_block(pump, &block, err)) < 0)
            break;
        memset(block, (int)(i & 0xff), BLOCK);
        status = ckpt__pump_put(pump, i * BLOCK, BLOCK, err);
    }
    if (status == CKPT_OK)
        status = ckpt__pump_drain(pump, err);
    ckpt__pump_free(pump);
    if (status == CKPT_OK)
        return ckpt__sink_commit(sink, err);
    ckpt__sink_abort(sink);
    return status;
}

/* Run with a thread, and alone. */
START_TEST(the_writer_thread_writes_in_place_and_fails_aloud)
{
    bool alone = _i;
    ckpt_error err = CKPT_ERROR_INIT;
    struct rlimit old, small;
    unsigned char byte;
    ck_assert_int_eq(pump_file("a", 20, alone, &err), CKPT_OK);
    int fd = open("a", O_RDONLY);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(pread(fd, &byte, 1, (off_t)i * (1 << 19) + 7), 1);
        ck_assert_int_eq(byte, i / 2);
    }
    ck_assert_int_eq(pread(fd, &byte, 1, 20 << 20), 0);
    close(fd);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 10 << 20;
    setrlimit(RLIMIT_FSIZE, &small);
    ckpt_status status = pump_file("a", 30, alone, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_int_eq(status, CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EFBIG);
    ck_assert_int_eq(entries("."), 1);
    struct stat st;
    ck_assert(stat("a", &st) == 0 && st.st_size == 20 << 20);
}
END_TEST

static ckpt_status write_directory(const char *path, const char *text, const ckpt__sink_options *o, bool commit,
                                   ckpt_error *err)
{
    ckpt__sink *d, *m;
    ckpt_status status = ckpt__sink_directory(path, o, &d, err);
    if (status < 0)
        return status;
    ck_assert_int_eq(ckpt__sink_member(d, "checkpoint.json", strlen(text), &m, err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_write(m, 0, text, strlen(text), err), CKPT_OK);
    ck_assert_int_eq(ckpt__sink_commit(m, err), CKPT_OK);
    if (commit)
        return ckpt__sink_commit(d, err);
    ckpt__sink_abort(d);
    return CKPT_OK;
}

START_TEST(a_directory_appears_whole_or_not)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_int_eq(write_directory("step", "one", &replace, true, &err), CKPT_OK);
    expect("step/checkpoint.json", "one");
    ck_assert_int_eq(write_directory("step", "two", &replace, false, &err), CKPT_OK);
    expect("step/checkpoint.json", "one");
    ck_assert_int_eq(write_directory("step", "three", &keep, true, &err), CKPT_E_EXISTS);
    ck_assert_int_eq(write_directory("step/", "four", &replace, true, &err), CKPT_OK);
    expect("step/checkpoint.json", "four");
    ck_assert_int_eq(entries("."), 1);
    mkdir("mine", 0777);
    put("mine/thesis.tex", "dear to me");
    ck_assert_int_eq(write_directory("mine", "x", &replace, true, &err), CKPT_E_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.message, "not a checkpoint"));
    expect("mine/thesis.tex", "dear to me");
    mkdir("empty", 0777);
    ck_assert_int_eq(write_directory("empty", "x", &replace, true, &err), CKPT_OK);
    expect("empty/checkpoint.json", "x");
    ck_assert_int_eq(entries("."), 3);
}
END_TEST

START_TEST(a_directory_keeps_its_mode_and_comes_back)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct stat st;
    ck_assert_int_eq(write_directory("step", "one", &replace, true, &err), CKPT_OK);
    ck_assert_int_eq(chmod("step", 0700), 0);
    ck_assert_int_eq(write_directory("step", "two", &replace, true, &err), CKPT_OK);
    ck_assert_int_eq(stat("step", &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0700);
    fsync_to_fail = 2; /* the first is of the new directory itself, the second of the one that it is in */
    ck_assert_int_eq(write_directory("step", "three", &replace, true, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(fsync_to_fail, 0);
    ck_assert_ptr_nonnull(strstr(err.message, "back in its place"));
    expect("step/checkpoint.json", "two");
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

START_TEST(sources_read_exactly)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__source *s;
    char buf[16] = "";
    put("a", "0123456789");
    ck_assert_int_eq(ckpt__source_open("a", &s, &err), CKPT_OK);
    ck_assert_uint_eq(s->files[0].size, 10);
    ck_assert_int_eq(ckpt__source_read(s, 0, 7, buf, 3, &err), CKPT_OK);
    ck_assert_str_eq(buf, "789");
    ck_assert_int_eq(ckpt__source_read(s, 0, 7, buf, 4, &err), CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "ends at byte 10; 11 bytes are expected"));
    ck_assert_int_eq(ckpt__source_read(s, 0, UINT64_MAX, buf, 4, &err), CKPT_E_DAMAGED);
    ckpt__source_close(s);
    ck_assert_int_eq(ckpt__source_open("nothing", &s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_int_eq(mkfifo("pipe", 0666), 0);
    ck_assert_int_eq(ckpt__source_open("pipe", &s, &err), CKPT_E_FORMAT);
    ck_assert_ptr_null(s);
    ck_assert_int_eq(ckpt__source_open("/dev/zero", &s, &err), CKPT_E_FORMAT);
}
END_TEST

START_TEST(members_stay_in_their_directory)
{
    static const char *const climbs[] = {"../secret", "/etc/passwd", "a/../../secret", "out", "outdir/secret",
                                         "",          "a/.."};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__source *s;
    uint32_t file, again;
    put("secret", "secret");
    mkdir("dir", 0777);
    mkdir("dir/a", 0777);
    put("dir/a/inner", "inner");
    ck_assert_int_eq(symlink("../secret", "dir/out"), 0);
    ck_assert_int_eq(symlink("..", "dir/outdir"), 0);
    ck_assert_int_eq(ckpt__source_open("dir", &s, &err), CKPT_OK);
    for (size_t i = 0; i < sizeof climbs / sizeof *climbs; i++)
        ck_assert_msg(ckpt__source_add(s, climbs[i], &file, &err) == CKPT_E_FORMAT, "'%s' was opened", climbs[i]);
    ck_assert_int_eq(ckpt__source_add(s, "a/inner", &file, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_add(s, "a/inner", &again, &err), CKPT_OK);
    ck_assert_uint_eq(file, again);
    ck_assert_int_eq(ckpt__source_add(s, "a", &file, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(ckpt__source_add(s, "none", &file, &err), CKPT_E_SYSTEM);
    ckpt__buf b = {0};
    ck_assert_int_eq(ckpt__source_slurp(s, again, 3, &b, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(ckpt__source_slurp(s, again, 100, &b, &err), CKPT_OK);
    ck_assert_str_eq(b.data, "inner");
    ckpt__buf_free(&b);
    ckpt__source_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("io");
    TCase *t = tcase_create("io");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_test(t, a_file_appears_whole_or_not);
    tcase_add_test(t, mode_and_links_are_kept);
    tcase_add_test(t, a_size_limit_is_an_error_and_no_signal);
    tcase_add_loop_test(t, the_writer_thread_writes_in_place_and_fails_aloud, 0, 2);
    tcase_add_test(t, a_directory_appears_whole_or_not);
    tcase_add_test(t, a_directory_keeps_its_mode_and_comes_back);
    tcase_add_test(t, sources_read_exactly);
    tcase_add_test(t, members_stay_in_their_directory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
