/* anatomy/canon_native.c - files whose names are canonical already: ours, and plain tensors under their parameters' names. */
#include "anatomy/canon_work.h"
#include "format/native/native.h"
#include "format/torch/write.h"

#include <stdio.h>
#include <stdlib.h>

/* Tensors that only carry values or shared storages of the format itself. */
static bool is_internal(ckpt_str name)
{
    return ckpt__str_begins_more(name, "ckpt.");
}

static ckpt_status add_tensor(ckpt__builder *b, size_t i, ckpt_str name, ckpt_role role)
{
    const ckpt_tensor_info *info = &b->index->tensors[i].info;
    ckpt__canon_entry *e = ckpt__canon_add(b);
    if (!e)
        return ckpt__canon_no_memory(b);
    e->name = name;
    e->own = info->name;
    e->is_tensor = true;
    e->tensor = i;
    e->role = role;
    e->param = info->param;
    e->state_key = info->state_key;
    e->group = info->group;
    return CKPT_OK;
}

/* ---- names: prefixes of wrappers and the map's renames hold for files of ours too */

/* Of one tensor: is its name one of the state's, each way to strip? Most names are the same each way, and are looked up once. */
static ckpt_status match_strips(ckpt__builder *b, ckpt_str own, ckpt__buf names[2], size_t matched[3])
{
    bool found = false;
    for (int strip = 0; strip < 3; strip++) {
        const ckpt__buf *before = &names[(strip + 1) % 2];
        ckpt__buf *name = &names[strip % 2];
        ckpt_status s = ckpt__canon_name_buf(b, own, strip, name);
        if (s != CKPT_OK)
            return s;
        bool same = strip > 0 && name->size == before->size && memcmp(name->data, before->data, name->size) == 0;
        found = same ? found : ckpt__canon_wants(b, name->data, name->size);
        matched[strip] += found;
    }
    return CKPT_OK;
}

/* Which way to strip makes most names the state's; the least stripping wins. */
static ckpt_status choose_strip(ckpt__builder *b, int *out)
{
    size_t matched[3] = {0};
    ckpt__buf names[2] = {{0}};
    ckpt_status s = CKPT_OK;
    *out = 0;
    bool all = ckpt__canon_asks(b); /* as they are: no stripping finds more */
    for (size_t i = 0; all && i < b->index->tensor_count && s == CKPT_OK; i++) {
        s = ckpt__canon_name_buf(b, b->index->tensors[i].info.name, 0, &names[0]);
        all = s == CKPT_OK && ckpt__canon_wants(b, names[0].data, names[0].size);
    }
    for (size_t i = 0; ckpt__canon_asks(b) && !all && i < b->index->tensor_count && s == CKPT_OK; i++)
        s = match_strips(b, b->index->tensors[i].info.name, names, matched);
    for (int strip = 1; strip < 3; strip++)
        if (matched[strip] > matched[*out])
            *out = strip;
    ckpt__buf_free(&names[0]);
    ckpt__buf_free(&names[1]);
    return s;
}

static void note_strip(ckpt__builder *b, int strip)
{
    if (strip)
        ckpt__canon_note(
            b, CKPT_SEVERITY_NOTE, "prefix-stripped", NULL, NULL,
            "the names of the tensors fit without the prefixes that wrappers add (module., _orig_mod., ...)%s",
            strip == 2 ? ", which stand inside names too" : "");
}

/* What stands before the parameter's name in that of what belongs to it: "optimizer.", or of an average "ema."; 0: nothing. */
static size_t head_of(const ckpt_tensor_info *info)
{
    const size_t n = sizeof "optimizer." - 1;
    ckpt_str name = info->name, param = info->param;
    if (name.size > n + param.size && memcmp(name.data, "optimizer.", n) == 0 &&
        memcmp(name.data + n, param.data, param.size) == 0)
        return n;
    size_t before = name.size > param.size ? name.size - param.size : 0;
    return info->role == CKPT_ROLE_EMA && before && name.data[before - 1] == '.' &&
                   memcmp(name.data + before, param.data, param.size) == 0
               ? before
               : 0;
}

/* "optimizer.state.exp_avg.<parameter>", as megatron-core has it: what belongs to a parameter stands before its name. */
static bool is_turned(const ckpt_tensor_info *info)
{
    return ckpt__str_begins(info->name, "optimizer.state.") && ckpt__str_ends_with(info->name, info->param);
}

/* "optimizer.<parameter>.exp_avg" of it, the parameter as it is called now. */
static ckpt_str turn(ckpt__builder *b, const ckpt_tensor_info *info, ckpt_str param)
{
    ckpt_str before = ckpt__arena_join(b->canon->arena, ckpt__s("optimizer."), param, ckpt__s("."));
    return before.data ? ckpt__arena_join(b->canon->arena, before, info->state_key, (ckpt_str){NULL, 0}) : before;
}

/* A tensor of a native file under its canonical name: a parameter's own, or what belongs to one, renamed with it. */
static ckpt_status add_native(ckpt__builder *b, size_t i, int strip)
{
    const ckpt_tensor_info *info = &b->index->tensors[i].info;
    ckpt_str name = info->name, param = info->param;
    bool belongs = param.data != NULL;
    if (!belongs && info->role != CKPT_ROLE_PARAM && info->role != CKPT_ROLE_BUFFER)
        return add_tensor(b, i, name, info->role);
    ckpt_status s = ckpt__canon_param_name(b, belongs ? param : name, strip, belongs ? &param : &name);
    size_t head = s == CKPT_OK && belongs ? head_of(info) : 0;
    if (head) {
        ckpt_str before = {name.data, head},
                 tail = {name.data + head + info->param.size, name.size - head - info->param.size};
        if (info->role == CKPT_ROLE_MASTER && ckpt__str_is(tail, ".fp32")) /* of DeepSpeed, Megatron and llm.c */
            tail = ckpt__s(".master");
        name = ckpt__arena_join(b->canon->arena, before, param, tail);
        if (!name.data)
            s = ckpt__canon_no_memory(b);
    } else if (s == CKPT_OK && belongs && is_turned(info)) {
        name = turn(b, info, param);
        if (!name.data)
            s = ckpt__canon_no_memory(b);
    }
    if (s == CKPT_OK)
        s = add_tensor(b, i, name, info->role);
    if (s == CKPT_OK && belongs)
        b->canon->entries[b->canon->count - 1].param = param;
    return s;
}

/* ---- parameter groups of a native file: optimizer.groups.<g>.params is a list of names */

static const char groups_head[] = "optimizer.groups.";
enum { HEAD = sizeof groups_head - 1, TAIL = 7 }; /* ".params" */

static bool is_params_list(const ckpt__tree *t, size_t i)
{
    const ckpt__node *n = &t->nodes[i];
    if (n->value->kind != CKPT_V_LIST || n->name.size <= HEAD + TAIL || !ckpt__str_begins(n->name, groups_head) ||
        !ckpt__str_ends(n->name, ".params"))
        return false;
    for (size_t k = 0; k < n->value->item_count; k++)
        if (n->value->items[k]->kind != CKPT_V_STR)
            return false;
    return true;
}

static ckpt_status add_group(ckpt__builder *b, size_t node, int strip)
{
    ckpt__canon *c = b->canon;
    const ckpt__node *n = &b->tree.nodes[node];
    ckpt__canon_group *g = &c->groups[c->group_count];
    size_t count = n->value->item_count;
    ckpt_str *params = ckpt__arena_array(c->arena, count ? count : 1, sizeof *params);
    g->name = ckpt__arena_str(c->arena, n->name.data + HEAD, n->name.size - HEAD - TAIL);
    if (!params || !g->name.data)
        return ckpt__canon_no_memory(b);
    for (size_t i = 0; i < count; i++) {
        ckpt_status s = ckpt__canon_param_name(b, n->value->items[i]->text, strip, &params[i]);
        if (s != CKPT_OK)
            return s;
    }
    g->params = params;
    g->param_count = count;
    g->flags = (ckpt__flags){-1, -1, -1};
    c->group_count++;
    for (size_t i = node; i < n->end; i++)
        b->tree.nodes[i].taken = true;
    return CKPT_OK;
}

static ckpt_status find_groups(ckpt__builder *b, int strip)
{
    size_t count = 0;
    for (size_t i = 0; i < b->tree.count; i++)
        count += is_params_list(&b->tree, i);
    b->canon->groups = ckpt__arena_array(b->canon->arena, count ? count : 1, sizeof *b->canon->groups);
    if (!b->canon->groups)
        return ckpt__canon_no_memory(b);
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < b->tree.count && s == CKPT_OK; i++)
        if (is_params_list(&b->tree, i))
            s = add_group(b, i, strip);
    return s;
}

/* The group of a name "optimizer.groups.<g>.<key>"; a group's name may hold dots, so the longest one counts. */
static ckpt__canon_group *group_of(const ckpt__builder *b, ckpt_str name, ckpt_str *key)
{
    ckpt__canon_group *best = NULL;
    if (name.size <= HEAD || memcmp(name.data, groups_head, HEAD) != 0)
        return NULL;
    for (size_t g = 0; g < b->canon->group_count; g++) {
        ckpt__canon_group *group = &b->canon->groups[g];
        size_t end = HEAD + group->name.size;
        if (name.size <= end + 1 || name.data[end] != '.' ||
            memcmp(name.data + HEAD, group->name.data, group->name.size) != 0 ||
            (best && best->name.size >= group->name.size))
            continue;
        best = group;
        *key = (ckpt_str){name.data + end + 1, name.size - end - 1};
    }
    return best;
}

static void note_flag(ckpt__canon_group *group, ckpt_str key, const ckpt_value *v)
{
    int flag = ckpt__flag_value(v);
    if (ckpt__str_is(key, "fused"))
        group->flags.fused = flag;
    else if (ckpt__str_is(key, "capturable"))
        group->flags.capturable = flag;
    else if (ckpt__str_is(key, "foreach"))
        group->flags.foreach = flag;
}

/* ---- the value tree of a native file */

static ckpt_status add_leaf(ckpt__builder *b, size_t i)
{
    const ckpt__node *n = &b->tree.nodes[i];
    if (n->taken || n->attribute || !ckpt__node_is_leaf(n))
        return CKPT_OK;
    ckpt__canon_entry *e = ckpt__canon_add(b);
    if (!e)
        return ckpt__canon_no_memory(b);
    ckpt_str key = {NULL, 0};
    ckpt__canon_group *group = group_of(b, n->name, &key);
    e->name = e->own = n->name;
    e->value = n->value;
    e->role = ckpt__str_begins_more(n->name, "scaler.") ? CKPT_ROLE_SCALER : CKPT_ROLE_OTHER;
    if (group) {
        e->group = group->name;
        note_flag(group, key, n->value);
    }
    return CKPT_OK;
}

/* Long bytes and lists of numbers lie in tensors of their own; the value tree has their name. */
static ckpt_status add_blob(ckpt__builder *b, size_t i)
{
    const ckpt__node *n = &b->tree.nodes[i];
    if (n->value->kind != CKPT_V_TENSOR || n->value->tensor >= b->index->tensor_count ||
        !is_internal(b->index->tensors[n->value->tensor].info.name))
        return CKPT_OK;
    bool rng = ckpt__str_begins(n->name, "rng");
    return add_tensor(b, n->value->tensor, n->name, rng ? CKPT_ROLE_RNG : CKPT_ROLE_OTHER);
}

/* The step stands in the header too, for files whose tree does not have it. */
static ckpt_status add_step(ckpt__builder *b)
{
    if (b->index->step < 0 || (b->tree.count && ckpt__tree_find(&b->tree, "step") != SIZE_MAX))
        return CKPT_OK;
    ckpt__canon_entry *e = ckpt__canon_add(b);
    ckpt_value *v = ckpt__value_int(b->canon->arena, b->index->step);
    if (!e || !v)
        return ckpt__canon_no_memory(b);
    e->name = e->own = ckpt__s("step");
    e->value = v;
    e->role = CKPT_ROLE_OTHER;
    e->outside = true; /* a run's own count: nobody bound it, and nobody has to */
    return CKPT_OK;
}

/* ---- what a file that came from another format holds beside model, optimizer and scaler (migrate/to_canonical.h) */

/* The things outside of model, optimizer and scaler: they keep their own names. */
typedef struct outside {
    bool *nodes, *tensors; /* heap: one a node of the tree, one a tensor of the index */
} outside;

static bool is_listed(const ckpt__node *list, ckpt_str key)
{
    ckpt__buf text = {0};
    bool found = false;
    for (size_t i = 0; i < list->value->item_count && !found; i++) {
        const ckpt_value *item = list->value->items[i];
        ckpt_str name = item->text;
        if (item->kind != CKPT_V_STR) {
            text.size = 0;
            ckpt__value_repr(&text, item);
            name = (ckpt_str){text.data, text.size};
        }
        found = ckpt__str_equal(name, key);
    }
    ckpt__buf_free(&text);
    return found;
}

static ckpt_status find_outside(ckpt__builder *b, outside *o)
{
    ckpt__tree *t = &b->tree;
    size_t list = t->count ? ckpt__tree_child(t, 0, CKPT__OUTSIDE_KEY) : SIZE_MAX;
    o->nodes = calloc(t->count + 1, sizeof *o->nodes);
    o->tensors = calloc(b->index->tensor_count + 1, sizeof *o->tensors);
    if (!o->nodes || !o->tensors)
        return ckpt__canon_no_memory(b);
    size_t kept = t->count ? ckpt__tree_child(t, 0, CKPT__TORCH_KEY) : SIZE_MAX;
    if (kept != SIZE_MAX) /* the structure that a torch file had: nobody's value */
        t->nodes[kept].taken = true;
    if (list == SIZE_MAX)
        return CKPT_OK;
    for (size_t i = list; i < t->nodes[list].end; i++)
        t->nodes[i].taken = true;
    for
        CKPT__CHILDREN(t, child, 0)
        {
            if (child == list || !is_listed(&t->nodes[list], t->nodes[child].key))
                continue;
            for (size_t i = child; i < t->nodes[child].end; i++) {
                const ckpt_value *v = t->nodes[i].value;
                o->nodes[i] = true;
                if (v->kind == CKPT_V_TENSOR && v->tensor < b->index->tensor_count)
                    o->tensors[v->tensor] = true;
            }
        }
    return CKPT_OK;
}

/* Numbered states that came from a torch file without names (see "order-unknown" of canon_find.c): nothing that a state
 * binds by a parameter's name is in them. */
static void note_unnamed(ckpt__builder *b, const outside *o)
{
    const ckpt__tree *t = &b->tree;
    for (size_t i = 0; i < t->count; i++) {
        size_t state = o->nodes[i] || i == 0 ? ckpt__tree_child(t, i, "state") : SIZE_MAX;
        const ckpt_value *v = t->nodes[i].value;
        if (state == SIZE_MAX || !o->nodes[state] || (!ckpt__is_torch_optimizer(v) && !ckpt__is_optimizer_object(v)))
            continue;
        char where[160];
        ckpt_str name = t->nodes[i].name;
        if (name.size)
            ckpt__escape(where, sizeof where, name.data, name.size);
        else
            snprintf(where, sizeof where, "the root");
        ckpt__canon_note(
            b, CKPT_SEVERITY_WARNING, "order-unknown", NULL,
            "state the parameters' names in the optimizer's order, group by group (ckpt-migrate --param-names FILE)",
            "the optimizer at '%s' came from a torch file that numbers its states, and whose they are is not "
            "known: a state in C binds none of them by a parameter's name",
            where);
    }
}

static void mark_outside(ckpt__builder *b, size_t before, bool is_outside)
{
    for (size_t i = before; i < b->canon->count; i++)
        b->canon->entries[i].outside = is_outside;
}

static ckpt_status add_all(ckpt__builder *b, const outside *o, int strip)
{
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < b->index->tensor_count && s == CKPT_OK; i++) {
        size_t before = b->canon->count;
        if (!is_internal(b->index->tensors[i].info.name))
            s = o->tensors[i] ? add_tensor(b, i, b->index->tensors[i].info.name, b->index->tensors[i].info.role)
                              : add_native(b, i, strip);
        mark_outside(b, before, o->tensors[i]);
    }
    for (size_t i = 0; i < b->tree.count && s == CKPT_OK; i++) {
        size_t before = b->canon->count;
        s = add_blob(b, i);
        if (s == CKPT_OK)
            s = add_leaf(b, i);
        mark_outside(b, before, o->nodes[i]);
    }
    return s;
}

/* ---- numbers of an optimizer's state that are values: 8-bit optimizers keep step as an int */

static bool is_state_value(const ckpt__canon_entry *e)
{
    return !e->is_tensor && !e->outside && ckpt__str_begins_more(e->name, "optimizer.") &&
           !ckpt__str_begins(e->name, groups_head);
}

/* "optimizer.<param>.<key>" belongs to its parameter, under the name that this has here. params: own names -> entries. */
static ckpt_status take_state_value(ckpt__builder *b, ckpt__canon_entry *e, const ckpt__hash *params)
{
    const size_t head = sizeof "optimizer." - 1;
    size_t end = e->own.size, param = SIZE_MAX;
    while (end > head && param == SIZE_MAX) {
        const char *dot = memrchr(e->own.data + head, '.', end - head);
        end = dot ? (size_t)(dot - e->own.data) : head;
        ckpt__hash_get(params, e->own.data + head, end - head, &param);
    }
    if (param == SIZE_MAX)
        return CKPT_OK;
    const ckpt__canon_entry *p = &b->canon->entries[param];
    ckpt__buf name = {0};
    ckpt__buf_str(&name, "optimizer.");
    ckpt__buf_add(&name, p->name.data, p->name.size);
    ckpt__buf_add(&name, e->own.data + end, e->own.size - end);
    e->name = name.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(b->canon->arena, name.data, name.size);
    ckpt__buf_free(&name);
    e->param = p->name;
    e->group = p->group;
    e->state_key = (ckpt_str){e->own.data + end + 1, e->own.size - end - 1};
    e->role = ckpt__role_of_key(e->state_key);
    return e->name.data ? CKPT_OK : ckpt__canon_no_memory(b);
}

static ckpt_status take_state_values(ckpt__builder *b)
{
    ckpt__canon *c = b->canon;
    size_t first = 0;
    while (first < c->count && !is_state_value(&c->entries[first]))
        first++;
    if (first == c->count)
        return CKPT_OK;
    ckpt__hash *params = ckpt__hash_new(c->count);
    ckpt_status s = params ? CKPT_OK : ckpt__canon_no_memory(b);
    for (size_t i = 0; i < c->count && s == CKPT_OK; i++)
        if (c->entries[i].is_tensor && c->entries[i].role == CKPT_ROLE_PARAM &&
            ckpt__hash_put(params, c->entries[i].own.data, c->entries[i].own.size, i, NULL) < 0)
            s = ckpt__canon_no_memory(b);
    for (size_t i = first; i < c->count && s == CKPT_OK; i++)
        if (is_state_value(&c->entries[i]))
            s = take_state_value(b, &c->entries[i], params);
    ckpt__hash_free(params);
    return s;
}

ckpt_status ckpt__canon_native(ckpt__builder *b)
{
    outside o = {NULL, NULL};
    int strip = 0;
    ckpt_status s = find_outside(b, &o);
    if (s == CKPT_OK)
        s = choose_strip(b, &strip);
    if (s == CKPT_OK)
        s = find_groups(b, strip);
    if (s == CKPT_OK)
        s = add_all(b, &o, strip);
    if (s == CKPT_OK)
        s = take_state_values(b);
    if (s == CKPT_OK)
        note_strip(b, strip);
    if (s == CKPT_OK)
        note_unnamed(b, &o);
    free(o.nodes);
    free(o.tensors);
    return s == CKPT_OK ? add_step(b) : s;
}

/* ---- plain tensors: safetensors and the like */

ckpt_status ckpt__canon_plain(ckpt__builder *b)
{
    int strip;
    ckpt_status s = choose_strip(b, &strip);
    for (size_t i = 0; i < b->index->tensor_count && s == CKPT_OK; i++) {
        const ckpt_tensor_info *info = &b->index->tensors[i].info;
        ckpt_role role = info->role;
        ckpt_str name;
        s = ckpt__canon_param_name(b, info->name, strip, &name);
        if (s != CKPT_OK)
            return s;
        if (role == CKPT_ROLE_NONE)
            role = ckpt__canon_weight_role(info, name);
        s = add_tensor(b, i, name, role);
    }
    if (s == CKPT_OK)
        note_strip(b, strip);
    for (size_t i = 0; i < b->tree.count && s == CKPT_OK; i++) {
        if (!ckpt__node_is_leaf(&b->tree.nodes[i]))
            continue;
        ckpt__canon_entry *e = ckpt__canon_add(b);
        if (!e)
            return ckpt__canon_no_memory(b);
        e->name = e->own = b->tree.nodes[i].name;
        e->value = b->tree.nodes[i].value;
        e->role = CKPT_ROLE_OTHER;
        e->outside = true;
    }
    return s;
}
