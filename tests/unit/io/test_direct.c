/* Files that are read past the page cache: what is not in it, in any place and size, and what is left to an ordinary read. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/direct.h"

enum { SIZE = (3 << 20) + 1234, FILES = 2, THREADS = 8, UNIT = CKPT__DIRECT_UNIT };

static ckpt_error err;
static ckpt__source *s;
static ckpt__direct *d;
static unsigned char content[SIZE], *buffer;

static long fail_alloc; /* calloc number so many from now on fails; 0: none */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return fail_alloc && --fail_alloc == 0 ? NULL : __real_calloc(n, size);
}

static enum { NOTHING, CACHESTAT, READING, SHORT } refused;
static int refused_errno; /* of READING */
static atomic_int reads;
long __real_syscall(long number, long a, void *b, void *e, long f);
long __wrap_syscall(long number, long a, void *b, void *e, long f);
long __wrap_syscall(long number, long a, void *b, void *e, long f)
{
    if (refused == CACHESTAT) {
        errno = ENOSYS;
        return -1;
    }
    return __real_syscall(number, a, b, e, f);
}
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at)
{
    reads++;
    if (refused == READING) {
        errno = refused_errno;
        return -1;
    }
    return __real_pread(fd, to, refused == SHORT && n > UNIT ? UNIT : n, at);
}

static void make_cold(uint32_t file)
{
    int fd = open(at("f%zu", (size_t)file), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fsync(fd), 0);
    ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static void make_warm(uint32_t file)
{
    static unsigned char all[SIZE];
    int fd = open(at("f%zu", (size_t)file), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(__real_pread(fd, all, SIZE, 0), SIZE);
    close(fd);
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
        make_cold((uint32_t)f);
    }
    ck_assert_ptr_nonnull(buffer = aligned_alloc(UNIT, SIZE / UNIT * UNIT + 3 * UNIT));
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    for (size_t f = 0; f < FILES; f++) {
        char name[16];
        uint32_t file;
        snprintf(name, sizeof name, "f%zu", f);
        ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
    }
    ck_assert_ptr_nonnull(d = ckpt__direct_open(s));
}

static void teardown(void)
{
    refused = NOTHING;
    ckpt__direct_close(d);
    ckpt__source_close(s);
    free(buffer);
    remove_folder();
}

/* Where the folder of the test lies on a file system that has no such reads, or the kernel cannot tell what is cached, nothing is read so. */
static bool reads_here(void)
{
    bool is = ckpt__direct_read(d, 0, 0, 1, buffer) != NULL;
    if (!is)
        printf("# skipped: no file of %s is read past the page cache\n", folder);
    return is;
}

static void read_at(uint32_t file, uint64_t offset, size_t n)
{
    memset(buffer, 0x5a, n + 2 * (size_t)UNIT);
    const unsigned char *p = ckpt__direct_read(d, file, offset, n, buffer);
    ck_assert_msg(p != NULL, "%zu bytes at %llu", n, (unsigned long long)offset);
    ck_assert(p >= buffer && p < buffer + UNIT);
    ck_assert_int_eq(memcmp(p, content + offset, n), 0);
}

START_TEST(any_place)
{
    if (!reads_here())
        return;
    read_at(0, 0, SIZE);
    for (size_t i = 1; i < 12000; i += 811)
        read_at((uint32_t)(i % FILES), i * 250, i);
    read_at(1, SIZE - 1, 1);
    read_at(1, SIZE - 5000, 5000);
    read_at(1, UNIT, UNIT);
    read_at(1, UNIT - 1, 2);
    refused = SHORT; /* the kernel gives less than was asked for */
    read_at(0, 77, 70000);
    read_at(0, SIZE - 70000, 70000);
    refused = NOTHING;
    ck_assert_ptr_null(ckpt__direct_read(d, 0, SIZE, 1, buffer));
    ck_assert_ptr_null(ckpt__direct_read(d, 0, SIZE - 1, 2, buffer));
    ck_assert_ptr_null(ckpt__direct_read(d, 0, UINT64_MAX, 2, buffer));
    ck_assert_ptr_null(ckpt__direct_read(d, 0, 0, 0, buffer));
    ck_assert_ptr_null(ckpt__direct_read(NULL, 0, 0, 1, buffer));
    ck_assert(ckpt__direct_is_cold(s)); /* nothing of all that has stayed */
}
END_TEST

START_TEST(what_is_cached)
{
    if (!reads_here())
        return;
    make_warm(1);
    ck_assert_ptr_null(ckpt__direct_read(d, 1, 0, SIZE, buffer));
    ck_assert_ptr_null(ckpt__direct_read(d, 1, 5000, 1, buffer));
    read_at(0, 0, SIZE);
    ck_assert(!ckpt__direct_is_cold(s)); /* a half of it is there */
    make_cold(1);
    ck_assert(ckpt__direct_is_cold(s));
    ck_assert_ptr_null(ckpt__direct_read(d, 1, 0, SIZE, buffer)); /* it was asked for when it was there */
    make_warm(0);
    read_at(0, 0, SIZE); /* and this one when it was not */
}
END_TEST

/* Bytes that were written, and are not on the disk yet. */
START_TEST(what_is_dirty)
{
    if (!reads_here())
        return;
    int fd = open(at("f%zu", (size_t)1), O_WRONLY);
    ck_assert_int_ge(fd, 0);
    memset(content + 300000, 0x77, 1000);
    ck_assert_int_eq(pwrite(fd, content + 300000, 1000, 300000), 1000);
    close(fd);
    read_at(1, 0, SIZE);
}
END_TEST

START_TEST(what_fails)
{
    static const int with[] = {EIO, EINVAL};
    if (!reads_here())
        return;
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        refused = READING;
        refused_errno = with[i];
        ck_assert_ptr_null(ckpt__direct_read(d, 1, 0, SIZE, buffer));
        refused = NOTHING;
        reads = 0;
        if (with[i] == EINVAL) { /* the file has no such reads: none is tried again */
            ck_assert_ptr_null(ckpt__direct_read(d, 1, 0, SIZE, buffer));
            ck_assert_int_eq(reads, 0);
        } else
            read_at(1, 0, SIZE);
    }
    read_at(0, 0, SIZE);
    ck_assert_int_eq(truncate(at("f%zu", (size_t)0), 100000), 0);
    make_cold(0);
    ck_assert_ptr_null(ckpt__direct_read(d, 0, 0, SIZE, buffer));
    ck_assert_ptr_null(ckpt__direct_read(d, 0, 99999, 2, buffer));
    unsigned char byte; /* an ordinary read says it */
    ck_assert_int_eq(ckpt__source_read(s, 0, SIZE - 1, &byte, 1, &err), CKPT_E_DAMAGED);
}
END_TEST

START_TEST(what_the_kernel_cannot_tell)
{
    if (!reads_here())
        return;
    refused = CACHESTAT;
    ck_assert(!ckpt__direct_is_cold(s));
    ck_assert_ptr_null(ckpt__direct_read(d, 1, 0, SIZE, buffer));
    refused = NOTHING;
    for (long i = 1; i <= 2; i++) {
        fail_alloc = i;
        ck_assert_ptr_null(ckpt__direct_open(s));
        ck_assert_int_eq(fail_alloc, 0);
    }
    ckpt__direct_close(NULL);
}
END_TEST

static void *read_on(void *arg)
{
    size_t k = (size_t)(uintptr_t)arg;
    unsigned char *own = aligned_alloc(UNIT, 32 * UNIT);
    for (int i = 0; own && i < 100; i++) {
        uint64_t offset = (k * 7919 + (size_t)i * 104729) % (SIZE - 70000);
        size_t n = 1 + (k * 31 + (size_t)i * 977) % 70000;
        const unsigned char *p = ckpt__direct_read(d, (uint32_t)((k + (size_t)i) % FILES), offset, n, own);
        if (!p || memcmp(p, content + offset, n) != 0) {
            free(own);
            return (void *)1;
        }
    }
    free(own);
    return own ? NULL : (void *)1;
}

START_TEST(threads)
{
    pthread_t t[THREADS];
    if (!reads_here())
        return;
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, read_on, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++) {
        void *failed;
        ck_assert_int_eq(pthread_join(t[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("direct");
    TCase *t = tcase_create("direct");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, any_place);
    tcase_add_test(t, what_is_cached);
    tcase_add_test(t, what_is_dirty);
    tcase_add_test(t, what_fails);
    tcase_add_test(t, what_the_kernel_cannot_tell);
    tcase_add_test(t, threads);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
