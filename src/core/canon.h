/* core/canon.h - canonical names: what a state calls the things in a checkpoint, whoever wrote it.
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

typedef struct ckpt__canon {
    ckpt__arena *arena;
    ckpt__canon_entry *entries; size_t count;
    ckpt__hash *by_name;          /* canonical name -> entry; a second one of the same name: a finding */
    ckpt__canon_group *groups; size_t group_count;
    ckpt_str model_path, optimizer_path, scaler_path;   /* where they were found; data NULL: not */
    bool hypothesis;              /* the order of the parameters was inferred; the report says how */
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
    bool optional_optimizer;      /* nothing of an optimizer or scaler is asked for: what is ambiguous there is the
                                   * warning "source-ambiguous" or "order-unknown" instead of an error, and stays
                                   * outside */
} ckpt__canon_hints;

/* Findings: "source-found" (note: which dict was taken), "prefix-stripped" (note), "order-hypothesis" (which order
 * was inferred, and that it was the only one that fits: a warning; a note where it is torch's own, the order of the
 * state_dict with nothing left out and nothing that makes it doubtful), "name-collision" (error), "dead-state" (warning: optimizer
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
