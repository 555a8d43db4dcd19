/* format/deepspeed/rows.c - rows of the index on their way: made, named, kept. */
#include "format/deepspeed/deepspeed.h"

#include <stdlib.h>

ckpt_status ckpt__ds_no_memory(ckpt_error *err)
{
    return ckpt__fail_memory(err, "a checkpoint of DeepSpeed", 0);
}

const ckpt__tensor *ckpt__ds_tensor(const ckpt__ds *d, const ckpt_value *v)
{
    const ckpt__index *x = ckpt__ds_index(d);
    return v && v->kind == CKPT_V_TENSOR && v->tensor < x->tensor_count ? &x->tensors[v->tensor] : NULL;
}

const ckpt_value *ckpt__ds_item(const ckpt_value *container, int64_t key)
{
    if (ckpt__is_list(container))
        return key >= 0 && (uint64_t)key < container->item_count ? container->items[key] : NULL;
    for (size_t i = 0; container && container->kind == CKPT_V_DICT && i < container->entry_count; i++) {
        const ckpt_value *own = container->entries[i].key;
        if (own->kind == CKPT_V_INT && own->integer == key)
            return container->entries[i].value;
    }
    return NULL;
}

/* ZeroStageEnum(2) is an object of one argument. */
int64_t ckpt__ds_int(const ckpt_value *v)
{
    if (v && v->kind == CKPT_V_OBJECT && ckpt__is_list(v->args) && v->args->item_count == 1)
        v = v->args->items[0];
    return v && v->kind == CKPT_V_INT && v->integer >= 0 ? v->integer : -1;
}

ckpt_status ckpt__ds_keep(ckpt__ds *d, size_t tensor, ckpt_error *err)
{
    const size_t before = d->keep_capacity;
    if (!ckpt__grow(&d->keep, &d->keep_capacity, tensor + 1, sizeof *d->keep))
        return ckpt__ds_no_memory(err);
    if (d->keep_capacity > before)
        memset(d->keep + before, 0, (d->keep_capacity - before) * sizeof *d->keep);
    d->keep[tensor] = true;
    return CKPT_OK;
}

ckpt_status ckpt__ds_put(ckpt__ds *d, const char *key, const ckpt_value *value, ckpt_error *err)
{
    return value ? ckpt__folder_put(&d->reader, key, value, err) : ckpt__ds_no_memory(err);
}

/* The path of one key. The root has no value for it, as that of a native file: a name that is canonical says all. */
static ckpt_status name_it(ckpt__ds *d, size_t tensor, ckpt_str name, ckpt_role role, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt_key *key = ckpt__arena_alloc(x->arena, sizeof *key);
    name = name.data ? ckpt__arena_str(x->arena, name.data, name.size) : name;
    if (!key || !name.data)
        return ckpt__ds_no_memory(err);
    key->text = name;
    ckpt_tensor_info *info = &x->tensors[tensor].info;
    info->name = name;
    info->path = (ckpt_path){key, 1};
    info->role = role;
    info->param = info->state_key = info->group = info->file = (ckpt_str){NULL, 0};
    return ckpt__ds_keep(d, tensor, err);
}

ckpt_status ckpt__ds_add(ckpt__ds *d, ckpt_str name, ckpt_dtype dtype, uint32_t ndim, ckpt_role role, size_t *number,
                         ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__ds_no_memory(err);
    *number = x->tensor_count - 1;
    t->info.dtype = dtype;
    t->info.ndim = ndim;
    return name_it(d, *number, name, role, err);
}

/* One that is a part of a flat storage gets that part as its own. */
static ckpt_status part_it(ckpt__ds *d, size_t tensor, uint64_t copy, ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    const ckpt__tensor *t = &x->tensors[tensor];
    const uint64_t at = (uint64_t)t->info.offset * ckpt_dtype_size(t->info.dtype);
    size_t part;
    if (!t->whole || ckpt_dtype_size(t->info.dtype) == 0 || t->info.conj || t->info.neg ||
        !ckpt__is_c_order(t->info.shape, t->info.strides, t->info.ndim))
        return CKPT_OK;
    ckpt_status status = ckpt__ds_part(d, t->storage, at, t->info.nbytes, copy, &part, err);
    t = &x->tensors[tensor];
    return status < 0 || part == t->storage
               ? status
               : ckpt__index_set_view(x, tensor, part, t->info.shape, t->info.strides, 0, err);
}

ckpt_status ckpt__ds_add_like(ckpt__ds *d, ckpt_str name, size_t tensor, ckpt_role role, size_t *number,
                              ckpt_error *err)
{
    ckpt__index *x = ckpt__ds_index(d);
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__ds_no_memory(err);
    *number = x->tensor_count - 1;
    *t = x->tensors[tensor];
    const uint64_t copy = role == CKPT_ROLE_STEP                                        ? CKPT__DS_STEP + *number
                          : role == CKPT_ROLE_PARAM && t->info.role == CKPT_ROLE_MASTER ? CKPT__DS_WEIGHT
                                                                                        : CKPT__DS_STATE;
    ckpt_status status = name_it(d, *number, name, role, err);
    return status == CKPT_OK ? part_it(d, *number, copy, err) : status;
}

ckpt_status ckpt__ds_add_empty(ckpt__ds *d, ckpt_str name, ckpt_dtype dtype, const ckpt__ds_param *p, ckpt_role role,
                               size_t *number, ckpt_error *err)
{
    ckpt_status status = ckpt__ds_add(d, name, dtype, p->ndim, role, number, err);
    return status == CKPT_OK ? ckpt__index_set_empty(ckpt__ds_index(d), *number, p->shape, err) : status;
}

ckpt_status ckpt__ds_name_state(ckpt__ds *d, const ckpt__ds_param *p, ckpt_str key, ckpt_str *name, ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    ckpt_str ending = ckpt__arena_join(a, ckpt__s("."), key, (ckpt_str){NULL, 0});
    *name = ending.data ? ckpt__arena_join(a, ckpt__s("optimizer."), p->name, ending) : ending;
    return name->data ? CKPT_OK : ckpt__ds_no_memory(err);
}

void ckpt__ds_belongs(ckpt__ds *d, size_t tensor, const ckpt__ds_param *p, ckpt_str key)
{
    ckpt_tensor_info *info = &ckpt__ds_index(d)->tensors[tensor].info;
    info->param = p->name;
    info->state_key = key;
}
