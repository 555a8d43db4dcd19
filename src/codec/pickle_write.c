/* codec/pickle_write.c - two passes over the graph: the first (pickle_count.c) looks which nodes are reached twice and how
 * much there is, the second writes. What CPython puts into the memo is put there, needed or not. No recursion: containers
 * that are being written are frames. A node that is filled when its turn comes need not be emptied again: it is fetched from
 * the memo from then on. */
#include "codec/pickle_emit.h"

#include <stdlib.h>

typedef ckpt__pickle_node node;

enum {
    BATCH = 1000,  /* items between a MARK and its APPENDS or SETITEMS, as CPython has it */
    INTERNED = 256 /* strings up to this many bytes may be one with equal ones */
};

typedef struct ckpt__pickle_frame {
    node *n;
    unsigned stage;
    size_t i, end; /* the next item; where the batch ends */
    bool batch, many;
    bool filled; /* for this frame: what was taken since `before` goes with it */
    ckpt__arena_mark before;
} frame;

typedef ckpt__pickle_emitter emitter;

static ckpt_status no_memory(const emitter *e)
{
    return ckpt__fail_memory(e->err, "a pickle", e->out->size);
}

/* ---- leaves */

static void put_char(emitter *e, unsigned char c)
{
    ckpt__buf_char(e->out, (char)c);
}

static void put_number(emitter *e, uint64_t v, unsigned width)
{
    char bytes[8];
    for (unsigned i = 0; i < width; i++)
        bytes[i] = (char)(unsigned char)(v >> 8 * i);
    ckpt__buf_add(e->out, bytes, width);
}

/* 1 + the memo entry of the node; 0: it is not there. */
static size_t slot_of(const node *n)
{
    return (uintptr_t)n->user / CKPT__PICKLE_SLOT;
}

static void set_slot(node *n, size_t slot)
{
    n->user = (void *)((uintptr_t)n->user % CKPT__PICKLE_SLOT + slot * CKPT__PICKLE_SLOT);
}

static void put_memo(emitter *e, node *n)
{
    bool once = !((uintptr_t)n->user & CKPT__PICKLE_SHARED);
    if (!ckpt__pickle_is_memoized(n) || (n->kind == CKPT__P_PERSISTENT && once)) /* CPython never puts those */
        return;
    set_slot(n, ++e->next_slot);
    bool small = e->next_slot <= 256;
    put_char(e, small ? 'q' : 'r');
    put_number(e, e->next_slot - 1, small ? 1 : 4);
}

static void get_memo(emitter *e, const node *n)
{
    size_t slot = slot_of(n);
    bool small = slot <= 256;
    put_char(e, small ? 'h' : 'j');
    put_number(e, slot - 1, small ? 1 : 4);
}

/* Equal strings and equal globals share a memo entry: the node gets that of one that was written already. The next to be
 * written will have the next. */
static ckpt_status intern(emitter *e, node *n)
{
    size_t next = (size_t)e->next_slot + 1, slot = next;
    int put = 1;
    if (n->kind == CKPT__P_STR && n->boolean && n->u.text.size <= INTERNED)
        put = ckpt__hash_put(e->strings, n->u.text.data, n->u.text.size, next, &slot);
    else if (n->kind == CKPT__P_GLOBAL) {
        e->key.size = 0;
        ckpt__buf_add(&e->key, n->u.global->module.data, n->u.global->module.size);
        ckpt__buf_char(&e->key, '\n');
        ckpt__buf_add(&e->key, n->u.global->name.data, n->u.global->name.size);
        put = e->key.failed ? -1 : 0;
        if (put == 0 && !ckpt__hash_get(e->globals, e->key.data, e->key.size, &slot)) {
            const char *key = ckpt__arena_copy(e->arena, e->key.data, e->key.size);
            put = key ? ckpt__hash_put(e->globals, key, e->key.size, next, NULL) : -1;
        }
    }
    if (put == 0)
        set_slot(n, slot);
    return put < 0 ? no_memory(e) : CKPT_OK;
}

static ckpt_status begin(emitter *e, node *n);

/* _codecs.encode(text, 'latin1') */
static void put_bytes(emitter *e, ckpt_str bytes)
{
    begin(e, e->encode);
    ckpt__pickle_put_latin1(e->out, bytes);
    begin(e, e->latin1);
    put_char(e, 0x86);
    put_char(e, 'R');
}

static void put_bytearray(emitter *e, ckpt_str bytes)
{
    begin(e, e->bytearray);
    if (bytes.size) {
        put_bytes(e, bytes);
        put_char(e, 0x85);
    } else
        put_char(e, ')');
    put_char(e, 'R');
}

/* GLOBAL ends its names with newlines; one that holds a newline goes over the stack. */
static void put_global(emitter *e, const node *n)
{
    ckpt_str module = n->u.global->module, name = n->u.global->name;
    if (memchr(module.data, '\n', module.size) || memchr(name.data, '\n', name.size)) {
        ckpt__pickle_put_text(e->out, module);
        ckpt__pickle_put_text(e->out, name);
        put_char(e, 0x93);
        return;
    }
    put_char(e, 'c');
    ckpt__buf_add(e->out, module.data, module.size);
    put_char(e, '\n');
    ckpt__buf_add(e->out, name.data, name.size);
    put_char(e, '\n');
}

/* ---- containers */

static ckpt_status push_frame(emitter *e, node *n)
{
    if (!ckpt__grow(&e->frames, &e->frame_capacity, e->depth + 1, sizeof *e->frames))
        return no_memory(e);
    e->frames[e->depth++] = (frame){.n = n};
    return CKPT_OK;
}

/* A node that is not in the memo yet. */
static ckpt_status begin_new(emitter *e, node *n)
{
    switch (n->kind) {
    case CKPT__P_NONE:
        put_char(e, 'N');
        return CKPT_OK;
    case CKPT__P_BOOL:
        put_char(e, n->boolean ? 0x88 : 0x89);
        return CKPT_OK;
    case CKPT__P_INT:
        ckpt__pickle_put_int(e->out, n->u.integer);
        return CKPT_OK;
    case CKPT__P_BIGINT:
        return ckpt__pickle_put_long(e->out, n->u.text)
                   ? CKPT_OK
                   : ckpt__fail(e->err, CKPT_E_LIMIT, NULL, "an integer of %zu digits; 20000 are written",
                                n->u.text.size);
    case CKPT__P_FLOAT:
        ckpt__pickle_put_float(e->out, n->u.real);
        return CKPT_OK;
    case CKPT__P_STR:
        ckpt__pickle_put_text(e->out, n->u.text);
        break;
    case CKPT__P_BYTES:
        put_bytes(e, n->u.text);
        break;
    case CKPT__P_BYTEARRAY:
        put_bytearray(e, n->u.text);
        break;
    case CKPT__P_GLOBAL:
        put_global(e, n);
        break;
    case CKPT__P_LIST:
    case CKPT__P_DICT:
        put_char(e, n->kind == CKPT__P_LIST ? ']' : '}');
        put_memo(e, n);
        return push_frame(e, n);
    case CKPT__P_TUPLE:
        if (n->u.list.count)
            return push_frame(e, n);
        put_char(e, ')');
        return CKPT_OK;
    case CKPT__P_SET:
    case CKPT__P_FROZENSET:
    case CKPT__P_PERSISTENT:
    case CKPT__P_OBJECT:
        return push_frame(e, n);
    }
    put_memo(e, n);
    return CKPT_OK;
}

static ckpt_status begin(emitter *e, node *n)
{
    bool later = ckpt__pickle_is_later(e, n) && !slot_of(n);
    ckpt__arena_mark before = later ? ckpt__arena_note(e->later->arena) : (ckpt__arena_mark){0};
    ckpt_status status = later ? ckpt__pickle_fill(e, n, true) : CKPT_OK;
    size_t depth = e->depth;
    if (status == CKPT_OK && !slot_of(n))
        status = intern(e, n);
    if (status < 0)
        return status;
    if (slot_of(n))
        get_memo(e, n);
    else
        status = begin_new(e, n);
    if (later && e->depth > depth) {
        e->frames[e->depth - 1].filled = true;
        e->frames[e->depth - 1].before = before;
    } else if (later)
        ckpt__arena_rewind(e->later->arena, &before);
    return status;
}

/* The opcode that makes the node is written. Was it written inside itself meanwhile? Then that one is it: this one goes
 * from the stack, and *again is set. */
static void made(emitter *e, node *n, bool *again)
{
    *again = slot_of(n) > 0;
    if (*again) {
        put_char(e, '0');
        get_memo(e, n);
    } else
        put_memo(e, n);
}

/* The next item of a list that goes out in batches, each of `unit` nodes. *done: there is none. Only a list or dict by
 * itself has a last batch of one item as a batch, where there were others before (batch_list_exact in _pickle.c). */
static ckpt_status next_item(emitter *e, frame *f, const ckpt__pickle_list *list, size_t unit, bool *done)
{
    bool exact = f->n->kind != CKPT__P_OBJECT;
    bool pairs = unit == 2;
    if (f->batch && f->i == f->end) {
        put_char(e, f->many ? (pairs ? 'u' : 'e') : (pairs ? 's' : 'a'));
        f->batch = false;
    }
    *done = !f->batch && f->i >= list->count;
    if (*done) {
        if (f->n->kind == CKPT__P_DICT && list->count > 2 && list->count / 2 % BATCH == 0)
            ckpt__buf_str(e->out,
                          "(u"); /* a dict by itself ends with a batch that is not full, if need be an empty one */
        return CKPT_OK;
    }
    if (!f->batch) {
        size_t left = (list->count - f->i) / unit, n = left < BATCH ? left : BATCH;
        f->end = f->i + n * unit;
        f->many = n > 1 || (exact && list->count > unit);
        f->batch = true;
        if (f->many)
            put_char(e, '(');
    }
    return begin(e, list->items[f->i++]); /* may move the frames */
}

static void next_stage(frame *f)
{
    f->stage++;
    f->i = f->end = 0;
    f->batch = false;
}

static ckpt_status step_tuple(emitter *e, frame *f)
{
    node *n = f->n;
    size_t count = n->u.list.count;
    if (f->i == 0 && count > 3)
        put_char(e, '(');
    if (f->i < count)
        return begin(e, n->u.list.items[f->i++]);
    e->depth--;
    if (slot_of(n)) { /* it contains itself, and stands there */
        for (size_t i = 0; i < (count > 3 ? 1 : count); i++)
            put_char(e, count > 3 ? '1' : '0');
        get_memo(e, n);
        return CKPT_OK;
    }
    put_char(e, count > 3 ? 't' : (unsigned char)(0x84 + count));
    put_memo(e, n);
    return CKPT_OK;
}

static ckpt_status step_list(emitter *e, frame *f)
{
    bool done;
    ckpt_status status = next_item(e, f, &f->n->u.list, f->n->kind == CKPT__P_DICT ? 2 : 1, &done);
    if (status == CKPT_OK && done)
        e->depth--;
    return status;
}

/* set([...]) */
static ckpt_status step_set(emitter *e, frame *f)
{
    node *n = f->n;
    bool done, again;
    if (f->stage == 0) {
        next_stage(f);
        ckpt_status status = begin(e, n->kind == CKPT__P_SET ? e->set : e->frozenset);
        put_char(e, ']');
        return status;
    }
    ckpt_status status = next_item(e, f, &n->u.list, 1, &done);
    if (status < 0 || !done)
        return status;
    e->depth--;
    put_char(e, 0x85);
    put_char(e, 'R');
    made(e, n, &again);
    return CKPT_OK;
}

static ckpt_status step_persistent(emitter *e, frame *f)
{
    if (f->stage++ == 0)
        return begin(e, f->n->u.id);
    e->depth--;
    put_char(e, 'Q');
    put_memo(e, f->n);
    return CKPT_OK;
}

enum { CALLABLE, ARGUMENTS, KEYWORDS, CALL, ITEMS, ENTRIES, STATE, BUILD, ITSELF, ITS_STATE, SET };

/* MARK, class, arguments, OBJ: classes of Python 2's old style. */
static bool is_old_style(const ckpt__pickle_object *o)
{
    return o->call == CKPT__P_OBJ || o->call == CKPT__P_INST;
}

static ckpt_status step_arguments(emitter *e, frame *f)
{
    const ckpt__pickle_object *o = f->n->u.object;
    if (!is_old_style(o)) {
        next_stage(f);
        return begin(e, o->args);
    }
    if (f->i < o->args->u.list.count)
        return begin(e, o->args->u.list.items[f->i++]);
    next_stage(f);
    return CKPT_OK;
}

static void put_call(emitter *e, frame *f)
{
    const ckpt__pickle_object *o = f->n->u.object;
    bool again;
    put_char(e, is_old_style(o) ? 'o' : o->call == CKPT__P_REDUCE ? 'R' : o->call == CKPT__P_NEWOBJ ? 0x81 : 0x92);
    made(e, f->n, &again);
    if (again)
        e->depth--;
    else
        next_stage(f);
}

static ckpt_status step_object(emitter *e, frame *f)
{
    const ckpt__pickle_object *o = f->n->u.object;
    bool done = false;
    ckpt_status status = CKPT_OK;
    switch (f->stage) {
    case CALLABLE:
        if (is_old_style(o))
            put_char(e, '(');
        next_stage(f);
        return begin(e, o->callable);
    case ARGUMENTS:
        return step_arguments(e, f);
    case KEYWORDS:
        next_stage(f);
        return o->call == CKPT__P_NEWOBJ_EX ? begin(e, o->kwargs) : CKPT_OK;
    case CALL:
        put_call(e, f);
        return CKPT_OK;
    case ITEMS:
    case ENTRIES:
        status = f->stage == ITEMS ? next_item(e, f, &o->items, 1, &done) : next_item(e, f, &o->entries, 2, &done);
        if (done)
            next_stage(f);
        return status;
    case STATE:
        next_stage(f);
        if (o->setter) {
            f->stage = ITSELF;
            return begin(e, o->setter);
        }
        if (o->state)
            return begin(e, o->state);
        e->depth--;
        return CKPT_OK;
    case ITSELF:
    case ITS_STATE:
        next_stage(f);
        return begin(e, f->stage == ITS_STATE ? f->n : o->state);
    default:
        ckpt__buf_str(e->out, f->stage == SET ? "\x86R0" : "b");
        e->depth--;
        return CKPT_OK;
    }
}

static ckpt_status step_one(emitter *e)
{
    frame *f = &e->frames[e->depth - 1];
    switch (f->n->kind) {
    case CKPT__P_TUPLE:
        return step_tuple(e, f);
    case CKPT__P_SET:
    case CKPT__P_FROZENSET:
        return step_set(e, f);
    case CKPT__P_PERSISTENT:
        return step_persistent(e, f);
    case CKPT__P_OBJECT:
        return step_object(e, f);
    default:
        return step_list(e, f);
    }
}

static ckpt_status step(emitter *e)
{
    size_t depth = e->depth;
    ckpt_status status = step_one(e);
    if (e->depth < depth && e->frames[e->depth].filled)
        ckpt__arena_rewind(e->later->arena, &e->frames[e->depth].before);
    return status;
}

/* ---- together */

/* In a graph without self-containing tuples every edge costs at most a few opcodes. With them parts are written again at
 * each level, up to the square of it: real ones are two or three levels deep. */
static void set_limit(emitter *e)
{
    const uint64_t slack = (uint64_t)4 << 20, an_edge = 128;
    e->limit = slack + e->nodes * an_edge + 4 * e->bytes;
}

/* Much of what it takes at once, so that it is not moved as it grows. */
static void make_room(const emitter *e)
{
    const uint64_t a_node = 3; /* bytes that are written of it, mostly */
    ckpt__buf_reserve(e->out, (size_t)(e->bytes + a_node * e->nodes));
}

static ckpt_status run(emitter *e, node *root)
{
    ckpt_status status = ckpt__pickle_count(e, root);
    set_limit(e);
    make_room(e);
    put_char(e, 0x80);
    put_char(e, (unsigned char)e->protocol);
    if (e->protocol > 2) /* names are Python 3's then: no one was counted yet under the others */
        e->set->u.global->module = e->frozenset->u.global->module = e->bytearray->u.global->module =
            ckpt__s("builtins");
    if (status == CKPT_OK)
        status = begin(e, root);
    while (status == CKPT_OK && e->depth) {
        status = step(e);
        if (status == CKPT_OK && (e->out->size - e->start > e->limit || e->depth > e->limit))
            status = ckpt__fail(e->err, CKPT_E_LIMIT, NULL,
                                "tuples that contain themselves so often that they cannot be written: %zu bytes so far",
                                e->out->size - e->start);
    }
    put_char(e, '.');
    return status == CKPT_OK && e->out->failed ? no_memory(e) : status;
}

static node *builtin(emitter *e, const char *name)
{
    return ckpt__pickle_make_global(e->arena, ckpt__s("__builtin__"), ckpt__s(name));
}

ckpt_status ckpt__pickle_write(ckpt__pickle_node *root, ckpt__buf *out, ckpt_error *err)
{
    return ckpt__pickle_write_later(root, NULL, out, err);
}

ckpt_status ckpt__pickle_write_later(ckpt__pickle_node *root, const ckpt__pickle_later *later, ckpt__buf *out,
                                     ckpt_error *err)
{
    emitter e = {.out = out, .later = later, .start = out->size, .protocol = 2, .err = err};
    e.arena = ckpt__arena_new(0);
    e.strings = ckpt__hash_new(256);
    e.globals = ckpt__hash_new(64);
    ckpt_status status = CKPT_OK;
    if (e.arena && e.strings && e.globals) {
        e.encode = ckpt__pickle_make_global(e.arena, ckpt__s("_codecs"), ckpt__s("encode"));
        e.latin1 = ckpt__pickle_make_text(e.arena, CKPT__P_STR, ckpt__s("latin1"));
        e.set = builtin(&e, "set");
        e.frozenset = builtin(&e, "frozenset");
        e.bytearray = builtin(&e, "bytearray");
    }
    if (!e.encode || !e.latin1 || !e.set || !e.frozenset || !e.bytearray)
        status = no_memory(&e);
    if (status == CKPT_OK)
        status = run(&e, root);
    ckpt__arena_free(e.arena);
    ckpt__hash_free(e.strings);
    ckpt__hash_free(e.globals);
    ckpt__buf_free(&e.key);
    free(e.frames);
    return status;
}
