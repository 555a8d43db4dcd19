/* migrate/trainer.h - a directory of the HF Trainer or of accelerate: what the files that write it share.
 *
 *   to_trainer.c          its files, in order; of one process the weights and the optimizer
 *   to_trainer_shards.c   of FSDP2 and DeepSpeed: the directories that hold the weights and the optimizer for any number of ranks
 *   trainer_beside.c      the scheduler, random states, the state of the Trainer, and what else stands beside */
#ifndef CKPT_MIGRATE_TRAINER_H
#define CKPT_MIGRATE_TRAINER_H
#include "migrate/resume.h"

typedef struct ckpt__trainer {
    ckpt__out *w;
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__trained_parts parts;
    bool accelerate, fsdp, deepspeed;
    bool *used;              /* heap: of the root's entries, those that have a place */
    ckpt__made_dict tree;    /* by the files' names: what is read back */
    size_t *order, count;    /* heap: tensors by files */
    bool *placed;            /* heap, one a tensor: it is in a file */
    size_t masters;          /* that are the weights */
    const ckpt_value *epoch; /* the number that trainer_state.json has; NULL: none of the source */
    ckpt_error *err;
} ckpt__trainer;

static inline ckpt_status ckpt__trainer_no_memory(const ckpt__trainer *t)
{
    return ckpt__migration_no_memory(t->err);
}

/* A file whose own tree of values is `own`; `root` is what its format writes of it. A NULL: memory was short. */
ckpt_status ckpt__trainer_file(ckpt__trainer *t, const char *name, const char *format, const ckpt_value *own,
                               const ckpt_value *root);
ckpt_status ckpt__trainer_torch(ckpt__trainer *t, const char *name, const ckpt_value *root);
/* What lies below the name is written elsewhere; its tensors are placed, and read back there. */
ckpt_status ckpt__trainer_placed(ckpt__trainer *t, const char *name, const ckpt_value *own);
/* Nobody would resume from a directory without an optimizer, or a model. */
ckpt_status ckpt__trainer_refuse(const ckpt__trainer *t);
ckpt_status ckpt__trainer_no_model(const ckpt__trainer *t);

/* ---- to_trainer_shards.c */
ckpt_status ckpt__trainer_fsdp(ckpt__trainer *t);
ckpt_status ckpt__trainer_deepspeed(ckpt__trainer *t); /* at last: what has no file goes into its client state */

/* ---- trainer_beside.c */
ckpt_status ckpt__trainer_scheduler(ckpt__trainer *t);
ckpt_status ckpt__trainer_scaler(ckpt__trainer *t);
ckpt_status ckpt__trainer_random(ckpt__trainer *t);
ckpt_status ckpt__trainer_state(ckpt__trainer *t);
/* Files of the program itself, under their names; then what has no file is lost. */
ckpt_status ckpt__trainer_own(ckpt__trainer *t);
ckpt_status ckpt__trainer_others(ckpt__trainer *t);
#endif
