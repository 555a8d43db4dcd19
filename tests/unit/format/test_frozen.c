/* test_frozen.c - what ckpt 0.1.0 saved comes back bit for bit (tests/data/v01), and a run of it goes on. */
#include <fcntl.h>
#include "../../data/v01/frozen.h"
#include "../runner.h"
#include "../scratch.h"

static const char *root; /* of the fixtures, absolute */

static void set_up(void)
{
    static char path[1200];
    const char *srcdir = getenv("srcdir");
    char *here = realpath(srcdir ? srcdir : ".", NULL);
    ck_assert_ptr_nonnull(here);
    snprintf(path, sizeof path, "%s/tests/data/v01", here);
    free(here);
    root = path;
    make_scratch();
}

static const char *fixture(const char *name)
{
    static char path[1300];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static void copy(const char *name)
{
    char command[1500];
    snprintf(command, sizeof command, "cp -r '%s' . && chmod -R u+w '%s'", fixture(name), name);
    ck_assert_int_eq(system(command), 0);
}

static ckpt_state *bind(frozen *f, bool ours)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    ck_assert_msg(frozen_bind(s, f, ours, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    return s;
}

static void is_of(const frozen *have, uint64_t seed, int64_t step)
{
    frozen want;
    frozen_fill(&want, seed);
    want.step = step;
    /* Not bound: the arenas' gaps. */
    memset(want.params + 20, 0, 4 * sizeof(float));
    memset(want.params + 30, 0, 10 * sizeof(float));
    memset(want.exp_avg + 20, 0, 4 * sizeof(float));
    memset(want.exp_avg + 30, 0, 10 * sizeof(float));
    memset(want.exp_avg_sq + 20, 0, 4 * sizeof(float));
    memset(want.exp_avg_sq + 30, 0, 10 * sizeof(float));
    ck_assert_mem_eq(have->params, want.params, sizeof want.params);
    ck_assert_mem_eq(have->exp_avg, want.exp_avg, sizeof want.exp_avg);
    ck_assert_mem_eq(have->exp_avg_sq, want.exp_avg_sq, sizeof want.exp_avg_sq);
    ck_assert_mem_eq(have->steps, want.steps, sizeof want.steps);
    ck_assert_mem_eq(have->half, want.half, sizeof want.half);
    ck_assert_mem_eq(have->order, want.order, sizeof want.order);
    ck_assert_mem_eq(have->mask, want.mask, sizeof want.mask);
    ck_assert_mem_eq(have->ema, want.ema, sizeof want.ema);
    ck_assert_mem_eq(have->rng, want.rng, sizeof want.rng);
    ck_assert_str_eq(have->note, want.note);
    ck_assert_mem_eq(&have->scaler, &want.scaler, sizeof want.scaler);
    ck_assert(have->step == want.step && have->epoch == want.epoch && have->sampled == want.sampled);
    ck_assert_mem_eq(&have->best, &want.best, sizeof want.best);
    ck_assert_mem_eq(&have->warmup, &want.warmup, sizeof want.warmup);
    ck_assert_mem_eq(&have->lr, &want.lr, sizeof want.lr);
    ck_assert_mem_eq(&have->beta1, &want.beta1, sizeof want.beta1);
    ck_assert_mem_eq(&have->beta2, &want.beta2, sizeof want.beta2);
    ck_assert_mem_eq(&have->eps, &want.eps, sizeof want.eps);
    ck_assert(have->foreach == want.foreach && have->amsgrad == want.amsgrad);
}

static void restore_as(const char *path, uint64_t seed, int64_t step)
{
    frozen f;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(&f, 0, sizeof f);
    ckpt_state *s = bind(&f, false);
    ckpt_status status = ckpt_restore(s, path, NULL, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s: %s", path, err.object, err.message);
    is_of(&f, seed, step);
    ckpt_state_free(s);
}

START_TEST(files_restore_bit_for_bit)
{
    restore_as(fixture("file.safetensors"), FROZEN_FILE_SEED, FROZEN_FILE_SEED);
    restore_as(fixture("directory"), FROZEN_FILE_SEED, FROZEN_FILE_SEED);
    restore_as(fixture("devices.safetensors"), FROZEN_FILE_SEED, FROZEN_FILE_SEED); /* onto the host */
}
END_TEST

#ifdef HAVE_CUDA_H
START_TEST(devices_restore_onto_devices_and_back)
{
    frozen f;
    ckpt_error err = CKPT_ERROR_INIT;
    memset(&f, 0, sizeof f);
    ckpt_state *s = bind(&f, true);
    ckpt_status status = ckpt_restore(s, fixture("devices.safetensors"), NULL, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert(ckpt_device_equal(ckpt_state_device(s, "wte.weight"), ckpt_cuda(1)));
    ck_assert(ckpt_device_equal(ckpt_state_device(s, "half"), ckpt_cpu()));
    ck_assert_int_eq(ckpt_save(s, "again", NULL, &err), CKPT_OK);
    restore_as("again", FROZEN_FILE_SEED, FROZEN_FILE_SEED);
    ckpt_state_free(s);
}
END_TEST
#endif

START_TEST(weights_restore)
{
    frozen f, want;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    frozen_fill(&want, FROZEN_FILE_SEED);
    memset(&f, 0, sizeof f);
    ckpt_state *s = bind(&f, false);
    o.allow_missing = true;
    ckpt_status status = ckpt_restore(s, fixture("weights.safetensors"), &o, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    ck_assert_mem_eq(f.params, want.params, 20 * sizeof(float));
    ck_assert_mem_eq(f.half, want.half, sizeof want.half);
    ck_assert_mem_eq(f.mask, want.mask, sizeof want.mask);
    ck_assert_int_eq(f.step, 0);
    ckpt_state_free(s);
}
END_TEST

static int64_t resumed(frozen *f, int64_t last)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run = NULL;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    int64_t done = -1;
    o.every_steps = 1;
    memset(f, 0, sizeof *f);
    ckpt_state *s = bind(f, false);
    ckpt_status status = ckpt_run_open("run", s, &o, &run, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    status = ckpt_run_resume(run, NULL, &done, NULL, &err);
    ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    is_of(f, (uint64_t)done, done);
    for (int64_t step = done + 1; step <= last; step++) {
        frozen_fill(f, (uint64_t)step);
        status = ckpt_run_step(run, step, &err);
        ck_assert_msg(status == CKPT_OK, "%s: %s", err.object, err.message);
    }
    ck_assert_int_eq(ckpt_run_close(run, &err), CKPT_OK);
    ckpt_state_free(s);
    return done;
}

START_TEST(a_run_resumes_and_goes_on)
{
    frozen f;
    copy("run");
    ck_assert_int_eq(resumed(&f, 22), 20);
    ck_assert_int_eq(resumed(&f, 0), 22);
}
END_TEST

START_TEST(a_damaged_step_is_passed_over)
{
    frozen f;
    copy("run");
    int fd = open("run/step-00000020/training.safetensors", O_RDWR);
    ck_assert_int_eq((int)pwrite(fd, "X", 1, 4400), 1);
    close(fd);
    ck_assert_int_eq(resumed(&f, 0), 10);
}
END_TEST

START_TEST(ranks_restore_each_its_own)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    for (int rank = 0; rank < 2; rank++)
        for (int step = 10; step <= 20; step += 10) {
            char name[100];
            snprintf(name, sizeof name, "ranks/rank-%05d/step-%08d", rank, step);
            restore_as(fixture(name), (uint64_t)(step + 1000 * rank), step);
        }
    ck_assert_int_eq(ckpt_run_list_open(fixture("ranks"), &list, &err), CKPT_OK);
    ck_assert_uint_eq(ckpt_run_list_count(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(list, i);
        ck_assert(e->complete && e->world == 2 && e->ranks_held == 2 && e->step == 20 - 10 * (int64_t)i);
    }
    ckpt_run_list_close(list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("frozen");
    TCase *tc = tcase_create("0.1");
    tcase_add_checked_fixture(tc, set_up, remove_scratch);
    tcase_add_test(tc, files_restore_bit_for_bit);
#ifdef HAVE_CUDA_H
    tcase_add_test(tc, devices_restore_onto_devices_and_back);
#endif
    tcase_add_test(tc, weights_restore);
    tcase_add_test(tc, a_run_resumes_and_goes_on);
    tcase_add_test(tc, a_damaged_step_is_passed_over);
    tcase_add_test(tc, ranks_restore_each_its_own);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
