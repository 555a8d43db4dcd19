/* test_run_steps.c - steps only grow, and a run goes back where it is told to: to that step, and what is later is kept. */
#include "ranks_fixture.h"
#include "io/aside.h"

static void expect_refused(ckpt_status status, ckpt_status want, const ckpt_error *err, const char *text)
{
    ck_assert_msg(status == want, "status %d, not %d: %s: %s", (int)status, (int)want, err->object, err->message);
    ck_assert_msg(strstr(err->message, text) != NULL, "'%s' is not in: %s", text, err->message);
    ck_assert_msg(err->object[0] != '\0', "no object: %s", err->message);
}

static void save_at(trainer *x, int64_t done)
{
    set_step(&x->t, done);
    ckpt_status status = ckpt_run_save(x->run, done, &x->err);
    ck_assert_msg(status == CKPT_OK, "save %d: %s: %s", (int)done, x->err.object, x->err.message);
    IS_OK(ckpt_run_wait(x->run, &x->err));
}

/* Checkpoints of 10, 20, ..., last. */
static void make_run(const char *run, int last)
{
    trainer x;
    trainer_init(&x);
    trainer_start(&x, run);
    for (int i = 10; i <= last; i += 10)
        save_at(&x, i);
    trainer_end(&x);
}

static void expect_steps(const char *run, const char *want)
{
    char have[200] = "";
    for (int i = 0; i < 100; i++)
        if (is_there(step_path(run, i)))
            snprintf(have + strlen(have), sizeof have - strlen(have), "%d ", i);
    ck_assert_str_eq(have, want);
}

static void expect_text(const char *run, const char *name, const char *begins)
{
    char text[2000];
    read_file(path_of(run, name), text, sizeof text);
    ck_assert_msg(strncmp(text, begins, strlen(begins)) == 0, "%s: '%s', not '%s'", name, text, begins);
}

static void flip_last_byte(const char *path)
{
    FILE *f = fopen(path, "r+b");
    ck_assert_msg(f != NULL, "%s", path);
    IS_OK(fseek(f, -1, SEEK_END));
    int c = fgetc(f);
    IS_OK(fseek(f, -1, SEEK_END));
    fputc(c ^ 1, f);
    IS_OK(fclose(f));
}

/* ---- steps only grow */

/* The classic: `done` is forgotten, and the loop begins at 0 with the weights of step 20. */
START_TEST(test_after_a_resume)
{
    trainer x;
    training before;
    const char *run = in_folder("run");
    make_run(run, 20);
    trainer_init(&x);
    x.o.every_steps = 1;
    ck_assert_int_eq(trainer_start(&x, run), 20);
    before = x.t;
    for (int64_t done = 1; done < 20; done += 6) {
        char said_done[40];
        snprintf(said_done, sizeof said_done, "that %d steps are complete", (int)done);
        x.t.step = done; /* the loop counts in the very variable that was restored */
        expect_refused(ckpt_run_step(x.run, done, &x.err), CKPT_E_ARGUMENT, &x.err, said_done);
        expect_refused(ckpt_run_save(x.run, done, &x.err), CKPT_E_ARGUMENT, &x.err, "resumed after step 20");
        ck_assert(strstr(x.err.message, "ckpt_run_resume gave") && strstr(x.err.message, "resume_step"));
        x.t.step = before.step;
        ck_assert_msg(memcmp(&before, &x.t, sizeof before) == 0, "the trainer's memory was touched");
    }
    expect_steps(run, "10 20 ");
    ck_assert(holds(step_path(run, 20), 20));
    STEPS(&x, 20, 22); /* an equal one is what a trainer saves that has nothing left to do */
    IS_OK(ckpt_run_wait(x.run, &x.err));
    expect_steps(run, "10 20 21 22 ");
    trainer_end(&x);
}
END_TEST

START_TEST(test_after_a_save)
{
    trainer x;
    int64_t done = 0;
    const char *run = in_folder("run");
    trainer_init(&x);
    trainer_start(&x, run);
    STEPS(&x, 5, 5);
    STEPS(&x, 3, 3); /* nothing was saved yet: what counts is what checkpoints say */
    save_at(&x, 7);
    expect_refused(trainer_step(&x, 6), CKPT_E_ARGUMENT, &x.err, "this run has saved step 7");
    gate_set(true, 0);
    set_step(&x.t, 9);
    IS_OK(ckpt_run_save(x.run, 9, &x.err));
    gate_meet(1);
    expect_refused(trainer_step(&x, 8), CKPT_E_ARGUMENT, &x.err, "this run is saving step 9");
    gate_set(false, EIO);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_E_SYSTEM);
    gate_set(false, 0);
    STEPS(&x, 8, 8); /* 9 was never there */
    save_at(&x, 12);
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_int_eq(done, 12);
    expect_refused(trainer_step(&x, 11), CKPT_E_ARGUMENT, &x.err, "resumed after step 12");
    trainer_end(&x);
}
END_TEST

/* A second resume sets the floor anew, also below what this run has saved. */
START_TEST(test_resumed_again)
{
    trainer x;
    int64_t done = 0;
    const char *run = in_folder("run");
    trainer_init(&x);
    trainer_start(&x, run);
    for (int i = 10; i <= 30; i += 10)
        save_at(&x, i);
    flip_last_byte(path_of(step_path(run, 30), "training.safetensors"));
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_int_eq(done, 20);
    STEPS(&x, 21, 21);
    expect_refused(trainer_step(&x, 19), CKPT_E_ARGUMENT, &x.err, "resumed after step 20");
    trainer_end(&x);
}
END_TEST

static void script_backwards(member *m)
{
    open_and_resume(m);
    if (m->status >= 0) {
        set_rank_step(m, 1);
        m->status = ckpt_run_step(m->x.run, 1, &m->x.err);
    }
    ckpt_run_close(m->x.run, NULL);
    m->x.run = NULL;
}

static void script_saves(member *m)
{
    open_and_resume(m);
    for (int i = 2; i <= 8 && m->status >= 0; i += 2) {
        set_rank_step(m, i);
        m->status = ckpt_run_save(m->x.run, i, &m->x.err);
    }
    close_rank(m);
}

static void make_ranks(const char *run, int n)
{
    world *w = world_new(run, n);
    world_play(w, script_saves);
    EACH(w, m)
    ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
    world_free(w);
}

static void expect_all(world *w, ckpt_status status, const char *text)
{
    EACH(w, m)
    {
        expect_refused(m->status, status, &m->x.err, text);
        ck_assert_str_eq(m->x.err.message, w->members[0].x.err.message);
    }
}

START_TEST(test_ranks_backwards)
{
    const char *run = in_folder("run");
    make_ranks(run, 3);
    world *w = world_new(run, 3);
    world_play(w, script_backwards);
    expect_all(w, CKPT_E_ARGUMENT, "resumed after step 8");
    world_free(w);
}
END_TEST

/* ---- back to a step */

static const ckpt_finding *note_of_list(const char *run, const char *code, ckpt_run_list **list)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ck_assert_msg(ckpt_run_list_open(run, list, &err) == CKPT_OK, "%s: %s", err.object, err.message);
    return ckpt_report_find(ckpt_run_list_findings(*list), code, NULL);
}

START_TEST(test_back_to_a_step)
{
    trainer x;
    int64_t done = 0;
    ckpt_run_list *list = NULL;
    const char *run = in_folder("run");
    ckpt_report *report = ckpt_report_new();
    make_run(run, 60);
    trainer_init(&x);
    x.o.resume_step = 30;
    x.o.retention.keep_last = 3;
    IS_OK(trainer_open(&x, run));
    IS_OK(ckpt_run_resume(x.run, NULL, &done, report, &x.err));
    ck_assert_int_eq(done, 30);
    ck_assert(is_of_step(&x.t, 30));
    expect_steps(run, "10 20 30 ");
    for (int i = 40; i <= 60; i += 10) {
        char name[64];
        snprintf(name, sizeof name, "aside-step-%08d", i);
        ck_assert(is_there(path_of(run, name)) && ckpt__aside_is(name));
        ck_assert_msg(strstr(said(&x.news, "kept-aside"), name) != NULL, "%s", said(&x.news, "kept-aside"));
    }
    expect_text(run, "latest", "step-00000030\n");
    expect_text(run, "verified", "step-00000030 ");
    const ckpt_finding *f = ckpt_report_find(report, "kept-aside", NULL);
    ck_assert(f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->fix, "take resume_step away") &&
              strstr(f->file, "/run"));
    ck_assert(strstr(said(&x.news, "resumed"), "take it away") != NULL);
    f = note_of_list(run, "kept-aside", &list);
    ck_assert_msg(f && strstr(f->message, "3 later checkpoints are kept aside: aside-step-00000060"), "%s",
                  f ? f->message : "");
    ckpt_run_list_close(list);
    /* And on from there: what has those names is saved again, and nothing of the other way counts. */
    for (int i = 40; i <= 60; i += 10)
        save_at(&x, i);
    expect_steps(run, "30 40 50 60 "); /* 30 is the newest verified one */
    trainer_end(&x);
    f = note_of_list(run, "stale-hint", &list);
    ck_assert_msg(f == NULL && ckpt_run_list_count(list) == 4, "%s", f ? f->message : "");
    ckpt_run_list_close(list);
    ck_assert(holds(step_path(run, 60), 60) && holds(path_of(run, "aside-step-00000060"), 60));
    ckpt_report_free(report);
}
END_TEST

/* The names are taken already; and the option left where it was goes back again. */
START_TEST(test_back_again)
{
    trainer x;
    const char *run = in_folder("run");
    make_run(run, 30);
    trainer_init(&x);
    x.o.resume_step = 20;
    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(trainer_start(&x, run), 20);
        expect_steps(run, "10 20 ");
        ck_assert_int_eq(names_in(run, "aside-step-00000030"), i);
        save_at(&x, 30);
        IS_OK(trainer_close(&x));
    }
    ck_assert(is_there(path_of(run, "aside-step-00000030.2")) && is_there(path_of(run, "aside-step-00000030.3")));
    x.o.resume_step = 30; /* the newest: nothing is later */
    size_t before = heard(&x.news, "kept-aside");
    ck_assert_int_eq(trainer_start(&x, run), 30);
    ck_assert_uint_eq(heard(&x.news, "kept-aside"), before);
    ck_assert(strstr(said(&x.news, "resumed"), "take it away") != NULL);
    IS_OK(trainer_close(&x));
    x.o.resume_step = 0;
    ck_assert_int_eq(trainer_start(&x, run), 30);
    trainer_end(&x);
}
END_TEST

/* Damaged later ones, a later one that is a file, and two names of one step are kept aside as well. */
START_TEST(test_back_past_damage)
{
    trainer x;
    char command[600];
    const char *run = in_folder("run");
    make_run(run, 40);
    snprintf(command, sizeof command,
             "cd %s && rm step-00000040/checkpoint.json && cp -r step-00000030 step-30 && : >step-50", run);
    run_command(command);
    trainer_init(&x);
    x.o.resume_step = 20;
    ck_assert_int_eq(trainer_start(&x, run), 20);
    expect_steps(run, "10 20 ");
    ck_assert_int_eq(names_in(run, "step-"), 2);
    ck_assert_int_eq(names_in(run, "aside-step-"), 4);
    ck_assert(is_there(path_of(run, "aside-step-30")) && is_there(path_of(run, "aside-step-50")));
    trainer_end(&x);
}
END_TEST

START_TEST(test_back_is_refused)
{
    trainer x;
    int64_t done = -1;
    const char *run = in_folder("run");
    make_run(run, 80);
    trainer_init(&x);
    x.o.resume_step = -3;
    expect_refused(trainer_open(&x, run), CKPT_E_ARGUMENT, &x.err, "resume_step is -3");
    x.o.resume_step = 35;
    IS_OK(trainer_open(&x, run));
    expect_refused(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_NOT_FOUND, &x.err,
                   "step-00000080, step-00000070, step-00000060, step-00000050, step-00000040 and 3 more");
    ck_assert(strstr(x.err.message, "resume_step is 35") && done == 0);
    expect_refused(trainer_step(&x, 36), CKPT_E_ARGUMENT, &x.err, "before ckpt_run_resume");
    IS_OK(trainer_close(&x));
    flip_last_byte(path_of(step_path(run, 50), "training.safetensors"));
    x.o.resume_step = 50;
    IS_OK(trainer_open(&x, run));
    expect_refused(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_DAMAGED, &x.err, "no other step is tried");
    ck_assert(strstr(x.err.message, "step-00000080, step-00000070") && !strstr(x.err.message, "step-00000050"));
    IS_OK(trainer_close(&x));
    expect_steps(run, "10 20 30 40 50 60 70 80 ");
    ck_assert_int_eq(names_in(run, "aside-"), 0);
    expect_text(run, "latest", "step-00000080\n");
    ckpt_state_free(x.state);
    x.state = ckpt_state_new(); /* nothing fits */
    x.o.resume_step = 40;
    IS_OK(trainer_open(&x, run));
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_MISMATCH);
    ck_assert_int_eq(names_in(run, "aside-"), 0);
    IS_OK(trainer_close(&x));
    x.o.resume_step = 5;
    IS_OK(trainer_open(&x, in_folder("new")));
    expect_refused(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_NOT_FOUND, &x.err,
                   "no other whole checkpoint is there");
    trainer_end(&x);
}
END_TEST

/* Renames that fail: the run does not go on, and the same call does the rest. */
START_TEST(test_back_where_nothing_can_be_renamed)
{
    trainer x;
    int64_t done = -1;
    const char *run = in_folder("run");
    make_run(run, 30);
    trainer_init(&x);
    x.o.resume_step = 10;
    IS_OK(trainer_open(&x, run));
    at_rename.name = "/run";
    at_rename.fails = EROFS;
    expect_refused(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_E_SYSTEM, &x.err,
                   "could not all be kept aside");
    ck_assert_int_eq(done, 0);
    expect_refused(trainer_step(&x, 11), CKPT_E_ARGUMENT, &x.err, "before ckpt_run_resume");
    at_rename.name = NULL;
    at_rename.fails = 0;
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_int_eq(done, 10);
    expect_steps(run, "10 ");
    STEPS(&x, 11, 11);
    trainer_end(&x);
}
END_TEST

/* Killed before the n-th rename of the three: the newest goes first, so what is left is older, and the same
 * call works again. */
START_TEST(test_back_killed)
{
    for (int n = 1; n <= 4; n++) {
        trainer x;
        char name[20];
        snprintf(name, sizeof name, "run-%d", n);
        const char *run = in_folder(name);
        make_run(run, 50);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            trainer_init(&x);
            x.o.resume_step = 20;
            NEED(trainer_open(&x, run) == CKPT_OK);
            kill_at_rename = n;
            (void)ckpt_run_resume(x.run, NULL, &(int64_t){0}, NULL, &x.err);
            _exit(0);
        }
        int how = 0;
        ck_assert_int_eq(waitpid(pid, &how, 0), pid);
        ck_assert_msg(n > 3 || (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL), "rename %d was not reached", n);
        int left = n <= 3 ? 4 - n : 0; /* of 30, 40, 50 */
        ck_assert_int_eq(names_in(run, "step-"), 2 + left);
        ck_assert_int_eq(names_in(run, "aside-step-"), 3 - left);
        ck_assert(left == 0 || holds(step_path(run, 30), 30));
        trainer_init(&x);
        x.o.resume_step = 20;
        ck_assert_int_eq(trainer_start(&x, run), 20);
        expect_steps(run, "10 20 ");
        expect_text(run, "latest", "step-00000020\n");
        ck_assert(holds(path_of(run, "aside-step-00000050"), 50) && holds(path_of(run, "aside-step-00000030"), 30));
        ck_assert(no_leftovers(run));
        trainer_end(&x);
    }
}
END_TEST

static void script_back(member *m)
{
    m->x.o.resume_step = m->w->last;
    look(m);
}

static void script_back_unlike(member *m)
{
    m->x.o.resume_step = m->rank == 1 ? 4 : 6;
    look(m);
}

START_TEST(test_ranks_back)
{
    const char *run = in_folder("run");
    char command[600];
    make_ranks(run, 3);
    world *w = world_new(run, 3);
    world_play(w, script_back_unlike);
    expect_all(w, CKPT_E_ARGUMENT, "resume_step is 4 on one rank and 6 on another");
    w->last = 3;
    world_play(w, script_back);
    expect_all(w, CKPT_E_NOT_FOUND, "those that are there: step-00000008, step-00000006, step-00000004, step-00000002");
    ck_assert_int_eq(ranks_with(w, 8), 3);
    /* One rank lacks it: none goes back. */
    snprintf(command, sizeof command, "mv %s/rank-00001/step-00000004 %s/away", run, run);
    run_command(command);
    w->last = 4;
    world_play(w, script_back);
    expect_all(w, CKPT_E_NOT_FOUND, "rank 1: it is not in this rank's directory");
    ck_assert_int_eq(ranks_with(w, 6) + ranks_with(w, 8), 6);
    snprintf(command, sizeof command, "mv %s/away %s/rank-00001/step-00000004", run, run);
    run_command(command);
    world_play(w, script_back);
    EACH(w, m)
    {
        ck_assert_msg(m->status == CKPT_OK && m->done == 4, "rank %d: %d at %d: %s", (int)m->rank, (int)m->status,
                      (int)m->done, m->x.err.message);
        char name[100];
        snprintf(name, sizeof name, "rank-%05d/aside-step-00000008", (int)m->rank);
        ck_assert(is_there(path_of(run, name)));
        snprintf(name, sizeof name, "rank-%05d/latest", (int)m->rank);
        expect_text(run, name, "step-00000004\n");
    }
    ck_assert_int_eq(ranks_with(w, 6) + ranks_with(w, 8), 0);
    ck_assert_int_eq(ranks_with(w, 4) + ranks_with(w, 2), 6);
    world_free(w);
}
END_TEST

/* A parameter whose second moment was not bound: said once, by the first save. */
START_TEST(a_forgotten_moment_is_noticed)
{
    float weight[2] = {1, 2}, average[2] = {3, 4};
    const int64_t two[] = {2};
    const char *const params[] = {"w"};
    double lr = 0.1, eps = 1e-8;
    const ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr}, {"eps", CKPT_SCALAR_F64, &eps}};
    const ckpt_group_desc group = {.name = "0", .params = params, .param_count = 1, .hypers = hypers, .hyper_count = 2};
    const ckpt_tensor_desc
        w = {.name = "w", .role = CKPT_ROLE_PARAM, .dtype = CKPT_F32, .ndim = 1, .shape = two, .data = weight},
        m = {.param = "w", .role = CKPT_ROLE_EXP_AVG, .dtype = CKPT_F32, .ndim = 1, .shape = two, .data = average};
    news n = {0};
    ckpt_run_options o = {.every_steps = 1, .notice = hear, .notice_ctx = &n};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run *run = NULL;
    ckpt_state *s = ckpt_state_new();
    IS_OK(ckpt_state_tensor(s, &w, &err));
    IS_OK(ckpt_state_tensor(s, &m, &err));
    IS_OK(ckpt_state_group(s, &group, &err));
    IS_OK(ckpt_run_open(in_folder("half"), s, &o, &run, &err));
    ck_assert_int_eq(ckpt_run_resume(run, NULL, NULL, NULL, &err), CKPT_NOTHING_TO_RESUME);
    for (int64_t done = 1; done <= 3; done++)
        IS_OK(ckpt_run_step(run, done, &err));
    IS_OK(ckpt_run_close(run, &err));
    ck_assert_uint_eq(heard(&n, "moments-incomplete"), 1);
    ck_assert_ptr_nonnull(strstr(said(&n, "moments-incomplete"), "exp_avg without exp_avg_sq"));
    ckpt_state_free(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("steps");
    TCase *tc = tcase_create("steps");
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, test_after_a_resume);
    tcase_add_test(tc, a_forgotten_moment_is_noticed);
    tcase_add_test(tc, test_after_a_save);
    tcase_add_test(tc, test_resumed_again);
    tcase_add_test(tc, test_ranks_backwards);
    tcase_add_test(tc, test_back_to_a_step);
    tcase_add_test(tc, test_back_again);
    tcase_add_test(tc, test_back_past_damage);
    tcase_add_test(tc, test_back_is_refused);
    tcase_add_test(tc, test_back_where_nothing_can_be_renamed);
    tcase_add_test(tc, test_back_killed);
    tcase_add_test(tc, test_ranks_back);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
