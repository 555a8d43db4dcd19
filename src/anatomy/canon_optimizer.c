/* anatomy/canon_optimizer.c - an optimizer's dict as slots, one a parameter, in the order of its groups. */
#include "anatomy/canon_work.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/torch/libtorch.h"

void ckpt__optimizer_free(ckpt__optimizer *optimizer)
{
    free(optimizer->slots);
    free(optimizer->groups);
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
    size_t node = ckpt__tree_child(t, group->node, "weight_decay");
    if (node == SIZE_MAX)
        return;
    const ckpt_value *v = t->nodes[node].value;
    group->has_decay = v->kind == CKPT_V_FLOAT || v->kind == CKPT_V_INT;
    group->decay = v->kind == CKPT_V_FLOAT ? v->real : v->kind == CKPT_V_INT ? (double)v->integer : 0;
}

/* An id as text: "17" for 17. */
static ckpt_status slot_id(ckpt__builder *b, const ckpt_value *id, ckpt_str *out)
{
    *out = id->text;
    if (id->kind == CKPT_V_INT) {
        char digits[24];
        int n = snprintf(digits, sizeof digits, "%lld", (long long)id->integer);
        *out = ckpt__arena_str(b->canon->arena, digits, n > 0 ? (size_t)n : 0);
    }
    return out->data ? CKPT_OK : ckpt__canon_no_memory(b);
}

/* An id that is listed again is the slot that it was: of libtorch, whose parameters() has one that is registered under two names
 * twice. */
static ckpt_status take_slot(ckpt__builder *b, ckpt__optimizer *o, const ckpt__anatomy_slot *from)
{
    const ckpt__anatomy_slot *is = &from[o->listed_count];
    const ckpt_value *id = b->tree.nodes[is->id].value;
    bool again = is->first != o->listed_count;
    size_t number = again ? o->listed[is->first] : o->slot_count++;
    ckpt__slot *slot = &o->slots[number];
    o->listed[o->listed_count++] = number;
    if (!again)
        *slot = (ckpt__slot){
            .state = SIZE_MAX, .shaped = SIZE_MAX, .rows = SIZE_MAX, .columns = SIZE_MAX, .group = o->group_count};
    slot->state = is->state != SIZE_MAX ? is->state : slot->state;
    if (again && !o->libtorch) {
        char shown[80];
        ckpt__escape(shown, sizeof shown, slot->id.data, slot->id.size);
        return ckpt__fail(b->err, CKPT_E_MISMATCH, b->tree.nodes[o->node].name.data,
                          "the optimizer's groups list parameter %s twice; a sound optimizer holds each once", shown);
    }
    o->text_ids = o->text_ids && id->kind == CKPT_V_STR;
    return again ? CKPT_OK : slot_id(b, id, &slot->id);
}

static ckpt_status take_group(ckpt__builder *b, ckpt__optimizer *o, const ckpt__anatomy_optimizer *from)
{
    const ckpt__tree *t = &b->tree;
    const ckpt__anatomy_group *is = &from->groups[o->group_count];
    ckpt__opt_group *group = &o->groups[o->group_count];
    ckpt_status s = CKPT_OK;
    *group = (ckpt__opt_group){
        .node = is->node, .first = o->slot_count, .names = ckpt__tree_child(t, is->node, "param_names")};
    read_decay(t, group);
    for (size_t i = 0; s == CKPT_OK && i < is->count; i++)
        s = take_slot(b, o, from->slots);
    group->count = o->slot_count - group->first;
    bool muon = ckpt__tree_child(t, is->node, "ns_steps") != SIZE_MAX &&
                ckpt__tree_child(t, is->node, "ns_coefficients") != SIZE_MAX;
    for (size_t i = group->first; i < o->slot_count; i++)
        o->slots[i].matrix = muon;
    o->group_count++;
    return s;
}

static void look_into_state(const ckpt__builder *b, ckpt__slot *slot)
{
    if (slot->state == SIZE_MAX)
        return;
    slot->shaped = find_shaped(b, slot->state);
    slot->has_tensors = has_tensors(b, slot->state);
    if (slot->shaped == SIZE_MAX)
        find_factored(b, slot);
}

static ckpt_status take_all(ckpt__builder *b, ckpt__optimizer *o, const ckpt__anatomy_optimizer *from)
{
    const ckpt__tree *t = &b->tree;
    if (from->second != SIZE_MAX) {
        char shown[80];
        ckpt_str id = t->nodes[from->second].key;
        return ckpt__fail(b->err, CKPT_E_MISMATCH, t->nodes[t->nodes[from->second].parent].name.data,
                          "the optimizer has two states for parameter %s; no program writes that",
                          ckpt__escape(shown, sizeof shown, id.data, id.size));
    }
    o->dead = from->dead;
    o->groups = calloc(from->group_count + 1, sizeof *o->groups);
    o->slots = calloc(from->slot_count + 1, sizeof *o->slots);
    o->listed = calloc(from->slot_count + 1, sizeof *o->listed);
    ckpt_status s = o->groups && o->slots && o->listed ? CKPT_OK : ckpt__canon_no_memory(b);
    while (s == CKPT_OK && o->group_count < from->group_count)
        s = take_group(b, o, from);
    for (size_t i = 0; s == CKPT_OK && i < o->slot_count; i++)
        look_into_state(b, &o->slots[i]);
    o->text_ids = o->text_ids && o->slot_count > 0 && !o->libtorch;
    return s;
}

ckpt_status ckpt__canon_read_optimizer(ckpt__builder *b, size_t node, ckpt__optimizer *out)
{
    const ckpt_value *v = b->tree.nodes[node].value;
    size_t form;
    memset(out, 0, sizeof *out);
    out->node = node;
    out->state = ckpt__tree_child(&b->tree, node, "state");
    out->text_ids = true;
    out->libtorch = ckpt__pointers_get(&b->anatomy->made, v, &form) && form == CKPT__LIBTORCH;
    if (ckpt__is_cpp_optimizer(v)) /* one with a hole, which is said */
        return ckpt__libtorch_ordinary(v, b->canon->arena, NULL, b->tree.nodes[node].name.data, &v, b->err);
    ckpt__anatomy_optimizer from;
    ckpt_status s = ckpt__anatomy_read_optimizer(b->anatomy, node, true, &from, b->err);
    if (s == CKPT_OK)
        s = take_all(b, out, &from);
    ckpt__anatomy_free_optimizer(&from);
    return s;
}
