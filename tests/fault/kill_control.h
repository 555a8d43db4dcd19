/* kill_control.h - a trainer's checkpoints as they are often written: the old ones are removed first, the new one is
 * written under its name, and nothing is synced. For kill_trainer --control, to show that the drive sees what is lost. */
#ifndef KILL_CONTROL_H
#define KILL_CONTROL_H
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool control_write(const char *path, const void *data, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    size_t done = 0;
    while (fd >= 0 && done < n) {
        size_t part = n - done < 256 * 1024 ? n - done : 256 * 1024;
        ssize_t put = write(fd, (const char *)data + done, part);
        if (put <= 0)
            break;
        done += (size_t)put;
    }
    return fd >= 0 && close(fd) == 0 && done == n;
}

static void control_remove(const char *root, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/state.bin", root, name);
    unlink(path);
    snprintf(path, sizeof path, "%s/%s", root, name);
    rmdir(path);
}

static bool control_save(const char *root, int64_t step, const void *data, size_t n)
{
    char path[4096], latest[64];
    mkdir(root, 0777);
    DIR *d = opendir(root);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "step-", 5) == 0)
            control_remove(root, e->d_name);
    if (d)
        closedir(d);
    int len = snprintf(latest, sizeof latest, "step-%08lld", (long long)step);
    snprintf(path, sizeof path, "%s/%s", root, latest);
    if (mkdir(path, 0777) < 0)
        return false;
    snprintf(path, sizeof path, "%s/%s/state.bin", root, latest);
    if (!control_write(path, data, n))
        return false;
    snprintf(path, sizeof path, "%s/latest", root);
    return control_write(path, latest, (size_t)len);
}

/* The step that `latest` names, read into data; -1: there is none, or it is short. */
static int64_t control_resume(const char *root, void *data, size_t n)
{
    char path[4096], latest[64] = "";
    snprintf(path, sizeof path, "%s/latest", root);
    FILE *f = fopen(path, "r");
    if (!f || !fgets(latest, sizeof latest, f) || strncmp(latest, "step-", 5) != 0)
        latest[0] = '\0';
    if (f)
        fclose(f);
    snprintf(path, sizeof path, "%s/%s/state.bin", root, latest);
    f = latest[0] ? fopen(path, "r") : NULL;
    bool whole = f && fread(data, 1, n, f) == n;
    if (f)
        fclose(f);
    return whole ? strtoll(latest + 5, NULL, 10) : -1;
}
#endif
