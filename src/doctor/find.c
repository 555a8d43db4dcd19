/* doctor/find.c - the optimizers of a checkpoint as groups, parameters and their state. torch matches by position,
 * so nothing here needs names; they say which parameter is meant where they are known. */
#include "doctor/facts.h"

#include <stdlib.h>

static ckpt_status no_memory(ckpt__examination *p)
{
    return ckpt__fail_memory(p->err, "the optimizer's state", p->slot_count);
}

static bool add_item(ckpt__examination *p, ckpt_str key, size_t tensor, const ckpt_value *value, bool nested)
{
    if (!ckpt__grow(&p->items, &p->item_capacity, p->item_count + 1, sizeof *p->items))
        return false;
    p->items[p->item_count++] = (ckpt__doctor_item){key, tensor, value, nested};
    return true;
}

static ckpt__doctor_slot *add_slot(ckpt__examination *p)
{
    if (!ckpt__grow(&p->slots, &p->slot_capacity, p->slot_count + 1, sizeof *p->slots))
        return NULL;
    p->slots[p->slot_count] = (ckpt__doctor_slot){p->group_count - 1, SIZE_MAX, p->item_count, 0};
    p->optimizers[p->optimizer_count - 1].slot_count++;
    return &p->slots[p->slot_count++];
}

static ckpt__doctor_group *add_group(ckpt__examination *p)
{
    if (!ckpt__grow(&p->groups, &p->group_capacity, p->group_count + 1, sizeof *p->groups))
        return NULL;
    ckpt__doctor_group *g = &p->groups[p->group_count++];
    memset(g, 0, sizeof *g);
    g->optimizer = p->optimizer_count - 1;
    g->first = p->slot_count;
    p->optimizers[g->optimizer].group_count++;
    return g;
}

static void set_flags(ckpt__doctor_group *g, ckpt__flags flags)
{
    g->fused = flags.fused;
    g->capturable = flags.capturable;
    g->foreach = flags.foreach;
}

static ckpt__doctor_optimizer *add_optimizer(ckpt__examination *p)
{
    if (!ckpt__grow(&p->optimizers, &p->optimizer_capacity, p->optimizer_count + 1, sizeof *p->optimizers))
        return NULL;
    p->optimizers[p->optimizer_count] =
        (ckpt__doctor_optimizer){.first_group = p->group_count, .first_slot = p->slot_count};
    return &p->optimizers[p->optimizer_count++];
}

/* ---- torch's dicts */

static bool take_state(ckpt__examination *p, ckpt__doctor_slot *slot, const ckpt_value *state)
{
    size_t number = (size_t)(slot - p->slots);
    for (size_t i = 0; i < state->entry_count; i++) {
        const ckpt_value *key = state->entries[i].key, *v = state->entries[i].value;
        if (key->kind != CKPT_V_STR)
            continue;
        if (!add_item(p, key->text, v->kind == CKPT_V_TENSOR ? v->tensor : SIZE_MAX, v, false))
            return false;
        for (size_t k = 0; v->kind == CKPT_V_DICT && k < v->entry_count; k++) {
            const ckpt_value *inner = v->entries[k].value;
            if (inner->kind == CKPT_V_TENSOR && v->entries[k].key->kind == CKPT_V_STR &&
                !add_item(p, v->entries[k].key->text, inner->tensor, inner, true))
                return false;
        }
    }
    slot = &p->slots[number];
    slot->count = p->item_count - slot->first;
    return true;
}

/* An id as messages show it. data NULL: no memory. */
static ckpt_str id_text(ckpt__examination *p, const ckpt_value *id)
{
    ckpt__buf b = {NULL, 0, 0, false};
    if (id->kind == CKPT_V_STR && p->loader->loader == CKPT_LOADER_CKPT)
        ckpt__buf_add(&b, id->text.data, id->text.size);
    else
        ckpt__value_repr(&b, id);
    ckpt_str text = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(p->arena, b.data ? b.data : "", b.size);
    ckpt__buf_free(&b);
    return text;
}

static bool take_group(ckpt__examination *p, const ckpt__anatomy_optimizer *from, const ckpt__anatomy_group *group)
{
    const ckpt__node *nodes = p->anatomy->tree.nodes;
    ckpt__doctor_group *g = add_group(p);
    if (!g)
        return false;
    g->dict = nodes[group->node].value;
    set_flags(g, group->flags);
    g->count = group->count;
    for (size_t i = group->first; i < group->first + group->count; i++) {
        ckpt__doctor_slot *slot = add_slot(p);
        const ckpt_value *state = from->slots[i].state != SIZE_MAX ? nodes[from->slots[i].state].value : NULL;
        if (!slot || (state && state->kind == CKPT_V_DICT && !take_state(p, slot, state)))
            return false;
    }
    return true;
}

static bool take_id(unsigned char *seen, size_t n, const ckpt_value *id, bool once)
{
    if (id->kind != CKPT_V_INT || id->integer < 0 || (uint64_t)id->integer >= n || (once && seen[id->integer]))
        return false;
    seen[id->integer] = 1;
    return true;
}

/* torch numbers parameters 0, 1, 2, ... over the groups. Do the ids of the groups and those of the state that is in none make up
 * that row? Then the groups have lost theirs. */
static bool ids_lost(const ckpt_value *state, const ckpt_value *groups, uint64_t dead)
{
    size_t n = 0, found = 0;
    for (size_t i = 0; i < groups->item_count; i++)
        n += ckpt_value_get(groups->items[i], "params")->item_count;
    n += (size_t)dead; /* of the state's entries: no more than a file holds */
    unsigned char *seen = calloc(n + 1, 1);
    bool whole = seen != NULL;
    for (size_t i = 0; whole && i < groups->item_count; i++) {
        const ckpt_value *params = ckpt_value_get(groups->items[i], "params");
        for (size_t k = 0; whole && k < params->item_count; k++)
            whole = take_id(seen, n, params->items[k], true);
    }
    for (size_t i = 0; whole && i < state->entry_count; i++)
        whole = take_id(seen, n, state->entries[i].key, false);
    for (size_t i = 0; whole && i < n; i++)
        found += seen[i];
    free(seen);
    return whole && found == n;
}

/* The same of ids that are names: all are text, and with those that are in no group there are just as many as there are
 * parameters in the file. */
static bool names_lost(const ckpt__examination *p, const ckpt_value *state, const ckpt_value *groups, uint64_t dead)
{
    uint64_t ids = dead, params = 0;
    for (size_t i = 0; i < groups->item_count; i++) {
        const ckpt_value *of = ckpt_value_get(groups->items[i], "params");
        ids += of->item_count;
        for (size_t k = 0; k < of->item_count; k++)
            if (of->items[k]->kind != CKPT_V_STR)
                return false;
    }
    for (size_t i = 0; i < state->entry_count; i++)
        if (state->entries[i].key->kind != CKPT_V_STR)
            return false;
    for (size_t i = 0; i < p->index->tensor_count; i++)
        params += p->index->tensors[i].info.role == CKPT_ROLE_PARAM;
    return ids == params;
}

static bool take_groups(ckpt__examination *p, const ckpt__anatomy_optimizer *from, const ckpt_value *dict,
                        ckpt_str name)
{
    const ckpt_value *state = ckpt_value_get(dict, "state"), *groups = ckpt_value_get(dict, "param_groups");
    ckpt__doctor_optimizer *o = add_optimizer(p);
    if (!o)
        return false;
    o->dict = dict;
    o->name = ckpt__arena_str(p->arena, name.data ? name.data : "", name.size);
    o->alive = from->alive;
    o->dead = from->dead;
    o->repeats = from->repeats;
    if (from->twice != SIZE_MAX)
        o->twice = id_text(p, p->anatomy->tree.nodes[from->twice].value);
    if (o->dead && (ids_lost(state, groups, o->dead) || names_lost(p, state, groups, o->dead)))
        o->lost = o->dead;
    bool ok = o->name.data && (from->twice == SIZE_MAX || o->twice.data);
    for (size_t g = 0; ok && g < from->group_count; g++)
        ok = take_group(p, from, &from->groups[g]);
    return ok;
}

ckpt_status ckpt__doctor_take_optimizer(ckpt__examination *p, const ckpt__organ *organ, ckpt_str name)
{
    ckpt__anatomy_optimizer from;
    bool as_text = p->loader->loader == CKPT_LOADER_CKPT; /* ckpt_restore goes by the ids' text */
    ckpt_status status = ckpt__anatomy_read_optimizer(p->anatomy, organ->node, as_text, &from, p->err);
    if (status == CKPT_OK && !take_groups(p, &from, ckpt__organ_value(p->anatomy, organ), name))
        status = no_memory(p);
    ckpt__anatomy_free_optimizer(&from);
    return status;
}

/* torch's load_state_dict takes a group's list of parameters whatever is in it, and fails without one. */
ckpt_status ckpt__doctor_find_dicts(ckpt__examination *p)
{
    const unsigned whole = CKPT__SOME_GROUPS | CKPT__LISTS_PARAMS;
    ckpt__hash *known = ckpt__hash_new(0); /* by address: a dict at several places is one */
    ckpt_status status = known ? CKPT_OK : no_memory(p);
    size_t at = 0;
    for (const ckpt__organ *o;
         status == CKPT_OK && (o = ckpt__anatomy_next(p->anatomy, CKPT__OPTIMIZER, &at)) != NULL;) {
        const ckpt__node *node = &p->anatomy->tree.nodes[o->node];
        if (o->form != CKPT__TORCH_DICT || (o->evidence & whole) != whole || node->inside)
            continue;
        int put = ckpt__hash_put(known, (const char *)&node->value, sizeof node->value, o->node, NULL);
        status = put < 0 ? no_memory(p) : put > 0 ? ckpt__doctor_take_optimizer(p, o, node->name) : CKPT_OK;
    }
    ckpt__hash_free(known);
    return status;
}

/* ---- by canonical names: our own format, and archives of libtorch */

static bool is_state(const ckpt__canon_entry *e)
{
    return e->param.data && e->state_key.data && !e->outside;
}

/* The state of all parameters, in the order of the slots. */
static bool take_named_state(ckpt__examination *p, const ckpt__hash *slots)
{
    size_t at;
    for (size_t i = 0; i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (is_state(e) && ckpt__hash_get(slots, e->param.data, e->param.size, &at))
            p->slots[at].count++;
    }
    size_t total = 0;
    for (size_t i = 0; i < p->slot_count; i++) {
        p->slots[i].first = total;
        total += p->slots[i].count;
        p->slots[i].count = 0;
    }
    if (!ckpt__grow(&p->items, &p->item_capacity, total + 1, sizeof *p->items))
        return false;
    p->item_count = total;
    for (size_t i = 0; i < p->canon->count; i++) {
        const ckpt__canon_entry *e = &p->canon->entries[i];
        if (!is_state(e) || !ckpt__hash_get(slots, e->param.data, e->param.size, &at))
            continue;
        p->items[p->slots[at].first + p->slots[at].count++] =
            (ckpt__doctor_item){e->state_key, e->is_tensor ? e->tensor : SIZE_MAX, e->value, false};
    }
    return true;
}

ckpt_status ckpt__doctor_find_named(ckpt__examination *p)
{
    size_t n = 0;
    if (!p->canon || p->canon->group_count == 0 || p->optimizer_count > 0)
        return CKPT_OK;
    for (size_t g = 0; g < p->canon->group_count; g++)
        n += p->canon->groups[g].param_count;
    ckpt__hash *slots = ckpt__hash_new(n);
    ckpt__doctor_optimizer *o = add_optimizer(p);
    bool ok = slots && o;
    if (ok)
        o->name = p->canon->optimizer_path.data ? p->canon->optimizer_path : ckpt__s("optimizer");
    for (size_t g = 0; ok && g < p->canon->group_count; g++) {
        const ckpt__canon_group *from = &p->canon->groups[g];
        ckpt__doctor_group *to = add_group(p);
        if (!to) {
            ok = false;
            break;
        }
        to->canon = from;
        set_flags(to, from->flags);
        to->count = from->param_count;
        for (size_t i = 0; ok && i < from->param_count; i++) {
            ok = add_slot(p) &&
                 (!from->params[i].data ||
                  ckpt__hash_put(slots, from->params[i].data, from->params[i].size, p->slot_count - 1, NULL) >= 0);
        }
    }
    ok = ok && take_named_state(p, slots);
    ckpt__hash_free(slots);
    return ok ? CKPT_OK : no_memory(p);
}

/* ---- which parameter a slot is */

static size_t tensor_named(const ckpt__examination *p, ckpt_str name)
{
    size_t e;
    if (!name.data || !ckpt__hash_get(p->canon->by_name, name.data, name.size, &e) || !p->canon->entries[e].is_tensor)
        return SIZE_MAX;
    return p->canon->entries[e].tensor;
}

void ckpt__doctor_link(ckpt__examination *p)
{
    if (!p->canon)
        return;
    for (size_t o = 0; o < p->optimizer_count; o++) {
        bool same =
            !p->optimizers[o].dict || *p->flat || ckpt__str_equal(p->canon->optimizer_path, p->optimizers[o].name) ||
            (p->canon->optimizer_path.data && p->canon->optimizer_path.size == 0 && p->optimizers[o].name.size == 0);
        for (size_t g = 0; g < p->optimizers[o].group_count; g++) {
            ckpt__doctor_group *group = &p->groups[p->optimizers[o].first_group + g];
            const ckpt__canon_group *named = same && g < p->canon->group_count ? &p->canon->groups[g] : NULL;
            for (size_t i = 0; named && i < group->count && i < named->param_count; i++)
                p->slots[group->first + i].param = tensor_named(p, named->params[i]);
        }
    }
}

bool ckpt__doctor_named(const ckpt__examination *p)
{
    bool known = p->canon != NULL;
    for (size_t i = 0; i < p->slot_count && known; i++)
        known = p->slots[i].param != SIZE_MAX;
    return known;
}
