/* scan/pickle.c - pickles: which bytes are one, what they name, and what lies in their strings. */
#include "scan/work.h"

#include <stdlib.h>

enum { HEAD = 512, PEEK_ALL = 4096, SMALLEST = 6 }; /* "cx\ny\n." is the shortest pickle that imports something */

/* ---- what calls say beyond names */

enum { ATTRIBUTES_MAX = 32 };

/* getattr(class, 'name') is how Python pickles members of an enum, and what a dotted name of protocol 4 is. */
typedef struct attribute {
    ckpt__buf text; /* module, class.name */
    size_t module_size;
} attribute;

typedef struct context {
    ckpt__scan_job *job;
    const ckpt__scan_span *span;
    bool odd_codec, odd_bytes;
    bool odd_getattr; /* of what is no global, or of a name that is not known, or more often than is noted */
    attribute attributes[ATTRIBUTES_MAX];
    size_t attribute_count;
} context;

static bool is_global(const ckpt__walk_global *g, const char *module, const char *name)
{
    return g && ckpt__str_is(g->module, module) && ckpt__str_is(g->name, name);
}

/* Codecs after which the bytes are those that stand in the pickle, in one of the two ways in which strings are looked
 * at. */
static bool is_plain_codec(ckpt_str s)
{
    static const char *const names[] = {"latin1", "latin-1", "latin_1", "iso-8859-1",
                                        "utf-8",  "utf8",    "utf_8",   "ascii"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ckpt__str_is(s, names[i]))
            return true;
    return false;
}

static bool is_getattr(const ckpt__walk_global *g)
{
    return is_global(g, "builtins", "getattr") || is_global(g, "__builtin__", "getattr");
}

static void note_attribute(context *c, const ckpt__walk_call *call)
{
    const ckpt__walk_global *of = call->argument_count == 2 ? call->arguments[0].global : NULL;
    ckpt_str name = call->arguments[1].text;
    if (!of || !of->module.data || !of->name.data || !name.data || c->attribute_count == ATTRIBUTES_MAX) {
        c->odd_getattr = true;
        return;
    }
    attribute *a = &c->attributes[c->attribute_count];
    a->text.size = 0;
    ckpt__buf_add(&a->text, of->module.data, of->module.size);
    ckpt__buf_add(&a->text, of->name.data, of->name.size);
    ckpt__buf_char(&a->text, '.');
    ckpt__buf_add(&a->text, name.data, name.size);
    a->module_size = of->module.size;
    c->attribute_count += !a->text.failed;
    c->odd_getattr |= a->text.failed;
}

static void free_context(context *c)
{
    for (size_t i = 0; i < ATTRIBUTES_MAX; i++)
        ckpt__buf_free(&c->attributes[i].text);
}

/* _codecs.encode gives bytes of a string, and so are bytes written by protocols 0 to 2. Through another codec a string
 * may become a pickle that nobody can see in it. */
static int on_call(void *ctx, const ckpt__walk_call *call)
{
    context *c = ctx;
    const ckpt__walk_global *g = call->global;
    bool bytes = is_global(g, "builtins", "bytearray") || is_global(g, "__builtin__", "bytearray") ||
                 is_global(g, "builtins", "bytes") || is_global(g, "__builtin__", "bytes");
    if (bytes && call->argument_count < 2)
        return 0;
    if (bytes || is_global(g, "_codecs", "encode") || is_global(g, "codecs", "encode")) {
        bool plain = /* a third argument may have it leave characters out */
            call->argument_count == 1 || (call->argument_count == 2 && call->arguments[1].kind == CKPT__WALK_TEXT &&
                                          is_plain_codec(call->arguments[1].text));
        c->odd_codec |= !plain;
        return plain ? 0 : -1;
    }
    if (is_getattr(g))
        note_attribute(c, call);
    if (is_global(g, "torch.storage", "_load_from_bytes"))
        c->odd_bytes |= call->argument_count < 1 ||
                        (call->arguments[0].kind != CKPT__WALK_TEXT && call->arguments[0].kind != CKPT__WALK_LITERAL);
    return -1;
}

/* ---- strings */

/* A string of characters up to U+00FF is how bytes are written by protocols 0 to 2: those bytes. false: it is none
 * such. */
static bool as_latin1(const char *text, size_t n, ckpt__buf *out)
{
    bool other = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x80) {
            if ((c != 0xC2 && c != 0xC3) || i + 1 == n || ((unsigned char)text[i + 1] & 0xC0) != 0x80)
                return out->size > 0 && i + 1 == n && other; /* a head may end within a character */
            c = (unsigned char)((c & 3) << 6 | ((unsigned char)text[++i] & 0x3F));
            other = true;
        }
        ckpt__buf_char(out, (char)c);
    }
    return other;
}

static char *literal_label(const ckpt__scan_span *span, uint64_t at)
{
    char name[48] = "bytes@";
    size_t n = 6;
    char digits[24];
    size_t d = sizeof digits;
    do
        digits[--d] = (char)('0' + at % 10);
    while ((at /= 10));
    memcpy(name + n, digits + d, sizeof digits - d);
    return ckpt__scan_label(span->label, name, n + sizeof digits - d);
}

/* Bytes that were made of a string are looked at later; they are taken over. */
static ckpt_status push_memory(context *c, uint64_t at, ckpt__buf *bytes)
{
    uint64_t size = bytes->size;
    ckpt__scan_view *view = bytes->failed ? NULL : ckpt__scan_view_memory(c->job, bytes);
    if (!view) {
        ckpt__buf_free(bytes);
        return ckpt__fail_memory(c->job->err, c->span->label, size);
    }
    return ckpt__scan_push(c->job, (ckpt__scan_span){.view = view,
                                                     .size = size,
                                                     .label = literal_label(c->span, at),
                                                     .depth = c->span->depth + 1,
                                                     .literal = true});
}

static bool matters(context *c, const ckpt__buf *head, uint64_t size)
{
    return head->data && ckpt__scan_may_matter(c->job, (const unsigned char *)head->data, head->size, size);
}

/* Does the string, as bytes or as what its characters stand for, begin like something of interest? */
static ckpt_status consider(context *c, const ckpt__walk_literal *l, const char *head, size_t n, bool *plain,
                            bool *latin1)
{
    ckpt__buf text = {0}, decoded = {0};
    bool line = l->form == CKPT__WALK_STRING_LINE || l->form == CKPT__WALK_UNICODE_LINE;
    uint64_t size = n < l->size ? UINT64_MAX : 0;
    if (line)
        ckpt__walk_unescape(l->form, head, n, &text);
    else
        ckpt__buf_add(&text, head, n);
    *plain = matters(c, &text, size ? size : text.size);
    *latin1 = (l->form == CKPT__WALK_STR || l->form == CKPT__WALK_UNICODE_LINE) && text.data &&
              as_latin1(text.data, text.size, &decoded) && matters(c, &decoded, size ? size : decoded.size);
    bool failed = text.failed || decoded.failed;
    ckpt__buf_free(&text);
    ckpt__buf_free(&decoded);
    return failed ? ckpt__fail_memory(c->job->err, c->span->label, n) : CKPT_OK;
}

/* The whole of it as bytes in memory: unescaped, and as Latin-1 where that is wanted. */
static ckpt_status push_decoded(context *c, const ckpt__walk_literal *l, bool latin1)
{
    ckpt__buf raw = {0}, text = {0}, decoded = {0};
    bool line = l->form == CKPT__WALK_STRING_LINE || l->form == CKPT__WALK_UNICODE_LINE;
    if (l->size > CKPT__SCAN_STREAM_MAX || c->job->memory + l->size > c->job->memory_max)
        return ckpt__scan_limit(c->job, c->span->label, "it has longer strings than are decoded");
    if (!ckpt__buf_reserve(&raw, (size_t)l->size + 1))
        return ckpt__fail_memory(c->job->err, c->span->label, l->size);
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    if (ckpt__scan_view_read(c->job, c->span->view, c->span->at + l->offset, raw.data, (size_t)l->size, &why) < 0) {
        ckpt__buf_free(&raw);
        return ckpt__scan_limit(c->job, c->span->label, why.message);
    }
    raw.size = (size_t)l->size;
    if (line) {
        ckpt__walk_unescape(l->form, raw.data, raw.size, &text);
        ckpt__buf_free(&raw);
    } else
        text = raw;
    if (latin1 && !text.failed && as_latin1(text.data ? text.data : "", text.size, &decoded))
        status = push_memory(c, l->offset, &decoded);
    if (status == CKPT_OK && line)
        status = push_memory(c, l->offset, &text);
    ckpt__buf_free(&text);
    ckpt__buf_free(&decoded);
    return status;
}

static ckpt_status on_literal(void *ctx, const ckpt__walk_literal *l)
{
    context *c = ctx;
    unsigned char head[HEAD];
    const char *data = l->data;
    size_t n = l->size < HEAD ? (size_t)l->size : HEAD;
    bool plain, latin1;
    if (l->size < SMALLEST)
        return CKPT_OK;
    if (!data) {
        n = ckpt__scan_head(c->job, c->span, l->offset, head, n);
        data = (const char *)head;
    } else if (l->size <= PEEK_ALL)
        n = (size_t)l->size;
    ckpt_status status = consider(c, l, data, n, &plain, &latin1);
    if (status < 0 || !(plain || latin1))
        return status;
    bool line = l->form == CKPT__WALK_STRING_LINE || l->form == CKPT__WALK_UNICODE_LINE;
    if (c->span->depth >= CKPT__SCAN_DEPTH)
        return ckpt__scan_limit(c->job, c->span->label, "it is nested deeper than scan reads");
    if (line || latin1)
        status = push_decoded(c, l, latin1);
    if (status == CKPT_OK && plain && !line)
        status = ckpt__scan_push(c->job, (ckpt__scan_span){.view = ckpt__scan_view_keep(c->span->view),
                                                           .at = c->span->at + l->offset,
                                                           .size = l->size,
                                                           .label = literal_label(c->span, l->offset),
                                                           .depth = c->span->depth + 1,
                                                           .literal = true});
    return status;
}

/* ---- which bytes are a pickle */

/* A name, with dots, that an import could find. */
static bool is_name(ckpt_str s)
{
    if (s.size == 0 || s.size > 300)
        return false;
    for (size_t i = 0; i < s.size; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool letter = (c | 32) >= 'a' && (c | 32) <= 'z', digit = c >= '0' && c <= '9';
        if (!letter && !digit && c != '_' && c < 0x80 && c != '.')
            return false;
    }
    return true;
}

static bool has_dangerous(const ckpt__walk *w)
{
    const char *reason;
    for (size_t i = 0; i < w->count; i++)
        if (w->globals[i].module.data && w->globals[i].name.data &&
            ckpt__scan_judge(w->globals[i].module, w->globals[i].name, &reason) == CKPT_DANGER_DANGEROUS)
            return true;
    return false;
}

static bool names_module(const ckpt__walk *w, const char *module)
{
    for (size_t i = 0; i < w->count; i++)
        if (ckpt__str_is(w->globals[i].module, module))
            return true;
    return false;
}

/* Could the first global be imported, or one that is called? What comes later may be there to look like no pickle. */
static bool names_are_names(const ckpt__walk *w)
{
    for (size_t i = 0; i < w->count; i++) {
        const ckpt__walk_global *g = &w->globals[i];
        if ((i == 0 || g->calls > 0) && (!g->module.data || is_name(g->module)) && (!g->name.data || is_name(g->name)))
            return true;
    }
    return false;
}

/* Is at least one known by name? */
static bool has_names(const ckpt__walk *w)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->globals[i].module.data && w->globals[i].name.data)
            return true;
    return false;
}

/* Bytes that do not begin as a pickle does, and that name nothing that could be imported, are most likely none: a text,
 * a payload. Where no unpickler comes to their end either, they count where they would have called something by then.
 * strict: nothing but their bytes says that they are one. */
static bool is_pickle(const ckpt__walk *w, bool strict)
{
    if (w->torn && w->opcodes > 1)
        return true; /* no writer does so, and no payload by chance */
    bool names = w->count > 0 && (has_dangerous(w) || (names_are_names(w) && (!strict || has_names(w))));
    if (w->stopped)
        return w->proto || names || (w->count == 0 && w->opcodes > 1 && !strict);
    if (w->proto)
        return w->count > 0 || w->opcodes > (strict ? 8 : 1);
    return names && w->calls > 0;
}

bool ckpt__scan_may_matter(ckpt__scan_job *job, const unsigned char *head, size_t n, uint64_t size)
{
    ckpt__scan_memory memory = {head, n};
    if (size < SMALLEST || n < 2)
        return false;
    if (ckpt__scan_is_container(head, n))
        return true;
    bool all = n >= size;
    if (all && head[0] != 0x80 && !memchr(head, '\n', n) && !memchr(head, 0x93, n) && !memchr(head, 0x82, n) &&
        !memchr(head, 0x83, n) && !memchr(head, 0x84, n))
        return false; /* nothing is imported without one of these */
    ckpt__walk w;
    const ckpt__pickle_input in = {ckpt__scan_read_memory, &memory, n};
    if (ckpt__pickle_walk(job->peeker, &in, 0, NULL, &w, NULL) < 0)
        return true;
    return w.stopped || w.torn || w.count > 0 || (w.trouble == CKPT__WALK_CUT_OFF && !all);
}

/* ---- findings */

static const char *why_ended(const ckpt__walk *w)
{
    switch (w->trouble) {
    case CKPT__WALK_CUT_OFF:
        return "the bytes end inside it";
    case CKPT__WALK_NO_OPCODE:
        return "a byte that is not an opcode of protocols 0 to 5";
    case CKPT__WALK_UNDERFLOW:
        return "it takes what was never put on its stack or into its memo";
    case CKPT__WALK_LIMIT:
        return "it is deeper than is followed";
    default:
        return w->why.message;
    }
}

static ckpt_status note_end(context *c, const ckpt__walk *w)
{
    if (w->trouble == CKPT__WALK_LIMIT || (w->trouble == CKPT__WALK_READ && w->why.status == CKPT_E_LIMIT))
        return ckpt__scan_limit(c->job, c->span->label, why_ended(w));
    if (w->trouble == CKPT__WALK_READ)
        return ckpt__scan_note(c->job, "scan-unreadable", c->span->label, "copy the file and scan it again",
                               "cannot be read: %s", why_ended(w));
    return ckpt__scan_note(
        c->job, "scan-damaged", c->span->label, "take a whole copy, or none of it",
        "a pickle in it ends at byte %llu, opcode 0x%02x, and not with STOP: %s; what it would have done after "
        "that is not known",
        (unsigned long long)w->end, w->opcode, why_ended(w));
}

static ckpt_status note_odd(context *c, const ckpt__walk *w)
{
    ckpt_status status = CKPT_OK;
    if (w->torn)
        status = ckpt__scan_note(
            c->job, "scan-damaged", c->span->label, "do not load it",
            "something in a pickle reaches over the end of its frame, which no writer does and which unpicklers read in "
            "different ways: what it names was read in one of them");
    if (status == CKPT_OK && c->odd_codec)
        status = ckpt__scan_note(
            c->job, "scan-encoded", c->span->label, "look at it by hand, and do not load it",
            "encodes a string by another codec than Latin-1 and UTF-8, or by an unknown one: the resulting bytes were not checked");
    if (status == CKPT_OK && c->odd_bytes)
        status = ckpt__scan_note(
            c->job, "scan-bytes", c->span->label, "look at it by hand, and do not load it",
            "torch.storage._load_from_bytes unpickles bytes that do not stand in the file: they are computed, "
            "and were not seen");
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const ckpt__walk_global *g = &w->globals[i];
        if (g->build)
            status = ckpt__scan_note(
                c->job, "scan-build", c->span->label, "do not load it",
                "sets attributes of a global itself, not of an object: that changes the class or module for "
                "the whole program");
        if (status == CKPT_OK && !(g->module.data && g->name.data) && !g->extension)
            status = ckpt__scan_note(
                c->job, "scan-computed", c->span->label, "look at it by hand, and do not load it",
                "the name of a global is computed or longer than 4096 bytes: which one it is was not found "
                "out (byte %llu)",
                (unsigned long long)g->position);
    }
    return status;
}

/* Where all calls of getattr are of a known attribute of a global, and it is passed on to nobody, those attributes are
 * what counts, and not getattr. */
static ckpt_status take(context *c, const ckpt__walk *w)
{
    ckpt_status status = CKPT_OK;
    ckpt__scan_count_pickle(c->job);
    for (size_t i = 0; status == CKPT_OK && i < w->count; i++) {
        const ckpt__walk_global *g = &w->globals[i];
        bool plain = is_getattr(g) && !c->odd_getattr && g->uses == g->calls && g->calls > 0;
        status = ckpt__scan_add(c->job, c->span->label, g, plain);
        for (size_t k = 0; status == CKPT_OK && is_getattr(g) && k < c->attribute_count; k++) {
            const attribute *a = &c->attributes[k];
            ckpt__walk_global made = {.position = g->position, .count = 1};
            made.module = (ckpt_str){a->text.data, a->module_size};
            made.name = (ckpt_str){a->text.data + a->module_size, a->text.size - a->module_size};
            status = ckpt__scan_add(c->job, c->span->label, &made, false);
        }
    }
    if (status == CKPT_OK)
        status = note_odd(c, w);
    return status;
}

static ckpt_status walk_at(context *c, uint64_t at, bool strings, ckpt__walk *w)
{
    ckpt__scan_input input = {c->job, c->span};
    const ckpt__pickle_input in = {ckpt__scan_read, &input, c->span->size};
    const ckpt__walk_sink sink = {on_call, strings ? on_literal : NULL, c};
    c->odd_codec = c->odd_bytes = c->odd_getattr = false;
    c->attribute_count = 0;
    return ckpt__pickle_walk(c->job->walker, &in, at, &sink, w, c->job->err);
}

ckpt_status ckpt__scan_pickles(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t *end)
{
    context c = {.job = job, .span = span};
    ckpt_status status = CKPT_OK;
    uint64_t at = from;
    bool any = false, broken = false;
    while (status == CKPT_OK && at < span->size && !broken) {
        ckpt__walk w;
        status = walk_at(&c, at, true, &w);
        if (status < 0)
            break;
        bool one = is_pickle(&w, span->depth > 0 && !span->named_pickle),
             odd = w.trouble == CKPT__WALK_READ || w.trouble == CKPT__WALK_LIMIT;
        broken = !w.stopped;
        if (one)
            status = take(&c, &w);
        /* In an archive without a directory nothing says where a record ends. */
        bool wanted = one || odd || (span->named_pickle && at == from);
        if (status == CKPT_OK && broken && wanted && !(span->hunted && any))
            status = note_end(&c, &w);
        any |= one;
        bool arrays = one && broken && names_module(&w, "joblib.numpy_pickle");
        if (w.stopped || one)
            at = w.end;
        if (status == CKPT_OK && arrays)
            status = ckpt__scan_skim(job, span, at, span->size, true);
    }
    *end = any ? at : from;
    free_context(&c);
    return status;
}

/* ---- where nothing says that a pickle begins */

static ckpt_status try_at(context *c, uint64_t at, uint64_t *next)
{
    unsigned char head[HEAD];
    ckpt__walk w;
    size_t n = ckpt__scan_head(c->job, c->span, at, head, sizeof head);
    *next = at + 1;
    if (!ckpt__scan_may_matter(c->job, head, n, c->span->size - at))
        return CKPT_OK;
    ckpt_status status = walk_at(c, at, false, &w);
    bool one =
        status == CKPT_OK && names_are_names(&w) && has_names(&w) && (w.stopped || w.calls > 0 || has_dangerous(&w));
    if (!one)
        return status;
    status = walk_at(c, at, true, &w); /* now with its strings */
    if (status == CKPT_OK)
        status = take(c, &w);
    *next = w.end > at ? w.end : at + 1;
    return status;
}

/* The bytes from `at` on that may begin a pickle; or, where arrays lie between the opcodes of one, that may name a
 * global. */
static bool may_begin(const unsigned char *p, bool loose)
{
    if (p[0] == 0x80)
        return p[1] >= 1 && p[1] <= 5;
    return loose && (p[0] == 'c' || p[0] == 'i' || p[0] == 0x8c);
}

/* Tries all places of a window. *next: where to go on. */
static ckpt_status skim_window(context *c, const unsigned char *window, size_t n, uint64_t at, bool loose,
                               uint64_t *next)
{
    ckpt_status status = CKPT_OK;
    *next = at + n - 1;
    for (size_t i = 0; status == CKPT_OK && i + 1 < n;) {
        uint64_t behind;
        if (!loose) {
            const unsigned char *p = memchr(window + i, 0x80, n - 1 - i);
            if (!p)
                break;
            i = (size_t)(p - window);
        }
        if (!may_begin(window + i, loose)) {
            i++;
            continue;
        }
        status = try_at(c, at + i, &behind);
        if (behind >= at + n) {
            *next = behind;
            break;
        }
        i = (size_t)(behind - at);
    }
    return status;
}

ckpt_status ckpt__scan_skim(ckpt__scan_job *job, const ckpt__scan_span *span, uint64_t from, uint64_t to, bool loose)
{
    enum { WINDOW = 64 << 10 };
    context c = {.job = job, .span = span};
    ckpt_status status = CKPT_OK;
    unsigned char *window = malloc(WINDOW);
    if (!window)
        return ckpt__fail_memory(job->err, span->label, WINDOW);
    while (status == CKPT_OK && from + SMALLEST <= to && !job->over) {
        size_t n = ckpt__scan_head(job, span, from, window, to - from < WINDOW ? (size_t)(to - from) : WINDOW);
        if (n < SMALLEST)
            break;
        status = skim_window(&c, window, n, from, loose, &from);
        if (status == CKPT_OK)
            status = ckpt__scan_step(job);
    }
    free(window);
    free_context(&c);
    if (job->over && status == CKPT_OK)
        status = ckpt__scan_limit(job, span->label, "it has more than scan reads");
    return status;
}
