/* test_run_ranks.c - several ranks: all save the same step or none, all resume from the same one, and the error of one
 * is that of all. The ranks are threads here; nothing in the library knows. */
#include "ranks_fixture.h"

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
    char command[900];
    va_list ap;
    va_start(ap, format);
    vsnprintf(command, sizeof command, format, ap);
    va_end(ap);
    run_command(command);
}

static world *new_world(const char *run, int n, int64_t last)
{
    world *w = world_new(run, n);
    w->last = last;
    EACH(w, m)
    {
        m->x.o.every_steps = 2;
    }
    return w;
}

/* Checkpoints of 2, 4, ..., last, of n ranks. */
static void make_run(const char *run, int n, int64_t last)
{
    world *w = new_world(run, n, last);
    world_play(w, train);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
    world_free(w);
}

/* What a new world of n ranks resumes from, with the right state on each; text: in the finding of rank 0, or NULL. */
static void expect_resume(const char *run, int n, int64_t step, const char *text)
{
    world *w = new_world(run, n, 0);
    world_play(w, look);
    EACH(w, m)
    {
        ck_assert_msg(m->status == CKPT_OK, "rank %d: %d: %s: %s", (int)m->rank, (int)m->status, m->x.err.object,
                      m->x.err.message);
        ck_assert_msg(m->done == step, "rank %d is at %d, not %d", (int)m->rank, (int)m->done, (int)step);
        ck_assert_msg(text ? strstr(said(&m->x.news, "fallback"), text) != NULL : heard(&m->x.news, "fallback") == 0,
                      "'%s': %s", text ? text : "no fallback", said(&m->x.news, "fallback"));
    }
    world_free(w);
}

static void expect_error(world *w, ckpt_status status, const char *text)
{
    EACH(w, m)
    {
        ck_assert_msg(m->status == status, "rank %d: %d: %s: %s", (int)m->rank, (int)m->status, m->x.err.object,
                      m->x.err.message);
        ck_assert_msg(strstr(m->x.err.message, text) != NULL, "rank %d: '%s' is not in: %s", (int)m->rank, text,
                      m->x.err.message);
        ck_assert_str_eq(m->x.err.message, w->members[0].x.err.message);
    }
}

static void expect_no_resume(const char *run, int n, ckpt_status status, const char *text)
{
    world *w = new_world(run, n, 0);
    world_play(w, look);
    expect_error(w, status, text);
    world_free(w);
}

/* ---- all or none */

START_TEST(test_all_save)
{
    const char *run = in_folder("run");
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    world *w = new_world(run, 3, 7);
    EACH(w, m)
    {
        m->x.o.retention.keep_last = 2;
        m->x.o.last_step = 7;
        m->x.o.read_back = true;
    }
    w->members[1].x.o.snapshot_limit = 10; /* it alone saves while it waits */
    world_play(w, train);
    EACH(w, m)
    {
        ck_assert_msg(m->status == CKPT_OK, "%s: %s", m->x.err.object, m->x.err.message);
        ck_assert_uint_eq(heard(&m->x.news, "saved"), 4);
        ck_assert_uint_eq(heard(&m->x.news, "pruned"), 2);
        ck_assert_uint_eq(heard(&m->x.news, "synchronous"), m->rank == 1);
    }
    world_free(w);
    OK(ckpt_run_list_open(run, &list, &err));
    ck_assert_uint_eq(ckpt_run_list_count(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(list, i);
        ck_assert_msg(e->complete && e->verified, "%s", e->why);
        ck_assert(e->world == 3 && e->ranks_held == 3 && e->step == (i ? 6 : 7));
    }
    ckpt_run_list_close(list);
    expect_resume(run, 3, 7, NULL);
}
END_TEST

START_TEST(test_synchronous_ranks)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 6);
    EACH(w, m)
    m->x.o.synchronous = true;
    world_play(w, train);
    EACH(w, m)
    {
        ck_assert_int_eq(m->status, CKPT_OK);
        ck_assert_uint_eq(heard(&m->x.news, "saved"), 3);
    }
    world_free(w);
    expect_resume(run, 3, 6, NULL);
}
END_TEST

/* Steps on whatever the save's errors; counts them. */
static void train_on(member *m)
{
    int errors = 0;
    open_and_resume(m);
    NEED(m->status >= 0);
    for (int64_t i = 1; i <= m->w->last; i++) {
        set_rank_step(m, i);
        ckpt_error e = CKPT_ERROR_INIT;
        if (ckpt_run_step(m->x.run, i, &e) < 0) {
            m->x.err = e;
            errors++;
        }
        if (i % 2 == 0 && ckpt_run_wait(m->x.run, &e) < 0) {
            m->x.err = e;
            errors++;
        }
        pthread_barrier_wait(&m->w->barrier);
        if (i == 4 && m->rank == 0) /* the hooks are of all ranks, and one of them takes them away */
            at_sync.name = at_rename.name = NULL;
        pthread_barrier_wait(&m->w->barrier);
    }
    m->done = errors;
    m->status = ckpt_run_close(m->x.run, NULL);
}

/* One rank cannot write: the same error on all, nothing of that step anywhere, and the next one works. */
START_TEST(test_one_cannot_write)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 6);
    at_sync = (hook){.name = "rank-00001/.tmp-step-00000004", .fails = ENOSPC};
    world_play(w, train_on);
    EACH(w, m)
    {
        ck_assert_int_eq(m->status, CKPT_OK);
        ck_assert_msg(m->done == 1, "rank %d was told %d times", (int)m->rank, (int)m->done);
        ck_assert_msg(strncmp(m->x.err.message, "rank 1: ", 8) == 0 && strstr(m->x.err.message, "fdatasync"), "%s",
                      m->x.err.message);
        ck_assert_int_eq(m->x.err.sys_errno, ENOSPC);
        ck_assert_str_eq(m->x.err.message, w->members[0].x.err.message);
        ck_assert_msg(strstr(said(&m->x.news, "save-failed"), "rank 1") != NULL, "%s", said(&m->x.news, "save-failed"));
    }
    ck_assert(ranks_with(w, 2) == 3 && ranks_with(w, 4) == 0 && ranks_with(w, 6) == 3);
    for (int i = 0; i < 3; i++) {
        char rank[300];
        snprintf(rank, sizeof rank, "%s/rank-%05d", run, i);
        ck_assert(no_leftovers(rank));
    }
    world_free(w);
    expect_resume(run, 3, 6, NULL);
}
END_TEST

/* One rank cannot publish: what the others have published is of no use, and is not counted when they prune. */
START_TEST(test_one_cannot_publish)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 6);
    EACH(w, m)
    m->x.o.retention.keep_last = 2;
    at_rename = (hook){.name = "rank-00001", .fails = EIO};
    at_rename.name = NULL;
    w->last = 2;
    world_play(w, train);
    w->last = 6;
    EACH(w, m)
    ck_assert_int_eq(m->status, CKPT_OK);
    world_free(w);
    w = new_world(run, 3, 4);
    at_rename = (hook){.name = "rank-00001", .fails = EIO};
    world_play(w, train);
    at_rename.name = NULL;
    expect_error(w, CKPT_E_SYSTEM, "rank 1: ");
    ck_assert(ranks_with(w, 2) == 3 && ranks_with(w, 4) == 2);
    world_free(w);
    expect_resume(run, 3, 2, "it is not in this rank's directory");
    w = new_world(run, 3, 6); /* 4 is saved again, over what two ranks have */
    world_play(w, train);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "%s: %s", m->x.err.object, m->x.err.message);
    world_free(w);
    expect_resume(run, 3, 6, NULL);
    shell("rm -r %s", rank_path(run, 2, 6));
    expect_resume(run, 3, 4, "it is not in this rank's directory");
}
END_TEST

static void three_saves(member *m)
{
    open_and_resume(m);
    NEED(m->status >= 0);
    for (int64_t i = 10; i <= 40; i += 10) {
        set_rank_step(m, i);
        pthread_barrier_wait(&m->w->barrier);
        if (m->rank == 0)
            at_rename = (hook){.name = i == 20 || i == 30 ? "rank-00001" : NULL, .fails = EIO};
        pthread_barrier_wait(&m->w->barrier);
        (void)ckpt_run_save(m->x.run, i, &m->x.err);
        (void)ckpt_run_wait(m->x.run, &m->x.err);
        pthread_barrier_wait(&m->w->barrier);
    }
    m->status = ckpt_run_close(m->x.run, NULL);
}

/* 20 and 30 were published by two ranks of three: keep_last = 2 is 40 and 10, on every rank. */
START_TEST(test_retention_counts_what_all_have)
{
    const char *run = in_folder("run");
    world *w = world_new(run, 3);
    EACH(w, m)
    m->x.o.retention.keep_last = 2;
    world_play(w, three_saves);
    ck_assert(ranks_with(w, 20) == 2 && ranks_with(w, 40) == 3);
    ck_assert_msg(ranks_with(w, 10) == 3, "%d ranks have it", ranks_with(w, 10));
    world_free(w);
    shell("rm -r %s", rank_path(run, 0, 40));
    expect_resume(run, 3, 10, "skipped");
}
END_TEST

/* ---- resume */

START_TEST(test_newest_common)
{
    const char *run = in_folder("run"), *other = in_folder("other");
    make_run(run, 3, 8);
    make_run(other, 3, 8);
    shell("rm -r %s", rank_path(run, 2, 8));
    expect_resume(run, 3, 6, "rank 2: it is not in this rank's directory");
    shell("rm -r %s; cp -r %s %s", rank_path(run, 1, 6), rank_path(other, 1, 6), rank_path(run, 1, 6));
    expect_resume(run, 3, 4, "skipped");
    /* The newest of them is told by name for each of the two reasons. */
    world *w = new_world(run, 3, 0);
    world_play(w, look);
    EACH(w, m)
    {
        ck_assert_uint_eq(heard(&m->x.news, "fallback"), 2);
        ck_assert_msg(strstr(said(&m->x.news, "fallback"), "step-00000006 is skipped: the ranks hold different saves"),
                      "%s", said(&m->x.news, "fallback"));
    }
    world_free(w);
    FILE *f = fopen(path_of(rank_path(run, 1, 4), "model.safetensors"), "r+b");
    ck_assert_ptr_nonnull(f);
    fseek(f, -1, SEEK_END);
    int c = fgetc(f);
    fseek(f, -1, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
    expect_resume(run, 3, 2, "rank 1: ");
    shell("rm -r %s/rank-00002", run);
    expect_no_resume(run, 3, CKPT_E_NOT_FOUND, "none of 4 checkpoints");
    shell("rm -r %s/rank-*", run);
    w = new_world(run, 3, 0);
    world_play(w, look);
    EACH(w, m)
    ck_assert(m->done == 0 && m->status == CKPT_OK && heard(&m->x.news, "resumed") == 0);
    world_free(w);
}
END_TEST

/* A run that died in its very first save, before rank 1 came to publish: it may begin anew. Where a rank has the hint that
 * all ranks had published something, rank 1 has lost it, and the run must not. */
START_TEST(test_first_save_half_published)
{
    const char *run = in_folder("run");
    make_run(run, 3, 2);
    shell("rm -r %s/rank-00001/step-*", run);
    expect_no_resume(run, 3, CKPT_E_NOT_FOUND, "none of 1 checkpoints");
    shell("rm %s/rank-00000/latest %s/rank-00001/latest", run, run);
    expect_no_resume(run, 3, CKPT_E_NOT_FOUND, "none of 1 checkpoints");
    shell("rm %s/rank-00002/latest", run);
    world *w = new_world(run, 3, 0);
    world_play(w, look);
    EACH(w, m)
    ck_assert(m->done == 0 && m->status == CKPT_OK && heard(&m->x.news, "resumed") == 0 &&
              heard(&m->x.news, "fallback") == 1);
    world_free(w);
    shell("rm %s/rank-00002/step-*/model.safetensors", run);
    expect_no_resume(run, 3, CKPT_E_NOT_FOUND, "none of 1 checkpoints");
}
END_TEST

/* One rank cannot read its part, and the others have read theirs: no rank may go on with what it has. */
START_TEST(test_damage_poisons_all)
{
    const char *run = in_folder("run");
    make_run(run, 3, 2);
    shell(
        "f=%s; printf '\\377\\377\\377\\377' | dd of=$f bs=1 seek=$(($(stat -c %%s $f) - 4)) conv=notrunc status=none",
        path_of(rank_path(run, 1, 2), "model.safetensors"));
    world *w = new_world(run, 3, 0);
    world_play(w, look);
    expect_error(w, CKPT_E_DAMAGED, "none of 1 checkpoints");
    EACH(w, m)
    ck_assert_msg(m->x.state->poisoned, "rank %d", (int)m->rank);
    world_free(w);
}
END_TEST

/* A mismatch on one rank ends it on all, whatever may be older. */
START_TEST(test_mismatch_on_one)
{
    static float other[4];
    const char *run = in_folder("run");
    make_run(run, 3, 4);
    world *w = new_world(run, 3, 0);
    bind_tensor(w->members[2].x.state, "other", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, (int64_t[]){4}, NULL, other);
    world_play(w, look);
    expect_error(w, CKPT_E_MISMATCH, "rank 2: ");
    world_free(w);
}
END_TEST

START_TEST(test_other_world)
{
    const char *run = in_folder("run");
    char apart[3][100];
    make_run(run, 3, 4);
    expect_no_resume(run, 2, CKPT_E_MISMATCH, "it holds rank-00002, and this run has 2 ranks");
    expect_no_resume(run, 4, CKPT_E_MISMATCH, "it was saved by 3 ranks, and this run has 4");
    trainer x;
    trainer_init(&x);
    ck_assert_int_eq(trainer_open(&x, run), CKPT_E_MISMATCH);
    ck_assert_msg(strstr(x.err.message, "several ranks write here") != NULL, "%s", x.err.message);
    ck_assert_int_eq(names_in(run, "step-"), 0);
    trainer_start(&x, in_folder("alone"));
    set_step(&x.t, 1);
    IS_OK(ckpt_run_save(x.run, 1, &x.err));
    trainer_end(&x);
    expect_no_resume(in_folder("alone"), 2, CKPT_E_MISMATCH, "of a run of one process");
    /* On disks of their own no rank sees the directory of another. */
    for (int i = 0; i < 3; i++) {
        snprintf(apart[i], sizeof apart[i], "%s/disk%d", folder, i);
        shell("mkdir %s; cp -r %s/rank-%05d %s", apart[i], run, i, apart[i]);
    }
    world *w = new_world(apart[0], 2, 0);
    w->members[1].run = apart[1];
    world_play(w, look);
    expect_error(w, CKPT_E_MISMATCH, "it was saved by 3 ranks, and this run has 2");
    world_free(w);
    w = new_world(apart[0], 3, 0);
    EACH(w, m)
    m->run = apart[m->rank];
    world_play(w, look);
    EACH(w, m)
    ck_assert(m->status == CKPT_OK && m->done == 4);
    world_free(w);
}
END_TEST

/* Rank 0's directory under the name of rank 1: it is not loaded there. */
START_TEST(test_exchanged_directories)
{
    const char *run = in_folder("run");
    make_run(run, 2, 2);
    shell("cd %s; rm -r rank-00001; cp -r rank-00000 rank-00001", run);
    expect_no_resume(run, 2, CKPT_E_MISMATCH, "rank 1: it is of rank 0, in the directory of rank 1");
}
END_TEST

/* ---- the ranks' writers end at different times */

static void one_is_slow(member *m)
{
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    open_and_resume(m);
    NEED(m->status >= 0);
    for (int64_t i = 1; i <= 12; i++) {
        set_rank_step(m, i);
        NEED(ckpt_run_step(m->x.run, i, &m->x.err) == CKPT_OK);
        if (i == 2 && m->rank == 1)
            hook_meet(&at_sync);
        pthread_barrier_wait(&m->w->barrier);
        if (i < 8 && m->rank == 0)
            NEED(ranks_with(m->w, 2) == 0); /* none has published while one still writes */
        pthread_barrier_wait(&m->w->barrier);
        if (i == 8 && m->rank == 0)
            hook_open(&at_sync);
        pthread_barrier_wait(&m->w->barrier);
    }
    m->status = ckpt_run_wait(m->x.run, &m->x.err);
    ckpt_run_get_info(m->x.run, &info);
    m->done = (int64_t)info.skipped;
    m->stopped = (int64_t)info.saves;
    close_rank(m);
}

START_TEST(test_writers_end_at_different_times)
{
    const char *run = in_folder("run");
    world *w = new_world(run, 3, 0);
    EACH(w, m)
    m->x.o.skip_when_busy = true;
    at_sync = (hook){.name = "rank-00001"};
    world_play(w, one_is_slow);
    at_sync.name = NULL;
    EACH(w, m)
    {
        ck_assert_int_eq(m->status, CKPT_OK);
        ck_assert_msg(m->done >= 3, "%d were left out", (int)m->done);
        ck_assert_msg(m->done == w->members[0].done && m->stopped == w->members[0].stopped && m->done + m->stopped == 6,
                      "rank %d: %d left out, %d saved", (int)m->rank, (int)m->done, (int)m->stopped);
    }
    ck_assert_int_eq(ranks_with(w, 2), 3);
    for (int i = 2; i <= 12; i += 2)
        ck_assert_msg(ranks_with(w, i) % 3 == 0, "step %d is on %d ranks", i, ranks_with(w, i));
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_ranks");
    TCase *tc = tcase_create("ranks");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_all_save);
    tcase_add_test(tc, test_synchronous_ranks);
    tcase_add_test(tc, test_one_cannot_write);
    tcase_add_test(tc, test_one_cannot_publish);
    tcase_add_test(tc, test_retention_counts_what_all_have);
    tcase_add_test(tc, test_newest_common);
    tcase_add_test(tc, test_first_save_half_published);
    tcase_add_test(tc, test_damage_poisons_all);
    tcase_add_test(tc, test_mismatch_on_one);
    tcase_add_test(tc, test_other_world);
    tcase_add_test(tc, test_exchanged_directories);
    tcase_add_test(tc, test_writers_end_at_different_times);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
