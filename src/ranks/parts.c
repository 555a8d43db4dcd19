/* ranks/parts.c - the parts of all ranks as one tensor. The whole has along each dimension what the ranks have together that its cuts
 * part; then each rank's part has to be just what the cuts leave it of the whole. */
#include "ranks/flat.h"

#include <stdio.h>
#include <stdlib.h>

static const ckpt__tensor *row_of(const ckpt__ranks *r, const ckpt__ranks_part *p)
{
    return &r->index->tensors[p->row];
}

static ckpt_status differ(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t part, const char *what, const char *own,
                          const char *other)
{
    return ckpt__ranks_wrong(
        r, r->parts[t->first + part].file->name, t->name.shown,
        "%s is %s in it, and %s in %s: these are not the files of one run, or the layout is not theirs", what, own,
        other, r->parts[t->first].file->name);
}

/* ---- what all parts have in common */

static ckpt_status check_part(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t i, bool *fits)
{
    const ckpt__tensor *one = row_of(r, &r->parts[t->first]), *own = row_of(r, &r->parts[t->first + i]);
    char a[120], b[120];
    *fits = false;
    if ((!own->whole && own->info.nbytes) || own->info.extra->part_count || ckpt_dtype_size(own->info.dtype) == 0)
        return ckpt__ranks_wrong(r, r->parts[t->first + i].file->name, t->name.shown,
                                 "it is not a dense tensor with elements of whole bytes, and cannot be put together");
    if (own->info.dtype != one->info.dtype)
        return differ(r, t, i, "the dtype", ckpt_dtype_name(own->info.dtype), ckpt_dtype_name(one->info.dtype));
    ckpt__shape_text(a, sizeof a, own->info.shape, own->info.ndim);
    ckpt__shape_text(b, sizeof b, one->info.shape, one->info.ndim);
    if (own->info.ndim != one->info.ndim ||
        (t->shard == SIZE_MAX && !t->flat &&
         !ckpt__same_shape(own->info.shape, own->info.ndim, one->info.shape, one->info.ndim)))
        return differ(r, t, i, t->shard == SIZE_MAX ? "no axis cuts it, and the shape" : "the shape", a, b);
    if (own->info.conj != one->info.conj || own->info.neg != one->info.neg)
        return differ(r, t, i, "whether it is a lazy conjugate or negation", "otherwise", "one way");
    *fits = true;
    return CKPT_OK;
}

/* All files of a tensor are of one place along the axis of the stages. */
static bool is_stages(const ckpt__ranks *r, size_t axis)
{
    return r->files->stages.there && r->files->stages.axis == axis;
}

/* The rank of the first stage that has the place of a rank in its own. */
static uint32_t in_first_stage(const ckpt__ranks *r, const ckpt__ranks_file *f)
{
    int64_t at[CKPT__MESH_AXES] = {0};
    for (size_t a = 0; a < r->mesh.count; a++)
        at[a] = is_stages(r, a) ? 0 : f->at[a];
    return ckpt__rank_mesh_rank(&r->mesh, at);
}

/* Does the rank stand at 0 along each axis that does not cut that dimension? */
static bool is_along(const ckpt__ranks *r, const ckpt__ranks_file *f, const size_t *axes, const uint32_t *dims,
                     size_t cuts, uint32_t dim)
{
    bool along[CKPT__MESH_AXES] = {false};
    for (size_t i = 0; i < cuts; i++)
        along[axes[i]] = along[axes[i]] || dims[i] == dim;
    for (size_t a = 0; a < r->mesh.count; a++)
        if (!along[a] && !is_stages(r, a) && f->at[a] != 0)
            return false;
    return true;
}

ckpt_status ckpt__ranks_shape(ckpt__ranks *r, ckpt__ranks_tensor *t)
{
    const ckpt_tensor_info *one = &row_of(r, &r->parts[t->first])->info;
    size_t axes[CKPT__MESH_AXES], cuts = 0;
    uint32_t dims[CKPT__MESH_AXES];
    bool fits = true;
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; status == CKPT_OK && fits && i < t->count; i++)
        status = check_part(r, t, i, &fits);
    if (status == CKPT_OK && fits && t->flat) { /* its parameter stands before it */
        t->shape = r->tensors[t->flat->set->params[t->flat->param]].shape;
        return CKPT_OK;
    }
    int64_t *shape = ckpt__arena_array(r->arena, (size_t)one->ndim + 1, sizeof *shape);
    if (status < 0 || !fits || !shape)
        return status < 0 || !fits ? status : ckpt__ranks_no_memory(r->err);
    if (t->shard != SIZE_MAX)
        cuts = ckpt__layout_shard_axes(r->request->layout, r->request->side, t->shard, axes, dims);
    for (size_t i = 0; i < cuts; i++)
        if (dims[i] >= one->ndim)
            return ckpt__ranks_wrong(r, r->parts[t->first].file->name, t->name.shown,
                                     "it has %u dimensions, and the layout cuts dimension %u (from 0)", one->ndim,
                                     dims[i]);
    for (uint32_t d = 0; d < one->ndim; d++) {
        shape[d] = 0;
        for (size_t i = 0; i < t->count; i++) {
            const ckpt__ranks_part *p = &r->parts[t->first + i];
            if (is_along(r, p->file, axes, dims, cuts, d) &&
                __builtin_add_overflow(shape[d], row_of(r, p)->info.shape[d], &shape[d]))
                return ckpt__ranks_wrong(r, p->file->name, t->name.shown,
                                         "the ranks have more of it than 64 bits count");
        }
    }
    t->shape = shape;
    return CKPT_OK;
}

ckpt_status ckpt__ranks_find_vars(ckpt__ranks *r)
{
    ckpt__layout_name *names = calloc(r->tensor_count + 1, sizeof *names);
    size_t count = 0;
    ckpt_status status = names ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    for (size_t i = 0; names && i < r->tensor_count; i++) {
        const ckpt__ranks_tensor *t = &r->tensors[i];
        if (t->shape && !t->name.state)
            names[count++] = (ckpt__layout_name){
                .name = t->name.param, .ndim = row_of(r, &r->parts[t->first])->info.ndim, .shape = t->shape};
    }
    if (status == CKPT_OK)
        status = ckpt__layout_match_vars(r->request->layout, r->request->side, names, count, r->request->vars,
                                         r->request->var_count, r->request->report, &r->vars, r->err);
    free(names);
    return status;
}

/* ---- the tensor */

/* One tensor on its way. A piece's box begins at numbers[its `box` as a number]: lo, size, strides. */
typedef struct joining {
    ckpt__ranks *r;
    const ckpt__ranks_tensor *t;
    const ckpt__rank_cut *cuts;
    size_t cut_count;
    uint32_t ndim;
    ckpt__arena *arena; /* owned */
    ckpt__piece *pieces;
    size_t count, capacity; /* heap */
    bool wrong;
} joining;

static ckpt_status add_box(joining *j, const ckpt__tensor *own, const ckpt__rank_box *box)
{
    const uint32_t n = j->ndim;
    int64_t *numbers = ckpt__arena_array(j->arena, 3 * (size_t)n + 1, sizeof *numbers), at = own->info.offset, c = 1;
    if (!numbers || !ckpt__grow(&j->pieces, &j->capacity, j->count + 1, sizeof *j->pieces))
        return ckpt__ranks_no_memory(j->r->err);
    for (uint32_t d = n; d-- > 0;) { /* inside of the rank's own tensor, whose view was checked */
        const int64_t stride = own->info.strides ? own->info.strides[d] : c;
        c *= own->info.shape[d];
        numbers[d] = box->lo[d];
        numbers[n + d] = box->size[d];
        numbers[2 * n + d] = stride;
        at += box->at[d] * stride;
    }
    const bool strided = !ckpt__is_c_order(numbers + n, numbers + 2 * n, n);
    j->pieces[j->count++] = (ckpt__piece){.box = numbers,
                                          .at = (uint64_t)at * ckpt_dtype_size(own->info.dtype),
                                          .storage = own->storage,
                                          .flags = strided ? CKPT__PIECE_STRIDED : 0};
    return CKPT_OK;
}

/* "rank 3 (dp=1, tp=1)" of both, and where they differ. */
static ckpt_status say_unlike(joining *j, const ckpt__ranks_part *one, const ckpt__ranks_part *own, uint64_t at)
{
    char a[200], b[200];
    j->wrong = true;
    return ckpt__ranks_wrong(
        j->r, own->file->name, j->t->name.shown,
        "%s has other elements of it than %s in %s, from element %llu of its own on, and by the layout they have the same: the "
        "layout does not cut it as the program does, or the ranks have drifted apart ('replicate: first' takes the first's)",
        ckpt__ranks_rank_text(j->r, own->file, a, sizeof a), ckpt__ranks_rank_text(j->r, one->file, b, sizeof b),
        one->file->name, (unsigned long long)at);
}

static int by_rank(const void *a, const void *b)
{
    const ckpt__ranks_part *x = a, *y = b;
    return (x->file->rank > y->file->rank) - (x->file->rank < y->file->rank);
}

/* The rank has the same as the first of its replicas, which stands at 0 along each axis that does not cut. */
static ckpt_status compare(joining *j, const ckpt__ranks_part *own)
{
    ckpt__ranks_file first = *own->file;
    const ckpt__ranks_part key = {.file = &first};
    bool same = true;
    uint64_t at;
    for (size_t a = 0; a < j->r->mesh.count; a++) {
        bool cuts = is_stages(j->r, a);
        for (size_t k = 0; k < j->cut_count; k++)
            cuts = cuts || j->cuts[k].axis == a;
        first.at[a] = cuts ? first.at[a] : 0;
    }
    first.rank = ckpt__rank_mesh_rank(&j->r->mesh, first.at);
    const ckpt__ranks_part *one = bsearch(&key, j->r->parts + j->t->first, j->t->count, sizeof *j->r->parts, by_rank);
    if (!one || one == own || j->r->files->first || row_of(j->r, own)->info.nbytes == 0)
        return CKPT_OK;
    ckpt_status status = ckpt__ranks_same_bytes(j->r, one->row, own->row, &same, &at);
    return status == CKPT_OK && !same ? say_unlike(j, one, own, at) : status;
}

static ckpt_status misfit(joining *j, const ckpt__ranks_part *p, const int64_t *wanted)
{
    char own[120], expected[120], whole[120], rank[200];
    const ckpt_tensor_info *info = &row_of(j->r, p)->info;
    size_t line = 0, column;
    ckpt__shape_text(own, sizeof own, info->shape, info->ndim);
    ckpt__shape_text(expected, sizeof expected, wanted, info->ndim);
    ckpt__shape_text(whole, sizeof whole, j->t->shape, info->ndim);
    if (j->t->shard != SIZE_MAX)
        ckpt__layout_shard_optional(j->r->request->layout, j->r->request->side, j->t->shard, &line, &column);
    j->wrong = true;
    return ckpt__ranks_wrong(
        j->r, p->file->name, j->t->name.shown,
        "%s has %s of it, and by the cuts in line %zu it would have %s of the whole, which is %s in all "
        "files together",
        ckpt__ranks_rank_text(j->r, p->file, rank, sizeof rank), own, line, expected, whole);
}

static ckpt_status add_part(joining *j, const ckpt__ranks_part *p)
{
    const ckpt__tensor *own = row_of(j->r, p);
    ckpt__rank_part part;
    ckpt_error why = CKPT_ERROR_INIT;
    ckpt_status status = ckpt__rank_part_of(&j->r->mesh, j->cuts, j->cut_count, j->ndim, j->t->shape,
                                            in_first_stage(j->r, p->file), j->arena, &part, &why);
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__ranks_no_memory(j->r->err);
    if (status < 0) {
        char whole[120];
        ckpt__shape_text(whole, sizeof whole, j->t->shape, j->ndim);
        j->wrong = true;
        return ckpt__ranks_wrong(j->r, p->file->name, j->t->name.shown, "it is %s in all files together: %s", whole,
                                 why.message);
    }
    if (!ckpt__same_shape(own->info.shape, own->info.ndim, part.shape, j->ndim))
        return misfit(j, p, part.shape);
    if (!part.first)
        return compare(j, p);
    for (size_t i = 0; status == CKPT_OK && i < part.count; i++)
        status = add_box(j, own, &part.boxes[i]);
    return status;
}

ckpt_status ckpt__ranks_set(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, const ckpt__piece *pieces,
                            size_t count)
{
    ckpt__index *x = r->index;
    uint64_t numel;
    if (!ckpt__numel(t->shape, x->tensors[row].info.ndim, &numel) || numel == 0)
        return ckpt__index_set_empty(x, row, t->shape, r->err); /* no rank has a byte of it */
    ckpt_status status = ckpt__index_set_pieces(x, row, t->shape, pieces, count, r->err);
    if (status == CKPT_OK && t->alone && x->tensors[row].whole && !ckpt__index_own_storage(x, row))
        status = ckpt__ranks_no_memory(r->err);
    return status;
}

static ckpt_status find_cuts(joining *j)
{
    ckpt_error why = CKPT_ERROR_INIT;
    if (j->t->shard == SIZE_MAX)
        return CKPT_OK;
    ckpt_status status =
        ckpt__layout_shard_cuts(j->r->request->layout, j->r->request->side, j->t->shard, &j->r->mesh,
                                ckpt__layout_value, j->r->vars, j->arena, &j->cuts, &j->cut_count, &why);
    if (status == CKPT_E_NO_MEMORY)
        return ckpt__ranks_no_memory(j->r->err);
    j->wrong = status < 0;
    return status < 0 ? ckpt__ranks_wrong(j->r, NULL, j->t->name.shown, "%s", why.message) : CKPT_OK;
}

ckpt_status ckpt__ranks_join(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, bool *made)
{
    joining j = {.r = r, .t = t, .ndim = row_of(r, &r->parts[t->first])->info.ndim, .arena = ckpt__arena_new(0)};
    uint64_t numel;
    ckpt_status status = j.arena ? find_cuts(&j) : ckpt__ranks_no_memory(r->err);
    *made = false;
    if (status == CKPT_OK && !ckpt__numel(t->shape, j.ndim, &numel)) {
        j.wrong = true;
        status = ckpt__ranks_wrong(r, NULL, t->name.shown, "it has more elements than 64 bits count");
    }
    for (size_t i = 0; status == CKPT_OK && !j.wrong && i < t->count; i++)
        status = add_part(&j, &r->parts[t->first + i]);
    *made = status == CKPT_OK && !j.wrong;
    if (*made)
        status = ckpt__ranks_set(r, t, row, j.pieces, j.count);
    free(j.pieces);
    ckpt__arena_free(j.arena);
    return status;
}
