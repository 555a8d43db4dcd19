/* run/save.c - the parts of a save: write, publish, finish. On the writer thread, or on the caller's. */
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <ckpt/verify.h>

/* ---- what the resume passed over, and what not all ranks have published */

ckpt_status ckpt__run_mark_bad(ckpt_run *run, const ckpt__held *held, ckpt_error *err)
{
    ckpt__held *bad = realloc(run->bad, (run->bad_count + 1) * sizeof *bad);
    if (!bad)
        return ckpt__fail_memory(err, held->name, sizeof *bad);
    run->bad = bad;
    run->bad[run->bad_count++] = *held;
    return CKPT_OK;
}

/* A new one has its name. The manifests of both may be the same to the byte. */
static void forget_bad(ckpt_run *run, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < run->bad_count; i++)
        if (strcmp(run->bad[i].name, name) != 0)
            run->bad[kept++] = run->bad[i];
    run->bad_count = kept;
}

static bool replaces_bad(const ckpt_run *run)
{
    for (size_t i = 0; i < run->bad_count; i++)
        if (strcmp(run->bad[i].name, run->task.name) == 0)
            return true;
    return false;
}

static bool is_bad(const ckpt_run *run, const ckpt__held *h)
{
    for (size_t i = 0; i < run->bad_count; i++)
        if (strcmp(run->bad[i].name, h->name) == 0 && run->bad[i].manifest_crc == h->manifest_crc)
            return true;
    return false;
}

/* ---- writing */

static ckpt_status fail_task(ckpt_run *run, ckpt_status status)
{
    ckpt__task *t = &run->task;
    t->status = status;
    ckpt__sink_abort(t->sink);
    t->sink = NULL;
    return status;
}

ckpt_status ckpt__run_reached(const ckpt_run *run, const char *name,
                              ckpt_status (*fn)(void *ctx, const char *path, ckpt_error *err), void *ctx,
                              ckpt_error *err)
{
    enum { TRIES = 3 }; /* the directory may be moved at any moment */
    ckpt_status status = CKPT_OK;
    bool led = false;
    for (int i = 0; i < TRIES && !led; i++) {
        char *path = NULL;
        status = ckpt__store_reach(run->store, name, &path, err);
        if (status < 0)
            return status;
        status = fn(ctx, path, err);
        led = ckpt__store_leads(run->store, path, name);
        free(path);
    }
    if (!led && status >= 0)
        status = ckpt__fail(err, CKPT_E_SYSTEM, run->path,
                            "%s cannot be read: the run directory is moved again and again", name);
    return status;
}

static ckpt_status verify(void *ctx, const char *path, ckpt_error *err)
{
    (void)ctx;
    ckpt_verify_options options = CKPT_VERIFY_OPTIONS_INIT;
    options.format = "ckpt";
    return ckpt_verify(path, &options, NULL, NULL, err);
}

/* Before it has its name: what reads back wrong is never published. */
static ckpt_status read_back(ckpt_run *run)
{
    ckpt__task *t = &run->task;
    ckpt_status status = ckpt__run_reached(run, ckpt__sink_temporary(t->sink), verify, NULL, &t->error);
    if (status == CKPT_ANSWER_NO) {
        t->error.status = status = CKPT_E_DAMAGED;
        ckpt__error_prefix(&t->error, "what was written reads back otherwise (the disk or the memory is failing)");
    }
    return status;
}

/* May this run still write here? */
static ckpt_status guard(ckpt_run *run, ckpt_error *err)
{
    bool moved = false, relocked = false;
    ckpt_status status = ckpt__store_guard(run->store, &moved, &relocked, err);
    if (relocked)
        ckpt__run_note(
            run, CKPT_SEVERITY_WARNING, "lock-replaced", "leave .lock alone while a run is under way",
            "the file .lock in %s was removed or replaced; nobody had locked it, and this run has locked it anew",
            run->store->path);
    if (moved && !run->moved)
        ckpt__run_note(
            run, CKPT_SEVERITY_WARNING, "run-moved", "give the new path to the next process",
            "%s is not the run directory any more: that was moved, or another one put in its place; the checkpoints go on "
            "into the one that this run has opened and locked",
            run->store->path);
    run->moved = moved;
    return status;
}

/* ---- hints and retention */

void ckpt__run_write_latest(ckpt_run *run, const char *name)
{
    char text[CKPT__STEP_NAME + 2];
    ckpt_error err = CKPT_ERROR_INIT;
    int n = snprintf(text, sizeof text, "%s\n", name);
    if (ckpt__store_write(run->store, "latest", text, (size_t)n, &err) < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "hint-failed", NULL,
                       "the hint 'latest' could not be written (the checkpoint is there): %s", err.message);
}

/* What the rule says of the checkpoints up to this step. Ahead of the save: one of the same step counts as what it will be, the
 * new one. */
static void remove_old(ckpt_run *run, const ckpt__held *list, size_t n, const ckpt_retention *rule, bool ahead)
{
    ckpt_retention_entry *entries = calloc(n + 1, sizeof *entries);
    bool *gone = calloc(n + 1, sizeof *gone);
    const char **names = calloc(n + 1, sizeof *names);
    ckpt_error err = CKPT_ERROR_INIT;
    size_t count = 0;
    for (size_t i = 0; entries && i < n; i++) {
        entries[i].step = list[i].step;
        entries[i].verified = list[i].verified;
        /* What the resume passed over, and what lies beyond this step, is of no use to this run, and does not count. */
        entries[i].complete = list[i].complete && list[i].step <= run->task.step - ahead && !is_bad(run, &list[i]);
    }
    if (entries && gone && names)
        ckpt_retention_plan(rule, entries, n, gone);
    for (size_t i = 0; entries && gone && names && i < n; i++)
        if (gone[i])
            names[count++] = list[i].name;
    ckpt_status status = entries && gone && names ? CKPT_OK : ckpt__fail_memory(&err, "retention", n);
    if (status == CKPT_OK && count)
        status = ckpt__store_remove(run->store, names, count, &err);
    if (status < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "prune-failed", NULL,
                       "older checkpoints could not all be removed: %s%s%s", err.object, err.object[0] ? ": " : "",
                       err.message);
    else if (count)
        ckpt__run_note(run, CKPT_SEVERITY_NOTE, "pruned", NULL, "%zu removed: %s%s%s", count, names[count - 1],
                       count > 1 ? " to " : "", count > 1 ? names[0] : "");
    free(entries);
    free(gone);
    free(names);
}

/* With several ranks each prunes its own directory here, without asking the others. The newest checkpoint that is not known
 * to be bad was published by all of them, or resumed from by all, and every rank keeps that one: whatever rank dies now, there
 * is one that all hold. */
static void prune_ahead(ckpt_run *run)
{
    ckpt_retention rule = run->options.retention;
    ckpt__held *list = NULL;
    size_t n = 0;
    ckpt_error err = CKPT_ERROR_INIT;
    if (!run->options.prune_first || rule.keep_last < 2)
        return;
    rule.keep_last--;
    if (ckpt__held_list(run->store, &list, &n, &err) < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "prune-failed", NULL,
                       "nothing is removed ahead of this save: %s: %s", err.object, err.message);
    else
        remove_old(run, list, n, &rule, true);
    free(list);
}

void ckpt__task_write(ckpt_run *run, const ckpt__state_index *saved, const ckpt__payload *payload, ckpt__live *live)
{
    ckpt__task *t = &run->task;
    ckpt__state_index copy = *saved;
    copy.step = t->step;
    ckpt__save_job job = {.path = t->path,
                          .name = t->name,
                          .folder = run->store->path,
                          .dirfd = run->store->dirfd,
                          .format = &ckpt__format_native,
                          .saved = &copy,
                          .payload = *payload,
                          .live = live,
                          .rank = run->options.ranks.rank,
                          .world = run->options.ranks.world,
                          .time = t->time,
                          .save = t->save,
                          .replace_any = replaces_bad(run)};
    job.options.directory = true;
    ckpt_status status = guard(run, &t->error);
    if (status == CKPT_OK) {
        prune_ahead(run);
        status = ckpt__save_directory(&job, &t->sink, &t->error);
    }
    if (status == CKPT_OK && run->options.read_back)
        status = read_back(run);
    if (status < 0)
        fail_task(run, status);
}

void ckpt__task_publish(ckpt_run *run)
{
    ckpt__task *t = &run->task;
    if (t->status < 0)
        return;
    if ((t->status = guard(run, &t->error)) < 0) { /* who lost the lock while it wrote publishes nothing */
        fail_task(run, t->status);
        return;
    }
    ckpt__sink *sink = t->sink;
    t->sink = NULL;
    t->status = ckpt__sink_commit(sink, &t->error);
    t->finished = ckpt__run_clock();
}

/* ---- after it */

/* Nothing in here can take away from the checkpoint that was just published. */
void ckpt__task_finish(ckpt_run *run)
{
    ckpt__task *t = &run->task;
    ckpt__held *list = NULL;
    size_t n = 0;
    ckpt_error err = CKPT_ERROR_INIT;
    if (t->status < 0)
        return;
    forget_bad(run, t->name);
    if (guard(run, &err) < 0) {
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "hint-failed", NULL,
                       "'latest' is not written and nothing is removed: %s: %s", err.object, err.message);
        return;
    }
    ckpt__run_write_latest(run, t->name);
    if (!run->options.read_back && run->options.retention.keep_last == 0)
        return;
    ckpt_status status = ckpt__held_list(run->store, &list, &n, &err);
    for (size_t i = 0; status == CKPT_OK && run->options.read_back && i < n; i++)
        if (strcmp(list[i].name, t->name) == 0) {
            status = ckpt__held_mark_verified(run->store, list, n, &list[i], &err);
            list[i].verified = status == CKPT_OK;
        }
    if (status < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "hint-failed", NULL, "older checkpoints are kept for now: %s%s%s",
                       err.object, err.object[0] ? ": " : "", err.message);
    else if (run->options.retention.keep_last)
        remove_old(run, list, n, &run->options.retention, false);
    free(list);
}
