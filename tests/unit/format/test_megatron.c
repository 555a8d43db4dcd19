/* Checkpoints of Megatron, a file for each tensor-parallel rank and pipeline stage: the parts are put together by their places, and
 * what is missing, cut off or of another run is named. Each element says which tensor it is of, and where in the whole. */
#include <ckpt/doctor.h>
#include <ckpt/reader.h>
#include <ckpt/verify.h>
#define READER_FORMAT "megatron"
#include "../reader_checks.h"
#include "../scarce_memory.h"

enum { HIDDEN = 4, VOCAB = 8, FFN = 6 };

typedef enum how { WHOLE, ROWS, COLUMNS, GATED } how;

/* In the model's order: FIRST and LAST are in one stage alone, the others in each layer. EXPERT: where there are experts; each
 * expert-parallel rank has two of them. */
static const struct {
    enum { EACH, FIRST, LAST, EXPERT } where;
    const char *name, *old;
    int rows, columns; /* columns 0: of one dimension */
    how how;
} params[] = {
    {FIRST, "embedding.word_embeddings.weight", "language_model.embedding.word_embeddings.weight", VOCAB, HIDDEN, ROWS},
    {EACH, "input_layernorm.weight", "input_layernorm.weight", HIDDEN, 0, WHOLE},
    {EACH, "self_attention.linear_proj.weight", "self_attention.dense.weight", HIDDEN, HIDDEN, COLUMNS},
    {EACH, "self_attention.linear_proj.bias", "self_attention.dense.bias", HIDDEN, 0, WHOLE},
    {EACH, "self_attention.linear_qkv.weight", "self_attention.query_key_value.weight", 12, HIDDEN, ROWS},
    {EACH, "self_attention.linear_qkv.bias", "self_attention.query_key_value.bias", 12, 0, ROWS},
    {EACH, "mlp.linear_fc1.weight", "mlp.dense_h_to_4h.weight", 2 * FFN, HIDDEN, GATED},
    {EACH, "mlp.linear_fc2.weight", "mlp.dense_4h_to_h.weight", HIDDEN, FFN, COLUMNS},
    {EXPERT, "mlp.experts.local_experts.0.linear_fc1.weight", "", 2 * FFN, HIDDEN, GATED},
    {EXPERT, "mlp.experts.local_experts.0.linear_fc2.weight", "", HIDDEN, FFN, COLUMNS},
    {EXPERT, "mlp.experts.local_experts.1.linear_fc1.weight", "", 2 * FFN, HIDDEN, GATED},
    {EXPERT, "mlp.experts.local_experts.1.linear_fc2.weight", "", HIDDEN, FFN, COLUMNS},
    {LAST, "decoder.final_layernorm.weight", "language_model.encoder.final_layernorm.weight", HIDDEN, 0, WHOLE},
    {LAST, "output_layer.weight", "language_model.output_layer.weight", VOCAB, HIDDEN, ROWS}};
enum { PARAMS = sizeof params / sizeof *params };

/* What differs from file to file. */
typedef struct part {
    int tp, pp, ep, tps, pps, eps; /* eps 0: there are no experts */
    int vp, vps;                   /* of an interleaved pipeline, whose parts have a layer each; vps 0: it is none */
    int iteration, seed;
    bool old, half, plain;                   /* old names; bfloat16 with masters; fc1 without a gate */
    bool distributed, no_args;               /* the optimizer is elsewhere */
    int rank;                                /* in the arguments; 0: by its place */
    const char *extra;                       /* a parameter of this name besides, of which each rank has another */
    const char *args;                        /* one more argument, which is 2 */
    bool wrong_master, wrong_group, drifted; /* drifted: rank 1 has another norm */
    /* The group of the experts is not said to be one; num_experts is 3; experts are not cut; nothing says that the pipeline is interleaved. */
    bool hidden, few, whole_experts, untold;
} part;

/* Of one kind (0: the weights), parameter and layer, element i of the whole. */
static float value_of(int kind, int param, int layer, int i)
{
    return (float)(kind * 100000 + layer * 10000 + param * 200 + i);
}

static int layers_of(const part *p)
{
    return p->pps * (p->vps ? p->vps : 1);
}

/* The layer of the part of the model that is written. */
static int layer_of(const part *p)
{
    return p->vp * p->pps + p->pp;
}

/* In each layer, or only in the first or the last one. */
static bool is_there(int param, const part *p, int layer)
{
    return params[param].where == EACH || (params[param].where == EXPERT && p->eps) ||
           (params[param].where == FIRST && layer == 0) || (params[param].where == LAST && layer == layers_of(p) - 1);
}

/* What tells the tensors of several layers and experts apart. */
static int number_of(int param, const part *p, int layer)
{
    const char *local = strstr(params[param].name, "local_experts.");
    return local ? 2 * (2 * p->ep + (local[14] - '0')) + layer : layer;
}

static const char *name_of(int param, const part *p, int layer, int ep)
{
    static char names[4][120];
    static int next;
    const char *own = p->old ? params[param].old : params[param].name;
    if (params[param].where == FIRST || params[param].where == LAST)
        return own;
    char *out = names[next++ % 4];
    snprintf(out, sizeof names[0], "%s.layers.%d.%s", p->old ? "language_model.encoder" : "decoder", layer, own);
    char *local = strstr(out, "local_experts.");
    if (local)
        local[14] = (char)(local[14] + 2 * ep);
    return out;
}

/* The place in the whole of element (i, k) of a rank's part of rows x columns. */
static int place_of(int param, const part *p, int rows, int columns, int i, int k)
{
    const int all = params[param].columns ? params[param].columns : 1, half = rows / 2;
    const bool gated = params[param].how == GATED && !p->plain;
    int row = i, column = k;
    if (gated)
        row = i < half ? p->tp * half + i : params[param].rows / 2 + p->tp * half + (i - half);
    else if (params[param].how == ROWS || params[param].how == GATED)
        row = p->tp * rows + i;
    else if (params[param].how == COLUMNS)
        column = p->tp * columns + k;
    return row * all + column;
}

/* ---- a tensor with what was said of its cut */

static void put_bool(bytes *b, bool value)
{
    put(b, value ? "\x88" : "\x89", 1);
}

static void put_arguments(bytes *b, const view *v)
{
    PUT(b, "(");
    put_storage(b, v->class_name, v->key, v->location, v->numel);
    put_int(b, v->offset);
    put_ints(b, v->shape, v->ndim);
    put_ints(b, v->strides, v->stride_count);
    PUT(b, "\x89");
    put_ordered_dict(b);
    PUT(b, "t");
}

static void put_said(bytes *b, const view *v, int dim, int stride)
{
    put_global(b, "torch._tensor", "_rebuild_from_type_v2");
    PUT(b, "(");
    put_global(b, "torch._utils", "_rebuild_tensor_v2");
    put_global(b, "torch", "Tensor");
    put_arguments(b, v);
    PUT(b, "}(");
    put_str(b, "tensor_model_parallel");
    put_bool(b, true);
    put_str(b, "partition_dim");
    put_int(b, dim);
    put_str(b, "partition_stride");
    put_int(b, stride);
    PUT(b, "utR");
}

/* kind 0 of a half: bfloat16, whose bits count; 3: a master. */
static void put_part(torch_file *t, const part *p, int param, int layer, int kind)
{
    const bool half = kind == 0 && p->half;
    const how h = params[param].how;
    const int rows = params[param].rows / (h == ROWS || h == GATED ? p->tps : 1),
              all = params[param].columns ? params[param].columns : 1, columns = all / (h == COLUMNS ? p->tps : 1);
    char key[16];
    view v = {.class_name = half ? "BFloat16Storage" : "FloatStorage", .key = key, .location = "cpu"};
    v.ndim = v.stride_count = params[param].columns ? 2 : 1;
    v.shape[0] = rows;
    v.shape[1] = columns;
    v.strides[0] = v.ndim == 2 ? columns : 1;
    v.strides[1] = 1;
    v.numel = (int64_t)rows * columns;
    snprintf(key, sizeof key, "%d", t->count);
    ck_assert(t->count < TORCH_TENSORS && v.numel <= 64);
    t->numel[t->count] = (size_t)v.numel / (half ? 2 : 1);
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < columns; k++) {
            const float own = kind == 0 && param == 1 && p->drifted && p->tp + p->ep == 1 ? 1 : 0,
                        value = own + value_of(kind, param, number_of(param, p, layer),
                                               place_of(param, p, rows, columns, i, k));
            const uint16_t bits = (uint16_t)value;
            if (half)
                memcpy((char *)t->data[t->count] + 2 * (i * columns + k), &bits, 2);
            else
                t->data[t->count][i * columns + k] = value;
        }
    t->count++;
    if (kind == 3 && h != WHOLE)
        put_said(&t->pickle, &v, (h == COLUMNS) != (p->wrong_master && param == 2), h == GATED && !p->plain ? 2 : 1);
    else
        put_tensor(&t->pickle, &v);
}

/* ---- a rank's file */

static void put_model(torch_file *t, const part *p)
{
    bytes *b = &t->pickle;
    put_str(b, p->vps ? at("model%d", p->vp) + strlen(folder) + 1 : "model");
    PUT(b, "}(");
    for (int i = 0; i < PARAMS; i++)
        if (is_there(i, p, layer_of(p))) {
            put_str(b, name_of(i, p, 0, 0));
            put_part(t, p, i, layer_of(p), 0);
        }
    if (p->extra) {
        put_str(b, p->extra);
        torch_tensor(t, 1, 4, 0, (float)(p->tp + 1));
    }
    put_str(b, "decoder.layers.0.mlp.linear_fc1._extra_state");
    PUT(b, "Nu");
}

static bool is_decayed(int param)
{
    return params[param].columns > 0;
}

/* Which parameters a group, or a list of masters, has. */
typedef struct choice {
    bool decayed, experts;
} choice;

/* Goes on to the next one of the group, part by part of the model: false where there is none. Begins with *i -1 and part->vp 0. */
static bool next_of(choice c, part *p, int *i)
{
    for (;;) {
        if (++*i == PARAMS) {
            *i = 0;
            if (++p->vp >= (p->vps ? p->vps : 1))
                return false;
        }
        if (is_there(*i, p, layer_of(p)) && is_decayed(*i) == c.decayed && (params[*i].where == EXPERT) == c.experts)
            return true;
    }
}

static void put_group(torch_file *t, part p, choice c, int *id)
{
    bytes *b = &t->pickle;
    int i = -1;
    PUT(b, "}(");
    put_str(b, "wd_mult");
    torch_float(t, c.decayed ? 1 : 0);
    put_str(b, "is_expert_parallel");
    put_bool(b, c.experts && !p.hidden);
    put_str(b, "lr");
    torch_float(t, 0.5);
    put_str(b, "params");
    PUT(b, "](");
    while (next_of(c, &p, &i))
        if (!(p.wrong_group && i == 4))
            put_int(b, (*id)++);
    PUT(b, "eu");
}

static void put_masters(torch_file *t, const part *whole, bool experts)
{
    bytes *b = &t->pickle;
    put_str(b, "fp32_from_fp16_params");
    PUT(b, "](");
    for (int decayed = 1; decayed >= (experts ? 1 : 0); decayed--) {
        part p = *whole;
        PUT(b, "](");
        for (int i = -1; next_of((choice){decayed == 1, experts}, &p, &i);)
            put_part(t, &p, i, layer_of(&p), 3);
        PUT(b, "e");
    }
    PUT(b, "e");
}

static void put_states(torch_file *t, const part *whole, bool experts)
{
    bytes *b = &t->pickle;
    int id = 0;
    put_str(b, "state");
    PUT(b, "}(");
    for (int decayed = 1; decayed >= 0; decayed--) {
        part p = *whole;
        for (int i = -1; next_of((choice){decayed == 1, experts}, &p, &i);) {
            put_int(b, id++);
            PUT(b, "}(");
            put_str(b, "exp_avg");
            put_part(t, &p, i, layer_of(&p), 1);
            put_str(b, "exp_avg_sq");
            put_part(t, &p, i, layer_of(&p), 2);
            PUT(b, "u");
        }
    }
    PUT(b, "u");
}

/* That of the parameters that all ranks have, or that of the experts, whose parameters all have weight decay. */
static void put_one(torch_file *t, const part *p, bool experts)
{
    bytes *b = &t->pickle;
    int id = 0;
    PUT(b, "}(");
    put_str(b, "optimizer");
    PUT(b, "}(");
    if (!p->distributed)
        put_states(t, p, experts);
    put_str(b, "param_groups");
    PUT(b, "](");
    put_group(t, *p, (choice){true, experts}, &id);
    if (!experts)
        put_group(t, *p, (choice){false, experts}, &id);
    PUT(b, "eu");
    if (p->half && !p->distributed)
        put_masters(t, p, experts);
    PUT(b, "u");
}

static void put_optimizer(torch_file *t, const part *p)
{
    bytes *b = &t->pickle;
    put_str(b, "optimizer");
    if (p->eps)
        PUT(b, "](");
    put_one(t, p, false);
    if (p->eps) {
        put_one(t, p, true);
        PUT(b, "e");
    }
}

static void put_pair(bytes *b, const char *key, int64_t value)
{
    put_str(b, key);
    put_int(b, value);
}

static void put_args(bytes *b, const part *p)
{
    put_str(b, "args");
    put_global(b, "argparse", "Namespace");
    PUT(b, ")\x81}(");
    put_pair(b, "num_layers", layers_of(p));
    put_pair(b, "ffn_hidden_size", p->plain ? 2 * FFN : FFN);
    put_pair(b, "padded_vocab_size", VOCAB);
    put_pair(b, "vocab_size", VOCAB - 2);
    put_pair(b, "tensor_model_parallel_size", p->tps);
    put_pair(b, "pipeline_model_parallel_size", p->pps);
    if (p->eps) {
        put_pair(b, "expert_model_parallel_size", p->eps);
        put_pair(b, "num_experts", p->few ? 3 : 2 * p->eps);
        put_pair(b, "expert_tensor_parallel_size", p->whole_experts ? 1 : p->tps);
        put_pair(b, "moe_ffn_hidden_size", FFN);
    }
    if (p->vps && !p->untold)
        put_pair(b, "virtual_pipeline_model_parallel_size", p->vps);
    const int ranks = (p->eps ? p->eps : 2) * p->tps;
    put_pair(b, "world_size", ranks * p->pps);
    put_pair(b, "rank", p->rank ? p->rank : p->tp + p->ep * p->tps + p->pp * ranks);
    put_pair(b, "seed", p->seed);
    if (p->args)
        put_pair(b, p->args, 2);
    put_str(b, "swiglu");
    put_bool(b, !p->plain);
    put_str(b, "use_distributed_optimizer");
    put_bool(b, p->distributed);
    PUT(b, "ub");
}

static void write_part(const char *path, part p)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    if (!p.no_args)
        put_args(b, &p);
    put_pair(b, "iteration", p.iteration);
    for (p.vp = 0; p.vp < (p.vps ? p.vps : 1); p.vp++)
        put_model(t, &p);
    p.vp = 0;
    put_optimizer(t, &p);
    put_str(b, "rng_state");
    PUT(b, "](");
    torch_tensor(t, 1, 2, 0, (float)(100 * p.tp + 10 * p.ep + p.pp));
    PUT(b, "eu");
    write_torch(path, t);
}

static const char *rank_path(const part *p, const char *file)
{
    char name[60];
    int n = snprintf(name, sizeof name, "mp_rank_%02d", p->tp);
    if (p->pps > 1)
        n += snprintf(name + n, sizeof name - (size_t)n, "_%03d", p->pp);
    if (p->eps > 1)
        snprintf(name + n, sizeof name - (size_t)n, "_%03d", p->ep);
    return at("iter_%07d/%s%s%s", p->iteration, name, *file ? "/" : "", file);
}

static const char MODEL[] = "model_optim_rng.pt";

/* {'buckets_coalesced': True, 0: {'param': ...}} */
static void write_flat(const part *p)
{
    torch_file *t = begin_torch();
    bytes *b = &t->pickle;
    PUT(b, "}(");
    put_str(b, "buckets_coalesced");
    put_bool(b, true);
    put_int(b, 0);
    PUT(b, "}(");
    put_str(b, "exp_avg");
    torch_tensor(t, 1, 6, 0, (float)(p->tp * 10 + p->pp * 100 + p->ep * 1000));
    put_str(b, "param");
    torch_tensor(t, 1, 6, 0, (float)(p->tp * 10 + p->pp * 100 + p->ep * 1000 + 1));
    PUT(b, "uu");
    write_torch(rank_path(p, "distrib_optim.pt"), t);
}

static void write_step(part p)
{
    char number[24];
    p.iteration = p.iteration ? p.iteration : 5;
    (void)mkdir(at("iter_%07d", p.iteration), 0700);
    for (int i = 0; i < p.tps * p.pps * (p.eps ? p.eps : 1); i++) {
        p.tp = i % p.tps;
        p.pp = i / p.tps % p.pps;
        p.ep = i / p.tps / p.pps;
        (void)mkdir(rank_path(&p, ""), 0700);
        write_part(rank_path(&p, MODEL), p);
        if (p.distributed)
            write_flat(&p);
    }
    snprintf(number, sizeof number, "%d", p.iteration);
    write_text(at("latest_checkpointed_iteration.txt"), number);
}

/* ---- what is read */

static const char *const kinds[] = {"", "exp_avg", "exp_avg_sq", "fp32"};
static const ckpt_role roles[] = {CKPT_ROLE_PARAM, CKPT_ROLE_EXP_AVG, CKPT_ROLE_EXP_AVG_SQ, CKPT_ROLE_MASTER};

static void expect_tensor(const part *p, int param, int layer, int kind)
{
    unsigned char content[1024];
    char name[200];
    size_t number;
    const char *own = name_of(param, p, layer, p->ep);
    snprintf(name, sizeof name, kind ? "optimizer.%s.%s" : "%s", own, kinds[kind]);
    const ckpt_tensor_info *t = tensor_named(name, &number);
    const int columns = params[param].columns ? params[param].columns : 1, n = params[param].rows * columns;
    ck_assert_int_eq(t->role, roles[kind]);
    ck_assert_uint_eq(t->ndim, params[param].columns ? 2 : 1);
    ck_assert_int_eq(t->shape[0], params[param].rows);
    ck_assert(!kind || ckpt__str_is(t->param, own));
    ck_assert_msg(ckpt_reader_read(reader, number, content, (size_t)t->nbytes, &err) == CKPT_OK, "%s", err.message);
    for (int i = 0; i < n; i++) {
        const float want = value_of(kind, param, number_of(param, p, layer), i);
        const uint16_t bits = (uint16_t)want;
        const bool same = t->dtype == CKPT_BF16 ? memcmp(content + 2 * i, &bits, 2) == 0
                                                : memcmp(content + 4 * (size_t)i, &want, 4) == 0;
        ck_assert_msg(same, "element %d of %s", i, name);
    }
}

static void expect_all(const part *whole)
{
    part p = *whole;
    for (p.ep = 0; p.ep < (p.eps ? p.eps : 1); p.ep++)
        for (int layer = 0; layer < layers_of(&p); layer++)
            for (int i = 0; i < PARAMS; i++)
                for (int kind = 0; kind < (p.distributed ? 1 : p.half ? 4 : 3); kind++)
                    if (is_there(i, &p, layer))
                        expect_tensor(&p, i, layer, kind);
}

/* ---- tests */

static const part shapes_of_runs[] = {{.tps = 1, .pps = 1},
                                      {.tps = 2, .pps = 1},
                                      {.tps = 2, .pps = 1, .plain = true},
                                      {.tps = 2, .pps = 1, .half = true},
                                      {.tps = 2, .pps = 2},
                                      {.tps = 1, .pps = 3, .half = true},
                                      {.tps = 2, .pps = 2, .half = true},
                                      {.tps = 2, .pps = 2, .old = true},
                                      {.tps = 2, .pps = 1, .half = true, .distributed = true},
                                      {.tps = 1, .pps = 2, .vps = 2, .half = true},
                                      {.tps = 2, .pps = 2, .vps = 3},
                                      {.tps = 1, .pps = 1, .eps = 2},
                                      {.tps = 2, .pps = 1, .eps = 2},
                                      {.tps = 2, .pps = 2, .eps = 2},
                                      {.tps = 1, .pps = 1, .eps = 2, .distributed = true}};

START_TEST(parts_become_one_model)
{
    const part p = shapes_of_runs[_i];
    const ckpt_value *v;
    write_step(p);
    opens(folder);
    expect_all(&p);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "iteration")->integer, 5);
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(reader), "args.seed", &v, &err), CKPT_OK);
    ck_assert_ptr_nonnull(finding("vocabulary-padded"));
    ck_assert_int_eq(finding("layout-unknown") != NULL, p.distributed);
    opens(at("iter_0000005"));
    expect_all(&p);
}
END_TEST

START_TEST(groups_have_the_names_of_their_parameters)
{
    const ckpt_value *v;
    write_step((part){.tps = 2, .pps = 2});
    opens(folder);
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(reader), "optimizer.groups.0.params", &v, &err), CKPT_OK);
    ck_assert_uint_eq(v->item_count, 10);
    ck_assert(ckpt__str_is(v->items[9]->text, "output_layer.weight"));
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(reader), "optimizer.groups.1.params.0", &v, &err), CKPT_OK);
    ck_assert(ckpt__str_is(v->text, "decoder.layers.0.input_layernorm.weight"));
    ck_assert_int_eq(ckpt_value_find(ckpt_reader_root(reader), "optimizer.groups.1.lr", &v, &err), CKPT_OK);
    ck_assert(v->real == 0.5);
}
END_TEST

START_TEST(what_a_rank_has_alone_says_which)
{
    size_t number;
    float values[2];
    write_step((part){.tps = 2, .pps = 2});
    opens(folder);
    ck_assert_int_eq(tensor_named("rng_state.mp_rank_01_001.0", &number)->role, CKPT_ROLE_RNG);
    ck_assert_int_eq(ckpt_reader_read(reader, number, values, sizeof values, &err), CKPT_OK);
    ck_assert(values[0] == 101);
    write_step((part){.tps = 2, .pps = 1, .distributed = true, .iteration = 6});
    opens(folder);
    ck_assert_int_eq(tensor_named("distrib_optim.mp_rank_01.0.exp_avg", &number)->role, CKPT_ROLE_EXP_AVG);
    ck_assert_ptr_nonnull(strstr(finding("layout-unknown")->message, "in no file"));
    ck_assert_ptr_nonnull(finding("file-ignored")); /* step 5 */
    const part first = {.tps = 2, .pps = 1, .distributed = true, .iteration = 6};
    char from[300];
    snprintf(from, sizeof from, "%s", rank_path(&first, "distrib_optim.pt"));
    const part second = {.tp = 1, .tps = 2, .pps = 1, .distributed = true, .iteration = 6};
    ck_assert_int_eq(unlink(rank_path(&second, "distrib_optim.pt")), 0);
    ck_assert_int_eq(link(from, rank_path(&second, "distrib_optim.pt")), 0);
    fails(folder, CKPT_E_MISMATCH, "the same buffers as the one in mp_rank_00");
    snprintf(from, sizeof from, "%s", rank_path(&second, MODEL));
    ck_assert_int_eq(unlink(rank_path(&second, "distrib_optim.pt")), 0);
    ck_assert_int_eq(link(from, rank_path(&second, "distrib_optim.pt")), 0);
    fails(folder, CKPT_E_MISMATCH, "it holds a model");
}
END_TEST

/* doctor --mesh: experts are cut over as many ranks as they were, or no rank finds its file. */
START_TEST(another_number_of_expert_ranks_does_not_load)
{
    static const struct {
        const char *mesh;
        bool differs;
    } cases[] = {
        {"ep=2,tp=1", false}, {"dp=2,tp=1", false}, {"ep=4,tp=1", true}, {"dp=2,ep=1,tp=1", true}, {"tp=2,ep=2", true}};
    write_step((part){.tps = 1, .pps = 1, .eps = 2});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
        ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
        ckpt_report *report = ckpt_report_new();
        options.mesh = cases[i].mesh;
        opens(folder);
        ck_assert_int_ge(ckpt_doctor(reader, &options, &result, report, &err), 0);
        const ckpt_finding *f = ckpt_report_find(report, "mesh", NULL);
        ck_assert_msg(!f == !cases[i].differs, "%s: %s", cases[i].mesh, f ? f->message : "nothing");
        ckpt_doctor_result_clear(&result);
        ckpt_report_free(report);
    }
}
END_TEST

START_TEST(an_optimizer_that_does_not_fit_stays_as_it_is)
{
    size_t number;
    const part p = {.tps = 2, .pps = 1, .wrong_group = true};
    write_step(p);
    opens(folder);
    for (int i = 0; i < PARAMS; i++)
        if (is_there(i, &p, 0))
            expect_tensor(&p, i, 0, 0);
    ck_assert_ptr_nonnull(strstr(finding("layout-unknown")->message, "has 5 parameters, and the model has 6"));
    tensor_named("optimizer.mp_rank_01.optimizer.state.0.exp_avg", &number);
}
END_TEST

START_TEST(a_master_that_says_another_cut_is_an_error)
{
    write_step((part){.tps = 2, .pps = 1, .half = true, .wrong_master = true});
    fails(folder, CKPT_E_MISMATCH, "decoder.layers.0.self_attention.linear_proj.weight");
}
END_TEST

START_TEST(ranks_that_have_drifted_apart_are_said)
{
    const part p = {.tps = 2, .pps = 1, .drifted = true};
    write_step(p);
    opens(folder);
    expect_all(&p); /* as the first rank has it */
    ck_assert_ptr_nonnull(strstr(finding("replicas-differ")->tensor, "input_layernorm.weight"));
    write_step((part){.tps = 2, .pps = 1});
    opens(folder);
    ck_assert_ptr_null(finding("replicas-differ"));
    write_step((part){.tps = 1, .pps = 1, .eps = 2, .drifted = true, .iteration = 6});
    opens(folder);
    ck_assert_ptr_nonnull(strstr(finding("replicas-differ")->tensor, "input_layernorm.weight"));
}
END_TEST

START_TEST(a_rank_without_its_file_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.leave_damaged = true;
    for (int i = 0; i < 4; i++) {
        part p = {.tps = 2, .pps = 2, .iteration = 5};
        write_step(p);
        p.tp = i % 2;
        p.pp = i / 2;
        ck_assert_int_eq(unlink(rank_path(&p, MODEL)), 0);
        fails(folder, CKPT_E_DAMAGED, rank_path(&p, MODEL) + strlen(folder) + 1);
        ck_assert_ptr_nonnull(strstr(err.message, "is missing, with"));
        ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
        ck_assert_ptr_nonnull(finding("shard-missing"));
        expect_tensor(&p, 1, p.pp, 0); /* a norm is whole in the other's */
        expect_tensor(&p, 4, 1 - p.pp, 1);
        ck_assert_int_eq(rmdir(rank_path(&p, "")), 0); /* nor its folder */
        fails(folder, CKPT_E_DAMAGED, "is missing, with");
    }
}
END_TEST

START_TEST(a_file_that_is_cut_off_is_named)
{
    struct stat st;
    ckpt_report *report = ckpt_report_new();
    ckpt_verify_result verified = CKPT_VERIFY_RESULT_INIT;
    part p = {.tps = 2, .pps = 1, .iteration = 5};
    write_step(p);
    p.tp = 1;
    ck_assert_int_eq(stat(rank_path(&p, MODEL), &st), 0);
    for (off_t size = st.st_size - 1; size > 0; size -= 499) {
        ck_assert_int_eq(truncate(rank_path(&p, MODEL), size), 0);
        ck_assert_int_lt(open_with(folder, NULL), 0);
        ck_assert_msg(strstr(err.message, "mp_rank_01") || strstr(err.object, "mp_rank_01"), "%s", err.message);
    }
    (void)ckpt_verify(folder, NULL, &verified, report, &err);
    ck_assert_int_eq(ckpt_report_worst(report), CKPT_SEVERITY_ERROR);
    ckpt_report_free(report);
}
END_TEST

START_TEST(files_of_several_runs_do_not_mix)
{
    static const struct {
        part other; /* in the place of tensor-parallel rank 1 of stage 1 */
        const char *words;
    } cases[] = {{{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 6}, "of iteration 6"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .seed = 9}, "say seed 9"},
                 {{.tp = 1, .pp = 1, .tps = 4, .pps = 2, .iteration = 5}, "tensor_model_parallel_size 4"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 3, .iteration = 5}, "num_layers 3"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .rank = 4}, "rank 4 of 8 wrote it"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .plain = true}, "ffn_hidden_size"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .half = true}, "not the files of one run"},
                 {{.tp = 0, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .rank = 5}, "it is a copy of it"},
                 {{.tp = 1, .pp = 1, .tps = 2, .pps = 2, .iteration = 5, .extra = "decoder.x.weight"}, "11"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        part p = {.tps = 2, .pps = 2, .iteration = 5};
        write_step(p);
        p.tp = p.pp = 1;
        write_part(rank_path(&p, MODEL), cases[i].other);
        fails(folder, CKPT_E_MISMATCH, i == 8 ? "not the files of one run" : cases[i].words);
    }
    make_directory("iter_0000005/mp_rank_02_000");
    fails(folder, CKPT_E_MISMATCH, "mp_rank_02_000");
}
END_TEST

START_TEST(what_is_not_read_is_refused_by_name)
{
    static const struct {
        part p;
        ckpt_status status;
        const char *words;
    } cases[] = {
        {{.tps = 2, .pps = 1, .eps = 2, .whole_experts = true}, CKPT_E_UNSUPPORTED, "its experts are cut over 1 "},
        {{.tps = 1, .pps = 1, .eps = 2, .extra = "decoder.layers.0.mlp.experts.weight1"},
         CKPT_E_UNSUPPORTED,
         "of several experts"},
        {{.tps = 1, .pps = 1, .eps = 2, .few = true}, CKPT_E_MISMATCH, "the arguments say that there are 3"},
        {{.tps = 1, .pps = 2, .vps = 2, .untold = true}, CKPT_E_UNSUPPORTED, "(model0, model1, ...)"},
        {{.tps = 2, .pps = 1, .extra = "decoder.strange.weight"}, CKPT_E_UNSUPPORTED, "decoder.strange.weight"},
        {{.tps = 2, .pps = 1, .no_args = true}, CKPT_E_FORMAT, "no arguments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        part p = cases[i].p;
        p.iteration = (int)i + 1;
        write_step(p);
        fails(folder, cases[i].status, cases[i].words);
    }
}
END_TEST

START_TEST(an_expert_parallel_rank_that_is_missing_is_named)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.leave_damaged = true;
    for (int e = 0; e < 2; e++) {
        part p = {.tps = 1, .pps = 1, .eps = 2, .iteration = 5};
        write_step(p);
        p.ep = e;
        ck_assert_int_eq(unlink(rank_path(&p, MODEL)), 0);
        fails(folder, CKPT_E_DAMAGED, rank_path(&p, MODEL) + strlen(folder) + 1);
        ck_assert_msg(e == 0 || strstr(err.message, "of expert-parallel rank 1 has"), "%s", err.message);
        ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
        p.ep = 1 - e; /* what all have, and the experts of the other one, are there */
        for (int i = 0; i < PARAMS; i++)
            for (int kind = 0; kind < 3; kind++)
                expect_tensor(&p, i, 0, kind);
        ck_assert_uint_eq(ckpt_reader_tensor_count(reader), 3 * PARAMS + 1);
    }
}
END_TEST

START_TEST(experts_of_no_group_stay_as_they_are)
{
    size_t number;
    const part p = {.tps = 1, .pps = 1, .eps = 2, .hidden = true};
    write_step(p);
    opens(folder);
    expect_tensor(&p, 0, 0, 0);
    ck_assert_ptr_nonnull(strstr(finding("layout-unknown")->message, "parameters, and the model has"));
    tensor_named("optimizer.mp_rank_00_001.1.optimizer.state.0.exp_avg", &number);
}
END_TEST

START_TEST(the_step_that_was_written_last_is_read)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    options.leave_damaged = true;
    write_step((part){.tps = 1, .pps = 1, .iteration = 7});
    write_step((part){.tps = 1, .pps = 1, .iteration = 5});
    opens(folder);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "iteration")->integer, 5);
    ck_assert_ptr_nonnull(strstr(finding("incomplete-step")->message, "step 7 is not whole"));
    write_text(at("latest_checkpointed_iteration.txt"), "9\n");
    fails(folder, CKPT_E_DAMAGED, "names iter_0000009/");
    ck_assert_int_eq(open_with(folder, &options), CKPT_OK);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "iteration")->integer, 7);
    ck_assert_ptr_nonnull(finding("incomplete-step"));
    write_text(at("latest_checkpointed_iteration.txt"), "soon");
    fails(folder, CKPT_E_FORMAT, "it says 'soon'");
    ck_assert_int_eq(rename(at("iter_0000007"), at("release")), 0);
    write_text(at("latest_checkpointed_iteration.txt"), "release");
    opens(folder);
    ck_assert_int_eq(ckpt_value_get(ckpt_reader_root(reader), "iteration")->integer, 7);
    ck_assert_int_eq(rename(at("iter_0000005"), at("iter_0000006")), 0);
    fails(at("iter_0000006/mp_rank_01"), CKPT_E_SYSTEM, "");
    write_text(at("latest_checkpointed_iteration.txt"), "6");
    fails(folder, CKPT_E_MISMATCH, "it is of iteration 5");
}
END_TEST

/* Each allocation fails in turn: what comes of it is an error of memory, or the whole checkpoint. */
START_TEST(an_allocation_that_fails_is_said)
{
    ckpt_reader_options options = CKPT_READER_OPTIONS_INIT;
    const part p = {.tps = 2, .pps = 2, .half = true};
    bool done = false;
    options.format = "megatron"; /* which format it is, is another question */
    write_step(p);
    for (long n = 0; !done; n += 1 + n / 200) {
        allocations_left = n;
        ckpt_status status = open_with(folder, &options);
        done = allocations_left >= 0;
        allocations_left = -1;
        ck_assert_msg(status == CKPT_E_NO_MEMORY || status == CKPT_OK, "allocation %ld: %d, %s", n, (int)status,
                      err.message);
        if (status == CKPT_OK)
            expect_all(&p);
        ck_assert_int_lt(n, 1000000);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("megatron");
    TCase *t = tcase_create("megatron");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, parts_become_one_model, 0, (int)(sizeof shapes_of_runs / sizeof *shapes_of_runs));
    tcase_add_test(t, groups_have_the_names_of_their_parameters);
    tcase_add_test(t, what_a_rank_has_alone_says_which);
    tcase_add_test(t, another_number_of_expert_ranks_does_not_load);
    tcase_add_test(t, an_optimizer_that_does_not_fit_stays_as_it_is);
    tcase_add_test(t, a_master_that_says_another_cut_is_an_error);
    tcase_add_test(t, ranks_that_have_drifted_apart_are_said);
    tcase_add_test(t, a_rank_without_its_file_is_named);
    tcase_add_test(t, a_file_that_is_cut_off_is_named);
    tcase_add_test(t, files_of_several_runs_do_not_mix);
    tcase_add_test(t, what_is_not_read_is_refused_by_name);
    tcase_add_test(t, an_expert_parallel_rank_that_is_missing_is_named);
    tcase_add_test(t, experts_of_no_group_stay_as_they_are);
    tcase_add_test(t, the_step_that_was_written_last_is_read);
    tcase_add_test(t, an_allocation_that_fails_is_said);
    suite_add_tcase(s, t);
    return run_suite(s);
}
