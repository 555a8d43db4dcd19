/* out/selection.c - --tensor, --role, --device: what they name, and what is said where that is nothing. */
#include <stdlib.h>
#include <string.h>
#include "cli/out/cli.h"

/* `*` crosses dots, `?` is one byte, `\` escapes; everything else is literal. Linear but for the last star. */
static bool glob(const char *p, const char *text, size_t size)
{
    const char *star = NULL;
    size_t i = 0, resume = 0;
    while (i < size) {
        if (*p == '*') {
            star = ++p;
            resume = i;
        } else if (*p == '?' || (*p && *p != '\\' && *p == text[i]) || (*p == '\\' && p[1] && p[1] == text[i])) {
            p += *p == '\\' ? 2 : 1;
            i++;
        } else if (star) {
            p = star;
            i = ++resume;
        } else {
            return false;
        }
    }
    while (*p == '*')
        p++;
    return !*p;
}

static bool matches(const char *pattern, ckpt_str s)
{
    if (pattern[0] == '=')
        return s.size == strlen(pattern + 1) && memcmp(s.data, pattern + 1, s.size) == 0;
    return glob(pattern, s.data, s.size);
}

static bool any_matches(const cli_list *list, ckpt_str s)
{
    if (list->count == 0)
        return true;
    for (size_t i = 0; s.data && i < list->count; i++)
        if (matches(list->items[i], s))
            return true;
    return false;
}

bool cli_names(const cli_list *patterns, ckpt_str name)
{
    return patterns->count && any_matches(patterns, name);
}

bool cli_has_selection(const cli *c)
{
    return c->tensors.count || c->roles.count || c->devices.count;
}

bool cli_selection_check(const cli *c)
{
    for (size_t i = 0; i < c->roles.count; i++) {
        if (ckpt_role_from_name(c->roles.items[i]) != CKPT_ROLE_NONE || strcmp(c->roles.items[i], "none") == 0)
            continue;
        char names[400] = "";
        for (int role = 1; role < ckpt_role_count(); role++) {
            size_t used = strlen(names);
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", ckpt_role_name((ckpt_role)role));
        }
        cli_usage(c, "--role: there is no role '%s'; roles are %s, none", c->roles.items[i], names);
        return false;
    }
    return true;
}

bool cli_selected(const cli *c, const ckpt_tensor_info *t)
{
    if (!cli_has_selection(c))
        return true;
    const char *role = ckpt_role_name(t->role);
    ckpt_str role_text = {role, strlen(role)};
    return any_matches(&c->tensors, t->name) && any_matches(&c->devices, t->device) &&
           any_matches(&c->roles, role_text);
}

/* ---- what names nothing */

typedef struct scope {
    const cli *c;
    const ckpt_reader *const *readers;
    size_t count;
} scope;

typedef enum kind { BY_NAME, BY_ROLE, BY_DEVICE } kind;

static ckpt_str text_of(const ckpt_tensor_info *t, kind by)
{
    const char *role = ckpt_role_name(t->role);
    return by == BY_NAME ? t->name : by == BY_DEVICE ? t->device : (ckpt_str){role, strlen(role)};
}

/* How many tensors the pattern names; *first is one of them. */
static size_t named_by(const scope *s, kind by, const char *pattern, ckpt_str *first)
{
    size_t n = 0;
    for (size_t r = 0; r < s->count; r++)
        for (size_t i = 0; i < ckpt_reader_tensor_count(s->readers[r]); i++) {
            ckpt_str text = text_of(ckpt_reader_tensor(s->readers[r], i), by);
            if (!text.data || !matches(pattern, text))
                continue;
            if (n++ == 0)
                *first = text;
        }
    return n;
}

static void put_quoted(FILE *f, ckpt_str s)
{
    putc('\'', f);
    cli_put(f, s.data, s.size);
    putc('\'', f);
}

/* The different roles or tags, in the order of the file. */
static void put_all(FILE *f, const scope *s, kind by)
{
    enum { SHOWN = 16 };
    ckpt_str seen[SHOWN];
    size_t n = 0;
    for (size_t r = 0; r < s->count; r++)
        for (size_t i = 0; i < ckpt_reader_tensor_count(s->readers[r]); i++) {
            ckpt_str text = text_of(ckpt_reader_tensor(s->readers[r], i), by);
            size_t k = 0;
            while (k < n && (seen[k].size != text.size || memcmp(seen[k].data, text.data, text.size) != 0))
                k++;
            if (!text.data || k < n || n == SHOWN)
                continue;
            fputs(n ? ", " : "", f);
            cli_put(f, text.data, text.size);
            seen[n++] = text;
        }
    fputs(n == SHOWN ? ", ..." : n ? "" : "none", f);
}

/* The glob that was probably meant: no `*` stands around a word by itself, and = takes one for a character. */
static bool put_wider(FILE *f, const scope *s, kind by, const char *pattern)
{
    ckpt_str first = {NULL, 0};
    const char *word = pattern[0] == '=' ? pattern + 1 : pattern;
    size_t n = strlen(word), found = 0;
    char *wider = malloc(n + 3);
    if (!wider)
        return false;
    if (pattern[0] == '=' && strpbrk(word, "*?\\")) {
        memcpy(wider, word, n + 1);
    } else {
        wider[0] = '*';
        memcpy(wider + 1, word, n);
        memcpy(wider + n + 1, "*", 2);
    }
    found = named_by(s, by, wider, &first);
    if (found)
        fputs("; ", f);
    if (found)
        put_quoted(f, (ckpt_str){wider, strlen(wider)});
    if (found > 1 || (found && by != BY_NAME))
        fprintf(f, " matches %zu", found);
    else if (found) {
        fputs(" matches ", f);
        put_quoted(f, first);
    }
    free(wider);
    return found > 0;
}

static void put_hint(FILE *f, const scope *s, kind by, const char *pattern)
{
    if (by != BY_ROLE && put_wider(f, s, by, pattern))
        return;
    if (by == BY_NAME) {
        ckpt_str first = {NULL, 0};
        fprintf(f, " (tensors in %s: %zu", s->count > 1 ? "them" : "it", named_by(s, by, "*", &first));
        if (first.data && first.size > 0 && first.size <= 80) {
            fputs(", such as ", f);
            put_quoted(f, first);
        }
        putc(')', f);
    } else {
        fputs(by == BY_ROLE ? "; the roles here: " : "; the tags here: ", f);
        put_all(f, s, by);
    }
}

/* The sentence, for malloc's free; NULL where memory is out. */
static char *unused_text(const scope *s, kind by, const char *pattern)
{
    static const char *const says[] = {"no tensor matches --tensor ", "no tensor has the role ",
                                       "no tensor matches --device "};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    for (size_t r = 0; r < s->count; r++) {
        const char *path = ckpt_reader_path(s->readers[r]);
        fputs(r ? " and " : "", f);
        cli_put(f, path, strlen(path));
    }
    fputs(": ", f);
    if (pattern) {
        fputs(says[by], f);
        put_quoted(f, (ckpt_str){pattern, strlen(pattern)});
        put_hint(f, s, by, pattern);
    } else {
        fputs("no tensor matches --tensor, --role and --device together, though each of them matches some", f);
    }
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* -1: permitted. */
static int refuse(const scope *s, kind by, const char *pattern)
{
    char *text = unused_text(s, by, pattern);
    int status = -1;
    if (!text)
        status = cli_fail(s->c, "no-memory", "out of memory");
    else if (s->c->allow_unused)
        cli_warn(s->c, "%s", text);
    else
        status = cli_fail(s->c, "not-found", "%s; --allow-unused permits that", text);
    free(text);
    return status;
}

int cli_selection_finds(const cli *c, const ckpt_reader *const *readers, size_t count)
{
    const cli_list *const lists[] = {&c->tensors, &c->roles, &c->devices};
    const scope s = {c, readers, count};
    ckpt_str first;
    bool all = true, some = !cli_has_selection(c);
    for (int by = BY_NAME; by <= BY_DEVICE; by++)
        for (size_t i = 0; i < lists[by]->count; i++) {
            if (named_by(&s, (kind)by, lists[by]->items[i], &first))
                continue;
            int status = refuse(&s, (kind)by, lists[by]->items[i]);
            all = false;
            if (status >= 0)
                return status;
        }
    for (size_t r = 0; r < count && !some; r++)
        for (size_t i = 0; i < ckpt_reader_tensor_count(readers[r]) && !some; i++)
            some = cli_selected(c, ckpt_reader_tensor(readers[r], i));
    return all && !some ? refuse(&s, BY_NAME, NULL) : -1;
}

char *cli_selection_hint(const cli *c, const ckpt_reader *reader, const char *name)
{
    const scope s = {c, &reader, 1};
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    put_hint(f, &s, BY_NAME, name);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* Up to the first number; else all but the last part. */
size_t cli_layer_size(ckpt_str name)
{
    size_t begin = 0, last = 0;
    for (size_t i = 0; i <= name.size; i++) {
        if (i < name.size && name.data[i] != '.')
            continue;
        size_t digits = 0;
        while (begin + digits < i && name.data[begin + digits] >= '0' && name.data[begin + digits] <= '9')
            digits++;
        if (digits > 0 && begin + digits == i && begin > 0)
            return i;
        if (i < name.size)
            last = i;
        begin = i + 1;
    }
    return last ? last : name.size;
}

ckpt_str cli_layer_name(const ckpt_reader *reader, const ckpt_naming *naming, size_t tensor)
{
    const ckpt_canonical *known = naming ? ckpt_naming_get(naming, tensor) : NULL;
    ckpt_str name = known && known->param.size  ? known->param
                    : known && known->name.size ? known->name
                                                : ckpt_reader_tensor(reader, tensor)->name;
    return name.data ? name : (ckpt_str){"", 0};
}

int cli_str_order(ckpt_str a, ckpt_str b)
{
    size_t n = a.size < b.size ? a.size : b.size;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}
