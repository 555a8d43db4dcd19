/* base/str.c - what strings begin with, end in and hold; globs. */
#include "base/base.h"

#include <strings.h>

bool ckpt__str_begins_with(ckpt_str s, ckpt_str head)
{
    return s.data && s.size >= head.size && (head.size == 0 || memcmp(s.data, head.data, head.size) == 0);
}

bool ckpt__str_begins(ckpt_str s, const char *head)
{
    return ckpt__str_begins_with(s, ckpt__s(head));
}

bool ckpt__str_begins_more(ckpt_str s, const char *head)
{
    return s.size > strlen(head) && ckpt__str_begins_with(s, ckpt__s(head));
}

bool ckpt__str_holds(ckpt_str s, const char *part)
{
    return s.data && memmem(s.data, s.size, part, strlen(part)) != NULL;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A byte that is not a letter is the same in both cases, so the search looks for the first such byte of the part. A part of letters
 * alone is compared wherever its first letter is found. */
bool ckpt__str_holds_nocase(ckpt_str s, const char *part)
{
    const char either = 'a' ^ 'A';
    size_t n = strlen(part), mark = 0;
    while (is_letter(part[mark]))
        mark++;
    for (size_t i = 0; s.data && n <= s.size && i <= s.size - n; i++) {
        const char *at = mark < n ? memchr(s.data + i + mark, part[mark], s.size - n - i + 1) : s.data + i;
        if (!at)
            return false;
        if (mark < n)
            i = (size_t)(at - s.data) - mark;
        else if (n && ((*at ^ *part) & ~either))
            continue;
        if (strncasecmp(s.data + i, part, n) == 0)
            return true;
    }
    return false;
}

bool ckpt__begins(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

bool ckpt__ends(const char *text, const char *tail)
{
    return ckpt__str_ends_with(ckpt__s(text), ckpt__s(tail));
}

bool ckpt__glob(const char *pattern, size_t pattern_size, const char *text, size_t text_size)
{
    size_t p = 0, t = 0, star = SIZE_MAX, star_text = 0;
    while (t < text_size) {
        if (p < pattern_size && pattern[p] == '*') {
            star = p++;
            star_text = t;
            continue;
        }
        size_t escaped = p < pattern_size && pattern[p] == '\\' && p + 1 < pattern_size;
        if (p < pattern_size && ((!escaped && pattern[p] == '?') || pattern[p + escaped] == text[t])) {
            p += 1 + escaped;
            t++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            t = ++star_text;
        } else
            return false;
    }
    while (p < pattern_size && pattern[p] == '*')
        p++;
    return p == pattern_size;
}
