/* migrate/layout_groups.c - the optimizer's groups, whose parameters have other names now. */
#include "migrate/layout.h"

#include <stdio.h>
#include <stdlib.h>

/* The work: which output of which use a parameter has become, and in which group each use stands. */
typedef struct grouping {
    ckpt__laying *l;
    ckpt__hash *uses; /* owned: name of an input -> its use */
    size_t *group;    /* heap, one a use: 1 + the group that it stands in; 0: none yet */
    size_t *first;    /* heap, one a use: the name of its first input that is in a group */
} grouping;

static bool is_setting(const ckpt__canon_entry *e, ckpt_str group, ckpt_str *key)
{
    const size_t head = sizeof "optimizer.groups." - 1;
    if (e->is_tensor || !e->value || e->outside || !ckpt__str_begins(e->name, "optimizer.groups.") ||
        e->name.size <= head + group.size + 1 || memcmp(e->name.data + head, group.data, group.size) != 0 ||
        e->name.data[head + group.size] != '.')
        return false;
    *key = (ckpt_str){e->name.data + head + group.size + 1, e->name.size - head - group.size - 1};
    return !ckpt__str_is(*key, "params") && !ckpt__str_begins(*key, "param_names");
}

/* A setting of group a that b has otherwise, or has not. data NULL: none. */
static ckpt_str other_setting(const ckpt__canon *c, size_t a, size_t b)
{
    for (size_t i = 0; i < c->count; i++) {
        ckpt_str key, other;
        bool same = false;
        if (!is_setting(&c->entries[i], c->groups[a].name, &key))
            continue;
        for (size_t k = 0; k < c->count && !same; k++)
            same = is_setting(&c->entries[k], c->groups[b].name, &other) && ckpt__str_equal(key, other) &&
                   ckpt__value_alike(c->entries[i].value, c->entries[k].value);
        if (!same)
            return key;
    }
    return (ckpt_str){NULL, 0};
}

/* Two parameters that are one from now on stand in two groups. */
static ckpt_status check_groups(grouping *g, ckpt_str one, size_t a, ckpt_str other, size_t b)
{
    const ckpt__canon *c = g->l->m->canon;
    ckpt_str key = other_setting(c, a, b);
    if (!key.data)
        key = other_setting(c, b, a);
    if (!key.data)
        return CKPT_OK;
    return ckpt__fail(g->l->err, CKPT_E_MISMATCH, g->l->m->src,
                      "'%.*s' and '%.*s' become one parameter, and their groups, %.*s and %.*s, differ in '%.*s': the "
                      "optimizer has to have them in one group, or in groups with the same settings",
                      (int)one.size, one.data, (int)other.size, other.data, (int)c->groups[a].name.size,
                      c->groups[a].name.data, (int)c->groups[b].name.size, c->groups[b].name.data, (int)key.size,
                      key.data);
}

/* The group's parameters: each use once, where its first input stands. */
static ckpt_status rename_group(grouping *g, size_t number)
{
    ckpt__canon_group *group = &g->l->m->canon->groups[number];
    const ckpt__layout_match *match = g->l->match;
    size_t room = group->param_count, count = 0;
    for (size_t i = 0; i < group->param_count; i++) {
        size_t u;
        if (ckpt__hash_get(g->uses, group->params[i].data, group->params[i].size, &u))
            room += match->uses[u].output_count;
    }
    ckpt_str *params = ckpt__arena_array(g->l->m->canon->arena, room + 1, sizeof *params);
    ckpt_status status = params ? CKPT_OK : ckpt__migration_no_memory(g->l->err);
    for (size_t i = 0; status == CKPT_OK && i < group->param_count; i++) {
        const ckpt_str was = group->params[i];
        size_t u;
        if (!ckpt__hash_get(g->uses, was.data, was.size, &u)) {
            params[count++] = was;
            continue;
        }
        if (g->group[u] && g->group[u] != number + 1)
            status = check_groups(g, g->l->names[g->first[u]].name, g->group[u] - 1, was, number);
        if (status < 0 || g->group[u])
            continue;
        g->group[u] = number + 1;
        ckpt__hash_get(g->l->by_name, was.data, was.size, &g->first[u]);
        for (size_t k = 0; k < match->uses[u].output_count; k++) {
            const ckpt_str name = match->uses[u].outputs[k];
            params[count] = ckpt__arena_str(g->l->m->canon->arena, name.data, name.size);
            if (!params[count++].data)
                return ckpt__migration_no_memory(g->l->err);
        }
    }
    group->params = params;
    group->param_count = count;
    return status;
}

/* All inputs of a use stand in groups, or none does. */
static ckpt_status check_whole(const grouping *g, const bool *grouped)
{
    const ckpt__layout_match *match = g->l->match;
    for (size_t u = 0; u < match->count; u++)
        for (size_t i = 1; i < match->uses[u].input_count; i++) {
            const size_t a = match->uses[u].inputs[0], b = match->uses[u].inputs[i];
            const ckpt_str in = g->l->names[grouped[a] ? a : b].name, out = g->l->names[grouped[a] ? b : a].name;
            if (grouped[a] != grouped[b])
                return ckpt__fail(g->l->err, CKPT_E_MISMATCH, g->l->m->src,
                                  "'%.*s' and '%.*s' become one parameter, and the optimizer has the first of them "
                                  "alone",
                                  (int)in.size, in.data, (int)out.size, out.data);
        }
    return CKPT_OK;
}

static ckpt_status group_all(grouping *g, bool *grouped)
{
    const ckpt__layout_match *match = g->l->match;
    ckpt__canon *c = g->l->m->canon;
    size_t n;
    for (size_t u = 0; u < match->count; u++)
        for (size_t i = 0; i < match->uses[u].input_count; i++) {
            const ckpt_str name = g->l->names[match->uses[u].inputs[i]].name;
            if (g->l->names[match->uses[u].inputs[i]].part == CKPT__PART_WEIGHTS)
                continue;
            if (ckpt__hash_put(g->uses, name.data, name.size, u, NULL) < 0)
                return ckpt__migration_no_memory(g->l->err);
        }
    for (size_t k = 0; k < c->group_count; k++)
        for (size_t i = 0; i < c->groups[k].param_count; i++)
            if (ckpt__hash_get(g->l->by_name, c->groups[k].params[i].data, c->groups[k].params[i].size, &n))
                grouped[n] = true;
    ckpt_status status = check_whole(g, grouped);
    for (size_t k = 0; status == CKPT_OK && k < c->group_count; k++)
        status = rename_group(g, k);
    /* names of parameters beside the list itself are those of the source */
    for (size_t i = 0; i < c->count; i++)
        if (!c->entries[i].is_tensor && ckpt__str_begins(c->entries[i].name, "optimizer.groups.") &&
            (ckpt__str_ends(c->entries[i].name, ".param_names") ||
             ckpt__str_holds(c->entries[i].name, ".param_names.")))
            c->entries[i].value = NULL;
    return status;
}

ckpt_status ckpt__laying_groups(ckpt__laying *l)
{
    grouping g = {.l = l,
                  .uses = ckpt__hash_new(l->name_count),
                  .group = calloc(l->match->count + 1, sizeof *g.group),
                  .first = calloc(l->match->count + 1, sizeof *g.first)};
    bool *grouped = calloc(l->name_count + 1, sizeof *grouped);
    ckpt_status status =
        g.uses && g.group && g.first && grouped ? group_all(&g, grouped) : ckpt__migration_no_memory(l->err);
    ckpt__hash_free(g.uses);
    free(g.group);
    free(g.first);
    free(grouped);
    return status;
}
