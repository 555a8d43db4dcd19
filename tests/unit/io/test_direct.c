/* Bytes of files that are read past the page cache: the same as through it; and what is left to the other
 * way. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/direct.h"

/* SIZE is no multiple of a block. */
enum { SIZE = (3 << 20) + 1234, FILES = CKPT__DIRECT_FILES + 3, THREADS = 8, PAGE = 4096, CACHESTAT = 451 };

static ckpt_error err;
static ckpt__source *s;
static ckpt__direct *d;
static unsigned char content[SIZE];
static atomic_uint reads, opens;

static atomic_long fail_alloc; /* allocation number so many from now on fails; 0: none */
static bool allocation_fails(void)
{
    return fail_alloc > 0 && atomic_fetch_sub(&fail_alloc, 1) == 1;
}
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(n, size);
}
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return allocation_fails() ? NULL : __real_aligned_alloc(align, size);
}

/* What the kernel does otherwise, and what it says of the page cache: nothing of a file is there, unless HALF. */
static enum { NOTHING, OPENING, ALIGNMENT, NO_DIRECT, OLD, OLD_HALF, HALF, ELSEWHERE, INTERRUPTED, PIECES, BROKEN } now;
long __real_syscall(long number, long a, void *b, void *c, long e, void *f);
long __wrap_syscall(long number, long a, void *b, void *c, long e, void *f);
long __wrap_syscall(long number, long a, void *b, void *c, long e, void *f)
{
    if (number == SYS_statx && now == NO_DIRECT) { /* the file is encrypted */
        memset(f, 0, 160);
        *(uint32_t *)f = 0x2000;
        return 0;
    }
    if (number == SYS_statx || (number == CACHESTAT && (now == OLD || now == OLD_HALF))) {
        errno = ENOSYS; /* and so an alignment of 4096, whatever the disk's is */
        return -1;
    }
    if (number != CACHESTAT)
        return __real_syscall(number, a, b, c, e, f);
    uint64_t length = ((uint64_t *)b)[1];
    *(uint64_t *)c = now == HALF ? length / PAGE / 2 + 1 : length / PAGE / 2;
    return 0;
}
ssize_t __wrap_preadv2(int fd, const void *to, int n, off_t at, int flags);
ssize_t __wrap_preadv2(int fd, const void *to, int n, off_t at, int flags)
{
    (void)fd, (void)to, (void)at;
    ck_assert(n == 1 && flags == 8); /* RWF_NOWAIT */
    errno = EAGAIN;
    return now == OLD_HALF ? 1 : -1;
}
int __real_fstatfs(int fd, struct statfs *f);
int __wrap_fstatfs(int fd, struct statfs *f);
int __wrap_fstatfs(int fd, struct statfs *f)
{
    (void)fd;
    f->f_type = now == ELSEWHERE ? 0x6969 : 0xef53;
    return 0;
}
/* A file system that has no such reads opens without the flag, so that the tests are of what is ours wherever they run. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    if (flags & O_DIRECT) {
        opens++;
        if (now == OPENING) {
            errno = EINVAL;
            return -1;
        }
        int fd = __real_open(path, flags);
        return fd >= 0 ? fd : __real_open(path, flags & ~O_DIRECT);
    }
    return __real_open(path, flags);
}
/* All is in blocks. */
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    unsigned number = ++reads;
    ck_assert_msg((uintptr_t)to % PAGE == 0 && n % PAGE == 0 && at % PAGE == 0, "%p, %zu bytes at %lld", to, n,
                  (long long)at);
    if (now == ALIGNMENT || now == BROKEN || (now == INTERRUPTED && number % 2)) {
        errno = now == ALIGNMENT ? EINVAL : now == BROKEN ? EIO : EINTR;
        return -1;
    }
    n = now == PIECES && n > 2 * PAGE ? n / 2 / PAGE * PAGE : n;
    return __real_pread(fd, to, n, at);
}

static void setup(void)
{
    memset(&err, 0, sizeof err);
    now = NOTHING;
    fail_alloc = 0;
    make_folder();
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (unsigned char)(i * 2654435761U >> 16);
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    for (size_t f = 0; f < FILES; f++) {
        char name[16];
        uint32_t file;
        snprintf(name, sizeof name, "f%zu", f);
        write_to(at("%s", name), content, f < 2 ? SIZE : 2 * PAGE + f);
        ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
    }
    d = ckpt__direct_open(s);
    ck_assert_ptr_nonnull(d);
    reads = opens = 0;
}

static void teardown(void)
{
    now = NOTHING;
    fail_alloc = 0;
    ckpt__direct_close(d);
    d = NULL;
    ckpt__source_close(s);
    remove_folder();
}

static void look_at(uint32_t file, uint64_t offset, size_t n)
{
    const unsigned char *p = ckpt__direct_look(d, file, offset, n);
    ck_assert_msg(p && memcmp(p, content + offset, n) == 0, "%zu bytes from %llu", n, (unsigned long long)offset);
    ckpt__direct_leave(d, p);
}

static bool is_left(uint32_t file, uint64_t offset, size_t n)
{
    return !ckpt__direct_look(d, file, offset, n);
}

START_TEST(any_bytes)
{
    enum { MOST = CKPT__DIRECT_MOST };
    static const uint64_t offsets[] = {0, 1, 64, 512, 3096, PAGE - 1, PAGE, 3 * PAGE + 512};
    static const size_t sizes[] = {1, 511, PAGE, PAGE + 1, 128 << 10, (132 << 10) + 7, (1 << 20) - 1, MOST - PAGE};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
        for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
            look_at(1, offsets[o], sizes[n]);
        look_at(0, offsets[o], MOST - offsets[o] % PAGE);
        ck_assert(is_left(0, offsets[o], MOST - offsets[o] % PAGE + 1));
    }
    look_at(1, SIZE - 1, 1);
    look_at(1, SIZE - (1 << 20), 1 << 20);
    ck_assert(is_left(0, SIZE, 1) && is_left(0, SIZE - 1, 2) && is_left(0, UINT64_MAX, 2) && is_left(0, 0, 0) &&
              is_left(FILES, 0, 1));
    ck_assert_ptr_null(ckpt__direct_look(NULL, 0, 0, 1));
    ckpt__direct_close(NULL);
    reads = 0;
    look_at(0, 100, 1 << 20);
    ck_assert_uint_eq(reads, 1);
    const unsigned char *one = ckpt__direct_look(d, 0, 100, 1 << 20), *two = ckpt__direct_look(d, 1, 7, 1 << 20);
    ck_assert(one && two && memcmp(one, content + 100, 1 << 20) == 0 && memcmp(two, content + 7, 1 << 20) == 0);
    ckpt__direct_leave(d, one);
    ckpt__direct_leave(d, two);
}
END_TEST

/* Somebody else who reads it so: both go through the page cache then, and the disk is read once for both. */
START_TEST(while_another_reads_it)
{
    ckpt__direct *other = ckpt__direct_open(s);
    ck_assert_ptr_nonnull(other);
    look_at(0, PAGE, 1 << 20);
    ck_assert(!ckpt__direct_look(other, 0, PAGE, PAGE));
    ck_assert(is_left(0, PAGE, 1 << 20));
    look_at(1, PAGE, 1 << 20);
    ckpt__direct_close(other);
    look_at(0, PAGE, 1 << 20);
    other = ckpt__direct_open(s);
    ck_assert(!ckpt__direct_look(other, 0, PAGE, PAGE));
    ckpt__direct_close(d);
    d = other;
    look_at(0, PAGE, 1 << 20);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(at("f2"), O_RDWR); /* of a program that has locked all of it, and of one that wants to meanwhile */
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &all), 0);
    ck_assert(is_left(2, 0, PAGE));
    close(fd);
    ck_assert(is_left(2, 0, PAGE));
    fd = open(at("f1"), O_RDWR);
    ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = SIZE}),
                     0);
    look_at(1, PAGE, 1 << 20);
    close(fd);
}
END_TEST

START_TEST(what_the_kernel_does)
{
    now = INTERRUPTED;
    look_at(0, 100, 1 << 20);
    now = PIECES;
    look_at(0, 100, 1 << 20);
    look_at(0, 100, 1 << 20);
    now = OLD;
    look_at(0, PAGE, 1 << 20);
    now = OLD_HALF;
    ck_assert(is_left(0, PAGE, 1 << 20));
}
END_TEST

START_TEST(what_is_cached_is_left)
{
    now = HALF;
    ck_assert(is_left(0, PAGE, 1 << 20));
    ck_assert_uint_eq(reads, 0);
    now = NOTHING;
    look_at(0, PAGE, 1 << 20);
}
END_TEST

/* A file that cannot be read so is not tried again. */
START_TEST(what_is_refused)
{
    now = OPENING;
    ck_assert(is_left(0, 0, PAGE));
    now = ALIGNMENT;
    ck_assert(is_left(1, 0, PAGE));
    now = NO_DIRECT;
    ck_assert(is_left(2, 0, PAGE));
    now = ELSEWHERE;
    ck_assert(is_left(3, 0, PAGE));
    ck_assert_uint_eq(opens, 2);
    now = NOTHING;
    reads = 0;
    for (uint32_t f = 0; f < 4; f++)
        ck_assert(is_left(f, 0, PAGE));
    ck_assert_uint_eq(opens, 2);
    ck_assert_uint_eq(reads, 0);
    look_at(4, 0, PAGE);
    now = BROKEN; /* a bad sector is not one of another */
    ck_assert(is_left(4, 0, PAGE));
    now = NOTHING;
    look_at(4, 0, PAGE);
}
END_TEST

START_TEST(a_file_that_is_cut)
{
    look_at(0, PAGE, 1 << 20);
    ck_assert_int_eq(truncate(at("f0"), (1 << 20) + 700), 0);
    ck_assert(is_left(0, PAGE, 1 << 20));
    ck_assert(is_left(0, PAGE + 1, 1 << 20));
    ck_assert(is_left(0, (1 << 20) + 699, 2));
    ck_assert(is_left(0, 2 << 20, 1));
    look_at(0, (1 << 20) - 10, 710);
}
END_TEST

static void *read_all(void *arg)
{
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t f = i % FILES;
        uint64_t offset = i * 7 % 5000;
        size_t n = f < 2 ? 200000 : 2 * PAGE + f - offset;
        const unsigned char *p = ckpt__direct_look(d, f, offset, n);
        if (!p || memcmp(p, content + offset, n) != 0)
            return arg;
        ckpt__direct_leave(d, p);
    }
    return NULL;
}

/* More files than are open at a time, from eight threads. */
START_TEST(by_threads)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, d), 0);
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        ck_assert_ptr_null(wrong);
    }
}
END_TEST

START_TEST(without_memory)
{
    for (long n = 1; n <= 2; n++) {
        fail_alloc = n;
        ck_assert_ptr_null(ckpt__direct_open(s));
    }
    fail_alloc = 1;
    ck_assert(is_left(0, 1, 10));
    fail_alloc = 0;
    look_at(0, 1, 10);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("direct");
    TCase *t = tcase_create("direct");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 0);
    tcase_add_test(t, any_bytes);
    tcase_add_test(t, while_another_reads_it);
    tcase_add_test(t, what_the_kernel_does);
    tcase_add_test(t, what_is_cached_is_left);
    tcase_add_test(t, what_is_refused);
    tcase_add_test(t, a_file_that_is_cut);
    tcase_add_test(t, by_threads);
    tcase_add_test(t, without_memory);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
