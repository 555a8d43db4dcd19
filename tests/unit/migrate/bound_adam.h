/* migrate/bound_adam.h - tensors of four elements and groups, bound as a trainer in C binds them. */
#ifndef BOUND_ADAM_H
#define BOUND_ADAM_H
#include <stdint.h>
#include <stdio.h>
#include "../migrate_setup.h"
#include "../runner.h"

#define OK(call) ck_assert_msg((call) >= 0, "%s: %s: %s", #call, err.object, err.message)

static inline void bind(ckpt_state *s, const char *name, const char *param, ckpt_role role, ckpt_dtype dtype,
                        void *data)
{
    static const int64_t shape = 4;
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = dtype;
    d.ndim = 1;
    d.shape = &shape;
    d.data = data;
    OK(ckpt_state_tensor(s, &d, &err));
}

/* What a parameter has: its weight, of float32 or bfloat16, and its states. Each is NULL where there is none. */
typedef struct adam {
    float *param, *master, *exp_avg, *exp_avg_sq;
    uint16_t *half; /* the weight, in the place of param */
} adam;

static inline void bind_adam(ckpt_state *s, const char *name, adam of)
{
    bind(s, name, NULL, CKPT_ROLE_PARAM, of.half ? CKPT_BF16 : CKPT_F32, of.half ? (void *)of.half : (void *)of.param);
    if (of.master)
        bind(s, NULL, name, CKPT_ROLE_MASTER, CKPT_F32, of.master);
    if (of.exp_avg)
        bind(s, NULL, name, CKPT_ROLE_EXP_AVG, CKPT_F32, of.exp_avg);
    if (of.exp_avg_sq)
        bind(s, NULL, name, CKPT_ROLE_EXP_AVG_SQ, CKPT_F32, of.exp_avg_sq);
}

static inline void bind_group(ckpt_state *s, const char *name, const char *const *own, size_t count, double *lr,
                              double *weight_decay)
{
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    char key[80];
    g.name = name;
    g.params = own;
    g.param_count = count;
    OK(ckpt_state_group(s, &g, &err));
    snprintf(key, sizeof key, "optimizer.groups.%s.lr", name);
    OK(ckpt_state_f64(s, key, lr, &err));
    snprintf(key, sizeof key, "optimizer.groups.%s.weight_decay", name);
    OK(ckpt_state_f64(s, key, weight_decay, &err));
}
#endif
