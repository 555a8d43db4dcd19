/* map/rules.h - what a parsed map_location is made of; shared by the files of this room only. */
#ifndef CKPT_RULES_H
#define CKPT_RULES_H
#include "map/expr.h"
#include "map/map.h"
#include "map/rename.h"

/* "cuda:1", or "cuda:{...}" whose index is computed for each tensor; "=WORD:1" is a tag of any name. */
typedef struct ckpt__goal {
    bool computed;      /* the index is `expr` */
    ckpt_device device; /* its index counts where it is not computed */
    ckpt_str word;      /* of OTHER: the name before the index, in the map's arena */
    ckpt__expr expr;
    ckpt_str text; /* as the user wrote it, in the map's arena */
} ckpt__goal;

/* One rule: which tensors (name, tag and role must all fit), and what becomes of them. Texts are in the map's arena. */
typedef struct ckpt__rule {
    ckpt_str name, tag; /* globs; data NULL: any */
    ckpt_role role;     /* NONE: any */
    bool has_goal;      /* false: the rule only casts */
    ckpt__goal goal;
    ckpt_dtype cast;  /* NONE: as saved */
    const char *text; /* as the user wrote it, for messages */
    size_t line;      /* in the YAML file; 0: none */
} ckpt__rule;

/* A parsed map_location, whichever form it had: a device string is a default without rules, a callback has `fn`, a file has all
 * the rest. */
struct ckpt_map {
    ckpt__arena *arena; /* owned: texts */
    ckpt__rule *rules;  /* heap; in the order of the file, the first that fits counts */
    size_t rule_count, rule_capacity;
    bool has_default; /* tensors that no rule decides go to `fallback` */
    bool is_string;   /* the default is a device string, not the `default` of a file */
    ckpt__goal fallback;
    ckpt_map_fn fn;                /* the caller's callback; NULL: none */
    void *fn_ctx;                  /* its argument, the caller's */
    ckpt_optimizer_kind optimizer; /* DEFAULT: not said */
    ckpt__map_source source;
    ckpt__rename **renames; /* heap; in order */
    size_t rename_count, rename_capacity;
};

/* An empty map; NULL when memory is short. */
ckpt_map *ckpt__map_new(void);

/* Reads "cuda:1", "xpu:{index}", "mps" or "=musa:0" into *out. On failure the message says what is wrong within the text; *at
 * (may be NULL) is the offset in the text that it is about. */
ckpt_status ckpt__goal_parse(ckpt_map *map, const char *text, size_t size, ckpt__goal *out, size_t *at,
                             ckpt_error *err);

/* Sets device and word of out for a tensor of this saved tag. CKPT_E_ARGUMENT without rule and tensor (the caller adds them). */
ckpt_status ckpt__goal_eval(const ckpt__goal *goal, ckpt_str tag, const ckpt_ranks *ranks, ckpt__target *out,
                            ckpt_error *err);

/* Refuses a tag pattern that can match no tag that a file has, saying what to write instead. */
ckpt_status ckpt__tag_check(const char *text, size_t size, ckpt_error *err);

/* Appends a rule (heap); NULL when memory is short. */
ckpt__rule *ckpt__map_add_rule(ckpt_map *map);

/* Looks at the last rule: by tag alone, and an earlier rule by tag alone always beats it: CKPT_E_ARGUMENT. More rules
 * than anyone writes: CKPT_E_LIMIT. */
ckpt_status ckpt__map_check_reached(const ckpt_map *map, ckpt_error *err);

/* Why a rule that matched nothing may have done so: a static text, or NULL. */
const char *ckpt__map_trap(const ckpt__rule *rule);
#endif
