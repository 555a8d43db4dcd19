/* tests/fault/world.h - the training that the fault tests save: everything that can be bound, and a tensor that can be
 * made large enough to be written past the page cache. And small changes to directories. */
#ifndef WORLD_H
#define WORLD_H
#define SCRATCH_ON_DISK
#include "../unit/state_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <ckpt/run.h>

enum { WORLD_SMALL = 16, WORLD_BIG = 300000 };

typedef struct world {
    training t;
    float big[WORLD_BIG];
} world;

static int64_t world_count[] = {WORLD_SMALL};

/* What a step holds depends on the seed, too: the same step can be saved twice. */
static void fill_world(world *w, int64_t step, unsigned seed)
{
    fill(&w->t, seed);
    w->t.step = step;
    for (int64_t i = 0; i < world_count[0]; i++)
        w->big[i] = (float)seed + (float)i * 0.25f;
}

static bool world_is(const world *w, int64_t step, unsigned seed)
{
    static world expected;
    fill_world(&expected, step, seed);
    return memcmp(&w->t, &expected.t, sizeof w->t) == 0 &&
           memcmp(w->big, expected.big, (size_t)world_count[0] * sizeof *w->big) == 0;
}

static ckpt_state *bind_world(world *w)
{
    ckpt_state *s = bind_all(&w->t);
    bind_tensor(s, "big", NULL, CKPT_ROLE_PARAM, CKPT_F32, 1, world_count, NULL, w->big);
    return s;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static void remove_tree(const char *path)
{
    char below[400];
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (e->d_type == DT_DIR)
            remove_tree(below);
        else
            unlink(below);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static void put_file(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ck_assert_msg(fd >= 0 && write(fd, data, n) == (ssize_t)n, "%s: cannot write it", path);
    close(fd);
}

/* The file's bytes, to be freed. */
static char *get_file(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY);
    ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "%s: cannot read it", path);
    *n = (size_t)st.st_size;
    char *data = malloc(*n + 1);
    ck_assert(data && read(fd, data, *n) == st.st_size);
    close(fd);
    return data;
}

/* In memory where that can be had: nothing here depends on the file system, and thousands of directories are made. */
static void make_fault_folder(void)
{
    strcpy(folder, "/dev/shm/ckpt-fault-XXXXXX");
    if (!mkdtemp(folder))
        make_folder();
}

static bool is_long(void)
{
    const char *value = getenv("CKPT_FAULT_LONG");
    return value && *value && *value != '0';
}

static unsigned long fault_seed(void)
{
    const char *value = getenv("CKPT_FAULT_SEED");
    return value ? strtoul(value, NULL, 10) : 1;
}
#endif
