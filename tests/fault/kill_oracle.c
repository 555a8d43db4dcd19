/* kill_oracle.c - see kill_oracle.h. */
#include "kill_oracle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    int64_t step = strtoll(name + 5, &end, 10);
    return *end == '\0' || *end == '.' || *end == '\n' ? step : -1;
}

/* Files in a directory, and their size in units that tell an empty, a small and a large one apart. */
static int members(const char *root, const char *name, int *size)
{
    char path[4096];
    struct stat st;
    int n = 0;
    *size = 0;
    snprintf(path, sizeof path, "%s/%s", root, name);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            n++;
            if (fstatat(dirfd(d), e->d_name, &st, 0) == 0)
                *size += st.st_size == 0 ? 0 : st.st_size < 65536 ? 1 : 10;
        }
    if (d)
        closedir(d);
    return n;
}

static int descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

bool listing_has(const listing *l, int64_t step)
{
    for (int i = 0; i < l->count; i++)
        if (l->steps[i] == step)
            return true;
    return false;
}

int64_t listing_newest(const listing *l)
{
    return l->count ? l->steps[0] : -1;
}

static int64_t read_latest(const char *root)
{
    char path[4096], line[64] = "";
    snprintf(path, sizeof path, "%s/latest", root);
    FILE *f = fopen(path, "r");
    if (f && !fgets(line, sizeof line, f))
        line[0] = '\0';
    if (f)
        fclose(f);
    return step_of(line);
}

static bool is_leftover(const char *name)
{
    return name[0] == '.' &&
           (strncmp(name, ".tmp-", 5) == 0 || strncmp(name, ".trash-", 7) == 0 || strstr(name, ".tmp-"));
}

static int alphabetical(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The kinds, sorted: two directories of one shape are one case. */
static void add_shape(char kinds[][64], int *count, const char *name, int files, int size)
{
    char kind[32];
    size_t n = 0;
    while (n < sizeof kind - 1 && name[n] && (name[n] < '0' || name[n] > '9')) /* without numbers */
        n++;
    memcpy(kind, name, n);
    kind[n] = '\0';
    char *unique = strstr(kind, "tmp-");
    if (unique && strncmp(unique, "tmp-step-", 9) != 0)
        unique[4] = '\0';
    char all[64];
    snprintf(all, sizeof all, "%s %d files %d", kind, files, size);
    for (int i = 0; i < *count; i++)
        if (strcmp(kinds[i], all) == 0)
            return;
    if (*count < 8)
        strcpy(kinds[(*count)++], all);
}

bool list_run(const char *path, listing *l)
{
    char kinds[8][64];
    int kind_count = 0, size;
    int64_t aside[8];
    int aside_count = 0;
    memset(l, 0, sizeof *l);
    l->aside = -1;
    l->latest = read_latest(path);
    DIR *d = opendir(path);
    if (!d)
        return errno == ENOENT;
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        int files = members(path, e->d_name, &size);
        if (step >= 0 && files > 0) {
            if (l->count == ORACLE_STEPS)
                return closedir(d), false;
            l->steps[l->count++] = step;
        } else if (is_leftover(e->d_name)) {
            l->leftovers++;
            add_shape(kinds, &kind_count, e->d_name, files, size);
            if (strncmp(e->d_name, ".trash-step-", 12) == 0 && aside_count < 8)
                aside[aside_count++] = step_of(e->d_name + 7);
        }
    }
    closedir(d);
    qsort(l->steps, (size_t)l->count, sizeof *l->steps, descending);
    qsort(kinds, (size_t)kind_count, sizeof *kinds, alphabetical);
    for (int i = 0; i < kind_count; i++)
        strcat(strcat(l->shape, i ? ", " : ""), kinds[i]);
    if (l->latest != listing_newest(l))
        strcat(l->shape, l->shape[0] ? ", stale hint" : "stale hint");
    for (int i = 0; i < aside_count; i++)
        if (!listing_has(l, aside[i]) && aside[i] > l->aside)
            l->aside = aside[i];
    return true;
}

void read_promises(int report, promises *p)
{
    static char text[1 << 20];
    memset(p, 0, sizeof *p);
    p->resumed = p->newest = p->found = -1;
    ssize_t n = pread(report, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int64_t step;
        if (sscanf(line, "saved %" SCNd64, &step) == 1) {
            p->saved[p->count++ % ORACLE_STEPS] = step;
            p->newest = step > p->newest ? step : p->newest;
        } else if (sscanf(line, "found %" SCNd64, &step) == 1)
            p->found = step;
        else if (sscanf(line, "resumed %" SCNd64, &step) == 1)
            p->resumed = step;
    }
    if (p->count > ORACLE_STEPS)
        p->count = ORACLE_STEPS;
    if (ftruncate(report, 0) < 0)
        perror("the report");
}

static void add(int64_t *known, int *n, int64_t step)
{
    for (int i = 0; i < *n; i++)
        if (known[i] == step)
            return;
    if (step >= 0 && *n < 3 * ORACLE_STEPS)
        known[(*n)++] = step;
}

const char *judge_directory(const listing *before, const promises *p, const listing *after, const rule *keep)
{
    static char what[200];
    static int64_t known[3 * ORACLE_STEPS];
    int n = 0;
    what[0] = '\0';
    for (int i = 0; i < before->count; i++)
        add(known, &n, before->steps[i]);
    add(known, &n, before->aside);
    for (int i = 0; i < p->count; i++)
        add(known, &n, p->saved[i]);
    for (int i = 0; i < after->count; i++)
        add(known, &n, after->steps[i]);
    qsort(known, (size_t)n, sizeof *known, descending);
    for (int i = 0; i < n && !what[0]; i++) {
        if (listing_has(after, known[i]) || known[i] == after->aside)
            continue;
        if (i < keep->keep_last)
            snprintf(what, sizeof what, "step %" PRId64 " is gone, one of the newest %" PRId64, known[i],
                     keep->keep_last);
        else if (keep->keep_every > 0 && known[i] % keep->keep_every == 0)
            snprintf(what, sizeof what, "step %" PRId64 " is gone, a multiple of %" PRId64, known[i], keep->keep_every);
        else if (known[i] == p->resumed && !keep->read_back)
            snprintf(what, sizeof what, "step %" PRId64 " is gone, the newest that is known to load", known[i]);
    }
    if (!what[0] && after->latest >= 0 && !listing_has(after, after->latest) && after->latest != after->aside)
        snprintf(what, sizeof what, "latest names step %" PRId64 ", which is not there", after->latest);
    return what;
}

/* ---- copies */
static bool link_folder(int from, int to, int depth)
{
    bool ok = true;
    DIR *d = fdopendir(dup(from));
    if (!d)
        return false;
    rewinddir(d);
    for (struct dirent *e; ok && (e = readdir(d));) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (fstatat(from, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            ok = false;
        else if (!S_ISDIR(st.st_mode))
            ok = linkat(from, e->d_name, to, e->d_name, 0) == 0;
        else if (depth > 0 && mkdirat(to, e->d_name, 0777) == 0) {
            int a = openat(from, e->d_name, O_RDONLY | O_DIRECTORY), b = openat(to, e->d_name, O_RDONLY | O_DIRECTORY);
            ok = a >= 0 && b >= 0 && link_folder(a, b, depth - 1);
            close(a);
            close(b);
        } else
            ok = false;
    }
    closedir(d);
    return ok;
}

bool link_run(const char *from, const char *to)
{
    if (mkdir(to, 0777) < 0)
        return false;
    int a = open(from, O_RDONLY | O_DIRECTORY), b = open(to, O_RDONLY | O_DIRECTORY);
    bool ok = a >= 0 && b >= 0 && link_folder(a, b, 1);
    close(a);
    close(b);
    return ok;
}

static bool remove_folder(int parent, const char *name, int depth)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d)
        return errno == ENOENT;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlinkat(fd, e->d_name, 0) < 0 && depth > 0)
            remove_folder(fd, e->d_name, depth - 1);
    closedir(d);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

bool remove_run(const char *path)
{
    return remove_folder(AT_FDCWD, path, 2);
}
