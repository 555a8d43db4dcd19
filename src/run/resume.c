/* run/resume.c - from which checkpoint, and with all ranks from the same. */
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One call of ckpt_run_resume, on one rank. The call owns list, map and passed, and frees them at its end. */
typedef struct resumer {
    ckpt_run *run;                /* borrowed */
    ckpt_restore_options options; /* for the restore of every candidate */
    ckpt_map *map;                /* parsed for this resume, or NULL */
    ckpt__held *list;
    size_t count;           /* heap: this rank's, newest first */
    ckpt_report *passed;    /* why candidates were passed over */
    size_t tried;           /* candidates that were passed over */
    bool other_than_absent; /* one was passed over for another reason than that a rank does not have it */
    ckpt_error newest;      /* what was wrong with the first of them */
} resumer;

static const ckpt__held *find(const resumer *r, int64_t step)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].step == step)
            return &r->list[i];
    return NULL;
}

/* The newest step below `bound` that any rank has; -1: none is left. */
static ckpt_status next_step(const resumer *r, int64_t bound, int64_t *step, ckpt_error *err)
{
    *step = -1;
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].step < bound && r->list[i].step > *step)
            *step = r->list[i].step;
    return ckpt__reduce(r->run, step, 1, CKPT_OP_MAX, err);
}

/* Can this rank use it, by what the directory says? */
static ckpt_status look_at(const resumer *r, int64_t step, const ckpt__held *h, ckpt_error *err)
{
    const ckpt_ranks *ranks = &r->run->options.ranks;
    char name[CKPT__STEP_NAME];
    ckpt__step_name(name, step);
    if (!h)
        return ckpt__fail(err, CKPT_E_NOT_FOUND, name, "it is not in %s (%s)",
                          ranks->world > 1 ? "this rank's directory" : "the run directory", r->run->store->path);
    if (!h->complete) {
        ckpt_status status = ckpt__fail(err, h->status < 0 ? h->status : CKPT_E_DAMAGED, h->name, "%s (in %s)", h->why,
                                        r->run->store->path);
        if (err)
            err->sys_errno = h->sys_errno;
        return status;
    }
    if (h->world != ranks->world)
        return ckpt__fail(err, CKPT_E_MISMATCH, h->name, "it was saved by %" PRId64 " ranks, and this run has %" PRId64,
                          h->world, ranks->world);
    if (h->rank != ranks->rank)
        return ckpt__fail(err, CKPT_E_MISMATCH, h->name, "it is of rank %" PRId64 ", in the directory of rank %" PRId64,
                          h->rank, ranks->rank);
    return CKPT_OK;
}

/* One save of that step, not two: a rank may have died before it could replace its older one. */
static ckpt_status check_one_save(const resumer *r, const ckpt__held *h, ckpt_error *err)
{
    int64_t ends[2] = {(int64_t)(h->save >> 1), -(int64_t)(h->save >> 1)};
    ckpt_status status = ckpt__reduce(r->run, ends, 2, CKPT_OP_MAX, err);
    if (status == CKPT_OK && ends[0] != -ends[1])
        status = ckpt__fail(err, CKPT_E_DAMAGED, h->name, "the ranks hold different saves of this step");
    return status;
}

/* The context of restore_from: both pointers are borrowed from the resume. */
typedef struct restoring {
    resumer *r;
    ckpt_report *report;
} restoring;

static ckpt_status restore_from(void *ctx, const char *path, ckpt_error *err)
{
    restoring *g = ctx;
    return ckpt_restore(g->r->run->state, path, &g->r->options, g->report, err);
}

static ckpt_status try_step(resumer *r, int64_t step, ckpt_report *report, ckpt_error *err)
{
    ckpt_run *run = r->run;
    const ckpt__held *h = find(r, step);
    restoring g = {r, report};
    ckpt_status status = ckpt__agree(run, look_at(r, step, h, err), err);
    if (status == CKPT_OK && run->options.ranks.world > 1)
        status = check_one_save(r, h, err);
    if (status < 0)
        return status;
    status = ckpt__run_reached(run, h->name, restore_from, &g, err);
    bool restored = status == CKPT_OK;
    status = ckpt__agree(run, status, err);
    if (status < 0 && restored)
        run->state->poisoned = true; /* of this step, when the others are not */
    return status;
}

/* Notes why this one is passed over; an error where that cannot be. */
static ckpt_status pass_over(resumer *r, int64_t step, const ckpt_error *why, ckpt_error *err)
{
    ckpt_run *run = r->run;
    char name[CKPT__STEP_NAME];
    ckpt__step_name(name, step);
    if (r->tried++ == 0)
        r->newest = *why;
    for (size_t i = 0; i < r->count; i++)
        if (r->list[i].step == step) {
            r->list[i].verified = false; /* at least not any more, or not on all ranks */
            ckpt_status status = ckpt__run_mark_bad(run, &r->list[i], err);
            if (status < 0)
                return status;
        }
    const char *object = strcmp(why->object, name) == 0 ? "" : why->object;
    ckpt__run_note(run, CKPT_SEVERITY_WARNING, "fallback", NULL, "%s is skipped: %s%s%s", name, object,
                   *object ? ": " : "", why->message);
    if (!ckpt__report_add(
            r->passed, CKPT_SEVERITY_WARNING, "fallback", NULL, "ckpt-inspect verify says all that is wrong with it",
            "%s is skipped, and the one before it is taken: %s%s%s", name, object, *object ? ": " : "", why->message))
        return ckpt__fail_memory(err, "report", 0);
    return CKPT_OK;
}

/* A rank that died in the very first save of a run leaves a step that some ranks published and it did not: nothing was ever
 * complete, and nothing is lost by beginning anew. It is told from a rank whose disk is gone by `latest`, which a rank
 * writes once all have published: where one has it, or has anything damaged, there is something to lose. */
static ckpt_status never_complete(const resumer *r, bool *answer, ckpt_error *err)
{
    uint64_t size;
    int64_t changed, something = r->other_than_absent;
    something |= ckpt__store_stat(r->run->store, "latest", &size, &changed, NULL) != CKPT_E_NOT_FOUND;
    for (size_t i = 0; i < r->count; i++)
        something |= !r->list[i].complete;
    ckpt_status status = ckpt__reduce(r->run, &something, 1, CKPT_OP_MAX, err);
    *answer = status == CKPT_OK && r->run->options.ranks.world > 1 && !something;
    return status;
}

/* Newest first, until one is good on all ranks. CKPT_NOTHING_TO_RESUME where there is none. */
static ckpt_status walk(resumer *r, ckpt_report *report, int64_t *done, ckpt_error *err)
{
    int64_t step = INT64_MAX;
    for (;;) {
        ckpt_error why = CKPT_ERROR_INIT;
        ckpt_status status = next_step(r, step, &step, err);
        if (status < 0)
            return status;
        if (step < 0)
            break;
        status = try_step(r, step, report, &why);
        if (status == CKPT_OK) {
            *done = step;
            return CKPT_OK;
        }
        if (!ckpt__may_fall_back(status, why.sys_errno)) {
            if (err)
                *err = why;
            return status;
        }
        r->other_than_absent |= status != CKPT_E_NOT_FOUND;
        status = ckpt__agree(r->run, pass_over(r, step, &why, err), err);
        if (status < 0)
            return status;
    }
    bool begins = r->tried == 0;
    ckpt_status status = begins ? CKPT_OK : never_complete(r, &begins, err);
    if (status < 0 || begins)
        return status < 0 ? status : CKPT_NOTHING_TO_RESUME;
    if (err)
        *err = r->newest;
    ckpt__error_prefix(
        err,
        "none of %zu checkpoints in %s can be resumed (ckpt-inspect verify says what is wrong with each; to "
        "start anew use another directory); the newest",
        r->tried, r->run->path);
    return r->newest.status < 0 ? r->newest.status : CKPT_E_DAMAGED;
}

/* The steps that all ranks hold, newest first, for people. Collective. */
static ckpt_status name_steps(const resumer *r, int64_t but, ckpt__buf *out, ckpt_error *err)
{
    enum { NAMED = 5 };
    size_t good = 0;
    for (int64_t step = INT64_MAX;;) {
        char name[CKPT__STEP_NAME];
        ckpt_status status = next_step(r, step, &step, err);
        int64_t ok = status == CKPT_OK && step >= 0 && look_at(r, step, find(r, step), NULL) == CKPT_OK;
        if (status < 0 || step < 0 || (status = ckpt__reduce(r->run, &ok, 1, CKPT_OP_MIN, err)) < 0) {
            if (good > NAMED)
                ckpt__buf_printf(out, " and %zu more", good - NAMED);
            return status;
        }
        ckpt__step_name(name, step);
        if (ok && step != but && good++ < NAMED)
            ckpt__buf_printf(out, "%s%s", good > 1 ? ", " : "", name);
    }
}

/* Exactly the step that options.resume_step names: no other is tried in its place. */
static ckpt_status go_back(resumer *r, ckpt_report *report, int64_t *done, ckpt_error *err)
{
    ckpt_run *run = r->run;
    int64_t step = run->options.resume_step;
    ckpt__buf others = {0};
    ckpt_status status = try_step(r, step, report, err), named = CKPT_OK;
    if (status == CKPT_OK) {
        status = ckpt__agree(run, ckpt__run_keep_aside(run, step, r->list, &r->count, report, err), err);
        run->resumed &= status == CKPT_OK; /* an earlier resume of this run does not speak for this state */
        *done = status == CKPT_OK ? step : 0;
        return status;
    }
    if (run->broken == CKPT_OK)
        named = name_steps(r, step, &others, NULL);
    ckpt__error_prefix(err, "options.resume_step is %" PRId64 ", and no other step is tried in its place; %s%s", step,
                       others.size ? "those that are there: " : "no other whole checkpoint is there",
                       others.data && !others.failed ? others.data : "");
    ckpt__buf_free(&others);
    return named < 0 ? named : status;
}

static void mark_verified(resumer *r, int64_t step)
{
    const ckpt__held *h = find(r, step);
    ckpt_error err = CKPT_ERROR_INIT;
    if (h && !r->options.no_verify && ckpt__held_mark_verified(r->run->store, r->list, r->count, h, &err) < 0)
        ckpt__run_note(r->run, CKPT_SEVERITY_WARNING, "hint-failed", NULL,
                       "the hint 'verified' could not be written: %s", err.message);
}

/* What the report says beside what the restore itself put there. */
static ckpt_status complete_report(resumer *r, ckpt_status status, int64_t done, ckpt_report *report, ckpt_error *err)
{
    char name[CKPT__STEP_NAME];
    ckpt__step_name(name, done);
    bool ok = ckpt__report_merge(report, r->passed);
    if (ok && status == CKPT_OK)
        ok = ckpt__report_add(report, CKPT_SEVERITY_NOTE, "resumed", NULL, NULL, "from %s/%s", r->run->path, name);
    return ok || status < 0 ? status : ckpt__fail_memory(err, "report", 0);
}

static void forget_bad(ckpt_run *run)
{
    free(run->bad);
    run->bad = NULL;
    run->bad_count = 0;
}

static ckpt_status resume(resumer *r, const char *map_location, int64_t *done, ckpt_report *report, ckpt_error *err)
{
    ckpt_status status = ckpt__run_map_take(r->run, map_location, &r->options, &r->map, report, err);
    if (status == CKPT_OK)
        status = ckpt__held_list(r->run->store, &r->list, &r->count, err);
    if (status == CKPT_OK && !(r->passed = ckpt_report_new()))
        status = ckpt__fail_memory(err, "report", 0);
    status = ckpt__agree(r->run, status, err);
    int64_t back = r->run->options.resume_step;
    if (status == CKPT_OK)
        status = back ? go_back(r, report, done, err) : walk(r, report, done, err);
    if (r->passed)
        status = complete_report(r, status, *done, report, err);
    if (status == CKPT_OK) {
        mark_verified(r, *done);
        ckpt__run_note(
            r->run, CKPT_SEVERITY_NOTE, "resumed", NULL, "after step %" PRId64 "%s", *done,
            back ? ", which options.resume_step names: take it away for the next start, or that goes back again" : "");
    }
    return status;
}

ckpt_status ckpt_run_resume(ckpt_run *run, const char *map_location, int64_t *done, ckpt_report *report,
                            ckpt_error *err)
{
    resumer r = {.run = run};
    ckpt_error unasked = CKPT_ERROR_INIT;
    int64_t step = 0;
    if (done)
        *done = 0;
    ckpt_status status = ckpt__run_enter(run, "ckpt_run_resume", err);
    if (status < 0)
        return status;
    ckpt_report_clear(report);
    err = err ? err : &unasked; /* the other ranks are told */
    status = ckpt__run_advance(run, true, err);
    ckpt_report *own = report ? NULL : ckpt_report_new();
    if (status == CKPT_OK && !report && !own)
        status = ckpt__fail_memory(err, "report", 0);
    status = ckpt__agree(run, status, err);
    forget_bad(run);
    if (status == CKPT_OK)
        status = resume(&r, map_location, &step, report ? report : own, err);
    if (status >= 0) {
        run->resumed = true;
        run->floor = step;
        run->floor_saved = false;
        run->last_call = 0;
        ckpt__run_note_pace(run, ckpt__run_clock());
        pthread_mutex_lock(&run->lock);
        run->last_begin = ckpt__run_clock();
        run->info.resumed_step = status == CKPT_OK ? step : -1;
        pthread_mutex_unlock(&run->lock);
        if (done)
            *done = step;
    }
    free(r.list);
    ckpt_map_free(r.map);
    ckpt_report_free(r.passed);
    ckpt_report_free(own);
    ckpt__run_tell(run);
    return ckpt__run_leave(run, status, err);
}
