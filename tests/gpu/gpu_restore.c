/* tests/gpu/gpu_restore.c - save and restore on the devices of this machine: the cases that the unit tests run on the
 * stand-in. Needs no Check library and no built tree; run.sh compiles it. */
#include <sys/wait.h>
#include "../unit/restore_checks.h"

static int failed;

/* Runs a case in a process of its own, if the machine has as many devices as it needs. */
static void check(const char *title, int devices, int needed, void (*function)(const void *), const void *arg)
{
    int status = -1;
    if (devices < needed) {
        printf("ok - %s # SKIP %d devices are needed, %d are there\n", title, needed, devices);
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        function(arg);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = -1;
    printf("%s - %s\n", status == 0 ? "ok" : "not ok", title);
    failed += status != 0;
}

/* The number of devices, asked for in a child: this process never uses CUDA. */
static int count_devices(void)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int count = 0;
        REQUIRE_OK(ckpt_device_count(CKPT_DEVICE_CUDA, &count, NULL, &err));
        _exit(count > 100 ? 100 : count);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

int main(void)
{
    char folder[] = "/tmp/ckpt-gpu-XXXXXX";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    int n = count_devices();
    check("bytes go round: cpu, cuda:0, cpu", n, 1, round_trips, (int[]){-1, 0, 0, -1, -2});
    check("bytes go round: cpu, cuda:0, cuda:1, cpu", n, 2, round_trips, (int[]){-1, 0, 1, -1, 1, 0, -2});
    check("maps send tensors where they say", n, 2, maps, NULL);
    check("step goes where the optimizer needs it; the guard", n, 1, policy, NULL);
    check("a tensor that is bound on another device than the map's", n, 2, bound_elsewhere, NULL);
    check("four ranks, one read", n, 4, ranks, NULL);
    check("a new head moves too", n, 2, new_head, NULL);
    check("work queued on the trainer's stream", n, 1, queued_copies, &(int){1});
    check("work queued on the default stream", n, 1, queued_copies, &(int){0});
    check("a run saves beside the training and resumes on the cpu", n, 1, run_saves, (int[]){1, -1});
    check("a run on the default stream resumes on cuda:1", n, 2, run_saves, (int[]){0, 1});
    remove(path);
    rmdir(folder);
    return failed != 0 || n == 0;
}
