/* state/scalars.h - the scalars of a state as a value tree: nested dicts by the dots of their names. */
#ifndef CKPT_TREE_H
#define CKPT_TREE_H
#include "state/state.h"
#include "model/index.h"

/* *step: the value bound as "step", or -1. Strings and bytes are copied. */
ckpt_status ckpt__state_tree(const ckpt_state *state, ckpt__arena *arena, const ckpt_value **root, int64_t *step,
                             ckpt_error *err);
#endif
