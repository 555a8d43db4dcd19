/* test_run_async.c - the snapshot and the writer: what the trainer does once ckpt_run_step has returned is not in the
 * file; one save at a time; without memory or a thread it is written while the trainer waits. */
#include "../run_fixture.h"

enum { BIG = 8 << 20 };

static const int64_t big_shape[] = {BIG}, ours_shape[] = {1000};

/* Beside the small state: a big tensor of the caller's, and one that is the state's own. */
static void bind_big(trainer *x, unsigned char *big)
{
    bind_tensor(x->state, "big", NULL, CKPT_ROLE_BUFFER, CKPT_U8, 1, big_shape, NULL, big);
    bind_tensor(x->state, "ours", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, ours_shape, NULL, NULL);
    IS_OK(ckpt_state_allocate(x->state, &x->err));
}

static float *ours_of(trainer *x)
{
    float *data = ckpt_state_data(x->state, "ours");
    ck_assert_ptr_nonnull(data);
    return data;
}

static void set_big(trainer *x, unsigned char *big, int64_t done)
{
    float *ours = ours_of(x);
    set_step(&x->t, done);
    for (int i = 0; i < BIG; i++)
        big[i] = (unsigned char)(i / 7 + i / 4096 + (int)done);
    for (int i = 0; i < 1000; i++)
        ours[i] = (float)(i + done);
}

static bool is_big_of(trainer *x, const unsigned char *big, int64_t done)
{
    const float *ours = ours_of(x);
    for (int i = 0; i < BIG; i++)
        if (big[i] != (unsigned char)(i / 7 + i / 4096 + (int)done))
            return false;
    for (int i = 0; i < 1000; i++)
        if (ours[i] < (float)(i + done) || ours[i] > (float)(i + done))
            return false;
    return is_of_step(&x->t, done);
}

static bool holds_big(const char *path, int64_t done)
{
    trainer y;
    unsigned char *big = calloc(1, BIG);
    trainer_init(&y);
    bind_big(&y, big);
    bool same = ckpt_restore(y.state, path, NULL, NULL, &y.err) == CKPT_OK && is_big_of(&y, big, done);
    trainer_end(&y);
    free(big);
    return same;
}

/* The writer stands before the first byte of the first file while all of the state is changed. */
START_TEST(test_changed_after_step)
{
    trainer x;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    unsigned char *big = malloc(BIG);
    const char *run = in_folder("run");
    trainer_init(&x);
    bind_big(&x, big);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    for (int i = 1; i <= 3; i++) { /* the second and third reuse the first one's memory */
        gate_set(true, 0);
        set_big(&x, big, i);
        IS_OK(ckpt_run_step(x.run, i, &x.err));
        gate_meet(1);
        ck_assert_msg(gate.masked, "the trainer's signals are blocked in the writer");
        ckpt_run_get_info(x.run, &info);
        ck_assert_msg(info.busy, "it is being written");
        ck_assert(!is_there(step_path(run, i)));
        set_big(&x, big, 500 + i);
        gate_set(false, 0);
        IS_OK(ckpt_run_wait(x.run, &x.err));
        ck_assert_msg(holds_big(step_path(run, i), i), "step %d holds what was there when the step returned", i);
    }
    ckpt_run_get_info(x.run, &info);
    ck_assert_uint_ge(info.snapshot_bytes, BIG);
    trainer_end(&x);
    free(big);
}
END_TEST

/* The state may grow, and be restored, while its copy is written. */
START_TEST(test_bound_and_restored_meanwhile)
{
    trainer x;
    int64_t done;
    static float more[2000][2];
    static int64_t count[2000];
    unsigned char *big = malloc(BIG);
    const char *run = in_folder("run");
    trainer_init(&x);
    bind_big(&x, big);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    set_big(&x, big, 1);
    IS_OK(ckpt_run_step(x.run, 1, &x.err));
    IS_OK(ckpt_run_wait(x.run, &x.err));
    gate_set(true, 0);
    set_big(&x, big, 2);
    IS_OK(ckpt_run_step(x.run, 2, &x.err));
    gate_meet(1);
    IS_OK(ckpt_restore(x.state, step_path(run, 1), NULL, NULL, &x.err));
    ck_assert(is_big_of(&x, big, 1));
    for (int i = 0; i < 2000; i++) {
        char name[40];
        snprintf(name, sizeof name, "more.%d.weight", i);
        bind_tensor(x.state, name, NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, (int64_t[]){2}, NULL, more[i]);
        snprintf(name, sizeof name, "count.%d", i);
        IS_OK(ckpt_state_i64(x.state, name, &count[i], &x.err));
    }
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    ck_assert_msg(holds_big(step_path(run, 2), 2), "without what was bound later");
    set_big(&x, big, 3);
    more[1999][1] = 5;
    count[1999] = 6;
    IS_OK(ckpt_run_step(x.run, 3, &x.err));
    more[1999][1] = 0;
    count[1999] = 0;
    IS_OK(ckpt_run_resume(x.run, NULL, &done, NULL, &x.err));
    ck_assert(done == 3 && is_big_of(&x, big, 3) && count[1999] == 6 && more[1999][1] > 4 && more[1999][1] < 6);
    trainer_end(&x);
    free(big);
}
END_TEST

/* ---- one at a time */

START_TEST(test_skip_when_busy)
{
    trainer x;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.skip_when_busy = true;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    STEPS(&x, 2, 3);
    ckpt_run_get_info(x.run, &info);
    ck_assert_uint_eq(info.skipped, 2);
    ck_assert_uint_eq(heard(&x.news, "save-skipped"), 2);
    ck_assert_str_eq(said(&x.news, "save-skipped"), "step 3 is not saved: step-00000001 is still being written");
    gate_set(false, 0);
    IS_OK(ckpt_run_wait(x.run, &x.err));
    STEPS(&x, 4, 4);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 1), 1) && holds(step_path(run, 4), 4));
    ck_assert_int_eq(names_in(run, "step-"), 2);
}
END_TEST

typedef struct opener {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool told;
} opener;

static void *open_when_told(void *arg)
{
    opener *o = arg;
    pthread_mutex_lock(&o->lock);
    while (!o->told)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
    gate_set(false, 0);
    memory_set(false, UINT64_MAX);
    return NULL;
}

static void tell(opener *o)
{
    pthread_mutex_lock(&o->lock);
    o->told = true;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

/* By default, and whenever the trainer asks for it, a save waits for the one before. */
static void waits(bool by_call)
{
    trainer x;
    pthread_t thread;
    opener o = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    const char *run = in_folder(by_call ? "call" : "due");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.skip_when_busy = by_call;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    IS_OK(pthread_create(&thread, NULL, open_when_told, &o));
    set_step(&x.t, 2);
    tell(&o);
    IS_OK(by_call ? ckpt_run_save(x.run, 2, &x.err) : ckpt_run_step(x.run, 2, &x.err));
    ck_assert_msg(is_there(step_path(run, 1)), "the first is on disk before the second begins");
    set_step(&x.t, 50);
    IS_OK(pthread_join(thread, NULL));
    ck_assert_uint_eq(x.run->info.skipped, 0);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 1), 1) && holds(step_path(run, 2), 2));
}

START_TEST(test_waits)
{
    waits(false);
    waits(true);
}
END_TEST

/* Making room for the first snapshot is no save: none is skipped for it. */
START_TEST(test_reservation_is_no_save)
{
    trainer x;
    pthread_t thread;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    opener o = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 2;
    x.o.skip_when_busy = true;
    trainer_start(&x, run);
    memory_set(true, UINT64_MAX);
    STEPS(&x, 1, 1);
    gate_meet(1);
    ckpt_run_get_info(x.run, &info);
    ck_assert_msg(!info.busy, "nothing is being written");
    IS_OK(pthread_create(&thread, NULL, open_when_told, &o));
    tell(&o);
    STEPS(&x, 2, 2);
    IS_OK(pthread_join(thread, NULL));
    ck_assert_uint_eq(heard(&x.news, "save-skipped"), 0);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 2), 2));
}
END_TEST

/* ---- close drains */

START_TEST(test_close_drains)
{
    trainer x;
    pthread_t thread;
    opener o = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    gate_set(true, 0);
    STEPS(&x, 1, 1);
    gate_meet(1);
    IS_OK(pthread_create(&thread, NULL, open_when_told, &o));
    tell(&o);
    IS_OK(trainer_close(&x));
    ck_assert(holds(step_path(run, 1), 1) && no_leftovers(run));
    IS_OK(pthread_join(thread, NULL));
    trainer_end(&x);
}
END_TEST

/* ---- without a snapshot */

START_TEST(test_snapshot_limit)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    x.o.snapshot_limit = 100;
    trainer_start(&x, run);
    for (int i = 1; i <= 3; i++) {
        STEPS(&x, i, i);
        ck_assert_msg(holds(step_path(run, i), i), "it is on disk when the call returns");
    }
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 1);
    ck_assert_msg(strstr(said(&x.news, "synchronous"), "snapshot_limit is 100") != NULL, "%s",
                  said(&x.news, "synchronous"));
    ck_assert_uint_eq(x.run->info.snapshot_bytes, 0);
    trainer_end(&x);
}
END_TEST

/* Once there is memory again it is asynchronous again. */
START_TEST(test_short_memory)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    memory_set(false, 1000);
    trainer_start(&x, run);
    for (int i = 1; i <= 3; i++) {
        STEPS(&x, i, i);
        ck_assert_msg(holds(step_path(run, i), i), "it is on disk when the call returns");
    }
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 1);
    ck_assert_msg(strstr(said(&x.news, "synchronous"), "1000 bytes of host memory are free") != NULL, "%s",
                  said(&x.news, "synchronous"));
    memory_set(false, 1u << 30);
    gate_set(true, 0);
    STEPS(&x, 4, 4);
    gate_meet(1);
    gate_set(false, 0);
    trainer_end(&x);
    memory_set(false, UINT64_MAX);
    ck_assert(holds(step_path(run, 4), 4));
}
END_TEST

START_TEST(test_no_thread)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    gate.no_threads = true;
    for (int i = 1; i <= 3; i++) {
        STEPS(&x, i, i);
        ck_assert_msg(holds(step_path(run, i), i), "it is on disk when the call returns");
    }
    gate.no_threads = false;
    ck_assert_uint_eq(heard(&x.news, "synchronous"), 1);
    ck_assert_msg(strstr(said(&x.news, "synchronous"), "pthread_create") != NULL, "%s", said(&x.news, "synchronous"));
    STEPS(&x, 4, 4);
    ck_assert(x.run->threaded);
    trainer_end(&x);
    ck_assert(holds(step_path(run, 4), 4));
}
END_TEST

/* A tensor for which there is no memory yet: an error that names it, of this save alone. */
START_TEST(test_unallocated)
{
    trainer x;
    const char *run = in_folder("run");
    trainer_init(&x);
    bind_tensor(x.state, "ours", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 1, ours_shape, NULL, NULL);
    x.o.every_steps = 1;
    trainer_start(&x, run);
    ckpt_status now = trainer_step(&x, 1);
    ck_assert_int_lt(now, 0);
    ck_assert_msg(strcmp(x.err.object, "ours") == 0, "%s: %s", x.err.object, x.err.message);
    IS_OK(ckpt_state_allocate(x.state, &x.err));
    STEPS(&x, 2, 2);
    trainer_end(&x);
    ck_assert(is_there(step_path(run, 2)) && names_in(run, "step-") == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_async");
    TCase *tc = tcase_create("async");
    tcase_set_timeout(tc, 240);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_changed_after_step);
    tcase_add_test(tc, test_bound_and_restored_meanwhile);
    tcase_add_test(tc, test_skip_when_busy);
    tcase_add_test(tc, test_waits);
    tcase_add_test(tc, test_reservation_is_no_save);
    tcase_add_test(tc, test_close_drains);
    tcase_add_test(tc, test_snapshot_limit);
    tcase_add_test(tc, test_short_memory);
    tcase_add_test(tc, test_no_thread);
    tcase_add_test(tc, test_unallocated);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
