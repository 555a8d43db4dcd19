/* migrate/keep_megatron.c - a torch-dist from a torch-dist: its keys, objects and values are what they were; its tensors are whole, and cut
 * for another number of ranks. What cannot be loaded with another parallelism is made so where that is known, or said. */
#include "migrate/megatron_priv.h"

#include <stdio.h>
#include "format/megatron/megatron.h"
#include "migrate/to_canonical.h"

static const char SPACE[] = "fully_sharded_model_space", FULL[] = "fully_reshardable";

static ckpt_status no_memory(const ckpt__megatron *g)
{
    return ckpt__migration_no_memory(g->err);
}

static bool is_text(const ckpt_value *v, const char *text)
{
    return v && v->kind == CKPT_V_STR && ckpt__str_is(v->text, text);
}

/* Does the source say that its distributed optimizer has that form? SPACE: it lies in fragments, as megatron-core 0.14 and older write
 * it, and the reader has put them together. */
static bool has_form(const ckpt__megatron *g, const char *form)
{
    const ckpt_value *root = g->m->from->root;
    return is_text(ckpt__at(ckpt__at(root, "content_metadata"), "distrib_optim_sharding_type"), form) ||
           is_text(ckpt__at(ckpt__at(root, "optimizer"), "param_state_sharding_type"), form);
}

/* ---- fragments that were put together have the keys and shapes that the newer form has */

static ckpt_status check_whole(const ckpt__megatron *g, size_t tensor, ckpt_str param)
{
    const ckpt__index *x = g->m->from;
    const ckpt_tensor_info *t = &x->tensors[tensor].info;
    char name[300];
    size_t at;
    if (ckpt__hash_get(g->weights, param.data, param.size, &at) &&
        ckpt__same_shape(t->shape, t->ndim, x->tensors[at].info.shape, x->tensors[at].info.ndim))
        return CKPT_OK;
    return ckpt__fail(
        g->err, CKPT_E_UNSUPPORTED, ckpt__escape(name, sizeof name, t->name.data, t->name.size),
        "it is in fragments (%s), whose order is not known, so that no shape of a parameter fits: leave the optimizer out "
        "(--weights-only)",
        SPACE);
}

/* The key that a tensor has. */
static ckpt_status key_of(const ckpt__megatron *g, size_t tensor, ckpt_str own, bool space, ckpt_str *key)
{
    ckpt_str param, kind;
    ckpt_role role;
    *key = own;
    if (!space || !ckpt__meg_moment(own, &param, &kind, &role))
        return CKPT_OK;
    ckpt_status status = check_whole(g, tensor, param);
    if (status == CKPT_OK && role == CKPT_ROLE_MASTER)
        *key = ckpt__arena_join(g->arena, ckpt__s("optimizer.state.param."), param, (ckpt_str){NULL, 0});
    return status == CKPT_OK && !key->data ? no_memory(g) : status;
}

/* A dict in which a text says another form; itself where it says none. */
static const ckpt_value *say_full(const ckpt__megatron *g, const ckpt_value *dict, const char *key)
{
    ckpt__made_dict d = {.arena = g->arena};
    const ckpt_value *was = ckpt__at(dict, key), *fragments = ckpt__at(dict, "param_state");
    if (!was)
        return dict;
    for (size_t i = 0; i < dict->entry_count; i++)
        if (dict->entries[i].value == was)
            ckpt__made_put(&d, dict->entries[i].key, ckpt__value_str(g->arena, FULL, sizeof FULL - 1));
        else if (dict->entries[i].value != fragments) /* steps of fragments: the groups have them */
            ckpt__made_put(&d, dict->entries[i].key, dict->entries[i].value);
    return ckpt__made_finish(&d);
}

/* ---- all of it */

static bool is_object(ckpt_str key)
{
    return ckpt__str_holds(key, "/shard_");
}

static ckpt_status put_entry(ckpt__megatron *g, const ckpt_entry *e, bool space)
{
    const ckpt_str key = e->key->kind == CKPT_V_STR ? e->key->text : (ckpt_str){NULL, 0};
    const bool alone = g->m->options.weights_only;
    const ckpt_value *v = e->value;
    ckpt_str name;
    if (!key.data)
        return ckpt__lose(g->m, g->err, "a value whose key is not text");
    if (v->kind == CKPT_V_TENSOR) {
        g->taken[v->tensor] = true;
        ckpt_status status = ckpt__stays_behind(g->m, v->tensor) ? CKPT_OK : key_of(g, v->tensor, key, space, &name);
        return status < 0 || ckpt__stays_behind(g->m, v->tensor) ? status : ckpt__megatron_record(g, name, v);
    }
    if (is_object(key))
        return alone && !ckpt__str_holds(key, "._extra_state/") ? CKPT_OK : ckpt__megatron_record(g, key, v);
    if (alone && !ckpt__str_is(key, "content_metadata"))
        return CKPT_OK;
    if (space && ckpt__str_is(key, "content_metadata"))
        v = say_full(g, v, "distrib_optim_sharding_type");
    if (ckpt__str_is(key, "optimizer")) {
        ckpt_status status = ckpt__megatron_reform(g, space ? say_full(g, v, "param_state_sharding_type") : v, &v);
        if (status < 0)
            return status;
    }
    return ckpt__megatron_common(g, key, v);
}

/* Which tensors are parameters. */
static ckpt_status find_weights(ckpt__megatron *g)
{
    const ckpt__index *x = g->m->from;
    for (size_t i = 0; i < x->tensor_count; i++)
        if (ckpt__hash_put(g->weights, x->tensors[i].info.name.data, x->tensors[i].info.name.size, i, NULL) < 0)
            return no_memory(g);
    return CKPT_OK;
}

static ckpt_status refuse_names(const ckpt__megatron *g)
{
    const ckpt_migrate_options *o = &g->m->options;
    if (o->layers_apart)
        return ckpt__fail(
            g->err, CKPT_E_ARGUMENT, g->m->dst,
            "--layers-apart: a torch-dist of a torch-dist keeps its keys; --layout takes its layers apart first");
    return o->strip_prefix_count || o->rename_count || o->add_prefix
               ? ckpt__fail(g->err, CKPT_E_ARGUMENT, g->m->dst,
                            "--rename, --strip-prefix and --add-prefix: a torch-dist of a torch-dist keeps its keys")
               : CKPT_OK;
}

static ckpt_status say_forms(const ckpt__megatron *g, bool space)
{
    const ckpt__migration *m = g->m;
    size_t buckets = 0;
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; k < m->chosen_count; k++)
        buckets += ckpt__str_holds(m->from->tensors[m->chosen[k]].info.name, ".gbuf_idx_");
    if (buckets &&
        !ckpt__report_add(
            m->report, CKPT_SEVERITY_WARNING, "torch-dist-incomplete", NULL,
            "load it in those sizes, and save it with --dist-ckpt-optim-fully-reshardable; or --weights-only",
            "%zu tensors of the optimizer are flat buffers (dp_reshardable), whose parameters' names, order and padding are in "
            "no file: the model loads with any tensor and pipeline parallelism, and these with the sizes of the save alone",
            buckets))
        return no_memory(g);
    if (space && !m->options.weights_only)
        status = ckpt__migration_note(
            g->m, CKPT_SEVERITY_NOTE, "torch-dist-form", (ckpt_str){NULL, 0}, g->err,
            "the optimizer was saved in fragments (%s), which newer versions of megatron-core do not load: it is "
            "written whole (%s)",
            SPACE, FULL);
    if (status == CKPT_OK && !m->options.weights_only && (space || has_form(g, FULL)))
        status = ckpt__megatron_say_adam(g);
    return status;
}

ckpt_status ckpt__megatron_keep(ckpt__megatron *g)
{
    const ckpt_value *root = g->m->root;
    const bool space = has_form(g, SPACE);
    ckpt_status status = refuse_names(g);
    if (status == CKPT_OK)
        status = ckpt__megatron_check_ranks(g);
    if (status == CKPT_OK)
        status = find_weights(g);
    for (size_t i = 0; status == CKPT_OK && root && root->kind == CKPT_V_DICT && i < root->entry_count; i++)
        status = put_entry(g, &root->entries[i], space);
    return status == CKPT_OK ? say_forms(g, space) : status;
}
