/* format/torch/nested.c - tensors that pickle.dump wrote without torch.save: each storage is a call of
 * torch.storage._load_from_bytes with bytes that are a whole file of the format before 1.6, whose object is that one
 * storage (torch/storage.py, __reduce__). It is read where it lies, in the bytes. Before torch 1.0 it was a call of the
 * storage's class with a list of its elements. */
#include "format/torch/torch.h"

#include <stdlib.h>

/* A storage holds no other, so one level is all that is ever written. */
enum { DEEPEST = 4 };

static bool is_file(const ckpt__pickle_node *call)
{
    return ckpt__pickle_is_global(call->u.object->callable, "torch.storage", "_load_from_bytes");
}

static bool is_list(const ckpt__pickle_node *call, ckpt_dtype *dtype)
{
    bool untyped = false;
    const ckpt__pickle_node *items = ckpt__torch_item(call->u.object->args, 0);
    return items && items->kind == CKPT__P_LIST && ckpt__torch_length(call->u.object->args) == 1 &&
           ckpt__torch_storage_dtype(call->u.object->callable, dtype, &untyped) && !untyped;
}

bool ckpt__torch_is_nested(const ckpt__pickle_node *node)
{
    ckpt_dtype dtype;
    return node && node->kind == CKPT__P_OBJECT && node->u.object->call == CKPT__P_REDUCE &&
           (is_file(node) || is_list(node, &dtype));
}

static ckpt_status not_a_storage(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_error *err)
{
    return ckpt__torch_fail(t, CKPT_E_UNSUPPORTED, node, err,
                            "a storage whose bytes are not a file of PyTorch's format before 1.6 with a storage in it");
}

/* ---- elements in a list */

static bool put_element(const ckpt__pickle_node *n, ckpt_dtype dtype, void *to)
{
    if (n->kind == CKPT__P_FLOAT)
        return ckpt__convert(CKPT_F64, &n->u.real, dtype, to, 1, NULL);
    int64_t number = n->kind == CKPT__P_BOOL ? n->boolean : n->u.integer;
    return (n->kind == CKPT__P_INT || n->kind == CKPT__P_BOOL) && ckpt__convert(CKPT_I64, &number, dtype, to, 1, NULL);
}

static ckpt_status read_list(ckpt__torch *t, const ckpt__pickle_node *call, ckpt__torch_nested *out, ckpt_error *err)
{
    const ckpt__pickle_node *items = ckpt__torch_item(call->u.object->args, 0);
    size_t n = ckpt__torch_length(items);
    is_list(call, &out->id.dtype);
    size_t size = ckpt_dtype_size(out->id.dtype);
    unsigned char *bytes = ckpt__arena_array(t->arena, n + 1, size ? size : 1);
    if (!bytes)
        return ckpt__torch_no_memory(t, err);
    for (size_t i = 0; i < n; i++)
        if (!put_element(ckpt__torch_item(items, i), out->id.dtype, bytes + i * size))
            return ckpt__torch_fail(
                t, CKPT_E_UNSUPPORTED, call, err,
                "a storage made of a list of something else than numbers, or of a dtype that is none of "
                "plain numbers");
    out->id.storage_class = call->u.object->callable;
    out->id.location = ckpt__s(ckpt__str_is(out->id.storage_class->u.global->module, "torch.cuda") ? "cuda" : "cpu");
    out->id.numel = (int64_t)n;
    out->place.name = ckpt__s("a list in the pickle");
    out->place.extent = (ckpt__extent){.memory = bytes, .length = n * size, .size = n * size};
    return CKPT_OK;
}

/* ---- a file in bytes */

/* What a nested file's only object, a storage or again a nested one, says. */
static ckpt_status read_root(ckpt__torch *sub, ckpt__torch_nested *out, ckpt_error *err)
{
    const ckpt__pickle_node *root = sub->pickle.root;
    const ckpt__torch_nested *deeper = NULL;
    ckpt_status status;
    if (ckpt__torch_is_nested(root)) {
        status = ckpt__torch_nested_of(sub, root, &deeper, err);
        if (status == CKPT_OK)
            *out = *deeper;
        return status;
    }
    if (root->kind != CKPT__P_PERSISTENT || ckpt__torch_module(root))
        return not_a_storage(sub, root, err);
    status = ckpt__torch_parse_id(sub, root, &out->id, err);
    return status < 0 ? status : ckpt__torch_legacy_place(sub, root, &out->id, &out->place, err);
}

static ckpt_status read_nested(ckpt__torch *t, const ckpt__pickle_node *node, ckpt_str bytes, ckpt__torch_nested *out,
                               ckpt_error *err)
{
    if (!ckpt__torch_is_legacy((const unsigned char *)bytes.data, bytes.size))
        return not_a_storage(t, node, err);
    if (t->depth >= DEEPEST)
        return ckpt__torch_fail(t, CKPT_E_LIMIT, node, err, "files in files deeper than %d", DEEPEST);
    /* A damaged file in a pickle that is whole was damaged before it was pickled: nothing to salvage. */
    ckpt__torch sub = {.source = t->source,
                       .file = t->file,
                       .path = t->path,
                       .label = t->label,
                       .index = t->index,
                       .arena = t->arena,
                       .depth = t->depth + 1};
    ckpt__torch_legacy_input in = {(const unsigned char *)bytes.data, bytes.size, true, bytes.size};
    ckpt_status status = ckpt__torch_legacy_open(&sub, &in, err);
    if (status == CKPT_OK)
        status = read_root(&sub, out, err);
    if (status < 0)
        ckpt__error_prefix(
            err, "in the file inside the bytes at byte %llu: ", (unsigned long long)(t->pickle_at + node->position));
    ckpt__torch_release(&sub);
    return status;
}

/* Bytes are read once however many calls refer to them, whether or not that went well. */
ckpt_status ckpt__torch_nested_of(ckpt__torch *t, const ckpt__pickle_node *node, const ckpt__torch_nested **out,
                                  ckpt_error *err)
{
    const ckpt__pickle_node *from = ckpt__torch_item(node->u.object->args, 0);
    size_t i = t->nested_count;
    ckpt_str bytes;
    if (!from || ckpt__torch_length(node->u.object->args) != 1 || from->kind == CKPT__P_STR)
        return not_a_storage(t, node, err);
    const ckpt__pickle_node **key = ckpt__arena_alloc(t->arena, sizeof *key);
    if (!key || (!t->nested_by && !(t->nested_by = ckpt__hash_new(16))) ||
        !ckpt__grow(&t->nested, &t->nested_capacity, t->nested_count + 1, sizeof *t->nested))
        return ckpt__torch_no_memory(t, err);
    *key = from;
    int put = ckpt__hash_put(t->nested_by, (const char *)key, sizeof *key, i, &i);
    if (put < 0)
        return ckpt__torch_no_memory(t, err);
    if (put == 1) {
        ckpt__torch_nested *fresh = &t->nested[t->nested_count++];
        memset(fresh, 0, sizeof *fresh);
        if (!is_file(node)) {
            ckpt_status status = read_list(t, node, fresh, err);
            fresh->good = status == CKPT_OK;
            *out = fresh;
            return status;
        }
        if (!ckpt__torch_bytes(t, from, &bytes))
            return ckpt__arena_over_limit(t->arena) ? ckpt__torch_no_memory(t, err) : not_a_storage(t, node, err);
        ckpt_status status = read_nested(t, node, bytes, fresh, err);
        if (status < 0)
            return status;
        fresh->good = true;
    }
    *out = &t->nested[i];
    return (*out)->good ? CKPT_OK : not_a_storage(t, node, err);
}
