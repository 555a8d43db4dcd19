/* test_diff.c - what is changed is found, and nothing else; what is the same under other names is the same. */
#include "flat_file.h"
#include <math.h>

static ckpt_diff_result result;
static ckpt_report *report;
static ckpt_reader *left, *right;

static ckpt_status compare(const char *a, const char *b, const ckpt_diff_options *options)
{
    left = open_path(a);
    right = open_path(b);
    report = ckpt_report_new();
    return ckpt_diff(left, right, options, &result, report, &err);
}

static void done(void)
{
    ckpt_diff_result_clear(&result);
    ckpt_report_free(report);
    ckpt_reader_close(left);
    ckpt_reader_close(right);
}

static void write_pair(const flat_tensor *a, size_t na, const flat_tensor *b, size_t nb)
{
    write_flat(temporary("a"), a, na);
    write_flat(temporary("b"), b, nb);
}

static bool is(ckpt_str s, const char *text)
{
    return s.data && s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

static const float four[] = {1, 2, 3, 4}, other[] = {1, 2, 3.5f, 4}, two[] = {7, 8};

START_TEST(itself)
{
    static const char *const files[] = {"plain.pt",  "values.pt",        "tensors.pt",
                                        "shared.pt", "three-devices.pt", "weights.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_msg(compare(fixture(files[i]), fixture(files[i]), NULL) == CKPT_OK, "%s: %s", files[i], err.message);
        ck_assert_msg(result.same && result.tensor_count == 0 && result.scalar_count == 0, "%s", files[i]);
        ck_assert_uint_eq(result.of_tensors.same, ckpt_reader_tensor_count(left));
        done();
    }
}
END_TEST

START_TEST(changes)
{
    const double wide[] = {1, 2, 3, 4};
    const flat_tensor a[] = {FLAT("dtype", "F32", "4", four), FLAT("gone", "F32", "2", two),
                             FLAT("shape", "F32", "4", four), FLAT("value", "F32", "4", four)};
    const flat_tensor b[] = {FLAT("dtype", "F64", "4", wide), FLAT("new", "F32", "2", two),
                             FLAT("shape", "F32", "2,2", four), FLAT("value", "F32", "4", other)};
    static const struct {
        const char *name;
        ckpt_diff_status status;
        unsigned what;
    } want[] = {{"value", CKPT_DIFF_CHANGED, CKPT_DIFF_VALUE},
                {"shape", CKPT_DIFF_CHANGED, CKPT_DIFF_SHAPE},
                {"gone", CKPT_DIFF_REMOVED, 0},
                {"dtype", CKPT_DIFF_CHANGED, CKPT_DIFF_DTYPE},
                {"new", CKPT_DIFF_ADDED, 0}};
    write_pair(a, 4, b, 4);
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), NULL), CKPT_OK);
    ck_assert(!result.same);
    ck_assert_uint_eq(result.tensor_count, 5);
    for (size_t i = 0; i < 5; i++) {
        const ckpt_diff_tensor *t = NULL;
        for (size_t k = 0; k < result.tensor_count; k++)
            if (is(result.tensors[k]->name, want[i].name))
                t = result.tensors[k];
        ck_assert_msg(t && t->status == want[i].status && t->what == want[i].what, "%s", want[i].name);
        if (strcmp(want[i].name, "value") == 0)
            ck_assert(t->compared && t->elements == 4 && t->differing == 1 && t->max_abs == 0.5 &&
                      t->max_rel == 0.5 / 3.5);
        if (strcmp(want[i].name, "dtype") == 0)
            ck_assert(t->compared && t->differing == 0 && t->max_abs == 0);
    }
    ck_assert_uint_eq(result.of_tensors.changed, 3);
    done();
    ck_assert_int_eq(compare(temporary("a"), temporary("a"), &(ckpt_diff_options){.keep_same = true}), CKPT_OK);
    ck_assert(result.same && result.tensor_count == 4 && result.tensors[0]->status == CKPT_DIFF_SAME);
    done();
}
END_TEST

START_TEST(tolerances)
{
    const float x[] = {1, NAN, INFINITY, 0, 100}, y[] = {1.125f, NAN, INFINITY, -0.0f, 100};
    const int32_t i[] = {5}, k[] = {6};
    const flat_tensor a[] = {FLAT("f", "F32", "5", x), FLAT("i", "I32", "1", i)};
    const flat_tensor b[] = {FLAT("f", "F32", "5", y), FLAT("i", "I32", "1", k)};
    static const struct {
        bool tolerant;
        double atol, rtol;
        uint64_t differing; /* of f */
    } rows[] = {{false, 0, 0, 2},     {true, 0, 0, 1},      {true, 0.125, 0, 0}, {true, 0.124, 0, 1},
                {true, 0, 0.1112, 0}, {true, 0, 0.1111, 1}, {true, 100, 100, 0}};
    write_pair(a, 2, b, 2);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const ckpt_diff_options options = {
            .tolerant = rows[r].tolerant, .atol = rows[r].atol, .rtol = rows[r].rtol, .keep_same = true};
        ck_assert_int_eq(compare(temporary("a"), temporary("b"), &options), CKPT_OK);
        ck_assert_uint_eq(result.tensor_count, 2);
        size_t first = is(result.tensors[0]->name, "f") ? 0 : 1;
        const ckpt_diff_tensor *f = result.tensors[first], *n = result.tensors[1 - first];
        ck_assert_msg(f->differing == rows[r].differing, "row %zu: %d", r, (int)f->differing);
        ck_assert(f->nan_mismatch == 0 && f->max_abs == 0.125);
        ck_assert(n->status == CKPT_DIFF_CHANGED && n->max_abs == 1); /* integers stay exact */
        done();
    }
    const ckpt_diff_options wrong = {.tolerant = true, .atol = NAN};
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), &wrong), CKPT_E_ARGUMENT);
    done();
}
END_TEST

/* Integers that no double tells apart, and NaN on one side. */
START_TEST(numbers)
{
    const int64_t x[] = {INT64_MAX, INT64_MIN}, y[] = {INT64_MAX - 1, INT64_MAX}, z[] = {INT64_MAX - 1, INT64_MIN};
    const double d[] = {9223372036854775807.0, 0}, p[] = {NAN, 1}, q[] = {1, NAN};
    const flat_tensor a[] = {FLAT("i", "I64", "2", x), FLAT("m", "I64", "2", x), FLAT("n", "F64", "2", p),
                             FLAT("z", "I64", "2", x)};
    const flat_tensor b[] = {FLAT("i", "I64", "2", y), FLAT("m", "F64", "2", d), FLAT("n", "F64", "2", q),
                             FLAT("z", "I64", "2", z)};
    write_pair(a, 4, b, 4);
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), NULL), CKPT_OK);
    ck_assert_uint_eq(result.tensor_count, 4);
    for (size_t k = 0; k < 4; k++) {
        const ckpt_diff_tensor *t = result.tensors[k];
        if (is(t->name, "i"))
            ck_assert(t->differing == 2 && t->max_abs == 0x1p64);
        else if (is(t->name, "z"))
            ck_assert(t->differing == 1 && t->max_abs == 1);
        else if (is(t->name, "m"))
            ck_assert(t->differing == 2 && t->max_abs == 0x1p63 &&
                      isinf(t->max_rel)); /* 2^63 is one more than the first */
        else
            ck_assert(t->differing == 2 && t->nan_mismatch == 2 && t->max_abs == 0);
    }
    done();
}
END_TEST

/* Integers of 64 bits against floats: whole ones, fractions, what is far beyond, what is not finite. */
START_TEST(integers_against_floats)
{
    const uint64_t u[] = {UINT64_MAX, UINT64_MAX, 3, 1, 0, 7};
    const double f[] = {0x1p64, 0x1.fffffffffffffp63, 3, 1.25, 0x1p200, -INFINITY};
    const double apart[] = {1, 2047, 0, 0.25, 0x1p200, INFINITY};
    for (size_t i = 0; i < sizeof u / sizeof *u; i++) {
        const flat_tensor a = {"t", "U64", "1", &u[i], sizeof u[i]}, b = {"t", "F64", "1", &f[i], sizeof f[i]};
        write_pair(&a, 1, &b, 1);
        ck_assert_int_eq(compare(temporary(i % 2 ? "b" : "a"), temporary(i % 2 ? "a" : "b"), NULL), CKPT_OK);
        ck_assert_uint_eq(result.tensor_count, 1); /* of other dtypes */
        ck_assert_uint_eq(result.tensors[0]->differing, apart[i] > 0);
        ck_assert(result.tensors[0]->max_abs == apart[i]);
        done();
    }
}
END_TEST

/* A torch file and what it becomes in our own format: other names, no difference. */
START_TEST(migrated)
{
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    ck_assert_int_eq(ckpt_migrate(fixture("plain.pt"), temporary("native.safetensors"), &options, NULL, &err), CKPT_OK);
    for (int turned = 0; turned < 2; turned++) {
        const char *a = turned ? temporary("native.safetensors") : fixture("plain.pt");
        const char *b = turned ? fixture("plain.pt") : temporary("native.safetensors");
        ck_assert_int_eq(compare(a, b, NULL), CKPT_OK);
        ck_assert_msg(result.same, "%s",
                      result.scalar_count ? result.scalars[0]->name.data : result.tensors[0]->name.data);
        ck_assert_uint_eq(result.of_tensors.same, 27);
        ck_assert_uint_gt(result.of_tensors.by_canonical, 20);
        ck_assert_uint_gt(result.of_scalars.by_canonical, 5);
        done();
    }
    ck_assert_int_eq(compare(temporary("native.safetensors"), fixture("fused-step-cpu.pt"), NULL), CKPT_OK);
    ck_assert(!result.same);
    bool fused = false;
    for (size_t i = 0; i < result.scalar_count; i++)
        if (is(result.scalars[i]->name, "optimizer.groups.0.fused")) {
            fused = result.scalars[i]->status == CKPT_DIFF_CHANGED && result.scalars[i]->match == CKPT_MATCH_CANONICAL;
            ck_assert(result.scalars[i]->name_b.size > result.scalars[i]->name_a.size); /* ...param_groups.0.fused */
        }
    ck_assert(fused);
    done();
}
END_TEST

/* A path in front of all names; of half of them it is enough, of fewer it is chance. */
START_TEST(prefixes)
{
    const flat_tensor bare[] = {FLAT("a.weight", "F32", "4", four), FLAT("b.weight", "F32", "2", two)};
    const flat_tensor wrapped[] = {FLAT("module.a.weight", "F32", "4", four), FLAT("module.b.weight", "F32", "2", two)};
    write_pair(bare, 2, wrapped, 2);
    for (int turned = 0; turned < 2; turned++) {
        ck_assert_int_eq(compare(temporary(turned ? "b" : "a"), temporary(turned ? "a" : "b"), NULL), CKPT_OK);
        ck_assert(result.same && result.of_tensors.by_prefix == 2);
        ck_assert_uint_eq(ckpt_report_count_code(report, "matched-prefix"), 1);
        done();
    }
    const flat_tensor many[] = {FLAT("weight", "F32", "4", four), FLAT("x", "F32", "2", two),
                                FLAT("y", "F32", "2", two)};
    const flat_tensor one[] = {FLAT("head.weight", "F32", "4", four)};
    write_pair(many, 3, one, 1);
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), NULL), CKPT_OK);
    ck_assert(result.of_tensors.removed == 3 && result.of_tensors.added == 1 && result.of_tensors.by_prefix == 0);
    done();
}
END_TEST

/* A second name of a storage is not a tensor that is missing; a view of another part of it is. */
START_TEST(second_names)
{
    const float whole[] = {0, 1, 2, 3, 4, 5};
    const flat_tensor flat[] = {FLAT("whole", "F32", "6", whole)};
    write_flat(temporary("flat"), flat, 1);
    ckpt_reader *shared = open_path(fixture("shared.pt"));
    const ckpt_tensor_info *t = ckpt_reader_tensor(shared, 0);
    ck_assert_uint_eq(ckpt_reader_tensor_count(shared), 2);
    ck_assert(is(t->name, "whole"));
    ckpt_reader_close(shared);
    ck_assert_int_eq(compare(fixture("shared.pt"), temporary("flat"), NULL), CKPT_OK);
    ck_assert(result.of_tensors.tied == 0 && result.of_tensors.removed == 1);
    ck_assert_uint_eq(ckpt_report_count_code(report, "no-device-tags"), 1);
    done();
}
END_TEST

static bool only_b(void *ctx, const ckpt_tensor_info *t)
{
    (void)ctx;
    return t->name.data[0] == 'b';
}

static int stop(void *ctx, uint64_t at, uint64_t total)
{
    *(int *)ctx += 1;
    ck_assert_uint_le(at, total);
    return 1;
}

START_TEST(choice_and_end)
{
    const flat_tensor a[] = {FLAT("a", "F32", "4", four), FLAT("b", "F32", "2", two)},
                      b[] = {FLAT("a", "F32", "4", other)};
    int calls = 0;
    const ckpt_progress progress = {stop, &calls};
    write_pair(a, 2, b, 1);
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), &(ckpt_diff_options){.wanted = only_b}), CKPT_OK);
    ck_assert(result.of_tensors.removed == 1 && result.of_tensors.changed == 0 && result.tensor_count == 1);
    done();
    ck_assert_int_eq(compare(fixture("plain.pt"), fixture("values.pt"), &(ckpt_diff_options){.wanted = only_b}),
                     CKPT_OK);
    ck_assert(result.same && result.scalar_count == 0 && result.of_scalars.removed == 0);
    done();
    ck_assert_int_eq(compare(temporary("a"), temporary("b"), &(ckpt_diff_options){.progress = progress}),
                     CKPT_E_CANCELLED);
    ck_assert(calls == 1 && result.tensor_count == 0 && !result.owned);
    done();
    ck_assert_int_eq(ckpt_diff(NULL, NULL, NULL, &result, NULL, &err), CKPT_E_ARGUMENT);
}
END_TEST

START_TEST(damaged)
{
    for (int turned = 0; turned < 2; turned++) {
        const char *a = fixture(turned ? "plain.pt" : "bad-crc.pt"), *b = fixture(turned ? "bad-crc.pt" : "plain.pt");
        ck_assert_int_eq(compare(a, b, NULL), CKPT_E_DAMAGED);
        ck_assert_str_eq(err.object, "model.0.weight");
        ck_assert_ptr_nonnull(strstr(err.message, turned ? "in B (" : "in A ("));
        done();
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("diff");
    TCase *t = tcase_create("diff");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, itself);
    tcase_add_test(t, changes);
    tcase_add_test(t, tolerances);
    tcase_add_test(t, numbers);
    tcase_add_test(t, integers_against_floats);
    tcase_add_test(t, migrated);
    tcase_add_test(t, prefixes);
    tcase_add_test(t, second_names);
    tcase_add_test(t, choice_and_end);
    tcase_add_test(t, damaged);
    suite_add_tcase(s, t);
    return run_suite(s);
}
