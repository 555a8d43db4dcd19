/* map/rename.c - the replacement is expanded here: pcre2_substitute would give `$` meanings that nobody asked for. */
#include "map/rename.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* A name is short and a fair pattern needs a few steps a byte; beyond these a pattern is a trap ("(a*)*b"). */
enum { MATCH_LIMIT = 200000, DEPTH_LIMIT = 20000, HEAP_LIMIT_KIB = 16384, MAX_GROUP = 99 };

/* One rule, compiled. Everything is owned. */
struct ckpt__rename {
    pcre2_code *code; /* for names that are only bytes */
    pcre2_code *utf;  /* for names that are UTF-8, where `.` is a character; NULL: the pattern is not */
    pcre2_match_context *limits;
    char *from, *to; /* NUL-terminated copies; to_size bytes of `to` count */
    size_t to_size;
};

/* What stands at to[*at]: a group's number, or -1 for a literal byte (in *literal). False: a bad reference. */
static bool next_part(const char *to, size_t size, size_t *at, int *group, char *literal)
{
    *group = -1;
    if (to[*at] != '$') {
        *literal = to[(*at)++];
        return true;
    }
    size_t i = *at + 1;
    if (i < size && to[i] == '$') {
        *literal = '$';
        *at = i + 1;
        return true;
    }
    bool brace = i < size && to[i] == '{';
    i += brace;
    size_t digits = 0;
    *group = 0;
    while (i < size && to[i] >= '0' && to[i] <= '9' && digits < 2) {
        *group = *group * 10 + (to[i++] - '0');
        digits++;
    }
    if (!digits || (brace && (i >= size || to[i] != '}')))
        return false;
    *at = i + brace;
    return true;
}

static ckpt_status check_replacement(const ckpt__rename *r, ckpt_error *err)
{
    uint32_t groups = 0;
    pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    for (size_t at = 0; at < r->to_size;) {
        size_t begin = at;
        int group;
        char literal;
        if (!next_part(r->to, r->to_size, &at, &group, &literal))
            return ckpt__fail(err, CKPT_E_ARGUMENT, r->to,
                              "column %zu: '$' is followed by a group's number ($1) or by another '$' for itself",
                              begin + 1);
        if (group > (int)groups)
            return ckpt__fail(err, CKPT_E_ARGUMENT, r->to, "column %zu: there is no group %d in '%s', which has %u",
                              begin + 1, group, r->from, groups);
    }
    return CKPT_OK;
}

static ckpt_status compile(ckpt__rename *r, size_t from_size, ckpt_error *err)
{
    int code;
    PCRE2_SIZE at;
    /* A name may be any bytes, of which `.` takes every one; but none is to be cut inside a character. */
    const uint32_t utf = PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
    const uint32_t options =
        PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOTALL | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C;
    r->code = pcre2_compile((PCRE2_SPTR)r->from, from_size, options, &code, &at, NULL);
    if (!r->code) {
        char what[160] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)what, sizeof what);
        return ckpt__fail(err, CKPT_E_ARGUMENT, r->from, "column %zu: not a regular expression: %s", (size_t)at + 1,
                          what);
    }
    r->utf = pcre2_compile((PCRE2_SPTR)r->from, from_size, utf, &code, &at, NULL);
    r->limits = pcre2_match_context_create(NULL);
    if (!r->limits || (!r->utf && code == PCRE2_ERROR_HEAP_FAILED))
        return ckpt__fail_memory(err, "a regular expression", from_size);
    pcre2_set_match_limit(r->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(r->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(r->limits, HEAP_LIMIT_KIB);
    return check_replacement(r, err);
}

ckpt_status ckpt__rename_new(const char *from, size_t from_size, const char *to, size_t to_size, ckpt__rename **out,
                             ckpt_error *err)
{
    *out = NULL;
    ckpt__rename *r = calloc(1, sizeof *r);
    if (r) {
        r->from = strndup(from, from_size);
        r->to = strndup(to, to_size);
        r->to_size = to_size;
    }
    ckpt_status s = r && r->from && r->to ? CKPT_OK : ckpt__fail_memory(err, "a rename rule", from_size + to_size);
    if (s == CKPT_OK && (strlen(r->from) != from_size || strlen(r->to) != to_size))
        s = ckpt__fail(err, CKPT_E_ARGUMENT, r->from, "a rename rule holds a NUL character");
    if (s == CKPT_OK)
        s = compile(r, from_size, err);
    if (s != CKPT_OK) {
        ckpt__rename_free(r);
        return s;
    }
    *out = r;
    return CKPT_OK;
}

ckpt_status ckpt__rename_parse(const char *text, ckpt__rename **out, ckpt_error *err)
{
    const char *equals = strchr(text, '=');
    *out = NULL;
    if (!equals)
        return ckpt__fail(err, CKPT_E_ARGUMENT, text, "a rename is REGEX=REPLACEMENT, and there is no '='");
    /* "(?=x)y=z": an '=' may belong to the expression */
    ckpt_status first = ckpt__rename_new(text, (size_t)(equals - text), equals + 1, strlen(equals + 1), out, err);
    ckpt_error later = CKPT_ERROR_INIT;
    ckpt_status s = first;
    while (s == CKPT_E_ARGUMENT && (equals = strchr(equals + 1, '=')))
        s = ckpt__rename_new(text, (size_t)(equals - text), equals + 1, strlen(equals + 1), out, &later);
    return s == CKPT_OK ? s : first;
}

void ckpt__rename_free(ckpt__rename *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    pcre2_code_free(r->utf);
    pcre2_match_context_free(r->limits);
    free(r->from);
    free(r->to);
    free(r);
}

static void expand(const ckpt__rename *r, const char *name, const PCRE2_SIZE *spans, uint32_t span_count,
                   ckpt__buf *out)
{
    for (size_t at = 0; at < r->to_size;) {
        int group;
        char literal = 0;
        next_part(r->to, r->to_size, &at, &group, &literal);
        if (group < 0)
            ckpt__buf_char(out, literal);
        else if ((uint32_t)group < span_count && spans[2 * group] != PCRE2_UNSET &&
                 spans[2 * group] <= spans[2 * group + 1])
            ckpt__buf_add(out, name + spans[2 * group], spans[2 * group + 1] - spans[2 * group]);
    }
}

ckpt_status ckpt__rename_apply(const ckpt__rename *r, const char *name, size_t size, bool *matched, ckpt__buf *out,
                               ckpt_error *err)
{
    *matched = false;
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(r->code, NULL);
    if (!data)
        return ckpt__fail_memory(err, "a regular expression's match", size);
    int found = r->utf ? pcre2_match(r->utf, (PCRE2_SPTR)name, size, 0, 0, data, r->limits) : PCRE2_ERROR_UTF8_ERR1;
    if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21)
        found = pcre2_match(r->code, (PCRE2_SPTR)name, size, 0, 0, data, r->limits);
    ckpt_status s = CKPT_OK;
    if (found > 0) {
        *matched = true;
        expand(r, name, pcre2_get_ovector_pointer(data), pcre2_get_ovector_count(data), out);
        if (out->failed)
            s = ckpt__fail_memory(err, "a renamed parameter", size);
    } else if (found == PCRE2_ERROR_NOMEMORY) {
        s = ckpt__fail_memory(err, "a regular expression's match", size);
    } else if (found != PCRE2_ERROR_NOMATCH) {
        char shown[120];
        s = ckpt__fail(err, CKPT_E_LIMIT, r->from,
                       "matching this rename rule against '%s' takes too many steps; write it without nested repeats",
                       ckpt__escape(shown, sizeof shown, name, size));
    }
    pcre2_match_data_free(data);
    return s;
}
