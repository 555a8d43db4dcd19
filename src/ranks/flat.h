/* ranks/flat.h - buffers in one dimension that hold the states of all parameters of a rank, and of which the ranks along an axis have
 * parts each.
 *
 *   flat.c       what lies flat is taken out of the files' trees, and an optimizer of parameters is put in its place
 *   flat_sets.c  which parameters lie in a buffer, and where
 *   flat_join.c  one parameter's elements of a buffer, as pieces
 *
 * An example: the parameters w (3 x 2) and b (3) of a rank lie in a buffer of 10 elements, w at 0, b at 6, and one of padding; two ranks of
 * dp have 5 each. exp_avg of w is elements 0 to 4 of the first part and element 0 of the second, of b elements 1 to 3 of that. */
#ifndef CKPT_RANKS_FLAT_H
#define CKPT_RANKS_FLAT_H
#include "ranks/merge.h"

/* The ranks that have the parts of one buffer: all at the same place, but along the buffer's axis. */
typedef struct ckpt__flat_column {
    const ckpt__ranks_file **files; /* one a place along the axis */
    int64_t *begins;                /* of each the first element, and in the end how many there are */
    int64_t *offsets;               /* of each parameter of the set; all in the work's arena */
} ckpt__flat_column;

/* A flat buffer of the layout, in one stage. */
typedef struct ckpt__flat_set {
    const ckpt__rank_flat *flat;
    const ckpt__ranks_group *group; /* whose files have it */
    size_t stage, parts;            /* parts: ranks along the axis */
    size_t *params, count;          /* numbers of tensors of the work */
    ckpt__flat_column *columns;
    size_t column_count;
} ckpt__flat_set;

/* A state of one parameter of a set. */
typedef struct ckpt__flat_state {
    const ckpt__flat_set *set;
    size_t param; /* number in the set */
    size_t buffer;
} ckpt__flat_state;

/* What a path means in the files of a group: what is behind its key. False: it is of another group. */
bool ckpt__flat_path(const ckpt__ranks_group *g, ckpt_str path, ckpt_str *inside);
/* Of a file, as it was read; NULL: there is nothing. */
const ckpt_value *ckpt__flat_value(const ckpt__ranks_group *g, const ckpt__ranks_file *f, ckpt_str path);

/* flat_sets.c. *out NULL: something is wrong, which was said. taken: one a tensor of the work, those that earlier sets have. */
ckpt_status ckpt__flat_set_make(ckpt__ranks *r, const ckpt__rank_flat *flat, size_t stage, bool *taken,
                                const ckpt__flat_set **out);
/* flat_join.c: as ckpt__ranks_join */
ckpt_status ckpt__flat_join(ckpt__ranks *r, const ckpt__ranks_tensor *t, size_t row, bool *made);
/* The tensor in the files of a rank that stand where f does. */
const ckpt__ranks_part *ckpt__flat_part_of(const ckpt__ranks *r, const ckpt__ranks_tensor *t,
                                           const ckpt__ranks_file *f);
#endif
