/* codec/pickle_number.c - numbers and texts as pickles have them. Integers beyond 32 bits go from decimal text to what
 * LONG1 and LONG4 hold: two's complement, little-endian, in the fewest bytes (Lib/pickle.py encode_long). */
#include "codec/pickle_write.h"

#include <stdlib.h>

enum { MAX_DIGITS = 20000, CHUNK = 9 };

/* The digits as little-endian limbs of 32 bits; their number, or 0 where memory is short. limbs must be freed. */
static size_t to_limbs(const char *digits, size_t n, uint32_t **limbs)
{
    size_t capacity = n / CHUNK + 2, count = 1;
    uint32_t *out = calloc(capacity, sizeof *out);
    *limbs = out;
    if (!out)
        return 0;
    for (size_t at = 0; at < n;) {
        size_t take = (n - at) % CHUNK ? (n - at) % CHUNK : CHUNK;
        uint64_t carry = 0, scale = 1;
        for (size_t i = 0; i < take; i++) {
            carry = carry * 10 + (uint64_t)(digits[at + i] - '0');
            scale *= 10;
        }
        at += take;
        for (size_t i = 0; i < count; i++) {
            carry += out[i] * scale;
            out[i] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry)
            out[count++] = (uint32_t)carry;
    }
    return count;
}

static bool put(ckpt__buf *out, const uint32_t *limbs, size_t count, bool negative)
{
    size_t n = 4 * count + 1, used;
    unsigned char *bytes = calloc(n, 1);
    unsigned borrow = 1;
    if (!bytes)
        return false;
    for (size_t i = 0; i + 1 < n; i++)
        bytes[i] = (unsigned char)(limbs[i / 4] >> 8 * (i % 4));
    for (size_t i = 0; negative && i < n; i++) { /* complement and add one */
        unsigned v = (unsigned char)~bytes[i] + borrow;
        bytes[i] = (unsigned char)v;
        borrow = v >> 8;
    }
    used = n;
    while (used > 1 &&
           ((bytes[used - 1] == 0 && bytes[used - 2] < 0x80) || (bytes[used - 1] == 0xff && bytes[used - 2] >= 0x80)))
        used--;
    if (used < 256) {
        ckpt__buf_char(out, (char)(unsigned char)0x8a);
        ckpt__buf_char(out, (char)(unsigned char)used);
    } else {
        ckpt__buf_char(out, (char)(unsigned char)0x8b);
        for (int i = 0; i < 4; i++)
            ckpt__buf_char(out, (char)(unsigned char)(used >> 8 * i));
    }
    ckpt__buf_add(out, bytes, used);
    free(bytes);
    return true;
}

bool ckpt__pickle_put_long(ckpt__buf *out, ckpt_str text)
{
    size_t sign = text.size && text.data[0] == '-', n = text.size - sign;
    uint32_t *limbs;
    if (n == 0 || n > MAX_DIGITS)
        return false;
    for (size_t i = sign; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
    size_t count = to_limbs(text.data + sign, n, &limbs);
    if (count == 0 || !put(out, limbs, count, sign))
        out->failed = true;
    free(limbs);
    return true;
}

/* ---- what fits into an opcode of its own */

static void put_number(ckpt__buf *out, char op, uint64_t v, unsigned width)
{
    char bytes[9] = {op};
    for (unsigned i = 0; i < width; i++)
        bytes[1 + i] = (char)(unsigned char)(v >> 8 * i);
    ckpt__buf_add(out, bytes, 1 + width);
}

void ckpt__pickle_put_int(ckpt__buf *out, int64_t v)
{
    char text[24];
    bool positive = v >= 0;
    if (positive && v < 65536)
        put_number(out, v < 256 ? 'K' : 'M', (uint64_t)v, v < 256 ? 1 : 2);
    else if (v >= INT32_MIN && v <= INT32_MAX)
        put_number(out, 'J', (uint64_t)v, 4);
    else {
        uint64_t m = positive ? (uint64_t)v : 0 - (uint64_t)v;
        size_t at = sizeof text;
        for (; m; m /= 10)
            text[--at] = (char)('0' + m % 10);
        if (!positive)
            text[--at] = '-';
        ckpt__pickle_put_long(out, (ckpt_str){text + at, sizeof text - at});
    }
}

void ckpt__pickle_put_float(ckpt__buf *out, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, 8);
    put_number(out, 'G', __builtin_bswap64(bits), 8);
}

static void put_text_head(ckpt__buf *out, uint64_t size)
{
    bool large = size > UINT32_MAX;
    put_number(out, (char)(unsigned char)(large ? 0x8d : 'X'), size, large ? 8 : 4);
}

void ckpt__pickle_put_text(ckpt__buf *out, ckpt_str text)
{
    put_text_head(out, text.size);
    ckpt__buf_add(out, text.data, text.size);
}

void ckpt__pickle_put_latin1(ckpt__buf *out, ckpt_str bytes)
{
    uint64_t size = bytes.size;
    size_t from = 0;
    for (size_t i = 0; i < bytes.size; i++)
        size += (unsigned char)bytes.data[i] >= 0x80;
    put_text_head(out, size);
    for (size_t i = 0; i < bytes.size; i++) {
        unsigned char c = (unsigned char)bytes.data[i];
        if (c < 0x80)
            continue;
        ckpt__buf_add(out, bytes.data + from, i - from);
        ckpt__buf_char(out, (char)(unsigned char)(0xc0 | c >> 6));
        ckpt__buf_char(out, (char)(unsigned char)(0x80 | (c & 0x3f)));
        from = i + 1;
    }
    ckpt__buf_add(out, bytes.data + from, bytes.size - from);
}
