/* anatomy/anatomy.c - one look at each place of the value tree: which organ of a training state is it, and by which
 * evidence? */
#include "anatomy/anatomy.h"

#include <stdlib.h>
#include "anatomy/canon_work.h"
#include "anatomy/kinds.h"
#include "format/table.h"
#include "format/torch/libtorch.h"

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

static bool add_where(ckpt__anatomy *a, size_t node, ckpt__organ_kind kind, unsigned evidence)
{
    return !evidence || add(a, node, (ckpt__organ){.kind = kind, .evidence = evidence});
}

static bool look_at_leaf(ckpt__anatomy *a, size_t node)
{
    unsigned rng = ckpt__rng_evidence(a, node);
    return add_where(a, node, CKPT__RNG, rng) &&
           add_where(a, node, CKPT__PROGRESS, rng ? 0 : ckpt__counter_evidence(a, node)) &&
           add_where(a, node, CKPT__SAMPLERS, rng ? 0 : ckpt__sampler_evidence(a, node));
}

/* A value may be more than one: a dict of tensors called "scale", "growth_factor", ... is a model by its structure too. */
static bool look_at_dict(walk *w, size_t node, bool module)
{
    ckpt__anatomy *a = w->out;
    const ckpt__node *n = &a->tree.nodes[node];
    ckpt__organ optimizer;
    bool ok = true;
    if (ckpt__find_optimizer(a, n->value, &optimizer)) {
        ok = add(a, node, optimizer);
        w->no_models = ckpt__organ_is_optimizer(&optimizer) && w->no_models < n->end ? n->end : w->no_models;
    }
    const unsigned broken = ckpt__broken_optimizer_evidence(a, node);
    if ((broken & CKPT__LACKS_GROUPS) && ckpt__holds_moments(ckpt_value_get(n->value, "state")) &&
        w->no_models < n->end)
        w->no_models = n->end;
    unsigned model = node >= w->no_models ? ckpt__model_evidence(a, node, module) : 0;
    w->no_models = model && module ? n->end : w->no_models;
    return ok && add_where(a, node, CKPT__MODEL, model) &&
           add_where(a, node, CKPT__SCHEDULER, ckpt__scheduler_evidence(n->value)) &&
           add_where(a, node, CKPT__SCALER, ckpt__scaler_evidence(n->value, n->name, n->depth)) &&
           add_where(a, node, CKPT__BROKEN_OPTIMIZER, broken) &&
           add_where(a, node, CKPT__DATA_LOADER, ckpt__data_loader_evidence(n->value));
}

static bool look_at(walk *w, size_t node, bool module)
{
    const ckpt__node *n = &w->out->tree.nodes[node];
    bool dict = ckpt__node_is_dict(n) && !n->value->array; /* numpy's scalars and arrays are objects */
    return dict ? look_at_dict(w, node, module) : look_at_leaf(w->out, node);
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
    return a->unfolded.mixed ? root : ckpt__flat_take_beside(root, a->arena, &a->unfolded.beside);
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

const ckpt__organ *ckpt__anatomy_counter(const ckpt__anatomy *a, unsigned bits, size_t parent, ckpt__takes_fn takes,
                                         const void *ctx)
{
    const ckpt__organ *best = NULL;
    size_t at = 0;
    for (const ckpt__organ *o; (o = ckpt__anatomy_next(a, CKPT__PROGRESS, &at)) != NULL;)
        if ((o->evidence & bits) && a->tree.nodes[o->node].parent == parent &&
            (!best || o->evidence < best->evidence) && takes(ctx, ckpt__organ_value(a, o)))
            best = o;
    return best;
}

static bool is_below(ckpt_str name, ckpt_str path)
{
    return name.size > path.size && memcmp(name.data, path.data, path.size) == 0 && name.data[path.size] == '.';
}

ckpt__averages ckpt__anatomy_averages(const ckpt__index *index, ckpt_str said)
{
    ckpt__averages out = {0, {NULL, 0}};
    for (size_t i = 0; i < index->tensor_count; i++) {
        const ckpt_tensor_info *t = &index->tensors[i].info;
        if (said.data ? !is_below(t->name, said) : t->role != CKPT_ROLE_EMA)
            continue;
        if (out.count++ > 0)
            continue;
        out.path = said;
        for (size_t k = 0; k < t->name.size && !out.path.data; k++)
            if (t->name.data[k] == '.' && ckpt__is_average((ckpt_str){t->name.data, k}))
                out.path = (ckpt_str){t->name.data, k};
    }
    return out;
}
