/* anatomy/canon_entry.c - the entries of a torch file, and the checks over all entries. */
#include "anatomy/canon_work.h"

#include <stdio.h>

/* ---- entries of a torch file */

static ckpt_str join(ckpt__builder *b, const char *head, ckpt_str middle, ckpt_str tail)
{
    ckpt__buf name = {0};
    ckpt__buf_str(&name, head);
    ckpt__buf_add(&name, middle.data ? middle.data : "", middle.size);
    if (tail.data) {
        ckpt__buf_char(&name, '.');
        ckpt__buf_add(&name, tail.data, tail.size);
    }
    ckpt_str out = {NULL, 0};
    if (!name.failed)
        out = ckpt__arena_str(b->canon->arena, name.data ? name.data : "", name.size);
    ckpt__buf_free(&name);
    return out;
}

/* One entry for a tensor or a leaf at `node`; containers and opaque objects give none. */
static ckpt_status add_node(ckpt__builder *b, size_t node, ckpt__canon_entry *like)
{
    ckpt__node *n = &b->tree.nodes[node];
    bool tensor = n->value->kind == CKPT_V_TENSOR && n->value->tensor < b->index->tensor_count;
    if (n->taken || n->attribute || (!tensor && !ckpt__node_is_leaf(n)))
        return CKPT_OK;
    if (!like->name.data)
        return ckpt__canon_no_memory(b);
    ckpt__canon_entry *e = ckpt__canon_add(b);
    if (!e)
        return ckpt__canon_no_memory(b);
    *e = *like;
    e->own = n->name;
    e->is_tensor = tensor;
    e->tensor = tensor ? n->value->tensor : 0;
    e->value = tensor ? NULL : n->value;
    n->taken = true;
    return CKPT_OK;
}

static ckpt_str group_name(ckpt__builder *b, size_t group)
{
    return group < b->canon->group_count ? b->canon->groups[group].name : (ckpt_str){NULL, 0};
}

static ckpt_status emit_model(ckpt__builder *b)
{
    for (size_t i = 0; i < b->model.count; i++) {
        const ckpt__model_entry *m = &b->model.entries[i];
        ckpt__canon_entry like = {.name = m->name, .group = group_name(b, m->group)};
        like.role = m->group != SIZE_MAX ? CKPT_ROLE_PARAM
                                         : ckpt__canon_weight_role(&b->index->tensors[m->tensor].info, m->own);
        ckpt_status s = add_node(b, m->node, &like);
        if (s != CKPT_OK)
            return s;
    }
    return CKPT_OK;
}

/* bitsandbytes nests what must not be cast, so that FSDP leaves it alone; its optimizers know no nesting. */
static ckpt_str without_nesting(ckpt_str key)
{
    static const char head[] = "__bnb_optimizer_quant_state__.";
    if (ckpt__str_begins_more(key, head))
        return (ckpt_str){key.data + strlen(head), key.size - strlen(head)};
    return key;
}

static ckpt_status emit_slot(ckpt__builder *b, const ckpt__slot *slot)
{
    const ckpt__tree *t = &b->tree;
    for (size_t i = slot->state + 1; i < t->nodes[slot->state].end; i++) {
        ckpt_str key = without_nesting(ckpt__tree_relative(t, slot->state, i));
        ckpt__canon_entry like = {
            .param = slot->name, .state_key = key, .role = ckpt__role_of_key(key), .group = group_name(b, slot->group)};
        like.name = join(b, "optimizer.", slot->name, key);
        ckpt_status s = add_node(b, i, &like);
        if (s != CKPT_OK)
            return s;
    }
    return CKPT_OK;
}

static ckpt_status emit_settings(ckpt__builder *b, size_t group)
{
    const ckpt__tree *t = &b->tree;
    size_t node = b->optimizer.groups[group].node;
    for
        CKPT__CHILDREN(t, c, node)
        {
            bool names = ckpt__str_is(t->nodes[c].key, "params") || ckpt__str_is(t->nodes[c].key, "param_names");
            for (size_t i = c; i < t->nodes[c].end; i++) {
                ckpt__canon_entry like = {.group = group_name(b, group), .role = CKPT_ROLE_OTHER};
                if (names) { /* they are said by the groups themselves */
                    b->tree.nodes[i].taken = true;
                    continue;
                }
                like.name = join(b, "optimizer.groups.", like.group, ckpt__tree_relative(t, node, i));
                ckpt_status s = add_node(b, i, &like);
                if (s != CKPT_OK)
                    return s;
            }
        }
    return CKPT_OK;
}

static ckpt_status make_groups(ckpt__builder *b)
{
    const ckpt__optimizer *o = &b->optimizer;
    ckpt__canon *c = b->canon;
    c->groups = ckpt__arena_array(c->arena, o->group_count ? o->group_count : 1, sizeof *c->groups);
    if (!c->groups)
        return ckpt__canon_no_memory(b);
    for (size_t g = 0; g < o->group_count; g++) {
        ckpt__canon_group *out = &c->groups[g];
        ckpt_str *params = ckpt__arena_array(c->arena, o->groups[g].count ? o->groups[g].count : 1, sizeof *params);
        char number[24];
        int n = snprintf(number, sizeof number, "%zu", g);
        out->name = ckpt__arena_str(c->arena, number, n > 0 ? (size_t)n : 0);
        if (!params || !out->name.data)
            return ckpt__canon_no_memory(b);
        for (size_t i = 0; i < o->groups[g].count; i++)
            params[i] = o->slots[o->groups[g].first + i].name;
        out->params = params;
        out->param_count = o->groups[g].count;
        out->flags = ckpt__flags_of(b->tree.nodes[o->groups[g].node].value);
    }
    c->group_count = o->group_count;
    return CKPT_OK;
}

/* State whose id is in no group: torch carries it along and never uses it. */
static void note_dead_state(ckpt__builder *b)
{
    const ckpt__tree *t = &b->tree;
    const ckpt__optimizer *o = &b->optimizer;
    uint64_t states = o->dead;
    for (size_t i = 0; i < o->slot_count; i++)
        states += o->slots[i].state != SIZE_MAX;
    if (o->dead)
        ckpt__canon_note(b, CKPT_SEVERITY_WARNING, "dead-state", NULL, NULL,
                         "%llu of the %llu states at '%s' belong to parameters that are in no group; they are left out",
                         (unsigned long long)o->dead, (unsigned long long)states, t->nodes[o->state].name.data);
}

static ckpt_status emit_optimizer(ckpt__builder *b)
{
    const ckpt__optimizer *o = &b->optimizer;
    ckpt_status s = CKPT_OK;
    for (size_t i = 0; i < o->slot_count && s == CKPT_OK; i++)
        if (o->slots[i].state != SIZE_MAX)
            s = emit_slot(b, &o->slots[i]);
    size_t version = o->libtorch ? ckpt__tree_child(&b->tree, o->node, "pytorch_version") : SIZE_MAX;
    if (version != SIZE_MAX)
        b->tree.nodes[version].taken = true; /* it says how the dict is laid out */
    for (size_t g = 0; g < o->group_count && s == CKPT_OK; g++)
        s = emit_settings(b, g);
    if (s == CKPT_OK)
        note_dead_state(b);
    return s;
}

static ckpt_status emit_scaler(ckpt__builder *b)
{
    ckpt_str scaler = ckpt__s("scaler");
    for (size_t i = b->scaler + 1; i < b->tree.nodes[b->scaler].end; i++) {
        ckpt__canon_entry like = {.role = CKPT_ROLE_SCALER};
        like.name = join(b, "", scaler, ckpt__tree_relative(&b->tree, b->scaler, i));
        ckpt_status s = add_node(b, i, &like);
        if (s != CKPT_OK)
            return s;
    }
    return CKPT_OK;
}

static ckpt_status emit_step(ckpt__builder *b)
{
    ckpt__canon_entry like = {.name = ckpt__s("step"), .role = CKPT_ROLE_OTHER};
    return add_node(b, b->step, &like);
}

static ckpt_status emit_rest(ckpt__builder *b)
{
    for (size_t i = 0; i < b->tree.count; i++) {
        const ckpt_value *v = b->tree.nodes[i].value;
        ckpt__canon_entry like = {.name = b->tree.nodes[i].name, .outside = true, .role = CKPT_ROLE_OTHER};
        if (v->kind == CKPT_V_TENSOR && v->tensor < b->index->tensor_count) {
            const ckpt_tensor_info *info = &b->index->tensors[v->tensor].info;
            like.role = info->role != CKPT_ROLE_NONE ? info->role : CKPT_ROLE_OTHER;
        }
        ckpt_status s = add_node(b, i, &like);
        if (s != CKPT_OK)
            return s;
    }
    return CKPT_OK;
}

ckpt_status ckpt__canon_emit_torch(ckpt__builder *b)
{
    /* A place in the tree makes one entry at most. */
    bool room = ckpt__grow(&b->canon->entries, &b->entry_capacity, b->tree.count, sizeof *b->canon->entries);
    ckpt_status s = room ? CKPT_OK : ckpt__canon_no_memory(b);
    if (s == CKPT_OK && b->optimizer.node != SIZE_MAX)
        s = make_groups(b);
    if (s == CKPT_OK && b->model.node != SIZE_MAX)
        s = emit_model(b);
    if (s == CKPT_OK && b->optimizer.node != SIZE_MAX)
        s = emit_optimizer(b);
    if (s == CKPT_OK && b->scaler != SIZE_MAX)
        s = emit_scaler(b);
    if (s == CKPT_OK && b->step != SIZE_MAX)
        s = emit_step(b);
    return s == CKPT_OK ? emit_rest(b) : s;
}

/* ---- all entries */

static void shape_text(const ckpt_tensor_info *info, char *buf, size_t size)
{
    size_t at = 0;
    int n = snprintf(buf, size, "(");
    for (uint32_t d = 0; d < info->ndim && n > 0 && (at += (size_t)n) < size; d++)
        n = snprintf(buf + at, size - at, "%s%lld", d ? ", " : "", (long long)info->shape[d]);
    if (n > 0 && (at += (size_t)n) < size)
        snprintf(buf + at, size - at, ")");
}

/* State keys that some parameter with dimensions has a tensor with dimensions under. NULL: no memory. */
static ckpt__hash *keys_with_dimensions(const ckpt__builder *b)
{
    const ckpt__canon *c = b->canon;
    ckpt__hash *keys = ckpt__hash_new(16);
    for (size_t i = 0; keys && i < c->count; i++) {
        const ckpt__canon_entry *e = &c->entries[i];
        if (e->is_tensor && e->param.data && e->state_key.data && b->index->tensors[e->tensor].info.ndim > 0 &&
            ckpt__hash_put(keys, e->state_key.data, e->state_key.size, i, NULL) < 0) {
            ckpt__hash_free(keys);
            keys = NULL;
        }
    }
    return keys;
}

/* One number for each parameter, and nowhere more, is what an optimizer keeps that is not element-wise (NovoGrad's second
 * moment), and no state of another parameter. */
static void check_shape(ckpt__builder *b, const ckpt__canon_entry *e, const ckpt__hash *with_dimensions)
{
    size_t param;
    if (!e->is_tensor || e->outside || !e->param.data || !e->state_key.data ||
        !ckpt__key_has_param_shape(e->state_key) ||
        !ckpt__hash_get(b->canon->by_name, e->param.data, e->param.size, &param) || !b->canon->entries[param].is_tensor)
        return;
    const ckpt_tensor_info *has = &b->index->tensors[e->tensor].info,
                           *want = &b->index->tensors[b->canon->entries[param].tensor].info;
    if (has->ndim == 0 && !ckpt__hash_get(with_dimensions, e->state_key.data, e->state_key.size, NULL))
        return;
    bool stacked = ckpt__is_stacked(e->state_key, has, want);
    if (stacked || ckpt__same_shape(has->shape, has->ndim, want->shape, want->ndim) ||
        (b->hints->is_bound_so && b->hints->is_bound_so(b->hints->bound_ctx, e->name, has)))
        return;
    char one[120], two[120];
    shape_text(has, one, sizeof one);
    shape_text(want, two, sizeof two);
    ckpt__canon_note(b, CKPT_SEVERITY_ERROR, "moment-shape", e->name.data,
                     "check the order of the parameters (param_names), or drop this state",
                     "'%s' has shape %s, and its parameter '%s' has %s", e->own.data, one, e->param.data, two);
}

static ckpt_status put_entry(ckpt__builder *b, size_t i)
{
    ckpt__canon *c = b->canon;
    size_t first;
    int put = ckpt__hash_put(c->by_name, c->entries[i].name.data, c->entries[i].name.size, i, &first);
    if (put < 0)
        return ckpt__canon_no_memory(b);
    if (put == 0 && !c->entries[i].outside)
        ckpt__canon_note(b, CKPT_SEVERITY_ERROR, "name-collision", c->entries[i].name.data,
                         "rename one of them (source.rename in a map file)", "'%s' and '%s' are both named '%s'",
                         c->entries[first].own.data, c->entries[i].own.data, c->entries[i].name.data);
    return CKPT_OK;
}

static ckpt_status put_entries(ckpt__builder *b, bool outside)
{
    const ckpt__canon *c = b->canon;
    ckpt_status s = CKPT_OK;
    size_t next = 0, ahead = 0;
    for (size_t i = 0; i < c->count && s == CKPT_OK; i++) {
        if (c->entries[i].outside != outside)
            continue;
        for (; next < c->count && ahead <= CKPT__HASH_AHEAD; next++)
            if (c->entries[next].outside == outside) {
                ckpt__hash_ahead(c->by_name, c->entries[next].name.data, c->entries[next].name.size);
                ahead++;
            }
        s = put_entry(b, i);
        ahead--;
    }
    return s;
}

/* The step is found by its own name in the file too ("global_step"), unless something else is called that. */
static ckpt_status put_own_step(ckpt__builder *b)
{
    ckpt__canon *c = b->canon;
    size_t step;
    if (!ckpt__hash_get(c->by_name, "step", 4, &step) || c->entries[step].outside || !c->entries[step].own.size)
        return CKPT_OK;
    ckpt_str own = c->entries[step].own;
    return ckpt__hash_put(c->by_name, own.data, own.size, step, NULL) < 0 ? ckpt__canon_no_memory(b) : CKPT_OK;
}

/* bitsandbytes keeps what it needs to read a quantized weight beside it: that belongs to the weight and moves with it. */
static void link_quantized(ckpt__canon *c, ckpt__canon_entry *e)
{
    static const struct {
        ckpt_str tail;
        const char *weight;
    } tails[] = {
        {CKPT__STR(".absmax"), ""},
        {CKPT__STR(".quant_map"), ""},
        {CKPT__STR(".nested_absmax"), ""},
        {CKPT__STR(".nested_quant_map"), ""},
        {CKPT__STR(".quant_state.bitsandbytes__nf4"), ""},
        {CKPT__STR(".quant_state.bitsandbytes__fp4"), ""},
        {CKPT__STR(".SCB"), ".weight"},
        {CKPT__STR(".weight_format"), ".weight"},
    };
    if (e->outside || !e->is_tensor || e->param.data || (e->role != CKPT_ROLE_PARAM && e->role != CKPT_ROLE_BUFFER))
        return;
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        size_t n = tails[i].tail.size, found;
        if (e->name.size == n || !ckpt__str_ends_with(e->name, tails[i].tail))
            continue;
        ckpt__buf weight = {0};
        ckpt__buf_add(&weight, e->name.data, e->name.size - n);
        ckpt__buf_str(&weight, tails[i].weight);
        if (!weight.failed && ckpt__hash_get(c->by_name, weight.data, weight.size, &found)) {
            e->param = c->entries[found].name;
            e->role = CKPT_ROLE_BUFFER;
        }
        ckpt__buf_free(&weight);
        return;
    }
}

ckpt_status ckpt__canon_finish(ckpt__builder *b)
{
    ckpt__canon *c = b->canon;
    c->by_name = ckpt__hash_new(c->count);
    if (!c->by_name)
        return ckpt__canon_no_memory(b);
    ckpt_status s = put_entries(b, false);
    if (s == CKPT_OK)
        s = put_entries(b, true); /* a canonical name hides a file's own */
    if (s == CKPT_OK)
        s = put_own_step(b);
    ckpt__hash *with_dimensions = s == CKPT_OK ? keys_with_dimensions(b) : NULL;
    if (s == CKPT_OK && !with_dimensions)
        s = ckpt__canon_no_memory(b);
    for (size_t i = 0; i < c->count && s == CKPT_OK; i++) {
        link_quantized(c, &c->entries[i]);
        check_shape(b, &c->entries[i], with_dimensions);
    }
    ckpt__hash_free(with_dimensions);
    return s;
}
