/* anatomy/optimizer_class.h - which class an optimizer is of, told by the settings that its groups keep: torch's own __init__ gives
 * each class its own (torch/optim/). */
#ifndef CKPT_OPTIMIZER_CLASS_H
#define CKPT_OPTIMIZER_CLASS_H
#include "model/index.h"

typedef struct ckpt__optimizer_class {
    const char *name;             /* for people: "AdamW"; "Adam or AdamW" where the settings do not tell them apart */
    const char *constructor;      /* torch.optim's class that makes such groups; NULL: none does, or it needs more than groups */
    const char *all, *none;       /* words: keys, or key=True, key=False: all of these are there, and none of those */
    const char *state;            /* a key of a parameter's state; NULL: any */
    const char *some;             /* enough for a constructor where a program left settings out; NULL: nothing is */
} ckpt__optimizer_class;

/* Who asks says what is there; the groups may be dicts or canonical names. */
typedef struct ckpt__optimizer_facts {
    /* Is the setting there? *value is it; NULL: it is a tensor. */
    bool (*setting)(void *ctx, const char *key, const ckpt_value **value);
    bool (*state)(void *ctx, const char *key);
    void *ctx;
} ckpt__optimizer_facts;
/* The class by all of its settings; NULL: it cannot be told. */
const ckpt__optimizer_class *ckpt__optimizer_class_by(const ckpt__optimizer_facts *facts);
/* The class to construct: by all of its settings, else by those that are enough. NULL: none, or not torch.optim's. */
const char *ckpt__optimizer_constructor(const ckpt__optimizer_facts *facts);

/* Do all (any: all false) of the words hold for a dict? Words are as above, with a blank between them. */
bool ckpt__words_hold(const ckpt_value *dict, const char *words, bool all);
#endif
