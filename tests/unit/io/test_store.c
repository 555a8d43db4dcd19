/* A run directory: made, locked, listed, its small files read and replaced. */
#define SCRATCH_ON_DISK
#include "io/store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include "../scratch.h"
#include "../runner.h"

/* Directories that were synced, by inode, in order. */
static ino_t synced[64];
static int syncs, fsync_to_fail;

int fsync(int fd)
{
    struct stat st;
    if (fsync_to_fail > 0 && --fsync_to_fail == 0) {
        errno = EIO;
        return -1;
    }
    if (syncs < 64 && fstat(fd, &st) == 0)
        synced[syncs++] = st.st_ino;
    return (int)syscall(SYS_fsync, fd);
}

/* Called when the lock is taken: between opening .lock and locking it, somebody else does something. */
static void (*meanwhile)(void);
int fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (command == F_OFD_SETLK && meanwhile) {
        void (*act)(void) = meanwhile;
        meanwhile = NULL;
        act();
    }
    return (int)syscall(SYS_fcntl, fd, command, arg);
}

static bool was_synced(const char *path)
{
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    for (int i = 0; i < syncs; i++)
        if (synced[i] == st.st_ino)
            return true;
    return false;
}

static void begin(void)
{
    make_scratch();
    syncs = fsync_to_fail = 0;
    meanwhile = NULL;
}

static ckpt__store *opened(const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__store *s = NULL;
    ck_assert_msg(ckpt__store_open(path, true, &s, &err) == CKPT_OK, "%s", err.message);
    return s;
}

START_TEST(a_directory_is_made_with_its_parents_and_all_are_synced)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__store *s;
    ck_assert_int_eq(ckpt__store_open("runs/a", false, &s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_ptr_null(s);
    ck_assert_int_eq(entries("."), 0);
    s = opened("runs//a/b/");
    ck_assert(was_synced(".") && was_synced("runs") && was_synced("runs/a") && was_synced("runs/a/b"));
    ck_assert_int_eq(s->path[0], '/');
    ck_assert_ptr_nonnull(strstr(s->path, "/runs/a/b"));
    ckpt__store_close(s);
    syncs = 0; /* it may have been made by one that was killed before it could sync */
    ckpt__store_close(opened("runs/a"));
    ck_assert(was_synced("runs"));
    syncs = 0;
    ckpt__store_close(opened("runs/a/c"));
    ck_assert(was_synced("runs") && was_synced("runs/a") && was_synced("runs/a/c"));
    put("file", "x");
    ck_assert_int_eq(ckpt__store_open("file", true, &s, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(ckpt__store_open("file/a", true, &s, &err), CKPT_E_FORMAT);
    ck_assert_int_eq(ckpt__store_open("", true, &s, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(symlink("nowhere", "dangling"), 0);
    ck_assert_int_eq(ckpt__store_open("dangling", true, &s, &err), CKPT_E_SYSTEM);
    fsync_to_fail = 2;
    ck_assert_int_eq(ckpt__store_open("other", true, &s, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EIO);
    ckpt__store_close(NULL);
}
END_TEST

START_TEST(a_change_of_directory_changes_nothing)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__buf text = {0};
    ckpt__store *s = opened("run");
    ck_assert_int_eq(mkdir("elsewhere", 0777), 0);
    ck_assert_int_eq(chdir("elsewhere"), 0);
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__store_write(s, "latest", "step-1\n", 7, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__store_read(s, "latest", 100, &text, &err), CKPT_OK);
    ck_assert_str_eq(text.data, "step-1\n");
    ck_assert_int_eq(entries("."), 0);
    expect("../run/latest", "step-1\n");
    ck_assert_int_eq(access(s->path, R_OK), 0);
    ckpt__buf_free(&text);
    ckpt__store_close(s);
}
END_TEST

/* ---- the lock */

START_TEST(a_second_writer_is_refused_by_name)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char host[128] = "", expected[256], holder[256];
    ckpt__store *s = opened("run"), *again = opened("run");
    gethostname(host, sizeof host - 1);
    snprintf(expected, sizeof expected, "pid %ld on host %s", (long)getpid(), host);
    ck_assert(!ckpt__store_holder(s, holder, sizeof holder));
    ck_assert(!there("run/.lock"));
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__store_lock(again, &err), CKPT_E_EXISTS); /* the same process, another description */
    ck_assert_ptr_nonnull(strstr(err.message, expected));
    ck_assert(ckpt__store_holder(again, holder, sizeof holder));
    ck_assert_str_eq(holder, expected);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        ckpt__store *mine;
        bool ok = ckpt__store_open("run", true, &mine, &err) == CKPT_OK &&
                  ckpt__store_lock(mine, &err) == CKPT_E_EXISTS && strstr(err.message, expected) != NULL;
        ckpt__store_close(mine);
        ckpt__store_close(s); /* a copy of the parent's, which stays locked */
        _exit(ok ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(ckpt__store_lock(again, &err), CKPT_E_EXISTS);
    ckpt__store_close(s);
    ck_assert(!ckpt__store_holder(again, holder, sizeof holder));
    ck_assert_int_eq(ckpt__store_lock(again, &err), CKPT_OK);
    ckpt__store_close(again);
}
END_TEST

START_TEST(the_lock_goes_with_its_holder_and_not_with_its_children)
{
    ckpt_error err = CKPT_ERROR_INIT;
    int ready[2], status;
    char byte, holder[256];
    ckpt__store *s = opened("run");
    ck_assert_int_eq(pipe(ready), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        ckpt__store *mine = NULL;
        bool ok = ckpt__store_open("run", true, &mine, &err) == CKPT_OK && ckpt__store_lock(mine, &err) == CKPT_OK;
        if (write(ready[1], ok ? "y" : "n", 1) == 1)
            pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(byte, 'y');
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_E_EXISTS);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_OK);
    /* One that was forked while the lock was held, and lives on: a close unlocks all the same. */
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        pause();
        _exit(0);
    }
    ckpt__store_close(s);
    s = opened("run");
    ck_assert(!ckpt__store_holder(s, holder, sizeof holder));
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_OK);
    ckpt__store_close(s);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(ready[0]);
    close(ready[1]);
}
END_TEST

static ckpt__store *other;

static void is_removed(void)
{
    ck_assert_int_eq(unlink("run/.lock"), 0);
}

/* ... and another process makes it anew, and locks that one. */
static void is_taken(void)
{
    ckpt_error err = CKPT_ERROR_INIT;
    is_removed();
    ck_assert_msg(ckpt__store_lock(other, &err) == CKPT_OK, "%s", err.message);
}

/* Who has locked a file that is .lock no longer has locked nothing. */
START_TEST(a_lock_that_is_removed_before_it_is_locked)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__store *s = opened("run");
    other = opened("run");
    meanwhile = is_removed;
    ck_assert_msg(ckpt__store_lock(s, &err) == CKPT_OK, "%s", err.message);
    ck_assert(there("run/.lock"));
    ck_assert_int_eq(ckpt__store_lock(other, &err), CKPT_E_EXISTS);
    ckpt__store_close(s);
    s = opened("run");
    meanwhile = is_taken;
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_E_EXISTS);
    ckpt__store_close(other);
    ck_assert_msg(ckpt__store_lock(s, &err) == CKPT_OK, "%s", err.message);
    ckpt__store_close(s);
}
END_TEST

START_TEST(a_lock_that_is_no_file_or_cannot_be_signed)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct rlimit old, small;
    char holder[256] = "none";
    ckpt__store *s = opened("run"), *again = opened("run");
    put("outside", "dear to me");
    ck_assert_int_eq(symlink("../outside", "run/.lock"), 0);
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_E_SYSTEM);
    ck_assert(!ckpt__store_holder(s, holder, sizeof holder));
    ck_assert_int_eq(unlink("run/.lock"), 0);
    ck_assert_int_eq(mkfifo("run/.lock", 0600), 0);
    ck_assert_int_eq(ckpt__store_lock(s, &err), CKPT_E_SYSTEM);
    ck_assert(!ckpt__store_holder(s, holder, sizeof holder));
    ck_assert_int_eq(unlink("run/.lock"), 0);
    expect("outside", "dear to me");
    /* No room for the name: locked all the same, and no SIGXFSZ. */
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &small);
    ckpt_status status = ckpt__store_lock(s, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    ck_assert_int_eq(status, CKPT_OK);
    ck_assert_int_eq(ckpt__store_lock(again, &err), CKPT_E_EXISTS);
    ck_assert_ptr_nonnull(strstr(err.message, "an unknown process"));
    /* What a hostile one wrote does not reach the terminal raw. */
    put("run/.lock", "pid 1 \033[31m\nsecond line");
    ck_assert(ckpt__store_holder(again, holder, sizeof holder));
    ck_assert_str_eq(holder, "pid 1 \\x1b[31m");
    ckpt__store_close(again);
    ckpt__store_close(s);
}
END_TEST

/* ---- small files */

static ckpt_status count_names(void *ctx, const char *name, ckpt_error *err)
{
    int *left = ctx;
    (void)name;
    return --*left ? CKPT_OK : ckpt__fail(err, CKPT_E_LIMIT, name, "enough");
}

START_TEST(names_are_listed)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__store *s = opened("run");
    put("run/a", "");
    put("run/b", "");
    put_directory("run/c", "d", "");
    for (int i = 0; i < 2; i++) {
        int left = 100;
        ck_assert_int_eq(ckpt__store_each(s, count_names, &left, &err), CKPT_OK);
        ck_assert_int_eq(left, 97);
    }
    int left = 2;
    ck_assert_int_eq(ckpt__store_each(s, count_names, &left, &err), CKPT_E_LIMIT);
    ck_assert_int_eq(left, 0);
    ckpt__store_close(s);
}
END_TEST

static void expect_status(const ckpt__store *s, const char *name, size_t limit, ckpt_status expected)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt__buf text = {0};
    uint64_t size;
    int64_t mtime;
    ckpt__buf_str(&text, "kept");
    ckpt_status status = ckpt__store_read(s, name, limit, &text, &err);
    ck_assert_msg(status == expected, "%s: %s: %s", name, ckpt_status_name(status), err.message);
    if (expected < 0) {
        ck_assert_str_eq(text.data, "kept");
        ck_assert_ptr_nonnull(strstr(err.object, name));
        if (expected != CKPT_E_LIMIT)
            ck_assert_int_eq(ckpt__store_stat(s, name, &size, &mtime, NULL), expected);
    }
    ckpt__buf_free(&text);
}

static void read_all_kinds(const ckpt__store *s)
{
    char outside[128];
    snprintf(outside, sizeof outside, "%s/outside", scratch);
    expect_status(s, "latest", 5, CKPT_OK);
    expect_status(s, "latest", 4, CKPT_E_LIMIT);
    expect_status(s, "latest", 0, CKPT_E_LIMIT);
    expect_status(s, "empty", 0, CKPT_OK);
    expect_status(s, "step/checkpoint.json", 100, CKPT_OK);
    expect_status(s, "step/none", 100, CKPT_E_NOT_FOUND);
    expect_status(s, "none/checkpoint.json", 100, CKPT_E_NOT_FOUND);
    expect_status(s, "latest/checkpoint.json", 100, CKPT_E_NOT_FOUND);
    expect_status(s, "step", 100, CKPT_E_FORMAT);
    expect_status(s, "fifo", 100, CKPT_E_FORMAT);
    expect_status(s, "socket", 100, CKPT_E_FORMAT);
    expect_status(s, "up", 100, CKPT_E_FORMAT);
    expect_status(s, "absolute", 100, CKPT_E_FORMAT);
    expect_status(s, "far/outside", 100, CKPT_E_FORMAT);
    expect_status(s, "../outside", 100, CKPT_E_FORMAT);
    expect_status(s, "step/../../outside", 100, CKPT_E_FORMAT);
    expect_status(s, outside, 100, CKPT_E_FORMAT);
    expect_status(s, "", 100, CKPT_E_FORMAT);
}

/* From here on openat2 is not there. */
static void forbid_openat2(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(reading_never_leaves_the_directory_and_never_waits)
{
    char target[128];
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "run/socket"};
    ckpt__store *s = opened("run");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0), status;
    put("outside", "secret");
    put("run/latest", "12345");
    put("run/empty", "");
    put_directory("run/step", "checkpoint.json", "{}");
    ck_assert_int_eq(mkfifo("run/fifo", 0600), 0);
    ck_assert(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0);
    close(fd);
    ck_assert_int_eq(symlink("../outside", "run/up"), 0);
    ck_assert_int_eq(symlink("..", "run/far"), 0);
    snprintf(target, sizeof target, "%s/outside", scratch);
    ck_assert_int_eq(symlink(target, "run/absolute"), 0);
    read_all_kinds(s);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        forbid_openat2();
        read_all_kinds(s);
        ckpt__store_close(s);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ckpt__store_close(s);
}
END_TEST

START_TEST(long_files_are_read_whole)
{
    ckpt_error err = CKPT_ERROR_INIT;
    enum { N = 200001 };
    ckpt__buf text = {0};
    uint64_t size = 0;
    int64_t mtime = 0;
    ckpt__store *s = opened("run");
    char *bytes = malloc(N);
    ck_assert_ptr_nonnull(bytes);
    for (int i = 0; i < N; i++)
        bytes[i] = (char)(i * 7 >> 3);
    ck_assert_int_eq(ckpt__store_write(s, "big", bytes, N, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__store_read(s, "big", N, &text, &err), CKPT_OK);
    ck_assert_uint_eq(text.size, N);
    ck_assert_mem_eq(text.data, bytes, N);
    ck_assert_int_eq(ckpt__store_stat(s, "big", &size, &mtime, &err), CKPT_OK);
    ck_assert_uint_eq(size, N);
    ck_assert_int_le(llabs(mtime - time(NULL)), 60);
    expect_status(s, "big", N - 1, CKPT_E_LIMIT);
    free(bytes);
    ckpt__buf_free(&text);
    /* What says that it is empty and is not (files of /proc). */
    ckpt__store *proc = NULL;
    ck_assert_int_eq(ckpt__store_open("/proc/self", false, &proc, &err), CKPT_OK);
    expect_status(proc, "status", 100000, CKPT_OK);
    expect_status(proc, "status", 10, CKPT_E_LIMIT);
    ckpt__store_close(proc);
    ckpt__store_close(s);
}
END_TEST

START_TEST(a_hint_is_replaced_whole_and_in_its_place)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct stat st;
    ckpt__store *s = opened("run");
    ck_assert_int_eq(ckpt__store_write(s, "latest", "one", 3, &err), CKPT_OK);
    ck_assert_int_eq(chmod("run/latest", 0640), 0);
    syncs = 0;
    ck_assert_int_eq(ckpt__store_write(s, "latest", "second", 6, &err), CKPT_OK);
    ck_assert(was_synced("run"));
    expect("run/latest", "second");
    ck_assert(stat("run/latest", &st) == 0 && (st.st_mode & 0777) == 0640);
    ck_assert_int_eq(ckpt__store_write(s, "latest", "", 0, &err), CKPT_OK);
    expect("run/latest", "");
    put("outside", "dear to me");
    ck_assert_int_eq(unlink("run/latest"), 0);
    ck_assert_int_eq(symlink("../outside", "run/latest"), 0);
    ck_assert_int_eq(ckpt__store_write(s, "latest", "third", 5, &err), CKPT_OK);
    expect("run/latest", "third");
    expect("outside", "dear to me");
    ck_assert_int_eq(ckpt__store_write(s, "../outside", "x", 1, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__store_write(s, "..", "x", 1, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(mkdir("run/taken", 0777), 0);
    ck_assert_int_eq(ckpt__store_write(s, "taken", "x", 1, &err), CKPT_E_EXISTS);
    ck_assert_int_eq(entries("run"), 2);
    ckpt__store_close(s);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store");
    TCase *t = tcase_create("store");
    tcase_add_checked_fixture(t, begin, remove_scratch);
    tcase_add_test(t, a_directory_is_made_with_its_parents_and_all_are_synced);
    tcase_add_test(t, a_change_of_directory_changes_nothing);
    tcase_add_test(t, a_second_writer_is_refused_by_name);
    tcase_add_test(t, the_lock_goes_with_its_holder_and_not_with_its_children);
    tcase_add_test(t, a_lock_that_is_removed_before_it_is_locked);
    tcase_add_test(t, a_lock_that_is_no_file_or_cannot_be_signed);
    tcase_add_test(t, names_are_listed);
    tcase_add_test(t, reading_never_leaves_the_directory_and_never_waits);
    tcase_add_test(t, long_files_are_read_whole);
    tcase_add_test(t, a_hint_is_replaced_whole_and_in_its_place);
    suite_add_tcase(s, t);
    return run_suite(s);
}
