/* io/windows.c - windows of files that pass: what is read now, and what threads read ahead. */
#include "io/windows.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include "io/direct.h"

/* Windows that are held, and as many that are read ahead, at most; fewer are not worth a thread. Threads, which wait for the disk. So often
 * another window is asked for in vain before the oldest one that nobody took is given up. */
enum { MOST = 16, LEAST = 2, THREADS = 3, PATIENCE = 2 * MOST };

/* Of a window that is wanted soon: there is none; a thread shall read it; a thread reads; it was read. */
typedef enum state { IDLE, ASKED, READING, THERE } state;

typedef struct asked {
    state state;
    uint32_t file;
    uint64_t at;
    size_t n;
    const unsigned char *bytes; /* THERE: NULL where it is not to be had so */
    unsigned number;            /* the higher, the later it was asked for */
} asked;

struct ckpt__windows {
    ckpt__direct *direct; /* owned */
    size_t most, held;    /* windows that may be in use, and that are */
    unsigned threads;     /* there are */
    pthread_t thread[THREADS];
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    bool stop;
    asked asked[MOST];
    unsigned number, waits; /* of the next one; asked for in vain since one was given up */
};

static asked *oldest(ckpt__windows *w, state which)
{
    asked *found = NULL;
    for (size_t i = 0; i < w->most; i++)
        if (w->asked[i].state == which && (!found || w->number - w->asked[i].number > w->number - found->number))
            found = &w->asked[i];
    return found;
}

static void *read_ahead(void *arg)
{
    ckpt__windows *w = arg;
    asked *a;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (!(a = oldest(w, ASKED))) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        a->state = READING;
        const asked it = *a;
        pthread_mutex_unlock(&w->lock);
        const unsigned char *bytes = ckpt__direct_look(w->direct, it.file, it.at, it.n);
        pthread_mutex_lock(&w->lock);
        a->bytes = bytes;
        a->state = THERE;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

ckpt__windows *ckpt__windows_open(const ckpt__source *s, uint64_t memory)
{
    const uint64_t most = memory / CKPT__DIRECT_MOST / 2;
    ckpt__windows *w = most < LEAST ? NULL : calloc(1, sizeof *w);
    if (!w || !(w->direct = ckpt__direct_open(s))) {
        free(w);
        return NULL;
    }
    w->most = most < MOST ? (size_t)most : MOST;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    return w;
}

static void start_threads(ckpt__windows *w)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the program's signals are its own threads' */
    while (w->threads < THREADS && pthread_create(&w->thread[w->threads], NULL, read_ahead, w) == 0)
        w->threads++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ckpt__windows_close(ckpt__windows *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->threads; i++)
        pthread_join(w->thread[i], NULL);
    for (size_t i = 0; i < w->most; i++)
        if (w->asked[i].state == THERE && w->asked[i].bytes)
            ckpt__direct_leave(w->direct, w->asked[i].bytes);
    ckpt__direct_close(w->direct);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static asked *find(ckpt__windows *w, uint32_t file, uint64_t at, size_t n)
{
    for (size_t i = 0; i < w->most; i++) {
        asked *a = &w->asked[i];
        if (a->state != IDLE && a->file == file && a->at == at && a->n == n)
            return a;
    }
    return NULL;
}

/* False: nobody has begun to read it. */
static bool take_asked(ckpt__windows *w, uint32_t file, uint64_t at, size_t n, const unsigned char **bytes)
{
    pthread_mutex_lock(&w->lock);
    asked *a = find(w, file, at, n);
    const bool begun = a && a->state != ASKED;
    while (begun && a->state != THERE)
        pthread_cond_wait(&w->changed, &w->lock);
    if (begun)
        *bytes = a->bytes;
    if (a)
        a->state = IDLE;
    pthread_mutex_unlock(&w->lock);
    return begun;
}

const unsigned char *ckpt__window_read(ckpt__windows *w, uint32_t file, uint64_t at, size_t n)
{
    const unsigned char *bytes = NULL;
    if (w->held == w->most)
        return NULL;
    if (!take_asked(w, file, at, n, &bytes))
        bytes = ckpt__direct_look(w->direct, file, at, n);
    w->held += bytes != NULL;
    return bytes;
}

void ckpt__window_leave(ckpt__windows *w, const unsigned char *bytes)
{
    if (!bytes)
        return;
    ckpt__direct_leave(w->direct, bytes);
    w->held--;
}

/* One that has the byte `at` of the file, and is going to be there. */
static asked *covering(ckpt__windows *w, uint32_t file, uint64_t at)
{
    for (size_t i = 0; i < w->most; i++) {
        asked *a = &w->asked[i];
        if (a->state != IDLE && a->file == file && at >= a->at && at - a->at < a->n)
            return a;
    }
    return NULL;
}

size_t ckpt__window_peek(ckpt__windows *w, uint32_t file, uint64_t at, void *dst, size_t n)
{
    size_t have = 0;
    asked *a;
    pthread_mutex_lock(&w->lock);
    while (have < n && (a = covering(w, file, at + have))) {
        while (a->state != THERE)
            pthread_cond_wait(&w->changed, &w->lock);
        if (!a->bytes)
            break;
        const size_t skip = (size_t)(at + have - a->at), some = n - have < a->n - skip ? n - have : a->n - skip;
        memcpy((char *)dst + have, a->bytes + skip, some);
        have += some;
    }
    pthread_mutex_unlock(&w->lock);
    return have;
}

/* A place for one more that is asked for; NULL: there is none. */
static asked *place(ckpt__windows *w)
{
    asked *a = oldest(w, IDLE);
    if (a || ++w->waits < PATIENCE || !(a = oldest(w, THERE)))
        return a;
    if (a->bytes)
        ckpt__direct_leave(w->direct, a->bytes);
    w->waits = 0;
    return a;
}

void ckpt__window_ask(ckpt__windows *w, uint32_t file, uint64_t at, size_t n)
{
    if (!w->threads)
        start_threads(w);
    if (!w->threads)
        return;
    pthread_mutex_lock(&w->lock);
    asked *a = find(w, file, at, n) ? NULL : place(w);
    if (a) {
        *a = (asked){.state = ASKED, .file = file, .at = at, .n = n, .number = w->number++};
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
}
