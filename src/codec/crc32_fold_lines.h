/* codec/crc32_fold_lines.h - the loop over lines. codec/crc32_fold.c includes it once for each wide register, and says first what these are:
 *
 *     LOOP, TARGET       the name of the loop, and the attribute that permits its instructions
 *     LINE_T, BY_T       64 bytes in registers; what their halves are multiplied by
 *     TAKE, BEGIN, LEAVE loads a line, which goes to `to`; puts the CRC into its first bytes; writes it to memory
 *     BY, FOLD           the two factors for each 128 bits; a line over their distance, onto the next
 *
 * Four lines are in flight, each of which goes on 2048 bits ahead. Without LOOP nothing is defined. */
#include "codec/crc32_fold.h"

#ifdef LOOP
TARGET static inline __attribute__((always_inline)) void LOOP(ckpt__fold_how how, uint32_t crc, char *to,
                                                              const char *from, size_t n, unsigned char *left)
{
    enum { LINE = CKPT__LINE, FOUR = 4 * LINE };
    const size_t step = how == CKPT__FOLD_LOOK ? 0 : LINE;
    const BY_T near = BY(OVER_512_HIGH, OVER_512_LOW), far = BY(OVER_2048_HIGH, OVER_2048_LOW);
    LINE_T a = BEGIN(TAKE(how, to, from), ~crc);
    from += LINE, to += step, n -= LINE;
    if (n >= FOUR + 3 * LINE) {
        LINE_T b = TAKE(how, to, from), c = TAKE(how, to + step, from + LINE),
               d = TAKE(how, to + 2 * step, from + 2 * LINE);
        from += 3 * LINE, to += 3 * step, n -= 3 * LINE;
        for (; n >= FOUR; from += FOUR, to += 4 * step, n -= FOUR) {
            ask_ahead(how, from);
            a = FOLD(a, far, TAKE(how, to, from));
            b = FOLD(b, far, TAKE(how, to + step, from + LINE));
            c = FOLD(c, far, TAKE(how, to + 2 * step, from + 2 * LINE));
            d = FOLD(d, far, TAKE(how, to + 3 * step, from + 3 * LINE));
        }
        a = FOLD(FOLD(FOLD(a, near, b), near, c), near, d);
    }
    for (; n; from += LINE, to += step, n -= LINE)
        a = FOLD(a, near, TAKE(how, to, from));
    LEAVE(left, a);
}
#undef LOOP
#undef TARGET
#undef LINE_T
#undef BY_T
#undef TAKE
#undef BEGIN
#undef LEAVE
#undef BY
#undef FOLD
#endif
