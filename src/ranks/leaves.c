/* ranks/leaves.c - values and tensors of all ranks: which are one, which each rank has for itself, and which must not differ. */
#include "ranks/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include "anatomy/rank_kind.h"
#include "model/visits.h"

static ckpt_status keep_own(ckpt__ranks_merger *m, const ckpt__place *at, ckpt__entries *own)
{
    m->r->differ++;
    return ckpt__place_keep(at, own, m->r->err);
}

/* ---- may it differ? */

static bool is_within(ckpt_str path, ckpt_str folder)
{
    return folder.data && (folder.size == 0 || (ckpt__str_begins_with(path, folder) &&
                                                (path.size == folder.size || path.data[folder.size] == '.')));
}

/* A rank has another one than others: a state of random generators, a place in the data, or what the layout says. */
bool ckpt__ranks_is_own(const ckpt__ranks_merger *m)
{
    const ckpt_str path = ckpt__ranks_path(m);
    ckpt__rank_kind kind;
    const size_t said = ckpt__name_list_find(&m->r->files->own, path);
    if (said < m->r->files->own.count)
        m->r->owned[said] = true;
    return said < m->r->files->own.count || ckpt__rank_kind_of(path, &kind);
}

/* It says of what step the file is. */
static bool counts_steps(ckpt_str path)
{
    static const char *const keys[] = {"step",       "global_step", "iter_num", "iteration",
                                       "train_step", "num_updates", "epoch"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t n = strlen(keys[i]);
        if (path.size >= n && memcmp(path.data + path.size - n, keys[i], n) == 0 &&
            (path.size == n || path.data[path.size - n - 1] == '.'))
            return true;
    }
    return false;
}

ckpt_status ckpt__ranks_not_same(const ckpt__ranks_merger *m, size_t one, size_t other, const char *what)
{
    const ckpt__ranks_file *a = m->sources[one].files[0], *b = m->sources[other].files[0];
    char first[200], second[200];
    return ckpt__ranks_wrong(m->r, b->name, ckpt__ranks_path(m), "%s has another one than %s in %s%s",
                             ckpt__ranks_rank_text(m->r, b, second, sizeof second),
                             ckpt__ranks_rank_text(m->r, a, first, sizeof first), a->name, what);
}

/* ---- values */

/* *other: the first file that has something else than the first one; the count of files: there is none. */
static ckpt_status compare(ckpt__ranks_merger *m, const ckpt__place *at, size_t *other)
{
    const size_t first = ckpt__place_first(at), files = m->count;
    bool same = true;
    ckpt_status status = CKPT_OK;
    for (*other = first; status == CKPT_OK && same && *other < files;)
        if (++*other < files && at->values[*other])
            status = ckpt__ranks_alike(m->r, at->values[first], at->values[*other], &same);
    return status;
}

ckpt_status ckpt__ranks_merge_value(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own)
{
    const size_t first = ckpt__place_first(at);
    const ckpt_str path = ckpt__ranks_path(m);
    size_t other;
    ckpt_status status = compare(m, at, &other);
    if (status < 0 || other == m->count) {
        *out = at->values[first];
        return status;
    }
    if (ckpt__ranks_is_own(m))
        return keep_own(m, at, own);
    *out = at->values[first];
    for (size_t i = 0; status == CKPT_OK && i < m->count; i++)
        if (at->values[i])
            status = (ckpt_status)ckpt__value_has_tensor(at->values[i], m->r->err);
    if (status != CKPT_OK)
        return status < 0 ? status
                          : ckpt__ranks_not_same(
                                m, first, other,
                                ", and a tensor is in it: all ranks have the same tensors in the same places (what "
                                "each rank has for itself is listed under 'own')");
    if (counts_steps(path))
        return ckpt__ranks_not_same(m, first, other, ": these are not files of one step");
    if (is_within(path, m->r->optimizer))
        return ckpt__ranks_not_same(m, first, other, ": an optimizer has the same settings on all ranks");
    *out = NULL;
    return keep_own(m, at, own);
}

/* ---- tensors */

static ckpt_status note_name(ckpt__ranks_merger *m, const ckpt__ranks_tensor *t)
{
    const ckpt__layout *layout = m->r->request->layout;
    if (t->shard != SIZE_MAX || !t->name.inside || !ckpt__layout_shard_count(layout, m->r->request->side))
        return CKPT_OK;
    return ckpt__ranks_wrong(m->r, NULL, t->name.shown, "no entry of 'shard' has the name '%.*s'",
                             (int)t->name.param.size, t->name.param.data);
}

/* Which entry cuts it: a moment is cut as its parameter, a count is not. *known false: none can be told, which was said. */
static ckpt_status find_shard(ckpt__ranks_merger *m, ckpt__ranks_tensor *t, const ckpt_tensor_info *one, bool *known)
{
    const ckpt__layout *layout = m->r->request->layout;
    const unsigned side = m->r->request->side;
    const ckpt__ranks_name *param = t->name.state ? ckpt__ranks_param_of(m->r, m->stage, &t->name) : NULL;
    size_t axes[CKPT__MESH_AXES], cuts;
    uint32_t dims[CKPT__MESH_AXES];
    uint64_t numel = 0;
    *known = true;
    t->shard = ckpt__layout_shard_of(layout, side, t->name.param);
    if (t->shard != SIZE_MAX)
        m->r->used[t->shard] = true;
    ckpt_status status = note_name(m, t);
    *known = status == CKPT_OK;
    if (status < 0 || t->shard == SIZE_MAX)
        return status;
    cuts = ckpt__layout_shard_axes(layout, side, t->shard, axes, dims);
    if (!t->name.inside && !cuts) /* it need not be the same on all ranks: a state of random generators */
        t->shard = SIZE_MAX;
    if (!t->name.state)
        return CKPT_OK;
    ckpt__numel(one->shape, one->ndim, &numel);
    if (t->name.step || !cuts || (one->ndim == 0 && numel == 1))
        t->shard = SIZE_MAX;
    else if (param && ckpt__same_shape(param->shape, param->ndim, one->shape, one->ndim))
        return CKPT_OK;
    else if (numel == 1)
        t->shard = SIZE_MAX;
    else {
        *known = false;
        return ckpt__ranks_wrong(
            m->r, NULL, t->name.shown,
            "it has not the shape of its parameter, so that the parameter's cuts say nothing of it");
    }
    return CKPT_OK;
}

/* Are all axes that cut it in the names of the files? */
static ckpt_status check_axes(ckpt__ranks_merger *m, const ckpt__ranks_tensor *t)
{
    size_t axes[CKPT__MESH_AXES], cuts = 0;
    uint32_t dims[CKPT__MESH_AXES];
    if (t->shard != SIZE_MAX)
        cuts = ckpt__layout_shard_axes(m->r->request->layout, m->r->request->side, t->shard, axes, dims);
    for (size_t i = 0; i < cuts; i++) {
        const ckpt__rank_axis *a = &m->r->mesh.axes[axes[i]];
        if (!m->group->along[axes[i]] && a->size > 1)
            return ckpt__ranks_wrong(m->r, m->sources[0].files[0]->name, t->name.shown,
                                     "the axis '%.*s' cuts it, and the names %.*s of its files do not have <%.*s>",
                                     (int)a->name.size, a->name.data, (int)m->group->form->text.size,
                                     m->group->form->text.data, (int)a->name.size, a->name.data);
    }
    return CKPT_OK;
}

static ckpt_status add_tensor(ckpt__ranks_merger *m, const ckpt__place *at, ckpt__ranks_tensor t,
                              const ckpt_value **out)
{
    ckpt__ranks *r = m->r;
    t.first = r->part_count;
    t.count = m->count;
    ckpt_status status = check_axes(m, &t);
    if (status < 0 || !ckpt__grow(&r->parts, &r->part_capacity, r->part_count + t.count, sizeof *r->parts) ||
        !ckpt__grow(&r->tensors, &r->tensor_capacity, r->tensor_count + 1, sizeof *r->tensors))
        return status < 0 ? status : ckpt__ranks_no_memory(r->err);
    for (size_t i = 0; i < t.count; i++)
        r->parts[r->part_count++] = (ckpt__ranks_part){m->sources[i].files[0], at->values[i]->tensor};
    ckpt_value *v = ckpt__value_new(r->index->arena, CKPT_V_TENSOR);
    if (!v)
        return ckpt__ranks_no_memory(r->err);
    v->tensor = r->row_count + r->tensor_count;
    r->tensors[r->tensor_count++] = t;
    *out = v;
    return CKPT_OK;
}

/* Several stages have it: the layout says that they share it, or each has another one for itself. */
static ckpt_status share(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out, ckpt__entries *own)
{
    ckpt__ranks *r = m->r;
    const size_t first = ckpt__place_first(at);
    ckpt_status status = CKPT_OK;
    *out = at->values[first];
    if ((*out)->tensor < r->row_count)
        return ckpt__ranks_merge_value(m, at, out, own);
    for (size_t i = first + 1; status == CKPT_OK && i < m->count; i++) {
        if (!at->values[i])
            continue;
        const ckpt__ranks_name *name = &r->tensors[(*out)->tensor - r->row_count].name;
        const ckpt__name_list *shared = &r->files->stages.shared;
        const size_t said = ckpt__name_list_find(shared, name->param);
        if (said == shared->count)
            return ckpt__ranks_not_same(
                m, first, i,
                ", under the same name: a tensor that several stages have is listed under 'shared', and layers that each "
                "stage counts from 0 need 'local: true'");
        r->shares[said] = true;
        if (!ckpt__grow(&r->twins, &r->twin_capacity, r->twin_count + 1, sizeof *r->twins))
            return ckpt__ranks_no_memory(r->err);
        r->twins[r->twin_count++] =
            (ckpt__ranks_twin){(*out)->tensor - r->row_count, at->values[i]->tensor - r->row_count};
    }
    return status;
}

ckpt_status ckpt__ranks_merge_tensors(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                      ckpt__entries *own)
{
    if (m->stage == SIZE_MAX)
        return share(m, at, out, own);
    const ckpt_str path = ckpt__ranks_path(m);
    const ckpt__ranks_name *name = ckpt__ranks_name_of(m->r, m->stage, path);
    const ckpt_tensor_info *one = &m->r->index->tensors[at->values[0]->tensor].info;
    ckpt__ranks_tensor t = {.group = m->group, .stage = m->stage};
    size_t other;
    bool known;
    if (name)
        t.name = *name;
    else
        t.name.own = t.name.param = t.name.shown = t.name.local = ckpt__arena_str(m->r->arena, path.data, path.size);
    if (!t.name.own.data)
        return ckpt__ranks_no_memory(m->r->err);
    ckpt_status status = find_shard(m, &t, one, &known);
    if (status < 0 || !known)
        return status;
    if (t.name.inside || t.shard != SIZE_MAX)
        return add_tensor(m, at, t, out);
    status = compare(m, at, &other);
    if (status < 0 || other == m->count) {
        *out = at->values[0];
        return status;
    }
    return ckpt__ranks_is_own(m)
               ? keep_own(m, at, own)
               : ckpt__ranks_not_same(
                     m, 0, other,
                     ", and no entry of 'shard' cuts it (what each rank has for itself is listed under 'own')");
}
