/* tests/unit/made_values.h - values and tensors of an index that is made by hand: no file is read. */
#ifndef MADE_VALUES_H
#define MADE_VALUES_H
#include <string.h>
#include "model/index.h"

/* The index that the values are made for: make_index() before, free_index() behind. */
static ckpt__index *ix;

static inline const ckpt_value *number(int64_t n)
{
    return ckpt__value_int(ix->arena, n);
}

static inline const ckpt_value *word(const char *text)
{
    return ckpt__value_str(ix->arena, text, strlen(text));
}

static inline ckpt_value *dict_of(const char *key, const ckpt_value *value, const char *second, const ckpt_value *other)
{
    ckpt_entry entries[2] = {{word(key), value}, {second ? word(second) : NULL, other}};
    return ckpt__value_dict(ix->arena, entries, second ? 2 : 1);
}

static inline const ckpt_value *tensor_of(uint32_t ndim, ckpt_role role)
{
    ckpt__tensor *t = ckpt__index_add_tensor(ix);
    t->info.ndim = ndim;
    t->info.role = role;
    ckpt_value *v = ckpt__value_new(ix->arena, CKPT_V_TENSOR);
    v->tensor = ix->tensor_count - 1;
    return v;
}

static inline void make_index(void)
{
    ix = ckpt__index_new(0);
}

static inline void free_index(void)
{
    ckpt__index_free(ix);
}
#endif
