/* tests/unit/run_fixture.h - a trainer whose whole state follows from the number of its step, what its run noticed, and
 * a gate in the way of whoever writes.
 *
 * The programs are linked with --wrap for the functions of the gate: nothing here waits for a time to pass. */
#ifndef RUN_FIXTURE_H
#define RUN_FIXTURE_H
#define SCRATCH_ON_DISK
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "run/run.h"
#include "state_fixture.h"

/* In threads and children, where Check's own assertions would jump into another's stack. */
#define NEED(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                                         \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#define IS_OK(call) ck_assert_int_eq((call), 0)

/* ---- the gate: every file that is written comes to fallocate before its first byte, and to fdatasync after its last
 */

int __real_fallocate(int fd, int mode, off_t offset, off_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t size);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_renameat2(int olddir, const char *from, int newdir, const char *to, unsigned flags);
int __real_renameat2(int olddir, const char *from, int newdir, const char *to, unsigned flags);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
uint64_t __wrap_ckpt__memory_available(void);

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed, memory_closed; /* who writes, or asks for memory, waits */
    bool no_threads;
    int waiting, passed;
    int fails;       /* errno of every fdatasync; 0: they succeed */
    uint64_t memory; /* that is said to be free */
    bool masked;     /* SIGTERM and SIGUSR1 were blocked in the thread that came last */
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .memory = UINT64_MAX};

/* Of the file or directory that fd is; in /proc, so that one rank can be told from another. */
static inline bool lies_in(int fd, const char *name)
{
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strstr(path, name) != NULL;
}

/* Where a directory or file name holds this, fdatasync or renameat2 waits, or fails. Set while no writer is at work. */
typedef struct hook {
    const char *name; /* NULL: none */
    int fails;        /* errno; 0: it waits until hook_open */
    bool open;
    int standing;
} hook;
static hook at_sync, at_rename;

static inline int come_to_hook(hook *h, int fd)
{
    if (!h->name || !lies_in(fd, h->name))
        return 0;
    if (h->fails)
        return h->fails;
    pthread_mutex_lock(&gate.lock);
    h->standing++;
    pthread_cond_broadcast(&gate.changed);
    while (!h->open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    h->standing--;
    pthread_mutex_unlock(&gate.lock);
    return 0;
}

static inline void hook_meet(hook *h)
{
    pthread_mutex_lock(&gate.lock);
    while (h->standing == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static inline void hook_open(hook *h)
{
    pthread_mutex_lock(&gate.lock);
    h->open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static inline int come_to_gate(const bool *closed)
{
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    pthread_mutex_lock(&gate.lock);
    gate.masked = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGUSR1);
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (*closed)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    gate.passed++;
    int fails = gate.fails;
    pthread_mutex_unlock(&gate.lock);
    return fails;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t size)
{
    (void)come_to_gate(&gate.closed);
    return __real_fallocate(fd, mode, offset, size);
}

/* What the disk does is not the subject here. */
int __wrap_fdatasync(int fd)
{
    int fails = come_to_gate(&gate.closed), here = come_to_hook(&at_sync, fd);
    errno = fails ? fails : here;
    return fails || here ? -1 : 0;
}

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

static int kill_at_rename; /* this process is killed before the n-th rename; 0: never */

int __wrap_renameat2(int olddir, const char *from, int newdir, const char *to, unsigned flags)
{
    if (kill_at_rename && --kill_at_rename == 0)
        (void)kill(getpid(), SIGKILL);
    int fails = come_to_hook(&at_rename, newdir);
    errno = fails;
    return fails ? -1 : __real_renameat2(olddir, from, newdir, to, flags);
}

uint64_t __wrap_ckpt__memory_available(void)
{
    (void)come_to_gate(&gate.memory_closed);
    pthread_mutex_lock(&gate.lock);
    uint64_t memory = gate.memory;
    pthread_mutex_unlock(&gate.lock);
    return memory;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    return gate.no_threads ? EAGAIN : __real_pthread_create(thread, attributes, start, arg);
}

static inline void gate_set(bool closed, int fails)
{
    pthread_mutex_lock(&gate.lock);
    gate.closed = closed;
    gate.fails = fails;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static inline void memory_set(bool closed, uint64_t bytes)
{
    pthread_mutex_lock(&gate.lock);
    gate.memory_closed = closed;
    gate.memory = bytes;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

/* Until n threads stand before it. */
static inline void gate_meet(int n)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting < n)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

/* A test that failed may have left it closed. */
static inline void make_run_folder(void)
{
    gate_set(false, 0);
    memory_set(false, UINT64_MAX);
    gate.no_threads = false;
    at_sync.name = at_rename.name = NULL;
    make_folder();
}

/* ---- what was noticed */

typedef struct news {
    size_t count;
    struct {
        char code[32], text[600];
        ckpt_severity severity;
    } list[512];
} news;

static inline void hear(void *ctx, const ckpt_finding *f)
{
    news *n = ctx;
    if (n->count == sizeof n->list / sizeof *n->list)
        return;
    snprintf(n->list[n->count].code, sizeof n->list[0].code, "%s", f->code);
    snprintf(n->list[n->count].text, sizeof n->list[0].text, "%s", f->message);
    n->list[n->count++].severity = f->severity;
}

static inline size_t heard(const news *n, const char *code)
{
    size_t times = 0;
    for (size_t i = 0; i < n->count; i++)
        times += strcmp(n->list[i].code, code) == 0;
    return times;
}

/* The newest of that code; "" where there is none. */
static inline const char *said(const news *n, const char *code)
{
    for (size_t i = n->count; i-- > 0;)
        if (strcmp(n->list[i].code, code) == 0)
            return n->list[i].text;
    return "";
}

/* ---- the trainer */

typedef struct trainer {
    training t;
    ckpt_state *state;
    ckpt_run *run;
    ckpt_run_options o;
    news news;
    ckpt_error err;
} trainer;

static inline void set_step(training *t, int64_t done)
{
    fill(t, (unsigned)done);
    t->step = done;
}

static inline void trainer_init(trainer *x)
{
    memset(x, 0, sizeof *x);
    set_step(&x->t, 0);
    x->state = bind_all(&x->t);
    x->o.notice = hear;
    x->o.notice_ctx = &x->news;
}

static inline ckpt_status trainer_open(trainer *x, const char *path)
{
    return ckpt_run_open(path, x->state, &x->o, &x->run, &x->err);
}

/* Opens and resumes; the completed steps, -1: there was nothing. Fails the test where that is an error. */
static inline int64_t trainer_start(trainer *x, const char *path)
{
    int64_t done = -7;
    ckpt_status status = trainer_open(x, path);
    ck_assert_msg(status == CKPT_OK, "open: %s: %s", x->err.object, x->err.message);
    status = ckpt_run_resume(x->run, NULL, &done, NULL, &x->err);
    ck_assert_msg(status >= 0, "resume: %s: %s", x->err.object, x->err.message);
    if (status == CKPT_NOTHING_TO_RESUME)
        ck_assert_int_eq(done, 0);
    return status == CKPT_NOTHING_TO_RESUME ? -1 : done;
}

static inline ckpt_status trainer_step(trainer *x, int64_t done)
{
    set_step(&x->t, done);
    x->err = (ckpt_error)CKPT_ERROR_INIT;
    return ckpt_run_step(x->run, done, &x->err);
}

static inline ckpt_status trainer_close(trainer *x)
{
    ckpt_status status = ckpt_run_close(x->run, &x->err);
    x->run = NULL;
    return status;
}

static inline void trainer_end(trainer *x)
{
    ckpt_status status = x->run ? trainer_close(x) : CKPT_OK;
    ck_assert_msg(status == CKPT_OK, "close: %s: %s", x->err.object, x->err.message);
    ckpt_state_free(x->state);
}

#define STEPS(x, from, to)                                                                                             \
    do {                                                                                                               \
        for (int64_t done_ = (from); done_ <= (to); done_++) {                                                         \
            ckpt_status status_ = trainer_step((x), done_);                                                            \
            ck_assert_msg(status_ == CKPT_OK, "step %d: status %d: %s: %s", (int)done_, (int)status_, (x)->err.object, \
                          (x)->err.message);                                                                           \
        }                                                                                                              \
    } while (0)

static inline bool is_of_step(const training *t, int64_t done)
{
    training want, have = *t;
    size_t length = strnlen(have.note, sizeof have.note);
    set_step(&want, done);
    memset(have.note + length, 0, sizeof have.note - length); /* what stood behind a longer text is left */
    return memcmp(&want, &have, sizeof want) == 0;
}

/* ---- what lies on the disk */

static inline const char *step_path(const char *run, int64_t step)
{
    static char paths[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/step-%08d", run, (int)step);
    return paths[next];
}

static inline const char *path_of(const char *folder_of, const char *name)
{
    static char paths[4][400];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder_of, name);
    return paths[next];
}

static inline bool is_there(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

/* Does path hold exactly the state after that step? */
static inline bool holds(const char *path, int64_t step)
{
    training t;
    ckpt_error err = CKPT_ERROR_INIT;
    set_step(&t, 999);
    ckpt_state *s = bind_all(&t);
    bool same = ckpt_restore(s, path, NULL, NULL, &err) == CKPT_OK && is_of_step(&t, step);
    ckpt_state_free(s);
    return same;
}

static inline size_t read_file(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    size_t n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static inline void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

static inline void run_command(const char *command)
{
    ck_assert_msg(system(command) == 0, "%s", command);
}

/* The names in a directory that begin so. */
static inline int names_in(const char *path, const char *begin)
{
    int n = 0;
    DIR *d = opendir(path);
    if (!d)
        return -1;
    for (const struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, begin, strlen(begin)) == 0 && strcmp(e->d_name, ".") != 0 &&
             strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static inline bool no_leftovers(const char *run)
{
    return names_in(run, ".tmp-") == 0 && names_in(run, ".trash-") == 0;
}
#endif
