/* migrate/fixtures.h - every fixture of tests/data: the files and directories that tests migrate one after the other. */
#ifndef FIXTURES_H
#define FIXTURES_H
#include <check.h>
#include <ckpt/reader.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct names {
    char **name;
    size_t count;
} names;

static inline void add_name(names *list, const char *name)
{
    list->name = realloc(list->name, (list->count + 1) * sizeof *list->name);
    ck_assert_ptr_nonnull(list->name);
    list->name[list->count] = strdup(name);
    ck_assert_ptr_nonnull(list->name[list->count++]);
}

static inline void free_names(names *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->name[i]);
    free(list->name);
    *list = (names){NULL, 0};
}

static inline int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Every file and directory below `top`, a directory with a '/' at its end, sorted. The list grows while it is walked, so
 * there is no recursion. */
static inline names everything_below(const char *top)
{
    names list = {NULL, 0};
    add_name(&list, "");
    for (size_t i = 0; i < list.count; i++) {
        char path[2048];
        size_t n = strlen(list.name[i]);
        if (n > 0 && list.name[i][n - 1] != '/')
            continue;
        snprintf(path, sizeof path, "%s/%s", top, list.name[i]);
        DIR *d = opendir(path);
        ck_assert_msg(d != NULL, "%s: %s", path, strerror(errno));
        for (struct dirent *e; (e = readdir(d)) != NULL;) {
            struct stat st;
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            snprintf(path, sizeof path, "%s/%s%s", top, list.name[i], e->d_name);
            ck_assert_int_eq(lstat(path, &st), 0);
            snprintf(path, sizeof path, "%s%s%s", list.name[i], e->d_name, S_ISDIR(st.st_mode) ? "/" : "");
            add_name(&list, path);
        }
        closedir(d);
    }
    qsort(list.name, list.count, sizeof *list.name, by_name);
    return list;
}

/* A file by its name, a directory where it can be opened as one checkpoint. What a library reads that a build may lack is left to other
 * tests (test_migrate_hf), and what is there for a test of what is lost (test_dcp_lost) or of ranks (test_rank_state). */
static inline bool is_fixture(const char *path, const char *name)
{
    static const char *const left[] = {"keras/",      "dcp/zstd/",  "dcp/bomb/", "dcp/models/",
                                       "dcp/buffer/", "dcp/large/", "ranks/"};
    static const char *const endings[] = {".pt",  ".pth",    ".ckpt", ".safetensors",
                                          ".pkl", ".distcp", ".bin",  ".index.json"};
    size_t n = strlen(name);
    if (n == 0)
        return false;
    for (size_t i = 0; i < sizeof left / sizeof *left; i++)
        if (strncmp(name, left[i], strlen(left[i])) == 0)
            return false;
    if (name[n - 1] == '/') {
        ckpt_reader *reader = NULL;
        bool opens = ckpt_reader_open(path, NULL, &reader, NULL) == CKPT_OK;
        ckpt_reader_close(reader);
        return opens;
    }
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t end = strlen(endings[i]);
        if (n >= end && strcmp(name + n - end, endings[i]) == 0)
            return true;
    }
    return false;
}
#endif
