/* migrate/short_memory.h - an allocation that fails after a given reader was opened. Link with
 * --wrap=malloc,--wrap=calloc,--wrap=realloc. */
#ifndef SHORT_MEMORY_H
#define SHORT_MEMORY_H
#include "../scarce_memory.h"
#include "given_reader.h"

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
#endif
