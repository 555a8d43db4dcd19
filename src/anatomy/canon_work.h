/* anatomy/canon_work.h - what the files of canon share: the model and the optimizer that were found, and the work on one
 * checkpoint. */
#ifndef CKPT_CANON_WORK_H
#define CKPT_CANON_WORK_H
#include "anatomy/canon.h"
#include "anatomy/anatomy.h"

/* ---- the model: the tensors of its dict, in its order */
typedef enum ckpt__param_class {
    CKPT__A_PARAM = 0,
    CKPT__A_TIE,        /* the second name of a tensor above */
    CKPT__MAYBE_BUFFER, /* by its name; a parameter may have it too */
    CKPT__A_BUFFER
} ckpt__param_class;

/* One tensor of the model's dict. Buffers and ties are entries too, because the dict lists them between the
 * parameters. */
typedef struct ckpt__model_entry {
    ckpt_str name; /* canonical */
    ckpt_str own;  /* without the map's rules: what the name says of the module and of its class, it says before the
                          * caller gives it another. Orders are told by this one */
    size_t node, tensor; /* number in the builder's tree; number in the index */
    ckpt__param_class is;
    size_t group; /* number of the optimizer's group that holds the parameter; SIZE_MAX: none does */
} ckpt__model_entry;

/* The model that was found, or a candidate. The entries keep the order of the dict, since torch gives an optimizer
 * its parameters in that order. */
typedef struct ckpt__model {
    size_t node;                /* of the dict, in the builder's tree; SIZE_MAX: none */
    int strip;                  /* how its names were stripped: 0 not, 1 in front, 2 everywhere */
    ckpt__model_entry *entries; /* heap, owned */
    size_t count, capacity;     /* entries */
    size_t parts;               /* state_dicts that they are from */
    bool sorted;                /* a file of some lists them by name: their order says nothing */
    size_t adapter_count;       /* of its parameters, those that PEFT adds; it freezes the others */
    ckpt__hash *
        by_name; /* owned: name -> number of its first entry; NULL where no model was read, and where no optimizer was found */
} ckpt__model;
void ckpt__model_free(ckpt__model *model);

/* One parameter of the optimizer, as its dict shows it: an id, and a state. The name comes later.
 *
 * The shape of a moment is the shape of its parameter, which tells parameters apart. Adafactor keeps the second
 * moment of a 4 x 6 matrix in two tensors instead: HF's have the shapes {4} (rows) and {6} (columns), torch's {4, 1}
 * and {1, 6} (row_kept). */
typedef struct ckpt__slot {
    ckpt_str id;          /* as text: "17" for 17 */
    ckpt_str name;        /* the parameter's canonical name once it is known; data NULL before */
    size_t state;         /* node of its state, SIZE_MAX: it has none */
    size_t shaped;        /* number, in the index, of a tensor in it that has the parameter's shape;
                                    * SIZE_MAX: none */
    size_t rows, columns; /* numbers of a factored moment's two tensors (Adafactor); SIZE_MAX: none */
    bool row_kept;        /* they have as many dimensions as the parameter (torch's own Adafactor) */
    bool has_tensors;     /* besides step */
    bool matrix;          /* of torch's Muon, which takes parameters of two dimensions alone */
    size_t group;         /* number of its group */
} ckpt__slot;

/* One group: the slots [first, first + count), and its settings. All other numbers are nodes of the builder's tree. */
typedef struct ckpt__opt_group {
    size_t node, first, count; /* the group's dict; of its slots: number of the first, how many */
    size_t names;              /* node of its param_names; SIZE_MAX: none */
    bool has_decay;            /* weight_decay is there, and a number */
    double decay;              /* that number; 0 without it */
} ckpt__opt_group;

/* An optimizer's dict, read into slots and groups. Slots are numbered through all groups, in the order in which the
 * groups list their parameters. A file that holds nothing but this optimizer, with two groups of parameters:
 *
 *     {'state': {0: {'step': 5, 'exp_avg': T0, 'exp_avg_sq': T1}, 1: {'step': 5, 'exp_avg': T2, 'exp_avg_sq': T3}},
 *      'param_groups': [{'weight_decay': 0.01, 'params': [0, 1]}, {'weight_decay': 0.0, 'params': [2]}]}
 *
 * The tree has node 1 for 'state', nodes 2 and 6 for the two states, nodes 11 and 16 for the two groups:
 *
 *     slot  id   state     shaped          group           group  node  first  count  decay
 *     0     "0"  2         0 (T0)          0               0      11    0      2      0.01
 *     1     "1"  6         2 (T2)          0               1      16    2      1      0
 *     2     "2"  SIZE_MAX  SIZE_MAX        1
 *
 * Slot 2 has no state yet: its parameter is frozen, or never had a gradient. Any shape fits it. */
typedef struct ckpt__optimizer {
    size_t node, state; /* of the dict, and of its 'state'; SIZE_MAX: none */
    bool libtorch;      /* of libtorch in C++ */
    size_t *listed;     /* heap, owned: the slot of each parameter that the groups list. The parameters()
                                    * of libtorch has one that is registered under two names twice: A, B, A is two
                                    * slots, and listed is {0, 1, 0}. Of other optimizers listed[i] is i */
    size_t listed_count;
    ckpt__slot *slots; /* heap, owned */
    size_t slot_count;
    ckpt__opt_group *groups; /* heap, owned */
    size_t group_count;
    uint64_t dead; /* states whose id is in no group */
    bool text_ids; /* all ids are strings */
} ckpt__optimizer;
void ckpt__optimizer_free(ckpt__optimizer *optimizer);

/* The work on one checkpoint: what ckpt__canon_build was given, and what was found so far. All nodes are numbers in
 * `tree`; a node's descendants are the nodes [i + 1, tree.nodes[i].end), so "is node n in the optimizer at node i?"
 * is i < n < end. */
typedef struct ckpt__builder {
    const ckpt__index *index; /* borrowed, as are the hints, the report (NULL: none) and the error (may be NULL) */
    const ckpt__canon_hints *hints; /* never NULL */
    ckpt__canon *canon;             /* the answer: the caller's after success, freed after a failure */
    ckpt__anatomy *anatomy;         /* the caller's (hints), or the builder's own */
    ckpt__tree tree;                /* the anatomy's */
    ckpt_report *report;
    ckpt_error *err;
    ckpt__hash *wanted; /* owned: names that count as wanted, where no state says what is; NULL: none */
    size_t *optimizers; /* heap, owned: nodes that are an optimizer's dict, ascending */
    size_t optimizer_count, optimizer_capacity;
    size_t *models; /* heap, owned: nodes that are a state_dict by their structure, ascending */
    size_t model_count, model_capacity;
    ckpt__model model; /* the ones that were chosen; owned */
    ckpt__optimizer optimizer;
    size_t scaler, step;   /* nodes; SIZE_MAX: none */
    size_t entry_capacity; /* of canon->entries */
    bool no_memory;        /* a finding could not be added */
} ckpt__builder;

/* Does anybody say which names are wanted; and is this one of them? */
static inline bool ckpt__canon_asks(const ckpt__builder *b)
{
    return b->wanted || b->hints->wants;
}
static inline bool ckpt__canon_wants(const ckpt__builder *b, const char *name, size_t n)
{
    return b->wanted ? ckpt__hash_get(b->wanted, name, n, NULL)
                     : b->hints->wants && b->hints->wants(b->hints->wants_ctx, (ckpt_str){name, n});
}

/* canon_note.c. A directory of files; the root's keys are their names. */
bool ckpt__canon_in_files(const ckpt__builder *b);
ckpt__canon_entry *ckpt__canon_add(ckpt__builder *b); /* zeroed; NULL when memory is short */
ckpt_status ckpt__canon_no_memory(ckpt__builder *b);
void ckpt__canon_note(ckpt__builder *b, ckpt_severity severity, const char *code, const char *tensor, const char *fix,
                      const char *format, ...) CKPT__PRINTF(6, 7);

/* canon_entry.c */
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
void ckpt__canon_scan(ckpt__builder *b); /* fills optimizers and models */
/* The canonical name of a parameter: the prefixes of frameworks stripped (see strip), then the map's own rules. It may be the
 * end of `raw` itself, which must live as long as the index. */
ckpt_status ckpt__canon_param_name(ckpt__builder *b, ckpt_str raw, int strip, ckpt_str *out);
ckpt_status ckpt__canon_name_buf(ckpt__builder *b, ckpt_str raw, int strip, ckpt__buf *out); /* replaces out */
ckpt_status ckpt__canon_read_model(ckpt__builder *b, size_t node, int strip, ckpt__model *out);
/* The node whose tensors the state's names are, and how to strip them; SIZE_MAX where none has any of them. */
ckpt_status ckpt__canon_match_wanted(ckpt__builder *b, size_t *node, int *strip);
/* With nothing wanted: a dict that has the names of the model at `node` as well as that, so that match_wanted could not choose for a
 * state with these names; SIZE_MAX: there is none. */
ckpt_status ckpt__canon_find_rival(ckpt__builder *b, size_t node, size_t *rival);
/* How to strip the names below one node so that most are the state's. */
ckpt_status ckpt__canon_match_below(ckpt__builder *b, size_t node, int *strip);
ckpt__param_class ckpt__param_class_of(const ckpt_tensor_info *info, ckpt_str name);
ckpt_role ckpt__canon_weight_role(const ckpt_tensor_info *info, ckpt_str name); /* param or buffer */

/* canon_optimizer.c */
ckpt_status ckpt__canon_read_optimizer(ckpt__builder *b, size_t node, ckpt__optimizer *out);

/* Can the state be that of a parameter of this shape? Of a slot whose state has no known shape it can. */
bool ckpt__slot_fits(const ckpt__builder *b, const ckpt__slot *slot, const ckpt_tensor_info *param);
bool ckpt__slot_has_shape(const ckpt__slot *slot);

/* canon_script.c */
/* Below a module of libtorch, is this a list, dict or object of its own? What is in it is no parameter or buffer. */
bool ckpt__canon_is_attribute(const ckpt__tree *tree, size_t module, size_t node);
/* For each node, is it a module of libtorch or TorchScript, with weights below it? The heap's; NULL: none is one.
 * *ok is set to false where memory is short, and else left alone. */
unsigned char *ckpt__script_modules(const ckpt__index *index, const ckpt__tree *tree, bool *ok);

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

/* canon_splits.c. Are the names in groups that decay and in others of the classes that trainers put there? entries: slot -> entry. */
bool ckpt__classes_agree(const ckpt__optimizer *optimizer, const ckpt__model *model, const ckpt__builder *b,
                         const size_t *entries);

/* What an order that fits is held against. All pointers are borrowed from whoever infers the order. */
typedef struct ckpt__exam {
    ckpt__builder *b;
    const ckpt__optimizer *o;
    const ckpt__model *m;
    const size_t *list;
    size_t list_count; /* numbers of the entries, in the order that the model has by the
                                                * hypothesis; NULL: the file does not say how two classes of
                                                * parameters interleave */
    bool decided;      /* the groups' weight_decay says which of two groups is which */
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
