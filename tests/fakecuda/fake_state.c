/* tests/fakecuda/fake_state.c - the state, its lock, faults by call number, breaches, cuInit, and what is left at exit.
 */
#include "fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fake_state fake = {.strict = true, .leaks = true};
const char fakecuda_marker[] = "fakecuda";

static pthread_mutex_t lock;
static pthread_once_t lock_once = PTHREAD_ONCE_INIT;

static void make_lock(void)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void fake_lock(void)
{
    pthread_once(&lock_once, make_lock);
    if (pthread_mutex_lock(&lock) == EDEADLK)
        fake_die("a kernel's twin called the driver");
}

void fake_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

static void complain(const char *format, va_list ap)
{
    char text[512] = "fakecuda: ";
    size_t n = strlen(text);
    vsnprintf(text + n, sizeof text - n - 1, format, ap);
    strcat(text, "\n");
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        return;
}

void fake_die(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    complain(format, ap);
    va_end(ap);
    _exit(FAKECUDA_EXIT);
}

CUresult fake_breach(CUresult code, const char *format, ...)
{
    va_list ap;
    if (!fake.strict)
        return code;
    va_start(ap, format);
    complain(format, ap);
    va_end(ap);
    _exit(FAKECUDA_EXIT);
}

void *fake_alloc(size_t size)
{
    void *p = calloc(1, size);
    if (!p)
        fake_die("no host memory for %zu bytes", size);
    return p;
}

/* ---- faults */

static CUresult fault(const char *call, fake_class class)
{
    fake.calls++;
    if (fake.fail_at && fake.calls == fake.fail_at) {
        fake.failing = !fake.fail_once;
        fake.failed_call = call;
        return (CUresult)fake.fail_code;
    }
    return fake.failing && class == FAKE_WORK ? (CUresult)fake.fail_code : CUDA_SUCCESS;
}

CUresult fake_begin(const char *call, fake_class class)
{
    fake_lock();
    /* Like the real one, it is of no use to a forked child. */
    if (strcmp(call, "cuInit") != 0 && (!fake.initialised || fake.pid != getpid()))
        return CUDA_ERROR_NOT_INITIALIZED;
    return fault(call, class);
}

CUresult fake_end(CUresult r)
{
    fake_unlock();
    return r;
}

void fakecuda_fail_at(uint64_t n, int code, int once)
{
    fake_lock();
    fake.calls = 0;
    fake.fail_at = n;
    fake.fail_code = code;
    fake.fail_once = once != 0;
    fake.failing = false;
    fake.failed_call = NULL;
    fake_unlock();
}

uint64_t fakecuda_calls(void)
{
    fake_lock();
    uint64_t n = fake.calls;
    fake_unlock();
    return n;
}

const char *fakecuda_failed_call(void)
{
    fake_lock();
    const char *call = fake.failed_call;
    fake_unlock();
    return call;
}

void fakecuda_set_reverse(int on)
{
    fake_lock();
    fake.reverse = on != 0;
    fake_unlock();
}

void fakecuda_set_strict(int on)
{
    fake_lock();
    fake.strict = on != 0;
    fake_unlock();
}

/* ---- cuInit */

static uint64_t setting(const char *name, uint64_t otherwise, uint64_t most)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return otherwise;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift)
        end++;
    if (errno || *end || *text == '-' || value > most >> shift)
        fake_die("%s=%s: expected a number of at most %llu", name, text, (unsigned long long)most);
    return value << shift;
}

CUresult fake_start(void)
{
    if (fake.initialised)
        return fake.pid == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    fake.devices = (int)setting("FAKECUDA_DEVICES", 2, FAKE_DEVICES_MAX);
    fake.memory = (size_t)setting("FAKECUDA_MEMORY", 1ull << 30, 1ull << 40) & ~(size_t)0xffff;
    if (fake.memory == 0)
        fake_die("FAKECUDA_MEMORY: a device has 64K at least");
    fake.reverse = setting("FAKECUDA_REVERSE", fake.reverse, 1) != 0;
    fake.strict = setting("FAKECUDA_STRICT", fake.strict, 1) != 0;
    fake.leaks = setting("FAKECUDA_LEAKS", 1, 1) != 0;
    for (int i = 0; i < fake.devices; i++)
        fake.device[i].fd = -1;
    if (getenv("FAKECUDA_FAIL_AT")) {
        fake.fail_at = setting("FAKECUDA_FAIL_AT", 0, UINT64_MAX);
        fake.fail_code = (int)setting("FAKECUDA_FAIL_CODE", CUDA_ERROR_UNKNOWN, CUDA_ERROR_UNKNOWN);
        fake.fail_once = setting("FAKECUDA_FAIL_ONCE", 0, 1) != 0;
    }
    fake.pid = getpid();
    return CUDA_SUCCESS;
}

API cuInit(unsigned flags)
{
    fake_lock();
    CUresult r = fake_start();
    if (r == CUDA_SUCCESS)
        r = fault("cuInit", FAKE_WORK);
    if (r == CUDA_SUCCESS && flags != 0)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && fake.devices == 0)
        r = CUDA_ERROR_NO_DEVICE;
    if (r == CUDA_SUCCESS)
        fake.initialised = true;
    return fake_end(r);
}

API cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* ---- what is left */

static void count_live(fakecuda_counts *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < fake.devices; i++)
        for (const fake_block *b = fake.device[i].blocks; b; b = b->next)
            out->allocations++;
    for (const fake_block *b = fake.host; b; b = b->next) {
        out->allocations += b->kind == FAKE_MANAGED;
        out->host += b->kind != FAKE_MANAGED;
    }
    for (CUstream s = fake.streams; s; s = s->next) {
        out->streams += !s->legacy;
        for (const fake_op *op = s->head; op; op = op->next)
            out->pending++;
    }
    for (CUevent e = fake.events; e; e = e->next)
        out->events++;
    for (CUmodule m = fake.modules; m; m = m->next)
        out->modules++;
    for (CUcontext c = fake.contexts; c; c = c->next)
        out->contexts += !c->primary;
    out->pushed = fake.pushed;
}

void fakecuda_live(fakecuda_counts *out)
{
    fake_lock();
    count_live(out);
    fake_unlock();
}

static size_t left(size_t n, const char *what)
{
    if (n)
        fprintf(stderr, "fakecuda: left behind: %zu %s\n", n, what);
    return n;
}

size_t fakecuda_check_leaks(void)
{
    fakecuda_counts c;
    fakecuda_live(&c);
    size_t n = left(c.allocations, "allocation(s) of device or managed memory");
    n += left(c.host, "block(s) of page-locked host memory");
    n += left(c.streams, "stream(s)");
    n += left(c.events, "event(s)");
    n += left(c.modules, "module(s)");
    n += left(c.contexts, "context(s)");
    n += left(c.pushed > 0 ? (size_t)c.pushed : 0, "pushed context(s)");
    return n;
}

__attribute__((destructor)) static void at_exit(void)
{
    if (fake.initialised && fake.leaks && fake.pid == getpid() && fakecuda_check_leaks()) {
        fflush(NULL);
        _exit(FAKECUDA_EXIT);
    }
}
