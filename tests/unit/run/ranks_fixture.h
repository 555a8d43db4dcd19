/* tests/unit/run/ranks_fixture.h - several ranks as threads of one process, each with its own state and run, and an
 * all-reduce between them that can fail, and that notices when they do not all make the same call. */
#ifndef RANKS_FIXTURE_H
#define RANKS_FIXTURE_H
#include <time.h>
#include "../run_fixture.h"

enum { MOST = 4, WORDS_MOST = 512 };
/* The others hear of it at once, one call later, or when the rank has ended. */
typedef enum fault { NO_FAULT, FAILS_BEFORE, FAILS_AFTER, FAILS_ALONE } fault;

typedef struct world world;
typedef struct member {
    world *w;
    const char *run; /* NULL: the world's */
    int64_t rank;
    trainer x;
    int calls, fails_at;
    fault how;
    ckpt_status status; /* what the script wants to be seen */
    int64_t done, stopped;
    pthread_t thread;
} member;

typedef void (*script_fn)(member *m);

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_barrier_t barrier;
    int n, arrived;
    unsigned round;
    int64_t sum[WORDS_MOST], result[WORDS_MOST];
    size_t words;
    ckpt_op op;
    bool broken, left; /* left: a rank has ended, and what still wants to hear of it fails */
    const char *run;
    script_fn script;
    int64_t last; /* for scripts */
    member members[MOST];
};

static inline int64_t combine(int64_t a, int64_t b, ckpt_op op)
{
    return op == CKPT_OP_SUM ? (int64_t)((uint64_t)a + (uint64_t)b) : (op == CKPT_OP_MIN) == (a < b) ? a : b;
}

static inline int leave(world *w, bool breaks)
{
    w->broken |= breaks;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return breaks ? -1 : 0;
}

static inline int all_reduce(void *ctx, int64_t *v, size_t n, ckpt_op op)
{
    member *m = ctx;
    world *w = m->w;
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 120;
    NEED(n <= WORDS_MOST);
    pthread_mutex_lock(&w->lock);
    bool fails = ++m->calls == m->fails_at;
    if (w->broken || w->left || (fails && m->how == FAILS_BEFORE))
        return leave(w, true);
    if (w->arrived > 0) {
        NEED(n == w->words && op == w->op); /* or the ranks are at different calls */
        for (size_t i = 0; i < n; i++)
            w->sum[i] = combine(w->sum[i], v[i], op);
    } else {
        memcpy(w->sum, v, n * sizeof *v);
        w->words = n;
        w->op = op;
    }
    unsigned round = w->round;
    if (++w->arrived == w->n) {
        memcpy(w->result, w->sum, n * sizeof *v);
        w->arrived = 0;
        w->round++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->round == round && !w->broken && !w->left)
        NEED(pthread_cond_timedwait(&w->changed, &w->lock, &limit) == 0); /* or a rank waits for ever */
    if (w->round == round)
        return leave(w, true);
    memcpy(v, w->result, n * sizeof *v);
    return leave(w, fails && m->how == FAILS_AFTER) || fails ? -1 : 0;
}

/* Each rank's state is another one. */
static inline void set_rank_step(member *m, int64_t done)
{
    fill(&m->x.t, (unsigned)(done * 8 + m->rank));
    m->x.t.step = done;
}

static inline bool is_rank_step(const member *m, int64_t done)
{
    training want = m->x.t;
    size_t length = strnlen(want.note, sizeof want.note);
    member other = {.rank = m->rank};
    set_rank_step(&other, done);
    memset(want.note + length, 0, sizeof want.note - length);
    return memcmp(&want, &other.x.t, sizeof want) == 0;
}

static inline void *run_script(void *arg)
{
    member *m = arg;
    m->w->script(m);
    pthread_mutex_lock(&m->w->lock);
    m->w->left = true;
    pthread_cond_broadcast(&m->w->changed);
    pthread_mutex_unlock(&m->w->lock);
    return NULL;
}

static inline world *world_new(const char *run, int n)
{
    world *w = calloc(1, sizeof *w);
    NEED(w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    pthread_barrier_init(&w->barrier, NULL, (unsigned)n);
    w->n = n;
    w->run = run;
    for (int i = 0; i < n; i++) {
        member *m = &w->members[i];
        trainer_init(&m->x);
        m->w = w;
        m->rank = i;
        m->stopped = -1;
        m->x.o.ranks = (ckpt_ranks){i, 0, n};
        m->x.o.all_reduce = all_reduce;
        m->x.o.all_reduce_ctx = m;
    }
    return w;
}

static inline void world_play(world *w, script_fn script)
{
    w->script = script;
    w->left = false;
    for (int i = 0; i < w->n; i++)
        NEED(pthread_create(&w->members[i].thread, NULL, run_script, &w->members[i]) == 0);
    for (int i = 0; i < w->n; i++)
        NEED(pthread_join(w->members[i].thread, NULL) == 0);
}

static inline void world_free(world *w)
{
    for (int i = 0; i < w->n; i++)
        ckpt_state_free(w->members[i].x.state);
    pthread_barrier_destroy(&w->barrier);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

#define EACH(w, m) for (member *m = (w)->members; m < (w)->members + (w)->n; m++)

static inline const char *rank_path(const char *run, int64_t rank, int64_t step)
{
    static char paths[8][300];
    static int next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[next], "%s/rank-%05d/step-%08d", run, (int)rank, (int)step);
    return paths[next];
}

/* How many ranks have a directory of that step. */
static inline int ranks_with(const world *w, int64_t step)
{
    int n = 0;
    for (int i = 0; i < w->n; i++)
        n += is_there(rank_path(w->run, i, step));
    return n;
}

/* ---- scripts */

static inline void open_and_resume(member *m)
{
    m->done = -7;
    m->status = ckpt_run_open(m->run ? m->run : m->w->run, m->x.state, &m->x.o, &m->x.run, &m->x.err);
    if (m->status == CKPT_OK)
        m->status = ckpt_run_resume(m->x.run, NULL, &m->done, NULL, &m->x.err);
}

static inline void close_rank(member *m)
{
    ckpt_status status = ckpt_run_close(m->x.run, m->status < 0 ? NULL : &m->x.err);
    m->x.run = NULL;
    if (m->status >= 0)
        m->status = status;
}

/* Trains to w->last; the first error ends it. */
static inline void train(member *m)
{
    open_and_resume(m);
    for (int64_t i = m->status >= 0 ? m->done + 1 : INT64_MAX;
         i <= m->w->last && m->status >= 0 && m->status != CKPT_STOP; i++) {
        set_rank_step(m, i);
        m->status = ckpt_run_step(m->x.run, i, &m->x.err);
        if (m->status == CKPT_STOP)
            m->stopped = i;
    }
    close_rank(m);
}

/* Resumes, looks at the state, and ends: m->done, or m->status. */
static inline void look(member *m)
{
    open_and_resume(m);
    if (m->status == CKPT_OK && !is_rank_step(m, m->done))
        m->done = -100;
    close_rank(m);
}
#endif
