/* io/pump.c - the writer thread: a ring of blocks between it and the caller. */
#include "io/pump.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { BLOCKS = 3, FEW = 3, ALIGN = 4096, HUGE_PAGE = 2 << 20 };

typedef struct block {
    void *data;      /* heap, owned, aligned to 4 KiB for O_DIRECT */
    uint64_t offset; /* in the file */
    size_t n;        /* bytes of it that count */
} block;

/* Three blocks are enough: one is filled, one waits, one is written. With head = 1 and filled = 2 the caller fills block 1, the
 * thread writes block 2 = (1 + 3 - 2) % 3, and block 0 is next. */
struct ckpt__pump {
    ckpt__sink *sink; /* borrowed */
    block ring[BLOCKS];
    size_t count;              /* blocks in use: one without a thread */
    size_t head, filled;       /* the next to be filled; how many wait or are written, counted back from it */
    bool threaded, stop, busy; /* there is a thread; it is to end; it is in a write */
    ckpt_status status;        /* of the first write that failed; CKPT_OK: none did. Nothing is written after it */
    ckpt_error error;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void *writer(void *arg)
{
    ckpt__pump *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->filled && !p->stop)
            pthread_cond_wait(&p->changed, &p->lock);
        if (!p->filled)
            break;
        block *b = &p->ring[(p->head + p->count - p->filled) % p->count];
        bool write = p->status == CKPT_OK;
        p->busy = true;
        pthread_mutex_unlock(&p->lock);
        ckpt_error err = CKPT_ERROR_INIT;
        ckpt_status status = write ? ckpt__sink_write(p->sink, b->offset, b->data, b->n, &err) : CKPT_OK;
        pthread_mutex_lock(&p->lock);
        p->busy = false;
        if (status < 0) {
            p->status = status;
            p->error = err;
        }
        p->filled--;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Large ones in huge pages where there are any: a request to a disk has only so many pieces of memory, so that what lies in one piece needs
 * fewer. */
static void *new_block(size_t size)
{
    bool large = size >= HUGE_PAGE;
    const size_t align = large ? HUGE_PAGE : ALIGN, whole = (size + ALIGN - 1) / ALIGN * ALIGN;
    void *data = aligned_alloc(align, large ? (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE : whole ? whole : ALIGN);
    if (data && large)
        (void)!madvise(data, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return data;
}

static void start_thread(ckpt__pump *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the trainer's signals are its own threads' */
    p->threaded = pthread_create(&p->thread, NULL, writer, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

ckpt_status ckpt__pump_new(ckpt__sink *sink, size_t size, uint64_t file_size, bool alone, ckpt__pump **out,
                           ckpt_error *err)
{
    ckpt__pump *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p)
        return ckpt__fail_memory(err, "output blocks", sizeof *p);
    p->sink = sink;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    size_t wanted = !alone && file_size / (size ? size : 1) >= FEW ? BLOCKS : 1;
    for (; p->count < wanted; p->count++)
        if (!(p->ring[p->count].data = new_block(size)))
            break;
    if (p->count == 0) {
        ckpt__pump_free(p);
        return ckpt__fail_memory(err, "output block", size);
    }
    if (p->count > 1)
        start_thread(p);
    if (!p->threaded)
        p->count = 1; /* the others are freed with it: `ring` is walked whole */
    *out = p;
    return CKPT_OK;
}

static ckpt_status failure(const ckpt__pump *p, ckpt_error *err)
{
    if (p->status < 0 && err)
        *err = p->error;
    return p->status;
}

ckpt_status ckpt__pump_block(ckpt__pump *p, void **data, ckpt_error *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->filled == p->count)
        pthread_cond_wait(&p->changed, &p->lock);
    *data = p->ring[p->head].data;
    ckpt_status status = failure(p, err);
    pthread_mutex_unlock(&p->lock);
    return status;
}

ckpt_status ckpt__pump_put(ckpt__pump *p, uint64_t offset, size_t n, ckpt_error *err)
{
    if (!p->threaded)
        return ckpt__sink_write(p->sink, offset, p->ring[0].data, n, err);
    pthread_mutex_lock(&p->lock);
    p->ring[p->head].offset = offset;
    p->ring[p->head].n = n;
    p->head = (p->head + 1) % p->count;
    p->filled++;
    ckpt_status status = failure(p, err);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return status;
}

ckpt_status ckpt__pump_drain(ckpt__pump *p, ckpt_error *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->filled || p->busy)
        pthread_cond_wait(&p->changed, &p->lock);
    ckpt_status status = failure(p, err);
    pthread_mutex_unlock(&p->lock);
    return status;
}

void ckpt__pump_free(ckpt__pump *p)
{
    if (!p)
        return;
    if (p->threaded) {
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        free(p->ring[i].data);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
