/* tests/unit/run/run_files.h - run directories made by hand: manifests as the library writes them, members of any bytes. */
#ifndef RUN_FILES_H
#define RUN_FILES_H
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "format/native/manifest.h"
#include "../runner.h"

static char folder[64];

static inline void make_folder(void)
{
    strcpy(folder, "/tmp/ckpt-run-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static inline void remove_folder(void)
{
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static inline void put_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void put(const char *path, const char *text)
{
    put_bytes(path, text, strlen(text));
}

static inline void make_directory(const char *path)
{
    ck_assert_msg(mkdir(path, 0777) == 0, "mkdir %s", path);
}

typedef struct made {
    int64_t step, world, rank, time;
    uint64_t save;
    size_t size; /* of model.safetensors; that of training.safetensors is always 3 */
} made;

/* `path` becomes a step directory; its manifest's text is left in *text where that is given. */
static inline void make_step_of(const char *path, const made *m, ckpt__buf *text)
{
    static const char filler[4096] = "";
    char member[256];
    ckpt__buf own = {0}, *out = text ? text : &own;
    ckpt__manifest manifest = {
        .count = 2, .step = m->step, .world = m->world, .rank = m->rank, .time = m->time, .save = m->save};
    manifest.files[0] = (ckpt__manifest_file){ckpt__s("model.safetensors"), m->size, 1};
    manifest.files[1] = (ckpt__manifest_file){ckpt__s("training.safetensors"), 3, 2};
    ck_assert_uint_le(m->size, sizeof filler);
    make_directory(path);
    snprintf(member, sizeof member, "%s/model.safetensors", path);
    put_bytes(member, filler, m->size);
    snprintf(member, sizeof member, "%s/training.safetensors", path);
    put(member, "abc");
    ck_assert_int_eq(ckpt__manifest_write(&manifest, out, NULL), CKPT_OK);
    snprintf(member, sizeof member, "%s/checkpoint.json", path);
    put_bytes(member, out->data, out->size);
    ckpt__buf_free(&own);
}

static inline void make_step(const char *path, int64_t step)
{
    made m = {.step = step, .world = 1, .time = 1000 + step, .size = 10};
    make_step_of(path, &m, NULL);
}

/* run/rank-R/step-S of a run of `world` ranks. */
static inline void make_rank_step(int64_t rank, int64_t world, int64_t step, uint64_t save)
{
    char path[128];
    made m = {.step = step, .world = world, .rank = rank, .time = 1000 + step, .save = save, .size = 10};
    snprintf(path, sizeof path, "run/rank-%05d", (int)rank);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "run/rank-%05d/step-%08d", (int)rank, (int)step);
    make_step_of(path, &m, NULL);
}
#endif
