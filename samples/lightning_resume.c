/* lightning_resume.c - a trainer in C that goes on from a Lightning checkpoint.
 *
 *     lightning_resume CHECKPOINT [STEPS [OUT.safetensors]]
 *
 * The Python side trained Sequential(Linear(6, 8), Tanh(), Linear(8, 3)) as `net` of a LightningModule, by AdamW in two
 * parameter groups (matrices decay, biases do not). Here the same network is plain C, its state is bound by name, and
 * one ckpt_restore fills it: weights, both moments, the step of each parameter, and the hyper-parameters of the groups.
 * The map says in which part of the file each of them lies. What Lightning keeps besides (loops, callbacks, its
 * hyper-parameters) has no place in this trainer and is left alone. */
#include "util.h"
#include <inttypes.h>
#include <string.h>

enum { IN = 6, HIDDEN = 8, OUT = 3, BATCH = 4, PARAMS = 4, LARGEST = IN * HIDDEN };

static const char map_text[] = "map: 1\n"
                               "source: {model: state_dict, optimizer: optimizer_states.0, step: global_step}\n"
                               "default: cpu\n";

/* A parameter, its gradient, and AdamW's state for it. */
typedef struct parameter {
    const char *name;
    uint32_t ndim;
    int64_t shape[2];
    size_t count;
    float value[LARGEST], grad[LARGEST], exp_avg[LARGEST], exp_avg_sq[LARGEST];
    float step;
} parameter;

static parameter params[PARAMS] = {
    { .name = "net.0.weight", .ndim = 2, .shape = { HIDDEN, IN }, .count = HIDDEN * IN },
    { .name = "net.0.bias", .ndim = 1, .shape = { HIDDEN }, .count = HIDDEN },
    { .name = "net.2.weight", .ndim = 2, .shape = { OUT, HIDDEN }, .count = OUT * HIDDEN },
    { .name = "net.2.bias", .ndim = 1, .shape = { OUT }, .count = OUT },
};

/* The optimizer's groups, in its order; the numbers come from the checkpoint. */
typedef struct group {
    const char *params[2];
    double lr, beta1, beta2, eps, weight_decay;
} group;

static group groups[2] = { { .params = { "net.0.weight", "net.2.weight" } },
                           { .params = { "net.0.bias", "net.2.bias" } } };
static int64_t done;                      /* completed steps */

/* ---- what the run consists of */

static void bind_tensor(ckpt_state *state, parameter *p, ckpt_role role, float *data)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_tensor_desc desc = CKPT_TENSOR_DESC_INIT;
    desc.name = role == CKPT_ROLE_PARAM ? p->name : NULL;    /* of the rest: made from the parameter's */
    desc.param = role == CKPT_ROLE_PARAM ? NULL : p->name;
    desc.role = role;
    desc.dtype = CKPT_F32;
    desc.ndim = role == CKPT_ROLE_STEP ? 0 : p->ndim;
    desc.shape = p->shape;
    desc.data = data;
    check(ckpt_state_tensor(state, &desc, &err), &err);
}

static void bind_group(ckpt_state *state, group *g, const char *name)
{
    ckpt_error err = CKPT_ERROR_INIT;
    const ckpt_hyper hypers[] = { { "lr", CKPT_SCALAR_F64, &g->lr },
                                  { "betas.0", CKPT_SCALAR_F64, &g->beta1 },
                                  { "betas.1", CKPT_SCALAR_F64, &g->beta2 },
                                  { "eps", CKPT_SCALAR_F64, &g->eps },
                                  { "weight_decay", CKPT_SCALAR_F64, &g->weight_decay } };
    ckpt_group_desc desc = CKPT_GROUP_DESC_INIT;
    desc.name = name;
    desc.params = g->params;
    desc.param_count = 2;
    desc.hypers = hypers;
    desc.hyper_count = sizeof hypers / sizeof *hypers;
    check(ckpt_state_group(state, &desc, &err), &err);
}

static ckpt_state *bind(void)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_state *state = ckpt_state_new();
    if (!state)
        die("out of memory");
    for (size_t i = 0; i < PARAMS; i++) {
        bind_tensor(state, &params[i], CKPT_ROLE_PARAM, params[i].value);
        bind_tensor(state, &params[i], CKPT_ROLE_EXP_AVG, params[i].exp_avg);
        bind_tensor(state, &params[i], CKPT_ROLE_EXP_AVG_SQ, params[i].exp_avg_sq);
        bind_tensor(state, &params[i], CKPT_ROLE_STEP, &params[i].step);
    }
    bind_group(state, &groups[0], "0");
    bind_group(state, &groups[1], "1");
    check(ckpt_state_i64(state, "step", &done, &err), &err);
    return state;
}

static void resume(ckpt_state *state, const char *path)
{
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_map *map = NULL;
    ckpt_report *report = ckpt_report_new();
    check(ckpt_map_parse_yaml(map_text, strlen(map_text), "the map", &map, &err), &err);
    ckpt_restore_options options = CKPT_RESTORE_OPTIONS_INIT;
    options.map = map;
    options.allow_unexpected = true;      /* loops, callbacks, hyper-parameters, ... */
    const char *order[PARAMS] = { groups[0].params[0], groups[0].params[1], groups[1].params[0], groups[1].params[1] };
    options.param_names = order;          /* the file numbers the optimizer's parameters: these are their names */
    options.param_name_count = PARAMS;
    ckpt_status status = ckpt_restore(state, path, &options, report, &err);
    print_warnings(report);
    check(status, &err);
    ckpt_report_free(report);
    ckpt_map_free(map);
}

/* ---- the training: the batch of a step is a function of its number, so that any program can go on with it */

static float input(int64_t step, int64_t row, int64_t i)
{
    return (float)((step * 7 + row * 3 + i * 5) % 11 - 5) / 5.0f;
}

static float target(int64_t step, int64_t row, int64_t k)
{
    return (float)((step * 5 + row * 7 + k * 3) % 9 - 4) / 4.0f;
}

/* One row forwards and backwards; the loss is the mean of the squares over rows and outputs. */
static float row_loss(int64_t row)
{
    const float *w0 = params[0].value, *b0 = params[1].value, *w2 = params[2].value, *b2 = params[3].value;
    float hidden[HIDDEN], back[HIDDEN] = { 0 }, loss = 0.0f;
    for (int h = 0; h < HIDDEN; h++) {
        float sum = b0[h];
        for (int i = 0; i < IN; i++)
            sum += w0[h * IN + i] * input(done, row, i);
        hidden[h] = tanhf(sum);
    }
    for (int k = 0; k < OUT; k++) {
        float off = b2[k] - target(done, row, k);
        for (int h = 0; h < HIDDEN; h++)
            off += w2[k * HIDDEN + h] * hidden[h];
        loss += off * off / (BATCH * OUT);
        float slope = 2.0f * off / (BATCH * OUT);
        params[3].grad[k] += slope;
        for (int h = 0; h < HIDDEN; h++) {
            params[2].grad[k * HIDDEN + h] += slope * hidden[h];
            back[h] += slope * w2[k * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        float slope = back[h] * (1.0f - hidden[h] * hidden[h]);
        params[1].grad[h] += slope;
        for (int i = 0; i < IN; i++)
            params[0].grad[h * IN + i] += slope * input(done, row, i);
    }
    return loss;
}

static void adamw(parameter *p, const group *g)
{
    p->step += 1.0f;
    double correction1 = 1.0 - pow(g->beta1, (double)p->step), correction2 = 1.0 - pow(g->beta2, (double)p->step);
    for (size_t i = 0; i < p->count; i++) {
        double grad = (double)p->grad[i], value = (double)p->value[i] * (1.0 - g->lr * g->weight_decay);
        double m = g->beta1 * (double)p->exp_avg[i] + (1.0 - g->beta1) * grad;
        double v = g->beta2 * (double)p->exp_avg_sq[i] + (1.0 - g->beta2) * grad * grad;
        p->exp_avg[i] = (float)m;
        p->exp_avg_sq[i] = (float)v;
        p->value[i] = (float)(value - g->lr / correction1 * m / (sqrt(v / correction2) + g->eps));
    }
}

static void train_step(void)
{
    float loss = 0.0f;
    for (size_t i = 0; i < PARAMS; i++)
        memset(params[i].grad, 0, sizeof params[i].grad);
    for (int64_t row = 0; row < BATCH; row++)
        loss += row_loss(row);
    for (size_t i = 0; i < PARAMS; i++)
        adamw(&params[i], &groups[params[i].ndim == 2 ? 0 : 1]);
    printf("step %" PRId64 " loss %.9g (%a)\n", ++done, (double)loss, (double)loss);
}

int main(int argc, char **argv)
{
    ckpt_error err = CKPT_ERROR_INIT;
    if (argc < 2 || argc > 4)
        die("usage: lightning_resume CHECKPOINT [STEPS [OUT.safetensors]]");
    ckpt_state *state = bind();
    resume(state, argv[1]);
    fprintf(stderr, "resumed after step %" PRId64 ", lr %g, weight_decay %g and %g\n", done, groups[0].lr,
            groups[0].weight_decay, groups[1].weight_decay);
    for (int64_t last = done + (argc > 2 ? atoll(argv[2]) : 5); done < last;)
        train_step();
    if (argc == 4)
        check(ckpt_save(state, argv[3], NULL, &err), &err);
    ckpt_state_free(state);
    return 0;
}
