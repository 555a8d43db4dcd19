/* format/megatron/ranks.h - the parts of all ranks on their way to one model. The rows of the ranks' own tensors are in the index while
 * that is done, and are left out in the end but for those that stay as they are. */
#ifndef CKPT_MEGATRON_RANKS_H
#define CKPT_MEGATRON_RANKS_H
#include "format/megatron/megatron.h"

/* How one parameter is cut over the tensor-parallel ranks. A gated fc1 has dim 0 and 2 blocks: a rank has its part of the gate and
 * below it its part of the other half. */
typedef struct ckpt__meg_cut {
    bool known;
    int dim;        /* -1: each rank has all of it */
    int64_t blocks; /* 1, or so many that are each cut by themselves */
} ckpt__meg_cut;

enum { CKPT__MEG_OPTIMIZERS = 2 }; /* of the parameters that all have, and of the experts */

/* What a rank has of one stage: the tensors below "model", or below "model0", "model1", ... of an interleaved pipeline. */
typedef struct ckpt__meg_chunk {
    size_t *items; /* heap: numbers of tensors in the index, in the model's order */
    size_t count, capacity;
} ckpt__meg_chunk;

/* The parts of the model that one rank has. */
typedef struct ckpt__meg_rank {
    int64_t tp, pp, ep;
    const char *folder;            /* "mp_rank_00_001", in the index's arena */
    bool there;                    /* else it is missing or damaged, and nothing but the above is known */
    const ckpt_value *root, *flat; /* of model_optim_rng.pt, of distrib_optim.pt (NULL: there is none) */
    size_t first;                  /* number of its first tensor in the index */
    ckpt__meg_chunk *chunks;       /* heap, owned: m->vp of them; NULL: nothing of it was read */
    /* Owned, one an optimizer: number of a parameter in it -> its entry there; NULL: not looked at */
    ckpt__hash *states[CKPT__MEG_OPTIMIZERS];
} ckpt__meg_rank;

/* One parameter of one stage. */
typedef struct ckpt__meg_param {
    ckpt_str name; /* of the whole model: layers are counted over all stages, experts over all ranks that have some */
    size_t stage, row; /* row: which of its chunk */
    bool again;        /* an earlier stage has it, too */
    bool expert;       /* only the ranks of `ep` have it; else those of each expert-parallel rank have the same */
    size_t ep;         /* 0 where it is no expert's */
    ckpt__meg_cut cut;
} ckpt__meg_param;

typedef struct ckpt__meg {
    const ckpt__read_request *request; /* borrowed, as all but what is said to be owned */
    const ckpt__meg_place *place;
    const char *label; /* of the directory */
    ckpt__index *index;
    const ckpt_value *args;
    size_t tp, pp, ep;           /* ranks of each kind */
    size_t vp;                   /* stages of each pipeline rank: 1, or more of an interleaved pipeline */
    size_t rank_count;           /* tp * pp * ep */
    size_t stage_count;          /* pp * vp; the pipeline rank p has the stages p, p + pp, p + 2 pp, ... */
    ckpt__meg_rank *ranks;       /* heap, owned: number (ep * this.pp + pp) * this.tp + tp */
    const ckpt__meg_rank *first; /* that is there */
    ckpt__meg_param *params;     /* heap, owned: stage by stage, in the model's order */
    size_t param_count, param_capacity;
    size_t *stages;      /* heap, owned: of stage s the params stages[s] ... stages[s + 1] */
    ckpt__hash *by_name; /* owned: of params */
    ckpt_entry *entries; /* heap, owned: of the root */
    size_t entry_count, entry_capacity;
    bool joined_optimizer; /* else each rank's stays as it is */
    char unjoined[300];    /* why; "": there is none to join */
} ckpt__meg;

/* The rank that has a stage. */
static inline ckpt__meg_rank *ckpt__meg_rank_of(const ckpt__meg *m, size_t tp, size_t stage, size_t ep)
{
    return &m->ranks[(ep * m->pp + stage % m->pp) * m->tp + tp];
}
static inline const ckpt__meg_chunk *ckpt__meg_chunk_of(const ckpt__meg *m, const ckpt__meg_rank *r, size_t stage)
{
    return &r->chunks[stage / m->pp];
}
/* Which rank's tensors a parameter is made of, and of its optimizer's: that of its expert-parallel rank, or where all of those have it
 * the first one that is there. NULL: none is. */
const ckpt__meg_rank *ckpt__meg_holder(const ckpt__meg *m, const ckpt__meg_param *p, size_t tp);
/* Of a stage the first rank that is there; NULL: none is. */
const ckpt__meg_rank *ckpt__meg_of_stage(const ckpt__meg *m, size_t stage);
/* The same of one expert-parallel rank. */
const ckpt__meg_rank *ckpt__meg_of_experts(const ckpt__meg *m, size_t stage, size_t ep);
ckpt_status ckpt__meg_put(ckpt__meg *m, ckpt_str key, const ckpt_value *value, ckpt_error *err);

/* check.c. root: of a rank's file, whose name is for messages.
 * The iteration by the folder's name, and what is not read; nothing of it needs the sizes. */
ckpt_status ckpt__meg_check_kind(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err);
/* Is it of the step and of the run of the first one? */
ckpt_status ckpt__meg_check_same(const ckpt__meg *m, const ckpt_value *root, const char *name, ckpt_error *err);
ckpt_status ckpt__meg_check_rank(const ckpt__meg *m, const ckpt__meg_rank *r, const ckpt_value *root, const char *name,
                                 ckpt_error *err);
/* How many parts of the model the dict has: "model" is one, "model0", "model1", ... are those of an interleaved pipeline. 0: it has
 * none. */
size_t ckpt__meg_count_chunks(const ckpt_value *root);
/* "tensor-parallel rank 1 of pipeline stage 0" */
const char *ckpt__meg_rank_text(const ckpt__meg *m, const ckpt__meg_rank *r, char *out, size_t size);

/* rules.c: what the name of a parameter says, below the model. gated: its fc1 has a gate. */
ckpt__meg_cut ckpt__meg_cut_by_name(ckpt_str name, bool gated);
/* What Megatron has said of a tensor (tensor_model_parallel, partition_dim, partition_stride), where it was kept with it: `known`
 * then. v: a TENSOR value. */
ckpt__meg_cut ckpt__meg_cut_said(const ckpt_value *v);
/* Which of the stacks of layers it is in: the number behind "layers." is at [*at, *at + *size) of the name. */
bool ckpt__meg_layer(ckpt_str name, size_t *at, size_t *size, int64_t *layer);
/* Which of its rank's experts it is of: the number is at [*at, *at + *size) of the name. experts: it is of the experts, whether or not
 * the name has the number of one. */
bool ckpt__meg_expert(ckpt_str name, bool *experts, size_t *at, size_t *size, int64_t *expert);
/* No parameter: a buffer that is kept. */
bool ckpt__meg_is_buffer(ckpt_str name);

/* join.c: the parameters' names, cuts and tensors. */
ckpt_status ckpt__meg_find_params(ckpt__meg *m, ckpt_error *err);
ckpt_status ckpt__meg_join_params(ckpt__meg *m, ckpt_error *err);
/* One tensor of the parts of all ranks of a stage: parts[tp] is the number of a tensor, or SIZE_MAX where the rank is not there. */
typedef struct ckpt__meg_logical {
    ckpt_str name, param, state_key; /* param, state_key: of what belongs to one */
    ckpt_role role;
    ckpt__meg_cut cut;
} ckpt__meg_logical;
ckpt_status ckpt__meg_join(ckpt__meg *m, const ckpt__meg_logical *of, const size_t *parts, ckpt_error *err);

/* optim.c: what the optimizer's numbers stand for, before the cuts are settled; then its tensors and groups. */
ckpt_status ckpt__meg_check_optimizer(ckpt__meg *m, ckpt_error *err);
ckpt_status ckpt__meg_join_optimizer(ckpt__meg *m, ckpt_error *err);

/* values.c: the root, with what is no parameter; and the names of the ranks' tensors that stay. */
ckpt_status ckpt__meg_put_values(ckpt__meg *m, ckpt_error *err);
ckpt_status ckpt__meg_keep_rest(ckpt__meg *m, size_t logical, ckpt_error *err);
#endif
