/* anatomy/canon.c - canonical names: the entry point. */
#include "anatomy/canon_work.h"

#include <stdlib.h>
#include "format/table.h"

static ckpt_status load_wanted(ckpt__builder *b)
{
    const ckpt__canon_hints *h = b->hints;
    /* Declared names say as well as bound ones which dict is the model. */
    if (h->wants || !h->param_name_count)
        return CKPT_OK;
    b->wanted = ckpt__hash_new(h->param_name_count);
    if (!b->wanted)
        return ckpt__canon_no_memory(b);
    for (size_t i = 0; i < h->param_name_count; i++)
        if (ckpt__hash_put(b->wanted, h->param_names[i], strlen(h->param_names[i]), i, NULL) < 0)
            return ckpt__canon_no_memory(b);
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

/* *entries is set to false where nothing but the paths is asked for. */
static ckpt_status build_torch(ckpt__builder *b, bool *entries)
{
    if (!b->tree.count)
        return CKPT_OK;
    ckpt__canon_scan(b);
    if (b->no_memory)
        return ckpt__canon_no_memory(b);
    ckpt_status s = ckpt__canon_find(b);
    *entries = !b->hints->paths_only || b->optimizer.node != SIZE_MAX;
    if (s == CKPT_OK && *entries)
        s = ckpt__canon_emit_torch(b);
    if (b->anatomy->unfolded.mixed) /* the file has no such paths */
        b->canon->model_path = b->canon->optimizer_path = (ckpt_str){NULL, 0};
    if (b->anatomy->unfolded.beside)
        b->canon->model_path = (ckpt_str){NULL, 0};
    return s;
}

static bool has_state(const ckpt__builder *b)
{
    bool has = false;
    for (size_t i = 0; !has && i < b->index->tensor_count; i++)
        has = b->index->tensors[i].info.param.data && b->index->tensors[i].info.state_key.data;
    return has;
}

static ckpt_status build(ckpt__builder *b)
{
    ckpt_status s = load_wanted(b);
    if (s != CKPT_OK)
        return s;
    b->tree = b->anatomy->tree;
    for (size_t i = 0; i < b->tree.count; i++)
        b->tree.nodes[i].taken = false;
    const ckpt__format *format = ckpt__format_of(b->index);
    bool entries = true;
    if (format->canonical)
        s = ckpt__canon_native(b);
    else if (format->laid_out || ckpt__canon_in_files(b))
        s = build_torch(b, &entries);
    else if ((entries = !b->hints->paths_only || has_state(b)))
        s = ckpt__canon_plain(b);
    if (s == CKPT_OK && entries)
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
        b.canon->arena = ckpt__arena_new(ckpt__anatomy_names_limit(index));
    ckpt__anatomy own = {0};
    b.anatomy = b.hints->anatomy ? b.hints->anatomy : &own;
    ckpt_status s = b.canon && b.canon->arena ? CKPT_OK : ckpt__fail_memory(err, "canonical names", 0);
    if (s == CKPT_OK && !b.hints->anatomy)
        s = ckpt__anatomy_build(index, b.canon->arena, &own, err);
    if (s == CKPT_OK)
        s = build(&b);
    ckpt__hash_free(b.wanted);
    ckpt__anatomy_free(&own);
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
