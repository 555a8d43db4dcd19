/* test_run_shares.c - ranks whose states differ: what is replicated is bound on rank 0 alone, and each rank binds its share of the
 * moments (ZeRO-1). */
#include "ranks_fixture.h"

#include <ckpt/doctor.h>

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
    static const int64_t shape[] = { ROWS, COLUMNS }, share[] = { SHARE };
    ckpt_error err = CKPT_ERROR_INIT;
    s->state = ckpt_state_new();
    if (params)
        bind_tensor(s->state, "w", NULL, CKPT_PARAM, CKPT_F32, 2, shape, NULL, s->params);
    bind_tensor(s->state, "optimizer.w.exp_avg", "w", CKPT_EXP_AVG, CKPT_F32, 1, share, NULL, s->exp_avg);
    OK(ckpt_state_i64(s->state, "step", &s->step, &err));
}

static bool on_both;

static void open_shares(member *m)
{
    shares *s = &all[m->rank];
    memset(s, 0, sizeof *s);
    bind_shares(s, m->rank == 0 || on_both);
    m->done = -7;
    m->status = ckpt_run_open(&m->x.run, m->w->run, s->state, &m->x.o, &m->x.err);
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
        EACH(w, m) {
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
        ckpt_doctor_options o = { .cuda_devices = -1 };
        ckpt_doctor_result result;
        ckpt_report *report = ckpt_report_new();
        OK(ckpt_reader_open(rank_path(run, rank, 3), NULL, &reader, &err));
        OK(ckpt_doctor(reader, &o, &result, report, &err));
        const ckpt_finding *f = ckpt_report_find(report, "moment-shape", "optimizer.w.exp_avg");
        ck_assert_msg(result.outcome == CKPT_RESUMES, "%s", ckpt_outcome_name(result.outcome));
        ck_assert(f && f->severity == CKPT_NOTE);
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
        ckpt_reader_close(reader);
    }
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
    suite_add_tcase(s, t);
    return run_suite(s);
}
