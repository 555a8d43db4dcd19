/* anatomy/anatomy_optimizer.c - the groups of one optimizer, the parameters that they list, and whose state is where. */
#include "anatomy/anatomy.h"

#include <stdlib.h>

/* The work on one optimizer. */
typedef struct reading {
    const ckpt__tree *tree; /* borrowed */
    bool as_text;
    ckpt__anatomy_optimizer *out; /* borrowed */
    ckpt__hash *ids;              /* owned: id -> number of the state; keys in `texts` */
    ckpt__arena *texts;           /* owned */
    size_t *nodes, *owners; /* heap, owned: of each state its node, and the slot that has it (SIZE_MAX: none yet) */
} reading;

/* An id as text, the same for ids that are equal to Python; as_text: "1" for 1 and '1' both. data NULL: no memory. */
static ckpt_str id_text(const reading *r, const ckpt_value *id, ckpt_str key)
{
    ckpt__buf b = {0};
    ckpt__buf_char(&b, id && id->kind == CKPT_V_STR && !r->as_text ? 's' : 'i');
    if (!id || (id->kind == CKPT_V_STR && r->as_text))
        ckpt__buf_add(&b, id ? id->text.data : key.data, id ? id->text.size : key.size);
    else
        ckpt__value_repr(&b, id);
    ckpt_str text = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(r->texts, b.data, b.size);
    ckpt__buf_free(&b);
    return text;
}

/* The key of a child of the states, which is an entry behind those of the children before it. NULL: an attribute of an object. */
static const ckpt_value *key_of(const ckpt_value *states, const ckpt_value *child, size_t *entry)
{
    while (*entry < states->entry_count && states->entries[*entry].value != child)
        ++*entry;
    return *entry < states->entry_count ? states->entries[(*entry)++].key : NULL;
}

/* Of two states with one id the first counts. */
static bool take_states(reading *r, size_t node)
{
    const ckpt__tree *t = r->tree;
    size_t n = 0, entry = 0, most = t->nodes[node].end - node;
    r->ids = ckpt__hash_new(0);
    r->texts = ckpt__arena_new(0);
    r->nodes = calloc(most, sizeof *r->nodes);
    r->owners = calloc(most, sizeof *r->owners);
    if (!r->ids || !r->texts || !r->nodes || !r->owners)
        return false;
    for
        CKPT__CHILDREN(t, c, node)
        {
            ckpt_str id = id_text(r, key_of(t->nodes[node].value, t->nodes[c].value, &entry), t->nodes[c].key);
            if (!id.data || ckpt__hash_put(r->ids, id.data, id.size, n, NULL) < 0)
                return false;
            r->nodes[n] = c;
            r->owners[n++] = SIZE_MAX;
        }
    r->out->dead = n;
    return true;
}

/* load_state_dict maps ids to parameters in a dict: of an id that stands twice the last parameter gets the state. */
static void give_state(reading *r, size_t slot, size_t state)
{
    ckpt__anatomy_optimizer *o = r->out;
    if (r->owners[state] != SIZE_MAX) {
        o->slots[r->owners[state]].state = SIZE_MAX;
        o->twice = o->repeats++ == 0 ? o->slots[slot].id : o->twice;
    } else {
        o->alive++;
        o->dead--;
    }
    r->owners[state] = slot;
    o->slots[slot].state = r->nodes[state];
}

static bool take_group(reading *r, size_t node)
{
    const ckpt__tree *t = r->tree;
    ckpt__anatomy_optimizer *o = r->out;
    size_t params = ckpt__tree_child(t, node, "params"), state;
    if (!ckpt__grow(&o->groups, &o->group_capacity, o->group_count + 1, sizeof *o->groups))
        return false;
    ckpt__anatomy_group *group = &o->groups[o->group_count++];
    *group = (ckpt__anatomy_group){node, o->slot_count, 0, ckpt__flags_of(t->nodes[node].value)};
    if (params == SIZE_MAX)
        return true;
    for
        CKPT__CHILDREN(t, p, params)
        {
            ckpt_str id = id_text(r, t->nodes[p].value, t->nodes[p].key);
            if (!id.data || !ckpt__grow(&o->slots, &o->slot_capacity, o->slot_count + 1, sizeof *o->slots))
                return false;
            o->slots[o->slot_count++] = (ckpt__anatomy_slot){o->group_count - 1, p, SIZE_MAX};
            if (ckpt__hash_get(r->ids, id.data, id.size, &state))
                give_state(r, o->slot_count - 1, state);
        }
    group->count = o->slot_count - group->first;
    return true;
}

ckpt_status ckpt__anatomy_read_optimizer(const ckpt__anatomy *a, const ckpt__organ *organ, bool as_text,
                                         ckpt__anatomy_optimizer *out, ckpt_error *err)
{
    const ckpt__tree *t = &a->tree;
    reading r = {.tree = t, .as_text = as_text, .out = out};
    memset(out, 0, sizeof *out);
    out->twice = SIZE_MAX;
    size_t state = ckpt__tree_child(t, organ->node, "state"), groups = ckpt__tree_child(t, organ->node, "param_groups");
    bool ok = state == SIZE_MAX || groups == SIZE_MAX || take_states(&r, state);
    if (ok && state != SIZE_MAX && groups != SIZE_MAX)
        for
            CKPT__CHILDREN(t, g, groups)
    ok = ok && take_group(&r, g);
    ckpt__hash_free(r.ids);
    ckpt__arena_free(r.texts);
    free(r.nodes);
    free(r.owners);
    return ok ? CKPT_OK : ckpt__fail_memory(err, "the optimizer's state", out->slot_count);
}

void ckpt__anatomy_free_optimizer(ckpt__anatomy_optimizer *o)
{
    free(o->groups);
    free(o->slots);
    memset(o, 0, sizeof *o);
}
