/* ranks/merge.c - the trees of all ranks as one. Dicts are joined key by key; a tensor of all ranks becomes one of the work's; a value is
 * taken once where it is the same on all ranks, and kept for each rank where it may differ. */
#include "ranks/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/visits.h"

enum { DEEPEST = 24 };

static bool all_have(const ckpt__place *at)
{
    size_t i = 0;
    while (i < at->count && at->values[i])
        i++;
    return i == at->count;
}

/* ---- dicts and lists */

/* All files have the same keys, but for values that one rank alone keeps (the first one's settings, say). */
static ckpt_status check_keys(ckpt__ranks_merger *m, const ckpt__place *at, bool *fits)
{
    size_t has = 0, lacks = m->count;
    *fits = true;
    for (size_t i = m->stage == SIZE_MAX ? 0 : m->count; i-- > 0;) /* a stage need not have what another one has */
        if (at->values[i])
            has = i;
        else
            lacks = i;
    if (lacks == m->count || ckpt__ranks_is_own(m))
        return CKPT_OK;
    const int found = ckpt__value_has_tensor(at->values[has], m->r->err);
    if (found < 0)
        return (ckpt_status)found;
    *fits = found == 0;
    return *fits ? CKPT_OK
                 : ckpt__ranks_wrong(
                       m->r, m->sources[lacks].files[0]->name, ckpt__ranks_path(m),
                       "there is none in it, and there is one in %s: all ranks have the same tensors in the same "
                       "places",
                       m->sources[has].files[0]->name);
}

/* Above tensors a key that is the name of something in a layer has the layer's number in the whole model. */
static ckpt_status name_key(const ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **key)
{
    if (at->key->kind != CKPT_V_STR || !m->r->layers || m->stage == SIZE_MAX)
        return CKPT_OK;
    const ckpt_str name = ckpt__ranks_global(m->r, m->stage, at->key->text);
    if (name.data == at->key->text.data)
        return CKPT_OK;
    const int found = name.data ? ckpt__value_has_tensor(at->values[ckpt__place_first(at)], m->r->err) : 0;
    if (found == 0 && name.data)
        return CKPT_OK;
    *key = name.data && found > 0 ? ckpt__value_str(m->r->index->arena, name.data, name.size) : NULL;
    return found < 0 ? (ckpt_status)found : *key ? CKPT_OK : ckpt__ranks_no_memory(m->r->err);
}

static ckpt_status merge_child(void *ctx, const ckpt__place *child, ckpt_entry *out, ckpt__entries *below)
{
    ckpt__ranks_merger *m = ctx;
    const size_t before = m->path.size;
    bool fits;
    if (before || child->depth > 1)
        ckpt__buf_char(&m->path, '.');
    if (child->key->kind == CKPT_V_STR)
        ckpt__buf_add(&m->path, child->key->text.data, child->key->text.size);
    else
        ckpt__value_repr(&m->path, child->key);
    ckpt_status status = m->path.failed ? ckpt__ranks_no_memory(m->r->err) : check_keys(m, child, &fits);
    if (status == CKPT_OK)
        status = name_key(m, child, &out->key);
    if (status == CKPT_OK && fits)
        status = ckpt__ranks_merge_place(m, child, &out->value, below);
    m->path.size = before;
    return status;
}

ckpt_status ckpt__ranks_merge_dicts(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own)
{
    bool some = false; /* else each rank has all of it for itself */
    ckpt_status status = ckpt__place_merge(at, m->r->index->arena, merge_child, m, out, &some, own, m->r->err);
    *out = some ? *out : NULL;
    return status;
}

/* *out NULL: nothing of it is common to all ranks. */
ckpt_status ckpt__ranks_merge_place(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                    ckpt__entries *own)
{
    const bool dicts = ckpt__place_is(at, CKPT_V_DICT), lists = ckpt__place_is_lists(at);
    *out = NULL;
    if (ckpt__place_is(at, CKPT_V_TENSOR) && (m->stage == SIZE_MAX || all_have(at)))
        return ckpt__ranks_merge_tensors(m, at, out, own);
    if (dicts && ckpt__ranks_are_optimizers(m, at))
        return ckpt__ranks_merge_optimizers(m, at, out, own);
    if ((dicts || lists) && at->depth == DEEPEST)
        return ckpt__ranks_wrong(m->r, m->sources[0].files[0]->name, ckpt__ranks_path(m),
                                 "it lies deeper than %d dicts and lists", (int)DEEPEST);
    if (dicts || lists)
        return ckpt__ranks_merge_dicts(m, at, out, own);
    return ckpt__ranks_merge_value(m, at, out, own);
}

/* ---- all groups */

/* A group on its way. The arrays lie in the work's arena. */
typedef struct grouping {
    ckpt__ranks *r;
    const ckpt__ranks_group *group;
    const ckpt__ranks_file **files;      /* stage by stage */
    ckpt__ranks_source *alone, *stages;  /* of each file; of each stage that has some */
    size_t *numbers, stage_count;        /* of those stages */
    const ckpt_value **values, **merged; /* one a file, one a stage */
    ckpt__entries *own;                  /* one a source */
    ckpt__entries *by_rank;              /* borrowed: of all groups */
    const ckpt_value *key;
} grouping;

static ckpt_status open_group(grouping *g)
{
    const size_t n = g->group->count;
    const ckpt_str key = g->group->form->key;
    size_t count = 0;
    ckpt__arena *a = g->r->arena;
    g->files = ckpt__arena_array(a, n + 1, sizeof *g->files);
    g->alone = ckpt__arena_array(a, n + 1, sizeof *g->alone);
    g->stages = ckpt__arena_array(a, n + 1, sizeof *g->stages);
    g->numbers = ckpt__arena_array(a, n + 1, sizeof *g->numbers);
    g->values = ckpt__arena_array(a, n + 1, sizeof *g->values);
    g->merged = ckpt__arena_array(a, n + 1, sizeof *g->merged);
    g->own = ckpt__arena_array(a, n + 1, sizeof *g->own);
    g->key = key.data ? ckpt__value_str(g->r->index->arena, key.data, key.size) : NULL;
    if (!g->files || !g->alone || !g->stages || !g->numbers || !g->values || !g->merged || !g->own ||
        (key.data && !g->key))
        return ckpt__ranks_no_memory(g->r->err);
    for (size_t s = 0; s < g->r->stage_count; s++) {
        const size_t first = count;
        for (size_t i = 0; i < n; i++)
            if (ckpt__ranks_in_stage(g->r, &g->group->files[i], s))
                g->files[count++] = &g->group->files[i];
        if (count == first)
            continue;
        g->stages[g->stage_count] = (ckpt__ranks_source){g->files + first, count - first};
        g->numbers[g->stage_count++] = s;
    }
    for (size_t i = 0; i < n; i++)
        g->alone[i] = (ckpt__ranks_source){g->files + i, 1};
    return CKPT_OK;
}

/* Both dicts as one; what both have below a key is one, too. NULL: no memory. */
static const ckpt_value *join_dicts(ckpt__arena *a, const ckpt_value *x, const ckpt_value *y, int depth)
{
    ckpt_entry *entries = ckpt__arena_array(a, x->entry_count + y->entry_count + 1, sizeof *entries);
    size_t count = x->entry_count;
    if (entries && count)
        memcpy(entries, x->entries, count * sizeof *entries);
    for (size_t i = 0; entries && i < y->entry_count; i++) {
        size_t k = 0;
        while (k < x->entry_count && !ckpt__value_alike(x->entries[k].key, y->entries[i].key))
            k++;
        if (k == x->entry_count)
            entries[count++] = y->entries[i];
        else if (depth < DEEPEST && entries[k].value->kind == CKPT_V_DICT && y->entries[i].value->kind == CKPT_V_DICT &&
                 !(entries[k].value = join_dicts(a, entries[k].value, y->entries[i].value, depth + 1)))
            return NULL;
    }
    return entries ? ckpt__value_dict(a, entries, count) : NULL;
}

/* A rank has something for itself of its files, of their stage, and of several groups of files. */
static ckpt_status put_rank(ckpt__ranks *r, ckpt__entries *to, const ckpt_entry *e)
{
    size_t k = 0;
    while (k < to->count && !ckpt__value_alike(to->items[k].key, e->key))
        k++;
    if (k == to->count || to->items[k].value->kind != CKPT_V_DICT || e->value->kind != CKPT_V_DICT)
        return ckpt__entries_add(to, e->key, e->value, r->err);
    to->items[k].value = join_dicts(r->index->arena, to->items[k].value, e->value, 0);
    return to->items[k].value ? CKPT_OK : ckpt__ranks_no_memory(r->err);
}

/* What a source has for itself is that of all ranks whose files it is. */
static ckpt_status put_ranks(const grouping *g, const ckpt__ranks_merger *m)
{
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; i < m->count; i++) {
        for (size_t f = 0; f < m->sources[i].count; f++)
            for (size_t k = 0; status == CKPT_OK && k < g->own[i].count; k++)
                status = put_rank(g->r, &g->by_rank[m->sources[i].files[f]->rank], &g->own[i].items[k]);
        free(g->own[i].items);
        g->own[i] = (ckpt__entries){NULL, 0, 0};
    }
    return status;
}

static ckpt_status merge_sources(grouping *g, ckpt__ranks_merger m, const ckpt_value **values, const ckpt_value **out)
{
    const ckpt__place at = {values, m.count, g->key, g->key ? 1 : 0};
    if (g->key)
        ckpt__buf_add(&m.path, g->key->text.data, g->key->text.size);
    ckpt_status status =
        m.path.failed ? ckpt__ranks_no_memory(g->r->err) : ckpt__ranks_merge_place(&m, &at, out, g->own);
    const ckpt_status put = put_ranks(g, &m);
    ckpt__buf_free(&m.path);
    return status == CKPT_OK ? put : status;
}

/* The files of each stage. */
static ckpt_status merge_files(grouping *g)
{
    ckpt_status status = open_group(g);
    for (size_t i = 0; status == CKPT_OK && i < g->group->count; i++)
        g->values[i] = g->files[i]->root;
    for (size_t s = 0, at = 0; status == CKPT_OK && s < g->stage_count; at += g->stages[s++].count) {
        const ckpt__ranks_merger m = {.r = g->r,
                                      .group = g->group,
                                      .sources = g->alone + at,
                                      .count = g->stages[s].count,
                                      .stage = g->numbers[s]};
        status = merge_sources(g, m, g->values + at, &g->merged[s]);
    }
    return status;
}

/* Then what lies flat, for which the model's tensors are asked, and the stages; the root is put below the group's key, or is the root of
 * all. */
static ckpt_status merge_stages(grouping *g, ckpt__entries *all)
{
    const ckpt_value *merged = NULL;
    ckpt_status status = CKPT_OK;
    for (size_t s = 0; status == CKPT_OK && !g->r->wrong && s < g->stage_count; s++)
        status = ckpt__flat_graft(g->r, g->group, g->numbers[s], &g->merged[s]);
    merged = g->merged[0];
    if (status == CKPT_OK && g->stage_count > 1) {
        const ckpt__ranks_merger m = {
            .r = g->r, .group = g->group, .sources = g->stages, .count = g->stage_count, .stage = SIZE_MAX};
        status = merge_sources(g, m, g->merged, &merged);
    }
    if (status == CKPT_OK && merged && g->key)
        return ckpt__entries_add(all, g->key, merged, g->r->err);
    if (status == CKPT_OK && !g->r->wrong && (!merged || merged->kind != CKPT_V_DICT))
        return ckpt__fail(g->r->err, CKPT_E_UNSUPPORTED, g->group->files[0].name, "a dict is expected at its top");
    for (size_t k = 0; status == CKPT_OK && !g->key && merged && k < merged->entry_count; k++)
        status = ckpt__entries_add(all, merged->entries[k].key, merged->entries[k].value, g->r->err);
    return status;
}

static ckpt_status make_root(ckpt__ranks *r, ckpt__entries *all, const ckpt__entries *by_rank)
{
    const uint32_t world = ckpt__rank_mesh_world(&r->mesh);
    ckpt_status status = CKPT_OK;
    for (uint32_t rank = 0; status == CKPT_OK && rank < world; rank++) {
        char name[40];
        if (!by_rank[rank].count)
            continue;
        const size_t n = (size_t)snprintf(name, sizeof name, "rank_%u", rank);
        const ckpt_value *key = ckpt__value_str(r->index->arena, name, n);
        const ckpt_value *dict = ckpt__entries_dict(&by_rank[rank], r->index->arena);
        status = key && dict ? ckpt__entries_add(all, key, dict, r->err) : ckpt__ranks_no_memory(r->err);
    }
    if (status == CKPT_OK && !(r->index->root = ckpt__entries_dict(all, r->index->arena)))
        status = ckpt__ranks_no_memory(r->err);
    return status;
}

ckpt_status ckpt__ranks_merge(ckpt__ranks *r)
{
    const uint32_t world = ckpt__rank_mesh_world(&r->mesh);
    ckpt__entries *by_rank = calloc((size_t)world + 1, sizeof *by_rank), all = {NULL, 0, 0};
    grouping groups[CKPT__FILE_FORMS];
    ckpt_status status = by_rank ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    memset(groups, 0, sizeof groups);
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        groups[g] = (grouping){.r = r, .group = &r->groups[g], .by_rank = by_rank};
        status = merge_files(&groups[g]);
    }
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++)
        status = merge_stages(&groups[g], &all);
    if (status == CKPT_OK)
        status = make_root(r, &all, by_rank);
    for (uint32_t i = 0; by_rank && i < world; i++)
        free(by_rank[i].items);
    free(by_rank);
    free(all.items);
    return status;
}
