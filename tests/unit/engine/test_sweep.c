/* CRC-32s of extents by several threads, held against zlib's of the same bytes. */
#include <errno.h>
#include <unistd.h>
#include <zlib.h>
#include "../folder_files.h"
#include "engine/sweep.h"

enum { FILES = 3, MOST = 200 };
static const size_t sizes[FILES] = {40 << 20, 3 << 20, 100 << 10};

static ckpt_error err;
static ckpt__source *s;
static unsigned char *content[FILES];
static ckpt__extent extents[MOST];
static ckpt__swept list[MOST];
static size_t count;

/* A disk that has lost what lies from here on. */
static off_t refused_from = INT64_MAX;
ssize_t __real_pread(int fd, void *to, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset)
{
    if (offset >= refused_from) {
        errno = EIO;
        return -1;
    }
    return __real_pread(fd, to, n, offset);
}

static void setup(void)
{
    make_folder();
    memset(&err, 0, sizeof err);
    count = 0;
    ck_assert_int_eq(ckpt__source_open(folder, &s, &err), CKPT_OK);
    for (size_t f = 0; f < FILES; f++) {
        char name[8];
        uint32_t file, state = 7 * (uint32_t)f + 1;
        content[f] = malloc(sizes[f]);
        ck_assert_ptr_nonnull(content[f]);
        for (size_t i = 0; i < sizes[f]; i++)
            content[f][i] = (unsigned char)((state = state * 1664525U + 1013904223U) >> 24);
        snprintf(name, sizeof name, "f%u", (unsigned)f % 10);
        write_to(at("%s", name), content[f], sizes[f]);
        ck_assert_int_eq(ckpt__source_add(s, name, &file, &err), CKPT_OK);
        ck_assert_uint_eq(file, f);
    }
}

static void teardown(void)
{
    ckpt__source_close(s);
    for (size_t f = 0; f < FILES; f++)
        free(content[f]);
    remove_folder();
}

static void add(uint32_t file, uint64_t offset, uint64_t size)
{
    ck_assert_uint_lt(count, MOST);
    extents[count] =
        (ckpt__extent){.file = file, .coding = CKPT__STORED, .offset = offset, .length = size, .size = size};
    list[count] = (ckpt__swept){.extent = &extents[count], .crc = 0xdeadbeef};
    count++;
}

/* What the calling thread is told; it ends the sweep after `enough` calls. */
static struct told {
    uint64_t sum; /* bytes */
    unsigned calls, enough;
} told;

static ckpt_status note(void *ctx, uint64_t more, ckpt_error *e)
{
    struct told *t = ctx;
    ck_assert_uint_gt(more, 0);
    t->sum += more;
    return ++t->calls == t->enough ? ckpt__fail(e, CKPT_E_CANCELLED, NULL, "enough") : CKPT_OK;
}

static ckpt_status sweep(unsigned threads)
{
    told.sum = told.calls = 0;
    return ckpt__sweep(s, list, count, threads, note, &told, &err);
}

static void all_are_right(void)
{
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++) {
        const ckpt__extent *e = &extents[i];
        ck_assert_msg(list[i].known, "extent %zu", i);
        ck_assert_uint_eq(list[i].crc, crc32(0, content[e->file] + e->offset, (uInt)e->size));
        all += e->size;
    }
    ck_assert_uint_eq(told.sum, all);
}

static uint32_t pick(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525U + 1013904223U;
    return (*state >> 8) % n;
}

/* Small ones, ones around the size of a unit, and ones of several. */
START_TEST(any_extents_by_any_number_of_threads)
{
    static const unsigned threads[] = {1, 2, 3, 8, 16, 400, 0};
    uint32_t state = (uint32_t)_i + 1;
    for (size_t n = 1 + pick(&state, 60); count < n;) {
        uint32_t file = pick(&state, FILES), kind = pick(&state, 5);
        uint64_t size = kind == 0   ? pick(&state, 20)
                        : kind == 1 ? CKPT__BLOCK - 2 + pick(&state, 5)
                        : kind == 2 ? pick(&state, 3 * CKPT__BLOCK)
                                    : pick(&state, 100000);
        if (file == 0 ? count < MOST : size <= sizes[file])
            add(file, pick(&state, (uint32_t)(sizes[file] - size) + 1), size);
    }
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        ck_assert_int_eq(sweep(threads[i]), CKPT_OK);
        all_are_right();
    }
}
END_TEST

/* Enough to be looked at where the page cache has it (io/cached.h). */
START_TEST(many_bytes)
{
    for (size_t i = 0; i < 4; i++)
        add(0, i, sizes[0] - i);
    for (unsigned threads = 1; threads <= 3; threads++) {
        ck_assert_int_eq(sweep(threads), CKPT_OK);
        all_are_right();
    }
}
END_TEST

START_TEST(nothing_is_an_answer_too)
{
    ck_assert_int_eq(sweep(0), CKPT_OK);
    ck_assert_uint_eq(told.calls, 0);
    add(1, 5, 0);
    ck_assert_int_eq(sweep(0), CKPT_OK);
    ck_assert_uint_eq(told.calls, 0);
    ck_assert(list[0].known && list[0].crc == 0);
}
END_TEST

/* What lies behind the cut is not known, and all else is. */
START_TEST(a_cut_file)
{
    const uint64_t cut = 30 << 20;
    for (uint64_t at_byte = 0; at_byte < sizes[0]; at_byte += 2 << 20)
        add(0, at_byte, 2 << 20);
    add(0, 0, sizes[0]);
    add(0, cut - 1, 1);
    add(0, cut - 1, 2);
    add(1, 0, sizes[1]);
    ck_assert_int_eq(truncate(at("f0"), (off_t)cut), 0);
    for (unsigned threads = 1; threads <= 8; threads *= 2) {
        ck_assert_int_eq(sweep(threads), CKPT_OK);
        for (size_t i = 0; i < count; i++) {
            bool there = extents[i].file == 1 || extents[i].offset + extents[i].size <= cut;
            ck_assert_msg(list[i].known == there, "extent %zu", i);
            if (there)
                ck_assert_uint_eq(list[i].crc,
                                  crc32(0, content[extents[i].file] + extents[i].offset, (uInt)extents[i].size));
        }
    }
}
END_TEST

START_TEST(an_extent_that_no_file_has)
{
    add(1, 0, (uint64_t)1 << 60);
    add(1, sizes[1] - 1, 2);
    add(1, UINT64_MAX - 1, 4);
    add(1, 0, sizes[1]);
    add(FILES, 0, 1);
    add(UINT32_MAX, 0, 0);
    ck_assert_int_eq(sweep(2), CKPT_OK);
    ck_assert(!list[0].known && !list[1].known && !list[2].known && list[3].known && !list[4].known && list[5].known);
    ck_assert_uint_eq(told.sum, sizes[1]);
}
END_TEST

/* What is no file's fault ends it, and says which file it is. */
START_TEST(a_file_that_cannot_be_read)
{
    for (uint64_t at_byte = 0; at_byte < sizes[0]; at_byte += 2 << 20)
        add(0, at_byte, 2 << 20);
    refused_from = 7 << 20;
    for (unsigned threads = 1; threads <= 8; threads *= 2) {
        ck_assert_int_eq(sweep(threads), CKPT_E_SYSTEM);
        ck_assert_int_eq(err.sys_errno, EIO);
        ck_assert_msg(strstr(err.object, "f0"), "%s", err.object);
    }
    refused_from = INT64_MAX;
}
END_TEST

START_TEST(it_can_be_ended)
{
    for (size_t i = 0; i < 8; i++)
        add(0, 0, sizes[0]);
    for (unsigned threads = 1; threads <= 4; threads++) {
        told.enough = 2;
        ck_assert_int_eq(sweep(threads), CKPT_E_CANCELLED);
        ck_assert_str_eq(err.message, "enough");
        ck_assert_uint_eq(told.calls, 2);
    }
    told.enough = 0;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sweep");
    TCase *t = tcase_create("sweep");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 240);
    tcase_add_loop_test(t, any_extents_by_any_number_of_threads, 0, 6);
    tcase_add_test(t, many_bytes);
    tcase_add_test(t, nothing_is_an_answer_too);
    tcase_add_test(t, a_cut_file);
    tcase_add_test(t, an_extent_that_no_file_has);
    tcase_add_test(t, a_file_that_cannot_be_read);
    tcase_add_test(t, it_can_be_ended);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
