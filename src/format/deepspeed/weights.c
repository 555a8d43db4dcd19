/* format/deepspeed/weights.c - the model. With stages 1 and 2 its file has all of it. With stage 3 each rank's file has the buffers,
 * empty parameters, and a part of each frozen one; the others are where their masters are. */
#include "format/deepspeed/deepspeed.h"
#include "format/survey.h"

#include <stdio.h>
#include <stdlib.h>

static bool is_listed(const ckpt_value *list, ckpt_str name)
{
    for (size_t i = 0; ckpt__is_list(list) && i < list->item_count; i++)
        if (list->items[i]->kind == CKPT_V_STR && ckpt__str_equal(list->items[i]->text, name))
            return true;
    return false;
}

static const ckpt__ds_param *param_of(const ckpt__ds *d, ckpt_str name)
{
    size_t i;
    return d->by_name && ckpt__hash_get(d->by_name, name.data, name.size, &i) ? &d->params[i] : NULL;
}

/* The value at a key that may have any bytes. */
static const ckpt_value *at_key(const ckpt_value *dict, ckpt_str key)
{
    for (size_t i = 0; dict && dict->kind == CKPT_V_DICT && i < dict->entry_count; i++)
        if (dict->entries[i].key->kind == CKPT_V_STR && ckpt__str_equal(dict->entries[i].key->text, key))
            return dict->entries[i].value;
    return NULL;
}

/* ---- stages 1 and 2 */

static ckpt_status check_shape(const ckpt__ds *d, ckpt_str name, const ckpt__tensor *t, ckpt_error *err)
{
    const ckpt__ds_param *p = param_of(d, name);
    char shown[300], is[120], said[120];
    if (!p || ckpt__same_shape(p->shape, p->ndim, t->info.shape, t->info.ndim))
        return CKPT_OK;
    ckpt__shape_text(is, sizeof is, t->info.shape, t->info.ndim);
    ckpt__shape_text(said, sizeof said, p->shape, p->ndim);
    return ckpt__fail(err, CKPT_E_FORMAT, d->model.name, "the shape of '%s' is %s, and param_shapes says %s",
                      ckpt__escape(shown, sizeof shown, name.data, name.size), is, said);
}

static ckpt_status add_own(ckpt__ds *d, ckpt_str name, const ckpt_value *v, ckpt_error *err)
{
    size_t number;
    const bool buffer = is_listed(ckpt_value_get(d->model.root, "buffer_names"), name);
    return ckpt__ds_add_like(d, name, v->tensor, buffer ? CKPT_ROLE_BUFFER : CKPT_ROLE_PARAM, &number, err);
}

/* ---- stage 3 */

/* What each rank has of a frozen parameter. */
static ckpt_status add_frozen(ckpt__ds *d, const ckpt__ds_param *p, size_t which, ckpt_error *err)
{
    ckpt__piece *pieces = calloc(d->ranks, sizeof *pieces);
    int64_t(*boxes)[2] = calloc(d->ranks, sizeof *boxes);
    const uint64_t share = p->numel / d->ranks + (p->numel % d->ranks != 0);
    ckpt_dtype dtype = CKPT_DTYPE_NONE;
    size_t n = 0, number;
    ckpt_status status = pieces && boxes ? CKPT_OK : ckpt__ds_no_memory(err);
    for (size_t r = 0; status == CKPT_OK && r < d->ranks; r++) {
        const uint64_t begin = r * share < p->numel ? r * share : p->numel,
                       count = p->numel - begin < share ? p->numel - begin : share;
        const ckpt__ds_fragment *f = d->models[r].fragments ? &d->models[r].fragments[which] : NULL;
        if (!d->models[r].there || count == 0)
            continue;
        if (!f || f->numel < count || (dtype != CKPT_DTYPE_NONE && dtype != f->dtype)) {
            char shown[300];
            status =
                ckpt__fail(err, CKPT_E_FORMAT, d->models[r].name,
                           "it has no fragment of %llu elements of the frozen parameter '%s'",
                           (unsigned long long)count, ckpt__escape(shown, sizeof shown, p->name.data, p->name.size));
            break;
        }
        dtype = f->dtype;
        boxes[n][0] = (int64_t)begin;
        boxes[n][1] = (int64_t)count;
        pieces[n] =
            (ckpt__piece){.box = boxes[n], .at = f->at, .storage = (uint32_t)f->storage, .flags = CKPT__PIECE_FLAT};
        n++;
    }
    if (status == CKPT_OK && n == 0)
        status = ckpt__survey_pieces(ckpt__ds_index(d)->findings, p->name, 0, p->numel, err);
    else if (status == CKPT_OK) {
        status = ckpt__ds_add(d, p->name, dtype, p->ndim, CKPT_ROLE_PARAM, &number, err);
        if (status == CKPT_OK)
            status = ckpt__index_set_pieces(ckpt__ds_index(d), number, p->shape, pieces, n, err);
    }
    free(pieces);
    free(boxes);
    return status;
}

ckpt_status ckpt__ds_frozen(ckpt__ds *d, ckpt_str name, const ckpt_value *size, ckpt_error *err)
{
    ckpt__ds_param p = {.name = name};
    char shown[300];
    ckpt_status status = ckpt__ds_shape(d, size, name, &p.shape, &p.ndim, err);
    if (status < 0)
        return status;
    if (!ckpt__numel(p.shape, p.ndim, &p.numel) || p.numel > INT64_MAX)
        return ckpt__fail(err, CKPT_E_FORMAT, ckpt__escape(shown, sizeof shown, name.data, name.size),
                          "the product of its shape in frozen_param_shapes overflows 64 bits");
    const ckpt_value *all = ckpt_value_get(d->model.root, "frozen_param_shapes");
    size_t which = 0;
    while (which < all->entry_count && all->entries[which].value != size)
        which++;
    return add_frozen(d, &p, which, err);
}

/* A key of the module's dict. A parameter that is tied to another has that one's master. */
static ckpt_status add_stage_3(ckpt__ds *d, ckpt_str name, const ckpt_value *v, ckpt_error *err)
{
    const ckpt_value *frozen = at_key(ckpt_value_get(d->model.root, "frozen_param_shapes"), name),
                     *tied = at_key(ckpt_value_get(d->model.root, "shared_params"), name);
    const ckpt__ds_param *p = param_of(d, tied && tied->kind == CKPT_V_STR ? tied->text : name);
    if (p)
        return ckpt__ds_weight_of_master(d, p, name, err);
    return frozen ? ckpt__ds_frozen(d, name, frozen, err) : add_own(d, name, v, err);
}

/* ---- both */

/* What a module's dict holds that is no tensor: an _extra_state. */
static ckpt_status put_others(ckpt__ds *d, const ckpt_value *module, ckpt_error *err)
{
    ckpt__arena *a = ckpt__ds_index(d)->arena;
    size_t n = 0;
    ckpt_entry *others = ckpt__arena_array(a, module->entry_count + 1, sizeof *others);
    for (size_t i = 0; others && i < module->entry_count; i++)
        if (!ckpt__ds_tensor(d, module->entries[i].value))
            others[n++] = module->entries[i];
    if (!others)
        return ckpt__ds_no_memory(err);
    return n ? ckpt__ds_put(d, "module", ckpt__value_dict(a, others, n), err) : CKPT_OK;
}

static ckpt_status add_one(ckpt__ds *d, const ckpt_entry *e, ckpt_error *err)
{
    const ckpt__tensor *t = ckpt__ds_tensor(d, e->value);
    if (!t || e->key->kind != CKPT_V_STR)
        return CKPT_OK;
    if (d->stage == 3)
        return add_stage_3(d, e->key->text, e->value, err);
    ckpt_status status = check_shape(d, e->key->text, t, err);
    return status == CKPT_OK ? add_own(d, e->key->text, e->value, err) : status;
}

static ckpt_status say_masters(ckpt__ds *d, ckpt_error *err)
{
    if (d->stage != 3 || d->param_count == 0 || !d->first)
        return CKPT_OK;
    return ckpt__report_add(
               ckpt__ds_index(d)->findings, CKPT_SEVERITY_NOTE, "weights-from-masters", NULL, NULL,
               "the %zu trained parameters are listed as the float32 masters of ZeRO stage 3, which holds no other "
               "weights: the program rounds them to its own dtype as it loads them",
               d->param_count)
               ? CKPT_OK
               : ckpt__ds_no_memory(err);
}

ckpt_status ckpt__ds_weights(ckpt__ds *d, ckpt_error *err)
{
    const ckpt_value *module = ckpt_value_get(d->model.root, "module");
    if (!module || module->kind != CKPT_V_DICT)
        return ckpt__fail(
            err, CKPT_E_UNSUPPORTED, d->model.name,
            "its module is not a dict of tensors, as where a pipeline keeps each layer in a file of its own: that is "
            "not read");
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < module->entry_count; i++)
        status = add_one(d, &module->entries[i], err);
    if (status == CKPT_OK)
        status = put_others(d, module, err);
    return status == CKPT_OK ? say_masters(d, err) : status;
}
