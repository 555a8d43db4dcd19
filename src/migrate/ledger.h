/* migrate/ledger.h - the ledger of a migration: a row a tensor, which says what becomes of it and why. Each step of the work
 * is a function on rows: it reads what the steps before it wrote, and writes its own column. */
#ifndef CKPT_MIGRATE_LEDGER_H
#define CKPT_MIGRATE_LEDGER_H
#include "model/index.h"

/* What becomes of a tensor. Those from DROPPED to STACKED stay behind, and their order says so (ckpt__stays_behind). */
typedef enum ckpt__fate {
    CKPT__FATE_GOES,          /* it is written */
    CKPT__FATE_DROPPED,       /* stays behind: --drop, or not among --tensor, --role and --device (select.c) */
    CKPT__FATE_REPLACED,      /* likewise: --replace (replace.c) */
    CKPT__FATE_NOT_RECOVERED, /* likewise: its bytes are not whole (recover.c) */
    CKPT__FATE_NO_WEIGHT,     /* likewise: weights alone are written, and it is none of the model's (weights.c) */
    CKPT__FATE_COUNTED, /* likewise: how many parameters libtorch's optimizer has, which its groups say (naming.c, libtorch.c) */
    CKPT__FATE_RANK_STATE, /* likewise: --rank-state, it is of one rank of several (rank_edit.c) */
    CKPT__FATE_DEAD_STATE, /* likewise: a state of a parameter that no group has (libtorch.c) */
    CKPT__FATE_STACKED, /* likewise: another tensor that is written has it, as one of its layers; or a value does (stack.c) */
    CKPT__FATE_LAID,         /* likewise: --layout, its elements are in other tensors (layout_states.c) */
    CKPT__FATE_TIED,         /* another name of a tensor that is written, which transformers ties again (out.c) */
    CKPT__FATE_IN_STRUCTURE, /* not dense: in what a native file keeps of a torch file, with its parts as tensors (place.c) */
    CKPT__FATE_IN_HEADER, /* a step, which the target says once for all parameters (to_llmc.c) */
    CKPT__FATE_LOST       /* its file cannot hold it, and a finding "lost" says so (place.c, out.c) */
} ckpt__fate;

/* Why a tensor has a storage of its own in the target. */
typedef enum ckpt__own {
    CKPT__OWN_NONE,    /* it has none: it stays in the storage that it was read from */
    CKPT__OWN_JOINED,  /* it was split, and no format that is written keeps pieces */
    CKPT__OWN_CUT,     /* the rest of its storage was lost (recover.c), or goes to other files (resume.c) */
    CKPT__OWN_CAST,    /* it has another dtype */
    CKPT__OWN_STRIDED, /* it has other strides than in the native file: those of the torch file (torch.c) */
    CKPT__OWN_MERGED,  /* it is computed: an adapter is merged into it (adapter_match.c) */
    CKPT__OWN_LAID,    /* --layout has turned or cut it (layout_pieces.c) */
    CKPT__OWN_RESOLVED /* it was conjugate or negated, and the target has no such views */
} ckpt__own;

/* Of one tensor. Its name, role and device tag in the target are those of m->index, once place.c has made it. There may be a
 * million rows.
 *   called    its canonical name in the source, for rules; data NULL: it has none, or no rule asks (ckpt__call_rows)
 *   strides   in elements, those that it had in the torch file whose structure a native file keeps; NULL: C order, or no such
 *             file (torch.c)
 *   entry     1 + the number of the canonical entry that names it in the target, in m->canon while that has entries; 0: none
 *             does (place.c)
 *   first     1 + the number of the tensor that it is another name of; 0: of none, or --cast is not asked for (cast.c) */
typedef struct ckpt__row {
    ckpt_str called;
    const int64_t *strides;
    uint32_t entry, first;
    uint32_t rule;    /* 1 + the number of the --cast that decides about it; 0: none does */
    uint32_t finding; /* 1 + the number of the finding that says what becomes of it; 0: none does */
    uint8_t fate;     /* ckpt__fate */
    uint8_t own;      /* ckpt__own */
    uint8_t dtype;    /* own not CKPT__OWN_NONE: the ckpt_dtype that it has there. Else CKPT_DTYPE_NONE */
    uint8_t cast;     /* the ckpt_dtype that a rule of the map or --cast asks for; CKPT_DTYPE_NONE: as saved */
} ckpt__row;

/* All zero is empty; a row that nothing was said of is all zero, too: CKPT__FATE_GOES, CKPT__OWN_NONE. */
typedef struct ckpt__ledger {
    ckpt__row *rows; /* heap, owned: numbered as the tensors of the source and of the target's index */
    size_t count, capacity;
    size_t read; /* tensors that were read; those from there on were made */
} ckpt__ledger;

bool ckpt__ledger_reach(ckpt__ledger *ledger, size_t count); /* rows for so many tensors at least; false: no memory */
void ckpt__ledger_free(ckpt__ledger *ledger);
/* The codes and words of the public ckpt_migrate_row. NULL: it has none. */
const char *ckpt__fate_code(ckpt__fate fate);
const char *ckpt__fate_why(ckpt__fate fate);
const char *ckpt__own_code(ckpt__own own);
/* How many tensors have this fate? */
size_t ckpt__ledger_count(const ckpt__ledger *ledger, ckpt__fate fate);
#endif
