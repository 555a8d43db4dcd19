/* model/nested.c - what was found of records, and who frees it. */
#include "model/nested.h"

#include <stdlib.h>

ckpt__records *ckpt__index_records(ckpt__index *x)
{
    if (x->records)
        return x->records;
    ckpt__records *r = calloc(1, sizeof *r);
    if (r && pthread_mutex_init(&r->lock, NULL) != 0) {
        free(r);
        r = NULL;
    }
    x->records = r;
    return r;
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
    free(r);
}
