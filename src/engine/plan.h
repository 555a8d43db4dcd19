/* engine/plan.h - the plan: which elements of a source index become which elements of a target index. Pure: it reads no file and
 * touches no device. The copies are made when they are asked for; no structure grows with their number.
 *
 * A bond says that a tensor of the target is made of a tensor of the source, element for element. Both may lie in pieces, cut in
 * ways that have nothing to do with each other. A worked example: w is float32 of shape 8 x 4. The source has it in two pieces,
 * rows 0 to 3 in storage 0 and rows 4 to 7 in storage 1; the target has it whole, in its storage 0 of 128 bytes.
 *
 *     ckpt__plan_target(plan, 0, 48, 80)   bytes 48 to 79 of the target are rows 3 and 4: two copies of a row each,
 *         {from 0, from_at 48, to 0, to_at 48, 16 bytes}  and  {from 1, from_at 0, to 0, to_at 64, 16 bytes}
 *     ckpt__plan_source(plan, 1, 0, 16)    bytes 0 to 15 of storage 1 are row 4: one copy,
 *         {from 1, from_at 0, to 0, to_at 64, 16 bytes}
 *
 * Before it answers anything the plan has shown, of every bond: the source's pieces do not meet, but for declared replicas; each
 * element of the target has one source; each byte of a target storage is written once. */
#ifndef CKPT_PLAN_H
#define CKPT_PLAN_H
#include "engine/move.h"
#include "model/index.h"

enum {
    CKPT__BOND_STORAGE = 1,  /* to and from are storages: their bytes, as many on both sides */
    CKPT__OP_BYTES = 0xffff, /* an op number: bytes go over as they are, counted one by one */
};

/* What becomes of what. 12 bytes: a checkpoint of a million tensors has a million. The two tensors have one shape, and the dtypes of
 * the op. A target tensor without pieces asks for nothing. The op of a storage swaps bytes, or is CKPT__OP_BYTES. */
typedef struct ckpt__bond {
    uint32_t to, from; /* numbers of tensors, in the target's index and in the source's */
    uint16_t op;       /* number in the plan's ops */
    uint16_t flags;    /* CKPT__BOND_... */
} ckpt__bond;

/* Bytes of a target storage that no bond writes, on purpose: padding between parameters. */
typedef struct ckpt__fill {
    uint32_t storage;
    uint64_t begin, size;
} ckpt__fill;

/* What a plan is made of. All of it is borrowed until the plan is freed. */
typedef struct ckpt__plan_want {
    const ckpt__index *from, *to;
    const ckpt__bond *bonds; /* no two of one target tensor */
    size_t bond_count;
    const ckpt__op *ops; /* fewer than CKPT__OP_BYTES */
    size_t op_count;
    const ckpt__fill *fills;
    size_t fill_count;
    bool whole; /* each byte of each target storage is written or filled: files of ours; else others may write there */
    bool push;  /* ckpt__plan_source, or ckpt__plan_source_runs, will be asked */
    bool runs;  /* ckpt__plan_all_runs will be */
} ckpt__plan_want;

/* What a plan comes to, known before a byte moves. Replicas are counted once in bytes_in. */
typedef struct ckpt__plan_totals {
    uint64_t bytes_in, bytes_out; /* of elements, in the source's dtypes and in the target's */
    uint64_t meets;               /* boxes that a piece of the source and a piece of the target have in common */
    uint64_t replicas;            /* pieces that are not read, as another one is the same */
} ckpt__plan_totals;

typedef struct ckpt__plan ckpt__plan;

/* All checks. CKPT_E_MISMATCH: shapes or dtypes differ, pieces of a source meet, an element of a target has no source, two bonds write one
 * byte, a byte of a `whole` storage is written by none. CKPT_E_DAMAGED: bytes of the source are missing. CKPT_E_LIMIT: it takes more
 * than 10^9 comparisons, or a view repeats few bytes too often. The message names the tensor and the first box that is wrong. */
ckpt_status ckpt__plan_new(const ckpt__plan_want *want, ckpt__plan **out, ckpt_error *err);
void ckpt__plan_free(ckpt__plan *plan);
void ckpt__plan_totals_of(const ckpt__plan *plan, ckpt__plan_totals *out);
uint64_t ckpt__plan_memory(const ckpt__plan *plan); /* bytes that grow with the bonds, beside the bonds themselves */

/* The proof of one split tensor by itself: how many of its elements are in its pieces. CKPT_E_MISMATCH: two of them meet, and are no
 * replicas; the message says which. CKPT_E_LIMIT as above. */
ckpt_status ckpt__plan_cover(const ckpt__index *index, size_t tensor, uint64_t *elements, ckpt_error *err);

/* What it was made of. */
const ckpt__index *ckpt__plan_source_index(const ckpt__plan *plan);
const ckpt__index *ckpt__plan_target_index(const ckpt__plan *plan);
size_t ckpt__plan_bond_count(const ckpt__plan *plan);
const ckpt__bond *ckpt__plan_bond(const ckpt__plan *plan, size_t bond);
const ckpt__op *ckpt__plan_op_of(const ckpt__plan *plan, uint16_t op); /* of CKPT__OP_BYTES too */
/* The name of the bond's source tensor or storage, for messages. */
const char *ckpt__plan_name_of(const ckpt__plan *plan, uint32_t bond);

/* Of a bond of tensors: are the elements of the target in C order, or in another order without holes, and those of each piece of the
 * source in the same? Then each range of the target is ranges of the source, and nothing is gained by larger windows. No piece of
 * a split source is compressed or computed. */
bool ckpt__plan_is_straight(const ckpt__plan *plan, size_t bond);
/* Bytes that the storages of a tensor have reversed as a unit; 1: none. 0: they differ, and no op fits. */
uint8_t ckpt__plan_swap_of(const ckpt__index *index, const ckpt__tensor *tensor);

/* One box of elements that goes over. It lives until the function that gets it returns. */
typedef struct ckpt__copy {
    uint32_t from, to;       /* storages */
    uint32_t bond;           /* number */
    uint16_t op;             /* number, or CKPT__OP_BYTES */
    uint64_t from_at, to_at; /* of the first element in the storages, in bytes */
    ckpt__copy_box box;
} ckpt__copy;
typedef ckpt_status ckpt__copy_fn(void *ctx, const ckpt__copy *copy, ckpt_error *err);

/* The copies that make bytes [begin, end) of a target storage: each element of which a byte is in the range is in one copy, and no
 * other element. So a range that cuts an element has all of it. Threads may ask at the same time. A negative answer of fn ends the
 * call. */
ckpt_status ckpt__plan_target(const ckpt__plan *plan, uint32_t storage, uint64_t begin, uint64_t end, ckpt__copy_fn *fn,
                              void *ctx, ckpt_error *err);
/* The copies that bytes [begin, end) of a source storage feed: of each bond, each element whose first byte is in the range is in one
 * copy, and no other element. So ranges that do not meet give no element twice, and the last one may end behind its range. */
ckpt_status ckpt__plan_source(const ckpt__plan *plan, uint32_t storage, uint64_t begin, uint64_t end, ckpt__copy_fn *fn,
                              void *ctx, ckpt_error *err);
/* What is read of a source storage: the bytes of those of its pieces that a piece of the target meets, those with holes of at most `hole` bytes between them as one run, in
 * ascending order. Nothing: no bond is made of it. */
typedef ckpt_status ckpt__run_fn(void *ctx, uint64_t begin, uint64_t end, ckpt_error *err);
ckpt_status ckpt__plan_source_runs(const ckpt__plan *plan, uint32_t storage, uint64_t hole, ckpt__run_fn *fn, void *ctx,
                                   ckpt_error *err);
/* The same of all storages, one after the other, without the memory that answering for any of them takes. */
typedef ckpt_status ckpt__storage_run_fn(void *ctx, uint32_t storage, uint64_t begin, uint64_t end, ckpt_error *err);
ckpt_status ckpt__plan_all_runs(const ckpt__plan *plan, uint64_t hole, ckpt__storage_run_fn *fn, void *ctx,
                                ckpt_error *err);
/* One box of elements of a bond: what one piece of its source and one piece of its target have in common; or a piece of the source that
 * is not read, as another one is the same (replica). In the example above the bond has two: lo {0, 0}, size {4, 4}, bytes 0 to 63
 * of storage 0, to bytes 0 to 63; and lo {4, 0}, size {4, 4}, bytes 0 to 63 of storage 1, to bytes 64 to 127. It lives until the
 * function that gets it returns. */
typedef struct ckpt__bond_box {
    uint32_t n;               /* numbers in lo, size, strides */
    bool flat;                /* n is 1: elements of the tensor in C order; of a storage its bytes */
    bool replica;             /* `to` means nothing */
    const int64_t *lo, *size; /* in elements of the tensor; lo NULL: all zero */
    const int64_t *strides;   /* elements of the source's storage; NULL: bytes of a storage */
    const int64_t
        *piece; /* lo[n], size[n] of the source's piece; NULL: the source is whole. Of a range that meets boxes it
                               * is the box of it that was cut */
    uint32_t from, to;                         /* storages */
    uint64_t from_at, from_end, to_at, to_end; /* bytes there, from the first element to past the last */
} ckpt__bond_box;
typedef ckpt_status ckpt__bond_box_fn(void *ctx, const ckpt__bond_box *box, ckpt_error *err);
/* All boxes of a bond, then its replicas: each element that the target asks for is in one box. A negative answer of fn ends the call. */
ckpt_status ckpt__plan_bond_boxes(const ckpt__plan *plan, size_t bond, ckpt__bond_box_fn *fn, void *ctx,
                                  ckpt_error *err);
/* The bytes that all copies of a bond write together: UINT64_MAX where another bond writes the very same ones, and this one has no
 * copies. */
uint64_t ckpt__plan_bond_bytes(const ckpt__plan *plan, size_t bond);
#endif
