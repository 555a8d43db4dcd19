/* ckpt/state.h - the live training state: names bound to the trainer's buffers and variables. */
#ifndef CKPT_STATE_H
#define CKPT_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/device.h>
#include <ckpt/error.h>
#include <ckpt/tensor.h>

CKPT_BEGIN_DECLS

/* A state belongs to one thread at a time. It never frees, moves or reallocates the caller's memory. A trainer that does calls
 * ckpt_state_rebind: a bound pointer that was freed is saved without a word, or crashes. */
typedef struct ckpt_state ckpt_state;

ckpt_state *ckpt_state_new(void);        /* NULL when memory is short */
void ckpt_state_free(ckpt_state *state); /* frees the tensors that are ours; accepts NULL */

/* One tensor. Fill it field by field after = CKPT_TENSOR_DESC_INIT; names and shapes are copied. Canonical names: "<param>",
 * "optimizer.<param>.<state_key>", "rng.<...>". With `param` set and an optimizer role, name may be NULL: it is made from
 * param and state_key (exp_avg, exp_avg_sq, max_exp_avg_sq, momentum_buffer, step and master need no state_key). state_key is
 * the optimizer's own key for it: of bitsandbytes "state1" and "state2" (uint8, or float32 for small parameters), "qmap1",
 * "qmap2", "absmax1", "absmax2", as CKPT_ROLE_OPTIM, bound with the dtypes and shapes that they have there; its step is an
 * int: ckpt_state_i64 of "optimizer.<param>.step", or a CKPT_ROLE_STEP tensor. For the name that a file gives each of its tensors see
 * ckpt_naming_new (<ckpt/naming.h>); ckpt-inspect list prints their dtypes and shapes. */
typedef struct ckpt_tensor_desc {
    uint32_t struct_size; /* by the initializer */
    const char *name;
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;   /* ndim entries; may be NULL for ndim 0 */
    const int64_t *strides; /* in elements; NULL: C order. Zero or overlapping strides are refused. */
    ckpt_role role;
    const char *param; /* what it belongs to: it takes that parameter's target device. Of a CKPT_ROLE_EMA without a
                                   * name it makes the name, "ema.<param>" */
    const char *state_key;
    void *data;         /* the caller's buffer, host or device, any interior pointer. NULL: ours, made on
                                   * the target device at restore (or by ckpt_state_allocate) */
    ckpt_device device; /* ours: where it is made when no map says; NONE: cpu. The caller's: ignored, the
                                   * driver is asked */
} ckpt_tensor_desc;
#define CKPT_TENSOR_DESC_INIT CKPT_SIZED(ckpt_tensor_desc)

/* CKPT_E_ARGUMENT: bad or duplicate name, shape, dtype, strides; CKPT_E_MISMATCH: overlaps a bound tensor that is not a
 * declared alias; CKPT_E_DEVICE; CKPT_E_NO_MEMORY. */
ckpt_status ckpt_state_tensor(ckpt_state *state, const ckpt_tensor_desc *desc, ckpt_error *err);

/* One allocation, n names with offsets into it. For CKPT_ROLE_PARAM, CKPT_ROLE_BUFFER and CKPT_ROLE_OTHER entry names are
 * tensor names; for optimizer roles and for CKPT_ROLE_EMA they are the parameters' names. data NULL: ours, one allocation on
 * the target device. */
typedef struct ckpt_arena_desc {
    uint32_t struct_size; /* by the initializer */
    void *data;           /* the caller's allocation, host or device; NULL: ours */
    uint64_t nbytes;      /* of the whole allocation */
    ckpt_dtype dtype;
    ckpt_role role;
    const char *state_key; /* for CKPT_ROLE_OPTIM; else NULL will do */
    ckpt_device device;    /* as ckpt_tensor_desc.device */
    const char *name;      /* of the arena, for ckpt_state_rebind; it is in no file, and no other thing of the state has
                                   * it. NULL: the arena cannot be bound again. Of CKPT_ROLE_EMA also what stands before the
                                   * parameter's name: "ema" (and NULL) makes "ema.<param>" */
} ckpt_arena_desc;
/* The struct never grows: an arena takes an array of it. */
typedef struct ckpt_arena_entry {
    const char *name; /* of the tensor, or of its parameter (above) */
    uint64_t offset;  /* bytes, a multiple of the element size */
    uint32_t ndim;
    const int64_t *shape;
} ckpt_arena_entry;
#define CKPT_ARENA_DESC_INIT CKPT_SIZED(ckpt_arena_desc)
ckpt_status ckpt_state_arena(ckpt_state *state, const ckpt_arena_desc *arena, const ckpt_arena_entry *entries, size_t n,
                             ckpt_error *err);

/* `name` is a second name of `of` (tied weights): stored once, restored once. A restore fails (tie-broken) where the
 * checkpoint has different values under the two; a checkpoint with only one of the two is accepted. */
ckpt_status ckpt_state_alias(ckpt_state *state, const char *name, const char *of, ckpt_error *err);

/* A parameter group: the parameters in the optimizer's order, and its hyper-parameters as the trainer's variables
 * (borrowed until the state is freed; read at save, written at restore). Canonical names
 * "optimizer.groups.<name>.<key>"; a list such as betas is two hypers "betas.0", "betas.1". */
typedef enum ckpt_scalar_type {
    CKPT_SCALAR_F32 = 1,
    CKPT_SCALAR_F64,
    CKPT_SCALAR_I32,
    CKPT_SCALAR_I64,
    CKPT_SCALAR_BOOL,
    CKPT_SCALAR_U32,
    CKPT_SCALAR_U64
} ckpt_scalar_type;
/* The struct never grows: a group has an array of it. */
typedef struct ckpt_hyper {
    const char *key; /* "lr", "betas.0", "weight_decay", "fused", ... */
    ckpt_scalar_type type;
    void *data; /* the trainer's variable, of that type */
} ckpt_hyper;
typedef struct ckpt_group_desc {
    uint32_t struct_size; /* by the initializer */
    const char *name;     /* "0", "decay", ...: the file's group that has the same parameters, in whatever order and
                                   * under whatever name, is this one; among several such the one of this name */
    const char *const *params;
    size_t param_count;
    const ckpt_hyper *hypers;
    size_t hyper_count;
} ckpt_group_desc;
#define CKPT_GROUP_DESC_INIT CKPT_SIZED(ckpt_group_desc)
ckpt_status ckpt_state_group(ckpt_state *state, const ckpt_group_desc *group, ckpt_error *err);

/* Scalars: pointers to the trainer's variables, borrowed until the state is freed or they are bound again. At restore a
 * binding accepts an int, float, bool or 0-d tensor that it can represent exactly. `step` bound over a file that only has one
 * step per parameter takes those, if all are equal. */
ckpt_status ckpt_state_i64(ckpt_state *state, const char *name, int64_t *value, ckpt_error *err);
ckpt_status ckpt_state_i32(ckpt_state *state, const char *name, int32_t *value, ckpt_error *err);
ckpt_status ckpt_state_u32(ckpt_state *state, const char *name, uint32_t *value, ckpt_error *err);
ckpt_status ckpt_state_u64(ckpt_state *state, const char *name, uint64_t *value, ckpt_error *err); /* a size_t, too */
ckpt_status ckpt_state_f64(ckpt_state *state, const char *name, double *value, ckpt_error *err);
ckpt_status ckpt_state_f32(ckpt_state *state, const char *name, float *value, ckpt_error *err);
ckpt_status ckpt_state_bool(ckpt_state *state, const char *name, bool *value, ckpt_error *err);
/* A NUL-terminated string in a buffer of `size` bytes; a longer one in the file is a mismatch. */
ckpt_status ckpt_state_string(ckpt_state *state, const char *name, char *buffer, size_t size, ckpt_error *err);
/* Exactly `size` bytes (an RNG's state: name it "rng" or "rng.<...>"). In other programs' files a tensor of uint8 fills it
 * too, under its own key path: torch.get_rng_state() has 5056 bytes. */
ckpt_status ckpt_state_bytes(ckpt_state *state, const char *name, void *data, size_t size, ckpt_error *err);

/* ---- memory that moves, and values that grow */

/* The trainer's memory moved: from now on the name means `data`, with the same dtype, shape and strides as before. `name` is
 * that of a tensor (or an alias of it) or a value (its variable; of a ckpt_scaler the struct), or of an arena
 * (ckpt_arena_desc.name), whose entries all move with it. The memory may lie on another device than before. `data` NULL says
 * "not now": saves and restores refuse the state by that name until it is bound again, because freed memory cannot be told
 * from memory that is in use, and NULL can. Call it before the old memory is freed, or right after. A save that is still
 * being written (asynchronously) has its own copy and is not concerned.
 *   CKPT_E_NOT_FOUND: nothing of that name is bound. CKPT_E_MISMATCH: the new memory overlaps another tensor's.
 * CKPT_E_ARGUMENT: the tensor is ours (bound with data NULL), or lies in an arena: bind that one again. CKPT_E_DEVICE: the
 * memory is split, or is a device address outside any allocation. After an error the name means what it meant before. */
ckpt_status ckpt_state_rebind(ckpt_state *state, const char *name, void *data, ckpt_error *err);

/* The same for ckpt_state_bytes and ckpt_state_string, with another size: what the next save writes, and what a restore has room
 * for. data NULL: not now; the size is then what a restore expects once it is bound again. CKPT_E_ARGUMENT: the name is of
 * another kind; CKPT_E_NOT_FOUND. */
ckpt_status ckpt_state_resize(ckpt_state *state, const char *name, void *data, size_t size, ckpt_error *err);

/* A value that the trainer writes and takes itself, of whatever size it has at the time: a data loader's order, a replay
 * buffer, the state of a generator. In the file it is a one-dimensional tensor of uint8. The hooks are called on the thread
 * that calls save or restore, and may not call functions of the state. A hook answers CKPT_OK or a negative status, with `err`
 * (never NULL) filled in or left alone; the call that it was called from then fails with it, and the message names the value. */
typedef struct ckpt_value_hooks {
    uint32_t struct_size; /* by the initializer */
    void *ctx;            /* the first argument of each hook; borrowed until ckpt_state_free */

    /* At a save, before anything is written: sets the number of bytes. A save of the weights alone does not call it. */
    ckpt_status (*measure)(void *ctx, uint64_t *size, ckpt_error *err);

    /* At a save: writes `size` bytes into memory of the library, before the call returns, also of an asynchronous save. */
    ckpt_status (*write)(void *ctx, void *to, size_t size, ckpt_error *err);

    /* At a restore, before its first byte: would that many bytes do? Negative: a mismatch in the report. NULL: any size
     * will do. */
    ckpt_status (*check)(void *ctx, size_t size, ckpt_error *err);

    /* At a restore, last of all, when every CRC was right: takes the bytes. Negative: the restore fails and the state is
     * poisoned. */
    ckpt_status (*take)(void *ctx, const void *from, size_t size, ckpt_error *err);
} ckpt_value_hooks;
#define CKPT_VALUE_HOOKS_INIT CKPT_SIZED(ckpt_value_hooks)
/* The struct is copied. measure, write and take are needed. A file in which the name is a bytes value or a tensor of uint8 or
 * int8 gives its bytes to take. An error of a hook fails the call with its status and the value's name; any other answer than
 * CKPT_OK counts as CKPT_E_ARGUMENT. In a ckpt_restore_many each state's hooks are called, with the same bytes. */
ckpt_status ckpt_state_value(ckpt_state *state, const char *name, const ckpt_value_hooks *hooks, ckpt_error *err);

/* The same for the commonest case, an array that the trainer allocates with malloc and frees and allocates again as it likes:
 * a loader's order. `pointer` is the address of the trainer's pointer variable (an int **, say), `count` that of its number
 * of elements, `item` the size of one in bytes. Both variables are borrowed until the state is freed, and read at each save:
 * NULL and 0 are an empty array. A restore gives the array the length that the checkpoint has, with realloc, and sets both.
 * The bytes are stored as they lie. CKPT_E_ARGUMENT. */
ckpt_status ckpt_state_array(ckpt_state *state, const char *name, void *pointer, size_t *count, size_t item,
                             ckpt_error *err);

/* torch's GradScaler, in torch's terms. The struct is the trainer's own variable, and never grows. Stored as scaler.scale,
 * scaler.growth_factor, scaler.backoff_factor, scaler.growth_interval, scaler._growth_tracker. */
typedef struct ckpt_scaler {
    double scale, growth_factor, backoff_factor;
    int64_t growth_interval, growth_tracker;
} ckpt_scaler;
#define CKPT_SCALER_INIT                                                                                               \
    {                                                                                                                  \
        65536.0, 2.0, 0.5, 2000, 0                                                                                     \
    }
ckpt_status ckpt_state_scaler(ckpt_state *state, const char *name, ckpt_scaler *scaler, ckpt_error *err);

/* Names (a glob: '*' crosses dots) that a checkpoint need not have: they then keep their value, and are reported as
 * notes of code "kept". For what other programs' checkpoints cannot hold, such as this trainer's own RNG. */
ckpt_status ckpt_state_optional(ckpt_state *state, const char *glob, ckpt_error *err);

/* Names (a glob, as above) of tensors that are new in this state although the checkpoint has tensors of those names in
 * another shape: a classifier's head for other classes. Where the shapes differ the tensor keeps its value and goes to its
 * target device, what belongs to it in the optimizer starts anew (zero bytes; its step is 0), and the report has a
 * note of code "replaced" for each. All other tensors are restored as ever, although the saved optimizer still counts the old
 * ones. Of what belongs to it these keep the trainer's value, since zero would be wrong: its CKPT_ROLE_MASTER and
 * CKPT_ROLE_EMA (copies of the weights: give them the new weights before the restore), and mu_product, mu, eta and step_size
 * (of NAdam, ASGD and Rprop). The tables of 8-bit codes (qmap1, qmap2) do not depend on the parameter and are restored.
 *   Where the shapes are equal nothing is replaced, so a run's own later checkpoints come back whole; a difference in dtype
 * alone is an error, as ever. The globs are for parameters and other tensors of the model; those of the optimizer follow. A
 * glob that matches none that is bound is the error "unused-replace" of the restore. */
ckpt_status ckpt_state_replace(ckpt_state *state, const char *glob, ckpt_error *err);

/* The trainer's stream (a CUstream or cudaStream_t; NULL is the legacy default stream) on a device: our copies wait
 * for what is queued there, and what is queued there afterwards waits for ours. Without it save begins and restore
 * ends by synchronizing each device that holds a bound tensor. Managed memory has no device of its own: wait for the
 * kernels that use it yourself. */
ckpt_status ckpt_state_stream(ckpt_state *state, ckpt_device device, void *stream, ckpt_error *err);

/* Allocates what is ours and has no memory yet, on `device` of its descriptor, zeroed (a run that starts fresh). */
ckpt_status ckpt_state_allocate(ckpt_state *state, ckpt_error *err);

/* The tensor's memory now (ours may move at restore), its device; NULL / NONE where unknown or not yet made. */
void *ckpt_state_data(const ckpt_state *state, const char *name);
ckpt_device ckpt_state_device(const ckpt_state *state, const char *name);
size_t ckpt_state_tensor_count(const ckpt_state *state);
const char *ckpt_state_tensor_name(const ckpt_state *state, size_t i);
bool ckpt_state_poisoned(const ckpt_state *state);

CKPT_END_DECLS
#endif
