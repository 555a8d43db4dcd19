/* migrate/megatron_extras.c - a checkpoint of megatron-core (torch-dist): what its modules keep beside their parameters (_extra_state). Each is an
 * object of its own, under a key that says which layer and which expert it is of, and how many there are:
 *
 *     decoder.layers.self_attention.linear_qkv._extra_state/shard_1_2              layer 1 of 2
 *     decoder.layers.mlp.experts.experts.linear_fc1._extra_state/shard_1.3_2.4     layer 1 of 2, expert 3 of 4
 *     decoder.layers.1.mlp.experts.experts.linear_fc1._extra_state/shard_3_4       the same where layers are kept apart
 *     decoder.layers.1.self_attention.linear_qkv._extra_state/shard_0_1            likewise, of no stack */
#include "migrate/megatron_priv.h"

#include <stdio.h>
#include "format/megatron/megatron.h"

enum { NAME_SIZE = 320 };

/* Where one of them is: along how many dimensions, of which size. */
typedef struct place {
    size_t dims;
    int64_t at[2], size[2];
} place;

static ckpt_status no_memory(const ckpt__megatron *g)
{
    return ckpt__migration_no_memory(g->err);
}

static place place_of(const ckpt__megatron *g, ckpt_str key, int64_t layer, int64_t expert)
{
    place p = {0};
    if (ckpt__meg_is_layer_key(key)) {
        p.at[p.dims] = layer;
        p.size[p.dims++] = g->m->meg.layers;
    }
    if (ckpt__meg_is_expert_key(key)) {
        p.at[p.dims] = expert;
        p.size[p.dims++] = g->m->meg.experts;
    }
    return p;
}

static void put_name(const char *key, const place *p, char *out, size_t size)
{
    const long long at[2] = {p->at[0], p->at[1]}, of[2] = {p->size[0], p->size[1]};
    if (p->dims == 2)
        snprintf(out, size, "%s/shard_%lld.%lld_%lld.%lld", key, at[0], at[1], of[0], of[1]);
    else
        snprintf(out, size, "%s/shard_%lld_%lld", key, p->dims ? at[0] : 0, p->dims ? of[0] : 1);
}

/* Those that the source has. */
static ckpt_status put_own(ckpt__megatron *g, ckpt__hash *there)
{
    const ckpt__migration *m = g->m;
    ckpt__meg_key key;
    char name[NAME_SIZE];
    ckpt_status status = CKPT_OK;
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const size_t i = m->chosen[k];
        if (!ckpt__meg_extra(m->index->tensors[i].info.name, &m->meg, &key))
            continue;
        const place p = place_of(g, ckpt__s(key.text), key.layer, key.expert);
        ckpt_value *v = ckpt__value_new(g->arena, CKPT_V_TENSOR);
        put_name(key.text, &p, name, sizeof name);
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
    char name[NAME_SIZE];
    const ckpt_value *none = ckpt__value_new(g->arena, CKPT_V_NONE);
    ckpt_status status = none ? CKPT_OK : no_memory(g);
    place p = place_of(g, ckpt__s(extra), 0, 0);
    const int64_t count = (p.dims > 0 ? p.size[0] : 1) * (p.dims > 1 ? p.size[1] : 1);
    for (int64_t i = 0; status == CKPT_OK && i < count; i++) {
        const int64_t fast = p.dims > 1 ? p.size[1] : 1;
        p.at[0] = i / fast;
        p.at[1] = i % fast;
        put_name(extra, &p, name, sizeof name);
        if (!ckpt__hash_get(there, name, strlen(name), NULL) &&
            (g->m->options.weights_only || !ckpt__at(g->m->root, name)))
            status = ckpt__megatron_object(g, name, none);
    }
    return status;
}

ckpt_status ckpt__megatron_extras(ckpt__megatron *g)
{
    const ckpt__migration *m = g->m;
    char extra[240];
    ckpt__hash *there = ckpt__hash_new(16);
    ckpt_status status = there ? put_own(g, there) : no_memory(g);
    for (size_t k = 0; status == CKPT_OK && k < m->chosen_count; k++) {
        const ckpt_tensor_info *t = &m->index->tensors[m->chosen[k]].info;
        if (g->taken[m->chosen[k]] && !t->state_key.data && ckpt__meg_extra_of(t->name, extra, sizeof extra))
            status = put_none(g, extra, there);
    }
    ckpt__hash_free(there);
    return status;
}
