/* save/same.c - the plan of a save: a bond a tensor, and an op a dtype. */
#include "save/same.h"

#include <stdlib.h>

/* Those of a state have elements of whole bytes: each dtype has an op. */
static ckpt_status op_of(ckpt__same *s, uint16_t *of_dtype, ckpt_dtype dtype, size_t *count, ckpt_error *err)
{
    const ckpt__op_want want = {.from = dtype, .to = dtype};
    if (of_dtype[dtype] != CKPT__OP_BYTES)
        return CKPT_OK;
    of_dtype[dtype] = (uint16_t)*count;
    return ckpt__op_make(&want, ckpt_dtype_name(dtype), &s->ops[(*count)++], err);
}

ckpt_status ckpt__same_new(const ckpt__same_want *want, ckpt__same *s, ckpt_error *err)
{
    uint16_t of_dtype[CKPT__DTYPE_COUNT];
    size_t ops = 0, bonds = 0;
    ckpt_status status = CKPT_OK;
    memset(of_dtype, 0xff, sizeof of_dtype); /* CKPT__OP_BYTES: none yet */
    s->plan = NULL;
    if (!(s->bonds = malloc((want->count + 1) * sizeof *s->bonds)))
        return ckpt__fail_memory(err, "plan", want->count * sizeof *s->bonds);
    for (size_t i = 0; status == CKPT_OK && i < want->count; i++) {
        const ckpt_tensor_info *t = &want->from->tensors[i].info;
        if (t->nbytes == 0)
            continue;
        status = op_of(s, of_dtype, t->dtype, &ops, err);
        s->bonds[bonds++] = (ckpt__bond){
            .to = (uint32_t)(i < want->skip ? i : i + want->skipped), .from = (uint32_t)i, .op = of_dtype[t->dtype]};
    }
    ckpt__plan_want plan = {.from = want->from,
                            .to = want->to,
                            .bonds = s->bonds,
                            .bond_count = bonds,
                            .ops = s->ops,
                            .op_count = ops,
                            .whole = want->whole};
    if (status == CKPT_OK)
        status = ckpt__plan_new(&plan, &s->plan, err);
    if (status < 0)
        ckpt__same_free(s);
    return status;
}

void ckpt__same_free(ckpt__same *s)
{
    ckpt__plan_free(s->plan);
    free(s->bonds);
    s->plan = NULL;
    s->bonds = NULL;
}
