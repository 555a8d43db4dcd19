/* engine/nested.c - one look into a record, whoever asks first. Two threads may look at once: what the first has found is kept. */
#include "engine/nested.h"

static ckpt__nested_place *keep(const ckpt__nested *n, ckpt__nested_place *found)
{
    ckpt__records *r = n->kind->records;
    ckpt__nested_place **kept = ckpt__nested_found(n);
    pthread_mutex_lock(&r->lock);
    ckpt__nested_place *first = *kept;
    if (!first) {
        found->next = r->first;
        r->first = first = found;
        __atomic_store_n(kept, found, __ATOMIC_RELEASE);
        found = NULL;
    }
    pthread_mutex_unlock(&r->lock);
    ckpt__nested_place_free(found);
    return first;
}

ckpt_status ckpt__extent_look(const ckpt__source *source, const ckpt__extent *e, const char *what,
                              const ckpt__extent **out, ckpt_error *err)
{
    *out = e;
    if (e->coding != CKPT__NESTED || e->missing)
        return CKPT_OK;
    const ckpt__nested *n = e->nested;
    ckpt__nested_place *found = __atomic_load_n(ckpt__nested_found(n), __ATOMIC_ACQUIRE);
    if (!found) {
        ckpt_status status = n->kind->records->look(source, e, what, &found, err);
        if (status < 0)
            return status;
        found = keep(n, found);
    }
    *out = &found->extent;
    return CKPT_OK;
}
