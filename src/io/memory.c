/* io/memory.c - how much host memory is to be had: the kernel's own estimate, and less where a control group allows less,
 * for a process that goes beyond that is killed. */
#include "io/memory.h"
#include "io/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum { TEXT = 65536 };

static bool read_text(const char *path, char *text, size_t size)
{
    size_t used = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return false;
    while (used < size - 1) {
        ssize_t got = read(fd, text + used, size - 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    close(fd);
    text[used] = '\0';
    return used > 0;
}

/* The digits at p; UINT64_MAX: none, or more than fits. */
static uint64_t number_at(const char *p)
{
    uint64_t v = 0;
    p += strspn(p, " \t");
    if (*p < '0' || *p > '9')
        return UINT64_MAX;
    for (; *p >= '0' && *p <= '9'; p++)
        if (!ckpt__mul(v, 10, &v) || !ckpt__add(v, (uint64_t)(*p - '0'), &v))
            return UINT64_MAX;
    return v;
}

/* The number of the line that begins with prefix, key and end; UINT64_MAX: there is none. */
static uint64_t line_value(const char *text, const char *prefix, const char *key, char end)
{
    size_t p = strlen(prefix), n = strlen(key);
    for (const char *line = text; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL)
        if (strncmp(line, prefix, p) == 0 && strncmp(line + p, key, n) == 0 && line[p + n] == end)
            return number_at(line + p + n + 1);
    return UINT64_MAX;
}

uint64_t ckpt__memory_of_host(const char *meminfo)
{
    uint64_t kib = line_value(meminfo, "", "MemAvailable", ':'), bytes;
    return kib != UINT64_MAX && ckpt__mul(kib, 1024, &bytes) ? bytes : UINT64_MAX;
}

uint64_t ckpt__memory_of_group(const char *limit, const char *usage, const char *stat, const char *key_prefix)
{
    uint64_t most = limit ? number_at(limit) : UINT64_MAX, used = usage ? number_at(usage) : UINT64_MAX;
    if (most == UINT64_MAX) /* "max" is no number */
        return UINT64_MAX;
    if (used == UINT64_MAX)
        used = 0;
    /* Cache of files counts as used and is given back when memory is short: all that was not used lately, and half of
     * what was. */
    uint64_t cold = stat ? line_value(stat, key_prefix, "inactive_file", ' ') : 0;
    uint64_t warm = stat ? line_value(stat, key_prefix, "active_file", ' ') : 0;
    uint64_t cache = cold == UINT64_MAX ? 0 : cold;
    if (warm != UINT64_MAX && !ckpt__add(cache, warm / 2, &cache))
        cache = UINT64_MAX;
    used = used > cache ? used - cache : 0;
    return most > used ? most - used : 0;
}

bool ckpt__memory_group_path(const char *text, const char *controller, char *path, size_t size)
{
    size_t want = strlen(controller);
    for (const char *line = text; *line;) {
        const char *end = strchrnul(line, '\n'), *list = memchr(line, ':', (size_t)(end - line));
        const char *after = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        for (const char *c = list ? list + 1 : NULL; after && c <= after;) { /* "cpu,memory" */
            const char *stop = c;
            while (stop < after && *stop != ',')
                stop++;
            if ((size_t)(stop - c) == want && memcmp(c, controller, want) == 0) {
                size_t n = (size_t)(end - after - 1);
                if (n >= size)
                    return false;
                memcpy(path, after + 1, n);
                path[n] = '\0';
                return true;
            }
            c = stop + 1;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

/* Where one version of control groups keeps what is asked for: names of files and directories below its mount, NULL: none. */
typedef struct version {
    const char *mount, *controller, *limits[2], *usage, *key_prefix;
} version;

static const version versions[] = {
    {"", "", {"memory.max", "memory.high"}, "memory.current", ""},
    {"/unified", "", {"memory.max", "memory.high"}, "memory.current", ""},
    {"/memory", "memory", {"memory.limit_in_bytes", NULL}, "memory.usage_in_bytes", "total_"},
};

static bool group_file(const char *group, const char *name, char *text, size_t size)
{
    char path[2 * PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", group, name);
    return n > 0 && (size_t)n < sizeof path && read_text(path, text, size);
}

static uint64_t left_in_group(const char *group, const version *v)
{
    char limit[64], usage[64], stat[8192];
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 2 && v->limits[i]; i++) {
        if (!group_file(group, v->limits[i], limit, sizeof limit))
            continue;
        bool used = group_file(group, v->usage, usage, sizeof usage);
        bool cached = group_file(group, "memory.stat", stat, sizeof stat);
        uint64_t left = ckpt__memory_of_group(limit, used ? usage : NULL, cached ? stat : NULL, v->key_prefix);
        least = left < least ? left : least;
    }
    return least;
}

/* The process's own group and each above it, up to the mount: the least of them all counts. In a container the path may
 * be that of the host; then only the mount itself is there. */
static uint64_t left_in_groups(const char *cgroup, const char *text, const version *v)
{
    char path[PATH_MAX], group[2 * PATH_MAX];
    uint64_t least = UINT64_MAX;
    if (!ckpt__memory_group_path(text, v->controller, path, sizeof path) || strstr(path, ".."))
        return least;
    for (;;) {
        int n = snprintf(group, sizeof group, "%s%s%s", cgroup, v->mount, path);
        if (n > 0 && (size_t)n < sizeof group) {
            uint64_t left = left_in_group(group, v);
            least = left < least ? left : least;
        }
        char *slash = strrchr(path, '/');
        if (!slash)
            return least;
        *slash = '\0';
    }
}

uint64_t ckpt__memory_below(const char *proc, const char *cgroup)
{
    char path[PATH_MAX], text[TEXT];
    uint64_t least = UINT64_MAX;
    if (snprintf(path, sizeof path, "%s/meminfo", proc) < (int)sizeof path && read_text(path, text, sizeof text))
        least = ckpt__memory_of_host(text);
    if (snprintf(path, sizeof path, "%s/self/cgroup", proc) < (int)sizeof path && read_text(path, text, sizeof text))
        for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
            uint64_t left = left_in_groups(cgroup, text, &versions[i]);
            least = left < least ? left : least;
        }
    return least;
}

uint64_t ckpt__memory_available(void)
{
    return ckpt__memory_below("/proc", "/sys/fs/cgroup");
}
