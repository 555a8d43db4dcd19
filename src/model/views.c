/* model/views.c - the tensors of each storage, by counting them first. */
#include "model/views.h"

#include <stdlib.h>

typedef struct pass {
    const ckpt__index *index;
    size_t count;    /* storages that are looked at */
    size_t *last;    /* per storage: the tensor that was counted last there, plus 1 */
    size_t *at;      /* per storage */
    size_t *tensors; /* NULL: they are counted */
} pass;

static void look_at(pass *p, size_t tensor)
{
    const ckpt__tensor *t = &p->index->tensors[tensor];
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        size_t s = t->whole ? t->storage : p->index->pieces[t->first_piece + i].storage;
        if (s >= p->count || p->last[s] == tensor + 1)
            continue;
        p->last[s] = tensor + 1;
        if (p->tensors)
            p->tensors[p->at[s]] = tensor;
        p->at[s]++;
    }
}

size_t ckpt__pieces_from(const ckpt__index *x)
{
    enum { PIECE = 1, OTHER = 2 };
    unsigned char *is = calloc(x->storage_count + 1, 1);
    size_t from = x->storage_count;
    for (size_t i = 0; is && i < x->piece_count; i++)
        if (x->pieces[i].storage < x->storage_count)
            is[x->pieces[i].storage] |= PIECE;
    for (size_t i = 0; is && i < x->tensor_count; i++)
        if (x->tensors[i].whole && x->tensors[i].storage < x->storage_count)
            is[x->tensors[i].storage] |= OTHER;
    while (is && from > 0 && is[from - 1] == PIECE && !x->storages[from - 1].closed)
        from--;
    free(is);
    return from;
}

bool ckpt__views_make(const ckpt__index *index, bool pieces, ckpt__views *out)
{
    size_t n = pieces ? index->storage_count : ckpt__pieces_from(index), total = 0;
    pass p = {index, n, calloc(n + 1, sizeof *p.last), calloc(n + 1, sizeof *p.at), NULL};
    *out = (ckpt__views){NULL, calloc(n + 1, sizeof *out->first), n};
    bool made = p.last && p.at && out->first;
    for (size_t i = 0; made && i < index->tensor_count; i++)
        look_at(&p, i);
    for (size_t s = 0; made && s < n; s++) {
        size_t count = p.at[s];
        out->first[s] = p.at[s] = total;
        p.last[s] = 0;
        total += count; /* no more than there are pieces in memory */
    }
    if (made) {
        out->first[n] = total;
        out->tensors = p.tensors = malloc((total + 1) * sizeof *out->tensors);
        made = out->tensors != NULL;
    }
    for (size_t i = 0; made && i < index->tensor_count; i++)
        look_at(&p, i);
    free(p.last);
    free(p.at);
    return made;
}

void ckpt__views_free(ckpt__views *views)
{
    free(views->tensors);
    free(views->first);
    *views = (ckpt__views){NULL, NULL, 0};
}
