/* migrate/layout_pieces.c - a tensor of the source's index as pieces that a layout can turn and cut, and back. */
#include "migrate/layout.h"

#include <stdlib.h>
#include "model/box.h"

/* The pieces of one tensor, in the arena. */
typedef struct gathering {
    ckpt__laying *l;
    ckpt__lay *lay;
    size_t capacity;
    ckpt__view view;
    uint64_t given; /* FLAT: elements of the view that have a box by now */
} gathering;

static ckpt__lay_piece *add(gathering *g, uint64_t at)
{
    const size_t n = g->lay->ndim;
    ckpt__lay *lay = g->lay;
    if (lay->count == g->capacity) {
        const size_t more = g->capacity ? g->capacity * 2 : 4;
        ckpt__lay_piece *pieces = ckpt__arena_array(g->l->arena, more, sizeof *pieces);
        if (!pieces)
            return NULL;
        if (lay->count)
            memcpy(pieces, lay->pieces, lay->count * sizeof *pieces);
        lay->pieces = pieces;
        g->capacity = more;
    }
    int64_t *numbers = ckpt__arena_array(g->l->arena, 3 * n + 1, sizeof *numbers);
    if (!numbers)
        return NULL;
    ckpt__lay_piece *p = &lay->pieces[lay->count++];
    *p = (ckpt__lay_piece){
        .lo = numbers, .size = numbers + n, .stride = numbers + 2 * n, .at = at, .storage = g->view.storage};
    return p;
}

static bool is_there(const ckpt__lay *lay, const ckpt__view *v)
{
    for (size_t i = 0; i < lay->count; i++) {
        bool same = true;
        for (uint32_t d = 0; same && d < lay->ndim; d++)
            same = lay->pieces[i].lo[d] == v->lo[d] && lay->pieces[i].size[d] == v->size[d];
        if (same)
            return true;
    }
    return false;
}

/* A box of a range of elements, which lie side by side. */
static ckpt_status add_flat(void *ctx, const int64_t *lo, const int64_t *size, ckpt_error *err)
{
    gathering *g = ctx;
    uint64_t volume = 0;
    ckpt__lay_piece *p = add(g, g->view.at + g->given * g->lay->unit);
    if (!p)
        return ckpt__migration_no_memory(err);
    for (uint32_t d = 0; d < g->lay->ndim; d++) {
        p->lo[d] = lo[d];
        p->size[d] = size[d];
    }
    ckpt__c_strides(p->size, g->lay->ndim, p->stride);
    ckpt__box_volume(g->lay->ndim, size, &volume);
    g->given += volume;
    return CKPT_OK;
}

static ckpt_status add_box(gathering *g)
{
    const ckpt__view *v = &g->view;
    bool some = true;
    for (uint32_t d = 0; d < g->lay->ndim; d++)
        some = some && v->size[d] > 0;
    if (!some || (v->replica && v->lo && is_there(g->lay, v)))
        return CKPT_OK;
    ckpt__lay_piece *p = add(g, v->at);
    if (!p)
        return ckpt__migration_no_memory(g->l->err);
    for (uint32_t d = 0; d < g->lay->ndim; d++) {
        p->lo[d] = v->lo ? v->lo[d] : 0;
        p->size[d] = v->size[d];
    }
    if (v->strides && g->lay->ndim)
        memcpy(p->stride, v->strides, g->lay->ndim * sizeof *p->stride);
    else
        ckpt__c_strides(p->size, g->lay->ndim, p->stride);
    return CKPT_OK;
}

ckpt_status ckpt__laying_lay(ckpt__laying *l, size_t tensor, ckpt__lay *out)
{
    const ckpt__index *x = l->m->from;
    const ckpt__tensor *t = &x->tensors[tensor];
    const unsigned bits = ckpt_dtype_bits(t->info.dtype);
    gathering g = {.l = l, .lay = out};
    ckpt_status status = CKPT_OK;
    *out = (ckpt__lay){.ndim = t->info.ndim, .unit = bits / 8};
    out->shape = ckpt__arena_array(l->arena, t->info.ndim + 1, sizeof *out->shape);
    if (!out->shape)
        return ckpt__migration_no_memory(l->err);
    if (t->info.ndim)
        memcpy(out->shape, t->info.shape, t->info.ndim * sizeof *out->shape);
    if (!bits || bits % 8 || (ckpt__has_no_bytes(t) && t->info.nbytes))
        return ckpt__fail_tensor(
            l->err,
            ckpt__fail(l->err, CKPT_E_UNSUPPORTED, NULL,
                       bits && bits % 8 ? "elements of %u bits cannot be laid out anew by a layout's steps"
                                        : "it has no bytes of its own (it is not dense, or on meta), so that no "
                                          "layout can lay them out (%u bits an element)",
                       bits),
            t->info.name);
    for (size_t i = 0; status == CKPT_OK && t->info.nbytes && i < ckpt__view_count(t); i++) {
        g.view = ckpt__view_of(x, t, i);
        g.given = 0;
        status = g.view.flat ? ckpt__box_cut_flat(t->info.ndim, t->info.shape, g.view.begin,
                                                  g.view.begin + g.view.count, add_flat, &g, l->err)
                             : add_box(&g);
    }
    return status;
}

static const char zeros[16]; /* of any dtype the element 0 */

/* The storage of padding, once. */
static ckpt_status add_zero(ckpt__laying *l)
{
    ckpt__index *x = l->m->from;
    if (l->zero < x->storage_count)
        return CKPT_OK;
    ckpt__storage *s = ckpt__index_add_storage(x);
    if (!s)
        return ckpt__migration_no_memory(l->err);
    *s = (ckpt__storage){.extent = {.memory = zeros, .size = sizeof zeros, .length = sizeof zeros},
                         .name = ckpt__s("padding"),
                         .unit = 1};
    return CKPT_OK;
}

ckpt_status ckpt__laying_set(ckpt__laying *l, size_t tensor, const ckpt__lay *lay)
{
    ckpt__index *x = l->m->from;
    const size_t n = lay->ndim;
    ckpt__piece *pieces = calloc(lay->count + 1, sizeof *pieces);
    int64_t *boxes = ckpt__arena_array(l->arena, lay->count * 3 * n + 1, sizeof *boxes);
    ckpt_status status = pieces && boxes ? CKPT_OK : ckpt__migration_no_memory(l->err);
    for (size_t i = 0; status == CKPT_OK && i < lay->count; i++) {
        const ckpt__lay_piece *p = &lay->pieces[i];
        int64_t *box = boxes + 3 * n * i;
        if (p->storage == l->zero)
            status = add_zero(l);
        for (size_t d = 0; d < n; d++) {
            box[d] = p->lo[d];
            box[n + d] = p->size[d];
            box[2 * n + d] = p->stride[d];
        }
        pieces[i] = (ckpt__piece){.box = box, .at = p->at, .storage = p->storage, .flags = CKPT__PIECE_STRIDED};
    }
    if (status == CKPT_OK) {
        ckpt__tensor *t = &x->tensors[tensor];
        t->whole = t->has_crc = false;
        t->storage = 0;
        ckpt__leave_pieces(t);
        t->info.ndim = lay->ndim;
        status = ckpt__index_set_pieces(x, tensor, lay->shape, pieces, lay->count, l->err);
    }
    if (status == CKPT_OK && x->tensors[tensor].whole)
        l->m->ledger.rows[tensor].own = CKPT__OWN_LAID;
    free(pieces);
    return status;
}
