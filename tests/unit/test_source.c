/* The files that a checkpoint is read from: a directory, several, a file and what lies beside it. */
#include <errno.h>
#include "folder_files.h"
#include "io/source.h"

static ckpt_error err;
static ckpt__source *s;

static void setup(void)
{
    make_folder();
    make_directory("a");
    make_directory("b");
    write_text(at("a/x"), "same");
    write_text(at("b/x"), "same");
    write_text(at("a/y"), "of a");
    write_text(at("b/y"), "of b");
    write_text(at("b/z"), "only b");
    memset(&err, 0, sizeof err);
    s = NULL;
}

static void teardown(void)
{
    ckpt__source_close(s);
    remove_folder();
}

static void open_both(void)
{
    ck_assert_int_eq(ckpt__source_open(at("a"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("b"), &err), CKPT_OK);
    ck_assert_uint_eq(ckpt__source_roots(s), 2);
}

START_TEST(a_file_is_found_on_any_disk)
{
    uint32_t x, again, z, none;
    char label[500];
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "z", &z, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, z, label, sizeof label), at("b/z"));
    ck_assert_int_eq(ckpt__source_add(s, "x", &x, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, x, label, sizeof label), at("a/x"));
    ck_assert_int_eq(ckpt__source_add(s, "x", &again, &err), CKPT_OK);
    ck_assert_uint_eq(x, again);
    ck_assert_int_eq(ckpt__source_add(s, "w", &none, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    ck_assert_int_eq(ckpt__source_add(s, "../a/x", &none, &err), CKPT_E_FORMAT);
}
END_TEST

START_TEST(two_that_differ_are_named)
{
    uint32_t y;
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_E_MISMATCH);
    ck_assert_str_eq(err.object, at("a/y"));
    ck_assert_ptr_nonnull(strstr(err.message, at("b")));
    ck_assert_int_eq(ckpt__source_add_at(s, 1, "y", &y, &err), CKPT_OK);
    ck_assert_uint_eq(s->files[y].root, 1);
}
END_TEST

/* Bytes behind the first block count too. */
START_TEST(large_ones_are_compared_to_the_end)
{
    static char data[(1 << 20) + 100];
    uint32_t x;
    write_to(at("a/x"), data, sizeof data);
    data[sizeof data - 1] = 1;
    write_to(at("b/x"), data, sizeof data);
    open_both();
    ck_assert_int_eq(ckpt__source_add(s, "x", &x, &err), CKPT_E_MISMATCH);
}
END_TEST

START_TEST(replacing_any_of_them_is_noticed)
{
    open_both();
    ck_assert(ckpt__source_is_there(s));
    ck_assert_int_eq(rename(at("b"), at("c")), 0);
    make_directory("b");
    ck_assert(!ckpt__source_is_there(s));
}
END_TEST

static ckpt_status count_name(void *ctx, size_t root, const char *name, bool is_folder, ckpt_error *e)
{
    int *counts = ctx;
    (void)e;
    counts[root]++;
    counts[2] += is_folder;
    counts[3] += strcmp(name, "x") == 0;
    return CKPT_OK;
}

START_TEST(names_are_listed_by_disk)
{
    int counts[4] = { 0 };
    make_directory("b/sub");
    write_text(at("b/sub/x"), "");
    ck_assert_int_eq(mkfifo(at("b/fifo"), 0600), 0);
    open_both();
    ck_assert_int_eq(ckpt__source_each(s, "", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[0], 2);
    ck_assert_int_eq(counts[1], 4);      /* x, y, z, sub: a FIFO is no file */
    ck_assert_int_eq(counts[2], 1);
    ck_assert_int_eq(counts[3], 2);
    ck_assert_int_eq(ckpt__source_each(s, "sub", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[1], 5);
    ck_assert_int_lt(ckpt__source_each(s, "../b", count_name, counts, &err), 0);
}
END_TEST

START_TEST(a_file_and_what_lies_beside_it)
{
    uint32_t y;
    char label[500];
    ck_assert_int_eq(ckpt__source_open(at("a/x"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__source_open_around(s, &err), CKPT_OK);
    ck_assert_str_eq(s->files[0].name, "x");
    ck_assert_int_eq(ckpt__source_add(s, "y", &y, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, y, label, sizeof label), at("a/y"));
}
END_TEST

START_TEST(files_from_several_places)
{
    int counts[4] = { 0 };
    uint32_t file;
    char label[500];
    ck_assert_int_eq(ckpt__source_open(at("a/x"), &s, &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("b/z"), &err), CKPT_OK);
    ck_assert_int_eq(ckpt__source_open_also(s, at("a/x"), &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt__source_each(s, "", count_name, counts, &err), CKPT_OK);
    ck_assert_int_eq(counts[0], 1);
    ck_assert_int_eq(counts[1], 1);
    ck_assert_int_eq(ckpt__source_add(s, "z", &file, &err), CKPT_OK);
    ck_assert_str_eq(ckpt__source_label(s, file, label, sizeof label), at("b/z"));
    ck_assert_int_eq(ckpt__source_add(s, "y", &file, &err), CKPT_E_SYSTEM);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("source");
    TCase *t = tcase_create("source");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_file_is_found_on_any_disk);
    tcase_add_test(t, two_that_differ_are_named);
    tcase_add_test(t, large_ones_are_compared_to_the_end);
    tcase_add_test(t, replacing_any_of_them_is_noticed);
    tcase_add_test(t, names_are_listed_by_disk);
    tcase_add_test(t, a_file_and_what_lies_beside_it);
    tcase_add_test(t, files_from_several_places);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
