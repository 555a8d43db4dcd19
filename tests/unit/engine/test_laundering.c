/* test_laundering.c - a changed byte under a view, or beside it in the same storage, is damage in every way out. */
#include "laundering_files.h"

enum { MOST = 4 * VALUES };

static size_t first(const ckpt_reader *reader, const char *name)
{
    size_t i = 0;
    ck_assert_msg(ckpt_reader_find(reader, name, strlen(name), &i, &err) == CKPT_OK, "%s: %s", label, err.message);
    return i;
}

/* The view's values, and nothing else. */
static void holds(const char *path, const char *name, const kind *k, const char *dtype)
{
    float want[MOST], got[MOST];
    uint16_t halves[MOST];
    size_t n = expected(k, want);
    ckpt_reader *reader = opened(path);
    size_t i = first(reader, name);
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    bool half = strcmp(dtype, "bfloat16") == 0;
    ck_assert_msg(t->nbytes == n * (half ? 2 : 4), "%s: %llu bytes, %zu floats are expected", label,
                  (unsigned long long)t->nbytes, n);
    ck_assert_str_eq(ckpt_dtype_name(t->dtype), dtype);
    ck_assert_msg(ckpt_reader_read(reader, i, half ? (void *)halves : got, (size_t)t->nbytes, &err) == CKPT_OK,
                  "%s: %s", label, err.message);
    if (half)
        for (size_t v = 0; v < n; v++) {
            uint32_t bits = (uint32_t)halves[v] << 16;
            memcpy(&got[v], &bits, sizeof bits);
        }
    for (size_t v = 0; v < n; v++)
        ck_assert_msg(got[v] == want[v], "%s: value %zu is %g, %g is expected", label, v, (double)got[v],
                      (double)want[v]);
    ckpt_reader_close(reader);
}

static const char *dtype_of(const kind *k)
{
    return is_complex(k) ? "complex64" : "float32";
}

static void answers(ckpt_status status, flip f, const char *what)
{
    ckpt_status want = f == SOUND ? CKPT_OK : CKPT_E_DAMAGED;
    ck_assert_msg(status == want, "%s: %s: status %d, %d is expected: %s", label, what, (int)status, (int)want,
                  err.message);
}

/* ---- the reader */

static void read_case(const char *path, const kind *k, flip f, void *ctx)
{
    float got[MOST], want[MOST];
    size_t n = expected(k, want);
    uint32_t crc = 0;
    (void)ctx;
    ckpt_reader *reader = opened(path);
    size_t i = first(reader, "w");
    for (int again = 0; again < 3; again++) {
        answers(ckpt_reader_read(reader, i, got, n * 4, &err), f, "ckpt_reader_read");
        ck_assert_msg(f == SOUND || strcmp(err.object, "w") == 0, "%s: the error is of '%s'", label, err.object);
        answers(ckpt_reader_crc32(reader, i, &crc, &err), f, "ckpt_reader_crc32");
        answers(ckpt_reader_read_to(reader, i, ckpt_cpu(), NULL, got, n * 4, &err), f, "ckpt_reader_read_to");
    }
    ckpt_reader_close(reader);
    reader = opened(path);
    answers(ckpt_reader_crc32(reader, i, &crc, &err), f, "ckpt_reader_crc32, first");
    ckpt_reader_close(reader);
    if (f == SOUND) {
        ck_assert_msg(memcmp(got, want, n * 4) == 0, "%s: other values", label);
        ck_assert_msg(crc == ckpt__crc32(0, (const void *)want, n * 4), "%s: another CRC", label);
    }
}

START_TEST(read_back)
{
    ck_assert_uint_ge(each_case(read_case, NULL), 100);
}
END_TEST

static int ignore_stats(void *ctx, size_t tensor, const ckpt_tensor_stats *stats)
{
    (void)tensor;
    (void)stats;
    ++*(int *)ctx;
    return 0;
}

static void stats_case(const char *path, const kind *k, flip f, void *ctx)
{
    (void)ctx;
    for (int histogram = 0; histogram < 2; histogram++) {
        ckpt_stats_options o = {.histogram = histogram};
        ckpt_reader *reader = opened(path);
        int told = 0;
        answers(ckpt_stats(reader, NULL, 0, &o, ignore_stats, &told, &err), f, "ckpt_stats");
        ck_assert_msg(told == (f == SOUND ? k->second ? 2 : 1 : 0), "%s: %d answers", label, told);
        ckpt_reader_close(reader);
    }
}

START_TEST(stats)
{
    ck_assert_uint_ge(each_case(stats_case, NULL), 100);
}
END_TEST

static void diff_case(const char *path, const kind *k, flip f, void *ctx)
{
    ckpt_diff_result result = CKPT_DIFF_RESULT_INIT;
    (void)ctx;
    write_archive(at("other.pt"), k, STORED, SOUND);
    for (int turned = 0; turned < 2; turned++) {
        ckpt_reader *a = opened(turned ? at("other.pt") : path), *b = opened(turned ? path : at("other.pt"));
        memset(&result, 0, sizeof result);
        answers(ckpt_diff(a, b, NULL, &result, NULL, &err), f,
                turned ? "ckpt_diff, the second" : "ckpt_diff, the first");
        ck_assert_msg(f != SOUND || result.of_tensors.changed == 0, "%s: they differ", label);
        ckpt_diff_result_clear(&result);
        ckpt_reader_close(a);
        ckpt_reader_close(b);
    }
}

START_TEST(diff)
{
    ck_assert_uint_ge(each_case(diff_case, NULL), 100);
}
END_TEST

static void verify_case(const char *path, const kind *k, flip f, void *ctx)
{
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    (void)ctx;
    (void)k;
    ckpt_report_clear(report);
    ckpt_status status = ckpt_verify(path, NULL, &result, report, &err);
    ck_assert_msg(status == (f == SOUND ? CKPT_OK : CKPT_ANSWER_NO), "%s: ckpt_verify: %d", label, (int)status);
    ck_assert_msg(result.ok == (f == SOUND) && result.integrity == CKPT_INTEGRITY_CRC32, "%s", label);
    ck_assert_msg(f == SOUND || ckpt_report_count_code(report, "crc-mismatch") > 0, "%s", label);
}

START_TEST(verify)
{
    ck_assert_uint_ge(each_case(verify_case, NULL), 100);
}
END_TEST

static void doctor_case(const char *path, const kind *k, flip f, void *ctx)
{
    ckpt_doctor_options o = {.read_values = true};
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    (void)ctx;
    (void)k;
    ckpt_report_clear(report);
    memset(&result, 0, sizeof result);
    ckpt_reader *reader = opened(path);
    ckpt_status status = ckpt_doctor(reader, &o, &result, report, &err);
    ck_assert_msg(status >= 0, "%s: %s", label, err.message);
    size_t found = ckpt_report_count_code(report, "crc-mismatch");
    ck_assert_msg(f == SOUND ? found == 0 : found > 0, "%s: %zu findings of wrong bytes", label, found);
    ck_assert_msg(f == SOUND || result.outcome != CKPT_OUTCOME_RESUMES, "%s: it is said to resume", label);
    ckpt_doctor_result_clear(&result);
    ckpt_reader_close(reader);
}

START_TEST(doctor)
{
    ck_assert_uint_ge(each_case(doctor_case, NULL), 100);
}
END_TEST

/* ---- restore */

typedef struct place {
    ckpt_state *state;
    unsigned char data[MOST * 8];
} place;

/* linear: as it is; else with the dimensions the other way round; wide: as float64. */
static void bind(place *p, const kind *k, bool linear, bool wide)
{
    int64_t strides[3] = {1, 1, 1};
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = "w";
    d.role = CKPT_ROLE_PARAM;
    d.dtype = is_complex(k) ? CKPT_C64 : wide ? CKPT_F64 : CKPT_F32;
    d.ndim = (uint32_t)k->ndim;
    d.shape = k->shape;
    d.data = p->data;
    for (int i = 1; i < k->ndim; i++)
        strides[i] = strides[i - 1] * k->shape[i - 1];
    d.strides = linear ? NULL : strides;
    memset(p->data, 0xa5, sizeof p->data);
    ck_assert_ptr_nonnull(p->state = ckpt_state_new());
    ck_assert_msg(ckpt_state_tensor(p->state, &d, &err) == CKPT_OK, "%s: %s", label, err.message);
}

static bool untouched(const place *p)
{
    for (size_t i = 0; i < sizeof p->data; i++)
        if (p->data[i] != 0xa5)
            return false;
    return true;
}

static void is_restored(const place *p, const kind *k, bool linear, bool wide)
{
    float want[MOST];
    size_t n = expected(k, want), half = is_complex(k) ? 2 : 1;
    for (size_t v = 0; v < n; v++) {
        size_t rest = v / half, to = 0, step = 1, index[3] = {0};
        for (int i = k->ndim; i-- > 0; rest /= (size_t)k->shape[i])
            index[i] = rest % (size_t)k->shape[i];
        for (int i = 0; i < k->ndim; step *= (size_t)k->shape[i++])
            to += index[i] * step;
        to = linear ? v : to * half + v % half;
        double got = 0;
        float single;
        memcpy(&single, p->data + to * 4, 4);
        if (wide)
            memcpy(&got, p->data + to * 8, 8);
        else
            got = (double)single;
        ck_assert_msg(got == (double)want[v], "%s: value %zu is %g, %g is expected", label, v, got, (double)want[v]);
    }
}

/* What a state holds after damage is what it held, or the state is poisoned: no save of it succeeds. */
static void is_not_used(const place *p)
{
    ckpt_save_options o = CKPT_SAVE_OPTIONS_INIT;
    o.no_sync = true;
    if (!untouched(p))
        ck_assert_msg(ckpt_save(p->state, at("saved"), &o, &err) < 0, "%s: a damaged state is saved", label);
}

static void restore_case(const char *path, const kind *k, flip f, void *ctx)
{
    static place one, two;
    (void)ctx;
    for (int way = 0; way < 8; way++) {
        bool linear = way & 1, wide = (way & 2) && !is_complex(k), verify_first = way & 4;
        ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
        o.verify_first = verify_first;
        o.allow_unexpected = o.allow_cast = true;
        bind(&one, k, linear, wide);
        answers(ckpt_restore(one.state, path, &o, NULL, &err), f, linear ? "ckpt_restore" : "ckpt_restore, strided");
        if (f == SOUND)
            is_restored(&one, k, linear, wide);
        else
            is_not_used(&one);
        ck_assert_msg(f == SOUND || !(verify_first || !linear || wide) || untouched(&one), "%s: touched (%d)", label,
                      way);
        ckpt_state_free(one.state);
        bind(&one, k, linear, wide);
        bind(&two, k, !linear, false);
        ckpt_status status = ckpt_restore_many((ckpt_state *[]){one.state, two.state}, 2, path,
                                               (const ckpt_restore_options *const[]){&o, &o}, NULL, &err);
        answers(status, f, "ckpt_restore_many");
        if (f == SOUND) {
            is_restored(&one, k, linear, wide);
            is_restored(&two, k, !linear, false);
        } else {
            is_not_used(&one);
            is_not_used(&two);
        }
        ckpt_state_free(one.state);
        ckpt_state_free(two.state);
    }
}

START_TEST(restore)
{
    ck_assert_uint_ge(each_case(restore_case, NULL), 100);
}
END_TEST

/* Who asks for no check gets none. */
START_TEST(restore_no_verify)
{
    static place p;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.no_verify = o.allow_unexpected = true;
    for (size_t k = 0; k < KINDS; k++) {
        ck_assert(write_case(at("in"), &kinds[k], STORED, UNDER));
        bind(&p, &kinds[k], true, false);
        ck_assert_msg(ckpt_restore(p.state, at("in"), &o, NULL, &err) == CKPT_OK, "%s: %s", label, err.message);
        ckpt_state_free(p.state);
    }
}
END_TEST

/* ---- migrate */

typedef struct target {
    const char *to;
    bool cast, plain;
} target;

static const target targets[] = {{"safetensors", false, false}, {"ckpt", false, false}, {"torch", false, false},
                                 {"hf", false, false},          {"torch", false, true}, {"safetensors", true, false},
                                 {"ckpt", true, false},         {"torch", true, false}};

static bool there(const char *path)
{
    return access(path, F_OK) == 0;
}

static void migrate_case(const char *path, const kind *k, flip f, void *ctx)
{
    const target *t = ctx;
    const char *const cast = "*=bfloat16";
    char dst[400];
    strcpy(dst, at("out"));
    if (strcmp(t->to, "hf") == 0 && k->ndim == 0)
        return; /* one number is no model */
    for (int verified = 0; verified < 2; verified++) {
        ckpt_migrate_options o = {.no_sync = true, .lossy = true, .verify = verified, .plain = t->plain, .to = t->to};
        o.cast = &cast;
        o.cast_count = t->cast && !is_complex(k) ? 1 : 0;
        ckpt_status status = ckpt_migrate(path, dst, &o, report, &err);
        answers(status, f, t->to);
        ck_assert_msg(there(dst) == (f == SOUND), "%s: to %s: what was written", label, t->to);
        if (f != SOUND)
            continue;
        holds(dst, "w", k, o.cast_count ? "bfloat16" : dtype_of(k));
        ck_assert_int_eq(system("rm -rf \"$CK_OUT\""), 0);
    }
}

START_TEST(migrate_to)
{
    setenv("CK_OUT", at("out"), 1);
    target t = targets[_i];
    ck_assert_uint_ge(each_case(migrate_case, &t), 100);
}
END_TEST

/* With salvage a view of a damaged storage is left out and listed, and what is whole is kept. */
static void salvage_case(const char *path, const kind *k, flip f, void *ctx)
{
    ckpt_migrate_options o = {
        .no_sync = true, .lossy = true, .salvage = true, .to = ctx, .force = true, .verify = true};
    ckpt_status status = ckpt_migrate(path, at("out"), &o, report, &err);
    ck_assert_msg(status == CKPT_OK, "%s: --salvage: %s", label, err.message);
    ckpt_reader *reader = opened(at("out"));
    ck_assert_msg((find(reader, "w") == NULL) == (f != SOUND), "%s: --salvage to %s", label, (const char *)ctx);
    ck_assert_msg((ckpt_report_count_code(report, "not-recovered") > 0) == (f != SOUND), "%s", label);
    (void)k;
    ckpt_reader_close(reader);
}

START_TEST(salvage)
{
    static char to[][16] = {"safetensors", "ckpt", "torch"};
    for (size_t i = 0; i < 3; i++)
        ck_assert_uint_ge(each_case(salvage_case, to[i]), 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("laundering");
    TCase *cases = tcase_create("laundering");
    tcase_set_timeout(cases, 300);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, read_back);
    tcase_add_test(cases, stats);
    tcase_add_test(cases, diff);
    tcase_add_test(cases, verify);
    tcase_add_test(cases, doctor);
    tcase_add_test(cases, restore);
    tcase_add_test(cases, restore_no_verify);
    tcase_add_loop_test(cases, migrate_to, 0, sizeof targets / sizeof *targets);
    tcase_add_test(cases, salvage);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
