/* test_run_moved.c - a run whose directory is moved, replaced or removed, and one whose lock is: there is never a second
 * writer, and nothing is written into another directory of the same name. */
#include "ranks_fixture.h"

static void begin(void)
{
    make_run_folder();
}

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

static void start(trainer *x, const char *run, bool synchronous)
{
    trainer_init(x);
    x->o.every_steps = 1;
    x->o.synchronous = synchronous;
    x->o.retention.keep_last = 2;
    (void)trainer_start(x, run);
}

static ckpt_status step_and_wait(trainer *x, int64_t done)
{
    ckpt_status status = trainer_step(x, done);
    return status == CKPT_OK ? ckpt_run_wait(x->run, &x->err) : status;
}

#define EXPECT_OK(x, call)                                                                                             \
    do {                                                                                                               \
        ckpt_status s_ = (call);                                                                                       \
        ck_assert_msg(s_ == CKPT_OK, "%s: %d: %s: %s", #call, s_, (x)->err.object, (x)->err.message);                  \
    } while (0)

/* ---- the directory */

START_TEST(saves_follow_a_directory_that_is_moved)
{
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        trainer x;
        const char *run = in_folder("run"), *moved = in_folder("moved");
        start(&x, run, synchronous);
        EXPECT_OK(&x, step_and_wait(&x, 1));
        ck_assert_uint_eq(heard(&x.news, "run-moved"), 0);
        shell("mv %s %s", run, moved);
        for (int i = 2; i <= 5; i++)
            EXPECT_OK(&x, step_and_wait(&x, i));
        ck_assert(!is_there(run));
        ck_assert_uint_eq(heard(&x.news, "run-moved"), 1);
        ck_assert_uint_eq(
            heard(&x.news, "lock-replaced") + heard(&x.news, "hint-failed") + heard(&x.news, "prune-failed"), 0);
        ck_assert(holds(step_path(moved, 5), 5) && holds(step_path(moved, 4), 4));
        ck_assert_int_eq(names_in(moved, "step-"), 2);
        char text[64];
        ck_assert_uint_gt(read_file(path_of(moved, "latest"), text, sizeof text), 0);
        ck_assert_str_eq(text, "step-00000005\n");
        ck_assert(no_leftovers(moved));
        shell("mv %s %s", moved, run); /* and back: nothing more is said */
        EXPECT_OK(&x, step_and_wait(&x, 6));
        ck_assert_uint_eq(heard(&x.news, "run-moved"), 1);
        ck_assert(holds(step_path(run, 6), 6));
        trainer_end(&x);
        shell("rm -r %s", run);
    }
}
END_TEST

START_TEST(another_directory_of_the_name_is_not_written_to)
{
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        trainer x, y;
        const char *run = in_folder("run"), *moved = in_folder("moved");
        start(&x, run, synchronous);
        EXPECT_OK(&x, step_and_wait(&x, 1));
        shell("mv %s %s", run, moved);
        start(&y, run, synchronous); /* makes it anew, and begins at 0 */
        for (int i = 2; i <= 4; i++)
            EXPECT_OK(&x, step_and_wait(&x, i));
        ck_assert_int_eq(names_in(run, "step-"), 0);
        EXPECT_OK(&y, step_and_wait(&y, 1));
        ck_assert_int_eq(names_in(run, "step-"), 1);
        ck_assert_int_eq(names_in(moved, "step-"), 2);
        ck_assert(holds(step_path(moved, 4), 4) && holds(step_path(run, 1), 1));
        ck_assert_uint_eq(heard(&x.news, "run-moved"), 1);
        ck_assert_uint_eq(heard(&y.news, "run-moved"), 0);
        trainer_end(&x);
        trainer_end(&y);
        shell("rm -r %s %s", run, moved);
    }
}
END_TEST

START_TEST(what_is_read_back_is_what_was_written)
{
    trainer x;
    const char *run = in_folder("run"), *moved = in_folder("moved");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.synchronous = x.o.read_back = true;
    (void)trainer_start(&x, run);
    shell("mv %s %s && mkdir %s", run, moved, run);
    EXPECT_OK(&x, trainer_step(&x, 1));
    ck_assert(holds(step_path(moved, 1), 1));
    char text[64];
    ck_assert_uint_gt(read_file(path_of(moved, "verified"), text, sizeof text), 0);
    trainer_end(&x);
}
END_TEST

START_TEST(a_resume_reads_what_it_has_locked)
{
    trainer x;
    const char *run = in_folder("run"), *moved = in_folder("moved");
    int64_t done = -1;
    start(&x, run, true);
    EXPECT_OK(&x, trainer_step(&x, 1));
    trainer_end(&x);
    trainer_init(&x);
    EXPECT_OK(&x, trainer_open(&x, run));
    shell("mv %s %s && mkdir %s && cp -r %s/step-00000001 %s && echo > %s/step-00000001/checkpoint.json", run, moved,
          run, moved, run, run);
    EXPECT_OK(&x, ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert_int_eq(done, 1);
    ck_assert(is_of_step(&x.t, 1));
    trainer_end(&x);
}
END_TEST

START_TEST(a_removed_directory_is_an_error_each_time)
{
    for (int synchronous = 0; synchronous < 2; synchronous++) {
        trainer x;
        const char *run = in_folder("run");
        start(&x, run, synchronous);
        EXPECT_OK(&x, step_and_wait(&x, 1));
        shell("rm -r %s", run);
        for (int i = 2; i <= 4; i++) {
            if (i == 4)
                shell("mkdir %s", run); /* not the one that was opened */
            ck_assert_int_eq(step_and_wait(&x, i), CKPT_E_SYSTEM);
            ck_assert_int_eq(x.err.sys_errno, ENOENT);
            ck_assert_ptr_nonnull(strstr(x.err.message, "run directory was removed"));
        }
        ck_assert_int_eq(names_in(run, ""), 0);
        ck_assert_int_eq(trainer_close(&x), CKPT_OK);
        trainer_end(&x);
        shell("rm -r %s", run);
    }
}
END_TEST

/* ---- the lock */

static int lock_text(const char *run, char *text, size_t size)
{
    return (int)read_file(path_of(run, ".lock"), text, size);
}

START_TEST(a_lock_that_nobody_took_is_taken_again)
{
    static const char *const ways[] = {"rm %s/.lock", "rm %s/.lock && : > %s/.lock",
                                       "cp %s/.lock %s/x && mv %s/x %s/.lock"};
    for (size_t i = 0; i < 3; i++) {
        trainer x, y;
        const char *run = in_folder("run");
        char before[100], after[100], command[300];
        start(&x, run, i == 1);
        EXPECT_OK(&x, step_and_wait(&x, 1));
        ck_assert_int_gt(lock_text(run, before, sizeof before), 0);
        snprintf(command, sizeof command, ways[i], run, run, run, run);
        run_command(command);
        EXPECT_OK(&x, step_and_wait(&x, 2));
        ck_assert_uint_eq(heard(&x.news, "lock-replaced"), 1);
        ck_assert_int_gt(lock_text(run, after, sizeof after), 0);
        ck_assert_str_eq(before, after);
        EXPECT_OK(&x, step_and_wait(&x, 3));
        ck_assert_uint_eq(heard(&x.news, "lock-replaced"), 1);
        trainer_init(&y); /* it is locked */
        ck_assert_int_eq(trainer_open(&y, run), CKPT_E_EXISTS);
        trainer_end(&y);
        ck_assert(holds(step_path(run, 3), 3));
        trainer_end(&x);
        shell("rm -r %s", run);
    }
}
END_TEST

/* A process of its own that opens the run, saves a step, says so, and closes it when it is told to. */
typedef struct other {
    pid_t pid;
    int said, told;
} other;

static other start_other(const char *run, int64_t step)
{
    int said[2], told[2];
    ck_assert(pipe(said) == 0 && pipe(told) == 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char c = 0;
        trainer y;
        trainer_init(&y);
        y.o.synchronous = true;
        NEED(trainer_open(&y, run) == CKPT_OK);
        int64_t done;
        NEED(ckpt_run_resume(y.run, NULL, &done, NULL, &y.err) >= 0);
        set_step(&y.t, step);
        NEED(ckpt_run_save(y.run, step, &y.err) == CKPT_OK);
        NEED(write(said[1], "x", 1) == 1 && read(told[0], &c, 1) == 1);
        NEED(trainer_close(&y) == CKPT_OK);
        execlp("true", "true", (char *)NULL); /* a leak checker would look at what is its parent's */
        _exit(1);
    }
    char c = 0;
    close(said[1]);
    close(told[0]);
    ck_assert_int_eq(read(said[0], &c, 1), 1);
    return (other){pid, said[0], told[1]};
}

static void end_other(other *o)
{
    int status = -1;
    ck_assert_int_eq(write(o->told, "x", 1), 1);
    ck_assert_int_eq(waitpid(o->pid, &status, 0), o->pid);
    ck_assert_int_eq(status, 0);
    close(o->said);
    close(o->told);
}

START_TEST(a_lock_that_another_took_ends_the_saves)
{
    trainer x;
    const char *run = in_folder("run");
    char name[32];
    start(&x, run, true);
    EXPECT_OK(&x, trainer_step(&x, 1));
    shell("rm %s/.lock", run);
    other o = start_other(run, 2);
    snprintf(name, sizeof name, "pid %ld ", (long)o.pid);
    for (int i = 2; i <= 3; i++) {
        ck_assert_int_eq(trainer_step(&x, i), CKPT_E_EXISTS);
        ck_assert_msg(strstr(x.err.message, name) && strstr(x.err.message, ".lock"), "%s", x.err.message);
    }
    end_other(&o);
    /* It has gone, and its checkpoints are there: this run knows nothing of them. */
    ck_assert_int_eq(trainer_step(&x, 4), CKPT_E_EXISTS);
    ck_assert_msg(strstr(x.err.message, name) && strstr(x.err.message, "open"), "%s", x.err.message);
    ck_assert_int_eq(names_in(run, "step-"), 2);
    ck_assert(holds(step_path(run, 1), 1) && holds(step_path(run, 2), 2));
    ck_assert(no_leftovers(run));
    ck_assert_uint_eq(heard(&x.news, "lock-replaced"), 0);
    trainer_end(&x);
    start(&x, run, true); /* nor is it locked by what failed */
    ck_assert(is_of_step(&x.t, 2));
    trainer_end(&x);
}
END_TEST

/* The writer stands before the end of its file while another process opens the run. */
START_TEST(who_lost_the_lock_while_it_wrote_publishes_nothing)
{
    trainer x;
    const char *run = in_folder("run");
    int go[2];
    char c = 'x';
    ck_assert_int_eq(pipe(go), 0);
    pid_t pid = fork(); /* before there is a writer, whose memory the child would have */
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        trainer y;
        int64_t done;
        NEED(read(go[0], &c, 1) == 1);
        trainer_init(&y);
        y.o.synchronous = true;
        NEED(trainer_open(&y, run) == CKPT_OK);
        NEED(ckpt_run_resume(y.run, NULL, &done, NULL, &y.err) == CKPT_OK && done == 1);
        NEED(trainer_close(&y) == CKPT_OK);
        ckpt_state_free(y.state);
        _exit(0);
    }
    start(&x, run, false);
    EXPECT_OK(&x, step_and_wait(&x, 1));
    gate_set(true, 0);
    EXPECT_OK(&x, trainer_step(&x, 2));
    gate_meet(1);
    shell("rm %s/.lock", run);
    ck_assert_int_eq(write(go[1], &c, 1), 1);
    int status = -1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    close(go[0]);
    close(go[1]);
    gate_set(false, 0);
    ck_assert_int_lt(ckpt_run_wait(x.run, &x.err), 0);
    ck_assert_int_eq(names_in(run, "step-"), 1);
    ck_assert(holds(step_path(run, 1), 1));
    ck_assert(no_leftovers(run));
    trainer_end(&x);
}
END_TEST

/* The same when the other one only takes the lock and leaves the temporary alone. */
START_TEST(a_lock_lost_before_the_rename_is_seen)
{
    trainer x;
    const char *run = in_folder("run");
    start(&x, run, false);
    EXPECT_OK(&x, step_and_wait(&x, 1));
    gate_set(true, 0);
    EXPECT_OK(&x, trainer_step(&x, 2));
    gate_meet(1);
    shell("rm %s/.lock && echo 'pid 1 on host elsewhere' > %s/.lock", run, run);
    gate_set(false, 0);
    ck_assert_int_eq(ckpt_run_wait(x.run, &x.err), CKPT_E_EXISTS);
    ck_assert_ptr_nonnull(strstr(x.err.message, "pid 1 on host elsewhere"));
    ck_assert_int_eq(names_in(run, "step-"), 1);
    ck_assert(no_leftovers(run));
    shell("rm %s/.lock", run); /* once it is gone the run may go on */
    EXPECT_OK(&x, step_and_wait(&x, 3));
    ck_assert(holds(step_path(run, 3), 3));
    trainer_end(&x);
}
END_TEST

/* ---- ranks */

static void train_and_move(member *m)
{
    open_and_resume(m);
    for (int64_t i = 1; i <= 4 && m->status >= 0; i++) {
        pthread_barrier_wait(&m->w->barrier);
        if (i == 3 && m->rank == 0)
            shell("mv %s %s && mkdir -p %s/rank-00000 %s/rank-00001", m->w->run, in_folder("moved"), m->w->run,
                  m->w->run);
        pthread_barrier_wait(&m->w->barrier);
        set_rank_step(m, i);
        m->status = ckpt_run_step(m->x.run, i, &m->x.err);
        if (m->status >= 0)
            m->status = ckpt_run_wait(m->x.run, &m->x.err);
    }
    close_rank(m);
}

static void train_and_lose_a_lock(member *m)
{
    open_and_resume(m);
    for (int64_t i = 1; i <= 2 && m->status >= 0; i++) {
        pthread_barrier_wait(&m->w->barrier);
        if (i == 2 && m->rank == 1)
            shell("rm %s/rank-00001/.lock && echo 'pid 1 on host elsewhere' > %s/rank-00001/.lock", m->w->run,
                  m->w->run);
        pthread_barrier_wait(&m->w->barrier);
        set_rank_step(m, i);
        m->status = ckpt_run_step(m->x.run, i, &m->x.err);
        if (m->status >= 0)
            m->status = ckpt_run_wait(m->x.run, &m->x.err);
    }
    close_rank(m);
}

START_TEST(the_ranks_of_a_run_that_is_moved_go_on_in_it)
{
    const char *run = in_folder("run"), *moved = in_folder("moved");
    world *w = world_new(run, 2);
    EACH(w, m)
    m->x.o.every_steps = 1;
    world_play(w, train_and_move);
    EACH(w, m)
    {
        ck_assert_msg(m->status == CKPT_OK, "rank %d: %s: %s", (int)m->rank, m->x.err.object, m->x.err.message);
        ck_assert_uint_eq(heard(&m->x.news, "run-moved"), 1);
        for (int64_t i = 1; i <= 4; i++)
            ck_assert(is_there(rank_path(moved, m->rank, i)) && !is_there(rank_path(run, m->rank, i)));
    }
    world_free(w);
}
END_TEST

START_TEST(a_rank_that_lost_its_lock_fails_the_save_of_all)
{
    const char *run = in_folder("run");
    world *w = world_new(run, 2);
    EACH(w, m)
    m->x.o.every_steps = 1;
    world_play(w, train_and_lose_a_lock);
    EACH(w, m)
    {
        ck_assert_int_eq(m->status, CKPT_E_EXISTS);
        ck_assert_ptr_nonnull(strstr(m->x.err.message, "pid 1 on host elsewhere"));
        ck_assert(is_there(rank_path(run, m->rank, 1)) && !is_there(rank_path(run, m->rank, 2)));
    }
    world_free(w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("run_moved");
    TCase *t = tcase_create("moved");
    tcase_add_checked_fixture(t, begin, remove_folder);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, saves_follow_a_directory_that_is_moved);
    tcase_add_test(t, another_directory_of_the_name_is_not_written_to);
    tcase_add_test(t, what_is_read_back_is_what_was_written);
    tcase_add_test(t, a_resume_reads_what_it_has_locked);
    tcase_add_test(t, a_removed_directory_is_an_error_each_time);
    tcase_add_test(t, a_lock_that_nobody_took_is_taken_again);
    tcase_add_test(t, a_lock_that_another_took_ends_the_saves);
    tcase_add_test(t, who_lost_the_lock_while_it_wrote_publishes_nothing);
    tcase_add_test(t, a_lock_lost_before_the_rename_is_seen);
    tcase_add_test(t, the_ranks_of_a_run_that_is_moved_go_on_in_it);
    tcase_add_test(t, a_rank_that_lost_its_lock_fails_the_save_of_all);
    suite_add_tcase(s, t);
    return run_suite(s);
}
