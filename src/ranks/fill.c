/* ranks/fill.c - the rows of the index, in the order of the tree: a tensor of all ranks in its pieces, and what one rank has alone as its
 * file has it. The rows of the files are left out. */
#include "ranks/flat.h"

#include <stdlib.h>
#include "model/visits.h"

typedef struct filler {
    ckpt__ranks *r;
    size_t *now; /* heap: by the number that a value has, 1 + that of its row; 0: none yet, or none was made */
    size_t count;
} filler;

/* What one rank has, under the name that it has now. */
static ckpt_status copy_row(filler *l, size_t from, const ckpt_tensor_info *named)
{
    ckpt__index *x = l->r->index;
    ckpt__tensor *t = ckpt__index_add_tensor(x);
    if (!t)
        return ckpt__ranks_no_memory(l->r->err);
    const ckpt__tensor *own = &x->tensors[from];
    if (own->info.extra->part_count || ckpt__is_split(own))
        return ckpt__ranks_wrong(l->r, own->info.file.data, named->name,
                                 "it is not dense, or lies in pieces in its file, and cannot be taken over");
    *t = *own;
    t->info.name = named->name;
    t->info.path = named->path;
    t->info.inside = named->inside;
    return CKPT_OK;
}

static ckpt_status join(filler *l, const ckpt__ranks_tensor *t, const ckpt_tensor_info *named, bool *made)
{
    ckpt__index *x = l->r->index;
    ckpt__tensor *own = ckpt__index_add_tensor(x);
    *made = false;
    if (!own)
        return ckpt__ranks_no_memory(l->r->err);
    const ckpt__tensor *like = &x->tensors[l->r->parts[t->first].row];
    own->info = like->info;
    own->sorted = like->sorted;
    own->info.name = named->name;
    own->info.path = named->path;
    own->info.inside = named->inside;
    own->info.extra = &ckpt__no_extra;
    own->info.file = own->info.device = (ckpt_str){NULL, 0};
    own->info.shape = own->info.strides = NULL;
    if (!t->shape)
        return CKPT_OK;
    return t->flat ? ckpt__flat_join(l->r, t, x->tensor_count - 1, made)
                   : ckpt__ranks_join(l->r, t, x->tensor_count - 1, made);
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    filler *l = ctx;
    ckpt__index *x = l->r->index;
    const ckpt_value *v = visit->value;
    ckpt_tensor_info named = {.inside = false};
    bool made = true;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= l->count)
        return CKPT_OK;
    if (!ckpt__visit_row(x->arena, visit, &named))
        return ckpt__ranks_no_memory(l->r->err);
    const size_t row = x->tensor_count;
    ckpt_status status = v->tensor < l->r->row_count
                             ? copy_row(l, v->tensor, &named)
                             : join(l, &l->r->tensors[v->tensor - l->r->row_count], &named, &made);
    if (!l->now[v->tensor])
        l->now[v->tensor] = made ? row + 1 : 0;
    return status;
}

/* What two stages have, each for itself, is the same. */
static ckpt_status compare_twin(filler *l, const ckpt__ranks_twin *twin)
{
    ckpt__ranks *r = l->r;
    const ckpt__ranks_tensor *one = &r->tensors[twin->one], *other = &r->tensors[twin->other];
    const size_t row = l->now[r->row_count + twin->one];
    const ckpt_tensor_info named = {.name = other->name.shown};
    bool made = false, same = true;
    uint64_t at = 0;
    if (row == 0 || r->files->first)
        return CKPT_OK;
    const size_t twin_row = r->index->tensor_count;
    ckpt_status status = join(l, other, &named, &made);
    if (status < 0 || !made)
        return status;
    const ckpt_tensor_info *a = &r->index->tensors[row - 1].info, *b = &r->index->tensors[twin_row].info;
    if (a->dtype != b->dtype || !ckpt__same_shape(a->shape, a->ndim, b->shape, b->ndim))
        return ckpt__ranks_wrong(r, r->parts[other->first].file->name, other->name.shown,
                                 "it has not the shape and the dtype that it has in %s, another stage, which shares it",
                                 r->parts[one->first].file->name);
    if (a->nbytes)
        status = ckpt__ranks_same_bytes(r, row - 1, twin_row, &same, &at);
    return status == CKPT_OK && !same
               ? ckpt__ranks_wrong(
                     r, r->parts[other->first].file->name, other->name.shown,
                     "it is not that in %s, another stage, which shares it by the layout: they differ from element "
                     "%llu on ('replicate: first' takes the first's)",
                     r->parts[one->first].file->name, (unsigned long long)at)
               : status;
}

static ckpt_status leave_out(const filler *l, size_t end)
{
    ckpt__index *x = l->r->index;
    bool *keep = calloc(x->tensor_count + 1, sizeof *keep);
    if (!keep)
        return ckpt__ranks_no_memory(l->r->err);
    for (size_t i = l->r->row_count; i < end; i++)
        keep[i] = x->tensors[i].info.path.count != 0; /* the others were made to be compared */
    ckpt_status status = ckpt__index_keep(x, keep, l->r->err);
    free(keep);
    return status;
}

ckpt_status ckpt__ranks_fill(ckpt__ranks *r)
{
    filler l = {.r = r, .count = r->row_count + r->tensor_count};
    ckpt_status status = (l.now = calloc(l.count + 1, sizeof *l.now)) ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(r->index->root, 0, on_visit, &l, r->err);
    const size_t end = r->index->tensor_count;
    for (size_t i = 0; status == CKPT_OK && i < r->twin_count; i++)
        status = compare_twin(&l, &r->twins[i]);
    if (status == CKPT_OK && !r->wrong) {
        status = ckpt__values_number(r->index->root, l.now, l.count, r->err);
        if (status == CKPT_OK)
            status = leave_out(&l, end);
        if (status == CKPT_OK && r->native)
            status = ckpt__ranks_drop_tensors(r, r->index);
        for (size_t i = 0; r->native && i < r->index->tensor_count; i++)
            r->index->tensors[i].info.path = (ckpt_path){NULL, 0};
    }
    free(l.now);
    return status;
}
