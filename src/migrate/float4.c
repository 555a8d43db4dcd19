/* migrate/float4.c - values of four bits, which torch and safetensors count otherwise. */
#include "migrate/place.h"

/* Two values of four bits are one element of torch's float4_e2m1fn_x2 and two of safetensors' F4: the same bytes, and the last
 * dimension twice as long, as the safetensors library has it. --to same: each file keeps its format, and its name for them. */
static ckpt_status set_float4(ckpt__migration *m, size_t i, ckpt_dtype to, ckpt_error *err)
{
    ckpt__tensor *t = &m->index->tensors[i];
    ckpt_dtype was = t->info.dtype;
    ckpt_str device = t->info.device;
    uint32_t last = t->info.ndim ? t->info.ndim - 1 : 0;
    bool doubles = to == CKPT_F4;
    if (!t->whole || !t->info.ndim || (doubles ? t->info.shape[last] > INT64_MAX / 2 : t->info.shape[last] % 2))
        return CKPT_OK; /* the writer says what it makes of it */
    int64_t *shape = ckpt__arena_array(m->index->arena, 2 * (size_t)t->info.ndim, sizeof *shape),
            *strides = shape ? shape + t->info.ndim : NULL;
    if (!shape)
        return ckpt__migration_no_memory(err);
    memcpy(shape, t->info.shape, t->info.ndim * sizeof *shape);
    shape[last] = doubles ? shape[last] * 2 : shape[last] / 2;
    ckpt__c_strides(shape, t->info.ndim, strides);
    t->info.dtype = to;
    bool in_order = ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim);
    t->info.shape = shape; /* of a strided view too: its bytes are read in C order */
    if (doubles && in_order) {
        t->info.strides = strides;
        t->info.offset *= 2;
    }
    ckpt_status status = doubles ? CKPT_OK : ckpt__index_set_view(m->index, i, t->storage, shape, NULL, 0, err);
    m->index->tensors[i].info.device = device;
    if (status == CKPT_OK)
        status = ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "cast", t->info.name, err,
                                      "%s is %s there: the same bytes, the last dimension %s as long",
                                      ckpt_dtype_name(was), ckpt_dtype_name(to), doubles ? "twice" : "half");
    if (status == CKPT_OK &&
        !ckpt__report_detail(m->report, NULL, ckpt_dtype_name(was), ckpt_dtype_name(to), t->info.nbytes))
        status = ckpt__migration_no_memory(err);
    return status;
}

ckpt_status ckpt__place_float4(ckpt__placing *p, size_t i)
{
    const ckpt__migration *m = p->m;
    ckpt_dtype is = m->same ? CKPT_DTYPE_NONE : m->index->tensors[i].info.dtype;
    if (is == CKPT_F4 && m->torch)
        return set_float4(p->m, i, CKPT_F4_E2M1_X2, p->err);
    if (is == CKPT_F4_E2M1_X2 && m->format->logical_float4)
        return set_float4(p->m, i, CKPT_F4, p->err);
    return CKPT_OK;
}
