/* migrate/to_megatron.c - a checkpoint of megatron-core (torch_dist), which its dist_checkpointing.load takes with any tensor and pipeline
 * parallelism (megatron/core/dist_checkpointing/serialization.py, strategies/torch.py, optimizer/distrib_optimizer.py):
 *
 *   .metadata, __<rank>_0.distcp     a distributed checkpoint of PyTorch, each key a record:
 *     decoder.layers.mlp.linear_fc2.weight                   the model: a stack of all layers (stack.c)
 *     decoder.layers.mlp.experts.experts.linear_fc2.weight   of all layers and experts
 *     optimizer.state.exp_avg.<key>, .exp_avg_sq.<key>       moments
 *     optimizer.state.param.<key>                            masters, as the distributed optimizer calls them (fully_reshardable)
 *     <key>._extra_state/shard_<layer>_<layers>              what a module keeps beside its parameters, in a list of one (megatron_extras.c)
 *     rng_state/shard_<pp>.<tp>_<pps>.<tps>                  of each model-parallel rank
 *   common.pt        what all ranks have the same: arguments, iteration, the optimizer's groups (megatron_optimizer.c)
 *   metadata.json    written last: nothing is loaded without it */
#include "migrate/megatron.h"

#include <stdio.h>
#include <stdlib.h>
#include "format/megatron/megatron.h"
#include "migrate/megatron_priv.h"
#include "migrate/resume.h"
#include "migrate/to_canonical.h"
#include "model/training.h"

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

/* Was the tensor made of layers or experts, or has it a key of its own? */
static bool has_key(const ckpt__megatron *g, size_t tensor, ckpt_str name)
{
    ckpt__meg_key key;
    return tensor >= g->m->ledger.read || (ckpt__meg_key_of(name, &g->m->meg, &key) && key.layer < 0);
}

static bool is_state(const ckpt_tensor_info *t)
{
    return t->param.data && t->state_key.data && ckpt__megatron_is_state(t->role);
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
        return by_rank ? status
                       : ckpt__lose(g->m, g->err, "'rng_state', where it is unknown which rank has which state");
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
            status = ckpt__lose(g->m, g->err, "a value of the root whose key is not text");
        else if (ranks && ckpt__str_is(key, "distrib_optim"))
            continue; /* put_optimizer says so */
        else if (ranks && ckpt__str_is(key, "rng_state"))
            status = put_rng(g, e->value);
        else if (ckpt__str_holds(key, "/shard_")) /* an object of a torch_dist, which was another file's since */
            status = ckpt__megatron_record(g, key, e->value);
        else if (!ckpt__str_is(key, "model") && !ckpt__str_is(key, "optimizer") &&
                 !ckpt__str_is(key, CKPT__MEGATRON_SAVED))
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
        status = ckpt__megatron_check_ranks(g);
    if (status == CKPT_OK)
        status = put_own_masters(g);
    if (status == CKPT_OK)
        status = ckpt__megatron_extras(g);
    if (status == CKPT_OK)
        status = put_values(g);
    if (status == CKPT_OK)
        status = ckpt__megatron_optimizer(g);
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
