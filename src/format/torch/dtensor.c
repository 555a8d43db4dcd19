/* format/torch/dtensor.c - how a DTensor is laid out over its mesh: its _spec holds the placements, one a dimension of the
 * mesh (torch/distributed/tensor/_dtensor_spec.py, placement_types.py). */
#include "format/torch/torch.h"

enum { MOST_PLACEMENTS = 16 };

const ckpt__pickle_node *ckpt__torch_said(const ckpt__pickle_node *state, const char *name)
{
    if (!state || state->kind != CKPT__P_TUPLE)
        return state && state->kind == CKPT__P_DICT ? ckpt__pickle_get(state, name) : NULL;
    for (size_t i = 0; i < 2; i++) {
        const ckpt__pickle_node *dict = ckpt__torch_item(state, i);
        const ckpt__pickle_node *found = dict && dict->kind == CKPT__P_DICT ? ckpt__pickle_get(dict, name) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

const ckpt__pickle_node *ckpt__torch_attribute(const ckpt__pickle_node *object, const char *name)
{
    return object && object->kind == CKPT__P_OBJECT ? ckpt__torch_said(object->u.object->state, name) : NULL;
}

static void put_int(ckpt__buf *b, const char *before, const ckpt__pickle_node *value)
{
    if (value && value->kind == CKPT__P_INT)
        ckpt__buf_printf(b, "%s%lld", before, (long long)value->u.integer);
}

/* Shard(dim=0), Replicate(), Partial(sum), _StridedShard(dim=0, sf=2): the class, and what its repr tells. */
static bool put_placement(ckpt__torch *t, ckpt__buf *b, const ckpt__pickle_node *placement)
{
    if (!placement || placement->kind != CKPT__P_OBJECT)
        return false;
    bool plain = placement->u.object->callable && placement->u.object->callable->kind == CKPT__P_GLOBAL;
    ckpt_str name = plain ? ckpt__torch_class(t, placement->u.object->callable) : (ckpt_str){NULL, 0};
    if (!name.data)
        return false;
    const char *last = memrchr(name.data, '.', name.size);
    size_t skip = last ? (size_t)(last - name.data) + 1 : 0;
    const ckpt__pickle_node *op = ckpt__torch_attribute(placement, "reduce_op");
    ckpt__buf_add(b, name.data + skip, name.size - skip);
    ckpt__buf_char(b, '(');
    put_int(b, "dim=", ckpt__torch_attribute(placement, "dim"));
    put_int(b, ", sf=", ckpt__torch_attribute(placement, "split_factor"));
    if (op && op->kind == CKPT__P_STR)
        ckpt__buf_add(b, op->u.text.data, op->u.text.size);
    ckpt__buf_char(b, ')');
    return true;
}

bool ckpt__torch_placements(ckpt__torch *t, const ckpt__pickle_node *state, ckpt_str *out)
{
    *out = (ckpt_str){NULL, 0};
    const ckpt__pickle_node *spec = ckpt__torch_said(state, "_spec"), *list = ckpt__torch_attribute(spec, "placements");
    size_t n = ckpt__torch_length(list);
    if (n == 0 || n > MOST_PLACEMENTS)
        return true;
    const ckpt__pickle_node *mesh = ckpt__torch_attribute(spec, "mesh"),
                            *names = ckpt__torch_attribute(mesh, "_mesh_dim_names");
    if (!names)
        names = ckpt__torch_attribute(mesh, "mesh_dim_names"); /* before 2.9 */
    bool named = ckpt__torch_length(names) == n, known = true;
    ckpt__buf b = {0};
    for (size_t i = 0; known && i < n; i++) {
        const ckpt__pickle_node *name = named ? ckpt__torch_item(names, i) : NULL;
        ckpt__buf_str(&b, i ? ", " : "");
        if (name && name->kind == CKPT__P_STR) {
            ckpt__buf_add(&b, name->u.text.data, name->u.text.size);
            ckpt__buf_str(&b, ": ");
        }
        known = put_placement(t, &b, ckpt__torch_item(list, i));
    }
    if (known && !b.failed)
        *out = ckpt__arena_str(t->arena, b.data, b.size);
    bool made = !b.failed && (!known || out->data);
    ckpt__buf_free(&b);
    return made;
}
