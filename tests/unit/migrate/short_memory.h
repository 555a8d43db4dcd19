/* migrate/short_memory.h - an allocation that fails after a given reader was opened. Link with
 * --wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef SHORT_MEMORY_H
#define SHORT_MEMORY_H
#include "given_reader.h"

static size_t allocations;             /* so far, of all */
static long allocations_left = -1;     /* that many go well, and the next one fails; below 0: none does */
static long allocations_to_leave = -1; /* allocations_left once the reader has been given */

static inline void begin_failing(void)
{
    when_given = NULL;
    allocations_left = allocations_to_leave;
}

/* Once the given reader is open, n allocations go well, and the next one fails. */
static inline void fail_after(long n)
{
    allocations_to_leave = n;
    when_given = begin_failing;
}

static inline void fail_no_more(void)
{
    when_given = NULL;
    allocations_left = -1;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static inline bool is_short(void)
{
    allocations++;
    return allocations_left >= 0 && allocations_left-- == 0;
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
