/* anatomy/kinds.c - see kinds.h. */
#include "anatomy/kinds.h"
#include "anatomy/canon_work.h"
#include "format/table.h"

/* ---- models */

/* Lightning's WeightAveraging puts the averaged weights in state_dict, and those that are trained beside it. */
static bool beside_current(const ckpt__tree *t, size_t node)
{
    return node > 0 && ckpt__str_is(t->nodes[node].key, "state_dict") &&
           ckpt__tree_child(t, t->nodes[node].parent, "current_model_state") != SIZE_MAX;
}

bool ckpt__anatomy_is_average(const ckpt__tree *tree, size_t node)
{
    return ckpt__is_average(tree->nodes[node].name) || beside_current(tree, node);
}

unsigned ckpt__model_evidence(const ckpt__anatomy *a, size_t node, bool module)
{
    unsigned bits = module ? CKPT__BY_MODULE : 0;
    if (ckpt__canon_is_model(a->index, a->tree.nodes[node].value))
        bits |= CKPT__BY_TENSORS;
    return bits && ckpt__anatomy_is_average(&a->tree, node) ? bits | CKPT__AVERAGE : bits;
}

/* ---- optimizers */

static ckpt__optimizer_form form_of(const ckpt__anatomy *a, const ckpt_value *v)
{
    size_t form;
    if (ckpt__pointers_get(&a->made, v, &form))
        return (ckpt__optimizer_form)form;
    return v->kind == CKPT_V_DICT ? CKPT__TORCH_DICT : CKPT__TORCH_OBJECT;
}

bool ckpt__find_optimizer(const ckpt__anatomy *a, const ckpt_value *v, ckpt__organ *out)
{
    *out = (ckpt__organ){.kind = CKPT__OPTIMIZER};
    if (ckpt__is_cpp_optimizer(v)) { /* with a hole: ckpt__libtorch_ordinary says which */
        out->form = CKPT__LIBTORCH;
        return true;
    }
    if (!ckpt__is_torch_optimizer(v) && !ckpt__is_optimizer_object(v))
        return false;
    const ckpt_value *groups = ckpt_value_get(v, "param_groups");
    bool listed = true;
    for (size_t i = 0; listed && i < groups->item_count; i++)
        listed = ckpt__params_of(groups->items[i]) != NULL;
    out->form = form_of(a, v);
    out->evidence = (groups->item_count ? CKPT__SOME_GROUPS : 0) | (listed ? CKPT__LISTS_PARAMS : 0) |
                    (ckpt__lists_ids(groups) ? CKPT__LISTS_IDS : 0);
    return true;
}

/* States of parameters: dicts, with a tensor in one of them. */
static bool is_state(const ckpt_value *state)
{
    bool tensors = false;
    if (state->kind != CKPT_V_DICT)
        return false;
    for (size_t i = 0; i < state->entry_count; i++) {
        const ckpt_value *of = state->entries[i].value;
        if (of->kind != CKPT_V_DICT)
            return false;
        for (size_t k = 0; k < of->entry_count; k++) {
            const ckpt_value *item = of->entries[k].value; /* bitsandbytes keeps them in a dict */
            tensors =
                tensors || item->kind == CKPT_V_TENSOR ||
                (item->kind == CKPT_V_DICT && item->entry_count > 0 && item->entries[0].value->kind == CKPT_V_TENSOR);
        }
    }
    return tensors;
}

/* {0: {'step': T0, 'exp_avg': T1}}: the state of a parameter is a dict of tensors, as a small model is. */
bool ckpt__holds_moments(const ckpt_value *state)
{
    for (size_t i = 0; state && state->kind == CKPT_V_DICT && i < state->entry_count; i++) {
        const ckpt_value *of = state->entries[i].value;
        for (size_t k = 0; of->kind == CKPT_V_DICT && k < of->entry_count; k++)
            if (of->entries[k].key->kind == CKPT_V_STR &&
                ckpt__role_of_key(of->entries[k].key->text) != CKPT_ROLE_OPTIM)
                return true;
    }
    return false;
}

/* How many of the groups have parameters; SIZE_MAX: the value is not a list of groups. */
static size_t with_params(const ckpt_value *groups)
{
    size_t n = 0;
    if (!groups || groups->kind != CKPT_V_LIST || groups->item_count == 0)
        return SIZE_MAX;
    for (size_t i = 0; i < groups->item_count; i++) {
        if (groups->items[i]->kind != CKPT_V_DICT)
            return SIZE_MAX;
        const ckpt_value *params = ckpt_value_get(groups->items[i], "params");
        n += params && params->kind == CKPT_V_LIST;
    }
    return n;
}

unsigned ckpt__broken_optimizer_evidence(const ckpt__anatomy *a, size_t node)
{
    const ckpt__node *n = &a->tree.nodes[node], *named = n->integer_key ? &a->tree.nodes[n->parent] : n;
    const ckpt_value *state = ckpt_value_get(n->value, "state"), *groups = ckpt_value_get(n->value, "param_groups");
    size_t with = with_params(groups);
    if (with != SIZE_MAX && state && state->kind == CKPT_V_DICT && with < groups->item_count)
        return CKPT__LACKS_PARAMS;
    if (with != SIZE_MAX && with > 0 && !state)
        return CKPT__LACKS_STATE;
    bool called = !named->integer_key && ckpt__str_holds_nocase(named->key, "opt");
    return !groups && state && called && is_state(state) ? CKPT__LACKS_GROUPS : 0;
}

/* ---- counters: at the root, in a file of a directory, or in the dict that a trainer keeps for them */

/* Each with the bit of its place. */
static const char *const counter_keys[] = {"step",       "global_step", "iter_num", "iteration",
                                           "train_step", "num_updates", "steps",    "global_steps",
                                           "iter",       "it",          "epoch",    "current_epoch"};

const char *const ckpt__counter_dicts[CKPT__COUNTER_DICTS] = {"trainer_state", "progress", "state", "train_state"};

static bool keeps_counters(ckpt_str key)
{
    bool keeps = false;
    for (size_t i = 0; i < CKPT__COUNTER_DICTS && !keeps; i++)
        keeps = ckpt__str_is(key, ckpt__counter_dicts[i]);
    return keeps;
}

unsigned ckpt__counter_evidence(const ckpt__anatomy *a, size_t node)
{
    const ckpt__node *n = &a->tree.nodes[node], *above = &a->tree.nodes[n->parent];
    ckpt_kind kind = n->value->kind;
    uint32_t top = ckpt__in_files(a->index) ? 2 : 1;
    bool kept = n->depth == top + 1 && keeps_counters(above->key);
    if (n->depth == 0 || n->integer_key || (n->depth > top && !kept) ||
        (kind != CKPT_V_INT && kind != CKPT_V_FLOAT && kind != CKPT_V_TENSOR && !n->value->array))
        return 0;
    for (size_t i = 0; i < sizeof counter_keys / sizeof *counter_keys; i++)
        if (ckpt__str_is(n->key, counter_keys[i]))
            return 1u << i;
    return 0;
}

/* ---- states of random generators */

static bool is_rng(const ckpt__index *index, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < index->tensor_count &&
           index->tensors[v->tensor].info.role == CKPT_ROLE_RNG;
}

/* Does the path say that it is the state of the CPU's generator? Those of CUDA's are another size. */
static bool is_called_rng(const ckpt__node *n)
{
    return (n->value->kind == CKPT_V_TENSOR || n->value->kind == CKPT_V_LIST) && !n->integer_key &&
           ckpt__str_among(n->key, "torch cpu torch_manual_seed torch_rng_state cpu_rng_state rng_state") &&
           (ckpt__str_holds_nocase(n->name, "rng") || ckpt__str_holds_nocase(n->name, "random"));
}

bool ckpt__is_rng_list(const ckpt__index *index, const ckpt_value *v, ckpt_str path)
{
    bool all = v->kind == CKPT_V_LIST && v->item_count > 0;
    bool dicts = all && (ckpt__str_holds_nocase(path, "rng") || ckpt__str_holds_nocase(path, "random"));
    for (size_t i = 0; all && i < v->item_count; i++)
        all = is_rng(index, v->items[i]) || (dicts && v->items[i]->kind == CKPT_V_DICT);
    return all;
}

bool ckpt__is_of_gpu(ckpt_str path)
{
    return ckpt__str_holds_nocase(path, "cuda") || ckpt__str_holds_nocase(path, "gpu");
}

unsigned ckpt__rng_evidence(const ckpt__anatomy *a, size_t node)
{
    const ckpt__node *n = &a->tree.nodes[node];
    unsigned bits = (is_rng(a->index, n->value) ? CKPT__RNG_TENSOR : 0) | (is_called_rng(n) ? CKPT__RNG_BY_NAME : 0) |
                    (ckpt__is_rng_list(a->index, n->value, n->name) ? CKPT__RNG_LIST : 0);
    return bits && ckpt__is_of_gpu(n->name) ? bits | CKPT__RNG_OF_GPU : bits;
}

/* ---- data */

bool ckpt__is_sampler_list(const ckpt_value *v, ckpt_str path)
{
    bool all = v->kind == CKPT_V_LIST && v->item_count > 1 && ckpt__str_holds_nocase(path, "sampler");
    for (size_t i = 0; all && i < v->item_count; i++)
        all = v->items[i]->kind == CKPT_V_DICT;
    return all;
}

unsigned ckpt__sampler_evidence(const ckpt__anatomy *a, size_t node)
{
    return ckpt__is_sampler_list(a->tree.nodes[node].value, a->tree.nodes[node].name);
}

unsigned ckpt__data_loader_evidence(const ckpt_value *dict)
{
    const ckpt_value *snapshot = ckpt_value_get(dict, "_snapshot");
    const ckpt_value *workers =
        snapshot && snapshot->kind == CKPT_V_DICT ? ckpt_value_get(snapshot, "_main_snapshot") : NULL;
    if (workers && workers->kind == CKPT_V_DICT && ckpt_value_get(workers, "_num_workers"))
        return CKPT__WITH_WORKERS;
    bool alone = ckpt_value_get(dict, "_num_yielded") && ckpt_value_get(dict, "_sampler_iter_yielded") &&
                 ckpt_value_get(dict, "fetcher_state");
    return alone ? CKPT__WITHOUT_WORKERS : 0;
}
