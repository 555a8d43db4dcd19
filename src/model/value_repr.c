/* model/value_repr.c - a value as Python's repr prints it: how keys that are neither str nor int are named. */
#include "model/index.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void repr_quoted(ckpt__buf *b, ckpt_str s, bool bytes)
{
    bool has_single = memchr(s.data, '\'', s.size) != NULL, has_double = memchr(s.data, '"', s.size) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    ckpt__buf_char(b, quote);
    for (size_t i = 0; i < s.size; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c == (unsigned char)quote || c == '\\') {
            ckpt__buf_char(b, '\\');
            ckpt__buf_char(b, (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t')
            ckpt__buf_str(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        else if (c < 0x20 || c == 0x7f || (bytes && c >= 0x80))
            ckpt__buf_printf(b, "\\x%02x", c);
        else
            ckpt__buf_char(b, (char)c);
    }
    ckpt__buf_char(b, quote);
}

/* Keys that nest deeper than this are named by their kind alone: no recursion on input without a bound. */
enum { REPR_DEPTH = 8, REPR_ITEMS = 64 };

static void repr(ckpt__buf *b, const ckpt_value *v, int depth);

static void repr_sequence(ckpt__buf *b, const ckpt_value *v, const char *open, const char *close, int depth)
{
    ckpt__buf_str(b, open);
    for (size_t i = 0; i < v->item_count && i < REPR_ITEMS; i++) {
        if (i)
            ckpt__buf_str(b, ", ");
        repr(b, v->items[i], depth + 1);
    }
    if (v->item_count > REPR_ITEMS)
        ckpt__buf_str(b, ", ...");
    ckpt__buf_str(b, close);
}

/* The double of the shortest text that reads back as this float32: what is printed of it is that text. */
static double shortest_float(float f)
{
    char text[32];
    double d = f;
    for (int digits = 1; isfinite(f) && digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, (double)f);
        char *point = strchr(text, ','); /* of the locale */
        if (point)
            *point = '.';
        if (ckpt__parse_double(text, strlen(text), &d) && (float)d == f)
            return d;
    }
    return f;
}

static void put_utf8(ckpt__buf *b, uint32_t c)
{
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    if (c > 0x10FFFF)
        c = 0xFFFD; /* no character */
    int shift = c < 0x80 ? 0 : c < 0x800 ? 6 : c < 0x10000 ? 12 : 18;
    ckpt__buf_char(b, (char)(unsigned char)(first[shift / 6] | c >> shift));
    while ((shift -= 6) >= 0)
        ckpt__buf_char(b, (char)(unsigned char)(0x80 | (c >> shift & 0x3F)));
}

static void repr_numpy_number(ckpt__buf *b, char kind, const unsigned char *at, size_t n)
{
    char number[CKPT__DOUBLE_MAX];
    uint64_t bits = 0;
    float f = 0;
    double d = 0;
    for (size_t i = n; i-- > 0;)
        bits = bits << 8 | at[i];
    if (n == 4)
        memcpy(&f, at, 4);
    else if (n == 8)
        memcpy(&d, at, 8);
    if (kind == 'f')
        ckpt__buf_str(b, ckpt__format_double(number, n == 4 ? shortest_float(f) : d));
    else if (kind == 'u')
        ckpt__buf_printf(b, "%llu", (unsigned long long)bits);
    else /* the sign bit of n bytes moves up and back */
        ckpt__buf_printf(b, "%lld", (long long)((int64_t)(bits << (64 - 8 * n)) / ((int64_t)1 << (64 - 8 * n))));
}

/* A numpy scalar: np.int64(7), np.True_; a numpy.str_ is a str, and named by its text. False: it is none. */
static bool repr_numpy(ckpt__buf *b, const ckpt_value *v)
{
    const unsigned char *at = (const unsigned char *)v->text.data;
    size_t n = v->text.size;
    if (!v->array || v->array->dtype.size < 3 || v->class_name.size < 7 ||
        memcmp(v->class_name.data, "numpy.", 6) != 0 || !n)
        return false;
    char kind = v->array->dtype.data[1];
    if (kind == 'b' && n == 1) {
        ckpt__buf_str(b, *at ? "np.True_" : "np.False_");
        return true;
    }
    if (kind == 'U' && n % 4 == 0) {
        for (size_t i = 0; i < n; i += 4) {
            uint32_t c = at[i] | (uint32_t)at[i + 1] << 8 | (uint32_t)at[i + 2] << 16 | (uint32_t)at[i + 3] << 24;
            put_utf8(b, c);
        }
        return true;
    }
    ckpt__buf_str(b, "np.");
    ckpt__buf_add(b, v->class_name.data + 6, v->class_name.size - 6);
    ckpt__buf_char(b, '(');
    bool whole = (kind == 'i' || kind == 'u') && n <= 8, real = kind == 'f' && (n == 4 || n == 8);
    if (whole || real)
        repr_numpy_number(b, kind, at, n);
    else {
        ckpt__buf_char(b, 'b');
        repr_quoted(b, v->text, true);
    }
    ckpt__buf_char(b, ')');
    return true;
}

/* Half of a complex number: 1.5, and 2 for 2.0. */
static const char *complex_part(char *number, double d)
{
    char *text = ckpt__format_double(number, d);
    size_t n = strlen(text);
    if (n > 2 && memcmp(text + n - 2, ".0", 2) == 0)
        text[n - 2] = '\0';
    return text;
}

static bool repr_complex(ckpt__buf *b, const ckpt_value *args)
{
    char number[CKPT__DOUBLE_MAX];
    if (!args || args->item_count != 2 || args->items[0]->kind != CKPT_V_FLOAT || args->items[1]->kind != CKPT_V_FLOAT)
        return false;
    double re = args->items[0]->real, im = args->items[1]->real;
    bool pure = re == 0 && !signbit(re);
    if (!pure) {
        ckpt__buf_char(b, '(');
        ckpt__buf_str(b, complex_part(number, re));
        ckpt__buf_str(b, signbit(im) && im == im ? "" : "+");
    }
    ckpt__buf_str(b, complex_part(number, im));
    ckpt__buf_str(b, pure ? "j" : "j)");
    return true;
}

static bool repr_device(ckpt__buf *b, const ckpt_value *args)
{
    const ckpt_value *type = args && args->item_count ? args->items[0] : NULL;
    const ckpt_value *index = args && args->item_count > 1 ? args->items[1] : NULL;
    if (!type || type->kind != CKPT_V_STR || (index && index->kind != CKPT_V_INT))
        return false;
    ckpt__buf_str(b, "device(type=");
    repr_quoted(b, type->text, false);
    if (index)
        ckpt__buf_printf(b, ", index=%lld", (long long)index->integer);
    ckpt__buf_char(b, ')');
    return true;
}

/* The singletons, which have types of other names; range(0, 3), whose step of 1 Python leaves out. */
static bool repr_builtin(ckpt__buf *b, const ckpt_value *v)
{
    const ckpt_value *args = v->args;
    if (ckpt__str_is(v->class_name, "builtins.ellipsis"))
        ckpt__buf_str(b, "Ellipsis");
    else if (ckpt__str_is(v->class_name, "builtins.NotImplementedType"))
        ckpt__buf_str(b, "NotImplemented");
    else if (ckpt__str_is(v->class_name, "builtins.range") && args && args->item_count == 3 &&
             args->items[0]->kind == CKPT_V_INT && args->items[1]->kind == CKPT_V_INT &&
             args->items[2]->kind == CKPT_V_INT && args->items[2]->integer == 1)
        ckpt__buf_printf(b, "range(%lld, %lld)", (long long)args->items[0]->integer,
                         (long long)args->items[1]->integer);
    else
        return false;
    return true;
}

/* ---- dates, paths and numbers of the standard library, which are pickled as the arguments of their classes */

static const ckpt_value *argument(const ckpt_value *v, size_t i, ckpt_kind kind)
{
    const ckpt_value *a = v->args && i < v->args->item_count ? v->args->items[i] : NULL;
    return a && a->kind == kind ? a : NULL;
}

/* A date, a time, or both in one: year (2 bytes), month, day; hour, minute, second, microseconds (3), all big-endian. The
 * highest bit of the first byte behind the year is `fold`. */
static bool repr_moment(ckpt__buf *b, const ckpt_value *v, int depth)
{
    enum { DATE = 4, TIME = 6 };
    bool day = !ckpt__str_is(v->class_name, "datetime.time"), hour = !ckpt__str_is(v->class_name, "datetime.date");
    const ckpt_value *bytes = argument(v, 0, CKPT_V_BYTES);
    size_t count = v->args ? v->args->item_count : 0;
    unsigned char p[DATE + TIME] = {0};
    if (!bytes || bytes->text.size != (day ? DATE : 0u) + (hour ? TIME : 0u) || count > (hour ? 2 : 1))
        return false;
    memcpy(p + (day ? 0 : DATE), bytes->text.data, bytes->text.size);
    unsigned char *folded = day ? &p[2] : &p[DATE];
    bool fold = hour && (*folded & 0x80);
    *folded &= 0x7f;
    unsigned micro = (unsigned)p[7] << 16 | (unsigned)p[8] << 8 | p[9];
    ckpt__buf_add(b, v->class_name.data, v->class_name.size);
    ckpt__buf_char(b, '(');
    if (day)
        ckpt__buf_printf(b, "%u, %u, %u%s", (unsigned)p[0] << 8 | p[1], p[2], p[3], hour ? ", " : "");
    if (hour)
        ckpt__buf_printf(b, "%u, %u", p[4], p[5]);
    if (p[6] || micro)
        ckpt__buf_printf(b, ", %u", p[6]);
    if (micro)
        ckpt__buf_printf(b, ", %u", micro);
    if (count > 1) {
        ckpt__buf_str(b, ", tzinfo=");
        repr(b, v->args->items[1], depth + 1);
    }
    ckpt__buf_str(b, fold ? ", fold=1)" : ")");
    return true;
}

static bool repr_timedelta(ckpt__buf *b, const ckpt_value *v, int depth)
{
    static const char *const names[] = {"days", "seconds", "microseconds"};
    const char *between = "";
    (void)depth;
    for (size_t i = 0; i < 3; i++)
        if (!argument(v, i, CKPT_V_INT))
            return false;
    ckpt__buf_str(b, "datetime.timedelta(");
    for (size_t i = 0; i < 3; i++) {
        long long n = v->args->items[i]->integer;
        if (n)
            ckpt__buf_printf(b, "%s%s=%lld", between, names[i], n);
        between = n ? ", " : between;
    }
    ckpt__buf_str(b, *between ? ")" : "0)");
    return true;
}

/* timezone(timedelta(0, 0, 0)) is the one that Python calls utc; any other is named by its class and arguments. */
static bool repr_timezone(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *offset = argument(v, 0, CKPT_V_OBJECT);
    (void)depth;
    if (!offset || v->args->item_count != 1 || !ckpt__str_is(offset->class_name, "datetime.timedelta"))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (!argument(offset, i, CKPT_V_INT) || offset->args->items[i]->integer)
            return false;
    ckpt__buf_str(b, "datetime.timezone.utc");
    return true;
}

/* Name('text'), where the name is that of the class without its module. */
static void repr_short(ckpt__buf *b, const ckpt_value *v, ckpt_str text)
{
    size_t dot = ckpt__str_after_dot(v->class_name);
    ckpt__buf_add(b, v->class_name.data + dot, v->class_name.size - dot);
    ckpt__buf_char(b, '(');
    repr_quoted(b, text, false);
    ckpt__buf_char(b, ')');
}

/* The parts of a path, joined by slashes as Python prints it on any system: '/', 'x' or 'C:\\', 'x' or 'C:', 'x'. */
static bool repr_path(ckpt__buf *b, const ckpt_value *v, int depth)
{
    ckpt__buf path = {0};
    size_t count = v->args ? v->args->item_count : 0;
    bool windows = memmem(v->class_name.data, v->class_name.size, "Windows", 7) != NULL, joined = true;
    (void)depth;
    for (size_t i = 0; i < count && joined; i++) {
        const ckpt_value *part = argument(v, i, CKPT_V_STR);
        const char *last = path.size ? path.data + path.size - 1 : "/";
        joined = part && part->text.size && (i == 0 || part->text.data[0] != '/');
        if (joined && *last != '/' && !(windows && i == 1 && *last == ':'))
            ckpt__buf_char(&path, '/');
        for (size_t k = 0; joined && k < part->text.size; k++)
            ckpt__buf_char(&path, windows && part->text.data[k] == '\\' ? '/' : part->text.data[k]);
        joined = joined && !path.failed;
    }
    if (joined)
        repr_short(b, v, count ? (ckpt_str){path.data, path.size} : ckpt__s("."));
    ckpt__buf_free(&path);
    return joined;
}

/* An int of up to 128 bits, as four numbers of 32, the lowest first. */
static bool to_128_bits(const ckpt_value *v, uint32_t out[4])
{
    memset(out, 0, 4 * sizeof *out);
    if (v->kind == CKPT_V_INT && v->integer >= 0) {
        out[0] = (uint32_t)v->integer;
        out[1] = (uint32_t)((uint64_t)v->integer >> 32);
        return true;
    }
    if (v->kind != CKPT_V_BIGINT)
        return false;
    for (size_t i = 0; i < v->text.size; i++) {
        uint64_t carry = (unsigned char)v->text.data[i] - (uint64_t)'0';
        if (carry > 9)
            return false;
        for (size_t k = 0; k < 4; k++, carry >>= 32)
            out[k] = (uint32_t)(carry += (uint64_t)out[k] * 10);
        if (carry)
            return false;
    }
    return true;
}

static bool repr_uuid(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *number = ckpt_value_get(v, "int");
    uint32_t n[4];
    (void)depth;
    if (!number || !to_128_bits(number, n))
        return false;
    ckpt__buf_printf(b, "UUID('%08x-%04x-%04x-%04x-%04x%08x')", n[3], n[2] >> 16, n[2] & 0xffff, n[1] >> 16,
                     n[1] & 0xffff, n[0]);
    return true;
}

static bool repr_decimal(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *text = argument(v, 0, CKPT_V_STR);
    (void)depth;
    if (text)
        repr_short(b, v, text->text);
    return text != NULL;
}

static bool repr_fraction(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *above = argument(v, 0, CKPT_V_INT), *below = argument(v, 1, CKPT_V_INT);
    (void)depth;
    if (above && below)
        ckpt__buf_printf(b, "Fraction(%lld, %lld)", (long long)above->integer, (long long)below->integer);
    return above && below;
}

/* False: it is none of these, or not made as Python makes it. */
static bool repr_standard(ckpt__buf *b, const ckpt_value *v, int depth)
{
    static const struct {
        const char *class_name;
        bool (*put)(ckpt__buf *b, const ckpt_value *v, int depth);
    } known[] = {
        {"datetime.date", repr_moment},
        {"datetime.time", repr_moment},
        {"datetime.datetime", repr_moment},
        {"datetime.timedelta", repr_timedelta},
        {"datetime.timezone", repr_timezone},
        {"uuid.UUID", repr_uuid},
        {"decimal.Decimal", repr_decimal},
        {"fractions.Fraction", repr_fraction},
        {"pathlib.PosixPath", repr_path},
        {"pathlib.PurePosixPath", repr_path},
        {"pathlib.WindowsPath", repr_path},
        {"pathlib.PureWindowsPath", repr_path},
        {"pathlib._local.PosixPath", repr_path},
        {"pathlib._local.PurePosixPath", repr_path},
        {"pathlib._local.WindowsPath", repr_path},
        {"pathlib._local.PureWindowsPath", repr_path},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (ckpt__str_is(v->class_name, known[i].class_name))
            return known[i].put(b, v, depth);
    return false;
}

/* frozenset({1, 2}), torch.Size([2, 3]), ...: the objects that occur as keys. */
static void repr_object(ckpt__buf *b, const ckpt_value *v, int depth)
{
    const ckpt_value *args = v->args;
    if (ckpt__str_is(v->class_name, "builtins.frozenset") || ckpt__str_is(v->class_name, "builtins.set")) {
        const ckpt_value *items = v->item_count ? v : args && args->item_count == 1 ? args->items[0] : NULL;
        bool frozen = v->class_name.size > 12;
        ckpt__buf_str(b, frozen ? "frozenset(" : "");
        if (items && items->item_count)
            repr_sequence(b, items, "{", "}", depth);
        ckpt__buf_str(b, frozen ? ")" : "");
        return;
    }
    if (repr_numpy(b, v) || repr_builtin(b, v) ||
        (ckpt__str_is(v->class_name, "builtins.complex") && repr_complex(b, args)) ||
        (ckpt__str_is(v->class_name, "torch.device") && repr_device(b, args)) || repr_standard(b, v, depth))
        return;
    ckpt_str name = v->class_name.data ? v->class_name : ckpt__s("object");
    if (ckpt__str_begins_more(name, "builtins."))
        name = (ckpt_str){name.data + 9, name.size - 9};
    ckpt__buf_add(b, name.data, name.size);
    if (ckpt__str_is(v->class_name, "torch.Size"))
        repr_sequence(b, v, "([", "])", depth);
    else if (args || v->item_count) /* the items: a namedtuple, say */
        repr_sequence(b, args ? args : v, "(", ")", depth);
}

static void repr(ckpt__buf *b, const ckpt_value *v, int depth)
{
    char number[CKPT__DOUBLE_MAX];
    if (depth > REPR_DEPTH) {
        ckpt__buf_str(b, "...");
        return;
    }
    switch (v->kind) {
    case CKPT_V_NONE:
        ckpt__buf_str(b, "None");
        break;
    case CKPT_V_BOOL:
        ckpt__buf_str(b, v->boolean ? "True" : "False");
        break;
    case CKPT_V_INT:
        ckpt__buf_printf(b, "%lld", (long long)v->integer);
        break;
    case CKPT_V_BIGINT:
        ckpt__buf_add(b, v->text.data, v->text.size);
        break;
    case CKPT_V_FLOAT:
        ckpt__buf_str(b, ckpt__format_double(number, v->real));
        break;
    case CKPT_V_STR:
        repr_quoted(b, v->text, false);
        break;
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        ckpt__buf_str(b, v->kind == CKPT_V_BYTES ? "b" : "bytearray(b");
        repr_quoted(b, v->text, true);
        if (v->kind == CKPT_V_BYTEARRAY)
            ckpt__buf_char(b, ')');
        break;
    case CKPT_V_LIST:
        repr_sequence(b, v, "[", "]", depth);
        break;
    case CKPT_V_TUPLE:
        repr_sequence(b, v, "(", v->item_count == 1 ? ",)" : ")", depth);
        break;
    case CKPT_V_DICT:
    case CKPT_V_TENSOR:
    case CKPT_V_ARRAY:
        ckpt__buf_printf(b, "<%s>", ckpt_kind_name(v->kind));
        break;
    case CKPT_V_CLASS:
        ckpt__buf_add(b, v->class_name.data, v->class_name.size);
        break;
    case CKPT_V_OBJECT:
        repr_object(b, v, depth);
        break;
    }
}

void ckpt__value_repr(ckpt__buf *b, const ckpt_value *v)
{
    repr(b, v, 0);
}
