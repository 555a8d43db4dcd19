/* codec/pickle_text.c - text in pickles: the opcodes of protocol 0, escapes, and ints of any length as decimal. */
#include "codec/pickle_vm.h"

#include <math.h>
#include <stdlib.h>

bool ckpt__pickle_utf8(const char *data, size_t n)
{
    if (ckpt__utf8_valid(data, n))
        return true;
    /* A surrogate is ED A0..BF xx: the only three bytes that surrogatepass allows beyond UTF-8. */
    size_t from = 0;
    for (size_t i = 0; i + 2 < n; i++) {
        const unsigned char *p = (const unsigned char *)data + i;
        if (p[0] != 0xED || p[1] < 0xA0 || p[1] > 0xBF || p[2] < 0x80 || p[2] > 0xBF)
            continue;
        if (!ckpt__utf8_valid(data + from, i - from))
            return false;
        from = i + 3;
        i += 2;
    }
    return ckpt__utf8_valid(data + from, n - from);
}

ckpt_status ckpt__pickle_push_string(ckpt__pickle_vm *vm, const void *bytes, size_t n)
{
    return ckpt__pickle_push_text(vm, ckpt__utf8_valid(bytes, n) ? CKPT__P_STR : CKPT__P_BYTES, bytes, n);
}

/* ---- ints */

/* Divides the limbs by 10^9 in place and returns the rest. */
static uint32_t divide(uint32_t *limbs, size_t *count)
{
    uint64_t rest = 0;
    for (size_t i = *count; i-- > 0;) {
        rest = rest << 32 | limbs[i];
        limbs[i] = (uint32_t)(rest / 1000000000);
        rest %= 1000000000;
    }
    while (*count && limbs[*count - 1] == 0)
        --*count;
    return (uint32_t)rest;
}

static ckpt_status push_decimal(ckpt__pickle_vm *vm, const char *text, size_t n)
{
    return ckpt__pickle_push_text(vm, CKPT__P_BIGINT, text, n);
}

/* Two's complement, little-endian, more than 8 bytes: as decimal text. */
static ckpt_status push_bigint(ckpt__pickle_vm *vm, const unsigned char *bytes, size_t n)
{
    enum { LIMBS = CKPT__PICKLE_INT_MAX / 4 + 2, DIGITS = CKPT__PICKLE_INT_MAX * 5 / 2 + 32 };
    bool negative = bytes[n - 1] >> 7;
    uint32_t limbs[LIMBS] = {0};
    size_t count = n / 4 + 1;
    for (size_t i = 0; i < count * 4; i++) {
        uint32_t byte = i < n ? bytes[i] : negative ? 0xFF : 0;
        limbs[i / 4] |= (negative ? byte ^ 0xFF : byte) << 8 * (i % 4);
    }
    for (size_t i = 0; negative && i < count && ++limbs[i] == 0; i++)
        ;
    while (count && limbs[count - 1] == 0)
        count--;
    char text[DIGITS], *p = text + sizeof text;
    while (count) {
        uint32_t group = divide(limbs, &count);
        for (int i = 0; i < 9 && (group || count); i++, group /= 10)
            *--p = (char)('0' + group % 10);
    }
    if (negative)
        *--p = '-';
    return push_decimal(vm, p, (size_t)(text + sizeof text - p));
}

ckpt_status ckpt__pickle_push_long(ckpt__pickle_vm *vm, const unsigned char *bytes, size_t n)
{
    while (n > 8 && ((bytes[n - 1] == 0 && bytes[n - 2] < 0x80) || (bytes[n - 1] == 0xFF && bytes[n - 2] >= 0x80)))
        n--; /* bytes that repeat the sign */
    if (n > CKPT__PICKLE_INT_MAX)
        return ckpt__pickle_fail(vm, CKPT_E_LIMIT, "an int of %zu bytes; the limit is %d", n, CKPT__PICKLE_INT_MAX);
    if (n > 8)
        return push_bigint(vm, bytes, n);
    uint64_t value = n && bytes[n - 1] >> 7 ? UINT64_MAX : 0;
    for (size_t i = n; i-- > 0;)
        value = value << 8 | bytes[i];
    int64_t out;
    memcpy(&out, &value, sizeof out);
    return ckpt__pickle_push_int(vm, out);
}

static ckpt_status decimal_int(ckpt__pickle_vm *vm, const char *text, size_t n)
{
    int64_t value;
    if (ckpt__parse_i64(text, n, &value))
        return ckpt__pickle_push_int(vm, value);
    bool negative = n && text[0] == '-';
    text += negative;
    n -= negative;
    while (n > 1 && text[0] == '0') {
        text++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (text[i] < '0' || text[i] > '9')
            return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "not a decimal number");
    if (n == 0)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "an empty number");
    if (n > CKPT__PICKLE_INT_MAX * 5 / 2)
        return ckpt__pickle_fail(vm, CKPT_E_LIMIT, "an int of %zu digits; the limit is %d", n,
                                 CKPT__PICKLE_INT_MAX * 5 / 2);
    char sign_and_digits[CKPT__PICKLE_INT_MAX * 5 / 2 + 1];
    sign_and_digits[0] = '-';
    memcpy(sign_and_digits + 1, text, n);
    return negative ? push_decimal(vm, sign_and_digits, n + 1) : push_decimal(vm, text, n);
}

/* Bools of protocols 0 and 1 are the ints 00 and 01. */
ckpt_status ckpt__pickle_op_int(ckpt__pickle_vm *vm)
{
    const char *line;
    size_t n;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    if (n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1'))
        return ckpt__pickle_push(vm, line[1] == '1' ? vm->yes : vm->no);
    return decimal_int(vm, line, n);
}

ckpt_status ckpt__pickle_op_long(ckpt__pickle_vm *vm)
{
    const char *line;
    size_t n;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    return decimal_int(vm, line, n && line[n - 1] == 'L' ? n - 1 : n);
}

ckpt_status ckpt__pickle_op_float(ckpt__pickle_vm *vm)
{
    static const struct {
        const char *text;
        double value;
    } named[] = {{"inf", (double)INFINITY}, {"-inf", -(double)INFINITY}, {"nan", (double)NAN}, {"-nan", (double)NAN}};
    const char *line;
    size_t n;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    double value = 0;
    bool known = ckpt__parse_double(line, n, &value);
    for (size_t i = 0; !known && i < sizeof named / sizeof named[0]; i++)
        if (n == strlen(named[i].text) && memcmp(line, named[i].text, n) == 0) {
            value = named[i].value;
            known = true;
        }
    if (!known)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "not a decimal number");
    ckpt__pickle_node *node = ckpt__pickle_new(vm, CKPT__P_FLOAT);
    if (node)
        node->u.real = value;
    return ckpt__pickle_push(vm, node);
}

/* ---- strings */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Exactly `digits` hexadecimal digits at text; -1 where they are not. */
static int64_t hex(const char *text, size_t left, size_t digits)
{
    int64_t value = 0;
    if (left < digits)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        int d = hex_digit(text[i]);
        if (d < 0)
            return -1;
        value = value << 4 | d;
    }
    return value;
}

/* One escape of a Python 2 str literal at text (behind the backslash); *used is 0 where it is none. */
static char escape_of(const char *text, size_t left, size_t *used)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = left ? memchr(from, text[0], sizeof from - 1) : NULL;
    *used = 0;
    if (at) {
        *used = 1;
        return to[at - from];
    }
    if (left && text[0] == 'x') {
        int64_t value = hex(text + 1, left - 1, 2);
        *used = value < 0 ? 0 : 3;
        return (char)value;
    }
    int value = 0;
    while (*used < left && *used < 3 && text[*used] >= '0' && text[*used] <= '7')
        value = value * 8 + (text[(*used)++] - '0');
    return (char)value;
}

ckpt_status ckpt__pickle_op_string(ckpt__pickle_vm *vm)
{
    const char *line;
    size_t n;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    if (n < 2 || (line[0] != '\'' && line[0] != '"') || line[n - 1] != line[0])
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a str without its quotes");
    line++;
    n -= 2;
    ckpt__buf b = {0};
    ckpt__buf_reserve(&b, n);
    for (size_t i = 0; i < n; i++) {
        size_t used = 0;
        char c = line[i] == '\\' ? escape_of(line + i + 1, n - i - 1, &used) : line[i];
        ckpt__buf_char(&b, line[i] == '\\' && !used ? '\\' : c);
        i += used;
    }
    status = b.failed ? ckpt__pickle_no_memory(vm) : ckpt__pickle_push_string(vm, b.data, b.size);
    ckpt__buf_free(&b);
    return status;
}

static void add_code_point(ckpt__buf *b, uint32_t c)
{
    char out[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    ckpt__buf_add(b, out, n);
}

/* raw-unicode-escape: Latin-1, with \uXXXX and \UXXXXXXXX; any other backslash stands for itself and what follows it.
 */
ckpt_status ckpt__pickle_op_unicode(ckpt__pickle_vm *vm)
{
    const char *line;
    size_t n;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    ckpt__buf b = {0};
    ckpt__buf_reserve(&b, n);
    for (size_t i = 0; i < n; i++) {
        uint32_t c = (unsigned char)line[i];
        size_t digits = c != '\\' || i + 1 == n ? 0 : line[i + 1] == 'u' ? 4 : line[i + 1] == 'U' ? 8 : 0;
        if (digits) {
            int64_t value = hex(line + i + 2, n - i - 2, digits);
            if (value < 0 || value > 0x10FFFF) {
                ckpt__buf_free(&b);
                return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "a broken \\%c escape", line[i + 1]);
            }
            c = (uint32_t)value;
            i += 1 + digits;
        } else if (c == '\\' && i + 1 < n) {
            add_code_point(&b, c);
            c = (unsigned char)line[++i];
        }
        add_code_point(&b, c);
    }
    status = b.failed ? ckpt__pickle_no_memory(vm) : ckpt__pickle_push_text(vm, CKPT__P_STR, b.data, b.size);
    ckpt__buf_free(&b);
    return status;
}

/* ---- the memo by decimal numbers */

static ckpt_status memo_line(ckpt__pickle_vm *vm, ckpt_status (*then)(ckpt__pickle_vm *, uint64_t))
{
    const char *line;
    size_t n;
    int64_t index;
    ckpt_status status = ckpt__pickle_line(vm, &line, &n);
    if (status < 0)
        return status;
    if (!ckpt__parse_i64(line, n, &index) || index < 0)
        return ckpt__pickle_fail(vm, CKPT_E_FORMAT, "its memo entry is not a number");
    return then(vm, (uint64_t)index);
}

ckpt_status ckpt__pickle_op_get(ckpt__pickle_vm *vm)
{
    return memo_line(vm, ckpt__pickle_memo_get);
}

ckpt_status ckpt__pickle_op_put(ckpt__pickle_vm *vm)
{
    return memo_line(vm, ckpt__pickle_memo_put);
}
