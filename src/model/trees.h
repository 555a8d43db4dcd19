/* model/trees.h - the trees of several files as one, place by place: what all do that put the files of ranks together. What two files
 * have in common, and which tensors become one, each says itself.
 *
 * An example: of {'step': 3, 'rng': {'cpu': A}} and {'step': 3, 'rng': {'cpu': B}} the root is a place, with the values of both files, and
 * 'step' and 'rng' are places below it. What is asked about 'rng' asks about 'cpu', of which there is nothing in common; A and B become what
 * each file has for itself. The tree of both is {'step': 3}, and beside it stand {'rng': {'cpu': A}} and {'rng': {'cpu': B}}. */
#ifndef CKPT_MODEL_TREES_H
#define CKPT_MODEL_TREES_H
#include "model/index.h"

/* The entries of a dict that grows. */
typedef struct ckpt__entries {
    ckpt_entry *items; /* heap */
    size_t count, capacity;
} ckpt__entries;
ckpt_status ckpt__entries_add(ckpt__entries *to, const ckpt_value *key, const ckpt_value *value, ckpt_error *err);
/* NULL: no memory. */
ckpt_value *ckpt__entries_dict(const ckpt__entries *of, ckpt__arena *a);

typedef struct ckpt__place {
    const ckpt_value **values; /* one a file; NULL: it has nothing there */
    size_t count;              /* files */
    const ckpt_value *key;     /* under which the dict or list above has it; NULL: it is the root */
    int depth;
} ckpt__place;
/* The first file that has something there; at->count: none has. */
size_t ckpt__place_first(const ckpt__place *at);
/* Has each file that has something there a value of this kind; has each a list of the same length, or a tuple? */
bool ckpt__place_is(const ckpt__place *at, ckpt_kind kind);
bool ckpt__place_is_lists(const ckpt__place *at);
/* Each file has for itself what it has there. */
ckpt_status ckpt__place_keep(const ckpt__place *at, ckpt__entries *own, ckpt_error *err);

/* Says what becomes of a place: out->value is what the files have in common, and is NULL at first, as nothing is. What file i has for itself
 * goes to own[i], under the place's key; so does what its children have. out->key is the place's, and may be another one in the end. */
typedef ckpt_status (*ckpt__merge_fn)(void *ctx, const ckpt__place *at, ckpt_entry *out, ckpt__entries *own);
/* A place of dicts, or of lists: fn says what becomes of each child, in the order in which they are met. *out is a dict like the first file's of
 * what its children have in common, or such a list, with None for those that have nothing. *some (may be NULL): a child has something in
 * common, or there are none. own: one a file. */
ckpt_status ckpt__place_merge(const ckpt__place *at, ckpt__arena *a, ckpt__merge_fn fn, void *ctx,
                              const ckpt_value **out, bool *some, ckpt__entries *own, ckpt_error *err);
/* Says of so many values that they are each rank's own, which the root has under rank_0, rank_1, ... (ranks-differ). False: no memory. */
bool ckpt__trees_say_differ(ckpt_report *findings, size_t values);
#endif
