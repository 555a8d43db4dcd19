/* run/due.c - what asks for a save, and what has answered it. Any thread may ask. */
#include "run/run.h"

#include <unistd.h>
#include "run/signals.h"

static const char *const touch_names[CKPT__TOUCHES] = {"SAVE", "STOP"};

/* How long the next save is likely to take, with some to spare; before the first one, from the bytes at a slow disk's pace. */
static double time_wanted(const ckpt_run *run)
{
    const double slow = 50e6, spare = 1.5, least = 1.0;
    double save = run->info.save_seconds > 0 ? run->info.save_seconds : run->state_bytes / slow;
    return save * spare + run->longest_step * 2 + least;
}

static bool is_near_the_limit(const ckpt_run *run, double now)
{
    double limit = run->options.time_limit;
    return limit > 0 && run->opened + limit - now <= time_wanted(run);
}

static void look_for_files(ckpt_run *run, double now)
{
    if (run->options.no_touch_files || run->options.ranks.rank != 0 || (run->looked > 0 && now - run->looked < 1))
        return;
    run->looked = now;
    for (int i = 0; i < CKPT__TOUCHES; i++)
        run->touched[i] = ckpt__store_touched(run->top, touch_names[i]);
}

static bool asks(const ckpt_run *run, int file)
{
    return run->touched[file] && run->touched[file] != run->answering[file];
}

static ckpt_trigger due(ckpt_run *run, int64_t done, double now)
{
    const ckpt_run_options *o = &run->options;
    if (is_near_the_limit(run, now))
        return CKPT_TRIGGER_DEADLINE;
    if (run->owns_signals && ckpt__signals_caught())
        return CKPT_TRIGGER_SIGNAL;
    look_for_files(run, now);
    if (asks(run, CKPT__TOUCH_STOP))
        return CKPT_TRIGGER_STOP_FILE;
    if (asks(run, CKPT__TOUCH_SAVE))
        return CKPT_TRIGGER_FILE;
    if ((o->every_steps && done % o->every_steps == 0) || (o->last_step && done == o->last_step) ||
        (o->every_seconds > 0 && now - run->last_begin >= o->every_seconds))
        return CKPT_TRIGGER_PERIODIC;
    return CKPT_TRIGGER_NONE;
}

/* What a poll needs to know, from whichever thread. */
void ckpt__run_note_pace(ckpt_run *run, double now)
{
    double bytes = 0;
    for (size_t i = 0; run->options.time_limit > 0 && run->info.save_seconds <= 0 && i < run->state->count; i++)
        bytes += (double)run->state->bindings[i].nbytes;
    pthread_mutex_lock(&run->lock);
    run->state_bytes = bytes;
    if (run->last_call > 0 && now - run->last_call > run->longest_step)
        run->longest_step = now - run->last_call;
    pthread_mutex_unlock(&run->lock);
}

ckpt_trigger ckpt__run_due(ckpt_run *run, int64_t done, double now)
{
    pthread_mutex_lock(&run->lock);
    ckpt_trigger trigger = due(run, done, now);
    pthread_mutex_unlock(&run->lock);
    return trigger;
}

bool ckpt__run_stops(ckpt_trigger trigger)
{
    return trigger == CKPT_TRIGGER_STOP_FILE || trigger == CKPT_TRIGGER_SIGNAL || trigger == CKPT_TRIGGER_DEADLINE;
}

ckpt_trigger ckpt_run_poll(ckpt_run *run, int64_t done)
{
    return run && getpid() == run->owner ? ckpt__run_due(run, done, ckpt__run_clock()) : CKPT_TRIGGER_NONE;
}

static ckpt_trigger unanswered(ckpt_run *run, double now)
{
    if (!run->deadline_answered && is_near_the_limit(run, now))
        return CKPT_TRIGGER_DEADLINE;
    if (!run->signal_answered && run->owns_signals && ckpt__signals_caught())
        return CKPT_TRIGGER_SIGNAL;
    look_for_files(run, now);
    return asks(run, CKPT__TOUCH_STOP) ? CKPT_TRIGGER_STOP_FILE : CKPT_TRIGGER_NONE;
}

ckpt_trigger ckpt_run_stopping(ckpt_run *run)
{
    if (!run || getpid() != run->owner)
        return CKPT_TRIGGER_NONE;
    double now = ckpt__run_clock();
    pthread_mutex_lock(&run->lock);
    ckpt_trigger own = unanswered(run, now), trigger = own > run->stop_asked ? own : run->stop_asked;
    pthread_mutex_unlock(&run->lock);
    return trigger;
}

/* ---- answers */

/* A save that stops the run for another reason answers the files too: STOP would stop the next run at its first step. */
static bool answers(ckpt_trigger trigger, int file)
{
    return ckpt__run_stops(trigger) || (trigger == CKPT_TRIGGER_FILE && file == CKPT__TOUCH_SAVE);
}

void ckpt__run_answer(ckpt_run *run, ckpt_trigger trigger)
{
    pthread_mutex_lock(&run->lock);
    if (ckpt__run_stops(trigger)) {
        run->looked = 0;
        look_for_files(run, ckpt__run_clock());
    }
    for (int i = 0; i < CKPT__TOUCHES; i++)
        if (answers(trigger, i))
            run->answering[i] = run->touched[i];
    pthread_mutex_unlock(&run->lock);
}

/* The file that asked is taken away once it was answered, and only the one that asked; one whose removal fails is not
 * answered twice. */
static void take_away(ckpt_run *run, int file, uint64_t asked)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt__store_touched(run->top, touch_names[file]) == asked &&
        ckpt__store_untouch(run->top, touch_names[file], &err) < 0)
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "touch-file-left", NULL,
                       "the file %s was answered and cannot be removed: %s", touch_names[file], err.message);
}

void ckpt__run_answered(ckpt_run *run, ckpt_trigger trigger, bool ok)
{
    uint64_t asked[CKPT__TOUCHES] = {0};
    pthread_mutex_lock(&run->lock);
    if (ok && ckpt__run_stops(trigger)) {
        run->stop_asked = CKPT_TRIGGER_NONE;
        run->signal_answered |= run->owns_signals && ckpt__signals_caught();
        run->deadline_answered |= trigger == CKPT_TRIGGER_DEADLINE;
    }
    for (int i = 0; i < CKPT__TOUCHES; i++)
        if (answers(trigger, i) && run->touched[i] && run->touched[i] == run->answering[i]) {
            asked[i] = ok ? run->touched[i] : 0;
            if (!ok)
                run->answering[i] = 0; /* where the save failed it asks again: STOP at once, SAVE at the next look */
            if (ok || i == CKPT__TOUCH_SAVE)
                run->touched[i] = 0;
        }
    pthread_mutex_unlock(&run->lock);
    for (int i = 0; i < CKPT__TOUCHES; i++)
        if (asked[i])
            take_away(run, i, asked[i]);
}
