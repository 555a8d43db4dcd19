/* anatomy/canon_optimizer.c - an optimizer's dict as slots, one a parameter, in the order of its groups. */
#include "anatomy/canon_work.h"

#include <stdlib.h>

void ckpt__optimizer_free(ckpt__optimizer *optimizer)
{
    free(optimizer->slots);
    free(optimizer->groups);
    free(optimizer->old);
    free(optimizer->listed);
    memset(optimizer, 0, sizeof *optimizer);
    optimizer->node = optimizer->state = SIZE_MAX;
}

bool ckpt__key_has_param_shape(ckpt_str key)
{
    /* torch.optim's per-element state; bitsandbytes' state1 and state2 keep the shape also when quantized. */
    static const char *const keys[] = {
        "exp_avg",      "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "sum",
        "square_avg",   "grad_avg",   "acc_delta",      "exp_inf",         "ax",
        "prev",         "step_size",  "master",         "master_weights",  "master_param",
        "exp_avg_diff", "state1",     "state2",         "variance"};
    key = ckpt__str_last(key);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ckpt__str_is(key, keys[i]))
            return true;
    return false;
}

bool ckpt__is_stacked(ckpt_str key, const ckpt_tensor_info *has, const ckpt_tensor_info *param)
{
    return ckpt__str_is(ckpt__str_last(key), "state1") && has->ndim == param->ndim + 1 && has->shape[0] == 2 &&
           ckpt__same_shape(has->shape + 1, has->ndim - 1, param->shape, param->ndim);
}

/* A tensor of the slot's state that has its parameter's shape. */
static size_t find_shaped(const ckpt__builder *b, size_t state)
{
    const ckpt__tree *t = &b->tree;
    ckpt_str first = {NULL, 0};
    size_t found = SIZE_MAX;
    for (size_t i = state + 1; i < t->nodes[state].end; i++) {
        const ckpt_value *v = t->nodes[i].value;
        ckpt_str key = ckpt__tree_relative(t, state, i);
        if (v->kind != CKPT_V_TENSOR || v->tensor >= b->index->tensor_count || !ckpt__key_has_param_shape(key))
            continue;
        const ckpt_tensor_info *info = &b->index->tensors[v->tensor].info;
        if (found == SIZE_MAX || ckpt__is_stacked(first, &b->index->tensors[found].info, info)) {
            first = key;
            found = v->tensor;
        }
        if (!ckpt__str_is(ckpt__str_last(first), "state1"))
            break;
    }
    return found;
}

/* A second moment that is factored: one tensor over the rows, and one over the columns. */
static void find_factored(const ckpt__builder *b, ckpt__slot *slot)
{
    static const char *const rows[] = {"exp_avg_sq_row", "row_var"}, *const columns[] = {"exp_avg_sq_col", "col_var"};
    const ckpt__tree *t = &b->tree;
    for (size_t k = 0; k < 2; k++) {
        size_t row = ckpt__tree_child(t, slot->state, rows[k]), column = ckpt__tree_child(t, slot->state, columns[k]);
        if (row == SIZE_MAX || column == SIZE_MAX || t->nodes[row].value->kind != CKPT_V_TENSOR ||
            t->nodes[column].value->kind != CKPT_V_TENSOR)
            continue;
        size_t r = t->nodes[row].value->tensor, c = t->nodes[column].value->tensor;
        if (r >= b->index->tensor_count || c >= b->index->tensor_count || b->index->tensors[r].info.ndim == 0 ||
            b->index->tensors[r].info.ndim != b->index->tensors[c].info.ndim)
            continue;
        slot->rows = r;
        slot->columns = c;
        slot->row_kept = k == 1;
        return;
    }
}

static bool has_tensors(const ckpt__builder *b, size_t state)
{
    const ckpt__tree *t = &b->tree;
    for (size_t i = state + 1; i < t->nodes[state].end; i++)
        if (t->nodes[i].value->kind == CKPT_V_TENSOR && !ckpt__str_is(t->nodes[i].key, "step"))
            return true;
    return false;
}

bool ckpt__slot_has_shape(const ckpt__slot *slot)
{
    return slot->shaped != SIZE_MAX || slot->rows != SIZE_MAX;
}

/* HF's rows lack the last dimension and its columns the last but one; torch's have 1 there. */
static bool fits_factored(const ckpt__builder *b, const ckpt__slot *slot, const ckpt_tensor_info *param)
{
    const ckpt_tensor_info *r = &b->index->tensors[slot->rows].info, *c = &b->index->tensors[slot->columns].info;
    uint32_t n = r->ndim + (slot->row_kept ? 0 : 1);
    if (param->ndim != n || c->shape[c->ndim - 1] != param->shape[n - 1])
        return false;
    for (uint32_t d = 0; d + 1 < n; d++)
        if (r->shape[d] != param->shape[d])
            return false;
    return true;
}

bool ckpt__slot_fits(const ckpt__builder *b, const ckpt__slot *slot, const ckpt_tensor_info *param)
{
    if (slot->matrix && param->ndim != 2)
        return false;
    if (slot->shaped == SIZE_MAX)
        return slot->rows == SIZE_MAX || fits_factored(b, slot, param);
    const ckpt_tensor_info *has = &b->index->tensors[slot->shaped].info;
    return ckpt__same_shape(has->shape, has->ndim, param->shape, param->ndim);
}

static void read_decay(const ckpt__tree *t, ckpt__opt_group *group)
{
    size_t node = group->hypers == SIZE_MAX ? SIZE_MAX : ckpt__tree_child(t, group->hypers, "weight_decay");
    if (node == SIZE_MAX)
        return;
    const ckpt_value *v = t->nodes[node].value;
    group->has_decay = v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT;
    group->decay = v->kind == CKPT_V_FLOAT ? v->real : v->kind == CKPT_V_INT ? (double)v->integer : 0;
}

/* An id as text: "17" for 17. */
static ckpt_status slot_id(ckpt__builder *b, const ckpt__node *param, ckpt_str *out)
{
    *out = param->value->text;
    if (param->value->kind == CKPT_V_INT) {
        ckpt__buf digits = {0};
        ckpt__buf_printf(&digits, "%lld", (long long)param->value->integer);
        *out = digits.failed ? (ckpt_str){NULL, 0} : ckpt__arena_str(b->canon->arena, digits.data, digits.size);
        ckpt__buf_free(&digits);
    }
    return out->data ? CKPT_OK : ckpt__canon_no_memory(b);
}

ckpt_status ckpt__canon_add_slot(ckpt__builder *b, ckpt__optimizer *o, size_t param, ckpt__hash *states,
                                 ckpt__hash *ids)
{
    const ckpt__node *node = &b->tree.nodes[param];
    size_t number = o->slot_count;
    if (!ckpt__grow(&o->slots, &o->slot_capacity, o->slot_count + 1, sizeof *o->slots) ||
        !ckpt__grow(&o->listed, &o->listed_capacity, o->listed_count + 1, sizeof *o->listed))
        return ckpt__canon_no_memory(b);
    ckpt__slot *slot = &o->slots[number];
    *slot = (ckpt__slot){
        .state = SIZE_MAX, .shaped = SIZE_MAX, .rows = SIZE_MAX, .columns = SIZE_MAX, .group = o->group_count};
    ckpt_status s = slot_id(b, node, &slot->id);
    if (s != CKPT_OK)
        return s;
    o->text_ids = o->text_ids && node->value->kind == CKPT_V_STR;
    int put = ckpt__hash_put(ids, slot->id.data, slot->id.size, number, &number);
    if (put < 0)
        return ckpt__canon_no_memory(b);
    if (put == 0 && !o->libtorch) {
        char shown[80];
        ckpt__escape(shown, sizeof shown, slot->id.data, slot->id.size);
        return ckpt__fail(b->err, CKPT_E_MISMATCH, b->tree.nodes[o->node].name.data,
                          "the optimizer's groups list parameter %s twice; a sound optimizer holds each once", shown);
    }
    o->listed[o->listed_count++] = number;
    if (put == 0)
        return CKPT_OK;
    o->slot_count++;
    if (ckpt__hash_get(states, slot->id.data, slot->id.size, &slot->state)) {
        slot->shaped = find_shaped(b, slot->state);
        slot->has_tensors = has_tensors(b, slot->state);
        if (slot->shaped == SIZE_MAX)
            find_factored(b, slot);
    }
    return CKPT_OK;
}

static ckpt_status read_group(ckpt__builder *b, ckpt__optimizer *o, size_t node, ckpt__hash *states, ckpt__hash *ids)
{
    const ckpt__tree *t = &b->tree;
    if (!ckpt__grow(&o->groups, &o->group_capacity, o->group_count + 1, sizeof *o->groups))
        return ckpt__canon_no_memory(b);
    ckpt__opt_group *group = &o->groups[o->group_count];
    *group = (ckpt__opt_group){
        .node = node, .hypers = node, .first = o->slot_count, .names = ckpt__tree_child(t, node, "param_names")};
    size_t params = ckpt__tree_child(t, node, "params");
    for
        CKPT__CHILDREN(t, p, params)
        {
            ckpt_status s = ckpt__canon_add_slot(b, o, p, states, ids);
            if (s != CKPT_OK)
                return s;
        }
    group->count = o->slot_count - group->first;
    bool muon =
        ckpt__tree_child(t, node, "ns_steps") != SIZE_MAX && ckpt__tree_child(t, node, "ns_coefficients") != SIZE_MAX;
    for (size_t i = group->first; i < o->slot_count; i++)
        o->slots[i].matrix = muon;
    o->group_count++;
    return CKPT_OK;
}

static ckpt_status put_state(ckpt__builder *b, size_t state, size_t node, ckpt__hash *states)
{
    ckpt_str id = b->tree.nodes[node].key;
    int put = ckpt__hash_put(states, id.data, id.size, node, NULL);
    if (put < 0)
        return ckpt__canon_no_memory(b);
    if (put > 0)
        return CKPT_OK;
    char shown[80];
    return ckpt__fail(b->err, CKPT_E_MISMATCH, b->tree.nodes[state].name.data,
                      "the optimizer has two states for parameter %s; no program writes that",
                      ckpt__escape(shown, sizeof shown, id.data, id.size));
}

ckpt_status ckpt__canon_read_optimizer(ckpt__builder *b, size_t node, ckpt__optimizer *out)
{
    const ckpt__tree *t = &b->tree;
    memset(out, 0, sizeof *out);
    out->node = node;
    out->state = ckpt__tree_child(t, node, "state");
    out->text_ids = true;
    out->libtorch = ckpt__canon_is_libtorch(b, node);
    ckpt__hash *states = ckpt__hash_new(0), *ids = ckpt__hash_new(0);
    ckpt_status s = states && ids ? CKPT_OK : ckpt__canon_no_memory(b);
    if (s == CKPT_OK && out->state != SIZE_MAX)
        for
            CKPT__CHILDREN(t, c, out->state)
    if (s == CKPT_OK)
        s = put_state(b, out->state, c, states);
    if (s == CKPT_OK && out->libtorch) {
        s = ckpt__canon_read_groups(b, out, states, ids);
    } else if (s == CKPT_OK) {
        size_t groups = ckpt__tree_child(t, node, "param_groups");
        for
            CKPT__CHILDREN(t, g, groups)
        if (s == CKPT_OK)
            s = read_group(b, out, g, states, ids);
    }
    for (size_t g = 0; g < out->group_count; g++)
        read_decay(t, &out->groups[g]);
    out->text_ids = out->text_ids && out->slot_count > 0 && !out->libtorch;
    ckpt__hash_free(states);
    ckpt__hash_free(ids);
    return s;
}
