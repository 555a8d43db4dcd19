/* run/signals.c - see signals.h. The handler is async-signal-safe: lock-free atomics, sigaction, raise.
 *
 * A handler that someone installed over ours calls ours, and goes on doing so when the run is over. It cannot be told
 * apart from one that does not, so what lies below it is never used a second time: the next run that takes the signal
 * gets another function with a record of its own, and no chain of handlers ever meets one function twice. */
#include "run/signals.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler needs atomics without locks");

enum { LEVELS = 3 };
enum { UNUSED, TAKING, OWNED, LEFT }; /* LEFT: released, but below someone's handler */

/* One signal at one level. Records are static and never freed, for a handler may run at any moment. */
typedef struct record {
    struct sigaction earlier; /* written while nobody can be in the handler, then only read */
    atomic_int state;         /* UNUSED, TAKING, OWNED or LEFT */
    atomic_int running;       /* handlers that may be reading `earlier` */
    atomic_uint seen;         /* signals that came while the state was OWNED */
    atomic_int given_back;    /* a second signal has restored the earlier disposition */
} record;

static record records[LEVELS][_NSIG];
static atomic_int owned, first_caught;

typedef void (*action_fn)(int sig, siginfo_t *info, void *context);
static void on_signal_0(int sig, siginfo_t *info, void *context);
static void on_signal_1(int sig, siginfo_t *info, void *context);
static void on_signal_2(int sig, siginfo_t *info, void *context);
static const action_fn functions[LEVELS] = {on_signal_0, on_signal_1, on_signal_2};

/* ---- in the handler */

static bool is_function(const struct sigaction *a)
{
    return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

static bool is_installed(int sig, int level)
{
    struct sigaction now;
    return sigaction(sig, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == functions[level];
}

static void call_earlier(const record *r, int sig, siginfo_t *info, void *context)
{
    if (r->earlier.sa_flags & SA_SIGINFO)
        r->earlier.sa_sigaction(sig, info, context);
    else if (is_function(&r->earlier))
        r->earlier.sa_handler(sig);
}

/* A handler that was to run once (SA_RESETHAND) has run when a signal was passed on to it. */
static void restore_earlier(record *r, int sig)
{
    struct sigaction a = r->earlier;
    if (((unsigned)a.sa_flags & SA_RESETHAND) && is_function(&a) && atomic_load(&r->seen) > 0) {
        a.sa_flags = 0;
        a.sa_handler = SIG_DFL;
    }
    (void)sigaction(sig, &a, NULL);
}

/* The signal is raised while it is blocked: it is delivered when the handler returns. */
static void give_back(record *r, int level, int sig, siginfo_t *info, void *context)
{
    bool in_place = is_installed(sig, level);
    if (!in_place && !atomic_load(&r->given_back) && is_function(&r->earlier)) {
        call_earlier(r, sig, info, context); /* someone's handler is over ours, and stays there */
        return;
    }
    if (atomic_exchange(&r->given_back, 1) == 0)
        restore_earlier(r, sig);
    (void)raise(sig);
}

static void handle(int level, int sig, siginfo_t *info, void *context)
{
    int saved = errno, none = 0;
    record *r = &records[level][sig];
    atomic_fetch_add(&r->running, 1);
    int state = atomic_load(&r->state);
    if (state == OWNED && atomic_fetch_add(&r->seen, 1) == 0) {
        (void)atomic_compare_exchange_strong(&first_caught, &none, sig);
        call_earlier(r, sig, info, context);
    } else if (state == OWNED) {
        give_back(r, level, sig, info, context);
    } else if (state == LEFT && is_installed(sig, level)) {
        give_back(r, level, sig, info, context); /* nothing is over ours any more */
    } else if (state == LEFT) {
        call_earlier(r, sig, info, context);
    } else { /* it came before the release, and is late: to whom it now belongs */
        if (state == UNUSED && is_installed(sig, level))
            restore_earlier(r, sig);
        (void)raise(sig);
    }
    atomic_fetch_sub(&r->running, 1);
    errno = saved;
}

static void on_signal_0(int sig, siginfo_t *info, void *context)
{
    handle(0, sig, info, context);
}

static void on_signal_1(int sig, siginfo_t *info, void *context)
{
    handle(1, sig, info, context);
}

static void on_signal_2(int sig, siginfo_t *info, void *context)
{
    handle(2, sig, info, context);
}

/* ---- taking and releasing */

static ckpt_status refuse(int sig, const char *why, ckpt_error *err)
{
    return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                      "signal %d cannot ask a run to save and stop: %s; leave it out of more_signals", sig, why);
}

static ckpt_status check_signal(int sig, ckpt_error *err)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGXFSZ};
    if (sig < 1 || sig >= _NSIG || sig > SIGRTMAX || (sig > SIGSYS && sig < SIGRTMIN))
        return refuse(sig, "there is no such signal", err);
    if (sig == SIGINT)
        return refuse(sig, "SIGINT stays the user's, who wants the program to end at once", err);
    if (sig == SIGKILL || sig == SIGSTOP)
        return refuse(sig, "no program can catch it", err);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (sig == faults[i])
            return refuse(sig, "it means that something is broken, and the program cannot go on", err);
    return CKPT_OK;
}

/* Handlers that were called before the state changed may still be reading. */
static bool claim(record *r)
{
    int unused = UNUSED;
    if (!atomic_compare_exchange_strong(&r->state, &unused, TAKING))
        return false;
    if (atomic_load(&r->running) == 0)
        return true;
    atomic_store(&r->state, UNUSED);
    return false;
}

static void begin(record *r)
{
    atomic_store(&r->seen, 0);
    atomic_store(&r->given_back, 0);
    atomic_store(&r->state, OWNED);
}

static bool is_owned(int sig)
{
    for (int level = 0; level < LEVELS; level++)
        if (atomic_load(&records[level][sig].state) == OWNED)
            return true;
    return false;
}

static ckpt_status take(int sig, ckpt_error *err)
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    int level = 0;
    for (int i = 0; i < LEVELS; i++) {
        if (is_installed(sig, i)) { /* what was over ours has gone since, and put ours back */
            begin(&records[i][sig]);
            return CKPT_OK;
        }
    }
    while (level < LEVELS && !claim(&records[level][sig]))
        level++;
    if (level == LEVELS)
        return ckpt__fail(err, CKPT_E_EXISTS, NULL,
                          "signal %d: %d earlier runs of this process were closed below handlers that were installed "
                          "over theirs; restore such a handler before the run is closed",
                          sig, (int)LEVELS);
    record *r = &records[level][sig];
    if (sigaction(sig, NULL, &r->earlier) < 0) {
        atomic_store(&r->state, UNUSED);
        return ckpt__fail_sys(err, errno, NULL, "signal %d: sigaction", sig);
    }
    /* The earlier handler runs inside ours: what it wants blocked must be. */
    ours.sa_mask = r->earlier.sa_mask;
    ours.sa_sigaction = functions[level];
    begin(r);
    if (sigaction(sig, &ours, NULL) < 0) {
        atomic_store(&r->state, UNUSED);
        return ckpt__fail_sys(err, errno, NULL, "signal %d: sigaction", sig);
    }
    return CKPT_OK;
}

static void release_all(void)
{
    for (int level = 0; level < LEVELS; level++) {
        for (int sig = 1; sig < _NSIG; sig++) {
            record *r = &records[level][sig];
            if (atomic_load(&r->state) != OWNED)
                continue;
            bool in_place = is_installed(sig, level);
            if (in_place)
                restore_earlier(r, sig);
            atomic_store(&r->state, in_place || atomic_load(&r->given_back) ? UNUSED : LEFT);
        }
    }
}

ckpt_status ckpt__signals_take(const int *signals, size_t n, ckpt_error *err)
{
    int nobody = 0;
    for (size_t i = 0; i < n; i++) {
        ckpt_status status = check_signal(signals[i], err);
        if (status < 0)
            return status;
    }
    if (!atomic_compare_exchange_strong(&owned, &nobody, 1))
        return ckpt__fail(err, CKPT_E_EXISTS, NULL,
                          "another run of this process saves on signals already, and one run of a process may; open "
                          "this one without options.signals");
    atomic_store(&first_caught, 0);
    for (size_t i = 0; i < n; i++) {
        ckpt_status status = is_owned(signals[i]) ? CKPT_OK : take(signals[i], err);
        if (status < 0) {
            ckpt__signals_release();
            return status;
        }
    }
    return CKPT_OK;
}

int ckpt__signals_caught(void)
{
    return atomic_load_explicit(&first_caught, memory_order_relaxed);
}

void ckpt__signals_release(void)
{
    if (!atomic_load(&owned))
        return;
    release_all();
    atomic_store(&owned, 0);
}
