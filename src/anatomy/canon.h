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
#include "map/map.h"
#include "model/index.h"
#include "model/training.h"

/* One thing that a state can bind: a tensor of the checkpoint, or a leaf of its value tree. Canonical names exist
 * so that restore, migrate, doctor and diff ask for a thing by one name, whichever format has it. All strings and the
 * value are borrowed from the canon's arena, the index or the program's text: they live as long as the canon and its
 * index.
 *
 * {'model': {'w': T0}, 'opt': {'state': {0: {'exp_avg': T1}}, 'param_groups': [{'lr': 0.1, 'params': [0]}]}} has three
 * entries:
 *
 *     name                      own                       is_tensor  tensor  param  state_key  group
 *     w                         model.w                   true       0       -      -          "0"
 *     optimizer.w.exp_avg       opt.state.0.exp_avg       true       1       w      exp_avg    "0"
 *     optimizer.groups.0.lr     opt.param_groups.0.lr     false      -       -      -          "0" */
typedef struct ckpt__canon_entry {
    ckpt_str name;                    /* canonical */
    ckpt_str own;                     /* the name in the file, for messages */
    size_t tensor;                    /* number in the index; means nothing unless is_tensor */
    const ckpt_value *value;          /* a leaf (none, bool, int, float, str, bytes, list of numbers); NULL: a tensor */
    ckpt_str param, state_key, group; /* data NULL where it does not apply */
    ckpt_role role;
    bool is_tensor;
    bool outside; /* a torch file: not below the model, optimizer or scaler found; its own name */
} ckpt__canon_entry;

/* One group of the optimizer, by its parameters' names. A group's settings are entries of the canon
 * ("optimizer.groups.0.lr"); the flags are kept here too, because a placement asks each group for them. The array
 * and the strings are in the arena of the canon, or borrowed as those of an entry. */
typedef struct ckpt__canon_group {
    ckpt_str name; /* "0", "1", ... or native's */
    ckpt_str *params;
    size_t param_count; /* canonical, in the optimizer's order */
    ckpt__flags flags;
} ckpt__canon_group;

/* The source of the names that an optimizer's numbers get. */
typedef enum ckpt__order_evidence {
    CKPT__NO_EVIDENCE = 0,
    CKPT__FILE_NAMES,    /* param_names in the groups, or ids that are names */
    CKPT__STATED_NAMES,  /* the caller's param_names */
    CKPT__ASSUMED_ORDER, /* the caller's assume_order: a known order by its name */
    CKPT__STATE_GROUPS,  /* the groups of the state that is restored, as the file has no model */
    CKPT__STRUCTURE,     /* shapes and names of the model's tensors */
    CKPT__CONTENT        /* structure, and what the groups' settings say (weight_decay) */
} ckpt__order_evidence;
const char *ckpt__order_evidence_text(ckpt__order_evidence evidence);

enum { CKPT__EXCHANGES = 6 };
/* Parameters that could be exchanged without contradiction: those of a with those of b; b without data: some within
 * a. Two nets of a GAN with 4 parameters of the same shapes each are {"netG", "netD", 4}. The strings live as long
 * as the canon and its index. */
typedef struct ckpt__exchange {
    ckpt_str a, b; /* modules, or "group 0" */
    size_t count;  /* of parameters */
} ckpt__exchange;

/* The answer to "whose state is it?": restore, migrate, doctor and its snippets all take this one. */
typedef enum ckpt__fit { CKPT__FITS_NOT = 0, CKPT__FITS, CKPT__FITS_SEVERAL } ckpt__fit;
/* Torch numbers the states of an optimizer, and a state in C asks for them by name. An order gives each slot (the
 * optimizer's parameters, counted from 0 through all groups) the entry of the model that it belongs to. Slots whose
 * moments have shapes {4, 4} and {4}, and a model with the entries w (4 x 4), num_batches_tracked (a buffer, one
 * number) and b (4), give entries {0, 2}: slot 0 is w, slot 1 is b. */
typedef struct ckpt__order {
    ckpt__fit fit;
    ckpt__order_evidence evidence;
    bool inferred, plain; /* plain: torch's own order with nothing left out */
    bool doubtful;        /* it fits, and `how` says what else may be */
    bool ambiguous;       /* it fits, and so does another one that a trainer may have used: `why` says which */
    char name[40];        /* the known order that fits, as assume_order takes it; "": none of those */
    size_t exchangeable;  /* parameters that share their shape with another one */
    ckpt__exchange exchanges[CKPT__EXCHANGES];
    size_t exchange_count; /* ambiguous: between branches; else within modules */
    size_t *entries;       /* heap: slot -> number among the model's entries; NULL once names are given */
    char how[300];         /* the hypothesis, or why there is none */
    char why[400];         /* ambiguous: what else may be; "": nothing */
} ckpt__order;

/* Is there a known order of this name? The list of them, for messages. */
bool ckpt__order_known(const char *name);
const char *ckpt__order_names(void);
/* CKPT_E_ARGUMENT unless NULL or the name of a known order. */
ckpt_status ckpt__order_check(const char *assume_order, const char *object, ckpt_error *err);

/* The canonical names of one checkpoint. The canon owns its arena, entries and table; it borrows names and values of
 * the index, so the index must outlive the canon. */
typedef struct ckpt__canon {
    ckpt__arena *arena; /* owned: names, groups, and values that were made anew */
    ckpt__canon_entry *entries;
    size_t count;        /* heap, owned */
    ckpt__hash *by_name; /* owned: canonical name -> entry; a second one of the same name: a finding */
    ckpt__canon_group *groups;
    size_t group_count;                               /* in the arena; NULL: none */
    ckpt_str model_path, optimizer_path, scaler_path; /* where they were found; data NULL: not */
    bool hypothesis;   /* the order of the parameters was inferred; the report says how */
    ckpt_str unnamed;  /* where an optimizer lies whose order could not be told; data NULL: none */
    ckpt__order order; /* how the optimizer's numbers became names, or why not; fit 0, inferred false: no
                                   * question. Its `entries` is NULL */
} ckpt__canon;

/* What the caller knows. The parameters that the state expects choose between candidates for the model's dict, and
 * names are compared after strip_prefix and rename. count 0: nothing is known (the commands). All pointers are borrowed
 * for the call of ckpt__canon_build; the strings of group_params for as long as the canon lives.
 *
 * A state whose optimizer has the groups {w, v} and {b} gives group_params {"w", "v", "b"}, group_sizes {2, 1} and
 * group_count 2. */
typedef struct ckpt__canon_hints {
    const ckpt_map *map; /* NULL: none */
    /* Of the same index, and whole; it must live as long as the canon. Canons of one anatomy are built one after the other.
     * NULL: the canon makes its own. */
    struct ckpt__anatomy *anatomy;
    const char *const *param_names;
    size_t param_name_count; /* the optimizer's order, declared by the caller */
    /* Is it the name of one of the state's parameters and buffers, or another name of a tensor of it? NULL: it has none, or there is no
     * state. */
    bool (*wants)(const void *ctx, ckpt_str name);
    const void *wants_ctx; /* the caller's: wants gets it */
    /* The state's own groups, in its order: they name the parameters of an optimizer that lies in a file without a model,
     * where the groups are of these sizes. */
    const ckpt_str *group_params;
    const size_t *group_sizes;
    size_t group_count;
    /* Does the caller bind an entry of this name in the very shape that the file has? It knows its optimizer then, and the
     * entry is no "moment-shape". NULL: nothing is bound. */
    bool (*is_bound_so)(const void *ctx, ckpt_str name, const ckpt_tensor_info *info);
    const void *bound_ctx;    /* the caller's: is_bound_so gets it */
    const char *assume_order; /* the order is this known one; NULL: whichever alone fits */
    bool strict_order;        /* names in the file or the caller's: an order by structure is none */
    bool tentative_order;     /* for loaders that match by position: of several orders the first is taken, and the
                                   * warning "order-ambiguous" says so */
    bool needs_order;         /* with optional_optimizer: more than one order is an error all the same */
    bool needs_scaler;        /* with optional_optimizer: more than one scaler is an error all the same */
    bool paths_only; /* where no tensor is state of an optimizer, only model_path and the other paths are asked for:
                                   * the canon has no entries then, and by_name is NULL */
    bool optional_optimizer; /* nothing of an optimizer or scaler is asked for: what is ambiguous there is the
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

/* ---- single questions about names and values, of which doctor and summary ask some alone */

/* Does the state under this key have the shape of its parameter (exp_avg, ...)? */
bool ckpt__key_has_param_shape(ckpt_str state_key);
bool ckpt__canon_is_adapter(ckpt_str name); /* of a parameter that PEFT adds to a model */

/* canon_splits.c: how trainers split the parameters in two groups: does this one decay? */
size_t ckpt__split_count(void);
const char *ckpt__split_name(size_t split); /* "rank" */
const char *ckpt__split_text(size_t split); /* "with two or more dimensions" */
bool ckpt__split_decays(size_t split, ckpt_str name, uint32_t ndim);
/* A model's state_dict (ckpt__is_state_dict). A tensor that its file keeps in an object is one of its weights. */
bool ckpt__canon_is_model(const ckpt__index *index, const ckpt_value *v);
#endif
