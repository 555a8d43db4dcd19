/* hook_minimal.c [LAST_STEP [RUN_DIR]] - hook_without.c made to survive kills, full disks and signals: run it again.
 *
 * A linear model learns to imitate another, by AdamW. What the run consists of: the weights, their two moments, the
 * random generator, and the number of completed steps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ckpt/train.h>

enum { WIDTH = 32, BATCH = 16 };
static float weight[WIDTH], exp_avg[WIDTH], exp_avg_sq[WIDTH];
static uint64_t rng = 1609;
static int64_t done;

/* splitmix64, as a number between -1 and 1. */
static float uniform(void)
{
    uint64_t z = rng += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) / 8388608.0f - 1.0f;
}

static void adamw(const float *grad)
{
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.99f, eps = 1e-8f, decay = 0.01f, n = (float)(done + 1);
    for (int i = 0; i < WIDTH; i++) {
        exp_avg[i] = beta1 * exp_avg[i] + (1.0f - beta1) * grad[i];
        exp_avg_sq[i] = beta2 * exp_avg_sq[i] + (1.0f - beta2) * grad[i] * grad[i];
        float m = exp_avg[i] / (1.0f - powf(beta1, n)), v = exp_avg_sq[i] / (1.0f - powf(beta2, n));
        weight[i] -= lr * (m / (sqrtf(v) + eps) + decay * weight[i]);
    }
}

static void train(void)
{
    float grad[WIDTH] = { 0 }, loss = 0.0f;
    for (int b = 0; b < BATCH; b++) {
        float x[WIDTH], off = 0.0f;
        for (int i = 0; i < WIDTH; i++) {
            x[i] = uniform();
            off += (weight[i] - sinf((float)i)) * x[i];       /* from what the other model says */
        }
        for (int i = 0; i < WIDTH; i++)
            grad[i] += 2.0f * off * x[i] / BATCH;
        loss += off * off / BATCH;
    }
    adamw(grad);
    printf("step %" PRId64 " loss %.6f (%a)\n", done + 1, (double)loss, (double)loss);
}

static void tell(void *ctx, const ckpt_finding *f)
{
    fprintf(ctx, "%s: %s\n", f->code, f->message);
}

int main(int argc, char **argv)
{
    int64_t last = argc > 1 ? atoll(argv[1]) : 100;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int64_t n[] = { WIDTH };
    const ckpt_tensor_desc tensors[] = {
        { .name = "weight", .role = CKPT_ROLE_PARAM, .data = weight, .dtype = CKPT_F32, .ndim = 1, .shape = n },
        { .param = "weight", .role = CKPT_ROLE_EXP_AVG, .data = exp_avg, .dtype = CKPT_F32, .ndim = 1, .shape = n },
        { .param = "weight", .role = CKPT_ROLE_EXP_AVG_SQ, .data = exp_avg_sq, .dtype = CKPT_F32, .ndim = 1, .shape = n } };
    ckpt_run_options options = { .every_steps = 10, .last_step = last, .retention.keep_last = 3, .signals = true,
                                 .notice = tell, .notice_ctx = stderr };
    ckpt_error err = CKPT_ERROR_INIT;
    ckpt_status status = CKPT_OK;
    ckpt_run *run = NULL;
    ckpt_state *st = ckpt_state_new();
    for (size_t i = 0; status == CKPT_OK && i < sizeof tensors / sizeof *tensors; i++)
        status = ckpt_state_tensor(st, &tensors[i], &err);
    if (status < 0 || ckpt_state_bytes(st, "rng", &rng, sizeof rng, &err) < 0 ||
        ckpt_run_open(argc > 2 ? argv[2] : "runs/minimal", st, &options, &run, &err) < 0 ||
        ckpt_state_i64(st, "step", &done, &err) < 0 || ckpt_run_resume(run, NULL, &done, NULL, &err) < 0)
        return fprintf(stderr, "%s: %s\n", err.object, err.message), ckpt_run_close(run, NULL), ckpt_state_free(st), 1;
    while (done < last && status != CKPT_STOP) {
        train();
        done++;
        if ((status = ckpt_run_step(run, done, &err)) < 0)
            fprintf(stderr, "the training goes on: %s: %s\n", err.object, err.message);
    }
    status = ckpt_run_close(run, &err);
    ckpt_state_free(st);
    return status < 0;
}
