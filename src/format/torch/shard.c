/* format/torch/shard.c - which part of a DTensor (torch/distributed/tensor/_api.py, _dtensor_spec.py, device_mesh.py) or of a
 * ShardedTensor (torch/distributed/_shard/sharded_tensor/api.py) the rank has that wrote the file. What is not understood is
 * said in the note, and is no error: the file is read as any other. */
#include "format/torch/torch.h"

#include <stdlib.h>

typedef ckpt__pickle_node node;

static const node *at(const node *object, const char *name)
{
    return ckpt__torch_attribute(object, name);
}

static bool int_of(const node *n, int64_t *out)
{
    if (!n || n->kind != CKPT__P_INT)
        return false;
    *out = n->u.integer;
    return true;
}

/* torch.Size((...)), a tuple or a list. */
static const node *sequence_of(const node *n)
{
    if (n && n->kind == CKPT__P_OBJECT && ckpt__pickle_is_global(n->u.object->callable, "torch", "Size"))
        n = ckpt__torch_item(n->u.object->args, 0);
    return n && (n->kind == CKPT__P_TUPLE || n->kind == CKPT__P_LIST) ? n : NULL;
}

static bool ints_of(const node *n, int64_t *out, size_t count)
{
    n = sequence_of(n);
    if (!n || ckpt__torch_length(n) != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!int_of(ckpt__torch_item(n, i), &out[i]))
            return false;
    return true;
}

/* ---- the mesh */

/* An int, or the product of a tuple of ints: ranks that were made one dimension. */
static bool size_of(const node *n, int64_t *out)
{
    int64_t item;
    if (int_of(n, out))
        return *out > 0;
    if (!sequence_of(n))
        return false;
    *out = 1;
    for (size_t i = 0; i < ckpt__torch_length(n); i++)
        if (!int_of(ckpt__torch_item(n, i), &item) || item <= 0 || __builtin_mul_overflow(*out, item, out))
            return false;
    return true;
}

/* torch 2.13: a layout of axes. Since 2.9: one of a shape. Before: a tensor of the ranks, whose shape it is. */
static bool mesh_sizes(ckpt__torch *t, const node *mesh, ckpt__mesh *m)
{
    const node *layout = at(mesh, "_layout"), *axes = sequence_of(at(layout, "axes")), *shape = at(layout, "shape"),
               *old = at(mesh, "mesh");
    const node *list = axes ? axes : sequence_of(shape);
    size_t n = list ? ckpt__torch_length(list) : 1;
    ckpt__torch_tensor *tensor = NULL;
    bool good = n > 0 && n <= CKPT__MESH_MOST;
    if (!layout && ckpt__torch_is_tensor(old)) {
        if (ckpt__torch_tensor_of(t, old, &tensor, NULL) < 0 || !tensor->spec || !tensor->spec->shape ||
            tensor->spec->ndim == 0 || tensor->spec->ndim > CKPT__MESH_MOST)
            return false;
        m->ndim = tensor->spec->ndim;
        memcpy(m->sizes, tensor->spec->shape, m->ndim * sizeof *m->sizes);
        for (uint32_t i = 0; i < m->ndim; i++)
            good = good && m->sizes[i] > 0;
        return good;
    }
    m->ndim = good ? (uint32_t)n : 0;
    for (size_t i = 0; good && i < n; i++) {
        const node *item = list ? ckpt__torch_item(list, i) : shape;
        good = size_of(axes ? at(item, "shape") : item, &m->sizes[i]);
    }
    return good;
}

/* The ranks of the mesh, or of the one that it is a part of. */
static bool mesh_ranks(ckpt__torch *t, const node *mesh, ckpt__mesh *m)
{
    const node *list = sequence_of(at(mesh, "_flatten_rank_map"));
    if (!list)
        list = sequence_of(at(mesh, "_flatten_mesh_list"));
    size_t n = list ? ckpt__torch_length(list) : 0;
    int64_t *ranks = ckpt__arena_array(t->arena, n + 1, sizeof *ranks);
    if (!ranks)
        return false;
    m->ranks = ranks;
    for (size_t i = 0; i < n; i++) {
        if (!int_of(ckpt__torch_item(list, i), &ranks[i]) || ranks[i] < 0 || ranks[i] == INT64_MAX)
            return true; /* not understood */
        m->world = ranks[i] >= m->world ? ranks[i] + 1 : m->world;
    }
    m->rank_count = n;
    return true;
}

/* False: no memory. */
static bool mesh_names(ckpt__torch *t, const node *mesh, ckpt__mesh *m)
{
    const node *names = sequence_of(at(mesh, "_mesh_dim_names"));
    if (!names)
        names = sequence_of(at(mesh, "mesh_dim_names")); /* before 2.9 */
    for (uint32_t i = 0; names && ckpt__torch_length(names) == m->ndim && i < m->ndim; i++) {
        const node *name = ckpt__torch_item(names, i);
        if (!name || name->kind != CKPT__P_STR)
            continue;
        m->names[i] = ckpt__arena_str(t->arena, name->u.text.data, name->u.text.size);
        if (!m->names[i].data)
            return false;
    }
    return true;
}

/* One for all tensors that have it. False: no memory. *out NULL: it is not understood. */
static bool mesh_of(ckpt__torch *t, const node *mesh, const ckpt__mesh **out)
{
    size_t found;
    *out = NULL;
    if (!t->meshes && !(t->meshes = ckpt__hash_new(16)))
        return false;
    if (ckpt__hash_get(t->meshes, (const char *)&mesh, sizeof mesh, &found)) {
        *out = (const ckpt__mesh *)found;
        return true;
    }
    ckpt__mesh *m = ckpt__arena_alloc(t->arena, sizeof *m);
    if (!m)
        return false;
    *m = (ckpt__mesh){.node = mesh, .rank = -1};
    bool known = mesh_sizes(t, mesh, m);
    if (!mesh_ranks(t, mesh, m) || !mesh_names(t, mesh, m))
        return false;
    m->has_coordinate = known && ints_of(at(mesh, "_coordinate_on_dim"), m->coordinate, m->ndim);
    if (!int_of(at(mesh, "_rank"), &m->rank))
        m->rank = -1;
    for (uint32_t i = 0; m->has_coordinate && i < m->ndim; i++)
        known = known && m->coordinate[i] >= 0 && m->coordinate[i] < m->sizes[i];
    if (ckpt__hash_put(t->meshes, (const char *)&m->node, sizeof m->node, known ? (size_t)m : 0, NULL) < 0)
        return false;
    *out = known ? m : NULL;
    return true;
}

/* ---- placements */

static bool is_called(ckpt_str path, const char *name)
{
    size_t n = strlen(name);
    return path.size >= n && memcmp(path.data + path.size - n, name, n) == 0 &&
           (path.size == n || path.data[path.size - n - 1] == '.');
}

static bool placement_of(ckpt__torch *t, const node *n, ckpt__mesh_cut *out)
{
    *out = (ckpt__mesh_cut){CKPT__CUT_OTHER, 0, 1};
    if (!n || n->kind != CKPT__P_OBJECT)
        return true;
    ckpt_str name = ckpt__torch_callable(t, n);
    if (!name.data)
        return false;
    bool shard = is_called(name, "Shard"), strided = is_called(name, "_StridedShard");
    if (is_called(name, "Replicate"))
        out->cut = CKPT__CUT_REPLICATE;
    else if (is_called(name, "Partial") || is_called(name, "_Partial") || is_called(name, "_MaskPartial"))
        out->cut = CKPT__CUT_PARTIAL;
    else if ((shard || strided) && int_of(at(n, "dim"), &out->dim) &&
             (shard || int_of(at(n, "split_factor"), &out->split)))
        out->cut = shard ? CKPT__CUT_SHARD : CKPT__CUT_STRIDED;
    return true;
}

/* ((tensor's dimension, (mesh's dimensions)), ...): the order in which the mesh's dimensions cut. *out NULL: as they stand, or it
 * is not told. False: no memory. */
static bool order_of(ckpt__torch *t, const node *list, uint32_t ndim, const uint32_t **out, const char **why)
{
    uint32_t order[CKPT__MESH_MOST], n = 0;
    bool sorted = true;
    *out = NULL;
    if (ckpt__torch_length(list) > ndim)
        *why = "its shard_order is not understood";
    for (size_t i = 0; !*why && i < ckpt__torch_length(list); i++) {
        const node *entry = ckpt__torch_item(list, i);
        const node *args = entry->kind == CKPT__P_OBJECT ? entry->u.object->args : entry,
                   *dims = sequence_of(ckpt__torch_item(args, 1));
        for (size_t k = 0; k < ckpt__torch_length(dims); k++) {
            int64_t dim;
            if (!int_of(ckpt__torch_item(dims, k), &dim) || dim < 0 || dim >= (int64_t)ndim || n == ndim) {
                *why = "its shard_order is not understood";
                return true;
            }
            sorted = sorted && (k == 0 || order[n - 1] < (uint32_t)dim);
            order[n++] = (uint32_t)dim;
        }
    }
    if (sorted)
        return true;
    bool has[CKPT__MESH_MOST] = {false};
    for (uint32_t i = 0; i < n; i++) {
        if (has[order[i]])
            *why = "its shard_order names a dimension of the mesh twice";
        has[order[i]] = true;
    }
    for (uint32_t i = 0; i < ndim && n < ndim; i++)
        if (!has[i])
            order[n++] = i;
    *out = (const uint32_t *)(const void *)ckpt__arena_copy(t->arena, (const char *)order, ndim * sizeof *order);
    return *out != NULL;
}

/* ---- what the rank has */

/* False: no memory. */
static bool local_of(ckpt__torch *t, const node *n, ckpt__local *out, const char **why)
{
    ckpt__torch_tensor *tensor = NULL;
    *out = (ckpt__local){0};
    if (!ckpt__torch_is_tensor(n)) {
        *why = "the rank's own part is not a tensor";
        return true;
    }
    ckpt_status status = ckpt__torch_tensor_of(t, n, &tensor, NULL);
    if (status == CKPT_E_NO_MEMORY || status == CKPT_E_LIMIT)
        return false;
    const ckpt__torch_spec *s = status == CKPT_OK ? tensor->spec : NULL;
    if (!s || !s->has_storage || !s->strides || !s->shape || s->part_count || s->conj || s->neg) {
        *why = "the rank's own part is not a dense tensor";
        return true;
    }
    ckpt__storage *storage = &t->index->storages[s->storage];
    if (storage->unit == 1 && ckpt__dtype_row_of(s->dtype)->unit > 1 && t->big_endian) {
        storage->unit = ckpt__dtype_row_of(s->dtype)->unit;
        storage->extent.big_endian = true;
    }
    *out = (ckpt__local){.storage = s->storage,
                         .dtype = s->dtype,
                         .ndim = s->ndim,
                         .offset = s->offset,
                         .shape = s->shape,
                         .strides = s->strides};
    return true;
}

static bool note_dtensor(ckpt__torch *t, const node *state, ckpt__shard *s)
{
    const node *spec = ckpt__torch_said(state, "_spec"), *mesh = at(spec, "mesh"),
               *list = sequence_of(at(spec, "placements"));
    ckpt__local *local = ckpt__arena_alloc(t->arena, sizeof *local);
    if (!local || !local_of(t, ckpt__torch_said(state, "_local_tensor"), local, &s->why))
        return false;
    s->locals = local;
    s->local_count = 1;
    if (mesh && !mesh_of(t, mesh, &s->mesh))
        return false;
    if (!s->mesh || ckpt__torch_length(list) != s->mesh->ndim) {
        s->why = "the mesh of its ranks, or its placements over it, are not understood";
        return true;
    }
    ckpt__mesh_cut *own = ckpt__arena_array(t->arena, s->mesh->ndim, sizeof *own);
    for (uint32_t i = 0; own && i < s->mesh->ndim; i++)
        if (!placement_of(t, ckpt__torch_item(list, i), &own[i]))
            return false;
    s->placements = own;
    s->rank = s->mesh->rank;
    s->world = s->mesh->world;
    return own && order_of(t, sequence_of(at(spec, "shard_order")), s->mesh->ndim, &s->order, &s->why);
}

/* ShardMetadata of this rank's own. */
static bool note_place(ckpt__torch *t, const node *metadata, ckpt__local *local, const char **why)
{
    int64_t *lo = ckpt__arena_array(t->arena, 2 * (size_t)local->ndim + 1, sizeof *lo);
    if (!lo)
        return false;
    if (!ints_of(at(metadata, "shard_offsets"), lo, local->ndim) ||
        !ints_of(at(metadata, "shard_sizes"), lo + local->ndim, local->ndim))
        *why = "where the rank's part begins is not told";
    else if (memcmp(lo + local->ndim, local->shape, local->ndim * sizeof *lo) != 0)
        *why = "the rank's part has another shape than its metadata says";
    local->lo = lo;
    return true;
}

/* The rank of the last shard: they stand in the order of the ranks. */
static int64_t last_rank(const node *metadata)
{
    const node *all = sequence_of(at(metadata, "shards_metadata"));
    size_t n = ckpt__torch_length(all);
    int64_t rank = -1;
    bool told = n > 0 && int_of(at(at(ckpt__torch_item(all, n - 1), "placement"), "_rank"), &rank);
    return told && rank >= 0 && rank < INT64_MAX ? rank : -1;
}

/* ([Shard, ...], ShardedTensorMetadata, ProcessGroupState, ...) */
static bool note_sharded(ckpt__torch *t, const node *state, ckpt__shard *s)
{
    const node *shards = sequence_of(ckpt__torch_item(state, 0)), *group = ckpt__torch_item(state, 2);
    size_t n = ckpt__torch_length(shards);
    ckpt__local *locals = ckpt__arena_array(t->arena, n + 1, sizeof *locals);
    if (!locals)
        return false;
    if (!shards)
        s->why = "its shards are not understood";
    for (size_t i = 0; i < n; i++) {
        const node *shard = ckpt__torch_item(shards, i);
        if (!local_of(t, at(shard, "tensor"), &locals[i], &s->why) ||
            (!s->why && !note_place(t, at(shard, "metadata"), &locals[i], &s->why)))
            return false;
    }
    s->locals = locals;
    s->local_count = n;
    if (!int_of(at(group, "global_rank"), &s->rank))
        s->rank = -1;
    if (!int_of(at(group, "global_world_size"), &s->world) || s->world < 0)
        s->world = 0;
    int64_t last = last_rank(ckpt__torch_item(state, 1));
    if (last >= s->world)
        s->world = last + 1;
    return true;
}

bool ckpt__torch_note_shard(ckpt__torch *t, const ckpt__torch_spec *spec, size_t tensor)
{
    bool dtensor = is_called(spec->shell_class, "DTensor"), sharded = is_called(spec->shell_class, "ShardedTensor");
    if (!spec->shell_class.data || (!dtensor && !sharded))
        return true;
    ckpt__shard *s = ckpt__arena_alloc(t->arena, sizeof *s);
    if (!s)
        return false;
    *s = (ckpt__shard){.tensor = tensor, .rank = -1};
    if (!(dtensor ? note_dtensor(t, spec->shell, s) : note_sharded(t, spec->shell, s)))
        return false;
    if (t->last_shard)
        t->last_shard->next = s;
    else
        t->index->shards = s;
    t->last_shard = s;
    return true;
}
