/* io/memory.h - how much host memory is to be had. For src/io and its tests. */
#ifndef CKPT_MEMORY_H
#define CKPT_MEMORY_H
#include "base/base.h"

/* MemAvailable of a text such as /proc/meminfo, in bytes; UINT64_MAX: not said. */
uint64_t ckpt__memory_of_host(const char *meminfo);
/* What one control group leaves: `limit` and `usage` as its files hold them ("max" or a number; NULL: no such file), and
 * its memory.stat, whose page cache (keys inactive_file, active_file behind `key_prefix`) can be had back. UINT64_MAX:
 * no limit. */
uint64_t ckpt__memory_of_group(const char *limit, const char *usage, const char *stat, const char *key_prefix);
/* The group's path of a text such as /proc/self/cgroup: of controller "memory" (version 1) or "" (version 2). */
bool ckpt__memory_group_path(const char *text, const char *controller, char *path, size_t size);
/* All of it, with other directories in the place of /proc and /sys/fs/cgroup. */
uint64_t ckpt__memory_below(const char *proc, const char *cgroup);
#endif
