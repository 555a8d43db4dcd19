/* base/number.c - numbers as text, independent of the program's locale. */
#include "base/base.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static locale_t the_c_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
}

char *ckpt__format_double(char *buf, double value)
{
    if (isnan(value))
        return strcpy(buf, "nan");
    if (isinf(value))
        return strcpy(buf, value < 0 ? "-inf" : "inf");
    locale_t c = the_c_locale(), before = c ? uselocale(c) : (locale_t)0;
    /* 15 digits are always kept; only below the normal range may fewer do. */
    for (int digits = fabs(value) < 2.3e-308 ? 1 : 15; digits <= 17; digits++) {
        snprintf(buf, CKPT__DOUBLE_MAX, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    if (before)
        uselocale(before);
    if (!strpbrk(buf, ".e"))
        strcat(buf, ".0");
    return buf;
}

bool ckpt__parse_double(const char *data, size_t n, double *out)
{
    char small[64], *text = small, *end;
    if (n == 0 || isspace((unsigned char)data[0]) || memchr(data, '\0', n))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789+-.eE", data[i])) /* no hex, nan, inf */
            return false;
    if (n >= sizeof small && !(text = malloc(n + 1)))
        return false;
    memcpy(text, data, n);
    text[n] = '\0';
    locale_t c = the_c_locale();
    double value = c ? strtod_l(text, &end, c) : strtod(text, &end);
    bool ok = end == text + n;
    if (text != small)
        free(text);
    if (ok)
        *out = value;
    return ok;
}

bool ckpt__parse_i64(const char *data, size_t n, int64_t *out)
{
    size_t i = n > 0 && data[0] == '-';
    int64_t value = 0;
    if (i == n)
        return false;
    for (; i < n; i++) {
        if (data[i] < '0' || data[i] > '9')
            return false;
        int digit = data[i] - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value))
            return false; /* summed downwards: the smallest number has no positive twin */
    }
    if (data[0] != '-' && __builtin_sub_overflow(0, value, &value))
        return false;
    *out = value;
    return true;
}
