/* tests/unit/scratch.h - a directory of the test's own, which is the current one while it runs, and small files in it. */
#ifndef SCRATCH_H
#define SCRATCH_H
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "scratch_base.h"

static char scratch[64];

static inline void make_scratch(void)
{
    snprintf(scratch, sizeof scratch, "%s/ckpt-test-XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(scratch));
    ck_assert_int_eq(chdir(scratch), 0);
}

static inline void remove_scratch(void)
{
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    ck_assert_int_eq(system(command), 0);
}

static inline void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_msg(f != NULL, "cannot write %s", path);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void expect(const char *path, const char *text)
{
    char have[256] = "";
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is not there", path);
    have[fread(have, 1, sizeof have - 1, f)] = '\0';
    fclose(f);
    ck_assert_str_eq(have, text);
}

/* A directory with one file. */
static inline void put_directory(const char *path, const char *name, const char *text)
{
    char file[256];
    ck_assert_int_eq(mkdir(path, 0777), 0);
    snprintf(file, sizeof file, "%s/%s", path, name);
    put(file, text);
}

static inline int there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static inline int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = -2;
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
#endif
