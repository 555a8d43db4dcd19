/* map/map.h - evaluation of map_location rules, and the placement policy. Pure: no I/O but reading the YAML file. */
#ifndef CKPT_MAP_INTERNAL_H
#define CKPT_MAP_INTERNAL_H
#include <ckpt/map.h>
#include "model/index.h"

typedef enum ckpt__decided {
    CKPT__BY_NOTHING = 0, /* no rule spoke: the tensor keeps its tag */
    CKPT__BY_NAME,
    CKPT__BY_ROLE, /* these beat the policy */
    CKPT__BY_TAG,
    CKPT__BY_STRING,
    CKPT__BY_DEFAULT,
    CKPT__BY_CALLBACK,
    CKPT__BY_PARAM /* follows its parameter */
} ckpt__decided;

/* Where one tensor goes, and why: "by" is what messages and the policy ask for. With the rules {tag: "cuda:*", to: "cuda:0"} a
 * tensor that was saved on cuda:3 gets {device cuda:0, by CKPT__BY_TAG, rule 0, cast NONE}. */
typedef struct ckpt__target {
    ckpt_device device; /* NONE: the tensor keeps its tag */
    ckpt__decided by;
    ckpt_dtype cast; /* NONE: as saved */
    size_t rule;     /* number of the rule, for messages; SIZE_MAX: none */
    ckpt_str word;   /* of a device that is OTHER: its name, without the index, in the map */
} ckpt__target;

/* The target's tag, into buf of CKPT_DEVICE_NAME_MAX bytes. */
const char *ckpt__target_name(const ckpt__target *target, char *buf);

/* What a rule sees of a tensor. Canonical name; `param`: the parameter that it belongs to (data NULL: none). */
typedef struct ckpt__subject {
    ckpt_str name, param;
    ckpt_role role;
    ckpt_str tag; /* saved tag; data NULL: none */
    bool host;    /* the program's own host memory: of role "other" it stays there, unless a rule names it */
    bool stays;   /* it is not moved, whatever is decided: "policy-placed" does not count it */
} ckpt__subject;

/* Applies the rules to one tensor, not looking at what it belongs to. used[rule] is set where a rule decided (may be
 * NULL; ckpt__map_rule_count entries). CKPT_E_ARGUMENT where an expression fails (division by zero, a negative or too
 * large index), naming rule and tensor. */
ckpt_status ckpt__map_apply(const ckpt_map *map, const ckpt__subject *subject, const ckpt_ranks *ranks, bool *used,
                            ckpt__target *out, ckpt_error *err);
/* *one: the map is a device string, and *out is the target of every tensor of a process of these ranks. CKPT_E_ARGUMENT: its
 * expression fails for them. A string whose index hangs on each tensor's tag ("cuda:{index}") is not one. */
ckpt_status ckpt__map_one(const ckpt_map *map, const ckpt_ranks *ranks, ckpt__target *out, bool *one, ckpt_error *err);
size_t ckpt__map_rule_count(const ckpt_map *map);                  /* the default and a device string count as none */
const char *ckpt__map_rule_text(const ckpt_map *map, size_t rule); /* for "unused-rule": as the user wrote it */

/* All tensors at once: what belongs to a parameter takes its parameter's target unless a rule by name or role names
 * it; then the policy speaks where no rule by name or role did. subjects[i].param refers to another subject by name.
 * dtypes[i]: as saved. The optimizer of subject i is `kind` (what the caller constructs) unless that is DEFAULT, else
 * the map's, else kinds[i] (the saved flags of the group that holds its parameter; kinds may be NULL), else plain.
 * Findings: "unused-rule" (warning), "optimizer-conflict" (warning: the map says another kind than the caller),
 * "policy-breach" (error), "policy-placed" (note, one for each role that the policy moved). out has n entries. A step
 * whose dtype the policy changes has cast = float32 (whether that is exact is the caller's to see). A device of NONE
 * with BY_PARAM: wherever the parameter is, whose own target is NONE and whose tag says no device.
 * A subject of role "other" that is `host` and belongs to no parameter goes to the cpu, whatever a device string, tag rules, a
 * callback or the default say: a shuffled order, a loader's position. map NULL: no rules. report may be NULL. */
ckpt_status ckpt__map_place(const ckpt_map *map, ckpt_optimizer_kind kind, const ckpt_optimizer_kind *kinds,
                            const ckpt__subject *subjects, const ckpt_dtype *dtypes, size_t n, const ckpt_ranks *ranks,
                            ckpt__target *out, ckpt_report *report, ckpt_error *err);

/* ---- the YAML's other parts */
ckpt_optimizer_kind ckpt__map_optimizer(const ckpt_map *map); /* DEFAULT: not said */
bool ckpt__map_has_names(const ckpt_map *map);                /* a rule asks for names, or a callback */
/* What `source` in a map file says, in the map's arena. */
typedef struct ckpt__map_source {
    const char *model, *optimizer, *scaler, *step; /* key paths; NULL: not said, and found by structure */
    const char *const *strip_prefix;
    size_t strip_count; /* NULL: none */
} ckpt__map_source;
const ckpt__map_source *ckpt__map_source_of(const ckpt_map *map); /* never NULL */
/* Applies strip_prefix (iteratively) and rename (in order, each at most once) to a parameter's name; appends to out. */
ckpt_status ckpt__map_rename(const ckpt_map *map, const char *name, size_t n, ckpt__buf *out, ckpt_error *err);

/* ---- the placement policy: one row of the table */
typedef enum ckpt__place { CKPT__WITH_PARAM, CKPT__ON_CPU, CKPT__FREE } ckpt__place;
/* Where the optimizer needs one role: fused AdamW has {CKPT__WITH_PARAM, float32 true} for its step, plain AdamW
 * {CKPT__ON_CPU, false}. */
typedef struct ckpt__policy {
    ckpt__place place;
    bool float32; /* must be float32 there (the step of fused and capturable) */
} ckpt__policy;
ckpt__policy ckpt__policy_of(ckpt_optimizer_kind kind, ckpt_role role);
#endif
