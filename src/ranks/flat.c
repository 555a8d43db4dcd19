/* ranks/flat.c - what lies flat is taken out of the trees of the files before anything else looks at them. Once the model's tensors are
 * known, an optimizer with a state for each parameter is put where the layout says it lay. */
#include "ranks/flat.h"

#include <stdio.h>
#include <stdlib.h>
#include "model/rewrite.h"
#include "model/value_path.h"

bool ckpt__flat_path(const ckpt__ranks_group *g, ckpt_str path, ckpt_str *inside)
{
    const ckpt_str key = g->form->key;
    *inside = path;
    if (!key.data)
        return true;
    if (!ckpt__str_begins_with(path, key) || path.size < key.size + 2 || path.data[key.size] != '.')
        return false;
    *inside = (ckpt_str){path.data + key.size + 1, path.size - key.size - 1};
    return true;
}

const ckpt_value *ckpt__flat_value(const ckpt__ranks_group *g, const ckpt__ranks_file *f, ckpt_str path)
{
    ckpt_str inside;
    return ckpt__flat_path(g, path, &inside) ? ckpt__value_at(f->whole, inside) : NULL;
}

/* ---- out of the trees */

typedef struct taking {
    ckpt__ranks *r;
    const ckpt__ranks_group *group;
    const char *file;
} taking;

static bool is_at(const taking *t, ckpt_str path, ckpt_str name)
{
    ckpt_str inside;
    return path.data && ckpt__flat_path(t->group, path, &inside) && ckpt__str_equal(inside, name);
}

static bool is_below(const taking *t, ckpt_str path, ckpt_str name)
{
    ckpt_str inside;
    return path.data && ckpt__flat_path(t->group, path, &inside) && ckpt__str_begins_with(name, inside) &&
           (name.size == inside.size || name.data[inside.size] == '.');
}

/* One of the layout's own places. below: or something in a group's settings. */
static bool is_said(const taking *t, ckpt_str name, bool below)
{
    for (size_t i = 0; i < t->r->files->flat_count; i++) {
        const ckpt__rank_flat *f = &t->r->files->flats[i];
        bool said = is_at(t, f->step, name) || (below ? is_below : is_at)(t, f->group, name);
        for (size_t b = 0; b < f->buffer_count; b++)
            said = said || is_at(t, f->buffers[b].path, name);
        if (said)
            return true;
    }
    return false;
}

/* The states and groups that the optimizer of the files has, which are of no parameter. */
static bool is_replaced(const taking *t, ckpt_str name)
{
    ckpt_str inside;
    const ckpt_str in = t->r->files->flats[0].in;
    static const char *const keys[] = {".state", ".param_groups"};
    if (!ckpt__flat_path(t->group, in, &inside) || !ckpt__str_begins_with(name, inside))
        return false;
    const ckpt_str rest = {name.data + inside.size, name.size - inside.size};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t n = strlen(keys[i]);
        if (rest.size >= n && memcmp(rest.data, keys[i], n) == 0 && (rest.size == n || rest.data[n] == '.'))
            return true;
    }
    return false;
}

static int on_place(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    const taking *t = ctx;
    (void)spot;
    if (!visit->cycle && visit->name.size && (is_said(t, visit->name, false) || is_replaced(t, visit->name)))
        *to = NULL;
    return 0;
}

/* Nothing is lost without a word: all in the states and groups is one of the layout's places. */
static int on_leaf(void *ctx, const ckpt_visit *visit)
{
    const taking *t = ctx;
    const ckpt_value *v = visit->value;
    if (v->entry_count || v->item_count || ((v->kind == CKPT_V_DICT || ckpt__is_list(v)) && !v->state) ||
        !is_replaced(t, visit->name) || is_said(t, visit->name, true))
        return CKPT_OK;
    return ckpt__ranks_wrong(t->r, t->file, visit->name,
                             "the optimizer of the flat buffers has it, and no key of 'flat' says what it is");
}

ckpt_status ckpt__flat_without(ckpt__ranks *r, const ckpt__ranks_group *g, const ckpt_value *root, ckpt__arena *arena,
                               const ckpt_value **out)
{
    taking t = {r, g, NULL};
    ckpt__edits *edits = NULL;
    *out = root;
    if (!r->files->flat_count || !root)
        return CKPT_OK;
    ckpt_status status = (edits = ckpt__edits_new(arena, NULL)) ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (status == CKPT_OK)
        status = ckpt__rewrite(edits, root, on_place, &t, out, r->err);
    ckpt__edits_free(edits);
    return status;
}

ckpt_status ckpt__flat_open(ckpt__ranks *r)
{
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && r->files->flat_count && g < r->group_count; g++)
        for (size_t i = 0; status == CKPT_OK && i < r->groups[g].count; i++) {
            ckpt__ranks_file *f = &r->groups[g].files[i];
            taking t = {r, &r->groups[g], f->name};
            if (f->root)
                status = (ckpt_status)ckpt_value_walk(f->root, 0, on_leaf, &t, r->err);
            if (status == CKPT_OK)
                status = ckpt__flat_without(r, &r->groups[g], f->root, r->index->arena, &f->root);
        }
    if (status == CKPT_OK && r->files->flat_count)
        r->optimizer = r->files->flats[0].in;
    return status;
}

/* ---- into the tree of a stage */

/* The optimizer of a stage on its way. */
typedef struct grafting {
    ckpt__ranks *r;
    size_t stage;
    ckpt__entries states, groups; /* of the state's dict; of the groups the values alone count */
    const ckpt_value *step;
} grafting;

static ckpt_status new_tensor(grafting *g, const ckpt__flat_set *set, ckpt__ranks_tensor t, ckpt_str path,
                              const ckpt_value **out)
{
    ckpt__ranks *r = g->r;
    size_t count = 0;
    t.group = set->group;
    t.stage = g->stage;
    t.first = r->part_count;
    for (size_t i = 0; i < set->group->count; i++) {
        const ckpt__ranks_file *f = &set->group->files[i];
        if (!ckpt__ranks_in_stage(r, f, g->stage))
            continue;
        if (!ckpt__grow(&r->parts, &r->part_capacity, r->part_count + 1, sizeof *r->parts))
            return ckpt__ranks_no_memory(r->err);
        r->parts[r->part_count++] = (ckpt__ranks_part){f, ckpt__flat_value(set->group, f, path)->tensor};
        count++;
    }
    t.count = count;
    ckpt_value *v = ckpt__value_new(r->index->arena, CKPT_V_TENSOR);
    if (!v || !ckpt__grow(&r->tensors, &r->tensor_capacity, r->tensor_count + 1, sizeof *r->tensors))
        return ckpt__ranks_no_memory(r->err);
    v->tensor = r->row_count + r->tensor_count;
    r->tensors[r->tensor_count++] = t;
    *out = v;
    return CKPT_OK;
}

static ckpt_status name_state(grafting *g, const ckpt__ranks_name *param, ckpt_str key, ckpt__ranks_name *out)
{
    ckpt__buf shown = {0};
    ckpt__buf_printf(&shown, "optimizer.%.*s.%.*s", (int)param->param.size, param->param.data, (int)key.size, key.data);
    *out = *param;
    out->state = true;
    out->shown = shown.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(g->r->arena, shown.data, shown.size);
    ckpt__buf_free(&shown);
    return out->shown.data ? CKPT_OK : ckpt__ranks_no_memory(g->r->err);
}

/* The step of the buffer is that of each parameter in it, which counts it by itself. */
static ckpt_status add_step(grafting *g, const ckpt__flat_set *set, const ckpt__ranks_name *param, ckpt__entries *to)
{
    const ckpt_value *key = ckpt__value_str(g->r->index->arena, "step", 4), *value = g->step;
    ckpt__ranks_tensor t = {.shard = SIZE_MAX, .alone = true};
    ckpt_status status = key ? CKPT_OK : ckpt__ranks_no_memory(g->r->err);
    if (!value)
        return CKPT_OK;
    if (status == CKPT_OK && value->kind == CKPT_V_TENSOR) {
        status = name_state(g, param, key->text, &t.name);
        t.name.step = true;
        if (status == CKPT_OK)
            status = new_tensor(g, set, t, set->flat->step, &value);
    }
    return status == CKPT_OK ? ckpt__entries_add(to, key, value, g->r->err) : status;
}

static ckpt_status add_state(grafting *g, const ckpt__flat_set *set, size_t i, const ckpt_value **out)
{
    const ckpt__ranks_name param = g->r->tensors[set->params[i]].name;
    ckpt__arena *a = g->r->index->arena;
    ckpt__entries entries = {NULL, 0, 0};
    ckpt_status status = add_step(g, set, &param, &entries);
    for (size_t b = 0; status == CKPT_OK && b < set->flat->buffer_count; b++) {
        const ckpt_str name = set->flat->buffers[b].key;
        const ckpt_value *key = ckpt__value_str(a, name.data, name.size), *value = NULL;
        ckpt__flat_state *state = ckpt__arena_alloc(g->r->arena, sizeof *state);
        ckpt__ranks_tensor t = {.shard = SIZE_MAX, .flat = state};
        if (!key || !state) {
            status = ckpt__ranks_no_memory(g->r->err);
            break;
        }
        *state = (ckpt__flat_state){set, i, b};
        status = name_state(g, &param, name, &t.name);
        if (status == CKPT_OK)
            status = new_tensor(g, set, t, set->flat->buffers[b].path, &value);
        if (status == CKPT_OK)
            status = ckpt__entries_add(&entries, key, value, g->r->err);
    }
    const ckpt_value *key = ckpt__value_str(a, param.param.data, param.param.size),
                     *dict = status == CKPT_OK ? ckpt__entries_dict(&entries, a) : NULL;
    free(entries.items);
    if (status == CKPT_OK)
        status = key && dict ? ckpt__entries_add(&g->states, key, dict, g->r->err) : ckpt__ranks_no_memory(g->r->err);
    *out = ckpt__value_str(a, param.local.data,
                           param.local.size); /* names in lists are those of the stage, as all are by now */
    return status == CKPT_OK && !*out ? ckpt__ranks_no_memory(g->r->err) : status;
}

/* What all ranks of the stage have at a path; NULL: it is none. */
static ckpt_status common(grafting *g, const ckpt__flat_set *set, ckpt_str path, const ckpt_value **out)
{
    const ckpt_str none = {NULL, 0};
    const ckpt__ranks_file *first = NULL;
    ckpt_status status = CKPT_OK;
    *out = NULL;
    for (size_t i = 0; path.data && status == CKPT_OK && i < set->group->count; i++) {
        const ckpt__ranks_file *f = &set->group->files[i];
        if (!ckpt__ranks_in_stage(g->r, f, g->stage))
            continue;
        const ckpt_value *v = ckpt__flat_value(set->group, f, path);
        bool same = true;
        if (!v)
            status = ckpt__ranks_wrong(g->r, f->name, none, "there is nothing at '%.*s' in it, which 'flat' says",
                                       (int)path.size, path.data);
        else if (*out)
            status = ckpt__ranks_alike(g->r, *out, v, &same);
        if (status == CKPT_OK && !same)
            status = ckpt__ranks_wrong(g->r, f->name, path,
                                       "it is not that in %s: an optimizer has the same on all ranks", first->name);
        first = first ? first : f;
        *out = *out ? *out : v;
    }
    return status;
}

static ckpt_status add_group(grafting *g, const ckpt__flat_set *set)
{
    ckpt__arena *a = g->r->index->arena;
    const ckpt_value **ids = ckpt__arena_array(a, set->count + 1, sizeof *ids), *settings = NULL;
    const ckpt_value *key = ckpt__value_str(a, "params", 6);
    ckpt__entries entries = {NULL, 0, 0};
    ckpt_status status = ids && key ? common(g, set, set->flat->step, &g->step) : ckpt__ranks_no_memory(g->r->err);
    if (status == CKPT_OK)
        status = common(g, set, set->flat->group, &settings);
    for (size_t i = 0; status == CKPT_OK && i < set->count; i++)
        status = add_state(g, set, i, &ids[i]);
    for (size_t i = 0; status == CKPT_OK && settings && i < settings->entry_count; i++)
        if (settings->entries[i].key->kind != CKPT_V_STR ||
            !ckpt__str_among(settings->entries[i].key->text, "params param_names"))
            status = ckpt__entries_add(&entries, settings->entries[i].key, settings->entries[i].value, g->r->err);
    const ckpt_value *list = status == CKPT_OK ? ckpt__value_list(a, CKPT_V_LIST, ids, set->count) : NULL;
    if (status == CKPT_OK)
        status = list ? ckpt__entries_add(&entries, key, list, g->r->err) : ckpt__ranks_no_memory(g->r->err);
    const ckpt_value *dict = status == CKPT_OK ? ckpt__entries_dict(&entries, a) : NULL;
    if (status == CKPT_OK)
        status = dict ? ckpt__entries_add(&g->groups, key, dict, g->r->err) : ckpt__ranks_no_memory(g->r->err);
    free(entries.items);
    return status;
}

/* Where the optimizer goes. */
typedef struct replacing {
    ckpt_str at;
    const ckpt_value *by;
    bool found;
} replacing;

static int on_optimizer(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to)
{
    replacing *p = ctx;
    (void)spot;
    if (visit->cycle || !ckpt__str_equal(visit->name, p->at) || p->found)
        return 0;
    p->found = true;
    *to = p->by;
    return 0;
}

/* The dict that is there, with the states and the groups. */
static ckpt_status put_in(grafting *g, const ckpt__ranks_group *group, const ckpt_value **root)
{
    ckpt__arena *a = g->r->index->arena;
    const ckpt_str none = {NULL, 0}, in = g->r->files->flats[0].in;
    replacing p = {.found = false};
    ckpt__entries entries = {NULL, 0, 0};
    const ckpt_value *was, *items = NULL, **groups = ckpt__arena_array(a, g->groups.count + 1, sizeof *groups);
    const ckpt_value *state_key = ckpt__value_str(a, "state", 5), *groups_key = ckpt__value_str(a, "param_groups", 12),
                     *states = ckpt__entries_dict(&g->states, a);
    ckpt__edits *edits = ckpt__edits_new(a, NULL);
    ckpt_status status =
        groups && state_key && groups_key && states && edits ? CKPT_OK : ckpt__ranks_no_memory(g->r->err);
    ckpt__flat_path(group, in, &p.at);
    was = *root ? ckpt__value_at(*root, p.at) : NULL;
    for (size_t i = 0; status == CKPT_OK && i < g->groups.count; i++)
        groups[i] = g->groups.items[i].value;
    for (size_t i = 0; status == CKPT_OK && was && was->kind == CKPT_V_DICT && i < was->entry_count; i++)
        status = ckpt__entries_add(&entries, was->entries[i].key, was->entries[i].value, g->r->err);
    if (status == CKPT_OK && !(items = ckpt__value_list(a, CKPT_V_LIST, groups, g->groups.count)))
        status = ckpt__ranks_no_memory(g->r->err);
    if (status == CKPT_OK)
        status = ckpt__entries_add(&entries, state_key, states, g->r->err);
    if (status == CKPT_OK)
        status = ckpt__entries_add(&entries, groups_key, items, g->r->err);
    if (status == CKPT_OK && !(p.by = ckpt__entries_dict(&entries, a)))
        status = ckpt__ranks_no_memory(g->r->err);
    if (status == CKPT_OK && was && was->kind == CKPT_V_DICT)
        status = ckpt__rewrite(edits, *root, on_optimizer, &p, root, g->r->err);
    if (status == CKPT_OK && !p.found)
        status = ckpt__ranks_wrong(g->r, group->files[0].name, none,
                                   "there is no dict at '%.*s' in it, where 'flat' says that the optimizer lies",
                                   (int)in.size, in.data);
    ckpt__edits_free(edits);
    free(entries.items);
    return status;
}

ckpt_status ckpt__flat_graft(ckpt__ranks *r, const ckpt__ranks_group *group, size_t stage, const ckpt_value **root)
{
    grafting g = {.r = r, .stage = stage};
    const ckpt__flat_set *sets[CKPT__FLATS] = {NULL};
    const size_t count = r->files->flat_count;
    ckpt_str inside;
    bool all = true;
    if (!count || !ckpt__flat_path(group, r->files->flats[0].in, &inside))
        return CKPT_OK;
    bool *taken = calloc(r->tensor_count + 1, sizeof *taken);
    ckpt_status status = taken ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        status = ckpt__flat_set_make(r, &r->files->flats[i], stage, taken, &sets[i]);
        all = all && sets[i];
    }
    for (size_t i = 0; status == CKPT_OK && all && i < count; i++)
        status = add_group(&g, sets[i]);
    if (status == CKPT_OK && all)
        status = put_in(&g, group, root);
    free(taken);
    free(g.states.items);
    free(g.groups.items);
    return status;
}
