/* tests/unit/random.h - numbers at random, the same in each run of a program. A test that wants others sets random_state, which is never 0. */
#ifndef RANDOM_H
#define RANDOM_H
#include <stdint.h>

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static inline uint64_t random_bits(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Of 0 to below - 1. */
static inline unsigned roll(unsigned below)
{
    return (unsigned)(random_bits() >> 33) % below;
}
#endif
