/* codec/crc32_fold.c - the loops that fold a CRC-32, for the carry-less multiplications of x86. Compile with -DCKPT_NO_FOLD to be without. */
#include "codec/crc32_fold.h"

#include "base/stream_copy.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(CKPT_NO_FOLD)
#include <immintrin.h>

/* x^(d+32) and x^(d-32) modulo the polynomial, reflected, for a distance of d bits. */
static const long long OVER_512_LOW = 0x154442bd4, OVER_512_HIGH = 0x1c6e41596;
static const long long OVER_2048_LOW = 0x11542778a, OVER_2048_HIGH = 0x1322d1430;

#ifdef CKPT__ORDINARY_STORES
enum { PAST = 0 };
#else
enum { PAST = 1 };
#endif

#define INLINE static inline __attribute__((always_inline))

/* ---- 128 bits: four remainders, each of every fourth 16 bytes */

#define FOR_128 __attribute__((target("pclmul")))

FOR_128 INLINE __m128i take_128(ckpt__fold_how how, char *to, const char *from)
{
    __m128i value = _mm_loadu_si128((const __m128i *)(const void *)from);
    if (how == CKPT__FOLD_STREAM && PAST)
        _mm_stream_si128((__m128i *)(void *)to, value);
    else if (how != CKPT__FOLD_LOOK)
        _mm_storeu_si128((__m128i *)(void *)to, value);
    return value;
}

FOR_128 INLINE __m128i fold_128(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FOR_128 INLINE void lines_128(ckpt__fold_how how, uint32_t crc, char *to, const char *from, size_t n,
                              unsigned char *left)
{
    const size_t ahead = how == CKPT__FOLD_LOOK ? 4096 : 2048, step = how == CKPT__FOLD_LOOK ? 0 : CKPT__LINE;
    const __m128i by = _mm_set_epi64x(OVER_512_HIGH, OVER_512_LOW);
    __m128i a = take_128(how, to, from), b = take_128(how, to + step / 4, from + 16),
            c = take_128(how, to + step / 2, from + 32), d = take_128(how, to + step / 4 * 3, from + 48);
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)~crc));
    while (n -= CKPT__LINE) {
        from += CKPT__LINE;
        to += step;
        _mm_prefetch((const char *)((uintptr_t)from + ahead), _MM_HINT_T0);
        if (how == CKPT__FOLD_STORE) /* a line is read before it is written */
            _mm_prefetch((const char *)((uintptr_t)to + ahead / 2), _MM_HINT_T0);
        a = fold_128(a, by, take_128(how, to, from));
        b = fold_128(b, by, take_128(how, to + step / 4, from + 16));
        c = fold_128(c, by, take_128(how, to + step / 2, from + 32));
        d = fold_128(d, by, take_128(how, to + step / 4 * 3, from + 48));
    }
    _mm_storeu_si128((__m128i *)(void *)left, a);
    _mm_storeu_si128((__m128i *)(void *)(left + 16), b);
    _mm_storeu_si128((__m128i *)(void *)(left + 32), c);
    _mm_storeu_si128((__m128i *)(void *)(left + 48), d);
}

/* ---- 256 and 512 bits */

/* Four lines are asked for, where they go past the cache: on an AMD EPYC with AVX-512, from 4 KiB pages of the page cache, one thread copies 18.5
 * GB/s without and 20.5 with it. By ordinary stores that is 14.3 and 12.4, and without a copy 26.3 and 23.8. */
INLINE void ask_ahead(ckpt__fold_how how, const char *from)
{
    enum { AHEAD = 4096 };
    for (size_t i = 0; how == CKPT__FOLD_STREAM && i < 4 * CKPT__LINE; i += CKPT__LINE)
        _mm_prefetch((const char *)((uintptr_t)from + AHEAD + i), _MM_HINT_T0);
}

#define FOR_256 __attribute__((target("avx2,vpclmulqdq")))

typedef struct line_256 {
    __m256i a, b;
} line_256;

FOR_256 INLINE __m256i half_256(ckpt__fold_how how, char *to, const char *from)
{
    __m256i value = _mm256_loadu_si256((const __m256i *)(const void *)from);
    if (how == CKPT__FOLD_STREAM && PAST)
        _mm256_stream_si256((__m256i *)(void *)to, value);
    else if (how != CKPT__FOLD_LOOK)
        _mm256_storeu_si256((__m256i *)(void *)to, value);
    return value;
}

FOR_256 INLINE line_256 take_256(ckpt__fold_how how, char *to, const char *from)
{
    __m256i a = half_256(how, to, from), b = half_256(how, to + (how == CKPT__FOLD_LOOK ? 0 : 32), from + 32);
    return (line_256){a, b};
}

FOR_256 INLINE line_256 begin_256(line_256 x, uint32_t crc)
{
    x.a = _mm256_xor_si256(x.a, _mm256_setr_epi32((int)crc, 0, 0, 0, 0, 0, 0, 0));
    return x;
}

FOR_256 INLINE __m256i fold_half_256(__m256i x, __m256i by, __m256i next)
{
    __m256i low = _mm256_clmulepi64_epi128(x, by, 0x00), high = _mm256_clmulepi64_epi128(x, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
}

FOR_256 INLINE line_256 fold_256(line_256 x, __m256i by, line_256 next)
{
    return (line_256){fold_half_256(x.a, by, next.a), fold_half_256(x.b, by, next.b)};
}

FOR_256 INLINE void leave_256(unsigned char *left, line_256 x)
{
    _mm256_storeu_si256((__m256i *)(void *)left, x.a);
    _mm256_storeu_si256((__m256i *)(void *)(left + 32), x.b);
}

#define LOOP lines_256
#define TARGET FOR_256
#define LINE_T line_256
#define BY_T __m256i
#define TAKE take_256
#define BEGIN begin_256
#define LEAVE leave_256
#define BY(high, low) _mm256_set_epi64x(high, low, high, low)
#define FOLD fold_256
#include "codec/crc32_fold_lines.h"

#define FOR_512 __attribute__((target("avx512f,vpclmulqdq")))

FOR_512 INLINE __m512i take_512(ckpt__fold_how how, char *to, const char *from)
{
    __m512i value = _mm512_loadu_si512(from);
    if (how == CKPT__FOLD_STREAM && PAST)
        _mm512_stream_si512((__m512i *)(void *)to, value);
    else if (how != CKPT__FOLD_LOOK)
        _mm512_storeu_si512(to, value);
    return value;
}

FOR_512 INLINE __m512i begin_512(__m512i x, uint32_t crc)
{
    return _mm512_xor_si512(x, _mm512_setr_epi32((int)crc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
}

FOR_512 INLINE __m512i fold_512(__m512i x, __m512i by, __m512i next)
{
    enum { ALL_THREE = 0x96 }; /* their exclusive or, as a table of three bits */
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, by, 0x00), _mm512_clmulepi64_epi128(x, by, 0x11), next,
                                     ALL_THREE);
}

FOR_512 INLINE void leave_512(unsigned char *left, __m512i x)
{
    _mm512_storeu_si512(left, x);
}

#define LOOP lines_512
#define TARGET FOR_512
#define LINE_T __m512i
#define BY_T __m512i
#define TAKE take_512
#define BEGIN begin_512
#define LEAVE leave_512
#define BY(high, low) _mm512_set4_epi64(high, low, high, low)
#define FOLD fold_512
#include "codec/crc32_fold_lines.h"

/* ---- one of them: a loop of its own for each `how` */

#define EACH(target, name, lines)                                                                                      \
    target static void name(ckpt__fold_how how, uint32_t crc, char *to, const char *from, size_t n,                    \
                            unsigned char left[CKPT__LINE])                                                            \
    {                                                                                                                  \
        if (how == CKPT__FOLD_STORE)                                                                                   \
            lines(CKPT__FOLD_STORE, crc, to, from, n, left);                                                           \
        else if (how == CKPT__FOLD_STREAM)                                                                             \
            lines(CKPT__FOLD_STREAM, crc, to, from, n, left);                                                          \
        else                                                                                                           \
            lines(CKPT__FOLD_LOOK, crc, to, from, n, left);                                                            \
    }

EACH(FOR_128, by_128, lines_128)
EACH(FOR_256, by_256, lines_256)
EACH(FOR_512, by_512, lines_512)

ckpt__fold_lines *ckpt__fold_of(unsigned width)
{
    if (width == 128)
        return __builtin_cpu_supports("pclmul") ? by_128 : NULL;
    if (!__builtin_cpu_supports("vpclmulqdq"))
        return NULL;
    return width == 256 && __builtin_cpu_supports("avx2")      ? by_256
           : width == 512 && __builtin_cpu_supports("avx512f") ? by_512
                                                               : NULL;
}
#else
ckpt__fold_lines *ckpt__fold_of(unsigned width)
{
    (void)width;
    return NULL;
}
#endif

ckpt__fold_lines *ckpt__fold_widest(void)
{
    ckpt__fold_lines *found = ckpt__fold_of(512);
    found = found ? found : ckpt__fold_of(256);
    return found ? found : ckpt__fold_of(128);
}
