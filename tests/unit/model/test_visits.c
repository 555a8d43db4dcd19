/* What walks of a tree do for several rooms: copies of their ways, values as bytes, tensors among them and their numbers. */
#include "model/visits.h"
#include "../made_values.h"
#include "../runner.h"

/* ---- rows and paths */

static int on_tensor(void *ctx, const ckpt_visit *visit)
{
    ckpt_tensor_info *out = ctx;
    return visit->value->kind == CKPT_V_TENSOR && !ckpt__visit_row(ix->arena, visit, out) ? CKPT_E_NO_MEMORY : CKPT_OK;
}

START_TEST(rows_outlive_the_walk)
{
    const ckpt_value *t = tensor_of(1, CKPT_ROLE_NONE), *items[] = {number(1), t};
    const ckpt_value *list = ckpt__value_list(ix->arena, CKPT_V_LIST, items, 2);
    const ckpt_entry by_float = {ckpt__value_float(ix->arena, 2.5), list};
    const ckpt_value *root = dict_of("a.b", ckpt__value_dict(ix->arena, &by_float, 1), NULL, NULL);
    ckpt_tensor_info row = {.inside = true};
    ck_assert_int_eq(ckpt_value_walk(root, 0, on_tensor, &row, NULL), CKPT_OK);
    ck_assert(ckpt__str_is(row.name, "a.b.2.5.1") && !row.inside);
    ck_assert_uint_eq(row.path.count, 3);
    ck_assert(ckpt__str_is(row.path.keys[0].text, "a.b") && !row.path.keys[0].other);
    ck_assert(ckpt__str_is(row.path.keys[1].text, "2.5") && row.path.keys[1].other);
    ck_assert(!row.path.keys[2].text.data && row.path.keys[2].number == 1);
    ck_assert_int_eq(ckpt_value_walk(t, 0, on_tensor, &row, NULL), CKPT_OK);
    ck_assert(row.name.data && row.name.size == 0 && row.path.count == 0);
}
END_TEST

/* ---- bytes */

static int on_print(void *ctx, const ckpt_visit *visit)
{
    ckpt__visit_bytes(ctx, visit);
    return CKPT_OK;
}

static bool same_bytes(const ckpt_value *a, const ckpt_value *b)
{
    ckpt__buf one = {0}, two = {0};
    ck_assert_int_eq(ckpt_value_walk(a, 0, on_print, &one, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt_value_walk(b, 0, on_print, &two, NULL), CKPT_OK);
    ck_assert(!one.failed && !two.failed);
    const bool same = one.size == two.size && memcmp(one.data, two.data, one.size) == 0;
    ckpt__buf_free(&one);
    ckpt__buf_free(&two);
    return same;
}

static const ckpt_value *list_of(ckpt_kind kind, const ckpt_value *one, const ckpt_value *two)
{
    const ckpt_value *items[] = {one, two};
    return ckpt__value_list(ix->arena, kind, items, two ? 2 : 1);
}

static const ckpt_value *array_of(const char *dtype, const int64_t *shape)
{
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_ARRAY);
    ckpt_array *a = ckpt__arena_alloc(ix->arena, sizeof *a);
    *a = (ckpt_array){.dtype = ckpt__s(dtype), .shape = shape, .ndim = 2};
    v->array = a;
    v->text = ckpt__s("123456");
    return v;
}

/* No two of these are the same, and each is the same as itself made anew. */
static size_t make_unlike(const ckpt_value **out)
{
    static const int64_t wide[] = {2, 3}, high[] = {3, 2};
    size_t n = 0;
    ckpt_value *classed = dict_of("a", number(1), NULL, NULL), *cyclic = dict_of("a", number(1), "b", NULL);
    classed->class_name = ckpt__s("collections.OrderedDict");
    ((ckpt_entry *)(uintptr_t)cyclic->entries)[1].value = cyclic;
    out[n++] = number(1);
    out[n++] = number(0);
    out[n++] = ckpt__value_bool(ix->arena, true);
    out[n++] = ckpt__value_bool(ix->arena, false);
    out[n++] = ckpt__value_float(ix->arena, 1);
    out[n++] = ckpt__value_float(ix->arena, 0);
    out[n++] = ckpt__value_float(ix->arena, -0.0);
    out[n++] = word("1");
    out[n++] = ckpt__value_new(ix->arena, CKPT_V_NONE);
    out[n++] = dict_of("a", number(1), NULL, NULL);
    out[n++] = dict_of("b", number(1), NULL, NULL);
    out[n++] = dict_of("a", number(1), "b", number(2));
    out[n++] = dict_of("b", number(2), "a", number(1));
    out[n++] = classed;
    out[n++] = cyclic;
    out[n++] = list_of(CKPT_V_LIST, number(1), NULL);
    out[n++] = list_of(CKPT_V_TUPLE, number(1), NULL);
    out[n++] = list_of(CKPT_V_LIST, number(1), number(2));
    out[n++] = list_of(CKPT_V_LIST, list_of(CKPT_V_LIST, number(1), NULL), number(2));
    out[n++] = list_of(CKPT_V_LIST, list_of(CKPT_V_LIST, number(1), number(2)), NULL);
    out[n++] = array_of("<i1", wide);
    out[n++] = array_of("<i1", high);
    out[n++] = array_of("<u1", wide);
    return n;
}

START_TEST(values_that_are_the_same_have_the_same_bytes)
{
    const ckpt_value *one[40], *two[40];
    const size_t n = make_unlike(one);
    ck_assert_uint_eq(make_unlike(two), n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            ck_assert_msg(same_bytes(one[i], two[k]) == (i == k), "values %zu and %zu", i, k);
}
END_TEST

/* ---- tensors */

START_TEST(a_tensor_is_found_at_any_depth)
{
    const ckpt_value *t = tensor_of(1, CKPT_ROLE_NONE);
    ck_assert_int_eq(ckpt__value_has_tensor(t, NULL), 1);
    ck_assert_int_eq(ckpt__value_has_tensor(number(1), NULL), 0);
    ck_assert_int_eq(ckpt__value_has_tensor(dict_of("a", list_of(CKPT_V_LIST, number(1), t), NULL, NULL), NULL), 1);
    ck_assert_int_eq(ckpt__value_has_tensor(dict_of("a", list_of(CKPT_V_LIST, number(1), number(2)), NULL, NULL), NULL),
                     0);
}
END_TEST

/* 0, 1, 2 and 3 become 2, 0, none and 1, where the first stands twice: by one walk it would become 2, and then none. */
START_TEST(numbers_change_once)
{
    const size_t now[] = {3, 1, 0, 2};
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_value *t[5];
    for (size_t i = 0; i < 5; i++)
        t[i] = tensor_of(1, CKPT_ROLE_NONE);
    const ckpt_value *items[] = {t[0], t[1], t[2], t[0], t[3], t[2], t[4]};
    const ckpt_value *root = ckpt__value_list(ix->arena, CKPT_V_LIST, items, 7);
    ck_assert_int_eq(ckpt__values_number(root, now, 4, &err), CKPT_OK);
    ck_assert(t[0]->kind == CKPT_V_TENSOR && t[0]->tensor == 2);
    ck_assert(t[1]->kind == CKPT_V_TENSOR && t[1]->tensor == 0);
    ck_assert_int_eq(t[2]->kind, CKPT_V_NONE);
    ck_assert(t[3]->kind == CKPT_V_TENSOR && t[3]->tensor == 1);
    ck_assert_msg(t[4]->kind == CKPT_V_TENSOR && t[4]->tensor == 4, "it is none of those four");
    ck_assert_int_eq(ckpt__values_number(NULL, now, 4, &err), CKPT_OK);
}
END_TEST

/* ---- rows that need no bytes of a file, or none that another row has */

START_TEST(a_tensor_without_elements_is_a_view_of_nothing)
{
    const int64_t shape[] = {3, 0}, some[] = {3, 1};
    ckpt_error err = CKPT_ERROR_INIT;
    tensor_of(2, CKPT_ROLE_NONE);
    ix->tensors[0].info.dtype = CKPT_F32;
    ck_assert_int_eq(ckpt__index_set_empty(ix, 0, shape, &err), CKPT_OK);
    const ckpt__tensor *t = &ix->tensors[0];
    ck_assert(t->whole && t->info.nbytes == 0 && t->info.shape[0] == 3 && t->info.shape[1] == 0);
    ck_assert(ix->storages[t->storage].extent.size == 0 && ix->storages[t->storage].dtype == CKPT_F32);
    ck_assert_int_eq(ckpt__index_set_empty(ix, 0, some, &err), CKPT_E_FORMAT);
}
END_TEST

START_TEST(a_storage_of_its_own_has_the_same_bytes)
{
    const int64_t shape[] = {2};
    static const float bytes[] = {1, 2};
    ckpt__storage *s = ckpt__index_add_storage(ix);
    s->extent.memory = bytes;
    s->extent.size = s->extent.length = sizeof bytes;
    for (size_t i = 0; i < 2; i++) {
        tensor_of(1, CKPT_ROLE_NONE);
        ix->tensors[i].info.dtype = CKPT_F32;
        ck_assert_int_eq(ckpt__index_set_view(ix, i, 0, shape, NULL, 0, NULL), CKPT_OK);
    }
    ck_assert(ckpt__same_storage(&ix->tensors[0], &ix->tensors[1]));
    ck_assert(ckpt__index_own_storage(ix, 1));
    ck_assert(!ckpt__same_storage(&ix->tensors[0], &ix->tensors[1]));
    ck_assert_ptr_eq(ix->storages[ix->tensors[1].storage].extent.memory, bytes);
    ck_assert_uint_eq(ix->storages[ix->tensors[1].storage].extent.size, sizeof bytes);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("visits");
    TCase *t = tcase_create("visits");
    tcase_add_checked_fixture(t, make_index, free_index);
    tcase_add_test(t, rows_outlive_the_walk);
    tcase_add_test(t, values_that_are_the_same_have_the_same_bytes);
    tcase_add_test(t, a_tensor_is_found_at_any_depth);
    tcase_add_test(t, numbers_change_once);
    tcase_add_test(t, a_tensor_without_elements_is_a_view_of_nothing);
    tcase_add_test(t, a_storage_of_its_own_has_the_same_bytes);
    suite_add_tcase(s, t);
    return run_suite(s);
}
