/* tests/gpu/gpu_checks.c - the checks that the unit tests run on the stand-in, on the devices of this machine. Needs no
 * Check library and no built tree; run.sh compiles it. */
#include <sys/wait.h>
#include "../unit/device_checks.h"

/* CUDA does not survive fork, so each run is a child of a process that never uses it. */
static int in_child(const char *title, void (*function)(caller), caller before)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        function(before);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = -1;
    printf("%s - %s\n", status == 0 ? "ok" : "not ok", title);
    return status != 0;
}

static void list(caller unused)
{
    const char *why = NULL;
    int count = 0;
    (void)unused;
    REQUIRE_OK(ckpt_device_count(CKPT_DEVICE_CUDA, &count, &why, &err));
    if (count == 0)
        printf("# %s\n", why);
    for (int i = 0; i < count; i++) {
        char name[128];
        uint64_t free_bytes, total;
        bool simulated;
        REQUIRE_OK(ckpt_device_info(ckpt_cuda(i), name, sizeof name, &free_bytes, &total, &simulated, &err));
        printf("# cuda:%d %s, %llu of %llu MiB free\n", i, name, (unsigned long long)free_bytes >> 20,
               (unsigned long long)total >> 20);
        REQUIRE(!simulated || getenv("CKPT_ALLOW_SIMULATED"));
    }
    REQUIRE(count > 0);
}

/* A freed buffer must never again be taken for the device's. */
static void freed(caller unused)
{
    ckpt_memory m;
    (void)unused;
    ops = ckpt__device_ops_of(CKPT_DEVICE_CUDA);
    REQUIRE_OK(ckpt_device_check(ckpt_cuda(0), &err));
    driver_table = ckpt__cuda_loaded();
    void *p = on_device(0, 64 << 20);
    verdict(p, 64 << 20, CKPT_MEMORY_DEVICE, ckpt_cuda(0));
    OP(ops->release(0, p, &err));
    REQUIRE_OK(ckpt_device_query(p, 64 << 20, &m, &err));
    printf("# a freed buffer is judged %s\n", m.kind == CKPT_MEMORY_UNMAPPED ? "unmapped" : "something else");
    REQUIRE(m.kind == CKPT_MEMORY_UNMAPPED);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a check that fails ends its process at once */
    int failed = in_child("devices are there", list, NO_CONTEXT);
    if (failed)
        return 1;
    failed += in_child("the vtable, no context current", check_devices, NO_CONTEXT);
    failed += in_child("the vtable, a context of the program's current", check_devices, OWN_CONTEXT);
    failed += in_child("the vtable, the last device's primary context current", check_devices, PRIMARY_CONTEXT);
    failed += in_child("freed memory", freed, NO_CONTEXT);
    return failed != 0;
}
