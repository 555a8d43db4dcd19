/* restore/restoration.h - the parts of a restore: match names, choose places, plan, push, put scalars. */
#ifndef CKPT_RESTORER_H
#define CKPT_RESTORER_H
#include <ckpt/reader.h>
#include <ckpt/restore.h>
#include "anatomy/canon.h"
#include "engine/push.h"
#include "engine/put.h"
#include "reader/reader.h"
#include "state/state.h"

typedef enum ckpt__fate {
    CKPT__TAKEN = 0, /* its content comes from the checkpoint, where that has it */
    CKPT__KEPT,
    CKPT__ZEROED /* it is new in the state, or of what is (ckpt_state_replace) */
} ckpt__fate;

/* No entry, no tensor. */
#define CKPT__NOTHING UINT32_MAX

/* What becomes of one binding. The match fills entry, tensor, fate and like; the placement fills target and cast; the
 * allocation fills data and fresh. So all that can be wrong is known before the first byte of the state changes. There may be a
 * million. */
typedef struct ckpt__item {
    void *data;         /* the place on the target: the caller's, ours as it is, or new */
    ckpt_device target; /* where the tensor is to be after the restore */
    uint32_t entry;     /* canonical entry, or NOTHING: not in the checkpoint */
    uint32_t
        tensor;    /* number in the index, until the bonds are made; NOTHING: a number in the value tree, or nothing */
    uint32_t like; /* KEPT, ZEROED: the tensor of its name in the index, whose tag the rules see;
                                   * NOTHING: none */
    uint8_t fate;  /* a ckpt__fate */
    uint8_t cast;  /* a ckpt_dtype: by a rule or the policy; NONE */
    uint8_t done;  /* a ckpt__copied: of what no bond fills, what became of data (zeros, a number); else UNTOUCHED */
    bool fresh;    /* data is a new allocation (of its own or its arena's) */
} ckpt__item;

/* One scalar with its new value, converted and checked before the first byte moves. */
typedef struct ckpt__pending {
    size_t scalar; /* number in the state; its kind says which member of u counts */
    union {
        double f64;
        float f32;
        int64_t i64;
        int32_t i32;
        uint64_t u64;
        uint32_t u32;
        bool boolean;
    } u;
    ckpt_str text; /* STRING, BYTES; in the reader's index or in the side's memory */
} ckpt__pending;

/* The bytes of one value that hooks take. */
typedef struct ckpt__taken {
    bool found;       /* the checkpoint has the value; false: the hook `take` is not called */
    size_t tensor;    /* number in the index; SIZE_MAX: a value of the tree, whose bytes are `data` */
    const char *data; /* never NULL: `own`, that of an earlier replica, the reader's index, or "" */
    uint64_t size;    /* bytes */
    char *own;        /* heap, owned: what was read for this value; NULL: nothing was */
} ckpt__taken;

/* One state of a restore. A restore has several where replicas take the same checkpoint (ckpt_restore_many): each has
 * its own options and report, and the bytes are read once. All arrays are heap, owned, and NULL until their part of the
 * restore begins.
 *
 * A worked example: the state has bindings w (0), b (1) and head (2). The checkpoint has w and b, which are canonical
 * entries 0 and 1 and tensors 0 and 1, and a tensor "old", which is entry 2 and tensor 2:
 *
 *     items[0].entry = 0, .tensor = 0                  consumed[0] = true
 *     items[1].entry = 1, .tensor = 1                  consumed[1] = true
 *     items[2].entry = .tensor = NOTHING: "missing"   consumed[2] = false: "unexpected" */
typedef struct ckpt__target_state {
    ckpt_state *state;            /* the caller's */
    ckpt_restore_options options; /* a copy; what its pointers point at is the caller's */
    const ckpt_map *map;          /* the caller's, or own_map; NULL: no rules */
    ckpt_map *own_map;            /* owned: parsed from map_location; NULL: the caller gave a map, or no rules */
    ckpt_ranks ranks;             /* of the options; one rank of one where they say nothing */
    ckpt__canon *canon;           /* owned: the checkpoint's tensors and values by their canonical names */
    ckpt_report *report;          /* the caller's, or ours */
    ckpt_report *own_report;      /* owned; NULL: the caller gave one */
    size_t foreseen;              /* findings of the report from this one on say what will have been done */
    ckpt__item *items;            /* one a binding */
    bool *consumed;               /* one a canonical entry */
    bool *replaced;               /* one a binding: it is new in the state, and has another shape in the checkpoint */
    ckpt_str prefix;              /* what the checkpoint has before the names that are missing; data NULL: not found */
    bool prefix_outside;          /* ... and that is no part of the model that was found */
    int prefix_searches;          /* how often a prefix was looked for: each look costs a walk over all entries */
    size_t *groups;               /* number of the canonical group of each group of the state; SIZE_MAX: none */
    ckpt__pending *pending;
    size_t pending_count, pending_capacity;
    ckpt__taken *taken;        /* one a value of the state */
    void **arena_data;         /* new memory of each arena of the state, owned until the state adopts it, or NULL */
    ckpt_device *arena_device; /* one an arena of the state: its target; type NONE: no binding is in it */
    ckpt__arena *memory;       /* owned: what lives as long as the restore */
} ckpt__target_state;

/* Whose place a bond fills: number of the state in the restore, and of the binding in the state. 8 bytes: there may be a million. */
typedef struct ckpt__owner {
    uint32_t state, binding;
} ckpt__owner;

/* The bonds of all states. Bond i fills storage i of `places`. Where the bytes go over as they are it is a bond of storages. All other
 * bonds are of tensors, and each of those has a tensor in `places` that is all of its storage. Two replicas that take tensor w of the checkpoint are
 * two bonds of one source: its bytes are read once. All is heap, owned. */
typedef struct ckpt__restore_bonds {
    ckpt__index *places; /* the memory of the bindings that the checkpoint has a tensor for */
    ckpt__bond *bonds;
    size_t count, bond_capacity;
    ckpt__owner *owners; /* one a bond */
    size_t owner_capacity;
    ckpt__op *ops;
    ckpt__op_want *wants; /* one an op: what it was made of */
    size_t op_count, op_capacity, want_capacity;
    ckpt__plan *plan;
    unsigned char *done; /* one a bond: a ckpt__copied, what became of it */
} ckpt__restore_bonds;

/* One restore of one checkpoint into one or more states. */
typedef struct ckpt__restorer {
    const char *path;    /* the caller's */
    ckpt_reader *reader; /* owned; NULL until it is open */
    ckpt__target_state *sides;
    size_t count; /* heap, owned: one a state, in the caller's order */
    ckpt__restore_bonds bonds;
    ckpt__lanes lanes; /* the queues of all sides, and the buffers that they share */
} ckpt__restorer;

/* Each adds findings to the side's report; a negative status only where the check itself could not be made. */
ckpt_status ckpt__restore_match(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err);
ckpt_status ckpt__restore_scalars(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err);
ckpt_status ckpt__restore_place(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err);
/* shared.c: once all sides have their targets, CKPT_E_MISMATCH where two of them share memory and get different content. */
ckpt_status ckpt__restore_shared(ckpt__restorer *r, ckpt_error *err);
/* Will the binding have new memory? The placement is known. */
bool ckpt__restore_is_new(const ckpt__target_state *side, size_t binding);
/* The number that becomes the tensor of a binding, as its one element. False: it is none. */
bool ckpt__restore_number_of(ckpt__restorer *r, const ckpt__target_state *side, size_t binding,
                             unsigned char bytes[16]);
/* bonds.c: the plan, once each item has its memory; and all bytes to their places (look_only: they are read and checked alone). */
ckpt_status ckpt__restore_bind(ckpt__restorer *r, ckpt_error *err);
/* What the plan found of a tensor's pieces, as a finding of each side that binds the tensor. */
ckpt_status ckpt__restore_not_whole(ckpt__restorer *r, const ckpt_error *why, ckpt_error *err);
ckpt_status ckpt__restore_push(ckpt__restorer *r, bool look_only, ckpt_error *err);
void ckpt__restore_free_bonds(ckpt__restore_bonds *bonds);
/* replace.c: which bindings are new (and "unused-replace"); does the binding keep its value or start at zero: then its
 * item says so; does a name of the checkpoint, or of a scalar, belong to such a parameter in the optimizer (key may be
 * NULL); the note "replaced", false where memory is short. */
ckpt_status ckpt__restore_find_replaced(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err);
bool ckpt__restore_replace(ckpt__target_state *side, size_t binding);
bool ckpt__restore_is_of_replaced(const ckpt__target_state *side, ckpt_str name, ckpt_str param, ckpt_str *key);
bool ckpt__restore_report_replaced(const ckpt__restorer *r, ckpt__target_state *side, size_t binding);
/* The canonical entry of a binding's name, or of an alias of it. */
bool ckpt__target_find(const ckpt__target_state *side, ckpt_str name, size_t *entry);
/* The values of hooks: their hooks are asked; their bytes read, those of side n; handed over, and the state poisoned
 * where a hook does not take its own. */
ckpt_status ckpt__restore_values(ckpt__restorer *r, ckpt__target_state *side, ckpt_error *err);
ckpt_status ckpt__restore_read_values(ckpt__restorer *r, size_t n, ckpt_error *err);
ckpt_status ckpt__restore_take_values(ckpt__target_state *side, ckpt_error *err);
void ckpt__restore_free_values(ckpt__target_state *side);
/* The finding of a value that the checkpoint does not have: as the state and the options permit it. */
ckpt_status ckpt__restore_missing_value(ckpt__target_state *side, ckpt_str name, ckpt_error *err);
/* Adds a finding; CKPT_E_NO_MEMORY when that fails. */
ckpt_status ckpt__target_note(ckpt__target_state *side, ckpt_severity severity, const char *code, const char *tensor,
                              const char *fix, ckpt_error *err, const char *format, ...) CKPT__PRINTF(7, 8);
/* Puts the pending values into the trainer's variables: cannot fail. */
void ckpt__restore_apply_scalars(const ckpt__target_state *side);
/* A number of a checkpoint. One struct has integers and floats because a checkpoint of another program may have either
 * where the state has the other. 3 has is_int, integer 3 and real 3.0; 2.5 has real 2.5 alone. */
typedef struct ckpt__number {
    bool is_int;
    bool natural; /* an integer above INT64_MAX: `large` has it */
    bool beyond;  /* an integer that no variable of 64 bits holds: only `real` says how large */
    double real;  /* the nearest */
    int64_t integer;
    uint64_t large;
} ckpt__number;
enum { CKPT__NUMBER_MAX = CKPT__DOUBLE_MAX };
const char *ckpt__number_text(const ckpt__number *number, char text[CKPT__NUMBER_MAX]);
/* The number as one element of dtype; false where that would change it. A float takes the nearest of a float. */
bool ckpt__restore_element(const ckpt__number *number, ckpt_dtype dtype, unsigned char bytes[16]);
/* A ckpt__block_fn that puts the blocks into the memory `ctx`, each at its offset. */
ckpt_status ckpt__restore_block(void *ctx, uint64_t offset, const void *data, size_t n, ckpt_error *err);
/* A number of the value tree or a one-element tensor. False: no number. */
bool ckpt__restore_number(ckpt__restorer *r, const ckpt__canon_entry *e, ckpt__number *number, ckpt_status *status,
                          ckpt_error *err);
#endif
