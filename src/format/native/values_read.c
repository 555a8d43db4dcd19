/* format/native/values_read.c - value tree from JSON. No recursion: open containers are frames, finished children wait on one
 * stack until their container ends. A container's value exists from its opening on, so that a reference inside it can
 * point at it. */
#include "format/native/values.h"

#include <math.h>
#include <stdlib.h>

enum { SMALL_FROM = -16, SMALL_TO = 256 }; /* integers of which one value each is enough */

typedef struct frame {
    ckpt_value *v;
    size_t base; /* of its children on the stack: values, or key and value in turn */
    bool object;
} frame;

typedef struct reader {
    const ckpt__values_reader *hooks;
    ckpt__json j;
    ckpt__buf text;
    const ckpt_value **stack;
    size_t count, capacity;
    frame *frames;
    size_t depth, frame_capacity;
    ckpt_value **ids;
    size_t id_count, id_capacity;
    const ckpt_value *none, *truth[2], *small[SMALL_TO - SMALL_FROM];
} reader;

static ckpt_status no_room(const reader *r, ckpt_error *err)
{
    uint64_t used = ckpt__arena_used(r->hooks->arena);
    if (ckpt__arena_over_limit(r->hooks->arena))
        return ckpt__fail(err, CKPT_E_LIMIT, NULL,
                          "the values take more than %llu bytes of memory; that is the limit here",
                          (unsigned long long)used);
    return ckpt__fail_memory(err, "values", used);
}

static ckpt_status push(reader *r, const ckpt_value *v, ckpt_error *err)
{
    if (!v || !ckpt__grow(&r->stack, &r->capacity, r->count + 1, sizeof *r->stack))
        return no_room(r, err);
    r->stack[r->count++] = v;
    return CKPT_OK;
}

/* ---- leaves */

static const ckpt_value *make_int(reader *r, int64_t i)
{
    if (i < SMALL_FROM || i >= SMALL_TO)
        return ckpt__value_int(r->hooks->arena, i);
    const ckpt_value **slot = &r->small[i - SMALL_FROM];
    return *slot ? *slot : (*slot = ckpt__value_int(r->hooks->arena, i));
}

static ckpt_status read_number(reader *r, ckpt_error *err)
{
    const char *p = r->j.text + r->j.start;
    size_t n = r->j.end - r->j.start;
    int64_t i;
    double d;
    if (ckpt__parse_i64(p, n, &i))
        return push(r, make_int(r, i), err);
    if (!ckpt__parse_double(p, n, &d))
        return ckpt__json_wrong(&r->j, err, "a number that cannot be read");
    return push(r, ckpt__value_float(r->hooks->arena, d), err);
}

static ckpt_status read_leaf(reader *r, ckpt_error *err)
{
    ckpt__arena *a = r->hooks->arena;
    ckpt_str text;
    const ckpt_value **slot;
    switch (r->j.event) {
    case CKPT__JSON_NUMBER:
        return read_number(r, err);
    case CKPT__JSON_NULL:
        return push(r, r->none ? r->none : (r->none = ckpt__value_new(a, CKPT_V_NONE)), err);
    case CKPT__JSON_TRUE:
    case CKPT__JSON_FALSE:
        slot = &r->truth[r->j.event == CKPT__JSON_TRUE];
        return push(r, *slot ? *slot : (*slot = ckpt__value_bool(a, r->j.event == CKPT__JSON_TRUE)), err);
    default:
        text = ckpt__json_text(&r->j, &r->text);
        return push(r, text.data ? ckpt__value_str(a, text.data, text.size) : NULL, err);
    }
}

/* ---- objects with "$" */

typedef struct members {
    const ckpt_value *const *pairs;
    size_t count; /* key and value in turn */
} members;

static const ckpt_value *member(const members *m, const char *key, ckpt_kind kind)
{
    for (size_t i = 0; i + 1 < m->count; i += 2)
        if (ckpt__str_is(m->pairs[i]->text, key))
            return m->pairs[i + 1]->kind == kind ? m->pairs[i + 1] : NULL;
    return NULL;
}

static ckpt_status wrong(const reader *r, ckpt_error *err, const char *what)
{
    return ckpt__json_wrong(&r->j, err, "in the value tree: %s", what);
}

/* "hex", or "blob" of the dtype wanted. */
static ckpt_status get_bytes(reader *r, const members *m, ckpt_str *out, ckpt_error *err)
{
    const ckpt_value *hex = member(m, "hex", CKPT_V_STR), *blob = member(m, "blob", CKPT_V_INT);
    if (hex) {
        char *data = ckpt__arena_copy(r->hooks->arena, hex->text.data, hex->text.size);
        if (!data)
            return no_room(r, err);
        *out = (ckpt_str){data, hex->text.size / 2};
        if (!ckpt__hex_get(hex->text.data, hex->text.size, data))
            return wrong(r, err, "\"hex\" is not pairs of lower-case hexadecimal digits");
        data[out->size] = '\0';
        return CKPT_OK;
    }
    ckpt_dtype dtype = CKPT_DTYPE_NONE;
    if (!blob)
        return wrong(r, err, "bytes need \"hex\" or \"blob\"");
    ckpt_status status = r->hooks->blob(r->hooks->ctx, blob->integer, &dtype, &out->data, &out->size, err);
    if (status == CKPT_OK && dtype != CKPT_U8)
        status = wrong(r, err, "a blob of bytes must be U8");
    return status;
}

static ckpt_status get_numbers(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *blob = member(m, "blob", CKPT_V_INT);
    ckpt_dtype dtype = CKPT_DTYPE_NONE;
    const char *data = NULL;
    size_t size = 0;
    if (!blob)
        return wrong(r, err, "a list or tuple needs \"items\" or \"blob\"");
    ckpt_status status = r->hooks->blob(r->hooks->ctx, blob->integer, &dtype, &data, &size, err);
    if (status < 0)
        return status;
    if (dtype != CKPT_I64 && dtype != CKPT_F64)
        return wrong(r, err, "a blob of numbers must be I64 or F64");
    const ckpt_value **items = ckpt__arena_array(r->hooks->arena, size / 8 + 1, sizeof *items);
    if (!items)
        return no_room(r, err);
    for (size_t i = 0; i < size / 8; i++) {
        int64_t n;
        double d;
        memcpy(&n, data + 8 * i, 8);
        memcpy(&d, data + 8 * i, 8);
        if (!(items[i] = dtype == CKPT_I64 ? make_int(r, n) : ckpt__value_float(r->hooks->arena, d)))
            return no_room(r, err);
    }
    v->items = items;
    v->item_count = size / 8;
    return CKPT_OK;
}

static ckpt_status get_items(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *items = member(m, "items", CKPT_V_LIST);
    if (items == v)
        return wrong(r, err, "a list that is its own \"items\"");
    if (!items)
        return v->kind == CKPT_V_OBJECT ? CKPT_OK : get_numbers(r, m, v, err);
    v->items = items->items;
    v->item_count = items->item_count;
    return CKPT_OK;
}

static ckpt_status get_entries(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *pairs = member(m, "entries", CKPT_V_LIST);
    if (!pairs)
        return v->kind == CKPT_V_OBJECT ? CKPT_OK : wrong(r, err, "a dict needs \"entries\"");
    ckpt_entry *entries = ckpt__arena_array(r->hooks->arena, pairs->item_count + 1, sizeof *entries);
    if (!entries)
        return no_room(r, err);
    for (size_t i = 0; i < pairs->item_count; i++) {
        const ckpt_value *pair = pairs->items[i];
        if (pair->kind != CKPT_V_LIST || pair->item_count != 2)
            return wrong(r, err, "\"entries\" must be pairs of key and value");
        entries[i] = (ckpt_entry){pair->items[0], pair->items[1]};
    }
    v->entries = entries;
    v->entry_count = pairs->item_count;
    return CKPT_OK;
}

static ckpt_status finish_number(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *text = member(m, "v", CKPT_V_STR);
    if (!text)
        return wrong(r, err, "an int or float needs \"v\", a string");
    const char *p = text->text.data;
    size_t n = text->text.size;
    if (v->kind == CKPT_V_FLOAT) {
        bool nan = ckpt__str_is(text->text, "nan"), minus = ckpt__str_is(text->text, "-inf");
        v->real = nan ? (double)NAN : minus ? -(double)INFINITY : (double)INFINITY;
        return nan || minus || ckpt__str_is(text->text, "inf") ? CKPT_OK
                                                               : wrong(r, err, "a float must be nan, inf or -inf here");
    }
    if (ckpt__parse_i64(p, n, &v->integer))
        return CKPT_OK;
    size_t i = n > 0 && p[0] == '-', first = i;
    while (i < n && p[i] >= '0' && p[i] <= '9')
        i++;
    if (i == first || i < n)
        return wrong(r, err, "an int that is not decimal digits");
    v->kind = CKPT_V_BIGINT;
    v->text = text->text;
    return CKPT_OK;
}

static ckpt_status finish_array(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *dtype = member(m, "dtype", CKPT_V_STR), *shape = member(m, "shape", CKPT_V_LIST);
    const ckpt_value *fortran = member(m, "fortran", CKPT_V_BOOL);
    uint64_t numel;
    if (!dtype || !shape || shape->item_count > 64)
        return wrong(r, err, "an array needs \"dtype\" and \"shape\"");
    int64_t *sizes = ckpt__arena_array(r->hooks->arena, shape->item_count + 1, sizeof *sizes);
    ckpt_array *array = ckpt__arena_alloc(r->hooks->arena, sizeof *array);
    if (!sizes || !array)
        return no_room(r, err);
    for (size_t i = 0; i < shape->item_count; i++) {
        if (shape->items[i]->kind != CKPT_V_INT)
            return wrong(r, err, "an array's shape must be integers");
        sizes[i] = shape->items[i]->integer;
    }
    *array = (ckpt_array){dtype->text, sizes, (uint32_t)shape->item_count, fortran && fortran->boolean};
    v->array = array;
    if (!ckpt__numel(sizes, array->ndim, &numel))
        return wrong(r, err, "an array's shape is negative or too large");
    return get_bytes(r, m, &v->text, err);
}

static ckpt_status finish_tensor(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *n = member(m, "n", CKPT_V_INT), *name = member(m, "name", CKPT_V_STR);
    if (!n == !name || (n && n->integer < 0))
        return wrong(r, err, "a tensor needs either \"n\" or \"name\"");
    return r->hooks->tensor(r->hooks->ctx, n ? n->integer : -1, name ? name->text : (ckpt_str){NULL, 0}, v, err);
}

static ckpt_status finish_container(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; i + 1 < m->count; i += 2) {
        if (ckpt__str_is(m->pairs[i]->text, "state"))
            v->state = m->pairs[i + 1];
        if (ckpt__str_is(m->pairs[i]->text, "args") && v->kind == CKPT_V_OBJECT)
            v->args = m->pairs[i + 1];
    }
    if (v->kind != CKPT_V_DICT)
        status = get_items(r, m, v, err);
    if (status == CKPT_OK && (v->kind == CKPT_V_DICT || v->kind == CKPT_V_OBJECT))
        status = get_entries(r, m, v, err);
    return status;
}

static ckpt_status finish_kind(reader *r, const members *m, ckpt_value *v, ckpt_error *err)
{
    switch (v->kind) {
    case CKPT_V_INT:
    case CKPT_V_FLOAT:
        return finish_number(r, m, v, err);
    case CKPT_V_STR:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return get_bytes(r, m, &v->text, err);
    case CKPT_V_ARRAY:
        return finish_array(r, m, v, err);
    case CKPT_V_TENSOR:
        return finish_tensor(r, m, v, err);
    case CKPT_V_CLASS:
        return v->class_name.data ? CKPT_OK : wrong(r, err, "a class needs \"class\"");
    default:
        return finish_container(r, m, v, err);
    }
}

/* `{"$":...}` is complete: fills v, or for a reference gives what it points at. */
static ckpt_status finish_tagged(reader *r, const members *m, ckpt_value *v, const ckpt_value **result, ckpt_error *err)
{
    static const ckpt_kind kinds[] = {CKPT_V_INT,       CKPT_V_FLOAT, CKPT_V_STR,   CKPT_V_BYTES,
                                      CKPT_V_BYTEARRAY, CKPT_V_LIST,  CKPT_V_TUPLE, CKPT_V_DICT,
                                      CKPT_V_TENSOR,    CKPT_V_ARRAY, CKPT_V_CLASS, CKPT_V_OBJECT};
    const ckpt_value *tag = member(m, "$", CKPT_V_STR), *class_name = member(m, "class", CKPT_V_STR);
    char text[64];
    if (!tag)
        return wrong(r, err, "\"$\" must be a string");
    if (ckpt__str_is(tag->text, "ref")) {
        const ckpt_value *id = member(m, "id", CKPT_V_INT);
        if (!id || id->integer < 0 || (uint64_t)id->integer >= r->id_count)
            return wrong(r, err, "a reference to an id that was not defined before it");
        *result = r->ids[id->integer];
        return CKPT_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (ckpt__str_is(tag->text, ckpt_kind_name(kinds[i]))) {
            v->kind = kinds[i];
            if (class_name)
                v->class_name = class_name->text;
            return finish_kind(r, m, v, err);
        }
    return ckpt__json_wrong(&r->j, err, "in the value tree: unknown kind \"%s\"",
                            ckpt__escape(text, sizeof text, tag->text.data, tag->text.size));
}

/* ---- containers */

static bool is_tagged(const reader *r, const frame *f)
{
    return f->object && r->count > f->base && r->stack[f->base]->text.size && r->stack[f->base]->text.data[0] == '$';
}

/* `"id":n` as the second member of a tagged object that is no reference: from here on it can be pointed at. */
static ckpt_status note_id(reader *r, const frame *f, ckpt_error *err)
{
    if (r->count != f->base + 4 || !is_tagged(r, f) || !ckpt__str_is(r->stack[f->base + 2]->text, "id") ||
        r->stack[f->base + 1]->kind != CKPT_V_STR || ckpt__str_is(r->stack[f->base + 1]->text, "ref"))
        return CKPT_OK;
    const ckpt_value *id = r->stack[f->base + 3];
    if (id->kind != CKPT_V_INT || id->integer < 0 || (uint64_t)id->integer != r->id_count)
        return wrong(r, err, "ids must be 0, 1, 2, ... in the order of the text");
    if (!ckpt__grow(&r->ids, &r->id_capacity, r->id_count + 1, sizeof *r->ids))
        return no_room(r, err);
    r->ids[r->id_count++] = f->v;
    return CKPT_OK;
}

static ckpt_status finish_object(reader *r, const frame *f, const ckpt_value **result, ckpt_error *err)
{
    size_t n = r->count - f->base;
    char text[96];
    ckpt_str which;
    ckpt_entry *entries = ckpt__arena_array(r->hooks->arena, n / 2 + 1, sizeof *entries);
    if (!entries)
        return no_room(r, err);
    for (size_t i = 0; i < n / 2; i++)
        entries[i] = (ckpt_entry){r->stack[f->base + 2 * i], r->stack[f->base + 2 * i + 1]};
    int twice = ckpt__values_twice(entries, n / 2, &which);
    if (twice < 0)
        return no_room(r, err);
    if (twice)
        return ckpt__json_wrong(&r->j, err, "in the value tree: the key \"%s\" occurs twice",
                                ckpt__escape(text, sizeof text, which.data, which.size));
    if (is_tagged(r, f)) {
        members m = {r->stack + f->base, n};
        return finish_tagged(r, &m, f->v, result, err);
    }
    f->v->kind = CKPT_V_DICT;
    f->v->entries = entries;
    f->v->entry_count = n / 2;
    return CKPT_OK;
}

static ckpt_status finish_list(reader *r, const frame *f, ckpt_error *err)
{
    size_t n = r->count - f->base;
    const ckpt_value **items = ckpt__arena_array(r->hooks->arena, n + 1, sizeof *items);
    if (!items)
        return no_room(r, err);
    if (n)
        memcpy(items, r->stack + f->base, n * sizeof *items);
    f->v->kind = CKPT_V_LIST;
    f->v->items = items;
    f->v->item_count = n;
    return CKPT_OK;
}

static ckpt_status close_frame(reader *r, ckpt_error *err)
{
    frame f = r->frames[--r->depth];
    const ckpt_value *result = f.v;
    ckpt_status status = f.object ? finish_object(r, &f, &result, err) : finish_list(r, &f, err);
    r->count = f.base;
    return status < 0 ? status : push(r, result, err);
}

static ckpt_status open_frame(reader *r, ckpt_error *err)
{
    ckpt_value *v = ckpt__value_new(r->hooks->arena, CKPT_V_NONE);
    if (!v || !ckpt__grow(&r->frames, &r->frame_capacity, r->depth + 1, sizeof *r->frames))
        return no_room(r, err);
    r->frames[r->depth++] = (frame){v, r->count, r->j.event == CKPT__JSON_OBJECT};
    return CKPT_OK;
}

static ckpt_status read_event(reader *r, ckpt_error *err)
{
    ckpt_status status;
    switch (r->j.event) {
    case CKPT__JSON_ERROR:
        return r->j.status;
    case CKPT__JSON_OBJECT:
    case CKPT__JSON_ARRAY:
        return open_frame(r, err);
    case CKPT__JSON_OBJECT_END:
    case CKPT__JSON_ARRAY_END:
        status = close_frame(r, err);
        break;
    default:
        status = read_leaf(r, err);
    }
    if (status == CKPT_OK && r->depth > 0 && r->j.event != CKPT__JSON_KEY)
        status = note_id(r, &r->frames[r->depth - 1], err);
    return status;
}

ckpt_status ckpt__values_read(const char *text, size_t size, const ckpt__values_reader *hooks, const ckpt_value **root,
                              ckpt_error *err)
{
    reader *r = calloc(1, sizeof *r);
    ckpt_status status = CKPT_OK;
    if (!r)
        return ckpt__fail_memory(err, "values", sizeof *r);
    r->hooks = hooks;
    ckpt__json_start(&r->j, text, size, CKPT__JSON_DEPTH, "value tree");
    while (status == CKPT_OK && ckpt__json_next(&r->j, err) != CKPT__JSON_END)
        status = read_event(r, err);
    if (status == CKPT_OK)
        *root = r->stack[0];
    ckpt__buf_free(&r->text);
    free(r->stack);
    free(r->frames);
    free(r->ids);
    free(r);
    return status;
}
