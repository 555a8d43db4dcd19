/* base/str.h - looking at strings: what they begin with, end in and hold. base/base.h includes it. Of a ckpt_str without data
 * every answer is no. */
#ifndef CKPT_STR_H
#define CKPT_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <ckpt/tensor.h>

static inline ckpt_str ckpt__s(const char *text)
{
    ckpt_str s = {text, text ? strlen(text) : 0};
    return s;
}
static inline bool ckpt__str_is(ckpt_str s, const char *text)
{
    return s.data && s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}
static inline bool ckpt__str_equal(ckpt_str a, ckpt_str b)
{
    return a.data && b.data && a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}
/* Is it one of the words, which have a blank between them? */
static inline bool ckpt__str_among(ckpt_str s, const char *words)
{
    for (const char *at = words; *at;) {
        size_t n = (size_t)(strchrnul(at, ' ') - at);
        if (n == s.size && memcmp(at, s.data, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}
/* Where what follows the last dot begins; 0: there is none. */
static inline size_t ckpt__str_after_dot(ckpt_str s)
{
    size_t at = s.size;
    while (at > 0 && s.data[at - 1] != '.')
        at--;
    return at;
}
/* What follows the last dot; all of it where there is none. */
static inline ckpt_str ckpt__str_last(ckpt_str s)
{
    size_t at = ckpt__str_after_dot(s);
    return (ckpt_str){s.data ? s.data + at : NULL, s.size - at};
}

/* The string may be the head or the tail itself; of the two with _more it has at least one byte besides. */
bool ckpt__str_begins(ckpt_str s, const char *head);
bool ckpt__str_begins_more(ckpt_str s, const char *head);
/* The same of strings that are both sized. Most names of a checkpoint end in another byte than what is asked for. */
bool ckpt__str_begins_with(ckpt_str s, ckpt_str head);
static inline bool ckpt__str_ends_with(ckpt_str s, ckpt_str tail)
{
    return s.data && s.size >= tail.size &&
           (tail.size == 0 || (s.data[s.size - 1] == tail.data[tail.size - 1] &&
                               memcmp(s.data + s.size - tail.size, tail.data, tail.size) == 0));
}
static inline bool ckpt__str_ends(ckpt_str s, const char *tail)
{
    return ckpt__str_ends_with(s, ckpt__s(tail));
}
static inline bool ckpt__str_ends_more(ckpt_str s, const char *tail)
{
    return s.size > strlen(tail) && ckpt__str_ends_with(s, ckpt__s(tail));
}
/* Does it end in one of them? None of them is empty. */
static inline bool ckpt__str_ends_among(ckpt_str s, const ckpt_str *tails, size_t count)
{
    const char last = s.data && s.size ? s.data[s.size - 1] : 0;
    for (size_t i = 0; i < count; i++)
        if (tails[i].data[tails[i].size - 1] == last && ckpt__str_ends_with(s, tails[i]))
            return true;
    return false;
}
/* A string of a table, of a literal. */
#define CKPT__STR(literal)                                                                                             \
    {                                                                                                                  \
        literal, sizeof literal - 1                                                                                    \
    }
/* Does it hold the part anywhere? _nocase: letters of ASCII in either case. */
bool ckpt__str_holds(ckpt_str s, const char *part);
bool ckpt__str_holds_nocase(ckpt_str s, const char *part);
/* Of C strings. */
bool ckpt__begins(const char *text, const char *head);
bool ckpt__ends(const char *text, const char *tail);

/* A glob over bytes: `*` (crosses dots), `?`, `\` escapes; everything else is literal. A leading '=' makes the rest
 * literal throughout only where the caller strips it. */
bool ckpt__glob(const char *pattern, size_t pattern_size, const char *text, size_t text_size);
#endif
