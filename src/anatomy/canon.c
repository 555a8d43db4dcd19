/* anatomy/canon.c - canonical names: the entry point. */
#include "anatomy/canon_work.h"

#include <stdlib.h>
#include "format/table.h"

static ckpt_status load_wanted(ckpt__builder *b)
{
    const ckpt__canon_hints *h = b->hints;
    /* Declared names say as well as bound ones which dict is the model. */
    size_t count = h->wanted_count ? h->wanted_count : h->param_name_count;
    if (!count)
        return CKPT_OK;
    b->wanted = ckpt__hash_new(count);
    if (!b->wanted)
        return ckpt__canon_no_memory(b);
    for (size_t i = 0; i < count; i++) {
        ckpt_str name = h->wanted_count ? h->wanted[i] : ckpt__s(h->param_names[i]);
        if (name.data && ckpt__hash_put(b->wanted, name.data, name.size, i, NULL) < 0)
            return ckpt__canon_no_memory(b);
    }
    return CKPT_OK;
}

ckpt_status ckpt__canon_check_names(const char *const *param_names, size_t count, const char *object, ckpt_error *err)
{
    if (count && !param_names)
        return ckpt__fail(err, CKPT_E_ARGUMENT, object, "param_name_count is %zu, and param_names is NULL", count);
    for (size_t i = 0; i < count; i++)
        if (!param_names[i])
            return ckpt__fail(err, CKPT_E_ARGUMENT, object,
                              "param_names[%zu] of %zu is NULL; a parameter's name is expected", i, count);
    return CKPT_OK;
}

/* Every name repeats the keys above it: one key of a megabyte over a hundred thousand values would take as many
 * megabytes. Names of real files take less than the values that they name. */
static uint64_t names_limit(const ckpt__index *index)
{
    const uint64_t least = (uint64_t)256 << 20, used = index->arena ? ckpt__arena_used(index->arena) : 0;
    uint64_t limit = index->arena ? ckpt__arena_limit(index->arena) : 0;
    if (limit)
        return limit / 2 + ((uint64_t)4 << 20);
    return used > (UINT64_MAX - least) / 8 ? UINT64_MAX : least + used * 8;
}

static ckpt_status build_torch(ckpt__builder *b)
{
    const ckpt_value *root = ckpt__flat_unfold_all(b->index->root, b->canon->arena, &b->mixed);
    if (!root && b->index->root)
        return ckpt__canon_no_memory(b);
    ckpt_status s = ckpt__tree_build(root, b->canon->arena, &b->tree, b->err);
    if (s != CKPT_OK)
        return ckpt__arena_over_limit(b->canon->arena) ? ckpt__canon_no_memory(b) : s;
    if (!b->tree.count)
        return s;
    ckpt__canon_scan(b);
    if (b->no_memory)
        return ckpt__canon_no_memory(b);
    s = ckpt__canon_find(b);
    if (s == CKPT_OK)
        s = ckpt__canon_emit_torch(b);
    if (b->mixed) /* the file has no such paths */
        b->canon->model_path = b->canon->optimizer_path = (ckpt_str){NULL, 0};
    return s;
}

static ckpt_status build(ckpt__builder *b)
{
    ckpt_status s = load_wanted(b);
    if (s != CKPT_OK)
        return s;
    const ckpt__format *format = ckpt__format_of(b->index);
    if (format->canonical)
        s = ckpt__canon_native(b);
    else if (format->laid_out || ckpt__canon_in_files(b))
        s = build_torch(b);
    else
        s = ckpt__canon_plain(b);
    if (s == CKPT_OK)
        s = ckpt__canon_finish(b);
    if (s == CKPT_OK && b->no_memory)
        s = ckpt__canon_no_memory(b);
    return s;
}

ckpt_status ckpt__canon_build(const ckpt__index *index, const ckpt__canon_hints *hints, ckpt__canon **out,
                              ckpt_report *report, ckpt_error *err)
{
    static const ckpt__canon_hints none;
    *out = NULL;
    ckpt__builder b = {.index = index, .hints = hints ? hints : &none, .report = report, .err = err};
    b.scaler = b.step = b.model.node = b.optimizer.node = b.optimizer.state = SIZE_MAX;
    b.canon = calloc(1, sizeof *b.canon);
    if (b.canon)
        b.canon->arena = ckpt__arena_new(names_limit(index));
    ckpt_status s = b.canon && b.canon->arena ? build(&b) : ckpt__fail_memory(err, "canonical names", 0);
    ckpt__hash_free(b.wanted);
    ckpt__tree_free(&b.tree);
    ckpt__model_free(&b.model);
    ckpt__optimizer_free(&b.optimizer);
    free(b.optimizers);
    free(b.models);
    if (s != CKPT_OK) {
        ckpt__canon_free(b.canon);
        return s;
    }
    *out = b.canon;
    return CKPT_OK;
}

void ckpt__canon_free(ckpt__canon *canon)
{
    if (!canon)
        return;
    ckpt__hash_free(canon->by_name);
    free(canon->entries);
    ckpt__arena_free(canon->arena);
    free(canon);
}
