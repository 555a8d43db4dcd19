/* state/array.c - an array of the trainer's heap as a value: where it lies and how long it is, its own variables say. */
#include <stdlib.h>
#include "state/state.h"

/* The context of the hooks of one array. It has the addresses of the trainer's two variables, for the trainer changes
 * both. */
typedef struct array {
    void *pointer; /* the trainer's variable that points at the elements */
    size_t *count; /* the trainer's variable that counts the elements */
    size_t item;   /* bytes per element */
} array;

static void *elements(const array *a)
{
    void *p;
    memcpy(&p, a->pointer, sizeof p); /* its type is the trainer's: int *, double *, ... */
    return p;
}

static ckpt_status measure(void *ctx, uint64_t *size, ckpt_error *err)
{
    const array *a = ctx;
    if (!ckpt__mul(*a->count, a->item, size))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "its count is %zu: that many elements of %zu bytes are not an array", *a->count, a->item);
    if (*size && !elements(a))
        return ckpt__fail(err, CKPT_E_ARGUMENT, NULL,
                          "its pointer is NULL, and its count is %zu; 0 is expected with NULL", *a->count);
    return CKPT_OK;
}

static ckpt_status write_elements(void *ctx, void *to, size_t size, ckpt_error *err)
{
    (void)err;
    if (size)
        memcpy(to, elements(ctx), size);
    return CKPT_OK;
}

static ckpt_status check(void *ctx, size_t size, ckpt_error *err)
{
    const array *a = ctx;
    if (size % a->item == 0)
        return CKPT_OK;
    return ckpt__fail(err, CKPT_E_MISMATCH, NULL,
                      "it has %zu bytes in the checkpoint, which are not whole elements of %zu bytes", size, a->item);
}

static ckpt_status take(void *ctx, const void *from, size_t size, ckpt_error *err)
{
    const array *a = ctx;
    void *p = realloc(elements(a), size ? size : 1);
    if (!p)
        return ckpt__fail_memory(err, NULL, size);
    if (size)
        memcpy(p, from, size);
    memcpy(a->pointer, &p, sizeof p);
    *a->count = size / a->item;
    return CKPT_OK;
}

ckpt_status ckpt_state_array(ckpt_state *s, const char *name, void *pointer, size_t *count, size_t item,
                             ckpt_error *err)
{
    ckpt_value_hooks hooks = CKPT_VALUE_HOOKS_INIT;
    if (!s || !name || !pointer || !count || item == 0)
        return ckpt__fail(err, CKPT_E_ARGUMENT, name ? name : "ckpt_state_array",
                          "a NULL state, name or variable, or elements of 0 bytes");
    array *a = ckpt__arena_alloc(s->memory, sizeof *a);
    if (!a)
        return ckpt__fail_memory(err, name, sizeof *a);
    *a = (array){pointer, count, item};
    hooks.ctx = a;
    hooks.measure = measure;
    hooks.write = write_elements;
    hooks.check = check;
    hooks.take = take;
    return ckpt_state_value(s, name, &hooks, err);
}
