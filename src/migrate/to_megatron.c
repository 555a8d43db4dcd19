/* migrate/to_megatron.c - a checkpoint of megatron-core (torch_dist), which its dist_checkpointing.load takes with any tensor and pipeline
 * parallelism (megatron/core/dist_checkpointing/serialization.py, strategies/torch.py, optimizer/distrib_optimizer.py):
 *
 *   .metadata, __<rank>_0.distcp     a distributed checkpoint of PyTorch, each key a record:
 *     decoder.layers.mlp.linear_fc2.weight                   the model: a stack of all layers (stack.c)
 *     optimizer.state.exp_avg.<key>, .exp_avg_sq.<key>       moments
 *     optimizer.state.param.<key>                            masters, as the distributed optimizer calls them (fully_reshardable)
 *     <key>._extra_state/shard_<layer>_<layers>              what a module keeps beside its parameters, in a list of one
 *     rng_state/shard_<pp>.<tp>_<pps>.<tps>                  of each model-parallel rank
 *   common.pt        what all ranks have the same: arguments, iteration, the optimizer's groups
 *   metadata.json    written last: nothing is loaded without it */
#include "migrate/megatron.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/megatron/megatron.h"
#include "migrate/megatron_priv.h"
#include "migrate/resume.h"
#include "migrate/to_canonical.h"
#include "model/training.h"

enum { KEY_SIZE = 200 };

static ckpt_status no_memory(const ckpt__megatron *g)
{
    return ckpt__migration_no_memory(g->err);
}

/* ---- records */

static ckpt_str join3(const ckpt__megatron *g, const char *a, const char *b, ckpt_str c)
{
    return ckpt__arena_join(g->arena, ckpt__s(a), ckpt__s(b), c);
}

/* The tensors of a value have a place, and are read back below its key. */
typedef struct expecting {
    ckpt__megatron *g;
    ckpt_str key;
} expecting;

static int expect_one(void *ctx, const ckpt_visit *visit)
{
    const expecting *x = ctx;
    const ckpt_value *v = visit->value;
    ckpt__arena *a = x->g->arena;
    if (v->kind != CKPT_V_TENSOR || visit->cycle || visit->inside)
        return CKPT_OK;
    x->g->taken[v->tensor] = true;
    ckpt_str name = visit->name.size ? ckpt__arena_join(a, x->key, ckpt__s("."),
                                                        ckpt__arena_str(a, visit->name.data, visit->name.size))
                                     : x->key;
    return name.data && ckpt__back_expect(x->g->m, name, v->tensor) ? CKPT_OK : no_memory(x->g);
}

static ckpt_status put(ckpt__megatron *g, ckpt__made_dict *d, ckpt_str key, const ckpt_value *value)
{
    expecting x = {g, key};
    if (!key.data || !value)
        return no_memory(g);
    ckpt__made_put(d, ckpt__value_str(g->arena, key.data, key.size), value);
    return d->failed ? no_memory(g) : (ckpt_status)ckpt_value_walk(value, 0, expect_one, &x, g->err);
}

ckpt_status ckpt__megatron_record(ckpt__megatron *g, ckpt_str key, const ckpt_value *value)
{
    return put(g, &g->records, key, value);
}

ckpt_status ckpt__megatron_common(ckpt__megatron *g, ckpt_str key, const ckpt_value *value)
{
    return put(g, &g->common, key, value);
}

static ckpt_status put_tensor(ckpt__megatron *g, ckpt_str key, size_t tensor)
{
    ckpt_value *v = ckpt__value_new(g->arena, CKPT_V_TENSOR);
    if (!v)
        return no_memory(g);
    v->tensor = tensor;
    g->taken[tensor] = true;
    return ckpt__megatron_record(g, key, v);
}

/* An object is saved in a list of one. */
ckpt_status ckpt__megatron_object(ckpt__megatron *g, const char *key, const ckpt_value *value)
{
    const ckpt_value **items = ckpt__arena_array(g->arena, 1, sizeof *items);
    ckpt_str kept = ckpt__arena_str(g->arena, key, strlen(key));
    if (!items || !kept.data)
        return no_memory(g);
    items[0] = value;
    return ckpt__megatron_record(g, kept, ckpt__value_list(g->arena, CKPT_V_LIST, items, 1));
}

/* ---- the model and its moments, under the keys that megatron-core gives them */

static const ckpt_tensor_info *info_of(const ckpt__megatron *g, size_t tensor)
{
    return &g->m->index->tensors[tensor].info;
}

/* Was the tensor made of layers, or has it a key of its own? */
static bool has_key(const ckpt__megatron *g, size_t tensor, ckpt_str name)
{
    char key[KEY_SIZE];
    int64_t layer;
    return tensor >= g->m->ledger.read || (ckpt__meg_key(name, key, sizeof key, &layer) && layer < 0);
}

static bool is_state(const ckpt_tensor_info *t)
{
    return t->param.data && t->state_key.data &&
           (t->role == CKPT_ROLE_EXP_AVG || t->role == CKPT_ROLE_EXP_AVG_SQ || t->role == CKPT_ROLE_MASTER ||
            t->role == CKPT_ROLE_MAX_EXP_AVG_SQ || t->role == CKPT_ROLE_MOMENTUM);
}

static ckpt_status put_state(ckpt__megatron *g, size_t tensor)
{
    static const char head[] = "optimizer.state.";
    const ckpt_tensor_info *t = info_of(g, tensor);
    const bool master = t->role == CKPT_ROLE_MASTER;
    const ckpt_str kind =
        master ? ckpt__s("param.") : ckpt__arena_join(g->arena, t->state_key, ckpt__s("."), (ckpt_str){NULL, 0});
    g->states++;
    g->masters += master;
    return kind.data ? put_tensor(g, join3(g, head, kind.data, t->param), tensor) : no_memory(g);
}

static ckpt_status put_weight(ckpt__megatron *g, size_t tensor)
{
    const ckpt_tensor_info *t = info_of(g, tensor);
    if (tensor >= g->m->ledger.read)
        g->layers = t->shape[0];
    if (ckpt__hash_put(g->weights, t->name.data, t->name.size, tensor, NULL) < 0)
        return no_memory(g);
    return put_tensor(g, t->name, tensor);
}

static ckpt_status put_tensors(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    ckpt_status status = CKPT_OK;
    for (size_t pass = 0; pass < 2; pass++)
        for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
            const size_t i = m->chosen[k];
            const ckpt_tensor_info *t = info_of(g, i);
            const bool weight = !t->state_key.data && (t->role == CKPT_ROLE_PARAM || t->role == CKPT_ROLE_BUFFER);
            if (pass == 0 && weight && has_key(g, i, t->name))
                status = put_weight(g, i);
            else if (pass == 1 && is_state(t) && has_key(g, i, t->param))
                status = put_state(g, i);
        }
    return status;
}

/* The parameters that have a master. */
static ckpt_status find_masters(const ckpt__megatron *g, ckpt__hash *has)
{
    const ckpt__migration *m = g->m;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = info_of(g, m->chosen[k]);
        if (t->role == CKPT_ROLE_MASTER && g->taken[m->chosen[k]] &&
            ckpt__hash_put(has, t->param.data, t->param.size, 0, NULL) < 0)
            status = no_memory(g);
    }
    return status;
}

static ckpt_status put_own_master(ckpt__megatron *g, ckpt_str param)
{
    char shown[300];
    size_t at;
    if (ckpt__hash_get(g->weights, param.data, param.size, &at) && info_of(g, at)->dtype == CKPT_F32)
        return put_tensor(g, join3(g, "optimizer.state.", "param.", param), at);
    return ckpt__fail(g->err, CKPT_E_UNSUPPORTED, ckpt__escape(shown, sizeof shown, param.data, param.size),
                      "it has moments, and neither a master nor 32 bits itself, where other parameters have masters: "
                      "megatron-core asks for one of each");
}

/* A parameter of 32 bits is its own master, and is asked for by that name where others have one. */
static ckpt_status put_own_masters(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    if (!g->masters)
        return CKPT_OK;
    ckpt__hash *has = ckpt__hash_new(64);
    ckpt_status status = has ? find_masters(g, has) : no_memory(g);
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = info_of(g, m->chosen[k]);
        if (t->role == CKPT_ROLE_EXP_AVG && g->taken[m->chosen[k]] &&
            !ckpt__hash_get(has, t->param.data, t->param.size, NULL))
            status = put_own_master(g, t->param);
    }
    ckpt__hash_free(has);
    return status;
}

/* ---- what modules keep beside their parameters */

/* Those that the source has. */
static ckpt_status put_extras(ckpt__megatron *g, ckpt__hash *there)
{
    const ckpt__migration *m = g->m;
    char key[KEY_SIZE], name[KEY_SIZE + 60];
    int64_t layer;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const size_t i = m->chosen[k];
        if (!ckpt__meg_extra(info_of(g, i)->name, key, sizeof key, &layer))
            continue;
        ckpt_value *v = ckpt__value_new(g->arena, CKPT_V_TENSOR);
        snprintf(name, sizeof name, "%s/shard_%lld_%lld", key, (long long)layer, (long long)g->layers);
        ckpt_str kept = ckpt__arena_str(g->arena, name, strlen(name));
        if (!v || !kept.data || ckpt__hash_put(there, kept.data, kept.size, 0, NULL) < 0)
            return no_memory(g);
        v->tensor = i;
        g->taken[i] = true;
        status = ckpt__megatron_object(g, name, v);
    }
    return status;
}

/* Of the linear layers, each has one, and where the source has none it is None, as modules in Python have it. */
static ckpt_status put_none(ckpt__megatron *g, const char *extra, const ckpt__hash *there)
{
    char name[KEY_SIZE + 60];
    const ckpt_value *none = ckpt__value_new(g->arena, CKPT_V_NONE);
    ckpt_status status = none ? CKPT_OK : no_memory(g);
    for (int64_t l = 0; status == CKPT_OK && l < g->layers; l++) {
        snprintf(name, sizeof name, "%s/shard_%lld_%lld", extra, (long long)l, (long long)g->layers);
        if (!ckpt__hash_get(there, name, strlen(name), NULL) &&
            (g->m->options.weights_only || !ckpt__at(g->m->root, name)))
            status = ckpt__megatron_object(g, name, none);
    }
    return status;
}

static ckpt_status put_objects(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    char extra[KEY_SIZE];
    ckpt__hash *there = ckpt__hash_new(16);
    ckpt_status status = there ? put_extras(g, there) : no_memory(g);
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = info_of(g, m->chosen[k]);
        if (g->taken[m->chosen[k]] && !t->state_key.data && ckpt__meg_extra_of(t->name, extra, sizeof extra))
            status = put_none(g, extra, there);
    }
    ckpt__hash_free(there);
    return status;
}

/* ---- the optimizer */

/* megatron-core finds a group of its own by these. */
static ckpt_status note_lacking(const ckpt__megatron *g, const ckpt_value *groups)
{
    static const char *const asked[] = {"wd_mult", "lr_mult", "is_expert_parallel", "is_decoupled_lr"};
    char names[120] = "";
    size_t at = 0, lacking = 0;
    for (size_t k = 0; k < sizeof asked / sizeof *asked; k++) {
        bool all = true;
        for (size_t i = 0; i < groups->item_count; i++)
            all = all && ckpt__at(groups->items[i], asked[k]);
        if (!all && at < sizeof names)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", lacking++ ? ", " : "", asked[k]);
    }
    if (!lacking)
        return CKPT_OK;
    bool added = ckpt__report_add(
        g->m->report, CKPT_SEVERITY_WARNING, "groups-lack", NULL,
        "set them in common.pt: for g in c['optimizer']['param_groups'] (or ['optimizer']['optimizer']['param_groups']): "
        "g.update(wd_mult=1.0, lr_mult=1.0, is_expert_parallel=False, is_decoupled_lr=False), with wd_mult 0.0 for the group without "
        "weight decay",
        "the optimizer's groups do not say %s, and none of it is made up: megatron-core finds its groups by them, and raises KeyError",
        names);
    return added ? CKPT_OK : no_memory(g);
}

static const ckpt_value *make_group(const ckpt__megatron *g, const ckpt_value *group)
{
    ckpt__made_dict d = {.arena = g->arena};
    bool step = false;
    for (size_t i = 0; i < group->entry_count; i++) {
        const ckpt_value *key = group->entries[i].key;
        const ckpt_str name = key->kind == CKPT_V_STR ? key->text : (ckpt_str){NULL, 0};
        if (ckpt__str_is(name, "params") || ckpt__str_is(name, "param_names"))
            continue;
        step |= ckpt__str_is(name, "step");
        ckpt__made_put(&d, key, group->entries[i].value);
    }
    if (!step && g->masters && g->m->common_step >= 0)
        ckpt__made_put_as(&d, "step", ckpt__value_int(g->arena, g->m->common_step));
    return ckpt__made_finish(&d);
}

static const ckpt_value *make_groups(const ckpt__megatron *g, const ckpt_value *groups)
{
    const ckpt_value **items = ckpt__arena_array(g->arena, groups->item_count + 1, sizeof *items);
    for (size_t i = 0; items && i < groups->item_count; i++)
        if (!(items[i] = make_group(g, groups->items[i])))
            return NULL;
    return items ? ckpt__value_list(g->arena, CKPT_V_LIST, items, groups->item_count) : NULL;
}

/* What else the source's optimizer has: grad_scaler. */
static void put_rest(const ckpt__megatron *g, ckpt__made_dict *d)
{
    const ckpt_value *own = ckpt__at(g->m->from->root, "optimizer");
    for (size_t i = 0; own && own->kind == CKPT_V_DICT && i < own->entry_count; i++) {
        const ckpt_value *v = ckpt__edits_now(g->m->edits, own->entries[i].value);
        if (own->entries[i].key->kind == CKPT_V_STR && ckpt__str_is(own->entries[i].key->text, "grad_scaler"))
            ckpt__made_put(d, own->entries[i].key, v);
    }
}

/* {state: {common_step}, param_groups}; where there are masters the groups have the step, below another "optimizer". */
static const ckpt_value *make_optimizer(const ckpt__megatron *g, const ckpt_value *groups)
{
    ckpt__made_dict states = {.arena = g->arena}, inner = {.arena = g->arena}, outer = {.arena = g->arena};
    if (g->step_tensor != SIZE_MAX) {
        ckpt_value *v = ckpt__value_new(g->arena, CKPT_V_TENSOR);
        if (v)
            v->tensor = g->step_tensor;
        ckpt__made_put_as(&states, "common_step", v);
    }
    const ckpt_value *state = ckpt__made_finish(&states);
    if (!g->masters)
        ckpt__made_put_as(&inner, "state", state);
    ckpt__made_put_as(&inner, "param_groups", make_groups(g, groups));
    if (!g->masters)
        put_rest(g, &inner);
    const ckpt_value *one = ckpt__made_finish(&inner);
    if (!g->masters)
        return one;
    ckpt__made_put_as(&outer, "optimizer", one);
    ckpt__made_put_as(&outer, "param_state_sharding_type", ckpt__value_str(g->arena, "fully_reshardable", 17));
    put_rest(g, &outer);
    return ckpt__made_finish(&outer);
}

ckpt_status ckpt__megatron_say_adam(const ckpt__megatron *g)
{
    return ckpt__report_add(
               g->m->report, CKPT_SEVERITY_NOTE, "torch-dist-adam", NULL,
               "install Transformer Engine or Apex; or take a step before the load, and keep 'step' in "
               "DistributedOptimizer._set_main_param_and_optimizer_states",
               "with torch's own Adam the distributed optimizer of megatron-core 0.16 cannot load this form (fully_reshardable), "
               "what it has saved itself included: AssertionError, then KeyError 'step'")
               ? CKPT_OK
               : no_memory(g);
}

/* The groups that a source has as megatron-core saves them: without parameters, for its loader takes those of the running program. So they
 * went along with a torch_dist to where its layers are apart. An optimizer of several has them below numbers, and is none of these. */
static const ckpt_value *nameless_groups(const ckpt__megatron *g)
{
    const ckpt_value *own = ckpt__at(g->m->from->root, "optimizer"), *inner = ckpt__at(own, "optimizer"),
                     *groups = ckpt__at(inner ? inner : own, "param_groups");
    for (size_t i = 0; ckpt__is_list(groups) && i < groups->item_count; i++) {
        const ckpt_value *params = ckpt__at(groups->items[i], "params");
        if (groups->items[i]->kind != CKPT_V_DICT || (params && params->item_count))
            return NULL;
    }
    return ckpt__is_list(groups) && groups->item_count ? groups : NULL;
}

static ckpt_status put_optimizer(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    const ckpt_value *own = ckpt__at(m->root, "optimizer"), *groups = ckpt__at(own, "param_groups");
    if (!ckpt__is_list(groups) || !groups->item_count)
        groups = nameless_groups(g);
    if (m->options.weights_only)
        return CKPT_OK;
    if (!g->states)
        return m->canon->unnamed.data || ckpt__at(m->from->root, "optimizer") ||
                       ckpt__at(m->from->root, "distrib_optim")
                   ? ckpt__lose(
                         g->m, g->err,
                         "the optimizer: which parameters its states are of is not known. Without it the program begins with a new one (--no-load-optim, --finetune)")
                   : CKPT_OK;
    if (!ckpt__is_list(groups) || !groups->item_count)
        return ckpt__fail(
            g->err, CKPT_E_UNSUPPORTED, m->dst,
            "the optimizer has moments and no groups, and megatron-core loads none without its groups' settings: leave it "
            "out (--weights-only)");
    if (m->common_step < 0 && !ckpt__at(groups->items[0], "step"))
        return ckpt__fail(
            g->err, CKPT_E_UNSUPPORTED, m->dst,
            "the checkpoint does not say how many steps its optimizer has done, which megatron-core asks for: leave the "
            "optimizer out (--weights-only)");
    ckpt_status status = note_lacking(g, groups);
    if (status == CKPT_OK && own)
        status = ckpt__lose_settings(g->m, own, g->err);
    if (status == CKPT_OK)
        status = ckpt__megatron_common(g, ckpt__s("optimizer"), make_optimizer(g, groups));
    return status == CKPT_OK && g->masters ? ckpt__megatron_say_adam(g) : status;
}

/* ---- what each model-parallel rank has for itself */

/* {"mp_rank_01_000": ...}: of the rank with tp 1 and pp 0. False: it is no such dict. */
static bool rank_of(const ckpt_value *key, int64_t *tp, int64_t *pp)
{
    int a = -1, b = 0, end = 0;
    char text[40];
    if (key->kind != CKPT_V_STR || key->text.size >= sizeof text)
        return false;
    memcpy(text, key->text.data, key->text.size);
    text[key->text.size] = 0;
    if (sscanf(text, "mp_rank_%2d_%3d%n", &a, &b, &end) == 2
            ? text[end] != 0
            : sscanf(text, "mp_rank_%2d%n", &a, &end) != 1 || text[end] != 0)
        return false;
    *tp = a;
    *pp = b;
    return a >= 0 && b >= 0;
}

static ckpt_status put_rng_of(ckpt__megatron *g, int64_t tp, int64_t pp, const ckpt_value *value)
{
    char key[120];
    snprintf(key, sizeof key, "rng_state/shard_%lld.%lld_%lld.%lld", (long long)pp, (long long)tp,
             (long long)g->m->from->job.pp, (long long)g->m->from->job.tp);
    return ckpt__megatron_object(g, key, value);
}

static ckpt_status put_rng(ckpt__megatron *g, const ckpt_value *v)
{
    const int64_t tps = g->m->from->job.tp, pps = g->m->from->job.pp;
    int64_t tp, pp;
    bool by_rank = v->kind == CKPT_V_DICT && v->entry_count > 0;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; by_rank && i < v->entry_count; i++)
        by_rank = rank_of(v->entries[i].key, &tp, &pp) && tp < tps && pp < pps;
    for (size_t i = 0; status == CKPT_OK && by_rank && i < v->entry_count; i++)
        if (rank_of(v->entries[i].key, &tp, &pp))
            status = put_rng_of(g, tp, pp, v->entries[i].value);
    if (by_rank || v->kind == CKPT_V_DICT || tps <= 0 || pps <= 0 || tps * pps > 1 << 13)
        return by_rank ? status : ckpt__lose(g->m, g->err, "'rng_state', of which it is not known which rank has what");
    for (int64_t r = 0; status == CKPT_OK && r < tps * pps; r++)
        status = put_rng_of(g, r % tps, r / tps, v);
    return status;
}

/* ---- common.pt */

/* The tree's own entries, without what is a record and what stays behind. */
static ckpt_status put_values(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    const ckpt_value *rest = NULL;
    const bool ranks = ckpt__format_of(m->from)->sharded == CKPT__SHARDED_MEGATRON;
    if (m->options.weights_only || !m->root || m->root->kind != CKPT_V_DICT)
        return CKPT_OK;
    for (size_t i = 0; i < m->index->tensor_count; i++)
        g->taken[i] |= i < m->from->tensor_count && ckpt__stays_behind(m, i);
    if (!ckpt__values_without(m->root, g->taken, m->index->tensor_count, g->arena, &rest))
        return no_memory(g);
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && rest && rest->kind == CKPT_V_DICT && i < rest->entry_count; i++) {
        const ckpt_entry *e = &rest->entries[i];
        const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : (ckpt_str){NULL, 0};
        if (!key.data)
            status = ckpt__lose(g->m, g->err, "a value of the root whose key is no text");
        else if (ranks && ckpt__str_is(key, "distrib_optim"))
            continue; /* put_optimizer says so */
        else if (ranks && ckpt__str_is(key, "rng_state"))
            status = put_rng(g, e->value);
        else if (ckpt__str_holds(key, "/shard_")) /* an object of a torch_dist, which was another file's since */
            status = ckpt__megatron_record(g, key, e->value);
        else if (!ckpt__str_is(key, "model") && !ckpt__str_is(key, "optimizer"))
            status = ckpt__megatron_common(g, key, e->value);
        g->iteration |= ckpt__str_is(key, "iteration");
    }
    if (status == CKPT_OK && !g->iteration && m->index->step >= 0)
        status = ckpt__megatron_common(g, ckpt__s("iteration"), ckpt__value_int(g->arena, m->index->step));
    return status;
}

/* How the keys are to be understood: the load of megatron-core goes by it. */
static ckpt_status put_content(ckpt__megatron *g)
{
    ckpt__made_dict d = {.arena = g->arena};
    if (g->masters)
        ckpt__made_put_as(&d, "distrib_optim_sharding_type", ckpt__value_str(g->arena, "fully_reshardable", 17));
    ckpt__made_put_as(&d, "singleton_local_shards", ckpt__value_bool(g->arena, false));
    ckpt__made_put_as(&d, "chained_optim_avoid_prefix", ckpt__value_bool(g->arena, true));
    return ckpt__megatron_common(g, ckpt__s("content_metadata"), ckpt__made_finish(&d));
}

/* What goes along, and is neither a record nor in common.pt: states that are none of Adam's. */
static ckpt_status lose_others(const ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    ckpt__buf names = {0};
    size_t count = 0;
    for (size_t k = 0; k < m->chosen_count; k++)
        if (!g->taken[m->chosen[k]])
            ckpt__put_name(&names, count++, info_of(g, m->chosen[k])->name);
    ckpt_status status = names.failed ? no_memory(g) : CKPT_OK;
    if (status == CKPT_OK && count)
        status = ckpt__lose(g->m, g->err, "%zu tensors for which torch-dist has no key (%s)", count, names.data);
    ckpt__buf_free(&names);
    return status;
}

static ckpt_status make_all(ckpt__megatron *g)
{
    ckpt_status status = put_tensors(g);
    if (status == CKPT_OK && g->records.count == 0)
        status = ckpt__fail(g->err, CKPT_E_UNSUPPORTED, g->m->dst,
                            "no tensor of it has a name of megatron-core's GPT model");
    if (status == CKPT_OK)
        status = put_own_masters(g);
    if (status == CKPT_OK)
        status = put_objects(g);
    if (status == CKPT_OK)
        status = put_values(g);
    if (status == CKPT_OK)
        status = put_optimizer(g);
    if (status == CKPT_OK)
        status = lose_others(g);
    return status == CKPT_OK ? put_content(g) : status;
}

/* ---- files */

static ckpt_status add_files(ckpt__megatron *g)
{
    static const char json[] =
        "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, \"common_backend\": \"torch\", "
        "\"common_backend_version\": 1}";
    const ckpt_value *records = ckpt__made_finish(&g->records), *common = ckpt__made_finish(&g->common);
    ckpt_status status = records && common ? ckpt__dcp_records_files(g->w, records) : no_memory(g);
    ckpt__out_file *f = status == CKPT_OK ? ckpt__out_add(g->w, "common.pt") : NULL;
    if (status == CKPT_OK && (!f || !f->name))
        return no_memory(g);
    if (f) {
        f->format = g->m->format;
        f->root = common;
    }
    f = status == CKPT_OK ? ckpt__out_add(g->w, "metadata.json") : NULL;
    if (status == CKPT_OK && (!f || !f->name))
        return no_memory(g);
    if (f) {
        ckpt__buf_str(&f->text, json);
        status = f->text.failed ? no_memory(g) : CKPT_OK;
    }
    return status;
}

ckpt_status ckpt__megatron_files(ckpt__out *w)
{
    ckpt__megatron g = {
        .w = w, .m = w->m, .arena = w->m->index->arena, .err = w->err, .step_tensor = w->m->step_tensor};
    g.records.arena = g.common.arena = g.arena;
    g.taken = calloc(w->m->index->tensor_count + 1, sizeof *g.taken);
    g.weights = ckpt__hash_new(64);
    ckpt_status status = g.taken && g.weights ? CKPT_OK : no_memory(&g);
    ckpt__tag_as_host(w->m);
    if (status == CKPT_OK)
        status = ckpt__keeps_megatron(w->m) ? ckpt__megatron_keep(&g) : make_all(&g);
    if (status == CKPT_OK)
        status = add_files(&g);
    free(g.records.entries);
    free(g.common.entries);
    free(g.taken);
    ckpt__hash_free(g.weights);
    return status;
}
