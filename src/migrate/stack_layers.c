/* migrate/stack_layers.c - a target of megatron-core (torch-dist): which layers the model has, which of them have experts, and whether their keys
 * are of all layers or of each. */
#include "migrate/megatron_priv.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum kind { NO_LAYER, DENSE, EXPERTS, KINDS } kind;

/* Of each layer what it is; and where they are kept apart, which have what. */
typedef struct looking {
    ckpt__migration *m;
    kind *layers; /* heap */
    size_t count, capacity;
    bool fused;            /* a norm has the name of fused layers */
    ckpt__hash *has, *all; /* owned: what each layer has; what layers of each kind have */
    ckpt_error *err;
} looking;

static ckpt_status no_memory(const looking *l)
{
    return ckpt__migration_no_memory(l->err);
}

bool ckpt__megatron_has_key(const ckpt__migration *m, const ckpt__canon_entry *e)
{
    if (!e->is_tensor || e->outside || ckpt__stays_behind(m, e->tensor))
        return false;
    if (e->state_key.data)
        return e->param.data && ckpt__megatron_is_state(e->role);
    return (e->role == CKPT_ROLE_PARAM || e->role == CKPT_ROLE_BUFFER) && !ckpt__str_ends(e->name, "._extra_state");
}

static ckpt_status look_at(looking *l, ckpt_str name)
{
    int64_t layer;
    bool experts, fused;
    if (!ckpt__meg_tells(name, &layer, &experts, &fused))
        return CKPT_OK;
    if (layer >= CKPT__MEGATRON_LAYERS)
        return ckpt__fail(l->err, CKPT_E_LIMIT, name.data, "a model of more than %d layers",
                          (int)CKPT__MEGATRON_LAYERS);
    if (!ckpt__grow(&l->layers, &l->capacity, (size_t)layer + 1, sizeof *l->layers))
        return no_memory(l);
    while (l->count <= (size_t)layer)
        l->layers[l->count++] = NO_LAYER;
    if (l->layers[layer] != EXPERTS)
        l->layers[layer] = experts ? EXPERTS : DENSE;
    l->fused = l->fused || fused;
    return CKPT_OK;
}

/* ---- of layers that are kept apart, those of a kind have the same */

/* "3.mlp.linear_fc1.weight exp_avg": what layer 3 has. *rest: behind the number. False: it is of no layer. */
static bool part_text(const looking *l, const ckpt__canon_entry *e, int64_t *layer, char *text, size_t size,
                      const char **rest)
{
    const bool state = e->state_key.data != NULL;
    ckpt__meg_key key;
    if (!ckpt__meg_key_of(state ? e->param : e->name, &l->m->meg, &key) || key.layer < 0 ||
        (size_t)key.layer >= l->count)
        return false;
    const char *own = key.text + sizeof "decoder.layers." - 1;
    int n = snprintf(text, size, "%s %.*s", own, state ? (int)e->state_key.size : 0, state ? e->state_key.data : "");
    *layer = key.layer;
    *rest = strchr(text, '.');
    return n > 0 && (size_t)n < size && *rest;
}

static ckpt_status put(looking *l, ckpt__hash *h, const char *text, bool *is_new)
{
    char *kept = ckpt__arena_copy(l->m->from->arena, text, strlen(text));
    int done = kept ? ckpt__hash_put(h, kept, strlen(kept), 0, NULL) : -1;
    *is_new = done == 1;
    return done < 0 ? no_memory(l) : CKPT_OK;
}

/* What one layer has, each layer of its kind has. */
static ckpt_status check_part(const looking *l, const ckpt__canon_entry *e, int64_t layer, const char *rest)
{
    char text[300], name[300];
    for (size_t i = 0; i < l->count; i++) {
        if (l->layers[i] != l->layers[layer])
            continue;
        snprintf(text, sizeof text, "%zu%s", i, rest);
        if (!ckpt__hash_get(l->has, text, strlen(text), NULL))
            return ckpt__fail(
                l->err, CKPT_E_MISMATCH, ckpt__escape(name, sizeof name, e->name.data, e->name.size),
                "layer %lld has it, and layer %zu has none like it: each layer of a kind needs what another one has",
                (long long)layer, i);
    }
    return CKPT_OK;
}

static ckpt_status check_apart(looking *l)
{
    const ckpt__canon *c = l->m->canon;
    ckpt_status status = CKPT_OK;
    bool is_new;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; status == CKPT_OK && i < c->count; i++) {
            char text[280], of_kind[300];
            const char *rest;
            int64_t layer;
            if (!ckpt__megatron_has_key(l->m, &c->entries[i]) ||
                !part_text(l, &c->entries[i], &layer, text, sizeof text, &rest))
                continue;
            snprintf(of_kind, sizeof of_kind, "%d%s", (int)l->layers[layer], rest);
            status = put(l, pass ? l->all : l->has, pass ? of_kind : text, &is_new);
            if (status == CKPT_OK && pass && is_new)
                status = check_part(l, &c->entries[i], layer, rest);
        }
    return status;
}

/* ---- all of it */

static ckpt_status look(looking *l)
{
    const ckpt__canon *c = l->m->canon;
    size_t of[KINDS] = {0};
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && i < c->count; i++)
        if (ckpt__megatron_has_key(l->m, &c->entries[i]) && !c->entries[i].state_key.data)
            status = look_at(l, c->entries[i].name);
    for (size_t i = 0; i < l->count; i++)
        of[l->layers[i]]++;
    l->m->meg = (ckpt__meg_model){.apart = l->m->options.layers_apart || (of[EXPERTS] && of[DENSE]),
                                  .norm_alone = of[EXPERTS] && l->fused,
                                  .layers = (int64_t)l->count};
    if (status < 0 || !l->m->meg.apart)
        return status;
    if (!of[NO_LAYER])
        return check_apart(l);
    size_t none = 0;
    while (l->layers[none] != NO_LAYER)
        none++;
    return ckpt__fail(l->err, CKPT_E_MISMATCH, l->m->src, "the model has no layer %zu, and %zu behind it", none,
                      l->count - none - 1);
}

/* Layers with experts and layers without some are kept apart: so does megatron-core, where moe_layer_freq tells them apart. */
ckpt_status ckpt__megatron_look(ckpt__migration *m, ckpt_error *err)
{
    looking l = {.m = m, .has = ckpt__hash_new(64), .all = ckpt__hash_new(64), .err = err};
    ckpt_status status = l.has && l.all ? look(&l) : no_memory(&l);
    ckpt__hash_free(l.has);
    ckpt__hash_free(l.all);
    free(l.layers);
    return status;
}
