/* codec/crc32.c - CRC-32. On x86 a loop of ours folds it and copies on the way (codec/crc32_fold.h); elsewhere, and for what is short, ISA-L's
 * or zlib's. */
#include "codec/crc32.h"

#include <string.h>
#include <zlib.h>
#include "base/stream_copy.h"
#include "codec/crc32_fold.h"

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

/* ---- folding
 *
 * No library that Debian has copies on the way, and none asks for what lies ahead. From memory, on a Xeon of 2.5 GHz (Cascade Lake, 128 bits):
 * ISA-L alone 7.1 GB/s, the loop 11.3; ISA-L and a copy of 4 KiB by turns 4.0, the loop 5.9, which a copy alone has too. */

enum { LINE = CKPT__LINE };

/* n is a multiple of LINE, and not 0; there is a loop. */
static uint32_t fold(ckpt__fold_lines *lines, ckpt__fold_how how, uint32_t crc, char *to, const char *from, size_t n)
{
    unsigned char left[LINE];
    lines(how, crc, to, from, n, left);
    return by_library(UINT32_MAX, left, sizeof left);
}

/* Fewer bytes are the library's: the end of a fold is a call of it too. */
enum { WORTH = 4 * LINE };

uint32_t ckpt__crc32(uint32_t crc, const void *data, size_t n)
{
    ckpt__fold_lines *lines = n < WORTH ? NULL : ckpt__fold_widest();
    if (!lines)
        return by_library(crc, data, n);
    const size_t whole = n / LINE * LINE;
    char none[1];
    crc = fold(lines, CKPT__FOLD_LOOK, crc, none, data, whole);
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
    ckpt__fold_lines *lines = n < WORTH + head ? NULL : ckpt__fold_widest();
    if (!lines)
        return by_pieces(crc, to, from, n, past);
    size_t whole = (n - head) / LINE * LINE, done = head + whole;
    crc = by_pieces(crc, to, from, head, past);
    crc = fold(lines, past ? CKPT__FOLD_STREAM : CKPT__FOLD_STORE, crc, to + head, from + head, whole);
    return by_pieces(crc, to + done, from + done, n - done, past);
}
