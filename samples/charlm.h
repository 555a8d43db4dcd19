/* charlm.h - a small transformer language model over characters: what nanoGPT is, in plain C and float32.
 *
 * Token and position embeddings, pre-LayerNorm blocks of causal multi-head attention and a GELU MLP, a final
 * LayerNorm, an untied head. The parameters have the names that the same model has in PyTorch
 * (torch/make_checkpoint.py), so that a checkpoint of either can be resumed by the other. */
#ifndef CHARLM_H
#define CHARLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CHARLM_VOCAB = 96,        /* newline, and ' ' to '~' */
    CHARLM_CONTEXT = 32,      /* T: characters that the model sees */
    CHARLM_WIDTH = 32,        /* C */
    CHARLM_HEADS = 4,
    CHARLM_LAYERS = 2,
    CHARLM_BATCH = 8,         /* B: sequences of one step */
    CHARLM_PARAMS = 2 + 12 * CHARLM_LAYERS + 3
};

typedef struct charlm_param {
    char name[48];
    int64_t shape[2];
    uint32_t ndim;
    size_t offset, count;     /* floats, into one arena */
    bool decay;               /* weight decay: matrices and embeddings, not biases and norms */
} charlm_param;

/* Where each parameter lies in an arena of *total floats; gradients and moments have the same layout. */
void charlm_layout(charlm_param params[CHARLM_PARAMS], size_t *total);

/* The symbol of a byte of text. */
int charlm_symbol(unsigned char byte);

/* Fresh weights from a seed. */
void charlm_init(const charlm_param params[CHARLM_PARAMS], float *weights, uint64_t seed);

/* The activations of one forward pass, kept for the backward pass. */
typedef struct charlm charlm;
charlm *charlm_new(void);                 /* NULL when memory is short */
void charlm_free(charlm *model);

/* The mean cross entropy of predicting targets from inputs, both [B][T]. weights[i] is where parameter i lies. */
float charlm_forward(charlm *model, float *const *weights, const int *inputs, const int *targets);
/* The gradient of scale * loss; overwrites grads[i]. */
void charlm_backward(charlm *model, float *const *weights, float *const *grads, float scale);

/* ---- the data: which characters step n sees is a function of the generator's state alone */

/* A counter-based generator: number i of stream `seed`. Its two words are all there is to save. */
typedef struct charlm_rng {
    uint64_t seed, counter;
} charlm_rng;
uint64_t charlm_random(charlm_rng *rng);  /* splitmix64 */

/* Fills inputs and targets with B pieces of the text, at places drawn from rng. size > CHARLM_CONTEXT. */
void charlm_batch(charlm_rng *rng, const unsigned char *text, size_t size, int *inputs, int *targets);

#endif
