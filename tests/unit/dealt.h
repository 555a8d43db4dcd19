/* tests/unit/dealt.h - what of a dimension a rank has, dealt out element by element: what layout/mesh.h computes, by none of its code. */
#ifndef DEALT_H
#define DEALT_H
#include "layout/mesh.h"

enum { LONGEST = 64 };

/* What of a dimension a rank has: the tensor's own numbers, in the rank's order. */
typedef struct held {
    int count, of[LONGEST];
} held;

/* All of a dimension. */
static inline held held_whole(int64_t size)
{
    held h = {.count = (int)size};
    for (int i = 0; i < h.count; i++)
        h.of[i] = i;
    return h;
}

/* Whose is element p of n, among m? */
static inline int64_t owner(const ckpt__rank_cut *c, int64_t p, int64_t n, int64_t m)
{
    int64_t left[LONGEST] = {0}, who = 0;
    for (int64_t k = 0; k < m; k++)
        left[k] = c->as == CKPT__CUT_AS_CEIL ? (n + m - 1) / m : c->as == CKPT__CUT_AS_WIDTHS ? c->widths[k] : 0;
    for (int64_t i = 0; i < n && (c->as == CKPT__CUT_AS_EVEN || c->as == CKPT__CUT_AS_BALANCED); i++)
        left[i % m]++;
    for (int64_t i = 0; i <= p; i++) {
        while (left[who] == 0)
            who++;
        left[who]--;
    }
    return who;
}

/* Of what h has, what the coordinate gets of m. */
static inline void deal(const ckpt__rank_cut *c, int64_t m, int64_t coordinate, held *h)
{
    held out = {.count = 0};
    const int64_t whole = h->count;
    const int64_t *sizes = c->segment_count ? c->segments : &whole;
    const size_t count = c->segment_count ? c->segment_count : 1;
    int at_element = 0;
    for (int64_t g = 0; g < (c->segment_count ? c->groups : 1); g++)
        for (size_t s = 0; s < count; s++)
            for (int64_t p = 0; p < sizes[s]; p++, at_element++)
                if (owner(c, p, sizes[s], m) == coordinate)
                    out.of[out.count++] = h->of[at_element];
    *h = out;
}
#endif
