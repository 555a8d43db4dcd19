/* migrate/layout.c - see layout.h. */
#include "cli/migrate/layout.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PRESETS = 64 }; /* names in a message */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "gpt2, llama": the layouts that are in the folder. */
static void list(const char *folder, char *out, size_t size)
{
    char *names[PRESETS];
    size_t count = 0, used = 0;
    DIR *d = opendir(folder);
    out[0] = 0;
    for (struct dirent *e; d && count < PRESETS && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        if (n > 5 && strcmp(e->d_name + n - 5, ".yaml") == 0 && (names[count] = strndup(e->d_name, n - 5)))
            count++;
    }
    if (d)
        closedir(d);
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 0; i < count; i++) {
        if (used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", names[i]);
        free(names[i]);
    }
}

int layout_find(const cli *c, const char *text, char *path, size_t size)
{
    const char *folder = getenv("CKPT_LAYOUTS");
    const size_t n = strlen(text);
    const bool file = strchr(text, '/') || (n > 5 && strcmp(text + n - 5, ".yaml") == 0);
    char all[600];
    if (!folder || !*folder)
        folder = CKPT_LAYOUTS_FOLDER;
    int written = file ? snprintf(path, size, "%s", text) : snprintf(path, size, "%s/%s.yaml", folder, text);
    if (written < 0 || (size_t)written >= size)
        return cli_usage(c, "--layout: the path is too long");
    if (file || access(path, F_OK) == 0)
        return -1;
    list(folder, all, sizeof all);
    return cli_usage(
        c,
        "--layout %s: no preset in %s has that name; %s%s; write a file with a slash in its name, or .yaml at its end",
        text, folder, *all ? "there are " : "there is none", all);
}
