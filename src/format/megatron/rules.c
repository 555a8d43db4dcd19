/* format/megatron/rules.c - how a parameter is cut over the tensor-parallel ranks: by its name, as the layers of Megatron are built
 * (megatron/core/tensor_parallel/layers.py, megatron/core/transformer, and megatron/model before that), and by what the layers
 * have said of it (set_tensor_model_parallel_attributes). */
#include "codec/pickle.h"
#include "format/megatron/ranks.h"

typedef enum kind { UNKNOWN, COLUMN, GATED, ROW, WHOLE } kind;

/* By the layer that has it. Of COLUMN weight and bias are cut by their rows; of ROW the weight is by its columns, and each rank has
 * the bias. GATED is COLUMN, of two halves where there is a gate. */
static const struct {
    const char *layers; /* names with a blank between them */
    kind kind;
} rules[] = {
    {"linear_qkv linear_q linear_kv query_key_value query key_value linear_q_proj linear_q_up_proj linear_kv_up_proj "
     "word_embeddings word_embeddings_for_head output_layer",
     COLUMN},
    {"linear_fc1 dense_h_to_4h", GATED},
    {"linear_proj linear_fc2 dense_4h_to_h", ROW},
    {"position_embeddings tokentype_embeddings input_layernorm pre_mlp_layernorm post_attention_layernorm final_layernorm "
     "pre_cross_attn_layernorm post_cross_attn_layernorm pre_attention_layernorm q_layernorm k_layernorm q_norm k_norm input_norm "
     "final_norm post_attention_norm post_inter_attention_layernorm enorm hnorm router linear_q_down_proj linear_kv_down_proj "
     "pooler binary_head",
     WHOLE},
};

/* The component that ends at `end`, without its dots; *end becomes the place before it. */
static ckpt_str take_last(ckpt_str name, size_t *end)
{
    size_t at = *end;
    while (at > 0 && name.data[at - 1] != '.')
        at--;
    const ckpt_str last = {name.data + at, *end - at};
    *end = at > 0 ? at - 1 : 0;
    return last;
}

/* "weight", and "weight3" of a grouped layer, which has one for each expert. */
static bool is_one(ckpt_str s, const char *word)
{
    const size_t n = strlen(word);
    if (s.size < n || memcmp(s.data, word, n) != 0)
        return false;
    for (size_t i = n; i < s.size; i++)
        if (s.data[i] < '0' || s.data[i] > '9')
            return false;
    return true;
}

static kind kind_of(ckpt_str layer, ckpt_str above)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (ckpt__str_among(layer, rules[i].layers))
            return rules[i].kind;
    if (ckpt__str_is(layer, "dense") && ckpt__str_holds(above, "attention"))
        return ROW;
    return ckpt__str_is(layer, "dense") && (ckpt__str_is(above, "pooler") || ckpt__str_is(above, "lm_head")) ? WHOLE
                                                                                                             : UNKNOWN;
}

ckpt__meg_cut ckpt__meg_cut_by_name(ckpt_str name, bool gated)
{
    size_t end = name.size;
    const ckpt_str what = take_last(name, &end), layer = take_last(name, &end), above = take_last(name, &end);
    const bool weight = is_one(what, "weight"), bias = is_one(what, "bias");
    const kind k = kind_of(layer, above);
    if (ckpt__str_is(what, "layer_norm_weight") || ckpt__str_is(what, "layer_norm_bias") || (k == WHOLE && layer.size))
        return (ckpt__meg_cut){true, -1, 1};
    if (k == UNKNOWN || (!weight && !bias))
        return (ckpt__meg_cut){false, -1, 1};
    if (k == ROW)
        return (ckpt__meg_cut){true, weight ? 1 : -1, 1};
    return (ckpt__meg_cut){true, 0, k == GATED && gated ? 2 : 1};
}

bool ckpt__meg_is_buffer(ckpt_str name)
{
    return ckpt__str_among(ckpt__str_last(name),
                           "inv_freq expert_bias local_tokens_per_expert running_mean running_var "
                           "num_batches_tracked");
}

bool ckpt__meg_layer(ckpt_str name, size_t *at, size_t *size, int64_t *layer)
{
    static const char word[] = "layers.";
    const size_t n = sizeof word - 1;
    for (size_t i = 0; i + n < name.size; i++) {
        if (memcmp(name.data + i, word, n) != 0 || (i > 0 && name.data[i - 1] != '.'))
            continue;
        *at = i + n;
        *size = 0;
        while (*at + *size < name.size && name.data[*at + *size] != '.')
            ++*size;
        return *at + *size < name.size && *size <= 9 && ckpt__parse_i64(name.data + *at, *size, layer) && *layer >= 0;
    }
    return false;
}

/* "decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight", and "decoder.layers.0.mlp.experts.linear_fc1.weight3" */
bool ckpt__meg_expert(ckpt_str name, bool *experts, size_t *at, size_t *size, int64_t *expert)
{
    static const char of[] = ".experts.", local[] = "local_experts.";
    const char *found = name.data ? memmem(name.data, name.size, of, sizeof of - 1) : NULL;
    *experts = found != NULL;
    if (!found)
        return false;
    *at = (size_t)(found - name.data) + sizeof of - 1;
    *size = 0;
    if (name.size - *at > sizeof local - 1 && memcmp(name.data + *at, local, sizeof local - 1) == 0) {
        *at += sizeof local - 1;
        while (*at + *size < name.size && name.data[*at + *size] != '.')
            ++*size;
    } else {
        *at = name.size;
        while (*at > 0 && name.data[*at - 1] >= '0' && name.data[*at - 1] <= '9') {
            --*at;
            ++*size;
        }
        const ckpt_str before = {name.data, *at};
        if (!ckpt__str_ends(before, "linear_fc1.weight") && !ckpt__str_ends(before, "linear_fc1.bias") &&
            !ckpt__str_ends(before, "linear_fc2.weight") && !ckpt__str_ends(before, "linear_fc2.bias"))
            return false; /* weight1 and weight2 of GroupedMLP are numbers of layers */
    }
    return *size > 0 && *size <= 9 && ckpt__parse_i64(name.data + *at, *size, expert) && *expert >= 0;
}

/* ---- what was kept with the tensor: torch._tensor._rebuild_from_type_v2(function, type, arguments, state) */

static const ckpt__pickle_node *state_of(const ckpt_value *v)
{
    const ckpt__pickle_node *node = v && v->kind == CKPT_V_TENSOR ? v->origin : NULL;
    const ckpt__pickle_object *o = node && node->kind == CKPT__P_OBJECT ? node->u.object : NULL;
    if (!o || !o->callable || o->callable->kind != CKPT__P_GLOBAL || !o->args || o->args->kind != CKPT__P_TUPLE ||
        o->args->u.list.count != 4 || !ckpt__str_is(o->callable->u.global->name, "_rebuild_from_type_v2"))
        return NULL;
    const ckpt__pickle_node *state = o->args->u.list.items[3];
    if (state->kind == CKPT__P_TUPLE && state->u.list.count > 0)
        state = state->u.list.items[0];
    return state->kind == CKPT__P_DICT ? state : NULL;
}

static int64_t int_of(const ckpt__pickle_node *state, const char *key, int64_t other)
{
    const ckpt__pickle_node *n = ckpt__pickle_get(state, key);
    return n && n->kind == CKPT__P_INT ? n->u.integer : other;
}

ckpt__meg_cut ckpt__meg_cut_said(const ckpt_value *v)
{
    const ckpt__pickle_node *state = state_of(v),
                            *parallel = state ? ckpt__pickle_get(state, "tensor_model_parallel") : NULL;
    ckpt__meg_cut cut = {false, -1, 1};
    if (!parallel || parallel->kind != CKPT__P_BOOL)
        return cut;
    const int64_t dim = int_of(state, "partition_dim", -1), blocks = int_of(state, "partition_stride", 1);
    cut.known = !parallel->boolean || ((dim == 0 || dim == 1) && blocks > 0 && blocks <= 64);
    if (cut.known && parallel->boolean) {
        cut.dim = (int)dim;
        cut.blocks = blocks;
    }
    return cut;
}
