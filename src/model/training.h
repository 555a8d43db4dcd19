/* model/training.h - what a value is to training, told by its structure: a model's dict, an optimizer's, a key of its state.
 * Every room that asks such a question asks it here, so that `list`, restore, migrate and doctor see the same optimizers. */
#ifndef CKPT_TRAINING_H
#define CKPT_TRAINING_H
#include <ckpt/map.h>
#include "model/index.h"

/* ---- TorchScript and libtorch in C++. Their objects are read as dicts that keep the name of their class. */
bool ckpt__is_scripted_class(ckpt_str class_name); /* "__torch__.Module", "__torch__.net.Linear" */
bool ckpt__is_scripted(const ckpt_value *v);       /* a dict of such a class; v may be NULL */
/* The number in "<head><number>", as libtorch names the items of a list: "params/0". False: the key is another one. */
bool ckpt__numbered(ckpt_str key, const char *head, int64_t *number);

/* ---- optimizers. In all of these v may be NULL, and is no optimizer then. */
/* The dict of an optimizer that has states and groups: torch's own, or libtorch's. */
bool ckpt__is_optimizer(const ckpt_value *v);
/* torch's own: {'state': {id: {key: value}}, 'param_groups': [{..., 'params': [id, ...]}, ...]} with anything beside them. Who
 * changes the groups as a list asks this. */
bool ckpt__is_torch_optimizer(const ckpt_value *v);
/* An object that keeps both as attributes. Its state is read by the same keys; what changes or writes a dict does not ask this. */
bool ckpt__is_optimizer_object(const ckpt_value *v);
/* Do all groups list their parameters, by numbers or by names? An optimizer pickled as an object lists the parameters
 * themselves, and no state can be told by an id there. Groups that are not in a list list nothing. */
bool ckpt__lists_ids(const ckpt_value *groups);
/* libtorch's: groups and states are archives. Its parameters are addresses of a process that has ended. */
bool ckpt__is_libtorch_optimizer(const ckpt_value *v);
/* libtorch's before 1.5: {"step_buffers/size": T, "step_buffers/0": T, "exp_average_buffers/0": T, ...}, with neither states nor
 * groups: only who knows these lists can use it, so ckpt__is_optimizer says no. */
bool ckpt__is_old_libtorch_optimizer(const ckpt_value *v);
bool ckpt__is_cpp_optimizer(const ckpt_value *v); /* one of the two: no names of parameters are in it */

/* The lists of that time. */
typedef struct ckpt__old_list {
    const char *list, *key; /* "exp_average_buffers/", and the key that torch has for what is in it: "exp_avg" */
} ckpt__old_list;
enum { CKPT__OLD_LISTS = 8 };
extern const ckpt__old_list ckpt__old_lists[CKPT__OLD_LISTS];
/* The list that a key of it is of, and the place in it, -1 for its size. CKPT__OLD_LISTS: it is of none. */
size_t ckpt__old_list_of(ckpt_str key, int64_t *number);

/* What a tensor is by its key in a parameter's state; CKPT_ROLE_OPTIM: a tensor without a role of its own. */
ckpt_role ckpt__role_of_key(ckpt_str state_key);

/* A group's list of parameters, a list or a tuple; NULL: it has none. */
const ckpt_value *ckpt__params_of(const ckpt_value *group);
/* A group's flags, which choose the kernel that its optimizer runs: 1, 0, or -1 where the file has None, nothing, or no flag. */
typedef struct ckpt__flags {
    int fused, capturable, foreach;
} ckpt__flags;
int ckpt__flag_value(const ckpt_value *v); /* of one value; NULL: absent */
ckpt__flags ckpt__flags_of(const ckpt_value *group);
/* The kernel: fused before capturable before foreach, as torch looks at them. */
ckpt_optimizer_kind ckpt__kind_of_flags(ckpt__flags flags);
/* What must be said of a group for that kernel: a flag that is on is added where it is absent, one that is off is only
 * corrected. Fills `out` and returns how many there are: capturable stays what it is under a fused kernel, which may be both. */
typedef struct ckpt__flag {
    const char *key;
    bool on;
} ckpt__flag;
enum { CKPT__FLAGS_MAX = 3 };
size_t ckpt__flags_for(ckpt_optimizer_kind kind, ckpt__flag out[CKPT__FLAGS_MAX]);

/* ---- schedulers and scalers. What tells them is which of their keys a dict has: bits, and 0 where they are too few for one. */
enum { /* schedulers: keys of theirs that are there */
       CKPT__HAS_LAST_EPOCH = 1,
       CKPT__HAS_BASE_LRS = 2,
       CKPT__HAS_STEP_COUNT = 4,
       CKPT__HAS_LAST_LR = 8,
       CKPT__HAS_LR_CALLED = 16,
       CKPT__HAS_BAD_EPOCHS = 32,
       CKPT__HAS_SCHEDULERS = 64, /* those that it is made of */
       CKPT__HAS_MILESTONES = 128,
       CKPT__LISTS_SCHEDULERS = 256, /* _schedulers is a list */
       CKPT__SHARES_KEYS =
           512 /* three of the five that torch's schedulers share, or those that it is made of and when they end */
};
enum { /* scalers: keys of theirs that are there */
       CKPT__HAS_SCALE = 1,
       CKPT__HAS_GROWTH = 2,
       CKPT__HAS_BACKOFF = 4,
       CKPT__HAS_INTERVAL = 8,
       CKPT__HAS_TRACKER = 16,
       CKPT__WHOLE_SCALER = 31,
       CKPT__EMPTY_SCALER = 32 /* an empty dict where a scaler's would be: one that is switched off */
};
/* Of a dict: last_epoch, or three of the first five, or _schedulers and the keys that such a one keeps beside it. */
unsigned ckpt__scheduler_evidence(const ckpt_value *v);
/* Is it a whole one? ReduceLROnPlateau has no base_lrs, SequentialLR none of its own, ChainedScheduler no last_epoch. */
bool ckpt__is_scheduler(unsigned evidence);
/* Of a dict or an object: three of its keys. An empty dict is one where its path says so and it is not the root. */
unsigned ckpt__scaler_evidence(const ckpt_value *v, ckpt_str path, size_t depth);

/* ---- models */
/* The prefixes that wrappers of a model put before its parameters' names: DataParallel and DistributedDataParallel (first:
 * "module." is a name of its own elsewhere in a model, so doctor looks for it in front alone), torch.compile, FSDP, and
 * what forwards a call to the model. */
enum { CKPT__WRAPPERS = 4 };
extern const char *const ckpt__wrappers[CKPT__WRAPPERS];

/* A model's state_dict: names, tensors, and nothing else but what modules leave there (None, an extra state, the metadata of a
 * safetensors file; of a TorchScript module its attributes). One tensor at least has elements in a row and is no state of a
 * random generator: losses and metrics (all of them 0-d) are no model.
 * is_tensor (may be NULL) says of an opaque object whether it stands for a tensor, which only its format knows. */
bool ckpt__is_state_dict(const ckpt__index *index, const ckpt_value *v, bool (*is_tensor)(const ckpt_value *));
/* Looser: names, and a tensor under one of them. What a program keeps among its weights does not count against it. */
bool ckpt__names_tensors(const ckpt_value *v);
/* Of one without anything around it, which no key calls a model: the names are as modules have them, in an OrderedDict as
 * state_dict() gives it, or most of them with their owner's in front. */
bool ckpt__is_bare_state_dict(const ckpt_value *v);
/* Between the two, and asked while the tensors are still being listed, so that none is looked into: names with tensors under
 * them, and nothing else unless the dict is of a class, as the OrderedDict of state_dict() is. */
bool ckpt__looks_like_state_dict(const ckpt_value *v);
#endif
