/* save/same.h - the plan of a save: each tensor becomes itself, in C order or where a snapshot has it. */
#ifndef CKPT_SAVE_SAME_H
#define CKPT_SAVE_SAME_H
#include "engine/plan.h"

/* All zero is none. What it was made of is borrowed; the plan borrows from the struct, which does not move. */
typedef struct ckpt__same {
    ckpt__bond *bonds;               /* heap, owned, as is the plan */
    ckpt__op ops[CKPT__DTYPE_COUNT]; /* of the dtypes that there are, by first appearance */
    ckpt__plan *plan;
} ckpt__same;

/* Tensors 0 ... count - 1 of both indexes are the same ones, but that `skipped` tensors of `to` from number `skip` on have none in
 * `from`: aliases. whole: as ckpt__plan_want has it. */
typedef struct ckpt__same_want {
    const ckpt__index *from, *to;
    size_t count; /* tensors of `from` */
    size_t skip, skipped;
    bool whole;
} ckpt__same_want;
ckpt_status ckpt__same_new(const ckpt__same_want *want, ckpt__same *out, ckpt_error *err);
void ckpt__same_free(ckpt__same *same);
#endif
