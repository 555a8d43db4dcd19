#include "cli/out/json.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t EXACT = (int64_t)1 << 53; /* what a double, and so most JSON readers, holds exactly */

size_t json_decode(const char *data, size_t size, uint32_t *code)
{
    const unsigned char *p = (const unsigned char *)data;
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (size == 0)
        return 0;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > size)
        return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[n] || c > 0x10ffff)
        return 0;
    *code = c;
    return n;
}

/* Bytes from data on that stand for themselves: all but control characters, what is beyond ASCII, the quote and the backslash. Eight are looked
 * at at a time: a difference borrows from bytes above one that is marked, never from those below it. */
static size_t plain_bytes(const char *data, size_t size)
{
    const uint64_t each = UINT64_C(0x0101010101010101), top = each << 7;
    size_t n = 0;
    for (uint64_t word; size - n >= sizeof word; n += sizeof word) {
        memcpy(&word, data + n, sizeof word);
        const uint64_t quote = word ^ each * '"', escape = word ^ each * '\\', rubout = word ^ each * 0x7f;
        if ((word | (word - each * 0x20) | (quote - each) | (escape - each) | (rubout - each)) & top)
            break;
    }
    while (n < size && data[n] >= ' ' && data[n] < 0x7f && data[n] != '"' && data[n] != '\\')
        n++;
    return n;
}

static void put_string(FILE *f, const char *data, size_t size)
{
    putc_unlocked('"', f);
    for (size_t i = 0; i < size;) {
        uint32_t c = 0;
        const size_t plain = plain_bytes(data + i, size - i);
        if (plain > 0) {
            fwrite_unlocked(data + i, 1, plain, f);
            i += plain;
            continue;
        }
        size_t n = json_decode(data + i, size - i, &c);
        if (n == 0) {
            fprintf(f, "\\udc%02x", (unsigned char)data[i]);
            i++;
            continue;
        }
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", (int)c);
        else if (c == '\n')
            fputs_unlocked("\\n", f);
        else if (c == '\t')
            fputs_unlocked("\\t", f);
        else if (c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0xd800 && c < 0xe000))
            fprintf(f, "\\u%04" PRIx32, c);
        else
            fwrite_unlocked(data + i, 1, n, f);
        i += n;
    }
    putc_unlocked('"', f);
}

enum { SEPARATOR = 4 }; /* bytes at most */

/* Puts the comma and the line break that stand before a value or a key at `to`. Returns where they end. */
static char *separator(json_out *j, char *to)
{
    if (j->depth > 0) {
        if (!j->empty)
            *to++ = ',';
        const bool breaks = j->depth <= 2 && !j->line;
        if (breaks)
            *to++ = '\n';
        if (breaks || !j->empty)
            *to++ = ' ';
        if (breaks && j->depth == 2)
            *to++ = ' ';
    }
    j->empty = false;
    return to;
}

static void put(json_out *j, const char *text, const char *end)
{
    fwrite_unlocked(text, 1, (size_t)(end - text), j->file);
}

static void separate(json_out *j)
{
    char text[SEPARATOR];
    put(j, text, separator(j, text));
}

void json_key(json_out *j, const char *key, size_t size)
{
    separate(j);
    put_string(j->file, key, size);
    fputs_unlocked(": ", j->file);
    j->keyed = true;
}

static void begin(json_out *j, const char *key)
{
    enum { KEY = 64 }; /* of nearly all: they are put with what stands around them, at once */
    char text[SEPARATOR + KEY + 4], *end = text;
    size_t n = key ? strlen(key) : 0;
    if (!j->keyed)
        end = separator(j, end);
    if (key) { /* the program's own, so nothing in it is escaped */
        *end++ = '"';
        if (n > KEY) {
            put(j, text, end);
            fwrite_unlocked(key, 1, n, j->file);
            end = text;
        } else {
            memcpy(end, key, n);
            end += n;
        }
        memcpy(end, "\": ", 3);
        end += 3;
    }
    if (end > text)
        put(j, text, end);
    j->keyed = false;
}

/* A double, and so most JSON readers, holds it exactly, or it is a string. */
static void put_number(json_out *j, bool negative, uint64_t size, bool exact)
{
    char text[24], *at = text + sizeof text;
    if (!exact)
        *--at = '"';
    do
        *--at = (char)('0' + size % 10);
    while (size /= 10);
    if (negative)
        *--at = '-';
    if (!exact)
        *--at = '"';
    put(j, at, text + sizeof text);
}

void json_init(json_out *j, FILE *file)
{
    *j = (json_out){file, 0, true, false, false};
}

static json_out *within;  /* NULL: documents stand alone */
static const char *about; /* NULL: none is said */
static bool as_lines;
static struct stand_in {
    const char *given, *path;
} * stand_ins; /* heap; NULL: none */
static size_t stand_in_count;

bool json_documents_took(const char *given, const char *path)
{
    struct stand_in *more = realloc(stand_ins, (stand_in_count + 1) * sizeof *more);
    if (!more)
        return false;
    stand_ins = more;
    stand_ins[stand_in_count++] = (struct stand_in){given, path};
    return true;
}

void json_documents_forget(void)
{
    free(stand_ins);
    stand_ins = NULL;
    stand_in_count = 0;
}

static void put_stand_ins(json_out *j)
{
    json_array(j, "taken");
    for (size_t i = 0; i < stand_in_count; i++) {
        json_object(j, NULL);
        json_bytes(j, "given", stand_ins[i].given, strlen(stand_ins[i].given));
        json_bytes(j, "path", stand_ins[i].path, strlen(stand_ins[i].path));
        json_end_object(j);
    }
    json_end_array(j);
}

void json_documents_in(json_out *array, const char *path)
{
    within = array;
    about = path;
}

void json_documents_as_lines(void)
{
    as_lines = true;
}

void json_document(json_out *j)
{
    if (within)
        *j = *within;
    else
        json_init(j, stdout);
    j->line = as_lines;
    json_object(j, NULL);
    if (within)
        within->empty = false;
    json_int(j, "ckpt", 1);
    if (about)
        json_bytes(j, "path", about, strlen(about));
    if (stand_in_count)
        put_stand_ins(j);
}

static void open_container(json_out *j, char bracket)
{
    putc_unlocked(bracket, j->file);
    j->depth++;
    j->empty = true;
}

void json_object(json_out *j, const char *key)
{
    begin(j, key);
    open_container(j, '{');
}

void json_array(json_out *j, const char *key)
{
    begin(j, key);
    open_container(j, '[');
}

static void close_container(json_out *j, char bracket)
{
    if (j->depth <= 2 && !j->empty && !j->line)
        fprintf(j->file, "\n%*s", (int)j->depth - 1, "");
    j->depth--;
    j->empty = false;
    putc_unlocked(bracket, j->file);
    if (j->depth == 0)
        putc_unlocked('\n', j->file);
}

void json_end_object(json_out *j)
{
    close_container(j, '}');
}

void json_end_array(json_out *j)
{
    close_container(j, ']');
}

void json_null(json_out *j, const char *key)
{
    begin(j, key);
    fputs_unlocked("null", j->file);
}

void json_bool(json_out *j, const char *key, bool value)
{
    begin(j, key);
    fputs_unlocked(value ? "true" : "false", j->file);
}

void json_int(json_out *j, const char *key, int64_t value)
{
    begin(j, key);
    put_number(j, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, value >= -EXACT && value <= EXACT);
}

void json_uint(json_out *j, const char *key, uint64_t value)
{
    begin(j, key);
    put_number(j, false, value, value <= (uint64_t)EXACT);
}

void json_bool_or_null(json_out *j, const char *key, bool known, bool value)
{
    if (known)
        json_bool(j, key, value);
    else
        json_null(j, key);
}

void json_int_or_null(json_out *j, const char *key, bool known, int64_t value)
{
    if (known)
        json_int(j, key, value);
    else
        json_null(j, key);
}

void json_uint_or_null(json_out *j, const char *key, bool known, uint64_t value)
{
    if (known)
        json_uint(j, key, value);
    else
        json_null(j, key);
}

void json_double_or_null(json_out *j, const char *key, bool known, double value)
{
    if (known)
        json_double(j, key, value);
    else
        json_null(j, key);
}

void json_sizes(json_out *j, const char *key, const int64_t *sizes, uint32_t n)
{
    if (!sizes && n > 0) {
        json_null(j, key);
        return;
    }
    json_array(j, key);
    for (uint32_t i = 0; i < n; i++)
        json_int(j, NULL, sizes[i]);
    json_end_array(j);
}

char *json_format_double(char *buf, double value)
{
    if (isnan(value))
        return strcpy(buf, "nan");
    if (isinf(value))
        return strcpy(buf, value < 0 ? "-inf" : "inf");
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, JSON_DOUBLE_MAX, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    if (!strpbrk(buf, ".e"))
        strcat(buf, ".0");
    return buf;
}

void json_double(json_out *j, const char *key, double value)
{
    char buf[JSON_DOUBLE_MAX];
    begin(j, key);
    fprintf(j->file, isfinite(value) ? "%s" : "\"%s\"", json_format_double(buf, value));
}

void json_crc(json_out *j, const char *key, uint32_t crc)
{
    begin(j, key);
    fprintf(j->file, "\"%08" PRIx32 "\"", crc);
}

void json_bytes(json_out *j, const char *key, const char *data, size_t size)
{
    begin(j, key);
    if (data)
        put_string(j->file, data, size);
    else
        fputs_unlocked("null", j->file);
}

void json_text(json_out *j, const char *key, const char *text)
{
    json_bytes(j, key, text, text ? strlen(text) : 0);
}

void json_error(json_out *j, const char *code, const char *message)
{
    json_object(j, "error");
    json_text(j, "code", code);
    json_text(j, "message", message);
    json_end_object(j);
}
