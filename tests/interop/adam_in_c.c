/* adam_in_c FILE KIND: a trainer in C without parameter groups. Adam by hand for five steps, a checkpoint (FILE), and four steps more:
 * FILE.after has the parameters behind them, float32. KIND says what is bound: see bind. c_to_torch.py goes on in torch. */
#include <ckpt/ckpt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { W = 12, B = 3, N = W + B, BEFORE = 5, AFTER = 4 };
static float p[N], m[N], v[N];
static int64_t step, step_of_w, step_of_b;
static double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
static ckpt_error err;

static void need(ckpt_status status)
{
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s\n", err.object, err.message);
    exit(1);
}

/* Any gradient will do that the other program can compute too. */
static void train(int steps)
{
    for (int s = 0; s < steps; s++) {
        step++;
        double c1 = 1 - pow(beta1, (double)step), c2 = sqrt(1 - pow(beta2, (double)step));
        for (int i = 0; i < N; i++) {
            float g = p[i] * (0.5f + 0.25f * (float)(i % 5)) + 0.125f * (float)step;
            m[i] = m[i] + (float)(1 - beta1) * (g - m[i]);
            v[i] = v[i] * (float)beta2 + (float)(1 - beta2) * g * g;
            p[i] -= (float)(lr / c1) * m[i] / (sqrtf(v[i]) / (float)c2 + (float)eps);
        }
    }
    step_of_w = step_of_b = step;
}

static void tensor(ckpt_state *s, const char *name, const char *param, ckpt_role role, uint32_t ndim,
                   const int64_t *shape, float *data)
{
    ckpt_tensor_desc d = CKPT_TENSOR_DESC_INIT;
    d.name = name;
    d.param = param;
    d.role = role;
    d.dtype = CKPT_F32;
    d.ndim = ndim;
    d.shape = shape;
    d.data = data;
    need(ckpt_state_tensor(s, &d, &err));
}

static ckpt_state *bind(const char *kind)
{
    static const int64_t w[] = {3, 4}, b[] = {3};
    ckpt_state *s = ckpt_state_new();
    bool is_mixed = strcmp(kind, "mixed") == 0;
    /* not in the order of their names */
    tensor(s, "layer.weight", NULL, CKPT_ROLE_PARAM, 2, w, p);
    if (strcmp(kind, "orphan") != 0)
        tensor(s, "layer.bias", NULL, CKPT_ROLE_PARAM, 1, b, p + W);
    tensor(s, NULL, "layer.weight", CKPT_ROLE_EXP_AVG, 2, w, m);
    tensor(s, NULL, "layer.bias", is_mixed ? CKPT_ROLE_MOMENTUM : CKPT_ROLE_EXP_AVG, 1, b, m + W);
    tensor(s, NULL, "layer.weight", CKPT_ROLE_EXP_AVG_SQ, 2, w, v);
    if (!is_mixed)
        tensor(s, NULL, "layer.bias", CKPT_ROLE_EXP_AVG_SQ, 1, b, v + W);
    if (strcmp(kind, "each") == 0) {
        need(ckpt_state_i64(s, "optimizer.layer.weight.step", &step_of_w, &err));
        need(ckpt_state_i64(s, "optimizer.layer.bias.step", &step_of_b, &err));
    } else if (strcmp(kind, "no-step") != 0) {
        need(ckpt_state_i64(s, "step", &step, &err));
    }
    if (strcmp(kind, "settings") == 0) {
        need(ckpt_state_f64(s, "optimizer.lr", &lr, &err));
        need(ckpt_state_f64(s, "optimizer.betas.0", &beta1, &err));
        need(ckpt_state_f64(s, "optimizer.betas.1", &beta2, &err));
        need(ckpt_state_f64(s, "optimizer.eps", &eps, &err));
    }
    static const char *const both[] = {"layer.bias", "layer.weight"};
    const ckpt_hyper hypers[] = {{"lr", CKPT_SCALAR_F64, &lr},
                                 {"betas.0", CKPT_SCALAR_F64, &beta1},
                                 {"betas.1", CKPT_SCALAR_F64, &beta2},
                                 {"eps", CKPT_SCALAR_F64, &eps}};
    ckpt_group_desc g = CKPT_GROUP_DESC_INIT;
    g.name = "0";
    g.params = both;
    g.param_count = strcmp(kind, "part") == 0 ? 1 : 2;
    g.hypers = hypers;
    g.hyper_count = sizeof hypers / sizeof *hypers;
    if (strcmp(kind, "part") == 0 || strcmp(kind, "group") == 0)
        need(ckpt_state_group(s, &g, &err));
    return s;
}

int main(int argc, char **argv)
{
    char after[1200];
    if (argc != 3)
        return 2;
    for (int i = 0; i < N; i++)
        p[i] = 0.25f * (float)(i - 6);
    train(BEFORE);
    if (strcmp(argv[2], "far") == 0)
        step = (1 << 24) + 1;
    ckpt_state *s = bind(argv[2]);
    need(ckpt_save(s, argv[1], NULL, &err));
    ckpt_state_free(s);
    train(AFTER);
    snprintf(after, sizeof after, "%s.after", argv[1]);
    FILE *f = fopen(after, "wb");
    return !f || fwrite(p, sizeof p, 1, f) != 1 || fclose(f) != 0;
}
