/* run/writer.c - the writer thread, and what is told of its work on the caller's. */
#include "run/run.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void reserve(ckpt_run *run)
{
    /* Ahead of the first save. What does not work now is said when that save meets it. */
    ckpt__snapshot_reserve(&run->snapshot, &run->need, run->options.snapshot_limit, NULL);
    pthread_mutex_lock(&run->lock);
    run->info.snapshot_bytes = ckpt__snapshot_bytes(&run->snapshot);
    pthread_mutex_unlock(&run->lock);
}

static void work(ckpt_run *run, ckpt__run_job job)
{
    ckpt__payload payload;
    if (job == CKPT__JOB_RESERVE)
        reserve(run);
    if (job == CKPT__JOB_WRITE) {
        ckpt__snapshot_payload(&run->snapshot, &payload);
        ckpt__task_write(run, &run->snapshot.saved, &payload, NULL);
    }
    /* Several ranks publish once all have written, and finish once all have published. */
    bool alone = run->options.ranks.world == 1;
    if (job == CKPT__JOB_PUBLISH || (job == CKPT__JOB_WRITE && alone))
        ckpt__task_publish(run);
    if (job == CKPT__JOB_FINISH || (job == CKPT__JOB_WRITE && alone))
        ckpt__task_finish(run);
}

/* The trainer comes first where there are fewer cores than it uses. On Linux this is of the one thread, and of those that
 * it makes (the pump's). Where it is not allowed the writer is as the others are. */
static void step_back(void)
{
    enum { NICEST = 19 };
    (void)!setpriority(PRIO_PROCESS, (id_t)gettid(), NICEST);
}

static void *writer(void *arg)
{
    ckpt_run *run = arg;
    step_back();
    pthread_mutex_lock(&run->lock);
    for (;;) {
        while (run->job == CKPT__JOB_NONE)
            pthread_cond_wait(&run->changed, &run->lock);
        ckpt__run_job job = run->job;
        if (job == CKPT__JOB_EXIT)
            break;
        pthread_mutex_unlock(&run->lock);
        work(run, job);
        pthread_mutex_lock(&run->lock);
        run->job = CKPT__JOB_NONE;
        pthread_cond_broadcast(&run->changed);
    }
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

static bool start_thread(ckpt_run *run)
{
    sigset_t all, before;
    if (run->threaded)
        return true;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the trainer's signals are its own threads' */
    int rc = pthread_create(&run->thread, NULL, writer, run);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc && !run->said_synchronous) {
        ckpt_error why = CKPT_ERROR_INIT;
        ckpt__fail_sys(&why, rc, NULL, "no writer thread could be made (pthread_create)");
        ckpt__run_note(run, CKPT_SEVERITY_WARNING, "synchronous", NULL,
                       "checkpoints are written while the training waits: %s", why.message);
        run->said_synchronous = true;
    }
    return run->threaded = rc == 0;
}

void ckpt__writer_start(ckpt_run *run, ckpt__run_job job)
{
    if (!start_thread(run)) {
        work(run, job);
        return;
    }
    pthread_mutex_lock(&run->lock);
    run->job = job;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

bool ckpt__writer_busy(ckpt_run *run)
{
    pthread_mutex_lock(&run->lock);
    bool busy = run->job != CKPT__JOB_NONE && run->job != CKPT__JOB_RESERVE;
    pthread_mutex_unlock(&run->lock);
    return busy;
}

void ckpt__writer_wait(ckpt_run *run)
{
    pthread_mutex_lock(&run->lock);
    while (run->job != CKPT__JOB_NONE)
        pthread_cond_wait(&run->changed, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

void ckpt__writer_end(ckpt_run *run)
{
    if (!run->threaded)
        return;
    ckpt__writer_wait(run);
    pthread_mutex_lock(&run->lock);
    run->job = CKPT__JOB_EXIT;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    pthread_join(run->thread, NULL);
    run->threaded = false;
    run->job = CKPT__JOB_NONE;
}

/* ---- notices */

void ckpt__run_note(ckpt_run *run, ckpt_severity severity, const char *code, const char *fix, const char *format, ...)
{
    char text[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!run->options.notice)
        return;
    pthread_mutex_lock(&run->lock);
    if (ckpt__report_add(run->notices, severity, code, NULL, fix, "%s", text))
        ckpt__report_detail(run->notices, run->path, NULL, NULL, 0);
    pthread_mutex_unlock(&run->lock);
}

void ckpt__run_note_all(ckpt_run *run, const ckpt_report *findings)
{
    pthread_mutex_lock(&run->lock);
    if (run->options.notice)
        ckpt__report_merge(run->notices, findings);
    pthread_mutex_unlock(&run->lock);
}

void ckpt__run_tell(ckpt_run *run)
{
    if (!run->options.notice)
        return;
    pthread_mutex_lock(&run->lock);
    ckpt_report *news = ckpt_report_count(run->notices) ? run->notices : NULL;
    ckpt_report *empty = news ? ckpt_report_new() : NULL;
    if (empty)
        run->notices = empty; /* the callback runs without the lock */
    pthread_mutex_unlock(&run->lock);
    for (size_t i = 0; empty && i < ckpt_report_count(news); i++)
        run->options.notice(run->options.notice_ctx, ckpt_report_get(news, i));
    if (empty)
        ckpt_report_free(news);
}
