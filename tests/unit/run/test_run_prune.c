/* test_run_prune.c - prune_first: an old checkpoint goes before the new one is written, and never the last good one. */
#include "ranks_fixture.h"

static void start(trainer *x, int64_t keep_last, int64_t keep_every)
{
    trainer_init(x);
    x->o.every_steps = 1;
    x->o.retention.keep_last = keep_last;
    x->o.retention.keep_every = keep_every;
    x->o.prune_first = true;
}

/* Saves step `done`; how many checkpoints there are while it is being written. */
static int there_while_saving(trainer *x, const char *run, int64_t done)
{
    gate_set(true, 0);
    ck_assert_int_eq(trainer_step(x, done), CKPT_OK);
    gate_meet(1);
    int n = names_in(run, "step-");
    gate_set(false, 0);
    ck_assert_msg(ckpt_run_wait(x->run, &x->err) == CKPT_OK, "%s: %s", x->err.object, x->err.message);
    return n;
}

START_TEST(one_less_is_there_while_the_new_one_is_written)
{
    static const struct {
        int64_t keep;
        int before, after;
    } rows[] = {{1, 1, 1}, {2, 1, 2}, {3, 2, 3}, {0, 6, 7}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trainer x;
        const char *run = in_folder("run");
        start(&x, rows[i].keep, 0);
        (void)trainer_start(&x, run);
        STEPS(&x, 1, 6);
        ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_OK);
        ck_assert_int_eq(there_while_saving(&x, run, 7), rows[i].before);
        ck_assert_int_eq(names_in(run, "step-"), rows[i].after);
        ck_assert(holds(step_path(run, 7), 7));
        ck_assert(no_leftovers(run));
        ck_assert_uint_eq(heard(&x.news, "prune-failed"), 0);
        trainer_end(&x);
        char command[200];
        snprintf(command, sizeof command, "rm -rf '%s'", run);
        run_command(command);
    }
}
END_TEST

START_TEST(without_the_option_nothing_goes_ahead)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, 3, 0);
    x.o.prune_first = false;
    (void)trainer_start(&x, run);
    STEPS(&x, 1, 6);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_OK);
    ck_assert_int_eq(there_while_saving(&x, run, 7), 3);
    trainer_end(&x);
}
END_TEST

START_TEST(multiples_and_the_newest_verified_one_stay)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, 2, 4);
    (void)trainer_start(&x, run);
    STEPS(&x, 1, 3);
    trainer_end(&x);
    start(&x, 2, 4);
    ck_assert_int_eq(trainer_start(&x, run), 3); /* 3 is verified */
    STEPS(&x, 4, 6);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_OK);
    ck_assert_int_eq(there_while_saving(&x, run, 7), 3); /* 3, 4, 6 */
    static const int64_t stay[] = {3, 4, 6, 7};
    for (size_t i = 0; i < 4; i++)
        ck_assert(is_there(step_path(run, stay[i])));
    ck_assert_int_eq(names_in(run, "step-"), 4);
    trainer_end(&x);
}
END_TEST

/* What is damaged counts for nothing: the last that is whole stays. */
START_TEST(the_last_good_one_stays)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, 2, 0);
    (void)trainer_start(&x, run);
    STEPS(&x, 1, 3);
    trainer_end(&x);
    write_file(path_of(step_path(run, 3), "model.safetensors"), "gone", 4);
    start(&x, 2, 0);
    ck_assert_int_eq(trainer_start(&x, run), 2);
    set_step(&x.t, 4);
    ck_assert_int_eq(there_while_saving(&x, run, 4), 2); /* 2, and the damaged one, which is not understood */
    ck_assert(is_there(step_path(run, 2)) && holds(step_path(run, 4), 4));
    trainer_end(&x);
}
END_TEST

START_TEST(a_save_that_fails_leaves_what_was_kept)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, 2, 0);
    x.o.synchronous = true;
    (void)trainer_start(&x, run);
    STEPS(&x, 1, 3);
    gate_set(false, ENOSPC);
    for (int64_t i = 4; i <= 6; i++) {
        ck_assert_int_eq(trainer_step(&x, i), CKPT_E_SYSTEM);
        ck_assert_int_eq(names_in(run, "step-"), 1);
        ck_assert(holds(step_path(run, 3), 3));
    }
    gate_set(false, 0);
    STEPS(&x, 7, 8);
    ck_assert_int_eq(names_in(run, "step-"), 2);
    trainer_end(&x);
}
END_TEST

START_TEST(a_save_over_the_same_step_counts_once)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, 2, 0);
    x.o.synchronous = true;
    (void)trainer_start(&x, run);
    STEPS(&x, 1, 3);
    ck_assert_int_eq(ckpt_run_save(x.run, 3, &x.err), CKPT_OK);
    ck_assert_int_eq(names_in(run, "step-"), 2);
    ck_assert(holds(step_path(run, 2), 2) && holds(step_path(run, 3), 3));
    trainer_end(&x);
}
END_TEST

/* Rank 1 fails each save from the fourth on, before or after it has pruned: both keep the third. */
static void train_and_fail(member *m)
{
    open_and_resume(m);
    for (int64_t i = 1; i <= 6 && m->status >= 0; i++) {
        pthread_barrier_wait(&m->w->barrier);
        if (i == 4 && m->rank == 0)
            at_sync = (hook){.name = "rank-00001", .fails = EIO};
        pthread_barrier_wait(&m->w->barrier);
        set_rank_step(m, i);
        ckpt_status status = ckpt_run_step(m->x.run, i, &m->x.err);
        if (status >= 0)
            status = ckpt_run_wait(m->x.run, &m->x.err);
        NEED((status < 0) == (i >= 4));
        int n = names_in(m->rank ? "run/rank-00001" : "run/rank-00000", "step-");
        NEED(n == (i == 1 || i >= 4 ? 1 : 2));
    }
    close_rank(m);
}

START_TEST(all_ranks_keep_one_that_all_have)
{
    ck_assert_int_eq(chdir(in_folder("")), 0);
    world *w = world_new("run", 2);
    EACH(w, m)
    {
        m->x.o.every_steps = 1;
        m->x.o.retention.keep_last = 2;
        m->x.o.prune_first = true;
    }
    world_play(w, train_and_fail);
    ck_assert_int_eq(ranks_with(w, 3), 2);
    world_free(w);
    at_sync.name = NULL;
    w = world_new("run", 2);
    world_play(w, look);
    EACH(w, m)
    ck_assert_int_eq(m->done, 3);
    world_free(w);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run_prune");
    TCase *t = tcase_create("prune_first");
    tcase_add_checked_fixture(t, make_run_folder, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, one_less_is_there_while_the_new_one_is_written);
    tcase_add_test(t, without_the_option_nothing_goes_ahead);
    tcase_add_test(t, multiples_and_the_newest_verified_one_stay);
    tcase_add_test(t, the_last_good_one_stays);
    tcase_add_test(t, a_save_that_fails_leaves_what_was_kept);
    tcase_add_test(t, a_save_over_the_same_step_counts_once);
    tcase_add_test(t, all_ranks_keep_one_that_all_have);
    suite_add_tcase(s, t);
    return run_suite(s);
}
