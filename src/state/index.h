/* state/index.h - what a save says of a state: the index of what is bound, and its values. */
#ifndef CKPT_PICTURE_H
#define CKPT_PICTURE_H
#include <ckpt/state.h>
#include "model/index.h"

/* A state at one moment, without its payload: names, shapes, devices, and the values copied. It exists so that every
 * format writes from a ckpt__index, whether the bytes come from a state, from a snapshot or from a file.
 *
 * A worked example: bindings w and b, the alias "tied" of w, and the hooks' value "rng" of 5000 bytes.
 *
 *     tensors[0] w       .storage = 0      storages[0]    bytes of binding 0
 *     tensors[1] b       .storage = 1      storages[1]    bytes of binding 1
 *     tensors[2] tied    .storage = 0
 *     tensors[3] rng     .storage = 2      storages[2]    .extent.memory = blobs[0], .size = 5000
 *
 * bindings is 2, aliases is 1, blob_count is 1 and blob_bytes is 5000. */
typedef struct ckpt__state_index {
    ckpt__index *index;       /* owned: tensor i and storage i are binding i; the aliases follow, then the values of
                                   * hooks, whose storages say where their bytes are (extent.memory) */
    ckpt__arena *values;      /* owned: has the tree below; NULL: weights only */
    const ckpt_value *root;   /* the scalars as a tree; NULL: weights only */
    int64_t step;             /* completed steps, by the scalar "step"; -1: not known */
    size_t bindings, aliases; /* how many of the tensors are bindings, and how many aliases */
    size_t groups;            /* of the state when it was taken */
    uint64_t version;         /* of the state when its bindings were looked at last */
    bool driver;              /* some binding is memory of a device that is not ours: the driver is asked each time */
    char **blobs;
    size_t blob_count;   /* heap, owned: the bytes of the values of hooks; NULL: none */
    uint64_t blob_bytes; /* of all blobs */
} ckpt__state_index;
ckpt_status ckpt__state_index_take(const ckpt_state *state, bool weights_only, const char *label,
                                   ckpt__state_index *out, ckpt_error *err);
/* The same for a state whose bindings are as they were when `saved` was taken, and which has no values of hooks: only what may have
 * changed is looked at, the scalars and whether the memory is there. Where the state has more aliases or groups than then all is taken
 * anew, and *renewed is false. After a failure nothing is taken. */
ckpt_status ckpt__state_index_renew(const ckpt_state *state, const char *label, ckpt__state_index *saved, bool *renewed,
                                    ckpt_error *err);
/* Where the bytes of a state lie now: tensor i and storage i are binding i; the values of hooks that `saved` has follow (NULL: none).
 * The extent of a binding is the memory that it spans, with its device; its tensor has the binding's strides. Bindings of one arena
 * have one allocation number. An alias has no row: it has the bytes of its binding. The rows borrow from the state and from `saved`,
 * and are true until the state is bound further or moved. */
ckpt_status ckpt__state_memory(const ckpt_state *state, const ckpt__state_index *saved, ckpt__index **out,
                               ckpt_error *err);
/* Appends the values of hooks, a tensor and a storage each, to an index of memory. False: no memory. */
bool ckpt__state_add_values(ckpt__index *index, const ckpt__state_index *saved);
void ckpt__state_index_free(ckpt__state_index *p);
#endif
