/* model/points.h - what tests against brute force share: random numbers, the points of a shape one by one, and an assertion that may
 * be made millions of times. */
#ifndef POINTS_H
#define POINTS_H
#include <stdbool.h>
#include <stdint.h>
#include "../runner.h"

enum { DIMS = 5 };

static uint64_t state = 88172645463325252u;

static inline uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static inline int64_t draw_from(int64_t least, int64_t most)
{
    return least + (int64_t)(draw() % (uint64_t)(most - least + 1));
}

/* An assertion for what is looked at millions of times: those of Check write a line each. */
static inline void must(bool fine, const char *what)
{
    if (!fine)
        ck_abort_msg("%s", what);
}

/* Counts through all points of a shape, the last dimension first; false after the last point. */
static inline bool next_point(uint32_t n, const int64_t *shape, int64_t *point)
{
    for (uint32_t i = n; i-- > 0;) {
        if (++point[i] < shape[i])
            return true;
        point[i] = 0;
    }
    return false;
}
#endif
