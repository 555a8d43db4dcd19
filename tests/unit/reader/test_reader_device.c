/* test_reader_device.c - a tensor of a checkpoint read straight into a device's memory, on the stand-in. Each case runs
 * in a process of its own; the stand-in ends it when a rule of CUDA is broken or something leaks. */
#include "../runner.h"

#pragma GCC diagnostic ignored "-Wunused-function" /* restore_checks.h has more than is used here */
#include "../child.h"
#include "reader/reader.h"
#include "../restore_checks.h"
#include "../../fakecuda/fakecuda.h"

static char folder[64];

#define FAKE(name) ((__typeof__(name) *)(uintptr_t)driver_function(#name))

static ckpt_reader *open_saved(float seed)
{
    ckpt_reader *reader = NULL;
    live l;
    open_live(&l, -1, -1, seed);
    REQUIRE_OK(ckpt_save(l.state, path, NULL, &err));
    close_live(&l, -1);
    REQUIRE_OK(ckpt_reader_open(path, NULL, &reader, &err));
    return reader;
}

static size_t number(const ckpt_reader *reader, const char *name)
{
    size_t i = 0;
    REQUIRE_OK(ckpt_reader_find(reader, name, strlen(name), &i, &err));
    return i;
}

/* More than the ring of buffers holds, so that each is used again. */
static void whole_tensors(const void *arg)
{
    int device = *(const int *)arg;
    big_shape[0] = rows = 4000; /* 48 MB */
    ckpt_reader *reader = open_saved(3);
    float *big = alloc(device, BIG * 4), *small = alloc(device, SMALL * 4);
    for (int again = 0; again < 2; again++) {
        REQUIRE_OK(ckpt_reader_read_to(reader, number(reader, "big"), of(device), NULL, big, BIG * 4, &err));
        REQUIRE(holds(device, big, BIG, 3));
        put(device, big, BIG, 100);
    }
    REQUIRE_OK(ckpt_reader_read_to(reader, number(reader, "small"), of(device), NULL, small, SMALL * 4, &err));
    float *as_read = malloc(SMALL * 4), *there = malloc(SMALL * 4);
    REQUIRE_OK(ckpt_reader_read(reader, number(reader, "small"), as_read, SMALL * 4, &err));
    copy(-1, there, device, small, SMALL * 4);
    REQUIRE(memcmp(as_read, there, SMALL * 4) == 0);
    ckpt_reader_close(reader);
    release(device, big);
    release(device, small);
    free(as_read);
    free(there);
}

FAKECUDA_TWIN(add_one, sizeof(void *), sizeof(int))
{
    int n = FAKECUDA_PARAM(int, 1);
    float *x = launch->range(FAKECUDA_PARAM(uint64_t, 0), (size_t)n * sizeof *x);
    for (int i = 0; i < n; i++)
        x[i] += 1;
}

static const unsigned char image[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};

/* What was queued before comes first, in the stream that is named; what is queued after sees the tensor. */
static void in_order(const void *arg)
{
    bool own_stream = *(const int *)arg;
    CUcontext context;
    CUmodule module;
    CUfunction f;
    CUstream stream = NULL;
    ckpt_reader *reader = open_saved(5);
    float *big = alloc(1, BIG * 4);
    uint64_t pointer = (uint64_t)(uintptr_t)big;
    int n = (int)BIG;
    void *params[] = {&pointer, &n};
    put(1, big, BIG, 0);
    REQUIRE(CU(cuDevicePrimaryCtxRetain)(&context, 1) == CUDA_SUCCESS && CU(cuCtxSetCurrent)(context) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleLoadData)(&module, image) == CUDA_SUCCESS &&
            CU(cuModuleGetFunction)(&f, module, "add_one") == CUDA_SUCCESS);
    if (own_stream)
        REQUIRE(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
    REQUIRE_OK(ckpt_reader_read_to(reader, number(reader, "big"), ckpt_cuda(1), stream, big, BIG * 4, &err));
    REQUIRE(holds(1, big, BIG, 5));
    REQUIRE(CU(cuLaunchKernel)(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL) == CUDA_SUCCESS);
    REQUIRE(CU(cuStreamSynchronize)(stream) == CUDA_SUCCESS);
    REQUIRE(holds(1, big, BIG, 6));
    ckpt_reader_close(reader);
    if (own_stream)
        REQUIRE(CU(cuStreamDestroy_v2)(stream) == CUDA_SUCCESS);
    REQUIRE(CU(cuModuleUnload)(module) == CUDA_SUCCESS);
    release(1, big);
    REQUIRE(CU(cuCtxSetCurrent)(NULL) == CUDA_SUCCESS && CU(cuDevicePrimaryCtxRelease_v2)(1) == CUDA_SUCCESS);
}

static void refused(const void *arg)
{
    (void)arg;
    ckpt_reader *reader = open_saved(1);
    size_t small = number(reader, "small");
    float host[SMALL], *there = alloc(0, SMALL * 4);
    put(0, there, SMALL, 9);
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(1), NULL, there, SMALL * 4, &err) == CKPT_E_MISMATCH);
    REQUIRE(strstr(err.message, "cuda:1") && strstr(err.message, "memory of cuda:0"));
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(0), NULL, host, SMALL * 4, &err) == CKPT_E_MISMATCH);
    REQUIRE(strstr(err.message, "host memory"));
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(0), NULL, there, SMALL * 4 - 1, &err) == CKPT_E_ARGUMENT);
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(2), NULL, there, SMALL * 4, &err) == CKPT_E_DEVICE);
    REQUIRE(ckpt_reader_read_to(reader, 99, ckpt_cuda(0), NULL, there, SMALL * 4, &err) == CKPT_E_ARGUMENT);
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(0), NULL, NULL, SMALL * 4, &err) == CKPT_E_ARGUMENT);
    REQUIRE(strcmp(err.object, "small") == 0 && strstr(err.message, "no buffer was given"));
    /* A device's memory for the host's: said, where a copy would be a fault. */
    REQUIRE(ckpt_reader_read(reader, small, there, SMALL * 4, &err) == CKPT_E_MISMATCH);
    REQUIRE(strstr(err.message, "bytes of host memory; given: memory of cuda:0 (ckpt_reader_read_to"));
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cpu(), NULL, there, SMALL * 4, &err) == CKPT_E_MISMATCH);
    REQUIRE(strcmp(err.object, "small") == 0 && strstr(err.message, "memory of cuda:0"));
    /* One that is not dense and of no bytes is refused all the same. */
    static const ckpt_tensor_extra nested = {.layout = {"nested", 6}};
    ckpt__tensor *t = &reader->index->tensors[small], as_it_was = *t;
    t->info.extra = &nested;
    t->info.nbytes = t->whole = 0;
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(0), NULL, NULL, 0, &err) == CKPT_E_UNSUPPORTED);
    *t = as_it_was;
    /* A buffer that ends too early. */
    float *short_one = alloc(0, 512);
    REQUIRE(ckpt_reader_read_to(reader, number(reader, "big"), ckpt_cuda(0), NULL, short_one, BIG * 4, &err) ==
            CKPT_E_MISMATCH);
    REQUIRE(holds(0, there, SMALL, 9));
    ckpt_reader_close(reader);
    release(0, short_one);
    release(0, there);
}

/* Each call of the driver fails in turn: nothing is left behind when the reader is closed. */
static void nth_failure(const void *arg)
{
    (void)arg;
    big_shape[0] = rows = 3;
    float *big = alloc(1, BIG * 4);
    bool clean = false;
    for (uint64_t n = 1; !clean; n++) {
        fakecuda_counts before, after;
        ckpt_reader *reader = open_saved(7);
        FAKE(fakecuda_live)(&before);
        FAKE(fakecuda_fail_at)(n, CUDA_ERROR_UNKNOWN, 1);
        ckpt_status status = ckpt_reader_read_to(reader, number(reader, "big"), ckpt_cuda(1), NULL, big, BIG * 4, &err);
        bool same = status == CKPT_OK;
        ckpt_reader_close(reader);
        clean = FAKE(fakecuda_failed_call)() == NULL;
        FAKE(fakecuda_fail_at)(0, 0, 1);
        REQUIRE(n < 500);
        REQUIRE(status == CKPT_OK || (status == CKPT_E_DEVICE && strstr(err.message, "CUDA_ERROR_UNKNOWN")));
        REQUIRE(!same || holds(1, big, BIG, 7));
        REQUIRE(!clean || same);
        /* The event that marks where the default stream stood may still stand in it. */
        REQUIRE_OK(ckpt__device_ops_of(CKPT_DEVICE_CUDA)->synchronize(1, &err));
        FAKE(fakecuda_live)(&after);
        REQUIRE(after.allocations == before.allocations && after.host == before.host &&
                after.streams == before.streams);
        REQUIRE(after.events == before.events && after.pushed == before.pushed && after.pending == 0);
        put(1, big, BIG, 50);
    }
    release(1, big);
}

static void no_driver(const void *arg)
{
    (void)arg;
    ckpt_reader *reader = open_saved(2);
    float host[SMALL], same[SMALL];
    size_t small = number(reader, "small");
    REQUIRE(ckpt_reader_read_to(reader, small, ckpt_cuda(0), NULL, host, sizeof host, &err) == CKPT_E_DEVICE);
    REQUIRE_OK(ckpt_reader_read_to(reader, small, ckpt_cpu(), NULL, host, sizeof host, &err));
    REQUIRE_OK(ckpt_reader_read(reader, small, same, sizeof same, &err));
    REQUIRE(memcmp(host, same, sizeof same) == 0);
    ckpt_reader_close(reader);
}

/* ---- the cases */

static const char *const one[] = {"FAKECUDA_DEVICES=1", NULL}, *const two[] = {"FAKECUDA_DEVICES=2", NULL},
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

START_TEST(tensors_go_to_devices)
{
    expect_success(whole_tensors, (int[]){0}, one);
    expect_success(whole_tensors, (int[]){1}, two_reversed);
    expect_success(whole_tensors, (int[]){-1}, none);
}
END_TEST

START_TEST(ordered_with_the_callers_stream)
{
    for (int own = 0; own < 2; own++) {
        expect_success(in_order, &own, two);
        expect_success(in_order, &own, two_reversed);
    }
}
END_TEST

START_TEST(other_memory_is_refused)
{
    expect_success(refused, NULL, two);
    expect_success(no_driver, NULL, none);
}
END_TEST

START_TEST(each_driver_call_fails_in_turn)
{
    expect_success(nth_failure, NULL, two);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("reading to devices");
    TCase *t = tcase_create("reading to devices");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, tensors_go_to_devices);
    tcase_add_test(t, ordered_with_the_callers_stream);
    tcase_add_test(t, other_memory_is_refused);
    tcase_add_test(t, each_driver_call_fails_in_turn);
    suite_add_tcase(s, t);
    return run_suite(s);
}
