/* format/torch/libtorch.h - optimizers of libtorch in C++ in the shape that torch.optim has in Python, so that whoever reads an
 * optimizer reads one shape. What was read is not touched: it is what is written again.
 *
 *   {"pytorch_version": "1.5.0", "state": {"<address>": {"step": 5, "exp_avg": T, ...}},
 *    "param_groups": {"param_groups/size": T, "param_groups/0": {"params/size": T, "params/0": "<address>", ...,
 *                                                                "options": {"lr": ..., ...}}}}
 * becomes
 *   {'state': {'<address>': {'step': 5, 'exp_avg': T, ...}}, 'param_groups': [{'lr': ..., 'params': ['<address>', ...]}]}
 *
 * An address is one of a process that has ended: it is an id, and no name. Before 1.5 there were neither addresses nor settings,
 * one list for each kind of state, in the parameters' order:
 *   {"step_buffers/size": T, "step_buffers/0": T, ..., "exp_average_buffers/0": T, ...}
 * becomes
 *   {'state': {0: {'step': T, 'exp_avg': T}, ...}, 'param_groups': [{'params': [0, ...]}]}
 *
 * [torch/csrc/api/include/torch/optim/serialize.h; the load() functions of torch/csrc/api/src/optim] */
#ifndef CKPT_LIBTORCH_H
#define CKPT_LIBTORCH_H
#include "model/preorder.h"
#include "model/rewrite.h"

/* Of a dict that ckpt__is_cpp_optimizer takes for one. *out is made in the arena, keeps the class of `v`, and shares the states and
 * settings with it; only what says how many items a list has is left out. ids NULL, or an empty table, for which the parameters are
 * listed as 0, 1, ... in the order of the groups: it gets the number of each address. CKPT_E_MISMATCH names `object`: a list has a
 * hole, a group is no dict, a parameter is no string. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__libtorch_ordinary(const ckpt_value *v, ckpt__arena *arena, ckpt__hash *ids, const char *object,
                                    const ckpt_value **out, ckpt_error *err);
/* The items "<head>0", "<head>1", ... of a dict by their numbers, in the arena. The errors are the same. */
ckpt_status ckpt__libtorch_list(const ckpt_value *dict, ckpt_str head, ckpt__arena *arena, const char *object,
                                const ckpt_value ***items, size_t *count, ckpt_error *err);
/* Gives the nodes of one that was made so, and became the node of a tree, the names that the file has for them, in the arena. false: no
 * memory. */
bool ckpt__libtorch_name(ckpt__tree *tree, size_t node, const ckpt__index *index, ckpt__arena *arena);
/* All such optimizers of a tree, for who reads it: *out is `root` itself where there is none. One that has a hole stays as it is.
 * made: gets the dict that each became, with this number. CKPT_E_NO_MEMORY. */
ckpt_status ckpt__libtorch_all_ordinary(const ckpt_value *root, ckpt__arena *arena, ckpt__pointers *made, size_t number,
                                        const ckpt_value **out, ckpt_error *err);
#endif
