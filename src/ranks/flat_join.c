/* ranks/flat_join.c - what flat buffers have of one parameter, as pieces of it: each rank's elements of its own part of the parameter,
 * which lie side by side, as boxes; and those as boxes of the whole. */
#include "ranks/flat.h"

#include <stdlib.h>
#include "model/box.h"

/* One state on its way. */
typedef struct joining {
    ckpt__ranks *r;
    const ckpt__ranks_tensor *t, *param;
    const ckpt__flat_state *state;
    const ckpt__flat_set *set;
    const ckpt__rank_cut *cuts;
    size_t cut_count;
    ckpt__arena *arena; /* owned */
    ckpt__piece *pieces;
    size_t count, capacity; /* heap */
    /* of the part that is added */
    ckpt_tensor_info own; /* the parameter of this rank */
    const ckpt__rank_part *part;
    int64_t at, begin; /* of the parameter in the buffer, and of the rank's part in it */
    const ckpt__tensor *buffer;
    bool wrong;
} joining;

const ckpt__ranks_part *ckpt__flat_part_of(const ckpt__ranks *r, const ckpt__ranks_tensor *t, const ckpt__ranks_file *f)
{
    for (size_t i = 0; i < t->count; i++) {
        const ckpt__ranks_part *p = &r->parts[t->first + i];
        bool is = true;
        for (size_t a = 0; is && a < r->mesh.count; a++)
            is = !t->group->along[a] || p->file->at[a] == f->at[a];
        if (is)
            return p;
    }
    return NULL;
}

static ckpt_status add(joining *j, const int64_t *lo, const int64_t *size, const int64_t *strides, int64_t element,
                       uint32_t n)
{
    int64_t *numbers = ckpt__arena_array(j->arena, 3 * (size_t)n + 1, sizeof *numbers);
    if (!numbers || !ckpt__grow(&j->pieces, &j->capacity, j->count + 1, sizeof *j->pieces))
        return ckpt__ranks_no_memory(j->r->err);
    for (uint32_t d = 0; d < n; d++) {
        numbers[d] = lo[d];
        numbers[n + d] = size[d];
        numbers[2 * n + d] = strides[d];
    }
    const int64_t step = j->buffer->info.strides ? j->buffer->info.strides[0] : 1;
    const int64_t at = j->buffer->info.offset + element * step;
    for (uint32_t d = 0; d < n; d++)
        numbers[2 * n + d] *= step;
    j->pieces[j->count++] = (ckpt__piece){.box = numbers,
                                          .at = (uint64_t)at * ckpt_dtype_size(j->buffer->info.dtype),
                                          .storage = j->buffer->storage,
                                          .flags = CKPT__PIECE_STRIDED};
    return CKPT_OK;
}

/* A box of the rank's own parameter: what of it is in each box of the whole. */
static ckpt_status on_box(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    joining *j = ctx;
    const uint32_t n = j->own.ndim;
    int64_t strides[CKPT__BOX_MAX], from[CKPT__BOX_MAX], some[CKPT__BOX_MAX], to[CKPT__BOX_MAX];
    ckpt_status status = CKPT_OK;
    (void)err;
    ckpt__c_strides(j->own.shape, n, strides);
    for (size_t b = 0; status == CKPT_OK && b < j->part->count; b++) {
        const ckpt__rank_box *box = &j->part->boxes[b];
        int64_t element = j->at - j->begin;
        if (!ckpt__box_meet(n, lo, size, box->at, box->size, from, some))
            continue;
        for (uint32_t d = 0; d < n; d++) {
            element += from[d] * strides[d];
            to[d] = box->lo[d] + from[d] - box->at[d];
        }
        status = add(j, to, some, strides, element, n);
    }
    return status;
}

/* What part k of the column has of the parameter: elements [*from, *to) of the rank's own. False: nothing. */
static bool share_of(const joining *j, const ckpt__flat_column *c, size_t k, int64_t numel, int64_t *from, int64_t *to)
{
    const int64_t at = c->offsets[j->state->param];
    *from = c->begins[k] > at ? c->begins[k] - at : 0;
    *to = c->begins[k + 1] - at < numel ? c->begins[k + 1] - at : numel;
    return *from < *to;
}

static ckpt_status set_buffer(joining *j, const ckpt__flat_column *c, size_t k)
{
    const ckpt_value *v = ckpt__flat_value(j->set->group, c->files[k], j->set->flat->buffers[j->state->buffer].path);
    j->buffer = &j->r->index->tensors[v->tensor];
    j->at = c->offsets[j->state->param];
    j->begin = c->begins[k];
    return CKPT_OK;
}

static ckpt_status add_column(joining *j, const ckpt__flat_column *c)
{
    uint64_t numel = 0;
    int64_t from, to;
    ckpt_status status = CKPT_OK;
    ckpt__numel(j->own.shape, j->own.ndim, &numel);
    for (size_t k = 0; status == CKPT_OK && k < j->set->parts; k++) {
        if (!share_of(j, c, k, (int64_t)numel, &from, &to))
            continue;
        set_buffer(j, c, k);
        status = ckpt__box_cut_flat(j->own.ndim, j->own.shape, (uint64_t)from, (uint64_t)to, on_box, j, j->r->err);
    }
    return status;
}

/* ---- replicas */

/* A row of the elements that a column has of the parameter, side by side. */
static ckpt_status add_line(joining *j, const ckpt__flat_column *c, size_t *row)
{
    uint64_t numel = 0;
    int64_t from, to;
    const int64_t one = 1;
    joining line = *j;
    line.pieces = NULL;
    line.count = line.capacity = 0;
    ckpt_status status = CKPT_OK;
    ckpt__numel(j->own.shape, j->own.ndim, &numel);
    for (size_t k = 0; status == CKPT_OK && k < j->set->parts; k++) {
        if (!share_of(j, c, k, (int64_t)numel, &from, &to))
            continue;
        const int64_t size = to - from;
        set_buffer(&line, c, k);
        status = add(&line, &from, &size, &one, line.at - line.begin + from, 1);
    }
    ckpt__tensor *t = status == CKPT_OK ? ckpt__index_add_tensor(j->r->index) : NULL;
    if (status == CKPT_OK && !t)
        status = ckpt__ranks_no_memory(j->r->err);
    if (t) {
        t->info.name = j->t->name.shown;
        t->info.dtype = j->r->index->tensors[j->r->parts[j->t->first].row].info.dtype;
        t->info.ndim = 1;
        t->info.extra = &ckpt__no_extra;
        *row = j->r->index->tensor_count - 1;
        const int64_t all = (int64_t)numel;
        status = ckpt__index_set_pieces(j->r->index, *row, &all, line.pieces, line.count, j->r->err);
    }
    free(line.pieces);
    return status;
}

static bool cuts_along(const joining *j, size_t axis)
{
    bool cuts = j->r->files->stages.there && j->r->files->stages.axis == axis;
    for (size_t k = 0; k < j->cut_count; k++)
        cuts = cuts || j->cuts[k].axis == axis;
    return cuts;
}

/* Another column has the same of the parameter. */
static ckpt_status compare(joining *j, const ckpt__flat_column *c)
{
    const ckpt__flat_column *one = NULL;
    size_t a, b;
    bool same = true;
    uint64_t at;
    char first[200], second[200];
    for (size_t i = 0; !one && i < j->set->column_count; i++) {
        bool is = true;
        for (size_t x = 0; x < j->r->mesh.count; x++)
            is = is && (x == j->set->flat->axis ||
                        j->set->columns[i].files[0]->at[x] == (cuts_along(j, x) ? c->files[0]->at[x] : 0));
        one = is ? &j->set->columns[i] : NULL;
    }
    uint64_t numel = 0;
    ckpt__numel(j->own.shape, j->own.ndim, &numel);
    if (!one || one == c || j->r->files->first || numel == 0)
        return CKPT_OK;
    ckpt_status status = add_line(j, one, &a);
    if (status == CKPT_OK)
        status = add_line(j, c, &b);
    if (status == CKPT_OK)
        status = ckpt__ranks_same_bytes(j->r, a, b, &same, &at);
    if (status < 0 || same)
        return status;
    j->wrong = true;
    return ckpt__ranks_wrong(
        j->r, c->files[0]->name, j->t->name.shown,
        "the flat buffers of %s have other elements of it than those of %s, from element %llu on, and by the "
        "layout they have the same ('replicate: first' takes the first's)",
        ckpt__ranks_rank_text(j->r, c->files[0], first, sizeof first),
        ckpt__ranks_rank_text(j->r, one->files[0], second, sizeof second), (unsigned long long)at);
}

/* ---- one state */

static ckpt_status join_column(joining *j, const ckpt__flat_column *c)
{
    const ckpt__ranks_part *p = ckpt__flat_part_of(j->r, j->param, c->files[0]);
    ckpt__rank_part part;
    int64_t at[CKPT__MESH_AXES] = {0};
    for (size_t a = 0; a < j->r->mesh.count; a++)
        at[a] =
            cuts_along(j, a) && !(j->r->files->stages.there && j->r->files->stages.axis == a) ? c->files[0]->at[a] : 0;
    bool first = true;
    for (size_t a = 0; a < j->r->mesh.count; a++)
        first = first && (cuts_along(j, a) || a == j->set->flat->axis || c->files[0]->at[a] == 0);
    j->own = j->r->index->tensors[p->row].info;
    ckpt_status status = ckpt__rank_part_of(&j->r->mesh, j->cuts, j->cut_count, j->own.ndim, j->param->shape,
                                            ckpt__rank_mesh_rank(&j->r->mesh, at), j->arena, &part, j->r->err);
    if (status < 0 || !ckpt__same_shape(part.shape, j->own.ndim, j->own.shape, j->own.ndim))
        return status == CKPT_E_NO_MEMORY ? status : (j->wrong = true, CKPT_OK); /* the parameter's own join says it */
    j->part = &part;
    return first ? add_column(j, c) : compare(j, c);
}

ckpt_status ckpt__flat_join(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, bool *made)
{
    joining j = {.r = r, .t = t, .state = t->flat, .set = t->flat->set, .arena = ckpt__arena_new(0)};
    ckpt_status status = j.arena ? CKPT_OK : ckpt__ranks_no_memory(r->err);
    *made = false;
    j.param = &r->tensors[j.set->params[t->flat->param]];
    if (status == CKPT_OK && j.param->shard != SIZE_MAX)
        status = ckpt__layout_shard_cuts(r->request->layout, r->request->side, j.param->shard, &r->mesh,
                                         ckpt__layout_value, r->vars, j.arena, &j.cuts, &j.cut_count, r->err);
    if (status < 0 && status != CKPT_E_NO_MEMORY) {
        j.wrong = true; /* as above */
        status = CKPT_OK;
    }
    const uint32_t ndim = r->index->tensors[r->parts[j.param->first].row].info.ndim;
    if (status == CKPT_OK && ndim > CKPT__BOX_MAX) {
        j.wrong = true;
        status = ckpt__ranks_wrong(r, NULL, t->name.shown, "more than %d dimensions are not read", (int)CKPT__BOX_MAX);
    }
    for (size_t c = 0; status == CKPT_OK && !j.wrong && c < j.set->column_count; c++)
        status = join_column(&j, &j.set->columns[c]);
    *made = status == CKPT_OK && !j.wrong;
    if (*made) {
        r->index->tensors[row].info.ndim = ndim;
        status = ckpt__ranks_set(r, t, row, j.pieces, j.count);
    }
    free(j.pieces);
    ckpt__arena_free(j.arena);
    return status;
}
