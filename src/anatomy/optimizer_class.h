/* anatomy/optimizer_class.h - which class an optimizer is of, told by the settings that its groups keep: torch's own __init__ gives
 * each class its own (torch/optim/). */
#ifndef CKPT_OPTIMIZER_CLASS_H
#define CKPT_OPTIMIZER_CLASS_H
#include "model/index.h"

/* One row of the table of optimizers. All texts are static. A file does not name the class of its optimizer, but
 * each class keeps settings of its own: the row {"SGD", "SGD", "momentum dampening nesterov", "", NULL, "nesterov"}
 * fits groups that have all three keys, and a group with nesterov alone is enough to construct an SGD. */
typedef struct ckpt__optimizer_class {
    const char *name; /* for people: "AdamW"; "Adam or AdamW" where the settings do not tell them apart */
    const char
        *constructor; /* torch.optim's class that makes such groups; NULL: none does, or it needs more than groups */
    const char *all, *none; /* words: keys, or key=True, key=False: all of these are there, and none of those */
    const char *state;      /* a key of a parameter's state; NULL: any */
    const char *some;       /* enough for a constructor where a program left settings out; NULL: nothing is */
} ckpt__optimizer_class;

/* How the table asks. The groups may be dicts (summary) or canonical names (doctor), so whoever asks says how a
 * setting is found. */
typedef struct ckpt__optimizer_facts {
    /* Is the setting there? *value is it; NULL: it is a tensor. */
    bool (*setting)(void *ctx, const char *key, const ckpt_value **value);
    /* Does a parameter's state have the key? */
    bool (*state)(void *ctx, const char *key);
    void *ctx; /* the caller's: both functions get it */
} ckpt__optimizer_facts;
/* The class by all of its settings; NULL: it cannot be told. */
const ckpt__optimizer_class *ckpt__optimizer_class_by(const ckpt__optimizer_facts *facts);
/* The class to construct: by all of its settings, else by those that are enough. NULL: none, or not torch.optim's. */
const char *ckpt__optimizer_constructor(const ckpt__optimizer_facts *facts);

/* Do all (any: all false) of the words hold for a dict? Words are as above, with a blank between them. */
bool ckpt__words_hold(const ckpt_value *dict, const char *words, bool all);
#endif
