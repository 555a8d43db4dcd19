/* test_migrate_views.c - views of one storage that are not the same tensor (conjugated, negated), converted; and tensors of very many
 * dimensions, read back. */
#include "given_reader.h"
#include "../migrate_setup.h"

enum { NUMBERS = 12, VIEWS = 6 };

typedef struct lazy {
    const char *name;
    ckpt_dtype dtype, cast;
    bool conj, neg;
} lazy;

/* {x, x.conj(), y, y negated, and of each its values once more}: x is 6 complex64, y 12 float32, of one storage each. */
static const lazy views[VIEWS] = {
    {"x", CKPT_C64, CKPT_C128, false, false},     {"x.conj", CKPT_C64, CKPT_C128, true, false},
    {"y", CKPT_F32, CKPT_F64, false, false},      {"y.neg", CKPT_F32, CKPT_F64, false, true},
    {"x.tied", CKPT_C64, CKPT_C128, true, false}, {"y.tied", CKPT_F32, CKPT_F64, false, true},
};

static float number(size_t i)
{
    return (float)(i + 1) * 0.5f;
}

/* The tensors in the order in which `order` has them; the index and the source are given to the next reader. */
static void give_views(const size_t *order)
{
    float data[2 * NUMBERS];
    ckpt__index *made = ckpt__index_new(0);
    ckpt__source *from;
    for (size_t i = 0; i < 2 * NUMBERS; i++)
        data[i] = number(i % NUMBERS);
    write_to(at("source"), data, sizeof data);
    for (uint32_t i = 0; i < 2; i++) {
        ckpt__storage *s = ckpt__index_add_storage(made);
        *s = (ckpt__storage){.unit = 1};
        s->extent.size = s->extent.length = sizeof data / 2;
        s->extent.offset = i * sizeof data / 2;
    }
    for (size_t i = 0; i < VIEWS; i++) {
        const lazy *v = &views[order[i]];
        bool complex = v->dtype == CKPT_C64;
        int64_t shape = complex ? NUMBERS / 2 : NUMBERS;
        ckpt__tensor *t = ckpt__index_add_tensor(made);
        t->info.name = ckpt__s(v->name);
        t->info.dtype = v->dtype;
        t->info.ndim = 1;
        t->info.conj = v->conj;
        t->info.neg = v->neg;
        ck_assert(ckpt__index_set_view(made, i, complex ? 0 : 1, &shape, NULL, 0, &err) == CKPT_OK);
    }
    made->format = "safetensors";
    made->kind = "file";
    made->step = -1;
    ck_assert(ckpt__index_finish(made, &err) == CKPT_OK);
    ck_assert(ckpt__source_open(at("source"), &from, &err) == CKPT_OK);
    give_reader(from, made);
}

/* as_bytes: the format has no complex128, and has its bytes. */
static void expect_views(const char *path, bool as_bytes)
{
    ckpt_reader *r = opened(path);
    for (size_t i = 0; i < VIEWS; i++) {
        const lazy *v = &views[i];
        double got[NUMBERS];
        size_t tensor;
        ck_assert(ckpt_reader_find(r, v->name, strlen(v->name), &tensor, &err) == CKPT_OK);
        ckpt_dtype is = ckpt_reader_tensor(r, tensor)->dtype;
        ck_assert_msg(is == v->cast || (as_bytes && v->dtype == CKPT_C64 && is == CKPT_U8), "'%s' is %s", v->name,
                      ckpt_dtype_name(is));
        ck_assert(ckpt_reader_read(r, tensor, got, sizeof got, &err) == CKPT_OK);
        for (size_t k = 0; k < NUMBERS; k++) {
            double sign = v->neg || (v->conj && k % 2) ? -1 : 1;
            ck_assert_msg(got[k] == sign * (double)number(k), "%s: '%s' [%zu] is %g", path, v->name, k, got[k]);
        }
    }
    ckpt_reader_close(r);
}

START_TEST(lazy_views)
{
    static const char *const casts[VIEWS] = {"x=complex128",  "x.conj=complex128", "y=float64",
                                             "y.neg=float64", "x.tied=complex128", "y.tied=float64"};
    static const char *const formats[] = {"torch", "ckpt", "safetensors"};
    options.cast = casts;
    options.cast_count = VIEWS;
    options.lossy = true;
    for (size_t turn = 0; turn < VIEWS; turn++)
        for (size_t f = 0; f < 3; f++) {
            size_t order[VIEWS];
            for (size_t i = 0; i < VIEWS; i++)
                order[i] = (turn + (turn % 2 ? VIEWS - i : i)) % VIEWS;
            give_views(order);
            migrates(at("source"), formats[f], at("target"));
            expect_views(at("target"), f == 2);
        }
}
END_TEST

/* ---- many dimensions */

/* A safetensors file of one float32 tensor 'w' of shape 1 x 1 x ... x 3 x 4. */
static void write_deep(const char *path, size_t ndim)
{
    char *head = malloc(8 + 100 + 2 * ndim);
    size_t n = (size_t)sprintf(head + 8, "{\"w\":{\"dtype\":\"F32\",\"shape\":[");
    float data[NUMBERS];
    for (size_t i = 0; i + 2 < ndim; i++)
        n += (size_t)sprintf(head + 8 + n, "1,");
    n += (size_t)sprintf(head + 8 + n, "3,4],\"data_offsets\":[0,48]}}");
    for (size_t i = 0; i < NUMBERS; i++)
        data[i] = number(i);
    memcpy(head, &n, sizeof n);
    char *all = malloc(8 + n + sizeof data);
    memcpy(all, head, 8 + n);
    memcpy(all + 8 + n, data, sizeof data);
    write_to(path, all, 8 + n + sizeof data);
    free(head);
    free(all);
}

START_TEST(many_dimensions)
{
    static const size_t counts[] = {2, 63, 64, 65, 66, 200, 1024};
    static const char *const formats[] = {"torch", "ckpt", "safetensors"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t f = 0; f < 3; f++) {
            float got[NUMBERS];
            write_deep(at("deep"), counts[i]);
            options.lossy = true;
            migrates(at("deep"), formats[f], at("target"));
            ckpt_reader *r = opened(at("target"));
            const ckpt_tensor_info *t = find(r, "w");
            ck_assert_ptr_nonnull(t);
            ck_assert_uint_eq(t->ndim, counts[i]);
            ck_assert_int_eq(t->shape[counts[i] - 1], 4);
            ck_assert(ckpt_reader_read(r, 0, got, sizeof got, &err) == CKPT_OK);
            for (size_t k = 0; k < NUMBERS; k++)
                ck_assert(got[k] == number(k));
            ckpt_reader_close(r);
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate_views");
    TCase *t = tcase_create("migrate_views");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, lazy_views);
    tcase_add_test(t, many_dimensions);
    suite_add_tcase(s, t);
    return run_suite(s);
}
