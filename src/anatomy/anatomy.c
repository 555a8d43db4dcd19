/* anatomy/anatomy.c - one look at each place of the value tree: which organ of a training state is it, and by which
 * evidence? */
#include "anatomy/anatomy.h"

#include <stdlib.h>
#include "anatomy/canon_work.h"
#include "format/table.h"
#include "format/torch/libtorch.h"

/* Keys that count, each with the bit of its place. */
static const char *const counter_keys[] = {"step",       "global_step", "iter_num", "iteration",
                                           "train_step", "num_updates", "steps",    "global_steps",
                                           "iter",       "it",          "epoch",    "current_epoch"};

/* ---- the kinds */

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

static unsigned model_evidence(const ckpt__anatomy *a, size_t node, bool module)
{
    unsigned bits = module ? CKPT__BY_MODULE : 0;
    if (ckpt__canon_is_model(a->index, a->tree.nodes[node].value))
        bits |= CKPT__BY_TENSORS;
    return bits && ckpt__anatomy_is_average(&a->tree, node) ? bits | CKPT__AVERAGE : bits;
}

static ckpt__optimizer_form form_of(const ckpt__anatomy *a, const ckpt_value *v)
{
    size_t form;
    if (ckpt__pointers_get(&a->made, v, &form))
        return (ckpt__optimizer_form)form;
    return v->kind == CKPT_V_DICT ? CKPT__TORCH_DICT : CKPT__TORCH_OBJECT;
}

static bool is_optimizer(const ckpt__anatomy *a, const ckpt_value *v, ckpt__organ *out)
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

/* Counters lie at the root, in a file of a directory, or in the dict that a trainer keeps for them. */
static unsigned counter_evidence(const ckpt__anatomy *a, size_t node)
{
    const ckpt__node *n = &a->tree.nodes[node], *above = &a->tree.nodes[n->parent];
    ckpt_kind kind = n->value->kind;
    uint32_t top = ckpt__in_files(a->index) ? 2 : 1;
    bool kept = n->depth == top + 1 && ckpt__str_among(above->key, "trainer_state progress state train_state");
    if (n->depth == 0 || n->integer_key || (n->depth > top && !kept) ||
        (kind != CKPT_V_INT && kind != CKPT_V_FLOAT && kind != CKPT_V_TENSOR && !n->value->array))
        return 0;
    for (size_t i = 0; i < sizeof counter_keys / sizeof *counter_keys; i++)
        if (ckpt__str_is(n->key, counter_keys[i]))
            return 1u << i;
    return 0;
}

static bool is_rng(const ckpt__anatomy *a, const ckpt_value *v)
{
    return v->kind == CKPT_V_TENSOR && v->tensor < a->index->tensor_count &&
           a->index->tensors[v->tensor].info.role == CKPT_ROLE_RNG;
}

/* ---- the walk */

typedef struct walk {
    ckpt__anatomy *out;
    size_t no_models; /* the end of the optimizer, or of the module, in which no dict is a model of its own */
} walk;

static bool add(ckpt__anatomy *a, size_t node, ckpt__organ organ)
{
    if (!ckpt__grow(&a->organs, &a->capacity, a->count + 1, sizeof *a->organs))
        return false;
    organ.node = node;
    a->organs[a->count++] = organ;
    return true;
}

/* A value may be more than one: a dict of tensors called "scale", "growth_factor", ... is a model by its structure too. */
static bool look_at(walk *w, size_t node, bool module)
{
    ckpt__anatomy *a = w->out;
    const ckpt__node *n = &a->tree.nodes[node];
    ckpt__organ optimizer;
    unsigned bits;
    if (!ckpt__node_is_dict(n)) {
        if (is_rng(a, n->value))
            return add(a, node, (ckpt__organ){.kind = CKPT__RNG, .evidence = 1});
        bits = counter_evidence(a, node);
        return !bits || add(a, node, (ckpt__organ){.kind = CKPT__PROGRESS, .evidence = bits});
    }
    bool ok = true;
    if (is_optimizer(a, n->value, &optimizer)) {
        ok = add(a, node, optimizer);
        w->no_models = ckpt__organ_is_optimizer(&optimizer) && w->no_models < n->end ? n->end : w->no_models;
    }
    if (ok && node >= w->no_models && (bits = model_evidence(a, node, module)) != 0) {
        ok = add(a, node, (ckpt__organ){.kind = CKPT__MODEL, .evidence = bits});
        w->no_models = module ? n->end : w->no_models;
    }
    if (ok && (bits = ckpt__scheduler_evidence(n->value)) != 0)
        ok = add(a, node, (ckpt__organ){.kind = CKPT__SCHEDULER, .evidence = bits});
    if (ok && (bits = ckpt__scaler_evidence(n->value, n->name, n->depth)) != 0)
        ok = add(a, node, (ckpt__organ){.kind = CKPT__SCALER, .evidence = bits});
    return ok;
}

static bool look_at_all(ckpt__anatomy *a)
{
    bool ok = true;
    unsigned char *modules = ckpt__script_modules(a->index, &a->tree, &ok);
    walk w = {a, 0};
    for (size_t i = 0; ok && i < a->tree.count; i++)
        ok = look_at(&w, i, modules && modules[i]);
    free(modules);
    for (size_t i = 0; ok && i < a->count; i++)
        if (a->organs[i].kind == CKPT__OPTIMIZER && a->organs[i].form == CKPT__LIBTORCH &&
            !ckpt__is_cpp_optimizer(ckpt__organ_value(a, &a->organs[i])))
            ok = ckpt__libtorch_name(&a->tree, a->organs[i].node, a->index, a->arena);
    return ok;
}

/* Every name repeats the keys above it: one key of a megabyte over a hundred thousand values would take as many
 * megabytes. Names of real files take less than the values that they name. */
uint64_t ckpt__anatomy_names_limit(const ckpt__index *index)
{
    const uint64_t least = (uint64_t)256 << 20, used = index->arena ? ckpt__arena_used(index->arena) : 0;
    uint64_t limit = index->arena ? ckpt__arena_limit(index->arena) : 0;
    if (limit)
        return limit / 2 + ((uint64_t)4 << 20);
    return used > (UINT64_MAX - least) / 8 ? UINT64_MAX : least + used * 8;
}

static ckpt_status no_memory(const ckpt__anatomy *a, ckpt_error *err)
{
    if (ckpt__arena_over_limit(a->arena))
        return ckpt__fail(err, CKPT_E_LIMIT, "canonical names",
                          "the names of all values would take more than %llu MiB, far more than the values themselves: "
                          "very long keys that are shared by many",
                          (unsigned long long)(ckpt__arena_limit(a->arena) >> 20));
    return ckpt__fail_memory(err, "canonical names", a->index->tensor_count);
}

/* Optimizers of other shapes become torch's dicts. NULL: no memory. A tree of more places than can be looked at stays as it is:
 * ckpt__tree_build says that of it. */
static const ckpt_value *make_ordinary(ckpt__anatomy *a, const ckpt_value *root)
{
    ckpt_error ignored = CKPT_ERROR_INIT;
    ckpt_status shaped = ckpt__libtorch_all_ordinary(root, a->arena, &a->made, CKPT__LIBTORCH, &root, &ignored);
    if (shaped == CKPT_E_NO_MEMORY)
        return NULL;
    root = ckpt__flat_unfold_all(root, a->arena, &a->unfolded);
    for (const ckpt__unfolded_one *one = a->unfolded.first; root && one; one = one->next)
        if (ckpt__pointers_put(&a->made, one->optimizer, CKPT__FLAT_DICT) < 0)
            return NULL;
    return root;
}

ckpt_status ckpt__anatomy_build(const ckpt__index *index, ckpt__arena *arena, ckpt__anatomy *out, ckpt_error *err)
{
    const ckpt__format *format = ckpt__format_of(index);
    const ckpt_value *root = index->root;
    memset(out, 0, sizeof *out);
    out->index = index;
    out->arena = arena;
    bool unfolds = !format->canonical && (format->laid_out || ckpt__in_files(index));
    if (unfolds && !(root = make_ordinary(out, root)) && index->root)
        return no_memory(out, err);
    ckpt_status status = ckpt__tree_build(root, arena, &out->tree, err);
    if (status != CKPT_OK && ckpt__arena_over_limit(arena))
        status = no_memory(out, err);
    bool ok = status == CKPT_E_NO_MEMORY || look_at_all(out);
    return ok ? status : no_memory(out, err);
}

void ckpt__anatomy_free(ckpt__anatomy *a)
{
    ckpt__tree_free(&a->tree);
    ckpt__pointers_free(&a->made);
    free(a->organs);
    memset(a, 0, sizeof *a);
}

/* ---- the answers */

const ckpt__organ *ckpt__anatomy_next(const ckpt__anatomy *a, ckpt__organ_kind kind, size_t *at)
{
    while (*at < a->count) {
        const ckpt__organ *organ = &a->organs[(*at)++];
        if (organ->kind == kind)
            return organ;
    }
    return NULL;
}

const ckpt_value *ckpt__organ_value(const ckpt__anatomy *a, const ckpt__organ *organ)
{
    return a->tree.nodes[organ->node].value;
}

ckpt_str ckpt__organ_path(const ckpt__anatomy *a, const ckpt__organ *organ)
{
    return a->tree.nodes[organ->node].name;
}
