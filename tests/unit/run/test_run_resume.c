/* test_run_resume.c - from which checkpoint a run goes on: the newest that is whole, the one before where it is not,
 * and never in silence from the beginning. */
#include "codec/crc32.h"
#include "../run_fixture.h"

/* Checkpoints of steps 1 to last. */
static void make_run(const char *run, int last)
{
    trainer x;
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    STEPS(&x, 1, last);
    trainer_end(&x);
}

static void flip(const char *path, long at, int bit)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_msg(f != NULL, "%s", path);
    IS_OK(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET));
    int c = fgetc(f);
    ck_assert_int_ne(c, EOF);
    IS_OK(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET));
    fputc(c ^ 1 << bit, f);
    IS_OK(fclose(f));
}

static long size_of(const char *path)
{
    struct stat st;
    IS_OK(stat(path, &st));
    return (long)st.st_size;
}

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[600];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    run_command(command);
}

/* ---- damage */

typedef struct damage {
    const char *name, *command; /* of the shell, in the newest step's directory */
    const char *said;           /* why it is passed over */
} damage;

static const damage damages[] = {
    {"model shorter", "truncate -s -1 model.safetensors", "model.safetensors has"},
    {"model longer", "printf x >>model.safetensors", "model.safetensors has"},
    {"model empty", ": >model.safetensors", "model.safetensors has 0 bytes"},
    {"model missing", "rm model.safetensors", "model.safetensors is missing"},
    {"model a directory", "rm model.safetensors; mkdir model.safetensors", "model.safetensors"},
    {"model a fifo", "rm model.safetensors; mkfifo model.safetensors", "model.safetensors"},
    {"model a dangling link", "rm model.safetensors; ln -s nowhere model.safetensors", "model.safetensors"},
    {"model a link outside", "mv model.safetensors ../..; ln -s ../../model.safetensors .", "model.safetensors"},
    {"training missing", "rm training.safetensors", "training.safetensors is missing"},
    {"training half", "truncate -s 100 training.safetensors", "training.safetensors has 100 bytes"},
    {"manifest missing", "rm checkpoint.json", "no checkpoint.json"},
    {"manifest empty", ": >checkpoint.json", "checkpoint.json"},
    {"manifest cut", "truncate -s -3 checkpoint.json", "checksum"},
    {"manifest a directory", "rm checkpoint.json; mkdir checkpoint.json", "checkpoint.json"},
    {"manifest of another step", "cp ../step-00000002/checkpoint.json .", "checkpoint.json is of step 2"},
    {"manifest replaced", "echo '{}' >checkpoint.json", "checkpoint.json"},
    {"empty directory", "rm *", "no checkpoint.json"},
    {"a file in its place", "cd ..; rm -r step-00000003; echo x >step-00000003", "it is a file"},
    {"renamed", "cd ..; rm -r step-00000003; cp -r step-00000001 step-00000003", "checkpoint.json is of step 1"},
};

static void expect_fallback(trainer *x, const char *name, const char *why)
{
    int64_t done = -1;
    ckpt_report *report = ckpt_report_new();
    set_step(&x->t, 40);
    x->news.count = 0;
    ckpt_status status = ckpt_run_resume(x->run, NULL, &done, report, &x->err);
    ck_assert_msg(status == CKPT_OK, "%s: %d: %s: %s", name, (int)status, x->err.object, x->err.message);
    ck_assert_msg(done == 2 && is_of_step(&x->t, 2), "%s: resumed from %d", name, (int)done);
    const ckpt_finding *f = ckpt_report_find(report, "fallback", NULL);
    ck_assert_msg(f && f->severity == CKPT_SEVERITY_WARNING && strncmp(f->message, "step-00000003 is skipped", 24) == 0,
                  "%s: %s", name, f ? f->message : "no finding");
    ck_assert_msg(strstr(f->message, why) != NULL, "%s: '%s' is not in: %s", name, why, f->message);
    ck_assert_uint_eq(ckpt_report_count_code(report, "fallback"), 1);
    ck_assert_msg(strstr(said(&x->news, "fallback"), why) != NULL, "%s: %s", name, said(&x->news, "fallback"));
    ck_assert_uint_eq(ckpt_report_count_code(report, "resumed"), 1);
    ckpt_report_free(report);
}

/* Each damage is found, named, and made good when the run comes to that step again. */
START_TEST(test_damage)
{
    trainer x;
    const char *run = in_folder("run"), *whole = in_folder("whole");
    make_run(run, 3);
    shell("cp -r %s %s", step_path(run, 3), whole);
    trainer_init(&x);
    x.o.every_steps = 1;
    IS_OK(trainer_open(&x, run));
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const damage *d = &damages[i];
        shell("rm -rf %s %s/.tmp-*; cp -r %s %s; cd %s; %s", step_path(run, 3), run, whole, step_path(run, 3),
              step_path(run, 3), d->command);
        expect_fallback(&x, d->name, d->said);
        STEPS(&x, 3, 3);
        ckpt_status status = ckpt_run_wait(x.run, &x.err);
        ck_assert_msg(status == CKPT_OK && holds(step_path(run, 3), 3), "%s: %s: %s", d->name, x.err.object,
                      x.err.message);
        ck_assert_msg(no_leftovers(run) || strstr(d->command, "mkdir"), "%s", d->name); /* one in another stays */
    }
    trainer_end(&x);
}
END_TEST

/* Every place of the headers and of the manifest, and some of the payload. */
START_TEST(test_flipped_bits)
{
    static const char *const files[] = {"checkpoint.json", "model.safetensors", "training.safetensors"};
    trainer x;
    const char *run = in_folder("run");
    make_run(run, 3);
    trainer_init(&x);
    IS_OK(trainer_open(&x, run));
    for (int k = 0; k < 3; k++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", step_path(run, 3), files[k]);
        long size = size_of(path), header = 0;
        if (k > 0) {
            FILE *f = fopen(path, "rb");
            unsigned char n[8];
            ck_assert_uint_eq(fread(n, 1, 8, f), 8);
            fclose(f);
            header = 8 + (n[0] | n[1] << 8);
        }
        int tried = 0;
        for (long at = 0; at < size; at += k == 0 || at < 8 ? 1 : at < header ? 5 : 211, tried++) {
            char name[80];
            int bit = (int)(at % 8);
            snprintf(name, sizeof name, "bit %d of byte %ld of %s", bit, at, files[k]);
            flip(path, at, bit);
            expect_fallback(&x, name, "");
            flip(path, at, bit);
        }
        flip(path, -1, 0);
        expect_fallback(&x, files[k], "");
        flip(path, -1, 0);
        ck_assert_int_gt(tried, 50);
    }
    int64_t done;
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_msg(done == 3, "what was flipped back is whole again");
    trainer_end(&x);
}
END_TEST

START_TEST(test_none_is_whole)
{
    trainer x;
    int64_t done = 77;
    ckpt_report *report = ckpt_report_new();
    const char *run = in_folder("run");
    make_run(run, 3);
    flip(path_of(step_path(run, 1), "model.safetensors"), -1, 3);
    flip(path_of(step_path(run, 2), "checkpoint.json"), 60, 0);
    shell("rm %s/training.safetensors", step_path(run, 3));
    trainer_init(&x);
    x.o.every_steps = 1;
    IS_OK(trainer_open(&x, run));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, report, &x.err), CKPT_E_DAMAGED);
    ck_assert_int_eq(done, 0);
    ck_assert_msg(strstr(x.err.message, "none of 3 checkpoints") &&
                      strstr(x.err.message, "training.safetensors is missing"),
                  "%s", x.err.message);
    ck_assert_uint_eq(ckpt_report_count_code(report, "fallback"), 3);
    ck_assert_msg(trainer_step(&x, 1) == CKPT_E_ARGUMENT, "nothing goes on without a resume");
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    ckpt_run_get_info(x.run, &info);
    ck_assert_int_eq(info.resumed_step, -1);
    ckpt_report_free(report);
    trainer_end(&x);
}
END_TEST

/* One that is nothing but a file, or a directory with something else in it, is a candidate too. */
START_TEST(test_no_silent_start)
{
    trainer x;
    int64_t done;
    const char *run = in_folder("run");
    IS_OK(mkdir(run, 0777));
    write_file(step_path(run, 7), "x", 1);
    trainer_init(&x);
    IS_OK(trainer_open(&x, run));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(x.err.message, "it is a file") != NULL, "%s", x.err.message);
    shell("rm %s", step_path(run, 7));
    IS_OK(mkdir(step_path(run, 8), 0777));
    write_file(path_of(step_path(run, 8), "model.safetensors"), "x", 1);
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_DAMAGED);
    shell("rm -r %s", step_path(run, 8));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_NOTHING_TO_RESUME);
    trainer_end(&x);
}
END_TEST

/* ---- what ends it at once */

START_TEST(test_mismatch)
{
    trainer x;
    int64_t done = 77;
    float other[9] = {4};
    ckpt_report *report = ckpt_report_new();
    const char *run = in_folder("run");
    make_run(run, 2);
    trainer_init(&x);
    bind_tensor(x.state, "other", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, (int64_t[]){9}, NULL, other);
    IS_OK(trainer_open(&x, run));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, report, &x.err), CKPT_E_MISMATCH);
    ck_assert_int_eq(done, 0);
    ck_assert_uint_eq(ckpt_report_count_code(report, "fallback"), 0);
    ck_assert_uint_eq(ckpt_report_count_code(report, "missing"), 1);
    ck_assert_msg(is_of_step(&x.t, 0), "nothing was touched");
    ckpt_report_free(report);
    IS_OK(trainer_close(&x));
    ckpt_restore_options lenient = {.allow_missing = true};
    x.o.restore = &lenient;
    ck_assert_int_eq(trainer_start(&x, run), 2);
    ck_assert(is_of_step(&x.t, 2));
    trainer_end(&x);
}
END_TEST

/* The manifest says version 2, and its checksum is right. */
START_TEST(test_too_new)
{
    trainer x;
    int64_t done;
    char text[4096], digits[12];
    const char *run = in_folder("run"), *manifest;
    make_run(run, 2);
    manifest = path_of(step_path(run, 2), "checkpoint.json");
    size_t n = read_file(manifest, text, sizeof text);
    char *version = strstr(text, "\"manifest\":1");
    ck_assert_ptr_nonnull(version);
    version[11] = '2';
    memset(text + 15, '0', 8);
    snprintf(digits, sizeof digits, "%08lx", (unsigned long)ckpt__crc32(0, text, n));
    memcpy(text + 15, digits, 8);
    write_file(manifest, text, n);
    trainer_init(&x);
    IS_OK(trainer_open(&x, run));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_TOO_NEW);
    ck_assert_msg(strstr(x.err.message, "version 2") != NULL, "%s", x.err.message);
    trainer_end(&x);
}
END_TEST

START_TEST(test_options_of_the_restore)
{
    trainer x;
    const char *run = in_folder("run");
    ckpt_restore_options fast = {.no_verify = true}, newer = {.struct_size = 1u << 20};
    int64_t done;
    make_run(run, 2);
    flip(path_of(step_path(run, 2), "model.safetensors"), -1, 3);
    trainer_init(&x);
    x.o.restore = &fast;
    ck_assert_msg(trainer_start(&x, run) == 2, "CRCs were not to be looked at");
    ck_assert(!is_of_step(&x.t, 2));
    ck_assert_msg(!is_there(path_of(run, "verified")), "nor was it verified");
    IS_OK(trainer_close(&x));
    x.o.restore = &newer;
    ck_assert_int_eq(trainer_open(&x, run), CKPT_E_ARGUMENT);
    x.o.restore = NULL;
    IS_OK(trainer_open(&x, run));
    ck_assert_int_lt(ckpt_run_resume(x.run, "no such map {", &done, NULL, &x.err), 0);
    IS_OK(ckpt_run_resume(x.run, "cpu", NULL, NULL, NULL));
    ck_assert(is_of_step(&x.t, 1));
    trainer_end(&x);
}
END_TEST

/* ---- retention after a fallback */

static void save_at(trainer *x, int64_t done)
{
    set_step(&x->t, done);
    IS_OK(ckpt_run_save(x->run, done, &x->err));
    IS_OK(ckpt_run_wait(x->run, &x->err));
}

static void expect_steps(const char *run, const char *want)
{
    char have[200] = "";
    for (int i = 0; i < 100; i++)
        if (is_there(step_path(run, i)))
            snprintf(have + strlen(have), sizeof have - strlen(have), "%d ", i);
    ck_assert_str_eq(have, want);
}

START_TEST(test_retention_after_fallback)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    trainer_start(&x, run);
    for (int i = 10; i <= 30; i += 10)
        save_at(&x, i);
    IS_OK(trainer_close(&x));
    flip(path_of(step_path(run, 30), "training.safetensors"), -1, 0);
    x.o.retention.keep_last = 2;
    ck_assert_int_eq(trainer_start(&x, run), 20);
    save_at(&x, 21);
    expect_steps(run, "20 21 30 "); /* 30 does not count, or 20 would be gone */
    save_at(&x, 22);
    expect_steps(run, "20 21 22 30 "); /* 20 is the newest that was verified */
    save_at(&x, 23);
    expect_steps(run, "20 22 23 30 ");
    save_at(&x, 30);
    expect_steps(run, "20 23 30 ");
    ck_assert(holds(step_path(run, 30), 30));
    save_at(&x, 31);
    expect_steps(run, "20 30 31 ");
    save_at(&x, 32);
    expect_steps(run, "20 31 32 "); /* 30 is a good one again: it goes like any other */
    trainer_end(&x);
}
END_TEST

/* The run goes by the step of the damaged one, and does not save there. */
START_TEST(test_retention_beyond_a_bad_one)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    trainer_start(&x, run);
    for (int i = 10; i <= 30; i += 10)
        save_at(&x, i);
    IS_OK(trainer_close(&x));
    flip(path_of(step_path(run, 30), "training.safetensors"), -1, 0);
    x.o.retention.keep_last = 2;
    ck_assert_int_eq(trainer_start(&x, run), 20);
    save_at(&x, 22);
    save_at(&x, 35);
    expect_steps(run, "20 22 30 35 "); /* 35 and 22 are the two, and 20 was verified */
    trainer_end(&x);
}
END_TEST

/* What is beyond the step of the run (the file of another attempt) is not removed, and takes no place. */
/* A later one that another run of another directory has left here does not push this run's own out. */
START_TEST(test_retention_of_one)
{
    trainer x;
    const char *run = in_folder("run");
    make_run(in_folder("other"), 7);
    trainer_init(&x);
    x.o.retention.keep_last = 1;
    trainer_start(&x, run);
    shell("mv %s/step-00000007 %s", in_folder("other"), run);
    save_at(&x, 5);
    expect_steps(run, "5 7 ");
    save_at(&x, 6);
    expect_steps(run, "6 7 ");
    trainer_end(&x);
}
END_TEST

/* ---- the hint of what was verified */

static int lines_of(const char *run, const char *name)
{
    char text[2000];
    int n = 0;
    text[read_file(path_of(run, "verified"), text, sizeof text)] = '\0';
    for (const char *at = text; (at = strstr(at, name)); at++)
        n++;
    return n;
}

static bool is_verified(const char *run, int64_t step)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    bool verified = false;
    IS_OK(ckpt_run_list_open(run, &list, &err));
    for (size_t i = 0; i < ckpt_run_list_count(list); i++)
        if (ckpt_run_list_entry(list, i)->step == step)
            verified = ckpt_run_list_entry(list, i)->verified;
    ckpt_run_list_close(list);
    return verified;
}

START_TEST(test_verified)
{
    trainer x;
    const char *run = in_folder("run");
    make_run(run, 3);
    ck_assert(!is_there(path_of(run, "verified")));
    trainer_init(&x);
    x.o.every_steps = 1;
    ck_assert_int_eq(trainer_start(&x, run), 3);
    ck_assert(is_verified(run, 3) && !is_verified(run, 2));
    IS_OK(trainer_close(&x));
    flip(path_of(step_path(run, 3), "model.safetensors"), -1, 0);
    ck_assert_int_eq(trainer_start(&x, run), 2);
    ck_assert_msg(is_verified(run, 2) && !is_verified(run, 3), "it was found to be damaged since");
    ck_assert_int_eq(lines_of(run, "step-"), 1);
    STEPS(&x, 3, 3);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_msg(!is_verified(run, 3), "the new one was not read back");
    trainer_end(&x);
}
END_TEST

START_TEST(test_read_back)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.read_back = true;
    x.o.retention.keep_last = 2;
    trainer_start(&x, run);
    for (int i = 1; i <= 4; i++) {
        STEPS(&x, i, i);
        IS_OK(ckpt_run_wait(x.run, &x.err));
        ck_assert(is_verified(run, i));
    }
    ck_assert_msg(lines_of(run, "step-") == 3, "lines of what is gone go with the next one");
    /* The first file turns bad while the second is written. */
    at_sync = (hook){.name = "training.safetensors"};
    STEPS(&x, 5, 5);
    hook_meet(&at_sync);
    shell("for f in %s/.tmp-step-00000005.*/model.safetensors; do printf '\\377\\377\\377\\377' | dd of=$f bs=1 "
          "seek=$(($(stat -c %%s $f) - 4)) "
          "conv=notrunc status=none; done",
          run);
    hook_open(&at_sync);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_E_DAMAGED);
    ck_assert_msg(strstr(x.err.message, "reads back otherwise") != NULL, "%s", x.err.message);
    at_sync.name = NULL;
    ck_assert(!is_there(step_path(run, 5)) && no_leftovers(run) && holds(step_path(run, 4), 4));
    STEPS(&x, 6, 6);
    trainer_end(&x);
    ck_assert(is_verified(run, 6));
}
END_TEST

START_TEST(test_copied_elsewhere)
{
    trainer x;
    const char *run = in_folder("run"), *copy = in_folder("copy");
    make_run(run, 3);
    shell("cp -r %s %s", run, copy);
    flip(path_of(step_path(run, 3), "model.safetensors"), -1, 0);
    trainer_init(&x);
    x.o.every_steps = 1;
    ck_assert_int_eq(trainer_start(&x, copy), 3);
    STEPS(&x, 4, 5);
    trainer_end(&x);
    ck_assert(holds(step_path(copy, 5), 5) && !is_there(step_path(run, 4)));
}
END_TEST

/* A trainer that leaves the count of steps to the run binds no step. */
START_TEST(test_step_is_not_bound)
{
    const char *path = in_folder("run");
    float weight[3] = {1, 2, 3};
    int64_t shape[] = {3}, done = 0;
    ckpt_run *run = NULL;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    o.every_steps = 4;
    bind_tensor(state, "weight", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, shape, NULL, weight);
    IS_OK(ckpt_run_open(path, state, &o, &run, &err));
    ck_assert_int_eq(ckpt_run_resume(run, NULL, &done, NULL, &err), CKPT_NOTHING_TO_RESUME);
    IS_OK(ckpt_run_step(run, 4, &err));
    IS_OK(ckpt_run_close(run, &err));
    weight[1] = 9;
    IS_OK(ckpt_run_open(path, state, &o, &run, &err));
    IS_OK(ckpt_run_resume(run, NULL, &done, NULL, &err));
    ck_assert(done == 4 && weight[1] == 2);
    IS_OK(ckpt_run_close(run, &err));
    ckpt_state_free(state);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_resume");
    TCase *tc = tcase_create("resume");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_step_is_not_bound);
    tcase_add_test(tc, test_damage);
    tcase_add_test(tc, test_flipped_bits);
    tcase_add_test(tc, test_none_is_whole);
    tcase_add_test(tc, test_no_silent_start);
    tcase_add_test(tc, test_mismatch);
    tcase_add_test(tc, test_too_new);
    tcase_add_test(tc, test_options_of_the_restore);
    tcase_add_test(tc, test_retention_after_fallback);
    tcase_add_test(tc, test_retention_beyond_a_bad_one);
    tcase_add_test(tc, test_retention_of_one);
    tcase_add_test(tc, test_verified);
    tcase_add_test(tc, test_read_back);
    tcase_add_test(tc, test_copied_elsewhere);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
