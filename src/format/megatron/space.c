/* format/megatron/space.c - moments in the shape of fragments -> the shape of their parameter.
 *
 * The distributed optimizer with fully_sharded_model_space (megatron-core up to 0.14) writes of each parameter the part of each
 * tensor-parallel rank flat, cut anywhere by the data-parallel ranks. The list has it in the shape [fragments of each
 * dimension ..., elements of one fragment]; layers are a dimension whose fragments have one each. The whole shape is in mcore_data of
 * the list; else it is that of the parameter of the same name. A gated fc1 of shape [2, 80, 12] on 2 ranks has 4 fragments, of gate
 * and gate, up and up:
 *
 *     list        [2, 4, 1, 240]     a piece [0, 2, 0, 208] of 32 elements
 *     fragment    [80 / 4, 12] = [20, 12], the third of layer 0: from row 40 on
 *     piece       elements 208 ... 239 of it: rows 57 (from column 4 on), 58 and 59
 *
 * That is proved where each size is a multiple of the number of its fragments, and where their product is what a fragment has. */
#include "format/megatron/megatron.h"
#include "model/box.h"

#include <stdio.h>
#include <stdlib.h>

/* One tensor on its way to its own shape. */
typedef struct unfolding {
    ckpt__index *index;
    const ckpt__dcp_wholes *wholes;
    ckpt__hash *by_name, *whole_by_name; /* owned: names of tensors, of whole shapes -> numbers */
    ckpt__piece *pieces;
    size_t count, capacity;
    int64_t *boxes; /* heap: 2 n numbers each */
    size_t box_capacity;
    const int64_t *shape; /* whole */
    uint32_t ndim;
    int64_t local[CKPT__BOX_MAX], origin[CKPT__BOX_MAX]; /* sizes of one fragment; where the piece's begins */
    uint64_t at;                                         /* bytes */
    uint32_t storage;
    unsigned unit;    /* bytes of an element */
    bool model_space; /* the optimizer's values say that its moments are in fragments */
} unfolding;

static ckpt_status add_box(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    unfolding *u = ctx;
    const size_t n = u->ndim, from = u->count * 2 * n;
    uint64_t numel;
    if (!ckpt__grow(&u->pieces, &u->capacity, u->count + 1, sizeof *u->pieces) ||
        !ckpt__grow(&u->boxes, &u->box_capacity, from + 2 * n, sizeof *u->boxes) || !ckpt__numel(size, u->ndim, &numel))
        return ckpt__meg_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        u->boxes[from + i] = u->origin[i] + lo[i];
        u->boxes[from + n + i] = size[i];
    }
    u->pieces[u->count++] = (ckpt__piece){.at = u->at, .storage = u->storage};
    u->at += numel * u->unit;
    return CKPT_OK;
}

/* Sets the sizes of a fragment; false: the two shapes do not prove it. */
static bool divide(unfolding *u, const ckpt_tensor_info *t)
{
    uint64_t numel;
    if (t->ndim != u->ndim + 1 || u->ndim == 0 || u->ndim > CKPT__BOX_MAX)
        return false;
    for (uint32_t i = 0; i < u->ndim; i++) {
        if (t->shape[i] <= 0 || u->shape[i] <= 0 || u->shape[i] % t->shape[i] != 0)
            return false;
        u->local[i] = u->shape[i] / t->shape[i];
    }
    return ckpt__numel(u->local, u->ndim, &numel) && (uint64_t)t->shape[u->ndim] == numel;
}

/* A view is a range of one fragment. *is: else nothing is said of it. */
static ckpt_status cut(unfolding *u, const ckpt__view *v, bool *is, ckpt_error *err)
{
    const uint32_t n = u->ndim;
    *is = !v->flat && !v->strides;
    for (uint32_t i = 0; *is && i < n; i++) {
        *is = v->size[i] == 1;
        u->origin[i] = (v->lo ? v->lo[i] : 0) * u->local[i];
    }
    if (!*is)
        return CKPT_OK;
    const uint64_t begin = v->lo ? (uint64_t)v->lo[n] : 0;
    u->at = v->at;
    u->storage = v->storage;
    return ckpt__box_cut_flat(n, u->local, begin, begin + (uint64_t)v->size[n], add_box, u, err);
}

/* The tensor gets a second row, which takes its place; the first one is left out in the end. */
static ckpt_status replace(unfolding *u, size_t tensor, bool *keep, ckpt_error *err)
{
    ckpt__index *x = u->index;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    const size_t last = x->tensor_count - 1;
    if (!t)
        return ckpt__meg_no_memory(err);
    const ckpt_tensor_info *own = &x->tensors[tensor].info;
    t->info.name = own->name;
    t->info.path = own->path;
    t->info.dtype = own->dtype;
    t->info.ndim = u->ndim;
    t->info.role = own->role;
    t->info.param = own->param;
    t->info.state_key = own->state_key;
    t->info.device = own->device;
    for (size_t i = 0; i < u->count; i++)
        u->pieces[i].box = u->boxes + i * 2 * u->ndim;
    ckpt_status status = ckpt__index_set_pieces(x, last, u->shape, u->pieces, u->count, err);
    if (status < 0)
        return status;
    const ckpt__tensor old = x->tensors[tensor];
    x->tensors[tensor] = x->tensors[last];
    x->tensors[last] = old;
    for (size_t i = 0; i < x->tensors[tensor].piece_count; i++)
        x->pieces[x->tensors[tensor].first_piece + i].tensor = (uint32_t)tensor;
    for (size_t i = 0; i < old.piece_count; i++)
        x->pieces[old.first_piece + i].tensor = (uint32_t)last;
    keep[last] = false;
    return CKPT_OK;
}

/* The whole shape of a moment, by the list or by its parameter. Where nothing says it, and nothing says that the moment is in
 * fragments, its own is the whole. False: there is none, or the two are not the same. */
static bool find_shape(unfolding *u, const ckpt_tensor_info *t)
{
    size_t whole, param;
    const bool said = ckpt__hash_get(u->whole_by_name, t->name.data, t->name.size, &whole),
               there = ckpt__hash_get(u->by_name, t->param.data, t->param.size, &param);
    u->shape = t->shape;
    u->ndim = t->ndim;
    if (!said && !there)
        return !u->model_space;
    const ckpt_tensor_info *p = there ? &u->index->tensors[param].info : NULL;
    u->shape = said ? u->wholes->items[whole].shape : p->shape;
    u->ndim = said ? u->wholes->items[whole].ndim : p->ndim;
    return !said || !there || ckpt__same_shape(u->shape, u->ndim, p->shape, p->ndim);
}

/* *known: the moment has the shape of its parameter, now or as it was. */
static ckpt_status unfold(unfolding *u, size_t tensor, bool *keep, bool *known, ckpt_error *err)
{
    const ckpt__tensor own = u->index->tensors[tensor];
    ckpt_status status = CKPT_OK;
    *known = true;
    if (!own.info.param.data || own.info.role == CKPT_ROLE_PARAM || !own.info.shape || ckpt__has_no_bytes(&own))
        return CKPT_OK;
    *known = find_shape(u, &own.info);
    u->unit = (unsigned)ckpt_dtype_size(own.info.dtype);
    if (*known && ckpt__same_shape(u->shape, u->ndim, own.info.shape, own.info.ndim))
        return CKPT_OK;
    *known = *known && u->unit && divide(u, &own.info);
    u->count = 0;
    for (size_t i = 0; status == CKPT_OK && *known && i < ckpt__view_count(&own); i++) {
        ckpt__view v = ckpt__view_of(u->index, &own, i);
        if (own.whole) /* of a whole tensor the strides are those of C order */
            v.strides = NULL;
        status = cut(u, &v, known, err);
    }
    return status == CKPT_OK && *known ? replace(u, tensor, keep, err) : status;
}

static ckpt_status make_tables(unfolding *u, ckpt_error *err)
{
    bool ok = true;
    u->by_name = ckpt__hash_new(u->index->tensor_count + 1);
    u->whole_by_name = ckpt__hash_new(u->wholes->count + 1);
    ok = u->by_name && u->whole_by_name;
    for (size_t i = 0; ok && i < u->index->tensor_count; i++) {
        const ckpt_tensor_info *t = &u->index->tensors[i].info;
        ok = t->param.data || !t->name.data || ckpt__hash_put(u->by_name, t->name.data, t->name.size, i, NULL) >= 0;
    }
    for (size_t i = 0; ok && i < u->wholes->count; i++)
        ok = ckpt__hash_put(u->whole_by_name, u->wholes->items[i].name.data, u->wholes->items[i].name.size, i, NULL) >=
             0;
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

static ckpt_status note_unknown(const unfolding *u, size_t count, size_t first, ckpt_error *err)
{
    const ckpt_str *own = &u->index->tensors[first].info.name;
    char name[300];
    bool ok = ckpt__report_add(
        u->index->findings, CKPT_SEVERITY_WARNING, "layout-unknown",
        ckpt__escape(name, sizeof name, own->data, own->size),
        "the parameter of the same key, saved in the same directory, would settle it",
        "%zu tensors of the optimizer have another shape than a parameter of the list, and nothing says how they lie in it: "
        "they stay as they are, under their own keys",
        count);
    return ok ? CKPT_OK : ckpt__meg_no_memory(err);
}

ckpt_status ckpt__meg_unfold(ckpt__index *x, const ckpt__dcp_wholes *wholes, bool model_space, ckpt_error *err)
{
    unfolding u = {.index = x, .wholes = wholes, .model_space = model_space};
    const size_t before = x->tensor_count;
    size_t unknown = 0, first = 0;
    bool *keep = malloc(2 * before + 1);
    ckpt_status status = keep ? make_tables(&u, err) : ckpt__meg_no_memory(err);
    if (keep)
        memset(keep, true, 2 * before + 1);
    for (size_t i = 0; status == CKPT_OK && i < before; i++) {
        bool known;
        status = unfold(&u, i, keep, &known, err);
        if (status == CKPT_OK && !known && unknown++ == 0)
            first = i;
    }
    if (status == CKPT_OK && unknown)
        status = note_unknown(&u, unknown, first, err);
    if (status == CKPT_OK && x->tensor_count > before)
        status = ckpt__index_keep(x, keep, err);
    ckpt__hash_free(u.by_name);
    ckpt__hash_free(u.whole_by_name);
    free(u.pieces);
    free(u.boxes);
    free(keep);
    return status;
}
