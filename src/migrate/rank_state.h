/* migrate/rank_state.h - --rank-state: what exists once for each rank (anatomy/rank_state.h) is kept, left out, or becomes that of one
 * process. It is done before anything has a canonical name: all steps behind it see a checkpoint that is so.
 *
 *   rank_state.c  what becomes of each state, by rule, and what is said of it
 *   rank_alike.c  do the ranks have the same?
 *   rank_edit.c   the tree and the tensors' rows without the parts that go, and under the names of one process */
#ifndef CKPT_MIGRATE_RANK_STATE_H
#define CKPT_MIGRATE_RANK_STATE_H
#include "anatomy/rank_state.h"
#include "migrate/migration.h"

/* What is done with a state. */
typedef enum ckpt__rank_verdict {
    CKPT__RANK_STAYS, /* every part stays where it is */
    CKPT__RANK_GOES,  /* no part goes along */
    CKPT__RANK_ONE    /* the part `kept` is the state of one process; the others do not go along */
} ckpt__rank_verdict;

typedef struct ckpt__rank_deed {
    ckpt__rank_verdict verdict;
    const ckpt__rank_part *kept; /* of ONE; borrowed */
} ckpt__rank_deed;

/* Megatron: the list in a part that has an item for each data parallel rank. NULL: there is none. */
const ckpt_value *ckpt__rank_items(const ckpt__rank_part *part);
/* Do all parts of the state have the same: values, bytes of tensors, and the items of lists among themselves? */
ckpt_status ckpt__rank_alike(const ckpt__migration *m, const ckpt__rank_states *found, const ckpt__rank_state *state,
                             bool *same, ckpt_error *err);

/* deeds: one a state. Sets m->rank_files for --to same. */
ckpt_status ckpt__rank_edit(ckpt__migration *m, const ckpt__rank_states *found, const ckpt__rank_deed *deeds,
                            ckpt_error *err);
#endif
