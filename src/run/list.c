/* run/list.c - a run directory as a whole: which directories of steps there are, and what is odd about them. */
#include "run/gather.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "io/aside.h"
#include "model/index.h"

enum { HINT_MAX = 4096 };

/* One call of ckpt_run_list_open. */
typedef struct gatherer {
    const char *path;    /* the run directory, without slashes at its end; borrowed from that call */
    ckpt_run_list *list; /* owned until the call hands it out */
    ckpt__place *places; /* heap, owned: the run directory first, then the ranks in order */
    size_t place_count, place_capacity;
    char writer[200]; /* who holds the first lock that is held; means something where writers > 0 */
    size_t writers;   /* places whose lock is held */
    bool is_run;      /* some place holds steps of ours, or a trace of ckpt_run_open */
} gatherer;

/* ---- one directory */

/* The names in one directory, before anything below it is opened. */
typedef struct scan {
    bool steps, lock, latest, manifest; /* a name of a step; .lock; latest; checkpoint.json */
    size_t leftovers, aside;            /* as in ckpt__place */
    char newest_aside[CKPT__STEP_NAME + 16];
    int64_t *ranks; /* heap, owned: the numbers of the rank directories; NULL: none */
    size_t rank_count, rank_capacity;
} scan;

static ckpt_status scan_name(void *ctx, const char *name, ckpt_error *err)
{
    scan *s = ctx;
    int64_t number;
    if (ckpt__step_parse(name, &number))
        s->steps = true;
    else if (ckpt__rank_parse(name, &number)) {
        if (!ckpt__grow(&s->ranks, &s->rank_capacity, s->rank_count + 1, sizeof *s->ranks))
            return ckpt__fail_memory(err, "a list of ranks", s->rank_count);
        char usual[CKPT__STEP_NAME];
        ckpt__rank_name(usual, number);
        if (strcmp(usual, name) == 0) /* no writer makes rank-3 */
            s->ranks[s->rank_count++] = number;
    } else if (strcmp(name, ".lock") == 0)
        s->lock = true;
    else if (strcmp(name, "latest") == 0)
        s->latest = true;
    else if (strcmp(name, "checkpoint.json") == 0)
        s->manifest = true;
    else if (ckpt__begins(name, ".tmp-") || ckpt__begins(name, ".trash-"))
        s->leftovers++;
    else if (ckpt__aside_is(name)) {
        s->aside++;
        if (strcmp(name, s->newest_aside) > 0)
            ckpt__escape(s->newest_aside, sizeof s->newest_aside, name, strlen(name));
    }
    return CKPT_OK;
}

/* Other trainers call their directories step-N, too (torchtitan). A step of ours has a manifest; one whose manifest was
 * lost has the file that no other program calls so. */
typedef struct owner {
    const ckpt__store *store;
    bool ours, others; /* a step that is ours; one that holds files and is not */
} owner;

static ckpt_status any_name(void *ctx, const char *name, ckpt_error *err)
{
    (void)err;
    (void)name;
    *(bool *)ctx = true;
    return CKPT_ANSWER_NO; /* one is enough */
}

static bool has_files(const ckpt__store *store, const char *step)
{
    bool any = false;
    ckpt__store *inside = NULL;
    ckpt__buf path = {0};
    ckpt__buf_printf(&path, "%s/%s", store->path, step);
    if (!path.failed && ckpt__store_open(path.data, false, &inside, NULL) == CKPT_OK)
        (void)ckpt__store_each(inside, any_name, &any, NULL);
    ckpt__store_close(inside);
    ckpt__buf_free(&path);
    return any;
}

static ckpt_status look_for_owner(void *ctx, const char *step, ckpt_error *err)
{
    static const char *const files[] = {"checkpoint.json", "training.safetensors"};
    owner *o = ctx;
    int64_t number;
    bool ours = false;
    (void)err;
    if (!ckpt__step_parse(step, &number))
        return CKPT_OK;
    for (size_t i = 0; !ours && i < sizeof files / sizeof *files; i++) {
        char name[CKPT__STEP_NAME + 32];
        uint64_t size;
        int64_t changed;
        snprintf(name, sizeof name, "%s/%s", step, files[i]);
        ours = ckpt__store_stat(o->store, name, &size, &changed, NULL) != CKPT_E_NOT_FOUND;
    }
    o->ours = o->ours || ours;
    o->others = o->others || (!ours && has_files(o->store, step));
    return ours ? CKPT_ANSWER_NO : CKPT_OK;
}

/* "latest" as the hook writes it: the name of a step. DeepSpeed's holds its tag. */
static bool is_our_latest(const ckpt__store *store)
{
    ckpt__buf text = {0};
    int64_t number;
    char name[CKPT__STEP_NAME] = "";
    bool read = ckpt__store_read(store, "latest", HINT_MAX, &text, NULL) == CKPT_OK && text.size > 0;
    size_t n = read ? strcspn(text.data, "\n") : sizeof name;
    if (n < sizeof name)
        memcpy(name, text.data, n);
    ckpt__buf_free(&text);
    return ckpt__step_parse(name, &number);
}

/* ".lock" that the hook wrote: a run in which nothing was saved yet. */
static bool is_our_lock(const ckpt__store *store)
{
    ckpt__buf text = {0};
    bool ours = ckpt__store_read(store, ".lock", HINT_MAX, &text, NULL) == CKPT_OK && text.size > 4 &&
                memcmp(text.data, "pid ", 4) == 0;
    ckpt__buf_free(&text);
    return ours;
}

/* Steps that are nobody's but ours, or a directory in which the hook was at work. */
static ckpt_status is_ours(const ckpt__store *store, const scan *s, bool *ours, ckpt_error *err)
{
    *ours = (s->lock && (s->latest || is_our_lock(store))) || (s->steps && s->latest && is_our_latest(store));
    if (*ours || !s->steps)
        return CKPT_OK;
    owner o = {.store = store};
    ckpt_status status = ckpt__store_each(store, look_for_owner, &o, err);
    *ours = o.ours || !o.others;
    return status < 0 ? status : CKPT_OK;
}

static void read_latest(const ckpt__store *store, ckpt__place *p)
{
    ckpt__buf text = {0};
    if (ckpt__store_read(store, "latest", HINT_MAX, &text, NULL) == CKPT_OK && text.size > 0) {
        size_t n = strcspn(text.data, "\n");
        ckpt__escape(p->latest, sizeof p->latest, text.data, n < text.size ? n : text.size);
    }
    ckpt__buf_free(&text);
}

static void note_writer(gatherer *g, const ckpt__store *store)
{
    char holder[sizeof g->writer];
    if (!ckpt__store_holder(store, holder, sizeof holder))
        return;
    if (g->writers++ == 0)
        snprintf(g->writer, sizeof g->writer, "%.*s", (int)strcspn(holder, "\n"), holder);
}

/* Adds the steps of an open directory. */
static ckpt_status add_place(gatherer *g, const ckpt__store *store, const char *path, int64_t rank, const scan *s,
                             ckpt_error *err)
{
    if (!ckpt__grow(&g->places, &g->place_capacity, g->place_count + 1, sizeof *g->places))
        return ckpt__fail_memory(err, path, 0);
    ckpt__place *p = &g->places[g->place_count];
    memset(p, 0, sizeof *p);
    p->rank = rank;
    p->leftovers = s->leftovers;
    p->aside = s->aside;
    memcpy(p->newest_aside, s->newest_aside, sizeof p->newest_aside);
    p->path = strdup(path);
    if (!p->path)
        return ckpt__fail_memory(err, path, 0);
    g->place_count++;
    note_writer(g, store);
    ckpt_status status = ckpt__held_list(store, &p->held, &p->count, err);
    read_latest(store, p); /* after the steps: the hint follows a publication */
    return status;
}

static ckpt_status add_rank(gatherer *g, int64_t rank, ckpt_error *err)
{
    char name[CKPT__STEP_NAME];
    ckpt__buf path = {0};
    ckpt__store *store = NULL;
    ckpt_error why = CKPT_ERROR_INIT;
    scan s = {0};
    bool ours = false;
    ckpt__rank_name(name, rank);
    ckpt__buf_printf(&path, "%s/%s", g->path, name);
    ckpt_status status =
        path.failed ? ckpt__fail_memory(&why, name, 0) : ckpt__store_open(path.data, false, &store, &why);
    if (status == CKPT_E_FORMAT || (status == CKPT_E_SYSTEM && why.sys_errno == ENOENT)) { /* a file, or gone by now */
        ckpt__buf_free(&path);
        return CKPT_OK;
    }
    if (status == CKPT_OK)
        status = ckpt__store_each(store, scan_name, &s, &why);
    if (status == CKPT_OK)
        status = is_ours(store, &s, &ours, &why);
    if (status == CKPT_OK && ours) {
        g->is_run = true;
        status = add_place(g, store, path.data, rank, &s, &why);
    }
    ckpt__store_close(store);
    ckpt__buf_free(&path);
    free(s.ranks);
    if (status < 0 && err)
        *err = why;
    return status;
}

static int by_number(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* The run directory itself, and its ranks' in order. */
static ckpt_status gather(gatherer *g, ckpt_error *err)
{
    ckpt__store *store = NULL;
    scan s = {0};
    bool ours = false;
    ckpt_status status = ckpt__store_open(g->path, false, &store, err);
    if (status == CKPT_OK)
        status = ckpt__store_each(store, scan_name, &s, err);
    if (status == CKPT_OK && s.manifest)
        status =
            ckpt__fail(err, CKPT_E_FORMAT, g->path,
                       "it holds checkpoint.json: this is one step, not a run directory; name the directory above it");
    if (status == CKPT_OK)
        status = is_ours(store, &s, &ours, err);
    if (status == CKPT_OK && ours) {
        g->is_run = true;
        status = add_place(g, store, g->path, CKPT__TOP, &s, err);
    }
    ckpt__store_close(store);
    if (s.rank_count > 1)
        qsort(s.ranks, s.rank_count, sizeof *s.ranks, by_number);
    for (size_t i = 0; status == CKPT_OK && i < s.rank_count; i++)
        status = add_rank(g, s.ranks[i], err);
    free(s.ranks);
    if (status == CKPT_OK && !g->is_run)
        status = ckpt__fail(
            err, CKPT_E_FORMAT, g->path,
            "not a run directory: it holds neither step-N nor rank-N directories with steps of ckpt_run_save");
    return status;
}

/* ---- what was odd */

static bool note_leftovers(const gatherer *g)
{
    size_t n = 0;
    const char *where = NULL;
    for (size_t i = 0; i < g->place_count; i++) {
        n += g->places[i].leftovers;
        if (!where && g->places[i].leftovers)
            where = g->places[i].path;
    }
    if (n == 0)
        return true;
    return ckpt__report_add(
               g->list->findings, CKPT_SEVERITY_NOTE, "leftover", NULL,
               "nothing: the next ckpt_run_open removes what is left",
               "%zu unfinished or half removed director%s (.tmp-*, .trash-*): a writer died, or removes now", n,
               n == 1 ? "y" : "ies") &&
           ckpt__report_detail(g->list->findings, where, NULL, NULL, 0);
}

/* What a run that went back has left of its other way. */
static bool note_aside(const gatherer *g)
{
    for (size_t i = 0; i < g->place_count; i++) {
        const ckpt__place *p = &g->places[i];
        if (p->aside == 0)
            continue;
        return ckpt__report_add(
                   g->list->findings, CKPT_SEVERITY_NOTE, "kept-aside", NULL,
                   "remove those that you do not need; to take one back, close the run and rename it to step-N",
                   "a run went back (resume_step), and %zu later checkpoint%s kept aside: %s%s; no resume and no "
                   "retention looks at %s",
                   p->aside, p->aside == 1 ? " is" : "s are", p->newest_aside, p->aside == 1 ? "" : ", ...",
                   p->aside == 1 ? "it" : "them") &&
               ckpt__report_detail(g->list->findings, p->path, NULL, NULL, 0);
    }
    return true;
}

static bool note_hints(const gatherer *g)
{
    size_t noted = 0;
    for (size_t i = 0; i < g->place_count && noted < CKPT__RANKS_NAMED; i++) {
        const ckpt__place *p = &g->places[i];
        const char *newest = NULL;
        for (size_t k = 0; k < p->count && !newest; k++)
            newest = p->held[k].complete ? p->held[k].name : NULL;
        if (!p->latest[0] || (newest && strcmp(newest, p->latest) == 0))
            continue;
        noted++;
        if (!ckpt__report_add(g->list->findings, CKPT_SEVERITY_NOTE, "stale-hint", NULL, NULL,
                              "latest names %s; %s%s (a resume looks at the directories, not at the hint)", p->latest,
                              newest ? "the newest complete checkpoint is " : "no checkpoint is complete",
                              newest ? newest : "") ||
            !ckpt__report_detail(g->list->findings, p->path, NULL, NULL, 0))
            return false;
    }
    return true;
}

static bool note_incomplete(const gatherer *g)
{
    const ckpt_run_list *list = g->list;
    for (size_t i = 0; i < list->count; i++)
        if (!list->entries[i].complete &&
            (!ckpt__report_add(list->findings, CKPT_SEVERITY_NOTE, "incomplete-step", NULL,
                               list->entries[i].world > 1
                                   ? NULL
                                   : "retention never removes it: delete it yourself if you do not need it",
                               "%s: %s", list->entries[i].name, list->entries[i].why) ||
             !ckpt__report_detail(list->findings, list->entries[i].path, NULL, NULL, 0)))
            return false;
    return true;
}

/* While a writer is at work, what it is writing and a hint that it is about to replace are nothing odd. */
static ckpt_status finish(gatherer *g, ckpt_error *err)
{
    ckpt_run_list *list = g->list;
    ckpt__buf text = {0};
    bool ok = note_incomplete(g) && note_aside(g) && (g->writers > 0 || (note_leftovers(g) && note_hints(g)));
    if (g->writers == 1)
        ckpt__buf_str(&text, g->writer);
    else if (g->writers > 1)
        ckpt__buf_printf(&text, "%s, and %zu more rank%s", g->writer, g->writers - 1, g->writers == 2 ? "" : "s");
    ok = ok && !text.failed &&
         (g->writers == 0 || (list->writer = ckpt__arena_copy(list->strings, text.data, text.size)));
    ckpt__buf_free(&text);
    return ok ? CKPT_OK : ckpt__fail_memory(err, "a list of checkpoints", list->count);
}

/* ---- the list */

ckpt_status ckpt_run_list_open(const char *path, ckpt_run_list **out, ckpt_error *err)
{
    gatherer g = {0};
    if (!out || !path || !*path)
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL, "no path was given, or no place for the list");
    *out = NULL;
    ckpt__buf plain = {0};
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    ckpt__buf_add(&plain, path, n);
    g.list = calloc(1, sizeof *g.list);
    g.path = plain.data;
    bool ready =
        !plain.failed && g.list && (g.list->strings = ckpt__arena_new(0)) && (g.list->findings = ckpt_report_new());
    ckpt_status status = ready ? gather(&g, err) : ckpt__fail_memory(err, path, 0);
    if (status == CKPT_OK)
        status = ckpt__run_merge(g.list, g.places, g.place_count, err);
    if (status == CKPT_OK)
        status = finish(&g, err);
    for (size_t i = 0; i < g.place_count; i++) {
        free(g.places[i].path);
        free(g.places[i].held);
    }
    free(g.places);
    ckpt__buf_free(&plain);
    if (status == CKPT_OK)
        *out = g.list;
    else
        ckpt_run_list_close(g.list);
    return status;
}

void ckpt_run_list_close(ckpt_run_list *list)
{
    if (!list)
        return;
    ckpt__arena_free(list->strings);
    ckpt_report_free(list->findings);
    free(list->entries);
    free(list);
}

size_t ckpt_run_list_count(const ckpt_run_list *list)
{
    return list ? list->count : 0;
}

const ckpt_run_entry *ckpt_run_list_entry(const ckpt_run_list *list, size_t i)
{
    return list && i < list->count ? &list->entries[i] : NULL;
}

const char *ckpt_run_list_writer(const ckpt_run_list *list)
{
    return list ? list->writer : NULL;
}

const ckpt_report *ckpt_run_list_findings(const ckpt_run_list *list)
{
    return list ? list->findings : NULL;
}
