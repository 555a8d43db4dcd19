/* state/state.h - what a state holds. */
#ifndef CKPT_STATE_INTERNAL_H
#define CKPT_STATE_INTERNAL_H
#include <ckpt/map.h>
#include <ckpt/report.h>
#include <ckpt/state.h>
#include "base/base.h"
#include "base/strided.h"
#include "device/device.h"

#define CKPT__NO_ARENA UINT32_MAX

/* One bound tensor: the name by which a checkpoint knows the tensor, and the place of its elements. Memory has three
 * kinds of owner: the caller (ours false), the binding itself (ours true, arena NO_ARENA), or an arena of the state
 * (ours true, arena is its number).
 *
 * nbytes counts the elements and span counts the memory between the first and the last one. A float32 tensor of shape 3
 * x 4 in C order has nbytes 48 and span 48. The same shape with strides {6, 1} (4 of 6 columns) has nbytes 48, and its
 * last element is element 2 * 6 + 3 = 15: span is 16 * 4 = 64. A checkpoint has 48 bytes of either. */
typedef struct ckpt__binding {
    ckpt_str name; /* canonical; in the state's memory, as are shape, strides, param and state_key */
    ckpt_dtype dtype;
    ckpt_role role;
    const int64_t *shape, *strides; /* elements; never NULL for ndim > 0 */
    ckpt_str param, state_key;      /* data NULL: none */
    void *data;                     /* the first element; NULL: the caller's is away, or ours is not yet allocated */
    uint16_t ndim;                  /* CKPT__STRIDED_MAX at most */
    bool ours;                      /* it was bound with data NULL, so the state owns the memory */
    bool away;                      /* the caller's, bound to NULL for now: neither saved nor restored */
    ckpt_memory memory;             /* where data lies, as the driver said when it was bound or moved */
    ckpt_device wanted;             /* ours: of the descriptor */
    uint32_t arena;                 /* of ours: number of the arena, or NO_ARENA */
    uint32_t lent;                  /* of the caller's: number of the arena, or NO_ARENA */
    uint64_t nbytes;                /* numel x itemsize */
    uint64_t span;                  /* bytes from the first to past the last element */
    uint64_t arena_offset;          /* bytes, in either; 0 without an arena */
} ckpt__binding;

/* An arena of ours: one allocation of several bindings. It exists for trainers that keep tensors in one
 * flat buffer. Bindings a (24 bytes at offset 0) and b (40 bytes at offset 64) of an arena of 128 bytes
 * have data + 0 and data + 64; the bytes between them belong to nobody. */
typedef struct ckpt__state_arena {
    void *data;                 /* owned; NULL: not yet allocated */
    uint64_t nbytes;            /* of the allocation */
    ckpt_device wanted, device; /* of the descriptor (type NONE: no wish); where data is */
} ckpt__state_arena;

/* An arena of the caller's: one allocation of several bindings, which move together. The bindings have the addresses;
 * the struct says which bindings they are, for ckpt_state_rebind. */
typedef struct ckpt__lent {
    ckpt_str name;       /* in the state's memory; data NULL: it has none */
    uint64_t nbytes;     /* of the allocation */
    size_t first, count; /* numbers of its bindings: they were bound in one call */
} ckpt__lent;

typedef enum ckpt__scalar_kind {
    CKPT__S_F32 = CKPT_SCALAR_F32,
    CKPT__S_F64,
    CKPT__S_I32,
    CKPT__S_I64,
    CKPT__S_BOOL,
    CKPT__S_U32,
    CKPT__S_U64,
    CKPT__S_STRING,
    CKPT__S_BYTES
} ckpt__scalar_kind;

/* One variable of the trainer that is saved as a value: a number, a string or bytes. The state has the address and no
 * copy: a save reads the variable, a restore writes it. */
typedef struct ckpt__scalar {
    ckpt_str name; /* canonical; of a hyper-parameter: its key */
    ckpt__scalar_kind kind;
    void *data;   /* the trainer's variable; NULL: not now (ckpt_state_rebind) */
    size_t size;  /* STRING, BYTES: bytes of the trainer's buffer; a string's NUL needs one of them */
    size_t group; /* of a hyper-parameter: number of the group; else SIZE_MAX */
    bool scaler;  /* a member of a ckpt_scaler */
} ckpt__scalar;

/* A value that the trainer writes and takes itself, by hooks: its size is known only when it is saved. */
typedef struct ckpt__valued {
    ckpt_str name;          /* in the state's memory */
    ckpt_value_hooks hooks; /* a copy; ctx is the trainer's */
    uint64_t last;          /* bytes at the last save: what the next one is expected to take; 0: none yet */
} ckpt__valued;

/* A parameter group of the optimizer: its parameters, in the optimizer's order. Its hyper-parameters are scalars with
 * the number of the group. All is in the state's memory. */
typedef struct ckpt__group {
    ckpt_str name;
    ckpt_str *params;
    size_t param_count;
} ckpt__group;

/* A second name of a bound tensor (tied weights); `of` is the name of the binding. Both are in the state's memory. */
typedef struct ckpt__alias {
    ckpt_str name, of;
} ckpt__alias;
typedef struct ckpt__span ckpt__span; /* overlap.c */

/* All that a trainer has bound. The arrays are heap, owned, and move as they grow: other structs keep numbers of their
 * rows. A row is never taken out, so its number stays.
 *
 * `names` has one number for each name, and the number says the kind: after a tensor w, a second tensor b, an alias
 * "tied" of w and the scalar "step", it has w -> 0, b -> 1, tied -> CKPT__ALIAS_BASE + 0 and step -> CKPT__SCALAR_BASE
 * + 0. */
struct ckpt_state {
    ckpt__arena *memory;  /* owned: names and shapes */
    ckpt__hash *names;    /* owned: of everything bound, and of arenas: for duplicates and lookups */
    ckpt__last_view view; /* of the bindings; in `memory` */
    ckpt__binding *bindings;
    size_t count, capacity;
    ckpt__scalar *scalars;
    size_t scalar_count, scalar_capacity;
    ckpt__valued *values;
    size_t value_count, value_capacity;
    ckpt__group *groups;
    size_t group_count, group_capacity;
    ckpt__alias *aliases;
    size_t alias_count, alias_capacity;
    ckpt__state_arena *arenas;
    size_t arena_count, arena_capacity;
    ckpt__lent *lent;
    size_t lent_count, lent_capacity;
    ckpt__caller_stream *streams;
    size_t stream_count, stream_capacity; /* the trainer's: one a device */
    ckpt_str *optional;
    size_t optional_count, optional_capacity; /* globs of ckpt_state_optional */
    ckpt_str *replace;
    size_t replace_count, replace_capacity; /* globs of ckpt_state_replace */
    ckpt__span *spans; /* owned: who lies where (overlap.c); NULL: no memory is bound yet, or spans_lost */
    bool spans_lost;   /* they could not be put back for want of memory: they are made anew at the next
                                   * bind */
    uint64_t version;  /* another number after each change of what is bound, and where (ckpt__state_changed) */
    bool poisoned;     /* a restore failed midway: the state holds a mixture, and no save takes it */
};

/* What is bound has changed, or lies elsewhere: the state gets a version that no state of this process had. Whoever knows a state by
 * its version need not look at its bindings again. */
void ckpt__state_changed(ckpt_state *state);

/* The trainer's streams, for ckpt__lanes_get. */
static inline ckpt__caller_streams ckpt__state_streams(const ckpt_state *state)
{
    return (ckpt__caller_streams){state->streams, state->stream_count};
}

/* A name in `names` is the number of a binding, or past its kind's base the number of another thing. */
enum { CKPT__ALIAS_BASE = 1 << 30 };
#define CKPT__SCALAR_BASE ((size_t)1 << 31)
#define CKPT__LENT_BASE ((size_t)1 << 32)  /* the caller's arenas */
#define CKPT__ARENA_BASE ((size_t)1 << 33) /* ours */
#define CKPT__VALUE_BASE ((size_t)1 << 34) /* of hooks */

/* The binding of a name or of what it is an alias of; NULL: none. */
ckpt__binding *ckpt__state_find(const ckpt_state *state, const char *name, size_t n);
/* Has the state a parameter, a buffer or an alias; and is this name one of theirs? For ckpt__canon_hints, as the next one. */
bool ckpt__state_has_weights(const ckpt_state *state);
bool ckpt__state_wants(const void *state, ckpt_str name);
/* Does the ckpt_state bind this name in this shape? For ckpt__canon_hints: a program that does knows its optimizer
 * (GaLore's moments are of a projection, ...). */
bool ckpt__state_binds_so(const void *state, ckpt_str name, const ckpt_tensor_info *info);
/* The scalar of a name; NULL: none. */
ckpt__scalar *ckpt__state_scalar(const ckpt_state *state, const char *name, size_t n);
bool ckpt__state_is_optional(const ckpt_state *state, ckpt_str name);
/* "optimizer.groups.<g>.<key>" of a hyper-parameter, its own name of another scalar; appended to b. */
void ckpt__scalar_name(const ckpt_state *state, const ckpt__scalar *s, ckpt__buf *b);
/* The value of an integer variable; one above INT64_MAX counts as INT64_MAX. False: it is no integer, or not bound
 * now. */
bool ckpt__scalar_integer(const ckpt__scalar *s, int64_t *value);
/* The variable bound as `step`, where it is an integer. */
bool ckpt__state_step(const ckpt_state *state, int64_t *value);
/* CKPT_E_ARGUMENT: a name that cannot be bound. what: the object of the message. */
ckpt_status ckpt__state_check_name(ckpt_str name, const char *what, ckpt_error *err);
/* CKPT_E_ARGUMENT: a tensor, where those are asked for, or a variable, likewise, was bound to NULL (ckpt_state_rebind). */
ckpt_status ckpt__state_check_bound(const ckpt_state *state, bool tensors, bool values, ckpt_error *err);
/* What a hook answered as a status: an error names the value, whatever the hook has put into `own`. */
ckpt_status ckpt__hook_answer(const ckpt__valued *value, const char *hook, ckpt_status status, ckpt_error *own,
                              ckpt_error *err);
/* Memory for a value's bytes, never NULL, for the caller to free. */
ckpt_status ckpt__hook_room(const ckpt__valued *value, uint64_t size, char **data, ckpt_error *err);
/* The value now: measured, and written into memory for the caller to free. */
ckpt_status ckpt__hook_write(ckpt__valued *value, char **data, uint64_t *size, ckpt_error *err);
/* Refuses memory that is split over allocations or not mapped, and ours that is not yet there. */
ckpt_status ckpt__state_check_memory(const ckpt_state *state, const ckpt__binding *b, ckpt_error *err);
/* The same, and of the caller's device memory the driver is asked again: it may have been freed since it was bound. Once for all
 * bindings in one allocation that follow each other: known is all zero at the first of them. */
ckpt_status ckpt__state_check_now(const ckpt_state *state, const ckpt__binding *b, ckpt__known *known, ckpt_error *err);
/* Zeroed memory on a device, and giving it back (NULL is fine). */
ckpt_status ckpt__memory_new(ckpt_device device, uint64_t nbytes, void **data, ckpt_error *err);
void ckpt__memory_release(ckpt_device device, void *data);
/* Where the bytes lie as a device: cpu for host and pinned, and for managed, which the host reaches too. */
ckpt_device ckpt__memory_device(const ckpt_memory *m);

/* whole.c: a warning "moments-incomplete" for each group of parameters that lack a moment, or a step, which their peers
 * have. */
ckpt_status ckpt__state_moments(const ckpt_state *state, ckpt_report *report, ckpt_error *err);

/* overlap.c: do two bindings that have their memory share a byte? 1: yes; 0: no; -1: no memory to tell. */
int ckpt__bindings_touch(const ckpt__binding *a, const ckpt__binding *b);
/* CKPT_E_MISMATCH naming both where the new binding's bytes are another's. Adds it otherwise. */
ckpt_status ckpt__spans_add(ckpt_state *state, size_t binding, ckpt_error *err);
/* Takes bindings [first, first + count) out and gives them the places in `to`, one a binding. After a failure they have
 * the places of before. */
typedef struct ckpt__place_of {
    void *data;
    ckpt_memory memory;
} ckpt__place_of;
ckpt_status ckpt__spans_move(ckpt_state *state, size_t first, size_t count, const ckpt__place_of *to, ckpt_error *err);
void ckpt__spans_free(ckpt__span *spans);
#endif
