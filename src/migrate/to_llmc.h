/* migrate/to_llmc.h - a target of llm.c: what its two files share. */
#ifndef CKPT_MIGRATE_TO_LLMC_H
#define CKPT_MIGRATE_TO_LLMC_H
#include "format/llmc/llmc.h"
#include "migrate/resume.h"

typedef struct ckpt__llmc_target {
    ckpt__out *w;
    ckpt__migration *m;
    ckpt__llmc_parts parts;
    int64_t ranks, step;
    bool alone; /* the weights alone: one file, and no state */
    bool master, shuffles, split;
    ckpt__llmc_state *states;          /* heap, owned: one a rank */
    size_t (*lists)[CKPT__LLMC_LISTS]; /* heap, owned: one a rank; SIZE_MAX: it has none */
    const ckpt_value *root; /* the values that are asked: the target's, or of weights alone the source's; NULL: none */
    ckpt_error *err;
} ckpt__llmc_target;

/* ---- to_llmc_ranks.c: what each rank has for itself */

/* How many ranks, and how their states are divided; t->states and t->lists are made. */
ckpt_status ckpt__llmc_plan_ranks(ckpt__llmc_target *t);
/* Random states and places in the data, once t->lists is filled. */
ckpt_status ckpt__llmc_plan_states(ckpt__llmc_target *t);
/* The number at a key of the root; false: it has none. */
bool ckpt__llmc_number(const ckpt__llmc_target *t, const char *key, int64_t *out);
#endif
