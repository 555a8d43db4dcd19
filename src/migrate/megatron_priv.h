/* migrate/megatron_priv.h - the files of a checkpoint of megatron-core on their way: what to_megatron.c and keep_megatron.c share. */
#ifndef CKPT_MIGRATE_MEGATRON_PRIV_H
#define CKPT_MIGRATE_MEGATRON_PRIV_H
#include "migrate/megatron.h"
#include "migrate/resume.h"

typedef struct ckpt__megatron {
    ckpt__out *w; /* borrowed, as all but what is said to be owned */
    ckpt__migration *m;
    ckpt__arena *arena;
    ckpt__made_dict records, common; /* owned, until they are finished: the list's keys, and common.pt */
    bool *taken;                     /* heap, owned, one a tensor: it is a record, or stays behind */
    ckpt__hash *weights;             /* owned: key -> tensor */
    int64_t layers;                  /* of the model's stack; 0: it has none */
    size_t states, masters; /* tensors of the optimizer that have the name of a parameter; masters among them */
    size_t step_tensor;     /* the step as a tensor of no dimensions; SIZE_MAX: there is none */
    bool iteration;         /* the source says it */
    ckpt_error *err;
} ckpt__megatron;

/* Under a key of the list, or in common.pt; NULL: memory was short. --verify reads its tensors back. */
ckpt_status ckpt__megatron_record(ckpt__megatron *g, ckpt_str key, const ckpt_value *value);
ckpt_status ckpt__megatron_common(ckpt__megatron *g, ckpt_str key, const ckpt_value *value);
ckpt_status ckpt__megatron_object(ckpt__megatron *g, const char *key, const ckpt_value *value);

/* What the distributed optimizer with torch's own Adam cannot load, whoever wrote it. */
ckpt_status ckpt__megatron_say_adam(const ckpt__megatron *g);

/* keep_megatron.c: from a torch-dist: its own keys and values. */
ckpt_status ckpt__megatron_keep(ckpt__megatron *g);
#endif
