/* ranks/stages.c - a pipeline: each stage's files have layers of their own, which it may count from 0, and an optimizer of its own
 * parameters. Two stages of two layers each, which both call theirs layers.0 and layers.1, have layers.0 to layers.3 together; where each
 * stage's optimizer has the numbers 0, 1, 2 for its parameters, the whole's has 0, 1, 2 for those of the first and 3, 4, 5 for the others. */
#include "ranks/merge.h"

#include <stdio.h>
#include <stdlib.h>

bool ckpt__ranks_in_stage(const ckpt__ranks *r, const ckpt__ranks_file *f, size_t stage)
{
    return r->stage_count == 1 || f->at[r->files->stages.axis] == (int64_t)stage;
}

/* ---- layers */

/* Which numbers of layers the files of a stage have. */
typedef struct counting {
    ckpt__ranks *r;
    bool *seen; /* heap */
    size_t count, capacity;
} counting;

static int on_tensor(void *ctx, const ckpt_visit *visit)
{
    enum { MOST = 1 << 20 };
    counting *c = ctx;
    for (size_t i = 0; visit->value->kind == CKPT_V_TENSOR && i < visit->path.count; i++) {
        const ckpt_key *key = &visit->path.keys[i];
        int64_t number;
        size_t at, digits;
        if (!key->text.data || !ckpt__name_list_number(&c->r->files->stages.layers, key->text, &number, &at, &digits))
            continue;
        if (number >= MOST)
            return ckpt__fail(c->r->err, CKPT_E_LIMIT, c->r->source->path, "'%.*s': more than %d layers are not read",
                              (int)key->text.size, key->text.data, (int)MOST);
        if (!ckpt__grow(&c->seen, &c->capacity, (size_t)number + 1, sizeof *c->seen))
            return ckpt__ranks_no_memory(c->r->err);
        for (; c->count <= (size_t)number; c->count++)
            c->seen[c->count] = false;
        c->seen[number] = true;
    }
    return CKPT_OK;
}

/* How many layers the first files of a stage have, counted from 0. */
static ckpt_status count_layers(ckpt__ranks *r, size_t stage, size_t *out)
{
    const ckpt_str none = {NULL, 0};
    const ckpt__rank_stages *s = &r->files->stages;
    counting c = {.r = r};
    ckpt_status status = CKPT_OK;
    for (size_t g = 0; status == CKPT_OK && g < r->group_count; g++) {
        size_t i = 0;
        while (i < r->groups[g].count && !ckpt__ranks_in_stage(r, &r->groups[g].files[i], stage))
            i++;
        if (i < r->groups[g].count && r->groups[g].files[i].root)
            status = (ckpt_status)ckpt_value_walk(r->groups[g].files[i].root, 0, on_tensor, &c, r->err);
    }
    for (size_t i = 0; status == CKPT_OK && i < c.count; i++)
        if (!c.seen[i])
            status = ckpt__ranks_wrong(
                r, ckpt__layout_file(r->request->layout), none,
                "line %zu, column %zu: the files of stage %zu have %zu layers and not number %zu: do they "
                "count their own from 0?",
                s->line, s->column, stage, c.count, i);
    if (status == CKPT_OK && c.count == 0)
        status =
            ckpt__ranks_wrong(r, ckpt__layout_file(r->request->layout), none,
                              "line %zu, column %zu: the files of stage %zu have no tensor with a name of 'layers'",
                              s->line, s->column, stage);
    *out = c.count;
    free(c.seen);
    return status;
}

/* What the layout says of it. */
static ckpt_status check_count(ckpt__ranks *r, size_t stage, size_t count)
{
    const ckpt_str none = {NULL, 0};
    const ckpt__rank_stages *s = &r->files->stages;
    char why[300];
    int64_t said = (int64_t)count;
    if (s->sizes && !ckpt__formula_eval(&s->sizes[stage], ckpt__layout_value, r->given, &said, why, sizeof why))
        return ckpt__ranks_wrong(r, ckpt__layout_file(r->request->layout), none, "line %zu, column %zu: '%.*s': %s",
                                 s->line, s->column, (int)s->sizes[stage].text.size, s->sizes[stage].text.data, why);
    if (s->numbers)
        said = (int64_t)s->number_counts[stage];
    return said == (int64_t)count
               ? CKPT_OK
               : ckpt__ranks_wrong(
                     r, ckpt__layout_file(r->request->layout), none,
                     "line %zu, column %zu: the files of stage %zu have %zu layers, and the layout says %lld", s->line,
                     s->column, stage, count, (long long)said);
}

static ckpt_status number_layers(ckpt__ranks *r)
{
    const ckpt__rank_stages *s = &r->files->stages;
    size_t all = 0, capacity = 0;
    ckpt_status status =
        (r->layer_first = calloc(r->stage_count + 1, sizeof *r->layer_first)) ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t stage = 0; status == CKPT_OK && stage < r->stage_count; stage++) {
        size_t count = 0;
        status = count_layers(r, stage, &count);
        if (status == CKPT_OK)
            status = check_count(r, stage, count);
        if (status == CKPT_OK && !ckpt__grow(&r->layers, &capacity, all + count + 1, sizeof *r->layers))
            status = ckpt__ranks_no_memory(r->err);
        for (size_t i = 0; status == CKPT_OK && !r->wrong && i < count; i++)
            r->layers[all + i] = s->numbers ? s->numbers[all + i] : (int64_t)(all + i);
        r->layer_first[stage] = all;
        all += count;
        r->layer_first[stage + 1] = all;
    }
    return status;
}

ckpt_status ckpt__ranks_find_stages(ckpt__ranks *r)
{
    const ckpt__rank_stages *s = &r->files->stages;
    const ckpt_str none = {NULL, 0};
    bool named = !s->there || r->mesh.axes[s->axis].size == 1;
    r->stage_count = s->there ? (size_t)r->mesh.axes[s->axis].size : 1;
    for (size_t g = 0; g < r->group_count; g++)
        named = named || r->groups[g].along[s->axis];
    if (!named)
        return ckpt__ranks_wrong(r, ckpt__layout_file(r->request->layout), none,
                                 "line %zu, column %zu: the names of the files do not have the axis of the stages",
                                 s->line, s->column);
    ckpt_status status = CKPT_OK;
    if (s->there &&
        ((s->sizes && s->size_count != r->stage_count) || (s->numbers && s->number_stages != r->stage_count)))
        status = ckpt__ranks_wrong(r, ckpt__layout_file(r->request->layout), none,
                                   "line %zu, column %zu: the layers of %zu stages are said, and there are %zu",
                                   s->line, s->column, s->sizes ? s->size_count : s->number_stages, r->stage_count);
    return status == CKPT_OK && !r->wrong && s->local ? number_layers(r) : status;
}

ckpt_str ckpt__ranks_global(const ckpt__ranks *r, size_t stage, ckpt_str name)
{
    int64_t number;
    size_t at, digits;
    char text[24];
    if (!r->layers || stage == SIZE_MAX ||
        !ckpt__name_list_number(&r->files->stages.layers, name, &number, &at, &digits) ||
        (uint64_t)number >= r->layer_first[stage + 1] - r->layer_first[stage])
        return name;
    const size_t n =
        (size_t)snprintf(text, sizeof text, "%lld", (long long)r->layers[r->layer_first[stage] + (size_t)number]);
    return ckpt__arena_join(r->index->arena, (ckpt_str){name.data, at}, (ckpt_str){text, n},
                            (ckpt_str){name.data + at + digits, name.size - at - digits});
}

/* ---- the optimizers */

/* A parameter of the whole optimizer. */
typedef struct slot {
    size_t group;
    const ckpt_value *id;     /* in the first stage that has it */
    const ckpt_value **state; /* one a stage; NULL: it has none there */
    ckpt_str name;            /* data NULL: it is not known */
} slot;

typedef struct slots {
    ckpt__ranks_merger *m;
    const ckpt__place *at;
    slot *items; /* heap */
    size_t count, capacity;
    ckpt__hash *by_name; /* owned */
    bool named;          /* all have names */
} slots;

static const ckpt_value *part(const slots *s, size_t stage, const char *key)
{
    return s->at->values[stage] ? ckpt_value_get(s->at->values[stage], key) : NULL;
}

static bool same_id(const ckpt_value *a, const ckpt_value *b)
{
    return a->kind == b->kind && (a->kind == CKPT_V_INT ? a->integer == b->integer
                                                        : a->kind == CKPT_V_STR && ckpt__str_equal(a->text, b->text));
}

/* The state of an id of a stage; its tensors tell whose it is. */
static ckpt_status find_state(slots *s, size_t stage, const ckpt_value *id, const ckpt_value **out, ckpt_str *name)
{
    ckpt__ranks_merger *m = s->m;
    const ckpt_value *state = part(s, stage, "state");
    const ckpt_str global = id->kind == CKPT_V_STR ? ckpt__ranks_global(m->r, stage, id->text) : (ckpt_str){NULL, 0};
    const ckpt_value own = {.kind = CKPT_V_STR, .text = global};
    *out = NULL;
    *name = global;
    if (id->kind == CKPT_V_STR && !global.data)
        return ckpt__ranks_no_memory(m->r->err);
    for (size_t i = 0; state && !*out && i < state->entry_count; i++)
        if (same_id(state->entries[i].key, id->kind == CKPT_V_STR ? &own : id))
            *out = state->entries[i].value;
    for (size_t i = 0; *out && !name->data && i < (*out)->entry_count; i++) {
        const ckpt_value *v = (*out)->entries[i].value;
        if (v->kind == CKPT_V_TENSOR && v->tensor >= m->r->row_count &&
            m->r->tensors[v->tensor - m->r->row_count].name.state)
            *name = m->r->tensors[v->tensor - m->r->row_count].name.param;
    }
    return CKPT_OK;
}

static ckpt_status add_slot(slots *s, size_t stage, size_t group, const ckpt_value *id)
{
    const ckpt_value *state;
    ckpt_str name;
    size_t at = s->count;
    ckpt_status status = find_state(s, stage, id, &state, &name);
    if (status < 0)
        return status;
    const int put = name.data ? ckpt__hash_put(s->by_name, name.data, name.size, s->count, &at) : 1;
    if (put < 0)
        return ckpt__ranks_no_memory(s->m->r->err);
    if (put == 0 && s->items[at].state[stage] != NULL)
        return ckpt__ranks_wrong(s->m->r, s->m->sources[stage].files[0]->name, name, "the optimizer has it twice");
    if (put == 0 && s->items[at].group != group)
        return ckpt__ranks_wrong(s->m->r, s->m->sources[stage].files[0]->name, name,
                                 "it is in group %zu of the optimizer, and in group %zu in another stage", group,
                                 s->items[at].group);
    if (put > 0) {
        const ckpt_value **states = ckpt__arena_array(s->m->r->arena, s->m->count, sizeof *states);
        if (!states || !ckpt__grow(&s->items, &s->capacity, s->count + 1, sizeof *s->items))
            return ckpt__ranks_no_memory(s->m->r->err);
        at = s->count++;
        s->items[at] = (slot){group, id, states, name};
    }
    s->named = s->named && name.data;
    s->items[at].state[stage] = state;
    return CKPT_OK;
}

/* Group by group, and in each stage by stage. */
static ckpt_status list_slots(slots *s, size_t groups)
{
    ckpt_status status = (s->by_name = ckpt__hash_new(64)) ? CKPT_OK : ckpt__ranks_no_memory(s->m->r->err);
    for (size_t g = 0; status == CKPT_OK && g < groups; g++)
        for (size_t stage = 0; status == CKPT_OK && stage < s->m->count; stage++) {
            const ckpt_value *list = part(s, stage, "param_groups");
            const ckpt_value *ids = list ? ckpt_value_get(list->items[g], "params") : NULL;
            for (size_t i = 0; status == CKPT_OK && ids && i < ids->item_count; i++)
                status = add_slot(s, stage, g, ids->items[i]);
        }
    return status;
}

/* The caller's order is that of the whole: stage behind stage. */
static ckpt_status check_stated(const slots *s)
{
    const ckpt__ranks_request *q = s->m->r->request;
    bool same = !q->param_name_count || q->param_name_count == s->count;
    for (size_t i = 0; q->param_name_count && same && i < s->count; i++)
        same = !s->items[i].name.data || ckpt__str_is(s->items[i].name, q->param_names[i]);
    return same ? CKPT_OK
                : ckpt__ranks_wrong(
                      s->m->r, NULL, ckpt__ranks_path(s->m),
                      "the optimizers of the stages have %zu parameters, one stage's behind the other's, and "
                      "--param-names says another order, or other parameters",
                      s->count);
}

static ckpt_value *id_of(const slots *s, size_t i)
{
    ckpt__arena *a = s->m->r->index->arena;
    const slot *own = &s->items[i];
    return own->id->kind == CKPT_V_STR ? ckpt__value_str(a, own->name.data, own->name.size)
                                       : ckpt__value_int(a, (int64_t)i);
}

/* ---- of them one */

static ckpt_status add_entry(ckpt__entries *to, const slots *s, const char *key, const ckpt_value *value)
{
    const ckpt_value *name = ckpt__value_str(s->m->r->index->arena, key, strlen(key));
    return name && value ? ckpt__entries_add(to, name, value, s->m->r->err) : ckpt__ranks_no_memory(s->m->r->err);
}

static bool names_params(const ckpt_value *key)
{
    return key->kind == CKPT_V_STR && (ckpt__str_is(key->text, "params") || ckpt__str_is(key->text, "param_names"));
}

/* The settings of a group are the same in all stages. */
static ckpt_status merge_settings(slots *s, size_t g, ckpt__entries *out)
{
    ckpt__ranks_merger *m = s->m;
    ckpt_status status = CKPT_OK;
    size_t first = 0;
    while (!part(s, first, "param_groups"))
        first++;
    const ckpt_value *one = part(s, first, "param_groups")->items[g];
    for (size_t i = 0; status == CKPT_OK && i < one->entry_count; i++) {
        const ckpt_entry *e = &one->entries[i];
        if (names_params(e->key) || e->key->kind != CKPT_V_STR)
            continue;
        for (size_t stage = first + 1; status == CKPT_OK && stage < m->count; stage++) {
            const ckpt_value *list = part(s, stage, "param_groups");
            const ckpt_value *own = list ? ckpt_value_get(list->items[g], e->key->text.data) : e->value;
            bool same = false;
            if (own)
                status = ckpt__ranks_alike(m->r, e->value, own, &same);
            if (status == CKPT_OK && !same)
                status = ckpt__ranks_wrong(
                    m->r, m->sources[stage].files[0]->name, e->key->text,
                    "group %zu of the optimizer has another one than in %s: an optimizer has the same settings "
                    "in all stages",
                    g, m->sources[first].files[0]->name);
        }
        if (status == CKPT_OK)
            status = ckpt__entries_add(out, e->key, e->value, m->r->err);
    }
    return status;
}

static ckpt_status make_group(slots *s, size_t g, const ckpt_value **out)
{
    ckpt__arena *a = s->m->r->index->arena;
    ckpt__entries entries = {NULL, 0, 0};
    const ckpt_value **ids = ckpt__arena_array(a, s->count + 1, sizeof *ids),
                     **names = ckpt__arena_array(a, s->count + 1, sizeof *names);
    size_t n = 0;
    ckpt_status status = ids && names ? merge_settings(s, g, &entries) : ckpt__ranks_no_memory(s->m->r->err);
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        if (s->items[i].group != g)
            continue;
        ids[n] = id_of(s, i);
        names[n] = s->named ? ckpt__value_str(a, s->items[i].name.data, s->items[i].name.size) : ids[n];
        status = ids[n] && names[n] ? CKPT_OK : ckpt__ranks_no_memory(s->m->r->err);
        n++;
    }
    if (status == CKPT_OK)
        status = add_entry(&entries, s, "params", ckpt__value_list(a, CKPT_V_LIST, ids, n));
    if (status == CKPT_OK && s->named && n && ids[0]->kind == CKPT_V_INT)
        status = add_entry(&entries, s, "param_names", ckpt__value_list(a, CKPT_V_LIST, names, n));
    if (status == CKPT_OK && !(*out = ckpt__entries_dict(&entries, a)))
        status = ckpt__ranks_no_memory(s->m->r->err);
    free(entries.items);
    return status;
}

static ckpt_status make_groups(slots *s, size_t groups, ckpt__entries *out)
{
    const ckpt_value **items = ckpt__arena_array(s->m->r->index->arena, groups + 1, sizeof *items);
    ckpt_status status = items ? CKPT_OK : ckpt__ranks_no_memory(s->m->r->err);
    for (size_t g = 0; status == CKPT_OK && g < groups; g++)
        status = make_group(s, g, &items[g]);
    return status == CKPT_OK
               ? add_entry(out, s, "param_groups", ckpt__value_list(s->m->r->index->arena, CKPT_V_LIST, items, groups))
               : status;
}

static ckpt_status make_states(slots *s, ckpt__entries *out)
{
    ckpt__ranks_merger *m = s->m;
    ckpt__entries entries = {NULL, 0, 0}, *none = calloc(m->count, sizeof *none);
    ckpt_status status = none ? CKPT_OK : ckpt__ranks_no_memory(m->r->err);
    const size_t before = m->path.size;
    for (size_t i = 0; status == CKPT_OK && i < s->count; i++) {
        const slot *own = &s->items[i];
        const ckpt__place child = {
            .values = own->state, .count = m->count, .key = id_of(s, i), .depth = s->at->depth + 2};
        const ckpt_value *value = NULL;
        if (ckpt__place_first(&child) == m->count)
            continue;
        ckpt__buf_printf(&m->path, "%sstate.%.*s", before ? "." : "", (int)own->name.size,
                         own->name.data ? own->name.data : "");
        status = child.key && !m->path.failed ? ckpt__ranks_merge_place(m, &child, &value, none)
                                              : ckpt__ranks_no_memory(m->r->err);
        m->path.size = before;
        if (status == CKPT_OK && value)
            status = ckpt__entries_add(&entries, child.key, value, m->r->err);
    }
    if (status == CKPT_OK)
        status = add_entry(out, s, "state", ckpt__entries_dict(&entries, m->r->index->arena));
    for (size_t i = 0; none && i < m->count; i++)
        free(none[i].items);
    free(none);
    free(entries.items);
    return status;
}

/* Each state belongs to a parameter of a group. */
static ckpt_status check_states(slots *s)
{
    ckpt__ranks_merger *m = s->m;
    ckpt_status status = CKPT_OK;
    for (size_t stage = 0; status == CKPT_OK && stage < m->count; stage++) {
        const ckpt_value *state = part(s, stage, "state");
        size_t used = 0;
        for (size_t i = 0; i < s->count; i++)
            used += s->items[i].state[stage] != NULL;
        if (state && used != state->entry_count)
            status = ckpt__ranks_wrong(m->r, m->sources[stage].files[0]->name, ckpt__ranks_path(m),
                                       "it has %zu states, and its groups list the parameters of %zu of them",
                                       state->entry_count, used);
    }
    return status;
}

/* What an optimizer has beside its groups and states. */
static ckpt_status merge_rest(slots *s, ckpt__entries *out, ckpt__entries *own)
{
    ckpt__ranks_merger *m = s->m;
    const ckpt_value **values = ckpt__arena_array(m->r->arena, m->count, sizeof *values), *merged = NULL;
    ckpt_status status = values ? CKPT_OK : ckpt__ranks_no_memory(m->r->err);
    for (size_t stage = 0; status == CKPT_OK && stage < m->count; stage++) {
        const ckpt_value *v = s->at->values[stage];
        ckpt__entries rest = {NULL, 0, 0};
        values[stage] = NULL;
        for (size_t i = 0; status == CKPT_OK && v && i < v->entry_count; i++)
            if (v->entries[i].key->kind != CKPT_V_STR || (!ckpt__str_is(v->entries[i].key->text, "state") &&
                                                          !ckpt__str_is(v->entries[i].key->text, "param_groups")))
                status = ckpt__entries_add(&rest, v->entries[i].key, v->entries[i].value, m->r->err);
        if (status == CKPT_OK && v && !(values[stage] = ckpt__entries_dict(&rest, m->r->index->arena)))
            status = ckpt__ranks_no_memory(m->r->err);
        free(rest.items);
    }
    const ckpt__place at = {.values = values, .count = m->count, .key = s->at->key, .depth = s->at->depth};
    if (status == CKPT_OK)
        status = ckpt__ranks_merge_dicts(m, &at, &merged, own);
    for (size_t i = 0; status == CKPT_OK && merged && i < merged->entry_count; i++)
        status = ckpt__entries_add(out, merged->entries[i].key, merged->entries[i].value, m->r->err);
    return status;
}

bool ckpt__ranks_are_optimizers(const ckpt__ranks_merger *m, const ckpt__place *at)
{
    if (m->stage != SIZE_MAX || !m->r->optimizer.data || !ckpt__str_equal(ckpt__ranks_path(m), m->r->optimizer))
        return false;
    for (size_t i = 0; i < m->count; i++) {
        const ckpt_value *groups = at->values[i] ? ckpt_value_get(at->values[i], "param_groups") : NULL;
        if (at->values[i] && (!groups || !ckpt__is_list(groups)))
            return false;
    }
    return true;
}

ckpt_status ckpt__ranks_merge_optimizers(ckpt__ranks_merger *m, const ckpt__place *at, const ckpt_value **out,
                                         ckpt__entries *own)
{
    const size_t first = ckpt__place_first(at);
    slots s = {.m = m, .at = at, .named = true};
    ckpt__entries entries = {NULL, 0, 0};
    const size_t groups = part(&s, first, "param_groups")->item_count;
    ckpt_status status = CKPT_OK;
    *out = at->values[first];
    for (size_t i = first + 1; i < m->count; i++)
        if (at->values[i] && part(&s, i, "param_groups")->item_count != groups)
            return ckpt__ranks_wrong(
                m->r, m->sources[i].files[0]->name, ckpt__ranks_path(m),
                "the optimizer has %zu groups, and %zu in %s: those of all stages have the same groups",
                part(&s, i, "param_groups")->item_count, groups, m->sources[first].files[0]->name);
    status = list_slots(&s, groups);
    if (status == CKPT_OK)
        status = check_stated(&s);
    if (status == CKPT_OK)
        status = check_states(&s);
    if (status == CKPT_OK)
        status = merge_rest(&s, &entries, own);
    if (status == CKPT_OK)
        status = make_states(&s, &entries);
    if (status == CKPT_OK)
        status = make_groups(&s, groups, &entries);
    if (status == CKPT_OK && !(*out = ckpt__entries_dict(&entries, m->r->index->arena)))
        status = ckpt__ranks_no_memory(m->r->err);
    ckpt__hash_free(s.by_name);
    free(s.items);
    free(entries.items);
    return status;
}
