/* tests/unit/device/test_device.c - reading and naming devices; the host's vtable; cuda's on the stand-in, with faults at
 * every call, and without a driver. */
#include "../runner.h"

#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <ckpt/device.h>
#include "../child.h"
#include "device/device.h"

/* ---- names */

START_TEST(good_devices)
{
    static const struct {
        const char *text;
        ckpt_device_type type;
        int index;
    } cases[] = {
        {"cpu", CKPT_DEVICE_CPU, -1},
        {"cuda:0", CKPT_DEVICE_CUDA, 0},
        {"cuda:17", CKPT_DEVICE_CUDA, 17},
        {"cuda:2147483647", CKPT_DEVICE_CUDA, INT_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[CKPT_DEVICE_NAME_MAX];
        ckpt_device d;
        ck_assert_int_eq(ckpt_device_parse(cases[i].text, &d, NULL), CKPT_OK);
        ck_assert_int_eq(d.type, cases[i].type);
        ck_assert_int_eq(d.index, cases[i].index);
        ck_assert_str_eq(ckpt_device_name(d, name), cases[i].text);
    }
}
END_TEST

START_TEST(bad_devices)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {NULL, "it is empty"},
        {"", "it is empty; write cpu or cuda:0"},
        {"cuda", "no index"},
        {"cuda:", "the index is missing"},
        {"cuda:-1", "0 or more"},
        {"cuda:01", "leading zero; write cuda:1"},
        {"cuda:00", "leading zero; write cuda:0"},
        {"cuda:+1", "decimal number alone"},
        {"cuda:0x1", "decimal number alone"},
        {"cuda:1:2", "decimal number alone"},
        {"cuda:-", "decimal number alone"},
        {"cuda:2147483648", "too large"},
        {"cuda:99999999999999999999999", "too large"},
        {"cuda: 0", "spaces"},
        {" cpu", "spaces"},
        {"cpu ", "spaces"},
        {"cuda:0\n", "spaces"},
        {"cuda0", "after a colon"},
        {"cuda.0", "after a colon"},
        {"CUDA:0", "lower case"},
        {"Cuda", "lower case"},
        {"cpu:0", "no index; write cpu"},
        {"CPU", "lower case"},
        {"CPU:0", "write cpu"},
        {"gpu:0", "name of a GPU here is cuda"},
        {"GPU", "name of a GPU here is cuda"},
        {"meta", "holds no data"},
        {"mps", "cpu and cuda only"},
        {"xpu:1", "cpu and cuda only"},
        {"0", "a number alone"},
        {"12", "a number alone"},
        {"tpu", "no device has this name"},
        {"cu\x1b[2Jda", "no device has this name"},
        {"auto", "no device has this name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_device d = {CKPT_DEVICE_OTHER, 42};
        ck_assert_int_eq(ckpt_device_parse(cases[i].text, &d, &err), CKPT_E_ARGUMENT);
        ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].text, err.message);
        ck_assert_msg(strpbrk(err.object, "\n\x1b") == NULL, "%s", err.object);
        ck_assert_int_eq(d.index, 42);
        ck_assert_int_eq(ckpt_device_parse(cases[i].text, &d, NULL), CKPT_E_ARGUMENT);
    }
}
END_TEST

START_TEST(names_and_equality)
{
    char name[CKPT_DEVICE_NAME_MAX];
    ckpt_device none = {CKPT_DEVICE_NONE, -1}, cpu0 = {CKPT_DEVICE_CPU, 0}, meta = {CKPT_DEVICE_META, -1};
    ckpt_device other = {CKPT_DEVICE_OTHER, 1}, other2 = {CKPT_DEVICE_OTHER, 2};
    ck_assert_str_eq(ckpt_device_name(none, name), "none");
    ck_assert_str_eq(ckpt_device_name(cpu0, name), "cpu");
    ck_assert_str_eq(ckpt_device_name(meta, name), "meta");
    ck_assert_str_eq(ckpt_device_name(other, name), "other");
    ck_assert_str_eq(ckpt_device_name(ckpt_cuda(-1), name), "cuda");
    ck_assert_str_eq(ckpt_device_name(ckpt_cuda(INT_MAX), name), "cuda:2147483647");
    ck_assert(ckpt_device_equal(ckpt_cpu(), cpu0));
    ck_assert(!ckpt_device_equal(ckpt_cuda(0), ckpt_cuda(1)));
    ck_assert(!ckpt_device_equal(ckpt_cuda(0), ckpt_cuda(-1)));
    ck_assert(!ckpt_device_equal(ckpt_cpu(), ckpt_cuda(0)));
    ck_assert(!ckpt_device_equal(other, other2));
}
END_TEST

/* ---- the host */

START_TEST(cpu_vtable)
{
    const ckpt__device_ops *cpu = ckpt__device_ops_of(CKPT_DEVICE_CPU);
    ckpt__stream *stream;
    ckpt__event *event;
    void *a, *b, *c;
    int count = 0;
    ck_assert_ptr_nonnull(cpu);
    ck_assert_int_eq(cpu->count(&count, NULL, &err), CKPT_OK);
    ck_assert_int_eq(count, 1);
    ck_assert_int_eq(cpu->alloc(-1, 0, &a, &err), CKPT_OK);
    ck_assert_int_eq(cpu->alloc(-1, 0, &b, &err), CKPT_OK);
    ck_assert(a && b && a != b);
    cpu->release(-1, a, &err);
    cpu->release(-1, b, &err);
    cpu->release(-1, NULL, &err);
    ck_assert_int_eq(cpu->alloc(-1, 1000, &a, &err), CKPT_OK);
    ck_assert_int_eq(cpu->host_alloc(1000, &b, &err), CKPT_OK);
    ck_assert_uint_eq((uintptr_t)a % 64, 0);
    ck_assert_uint_eq((uintptr_t)b % 64, 0);
    ck_assert_int_eq(cpu->alloc(-1, SIZE_MAX, &c, &err), CKPT_E_NO_MEMORY);
    ck_assert_ptr_null(c);
    ck_assert_int_eq(cpu->alloc(-1, SIZE_MAX - 64, &c, &err), CKPT_E_NO_MEMORY);
    ck_assert_int_eq(cpu->stream_new(-1, &stream, &err), CKPT_OK);
    ck_assert_int_eq(cpu->event_new(-1, &event, &err), CKPT_OK);
    for (int i = 0; i < 1000; i++)
        ((unsigned char *)a)[i] = (unsigned char)i;
    ck_assert_int_eq(cpu->to_device(stream, b, a, 1000, &err), CKPT_OK);
    ck_assert_mem_eq(a, b, 1000);
    ck_assert_int_eq(cpu->zero(-1, b, 1000, stream, &err), CKPT_OK);
    ck_assert_int_eq(((unsigned char *)b)[999], 0);
    ck_assert_int_eq(cpu->to_device_2d(stream, b, 10, a, 100, 5, 3, &err), CKPT_OK);
    ck_assert_mem_eq((char *)b + 20, (char *)a + 200, 5);
    ck_assert_int_eq(((unsigned char *)b)[5], 0);
    ck_assert_int_eq(cpu->to_host_2d(stream, b, 10, a, 4, 5, 2, &err), CKPT_E_ARGUMENT);
    ck_assert_int_eq(cpu->between(-1, b, -1, a, 1000, &err), CKPT_OK);
    ck_assert_mem_eq(a, b, 1000);
    ck_assert_int_eq(cpu->to_host(stream, NULL, NULL, 0, &err), CKPT_OK);
    ck_assert_int_eq(cpu->event_record(event, stream, &err), CKPT_OK);
    ck_assert_int_eq(cpu->event_wait(event, &err), CKPT_OK);
    ck_assert_int_eq(cpu->follow(stream, NULL, &err), CKPT_OK);
    ck_assert_int_eq(cpu->precede(stream, NULL, &err), CKPT_OK);
    ck_assert_int_eq(cpu->stream_sync(stream, &err), CKPT_OK);
    ck_assert_int_eq(cpu->synchronize(-1, &err), CKPT_OK);
    cpu->stream_free(stream);
    cpu->event_free(event);
    cpu->stream_free(NULL);
    cpu->event_free(NULL);
    cpu->release(-1, a, &err);
    cpu->host_free(b);
    cpu->host_free(NULL);
}
END_TEST

START_TEST(cpu_public)
{
    char name[32] = "x";
    uint64_t unused = 0, total = 0;
    bool simulated = true;
    int count = -1;
    const char *why = NULL;
    ck_assert_int_eq(ckpt_device_check(ckpt_cpu(), &err), CKPT_OK);
    ck_assert_int_eq(ckpt_device_info(ckpt_cpu(), name, sizeof name, &unused, &total, &simulated, &err), CKPT_OK);
    ck_assert_str_eq(name, "host memory");
    ck_assert(total > 0 && unused <= total && !simulated);
    ck_assert_int_eq(ckpt_device_info(ckpt_cpu(), NULL, 0, NULL, NULL, NULL, NULL), CKPT_OK);
    ck_assert_int_eq(ckpt_device_count(CKPT_DEVICE_CPU, &count, &why, &err), CKPT_OK);
    ck_assert_int_eq(count, 1);
    ck_assert_ptr_null(why);
    /* There is no vtable for these, and asking is no error. */
    ck_assert_int_eq(ckpt_device_count(CKPT_DEVICE_META, &count, &why, &err), CKPT_OK);
    ck_assert_int_eq(count, 0);
    ck_assert_ptr_nonnull(why);
    ckpt_device other = {CKPT_DEVICE_OTHER, 0};
    ck_assert_int_eq(ckpt_device_check(other, &err), CKPT_E_DEVICE);
    ck_assert_msg(strstr(err.message, "cpu and cuda only") != NULL, "%s", err.message);
    ck_assert_ptr_null(ckpt__device_ops_of(CKPT_DEVICE_OTHER));
}
END_TEST

/* Before anything named cuda, a query loads nothing. */
static void query_without_cuda(const void *arg)
{
    ckpt_memory m;
    char line[512] = "";
    (void)arg;
    REQUIRE_OK(ckpt_device_query(line, sizeof line, &m, &err));
    REQUIRE(m.kind == CKPT_MEMORY_HOST && ckpt_device_equal(m.device, ckpt_cpu()));
    REQUIRE(!ckpt__cuda_active());
    FILE *maps = fopen("/proc/self/maps", "r");
    REQUIRE(maps);
    while (fgets(line, sizeof line, maps))
        REQUIRE(!strstr(line, "libcuda"));
    fclose(maps);
}

START_TEST(query_loads_nothing)
{
    expect_success(query_without_cuda, NULL, NULL);
}
END_TEST

#ifndef HAVE_CUDA_H
START_TEST(built_without_cuda)
{
    const char *why = NULL;
    int count = -1;
    ck_assert_int_eq(ckpt_device_count(CKPT_DEVICE_CUDA, &count, &why, &err), CKPT_OK);
    ck_assert_int_eq(count, 0);
    ck_assert_msg(why && strstr(why, "built without CUDA"), "%s", why);
    ck_assert_int_eq(ckpt_device_check(ckpt_cuda(0), &err), CKPT_E_DEVICE);
    ck_assert_str_eq(err.object, "cuda:0");
    ck_assert_msg(strstr(err.message, "built without CUDA") != NULL, "%s", err.message);
    ck_assert(!ckpt__cuda_active());
    ck_assert_ptr_null(ckpt__device_ops_of(CKPT_DEVICE_CUDA));
}
END_TEST
#else
#include "../../fakecuda/fakecuda.h"
#include "../device_checks.h"

/* ---- on the stand-in */

static void *standin(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle || !dlsym(handle, "fakecuda_marker")) {
        fprintf(stderr, "the stand-in is not first in LD_LIBRARY_PATH\n");
        _exit(1);
    }
    return handle;
}
#define FAKE(name) FAKECUDA_SYMBOL(standin(), name)

static void whole_vtable(const void *arg)
{
    bool simulated = false;
    char name[64];
    standin();
    check_devices(*(const caller *)arg);
    REQUIRE_OK(ckpt_device_info(ckpt_cuda(0), name, sizeof name, NULL, NULL, &simulated, &err));
    REQUIRE(simulated && strcmp(name, "simulated device 0") == 0);
    REQUIRE(FAKE(fakecuda_check_leaks)() == 0);
}

START_TEST(vtable_on_standin)
{
    static const char *const counts[] = {"FAKECUDA_DEVICES=1", "FAKECUDA_DEVICES=2", "FAKECUDA_DEVICES=8"};
    static const char *const orders[] = {"FAKECUDA_REVERSE=0", "FAKECUDA_REVERSE=1"};
    const char *env[] = {counts[_i / 2], orders[_i % 2], NULL};
    for (caller before = NO_CONTEXT; before < CALLERS; before++)
        expect_success(whole_vtable, &before, env);
}
END_TEST

/* A freed device pointer, an overrun, neighbours, and memory mapped piece by piece. */
static void verdicts(const void *arg)
{
    (void)arg;
    size_t sizes[] = {1024, 2048, 512};
    int holes[] = {1, 0, 1};
    standin();
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ckpt_device_check(ckpt_cuda(1), &err));
    driver_table = ckpt__cuda_loaded();
    unsigned char *a = on_device(1, 1024), *b = on_device(1, 1024), *c = on_device(0, 1024);
    REQUIRE(b == a + 1024);
    verdict(a, 1024, CKPT_MEMORY_DEVICE, ckpt_cuda(1));
    verdict(a + 1000, 48, CKPT_MEMORY_SPLIT, nowhere); /* into the neighbour: two allocations */
    verdict(b, 1025, CKPT_MEMORY_SPLIT, nowhere);      /* past the end */
    verdict(b + 4096, 16, CKPT_MEMORY_UNMAPPED, nowhere);
    OP(ops->release(1, a, &err));
    verdict(a, 1024, CKPT_MEMORY_UNMAPPED, nowhere);
    verdict(a, 2048, CKPT_MEMORY_SPLIT, nowhere);
    unsigned char *low = (uintptr_t)b < (uintptr_t)c ? b : c, *high = low == b ? c : b;
    verdict(low, (size_t)((uintptr_t)high - (uintptr_t)low) + 1, CKPT_MEMORY_SPLIT, nowhere);

    uint64_t base = FAKE(fakecuda_map_segments)(1, sizes, NULL, 3);
    unsigned char *s = (unsigned char *)(uintptr_t)base;
    verdict(s, 3584, CKPT_MEMORY_DEVICE, ckpt_cuda(1));
    verdict(s + 1000, 2100, CKPT_MEMORY_DEVICE, ckpt_cuda(1));
    verdict(s, 3585, CKPT_MEMORY_SPLIT, nowhere);
    FAKE(fakecuda_unmap_segments)(base);
    base = FAKE(fakecuda_map_segments)(1, sizes, holes, 3);
    s = (unsigned char *)(uintptr_t)base;
    verdict(s, 1024, CKPT_MEMORY_DEVICE, ckpt_cuda(1));
    verdict(s, 3584, CKPT_MEMORY_SPLIT, nowhere);        /* a hole in the middle */
    verdict(s + 1024, 8, CKPT_MEMORY_UNMAPPED, nowhere); /* reserved only */
    FAKE(fakecuda_unmap_segments)(base);
    OP(ops->release(1, b, &err));
    OP(ops->release(0, c, &err));
}

START_TEST(query_verdicts)
{
    expect_success(verdicts, NULL, NULL);
}
END_TEST

/* The program uses CUDA, and this library has not been asked to: a query finds its memory, and starts nothing. */
static void query_of_others(const void *arg)
{
    (void)arg;
    void *handle = standin();
    CUcontext primary;
    CUdeviceptr p;
    ckpt_memory m;
    int here;
    REQUIRE_OK(ckpt_device_query(&here, sizeof here, &m, &err));
    REQUIRE(m.kind == CKPT_MEMORY_HOST); /* loaded, not initialised */
    REQUIRE(FAKECUDA_SYMBOL(handle, cuInit)(0) == CUDA_SUCCESS);
    REQUIRE(FAKECUDA_SYMBOL(handle, cuDevicePrimaryCtxRetain)(&primary, 1) == CUDA_SUCCESS);
    REQUIRE(FAKECUDA_SYMBOL(handle, cuCtxPushCurrent_v2)(primary) == CUDA_SUCCESS);
    REQUIRE(FAKECUDA_SYMBOL(handle, cuMemAlloc_v2)(&p, 100) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt_device_query((void *)(uintptr_t)p, 100, &m, &err));
    REQUIRE(m.kind == CKPT_MEMORY_DEVICE && ckpt_device_equal(m.device, ckpt_cuda(1)));
    REQUIRE(!ckpt__cuda_active());
    REQUIRE(FAKECUDA_SYMBOL(handle, cuMemFree_v2)(p) == CUDA_SUCCESS);
    REQUIRE(FAKECUDA_SYMBOL(handle, cuCtxPopCurrent_v2)(&primary) == CUDA_SUCCESS);
}

START_TEST(query_of_the_programs_memory)
{
    expect_success(query_of_others, NULL, NULL);
}
END_TEST

/* cuda:0 gets no context because page-locked memory is wanted for cuda:1. */
static void no_stray_context(const void *arg)
{
    (void)arg;
    ckpt__stream *stream;
    void *p;
    unsigned flags;
    int active = 1;
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ops->stream_new(1, &stream, &err));
    REQUIRE_OK(ops->host_alloc(64, &p, &err));
    REQUIRE_OK(ckpt_device_info(ckpt_cuda(0), NULL, 0, NULL, NULL, NULL, &err));
    REQUIRE(FAKE(cuDevicePrimaryCtxGetState)(0, &flags, &active) == CUDA_SUCCESS && !active);
    ops->host_free(p);
    ops->stream_free(stream);
}

START_TEST(no_context_without_need)
{
    expect_success(no_stray_context, NULL, NULL);
}
END_TEST

/* ---- order with a stream of the program's */

static void own_context_stream(const void *arg)
{
    (void)arg;
    ckpt__stream *ours;
    CUstream theirs;
    CUcontext own;
    unsigned char *a, *seen, *data;
    standin();
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ops->stream_new(1, &ours, &err));
    driver_table = ckpt__cuda_loaded();
    REQUIRE(DRIVER(cuCtxCreate_v2)(&own, 0, 1) == CUDA_SUCCESS);
    callers_context = own;
    a = pinned(4096);
    seen = pinned(4096);
    data = on_device(1, 4096);
    fill(a, 4096, 9);
    REQUIRE(driver_table->cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(driver_table->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)data, a, 4096, theirs) == CUDA_SUCCESS);
    OP(ops->follow(ours, theirs, &err));
    OP(ops->to_host(ours, seen, data, 4096, &err));
    OP(ops->precede(ours, theirs, &err));
    REQUIRE(driver_table->cuMemsetD8Async((CUdeviceptr)(uintptr_t)data, 0, 4096, theirs) == CUDA_SUCCESS);
    OP(ops->synchronize(1, &err)); /* their context too, being current */
    REQUIRE(holds(seen, 4096, 9));
    fakecuda_counts c;
    FAKE(fakecuda_live)(&c);
    REQUIRE(c.pending == 0);
    FAKE(fakecuda_set_capturing)(theirs, 1);
    REQUIRE(ops->follow(ours, theirs, &err) == CKPT_E_ARGUMENT && strstr(err.message, "captured into a graph"));
    REQUIRE(current() == own);
    REQUIRE(driver_table->cuStreamDestroy_v2(theirs) == CUDA_SUCCESS);
    ops->stream_free(ours);
    OP(ops->release(1, data, &err));
    ops->host_free(a);
    ops->host_free(seen);
    REQUIRE(DRIVER(cuCtxDestroy_v2)(own) == CUDA_SUCCESS);
}

START_TEST(stream_of_another_context)
{
    static const char *const env[][2] = {{"FAKECUDA_REVERSE=0", NULL}, {"FAKECUDA_REVERSE=1", NULL}};
    expect_success(own_context_stream, NULL, env[_i]);
}
END_TEST

/* Without follow, the reversed order lets our copy run before theirs: the mode does what it is for. */
static void unordered(const void *arg)
{
    (void)arg;
    ckpt__stream *ours;
    unsigned char *a, *seen, *data;
    CUstream theirs;
    standin();
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ckpt__cuda_enter(0, &err));
    driver_table = ckpt__cuda_loaded();
    REQUIRE(driver_table->cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    REQUIRE_OK(ops->stream_new(0, &ours, &err));
    a = pinned(64);
    seen = pinned(64);
    data = on_device(0, 64);
    fill(a, 64, 1);
    REQUIRE_OK(ckpt__cuda_enter(0, &err));
    REQUIRE(driver_table->cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)data, a, 64, theirs) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    REQUIRE_OK(ops->to_host(ours, seen, data, 64, &err));
    REQUIRE_OK(ops->synchronize(0, &err));
    REQUIRE(!holds(seen, 64, 1) && seen[0] == 0xff);
    REQUIRE_OK(ckpt__cuda_enter(0, &err));
    REQUIRE(driver_table->cuStreamDestroy_v2(theirs) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt__cuda_leave(CKPT_OK, &err));
    ops->stream_free(ours);
    OP(ops->release(0, data, &err));
    ops->host_free(a);
    ops->host_free(seen);
}

START_TEST(reversed_streams)
{
    static const char *const env[] = {"FAKECUDA_REVERSE=1", NULL};
    expect_success(unordered, NULL, env);
}
END_TEST

/* ---- faults: the n-th call of the driver fails, for every n */

typedef struct fault {
    uint64_t n;
    int once;
} fault;

enum { CODE = CUDA_ERROR_ILLEGAL_ADDRESS, PASSED_OVER = 41, NOT_REACHED = 42 };

typedef struct script {
    ckpt__stream *stream, *second;
    ckpt__event *event;
    void *a, *b, *host;
    bool torn; /* the fault was met by a call that frees: it could not enter the device */
} script;

static ckpt_status steps(script *s, ckpt_error *e)
{
    ckpt_status r;
    ckpt_memory m;
    uint64_t unused;
    if ((r = ckpt_device_check(ckpt_cuda(1), e)) || (r = ops->stream_new(1, &s->stream, e)) ||
        (r = ops->stream_new(0, &s->second, e)) || (r = ops->event_new(1, &s->event, e)) ||
        (r = ops->alloc(1, 4096, &s->a, e)) || (r = ops->alloc(0, 4096, &s->b, e)) ||
        (r = ops->host_alloc(8192, &s->host, e)))
        return r;
    if ((r = ckpt_device_info(ckpt_cuda(1), NULL, 0, &unused, &unused, NULL, e)) ||
        (r = ckpt_device_query(s->a, 4096, &m, e)) || (r = ops->follow(s->stream, NULL, e)) ||
        (r = ops->to_device(s->stream, s->a, s->host, 4096, e)) || (r = ops->event_record(s->event, s->stream, e)) ||
        (r = ops->event_wait(s->event, e)) || (r = ops->zero(1, s->a, 64, s->stream, e)) ||
        (r = ops->to_device_2d(s->stream, s->a, 64, s->host, 32, 32, 4, e)) ||
        (r = ops->on_device(s->stream, s->a, (char *)s->a + 2048, 1024, e)) ||
        (r = ops->to_host(s->stream, (char *)s->host + 4096, s->a, 4096, e)) ||
        (r = ops->precede(s->stream, NULL, e)) || (r = ops->stream_sync(s->stream, e)) ||
        (r = ops->between(0, s->b, 1, s->a, 4096, e)) || (r = ops->synchronize(1, e)) ||
        (r = ops->zero(0, s->b, 64, NULL, e)))
        return r;
    return CKPT_OK;
}

/* A query goes on where the driver cannot follow a range in one context; what came before is then asked elsewhere. A
 * later call may meet the fault instead. */
static bool tolerated(const char *call)
{
    static const char *const calls[] = {"cuMemGetAddressRange_v2", "cuCtxGetCurrent", "cuCtxPushCurrent_v2",
                                        "cuCtxPopCurrent_v2", "cuCtxGetDevice"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i], call) == 0)
            return true;
    return false;
}

static void with_fault(const void *arg)
{
    const fault *f = arg;
    script s = {0};
    fakecuda_counts live;
    standin();
    FAKE(fakecuda_fail_at)(f->n, CODE, f->once);
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    ckpt_status r = steps(&s, &err);
    const char *failed = FAKE(fakecuda_failed_call)();
    if (failed && r == CKPT_OK)
        REQUIRE(tolerated(failed));
    else if (failed) {
        bool at_start = !strcmp(failed, "cuInit") || !strcmp(failed, "cuDeviceGetCount");
        REQUIRE(r == CKPT_E_DEVICE && err.status == r && strncmp(err.object, "cuda", 4) == 0);
        REQUIRE(at_start || err.device_code == CODE);
        REQUIRE(strstr(err.message, failed) || (!f->once && tolerated(failed)));
        REQUIRE(strstr(err.message, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    }
    /* Everything is freed, whatever happened; where the fault comes now, only what could not be reached stays. */
    ops->stream_free(s.stream);
    ops->stream_free(s.second);
    ops->event_free(s.event);
    ops->release(1, s.a, NULL);
    ops->release(0, s.b, NULL);
    ops->host_free(s.host);
    bool passed = failed && r == CKPT_OK, late = !failed && (failed = FAKE(fakecuda_failed_call)()) != NULL;
    FAKE(fakecuda_live)(&live);
    size_t left = live.allocations + live.host + live.streams + live.events;
    if (left > (late && !strcmp(failed, "cuCtxPushCurrent_v2") ? 1u : 0u) || live.pushed) {
        FAKE(fakecuda_check_leaks)();
        fprintf(stderr, "after a fault of %s: %s\n", failed ? failed : "nothing", err.message);
        _exit(1);
    }
    _exit(passed ? PASSED_OVER : FAKE(fakecuda_failed_call)() ? 0 : NOT_REACHED);
}

START_TEST(fault_at_every_call)
{
    fault f = {1, _i};
    int passed = 0;
    for (;; f.n++) {
        child c = run_child(with_fault, &f, NULL);
        ck_assert_msg(WIFEXITED(c.status), "call %d, %s: status %#x: %s", (int)f.n, f.once ? "once" : "for ever",
                      (unsigned)c.status, c.text);
        if (WEXITSTATUS(c.status) == NOT_REACHED)
            break;
        if (WEXITSTATUS(c.status) == PASSED_OVER) {
            passed++;
            continue;
        }
        ck_assert_msg(WEXITSTATUS(c.status) == 0, "call %d, %s: %s", (int)f.n, f.once ? "once" : "for ever", c.text);
    }
    ck_assert_msg(f.n > 90, "the script has %d calls", (int)f.n);
    ck_assert_msg(passed <= 6, "%d faults were passed over", passed);
}
END_TEST

static void device_reset(const void *arg)
{
    (void)arg;
    void *p;
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ops->alloc(0, 64, &p, &err));
    REQUIRE(FAKE(cuDevicePrimaryCtxReset_v2)(0) == CUDA_SUCCESS);
    REQUIRE(ops->alloc(0, 64, &p, &err) == CKPT_E_DEVICE && err.device_code == CUDA_ERROR_CONTEXT_IS_DESTROYED);
    REQUIRE(strstr(err.message, "cudaDeviceReset"));
}

START_TEST(reset_by_the_program)
{
    expect_success(device_reset, NULL, NULL);
}
END_TEST

static void forked(const void *arg)
{
    (void)arg;
    int status = 0;
    void *p;
    ckpt_memory m;
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ops->alloc(0, 64, &p, &err));
    pid_t pid = fork();
    if (pid == 0) {
        void *q;
        REQUIRE(ops->alloc(0, 64, &q, &err) == CKPT_E_DEVICE && strstr(err.message, "does not survive fork"));
        REQUIRE(ckpt_device_query(p, 64, &m, &err) == CKPT_E_DEVICE && strstr(err.message, "forked"));
        _exit(0);
    }
    REQUIRE(waitpid(pid, &status, 0) == pid && status == 0);
    REQUIRE_OK(ops->release(0, p, &err));
}

START_TEST(use_after_fork)
{
    expect_success(forked, NULL, NULL);
}
END_TEST

/* ---- drivers that do not work: one line that says why, and the host goes on */

static void no_driver(const void *said)
{
    const char *why = NULL;
    int count = -1;
    ckpt_memory m;
    void *p;
    REQUIRE_OK(ckpt_device_count(CKPT_DEVICE_CUDA, &count, &why, &err));
    REQUIRE(count == 0 && why);
    if (!strstr(why, (const char *)said) || strchr(why, '\n')) {
        fprintf(stderr, "'%s' is not in: %s\n", (const char *)said, why);
        _exit(1);
    }
    REQUIRE(ckpt_device_check(ckpt_cuda(0), &err) == CKPT_E_DEVICE);
    REQUIRE(strstr(err.message, why) && strcmp(err.object, "cuda:0") == 0);
    REQUIRE(ckpt__device_ops_of(CKPT_DEVICE_CUDA)->alloc(0, 1, &p, &err) == CKPT_E_DEVICE && !p);
    REQUIRE(ckpt__device_ops_of(CKPT_DEVICE_CUDA)->host_alloc(1, &p, &err) == CKPT_E_DEVICE && !p);
    REQUIRE(!ckpt__cuda_active());
    REQUIRE_OK(ckpt_device_query(&m, sizeof m, &m, &err));
    REQUIRE(m.kind == CKPT_MEMORY_HOST);
    REQUIRE_OK(ckpt__device_ops_of(CKPT_DEVICE_CPU)->alloc(-1, 64, &p, &err));
    ckpt__device_ops_of(CKPT_DEVICE_CPU)->release(-1, p, &err);
}

START_TEST(driver_refuses)
{
    static const struct {
        const char *env, *says;
    } cases[] = {
        {"FAKECUDA_FAIL_CODE=100", "finds no device"},
        {"FAKECUDA_FAIL_CODE=803", "different versions"},
        {"FAKECUDA_FAIL_CODE=34", "stub"},
        {"FAKECUDA_FAIL_CODE=802", "fabric manager"},
        {"FAKECUDA_FAIL_CODE=804", "forward-compatibility"},
        {"FAKECUDA_FAIL_CODE=304", "/dev/nvidia"},
        {"FAKECUDA_FAIL_CODE=999", "nvidia-smi"},
        {"FAKECUDA_FAIL_CODE=3", "forked"},
        {"FAKECUDA_FAIL_CODE=2", "no memory"},
        {"FAKECUDA_FAIL_CODE=214", "cuInit: CUDA_ERROR_ECC_UNCORRECTABLE"},
        {"FAKECUDA_FAIL_CODE=777", "cuInit: CUresult 777"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *env[] = {"FAKECUDA_FAIL_AT=1", cases[i].env, NULL};
        expect_success(no_driver, cases[i].says, env);
    }
    const char *none[] = {"FAKECUDA_DEVICES=0", NULL};
    expect_success(no_driver, "finds no device", none);
}
END_TEST

/* LD_LIBRARY_PATH is read when a program starts: this one starts itself again. */
static void restart(const void *arg)
{
    const char *const *words = arg; /* what is to be said */
    execl("/proc/self/exe", "test_device", "--no-driver", words[0], (char *)NULL);
    _exit(1);
}

START_TEST(no_library)
{
    char dir[] = "/tmp/ckpt-device-XXXXXX", path[64], env_path[64];
    const char *env[] = {env_path, NULL};
    const char *broken = "no CUDA driver on this machine: ", *old = "libcuda.so.1 has no cuInit";
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/libcuda.so.1", dir);
    snprintf(env_path, sizeof env_path, "LD_LIBRARY_PATH=%s", dir);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("this is not a library\n", file);
    fclose(file);
    expect_success(restart, &broken, env);
    unlink(path);
    /* Some library that is no driver at all. */
    Dl_info info;
    ck_assert_int_ne(dladdr((void *)(uintptr_t)&fopen, &info), 0);
    char *real = realpath(info.dli_fname, NULL);
    if (real && strstr(real, ".so") && symlink(real, path) == 0)
        expect_success(restart, &old, env);
    free(real);
    unlink(path);
    /* None: unless this machine has one of its own. */
    child c = run_child(restart, &broken, env);
    ck_assert_msg(c.status == 0 || strstr(c.text, "count == 0") != NULL, "%s", c.text);
    rmdir(dir);
}
END_TEST
#endif

static Suite *suite(void)
{
    Suite *s = suite_create("device");
    TCase *names = tcase_create("names"), *host = tcase_create("host");
    tcase_add_test(names, good_devices);
    tcase_add_test(names, bad_devices);
    tcase_add_test(names, names_and_equality);
    suite_add_tcase(s, names);
    tcase_add_test(host, cpu_vtable);
    tcase_add_test(host, cpu_public);
    tcase_add_test(host, query_loads_nothing);
    suite_add_tcase(s, host);
    TCase *cuda = tcase_create("cuda");
    tcase_set_timeout(cuda, 300);
#ifndef HAVE_CUDA_H
    tcase_add_test(cuda, built_without_cuda);
#else
    tcase_add_loop_test(cuda, vtable_on_standin, 0, 6);
    tcase_add_test(cuda, query_verdicts);
    tcase_add_test(cuda, query_of_the_programs_memory);
    tcase_add_test(cuda, no_context_without_need);
    tcase_add_loop_test(cuda, stream_of_another_context, 0, 2);
    tcase_add_test(cuda, reversed_streams);
    tcase_add_loop_test(cuda, fault_at_every_call, 0, 2);
    tcase_add_test(cuda, reset_by_the_program);
    tcase_add_test(cuda, use_after_fork);
    tcase_add_test(cuda, driver_refuses);
    tcase_add_test(cuda, no_library);
#endif
    suite_add_tcase(s, cuda);
    return s;
}

int main(int argc, char **argv)
{
#ifdef HAVE_CUDA_H
    if (argc == 3 && strcmp(argv[1], "--no-driver") == 0) {
        no_driver(argv[2]);
        return 0;
    }
#else
    (void)argc;
    (void)argv;
#endif
    return run_suite(suite());
}
