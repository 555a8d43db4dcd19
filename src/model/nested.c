/* model/nested.c - what was found of records, and who frees it. */
#include "model/nested.h"

#include <stdlib.h>

ckpt__records *ckpt__index_records(ckpt__index *x, size_t most)
{
    uint64_t bytes;
    if (!ckpt__mul(most, sizeof(ckpt__nested) + sizeof(ckpt__nested_place *), &bytes) ||
        !ckpt__arena_charge(x->arena, bytes))
        return NULL;
    ckpt__records *r = calloc(1, sizeof *r);
    if (r && pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        r = NULL;
    }
    x->records = r;
    if (!r)
        return NULL;
    r->capacity = most;
    r->rows = malloc((most + 1) * sizeof *r->rows);
    r->found = calloc(most + 1, sizeof(ckpt__nested_place *));
    return r->rows && r->found ? r : NULL;
}

ckpt__nested *ckpt__records_add(const ckpt__nested_kind *kind, uint64_t offset)
{
    ckpt__records *r = kind->records;
    if (r->count == r->capacity)
        return NULL;
    r->rows[r->count] = (ckpt__nested){kind, offset};
    return &r->rows[r->count++];
}

void ckpt__nested_place_free(ckpt__nested_place *f)
{
    if (!f)
        return;
    ckpt__index_free(f->part);
    free(f);
}

void ckpt__records_free(ckpt__records *r)
{
    if (!r)
        return;
    for (ckpt__nested_place *f = r->first, *next; f; f = next) {
        next = f->next;
        ckpt__nested_place_free(f);
    }
    pthread_mutex_destroy(&r->lock);
    free(r->rows);
    free(r->found);
    free(r);
}
