/* Files that are looked at where the page cache has them: what may be mapped, and what becomes of whoever wants to write or to cut a file
 * meanwhile. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../folder_files.h"
#include "../mapped_files.h"
#include "io/cached.h"

enum { SIZE = 3 << 20, FILES = 3, THREADS = 8 };

static ckpt_error err;
static ckpt__source *s;
static ckpt__cached *c;
static unsigned char content[SIZE];
static atomic_int signals; /* of those that a lease may send */

static long fail_alloc; /* calloc number so many from now on fails; 0: none */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return fail_alloc && --fail_alloc == 0 ? NULL : __real_calloc(n, size);
}

/* The kernel refuses what `refused` names. */
static enum { NOTHING, LEASE, OWNER, CACHESTAT, POPULATE, MAPPING, SYSTEM, ELSEWHERE } refused;
int __real_fcntl(int fd, int what, long value);
int __wrap_fcntl(int fd, int what, long value);
int __wrap_fcntl(int fd, int what, long value)
{
    if ((refused == LEASE && what == F_SETLEASE && value == F_RDLCK) || (refused == OWNER && what == F_SETOWN)) {
        errno = EACCES;
        return -1;
    }
    return __real_fcntl(fd, what, value);
}
long __real_syscall(long number, long a, void *b, void *d, long e);
long __wrap_syscall(long number, long a, void *b, void *d, long e);
long __wrap_syscall(long number, long a, void *b, void *d, long e)
{
    if (refused == CACHESTAT) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, d, e);
}
int __real_madvise(void *p, size_t n, int advice);
int __wrap_madvise(void *p, size_t n, int advice);
int __wrap_madvise(void *p, size_t n, int advice)
{
    if (refused == POPULATE && advice == 22) {
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(p, n, advice);
}
void *__real_mmap(void *p, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *p, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *p, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (refused == MAPPING && fd >= 0) {
        errno = ENOMEM;
        return (void *)-1;
    }
    return __real_mmap(p, n, protection, flags, fd, offset);
}

int __real_fstatfs(int fd, struct statfs *f);
int __wrap_fstatfs(int fd, struct statfs *f);
int __wrap_fstatfs(int fd, struct statfs *f)
{
    int result = refused == SYSTEM ? -1 : __real_fstatfs(fd, f);
    if (refused == ELSEWHERE)
        f->f_type = 0x6969; /* NFS: another machine may cut the file */
    return result;
}

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void setup(void)
{
    memset(&err, 0, sizeof err);
    refused = NOTHING;
    make_folder();
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (unsigned char)(i * 2654435761U >> 16);
    for (size_t f = 0; f < FILES; f++) {
        FILE *file = fopen(at("f%zu", f), "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(content, 1, SIZE, file), SIZE);
        ck_assert_int_eq(fclose(file), 0);
    }
    signals = 0;
    signal(SIGIO, count_signal);
    signal(SIGURG, count_signal);
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    for (size_t f = 0; f < FILES; f++) {
        char name[16];
        uint32_t file;
        snprintf(name, sizeof name, "f%zu", f);
        ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
    }
    c = ckpt__cached_open(s);
}

static void teardown(void)
{
    refused = NOTHING;
    ckpt__cached_close(c);
    ckpt__source_close(s);
    signal(SIGIO, SIG_DFL);
    signal(SIGURG, SIG_DFL);
    remove_folder();
}

static bool maps_here(void)
{
    bool is = files_are_mapped(at("f%zu", (size_t)0));
    ck_assert(!is || c);
    return is;
}

static void look_at(uint32_t file, uint64_t offset, size_t n)
{
    const unsigned char *p = ckpt__cached_look(c, file, offset, n);
    ck_assert_ptr_nonnull(p);
    ck_assert_int_eq(memcmp(p, content + offset, n), 0);
    ckpt__cached_leave(c, file, offset, n);
}

START_TEST(what_it_gives)
{
    if (!maps_here())
        return;
    look_at(0, 0, SIZE);
    for (size_t i = 1; i < 9000; i += 811)
        look_at((uint32_t)(i % FILES), i * 300, i);
    look_at(1, SIZE - 1, 1);
    ck_assert_ptr_null(ckpt__cached_look(c, 0, SIZE, 1));
    ck_assert_ptr_null(ckpt__cached_look(c, 0, SIZE - 1, 2));
    ck_assert_ptr_null(ckpt__cached_look(c, 0, UINT64_MAX, 2));
    ck_assert_ptr_null(ckpt__cached_look(c, 0, 0, 0));
    ck_assert_ptr_null(ckpt__cached_look(NULL, 0, 0, 1));
}
END_TEST

/* The process that is to be made to wait: it opens the file to write, or cuts it by name, and says when it has. */
static pid_t child_that(bool cuts, uint32_t file, int ends[2])
{
    char path[128];
    snprintf(path, sizeof path, "%s", at("f%zu", (size_t)file));
    ck_assert_int_eq(pipe(ends), 0);
    fflush(NULL);
    pid_t pid = fork(); /* beside threads that may hold Check's lock: the child asserts nothing */
    if (pid == 0) {
        bool done = write(ends[1], "b", 1) == 1 && (cuts ? truncate(path, 100) == 0 : open(path, O_WRONLY) >= 0);
        _exit(done && write(ends[1], "e", 1) == 1 ? 0 : 1);
    }
    ck_assert_int_ge(pid, 0);
    close(ends[1]);
    char begun = 0;
    ck_assert_int_eq(read(ends[0], &begun, 1), 1);
    return pid;
}

static bool has_ended(int end, int milliseconds)
{
    char e = 0;
    fcntl(end, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < milliseconds && e != 'e'; i++)
        if (read(end, &e, 1) != 1)
            usleep(1000);
    return e == 'e';
}

/* Until somebody waits for it: the kernel says so. */
static void wait_for_break(uint32_t file)
{
    for (int i = 0; i < 10000; i++) {
        const unsigned char *p = ckpt__cached_look(c, file, 0, 1);
        if (!p)
            return;
        ckpt__cached_leave(c, file, 0, 1);
        usleep(1000);
    }
    ck_abort_msg("the one who waits was not noticed");
}

static void somebody_waits(bool cuts)
{
    int ends[2], status;
    if (!maps_here())
        return;
    const unsigned char *p = ckpt__cached_look(c, 1, 0, SIZE);
    ck_assert_ptr_nonnull(p);
    pid_t pid = child_that(cuts, 1, ends);
    wait_for_break(1);
    ck_assert(!has_ended(ends[0], 50)); /* the look is not over */
    ck_assert_int_eq(memcmp(p, content, SIZE), 0);
    ckpt__cached_leave(c, 1, 0, SIZE);
    ck_assert(has_ended(ends[0], 10000));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    ck_assert_ptr_null(ckpt__cached_look(c, 1, 0, 1)); /* it is read now, and that says what is wrong with it */
    unsigned char byte;
    ck_assert_int_eq(ckpt__source_read(s, 1, SIZE - 1, &byte, 1, &err), cuts ? CKPT_E_DAMAGED : CKPT_OK);
    look_at(0, 0, SIZE);
    ck_assert_int_eq(signals, 0);
}

START_TEST(a_writer_waits)
{
    somebody_waits(false);
}
END_TEST

START_TEST(who_cuts_waits)
{
    somebody_waits(true);
}
END_TEST

START_TEST(what_is_open_for_writing)
{
    if (!maps_here())
        return;
    int fd = open(at("f%zu", (size_t)1), O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_ptr_null(ckpt__cached_look(c, 1, 0, 1));
    close(fd);
    ck_assert_ptr_null(ckpt__cached_look(c, 1, 0, 1)); /* it was asked for once */
    ck_assert_int_eq(truncate(at("f%zu", (size_t)2), 4096), 0);
    ck_assert_ptr_null(ckpt__cached_look(c, 2, 0, 1));
    ck_assert_int_eq(open(at("f%zu", (size_t)2), O_WRONLY | O_NONBLOCK) >= 0, true); /* no lease is left */
}
END_TEST

START_TEST(what_is_not_cached)
{
    if (!maps_here())
        return;
    int fd = open(at("f%zu", (size_t)2), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    for (int by_mincore = 0; by_mincore < 2; by_mincore++) {
        refused = by_mincore ? CACHESTAT : NOTHING;
        look_at(2, 0, SIZE);
        ck_assert_int_eq(fsync(fd), 0);
        ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        unsigned char first;
        ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
        ck_assert_int_eq(pread(fd, &first, 1, 0), 1);
        ck_assert_ptr_null(ckpt__cached_look(c, 2, 0, SIZE));
        look_at(2, 0, 1); /* this page is */
        static unsigned char all[SIZE];
        ck_assert_int_eq(pread(fd, all, SIZE, 0), SIZE);
        look_at(2, 0, SIZE);
    }
    close(fd);
}
END_TEST

START_TEST(what_the_kernel_refuses)
{
    static const int each[] = {LEASE, OWNER, POPULATE, MAPPING, SYSTEM, ELSEWHERE};
    if (!maps_here())
        return;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        ckpt__cached_close(c);
        refused = NOTHING;
        ck_assert_ptr_nonnull(c = ckpt__cached_open(s));
        refused = each[i];
        ck_assert_ptr_null(ckpt__cached_look(c, 1, 0, SIZE));
        refused = NOTHING;
        look_at(0, 0, SIZE);
        if (each[i] == POPULATE) /* it stays mapped, for the next look */
            continue;
        int fd = open(at("f%zu", (size_t)1), O_WRONLY | O_NONBLOCK);
        ck_assert_int_ge(fd, 0); /* no lease is left */
        close(fd);
    }
}
END_TEST

START_TEST(no_memory)
{
    if (!maps_here())
        return;
    for (long i = 1; i <= 2; i++) {
        fail_alloc = i;
        ck_assert_ptr_null(ckpt__cached_open(s));
        ck_assert_int_eq(fail_alloc, 0);
    }
    ckpt__cached_close(NULL);
}
END_TEST

static atomic_int looked;

static void *look_on(void *arg)
{
    size_t k = (size_t)(uintptr_t)arg;
    for (int i = 0; i < 400; i++) {
        uint64_t offset = (k * 7919 + (size_t)i * 104729) % (SIZE - 70000);
        size_t n = 1 + (k * 31 + (size_t)i * 977) % 70000;
        uint32_t file = (uint32_t)((k + (size_t)i) % FILES);
        const unsigned char *p = ckpt__cached_look(c, file, offset, n);
        if (!p)
            continue;
        ck_assert_int_eq(memcmp(p, content + offset, n), 0);
        ckpt__cached_leave(c, file, offset, n);
        looked++;
    }
    return NULL;
}

START_TEST(threads)
{
    pthread_t t[THREADS];
    int ends[2], status;
    if (!maps_here())
        return;
    looked = 0;
    signal(SIGURG, SIG_DFL);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, look_on, (void *)(uintptr_t)i), 0);
    pid_t pid = child_that(true, 1, ends);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(t[i], NULL), 0);
    wait_for_break(1);
    ck_assert(has_ended(ends[0], 10000));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    ck_assert_int_gt(looked, THREADS * 400 / FILES); /* of the files that nobody cuts, each time */
    ck_assert_int_eq(signals,
                     0); /* SIGURG may come: who cuts may meet a lease in the moment that io/cached.h speaks of */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cached");
    TCase *t = tcase_create("cached");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, what_it_gives);
    tcase_add_test(t, a_writer_waits);
    tcase_add_test(t, who_cuts_waits);
    tcase_add_test(t, what_is_open_for_writing);
    tcase_add_test(t, what_is_not_cached);
    tcase_add_test(t, what_the_kernel_refuses);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, threads);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
