/* run/held.c - what one rank holds: its step directories, each with its manifest read and its files' sizes
 * compared. A writer may publish and prune meanwhile; its publications and removals are single renames, so a step is
 * either there under its name or gone. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "codec/json.h"
#include "run/run.h"
#include "format/native/manifest.h"

static const char verified_name[] = "verified";
enum {
    MANIFEST_MAX = 1 << 20,
    VERIFIED_MAX = 1 << 20,
    READ_TRIES = 8,    /* a step that is replaced while it is read */
    LIST_TRIES = 16,   /* steps that go while they are listed: newer ones have come, which were not seen */
    PATH_MAX_IN = 1100 /* a step's name and a file's */
};

/* ---- names */

static bool parse(const char *name, const char *prefix, int64_t *out)
{
    size_t n = strlen(prefix), size = strlen(name);
    if (size <= n || size >= CKPT__STEP_NAME || strncmp(name, prefix, n) != 0 || name[n] == '-')
        return false;
    return ckpt__parse_i64(name + n, size - n, out);
}

void ckpt__step_name(char name[CKPT__STEP_NAME], int64_t step)
{
    snprintf(name, CKPT__STEP_NAME, "step-%08lld", (long long)step);
}

bool ckpt__step_parse(const char *name, int64_t *step)
{
    return parse(name, "step-", step);
}

void ckpt__rank_name(char name[CKPT__STEP_NAME], int64_t rank)
{
    snprintf(name, CKPT__STEP_NAME, "rank-%05lld", (long long)rank);
}

bool ckpt__rank_parse(const char *name, int64_t *rank)
{
    return parse(name, "rank-", rank);
}

/* ---- the hint of verified checkpoints */

/* Is there a line "<name> <crc>"? What is no such line is passed over: it is a hint. */
static bool is_marked(const ckpt__buf *text, const char *name, uint32_t crc)
{
    char digits[8];
    size_t n = strlen(name);
    ckpt__hex_crc(digits, crc);
    for (size_t at = 0; at < text->size;) {
        const char *line = text->data + at, *end = memchr(line, '\n', text->size - at);
        size_t size = end ? (size_t)(end - line) : text->size - at;
        if (size == n + 9 && memcmp(line, name, n) == 0 && line[n] == ' ' && memcmp(line + n + 1, digits, 8) == 0)
            return true;
        at += size + 1;
    }
    return false;
}

/* Nothing where it cannot be read: then nothing counts as verified, which is safe. */
static void read_marks(const ckpt__store *store, ckpt__buf *out)
{
    if (ckpt__store_read(store, verified_name, VERIFIED_MAX, out, NULL) < 0)
        ckpt__buf_free(out);
}

static void add_mark(ckpt__buf *text, const ckpt__held *h)
{
    ckpt__buf_printf(text, "%s %08lx\n", h->name, (unsigned long)h->manifest_crc);
}

ckpt_status ckpt__held_mark_verified(ckpt__store *store, const ckpt__held *list, size_t count, const ckpt__held *held,
                                     ckpt_error *err)
{
    ckpt__buf text = {0}, before = {0};
    if (held)
        add_mark(&text, held);
    for (size_t i = 0; i < count; i++)
        if (list[i].verified && !(held && strcmp(held->name, list[i].name) == 0))
            add_mark(&text, &list[i]);
    if (text.failed) {
        ckpt__buf_free(&text);
        return ckpt__fail_memory(err, verified_name, 0);
    }
    read_marks(store, &before);
    bool same = before.size == text.size && (text.size == 0 || memcmp(before.data, text.data, text.size) == 0);
    ckpt_status status =
        same ? CKPT_OK : ckpt__store_write(store, verified_name, text.data ? text.data : "", text.size, err);
    ckpt__buf_free(&before);
    ckpt__buf_free(&text);
    return status;
}

/* ---- one step */

/* Trouble of this process, not of the checkpoint: to take it for damage would resume from an older one. */
static bool is_ours(ckpt_status status, const ckpt_error *why)
{
    return status == CKPT_E_NO_MEMORY ||
           (status == CKPT_E_SYSTEM &&
            (why->sys_errno == EMFILE || why->sys_errno == ENFILE || why->sys_errno == ENOMEM));
}

/* The file is at fault: it is damaged. A newer version, or a right that is missing, is no damage. */
static ckpt_status as_damage(ckpt_status status, const ckpt_error *why)
{
    bool file = status == CKPT_E_LIMIT || ckpt__may_fall_back(status, why->sys_errno);
    return file && status != CKPT_E_FORMAT ? CKPT_E_DAMAGED : status;
}

static void not_complete(ckpt__held *h, ckpt_status status, const char *format, ...) CKPT__PRINTF(3, 4);
static void not_complete(ckpt__held *h, ckpt_status status, const char *format, ...)
{
    va_list ap;
    char text[sizeof h->why];
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    h->complete = false;
    h->status = status;
    size_t size = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    while (size > 0 && !ckpt__utf8_valid(text, size)) /* cut within a character */
        text[--size] = '\0';
    memcpy(h->why, text, sizeof text);
}

/* The manifest's text; *gone where neither it nor the step's directory is there. */
static ckpt_status read_manifest(const ckpt__store *store, const char *name, ckpt__buf *text, bool *gone,
                                 ckpt_error *err)
{
    char path[PATH_MAX_IN];
    ckpt__buf nothing = {0};
    *gone = false;
    snprintf(path, sizeof path, "%s/checkpoint.json", name);
    ckpt_status status = ckpt__store_read(store, path, MANIFEST_MAX, text, err);
    if (status == CKPT_E_NOT_FOUND) { /* a directory is there, and is no regular file */
        *gone = ckpt__store_read(store, name, 1, &nothing, NULL) == CKPT_E_NOT_FOUND;
        ckpt__buf_free(&nothing);
    }
    return status;
}

/* A file that cannot be seen: an error of this process's own, or what is to be said of the checkpoint. */
static ckpt_status not_seen(ckpt_status status, const ckpt_error *why, const char *name, ckpt__held *h, ckpt_error *err)
{
    if (is_ours(status, why)) {
        if (err)
            *err = *why;
        return status;
    }
    if (status == CKPT_E_NOT_FOUND)
        not_complete(h, CKPT_E_DAMAGED, "%s is missing", name);
    else
        not_complete(h, as_damage(status, why), "%s: %s", name, why->message);
    h->sys_errno = why->sys_errno;
    return CKPT_OK;
}

static ckpt_status check_files(const ckpt__store *store, const ckpt__manifest *m, ckpt__held *h, ckpt_error *err)
{
    char path[PATH_MAX_IN];
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; i < m->count && status == CKPT_OK; i++) {
        const ckpt__manifest_file *f = &m->files[i];
        uint64_t size = 0;
        int64_t changed;
        int n = snprintf(path, sizeof path, "%s/%s", h->name, f->name.data);
        bool fits = n > 0 && (size_t)n < sizeof path;
        ckpt_error why = CKPT_ERROR_INIT;
        ckpt_status seen = fits ? ckpt__store_stat(store, path, &size, &changed, &why) : CKPT_E_NOT_FOUND;
        if (seen == CKPT_OK && !ckpt__add(h->nbytes, size, &h->nbytes))
            h->nbytes = UINT64_MAX;
        if (!h->complete)
            continue; /* the first that is wrong is named */
        if (!fits)
            not_complete(h, CKPT_E_DAMAGED, "checkpoint.json names a file whose name is too long for any file system");
        else if (seen < 0)
            status = not_seen(seen, &why, f->name.data, h, err);
        else if (size != f->size)
            not_complete(h, CKPT_E_DAMAGED, "%s has %llu bytes, the manifest says %llu", f->name.data,
                         (unsigned long long)size, (unsigned long long)f->size);
    }
    return status;
}

/* The manifest that `text` holds, and the files that it names. CKPT_OK also where they are damaged: h says so. */
static ckpt_status examine(const ckpt__store *store, const ckpt__buf *text, ckpt__held *h, ckpt_error *err)
{
    ckpt__manifest m;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt__arena *arena = ckpt__arena_new(0);
    if (!arena)
        return ckpt__fail_memory(err, h->name, 0);
    h->nbytes = text->size;
    ckpt_status status =
        ckpt__manifest_read(text->data ? text->data : "", text->size, "checkpoint.json", arena, &m, &why);
    if (is_ours(status, &why)) {
        ckpt__arena_free(arena);
        if (err)
            *err = why;
        return status;
    }
    if (status < 0) {
        status = not_seen(status, &why, "checkpoint.json", h, err);
    } else {
        h->complete = true;
        h->status = CKPT_OK;
        h->world = m.world;
        h->rank = m.rank;
        h->save = m.save;
        h->time = m.time > 0 ? m.time : -1;
        h->manifest_crc = m.crc;
        if (m.step >= 0 && m.step != h->step)
            not_complete(h, CKPT_E_DAMAGED, "checkpoint.json is of step %lld: the directory was renamed or copied over",
                         (long long)m.step);
        status = check_files(store, &m, h, err);
    }
    ckpt__arena_free(arena);
    return status;
}

static void reset(ckpt__held *h, const char *name)
{
    memset(h, 0, sizeof *h);
    snprintf(h->name, sizeof h->name, "%s", name);
    ckpt__step_parse(name, &h->step);
    h->time = -1;
    h->world = 1;
}

static bool same_text(const ckpt__buf *a, const ckpt__buf *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

/* CKPT_E_NOT_FOUND: it is not there, or went while it was read. A step that is replaced by another save of it (by an
 * exchange of names) may show the manifest of one save and the files of the other: then it is read again. */
static ckpt_status read_step(const ckpt__store *store, const char *name, const ckpt__buf *marks, ckpt__held *h,
                             ckpt_error *err)
{
    ckpt__buf text = {0}, again = {0};
    ckpt_error why = CKPT_ERROR_INIT;
    bool gone = false, settled = false;
    uint64_t size;
    int64_t changed;
    ckpt_status status = CKPT_OK;
    for (int i = 0; i < READ_TRIES && !settled && status == CKPT_OK; i++) {
        ckpt__buf_free(&text);
        reset(h, name);
        status = read_manifest(store, name, &text, &gone, &why);
        if (status == CKPT_E_NOT_FOUND && !gone && i + 1 < READ_TRIES) {
            status = CKPT_OK; /* or the directory that was opened has since been exchanged for another, and emptied */
            continue;
        }
        if (status < 0)
            break;
        status = examine(store, &text, h, &why);
        if (status < 0 || h->complete)
            break;
        ckpt__buf_free(&again);
        status = read_manifest(store, name, &again, &gone, &why);
        settled = status == CKPT_OK && same_text(&text, &again);
    }
    if (status == CKPT_E_NOT_FOUND && !gone && ckpt__store_stat(store, name, &size, &changed, NULL) == CKPT_OK) {
        not_complete(h, CKPT_E_DAMAGED, "it is a file; a step directory is expected");
        status = CKPT_OK;
    } else if (status == CKPT_E_NOT_FOUND && !gone) {
        not_complete(h, CKPT_E_DAMAGED, "no checkpoint.json: it was never finished, or was damaged since");
        status = CKPT_OK;
    } else if (status < 0 && status != CKPT_E_NOT_FOUND && !is_ours(status, &why)) {
        status = not_seen(status, &why, "checkpoint.json", h, err);
    }
    h->verified = status == CKPT_OK && h->complete && is_marked(marks, name, h->manifest_crc);
    ckpt__buf_free(&text);
    ckpt__buf_free(&again);
    if (status < 0 && err)
        *err = why;
    return status;
}

void ckpt__held_read(const ckpt__store *store, const char *name, ckpt__held *out)
{
    ckpt__buf marks = {0};
    ckpt_error why = CKPT_ERROR_INIT;
    read_marks(store, &marks);
    ckpt_status status = read_step(store, name, &marks, out, &why);
    if (status == CKPT_E_NOT_FOUND)
        not_complete(out, status, "it is not there");
    else if (status < 0)
        not_complete(out, status, "%s", why.message);
    ckpt__buf_free(&marks);
}

/* ---- all of them */

/* The names of the steps, gathered before the first of them is read. */
typedef struct names {
    const ckpt__store *store; /* borrowed */
    struct step_name {
        char text[CKPT__STEP_NAME];
    } * items; /* heap, owned by list_once */
    size_t count, capacity;
} names;

static ckpt_status add_name(void *ctx, const char *name, ckpt_error *err)
{
    names *n = ctx;
    int64_t step;
    if (!ckpt__step_parse(name, &step)) /* a file of that name stands where a checkpoint should be: it is listed */
        return CKPT_OK;
    if (!ckpt__grow(&n->items, &n->capacity, n->count + 1, sizeof *n->items))
        return ckpt__fail_memory(err, "a list of steps", n->count);
    snprintf(n->items[n->count++].text, CKPT__STEP_NAME, "%s", name);
    return CKPT_OK;
}

/* Newest first; two names of one step (step-7, step-00000007) by time, then by name, so that the order is one. */
static int by_age(const void *a, const void *b)
{
    const ckpt__held *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return strcmp(x->name, y->name);
}

/* *gone: how many went between being named and being read. */
static ckpt_status list_once(const ckpt__store *store, ckpt__held **out, size_t *count, size_t *gone, ckpt_error *err)
{
    ckpt__buf marks = {0};
    names n = {.store = store};
    ckpt__held *list = NULL;
    size_t used = 0;
    *gone = 0;
    ckpt_status status = ckpt__store_each(store, add_name, &n, err);
    if (status == CKPT_OK && !(list = calloc(n.count + 1, sizeof *list)))
        status = ckpt__fail_memory(err, "a list of steps", n.count);
    if (status == CKPT_OK)
        read_marks(store, &marks);
    for (size_t i = 0; status == CKPT_OK && i < n.count; i++) {
        status = read_step(store, n.items[i].text, &marks, &list[used], err);
        if (status == CKPT_E_NOT_FOUND) {
            (*gone)++;
            status = CKPT_OK;
        } else if (status == CKPT_OK)
            used++;
    }
    free(n.items);
    ckpt__buf_free(&marks);
    if (status < 0) {
        free(list);
        return status;
    }
    qsort(list, used, sizeof *list, by_age);
    *out = list;
    *count = used;
    return CKPT_OK;
}

ckpt_status ckpt__held_list(const ckpt__store *store, ckpt__held **out, size_t *count, ckpt_error *err)
{
    size_t gone = 0;
    *out = NULL;
    *count = 0;
    for (int i = 0; i < LIST_TRIES; i++) {
        free(*out);
        *out = NULL;
        ckpt_status status = list_once(store, out, count, &gone, err);
        if (status < 0) {
            *count = 0;
            return status;
        }
        if (gone == 0)
            break;
    }
    return CKPT_OK;
}
