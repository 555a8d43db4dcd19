/* run/step.c - after each training step: is a save to begin, and how far is the one under way. */
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/workers.h"

double ckpt__run_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the save that is under way */

/* Before what the writer has noted of the pruning that followed. */
static void note_saved(ckpt_run *run)
{
    const ckpt__task *t = &run->task;
    ckpt_report *after = NULL, *empty = run->options.notice ? ckpt_report_new() : NULL;
    if (empty) {
        pthread_mutex_lock(&run->lock);
        after = run->notices;
        run->notices = empty;
        pthread_mutex_unlock(&run->lock);
    }
    ckpt__run_note(run, CKPT_SEVERITY_NOTE, "saved", NULL,
                   "%s (%s), on disk %.3f s after it began, the training held up for %.3f s", t->name,
                   ckpt_trigger_name(t->trigger), t->finished - t->began, run->stalled);
    if (after) {
        pthread_mutex_lock(&run->lock);
        ckpt__report_merge(run->notices, after);
        pthread_mutex_unlock(&run->lock);
        ckpt_report_free(after);
    }
}

static void set_stage(ckpt_run *run, ckpt__stage stage)
{
    pthread_mutex_lock(&run->lock);
    run->stage = stage;
    pthread_mutex_unlock(&run->lock);
}

/* A stop that could not be saved is told apart from a periodic save that failed: by its error, and by the advice. */
static void note_failed(ckpt_run *run, ckpt_status status, const ckpt_error *error)
{
    const ckpt__task *t = &run->task;
    bool stop = ckpt__run_stops(t->trigger);
    run->untold = status;
    run->untold_error = *error;
    if (stop)
        ckpt__error_prefix(&run->untold_error, "a stop was asked for (%s), and its save failed",
                           ckpt_trigger_name(t->trigger));
    error = &run->untold_error;
    ckpt__run_note(
        run, CKPT_SEVERITY_ERROR, "save-failed",
        stop ? "the next step tries again; a trainer that has to end now leaves its loop (ckpt_run_stopping), with the "
               "checkpoint before this one on disk"
             : NULL,
        "%s: %s%s%s", t->name, error->object, error->object[0] ? ": " : "", error->message);
}

static void outcome(ckpt_run *run, ckpt_status status, const ckpt_error *error)
{
    ckpt__task *t = &run->task;
    t->status = status; /* that of all ranks */
    pthread_mutex_lock(&run->lock);
    run->stage = CKPT__IDLE;
    if (status == CKPT_OK) {
        run->info.saves++;
        run->info.saved_step = t->step;
        run->info.save_seconds = t->finished - t->began;
    } else
        run->info.failures++;
    run->info.stall_seconds = run->stalled;
    run->info.snapshot_bytes = ckpt__snapshot_bytes(&run->snapshot);
    pthread_mutex_unlock(&run->lock);
    ckpt__run_answered(run, t->trigger, status == CKPT_OK);
    if (status < 0) {
        note_failed(run, status, error);
        return;
    }
    if (t->step >= run->floor) {
        run->floor = t->step;
        run->floor_saved = true;
    }
    note_saved(run);
}

/* This rank may have published what another could not: it is of no use alone, and retention is not to count it. */
static void disown(ckpt_run *run)
{
    ckpt__held held;
    ckpt__held_read(run->store, run->task.name, &held);
    if (held.complete && held.save == run->task.save)
        (void)ckpt__run_mark_bad(run, &held, NULL);
}

/* One stage with all ranks, whose writers have all come to its end. */
static ckpt_status next_stage(ckpt_run *run, ckpt_error *err)
{
    ckpt__task *t = &run->task;
    ckpt_error error = t->error;
    ckpt_status status = ckpt__agree(run, t->status, &error);
    if (status < 0) {
        if (run->stage == CKPT__PUBLISHING)
            disown(run);
        ckpt__sink_abort(t->sink);
        t->sink = NULL;
        outcome(run, status, &error);
        return CKPT_OK;
    }
    (void)err;
    if (run->stage == CKPT__WRITING && run->options.ranks.world > 1) {
        set_stage(run, CKPT__PUBLISHING);
        ckpt__writer_start(run, CKPT__JOB_PUBLISH);
        return CKPT_OK;
    }
    outcome(run, CKPT_OK, NULL);
    if (run->options.ranks.world > 1)
        ckpt__writer_start(run, CKPT__JOB_FINISH);
    return CKPT_OK;
}

ckpt_status ckpt__run_advance(ckpt_run *run, bool wait, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    do {
        if (wait)
            ckpt__writer_wait(run);
        else if (ckpt__writer_busy(run))
            return CKPT_OK;
        if (run->stage != CKPT__IDLE)
            status = next_stage(run, err);
    } while (status == CKPT_OK && wait && (run->stage != CKPT__IDLE || ckpt__writer_busy(run)));
    return status;
}

/* ---- starting one */

/* Without a snapshot: the trainer waits until all is written. */
static void write_now(ckpt_run *run)
{
    ckpt__task *t = &run->task;
    ckpt__state_index saved = {.index = NULL};
    ckpt__live live = {.state = NULL};
    ckpt__payload payload;
    ckpt_status status = ckpt__state_index_take(run->state, false, t->path, &saved, &t->error);
    if (status == CKPT_OK)
        status = ckpt__live_open(&live, run->state, &saved, &payload, &t->error);
    t->status = status;
    if (status == CKPT_OK)
        ckpt__task_write(run, &saved, &payload, &live);
    ckpt__live_close(&live, NULL);
    ckpt__state_index_free(&saved);
    if (run->options.ranks.world == 1) {
        ckpt__task_publish(run);
        ckpt__task_finish(run);
    }
}

/* Room for the copy; false: it is to be done without one, which is said once. */
static bool can_snapshot(ckpt_run *run)
{
    ckpt__snapshot_need need = {.host = 0};
    ckpt_error err = CKPT_ERROR_INIT;
    if (run->options.synchronous)
        return false;
    if (ckpt__snapshot_is_ready(&run->snapshot, run->state))
        return true;
    ckpt_status status = ckpt__snapshot_measure(run->state, &need)
                             ? ckpt__snapshot_reserve(&run->snapshot, &need, run->options.snapshot_limit, &err)
                             : ckpt__fail_memory(&err, "snapshot", UINT64_MAX);
    if (status == CKPT_OK)
        return true;
    if (!run->said_synchronous)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "synchronous", "raise snapshot_limit, or free host memory",
                       "checkpoints are written while the training waits: %s", err.message);
    run->said_synchronous = true;
    return false;
}

/* What the state itself shows that a trainer forgot. Once a run: by its first save all that it binds is bound. */
static void look_over(ckpt_run *run)
{
    ckpt_report *found = run->looked_over || !run->options.notice ? NULL : ckpt_report_new();
    run->looked_over = true;
    if (found && ckpt__state_moments(run->state, found, NULL) == CKPT_OK) /* without memory it is not noticed */
        ckpt__run_note_all(run, found);
    ckpt_report_free(found);
}

static ckpt_status begin_save(ckpt_run *run, int64_t done, ckpt_trigger trigger, ckpt_error *err)
{
    ckpt__task *t = &run->task;
    double now = ckpt__run_clock();
    int64_t number = 0;
    if (run->options.ranks.world > 1) { /* rank 0 chooses */
        number = run->options.ranks.rank == 0 ? (int64_t)(ckpt__unique() >> 1 | 1) : 0;
        ckpt_status status = ckpt__reduce(run, &number, 1, CKPT_OP_MAX, err);
        if (status < 0)
            return status;
    }
    free(t->path);
    *t = (ckpt__task){
        .step = done, .time = (int64_t)time(NULL), .save = (uint64_t)number, .trigger = trigger, .began = now};
    pthread_mutex_lock(&run->lock);
    run->last_begin = now;
    run->stage = CKPT__WRITING;
    pthread_mutex_unlock(&run->lock);
    look_over(run);
    ckpt__run_answer(run, trigger);
    ckpt__step_name(t->name, done);
    size_t size = strlen(run->store->path) + sizeof t->name + 2;
    if (!(t->path = malloc(size)))
        t->status = ckpt__fail_memory(&t->error, t->name, size);
    else
        snprintf(t->path, size, "%s/%s", run->store->path, t->name);
    if (t->status == CKPT_OK && (ckpt__run_stops(trigger) || !can_snapshot(run)))
        write_now(run);
    else if (t->status == CKPT_OK) {
        t->status = ckpt__snapshot_take(&run->snapshot, run->state, run->options.snapshot_limit,
                                        (unsigned)(run->options.snapshot_threads < CKPT__WORKERS_MAX
                                                       ? run->options.snapshot_threads
                                                       : CKPT__WORKERS_MAX),
                                        t->path, &t->error);
        if (t->status == CKPT_OK)
            ckpt__writer_start(run, CKPT__JOB_WRITE);
    }
    return CKPT_OK;
}

/* ---- the calls */

ckpt_status ckpt__run_untold(ckpt_run *run, ckpt_error *err)
{
    ckpt_status status = run->untold;
    if (status < 0 && err)
        *err = run->untold_error;
    run->untold = CKPT_OK;
    return status;
}

/* Steps only grow: what is saved below the floor would be of other weights than its number says. */
static ckpt_status check_floor(ckpt_run *run, const char *call, int64_t done, ckpt_error *err)
{
    bool saving = run->stage != CKPT__IDLE && run->task.step > run->floor;
    int64_t floor = saving ? run->task.step : run->floor;
    const char *what = saving ? "is saving" : run->floor_saved ? "has saved" : "was resumed after";
    if (done >= floor)
        return CKPT_OK;
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, run->path,
        "%s was told that %" PRId64 " steps are complete, and this run %s step %" PRId64 ": steps only grow; the loop "
        "starts at what ckpt_run_resume gave in *done (to go back to an earlier checkpoint, start again with "
        "options.resume_step)",
        call, done, what, floor);
}

static ckpt_status check_step(ckpt_run *run, const char *call, int64_t done, ckpt_error *err)
{
    int64_t step;
    if (!run->resumed)
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, run->path,
            "%s before ckpt_run_resume: call that first, in a new run too, so that an existing checkpoint is not ignored",
            call);
    if (done < 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path, "%s: %" PRId64 " completed steps", call, done);
    if (run->state->poisoned)
        return ckpt__fail(err, CKPT_E_POISONED, run->path,
                          "the last restore failed midway and the state holds a mixture; restore a checkpoint first");
    ckpt_status status = check_floor(run, call, done, err);
    if (status < 0)
        return status;
    if (ckpt__state_step(run->state, &step) && step != done)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "the bound variable 'step' is %" PRId64 ", %s was told that %" PRId64
                          " steps are complete: both "
                          "must count completed steps",
                          step, call, done);
    return CKPT_OK;
}

/* What this step does, the same on all ranks; local: whether this rank can take part. */
typedef struct verdict {
    ckpt_trigger trigger;
    bool busy;
} verdict;

static ckpt_status decide(ckpt_run *run, int64_t done, ckpt_status local, verdict *v, ckpt_error *err)
{
    int64_t numbers[5] = {v->trigger, v->busy, done, -done, local < 0};
    ckpt_error reducing = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__reduce(run, numbers, 5, CKPT_OP_MAX, &reducing);
    if (status < 0) {
        if (err)
            *err = reducing;
        return status;
    }
    if (numbers[4])
        return ckpt__agree(run, local, err);
    v->trigger = (ckpt_trigger)numbers[0];
    v->busy = numbers[1] != 0;
    if (numbers[2] != -numbers[3])
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "the ranks are at different steps: %" PRId64 " to %" PRId64 " completed, %" PRId64
                          " on rank %" PRId64,
                          -numbers[3], numbers[2], done, run->options.ranks.rank);
    return CKPT_OK;
}

static ckpt_status save_as_decided(ckpt_run *run, int64_t done, verdict v, ckpt_error *err)
{
    bool stop = ckpt__run_stops(v.trigger);
    ckpt_status status = CKPT_OK;
    if (v.trigger == CKPT_TRIGGER_NONE)
        return CKPT_OK;
    if ((v.busy || run->stage != CKPT__IDLE) && run->options.skip_when_busy && v.trigger == CKPT_TRIGGER_PERIODIC) {
        pthread_mutex_lock(&run->lock);
        run->info.skipped++;
        pthread_mutex_unlock(&run->lock);
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "save-skipped", "save less often, or on a faster disk",
                       "step %" PRId64 " is not saved: %s is still being written", done, run->task.name);
        return CKPT_OK;
    }
    double began = ckpt__run_clock();
    if ((status = ckpt__run_advance(run, true, err)) < 0 || (status = begin_save(run, done, v.trigger, err)) < 0)
        return status;
    run->stalled = ckpt__run_clock() - began;
    if (stop || run->options.synchronous)
        return ckpt__run_advance(run, true, err);
    return run->options.ranks.world == 1 ? ckpt__run_advance(run, false, err) : CKPT_OK;
}

/* A job that reserves the snapshot's memory beside the first steps, so that the first save does not wait for pages. */
static void prepare(ckpt_run *run)
{
    if (run->reserved || run->options.synchronous || run->stage != CKPT__IDLE || ckpt__writer_busy(run))
        return;
    run->reserved = true;
    if ((run->options.every_steps || run->options.every_seconds > 0) && ckpt__snapshot_measure(run->state, &run->need))
        ckpt__writer_start(run, CKPT__JOB_RESERVE);
}

/* What all ranks have agreed on: a rank may have no signal of its own. */
static void note_stop(ckpt_run *run, ckpt_trigger trigger)
{
    pthread_mutex_lock(&run->lock);
    run->stop_asked = ckpt__run_stops(trigger) ? trigger : CKPT_TRIGGER_NONE;
    pthread_mutex_unlock(&run->lock);
}

static ckpt_status step(ckpt_run *run, const char *call, int64_t done, ckpt_trigger forced, ckpt_error *err)
{
    verdict v = {CKPT_TRIGGER_NONE, false};
    double now = ckpt__run_clock();
    ckpt__run_note_pace(run, now);
    v.trigger = forced ? forced : ckpt__run_due(run, done, now);
    v.busy = ckpt__writer_busy(run);
    ckpt_status status = decide(run, done, check_step(run, call, done, err), &v, err);
    if (status == CKPT_OK && !forced)
        note_stop(run, v.trigger);
    if (status == CKPT_OK && !v.busy && run->stage != CKPT__IDLE)
        status = ckpt__run_advance(run, false, err);
    if (status == CKPT_OK)
        status = save_as_decided(run, done, v, err);
    if (status == CKPT_OK)
        prepare(run);
    run->last_call = ckpt__run_clock();
    ckpt__run_tell(run);
    if (status < 0)
        return status;
    if (ckpt__run_stops(v.trigger) && run->task.step == done && run->task.status == CKPT_OK &&
        run->info.saved_step == done) {
        run->untold = CKPT_OK; /* of an earlier save: its notice was given, and this one is on disk */
        return CKPT_STOP;
    }
    return ckpt__run_untold(run, err);
}

static ckpt_status enter_step(ckpt_run *run, const char *call, int64_t done, ckpt_trigger forced, ckpt_error *err)
{
    ckpt_error own = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__run_enter(run, call, err);
    if (status < 0)
        return status;
    err = err ? err : &own; /* the other ranks are told */
    return ckpt__run_leave(run, step(run, call, done, forced, err), err);
}

ckpt_status ckpt_run_step(ckpt_run *run, int64_t done, ckpt_error *err)
{
    return enter_step(run, "ckpt_run_step", done, CKPT_TRIGGER_NONE, err);
}

ckpt_status ckpt_run_save(ckpt_run *run, int64_t done, ckpt_error *err)
{
    return enter_step(run, "ckpt_run_save", done, CKPT_TRIGGER_CALL, err);
}

ckpt_status ckpt__run_wait(ckpt_run *run, ckpt_error *err)
{
    ckpt_status status = ckpt__run_advance(run, true, err);
    ckpt__run_tell(run);
    return status == CKPT_OK ? ckpt__run_untold(run, err) : status;
}

ckpt_status ckpt_run_wait(ckpt_run *run, ckpt_error *err)
{
    ckpt_status status = ckpt__run_enter(run, "ckpt_run_wait", err);
    return status < 0 ? status : ckpt__run_leave(run, ckpt__run_wait(run, err), err);
}
