/* doctor/facts.h - doctor in two halves. Facts say what a checkpoint holds. Rows say what a fact means: in which
 * situation, to which loader, in which versions of torch. Code gathers the facts. Everything that upstream may change
 * is in tables: rows_place.c, rows_load.c, rows_state.c and loaders.c. */
#ifndef CKPT_DOCTOR_FACTS_H
#define CKPT_DOCTOR_FACTS_H
#include <ckpt/doctor.h>
#include <ckpt/summary.h>
#include "anatomy/anatomy.h"
#include "anatomy/canon.h"
#include "reader/reader.h"
#include "anatomy/part.h"
#include "anatomy/placement.h"
#include "model/training.h"

enum {
    CKPT__NEWEST_TORCH = 213,
    CKPT__OLDEST_TORCH = 112,
    CKPT__WEIGHTS_ONLY_TORCH = 113
}; /* major * 100 +
                                                                                                   * minor */

typedef enum ckpt__fact {
    /* optimizer state and where it lives: once a parameter */
    CKPT__STEP,                 /* a step: the situation says of what kind, where it is and where it should be */
    CKPT__MOMENT_ELSEWHERE,     /* a moment does not come back where its parameter is; {a} and {b} */
    CKPT__MOMENT_MIXED_IN_FILE, /* a moment's tag is not its parameter's */
    CKPT__MOMENT_CAST,          /* a moment's dtype {a} holds more than its parameter's {b} */
    CKPT__MOMENT_WIDENED,
    CKPT__MOMENT_SHAPE,
    CKPT__MOMENT_SHARD,  /* the same in a checkpoint of ours: the program binds what it binds */
    CKPT__MOMENT_FUSED,  /* the same, of as many elements, for a kernel that looks at no shape */
    CKPT__FACTOR_ON_GPU, /* NAdam's mu_product, which is read on the host */
    CKPT__BNB_NESTED,
    CKPT__BNB_FLAT, /* 8-bit state: guarded against casts, or not */
    /* groups: once a group, or once an optimizer */
    CKPT__FLAGS, /* the kind that the program constructs beside the saved one */
    CKPT__NO_LR,
    CKPT__TENSOR_LR,
    CKPT__LR,
    CKPT__NO_INITIAL_LR,
    CKPT__NO_INITIAL_LR_SCHEDULED,
    CKPT__NO_STATE,      /* {c}: what the checkpoint says of steps that were taken */
    CKPT__NEVER_STEPPED, /* the same, and the checkpoint says that it is of step 0 */
    CKPT__SOME_STATE_MISSING,
    CKPT__FROZEN_STATE,
    CKPT__NO_MAX_EXP_AVG_SQ,
    CKPT__NO_HYPER, /* a group of torch's Adam or AdamW without {a}, which no default stands for */
    CKPT__NO_STEP,
    CKPT__NO_MOMENT,       /* the same of its state: step; {a} */
    CKPT__NO_FACTOR,       /* {a} of the state, which load_state_dict reads beside step */
    CKPT__DEFAULTED_HYPER, /* group {b} does not say {a}, which load_state_dict then sets; {c} */
    CKPT__BAD_HYPER,       /* {a} of group {b} is {c} is wanted */
    CKPT__BAD_STEP,
    CKPT__BAD_STEP_LATER,  /* a step that is None or text, which load_state_dict, or step(), reads */
    CKPT__DIFFERENTIABLE,  /* group {b} has {a} beside differentiable: {c} */
    CKPT__OPTIMIZER_KEY,   /* an optimizer's dict at {b}, or a group of it, without {a} */
    CKPT__IDS_LOST,        /* {a} ids have state and are in no group, which has the ids around them */
    CKPT__WEIGHTS_FEWER,   /* the model has {a} tensors, the optimizer {b} parameters */
    CKPT__MODEL_ELSEWHERE, /* the optimizer at {a} has the parameters of no model in the file */
    CKPT__FLAT,            /* a key for each value; {a} is the state alone, in Python */
    CKPT__DEAD_STATE,      /* state whose id is in no group */
    CKPT__GROUP_COUNT,     /* the program's parameters are not as many as the groups' */
    CKPT__PLACES_EMPTY,    /* the model has not: all that it has have a state, and the others have none */
    CKPT__ORDER_DIFFERS,   /* from the declared one: at {c} the program has {a}, the file {b} */
    CKPT__ORDER_NAMED,     /* the groups' param_names are not in the order of the model's dict */
    CKPT__ORDER_AMBIGUOUS,
    CKPT__SOURCE_AMBIGUOUS,
    CKPT__UNNAMED,
    CKPT__ORDER_SEVERAL, /* more than one order of the parameters fits the optimizer: {a} */
    /* devices */
    CKPT__NO_SUCH_DEVICE,
    CKPT__NO_SUCH_BACKEND,
    CKPT__NO_SUCH_TAG,
    CKPT__ON_META,
    CKPT__RANK_OTHER,     /* the file of rank {a} is tagged {b}, and another rank loads it */
    CKPT__RANK_TAG,       /* all that is on a GPU is tagged {b}, which is not the first */
    CKPT__RANKS_TOGETHER, /* several ranks load what is tagged with one GPU */
    CKPT__RNG_ON_GPU,
    CKPT__DEVICE_OBJECT, /* a torch.device among the values */
    CKPT__MEMORY_LOAD,
    CKPT__MEMORY_TRAIN,
    CKPT__MEMORY_FITS,
    /* values */
    CKPT__REFUSED,       /* a class that torch.load(weights_only=True) refuses; one finding a class */
    CKPT__REFUSED_RNG,   /* the same in a file whose failure the loader swallows */
    CKPT__REFUSED_FIXED, /* the same in a file to which what the caller says about it does not reach */
    CKPT__UNBUILT,       /* the same of a name that this torch does not have at all; {b}: the first that has
                                   * it */
    CKPT__UNTAKEN,       /* the same of a call that has more arguments, or other ones, than this torch takes */
    CKPT__TORCH_REFUSES, /* torch.load raises, weights_only or not: {a} */
    CKPT__REFUSED_CPP,   /* what the C++ unpickler does not build */
    CKPT__NOT_AN_ARCHIVE,
    CKPT__PREFIX,
    CKPT__NO_SCALER,
    CKPT__SCALER_EMPTY,
    CKPT__SCALER_KEY,
    CKPT__SCALER_PART,       /* a scaler's dict without {a} */
    CKPT__SCHEDULER_LAMBDAS, /* a scheduler's dict that looks like LambdaLR's, without lr_lambdas */
    CKPT__SCHEDULER_LRS,     /* base_lrs of {a} groups, and the optimizer has {b} */
    CKPT__SCHEDULER_EPOCH,   /* a scheduler's dict without {a} */
    CKPT__RNG_KIND,          /* a generator's state that set_rng_state does not take: {a} */
    CKPT__SCHEDULER_ALONE,
    CKPT__NO_OPTIMIZER,
    CKPT__OPTIMIZERS_EMPTY, /* Lightning: the list is there and empty */
    CKPT__SCHEDULERS_EMPTY, /* the same of schedulers, and the groups had one */
    CKPT__KEY_MISSING,      /* Lightning's root has no {a} */
    CKPT__PROGRESS_MISSING,
    CKPT__WEIGHTS_MISSING,
    CKPT__WEIGHTS_BY_HOOK,
    CKPT__WEIGHTS_ELSEWHERE,
    CKPT__TRAINER_STATE_MISSING,
    CKPT__TRAINER_STATE_DAMAGED,
    CKPT__TRAINER_STATE_LACKS,
    CKPT__CONFIG_DAMAGED,
    CKPT__SCHEDULER_FILE_MISSING,
    CKPT__RNG_MISSING,
    CKPT__RNG_DAMAGED, /* {a}, and the loader passes over the error */
    CKPT__ARGS_DAMAGED,
    CKPT__ADAPTER_RANK,   /* a tensor of rank {a}, where the settings say {b} for {c} */
    CKPT__ADAPTER_TARGET, /* tensors of module {a}, which the settings do not name */
    CKPT__ADAPTER_DORA,
    CKPT__ADAPTER_NO_DORA,
    CKPT__GROUPS_FEWER,           /* the HF Trainer makes two groups */
    CKPT__FILE_MISSING,           /* of accelerate or the HF Trainer: {a} */
    CKPT__FSDP_OPTIMIZER_MISSING, /* of DCP beside pytorch_model_fsdp_0 */
    CKPT__RANK_STATES_SAID,       /* states of {a} ranks; how many resume was not said */
    CKPT__RANK_STATES,            /* states of {a} ranks, and {b} resume */
    CKPT__RANK_STATES_MORE,       /* each rank finds its own, and some are left */
    CKPT__MOMENTS_NOT_LOADED,     /* accelerate does not load those of FSDP 1 */
    CKPT__DEVICE_STATES,          /* RNG states of {a} devices, and {b} are there */
    CKPT__NON_FINITE,
    CKPT__POLICY_BREACH,
    CKPT__COLLISION,
    CKPT__WRONG_BYTES, /* a payload is not what its checksum says, or cannot be read: {a} */
    /* numbers: steps.c */
    CKPT__STEP_NAN,
    CKPT__STEP_INF,
    CKPT__STEP_NEGATIVE,       /* of torch's Adam or AdamW, which takes a root of 1 - beta ** step */
    CKPT__STEP_BELOW_ZERO,     /* of another optimizer */
    CKPT__STEPS_DIFFER,        /* within one optimizer: from {a} to {b}, as {c} says of how many */
    CKPT__STEPS_DIFFER_UNUSED, /* the same, and nothing is computed from them */
    CKPT__STEPS_DIFFER_WHOLE,  /* the same, by whole modules or groups */
    CKPT__STEP_OF_ANOTHER,     /* {a} is of step {b}, and the checkpoint of {c} */
    CKPT__STEP_OF_NAME,        /* the directory's name says {a}, and trainer_state.json {b} */
    CKPT__STEP_OF_COUNT,       /* the optimizer took {a} steps, and the file's own {b} is {c} */
    CKPT__LR_ZERO,
    CKPT__LR_ODD,
    CKPT__SCALE_ZERO,
    CKPT__SCALE_STUCK,
    CKPT__SCALE_TINY,
    /* schedules, loaders of data, optimizers with a mode: schedule.c */
    CKPT__SCHEDULE_OVER,  /* OneCycleLR: step {a} would be past the last, {b} */
    CKPT__SCHEDULE_ENDED, /* {a} is at its end, {b}: {c} */
    CKPT__EVAL_MODE,
    CKPT__DATA_WORKERS,
    /* several models and optimizers: models.c */
    CKPT__ID_TWICE,          /* id {a} stands twice in the groups of {b} */
    CKPT__CLASS_UNDECIDED,   /* {a}: a key of the state that torch's class, which the keys of group {b} tell ({c}),
                                   * does not write; and something that torch's class needs is missing */
    CKPT__MODEL_UNDECIDED,   /* {a}: nothing decides whose parameters the optimizer has */
    CKPT__MODEL_APART,       /* parameters on {a} ({c}) and on {b} */
    CKPT__WEIGHTS_ONLY_FILE, /* weights and nothing else: {a} loads them */
    /* the question itself */
    CKPT__A_SHARD,         /* a file of a checkpoint that several are: {a}, and {b} reads the whole */
    CKPT__A_PART,          /* a file of a directory that is a checkpoint, and the loader was not said */
    CKPT__A_PART_ASKED,    /* the same, and the loader was */
    CKPT__A_FLAT_LAYOUT,   /* flat tensors whose parameters no file names */
    CKPT__TORCH_UNKNOWN,   /* newer than what is known here */
    CKPT__TORCH_MATTERS,   /* the same, and what becomes of {b} has changed between versions */
    CKPT__TORCH_TOO_OLD,   /* for this loader */
    CKPT__NOT_ITS_FORMAT,  /* a file where the loader takes a directory; a pickle that torch.save did not
                                   * write */
    CKPT__NOT_ITS_FOLDER,  /* a directory that is none of the loader's */
    CKPT__FOREIGN,         /* a format of which the loader's program knows nothing: {a} */
    CKPT__SAFETENSORS,     /* which torch programs read by another call */
    CKPT__NO_WEIGHTS_ONLY, /* a torch that does not know the argument is to be called with it */
    CKPT__MAP_IGNORED,
    /* another job than the one that saved: job.c. Saved, and asked for, are {a} and {b} */
    CKPT__JOB_NEEDS,          /* nothing stands against it so far; {c}: what the program has to set */
    CKPT__JOB_UNSAID,         /* {a} ranks saved it; how many resume was not said */
    CKPT__RESHARDED,          /* another number of ranks, or another mesh, which this loader takes */
    CKPT__WORLD_DIFFERS,      /* another number of ranks, of those that have files of their own */
    CKPT__WORLD_DIFFERS_3,    /* the same with ZeRO stage 3, nothing frozen */
    CKPT__WORLD_FROZEN,       /* the same with frozen parameters */
    CKPT__MESH_DIFFERS,       /* another mesh of as many ranks; another tensor or pipeline parallel size */
    CKPT__MESH_FOR_OPTIMIZER, /* the same, where the model would load: the optimizer is of the kind {c} */
    CKPT__MESH_FOR_EXPERTS, /* the same of expert parallel ranks: its optimizer has the form for {a}; {c} of them resume */
    CKPT__MESH_UNKNOWN,     /* whether it is another mesh cannot be told: {c} */
    CKPT__RNG_IGNORED,      /* another tensor or pipeline parallel size: no random state is loaded */
    CKPT__ONE_STATE,        /* one random state for all ranks, under the key {a} */
    CKPT__STATE_KEYS,       /* a random state for each rank, under keys of their own: {c} */
    CKPT__LOADER_DATA,      /* torchtitan: a loader of data of {a} data parallel ranks, and {b} resume */
    CKPT__LOADER_UNSAID,    /* the same, and how many data parallel ranks resume was not said */
    CKPT__NO_LATEST,        /* DeepSpeed: no file `latest`; llm.c: no mark */
    CKPT__WRONG_LATEST,     /* it names no folder with files */
    CKPT__UNIVERSAL_LEFT,   /* {a}: tensors that a universal checkpoint has, and nobody loads */
    CKPT__UNIVERSAL_GROUPS, /* {a} groups, with stage 3 */
    CKPT__UNIVERSAL_MAX,    /* {a} parameters have no max_exp_avg_sq, and a group says amsgrad */
    CKPT__UNIVERSAL_ASKED,  /* it is universal, and the loader is not; or the other way round */
    CKPT__INSIDE_SCHEDULER  /* the HF Trainer, with DeepSpeed: no scheduler.pt, which nothing else has */
} ckpt__fact;

/* The bits of a situation. A situation has one bit of each enum, or 0 where that is not known. A row has a mask of each
 * enum, and a mask of 0 asks nothing. */
enum {
    CKPT__K_FUSED = 1,
    CKPT__K_CAPTURABLE = 2,
    CKPT__K_FOREACH = 4,
    CKPT__K_PLAIN = 8,
    CKPT__K_DEVICE = CKPT__K_FUSED | CKPT__K_CAPTURABLE,
    CKPT__K_HOST = CKPT__K_FOREACH | CKPT__K_PLAIN
};
enum { CKPT__STEP_CPU = 1, CKPT__STEP_GPU = 2, CKPT__STEP_NUMBER = 4 }; /* after the map, before the load */
enum { CKPT__F32_STEP = 1, CKPT__F64_STEP = 2, CKPT__ODD_STEP = 4, CKPT__OTHER_STEP = CKPT__F64_STEP | CKPT__ODD_STEP };
enum { CKPT__HOME_CPU = 1, CKPT__HOME_GPU = 2 }; /* where the program has the parameter */
enum { CKPT__AMP = 1, CKPT__NO_AMP = 2 };
enum {
    CKPT__L_CKPT = 1 << CKPT_LOADER_CKPT,
    CKPT__L_TORCH = 1 << CKPT_LOADER_TORCH,
    CKPT__L_CPP = 1 << CKPT_LOADER_TORCH_CPP,
    CKPT__L_LIGHTNING = 1 << CKPT_LOADER_LIGHTNING,
    CKPT__L_ACCELERATE = 1 << CKPT_LOADER_ACCELERATE,
    CKPT__L_HF = 1 << CKPT_LOADER_HF_TRAINER,
    CKPT__L_SHARDS = 1 << CKPT_LOADER_DCP | 1 << CKPT_LOADER_DCP_HF | 1 << CKPT_LOADER_DEEPSPEED |
                     1 << CKPT_LOADER_UNIVERSAL | 1 << CKPT_LOADER_MEGATRON | 1 << CKPT_LOADER_TORCH_DIST |
                     1 << CKPT_LOADER_FSDP | 1 << CKPT_LOADER_LLMC,
    CKPT__L_PYTHON = CKPT__L_TORCH | CKPT__L_LIGHTNING | CKPT__L_ACCELERATE | CKPT__L_HF
};

/* What the ranks wrote. The HF Trainer, accelerate and Lightning have some of these inside of their own directories. */
enum {
    CKPT__IN_DCP = 1,
    CKPT__IN_DCP_HF = 2,
    CKPT__IN_DEEPSPEED = 4,
    CKPT__IN_UNIVERSAL = 8,
    CKPT__IN_MEGATRON = 16,
    CKPT__IN_TORCH_DIST = 32,
    CKPT__IN_FSDP = 64,
    CKPT__IN_FLAT = 128, /* the same with flat parameters: FSDP1, LOCAL_STATE_DICT */
    CKPT__IN_LLMC = 256
};

/* One fact's surroundings. The struct exists because the same fact means different things: a step on the CPU is right
 * for a plain optimizer, and wrong for a capturable one on a GPU. Each number is one bit of the enums above, or 0. */
typedef struct ckpt__situation {
    unsigned kind;                   /* CKPT__K_: the kind that runs. By the saved flags; for ckpt the program's word */
    unsigned step, step_dtype, home; /* CKPT__STEP_, CKPT__F32_STEP..., CKPT__HOME_: of one parameter */
    unsigned program;                /* CKPT__K_: the kind that the program constructs; 0: not said */
    unsigned amp;                    /* CKPT__AMP or CKPT__NO_AMP */
    unsigned inside;                 /* CKPT__IN_; 0: no sharded checkpoint */
} ckpt__situation;

/* How a row came to be: seen in a run of that program, read in its sources, or neither. */
typedef enum ckpt__evidence { CKPT__RAN = 1, CKPT__SOURCE, CKPT__UNVERIFIED } ckpt__evidence;

/* What becomes of a fact. Of the rows of one fact the first that fits is taken (answer.c); no row: nothing is said.
 *
 * A worked example. A row has kind CKPT__K_DEVICE, which is 1 | 2 = 3, and step CKPT__STEP_CPU, which is 1. A fused
 * optimizer with its step on the CPU gives the situation kind 1, step 1: 3 & 1 and 1 & 1 are not 0, so the row fits. A
 * plain optimizer gives kind 8: 3 & 8 is 0, so the row does not fit. A kind that is not known (0) fits no mask but 0.
 *
 * Texts may hold {n} (how often the fact was found), {s} ("" for one, "s" for more), {es} (the other way
 * round), {have}, {are} and {were} ("has", "is" and "was" for one), {a}, {b}, {c} (the fact's
 * details), {path} (quoted for a shell), {py} (the path quoted for Python), {file} (the same of a file, "..." of a directory), {dst}
 * (the path of a fixed copy), {torch} (the path and ".pt"), {drop} ("={c}" for --drop), {version}, {loader}, {repair} (the
 * ckpt-migrate command that fixes the code). A fix has alternatives (fixes.h). All texts are static. */
typedef struct ckpt__row {
    ckpt__fact fact;
    unsigned loaders; /* mask of CKPT__L_; 0: every loader */
    int from, until;  /* first and last torch, major * 100 + minor; 0: no bound. Only the loaders of torch
                                   * are asked */
    unsigned kind, step, step_dtype, home, program, amp, inside; /* masks over the situation; 0 asks nothing */
    ckpt__evidence evidence;          /* CKPT__UNVERIFIED: the message ends in "[not verified]" */
    ckpt_severity severity;           /* of the finding */
    ckpt_outcome outcome;             /* of the resume; the worst one of all rows taken is the answer */
    const char *code, *message, *fix; /* code "": no finding of its own, since canonical names gave one already */
} ckpt__row;

extern const ckpt__row ckpt__rows_place[], ckpt__rows_load[], ckpt__rows_state[], ckpt__rows_job[];
extern const size_t ckpt__rows_place_count, ckpt__rows_load_count, ckpt__rows_state_count, ckpt__rows_job_count;

/* How a loader loads: one row a loader, in loaders.c. `takes` says for the programs of sharded checkpoints what they read. The lists of files hold prefixes of names, separated by commas:
 * "" is all files, NULL is none. All texts are static. */
typedef enum ckpt__brings { CKPT__TO_TAG = 0, CKPT__TO_CPU, CKPT__TO_RANK } ckpt__brings;
typedef struct ckpt__loader_row {
    ckpt_loader loader;
    const char *name;            /* "torch", "hf-trainer", ... */
    bool python;                 /* through Optimizer.load_state_dict and its policy for step */
    bool takes_map;              /* the user's map_location reaches it */
    ckpt__brings alone, several; /* where storages go by default, with one process and with several */
    int weights_only;            /* 1 always, 0 as torch does, -1 never */
    int oldest;                  /* torch that it needs, major * 100 + minor; 0: any */
    const char *numpy_in;        /* files in which it allows numpy's arrays */
    const char *trusts;          /* files that it loads with weights_only=False, whatever is asked */
    const char *fixed;           /* files for which the caller cannot say weights_only=False */
    const char *swallows;        /* files whose failure it goes on after */
    const char *skips;           /* files that it does not read on a resume */
    unsigned takes;              /* CKPT__IN_; 0: it is no program of sharded checkpoints */
} ckpt__loader_row;
const ckpt__loader_row *ckpt__loader_row_of(ckpt_loader loader);
/* Is the file called so (data NULL: the only one) one of these? `prefix` may hold several, separated by a comma. */
bool ckpt__loader_file(const char *prefix, ckpt_str file);

/* One fact as found, for the row that fits. The struct exists because a fact that occurs a thousand times is one
 * finding: it has a count, and the details of the first occurrence. */
typedef struct ckpt__found {
    uint64_t count;              /* occurrences; 0: the row was not taken */
    char tensor[256];            /* escaped name of the first; "": the fact is about no tensor */
    char a[760], b[360], c[360]; /* details of the first, for the message; "": none */
} ckpt__found;

/* One class that a loader refuses. The struct exists because refusals are one finding a class, and not one a row. */
typedef struct ckpt__refusal {
    const ckpt__row *row; /* static: the row that fits */
    ckpt_str class_name;  /* borrowed from the value tree, or static */
    uint64_t count;       /* places with this class */
    char where[256];      /* the escaped key path of the first; "": the root */
} ckpt__refusal;
enum { CKPT__REFUSALS = 48 }; /* classes that are named one by one; the rest are counted */

/* Four arrays of the examination describe the optimizers (find.c): an optimizer has groups, a group has slots, a slot
 * has items. Each array is flat, and the numbers below are indexes into the next one. A worked example: an Adam with
 * the groups [w, b] and [e]. The file has the weights as tensors 0, 1 and 2. b is frozen and has no state. Each of the
 * two others has three tensors of state:
 *
 *     optimizers[0]   .alive = 2, .dead = 0
 *     groups[0]       .optimizer = 0, .first = 0, .count = 2           slots 0 and 1
 *     groups[1]       .optimizer = 0, .first = 2, .count = 1           slot 2
 *     slots[0]  w     .group = 0, .param = 0, .first = 0, .count = 3   items 0, 1 and 2
 *     slots[1]  b     .group = 0, .param = 1, .first = 3, .count = 0   no items
 *     slots[2]  e     .group = 1, .param = 2, .first = 3, .count = 3   items 3, 4 and 5
 *     items[0..2]     "step", "exp_avg", "exp_avg_sq": .tensor = 3, 4, 5
 *     items[3..5]     "step", "exp_avg", "exp_avg_sq": .tensor = 6, 7, 8
 *
 * The pointers are borrowed from the value tree and from the canon. The arrays move as they grow: keep numbers. */

/* A parameter of an optimizer, and its state. torch matches by position, so a slot exists where no name is known. */
typedef struct ckpt__doctor_slot {
    size_t group;        /* number in groups */
    size_t param;        /* number of the parameter's tensor in the index; SIZE_MAX: not known */
    size_t first, count; /* the parameter's state: items from `first` on; count 0: no state */
} ckpt__doctor_slot;

/* One entry of a parameter's state. */
typedef struct ckpt__doctor_item {
    ckpt_str key;            /* "exp_avg" */
    size_t tensor;           /* number in the index; SIZE_MAX: the entry is a value */
    const ckpt_value *value; /* the entry in the tree; NULL: a tensor that has a canonical name alone */
    bool nested;             /* inside a dict of its own (bitsandbytes); that dict is an item, too */
} ckpt__doctor_item;

/* One parameter group. Either dict or canon is NULL. */
typedef struct ckpt__doctor_group {
    const ckpt_value *dict;         /* an entry of param_groups; NULL: the group was found by canonical names */
    const ckpt__canon_group *canon; /* NULL: the group was found as a dict */
    size_t optimizer, first, count; /* number in optimizers; first slot; slots */
    int fused, capturable, foreach; /* 1, 0, -1: None or absent */
} ckpt__doctor_group;

/* One optimizer. The counts are ids of its state and of its groups. An example: the state has the ids 0, 1, 2, and the
 * groups have [0, 2]. Then alive is 2, dead is 1 (the id 1) and lost is 1, since 0, 1, 2 is the row that torch gives
 * out. Were the dead id 7, lost would be 0. */
typedef struct ckpt__doctor_optimizer {
    const ckpt_value *dict; /* {'state': ..., 'param_groups': ...}; NULL: found by canonical names */
    ckpt_str name;          /* key path, in the arena of the examination or of the canon, or static; "": the
                                   * root */
    size_t first_group, group_count, first_slot, slot_count; /* its own, in a row */
    uint64_t alive;                                          /* states whose id is in a group */
    uint64_t dead;                                           /* states whose id is in no group */
    uint64_t lost;    /* `dead`, where the ids of groups and dead states together make up 0, 1, 2, ..., or
                                   * are names, as many as the file has parameters; else 0 */
    ckpt_str twice;   /* the first id with a state that the groups hold more than once; data NULL: none */
    uint64_t repeats; /* how many more times than once the groups hold such ids */
    bool gone;        /* the file has several models, and not all weights of this optimizer's model */
} ckpt__doctor_optimizer;

/* Where the parts of the checkpoint are, for the snippet in Python (values.c). Each text is the subscripts that lead
 * from the root to the part: "['trainer']['optimizer_states'][0]". " " is the root itself, "" is: not found. */
typedef struct ckpt__doctor_paths {
    char model[256], optimizer[256], scaler[256], scheduler[256], rng[256], cuda_rng[256];
    char scaler_key[128]; /* the root's own key that holds a scaler, escaped; "": none (Lightning looks for
                                   * one) */
} ckpt__doctor_paths;

/* The mesh of the job that resumes: "dp=2,tp=2" has the world 4, dp 2, tp 2, pp 1. */
typedef struct ckpt__mesh_asked {
    int64_t world; /* ranks; 0: not said */
    int64_t dp, tp,
        pp;       /* data parallel ranks (cp, sp and ep among them, which share that state), ...; 0: no mesh was said */
    int64_t ep;   /* expert parallel ranks, which are data parallel ones, too; 0: not said */
    size_t count; /* axes; 0: no mesh was said */
    int64_t sizes[16];
    ckpt_str names[16]; /* in the options' text */
} ckpt__mesh_asked;
/* mesh.c. mesh NULL: world alone. CKPT_E_ARGUMENT: no such axis, a size that is none, an axis twice, a product that is not the world. */
ckpt_status ckpt__mesh_parse(const char *mesh, int world, const char *path, ckpt__mesh_asked *out, ckpt_error *err);

/* One call of ckpt_doctor: the question, all that was found, and the answer. The struct exists because each file of
 * doctor looks at one side of the checkpoint and needs what the others found. ckpt__doctor_admit clears it, and
 * ckpt__doctor_discharge frees what it owns. */
typedef struct ckpt__examination {
    const ckpt_reader *reader; /* borrowed from the caller, and so is all that it owns */
    const ckpt__index *index;  /* the reader's */
    const ckpt__index *inner;  /* of a folder of one file the index of that file, else `index` */
    const char *path;          /* the path that a program loads: of such a folder the file in it. The reader's, or in
                                   * the arena */
    const ckpt_doctor_options *options; /* borrowed */
    const ckpt__loader_row *loader;     /* static: the loader asked for, else the loader of the file's producer */
    int cuda_devices;                   /* how many the target has; -1: not said */
    ckpt_doctor_result *result;         /* borrowed: the answer goes here */
    int version;        /* the torch that is asked about, major * 100 + minor: 213 is 2.13; not said, or newer
                                   * than CKPT__NEWEST_TORCH: that one */
    ckpt__arena *arena; /* owned */
    ckpt_map *map;      /* owned: map_location; NULL: not given, or to_meta */
    ckpt__whole whole;  /* the checkpoint that this file is a part of; filled where shard or part */
    char flat[320], flat_model[320]; /* Python expressions of a flattened optimizer state, and of the model's keys
                                   * in the same dict; "": none */
    bool shard, part;                /* the file is a shard of `whole`; it is one of the files of a directory */
    bool to_meta;                    /* map_location='meta', which torch takes and ckpt does not */
    ckpt__arena *names;              /* owned: of the anatomy */
    ckpt__anatomy *anatomy;          /* owned, in the arena; of `index`. NULL: not asked for yet */
    ckpt__canon *canon;              /* owned; NULL: names are ambiguous, or not asked for yet */
    ckpt__placement places;          /* owned: where each tensor of the canon goes */
    size_t *entry_of;                /* in the arena, one a tensor: number of its first entry in the canon; SIZE_MAX:
                                   * none */
    ckpt_device *after;              /* in the arena, one a tensor: where it comes back, before load_state_dict */
    ckpt_device gpu;        /* the first GPU that a tag or the map names, as the target has it: cuda:0 where the
                                   * target has no such number. NONE: no GPU is named, or the target has none */
    ckpt_dtype param_dtype; /* of all parameters; NONE: they differ, or there are none */
    /* heap, owned: see ckpt__doctor_slot */
    ckpt__doctor_optimizer *optimizers;
    size_t optimizer_count, optimizer_capacity;
    ckpt__doctor_group *groups;
    size_t group_count, group_capacity;
    ckpt__doctor_slot *slots;
    size_t slot_count, slot_capacity;
    ckpt__doctor_item *items;
    size_t item_count, item_capacity;
    ckpt__doctor_paths paths;
    bool has_scheduler, had_scheduler, has_scaler, scaler_enabled; /* had_scheduler: a group has initial_lr,
                                   * which only a scheduler puts there. has_scaler alone: the scaler's dict is empty */
    bool broken_optimizer;        /* there is an optimizer's dict, and load_state_dict fails in it */
    bool unread;                  /* the HF Trainer: of optimizer.pt and scheduler.pt one is missing, and it loads
                                   * neither */
    bool weights_fewer;           /* the model has fewer tensors than its optimizer parameters */
    bool beyond;                  /* asked for a torch newer than what is known */
    double step_least, step_most; /* completed steps, of all optimizers; only where steps_known */
    bool steps_known;
    const ckpt_value *idle[16];
    size_t idle_count;    /* borrowed: schedulers of a SequentialLR whose turn is over;
                                   * more than 16 are not noted */
    double schedule_last; /* the highest last_epoch of a scheduler; -1: none */
    ckpt__found *found;   /* heap, owned, one a row: those of rows_place, rows_load, rows_state, rows_job. With
                                   * 100 and 200 rows in the first two, found[305] is of rows_state[5] */
    ckpt__refusal refusals[CKPT__REFUSALS];
    size_t refusal_count;
    /* Globals of the pickle that the loader was found to allow, borrowed; NULL: none. Most tensors are made by the same few. */
    const void *allowed[4];
    size_t allowed_next;
    uint64_t refusals_more;     /* places with classes beyond the first CKPT__REFUSALS */
    ckpt_error several;         /* status not CKPT_OK: more than one order of the parameters fits */
    unsigned inside;            /* CKPT__IN_: what the ranks wrote; 0: no sharded checkpoint */
    bool inside_job;            /* and the loader is a program of that: job.c */
    ckpt__mesh_asked mesh;      /* options->mesh; world 0: neither it nor options->world was said */
    ckpt_report *canon_report;  /* owned: what canonical names and placement said */
    ckpt_summary summary;       /* what `show` says; ckpt__doctor_summary gives it; owned, but for options->summary */
    bool asked_summary, summed; /* it was asked for; and there is one */
    ckpt_error *err;            /* the caller's; NULL: not wanted */
} ckpt__examination;

/* answer.c: notes a fact. The first occurrence gives the name and the details; NULL where there is none. Returns the
 * row that fits, or NULL. situation NULL: what the program makes of all alike. */
const ckpt__row *ckpt__doctor_note(ckpt__examination *p, ckpt__fact fact, const ckpt__situation *situation,
                                   ckpt_str tensor, const char *a, const char *b, const char *c);
ckpt__situation ckpt__doctor_situation(const ckpt__examination *p);
size_t ckpt__doctor_row_count(void);
ckpt_status ckpt__doctor_answer(ckpt__examination *p, ckpt_report *report); /* all that was noted; result->outcome is
                                                                               * the worst */
/* doctor.c */
unsigned ckpt__kind_bit(ckpt_optimizer_kind kind);
bool ckpt__is_gpu(ckpt_device device);
const char *ckpt__doctor_bytes(uint64_t n, char *buf, size_t size); /* "1.2 GiB" */

/* tensors.c */
ckpt_status ckpt__doctor_locate(ckpt__examination *p);
ckpt_device ckpt__doctor_home(const ckpt__examination *p, const ckpt__doctor_slot *slot);
void ckpt__doctor_tensors(ckpt__examination *p);
void ckpt__doctor_state(ckpt__examination *p);
/* find.c: fills optimizers, groups, slots, items. By structure: torch's dicts, of which there may be several and
 * whose order need not be known; else by canonical names. */
ckpt_status ckpt__doctor_find_dicts(ckpt__examination *p);
ckpt_status ckpt__doctor_find_named(ckpt__examination *p);
ckpt_status ckpt__doctor_take_optimizer(ckpt__examination *p, const ckpt__organ *organ, ckpt_str name);
ckpt_status ckpt__doctor_find_flat(ckpt__examination *p); /* flat.c: the same of one with a key for each value */
void ckpt__doctor_link(ckpt__examination *p);             /* slots to their parameters, by canonical names */
bool ckpt__doctor_named(const ckpt__examination *p);      /* is the parameter of each slot known? */
/* groups.c */
void ckpt__doctor_groups(ckpt__examination *p);
void ckpt__doctor_stateful(ckpt__examination *p); /* is there any state of an optimizer, or nothing but weights? */
bool ckpt__doctor_stateless(const ckpt__examination *p, const ckpt__doctor_slot *slot);
/* Can this setting of a group, or this key of the state, be missing at all? In a file of ours only where others of it
 * have it. */
bool ckpt__doctor_bound(const ckpt__examination *p, const char *hyper, const char *key);
double ckpt__doctor_real(const ckpt_value *v); /* 0 where it is none */
/* kinds.c: is it one of the optimizers that are known here, and has it (*stateful) state of each parameter once it has
 * stepped? Notes what its load or its step would miss. */
bool ckpt__doctor_kind(ckpt__examination *p, const ckpt__doctor_group *group, bool *stateful);
/* whole.c: optimizers' dicts that are not whole; models that hold fewer tensors than their optimizers; states of
 * generators, schedulers and scalers that their programs would not take */
ckpt_status ckpt__doctor_incomplete(ckpt__examination *p);
/* frozen.c: some of its parameters have no state; does it look as if they had been frozen? */
bool ckpt__doctor_frozen(const ckpt__examination *p, size_t optimizer);
bool ckpt__doctor_names_fit(ckpt__examination *p); /* are there as many declared names as parameters? */
ckpt_status ckpt__doctor_order(ckpt__examination *p);
const ckpt_value *ckpt__doctor_hyper(const ckpt__examination *p, const ckpt__doctor_group *group, const char *key,
                                     bool *tensor);
/* frozen.c: are those of the optimizer's slots for which `marked` is set (a slot each) whole groups, all but an
 * adapter, or whole modules? */
bool ckpt__doctor_whole(const ckpt__examination *p, size_t optimizer, const bool *marked);
/* steps.c. The number of a value or of a tensor of one element, which is read; false: there is none. tensor SIZE_MAX:
 * v. */
bool ckpt__doctor_number(ckpt__examination *p, const ckpt_value *v, size_t tensor, double *number);
ckpt_status ckpt__doctor_steps(ckpt__examination *p);
void ckpt__doctor_scale(ckpt__examination *p, const ckpt_value *scaler);
/* The steps that the checkpoint says were taken, or its epoch; -1: it says neither. Epoch 0 may have had steps. */
int64_t ckpt__doctor_taken(ckpt__examination *p, const char **what);
/* The summary of the whole file that `show` prints: made once, owned by the examination. NULL: it could not be made. */
const ckpt_summary *ckpt__doctor_summary(ckpt__examination *p);
/* schedule.c: a scheduler's dict, that of a loader of data, and the modes of optimizers */
void ckpt__doctor_schedule(ckpt__examination *p, const ckpt__node *node);
void ckpt__doctor_data_loader(ckpt__examination *p, const ckpt__node *node, unsigned evidence);
void ckpt__doctor_modes(ckpt__examination *p);
/* models.c. _gone: optimizers, of several, whose weights are not all in the file; before anything else is said of their
 * state */
ckpt_status ckpt__doctor_models(ckpt__examination *p);
ckpt_status ckpt__doctor_gone(ckpt__examination *p);
/* refused.c: what of this one value torch.load(weights_only=True), or the C++ unpickler, refuses;
 * false: no memory */
bool ckpt__doctor_refused(ckpt__examination *p, const ckpt_visit *visit);
/* "module.Class" apart; both lie in path. */
void ckpt__doctor_split(ckpt_str path, ckpt_str *module, ckpt_str *name);
int ckpt__doctor_there_from(ckpt_str path); /* the first torch that has "module.name"; 0: any */
/* cpp.c: what torch::pickle_load refuses of a value, of a key, of the file as a whole (NULL: nothing); does it build
 * what is called so; and is this tag a device to libtorch? */
ckpt_str ckpt__cpp_refused(const ckpt_value *v);
ckpt_str ckpt__cpp_refused_key(const ckpt_value *key);
const char *ckpt__cpp_refused_file(const ckpt__index *index);
bool ckpt__cpp_builds(ckpt_str module, ckpt_str name);
bool ckpt__cpp_device(ckpt_str tag);
/* values.c */
ckpt_status ckpt__doctor_values(ckpt__examination *p);
/* ranks.c */
void ckpt__doctor_ranks(ckpt__examination *p);
/* The part of it about files of random states. parts: how many ranks have parts of the weights, at least. */
void ckpt__doctor_rank_states(ckpt__examination *p, int64_t parts);
/* job.c: what the ranks wrote (CKPT__IN_), and whether the loader asked for reads that; what the job that resumes would have of it */
unsigned ckpt__doctor_inside(const ckpt__index *index);
bool ckpt__doctor_reads_inside(const ckpt__examination *p);
ckpt_status ckpt__doctor_job(ckpt__examination *p);
int64_t ckpt__doctor_ranks_of_files(const ckpt__examination *p); /* of DCP, at least; 0: not told */
void ckpt__doctor_files(ckpt__examination *p);                   /* and Lightning's keys */
void ckpt__doctor_adapter(ckpt__examination *p);                 /* adapter.c: of PEFT, beside its settings */
/* lost.c: reports files and pieces that are missing. *lost: there are some, and the examination ends there. */
ckpt_status ckpt__doctor_lost(ckpt__examination *p, ckpt_report *report, bool *lost);
/* memory.c */
ckpt_status ckpt__doctor_places(ckpt__examination *p);
void ckpt__doctor_memory(ckpt__examination *p);
ckpt_status ckpt__doctor_finite(ckpt__examination *p);
#endif
