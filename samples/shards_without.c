/* shards_without.c [LAST_STEP] - a language model trainer in plain C; shards_hook.c is the same one with checkpoints.
 *
 * It keeps its memory as many such trainers do. All parameters lie in one allocation, and each moment in another one that the first
 * update makes. The data loader goes through shards of different lengths in a shuffled order, and through the samples of
 * each shard in a shuffled order, whose array is freed and allocated anew for every shard. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 24, WIDTH = 6, CONTEXT = 4, HIDDEN = 20, BATCH = 4, SHARDS = 5, TENSORS = 5 };

/* ---- numbers at random: splitmix64 */

static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void shuffle(int *order, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (int)i;
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)(random_u64(state) % i);
        int other = order[k];
        order[k] = order[i - 1];
        order[i - 1] = other;
    }
}

/* ---- the data loader */

typedef struct loader {
    size_t shard, sample;         /* where it is: a place in shard_order, and one in sample_order */
    size_t samples;               /* of the shard that is open */
    int *shard_order;
    int *sample_order;            /* freed and allocated anew for each shard */
    uint64_t rng;
    unsigned char *tokens;        /* of the shard that is open */
} loader;

static size_t length_of(int shard)
{
    return 7 + (size_t)shard * 5 % 9;
}

/* Stands for a file: the tokens of a shard follow from its number. */
static void open_shard(loader *l)
{
    int shard = l->shard_order[l->shard];
    uint64_t text = (uint64_t)shard + 99;
    l->samples = length_of(shard);
    free(l->tokens);
    l->tokens = malloc(l->samples * BATCH * (CONTEXT + 1));
    for (size_t i = 0; i < l->samples * BATCH; i++) {
        unsigned char *t = l->tokens + i * (CONTEXT + 1);
        t[0] = (unsigned char)(random_u64(&text) % VOCAB);
        for (int k = 1; k <= CONTEXT; k++)
            t[k] = (unsigned char)((t[k - 1] * 5 + 3 + (random_u64(&text) % 8 == 0)) % VOCAB);
    }
}

static void begin_shard(loader *l)
{
    open_shard(l);
    free(l->sample_order);
    l->sample_order = malloc(l->samples * sizeof *l->sample_order);
    shuffle(l->sample_order, l->samples, &l->rng);
    l->sample = 0;
}

static void begin_epoch(loader *l)
{
    shuffle(l->shard_order, SHARDS, &l->rng);
    l->shard = 0;
    begin_shard(l);
}

static const unsigned char *next_batch(loader *l)
{
    if (l->sample == l->samples) {
        l->shard++;
        if (l->shard == SHARDS)
            begin_epoch(l);
        else
            begin_shard(l);
    }
    return l->tokens + (size_t)l->sample_order[l->sample++] * BATCH * (CONTEXT + 1);
}

/* ---- the model: tokens are embedded, one hidden layer, the next token */

static const size_t sizes[TENSORS] = { VOCAB * WIDTH, HIDDEN * CONTEXT * WIDTH, HIDDEN, VOCAB * HIDDEN, VOCAB };

typedef struct model {
    float *params_memory, *grads_memory, *m_memory, *v_memory;
    float *wte, *fcw, *fcb, *outw, *outb;      /* in params_memory, each of its size, one after the other */
    size_t num_parameters;
} model;

static void build(model *m)
{
    uint64_t rng = 1337;
    float **tensors[TENSORS] = { &m->wte, &m->fcw, &m->fcb, &m->outw, &m->outb };
    memset(m, 0, sizeof *m);
    for (int i = 0; i < TENSORS; i++)
        m->num_parameters += sizes[i];
    m->params_memory = malloc(m->num_parameters * sizeof(float));
    m->grads_memory = malloc(m->num_parameters * sizeof(float));
    for (size_t i = 0; i < m->num_parameters; i++)
        m->params_memory[i] = ((float)(random_u64(&rng) >> 40) / 8388608.0f - 1.0f) * 0.3f;
    for (size_t i = 0, at = 0; i < TENSORS; at += sizes[i++])
        *tensors[i] = m->params_memory + at;
}

/* The loss of one context and its next token; its gradient is added to grads_memory. */
static float learn(model *m, const unsigned char *t)
{
    float *dwte = m->grads_memory, *dfcw = dwte + sizes[0], *dfcb = dfcw + sizes[1], *doutw = dfcb + sizes[2],
          *doutb = doutw + sizes[3], hidden[HIDDEN], dhidden[HIDDEN] = { 0 }, logits[VOCAB], sum = 0.0f;
    for (int h = 0; h < HIDDEN; h++) {
        float x = m->fcb[h];
        for (int i = 0; i < CONTEXT * WIDTH; i++)
            x += m->fcw[h * CONTEXT * WIDTH + i] * m->wte[t[i / WIDTH] * WIDTH + i % WIDTH];
        hidden[h] = tanhf(x);
    }
    for (int v = 0; v < VOCAB; v++) {
        float x = m->outb[v];
        for (int h = 0; h < HIDDEN; h++)
            x += m->outw[v * HIDDEN + h] * hidden[h];
        sum += logits[v] = expf(x);
    }
    for (int v = 0; v < VOCAB; v++) {
        float d = (logits[v] / sum - (v == t[CONTEXT] ? 1.0f : 0.0f)) / BATCH;
        doutb[v] += d;
        for (int h = 0; h < HIDDEN; h++) {
            doutw[v * HIDDEN + h] += d * hidden[h];
            dhidden[h] += d * m->outw[v * HIDDEN + h];
        }
    }
    for (int h = 0; h < HIDDEN; h++) {
        float d = dhidden[h] * (1.0f - hidden[h] * hidden[h]);
        dfcb[h] += d;
        for (int i = 0; i < CONTEXT * WIDTH; i++) {
            dfcw[h * CONTEXT * WIDTH + i] += d * m->wte[t[i / WIDTH] * WIDTH + i % WIDTH];
            dwte[t[i / WIDTH] * WIDTH + i % WIDTH] += d * m->fcw[h * CONTEXT * WIDTH + i];
        }
    }
    return -logf(logits[t[CONTEXT]] / sum) / BATCH;
}

static void update(model *m, int64_t t)
{
    const float lr = 0.01f, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f;
    if (!m->m_memory) {
        m->m_memory = calloc(m->num_parameters, sizeof(float));
        m->v_memory = calloc(m->num_parameters, sizeof(float));
    }
    for (size_t i = 0; i < m->num_parameters; i++) {
        float g = m->grads_memory[i];
        m->m_memory[i] = beta1 * m->m_memory[i] + (1.0f - beta1) * g;
        m->v_memory[i] = beta2 * m->v_memory[i] + (1.0f - beta2) * g * g;
        float m_hat = m->m_memory[i] / (1.0f - powf(beta1, (float)t)), v_hat = m->v_memory[i] / (1.0f - powf(beta2, (float)t));
        m->params_memory[i] -= lr * m_hat / (sqrtf(v_hat) + eps);
    }
}

static void train(model *m, loader *l, int64_t step)
{
    float loss = 0.0f;
    const unsigned char *batch = next_batch(l);
    memset(m->grads_memory, 0, m->num_parameters * sizeof(float));
    for (int b = 0; b < BATCH; b++)
        loss += learn(m, batch + b * (CONTEXT + 1));
    update(m, step + 1);
    printf("step %" PRId64 " shard %d of %zu loss %.6f (%a)\n", step + 1, l->shard_order[l->shard], l->samples, (double)loss,
           (double)loss);
}

int main(int argc, char **argv)
{
    int64_t last = argc > 1 ? atoll(argv[1]) : 200;
    model m;
    loader l = { .rng = 42, .shard_order = malloc(SHARDS * sizeof(int)) };
    setvbuf(stdout, NULL, _IOLBF, 0);
    build(&m);
    begin_epoch(&l);
    for (int64_t step = 0; step < last; step++)
        train(&m, &l, step);
    free(m.params_memory), free(m.grads_memory), free(m.m_memory), free(m.v_memory);
    free(l.shard_order), free(l.sample_order), free(l.tokens);
    return 0;
}
