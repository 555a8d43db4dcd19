/* anatomy/anatomy_optimizer.c - the groups of one optimizer, the parameters that they list, and whose state is where. */
#include "anatomy/anatomy.h"

#include <stdio.h>
#include <stdlib.h>

/* The work on one optimizer. */
typedef struct reading {
    const ckpt__tree *tree; /* borrowed */
    bool as_text;
    ckpt__anatomy_optimizer *out; /* borrowed */
    ckpt__hash *ids;              /* owned: id -> number of its state, or of its slot (take_slot) */
    ckpt__arena *texts;           /* owned: ids that the tree does not have as text */
    size_t *nodes, *owners; /* heap, owned: of each state its node, and the slot that has it (SIZE_MAX: none yet) */
    size_t states;          /* how many */
} reading;

/* An id as text, the same for ids that are equal to Python; as_text: "1" for 1 and '1' both. id NULL: `key` is all that is known of
 * it. It may be borrowed, or lie in `digits`. data NULL: no memory. */
static ckpt_str id_text(const reading *r, const ckpt_value *id, ckpt_str key, char digits[24])
{
    if (r->as_text && id && id->kind == CKPT_V_STR)
        return id->text;
    if (r->as_text && id && id->kind == CKPT_V_INT)
        return (ckpt_str){digits, (size_t)snprintf(digits, 24, "%lld", (long long)id->integer)};
    ckpt__buf b = {0};
    if (!r->as_text)
        ckpt__buf_char(&b, id && id->kind == CKPT_V_STR ? 's' : 'i');
    if (!id)
        ckpt__buf_add(&b, key.data, key.size);
    else
        ckpt__value_repr(&b, id);
    ckpt_str text = b.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(r->texts, b.data ? b.data : "", b.size);
    ckpt__buf_free(&b);
    return text;
}

/* 1: the id is new and has this number now; 0: it has one, which is in *was; -1: no memory. */
static int put_id(reading *r, ckpt_str id, const char *digits, size_t number, size_t *was)
{
    if (ckpt__hash_get(r->ids, id.data, id.size, was))
        return 0;
    if (id.data == digits)
        id = ckpt__arena_str(r->texts, id.data, id.size);
    return id.data ? ckpt__hash_put(r->ids, id.data, id.size, number, NULL) : -1;
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
    size_t entry = 0, most = t->nodes[node].end - node, was;
    r->ids = ckpt__hash_new(0);
    r->texts = ckpt__arena_new(0);
    r->nodes = calloc(most, sizeof *r->nodes);
    r->owners = calloc(most, sizeof *r->owners);
    if (!r->ids || !r->texts || !r->nodes || !r->owners)
        return false;
    for
        CKPT__CHILDREN(t, c, node)
        {
            char digits[24];
            ckpt_str id = id_text(r, key_of(t->nodes[node].value, t->nodes[c].value, &entry), t->nodes[c].key, digits);
            int put = id.data ? put_id(r, id, digits, r->states, &was) : -1;
            if (put < 0)
                return false;
            if (put == 0 && r->out->second == SIZE_MAX)
                r->out->second = c;
            r->nodes[r->states] = c;
            r->owners[r->states++] = SIZE_MAX;
        }
    r->out->dead = r->states;
    return true;
}

/* load_state_dict maps ids to parameters in a dict: of an id that stands twice the last parameter gets the state. */
static void give_state(reading *r, size_t slot, size_t state)
{
    ckpt__anatomy_optimizer *o = r->out;
    if (r->owners[state] != SIZE_MAX) {
        o->slots[slot].first = o->slots[r->owners[state]].first;
        o->slots[r->owners[state]].state = SIZE_MAX;
        o->twice = o->repeats++ == 0 ? o->slots[slot].id : o->twice;
    } else {
        o->alive++;
        o->dead--;
    }
    r->owners[state] = slot;
    o->slots[slot].state = r->nodes[state];
}

/* In the table a state has the numbers below `states`, and a parameter without one those from there on. */
static bool take_slot(reading *r, size_t param)
{
    const ckpt__node *n = &r->tree->nodes[param];
    ckpt__anatomy_optimizer *o = r->out;
    char digits[24];
    ckpt_str id = id_text(r, n->value, n->key, digits);
    size_t number = o->slot_count, was = 0;
    if (!id.data || !ckpt__grow(&o->slots, &o->slot_capacity, o->slot_count + 1, sizeof *o->slots))
        return false;
    o->slots[o->slot_count++] = (ckpt__anatomy_slot){o->group_count - 1, param, SIZE_MAX, number};
    int put = put_id(r, id, digits, r->states + number, &was);
    if (put == 0 && was < r->states)
        give_state(r, number, was);
    else if (put == 0)
        o->slots[number].first = was - r->states;
    return put >= 0;
}

static bool take_group(reading *r, size_t node)
{
    const ckpt__tree *t = r->tree;
    ckpt__anatomy_optimizer *o = r->out;
    size_t params = ckpt__tree_child(t, node, "params");
    if (!ckpt__grow(&o->groups, &o->group_capacity, o->group_count + 1, sizeof *o->groups))
        return false;
    ckpt__anatomy_group *group = &o->groups[o->group_count++];
    *group = (ckpt__anatomy_group){node, o->slot_count, 0, ckpt__flags_of(t->nodes[node].value)};
    if (params == SIZE_MAX)
        return true;
    for
        CKPT__CHILDREN(t, p, params)
    if (!take_slot(r, p))
        return false;
    group->count = o->slot_count - group->first;
    return true;
}

ckpt_status ckpt__anatomy_read_optimizer(const ckpt__anatomy *a, size_t node, bool as_text,
                                         ckpt__anatomy_optimizer *out, ckpt_error *err)
{
    const ckpt__tree *t = &a->tree;
    reading r = {.tree = t, .as_text = as_text, .out = out};
    memset(out, 0, sizeof *out);
    out->twice = out->second = SIZE_MAX;
    size_t state = ckpt__tree_child(t, node, "state"), groups = ckpt__tree_child(t, node, "param_groups");
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
