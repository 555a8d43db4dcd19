/* stall.c - what an asynchronous save costs the trainer: how long ckpt_run_step holds it up, beside one memcpy of the
 * state, and how long a training step takes while the writer writes, beside a step when nothing is written. All of it is
 * interleaved in one run.
 *
 *     stall DIR MIB ROUNDS [STEPS]
 *
 * A kind has as many rounds as ROUNDS, and more until STEPS steps ran while the writer wrote. bench/stall.py runs it beside
 * PyTorch's asynchronous save, and reads the lines that begin with '#'.
 *
 * The state: MIB of float32 parameters in tensors of 16 MiB. Three kinds of training step: "compute" multiplies matrices
 * that fit into the cache on one core, "cores" does so on all of them, so that the writer has none to itself, and "memory"
 * updates 64 MiB of the state as an optimizer does. */
#include <ckpt/train.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    TENSOR_MIB = 16,
    MOST_TENSORS = 4096,
    SIDE = 192,
    SLICE_MIB = 64,
    MOST_STEPS = 100000,
    WARM = 2,
    MOST_ROUNDS = 200,
    MOST_CORES = 64
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noreturn)) static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "stall: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

/* Warm memory in huge pages, so that the memcpy that the stall is held against is a fast one. */
static float *huge(size_t bytes)
{
    float *p = aligned_alloc(2 << 20, bytes);
    if (!p)
        die("memory", NULL);
    (void)!madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0, bytes);
    return p;
}

/* ---- the trainer */

typedef struct matrices {
    float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
} matrices;

typedef struct trainer {
    float *weights;
    size_t floats, at, cores;
    matrices *own; /* one for each core */
} trainer;

static void *multiply(void *arg)
{
    matrices *m = arg;
    for (int repeat = 0; repeat < 4; repeat++)
        for (int i = 0; i < SIDE; i++)
            for (int k = 0; k < SIDE; k++)
                for (int j = 0; j < SIDE; j++)
                    m->c[i * SIDE + j] += m->a[i * SIDE + k] * m->b[k * SIDE + j];
    return NULL;
}

static void step_compute(trainer *t)
{
    multiply(&t->own[0]);
    t->weights[t->at++ % t->floats] = t->own[0].c[0];
}

static void step_cores(trainer *t)
{
    pthread_t threads[MOST_CORES];
    for (size_t i = 1; i < t->cores; i++)
        if (pthread_create(&threads[i], NULL, multiply, &t->own[i]) != 0)
            die("thread", NULL);
    step_compute(t);
    for (size_t i = 1; i < t->cores; i++)
        pthread_join(threads[i], NULL);
}

static void step_memory(trainer *t)
{
    size_t n = ((size_t)SLICE_MIB << 20) / sizeof(float), begin = t->at % (t->floats - n + 1);
    for (size_t i = begin; i < begin + n; i++)
        t->weights[i] = t->weights[i] * 0.999f + 0.001f;
    t->at += n;
}

/* ---- figures */

typedef struct series {
    double *seconds;
    size_t count;
} series;

static void add(series *s, double seconds)
{
    if (s->count < MOST_STEPS)
        s->seconds[s->count++] = seconds;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double at(series *s, double part)
{
    qsort(s->seconds, s->count, sizeof *s->seconds, by_size);
    return s->count ? s->seconds[(size_t)(part * (double)(s->count - 1))] : 0;
}

static ckpt_state *bind(float *weights, size_t count)
{
    static ckpt_arena_entry entries[MOST_TENSORS];
    static char names[MOST_TENSORS][24];
    static const int64_t shape[1] = {((int64_t)TENSOR_MIB << 20) / 4};
    ckpt_error err = CKPT_ERROR_INIT;
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], (uint64_t)i * TENSOR_MIB << 20, 1, shape};
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = weights;
    arena.nbytes = (uint64_t)count * TENSOR_MIB << 20;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    ckpt_state *state = ckpt_state_new();
    if (!state || ckpt_state_arena(state, &arena, entries, count, &err) < 0)
        die("state", &err);
    return state;
}

typedef struct figures {
    series stall, copy, flush, quiet, busy;
} figures;

static bool is_busy(ckpt_run *run)
{
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    ckpt_run_get_info(run, &info);
    return info.busy;
}

/* One round: a memcpy, as many quiet steps as there were busy ones, a save, and steps until it is on disk. */
static void round_of(ckpt_run *run, trainer *t, void (*train)(trainer *), int64_t *done, float *copy, figures *f,
                     bool count)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_info info = CKPT_RUN_INFO_INIT;
    size_t bytes = t->floats * sizeof(float), steps = 0;
    double start = now();
    memcpy(copy, t->weights, bytes);
    if (count)
        add(&f->copy, now() - start);
    if (ckpt_run_save(run, ++*done, &err) < 0)
        die("save", &err);
    while (is_busy(run)) {
        start = now();
        train(t);
        bool whole = is_busy(run); /* a step at whose end the writer was done is neither the one nor the other */
        if (count && whole)
            add(&f->busy, now() - start);
        steps++;
        if (!whole && ckpt_run_wait(run, &err) < 0)
            die("save", &err);
    }
    if (ckpt_run_wait(run, &err) < 0)
        die("save", &err);
    ckpt_run_get_info(run, &info);
    if (count) {
        add(&f->stall, info.stall_seconds);
        add(&f->flush, info.save_seconds);
    }
    for (size_t i = 0; i < steps; i++) {
        start = now();
        train(t);
        if (count)
            add(&f->quiet, now() - start);
    }
}

/* What one round added: for who wants ranges. */
static void print_round(const figures *f, size_t quiet, size_t busy)
{
    series q = {f->quiet.seconds + quiet, f->quiet.count - quiet}, b = {f->busy.seconds + busy, f->busy.count - busy};
    printf("#round %zu quiet %.3f %.3f busy %.3f %.3f\n", b.count, at(&q, 0.5) * 1e3, at(&q, 0.95) * 1e3,
           at(&b, 0.5) * 1e3, at(&b, 0.95) * 1e3);
}

static void measure(const char *name, void (*train)(trainer *), const char *dir, trainer *t, float *copy, long rounds,
                    size_t steps)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;
    ckpt_run *run = NULL;
    figures f;
    int64_t done = 0;
    series *all = &f.stall;
    options.retention.keep_last = 1;
    for (size_t i = 0; i < sizeof f / sizeof *all; i++)
        all[i] = (series){calloc(MOST_STEPS, sizeof(double)), 0};
    ckpt_state *state = bind(t->weights, t->floats / (((size_t)TENSOR_MIB << 20) / 4));
    if (ckpt_run_open(dir, state, &options, &run, &err) < 0 || ckpt_run_resume(run, NULL, &done, NULL, &err) < 0)
        die("open", &err);
    printf("%s\n", name);
    for (long i = 0; i < rounds + WARM || (f.busy.count < steps && i < MOST_ROUNDS); i++) {
        size_t quiet = f.quiet.count, busy = f.busy.count;
        round_of(run, t, train, &done, copy, &f, i >= WARM);
        if (i >= WARM)
            print_round(&f, quiet, busy);
    }
    if (ckpt_run_close(run, &err) < 0)
        die("close", &err);
    ckpt_state_free(state);
    double bytes = (double)(t->floats * sizeof(float));
    printf("  one memcpy of the state    median %8.2f ms (%.1f GB/s)\n", at(&f.copy, 0.5) * 1e3,
           bytes / at(&f.copy, 0.5) / 1e9);
    printf("  an asynchronous save holds the training up\n"
           "                             median %8.2f ms   %.2f x (worst %.2f ms)\n",
           at(&f.stall, 0.5) * 1e3, at(&f.stall, 0.5) / at(&f.copy, 0.5), at(&f.stall, 1) * 1e3);
    printf("  and is on disk after       median %8.2f ms (%.2f GB/s)\n", at(&f.flush, 0.5) * 1e3,
           bytes / at(&f.flush, 0.5) / 1e9);
    printf("  a step, nothing written    median %8.3f ms, p99 %8.3f ms (%zu steps)\n", at(&f.quiet, 0.5) * 1e3,
           at(&f.quiet, 0.99) * 1e3, f.quiet.count);
    printf("  a step during the flush    median %8.3f ms, p99 %8.3f ms (%zu steps)   %.2f x, p99 %.2f x\n",
           at(&f.busy, 0.5) * 1e3, at(&f.busy, 0.99) * 1e3, f.busy.count, at(&f.busy, 0.5) / at(&f.quiet, 0.5),
           at(&f.busy, 0.99) / at(&f.quiet, 0.99));
    printf("# copy %.3f stall %.3f flush %.3f quiet %.3f %.3f busy %.3f %.3f p95 %.3f %.3f steps %zu\n",
           at(&f.copy, 0.5) * 1e3, at(&f.stall, 0.5) * 1e3, at(&f.flush, 0.5) * 1e3, at(&f.quiet, 0.5) * 1e3,
           at(&f.quiet, 0.99) * 1e3, at(&f.busy, 0.5) * 1e3, at(&f.busy, 0.99) * 1e3, at(&f.quiet, 0.95) * 1e3,
           at(&f.busy, 0.95) * 1e3, f.busy.count);
    fflush(stdout);
    for (size_t i = 0; i < sizeof f / sizeof *all; i++)
        free(all[i].seconds);
}

/* What the hook costs in a step that saves nothing. */
static void measure_idle(const char *dir)
{
    enum { IDLE_STEPS = 2000000 };
    static float weight[4];
    static const int64_t shape[1] = {4};
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;
    ckpt_run *run = NULL;
    int64_t done = 0;
    ckpt_arena_entry entry = {"weight", 0, 1, shape};
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = weight;
    arena.nbytes = sizeof weight;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    ckpt_state *state = ckpt_state_new();
    options.every_steps = INT64_MAX;
    options.every_seconds = options.time_limit = 1e6;
    options.signals = true;
    if (!state || ckpt_state_arena(state, &arena, &entry, 1, &err) < 0 ||
        ckpt_run_open(dir, state, &options, &run, &err) < 0 || ckpt_run_resume(run, NULL, &done, NULL, &err) < 0)
        die("open", &err);
    double start = now();
    while (done < IDLE_STEPS)
        if (ckpt_run_step(run, ++done, &err) < 0)
            die("step", &err);
    printf("a step in which nothing is due: %.0f ns\n", (now() - start) / IDLE_STEPS * 1e9);
    if (ckpt_run_close(run, &err) < 0)
        die("close", &err);
    ckpt_state_free(state);
}

int main(int argc, char **argv)
{
    static trainer t;
    char dir[4096];
    bool enough = argc == 4 || argc == 5;
    long mib = enough ? strtol(argv[2], NULL, 10) : 0, rounds = enough ? strtol(argv[3], NULL, 10) : 0;
    size_t steps = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
    if (mib < 2 * SLICE_MIB || mib / TENSOR_MIB > MOST_TENSORS || rounds < 1) {
        fprintf(stderr, "usage: stall DIR MIB ROUNDS [STEPS]    (DIR/stall-* is made; MIB: at least %d)\n",
                2 * SLICE_MIB);
        return 2;
    }
    size_t bytes = (size_t)mib / TENSOR_MIB * TENSOR_MIB << 20;
    t.floats = bytes / sizeof(float);
    t.weights = huge(bytes);
    float *copy = huge(bytes);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    t.cores = cores < 1 ? 1 : cores > MOST_CORES ? MOST_CORES : (size_t)cores;
    if (!(t.own = calloc(t.cores, sizeof *t.own)))
        die("memory", NULL);
    for (size_t k = 0; k < t.cores; k++)
        for (size_t i = 0; i < SIDE * SIDE; i++)
            t.own[k].a[i] = t.own[k].b[i] = 1e-3f;
    printf("%ld MiB of float32 in tensors of %d MiB, %ld rounds\n", mib / TENSOR_MIB * TENSOR_MIB, TENSOR_MIB, rounds);
    snprintf(dir, sizeof dir, "%s/stall-compute", argv[1]);
    measure("a training step that computes in the cache", step_compute, dir, &t, copy, rounds, steps);
    snprintf(dir, sizeof dir, "%s/stall-cores", argv[1]);
    measure("a training step that computes on all cores", step_cores, dir, &t, copy, rounds, steps);
    snprintf(dir, sizeof dir, "%s/stall-memory", argv[1]);
    measure("a training step that streams 64 MiB through memory", step_memory, dir, &t, copy, rounds, steps);
    snprintf(dir, sizeof dir, "%s/stall-idle", argv[1]);
    measure_idle(dir);
    free(copy);
    free(t.own);
    free(t.weights);
    return 0;
}
