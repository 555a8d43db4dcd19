/* base/workers.c - numbered units of work, done by several threads. */
#include "base/workers.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct job {
    ckpt__unit_fn *fn;
    void *ctx;
    size_t units;
    atomic_size_t next;   /* the lowest unit that nobody has taken */
    atomic_size_t lowest; /* of those that failed; `units`: none did */
    pthread_mutex_t lock; /* of the two below, and for a write of `lowest` */
    ckpt_status status;   /* of unit `lowest` */
    ckpt_error *err;      /* the caller's, may be NULL: the same */
} job;

typedef struct worker {
    job *job;
    unsigned number;
    pthread_t thread;
} worker;

static void note(job *j, size_t unit, ckpt_status status, const ckpt_error *err)
{
    pthread_mutex_lock(&j->lock);
    if (unit < atomic_load(&j->lowest)) {
        atomic_store(&j->lowest, unit);
        j->status = status;
        if (j->err)
            *j->err = *err;
    }
    pthread_mutex_unlock(&j->lock);
}

/* Units are taken in order, so what is below a unit that failed is done or being done. */
static void take_units(job *j, unsigned number)
{
    ckpt_error err = CKPT_ERROR_INIT; /* filled by a failure, after which this thread takes no further unit */
    for (;;) {
        size_t unit = atomic_fetch_add(&j->next, 1);
        if (unit >= j->units || unit > atomic_load(&j->lowest))
            break;
        ckpt_status status = j->fn(j->ctx, number, unit, &err);
        if (status < 0)
            note(j, unit, status, &err);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    take_units(w->job, w->number);
    return NULL;
}

/* How many threads were made. */
static unsigned start(job *j, worker *workers, unsigned count)
{
    sigset_t all, before;
    unsigned made = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the trainer's signals are its own threads' */
    for (; made < count; made++) {
        workers[made].job = j;
        workers[made].number = made + 1;
        if (pthread_create(&workers[made].thread, NULL, work, &workers[made]) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

ckpt_status ckpt__workers_run(unsigned threads, size_t units, ckpt__unit_fn *fn, void *ctx, ckpt_error *err)
{
    job j = {.fn = fn, .ctx = ctx, .units = units, .status = CKPT_OK, .err = err};
    atomic_init(&j.next, 0);
    atomic_init(&j.lowest, units);
    threads = threads < CKPT__WORKERS_MAX ? threads : CKPT__WORKERS_MAX;
    unsigned others = threads > 1 && units > 1 ? threads - 1 : 0;
    if (others >= units && others)
        others = (unsigned)(units - 1);
    worker *workers = others ? malloc(others * sizeof *workers) : NULL; /* NULL: the caller does all of it */
    pthread_mutex_init(&j.lock, NULL);
    others = workers ? start(&j, workers, others) : 0;
    take_units(&j, 0);
    for (unsigned i = 0; i < others; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_mutex_destroy(&j.lock);
    free(workers);
    return j.status;
}

unsigned ckpt__workers_allowed(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) /* more processors than the set has bits, too */
        return UINT_MAX;
    int count = CPU_COUNT(&set);
    return count < 1 ? 1 : (unsigned)count;
}

unsigned ckpt__workers_usual(void)
{
    enum { MOST = 8 };
    unsigned allowed = ckpt__workers_allowed();
    return allowed < MOST ? allowed : MOST;
}
