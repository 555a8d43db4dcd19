/* format/dcp/tree.c - the paths of a state dict -> its value tree. The planner (default_planner.py, _nested_dict.py of
 * torch.distributed.checkpoint) flattens dicts, and lists that hold tensors or dicts; a list's step is its item's number. */
#include "format/dcp/dcp.h"
#include "format/torch/torch.h"
#include "model/value_path.h"
#include "model/visits.h"

#include <stdlib.h>

/* A place of the tree: parents stand before their children. */
typedef struct place {
    ckpt_key key;               /* under which its parent has it */
    uint32_t first, last, next; /* children, in order, and the next one of its parent; 0: none */
    uint32_t count;             /* children */
    uint32_t parent;
    const ckpt_value *value; /* of a leaf; of another one when it is made */
} place;

typedef struct tree {
    ckpt__dcp *d;
    place *places; /* heap, owned; [0] is the root */
    size_t count, capacity;
    ckpt__hash *by_key; /* owned: parent and key -> number */
    ckpt__arena *arena; /* owned: keys of it */
    ckpt__buf key;
} tree;

static ckpt_status add_place(tree *t, uint32_t parent, const ckpt_key *key, uint32_t *number, bool *is_new,
                             ckpt_error *err)
{
    size_t found;
    t->key.size = 0;
    ckpt__buf_add(&t->key, &parent, sizeof parent);
    ckpt__buf_char(&t->key, key->text.data ? 's' : 'i');
    if (key->text.data)
        ckpt__buf_add(&t->key, key->text.data, key->text.size);
    else
        ckpt__buf_add(&t->key, &key->number, sizeof key->number);
    *is_new = !t->key.failed && !ckpt__hash_get(t->by_key, t->key.data, t->key.size, &found);
    if (!*is_new && !t->key.failed) {
        *number = (uint32_t)found;
        return CKPT_OK;
    }
    char *copy = t->key.failed ? NULL : ckpt__arena_copy(t->arena, t->key.data, t->key.size);
    if (!copy || t->count >= UINT32_MAX ||
        !ckpt__arena_grow(t->arena, &t->places, &t->capacity, t->count + 1, sizeof *t->places) ||
        ckpt__hash_put(t->by_key, copy, t->key.size, t->count, NULL) < 0)
        return ckpt__dcp_no_memory(t->d, err);
    *number = (uint32_t)t->count;
    t->places[t->count++] = (place){.key = *key, .parent = parent};
    place *p = &t->places[parent];
    if (p->last)
        t->places[p->last].next = *number;
    else
        p->first = *number;
    p->last = *number;
    p->count++;
    return CKPT_OK;
}

static bool is_tensor(const ckpt_value *v)
{
    return v && v->kind == CKPT_V_TENSOR;
}

/* One that has a value has no children, and the other way round. planned: torch 2.3 and before have a dict or list without tensors in one
 * record, and a checkpoint that serves those too has it beside the records of its values, which are taken. */
static ckpt_status put_at(tree *t, const ckpt_key *keys, size_t count, const ckpt_value *value, bool planned, bool *put,
                          ckpt_error *err)
{
    uint32_t at = 0;
    bool is_new = true;
    ckpt_status status = CKPT_OK;
    *put = false;
    for (size_t i = 0; status == CKPT_OK && i < count; i++) {
        if (t->places[at].value && (!planned || is_tensor(t->places[at].value)))
            return CKPT_OK;
        t->places[at].value = NULL;
        status = add_place(t, at, &keys[i], &at, &is_new, err);
    }
    if (status == CKPT_OK && is_new) {
        t->places[at].value = value;
        *put = true;
    }
    *put = *put || (status == CKPT_OK && planned && t->places[at].first && !is_tensor(value));
    return status;
}

static ckpt_status put_item(tree *t, const ckpt__dcp_item *item, ckpt_error *err)
{
    const ckpt_key own = {.text = item->name};
    bool put = false;
    char shown[200];
    ckpt_status status = CKPT_OK;
    if (item->keys)
        status = put_at(t, item->keys, item->key_count, item->value, item->key_count > 0, &put, err);
    if (status == CKPT_OK && !put)
        status = put_at(t, &own, 1, item->value, false, &put, err);
    if (status == CKPT_OK && !put)
        status = ckpt__fail(err, CKPT_E_FORMAT, NULL, "the list has two items at the path of '%s'",
                            ckpt__escape(shown, sizeof shown, item->name.data, item->name.size));
    return status;
}

/* ---- values */

static bool is_list(const tree *t, const place *p)
{
    uint64_t sum = 0;
    if (p->count == 0)
        return false;
    for (uint32_t c = p->first; c; c = t->places[c].next) {
        const ckpt_key *key = &t->places[c].key;
        if (key->text.data || key->number < 0 || key->number >= p->count)
            return false;
        sum += (uint64_t)key->number;
    }
    return sum == (uint64_t)p->count * (p->count - 1) / 2; /* the keys of one parent are different */
}

static const ckpt_value *make_list(tree *t, const place *p)
{
    ckpt__arena *a = t->d->index->arena;
    const ckpt_value **items = ckpt__arena_array(a, p->count, sizeof *items);
    for (uint32_t c = p->first; items && c; c = t->places[c].next)
        items[t->places[c].key.number] = t->places[c].value;
    ckpt_value *v = items ? ckpt__value_new(a, CKPT_V_LIST) : NULL;
    if (v) {
        v->items = items;
        v->item_count = p->count;
    }
    return v;
}

/* The ids of an optimizer's parameters are ints in its groups, and the planner writes an int key of a dict as a str: "0" is 0 again
 * where the groups have ids that are ints. */
static bool has_number_ids(const tree *t, const place *state)
{
    const place *optimizer = &t->places[state->parent];
    const ckpt_value *groups = NULL;
    bool any = false;
    if (state == optimizer || !ckpt__str_is(state->key.text, "state"))
        return false;
    for (uint32_t c = optimizer->first; c; c = t->places[c].next)
        if (ckpt__str_is(t->places[c].key.text, "param_groups"))
            groups = t->places[c].value; /* made before, or NULL where it stands before the state */
    for (size_t g = 0; groups && groups->kind == CKPT_V_LIST && g < groups->item_count; g++) {
        const ckpt_value *params = ckpt_value_get(groups->items[g], "params");
        for (size_t i = 0; params && params->kind == CKPT_V_LIST && i < params->item_count; i++, any = true)
            if (params->items[i]->kind != CKPT_V_INT)
                return false;
    }
    return any;
}

static ckpt_value *make_key(tree *t, const ckpt_key *key, bool numbers)
{
    ckpt__arena *a = t->d->index->arena;
    int64_t number;
    char text[24];
    if (!key->text.data)
        return ckpt__value_int(a, key->number);
    if (numbers && key->text.size < sizeof text && ckpt__parse_i64(key->text.data, key->text.size, &number) &&
        number >= 0 && (key->text.size == 1 || key->text.data[0] != '0'))
        return ckpt__value_int(a, number);
    return ckpt__value_str(a, key->text.data, key->text.size);
}

/* An optimizer that keeps nothing of its parameters (SGD without momentum): the planner has no key for a dict without items. */
static bool lacks_state(const tree *t, const place *p)
{
    const ckpt_value *groups = NULL;
    for (uint32_t c = p->first; c; c = t->places[c].next)
        if (ckpt__str_is(t->places[c].key.text, "state"))
            return false;
        else if (ckpt__str_is(t->places[c].key.text, "param_groups"))
            groups = t->places[c].value;
    if (!groups || groups->kind != CKPT_V_LIST)
        return false;
    for (size_t g = 0; g < groups->item_count; g++) {
        const ckpt_value *params = ckpt_value_get(groups->items[g], "params");
        if (!params || params->kind != CKPT_V_LIST)
            return false;
    }
    return groups->item_count > 0;
}

static bool add_empty_state(ckpt__arena *a, ckpt_entry *entry)
{
    entry->key = ckpt__value_str(a, "state", 5);
    entry->value = ckpt__value_new(a, CKPT_V_DICT);
    return entry->key && entry->value;
}

static const ckpt_value *make_dict(tree *t, const place *p)
{
    ckpt__arena *a = t->d->index->arena;
    ckpt_entry *entries = ckpt__arena_array(a, (size_t)p->count + 1, sizeof *entries);
    bool numbers = has_number_ids(t, p);
    size_t n = 0;
    if (entries && lacks_state(t, p) && !add_empty_state(a, &entries[n++]))
        return NULL;
    for (uint32_t c = p->first; entries && c; c = t->places[c].next, n++) {
        entries[n].key = make_key(t, &t->places[c].key, numbers);
        entries[n].value = t->places[c].value;
        if (!entries[n].key)
            return NULL;
    }
    ckpt_value *v = entries ? ckpt__value_new(a, CKPT_V_DICT) : NULL;
    if (v) {
        v->entries = entries;
        v->entry_count = n;
    }
    return v;
}

/* Children stand behind their parents, so they are made first. The states of optimizers wait for the groups beside them. */
static ckpt_status make_values(tree *t, ckpt_error *err)
{
    for (int states = 0; states < 2; states++)
        for (size_t i = t->count; i-- > 0;) {
            place *p = &t->places[i];
            bool state = i && ckpt__str_is(p->key.text, "state");
            bool waits = !states && state;
            for (uint32_t c = p->first; !waits && c; c = t->places[c].next)
                waits = !t->places[c].value;
            if (p->value || waits)
                continue;
            p->value = is_list(t, p) ? make_list(t, p) : make_dict(t, p);
            if (!p->value)
                return ckpt__dcp_no_memory(t->d, err);
        }
    return CKPT_OK;
}

ckpt_status ckpt__dcp_tree(ckpt__dcp *d, ckpt_error *err)
{
    tree t = {.d = d,
              .by_key = ckpt__hash_new(d->item_count),
              .arena = ckpt__arena_new(ckpt__known_limit(d->list_bytes, false))};
    ckpt_status status = t.by_key && t.arena && ckpt__grow(&t.places, &t.capacity, 1, sizeof *t.places)
                             ? CKPT_OK
                             : ckpt__dcp_no_memory(d, err);
    if (status == CKPT_OK)
        t.places[t.count++] = (place){.parent = 0};
    for (size_t i = 0; status == CKPT_OK && i < d->item_count; i++)
        if (d->items[i].value)
            status = put_item(&t, &d->items[i], err);
    if (status == CKPT_OK)
        status = make_values(&t, err);
    if (status == CKPT_OK)
        d->index->root = t.places[0].value;
    ckpt__hash_free(t.by_key);
    ckpt__arena_free(t.arena);
    ckpt__buf_free(&t.key);
    free(t.places);
    return status;
}

/* ---- what each tensor is */

typedef struct walker {
    ckpt__dcp *d;
    ckpt__torch torch;             /* for the roles alone */
    const ckpt_value **containers; /* heap: the values on the way */
    size_t capacity;
    uint64_t names_left;
    ckpt_error *err;
} walker;

/* The tensors of the list have their keys as names; those in objects are named by where they stand. */
static bool set_path(walker *w, const ckpt_visit *visit, ckpt_tensor_info *info)
{
    ckpt__arena *a = w->d->index->arena;
    if (!info->name.data || visit->value->tensor >= w->d->index->tensor_count || info->path.keys || !info->name.size)
        return ckpt__visit_row(a, visit, info);
    info->inside = visit->inside;
    return ckpt__visit_path(a, visit, &info->path);
}

/* What is inside of a wrapper is named below it: its rows stand behind the tensor's. */
static bool name_parts(ckpt__index *x, size_t tensor, ckpt_str was)
{
    const ckpt_str is = x->tensors[tensor].info.name;
    ckpt__buf text = {0};
    size_t open = x->tensors[tensor].info.extra ? x->tensors[tensor].info.extra->part_count : 0;
    bool ok = true;
    for (size_t i = tensor + 1; ok && open > 0 && i < x->tensor_count; i++) {
        ckpt_tensor_info *part = &x->tensors[i].info;
        open += (part->extra ? part->extra->part_count : 0) - (size_t)1;
        if (!was.size || !ckpt__str_begins_with(part->name, was) || ckpt__str_equal(was, is))
            continue;
        text.size = 0;
        ckpt__buf_add(&text, is.data, is.size);
        ckpt__buf_add(&text, part->name.data + was.size, part->name.size - was.size);
        ckpt_str name = text.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(x->arena, text.data, text.size);
        ok = name.data != NULL;
        part->name = ok ? name : part->name;
    }
    ckpt__buf_free(&text);
    return ok;
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    walker *w = ctx;
    ckpt__index *x = w->d->index;
    size_t depth = visit->path.count;
    if (visit->name.size > w->names_left)
        return ckpt__value_names_over("the state dict", w->err);
    w->names_left -= visit->name.size;
    if (!ckpt__grow(&w->containers, &w->capacity, depth + 1, sizeof *w->containers))
        return ckpt__dcp_no_memory(w->d, w->err);
    w->containers[depth] = visit->value;
    if (visit->value->kind != CKPT_V_TENSOR || visit->value->tensor >= x->tensor_count)
        return CKPT_OK;
    ckpt_tensor_info *info = &x->tensors[visit->value->tensor].info;
    const ckpt__torch_spec spec = {.dtype = info->dtype};
    const ckpt_str was = info->name;
    if (!set_path(w, visit, info) || !name_parts(x, visit->value->tensor, was) ||
        !ckpt__torch_set_role(&w->torch, &spec, w->containers, info))
        return ckpt__dcp_no_memory(w->d, w->err);
    return CKPT_OK;
}

ckpt_status ckpt__dcp_roles(ckpt__dcp *d, ckpt_error *err)
{
    walker w = {.d = d, .names_left = ckpt__names_limit(d->list_bytes), .err = err};
    w.torch = (ckpt__torch){.index = d->index, .arena = d->index->arena};
    w.torch.pickle.end = d->list_bytes;
    ckpt_status status =
        (ckpt_status)ckpt_value_walk(d->index->root, ckpt__visits_limit(d->list_bytes), on_visit, &w, err);
    ckpt__torch_roles_free(&w.torch);
    free(w.containers);
    return status;
}
