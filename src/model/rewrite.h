/* model/rewrite.h - another value tree of one that is read, which is never touched.
 *
 * A rewriter asks a function about every place of the tree, parents first: the value there is kept, is replaced by another, or goes
 * from that place. What comes out is a tree that shares all that is unchanged with the one that went in; the values above a
 * change are copies. A value that several places share is replaced in all of them, and a tree that contains itself still does.
 *
 * A worked example. Of {'a': [x, y], 'b': x} let x be replaced by z, and let y go from the list:
 *
 *     was:  root {'a': list [x, y], 'b': x}        x, y, the list and the root are as they were
 *     is:   copy {'a': copy [z, None], 'b': z}     ckpt__edits_now(root), of the list, of x: the copies, and z
 *
 * The rewriter knows what each value has become over any number of rewrites: who holds a value of the first tree asks for the one
 * of the last with ckpt__edits_now. */
#ifndef CKPT_MODEL_REWRITE_H
#define CKPT_MODEL_REWRITE_H
#include "base/pointers.h"
#include "model/index.h"

/* One place in a tree, as the rewrites before have left it. All pointers are borrowed. In {'a': [x, y]} the value y has the
 * parent and the holder [x, y], and number 1. An attribute has the object for its parent, and the object's state for its
 * holder. The root has no holder, nor have the arguments of a call, and a state that is no dict of attributes. */
typedef struct ckpt__spot {
    const ckpt_value *value;
    const ckpt_value *parent; /* one level up; NULL: the value is the root */
    const ckpt_value *holder; /* has the value among its items or entries; NULL: nothing has */
    size_t number;            /* of the item or entry of the holder */
    bool item;                /* an item; else the value of an entry */
} ckpt__spot;

/* What is between the trees: it belongs to one thread. Its members are rewrite.c's; the first is asked often, and mostly empty. */
typedef struct ckpt__edits {
    ckpt__pointers became; /* value -> number of what it became, in `values` */
    const ckpt_value **values;
    size_t value_count, value_capacity;
    ckpt__arena *arena;
    bool (*holds)(const struct ckpt__edits *edits, const ckpt_value *v); /* ckpt__holds_fn */
    ckpt__pointers cut_from;                                             /* holder -> 1 + its last cut */
    struct ckpt__cut *cuts;                                              /* of the rewrite that is on its way */
    size_t cut_count, cut_capacity;
    size_t noted; /* edits that are not made yet */
    bool holes;   /* there are some in the tree */
} ckpt__edits;

/* Values that are opaque are written from what they were read from, where only the values in it count: of such a value no
 * entry or item can go, and the value there becomes None wherever it stands. For which objects that does not hold, a format
 * says: their own items and entries count. NULL: for none. */
typedef bool (*ckpt__holds_fn)(const ckpt__edits *edits, const ckpt_value *v);

/* arena: for new values, borrowed, to live as long as the trees. NULL: no memory. */
ckpt__edits *ckpt__edits_new(ckpt__arena *arena, ckpt__holds_fn holds);
void ckpt__edits_free(ckpt__edits *edits);

/* Said of one place. *to is the value there: left alone it is kept, another is put in its place wherever it stands (and asked
 * about below next), NULL drops it from this place. The entry of a dict goes then; an item of a list or tuple becomes None, so
 * that the items behind it keep their numbers; an item of an object that holds its own becomes a hole (ckpt__edits_close_holes).
 * What takes the place of a value must not contain that value. A place within a cycle has visit->cycle. A return other than 0
 * ends the walk, and is returned. */
typedef int (*ckpt__rewrite_fn)(void *ctx, const ckpt_visit *visit, const ckpt__spot *spot, const ckpt_value **to);
/* *out is the tree that comes of it: `root` itself where nothing is changed. An error: the function's, that of ckpt_value_walk, or
 * CKPT_E_NO_MEMORY; *out is not set then, and `edits` is only to be freed. root NULL: *out is NULL. */
ckpt_status ckpt__rewrite(ckpt__edits *edits, const ckpt_value *root, ckpt__rewrite_fn fn, void *ctx,
                          const ckpt_value **out, ckpt_error *err);

/* The same in two steps, of which the first may be taken several times: what fn says is noted, and edits that are found otherwise
 * (false: no memory); then the tree is made. */
ckpt_status ckpt__edits_note(ckpt__edits *edits, const ckpt_value *root, ckpt__rewrite_fn fn, void *ctx,
                             ckpt_error *err);
bool ckpt__edits_replace(ckpt__edits *edits, const ckpt_value *value, const ckpt_value *by);
bool ckpt__edits_drop(ckpt__edits *edits, const ckpt__spot *spot);
ckpt_status ckpt__edits_apply(ckpt__edits *edits, const ckpt_value *root, const ckpt_value **out, ckpt_error *err);
/* Holes go, and the items behind them move up. */
ckpt_status ckpt__edits_close_holes(ckpt__edits *edits, const ckpt_value *root, const ckpt_value **out,
                                    ckpt_error *err);

/* What `value` is now; itself where nothing became of it. edits NULL: nothing did. */
const ckpt_value *ckpt__edits_follow(const ckpt__edits *edits, const ckpt_value *value);
static inline const ckpt_value *ckpt__edits_now(const ckpt__edits *edits, const ckpt_value *value)
{
    return edits && edits->became.count ? ckpt__edits_follow(edits, value) : value;
}
/* A copy of a value, to be changed before the tree gets it. NULL: no memory. */
ckpt_value *ckpt__edits_copy(ckpt__edits *edits, const ckpt_value *value);

/* ckpt_value_walk of what the tree is now, while edits are noted: a value that fn replaces is gone on from. (walk.c) */
int ckpt__value_walk_now(const ckpt_value *root, const ckpt__edits *edits, ckpt_visit_fn fn, void *ctx,
                         ckpt_error *err);
#endif
