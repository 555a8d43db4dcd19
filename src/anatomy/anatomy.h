/* anatomy/anatomy.h - what a checkpoint is to training: its models, optimizers, schedulers, scalers, states of random
 * generators and counters. One walk of the value tree finds all of them; restore, migrate, doctor and `show` ask the
 * answer, and none of them walks for itself. Each that is found is an organ; a part is a file of a whole (part.h).
 *
 * The walk makes an array of all places (model/preorder.h), parents first, and an organ is a node of it: its path is the
 * node's name, its value the node's value, and everything below it is a range of nodes. The tree may have cycles and
 * shared parts: a place below itself has no node, and nothing here recurses.
 *
 * {'net': {'a.w': T0}, 'opt': {'state': {0: {'exp_avg': T1}}, 'param_groups': [{'lr': 0.1, 'params': [0]}]}, 'step': 7}
 * has three organs:
 *
 *     kind              name     evidence
 *     CKPT__MODEL       "net"    CKPT__BY_TENSORS
 *     CKPT__OPTIMIZER   "opt"    CKPT__SOME_GROUPS | CKPT__LISTS_PARAMS | CKPT__LISTS_IDS, form CKPT__TORCH_DICT
 *     CKPT__PROGRESS    "step"   1, the bit of its key
 *
 * An anatomy belongs to who builds it. It is not kept with the index, so no lock is needed: two threads that ask at the
 * same time build two. It borrows the index and the arena that it is given, and both must outlive it. */
#ifndef CKPT_ANATOMY_H
#define CKPT_ANATOMY_H
#include "base/pointers.h"
#include "model/preorder.h"
#include "model/training.h"

typedef enum ckpt__organ_kind {
    CKPT__MODEL,     /* a state_dict; an average of one has CKPT__AVERAGE */
    CKPT__OPTIMIZER, /* ckpt__anatomy_read_optimizer reads its groups */
    CKPT__SCHEDULER,
    CKPT__SCALER,
    CKPT__RNG,              /* the state of a random generator, or a list of them */
    CKPT__PROGRESS,         /* a count of steps or epochs */
    CKPT__BROKEN_OPTIMIZER, /* a dict that has some keys of an optimizer's and lacks one */
    CKPT__SAMPLERS,         /* a list of the states of samplers of data, one a rank */
    CKPT__DATA_LOADER       /* where a StatefulDataLoader of torchdata was */
} ckpt__organ_kind;

/* The evidence of an organ, as bits of the enum of its kind. One is listed where any reader of checkpoints would take
 * it for one. Who is stricter asks for the bits that it needs. */
enum {                       /* models */
       CKPT__BY_TENSORS = 1, /* names and tensors, and nothing else (ckpt__is_state_dict) */
       CKPT__BY_MODULE = 2,  /* an archive of libtorch or TorchScript with weights in it, or in its submodules */
       CKPT__AVERAGE = 4     /* ckpt__anatomy_is_average */
};
enum {                         /* optimizers */
       CKPT__SOME_GROUPS = 1,  /* there is a group */
       CKPT__LISTS_PARAMS = 2, /* each group has a list of parameters */
       CKPT__LISTS_IDS = 4     /* and these are numbers or names (ckpt__lists_ids) */
};
/* schedulers and scalers: ckpt__scheduler_evidence, ckpt__scaler_evidence (model/training.h) */
enum {                        /* states of generators */
       CKPT__RNG_TENSOR = 1,  /* a tensor of the role */
       CKPT__RNG_BY_NAME = 2, /* a tensor or a list where programs keep the state of the CPU's generator */
       CKPT__RNG_LIST = 4,    /* a list of states, one a GPU or one a rank */
       CKPT__RNG_OF_GPU = 8   /* the path says so */
};
enum { CKPT__LACKS_PARAMS = 1, CKPT__LACKS_STATE = 2, CKPT__LACKS_GROUPS = 4 }; /* optimizers that are broken */
enum { CKPT__WITH_WORKERS = 1, CKPT__WITHOUT_WORKERS = 2 };                     /* loaders of data */
enum {                                                                          /* counters: the bit of the key */
       CKPT__COUNTS_STEPS = 0x3ff,
       CKPT__RESTORES_STEP = 0x3f, /* of steps those that a restore takes, the lowest first */
       CKPT__COUNTS_EPOCHS = 0xc00
};
/* The keys of dicts that trainers keep counters in, below the root: the first that has one counts. */
enum { CKPT__COUNTER_DICTS = 4 };
extern const char *const ckpt__counter_dicts[CKPT__COUNTER_DICTS];

typedef enum ckpt__optimizer_form {
    CKPT__TORCH_DICT = 0, /* {'state': {...}, 'param_groups': [...]} */
    CKPT__FLAT_DICT,      /* a key for each value (canon_flat.c); the value is made, and in no file */
    CKPT__TORCH_OBJECT,   /* an object that keeps both as attributes */
    CKPT__LIBTORCH        /* libtorch's archives; made too (format/torch/libtorch.h), unless it has a hole */
} ckpt__optimizer_form;

/* One part of a training state. A list of optimizers (Lightning) or a file of a directory (accelerate) makes no
 * difference: the path is longer. What lies below another organ is listed too: a scheduler of a SequentialLR. */
typedef struct ckpt__organ {
    ckpt__organ_kind kind;
    ckpt__optimizer_form form; /* of an optimizer */
    unsigned evidence;
    size_t node; /* of the tree: [node, tree.nodes[node].end) is all of it */
} ckpt__organ;

/* An optimizer whose parameters can be told apart: libtorch's, or one whose groups list ids. No dict in it is a model. */
static inline bool ckpt__organ_is_optimizer(const ckpt__organ *organ)
{
    return organ->kind == CKPT__OPTIMIZER && (organ->form == CKPT__LIBTORCH || (organ->evidence & CKPT__LISTS_IDS));
}

/* canon_flat.c: of a dict that is or holds a flattened optimizer state (model/flat_state.h) one that has it as torch's own
 * {state, param_groups}, in the arena; *mixed: what else was in it is in {model, optimizer, ...} then. Any other dict is
 * given back. NULL: no memory. _all: the root, and what lies in it. */
const ckpt_value *ckpt__flat_unfold(const ckpt_value *dict, ckpt__arena *arena, bool *mixed);
/* Those that were unfolded, in the order of their places. */
typedef struct ckpt__unfolded_one {
    const ckpt_value *dict;      /* as it is in the file */
    ckpt_str prefix;             /* of its keys */
    const ckpt_value *optimizer; /* {state, param_groups}, in the arena */
    struct ckpt__unfolded_one *next;
} ckpt__unfolded_one;
typedef struct ckpt__unfolded {
    bool mixed;                       /* one of them was */
    bool beside;                      /* the model's tensors stood among the root's entries, and are in `model` now */
    ckpt__unfolded_one *first, *last; /* in the arena; NULL: nothing was unfolded */
} ckpt__unfolded;
const ckpt_value *ckpt__flat_unfold_all(const ckpt_value *root, ckpt__arena *arena, ckpt__unfolded *out);
/* A root with a model's tensors beside its optimizer (model/beside.h) with them in one dict, `model`; any other as it is. */
const ckpt_value *ckpt__flat_take_beside(const ckpt_value *root, ckpt__arena *arena, bool *beside);

typedef struct ckpt__anatomy {
    const ckpt__index *index; /* borrowed */
    ckpt__arena *arena;       /* borrowed: names, and dicts that were unfolded */
    ckpt__tree tree;          /* owned */
    ckpt__organ *organs;      /* heap, owned; in the order of their nodes */
    size_t count, capacity;
    ckpt__unfolded unfolded; /* flattened optimizers; mixed: no path of the tree is one of the file */
    ckpt__pointers made;     /* owned: optimizers' dicts that were made -> their form */
} ckpt__anatomy;

/* CKPT_E_NO_MEMORY. CKPT_E_LIMIT: the tree has more places than can be looked at, or its names take more than the arena
 * may hold; what was found so far is in *out. ckpt__anatomy_free in every case. */
ckpt_status ckpt__anatomy_build(const ckpt__index *index, ckpt__arena *arena, ckpt__anatomy *out, ckpt_error *err);
void ckpt__anatomy_free(ckpt__anatomy *anatomy);
/* The limit in bytes for the arena of an anatomy (ckpt__arena_new): the names of all values lie there. */
uint64_t ckpt__anatomy_names_limit(const ckpt__index *index);

/* The next organ of the kind from *at on, which is moved behind it; NULL: there is none. Begin with 0. */
const ckpt__organ *ckpt__anatomy_next(const ckpt__anatomy *anatomy, ckpt__organ_kind kind, size_t *at);
/* Is what lies at a node an average of weights? Its path says so, or Lightning keeps the weights that are trained beside it. */
bool ckpt__anatomy_is_average(const ckpt__tree *tree, size_t node);
const ckpt_value *ckpt__organ_value(const ckpt__anatomy *anatomy, const ckpt__organ *organ);
ckpt_str ckpt__organ_path(const ckpt__anatomy *anatomy, const ckpt__organ *organ);

/* Of the children of a node that count (bits of CKPT__PROGRESS) and that `takes` takes the first in the order of the bits, which
 * everybody who asks for the step takes. NULL: there is none. */
typedef bool (*ckpt__takes_fn)(const void *ctx, const ckpt_value *counter);
const ckpt__organ *ckpt__anatomy_counter(const ckpt__anatomy *anatomy, unsigned bits, size_t parent,
                                         ckpt__takes_fn takes, const void *ctx);

/* Averages of the weights in the tensors of a checkpoint, whether or not a value tree has them: below `said`, where its producer
 * keeps them, or those of the role. path: up to the key that says so, of the first of them; borrowed from the index, or `said`. Data
 * NULL: there are none, or no key says so. */
typedef struct ckpt__averages {
    size_t count;
    ckpt_str path;
} ckpt__averages;
ckpt__averages ckpt__anatomy_averages(const ckpt__index *index, ckpt_str said);

/* ---- the groups of one optimizer */

/* A parameter that a group lists. torch matches by position, so it has a slot where no state is. */
typedef struct ckpt__anatomy_slot {
    size_t group; /* its number */
    size_t id;    /* node of the id in the group's list */
    size_t state; /* node of its state, whose children are the tensors and numbers of it; SIZE_MAX: it has none, or a
                   * later slot of the same id has it, as load_state_dict gives it */
    size_t first; /* number of the first slot with the same id: its own, but where an id is listed twice */
} ckpt__anatomy_slot;

typedef struct ckpt__anatomy_group {
    size_t node;         /* of its dict, which has the settings and the list */
    size_t first, count; /* slots */
    ckpt__flags flags;
} ckpt__anatomy_group;

/* All arrays are the heap's, and owned. An Adam with the groups [0, 1] and [2], of which 1 is frozen, has the slots
 *     0: group 0, its state     1: group 0, SIZE_MAX     2: group 1, its state
 * and the groups {first 0, count 2} and {first 2, count 1}; alive is 2 and dead 0. */
typedef struct ckpt__anatomy_optimizer {
    ckpt__anatomy_group *groups;
    size_t group_count, group_capacity;
    ckpt__anatomy_slot *slots;
    size_t slot_count, slot_capacity;
    uint64_t alive, dead; /* states whose id is in a group, and those whose id is in none */
    uint64_t repeats;     /* how many more times than once the groups list ids that have state */
    size_t twice;         /* node of the first of those; SIZE_MAX: none */
    size_t second;        /* node of the first state whose id another state has too; SIZE_MAX: none */
} ckpt__anatomy_optimizer;

/* Of the optimizer at a node, which has CKPT__LISTS_PARAMS. Two ids are one where Python finds them equal; as_text: where
 * their texts are, 1 and "1" too. CKPT_E_NO_MEMORY. ckpt__anatomy_free_optimizer in every case. */
ckpt_status ckpt__anatomy_read_optimizer(const ckpt__anatomy *anatomy, size_t node, bool as_text,
                                         ckpt__anatomy_optimizer *out, ckpt_error *err);
void ckpt__anatomy_free_optimizer(ckpt__anatomy_optimizer *optimizer);
#endif
