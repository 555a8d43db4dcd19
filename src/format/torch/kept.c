/* format/torch/kept.c - the pickle that a native file keeps of the torch file that it was made from: the whole structure,
 * as write_values.c writes it, with tensors of the native file in place of storages: the persistent ids are
 * ('storage', class, key, location, numel) as in a torch file, and the key is the number of a record. man/ckpt-format.5. */
#include "format/torch/torch.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

/* A key is the number of a record: "12", a tensor, whose offset and strides are those of the torch file; or "s12", the whole
 * bytes of a storage that no tensor of the file shows otherwise. */
static bool parse_key(ckpt_str key, bool *bare, size_t count, size_t *n)
{
    int64_t number;
    *bare = key.size > 1 && key.data[0] == 's';
    if (!ckpt__parse_i64(key.data + *bare, key.size - *bare, &number) || number < 0 || (uint64_t)number >= count)
        return false;
    *n = (size_t)number;
    return true;
}

/* ---- reading it: what storage.c asks for */

ckpt_status ckpt__torch_kept_place(ckpt__torch *t, const ckpt__pickle_node *p, const ckpt__torch_id *id,
                                   ckpt__torch_place *out, ckpt_error *err)
{
    bool bare;
    size_t n;
    if (!parse_key(id->key, &bare, t->kept->tensor_count, &n))
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "its key is not the number of a record");
    const ckpt__tensor *tensor = &t->kept->tensors[n];
    if (!tensor->whole)
        return ckpt__torch_fail(t, CKPT_E_FORMAT, p, err, "record %zu has no bytes of its own", n);
    out->name = id->key;
    out->extent = t->kept->storages[tensor->storage].extent;
    return CKPT_OK;
}

/* A tensor that is an entry of the native file lies there in C order, and had these strides. Others are views of a storage,
 * with their strides. */
static void note_strides(const ckpt__torch *t, const ckpt__torch_spec *spec, size_t n, const int64_t **strides)
{
    const ckpt__tensor *has = &t->kept->tensors[n];
    const ckpt_tensor_info *p = &has->info;
    bool same = spec->strides && spec->shape && spec->ndim == has->info.ndim && has->whole && spec->offset == 0 &&
                p->offset == 0 && p->nbytes == t->kept->storages[has->storage].extent.size &&
                ckpt_dtype_size(has->info.dtype) && ckpt__is_c_order(p->shape, p->strides, spec->ndim),
         differs = false;
    for (uint32_t d = 0; same && d < spec->ndim; d++) {
        same = spec->shape[d] == p->shape[d] && spec->strides[d] >= 0;
        differs |= spec->strides[d] != p->strides[d];
    }
    if (same && differs && ckpt__is_dense(spec->shape, spec->strides, spec->ndim))
        strides[n] = spec->strides;
}

/* Tensors are those of the native file: the storage's name is the key. What has no record of its own (a sparse tensor,
 * whose parts have; one below an opaque object) is no tensor of it, and stays as it is in the pickle. */
static size_t number_tensors(ckpt__torch *t, const int64_t **strides)
{
    size_t closed = 0;
    for (size_t i = 0; i < t->tensor_count; i++) {
        ckpt__torch_tensor *tensor = t->tensors[i];
        const ckpt__torch_spec *spec = tensor->spec;
        size_t n;
        bool bare = true;
        if (spec->has_storage && parse_key(t->index->storages[spec->storage].name, &bare, t->kept->tensor_count, &n) &&
            !bare) {
            tensor->value.tensor = n;
            note_strides(t, spec, n, strides);
            continue;
        }
        closed++;
        tensor->value.kind = CKPT_V_OBJECT;
        if (!tensor->value.class_name.data)
            tensor->value.class_name = ckpt__s("torch.Tensor");
    }
    return closed;
}

/* What stands for a whole storage is known to the index from now on. */
static bool note_bare(const ckpt__torch *t, ckpt__index *x)
{
    for (size_t i = 0; i < t->pickle.persistent_count; i++) {
        const ckpt__pickle_node *p = t->pickle.persistents[i], *key = ckpt__torch_item(p->u.id, 2);
        bool bare;
        size_t n;
        if (key && key->kind == CKPT__P_STR && parse_key(key->u.text, &bare, x->tensor_count, &n) && bare &&
            x->tensors[n].whole && !ckpt__index_note_origin(x, p, x->tensors[n].storage))
            return false;
    }
    return true;
}

ckpt_status ckpt__torch_kept_tree(ckpt__index *x, ckpt_str pickle, const ckpt_value **root, const int64_t **strides,
                                  size_t *closed, ckpt_error *err)
{
    ckpt__torch t = {.path = CKPT__TORCH_KEY, .label = CKPT__TORCH_KEY, .arena = x->arena, .kept = x};
    t.index = ckpt__index_new(0);
    t.by_key = ckpt__hash_new(64);
    ckpt_status status = t.index && t.by_key ? CKPT_OK : ckpt__fail_memory(err, t.path, 0);
    if (status == CKPT_OK)
        status = ckpt__pickle_read(pickle.data ? pickle.data : "", pickle.size, t.label, x->arena, &t.pickle, err);
    if (status == CKPT_OK)
        status = ckpt__torch_values(&t, err);
    if (status == CKPT_OK) {
        *closed = number_tensors(&t, strides);
        *root = t.index->root;
        if (!note_bare(&t, x))
            status = ckpt__fail_memory(err, t.path, 0);
    }
    ckpt__index *scratch = t.index;
    ckpt__torch_release(&t);
    ckpt__index_free(scratch);
    return status;
}

/* ---- writing it into another file */

enum { DEEPEST = 8 }; /* of calls of rebuild functions: the reader's limit */

typedef struct renumber {
    const size_t *record_of;
    size_t count;
    ckpt__arena *arena;
    ckpt__pickle_node **nodes; /* heap: every node once, parents first */
    size_t node_count, node_capacity;
} renumber;

/* `position` has no more use once the pickle is read: 0 marks the nodes that were met (constants have it anyway, and no
 * parts). */
static bool meet(renumber *r, ckpt__pickle_node *n)
{
    if (!n || n->position == 0)
        return true;
    if (!ckpt__grow(&r->nodes, &r->node_capacity, r->node_count + 1, sizeof(ckpt__pickle_node *)))
        return false;
    n->position = 0;
    r->nodes[r->node_count++] = n;
    return true;
}

static bool meet_list(renumber *r, const ckpt__pickle_list *list)
{
    bool ok = true;
    for (size_t i = 0; ok && i < list->count; i++)
        ok = meet(r, list->items[i]);
    return ok;
}

static bool meet_parts(renumber *r, const ckpt__pickle_node *n)
{
    if (n->kind == CKPT__P_PERSISTENT)
        return meet(r, n->u.id);
    if (n->kind == CKPT__P_OBJECT) {
        const ckpt__pickle_object *o = n->u.object;
        return meet(r, o->callable) && meet(r, o->args) && meet(r, o->kwargs) && meet(r, o->state) &&
               meet(r, o->setter) && meet_list(r, &o->items) && meet_list(r, &o->entries);
    }
    bool list = n->kind == CKPT__P_LIST || n->kind == CKPT__P_TUPLE || n->kind == CKPT__P_SET ||
                n->kind == CKPT__P_FROZENSET || n->kind == CKPT__P_DICT;
    return !list || meet_list(r, &n->u.list);
}

/* The key of a persistent id becomes another; an id of a tensor that is not there becomes None. */
static bool set_key(renumber *r, ckpt__pickle_node *p)
{
    const ckpt__pickle_node *key = ckpt__torch_item(p->u.id, 2);
    size_t n;
    bool bare;
    char text[24];
    if (p->u.id->kind != CKPT__P_TUPLE || !key || key->kind != CKPT__P_STR ||
        !parse_key(key->u.text, &bare, r->count, &n) || !r->record_of[n]) {
        p->kind = CKPT__P_NONE;
        return true;
    }
    int size = snprintf(text, sizeof text, "%s%zu", bare ? "s" : "", r->record_of[n] - 1);
    ckpt__pickle_node *id = ckpt__pickle_make_tuple(r->arena, p->u.id->u.list.count, p->u.id->u.list.items);
    ckpt__pickle_node *fresh =
        ckpt__pickle_make_text(r->arena, CKPT__P_STR, ckpt__arena_str(r->arena, text, (size_t)size));
    if (!id || !fresh)
        return false;
    id->u.list.items[2] = fresh;
    p->u.id = id;
    return true;
}

static bool is_none(const ckpt__pickle_node *n)
{
    return n && n->kind == CKPT__P_NONE;
}

/* A rebuild call whose storage or tensor went away is None as well; so are, in turn, those around it. */
static bool drop_calls(const renumber *r)
{
    bool dropped = false;
    for (size_t i = r->node_count; i-- > 0;) {
        ckpt__pickle_node *n = r->nodes[i];
        if (!ckpt__torch_is_tensor(n))
            continue;
        const ckpt__pickle_node *args = n->u.object->args, *first = ckpt__torch_item(args, 0),
                                *second = ckpt__torch_item(args, 1);
        bool gone = is_none(first), parts = first && first->kind == CKPT__P_OBJECT && ckpt__torch_length(second) >= 3;
        for (size_t k = 0; parts && k < 3; k++)
            gone |= is_none(ckpt__torch_item(second, k)); /* of a sparse tensor */
        if (first && first->kind == CKPT__P_GLOBAL)       /* func, type, args, state */
            gone |= is_none(ckpt__torch_item(ckpt__torch_item(args, 2), 0));
        if (gone)
            n->kind = CKPT__P_NONE;
        dropped |= gone;
    }
    return dropped;
}

ckpt_status ckpt__torch_kept_renumber(ckpt_str pickle, const size_t *record_of, size_t count, ckpt__buf *out,
                                      ckpt_error *err)
{
    renumber r = {.record_of = record_of, .count = count};
    ckpt__pickle p = {0};
    r.arena = ckpt__arena_new(ckpt__known_limit(pickle.size, false));
    ckpt_status status = r.arena ? CKPT_OK : ckpt__fail_memory(err, CKPT__TORCH_KEY, pickle.size);
    if (status == CKPT_OK)
        status = ckpt__pickle_read(pickle.data ? pickle.data : "", pickle.size, CKPT__TORCH_KEY, r.arena, &p, err);
    if (status == CKPT_OK)
        p.root->position = 1;
    bool ok = status == CKPT_OK && meet(&r, p.root);
    for (size_t i = 0; ok && i < r.node_count; i++) {
        ckpt__pickle_node *n = r.nodes[i];
        ok = meet_parts(&r, n);
        if (ok && n->kind == CKPT__P_PERSISTENT)
            ok = set_key(&r, n);
    }
    if (status == CKPT_OK && !ok)
        status = ckpt__fail_memory(err, CKPT__TORCH_KEY, pickle.size);
    if (status == CKPT_OK) {
        for (int depth = 0; depth < DEEPEST && drop_calls(&r); depth++)
            ;
        status = ckpt__pickle_write(p.root, out, err);
    }
    ckpt__pickle_free(&p);
    ckpt__arena_free(r.arena);
    free(r.nodes);
    return status;
}
