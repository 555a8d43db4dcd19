/* model/flat_state.h - an optimizer's state as torch.distributed.checkpoint.state_dict flattens it (StateDictOptions with
 * flatten_optimizer_state_dict=True, torchtitan): one dict with a key for each value, "state.<parameter>.exp_avg" and
 * "param_groups.<parameter>.lr" for every parameter. The parameters' names may hold dots, the keys behind them none. */
#ifndef CKPT_FLAT_STATE_H
#define CKPT_FLAT_STATE_H
#include "model/index.h"

/* Is this dict one, or does it hold one? *prefix is what stands before "state." and "param_groups.": "", "optimizer.", ... */
bool ckpt__flat_state(const ckpt_value *dict, ckpt_str *prefix);
/* A key of it taken apart; false: it is none of the optimizer's. */
bool ckpt__flat_key(ckpt_str key, ckpt_str prefix, bool *group, ckpt_str *param, ckpt_str *what);
#endif
