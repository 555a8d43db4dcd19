/* tests/unit/state_fixture.h - a small training state with everything that can be bound, in host memory. */
#ifndef STATE_FIXTURE_H
#define STATE_FIXTURE_H
#include <ckpt/ckpt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "runner.h"
#include "scratch_base.h"

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "%s/ckpt-state-XXXXXX", scratch_base());
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", folder, name);
    return paths[next];
}

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        ckpt_status status_ = (call);                                                                                  \
        ck_assert_msg(status_ >= 0, "%s: %s: %s", #call, err.object, err.message);                                     \
    } while (0)

/* Everything bound is plain data in here, so that two can be compared with memcmp. */
typedef struct training {
    float params[40]; /* wte [4, 6], ln [6], head is wte again, bias [2, 5] transposed in memory */
    float exp_avg[30], exp_avg_sq[30];
    float steps[2];
    uint16_t half[6];
    int64_t counter;
    double lr, betas[2];
    float weight_decay;
    int32_t decay_interval;
    bool fused;
    ckpt_scaler scaler;
    char note[32];
    unsigned char rng[5000];
    int64_t step;
} training;

static void fill(training *t, unsigned seed)
{
    unsigned char *p = (unsigned char *)t;
    memset(t, 0, sizeof *t);
    (void)p;
    for (int i = 0; i < 40; i++)
        t->params[i] = (float)(i + 1) * 0.37f + (float)seed;
    for (int i = 0; i < 30; i++) {
        t->exp_avg[i] = (float)i * 0.01f - (float)seed;
        t->exp_avg_sq[i] = (float)i * 1e-9f + (float)seed;
    }
    t->steps[0] = t->steps[1] = (float)(7 + seed);
    for (int i = 0; i < 6; i++)
        t->half[i] = (uint16_t)(0x3f80 + i + (int)seed);
    t->counter = INT64_C(1) << 60 | seed;
    t->lr = 3e-4 / (1 + seed);
    t->betas[0] = 0.9;
    t->betas[1] = 0.95;
    t->weight_decay = 0.1f;
    t->decay_interval = -5 - (int)seed;
    t->fused = seed % 2;
    t->scaler = (ckpt_scaler)CKPT_SCALER_INIT;
    t->scaler.growth_tracker = (int64_t)seed;
    snprintf(t->note, sizeof t->note, "run \"%u\" \xc3\xa9", seed);
    for (int i = 0; i < 5000; i++)
        t->rng[i] = (unsigned char)(i * 7 + (int)seed);
    t->step = (int64_t)(12 + seed);
}

static void bind_tensor(ckpt_state *s, const char *name, const char *param, ckpt_role role, ckpt_dtype dtype,
                        uint32_t ndim, const int64_t *shape, const int64_t *strides, void *data)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = dtype;
    d.ndim = ndim;
    d.shape = shape;
    d.strides = strides;
    d.data = data;
    OK(ckpt_state_tensor(s, &d, &err));
}

static const int64_t wte_shape[] = {4, 6}, ln_shape[] = {6}, bias_shape[] = {2, 5}, bias_strides[] = {1, 2};

static void bind_values(ckpt_state *s, training *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const char *const params[] = {"wte", "ln"};
    ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &t->lr},
                           {"betas.0", CKPT_SCALAR_F64, &t->betas[0]},
                           {"betas.1", CKPT_SCALAR_F64, &t->betas[1]},
                           {"weight_decay", CKPT_SCALAR_F32, &t->weight_decay},
                           {"decay_interval", CKPT_SCALAR_I32, &t->decay_interval},
                           {"fused", CKPT_SCALAR_BOOL, &t->fused}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "0";
    g.params = params;
    g.param_count = 2;
    g.hypers = hypers;
    g.hyper_count = sizeof hypers / sizeof *hypers;
    OK(ckpt_state_group(s, &g, &err));
    OK(ckpt_state_i64(s, "step", &t->step, &err));
    OK(ckpt_state_scaler(s, "scaler", &t->scaler, &err));
    OK(ckpt_state_string(s, "note", t->note, sizeof t->note, &err));
    OK(ckpt_state_bytes(s, "rng", t->rng, sizeof t->rng, &err));
}

/* The moments of wte and ln are arenas, as trainers keep them. */
static ckpt_state *bind_all(training *t)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *s = ckpt_state_new();
    ck_assert_ptr_nonnull(s);
    const ckpt_arena_entry entries[] = {{"wte", 0, 2, wte_shape}, {"ln", 96, 1, ln_shape}};
    ckpt_arena_desc a = CKPT_ARENA_DESC_INIT;
    a.dtype = CKPT_F32;
    a.nbytes = 120;
    a.role = CKPT_ROLE_PARAM;
    a.data = t->params;
    OK(ckpt_state_arena(s, &a, entries, 2, &err));
    bind_tensor(s, "bias", NULL, CKPT_ROLE_BUFFER, CKPT_F32, 2, bias_shape, bias_strides, t->params + 30);
    a.role = CKPT_ROLE_EXP_AVG;
    a.data = t->exp_avg;
    OK(ckpt_state_arena(s, &a, entries, 2, &err));
    a.role = CKPT_ROLE_EXP_AVG_SQ;
    a.data = t->exp_avg_sq;
    OK(ckpt_state_arena(s, &a, entries, 2, &err));
    bind_tensor(s, NULL, "wte", CKPT_ROLE_STEP, CKPT_F32, 0, NULL, NULL, &t->steps[0]);
    bind_tensor(s, NULL, "ln", CKPT_ROLE_STEP, CKPT_F32, 0, NULL, NULL, &t->steps[1]);
    bind_tensor(s, "half", NULL, CKPT_ROLE_BUFFER, CKPT_BF16, 1, ln_shape, NULL, t->half);
    bind_tensor(s, "counter", NULL, CKPT_ROLE_BUFFER, CKPT_I64, 0, NULL, NULL, &t->counter);
    bind_tensor(s, "empty", NULL, CKPT_ROLE_BUFFER, CKPT_F64, 2, (int64_t[]){0, 3}, NULL, &t->lr);
    OK(ckpt_state_alias(s, "head", "wte", &err));
    bind_values(s, t);
    return s;
}
#endif
