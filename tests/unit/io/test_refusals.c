/* test_refusals.c - file systems that refuse something: each refusal is played by the functions below, and a run is opened,
 * saved, pruned, saved over, closed and resumed on it. docs/filesystems.md says who refuses what. */
#define SCRATCH_ON_DISK
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "../state_fixture.h"

/* What is refused, with which errno; 0: nothing. */
static struct refusals {
    int sync_directory, lock, direct_open, direct_write, reserve, close, sync_file, flags, link, mode;
    int dies_at; /* the call that changes a name at which the process dies, from 1 */
} refuse;
static int changes; /* of names */

enum { BIG = 3 << 20 }; /* past the page cache */
static unsigned char *big;
static struct {
    char code[32], text[500];
} notices[64];
static size_t notice_count;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __real_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
ssize_t __real_pwrite(int fd, const void *data, size_t n, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset);
int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __real_renameat(int a, const char *from, int b, const char *to);
int __wrap_renameat(int a, const char *from, int b, const char *to);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_linkat(int a, const char *from, int b, const char *to, int flags);
int __wrap_linkat(int a, const char *from, int b, const char *to, int flags);
int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __real_fchmod(int fd, mode_t mode);
int __wrap_fchmod(int fd, mode_t mode);

static bool refused(int e)
{
    if (e)
        errno = e;
    return e != 0;
}

static void changes_a_name(void)
{
    if (++changes == refuse.dies_at)
        _exit(77);
}

int __wrap_fsync(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && refused(refuse.sync_directory) ? -1 : __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    return refused(refuse.sync_file) ? -1 : __real_fdatasync(fd);
}

int __wrap_close(int fd)
{
    int flags = __real_fcntl(fd, F_GETFL);
    struct stat st;
    bool written = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
                   st.st_size > 1000;
    int rc = __real_close(fd);
    return written && refused(refuse.close) ? -1 : rc;
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list ap;
    va_start(ap, command);
    void *argument = va_arg(ap, void *);
    va_end(ap);
    return command == F_OFD_SETLK && refused(refuse.lock) ? -1 : __real_fcntl(fd, command, argument);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return flags & O_DIRECT && refused(refuse.direct_open) ? -1 : __real_openat(dir, path, flags, mode);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t n, off_t offset)
{
    return __real_fcntl(fd, F_GETFL) & O_DIRECT && refused(refuse.direct_write) ? -1
                                                                                : __real_pwrite(fd, data, n, offset);
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    return refused(refuse.reserve) ? -1 : __real_fallocate(fd, mode, offset, size);
}

/* They are known by a sticky bit, which no new directory has. */
static bool is_lower(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) && st.st_mode & S_ISVTX;
}

int __wrap_renameat(int a, const char *from, int b, const char *to)
{
    changes_a_name();
    return refused(is_lower(a, from) ? EXDEV : 0) ? -1 : __real_renameat(a, from, b, to);
}

int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    struct stat st;
    changes_a_name();
    if (refused(refuse.flags))
        return -1;
    if (flags == RENAME_NOREPLACE && fstatat(b, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return refused(EEXIST) ? -1 : 0;
    return refused(is_lower(a, from) || is_lower(b, to) ? EXDEV : 0) ? -1 : __real_renameat2(a, from, b, to, flags);
}

int __wrap_linkat(int a, const char *from, int b, const char *to, int flags)
{
    changes_a_name();
    return refused(refuse.link) ? -1 : __real_linkat(a, from, b, to, flags);
}

int __wrap_unlinkat(int dir, const char *name, int flags)
{
    changes_a_name();
    return __real_unlinkat(dir, name, flags);
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return refused(refuse.mode) ? -1 : __real_fchmod(fd, mode);
}

/* ---- the run */

static void hear(void *ctx, const ckpt_finding *f)
{
    (void)ctx;
    if (notice_count == sizeof notices / sizeof *notices)
        return;
    snprintf(notices[notice_count].code, sizeof notices->code, "%s", f->code);
    snprintf(notices[notice_count++].text, sizeof notices->text, "%s", f->message);
}

static size_t heard(const char *code)
{
    size_t n = 0;
    for (size_t i = 0; i < notice_count; i++)
        n += strcmp(notices[i].code, code) == 0;
    return n;
}

typedef struct trainer {
    training t;
    ckpt_state *state;
    ckpt_run *run;
    int64_t done;
    ckpt_error err;
} trainer;

static void set_step(trainer *x, int64_t step, unsigned seed)
{
    fill(&x->t, seed);
    x->t.step = step;
    memset(big, (int)seed, BIG);
}

static int64_t back_to; /* what the next start goes back to; 0: the newest */

static ckpt_status start(trainer *x, bool no_lock)
{
    static const int64_t shape[] = {BIG};
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    memset(x, 0, sizeof *x);
    notice_count = 0;
    o.notice = hear;
    o.synchronous = o.no_touch_files = true;
    o.retention.keep_last = 2;
    o.no_lock = no_lock;
    o.resume_step = back_to;
    set_step(x, 0, 0);
    x->state = bind_all(&x->t);
    bind_tensor(x->state, "big", NULL, CKPT_ROLE_BUFFER, CKPT_U8, 1, shape, NULL, big);
    ckpt_status status = ckpt_run_open(in_folder("run"), x->state, &o, &x->run, &x->err);
    return status < 0 ? status : ckpt_run_resume(x->run, NULL, &x->done, NULL, &x->err);
}

static ckpt_status save(trainer *x, int64_t step, unsigned seed)
{
    set_step(x, step, seed);
    return ckpt_run_save(x->run, step, &x->err);
}

static void end(trainer *x)
{
    ckpt_error err = CKPT_ERROR_INIT;
    OK(ckpt_run_close(x->run, &err));
    ckpt_state_free(x->state);
}

static bool is_of(const trainer *x, int64_t step, unsigned seed)
{
    return x->t.step == step && x->t.counter == (INT64_C(1) << 60 | seed) && big[0] == seed && big[BIG - 1] == seed;
}

static int names(const char *begin)
{
    int n = 0;
    DIR *d = opendir(in_folder("run"));
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, begin, strlen(begin)) == 0;
    closedir(d);
    return n;
}

/* All that is there now is of a lower layer of overlayfs. */
static void note_lower(void)
{
    struct stat st;
    DIR *d = opendir(in_folder("run"));
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            ck_assert_int_eq(fchmodat(dirfd(d), e->d_name, 01755, 0), 0);
    closedir(d);
}

static void clear(void)
{
    char command[200];
    refuse = (struct refusals){.dies_at = 0};
    changes = 0;
    snprintf(command, sizeof command, "rm -rf '%s'", in_folder("run"));
    ck_assert_int_eq(system(command), 0);
}

#define GOOD(x, call)                                                                                                  \
    do {                                                                                                               \
        ckpt_status s_ = (call);                                                                                       \
        ck_assert_msg(s_ >= 0, "%s: %s: %s", #call, (x)->err.object, (x)->err.message);                                \
    } while (0)

/* Everything that a run does, where what is refused is gone round. */
static void expect_a_whole_life(bool no_lock)
{
    trainer x;
    GOOD(&x, start(&x, no_lock));
    for (int i = 1; i <= 4; i++)
        GOOD(&x, save(&x, i, (unsigned)i));
    GOOD(&x, save(&x, 4, 44));
    ck_assert_uint_eq(heard("prune-failed") + heard("hint-failed") + heard("save-failed"), 0);
    ck_assert_int_eq(names("step-"), 2);
    ck_assert_int_eq(names(".tmp-") + names(".trash-"), 0);
    end(&x);
    GOOD(&x, start(&x, no_lock));
    ck_assert_int_eq(x.done, 4);
    ck_assert(is_of(&x, 4, 44));
    ck_assert_uint_eq(heard("fallback") + heard("recovered"), 0);
    end(&x);
    back_to = 3;
    GOOD(&x, start(&x, no_lock));
    back_to = 0;
    ck_assert_int_eq(x.done, 3);
    ck_assert_uint_eq(heard("kept-aside"), 1);
    ck_assert_int_eq(names("aside-step-"), 1);
    GOOD(&x, save(&x, 4, 45));
    end(&x);
}

static void begin(void)
{
    make_folder();
    big = malloc(BIG);
    clear();
}

static void finish(void)
{
    free(big);
    remove_folder();
}

/* ---- each of them */

START_TEST(directories_that_cannot_be_synced)
{
    static const int errors[] = {EINVAL, ENOSYS, EOPNOTSUPP};
    for (size_t i = 0; i < 3; i++) {
        trainer x;
        clear();
        refuse.sync_directory = errors[i];
        GOOD(&x, start(&x, false));
        ck_assert_uint_eq(heard("no-directory-sync"), 1);
        GOOD(&x, save(&x, 1, 1));
        ck_assert_uint_eq(heard("no-directory-sync"), 1);
        end(&x);
        clear();
        refuse.sync_directory = errors[i];
        expect_a_whole_life(false);
        clear();
        refuse.sync_directory = errors[i];
        refuse.flags = EINVAL;
        expect_a_whole_life(false);
    }
    clear(); /* a disk in trouble is something else */
    trainer x;
    GOOD(&x, start(&x, false));
    ck_assert_uint_eq(heard("no-directory-sync"), 0);
    refuse.sync_directory = EIO;
    ck_assert_int_eq(save(&x, 1, 1), CKPT_E_SYSTEM);
    ck_assert_int_eq(x.err.sys_errno, EIO);
    refuse.sync_directory = 0;
    end(&x);
}
END_TEST

START_TEST(renames_without_flags)
{
    static const int errors[] = {EINVAL, ENOSYS, EOPNOTSUPP};
    for (size_t i = 0; i < 3; i++) {
        clear();
        refuse.flags = errors[i];
        expect_a_whole_life(false);
    }
}
END_TEST

START_TEST(files_without_direct_io_or_reservation)
{
    clear();
    refuse.direct_open = EINVAL;
    expect_a_whole_life(false);
    clear();
    refuse.direct_write = EINVAL;
    expect_a_whole_life(false);
    clear();
    refuse.reserve = EOPNOTSUPP;
    expect_a_whole_life(false);
    clear();
    refuse.reserve = ENOSYS;
    refuse.direct_open = EOPNOTSUPP;
    refuse.mode = EOPNOTSUPP;
    expect_a_whole_life(false);
}
END_TEST

START_TEST(no_locks)
{
    static const int errors[] = {ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL};
    for (size_t i = 0; i < 4; i++) {
        trainer x;
        clear();
        refuse.lock = errors[i];
        ck_assert_int_eq(start(&x, false), CKPT_E_SYSTEM);
        ck_assert_int_eq(x.err.sys_errno, errors[i]);
        ck_assert_ptr_nonnull(strstr(x.err.message, "no_lock"));
        ckpt_state_free(x.state);
        expect_a_whole_life(true);
    }
    /* Lost while the run is under way: a server that has forgotten it. */
    trainer x;
    clear();
    GOOD(&x, start(&x, false));
    GOOD(&x, save(&x, 1, 1));
    refuse.lock = ENOLCK;
    ck_assert_int_eq(save(&x, 2, 2), CKPT_E_SYSTEM);
    ck_assert_int_eq(x.err.sys_errno, ENOLCK);
    refuse.lock = EAGAIN; /* and given to another */
    ck_assert_int_eq(save(&x, 2, 2), CKPT_E_EXISTS);
    refuse.lock = 0;
    GOOD(&x, save(&x, 3, 3));
    ck_assert_int_eq(names("step-"), 2);
    end(&x);
}
END_TEST

/* NFS says at fdatasync or close that what it took before did not arrive. */
START_TEST(errors_that_come_late)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    for (int at_close = 0; at_close < 2; at_close++)
        for (size_t i = 0; i < 3; i++) {
            trainer x;
            clear();
            GOOD(&x, start(&x, false));
            GOOD(&x, save(&x, 1, 1));
            *(at_close ? &refuse.close : &refuse.sync_file) = errors[i];
            ck_assert_int_eq(save(&x, 2, 2), CKPT_E_SYSTEM);
            ck_assert_int_eq(x.err.sys_errno, errors[i]);
            refuse.close = refuse.sync_file = 0;
            ck_assert_int_eq(names("step-"), 1);
            ck_assert_int_eq(names(".tmp-"), 0);
            GOOD(&x, save(&x, 3, 3));
            end(&x);
            GOOD(&x, start(&x, false));
            ck_assert(x.done == 3 && is_of(&x, 3, 3));
            end(&x);
        }
}
END_TEST

START_TEST(links_are_not_needed_for_hints)
{
    refuse.flags = EINVAL;
    refuse.link = EPERM;
    expect_a_whole_life(false);
}
END_TEST

/* ---- directories that cannot be renamed */

static void make_lower(void)
{
    trainer x;
    clear();
    GOOD(&x, start(&x, false));
    for (int i = 1; i <= 3; i++)
        GOOD(&x, save(&x, i, (unsigned)i));
    end(&x);
    note_lower();
}

START_TEST(directories_of_a_lower_layer_are_deleted_where_they_are)
{
    for (int flags = 0; flags < 2; flags++) {
        trainer x;
        make_lower();
        refuse.flags = flags ? EINVAL : 0;
        GOOD(&x, start(&x, false));
        ck_assert_int_eq(x.done, 3);
        GOOD(&x, save(&x, 3, 33)); /* over one that cannot be exchanged, nor moved aside */
        ck_assert_int_eq(names(".tmp-") + names(".trash-"), 0);
        ck_assert_int_eq(names("step-"), 2);
        GOOD(&x, save(&x, 4, 4)); /* 2 goes, which cannot be renamed */
        ck_assert_uint_eq(heard("prune-failed") + heard("hint-failed"), 0);
        ck_assert_int_eq(names("step-"), 2);
        GOOD(&x, save(&x, 5, 5));
        ck_assert_int_eq(names("step-"), 2);
        ck_assert_int_eq(names(".tmp-") + names(".trash-"), 0);
        end(&x);
        GOOD(&x, start(&x, false));
        ck_assert(x.done == 5 && is_of(&x, 5, 5));
        end(&x);
    }
}
END_TEST

/* The process dies at the k-th change of a name while it replaces step 3 and prunes step 2; the next one finds step 3 of before
 * or the new one, step 2 or 4, and leaves nothing of it. */
static bool dies_and_recovers(int k, int flags)
{
    make_lower();
    refuse.flags = flags ? EINVAL : 0;
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        trainer x;
        if (start(&x, false) < 0)
            _exit(1);
        changes = 0;
        refuse.dies_at = k;
        if (save(&x, 3, 33) < 0 || save(&x, 4, 4) < 0)
            _exit(2);
        _exit(0);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 0), "status %d at %d",
                  status, k);
    trainer x;
    GOOD(&x, start(&x, false));
    ck_assert_msg(x.done == 4 ? is_of(&x, 4, 4) : x.done == 3 && (is_of(&x, 3, 3) || is_of(&x, 3, 33)),
                  "step %d, at %d", (int)x.done, k);
    ck_assert_uint_eq(heard("fallback"), 0);
    ck_assert_int_eq(names(".tmp-") + names(".trash-"), 0);
    GOOD(&x, save(&x, 5, 5));
    ck_assert_int_eq(names("step-"), 2);
    ck_assert_uint_eq(heard("prune-failed"), 0);
    end(&x);
    return WEXITSTATUS(status) == 77;
}

START_TEST(a_death_while_they_are_deleted_loses_nothing)
{
    for (int flags = 0; flags < 2; flags++) {
        int k = 1;
        while (dies_and_recovers(k, flags))
            k++;
        ck_assert_int_gt(k, 12);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("refusals");
    TCase *t = tcase_create("refusals");
    tcase_add_checked_fixture(t, begin, finish);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, directories_that_cannot_be_synced);
    tcase_add_test(t, renames_without_flags);
    tcase_add_test(t, files_without_direct_io_or_reservation);
    tcase_add_test(t, no_locks);
    tcase_add_test(t, errors_that_come_late);
    tcase_add_test(t, links_are_not_needed_for_hints);
    tcase_add_test(t, directories_of_a_lower_layer_are_deleted_where_they_are);
    tcase_add_test(t, a_death_while_they_are_deleted_loses_nothing);
    suite_add_tcase(s, t);
    return run_suite(s);
}
