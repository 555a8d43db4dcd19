/* state/index.h - what a save says of a state: the index of what is bound, and its values. */
#ifndef CKPT_PICTURE_H
#define CKPT_PICTURE_H
#include <ckpt/state.h>
#include "model/index.h"

/* A state at one moment, without its payload: names, shapes, devices, and the values copied. */
typedef struct ckpt__state_index {
    ckpt__index *index;           /* tensor i and storage i are binding i; the aliases follow, then the values of hooks, whose
                                   * storages say where their bytes are (extent.memory) */
    const ckpt_value *root;       /* NULL: weights only */
    int64_t step;                 /* completed steps, -1 */
    size_t bindings, aliases;
    char **blobs; size_t blob_count;     /* heap: the bytes of the values of hooks */
    uint64_t blob_bytes;
} ckpt__state_index;
ckpt_status ckpt__state_index_take(const ckpt_state *state, bool weights_only, const char *label, ckpt__state_index *out,
                               ckpt_error *err);
void ckpt__state_index_free(ckpt__state_index *p);
#endif
