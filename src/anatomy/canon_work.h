/* anatomy/canon_work.h - what the files of canon share: a model, an optimizer, and the work on one checkpoint. */
#ifndef CKPT_CANON_WORK_H
#define CKPT_CANON_WORK_H
#include "anatomy/canon.h"
#include "model/preorder.h"

/* ---- the model: the tensors of its dict, in its order */
typedef enum ckpt__param_class {
    CKPT__A_PARAM = 0,
    CKPT__A_TIE,                   /* the second name of a tensor above */
    CKPT__MAYBE_BUFFER,            /* by its name; a parameter may have it too */
    CKPT__A_BUFFER
} ckpt__param_class;

typedef struct ckpt__model_entry {
    ckpt_str name;                 /* canonical */
    size_t node, tensor;
    ckpt__param_class is;
    size_t group;                  /* SIZE_MAX: the optimizer does not hold it */
} ckpt__model_entry;

typedef struct ckpt__model {
    size_t node;                   /* SIZE_MAX: none */
    int strip;                     /* how its names were stripped: 0 not, 1 in front, 2 everywhere */
    ckpt__model_entry *entries;    /* heap */
    size_t count, capacity;
    size_t parts;                  /* state_dicts that they are from */
    bool sorted;                   /* a file of some lists them by name: their order says nothing */
    size_t adapter_count;          /* of its parameters, those that PEFT adds; it freezes the others */
    ckpt__hash *by_name;           /* first entry of a name */
} ckpt__model;
void ckpt__model_free(ckpt__model *model);

/* ---- the optimizer: one slot a parameter, in its order */
typedef struct ckpt__slot {
    ckpt_str id;
    ckpt_str name;                 /* the parameter's canonical name once it is known */
    size_t state;                  /* node of its state, SIZE_MAX: it has none */
    size_t shaped;                 /* number of a tensor in it that has the parameter's shape; SIZE_MAX: none */
    size_t rows, columns;          /* numbers of a factored moment's two tensors (Adafactor); SIZE_MAX: none */
    bool row_kept;                 /* they have as many dimensions as the parameter (torch's own Adafactor) */
    bool has_tensors;              /* besides step */
    bool matrix;                   /* torch's Muon takes nothing else */
    size_t group;
} ckpt__slot;

typedef struct ckpt__opt_group {
    size_t node, first, count;     /* of its slots */
    size_t hypers;                 /* node whose children are its hyper-parameters; SIZE_MAX: it has none */
    size_t names;                  /* node of its param_names; SIZE_MAX: none */
    bool has_decay;
    double decay;
} ckpt__opt_group;

/* libtorch before 1.5: a tensor of a slot's state, which lies in a list and not below the state's node. */
typedef struct ckpt__old_state {
    size_t slot, node;
    const char *key;
} ckpt__old_state;

typedef struct ckpt__optimizer {
    size_t node, state;            /* SIZE_MAX: none */
    bool libtorch;                 /* of libtorch in C++ */
    ckpt__old_state *old;          /* heap */
    size_t old_count, old_capacity;
    size_t *listed;                /* heap; libtorch: the slot of each parameter that the groups list. Its parameters() has
                                    * one that is registered under two names twice */
    size_t listed_count, listed_capacity;
    ckpt__slot *slots;             /* heap */
    size_t slot_count, slot_capacity;
    ckpt__opt_group *groups;       /* heap */
    size_t group_count, group_capacity;
    bool text_ids;                 /* all ids are strings */
} ckpt__optimizer;
void ckpt__optimizer_free(ckpt__optimizer *optimizer);

/* ---- the work on one checkpoint */
typedef struct ckpt__builder {
    const ckpt__index *index;
    const ckpt__canon_hints *hints;
    ckpt__canon *canon;
    ckpt__tree tree;
    ckpt_report *report;
    ckpt_error *err;
    ckpt__hash *wanted;            /* names of the hints; NULL: none */
    size_t *optimizers;            /* heap: nodes that are an optimizer's dict */
    size_t optimizer_count, optimizer_capacity;
    size_t *models;                /* heap: nodes that are a state_dict by their structure */
    size_t model_count, model_capacity;
    ckpt__model model;
    ckpt__optimizer optimizer;
    size_t scaler, step;           /* nodes; SIZE_MAX: none */
    size_t entry_capacity;
    bool mixed;                    /* the tree is not laid out as the file (canon_flat.c): its paths are none of the file's */
    bool no_memory;                /* a finding could not be added */
} ckpt__builder;

/* canon.c: a directory of files; the root's keys are their names. */
bool ckpt__canon_in_files(const ckpt__builder *b);

/* canon_entry.c */
ckpt__canon_entry *ckpt__canon_add(ckpt__builder *b);      /* zeroed; NULL when memory is short */
ckpt_status ckpt__canon_no_memory(ckpt__builder *b);
void ckpt__canon_note(ckpt__builder *b, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...) CKPT__PRINTF(6, 7);
ckpt_role ckpt__role_of_key(ckpt_str state_key);
bool ckpt__key_has_param_shape(ckpt_str state_key);
/* bitsandbytes' AdEMAMix keeps its two first moments in one state1, of shape (2, ...) over the parameter's. */
bool ckpt__is_stacked(ckpt_str state_key, const ckpt_tensor_info *has, const ckpt_tensor_info *param);
ckpt_status ckpt__canon_emit_torch(ckpt__builder *b);
/* Fills by_name; finds collisions and moments whose shape is not their parameter's. */
ckpt_status ckpt__canon_finish(ckpt__builder *b);

/* canon_native.c */
ckpt_status ckpt__canon_native(ckpt__builder *b);
ckpt_status ckpt__canon_plain(ckpt__builder *b);

/* canon_find.c: sets model, optimizer, scaler and step of b, and the names of the optimizer's slots. */
ckpt_status ckpt__canon_find(ckpt__builder *b);

/* canon_model.c */
void ckpt__canon_scan(ckpt__builder *b);                   /* fills optimizers and models */
/* The canonical name of a parameter: the prefixes of frameworks stripped (see strip), then the map's own rules. It may be the
 * end of `raw` itself, which must live as long as the index. */
ckpt_status ckpt__canon_param_name(ckpt__builder *b, ckpt_str raw, int strip, ckpt_str *out);
ckpt_status ckpt__canon_name_buf(ckpt__builder *b, ckpt_str raw, int strip, ckpt__buf *out);   /* replaces out */
bool ckpt__canon_is_adapter(ckpt_str name);                /* of a parameter that PEFT adds to a model */
ckpt_status ckpt__canon_read_model(ckpt__builder *b, size_t node, int strip, ckpt__model *out);
/* The node whose tensors the state's names are, and how to strip them; SIZE_MAX where none has any of them. */
ckpt_status ckpt__canon_match_wanted(ckpt__builder *b, size_t *node, int *strip);
/* How to strip the names below one node so that most are the state's. */
ckpt_status ckpt__canon_match_below(ckpt__builder *b, size_t node, int *strip);
bool ckpt__canon_is_average(const ckpt__builder *b, size_t node);   /* by its path, or by what lies beside it */
ckpt__param_class ckpt__param_class_of(const ckpt_tensor_info *info, ckpt_str name);
ckpt_role ckpt__canon_weight_role(const ckpt_tensor_info *info, ckpt_str name);   /* param or buffer */

/* canon_optimizer.c */
ckpt_status ckpt__canon_read_optimizer(ckpt__builder *b, size_t node, ckpt__optimizer *out);

/* Can the state be that of a parameter of this shape? Of a slot whose state has no known shape it can. */
bool ckpt__slot_fits(const ckpt__builder *b, const ckpt__slot *slot, const ckpt_tensor_info *param);
bool ckpt__slot_has_shape(const ckpt__slot *slot);

/* Appends the slot of the parameter whose id is the value of node `param`. */
ckpt_status ckpt__canon_add_slot(ckpt__builder *b, ckpt__optimizer *o, size_t param, ckpt__hash *states, ckpt__hash *ids);

/* canon_flat.c: of a dict that is or holds a flattened optimizer state (model/flat_state.h) one that has it as torch's own
 * {state, param_groups}, in the arena; *mixed: what else was in it is in {model, optimizer, ...} then. Any other dict is
 * given back. NULL: no memory. _all: the root, and what lies in it. */
const ckpt_value *ckpt__flat_unfold(const ckpt_value *dict, ckpt__arena *arena, bool *mixed);
const ckpt_value *ckpt__flat_unfold_all(const ckpt_value *root, ckpt__arena *arena, bool *mixed);

/* canon_libtorch.c */
bool ckpt__canon_is_libtorch(const ckpt__builder *b, size_t node);     /* the dict of an optimizer of libtorch in C++ */
ckpt_status ckpt__canon_read_groups(ckpt__builder *b, ckpt__optimizer *o, ckpt__hash *states, ckpt__hash *ids);
ckpt_status ckpt__canon_read_old(ckpt__builder *b, ckpt__optimizer *o);
/* Below a module of libtorch, is this a list, dict or object of its own? What is in it is no parameter or buffer. */
bool ckpt__canon_is_attribute(const ckpt__tree *tree, size_t module, size_t node);
/* What only says how the optimizer's dict is laid out becomes no entry. */
void ckpt__canon_take_frame(ckpt__builder *b);
/* For each node, is it a module of libtorch or TorchScript, with weights below it? The heap's; NULL: none is one. */
unsigned char *ckpt__canon_script_modules(ckpt__builder *b);

/* canon_order.c */
/* The names that are stated: param_names in the groups, ids that are names, or the caller's. CKPT__NO_EVIDENCE: none is. */
ckpt_status ckpt__canon_stated_names(ckpt__builder *b, ckpt__optimizer *optimizer, const ckpt__model *model,
                                     ckpt__order_evidence *evidence);
/* A file without a model: the order is that of the state's groups, where they are of the same sizes. False: they are not. */
bool ckpt__canon_state_order(const ckpt__builder *b, ckpt__optimizer *optimizer, ckpt__order *out);
/* Can the optimizer hold this entry? Of a model with an adapter that has as many parameters as the optimizer: only those.
 * candidates 0: what is surely a parameter; 1: and what only its name makes a buffer; 2: all. */
bool ckpt__canon_may_hold(const ckpt__optimizer *optimizer, const ckpt__model *model, size_t entry, int candidates);
/* Tries the hypotheses about the order of the model's parameters in the optimizer, and holds the one that fits against
 * what else trainers do. */
ckpt_status ckpt__canon_infer_order(ckpt__builder *b, const ckpt__optimizer *optimizer, const ckpt__model *model,
                                    ckpt__order *out);

/* canon_splits.c: how trainers split the parameters in two groups: does this one decay? */
size_t ckpt__split_count(void);
const char *ckpt__split_name(size_t split);                /* "rank" */
const char *ckpt__split_text(size_t split);                /* "those with two or more dimensions" */
bool ckpt__split_decays(size_t split, ckpt_str name, uint32_t ndim);
/* Are the names in groups that decay and in others of the classes that trainers put there? entries: slot -> entry. */
bool ckpt__classes_agree(const ckpt__optimizer *optimizer, const ckpt__model *model, const ckpt__builder *b,
                         const size_t *entries);

/* What an order that fits is held against. */
typedef struct ckpt__exam {
    ckpt__builder *b;
    const ckpt__optimizer *o;
    const ckpt__model *m;
    const size_t *list; size_t list_count;     /* the entries in the order that the model has by the hypothesis */
    bool decided;                  /* the groups' weight_decay says which of two groups is which */
} ckpt__exam;

/* canon_exchange.c: which parameters could be exchanged without contradiction? Sets exchangeable, exchanges, ambiguous and why. */
ckpt_status ckpt__canon_weigh(const ckpt__exam *exam, ckpt__order *order);
/* canon_tell.c: the findings. One order alone fits; or none or several do, an error or the optimizer stays outside; or several
 * do, and the first is taken for a loader that goes by position. */
void ckpt__canon_note_order(ckpt__builder *b, const ckpt__order *order);
ckpt_status ckpt__canon_order_unknown(ckpt__builder *b, size_t node, const ckpt__order *order);
void ckpt__canon_note_tentative(ckpt__builder *b, const ckpt__order *order);
/* canon_shuffle.c: each group has its parameters in the order of exam's list. Does another division among the groups fit as
 * well? Also true where that would take too long to tell. */
ckpt_status ckpt__canon_shuffles(const ckpt__exam *exam, bool *several);

/* canon_known.c: what is known of the model that a config.json beside it names; NULL: nothing. */
const char *ckpt__known_siblings(const ckpt__builder *b);
/* Negative: module a is defined before its sibling b; positive: after; 0: nothing is known of the two. */
int ckpt__known_order(const char *siblings, ckpt_str a, ckpt_str b);

/* canon_sorted.c: the same for a model whose file lists its tensors by name; *out has room for entries. */
ckpt_status ckpt__canon_infer_sorted(ckpt__builder *b, const ckpt__optimizer *optimizer, const ckpt__model *model,
                                     ckpt__order *out);
#endif
