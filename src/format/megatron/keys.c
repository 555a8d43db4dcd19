/* format/megatron/keys.c - the key that a parameter of the GPT model has in torch-dist: the layers of a stack are one tensor there, and
 * norms have the names that they have in layers which fuse them with the linear layer behind.
 *
 *     decoder.layers.3.input_layernorm.weight        layer 3 of decoder.layers.self_attention.linear_qkv.layer_norm_weight
 *     decoder.layers.3.mlp.linear_fc2.weight         layer 3 of decoder.layers.mlp.linear_fc2.weight
 *     decoder.layers.3.mlp.experts.local_experts.5.linear_fc2.weight, and decoder.layers.3.mlp.experts.linear_fc2.weight5 of a grouped layer
 *                                                    layer 3, expert 5 of decoder.layers.mlp.experts.experts.linear_fc2.weight
 *     embedding.word_embeddings.weight               the same
 *
 * Where the layers are kept apart (moe_layer_freq is a list, or more than 1: some layers have no experts) the number stays in the key, and
 * experts alone are stacked: decoder.layers.3.mlp.experts.experts.linear_fc2.weight. The norm in front of experts is fused with nothing. In
 * layers of Transformer Engine it has its own name as the key; megatron-core's own layers give it the name that it would have in front of a
 * linear layer, as they do with all their norms.
 *
 * [megatron/core/transformer/transformer_block.py: sharded_state_dict; megatron/core/models/gpt/gpt_layer_specs.py:
 * sharded_state_dict_keys_map; megatron/core/transformer/moe/experts.py: sharded_state_dict] */
#include "format/megatron/ranks.h"

#include <stdio.h>

static const char *const single[] = {"embedding.word_embeddings.weight",
                                     "embedding.position_embeddings.weight",
                                     "decoder.final_layernorm.weight",
                                     "decoder.final_layernorm.bias",
                                     "output_layer.weight",
                                     "output_layer.bias"};

/* Of a layer: its name there, and in the key where that is another one. */
static const struct {
    const char *name, *key;
} layered[] = {{"input_layernorm.weight", "self_attention.linear_qkv.layer_norm_weight"},
               {"input_layernorm.bias", "self_attention.linear_qkv.layer_norm_bias"},
               {"self_attention.linear_qkv.layer_norm_weight", NULL},
               {"self_attention.linear_qkv.layer_norm_bias", NULL},
               {"self_attention.linear_qkv.weight", NULL},
               {"self_attention.linear_qkv.bias", NULL},
               {"self_attention.linear_proj.weight", NULL},
               {"self_attention.linear_proj.bias", NULL},
               {"self_attention.q_layernorm.weight", NULL},
               {"self_attention.q_layernorm.bias", NULL},
               {"self_attention.k_layernorm.weight", NULL},
               {"self_attention.k_layernorm.bias", NULL},
               {"pre_mlp_layernorm.weight", "mlp.linear_fc1.layer_norm_weight"},
               {"pre_mlp_layernorm.bias", "mlp.linear_fc1.layer_norm_bias"},
               {"mlp.linear_fc1.layer_norm_weight", NULL},
               {"mlp.linear_fc1.layer_norm_bias", NULL},
               {"mlp.linear_fc1.weight", NULL},
               {"mlp.linear_fc1.bias", NULL},
               {"mlp.linear_fc2.weight", NULL},
               {"mlp.linear_fc2.bias", NULL},
               {"mlp.router.weight", NULL},
               {"mlp.router.bias", NULL},
               {"mlp.router.expert_bias", NULL},
               {"mlp.shared_experts.linear_fc1.weight", NULL},
               {"mlp.shared_experts.linear_fc2.weight", NULL},
               {"mlp.shared_experts.gate_weight", NULL}};

static const char LAYERS[] = "decoder.layers.", EXTRA[] = "._extra_state", OF_EXPERTS[] = "mlp.experts.",
                  EXPERTS[] = "mlp.experts.experts.";
enum { LAYERS_SIZE = sizeof LAYERS - 1, MOST_DIGITS = 6 };

/* "decoder.layers.3.mlp...": the number, and what is behind its dot. False: it is of no layer. */
static bool split(ckpt_str name, int64_t *layer, ckpt_str *rest)
{
    size_t digits = 0;
    if (!ckpt__str_begins_more(name, LAYERS))
        return false;
    const char *at = name.data + LAYERS_SIZE;
    const size_t left = name.size - LAYERS_SIZE;
    while (digits < left && at[digits] >= '0' && at[digits] <= '9')
        digits++;
    if (digits == 0 || digits > MOST_DIGITS || digits + 1 >= left || at[digits] != '.' ||
        (digits > 1 && at[0] == '0') || !ckpt__parse_i64(at, digits, layer))
        return false;
    *rest = (ckpt_str){at + digits + 1, left - digits - 1};
    return true;
}

/* "mlp.experts.local_experts.3.linear_fc1.weight", and "mlp.experts.linear_fc1.weight3": expert 3, "linear_fc1.weight". False: it is of no
 * single expert. */
static bool split_expert(ckpt_str rest, int64_t *expert, ckpt_str *part)
{
    static const char local[] = "mlp.experts.local_experts.";
    size_t at, size;
    bool experts;
    if (!ckpt__str_begins(rest, OF_EXPERTS) || !ckpt__meg_expert(rest, &experts, &at, &size, expert) ||
        (size > 1 && rest.data[at] == '0'))
        return false;
    const size_t head = sizeof OF_EXPERTS - 1, end = at + size;
    if (!ckpt__str_begins(rest, local))
        *part = (ckpt_str){rest.data + head, at - head};
    else if (end + 1 < rest.size)
        *part = (ckpt_str){rest.data + end + 1, rest.size - end - 1};
    else
        return false;
    return true;
}

static bool is_expert_part(ckpt_str part)
{
    return ckpt__str_among(part, "linear_fc1.weight linear_fc1.bias linear_fc2.weight linear_fc2.bias");
}

/* The key is of all layers, or of the one where they are kept apart. */
static bool put_key(const ckpt__meg_model *model, const char *group, ckpt_str rest, ckpt__meg_key *out)
{
    char layer[24] = "";
    if (model->apart)
        snprintf(layer, sizeof layer, "%lld.", (long long)out->layer);
    int n = snprintf(out->text, sizeof out->text, "%s%s%s%.*s", LAYERS, layer, group, (int)rest.size, rest.data);
    return rest.size < sizeof out->text && n < (int)sizeof out->text;
}

bool ckpt__meg_key_of(ckpt_str name, const ckpt__meg_model *model, ckpt__meg_key *out)
{
    ckpt_str rest, part;
    out->layer = out->expert = -1;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (ckpt__str_is(name, single[i]))
            return snprintf(out->text, sizeof out->text, "%s", single[i]) < (int)sizeof out->text;
    if (!split(name, &out->layer, &rest))
        return false;
    if (split_expert(rest, &out->expert, &part))
        return is_expert_part(part) && put_key(model, EXPERTS, part, out);
    if (model->norm_alone && ckpt__str_begins(rest, "pre_mlp_layernorm."))
        return put_key(model, "", rest, out);
    for (size_t i = 0; i < sizeof layered / sizeof *layered; i++)
        if (ckpt__str_is(rest, layered[i].name))
            return put_key(model, "", ckpt__s(layered[i].key ? layered[i].key : layered[i].name), out);
    return false;
}

bool ckpt__meg_extra(ckpt_str name, const ckpt__meg_model *model, ckpt__meg_key *out)
{
    ckpt_str rest, part;
    out->expert = -1;
    if (!ckpt__str_ends(name, EXTRA) || !split(name, &out->layer, &rest))
        return false;
    if (split_expert(rest, &out->expert, &part))
        return put_key(model, EXPERTS, part, out);
    return !ckpt__str_begins(rest, OF_EXPERTS) &&
           put_key(model, "", rest, out); /* one of a group of experts has no key */
}

bool ckpt__meg_tells(ckpt_str name, int64_t *layer, bool *experts, bool *fused)
{
    ckpt_str rest;
    if (!split(name, layer, &rest))
        return false;
    *experts = ckpt__str_begins(rest, OF_EXPERTS) || ckpt__str_begins(rest, "mlp.router.");
    *fused = ckpt__str_begins(rest, "self_attention.linear_qkv.layer_norm_");
    return true;
}

bool ckpt__meg_is_expert_key(ckpt_str key)
{
    return ckpt__str_begins(key, LAYERS) && ckpt__str_holds(key, ".mlp.experts.experts.");
}

bool ckpt__meg_is_layer_key(ckpt_str key)
{
    int64_t layer;
    ckpt_str rest;
    return ckpt__str_begins(key, LAYERS) && !split(key, &layer, &rest);
}

bool ckpt__meg_extra_of(ckpt_str key, char *extra, size_t size)
{
    static const char weight[] = ".weight";
    static const char *const linear[] = {".self_attention.linear_qkv",
                                         ".self_attention.linear_proj",
                                         ".mlp.linear_fc1",
                                         ".mlp.linear_fc2",
                                         ".mlp.experts.experts.linear_fc1",
                                         ".mlp.experts.experts.linear_fc2",
                                         ".mlp.shared_experts.linear_fc1",
                                         ".mlp.shared_experts.linear_fc2"};
    if (!ckpt__str_begins(key, LAYERS) || !ckpt__str_ends(key, weight))
        return false;
    const ckpt_str module = {key.data, key.size - (sizeof weight - 1)};
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        if (ckpt__str_ends(module, linear[i]))
            return module.size < size &&
                   snprintf(extra, size, "%.*s%s", (int)module.size, module.data, EXTRA) < (int)size;
    return false;
}
