/* migrate/to_dcp.c - a distributed checkpoint of PyTorch (DCP), or one of the weights alone in safetensors. Of the former: the dict of a torch file, with the optimizer by the names of its
 * parameters, as torch.distributed.checkpoint.state_dict.get_state_dict gives it and set_state_dict takes it. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/dcp/write.h"
#include "format/table.h"
#include "migrate/out.h"
#include "migrate/resume.h"
#include "migrate/torch.h"

enum { MOST_RANKS = 1 << 16 }; /* of a world */

/* ---- the optimizer by names */

static const ckpt_value *names_of(const ckpt_value *group)
{
    const ckpt_value *names = ckpt_value_get(group, "param_names"), *params = ckpt_value_get(group, "params");
    return ckpt__is_list(names) && ckpt__is_list(params) && names->item_count == params->item_count ? names : NULL;
}

/* Numbers of parameters -> their names, of all groups: names[number], heap. */
static ckpt_status find_names(ckpt__migration *m, const ckpt_value *groups, const ckpt_value ***out, size_t *count,
                              ckpt_error *err)
{
    const ckpt_value **names = NULL;
    size_t capacity = 0, n = 0;
    for (size_t g = 0; g < groups->item_count; g++) {
        const ckpt_value *params = ckpt_value_get(groups->items[g], "params"), *own = names_of(groups->items[g]);
        for (size_t i = 0; params && i < params->item_count; i++) {
            const ckpt_value *id = params->items[i];
            if (!own || id->kind != CKPT_V_INT || id->integer < 0 || own->items[i]->kind != CKPT_V_STR) {
                free(names);
                return ckpt__fail(
                    err, CKPT_E_MISMATCH, m->src,
                    "group %zu of its optimizer does not name its parameters, and a distributed checkpoint "
                    "has an optimizer by names: give them (--param-names), or leave it out "
                    "(--weights-only)",
                    g);
            }
            size_t at = (size_t)id->integer;
            if (at > m->index->tensor_count || !ckpt__grow(&names, &capacity, at + 1, sizeof *names)) {
                free(names);
                return ckpt__migration_no_memory(err);
            }
            for (; n <= at; n++)
                names[n] = NULL;
            names[at] = own->items[i];
        }
    }
    *out = names;
    *count = n;
    return CKPT_OK;
}

/* What torch's Adam and AdamW have of each group (torch 2.13), and get_state_dict asks a checkpoint for: torch loads none of it where one is
 * missing, unless it may. */
static ckpt_status note_lacking(ckpt__migration *m, const ckpt_value *groups, ckpt_error *err)
{
    static const char *const asked[] = {
        "lr",         "betas",          "eps",   "weight_decay",          "amsgrad", "maximize", "foreach",
        "capturable", "differentiable", "fused", "decoupled_weight_decay"};
    char names[300] = "";
    size_t at = 0, lacking = 0;
    bool adam = false;
    for (size_t i = 0; i < m->index->tensor_count && !adam; i++)
        adam = m->index->tensors[i].info.role == CKPT_ROLE_EXP_AVG_SQ && !ckpt__stays_behind(m, i);
    for (size_t k = 0; adam && k < sizeof asked / sizeof *asked; k++) {
        bool all = true;
        for (size_t g = 0; g < groups->item_count; g++)
            all = all && ckpt_value_get(groups->items[g], asked[k]);
        if (!all && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", lacking++ ? ", " : "", asked[k]);
    }
    if (!lacking)
        return CKPT_OK;
    bool added = ckpt__report_add(
        m->report, CKPT_SEVERITY_WARNING, "groups-lack", NULL,
        "dcp.load(..., planner=DefaultLoadPlanner(allow_partial_load=True)), and the program keeps its own",
        "the optimizer's groups do not say %s, and none of it is made up: torch's AdamW asks for all of them", names);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

static ckpt_value *name_states(ckpt__arena *a, const ckpt_value *state, const ckpt_value **names, size_t count)
{
    ckpt_entry *entries = ckpt__arena_array(a, state->entry_count + 1, sizeof *entries);
    for (size_t i = 0; entries && i < state->entry_count; i++) {
        const ckpt_value *key = state->entries[i].key;
        bool numbered = key->kind == CKPT_V_INT && key->integer >= 0 && (uint64_t)key->integer < count;
        entries[i] = state->entries[i];
        if (numbered && names[key->integer])
            entries[i].key = names[key->integer];
    }
    return entries ? ckpt__value_dict(a, entries, state->entry_count) : NULL;
}

/* With the names in the place of the numbers. */
static ckpt_value *name_group(ckpt__arena *a, const ckpt_value *group)
{
    ckpt_entry *entries = ckpt__arena_array(a, group->entry_count + 1, sizeof *entries);
    size_t n = 0;
    for (size_t i = 0; entries && i < group->entry_count; i++) {
        ckpt_entry e = group->entries[i];
        if (e.key->kind == CKPT_V_STR && ckpt__str_is(e.key->text, "param_names"))
            continue;
        if (e.key->kind == CKPT_V_STR && ckpt__str_is(e.key->text, "params"))
            e.value = names_of(group);
        entries[n++] = e;
    }
    return entries ? ckpt__value_dict(a, entries, n) : NULL;
}

static ckpt_value *name_groups(ckpt__arena *a, const ckpt_value *groups)
{
    const ckpt_value **items = ckpt__arena_array(a, groups->item_count + 1, sizeof(ckpt_value *));
    for (size_t i = 0; items && i < groups->item_count; i++)
        if (!(items[i] = name_group(a, groups->items[i])))
            return NULL;
    return items ? ckpt__value_list(a, CKPT_V_LIST, items, groups->item_count) : NULL;
}

static ckpt_status name_optimizer(ckpt__migration *m, const ckpt_value *optimizer, const ckpt_value **out,
                                  ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    const ckpt_value *groups = ckpt_value_get(optimizer, "param_groups"), *state = ckpt_value_get(optimizer, "state"),
                     **names = NULL;
    size_t count = 0;
    ckpt_status status = find_names(m, groups, &names, &count, err);
    if (status == CKPT_OK)
        status = note_lacking(m, groups, err);
    if (status < 0) {
        free(names);
        return status;
    }
    ckpt_entry *entries = ckpt__arena_array(a, optimizer->entry_count + 1, sizeof *entries);
    bool made = entries != NULL;
    for (size_t i = 0; made && i < optimizer->entry_count; i++) {
        entries[i] = optimizer->entries[i];
        if (entries[i].value == state)
            made = (entries[i].value = name_states(a, state, names, count)) != NULL;
        else if (entries[i].value == groups)
            made = (entries[i].value = name_groups(a, groups)) != NULL;
    }
    free(names);
    *out = made ? ckpt__value_dict(a, entries, optimizer->entry_count) : NULL;
    return *out ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* ---- weights that were rounded: DeepSpeed, Megatron and llm.c train masters, FSDP2 the weights themselves */

static const ckpt_value *master_of(const ckpt__migration *m, const ckpt_value *state)
{
    for (size_t i = 0; state->kind == CKPT_V_DICT && i < state->entry_count; i++) {
        const ckpt_value *v = state->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && m->index->tensors[v->tensor].info.role == CKPT_ROLE_MASTER)
            return v;
    }
    return NULL;
}

static const ckpt_value *without(ckpt__arena *a, const ckpt_value *dict, const ckpt_value *value)
{
    ckpt__made_dict d = {.arena = a};
    for (size_t i = 0; i < dict->entry_count; i++)
        if (dict->entries[i].value != value)
            ckpt__made_put(&d, dict->entries[i].key, dict->entries[i].value);
    return ckpt__made_finish(&d);
}

/* A dict with another value at a key. */
static const ckpt_value *with(ckpt__arena *a, const ckpt_value *dict, const ckpt_value *was, const ckpt_value *is)
{
    ckpt__made_dict d = {.arena = a};
    for (size_t i = 0; i < dict->entry_count; i++)
        ckpt__made_put(&d, dict->entries[i].key, dict->entries[i].value == was ? is : dict->entries[i].value);
    return ckpt__made_finish(&d);
}

/* Each master stands where the weight was, of which it is the exact value, and in no state. */
static ckpt_status move_masters(ckpt__migration *m, const ckpt_value **model, const ckpt_value **state, ckpt_error *err)
{
    ckpt__arena *a = m->index->arena;
    ckpt__made_dict weights = {.arena = a}, states = {.arena = a};
    ckpt__hash *of = ckpt__hash_new((*state)->entry_count);
    size_t moved = 0, at;
    bool ok = of != NULL;
    for (size_t i = 0; ok && i < (*state)->entry_count; i++) {
        const ckpt_entry *e = &(*state)->entries[i];
        if (e->key->kind == CKPT_V_STR && master_of(m, e->value))
            ok = ckpt__hash_put(of, e->key->text.data, e->key->text.size, i, NULL) >= 0;
    }
    bool *gone = ok ? calloc((*state)->entry_count + 1, sizeof *gone) : NULL;
    for (size_t i = 0; gone && i < (*model)->entry_count; i++) {
        const ckpt_entry *e = &(*model)->entries[i];
        const ckpt_value *v = e->value;
        if (e->key->kind == CKPT_V_STR && v->kind == CKPT_V_TENSOR &&
            ckpt__hash_get(of, e->key->text.data, e->key->text.size, &at)) {
            m->ledger.rows[v->tensor].fate = CKPT__FATE_TIED;
            v = master_of(m, (*state)->entries[at].value);
            m->index->tensors[v->tensor].info.name = e->key->text;
            gone[at] = true;
            moved++;
        }
        ckpt__made_put(&weights, e->key, v);
    }
    for (size_t i = 0; gone && i < (*state)->entry_count; i++) {
        const ckpt_entry *e = &(*state)->entries[i];
        ckpt__made_put(&states, e->key, gone[i] ? without(a, e->value, master_of(m, e->value)) : e->value);
    }
    ok = gone != NULL;
    free(gone);
    ckpt__hash_free(of);
    const ckpt_value *own = ckpt__made_finish(&weights), *left = ckpt__made_finish(&states);
    if (!ok || !own || !left)
        return ckpt__migration_no_memory(err);
    if (!moved)
        return CKPT_OK;
    *model = own;
    *state = left;
    return ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "weights-from-masters", (ckpt_str){NULL, 0}, err,
                                "%zu weights are written as their float32 masters, of which they were rounded", moved);
}

ckpt_status ckpt__migrate_dcp_root(ckpt__migration *m, ckpt_error *err)
{
    const ckpt_value *root = m->root, *optimizer = ckpt__at(root, "optimizer"), *model = ckpt__at(root, "model"),
                     *named = NULL;
    ckpt__arena *a = m->index->arena;
    if (m->options.weights_only || (!m->tree && !ckpt__format_of(m->from)->canonical)) { /* the model's tensors alone */
        ckpt__made_dict d = {.arena = a};
        ckpt__made_put_as(&d, "model", root);
        return (m->root = ckpt__made_finish(&d)) ? CKPT_OK : ckpt__migration_no_memory(err);
    }
    if (!ckpt__is_list(ckpt__at(optimizer, "param_groups")) || !ckpt__at(optimizer, "state"))
        return CKPT_OK;
    ckpt_status status = name_optimizer(m, optimizer, &named, err);
    const ckpt_value *weights = model, *states = ckpt__at(named, "state"), *was = states;
    if (status == CKPT_OK && model && model->kind == CKPT_V_DICT)
        status = move_masters(m, &weights, &states, err);
    if (status < 0)
        return status;
    const ckpt_value *own = with(a, named, was, states);
    root = own ? with(a, root, optimizer, own) : NULL;
    root = root && weights != model ? with(a, root, model, weights) : root;
    m->root = root;
    return root ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* ---- files */

/* As many ranks as are asked for, else as many as wrote the source. */
static ckpt_status ranks_of(const ckpt__migration *m, uint32_t *ranks, ckpt_error *err)
{
    const int64_t saved = m->from->job.ranks;
    uint32_t wanted = m->options.target_world;
    if (wanted > MOST_RANKS)
        return ckpt__fail(err, CKPT_E_ARGUMENT, m->dst, "a target for %u ranks: at most %d are written",
                          (unsigned)wanted, MOST_RANKS);
    *ranks = wanted ? wanted : saved > 0 && saved <= MOST_RANKS ? (uint32_t)saved : 1;
    return CKPT_OK;
}

/* The files that the recipes are of; those are w's then. */
static ckpt_status add_files(ckpt__out *w, ckpt__recipe **recipes, uint32_t ranks)
{
    const ckpt__migration *m = w->m;
    for (uint32_t r = 0; r < ranks; r++) {
        char name[60];
        if (m->as == CKPT__AS_DCP_HF)
            snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", (unsigned)r + 1);
        else
            snprintf(name, sizeof name, "__%u_0.distcp", (unsigned)r);
        ckpt__out_file *f = recipes[r] ? ckpt__out_add(w, name) : NULL;
        if (recipes[r] && (!f || !f->name))
            return ckpt__migration_no_memory(w->err);
        if (!f)
            continue;
        f->format = m->format;
        f->recipe = recipes[r];
        recipes[r] = NULL;
    }
    return CKPT_OK;
}

/* Written last, as torch does it. */
static ckpt_status add_list(ckpt__out *w, ckpt__buf *list)
{
    ckpt__out_file *f = ckpt__out_add(w, ".metadata");
    if (!f || !f->name)
        return ckpt__migration_no_memory(w->err);
    f->text = *list;
    *list = (ckpt__buf){0};
    return CKPT_OK;
}

ckpt_status ckpt__dcp_files(ckpt__out *w)
{
    ckpt__migration *m = w->m;
    uint32_t ranks = 1;
    ckpt__buf list = {0};
    const ckpt__write_request q = {.index = m->index,
                                   .source = m->from,
                                   .edits = m->edits,
                                   .tensors = m->chosen,
                                   .count = m->chosen_count,
                                   .root = m->root,
                                   .step = -1,
                                   .lost = m->lost};
    ckpt_status status = ranks_of(m, &ranks, w->err);
    ckpt__recipe **recipes = status == CKPT_OK ? calloc(ranks, sizeof(ckpt__recipe *)) : NULL;
    if (status == CKPT_OK && !recipes)
        status = ckpt__migration_no_memory(w->err);
    if (status == CKPT_OK)
        status = m->as == CKPT__AS_DCP_HF ? ckpt__dcp_write_shards(&q, ranks, recipes, w->err)
                                          : ckpt__dcp_write(&q, ranks, recipes, &list, w->err);
    if (status == CKPT_OK)
        status = add_files(w, recipes, ranks);
    if (status == CKPT_OK && m->as == CKPT__AS_DCP)
        status = add_list(w, &list);
    for (uint32_t r = 0; recipes && r < ranks; r++)
        ckpt__recipe_free(recipes[r]);
    free(recipes);
    ckpt__buf_free(&list);
    return status;
}
