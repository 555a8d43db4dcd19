/* codec/json_write.c - JSON and hexadecimal output. */
#include "codec/json.h"

void ckpt__json_put_escaped(ckpt__buf *b, const char *data, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    size_t from = 0;
    if (!ckpt__buf_reserve(b, n))
        return;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f)
            continue;
        ckpt__buf_add(b, data + from, i - from);
        from = i + 1;
        char text[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
        size_t size = sizeof text;
        const char *named = strchr("\"\"\\\\\nn\tt\rr", c);
        if (c && named) {
            text[1] = named[1];
            size = 2;
        }
        ckpt__buf_add(b, text, size);
    }
    ckpt__buf_add(b, data + from, n - from);
}

void ckpt__json_put_string(ckpt__buf *b, const char *data, size_t n)
{
    ckpt__buf_char(b, '"');
    ckpt__json_put_escaped(b, data, n);
    ckpt__buf_char(b, '"');
}

void ckpt__json_put_u64(ckpt__buf *b, uint64_t v)
{
    char text[20];
    size_t at = sizeof text;
    do
        text[--at] = (char)('0' + v % 10);
    while (v /= 10);
    ckpt__buf_add(b, text + at, sizeof text - at);
}

void ckpt__json_put_i64(ckpt__buf *b, int64_t v)
{
    if (v < 0)
        ckpt__buf_char(b, '-');
    ckpt__json_put_u64(b, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void ckpt__json_put_double(ckpt__buf *b, double v)
{
    char text[CKPT__DOUBLE_MAX];
    bool finite = v - v == 0;
    ckpt__format_double(text, v);
    ckpt__buf_str(b, finite ? "" : "\"");
    ckpt__buf_str(b, text);
    ckpt__buf_str(b, finite ? "" : "\"");
}

void ckpt__hex_put(ckpt__buf *b, const void *data, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = data;
    if (n > SIZE_MAX / 2 || !ckpt__buf_reserve(b, 2 * n))
        return;
    for (size_t i = 0; i < n; i++) {
        char pair[] = {hex[p[i] >> 4], hex[p[i] & 15]};
        ckpt__buf_add(b, pair, 2);
    }
}

bool ckpt__hex_get(const char *text, size_t n, void *out)
{
    unsigned char *to = out;
    if (n % 2)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        to[i / 2] = (unsigned char)(i % 2 ? to[i / 2] | digit : digit << 4);
    }
    return true;
}

void ckpt__hex_crc(char *out, uint32_t crc)
{
    for (int i = 7; i >= 0; i--, crc >>= 4)
        out[i] = "0123456789abcdef"[crc & 15];
}

bool ckpt__hex_crc_get(const char *text, uint32_t *crc)
{
    unsigned char bytes[4];
    if (!ckpt__hex_get(text, 8, bytes))
        return false;
    *crc = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return true;
}
