/* engine/nested.h - where the bytes of a nested extent are: looked up in its record once, at the first use. */
#ifndef CKPT_NESTED_FIND_H
#define CKPT_NESTED_FIND_H
#include "io/source.h"
#include "model/nested.h"

/* The extent to be read: e itself, or what the record says where it is nested. Threads may ask at the same time. `what` is for
 * messages. CKPT_E_DAMAGED: the record is damaged, or not what the index says of it. */
ckpt_status ckpt__extent_look(const ckpt__source *source, const ckpt__extent *e, const char *what,
                              const ckpt__extent **out, ckpt_error *err);
/* The same of a storage. */
static inline ckpt_status ckpt__extent_find(const ckpt__source *source, const ckpt__index *index, size_t storage,
                                            const ckpt__extent **out, ckpt_error *err)
{
    const ckpt__storage *s = &index->storages[storage];
    *out = &s->extent;
    return s->extent.coding == CKPT__NESTED
               ? ckpt__extent_look(source, &s->extent, s->name.data ? s->name.data : "storage", out, err)
               : CKPT_OK;
}
#endif
