/* format/native/json_values.c - JSON as a value tree, without recursion: what is open is a stack. */
#include "format/native/json_values.h"

#include <math.h>
#include <stdlib.h>

enum { DEPTH = 256, VALUES_MAX = 2000000 }; /* a value takes a hundred times the room of its text */

typedef struct builder {
    ckpt__json j;
    const char *original; /* as it was: Python's words for what JSON lacks still stand in it */
    ckpt__arena *arena;
    ckpt__buf scratch;
    size_t made;
    const ckpt_value **values; /* of all that is open; of an object keys and values in turn */
    size_t count, capacity;
    size_t *open; /* where each open container begins in values */
    size_t depth, depth_capacity;
} builder;

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
}

/* Python's NaN, Infinity, -Infinity, outside of strings: digits of the same length take their place for the lexer, and
 * their beginning tells them from numbers in the original. */
static void cover_words(char *text, size_t size)
{
    static const char *const words[] = {"NaN", "Infinity"};
    bool string = false;
    for (size_t i = 0; i < size; i++) {
        if (string && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            string = !string;
        for (size_t w = 0; !string && w < 2 && i < size; w++) {
            size_t n = strlen(words[w]);
            bool alone = n <= size - i && (i == 0 || !is_word(text[i - 1])) && (n == size - i || !is_word(text[i + n]));
            if (alone && memcmp(text + i, words[w], n) == 0)
                memset(text + i, '1', n);
        }
    }
}

static ckpt_value *number(const builder *b)
{
    size_t n = b->j.end - b->j.start;
    const char *at = b->original + b->j.start, *word = at + (*at == '-');
    int64_t integer;
    double real;
    if (*word == 'N' || *word == 'I')
        return ckpt__value_float(b->arena, *word == 'N' ? NAN : at == word ? INFINITY : -INFINITY);
    if (ckpt__parse_i64(at, n, &integer))
        return ckpt__value_int(b->arena, integer);
    if (!memchr(at, '.', n) && !memchr(at, 'e', n) && !memchr(at, 'E', n)) {
        ckpt_value *big = ckpt__value_new(b->arena, CKPT_V_BIGINT);
        if (big && !(big->text = ckpt__arena_str(b->arena, at, n)).data)
            return NULL;
        return big;
    }
    return ckpt__parse_double(at, n, &real) ? ckpt__value_float(b->arena, real) : NULL;
}

/* The container that begins at `first` of values takes what stands behind it there. */
static ckpt_value *close_container(builder *b, bool object)
{
    size_t first = b->open[--b->depth], n = b->count - first;
    b->count = first;
    if (!object)
        return ckpt__value_list(b->arena, CKPT_V_LIST, b->values + first, n);
    ckpt_entry *entries = ckpt__arena_array(b->arena, n / 2 + 1, sizeof *entries);
    ckpt_value *dict = entries ? ckpt__value_new(b->arena, CKPT_V_DICT) : NULL;
    for (size_t i = 0; dict && i < n / 2; i++)
        entries[i] = (ckpt_entry){b->values[first + 2 * i], b->values[first + 2 * i + 1]};
    if (dict) {
        dict->entries = entries;
        dict->entry_count = n / 2;
    }
    return dict;
}

static ckpt_value *scalar(builder *b, ckpt__json_event event)
{
    ckpt_str text;
    switch (event) {
    case CKPT__JSON_KEY:
    case CKPT__JSON_STRING:
        text = ckpt__json_text(&b->j, &b->scratch);
        return text.data ? ckpt__value_str(b->arena, text.data, text.size) : NULL;
    case CKPT__JSON_NUMBER:
        return number(b);
    case CKPT__JSON_TRUE:
    case CKPT__JSON_FALSE:
        return ckpt__value_bool(b->arena, event == CKPT__JSON_TRUE);
    default:
        return ckpt__value_new(b->arena, CKPT_V_NONE);
    }
}

static ckpt_status build(builder *b, ckpt_error *err)
{
    ckpt__json_event event;
    while ((event = ckpt__json_next(&b->j, err)) > CKPT__JSON_END) {
        if (event == CKPT__JSON_OBJECT || event == CKPT__JSON_ARRAY) {
            if (!ckpt__grow(&b->open, &b->depth_capacity, b->depth + 1, sizeof *b->open))
                return ckpt__fail_memory(err, b->j.what, b->j.size);
            b->open[b->depth++] = b->count;
            continue;
        }
        if (++b->made > VALUES_MAX)
            return ckpt__fail(err, CKPT_E_LIMIT, b->j.what, "it has more than %d values; no file beside a model does",
                              VALUES_MAX);
        bool closes = event == CKPT__JSON_OBJECT_END || event == CKPT__JSON_ARRAY_END;
        const ckpt_value *v = closes ? close_container(b, event == CKPT__JSON_OBJECT_END) : scalar(b, event);
        if (!v || !ckpt__grow(&b->values, &b->capacity, b->count + 1, sizeof *b->values))
            return ckpt__fail_memory(err, b->j.what, b->j.size);
        b->values[b->count++] = v;
    }
    return event == CKPT__JSON_END ? CKPT_OK : b->j.status;
}

ckpt_status ckpt__json_values(const char *text, size_t size, const char *what, ckpt__arena *arena,
                              const ckpt_value **out, ckpt_error *err)
{
    *out = NULL;
    builder *b = calloc(1, sizeof *b);
    char *covered = malloc(size + 1);
    ckpt_status status = b && covered ? CKPT_OK : ckpt__fail_memory(err, what, size);
    if (status == CKPT_OK) {
        memcpy(covered, text, size);
        cover_words(covered, size);
        b->original = text;
        b->arena = arena;
        ckpt__json_start(&b->j, covered, size, DEPTH, what);
        status = build(b, err);
    }
    if (status == CKPT_OK)
        *out = b->values[0];
    if (b) {
        ckpt__buf_free(&b->scratch);
        free(b->values);
        free(b->open);
    }
    free(covered);
    free(b);
    return status;
}
