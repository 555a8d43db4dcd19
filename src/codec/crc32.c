/* codec/crc32.c - CRC-32. On x86 a loop of ours folds by carry-less multiplication and copies on the way; elsewhere, and for what is short,
 * ISA-L's or zlib's. */
#include "codec/crc32.h"

#include <string.h>
#include <zlib.h>
#include "base/stream_copy.h"

#ifdef HAVE_ISAL
#include <isa-l/crc.h>

static uint32_t by_library(uint32_t crc, const void *data, size_t n)
{
    return n ? crc32_gzip_refl(crc, data, n) : crc;
}
#else
static uint32_t by_library(uint32_t crc, const void *data, size_t n)
{
    return n ? (uint32_t)crc32_z(crc, data, n) : crc;
}
#endif

/* ---- folding (V. Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009)
 *
 * Four remainders of 128 bits, each of every fourth 16 bytes. To fold one over 512 bits is to multiply its halves by x^(512+32) and x^(512-32)
 * modulo the polynomial, both reflected. What is left at the end, 64 bytes, has the CRC that all the bytes have: the library takes that.
 *   No library that Debian has copies on the way, and none asks for what lies ahead. On a Xeon of 2.5 GHz (Cascade Lake), from memory: ISA-L alone
 * 7.1 GB/s, this 11.3; ISA-L and a copy of 4 KiB by turns 4.0, this 5.9, which a copy alone has too. Compile with -DCKPT_NO_FOLD to be without. */

enum { LINE = 64 };
enum how { LOOK, STORE, STREAM };

#if defined(__x86_64__) && defined(__GNUC__) && !defined(CKPT_NO_FOLD)
#include <immintrin.h>

/* A processor that folds 512 bits at a time does so in ISA-L, where that is there; it copies on the way by this loop all the same. */
static bool folds(enum how how)
{
#ifdef HAVE_ISAL
    return __builtin_cpu_supports("pclmul") && (how != LOOK || !__builtin_cpu_supports("vpclmulqdq"));
#else
    (void)how;
    return __builtin_cpu_supports("pclmul");
#endif
}

#define FOR_PCLMUL __attribute__((target("pclmul")))
#define INLINE FOR_PCLMUL static inline __attribute__((always_inline))

/* 16 bytes, which go to `to` on the way. */
INLINE __m128i take(enum how how, char *to, const char *from)
{
    __m128i value = _mm_loadu_si128((const __m128i *)(const void *)from);
#ifdef CKPT__ORDINARY_STORES
    how = how == STREAM ? STORE : how;
#endif
    if (how == STREAM)
        _mm_stream_si128((__m128i *)(void *)to, value);
    else if (how == STORE)
        _mm_storeu_si128((__m128i *)(void *)to, value);
    return value;
}

INLINE __m128i fold_one(__m128i x, __m128i by, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* n is a multiple of LINE, and not 0. STREAM: `to` is aligned to a line. LOOK: `to` is not written. What lies ahead is asked for, which never
 * fails. */
INLINE uint32_t fold(enum how how, uint32_t crc, char *to, const char *from, size_t n)
{
    const size_t ahead = how == LOOK ? 4096 : 2048, step = how == LOOK ? 0 : LINE;
    const __m128i by = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    __m128i a = take(how, to, from), b = take(how, to + step / 4, from + 16), c = take(how, to + step / 2, from + 32),
            d = take(how, to + step / 4 * 3, from + 48);
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)~crc));
    while (n -= LINE) {
        from += LINE;
        to += step;
        _mm_prefetch((const char *)((uintptr_t)from + ahead), _MM_HINT_T0);
        if (how == STORE) /* a line is read before it is written */
            _mm_prefetch((const char *)((uintptr_t)to + ahead / 2), _MM_HINT_T0);
        a = fold_one(a, by, take(how, to, from));
        b = fold_one(b, by, take(how, to + step / 4, from + 16));
        c = fold_one(c, by, take(how, to + step / 2, from + 32));
        d = fold_one(d, by, take(how, to + step / 4 * 3, from + 48));
    }
    const __m128i left[4] = {a, b, c, d};
    return by_library(UINT32_MAX, left, sizeof left);
}

FOR_PCLMUL static uint32_t look_at_lines(uint32_t crc, const char *from, size_t n)
{
    char none[1];
    return fold(LOOK, crc, none, from, n);
}

FOR_PCLMUL static uint32_t copy_lines(uint32_t crc, char *to, const char *from, size_t n)
{
    return fold(STORE, crc, to, from, n);
}

FOR_PCLMUL static uint32_t stream_lines(uint32_t crc, char *to, const char *from, size_t n)
{
    return fold(STREAM, crc, to, from, n);
}
#else
static bool folds(enum how how)
{
    (void)how;
    return false;
}

static uint32_t look_at_lines(uint32_t crc, const char *from, size_t n)
{
    return by_library(crc, from, n);
}

static uint32_t copy_lines(uint32_t crc, char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
    return by_library(crc, from, n);
}

static uint32_t stream_lines(uint32_t crc, char *to, const char *from, size_t n)
{
    return copy_lines(crc, to, from, n);
}
#endif

/* Fewer bytes are the library's: the end of a fold is a call of it too. */
enum { WORTH = 4 * LINE };

uint32_t ckpt__crc32(uint32_t crc, const void *data, size_t n)
{
    if (n < WORTH || !folds(LOOK))
        return by_library(crc, data, n);
    const size_t whole = n / LINE * LINE;
    crc = look_at_lines(crc, data, whole);
    return by_library(crc, (const char *)data + whole, n - whole);
}

/* The operator for 2^62 bytes and more does not fit zlib's signed offset; no file is that long. */
uint32_t ckpt__crc32_combine(uint32_t a, uint32_t b, uint64_t length_of_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)length_of_b);
}

/* Bytes that stay in the cache between their CRC and their copy. While one piece is copied the next one is fetched. */
enum { PIECE = 4 << 10 };

static uint32_t by_pieces(uint32_t crc, char *to, const char *from, size_t n, bool past)
{
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at < PIECE ? n - at : PIECE;
        crc = by_library(crc, from + at, piece);
        if (past)
            ckpt__copy_stream_ahead(to + at, from + at, piece, PIECE);
        else
            ckpt__copy_ahead(to + at, from + at, piece, PIECE);
    }
    return crc;
}

uint32_t ckpt__crc32_copy_part(uint32_t crc, void *dst, const void *src, size_t n, bool past)
{
    char *to = dst;
    const char *from = src;
    size_t head = past ? (size_t) - (uintptr_t)to % LINE : 0; /* bytes before the first whole line of the target */
    if (n < WORTH + head || !folds(past ? STREAM : STORE))
        return by_pieces(crc, to, from, n, past);
    size_t whole = (n - head) / LINE * LINE, done = head + whole;
    crc = by_pieces(crc, to, from, head, past);
    crc = past ? stream_lines(crc, to + head, from + head, whole) : copy_lines(crc, to + head, from + head, whole);
    return by_pieces(crc, to + done, from + done, n - done, past);
}
