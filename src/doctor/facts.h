/* doctor/facts.h - doctor in two halves: facts (what is found in a checkpoint, and the situation that the program
 * makes of it) and rows (what a fact means in a situation, to which loader, in which versions of torch). The facts are
 * gathered by code; everything that upstream may change is in the tables: doctor_rows*.c and loaders.c. */
#ifndef CKPT_DOCTOR_FACTS_H
#define CKPT_DOCTOR_FACTS_H
#include <ckpt/doctor.h>
#include "anatomy/canon.h"
#include "reader/reader.h"
#include "anatomy/part.h"
#include "anatomy/placement.h"
#include "model/training.h"

enum { CKPT__NEWEST_TORCH = 213, CKPT__OLDEST_TORCH = 112, CKPT__WEIGHTS_ONLY_TORCH = 113 };      /* major * 100 + minor */

typedef enum ckpt__fact {
    /* optimizer state and where it lives: once a parameter */
    CKPT__STEP,                   /* a step: the situation says of what kind, where it is and where it should be */
    CKPT__MOMENT_ELSEWHERE,       /* a moment does not come back where its parameter is; {a} and {b} */
    CKPT__MOMENT_MIXED_IN_FILE,   /* a moment's tag is not its parameter's */
    CKPT__MOMENT_CAST,            /* a moment's dtype {a} holds more than its parameter's {b} */
    CKPT__MOMENT_WIDENED,
    CKPT__MOMENT_SHAPE,
    CKPT__MOMENT_SHARD,           /* the same in a checkpoint of ours: the program binds what it binds */
    CKPT__MOMENT_FUSED,           /* the same, of as many elements, for a kernel that looks at no shape */
    CKPT__FACTOR_ON_GPU,          /* NAdam's mu_product, which is read on the host */
    CKPT__BNB_NESTED, CKPT__BNB_FLAT,     /* 8-bit state: guarded against casts, or not */
    /* groups: once a group, or once an optimizer */
    CKPT__FLAGS,                  /* the kind that the program constructs beside the saved one */
    CKPT__NO_LR, CKPT__TENSOR_LR, CKPT__LR, CKPT__NO_INITIAL_LR, CKPT__NO_INITIAL_LR_SCHEDULED,
    CKPT__NO_STATE,               /* {c}: what the checkpoint says of steps that were taken */
    CKPT__NEVER_STEPPED,          /* the same, and the checkpoint says that it is of step 0 */
    CKPT__SOME_STATE_MISSING, CKPT__FROZEN_STATE, CKPT__NO_MAX_EXP_AVG_SQ,
    CKPT__NO_HYPER,               /* a group of torch's Adam or AdamW without {a}, which no default stands for */
    CKPT__NO_STEP, CKPT__NO_MOMENT,       /* the same of its state: step; {a} */
    CKPT__NO_FACTOR,              /* {a} of the state, which load_state_dict reads beside step */
    CKPT__DEFAULTED_HYPER,        /* group {b} does not say {a}, which load_state_dict then sets; {c} */
    CKPT__BAD_HYPER,              /* {a} of group {b} is {c} is wanted */
    CKPT__BAD_STEP, CKPT__BAD_STEP_LATER, /* a step that is None or text, which load_state_dict, or step(), reads */
    CKPT__DIFFERENTIABLE,         /* group {b} has {a} beside differentiable: {c} */
    CKPT__OPTIMIZER_KEY,          /* an optimizer's dict at {b}, or a group of it, without {a} */
    CKPT__IDS_LOST,               /* {a} ids have state and are in no group, which has the ids around them */
    CKPT__WEIGHTS_FEWER,          /* the model has {a} tensors, the optimizer {b} parameters */
    CKPT__MODEL_ELSEWHERE,        /* the optimizer at {a} has the parameters of no model in the file */
    CKPT__FLAT,                   /* a key for each value; {a} is the state alone, in Python */
    CKPT__DEAD_STATE,             /* state whose id is in no group */
    CKPT__GROUP_COUNT,            /* the program's parameters are not as many as the groups' */
    CKPT__PLACES_EMPTY,           /* the model has not: all that it has have a state, and the others have none */
    CKPT__ORDER_DIFFERS,          /* from the declared one: at {c} the program has {a}, the file {b} */
    CKPT__ORDER_NAMED,            /* the groups' param_names are not in the order of the model's dict */
    CKPT__ORDER_AMBIGUOUS, CKPT__SOURCE_AMBIGUOUS, CKPT__UNNAMED,
    CKPT__ORDER_SEVERAL,          /* more than one order of the parameters fits the optimizer: {a} */
    /* devices */
    CKPT__NO_SUCH_DEVICE, CKPT__NO_SUCH_BACKEND, CKPT__NO_SUCH_TAG, CKPT__ON_META,
    CKPT__RANK_OTHER,             /* the file of rank {a} is tagged {b}, and another rank loads it */
    CKPT__RANK_TAG,               /* all that is on a GPU is tagged {b}, which is not the first */
    CKPT__RANKS_TOGETHER,         /* several ranks load what is tagged with one GPU */
    CKPT__RNG_ON_GPU,
    CKPT__DEVICE_OBJECT,          /* a torch.device among the values */
    CKPT__MEMORY_LOAD, CKPT__MEMORY_TRAIN, CKPT__MEMORY_FITS,
    /* values */
    CKPT__REFUSED,                /* a class that torch.load(weights_only=True) refuses; one finding a class */
    CKPT__REFUSED_RNG,            /* the same in a file whose failure the loader swallows */
    CKPT__REFUSED_FIXED,          /* the same in a file to which what the caller says about it does not reach */
    CKPT__UNBUILT,                /* the same of a name that this torch does not have at all; {b}: the first that has it */
    CKPT__UNTAKEN,                /* the same of a call that has more arguments, or other ones, than this torch takes */
    CKPT__TORCH_REFUSES,          /* torch.load raises, weights_only or not: {a} */
    CKPT__REFUSED_CPP,            /* what the C++ unpickler does not build */
    CKPT__NOT_AN_ARCHIVE,
    CKPT__PREFIX,
    CKPT__NO_SCALER, CKPT__SCALER_EMPTY, CKPT__SCALER_KEY,
    CKPT__SCALER_PART,            /* a scaler's dict without {a} */
    CKPT__SCHEDULER_LAMBDAS,      /* a scheduler's dict that looks like LambdaLR's, without lr_lambdas */
    CKPT__SCHEDULER_LRS,          /* base_lrs of {a} groups, and the optimizer has {b} */
    CKPT__SCHEDULER_EPOCH,        /* a scheduler's dict without {a} */
    CKPT__RNG_KIND,               /* a generator's state that set_rng_state does not take: {a} */
    CKPT__SCHEDULER_ALONE,
    CKPT__NO_OPTIMIZER,
    CKPT__OPTIMIZERS_EMPTY,       /* Lightning: the list is there and empty */
    CKPT__SCHEDULERS_EMPTY,       /* the same of schedulers, and the groups had one */
    CKPT__KEY_MISSING,            /* Lightning's root has no {a} */
    CKPT__PROGRESS_MISSING,
    CKPT__WEIGHTS_MISSING, CKPT__WEIGHTS_BY_HOOK, CKPT__WEIGHTS_ELSEWHERE, CKPT__TRAINER_STATE_MISSING, CKPT__TRAINER_STATE_DAMAGED,
    CKPT__TRAINER_STATE_LACKS,
    CKPT__CONFIG_DAMAGED,
    CKPT__SCHEDULER_FILE_MISSING, CKPT__RNG_MISSING,
    CKPT__RNG_DAMAGED,            /* {a}, and the loader passes over the error */
    CKPT__ARGS_DAMAGED,
    CKPT__ADAPTER_RANK,           /* a tensor of rank {a}, where the settings say {b} for {c} */
    CKPT__ADAPTER_TARGET,         /* tensors of module {a}, which the settings do not name */
    CKPT__ADAPTER_DORA, CKPT__ADAPTER_NO_DORA,
    CKPT__GROUPS_FEWER,           /* the HF Trainer makes two groups */
    CKPT__FILE_MISSING,           /* of accelerate or the HF Trainer: {a} */
    CKPT__RANK_STATES_SAID,       /* states of {a} ranks; how many resume was not said */
    CKPT__RANK_STATES,            /* states of {a} ranks, and {b} resume */
    CKPT__RANK_STATES_MORE,       /* each rank finds its own, and some are left */
    CKPT__DEVICE_STATES,          /* RNG states of {a} devices, and {b} are there */
    CKPT__NON_FINITE,
    CKPT__POLICY_BREACH, CKPT__COLLISION,
    CKPT__WRONG_BYTES,            /* a payload is not what its checksum says, or cannot be read: {a} */
    /* numbers: steps.c */
    CKPT__STEP_NAN, CKPT__STEP_INF,
    CKPT__STEP_NEGATIVE,          /* of torch's Adam or AdamW, which takes a root of 1 - beta ** step */
    CKPT__STEP_BELOW_ZERO,        /* of another optimizer */
    CKPT__STEPS_DIFFER,           /* within one optimizer: from {a} to {b}, as {c} says of how many */
    CKPT__STEPS_DIFFER_UNUSED,    /* the same, and nothing is computed from them */
    CKPT__STEPS_DIFFER_WHOLE,     /* the same, by whole modules or groups */
    CKPT__STEP_OF_ANOTHER,        /* {a} is of step {b}, and the checkpoint of {c} */
    CKPT__STEP_OF_NAME,           /* the directory's name says {a}, and trainer_state.json {b} */
    CKPT__STEP_OF_COUNT,          /* the optimizer took {a} steps, and the file's own {b} is {c} */
    CKPT__LR_ZERO, CKPT__LR_ODD,
    CKPT__SCALE_ZERO, CKPT__SCALE_STUCK, CKPT__SCALE_TINY,
    /* schedules, loaders of data, optimizers with a mode: schedule.c */
    CKPT__SCHEDULE_OVER,          /* OneCycleLR: step {a} would be past the last, {b} */
    CKPT__SCHEDULE_ENDED,         /* {a} is at its end, {b}: {c} */
    CKPT__EVAL_MODE, CKPT__DATA_WORKERS,
    /* several models and optimizers: models.c */
    CKPT__ID_TWICE,               /* id {a} stands twice in the groups of {b} */
    CKPT__CLASS_UNDECIDED,        /* {a}: a key of the state that torch's class, which the keys of group {b} tell ({c}), does not write;
                                   * and something that torch's class needs is missing */
    CKPT__MODEL_UNDECIDED,        /* {a}: nothing decides whose parameters the optimizer has */
    CKPT__MODEL_APART,            /* parameters on {a} ({c}) and on {b} */
    CKPT__WEIGHTS_ONLY_FILE,      /* weights and nothing else: {a} loads them */
    /* the question itself */
    CKPT__A_SHARD,                /* a file of a checkpoint that several are: {a}, and {b} reads the whole */
    CKPT__A_PART,                 /* a file of a directory that is a checkpoint, and the loader was not said */
    CKPT__A_PART_ASKED,           /* the same, and the loader was */
    CKPT__TORCH_UNKNOWN,          /* newer than what is known here */
    CKPT__TORCH_MATTERS,          /* the same, and what becomes of {b} has changed between versions */
    CKPT__TORCH_TOO_OLD,          /* for this loader */
    CKPT__NOT_ITS_FORMAT,         /* a file where the loader takes a directory; a pickle that torch.save did not write */
    CKPT__NOT_ITS_FOLDER,         /* a directory that is none of the loader's */
    CKPT__FOREIGN,                /* a format of which the loader's program knows nothing: {a} */
    CKPT__SAFETENSORS,            /* which torch programs read by another call */
    CKPT__NO_WEIGHTS_ONLY,        /* a torch that does not know the argument is to be called with it */
    CKPT__MAP_IGNORED
} ckpt__fact;

/* What a row asks of the situation; one bit each, and a row's mask of 0 asks nothing. */
enum { CKPT__K_FUSED = 1, CKPT__K_CAPTURABLE = 2, CKPT__K_FOREACH = 4, CKPT__K_PLAIN = 8,
       CKPT__K_DEVICE = CKPT__K_FUSED | CKPT__K_CAPTURABLE, CKPT__K_HOST = CKPT__K_FOREACH | CKPT__K_PLAIN };
enum { CKPT__STEP_CPU = 1, CKPT__STEP_GPU = 2, CKPT__STEP_NUMBER = 4 };           /* after the map, before the load */
enum { CKPT__F32_STEP = 1, CKPT__F64_STEP = 2, CKPT__ODD_STEP = 4, CKPT__OTHER_STEP = CKPT__F64_STEP | CKPT__ODD_STEP };
enum { CKPT__HOME_CPU = 1, CKPT__HOME_GPU = 2 };          /* where the program has the parameter */
enum { CKPT__AMP = 1, CKPT__NO_AMP = 2 };
enum { CKPT__L_CKPT = 1 << CKPT_LOADER_CKPT, CKPT__L_TORCH = 1 << CKPT_LOADER_TORCH, CKPT__L_CPP = 1 << CKPT_LOADER_TORCH_CPP,
       CKPT__L_LIGHTNING = 1 << CKPT_LOADER_LIGHTNING, CKPT__L_ACCELERATE = 1 << CKPT_LOADER_ACCELERATE,
       CKPT__L_HF = 1 << CKPT_LOADER_HF_TRAINER,
       CKPT__L_PYTHON = CKPT__L_TORCH | CKPT__L_LIGHTNING | CKPT__L_ACCELERATE | CKPT__L_HF };

typedef struct ckpt__situation {
    unsigned kind;                /* that runs: the saved flags, but for ckpt the program's word */
    unsigned step, step_dtype, home;
    unsigned program;             /* what the program constructs; 0: not said */
    unsigned amp;
} ckpt__situation;

/* How a row came to be: seen in a run of that program, read in its sources, or neither. */
typedef enum ckpt__evidence { CKPT__RAN = 1, CKPT__SOURCE, CKPT__UNVERIFIED } ckpt__evidence;

/* Versions are major * 100 + minor; 0: no bound. `until` is the last that the row holds for. Of the rows of one fact the
 * first that fits is taken. Texts may hold {n}, {s} ("" for one, "s" for more), {a}, {b}, {c}, {path} (as a shell takes it),
 * {py} (as Python does), {version}, {loader}, {mend} (the ckpt-migrate command that mends the code). Code "": the finding
 * is there already, from the canonical names. */
typedef struct ckpt__row {
    ckpt__fact fact;
    unsigned loaders;
    int from, until;
    unsigned kind, step, step_dtype, home, program, amp;
    ckpt__evidence evidence;
    ckpt_severity severity;
    ckpt_outcome outcome;
    const char *code, *message, *fix;
} ckpt__row;

extern const ckpt__row ckpt__rows_place[], ckpt__rows_load[], ckpt__rows_state[];
extern const size_t ckpt__rows_place_count, ckpt__rows_load_count, ckpt__rows_state_count;

/* How a loader goes about it: loaders.c. */
typedef enum ckpt__brings { CKPT__TO_TAG = 0, CKPT__TO_CPU, CKPT__TO_RANK } ckpt__brings;
typedef struct ckpt__loader_row {
    ckpt_loader loader;
    const char *name;
    bool python;                  /* through Optimizer.load_state_dict and its policy for step */
    bool takes_map;               /* the user's map_location reaches it */
    ckpt__brings alone, several;  /* where storages go by default, with one process and with several */
    int weights_only;             /* 1 always, 0 as torch does, -1 never */
    int oldest;                   /* torch that it needs; 0: none */
    const char *numpy_in;         /* files in which it allows numpy's arrays: a prefix of their names, "" all, NULL none */
    const char *trusts;           /* files that it loads with weights_only=False, whatever is asked; NULL: none */
    const char *fixed;            /* files for which the caller cannot say weights_only=False; NULL: none */
    const char *swallows;         /* files whose failure it goes on after: a prefix; NULL: none */
    const char *skips;            /* files that it does not read on a resume; NULL: none */
} ckpt__loader_row;
const ckpt__loader_row *ckpt__loader_row_of(ckpt_loader loader);
/* Is the file called so (data NULL: the only one) one of these? `prefix` may hold several, separated by a comma. */
bool ckpt__loader_file(const char *prefix, ckpt_str file);

/* One fact as found, for the row that fits: how often, where first, and details for the message. */
typedef struct ckpt__found {
    uint64_t count;
    char tensor[256];
    char a[760], b[360], c[360];
} ckpt__found;

typedef struct ckpt__refusal {
    const ckpt__row *row;
    ckpt_str class_name;
    uint64_t count;
    char where[256];              /* the key path of the first */
} ckpt__refusal;
enum { CKPT__REFUSALS = 48 };     /* classes that are named one by one; the rest are counted */

/* A parameter of an optimizer, and its state. */
typedef struct ckpt__doctor_slot {
    size_t group;
    size_t param;                 /* number of its tensor; SIZE_MAX: not known */
    size_t first, count;          /* its state: items */
} ckpt__doctor_slot;
typedef struct ckpt__doctor_item {
    ckpt_str key;
    size_t tensor;                /* SIZE_MAX: a value */
    const ckpt_value *value;
    bool nested;                  /* inside a dict of its own (bitsandbytes) */
} ckpt__doctor_item;
typedef struct ckpt__doctor_group {
    const ckpt_value *dict;       /* NULL: of canonical names */
    const ckpt__canon_group *canon;
    size_t optimizer, first, count;       /* slots */
    int fused, capturable, foreach;       /* 1, 0, -1: None or absent */
} ckpt__doctor_group;
typedef struct ckpt__doctor_optimizer {
    const ckpt_value *dict;       /* NULL: of canonical names */
    ckpt_str name;                /* key path */
    uint64_t alive;               /* states whose id is in a group */
    uint64_t dead;                /* and in none */
    uint64_t lost;                /* of those: ids that the groups leave out of 0, 1, 2, ... */
    ckpt_str twice;               /* an id that the groups hold more than once; data NULL: none */
    uint64_t repeats;             /* how many ids are there again */
    bool gone;                    /* of several models: the weights of its own are not all in the file */
} ckpt__doctor_optimizer;

/* What the values hold beside tensors, as Python expressions (values.c). */
typedef struct ckpt__doctor_paths {
    char model[256], optimizer[256], scaler[256], scheduler[256], rng[256], cuda_rng[256];
    char scaler_key[128];         /* Lightning: the root's key that holds one */
} ckpt__doctor_paths;

typedef struct ckpt__examination {
    const ckpt_reader *reader;
    const ckpt__index *index;
    const ckpt__index *inner;     /* of a folder of one file that file's, else the same */
    const char *path;             /* what a program loads: of such a folder the file in it */
    const ckpt_doctor_options *options;
    const ckpt__loader_row *loader;
    int cuda_devices;             /* how many the target has; -1: not said */
    ckpt_doctor_result *result;
    int version;
    ckpt__arena *arena;
    ckpt_map *map;
    ckpt__whole whole;            /* of what this file is a part */
    char flat[320], flat_model[320];      /* a flattened optimizer state, and the model's keys in the same dict, in Python; "" */
    bool shard, part;             /* a shard of it; or one of the files of a directory */
    bool to_meta;                 /* map_location='meta', which torch takes and ckpt does not */
    ckpt__canon *canon;           /* NULL: ambiguous */
    ckpt__placement places;
    size_t *entry_of;             /* tensor -> canonical entry, SIZE_MAX */
    ckpt_device *after;           /* tensor -> where it comes back, before load_state_dict */
    ckpt_device gpu;              /* the first GPU that a tag or the map names and the target has; NONE: no */
    ckpt_dtype param_dtype;       /* of all parameters; NONE: they differ, or there are none */
    ckpt__doctor_optimizer *optimizers; size_t optimizer_count, optimizer_capacity;
    ckpt__doctor_group *groups; size_t group_count, group_capacity;
    ckpt__doctor_slot *slots; size_t slot_count, slot_capacity;
    ckpt__doctor_item *items; size_t item_count, item_capacity;
    ckpt__doctor_paths paths;
    bool has_scheduler, had_scheduler, has_scaler, scaler_enabled;
    bool broken_optimizer;        /* there is an optimizer's dict, and load_state_dict fails in it */
    bool unread;                  /* the HF Trainer: of optimizer.pt and scheduler.pt one is missing, and it loads neither */
    bool weights_fewer;           /* the model has fewer tensors than its optimizer parameters */
    bool beyond;                  /* asked for a torch newer than what is known */
    double step_least, step_most; /* of all optimizers, where steps_known */
    bool steps_known;
    const ckpt_value *idle[16]; size_t idle_count;        /* schedulers of a SequentialLR that are behind it */
    double schedule_last;         /* the highest last_epoch of a scheduler; -1: none */
    ckpt__found *found;           /* a row each: place's, then load's, then state's */
    ckpt__refusal refusals[CKPT__REFUSALS]; size_t refusal_count;
    uint64_t refusals_more;
    ckpt_error several;           /* status not CKPT_OK: more than one order of the parameters fits */
    ckpt_report *canon_report;    /* what canonical names and placement said */
    ckpt_error *err;
} ckpt__examination;

/* answer.c: notes a fact. The first occurrence gives the name and the details; NULL where there is none. Returns the row
 * that fits, or NULL. situation NULL: what the program makes of all alike. */
const ckpt__row *ckpt__doctor_note(ckpt__examination *p, ckpt__fact fact, const ckpt__situation *situation, ckpt_str tensor,
                                   const char *a, const char *b, const char *c);
ckpt__situation ckpt__doctor_situation(const ckpt__examination *p);
size_t ckpt__doctor_row_count(void);
ckpt_status ckpt__doctor_answer(ckpt__examination *p, ckpt_report *report);   /* all that was noted; result->outcome is the worst */
/* doctor.c */
unsigned ckpt__kind_bit(ckpt_optimizer_kind kind);
bool ckpt__is_gpu(ckpt_device device);
const char *ckpt__doctor_bytes(uint64_t n, char *buf, size_t size);       /* "1.2 GiB" */

/* tensors.c */
ckpt_status ckpt__doctor_locate(ckpt__examination *p);
ckpt_device ckpt__doctor_home(const ckpt__examination *p, const ckpt__doctor_slot *slot);
void ckpt__doctor_tensors(ckpt__examination *p);
void ckpt__doctor_state(ckpt__examination *p);
/* find.c: fills optimizers, groups, slots, items. By structure: torch's dicts, of which there may be several and
 * whose order need not be known; else by canonical names. */
ckpt_status ckpt__doctor_find_dicts(ckpt__examination *p);
ckpt_status ckpt__doctor_find_named(ckpt__examination *p);
ckpt_status ckpt__doctor_take_optimizer(ckpt__examination *p, const ckpt_value *dict, ckpt_str name);
ckpt_status ckpt__doctor_find_flat(ckpt__examination *p);     /* flat.c: the same of one with a key for each value */
void ckpt__doctor_link(ckpt__examination *p);                 /* slots to their parameters, by canonical names */
bool ckpt__doctor_named(const ckpt__examination *p);          /* is the parameter of each slot known? */
/* groups.c */
void ckpt__doctor_groups(ckpt__examination *p);
bool ckpt__doctor_stateless(const ckpt__examination *p, const ckpt__doctor_slot *slot);
/* Can this setting of a group, or this key of the state, be missing at all? In a file of ours only where others of it have it. */
bool ckpt__doctor_bound(const ckpt__examination *p, const char *hyper, const char *key);
double ckpt__doctor_real(const ckpt_value *v);          /* 0 where it is none */
/* kinds.c: is it one of the optimizers that are known here, and has it (*stateful) state of each parameter once it has
 * stepped? Notes what its load or its step would miss. */
bool ckpt__doctor_kind(ckpt__examination *p, const ckpt__doctor_group *group, bool *stateful);
/* whole.c: optimizers' dicts that are not whole; models that hold fewer tensors than their optimizers; states of
 * generators, schedulers and scalers that their programs would not take */
ckpt_status ckpt__doctor_incomplete(ckpt__examination *p);
/* frozen.c: some of its parameters have no state; does it look as if they had been frozen? */
bool ckpt__doctor_frozen(const ckpt__examination *p, size_t optimizer);
bool ckpt__doctor_names_fit(ckpt__examination *p);            /* are there as many declared names as parameters? */
ckpt_status ckpt__doctor_order(ckpt__examination *p);
const ckpt_value *ckpt__doctor_hyper(const ckpt__examination *p, const ckpt__doctor_group *group, const char *key, bool *tensor);
/* frozen.c: are those of the optimizer's slots for which `marked` is set (a slot each) whole groups, all but an adapter,
 * or whole modules? */
bool ckpt__doctor_whole(const ckpt__examination *p, size_t optimizer, const bool *marked);
/* steps.c. The number of a value or of a tensor of one element, which is read; false: there is none. tensor SIZE_MAX: v. */
bool ckpt__doctor_number(ckpt__examination *p, const ckpt_value *v, size_t tensor, double *number);
ckpt_status ckpt__doctor_steps(ckpt__examination *p);
void ckpt__doctor_scale(ckpt__examination *p, const ckpt_value *scaler);
/* The steps that the checkpoint says were taken, or its epoch; -1: it says neither. Epoch 0 may have had steps. */
int64_t ckpt__doctor_taken(const ckpt__examination *p, const char **what);
/* schedule.c: a dict among the values; and the modes of optimizers */
void ckpt__doctor_schedule(ckpt__examination *p, const ckpt_visit *visit);
void ckpt__doctor_modes(ckpt__examination *p);
/* models.c. _gone: optimizers, of several, whose weights are not all in the file; before anything else is said of their state */
ckpt_status ckpt__doctor_models(ckpt__examination *p);
ckpt_status ckpt__doctor_gone(ckpt__examination *p);
/* refused.c: what of this one value torch.load(weights_only=True), or the C++ unpickler, refuses;
 * false: no memory */
bool ckpt__doctor_refused(ckpt__examination *p, const ckpt_visit *visit);
/* "module.Class" apart; both lie in path. */
void ckpt__doctor_split(ckpt_str path, ckpt_str *module, ckpt_str *name);
int ckpt__doctor_there_from(ckpt_str path);               /* the first torch that has "module.name"; 0: any */
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
void ckpt__doctor_files(ckpt__examination *p);                /* and Lightning's keys */
void ckpt__doctor_adapter(ckpt__examination *p);              /* adapter.c: of PEFT, beside its settings */
/* memory.c */
ckpt_status ckpt__doctor_places(ckpt__examination *p);
void ckpt__doctor_memory(ckpt__examination *p);
ckpt_status ckpt__doctor_finite(ckpt__examination *p);
#endif
