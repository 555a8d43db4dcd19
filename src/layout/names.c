/* layout/names.c - names with captures: "layers.<i>.weight". A name matches in one way or not at all, so that no rule guesses:
 * <i> is all digits that stand there, without a zero in front; <x:word> is all up to the next dot; <x:rest> is all that what follows
 * it leaves. */
#include "layout/parts.h"

typedef struct form_reading {
    ckpt_str text;
    size_t at;
    ckpt__arena *a;
    ckpt__name_part parts[2 * CKPT__LAYOUT_CAPTURES + 1];
    size_t count, captures;
    const char *what;
} form_reading;

static ckpt__name_part *last_part(form_reading *r)
{
    return r->count ? &r->parts[r->count - 1] : NULL;
}

/* What follows a capture has to end it. */
static const char *wrong_after(const ckpt__name_part *last, char next)
{
    if (last->kind == CKPT__NUMBER && next >= '0' && next <= '9')
        return "a digit follows a number that is captured: nobody could tell where the number ends";
    if (last->kind == CKPT__WORD && next != '.')
        return "a dot has to follow a captured word, or the end";
    return NULL;
}

static bool read_literal(form_reading *r)
{
    const size_t first = r->at;
    const ckpt__name_part *last = last_part(r);
    while (r->at < r->text.size && r->text.data[r->at] != '<' && r->text.data[r->at] != '>')
        r->at++;
    if (r->at < r->text.size && r->text.data[r->at] == '>') {
        r->what = "there is no < for this >";
        return false;
    }
    if (last && (r->what = wrong_after(last, r->text.data[first])))
        return r->at = first, false;
    ckpt_str text = ckpt__arena_str(r->a, r->text.data + first, r->at - first);
    r->parts[r->count++] = (ckpt__name_part){CKPT__LITERAL, text};
    return text.data != NULL;
}

static bool read_kind(form_reading *r, ckpt_str inside, ckpt__name_part *out)
{
    const char *colon = inside.size ? memchr(inside.data, ':', inside.size) : NULL;
    ckpt_str name = {inside.data, colon ? (size_t)(colon - inside.data) : inside.size};
    ckpt_str kind = colon ? (ckpt_str){colon + 1, inside.size - name.size - 1} : ckpt__s("number");
    out->kind = ckpt__str_is(kind, "number") ? CKPT__NUMBER
                : ckpt__str_is(kind, "word") ? CKPT__WORD
                : ckpt__str_is(kind, "rest") ? CKPT__REST
                                             : CKPT__LITERAL;
    if (!ckpt__formula_is_name(name))
        r->what = "the name of a capture is a letter or _, and then letters, digits and _";
    else if (out->kind == CKPT__LITERAL)
        r->what = "a capture is <name>, which is a number, <name:word> or <name:rest>";
    for (size_t i = 0; i < r->count && !r->what; i++)
        if (r->parts[i].kind != CKPT__LITERAL && ckpt__str_equal(r->parts[i].text, name))
            r->what = "a name captures this twice";
    if (r->what)
        return false;
    out->text = ckpt__arena_str(r->a, name.data, name.size);
    return out->text.data != NULL;
}

static bool read_capture(form_reading *r)
{
    const char *from = r->text.data + r->at + 1;
    const char *end = memchr(from, '>', r->text.size - r->at - 1);
    const ckpt__name_part *last = last_part(r);
    if (!end)
        r->what = "there is no > for this <";
    else if (last && last->kind != CKPT__LITERAL)
        r->what = "two captures side by side: nobody could tell where the first one ends";
    else if (r->captures == CKPT__LAYOUT_CAPTURES)
        r->what = "more than 8 captures";
    if (r->what || !read_kind(r, (ckpt_str){from, (size_t)(end - from)}, &r->parts[r->count]))
        return false;
    r->count++;
    r->captures++;
    r->at += (size_t)(end - from) + 2;
    return true;
}

bool ckpt__name_form_parse(ckpt__arena *a, ckpt_str text, ckpt__name_form *out, size_t *at, const char **what)
{
    form_reading r = {.text = text, .a = a};
    bool fine = true, rest = false;
    if (!text.size)
        r.what = "a name is expected";
    while (fine && !r.what && r.at < text.size) {
        if (rest && (r.parts[r.count - 1].kind == CKPT__LITERAL || text.data[r.at] == '<')) {
            r.what = "only a fixed text may follow <...:rest>";
            break;
        }
        fine = text.data[r.at] == '<' ? read_capture(&r) : read_literal(&r);
        rest = rest || (fine && r.parts[r.count - 1].kind == CKPT__REST);
    }
    *at = r.at;
    *what = r.what;
    if (!fine || r.what)
        return false;
    out->text = ckpt__arena_str(a, text.data, text.size);
    out->parts = ckpt__arena_array(a, r.count, sizeof *out->parts);
    out->count = r.count;
    out->captures = r.captures;
    if (!out->text.data || !out->parts)
        return false;
    memcpy(out->parts, r.parts, r.count * sizeof *r.parts);
    return true;
}

/* Bytes of a capture at the beginning of `s`; 0: it is not there. */
static size_t capture_size(const ckpt__name_form *form, size_t part, ckpt_str s)
{
    size_t n = 0;
    switch (form->parts[part].kind) {
    case CKPT__NUMBER:
        while (n < s.size && s.data[n] >= '0' && s.data[n] <= '9')
            n++;
        return n > 18 || (n > 1 && s.data[0] == '0') ? 0 : n;
    case CKPT__WORD:
        while (n < s.size && s.data[n] != '.')
            n++;
        return n;
    default: { /* the rest: but for the text behind it */
        const size_t tail = part + 1 < form->count ? form->parts[part + 1].text.size : 0;
        return s.size > tail ? s.size - tail : 0;
    }
    }
}

bool ckpt__name_form_match(const ckpt__name_form *form, ckpt_str name, ckpt__captured *out)
{
    ckpt_str s = name;
    out->count = 0;
    for (size_t i = 0; i < form->count; i++) {
        const ckpt__name_part *p = &form->parts[i];
        size_t n = p->kind == CKPT__LITERAL ? p->text.size : capture_size(form, i, s);
        if (n == 0 || n > s.size || (p->kind == CKPT__LITERAL && memcmp(s.data, p->text.data, n) != 0))
            return false;
        if (p->kind != CKPT__LITERAL) {
            out->name[out->count] = p->text;
            out->text[out->count++] = (ckpt_str){s.data, n};
        }
        s.data += n;
        s.size -= n;
    }
    return s.size == 0;
}

void ckpt__name_form_fill(const ckpt__name_form *form, const ckpt__captured *with, ckpt__buf *out)
{
    for (size_t i = 0; i < form->count; i++) {
        const ckpt__name_part *p = &form->parts[i];
        if (p->kind == CKPT__LITERAL)
            ckpt__buf_add(out, p->text.data, p->text.size);
        for (size_t k = 0; p->kind != CKPT__LITERAL && k < with->count; k++)
            if (ckpt__str_equal(with->name[k], p->text))
                ckpt__buf_add(out, with->text[k].data, with->text[k].size);
    }
}

bool ckpt__name_form_has(const ckpt__name_form *form, ckpt_str capture)
{
    for (size_t i = 0; i < form->count; i++)
        if (form->parts[i].kind != CKPT__LITERAL && ckpt__str_equal(form->parts[i].text, capture))
            return true;
    return false;
}
