/* format/deepspeed/shapes.c - param_shapes: the parameters in the order in which they are laid out. */
#include "format/deepspeed/deepspeed.h"

static ckpt_status wrong(ckpt_str name, ckpt_error *err)
{
    char shown[300];
    return ckpt__fail(err, CKPT_E_FORMAT, ckpt__escape(shown, sizeof shown, name.data, name.size),
                      "param_shapes has no shape for it, where a torch.Size of ints is expected");
}

ckpt_status ckpt__ds_shape(const ckpt__ds *d, const ckpt_value *v, ckpt_str name, const int64_t **shape, uint32_t *ndim,
                           ckpt_error *err)
{
    if (!ckpt__is_list(v) && !(v->kind == CKPT_V_OBJECT && ckpt__str_is(v->class_name, "torch.Size")))
        return wrong(name, err);
    if (v->item_count > CKPT__NDIM_MAX)
        return ckpt__fail(err, CKPT_E_LIMIT, name.data, "param_shapes gives it %zu dimensions; the limit is %d",
                          v->item_count, (int)CKPT__NDIM_MAX);
    int64_t *sizes = ckpt__arena_array(ckpt__ds_index(d)->arena, v->item_count + 1, sizeof *sizes);
    if (!sizes)
        return ckpt__ds_no_memory(err);
    for (size_t i = 0; i < v->item_count; i++) {
        if (v->items[i]->kind != CKPT_V_INT || v->items[i]->integer < 0)
            return wrong(name, err);
        sizes[i] = v->items[i]->integer;
    }
    *shape = sizes;
    *ndim = (uint32_t)v->item_count;
    return CKPT_OK;
}

static ckpt_status add_param(ckpt__ds *d, const ckpt_entry *e, size_t group, ckpt_error *err)
{
    char shown[300];
    ckpt__ds_param p = {.group = group};
    if (e->key->kind != CKPT_V_STR)
        return ckpt__fail(err, CKPT_E_FORMAT, d->model.name,
                          "param_shapes has a key that is not a name of a parameter");
    p.name = e->key->text;
    ckpt_status status = ckpt__ds_shape(d, e->value, p.name, &p.shape, &p.ndim, err);
    if (status < 0)
        return status;
    ckpt__escape(shown, sizeof shown, p.name.data, p.name.size);
    if (!ckpt__numel(p.shape, p.ndim, &p.numel) || p.numel > INT64_MAX)
        return ckpt__fail(err, CKPT_E_FORMAT, shown, "the product of its shape in param_shapes overflows 64 bits");
    if (!ckpt__grow(&d->params, &d->param_capacity, d->param_count + 1, sizeof *d->params))
        return ckpt__ds_no_memory(err);
    int put = ckpt__hash_put(d->by_name, p.name.data, p.name.size, d->param_count, NULL);
    if (put < 0)
        return ckpt__ds_no_memory(err);
    if (put == 0)
        return ckpt__fail(err, CKPT_E_FORMAT, shown, "param_shapes has it twice");
    d->params[d->param_count++] = p;
    return CKPT_OK;
}

/* A list of dicts, one a group; before 0.4 one dict. */
ckpt_status ckpt__ds_shapes(ckpt__ds *d, const ckpt_value *model, ckpt_error *err)
{
    const ckpt_value *shapes = ckpt_value_get(model, "param_shapes");
    bool one = shapes && shapes->kind == CKPT_V_DICT;
    d->by_name = ckpt__hash_new(64);
    if (!d->by_name)
        return ckpt__ds_no_memory(err);
    if (!one && !ckpt__is_list(shapes))
        return ckpt__fail(err, CKPT_E_UNSUPPORTED, d->model.name,
                          "it has no param_shapes, by which the flat parts of the ranks become tensors: DeepSpeed "
                          "before 0.3.17 wrote none. Load it there, and save it with a newer one");
    d->group_count = one ? 1 : shapes->item_count;
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < d->group_count; g++) {
        const ckpt_value *group = one ? shapes : shapes->items[g];
        if (group->kind != CKPT_V_DICT)
            return ckpt__fail(err, CKPT_E_FORMAT, d->model.name, "group %zu of param_shapes is not a dict", g);
        for (size_t i = 0; status == CKPT_OK && i < group->entry_count; i++)
            status = add_param(d, &group->entries[i], g, err);
    }
    return status;
}
