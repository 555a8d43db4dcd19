/* model/visits.h - what walks of a value tree (ckpt_value_walk) do for several rooms. */
#ifndef CKPT_MODEL_VISITS_H
#define CKPT_MODEL_VISITS_H
#include "model/index.h"

/* The way that the walk has come, and the name, the way and `inside` of a tensor's row: copies in the arena. The visit's own end with it.
 * False: no memory. */
bool ckpt__visit_path(ckpt__arena *a, const ckpt_visit *visit, ckpt_path *out);
bool ckpt__visit_row(ckpt__arena *a, const ckpt_visit *visit, ckpt_tensor_info *out);

/* Appends what the value says, without what is below it and without a tensor's own. Two trees whose visits come to the same bytes are the
 * same, but for their tensors. */
void ckpt__visit_bytes(ckpt__buf *out, const ckpt_visit *visit);

/* Is a tensor in it? 1, 0, or an error of the walk. */
int ckpt__value_has_tensor(const ckpt_value *v, ckpt_error *err);

/* The TENSOR values with numbers below `count` get others: n becomes now[n] - 1, and where that is no number (now[n] is 0) the value
 * becomes NONE. One that is reached twice is changed once. The tree is to be the caller's own. root NULL: there is none. */
ckpt_status ckpt__values_number(const ckpt_value *root, const size_t *now, size_t count, ckpt_error *err);
#endif
