/* charlm.c - see charlm.h. Every layer is a forward and a backward function over float arrays, in reading order.
 * Sums run in a fixed order, so that the same machine code gives the same bits; the build sets -ffp-contract=off. */
#include "charlm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    B = CHARLM_BATCH, T = CHARLM_CONTEXT, C = CHARLM_WIDTH, H = CHARLM_HEADS, L = CHARLM_LAYERS, V = CHARLM_VOCAB,
    N = B * T,                /* positions of a step */
    D = C / H                 /* width of a head */
};

/* ---- parameters */

/* The order is the order of declaration in the PyTorch module. */
enum { TOK, POS, BLOCKS };
enum { LN1_W, LN1_B, QKV_W, QKV_B, OUT_W, OUT_B, LN2_W, LN2_B, FC_W, FC_B, PROJ_W, PROJ_B, PER_BLOCK };
enum { LNF_W = BLOCKS + PER_BLOCK * L, LNF_B, HEAD };

static size_t add(charlm_param *p, size_t offset, const char *name, int64_t rows, int64_t cols)
{
    snprintf(p->name, sizeof p->name, "%s", name);
    p->shape[0] = rows;
    p->shape[1] = cols ? cols : 1;
    p->ndim = cols ? 2 : 1;
    p->count = (size_t)(p->shape[0] * p->shape[1]);
    p->offset = offset;
    p->decay = cols != 0;
    return offset + p->count;
}

void charlm_layout(charlm_param params[CHARLM_PARAMS], size_t *total)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
    } block[PER_BLOCK] = {
        { "ln1.weight", C, 0 },           { "ln1.bias", C, 0 },
        { "attn.in_proj_weight", 3 * C, C }, { "attn.in_proj_bias", 3 * C, 0 },
        { "attn.out_proj.weight", C, C }, { "attn.out_proj.bias", C, 0 },
        { "ln2.weight", C, 0 },           { "ln2.bias", C, 0 },
        { "mlp.fc.weight", 4 * C, C },    { "mlp.fc.bias", 4 * C, 0 },
        { "mlp.proj.weight", C, 4 * C },  { "mlp.proj.bias", C, 0 },
    };
    size_t at = 0;
    at = add(&params[TOK], at, "tok.weight", V, C);
    at = add(&params[POS], at, "pos.weight", T, C);
    for (int l = 0; l < L; l++) {
        for (int i = 0; i < PER_BLOCK; i++) {
            char name[48];
            snprintf(name, sizeof name, "blocks.%d.%s", l, block[i].name);
            at = add(&params[BLOCKS + l * PER_BLOCK + i], at, name, block[i].rows, block[i].cols);
        }
    }
    at = add(&params[LNF_W], at, "ln_f.weight", C, 0);
    at = add(&params[LNF_B], at, "ln_f.bias", C, 0);
    at = add(&params[HEAD], at, "head.weight", V, C);
    *total = at;
}

void charlm_init(const charlm_param params[CHARLM_PARAMS], float *weights, uint64_t seed)
{
    charlm_rng rng = { seed, 0 };
    for (int i = 0; i < CHARLM_PARAMS; i++) {
        const charlm_param *p = &params[i];
        float rest = strstr(p->name, "weight") ? 1.0f : 0.0f;     /* a norm's weight is one, biases are zero */
        for (size_t k = 0; k < p->count; k++) {
            float uniform = (float)(charlm_random(&rng) >> 40) / (float)(1 << 24) * 2.0f - 1.0f;
            weights[p->offset + k] = p->ndim == 2 ? uniform * 0.1f : rest;
        }
    }
}

/* ---- the activations of a step */

typedef struct block {
    float in[N * C], mean1[N], rstd1[N], ln1[N * C], qkv[N * 3 * C], att[B * H * T * T], mix[N * C];
    float mid[N * C], mean2[N], rstd2[N], ln2[N * C], fc[N * 4 * C], gelu[N * 4 * C];
} block;

struct charlm {
    int inputs[N], targets[N];
    block blocks[L];
    float out[N * C], meanf[N], rstdf[N], lnf[N * C], probs[N * V];
    /* gradients of activations */
    float dprobs[N * V], dx[N * C], dtmp[N * C], dqkv[N * 3 * C], datt[T], dfc[N * 4 * C];
    charlm_param params[CHARLM_PARAMS];
};

charlm *charlm_new(void)
{
    charlm *m = calloc(1, sizeof *m);
    size_t total;
    if (m)
        charlm_layout(m->params, &total);
    return m;
}

void charlm_free(charlm *model)
{
    free(model);
}

/* ---- layers: forward, backward */

/* Eight running sums: a fixed order that a compiler may keep in one vector register. */
static float dot(const float *a, const float *b, int n)
{
    float s[8] = { 0 };
    for (int i = 0; i < n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += a[i + k] * b[i + k];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void axpy(float *y, float a, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* out[n][o] = sum_i in[n][i] * w[o][i] + bias[o]; bias may be NULL. Widths are multiples of 8. */
static void linear(float *out, const float *in, const float *w, const float *bias, int ni, int no)
{
    for (int n = 0; n < N; n++)
        for (int o = 0; o < no; o++)
            out[n * no + o] = dot(in + n * ni, w + o * ni, ni) + (bias ? bias[o] : 0.0f);
}

/* Adds to dw and dbias, overwrites din. */
static void linear_backward(float *din, float *dw, float *dbias, const float *dout, const float *in, const float *w,
                            int ni, int no)
{
    memset(din, 0, sizeof *din * (size_t)(N * ni));
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < no; o++) {
            float d = dout[n * no + o];
            axpy(din + n * ni, d, w + o * ni, ni);
            axpy(dw + o * ni, d, in + n * ni, ni);
            if (dbias)
                dbias[o] += d;
        }
    }
}

static void layernorm(float *out, float *mean, float *rstd, const float *in, const float *w, const float *bias)
{
    for (int n = 0; n < N; n++) {
        const float *x = in + n * C;
        float sum = 0.0f, var = 0.0f;
        for (int i = 0; i < C; i++)
            sum += x[i];
        mean[n] = sum / C;
        for (int i = 0; i < C; i++)
            var += (x[i] - mean[n]) * (x[i] - mean[n]);
        rstd[n] = 1.0f / sqrtf(var / C + 1e-5f);
        for (int i = 0; i < C; i++)
            out[n * C + i] = (x[i] - mean[n]) * rstd[n] * w[i] + bias[i];
    }
}

/* Adds to din, dw and dbias. */
static void layernorm_backward(float *din, float *dw, float *dbias, const float *dout, const float *in,
                               const float *mean, const float *rstd, const float *w)
{
    for (int n = 0; n < N; n++) {
        const float *x = in + n * C, *d = dout + n * C;
        float sum = 0.0f, sum_norm = 0.0f;
        for (int i = 0; i < C; i++) {
            float norm = (x[i] - mean[n]) * rstd[n], g = d[i] * w[i];
            sum += g;
            sum_norm += g * norm;
            dw[i] += d[i] * norm;
            dbias[i] += d[i];
        }
        for (int i = 0; i < C; i++) {
            float norm = (x[i] - mean[n]) * rstd[n];
            din[n * C + i] += (d[i] * w[i] - sum / C - norm * sum_norm / C) * rstd[n];
        }
    }
}

/* qkv is [N][3][H][D]; att keeps the softmax, [B][H][T][T] with zeros above the diagonal. */
static void attention(float *out, float *att, const float *qkv)
{
    const float scale = 1.0f / sqrtf((float)D);
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < H; h++) {
            for (int t = 0; t < T; t++) {
                const float *q = qkv + (b * T + t) * 3 * C + h * D;
                float *a = att + ((b * H + h) * T + t) * T, *o = out + (b * T + t) * C + h * D;
                float max = -INFINITY, sum = 0.0f;
                for (int s = 0; s <= t; s++) {
                    a[s] = dot(q, qkv + (b * T + s) * 3 * C + C + h * D, D) * scale;
                    max = fmaxf(max, a[s]);
                }
                for (int s = 0; s <= t; s++)
                    sum += a[s] = expf(a[s] - max);
                memset(o, 0, sizeof *o * D);
                for (int s = 0; s < T; s++) {
                    a[s] = s <= t ? a[s] / sum : 0.0f;
                    if (s <= t)
                        axpy(o, a[s], qkv + (b * T + s) * 3 * C + 2 * C + h * D, D);
                }
            }
        }
    }
}

static void attention_backward(float *dqkv, float *datt, const float *dout, const float *att, const float *qkv)
{
    const float scale = 1.0f / sqrtf((float)D);
    memset(dqkv, 0, sizeof *dqkv * N * 3 * C);
    for (int b = 0; b < B; b++) {
        for (int h = 0; h < H; h++) {
            for (int t = 0; t < T; t++) {
                const float *a = att + ((b * H + h) * T + t) * T, *d = dout + (b * T + t) * C + h * D;
                const float *q = qkv + (b * T + t) * 3 * C + h * D;
                float *dq = dqkv + (b * T + t) * 3 * C + h * D, sum = 0.0f;
                for (int s = 0; s <= t; s++) {
                    datt[s] = dot(d, qkv + (b * T + s) * 3 * C + 2 * C + h * D, D);
                    sum += datt[s] * a[s];
                    axpy(dqkv + (b * T + s) * 3 * C + 2 * C + h * D, a[s], d, D);
                }
                for (int s = 0; s <= t; s++) {
                    float g = a[s] * (datt[s] - sum) * scale;
                    axpy(dq, g, qkv + (b * T + s) * 3 * C + C + h * D, D);
                    axpy(dqkv + (b * T + s) * 3 * C + C + h * D, g, q, D);
                }
            }
        }
    }
}

static const float inv_sqrt2 = 0.70710678118654752440f, inv_sqrt_2pi = 0.39894228040143267794f;

static void gelu(float *out, const float *in)
{
    for (int i = 0; i < N * 4 * C; i++)
        out[i] = 0.5f * in[i] * (1.0f + erff(in[i] * inv_sqrt2));
}

/* In place: d is the gradient of the output, then of the input. */
static void gelu_backward(float *d, const float *in)
{
    for (int i = 0; i < N * 4 * C; i++) {
        float x = in[i], cdf = 0.5f * (1.0f + erff(x * inv_sqrt2)), pdf = inv_sqrt_2pi * expf(-0.5f * x * x);
        d[i] *= cdf + x * pdf;
    }
}

static float cross_entropy(float *probs, const int *targets)
{
    double loss = 0.0;
    for (int n = 0; n < N; n++) {
        float *p = probs + n * V, max = -INFINITY, sum = 0.0f;
        for (int v = 0; v < V; v++)
            max = fmaxf(max, p[v]);
        float logit = p[targets[n]] - max;
        for (int v = 0; v < V; v++)
            sum += p[v] = expf(p[v] - max);
        for (int v = 0; v < V; v++)
            p[v] /= sum;
        loss += (double)(logf(sum) - logit);
    }
    return (float)(loss / N);
}

/* ---- the model */

float charlm_forward(charlm *m, float *const *w, const int *inputs, const int *targets)
{
    memcpy(m->inputs, inputs, sizeof m->inputs);
    memcpy(m->targets, targets, sizeof m->targets);

    float *x = m->blocks[0].in;
    for (int n = 0; n < N; n++)
        for (int i = 0; i < C; i++)
            x[n * C + i] = w[TOK][inputs[n] * C + i] + w[POS][n % T * C + i];

    for (int l = 0; l < L; l++) {
        block *k = &m->blocks[l];
        float *next = l + 1 < L ? m->blocks[l + 1].in : m->out;
        int p = BLOCKS + l * PER_BLOCK;

        layernorm(k->ln1, k->mean1, k->rstd1, k->in, w[p + LN1_W], w[p + LN1_B]);
        linear(k->qkv, k->ln1, w[p + QKV_W], w[p + QKV_B], C, 3 * C);
        attention(k->mix, k->att, k->qkv);
        linear(k->mid, k->mix, w[p + OUT_W], w[p + OUT_B], C, C);
        for (int i = 0; i < N * C; i++)
            k->mid[i] += k->in[i];

        layernorm(k->ln2, k->mean2, k->rstd2, k->mid, w[p + LN2_W], w[p + LN2_B]);
        linear(k->fc, k->ln2, w[p + FC_W], w[p + FC_B], C, 4 * C);
        gelu(k->gelu, k->fc);
        linear(next, k->gelu, w[p + PROJ_W], w[p + PROJ_B], 4 * C, C);
        for (int i = 0; i < N * C; i++)
            next[i] += k->mid[i];
    }

    layernorm(m->lnf, m->meanf, m->rstdf, m->out, w[LNF_W], w[LNF_B]);
    linear(m->probs, m->lnf, w[HEAD], NULL, C, V);
    return cross_entropy(m->probs, targets);
}

void charlm_backward(charlm *m, float *const *w, float *const *g, float scale)
{
    for (int i = 0; i < CHARLM_PARAMS; i++)
        memset(g[i], 0, sizeof *g[i] * m->params[i].count);

    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++)
            m->dprobs[n * V + v] = (m->probs[n * V + v] - (v == m->targets[n] ? 1.0f : 0.0f)) * (scale / N);

    linear_backward(m->dtmp, g[HEAD], NULL, m->dprobs, m->lnf, w[HEAD], C, V);
    memset(m->dx, 0, sizeof m->dx);
    layernorm_backward(m->dx, g[LNF_W], g[LNF_B], m->dtmp, m->out, m->meanf, m->rstdf, w[LNF_W]);

    for (int l = L - 1; l >= 0; l--) {        /* dx: the gradient of the block's output, then of its input */
        block *k = &m->blocks[l];
        int p = BLOCKS + l * PER_BLOCK;

        linear_backward(m->dfc, g[p + PROJ_W], g[p + PROJ_B], m->dx, k->gelu, w[p + PROJ_W], 4 * C, C);
        gelu_backward(m->dfc, k->fc);
        linear_backward(m->dtmp, g[p + FC_W], g[p + FC_B], m->dfc, k->ln2, w[p + FC_W], C, 4 * C);
        layernorm_backward(m->dx, g[p + LN2_W], g[p + LN2_B], m->dtmp, k->mid, k->mean2, k->rstd2, w[p + LN2_W]);

        linear_backward(m->dtmp, g[p + OUT_W], g[p + OUT_B], m->dx, k->mix, w[p + OUT_W], C, C);
        attention_backward(m->dqkv, m->datt, m->dtmp, k->att, k->qkv);
        linear_backward(m->dtmp, g[p + QKV_W], g[p + QKV_B], m->dqkv, k->ln1, w[p + QKV_W], C, 3 * C);
        layernorm_backward(m->dx, g[p + LN1_W], g[p + LN1_B], m->dtmp, k->in, k->mean1, k->rstd1, w[p + LN1_W]);
    }

    for (int n = 0; n < N; n++) {
        axpy(g[TOK] + m->inputs[n] * C, 1.0f, m->dx + n * C, C);
        axpy(g[POS] + n % T * C, 1.0f, m->dx + n * C, C);
    }
}

/* ---- data */

int charlm_symbol(unsigned char byte)
{
    return byte == '\n' ? 0 : byte >= ' ' && byte <= '~' ? byte - ' ' + 1 : 1;
}

uint64_t charlm_random(charlm_rng *rng)
{
    uint64_t z = rng->seed + ++rng->counter * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

void charlm_batch(charlm_rng *rng, const unsigned char *text, size_t size, int *inputs, int *targets)
{
    for (int b = 0; b < B; b++) {
        size_t at = (size_t)(charlm_random(rng) % (size - T));
        for (int t = 0; t < T; t++) {
            inputs[b * T + t] = charlm_symbol(text[at + (size_t)t]);
            targets[b * T + t] = charlm_symbol(text[at + (size_t)t + 1]);
        }
    }
}
