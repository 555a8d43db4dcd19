/* run/run.c - a run: opened, asked, closed. */
#include "run/run.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/first_sizes.h"
#include "run/signals.h"

static ckpt_status take_options(ckpt_run *run, const ckpt_run_options *given, ckpt_error *err)
{
    ckpt_run_options *o = &run->options;
    ckpt_status status = CKPT__TAKE_OPTIONS(ckpt_run_options, o, given, err);
    if (status < 0)
        return status;
    if (o->ranks.world == 0 && o->ranks.rank == 0)
        o->ranks = (ckpt_ranks)CKPT_RANKS_INIT;
    if (o->ranks.world < 1 || o->ranks.rank < 0 || o->ranks.rank >= o->ranks.world)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path, "rank %" PRId64 " of %" PRId64, o->ranks.rank,
                          o->ranks.world);
    if (o->ranks.world > 1 && !o->all_reduce)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path, "%" PRId64 " ranks need all_reduce, by which they agree",
                          o->ranks.world);
    return CKPT_OK;
}

static ckpt_status check_options(const ckpt_run *run, ckpt_error *err)
{
    const ckpt_run_options *o = &run->options;
    if (o->every_steps < 0 || !(o->every_seconds >= 0) || o->last_step < 0 || !(o->time_limit >= 0))
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "every_steps, every_seconds, last_step and time_limit are not negative");
    if (o->resume_step < 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "resume_step is %" PRId64 ": the step of a checkpoint is expected, or 0 for the newest",
                          o->resume_step);
    if (o->retention.keep_last < 0 || o->retention.keep_every < 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "keep_last is %" PRId64 " and keep_every %" PRId64
                          ": neither is negative, and 0 means that all stay",
                          o->retention.keep_last, o->retention.keep_every);
    if (o->more_signal_count && (!o->signals || !o->more_signals))
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path, "more_signals without signals");
    return CKPT_OK;
}

static ckpt_status open_stores(ckpt_run *run, ckpt_error *err)
{
    char name[CKPT__STEP_NAME], *path = NULL;
    ckpt_status status = ckpt__store_open(run->path, true, &run->top, err);
    if (status < 0 || run->options.ranks.world == 1) {
        run->store = run->top;
        return status;
    }
    ckpt__rank_name(name, run->options.ranks.rank);
    if (asprintf(&path, "%s/%s", run->top->path, name) < 0)
        return ckpt__fail_memory(err, run->path, 0);
    status = ckpt__store_open(path, true, &run->store, err);
    free(path);
    return status;
}

static ckpt_status clean_up(ckpt_run *run, ckpt_error *err)
{
    size_t restored = 0, removed = 0, left = 0;
    ckpt_status status = ckpt__store_recover(run->store, "step-", &restored, &removed, &left, err);
    if (status == CKPT_OK && restored + removed + left)
        ckpt__run_note(run, left ? CKPT_SEVERITY_WARNING : CKPT_SEVERITY_NOTE, "recovered", NULL,
                       "of a writer that died: %zu removed, %zu put back in place, %zu could not be removed", removed,
                       restored, left);
    return status;
}

/* One process in the directory of several ranks, or the other way round, would pass their checkpoints over. */
static ckpt_status foreign_name(void *ctx, const char *name, ckpt_error *err)
{
    const ckpt_run *run = ctx;
    int64_t number;
    if (run->options.ranks.world == 1 && ckpt__rank_parse(name, &number))
        return ckpt__fail(
            err, CKPT_E_MISMATCH, run->path,
            "it holds %s: several ranks write here, and this run has one process; give ranks, or use another directory",
            name);
    if (run->options.ranks.world > 1 && ckpt__step_parse(name, &number))
        return ckpt__fail(err, CKPT_E_MISMATCH, run->path,
                          "it holds %s of a run of one process, and this run has %" PRId64
                          " ranks; use another directory",
                          name, run->options.ranks.world);
    if (run->options.ranks.world > 1 && ckpt__rank_parse(name, &number) && number >= run->options.ranks.world)
        return ckpt__fail(err, CKPT_E_MISMATCH, run->path,
                          "it holds %s, and this run has %" PRId64 " ranks; use another directory", name,
                          run->options.ranks.world);
    return CKPT_OK;
}

static ckpt_status take_signals(ckpt_run *run, ckpt_error *err)
{
    const ckpt_run_options *o = &run->options;
    if (!o->signals)
        return CKPT_OK;
    int *all = calloc(o->more_signal_count + 2, sizeof *all);
    if (!all)
        return ckpt__fail_memory(err, run->path, 0);
    all[0] = SIGTERM;
    all[1] = SIGUSR1;
    for (size_t i = 0; i < o->more_signal_count; i++)
        all[i + 2] = o->more_signals[i];
    ckpt_status status = ckpt__signals_take(all, o->more_signal_count + 2, err);
    free(all);
    run->options.more_signals = NULL;
    run->owns_signals = status == CKPT_OK;
    return status;
}

static void free_run(ckpt_run *run)
{
    if (run->owns_signals)
        ckpt__signals_release();
    if (run->store != run->top)
        ckpt__store_close(run->store);
    ckpt__store_close(run->top);
    ckpt__claim_release(run->claim);
    ckpt__snapshot_free(&run->snapshot);
    ckpt_report_free(run->notices);
    pthread_cond_destroy(&run->changed);
    pthread_mutex_destroy(&run->lock);
    free(run->bad);
    ckpt_map_free(run->map);
    free(run->map_text);
    free(run->task.path);
    free(run->path);
    free(run);
}

static ckpt_run *new_run(const char *path, ckpt_state *state)
{
    ckpt_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->changed, NULL);
    run->state = state;
    run->owner = getpid();
    run->info.resumed_step = run->info.saved_step = -1;
    run->opened = run->last_begin = ckpt__run_clock();
    run->notices = ckpt_report_new();
    if (!(run->path = strdup(path)) || !run->notices) {
        free_run(run);
        return NULL;
    }
    return run;
}

/* What decides which collective call comes next has to be one on all ranks, or they would wait for each other. */
static ckpt_status same_options(ckpt_run *run, ckpt_error *err)
{
    static const char *const names[] = {"ranks.world", "synchronous", "skip_when_busy", "resume_step"};
    const ckpt_run_options *o = &run->options;
    int64_t back = o->resume_step < 0 ? -1 : o->resume_step; /* negative ones are refused by check_options */
    int64_t v[] = {o->ranks.world,    -o->ranks.world,    o->synchronous, -o->synchronous,
                   o->skip_when_busy, -o->skip_when_busy, back,           -back};
    enum { N = sizeof v / sizeof *v };
    ckpt_status status = ckpt__reduce(run, v, N, CKPT_OP_MAX, err);
    for (int i = 0; status == CKPT_OK && i < N && o->ranks.world > 1; i += 2)
        if (v[i] != -v[i + 1])
            status =
                ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                           "the option %s is %" PRId64 " on one rank and %" PRId64 " on another; it must be one on all",
                           names[i / 2], -v[i + 1], v[i]);
    return status;
}

/* Every rank comes to the agreement, whatever went wrong before it. */
static ckpt_status open_run(ckpt_run *run, ckpt_error *err)
{
    ckpt_status status = same_options(run, err);
    if (status < 0)
        return status;
    status = check_options(run, err);
    if (status == CKPT_OK)
        status = ckpt__run_map_open(run, err);
    if (status == CKPT_OK)
        status = open_stores(run, err);
    if (status == CKPT_OK)
        status = ckpt__store_each(run->top, foreign_name, run, err);
    if (status == CKPT_OK && !run->options.no_lock) /* before the lock, which would say "another process" */
        status = ckpt__claim_take(run->store, &run->claim, err);
    if (status == CKPT_OK && !run->options.no_lock)
        status = ckpt__store_lock(run->store, err);
    if (status == CKPT_OK && !run->options.no_lock) /* without a lock another may be writing these very files */
        status = clean_up(run, err);
    if (status == CKPT_OK)
        status = take_signals(run, err);
    if (status == CKPT_OK && run->store->unsynced)
        ckpt__run_note(
            run, CKPT_SEVERITY_WARNING, "no-directory-sync",
            "keep checkpoints on a file system that can, or on a machine that keeps its power",
            "the file system of %s cannot sync a directory (fsync): the content of a checkpoint is on the disk when it is "
            "said to be saved, its name when the file system likes",
            run->store->path);
    return ckpt__agree(run, status, err);
}

ckpt_status ckpt_run_open(const char *path, ckpt_state *state, const ckpt_run_options *options, ckpt_run **out,
                          ckpt_error *err)
{
    if (out)
        *out = NULL;
    if (!out || !path || !*path || !state)
        return ckpt__fail(err, CKPT_E_ARGUMENT, "ckpt_run_open", "a NULL path, state or place for the run");
    ckpt_run *run = new_run(path, state);
    ckpt_error own = CKPT_ERROR_INIT;
    if (!run)
        return ckpt__fail_memory(err, path, sizeof *run);
    err = err ? err : &own; /* the other ranks are told */
    ckpt_status status = take_options(run, options, err);
    if (status == CKPT_OK)
        status = open_run(run, err);
    if (status < 0) {
        ckpt__run_object(run, status, err);
        free_run(run);
        return status;
    }
    ckpt__run_tell(run);
    *out = run;
    return CKPT_OK;
}

ckpt_status ckpt_run_close(ckpt_run *run, ckpt_error *err)
{
    if (!run)
        return CKPT_OK;
    ckpt_status status = ckpt__run_enter(run, "ckpt_run_close", err);
    if (status < 0) /* a forked child: the thread and the lock are its parent's; or another call is at work */
        return status;
    status = ckpt__run_wait(run, err);
    ckpt__writer_end(run);
    ckpt__sink_abort(run->task.sink);
    ckpt__run_tell(run);
    ckpt__run_object(run, status, err);
    free_run(run);
    return status;
}

const char *ckpt_trigger_name(ckpt_trigger trigger)
{
    static const char *const names[] = {"none", "periodic", "call", "file", "stop file", "signal", "deadline"};
    return trigger >= CKPT_TRIGGER_NONE && trigger <= CKPT_TRIGGER_DEADLINE ? names[trigger] : "unknown";
}
