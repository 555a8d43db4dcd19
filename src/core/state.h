/* core/state.h - what a state holds. */
#ifndef CKPT_STATE_INTERNAL_H
#define CKPT_STATE_INTERNAL_H
#include <ckpt/map.h>
#include <ckpt/state.h>
#include "base/base.h"
#include "core/strided.h"

typedef struct ckpt__binding {
    ckpt_str name;                /* canonical */
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape, *strides;      /* elements; never NULL for ndim > 0 */
    ckpt_role role;
    ckpt_str param, state_key;    /* data NULL: none */
    void *data;
    bool ours;
    ckpt_device wanted;           /* ours: of the descriptor */
    ckpt_memory memory;           /* where data lies */
    uint64_t nbytes;              /* numel x itemsize */
    uint64_t span;                /* bytes from the first to past the last element */
    size_t arena;                 /* of ours: number of the arena, or SIZE_MAX */
    uint64_t arena_offset;
} ckpt__binding;

typedef struct ckpt__state_arena {       /* ours: one allocation of several bindings */
    void *data;
    uint64_t nbytes;
    ckpt_device wanted, device;
} ckpt__state_arena;

typedef enum ckpt__scalar_kind {
    CKPT__S_F32 = CKPT_SCALAR_F32, CKPT__S_F64, CKPT__S_I32, CKPT__S_I64, CKPT__S_BOOL, CKPT__S_STRING, CKPT__S_BYTES
} ckpt__scalar_kind;

typedef struct ckpt__scalar {
    ckpt_str name;                /* canonical; of a hyper-parameter: its key */
    ckpt__scalar_kind kind;
    void *data;
    size_t size;                  /* STRING, BYTES */
    size_t group;                 /* of a hyper-parameter: number of the group; else SIZE_MAX */
} ckpt__scalar;

typedef struct ckpt__group {
    ckpt_str name;
    ckpt_str *params; size_t param_count;
} ckpt__group;

typedef struct ckpt__alias { ckpt_str name, of; } ckpt__alias;
typedef struct ckpt__state_stream { ckpt_device device; void *stream; } ckpt__state_stream;
typedef struct ckpt__span ckpt__span;

struct ckpt_state {
    ckpt__arena *memory;          /* names and shapes */
    ckpt__hash *names;            /* of tensors, aliases and scalars: for duplicates and lookups */
    ckpt__binding *bindings; size_t count, capacity;
    ckpt__scalar *scalars; size_t scalar_count, scalar_capacity;
    ckpt__group *groups; size_t group_count, group_capacity;
    ckpt__alias *aliases; size_t alias_count, alias_capacity;
    ckpt__state_arena *arenas; size_t arena_count, arena_capacity;
    ckpt__state_stream *streams; size_t stream_count, stream_capacity;
    ckpt_str *optional; size_t optional_count, optional_capacity;
    ckpt__span *spans;            /* who lies where: overlap.c */
    bool poisoned;
};

/* A name in `names` is the number of a binding, or past that kind's base the number of an alias or scalar. */
enum { CKPT__ALIAS_BASE = 1 << 30 };
#define CKPT__SCALAR_BASE ((size_t)1 << 31)

/* The binding of a name or of what it is an alias of; NULL: none. */
ckpt__binding *ckpt__state_find(const ckpt_state *state, const char *name, size_t n);
bool ckpt__state_is_optional(const ckpt_state *state, ckpt_str name);
/* "optimizer.groups.<g>.<key>" of a hyper-parameter, its own name of another scalar; appended to b. */
void ckpt__scalar_name(const ckpt_state *state, const ckpt__scalar *s, ckpt__buf *b);
/* Refuses memory that is split over allocations or not mapped, and ours that is not yet there. */
ckpt_status ckpt__state_check_memory(const ckpt_state *state, const ckpt__binding *b, ckpt_error *err);
/* Zeroed memory on a device, and giving it back (NULL is fine). */
ckpt_status ckpt__memory_new(ckpt_device device, uint64_t nbytes, void **data, ckpt_error *err);
void ckpt__memory_release(ckpt_device device, void *data);
/* Where the bytes lie as a device: cpu for host and pinned, and for managed, which the host reaches too. */
ckpt_device ckpt__memory_device(const ckpt_memory *m);

/* overlap.c: CKPT_E_MISMATCH naming both where the new binding's bytes are another's. Adds it otherwise. */
ckpt_status ckpt__spans_add(ckpt_state *state, size_t binding, ckpt_error *err);
void ckpt__spans_free(ckpt__span *spans);
#endif
