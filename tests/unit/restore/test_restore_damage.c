/* test_restore_damage.c - restores of damaged files: the damage is found, and the report says what each tensor then is. */
#include "restore_pair.h"

START_TEST(every_flipped_bit_is_found)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const char *path = in_folder("a.safetensors"), *bad = in_folder("bad.safetensors");
    char keep_bad[128];
    strcpy(keep_bad, bad);
    OK(ckpt_save(sa, path, NULL, &err));
    load_image(path);
    long stride = getenv("CKPT_TEST_ALL_BITS") ? 1 : 7, flips = 0;
    for (long bit = 0; bit < image_size * 8; bit += stride, flips++) {
        image[bit / 8] ^= (unsigned char)(1 << bit % 8);
        store(keep_bad, image, image_size);
        ckpt_status status = ckpt_restore(sb, keep_bad, NULL, NULL, &err);
        ck_assert_msg(status < 0, "bit %ld went through", bit);
        ck_assert_msg(err.message[0] != '\0', "bit %ld: no message", bit);
        ckpt_verify_result v = CKPT_VERIFY_RESULT_INIT;
        ckpt_report *r = ckpt_report_new();
        status = ckpt_verify(keep_bad, NULL, &v, r, &err);
        ck_assert_msg(status == CKPT_ANSWER_NO || status == CKPT_E_TOO_NEW || status == CKPT_E_FORMAT,
                      "bit %ld: verify says %d", bit, status);
        ck_assert_msg(status != CKPT_ANSWER_NO || ckpt_report_worst(r) == CKPT_SEVERITY_ERROR, "bit %ld: no finding",
                      bit);
        ck_assert_msg(strcmp(v.format, "safetensors") != 0 || status != CKPT_OK, "bit %ld: read as a plain file", bit);
        ckpt_report_free(r);
        image[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ck_assert_int_gt(flips, 1000);
    free(image);
}
END_TEST

START_TEST(every_truncation_is_found)
{
    ckpt_error err = CKPT_ERROR_INIT;
    char bad[128];
    strcpy(bad, in_folder("bad.safetensors"));
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    load_image(in_folder("a.safetensors"));
    training before = b;
    for (long n = 0; n < image_size; n += n < 200 || n > image_size - 200 ? 1 : 97) {
        store(bad, image, n);
        ckpt_status status = ckpt_restore(sb, bad, NULL, NULL, &err);
        ck_assert_msg(status < 0, "%ld bytes of %ld went through", n, image_size);
        ck_assert(!ckpt_state_poisoned(sb));
    }
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    free(image);
}
END_TEST

START_TEST(damage_poisons_until_a_restore_completes)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *r = ckpt_report_new();
    char bad[128], good[128];
    strcpy(bad, in_folder("bad.safetensors"));
    strcpy(good, in_folder("a.safetensors"));
    OK(ckpt_save(sa, good, NULL, &err));
    load_image(good);
    image[image_size - 1] ^= 1; /* the last payload: everything before it is copied by then */
    store(bad, image, image_size);
    training before = b;
    o.verify_first = true;
    ck_assert_int_eq(ckpt_restore(sb, bad, &o, r, &err), CKPT_E_DAMAGED);
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    ck_assert(!ckpt_state_poisoned(sb));
    image[image_size - 1] ^= 1;
    /* A payload in the middle: some tensors are complete; the damaged one was found out in time, and is untouched, as are others. */
    ckpt_reader *reader;
    OK(ckpt_reader_open(good, NULL, &reader, &err));
    ckpt_reader_close(reader);
    float last = a.exp_avg[29];
    long at = -1;
    for (long i = 4096; i + 4 <= image_size; i++)
        if (memcmp(image + i, &last, 4) == 0)
            at = i;
    ck_assert_int_gt(at, 0);
    image[at] ^= 4;
    store(bad, image, image_size);
    ck_assert_int_eq(ckpt_restore(sb, bad, NULL, r, &err), CKPT_E_DAMAGED);
    ck_assert_str_eq(err.object, "optimizer.ln.exp_avg");
    ck_assert(ckpt_state_poisoned(sb));
    ck_assert_uint_eq(ckpt_report_count_code(r, "torn"), 0);
    ck_assert_ptr_nonnull(ckpt_report_find(r, "untouched", "optimizer.ln.exp_avg"));
    ck_assert_uint_gt(ckpt_report_count_code(r, "complete"), 0);
    ck_assert_uint_gt(ckpt_report_count_code(r, "untouched"), 1);
    ck_assert_float_eq(b.exp_avg[29], before.exp_avg[29]);
    ck_assert_int_eq(b.step, before.step);
    ck_assert_int_eq(ckpt_save(sb, in_folder("c.safetensors"), NULL, &err), CKPT_E_POISONED);
    ck_assert_int_eq(access(in_folder("c.safetensors"), F_OK), -1);
    OK(ckpt_restore(sb, good, NULL, r, &err));
    ck_assert(!ckpt_state_poisoned(sb));
    expect_same();
    ckpt_report_free(r);
    free(image);
}
END_TEST

/* What is too large to be checked before it is delivered is torn by damage: read into its place, or converted or turned on the
 * way; the others are what they are said to be. */
START_TEST(damage_tears_a_large_tensor)
{
    enum { N = 2400000, LARGE = 3 }; /* 9.6 MB */
    static const int64_t shape[] = {2400, 1000}, turned[] = {1, 2400};
    static const char *const names[LARGE] = {"a", "b", "c"};
    ckpt_error err = CKPT_ERROR_INIT;
    float *values[LARGE], *places[LARGE];
    double *cast = malloc(N * sizeof *cast);
    ckpt_state *from = ckpt_state_new(), *to = ckpt_state_new(), *other = ckpt_state_new();
    for (int i = 0; i < LARGE; i++) {
        values[i] = malloc(N * sizeof(float));
        places[i] = malloc(N * sizeof(float));
        for (int k = 0; k < N; k++)
            values[i][k] = (float)(i * N + k);
        bind_tensor(from, names[i], NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, shape, NULL, values[i]);
        bind_tensor(to, names[i], NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, shape, i == 1 ? turned : NULL, places[i]);
    }
    bind_tensor(other, "b", NULL, CKPT_ROLE_PARAM, CKPT_F64, 2, shape, NULL, cast);
    OK(ckpt_save(from, in_folder("a.safetensors"), NULL, &err));
    load_image(in_folder("a.safetensors"));
    float last = (float)(2 * N - 1); /* of b */
    unsigned char *at = memmem(image, (size_t)image_size, &last, sizeof last);
    ck_assert_ptr_nonnull(at);
    at[1] ^= 1;
    store(in_folder("bad.safetensors"), image, image_size);
    ckpt_report *reports[2] = {ckpt_report_new(), ckpt_report_new()};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    const ckpt_restore_options *options[2] = {&o, &o};
    ckpt_state *const both[2] = {to, other};
    o.allow_cast = o.allow_unexpected = true;
    for (o.threads = 8; o.threads; o.threads /= 8) { /* with one thread what lies behind is not reached */
        memset(places[2], 0, N * sizeof(float));
        ck_assert_int_eq(ckpt_restore_many(both, 2, in_folder("bad.safetensors"), options, reports, &err),
                         CKPT_E_DAMAGED);
        ck_assert_str_eq(err.object, "b");
    }
    ck_assert(ckpt_state_poisoned(to) && ckpt_state_poisoned(other));
    ck_assert_ptr_nonnull(ckpt_report_find(reports[0], "complete", "a"));
    ck_assert_ptr_nonnull(ckpt_report_find(reports[0], "torn", "b"));
    ck_assert_ptr_nonnull(ckpt_report_find(reports[0], "untouched", "c"));
    ck_assert_ptr_nonnull(ckpt_report_find(reports[1], "torn", "b"));
    ck_assert(memcmp(places[0], values[0], N * sizeof(float)) == 0);
    OK(ckpt_restore_many(both, 2, in_folder("a.safetensors"), options, reports, &err));
    for (int k = 0; k < N; k++)
        ck_assert(places[2][k] == values[2][k] && cast[k] == (double)values[1][k] &&
                  places[1][k / 1000 + k % 1000 * 2400] == values[1][k]);
    for (int i = 0; i < LARGE; i++) {
        free(values[i]);
        free(places[i]);
    }
    free(cast);
    free(image);
    ckpt_report_free(reports[0]);
    ckpt_report_free(reports[1]);
    ckpt_state_free(from);
    ckpt_state_free(to);
    ckpt_state_free(other);
}
END_TEST

START_TEST(the_first_options_say_what_is_verified)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options each[2] = {CKPT_RESTORE_OPTIONS_INIT, CKPT_RESTORE_OPTIONS_INIT};
    const ckpt_restore_options *options[2] = {&each[0], &each[1]};
    unsigned char saved[10] = "0123456789", rng[2][10];
    ckpt_state *s = ckpt_state_new(), *two[2] = {ckpt_state_new(), ckpt_state_new()};
    bind_tensor(s, "rng", NULL, CKPT_ROLE_RNG, CKPT_U8, 1, (int64_t[]){10}, NULL, saved);
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    load_image(in_folder("a.safetensors"));
    for (long i = 0; i + 10 <= image_size; i++)
        if (memcmp(image + i, saved, 10) == 0)
            image[i] = 'x';
    store(in_folder("bad.safetensors"), image, image_size);
    for (int i = 0; i < 2; i++)
        OK(ckpt_state_bytes(two[i], "rng", rng[i], 10, &err));
    ck_assert_int_eq(ckpt_restore_many(two, 2, in_folder("bad.safetensors"), options, NULL, &err), CKPT_E_DAMAGED);
    each[0].no_verify = true;
    OK(ckpt_restore_many(two, 2, in_folder("bad.safetensors"), options, NULL, &err));
    ck_assert(rng[0][0] == 'x' && memcmp(rng[0], rng[1], 10) == 0);
    for (int i = 0; i < 2; i++)
        ckpt_state_free(two[i]);
    ckpt_state_free(s);
    free(image);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore damage");
    TCase *t = pair_case("restore damage");
    tcase_add_test(t, every_flipped_bit_is_found);
    tcase_add_test(t, every_truncation_is_found);
    tcase_add_test(t, damage_poisons_until_a_restore_completes);
    tcase_add_test(t, damage_tears_a_large_tensor);
    tcase_add_test(t, the_first_options_say_what_is_verified);
    suite_add_tcase(s, t);
    return run_suite(s);
}
