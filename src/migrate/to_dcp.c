/* migrate/to_dcp.c - a distributed checkpoint of PyTorch (DCP), or one of the weights alone in safetensors. The former has the dict of a
 * torch file, with the optimizer by the names of its parameters: torch.distributed.checkpoint.state_dict.get_state_dict gives it so, and
 * set_state_dict takes it. */
#include "migrate/migration.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/dcp/write.h"
#include "format/table.h"
#include "migrate/megatron.h"
#include "migrate/mesh.h"
#include "migrate/out.h"
#include "migrate/resume.h"
#include "migrate/torch.h"

/* ---- the optimizer by names */

static const ckpt_value *names_of(const ckpt_value *group)
{
    const ckpt_value *names = ckpt_value_get(group, "param_names"), *params = ckpt_value_get(group, "params");
    return ckpt__is_list(names) && ckpt__is_list(params) && names->item_count == params->item_count ? names : NULL;
}

static ckpt_status check_names(const ckpt__migration *m, const ckpt_value *groups, ckpt_error *err)
{
    for (size_t g = 0; g < groups->item_count; g++)
        if (!names_of(groups->items[g]))
            return ckpt__fail(
                err, CKPT_E_MISMATCH, m->src,
                "group %zu of its optimizer does not name its parameters, and a distributed checkpoint has an "
                "optimizer by names: give them (--param-names), or leave it out (--weights-only)",
                g);
    return CKPT_OK;
}

/* torch's Adam and AdamW (2.13) have these settings in each group, and get_state_dict asks a checkpoint for all of them. torch refuses a
 * checkpoint that lacks one, unless its planner may load a part; from one record of all groups (wholes) it misses the first few alone. */
static ckpt_status note_lacking(ckpt__migration *m, const ckpt_value *groups, ckpt_error *err)
{
    static const char *const asked[] = {
        "lr",         "betas",          "eps",   "weight_decay",           "amsgrad",   "maximize", "foreach",
        "capturable", "differentiable", "fused", "decoupled_weight_decay", "initial_lr"};
    enum { NEEDED = 4 }; /* by its step */
    const bool one = m->wholes || ckpt__is_fsdps(m);
    const size_t all_of_them =
        sizeof asked / sizeof *asked - !m->torchtitan; /* its scheduler puts the last one there */
    const size_t count = one ? NEEDED : all_of_them;
    char names[300] = "";
    size_t at = 0, lacking = 0;
    bool adam = false;
    for (size_t i = 0; i < m->index->tensor_count && !adam; i++)
        adam = m->index->tensors[i].info.role == CKPT_ROLE_EXP_AVG_SQ && !ckpt__stays_behind(m, i);
    for (size_t k = 0; adam && k < count; k++) {
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
        one ? "write them into the source: the step behind the load fails with KeyError"
        : m->torchtitan
            ? "write them into the source: torchtitan's load stops (Missing key)"
            : "dcp.load(..., planner=DefaultLoadPlanner(allow_partial_load=True)), and the program keeps its own; or --to "
              "dcp-fsdp1, if they are all flags",
        "the optimizer's groups do not say %s, and none of it is made up: torch's AdamW asks for all of them", names);
    return added ? CKPT_OK : ckpt__migration_no_memory(err);
}

/* With the names in the place of the numbers. both: under param_names too, for which a program asks that has given its optimizer names; torch
 * has them first then. */
static const ckpt_value *name_group(ckpt__arena *a, const ckpt_value *group, bool both)
{
    const ckpt_value *numbers = ckpt__at(group, "params"), *names = names_of(group);
    ckpt__made_dict d = {.arena = a};
    if (both)
        ckpt__made_put_as(&d, "param_names", names);
    for (size_t i = 0; i < group->entry_count; i++)
        if (group->entries[i].value == numbers)
            ckpt__made_put(&d, group->entries[i].key, names);
        else if (group->entries[i].value != names)
            ckpt__made_put(&d, group->entries[i].key, group->entries[i].value);
    return ckpt__made_finish(&d);
}

static const ckpt_value *name_groups(const ckpt__migration *m, const ckpt_value *groups)
{
    ckpt__arena *a = m->index->arena;
    const bool both = !m->wholes && !m->torchtitan && !ckpt__is_fsdps(m); /* these load all that a group has */
    const ckpt_value **items = ckpt__arena_array(a, groups->item_count + 1, sizeof(ckpt_value *));
    for (size_t i = 0; items && i < groups->item_count; i++)
        if (!(items[i] = name_group(a, groups->items[i], both)))
            return NULL;
    return items ? ckpt__value_list(a, CKPT_V_LIST, items, groups->item_count) : NULL;
}

/* ---- weights that were rounded: DeepSpeed, Megatron and llm.c train masters, FSDP2 the weights themselves */

/* The master that stands where the weight was, of which it is the exact value; NULL: there is none, or no weight. */
static const ckpt_value *new_weight(const ckpt__migration *m, const ckpt__trained *p)
{
    return p->weight != SIZE_MAX ? ckpt__master_in(m, p->state) : NULL;
}

static const ckpt_value *name_states(const ckpt__migration *m, const ckpt__trained_parts *parts)
{
    ckpt__arena *a = m->index->arena;
    ckpt__made_dict d = {.arena = a};
    for (size_t i = 0; i < parts->count; i++) {
        const ckpt__trained *p = &parts->params[i];
        const ckpt_value *master = new_weight(m, p);
        if (p->state)
            ckpt__made_put(&d, ckpt__value_str(a, p->name.data, p->name.size),
                           master ? ckpt__made_without(a, p->state, master) : p->state);
    }
    return ckpt__made_finish(&d);
}

static const ckpt_value *take_masters(ckpt__migration *m, const ckpt__trained_parts *parts, size_t *count)
{
    ckpt__made_dict d = {.arena = m->index->arena};
    size_t at;
    for (size_t i = 0; i < parts->model->entry_count; i++) {
        const ckpt_entry *e = &parts->model->entries[i];
        const bool trained = e->key->kind == CKPT_V_STR && e->value->kind == CKPT_V_TENSOR &&
                             ckpt__hash_get(parts->by_name, e->key->text.data, e->key->text.size, &at);
        const ckpt_value *master = trained ? new_weight(m, &parts->params[at]) : NULL;
        ckpt__made_put(&d, e->key, master ? master : e->value);
        if (!master)
            continue;
        m->ledger.rows[e->value->tensor].fate = CKPT__FATE_TIED;
        m->index->tensors[master->tensor].info.name = e->key->text;
        ++*count;
    }
    return ckpt__made_finish(&d);
}

/* ---- the whole */

static const ckpt_value *optimizer_of(ckpt__migration *m, const ckpt__trained_parts *parts)
{
    const ckpt_value *states = ckpt__at(parts->optimizer, "state");
    ckpt__made_dict d = {.arena = m->index->arena};
    for (size_t i = 0; i < parts->optimizer->entry_count; i++) {
        const ckpt_entry *e = &parts->optimizer->entries[i];
        ckpt__made_put(&d, e->key,
                       e->value == states          ? name_states(m, parts)
                       : e->value == parts->groups ? name_groups(m, parts->groups)
                                                   : e->value);
    }
    return ckpt__made_finish(&d);
}

static ckpt_status put_parts(ckpt__migration *m, const ckpt__trained_parts *parts, ckpt_error *err)
{
    ckpt__made_dict d = {.arena = m->index->arena};
    size_t masters = 0;
    ckpt_status status = check_names(m, parts->groups, err);
    if (status == CKPT_OK)
        status = note_lacking(m, parts->groups, err);
    if (status < 0)
        return status;
    for (size_t i = 0; i < m->root->entry_count; i++) {
        const ckpt_entry *e = &m->root->entries[i];
        ckpt__made_put(&d, e->key,
                       e->value == parts->optimizer ? optimizer_of(m, parts)
                       : e->value == parts->model   ? take_masters(m, parts, &masters)
                                                    : e->value);
    }
    if (!(m->root = ckpt__made_finish(&d)))
        return ckpt__migration_no_memory(err);
    return masters ? ckpt__migration_note(m, CKPT_SEVERITY_NOTE, "weights-from-masters", (ckpt_str){NULL, 0}, err,
                                          "%zu weights are written as their float32 masters, before rounding", masters)
                   : CKPT_OK;
}

ckpt_status ckpt__migrate_dcp_root(ckpt__migration *m, ckpt_error *err)
{
    ckpt__trained_parts parts;
    if (m->options.weights_only || (!m->tree && !ckpt__format_of(m->from)->canonical)) { /* the model's tensors alone */
        if (m->torchtitan)
            return CKPT_OK;
        ckpt__made_dict d = {.arena = m->index->arena};
        ckpt__made_put_as(&d, "model", m->root);
        return (m->root = ckpt__made_finish(&d)) ? CKPT_OK : ckpt__migration_no_memory(err);
    }
    ckpt_status status = ckpt__trained_take(m, &parts, err);
    if (status == CKPT_OK && parts.groups && ckpt__at(parts.optimizer, "state"))
        status = put_parts(m, &parts, err);
    ckpt__trained_free(&parts);
    return status == CKPT_OK && m->torchtitan ? ckpt__torchtitan_root(m, err) : status;
}

/* ---- files */

/* Where its files lie. */
typedef struct cut {
    const char *below; /* "", or a folder and a slash */
    const ckpt_value *root;
    bool whole; /* as ckpt__dcp_write has it */
    const ckpt__dcp_ranks *ranks;
} cut;

static ckpt__out_file *add_file(ckpt__out *w, const cut *c, const char *name)
{
    char path[120];
    snprintf(path, sizeof path, "%s%s", c->below, name);
    ckpt__out_file *f = ckpt__out_add(w, path);
    return f && f->name ? f : NULL;
}

/* The files that the recipes are of; those are w's then. */
static ckpt_status add_files(ckpt__out *w, const cut *c, ckpt__recipe **recipes)
{
    const ckpt__migration *m = w->m;
    for (uint32_t r = 0; r < c->ranks->count; r++) {
        char name[60];
        if (!recipes[r])
            continue;
        if (m->as == CKPT__AS_DCP_HF)
            snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", (unsigned)r + 1);
        else
            snprintf(name, sizeof name, "__%u_0.distcp", (unsigned)r);
        ckpt__out_file *f = add_file(w, c, name);
        if (!f)
            return ckpt__migration_no_memory(w->err);
        f->format = m->format;
        f->recipe = recipes[r];
        recipes[r] = NULL;
    }
    return CKPT_OK;
}

/* Written last, as torch does it. */
static ckpt_status add_list(ckpt__out *w, const cut *c, ckpt__buf *list)
{
    ckpt__out_file *f = add_file(w, c, ".metadata");
    if (!f)
        return ckpt__migration_no_memory(w->err);
    f->text = *list;
    *list = (ckpt__buf){0};
    return CKPT_OK;
}

static ckpt_status write_cut(ckpt__out *w, cut *c)
{
    ckpt__migration *m = w->m;
    ckpt__buf list = {0};
    const ckpt__write_request q = {.index = m->index,
                                   .source = m->from,
                                   .edits = m->edits,
                                   .tensors = m->chosen,
                                   .count = m->chosen_count,
                                   .root = c->root,
                                   .step = -1,
                                   .lost = m->lost};
    ckpt_status status = ckpt__mesh_ranks(m, &c->ranks, w->err);
    ckpt__recipe **recipes = status == CKPT_OK ? calloc(c->ranks->count, sizeof(ckpt__recipe *)) : NULL;
    if (status == CKPT_OK && !recipes)
        status = ckpt__migration_no_memory(w->err);
    if (status == CKPT_OK)
        w->cuts = c->ranks;
    if (status == CKPT_OK)
        status = m->as == CKPT__AS_DCP_HF ? ckpt__dcp_write_shards(&q, c->ranks, recipes, w->err)
                 : ckpt__is_torch_dist(m) ? ckpt__dcp_write_records(&q, c->ranks, recipes, &list, w->err)
                                          : ckpt__dcp_write(&q, c->ranks, c->whole, recipes, &list, w->err);
    if (status == CKPT_OK)
        status = add_files(w, c, recipes);
    if (status == CKPT_OK && m->as != CKPT__AS_DCP_HF)
        status = add_list(w, c, &list);
    for (uint32_t r = 0; recipes && r < c->ranks->count; r++)
        ckpt__recipe_free(recipes[r]);
    free(recipes);
    ckpt__buf_free(&list);
    return status;
}

ckpt_status ckpt__dcp_files(ckpt__out *w)
{
    return write_cut(w, &(cut){.below = "", .root = w->m->root, .whole = w->m->wholes});
}

ckpt_status ckpt__dcp_records_files(ckpt__out *w, const ckpt_value *root)
{
    return write_cut(w, &(cut){.below = "", .root = root});
}

ckpt_status ckpt__dcp_folder(ckpt__out *w, const char *folder, const ckpt_value *root)
{
    char below[60];
    snprintf(below, sizeof below, "%.50s/", folder);
    if (!ckpt__grow(&w->folders, &w->folder_capacity, w->folder_count + 1, sizeof *w->folders))
        return ckpt__migration_no_memory(w->err);
    w->folders[w->folder_count++] = folder;
    return write_cut(w, &(cut){.below = below, .root = root, .whole = true});
}
