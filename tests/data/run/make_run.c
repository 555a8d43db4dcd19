/* make_run.c - made the run directories beside it (see README): make_run DIRECTORY. They hold the time of their saves,
 * so they are not made anew. */
#include <ckpt/ckpt.h>
#include <ckpt/run.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2 };

typedef struct trainer {
    ckpt_state *state;
    float weight[4], exp_avg[4], exp_avg_sq[4], tick;
    double lr;
    int64_t step;
} trainer;

typedef struct job {
    const char *path;
    int64_t rank, world, last;
    bool read_back;
} job;

static void check(ckpt_status status, const ckpt_error *err)
{
    if (status < 0) {
        fprintf(stderr, "make_run: %s: %s\n", err->object, err->message);
        exit(1);
    }
}

static void bind_one(trainer *t, ckpt_role role, float *data, int64_t n)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.dtype = CKPT_F32;
    d.ndim = n > 1;
    d.shape = &n;
    d.role = role;
    d.data = data;
    if (role == CKPT_PARAM)
        d.name = "weight";
    else
        d.param = "weight";
    check(ckpt_state_tensor(t->state, &d, &err), &err);
}

static void start(trainer *t, int64_t rank)
{
    static const char *const params[] = { "weight" };
    ckpt_error err = CKPT_ERROR_INIT;
    memset(t, 0, sizeof *t);
    t->lr = 0.001;
    t->weight[0] = (float)rank;
    if (!(t->state = ckpt_state_new()))
        exit(1);
    bind_one(t, CKPT_PARAM, t->weight, 4);
    bind_one(t, CKPT_EXP_AVG, t->exp_avg, 4);
    bind_one(t, CKPT_EXP_AVG_SQ, t->exp_avg_sq, 4);
    bind_one(t, CKPT_STEP, &t->tick, 1);
    ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &t->lr } };
    ckpt_group_desc group = CKPT_GROUP_DESC_INIT;
    group.name = "0";
    group.params = params;
    group.param_count = 1;
    group.hypers = hypers;
    group.hyper_count = 1;
    check(ckpt_state_group(t->state, &group, &err), &err);
    check(ckpt_state_i64(t->state, "step", &t->step, &err), &err);
}

/* All ranks are threads here. */
static pthread_barrier_t meet;
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static int64_t shared[4096];
static int arrived;

static int all_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    (void)ctx;
    pthread_mutex_lock(&alone);
    for (size_t i = 0; i < n; i++)
        if (arrived == 0 || (op == CKPT_MIN && v[i] < shared[i]) || (op == CKPT_MAX && v[i] > shared[i]))
            shared[i] = v[i];
        else if (op == CKPT_SUM)
            shared[i] += v[i];
    arrived++;
    pthread_mutex_unlock(&alone);
    pthread_barrier_wait(&meet);
    memcpy(v, shared, n * sizeof *v);
    pthread_barrier_wait(&meet);
    arrived = 0;
    pthread_barrier_wait(&meet);
    return 0;
}

static void *train(void *arg)
{
    const job *j = arg;
    trainer t;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    ckpt_run *run = NULL;
    int64_t done = 0;
    start(&t, j->rank);
    o.read_back = j->read_back;
    o.ranks.rank = j->rank;
    o.ranks.world = j->world;
    o.all_reduce = j->world > 1 ? all_reduce : NULL;
    check(ckpt_run_open(j->path, t.state, &o, &run, &err), &err);
    check(ckpt_run_resume(run, NULL, &done, NULL, &err), &err);
    while (done < j->last) {
        done += 100;
        t.step = done;
        t.tick = (float)done;
        t.weight[1] += 1;
        check(ckpt_run_save(run, done, &err), &err);
    }
    check(ckpt_run_close(run, &err), &err);
    ckpt_state_free(t.state);
    return NULL;
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+");
    int c = f && fseek(f, at, SEEK_SET) == 0 ? getc(f) : EOF;
    if (c == EOF || fseek(f, at, SEEK_SET) != 0 || putc(c ^ 1, f) == EOF || fclose(f) != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 2 || chdir(argv[1]) != 0)
        return 2;
    train(&(job){ .path = "one", .world = 1, .last = 100 });
    train(&(job){ .path = "damaged", .world = 1, .last = 500, .read_back = true });
    if (truncate("damaged/step-00000500/training.safetensors", 4000) != 0)
        return 1;
    if (system("sed -i -n /step-00000300/p damaged/verified") != 0)      /* the others are not verified */
        return 1;
    flip("damaged/step-00000400/model.safetensors", 4096 + 4);
    pthread_t threads[RANKS];
    job jobs[RANKS];
    pthread_barrier_init(&meet, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        jobs[i] = (job){ .path = "ranks", .rank = i, .world = RANKS, .last = 200 };
        pthread_create(&threads[i], NULL, train, &jobs[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    return system("rm -r ranks/rank-00001/step-00000200");
}
