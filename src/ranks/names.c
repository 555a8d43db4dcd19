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

static ckpt_status add_file(ckpt__ranks *r, ckpt__folder_reader *reader, const ckpt__ranks_file *f,
                            const ckpt_value **root)
{
    ckpt__index *part = NULL;
    uint32_t number;
    bool sorted;
    ckpt_status status = ckpt__source_add(r->source, f->name, &number, r->err);
    if (status == CKPT_OK)
        status = ckpt__folder_part(reader, number, &part, &sorted, r->err);
    if (status < 0)
        return status;
    *root = part->root;
    return ckpt__folder_absorb(reader, part, f->name, sorted, r->err);
}

/* The first file of a stage; NULL: the group has none of its own for it. */
static const ckpt__ranks_file *first_file(const ckpt__ranks *r, const ckpt__ranks_group *g, size_t stage)
{
    for (size_t i = 0; i < g->count; i++)
        if (ckpt__ranks_in_stage(r, &g->files[i], stage))
            return &g->files[i];
    return NULL;
}

/* ---- the order that the caller says, of the whole model: that of a stage is what of it the stage has */

typedef struct stated {
    ckpt__ranks *r;
    size_t stage;
    ckpt__hash *local; /* owned: name in the whole model -> number in `keys` */
    ckpt_str *keys;
    size_t count, capacity; /* heap, owned */
    const char **names;     /* heap, owned: in the work's arena */
    size_t name_count;
} stated;

static int on_key(void *ctx, const ckpt_visit *visit)
{
    stated *s = ctx;
    const ckpt_key *key = visit->path.count ? &visit->path.keys[visit->path.count - 1] : NULL;
    if (visit->value->kind != CKPT_V_TENSOR || !key || !key->text.data)
        return CKPT_OK;
    const ckpt_str own = ckpt__arena_str(s->r->arena, key->text.data, key->text.size);
    const ckpt_str name = own.data ? ckpt__ranks_global(s->r, s->stage, own) : own;
    int put = name.data ? ckpt__hash_put(s->local, name.data, name.size, s->count, NULL) : -1;
    if (put < 0 || (put > 0 && !ckpt__grow(&s->keys, &s->capacity, s->count + 1, sizeof *s->keys)))
        return ckpt__ranks_no_memory(s->r->err);
    if (put > 0)
        s->keys[s->count++] = own;
    return CKPT_OK;
}

static ckpt_status find_stated(stated *s, const ckpt_value *root)
{
    const ckpt__ranks_request *q = s->r->request;
    size_t at;
    if (!q->param_name_count)
        return CKPT_OK;
    s->local = ckpt__hash_new(256);
    s->names = calloc(q->param_name_count, sizeof *s->names);
    if (!s->local || !s->names)
        return ckpt__ranks_no_memory(s->r->err);
    ckpt_status status = root ? (ckpt_status)ckpt_value_walk(root, 0, on_key, s, s->r->err) : CKPT_OK;
    for (size_t i = 0; s->stage > 0 && i < s->count;
         i++) /* where it stands in a later stage, no order of the whole says */
        if (ckpt__name_list_find(&s->r->files->stages.shared, s->keys[i]) < s->r->files->stages.shared.count)
            return status;
    for (size_t i = 0; status == CKPT_OK && i < q->param_name_count; i++)
        if (s->r->stage_count == 1)
            s->names[s->name_count++] = q->param_names[i];
        else if (ckpt__hash_get(s->local, q->param_names[i], strlen(q->param_names[i]), &at))
            s->names[s->name_count++] = s->keys[at].data;
    return status;
}

/* ---- one rank */

static ckpt_status read_alone(ckpt__ranks *r, size_t stage, rank_alone *a)
{
    ckpt__read_request request = ckpt__read_all(r->source);
    ckpt__folder_reader reader = {.request = &request, .index = a->index};
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        const ckpt_str key = r->groups[g].form->key;
        const ckpt__ranks_file *f = first_file(r, &r->groups[g], stage);
        const ckpt_value *root = NULL;
        status = f ? add_file(r, &reader, f, &root) : CKPT_OK;
        if (status == CKPT_OK)
            status = ckpt__flat_without(r, &r->groups[g], root, a->index->arena, &root);
        a->index->root = root;
        if (status == CKPT_OK && key.data && root)
            status = ckpt__folder_put(&reader, key.data, root, r->err);
    }
    if (status == CKPT_OK && reader.entry_count &&
        !(a->index->root = ckpt__value_dict(a->index->arena, reader.entries, reader.entry_count)))
        status = ckpt__ranks_no_memory(r->err);
    free(reader.entries);
    if (status == CKPT_OK && r->native)
        status = ckpt__ranks_drop_tensors(r, a->index);
    return status == CKPT_OK ? ckpt__index_finish(a->index, r->err) : status;
}

static ckpt_status name_alone(ckpt__ranks *r, size_t stage, rank_alone *a)
{
    stated said = {.r = r, .stage = stage};
    ckpt_status status = find_stated(&said, a->index->root);
    const ckpt__canon_hints hints = {.param_names = said.name_count ? said.names : NULL,
                                     .param_name_count = said.name_count,
                                     .assume_order = r->request->assume_order,
                                     .optional_optimizer = true};
    if (status == CKPT_OK)
        status = ckpt__canon_build(a->index, &hints, &a->canon, a->said, r->err);
    if (status == CKPT_OK && a->canon->unnamed.data)
        status =
            ckpt__fail(r->err, CKPT_E_MISMATCH, r->source->path,
                       "which parameters the states of the optimizer at '%.*s' belong to is unknown, so that no cut "
                       "could be found for them: say --param-names FILE",
                       (int)a->canon->unnamed.size, a->canon->unnamed.data);
    ckpt__hash_free(said.local);
    free(said.keys);
    free(said.names);
    return status;
}

/* ---- names */

static ckpt_str keep(ckpt__ranks *r, ckpt_str text)
{
    return ckpt__arena_str(r->arena, text.data, text.size);
}

/* "optimizer.layers.0.w.exp_avg" with the name that the parameter has in the whole model. */
static ckpt_str shown_as(ckpt__ranks *r, const ckpt__canon_entry *e, ckpt_str param)
{
    const size_t head = sizeof "optimizer." - 1;
    if (!e->param.data || !ckpt__str_begins(e->name, "optimizer.") || e->name.size < head + e->param.size)
        return keep(r, e->param.data ? e->name : param);
    return ckpt__arena_join(r->arena, ckpt__s("optimizer."), param,
                            (ckpt_str){e->name.data + head + e->param.size, e->name.size - head - e->param.size});
}

static ckpt_status add_name(ckpt__ranks *r, size_t stage, const ckpt__canon_entry *e, const ckpt_tensor_info *t)
{
    const bool inside =
        !e->outside && (!r->native || e->param.data || e->role == CKPT_ROLE_PARAM || e->role == CKPT_ROLE_BUFFER);
    ckpt__ranks_name n = {.inside = inside, .state = inside && e->param.data, .step = e->role == CKPT_ROLE_STEP};
    n.own = keep(r, e->own);
    n.param = keep(r, n.state ? e->param : inside ? e->name : e->own);
    if (n.param.data)
        n.param = ckpt__ranks_global(r, stage, n.param);
    n.shown = !n.param.data || !inside ? n.own : shown_as(r, e, n.param);
    n.local = keep(r, n.state ? e->param : e->name);
    n.buffer = e->role == CKPT_ROLE_BUFFER;
    n.ndim = t->ndim;
    n.shape = ckpt__arena_array(r->arena, (size_t)t->ndim + 1, sizeof *n.shape);
    if (!n.own.data || !n.param.data || !n.shown.data || !n.local.data || !n.shape ||
        !ckpt__grow(&r->names, &r->name_capacity, r->name_count + 1, sizeof *r->names) ||
        ckpt__hash_put(r->by_own[stage], n.own.data, n.own.size, r->name_count, NULL) < 0 ||
        (inside && !n.state && ckpt__hash_put(r->by_param[stage], n.param.data, n.param.size, r->name_count, NULL) < 0))
        return ckpt__ranks_no_memory(r->err);
    if (t->ndim)
        memcpy(n.shape, t->shape, t->ndim * sizeof *n.shape);
    r->names[r->name_count++] = n;
    return CKPT_OK;
}

static ckpt_status note_optimizer(ckpt__ranks *r, size_t stage, ckpt_str path)
{
    if (!path.data)
        return CKPT_OK;
    if (r->optimizer.data && !ckpt__str_equal(r->optimizer, path))
        return ckpt__fail(r->err, CKPT_E_MISMATCH, r->source->path,
                          "the optimizer lies at '%.*s' in the files of stage %zu, and at '%.*s' in those before",
                          (int)path.size, path.data, stage, (int)r->optimizer.size, r->optimizer.data);
    r->optimizer = keep(r, path);
    return r->optimizer.data ? CKPT_OK : ckpt__ranks_no_memory(r->err);
}

static ckpt_status find_of_stage(ckpt__ranks *r, size_t stage)
{
    rank_alone a = {.index = ckpt__index_new(ckpt__known_limit(0, false)), .said = ckpt_report_new()};
    r->by_own[stage] = ckpt__hash_new(256);
    r->by_param[stage] = ckpt__hash_new(256);
    ckpt_status status =
        a.index && a.said && r->by_own[stage] && r->by_param[stage] ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (a.index) {
        a.index->format = r->native ? ckpt__format_native.name : ckpt__format_ranks.name;
        a.index->kind = r->native ? "file" : "directory";
    }
    if (status == CKPT_OK)
        status = read_alone(r, stage, &a);
    if (status == CKPT_OK)
        status = name_alone(r, stage, &a);
    for (size_t i = 0; status == CKPT_OK && i < a.canon->count; i++)
        if (a.canon->entries[i].is_tensor)
            status = add_name(r, stage, &a.canon->entries[i], &a.index->tensors[a.canon->entries[i].tensor].info);
    if (status == CKPT_OK)
        status = note_optimizer(r, stage, a.canon->optimizer_path);
    ckpt__canon_free(a.canon);
    status = a.index ? ckpt__index_refused(a.index, status, r->source->path, r->err) : status;
    ckpt__index_free(a.index);
    ckpt_report_free(a.said);
    return status;
}

ckpt_status ckpt__ranks_find_names(ckpt__ranks *r)
{
    r->by_own = calloc(r->stage_count, sizeof *r->by_own);
    r->by_param = calloc(r->stage_count, sizeof *r->by_param);
    ckpt_status status = r->by_own && r->by_param ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t s = 0; status == CKPT_OK && s < r->stage_count; s++)
        status = find_of_stage(r, s);
    return status;
}

const ckpt__ranks_name *ckpt__ranks_name_of(const ckpt__ranks *r, size_t stage, ckpt_str own)
{
    size_t at;
    return ckpt__hash_get(r->by_own[stage], own.data, own.size, &at) ? &r->names[at] : NULL;
}

const ckpt__ranks_name *ckpt__ranks_param_of(const ckpt__ranks *r, size_t stage, const ckpt__ranks_name *state)
{
    size_t at;
    return ckpt__hash_get(r->by_param[stage], state->param.data, state->param.size, &at) ? &r->names[at] : NULL;
}
