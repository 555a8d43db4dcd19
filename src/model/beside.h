/* model/beside.h - a model's tensors beside the optimizer that trains them, in one dict with all else, as torchtitan saves them:
 *     {"train_state": {...}, "optimizer": {"state.embed.weight.exp_avg": T0, ...}, "embed.weight": T1, "layers.0.up.bias": T2} */
#ifndef CKPT_BESIDE_H
#define CKPT_BESIDE_H
#include "model/index.h"

/* The keys of the dict that are the model's: *weights is a hash of them, which the caller frees, or NULL where it is no such dict:
 * where no optimizer in it has the name of a tensor beside it. A dict that has the optimizer's keys itself (model/flat_state.h) is
 * one if it has any tensor of a module. false: no memory. */
bool ckpt__beside(const ckpt_value *dict, ckpt__hash **weights);
#endif
