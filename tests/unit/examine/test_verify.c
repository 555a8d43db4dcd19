/* test_verify.c - every flipped bit and every cut is found where there are checksums; what is wrong is named. */
#include "../command_files.h"
#include "../runner.h"

static ckpt_error err;

/* A small native file, from a torch one. */
static char *native(size_t *size)
{
    ckpt_migrate_options options;
    memset(&options, 0, sizeof options);
    options.force = true;
    ck_assert_int_eq(ckpt_migrate(fixture("plain.pt"), temporary("native.safetensors"), &options, NULL, &err), CKPT_OK);
    return read_all(temporary("native.safetensors"), size);
}

static ckpt_status verify(const char *path, ckpt_verify_result *result, ckpt_report *report)
{
    err.status = CKPT_OK;
    return ckpt_verify(path, NULL, result, report, &err);
}

START_TEST(intact)
{
    static const struct {
        const char *name;
        ckpt_integrity integrity;
        uint64_t tensors, bytes;
    } files[] = {{"plain.pt", CKPT_INTEGRITY_CRC32, 27, 404}, {"weights.safetensors", CKPT_INTEGRITY_NONE, 2, 32}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ckpt_report *report = ckpt_report_new();
        ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
        ck_assert_int_eq(verify(fixture(files[i].name), &r, report), CKPT_OK);
        ck_assert(r.ok);
        ck_assert_int_eq(r.integrity, files[i].integrity);
        ck_assert_uint_eq(r.tensors, files[i].tensors);
        ck_assert_uint_eq(r.bytes, files[i].bytes);
        ck_assert_uint_eq(r.unprotected_bytes, files[i].integrity == CKPT_INTEGRITY_NONE ? files[i].bytes : 0);
        ck_assert_uint_eq(ckpt_report_count_code(report, "no-integrity-data"),
                          files[i].integrity == CKPT_INTEGRITY_NONE);
        ckpt_report_free(report);
    }
}
END_TEST

START_TEST(native_every_byte)
{
    size_t size;
    char *data = native(&size);
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    ck_assert_int_eq(verify(temporary("native.safetensors"), &r, NULL), CKPT_OK);
    ck_assert_int_eq(r.integrity, CKPT_INTEGRITY_CRC32);
    for (size_t at = 0; at < size; at++) {
        data[at] = (char)(data[at] ^ (1 << (at % 8)));
        write_all(temporary("flipped"), data, size);
        ck_assert_msg(verify(temporary("flipped"), &r, NULL) != CKPT_OK,
                      "a flipped bit in byte %zu of %zu was not found", at, size);
        data[at] = (char)(data[at] ^ (1 << (at % 8)));
    }
    free(data);
}
END_TEST

START_TEST(native_every_cut)
{
    size_t size;
    char *data = native(&size);
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    for (size_t at = 0; at < size; at += at < 64 ? 1 : 61) {
        write_all(temporary("cut"), data, at);
        ck_assert_msg(verify(temporary("cut"), &r, NULL) != CKPT_OK, "cut at %zu of %zu", at, size);
    }
    write_all(temporary("cut"), data, size - 1);
    ck_assert_int_eq(verify(temporary("cut"), &r, NULL), CKPT_ANSWER_NO);
    free(data);
}
END_TEST

START_TEST(names_the_tensor)
{
    ckpt_report *report = ckpt_report_new();
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    ck_assert_int_eq(verify(fixture("bad-crc.pt"), &r, report), CKPT_ANSWER_NO);
    ck_assert(!r.ok);
    const ckpt_finding *f = ckpt_report_find(report, "crc-mismatch", "model.0.weight");
    ck_assert_msg(f && strstr(f->fix, "ckpt-migrate --salvage leaves this tensor out"), "%s", f ? f->fix : "");
    ck_assert_uint_eq(ckpt_report_count(report), 1);
    ck_assert_str_ne(err.message, "");
    ck_assert_int_eq(verify(fixture("bad-half.pt"), &r, report), CKPT_ANSWER_NO);
    f = ckpt_report_find(report, "truncated", NULL);
    ck_assert_msg(f && strstr(f->fix, "ckpt-migrate --salvage keeps"), "%s", f ? f->fix : "");
    ckpt_report_free(report);
}
END_TEST

/* One damaged storage, two tensors on it: both are named. */
START_TEST(names_all_on_a_storage)
{
    size_t size;
    char *data = read_all(fixture("shared.pt"), &size);
    const float three = 3;
    size_t at = 0;
    while (at + 4 < size && memcmp(data + at, &three, 4) != 0)
        at++;
    ck_assert_uint_lt(at + 4, size);
    data[at] ^= 1;
    write_all(temporary("shared"), data, size);
    ckpt_report *report = ckpt_report_new();
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    ck_assert_int_eq(verify(temporary("shared"), &r, report), CKPT_ANSWER_NO);
    ck_assert_ptr_nonnull(ckpt_report_find(report, "crc-mismatch", "whole"));
    ck_assert_ptr_nonnull(ckpt_report_find(report, "crc-mismatch", "part"));
    ckpt_report_free(report);
    free(data);
}
END_TEST

START_TEST(no_answer)
{
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    ck_assert_int_eq(verify(temporary("no-such-file"), &r, NULL), CKPT_E_SYSTEM);
    ck_assert_int_eq(verify(fixture("README"), &r, NULL), CKPT_E_FORMAT);
    ck_assert_int_eq(verify(scratch, &r, NULL), CKPT_E_FORMAT);
    ck_assert_int_eq(verify("", &r, NULL), CKPT_E_ARGUMENT);
}
END_TEST

static int cancel(void *ctx, uint64_t done, uint64_t total)
{
    ck_assert_uint_le(done, total);
    ++*(int *)ctx;
    return 1;
}

START_TEST(cancelled)
{
    int calls = 0;
    ckpt_progress progress = {cancel, &calls};
    ck_assert_int_eq(ckpt_verify(fixture("plain.pt"), &(ckpt_verify_options){.progress = progress}, NULL, NULL, &err),
                     CKPT_E_CANCELLED);
    ck_assert_int_eq(calls, 1);
}
END_TEST

/* ---- by several threads */

static void save_large(const char *path, bool directory)
{
    static const int64_t sizes[] = {20 << 20, 100 << 10, 1, 9 << 20};
    ckpt_state *state = ckpt_state_new();
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    char *memory = malloc(40 << 20), *next = memory;
    ck_assert(state && memory);
    for (int i = 0; i < 40 << 20; i++)
        memory[i] = (char)(i * 2654435761U >> 24);
    for (size_t i = 0; i < 4; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        char name[8];
        snprintf(name, sizeof name, "w%u", (unsigned)i % 10);
        d.name = name;
        d.dtype = CKPT_U8;
        d.ndim = 1;
        d.shape = &sizes[i];
        d.role = CKPT_ROLE_PARAM;
        d.data = next;
        ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
        next += sizes[i];
    }
    options.directory = directory;
    options.no_sync = true;
    ck_assert_msg(ckpt_save(state, path, &options, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ckpt_state_free(state);
    free(memory);
}

static int follow(void *ctx, uint64_t done, uint64_t total)
{
    uint64_t *before = ctx;
    ck_assert(done >= *before && done <= total);
    *before = done;
    return 0;
}

/* The same answer by 1, 2, ... threads: numbers, findings, and their order. findings SIZE_MAX: one at least. */
static void all_say(const char *path, ckpt_status status, size_t findings)
{
    static const size_t threads[] = {1, 2, 5, 16, 1000, 0};
    ckpt_report *first = ckpt_report_new(), *report = ckpt_report_new();
    ckpt_verify_result was = CKPT_VERIFY_RESULT_INIT, r = CKPT_VERIFY_RESULT_INIT;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        ckpt_verify_options options = CKPT_VERIFY_OPTIONS_INIT;
        uint64_t done = 0;
        options.threads = threads[i];
        options.progress = (ckpt_progress){follow, &done};
        ck_assert_int_eq(ckpt_verify(path, &options, &r, i ? report : first, &err), status);
        if (findings == SIZE_MAX)
            findings = ckpt_report_count(first);
        ck_assert_uint_gt(findings + (status == CKPT_OK), 0);
        ck_assert_uint_eq(ckpt_report_count(i ? report : first), findings);
        ck_assert_uint_ge(done, r.bytes);
        if (i == 0)
            was = r;
        ck_assert(was.bytes == r.bytes && was.tensors == r.tensors && was.unprotected_bytes == r.unprotected_bytes);
        ck_assert(was.ok == r.ok && was.integrity == r.integrity);
        for (size_t k = 0; i && k < findings; k++) {
            const ckpt_finding *a = ckpt_report_get(first, k), *b = ckpt_report_get(report, k);
            ck_assert_str_eq(a->code, b->code);
            ck_assert_str_eq(a->tensor, b->tensor);
            ck_assert_str_eq(a->file, b->file);
            ck_assert_str_eq(a->message, b->message);
        }
    }
    ckpt_report_free(first);
    ckpt_report_free(report);
}

static void flip(char *data, size_t at)
{
    data[at] = (char)(data[at] ^ 8);
}

START_TEST(threads_change_nothing)
{
    size_t size;
    const char *path = temporary("large");
    save_large(path, false);
    all_say(path, CKPT_OK, 0);
    char *data = read_all(path, &size);
    flip(data, size - 1); /* the last tensor, and the first one in its middle */
    flip(data, size - (20 << 20));
    write_all(path, data, size);
    all_say(path, CKPT_ANSWER_NO, 2);
    write_all(path, data, size - 1);
    all_say(path, CKPT_ANSWER_NO, SIZE_MAX);
    free(data);
}
END_TEST

START_TEST(threads_change_nothing_of_a_manifest)
{
    char step[1200], file[1300];
    size_t size;
    snprintf(step, sizeof step, "%s/step-2", scratch);
    save_large(step, true);
    all_say(step, CKPT_OK, 0);
    snprintf(file, sizeof file, "%s/model.safetensors", step);
    char *data = read_all(file, &size);
    flip(data, size / 2);
    write_all(file, data, size);
    all_say(step, CKPT_ANSWER_NO, 2); /* the file, and the tensor */
    ck_assert_int_eq(unlink(file), 0);
    all_say(step, CKPT_ANSWER_NO, SIZE_MAX);
    free(data);
}
END_TEST

/* ---- a step directory */

static float weights[64], moments[64];

static void save_step(const char *path)
{
    int64_t shape[] = {8, 8};
    ckpt_state *state = ckpt_state_new();
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    for (int i = 0; i < 64; i++)
        weights[i] = moments[i] = (float)i;
    d.name = "w";
    d.dtype = CKPT_F32;
    d.ndim = 2;
    d.shape = shape;
    d.role = CKPT_ROLE_PARAM;
    d.data = weights;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    d.name = NULL;
    d.param = "w";
    d.role = CKPT_ROLE_EXP_AVG;
    d.data = moments;
    ck_assert_int_eq(ckpt_state_tensor(state, &d, &err), CKPT_OK);
    options.directory = true;
    ck_assert_msg(ckpt_save(state, path, &options, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    ckpt_state_free(state);
}

START_TEST(step_directory)
{
    static const char *const names[] = {"model.safetensors", "training.safetensors", "checkpoint.json"};
    char step[1200], file[1300];
    ckpt_report *report = ckpt_report_new();
    ckpt_verify_result r = CKPT_VERIFY_RESULT_INIT;
    snprintf(step, sizeof step, "%s/step-1", scratch);
    save_step(step);
    ck_assert_msg(verify(step, &r, report) == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_uint_eq(r.tensors, 2);
    ck_assert_uint_eq(r.bytes, 512);
    for (size_t i = 0; i < 3; i++) {
        size_t size;
        snprintf(file, sizeof file, "%s/%s", step, names[i]);
        char *data = read_all(file, &size);
        for (size_t at = 0; at < size; at += 97) { /* prime: meets header, padding and payload */
            data[at] ^= 4;
            write_all(file, data, size);
            ck_assert_msg(verify(step, &r, report) == CKPT_ANSWER_NO, "%s: a flipped bit in byte %zu", names[i], at);
            data[at] ^= 4;
        }
        write_all(file, data, size - 1);
        ck_assert_int_eq(verify(step, &r, report), CKPT_ANSWER_NO);
        ck_assert_int_eq(ckpt_report_worst(report), CKPT_SEVERITY_ERROR);
        write_all(file, data, size);
        ck_assert_int_eq(verify(step, &r, report), CKPT_OK);
        free(data);
    }
    snprintf(file, sizeof file, "%s/training.safetensors", step);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(verify(step, &r, report), CKPT_ANSWER_NO);
    ck_assert_uint_eq(ckpt_report_count_code(report, "missing-file"), 1);
    ckpt_report_free(report);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("verify");
    TCase *t = tcase_create("verify");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, intact);
    tcase_add_test(t, native_every_byte);
    tcase_add_test(t, native_every_cut);
    tcase_add_test(t, names_the_tensor);
    tcase_add_test(t, names_all_on_a_storage);
    tcase_add_test(t, no_answer);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, threads_change_nothing);
    tcase_add_test(t, threads_change_nothing_of_a_manifest);
    tcase_add_test(t, step_directory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
