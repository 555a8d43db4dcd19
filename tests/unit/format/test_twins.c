/* Archives that have one pickle: the second is what the first was found to be, with its own records' places; and what is wrong with it is
 * found all the same. */
#include "format/twins.h"

#include "../folder_files.h"
#include "format/table.h"
#include "io/source.h"

static ckpt__source *source;
static ckpt__twins *twins;

static void setup(void)
{
    make_folder();
    twins = ckpt__twins_new();
    ck_assert_ptr_nonnull(twins);
}

static void teardown(void)
{
    ckpt__twins_free(twins);
    ckpt__source_close(source);
    source = NULL;
    remove_folder();
}

enum { WHOLE, LACKS_RECORD, SHORT_RECORD };

/* w (3 x 4) and b, with values from `first` on. */
static void write_rank(const char *name, float first, int64_t step, int wrong)
{
    torch_file *t = begin_torch();
    char own[32];
    snprintf(own, sizeof own, "%.*s", (int)strcspn(name, "."), name);
    PUT(&t->pickle, "}(");
    put_str(&t->pickle, "w");
    torch_tensor(t, 2, 3, 4, first);
    put_str(&t->pickle, "step");
    put_int(&t->pickle, step);
    put_str(&t->pickle, "b");
    torch_tensor(t, 1, 5, 0, first + 100);
    PUT(&t->pickle, "u");
    t->count -= wrong == LACKS_RECORD;
    t->numel[1] -= wrong == SHORT_RECORD;
    write_torch_as(at("%s", name), own, t);
}

static ckpt_status try_read(const char *name, bool alone, ckpt__index **x, ckpt_error *err)
{
    if (!source)
        ck_assert_int_eq(ckpt__source_open(folder, &source, NULL), CKPT_OK);
    ckpt__read_request request = ckpt__read_all(source);
    request.twins = alone ? NULL : twins;
    *x = NULL;
    ck_assert_int_eq(ckpt__source_add(source, name, &request.file, err), CKPT_OK);
    return request.members->read(&request, NULL, x, err);
}

static ckpt__index *read_rank(const char *name)
{
    ckpt__index *x;
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(try_read(name, false, &x, &err) == CKPT_OK, "%s", err.message);
    return x;
}

/* It is what a read by itself finds. */
static void expect_same(const ckpt__index *x, const char *name)
{
    ckpt__index *own;
    ck_assert_int_eq(try_read(name, true, &own, NULL), CKPT_OK);
    ck_assert_str_eq(x->format, own->format);
    ck_assert(ckpt__str_equal(x->archive, own->archive));
    ck_assert_uint_eq(x->storage_count, own->storage_count);
    ck_assert_uint_eq(x->tensor_count, own->tensor_count);
    ck_assert_uint_eq(x->metadata_bytes, own->metadata_bytes);
    ck_assert_int_eq(x->pickle_protocol, own->pickle_protocol);
    ck_assert_uint_eq(ckpt_report_count(x->findings), ckpt_report_count(own->findings));
    ck_assert(ckpt__value_alike(x->root, own->root));
    for (size_t i = 0; i < own->storage_count; i++) {
        const ckpt__storage *a = &x->storages[i], *b = &own->storages[i];
        ck_assert(ckpt__str_equal(a->name, b->name));
        ck_assert(ckpt__str_equal(a->device, b->device));
        ck_assert_int_eq(a->dtype, b->dtype);
        ck_assert_int_eq(a->unit, b->unit);
        ck_assert_uint_eq(a->extent.file, b->extent.file);
        ck_assert_uint_eq(a->extent.offset, b->extent.offset);
        ck_assert_uint_eq(a->extent.length, b->extent.length);
        ck_assert_uint_eq(a->extent.size, b->extent.size);
        ck_assert_int_eq(a->extent.has_crc, b->extent.has_crc);
        ck_assert_uint_eq(a->extent.crc, b->extent.crc);
    }
    for (size_t i = 0; i < own->tensor_count; i++) {
        ck_assert(ckpt__str_equal(x->tensors[i].info.name, own->tensors[i].info.name));
        ck_assert(ckpt__same_view(&x->tensors[i], &own->tensors[i]));
        ck_assert_int_eq(x->tensors[i].info.storage, own->tensors[i].info.storage);
    }
    ckpt__index_free(own);
}

START_TEST(the_second_is_the_first_in_its_own_place)
{
    write_rank("a.pt", 1, 7, WHOLE);
    write_rank("rank_of_a_longer_name.pt", 2, 7, WHOLE);
    write_rank("c.pt", 3, 7, WHOLE);
    ckpt__index *a = read_rank("a.pt"), *b = read_rank("rank_of_a_longer_name.pt");
    const ckpt_value *root = a->root;
    ck_assert_ptr_eq(b->root, root);
    expect_same(a, "a.pt");
    ckpt__index_free(a); /* it is held */
    expect_same(b, "rank_of_a_longer_name.pt");
    ckpt__index_free(b);
    b = read_rank("c.pt");
    ck_assert_ptr_eq(b->root, root);
    expect_same(b, "c.pt");
    ckpt__index_free(b);
}
END_TEST

START_TEST(another_pickle_is_read_by_itself)
{
    write_rank("a.pt", 1, 7, WHOLE);
    write_rank("b.pt", 1, 8, WHOLE);
    ckpt__index *a = read_rank("a.pt"), *b = read_rank("b.pt");
    ck_assert_ptr_ne(b->root, a->root);
    ck_assert_int_eq(ckpt_value_get(b->root, "step")->integer, 8);
    expect_same(b, "b.pt");
    ckpt__index_free(a);
    ckpt__index_free(b);
}
END_TEST

START_TEST(records_that_do_not_fit_are_refused)
{
    static const char *const names[] = {[LACKS_RECORD] = "lacks.pt", [SHORT_RECORD] = "short.pt"};
    write_rank("a.pt", 1, 7, WHOLE);
    ckpt__index *a = read_rank("a.pt"), *x;
    for (int wrong = LACKS_RECORD; wrong <= SHORT_RECORD; wrong++) {
        ckpt_error alone = CKPT_ERROR_INIT, err = CKPT_ERROR_INIT;
        write_rank(names[wrong], 1, 7, wrong);
        ck_assert_int_eq(try_read(names[wrong], true, &x, &alone), CKPT_E_DAMAGED);
        ck_assert_int_eq(try_read(names[wrong], false, &x, &err), CKPT_E_DAMAGED);
        ck_assert_ptr_null(x);
        ck_assert_str_eq(err.message, alone.message);
    }
    ckpt__index_free(a);
}
END_TEST

/* What was found in the pickle names it: each has its own finding. */
START_TEST(what_is_found_is_found_in_each)
{
    static const char *const names[] = {"a.pt", "b.pt"};
    for (int i = 0; i < 2; i++) {
        torch_file *t = begin_torch();
        PUT(&t->pickle, "}(");
        put_str(&t->pickle, "w");
        torch_tensor(t, 1, 2, 0, 1);
        PUT(&t->pickle, "u.odd"); /* bytes behind the end */
        write_torch_as(at("%s", names[i]), i ? "b" : "a", t);
    }
    for (int i = 0; i < 2; i++) {
        ckpt__index *x = read_rank(names[i]);
        const ckpt_finding *f = ckpt_report_find(x->findings, "bytes-after-stop", NULL);
        ck_assert_ptr_nonnull(f);
        ck_assert_int_eq(f->message[0], i ? 'b' : 'a');
        ckpt__index_free(x);
    }
}
END_TEST

/* More than are kept. */
START_TEST(many_pickles_are_read)
{
    char name[32];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "r%d.pt", i);
        write_rank(name, (float)i, i % 20, WHOLE);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "r%d.pt", i);
        ckpt__index *x = read_rank(name);
        ck_assert_int_eq(ckpt_value_get(x->root, "step")->integer, i % 20);
        expect_same(x, name);
        ckpt__index_free(x);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("twins");
    TCase *t = tcase_create("twins");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, the_second_is_the_first_in_its_own_place);
    tcase_add_test(t, another_pickle_is_read_by_itself);
    tcase_add_test(t, records_that_do_not_fit_are_refused);
    tcase_add_test(t, what_is_found_is_found_in_each);
    tcase_add_test(t, many_pickles_are_read);
    suite_add_tcase(s, t);
    return run_suite(s);
}
