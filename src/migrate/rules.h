/* migrate/rules.h - patterns of migrate's options: what they match, and what becomes of one that matches nothing. */
#ifndef CKPT_MIGRATE_RULES_H
#define CKPT_MIGRATE_RULES_H
#include "migrate/migration.h"

/* A glob over whole names, as --drop and --tensor take it; one that begins with '=' is literal. */
bool ckpt__rule_matches(const char *glob, ckpt_str name);
bool ckpt__rule_has_wildcard(const char *glob);
/* Does the name go on below `above`, a glob without wildcards? */
bool ckpt__rule_is_below(ckpt_str name, const char *above);

/* The names that a rule may match: a tensor's name in `index`, and its canonical name. All pointers are borrowed. */
typedef struct ckpt__rule_names {
    const ckpt__index *index;
    const ckpt_str *canonical; /* one a tensor, data NULL: it has none; NULL: none are known */
    const ckpt__canon *canon;  /* its values, for what is no tensor; NULL: tensors alone */
    const bool *among;         /* one a tensor: only these count; NULL: all */
} ckpt__rule_names;

/* Notes that a rule has matched nothing: `said` is how it was given ("--drop 'x'"), `glob` what a better one is looked for with;
 * NULL: none is. ckpt__migrate_check_rules makes an error of all that were noted, or with allow_unused warnings. */
ckpt_status ckpt__rule_unused(ckpt__migration *m, const char *said, const char *why, const char *glob,
                              const ckpt__rule_names *names, ckpt_error *err);
ckpt_status ckpt__migrate_check_rules(ckpt__migration *m, ckpt_error *err);
#endif
