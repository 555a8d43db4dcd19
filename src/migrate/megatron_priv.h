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
    size_t states, masters; /* tensors of the optimizer that have the name of a parameter; masters among them */
    size_t step_tensor;     /* the step as a tensor of no dimensions; SIZE_MAX: there is none */
    bool iteration;         /* the source says it */
    ckpt_error *err;
} ckpt__megatron;

enum { CKPT__MEGATRON_LAYERS = 100000 }; /* of a model, at most */

/* Where a file of torch has the groups of a torch-dist as they were (to_torch.c). */
#define CKPT__MEGATRON_SAVED "saved_param_groups"

static inline bool ckpt__megatron_is_state(ckpt_role role)
{
    return role == CKPT_ROLE_EXP_AVG || role == CKPT_ROLE_EXP_AVG_SQ || role == CKPT_ROLE_MASTER ||
           role == CKPT_ROLE_MAX_EXP_AVG_SQ || role == CKPT_ROLE_MOMENTUM;
}

/* stack_layers.c: m->meg but for the number of experts. */
ckpt_status ckpt__megatron_look(ckpt__migration *m, ckpt_error *err);
/* Is it a tensor that torch-dist has by a key of its own: a parameter, or a state of one? */
bool ckpt__megatron_has_key(const ckpt__migration *m, const ckpt__canon_entry *e);

/* Under a key of the list, or in common.pt; NULL: memory was short. --verify reads its tensors back. */
ckpt_status ckpt__megatron_record(ckpt__megatron *g, ckpt_str key, const ckpt_value *value);
ckpt_status ckpt__megatron_common(ckpt__megatron *g, ckpt_str key, const ckpt_value *value);
ckpt_status ckpt__megatron_object(ckpt__megatron *g, const char *key, const ckpt_value *value);

/* megatron_optimizer.c: what common.pt says of the optimizer, when all its tensors are records. */
ckpt_status ckpt__megatron_optimizer(ckpt__megatron *g);
/* Can so many expert parallel ranks as the options say share the experts? */
ckpt_status ckpt__megatron_check_ranks(const ckpt__megatron *g);
/* That of a torch-dist, for as many expert parallel ranks as the options say. */
ckpt_status ckpt__megatron_reform(ckpt__megatron *g, const ckpt_value *optimizer, const ckpt_value **out);
/* What the distributed optimizer with torch's own Adam cannot load, whoever wrote it. */
ckpt_status ckpt__megatron_say_adam(const ckpt__megatron *g);

/* megatron_extras.c */
ckpt_status ckpt__megatron_extras(ckpt__megatron *g);

/* keep_megatron.c: from a torch-dist: its own keys and values. */
ckpt_status ckpt__megatron_keep(ckpt__megatron *g);
#endif
