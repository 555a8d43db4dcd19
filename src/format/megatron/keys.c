/* format/megatron/keys.c - the key that a parameter of the GPT model has in torch-dist: the layers of a stack are one tensor there, and
 * norms have the names that they have in layers which fuse them with the linear layer behind.
 *
 *     decoder.layers.3.input_layernorm.weight        layer 3 of decoder.layers.self_attention.linear_qkv.layer_norm_weight
 *     decoder.layers.3.mlp.linear_fc2.weight         layer 3 of decoder.layers.mlp.linear_fc2.weight
 *     embedding.word_embeddings.weight               the same
 *
 * [megatron/core/transformer/transformer_block.py: sharded_state_dict; megatron/core/models/gpt/gpt_layer_specs.py:
 * sharded_state_dict_keys_map] */
#include "format/megatron/megatron.h"

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
               {"mlp.linear_fc2.bias", NULL}};

static const char LAYERS[] = "decoder.layers.", EXTRA[] = "._extra_state";
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

bool ckpt__meg_key(ckpt_str name, char *key, size_t size, int64_t *layer)
{
    ckpt_str rest;
    *layer = -1;
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        if (ckpt__str_is(name, single[i]))
            return snprintf(key, size, "%s", single[i]) < (int)size;
    if (!split(name, layer, &rest))
        return false;
    for (size_t i = 0; i < sizeof layered / sizeof *layered; i++)
        if (ckpt__str_is(rest, layered[i].name))
            return snprintf(key, size, "%s%s", LAYERS, layered[i].key ? layered[i].key : layered[i].name) < (int)size;
    return false;
}

bool ckpt__meg_extra(ckpt_str name, char *key, size_t size, int64_t *layer)
{
    ckpt_str rest;
    if (!ckpt__str_ends(name, EXTRA) || !split(name, layer, &rest) || rest.size >= size)
        return false;
    return snprintf(key, size, "%s%.*s", LAYERS, (int)rest.size, rest.data) < (int)size;
}

bool ckpt__meg_extra_of(ckpt_str key, char *extra, size_t size)
{
    static const char *const linear[] = {"self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1",
                                         "mlp.linear_fc2"};
    char weight[80];
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++) {
        snprintf(weight, sizeof weight, "%s%s.weight", LAYERS, linear[i]);
        if (ckpt__str_is(key, weight))
            return snprintf(extra, size, "%s%s%s", LAYERS, linear[i], EXTRA) < (int)size;
    }
    return false;
}
