/* codec/crc32.c - CRC-32. ISA-L folds with carry-less multiplication, several times as fast as zlib's tables. */
#include "codec/crc32.h"

#include <zlib.h>
#include "base/stream_copy.h"

#ifdef HAVE_ISAL
#include <isa-l/crc.h>

uint32_t ckpt__crc32(uint32_t crc, const void *data, size_t n)
{
    return n ? crc32_gzip_refl(crc, data, n) : crc;
}
#else
uint32_t ckpt__crc32(uint32_t crc, const void *data, size_t n)
{
    return n ? (uint32_t)crc32_z(crc, data, n) : crc;
}
#endif

/* The operator for 2^62 bytes and more does not fit zlib's signed offset; no file is that long. */
uint32_t ckpt__crc32_combine(uint32_t a, uint32_t b, uint64_t length_of_b)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)length_of_b);
}

/* Bytes that stay in the cache between their CRC and their copy. While one piece is copied the next one is fetched. */
enum { PIECE = 4 << 10 };

uint32_t ckpt__crc32_copy_part(uint32_t crc, void *dst, const void *src, size_t n, bool past)
{
    for (size_t at = 0, piece; at < n; at += piece) {
        const char *from = (const char *)src + at;
        piece = n - at < PIECE ? n - at : PIECE;
        crc = ckpt__crc32(crc, from, piece);
        if (past)
            ckpt__copy_stream_ahead((char *)dst + at, from, piece, PIECE);
        else
            ckpt__copy_ahead((char *)dst + at, from, piece, PIECE);
    }
    return crc;
}

uint32_t ckpt__crc32_copy(uint32_t crc, void *dst, const void *src, size_t n)
{
    crc = ckpt__crc32_copy_part(crc, dst, src, n, true);
    ckpt__copy_stream_end();
    return crc;
}
