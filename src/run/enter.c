/* run/enter.c - one call at a time: whoever comes while another is at work is told so, and touches nothing. */
#include "run/run.h"
#include "base/first_sizes.h"

#include <stdio.h>
#include <unistd.h>

/* What tells this thread from all others, without a call of the system at every step. */
static void *myself(void)
{
    static _Thread_local char self;
    return &self;
}

static ckpt_status refuse(ckpt_run *run, const void *who, const char *call, ckpt_error *err)
{
    const char *other = atomic_load(&run->call);
    other = other ? other : "another call";
    if (who == myself())
        return ckpt__fail(
            err, CKPT_E_ARGUMENT, run->path,
            "%s was called from within %s, by its notice or all_reduce: there only ckpt_run_get_info, ckpt_run_poll and "
            "ckpt_run_stopping may be called; call %s when %s has returned",
            call, other, call, other);
    return ckpt__fail(
        err, CKPT_E_ARGUMENT, run->path,
        "%s: another thread is inside this run (%s); a run belongs to one thread at a time: call from one thread, or "
        "under a lock of the program's own",
        call, other);
}

ckpt_status ckpt__run_enter(ckpt_run *run, const char *call, ckpt_error *err)
{
    void *nobody = NULL;
    if (!run)
        return ckpt__fail(err, CKPT_E_ARGUMENT, call, "a NULL run");
    if (getpid() != run->owner)
        return ckpt__fail(err, CKPT_E_ARGUMENT, run->path,
                          "%s: this run belongs to process %ld, which opened it, not to a child", call,
                          (long)run->owner);
    if (!atomic_compare_exchange_strong(&run->inside, &nobody, myself()))
        return refuse(run, nobody, call, err);
    atomic_store(&run->call, call);
    return CKPT_OK;
}

ckpt_status ckpt__run_object(const ckpt_run *run, ckpt_status status, ckpt_error *err)
{
    if (status < 0 && err && !err->object[0])
        ckpt__error_object(err, run->path);
    return status;
}

ckpt_status ckpt__run_leave(ckpt_run *run, ckpt_status status, ckpt_error *err)
{
    ckpt__run_object(run, status, err);
    atomic_store(&run->inside, NULL);
    return status;
}

void ckpt_run_get_info(ckpt_run *run, ckpt_run_info *out)
{
    if (!out)
        return;
    ckpt_run_info own = {.resumed_step = -1, .saved_step = -1};
    if (run && getpid() == run->owner) { /* else the lock may have been taken by a thread that a child does not have */
        pthread_mutex_lock(&run->lock);
        own = run->info;
        own.busy = run->job != CKPT__JOB_NONE && run->job != CKPT__JOB_RESERVE;
        own.busy |= run->options.ranks.world > 1 && run->stage != CKPT__IDLE;
        pthread_mutex_unlock(&run->lock);
    }
    CKPT__GIVE_ANSWER(ckpt_run_info, out, &own);
}
