/* ckpt/tensor.h - dtypes, roles, and what is known of a tensor without reading it. */
#ifndef CKPT_TENSOR_H
#define CKPT_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ckpt/error.h>

CKPT_BEGIN_DECLS

/* Bytes with a length. `data` is always followed by a NUL that `size` does not count, but may hold NULs itself
 * (names come from files). data NULL: unknown. The struct never grows. */
typedef struct ckpt_str {
    const char *data;
    size_t size;
} ckpt_str;

/* torch's dtypes. Values are stable; new ones are added at the end (ckpt_dtype_count). Files hold names, never these values. */
typedef enum ckpt_dtype {
    CKPT_DTYPE_NONE = 0,
    CKPT_F32,
    CKPT_F64,
    CKPT_F16,
    CKPT_BF16,
    CKPT_F8_E4M3,
    CKPT_F8_E5M2,
    CKPT_F8_E4M3FNUZ,
    CKPT_F8_E5M2FNUZ,
    CKPT_F8_E8M0,
    CKPT_F4_E2M1_X2, /* float4_e2m1fn_x2: two values a byte; shapes count bytes, as torch does */
    CKPT_I8,
    CKPT_I16,
    CKPT_I32,
    CKPT_I64,
    CKPT_U8,
    CKPT_U16,
    CKPT_U32,
    CKPT_U64,
    CKPT_BOOL,
    CKPT_C32,
    CKPT_C64,
    CKPT_C128, /* complex32, complex64, complex128: bits of both parts */
    CKPT_QI8,
    CKPT_QU8,
    CKPT_QI32,
    CKPT_QU4X2,
    CKPT_QU2X4,
    CKPT_BITS8,
    CKPT_BITS16,
    CKPT_BITS1X8,
    CKPT_BITS2X4,
    CKPT_BITS4X2,
    CKPT_F6_E2M3,
    CKPT_F6_E3M2, /* safetensors only: 6 bits an element */
    CKPT_F4       /* safetensors F4: 4 bits an element, shapes logical */
} ckpt_dtype;

int ckpt_dtype_count(void);                        /* the dtypes that this library knows are 0 .. count - 1 */
const char *ckpt_dtype_name(ckpt_dtype dtype);     /* torch's: "float32", "bfloat16", ...; "none" */
ckpt_dtype ckpt_dtype_from_name(const char *name); /* torch's name, or CKPT_DTYPE_NONE */
unsigned ckpt_dtype_bits(ckpt_dtype dtype);        /* of an element; 0 for NONE */
size_t ckpt_dtype_size(ckpt_dtype dtype);          /* bytes of an element; 0 where an element is not whole bytes */
bool ckpt_dtype_is_float(ckpt_dtype dtype);        /* torch's is_floating_point */

/* The part that a tensor has in training. Values are stable; new ones are added at the end (ckpt_role_count). */
typedef enum ckpt_role {
    CKPT_ROLE_NONE = 0,
    CKPT_ROLE_PARAM,
    CKPT_ROLE_BUFFER,
    CKPT_ROLE_GRAD,
    CKPT_ROLE_EXP_AVG,
    CKPT_ROLE_EXP_AVG_SQ,
    CKPT_ROLE_MAX_EXP_AVG_SQ,
    CKPT_ROLE_MOMENTUM,
    CKPT_ROLE_OPTIM, /* any other optimizer tensor: state_key has its name */
    CKPT_ROLE_MASTER,
    CKPT_ROLE_EMA,
    CKPT_ROLE_STEP,
    CKPT_ROLE_SCALER,
    CKPT_ROLE_RNG,
    CKPT_ROLE_OTHER
} ckpt_role;

int ckpt_role_count(void);                       /* the roles that this library knows are 0 .. count - 1 */
const char *ckpt_role_name(ckpt_role role);      /* "param", "exp_avg", ..., "none" */
ckpt_role ckpt_role_from_name(const char *name); /* CKPT_ROLE_NONE where unknown */
bool ckpt_role_is_optimizer(ckpt_role role);     /* exp_avg ... optim, master, step */

/* One step of a key path: a string key (text set) or an integer key or position (text.data NULL). Other keys (bool,
 * float, tuple, ...) are Python's repr in `text`, with `other` set. The struct never grows. */
typedef struct ckpt_key {
    ckpt_str text;
    int64_t number;
    bool other;
} ckpt_key;

/* The steps from the root. The struct never grows. */
typedef struct ckpt_path {
    const ckpt_key *keys;
    size_t count;
} ckpt_path;

/* Properties of few tensors: those that are not dense, are quantized, are DTensors, or have a class of their own. The library
 * makes the struct; it may grow. */
typedef struct ckpt_tensor_extra {
    ckpt_str layout;     /* "sparse_coo", ...; data NULL: dense */
    ckpt_str quantizer;  /* "per_tensor_affine", ...; data NULL: not quantized */
    ckpt_str placements; /* DTensor: "Shard(dim=0)", "dp: Shard(dim=0), tp: Replicate()"; data NULL: none */
    ckpt_str class_name; /* "torch.nn.parameter.Parameter", ...; data NULL: plain tensor */
    /* Of a tensor that is not dense: sparse_coo "indices" (sparse dimensions, nnz), "values"; sparse_csr, _csc, _bsr, _bsc
     * "compressed" (crow, or ccol), "plain" (col, or row), "values"; nested "values", "sizes", "strides", "offsets"; by channel
     * quantized "scales", "zero_points"; of a subclass that wraps tensors its attributes. Their names are <name>.<part>, and
     * each is a tensor of the reader as well. */
    const struct ckpt_tensor_info *const *parts;
    size_t part_count;
} ckpt_tensor_extra;

/* A tensor of a checkpoint. All pointers are borrowed until the reader that gave them is closed. The library makes the struct;
 * it may grow. */
typedef struct ckpt_tensor_info {
    ckpt_str name;  /* key path joined by '.' */
    ckpt_path path; /* count 0: the format has flat names, or the root itself is the tensor */
    ckpt_dtype dtype;
    uint32_t ndim;
    const int64_t *shape;   /* ndim entries, all >= 0 */
    const int64_t *strides; /* elements; NULL where the tensor lies in pieces or is not dense */
    int64_t offset;         /* elements into the storage */
    uint64_t nbytes;        /* numel x itemsize (rounded up to whole bytes): the size to read */
    ckpt_str device;        /* tag as stored; data NULL where the format keeps none */
    ckpt_role role;
    bool requires_grad, conj, neg;
    bool inside;     /* lies below an opaque object, not in dicts and lists alone */
    int64_t storage; /* dense number by first appearance; -1: none (meta, pieces) */
    uint64_t storage_nbytes;
    ckpt_str file;                  /* relative path inside a directory checkpoint; data NULL for a single file */
    ckpt_str param;                 /* the parameter that it belongs to, where known */
    ckpt_str state_key;             /* "exp_avg", "step", ... where it is optimizer state */
    ckpt_str group;                 /* parameter group, where known */
    const ckpt_tensor_extra *extra; /* never NULL: of most tensors one that says nothing */
} ckpt_tensor_info;

CKPT_END_DECLS
#endif
