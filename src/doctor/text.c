/* doctor/text.c - messages and fixes from the rows' templates. */
#include "doctor/text.h"

#include <stdio.h>
#include "doctor/mends.h"

/* Is there what a terminal or a line of text would change: a control character, a byte that is not UTF-8? */
static bool is_odd(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return true;
    return !ckpt__utf8_valid(text, strlen(text));
}

/* $'...', of bash, ksh, zsh and POSIX of 2024. */
static void put_dollar(ckpt__buf *b, const char *text)
{
    bool utf8 = ckpt__utf8_valid(text, strlen(text));
    ckpt__buf_str(b, "$'");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\'' || c == '\\')
            ckpt__buf_printf(b, "\\%c", c);
        else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !utf8))
            ckpt__buf_printf(b, "\\%03o", c);
        else
            ckpt__buf_char(b, (char)c);
    }
    ckpt__buf_char(b, '\'');
}

void ckpt__put_shell(ckpt__buf *b, const char *text)
{
    if (text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:@%,")] == 0 && *text &&
        *text != '-') {
        ckpt__buf_str(b, text);
        return;
    }
    if (*text == '-')
        ckpt__buf_str(b, "./");
    if (is_odd(text)) {
        put_dollar(b, text);
        return;
    }
    ckpt__buf_char(b, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            ckpt__buf_str(b, "'\\''");
        else
            ckpt__buf_char(b, *text);
    }
    ckpt__buf_char(b, '\'');
}

static void put_escaped(ckpt__buf *b, const char *text, char quote)
{
    bool utf8 = ckpt__utf8_valid(text, strlen(text));
    ckpt__buf_char(b, quote);
    for (unsigned char before = 0; *text; before = (unsigned char)*text++) {
        unsigned char c = (unsigned char)*text;
        bool trigraph = quote == '"' && c == '?' && before == '?';
        if (c == (unsigned char)quote || c == '\\' || trigraph)
            ckpt__buf_printf(b, "\\%c", c);
        else if (c == '\n')
            ckpt__buf_str(b, "\\n");
        else if (c < 0x20 || c == 0x7f)
            ckpt__buf_printf(b, quote == '"' ? "\\%03o" : "\\x%02x", c);
        else if (c >= 0x80 && !utf8) /* as os.fsdecode has it */
            ckpt__buf_printf(b, quote == '"' ? "\\%03o" : "\\udc%02x", c);
        else
            ckpt__buf_char(b, (char)c);
    }
    ckpt__buf_char(b, quote);
}

void ckpt__put_python(ckpt__buf *b, const char *text)
{
    put_escaped(b, text, '\'');
}

void ckpt__put_c(ckpt__buf *b, const char *text)
{
    put_escaped(b, text, '"');
}

/* PATH.fixed, with the suffix that it had. */
static void put_target(ckpt__buf *b, const ckpt__examination *p)
{
    ckpt__buf path = {NULL, 0, 0, false};
    const char *from = p->path, *slash = strrchr(from, '/'), *base = slash ? slash + 1 : from,
               *dot = strrchr(base, '.');
    bool file = (!ckpt__index_is_directory(p->index) || p->path != p->reader->path) && dot && dot != base;
    size_t n = strlen(from);
    while (n > 1 && from[n - 1] == '/')
        n--;
    if (file)
        ckpt__buf_printf(&path, "%.*s.fixed%s", (int)(dot - from), from, dot);
    else
        ckpt__buf_printf(&path, "%.*s.fixed", (int)n, from);
    if (path.data && !path.failed)
        ckpt__put_shell(b, path.data);
    else
        b->failed = true;
    ckpt__buf_free(&path);
}

/* PATH and a suffix. */
static void put_beside(ckpt__buf *b, const ckpt__examination *p, const char *suffix)
{
    ckpt__buf path = {NULL, 0, 0, false};
    size_t n = strlen(p->path);
    while (n > 1 && p->path[n - 1] == '/')
        n--;
    ckpt__buf_printf(&path, "%.*s%s", (int)n, p->path, suffix);
    if (path.data && !path.failed)
        ckpt__put_shell(b, path.data);
    else
        b->failed = true;
    ckpt__buf_free(&path);
}

/* The command that mends the row's code by a rewrite. */
static void put_mend(ckpt__buf *b, const ckpt__examination *p, const ckpt__row *row)
{
    const ckpt__mend *mend = ckpt__mend_of(row->code);
    if (!mend)
        return;
    ckpt__buf_printf(b, "ckpt-migrate --fix %s ", mend->code);
    if (mend->how == CKPT__MEND_DEVICE_OBJECTS)
        ckpt__buf_str(b, "--map-location 'cuda:*=cuda:0' ");
    /* where cuda:0 is not there either, or the tags are none of cuda's */
    else if (mend->how == CKPT__MEND_DEVICES && (p->cuda_devices == 0 || row->fact == CKPT__NO_SUCH_BACKEND))
        ckpt__buf_str(b, "--map-location cpu ");
    ckpt__buf_str(b, "--to same ");
    ckpt__put_shell(b, p->path);
    ckpt__buf_char(b, ' ');
    put_target(b, p);
}

/* What a checkpoint said: it must not begin another alternative of a fix. */
static void put_value(ckpt__buf *b, const char *text)
{
    for (; *text; text++)
        ckpt__buf_char(b, *text > 0 && *text < 0x20 ? '?' : *text);
}

/* A tensor of that name, for --drop. */
static void put_drop(ckpt__buf *b, const char *name)
{
    ckpt__buf text = {NULL, 0, 0, false};
    ckpt__buf_char(&text, '=');
    put_value(&text, name);
    if (text.data && !text.failed)
        ckpt__put_shell(b, text.data);
    else
        b->failed = true;
    ckpt__buf_free(&text);
}

static bool put_key(ckpt__buf *b, ckpt_str key, const ckpt__examination *p, const ckpt__row *row, const ckpt__found *f)
{
    bool directory = ckpt__index_is_directory(p->index) && p->path == p->reader->path; /* else a file of it */
    if (ckpt__str_is(key, "n"))
        ckpt__buf_printf(b, "%llu", (unsigned long long)f->count);
    else if (ckpt__str_is(key, "s"))
        ckpt__buf_str(b, f->count == 1 ? "" : "s");
    else if (ckpt__str_is(key, "es"))
        ckpt__buf_str(b, f->count == 1 ? "s" : "");
    else if (ckpt__str_is(key, "have"))
        ckpt__buf_str(b, f->count == 1 ? "has" : "have");
    else if (ckpt__str_is(key, "are"))
        ckpt__buf_str(b, f->count == 1 ? "is" : "are");
    else if (ckpt__str_is(key, "were"))
        ckpt__buf_str(b, f->count == 1 ? "was" : "were");
    else if (ckpt__str_is(key, "a"))
        put_value(b, f->a);
    else if (ckpt__str_is(key, "b"))
        put_value(b, f->b);
    else if (ckpt__str_is(key, "c"))
        put_value(b, f->c);
    else if (ckpt__str_is(key, "path"))
        ckpt__put_shell(b, p->path);
    else if (ckpt__str_is(key, "py"))
        ckpt__put_python(b, p->path);
    else if (ckpt__str_is(key, "file") && !directory)
        ckpt__put_python(b, p->path);
    else if (ckpt__str_is(key, "file")) /* one of its files: which is not known */
        ckpt__buf_str(b, "...");
    else if (ckpt__str_is(key, "drop"))
        put_drop(b, f->c);
    else if (ckpt__str_is(key, "dst"))
        put_target(b, p);
    else if (ckpt__str_is(key, "torch"))
        put_beside(b, p, ".pt");
    else if (ckpt__str_is(key, "repair"))
        put_mend(b, p, row);
    else if (ckpt__str_is(key, "version"))
        ckpt__buf_printf(b, "%d.%d", p->result->torch_major, p->result->torch_minor);
    else if (ckpt__str_is(key, "loader"))
        ckpt__buf_str(b, p->loader->name);
    else
        return false;
    return true;
}

void ckpt__doctor_expand(ckpt__buf *b, const char *text, const ckpt__examination *p, const ckpt__row *row,
                         const ckpt__found *f)
{
    for (; text && *text; text++) {
        size_t n = *text == '{' ? strcspn(text, "}") : 0;
        ckpt_str key = {text + 1, n > 0 ? n - 1 : 0};
        if (n == 0 || !text[n] || !put_key(b, key, p, row, f)) {
            ckpt__buf_char(b, *text);
            continue;
        }
        text += n;
    }
    if (!b->data && !b->failed)
        ckpt__buf_str(b, "");
}
