/* inspect/extract_choose.c - which tensors the NAMEs of extract are: names, globs, names as a state calls them, ends of names. */
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/extract.h"

typedef struct search {
    const command_line *o;
    const ckpt_reader *reader;
    ckpt_naming *naming; /* made when it is asked for first; NULL before, and where it cannot be made */
    bool asked;
    bool *taken; /* per tensor */
    chosen *out;
} search;

static ckpt_str name_of(const search *s, size_t i)
{
    return ckpt_reader_tensor(s->reader, i)->name;
}

static bool is_text(ckpt_str s, const char *text, size_t size)
{
    return s.data && s.size == size && memcmp(s.data, text, size) == 0;
}

static void add(search *s, size_t i)
{
    if (!s->taken[i])
        s->out->tensors[s->out->count++] = i;
    s->taken[i] = true;
}

/* Has it elements of its own? Else it is on meta, or is not dense: its parts, which follow it, have them. */
static bool has_data(const search *s, size_t i)
{
    return ckpt_reader_tensor(s->reader, i)->nbytes == 0 || ckpt_reader_piece_count(s->reader, i) > 0;
}

/* Keys such as {"a.b": ...} and {"a": {"b": ...}} give one name. */
static void warn_of_others(const search *s, const char *text, size_t i)
{
    size_t others = 0;
    ckpt_str name = name_of(s, i);
    for (size_t k = 0; k < ckpt_reader_tensor_count(s->reader); k++)
        others += k != i && is_text(name_of(s, k), name.data, name.size);
    if (others)
        cli_warn(&s->o->cli, "%s: %s: %zu more have this name; the first in the file was taken", s->o->paths[0], text,
                 others);
}

static bool by_name(search *s, const char *text)
{
    size_t i;
    ckpt_error err = CKPT_ERROR_INIT;
    if (ckpt_reader_find(s->reader, text, strlen(text), &i, &err) != CKPT_OK)
        return false;
    warn_of_others(s, text, i);
    add(s, i);
    return true;
}

/* As --tensor has it. What has no elements to write is passed over, and counted. */
static bool by_glob(search *s, const char *text)
{
    const char *items[] = {text};
    const cli_list pattern = {items, 1};
    size_t found = 0, passed = 0;
    for (size_t i = 0; i < ckpt_reader_tensor_count(s->reader); i++) {
        if (!cli_names(&pattern, name_of(s, i)))
            continue;
        found++;
        if (has_data(s, i))
            add(s, i);
        else
            passed++;
    }
    if (passed && found > passed)
        cli_warn(&s->o->cli, "%s: '%s': %zu tensor%s skipped: %s no elements of %s own (not dense, or on meta)",
                 s->o->paths[0], text, passed, passed == 1 ? "" : "s", passed == 1 ? "it has" : "they have",
                 passed == 1 ? "its" : "their");
    s->out->by_glob |= found > passed;
    return found > passed;
}

static void say_taken(const search *s, const char *text, size_t i, const char *why)
{
    ckpt_str name = name_of(s, i);
    cli_warn(&s->o->cli, "%s: '%s' is taken to be %.*s, %s", s->o->paths[0], text,
             (int)(name.size < 900 ? name.size : 900), name.data, why);
}

/* The one tensor that a state calls so. */
static bool by_state(search *s, const char *text)
{
    size_t tensor = 0, found = 0;
    if (!s->asked && ckpt_naming_new(s->reader, NULL, &s->naming, NULL, NULL) < 0)
        s->naming = NULL; /* the names that the file has will do */
    s->asked = true;
    for (size_t i = 0; s->naming && i < ckpt_reader_tensor_count(s->reader); i++) {
        const ckpt_canonical *known = ckpt_naming_get(s->naming, i);
        if (known && is_text(known->name, text, strlen(text)) && !found++)
            tensor = i;
    }
    if (found != 1)
        return false;
    say_taken(s, text, tensor, "which a state calls so");
    add(s, tensor);
    return true;
}

/* The one tensor whose name ends so, at a dot. */
static bool by_end(search *s, const char *text)
{
    const size_t n = strlen(text);
    size_t tensor = 0, found = 0;
    for (size_t i = 0; n && i < ckpt_reader_tensor_count(s->reader); i++) {
        ckpt_str name = name_of(s, i);
        if (name.size > n + 1 && name.data[name.size - n - 1] == '.' &&
            memcmp(name.data + name.size - n, text, n) == 0 && !found++)
            tensor = i;
    }
    if (found != 1)
        return false;
    say_taken(s, text, tensor, "the one tensor whose name ends so");
    add(s, tensor);
    return true;
}

static int not_found(const search *s, const char *text)
{
    char *hint = cli_selection_hint(&s->o->cli, s->reader, text);
    int status =
        cli_fail(&s->o->cli, "not-found", "%s: no tensor is called '%s'%s", s->o->paths[0], text, hint ? hint : "");
    free(hint);
    return status;
}

int extract_choose(const command_line *o, const ckpt_reader *reader, chosen *out)
{
    const size_t n = ckpt_reader_tensor_count(reader);
    search s = {.o = o, .reader = reader, .out = out, .taken = calloc(n + 1, sizeof *s.taken)};
    int status = -1;
    *out = (chosen){.tensors = calloc(n + 1, sizeof *out->tensors)};
    if (!s.taken || !out->tensors)
        status = cli_fail(&o->cli, "no-memory", "out of memory for %zu tensors", n);
    for (int i = 0; status < 0 && i < o->name_count; i++) {
        const char *text = o->names[i];
        const bool literal = *text == '=';
        if (!(literal && by_name(&s, text + 1)) && !by_name(&s, text) &&
            !(!literal && strpbrk(text, "*?\\") && by_glob(&s, text)) && !by_state(&s, text) && !by_end(&s, text))
            status = not_found(&s, text);
    }
    ckpt_naming_free(s.naming);
    free(s.taken);
    return status;
}
