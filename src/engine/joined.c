/* engine/joined.c - a plan of one bond: from the pieces of a tensor to one storage that has it, or a box of it, in C order. */
#include "engine/joined.h"

#include <stdlib.h>
#include "engine/pull.h"

/* Everything that the plan borrows lies here. The target is put together by hand, as a checkpoint may have a hundred thousand tensors
 * that are turned: an index of its own for each would cost more than a small one's elements. */
struct ckpt__joined {
    ckpt__index to; /* one tensor in C order, whole or one piece of it, and its storage; it owns nothing */
    ckpt__storage storage;
    ckpt__tensor tensor;
    ckpt__bond bond;
    ckpt__op op;
    ckpt__plan *plan; /* owned, as is the pull */
    ckpt__pull *pull;
    ckpt__piece piece; /* the box, where one is asked for */
    int64_t numbers[]; /* strides of the tensor; or the box */
};

/* What is asked for. lo NULL: all of the tensor, and size means nothing. */
typedef struct wanted {
    const ckpt__source *source;
    const ckpt__index *index;
    size_t tensor;
    const int64_t *lo, *size;
    uint64_t bytes; /* of the box */
    bool resolve, check;
    uint64_t memory;
} wanted;

/* The target: what the tensor would be if it were whole and in C order; or the box alone, as a tensor of one piece. */
static void make_target(ckpt__joined *j, const wanted *w)
{
    const ckpt_tensor_info *info = &w->index->tensors[w->tensor].info;
    j->storage = (ckpt__storage){.name = info->name, .unit = 1};
    j->storage.extent.size = j->storage.extent.length = w->bytes;
    j->tensor = (ckpt__tensor){.info = *info, .whole = !w->lo, .piece_count = w->lo != NULL};
    j->tensor.info.strides = w->lo ? NULL : j->numbers;
    j->tensor.info.offset = 0;
    j->to = (ckpt__index){.storages = &j->storage, .storage_count = 1, .tensors = &j->tensor, .tensor_count = 1};
    if (!w->lo) {
        ckpt__c_strides(info->shape, info->ndim, j->numbers);
        return;
    }
    memcpy(j->numbers, w->lo, info->ndim * sizeof *w->lo);
    memcpy(j->numbers + info->ndim, w->size, info->ndim * sizeof *w->size);
    j->piece.box = j->numbers;
    j->to.pieces = &j->piece;
    j->to.piece_count = 1;
}

static ckpt_status make(const wanted *w, ckpt__joined **out, ckpt_error *err)
{
    const ckpt__tensor *t = &w->index->tensors[w->tensor];
    const ckpt_tensor_info *info = &t->info;
    ckpt__joined *j = calloc(1, sizeof *j + (w->lo ? 2 : 1) * info->ndim * sizeof *j->numbers);
    *out = NULL;
    if (!j)
        return ckpt__fail_memory(err, info->name.data, sizeof *j);
    ckpt__op_want want = {.from = info->dtype,
                          .to = info->dtype,
                          .from_swap = ckpt__plan_swap_of(w->index, t),
                          .conj = w->resolve && info->conj,
                          .neg = w->resolve && info->neg};
    j->bond.from = (uint32_t)w->tensor;
    ckpt__plan_want asked = {
        .from = w->index, .bonds = &j->bond, .bond_count = 1, .ops = &j->op, .op_count = 1, .whole = true};
    make_target(j, w);
    asked.to = &j->to;
    ckpt_status status = ckpt__op_make(&want, info->name.data, &j->op, err);
    if (status == CKPT_OK)
        status = ckpt__plan_new(&asked, &j->plan, err);
    if (status == CKPT_OK)
        status = ckpt__pull_new(j->plan, w->source, w->check, w->memory, &j->pull, err);
    if (status < 0)
        ckpt__joined_free(j);
    else
        *out = j;
    return status;
}

ckpt_status ckpt__joined_new(const ckpt__source *source, const ckpt__index *index, size_t tensor, bool resolve,
                             bool check, uint64_t memory, ckpt__joined **out, ckpt_error *err)
{
    const wanted w = {.source = source,
                      .index = index,
                      .tensor = tensor,
                      .bytes = index->tensors[tensor].info.nbytes,
                      .resolve = resolve,
                      .check = check,
                      .memory = memory};
    return make(&w, out, err);
}

ckpt_status ckpt__joined_box(const ckpt__source *source, const ckpt__index *index, size_t tensor, const int64_t *lo,
                             const int64_t *size, void *dst, size_t n, ckpt_error *err)
{
    const wanted w = {.source = source,
                      .index = index,
                      .tensor = tensor,
                      .lo = lo,
                      .size = size,
                      .bytes = n,
                      .resolve = true,
                      .check = true};
    ckpt__joined *j;
    ckpt_status status = make(&w, &j, err);
    if (status == CKPT_OK)
        status = ckpt__joined_read(j, 0, dst, n, err);
    ckpt__joined_free(j);
    return status;
}

void ckpt__joined_free(ckpt__joined *j)
{
    if (!j)
        return;
    ckpt__pull_free(j->pull);
    ckpt__plan_free(j->plan);
    free(j);
}

ckpt_status ckpt__joined_read(ckpt__joined *j, uint64_t begin, void *dst, size_t n, ckpt_error *err)
{
    return ckpt__pull_bytes(j->pull, 0, begin, begin + n, dst, NULL, err);
}
