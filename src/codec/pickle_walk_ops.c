/* codec/pickle_walk_ops.c - what each opcode does to the values that are followed. Opcodes: Lib/pickletools.py. */
#include "codec/pickle_walk_vm.h"

#include <stdlib.h>

typedef ckpt__walk_vm vm_t;

static uint64_t number_at(const unsigned char *p, unsigned width)
{
    uint64_t n = 0;
    for (unsigned i = width; i-- > 0;)
        n = n << 8 | p[i];
    return n;
}

static bool push_opaque(vm_t *w)
{
    return ckpt__walk_push(w, 0);
}

/* ---- strings */

static bool tell(vm_t *w, ckpt__walk_form form, uint64_t offset, uint64_t size, const char *data)
{
    if (!w->sink || !w->sink->literal)
        return true;
    const ckpt__walk_literal literal = {form, offset, size, data};
    w->status = w->sink->literal(w->sink->ctx, &literal);
    return w->status == CKPT_OK;
}

static bool counted(vm_t *w, ckpt__walk_form form, unsigned width)
{
    const unsigned char *p;
    bool ok;
    if (!ckpt__walk_take(w, width, &p))
        return false;
    uint64_t n = number_at(p, width), at = w->at;
    const char *data = NULL;
    if (n <= CKPT__WALK_WINDOW / 2) {
        if (!ckpt__walk_take(w, (size_t)n, &p))
            return false;
        data = (const char *)p;
    } else if (!ckpt__walk_skip(w, n))
        return false;
    if (!tell(w, form, at, n, data))
        return false;
    uint32_t v =
        data ? ckpt__walk_text_new(w, data, (size_t)n, &ok) : ckpt__walk_value_new(w, CKPT__WALK_LITERAL, 0, 0, &ok);
    return ok && ckpt__walk_push(w, v);
}

static bool hex(const char *p, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static void add_code_point(ckpt__buf *b, uint32_t c)
{
    if (c < 0x80) {
        ckpt__buf_char(b, (char)c);
    } else if (c < 0x800) {
        ckpt__buf_char(b, (char)(0xC0 | c >> 6));
        ckpt__buf_char(b, (char)(0x80 | (c & 0x3F)));
    } else if (c < 0x10000) {
        ckpt__buf_char(b, (char)(0xE0 | c >> 12));
        ckpt__buf_char(b, (char)(0x80 | (c >> 6 & 0x3F)));
        ckpt__buf_char(b, (char)(0x80 | (c & 0x3F)));
    } else {
        ckpt__buf_char(b, (char)(0xF0 | (c >> 18 & 7)));
        ckpt__buf_char(b, (char)(0x80 | (c >> 12 & 0x3F)));
        ckpt__buf_char(b, (char)(0x80 | (c >> 6 & 0x3F)));
        ckpt__buf_char(b, (char)(0x80 | (c & 0x3F)));
    }
}

/* raw-unicode-escape: only \uXXXX and \UXXXXXXXX, and two backslashes are themselves; bytes are Latin-1. Gives the characters
 * that it took. */
static size_t unicode_character(const char *p, size_t n, ckpt__buf *out)
{
    uint32_t code;
    size_t digits = n > 1 && p[0] == '\\' ? (p[1] == 'u' ? 4 : p[1] == 'U' ? 8 : 0) : 0;
    if (digits && n >= 2 + digits && hex(p + 2, digits, &code)) {
        add_code_point(out, code);
        return 2 + digits;
    }
    add_code_point(out, (unsigned char)p[0]);
    if (n < 2 || p[0] != '\\' || p[1] != '\\')
        return 1;
    add_code_point(out, (unsigned char)p[1]);
    return 2;
}

/* The escapes of a Python string literal. */
static size_t string_character(const char *p, size_t n, ckpt__buf *out)
{
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    uint32_t code;
    if (p[0] != '\\' || n < 2) {
        ckpt__buf_char(out, p[0]);
        return 1;
    }
    const char *known = memchr(from, p[1], sizeof from - 1);
    if (known) {
        ckpt__buf_char(out, to[known - from]);
        return 2;
    }
    if (p[1] == 'x' && n >= 4 && hex(p + 2, 2, &code)) {
        ckpt__buf_char(out, (char)code);
        return 4;
    }
    size_t i = 1;
    for (code = 0; i < 4 && i < n && p[i] >= '0' && p[i] <= '7'; i++)
        code = code * 8 + (uint32_t)(p[i] - '0');
    ckpt__buf_char(out, i > 1 ? (char)code : p[0]);
    return i;
}

void ckpt__walk_unescape(ckpt__walk_form form, const char *line, size_t n, ckpt__buf *out)
{
    if (form == CKPT__WALK_STRING_LINE) {
        while (n && (line[n - 1] == ' ' || line[n - 1] == '\r'))
            n--;
        if (n >= 2 && (line[0] == '\'' || line[0] == '"') && line[n - 1] == line[0]) {
            line++;
            n -= 2;
        }
    }
    for (size_t i = 0; i < n;)
        i += form == CKPT__WALK_STRING_LINE ? string_character(line + i, n - i, out)
                                            : unicode_character(line + i, n - i, out);
}

static bool text_line(vm_t *w, ckpt__walk_form form)
{
    uint64_t offset, size;
    const char *text;
    bool ok;
    if (!ckpt__walk_line(w, &offset, &size, &text) || !tell(w, form, offset, size, text))
        return false;
    if (!text || size > 4 * CKPT__WALK_NAME_MAX) {
        uint32_t v = ckpt__walk_value_new(w, CKPT__WALK_LITERAL, 0, 0, &ok);
        return ok && ckpt__walk_push(w, v);
    }
    ckpt__buf b = {0};
    ckpt__walk_unescape(form, text, (size_t)size, &b);
    ok = !b.failed || ckpt__walk_no_memory(w);
    uint32_t v = ok ? ckpt__walk_text_new(w, b.data ? b.data : "", b.size, &ok) : 0;
    ckpt__buf_free(&b);
    return ok && ckpt__walk_push(w, v);
}

/* ---- globals */

/* The global of these names, or that number; all whose names are not known are one. */
static bool name_global(vm_t *w, ckpt_str module, ckpt_str name, uint32_t extension, uint32_t *number)
{
    ckpt__buf key = {0};
    size_t at = w->global_count;
    if (module.data)
        ckpt__buf_add(&key, module.data, module.size);
    ckpt__buf_add(&key, module.data ? "\0=" : "\0?", 2);
    ckpt__buf_add(&key, name.data ? "=" : "?", 1);
    if (name.data)
        ckpt__buf_add(&key, name.data, name.size);
    ckpt__buf_add(&key, &extension, sizeof extension);
    if (!w->by_name)
        w->by_name = ckpt__hash_new(16);
    size_t size = key.size;
    bool known = !key.failed && w->by_name && ckpt__hash_get(w->by_name, key.data, size, &at);
    char *copy =
        known || key.failed || !w->by_name || !ckpt__walk_arena(w) ? NULL : ckpt__arena_copy(w->arena, key.data, size);
    ckpt__buf_free(&key);
    int put = known ? 0 : copy ? ckpt__hash_put(w->by_name, copy, size, at, NULL) : -1;
    if (put < 0 || !ckpt__grow(&w->globals, &w->global_capacity, w->global_count + 1, sizeof *w->globals))
        return ckpt__walk_no_memory(w);
    *number = (uint32_t)at;
    if (put == 1) {
        size_t skip = module.size + 3;
        at = w->global_count++;
        *number = (uint32_t)at;
        w->globals[at] = (ckpt__walk_global){.position = w->op_at, .extension = extension};
        w->globals[at].module = (ckpt_str){module.data ? copy : NULL, module.size};
        w->globals[at].name = (ckpt_str){name.data ? copy + skip : NULL, name.size};
    }
    w->globals[at].count++;
    return true;
}

static bool push_global(vm_t *w, ckpt_str module, ckpt_str name, uint32_t extension)
{
    uint32_t number = 0, v;
    bool ok;
    if (!name_global(w, module, name, extension, &number))
        return false;
    v = ckpt__walk_value_new(w, CKPT__WALK_GLOBAL, number, 0, &ok);
    w->globals[number].uses += v ? 1 : 2; /* a value that is not followed any more may be used in any way */
    return ok && ckpt__walk_push(w, v);
}

static bool two_lines(vm_t *w)
{
    uint64_t offset, size;
    const char *text;
    char *copy = NULL;
    ckpt_str module = {NULL, 0}, name = {NULL, 0};
    if (!ckpt__walk_line(w, &offset, &size, &text))
        return false;
    if (text && size <= CKPT__WALK_NAME_MAX) {
        copy = ckpt__walk_arena(w) ? ckpt__arena_copy(w->arena, text, (size_t)size) : NULL;
        if (!copy)
            return ckpt__walk_no_memory(w);
        module = (ckpt_str){copy, (size_t)size};
    }
    if (!ckpt__walk_line(w, &offset, &size, &text))
        return false;
    if (text && size <= CKPT__WALK_NAME_MAX)
        name = (ckpt_str){text, (size_t)size};
    return push_global(w, module, name, 0);
}

static bool stack_global(vm_t *w)
{
    uint32_t module, name;
    if (!ckpt__walk_pop(w, &name) || !ckpt__walk_pop(w, &module))
        return false;
    return push_global(w, ckpt__walk_text_of(w, module), ckpt__walk_text_of(w, name), 0);
}

static bool extension(vm_t *w, unsigned width)
{
    const unsigned char *p;
    if (!ckpt__walk_take(w, width, &p))
        return false;
    uint32_t code = (uint32_t)number_at(p, width);
    return push_global(w, (ckpt_str){NULL, 0}, (ckpt_str){NULL, 0}, code ? code : UINT32_MAX);
}

/* ---- calls */

static void describe(const vm_t *w, uint32_t args, ckpt__walk_call *call)
{
    const ckpt__walk_value *t = &w->values[args];
    call->argument_count = t->kind == CKPT__WALK_TUPLE ? (int)t->b : -1;
    for (uint32_t i = 0; call->argument_count > 0 && i < t->b && i < CKPT__WALK_ARGUMENTS; i++) {
        uint32_t v = w->items[t->a + i];
        call->arguments[i].kind = (ckpt__walk_kind)w->values[v].kind;
        call->arguments[i].text = ckpt__walk_text_of(w, v);
        if (w->values[v].kind == CKPT__WALK_GLOBAL)
            call->arguments[i].global = &w->globals[w->values[v].a];
    }
}

/* What is worth showing of a call: the first text that it is given. */
static bool note_argument(vm_t *w, ckpt__walk_global *g, const ckpt__walk_call *call)
{
    for (int i = 0; !g->argument.data && i < call->argument_count && i < CKPT__WALK_ARGUMENTS; i++) {
        ckpt_str text = call->arguments[i].text;
        if (!text.data)
            continue;
        g->argument = ckpt__arena_str(w->arena, text.data, text.size);
        if (!g->argument.data)
            return ckpt__walk_no_memory(w);
    }
    return true;
}

static bool call_of(vm_t *w, uint32_t callee, uint32_t args)
{
    ckpt__walk_call call = {.argument_count = -1};
    const ckpt__walk_value *c = &w->values[callee];
    w->out->calls++;
    describe(w, args, &call);
    if (c->kind == CKPT__WALK_GLOBAL) {
        call.global = &w->globals[c->a];
        call.global->calls++;
        if (!note_argument(w, call.global, &call))
            return false;
    }
    int as = w->sink && w->sink->call ? w->sink->call(w->sink->ctx, &call) : -1;
    bool ok;
    ckpt__walk_kind kind =
        as >= 0 && as < call.argument_count && as < CKPT__WALK_ARGUMENTS &&
                (call.arguments[as].kind == CKPT__WALK_TEXT || call.arguments[as].kind == CKPT__WALK_LITERAL)
            ? CKPT__WALK_LITERAL
            : CKPT__WALK_RESULT;
    uint32_t v = ckpt__walk_value_new(w, kind, 0, 0, &ok);
    return ok && ckpt__walk_push(w, v);
}

static bool reduce(vm_t *w, bool keywords)
{
    uint32_t args, callee, kwargs;
    return (!keywords || ckpt__walk_pop(w, &kwargs)) && ckpt__walk_pop(w, &args) && ckpt__walk_pop(w, &callee) &&
           call_of(w, callee, args);
}

/* MARK class arguments OBJ */
static bool obj(vm_t *w)
{
    size_t from;
    bool ok;
    if (!ckpt__walk_pop_mark(w, &from))
        return false;
    if (from == w->depth)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    uint32_t callee = w->stack[from], args = ckpt__walk_tuple_new(w, w->stack + from + 1, w->depth - from - 1, &ok);
    w->depth = from;
    return ok && call_of(w, callee, args);
}

/* MARK arguments INST: the global is imported in any case, before the mark is looked for by some unpicklers. */
static bool inst(vm_t *w)
{
    size_t from;
    uint32_t callee;
    bool ok;
    if (!two_lines(w) || !ckpt__walk_pop(w, &callee) || !ckpt__walk_pop_mark(w, &from))
        return false;
    uint32_t args = ckpt__walk_tuple_new(w, from < w->depth ? w->stack + from : NULL, w->depth - from, &ok);
    w->depth = from;
    return ok && call_of(w, callee, args);
}

static bool build(vm_t *w)
{
    uint32_t state;
    if (!ckpt__walk_pop(w, &state))
        return false;
    if (w->depth == 0)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    const ckpt__walk_value *v = &w->values[w->stack[w->depth - 1]];
    if (v->kind == CKPT__WALK_GLOBAL)
        w->globals[v->a].build = true;
    return true;
}

/* ---- the rest */

static bool tuple_of(vm_t *w, size_t n)
{
    bool ok;
    if (w->depth < n)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    uint32_t v = ckpt__walk_tuple_new(w, n ? w->stack + (w->depth - n) : NULL, n, &ok);
    w->depth -= n;
    return ok && ckpt__walk_push(w, v);
}

static bool from_mark(vm_t *w, bool pushes, bool tuple)
{
    size_t from;
    if (!ckpt__walk_pop_mark(w, &from))
        return false;
    if (tuple)
        return tuple_of(w, w->depth - from);
    w->depth = from;
    if (pushes)
        return push_opaque(w);
    return w->depth > 0 || ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW); /* APPENDS, SETITEMS, ADDITEMS: onto something */
}

static bool drop(vm_t *w, size_t n)
{
    if (w->depth < n + 1)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    w->depth -= n;
    return true;
}

/* POP takes a mark away where one is on top. */
static bool pop(vm_t *w)
{
    uint32_t v;
    if (w->mark_count && w->marks[w->mark_count - 1] >= w->depth) {
        w->mark_count--;
        return true;
    }
    return ckpt__walk_pop(w, &v);
}

static bool pop_mark(vm_t *w)
{
    size_t from;
    if (!ckpt__walk_pop_mark(w, &from))
        return false;
    w->depth = from;
    return true;
}

static bool dup(vm_t *w)
{
    return w->depth ? ckpt__walk_push_again(w, w->stack[w->depth - 1]) : ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
}

static bool memo_number(vm_t *w, unsigned width, bool put)
{
    const unsigned char *p;
    if (!ckpt__walk_take(w, width, &p))
        return false;
    return put ? ckpt__walk_memo_put(w, number_at(p, width)) : ckpt__walk_memo_get(w, number_at(p, width));
}

/* Any text that PyLong_FromString() takes: white space and underscores too, and only what stands before a zero byte. What it
 * does not take ends the walk. */
static bool memo_line(vm_t *w, bool put)
{
    uint64_t offset, size, index = 0;
    const char *text;
    size_t digits = 0;
    if (!ckpt__walk_line(w, &offset, &size, &text))
        return false;
    for (uint64_t i = 0; text && i < size && text[i]; i++)
        if (text[i] >= '0' && text[i] <= '9') {
            digits++;
            if (index < UINT64_MAX / 16)
                index = index * 10 + (uint64_t)(text[i] - '0');
        }
    if (!text || digits == 0)
        return ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    return put ? ckpt__walk_memo_put(w, index) : ckpt__walk_memo_get(w, index);
}

static bool proto(vm_t *w)
{
    const unsigned char *p;
    if (!ckpt__walk_take(w, 1, &p))
        return false;
    if (w->op_at == w->begin)
        w->out->proto = true;
    w->out->protocol = *p;
    return *p <= 5 || ckpt__walk_stop(w, CKPT__WALK_NO_OPCODE);
}

static bool frame(vm_t *w)
{
    const unsigned char *p;
    if (!ckpt__walk_take(w, 8, &p))
        return false;
    ckpt__walk_frame(w, number_at(p, 8));
    return true;
}

static bool persid(vm_t *w)
{
    uint64_t offset, size;
    const char *text;
    return ckpt__walk_line(w, &offset, &size, &text) && push_opaque(w);
}

/* What pushes an opaque value and has its argument told by the table of shapes. */
static bool constant(vm_t *w, unsigned char opcode)
{
    const ckpt__pickle_shape *s = &ckpt__pickle_shapes[opcode];
    const unsigned char *p;
    uint64_t offset, size;
    const char *text;
    if (!ckpt__walk_skip(w, s->fixed))
        return false;
    if (s->counted && (!ckpt__walk_take(w, s->counted, &p) || !ckpt__walk_skip(w, number_at(p, s->counted))))
        return false;
    return (!s->lines || ckpt__walk_line(w, &offset, &size, &text)) && push_opaque(w);
}

static bool stop(vm_t *w)
{
    uint32_t v;
    w->out->stopped = w->depth > 0;
    return ckpt__walk_pop(w, &v);
}

static bool step_stack(vm_t *w, unsigned char opcode)
{
    switch (opcode) {
    case '(':
        return ckpt__walk_push_mark(w);
    case '0':
        return pop(w);
    case '1':
        return pop_mark(w);
    case '2':
        return dup(w);
    case 'a':
        return drop(w, 1);
    case 's':
        return drop(w, 2);
    case 'e':
    case 'u':
    case 0x90:
        return from_mark(w, false, false);
    case 'l':
    case 'd':
    case 0x91:
        return from_mark(w, true, false);
    case 't':
        return from_mark(w, true, true);
    case ')':
        return tuple_of(w, 0);
    case 0x85:
        return tuple_of(w, 1);
    case 0x86:
        return tuple_of(w, 2);
    case 0x87:
        return tuple_of(w, 3);
    case 'g':
        return memo_line(w, false);
    case 'h':
        return memo_number(w, 1, false);
    case 'j':
        return memo_number(w, 4, false);
    case 'p':
        return memo_line(w, true);
    case 'q':
        return memo_number(w, 1, true);
    case 'r':
        return memo_number(w, 4, true);
    case 0x94:
        return ckpt__walk_memo_put(w, w->memo_entries);
    case 0x95:
        return frame(w);
    case 0x98:
        return w->depth > 0 || ckpt__walk_stop(w, CKPT__WALK_UNDERFLOW);
    case '.':
        return stop(w);
    default:
        return constant(w, opcode);
    }
}

bool ckpt__walk_step(vm_t *w, unsigned char opcode)
{
    uint32_t id;
    if (!ckpt__pickle_ops[opcode].name)
        return ckpt__walk_stop(w, CKPT__WALK_NO_OPCODE);
    switch (opcode) {
    case 'c':
        return two_lines(w);
    case 'i':
        return inst(w);
    case 0x93:
        return stack_global(w);
    case 0x82:
        return extension(w, 1);
    case 0x83:
        return extension(w, 2);
    case 0x84:
        return extension(w, 4);
    case 'R':
    case 0x81:
        return reduce(w, false);
    case 0x92:
        return reduce(w, true);
    case 'o':
        return obj(w);
    case 'b':
        return build(w);
    case 'P':
        return persid(w);
    case 'Q':
        return ckpt__walk_pop(w, &id) && push_opaque(w);
    case 'S':
        return text_line(w, CKPT__WALK_STRING_LINE);
    case 'V':
        return text_line(w, CKPT__WALK_UNICODE_LINE);
    case 'X':
        return counted(w, CKPT__WALK_STR, 4);
    case 0x8c:
        return counted(w, CKPT__WALK_STR, 1);
    case 0x8d:
        return counted(w, CKPT__WALK_STR, 8);
    case 'U':
    case 'C':
        return counted(w, CKPT__WALK_BYTES, 1);
    case 'T':
    case 'B':
        return counted(w, CKPT__WALK_BYTES, 4);
    case 0x8e:
    case 0x96:
        return counted(w, CKPT__WALK_BYTES, 8);
    case 0x80:
        return proto(w);
    default:
        return step_stack(w, opcode);
    }
}
