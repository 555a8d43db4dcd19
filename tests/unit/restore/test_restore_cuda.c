/* Save and restore with devices, on the stand-in: mappings, guard, streams, faults. Each case runs in a process of its
 * own, with as many devices as it asks for; the stand-in ends it when a rule of CUDA is broken or something leaks. */
#include "../runner.h"

#include "../child.h"
#include "../restore_checks.h"
#include "../../fakecuda/fakecuda.h"

static char folder[64];

/* What the stand-in has and a driver has not. */
#define FAKE(name) ((__typeof__(name) *)(uintptr_t)driver_function(#name))

/* ---- streams */

FAKECUDA_TWIN(add_one, sizeof(void *), sizeof(int))
{
    int n = FAKECUDA_PARAM(int, 1);
    float *x = launch->range(FAKECUDA_PARAM(uint64_t, 0), (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] += 1;
}

static const unsigned char image[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};

static void queue_add_one(CUfunction f, float *x, CUstream stream)
{
    uint64_t pointer = (uint64_t)(uintptr_t)x;
    int n = (int)BIG;
    void *params[] = {&pointer, &n};
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
    REQUIRE(CU(cuModuleLoadData)(&module, image) == CUDA_SUCCESS &&
            CU(cuModuleGetFunction)(&f, module, "add_one") == CUDA_SUCCESS);
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

/* A copy that fails says whose bytes it was about. */
static bool names_a_tensor(const ckpt_state *s, const char *object)
{
    for (size_t i = 0; i < ckpt_state_tensor_count(s); i++)
        if (strcmp(ckpt_state_tensor_name(s, i), object) == 0)
            return true;
    return false;
}

static void nth_failure(const void *arg)
{
    bool save = ((const int *)arg)[0], mine = ((const int *)arg)[1];
    live l;
    ckpt_state *s = NULL;
    big_shape[0] = rows = 3; /* hundreds of saves: small ones */
    save_from(0, 5);
    open_live(&l, 1, 1, 30);
    if (mine)
        s = ours();
    ckpt_state *target = mine ? s : l.state;
    ckpt_restore_options o = with_map(mine ? "cuda:1" : NULL);
    bool clean = false;
    for (uint64_t n = 1; !clean; n++) {
        fakecuda_counts before, after;
        FAKE(fakecuda_live)(&before);
        FAKE(fakecuda_fail_at)(n, CUDA_ERROR_UNKNOWN, 1);
        ckpt_status status = save ? ckpt_save(l.state, path, NULL, &err) : ckpt_restore(target, path, &o, NULL, &err);
        const char *failed = FAKE(fakecuda_failed_call)();
        clean = failed == NULL;
        bool copy = failed && (strncmp(failed, "cuMemcpy", 8) == 0 || strncmp(failed, "cuPointerGet", 12) == 0);
        REQUIRE(!copy || status == CKPT_OK || names_a_tensor(target, err.object));
        FAKE(fakecuda_fail_at)(0, 0, 1);
        REQUIRE(!clean || status == CKPT_OK);
        REQUIRE(n < 2000);
        if (status != CKPT_OK) {
            REQUIRE(status == CKPT_E_DEVICE || status == CKPT_E_MISMATCH);
            REQUIRE(strstr(err.message, "CUDA_ERROR_UNKNOWN"));
            FAKE(fakecuda_live)(&after);
            REQUIRE(after.allocations == before.allocations && after.host == before.host &&
                    after.streams == before.streams);
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
        if (save && status != CKPT_OK) { /* the file of before is still there, whole */
            live old;
            open_live(&old, -1, -1, 0);
            REQUIRE_OK(ckpt_restore(old.state, path, NULL, NULL, &err));
            REQUIRE(live_holds(&old, -1, 5));
            close_live(&old, -1);
        } else if (save) /* a call whose failure costs nothing, such as giving a handle back */
            save_from(0, 5);
    }
    if (mine)
        REQUIRE(holds(1, ckpt_state_data(s, "big"), BIG, 5));
    ckpt_state_free(s);
    close_live(&l, 1);
}

/* A number becomes the tensor `step`, which is the caller's: on the host it is put last, on a device the state is poisoned. */
static void nth_failure_of_a_number(const void *arg)
{
    int device = *(const int *)arg, changed = 0;
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    double number = 5;
    float *w = alloc(-1, SMALL * 4), *step = alloc(device, 4);
    put(-1, w, SMALL, 2);
    ckpt_state *s = ckpt_state_new();
    bind(s, "w", NULL, CKPT_ROLE_PARAM, 2, small_shape, NULL, w, none);
    REQUIRE_OK(ckpt_state_f64(s, "optimizer.w.step", &number, &err));
    REQUIRE_OK(ckpt_save(s, path, NULL, &err));
    ckpt_state_free(s);
    ckpt_restore_options o = with_map("cuda:1");
    o.optimizer = device < 0 ? CKPT_OPTIMIZER_PLAIN : CKPT_OPTIMIZER_FUSED;
    ckpt_report *r = ckpt_report_new();
    bool clean = false;
    for (uint64_t n = 1; !clean; n++) {
        s = ckpt_state_new();
        bind(s, "w", NULL, CKPT_ROLE_PARAM, 2, small_shape, NULL, NULL, none);
        bind(s, NULL, "w", CKPT_ROLE_STEP, 0, NULL, NULL, step, none);
        put(device, step, 1, -1);
        FAKE(fakecuda_fail_at)(n, CUDA_ERROR_UNKNOWN, 1);
        ckpt_status status = ckpt_restore(s, path, &o, r, &err);
        clean = FAKE(fakecuda_failed_call)() == NULL;
        FAKE(fakecuda_fail_at)(0, 0, 1);
        bool old = holds(device, step, 1, -1), poisoned = ckpt_state_poisoned(s);
        REQUIRE(old || holds(device, step, 1, 5));
        REQUIRE(status != CKPT_OK || (!old && !poisoned));
        REQUIRE(status == CKPT_OK || old || (poisoned && device >= 0));
        if (status != CKPT_OK && poisoned)
            REQUIRE(ckpt_report_find(r, "torn", "optimizer.w.step") ||
                    ckpt_report_find(r, "complete", "optimizer.w.step"));
        else if (ckpt_report_find(r, "untouched", "w")) /* the copying had begun */
            REQUIRE(ckpt_report_find(r, "untouched", "optimizer.w.step"));
        changed += status != CKPT_OK && !old;
        REQUIRE(n < 2000);
        ckpt_state_free(s);
    }
    REQUIRE(device < 0 ? !changed : changed > 0);
    ckpt_report_free(r);
    release(-1, w);
    release(device, step);
}

/* Managed memory has no device of its own: the host reaches it, and so it is saved and filled like host memory. */
static void managed(const void *arg)
{
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    CUcontext context;
    CUdeviceptr at;
    ckpt_reader *reader;
    (void)arg;
    REQUIRE(ckpt_device_check(ckpt_cuda(0), &err) == CKPT_OK);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    REQUIRE(CU(cuMemAllocManaged)(&at, SMALL * 4, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
    float *small = (float *)(uintptr_t)at, *avg = alloc(0, SMALL * 4);
    for (int i = 0; i < SMALL; i++)
        small[i] = (float)i;
    put(0, avg, SMALL, 3);
    ckpt_state *s = ckpt_state_new();
    bind(s, "small", NULL, CKPT_ROLE_PARAM, 2, small_shape, NULL, small, none);
    bind(s, NULL, "small", CKPT_ROLE_EXP_AVG, 2, small_shape, NULL, avg, none);
    REQUIRE(ckpt_device_equal(ckpt_state_device(s, "small"), ckpt_cpu()));
    REQUIRE_OK(ckpt_save(s, path, NULL, &err));
    REQUIRE_OK(ckpt_reader_open(path, NULL, &reader, &err));
    size_t i;
    REQUIRE_OK(ckpt_reader_find(reader, "small", 5, &i, &err));
    REQUIRE(strcmp(ckpt_reader_tensor(reader, i)->device.data, "cpu") == 0);
    ckpt_reader_close(reader);
    small[7] = -1;
    ckpt_report *r = ckpt_report_new();
    REQUIRE_OK(ckpt_restore(s, path, NULL, r, &err));
    REQUIRE(small[7] == 7 && !ckpt_report_find(r, "moved", NULL));
    /* It has no fixed device, and so fits every target of a map. */
    static const char *const maps[] = {"cuda:0", "cuda:*=cuda:0,cpu=cuda:0"};
    for (int k = 0; k < 2; k++) {
        ckpt_restore_options o = {.map_location = maps[k]};
        small[7] = -1;
        REQUIRE_OK(ckpt_restore(s, path, &o, r, &err));
        const ckpt_finding *f = ckpt_report_find(r, "managed", NULL);
        REQUIRE(small[7] == 7 && f && f->severity == CKPT_SEVERITY_WARNING && strstr(f->message, "no fixed device"));
    }
    ckpt_restore_options away = {.map_location = "cuda:1"};
    REQUIRE(ckpt_restore(s, path, &away, r, &err) == CKPT_E_MISMATCH); /* the moment, which is on cuda:0 */
    REQUIRE(ckpt_report_count_code(r, "device-mismatch") == 1 && !strstr(err.message, "on cpu"));
    REQUIRE_OK(ckpt_guard(s, CKPT_OPTIMIZER_FUSED, NULL, r, &err)); /* a warning, and no device that is none */
    REQUIRE(ckpt_report_find(r, "managed", "small") && !ckpt_report_find(r, "mixed-devices", NULL));
    ckpt_report_free(r);
    ckpt_state_free(s);
    release(0, avg);
    REQUIRE(CU(cuMemFree_v2)(at) == CUDA_SUCCESS);
    REQUIRE(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRelease_v2)(0) == CUDA_SUCCESS);
}

/* ---- memory that moves */

static void bind_arena(ckpt_state *s, const char *name, ckpt_role role, void *data)
{
    const int64_t seven[] = {7}, five[] = {5};
    const ckpt_arena_entry entries[] = {{"a", 0, 1, seven}, {"b", 28, 1, five}};
    ckpt_arena_desc d = CKPT_ARENA_DESC_INIT;
    d.name = name;
    d.role = role;
    d.dtype = CKPT_F32;
    d.nbytes = 48;
    d.data = data;
    REQUIRE_OK(ckpt_state_arena(s, &d, entries, 2, &err));
}

static void moving(const void *arg)
{
    float *old = alloc(0, 48), *avg = alloc(0, 48), *later = alloc(1, 48), *gone = alloc(0, 48), host[12];
    ckpt_state *s = ckpt_state_new();
    (void)arg;
    put(0, old, 12, 5);
    put(0, avg, 12, 50);
    bind_arena(s, "params", CKPT_ROLE_PARAM, old);
    bind_arena(s, "moments", CKPT_ROLE_EXP_AVG, avg);
    REQUIRE_OK(ckpt_save(s, path, NULL, &err));
    REQUIRE(ckpt_state_rebind(s, "params", avg, &err) == CKPT_E_MISMATCH);
    REQUIRE(ckpt_state_data(s, "a") == old && ckpt_state_data(s, "b") == old + 7);
    release(0, gone);
    REQUIRE(ckpt_state_rebind(s, "params", gone, &err) == CKPT_E_DEVICE && strcmp(err.object, "a") == 0);
    REQUIRE(ckpt_state_data(s, "a") == old);
    REQUIRE_OK(ckpt_state_rebind(s, "params", later, &err)); /* to another device */
    REQUIRE(is_on(s, "a", 1) && is_on(s, "b", 1) && ckpt_state_data(s, "b") == later + 7);
    REQUIRE_OK(ckpt_restore(s, path, NULL, NULL, &err));
    REQUIRE(holds(1, later, 12, 5));
    REQUIRE_OK(ckpt_state_rebind(s, "params", host, &err)); /* and to none */
    REQUIRE_OK(ckpt_restore(s, path, NULL, NULL, &err));
    REQUIRE(holds(-1, host, 12, 5));
    REQUIRE_OK(ckpt_state_rebind(s, "params", old, &err));
    /* Freed memory: by name, before anything is copied, and nothing is written. */
    REQUIRE(unlink(path) == 0);
    release(0, avg);
    REQUIRE(ckpt_save(s, path, NULL, &err) == CKPT_E_DEVICE);
    REQUIRE(strcmp(err.object, "optimizer.a.exp_avg") == 0 && strstr(err.message, "outside any live allocation"));
    REQUIRE(strstr(err.message, "ckpt_state_rebind") && access(path, F_OK) != 0);
    ckpt_report *r = ckpt_report_new();
    REQUIRE(ckpt_guard(s, CKPT_OPTIMIZER_PLAIN, NULL, r, &err) == CKPT_ANSWER_NO);
    REQUIRE(strstr(ckpt_report_find(r, "unmapped", "optimizer.a.exp_avg")->fix, "ckpt_state_rebind"));
    REQUIRE(ckpt_report_find(r, "mixed-devices", "optimizer.a.exp_avg") == NULL); /* it is on no device */
    avg = alloc(0, 48);
    put(0, avg, 12, 70);
    REQUIRE_OK(ckpt_state_rebind(s, "moments", avg, &err));
    REQUIRE_OK(ckpt_save(s, path, NULL, &err));
    release(0, old);
    REQUIRE(ckpt_restore(s, path, NULL, NULL, &err) == CKPT_E_DEVICE && strcmp(err.object, "a") == 0);
    REQUIRE(!ckpt_state_poisoned(s));
    ckpt_report_free(r);
    ckpt_state_free(s);
    release(0, avg);
    release(1, later);
}

/* ---- another head: its optimizer starts anew where its parameter goes, as the policy has it */

static void replaced_head(const void *arg)
{
    bool fused = *(const int *)arg;
    const ckpt_device none = {CKPT_DEVICE_NONE, -1};
    const int64_t old_shape[] = {3, 7}, shape[] = {5, 7};
    float *weight = alloc(0, 84), *avg = alloc(0, 84), *steps = alloc(fused ? 0 : -1, 8), *body = alloc(0, 140),
          zeros[35] = {0}, back[35];
    ckpt_state *s = ckpt_state_new(), *t = ckpt_state_new();
    ckpt_restore_options o = with_map("cuda:1");
    ckpt_report *r = ckpt_report_new();
    put(0, weight, 21, 1);
    put(0, avg, 21, 2);
    put(0, body, 35, 3);
    put(fused ? 0 : -1, steps, 2, 9);
    for (int i = 0; i < 2; i++) {
        ckpt_state *x = i ? t : s;
        bind(x, "body", NULL, CKPT_ROLE_PARAM, 2, shape, NULL, i ? NULL : body, none);
        bind(x, NULL, "body", CKPT_ROLE_STEP, 0, NULL, NULL, i ? NULL : steps, none);
        bind(x, "head", NULL, CKPT_ROLE_PARAM, 2, i ? shape : old_shape, NULL, i ? NULL : weight, none);
        bind(x, NULL, "head", CKPT_ROLE_EXP_AVG, 2, i ? shape : old_shape, NULL, i ? NULL : avg, none);
        bind(x, NULL, "head", CKPT_ROLE_STEP, 0, NULL, NULL, i ? NULL : steps + 1, none);
    }
    REQUIRE_OK(ckpt_save(s, path, NULL, &err));
    REQUIRE_OK(ckpt_state_allocate(t, &err));
    put(-1, ckpt_state_data(t, "head"), 35, 99);
    put(-1, ckpt_state_data(t, "optimizer.head.exp_avg"), 35, 98);
    put(-1, ckpt_state_data(t, "optimizer.head.step"), 1, 97);
    REQUIRE_OK(ckpt_state_replace(t, "head", &err));
    o.optimizer = fused ? CKPT_OPTIMIZER_FUSED : CKPT_OPTIMIZER_PLAIN;
    for (int again = 0; again < 2; again++) {
        REQUIRE_OK(ckpt_restore(t, path, &o, r, &err));
        REQUIRE(is_on(t, "head", 1) && is_on(t, "optimizer.head.exp_avg", 1) && is_on(t, "body", 1));
        REQUIRE(is_on(t, "optimizer.head.step", fused ? 1 : -1) && is_on(t, "optimizer.body.step", fused ? 1 : -1));
        REQUIRE(holds(1, ckpt_state_data(t, "head"), 35, 99) && holds(1, ckpt_state_data(t, "body"), 35, 3));
        copy(-1, back, 1, ckpt_state_data(t, "optimizer.head.exp_avg"), sizeof back);
        REQUIRE(memcmp(back, zeros, sizeof back) == 0);
        copy(-1, back, fused ? 1 : -1, ckpt_state_data(t, "optimizer.head.step"), 4);
        REQUIRE(back[0] == 0);
        REQUIRE(ckpt_report_find(r, "replaced", "head") &&
                strstr(ckpt_report_find(r, "replaced", "head")->message, "on cuda:1"));
        REQUIRE_OK(ckpt_guard(t, o.optimizer, NULL, r, &err));
        put(1, ckpt_state_data(t, "optimizer.head.exp_avg"), 35, 55); /* in place, the second time */
        put(fused ? 1 : -1, ckpt_state_data(t, "optimizer.head.step"), 1, 55);
    }
    ckpt_report_free(r);
    ckpt_state_free(s);
    ckpt_state_free(t);
    release(0, weight);
    release(0, avg);
    release(0, body);
    release(fused ? 0 : -1, steps);
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

static const char *const one[] = {"FAKECUDA_DEVICES=1", NULL}, *const two[] = {"FAKECUDA_DEVICES=2", NULL},
                         *const eight[] = {"FAKECUDA_DEVICES=8", NULL},
                         *const two_reversed[] = {"FAKECUDA_DEVICES=2", "FAKECUDA_REVERSE=1", NULL},
                         *const none[] = {"FAKECUDA_DEVICES=0", NULL};

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
    expect_success(round_trips, (int[]){-1, 0, -1, -2}, one);
    expect_success(round_trips, (int[]){-1, 0, 1, -1, 1, 0, -2}, two);
    expect_success(round_trips, (int[]){0, 1, 0, -2}, two_reversed);
    expect_success(round_trips, (int[]){7, 3, -1, 5, 6, -2}, eight);
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
    expect_success(bound_elsewhere, NULL, two);
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
        expect_success(queued_copies, &own, one);
        expect_success(queued_copies, &own, two_reversed);
    }
}
END_TEST

START_TEST(runs_save_what_was_there)
{
    for (int own = 0; own < 2; own++) {
        expect_success(run_saves, (int[]){own, -1}, one);
        expect_success(run_saves, (int[]){own, 1}, two);
        expect_success(run_saves, (int[]){own, 1}, two_reversed);
    }
}
END_TEST

START_TEST(each_driver_call_fails_in_turn)
{
    expect_success(nth_failure, (int[]){1, 0}, two);
    expect_success(nth_failure, (int[]){0, 0}, two);
    expect_success(nth_failure, (int[]){0, 1}, two);
    expect_success(nth_failure_of_a_number, (int[]){-1}, two);
    expect_success(nth_failure_of_a_number, (int[]){1}, two);
}
END_TEST

START_TEST(managed_memory_is_the_hosts)
{
    expect_success(managed, NULL, two);
}
END_TEST

START_TEST(memory_moves)
{
    expect_success(moving, NULL, two);
    expect_success(moving, NULL, two_reversed);
}
END_TEST

START_TEST(another_head_starts_where_it_goes)
{
    for (int fused = 0; fused < 2; fused++) {
        expect_success(replaced_head, &fused, two);
        expect_success(replaced_head, &fused, two_reversed);
    }
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
    tcase_add_test(t, runs_save_what_was_there);
    tcase_add_test(t, each_driver_call_fails_in_turn);
    tcase_add_test(t, managed_memory_is_the_hosts);
    tcase_add_test(t, memory_moves);
    tcase_add_test(t, another_head_starts_where_it_goes);
    tcase_add_test(t, without_a_driver_the_cpu_works);
    suite_add_tcase(s, t);
    return run_suite(s);
}
