/* make_v01.c - made the fixtures beside it (see README): make_v01 DIRECTORY, built against ckpt 0.1.0. They hold the times
 * of their saves, so they are never made anew. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "frozen.h"

enum { RANKS = 2 };

static const char *folder;

static void check(ckpt_status status, const ckpt_error *err)
{
    if (status < 0) {
        fprintf(stderr, "make_v01: %s: %s\n", err->object, err->message);
        exit(1);
    }
}

static const char *at(const char *name)
{
    static char paths[4][400];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

static ckpt_state *bind(frozen *f, bool ours)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    if (!s)
        exit(1);
    check(frozen_bind(s, f, ours, &err), &err);
    return s;
}

static void files(void)
{
    frozen f;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options directory = CKPT_SAVE_OPTIONS_INIT, weights = CKPT_SAVE_OPTIONS_INIT;
    frozen_fill(&f, FROZEN_FILE_SEED);
    ckpt_state *s = bind(&f, false), *device = bind(&f, true);
    check(ckpt_save(s, at("file.safetensors"), NULL, &err), &err);
    directory.directory = true;
    check(ckpt_save(s, at("directory"), &directory, &err), &err);
    weights.format = "safetensors";
    weights.weights_only = weights.lossy = true;
    check(ckpt_save(s, at("weights.safetensors"), &weights, &err), &err);
    check(ckpt_restore(device, at("file.safetensors"), NULL, NULL, &err), &err);     /* onto a simulated device */
    check(ckpt_save(device, at("devices.safetensors"), NULL, &err), &err);
    ckpt_state_free(s);
    ckpt_state_free(device);
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
        if (arrived == 0 || (op == CKPT_OP_MIN && v[i] < shared[i]) || (op == CKPT_OP_MAX && v[i] > shared[i]))
            shared[i] = v[i];
        else if (op == CKPT_OP_SUM)
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

typedef struct job { const char *path; int64_t rank, world; } job;

static void *train(void *arg)
{
    const job *j = arg;
    frozen f;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    ckpt_run *run = NULL;
    int64_t done = 0;
    frozen_fill(&f, 0);
    ckpt_state *s = bind(&f, false);
    o.every_steps = 10;
    o.ranks.rank = j->rank;
    o.ranks.world = j->world;
    o.all_reduce = j->world > 1 ? all_reduce : NULL;
    check(ckpt_run_open(&run, j->path, s, &o, &err), &err);
    check(ckpt_run_resume(run, NULL, &done, NULL, &err), &err);
    while (done < 20) {
        done++;
        frozen_fill(&f, (uint64_t)(done + 1000 * j->rank));
        f.step = done;
        check(ckpt_run_step(run, done, &err), &err);
    }
    check(ckpt_run_close(run, &err), &err);
    ckpt_state_free(s);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[RANKS];
    job jobs[RANKS];
    folder = argc > 1 ? argv[1] : ".";
    files();
    job one = { at("run"), 0, 1 };
    train(&one);
    pthread_barrier_init(&meet, NULL, RANKS);
    char ranks[400];
    snprintf(ranks, sizeof ranks, "%s", at("ranks"));
    for (int i = 0; i < RANKS; i++) {
        jobs[i] = (job){ ranks, i, RANKS };
        pthread_create(&threads[i], NULL, train, &jobs[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    printf("written by ckpt %s\n", ckpt_version());
    return 0;
}
