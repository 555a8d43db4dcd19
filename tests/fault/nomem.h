/* nomem.h - allocations that fail in turn. The linker sends the library's allocations here (--wrap). */
#ifndef NOMEM_H
#define NOMEM_H
#include <stdarg.h>
#include <sys/mman.h>
#include <ckpt/ckpt.h>
#include "../unit/runner.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **out, const char *format, ...);

static long countdown; /* the allocation that fails; 0: none */
static bool for_ever;
static bool *hit; /* also of a process of its own, in which libhdf5 is tried */

static bool fails(void)
{
    if (countdown <= 0 || --countdown > 0)
        return false;
    *hit = true;
    if (for_ever)
        countdown = 1;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

int __wrap_asprintf(char **out, const char *format, ...)
{
    va_list ap;
    if (fails())
        return -1;
    va_start(ap, format);
    int n = vasprintf(out, format, ap);
    va_end(ap);
    return n;
}

/* Runs the call with its n-th allocation failing, for n = 1, 2, 3, ... until it comes through without meeting a failure; with
 * CKPT_TEST_FEW of those beyond the 40th each fourth. `after` looks at what was left behind. */
typedef ckpt_status (*call_fn)(ckpt_error *err);
typedef void (*after_fn)(ckpt_status status);

static void each_allocation(call_fn call, after_fn after)
{
    const long stride = getenv("CKPT_TEST_FEW") ? 4 : 1;
    long tolerated = 0, n = 1, step;
    if (!hit)
        hit = mmap(NULL, sizeof *hit, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(hit != MAP_FAILED);
    for (int pass = 0; pass < 2; pass++)
        for (n = 1;; n += step) {
            ckpt_error err = CKPT_ERROR_INIT;
            step = n > 40 ? stride : 1;
            countdown = n;
            for_ever = pass;
            *hit = false;
            ckpt_status status = call(&err);
            bool met = *hit;
            countdown = 0;
            if (after)
                after(status);
            if (!met) {
                ck_assert_msg(status >= 0, "without a failure: %s: %s", err.object, err.message);
                break;
            }
            if (status >= 0)
                tolerated += step; /* what it was for can be done without */
            else {
                ck_assert_msg(status == CKPT_E_NO_MEMORY, "allocation %ld: status %d: %s: %s", n, status, err.object,
                              err.message);
                ck_assert_msg(strstr(err.message, "memory") != NULL, "allocation %ld: %s", n, err.message);
            }
            ck_assert_int_lt(n, 100000);
        }
    ck_assert_msg(n > 3 && tolerated <= n / 2, "%ld of %ld failures made no difference", tolerated, n);
}
#endif
