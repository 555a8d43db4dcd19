/* model/value_alike.c - do two values of any trees say the same? */
#include "model/index.h"

/* Below it nothing is looked at: a value that contains itself ends there too. */
enum { DEEPEST = 12 };

/* dtype, shape and bytes of numpy's. */
static bool same_array(const ckpt_value *a, const ckpt_value *b)
{
    if (!a->array || !b->array)
        return a->array == b->array;
    return ckpt__str_equal(a->array->dtype, b->array->dtype) && a->array->fortran == b->array->fortran &&
           ckpt__same_shape(a->array->shape, a->array->ndim, b->array->shape, b->array->ndim) &&
           a->text.size == b->text.size && (a->text.size == 0 || memcmp(a->text.data, b->text.data, a->text.size) == 0);
}

/* Of what is no container. */
static bool same_leaf(const ckpt_value *a, const ckpt_value *b)
{
    switch (a->kind) {
    case CKPT_V_BOOL:
        return a->boolean == b->boolean;
    case CKPT_V_INT:
        return a->integer == b->integer;
    case CKPT_V_FLOAT:
        return memcmp(&a->real, &b->real, sizeof a->real) == 0;
    case CKPT_V_STR:
    case CKPT_V_BIGINT:
    case CKPT_V_BYTES:
    case CKPT_V_BYTEARRAY:
        return ckpt__str_equal(a->text, b->text);
    case CKPT_V_CLASS:
        return ckpt__str_equal(a->class_name, b->class_name);
    case CKPT_V_OBJECT:
        return ckpt__str_equal(a->class_name, b->class_name) && same_array(a, b);
    case CKPT_V_ARRAY:
        return same_array(a, b);
    default: /* a tensor: its number says nothing in another tree */
        return true;
    }
}

static bool alike(const ckpt_value *a, const ckpt_value *b, int depth)
{
    if (a == b || depth > DEEPEST)
        return true;
    if (!a || !b || a->kind != b->kind || !same_leaf(a, b))
        return false;
    if (!ckpt__is_list(a) && a->kind != CKPT_V_DICT && a->kind != CKPT_V_OBJECT)
        return true;
    if (a->item_count != b->item_count || a->entry_count != b->entry_count)
        return false;
    for (size_t i = 0; i < a->item_count; i++)
        if (!alike(a->items[i], b->items[i], depth + 1))
            return false;
    for (size_t i = 0; i < a->entry_count; i++)
        if (!alike(a->entries[i].key, b->entries[i].key, depth + 1) ||
            !alike(a->entries[i].value, b->entries[i].value, depth + 1))
            return false;
    return alike(a->args, b->args, depth + 1) && alike(a->state, b->state, depth + 1);
}

bool ckpt__value_alike(const ckpt_value *a, const ckpt_value *b)
{
    return alike(a, b, 0);
}
