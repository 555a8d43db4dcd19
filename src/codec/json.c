/* codec/json.c - the strict lexer. */
#include "codec/json.h"

#include <endian.h>
#include <stdio.h>

/* What may come next. */
enum { VALUE, FIRST_VALUE, FIRST_KEY, KEY, AFTER, BROKEN };

void ckpt__json_start(ckpt__json *j, const char *text, size_t size, unsigned max_depth, const char *what)
{
    memset(j, 0, sizeof *j);
    j->text = text;
    j->size = size;
    j->what = what;
    j->max_depth = max_depth < CKPT__JSON_DEPTH ? max_depth : CKPT__JSON_DEPTH;
    j->state = VALUE;
    j->event = CKPT__JSON_END;
}

static bool in_object(const ckpt__json *j)
{
    unsigned level = j->depth - 1;
    return j->depth > 0 && (j->in_object[level / 64] >> (level % 64) & 1);
}

ckpt_status ckpt__json_wrong(const ckpt__json *j, ckpt_error *err, const char *format, ...)
{
    char text[400], object[64];
    va_list ap;
    if (!err)
        return CKPT_E_FORMAT;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    if (n < 0)
        text[0] = '\0';
    ckpt__escape(object, sizeof object, j->what, strlen(j->what));
    return ckpt__fail(err, CKPT_E_FORMAT, object, "%s, at byte %zu of %zu", text, j->pos, j->size);
}

static ckpt__json_event broken(ckpt__json *j, ckpt_error *err, const char *message)
{
    j->state = BROKEN;
    j->status = ckpt__json_wrong(j, err, "%s", message);
    return j->event = CKPT__JSON_ERROR;
}

/* What stands at the position, for messages: a byte that is not printable is given as its number. */
static ckpt__json_event unexpected(ckpt__json *j, ckpt_error *err, const char *wanted)
{
    unsigned char c = j->pos < j->size ? (unsigned char)j->text[j->pos] : 0;
    j->state = BROKEN;
    j->status = CKPT_E_FORMAT;
    if (j->pos >= j->size)
        ckpt__json_wrong(j, err, "broken JSON: the text ends where %s was expected", wanted);
    else if (c < 0x20 || c >= 0x7f)
        ckpt__json_wrong(j, err, "broken JSON: expected %s, found byte 0x%02x", wanted, c);
    else
        ckpt__json_wrong(j, err, "broken JSON: expected %s, found '%c'", wanted, c);
    return j->event = CKPT__JSON_ERROR;
}

static void skip_space(ckpt__json *j)
{
    while (j->pos < j->size) {
        char c = j->text[j->pos];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        j->pos++;
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hexadecimal digits; -1 where they are not. */
static int32_t unit16(const char *p, size_t left)
{
    int32_t v = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < left ? hex_digit(p[i]) : -1;
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* At a backslash: checks the escape and returns its length; 0 where it is broken. *code gets the character. */
static size_t escape_at(const char *p, size_t left, uint32_t *code)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (left < 2)
        return 0;
    const char *simple = p[1] ? strchr(from, p[1]) : NULL;
    if (simple) {
        *code = (uint32_t)to[simple - from];
        return 2;
    }
    int32_t high = p[1] == 'u' ? unit16(p + 2, left - 2) : -1;
    if (high < 0 || (high >= 0xdc00 && high < 0xe000))
        return 0;
    *code = (uint32_t)high;
    if (high < 0xd800 || high >= 0xe000)
        return 6;
    int32_t low = left >= 12 && p[6] == '\\' && p[7] == 'u' ? unit16(p + 8, left - 8) : -1;
    if (low < 0xdc00 || low >= 0xe000)
        return 0;
    *code = 0x10000u + (((uint32_t)high - 0xd800u) << 10) + ((uint32_t)low - 0xdc00u);
    return 12;
}

/* How many of eight bytes, from the first one on, stand for themselves in a string. A difference borrows from bytes above one that
 * is marked, never from those below it, so the lowest mark is right. */
static size_t plain_bytes(const char *p)
{
    const uint64_t each = UINT64_C(0x0101010101010101), top = each << 7;
    uint64_t word;
    memcpy(&word, p, sizeof word);
    word = le64toh(word); /* the first byte is the lowest */
    uint64_t quote = word ^ each * '"', escape = word ^ each * '\\';
    uint64_t marks =
        (word | ((word - each * 0x20) & ~word) | ((quote - each) & ~quote) | ((escape - each) & ~escape)) & top;
    return marks ? (size_t)__builtin_ctzll(marks) / 8 : sizeof word;
}

/* At the opening quote. */
static bool lex_string(ckpt__json *j, ckpt_error *err)
{
    size_t p = j->pos + 1;
    bool high = false;
    uint32_t code;
    j->start = p;
    j->escaped = false;
    while (p < j->size && j->text[p] != '"') {
        unsigned char c = (unsigned char)j->text[p];
        size_t step = 1, plain = j->size - p >= sizeof(uint64_t) ? plain_bytes(j->text + p) : 0;
        if (plain > 0) {
            p += plain;
            continue;
        }
        if (c == '\\') {
            j->escaped = true;
            step = escape_at(j->text + p, j->size - p, &code);
        } else if (c < 0x20)
            step = 0;
        high |= c >= 0x80;
        if (step == 0) {
            j->pos = p;
            broken(j, err,
                   c == '\\' ? "broken JSON: an escape or surrogate pair in a string is not valid"
                             : "broken JSON: a control character in a string");
            return false;
        }
        p += step;
    }
    if (p >= j->size) {
        broken(j, err, "broken JSON: a string does not end");
        return false;
    }
    j->end = p;
    if (high && !ckpt__utf8_valid(j->text + j->start, p - j->start)) {
        broken(j, err, "not UTF-8: a string holds bytes that are not character");
        return false;
    }
    j->pos = p + 1;
    return true;
}

static size_t digits(const ckpt__json *j, size_t p)
{
    while (p < j->size && j->text[p] >= '0' && j->text[p] <= '9')
        p++;
    return p;
}

static ckpt__json_event lex_number(ckpt__json *j, ckpt_error *err)
{
    size_t p = j->pos + (j->text[j->pos] == '-'), q = digits(j, p);
    if (q == p || (j->text[p] == '0' && q > p + 1))
        return broken(j, err, "broken JSON: a number without digits, or with a leading zero");
    p = q;
    if (p < j->size && j->text[p] == '.') {
        q = digits(j, p + 1);
        if (q == p + 1)
            return broken(j, err, "broken JSON: a number without digits after its point");
        p = q;
    }
    if (p < j->size && (j->text[p] == 'e' || j->text[p] == 'E')) {
        size_t sign = p + 1 < j->size && (j->text[p + 1] == '+' || j->text[p + 1] == '-');
        q = digits(j, p + 1 + sign);
        if (q == p + 1 + sign)
            return broken(j, err, "broken JSON: a number without digits in its exponent");
        p = q;
    }
    j->start = j->pos;
    j->end = j->pos = p;
    return j->event = CKPT__JSON_NUMBER;
}

static ckpt__json_event lex_word(ckpt__json *j, const char *word, ckpt__json_event event, ckpt_error *err)
{
    size_t n = strlen(word);
    if (j->size - j->pos < n || memcmp(j->text + j->pos, word, n) != 0)
        return unexpected(j, err, "a value");
    j->start = j->pos;
    j->end = j->pos += n;
    return j->event = event;
}

static ckpt__json_event open_container(ckpt__json *j, bool object, ckpt_error *err)
{
    if (j->depth >= j->max_depth) {
        j->state = BROKEN;
        j->status =
            ckpt__fail(err, CKPT_E_LIMIT, j->what,
                       "nested more than %u levels deep, at byte %zu; that is the limit here", j->max_depth, j->pos);
        return j->event = CKPT__JSON_ERROR;
    }
    uint64_t bit = (uint64_t)1 << (j->depth % 64), *word = &j->in_object[j->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    j->depth++;
    j->start = j->pos++;
    j->end = j->pos;
    j->state = object ? FIRST_KEY : FIRST_VALUE;
    return j->event = object ? CKPT__JSON_OBJECT : CKPT__JSON_ARRAY;
}

static ckpt__json_event close_container(ckpt__json *j)
{
    j->event = in_object(j) ? CKPT__JSON_OBJECT_END : CKPT__JSON_ARRAY_END;
    j->depth--;
    j->start = j->pos++;
    j->end = j->pos;
    j->state = AFTER;
    return j->event;
}

static ckpt__json_event lex_value(ckpt__json *j, ckpt_error *err)
{
    if (j->pos >= j->size)
        return unexpected(j, err, "a value");
    char c = j->text[j->pos];
    if (c == '{' || c == '[')
        return open_container(j, c == '{', err);
    j->state = AFTER;
    if (c == '"')
        return lex_string(j, err) ? (j->event = CKPT__JSON_STRING) : CKPT__JSON_ERROR;
    if (c == '-' || (c >= '0' && c <= '9'))
        return lex_number(j, err);
    return c == 't'   ? lex_word(j, "true", CKPT__JSON_TRUE, err)
           : c == 'f' ? lex_word(j, "false", CKPT__JSON_FALSE, err)
           : c == 'n' ? lex_word(j, "null", CKPT__JSON_NULL, err)
                      : unexpected(j, err, "a value");
}

static ckpt__json_event lex_key(ckpt__json *j, ckpt_error *err)
{
    if (j->pos >= j->size || j->text[j->pos] != '"')
        return unexpected(j, err, "a key in quotes");
    if (!lex_string(j, err))
        return CKPT__JSON_ERROR;
    skip_space(j);
    if (j->pos >= j->size || j->text[j->pos] != ':')
        return unexpected(j, err, "':'");
    j->pos++;
    j->state = VALUE;
    return j->event = CKPT__JSON_KEY;
}

ckpt__json_event ckpt__json_next(ckpt__json *j, ckpt_error *err)
{
    skip_space(j);
    char c = j->pos < j->size ? j->text[j->pos] : '\0';
    switch (j->state) {
    case FIRST_KEY:
        return c == '}' ? close_container(j) : lex_key(j, err);
    case FIRST_VALUE:
        return c == ']' ? close_container(j) : lex_value(j, err);
    case KEY:
        return lex_key(j, err);
    case VALUE:
        return lex_value(j, err);
    case AFTER:
        break;
    default:
        return j->event = CKPT__JSON_ERROR;
    }
    if (j->depth == 0)
        return j->pos < j->size ? unexpected(j, err, "the end") : (j->event = CKPT__JSON_END);
    bool object = in_object(j);
    if (j->pos < j->size && c == (object ? '}' : ']'))
        return close_container(j);
    if (j->pos >= j->size || c != ',')
        return unexpected(j, err, object ? "',' or '}'" : "',' or ']'");
    j->pos++;
    skip_space(j);
    return object ? lex_key(j, err) : lex_value(j, err);
}

void ckpt__json_took(ckpt__json *j, size_t n)
{
    j->start = j->pos;
    j->end = j->pos += n;
    j->state = AFTER;
    j->event = CKPT__JSON_OBJECT_END;
}

static const char *event_name(ckpt__json_event event)
{
    static const char *const names[] = {"the end",
                                        "an object",
                                        "the end of an object",
                                        "an array",
                                        "the end of an array",
                                        "a key",
                                        "a string",
                                        "a number",
                                        "true",
                                        "false",
                                        "null"};
    return event >= 0 && event <= CKPT__JSON_NULL ? names[event] : "broken JSON";
}

ckpt_status ckpt__json_expect(ckpt__json *j, ckpt__json_event event, ckpt_error *err)
{
    ckpt__json_event found = ckpt__json_next(j, err);
    if (found == event)
        return CKPT_OK;
    if (found == CKPT__JSON_ERROR)
        return j->status;
    return ckpt__json_wrong(j, err, "expected %s, found %s", event_name(event), event_name(found));
}

int ckpt__json_member(ckpt__json *j, ckpt__buf *scratch, ckpt_str *key, ckpt_error *err)
{
    ckpt__json_event event = ckpt__json_next(j, err);
    if (event == CKPT__JSON_OBJECT_END)
        return 0;
    if (event == CKPT__JSON_ERROR)
        return j->status;
    if (event != CKPT__JSON_KEY)
        return ckpt__json_wrong(j, err, "expected a key, found %s", event_name(event));
    *key = ckpt__json_text(j, scratch);
    return key->data ? 1 : ckpt__fail_memory(err, j->what, j->end - j->start);
}

static void put_utf8(ckpt__buf *b, uint32_t c)
{
    char out[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(lead[n] | c);
    ckpt__buf_add(b, out, n);
}

ckpt_str ckpt__json_text(const ckpt__json *j, ckpt__buf *scratch)
{
    const char *p = j->text + j->start;
    size_t n = j->end - j->start, i = 0;
    if (!j->escaped)
        return (ckpt_str){p, n};
    scratch->size = 0;
    ckpt__buf_reserve(scratch, n);
    while (i < n) {
        const char *slash = memchr(p + i, '\\', n - i);
        size_t plain = slash ? (size_t)(slash - p) - i : n - i;
        ckpt__buf_add(scratch, p + i, plain);
        i += plain;
        if (i < n) {
            uint32_t code = 0;
            size_t step = escape_at(p + i, n - i, &code);
            if (step == 0) /* cannot be: the lexer has seen it */
                break;
            put_utf8(scratch, code);
            i += step;
        }
    }
    return scratch->failed ? (ckpt_str){NULL, 0} : (ckpt_str){scratch->data, scratch->size};
}

ckpt_status ckpt__json_string(ckpt__json *j, ckpt__buf *scratch, ckpt_str *out, ckpt_error *err)
{
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_STRING, err);
    if (status < 0)
        return status;
    *out = ckpt__json_text(j, scratch);
    return out->data ? CKPT_OK : ckpt__fail_memory(err, j->what, j->end - j->start);
}

ckpt_status ckpt__json_this_int(const ckpt__json *j, int64_t *out, ckpt_error *err)
{
    if (j->event != CKPT__JSON_NUMBER)
        return ckpt__json_wrong(j, err, "expected an integer, found %s", event_name(j->event));
    if (!ckpt__parse_i64(j->text + j->start, j->end - j->start, out))
        return ckpt__json_wrong(j, err, "the number %.*s is not an integer of 64 bits",
                                (int)(j->end - j->start < 40 ? j->end - j->start : 40), j->text + j->start);
    return CKPT_OK;
}

ckpt_status ckpt__json_int(ckpt__json *j, int64_t *out, ckpt_error *err)
{
    ckpt_status status = ckpt__json_expect(j, CKPT__JSON_NUMBER, err);
    return status < 0 ? status : ckpt__json_this_int(j, out, err);
}

ckpt_status ckpt__json_skip(ckpt__json *j, ckpt_str *range, ckpt_error *err)
{
    unsigned depth = j->depth;
    ckpt__json_event event = ckpt__json_next(j, err);
    size_t start = event == CKPT__JSON_STRING ? j->start - 1 : j->start;
    while (event != CKPT__JSON_ERROR && j->depth > depth)
        event = ckpt__json_next(j, err);
    if (event == CKPT__JSON_ERROR)
        return j->status;
    if (range)
        *range = (ckpt_str){j->text + start, j->pos - start};
    return CKPT_OK;
}

ckpt_status ckpt__json_split(const char *text, size_t size, unsigned max_depth, const char *what,
                             const char *const *names, ckpt_str *ranges, size_t n, ckpt_error *err)
{
    ckpt__json j;
    ckpt__buf scratch = {0};
    ckpt_str key, range;
    for (size_t i = 0; i < n; i++)
        ranges[i] = (ckpt_str){NULL, 0};
    ckpt__json_start(&j, text, size, max_depth, what);
    int more = ckpt__json_expect(&j, CKPT__JSON_OBJECT, err);
    while (more >= 0 && (more = ckpt__json_member(&j, &scratch, &key, err)) > 0) {
        size_t i = 0;
        while (i < n && !ckpt__str_is(key, names[i]))
            i++;
        if (i < n && ranges[i].data)
            more = ckpt__json_wrong(&j, err, "the key \"%s\" occurs twice", names[i]);
        else if ((more = ckpt__json_skip(&j, &range, err)) >= 0 && i < n)
            ranges[i] = range;
    }
    if (more >= 0)
        more = ckpt__json_expect(&j, CKPT__JSON_END, err);
    ckpt__buf_free(&scratch);
    return more < 0 ? (ckpt_status)more : CKPT_OK;
}
