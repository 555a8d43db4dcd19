/* ranks/names.c - what the layout calls each tensor of a file: a parameter by its name in the model, a moment by that of its parameter. The
 * files of one rank say it for all, as all have the same tensors in the same places; their headers are read once more for it. */
#include "ranks/ranks.h"

#include <stdlib.h>
#include "anatomy/canon.h"
#include "format/table.h"

/* The files of one rank as a checkpoint of their own. */
typedef struct rank_alone {
    ckpt__index *index;
    ckpt__canon *canon;
    ckpt_report *said;
} rank_alone;

static ckpt_status add_file(ckpt__ranks *r, ckpt__folder_reader *reader, const ckpt__ranks_group *g,
                            const ckpt_value **root)
{
    ckpt__index *part = NULL;
    uint32_t number;
    bool sorted;
    ckpt_status status = ckpt__source_add(r->source, g->files[0].name, &number, r->err);
    if (status == CKPT_OK)
        status = ckpt__folder_part(reader, number, &part, &sorted, r->err);
    if (status < 0)
        return status;
    *root = part->root;
    return ckpt__folder_absorb(reader, part, g->files[0].name, sorted, r->err);
}

static ckpt_status read_alone(ckpt__ranks *r, rank_alone *a)
{
    const ckpt__canon_hints hints = {.param_names = r->request->param_names,
                                     .param_name_count = r->request->param_name_count,
                                     .assume_order = r->request->assume_order,
                                     .optional_optimizer = true};
    ckpt__read_request request = ckpt__read_all(r->source);
    ckpt__folder_reader reader = {.request = &request, .index = a->index};
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        const ckpt_str key = r->groups[g].form->key;
        const ckpt_value *root = NULL;
        status = add_file(r, &reader, &r->groups[g], &root);
        a->index->root = root;
        if (status == CKPT_OK && key.data && root)
            status = ckpt__folder_put(&reader, key.data, root, r->err);
    }
    if (status == CKPT_OK && reader.entry_count &&
        !(a->index->root = ckpt__value_dict(a->index->arena, reader.entries, reader.entry_count)))
        status = ckpt__ranks_no_memory(r->err);
    free(reader.entries);
    if (status == CKPT_OK)
        status = ckpt__index_finish(a->index, r->err);
    return status == CKPT_OK ? ckpt__canon_build(a->index, &hints, &a->canon, a->said, r->err) : status;
}

static ckpt_str keep(ckpt__ranks *r, ckpt_str text)
{
    return ckpt__arena_str(r->arena, text.data, text.size);
}

static ckpt_status add_name(ckpt__ranks *r, const ckpt__canon_entry *e, const ckpt_tensor_info *t)
{
    const bool inside = !e->outside;
    ckpt__ranks_name n = {.inside = inside, .state = inside && e->param.data, .step = e->role == CKPT_ROLE_STEP};
    n.own = keep(r, e->own);
    n.shown = keep(r, inside ? e->name : e->own);
    n.param = keep(r, n.state ? e->param : inside ? e->name : e->own);
    n.ndim = t->ndim;
    n.shape = ckpt__arena_array(r->arena, (size_t)t->ndim + 1, sizeof *n.shape);
    if (!n.own.data || !n.shown.data || !n.param.data || !n.shape ||
        !ckpt__grow(&r->names, &r->name_capacity, r->name_count + 1, sizeof *r->names) ||
        ckpt__hash_put(r->by_own, n.own.data, n.own.size, r->name_count, NULL) < 0 ||
        (inside && !n.state && ckpt__hash_put(r->by_param, n.param.data, n.param.size, r->name_count, NULL) < 0))
        return ckpt__ranks_no_memory(r->err);
    if (t->ndim)
        memcpy(n.shape, t->shape, t->ndim * sizeof *n.shape);
    r->names[r->name_count++] = n;
    return CKPT_OK;
}

ckpt_status ckpt__ranks_find_names(ckpt__ranks *r)
{
    rank_alone a = {.index = ckpt__index_new(ckpt__known_limit(0, false)), .said = ckpt_report_new()};
    ckpt_status status = a.index && a.said ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (a.index) {
        a.index->format = ckpt__format_ranks.name;
        a.index->kind = "directory";
    }
    if (status == CKPT_OK)
        status = read_alone(r, &a);
    if (status == CKPT_OK && a.canon->unnamed.data)
        status =
            ckpt__fail(r->err, CKPT_E_MISMATCH, r->groups[0].files[0].name,
                       "which parameters the states of the optimizer at '%.*s' belong to is unknown, so that no cut "
                       "could be found for them: say --param-names FILE",
                       (int)a.canon->unnamed.size, a.canon->unnamed.data);
    for (size_t i = 0; status == CKPT_OK && i < a.canon->count; i++)
        if (a.canon->entries[i].is_tensor)
            status = add_name(r, &a.canon->entries[i], &a.index->tensors[a.canon->entries[i].tensor].info);
    if (status == CKPT_OK && a.canon->optimizer_path.data && !(r->optimizer = keep(r, a.canon->optimizer_path)).data)
        status = ckpt__ranks_no_memory(r->err);
    ckpt__canon_free(a.canon);
    status = a.index ? ckpt__index_refused(a.index, status, r->source->path, r->err) : status;
    ckpt__index_free(a.index);
    ckpt_report_free(a.said);
    return status;
}

const ckpt__ranks_name *ckpt__ranks_name_of(const ckpt__ranks *r, ckpt_str own)
{
    size_t at;
    return ckpt__hash_get(r->by_own, own.data, own.size, &at) ? &r->names[at] : NULL;
}

const ckpt__ranks_name *ckpt__ranks_param_of(const ckpt__ranks *r, const ckpt__ranks_name *state)
{
    size_t at;
    return ckpt__hash_get(r->by_param, state->param.data, state->param.size, &at) ? &r->names[at] : NULL;
}
