/* format/deepspeed/tags.c - which tag is read: the one that latest names, else the newest that is whole. What is said of the others. */
#include "format/deepspeed/deepspeed.h"

#include <stdio.h>
#include <stdlib.h>

enum { TAG_MAX = 250 };

static bool is_there(const ckpt__ds_tag *t)
{
    return t->models || t->models_of || t->optims || t->layers || t->experts;
}

/* Has the folder files of DeepSpeed? below: "" or with a slash at its end. */
static ckpt_status has_files(const ckpt__source *source, const char *below, ckpt__arena *arena, bool *is,
                             ckpt_error *err)
{
    ckpt__ds_tag tag;
    ckpt_status status = ckpt__ds_look(source, below, arena, &tag, err);
    *is = is_there(&tag);
    ckpt__ds_tag_free(&tag);
    return status == CKPT_E_MISMATCH && *is ? CKPT_OK
                                            : status; /* two files of one rank: it is said when they are read */
}

typedef struct top {
    bool latest, universal, trainer, accelerate; /* their files */
    const char **folders;                        /* heap; names in the arena */
    size_t count, capacity;
    const char *empty; /* the folder of the highest step that has none of the files */
    ckpt__arena *arena;
} top;

static ckpt_status see(void *ctx, size_t root, const char *name, bool folder, ckpt_error *err)
{
    top *t = ctx;
    (void)root;
    if (!folder) {
        t->latest |= strcmp(name, "latest") == 0;
        t->universal |= strcmp(name, "latest_universal") == 0;
        t->trainer |= strcmp(name, "trainer_state.json") == 0;
        t->accelerate |= strcmp(name, "random_states_0.pkl") == 0;
        return CKPT_OK;
    }
    size_t n = strlen(name);
    for (size_t i = 0; i < t->count; i++)
        if (strncmp(t->folders[i], name, n) == 0 && strcmp(t->folders[i] + n, "/") == 0)
            return CKPT_OK;
    ckpt_str copy = ckpt__arena_join(t->arena, ckpt__s(name), ckpt__s("/"), (ckpt_str){NULL, 0});
    if (n >= TAG_MAX || !copy.data || !ckpt__grow(&t->folders, &t->capacity, t->count + 1, sizeof *t->folders))
        return n >= TAG_MAX ? CKPT_OK : ckpt__ds_no_memory(err);
    t->folders[t->count++] = copy.data;
    return CKPT_OK;
}

int64_t ckpt__ds_step_of(const char *folder)
{
    int64_t n = -1;
    if (ckpt__begins(folder, "global_step")) {
        const char *at = folder + strlen("global_step");
        size_t digits = strspn(at, "0123456789");
        if (!digits || digits > 18 || !ckpt__parse_i64(at, digits, &n))
            return -1;
    }
    return n;
}

/* What the file says, with a slash behind it; "" where it names no folder below. */
static ckpt_status read_latest(ckpt__source *source, const char *name, char *out, ckpt_error *err)
{
    ckpt__buf text = {0};
    uint32_t file;
    *out = '\0';
    ckpt_status status = ckpt__source_add(source, name, &file, err);
    if (status == CKPT_OK)
        status = ckpt__source_slurp(source, file, TAG_MAX, &text, err);
    size_t n = status == CKPT_OK ? text.size : 0, begin = 0;
    while (n > 0 && strchr(" \t\r\n/", text.data[n - 1]) && text.data[n - 1])
        n--;
    while (begin < n && strchr(" \t\r\n", text.data[begin]) && text.data[begin])
        begin++;
    bool plain = n > begin && !memchr(text.data, '/', n) && !memchr(text.data, '\0', n) && text.data[begin] != '.';
    if (plain)
        snprintf(out, TAG_MAX + 2, "%.*s/", (int)(n - begin), text.data + begin);
    ckpt__buf_free(&text);
    return status;
}

/* Folders that hold files of DeepSpeed, the one of the highest step last; others are taken out. */
static int by_step(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    const int64_t m = ckpt__ds_step_of(x), n = ckpt__ds_step_of(y);
    return m != n ? (m < n ? -1 : 1) : strcmp(x, y);
}

static ckpt_status find_tags(const ckpt__source *source, top *t, ckpt_error *err)
{
    size_t n = 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < t->count; i++) {
        bool is;
        status = has_files(source, t->folders[i], t->arena, &is, err);
        if (is)
            t->folders[n++] = t->folders[i];
        else if (ckpt__ds_step_of(t->folders[i]) >= (t->empty ? ckpt__ds_step_of(t->empty) : 0))
            t->empty = t->folders[i];
    }
    t->count = n;
    if (n)
        qsort(t->folders, n, sizeof *t->folders, by_step);
    return status;
}

static ckpt_status look_at_top(const ckpt__source *source, ckpt__arena *arena, top *t, ckpt_error *err)
{
    *t = (top){.arena = arena};
    ckpt_status status = ckpt__source_each(source, "", see, t, err);
    return status == CKPT_OK ? find_tags(source, t, err) : status;
}

/* A directory of many folders, none of which is named as DeepSpeed's, is not searched. */
static bool is_likely(const top *t)
{
    bool named = t->latest || t->universal;
    for (size_t i = 0; !named && i < t->count; i++)
        named = ckpt__ds_step_of(t->folders[i]) >= 0 || strcmp(t->folders[i], "pytorch_model/") == 0;
    return named;
}

/* A folder that DeepSpeed alone names so, or its mark: what a save left that died early is no checkpoint of another program. */
static bool has_empty_tag(const top *t)
{
    bool named = t->universal;
    for (size_t i = 0; !named && i < t->count; i++)
        named = ckpt__ds_step_of(t->folders[i]) >= 0;
    return named;
}

int ckpt__ds_bid(const ckpt__probe *probe)
{
    enum { LIKELY = 87 };
    bool is = false;
    if (!probe->directory)
        return 0;
    ckpt__arena *arena = ckpt__arena_new(0);
    top t = {.arena = arena};
    if (arena && has_files(probe->source, "", arena, &is, NULL) == CKPT_OK && !is &&
        ckpt__source_each(probe->source, "", see, &t, NULL) == CKPT_OK && is_likely(&t)) {
        is = has_empty_tag(&t);
        is = find_tags(probe->source, &t, NULL) == CKPT_OK && (is || t.count > 0);
    }
    free(t.folders);
    ckpt__arena_free(arena);
    return is ? LIKELY : 0;
}

static ckpt_status say(ckpt__ds *d, ckpt_severity severity, const char *code, const char *fix, const char *format,
                       const char *a, const char *b, ckpt_error *err)
{
    char text[700];
    snprintf(text, sizeof text, format, (int)strcspn(a, "/"), a, (int)strcspn(b, "/"), b);
    return ckpt__report_add(ckpt__ds_index(d)->findings, severity, code, NULL, fix, "%s", text)
               ? CKPT_OK
               : ckpt__ds_no_memory(err);
}

/* DeepSpeed's rank 0 writes `latest` last (DeepSpeedEngine.save_checkpoint). A tag of a higher step is what a save that died left. The
 * tag that `latest` names can lack files too: rank 0 does not wait for the other ranks before. */
static ckpt_status say_others(ckpt__ds *d, const top *t, const char *taken, bool named, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    if (t->empty && ckpt__ds_step_of(t->empty) > ckpt__ds_step_of(taken))
        status = say(d, CKPT_SEVERITY_WARNING, "incomplete-step", NULL,
                     "%.*s has no files of DeepSpeed, as a save leaves it that died early: %.*s is read", t->empty,
                     taken, err);
    for (size_t i = 0; status == CKPT_OK && i < t->count; i++) {
        if (strcmp(t->folders[i], taken) == 0)
            continue;
        bool later = named && ckpt__ds_step_of(t->folders[i]) > ckpt__ds_step_of(taken) &&
                     ckpt__ds_step_of(taken) >= 0 && strstr(t->folders[i], "universal") == NULL;
        status = later
                     ? say(d, CKPT_SEVERITY_WARNING, "incomplete-step", "to look at it, give the folder itself",
                           "%.*s is later than %.*s, which latest names, and is skipped: DeepSpeed writes latest last",
                           t->folders[i], taken, err)
                     : say(d, CKPT_SEVERITY_NOTE, "file-ignored", "to look at it, give the folder itself",
                           "%.*s is another checkpoint; %.*s is read", t->folders[i], taken, err);
    }
    return status;
}

static ckpt_status refuse_empty(const ckpt__ds *d, const top *t, const char *file, const char *below, ckpt_error *err)
{
    const int n = (int)strcspn(below, "/"), folder = t->empty ? (int)strcspn(t->empty, "/") : 0;
    if (file)
        return ckpt__fail(
            err, CKPT_E_DAMAGED, d->label,
            "%s names %.*s, which has no files of DeepSpeed, and no other folder has: the save did not finish, or "
            "they lie elsewhere",
            file, n, below);
    return ckpt__fail(err, CKPT_E_DAMAGED, d->label,
                      "%.*s has no files of DeepSpeed: the save did not finish, or they lie elsewhere", folder,
                      t->empty ? t->empty : "");
}

/* Is the tag all there? It is read for that, but for the payload, with files of its own, which nothing else asks for. */
static bool is_whole(const ckpt__ds *d, const char *below)
{
    const ckpt__source *from = d->reader.request->source;
    ckpt__read_request request = {.file = CKPT__WHOLE_DIRECTORY, .members = d->reader.request->members};
    ckpt__index *index = NULL;
    ckpt_status status = ckpt__source_open(from->path, &request.source, NULL);
    for (size_t i = 0; status == CKPT_OK && i < from->also_count; i++)
        status = ckpt__source_open_also(request.source, from->also[i].path, NULL);
    if (status == CKPT_OK)
        status = ckpt__ds_read_at(&request, below, &index, NULL);
    ckpt__index_free(index);
    ckpt__source_close(request.source);
    return status == CKPT_OK;
}

/* Without a word of DeepSpeed's: the newest that is whole, or the newest. *later: of those behind it none is whole. */
static size_t choose_best(const ckpt__ds *d, const top *t, bool *later)
{
    *later = false;
    for (size_t i = t->count; t->count > 1 && i-- > 0;)
        if (is_whole(d, t->folders[i])) {
            *later = i + 1 < t->count;
            return i;
        }
    return t->count - 1;
}

static ckpt_status say_passed(ckpt__ds *d, const top *t, size_t best, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = best + 1; status == CKPT_OK && i < t->count; i++)
        status = say(d, CKPT_SEVERITY_WARNING, "incomplete-step",
                     "give the folder itself: ckpt-inspect verify says what it lacks",
                     "%.*s is later than %.*s, which is read, and is not whole: it is skipped", t->folders[i],
                     t->folders[best], err);
    return status;
}

static ckpt_status choose(ckpt__ds *d, const top *t, char *below, ckpt_error *err)
{
    const char *file = t->latest ? "latest" : t->universal ? "latest_universal" : NULL;
    bool there = false, later;
    ckpt__ds_index(d)->job.latest = file ? CKPT__LATEST_FINE : CKPT__LATEST_NONE;
    ckpt_status status = file ? read_latest(d->reader.request->source, file, below, err) : CKPT_OK;
    if (status < 0)
        return status;
    for (size_t i = 0; i < t->count; i++)
        there = there || strcmp(t->folders[i], below) == 0;
    if (file && there)
        return say_others(d, t, below, true, err);
    if (t->count == 0)
        return refuse_empty(d, t, file, below, err);
    const size_t number = choose_best(d, t, &later);
    const char *best = t->folders[number];
    if (file)
        ckpt__ds_index(d)->job.latest = CKPT__LATEST_WRONG;
    if (file && *below)
        status = say(d, CKPT_SEVERITY_WARNING, "incomplete-step", "give the folder that you mean",
                     "latest names %.*s, where no files of DeepSpeed are: %.*s is read", below, best, err);
    else if (file)
        status = say(d, CKPT_SEVERITY_WARNING, "incomplete-step", "give the folder that you mean",
                     "%.*s names no folder here: %.*s is read", file, best, err);
    else
        status = say(d, CKPT_SEVERITY_WARNING, "incomplete-step",
                     "give the folder that you mean, or write its name into latest",
                     "latest is missing. DeepSpeed writes it last. %.*s is read%.*s", best, "", err);
    snprintf(below, TAG_MAX + 2, "%s", best);
    if (status == CKPT_OK && later)
        status = say_passed(d, t, number, err);
    top others = *t;
    others.count = later ? number + 1 : t->count;
    return status == CKPT_OK ? say_others(d, &others, below, false, err) : status;
}

/* The tags beside the one that latest names, for ckpt__ds_say_whole. */
static ckpt_status keep_others(ckpt__ds *d, const top *t, ckpt_error *err)
{
    const char **all = ckpt__arena_array(t->arena, t->count + 1, sizeof *all);
    if (!all)
        return ckpt__ds_no_memory(err);
    for (size_t i = 0; i < t->count; i++)
        all[i] = t->folders[i];
    d->tags = all;
    d->tag_count = t->count;
    return CKPT_OK;
}

static bool has_error(const ckpt_report *findings)
{
    for (size_t i = 0; i < ckpt_report_count(findings); i++)
        if (ckpt_report_get(findings, i)->severity == CKPT_SEVERITY_ERROR)
            return true;
    return false;
}

ckpt_status ckpt__ds_say_whole(ckpt__ds *d, ckpt_status status, ckpt_error *err)
{
    char folder[TAG_MAX + 2], tag[TAG_MAX + 2];
    const bool failed = status == CKPT_E_DAMAGED || status == CKPT_E_FORMAT || status == CKPT_E_MISMATCH,
               lacks = status == CKPT_OK && has_error(ckpt__ds_index(d)->findings);
    size_t i = d->tag_count;
    if (!failed && !lacks)
        return status;
    while (i > 0 && (strcmp(d->tags[i - 1], d->below) == 0 || !is_whole(d, d->tags[i - 1])))
        i--;
    if (i == 0)
        return status;
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(d->tags[i - 1], "/"), d->tags[i - 1]);
    snprintf(tag, sizeof tag, "%.*s", (int)strcspn(d->below, "/"), d->below);
    if (lacks)
        return ckpt__report_add(ckpt__ds_index(d)->findings, CKPT_SEVERITY_WARNING, "incomplete-step", NULL,
                                "give its folder; DeepSpeed loads it where latest names it, or by "
                                "engine.load_checkpoint(DIR, tag=NAME)",
                                "%s, which latest names, is not whole: %s is the newest that is", tag, folder)
                   ? CKPT_OK
                   : ckpt__ds_no_memory(err);
    if (err) {
        const size_t n = strlen(err->message);
        snprintf(err->message + n, sizeof err->message - n,
                 ". %s is whole: give its folder, or in the program engine.load_checkpoint(DIR, tag=\"%s\")", folder,
                 folder);
    }
    return status;
}

/* The last name of a path, which slashes may follow. */
static const char *base_of(const char *path)
{
    const char *base = path;
    for (const char *c = path; *c; c++)
        base = *c == '/' && c[1] && c[1] != '/' ? c + 1 : base;
    return base;
}

/* What the program has to be told, for no file latest tells it. */
static ckpt_status tell_tag(ckpt__ds *d, const char *name, bool inside, ckpt_error *err)
{
    const size_t n = strcspn(name, "/");
    ckpt__job *job = &ckpt__ds_index(d)->job;
    if (n == 0 || name[0] == '.') /* "." and "..": its name is not known */
        return CKPT_OK;
    job->inside_tag = inside;
    job->tag = ckpt__arena_copy(ckpt__ds_index(d)->arena, name, n);
    return job->tag ? CKPT_OK : ckpt__ds_no_memory(err);
}

ckpt_status ckpt__ds_find_below(ckpt__ds *d, ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    char below[TAG_MAX + 2] = "";
    bool here;
    top t = {.arena = a};
    d->below = "";
    ckpt_status status = has_files(d->reader.request->source, "", a, &here, err);
    if (status == CKPT_OK && here)
        return tell_tag(d, base_of(d->reader.request->source->path), true, err);
    if (status < 0)
        return status;
    status = look_at_top(d->reader.request->source, a, &t, err);
    if (status == CKPT_OK)
        status = keep_others(d, &t, err);
    if (status == CKPT_OK)
        status = choose(d, &t, below, err);
    free(t.folders);
    ckpt__ds_index(d)->job.beside = t.trainer      ? CKPT__BESIDE_TRAINER
                                    : t.accelerate ? CKPT__BESIDE_ACCELERATE
                                                   : CKPT__BESIDE_NOTHING;
    if (status == CKPT_OK && !(d->below = ckpt__arena_copy(a, below, strlen(below))))
        status = ckpt__ds_no_memory(err);
    if (status == CKPT_OK && ckpt__ds_index(d)->job.latest != CKPT__LATEST_FINE)
        status = tell_tag(d, d->below, false, err);
    return status;
}
