/* format/torch/keys.c - keys that Python takes for one: 1, 1.0 and True; 0, False and -0.0; (1, 2) and (True, 2); strs of the same
 * characters. A dict keeps the first of them, at its place, and the last value. */
#include "format/torch/torch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEEPEST = 16, FEW = 4 };

/* Text that two keys share just when Python takes them for one. Numbers: as int64 or as decimal digits where they are whole,
 * else the bytes of the double. What has an identity alone: its address. */
static bool spell(ckpt__torch *t, const ckpt__pickle_node *n, int depth, ckpt__buf *b);

static void spell_int(int64_t integer, ckpt__buf *b)
{
    ckpt__buf_char(b, 'i');
    ckpt__buf_add(b, &integer, sizeof integer);
}

static void spell_number(double real, ckpt__buf *b)
{
    char text[400];
    if (real >= -0x1p63 && real < 0x1p63 && floor(real) == real) {
        spell_int((int64_t)real, b);
        return;
    }
    if (isfinite(real) && floor(real) == real) {
        snprintf(text, sizeof text, "n%.0f", real); /* exact, and without a decimal point */
        ckpt__buf_str(b, text);
        return;
    }
    ckpt__buf_char(b, 'f');
    ckpt__buf_add(b, &real, sizeof real);
}

static bool spell_items(ckpt__torch *t, const ckpt__pickle_node *n, int depth, ckpt__buf *b)
{
    bool fine = true;
    ckpt__buf_char(b, '(');
    for (size_t i = 0; fine && i < ckpt__torch_length(n); i++) {
        fine = spell(t, ckpt__torch_item(n, i), depth + 1, b);
        ckpt__buf_char(b, ',');
    }
    ckpt__buf_char(b, ')');
    return fine;
}

static void spell_text(char kind, ckpt_str text, ckpt__buf *b)
{
    ckpt__buf_printf(b, "%c%zu:", kind, text.size);
    ckpt__buf_add(b, text.data, text.size);
}

static bool unhashable(ckpt__torch *t, const char *what)
{
    return ckpt__torch_refuses(t, "TypeError: unhashable type: '%s'", what);
}

/* torch.Size is a tuple to Python; torch.device('cuda', 1) and torch.device('cuda:1') are one. */
static bool spell_object(ckpt__torch *t, const ckpt__pickle_node *n, int depth, ckpt__buf *b)
{
    const ckpt__pickle_object *o = n->u.object;
    const ckpt__pickle_node *first = ckpt__torch_item(o->args, 0), *second = ckpt__torch_item(o->args, 1);
    ckpt_str text;
    bool tuple = first && (first->kind == CKPT__P_TUPLE || first->kind == CKPT__P_LIST);
    if (o->call == CKPT__P_REDUCE && tuple && ckpt__pickle_is_global(o->callable, "torch", "Size"))
        return spell_items(t, first, depth, b);
    if (ckpt__pickle_is_global(o->callable, "torch", "device") && first && first->kind == CKPT__P_STR) {
        ckpt__buf_char(b, 'd');
        ckpt__buf_add(b, first->u.text.data, first->u.text.size);
        if (second && second->kind == CKPT__P_INT)
            ckpt__buf_printf(b, ":%lld", (long long)second->u.integer);
        return true;
    }
    if (ckpt__pickle_is_global(o->callable, "_codecs", "encode") && ckpt__torch_bytes(t, n, &text)) {
        spell_text('b', text, b);
        return true;
    }
    ckpt__buf_char(b, '@');
    ckpt__buf_add(b, &n, sizeof n);
    static const char *const mutable[] = {"OrderedDict", "Counter", "defaultdict", "set",
                                          "bytearray",   "dict",    "list",        "deque"};
    for (size_t i = 0; o->callable->kind == CKPT__P_GLOBAL && i < sizeof mutable / sizeof *mutable; i++)
        if (ckpt__pickle_is_global(o->callable, "collections", mutable[i]) ||
            ckpt__pickle_is_global(o->callable, "builtins", mutable[i]) ||
            ckpt__pickle_is_global(o->callable, "__builtin__", mutable[i]))
            return unhashable(t, mutable[i]);
    return true;
}

static bool spell(ckpt__torch *t, const ckpt__pickle_node *n, int depth, ckpt__buf *b)
{
    switch (n->kind) {
    case CKPT__P_BOOL:
        spell_int(n->boolean, b);
        return true;
    case CKPT__P_INT:
        spell_int(n->u.integer, b);
        return true;
    case CKPT__P_BIGINT:
        ckpt__buf_char(b, 'n');
        ckpt__buf_add(b, n->u.text.data, n->u.text.size);
        return true;
    case CKPT__P_FLOAT:
        if (isnan(n->u.real))
            break;
        spell_number(n->u.real, b);
        return true;
    case CKPT__P_STR:
    case CKPT__P_BYTES:
        spell_text(n->kind == CKPT__P_STR ? 's' : 'b', n->u.text, b);
        return true;
    case CKPT__P_TUPLE:
        if (depth < DEEPEST)
            return spell_items(t, n, depth, b);
        break;
    case CKPT__P_GLOBAL: {
        ckpt_str name = ckpt__torch_class(t, n);
        if (!name.data)
            return false;
        spell_text('g', name, b);
        return true;
    }
    case CKPT__P_OBJECT:
        if (!ckpt__torch_is_tensor(n))
            return spell_object(t, n, depth, b);
        break;
    case CKPT__P_LIST:
        return unhashable(t, "list");
    case CKPT__P_DICT:
        return unhashable(t, "dict");
    case CKPT__P_SET:
        return unhashable(t, "set");
    case CKPT__P_BYTEARRAY:
        return unhashable(t, "bytearray");
    case CKPT__P_NONE:
    case CKPT__P_FROZENSET:
    case CKPT__P_PERSISTENT:
        break;
    }
    ckpt__buf_char(b, '@');
    ckpt__buf_add(b, n->kind == CKPT__P_NONE ? NULL : (const void *)&n, n->kind == CKPT__P_NONE ? 0 : sizeof n);
    return true;
}

/* ---- the few keys that most dicts have */

static bool all_text(const ckpt__torch_pair *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pairs[i].key->kind != CKPT__P_STR)
            return false;
    return true;
}

static void merge_few(ckpt__torch_pair *pairs, size_t *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        size_t k = 0;
        while (k < kept && !ckpt__str_equal(pairs[k].key->u.text, pairs[i].key->u.text))
            k++;
        if (k < kept)
            pairs[k].value = pairs[i].value;
        else
            pairs[kept++] = pairs[i];
    }
    *n = kept;
}

/* A number for each text, in few steps; two texts may have one. */
static uint64_t fingerprint(ckpt_str text)
{
    uint64_t sum = text.size + 1, part = 0;
    size_t i = 0;
    for (; i + sizeof part <= text.size; i += sizeof part) {
        memcpy(&part, text.data + i, sizeof part);
        sum = (sum ^ part) * 0x9E3779B97F4A7C15u;
        sum ^= sum >> 29;
    }
    part = 0;
    memcpy(&part, text.data + i, text.size - i);
    sum = (sum ^ part) * 0x9E3779B97F4A7C15u;
    sum ^= sum >> 32;
    return sum ? sum : 1;
}

/* Are the texts different for certain? Nearly all dicts are such, and this takes a fifth of what a table that withstands chosen
 * texts takes; where it is not certain, or probing is long, that table decides. */
static bool all_differ(const ckpt__torch_pair *pairs, size_t n)
{
    enum { PROBES = 32 };
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    uint64_t *seen = calloc(slots, sizeof *seen);
    bool differ = seen != NULL;
    for (size_t i = 0; differ && i < n; i++) {
        uint64_t sum = fingerprint(pairs[i].key->u.text);
        size_t at = (size_t)sum & (slots - 1), probes = 0;
        while (seen[at] && seen[at] != sum && probes++ < PROBES)
            at = (at + 1) & (slots - 1);
        differ = !seen[at];
        seen[at] = sum;
    }
    free(seen);
    return differ;
}

/* The number of a key among those that are kept; -1: it is new; -2: no memory. */
static int place_of(ckpt__torch *t, ckpt__hash *texts, ckpt__hash *others, const ckpt__pickle_node *key, size_t next,
                    size_t *at)
{
    if (key->kind == CKPT__P_STR) {
        int put = ckpt__hash_put(texts, key->u.text.data, key->u.text.size, next, at);
        return put < 0 ? -2 : put > 0 ? -1 : 0;
    }
    ckpt__buf *b = &t->spelt;
    b->size = 0;
    bool fine = spell(t, key, 0, b) && !b->failed;
    const char *text = fine ? ckpt__arena_copy(t->arena, b->data ? b->data : "", b->size) : NULL;
    int put = text ? ckpt__hash_put(others, text, b->size, next, at) : -1;
    return put < 0 ? -2 : put > 0 ? -1 : 0;
}

bool ckpt__torch_merge_keys(ckpt__torch *t, ckpt__torch_pair *pairs, size_t *n)
{
    if (*n <= FEW && all_text(pairs, *n)) {
        merge_few(pairs, n);
        return true;
    }
    if (all_text(pairs, *n) && all_differ(pairs, *n))
        return true;
    ckpt__hash *texts = ckpt__hash_new(*n), *others = ckpt__hash_new(0);
    bool fine = texts && others;
    size_t kept = 0;
    for (size_t i = 0; fine && i < *n; i++) {
        size_t at = 0;
        int place = place_of(t, texts, others, pairs[i].key, kept, &at);
        fine = place != -2;
        if (place == 0)
            pairs[at].value = pairs[i].value;
        else
            pairs[kept++] = pairs[i];
    }
    ckpt__hash_free(texts);
    ckpt__hash_free(others);
    *n = kept;
    return fine;
}
