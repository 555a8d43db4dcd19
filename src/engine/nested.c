/* engine/nested.c - one look into a record, whoever asks first. Two threads may look at once: what the first has found is kept. */
#include "engine/nested.h"

static ckpt__nested_place *keep(ckpt__nested *n, ckpt__nested_place *found)
{
    ckpt__records *r = n->records;
    pthread_mutex_lock(&r->lock);
    ckpt__nested_place *first = n->found;
    if (!first) {
        found->next = r->first;
        r->first = first = found;
        __atomic_store_n(&n->found, found, __ATOMIC_RELEASE);
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
    ckpt__nested *n = (ckpt__nested *)(uintptr_t)e->nested; /* what is found is kept there */
    ckpt__nested_place *found = __atomic_load_n(&n->found, __ATOMIC_ACQUIRE);
    if (!found) {
        ckpt_status status = n->records->look(source, e, what, &found, err);
        if (status < 0)
            return status;
        found = keep(n, found);
    }
    *out = &found->extent;
    return CKPT_OK;
}
