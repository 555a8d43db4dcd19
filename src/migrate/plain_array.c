/* migrate/plain_array.c - --plain: a numpy array becomes a tensor where torch has its dtype, and a numpy scalar a number; what torch has
 * no dtype for becomes its bytes, or a list of what it holds. */
#include "migrate/migration.h"

#include <stdlib.h>

static void become(ckpt_value *v, const ckpt_value *other)
{
    *v = *other;
    v->origin = NULL;
}

static ckpt_dtype numpy_dtype(ckpt_str text)
{
    static const struct {
        const char *numpy;
        ckpt_dtype dtype;
    } dtypes[] = {{"f2", CKPT_F16}, {"f4", CKPT_F32},  {"f8", CKPT_F64}, {"i1", CKPT_I8},   {"i2", CKPT_I16},
                  {"i4", CKPT_I32}, {"i8", CKPT_I64},  {"u1", CKPT_U8},  {"u2", CKPT_U16},  {"u4", CKPT_U32},
                  {"u8", CKPT_U64}, {"b1", CKPT_BOOL}, {"c8", CKPT_C64}, {"c16", CKPT_C128}};
    for (size_t i = 0; text.size > 1 && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(text.data + 1, dtypes[i].numpy) == 0)
            return dtypes[i].dtype;
    return CKPT_DTYPE_NONE;
}

/* Column-major strides. */
static void fortran_strides(const int64_t *shape, uint32_t ndim, int64_t *strides)
{
    int64_t step = 1;
    for (uint32_t d = 0; d < ndim; d++) {
        strides[d] = step;
        step *= shape[d] > 0 ? shape[d] : 1;
    }
}

/* The array's bytes become a storage that lies in memory, and a tensor of the source. */
static ckpt_status add_array(ckpt__migration *m, const ckpt_value *v, ckpt_str name, ckpt_dtype dtype, size_t *number,
                             ckpt_error *err)
{
    const ckpt_array *a = v->array;
    ckpt__index *x = m->from;
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return ckpt__migration_no_memory(err);
    *s = (ckpt__storage){.device = ckpt__s("cpu"), .name = name, .unit = ckpt__dtype_row_of(dtype)->unit};
    s->extent = (ckpt__extent){
        .memory = v->text.data, .length = v->text.size, .size = v->text.size, .big_endian = a->dtype.data[0] == '>'};
    size_t storage = x->storage_count - 1;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    int64_t *strides = ckpt__arena_array(x->arena, (size_t)a->ndim + 1, sizeof *strides);
    ckpt_key *keys = ckpt__arena_array(x->arena, 1, sizeof *keys);
    if (!t || !strides || !keys || !ckpt__ledger_reach(&m->ledger, x->tensor_count))
        return ckpt__migration_no_memory(err);
    *number = x->tensor_count - 1;
    if (a->fortran)
        fortran_strides(a->shape, a->ndim, strides);
    else
        ckpt__c_strides(a->shape, a->ndim, strides);
    keys->text = name;
    t->info = (ckpt_tensor_info){.name = name,
                                 .path = {keys, 1},
                                 .dtype = dtype,
                                 .ndim = a->ndim,
                                 .device = ckpt__s("cpu"),
                                 .role = CKPT_ROLE_OTHER,
                                 .storage = -1,
                                 .extra = &ckpt__no_extra};
    return ckpt__index_set_view(x, *number, storage, a->shape, strides, 0, err);
}

static ckpt_value *number_value(ckpt__arena *a, ckpt_dtype dtype, ckpt_str bytes)
{
    int64_t i;
    double d;
    bool is_float = ckpt_dtype_is_float(dtype), known;
    if (bytes.size != ckpt_dtype_size(dtype))
        return NULL;
    known = is_float ? ckpt__convert(dtype, bytes.data, CKPT_F64, &d, 1, NULL)
                     : ckpt__convert(dtype, bytes.data, CKPT_I64, &i, 1, NULL);
    if (!known)
        return NULL;
    return is_float             ? ckpt__value_float(a, d)
           : dtype == CKPT_BOOL ? ckpt__value_bool(a, i != 0)
                                : ckpt__value_int(a, i);
}

/* A numpy scalar: a number. */
static bool is_numpy_scalar(const ckpt_value *v)
{
    return v->kind == CKPT_V_OBJECT && v->array && v->text.data && !v->item_count;
}

ckpt_status ckpt__plain_array(ckpt__migration *m, ckpt_value *v, ckpt_str name, ckpt_error *err)
{
    const ckpt_array *a = v->array;
    ckpt_dtype dtype = numpy_dtype(a->dtype);
    uint64_t numel = 0, nbytes = 0;
    bool swapped = a->dtype.size && a->dtype.data[0] == '>';
    bool fits = dtype != CKPT_DTYPE_NONE && ckpt__numel(a->shape, a->ndim, &numel) &&
                ckpt__nbytes(numel, ckpt_dtype_bits(dtype), &nbytes) && nbytes == v->text.size;
    if (is_numpy_scalar(v) && fits && !swapped) {
        ckpt_value *number = number_value(m->from->arena, dtype, v->text);
        if (number) {
            become(v, number);
            return CKPT_OK;
        }
    }
    if (!fits) { /* strings, objects, dates: what they are in words, and the bytes */
        ckpt_value *bytes = ckpt__value_new(m->from->arena, v->text.data ? CKPT_V_BYTEARRAY : CKPT_V_NONE);
        if (!bytes)
            return ckpt__migration_no_memory(err);
        bytes->text = v->text;
        if (v->item_count)
            bytes = ckpt__value_list(m->from->arena, CKPT_V_LIST, v->items, v->item_count);
        if (!bytes)
            return ckpt__migration_no_memory(err);
        become(v, bytes);
        return CKPT_OK;
    }
    size_t number = 0;
    ckpt_str kept = ckpt__arena_str(m->from->arena, name.data, name.size);
    if (!kept.data)
        return ckpt__migration_no_memory(err);
    ckpt_status status = add_array(m, v, kept, dtype, &number, err);
    if (status == CKPT_OK)
        *v = (ckpt_value){.kind = CKPT_V_TENSOR, .tensor = number};
    return status;
}
