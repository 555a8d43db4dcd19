/* format/twins.c - files of many ranks that say the same: a short list of those that were read. */
#include "format/twins.h"

#include <stdlib.h>

/* The devices of a node, of which the pickles of its ranks have one each. */
enum { MOST = 16 };

struct ckpt__twins {
    pthread_mutex_t lock; /* of count; what is below it does not change */
    size_t count;
    ckpt__twin items[MOST];
};

ckpt__twins *ckpt__twins_new(void)
{
    ckpt__twins *t = calloc(1, sizeof *t);
    if (t)
        pthread_mutex_init(&t->lock, NULL);
    return t;
}

void ckpt__twins_free(ckpt__twins *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->count; i++) {
        ckpt__buf_free(&t->items[i].pickle);
        ckpt__index_free(t->items[i].index);
    }
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static const ckpt__twin *find(const ckpt__twins *t, size_t count, const ckpt__buf *pickle, bool big_endian)
{
    for (size_t i = 0; i < count; i++) {
        const ckpt__twin *own = &t->items[i];
        if (own->big_endian == big_endian && own->pickle.size == pickle->size &&
            memcmp(own->pickle.data, pickle->data, pickle->size) == 0)
            return own;
    }
    return NULL;
}

const ckpt__twin *ckpt__twins_find(ckpt__twins *t, const ckpt__buf *pickle, bool big_endian)
{
    pthread_mutex_lock(&t->lock);
    const size_t count = t->count;
    pthread_mutex_unlock(&t->lock);
    return pickle->size ? find(t, count, pickle, big_endian) : NULL;
}

void ckpt__twins_keep(ckpt__twins *t, ckpt__buf *pickle, bool big_endian, ckpt__index *index)
{
    pthread_mutex_lock(&t->lock);
    if (t->count < MOST && pickle->size && !find(t, t->count, pickle, big_endian)) {
        ckpt__index_hold(index);
        t->items[t->count++] = (ckpt__twin){*pickle, index, big_endian};
        *pickle = (ckpt__buf){0};
    }
    pthread_mutex_unlock(&t->lock);
}
