/* hook_without.c [LAST_STEP] - a small trainer; hook_minimal.c is the same one with checkpoints.
 *
 * A linear model learns to imitate another, by AdamW. What the run consists of: the weights, their two moments, the
 * random generator, and the number of completed steps. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(int argc, char **argv)
{
    int64_t last = argc > 1 ? atoll(argv[1]) : 100;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (done < last) {
        train();
        done++;
    }
    return 0;
}
