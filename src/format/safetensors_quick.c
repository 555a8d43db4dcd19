/* format/safetensors_quick.c - one tensor of a header that is written as nearly all writers do. */
#include "format/safetensors_quick.h"

#include <stdbool.h>
#include <string.h>
#include "model/index.h"

enum { DIGITS = 18 }; /* a number of so many fits 64 bits */

typedef struct text {
    const char *at, *end;
} text;

static inline bool word(text *t, const char *expected, size_t n)
{
    bool there = (size_t)(t->end - t->at) >= n && memcmp(t->at, expected, n) == 0;
    t->at += there ? n : 0;
    return there;
}

#define WORD(t, literal) word(t, literal, sizeof(literal) - 1)

static inline bool number(text *t, int64_t *out)
{
    const char *from = t->at, *p = from;
    int64_t value = 0;
    for (; p < t->end && *p >= '0' && *p <= '9' && p - from < DIGITS; p++)
        value = value * 10 + (*p - '0');
    t->at = p;
    *out = value;
    return p > from && (*from != '0' || p - from == 1); /* a digit that follows is no comma: nothing is cut */
}

/* Up to the bracket that closes them. */
static inline bool numbers(text *t, size_t most, int64_t *out, size_t *count)
{
    bool good = true;
    *count = 0;
    if (WORD(t, "]"))
        return true;
    do
        good = *count < most && number(t, &out[(*count)++]);
    while (good && WORD(t, ","));
    return good && WORD(t, "]");
}

/* Up to the quote behind it. */
static inline bool dtype(text *t, ckpt__st_quick *q)
{
    size_t left = (size_t)(t->end - t->at), n = 0;
    if (q->dtype_size && left > q->dtype_size && t->at[q->dtype_size] == '"' &&
        memcmp(t->at, q->dtype_text, q->dtype_size) == 0) {
        t->at += q->dtype_size + 1;
        return true;
    }
    while (n < left && n < CKPT__ST_QUICK_TEXT && t->at[n] != '"')
        n++;
    q->dtype_size = 0;
    if (n == left || n == CKPT__ST_QUICK_TEXT || n == 0 ||
        (q->dtype = ckpt__dtype_from_safetensors(t->at, n)) == CKPT_DTYPE_NONE)
        return false;
    memcpy(q->dtype_text, t->at, n);
    q->dtype_size = n;
    t->at += n + 1;
    return true;
}

size_t ckpt__st_read_quickly(const char *data, size_t size, ckpt__st_quick *q)
{
    text t = {data, data + size};
    size_t bounds = 0;
    bool good = WORD(&t, "{\"dtype\":\"") && dtype(&t, q) && WORD(&t, ",\"shape\":[") &&
                numbers(&t, CKPT__ST_QUICK_DIMS, q->shape, &q->ndim) && WORD(&t, ",\"data_offsets\":[") &&
                numbers(&t, 2, q->offsets, &bounds) && bounds == 2 && WORD(&t, "}");
    return good ? (size_t)(t.at - data) : 0;
}
