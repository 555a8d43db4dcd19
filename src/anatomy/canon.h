/* anatomy/canon.h - canonical names: what a state calls the things in a checkpoint, whoever wrote it.
 *   <param>                          optimizer.<param>.<exp_avg|exp_avg_sq|step|...>
 *   optimizer.groups.<g>.<lr|betas.0|...>     scaler.<scale|growth_factor|backoff_factor|growth_interval|_growth_tracker>
 *   rng.<...>   step                 everything else: its own name
 * A directory of files is as a torch file whose root has the files' names for keys. Where the model's file lists its
 * tensors by name (safetensors), their order says nothing: canon_sorted.c.
 * Native files hold canonical names already. For torch files the model's state_dict, the optimizer's dict and the
 * scaler's are found by the map's `source`, else by structure; positional optimizer ids become parameters' names. */
#ifndef CKPT_CANON_H
#define CKPT_CANON_H
#include <ckpt/state.h>
#include "map/map.h"
#include "model/index.h"

typedef struct ckpt__canon_entry {
    ckpt_str name;                /* canonical */
    ckpt_str own;                 /* the name in the file, for messages */
    size_t tensor;                /* number in the index */
    const ckpt_value *value;      /* otherwise: a leaf (none, bool, int, float, str, bytes, list of numbers) */
    ckpt_str param, state_key, group;    /* data NULL where it does not apply */
    ckpt_role role;
    bool is_tensor;
    bool outside;                 /* a torch file: not below the model, optimizer or scaler found; its own name */
} ckpt__canon_entry;

typedef struct ckpt__canon_group {
    ckpt_str name;                /* "0", "1", ... or native's */
    const ckpt_str *params; size_t param_count;     /* canonical, in the optimizer's order */
    int fused, capturable, foreach;                 /* 1, 0, or -1: None or absent */
} ckpt__canon_group;

/* The source of the names that an optimizer's numbers get. */
typedef enum ckpt__order_evidence {
    CKPT__NO_EVIDENCE = 0,
    CKPT__FILE_NAMES,             /* param_names in the groups, or ids that are names */
    CKPT__STATED_NAMES,           /* the caller's param_names */
    CKPT__ASSUMED_ORDER,          /* the caller's assume_order: a known order by its name */
    CKPT__STATE_GROUPS,           /* the groups of the state that is restored, as the file has no model */
    CKPT__STRUCTURE,              /* shapes and names of the model's tensors */
    CKPT__CONTENT                 /* structure, and what the groups' settings say (weight_decay) */
} ckpt__order_evidence;
const char *ckpt__order_evidence_text(ckpt__order_evidence evidence);

enum { CKPT__EXCHANGES = 6 };
/* Parameters that could be exchanged without contradiction: those of a with those of b; b without data: some within a. */
typedef struct ckpt__exchange {
    ckpt_str a, b;                /* modules, or "group 0" */
    size_t count;
} ckpt__exchange;

/* The answer to "whose state is it?": restore, migrate, doctor and its snippets all take this one. */
typedef enum ckpt__fit { CKPT__FITS_NOT = 0, CKPT__FITS, CKPT__FITS_SEVERAL } ckpt__fit;
typedef struct ckpt__order {
    ckpt__fit fit;
    ckpt__order_evidence evidence;
    bool inferred, plain;         /* plain: torch's own order with nothing left out */
    bool doubtful;                /* it fits, and `how` says what else may be */
    bool ambiguous;               /* it fits, and so does another one that a trainer may have used: `why` says which */
    char name[40];                /* the known order that fits, as assume_order takes it */
    size_t exchangeable;          /* parameters of which another one has the same shape */
    ckpt__exchange exchanges[CKPT__EXCHANGES]; size_t exchange_count;   /* ambiguous: between branches; else within modules */
    size_t *entries;              /* heap: slot -> entry of the model; NULL once names are given */
    char how[300];                /* the hypothesis, or why there is none */
    char why[400];
} ckpt__order;

/* Is there a known order of this name? The list of them, for messages. */
bool ckpt__order_known(const char *name);
const char *ckpt__order_names(void);
/* CKPT_E_ARGUMENT unless NULL or the name of a known order. */
ckpt_status ckpt__order_check(const char *assume_order, const char *object, ckpt_error *err);

typedef struct ckpt__canon {
    ckpt__arena *arena;
    ckpt__canon_entry *entries; size_t count;
    ckpt__hash *by_name;          /* canonical name -> entry; a second one of the same name: a finding */
    ckpt__canon_group *groups; size_t group_count;
    ckpt_str model_path, optimizer_path, scaler_path;   /* where they were found; data NULL: not */
    bool hypothesis;              /* the order of the parameters was inferred; the report says how */
    ckpt_str unnamed;             /* where an optimizer lies whose order could not be told; data NULL: none */
    ckpt__order order;            /* how the optimizer's numbers became names, or why not; fit 0, inferred false: no question */
} ckpt__canon;

/* The parameters that the state expects: they choose between candidates for the model's dict, and names are compared
 * after strip_prefix and rename. count 0: nothing is known (the commands). */
typedef struct ckpt__canon_hints {
    const ckpt_map *map;          /* NULL: none */
    const char *const *param_names; size_t param_name_count;    /* the optimizer's order, declared by the caller */
    const ckpt_str *wanted; size_t wanted_count;                /* names of the state's parameters and buffers */
    /* The state's own groups, in its order: they name the parameters of an optimizer that lies in a file without a model,
     * where the groups are of these sizes. */
    const ckpt_str *group_params; const size_t *group_sizes; size_t group_count;
    const ckpt_state *state;      /* what it binds in the very shape of the file is no "moment-shape"; NULL: none */
    const char *assume_order;     /* the order is this known one; NULL: whichever alone fits */
    bool strict_order;            /* names in the file or the caller's: an order by structure is none */
    bool tentative_order;         /* for loaders that match by position: of several orders the first is taken, and the
                                   * warning "order-ambiguous" says so */
    bool needs_order;             /* with optional_optimizer: more than one order is an error all the same */
    bool optional_optimizer;      /* nothing of an optimizer or scaler is asked for: what is ambiguous there is the
                                   * warning "source-ambiguous", "order-ambiguous" or "order-unknown" instead of an error,
                                   * and stays outside */
} ckpt__canon_hints;

/* Findings: "source-found" (note: which dict was taken), "prefix-stripped" (note), "order-hypothesis" (note: which of
 * the orders that trainers use was taken, as it alone fits, and how many parameters of one shape could be exchanged; a warning where
 * it is doubtful), "order-ambiguous" (error: more than one of those orders fits, or parameters of different branches could be
 * exchanged), "name-collision" (error), "dead-state" (warning: optimizer
 * state whose id is in no group). Ambiguity is CKPT_E_MISMATCH: the message names the candidates and shows the rule
 * that settles it (source.model: ..., or param_names). An optimizer entry whose shape differs from its parameter's
 * is an error finding "moment-shape", unless the state binds it so. Two models in a file without optimizer, and no wanted
 * names, are no error: all is outside then. `step` comes from source.step, else from the root's key step, global_step,
 * iter_num, iteration, train_step or num_updates; where there is none, there may still be one step a parameter (optimizer.<param>.step). */
ckpt_status ckpt__canon_build(const ckpt__index *index, const ckpt__canon_hints *hints, ckpt__canon **out,
                              ckpt_report *report, ckpt_error *err);
void ckpt__canon_free(ckpt__canon *canon);
/* Are the names all there that a caller declares as the optimizer's order? `object` is what a message names. */
ckpt_status ckpt__canon_check_names(const char *const *param_names, size_t count, const char *object, ckpt_error *err);
/* The roles of weights that say none, as safetensors files do not, in a directory whose layout is known. */
void ckpt__canon_give_roles(ckpt__index *index);
#endif
