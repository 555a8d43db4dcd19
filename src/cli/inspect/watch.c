/* inspect/watch.c - show --watch: the answer again each time that the checkpoints of PATH have changed, until a signal. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "cli/inspect/watch.h"

enum { DEEP = 3, SECONDS = 1 };

static bool is_checkpoint(const char *name)
{
    static const char *const suffixes[] = {".ckpt", ".pt",  ".pth",   ".bin",  ".safetensors", ".distcp", ".metadata",
                                           ".h5",   ".npz", ".keras", ".json", ".txt",         "latest",  "verified"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        const size_t k = strlen(suffixes[i]);
        if (n >= k && strcmp(name + n - k, suffixes[i]) == 0)
            return true;
    }
    return false;
}

static uint64_t fold(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* A sum over names, sizes and times, in whatever order they come. Files that are being written under a temporary name, and
 * those that are no checkpoint (logs), are left out: they change all the time. */
static uint64_t look(const char *path, const char *name, int deep)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0;
    const bool folder = S_ISDIR(st.st_mode);
    const int64_t facts[] = {(int64_t)st.st_ino, folder ? 0 : (int64_t)st.st_size,
                             folder ? 0 : (int64_t)st.st_mtim.tv_sec, folder ? 0 : (int64_t)st.st_mtim.tv_nsec};
    uint64_t sum = fold(fold(0xcbf29ce484222325u, name, strlen(name)), facts, sizeof facts);
    DIR *dir = folder && deep > 0 ? opendir(path) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (d->d_name[0] == '.' && strcmp(d->d_name, ".metadata") != 0)
            continue;
        if (d->d_type != DT_DIR && d->d_type != DT_LNK && d->d_type != DT_UNKNOWN && !is_checkpoint(d->d_name))
            continue;
        const size_t size = strlen(path) + strlen(d->d_name) + 2;
        char *below = malloc(size);
        if (below) {
            snprintf(below, size, "%s/%s", path, d->d_name);
            sum += look(below, d->d_name, deep - 1);
        }
        free(below);
    }
    if (dir)
        closedir(dir);
    return sum;
}

static void put_time(void)
{
    char text[40];
    struct tm tm;
    time_t now = time(NULL);
    if (gmtime_r(&now, &tm) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &tm))
        printf("\n%s\n", text);
}

int watch_show(const command_line *o, size_t command, watch_fn ask)
{
    const cli *c = &o->cli;
    const char *path = o->paths[0];
    const struct timespec pause = {.tv_sec = SECONDS};
    if (o->path_count != 1 || o->one)
        return cli_usage(c, "show: --watch takes one PATH");
    if (c->json && !c->ndjson)
        return cli_usage(c, "show: --watch prints a document each time: give --ndjson in place of --json");
    uint64_t shown = look(path, "", DEEP), before = shown;
    int status = ask(o, command);
    while (status != CLI_NO_ANSWER) {
        fflush(stdout);
        nanosleep(&pause, NULL);
        const uint64_t now = look(path, "", DEEP);
        if (cli_signal_caught() || ferror(stdout))
            return CLI_NO_ANSWER;
        if (now == 0)
            return cli_fail(c, "system", "%s: it is no longer there", path);
        /* A file that grows is shown when it has stopped. */
        if (now != shown && now == before) {
            if (!c->json && !c->quiet)
                put_time();
            ask(o, command); /* what cannot be read now may be readable after the next change */
            status = CLI_YES;
            shown = now;
        }
        before = now;
    }
    return status;
}
