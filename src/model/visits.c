/* model/visits.c - what walks of a value tree do for several rooms. */
#include "model/visits.h"

bool ckpt__visit_path(ckpt__arena *a, const ckpt_visit *visit, ckpt_path *out)
{
    const size_t count = visit->path.count;
    ckpt_key *keys = ckpt__arena_array(a, count ? count : 1, sizeof *keys);
    for (size_t i = 0; keys && i < count; i++) {
        keys[i] = visit->path.keys[i];
        if (keys[i].text.data && !(keys[i].text = ckpt__arena_str(a, keys[i].text.data, keys[i].text.size)).data)
            return false;
    }
    *out = (ckpt_path){keys, count};
    return keys != NULL;
}

bool ckpt__visit_row(ckpt__arena *a, const ckpt_visit *visit, ckpt_tensor_info *out)
{
    out->name = ckpt__arena_str(a, visit->name.data, visit->name.size);
    out->inside = visit->inside;
    return out->name.data && ckpt__visit_path(a, visit, &out->path);
}

/* ---- values as bytes */

static void put_text(ckpt__buf *b, ckpt_str text)
{
    if (text.data)
        ckpt__buf_add(b, text.data, text.size);
}

void ckpt__visit_bytes(ckpt__buf *b, const ckpt_visit *visit)
{
    const ckpt_value *v = visit->value;
    const ckpt_key *key = visit->path.count ? &visit->path.keys[visit->path.count - 1] : NULL;
    ckpt__buf_printf(b, "|%d %zu %lld:", (int)v->kind, visit->path.count, key ? (long long)key->number : 0);
    if (key)
        put_text(b, key->text);
    ckpt__buf_printf(b, " %zu %zu:", v->item_count, v->entry_count);
    put_text(b, v->class_name);
    put_text(b, v->text);
    if (visit->cycle)
        put_text(b, visit->cycle_to);
    if (v->array)
        put_text(b, v->array->dtype);
    if (v->array && v->array->ndim)
        ckpt__buf_add(b, v->array->shape, v->array->ndim * sizeof *v->array->shape);
    if (v->kind == CKPT_V_BOOL)
        ckpt__buf_char(b, v->boolean ? 't' : 'f');
    else if (v->kind == CKPT_V_INT || v->kind == CKPT_V_FLOAT)
        ckpt__buf_add(b, &v->integer, sizeof v->integer);
}

/* ---- tensors among them */

static int on_any(void *ctx, const ckpt_visit *visit)
{
    (void)ctx;
    return visit->value->kind == CKPT_V_TENSOR; /* 1 ends the walk */
}

int ckpt__value_has_tensor(const ckpt_value *v, ckpt_error *err)
{
    return ckpt_value_walk(v, 0, on_any, NULL, err);
}

typedef struct numbers {
    const size_t *now;
    size_t count;
    bool final;
} numbers;

/* The first walk gives numbers that no tensor has, the second the new ones. */
static int number_value(void *ctx, const ckpt_visit *visit)
{
    const numbers *n = ctx;
    const size_t away = SIZE_MAX / 2;
    ckpt_value *v = (ckpt_value *)(uintptr_t)visit->value; /* the tree is the caller's own */
    if (v->kind != CKPT_V_TENSOR)
        return CKPT_OK;
    if (n->final)
        v->tensor -= v->tensor >= away ? away : 0;
    else if (v->tensor < n->count && n->now[v->tensor])
        v->tensor = away + n->now[v->tensor] - 1;
    else if (v->tensor < n->count)
        *v = (ckpt_value){.kind = CKPT_V_NONE};
    return CKPT_OK;
}

ckpt_status ckpt__values_number(const ckpt_value *root, const size_t *now, size_t count, ckpt_error *err)
{
    numbers n = {.now = now, .count = count};
    ckpt_status status = root ? (ckpt_status)ckpt_value_walk(root, 0, number_value, &n, err) : CKPT_OK;
    n.final = true;
    return status == CKPT_OK && root ? (ckpt_status)ckpt_value_walk(root, 0, number_value, &n, err) : status;
}
