/* tests/unit/scarce_memory.h - an allocation that fails. Link with --wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef SCARCE_MEMORY_H
#define SCARCE_MEMORY_H
#include <stdbool.h>
#include <stddef.h>

static size_t allocations;         /* so far, of all */
static long allocations_left = -1; /* that many go well, and the next one fails; below 0: none does */

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

/* Files of ranks are read by several threads. */
static inline bool is_short(void)
{
    __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&allocations_left, __ATOMIC_RELAXED) >= 0 &&
           __atomic_fetch_sub(&allocations_left, 1, __ATOMIC_RELAXED) == 0;
}

void *__wrap_malloc(size_t n)
{
    return is_short() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return is_short() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return is_short() ? NULL : __real_realloc(p, n);
}
#endif
