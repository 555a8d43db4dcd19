/* test_state_array.c - arrays that the trainer frees and allocates anew. */
#include "../run_fixture.h"

typedef struct loader {
    int *order;
    size_t count;
} loader;

static void fill_order(loader *l, size_t count, int seed)
{
    free(l->order);
    l->order = malloc(count * sizeof *l->order + 1);
    l->count = count;
    for (size_t i = 0; i < count; i++)
        l->order[i] = (int)i * 7 + seed;
}

static bool has_order(const loader *l, size_t count, int seed)
{
    for (size_t i = 0; i < count && l->count == count; i++)
        if (l->order[i] != (int)i * 7 + seed)
            return false;
    return l->count == count;
}

static ckpt_state *bind_loader(loader *l)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    IS_OK(ckpt_state_array(s, "loader.order", &l->order, &l->count, sizeof *l->order, &err));
    return s;
}

START_TEST(takes_the_length_of_the_checkpoint)
{
    static const size_t lengths[] = {0, 1, 13, 5000};
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            loader one = {NULL, 0}, two = {NULL, 0};
            ckpt_state *s = bind_loader(&one), *t = bind_loader(&two);
            fill_order(&one, 99, 1); /* bound, then freed and allocated anew */
            fill_order(&one, lengths[i], 5);
            IS_OK(ckpt_save(s, in_folder("one"), NULL, &err));
            fill_order(&two, lengths[k], 2);
            ckpt_status status = ckpt_restore(t, in_folder("one"), NULL, NULL, &err);
            ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
            ck_assert(has_order(&two, lengths[i], 5));
            ckpt_state_free(s);
            ckpt_state_free(t);
            free(one.order);
            free(two.order);
        }
}
END_TEST

START_TEST(null_is_an_empty_array)
{
    loader one = {NULL, 0}, two = {NULL, 0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = bind_loader(&one), *t = bind_loader(&two);
    IS_OK(ckpt_save(s, in_folder("one"), NULL, &err));
    fill_order(&two, 3, 1);
    IS_OK(ckpt_restore(t, in_folder("one"), NULL, NULL, &err));
    ck_assert(two.count == 0 && two.order != NULL);
    one.count = 3; /* freed, and the count forgotten */
    ck_assert_int_eq(ckpt_save(s, in_folder("two"), NULL, &err), CKPT_E_ARGUMENT);
    ck_assert_str_eq(err.object, "loader.order");
    ck_assert_ptr_nonnull(strstr(err.message, "its pointer is NULL, and its count is 3"));
    ck_assert(access(in_folder("two"), F_OK) != 0);
    one.count = SIZE_MAX;
    ck_assert_int_eq(ckpt_save(s, in_folder("two"), NULL, &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
    ckpt_state_free(t);
    free(two.order);
}
END_TEST

START_TEST(other_elements_are_refused)
{
    loader one = {NULL, 0};
    double *reals = malloc(sizeof *reals);
    size_t count = 1;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = bind_loader(&one), *t = ckpt_state_new();
    reals[0] = 4;
    IS_OK(ckpt_state_array(t, "loader.order", &reals, &count, sizeof *reals, &err));
    fill_order(&one, 3, 1);
    IS_OK(ckpt_save(s, in_folder("one"), NULL, &err));
    ck_assert_int_eq(ckpt_restore(t, in_folder("one"), NULL, NULL, &err), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "12 bytes in the checkpoint, which are not whole elements of 8 bytes"));
    ck_assert(count == 1 && reals[0] == 4 && !ckpt_state_poisoned(t));
    ck_assert_int_eq(ckpt_state_array(t, "a", NULL, &count, 4, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_array(t, "a", &reals, NULL, 4, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_array(t, "a", &reals, &count, 0, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(ckpt_state_array(t, "loader.order", &reals, &count, 4, &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
    ckpt_state_free(t);
    free(one.order);
    free(reals);
}
END_TEST

/* The writer stands at the gate while the array is freed and allocated anew. */
START_TEST(freed_while_a_save_is_written)
{
    loader l = {NULL, 0};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run = NULL;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    int64_t done = 0;
    ckpt_state *s = bind_loader(&l);
    fill_order(&l, 400, 3);
    IS_OK(ckpt_run_open(in_folder("run"), s, &o, &run, &err));
    ck_assert_int_eq(ckpt_run_resume(run, NULL, &done, NULL, &err), CKPT_NOTHING_TO_RESUME);
    gate_set(true, 0);
    IS_OK(ckpt_run_save(run, 1, &err));
    gate_meet(1);
    fill_order(&l, 7, 9);
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(run, &err));
    ckpt_status status = ckpt_run_resume(run, NULL, &done, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert(done == 1 && has_order(&l, 400, 3));
    IS_OK(ckpt_run_close(run, &err));
    ckpt_state_free(s);
    free(l.order);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arrays");
    TCase *tc = tcase_create("array");
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, takes_the_length_of_the_checkpoint);
    tcase_add_test(tc, null_is_an_empty_array);
    tcase_add_test(tc, other_elements_are_refused);
    tcase_add_test(tc, freed_while_a_save_is_written);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
