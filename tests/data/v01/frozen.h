/* frozen.h - the training state of the fixtures in this directory. It uses what version 0.1 declares and no more, so that
 * make_v01.c compiles against 0.1 and the test against today's library. Every byte follows from a seed. */
#ifndef FROZEN_H
#define FROZEN_H
#include <ckpt/ckpt.h>
#include <string.h>

enum { FROZEN_FILE_SEED = 7 };

typedef struct frozen {
    float params[40];             /* an arena: "wte.weight" [5, 4], "h.0.bias" [6], "empty" [0, 3] */
    float exp_avg[40], exp_avg_sq[40], steps[2];
    uint16_t half[12];            /* bfloat16 [3, 4], bound with strides {1, 3} */
    int64_t order[9];             /* a tensor of role other */
    uint8_t mask[3];              /* bool */
    double ema[6];
    int64_t step, epoch;
    double best;
    float warmup;
    bool sampled;
    char note[40];
    unsigned char rng[33];
    ckpt_scaler scaler;
    double lr, beta1, beta2;
    float eps;
    int32_t foreach;
    bool amsgrad;
} frozen;

static inline uint64_t frozen_next(uint64_t *x)
{
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double frozen_real(uint64_t *x)
{
    return (double)(frozen_next(x) >> 11) / 9007199254740992.0 - 0.5;
}

/* The state after `seed` steps. */
static inline void frozen_fill(frozen *f, uint64_t seed)
{
    uint64_t x = seed * 1000003u;
    memset(f, 0, sizeof *f);
    for (int i = 0; i < 40; i++) {
        f->params[i] = (float)frozen_real(&x);
        f->exp_avg[i] = (float)frozen_real(&x) * 1e-3f;
        f->exp_avg_sq[i] = (float)frozen_real(&x) * 1e-30f;
    }
    f->params[0] = -0.0f;
    for (int i = 0; i < 12; i++)
        f->half[i] = (uint16_t)frozen_next(&x);              /* not-a-numbers with their payloads too */
    for (int i = 0; i < 9; i++)
        f->order[i] = (int64_t)frozen_next(&x);
    for (int i = 0; i < 3; i++)
        f->mask[i] = (uint8_t)(frozen_next(&x) & 1);
    for (int i = 0; i < 6; i++)
        f->ema[i] = frozen_real(&x);
    f->steps[0] = f->steps[1] = (float)seed;
    f->step = (int64_t)seed;
    f->epoch = INT64_MIN + (int64_t)seed;
    f->best = frozen_real(&x);
    f->warmup = (float)frozen_real(&x);
    f->sampled = seed & 1;
    strcpy(f->note, "r\xc3\xa9sum\xc3\xa9 \"\\\n\x01 end");
    for (int i = 0; i < 33; i++)
        f->rng[i] = (unsigned char)frozen_next(&x);
    f->scaler = (ckpt_scaler){ 1024.0, 2.0, 0.5, 2000, (int64_t)seed };
    f->lr = 3e-4 / (double)(seed + 1);
    f->beta1 = 0.9;
    f->beta2 = 0.95;
    f->eps = 1e-8f;
    f->foreach = -3;
    f->amsgrad = false;
}

static inline ckpt_status frozen_tensor(ckpt_state *s, const char *name, ckpt_role role, ckpt_dtype dtype, uint32_t ndim,
                                        const int64_t *shape, const int64_t *strides, void *data, ckpt_error *err)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.role = role;
    d.dtype = dtype;
    d.ndim = ndim;
    d.shape = shape;
    d.strides = strides;
    d.data = data;
    return ckpt_state_tensor(s, &d, err);
}

static inline ckpt_status frozen_arena(ckpt_state *s, ckpt_role role, void *data, ckpt_error *err)
{
    static const int64_t wte[] = { 5, 4 }, bias[] = { 6 }, none[] = { 0, 3 };
    static const ckpt_arena_entry entries[] = { { "wte.weight", 0, 2, wte }, { "h.0.bias", 96, 1, bias },
                                                { "empty", 40 * sizeof(float), 2, none } },
                                  steps[] = { { "wte.weight", 0, 0, NULL }, { "h.0.bias", 4, 0, NULL } };
    ckpt_arena_desc a = CKPT_ARENA_DESC_INIT;
    a.data = data;
    a.device = ckpt_cuda(1);      /* of ours only */
    a.role = role;
    a.dtype = CKPT_F32;
    a.nbytes = (role == CKPT_ROLE_STEP ? 2 : 40) * sizeof(float);
    return ckpt_state_arena(s, &a, role == CKPT_ROLE_STEP ? steps : entries, role == CKPT_ROLE_PARAM ? 3 : 2, err);
}

static inline ckpt_status frozen_group(ckpt_state *s, frozen *f, ckpt_error *err)
{
    static const char *const params[] = { "h.0.bias", "wte.weight" };
    const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &f->lr },           { "betas.0", CKPT_SCALAR_F64, &f->beta1 },
                                  { "betas.1", CKPT_SCALAR_F64, &f->beta2 },   { "eps", CKPT_SCALAR_F32, &f->eps },
                                  { "foreach", CKPT_SCALAR_I32, &f->foreach }, { "amsgrad", CKPT_SCALAR_BOOL, &f->amsgrad } };
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "decay";
    g.params = params;
    g.param_count = 2;
    g.hypers = hypers;
    g.hyper_count = sizeof hypers / sizeof *hypers;
    return ckpt_state_group(s, &g, err);
}

/* ours: the parameters and their moments are memory of the library's, made on cuda:1. */
static inline ckpt_status frozen_bind(ckpt_state *s, frozen *f, bool ours, ckpt_error *err)
{
    static const int64_t half[] = { 3, 4 }, across[] = { 1, 3 }, nine[] = { 9 }, three[] = { 3 }, six[] = { 6 };
    ckpt_status status = frozen_arena(s, CKPT_ROLE_PARAM, ours ? NULL : f->params, err);
    if (status == CKPT_OK)
        status = frozen_arena(s, CKPT_ROLE_EXP_AVG, ours ? NULL : f->exp_avg, err);
    if (status == CKPT_OK)
        status = frozen_arena(s, CKPT_ROLE_EXP_AVG_SQ, ours ? NULL : f->exp_avg_sq, err);
    if (status == CKPT_OK)
        status = frozen_arena(s, CKPT_ROLE_STEP, f->steps, err);
    if (status == CKPT_OK)
        status = frozen_tensor(s, "half", CKPT_ROLE_BUFFER, CKPT_BF16, 2, half, across, f->half, err);
    if (status == CKPT_OK)
        status = frozen_tensor(s, "loader.order", CKPT_ROLE_OTHER, CKPT_I64, 1, nine, NULL, f->order, err);
    if (status == CKPT_OK)
        status = frozen_tensor(s, "mask", CKPT_ROLE_BUFFER, CKPT_BOOL, 1, three, NULL, f->mask, err);
    if (status == CKPT_OK)
        status = frozen_tensor(s, "ema.h.0.bias", CKPT_ROLE_EMA, CKPT_F64, 1, six, NULL, f->ema, err);
    if (status == CKPT_OK)
        status = ckpt_state_alias(s, "lm_head.weight", "wte.weight", err);
    if (status == CKPT_OK)
        status = frozen_group(s, f, err);
    if (status == CKPT_OK)
        status = ckpt_state_i64(s, "step", &f->step, err);
    if (status == CKPT_OK)
        status = ckpt_state_i64(s, "progress.epoch", &f->epoch, err);
    if (status == CKPT_OK)
        status = ckpt_state_f64(s, "progress.best", &f->best, err);
    if (status == CKPT_OK)
        status = ckpt_state_f32(s, "scheduler.warmup", &f->warmup, err);
    if (status == CKPT_OK)
        status = ckpt_state_bool(s, "sampled", &f->sampled, err);
    if (status == CKPT_OK)
        status = ckpt_state_string(s, "note", f->note, sizeof f->note, err);
    if (status == CKPT_OK)
        status = ckpt_state_bytes(s, "rng", f->rng, sizeof f->rng, err);
    return status == CKPT_OK ? ckpt_state_scaler(s, "scaler", &f->scaler, err) : status;
}
#endif
