/* inspect/folder_beside.c - what a checkpoint of a folder has not, and the one before it has: a trainer that is killed while it saves
 * leaves the files that it had come to, each of them whole. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/folder.h"

/* What a trainer writes for itself behind the weights, and for each rank: a rank's file is named by the words alone, whatever its
 * numbers. "counts" is what one rank has once. */
typedef struct kind {
    const char *begin, *end; /* of a file's name */
    const char *shown;       /* as a message has it */
    bool counts;
} kind;
static const kind kinds[] = {
    {"random_states_", ".pkl", "random_states_*.pkl", true},
    {"rng_state", ".pth", "rng_state*.pth", true},
    {"custom_checkpoint_", ".pkl", "custom_checkpoint_*.pkl", false},
    {"scheduler", ".bin", "scheduler.bin", false},
    {"scheduler", ".pt", "scheduler.pt", false},
    {"optimizer", "", "optimizer*", false},
    {"latest", "", "latest", false},
    {NULL, NULL, "weights (model*, pytorch_model*, adapter_model*)", false}, /* is_weights */
    {"", ".distcp", NULL, true},
    {"", "_optim_states.pt", NULL, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds, FILES_MOST = 100000, DEPTH = 2 };

/* numbered: of rng_state_N.pth, which each of several ranks writes. A rank that is alone writes rng_state.pth (transformers, Trainer). */
typedef struct counts {
    size_t files[KINDS], numbered;
} counts;

/* By whichever name: a program may come to write another kind of file. */
static bool is_weights(const char *name)
{
    static const char *const begins[] = {"model", "pytorch_model", "adapter_model"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static bool fits(const kind *k, const char *name)
{
    if (!k->begin)
        return is_weights(name);
    size_t n = strlen(name), begin = strlen(k->begin), end = strlen(k->end);
    return n >= begin + end && strncmp(name, k->begin, begin) == 0 && strcmp(name + n - end, k->end) == 0;
}

/* Of files in the checkpoint's directory and in those below it, "optimizer_0/__1_0.distcp". False: too many, or no memory. */
static bool count_files(const char *path, int depth, size_t *left, counts *c)
{
    DIR *dir = opendir(path);
    bool good = dir != NULL;
    for (struct dirent *d; good && (d = readdir(dir));) {
        struct stat st;
        if (d->d_name[0] == '.')
            continue;
        size_t size = strlen(path) + strlen(d->d_name) + 2;
        char *below = malloc(size);
        good = below && (*left)-- > 0;
        if (good)
            snprintf(below, size, "%s/%s", path, d->d_name);
        bool there = good && stat(below, &st) == 0, folder = there && S_ISDIR(st.st_mode);
        for (size_t k = 0; there && k < KINDS; k++) /* optimizer_0 is a directory: of DCP, or whole */
            c->files[k] += fits(&kinds[k], d->d_name);
        c->numbered += there && fits(&(kind){.begin = "rng_state_", .end = ".pth"}, d->d_name);
        if (folder && depth > 1)
            good = count_files(below, depth - 1, left, c);
        free(below);
    }
    if (dir)
        closedir(dir);
    return good;
}

static bool look(const folder_item *it, counts *c)
{
    size_t left = FILES_MOST;
    *c = (counts){.numbered = 0};
    return count_files(it->path, DEPTH, &left, c);
}

/* Of one program, one behind the other: "checkpoint_1" and "checkpoint_2". */
static bool is_series(const folder_item *a, const folder_item *b)
{
    size_t n = strcspn(a->name, "0123456789");
    return a->number >= 0 && b->number >= 0 && n > 0 && n == strcspn(b->name, "0123456789") &&
           strncmp(a->name, b->name, n) == 0;
}

/* The nearest of its series that is whole, by number: before it (below), or behind it. */
static const folder_item *neighbour(const folder_list *l, const folder_item *it, bool below)
{
    const folder_item *nearest = NULL;
    for (size_t i = 0; i < l->count; i++) {
        const folder_item *other = &l->items[i];
        bool side = below ? other->number < it->number : other->number > it->number;
        bool nearer = !nearest || (below ? other->number > nearest->number : other->number < nearest->number);
        if (side && nearer && other->complete && is_series(it, other))
            nearest = other;
    }
    return nearest;
}

/* Rank 1 came to its part of the weights, and no further: as many ranks have those as before, and fewer have random states. Or one rank alone
 * has what one of several writes. */
static bool is_short(const counts *own, const counts *other, size_t k)
{
    bool ranks = own->numbered == 1 && fits(&kinds[k], "rng_state_0.pth");
    for (size_t i = 0; i < KINDS; i++)
        ranks = ranks || (i != k && !kinds[i].shown && other->files[i] > 0 && own->files[i] == other->files[i]);
    return kinds[k].counts && kinds[k].shown && ranks && own->files[k] < other->files[k];
}

void folder_judge_beside(folder_list *l, size_t i)
{
    folder_item *it = &l->items[i];
    counts own, before, behind;
    char none[200] = "", few[100] = "";
    size_t at = 0;
    const folder_item *first = neighbour(l, it, true), *next = neighbour(l, it, false);
    if (!it->complete || !first || !look(it, &own) || !look(first, &before) || (next && !look(next, &behind)))
        return;
    for (size_t k = 0; k < KINDS; k++) {
        if (!kinds[k].shown || before.files[k] == 0 || (next && behind.files[k] == 0))
            continue; /* from here on the program writes none of them */
        if (own.files[k] == 0 && at < sizeof none)
            at += (size_t)snprintf(none + at, sizeof none - at, "%s%s", at ? ", " : "", kinds[k].shown);
        else if (!*few && is_short(&own, &before, k) && (!next || is_short(&own, &behind, k)))
            snprintf(few, sizeof few, "it has %zu of %s, and not %zu", own.files[k], kinds[k].shown, before.files[k]);
    }
    if (!*none && !*few)
        return;
    it->complete = false;
    it->unfinished = true;
    snprintf(it->why, sizeof it->why, "%s%s, as %.80s has: its save was not finished", *none ? "it has no " : "",
             *none ? none : few, first->name);
}
