/* pair_case.c - one run of the library for bench/pairs: reads, restores or saves all tensors of a file, and is done. And what runs a
 * program and says what that took: the peak of a process counts what it was before its exec, and Python is large. */
#define _GNU_SOURCE
#include <ckpt/ckpt.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "pair_case: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

static void *take(size_t size)
{
    void *p = malloc(size ? size : 1);
    if (!p)
        die("out of memory", NULL);
    return p;
}

/* Each tensor with elements of the file, in memory of ours: on the host, with its dimensions in the other order, or on a device. */
static ckpt_state *bind(const ckpt_reader *reader, bool strided, bool device)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    for (size_t i = 0; state && i < ckpt_reader_tensor_count(reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        int64_t strides[8], pitch = 1;
        for (uint32_t k = 0; k < t->ndim && k < 8; pitch *= t->shape[k++])
            strides[k] = pitch;
        d.name = t->name.data;
        d.role = t->role;
        d.dtype = t->dtype;
        d.ndim = t->ndim;
        d.shape = t->shape;
        d.strides = strided && t->ndim <= 8 ? strides : NULL;
        d.data = device ? NULL : take((size_t)t->nbytes);
        d.device = (ckpt_device){device ? CKPT_DEVICE_CUDA : CKPT_DEVICE_CPU, 0};
        if (ckpt_state_tensor(state, &d, &err) < 0)
            die("state", &err);
    }
    return state;
}

static void read_all(const ckpt_reader *reader)
{
    ckpt_error err = CKPT_ERROR_INIT;
    size_t room = 0;
    void *to = NULL;
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) {
        size_t size = (size_t)ckpt_reader_tensor(reader, i)->nbytes;
        if (size > room) {
            free(to);
            to = take(room = size);
        }
        if (ckpt_reader_read(reader, i, to, size, &err) < 0)
            die("read", &err);
    }
    free(to);
}

static double seconds(struct timespec t)
{
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned long long io_of(pid_t pid, const char *key)
{
    char path[64], line[100];
    unsigned long long value = 0;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            value = strtoull(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return value;
}

/* Seconds, seconds of CPU, bytes read, reads, peak in KiB: one line. The program's own output goes nowhere. */
static int run(char **command)
{
    struct timespec begin, end;
    struct rusage used;
    siginfo_t info;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    pid_t pid = fork();
    if (pid == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        execv(command[0], command);
        _exit(127);
    }
    if (pid < 0 || waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0)
        die("cannot run it", NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    unsigned long long bytes = io_of(pid, "rchar:"), reads = io_of(pid, "syscr:");
    wait4(pid, &status, 0, &used);
    printf("%.6f %.6f %llu %llu %ld\n", seconds(end) - seconds(begin),
           (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6,
           bytes, reads, used.ru_maxrss);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_reader *reader;
    if (argc == 2 && strcmp(argv[1], "--version") == 0)
        return puts(ckpt_version()) < 0;
    if (argc < 3) {
        fprintf(
            stderr,
            "usage: pair_case run PROGRAM...|--version|read|restore|restore-strided|restore-cuda|save FILE [OUT]\n");
        return 2;
    }
    const char *job = argv[1];
    if (strcmp(job, "run") == 0)
        return run(argv + 2);
    if (ckpt_reader_open(argv[2], NULL, &reader, &err) < 0)
        die("open", &err);
    if (strcmp(job, "read") == 0) {
        read_all(reader);
        ckpt_reader_close(reader);
        return 0;
    }
    ckpt_state *state = bind(reader, strcmp(job, "restore-strided") == 0, strcmp(job, "restore-cuda") == 0);
    ckpt_reader_close(reader);
    if (ckpt_restore(state, argv[2], NULL, NULL, &err) < 0)
        die("restore", &err);
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    options.no_sync = true;
    if (strcmp(job, "save") == 0 && argc == 4 && ckpt_save(state, argv[3], &options, &err) < 0)
        die("save", &err);
    ckpt_state_free(state);
    return 0;
}
