/* doctor/template.h - templates of source text: how the build embeds them, and how one is expanded. The templates are
 * src/doctor/snippets/NAME.in; embed.awk there says how they are written, and turns each into an array of steps. */
#ifndef CKPT_DOCTOR_TEMPLATE_H
#define CKPT_DOCTOR_TEMPLATE_H
#include "base/base.h"

/* One step of a template. A template is a flat array, ended by DONE: the text "a {X}", an if and its end are
 *     {TEXT, 0, "a "}, {HOLE, CKPT__PY_X, NULL}, {TEXT, 0, "\n"},
 *     {IF, CKPT__PY_IF_Y, NULL}, ..., {END, 0, NULL}, {DONE, 0, NULL} */
typedef enum ckpt__snippet_kind {
    CKPT__SNIPPET_TEXT, /* copied */
    CKPT__SNIPPET_HOLE, /* `what` is the hole: the caller's `put` writes its value */
    CKPT__SNIPPET_IF,   /* `what` is an index of `holds` */
    CKPT__SNIPPET_IF_NOT,
    CKPT__SNIPPET_ELIF,
    CKPT__SNIPPET_ELSE,
    CKPT__SNIPPET_EACH, /* `what` is an index of `counts` */
    CKPT__SNIPPET_END,  /* of the innermost IF or EACH */
    CKPT__SNIPPET_DONE
} ckpt__snippet_kind;
/* One step; all steps are static. */
typedef struct ckpt__snippet_op {
    ckpt__snippet_kind kind;
    int what;         /* 0 where the kind needs none */
    const char *text; /* of TEXT, static; else NULL */
} ckpt__snippet_op;

/* The values that one expansion fills in. The struct exists because one engine expands the Python and the C
 * templates, which have conditions, lists and holes of their own. All pointers are borrowed for the call. With
 * counts[CKPT__PY_EACH_GROUP] = 2 the lines of that list are copied twice, and `put` gets round 0, then 1. */
typedef struct ckpt__snippet {
    const bool *holds;    /* by condition: CKPT__PY_IF_COUNT or CKPT__C_IF_COUNT of them */
    const size_t *counts; /* by list: how many times its lines are copied */
    /* Writes the value of a hole. `round` is the item's number inside `each`, from 0; outside of `each` it is 0. */
    void (*put)(ckpt__buf *b, const void *context, int hole, size_t round);
    const void *context; /* passed to `put` */
} ckpt__snippet;
void ckpt__snippet_expand(ckpt__buf *b, const ckpt__snippet_op *ops, const ckpt__snippet *with);

/* ---- names in the Python templates: snippet.c fills them */
enum {
    CKPT__PY_IF_FLAT,    /* a safetensors file: weights alone, by another function than torch.load */
    CKPT__PY_IF_SEVERAL, /* more than one optimizer */
    CKPT__PY_IF_PREFIX,  /* the names of weights begin with a wrapper's prefix ("module."), which the text takes off */
    CKPT__PY_IF_NAMED,   /* the parameter of each slot of the optimizer is known by name */
    CKPT__PY_IF_CLASS,   /* torch's class of the optimizer is known, and so are the parameters of each group */
    CKPT__PY_IF_MAKE_FUSED,       /* a group is fused, and the class has that kernel */
    CKPT__PY_IF_CAPTURABLE,       /* a group is capturable */
    CKPT__PY_IF_CAPTURABLE_ALONE, /* ... and no group is fused */
    CKPT__PY_IF_REFUSED,          /* torch.load(weights_only=True) refuses the file */
    CKPT__PY_IF_WEIGHTS_ONLY,     /* that torch knows the argument */
    CKPT__PY_IF_MODEL,
    CKPT__PY_IF_OPTIMIZER,
    CKPT__PY_IF_SCHEDULER,
    CKPT__PY_IF_SCALER,
    CKPT__PY_IF_RNG,
    CKPT__PY_IF_CUDA_RNG,
    CKPT__PY_IF_FLAT_STATE,      /* the optimizer's state has a key for each value */
    CKPT__PY_IF_SCALER_DISABLED, /* saved by a scaler that was disabled: an empty dict */
    CKPT__PY_IF_SCALER_KEY,      /* Lightning: the scaler is under a key that Lightning does not look for */
    CKPT__PY_IF_DIRECTORY,       /* the checkpoint is a directory */
    CKPT__PY_IF_COUNT
};
enum { CKPT__PY_EACH_GROUP, CKPT__PY_EACH_COUNT };
typedef enum ckpt__python_hole {
    CKPT__PY_PATH,   /* the path of the checkpoint, in quotes */
    CKPT__PY_LOADER, /* "torch" */
    CKPT__PY_TORCH,  /* "2.13" */
    CKPT__PY_OPTIMIZER_COUNT,
    CKPT__PY_NAMES,   /* of a group: the parameters' names in quotes, with commas */
    CKPT__PY_CLASS,   /* "AdamW" */
    CKPT__PY_LR,      /* "0.1" */
    CKPT__PY_REFUSED, /* the classes that are refused, with commas: at most 8, then "..." */
    CKPT__PY_SIZES,   /* how many parameters each group has, with commas */
    /* expressions: "checkpoint['model']" */
    CKPT__PY_MODEL,
    CKPT__PY_OPTIMIZER,
    CKPT__PY_SCHEDULER,
    CKPT__PY_SCALER,
    CKPT__PY_RNG,
    CKPT__PY_CUDA_RNG,
    CKPT__PY_FLAT_STATE,
    CKPT__PY_SCALER_KEY /* in quotes */
} ckpt__python_hole;

/* ---- names in the C templates: snippet_c.c fills them */
enum {
    CKPT__C_IF_SOURCE,        /* the map says where the model, the optimizer or the scaler is */
    CKPT__C_IF_ORDER_UNKNOWN, /* the file does not tell the order of the optimizer's parameters, nor did the caller */
    CKPT__C_IF_PARAM_NAMES,   /* the caller gave the parameters' names */
    CKPT__C_IF_ASSUME_ORDER,  /* the caller named an order */
    CKPT__C_IF_FOREIGN,       /* another program's file */
    CKPT__C_IF_MORE_BINDINGS, /* not all names are listed */
    CKPT__C_IF_COUNT
};
enum { CKPT__C_EACH_BINDING, CKPT__C_EACH_PARAM_NAME, CKPT__C_EACH_COUNT };
typedef enum ckpt__c_hole {
    CKPT__C_PATH,
    CKPT__C_RUN,        /* of the checkpoint, and of the run directory that has it: in quotes */
    CKPT__C_SOURCE,     /* the map's line "source: {...}", in quotes */
    CKPT__C_DEVICE,     /* "cuda:0" or "cpu" */
    CKPT__C_OPTIMIZER,  /* "CKPT_OPTIMIZER_FUSED" */
    CKPT__C_ORDER,      /* the name of the order */
    CKPT__C_PARAM_NAME, /* one of them, in quotes */
    CKPT__C_BINDING,
    CKPT__C_DTYPE /* a name of a state, and its dtype */
} ckpt__c_hole;

/* ---- the templates, as the build makes them (snippet_templates.c) */
extern const ckpt__snippet_op ckpt__snippet_torch_py[], ckpt__snippet_folder_py[], ckpt__snippet_adapter_py[],
    ckpt__snippet_lightning_py[], ckpt__snippet_accelerate_py[], ckpt__snippet_hf_trainer_py[],
    ckpt__snippet_restore_c[], ckpt__snippet_run_c[];
/* All of them by name ("torch.py"), ended by NULL: for tests. */
typedef struct ckpt__snippet_template {
    const char *name;
    const ckpt__snippet_op *ops;
} ckpt__snippet_template;
extern const ckpt__snippet_template ckpt__snippet_templates[];
#endif
