/* anatomy/canon_known.c - in which order transformers defines the modules of its models, by the model_type of a config.json.
 * Only what names and shapes leave open is asked here. Taken from the models' own named_parameters() in transformers 5,
 * where releases before agree; modules whose order has changed between releases are left out. */
#include "anatomy/canon_work.h"

/* Siblings in their order, lists parted by '|'. */
#define LLAMA                                                                                                          \
    "embed_tokens layers norm|gate_proj up_proj down_proj|model lm_head|model score|"                                  \
    "q_proj k_proj v_proj o_proj q_norm k_norm|"                                                                       \
    "self_attn mlp input_layernorm post_attention_layernorm pre_feedforward_layernorm post_feedforward_layernorm"
#define BERT                                                                                                           \
    "attention intermediate output|dense LayerNorm|embeddings encoder pooler|query key value|self output|"             \
    "bert classifier|bert cls|"                                                                                        \
    "transform decoder|roberta lm_head|dense out_proj|dense layer_norm decoder"

static const struct {
    const char *type, *siblings;
} known[] = {
    {"gpt2", "c_attn c_proj|c_fc c_proj|ln_1 attn ln_2 mlp|transformer lm_head|transformer score|wte wpe h ln_f"},
    {"gpt_bigcode",
     "c_attn c_proj|c_fc c_proj|ln_1 attn ln_2 mlp|transformer lm_head|transformer score|wte wpe h ln_f"},
    {"llama", LLAMA},
    {"mistral", LLAMA},
    {"qwen2", LLAMA},
    {"qwen3", LLAMA},
    {"gemma", LLAMA},
    {"gemma2", LLAMA},
    {"stablelm", LLAMA},
    {"olmo", LLAMA},
    {"phi", "embed_tokens layers final_layernorm|fc1 fc2|model lm_head|model score|q_proj k_proj v_proj dense|"
            "self_attn mlp input_layernorm"},
    {"phi3", "embed_tokens layers norm|gate_up_proj down_proj|model lm_head|model score|o_proj qkv_proj|"
             "self_attn mlp input_layernorm post_attention_layernorm"},
    {"starcoder2", "c_fc c_proj|embed_tokens layers norm|model lm_head|q_proj k_proj v_proj o_proj|"
                   "self_attn mlp input_layernorm post_attention_layernorm"},
    {"gpt_neox", "dense_h_to_4h dense_4h_to_h|embed_in layers final_layer_norm|gpt_neox lm_head|gpt_neox embed_out|"
                 "gpt_neox score|input_layernorm post_attention_layernorm attention mlp|query_key_value dense"},
    {"gptj",
     "fc_in fc_out|k_proj v_proj q_proj out_proj|ln_1 attn mlp|transformer lm_head|transformer score|wte h ln_f"},
    {"opt",
     "embed_tokens embed_positions final_layer_norm layers|k_proj v_proj q_proj out_proj|model lm_head|model score|"
     "self_attn self_attn_layer_norm fc1 fc2 final_layer_norm"},
    {"bloom",
     "dense_h_to_4h dense_4h_to_h|input_layernorm self_attention post_attention_layernorm mlp|query_key_value dense|"
     "transformer lm_head|transformer score|word_embeddings word_embeddings_layernorm h ln_f"},
    {"bert", BERT "|word_embeddings position_embeddings token_type_embeddings LayerNorm"},
    {"roberta", BERT},
    {"xlm-roberta", BERT},
    {"distilbert",
     "attention sa_layer_norm ffn output_layer_norm|distilbert pre_classifier classifier|embeddings transformer|"
     "lin1 lin2|q_lin k_lin v_lin out_lin|word_embeddings position_embeddings LayerNorm"},
    {"t5",
     "DenseReluDense layer_norm|EncDecAttention layer_norm|SelfAttention layer_norm|embed_tokens block final_layer_norm|"
     "q k v o relative_attention_bias|shared encoder decoder lm_head|wi wo|wi_0 wi_1 wo"},
    {"bart",
     "embed_tokens embed_positions layers layernorm_embedding|k_proj v_proj q_proj out_proj|model classification_head|"
     "model lm_head|self_attn self_attn_layer_norm encoder_attn encoder_attn_layer_norm fc1 fc2 final_layer_norm|"
     "shared encoder decoder"},
};

const char *ckpt__known_siblings(const ckpt__builder *b)
{
    const ckpt__tree *t = &b->tree;
    size_t config = ckpt__canon_in_files(b) ? ckpt__tree_child(t, 0, "config.json") : SIZE_MAX;
    size_t type = config != SIZE_MAX ? ckpt__tree_child(t, config, "model_type") : SIZE_MAX;
    for (size_t i = 0; type != SIZE_MAX && i < sizeof known / sizeof known[0]; i++)
        if (t->nodes[type].value->kind == CKPT_V_STR && ckpt__str_is(t->nodes[type].value->text, known[i].type))
            return known[i].siblings;
    return NULL;
}

/* Where the word stands in a list of words that '|' or the end closes; SIZE_MAX: it is not in it. */
static size_t position(const char *list, ckpt_str word)
{
    size_t at = 0;
    while (*list && *list != '|') {
        size_t n = strcspn(list, " |");
        if (n == word.size && memcmp(list, word.data, n) == 0)
            return at;
        at++;
        list += n + (list[n] == ' ');
    }
    return SIZE_MAX;
}

int ckpt__known_order(const char *siblings, ckpt_str a, ckpt_str b)
{
    for (const char *list = siblings; list; list = strchr(list, '|')) {
        list += *list == '|';
        size_t x = position(list, a), y = position(list, b);
        if (x != SIZE_MAX && y != SIZE_MAX)
            return x < y ? -1 : x > y;
    }
    return 0;
}
