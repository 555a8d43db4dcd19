/* format/native/values_write.c - value tree to JSON. No recursion: a stack of frames, and one pass before that finds what is
 * reached more than once. */
#include "format/native/values.h"

#include <stdlib.h>

typedef struct node {
    bool shared; /* reached more than once */
    uint64_t id; /* 1 + its id once it was written; 0 before */
} node;

enum stage { ARGS, STATE, ITEMS, ENTRIES, DONE };

typedef struct frame {
    const ckpt_value *v;
    enum stage stage;
    size_t i;
    bool tagged;
    unsigned levels; /* of JSON nesting */
} frame;

typedef struct writer {
    const ckpt__values_writer *hooks;
    ckpt__buf *out;
    ckpt__arena *arena; /* pointers as hash keys */
    ckpt__hash *by_pointer;
    node *nodes;
    size_t node_count, node_capacity;
    frame *frames;
    size_t depth, frame_capacity;
    unsigned levels;
    uint64_t next_id;
} writer;

static bool is_container(const ckpt_value *v)
{
    return v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE || v->kind == CKPT_V_DICT || v->kind == CKPT_V_OBJECT;
}

/* Python's identity matters for what can change or is large. */
static bool may_be_shared(const ckpt_value *v)
{
    if (v->kind == CKPT_V_TUPLE)
        return v->item_count > 0;
    return is_container(v) || v->kind == CKPT_V_BYTEARRAY || v->kind == CKPT_V_ARRAY ||
           (v->kind == CKPT_V_BYTES && v->text.size > CKPT__BLOB_BYTES);
}

static node *node_of(const writer *w, const ckpt_value *v)
{
    size_t i;
    return may_be_shared(v) && ckpt__hash_get(w->by_pointer, (const char *)&v, sizeof v, &i) ? &w->nodes[i] : NULL;
}

/* ---- what is reached more than once */

typedef struct worklist {
    const ckpt_value **items;
    size_t count, capacity;
} worklist;

static bool push_work(worklist *l, const ckpt_value *v)
{
    if (!v)
        return true;
    if (!ckpt__grow(&l->items, &l->capacity, l->count + 1, sizeof *l->items))
        return false;
    l->items[l->count++] = v;
    return true;
}

/* Notes v; *first tells whether it is new. */
static bool note(writer *w, const ckpt_value *v, bool *first)
{
    size_t existing;
    const char *key = ckpt__arena_copy(w->arena, (const char *)&v, sizeof v);
    if (!key || !ckpt__grow(&w->nodes, &w->node_capacity, w->node_count + 1, sizeof *w->nodes))
        return false;
    int put = ckpt__hash_put(w->by_pointer, key, sizeof v, w->node_count, &existing);
    if (put > 0)
        w->nodes[w->node_count++] = (node){false, 0};
    else if (put == 0)
        w->nodes[existing].shared = true;
    *first = put > 0;
    return put >= 0;
}

static bool push_children(worklist *l, const ckpt_value *v)
{
    bool ok = push_work(l, v->args) && push_work(l, v->state);
    for (size_t i = 0; ok && i < v->item_count; i++)
        ok = push_work(l, v->items[i]);
    for (size_t i = 0; ok && i < v->entry_count; i++)
        ok = push_work(l, v->entries[i].key) && push_work(l, v->entries[i].value);
    return ok;
}

static bool find_shared(writer *w, const ckpt_value *root)
{
    worklist l = {0};
    bool ok = push_work(&l, root);
    while (ok && l.count > 0) {
        const ckpt_value *v = l.items[--l.count];
        bool first = true;
        if (may_be_shared(v))
            ok = note(w, v, &first);
        if (ok && first && is_container(v))
            ok = push_children(&l, v);
    }
    free(l.items);
    return ok;
}

/* ---- leaves */

static ckpt_status put_blob(writer *w, ckpt_dtype dtype, const char *data, size_t size, ckpt_error *err)
{
    uint64_t number;
    ckpt_status status = w->hooks->blob(w->hooks->ctx, dtype, data, size, &number, err);
    ckpt__buf_str(w->out, ",\"blob\":");
    ckpt__json_put_u64(w->out, status < 0 ? 0 : number);
    return status;
}

static ckpt_status put_bytes(writer *w, ckpt_str bytes, ckpt_error *err)
{
    if (bytes.size > CKPT__BLOB_BYTES)
        return put_blob(w, CKPT_U8, bytes.data, bytes.size, err);
    ckpt__buf_str(w->out, ",\"hex\":\"");
    ckpt__hex_put(w->out, bytes.data, bytes.size);
    ckpt__buf_char(w->out, '"');
    return CKPT_OK;
}

static void put_text(writer *w, ckpt_str text)
{
    if (ckpt__utf8_valid(text.data, text.size)) {
        ckpt__json_put_string(w->out, text.data, text.size);
        return;
    }
    ckpt__buf_str(w->out, "{\"$\":\"str\",\"hex\":\"");
    ckpt__hex_put(w->out, text.data, text.size);
    ckpt__buf_str(w->out, "\"}");
}

static void put_int(writer *w, const ckpt_value *v)
{
    const int64_t exact = (int64_t)1 << 53;
    bool plain = v->kind == CKPT_V_INT && v->integer >= -exact && v->integer <= exact;
    ckpt__buf_str(w->out, plain ? "" : "{\"$\":\"int\",\"v\":\"");
    if (v->kind == CKPT_V_INT)
        ckpt__json_put_i64(w->out, v->integer);
    else
        ckpt__json_put_escaped(w->out, v->text.data, v->text.size);
    ckpt__buf_str(w->out, plain ? "" : "\"}");
}

static void put_float(writer *w, double v)
{
    bool finite = v - v == 0;
    ckpt__buf_str(w->out, finite ? "" : "{\"$\":\"float\",\"v\":");
    ckpt__json_put_double(w->out, v);
    ckpt__buf_str(w->out, finite ? "" : "}");
}

static ckpt_status put_array(writer *w, const ckpt_value *v, ckpt_error *err)
{
    ckpt__buf_str(w->out, ",\"dtype\":");
    put_text(w, v->array->dtype);
    ckpt__buf_str(w->out, ",\"shape\":[");
    for (uint32_t i = 0; i < v->array->ndim; i++) {
        ckpt__buf_str(w->out, i ? "," : "");
        ckpt__json_put_i64(w->out, v->array->shape[i]);
    }
    ckpt__buf_str(w->out, v->array->fortran ? "],\"fortran\":true" : "],\"fortran\":false");
    return put_bytes(w, v->text, err);
}

static void put_class(writer *w, const ckpt_value *v)
{
    if (v->class_name.data) {
        ckpt__buf_str(w->out, ",\"class\":");
        put_text(w, v->class_name);
    }
}

/* ---- containers */

/* CKPT_I64 or CKPT_F64 where all items are ints or all are floats, and they are many. */
static ckpt_dtype number_list(const ckpt_value *v)
{
    if ((v->kind != CKPT_V_LIST && v->kind != CKPT_V_TUPLE) || v->item_count < CKPT__BLOB_NUMBERS)
        return CKPT_DTYPE_NONE;
    ckpt_kind kind = v->items[0]->kind;
    for (size_t i = 0; i < v->item_count; i++)
        if (v->items[i]->kind != kind)
            return CKPT_DTYPE_NONE;
    return kind == CKPT_V_INT ? CKPT_I64 : kind == CKPT_V_FLOAT ? CKPT_F64 : CKPT_DTYPE_NONE;
}

static ckpt_status put_numbers(writer *w, const ckpt_value *v, ckpt_dtype dtype, ckpt_error *err)
{
    char *data = ckpt__arena_array(w->hooks->arena, v->item_count, 8);
    if (!data)
        return ckpt__fail_memory(err, "values", v->item_count * 8);
    for (size_t i = 0; i < v->item_count; i++)
        if (dtype == CKPT_I64)
            memcpy(data + 8 * i, &v->items[i]->integer, 8);
        else
            memcpy(data + 8 * i, &v->items[i]->real, 8);
    return put_blob(w, dtype, data, v->item_count * 8, err);
}

enum { FEW_KEYS = 8 };

int ckpt__values_twice(const ckpt_entry *entries, size_t n, ckpt_str *which)
{
    int found = 0;
    if (n <= FEW_KEYS) { /* most dicts: no table needed */
        for (size_t i = 1; i < n; i++)
            for (size_t k = 0; k < i; k++)
                if (entries[i].key->kind == CKPT_V_STR && entries[k].key->kind == CKPT_V_STR &&
                    ckpt__str_equal(entries[i].key->text, entries[k].key->text)) {
                    *which = entries[i].key->text;
                    return 1;
                }
        return 0;
    }
    ckpt__hash *seen = ckpt__hash_new(n);
    if (!seen)
        return -1;
    for (size_t i = 0; i < n && found == 0; i++)
        if (entries[i].key->kind == CKPT_V_STR) {
            int put = ckpt__hash_put(seen, entries[i].key->text.data, entries[i].key->text.size, i, NULL);
            found = put < 0 ? -1 : put == 0;
            *which = entries[i].key->text;
        }
    ckpt__hash_free(seen);
    return found;
}

/* Can it stand as a plain JSON array or object? */
static bool is_plain(const ckpt_value *v)
{
    ckpt_str which;
    if (v->class_name.data || v->state || v->args)
        return false;
    if (v->kind == CKPT_V_LIST)
        return v->entry_count == 0;
    if (v->kind != CKPT_V_DICT || v->item_count)
        return false;
    for (size_t i = 0; i < v->entry_count; i++) {
        const ckpt_value *key = v->entries[i].key;
        if (key->kind != CKPT_V_STR || (key->text.size && key->text.data[0] == '$') ||
            !ckpt__utf8_valid(key->text.data, key->text.size))
            return false;
    }
    return ckpt__values_twice(v->entries, v->entry_count, &which) == 0;
}

static ckpt_status push_frame(writer *w, const ckpt_value *v, bool tagged, ckpt_error *err)
{
    unsigned levels = !tagged ? 1 : v->entry_count ? 3 : 2;
    if (w->levels + levels > CKPT__JSON_DEPTH - 2)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL,
                          "the values are nested more than %u levels deep; the format ends there",
                          CKPT__JSON_DEPTH - 2);
    if (!ckpt__grow(&w->frames, &w->frame_capacity, w->depth + 1, sizeof *w->frames))
        return ckpt__fail_memory(err, "values", w->depth * sizeof *w->frames);
    w->frames[w->depth++] = (frame){.v = v, .tagged = tagged, .levels = levels, .stage = tagged ? ARGS : ITEMS};
    w->levels += levels;
    return CKPT_OK;
}

/* `{"$":"kind"` and what belongs to the value itself; containers get a frame for the rest. */
static ckpt_status begin_tagged(writer *w, const ckpt_value *v, node *n, ckpt_error *err)
{
    ckpt_dtype numbers = number_list(v);
    ckpt__buf_printf(w->out, "{\"$\":\"%s\"", ckpt_kind_name(v->kind));
    if (n && n->shared) {
        n->id = ++w->next_id;
        ckpt__buf_str(w->out, ",\"id\":");
        ckpt__json_put_u64(w->out, n->id - 1);
    }
    put_class(w, v);
    if (is_container(v) && (numbers == CKPT_DTYPE_NONE || v->state))
        return push_frame(w, v, true, err);
    ckpt_status status = CKPT_OK;
    if (numbers != CKPT_DTYPE_NONE)
        status = put_numbers(w, v, numbers, err);
    else if (v->kind == CKPT_V_BYTES || v->kind == CKPT_V_BYTEARRAY)
        status = put_bytes(w, v->text, err);
    else if (v->kind == CKPT_V_ARRAY)
        status = put_array(w, v, err);
    else if (v->kind == CKPT_V_TENSOR) {
        ckpt__buf_char(w->out, ',');
        status = w->hooks->tensor(w->hooks->ctx, v->tensor, w->out, err);
    }
    ckpt__buf_char(w->out, '}');
    return status;
}

static ckpt_status begin(writer *w, const ckpt_value *v, ckpt_error *err)
{
    node *n;
    switch (v->kind) {
    case CKPT_V_NONE:
        ckpt__buf_str(w->out, "null");
        return CKPT_OK;
    case CKPT_V_BOOL:
        ckpt__buf_str(w->out, v->boolean ? "true" : "false");
        return CKPT_OK;
    case CKPT_V_INT:
    case CKPT_V_BIGINT:
        put_int(w, v);
        return CKPT_OK;
    case CKPT_V_FLOAT:
        put_float(w, v->real);
        return CKPT_OK;
    case CKPT_V_STR:
        put_text(w, v->text);
        return CKPT_OK;
    default:
        break;
    }
    n = node_of(w, v);
    if (n && n->id) {
        ckpt__buf_printf(w->out, "{\"$\":\"ref\",\"id\":%llu}", (unsigned long long)(n->id - 1));
        return CKPT_OK;
    }
    if ((n && n->shared) || !is_container(v) || number_list(v) != CKPT_DTYPE_NONE || !is_plain(v))
        return begin_tagged(w, v, n, err);
    ckpt__buf_char(w->out, v->kind == CKPT_V_LIST ? '[' : '{');
    return push_frame(w, v, false, err);
}

/* The next piece of the items: a comma and one of them, or the end. */
static ckpt_status step_items(writer *w, frame *f, ckpt_error *err)
{
    const ckpt_value *v = f->v;
    if (f->tagged && f->i == 0)
        ckpt__buf_str(w->out, ",\"items\":[");
    if (f->i < v->item_count) {
        ckpt__buf_str(w->out, f->i ? "," : "");
        return begin(w, v->items[f->i++], err); /* may move the frames: f is not used again */
    }
    if (f->tagged)
        ckpt__buf_char(w->out, ']');
    f->stage = ENTRIES;
    f->i = 0;
    return CKPT_OK;
}

/* The entries of a tagged value are pairs [key, value]: position 2k is a key, 2k + 1 its value. */
static ckpt_status step_pairs(writer *w, frame *f, ckpt_error *err)
{
    const ckpt_value *v = f->v;
    size_t i = f->i, entry = i / 2;
    if (i == 0)
        ckpt__buf_str(w->out, ",\"entries\":[");
    else if (i % 2 == 0)
        ckpt__buf_char(w->out, ']');
    if (entry == v->entry_count) {
        ckpt__buf_char(w->out, ']');
        f->stage = DONE;
        return CKPT_OK;
    }
    ckpt__buf_str(w->out, i % 2 ? "," : i ? ",[" : "[");
    f->i++;
    return begin(w, i % 2 ? v->entries[entry].value : v->entries[entry].key, err);
}

static ckpt_status step_members(writer *w, frame *f, ckpt_error *err)
{
    const ckpt_value *v = f->v;
    if (f->i == v->entry_count) {
        f->stage = DONE;
        return CKPT_OK;
    }
    const ckpt_entry *e = &v->entries[f->i];
    ckpt__buf_str(w->out, f->i++ ? "," : "");
    ckpt__json_put_string(w->out, e->key->text.data, e->key->text.size);
    ckpt__buf_char(w->out, ':');
    return begin(w, e->value, err);
}

static ckpt_status step(writer *w, ckpt_error *err)
{
    frame *f = &w->frames[w->depth - 1];
    const ckpt_value *v = f->v;
    bool list = v->kind == CKPT_V_LIST || v->kind == CKPT_V_TUPLE;
    switch (f->stage) {
    case ARGS:
    case STATE: {
        const ckpt_value *child = f->stage == ARGS ? v->args : v->state;
        const char *name = f->stage == ARGS ? ",\"args\":" : ",\"state\":";
        f->stage = f->stage == ARGS ? STATE : ITEMS;
        ckpt__buf_str(w->out, child ? name : "");
        return child ? begin(w, child, err) : CKPT_OK;
    }
    case ITEMS:
        if (list || (v->item_count && v->kind == CKPT_V_OBJECT))
            return step_items(w, f, err);
        f->stage = ENTRIES;
        return CKPT_OK;
    case ENTRIES:
        if (v->kind == CKPT_V_DICT || (v->kind == CKPT_V_OBJECT && v->entry_count))
            return f->tagged ? step_pairs(w, f, err) : step_members(w, f, err);
        f->stage = DONE;
        return CKPT_OK;
    default:
        ckpt__buf_char(w->out, !f->tagged && list ? ']' : '}');
        w->levels -= f->levels;
        w->depth--;
        return CKPT_OK;
    }
}

ckpt_status ckpt__values_write(const ckpt_value *root, const ckpt__values_writer *hooks, ckpt__buf *out,
                               ckpt_error *err)
{
    writer w = {.hooks = hooks, .out = out, .arena = ckpt__arena_new(0), .by_pointer = ckpt__hash_new(64)};
    ckpt_status status = CKPT_OK;
    if (!w.arena || !w.by_pointer || !find_shared(&w, root))
        status = ckpt__fail_memory(err, "values", 0);
    else
        status = begin(&w, root, err);
    while (status == CKPT_OK && w.depth > 0)
        status = step(&w, err);
    if (status == CKPT_OK && out->failed)
        status = ckpt__fail_memory(err, "values", out->size);
    ckpt__arena_free(w.arena);
    ckpt__hash_free(w.by_pointer);
    free(w.nodes);
    free(w.frames);
    return status;
}
