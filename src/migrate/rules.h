/* migrate/rules.h - patterns of migrate's options: what they match, and what becomes of one that matches nothing. */
#ifndef CKPT_MIGRATE_RULES_H
#define CKPT_MIGRATE_RULES_H
#include "migrate/migration.h"

/* A glob over whole names, as --drop and --tensor take it; one that begins with '=' is literal. */
bool ckpt__rule_matches(const char *glob, ckpt_str name);
bool ckpt__rule_has_wildcard(const char *glob);
/* Does the name go on below `above`? Below a glob with wildcards there is nothing. */
bool ckpt__rule_is_below(ckpt_str name, const char *above);

/* The names that a rule may match: those of the tensors of the source, or of the target once there is its index. */
typedef struct ckpt__rule_names {
    bool canonical;    /* their canonical ones too */
    bool values;       /* and those of values */
    const bool *among; /* borrowed, one a tensor: only these count; NULL: all */
} ckpt__rule_names;

/* Notes that a rule has matched nothing: `said` is how it was given ("--drop 'x'"), `glob` what a better one is looked for with;
 * NULL: none is. ckpt__migrate_check_rules makes an error of all that were noted, or with allow_unused warnings. */
ckpt_status ckpt__rule_unused(ckpt__migration *m, const char *said, const char *why, const char *glob,
                              const ckpt__rule_names *names, ckpt_error *err);
ckpt_status ckpt__migrate_check_rules(ckpt__migration *m, ckpt_error *err);
#endif
