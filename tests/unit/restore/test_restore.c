/* test_restore.c - save and restore on the host: every bit comes back, what does not fit is refused, and a value or a dtype
 * changes only where that is exact or allowed. */
#include <errno.h>
#include "restore_pair.h"

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

/* A lazily conjugated view of torch is a bit beside the bytes. The bytes in the file are not its values, and restoring them would be
 * wrong: its values come. */
/* Of one element: [] and [1] are one step, and [1, 1] too. Of a parameter they are two shapes. */
START_TEST(a_step_has_one_element_in_any_shape)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    const int64_t ones[] = {1, 1};
    for (uint32_t had = 0; had < 3; had++)
        for (uint32_t has = 0; has < 3; has++) {
            ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
            int64_t saved = 7;
            float step[2] = {-1, -1};
            bind_tensor(s, NULL, "w", CKPT_ROLE_STEP, CKPT_I64, had, ones, NULL, &saved);
            bind_tensor(t, NULL, "w", CKPT_ROLE_STEP, CKPT_F32, has, ones, NULL, step);
            OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
            OK(ckpt_restore(t, in_folder("a.safetensors"), &o, NULL, &err));
            ck_assert(step[0] == 7 && step[1] == -1);
            ckpt_state_free(s);
            ckpt_state_free(t);
        }
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    bind_tensor(s, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 0, NULL, NULL, a.params);
    bind_tensor(t, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, ones, NULL, b.params);
    OK(ckpt_save(s, in_folder("a.safetensors"), NULL, &err));
    refused(t, &o, "shape-mismatch", "w");
    ckpt_state_free(s);
    ckpt_state_free(t);
}
END_TEST

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

int main(void)
{
    Suite *s = suite_create("restore");
    TCase *t = pair_case("restore");
    tcase_add_test(t, every_bit_comes_back);
    tcase_add_test(t, a_step_directory_holds_the_same);
    tcase_add_test(t, what_does_not_fit_is_refused_untouched);
    tcase_add_test(t, a_cast_needs_permission_and_is_reported);
    tcase_add_test(t, values_must_fit_exactly);
    tcase_add_test(t, a_step_is_found_in_the_parameters);
    tcase_add_test(t, a_step_changes_its_dtype_only_exactly);
    tcase_add_test(t, a_step_has_one_element_in_any_shape);
    tcase_add_test(t, a_lazy_view_is_resolved);
    tcase_add_test(t, frozen_files_are_read);
    tcase_add_test(t, a_number_becomes_a_tensor_only_exactly);
    tcase_add_test(t, names_may_begin_with_other_names);
    tcase_add_test(t, wide_integers_are_rounded_once);
    tcase_add_test(t, replicas_and_optional_values);
    tcase_add_test(t, a_failed_save_leaves_what_was_there);
    tcase_add_test(t, plain_safetensors_of_the_weights);
    suite_add_tcase(s, t);
    return run_suite(s);
}
