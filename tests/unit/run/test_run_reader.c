/* test_run_reader.c - a run directory is looked at and read by others while a run saves and prunes there: what they see
 * is whole and of one save, or it is gone. */
#include <stdatomic.h>
#include "../run_fixture.h"

enum { WANTED = 60 };

typedef struct reader {
    const char *run;
    bool listed; /* looks through ckpt_run_list; else at a step whose name it knows */
    atomic_int *ends;
    atomic_int whole, gone, lists;
    char wrong[700];
    pthread_t thread;
} reader;

static bool is_one_save(const training *t)
{
    training want, have = *t;
    size_t length = strnlen(have.note, sizeof have.note);
    fill(&want, (unsigned)(t->counter & 0xffffff));
    want.step = t->step;
    memset(have.note + length, 0, sizeof have.note - length);
    return memcmp(&want, &have, sizeof want) == 0;
}

/* That a file or directory is not there, and nothing else. */
static bool says_gone(ckpt_status status, const ckpt_error *err)
{
    return status == CKPT_E_NOT_FOUND ||
           (status == CKPT_E_SYSTEM && (err->sys_errno == ENOENT || err->sys_errno == ESTALE));
}

static void complain(reader *r, const char *call, const char *path, ckpt_status status, const ckpt_error *err)
{
    if (!r->wrong[0])
        snprintf(r->wrong, sizeof r->wrong, "%s of %.80s: status %d: %.100s: %.400s", call, path, (int)status,
                 err->object, err->message);
}

static void note(reader *r, const char *call, const char *path, ckpt_status status, const ckpt_error *err)
{
    if (status == CKPT_OK)
        atomic_fetch_add(&r->whole, 1);
    else if (says_gone(status, err))
        atomic_fetch_add(&r->gone, 1);
    else
        complain(r, call, path, status, err);
}

/* Restored, verified, and read through a reader that stays open while the directory goes. */
static void read_step(reader *r, const char *path)
{
    training t;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    ckpt_reader *open = NULL;
    ckpt_error differs = CKPT_ERROR_INIT;
    strcpy(differs.message, "tensors of two saves");
    set_step(&t, 0);
    ckpt_state *s = bind_all(&t);
    ckpt_status status = ckpt_restore(s, path, NULL, NULL, &err);
    note(r, "restore", path, status, &err);
    if (status == CKPT_OK && !is_one_save(&t))
        complain(r, "restore", path, status, &differs);
    ckpt_state_free(s);
    status = ckpt_verify(path, NULL, &result, NULL, &err);
    note(r, "verify", path, status, &err);
    status = ckpt_reader_open(path, NULL, &open, &err);
    for (size_t i = 0; status == CKPT_OK && i < ckpt_reader_tensor_count(open); i++) {
        const ckpt_tensor_info *info = ckpt_reader_tensor(open, i);
        void *data = malloc(info->nbytes + 1);
        NEED(data);
        status = ckpt_reader_read(open, i, data, info->nbytes, &err);
        free(data);
    }
    note(r, "read", path, status, &err);
    ckpt_reader_close(open);
}

static void read_list(reader *r)
{
    ckpt_run_list *list = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = ckpt_run_list_open(r->run, &list, &err);
    atomic_fetch_add(&r->lists, 1);
    if (status < 0)
        complain(r, "list", r->run, status, &err);
    if (status == CKPT_OK && ckpt_run_list_count(list) == 0)
        complain(r, "list", "no checkpoint at all", status, &err);
    for (size_t i = 0; status == CKPT_OK && i < ckpt_run_list_count(list); i++) {
        ckpt_error why = CKPT_ERROR_INIT;
        snprintf(why.message, sizeof why.message, "%s", ckpt_run_list_entry(list, i)->why);
        if (!ckpt_run_list_entry(list, i)->complete)
            complain(r, "list", ckpt_run_list_entry(list, i)->name, status, &why);
        else
            read_step(r, ckpt_run_list_entry(list, i)->path);
    }
    ckpt_run_list_close(list);
}

static void *read_on(void *arg)
{
    reader *r = arg;
    while (!atomic_load(r->ends) && !r->wrong[0]) {
        if (r->listed)
            read_list(r);
        else
            read_step(r, step_path(r->run, 5));
    }
    return NULL;
}

/* Saves of new steps that push the old ones out, or of one step again and again. */
static void play(bool listed)
{
    trainer x;
    atomic_int ends = 0;
    const char *run = in_folder(listed ? "new" : "again");
    reader r = {.run = run, .listed = listed, .ends = &ends};
    trainer_init(&x);
    x.o.retention.keep_last = 1;
    trainer_start(&x, run);
    set_step(&x.t, 5);
    IS_OK(ckpt_run_save(x.run, 5, &x.err));
    IS_OK(ckpt_run_wait(x.run, &x.err));
    IS_OK(pthread_create(&r.thread, NULL, read_on, &r));
    for (int i = 1; i <= WANTED || (atomic_load(&r.whole) < WANTED && i < 100000); i++) {
        fill(&x.t, (unsigned)i);
        x.t.step = listed ? 5 + i : 5;
        IS_OK(ckpt_run_save(x.run, x.t.step, &x.err));
        if (r.wrong[0])
            break;
    }
    IS_OK(ckpt_run_wait(x.run, &x.err));
    atomic_store(&ends, 1);
    IS_OK(pthread_join(r.thread, NULL));
    ck_assert_msg(!r.wrong[0], "%s", r.wrong);
    ck_assert_int_ge(atomic_load(&r.whole), WANTED);
    ck_assert_int_eq(names_in(run, "step-"), 1);
    ck_assert(no_leftovers(run));
    trainer_end(&x);
}

START_TEST(test_pruned_meanwhile)
{
    play(true);
}
END_TEST

START_TEST(test_replaced_meanwhile)
{
    play(false);
}
END_TEST

/* In another process, which a lock would keep out if it took one. */
START_TEST(test_another_process)
{
    trainer x;
    int ends[2], status;
    const char *run = in_folder("run");
    trainer_init(&x);
    x.o.retention.keep_last = 2;
    x.o.synchronous = true;
    trainer_start(&x, run);
    set_step(&x.t, 1);
    IS_OK(ckpt_run_save(x.run, 1, &x.err));
    IS_OK(pipe(ends));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        atomic_int never = 0;
        reader r = {.run = run, .listed = true, .ends = &never};
        while (atomic_load(&r.whole) < WANTED && !r.wrong[0])
            read_list(&r);
        if (r.wrong[0])
            fprintf(stderr, "%s\n", r.wrong);
        _exit(r.wrong[0] != 0);
    }
    int64_t done = 1;
    for (pid_t ended = 0; ended == 0; ended = waitpid(pid, &status, WNOHANG)) {
        done++;
        set_step(&x.t, done);
        IS_OK(ckpt_run_save(x.run, done, &x.err));
    }
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    close(ends[1]);
    trainer_end(&x);
    ck_assert(holds(step_path(run, done), done));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("run_reader");
    TCase *tc = tcase_create("reader");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, make_run_folder, remove_folder);
    tcase_add_test(tc, test_pruned_meanwhile);
    tcase_add_test(tc, test_replaced_meanwhile);
    tcase_add_test(tc, test_another_process);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
