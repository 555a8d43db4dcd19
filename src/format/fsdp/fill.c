/* format/fsdp/fill.c - tensors whose parts lie in the files of several ranks: each part is one box of the tensor or several, and a
 * view of a storage of its rank's file. */
#include "format/fsdp/fsdp.h"
#include "model/visits.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_BOXES = 1 << 20 }; /* of one tensor */

/* One tensor on its way: pieces[i]'s box begins at numbers[i * 3 * ndim] (lo, size, strides). */
typedef struct making {
    ckpt__fsdp *f;
    const ckpt_tensor_info *like; /* name, shape and dtype: the first rank's row */
    const ckpt__fsdp_part *parts;
    size_t part_count;
    ckpt__piece *pieces; /* heap */
    size_t count, capacity;
    int64_t *numbers; /* heap */
    size_t number_capacity;
    ckpt__fsdp_runs *runs; /* heap: one a dimension */
    bool by_order;
    char name[200];
    ckpt_error *err;
} making;

static ckpt_status wrong(const making *m, const ckpt__fsdp_part *part, ckpt_status status, const char *what)
{
    return ckpt__fail(m->err, status, m->name, "%s: %s", part->file->name, what);
}

static void clear_runs(making *m)
{
    for (uint32_t d = 0; m->runs && d < m->like->ndim; d++) {
        free(m->runs[d].items);
        m->runs[d] = (ckpt__fsdp_runs){NULL, 0, 0};
    }
}

/* ---- the rank's place in the mesh */

/* As the file says it; else by the rank's place in the list of the mesh's ranks. */
static bool coordinate_of(const ckpt__fsdp_part *part, int64_t *out)
{
    const ckpt__mesh *m = part->shard->mesh;
    uint64_t ranks = 1;
    size_t place = 0;
    if (m->has_coordinate) {
        memcpy(out, m->coordinate, m->ndim * sizeof *out);
        return true;
    }
    for (uint32_t i = 0; i < m->ndim; i++)
        if (!ckpt__mul(ranks, (uint64_t)m->sizes[i], &ranks))
            return false;
    while (place < m->rank_count && m->ranks[place] != part->file->is.rank)
        place++;
    if (ranks != m->rank_count || place == m->rank_count)
        return false;
    for (uint32_t i = m->ndim; i-- > 0;) {
        out[i] = (int64_t)(place % (uint64_t)m->sizes[i]);
        place /= (size_t)m->sizes[i];
    }
    return true;
}

static bool is_partial(const ckpt__shard *s)
{
    for (uint32_t i = 0; i < s->mesh->ndim; i++)
        if (s->placements[i].cut == CKPT__CUT_PARTIAL)
            return true;
    return false;
}

static bool is_known(const ckpt__shard *s)
{
    for (uint32_t i = 0; i < s->mesh->ndim; i++)
        if (s->placements[i].cut == CKPT__CUT_OTHER)
            return false;
    return true;
}

static ckpt_status check_part(const making *m, const ckpt__fsdp_part *p)
{
    const ckpt__shard *s = p->shard;
    if (s->why)
        return wrong(m, p, CKPT_E_UNSUPPORTED, s->why);
    if (s->mesh && is_partial(s))
        return wrong(m, p, CKPT_E_UNSUPPORTED,
                     "its placement is Partial: each rank has one summand of it, and the sum is in no file. Save it "
                     "after redistribute(), or as a full tensor");
    if (s->mesh && !is_known(s))
        return wrong(m, p, CKPT_E_UNSUPPORTED, "one of its placements is not known");
    for (size_t i = 0; i < s->local_count; i++) {
        const ckpt__local *l = &s->locals[i];
        if (l->dtype != m->like->dtype)
            return wrong(m, p, CKPT_E_FORMAT, "the rank's part has another dtype than the tensor");
        if (l->ndim != m->like->ndim)
            return wrong(m, p, CKPT_E_FORMAT, "the rank's part has another number of dimensions than the tensor");
        if (l->offset < 0 || ckpt_dtype_size(l->dtype) == 0)
            return wrong(m, p, CKPT_E_FORMAT, "the rank's part begins before its storage, or within a byte");
    }
    return CKPT_OK;
}

/* ---- pieces */

static bool view_at(const making *m, const ckpt__local *l, const int64_t *start, uint64_t *at)
{
    int64_t elements = l->offset, own;
    for (uint32_t d = 0; d < l->ndim; d++)
        if (l->strides[d] < 0 || __builtin_mul_overflow(start[d], l->strides[d], &own) ||
            __builtin_add_overflow(elements, own, &elements))
            return false;
    return ckpt__mul((uint64_t)elements, ckpt_dtype_size(m->like->dtype), at);
}

/* lo: in the tensor; start: in the rank's own. */
static ckpt_status add_piece(making *m, const ckpt__fsdp_part *p, const ckpt__local *l, const int64_t *lo,
                             const int64_t *start, const int64_t *size)
{
    const size_t n = l->ndim, room = 3 * n;
    uint64_t at;
    if (!view_at(m, l, start, &at))
        return wrong(m, p, CKPT_E_FORMAT, "the rank's part lies outside of its storage, or has a negative stride");
    if (m->count == MOST_BOXES)
        return wrong(m, p, CKPT_E_LIMIT, "the ranks have more than 1048576 boxes of it");
    if (!ckpt__grow(&m->pieces, &m->capacity, m->count + 1, sizeof *m->pieces) ||
        !ckpt__grow(&m->numbers, &m->number_capacity, (m->count + 1) * room + 1, sizeof *m->numbers))
        return ckpt__fsdp_no_memory(m->err);
    int64_t *box = m->numbers + m->count * room;
    for (size_t d = 0; d < n; d++) {
        box[d] = lo[d];
        box[n + d] = size[d];
        box[2 * n + d] = l->strides[d];
    }
    bool c_order = ckpt__is_c_order(size, l->strides, l->ndim);
    m->pieces[m->count++] = (ckpt__piece){
        .at = at, .storage = (uint32_t)(p->file->storages + l->storage), .flags = c_order ? 0 : CKPT__PIECE_STRIDED};
    return CKPT_OK;
}

/* Of each dimension one run at a time: all combinations. */
static ckpt_status add_boxes(making *m, const ckpt__fsdp_part *p, const ckpt__local *l)
{
    const uint32_t n = l->ndim;
    size_t *which = calloc((size_t)n + 1, sizeof *which);
    int64_t *numbers = calloc(3 * (size_t)n + 1, sizeof *numbers), *lo = numbers, *start = lo + n, *size = start + n;
    ckpt_status status = which && numbers ? CKPT_OK : ckpt__fsdp_no_memory(m->err);
    for (bool more = true; status == CKPT_OK && more;) {
        for (uint32_t d = 0; d < n; d++) {
            lo[d] = m->runs[d].items[which[d]].lo;
            size[d] = m->runs[d].items[which[d]].count;
        }
        status = add_piece(m, p, l, lo, start, size);
        more = false;
        for (uint32_t d = n; d-- > 0 && !more;) {
            start[d] += size[d];
            more = ++which[d] < m->runs[d].count;
            if (!more) {
                which[d] = 0;
                start[d] = 0;
            }
        }
    }
    free(which);
    free(numbers);
    return status;
}

/* ---- DTensor */

static bool is_empty(const int64_t *shape, uint32_t ndim)
{
    for (uint32_t d = 0; d < ndim; d++)
        if (shape[d] == 0)
            return true;
    return false;
}

static void shape_of_runs(const making *m, int64_t *shape)
{
    for (uint32_t d = 0; d < m->like->ndim; d++) {
        shape[d] = 0;
        for (size_t i = 0; i < m->runs[d].count; i++)
            shape[d] += m->runs[d].items[i].count;
    }
}

static void put_coordinate(char *text, size_t size, const int64_t *coordinate, uint32_t n)
{
    size_t at = (size_t)snprintf(text, size, "(");
    for (uint32_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)coordinate[i]);
    if (at < size)
        snprintf(text + at, size - at, ")");
}

/* *fits: the rank's own tensor has the shape that it should have. */
static ckpt_status add_dtensor(making *m, const ckpt__fsdp_part *p, bool *fits)
{
    const ckpt__local *l = p->shard->locals;
    const uint32_t n = m->like->ndim;
    int64_t coordinate[CKPT__MESH_MOST];
    bool known = false;
    *fits = true;
    if (!coordinate_of(p, coordinate))
        return wrong(m, p, CKPT_E_UNSUPPORTED, "where its rank stands in the mesh is not told");
    clear_runs(m);
    int64_t *wanted = calloc((size_t)n + 1, sizeof *wanted);
    if (!wanted)
        return ckpt__fsdp_no_memory(m->err);
    ckpt_status status =
        ckpt__fsdp_runs_of(p->shard, coordinate, m->like->shape, n, m->by_order, m->runs, &known, m->err);
    if (status < 0 && m->err && !m->err->object[0])
        ckpt__error_object(m->err, m->name);
    shape_of_runs(m, wanted);
    bool nothing = is_empty(wanted, n);
    if (status == CKPT_OK)
        *fits = known && (nothing ? is_empty(l->shape, n) : ckpt__same_shape(l->shape, n, wanted, n));
    if (status == CKPT_OK && !*fits) {
        char own[100], expected[100], place[100];
        ckpt__shape_text(own, sizeof own, l->shape, n);
        ckpt__shape_text(expected, sizeof expected, wanted, n);
        put_coordinate(place, sizeof place, coordinate, p->shard->mesh->ndim);
        status = ckpt__fail(m->err, CKPT_E_FORMAT, m->name,
                            "%s: the rank at %s of the mesh has %s of it, and by its placements it should have %s",
                            p->file->name, place, own, expected);
    } else if (status == CKPT_OK && !nothing) {
        status = add_boxes(m, p, l);
    }
    free(wanted);
    return status;
}

static ckpt_status add_all(making *m, bool by_order, bool *fits)
{
    ckpt_status status = CKPT_OK;
    m->by_order = by_order;
    m->count = 0;
    *fits = true;
    for (size_t i = 0; status == CKPT_OK && i < m->part_count; i++)
        status = add_dtensor(m, &m->parts[i], fits);
    return status;
}

static bool has_strides(const ckpt__shard *s)
{
    for (uint32_t i = 0; i < s->mesh->ndim; i++)
        if (s->placements[i].cut == CKPT__CUT_STRIDED)
            return true;
    return false;
}

/* Where both ways give the ranks the shapes that they have, it is the order of the work: so FSDP cuts, and so torch's own full_tensor()
 * puts together. */
static ckpt_status add_dtensors(making *m)
{
    uint32_t order[CKPT__MESH_MOST];
    bool fits = true, ordered = has_strides(m->parts[0].shard) && ckpt__fsdp_order(m->parts[0].shard, order);
    ckpt_status status = add_all(m, ordered, &fits);
    if (fits || !ordered)
        return status;
    const ckpt_error first = m->err ? *m->err : (ckpt_error)CKPT_ERROR_INIT;
    status = add_all(m, false, &fits);
    if (!fits && m->err)
        *m->err = first;
    return status;
}

/* ---- ShardedTensor */

static ckpt_status add_sharded(making *m, const ckpt__fsdp_part *p)
{
    ckpt_status status = CKPT_OK;
    int64_t *start = calloc((size_t)m->like->ndim + 1, sizeof *start);
    if (!start)
        return ckpt__fsdp_no_memory(m->err);
    for (size_t i = 0; status == CKPT_OK && i < p->shard->local_count; i++) {
        const ckpt__local *l = &p->shard->locals[i];
        if (!is_empty(l->shape, l->ndim))
            status = add_piece(m, p, l, l->lo, start, l->shape);
    }
    free(start);
    return status;
}

/* ---- one tensor */

/* Do two pieces have the same box? They are copies then, one of which is read. */
static ckpt_status mark_replicas(making *m)
{
    const size_t n = m->like->ndim, bytes = 2 * n * sizeof *m->numbers;
    ckpt__hash *seen = ckpt__hash_new(m->count);
    bool twice = n == 0 && m->count > 1;
    int put = seen ? 1 : -1;
    for (size_t i = 0; put >= 0 && !twice && n && i < m->count; i++) {
        put = ckpt__hash_put(seen, (const char *)(m->numbers + i * 3 * n), bytes, i, NULL);
        twice = put == 0;
    }
    ckpt__hash_free(seen);
    for (size_t i = 0; i < m->count; i++) {
        m->pieces[i].box = m->numbers + i * 3 * n;
        m->pieces[i].flags |= twice ? CKPT__PIECE_REPLICA : 0;
    }
    return put < 0 ? ckpt__fsdp_no_memory(m->err) : CKPT_OK;
}

/* Makes row `tensor`, whose name is there, what all ranks have of it. */
static ckpt_status make(making *m, size_t tensor)
{
    ckpt__index *x = m->f->index;
    uint64_t numel;
    ckpt_status status = CKPT_OK;
    if (!ckpt__numel(m->like->shape, m->like->ndim, &numel))
        return ckpt__fail(m->err, CKPT_E_FORMAT, m->name, "the product of its shape is negative or overflows 64 bits");
    for (size_t i = 0; status == CKPT_OK && i < m->part_count; i++)
        status = check_part(m, &m->parts[i]);
    if (status == CKPT_OK && !(m->runs = calloc((size_t)m->like->ndim + 1, sizeof *m->runs)))
        status = ckpt__fsdp_no_memory(m->err);
    if (status == CKPT_OK && m->parts[0].shard->mesh)
        status = add_dtensors(m);
    else
        for (size_t i = 0; status == CKPT_OK && i < m->part_count; i++)
            status = add_sharded(m, &m->parts[i]);
    if (status == CKPT_OK)
        status = mark_replicas(m);
    if (status == CKPT_OK && numel == 0)
        status = ckpt__index_set_empty(x, tensor, m->like->shape, m->err); /* no rank has a byte of it */
    else if (status == CKPT_OK)
        status = ckpt__index_set_pieces(x, tensor, m->like->shape, m->pieces, m->count, m->err);
    for (size_t i = 0; status == CKPT_OK && i < m->count; i++)
        x->storages[m->pieces[i].storage].closed = false; /* the tensor views it now */
    clear_runs(m);
    free(m->runs);
    free(m->pieces);
    free(m->numbers);
    return status;
}

/* ---- all rows */

typedef struct filler {
    ckpt__fsdp *f;
    size_t *now; /* heap: by the number that a value has, 1 + that of its row; 0: none yet, or it is left out */
    size_t count;
    ckpt_error *err;
} filler;

/* The row of what all ranks have together. Where it cannot be made and reading goes on, it is left out. */
static ckpt_status fill_split(filler *l, const ckpt__fsdp_tensor *t, size_t row, bool *made)
{
    ckpt__fsdp *f = l->f;
    ckpt_error why = CKPT_ERROR_INIT;
    const ckpt_tensor_info like = f->index->tensors[t->like].info;
    const size_t pieces = f->index->piece_count;
    ckpt_tensor_info *info = &f->index->tensors[row].info;
    making m = {.f = f, .like = &like, .parts = f->parts + t->first, .part_count = t->count, .err = &why};
    info->extra = &ckpt__no_extra;
    info->file = info->device = (ckpt_str){NULL, 0};
    info->shape = info->strides = NULL;
    ckpt__escape(m.name, sizeof m.name, info->name.data, info->name.size);
    ckpt_status status = make(&m, row);
    *made = status == CKPT_OK;
    if (*made)
        return CKPT_OK;
    f->index->tensor_count = row;
    f->index->piece_count = pieces;
    return ckpt__fsdp_lack(f, f->parts[t->first].file->name, status, &why, l->err);
}

/* Parts of a tensor that is not dense stand right behind it, and theirs behind them. */
static size_t rows_of(const ckpt__index *x, size_t row, size_t end)
{
    size_t count = 1, left = x->tensors[row].info.extra->part_count;
    for (; left && row + count < end; count++)
        left += x->tensors[row + count].info.extra->part_count - 1;
    return count;
}

/* Row `row` is a copy of another one: it gets pieces of its own. */
static ckpt_status copy_pieces(ckpt__index *x, size_t row, ckpt_error *err)
{
    ckpt__tensor *t = &x->tensors[row];
    const size_t count = t->piece_count;
    ckpt__piece *pieces = malloc(count * sizeof *pieces);
    if (!pieces)
        return ckpt__fsdp_no_memory(err);
    memcpy(pieces, x->pieces + t->first_piece, count * sizeof *pieces);
    ckpt__leave_pieces(t);
    ckpt_status status = ckpt__index_set_pieces(x, row, t->info.shape, pieces, count, err);
    free(pieces);
    return status;
}

/* A copy of a file's row, and of its parts, under the name that it has now. */
static ckpt_status copy_rows(filler *l, size_t from, const ckpt_tensor_info *named)
{
    ckpt__index *x = l->f->index;
    const size_t old = x->tensors[from].info.name.size, count = rows_of(x, from, l->f->row_count);
    for (size_t i = 0; i < count; i++) {
        if (!ckpt__index_add_tensor(x))
            return ckpt__fsdp_no_memory(l->err);
        ckpt__tensor *t = &x->tensors[x->tensor_count - 1];
        *t = x->tensors[from + i];
        if (ckpt__is_split(t) && copy_pieces(x, x->tensor_count - 1, l->err) < 0)
            return CKPT_E_NO_MEMORY;
        t = &x->tensors[x->tensor_count - 1];
        if (i == 0) {
            t->info.name = named->name;
            t->info.path = named->path;
            t->info.inside = named->inside;
        } else if (t->info.name.size > old) {
            const ckpt_str rest = {t->info.name.data + old, t->info.name.size - old};
            t->info.name = ckpt__arena_join(x->arena, named->name, rest, (ckpt_str){NULL, 0});
            t->info.path = (ckpt_path){NULL, 0};
            if (!t->info.name.data)
                return ckpt__fsdp_no_memory(l->err);
        }
    }
    return CKPT_OK;
}

/* A row of the file that has it. alone: where another place has it, too, it gets a storage of its own, of the same bytes. */
static ckpt_status fill_row(filler *l, size_t from, bool alone, const ckpt_tensor_info *named)
{
    ckpt__index *x = l->f->index;
    const size_t row = x->tensor_count;
    ckpt_status status = copy_rows(l, from, named);
    if (status == CKPT_OK && alone && l->now[from] && x->tensors[row].whole && !ckpt__index_own_storage(x, row))
        status = ckpt__fsdp_no_memory(l->err);
    l->now[from] = l->now[from] ? l->now[from] : row + 1;
    return status;
}

static int on_visit(void *ctx, const ckpt_visit *visit)
{
    filler *l = ctx;
    ckpt__index *x = l->f->index;
    const ckpt_value *v = visit->value;
    if (v->kind != CKPT_V_TENSOR || v->tensor >= l->count)
        return CKPT_OK;
    const size_t row = x->tensor_count;
    ckpt_tensor_info named = {.inside = false};
    bool made = true;
    if (!ckpt__visit_row(x->arena, visit, &named))
        return ckpt__fsdp_no_memory(l->err);
    if (v->tensor < l->f->row_count)
        return fill_row(l, v->tensor, false, &named);
    const ckpt__fsdp_tensor *of = &l->f->tensors[v->tensor - l->f->row_count];
    ckpt_status status = CKPT_OK;
    if (of->count == 0) {
        status = fill_row(l, of->like, true, &named);
    } else {
        ckpt__tensor *t = ckpt__index_add_tensor(x);
        if (!t)
            return ckpt__fsdp_no_memory(l->err);
        t->info = x->tensors[of->like].info;
        t->sorted = x->tensors[of->like].sorted;
        t->info.name = named.name;
        t->info.path = named.path;
        t->info.inside = named.inside;
        status = fill_split(l, of, row, &made);
    }
    l->now[v->tensor] = made ? row + 1 : 0;
    return status;
}

/* The rows of the files go. */
static ckpt_status leave_out(filler *l, ckpt_error *err)
{
    ckpt__index *x = l->f->index;
    bool *keep = calloc(x->tensor_count + 1, sizeof *keep);
    if (!keep)
        return ckpt__fsdp_no_memory(err);
    for (size_t i = l->f->row_count; i < x->tensor_count; i++)
        keep[i] = true;
    ckpt_status status = ckpt__index_keep(x, keep, err);
    free(keep);
    return status;
}

ckpt_status ckpt__fsdp_fill(ckpt__fsdp *f, ckpt_error *err)
{
    filler l = {.f = f, .count = f->row_count + f->tensor_count, .err = err};
    l.now = calloc(l.count + 1, sizeof *l.now);
    ckpt_status status = l.now ? CKPT_OK : ckpt__fsdp_no_memory(err);
    if (status == CKPT_OK)
        status = (ckpt_status)ckpt_value_walk(f->index->root, 0, on_visit, &l, err);
    if (status == CKPT_OK)
        status = ckpt__values_number(f->index->root, l.now, l.count, err);
    if (status == CKPT_OK)
        status = leave_out(&l, err);
    free(l.now);
    return status;
}
