/* Save and restore with devices, on the stand-in: mappings, guard, streams, faults. Each case runs in a process of its
 * own, with as many devices as it asks for; the stand-in ends it when a rule of CUDA is broken or something leaks. */
#include "runner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/stat.h>
#include <cuda.h>
#include <ckpt/ckpt.h>
#include "child.h"
#include "core/execute.h"
#include "../fakecuda/fakecuda.h"

enum { COLUMNS = 3001, SMALL = 35 };
static int64_t rows = 700;        /* 8.4 MB: more than one block */
#define BIG ((size_t)(rows * COLUMNS))

static char folder[64];
static char path[100];

static void *lib(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle && dlsym(handle, "fakecuda_marker"));
    return handle;
}
#define CU(name) FAKECUDA_SYMBOL(lib(), name)

/* ---- a state on any device: -1 is the cpu */

static int64_t big_shape[] = { 700, COLUMNS };
static const int64_t small_shape[] = { 5, 7 }, turned[] = { 1, 5 };

typedef struct live {
    int device;
    ckpt_state *state;
    float *big, *big_avg, *small, *steps;     /* device or host */
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
    ckpt__lanes lanes = { .count = 0 };
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

static void bind(ckpt_state *s, const char *name, const char *param, ckpt_role role, uint32_t ndim, const int64_t *shape,
                 const int64_t *strides, void *data, ckpt_device device)
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
    const ckpt_device none = { CKPT_DEVICE_NONE, -1 };
    *l = (live){ .device = device, .state = ckpt_state_new(), .step = (int64_t)seed };
    l->big = alloc(device, BIG * 4);
    l->big_avg = alloc(device, BIG * 4);
    l->small = alloc(device, SMALL * 4);
    l->steps = alloc(steps_device, 8);
    put(device, l->big, BIG, seed);
    put(device, l->big_avg, BIG, seed + 1);
    put(device, l->small, SMALL, seed + 2);
    put(steps_device, l->steps, 2, seed + 3);
    bind(l->state, "big", NULL, CKPT_PARAM, 2, big_shape, NULL, l->big, none);
    bind(l->state, "small", NULL, CKPT_PARAM, 2, small_shape, turned, l->small, none);
    bind(l->state, NULL, "big", CKPT_EXP_AVG, 2, big_shape, NULL, l->big_avg, none);
    bind(l->state, NULL, "big", CKPT_STEP, 0, NULL, NULL, l->steps, none);
    bind(l->state, NULL, "small", CKPT_STEP, 0, NULL, NULL, l->steps + 1, none);
    REQUIRE_OK(ckpt_state_i64(l->state, "step", &l->step, &err));
}

static bool live_holds(const live *l, int steps_device, float seed)
{
    return holds(l->device, l->big, BIG, seed) && holds(l->device, l->big_avg, BIG, seed + 1) &&
           holds(l->device, l->small, SMALL, seed + 2) && holds(steps_device, l->steps, 2, seed + 3) && l->step == (int64_t)seed;
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
    const ckpt_device none = { CKPT_DEVICE_NONE, -1 };
    ckpt_state *s = ckpt_state_new();
    bind(s, "big", NULL, CKPT_PARAM, 2, big_shape, NULL, NULL, none);
    bind(s, "small", NULL, CKPT_PARAM, 2, small_shape, NULL, NULL, none);
    bind(s, NULL, "big", CKPT_EXP_AVG, 2, big_shape, NULL, NULL, none);
    bind(s, NULL, "big", CKPT_STEP, 0, NULL, NULL, NULL, none);
    bind(s, NULL, "small", CKPT_STEP, 0, NULL, NULL, NULL, none);
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
    o.allow_unexpected = true;    /* the trainer's own step */
    return o;
}

/* ---- cases: functions that run in a child */

static void round_trips(const void *arg)
{
    const int *devices = arg;     /* of the round trip, ended by -2 */
    save_from(devices[0], 3);
    for (const int *d = devices + 1; *d != -2; d++) {
        live l;
        open_live(&l, *d, *d, 50);
        REQUIRE_OK(ckpt_restore(l.state, path, NULL, NULL, &err));
        REQUIRE(live_holds(&l, *d, 3));
        REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
        close_live(&l, *d);
    }
}

static void maps(const void *arg)
{
    static const struct { const char *map; int big, small; } cases[] = {
        { "cuda:0", 0, 0 }, { "cpu", -1, -1 }, { "cuda:1=cuda:0", 0, 0 }, { "cuda:*=cuda:{(index + 1) % 2}", 0, 0 },
        { "cuda:0=cuda:1,cuda:1=cuda:0", 0, 0 }, { "cuda:0=cpu", 1, 1 }, { NULL, 1, 1 }, { "cuda:1=cuda:{rank}", 0, 0 },
    };
    (void)arg;
    save_from(1, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_state *s = ours();
        ckpt_restore_options o = with_map(cases[i].map);
        ckpt_report *r = ckpt_report_new();
        o.optimizer = CKPT_FUSED;
        REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
        REQUIRE(is_on(s, "big", cases[i].big) && is_on(s, "optimizer.big.exp_avg", cases[i].big));
        REQUIRE(is_on(s, "small", cases[i].small) && is_on(s, "optimizer.small.step", cases[i].small));
        REQUIRE(holds(cases[i].big, ckpt_state_data(s, "big"), BIG, 7));
        REQUIRE(holds(cases[i].big, ckpt_state_data(s, "optimizer.big.exp_avg"), BIG, 8));
        REQUIRE((ckpt_report_find(r, "moved", "big") != NULL) == (cases[i].big != 1));
        REQUIRE(ckpt_guard(s, CKPT_FUSED, NULL, r, &err) == CKPT_OK);
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
    REQUIRE(ckpt_guard(mixed.state, CKPT_FUSED, NULL, r, &err) == CKPT_NO);
    REQUIRE(strstr(err.message, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"));
    REQUIRE(ckpt_report_find(r, "step-on-cpu", "optimizer.big.step"));
    REQUIRE(ckpt_guard(mixed.state, CKPT_PLAIN, NULL, r, &err) == CKPT_OK);
    REQUIRE_OK(ckpt_save(mixed.state, path, NULL, &err));
    close_live(&mixed, -1);
    /* As a fused optimizer needs it, step comes to its parameter; as a plain one needs it, it stays behind. */
    for (int fused = 0; fused < 2; fused++) {
        ckpt_state *s = ours();
        o.optimizer = fused ? CKPT_FUSED : CKPT_PLAIN;
        REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
        REQUIRE(is_on(s, "optimizer.big.step", fused ? 0 : -1) && is_on(s, "optimizer.big.exp_avg", 0));
        REQUIRE(ckpt_guard(s, o.optimizer, NULL, r, &err) == CKPT_OK);
        ckpt_state_free(s);
    }
    /* A bound counter on the cpu is a mismatch before the first byte, when the program says that it is fused. */
    live bad;
    open_live(&bad, 0, -1, 9);
    o.map_location = NULL;
    o.optimizer = CKPT_FUSED;
    REQUIRE(ckpt_restore(bad.state, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "step-on-cpu", "optimizer.big.step"));
    REQUIRE(live_holds(&bad, -1, 9) && !ckpt_state_poisoned(bad.state));
    /* And so is a buffer on another device than the map's. */
    o = with_map("cuda:1");
    REQUIRE(ckpt_restore(bad.state, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "device-mismatch", "big"));
    o = with_map("cuda:7");
    ckpt_state *s = ours();
    REQUIRE(ckpt_restore(s, path, &o, r, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_report_find(r, "no-such-device", "big") && strstr(err.message, "2"));
    ckpt_state_free(s);
    close_live(&bad, -1);
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
    ckpt_device wanted[4] = { ckpt_cuda(0), ckpt_cuda(1), ckpt_cuda(2), ckpt_cuda(3) };
    ckpt_guard_options g = { .check_rank = true, .own = ckpt_cuda(1), .ranks = { 1, 1, 4 }, .wanted = wanted, .wanted_count = 4 };
    REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
    REQUIRE(ckpt_guard(s, CKPT_PLAIN, &g, r, &err) == CKPT_NO);
    REQUIRE(ckpt_report_find(r, "rank-device", "big"));
    REQUIRE(ckpt_report_count_code(r, "idle-device") == 3);
    REQUIRE(ckpt_report_device_count(r) == 2);
    ckpt_state_free(s);
    /* Four replicas, one read. */
    ckpt_state *many[4];
    ckpt_restore_options each[4];
    ckpt_report *reports[4];
    for (int i = 0; i < 4; i++) {
        many[i] = ours();
        each[i] = with_map("cuda:*=cuda:{rank % 4}");
        each[i].ranks = (ckpt_ranks){ i, i, 4 };
        each[i].optimizer = CKPT_FUSED;
        reports[i] = ckpt_report_new();
    }
    REQUIRE_OK(ckpt_restore_many(many, 4, path, each, reports, &err));
    for (int i = 0; i < 4; i++) {
        g.own = ckpt_cuda(i);
        g.wanted_count = 0;
        REQUIRE(is_on(many[i], "big", i) && holds(i, ckpt_state_data(many[i], "big"), BIG, 2));
        REQUIRE(ckpt_guard(many[i], CKPT_FUSED, &g, reports[i], &err) == CKPT_OK);
        ckpt_report_free(reports[i]);
        ckpt_state_free(many[i]);
    }
    ckpt_report_free(r);
}

static void new_head(const void *arg)
{
    const ckpt_device none = { CKPT_DEVICE_NONE, -1 };
    const int64_t shape[] = { SMALL };
    (void)arg;
    save_from(0, 6);
    ckpt_state *s = ours();
    bind(s, "head", NULL, CKPT_PARAM, 1, shape, NULL, NULL, none);
    REQUIRE_OK(ckpt_state_allocate(s, &err));
    put(-1, ckpt_state_data(s, "head"), SMALL, 99);
    ckpt_restore_options o = with_map("cuda:*=cuda:1");
    o.allow_missing = true;
    REQUIRE_OK(ckpt_restore(s, path, &o, NULL, &err));
    REQUIRE(is_on(s, "big", 1) && is_on(s, "head", 1));
    REQUIRE(holds(1, ckpt_state_data(s, "head"), SMALL, 99));
    ckpt_state_free(s);
}

/* ---- streams */

FAKECUDA_TWIN(add_one, sizeof(void *), sizeof(int))
{
    int n = FAKECUDA_PARAM(int, 1);
    float *x = launch->range(FAKECUDA_PARAM(uint64_t, 0), (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] += 1;
}

static const unsigned char image[] = { 0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0 };

static void queue_add_one(CUfunction f, float *x, CUstream stream)
{
    uint64_t pointer = (uint64_t)(uintptr_t)x;
    int n = (int)BIG;
    void *params[] = { &pointer, &n };
    REQUIRE(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
}

static void streams(const void *arg)
{
    bool own_stream = *(const int *)arg;
    CUcontext context, now;
    CUmodule module;
    CUfunction f;
    CUstream stream = NULL;
    live l;
    open_live(&l, 1, 1, 20);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 1) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleLoadData)(&module, image) == CUDA_SUCCESS && CU(cuModuleGetFunction)(&f, module, "add_one") == CUDA_SUCCESS);
    if (own_stream) {
        REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
        REQUIRE_OK(ckpt_state_stream(l.state, ckpt_cuda(1), stream, &err));
    }
    /* Queued just before the save: the file has its result. */
    queue_add_one(f, l.big, stream);
    REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
    /* Queued just before the restore: it does not come after it. Queued just after: it sees what was restored. */
    queue_add_one(f, l.big, stream);
    REQUIRE_OK(ckpt_restore(l.state, path, NULL, NULL, &err));
    queue_add_one(f, l.big, stream);
    REQUIRE(CU(cuCtxGetCurrent)(&now) == CUDA_SUCCESS && now == context);
    REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
    REQUIRE(holds(1, l.big, BIG, 22));
    live file;
    open_live(&file, -1, -1, 0);
    REQUIRE_OK(ckpt_restore(file.state, path, NULL, NULL, &err));
    REQUIRE(holds(-1, file.big, BIG, 21));
    close_live(&file, -1);
    if (own_stream)
        REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleUnload)(module) == CUDA_SUCCESS);
    close_live(&l, 1);
    REQUIRE(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRelease_v2)(1) == CUDA_SUCCESS);
}

/* ---- every driver call of a save and of a restore fails in turn */

static void nth_failure(const void *arg)
{
    bool save = ((const int *)arg)[0], mine = ((const int *)arg)[1];
    live l;
    ckpt_state *s = NULL;
    big_shape[0] = rows = 3;      /* hundreds of saves: small ones */
    save_from(0, 5);
    open_live(&l, 1, 1, 30);
    if (mine)
        s = ours();
    ckpt_state *target = mine ? s : l.state;
    ckpt_restore_options o = with_map(mine ? "cuda:1" : NULL);
    bool clean = false;
    for (uint64_t n = 1; !clean; n++) {
        fakecuda_counts before, after;
        CU(fakecuda_live)(&before);
        CU(fakecuda_fail_at)(n, CUDA_ERROR_UNKNOWN, 1);
        ckpt_status status = save ? ckpt_save(l.state, path, NULL, &err) : ckpt_restore(target, path, &o, NULL, &err);
        clean = CU(fakecuda_failed_call)() == NULL;
        CU(fakecuda_fail_at)(0, 0, 1);
        REQUIRE(!clean || status == CKPT_OK);
        REQUIRE(n < 2000);
        if (status != CKPT_OK) {
            REQUIRE(status == CKPT_E_DEVICE || status == CKPT_E_MISMATCH);
            REQUIRE(strstr(err.message, "CUDA_ERROR_UNKNOWN"));
            CU(fakecuda_live)(&after);
            REQUIRE(after.allocations == before.allocations && after.host == before.host && after.streams == before.streams);
            REQUIRE(after.events == before.events && after.pushed == before.pushed && after.pending == 0);
            /* Nothing that is not poisoned holds anything but the old or the new bytes, whole. */
            if (!save && !mine && !ckpt_state_poisoned(l.state))
                REQUIRE(live_holds(&l, 1, 30));
        } else if (!save && !mine)
            REQUIRE(live_holds(&l, 1, 5));
        if (!save && !mine && !clean) {
            put(1, l.big, BIG, 30);
            put(1, l.big_avg, BIG, 31);
            put(1, l.small, SMALL, 32);
            put(1, l.steps, 2, 33);
            l.step = 30;
        }
        if (save && status != CKPT_OK) {      /* the file of before is still there, whole */
            live old;
            open_live(&old, -1, -1, 0);
            REQUIRE_OK(ckpt_restore(old.state, path, NULL, NULL, &err));
            REQUIRE(live_holds(&old, -1, 5));
            close_live(&old, -1);
        } else if (save)          /* a call whose failure costs nothing, such as giving a handle back */
            save_from(0, 5);
    }
    if (mine)
        REQUIRE(holds(1, ckpt_state_data(s, "big"), BIG, 5));
    ckpt_state_free(s);
    close_live(&l, 1);
}

static void no_driver(const void *arg)
{
    (void)arg;
    int count = -1;
    const char *why = NULL;
    ckpt_state *s = ours();
    ckpt_restore_options o = with_map("cuda:0");
    REQUIRE_OK(ckpt_device_count(CKPT_DEVICE_CUDA, &count, &why, &err));
    REQUIRE(count == 0 && why && *why && !strchr(why, '\n'));
    REQUIRE(ckpt_restore(s, path, &o, NULL, &err) == CKPT_E_MISMATCH);
    REQUIRE(strstr(err.message, "cuda:0"));
    o = with_map("cpu");
    REQUIRE_OK(ckpt_restore(s, path, &o, NULL, &err));
    REQUIRE(holds(-1, ckpt_state_data(s, "big"), BIG, 11));
    ckpt_state_free(s);
}

static void save_on_cpu(const void *arg)
{
    (void)arg;
    save_from(-1, 11);
}

static void save_on_one(const void *arg)
{
    (void)arg;
    save_from(0, 11);
}

/* ---- the tests */

static const char *const one[] = { "FAKECUDA_DEVICES=1", NULL }, *const two[] = { "FAKECUDA_DEVICES=2", NULL },
                  *const eight[] = { "FAKECUDA_DEVICES=8", NULL },
                  *const two_reversed[] = { "FAKECUDA_DEVICES=2", "FAKECUDA_REVERSE=1", NULL }, *const none[] = { "FAKECUDA_DEVICES=0", NULL };

static void setup(void)
{
    strcpy(folder, "/tmp/ckpt-cuda-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
}

static void teardown(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(bytes_go_round)
{
    expect_success(round_trips, (int[]){ -1, 0, -1, -2 }, one);
    expect_success(round_trips, (int[]){ -1, 0, 1, -1, 1, 0, -2 }, two);
    expect_success(round_trips, (int[]){ 0, 1, 0, -2 }, two_reversed);
    expect_success(round_trips, (int[]){ 7, 3, -1, 5, 6, -2 }, eight);
}
END_TEST

START_TEST(maps_send_tensors_where_they_say)
{
    expect_success(maps, NULL, two);
    expect_success(maps, NULL, two_reversed);
    expect_success(maps, NULL, eight);
}
END_TEST

START_TEST(step_goes_where_the_optimizer_needs_it)
{
    expect_success(policy, NULL, two);
}
END_TEST

START_TEST(ranks_and_replicas)
{
    expect_success(ranks, NULL, eight);
}
END_TEST

START_TEST(a_new_head_moves_too)
{
    expect_success(new_head, NULL, two);
}
END_TEST

START_TEST(queued_kernels_are_never_torn)
{
    for (int own = 0; own < 2; own++) {
        expect_success(streams, &own, two);
        expect_success(streams, &own, two_reversed);
    }
}
END_TEST

START_TEST(each_driver_call_fails_in_turn)
{
    expect_success(nth_failure, (int[]){ 1, 0 }, two);
    expect_success(nth_failure, (int[]){ 0, 0 }, two);
    expect_success(nth_failure, (int[]){ 0, 1 }, two);
}
END_TEST

START_TEST(without_a_driver_the_cpu_works)
{
    expect_success(save_on_cpu, NULL, none);
    expect_success(no_driver, NULL, none);
    expect_success(save_on_one, NULL, one);
    expect_success(no_driver, NULL, none);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("restore on devices");
    TCase *t = tcase_create("restore on devices");
    tcase_set_timeout(t, 900);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, bytes_go_round);
    tcase_add_test(t, maps_send_tensors_where_they_say);
    tcase_add_test(t, step_goes_where_the_optimizer_needs_it);
    tcase_add_test(t, ranks_and_replicas);
    tcase_add_test(t, a_new_head_moves_too);
    tcase_add_test(t, queued_kernels_are_never_torn);
    tcase_add_test(t, each_driver_call_fails_in_turn);
    tcase_add_test(t, without_a_driver_the_cpu_works);
    suite_add_tcase(s, t);
    return run_suite(s);
}
