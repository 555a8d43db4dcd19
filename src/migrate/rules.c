/* migrate/rules.c - what a pattern matches, and for one that matches nothing the pattern that may have been meant: the
 * same words as a part of longer names, inside names, in other case, or one or two letters off. */
#include "migrate/rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

bool ckpt__rule_has_wildcard(const char *glob)
{
    return *glob != '=' && strpbrk(glob, "*?\\") != NULL;
}

bool ckpt__rule_matches(const char *glob, ckpt_str name)
{
    if (!name.data)
        return false;
    if (*glob == '=')
        return ckpt__str_is(name, glob + 1);
    return ckpt__glob(glob, strlen(glob), name.data, name.size);
}

bool ckpt__rule_is_below(ckpt_str name, const char *above)
{
    if (ckpt__rule_has_wildcard(above))
        return false;
    above += *above == '=';
    size_t n = strlen(above);
    return name.data && name.size > n && name.data[n] == '.' && memcmp(name.data, above, n) == 0;
}

/* ---- what may have been meant */

enum { WORD_MAX = 80, NAMES_MAX = 20000 };

typedef struct search {
    const ckpt__migration *m;
    const ckpt__index *x;
    const ckpt__rule_names *names;
    char word[WORD_MAX]; /* of the pattern, without wildcards and dots around it */
    size_t size, parts;  /* how many parts it has */
    bool anywhere;       /* the pattern begins with a wildcard */
    ckpt__hash *found;   /* what may have been meant -> number in `count` */
    ckpt_str *what;      /* parts of names */
    size_t *count, n, capacity, capacity_of_counts;
    size_t inside; /* names that have the word anywhere */
    size_t away;   /* letters that the best ones differ in */
    bool failed;
} search;

/* The longest stretch of the pattern without wildcards. */
static bool take_word(search *s, const char *glob)
{
    const char *best = glob;
    size_t n = 0;
    s->anywhere = *glob == '*';
    for (glob += *glob == '='; *glob;) {
        size_t k = strcspn(glob, "*?\\");
        if (k > n) {
            best = glob;
            n = k;
        }
        glob += k + (glob[k] != 0);
    }
    while (n && *best == '.') {
        best++;
        n--;
    }
    while (n && best[n - 1] == '.')
        n--;
    if (n == 0 || n >= WORD_MAX)
        return false;
    memcpy(s->word, best, n);
    s->word[n] = 0;
    s->size = n;
    s->parts = 1;
    for (size_t i = 0; i < n; i++)
        s->parts += best[i] == '.';
    return true;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters that have to be put in, taken out or changed, and neighbours that are exchanged; case counts as nothing. */
static size_t distance(const char *a, size_t n, const char *b, size_t k)
{
    size_t rows[3][WORD_MAX + 4];
    if (n >= WORD_MAX || k >= WORD_MAX + 3)
        return SIZE_MAX;
    for (size_t j = 0; j <= k; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= k; j++) {
            char x = lower(a[i - 1]), y = lower(b[j - 1]);
            row[j] = least(above[j - 1] + (x != y), least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]))
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[n % 3][k];
}

/* `name` up to `end` is what may have been meant. */
static void propose(search *s, ckpt_str name, size_t end)
{
    size_t at;
    int put = ckpt__hash_put(s->found, name.data, end, s->n, &at);
    if (put < 0 || (put == 1 && (!ckpt__grow(&s->what, &s->capacity, s->n + 1, sizeof *s->what) ||
                                 !ckpt__grow(&s->count, &s->capacity_of_counts, s->n + 1, sizeof *s->count)))) {
        s->failed = true;
        return;
    }
    if (put == 1) {
        s->what[s->n] = (ckpt_str){name.data, end};
        s->count[at = s->n++] = 0;
    }
    s->count[at]++;
}

/* A stretch of whole parts of the name that is the word, or nearly. */
static void look_into(search *s, ckpt_str name)
{
    if (!name.data || s->failed)
        return;
    s->inside += memmem(name.data, name.size, s->word, s->size) != NULL;
    for (size_t from = 0; from < name.size;) {
        size_t end = from, parts = 0;
        for (; end < name.size; end++)
            if (name.data[end] == '.' && ++parts == s->parts)
                break;
        size_t n = end - from, more = n > s->size ? n - s->size : s->size - n;
        size_t away = more <= s->away ? distance(s->word, s->size, name.data + from, n) : SIZE_MAX;
        if (away < s->away) { /* nearer than all before */
            s->away = away;
            s->n = 0;
            ckpt__hash_free(s->found);
            s->failed = !(s->found = ckpt__hash_new(16));
        }
        size_t head = s->anywhere ? from : 0;
        if (away == s->away && !s->failed)
            propose(s, (ckpt_str){name.data + head, name.size - head}, end - head);
        const char *dot = memchr(name.data + from, '.', name.size - from);
        from = dot ? (size_t)(dot - name.data) + 1 : name.size;
    }
}

static bool counts(const search *s, size_t i)
{
    return !s->names->among || s->names->among[i];
}

static ckpt_str canonical_of(const search *s, size_t i)
{
    return s->names->canonical ? ckpt__canonical(s->m, i) : (ckpt_str){NULL, 0};
}

static size_t count_matches(const search *s, const char *glob)
{
    size_t n = 0;
    for (size_t i = 0; i < s->x->tensor_count; i++)
        n += counts(s, i) &&
             (ckpt__rule_matches(glob, s->x->tensors[i].info.name) || ckpt__rule_matches(glob, canonical_of(s, i)));
    return n;
}

static void search_names(search *s)
{
    const ckpt__canon *canon = s->m->canon;
    for (size_t i = 0; i < s->x->tensor_count && i < NAMES_MAX; i++) {
        ckpt_str name = s->x->tensors[i].info.name, canonical = canonical_of(s, i);
        if (!counts(s, i))
            continue;
        look_into(s, name);
        if (!ckpt__str_equal(canonical, name))
            look_into(s, canonical);
    }
    for (size_t i = 0; s->names->values && i < canon->count && i < NAMES_MAX; i++)
        if (!canon->entries[i].is_tensor && canon->entries[i].value)
            look_into(s, canon->entries[i].own);
}

/* "; 'model.head.*' would match 4". Nothing where nothing is near. */
static void put_hint(const ckpt__migration *m, const ckpt__rule_names *names, const char *glob, ckpt__buf *out)
{
    search s = {.m = m, .x = m->index ? m->index : m->from, .names = names, .found = ckpt__hash_new(16)};
    ckpt__buf better = {0};
    char shown[200];
    size_t best = 0;
    if (!s.found || !take_word(&s, glob))
        goto done;
    s.away = s.size > 6 ? 2 : s.size > 2 ? 1 : 0;
    search_names(&s);
    for (size_t i = 1; i < s.n; i++)
        if (s.count[i] > s.count[best])
            best = i;
    if (s.n && !s.failed) {
        ckpt__buf_str(&better, s.anywhere ? "*" : "");
        ckpt__buf_add(&better, s.what[best].data, s.what[best].size);
        if (!better.failed && !count_matches(&s, better.data))
            ckpt__buf_str(&better, ".*");
    } else if (s.inside) {
        ckpt__buf_printf(&better, "*%s*", s.word);
    }
    size_t n = better.size && !better.failed ? count_matches(&s, better.data) : 0;
    if (n)
        ckpt__buf_printf(out, "; '%s' would match %zu", ckpt__escape(shown, sizeof shown, better.data, better.size), n);
    else if (s.n && !s.failed && !better.failed)
        ckpt__buf_printf(out, "; there is a value '%s'",
                         ckpt__escape(shown, sizeof shown, s.what[best].data, s.what[best].size));
done:
    ckpt__buf_free(&better);
    ckpt__hash_free(s.found);
    free(s.what);
    free(s.count);
}

/* ---- rules that matched nothing */

ckpt_status ckpt__rule_unused(ckpt__migration *m, const char *said, const char *why, const char *glob,
                              const ckpt__rule_names *names, ckpt_error *err)
{
    ckpt__buf hint = {0};
    char shown[300];
    if (glob && names)
        put_hint(m, names, glob, &hint);
    bool added =
        !hint.failed &&
        ckpt__report_add(m->unused, m->options.allow_unused ? CKPT_SEVERITY_WARNING : CKPT_SEVERITY_ERROR,
                         "unused-rule", NULL, NULL, "%s %s%s", ckpt__escape(shown, sizeof shown, said, strlen(said)),
                         why, hint.size ? hint.data : "");
    ckpt__buf_free(&hint);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

ckpt_status ckpt__migrate_check_rules(ckpt__migration *m, ckpt_error *err)
{
    if (!ckpt_report_count(m->unused))
        return CKPT_OK;
    if (!ckpt__report_merge(m->report, m->unused))
        return ckpt__migration_no_memory(err);
    if (m->options.allow_unused)
        return CKPT_OK;
    ckpt_status status = ckpt__report_fail(m->unused, CKPT_SEVERITY_ERROR, CKPT_E_ARGUMENT, m->src, err);
    ckpt__error_prefix(err, "nothing was written (--allow-unused makes this a warning)");
    return status;
}
