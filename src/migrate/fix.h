/* migrate/fix.h - what a rewrite does about a finding: one row a code, for --fix and for whoever prints it. */
#ifndef CKPT_MIGRATE_FIX_H
#define CKPT_MIGRATE_FIX_H
#include <stddef.h>

typedef enum ckpt__mending {
    CKPT__MEND_POLICY,            /* the placement policy for the saved flags */
    CKPT__MEND_PLAIN,             /* the groups' flags and placement of a plain optimizer */
    CKPT__MEND_FUSED,             /* those of a fused one */
    CKPT__MEND_DEVICES,           /* cuda:0 for every cuda tag, unless a map is given */
    CKPT__MEND_PREFIX,            /* the prefixes of wrappers */
    CKPT__MEND_OBJECTS,           /* opaque objects in plain terms */
    CKPT__MEND_DEVICE_OBJECTS,    /* torch.device objects follow the map */
    CKPT__MEND_SALVAGE
} ckpt__mending;

typedef struct ckpt__mend {
    const char *code;             /* of the finding */
    ckpt__mending how;
    const char *options;          /* of ckpt-migrate that do the same; "" where --fix alone does */
    const char *what;             /* in words */
} ckpt__mend;
extern const ckpt__mend ckpt__mends[];
extern const size_t ckpt__mend_count;
/* NULL: no rewrite mends it. */
const ckpt__mend *ckpt__mend_of(const char *code);
#endif
