/* test_run.c - a run of one process: opened, resumed, stepped and closed; what is refused, and what a failed save does.
 */
#include <signal.h>
#include <sys/resource.h>
#include "../run_fixture.h"

/* ---- the plain course */

START_TEST(test_first_run_and_second)
{
    trainer x;
    char latest[64];
    const char *run = in_folder("runs/a/b");
    trainer_init(&x);
    x.o.every_steps = 3;
    x.o.last_step = 10;
    ck_assert_int_eq(trainer_start(&x, run), -1);
    STEPS(&x, 1, 10);
    ck_assert_int_eq(trainer_close(&x), CKPT_OK);
    ck_assert_int_eq(names_in(run, "step-"), 4);
    ck_assert(holds(step_path(run, 3), 3) && holds(step_path(run, 6), 6) && holds(step_path(run, 9), 9));
    ck_assert_msg(holds(step_path(run, 10), 10), "the last step is saved whatever the period says");
    read_file(path_of(run, "latest"), latest, sizeof latest);
    ck_assert_str_eq(latest, "step-00000010\n");
    ck_assert_uint_eq(heard(&x.news, "saved"), 4);
    ck_assert(no_leftovers(run));

    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    set_step(&x.t, 77);
    ck_assert_int_eq(trainer_start(&x, run), 10);
    ck_assert_msg(is_of_step(&x.t, 10), "the state is that of step 10");
    ckpt_run_get_info(x.run, &info);
    ck_assert_int_eq(info.resumed_step, 10);
    ck_assert_int_eq(info.saved_step, -1);
    ck_assert_int_eq(trainer_step(&x, 11), CKPT_OK);
    STEPS(&x, 12, 12);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_OK);
    ckpt_run_get_info(x.run, &info);
    ck_assert_int_eq(info.saved_step, 12);
    ck_assert_uint_eq(info.saves, 1);
    ck_assert_uint_eq(info.failures, 0);
    ck_assert(!info.busy);
    ck_assert_uint_gt(info.snapshot_bytes, 0);
    ck_assert(info.save_seconds > 0 && info.stall_seconds >= 0 && info.stall_seconds < 1e6);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 12), 12));
}
END_TEST

START_TEST(test_by_call_alone)
{
    trainer x;
    ckpt_run *run = NULL;
    int64_t done = 5;
    ckpt_error err = CKPT_ERROR_INIT;
    const char *path = in_folder("run");
    trainer_init(&x);
    IS_OK(ckpt_run_open(path, x.state, NULL, &run, &err));
    ck_assert_int_eq(ckpt_run_resume(run, NULL, &done, NULL, &err), CKPT_NOTHING_TO_RESUME);
    ck_assert_int_eq(done, 0);
    for (int i = 1; i <= 20; i++) {
        set_step(&x.t, i);
        IS_OK(ckpt_run_step(run, i, &err));
    }
    IS_OK(ckpt_run_wait(run, &err));
    ck_assert_int_eq(names_in(path, "step-"), 0);
    set_step(&x.t, 21);
    IS_OK(ckpt_run_save(run, 21, &err));
    IS_OK(ckpt_run_save(run, 21, &err)); /* once more: replaced */
    IS_OK(ckpt_run_close(run, &err));
    ck_assert_int_eq(names_in(path, "step-"), 1);
    ck_assert(holds(step_path(path, 21), 21));
    trainer_end(&x);
}
END_TEST

START_TEST(test_synchronous)
{
    trainer x;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.synchronous = true;
    x.o.retention.keep_last = 2;
    trainer_start(&x, run);
    for (int i = 1; i <= 5; i++) {
        STEPS(&x, i, i);
        ck_assert_msg(holds(step_path(run, i), i), "it is on disk when the call returns");
    }
    ckpt_run_get_info(x.run, &info);
    ck_assert_uint_eq(info.snapshot_bytes, 0);
    ck_assert(!x.run->threaded);
    ck_assert_int_eq(names_in(run, "step-"), 2);
    ck_assert(is_there(step_path(run, 4)) && is_there(step_path(run, 5)));
    ck_assert_uint_eq(heard(&x.news, "pruned"), 3);
    ck_assert_str_eq(said(&x.news, "pruned"), "1 removed: step-00000003");
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 0);
    trainer_end(&x);
}
END_TEST

/* Time is moved, not waited for. */
START_TEST(test_every_seconds)
{
    trainer x;
    trainer_init(&x);
    x.o.every_seconds = 100;
    trainer_start(&x, in_folder("run"));
    ck_assert_int_eq(ckpt_run_poll(x.run, 1), CKPT_TRIGGER_NONE);
    STEPS(&x, 1, 3);
    x.run->last_begin -= 101;
    ck_assert_int_eq(ckpt_run_poll(x.run, 4), CKPT_TRIGGER_PERIODIC);
    STEPS(&x, 4, 4);
    ck_assert_msg(ckpt_run_poll(x.run, 5) == CKPT_TRIGGER_NONE, "the time runs anew from the save");
    STEPS(&x, 5, 6);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_uint_eq(x.run->info.saves, 1);
    ck_assert(holds(step_path(in_folder("run"), 4), 4));
    trainer_end(&x);
}
END_TEST

START_TEST(test_retention_every)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.retention = (ckpt_retention){2, 5};
    trainer_start(&x, run);
    STEPS(&x, 1, 13);
    trainer_end(&x);
    ck_assert_int_eq(names_in(run, "step-"), 4);
    for (int i = 5; i <= 10; i += 5)
        ck_assert(holds(step_path(run, i), i));
    ck_assert(holds(step_path(run, 12), 12) && holds(step_path(run, 13), 13));
    ck_assert(no_leftovers(run));
}
END_TEST

START_TEST(test_relative_path_and_chdir)
{
    trainer x;
    char here[400];
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    IS_OK(chdir(folder));
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, "relative");
    IS_OK(mkdir("elsewhere", 0777));
    IS_OK(chdir("elsewhere"));
    STEPS(&x, 1, 2);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    set_step(&x.t, 50);
    int64_t done;
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_int_eq(done, 2);
    trainer_end(&x);
    IS_OK(chdir(here));
    ck_assert(holds(step_path(in_folder("relative"), 2), 2));
    ck_assert(!is_there(in_folder("elsewhere/relative")));
}
END_TEST

/* Also in mid-run: what the trainer has changed since is put back, and the run goes on from there. */
START_TEST(test_resume_again)
{
    trainer x;
    int64_t done = -1;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 2;
    trainer_start(&x, run);
    STEPS(&x, 1, 5);
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err)); /* waits for the save that is under way */
    ck_assert_int_eq(done, 4);
    ck_assert(is_of_step(&x.t, 4));
    STEPS(&x, 5, 6);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 6), 6));
}
END_TEST

/* ---- what is refused */

static void refused(ckpt_status status, ckpt_status want, const ckpt_error *err, const char *text)
{
    ck_assert_msg(status == want, "status %d, not %d: %s: %s", (int)status, (int)want, err->object, err->message);
    ck_assert_msg(strstr(err->message, text) != NULL, "'%s' is not in: %s", text, err->message);
}

START_TEST(test_step_is_refused)
{
    trainer x;
    trainer_init(&x);
    x.o.every_steps = 1;
    IS_OK(trainer_open(&x, in_folder("run")));
    refused(trainer_step(&x, 1), CKPT_E_ARGUMENT, &x.err, "ckpt_run_step before ckpt_run_resume");
    set_step(&x.t, 1);
    refused(ckpt_run_save(x.run, 1, &x.err), CKPT_E_ARGUMENT, &x.err, "ckpt_run_save before ckpt_run_resume");
    int64_t done;
    ck_assert_int_eq(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err), CKPT_NOTHING_TO_RESUME);
    set_step(&x.t, 4);
    refused(ckpt_run_step(x.run, 5, &x.err), CKPT_E_ARGUMENT, &x.err, "the bound variable 'step' is 4");
    refused(ckpt_run_step(x.run, -1, &x.err), CKPT_E_ARGUMENT, &x.err, "-1 completed steps");
    x.state->poisoned = true;
    refused(trainer_step(&x, 5), CKPT_E_POISONED, &x.err, "mixture");
    x.state->poisoned = false;
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_int_eq(names_in(in_folder("run"), "step-"), 0);
    STEPS(&x, 5, 5);
    refused(ckpt_run_step(NULL, 5, &x.err), CKPT_E_ARGUMENT, &x.err, "NULL");
    IS_OK(ckpt_run_close(NULL, &x.err));
    trainer_end(&x);
    ck_assert(holds(step_path(in_folder("run"), 5), 5));
}
END_TEST

static void try_options(ckpt_run_options o, const char *text)
{
    trainer x;
    trainer_init(&x);
    x.o = o;
    ckpt_status status = trainer_open(&x, in_folder("run"));
    ck_assert_msg(status < 0, "it was opened, and not: %s", text);
    refused(status, CKPT_E_ARGUMENT, &x.err, text);
    ck_assert_ptr_null(x.run);
    trainer_end(&x);
}

static int no_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    (void)ctx, (void)v, (void)n, (void)op;
    return 0;
}

START_TEST(test_options_are_refused)
{
    const int sigint = SIGINT;
    ckpt_run *run = (ckpt_run *)&run;
    ckpt_error err = CKPT_ERROR_INIT;
    try_options((ckpt_run_options){.every_steps = -1}, "every_steps");
    try_options((ckpt_run_options){.every_seconds = -1}, "every_seconds");
    try_options((ckpt_run_options){.every_seconds = strtod("nan", NULL)}, "every_seconds");
    try_options((ckpt_run_options){.time_limit = -0.5}, "time_limit");
    try_options((ckpt_run_options){.last_step = -1}, "last_step");
    try_options((ckpt_run_options){.retention = {-1, 0}}, "keep_last is -1");
    try_options((ckpt_run_options){.retention = {1, -2}}, "keep_every -2");
    try_options((ckpt_run_options){.ranks = {2, 0, 2}, .all_reduce = no_reduce}, "rank 2 of 2");
    try_options((ckpt_run_options){.ranks = {-1, 0, 2}, .all_reduce = no_reduce}, "rank -1 of 2");
    try_options((ckpt_run_options){.ranks = {0, 0, -1}}, "rank 0 of -1");
    try_options((ckpt_run_options){.ranks = {.rank = 1}}, "rank 1 of 0");
    try_options((ckpt_run_options){.ranks = {0, 0, 2}}, "need all_reduce");
    try_options((ckpt_run_options){.more_signals = &sigint, .more_signal_count = 1}, "more_signals without signals");
    try_options((ckpt_run_options){.signals = true, .more_signals = &sigint, .more_signal_count = 1}, "SIGINT");
    try_options((ckpt_run_options){.struct_size = 1u << 20}, "newer libckpt");
    ck_assert_int_eq(ckpt_run_open(NULL, NULL, NULL, &run, &err), CKPT_E_ARGUMENT);
    ck_assert_ptr_null(run);
    ck_assert_int_eq(names_in(folder, "run"), 0 + is_there(in_folder("run")));
}
END_TEST

/* A caller whose struct ends elsewhere than this library's. */
START_TEST(test_smaller_options)
{
    trainer x;
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.synchronous = true;
    x.o.struct_size = offsetof(ckpt_run_options, every_seconds);
    ck_assert_int_eq(trainer_open(&x, in_folder("run")), CKPT_E_ARGUMENT);
    ck_assert_msg(strstr(x.err.message, "no release has a struct of less than"), "%s", x.err.message);
    x.o.struct_size = 0; /* the first release's */
    trainer_start(&x, in_folder("run"));
    STEPS(&x, 1, 1);
    ck_assert(x.run->options.synchronous && !x.run->threaded);
    trainer_end(&x);
    ck_assert(holds(step_path(in_folder("run"), 1), 1));
}
END_TEST

START_TEST(test_no_directory)
{
    trainer x;
    trainer_init(&x);
    write_file(in_folder("file"), "x", 1);
    ck_assert_int_eq(trainer_open(&x, in_folder("file")), CKPT_E_FORMAT);
    ck_assert_int_lt(trainer_open(&x, in_folder("file/below")), 0);
    trainer_end(&x);
}
END_TEST

static ckpt_status open_elsewhere(const char *path, bool no_lock, char *message, size_t size)
{
    int ends[2];
    IS_OK(pipe(ends));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        ckpt_state *s = ckpt_state_new();
        ckpt_run *run = NULL;
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_run_options o = {.no_lock = no_lock};
        int status = ckpt_run_open(path, s, &o, &run, &err);
        NEED(write(ends[1], &status, sizeof status) == sizeof status);
        NEED(write(ends[1], err.message, sizeof err.message) == sizeof err.message);
        _exit(0);
    }
    close(ends[1]);
    int status = 0;
    char text[sizeof((ckpt_error *)0)->message];
    ck_assert_int_eq(read(ends[0], &status, sizeof status), sizeof status);
    ck_assert_int_eq(read(ends[0], text, sizeof text), sizeof text);
    close(ends[0]);
    snprintf(message, size, "%s", text);
    ck_assert_int_eq(waitpid(pid, &(int){0}, 0), pid);
    return (ckpt_status)status;
}

START_TEST(test_second_writer)
{
    trainer x, y;
    char message[800], pid[40];
    const char *run = in_folder("run");
    trainer_init(&x);
    trainer_init(&y);
    trainer_start(&x, run);
    snprintf(pid, sizeof pid, "pid %d on host", (int)getpid());
    refused(trainer_open(&y, run), CKPT_E_EXISTS, &y.err, "this process has this directory open");
    ck_assert_int_eq(open_elsewhere(run, false, message, sizeof message), CKPT_E_EXISTS);
    ck_assert_msg(strstr(message, pid) != NULL, "%s", message);
    ck_assert_int_eq(open_elsewhere(run, true, message, sizeof message), CKPT_OK);
    y.o.no_lock = true;
    IS_OK(trainer_open(&y, run));
    IS_OK(trainer_close(&y));
    y.o.no_lock = false;
    ck_assert_msg(trainer_open(&y, run) == CKPT_E_EXISTS, "the first still holds it");
    IS_OK(trainer_close(&x));
    IS_OK(trainer_open(&y, run));
    trainer_end(&y);
    trainer_end(&x);
}
END_TEST

/* A child gets an error from every call, and hangs in none, whatever the writer held when it was forked. */
START_TEST(test_forked_child)
{
    trainer x;
    int ends[2];
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    IS_OK(pipe(ends));
    pthread_mutex_lock(&x.run->lock);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_run_info info = CKPT_RUN_INFO_INIT;
        int64_t done;
        NEED(ckpt_run_step(x.run, 1, &err) == CKPT_E_ARGUMENT && strstr(err.message, "not to a child"));
        NEED(ckpt_run_save(x.run, 1, &err) == CKPT_E_ARGUMENT);
        NEED(ckpt_run_wait(x.run, &err) == CKPT_E_ARGUMENT);
        NEED(ckpt_run_resume(x.run, NULL, &done, NULL, &err) == CKPT_E_ARGUMENT);
        NEED(ckpt_run_poll(x.run, 1) == CKPT_TRIGGER_NONE);
        ckpt_run_get_info(x.run, &info);
        NEED(info.saved_step == -1 && info.resumed_step == -1);
        NEED(ckpt_run_close(x.run, &err) == CKPT_E_ARGUMENT);
        NEED(write(ends[1], "y", 1) == 1);
        (void)raise(SIGKILL); /* what the writer's stack held is a leak here, for a tool that looks at the end */
    }
    pthread_mutex_unlock(&x.run->lock);
    close(ends[1]);
    char answer = 0;
    ck_assert_msg(read(ends[0], &answer, 1) == 1 && answer == 'y', "the child has ended before its last line");
    close(ends[0]);
    ck_assert_int_eq(waitpid(pid, &(int){0}, 0), pid);
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_msg(holds(step_path(run, 1), 1), "the child took nothing away");
    char message[800];
    ck_assert_msg(open_elsewhere(run, false, message, sizeof message) == CKPT_E_EXISTS, "nor the lock");
    trainer_end(&x);
}
END_TEST

/* ---- a save that fails */

/* The error of an asynchronous save comes once, with the next call; the one before is untouched, the next one works. */
static void fails_once(bool synchronous)
{
    trainer x;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    const char *run = in_folder(synchronous ? "now" : "later");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.synchronous = synchronous;
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    gate_set(false, EIO);
    ckpt_status now = trainer_step(&x, 2);
    ckpt_status later = ckpt_run_wait(x.run, &x.err);
    gate_set(false, 0);
    if (synchronous)
        ck_assert_int_eq(now, CKPT_E_SYSTEM);
    ck_assert_msg((now < 0) + (later < 0) == 1, "told once: %d, then %d", (int)now, (int)later);
    ck_assert_int_eq(x.err.sys_errno, EIO);
    ck_assert_msg(strstr(x.err.message, "fdatasync") && strstr(x.err.object, "step-00000002"), "%s: %s", x.err.object,
                  x.err.message);
    ck_assert(!is_there(step_path(run, 2)) && no_leftovers(run) && holds(step_path(run, 1), 1));
    IS_OK(ckpt_run_wait(x.run, &x.err));
    STEPS(&x, 3, 3);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ckpt_run_get_info(x.run, &info);
    ck_assert_uint_eq(info.saves, 2);
    ck_assert_uint_eq(info.failures, 1);
    ck_assert_int_eq(info.saved_step, 3);
    ck_assert_uint_eq(heard(&x.news, "save-failed"), 1);
    ck_assert_msg(strstr(said(&x.news, "save-failed"), "step-00000002") != NULL, "%s", said(&x.news, "save-failed"));
    trainer_end(&x);
    ck_assert(holds(step_path(run, 3), 3));
}

START_TEST(test_failed_save)
{
    fails_once(false);
    fails_once(true);
}
END_TEST

/* By the next step, and by close. */
START_TEST(test_failure_is_told_at)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 2;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 2);
    gate_meet(1);
    gate_set(false, ENOSPC);
    ckpt__writer_wait(x.run);
    ck_assert_int_eq(trainer_step(&x, 3), CKPT_E_SYSTEM);
    ck_assert_int_eq(x.err.sys_errno, ENOSPC);
    gate_set(true, 0);
    STEPS(&x, 4, 4);
    gate_meet(1);
    gate_set(false, EDQUOT);
    STEPS(&x, 5, 5);
    ckpt_status status = ckpt_run_close(x.run, &x.err);
    gate_set(false, 0);
    ck_assert_int_eq(status, CKPT_E_SYSTEM);
    ck_assert_int_eq(x.err.sys_errno, EDQUOT);
    ck_assert(names_in(run, "step-") == 0 && no_leftovers(run));
    x.run = NULL;
    ck_assert_msg(trainer_start(&x, run) == -1, "the lock is free");
    trainer_end(&x);
}
END_TEST

START_TEST(test_limit_on_files)
{
    trainer x;
    struct rlimit before, small;
    const char *run = in_folder("run");
    IS_OK(getrlimit(RLIMIT_FSIZE, &before));
    small = before;
    small.rlim_cur = 4096;
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    IS_OK(setrlimit(RLIMIT_FSIZE, &small));
    ckpt_status now = trainer_step(&x, 2), later = ckpt_run_wait(x.run, &x.err);
    IS_OK(setrlimit(RLIMIT_FSIZE, &before));
    ck_assert_int_eq((now < 0) + (later < 0), 1);
    ck_assert_int_eq(x.err.sys_errno, EFBIG);
    ck_assert_msg(strstr(x.err.message, "ulimit -f") != NULL, "%s", x.err.message);
    ck_assert(!is_there(step_path(run, 2)) && holds(step_path(run, 1), 1));
    STEPS(&x, 3, 3);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 3), 3) && no_leftovers(run));
}
END_TEST

/* What is in the way and is no checkpoint is not taken away. */
START_TEST(test_name_is_taken)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    IS_OK(mkdir(step_path(run, 1), 0777));
    write_file(path_of(step_path(run, 1), "mine"), "x", 1);
    write_file(step_path(run, 2), "x", 1);
    for (int i = 1; i <= 2; i++) {
        ckpt_status now = trainer_step(&x, i), later = ckpt_run_wait(x.run, &x.err);
        ck_assert_int_eq((now < 0) + (later < 0), 1);
        ck_assert_int_eq(x.err.status, CKPT_E_EXISTS);
    }
    STEPS(&x, 3, 3);
    trainer_end(&x);
    ck_assert(is_there(path_of(step_path(run, 1), "mine")) && is_there(step_path(run, 2)) &&
              holds(step_path(run, 3), 3));
}
END_TEST

/* The directory is gone: an error at each save, and none of them ends the training. */
START_TEST(test_directory_is_gone)
{
    trainer x;
    char command[300];
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    STEPS(&x, 1, 1);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    snprintf(command, sizeof command, "rm -rf '%s'", run);
    run_command(command);
    for (int i = 2; i <= 4; i++) {
        ckpt_status now = trainer_step(&x, i), later = ckpt_run_wait(x.run, &x.err);
        ck_assert_int_eq((now < 0) + (later < 0), 1);
        ck_assert_int_eq(x.err.sys_errno, ENOENT);
    }
    ck_assert_uint_eq(x.run->info.failures, 3);
    ck_assert(!is_there(run));
    trainer_end(&x);
}
END_TEST

/* What a writer that died has left. */
START_TEST(test_recovery)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    STEPS(&x, 1, 2);
    IS_OK(trainer_close(&x));
    IS_OK(mkdir(path_of(run, ".tmp-step-00000003.0123456789abcdef"), 0777));
    write_file(path_of(run, ".tmp-step-00000003.0123456789abcdef/model.safetensors"), "half", 4);
    IS_OK(mkdir(step_path(run, 9), 0777));
    ck_assert_int_eq(trainer_start(&x, run), 2);
    ck_assert_uint_eq(heard(&x.news, "recovered"), 1);
    ck_assert_msg(strstr(said(&x.news, "recovered"), "2 removed") != NULL, "%s", said(&x.news, "recovered"));
    ck_assert(no_leftovers(run) && !is_there(step_path(run, 9)));
    trainer_end(&x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run");
    TCase *tc = tcase_create("run");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_first_run_and_second);
    tcase_add_test(tc, test_by_call_alone);
    tcase_add_test(tc, test_synchronous);
    tcase_add_test(tc, test_every_seconds);
    tcase_add_test(tc, test_retention_every);
    tcase_add_test(tc, test_relative_path_and_chdir);
    tcase_add_test(tc, test_resume_again);
    tcase_add_test(tc, test_step_is_refused);
    tcase_add_test(tc, test_options_are_refused);
    tcase_add_test(tc, test_smaller_options);
    tcase_add_test(tc, test_no_directory);
    tcase_add_test(tc, test_second_writer);
    tcase_add_test(tc, test_forked_child);
    tcase_add_test(tc, test_failed_save);
    tcase_add_test(tc, test_failure_is_told_at);
    tcase_add_test(tc, test_limit_on_files);
    tcase_add_test(tc, test_name_is_taken);
    tcase_add_test(tc, test_directory_is_gone);
    tcase_add_test(tc, test_recovery);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
