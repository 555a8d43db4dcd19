/* model/views.h - which tensors view which storage: the index has it the other way round. */
#ifndef CKPT_VIEWS_H
#define CKPT_VIEWS_H
#include "model/index.h"

/* Made once for an index, and true as long as its pieces stay what they are. A tensor of several pieces is listed at each
 * storage that it views, and there once. All zero: none was made. */
typedef struct ckpt__views {
    size_t *tensors; /* heap: those of storage s, ascending, are tensors[first[s]] to tensors[first[s + 1] - 1] */
    size_t *first;   /* heap: one a storage, and one more */
    size_t count;    /* storages */
} ckpt__views;

/* The storages from this number on are pieces of split tensors, and nothing else: a checkpoint of a thousand ranks has millions, at its
 * end, where those that are known by themselves are few. */
size_t ckpt__pieces_from(const ckpt__index *index);
/* Of all storages; or, where not `pieces`, of those before ckpt__pieces_from. False when memory is short; free in any case. A piece
 * whose storage the index does not have is passed over. */
bool ckpt__views_make(const ckpt__index *index, bool pieces, ckpt__views *out);
void ckpt__views_free(ckpt__views *views);
/* The numbers of the tensors that view a storage, and how many they are. */
static inline const size_t *ckpt__views_of(const ckpt__views *views, size_t storage, size_t *count)
{
    *count = storage < views->count ? views->first[storage + 1] - views->first[storage] : 0;
    return *count ? views->tensors + views->first[storage] : NULL;
}
#endif
