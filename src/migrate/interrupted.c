/* migrate/interrupted.c - a migration to a directory that was interrupted goes on where it stopped.
 *
 * What an interrupted run has left is gone on with where its digest is that of this run. Each file that its journal has counts only
 * after it was read back and has the size and the CRC-32 of the record; all others are written. What of the source was read only in
 * part by then is read once more before the target gets its name, so that its CRCs are compared (bytes_kept.c). */
#include "migrate/out.h"

#include <stdio.h>
#include <stdlib.h>
#include "codec/crc32.h"
#include "io/sink_left.h"

/* ---- asked for */

/* Is one kept, and looked for? */
static bool has_journal(const ckpt__out *w)
{
    return ckpt__is_folder(w->m) && !w->m->options.no_resume && ckpt__bytes_stops(w->bytes);
}

/* A finding about the target. */
static ckpt_status note(const ckpt__out *w, ckpt_severity severity, const char *code, const char *fix, uint64_t bytes,
                        const char *message)
{
    ckpt_report *r = w->m->report;
    bool added = ckpt__report_add(r, severity, code, NULL, fix, "%s", message) &&
                 ckpt__report_detail(r, NULL, NULL, NULL, bytes);
    return added ? CKPT_OK : ckpt__migration_no_memory(w->err);
}

static ckpt_status note_found(const ckpt__out *w, const ckpt__sink_left *left)
{
    const bool dry = w->m->options.dry_run, anew = w->m->options.no_resume;
    ckpt_status status = CKPT_OK;
    char text[400];
    if (left->stale) {
        snprintf(text, sizeof text, "%s an interrupted run has left for this target %s%s",
                 dry || left->stuck ? "what" : "removed: what",
                 anew ? "is not gone on with, as asked"
                      : "is of another source or of another version, or has no finished file, and is not gone on with",
                 left->stuck ? "; some of it could not be removed"
                 : dry       ? "; a run would remove it"
                             : "");
        status = note(w, CKPT_SEVERITY_WARNING, "journal-stale", NULL, 0, text);
    }
    if (status == CKPT_OK && left->busy)
        status = note(
            w, CKPT_SEVERITY_WARNING, "journal-busy", NULL, 0,
            "another run is writing to this target now; the two share nothing, and the one that ends later finds it taken");
    return status;
}

/* What a run of other options has finished. */
typedef struct others {
    const char *of;   /* this run, in words */
    size_t files;     /* finished by the first that was met; 0: none was */
    char folder[256]; /* its name */
    ckpt__buf why;    /* owned: what differs */
} others;

static bool same_word(const char *a, const char *b, const char *name)
{
    const ckpt_str x = ckpt__options_word(a, name), y = ckpt__options_word(b, name);
    return x.data && y.data && ckpt__str_equal(x, y);
}

/* A source that has changed, or another version, makes what is finished worthless; a mistyped option does not. */
static ckpt_status find_others(void *ctx, const char *folder, const ckpt__journal *j, ckpt_error *err)
{
    others *o = ctx;
    if (o->files || !j->count || !same_word(j->of, o->of, "source") || !same_word(j->of, o->of, "version"))
        return CKPT_OK;
    const size_t differ = ckpt__options_differ(j->of, o->of, &o->why);
    if (!differ && !same_word(j->of, o->of, "copied"))
        return CKPT_OK;
    if (!differ)
        ckpt__buf_str(&o->why, "a file that one of them names is another one now");
    o->files = j->count;
    snprintf(o->folder, sizeof o->folder, "%s", folder);
    return o->why.failed ? ckpt__migration_no_memory(err) : CKPT_OK;
}

/* Looked for before anything is changed. *left: what else there is. *files: 0 where there is nothing of that kind, or this run has files of
 * its own to go on with. */
static ckpt_status look(const ckpt__out *w, const ckpt__known_by *by, ckpt__sink_left *left, others *o)
{
    *o = (others){.of = by->of.data ? by->of.data : ""};
    ckpt_status status = ckpt__sink_look(w->m->dst, by->digest, find_others, o, left, w->err);
    if (*by->digest == '\0' || (status == CKPT_OK && left->files))
        o->files = 0;
    return status;
}

static const char other_options[] =
    "%zu finished file%s of an interrupted run with other options would be lost, in %s: %s. "
    "The options of that run go on with %s; --no-resume removes %s and starts anew";

static ckpt_status make_known(ckpt__out *w, ckpt__known_by *by)
{
    *by = (ckpt__known_by){.digest = ""};
    return has_journal(w) ? ckpt__out_digest(w, by->digest, &by->of) : CKPT_OK;
}

ckpt_status ckpt__interrupted_ask(ckpt__out *w, ckpt__sink_options *options, ckpt__known_by *by)
{
    ckpt__sink_left left;
    others o = {.of = ""};
    ckpt_status status = make_known(w, by);
    options->journal = by->digest;
    options->journal_of = by->of.data;
    if (status == CKPT_OK && *by->digest)
        status = look(w, by, &left, &o);
    const bool one = o.files == 1;
    if (status == CKPT_OK && o.files)
        status = ckpt__fail(w->err, CKPT_E_EXISTS, w->m->dst, other_options, o.files, one ? "" : "s", o.folder,
                            o.why.data, one ? "it" : "them", one ? "it" : "them");
    ckpt__buf_free(&o.why);
    return status;
}

static ckpt_status tell_all(const ckpt__out *w, const ckpt__sink_left *left, const others *o)
{
    char text[900];
    const bool one = o->files == 1;
    ckpt_status status = CKPT_OK;
    if (o->files) {
        const int n = snprintf(text, sizeof text, "a run would stop: ");
        snprintf(text + n, sizeof text - (size_t)n, other_options, o->files, one ? "" : "s", o->folder, o->why.data,
                 one ? "it" : "them", one ? "it" : "them");
        status = note(w, CKPT_SEVERITY_WARNING, "journal-other", NULL, 0, text);
    } else
        status = note_found(w, left);
    if (status == CKPT_OK && *left->name) {
        snprintf(text, sizeof text, "a run would go on with %s, which has %zu of %zu files; each is read back first",
                 left->name, left->files, w->count);
        status = note(w, CKPT_SEVERITY_NOTE, "journal-resumed", NULL, left->bytes, text);
    }
    return status;
}

ckpt_status ckpt__interrupted_tell(ckpt__out *w)
{
    ckpt__sink_left left;
    ckpt__known_by by;
    others o = {.of = ""};
    if (!ckpt__is_folder(w->m))
        return CKPT_OK;
    ckpt_status status = make_known(w, &by);
    if (status == CKPT_OK)
        status = look(w, &by, &left, &o);
    if (status == CKPT_OK)
        status = tell_all(w, &left, &o);
    ckpt__buf_free(&o.why);
    ckpt__buf_free(&by.of);
    return status;
}

/* ---- what is there */

/* The names of the target's files and folders, and the last record of each file. */
typedef struct known {
    const ckpt__out *w;
    ckpt__hash *files, *folders; /* owned: name -> number */
    size_t *record;              /* heap: of each file the number of its record; SIZE_MAX: none */
} known;

static ckpt_status list_known(known *k, const ckpt__journal *j)
{
    const ckpt__out *w = k->w;
    k->files = ckpt__hash_new(w->count);
    k->folders = ckpt__hash_new(w->folder_count);
    k->record = malloc((w->count + 1) * sizeof *k->record);
    bool good = k->files && k->folders && k->record;
    for (size_t i = 0; good && i < w->count; i++) {
        good = ckpt__hash_put(k->files, w->files[i].name, strlen(w->files[i].name), i, NULL) >= 0;
        k->record[i] = SIZE_MAX;
    }
    for (size_t i = 0; good && i < w->folder_count; i++)
        good = ckpt__hash_put(k->folders, w->folders[i], strlen(w->folders[i]), i, NULL) >= 0;
    for (size_t i = 0; good && i < j->count; i++) {
        size_t file;
        if (ckpt__hash_get(k->files, j->entries[i].name, strlen(j->entries[i].name), &file))
            k->record[file] = i;
    }
    if (good)
        w->m->finished = 0;
    for (size_t i = 0; good && i < w->count; i++)
        w->m->finished += k->record[i] != SIZE_MAX;
    return good ? CKPT_OK : ckpt__migration_no_memory(w->err);
}

static void free_known(known *k)
{
    ckpt__hash_free(k->files);
    ckpt__hash_free(k->folders);
    free(k->record);
}

static ckpt__wanted is_wanted(void *ctx, const char *name)
{
    const known *k = ctx;
    size_t n;
    if (ckpt__hash_get(k->folders, name, strlen(name), &n))
        return CKPT__WANTED_FOLDER;
    return ckpt__hash_get(k->files, name, strlen(name), &n) && k->record[n] != SIZE_MAX ? CKPT__WANTED_FILE
                                                                                        : CKPT__WANTED_NOT;
}

static ckpt_status read_more(void *ctx, uint64_t n, ckpt_error *err)
{
    ckpt__migration *m = ctx;
    const ckpt_progress *p = &m->options.progress;
    m->done += n;
    if (p->fn && p->fn(p->ctx, m->done < m->total ? m->done : m->total, m->total) != 0)
        return ckpt__fail(err, CKPT_E_CANCELLED, m->dst, "cancelled while the finished files were read back");
    return CKPT_OK;
}

static uint64_t size_of(const ckpt__out_file *f)
{
    return f->recipe ? f->recipe->size : f->copy ? f->size : f->text.size;
}

/* One that has a record. */
static ckpt_status take_file(ckpt__out *w, ckpt__sink *folder, ckpt__out_file *f, const ckpt__journal_entry *e)
{
    ckpt__migration *m = w->m;
    const uint64_t before = m->done;
    bool good = false;
    ckpt_status status = f->copy ? ckpt__copy_size(w, f, &f->size) : CKPT_OK;
    if (status == CKPT_OK && size_of(f) == e->size)
        status = ckpt__sink_check(folder, e, read_more, m, &good, w->err);
    if (status == CKPT_OK && good)
        status = ckpt__bytes_take(w->bytes, f->recipe, e->more, &good);
    if (status < 0)
        return status;
    f->taken = good;
    f->crc = e->crc;
    if (!good || !f->recipe) /* the others are not counted in the total */
        m->done = before;
    if (good)
        return CKPT_OK;
    m->finished--;
    return ckpt__migration_note(
        m, CKPT_SEVERITY_WARNING, "journal-rewritten", ckpt__s(f->name), w->err,
        "an interrupted run has finished this file, and it is not there as it was written: it is "
        "written again");
}

static ckpt_status note_taken(const ckpt__out *w, uint64_t bytes)
{
    size_t files = 0;
    char text[200];
    for (size_t i = 0; i < w->count; i++)
        files += w->files[i].taken;
    snprintf(text, sizeof text,
             "%zu of %zu files that an interrupted run has written were read back and are kept, %llu bytes", files,
             w->count, (unsigned long long)bytes);
    return note(w, CKPT_SEVERITY_NOTE, "journal-resumed", NULL, bytes, text);
}

ckpt_status ckpt__interrupted_take(ckpt__out *w, ckpt__sink *folder, uint64_t *bytes)
{
    const ckpt__journal *j = ckpt__sink_journal(folder);
    known k = {.w = w};
    bool understood = true;
    *bytes = 0;
    const bool adopted = j && ckpt__sink_is_adopted(folder);
    w->m->finished = adopted ? j->count : 0; /* so that they outlive an error */
    ckpt_status status = note_found(w, ckpt__sink_found(folder));
    if (status < 0 || !adopted)
        return status;
    status = list_known(&k, j);
    if (status == CKPT_OK)
        status = ckpt__sink_sift(folder, is_wanted, &k, w->err);
    /* What was in doubt when the last file was finished is in doubt still. */
    if (status == CKPT_OK && j->count)
        status = ckpt__bytes_doubt(w->bytes, j->entries[j->count - 1].more, &understood, w->err);
    for (size_t i = 0; status == CKPT_OK && understood && i < w->count; i++) {
        if (k.record[i] == SIZE_MAX)
            continue;
        status = take_file(w, folder, &w->files[i], &j->entries[k.record[i]]);
        *bytes += w->files[i].taken ? j->entries[k.record[i]].size : 0;
    }
    if (status == CKPT_OK)
        status = note_taken(w, *bytes);
    free_known(&k);
    return status;
}

/* ---- what is written, and what stays */

ckpt_status ckpt__interrupted_record(const ckpt__out *w, ckpt__sink *folder, const ckpt__out_file *f)
{
    ckpt__buf more = {0};
    if (!ckpt__sink_journal(folder) || f->list) /* each run makes its lists anew */
        return CKPT_OK;
    ckpt__bytes_say(w->bytes, f->recipe, &more);
    ckpt_status status = more.failed ? ckpt__migration_no_memory(w->err) : CKPT_OK;
    if (status == CKPT_OK)
        ckpt__sink_record(folder, f->name, size_of(f),
                          f->recipe || f->copy ? f->crc : ckpt__crc32(0, f->text.data, f->text.size), more.data);
    ckpt__buf_free(&more);
    w->m->finished++;
    return status;
}

/* Whoever was interrupted, or had no room, may go on; a source that is damaged, or a target that reads back otherwise, is no better the
 * next time. Without a finished file nothing is worth to be kept. What another run has left outlives other errors too. */
static bool is_worth(const ckpt__migration *m, const ckpt__sink *folder, ckpt_status status)
{
    return folder && ckpt__sink_journal(folder) && m->finished &&
           (status == CKPT_E_CANCELLED || status == CKPT_E_SYSTEM ||
            (ckpt__sink_is_adopted(folder) && status != CKPT_E_DAMAGED));
}

void ckpt__interrupted_leave(ckpt__migration *m, ckpt__sink *folder, ckpt_status status, ckpt_error *err)
{
    if (!is_worth(m, folder, status)) {
        ckpt__sink_abort(folder);
        return;
    }
    const bool one = m->finished == 1;
    ckpt__buf text = {0};
    char *beside = ckpt__sink_beside(folder);
    ckpt__sink_keep(folder);
    if (beside)
        ckpt__buf_printf(
            &text,
            "%zu finished file%s in %s: the same command goes on with %s; to remove %s, remove that and its " CKPT__JOURNAL_TAIL,
            m->finished, one ? " stays" : "s stay", beside, one ? "it" : "them", one ? "it" : "them");
    if (text.data && !text.failed) {
        ckpt__error_prefix(err, "%s", text.data);
        (void)ckpt__report_add(m->report, CKPT_SEVERITY_WARNING, "journal-kept", NULL, NULL, "%s", text.data);
    }
    ckpt__buf_free(&text);
    free(beside);
}
