/* format/fsdp/boxes.c - what of a DTensor the rank at a coordinate of the mesh has. The dimensions of the mesh cut one after the
 * other; each cuts what the ones before left, in chunks of ceil(size / ranks), so that the last are shorter or empty.
 *
 * Tensor parallel cuts first and FSDP cuts what it left, though FSDP's dimension of the mesh stands before: _StridedShard says
 * so. Of 8 rows over a mesh of 2 (FSDP) x 2 (tensor parallel), {STRIDED split 2}, {SHARD}:
 *
 *     0 1 2 3 | 4 5 6 7    two chunks, as the tensor parallel ranks have them
 *     0 1 . . | 4 5 . .    FSDP's rank 0 has the first half of each: two runs, rows 0-1 and 4-5
 *     0 1                  tensor parallel's rank 0 has the first half of those
 *
 * Cutting in the order of the work gives the same, except where the sizes are so uneven that a rank of FSDP has nothing of one
 * chunk and something of another. FSDP cuts in the order of the work, distribute_tensor() by the strides: the shapes of the ranks' own
 * tensors tell which of the two was done (fill.c). */
#include "format/fsdp/fsdp.h"

#include <stdlib.h>

enum { MOST_RUNS = 1 << 16 };

typedef struct cutter {
    const ckpt__fsdp_runs *from;
    size_t at;      /* run of `from` where the last take ended */
    int64_t before; /* elements in the runs before it */
    ckpt__fsdp_runs *to;
    ckpt_error *err;
} cutter;

static int64_t total(const ckpt__fsdp_runs *r)
{
    int64_t sum = 0;
    for (size_t i = 0; i < r->count; i++)
        sum += r->items[i].count;
    return sum;
}

static ckpt_status add_run(ckpt__fsdp_runs *r, int64_t lo, int64_t count, ckpt_error *err)
{
    ckpt__fsdp_run *last = r->count ? &r->items[r->count - 1] : NULL;
    if (last && last->lo + last->count == lo) {
        last->count += count;
        return CKPT_OK;
    }
    if (r->count == MOST_RUNS)
        return ckpt__fail(err, CKPT_E_LIMIT, NULL, "a rank has more than %d runs of one dimension", MOST_RUNS);
    if (!ckpt__grow(&r->items, &r->capacity, r->count + 1, sizeof *r->items))
        return ckpt__fsdp_no_memory(err);
    r->items[r->count++] = (ckpt__fsdp_run){lo, count};
    return CKPT_OK;
}

/* Elements [begin, begin + count) of the runs one behind the other; each take begins behind the last. */
static ckpt_status take(cutter *c, int64_t begin, int64_t count)
{
    ckpt_status status = CKPT_OK;
    while (status == CKPT_OK && count > 0 && c->at < c->from->count) {
        const ckpt__fsdp_run *r = &c->from->items[c->at];
        if (begin >= c->before + r->count) {
            c->before += r->count;
            c->at++;
            continue;
        }
        int64_t skip = begin - c->before, own = r->count - skip < count ? r->count - skip : count;
        status = add_run(c->to, r->lo + skip, own, c->err);
        begin += own;
        count -= own;
    }
    return status;
}

static int64_t ceil_of(int64_t size, int64_t parts)
{
    return size / parts + (size % parts != 0);
}

/* Chunk `index` of `parts` of elements [begin, begin + size). */
static ckpt_status take_chunk(cutter *c, int64_t begin, int64_t size, int64_t parts, int64_t index)
{
    int64_t chunk = ceil_of(size, parts), skip;
    if (__builtin_mul_overflow(chunk, index, &skip) || skip >= size)
        return CKPT_OK;
    return take(c, begin + skip, size - skip < chunk ? size - skip : chunk);
}

static ckpt_status cut(ckpt__fsdp_runs *runs, int64_t split, int64_t parts, int64_t index, ckpt_error *err)
{
    ckpt__fsdp_runs to = {NULL, 0, 0};
    cutter c = {.from = runs, .to = &to, .err = err};
    int64_t size = total(runs), chunk = ceil_of(size, split);
    ckpt_status status = CKPT_OK;
    if (chunk && size / chunk > MOST_RUNS)
        status = ckpt__fail(err, CKPT_E_LIMIT, NULL, "a placement has %lld chunks; %d are read", (long long)split,
                            MOST_RUNS);
    for (int64_t at = 0; status == CKPT_OK && at<size; at = size - at> chunk ? at + chunk : size)
        status = take_chunk(&c, at, size - at < chunk ? size - at : chunk, parts, index);
    free(runs->items);
    *runs = to;
    return status;
}

static bool cuts(const ckpt__mesh_cut *p)
{
    return p->cut == CKPT__CUT_SHARD || p->cut == CKPT__CUT_STRIDED;
}

/* Dimension d of the mesh, from the last on, stands behind those whose sizes make its split: torch's own way to read it. */
bool ckpt__fsdp_order(const ckpt__shard *s, uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t left = s->mesh->ndim; left-- > 0;) {
        const ckpt__mesh_cut *own = &s->placements[left];
        int64_t product = 1;
        uint32_t place = 0;
        if (!cuts(own))
            continue;
        while (place < n && product != own->split) {
            bool same = s->placements[order[place]].dim == own->dim;
            if (same && __builtin_mul_overflow(product, s->mesh->sizes[order[place]], &product))
                return false;
            place++;
        }
        if (product != own->split)
            return false;
        memmove(order + place + 1, order + place, (n - place) * sizeof *order);
        order[place] = left;
        n++;
    }
    for (uint32_t i = 0; i < s->mesh->ndim; i++)
        if (!cuts(&s->placements[i]))
            order[n++] = i;
    return true;
}

static ckpt_status check(const ckpt__mesh_cut *p, uint32_t d, uint32_t ndim, ckpt_error *err)
{
    if (p->dim < 0 || p->dim >= (int64_t)ndim)
        return ckpt__fail(err, CKPT_E_FORMAT, NULL,
                          "dimension %u of the mesh cuts dimension %lld, of a tensor of %u dimensions", d,
                          (long long)p->dim, ndim);
    if (p->split < 1)
        return ckpt__fail(err, CKPT_E_FORMAT, NULL, "a placement has a split factor of %lld", (long long)p->split);
    return CKPT_OK;
}

ckpt_status ckpt__fsdp_runs_of(const ckpt__shard *s, const int64_t *coordinate, const int64_t *shape, uint32_t ndim,
                               bool by_order, ckpt__fsdp_runs *runs, bool *known, ckpt_error *err)
{
    uint32_t order[CKPT__MESH_MOST];
    ckpt_status status = CKPT_OK;
    *known = true;
    if (by_order && !ckpt__fsdp_order(s, order)) {
        *known = false;
        return CKPT_OK;
    }
    for (uint32_t d = 0; status == CKPT_OK && d < ndim; d++)
        status = shape[d] > 0 ? add_run(&runs[d], 0, shape[d], err) : CKPT_OK;
    for (uint32_t i = 0; status == CKPT_OK && i < s->mesh->ndim; i++) {
        uint32_t d = by_order ? order[i] : s->order ? s->order[i] : i;
        const ckpt__mesh_cut *p = &s->placements[d];
        if (!cuts(p))
            continue;
        status = check(p, d, ndim, err);
        if (status == CKPT_OK)
            status = cut(&runs[p->dim], by_order ? 1 : p->split, s->mesh->sizes[d], coordinate[d], err);
    }
    return status;
}
