/* anatomy/kinds.h - which organ of a training state is a place of the value tree? One question a kind: it answers with the evidence
 * (anatomy.h), 0 where the place is no such organ. anatomy.c asks all of them about each place. */
#ifndef CKPT_ANATOMY_KINDS_H
#define CKPT_ANATOMY_KINDS_H
#include "anatomy/anatomy.h"

/* module: the node is a module of libtorch or TorchScript that has weights (ckpt__script_modules). */
unsigned ckpt__model_evidence(const ckpt__anatomy *a, size_t node, bool module);
/* *out gets the form and the evidence, which may be 0: a list of groups that is empty. */
bool ckpt__find_optimizer(const ckpt__anatomy *a, const ckpt_value *v, ckpt__organ *out);
unsigned ckpt__broken_optimizer_evidence(const ckpt__anatomy *a, size_t node);
/* Are these states of parameters, by their keys? Of an optimizer whose groups are elsewhere they would look like models. */
bool ckpt__holds_moments(const ckpt_value *state);
unsigned ckpt__counter_evidence(const ckpt__anatomy *a, size_t node);
unsigned ckpt__rng_evidence(const ckpt__anatomy *a, size_t node);
unsigned ckpt__sampler_evidence(const ckpt__anatomy *a, size_t node);
unsigned ckpt__data_loader_evidence(const ckpt_value *dict);

/* A list with nothing in it but states of generators: one a GPU, or one a rank, whose state may be a dict of several generators'. */
bool ckpt__is_rng_list(const ckpt__index *index, const ckpt_value *v, ckpt_str path);
bool ckpt__is_of_gpu(ckpt_str path); /* does the path say so? */
/* The states of samplers of data, one a rank. */
bool ckpt__is_sampler_list(const ckpt_value *v, ckpt_str path);
#endif
