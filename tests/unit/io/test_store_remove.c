/* What leaves a run directory: leftovers, pruned checkpoints, requests; and what never does. */
#define SCRATCH_ON_DISK
#include "io/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include "../scratch.h"
#include "../runner.h"

/* The order of what changes the disk: r a rename, f a sync of a directory, d a name that is deleted. */
static char order[256];
static int fsync_to_fail;
static const char *not_to_go; /* a name that cannot be deleted */

static void note(char c)
{
    size_t n = strlen(order);
    if (n + 1 < sizeof order) {
        order[n] = c;
        order[n + 1] = '\0';
    }
}

int fsync(int fd)
{
    if (fsync_to_fail > 0 && --fsync_to_fail == 0) {
        errno = EIO;
        return -1;
    }
    note('f');
    return (int)syscall(SYS_fsync, fd);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    int rc = (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, 0);
    if (rc == 0)
        note('r');
    return rc;
}

int unlinkat(int fd, const char *name, int flags)
{
    if (not_to_go && strcmp(name, not_to_go) == 0) {
        errno = EPERM;
        return -1;
    }
    int rc = (int)syscall(SYS_unlinkat, fd, name, flags);
    if (rc == 0)
        note('d');
    return rc;
}

static ckpt__store *run;

static void begin(void)
{
    make_scratch();
    ck_assert_int_eq(ckpt__store_open("run", true, &run, NULL), CKPT_OK);
    ck_assert_int_eq(chdir("run"), 0);
    *order = '\0';
    fsync_to_fail = 0;
    not_to_go = NULL;
}

static void end(void)
{
    ckpt__store_close(run);
    remove_scratch();
}

static void expect_recovery(size_t restored, size_t removed, size_t left)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t have[3];
    ck_assert_msg(ckpt__store_recover(run, "step-", &have[0], &have[1], &have[2], &err) == CKPT_OK, "%s", err.message);
    ck_assert_uint_eq(have[0], restored);
    ck_assert_uint_eq(have[1], removed);
    ck_assert_uint_eq(have[2], left);
}

START_TEST(leftovers_go_and_all_else_stays)
{
    put_directory("step-00000001", "checkpoint.json", "one");
    put_directory(".tmp-step-00000002.0123456789abcdef", "model", "half");
    put_directory(".trash-step-00000001.0123456789abcdef", "checkpoint.json", "older");
    put_directory(".trash-pruned.step-00000000.0123456789abcdef", "checkpoint.json", "pruned");
    put(".latest.tmp-0123456789abcdef", "x");
    ck_assert_int_eq(symlink("step-00000001", ".tmp-link"), 0);
    ck_assert_int_eq(mkdir("step-00000003", 0777), 0); /* a claim that was never filled */
    put("latest", "step-00000001\n");
    put("notes.txt", "mine");
    put("step-by-step", "a file");
    put(".hidden", "mine");
    put_directory("tensorboard", "events", "mine");
    put_directory("step-notes", "a", "mine");
    ck_assert_int_eq(mkdir("empty", 0777), 0);
    expect_recovery(0, 6, 0);
    expect("step-00000001/checkpoint.json", "one");
    expect("notes.txt", "mine");
    expect("step-by-step", "a file");
    expect("tensorboard/events", "mine");
    expect("step-notes/a", "mine");
    ck_assert(there("latest") && there(".hidden") && there("empty"));
    ck_assert_int_eq(entries("."), 8);
    *order = '\0';
    expect_recovery(0, 0, 0);
    ck_assert_str_eq(order, "");
}
END_TEST

START_TEST(a_half_done_swap_is_undone)
{
    put_directory(".trash-step-00000001.0123456789abcdef", "checkpoint.json", "old");
    put_directory(".tmp-step-00000001.0123456789abcdef", "checkpoint.json", "new");
    put_directory(".trash-pruned.step-00000002.0123456789abcdef", "checkpoint.json", "pruned");
    put_directory(".trash-step-00000003.0123456789abcde", "checkpoint.json", "no name of ours");
    put_directory(".trash-step-00000004.0123456789abcdef", "checkpoint.json", "claimed");
    ck_assert_int_eq(mkdir("step-00000004", 0777), 0);
    ck_assert_int_eq(mkdir(".trash-step-00000005.0123456789abcdef", 0777), 0);
    expect_recovery(2, 5, 0);
    expect("step-00000001/checkpoint.json", "old");
    expect("step-00000004/checkpoint.json", "claimed");
    ck_assert_int_eq(entries("."), 2);
}
END_TEST

/* What had its place taken is given a name that nobody puts back, before anything of it is deleted. */
START_TEST(what_was_replaced_is_never_brought_back)
{
    put_directory(".trash-step-00000001.0123456789abcdef", "checkpoint.json", "old");
    put_directory("step-00000001", "checkpoint.json", "new");
    not_to_go = "checkpoint.json";
    expect_recovery(0, 0, 1);
    not_to_go = NULL;
    expect("step-00000001/checkpoint.json", "new");
    ck_assert_int_eq(rename("step-00000001", "elsewhere"), 0);
    expect_recovery(0, 1, 0);
    ck_assert(!there("step-00000001"));
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

START_TEST(nothing_is_deleted_before_a_sync)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t a, b, c;
    put_directory(".tmp-step-00000002.0123456789abcdef", "model", "half");
    fsync_to_fail = 1;
    ck_assert_int_eq(ckpt__store_recover(run, "step-", &a, &b, &c, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EIO);
    expect(".tmp-step-00000002.0123456789abcdef/model", "half");
    ck_assert_str_eq(order, "");
    expect_recovery(0, 1, 0);
    ck_assert_str_eq(order, "fddf");
    *order = '\0';
    put_directory(".trash-step-00000001.0123456789abcdef", "checkpoint.json", "old");
    expect_recovery(1, 0, 0);
    ck_assert_str_eq(order, "rf");
}
END_TEST

START_TEST(what_cannot_be_removed_is_left_and_counted)
{
    put_directory(".trash-pruned.a", "checkpoint.json", "x");
    ck_assert_int_eq(mkdir(".trash-pruned.a/mine", 0777), 0);
    put(".trash-pruned.a/mine/thesis.tex", "dear to me");
    expect_recovery(0, 0, 1);
    expect(".trash-pruned.a/mine/thesis.tex", "dear to me");
    put_directory(".tmp-b", "c", "x");
    ck_assert_int_eq(chmod(".tmp-b", 0), 0); /* no hindrance: it is ours */
    expect_recovery(0, 1, 1);
}
END_TEST

START_TEST(a_directory_of_many_files_goes_whole)
{
    char name[64];
    ck_assert_int_eq(mkdir(".tmp-many", 0777), 0);
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, ".tmp-many/file-with-a-long-name-%d", i);
        put(name, "");
    }
    expect_recovery(0, 1, 0);
    ck_assert_int_eq(entries("."), 0);
}
END_TEST

/* ---- pruning */

START_TEST(pruned_ones_are_renamed_synced_and_then_deleted)
{
    static const char *const names[] = {"step-1", "gone", "step-2"};
    ckpt_error err = CKPT_ERROR_INIT;
    put_directory("step-1", "checkpoint.json", "1");
    put_directory("step-2", "checkpoint.json", "2");
    put_directory("step-3", "checkpoint.json", "3");
    ck_assert_int_eq(ckpt__store_remove(run, names, 3, &err), CKPT_OK);
    ck_assert_str_eq(order, "rrfdddd");
    expect("step-3/checkpoint.json", "3");
    ck_assert_int_eq(entries("."), 1);
    *order = '\0';
    ck_assert_int_eq(ckpt__store_remove(run, names, 3, &err), CKPT_OK);
    ck_assert_str_eq(order, "");
    ck_assert_int_eq(ckpt__store_remove(run, NULL, 0, &err), CKPT_OK);
}
END_TEST

START_TEST(a_prune_that_fails_says_so_and_deletes_nothing_unsynced)
{
    static const char *const names[] = {"step-1", "step-2"}, *const bad[] = {"../outside", "", ".", "..", "step-2"};
    ckpt_error err = CKPT_ERROR_INIT;
    put_directory("step-1", "checkpoint.json", "1");
    put_directory("step-2", "checkpoint.json", "2");
    put_directory("../outside", "thesis.tex", "dear to me");
    fsync_to_fail = 1;
    ck_assert_int_eq(ckpt__store_remove(run, names, 1, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EIO);
    ck_assert_str_eq(order, "r");
    expect_recovery(0, 1, 0);
    ck_assert_int_eq(ckpt__store_remove(run, bad, 4, &err), CKPT_E_ARGUMENT);
    expect("step-2/checkpoint.json", "2");
    not_to_go = "checkpoint.json";
    ck_assert_int_eq(ckpt__store_remove(run, bad, 5, &err), CKPT_E_ARGUMENT); /* the first one's error */
    put_directory("step-1", "checkpoint.json", "1");
    ck_assert_int_eq(ckpt__store_remove(run, names, 2, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EPERM);
    ck_assert_ptr_nonnull(strstr(err.message, ".trash-pruned.step-1"));
    ck_assert(!there("step-1") && !there("step-2"));
    not_to_go = NULL;
    expect_recovery(0, 2, 0);
    expect("../outside/thesis.tex", "dear to me");
    ck_assert_int_eq(entries("."), 0);
}
END_TEST

/* ---- requests */

START_TEST(a_request_is_told_from_the_next)
{
    ckpt_error err = CKPT_ERROR_INIT;
    struct timespec a_while = {0, 20000000};
    ck_assert_uint_eq(ckpt__store_touched(run, "SAVE"), 0);
    ck_assert_int_eq(ckpt__store_untouch(run, "SAVE", &err), CKPT_OK);
    ck_assert_str_eq(order, "");
    put("SAVE", "");
    uint64_t first = ckpt__store_touched(run, "SAVE");
    ck_assert_uint_ne(first, 0);
    ck_assert_uint_eq(ckpt__store_touched(run, "SAVE"), first);
    ck_assert_int_eq(ckpt__store_untouch(run, "SAVE", &err), CKPT_OK);
    ck_assert_str_eq(order, "df");
    ck_assert_uint_eq(ckpt__store_touched(run, "SAVE"), 0);
    nanosleep(&a_while, NULL); /* timestamps are coarse, and the inode may be the same one */
    put("SAVE", "");
    uint64_t second = ckpt__store_touched(run, "SAVE");
    ck_assert(second != 0 && second != first);
    ck_assert_int_eq(mkdir("STOP", 0777), 0);
    ck_assert_uint_eq(ckpt__store_touched(run, "STOP"), 0);
    ck_assert_int_eq(ckpt__store_untouch(run, "STOP", &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(ckpt__store_untouch(run, "../run", &err), CKPT_E_ARGUMENT);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("store_remove");
    TCase *t = tcase_create("store_remove");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, leftovers_go_and_all_else_stays);
    tcase_add_test(t, a_half_done_swap_is_undone);
    tcase_add_test(t, what_was_replaced_is_never_brought_back);
    tcase_add_test(t, nothing_is_deleted_before_a_sync);
    tcase_add_test(t, what_cannot_be_removed_is_left_and_counted);
    tcase_add_test(t, a_directory_of_many_files_goes_whole);
    tcase_add_test(t, pruned_ones_are_renamed_synced_and_then_deleted);
    tcase_add_test(t, a_prune_that_fails_says_so_and_deletes_nothing_unsynced);
    tcase_add_test(t, a_request_is_told_from_the_next);
    suite_add_tcase(s, t);
    return run_suite(s);
}
