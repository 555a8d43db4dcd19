/* out/values.c - the values of options that are more than a word. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cli/out/options.h"

/* Digits, up to *end. */
static bool read_digits(const char *text, uint64_t *out, char **end)
{
    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *out = strtoull(text, end, 10);
    return errno == 0;
}

static bool read_number(const char *text, uint64_t *out)
{
    char *end;
    return read_digits(text, out, &end) && !*end;
}

/* 5GB is 5 * 10^9 bytes, 256MiB 256 * 2^20; B and no unit are bytes, and 5G is 5GB. */
static bool read_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    uint64_t n, scale = 1;
    if (!read_digits(text, &n, &end))
        return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        bool binary = end[1] == 'i';
        for (const char *u = units; u <= unit; u++)
            scale *= binary ? 1024 : 1000;
        end += binary ? 2 : 1;
    }
    end += *end == 'B' || *end == 'b';
    *out = n * scale;
    return !*end && n > 0 && n <= UINT64_MAX / scale;
}

/* "2.0", "1.13.1+cu117": major and minor count. */
static bool read_version(const char *text, uint64_t *out)
{
    char *end;
    uint64_t major, minor;
    if (!read_digits(text, &major, &end) || *end != '.' || !read_digits(end + 1, &minor, &end))
        return false;
    *out = 100 * major + minor;
    return (!*end || strchr(".+abr", *end)) && major >= 1 && major <= 99 && minor <= 99;
}

/* "cuda:2" (two devices, as the contract writes it), "2", "cpu". */
static bool read_devices(const char *text, uint64_t *out)
{
    *out = 0;
    return strcmp(text, "cpu") == 0 || read_number(strncmp(text, "cuda:", 5) == 0 ? text + 5 : text, out);
}

static bool read_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return (isdigit((unsigned char)*text) || *text == '.') && !*end && isfinite(*out);
}

bool option_value_read(const option_row *r, option_value *v)
{
    switch (r->kind) {
    case OPTION_NUMBER:
        return read_number(v->text, &v->n) && v->n >= r->least && v->n <= r->most;
    case OPTION_DEVICES:
        return read_devices(v->text, &v->n) && v->n <= r->most;
    case OPTION_SIZE:
        return read_size(v->text, &v->n);
    case OPTION_VERSION:
        return read_version(v->text, &v->n);
    case OPTION_REAL:
        return read_real(v->text, &v->real);
    default:
        return true;
    }
}
