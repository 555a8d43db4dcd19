/* test_run_shares.c - ranks whose states differ: what is replicated is bound on rank 0 alone, and each rank binds its share of the
 * moments (ZeRO-1). */
#include "ranks_fixture.h"

#include <ckpt/doctor.h>
#include <ckpt/verify.h>

enum { ROWS = 4, COLUMNS = 6, SHARE = ROWS * COLUMNS / 2 };

typedef struct shares {
    float params[ROWS * COLUMNS], exp_avg[SHARE];
    int64_t step;
    ckpt_state *state;
} shares;
static shares all[2];

static void set_shares(shares *s, int64_t rank, int64_t step)
{
    for (int i = 0; i < ROWS * COLUMNS; i++)
        s->params[i] = (float)(i + 100 * step);
    for (int i = 0; i < SHARE; i++)
        s->exp_avg[i] = (float)(i + 1000 * rank + 10 * step);
    s->step = step;
}

static bool are_shares(const shares *s, int64_t rank, int64_t step, bool params)
{
    static shares want;
    set_shares(&want, rank, step);
    return memcmp(s->exp_avg, want.exp_avg, sizeof want.exp_avg) == 0 && s->step == step &&
           (!params || memcmp(s->params, want.params, sizeof want.params) == 0);
}

static void bind_shares(shares *s, bool params)
{
    static const int64_t shape[] = {ROWS, COLUMNS}, share[] = {SHARE};
    ckpt_error err = CKPT_ERROR_INIT;
    s->state = ckpt_state_new();
    if (params)
        bind_tensor(s->state, "w", NULL, CKPT_ROLE_PARAM, CKPT_F32, 2, shape, NULL, s->params);
    bind_tensor(s->state, "optimizer.w.exp_avg", "w", CKPT_ROLE_EXP_AVG, CKPT_F32, 1, share, NULL, s->exp_avg);
    OK(ckpt_state_i64(s->state, "step", &s->step, &err));
}

static bool on_both;

static void open_shares(member *m)
{
    shares *s = &all[m->rank];
    memset(s, 0, sizeof *s);
    bind_shares(s, m->rank == 0 || on_both);
    m->done = -7;
    m->status = ckpt_run_open(m->w->run, s->state, &m->x.o, &m->x.run, &m->x.err);
    if (m->status == CKPT_OK)
        m->status = ckpt_run_resume(m->x.run, NULL, &m->done, NULL, &m->x.err);
}

static void close_shares(member *m)
{
    close_rank(m);
    ckpt_state_free(all[m->rank].state);
}

static void train_shares(member *m)
{
    open_shares(m);
    for (int64_t i = 1; i <= 3 && m->status >= 0; i++) {
        set_shares(&all[m->rank], m->rank, i);
        m->status = ckpt_run_step(m->x.run, i, &m->x.err);
    }
    close_shares(m);
}

static void resume_shares(member *m)
{
    open_shares(m);
    close_shares(m);
}

static void make_run_of_shares(const char *run)
{
    world *w = world_new(run, 2);
    EACH(w, m)
    m->x.o.every_steps = 1;
    world_play(w, train_shares);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
    world_free(w);
}

START_TEST(each_rank_resumes_its_own)
{
    for (int both = 0; both < 2; both++) {
        const char *run = in_folder(both ? "both" : "one");
        on_both = both;
        make_run_of_shares(run);
        world *w = world_new(run, 2);
        world_play(w, resume_shares);
        EACH(w, m)
        {
            ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
            ck_assert_int_eq(m->done, 3);
            ck_assert(are_shares(&all[m->rank], m->rank, 3, m->rank == 0 || on_both));
        }
        world_free(w);
    }
}
END_TEST

START_TEST(doctor_says_that_each_resumes)
{
    const char *run = in_folder("run");
    on_both = true;
    make_run_of_shares(run);
    for (int64_t rank = 0; rank < 2; rank++) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_reader *reader = NULL;
        ckpt_doctor_options o = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        OK(ckpt_reader_open(rank_path(run, rank, 3), NULL, &reader, &err));
        OK(ckpt_doctor(reader, &o, &result, report, &err));
        const ckpt_finding *f = ckpt_report_find(report, "moment-shape", "optimizer.w.exp_avg");
        ck_assert_msg(result.outcome == CKPT_OUTCOME_RESUMES, "%s", ckpt_outcome_name(result.outcome));
        ck_assert(f && f->severity == CKPT_SEVERITY_NOTE);
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
        ckpt_reader_close(reader);
    }
}
END_TEST

/* Paths of both ranks, as one checkpoint. */
static ckpt_status open_both(const char *first, const char *second, ckpt_reader **reader, ckpt_error *err)
{
    const char *also[] = {second};
    ckpt_reader_options o = CKPT_READER_OPTIONS_INIT;
    o.also = also;
    o.also_count = second ? 1 : 0;
    *err = (ckpt_error)CKPT_ERROR_INIT;
    return ckpt_reader_open(first, &o, reader, err);
}

static void expect_tensor(const ckpt_reader *reader, const char *name, const char *file, float first)
{
    ckpt_error err = CKPT_ERROR_INIT;
    float data[ROWS * COLUMNS];
    size_t i = 0;
    OK(ckpt_reader_find(reader, name, strlen(name), &i, &err));
    const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
    ck_assert_str_eq(t->file.data, file);
    ck_assert_uint_le(t->nbytes, sizeof data);
    OK(ckpt_reader_read(reader, i, data, (size_t)t->nbytes, &err));
    ck_assert_msg(data[0] >= first && data[0] <= first, "%s: %g", name, (double)data[0]);
}

START_TEST(the_parts_of_all_ranks_are_one_checkpoint)
{
    for (int both = 0; both < 2; both++)
        for (int turned = 0; turned < 2; turned++) {
            const char *run = in_folder(both ? "both" : "one");
            ckpt_error err = CKPT_ERROR_INIT;
            ckpt_reader *reader = NULL;
            on_both = both;
            if (!turned)
                make_run_of_shares(run);
            OK(open_both(rank_path(run, turned, 3), rank_path(run, !turned, 3), &reader, &err));
            ck_assert_str_eq(ckpt_reader_format(reader), "ckpt");
            ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 3);
            expect_tensor(reader, "w", "rank-00000/model.safetensors", 300);
            expect_tensor(reader, "rank-00000.optimizer.w.exp_avg", "rank-00000/training.safetensors", 30);
            expect_tensor(reader, "rank-00001.optimizer.w.exp_avg", "rank-00001/training.safetensors", 1030);
            ck_assert_ptr_nonnull(ckpt_value_get(ckpt_reader_root(reader), "step"));
            ck_assert_uint_eq(ckpt_report_count_code(ckpt_reader_findings(reader), "ranks-joined"), 1);
            ckpt_reader_close(reader);
        }
}
END_TEST

static void expect_refused(const char *first, const char *second, const char *text)
{
    ckpt_error err;
    ckpt_reader *reader = NULL;
    ck_assert_int_eq(open_both(first, second, &reader, &err), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(err.message, text) != NULL, "'%s' is not in: %s", text, err.message);
    ck_assert_ptr_null(reader);
}

START_TEST(what_is_not_of_one_save_is_refused)
{
    const char *run = in_folder("run"), *other = in_folder("other");
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader = NULL;
    char command[600];
    on_both = true;
    make_run_of_shares(run);
    make_run_of_shares(other);
    expect_refused(rank_path(run, 0, 3), rank_path(run, 1, 2), "step");
    expect_refused(rank_path(run, 0, 3), rank_path(other, 1, 3), "another save");
    expect_refused(rank_path(run, 0, 3), rank_path(other, 0, 3), "rank 0 of 2");
    snprintf(command, sizeof command, "cp -r %s %s/copy", rank_path(run, 1, 3), run);
    run_command(command);
    snprintf(command, sizeof command, "%s/copy", run);
    expect_refused(rank_path(run, 1, 3), command, "rank 0 of 2 is missing");
    OK(open_both(rank_path(run, 0, 3), NULL, &reader, &err)); /* one alone is what it was */
    ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 2);
    ckpt_reader_close(reader);
}
END_TEST

START_TEST(the_parts_are_verified_each_and_together)
{
    const char *run = in_folder("run");
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    on_both = true;
    make_run_of_shares(run);
    const char *paths[] = {rank_path(run, 0, 3), rank_path(run, 1, 3)},
               *mixed[] = {rank_path(run, 0, 3), rank_path(run, 1, 2)};
    OK(ckpt_verify(paths[0], &(ckpt_verify_options){.also = paths + 1, .also_count = 1}, &result, NULL, &err));
    ck_assert(result.ok && result.tensors == 4 && result.integrity == CKPT_INTEGRITY_CRC32);
    ck_assert_int_eq(
        ckpt_verify(mixed[0], &(ckpt_verify_options){.also = mixed + 1, .also_count = 1}, &result, NULL, &err),
        CKPT_ANSWER_NO); /* each is whole, and they are of two saves */
    ck_assert(!result.ok);
    int fd = open(path_of(rank_path(run, 1, 3), "training.safetensors"), O_RDWR);
    ck_assert(fd >= 0 && pwrite(fd, "\xff\xff\xff\xff", 4, lseek(fd, 0, SEEK_END) - 8) == 4);
    close(fd);
    ckpt_report *report = ckpt_report_new();
    ck_assert_int_eq(
        ckpt_verify(paths[0], &(ckpt_verify_options){.also = paths + 1, .also_count = 1}, &result, report, &err),
        CKPT_ANSWER_NO);
    ck_assert(!result.ok && ckpt_report_count(report) > 0);
    ckpt_report_free(report);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run_shares");
    TCase *t = tcase_create("shares");
    tcase_add_checked_fixture(t, make_run_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_rank_resumes_its_own);
    tcase_add_test(t, doctor_says_that_each_resumes);
    tcase_add_test(t, the_parts_of_all_ranks_are_one_checkpoint);
    tcase_add_test(t, what_is_not_of_one_save_is_refused);
    tcase_add_test(t, the_parts_are_verified_each_and_together);
    suite_add_tcase(s, t);
    return run_suite(s);
}
