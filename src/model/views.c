/* model/views.c - the tensors of each storage, by counting them first. */
#include "model/views.h"

#include <stdlib.h>

typedef struct pass {
    const ckpt__index *index;
    size_t *last;    /* per storage: the tensor that was counted last there, plus 1 */
    size_t *at;      /* per storage */
    size_t *tensors; /* NULL: they are counted */
} pass;

static void look_at(pass *p, size_t tensor)
{
    const ckpt__tensor *t = &p->index->tensors[tensor];
    for (size_t i = 0; i < ckpt__view_count(t); i++) {
        size_t s = t->whole ? t->storage : p->index->pieces[t->first_piece + i].storage;
        if (s >= p->index->storage_count || p->last[s] == tensor + 1)
            continue;
        p->last[s] = tensor + 1;
        if (p->tensors)
            p->tensors[p->at[s]] = tensor;
        p->at[s]++;
    }
}

bool ckpt__views_make(const ckpt__index *index, ckpt__views *out)
{
    size_t n = index->storage_count, total = 0;
    pass p = {index, calloc(n + 1, sizeof *p.last), calloc(n + 1, sizeof *p.at), NULL};
    *out = (ckpt__views){NULL, calloc(n + 1, sizeof *out->first)};
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
    *views = (ckpt__views){NULL, NULL};
}
