/* tests/unit/deflated.h - bytes as a raw deflate stream, as archives have them. */
#ifndef DEFLATED_H
#define DEFLATED_H
#include <check.h>
#include <string.h>
#include <zlib.h>

/* Returns the bytes in `out`; room that is too small fails the test. */
static inline size_t deflated(const void *data, size_t n, unsigned char *out, size_t room)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    ck_assert_int_eq(deflateInit2(&z, 1, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}
#endif
