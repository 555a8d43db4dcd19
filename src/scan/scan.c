/* scan/scan.c - files and directories, the queue of what is still to be looked at, and the result. */
#include "scan/work.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/first_sizes.h"
#include "model/index.h"

enum { FOLDERS_DEEP = 32, NOTES_MAX = 1000 };
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION /* a fuzzer's runs are many, and each shall be short */
static const uint64_t BUDGET_TIMES = 64, BUDGET_LEAST = (uint64_t)4 << 20;
#else
static const uint64_t BUDGET_TIMES = 64, BUDGET_LEAST = (uint64_t)256 << 20;
#endif

/* One row of the result. */
typedef struct entry {
    ckpt_scan_global global; /* its text is in the scan's arena */
    size_t order;            /* in which it was met */
} entry;

/* The result of a scan: all in it is owned and lives until ckpt_scan_close. */
struct ckpt_scan {
    ckpt__arena *arena; /* has the text of entries and the keys */
    ckpt__hash *by_key; /* name and place, and notes */
    entry *entries;
    size_t count, capacity;  /* heap; NULL: none */
    ckpt_danger verdict;     /* the worst that was met */
    uint64_t files, pickles; /* how many were looked at */
};

/* ---- the result */

const char *ckpt_danger_name(ckpt_danger danger)
{
    return danger == CKPT_DANGER_HARMLESS ? "harmless" : danger == CKPT_DANGER_DANGEROUS ? "dangerous" : "unknown";
}

const char *ckpt_verdict_name(ckpt_danger worst)
{
    return worst == CKPT_DANGER_HARMLESS ? "clean" : ckpt_danger_name(worst);
}

void ckpt_scan_close(ckpt_scan *s)
{
    if (!s)
        return;
    ckpt__hash_free(s->by_key);
    ckpt__arena_free(s->arena);
    free(s->entries);
    free(s);
}

ckpt_danger ckpt_scan_verdict(const ckpt_scan *s)
{
    return s->verdict;
}

size_t ckpt_scan_count(const ckpt_scan *s)
{
    return s->count;
}

const ckpt_scan_global *ckpt_scan_get(const ckpt_scan *s, size_t i)
{
    return i < s->count ? &s->entries[i].global : NULL;
}

uint64_t ckpt_scan_files(const ckpt_scan *s)
{
    return s->files;
}

uint64_t ckpt_scan_pickles(const ckpt_scan *s)
{
    return s->pickles;
}

void ckpt__scan_count_pickle(ckpt__scan_job *job)
{
    job->scan->pickles++;
}

static void raise_to(ckpt__scan_job *job, ckpt_danger danger)
{
    if (danger > job->scan->verdict)
        job->scan->verdict = danger;
}

/* 1: put, 0: it was there (*at is its number), -1: no memory. */
static int remember(ckpt__scan_job *job, const char *a, size_t a_size, const char *label, size_t value, size_t *at)
{
    ckpt_scan *s = job->scan;
    size_t n = a_size + 1 + strlen(label);
    char *key = ckpt__arena_alloc(s->arena, n + 1);
    if (!key)
        return -1;
    memcpy(key, a, a_size);
    memcpy(key + a_size + 1, label, strlen(label));
    return ckpt__hash_put(s->by_key, key, n, value, at);
}

ckpt_status ckpt__scan_note(ckpt__scan_job *job, const char *code, const char *label, const char *fix,
                            const char *format, ...)
{
    char text[700];
    va_list args;
    size_t at;
    raise_to(job, CKPT_DANGER_UNKNOWN);
    int put = remember(job, code, strlen(code), label, 0, &at);
    if (put < 0)
        return ckpt__fail_memory(job->err, label, 0);
    if (put == 0 || !job->report || job->notes >= NOTES_MAX)
        return CKPT_OK;
    job->notes++;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!ckpt__report_add(job->report, CKPT_SEVERITY_WARNING, code, NULL, fix, "%s", text) ||
        !ckpt__report_detail(job->report, label, NULL, NULL, 0))
        return ckpt__fail_memory(job->err, label, 0);
    return CKPT_OK;
}

ckpt_status ckpt__scan_limit(ckpt__scan_job *job, const char *label, const char *what)
{
    return ckpt__scan_note(job, "scan-limit", label, "look at it by hand, and do not load it",
                           "a limit that protects against hostile files was met, and the rest was not checked: %s",
                           what);
}

/* "module.name", with '?' for what is not known. */
static ckpt_str full_name(ckpt_scan *s, const ckpt__walk_global *g)
{
    ckpt__buf b = {0};
    if (g->extension) {
        ckpt__buf_printf(&b, "copyreg extension %u", g->extension);
    } else {
        ckpt__buf_add(&b, g->module.data ? g->module.data : "?", g->module.data ? g->module.size : 1);
        ckpt__buf_char(&b, '.');
        ckpt__buf_add(&b, g->name.data ? g->name.data : "?", g->name.data ? g->name.size : 1);
    }
    ckpt_str name = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(s->arena, b.data, b.size);
    ckpt__buf_free(&b);
    return name;
}

ckpt_status ckpt__scan_add(ckpt__scan_job *job, const char *label, const ckpt__walk_global *g, bool plain_getattr)
{
    enum { ARGUMENT_MAX = 200 };
    ckpt_scan *s = job->scan;
    size_t at = s->count;
    const char *reason;
    ckpt_danger danger = ckpt__scan_judge(g->module, g->name, &reason);
    if (plain_getattr) {
        danger = CKPT_DANGER_UNKNOWN;
        reason = "takes attributes of globals; all are listed under their dotted names";
    }
    raise_to(job, danger);
    if (s->count >= CKPT__SCAN_GLOBALS_MAX)
        return ckpt__scan_limit(job, label, "more globals than are listed; all of them count for the verdict");
    if (g->extension)
        reason = "a global by its number in copyreg's registry; only the program that wrote it knows which one";
    ckpt_str name = full_name(s, g);
    int put = name.data ? remember(job, name.data, name.size, label, at, &at) : -1;
    if (put < 0 || !ckpt__grow(&s->entries, &s->capacity, s->count + 1, sizeof *s->entries))
        return ckpt__fail_memory(job->err, label, g->module.size);
    if (put == 1) {
        s->entries[s->count] = (entry){.order = s->count};
        s->entries[s->count++].global = (ckpt_scan_global){.name = name,
                                                           .danger = danger,
                                                           .reason = reason,
                                                           .position = g->position,
                                                           .file = ckpt__arena_str(s->arena, label, strlen(label))};
    }
    ckpt_scan_global *out = &s->entries[at].global;
    out->count += g->count;
    out->called += g->calls;
    if (!out->argument.data && g->argument.data)
        out->argument = ckpt__arena_str(s->arena, g->argument.data,
                                        g->argument.size < ARGUMENT_MAX ? g->argument.size : ARGUMENT_MAX);
    return out->file.data ? CKPT_OK : ckpt__fail_memory(job->err, label, 0);
}

static int by_danger(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->global.danger != y->global.danger)
        return x->global.danger > y->global.danger ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* ---- the queue */

char *ckpt__scan_label(const char *parent, const char *name, size_t n)
{
    size_t p = strlen(parent), room = p + 1 + n + 1;
    if (room > CKPT__SCAN_LABEL_MAX) { /* names in names in names: the last one is what tells */
        n = n < CKPT__SCAN_LABEL_MAX / 2 ? n : CKPT__SCAN_LABEL_MAX / 2;
        p = p < CKPT__SCAN_LABEL_MAX / 2 ? p : CKPT__SCAN_LABEL_MAX / 2;
    }
    char *label = malloc(p + 1 + n + 1);
    if (!label)
        return NULL;
    memcpy(label, parent, p);
    label[p] = '!';
    memcpy(label + p + 1, name, n);
    for (size_t i = p + 1; i < p + 1 + n; i++)
        if (label[i] == '\0')
            label[i] = '?';
    label[p + 1 + n] = '\0';
    return label;
}

static void drop_span(ckpt__scan_job *job, ckpt__scan_span *span)
{
    free(span->label);
    ckpt__scan_view_drop(job, span->view);
}

ckpt_status ckpt__scan_push(ckpt__scan_job *job, ckpt__scan_span span)
{
    ckpt_status status = CKPT_OK;
    if (!span.label || !span.view)
        status = ckpt__fail_memory(job->err, "scan", 0);
    else if (job->queue_count >= job->queue_max) {
        status = ckpt__scan_limit(job, span.label, "more parts than scan reads");
    } else if (!ckpt__grow(&job->queue, &job->queue_capacity, job->queue_count + 1, sizeof *job->queue)) {
        status = ckpt__fail_memory(job->err, span.label, 0);
    } else {
        job->queue[job->queue_count++] = span;
        return CKPT_OK;
    }
    drop_span(job, &span);
    return status;
}

ckpt_status ckpt__scan_step(ckpt__scan_job *job)
{
    if (job->progress && job->progress->fn && job->progress->fn(job->progress->ctx, job->done, job->total) != 0)
        return ckpt__fail(job->err, CKPT_E_CANCELLED, job->source->path, "cancelled");
    return CKPT_OK;
}

/* One range: everything that it may be, for it may be several things at once. */
static ckpt_status look_at(ckpt__scan_job *job, ckpt__scan_span *span)
{
    unsigned char head[512];
    uint64_t end = 0;
    bool zip = false, tar = false, packed = false, npy = false, native = false;
    uint64_t whole = ckpt__scan_view_size(job, span->view, UINT64_MAX); /* a stream is inflated to its end */
    ckpt_status status = CKPT_OK;
    if (whole < span->at)
        return CKPT_OK;
    if (span->size > whole - span->at)
        span->size = whole - span->at;
    if (ckpt__scan_view_capped(span->view))
        status = ckpt__scan_limit(job, span->label, "it inflates to more than scan reads");
    size_t n = ckpt__scan_head(job, span, 0, head, sizeof head);
    if (status == CKPT_OK && n == 0 && span->size > 0 && !job->over)
        return ckpt__scan_note(job, "scan-unreadable", span->label, "copy the file and scan it again",
                               "it cannot be read");
    /* "PK" would be a persistent id, which nobody but the reader of the archive could look up. */
    if (status == CKPT_OK && !(n >= 4 && memcmp(head, "PK\3\4", 4) == 0))
        status = ckpt__scan_pickles(job, span, 0, &end);
    if (status == CKPT_OK && !span->hunted)
        status = ckpt__scan_zip(job, span, &zip);
    if (status == CKPT_OK && !zip)
        status = ckpt__scan_tar(job, span, &tar);
    if (status == CKPT_OK)
        status = ckpt__scan_packed(job, span, head, n, &packed);
    if (status == CKPT_OK)
        status = ckpt__scan_npy(job, span, head, n, &npy);
    if (status == CKPT_OK)
        status = ckpt__scan_native(job, span, head, n, &native);
    if (status == CKPT_OK && end > 0 && end < span->size && !zip && !tar && !span->hunted && !span->literal)
        status = ckpt__scan_skim(job, span, end, span->size, false);
    return status;
}

static ckpt_status work(ckpt__scan_job *job)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && job->queue_count > 0) {
        ckpt__scan_span span = job->queue[--job->queue_count];
        if (job->over)
            status = ckpt__scan_limit(job, span.label, "more bytes than scan reads");
        else
            status = look_at(job, &span);
        drop_span(job, &span);
        if (status == CKPT_OK)
            status = ckpt__scan_step(job);
    }
    while (job->queue_count > 0)
        drop_span(job, &job->queue[--job->queue_count]);
    return status;
}

/* ---- files */

/* What is remembered of a file is in proportion to it. */
static void set_limits(ckpt__scan_job *job, uint64_t size)
{
    enum { QUEUE_LEAST = 10000, A_PART = 16 };
    uint64_t inflated = ckpt__inflated_limit(size, false), parts = QUEUE_LEAST + size / A_PART;
    job->memory_max = inflated < CKPT__SCAN_MEMORY_MAX ? inflated : CKPT__SCAN_MEMORY_MAX;
    job->queue_max = parts < CKPT__SCAN_QUEUE_MAX ? (size_t)parts : CKPT__SCAN_QUEUE_MAX;
    ckpt__walker_limit(job->walker, size);
    ckpt__walker_limit(job->peeker, size);
}

static ckpt_status scan_file(ckpt__scan_job *job, uint32_t file)
{
    const ckpt__file *f = &job->source->files[file];
    uint64_t size = f->size;
    job->file = file;
    job->over = false;
    if (!ckpt__mul(size, BUDGET_TIMES, &job->budget) || !ckpt__add(job->budget, BUDGET_LEAST, &job->budget))
        job->budget = UINT64_MAX;
    set_limits(job, size);
    job->scan->files++;
    char *label = strdup(f->name);
    ckpt__scan_view *view = label ? ckpt__scan_view_file(job, file) : NULL;
    ckpt_status status = ckpt__scan_push(job, (ckpt__scan_span){.view = view, .size = size, .label = label});
    if (status == CKPT_OK)
        status = work(job);
    job->done += size;
    return status;
}

/* One folder while its names are gathered. All but `below` is heap and owned. */
typedef struct folder {
    char **names;  /* files and folders in it, with its own name before them */
    bool *folders; /* one a name: it is a folder */
    size_t count, capacity, folder_capacity;
    const char *below; /* the folder's own name below the root; "": the root itself. Borrowed */
} folder;

static ckpt_status note_name(void *ctx, size_t root, const char *name, bool is_folder, ckpt_error *err)
{
    folder *f = ctx;
    (void)root;
    size_t n = strlen(f->below) + 1 + strlen(name) + 1;
    char *path = malloc(n);
    if (!path || !ckpt__grow(&f->names, &f->capacity, f->count + 1, sizeof *f->names) ||
        !ckpt__grow(&f->folders, &f->folder_capacity, f->count + 1, sizeof *f->folders)) {
        free(path);
        return ckpt__fail_memory(err, name, n);
    }
    snprintf(path, n, "%s%s%s", f->below, *f->below ? "/" : "", name);
    f->names[f->count] = path;
    f->folders[f->count++] = is_folder;
    return CKPT_OK;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static unsigned depth_of(const char *name)
{
    unsigned n = 0;
    for (; *name; name++)
        n += *name == '/';
    return n;
}

/* What is named in one folder: files are looked at, folders are remembered. */
static ckpt_status scan_names(ckpt__scan_job *job, folder *f, char ***pending, size_t *count, size_t *capacity)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < f->count; i++) {
        uint32_t file;
        ckpt_error why = CKPT_ERROR_INIT;
        if (f->folders[i] && depth_of(f->names[i]) >= FOLDERS_DEEP) {
            status = ckpt__scan_limit(job, f->names[i], "folders are nested deeper than scan reads");
        } else if (f->folders[i]) {
            if (!ckpt__grow(pending, capacity, *count + 1, sizeof **pending))
                return ckpt__fail_memory(job->err, f->names[i], 0);
            (*pending)[(*count)++] = f->names[i];
            f->names[i] = NULL;
        } else if (ckpt__source_add(job->source, f->names[i], &file, &why) < 0) {
            status = ckpt__scan_note(job, "scan-unreadable", f->names[i], "look at it where it is",
                                     "was not opened: %s", why.message);
        } else {
            status = scan_file(job, file);
            ckpt__source_drop_last(job->source);
        }
    }
    return status;
}

static ckpt_status scan_folder(ckpt__scan_job *job, char *below, char ***pending, size_t *count, size_t *capacity)
{
    folder f = {.below = below};
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__source_each(job->source, below, note_name, &f, &why), noted = CKPT_OK;
    if (status == CKPT_E_NO_MEMORY && job->err)
        *job->err = why;
    else if (status < 0)
        noted = ckpt__scan_note(job, status == CKPT_E_LIMIT ? "scan-limit" : "scan-unreadable", *below ? below : ".",
                                "look at it by hand", "not all of the folder was listed: %s", why.message);
    if (status != CKPT_E_NO_MEMORY)
        status = noted;
    if (status == CKPT_OK)
        status = scan_names(job, &f, pending, count, capacity);
    free_names(f.names, f.count);
    free(f.folders);
    return status;
}

/* A folder's files in the order of the system, its folders after them. */
static ckpt_status scan_directory(ckpt__scan_job *job)
{
    char **pending = NULL;
    size_t count = 0, capacity = 0;
    ckpt_status status = scan_folder(job, (char[]){""}, &pending, &count, &capacity);
    if (count)
        qsort(pending, count, sizeof *pending, by_name);
    while (status == CKPT_OK && count > 0) {
        char *below = pending[--count];
        status = scan_folder(job, below, &pending, &count, &capacity);
        free(below);
    }
    free_names(pending, count);
    return status;
}

static ckpt_status begin(ckpt__scan_job *job)
{
    job->walker = ckpt__walker_new();
    job->peeker = ckpt__walker_new();
    job->scan = calloc(1, sizeof *job->scan);
    if (job->scan) {
        job->scan->arena = ckpt__arena_new(0);
        job->scan->by_key = ckpt__hash_new(64);
    }
    bool ok = job->walker && job->peeker && job->scan && job->scan->arena && job->scan->by_key;
    return ok ? CKPT_OK : ckpt__fail_memory(job->err, "scan", 0);
}

ckpt_status ckpt_scan_open(const char *path, const ckpt_scan_options *options, ckpt_scan **out, ckpt_report *report,
                           ckpt_error *err)
{
    ckpt_scan_options own;
    ckpt__scan_job job = {.report = report, .progress = &own.progress, .err = err};
    if (out)
        *out = NULL;
    if (!path || !*path || !out)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_scan_open", "a NULL path, or no place for the scan");
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_scan_options, &own, options, err);
    if (status == CKPT_OK)
        status = ckpt__source_open(path, &job.source, err);
    if (status == CKPT_OK)
        status = begin(&job);
    if (status == CKPT_OK && !job.source->directory)
        job.total = job.source->files[0].size;
    if (status == CKPT_OK)
        status = job.source->directory ? scan_directory(&job) : scan_file(&job, 0);
    ckpt__walker_free(job.walker);
    ckpt__walker_free(job.peeker);
    free(job.queue);
    ckpt__source_close(job.source);
    if (status < 0) {
        ckpt_scan_close(job.scan);
        return status;
    }
    if (job.scan->count)
        qsort(job.scan->entries, job.scan->count, sizeof *job.scan->entries, by_danger);
    *out = job.scan;
    return CKPT_OK;
}
