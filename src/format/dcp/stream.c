/* format/dcp/stream.c - the machine that reads a list in windows: each opcode that torch's pickling of a list has. */
#include "format/dcp/stream.h"

#include <stdlib.h>

static inline bool push(ckpt__dcp_machine *m, ckpt__dcp_value value)
{
    m->stack[m->depth++] = value;
    return m->depth < m->deepest;
}

/* The lowest place that may be popped. */
static inline size_t ground(const ckpt__dcp_machine *m)
{
    return m->mark_count ? m->marks[m->mark_count - 1].depth : 0;
}

static inline bool has(const ckpt__dcp_machine *m, size_t n)
{
    return m->depth - ground(m) >= n;
}

static bool push_mark(ckpt__dcp_machine *m)
{
    if (m->mark_count == CKPT__DCP_MARKS)
        return false;
    m->marks[m->mark_count].used = m->used;
    m->marks[m->mark_count++].depth = m->depth;
    return true;
}

static inline bool push_int(ckpt__dcp_machine *m, int64_t number)
{
    return push(m, (ckpt__dcp_value){.kind = CKPT__D_INT, .u.number = number});
}

/* A text of n bytes, behind `head` bytes of opcode and length. */
static inline bool push_text(ckpt__dcp_machine *m, size_t head, uint64_t n)
{
    ckpt__dcp_window *w = &m->window;
    if (n > CKPT__DCP_TEXT_MAX || !ckpt__dcp_window_need(w, head + (size_t)n))
        return false;
    ckpt__dcp_value text;
    if (!ckpt__dcp_text(m, w->at + head, (size_t)n, &text))
        return false;
    w->at += head + n;
    return push(m, text);
}

/* The top n values become a tuple: numbers side by side where all are numbers. */
static inline bool make_tuple(ckpt__dcp_machine *m, size_t n)
{
    ckpt__dcp_value *items = m->stack + (m->depth - n);
    size_t ints = 0;
    while (ints < n && items[ints].kind == CKPT__D_INT && items[ints].u.number >= 0)
        ints++;
    ckpt__dcp_value tuple = {.kind = ints == n ? CKPT__D_INTS : CKPT__D_TUPLE, .n = (uint32_t)n};
    if (ints == n) {
        int64_t *numbers = ckpt__dcp_take(m, (n + 1) * sizeof *numbers);
        if (!numbers)
            return false;
        for (size_t i = 0; i < n; i++)
            numbers[i] = items[i].u.number;
        tuple.u.numbers = numbers;
    } else {
        ckpt__dcp_value *own = ckpt__dcp_take(m, n * sizeof *own);
        if (!own)
            return false;
        memcpy(own, items, n * sizeof *own);
        tuple.u.items = own;
    }
    m->depth -= n;
    return push(m, tuple);
}

static bool pop_mark(ckpt__dcp_machine *m, size_t *n)
{
    if (m->mark_count == 0)
        return false;
    *n = m->depth - m->marks[--m->mark_count].depth;
    return true;
}

static bool stack_global(ckpt__dcp_machine *m)
{
    if (!has(m, 2))
        return false;
    const ckpt__dcp_value *name = &m->stack[m->depth - 1], *module = name - 1;
    ckpt__dcp_value class_of;
    if (name->kind != CKPT__D_TEXT || module->kind != CKPT__D_TEXT ||
        !ckpt__dcp_class_of((ckpt_str){module->u.text, module->n}, (ckpt_str){name->u.text, name->n}, &class_of))
        return false;
    m->depth -= 2;
    return push(m, class_of);
}

static inline bool new_object(ckpt__dcp_machine *m)
{
    if (!has(m, 2))
        return false;
    const ckpt__dcp_value *args = &m->stack[m->depth - 1], *of = args - 1;
    if (args->kind != CKPT__D_INTS || args->n || of->kind != CKPT__D_CLASS || of->what >= CKPT__DC_OBJECTS)
        return false;
    ckpt__dcp_made *object = ckpt__dcp_take(m, sizeof *object);
    if (!object)
        return false;
    *object = (ckpt__dcp_made){.class_of = of->what};
    m->depth--;
    m->stack[m->depth - 1] = (ckpt__dcp_value){.kind = CKPT__D_OBJECT, .u.object = object};
    return true;
}

/* Calls with one argument of which the result is known. */
static inline bool call(ckpt__dcp_machine *m)
{
    if (!has(m, 2))
        return false;
    const ckpt__dcp_value *args = &m->stack[m->depth - 1], *of = args - 1, *first;
    ckpt__dcp_value result = {.kind = CKPT__D_OTHER};
    if (of->kind != CKPT__D_CLASS)
        return false;
    first = args->kind == CKPT__D_TUPLE && args->n == 1 ? args->u.items : NULL;
    switch (of->what) {
    case CKPT__DC_SIZE:
        if (!first || first->kind != CKPT__D_INTS)
            return false;
        result = *first;
        break;
    case CKPT__DC_LAYOUT:
        if (!first || first->kind != CKPT__D_TEXT ||
            !ckpt__str_is((ckpt_str){first->u.text, first->n}, "torch.strided"))
            return false;
        result.kind = CKPT__D_STRIDED;
        break;
    case CKPT__DC_FORMAT:
    case CKPT__DC_PATH:
        break;
    default:
        return false;
    }
    m->depth--;
    m->stack[m->depth - 1] = result;
    return true;
}

/* What lies on the stack above the mark goes into the dict or list before it, and is folded: what it pointed to is not needed any more,
 * but where an object keeps it. */
static inline bool set_items(ckpt__dcp_machine *m, size_t n)
{
    if (n % 2 || !has(m, n + 1))
        return false;
    ckpt__dcp_value *pairs = m->stack + (m->depth - n);
    if (pairs[-1].kind != CKPT__D_DICT || !ckpt__dcp_set_items(m, &pairs[-1], pairs, n / 2))
        return false;
    m->depth -= n;
    return true;
}

static bool set_marked(ckpt__dcp_machine *m)
{
    size_t n;
    if (!pop_mark(m, &n) || !set_items(m, n))
        return false;
    if (m->stack[m->depth - 1].what != CKPT__DD_STATE)
        m->used = m->marks[m->mark_count].used;
    return true;
}

static bool append(ckpt__dcp_machine *m, size_t n)
{
    if (!has(m, n + 1))
        return false;
    ckpt__dcp_value *items = m->stack + (m->depth - n);
    if (items[-1].kind != CKPT__D_LIST || !ckpt__dcp_append(m, &items[-1], items, n))
        return false;
    m->depth -= n;
    return true;
}

static bool append_marked(ckpt__dcp_machine *m)
{
    size_t n;
    if (!pop_mark(m, &n) || !append(m, n))
        return false;
    m->used = m->marks[m->mark_count].used;
    return true;
}

static inline bool build(ckpt__dcp_machine *m)
{
    if (!has(m, 2))
        return false;
    const ckpt__dcp_value *state = &m->stack[m->depth - 1], *object = state - 1;
    if (object->kind != CKPT__D_OBJECT || !ckpt__dcp_build(object->u.object, state))
        return false;
    m->depth--;
    return true;
}

/* A chunk of a list, or a record of storage_data, that is complete before the opcode comes that puts a thousand of them where they belong:
 * it is put there now, while it is in the processor's cache. */
static inline bool fold_early(ckpt__dcp_machine *m)
{
    if (m->mark_count == 0 || m->marks[m->mark_count - 1].depth == 0)
        return true;
    const size_t depth = m->marks[m->mark_count - 1].depth;
    ckpt__dcp_value *into = &m->stack[depth - 1];
    bool folded = false;
    if (into->kind == CKPT__D_LIST && m->depth == depth + 1)
        folded = ckpt__dcp_append(m, into, into + 1, 1);
    else if (into->kind == CKPT__D_DICT && into->what == CKPT__DD_RECORDS && m->depth == depth + 2)
        folded = ckpt__dcp_set_items(m, into, into + 1, 1);
    else
        return true;
    m->depth = depth;
    m->used = m->marks[m->mark_count - 1].used;
    return folded;
}

static inline bool get(ckpt__dcp_machine *m, uint64_t number)
{
    ckpt__dcp_value value;
    if (!ckpt__dcp_memo_get(m, number, &value))
        return false;
    return value.kind == CKPT__D_CLASS && ckpt__dcp_quick_object(m, &value) ? fold_early(m) : push(m, value);
}

/* An opcode that has an argument; n: the bytes of both, 0 where it is none of these. */
static bool take_argument(ckpt__dcp_machine *m, const unsigned char *p, size_t *n)
{
    ckpt__dcp_window *w = &m->window;
    int64_t number;
    switch (*p) {
    case 'j': /* LONG_BINGET */
        w->at += *n = 5;
        return get(m, ckpt__dcp_four(p + 1));
    case 'h': /* BINGET */
        w->at += *n = 2;
        return get(m, p[1]);
    case 0x8c: /* SHORT_BINUNICODE */
        *n = 2;
        return push_text(m, 2, p[1]);
    case 'X': /* BINUNICODE */
        *n = 5;
        return push_text(m, 5, ckpt__dcp_four(p + 1));
    case 0x80: /* PROTO */
        w->at += *n = 2;
        return p[1] >= 2 && p[1] <= 5;
    case 0x95: /* FRAME */
        w->at += *n = 9;
        return w->at <= w->end && ckpt__dcp_little(p + 1, 8) <= w->in->size - (w->next - (uint64_t)(w->end - w->at));
    default:
        w->at += *n = ckpt__dcp_int(p, &number);
        return *n && push_int(m, number);
    }
}

/* An opcode of one byte, which works on the stack. */
static bool take_opcode(ckpt__dcp_machine *m, unsigned op)
{
    size_t n;
    switch (op) {
    case 0x94: /* MEMOIZE */
        return has(m, 1) && ckpt__dcp_memo_put(m, m->memo.next++, &m->stack[m->depth - 1]);
    case '(': /* MARK */
        return push_mark(m);
    case ')': /* EMPTY_TUPLE */
        return make_tuple(m, 0);
    case 0x85: /* TUPLE1, TUPLE2, TUPLE3 */
    case 0x86:
    case 0x87:
        return has(m, op - 0x84) && make_tuple(m, op - 0x84);
    case 't': /* TUPLE */
        return pop_mark(m, &n) && make_tuple(m, n);
    case 0x81: /* NEWOBJ */
        return new_object(m);
    case 'R': /* REDUCE */
        return call(m);
    case '}': /* EMPTY_DICT */
        return push(m, (ckpt__dcp_value){.kind = CKPT__D_DICT});
    case ']': /* EMPTY_LIST */
        return push(m, (ckpt__dcp_value){.kind = CKPT__D_LIST});
    case 'u': /* SETITEMS */
        return set_marked(m);
    case 's': /* SETITEM */
        return set_items(m, 2);
    case 'e': /* APPENDS */
        return append_marked(m);
    case 'a': /* APPEND */
        return append(m, 1);
    case 'b': /* BUILD */
        return build(m);
    case 0x93: /* STACK_GLOBAL */
        return stack_global(m);
    case 'N': /* NONE */
        return push(m, (ckpt__dcp_value){.kind = CKPT__D_NONE});
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return push(m, (ckpt__dcp_value){.kind = CKPT__D_BOOL});
    default:
        return false;
    }
}

static bool is_finished(const ckpt__dcp_machine *m)
{
    return m->depth == 1 && m->mark_count == 0 && m->complete && m->stack[0].kind == CKPT__D_OBJECT &&
           m->stack[0].u.object->class_of == CKPT__DC_METADATA && m->stack[0].u.object->built;
}

/* PROTO to STOP. */
static bool run(ckpt__dcp_machine *m)
{
    ckpt__dcp_window *w = &m->window;
    for (bool ok = true; ok;) {
        ckpt__dcp_window_need(w, CKPT__DCP_ARGUMENT); /* or what is left; zeros, which are no opcode, stand behind it */
        const unsigned char *p = w->at;
        size_t n = 0;
        if (p >= w->end)
            return false;
        if (*p == '.')
            return is_finished(m);
        ok = take_argument(m, p, &n);
        if (n == 0) {
            ok = take_opcode(m, *p);
            w->at = p + 1;
        }
    }
    return false;
}

static void free_machine(ckpt__dcp_machine *m)
{
    ckpt__dcp_window_close(&m->window);
    ckpt__dcp_memo_free(&m->memo);
    ckpt__arena_free(m->kept);
    free(m->stack);
    free(m->pool);
    ckpt__dcp_fold_free(m);
}

ckpt_status ckpt__dcp_stream(ckpt__dcp *d, const ckpt__pickle_input *in, bool *taken, ckpt_error *err)
{
    ckpt__dcp_machine m = {.d = d};
    m.kept = ckpt__arena_new(ckpt__known_limit(in->size, false));
    m.deepest = in->size < CKPT__DCP_STACK ? (size_t)in->size + 2 : CKPT__DCP_STACK; /* a value takes a byte at least */
    m.pool_size = in->size < CKPT__DCP_POOL / 128 ? (size_t)in->size * 128 + 128 : CKPT__DCP_POOL;
    m.stack = malloc(m.deepest * sizeof *m.stack); /* of these two no more is touched than is used */
    m.pool = malloc(m.pool_size);
    bool memory = ckpt__dcp_window_open(&m.window, in) && m.kept && m.stack && m.pool;
    *taken = memory && ckpt__dcp_memo_scan(&m) && run(&m) && ckpt__dcp_fold_end(&m);
    bool failed = !memory || m.no_memory;
    free_machine(&m);
    return failed ? ckpt__dcp_no_memory(d, err) : CKPT_OK;
}
