/* many.c - what many tensors cost: 1000, 10,000, 100,000 and 1,000,000 float32 tensors of 16 bytes, so that nearly all is names, shapes
 * and places. Each column shall be ten times the one before it, and no more.
 *
 *     many DIR CKPT_INSPECT CKPT_MIGRATE ROUNDS [MOST]
 *
 * Seconds are medians of the rounds, of the call or of a whole process. A peak is the most of any round, in MiB of resident memory. bind,
 * save and restore are one process, whose peak after each is shown: a restore has all that the save before it left behind. For
 * bench/growth.py a line that begins with '#' has each round's seconds, and that peak in KiB. */
#include <ckpt/ckpt.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TENSOR = 16, MOST_ROUNDS = 99, DECADES = 4, FEWEST = 1000 };
enum { BIND, BIND_ONE, SAVE, RESTORE, LIST, LIST_JSON, SHOW, MIGRATE, STEPS };

static const char *const step_names[STEPS] = {
    [BIND] = "bind an arena", [BIND_ONE] = "bind one by one", [SAVE] = "save", [RESTORE] = "restore",
    [LIST] = "list",          [LIST_JSON] = "list --json",    [SHOW] = "show", [MIGRATE] = "migrate --to torch",
};

typedef struct cost {
    double seconds;
    long peak; /* KiB */
} cost;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static long peak(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;
}

static void die(const char *what, const ckpt_error *err)
{
    fprintf(stderr, "many: %s: %s %s\n", what, err ? err->object : "", err ? err->message : "");
    exit(1);
}

static cost since(double start)
{
    return (cost){now() - start, peak()};
}

/* ---- the library */

typedef struct tensors {
    size_t count;
    char *memory, (*names)[40];
    ckpt_arena_entry *entries;
} tensors;

static const int64_t shape[1] = {TENSOR / 4};

static tensors make(size_t count)
{
    tensors t = {.count = count,
                 .memory = calloc(count, TENSOR),
                 .names = calloc(count, sizeof *t.names),
                 .entries = calloc(count, sizeof *t.entries)};
    if (!t.memory || !t.names || !t.entries)
        die("memory", NULL);
    for (size_t i = 0; i < count; i++) {
        snprintf(t.names[i], sizeof t.names[i], "layers.%zu.weight", i);
        t.entries[i] = (ckpt_arena_entry){t.names[i], (uint64_t)i * TENSOR, 1, shape};
        memset(t.memory + i * TENSOR, (int)(i % 251), TENSOR);
    }
    return t;
}

static ckpt_state *bind(const tensors *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_arena_desc arena = CKPT_ARENA_DESC_INIT;
    ckpt_state *state = ckpt_state_new();
    arena.data = t->memory;
    arena.nbytes = t->count * TENSOR;
    arena.dtype = CKPT_F32;
    arena.role = CKPT_ROLE_PARAM;
    if (!state || ckpt_state_arena(state, &arena, t->entries, t->count, &err) < 0)
        die("bind", &err);
    return state;
}

static ckpt_state *bind_one_by_one(const tensors *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    for (size_t i = 0; state && i < t->count; i++) {
        ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
        d.name = t->names[i];
        d.dtype = CKPT_F32;
        d.role = CKPT_ROLE_PARAM;
        d.ndim = 1;
        d.shape = shape;
        d.data = t->memory + i * TENSOR;
        if (ckpt_state_tensor(state, &d, &err) < 0)
            die("bind", &err);
    }
    return state ? state : (die("state", NULL), NULL);
}

static void in_process(const char *file, size_t count, cost *costs)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_save_options options = CKPT_SAVE_OPTIONS_INIT;
    tensors t = make(count);
    options.no_sync = true;
    double start = now();
    ckpt_state *state = bind(&t);
    costs[BIND] = since(start);
    free(t.entries);
    free(t.names);
    start = now();
    if (ckpt_save(state, file, &options, &err) < 0)
        die("save", &err);
    costs[SAVE] = since(start);
    memset(t.memory, 255, count * TENSOR);
    start = now();
    if (ckpt_restore(state, file, NULL, NULL, &err) < 0)
        die("restore", &err);
    costs[RESTORE] = since(start);
    for (size_t i = 0; i < count * TENSOR; i++)
        if ((unsigned char)t.memory[i] != i / TENSOR % 251)
            die("restored otherwise", NULL);
    ckpt_state_free(state);
}

static void one_by_one(size_t count, cost *costs)
{
    tensors t = make(count);
    double start = now();
    ckpt_state *state = bind_one_by_one(&t);
    costs[BIND_ONE] = since(start);
    ckpt_state_free(state);
}

/* ---- processes: a child has a peak of its own, and this process stays small */

static void library(const char *file, size_t count, cost *costs, bool single)
{
    int way[2];
    cost all[STEPS] = {{0}};
    if (pipe(way) != 0)
        die("pipe", NULL);
    pid_t child = fork();
    if (child == 0) {
        if (single)
            one_by_one(count, all);
        else
            in_process(file, count, all);
        _exit(write(way[1], all, sizeof all) == (ssize_t)sizeof all ? 0 : 1);
    }
    close(way[1]);
    if (child < 0 || read(way[0], all, sizeof all) != (ssize_t)sizeof all || waitpid(child, NULL, 0) != child)
        die("child", NULL);
    close(way[0]);
    for (size_t i = 0; i < STEPS; i++)
        if (all[i].peak)
            costs[i] = all[i];
}

static cost command(char *const *words)
{
    struct rusage used;
    int status;
    double start = now();
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1);
        execv(words[0], words);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &used) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die(words[0], NULL);
    return (cost){now() - start, used.ru_maxrss};
}

static void once(char *const *words, size_t count, cost *costs)
{
    char file[4096], target[4096];
    char *inspect = words[1], *migrate = words[2];
    snprintf(file, sizeof file, "%s/many.safetensors", words[0]);
    snprintf(target, sizeof target, "%s/many.pt", words[0]);
    library(file, count, costs, false);
    library(file, count, costs, true);
    costs[LIST] = command((char *[]){inspect, "list", file, NULL});
    costs[LIST_JSON] = command((char *[]){inspect, "list", "--json", file, NULL});
    costs[SHOW] = command((char *[]){inspect, "show", file, NULL});
    costs[MIGRATE] =
        command((char *[]){migrate, "--force", "--no-sync", "-q", "--lossy", "--to", "torch", file, target, NULL});
    unlink(file);
    unlink(target);
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const cost *)a)->seconds, y = ((const cost *)b)->seconds;
    return x < y ? -1 : x > y;
}

static cost table[STEPS][DECADES];

int main(int argc, char **argv)
{
    long rounds = argc >= 5 ? strtol(argv[4], NULL, 10) : 0, most = argc == 6 ? strtol(argv[5], NULL, 10) : 1000000;
    static cost costs[MOST_ROUNDS][STEPS];
    size_t count = FEWEST, decades = 0;
    if (argc < 5 || argc > 6 || rounds < 1 || rounds > MOST_ROUNDS || most < FEWEST) {
        fprintf(stderr, "usage: many DIR CKPT_INSPECT CKPT_MIGRATE ROUNDS [MOST]\n");
        return 2;
    }
    for (; decades < DECADES && count <= (size_t)most; decades++, count *= 10) {
        for (long r = 0; r < rounds; r++)
            once(argv + 1, count, costs[r]);
        for (size_t s = 0; s < STEPS; s++) {
            cost column[MOST_ROUNDS];
            long highest = 0;
            for (long r = 0; r < rounds; r++) {
                column[r] = costs[r][s];
                highest = column[r].peak > highest ? column[r].peak : highest;
            }
            qsort(column, (size_t)rounds, sizeof *column, by_seconds);
            printf("# %zu, %s, %ld,", count, step_names[s], highest);
            for (long r = 0; r < rounds; r++)
                printf(" %.6f", costs[r][s].seconds);
            printf("\n");
            fflush(stdout);
            table[s][decades] = (cost){column[rounds / 2].seconds, highest};
        }
    }
    printf("%-20s", "tensors of 16 bytes");
    for (size_t d = 0, n = FEWEST; d < decades; d++, n *= 10)
        printf("  %18zu", n);
    printf("\n");
    for (size_t s = 0; s < STEPS; s++) {
        printf("%-20s", step_names[s]);
        for (size_t d = 0; d < decades; d++)
            printf("  %8.1f ms %4ld MiB", table[s][d].seconds * 1e3, table[s][d].peak / 1024);
        printf("\n");
    }
    return 0;
}
