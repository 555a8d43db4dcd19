/* tests/unit/command_files.h - what the tests of verify, doctor and migrate share: fixtures and a scratch directory. */
#ifndef COMMAND_FILES_H
#define COMMAND_FILES_H
#include <ckpt/ckpt.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "scratch_base.h"

static char scratch[64];

static void make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "%s/ckpt-commands-XXXXXX", scratch_base());
    if (!mkdtemp(scratch))
        abort();
}

static void remove_folder(const char *folder)
{
    char path[1200];
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (unlink(path) != 0)
            remove_folder(path);
    }
    if (d)
        closedir(d);
    rmdir(folder);
}

static void remove_scratch(void)
{
    remove_folder(scratch);
}

/* Paths are good until the fourth call after. */
static const char *path_of(const char *folder, const char *name)
{
    static char paths[4][1200];
    static unsigned next;
    char made[sizeof paths[0]], *path = paths[next++ % 4];
    snprintf(made, sizeof made, "%s/%s", folder, name); /* folder may be one of the four */
    return strcpy(path, made);
}

static inline const char *fixture(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char folder[1000];
    snprintf(folder, sizeof folder, "%s/tests/data/cli", srcdir ? srcdir : ".");
    return path_of(folder, name);
}

static inline const char *temporary(const char *name)
{
    return path_of(scratch, name);
}

static inline char *read_all(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0)
        abort();
    char *data = malloc((size_t)st.st_size + 1);
    *size = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    return data;
}

static inline void write_all(const char *path, const char *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
}
#endif
