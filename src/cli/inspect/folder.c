/* inspect/folder.c - finds the checkpoints of a directory that is not one itself, be they files or directories. Each is opened,
 * which reads its metadata alone. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "cli/inspect/folder.h"

enum { ENTRIES_MAX = 20000, PARTS_MAX = 100 };

/* ---- one of them */

static bool has_suffix(const char *name)
{
    static const char *const suffixes[] = {".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors", ".pth.tar"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t k = strlen(suffixes[i]);
        if (n > k && strcmp(name + n - k, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* "checkpoint-500", "epoch=3-step=100", "step_7": what ends in a number. */
static bool is_step_name(const char *name)
{
    size_t n = strlen(name);
    bool letter = (name[0] >= 'a' && name[0] <= 'z') || (name[0] >= 'A' && name[0] <= 'Z');
    return n > 1 && letter && name[n - 1] >= '0' && name[n - 1] <= '9';
}

/* The number at the end of a name without its suffix; of "global_step_100/actor", which has none, that of the folder. */
static int64_t number_of(const char *name)
{
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name, *dot = strchr(base, '.');
    size_t end = dot && has_suffix(base) ? (size_t)(dot - base) : strlen(base), at = end;
    int64_t number = 0;
    while (at > 0 && base[at - 1] >= '0' && base[at - 1] <= '9')
        at--;
    if (at == end && slash) {
        base = name;
        at = end = (size_t)(slash - name);
        while (at > 0 && base[at - 1] >= '0' && base[at - 1] <= '9')
            at--;
    }
    for (size_t i = at; i < end && i < at + 18; i++)
        number = number * 10 + (base[i] - '0');
    return at < end ? number : -1;
}

static char *joined(const char *folder, size_t size, const char *name)
{
    size_t n = size + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%.*s%s%s", (int)size, folder, size && folder[size - 1] == '/' ? "" : "/", name);
    return path;
}

/* The newest file in it, and how much they are. */
static void look_into(folder_item *it, const char *path)
{
    struct stat st;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char *below = d->d_name[0] == '.' ? NULL : joined(path, strlen(path), d->d_name);
        if (below && stat(below, &st) == 0 && S_ISREG(st.st_mode)) {
            it->nbytes += (uint64_t)st.st_size;
            it->time = (int64_t)st.st_mtime > it->time ? (int64_t)st.st_mtime : it->time;
        }
        free(below);
    }
    if (dir)
        closedir(dir);
}

/* Not weights alone, from which no training goes on. */
static bool holds_moments(const ckpt_reader *reader)
{
    const size_t count = ckpt_reader_tensor_count(reader);
    for (size_t i = 0; i < count; i++) {
        const ckpt_role role = ckpt_reader_tensor(reader, i)->role;
        if (role == CKPT_ROLE_EXP_AVG || role == CKPT_ROLE_MOMENTUM || role == CKPT_ROLE_OPTIM)
            return true;
    }
    return false;
}

static void take_summary(folder_item *it, const ckpt_reader *reader)
{
    ckpt_summary s = CKPT_SUMMARY_INIT;
    folder_keep_text(it->format, sizeof it->format, ckpt_reader_format(reader), 31);
    it->nbytes = ckpt_reader_file_size(reader);
    if (ckpt_summarize(reader, &s, NULL) < 0)
        return;
    folder_keep_text(it->producer, sizeof it->producer, s.producer, 39);
    folder_keep_text(it->metric, sizeof it->metric, s.score.name.data, s.score.name.size);
    it->trains = ckpt_reader_layout(reader) && holds_moments(reader);
    it->step = s.step;
    it->epoch = s.epoch;
    it->epoch_exact = s.epoch_exact;
    it->score = s.score;
    it->score.name = (ckpt_str){NULL, 0};
    ckpt_summary_clear(&s);
}

/* A run directory: as its newest complete checkpoint. */
static bool look_at_run(folder_item *it)
{
    ckpt_run_list *runs = NULL;
    if (ckpt_run_list_open(it->path, &runs, NULL) < 0)
        return false;
    const ckpt_run_entry *newest = NULL;
    folder_keep_text(it->format, sizeof it->format, "run", 3);
    folder_keep_text(it->producer, sizeof it->producer, "ckpt", 4);
    for (size_t i = 0; i < ckpt_run_list_count(runs); i++) {
        const ckpt_run_entry *e = ckpt_run_list_entry(runs, i);
        it->nbytes += e->nbytes;
        it->time = e->time > it->time ? e->time : it->time;
        newest = !newest && e->complete ? e : newest;
    }
    it->complete = newest != NULL;
    it->step = newest ? newest->step : -1;
    if (!newest)
        folder_keep_text(it->why, sizeof it->why, "a run directory in which no checkpoint is complete", 50);
    ckpt_run_list_close(runs);
    return true;
}

/* A step that has a folder of each model that was trained: <run>/global_step_100/actor, .../critic (verl). A folder that is called as a
 * step is a part of it: checkpoint-3/global_step3, empty where a save was killed. */
static bool holds_others(const char *path)
{
    bool found = false;
    size_t looked = 0;
    struct stat st;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && !found && looked < PARTS_MAX && (d = readdir(dir)); looked++) {
        ckpt_reader *reader = NULL;
        char *below = d->d_name[0] == '.' ? NULL : joined(path, strlen(path), d->d_name);
        if (below && !is_step_name(d->d_name) && stat(below, &st) == 0 && S_ISDIR(st.st_mode))
            found = ckpt_reader_open(below, NULL, &reader, NULL) != CKPT_E_FORMAT;
        ckpt_reader_close(reader);
        free(below);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Names that files of any kind have too. */
static bool is_common(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && (strcmp(name + n - 4, ".bin") == 0 || strcmp(name + n - 4, ".pkl") == 0);
}

static const char no_tensors[] = "its files hold no tensor: its save was not finished";

/* Is it one, be it whole or not? A file of another kind is none, nor is a pickle without a tensor; a folder that is called as a step
 * is one, whatever its save got to. */
static bool look_at(folder_item *it, bool directory)
{
    ckpt_reader *reader = NULL;
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = ckpt_reader_open(it->path, NULL, &reader, &err);
    const char *slash = strrchr(it->name, '/'), *base = slash ? slash + 1 : it->name;
    bool known = status != CKPT_E_FORMAT; /* what it is, if not all of it */
    bool one = directory ? is_step_name(base) || known : has_suffix(base) && (known || !is_common(base));
    if (status == CKPT_OK) {
        const bool empty = ckpt_reader_tensor_count(reader) == 0, begun = empty && directory && is_step_name(base);
        one = !empty || begun;
        it->complete = !empty && !folder_has_damage(it, reader);
        take_summary(it, reader);
        folder_take_claim(it, reader);
        ckpt_reader_close(reader);
        if (begun && holds_others(it->path))
            return false;
        it->unfinished = begun;
        if (begun)
            folder_keep_text(it->why, sizeof it->why, no_tensors, sizeof no_tensors - 1);
    } else {
        folder_keep_text(it->why, sizeof it->why, err.message, strlen(err.message));
        if (directory && !known && look_at_run(it))
            return true;
        if (directory && !known && one && holds_others(it->path))
            return false;
        const char *layout = directory && status == CKPT_E_UNSUPPORTED ? ckpt_layout_of(it->path) : NULL;
        if (layout)
            folder_keep_text(it->format, sizeof it->format, layout, strlen(layout));
        it->unread = status == CKPT_E_UNSUPPORTED || status == CKPT_E_TOO_NEW || status == CKPT_E_SYSTEM;
    }
    return one;
}

static void free_item(folder_item *it)
{
    free(it->name);
    free(it->path);
}

/* Takes a copy of the name. False: it is none. */
static bool add(folder_list *l, const char *name, bool *directory)
{
    struct stat st;
    folder_item it = {.step = -1, .epoch = -1, .epoch_exact = -1};
    *directory = false;
    it.name = strdup(name);
    it.path = joined(l->path, l->path_size, name);
    bool one = it.name && it.path && stat(it.path, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
    l->no_memory = l->no_memory || !it.name || !it.path;
    one = one && (!l->steps_only || S_ISDIR(st.st_mode));
    if (one) {
        *directory = S_ISDIR(st.st_mode);
        it.time = (int64_t)st.st_mtime;
        it.number = number_of(name);
        it.nbytes = *directory ? 0 : (uint64_t)st.st_size;
        if (*directory)
            look_into(&it, it.path);
        one = look_at(&it, *directory);
    }
    folder_item *items = one ? realloc(l->items, (l->count + 1) * sizeof *items) : NULL;
    if (!items) {
        l->no_memory = l->no_memory || one;
        free_item(&it);
        return false;
    }
    l->items = items;
    items[l->count++] = it;
    return true;
}

void folder_free(folder_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free_item(&l->items[i]);
    free(l->items);
    free(l->rows);
}

/* ---- all of them */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names in a directory, sorted, but those that begin with a dot. */
static char **names_in(folder_list *l, const char *path, size_t *count)
{
    char **names = NULL;
    DIR *dir = opendir(path);
    *count = 0;
    for (struct dirent *d; dir && !l->no_memory && (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        if (*count >= ENTRIES_MAX) {
            l->passed++;
            continue;
        }
        char *copy = strdup(d->d_name), **more = realloc(names, (*count + 1) * sizeof *names);
        names = more ? more : names;
        if (copy && more)
            names[(*count)++] = copy;
        else
            free(copy);
        l->no_memory = !copy || !more;
    }
    if (dir)
        closedir(dir);
    if (*count > 1)
        qsort(names, *count, sizeof *names, by_text);
    return names;
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* A trainer's own folder for them: <run>/checkpoints/checkpoint_0, <version>/checkpoints/epoch=1.ckpt, <run>/checkpoint/step-100
 * (torchtitan), global_step_100/actor. */
static void gather_below(folder_list *l, const char *name)
{
    size_t count;
    bool directory;
    char *path = joined(l->path, l->path_size, name);
    char **names = path ? names_in(l, path, &count) : NULL;
    for (size_t i = 0; names && i < count; i++) {
        char *below = joined(name, strlen(name), names[i]);
        if (below)
            add(l, below, &directory);
        l->no_memory = l->no_memory || !below;
        free(below);
    }
    if (names)
        free_names(names, count);
    free(path);
}

static void gather(folder_list *l)
{
    size_t count;
    bool directory;
    char **names = names_in(l, l->path, &count);
    for (size_t i = 0; i < count; i++) {
        bool wanted = !l->steps_only || is_step_name(names[i]);
        if (wanted && !add(l, names[i], &directory) && directory &&
            (strcmp(names[i], "checkpoints") == 0 || strcmp(names[i], "checkpoint") == 0 || is_step_name(names[i])))
            gather_below(l, names[i]);
    }
    free_names(names, count);
}

/* By step (where none is known, by the number in the name, then by epoch), then by time, then by name. */
static int in_order(const void *x, const void *y)
{
    const folder_item *a = x, *b = y;
    int64_t of_a = a->step >= 0 ? a->step : a->number, of_b = b->step >= 0 ? b->step : b->number;
    double epoch_a = a->step >= 0 ? -1 : a->epoch_exact, epoch_b = b->step >= 0 ? -1 : b->epoch_exact;
    if (of_a != of_b)
        return of_a < of_b ? -1 : 1;
    if (epoch_a < epoch_b || epoch_a > epoch_b)
        return epoch_a < epoch_b ? -1 : 1;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Tensors of the checkpoint that was read lie in it. */
static bool is_part(const folder_item *it, const ckpt_reader *reader)
{
    const size_t n = strlen(it->name), count = ckpt_reader_tensor_count(reader);
    for (size_t i = 0; i < count; i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(reader, i);
        if (t->file.data && t->file.size >= n && memcmp(t->file.data, it->name, n) == 0 &&
            (t->file.size == n || t->file.data[n] == '/'))
            return true;
    }
    return false;
}

static void leave_parts(folder_list *l, const ckpt_reader *reader)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (is_part(&l->items[i], reader))
            free_item(&l->items[i]);
        else
            l->items[kept++] = l->items[i];
    }
    l->count = kept;
}

/* reader: whose parts are left out; NULL: of none. */
static void look(folder_list *l, const command_line *o, const char *path, const ckpt_reader *reader)
{
    const bool steps_only = reader != NULL;
    *l = (folder_list){.o = o, .path = path, .path_size = strlen(path), .steps_only = steps_only};
    while (l->path_size > 1 && l->path[l->path_size - 1] == '/')
        l->path_size--;
    gather(l);
    if (reader)
        leave_parts(l, reader);
    folder_judge(l);
    if (l->count > 1)
        qsort(l->items, l->count, sizeof *l->items, in_order);
    for (size_t i = 0; i < l->count; i++)
        folder_judge_beside(l, i);
}

void folder_look(folder_list *l, const command_line *o, const char *path)
{
    look(l, o, path, NULL);
}

/* The place in the data beside the folders of the models: global_step_100/data.pt, .../actor, .../critic (verl). */
bool folder_is_none_itself(const command_line *o, const char *format)
{
    return strcmp(format, "folder") == 0 && holds_others(o->paths[0]);
}

/* Are there so many directories whose names end in a number? What is read of a thousand ranks is not opened a second time to
 * find that it is the only one. */
static bool may_have(const command_line *o, size_t least)
{
    struct stat st;
    size_t found = 0, n = strlen(o->paths[0]);
    DIR *dir = opendir(o->paths[0]);
    for (struct dirent *d; dir && found < least && (d = readdir(dir));) {
        char *below = is_step_name(d->d_name) ? joined(o->paths[0], n, d->d_name) : NULL;
        found += below && stat(below, &st) == 0 && S_ISDIR(st.st_mode);
        free(below);
    }
    if (dir)
        closedir(dir);
    return found >= least;
}

void folder_beside(const command_line *o, const ckpt_reader *reader, json_out *j, size_t least)
{
    folder_list l;
    if (!may_have(o, least))
        return;
    look(&l, o, o->paths[0], reader);
    if (l.count < least) {
        folder_free(&l);
        return;
    }
    folder_rows(&l);
    if (j && l.count && l.rows) {
        checkpoints_json(j, l.rows, l.count, IN_FOLDER);
    } else if (l.count && l.rows) {
        printf("%s%s%s  %zu checkpoint%s%s\n", cli_style(&o->cli, "bold"), least > 1 ? "in here" : "also here",
               cli_style(&o->cli, "off"), l.count, l.count == 1 ? "" : "s", least > 1 ? ", that one among them" : "");
        folder_table(&l);
    }
    folder_free(&l);
}

bool folder_members(const command_line *o, const char *path, path_list *out)
{
    folder_list l;
    look(&l, o, path, NULL);
    bool ok = !l.no_memory;
    for (size_t i = 0; ok && i < l.count; i++)
        ok = path_list_add(out, l.items[i].path);
    if (l.passed)
        cli_warn(&o->cli, "%s: %zu more are not read: the limit is %d", path, l.passed, ENTRIES_MAX);
    folder_free(&l);
    return ok;
}
