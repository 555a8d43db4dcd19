/* Save and restore on the host: bits, strictness, damage, memory of ours, replicas. */
#include <errno.h>
#include "state_fixture.h"

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
    ck_assert_int_eq(ckpt_report_worst(r), CKPT_NOTE);
    ck_assert_uint_eq(ckpt_report_device_count(r), 1);
    ck_assert_uint_eq(ckpt_report_device(r, 0)->by_role[CKPT_EXP_AVG], 120);
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
    ck_assert_msg(ckpt_report_find(r, code, tensor) != NULL, "no finding %s of %s; the error says: %s", code, tensor, err.message);
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    ck_assert(!ckpt_state_poisoned(target));
    ckpt_report_free(r);
}

START_TEST(what_does_not_fit_is_refused_untouched)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    float more[10] = { 5 };
    int64_t six[] = { 3, 2 };
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    bind_tensor(sb, "more", NULL, CKPT_PARAM, CKPT_F32, 1, (int64_t[]){ 10 }, NULL, more);
    refused(sb, &o, "missing", "more");
    o.allow_missing = true;
    OK(ckpt_restore(sb, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(more[0] == 5);

    ckpt_state *few = ckpt_state_new();
    bind_tensor(few, "wte", NULL, CKPT_PARAM, CKPT_F32, 2, wte_shape, NULL, b.params);
    o = (ckpt_restore_options)CKPT_RESTORE_OPTIONS_INIT;
    fill(&b, 2);
    refused(few, &o, "unexpected", "ln");
    refused(few, &o, "unexpected", "note");
    o.allow_unexpected = true;
    OK(ckpt_restore(few, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(memcmp(a.params, b.params, 96) == 0);
    ckpt_state_free(few);

    ckpt_state *other = ckpt_state_new();
    bind_tensor(other, "half", NULL, CKPT_PARAM, CKPT_BF16, 2, six, NULL, b.half);
    bind_tensor(other, "ln", NULL, CKPT_PARAM, CKPT_BF16, 1, ln_shape, NULL, b.exp_avg);
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
    bind_tensor(s, "ln", NULL, CKPT_PARAM, CKPT_BF16, 1, ln_shape, NULL, ln);
    bind_tensor(s, "half", NULL, CKPT_PARAM, CKPT_F64, 1, ln_shape, NULL, half);
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
    OK(ckpt_state_i64(s, "counter", &counter, &err));                     /* a 0-d tensor */
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
    float steps[2] = { 30, 30 };
    o.allow_unexpected = true;
    for (int equal = 1; equal >= 0; equal--) {
        ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
        bind_tensor(s, NULL, "wte", CKPT_STEP, CKPT_F32, 0, NULL, NULL, &steps[0]);
        bind_tensor(s, NULL, "ln", CKPT_STEP, CKPT_F32, 0, NULL, NULL, &steps[1]);
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
    for (int exact = 1; exact >= 0; exact--, saved++) {     /* 2^24 is a float32, 2^24 + 1 is not */
        ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
        bind_tensor(s, NULL, "w", CKPT_STEP, CKPT_I64, 0, NULL, NULL, &saved);
        bind_tensor(t, NULL, "w", CKPT_STEP, CKPT_F32, 0, NULL, NULL, &step);
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
        ckpt_verify_result v;
        ckpt_report *r = ckpt_report_new();
        status = ckpt_verify(keep_bad, NULL, NULL, &v, r, &err);
        ck_assert_msg(status == CKPT_NO || status == CKPT_E_TOO_NEW || status == CKPT_E_FORMAT, "bit %ld: verify says %d", bit, status);
        ck_assert_msg(status != CKPT_NO || ckpt_report_worst(r) == CKPT_ERROR, "bit %ld: no finding", bit);
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
    image[image_size - 1] ^= 1;   /* the last payload: everything before it is copied by then */
    store(bad, image, image_size);
    training before = b;
    o.verify_first = true;
    ck_assert_int_eq(ckpt_restore(sb, bad, &o, r, &err), CKPT_E_DAMAGED);
    ck_assert(memcmp(&before, &b, sizeof b) == 0);
    ck_assert(!ckpt_state_poisoned(sb));
    image[image_size - 1] ^= 1;
    /* A payload in the middle: some tensors are complete, one is torn, others untouched. */
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
    ck_assert_uint_eq(ckpt_report_count_code(r, "torn"), 1);
    ck_assert_ptr_nonnull(ckpt_report_find(r, "torn", "optimizer.ln.exp_avg"));
    ck_assert_uint_gt(ckpt_report_count_code(r, "complete"), 0);
    ck_assert_uint_gt(ckpt_report_count_code(r, "untouched"), 0);
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

/* ---- memory of ours */

START_TEST(ours_are_made_and_kept)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.allow_unexpected = true;
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    ckpt_state *s = ckpt_state_new();
    bind_tensor(s, "wte", NULL, CKPT_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.dtype = CKPT_F32;
    arena.nbytes = 120;
    arena.role = CKPT_EXP_AVG;
    const ckpt_arena_entry entries[] = { { "wte", 0, 2, wte_shape }, { "ln", 96, 1, ln_shape } };
    OK(ckpt_state_arena(s, &arena, entries, 2, &err));
    ck_assert_ptr_null(ckpt_state_data(s, "wte"));
    ck_assert_int_eq(ckpt_save(s, in_folder("x.safetensors"), NULL, &err), CKPT_E_ARGUMENT);
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert(memcmp(ckpt_state_data(s, "wte"), a.params, 96) == 0);
    ck_assert(memcmp(ckpt_state_data(s, "optimizer.ln.exp_avg"), a.exp_avg + 24, 24) == 0);
    ck_assert_ptr_eq((char *)ckpt_state_data(s, "optimizer.wte.exp_avg") + 96, ckpt_state_data(s, "optimizer.ln.exp_avg"));
    const void *where = ckpt_state_data(s, "wte");
    OK(ckpt_restore(s, in_folder("a.safetensors"), &o, NULL, &err));
    ck_assert_ptr_eq(where, ckpt_state_data(s, "wte"));
    ckpt_state_free(s);
    s = ckpt_state_new();
    bind_tensor(s, "new.head", NULL, CKPT_PARAM, CKPT_F32, 2, wte_shape, NULL, NULL);
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
    bind_tensor(s, "x", NULL, CKPT_PARAM, CKPT_F32, 1, (int64_t[]){ 16 }, NULL, m);
    bind_tensor(s, "y", NULL, CKPT_PARAM, CKPT_F32, 1, (int64_t[]){ 16 }, NULL, m + 16);
    bind_tensor(s, "even", NULL, CKPT_PARAM, CKPT_F32, 1, (int64_t[]){ 8 }, (int64_t[]){ 2 }, m + 32);
    bind_tensor(s, "odd", NULL, CKPT_PARAM, CKPT_F32, 1, (int64_t[]){ 8 }, (int64_t[]){ 2 }, m + 33);
    static const struct { const char *name; int64_t shape[2], strides[2]; int at; ckpt_status status; } cases[] = {
        { "x", { 1, 1 }, { 1, 1 }, 60, CKPT_E_ARGUMENT },           /* twice the name */
        { "z", { 1, 4 }, { 4, 1 }, 14, CKPT_E_MISMATCH },           /* into y */
        { "z", { 1, 2 }, { 2, 1 }, 33, CKPT_E_MISMATCH },           /* into odd and even */
        { "z", { 2, 4 }, { 0, 1 }, 56, CKPT_E_ARGUMENT },           /* stride 0 */
        { "z", { 2, 4 }, { 2, 1 }, 56, CKPT_E_ARGUMENT },           /* rows overlap */
        { "z", { -1, 4 }, { 4, 1 }, 56, CKPT_E_ARGUMENT },
        { "z", { 2, 4 }, { -4, 1 }, 56, CKPT_E_ARGUMENT },
        { "ckpt.blob.0", { 1, 1 }, { 1, 1 }, 60, CKPT_E_ARGUMENT },
        { "", { 1, 1 }, { 1, 1 }, 60, CKPT_E_ARGUMENT },
        { "z\xff", { 1, 1 }, { 1, 1 }, 60, CKPT_E_ARGUMENT },
        { "z", { 2, 2 }, { 1, 2 }, 60, CKPT_OK },                   /* transposed is fine */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = cases[i].name;
        d.role = CKPT_PARAM;
        d.dtype = CKPT_F32;
        d.ndim = 2;
        d.shape = cases[i].shape;
        d.strides = cases[i].strides;
        d.data = m + cases[i].at;
        ck_assert_msg(ckpt_state_tensor(s, &d, &err) == cases[i].status, "case %zu: %s: %s", i, err.object, err.message);
    }
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
        bind_tensor(s, name, NULL, CKPT_PARAM, CKPT_U8, 1, (int64_t[]){ 8 }, NULL, m + at * 8);
    }
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "late";
    d.dtype = CKPT_U8;
    d.ndim = 1;
    d.shape = (int64_t[]){ 1 };
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
    o.progress.fn = NULL;
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
    ck_assert_int_eq(ckpt_save(sa, in_folder("w.safetensors"), &o, &err), CKPT_E_UNSUPPORTED);   /* the tie becomes a copy */
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
    float one[6] = { 1 }, two[6] = { 2 }, tied[6] = { 0 };
    ckpt_state *untied = ckpt_state_new(), *s = ckpt_state_new();
    bind_tensor(untied, "wte", NULL, CKPT_PARAM, CKPT_F32, 1, ln_shape, NULL, one);
    bind_tensor(untied, "head", NULL, CKPT_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    bind_tensor(s, "wte", NULL, CKPT_PARAM, CKPT_F32, 1, ln_shape, NULL, tied);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    refused(s, &o, "tie-broken", "head");
    two[0] = 1;                   /* two tensors, but equal: torch wrote them so */
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 1);
    ckpt_state_free(untied);
    untied = ckpt_state_new();    /* only the second name is there */
    bind_tensor(untied, "head", NULL, CKPT_PARAM, CKPT_F32, 1, ln_shape, NULL, two);
    two[0] = 3;
    OK(ckpt_save(untied, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore(s, in_folder("a.safetensors"), NULL, NULL, &err));
    ck_assert(tied[0] == 3);
    ckpt_state_free(untied);
    ckpt_state_free(s);
}
END_TEST

START_TEST(replicas_and_optional_values)
{
    ckpt_error err = CKPT_ERROR_INIT;
    training c;
    fill(&c, 3);
    ckpt_state *sc = bind_all(&c);
    OK(ckpt_save(sa, in_folder("a.safetensors"), NULL, &err));
    OK(ckpt_restore_many((ckpt_state *[]){ sb, sc }, 2, in_folder("a.safetensors"), NULL, NULL, &err));
    expect_same();
    ck_assert(memcmp(&a, &c, sizeof a) == 0);
    ck_assert_int_eq(ckpt_restore_many((ckpt_state *[]){ sb, sb }, 2, in_folder("a.safetensors"), NULL, NULL, &err), CKPT_E_ARGUMENT);
    int64_t mine = 5;
    ckpt_report *r = ckpt_report_new();
    OK(ckpt_state_i64(sc, "data.position", &mine, &err));
    ck_assert_int_eq(ckpt_restore(sc, in_folder("a.safetensors"), NULL, r, &err), CKPT_E_MISMATCH);
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
    tcase_add_test(t, frozen_files_are_read);
    tcase_add_test(t, every_flipped_bit_is_found);
    tcase_add_test(t, every_truncation_is_found);
    tcase_add_test(t, damage_poisons_until_a_restore_completes);
    tcase_add_test(t, ours_are_made_and_kept);
    tcase_add_test(t, bind_refuses_what_cannot_be_restored);
    tcase_add_test(t, many_binds_stay_cheap_and_overlaps_are_seen);
    tcase_add_test(t, a_failed_save_leaves_what_was_there);
    tcase_add_test(t, plain_safetensors_of_the_weights);
    tcase_add_test(t, ties_are_kept_and_broken_ones_seen);
    tcase_add_test(t, replicas_and_optional_values);
    suite_add_tcase(s, t);
    return run_suite(s);
}
