/* tests/unit/restore_checks.h - save and restore on devices, as every driver must let them work: the unit tests run this on
 * the stand-in, tests/gpu on the GPUs of a machine. Failures end the process (REQUIRE). */
#ifndef RESTORE_CHECKS_H
#define RESTORE_CHECKS_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cuda.h>
#include <ckpt/ckpt.h>
#include "engine/put.h"
#include "require.h"

enum { COLUMNS = 3001, SMALL = 35 };
static int64_t rows = 700; /* 8.4 MB: more than one block */
#define BIG ((size_t)(rows * COLUMNS))

static char path[100]; /* of the checkpoint */

/* A function of the driver itself. */
#define CU(name) ((__typeof__(name) *)(uintptr_t)driver_function(#name))
static void *driver_function(const char *name)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *found = handle ? dlsym(handle, name) : NULL;
    REQUIRE(found);
    return found;
}

/* ---- a state on any device: -1 is the cpu */

static int64_t big_shape[] = {700, COLUMNS};
static const int64_t small_shape[] = {5, 7}, turned[] = {1, 5};

typedef struct live {
    int device;
    ckpt_state *state;
    float *big, *big_avg, *small, *steps; /* device or host */
    int64_t step;
} live;

static ckpt_device of(int device)
{
    return device < 0 ? ckpt_cpu() : ckpt_cuda(device);
}

static void *alloc(int device, size_t n)
{
    void *p = NULL;
    REQUIRE_OK(ckpt__device_ops_of(of(device).type)->alloc(device < 0 ? 0 : device, n, &p, &err));
    return p;
}

static void release(int device, void *p)
{
    REQUIRE_OK(ckpt__device_ops_of(of(device).type)->release(device < 0 ? 0 : device, p, &err));
}

static void copy(int to, void *dst, int from, const void *src, size_t n)
{
    ckpt__lanes lanes = {.count = 0};
    REQUIRE_OK(ckpt__move_bytes(&lanes, of(to), dst, of(from), src, n, &err));
    REQUIRE_OK(ckpt__lanes_close(&lanes, &err));
}

static void put(int device, float *dst, size_t n, float seed)
{
    float *host = malloc(n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        host[i] = seed + (float)i * 0.5f;
    copy(device, dst, -1, host, n * sizeof *host);
    free(host);
}

static bool holds(int device, const float *src, size_t n, float seed)
{
    float *host = malloc(n * sizeof *host);
    bool same = true;
    copy(-1, host, device, src, n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        same &= host[i] == seed + (float)i * 0.5f;
    free(host);
    return same;
}

static void bind(ckpt_state *s, const char *name, const char *param, ckpt_role role, uint32_t ndim,
                 const int64_t *shape, const int64_t *strides, void *data, ckpt_device device)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = ndim;
    d.shape = shape;
    d.strides = strides;
    d.data = data;
    d.device = device;
    REQUIRE_OK(ckpt_state_tensor(s, &d, &err));
}

/* big, its moment, a transposed view, and two steps; `steps` may lie elsewhere. */
static void open_live(live *l, int device, int steps_device, float seed)
{
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    *l = (live){.device = device, .state = ckpt_state_new(), .step = (int64_t)seed};
    l->big = alloc(device, BIG * 4);
    l->big_avg = alloc(device, BIG * 4);
    l->small = alloc(device, SMALL * 4);
    l->steps = alloc(steps_device, 8);
    put(device, l->big, BIG, seed);
    put(device, l->big_avg, BIG, seed + 1);
    put(device, l->small, SMALL, seed + 2);
    put(steps_device, l->steps, 2, seed + 3);
    bind(l->state, "big", NULL, CKPT_ROLE_PARAM, 2, big_shape, NULL, l->big, none);
    bind(l->state, "small", NULL, CKPT_ROLE_PARAM, 2, small_shape, turned, l->small, none);
    bind(l->state, NULL, "big", CKPT_ROLE_EXP_AVG, 2, big_shape, NULL, l->big_avg, none);
    bind(l->state, NULL, "big", CKPT_ROLE_STEP, 0, NULL, NULL, l->steps, none);
    bind(l->state, NULL, "small", CKPT_ROLE_STEP, 0, NULL, NULL, l->steps + 1, none);
    REQUIRE_OK(ckpt_state_i64(l->state, "step", &l->step, &err));
}

static bool live_holds(const live *l, int steps_device, float seed)
{
    return holds(l->device, l->big, BIG, seed) && holds(l->device, l->big_avg, BIG, seed + 1) &&
           holds(l->device, l->small, SMALL, seed + 2) && holds(steps_device, l->steps, 2, seed + 3) &&
           l->step == (int64_t)seed;
}

static void close_live(live *l, int steps_device)
{
    ckpt_state_free(l->state);
    release(l->device, l->big);
    release(l->device, l->big_avg);
    release(l->device, l->small);
    release(steps_device, l->steps);
}

/* The same tensors, all ours: made where the map says. */
static ckpt_state *ours(void)
{
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    ckpt_state *s = ckpt_state_new();
    bind(s, "big", NULL, CKPT_ROLE_PARAM, 2, big_shape, NULL, NULL, none);
    bind(s, "small", NULL, CKPT_ROLE_PARAM, 2, small_shape, NULL, NULL, none);
    bind(s, NULL, "big", CKPT_ROLE_EXP_AVG, 2, big_shape, NULL, NULL, none);
    bind(s, NULL, "big", CKPT_ROLE_STEP, 0, NULL, NULL, NULL, none);
    bind(s, NULL, "small", CKPT_ROLE_STEP, 0, NULL, NULL, NULL, none);
    return s;
}

static bool is_on(const ckpt_state *s, const char *name, int device)
{
    ckpt_memory m;
    REQUIRE_OK(ckpt_device_query(ckpt_state_data(s, name), 4, &m, &err));
    return ckpt_device_equal(ckpt_state_device(s, name), of(device)) && ckpt_device_equal(m.device, of(device));
}

static void save_from(int device, float seed)
{
    live l;
    open_live(&l, device, device, seed);
    REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
    close_live(&l, device);
}

static ckpt_restore_options with_map(const char *map)
{
    ckpt_restore_options o = CKPT_RESTORE_OPTIONS_INIT;
    o.map_location = map;
    o.allow_unexpected = true; /* the trainer's own step */
    return o;
}

/* ---- cases: each runs in a process of its own, since CUDA does not survive a fork */

static void round_trips(const void *arg)
{
    const int *devices = arg; /* of the round trip, ended by -2 */
    save_from(devices[0], 3);
    for (const int *d = devices + 1; *d != -2; d++) {
        live l;
        ckpt_report *r = ckpt_report_new();
        open_live(&l, *d, *d, 50);
        REQUIRE_OK(ckpt_restore(l.state, path, NULL, r, &err));
        REQUIRE(live_holds(&l, *d, 3));
        REQUIRE(ckpt_report_count_code(r, "policy-placed") == 0); /* they are the caller's, and stay */
        REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
        ckpt_report_free(r);
        close_live(&l, *d);
    }
}

static void maps(const void *arg)
{
    static const struct {
        const char *map;
        int big, small;
    } cases[] = {
        {"cuda:0", 0, 0},
        {"cpu", -1, -1},
        {"cuda:1=cuda:0", 0, 0},
        {"cuda:*=cuda:{(index + 1) % 2}", 0, 0},
        {"cuda:0=cuda:1,cuda:1=cuda:0", 0, 0},
        {"cuda:0=cpu", 1, 1},
        {NULL, 1, 1},
        {"cuda:1=cuda:{rank}", 0, 0},
    };
    (void)arg;
    save_from(1, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_state *s = ours();
        ckpt_restore_options o = with_map(cases[i].map);
        ckpt_report *r = ckpt_report_new();
        o.optimizer = CKPT_OPTIMIZER_FUSED;
        REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
        REQUIRE(is_on(s, "big", cases[i].big) && is_on(s, "optimizer.big.exp_avg", cases[i].big));
        REQUIRE(is_on(s, "small", cases[i].small) && is_on(s, "optimizer.small.step", cases[i].small));
        REQUIRE(holds(cases[i].big, ckpt_state_data(s, "big"), BIG, 7));
        REQUIRE(holds(cases[i].big, ckpt_state_data(s, "optimizer.big.exp_avg"), BIG, 8));
        REQUIRE((ckpt_report_find(r, "moved", "big") != NULL) == (cases[i].big != 1));
        REQUIRE(ckpt_guard(s, CKPT_OPTIMIZER_FUSED, NULL, r, &err) == CKPT_OK);
        ckpt_report_free(r);
        ckpt_state_free(s);
    }
}

static void policy(const void *arg)
{
    ckpt_restore_options o = with_map("cuda:0");
    live mixed;
    (void)arg;
    /* The classic: everything on the device, the counters left behind on the cpu. */
    open_live(&mixed, 0, -1, 4);
    ckpt_report *r = ckpt_report_new();
    REQUIRE(ckpt_guard(mixed.state, CKPT_OPTIMIZER_FUSED, NULL, r, &err) == CKPT_ANSWER_NO);
    REQUIRE(strstr(err.message,
                   "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"));
    REQUIRE(ckpt_report_find(r, "step-on-cpu", "optimizer.big.step"));
    REQUIRE(ckpt_guard(mixed.state, CKPT_OPTIMIZER_PLAIN, NULL, r, &err) == CKPT_OK);
    REQUIRE_OK(ckpt_save(mixed.state, path, NULL, &err));
    close_live(&mixed, -1);
    /* As a fused optimizer needs it, step comes to its parameter; as a plain one needs it, it stays behind. */
    for (int fused = 0; fused < 2; fused++) {
        ckpt_state *s = ours();
        o.optimizer = fused ? CKPT_OPTIMIZER_FUSED : CKPT_OPTIMIZER_PLAIN;
        REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
        REQUIRE(is_on(s, "optimizer.big.step", fused ? 0 : -1) && is_on(s, "optimizer.big.exp_avg", 0));
        REQUIRE(ckpt_guard(s, o.optimizer, NULL, r, &err) == CKPT_OK);
        ckpt_state_free(s);
    }
    /* A bound counter on the cpu is a mismatch before the first byte, when the program says that it is fused. */
    live bad;
    open_live(&bad, 0, -1, 9);
    o.map_location = NULL;
    o.optimizer = CKPT_OPTIMIZER_FUSED;
    REQUIRE(ckpt_restore(bad.state, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "step-on-cpu", "optimizer.big.step"));
    REQUIRE(live_holds(&bad, -1, 9) && !ckpt_state_poisoned(bad.state));
    o = with_map("cuda:99");
    ckpt_state *s = ours();
    REQUIRE(ckpt_restore(s, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "no-such-device", "big") && strstr(err.message, "cuda:99"));
    ckpt_state_free(s);
    close_live(&bad, -1);
    ckpt_report_free(r);
}

/* A buffer on another device than the map's is a mismatch before the first byte. */
static void bound_elsewhere(const void *arg)
{
    ckpt_restore_options o = with_map("cuda:1");
    ckpt_report *r = ckpt_report_new();
    live bad;
    (void)arg;
    save_from(0, 4);
    open_live(&bad, 0, 0, 9);
    REQUIRE(ckpt_restore(bad.state, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "device-mismatch", "big"));
    REQUIRE(live_holds(&bad, 0, 9) && !ckpt_state_poisoned(bad.state));
    close_live(&bad, 0);
    ckpt_report_free(r);
}

static void ranks(const void *arg)
{
    (void)arg;
    save_from(0, 2);
    /* Every rank loads onto cuda:0: what rank 1 must be told. */
    ckpt_state *s = ours();
    ckpt_restore_options o = with_map("cuda:0");
    ckpt_report *r = ckpt_report_new();
    ckpt_device wanted[4] = {ckpt_cuda(0), ckpt_cuda(1), ckpt_cuda(2), ckpt_cuda(3)};
    ckpt_guard_options g = {
        .check_rank = true, .own = ckpt_cuda(1), .ranks = {1, 1, 4}, .wanted = wanted, .wanted_count = 4};
    REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
    REQUIRE(ckpt_guard(s, CKPT_OPTIMIZER_PLAIN, &g, r, &err) == CKPT_ANSWER_NO);
    REQUIRE(ckpt_report_find(r, "rank-device", "big"));
    REQUIRE(ckpt_report_count_code(r, "idle-device") == 3);
    REQUIRE(ckpt_report_device_count(r) == 2);
    ckpt_state_free(s);
    /* Four replicas, one read. */
    ckpt_state *many[4];
    ckpt_restore_options each[4];
    const ckpt_restore_options *options[4];
    ckpt_report *reports[4];
    for (int i = 0; i < 4; i++) {
        many[i] = ours();
        each[i] = with_map("cuda:*=cuda:{rank % 4}");
        each[i].ranks = (ckpt_ranks){i, i, 4};
        each[i].optimizer = CKPT_OPTIMIZER_FUSED;
        options[i] = &each[i];
        reports[i] = ckpt_report_new();
    }
    REQUIRE_OK(ckpt_restore_many(many, 4, path, options, reports, &err));
    for (int i = 0; i < 4; i++) {
        g.own = ckpt_cuda(i);
        g.wanted_count = 0;
        REQUIRE(is_on(many[i], "big", i) && holds(i, ckpt_state_data(many[i], "big"), BIG, 2));
        REQUIRE(ckpt_guard(many[i], CKPT_OPTIMIZER_FUSED, &g, reports[i], &err) == CKPT_OK);
        ckpt_report_free(reports[i]);
        ckpt_state_free(many[i]);
    }
    ckpt_report_free(r);
}

static void new_head(const void *arg)
{
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    const int64_t shape[] = {SMALL};
    (void)arg;
    save_from(0, 6);
    ckpt_state *s = ours();
    bind(s, "head", NULL, CKPT_ROLE_PARAM, 1, shape, NULL, NULL, none);
    REQUIRE_OK(ckpt_state_allocate(s, &err));
    put(-1, ckpt_state_data(s, "head"), SMALL, 99);
    ckpt_restore_options o = with_map("cuda:*=cuda:1");
    o.allow_missing = true;
    REQUIRE_OK(ckpt_restore(s, path, &o, NULL, &err));
    REQUIRE(is_on(s, "big", 1) && is_on(s, "head", 1));
    REQUIRE(holds(1, ckpt_state_data(s, "head"), SMALL, 99));
    ckpt_state_free(s);
}

/* ---- work that is queued on the trainer's stream: here copies, many of them, so that they are still under way */

static void queue_copies(float *dst, const float *src, int times, CUstream stream)
{
    for (int i = 0; i < times; i++)
        REQUIRE(CU(cuMemcpyDtoDAsync_v2)((CUdeviceptr)(uintptr_t)dst, (CUdeviceptr)(uintptr_t)src, BIG * 4, stream) ==
                CUDA_SUCCESS);
}

static void queued_copies(const void *arg)
{
    bool own_stream = *(const int *)arg;
    CUcontext context, now;
    CUstream stream = NULL;
    live l;
    open_live(&l, 0, 0, 20);
    float *other = alloc(0, BIG * 4);
    put(0, other, BIG, 70);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    if (own_stream) {
        REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        REQUIRE_OK(ckpt_state_stream(l.state, ckpt_cuda(0), stream, &err));
    }
    queue_copies(l.big, other, 200, stream); /* before the save: the file has their result */
    REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
    put(0, other, BIG, 90);
    queue_copies(l.big, other, 200, stream); /* before the restore: they do not come after it */
    REQUIRE_OK(ckpt_restore(l.state, path, NULL, NULL, &err));
    queue_copies(other, l.big, 200, stream); /* after it: they see what was restored */
    REQUIRE(CU(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == context);
    REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
    REQUIRE(holds(0, l.big, BIG, 70) && holds(0, other, BIG, 70));
    if (own_stream)
        REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
    release(0, other);
    close_live(&l, 0);
    REQUIRE(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
}

/* ---- a run: asynchronous saves from a device, and a resume elsewhere */

static void remove_run(const char *run)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", run);
    REQUIRE(system(command) == 0);
}

/* The checkpoint of a step, in host memory. */
static void require_saved(const char *run, int64_t step, float big, float moment)
{
    char file[200];
    live l;
    open_live(&l, -1, -1, 0);
    snprintf(file, sizeof file, "%s/step-%08d", run, (int)step);
    REQUIRE_OK(ckpt_restore(l.state, file, NULL, NULL, &err));
    REQUIRE(holds(-1, l.big, BIG, big) && holds(-1, l.big_avg, BIG, moment) && l.step == step);
    close_live(&l, -1);
}

/* What is queued before a step is in its checkpoint, what is queued right after it is not, although the writer has not
 * begun: from device 0 to device arg[1], on a stream of the trainer's where arg[0]. */
static void run_saves(const void *arg)
{
    bool own_stream = ((const int *)arg)[0];
    int target = ((const int *)arg)[1];
    char folder_of_run[160], map[16];
    CUcontext context, now;
    CUstream stream = NULL;
    ckpt_run *run;
    ckpt_run_options o = CKPT_RUN_OPTIONS_INIT;
    int64_t done = 0;
    live l;
    o.every_steps = 1;
    o.retention.keep_last = 2;
    snprintf(folder_of_run, sizeof folder_of_run, "%s.run", path);
    open_live(&l, 0, 0, 20);
    float *other = alloc(0, BIG * 4), *later = alloc(0, BIG * 4);
    put(0, later, BIG, 500);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    if (own_stream) {
        REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        REQUIRE_OK(ckpt_state_stream(l.state, ckpt_cuda(0), stream, &err));
    }
    REQUIRE_OK(ckpt_run_open(folder_of_run, l.state, &o, &run, &err));
    REQUIRE(ckpt_run_resume(run, NULL, &done, NULL, &err) == CKPT_NOTHING_TO_RESUME);
    for (l.step = 21; l.step <= 24; l.step++) {
        put(0, other, BIG, 70 + (float)l.step);
        queue_copies(l.big, other, 20, stream);
        REQUIRE_OK(ckpt_run_step(run, l.step, &err));
        queue_copies(l.big, later, 20, stream);
        REQUIRE(CU(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == context);
    }
    REQUIRE_OK(ckpt_run_close(run, &err));
    REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
    REQUIRE(holds(0, l.big, BIG, 500));
    require_saved(folder_of_run, 23, 70 + 23, 21);
    require_saved(folder_of_run, 24, 70 + 24, 21);
    if (own_stream)
        REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
    release(0, other);
    release(0, later);
    close_live(&l, 0);
    REQUIRE(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);

    ckpt_state *s = ours();
    int64_t step = 0;
    REQUIRE_OK(ckpt_state_i64(s, "step", &step, &err));
    snprintf(map, sizeof map, target < 0 ? "cpu" : "cuda:%d", target);
    REQUIRE_OK(ckpt_run_open(folder_of_run, s, NULL, &run, &err));
    REQUIRE_OK(ckpt_run_resume(run, map, &done, NULL, &err));
    REQUIRE(done == 24 && step == 24 && is_on(s, "big", target) &&
            holds(target, ckpt_state_data(s, "big"), BIG, 70 + 24));
    REQUIRE_OK(ckpt_run_close(run, &err));
    ckpt_state_free(s);
    remove_run(folder_of_run);
}
#endif
