/* test_migrate_run.c - --to ckpt-run: N ranks train by the hook, each with its rows of a weight, and M ranks go on from what becomes of
 * their checkpoint. The losses are bit by bit those of the N ranks that went on: the sum is always taken in the same order. */
#include <ckpt/migrate.h>
#include <ckpt/reader.h>
#include <ckpt/train.h>
#include <math.h>
#include <pthread.h>

#include "../runner.h"
#include "../scarce_memory.h"
#include "../scratch.h"

enum { ROWS = 13, COLUMNS = 3, MOST = 5, SAVED = 4, LAST = 9 };

/* The whole model, in memory that all ranks share: each writes its rows. */
typedef struct team {
    pthread_barrier_t barrier;
    int64_t numbers[MOST][64];
    const char *run;
    int ranks;
    float weight[ROWS][COLUMNS];
    float losses[LAST + 1];
    ckpt_status status[MOST];
    ckpt_error err[MOST];
    int64_t done[MOST];
} team;

typedef struct member {
    team *t;
    int rank, begin, end;
    float weight[ROWS][COLUMNS], exp_avg[ROWS][COLUMNS], exp_avg_sq[ROWS][COLUMNS], updates, bias[COLUMNS];
    int64_t step, seen; /* seen: what each rank has for itself */
    ckpt_state *state;
} member;

static int all_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    member *m = ctx;
    team *t = m->t;
    if (n > 64)
        return -1;
    memcpy(t->numbers[m->rank], v, n * sizeof *v);
    pthread_barrier_wait(&t->barrier);
    for (size_t i = 0; i < n; i++) {
        v[i] = t->numbers[0][i];
        for (int r = 1; r < t->ranks; r++) {
            const int64_t other = t->numbers[r][i];
            v[i] = op == CKPT_OP_SUM ? v[i] + other : (op == CKPT_OP_MIN) == (other < v[i]) ? other : v[i];
        }
    }
    pthread_barrier_wait(&t->barrier);
    return 0;
}

static ckpt_status bind_one(member *m, const char *param, ckpt_role role, void *data, int64_t rows)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    const int64_t shape[] = {rows, COLUMNS};
    d.name = role == CKPT_ROLE_PARAM ? param : NULL;
    d.param = role == CKPT_ROLE_PARAM ? NULL : param;
    d.dtype = CKPT_F32;
    d.shape = rows ? shape : shape + 1;
    d.ndim = role == CKPT_ROLE_STEP ? 0 : rows ? 2 : 1;
    d.role = role;
    d.data = data;
    return ckpt_state_tensor(m->state, &d, NULL);
}

static void bind_all(member *m)
{
    const int64_t rows = m->end - m->begin;
    const int failed =
        bind_one(m, "weight", CKPT_ROLE_PARAM, m->weight, rows) |
        bind_one(m, "weight", CKPT_ROLE_EXP_AVG, m->exp_avg, rows) |
        bind_one(m, "weight", CKPT_ROLE_EXP_AVG_SQ, m->exp_avg_sq, rows) |
        bind_one(m, "weight", CKPT_ROLE_STEP, &m->updates, 0) | bind_one(m, "bias", CKPT_ROLE_PARAM, m->bias, 0) |
        ckpt_state_i64(m->state, "step", &m->step, NULL) | ckpt_state_i64(m->state, "rank_seen", &m->seen, NULL);
    if (failed)
        abort();
}

/* Each rank's rows go to the whole; the loss is summed by each in the same order, and each has the gradient of its rows. */
static void step_on(member *m)
{
    team *t = m->t;
    float loss = 0;
    memcpy(t->weight[m->begin], m->weight, (size_t)(m->end - m->begin) * sizeof *m->weight);
    pthread_barrier_wait(&t->barrier);
    m->step++;
    m->updates++;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++) {
            const float off = t->weight[r][c] + m->bias[c] - sinf((float)(r * COLUMNS + c) + (float)m->step);
            loss += off * off;
        }
    for (int r = m->begin; r < m->end; r++)
        for (int c = 0; c < COLUMNS; c++) {
            const int own = r - m->begin;
            const float g = 2 * (t->weight[r][c] + m->bias[c] - sinf((float)(r * COLUMNS + c) + (float)m->step));
            m->exp_avg[own][c] = 0.9f * m->exp_avg[own][c] + 0.1f * g;
            m->exp_avg_sq[own][c] = 0.999f * m->exp_avg_sq[own][c] + 0.001f * g * g;
            m->weight[own][c] -= 0.05f * m->exp_avg[own][c] / (1 - powf(0.9f, m->updates)) /
                                 (sqrtf(m->exp_avg_sq[own][c] / (1 - powf(0.999f, m->updates))) + 1e-8f);
        }
    for (int c = 0; c < COLUMNS; c++)
        m->bias[c] += 0.01f * (float)(c + 1);
    if (m->rank == 0)
        t->losses[m->step] = loss;
    m->seen += m->rank + 1;
    pthread_barrier_wait(&t->barrier);
}

static void *train(void *arg)
{
    member *m = arg;
    ckpt_run *run = NULL;
    ckpt_error *e = &m->t->err[m->rank];
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    o.ranks = (ckpt_ranks){m->rank, m->rank, m->t->ranks};
    o.all_reduce = all_reduce;
    o.all_reduce_ctx = m;
    o.synchronous = true;
    m->state = ckpt_state_new();
    bind_all(m);
    ckpt_status status = ckpt_run_open(m->t->run, m->state, &o, &run, e);
    if (status == CKPT_OK)
        status = ckpt_run_resume(run, NULL, &m->t->done[m->rank], NULL, e);
    while (status >= 0 && m->step < LAST) {
        step_on(m);
        if (m->step == SAVED)
            status = ckpt_run_save(run, m->step, e);
    }
    ckpt_status closed = ckpt_run_close(run, status < 0 ? NULL : e);
    m->t->status[m->rank] = status < 0 ? status : closed;
    ckpt_state_free(m->state);
    return NULL;
}

static team *play(const char *run, int ranks)
{
    static member members[MOST];
    pthread_t threads[MOST];
    team *t = calloc(1, sizeof *t);
    t->run = run;
    t->ranks = ranks;
    pthread_barrier_init(&t->barrier, NULL, (unsigned)ranks);
    for (int r = 0; r < ranks; r++) {
        members[r] = (member){.t = t, .rank = r, .begin = ROWS * r / ranks, .end = ROWS * (r + 1) / ranks};
        ck_assert_int_eq(pthread_create(&threads[r], NULL, train, &members[r]), 0);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&t->barrier);
    return t;
}

static void expect_all(const team *t, int64_t done)
{
    for (int r = 0; r < t->ranks; r++) {
        ck_assert_msg(t->status[r] >= 0, "rank %d: %d: %s: %s", r, (int)t->status[r], t->err[r].object,
                      t->err[r].message);
        ck_assert_int_eq(t->done[r], done);
    }
}

/* ---- migrated */

static ckpt_error err;

static const char *const weight[] = {"weight"};

/* Of the run `src` of n ranks. */
static ckpt_status migrate(const char *src, int n, const char *dst, uint32_t world, ckpt_migrate_options o)
{
    static char paths[MOST][80];
    const char *also[MOST];
    for (int r = 0; r < n; r++) {
        if (n > 1)
            snprintf(paths[r], sizeof paths[r], "%s/rank-%05d/step-%08d", src, r, SAVED);
        else
            snprintf(paths[r], sizeof paths[r], "%s/step-%08d", src, SAVED);
        also[r] = paths[r];
    }
    err = (ckpt_error)CKPT_ERROR_INIT;
    o.struct_size = sizeof o;
    o.to = o.to ? o.to : "ckpt-run";
    o.target_world = world;
    o.also = also + 1;
    o.also_count = (size_t)n - 1;
    o.no_sync = true;
    return ckpt_migrate(paths[0], dst, &o, NULL, &err);
}

static const ckpt_migrate_options sharded = {
    .shard = weight, .shard_count = 1, .rank_state = CKPT_RANK_STATE_DERIVE, .verify = true};

static void expect_losses(const team *one, const team *other)
{
    for (int i = SAVED + 1; i <= LAST; i++)
        ck_assert_msg(memcmp(&one->losses[i], &other->losses[i], sizeof(float)) == 0, "step %d: %a and %a", i,
                      (double)one->losses[i], (double)other->losses[i]);
}

/* What each rank has for itself ("rank_seen") differs, and no rule makes one of it: it is left out. */
static ckpt_migrate_options without_seen(int ranks)
{
    static const char *const seen[] = {"rank-00000.rank_seen", "rank-00001.rank_seen", "rank-00002.rank_seen",
                                       "rank-00003.rank_seen"};
    ckpt_migrate_options o = sharded;
    o.drop = seen;
    o.drop_count = (size_t)ranks;
    return o;
}

/* A run of n ranks becomes one of `to` ranks, which goes on with the losses of `before`; NULL: it is written, and that is all. */
static void goes_on(const team *before, const char *run, int n, const char *dst, int to, ckpt_migrate_options o)
{
    ckpt_status status = migrate(run, n, dst, (uint32_t)to, o);
    ck_assert_msg(status == CKPT_OK, "%s: %d: %s: %s", dst, (int)status, err.object, err.message);
    if (!before)
        return;
    team *after = play(dst, to);
    expect_all(after, SAVED);
    expect_losses(before, after);
    free(after);
}

START_TEST(any_number_of_ranks_goes_on)
{
    static const int from[] = {1, 3, 4}, to[] = {1, 2, 3, 5};
    for (size_t i = 0; i < 3; i++) {
        char run[30];
        snprintf(run, sizeof run, "run-%d", from[i]);
        team *before = play(run, from[i]);
        expect_all(before, 0);
        for (size_t k = 0; k < 4; k++) {
            char dst[40];
            ckpt_migrate_options o = from[i] > 1 ? without_seen(from[i]) : sharded;
            snprintf(dst, sizeof dst, "of-%d-%d", from[i], to[k]);
            if (from[i] == to[k]) /* each has its own again, whatever it is */
                o = (ckpt_migrate_options){.verify = true};
            const bool complete = from[i] == to[k] || from[i] == 1; /* else "rank_seen" is missing: see below */
            goes_on(complete ? before : NULL, run, from[i], dst, to[k], o);
        }
        free(before);
    }
}
END_TEST

/* Through a run of one, of which each value is there once. */
START_TEST(ranks_go_on_from_other_ranks)
{
    team *before = play("one", 1);
    expect_all(before, 0);
    ck_assert_int_eq(migrate("one", 1, "four", 4, sharded), CKPT_OK);
    static const int to[] = {1, 2, 3, 5};
    for (size_t k = 0; k < 4; k++) {
        char dst[40];
        snprintf(dst, sizeof dst, "of-four-%d", to[k]);
        goes_on(before, "four", 4, dst, to[k], sharded);
    }
    free(before);
}
END_TEST

START_TEST(what_is_of_ranks_is_asked_for)
{
    static const char *const none[] = {"nothing"};
    team *t = play("run", 3);
    free(t);
    ckpt_migrate_options o = {.verify = true};
    ck_assert_int_eq(migrate("run", 3, "x", 2, o), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "what each of 3 ranks has for itself"));
    o = sharded;
    ck_assert_int_eq(migrate("run", 3, "x", 2, o), CKPT_E_MISMATCH); /* rank_seen */
    o.shard = none;
    ck_assert_int_eq(migrate("run", 3, "x", 2, o), CKPT_E_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(err.message, "names no tensor"));
    o = without_seen(3);
    ck_assert_int_eq(migrate("run", 3, "x", ROWS + 1, o), CKPT_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.message, "fewer than"));
    ck_assert_int_eq(migrate("run", 2, "x", 2, o), CKPT_E_MISMATCH); /* rank 2 is not given */
    ck_assert_int_ne(access("x", F_OK), 0);
    /* the rows as one tensor, in a file of torch */
    ckpt_reader *r;
    size_t at;
    o.to = "torch";
    o.lossy = true;
    ckpt_status status = migrate("run", 3, "x.pt", 0, o);
    ck_assert_msg(status == CKPT_OK, "%d: %s: %s", (int)status, err.object, err.message);
    ck_assert_int_eq(ckpt_reader_open("x.pt", NULL, &r, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_find(r, "model.weight", 12, &at, &err), CKPT_OK);
    ck_assert_int_eq(ckpt_reader_tensor(r, at)->shape[0], ROWS);
    ckpt_reader_close(r);
}
END_TEST

START_TEST(each_rank_has_its_devices)
{
    ckpt_reader *r;
    size_t at;
    free(play("one", 1));
    ckpt_migrate_options o = sharded;
    o.map_location = "cuda:{rank}";
    ck_assert_int_eq(migrate("one", 1, "three", 3, o), CKPT_OK);
    for (int rank = 0; rank < 3; rank++) {
        char path[80], tag[20];
        snprintf(path, sizeof path, "three/rank-%05d/step-%08d", rank, SAVED);
        snprintf(tag, sizeof tag, "cuda:%d", rank);
        ck_assert_int_eq(ckpt_reader_open(path, NULL, &r, &err), CKPT_OK);
        ck_assert_int_eq(ckpt_reader_find(r, "weight", 6, &at, &err), CKPT_OK);
        ck_assert_str_eq(ckpt_reader_tensor(r, at)->device.data, tag);
        ck_assert_int_eq(ckpt_reader_find(r, "bias", 4, &at, &err), CKPT_OK);
        ck_assert_str_eq(ckpt_reader_tensor(r, at)->device.data, tag);
        ckpt_reader_close(r);
    }
}
END_TEST

START_TEST(an_allocation_that_fails_is_said)
{
    bool done = false;
    free(play("run", 3));
    ckpt_migrate_options o = without_seen(3);
    o.threads = 1;
    for (long n = 0; !done; n++) {
        allocations_left = n;
        ckpt_status status = migrate("run", 3, "scarce", 2, o);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        ck_assert_int_eq(access("scarce", F_OK) == 0, status == CKPT_OK);
        if (status == CKPT_OK)
            ck_assert_int_eq(system("rm -r scarce"), 0);
        ck_assert_int_lt(n, 100000);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("migrate to runs");
    TCase *t = tcase_create("runs");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_test(t, any_number_of_ranks_goes_on);
    tcase_add_test(t, ranks_go_on_from_other_ranks);
    tcase_add_test(t, what_is_of_ranks_is_asked_for);
    tcase_add_test(t, each_rank_has_its_devices);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
