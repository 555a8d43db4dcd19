/* A source of more files than the process may have open: which are closed and opened again, and what is said of those that were changed
 * meanwhile. */
#define SCRATCH_ON_DISK
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include "../folder_files.h"
#include "io/descriptors.h"
#include "io/mapping.h"

enum { FILES = 1024, LIMIT = 256, SIZE = 64, THREADS = 8 };

static ckpt_error err;
static ckpt__source *s;

static void limit_to(rlim_t n)
{
    const struct rlimit limit = {n, n};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* 64 bytes that say which file it is. */
static void content_of(size_t i, char text[SIZE + 1])
{
    snprintf(text, SIZE + 1, "%-32zu%32zu", i, i * i);
}

static void setup(void)
{
    char text[SIZE + 1];
    make_folder();
    for (size_t i = 0; i < FILES; i++) {
        content_of(i, text);
        write_text(at("f%zu", i), text);
    }
    memset(&err, 0, sizeof err);
    s = NULL;
}

static void teardown(void)
{
    ckpt__source_close(s);
    remove_folder();
}

static void open_all(void)
{
    uint32_t file;
    char name[32];
    limit_to(LIMIT);
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    for (size_t i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "f%zu", i);
        ck_assert_msg(ckpt__source_add(s, name, &file, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        ck_assert_uint_eq(file, i);
    }
}

static size_t open_files(void)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        ck_assert_int_le(s->files[i].pins, 0);
        ck_assert_int_eq(s->files[i].pins == 0, s->files[i].fd >= 0);
        n += s->files[i].fd >= 0;
    }
    return n;
}

/* Bytes [from, SIZE) of a file are its own. */
static void read_own(size_t i, size_t from)
{
    char text[SIZE + 1], got[SIZE];
    content_of(i, text);
    ck_assert_msg(ckpt__source_read(s, (uint32_t)i, from, got, SIZE - from, &err) == CKPT_OK, "%s: %s", err.object,
                  err.message);
    ck_assert_mem_eq(got, text + from, SIZE - from);
}

static void refused(size_t i, ckpt_status status, const char *message)
{
    char got[SIZE];
    ck_assert_int_eq(ckpt__source_read(s, (uint32_t)i, 0, got, SIZE, &err), status);
    ck_assert_str_eq(err.object, at("f%zu", i));
    ck_assert_msg(strstr(err.message, message), "%s", err.message);
}

/* One that is closed by now. */
static size_t a_closed_one(void)
{
    for (size_t i = 0; i < FILES; i++)
        if (s->files[i].fd < 0)
            return i;
    ck_abort_msg("all files are open");
}

START_TEST(more_files_than_may_be_open)
{
    unsigned seed = 5;
    open_all();
    ck_assert_uint_le(open_files(), LIMIT / 2);
    ck_assert_uint_ge(open_files(), LIMIT / 4);
    for (size_t i = 0; i < FILES; i++)
        read_own(i, 0);
    for (int i = 0; i < 5000; i++) {
        seed = seed * 1103515245 + 12345;
        read_own((seed >> 8) % FILES, (seed >> 20) % SIZE);
    }
    ck_assert_uint_le(open_files(), LIMIT / 2);
}
END_TEST

/* One file that is used all the time is seldom closed while others come and go. */
START_TEST(what_is_used_stays_open)
{
    unsigned closed = 0;
    open_all();
    read_own(7, 0);
    for (size_t i = 8; i < FILES; i++) {
        closed += s->files[7].fd < 0;
        read_own(7, 3);
        read_own(i, 0);
    }
    ck_assert_uint_le(closed, FILES / 64);
}
END_TEST

START_TEST(what_is_pinned_is_not_closed)
{
    int fd, own[LIMIT];
    size_t n = 0;
    char byte;
    open_all();
    ck_assert_int_eq(ckpt__descriptor_pin(s, 3, 0, &fd, &err), CKPT_OK);
    while (n < LIMIT && (own[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    errno = EMFILE;
    while (ckpt__descriptors_give(s))
        errno = EMFILE;
    ck_assert_int_eq(s->files[3].fd, fd);
    ck_assert_int_eq(pread(fd, &byte, 1, 0), 1);
    ck_assert_int_eq(byte, '3');
    ckpt__descriptor_unpin(s, 3);
    ck_assert_uint_eq(open_files(), 1);
    while (n > 0)
        close(own[--n]);
}
END_TEST

/* The program has nearly all descriptors: the source makes do with those that it gets. */
START_TEST(the_program_takes_the_descriptors)
{
    int own[LIMIT];
    size_t n = 0;
    for (size_t left = 40; left >= 10; left /= 2) {
        limit_to(LIMIT);
        for (n = 0; n < LIMIT && (own[n] = open("/dev/null", O_RDONLY)) >= 0;)
            n++;
        for (size_t i = 0; i < left; i++)
            close(own[--n]);
        open_all();
        for (size_t i = 0; i < FILES; i++)
            read_own(i, 0);
        ck_assert_uint_le(open_files(), left);
        ck_assert_uint_ge(open_files(), left / 2);
        ckpt__source_close(s);
        s = NULL;
        while (n > 0)
            close(own[--n]);
    }
}
END_TEST

/* No descriptor at all, and none of ours to give: an error, and well again when there is one. */
START_TEST(none_is_left)
{
    int own[LIMIT];
    size_t n = 0;
    char got[SIZE];
    open_all();
    errno = EMFILE;
    while (ckpt__descriptors_give(s))
        errno = EMFILE;
    ck_assert_uint_eq(open_files(), 0);
    while (n < LIMIT && (own[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    ck_assert_int_eq(ckpt__source_read(s, 9, 0, got, SIZE, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, EMFILE);
    close(own[--n]);
    read_own(9, 0);
    while (n > 0)
        close(own[--n]);
}
END_TEST

/* As the file was last written when it was opened, but for so many nanoseconds and seconds. */
static void set_time(const char *path, size_t i, long seconds, long nanoseconds)
{
    struct timespec t = {.tv_sec = (time_t)s->files[i].mtime + seconds, .tv_nsec = s->files[i].mtime_ns};
    t.tv_nsec += t.tv_nsec < 500 ? nanoseconds : -nanoseconds;
    const struct timespec both[2] = {t, t};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, both, 0), 0);
}

START_TEST(what_was_changed_is_refused)
{
    char text[SIZE + 1];
    open_all();
    /* another file of the same size, content and time */
    size_t i = a_closed_one();
    content_of(i, text);
    write_text(at("new"), text);
    set_time(at("new"), i, 0, 0);
    ck_assert_int_eq(rename(at("new"), at("f%zu", i)), 0);
    refused(i, CKPT_E_DAMAGED, "another file of 64 bytes has its name");
    /* shorter, longer; and as it was again */
    i = a_closed_one() + 1;
    content_of(i, text);
    ck_assert_int_eq(truncate(at("f%zu", i), 10), 0);
    set_time(at("f%zu", i), i, 0, 0);
    refused(i, CKPT_E_DAMAGED, "it had 64 bytes");
    ck_assert_ptr_nonnull(strstr(err.message, "it has 10 bytes"));
    ck_assert_int_eq(truncate(at("f%zu", i), 100), 0);
    set_time(at("f%zu", i), i, 0, 0);
    refused(i, CKPT_E_DAMAGED, "it has 100 bytes");
    int fd = open(at("f%zu", i), O_WRONLY | O_TRUNC);
    ck_assert_int_eq(write(fd, text, SIZE), SIZE);
    close(fd);
    set_time(at("f%zu", i), i, 0, 0);
    read_own(i, 0);
    /* written to a nanosecond later, a second later */
    i += 1;
    set_time(at("f%zu", i), i, 0, 1);
    refused(i, CKPT_E_DAMAGED, "it was written to at");
    set_time(at("f%zu", i), i, 1, 0);
    refused(i, CKPT_E_DAMAGED, "it was written to at");
    /* gone; a link in its place; a folder, a FIFO */
    i += 1;
    ck_assert_int_eq(unlink(at("f%zu", i)), 0);
    refused(i, CKPT_E_SYSTEM, "it is gone");
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_int_eq(symlink("/etc/passwd", at("f%zu", i)), 0);
    refused(i, CKPT_E_SYSTEM, "cannot open it again");
    ck_assert_int_eq(unlink(at("f%zu", i)), 0);
    ck_assert_int_eq(mkdir(at("f%zu", i), 0700), 0);
    refused(i, CKPT_E_DAMAGED, "it is a directory");
    ck_assert_int_eq(rmdir(at("f%zu", i)), 0);
    ck_assert_int_eq(mkfifo(at("f%zu", i), 0600), 0);
    refused(i, CKPT_E_DAMAGED, "it is a FIFO");
    ck_assert_uint_le(open_files(), LIMIT / 2);
    read_own(i + 1, 0); /* the others are as they were */
}
END_TEST

/* A directory that has another name by now is still the one that was opened; one that has its name is another. */
START_TEST(the_directory_is_moved)
{
    char moved[80], command[200];
    open_all();
    snprintf(moved, sizeof moved, "%s-moved", folder);
    ck_assert_int_eq(rename(folder, moved), 0);
    ck_assert_int_eq(mkdir(folder, 0700), 0);
    write_text(at("f%zu", a_closed_one()), "of another checkpoint");
    for (size_t i = 0; i < FILES; i++)
        read_own(i, 0);
    snprintf(command, sizeof command, "rm -rf '%s'", moved);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* Files that were given by their paths, relative ones, and a working directory that changes. */
START_TEST(files_by_their_paths)
{
    char name[32], before[400];
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(folder), 0);
    limit_to(LIMIT);
    ck_assert_int_eq(ckpt__source_open("f0", &s, &err), CKPT_OK);
    for (size_t i = 1; i < FILES; i++) {
        snprintf(name, sizeof name, "./f%zu", i);
        ck_assert_msg(ckpt__source_open_also(s, name, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    }
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_uint_le(open_files(), LIMIT / 2);
    for (size_t i = 0; i < FILES; i++)
        read_own(i, 0);
    ck_assert_int_eq(chdir(before), 0);
}
END_TEST

/* What leads to a file only while a descriptor is open is never closed. */
START_TEST(a_path_of_a_descriptor)
{
    char path[64];
    int fd = open(at("f5"), O_RDONLY);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ck_assert_int_eq(ckpt__source_open(path, &s, &err), CKPT_OK);
    ck_assert(s->files[0].stays);
    close(fd);
    errno = EMFILE;
    ck_assert(!ckpt__descriptors_give(s));
    char got[SIZE];
    ck_assert_int_eq(ckpt__source_read(s, 0, 0, got, SIZE, &err), CKPT_OK);
}
END_TEST

START_TEST(several_sources_share_the_limit)
{
    ckpt__source *more[6];
    uint32_t file;
    char name[32], got[SIZE], text[SIZE + 1];
    open_all();
    for (size_t k = 0; k < 6; k++) {
        ck_assert_int_eq(ckpt__source_open(folder, &more[k], &err), CKPT_OK);
        for (size_t i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "f%zu", i);
            ck_assert_msg(ckpt__source_add(more[k], name, &file, &err) == CKPT_OK, "%s: %s", err.object, err.message);
        }
    }
    for (size_t i = 0; i < FILES; i++)
        for (size_t k = 0; k < 6; k++) {
            content_of(i, text);
            ck_assert_int_eq(ckpt__source_read(more[k], (uint32_t)i, 0, got, SIZE, &err), CKPT_OK);
            ck_assert_mem_eq(got, text, SIZE);
        }
    for (size_t k = 0; k < 6; k++)
        ckpt__source_close(more[k]);
    for (size_t i = 0; i < FILES; i++)
        read_own(i, 0);
}
END_TEST

/* A mapping stays when its file is closed; a file that was closed can be mapped. */
START_TEST(maps_stay)
{
    const void *maps[FILES];
    char text[SIZE + 1];
    open_all();
    for (size_t i = 0; i < FILES; i++)
        ck_assert_int_eq(ckpt__source_map(s, (uint32_t)i, &maps[i], &err), CKPT_OK);
    for (size_t i = 0; i < FILES; i++) {
        content_of(i, text);
        ck_assert_mem_eq(maps[i], text, SIZE);
        ckpt__source_unmap(s, (uint32_t)i, maps[i]);
    }
}
END_TEST

typedef struct reading {
    unsigned seed;
    size_t wrong, failed;
} reading;

static void *read_many(void *ctx)
{
    reading *r = ctx;
    char text[SIZE + 1], got[SIZE];
    ckpt_error own = CKPT_ERROR_INIT;
    for (int i = 0; i < 3000; i++) {
        r->seed = r->seed * 1103515245 + 12345;
        size_t file = (r->seed >> 8) % FILES;
        content_of(file, text);
        r->failed += ckpt__source_read(s, (uint32_t)file, 0, got, SIZE, &own) < 0;
        r->wrong += memcmp(got, text, SIZE) != 0;
    }
    return NULL;
}

static void read_with_threads(void)
{
    pthread_t threads[THREADS];
    reading r[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        r[i] = (reading){.seed = i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, read_many, &r[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_uint_eq(r[i].failed, 0);
        ck_assert_uint_eq(r[i].wrong, 0);
    }
}

START_TEST(threads_share_a_source)
{
    int own[LIMIT];
    size_t n = 0;
    open_all();
    read_with_threads();
    ck_assert_uint_le(open_files(), LIMIT / 2 + THREADS);
    /* with fewer descriptors than threads */
    errno = EMFILE;
    while (ckpt__descriptors_give(s))
        errno = EMFILE;
    while (n < LIMIT && (own[n] = open("/dev/null", O_RDONLY)) >= 0)
        n++;
    for (int i = 0; i < 3; i++)
        close(own[--n]);
    read_with_threads();
    ck_assert_uint_le(open_files(), 3);
    while (n > 0)
        close(own[--n]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *t = tcase_create("descriptors");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, more_files_than_may_be_open);
    tcase_add_test(t, what_is_used_stays_open);
    tcase_add_test(t, what_is_pinned_is_not_closed);
    tcase_add_test(t, the_program_takes_the_descriptors);
    tcase_add_test(t, none_is_left);
    tcase_add_test(t, what_was_changed_is_refused);
    tcase_add_test(t, the_directory_is_moved);
    tcase_add_test(t, files_by_their_paths);
    tcase_add_test(t, a_path_of_a_descriptor);
    tcase_add_test(t, several_sources_share_the_limit);
    tcase_add_test(t, maps_stay);
    tcase_add_test(t, threads_share_a_source);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
