/* Files of ranks that are read before they are asked for: each is the one that was asked for, and what cannot be read is left to
 * who asks. */
#include "format/ahead.h"

#include <unistd.h>
#include "../folder_files.h"
#include "format/table.h"
#include "io/source.h"

enum { FILES = 70 }; /* more than are read together */

static ckpt__source *source;
static char names[FILES][32];
static const char *list[FILES];

static void setup(void)
{
    make_folder();
    for (int i = 0; i < FILES; i++) {
        const flat t = {names[i], 1, {2 + i % 5, 0}};
        snprintf(names[i], sizeof names[i], "rank%d.%s", i, i % 2 ? "safetensors" : "pt");
        list[i] = names[i];
        (i % 2 ? write_safetensors : write_torch_flat)(at("%s", names[i]), &t, 1, (float)i);
    }
    ck_assert_int_eq(ckpt__source_open(folder, &source, NULL), CKPT_OK);
}

static void teardown(void)
{
    ckpt__source_close(source);
    remove_folder();
}

static ckpt__ahead *begin(void)
{
    ckpt__read_request request = ckpt__read_all(source);
    ckpt__ahead *a = ckpt__ahead_new(&request, list, FILES);
    ck_assert_ptr_nonnull(a);
    return a;
}

static ckpt__index *take(ckpt__ahead *a, const char *name)
{
    uint32_t file;
    ckpt__index *part = NULL;
    ck_assert_int_eq(ckpt__source_add(source, name, &file, NULL), CKPT_OK);
    const bool there = ckpt__ahead_take(a, file, &part);
    ck_assert_int_eq(there, part != NULL);
    if (part)
        ck_assert_int_eq(part->storages[0].extent.file, file);
    return part;
}

static void expect_file(ckpt__ahead *a, int i)
{
    ckpt__index *part = take(a, names[i]);
    ck_assert_msg(part != NULL, "file %d is not there", i);
    ck_assert_uint_eq(part->tensor_count, 1);
    ck_assert_str_eq(part->tensors[0].info.name.data, names[i]);
    ck_assert_int_eq(part->tensors[0].info.shape[0], 2 + i % 5);
    ckpt__index_free(part);
}

START_TEST(each_file_is_its_own)
{
    ckpt__ahead *a = begin();
    for (int i = 0; i < FILES; i++)
        expect_file(a, i);
    ck_assert_ptr_null(take(a, names[FILES - 1])); /* taken before */
    ckpt__ahead_free(a);
    ck_assert_uint_eq(source->count, FILES);
    for (size_t i = 0; i < FILES; i++)
        ck_assert_str_eq(source->files[i].name, names[i]); /* numbered as without */
}
END_TEST

START_TEST(some_are_passed_over)
{
    ckpt__ahead *a = begin();
    for (int i = 0; i < FILES; i += 1 + i % 11)
        expect_file(a, i);
    ckpt__ahead_free(a);
    a = begin();
    expect_file(a, FILES - 1);
    ck_assert_ptr_null(take(a, names[0])); /* behind it */
    ckpt__ahead_free(a);
    list[3] = NULL;
    a = begin();
    expect_file(a, 2);
    ck_assert_ptr_null(take(a, names[3]));
    expect_file(a, 4);
    ckpt__ahead_free(a);
}
END_TEST

START_TEST(what_cannot_be_read_is_the_callers)
{
    write_text(at("%s", names[5]), "not a checkpoint");
    write_text(at("%s", names[6]), "{\"metadata\": {}, \"weight_map\": {\"a\": \"rank1.safetensors\"}}");
    ck_assert_int_eq(unlink(at("%s", names[7])), 0);
    ckpt__ahead *a = begin();
    uint32_t file;
    for (int i = 0; i < 12; i++) {
        if (i == 7)
            ck_assert_int_eq(ckpt__source_add(source, names[7], &file, NULL), CKPT_E_SYSTEM);
        else if (i == 5 || i == 6)
            ck_assert_ptr_null(take(a, names[i]));
        else
            expect_file(a, i);
    }
    ckpt__ahead_free(a);
}
END_TEST

START_TEST(without_names_nothing_is_there)
{
    ckpt__index *part = NULL;
    uint32_t file;
    ck_assert_int_eq(ckpt__source_add(source, names[0], &file, NULL), CKPT_OK);
    ck_assert(!ckpt__ahead_take(NULL, file, &part));
    ck_assert_ptr_null(part);
    ckpt__ahead_free(NULL);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ahead");
    TCase *t = tcase_create("ahead");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, each_file_is_its_own);
    tcase_add_test(t, some_are_passed_over);
    tcase_add_test(t, what_cannot_be_read_is_the_callers);
    tcase_add_test(t, without_names_nothing_is_there);
    suite_add_tcase(s, t);
    return run_suite(s);
}
