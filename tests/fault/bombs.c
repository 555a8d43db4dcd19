/* bombs.c - for tests/cli/bombs_test.sh:
 *     bombs make DIRECTORY          writes one of each kind
 *     bombs run BYTES COMMAND...    runs it, and says what it took where that is more than suits files of so many bytes
 * run: exit status 0 to 2 are the command's; 99: too much memory, or a signal. BYTES 0: any memory will do. */
#include "bombs.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[600];

static const char *in(const char *directory, const char *prefix, const char *name)
{
    snprintf(path, sizeof path, "%s/%s%s", directory, prefix, name);
    return path;
}

static int make(const char *to)
{
    enum { SIZE = 800 << 10, INFLATED = 4 << 20 };
    static const char tensor[] = BOMB_TENSORS "h\0h\1R";
    for (size_t i = 0; i < BOMB_PICKLES; i++) {
        const bomb_pickle *p = &bomb_pickles[i];
        bomb_make(in(to, "stored-", p->name), p, SIZE, STORED);
        if (!p->sound) /* small enough to be read */
            bomb_make(in(to, "small-", p->name), p, SIZE / 4, STORED);
        if (i % 3 == 0)
            bomb_make(in(to, "deflated-", p->name), p, INFLATED, DEFLATED);
        if (i % 4 == 1)
            bomb_make(in(to, "bare-", p->name), p, SIZE, BARE);
    }
    bomb_make(in(to, "legacy-", "tensors"), &bomb_pickles[19], SIZE, LEGACY);
    bomb_shared(in(to, "", "shared-texts"), "X\3\0\0\0abc", 8, 5, 10);
    bomb_shared(in(to, "", "shared-tensors"), tensor, sizeof tensor - 1, 4, 10);
    bomb_shared(in(to, "", "shared-without-end"), "N", 1, 60, 10);
    bomb_keys(in(to, "", "keys"), "X\1\0\0\0a", 6, 1000, 100);
    bomb_keys(in(to, "", "longer-keys"), "N", 1, 60000, 9000);
    bomb_deep(in(to, "", "deep"), 900);
    bomb_safetensors(in(to, "", "header.safetensors"), "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}",
                     ",\"t%zu\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}", "}", SIZE);
    bomb_safetensors(in(to, "", "metadata.safetensors"), "{\"__metadata__\":{\"a\":\"\"", ",\"%zu\":\"\"",
                     "},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", SIZE);
    bomb_folder(in(to, "", "trained"), "trainer_state.json", "model.safetensors",
                "{\"global_step\":1,\"log_history\":[{}", ",{\"step\":%zu,\"loss\":1.5}", "]}", SIZE);
    bomb_folder(in(to, "", "configured"), "config.json", "model.safetensors", "{\"model_type\":\"x\",\"a\":[[]", ",[]",
                "]}", SIZE);
    return 0;
}

static int run(uint64_t size, char **argv)
{
    int status;
    struct rusage used;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit most = {(rlim_t)8 << 30, (rlim_t)8 << 30};
        if (size)
            setrlimit(RLIMIT_AS, &most);
        alarm(120);
        execv(argv[0], argv);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &used) != pid)
        return 99;
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 2) {
        fprintf(stderr, "bombs: it ended with the wait status %#x\n", (unsigned)status);
        return 99;
    }
    uint64_t took = (uint64_t)used.ru_maxrss * 1024, bound = bomb_bound(size);
    if (size && took > bound) {
        fprintf(stderr, "bombs: it took %llu KiB; %llu KiB are the bound\n", (unsigned long long)(took >> 10),
                (unsigned long long)(bound >> 10));
        return 99;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "make") == 0)
        return make(argv[2]);
    if (argc > 3 && strcmp(argv[1], "run") == 0)
        return run(strtoull(argv[2], NULL, 10), argv + 3);
    fputs("bombs make DIRECTORY | bombs run BYTES COMMAND...\n", stderr);
    return 2;
}
