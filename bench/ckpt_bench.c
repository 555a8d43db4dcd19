/* ckpt_bench.c - one competitor of bench/run.py and bench/gpu.py: reads the name of a job from standard input, does it, and answers with
 * the seconds it took, line by line, until the input ends. Its tensors are those of the other competitors. A job "NAME by N" is done by N
 * threads, and "NAME by N of KIB" in blocks of KIB: what the machine can do at best with the same bytes (limits.h). */
#include <ckpt/ckpt.h>
#include <ckpt/run.h>
#include "gpu.h"
#include "limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_KIB = 8 << 10, TENSOR_KIB = 16 << 10, MAX_TENSORS = 1 << 21 };

typedef struct job {
    const char *path;
    char *memory;               /* of the host, or of the GPU */
    gpu *gpu;                   /* NULL: the tensors are in host memory */
    size_t size, count, tensor; /* bytes; tensors; bytes of one */
    ckpt_state *state;
    size_t threads;     /* of "by N"; 0: as many as the library takes by itself */
    size_t block;       /* of "of KIB", bytes */
    double seconds;     /* that count, where that is less than the whole job; below 0: all of it does */
    ckpt_run *run;      /* of the asynchronous saves; NULL: none was asked for yet */
    size_t run_threads; /* that it was opened with */
    int64_t step;
    char *copy; /* memory for all tensors, page-locked where they are on a GPU; NULL: not made yet */
} job;

static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "ckpt_bench: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void save(job *j, bool sync)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    options.no_sync = !sync;
    if (ckpt_save(j->state, j->path, &options, &err) < 0)
        die("save", &err);
}
static void save_synced(job *j)
{
    save(j, true);
}
static void save_cached(job *j)
{
    save(j, false);
}

static void restore(job *j, bool verify, uint64_t avoid)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.no_verify = !verify;
    options.threads = j->threads;
    options.avoid = avoid;
    if (ckpt_restore(j->state, j->path, &options, NULL, &err) < 0)
        die("restore", &err);
}
static void restore_checked(job *j)
{
    restore(j, true, 0);
}
static void restore_through_cache(job *j)
{
    restore(j, true, CKPT_AVOID_DIRECT);
}
static void restore_unchecked(job *j)
{
    restore(j, false, 0);
}

static void verify(job *j)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_verify_result result = CKPT_VERIFY_RESULT_INIT;
    if (ckpt_verify(j->path, NULL, &result, NULL, &err) != CKPT_OK)
        die("verify", &err);
}

/* ---- what the machine can do at best */

static limit_span span_of(const job *j)
{
    if (j->gpu)
        die("a limit is of host memory", NULL);
    return (limit_span){j->memory, j->size, j->threads ? j->threads : 1, j->block};
}

static void read_file(job *j, bool direct)
{
    limit_span span = span_of(j);
    j->seconds = limit_read(j->path, &span, direct);
}
static void read_cached(job *j)
{
    read_file(j, false);
}
static void read_direct(job *j)
{
    read_file(j, true);
}

static void write_file(job *j, bool direct)
{
    char path[4096];
    limit_span span = span_of(j);
    snprintf(path, sizeof path, "%s.raw", j->path);
    j->seconds = limit_write(path, &span, direct);
    unlink(path);
}
static void write_cached(job *j)
{
    write_file(j, false);
}
static void write_direct(job *j)
{
    write_file(j, true);
}

static void copy(job *j, enum limit_copy_way way)
{
    limit_span span = span_of(j);
    if (!j->copy)
        j->copy = limit_memory(j->size);
    j->seconds = limit_copy(j->copy, &span, j->tensor, way);
}
static void copy_each(job *j)
{
    copy(j, LIMIT_COPY_EACH);
}
static void copy_whole(job *j)
{
    copy(j, LIMIT_COPY_WHOLE);
}
static void copy_stream(job *j)
{
    copy(j, LIMIT_COPY_STREAM);
}

/* ---- what holds the training up */

/* All tensors into memory that is page-locked: what no copy of them can be faster than. */
static void copy_out(job *j)
{
    if (!j->gpu)
        die("the tensors are in host memory", NULL);
    if (!j->copy) {
        j->copy = gpu_host_alloc(j->gpu, j->size);
        memset(j->copy, 0, j->size);
    }
    double start = now();
    gpu_download(j->gpu, j->copy, j->memory, j->size);
    gpu_wait(j->gpu);
    j->seconds = now() - start;
}

/* The seconds for which an asynchronous save holds its caller up. It is on disk before the next job. */
static void stall(job *j)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (j->run && j->run_threads != j->threads) {
        if (ckpt_run_close(j->run, &err) < 0)
            die("run", &err);
        j->run = NULL;
    }
    if (!j->run) {
        char dir[4096];
        j->run_threads = j->threads;
        ckpt_run_options options = CKPT_RUN_OPTIONS_INIT;
        options.retention.keep_last = 1;
        options.no_lock = true;
        options.snapshot_threads = j->threads;
        options.snapshot_limit = UINT64_MAX;
        snprintf(dir, sizeof dir, "%s.run", j->path);
        if (ckpt_run_open(dir, j->state, &options, &j->run, &err) < 0 ||
            ckpt_run_resume(j->run, NULL, &j->step, NULL, &err) < 0)
            die("run", &err);
    }
    double start = now();
    if (ckpt_run_save(j->run, ++j->step, &err) < 0)
        die("save", &err);
    j->seconds = now() - start;
    if (ckpt_run_wait(j->run, &err) < 0)
        die("save", &err);
}

static const struct {
    const char *name;
    void (*work)(job *);
} jobs[] = {
    {"read", read_cached},
    {"read direct", read_direct},
    {"write", write_cached},
    {"write direct", write_direct},
    {"copy each", copy_each},
    {"copy whole", copy_whole},
    {"copy stream", copy_stream},
    {"save", save_cached},
    {"save+sync", save_synced},
    {"restore", restore_checked},
    {"restore unchecked", restore_unchecked},
    {"restore through the cache", restore_through_cache},
    {"verify", verify},
    {"copy out", copy_out},
    {"stall", stall},
};

static int serve(job *j)
{
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        size_t i = 0, n = sizeof jobs / sizeof *jobs;
        line[strcspn(line, "\n")] = '\0';
        char *by = strstr(line, " by "), *of = by ? strstr(by, " of ") : NULL;
        j->threads = by ? strtoul(by + 4, NULL, 10) : 0;
        j->block = (of ? strtoul(of + 4, NULL, 10) : BLOCK_KIB) << 10;
        if (by)
            *by = '\0';
        while (i < n && strcmp(jobs[i].name, line) != 0)
            i++;
        if (i == n || j->block < 4096)
            die(line, NULL);
        j->seconds = -1;
        double start = now();
        jobs[i].work(j);
        printf("%.6f\n", j->seconds < 0 ? now() - start : j->seconds);
        fflush(stdout);
    }
    return 0;
}

static void bind(job *j)
{
    const int64_t shape[1] = {(int64_t)(j->tensor / 4)};
    ckpt_arena_entry *entries = calloc(j->count, sizeof *entries);
    char(*names)[40] = calloc(j->count, sizeof *names);
    ckpt_error err = CKPT_ERROR_INIT;
    if (!entries || !names)
        die("memory", NULL);
    for (size_t i = 0; i < j->count; i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.weight", i);
        entries[i] = (ckpt_arena_entry){names[i], (uint64_t)i * j->tensor, 1, shape};
    }
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    arena.data = j->memory;
    arena.nbytes = j->size;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    arena.device = j->gpu ? ckpt_cuda(gpu_ordinal(j->gpu)) : ckpt_cpu();
    j->state = ckpt_state_new();
    if (!j->state || ckpt_state_arena(j->state, &arena, entries, j->count, &err) < 0)
        die("state", &err);
    free(entries);
    free(names);
}

/* Bytes that no compression shortens, in host memory or on the GPU. */
static void fill(job *j)
{
    enum { PIECE = 64 << 20 };
    char *host = j->gpu ? gpu_host_alloc(j->gpu, PIECE) : j->memory;
    uint64_t x = 88172645463325252u;
    for (size_t at = 0; at < j->size;) {
        size_t n = j->gpu && j->size - at > PIECE ? PIECE : j->size - at;
        for (size_t i = 0; i < n / 8; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            ((uint64_t *)(void *)host)[i] = x;
        }
        if (j->gpu) {
            gpu_upload(j->gpu, j->memory + at, host, n);
            gpu_wait(j->gpu);
        }
        at += n;
    }
    if (j->gpu)
        gpu_host_free(j->gpu, host);
}

int main(int argc, char **argv)
{
    job j = {0};
    bool cuda = argc == 5 && strcmp(argv[4], "cuda") == 0;
    long mib = argc >= 3 ? strtol(argv[2], NULL, 10) : 0, kib = argc >= 4 ? strtol(argv[3], NULL, 10) : TENSOR_KIB;
    if (argc > 4 + cuda || mib < 1 || mib > 1 << 20 || kib < 1 || kib > mib << 10 || (mib << 10) / kib > MAX_TENSORS) {
        fprintf(
            stderr,
            "usage: ckpt_bench FILE MIB [KIB [cuda]]\n"
            "FILE is written; MIB in all, a tensor has KIB: %d; at most %d tensors; cuda: they are on the first GPU\n",
            TENSOR_KIB, MAX_TENSORS);
        return 2;
    }
    j.path = argv[1];
    j.tensor = (size_t)kib << 10;
    j.count = ((size_t)mib << 20) / j.tensor;
    j.size = j.count * j.tensor;
    j.gpu = cuda ? gpu_open(0) : NULL;
    if (!(j.memory = cuda ? gpu_alloc(j.gpu, j.size) : aligned_alloc(4096, j.size)))
        die("memory", NULL);
    fill(&j);
    bind(&j);
    printf("%s\n", ckpt_build_info());
    fflush(stdout);
    int status = serve(&j);
    ckpt_error err = CKPT_ERROR_INIT;
    if (j.run && ckpt_run_close(j.run, &err) < 0)
        die("run", &err);
    ckpt_state_free(j.state);
    if (j.copy && cuda)
        gpu_host_free(j.gpu, j.copy);
    else
        free(j.copy);
    if (cuda)
        gpu_free(j.gpu, j.memory);
    else
        free(j.memory);
    gpu_close(j.gpu);
    return status;
}
