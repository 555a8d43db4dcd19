/* model/value_path.h - one value by its dotted path, of a tree whose paths were made by the walk ("optimizer.param_groups.0.lr").
 * Keys may hold dots themselves, so the longest key that fits is taken. ckpt_value_find is the public question: it looks into
 * everything that the walk names, says how far a path leads, and takes longer. */
#ifndef CKPT_VALUE_PATH_H
#define CKPT_VALUE_PATH_H
#include "model/index.h"

/* One step down a path. */
typedef struct ckpt__step {
    const ckpt_value *value; /* where it leads to */
    const ckpt_entry *entry; /* the entry that it goes through; NULL: it is an item */
    size_t item;             /* the number of that item */
    size_t taken;            /* bytes of the path that name it; a dot follows them, or the path ends */
} ckpt__step;

/* By an entry of v whose key is text or an integer, by an item, or by an attribute (an entry of v's state), in this order.
 * False: the path does not go on from v. */
bool ckpt__step_into(const ckpt_value *v, ckpt_str path, ckpt__step *out);
/* The value at the path; the root at an empty one, or one without data. NULL: nothing is there. */
const ckpt_value *ckpt__value_at(const ckpt_value *root, ckpt_str path);
/* The entry with this string key among a value's own; NULL: none. v may be NULL. */
const ckpt_entry *ckpt__find_entry(const ckpt_value *v, const char *key);
#endif
