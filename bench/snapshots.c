/* snapshots.c - how long a snapshot holds the trainer up, beside copies of the same bytes by as many threads: memcpy tensor by
 * tensor, one memcpy of all, and streaming stores tensor by tensor. All are interleaved; medians of the rounds.
 *
 *     snapshots MIB ROUNDS
 *
 * "take" is all of it: what is bound, as an index; its values; the plan, which is made once; and the copy. "copy" is what remains of a
 * take where that of the same tensors with no more than a byte each is left out: what the threads do. */
#include "base/stream_copy.h"
#include "base/workers.h"
#include "save/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_ROUNDS = 101, WAYS = 4 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

__attribute__((noreturn)) static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "snapshots: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

static char *huge(size_t bytes)
{
    char *p = aligned_alloc(2 << 20, bytes);
    if (!p)
        die("memory", NULL);
    (void)!madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

/* ---- copies of all tensors, cut into as many parts as there are threads */

typedef struct job {
    char *to;
    const char *from;
    size_t bytes, tensor;
    unsigned threads;
    int way; /* 0: memcpy a tensor; 1: one memcpy; 2: streaming stores */
} job;

static ckpt_status copy_part(void *ctx, unsigned worker, size_t unit, ckpt_error *err)
{
    const job *j = ctx;
    size_t part = j->bytes / j->threads, end = (unit + 1) * part,
           tensor = j->way == 1 || j->tensor > part ? part : j->tensor;
    (void)worker;
    (void)err;
    for (size_t at = unit * part; at < end; at += tensor)
        if (j->way == 2)
            ckpt__copy_stream_part(j->to + at, j->from + at, tensor);
        else
            memcpy(j->to + at, j->from + at, tensor);
    ckpt__copy_stream_end();
    return CKPT_OK;
}

static double time_copy(job *j, int way)
{
    double start = now();
    j->way = way;
    ckpt__workers_run(j->threads, j->threads, copy_part, j, NULL);
    return now() - start;
}

/* ---- the snapshot */

static ckpt_state *bind(const char *data, size_t count, size_t size)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    const int64_t shape[1] = {(int64_t)size};
    for (size_t i = 0; state && i < count; i++) {
        char name[48];
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        snprintf(name, sizeof name, "layers.%zu.weight", i);
        d.name = name;
        d.dtype = CKPT_U8;
        d.ndim = 1;
        d.shape = shape;
        d.role = CKPT_ROLE_PARAM;
        d.data = (void *)(uintptr_t)(data + i * size);
        if (ckpt_state_tensor(state, &d, &err) < 0)
            die("bind", &err);
    }
    return state ? state : (die("state", NULL), NULL);
}

static double time_take(ckpt__snapshot *s, const ckpt_state *state, unsigned threads)
{
    ckpt_error err = CKPT_ERROR_INIT;
    double start = now();
    if (ckpt__snapshot_take(s, state, UINT64_MAX / 2, threads, "bench", &err) < 0)
        die("snapshot", &err);
    return now() - start;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, by_size);
    return values[n / 2];
}

static void measure(char *from, char *to, size_t bytes, size_t size, unsigned threads, size_t rounds)
{
    static const char *const names[] = {"memcpy a tensor", "one memcpy", "streaming", "snapshot"};
    static double seconds[WAYS][MOST_ROUNDS], ratios[MOST_ROUNDS], fixed[MOST_ROUNDS];
    job j = {.to = to, .from = from, .bytes = bytes, .tensor = size, .threads = threads};
    size_t count = bytes / size;
    ckpt__snapshot snapshot = {.host = NULL}, empty = {.host = NULL};
    ckpt_state *state = bind(from, count, size), *small = bind(from, count, 1);
    time_take(&snapshot, state, threads); /* the first makes the plan, and maps the memory */
    time_take(&empty, small, 1);
    for (size_t r = 0; r < rounds; r++) {
        double best = 1e9;
        for (int way = 0; way < WAYS - 1; way++) {
            seconds[way][r] = time_copy(&j, way);
            best = seconds[way][r] < best ? seconds[way][r] : best;
        }
        seconds[WAYS - 1][r] = time_take(&snapshot, state, threads);
        fixed[r] = time_take(&empty, small, 1);
        ratios[r] = seconds[WAYS - 1][r] / best;
    }
    printf("%9zu tensors of %8zu KiB, %u thread%s:", count, size >> 10, threads, threads > 1 ? "s" : "");
    double best = 1e9;
    for (int way = 0; way < WAYS; way++) {
        double m = median(seconds[way], rounds);
        best = way < WAYS - 1 && m < best ? m : best;
        printf("  %s %.1f ms", names[way], m * 1e3);
    }
    double take = median(seconds[WAYS - 1], rounds), index = median(fixed, rounds);
    printf("  take %.2f x, pair by pair %.2f x; copy %.2f x\n", take / best, median(ratios, rounds),
           (take - index) / best);
    fflush(stdout);
    ckpt__snapshot_free(&snapshot);
    ckpt__snapshot_free(&empty);
    ckpt_state_free(state);
    ckpt_state_free(small);
}

int main(int argc, char **argv)
{
    size_t mib = argc == 3 ? strtoul(argv[1], NULL, 10) : 0, rounds = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    if (mib < 1 || (mib & (mib - 1)) || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: snapshots MIB ROUNDS    (MIB: a power of two; up to %d rounds)\n", MOST_ROUNDS);
        return 2;
    }
    size_t bytes = mib << 20;
    char *from = huge(bytes), *to = huge(bytes);
    for (unsigned threads = 1; threads <= 2; threads++)
        for (size_t size = 1 << 10; size <= bytes; size *= 16)
            measure(from, to, bytes, size, threads, rounds);
    free(from);
    free(to);
    return 0;
}
