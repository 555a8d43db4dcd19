/* doctor/mends.h - what a rewrite does about a finding of doctor: one row a code. doctor prints the command, and
 * ckpt-migrate --fix does it (migrate/fix.c). */
#ifndef CKPT_MENDS_H
#define CKPT_MENDS_H
#include <stddef.h>

typedef enum ckpt__mending {
    CKPT__MEND_POLICY,         /* the placement policy for the saved flags */
    CKPT__MEND_PLAIN,          /* the groups' flags and placement of a plain optimizer */
    CKPT__MEND_FUSED,          /* those of a fused one */
    CKPT__MEND_DEVICES,        /* cuda:0 for every cuda tag, unless a map is given */
    CKPT__MEND_PREFIX,         /* the prefixes of wrappers */
    CKPT__MEND_OBJECTS,        /* opaque objects in plain terms */
    CKPT__MEND_DEVICE_OBJECTS, /* torch.device objects follow the map */
    CKPT__MEND_SALVAGE
} ckpt__mending;

/* One finding that a rewrite mends. The table exists because doctor and migrate must agree on the same codes. All
 * texts are static and none is NULL. */
typedef struct ckpt__mend {
    const char *code; /* the finding's code: "step-on-cpu" */
    ckpt__mending how;
    const char *options; /* options of ckpt-migrate that do the same; "": --fix alone does it */
    const char *what;    /* the change in words, for the note "fix" */
} ckpt__mend;
extern const ckpt__mend ckpt__mends[];
extern const size_t ckpt__mend_count;
/* NULL: no rewrite mends it. */
const ckpt__mend *ckpt__mend_of(const char *code);
#endif
