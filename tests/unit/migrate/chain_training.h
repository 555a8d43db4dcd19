/* migrate/chain_training.h - random trainings: what a checkpoint is to hold, whatever program writes it. Each element of a tensor is a hash of
 * the tensor's number and its own, so that NaN of all kinds are among them. */
#ifndef CHAIN_TRAINING_H
#define CHAIN_TRAINING_H
#include <ckpt/ckpt.h>
#include "base/base.h"
#include <stdio.h>
#include <string.h>
#include "../random.h"
#include "../runner.h"

enum {
    CHAIN_TENSORS = 420,
    CHAIN_VALUES = 80,
    CHAIN_GROUPS = 3,
    CHAIN_DIMS = 5,
    CHAIN_PARAMS = 40,
    CHAIN_MOST = 4000, /* elements of a parameter */
    CHAIN_NAME = 140
};

static inline uint64_t draw(uint64_t n)
{
    const uint64_t bits = random_bits();
    return n ? (bits >> 11) % n : 0;
}

static inline bool chance(unsigned percent)
{
    return draw(100) < percent;
}

/* Numbers that follow each other give seeds that do not look alike. */
static inline void begin_random(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    for (int i = 0; i < 8; i++)
        draw(2);
}

/* ---- what there is */

typedef struct thing {
    char name[CHAIN_NAME]; /* canonical */
    ckpt_dtype dtype;
    uint32_t ndim;
    int64_t shape[CHAIN_DIMS];
    size_t count, size;   /* elements, bytes */
    unsigned char *bytes; /* heap: in C order */
    ckpt_role role;
    int owner;    /* number of the parameter that it is a state of; -1: of none */
    int tie;      /* number of the tensor that it is another name of; -1: of none */
    char key[40]; /* of a state: its key */
} thing;

typedef struct setting {
    char name[CHAIN_NAME];
    ckpt_kind kind; /* INT, FLOAT, BOOL, STR, BYTES */
    int64_t integer;
    double real;
    bool boolean;
    char text[64];
    size_t size; /* of BYTES and STR */
} setting;

typedef enum chain_model { CHAIN_FREE, CHAIN_MEGATRON, CHAIN_LLMC, CHAIN_LAID } chain_model;
typedef enum chain_optimizer { CHAIN_NONE, CHAIN_ADAM, CHAIN_AMSGRAD, CHAIN_SGD, CHAIN_OTHER } chain_optimizer;
typedef enum chain_steps { CHAIN_EACH, CHAIN_COMMON, CHAIN_NUMBERS } chain_steps;

typedef struct training {
    chain_model model;
    chain_optimizer optimizer;
    chain_steps steps;
    thing things[CHAIN_TENSORS];
    size_t count;
    int params[CHAIN_PARAMS]; /* numbers of things, in the order of the model */
    size_t param_count;
    int groups[CHAIN_GROUPS][CHAIN_PARAMS]; /* the same, in the order of the optimizer */
    size_t group_sizes[CHAIN_GROUPS], group_count;
    setting settings[CHAIN_VALUES];
    size_t setting_count;
    int64_t step;
    bool masters, evil; /* evil: names that look like others */
} training;

static inline void free_training(training *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->things[i].bytes);
    memset(t, 0, sizeof *t);
}

/* ---- elements */

static inline uint64_t mixed(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

/* The element `at` of tensor `number`. */
static inline void put_code(ckpt_dtype dtype, size_t number, size_t at, unsigned char *out)
{
    const size_t size = ckpt_dtype_size(dtype);
    for (size_t k = 0; k < size; k += 8) {
        const uint64_t bits = mixed(((uint64_t)number << 40) + ((uint64_t)at << 4) + k / 8 + 1);
        memcpy(out + k, &bits, size - k < 8 ? size - k : 8);
    }
    if (dtype == CKPT_BOOL)
        out[0] &= 1;
}

static inline thing *add_thing(training *t, const char *name, ckpt_dtype dtype, uint32_t ndim, const int64_t *shape,
                               ckpt_role role)
{
    ck_assert_uint_lt(t->count, CHAIN_TENSORS);
    thing *x = &t->things[t->count];
    *x = (thing){.dtype = dtype, .ndim = ndim, .role = role, .owner = -1, .tie = -1, .count = 1};
    ck_assert_int_lt(snprintf(x->name, sizeof x->name, "%s", name), (int)sizeof x->name);
    for (uint32_t d = 0; d < ndim; d++) {
        x->shape[d] = shape[d];
        x->count *= (size_t)shape[d];
    }
    x->size = x->count * ckpt_dtype_size(dtype);
    ck_assert_ptr_nonnull(x->bytes = malloc(x->size + 1));
    for (size_t i = 0; i < x->count; i++)
        put_code(dtype, t->count, i, x->bytes + i * ckpt_dtype_size(dtype));
    t->count++;
    return x;
}

static inline thing *find_thing(training *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->things[i].name, name) == 0)
            return &t->things[i];
    return NULL;
}

/* ---- names and shapes */

static inline void draw_shape(uint32_t *ndim, int64_t *shape)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 31, 37, 40};
    int64_t count = 1;
    *ndim = chance(12) ? 0 : 1 + (uint32_t)draw(4);
    for (uint32_t d = 0; d < *ndim; d++) {
        shape[d] = chance(4) ? 0 : sizes[draw(sizeof sizes / sizeof *sizes)];
        if (count * shape[d] > CHAIN_MOST)
            shape[d] = 1 + (int64_t)draw(2);
        count *= shape[d] ? shape[d] : 1;
    }
}

/* Of a parameter that is trained, or of any tensor. */
static inline ckpt_dtype draw_dtype(bool trained)
{
    static const ckpt_dtype floats[] = {CKPT_F32,  CKPT_F32,  CKPT_F32, CKPT_F32,
                                        CKPT_BF16, CKPT_BF16, CKPT_F16, CKPT_F64},
                            all[] = {CKPT_F32,     CKPT_F64,         CKPT_F16,         CKPT_BF16,    CKPT_F8_E4M3,
                                     CKPT_F8_E5M2, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_F8_E8M0, CKPT_I8,
                                     CKPT_I16,     CKPT_I32,         CKPT_I64,         CKPT_U8,      CKPT_U16,
                                     CKPT_U32,     CKPT_U64,         CKPT_BOOL,        CKPT_C64,     CKPT_C128};
    return trained ? floats[draw(sizeof floats / sizeof *floats)] : all[draw(sizeof all / sizeof *all)];
}

static inline void draw_name(const training *t, size_t number, char *out, size_t size)
{
    static const char *const modules[] = {"fc",       "layers.0", "layers.1", "layers.10",
                                          "h.2.attn", "block",    "net.0",    "encoder.x"},
                             *const leaves[] = {"weight",      "bias",    "w",       "gamma",
                                                "proj.weight", "in_proj", "running", "a_b"},
                             *const odd[] = {
                                 "w",     "w.exp_avg", "exp_avg", "module",   "state", "w.weight", "\xc3\xa9t\xc3\xa9",
                                 "x y",   "groups.0",  "params",  "weight_g", "0",     "1.0",      "model",
                                 "master"};
    if (t->evil && number < 30 && chance(40))
        snprintf(out, size, "%s%s%zu", odd[draw(sizeof odd / sizeof *odd)], chance(50) ? "." : "_", number);
    else
        snprintf(out, size, "%s%zu.%s", modules[draw(sizeof modules / sizeof *modules)], number,
                 leaves[draw(sizeof leaves / sizeof *leaves)]);
}

static inline int add_param(training *t, const char *name, ckpt_dtype dtype, uint32_t ndim, const int64_t *shape)
{
    ck_assert_uint_lt(t->param_count, CHAIN_PARAMS);
    const int number = (int)t->count;
    add_thing(t, name, dtype, ndim, shape, CKPT_ROLE_PARAM);
    t->params[t->param_count++] = number;
    return number;
}

/* ---- the optimizer */

static inline void add_state(training *t, int owner, const char *key, ckpt_role role, ckpt_dtype dtype)
{
    char name[2 * CHAIN_NAME];
    const thing p = t->things[owner];
    snprintf(name, sizeof name, "optimizer.%s.%s", p.name, key);
    const bool number = role == CKPT_ROLE_STEP;
    thing *x = add_thing(t, name, dtype, number ? 0 : p.ndim, p.shape, role);
    x->owner = owner;
    snprintf(x->key, sizeof x->key, "%s", key);
    if (number) {
        const float step = (float)t->step;
        memcpy(x->bytes, &step, sizeof step);
    }
}

static inline void add_states(training *t, int owner)
{
    const bool strict = t->model == CHAIN_MEGATRON || t->model == CHAIN_LLMC;
    const ckpt_dtype own = t->things[owner].dtype, dtype = strict || t->masters || chance(70) ? CKPT_F32 : own;
    if (t->masters && own != CKPT_F32)
        add_state(t, owner, "master", CKPT_ROLE_MASTER, CKPT_F32);
    if (t->optimizer == CHAIN_ADAM || t->optimizer == CHAIN_AMSGRAD) {
        add_state(t, owner, "exp_avg", CKPT_ROLE_EXP_AVG, dtype);
        add_state(t, owner, "exp_avg_sq", CKPT_ROLE_EXP_AVG_SQ, dtype);
        if (t->optimizer == CHAIN_AMSGRAD)
            add_state(t, owner, "max_exp_avg_sq", CKPT_ROLE_MAX_EXP_AVG_SQ, dtype);
        if (t->steps == CHAIN_EACH)
            add_state(t, owner, "step", CKPT_ROLE_STEP, CKPT_F32);
    } else if (t->optimizer == CHAIN_SGD) {
        add_state(t, owner, "momentum_buffer", CKPT_ROLE_MOMENTUM, dtype);
    } else if (t->optimizer == CHAIN_OTHER) {
        add_state(t, owner, "sum", CKPT_ROLE_OPTIM, dtype);
        add_state(t, owner, "step", CKPT_ROLE_STEP, CKPT_F32);
    }
}

/* ---- values */

static inline setting *add_setting(training *t, ckpt_kind kind, const char *format, ...) CKPT__PRINTF(3, 4);
static inline setting *add_setting(training *t, ckpt_kind kind, const char *format, ...)
{
    va_list args;
    ck_assert_uint_lt(t->setting_count, CHAIN_VALUES);
    setting *s = &t->settings[t->setting_count++];
    *s = (setting){.kind = kind};
    va_start(args, format);
    ck_assert_int_lt(vsnprintf(s->name, sizeof s->name, format, args), (int)sizeof s->name);
    va_end(args);
    return s;
}

static inline double draw_real(void)
{
    static const double odd[] = {0, -0.0, 1e-300, 5e-324, 1.7976931348623157e308, 0.1, -1e22, 123456789.125};
    return chance(40) ? odd[draw(sizeof odd / sizeof *odd)] : (double)(int64_t)draw(1u << 30) / 7.0;
}

/* One of the parameters' step; of the numbers one is among the values. */
static inline void add_group(training *t, size_t g)
{
    add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.lr", g)->real = draw_real();
    add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.weight_decay", g)->real = draw_real();
    if (chance(60)) {
        add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.betas.0", g)->real = draw_real();
        add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.betas.1", g)->real = draw_real();
    }
    if (chance(50))
        add_setting(t, CKPT_V_BOOL, "optimizer.groups.%zu.maximize", g)->boolean = chance(50);
    if (t->model == CHAIN_MEGATRON) {
        add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.wd_mult", g)->real = 1.0 / (double)(g + 1);
        add_setting(t, CKPT_V_FLOAT, "optimizer.groups.%zu.lr_mult", g)->real = 1;
        add_setting(t, CKPT_V_BOOL, "optimizer.groups.%zu.is_expert_parallel", g)->boolean = false;
        add_setting(t, CKPT_V_BOOL, "optimizer.groups.%zu.is_decoupled_lr", g)->boolean = false;
    }
}

static inline void draw_values(training *t)
{
    if (chance(92))
        add_setting(t, CKPT_V_INT, "step")->integer = t->step;
    if (chance(60))
        add_setting(t, CKPT_V_INT, "epoch")->integer = (int64_t)draw(1000) - 10;
    if (chance(40)) {
        setting *s = add_setting(t, CKPT_V_STR, "note");
        s->size = (size_t)snprintf(s->text, sizeof s->text, "run \"%u\" \xc3\xa9\\ \t", (unsigned)draw(1000));
    }
    if (chance(40)) {
        setting *s = add_setting(t, CKPT_V_BYTES, "rng");
        s->size = 1 + draw(40);
        for (size_t i = 0; i < s->size; i++)
            s->text[i] = (char)draw(256);
    }
    if (chance(40))
        add_setting(t, CKPT_V_FLOAT, "best_loss")->real = draw_real();
    if (chance(30))
        add_setting(t, CKPT_V_BOOL, "done")->boolean = chance(50);
    if (chance(70)) {
        add_setting(t, CKPT_V_INT, "scheduler.last_epoch")->integer = t->step;
        add_setting(t, CKPT_V_INT, "scheduler._step_count")->integer = t->step + 1;
        add_setting(t, CKPT_V_FLOAT, "scheduler.gamma")->real = draw_real();
    }
    if (chance(40)) {
        add_setting(t, CKPT_V_FLOAT, "scaler.scale")->real = 1024;
        add_setting(t, CKPT_V_FLOAT, "scaler.growth_factor")->real = 2;
        add_setting(t, CKPT_V_FLOAT, "scaler.backoff_factor")->real = 0.5;
        add_setting(t, CKPT_V_INT, "scaler.growth_interval")->integer = 2000;
        add_setting(t, CKPT_V_INT, "scaler._growth_tracker")->integer = (int64_t)draw(2000);
    }
    if (t->model == CHAIN_LLMC) {
        const thing *wte = find_thing(t, "wte");
        add_setting(t, CKPT_V_INT, "vocab_size")->integer = wte->shape[0] - (int64_t)draw(2);
        add_setting(t, CKPT_V_INT, "num_heads")->integer = 1;
    }
}

/* ---- models */

static inline void draw_free(training *t)
{
    const size_t params = 1 + draw(12), buffers = draw(5);
    char name[CHAIN_NAME];
    uint32_t ndim;
    int64_t shape[CHAIN_DIMS];
    t->evil = chance(20);
    for (size_t i = 0; i < params + buffers; i++) {
        draw_name(t, i, name, sizeof name);
        draw_shape(&ndim, shape);
        if (i < params)
            add_param(t, name, draw_dtype(chance(92)), ndim, shape);
        else
            add_thing(t, name, draw_dtype(false), ndim, shape, CKPT_ROLE_BUFFER);
    }
    if (chance(35)) {
        const int of = t->params[draw(t->param_count)];
        const thing first = t->things[of];
        snprintf(name, sizeof name, "tied%d.weight", of);
        thing *x = add_thing(t, name, first.dtype, first.ndim, first.shape, CKPT_ROLE_PARAM);
        memcpy(x->bytes, first.bytes, first.size);
        x->tie = of;
    }
}

static const char *const megatron_layer[] = {"self_attention.linear_proj.weight",
                                             "self_attention.linear_proj.bias",
                                             "self_attention.linear_qkv.layer_norm_weight",
                                             "self_attention.linear_qkv.layer_norm_bias",
                                             "self_attention.linear_qkv.weight",
                                             "self_attention.linear_qkv.bias",
                                             "mlp.linear_fc1.layer_norm_weight",
                                             "mlp.linear_fc1.layer_norm_bias",
                                             "mlp.linear_fc1.weight",
                                             "mlp.linear_fc1.bias",
                                             "mlp.linear_fc2.weight",
                                             "mlp.linear_fc2.bias"};

static inline void draw_megatron(training *t)
{
    const size_t layers = 1 + draw(12);
    size_t kinds = 1 + draw(36 / layers < 12 ? 36 / layers : 12);
    char name[CHAIN_NAME];
    const ckpt_dtype dtype = chance(60) ? CKPT_F32 : CKPT_BF16;
    const int64_t c = 1 + (int64_t)draw(7);
    int64_t vocab[] = {1 + (int64_t)draw(17), c};
    add_param(t, "embedding.word_embeddings.weight", dtype, 2, vocab);
    for (size_t l = 0; l < layers; l++)
        for (size_t k = 0; k < kinds; k++) {
            const char *leaf = megatron_layer[k];
            const bool weight = strcmp(strrchr(leaf, '.'), ".weight") == 0;
            const int64_t shape[] = {c * (int64_t)(1 + k % 3), c};
            snprintf(name, sizeof name, "decoder.layers.%zu.%s", l, leaf);
            add_param(t, name, dtype, weight ? 2 : 1, shape);
        }
    if (chance(70))
        add_param(t, "decoder.final_layernorm.weight", dtype, 1, &c);
}

static inline void draw_llmc(training *t)
{
    const int64_t l = 1 + (int64_t)draw(3), c = 1 + (int64_t)draw(6), v = 8 * (1 + (int64_t)draw(3)),
                  n = 1 + (int64_t)draw(9);
    const ckpt_dtype dtype = chance(60) ? CKPT_F32 : CKPT_BF16;
    const struct {
        const char *name;
        uint32_t ndim;
        int64_t shape[3];
    } all[] = {{"wte", 2, {v, c}},
               {"wpe", 2, {n, c}},
               {"ln1w", 2, {l, c}},
               {"ln1b", 2, {l, c}},
               {"qkvw", 3, {l, 3 * c, c}},
               {"qkvb", 2, {l, 3 * c}},
               {"attprojw", 3, {l, c, c}},
               {"attprojb", 2, {l, c}},
               {"ln2w", 2, {l, c}},
               {"ln2b", 2, {l, c}},
               {"fcw", 3, {l, 4 * c, c}},
               {"fcb", 2, {l, 4 * c}},
               {"fcprojw", 3, {l, c, 4 * c}},
               {"fcprojb", 2, {l, c}},
               {"lnfw", 1, {c}},
               {"lnfb", 1, {c}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        add_param(t, all[i].name, dtype, all[i].ndim, all[i].shape);
}

/* ---- all of it */

static inline void draw_optimizer(training *t)
{
    const bool strict = t->model == CHAIN_MEGATRON || t->model == CHAIN_LLMC;
    const size_t params = t->param_count;
    t->group_count = 1 + draw(strict ? 2 : CHAIN_GROUPS);
    for (size_t i = 0; i < params; i++) {
        if (!strict && chance(8))
            continue; /* frozen */
        const size_t g = draw(t->group_count);
        t->groups[g][t->group_sizes[g]++] = t->params[i];
    }
    for (size_t g = 0; g < t->group_count; g++) {
        if (!t->group_sizes[g]) {
            t->group_count = g;
            break;
        }
        for (size_t i = 0; i < t->group_sizes[g]; i++)
            if (strict || !chance(4)) /* else: not stepped yet */
                add_states(t, t->groups[g][i]);
    }
    for (size_t g = 0; g < t->group_count; g++)
        add_group(t, g);
}

/* Of a layout: the parameters are there already. */
static inline void draw_rest(training *t)
{
    const unsigned kind = (unsigned)draw(100);
    t->step = 1 + (int64_t)draw(1000);
    t->masters = chance(40);
    t->optimizer = t->model != CHAIN_FREE ? (chance(88) ? CHAIN_ADAM : CHAIN_NONE)
                   : kind < 10            ? CHAIN_NONE
                   : kind < 70            ? CHAIN_ADAM
                   : kind < 80            ? CHAIN_AMSGRAD
                   : kind < 90            ? CHAIN_SGD
                                          : CHAIN_OTHER;
    t->steps = chance(70) ? CHAIN_EACH : CHAIN_COMMON;
    draw_values(t);
    if (t->optimizer != CHAIN_NONE)
        draw_optimizer(t);
}

static inline void draw_training(training *t, chain_model model)
{
    free_training(t);
    t->model = model;
    if (model == CHAIN_MEGATRON)
        draw_megatron(t);
    else if (model == CHAIN_LLMC)
        draw_llmc(t);
    else
        draw_free(t);
    draw_rest(t);
}
#endif
