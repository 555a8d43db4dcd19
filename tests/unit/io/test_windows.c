/* Files that pass and are read past the page cache: the bytes are those of the file, whatever is read ahead, refused or given up, and nothing is
 * left behind. ckpt__direct_look is a stand-in that reads through the cache, so that all of it runs on any file system. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/direct.h"
#include "io/windows.h"

enum { LARGE = 66 << 20, WINDOW = 2 << 20, MANY = 64 << 20 }; /* bytes */

static ckpt_error err;
static ckpt__source *s;
static char buffer[9 << 20], path[200];
static atomic_int live, looks, refusals,
    wrong; /* windows that somebody has; how often one was asked for; the next so many are refused; of what is no window */
static atomic_bool no_threads;

static uint64_t word_at(uint64_t offset)
{
    return (offset / 8 + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void fill(void *to, uint64_t offset, size_t n)
{
    unsigned char *p = to;
    for (size_t i = 0; i < n; i++) {
        uint64_t word = word_at(offset + i);
        p[i] = (unsigned char)(word >> 8 * ((offset + i) % 8));
    }
}

/* The n bytes are those of the file at the offset. */
static void compare(const void *window, uint64_t offset, size_t n)
{
    static unsigned char wanted[sizeof buffer];
    fill(wanted, offset, n);
    ck_assert_msg(memcmp(window, wanted, n) == 0, "%zu bytes at %llu are others", n, (unsigned long long)offset);
}

ckpt__direct *__wrap_ckpt__direct_open(const ckpt__source *of);
ckpt__direct *__wrap_ckpt__direct_open(const ckpt__source *of)
{
    return (ckpt__direct *)(uintptr_t)of;
}
void __wrap_ckpt__direct_close(ckpt__direct *d);
void __wrap_ckpt__direct_close(ckpt__direct *d)
{
    (void)d;
}
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n);
const unsigned char *__wrap_ckpt__direct_look(ckpt__direct *d, uint32_t file, uint64_t offset, size_t n)
{
    (void)d;
    looks++;
    if (file != 0 || n == 0 || n > WINDOW || offset + n > LARGE)
        wrong++;
    if (atomic_fetch_sub(&refusals, 1) > 0)
        return NULL;
    refusals = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *window = malloc(n);
    bool there = fd >= 0 && window && pread(fd, window, n, (off_t)offset) == (ssize_t)n;
    if (fd >= 0)
        close(fd);
    live += there;
    if (!there)
        free(window);
    return there ? window : NULL;
}
void __wrap_ckpt__direct_leave(ckpt__direct *d, const unsigned char *window);
void __wrap_ckpt__direct_leave(ckpt__direct *d, const unsigned char *window)
{
    (void)d;
    live--;
    free((void *)(uintptr_t)window);
}
/* Nothing is in the page cache. */
ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t offset, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t offset, int flags)
{
    (void)fd, (void)to, (void)n, (void)offset, (void)flags;
    errno = EAGAIN;
    return -1;
}
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*start)(void *), void *arg)
{
    return no_threads ? EAGAIN : __real_pthread_create(t, a, start, arg);
}

static void setup(void)
{
    make_folder();
    snprintf(path, sizeof path, "%s", at("large"));
    err = (ckpt_error)CKPT_ERROR_INIT;
    live = looks = refusals = wrong = 0;
    no_threads = false;
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    for (uint64_t offset = 0; offset < LARGE; offset += WINDOW) {
        fill(buffer, offset, WINDOW);
        ck_assert_uint_eq(fwrite(buffer, WINDOW, 1, f), 1);
    }
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(ckpt__source_open(path, &s, &err), CKPT_OK);
}

static void teardown(void)
{
    ckpt__source_close(s);
    s = NULL;
    ck_assert_int_eq(live, 0);
    ck_assert_int_eq(wrong, 0);
    remove_folder();
}

static void read_at(uint64_t offset, size_t n)
{
    memset(buffer, 0, n);
    ck_assert_int_eq(ckpt__source_read(s, 0, offset, buffer, n, &err), CKPT_OK);
    compare(buffer, offset, n);
}

/* ---- windows alone */

START_TEST(little_memory_is_for_none)
{
    ck_assert_ptr_null(ckpt__windows_open(s, 0));
    ck_assert_ptr_null(ckpt__windows_open(s, 4 * WINDOW - 1));
    ckpt__windows *w = ckpt__windows_open(s, 4 * WINDOW);
    ck_assert_ptr_nonnull(w);
    const unsigned char *a = ckpt__window_read(w, 0, 0, WINDOW), *b = ckpt__window_read(w, 0, WINDOW, 5000);
    compare(a, 0, WINDOW);
    compare(b, WINDOW, 5000);
    ck_assert_ptr_null(ckpt__window_read(w, 0, 2 * WINDOW, WINDOW)); /* two are held */
    ckpt__window_leave(w, a);
    ckpt__window_leave(w, NULL);
    ck_assert_ptr_nonnull(a = ckpt__window_read(w, 0, 2 * WINDOW, WINDOW));
    ckpt__window_leave(w, a);
    ckpt__window_leave(w, b);
    ckpt__windows_close(w);
    ckpt__windows_close(NULL);
}
END_TEST

START_TEST(what_was_asked_for_is_read_once)
{
    ckpt__windows *w = ckpt__windows_open(s, MANY);
    for (uint64_t i = 0; i < 8; i++) {
        ckpt__window_ask(w, 0, i * WINDOW, WINDOW);
        ckpt__window_ask(w, 0, i * WINDOW, WINDOW); /* it is already */
    }
    char some[100000];
    ck_assert_uint_eq(ckpt__window_peek(w, 0, 3 * WINDOW - 50000, some, sizeof some), sizeof some); /* in two */
    compare(some, 3 * WINDOW - 50000, sizeof some);
    ck_assert_uint_eq(ckpt__window_peek(w, 0, 8 * WINDOW - 10, some, sizeof some), 10); /* nobody asked for the rest */
    ck_assert_uint_eq(ckpt__window_peek(w, 0, 8 * WINDOW, some, sizeof some), 0);
    for (uint64_t i = 0; i < 8; i++) {
        const unsigned char *window = ckpt__window_read(w, 0, i * WINDOW, WINDOW);
        compare(window, i * WINDOW, WINDOW);
        ckpt__window_leave(w, window);
    }
    ck_assert_int_eq(looks, 8);
    ckpt__windows_close(w);
}
END_TEST

/* Two hundred that nobody takes: never more are kept than there may be, and one that is wanted is to be had at any time. */
START_TEST(what_nobody_takes_is_given_up)
{
    ckpt__windows *w = ckpt__windows_open(s, 12 * WINDOW); /* six of each */
    for (uint64_t i = 0; i < 200; i++) {
        ckpt__window_ask(w, 0, i * 4096, WINDOW);
        ck_assert_int_le(live, 6);
    }
    const unsigned char *window = ckpt__window_read(w, 0, 12345, WINDOW);
    compare(window, 12345, WINDOW);
    ckpt__window_leave(w, window);
    ckpt__windows_close(w); /* while some are asked for, or read */
    ck_assert_int_eq(live, 0);
}
END_TEST

START_TEST(no_thread_and_no_window)
{
    no_threads = true;
    ckpt__windows *w = ckpt__windows_open(s, MANY);
    ckpt__window_ask(w, 0, 0, WINDOW);
    ck_assert_int_eq(looks, 0);
    const unsigned char *window = ckpt__window_read(w, 0, 0, WINDOW);
    compare(window, 0, WINDOW);
    ckpt__window_leave(w, window);
    no_threads = false;
    refusals = 2;
    ckpt__window_ask(w, 0, WINDOW, WINDOW);
    ck_assert_ptr_null(ckpt__window_read(w, 0, WINDOW, WINDOW)); /* what the thread was refused */
    char byte;
    ckpt__window_ask(w, 0, WINDOW, WINDOW);
    ck_assert_uint_eq(ckpt__window_peek(w, 0, WINDOW, &byte, 1), 0);
    ckpt__windows_close(w);
}
END_TEST

/* ---- a source that passes */

START_TEST(all_of_it_in_order)
{
    ckpt__source_pass(s, false, MANY);
    for (uint64_t at = 0, n; at < LARGE; at += n) {
        n = at % 777 + 300000;
        n = LARGE - at < n ? LARGE - at : n;
        read_at(at, (size_t)n);
    }
    ck_assert_int_ge(looks, LARGE / WINDOW);
    ck_assert_int_le(looks, LARGE / WINDOW + 2); /* nothing twice */
}
END_TEST

/* Records of which the beginning and the end are looked at before all of them is read, in several places by turns. */
START_TEST(records_by_turns)
{
    enum { RECORD = 3 << 20, PLACES = 3, EACH = 7 };
    ckpt__source_pass(s, false, MANY);
    for (uint64_t i = 0; i < EACH; i++)
        for (uint64_t place = 0; place < PLACES; place++) {
            const uint64_t begin = place * EACH * RECORD + i * RECORD;
            read_at(begin, 512);
            read_at(begin + RECORD - (66 << 10), 66 << 10);
            read_at(begin, RECORD);
        }
    ck_assert_int_gt(looks, 0);
}
END_TEST

START_TEST(any_bytes_in_any_order)
{
    uint32_t r = 1;
    ckpt__source_pass(s, false, MANY);
    for (int i = 0; i < 400; i++) {
        r = r * 1664525u + 1013904223u;
        const uint64_t offset = (uint64_t)(r >> 4) % (LARGE - 1);
        r = r * 1664525u + 1013904223u;
        size_t n = 1 + (r >> 8) % (i % 7 == 0 ? sizeof buffer : 200000);
        n = LARGE - offset < n ? (size_t)(LARGE - offset) : n;
        read_at(offset, n);
        if (i % 3 == 0 && offset + n < LARGE) /* and on */
            read_at(offset + n, LARGE - offset - n < 400000 ? (size_t)(LARGE - offset - n) : 400000);
    }
    ck_assert_int_gt(looks, 0);
}
END_TEST

/* Little of a file, here and there: no window is read for it. */
START_TEST(few_bytes_far_apart)
{
    ckpt__source_pass(s, false, MANY);
    for (uint64_t at = 0; at + (200 << 10) < LARGE; at += 5 << 20)
        read_at(at, 200 << 10);
    ck_assert_int_eq(looks, 0);
    read_at(40 << 20, WINDOW);
    ck_assert_int_gt(looks, 0);
}
END_TEST

START_TEST(refused_is_read_otherwise)
{
    refusals = 3;
    ckpt__source_pass(s, false, MANY);
    for (uint64_t at = 0; at < LARGE / 2; at += WINDOW)
        read_at(at, WINDOW);
    ck_assert_int_gt(live, 0);
    refusals = 1000;
    for (uint64_t at = LARGE / 2; at < LARGE; at += 1 << 18)
        read_at(at, 1 << 18);
    ck_assert_int_lt(looks, 60); /* it is not asked for ever */
}
END_TEST

START_TEST(a_file_that_is_cut_is_damaged)
{
    ckpt__source_pass(s, false, MANY);
    for (uint64_t at = 0; at < LARGE / 4; at += WINDOW)
        read_at(at, WINDOW);
    ck_assert_int_eq(truncate(path, LARGE / 2 + 100), 0);
    ckpt_status status = CKPT_OK;
    uint64_t at = LARGE / 4 / WINDOW * WINDOW;
    for (; status == CKPT_OK && at < LARGE; at += WINDOW) {
        status = ckpt__source_read(s, 0, at, buffer, WINDOW, &err);
        if (status == CKPT_OK)
            compare(buffer, at, WINDOW);
    }
    ck_assert_int_eq(status, CKPT_E_DAMAGED);
    ck_assert_ptr_nonnull(strstr(err.message, "it ends at byte 34603108"));
}
END_TEST

START_TEST(others_are_not_read_so)
{
    ckpt__source_pass(s, true, MANY); /* its pages stay: other threads read them */
    read_at(0, 4 << 20);
    ckpt__source_pass(s, false, 0);
    read_at(0, 4 << 20);
    ck_assert_int_eq(looks, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("windows");
    TCase *t = tcase_create("windows");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, little_memory_is_for_none);
    tcase_add_test(t, what_was_asked_for_is_read_once);
    tcase_add_test(t, what_nobody_takes_is_given_up);
    tcase_add_test(t, no_thread_and_no_window);
    tcase_add_test(t, all_of_it_in_order);
    tcase_add_test(t, records_by_turns);
    tcase_add_test(t, any_bytes_in_any_order);
    tcase_add_test(t, few_bytes_far_apart);
    tcase_add_test(t, refused_is_read_otherwise);
    tcase_add_test(t, a_file_that_is_cut_is_damaged);
    tcase_add_test(t, others_are_not_read_so);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
