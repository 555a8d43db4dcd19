/* test_diff_objects.c - what has its numbers elsewhere than in its elements or its text: scalars of numpy, quantized tensors. */
#include <ckpt/ckpt.h>
#include "../folder_files.h"

static ckpt_error err;
static ckpt_diff_result result;
static ckpt_reader *left, *right;

static ckpt_status compare(const char *a, const char *b)
{
    ck_assert_msg(ckpt_reader_open(a, NULL, &left, &err) == CKPT_OK, "%s: %s", a, err.message);
    ck_assert_msg(ckpt_reader_open(b, NULL, &right, &err) == CKPT_OK, "%s: %s", b, err.message);
    return ckpt_diff(left, right, NULL, &result, NULL, &err);
}

static void done(void)
{
    ckpt_diff_result_clear(&result);
    ckpt_reader_close(left);
    ckpt_reader_close(right);
}

static bool is(ckpt_str s, const char *text)
{
    return s.data && s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

/* {"x": numpy.float64(value)} */
static void write_numpy(const char *name, double value)
{
    bytes pickle = {0};
    PUT(&pickle, "\200\3}");
    put_str(&pickle, "x");
    PUT(&pickle, "cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\n");
    put_str(&pickle, "f8");
    PUT(&pickle, "\211\210\207R(K\3");
    put_str(&pickle, "<");
    PUT(&pickle, "NNNJ\377\377\377\377J\377\377\377\377K\0tbC\10");
    put(&pickle, &value, sizeof value);
    PUT(&pickle, "\206Rs.");
    write_to(at("%s", name), pickle.data, pickle.size);
}

/* A scalar of numpy is an object whose number lies in its bytes. */
START_TEST(numpy_scalars)
{
    write_numpy("one.pkl", 1);
    write_numpy("two.pkl", 2);
    ck_assert_msg(compare(at("one.pkl"), at("one.pkl")) == CKPT_OK, "%s", err.message);
    ck_assert(result.same && result.of_scalars.same == 1);
    done();
    ck_assert_int_eq(compare(at("one.pkl"), at("two.pkl")), CKPT_OK);
    ck_assert(!result.same && result.scalar_count == 1);
    ck_assert(is(result.scalars[0]->name, "x") && result.scalars[0]->what == CKPT_DIFF_VALUE);
    done();
}
END_TEST

/* {"w": four codes of int8, of this scale} */
static void write_quantized(const char *name, double scale)
{
    torch_file *t = begin_torch();
    t->numel[t->count++] = 1; /* four bytes */
    PUT(&t->pickle, "}");
    put_str(&t->pickle, "w");
    PUT(&t->pickle, "ctorch._utils\n_rebuild_qtensor\n((");
    put_str(&t->pickle, "storage");
    PUT(&t->pickle, "ctorch\nQInt8Storage\n");
    put_str(&t->pickle, "0");
    put_str(&t->pickle, "cpu");
    PUT(&t->pickle, "K\4tQK\0K\4\205K\1\205(ctorch\nper_tensor_affine\n");
    torch_float(t, scale);
    PUT(&t->pickle, "K\0t\211ccollections\nOrderedDict\n)RtRs");
    write_torch(at("%s", name), t);
}

/* The same codes of another scale are other numbers. */
START_TEST(quantized)
{
    write_quantized("a.pt", 0.5);
    write_quantized("b.pt", 0.25);
    ck_assert_msg(compare(at("a.pt"), at("a.pt")) == CKPT_OK, "%s", err.message);
    ck_assert(result.same && result.of_tensors.same == 1);
    done();
    ck_assert_int_eq(compare(at("a.pt"), at("b.pt")), CKPT_OK);
    ck_assert(!result.same && result.tensor_count == 1 && result.tensors[0]->what == CKPT_DIFF_LAYOUT);
    done();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("diff_objects");
    TCase *t = tcase_create("diff_objects");
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, numpy_scalars);
    tcase_add_test(t, quantized);
    suite_add_tcase(s, t);
    return run_suite(s);
}
