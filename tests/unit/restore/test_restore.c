/* Save and restore on the host: bits, strictness, damage, memory of ours, replicas. */
#include <errno.h>
#include "../state_fixture.h"
#include "../torch_emit.h"

static training a, b;
static ckpt_state *sa, *sb;

static void setup(void)
{
    make_folder();
    fill(&a, 1);
    fill(&b, 2);
    sa = bind_all(&a);
    sb = bind_all(&b);
}

static void teardown(void)
{
    ckpt_state_free(sa);
    ckpt_state_free(sb);
    remove_folder();
}

static void expect_same(void)
{
    ck_assert(memcmp(a.params, b.params, sizeof a.params) == 0);
    ck_assert(memcmp(a.exp_avg, b.exp_avg, sizeof a.exp_avg) == 0);
    ck_assert(memcmp(a.exp_avg_sq, b.exp_avg_sq, sizeof a.exp_avg_sq) == 0);
    ck_assert(memcmp(&a, &b, sizeof a) == 0);
}

START_TEST(every_bit_comes_back)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(sb, in_folder("a.safetensors"), NULL, r, &err));
    expect_same();
    ck_assert_int_eq(ckpt_report_worst(r), CKPT_SEVERITY_NOTE);
    ck_assert_uint_eq(ckpt_report_device_count(r), 1);
    ck_assert_uint_eq(ckpt_report_device(r, 0)->by_role[CKPT_ROLE_EXP_AVG], 120);
    ckpt_report_free(r);
}
END_TEST

START_TEST(a_step_directory_holds_the_same)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    ckpt_reader *reader;
    size_t i;
    o.directory = true;
    OK(ckpt_save(sa, in_folder("step-12"), &o, &err));
    OK(ckpt_restore(sb, in_folder("step-12"), NULL, NULL, &err));
    expect_same();
    /* The model's file is the HF tools' own: parameters and buffers and nothing else. */
    OK(ckpt_reader_open(in_folder("step-12/model.safetensors"), NULL, &reader, &err));
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 7);
    OK(ckpt_reader_find(reader, "head", 4, &i, &err));
    ck_assert_int_eq(ckpt_reader_find(reader, "optimizer.wte.step", 18, &i, &err), CKPT_E_NOT_FOUND);
    ckpt_reader_close(reader);
    a.step++;
    OK(ckpt_save(sa, in_folder("step-12"), &o, &err));
    OK(ckpt_restore(sb, in_folder("step-12"), NULL, NULL, &err));
    ck_assert_int_eq(b.step, a.step);
}
END_TEST

/* Saves with sa's state, restores into sb after `change` has bound it otherwise; nothing may be touched. */
static void refused(ckpt_state *target, const ckpt_restore_options *o, const char *code, const char *tensor)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_report *r = ckpt_report_new();
    training before = b;
    ck_assert_int_eq(ckpt_restore(target, in_folder("a.safetensors"), o, r, &err), CKPT_E_MISMATCH);
    ck_assert_msg(ckpt_report_find(r, code, tensor) != NULL, "no finding %s of %s; the error says: %s", code, tensor,
                  err.message);
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    ck_assert(!ckpt_state_poisoned(target));
    ckpt_report_free(r);
}

START_TEST(what_does_not_fit_is_refused_untouched)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float more[10] = {5};
    int64_t six[] = {3, 2};
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    bind_tensor(sb, "more", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){10}, NULL, more);
    refused(sb, &o, "missing", "more");
    o.allow_missing = true;
    OK(ckpt_restore(sb, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(more[0] == 5);

    ckpt_state *few = ckpt_state_new();
    bind_tensor(few, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, wte_shape, NULL, b.params);
    o = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
    fill(&b, 2);
    refused(few, &o, "unexpected", "ln");
    refused(few, &o, "unexpected", "note");
    o.allow_unexpected = true;
    OK(ckpt_restore(few, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(memcmp(a.params, b.params, 96) == 0);
    ckpt_state_free(few);

    ckpt_state *other = ckpt_state_new();
    bind_tensor(other, "half", NULL, CKPT_ROLE_PARAM, CKPT_BF16, 2, six, NULL, b.half);
    bind_tensor(other, "ln", NULL, CKPT_ROLE_PARAM, CKPT_BF16, 1, ln_shape, NULL, b.exp_avg);
    refused(other, &o, "shape-mismatch", "half");
    refused(other, &o, "dtype-mismatch", "ln");
    ckpt_state_free(other);
}
END_TEST

START_TEST(a_cast_needs_permission_and_is_reported)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *r = ckpt_report_new();
    uint16_t ln[6];
    double half[6];
    ckpt_state *s = ckpt_state_new();
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    bind_tensor(s, "ln", NULL, CKPT_ROLE_PARAM, CKPT_BF16, 1, ln_shape, NULL, ln);
    bind_tensor(s, "half", NULL, CKPT_ROLE_PARAM, CKPT_F64, 1, ln_shape, NULL, half);
    o.allow_unexpected = o.allow_cast = true;
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, r, &err));
    const ckpt_finding *f = ckpt_report_find(r, "cast", "ln");
    ck_assert_ptr_nonnull(f);
    ck_assert_str_eq(f->from, "float32");
    ck_assert_str_eq(f->to, "bfloat16");
    uint32_t bits;
    memcpy(&bits, &a.params[24], 4);
    ck_assert_uint_eq(ln[0], (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    uint32_t wide = (uint32_t)a.half[3] << 16;
    float exact;
    memcpy(&exact, &wide, 4);
    ck_assert(half[3] == (double)exact);
    ckpt_state_free(s);
    ckpt_report_free(r);
}
END_TEST

START_TEST(values_must_fit_exactly)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    int64_t lr = 0, counter = 0, from_float = 0;
    double step = 0;
    char tiny[4] = "abc";
    unsigned char rng[10];
    o.allow_unexpected = true;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    ckpt_state *s = ckpt_state_new();
    OK(ckpt_state_i64(s, "optimizer.groups.0.lr", &lr, &err));
    OK(ckpt_state_string(s, "note", tiny, sizeof tiny, &err));
    OK(ckpt_state_bytes(s, "rng", rng, sizeof rng, &err));
    refused(s, &o, "value-mismatch", "optimizer.groups.0.lr");
    refused(s, &o, "value-mismatch", "note");
    refused(s, &o, "value-mismatch", "rng");
    ck_assert_str_eq(tiny, "abc");
    ckpt_state_free(s);
    s = ckpt_state_new();
    OK(ckpt_state_f64(s, "step", &step, &err));
    OK(ckpt_state_i64(s, "counter", &counter, &err)); /* a 0-d tensor */
    OK(ckpt_state_i64(s, "optimizer.wte.step", &from_float, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(step == 13 && counter == a.counter && from_float == 8);
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_step_is_found_in_the_parameters)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    int64_t step = 0;
    float steps[2] = {30, 30};
    o.allow_unexpected = true;
    for (int equal = 1; equal >= 0; equal--) {
        ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
        bind_tensor(s, NULL, "wte", CKPT_ROLE_STEP, CKPT_F32, 0, NULL, NULL, &steps[0]);
        bind_tensor(s, NULL, "ln", CKPT_ROLE_STEP, CKPT_F32, 0, NULL, NULL, &steps[1]);
        OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
        OK(ckpt_state_i64(t, "step", &step, &err));
        if (equal) {
            OK(ckpt_restore(t, in_folder("a.safetensors"), &o, NULL, &err));
            ck_assert_int_eq(step, 30);
        } else
            refused(t, &o, "steps-differ", "step");
        ckpt_state_free(s);
        ckpt_state_free(t);
        steps[1] = 31;
    }
}
END_TEST

START_TEST(a_step_changes_its_dtype_only_exactly)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *r = ckpt_report_new();
    int64_t saved = 16777216;
    float step = 0;
    for (int exact = 1; exact >= 0; exact--, saved++) { /* 2^24 is a float32, 2^24 + 1 is not */
        ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
        bind_tensor(s, NULL, "w", CKPT_ROLE_STEP, CKPT_I64, 0, NULL, NULL, &saved);
        bind_tensor(t, NULL, "w", CKPT_ROLE_STEP, CKPT_F32, 0, NULL, NULL, &step);
        OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
        if (exact) {
            OK(ckpt_restore(t, in_folder("a.safetensors"), &o, r, &err));
            ck_assert_ptr_nonnull(ckpt_report_find(r, "cast", "optimizer.w.step"));
            ck_assert(step == 16777216.0f);
        } else
            refused(t, &o, "dtype-mismatch", "optimizer.w.step");
        ckpt_state_free(s);
        ckpt_state_free(t);
    }
    ckpt_report_free(r);
}
END_TEST

/* torch's lazily conjugated views: the bytes in the file are not the values, and restoring them would be wrong. */
/* A conjugate view of torch is a bit beside the bytes: its values come. */
START_TEST(a_lazy_view_is_resolved)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_report *r = ckpt_report_new();
    ckpt_state *s = ckpt_state_new();
    const char *srcdir = getenv("srcdir");
    char file[512];
    float conj[2] = {7, 7};
    snprintf(file, sizeof file, "%s/tests/data/cli/tensors.pt", srcdir ? srcdir : ".");
    o.allow_unexpected = true;
    bind_tensor(s, "conj", NULL, CKPT_ROLE_OTHER, CKPT_C64, 1, (int64_t[]){1}, NULL, conj);
    ck_assert_msg(ckpt_restore(s, file, &o, r, &err) == CKPT_OK, "%s", err.message);
    ck_assert(conj[0] == 1 && conj[1] == -2);
    ckpt_report_free(r);
    ckpt_state_free(s);
}
END_TEST

/* Files of every version of the format that was ever released are read for ever. CKPT_WRITE_FROZEN=FILE makes such a
 * file, with the state that this test then expects in it. */
START_TEST(frozen_files_are_read)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const char *srcdir = getenv("srcdir"), *fresh = getenv("CKPT_WRITE_FROZEN");
    char file[512];
    if (fresh)
        OK(ckpt_save(sa, fresh, NULL, &err));
    snprintf(file, sizeof file, "%s/tests/data/native/version-1.0.safetensors", srcdir ? srcdir : ".");
    OK(ckpt_restore(sb, fresh ? fresh : file, NULL, NULL, &err));
    expect_same();
}
END_TEST

START_TEST(a_number_becomes_a_tensor_only_exactly)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    double half = 2.5;
    int64_t big = 70000, most = INT64_MAX;
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_tensor(s, "ln", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, a.params);
    OK(ckpt_state_f64(s, "optimizer.ln.step", &half, &err));
    OK(ckpt_state_i64(s, "big", &big, &err));
    OK(ckpt_state_i64(s, "most", &most, &err));
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    bind_tensor(t, "ln", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, b.params);
    bind_tensor(t, NULL, "ln", CKPT_ROLE_STEP, CKPT_I32, 0, NULL, NULL, &b.decay_interval);
    bind_tensor(t, "big", NULL, CKPT_ROLE_BUFFER, CKPT_U8, 0, NULL, NULL, b.rng);
    OK(ckpt_state_f64(t, "most", &b.lr, &err));
    refused(t, &o, "value-mismatch", "optimizer.ln.step");
    refused(t, &o, "value-mismatch", "big");
    refused(t, &o, "value-mismatch", "most");
    half = 2;
    big = 200;
    most = INT64_MIN;
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(t, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(b.decay_interval == 2 && b.rng[0] == 200 && b.lr == -9223372036854775808.0);
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

START_TEST(names_may_begin_with_other_names)
{
    ckpt_error err = CKPT_ERROR_INIT;
    double loss = 1.5, deep = 2.5, lr = 0.5, betas[2] = {0.9, 0.99};
    int64_t epoch = 4, step = -1;
    ckpt_hyper hypers[] = {
        {"betas.0", CKPT_SCALAR_F64, &betas[0]}, {"betas", CKPT_SCALAR_F64, &betas[1]}, {"lr", CKPT_SCALAR_F64, &lr}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    ckpt_state *s = ckpt_state_new();
    g.name = "0";
    g.hypers = hypers;
    g.hyper_count = 3;
    OK(ckpt_state_f64(s, "epoch.loss.deep", &deep, &err));
    OK(ckpt_state_f64(s, "epoch.loss", &loss, &err));
    OK(ckpt_state_i64(s, "epoch", &epoch, &err));
    OK(ckpt_state_i64(s, "step", &step, &err));
    OK(ckpt_state_group(s, &g, &err));
    for (int directory = 0; directory < 2; directory++) {
        o.directory = directory;
        step = directory ? -3 : 7; /* a step below 0 is a value like others */
        OK(ckpt_save(s, in_folder(directory ? "d" : "a.safetensors"), &o, &err));
        loss = deep = lr = betas[0] = betas[1] = 0;
        epoch = step = 0;
        OK(ckpt_restore(s, in_folder(directory ? "d" : "a.safetensors"), NULL, NULL, &err));
        ck_assert(loss == 1.5 && deep == 2.5 && epoch == 4 && lr == 0.5 && betas[0] == 0.9 && betas[1] == 0.99);
        ck_assert_int_eq(step, directory ? -3 : 7);
    }
    /* In the place of the groups there is no room for a scalar. */
    OK(ckpt_state_f64(s, "optimizer", &lr, &err));
    ck_assert_int_eq(ckpt_save(s, in_folder("x.safetensors"), NULL, &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
}
END_TEST

/* ---- damage */

static unsigned char *image;
static long image_size;

static void load_image(const char *path)
{
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    fseek(f, 0, SEEK_END);
    image_size = ftell(f);
    rewind(f);
    image = malloc((size_t)image_size);
    ck_assert_uint_eq(fread(image, 1, (size_t)image_size, f), (size_t)image_size);
    fclose(f);
}

static void store(const char *path, const unsigned char *data, long n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, (size_t)n, f), (size_t)n);
    ck_assert_int_eq(fclose(f), 0);
}

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

/* ---- memory of ours */

/* Devices that files name and rules may give, but on which this library puts nothing. */
START_TEST(only_cpu_and_cuda_are_places)
{
    static const char *const rules[] = {"mps", "xpu:0", "cpu=npu:{index}", "*==musa:1", "hpu"};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    for (size_t i = 0; i < 5; i++) {
        ckpt_report *r = ckpt_report_new();
        ckpt_state *s = ckpt_state_new();
        bool number = strchr(rules[i], '{');
        bind_tensor(s, "ln", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, NULL);
        o.allow_unexpected = true;
        o.map_location = rules[i];
        ck_assert_int_eq(ckpt_restore(s, in_folder("a.safetensors"), &o, r, &err),
                         number ? CKPT_E_ARGUMENT : CKPT_E_MISMATCH);
        const ckpt_finding *f = ckpt_report_find(r, "no-such-device", "ln");
        ck_assert_msg(number || f, "%s", rules[i]);
        ck_assert(number || strstr(f->message, "places tensors on cpu and cuda only"));
        ck_assert(number || strstr(f->message, i == 3 ? "musa:1" : rules[i]));
        ck_assert_ptr_null(ckpt_state_data(s, "ln"));
        ckpt_state_free(s);
        ckpt_report_free(r);
    }
}
END_TEST

START_TEST(ours_are_made_and_kept)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.dtype = CKPT_F32;
    arena.nbytes = 120;
    arena.role = CKPT_ROLE_EXP_AVG;
    const ckpt_arena_entry entries[] = {{"wte", 0, 2, wte_shape}, {"ln", 96, 1, ln_shape}};
    OK(ckpt_state_arena(s, &arena, entries, 2, &err));
    ck_assert_ptr_null(ckpt_state_data(s, "wte"));
    ck_assert_int_eq(ckpt_save(s, in_folder("x.safetensors"), NULL, &err), CKPT_E_ARGUMENT);
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(memcmp(ckpt_state_data(s, "wte"), a.params, 96) == 0);
    ck_assert(memcmp(ckpt_state_data(s, "optimizer.ln.exp_avg"), a.exp_avg + 24, 24) == 0);
    ck_assert_ptr_eq((char *)ckpt_state_data(s, "optimizer.wte.exp_avg") + 96,
                     ckpt_state_data(s, "optimizer.ln.exp_avg"));
    const void *where = ckpt_state_data(s, "wte");
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert_ptr_eq(where, ckpt_state_data(s, "wte"));
    ckpt_state_free(s);
    s = ckpt_state_new();
    bind_tensor(s, "new.head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
    OK(ckpt_state_allocate(s, &err));
    ck_assert(*(float *)ckpt_state_data(s, "new.head") == 0);
    ckpt_state_free(s);
}
END_TEST

START_TEST(bind_refuses_what_cannot_be_restored)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float m[64];
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "x", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, m);
    bind_tensor(s, "y", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){16}, NULL, m + 16);
    bind_tensor(s, "even", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, (int64_t[]){2}, m + 32);
    bind_tensor(s, "odd", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){8}, (int64_t[]){2}, m + 33);
    static const struct {
        const char *name;
        int64_t shape[2], strides[2];
        int at;
        ckpt_status status;
    } cases[] = {
        {"x", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT}, /* twice the name */
        {"z", {1, 4}, {4, 1}, 14, CKPT_E_MISMATCH}, /* into y */
        {"z", {1, 2}, {2, 1}, 33, CKPT_E_MISMATCH}, /* into odd and even */
        {"z", {2, 4}, {0, 1}, 56, CKPT_E_ARGUMENT}, /* stride 0 */
        {"z", {2, 4}, {2, 1}, 56, CKPT_E_ARGUMENT}, /* rows overlap */
        {"z", {-1, 4}, {4, 1}, 56, CKPT_E_ARGUMENT},
        {"z", {2, 4}, {-4, 1}, 56, CKPT_E_ARGUMENT},
        {"ckpt.blob.0", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"z\xff", {1, 1}, {1, 1}, 60, CKPT_E_ARGUMENT},
        {"z", {2, 2}, {1, 2}, 60, CKPT_OK}, /* transposed is fine */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = cases[i].name;
        d.role = CKPT_ROLE_PARAM;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = cases[i].shape;
        d.strides = cases[i].strides;
        d.data = m + cases[i].at;
        ck_assert_msg(ckpt_state_tensor(s, &d, &err) == cases[i].status, "case %zu: %s: %s", i, err.object,
                      err.message);
    }
    ckpt_state_free(s);
}
END_TEST

START_TEST(a_refused_bind_leaves_nothing)
{
    ckpt_error err = CKPT_ERROR_INIT;
    double lr = 1;
    ckpt_state *s = ckpt_state_new();
    ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr}, {"lr", CKPT_SCALAR_F64, &lr}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "0";
    g.hypers = hypers;
    g.hyper_count = 2;
    static const char *const bad[] = {"lr", "params", "", "\xff", NULL};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hypers[1].key = bad[i];
        ck_assert_int_eq(ckpt_state_group(s, &g, &err), CKPT_E_ARGUMENT);
    }
    g.hyper_count = 1;
    g.struct_size = 100000;
    ck_assert_int_eq(ckpt_state_group(s, &g, &err), CKPT_E_ARGUMENT);
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    g.struct_size = 0;
    OK(ckpt_state_group(s, &g, &err));
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    lr = 0;
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(lr == 1);
    /* Places in an arena of ours are no more shared than the caller's. */
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    const ckpt_arena_entry over[] = {{"p", 0, 1, ln_shape}, {"q", 20, 1, ln_shape}},
                           far[] = {{"r", UINT64_MAX - 3, 1, ln_shape}};
    arena.dtype = CKPT_F32;
    arena.nbytes = 120;
    arena.role = CKPT_ROLE_PARAM;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, over, 2, &err), CKPT_E_MISMATCH);
    arena.data = a.params;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, far, 1, &err), CKPT_E_ARGUMENT);
    arena.struct_size = 100000;
    ck_assert_int_eq(ckpt_state_arena(s, &arena, far, 0, &err), CKPT_E_ARGUMENT);
    static const char *const names[] = {"ckpt.x", "__metadata__", "\xff", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_int_eq(ckpt_state_alias(s, names[i], "p", &err), CKPT_E_ARGUMENT);
    ckpt_state_free(s);
}
END_TEST

START_TEST(many_binds_stay_cheap_and_overlaps_are_seen)
{
    enum { N = 20000 };
    ckpt_error err = CKPT_ERROR_INIT;
    static char m[N * 8];
    char name[16];
    ckpt_state *s = ckpt_state_new();
    for (int i = 0; i < N; i++) {
        int at = (i * 7919) % N;
        snprintf(name, sizeof name, "t%d", at);
        bind_tensor(s, name, NULL, CKPT_ROLE_PARAM, CKPT_U8, 1, (int64_t[]){8}, NULL, m + at * 8);
    }
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "late";
    d.dtype = CKPT_U8;
    d.ndim = 1;
    d.shape = (int64_t[]){1};
    for (int i = 0; i < 200; i++) {
        d.data = m + (i * 7907) % (N * 8);
        ck_assert_int_eq(ckpt_state_tensor(s, &d, &err), CKPT_E_MISMATCH);
    }
    ckpt_state_free(s);
}
END_TEST

/* ---- saving */

static int cancel_late(void *ctx, uint64_t done, uint64_t total)
{
    (void)total;
    *(uint64_t *)ctx = done;
    return done > 0;
}

/* What is done never passes what there is in all. */
static int note_progress(void *ctx, uint64_t done, uint64_t total)
{
    ((uint64_t *)ctx)[0] = done;
    ((uint64_t *)ctx)[1] = total;
    return done > total;
}

START_TEST(a_failed_save_leaves_what_was_there)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    uint64_t done = 0;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    o.progress.fn = cancel_late;
    o.progress.ctx = &done;
    ck_assert_int_eq(ckpt_save(sb, in_folder("a.safetensors"), &o, &err), CKPT_E_CANCELLED);
    ck_assert_uint_gt(done, 0);
    for (int directory = 0; directory < 2; directory++)
        for (int weights = 0; weights < 2; weights++) {
            uint64_t last[2] = {0, 0};
            o.progress.fn = note_progress;
            o.progress.ctx = last;
            o.directory = directory;
            o.weights_only = weights;
            OK(ckpt_save(sb, in_folder(directory ? "d" : "b.safetensors"), &o, &err));
            ck_assert_uint_gt(last[0], 0);
            ck_assert_uint_eq(last[0], last[1]);
        }
    o = (ckpt_save_options)CKPT_SAVE_OPTIONS_INIT;
    o.keep_existing = true;
    ck_assert_int_eq(ckpt_save(sb, in_folder("a.safetensors"), &o, &err), CKPT_E_EXISTS);
    ck_assert_int_eq(ckpt_save(sb, in_folder("no/where"), NULL, &err), CKPT_E_SYSTEM);
    ck_assert_int_eq(err.sys_errno, ENOENT);
    o = (ckpt_save_options)CKPT_SAVE_OPTIONS_INIT;
    o.format = "safetensors";
    ck_assert_int_eq(ckpt_save(sb, in_folder("p.safetensors"), &o, &err), CKPT_E_ARGUMENT);
    o.format = "pt";
    ck_assert_int_eq(ckpt_save(sb, in_folder("p.safetensors"), &o, &err), CKPT_E_UNSUPPORTED);
    OK(ckpt_restore(sb, in_folder("a.safetensors"), NULL, NULL, &err));
    expect_same();
}
END_TEST

START_TEST(plain_safetensors_of_the_weights)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    ckpt_reader *reader;
    o.format = "safetensors";
    o.weights_only = true;
    ck_assert_int_eq(ckpt_save(sa, in_folder("w.safetensors"), &o, &err),
                     CKPT_E_UNSUPPORTED); /* the tie becomes a copy */
    o.lossy = true;
    OK(ckpt_save(sa, in_folder("w.safetensors"), &o, &err));
    OK(ckpt_reader_open(in_folder("w.safetensors"), NULL, &reader, &err));
    ck_assert_str_eq(ckpt_reader_format(reader), "safetensors");
    ckpt_reader_close(reader);
    ckpt_restore_options ro = CKPT_RESTORE_OPTIONS_INIT;
    ro.allow_missing = true;
    OK(ckpt_restore(sb, in_folder("w.safetensors"), &ro, NULL, &err));
    ck_assert(memcmp(a.params, b.params, sizeof a.params) == 0);
    ck_assert(memcmp(a.exp_avg, b.exp_avg, sizeof a.exp_avg) != 0);
}
END_TEST

START_TEST(ties_are_kept_and_broken_ones_seen)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float one[6] = {1}, two[6] = {2}, tied[6] = {0};
    ckpt_state *untied = ckpt_state_new(), *s = ckpt_state_new();
    bind_tensor(untied, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, one);
    bind_tensor(untied, "head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, tied);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    refused(s, &o, "tie-broken", "head");
    two[0] = 1; /* two tensors, but equal: torch wrote them so */
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 1);
    ckpt_state_free(untied);
    untied = ckpt_state_new(); /* only the second name is there */
    bind_tensor(untied, "head", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    two[0] = 3;
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 3);
    ckpt_state_free(untied);
    ckpt_state_free(s);
}
END_TEST

/* torch's file of two tensors that share one deflated storage of n floats. */
static void put_torch(const char *path, const float *data, int64_t n, const char *one, const view *v, const char *two,
                      const view *w)
{
    static bytes pickle;
    static archive zip;
    memset(&pickle, 0, sizeof pickle);
    memset(&zip, 0, sizeof zip);
    PUT(&pickle, "\x80\2}(");
    put_str(&pickle, one);
    put_tensor(&pickle, v);
    put_str(&pickle, two);
    put_tensor(&pickle, w);
    PUT(&pickle, "u.");
    add_record(&zip, &(record){.name = "m/data.pkl", .data = pickle.data, .size = pickle.size});
    add_record(&zip, &(record){.name = "m/data/0", .data = data, .size = (size_t)n * 4, .deflate = true});
    add_record(&zip, &(record){.name = "m/version", .data = "3\n", .size = 2});
    put_end64(&zip, 0, 0, 0);
    store(path, zip.file.data, (long)zip.file.size);
}

START_TEST(a_transposed_view_is_no_tie)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const float data[4] = {1, 2, 3, 4};
    const int64_t shape[] = {2, 2};
    view v = {"FloatStorage", "0", "cpu", 4, 0, 2, 2, {2, 2}, {2, 1}}, w = v;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "wte", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, shape, NULL, b.params);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    put_torch(in_folder("tied.pt"), data, 4, "wte", &v, "head", &w);
    OK(ckpt_restore(s, in_folder("tied.pt"), &o, NULL, &err));
    ck_assert(memcmp(b.params, data, sizeof data) == 0);
    w.strides[0] = 1, w.strides[1] = 2;
    put_torch(in_folder("a.safetensors"), data, 4, "wte", &v, "head", &w);
    refused(s, &o, "tie-broken", "head");
    ckpt_state_free(s);
}
END_TEST

/* The first read of a view may be the smaller one: a conversion has room for what comes after it. */
START_TEST(a_view_far_into_a_coded_storage_is_converted)
{
    enum { N = 4 << 20, SKIP = 3 << 19, REST = N - SKIP };
    ckpt_error err = CKPT_ERROR_INIT;
    view v = {"FloatStorage", "0", "cpu", N, SKIP, 1, 1, {REST}, {1}},
         w = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {1}, {1}};
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float *data = calloc(N, sizeof *data), first = 9;
    double *wide = calloc(REST, sizeof *wide);
    ckpt_state *s = ckpt_state_new();
    for (int i = 0; i < N; i += 65536)
        data[i] = (float)i;
    put_torch(in_folder("v.pt"), data, N, "v", &v, "first", &w);
    bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F64, 1, (int64_t[]){REST}, NULL, wide);
    bind_tensor(s, "first", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){1}, NULL, &first);
    o.allow_cast = true;
    OK(ckpt_restore(s, in_folder("v.pt"), &o, NULL, &err));
    for (int i = 0; i < REST; i++)
        ck_assert(wide[i] == (double)data[SKIP + i]);
    ck_assert(first == 0);
    ckpt_state_free(s);
    free(data);
    free(wide);
}
END_TEST

/* What is large goes from the decoder straight into its place; no byte of it is taken for right that is not. */
START_TEST(a_coded_storage_is_decoded_into_its_place)
{
    enum { N = 3 << 18 };
    ckpt_error err = CKPT_ERROR_INIT;
    view all = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {N}, {1}},
         none = {"FloatStorage", "0", "cpu", N, 0, 1, 1, {1}, {1}};
    float *data = calloc(N, sizeof *data), *to = calloc(N, sizeof *to);
    for (int i = 0; i < N; i++)
        data[i] = (float)(i % 1009);
    put_torch(in_folder("v.pt"), data, N, "v", &all, "first", &none);
    for (uint32_t threads = 1; threads < 4; threads++) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        ckpt_state *s = ckpt_state_new();
        o.threads = threads;
        o.allow_unexpected = true;
        bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){N}, NULL, to);
        memset(to, 0, N * sizeof *to);
        OK(ckpt_restore(s, in_folder("v.pt"), &o, NULL, &err));
        ck_assert(memcmp(to, data, N * sizeof *to) == 0);
        ckpt_state_free(s);
    }
    load_image(in_folder("v.pt"));
    for (long at = 600; at < image_size - 400; at += image_size / 7) {
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        ckpt_state *s = ckpt_state_new();
        o.allow_unexpected = true;
        bind_tensor(s, "v", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, (int64_t[]){N}, NULL, to);
        image[at] ^= 4;
        store(in_folder("bad.pt"), image, image_size);
        image[at] ^= 4;
        ck_assert_int_eq(ckpt_restore(s, in_folder("bad.pt"), &o, NULL, &err), CKPT_E_DAMAGED);
        ck_assert_int_eq(ckpt_save(s, in_folder("no.ckpt"), NULL, &err), CKPT_E_POISONED);
        ckpt_state_free(s);
    }
    free(image);
    free(data);
    free(to);
}
END_TEST

START_TEST(wide_integers_are_rounded_once)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    const int64_t tie = (INT64_C(1) << 60) + (INT64_C(1) << 36); /* half way between two float32 */
    int64_t from[6] = {tie, tie + 1, tie - 1, -tie - 1, INT64_MAX, INT64_MIN};
    /* Literals: a cast at run time is rounded twice where the processor is emulated. */
    const float want[6] = {0x1p60f, 0x1.000002p60f, 0x1p60f, -0x1.000002p60f, 0x1p63f, -0x1p63f};
    float to[6];
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_tensor(s, "i", NULL, CKPT_ROLE_BUFFER, CKPT_I64, 1, (int64_t[]){6}, NULL, from);
    bind_tensor(t, "i", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, (int64_t[]){6}, NULL, to);
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    o.allow_cast = true;
    OK(ckpt_restore(t, in_folder("a.safetensors"), &o, NULL, &err));
    for (int i = 0; i < 6; i++)
        ck_assert_msg(to[i] == want[i], "%lld: %a", (long long)from[i], (double)to[i]);
    ckpt_state_free(s);
    ckpt_state_free(t);
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

START_TEST(replicas_and_optional_values)
{
    ckpt_error err = CKPT_ERROR_INIT;
    training c;
    fill(&c, 3);
    ckpt_state *sc = bind_all(&c);
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore_many((ckpt_state *[]){sb, sc}, 2, in_folder("a.safetensors"), NULL, NULL, &err));
    expect_same();
    ck_assert(memcmp(&a, &c, sizeof a) == 0);
    ck_assert_int_eq(ckpt_restore_many((ckpt_state *[]){sb, sb}, 2, in_folder("a.safetensors"), NULL, NULL, &err),
                     CKPT_E_ARGUMENT);
    int64_t mine = 5;
    ckpt_report *r = ckpt_report_new();
    OK(ckpt_state_i64(sc, "data.position", &mine, &err));
    ck_assert_int_eq(ckpt_restore(sc, in_folder("a.safetensors"), NULL, r, &err), CKPT_E_MISMATCH);
    ck_assert_uint_gt(ckpt_report_count(r), 0);
    ck_assert_int_eq(ckpt_restore(sc, in_folder("nothing"), NULL, r, &err), CKPT_E_SYSTEM);
    ck_assert_uint_eq(ckpt_report_count(r), 0); /* nothing of the call before */
    OK(ckpt_state_optional(sc, "data.*", &err));
    OK(ckpt_restore(sc, in_folder("a.safetensors"), NULL, r, &err));
    ck_assert_ptr_nonnull(ckpt_report_find(r, "kept", "data.position"));
    ck_assert_int_eq(mine, 5);
    OK(ckpt_save(sc, in_folder("c.safetensors"), NULL, &err));
    mine = 0;
    OK(ckpt_restore(sc, in_folder("c.safetensors"), NULL, r, &err));
    ck_assert_int_eq(mine, 5);
    ckpt_report_free(r);
    ckpt_state_free(sc);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore");
    TCase *t = tcase_create("restore");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_bit_comes_back);
    tcase_add_test(t, a_step_directory_holds_the_same);
    tcase_add_test(t, what_does_not_fit_is_refused_untouched);
    tcase_add_test(t, a_cast_needs_permission_and_is_reported);
    tcase_add_test(t, values_must_fit_exactly);
    tcase_add_test(t, a_step_is_found_in_the_parameters);
    tcase_add_test(t, a_step_changes_its_dtype_only_exactly);
    tcase_add_test(t, a_lazy_view_is_resolved);
    tcase_add_test(t, frozen_files_are_read);
    tcase_add_test(t, a_number_becomes_a_tensor_only_exactly);
    tcase_add_test(t, names_may_begin_with_other_names);
    tcase_add_test(t, every_flipped_bit_is_found);
    tcase_add_test(t, every_truncation_is_found);
    tcase_add_test(t, damage_poisons_until_a_restore_completes);
    tcase_add_test(t, damage_tears_a_large_tensor);
    tcase_add_test(t, only_cpu_and_cuda_are_places);
    tcase_add_test(t, ours_are_made_and_kept);
    tcase_add_test(t, bind_refuses_what_cannot_be_restored);
    tcase_add_test(t, a_refused_bind_leaves_nothing);
    tcase_add_test(t, many_binds_stay_cheap_and_overlaps_are_seen);
    tcase_add_test(t, a_failed_save_leaves_what_was_there);
    tcase_add_test(t, plain_safetensors_of_the_weights);
    tcase_add_test(t, ties_are_kept_and_broken_ones_seen);
    tcase_add_test(t, a_transposed_view_is_no_tie);
    tcase_add_test(t, a_view_far_into_a_coded_storage_is_converted);
    tcase_add_test(t, a_coded_storage_is_decoded_into_its_place);
    tcase_add_test(t, wide_integers_are_rounded_once);
    tcase_add_test(t, the_first_options_say_what_is_verified);
    tcase_add_test(t, replicas_and_optional_values);
    suite_add_tcase(s, t);
    return run_suite(s);
}
