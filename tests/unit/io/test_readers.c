/* By how many threads a source is read. What the page cache has is what the test's preadv2 says. */
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/readers.h"

enum { FILES = 3, MIB = 1 << 20 };

static ckpt_error err;
static ckpt__source *s;

/* Of each file, told by its inode, the first so many bytes are there. */
static struct {
    uint64_t ino, there;
} files[FILES];
static bool not_told; /* the system has no such reads */
static unsigned asked;
static off_t asked_at; /* last */

ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t at, int flags);
ssize_t __wrap_preadv2(int fd, const struct iovec *to, int n, off_t at, int flags)
{
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert(at >= 0 && at < st.st_size && n == 1 && to->iov_len == 1 && flags == RWF_NOWAIT);
    asked++;
    asked_at = at;
    errno = not_told ? EOPNOTSUPP : EAGAIN;
    for (size_t i = 0; i < FILES && !not_told; i++)
        if (files[i].ino == st.st_ino && (uint64_t)at < files[i].there)
            return 1;
    return -1;
}

static void add(size_t number, const char *name, off_t size)
{
    struct stat st;
    uint32_t file;
    write_to(at("%s", name), "", 0);
    ck_assert_int_eq(truncate(at("%s", name), size), 0);
    ck_assert_int_eq(stat(at("%s", name), &st), 0);
    files[number].ino = st.st_ino;
    ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
}

/* 40 MiB, 20 MiB and 4 bytes. */
static void setup(void)
{
    make_folder();
    memset(&err, 0, sizeof err);
    memset(files, 0, sizeof files);
    not_told = false;
    asked = 0;
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    add(0, "large", 40 * MIB);
    add(1, "half", 20 * MIB);
    add(2, "small", 4);
}

static void teardown(void)
{
    ckpt__source_close(s);
    remove_folder();
}

START_TEST(a_disk_is_read_by_more)
{
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), CKPT__READERS);
    ck_assert_uint_eq(ckpt__readers_usual(s, 1), CKPT__READERS);
    ck_assert_uint_eq(asked, 2 * 64);
    files[1].there = 20 * MIB; /* a third of all bytes */
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), CKPT__READERS);
}
END_TEST

START_TEST(what_is_cached_is_not)
{
    files[0].there = 40 * MIB; /* two thirds */
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    files[0].there = 20 * MIB;
    files[1].there = 20 * MIB;
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    files[1].there = 8 * MIB;
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), CKPT__READERS);
}
END_TEST

START_TEST(who_wants_more_gets_them)
{
    ck_assert_uint_eq(ckpt__readers_usual(s, 12), 12);
    ck_assert_uint_eq(asked, 0);
}
END_TEST

START_TEST(where_the_system_does_not_say)
{
    not_told = true;
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    ck_assert_uint_eq(asked, 1);
}
END_TEST

START_TEST(little_is_not_asked_for)
{
    uint32_t file;
    ckpt__source_close(s);
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    ck_assert_int_eq(ckpt__source_add(s, "small", &file, &err), CKPT_OK);
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    ck_assert_uint_eq(asked, 0);
}
END_TEST

/* Files that were opened, and closed again for others, and are gone. */
START_TEST(a_file_that_is_gone_is_passed_over)
{
    ckpt__source_close(s);
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    uint32_t file;
    ck_assert_int_eq(ckpt__source_add(s, "large", &file, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_add(s, "half", &file, &err), CKPT_OK);
    files[1].there = 20 * MIB;
    close(s->files[0].fd);
    s->files[0].fd = -1;
    s->files[0].pins = -1;
    ck_assert_int_eq(unlink(at("large")), 0);
    ck_assert_uint_eq(ckpt__readers_usual(s, 2), 2);
    ck_assert(asked > 0 && asked < 64);
}
END_TEST

/* What is asked for is fetched: the next who asks is not to find that alone. */
START_TEST(other_places_each_time)
{
    off_t first[2];
    bool differs[2] = {false, false};
    int fd = open(at("large"), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    for (int i = 0; i < 16; i++) {
        ck_assert(!ckpt__file_is_cached(&s->files[0], fd));
        first[0] = i ? first[0] : asked_at;
        differs[0] |= asked_at != first[0];
        ck_assert(!ckpt__source_is_cached(s));
        first[1] = i ? first[1] : asked_at;
        differs[1] |= asked_at != first[1];
    }
    close(fd);
    ck_assert(differs[0] && differs[1]);
}
END_TEST

START_TEST(one_file_is_asked_for_alone)
{
    int fd = open(at("large"), O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert(!ckpt__file_is_cached(&s->files[0], fd));
    files[0].there = 20 * MIB;
    ck_assert(ckpt__file_is_cached(&s->files[0], fd));
    files[0].there = 19 * MIB;
    ck_assert(!ckpt__file_is_cached(&s->files[0], fd));
    not_told = true;
    ck_assert(ckpt__file_is_cached(&s->files[0], fd));
    close(fd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("readers");
    TCase *t = tcase_create("readers");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_disk_is_read_by_more);
    tcase_add_test(t, what_is_cached_is_not);
    tcase_add_test(t, who_wants_more_gets_them);
    tcase_add_test(t, where_the_system_does_not_say);
    tcase_add_test(t, little_is_not_asked_for);
    tcase_add_test(t, a_file_that_is_gone_is_passed_over);
    tcase_add_test(t, one_file_is_asked_for_alone);
    tcase_add_test(t, other_places_each_time);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
